"""The stored frames of the chapter on Hadar's results come from this code, and its list of claims is sound."""
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.frames import read_frame
from sched_lab.traces import find_data

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("hadar_results", ROOT / "tools" / "hadar_results.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)
measured = pytest.mark.skipif(find_data("gavel/throughputs.csv") is None,
                              reason="the data gavel/throughputs.csv is absent")
PAPER = pd.read_csv(ROOT / "data" / "paper" / "hadar.csv", keep_default_na=False)


def stored(name, **cell):
    """Rows of a stored frame that belong to a cell."""
    frame = read_frame(tool.RESULTS / f"{name}.csv")
    return frame[np.logical_and.reduce([frame[column] == value for column, value in cell.items()])]


@pytest.mark.parametrize("cell", [("synthetic", "K80-hours", "YARN-CS", 1),
                                  ("synthetic", "K80-hours x 0.62", "Gavel makespan", 2),
                                  ("synthetic", "K80-hours", "Hadar inv", 0),
                                  ("synthetic", "K80-hours", "fluid bound", 0),
                                  ("synthetic", "K80-hours", "price bound", 1),
                                  pytest.param(("measured", "K80-hours", "Tiresias", 2), marks=measured)])
def test_a_run_of_the_trace_gives_the_stored_numbers_again(cell):
    names = ["table", "workload", "scheduler", "seed"]
    now = tool.trace(*cell).assign(**dict(zip(names, cell, strict=True)))
    for name, frame in tool.split_trace(now):
        kept = {key: value for key, value in zip(names, cell, strict=True) if key in frame}
        before = stored(name, **kept) if cell[1] == "K80-hours" or name == "trace" else frame
        shared = [column for column in frame if column in before]
        pd.testing.assert_frame_equal(frame[shared].reset_index(drop=True), before[shared].reset_index(drop=True),
                                      atol=2e-6, rtol=1e-9, check_dtype=False)


@pytest.mark.parametrize("cell", [("aws", "M-5", "fp32/sqrt(V)", 180.0, "HadarE longest"),
                                  ("testbed", "M-4", "sqrt(tensor/V)", 360.0, "Hadar effnorm"),
                                  ("testbed", "M-3", "tensor/sqrt(V)", 90.0, "Gavel max-min"),
                                  ("aws", "M-12", "fp32/sqrt(V)", 720.0, "fluid bound, copies")])
def test_a_run_on_five_nodes_gives_the_stored_numbers_again(cell):
    names = ["cluster", "mix", "formula", "slot_s", "scheduler"]
    ((_, before),) = stored("nodes", **dict(zip(names, cell, strict=True))).iterrows()
    for name, value in tool.nodes(*cell).items():
        assert before[name] == pytest.approx(value, abs=2e-6, nan_ok=True), name


def test_every_cell_of_the_tool_is_stored_once():
    for name in ("trace", "variants", "decisions", "nodes", "training"):
        _, cells = tool.CELLS_OF[name]
        frame = read_frame(tool.RESULTS / f"{name}.csv")
        given = pd.MultiIndex.from_frame(pd.DataFrame(cells))
        assert sorted(given) == sorted(pd.MultiIndex.from_frame(frame[list(given.names)])), name


def test_no_schedule_that_is_stored_beats_a_bound():
    key = ["table", "workload", "seed"]
    frame = read_frame(tool.RESULTS / "trace.csv")
    for measure, bounds in (("ttd_h", [tool.BOUND, tool.PRICE_BOUND]), ("mean_jct_h", [tool.PRICE_BOUND])):
        runs = frame.pivot(index=key, columns="scheduler", values=measure)
        least = runs.drop(columns=[tool.BOUND, tool.PRICE_BOUND]).min(axis=1)
        assert all((least >= runs[bound] * (1 - 1e-9)).all() for bound in bounds)
    key = ["cluster", "mix", "formula", "slot_s"]
    nodes = read_frame(tool.RESULTS / "nodes.csv").pivot(index=key, columns="scheduler", values="ttd_s")
    assert (nodes[list(tool.ON_NODES)].min(axis=1) >= nodes[tool.BOUND] - 1e-3).all()
    assert (nodes.drop(columns=tool.BOUND).min(axis=1) >= nodes[tool.COPIES_BOUND] - 1e-3).all()


def test_curves_rise_to_the_last_completion():
    curves = stored("curves", table="synthetic", scheduler="Gavel max-sum", seed=1)
    run = stored("trace", table="synthetic", workload="K80-hours", scheduler="Gavel max-sum", seed=1)
    assert curves["percent"].tolist() == list(tool.DONE) and curves["done_h"].is_monotonic_increasing
    assert curves["done_h"].iloc[-1] == pytest.approx(run["ttd_h"].item())
    assert curves.set_index("percent")["done_h"][50] == pytest.approx(run["median_jct_h"].item(), rel=0.01)


def test_mean_of_the_utilisation_curve_is_the_utilisation():
    # the mean of a quantity is the area above its distribution function, here in steps of 2.5 points
    held = stored("utilisation", table="synthetic", scheduler="Tiresias", seed=0).set_index("percent")["time_share"]
    run = stored("trace", table="synthetic", workload="K80-hours", scheduler="Tiresias", seed=0)
    mean = 100 - 2.5 * held.iloc[:-1].sum()
    assert held[100.0] == 1 and 0 <= mean - 100 * run["gru"].item() <= 2.5


def test_without_the_measured_speeds_stored_rows_stay(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(tool, "CELLS", tmp_path / "cells")
    monkeypatch.setattr(tool, "count_cores", lambda: 1)
    monkeypatch.setattr(tool, "find_data", lambda name: None)
    cell = {"workload": "K80-hours", "scheduler": tool.BOUND, "seed": 0}
    monkeypatch.setitem(tool.CELLS_OF, "trace", (tool.trace, [{"table": table} | cell for table in tool.TABLES]))
    old = pd.DataFrame([{"table": "measured"} | cell | {"ttd_h": 12.5}, {"table": "synthetic"} | cell | {"ttd_h": 1.0}])
    tool.write_frame(old, tmp_path / "results" / "trace.csv", {"version": 0})
    names = [path.name for path in tool.compute(["trace", "speed_ratios"])]
    assert "trace.csv" in names and "speed_ratios.csv" not in names
    frame = read_frame(tmp_path / "results" / "trace.csv").set_index("table")["ttd_h"]
    assert frame["measured"] == 12.5 and frame["synthetic"] > 1
    assert "trace: 1 of 2 cells skipped" in capsys.readouterr().err


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
