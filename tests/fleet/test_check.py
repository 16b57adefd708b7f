"""What cannot be true in a cluster is found, with row and mend; what can be true is left alone."""
import json
import time
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab import holdings
from sched_lab.fleet.read.check import FINDING_COLUMNS, check_cluster, zone_shift
from sched_lab.fleet.read.tables import NODE_COLUMNS, TASK_COLUMNS, ClusterTables, Ledger, with_columns, write_cluster
from sched_lab.fleet.replay.problem import problem_of
from sched_lab.holdings import Bookings, overfull
from sched_lab.lab.frames import InputError

NODES = [{"name": "n0", "gpu_model": "T4", "num_gpus": 2, "cpu_milli": 64_000, "memory_mib": 262_144},
         {"name": "n1", "gpu_model": "V100M16", "num_gpus": 8, "cpu_milli": 96_000, "memory_mib": 393_216}]
TASK = {"name": "A", "submit_s": 0, "start_s": 5, "end_s": 65, "num_gpus": 1, "gpu_milli": 1000, "cpu_milli": 8000,
        "memory_mib": 16_384, "node": "n0", "gpu_list": "0"}


def cluster(*tasks: dict, nodes=NODES) -> ClusterTables:
    """Make a cluster whose tasks are the good task but for what is said."""
    rows = [{**TASK, "name": f"task-{k}", **task} for k, task in enumerate(tasks)]
    return ClusterTables(with_columns(pd.DataFrame(nodes), NODE_COLUMNS),
                         with_columns(pd.DataFrame(rows, columns=None if rows else ["name"]), TASK_COLUMNS),
                         Ledger().frame(), {"zero": None})


def kinds(tables: ClusterTables, **options) -> dict[str, list]:
    """Rows by kind of finding."""
    frame = check_cluster(tables, **options).findings
    return {kind: rows["row"].tolist() for kind, rows in frame.groupby("kind", sort=False)}


def test_a_good_cluster_is_usable():
    checked = check_cluster(cluster({}, {"gpu_list": "1"}, {"start_s": 65, "end_s": 70}))
    assert checked.exit_code == 0 and checked.findings.empty
    assert checked.summary() == ["usable: 2 nodes with 10 GPUs, 3 tasks in 0.0 days, 3 of them on a known node"]


@pytest.mark.parametrize(("task", "kind"), [
    ({"end_s": 4}, "end before start"), ({"end_s": 5 - 3600}, "end before start"),
    ({"submit_s": 6}, "start before submit"), ({"start_s": None, "submit_s": 70, "node": ""}, "end before submit"),
    ({"submit_s": -1}, "negative time"), ({"num_gpus": 9, "node": "", "gpu_list": ""}, "larger than any node"),
    ({"num_gpus": 10**9, "node": "", "gpu_list": ""}, "larger than any node"),
    ({"cpu_milli": 96_001, "node": ""}, "larger than any node"),
    ({"memory_mib": 10**9, "node": ""}, "larger than any node"),
    ({"num_gpus": 3, "gpu_models": "T4", "node": "", "gpu_list": ""}, "larger than any node"),
    ({"gpu_models": "H100", "node": ""}, "larger than any node"),
    ({"num_gpus": 8, "cpu_milli": 90_000, "memory_mib": 393_217, "node": ""}, "larger than any node"),
    ({"num_gpus": -1, "gpu_list": ""}, "negative count"), ({"num_gpus": None, "gpu_list": ""}, "unknown GPUs"),
    ({"gpu_milli": 1001}, "impossible share"), ({"gpu_milli": 0}, "impossible share"),
    ({"num_gpus": 2, "gpu_milli": 500, "gpu_list": "0-1"}, "shares of several"),
    ({"num_gpus": 0, "gpu_list": ""}, "share of nothing"), ({"mig_profile": "8h.9gb"}, "unknown MIG profile"),
    ({"node": "nowhere"}, "unknown node"), ({"gpu_list": "2"}, "GPU beyond the node"),
    ({"gpu_list": "zero"}, "no GPU list"), ({"gpu_list": "0-1"}, "another number of GPUs"),
])
def test_an_impossible_row_is_found_with_its_line(task, kind):
    tables = cluster({"gpu_list": "1"}, task)
    found = kinds(tables)
    assert found[kind] == [3]
    checked = check_cluster(tables)
    assert checked.exit_code == 1 and (checked.findings["mend"] != "").all()
    assert any("tasks.csv row 3" in line for line in checked.summary())


def test_an_exact_fit_is_no_finding():
    largest = {"num_gpus": 8, "cpu_milli": 96_000, "memory_mib": 393_216, "node": "n1", "gpu_list": "0-1-2-3-4-5-6-7",
               "gpu_models": "A100|V100M16"}
    assert kinds(cluster(largest)) == {}


def test_a_gpu_booked_twice_names_when_and_who():
    tables = cluster({"name": "early"}, {"name": "late", "start_s": 60, "end_s": 100})
    findings = check_cluster(tables).findings
    assert findings["kind"].tolist() == ["GPU booked twice"] and findings["row"].tolist() == [3]
    assert findings["problem"][0] == "GPU 0 of n0 holds 2,000 of 1,000 from 60 s until 65 s: early, late"


def test_a_hand_over_and_two_halves_are_no_double_booking():
    assert kinds(cluster({}, {"start_s": 65, "end_s": 80})) == {}
    assert kinds(cluster({"gpu_milli": 500}, {"gpu_milli": 500})) == {}
    assert kinds(cluster({"gpu_milli": 500}, {"gpu_milli": 501})) == {"GPU booked twice": [3]}


def test_a_task_without_end_or_start_is_there():
    assert "GPU booked twice" in kinds(cluster({"end_s": None}, {"start_s": 10**6, "end_s": 10**6 + 1}))
    assert "GPU booked twice" in kinds(cluster({"start_s": None, "end_s": None}, {}))


def test_nodes_are_overbooked_in_gpus_cpu_and_memory():
    assert kinds(cluster(*[{"gpu_list": "", "num_gpus": 1}] * 3)) == {"GPUs of a node overbooked": [4]}
    assert kinds(cluster({"cpu_milli": 40_000}, {"cpu_milli": 24_001, "gpu_list": "1"})) == {"CPU overbooked": [3]}
    assert kinds(cluster({"memory_mib": 262_144}, {"memory_mib": 1, "gpu_list": "1"})) == {"memory overbooked": [3]}


def test_watts_are_missed_for_named_models_only():
    strange = [{**NODES[0], "gpu_model": "NVIDIA-A100-SXM9-96GB"}, NODES[1]]
    checked = check_cluster(cluster({}, nodes=strange))
    assert checked.findings["kind"].tolist() == ["no watts"] and checked.exit_code == 0
    assert "A100 may be the same" in checked.findings["mend"][0]
    assert check_cluster(cluster({}, nodes=strange), {"NVIDIA-A100-SXM9-96GB": (50, 400)}).exit_code == 0
    silent = check_cluster(cluster({}, nodes=[{**NODES[0], "gpu_model": ""}, NODES[1]]))
    assert silent.findings["severity"].tolist() == ["note"] and silent.exit_code == 0


@pytest.mark.parametrize(("column", "values", "words"), [
    ("num_gpus", [100, 50, 400, 800, 100, 200], "per cent"), ("gpu_milli", [100, 50, 25, 70, 30, 100], "per cent"),
    ("gpu_milli", [1, 1, 1, 1, 1, 1], "look like GPUs"), ("cpu_milli", [8, 4, 16, 32, 2, 96], "cores"),
    ("memory_mib", [2**34, 2**33, 2**35, 2**34, 2**30, 2**34], "bytes"),
    ("memory_mib", [2**24, 2**23, 2**25, 2**24, 2**20, 2**24], "KiB"),
    ("submit_s", [0, 4e10, 1, 2, 3, 4], "milliseconds"),
])
def test_a_slip_of_units_is_found(column, values, words):
    tasks = [{column: value, "node": "", "gpu_list": "", "start_s": None, "end_s": None} for value in values]
    findings = check_cluster(cluster(*tasks)).findings
    slips = findings[findings["kind"] == "unit slip"]
    assert len(slips) == 1 and words in slips["problem"].iloc[0] and slips["mend"].iloc[0]


@pytest.mark.parametrize(("column", "value", "words"), [
    ("num_gpus", 800, "per cent"), ("cpu_milli", 96, "cores"), ("memory_mib", 384, "GiB"),
    ("memory_mib", 2**38, "bytes")])
def test_a_slip_of_units_in_nodes(column, value, words):
    findings = check_cluster(cluster({}, nodes=[{**node, column: value} for node in NODES])).findings
    assert any(words in problem for problem in findings.loc[findings["kind"] == "unit slip", "problem"])


def test_a_clock_put_back_is_found_in_the_order_of_rows():
    times = [*range(0, 6000, 300), *range(6000 - 3300, 12000, 300)]
    tasks = [{"submit_s": time, "start_s": time, "end_s": time, "node": "", "gpu_list": ""} for time in times]
    assert kinds(cluster(*tasks)) == {"clock put back": [22]}
    shuffled = np.random.default_rng(1).permutation(len(tasks))
    assert kinds(cluster(*(tasks[k] for k in shuffled))) == {}


def test_two_zones_are_found():
    tasks = [{"submit_s": 28_800 + 60 * k, "start_s": 60 * k + k % 7, "end_s": 10**5, "node": "", "gpu_list": ""}
             for k in range(30)]
    findings = check_cluster(cluster(*tasks)).findings
    assert "-8 h" in findings.loc[findings["kind"] == "mixed zones", "problem"].iloc[0]
    assert zone_shift(np.array([0.0, 30, 7000])) == 0 and zone_shift(np.array([19_800.0, 19_830])) == 19_800


def test_nothing_to_replay_is_unusable():
    assert check_cluster(cluster()).exit_code == 2
    assert check_cluster(cluster({"node": ""}, nodes=[])).exit_code == 2
    no_times = cluster({"submit_s": None, "start_s": None, "end_s": None, "node": "", "gpu_list": ""})
    assert kinds(no_times) == {"no times": [pd.NA]}


def test_a_folder_that_cannot_be_read_is_unusable(tmp_path):
    assert check_cluster(tmp_path / "none").exit_code == 2
    write_cluster(cluster({}), tmp_path / "c")
    assert check_cluster(tmp_path / "c").exit_code == 0
    file = tmp_path / "c" / "tasks.csv"
    file.write_text(file.read_text().replace("task-0,0,", "task-0,soon,"))
    checked = check_cluster(tmp_path / "c")
    assert checked.exit_code == 2 and checked.findings["row"].tolist() == [2]
    assert checked.findings["column"].tolist() == ["submit_s"] and "unusable" in checked.summary()[-1]


def test_many_wrong_rows_are_counted_and_few_are_shown():
    checked = check_cluster(cluster(*[{"end_s": 1, "gpu_list": "", "node": ""}] * 500, {}))
    assert len(checked.findings) == 20 and set(checked.findings["count"]) == {500}
    assert list(checked.findings) == FINDING_COLUMNS and len(checked.summary()) == 2
    assert "500 rows" in checked.summary()[0]
    assert json.loads(json.dumps(checked.as_json()))["exit_code"] == 1


BOOKING = st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(0, 6), st.sampled_from([0, 250, 500, 501, 1000]))


@pytest.mark.parametrize("at_once", [holdings.AT_ONCE, 3])  # all units together, or in pieces
@settings(max_examples=100, deadline=None)
@given(rows=st.lists(BOOKING, max_size=25))
def test_spells_equal_a_count_at_every_second(rows, at_once):
    """Loads of each second, and of each half second, say the same as the sweep."""
    unit, start, lasting, weight = np.array(rows, np.int64).reshape(-1, 4).T
    end = (start + lasting).astype(float)
    end[lasting == 6] = np.inf
    with patch.object(holdings, "AT_ONCE", at_once):
        found = overfull(Bookings(unit, np.arange(len(rows)), start.astype(float), end, weight), np.full(4, 1000.0))
    for one in range(4):
        for second in np.arange(0, 30, 0.5):
            load = weight[(unit == one) & (start <= second) & (second < end)].sum()
            inside = (found.unit == one) & (found.from_s <= second) & (second < found.until_s)
            assert inside.sum() == (load > 1000)
            assert not inside.any() or found.most[inside][0] >= load


@pytest.mark.parametrize(("column", "is_slip"), [
    ((500, 500, 250, 100, 100), False), ((1, 2, 4, 8, 16), True), ((128, 96, 96, 96, 128), False),
    ((2, 2, 2, 2, 97), False), ((10, 10, 20, 50, 5), False)])
def test_small_round_requests_are_milli_vcpu_and_small_crooked_ones_are_cores(column, is_slip):
    checked = check_cluster(cluster(*({"cpu_milli": value} for value in column)))
    assert ("unit slip" in set(checked.findings["kind"])) == is_slip


@pytest.mark.parametrize(("task", "node", "code", "words"), [
    *(({}, {"num_gpus": count}, 1, "more than 62 GPUs in a node") for count in (63, 10**6, 10**9)),
    ({"constraints": "{"}, {}, 1, "the constraints cannot be read"),
    ({"constraints": '{"affinity": [[{"key": "a", "operator": "Near", "values": []}]]}'}, {}, 1, "cannot be read"),
    ({"constraints": "[" * 100_000}, {}, 1, "the constraints cannot be read"),
    ({"cpu_milli": 2**41, "node": ""}, {}, 1, "larger than any node"),
    ({"gpu_list": "9" * 30}, {}, 1, "is no list of GPUs"), ({"gpu_list": "9" * 5000}, {}, 1, "is no list of GPUs")])
def test_what_a_replay_leaves_out_is_found(task, node, code, words):
    begun = time.process_time()
    checked = check_cluster(cluster({"gpu_list": "1"}, task, nodes=[{**NODES[0], **node}, NODES[1]]))
    assert checked.exit_code == code and any(words in line for line in checked.summary()), checked.summary()
    assert time.process_time() - begun < 2


def test_what_no_replay_takes_is_unusable():
    for task, node in (({"constraints": "{"}, {}), ({}, {"num_gpus": 63})):
        checked = check_cluster(cluster(task, nodes=[{**NODES[0], **node}]))
        assert checked.exit_code == 2
        with pytest.raises(InputError, match="no row can be used"):
            problem_of(cluster(task, nodes=[{**NODES[0], **node}]))


def test_what_is_no_load_in_a_replay_is_said():
    never = {"start_s": None, "node": "", "gpu_list": ""}
    few = check_cluster(cluster({}, never, never | {"end_s": None}, {"start_s": 65, "end_s": 70}))
    assert few.exit_code == 0 and few.findings["kind"].tolist() == ["no load", "no load"]
    many = check_cluster(cluster({}, never | {"end_s": None}, never | {"end_s": None}))
    assert many.exit_code == 1
    assert "2 of 3 tasks lack what a replay needs (neither start nor end)" in "\n".join(many.summary())


def test_models_that_differ_only_in_spelling_are_named_with_their_mend(tmp_path):
    """Nodes of a table say A100, and Slurm says a100: every task is refused, and why is hard to see."""
    there = [{**NODES[0], "gpu_model": "A100"}]
    tables = cluster({"gpu_models": "a100"}, {"gpu_models": "A100", "gpu_list": "1"}, {"gpu_models": "h-100"},
                     nodes=there)
    findings = check_cluster(tables).findings.set_index("kind")
    hint = "tasks.csv has 'a100' and nodes.csv 'A100', which differ only in spelling: write the same in both"
    assert findings.loc["GPU model spelled otherwise", ["row", "mend"]].tolist() == [2, hint]
    assert findings.loc["larger than any node", "row"] == 4
    with pytest.warns(UserWarning, match=f"no policy can place 1 tasks: {hint}"):
        reasons = problem_of(tables).ledger["reason"].tolist()
    assert sum(hint in reason for reason in reasons) == 1


def test_a_folder_that_is_not_there_is_named_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert check_cluster("mine").summary() == [
        "unusable: not readable: mine: there is no such folder; make it with sched-lab read "
        "FORMAT FILE... --out FOLDER", "unusable: mine: not a cluster"]


LIMITED = {"gpu_milli": 100, "constraints": '{"group": "a", "most_per_node": 2}'}


def test_more_tasks_of_an_application_than_one_allows_are_found():
    tables = cluster(LIMITED, {}, {**LIMITED, "end_s": None}, {**LIMITED, "start_s": 64},
                     {**LIMITED, "node": "n1"}, {**LIMITED, "start_s": 65, "end_s": 70}, {**LIMITED, "gpu_milli": 2000})
    findings = check_cluster(tables).findings.set_index("kind")
    one = findings.loc["more than a limit"]
    assert (one["row"], one["count"]) == (2, 1) and one["problem"] == (
        "Cond. 7 (instances): node n0 holds more than 2 tasks of a at 64.0 s, and task task-0 allows no more")
    assert "more than a limit" not in kinds(cluster(LIMITED, LIMITED, {**LIMITED, "start_s": 65}))


def test_a_limit_holds_for_pods_of_which_only_the_node_is_known():
    now = {**LIMITED, "start_s": None, "end_s": None, "constraints": '{"group": "a", "most_per_node": 1}'}
    assert kinds(cluster(now, now))["more than a limit"] == [2]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 2), st.sampled_from("ab")), max_size=7))
def test_broken_limits_equal_a_count_at_every_half_second(rows):
    tables = cluster(*({"gpu_milli": 1, "cpu_milli": 1, "submit_s": 0, "start_s": start, "end_s": start + lasting,
                        "constraints": json.dumps({"group": app, "most_per_node": most}) if most else ""}
                       for start, lasting, most, app in rows))
    is_broken = False
    for second in np.arange(0, 12, 0.5):
        for app in "ab":
            there = [most for start, lasting, most, own in rows
                     if own == app and most and start <= second < start + lasting]
            is_broken |= len(there) > min(there, default=0)
    assert ("more than a limit" in kinds(tables)) == is_broken
