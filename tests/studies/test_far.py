"""The experiments behind the results chapter: cheap cells again, and stored frames whole."""
import numpy as np
import pandas as pd
import pytest

from studies import far as experiments
from studies.far import (
    batches,
)
from tests.studies.stored import stored


def stored_cell(name, **cell):
    """Take the stored rows of one cell, without its parameters."""
    frame = stored(f"far/{name}.csv")
    chosen = frame[(frame[list(cell)] == pd.Series(cell)).all(axis=1)]
    return chosen.drop(columns=list(cell)).reset_index(drop=True)


def test_cheap_cells_come_out_as_stored():
    cell = {"scaling": "poor", "width": "wide", "num_tasks": 10, "p_sup": "0"}
    pd.testing.assert_frame_equal(experiments.single(**cell).round(6), stored_cell("single", **cell), check_exact=True,
                                  check_dtype=False)
    search = {"model": "A30", "num_gpus": 1, "num_tasks": 2}
    found = pd.DataFrame([experiments.ratios(**search)]).round(6)
    pd.testing.assert_frame_equal(found, stored_cell("ratios", **search), check_exact=True)


@pytest.mark.parametrize(("name", "count", "cell"), [
    ("plus", "RUNS", {"scaling": "good", "width": "narrow", "num_tasks": 10, "p_sup": "0"}),
    ("effort", "RUNS", {"scaling": "mixed", "width": "wide", "num_tasks": 12, "p_sup": "0"}),
    ("distance", "RUNS", {"scaling": "mixed", "width": "wide", "num_tasks": 5, "p_sup": "0"}),
    ("sigma", "RUNS", {"scaling": "good", "width": "wide", "num_tasks": 6, "p_sup": "0.5 near"}),
    ("chains", "BATCHES", {"scaling": "poor", "width": "narrow", "num_tasks": 5, "p_sup": "0.5"}),
])
def test_every_function_gives_the_quantities_that_are_stored(name, count, cell, monkeypatch):
    monkeypatch.setattr(experiments, count, 51)
    found = getattr(experiments, name)(**cell)
    assert list(found["quantity"]) == list(dict.fromkeys(stored(f"far/{name}.csv")["quantity"]))
    assert np.isfinite(found["mean"]).all()


def test_batches_are_the_same_whenever_they_are_drawn():
    once, again = ([times_s for _, times_s in batches("mixed", "wide", 15, "0.5 near", count)] for count in (3, 2))
    assert all(np.array_equal(one, other) for one, other in zip(once, again, strict=False))
    other = next(batches("mixed", "wide", 15, "0.5", 1))[1]
    assert not np.array_equal(once[0], other)
