"""The experiments behind the results chapter: cheap cells again, stored frames whole, claims decided."""
import numpy as np
import pandas as pd
import pytest

from studies import far as experiments
from studies.far import (
    batches,
    beside,
    judge,
    judged,
    paper_tables,
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


@pytest.mark.parametrize(("quantity", "given", "found", "status"), [
    ("rho", 1.20, 1.215, "reproduced"), ("rho", 1.20, 1.23, "direction only"), ("sigma miso", 2.0, 2.09, "reproduced"),
    ("sigma miso", 2.0, 2.2, "direction only"), ("sigma miso", 2.0, 0.9, "not reproduced"),
    ("moves", 0.0, 0.25, "reproduced"), ("swaps", 10.0, 11.5, "reproduced"), ("swaps", 10.0, 4.9, "not reproduced")])
def test_the_status_of_a_cell_is_a_rule(quantity, given, found, status):
    row = pd.Series({"paper": given, "0": found}, name=("poor", "wide", 10, quantity))
    assert judge(row, "0") == status


def test_the_tables_of_the_paper_stand_beside_ours():
    assert len(paper_tables()) == 186
    assert set(judged(4, stored("far/single.csv"))["status"]) == {"reproduced", "direction only"}
    assert list(beside(9, stored("far/chains.csv")).columns) == ["paper", "0", "0.5"]
