"""The experiments of Hadar: every stored frame has one, cheap cells come out as stored, frames decide claims."""
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.lab.frames import embedded, read_frame
from sched_lab.traces import find_data
from studies import hadar as chapter
from studies.hadar import CELLS, CLAIMS, EXPERIMENTS, NodeEvidence, Number
from studies.reproduction import Workplace, claims_frame, reproduce

RESULTS = Path(__file__).parents[2] / "data" / "results"
PAPER = pd.read_csv(embedded("paper/hadar.csv"), keep_default_na=False)
FEW = {"training": 1, "nodes": 12}  # cells that are computed again
measured = pytest.mark.skipif(find_data(chapter.MEASURED) is None, reason=f"the data {chapter.MEASURED} is absent")


def read(path):
    return read_frame(RESULTS / path)


def test_every_cell_is_stored_once():
    for name, (_, cells) in CELLS.items():
        frame = read(f"hadar/{name}.csv")
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
    before = pd.DataFrame(few).merge(read(path), how="left")
    pd.testing.assert_frame_equal(frame[list(before)], before, check_dtype=False, atol=2e-6, rtol=1e-9)


def test_the_trace_is_cut_into_three_frames(tmp_path, monkeypatch):
    cells = [{"table": "synthetic", "workload": "K80-hours", "scheduler": name, "seed": 1}
             for name in ("fluid bound", "YARN-CS")]
    monkeypatch.setitem(CELLS, "trace", (chapter.run_trace, cells))
    computed = EXPERIMENTS["trace"].compute(Workplace(tmp_path))
    assert list(computed) == list(EXPERIMENTS["trace"].frames)
    for path, frame in computed.items():
        stored = read(path)
        names = [name for name in cells[0] if name in frame]
        own = pd.DataFrame(cells)[names].drop_duplicates().merge(stored, how="inner")
        assert len(own) == len(frame) and list(frame) == list(stored), path
        pd.testing.assert_frame_equal(frame.reset_index(drop=True), own[list(frame)], check_dtype=False,
                                      atol=2e-6, rtol=1e-9)


@measured
def test_the_ratios_of_speeds_are_the_same_again(tmp_path):
    place = Workplace(tmp_path, find=find_data)
    rows = reproduce(EXPERIMENTS, CLAIMS, ["speed_ratios"], results=RESULTS, workplace=place, check=True)
    assert rows["outcome"].tolist() == ["same"]


def test_times_of_decisions_are_measured_and_never_compared():
    assert EXPERIMENTS["decisions"].measured == ("decision_ms",)
    times = chapter.time_decision("synthetic", 32, "Hadar effnorm")
    assert times["gpus"] > 0 and times["decision_ms"] >= 0


def test_a_mix_as_listed_has_other_types_first_and_the_same_speeds():
    fast = chapter.node_workload("testbed", "M-4")
    listed = chapter.as_listed(fast)
    assert listed.type_name != fast.type_name and listed.cluster.node_type.tolist() == list(range(5))
    assert (listed.jobs.rate[:, listed.cluster.node_type] == fast.jobs.rate[:, fast.cluster.node_type]).all()


# --- claims


def test_every_claim_is_decided_and_says_why():
    decided = claims_frame(CLAIMS, read)
    assert len(decided) == len(PAPER) + 26 and not decided["claim"].duplicated().any()
    numbers = decided.iloc[:len(PAPER)]
    assert (numbers["paper"] == [f"{value:g}" for value in PAPER["value"]]).all() and numbers["why"].all()
    assert numbers["status"].value_counts().to_dict() == {"direction only": 21, "not testable": 18,
                                                          "not reproduced": 11, "reproduced": 9, "impossible": 4}


def test_a_claim_moves_with_the_frame_that_decides_it():
    claim = next(claim for claim in CLAIMS if claim.text == "IV-B: TTD of Hadar below Gavel's")
    trace = read("hadar/trace.csv")
    assert claim.ours(trace)[1] == "not reproduced"
    quick = trace.assign(ttd_h=trace["ttd_h"].where(~trace["scheduler"].str.startswith("Hadar"), 1.0))
    assert claim.ours(quick)[:2] == ("in 6 of 6 cases", "reproduced")


@pytest.mark.parametrize(("found", "status"), [(1.2, "reproduced"), (1.25, "reproduced"), (1.3, "direction only"),
                                               (0.99, "not reproduced")])
def test_the_status_of_a_number_follows_the_rule(found, status):
    row = Number("I", "ttd_ratio", "trace", "", "Hadar", "Gavel", 1.2)
    assert chapter.status_of(NodeEvidence({}), row, found) == status
    loose = row._replace(against="Tiresias")
    assert chapter.status_of(NodeEvidence({}), loose, found) == ("direction only" if found > 1 else "not reproduced")


def test_numbers_are_said_in_three_digits():
    said = [chapter.digits(value) for value in (0.5, 7.19, 71.84, 4200.0, 0.00198)]
    assert said == ["0.50", "7.19", "71.8", "4200", "0.00198"]
    assert chapter.in_words((7.19, 4.95, 7.19)) == "7.19 (4.95 to 7.19)"
    assert chapter.in_words((2.0, np.nan, np.nan)) == "2" and chapter.in_words(chapter.NOTHING) == "none"
