"""The experiments of Hadar: every cell is stored, cheap ones come out again, and no schedule beats a bound."""
import pandas as pd
import pytest

from sched_lab.traces import find_data
from studies import hadar as chapter
from studies.hadar import CELLS, EXPERIMENTS
from studies.reproduction import Workplace
from tests.studies.stored import stored

FEW = {"training": 1, "nodes": 12}  # cells that are computed again
measured = pytest.mark.skipif(find_data(chapter.MEASURED) is None, reason=f"the data {chapter.MEASURED} is absent")


def test_every_cell_is_stored_once():
    for name, (_, cells) in CELLS.items():
        frame = stored(f"hadar/{name}.csv")
        given = pd.MultiIndex.from_frame(pd.DataFrame(cells))
        rows = frame[list(given.names)]
        rows = rows.drop_duplicates() if name in ("speed_ratios", "energy_fronts") else rows
        assert sorted(given) == sorted(pd.MultiIndex.from_frame(rows)), name


@pytest.mark.parametrize("name", FEW)
def test_some_cells_come_out_as_stored(name, tmp_path, monkeypatch):
    function, cells = CELLS[name]
    few = cells[::len(cells) // FEW[name]][:FEW[name]]
    monkeypatch.setitem(CELLS, name, (function, few))
    (path, frame), = EXPERIMENTS[name].compute(Workplace(tmp_path)).items()
    before = pd.DataFrame(few).merge(stored(path), how="left")
    pd.testing.assert_frame_equal(frame[list(before)], before, check_dtype=False, atol=2e-6, rtol=1e-9)


@pytest.mark.parametrize("given", [
    [("synthetic", "K80-hours", "fluid bound", 1), ("synthetic", "K80-hours", "YARN-CS", 1),
     ("synthetic", "K80-hours", "Hadar inv", 0), ("synthetic", "K80-hours", "price bound", 1)],
    [("synthetic", "K80-hours x 0.62", "Gavel makespan", 2)],
    pytest.param([("measured", "K80-hours", "Tiresias", 2)], marks=measured)])
def test_the_trace_is_cut_into_three_frames(given, tmp_path, monkeypatch):
    cells = pd.DataFrame(given, columns=["table", "workload", "scheduler", "seed"])
    monkeypatch.setitem(CELLS, "trace", (chapter.run_trace, cells.to_dict("records")))
    computed = EXPERIMENTS["trace"].compute(Workplace(tmp_path, find=find_data))
    assert list(computed) == list(EXPERIMENTS["trace"].frames)
    for path, frame in computed.items():
        assert list(frame) == list(stored(path)), path
        asked = cells if "workload" in frame else cells[cells["workload"] == "K80-hours"]  # curves are of this one
        own = asked[[name for name in cells if name in frame]].merge(stored(path), how="inner")
        pd.testing.assert_frame_equal(frame.reset_index(drop=True), own[list(frame)], check_dtype=False,
                                      atol=2e-6, rtol=1e-9)


def test_no_schedule_that_is_stored_beats_a_bound():
    key = ["table", "workload", "seed"]
    frame = stored("hadar/trace.csv")
    for measure, bounds in (("ttd_h", [chapter.BOUND, chapter.PRICE_BOUND]), ("mean_jct_h", [chapter.PRICE_BOUND])):
        runs = frame.pivot(index=key, columns="scheduler", values=measure)
        least = runs.drop(columns=[chapter.BOUND, chapter.PRICE_BOUND]).min(axis=1)
        assert all((least >= runs[bound] * (1 - 1e-9)).all() for bound in bounds)
    key = ["cluster", "mix", "formula", "slot_s"]
    nodes = stored("hadar/nodes.csv").pivot(index=key, columns="scheduler", values="ttd_s")
    assert (nodes[list(chapter.ON_NODES)].min(axis=1) >= nodes[chapter.BOUND] - 1e-3).all()
    assert (nodes.drop(columns=chapter.BOUND).min(axis=1) >= nodes[chapter.COPIES_BOUND] - 1e-3).all()


def test_times_of_decisions_are_measured_and_never_compared():
    assert EXPERIMENTS["decisions"].measured == ("decision_ms",)
    times = chapter.time_decision("synthetic", 32, "Hadar effnorm")
    assert times["gpus"] > 0 and times["decision_ms"] >= 0


def test_a_mix_as_listed_has_other_types_first_and_the_same_speeds():
    fast = chapter.node_workload("testbed", "M-4")
    listed = chapter.as_listed(fast)
    assert listed.type_name != fast.type_name and listed.cluster.node_type.tolist() == list(range(5))
    assert (listed.jobs.rate[:, listed.cluster.node_type] == fast.jobs.rate[:, fast.cluster.node_type]).all()
