"""The stored frames of the chapter on Hadar's results come from this code, and its list of claims is sound."""
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.lab.frames import embedded, read_frame
from sched_lab.traces import find_data
from studies import hadar as chapter

RESULTS = Path(__file__).parents[2] / "data" / "results" / "hadar"
measured = pytest.mark.skipif(find_data("gavel/throughputs.csv") is None,
                              reason="the data gavel/throughputs.csv is absent")
PAPER = pd.read_csv(embedded("paper/hadar.csv"), keep_default_na=False)


def stored(name, **cell):
    """Rows of a stored frame that belong to a cell."""
    frame = read_frame(RESULTS / f"{name}.csv")
    return frame[np.logical_and.reduce([frame[column] == value for column, value in cell.items()])]


@pytest.mark.parametrize("cell", [("synthetic", "K80-hours x 0.62", "Gavel makespan", 2),
                                  ("synthetic", "K80-hours", "Hadar inv", 0),
                                  ("synthetic", "K80-hours", "price bound", 1),
                                  pytest.param(("measured", "K80-hours", "Tiresias", 2), marks=measured)])
def test_a_run_of_the_trace_gives_the_stored_numbers_again(cell):
    names = ["table", "workload", "scheduler", "seed"]
    now = chapter.run_trace(*cell).assign(**dict(zip(names, cell, strict=True)))
    for name, frame in {"trace": chapter.runs_of(now), "curves": chapter.curve_of(now, "done_h"),
                        "utilisation": chapter.curve_of(now, "time_share")}.items():
        kept = {key: value for key, value in zip(names, cell, strict=True) if key in frame}
        before = stored(name, **kept) if cell[1] == "K80-hours" or name == "trace" else frame
        shared = [column for column in frame if column in before]
        pd.testing.assert_frame_equal(frame[shared].reset_index(drop=True), before[shared].reset_index(drop=True),
                                      atol=2e-6, rtol=1e-9, check_dtype=False)


def test_no_schedule_that_is_stored_beats_a_bound():
    key = ["table", "workload", "seed"]
    frame = read_frame(RESULTS / "trace.csv")
    for measure, bounds in (("ttd_h", [chapter.BOUND, chapter.PRICE_BOUND]), ("mean_jct_h", [chapter.PRICE_BOUND])):
        runs = frame.pivot(index=key, columns="scheduler", values=measure)
        least = runs.drop(columns=[chapter.BOUND, chapter.PRICE_BOUND]).min(axis=1)
        assert all((least >= runs[bound] * (1 - 1e-9)).all() for bound in bounds)
    key = ["cluster", "mix", "formula", "slot_s"]
    nodes = read_frame(RESULTS / "nodes.csv").pivot(index=key, columns="scheduler", values="ttd_s")
    assert (nodes[list(chapter.ON_NODES)].min(axis=1) >= nodes[chapter.BOUND] - 1e-3).all()
    assert (nodes.drop(columns=chapter.BOUND).min(axis=1) >= nodes[chapter.COPIES_BOUND] - 1e-3).all()


def test_curves_rise_to_the_last_completion():
    curves = stored("curves", table="synthetic", scheduler="Gavel max-sum", seed=1)
    run = stored("trace", table="synthetic", workload="K80-hours", scheduler="Gavel max-sum", seed=1)
    assert curves["percent"].tolist() == list(chapter.DONE) and curves["done_h"].is_monotonic_increasing
    assert curves["done_h"].iloc[-1] == pytest.approx(run["ttd_h"].item())
    assert curves.set_index("percent")["done_h"][50] == pytest.approx(run["median_jct_h"].item(), rel=0.01)


def test_mean_of_the_utilisation_curve_is_the_utilisation():
    # the mean of a quantity is the area above its distribution function, here in steps of 2.5 points
    held = stored("utilisation", table="synthetic", scheduler="Tiresias", seed=0).set_index("percent")["time_share"]
    run = stored("trace", table="synthetic", workload="K80-hours", scheduler="Tiresias", seed=0)
    mean = 100 - 2.5 * held.iloc[:-1].sum()
    assert held[100.0] == 1 and 0 <= mean - 100 * run["gru"].item() <= 2.5


def test_the_papers_numbers_are_written_once_and_fit_each_other():
    assert not PAPER.duplicated(["where", "quantity", "setting", "mix", "scheduler", "against"]).any()
    assert PAPER["value"].gt(0).all()

    def value(where, quantity, setting, scheduler, against):
        names = ["where", "quantity", "setting", "scheduler", "against", "mix"]
        return PAPER.set_index(names)["value"][where, quantity, setting, scheduler, against, ""]

    # HadarE over Gavel = HadarE over Hadar x Hadar over Gavel, for JCT and CRU on both clusters
    for quantity in ("jct_ratio", "cru_ratio"):
        for cluster in ("aws", "testbed"):
            over_gavel = value("VI-C", quantity, cluster, "HadarE", "Gavel")
            of_hadar = value("VI-C" if quantity == "jct_ratio" else "I", quantity, cluster, "Hadar", "Gavel")
            assert value("I", quantity, cluster, "HadarE", "Hadar") == pytest.approx(over_gavel / of_hadar, abs=0.011)
