"""Nodes that are drained or down: equal to brute force, checked by rules, read from files, and paid for."""
import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from sched_lab.bill import tariff_of
from sched_lab.cli import app
from sched_lab.fleet.ask.explain import explain
from sched_lab.fleet.ask.move import closed_nodes
from sched_lab.fleet.command import problem_in
from sched_lab.fleet.read.check import check_cluster
from sched_lab.fleet.read.outages import read_cluster_in_time, with_outages
from sched_lab.fleet.read.tables import (
    NODE_COLUMNS,
    TASK_COLUMNS,
    ClusterTables,
    Ledger,
    with_columns,
    write_tables,
)
from sched_lab.fleet.replay.compare import Question, curve_over
from sched_lab.fleet.replay.events import COMPARED, replay
from sched_lab.fleet.replay.outages import NO_OUTAGES
from sched_lab.fleet.replay.problem import Problem, Schedule, closed_at, problem_of, with_lost
from sched_lab.fleet.replay.rules import check_schedule
from sched_lab.fleet.replay.what_if import changed as what_if
from sched_lab.lab.frames import InputError
from sched_lab.online.model import PowerSettings
from tests.fleet.plain_replay import replay_plain
from tests.fleet.problems import in_jobs, outages_at, random_problem, texts, timed
from tests.fleet.test_events import APART_S, LISTS, SOME, assert_equal, case, changed, idle_w, problems
from tests.fleet.test_slurm_queue import AT_ONCE

pytestmark = pytest.mark.usefixtures("python_itself")


@st.composite
def closed_problems(draw) -> Problem:
    """Draw problems of which some nodes are closed a few times, in each list of events."""
    problem = draw(problems())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = []
    for lists in range(LISTS):
        for _ in range(rng.integers(0, 5)):
            from_s = lists * APART_S + rng.integers(-2, 60)
            length_s = rng.choice([1, 5, 8.5, 30, np.inf if lists == LISTS - 1 else 100])
            rows.append((rng.integers(len(problem.cluster)), from_s, from_s + length_s, rng.random() < 0.5,
                         rng.random() < 0.7))
    return replace(problem, outages=outages_at(*rows)) if rows else problem


@pytest.mark.parametrize("policy", ["pwr-fgd:0.1", "fgd@0.4@random@0.7@pwr-fgd:0.2"])
@given(problem=closed_problems(), backfill=st.sampled_from(COMPARED))
@settings(SOME, max_examples=16)
def test_the_engine_does_what_brute_force_does(policy, problem, backfill):
    schedule = replay(problem, policy, backfill=backfill)
    plain = replay_plain(case(problem, policy), backfill, problem.outages or NO_OUTAGES)
    (_, runs, task), (_, plain_runs, plain_task) = with_lost(problem, schedule), with_lost(problem, plain)
    np.testing.assert_array_equal(task, plain_task)
    assert_equal(runs, plain_runs)


@given(problem=closed_problems(), backfill=st.sampled_from(COMPARED[:2]), spare_w=st.sampled_from([0, 60, 150]))
@settings(SOME, max_examples=10)
def test_under_a_cap_a_node_that_is_down_leaves_its_watts_to_others(problem, backfill, spare_w):
    cap_w = idle_w(problem) + spare_w
    schedule = replay(problem, "pwr-fgd:0.1", backfill=backfill, cap_w=cap_w)
    plain = replay_plain(case(problem, "pwr-fgd:0.1", cap_w), backfill, problem.outages or NO_OUTAGES)
    assert_equal(with_lost(problem, schedule)[1], with_lost(problem, plain)[1])


# two GPUs of a for 10 s; one on b, which goes down at 3 s and is back at 8 s
ROWS = [(0, 10, 2, 1000), (0, 6, 1, 1000), (4, 2, 1, 1000)]


@pytest.mark.parametrize("backfill", [*COMPARED, "slurm"])
def test_what_a_node_stops_waits_again_in_its_old_place(backfill):
    problem = timed(ROWS, outages=outages_at((1, 3, 8, True, True)))
    schedule = replay(problem, backfill=backfill, slurm=AT_ONCE)
    assert schedule.start_s.tolist() == [0, 8, 10] if backfill != "slurm" else schedule.start_s[1] >= 8
    assert [column.tolist() for column in schedule.lost] == [[1], [1], [1], [0], [3]] or backfill == "slurm"
    ends = replay(replace(problem, outages=outages_at((1, 3, 8, True, False))), backfill=backfill, slurm=AT_ONCE)
    assert len(ends.lost.task) == 0 and ends.end_s[1] == 3 or backfill == "slurm"


@pytest.mark.parametrize("backfill", [*COMPARED, "slurm"])
def test_on_a_drained_node_nothing_starts_and_what_runs_goes_on(backfill):
    problem = timed(ROWS, outages=outages_at((1, 3, 8, False, True)))
    schedule = replay(problem, backfill=backfill, slurm=AT_ONCE)
    assert schedule.end_s[1] - schedule.start_s[1] == 6 and not len(schedule.lost.task)
    assert schedule.start_s[2] >= 8


def test_all_parts_of_a_job_stop_together():
    """t0 and t1 are on both nodes; b goes down, and both begin anew when it is back."""
    problem = in_jobs([0, 0, 1], [(0, 10, 2, 1000), (0, 10, 1, 1000), (1, 4, 1, 1000)],
                      outages=outages_at((1, 3, 20, True, True)))
    for backfill in COMPARED:
        schedule = replay(problem, backfill=backfill)
        assert schedule.start_s[:2].tolist() == [20, 20] and sorted(schedule.lost.task.tolist()) == [0, 1]
        assert schedule.start_s[2] == (30 if backfill == "none" else 3)


def test_a_part_that_ends_as_another_is_stopped_leaves_its_gpus():
    """t0 ends on a at 5 s, when b with t1 goes down; both begin anew at 20 s, and t2 has a in between."""
    problem = in_jobs([0, 0, 1], [(0, 5, 2, 1000), (0, 10, 1, 1000), (6, 4, 2, 1000)],
                      outages=outages_at((1, 5, 20, True, True)))
    for backfill in COMPARED:
        schedule = replay(problem, backfill=backfill)
        assert schedule.start_s.tolist() == [20, 20, 25 if backfill == "none" else 6]


def test_what_runs_when_a_replay_begins_is_stopped_by_later_outages_alone():
    nan = np.nan
    problem = timed([(0, 10, 2, 1000), (1, 5, 1, 1000)], node=np.array([0, -1]), gpu_mask=np.array([3, 0]),
                    start_s=np.array([0, nan]), outages=outages_at((0, 1, 5, True, True), (0, 7, 9, True, True)))
    for backfill in COMPARED:
        schedule = replay(problem, backfill=backfill, at_s=2)
        assert schedule.end_s[0] == 7 and not len(schedule.lost.task)  # it has no place in the queue, so it ends


@pytest.mark.parametrize(("task", "values", "sentence"), [
    (2, {"node": 1, "start_s": 5, "end_s": 7}, "outage: task t2 starts at 5.0 s on node b, which is closed"),
    (0, {"end_s": 8}, "outage: task t0 ends at 8.0 s before its time, and no node of its job goes down"),
    (1, {"node": 0, "start_s": 2, "end_s": 8}, "time: task t1 starts before it is submitted, at 2.0 s"),
    (1, {"start_s": 9, "end_s": 15}, "queue: task t1 waits at 8.0 s, and fits on node b")])
def test_the_validator_says_what_is_wrong(task, values, sentence):
    problem = timed(ROWS, outages=outages_at((1, 3, 8, True, True)))
    schedule = replay(problem)
    wrong = changed(schedule, task, **values)._replace(lost=schedule.lost)
    with pytest.raises(ValueError, match=sentence):
        check_schedule(problem, wrong, backfill="none")
    runs_on = Schedule(*schedule[:4])._replace(start_s=np.array([0.0, 0, 10]), end_s=np.array([10.0, 6, 12]))
    with pytest.raises(ValueError, match="outage: task t1 runs on node b when it goes down, at 3.0 s"):
        check_schedule(problem, runs_on)
    with pytest.raises(ValueError, match="ends at 3.0 s before its time, and no node of its job goes down so that it"):
        check_schedule(replace(problem, outages=outages_at((1, 3, 8, True, False))), schedule)


def test_a_node_that_is_down_draws_nothing_and_one_that_is_drained_idles():
    """Three GPUs idle at 10, 10 and 30 W; b is down for 50 of 100 s, and asleep at 5 W from 10 s after its task on."""
    watts = PowerSettings(gpu_power_w={"T4": (10, 70), "G2": (30, 150)}, cpu_power_w={"": (0, 0, 4)})
    asked = Question(power=watts, asleep_after_s=10, asleep_w=5)
    edges_s, tariff = np.array([0.0, 50, 100]), tariff_of("", "", None, (0, 100))
    problem = timed([(0, 40, 1, 1000)], outages=outages_at((1, 50, 100, True, True), (1, 60, 90, False, True)))
    problem = replace(problem, tasks=replace(problem.tasks, gpu_spec=texts(["G2"])))
    curve = curve_over(problem, replay(problem), asked, edges_s, tariff)
    assert curve["eopc_w"].tolist() == [50 + 120 * 0.8, 20] and curve["gpu_w"].tolist() == curve["eopc_w"].tolist()
    assert curve["asleep_w"].iloc[1] == pytest.approx(5)  # a sleeps
    assert curve["closed_gpu"].tolist() == [0, 1]
    assert curve["allocated_gpu"].tolist() == pytest.approx([0.8, 0])
    drained = replace(problem, outages=outages_at((1, 20, 100, False, True)))
    curve = curve_over(drained, replay(drained), asked, edges_s, tariff)
    assert curve["eopc_w"].iloc[1] == 50 and curve["closed_gpu"].tolist() == pytest.approx([0.2, 1])


def test_what_is_free_is_stranded_or_idle_of_open_nodes_alone():
    """Each node is closed until its moment, or from then on: what is stranded in the two, and idle, adds up."""
    problem = random_problem(5)
    schedule, edges_s, tariff = replay(problem), np.linspace(0, 4000, 9), tariff_of("", "", None, (0, 4000))
    moments_s = np.random.default_rng(1).integers(500, 3500, len(problem.cluster)).tolist()
    until = outages_at(*((node, 0, at_s, node % 2, True) for node, at_s in enumerate(moments_s)))
    since = outages_at(*((node, at_s, np.inf, node % 2, True) for node, at_s in enumerate(moments_s)))
    curves = [curve_over(replace(problem, outages=outages), schedule, Question(), edges_s, tariff)
              for outages in (None, until, since)]
    whole, early, late = (curve[["stranded_gpu", "idle_gpu"]].to_numpy() for curve in curves)
    assert early + late == pytest.approx(whole, abs=1e-9) and (early[:, 0] * late[:, 0]).max() > 0.01
    for curve in curves[1:]:
        gpus = curve[["allocated_gpu", "stranded_gpu", "idle_gpu", "closed_gpu"]].sum(axis=1)
        assert gpus.to_numpy() == pytest.approx(problem.cluster.num_gpus.sum())


NODES = "name,gpu_model,num_gpus,cpu_milli,memory_mib,gpu_memory_mib,labels\na,T4,2,8000,8192,,\nb,T4,1,8000,8192,,\n"
EVENTS = """Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User|
c|b|2024-01-01T00:10:00|2024-01-01T00:20:00|DOWN*|Not responding|slurm(1)|
c|[a-b]|2024-01-01T00:30:00|Unknown|DRAINED|disk|root(0)|
c|z|2024-01-01T00:30:00|Unknown|DRAIN|gone|root(0)|
c||2024-01-01T00:00:00|Unknown||Cluster Registered TRES|slurm(1)|
"""


def cluster_in(folder, outages: str = ""):
    """Write a cluster of two nodes with a task on each."""
    folder.mkdir()
    tables = ClusterTables(
        with_columns(pd.read_csv(io.StringIO(NODES)), NODE_COLUMNS),
        with_columns(pd.DataFrame({"name": ["t0", "t1"], "submit_s": [0, 0], "start_s": [0, 0], "end_s": [3600, 1800],
                                   "num_gpus": [2, 1], "gpu_milli": [1000, 1000], "node": ["a", "b"]}), TASK_COLUMNS),
        Ledger().frame(), {"zero": "2024-01-01T00:00:00Z"})
    write_tables(tables, folder)
    if outages:
        (folder / "outages.csv").write_text(outages)
    return folder


def test_outages_come_from_a_table_and_from_the_events_of_slurm(tmp_path):
    events = tmp_path / "events.txt"
    events.write_text(EVENTS.replace("[a-b]", "a,b"))
    tables = with_outages(read_cluster_in_time(cluster_in(tmp_path / "one")), events)
    rows = tables.outages[["node", "start", "end", "kind"]].to_numpy().tolist()
    assert rows[:1] == [["b", 600, 1200, "down"]] and [row[0] for row in rows] == ["b", "a", "b"]
    assert np.isnan(rows[1][2]) and rows[1][1] == 1800 and rows[1][3] == "drain"
    assert tables.ledger[["what", "count"]].to_numpy().tolist() == [["dropped", 2]]
    write_tables(tables, tmp_path / "one")
    pd.testing.assert_frame_equal(read_cluster_in_time(tmp_path / "one").outages, tables.outages, check_dtype=False)
    dated = "node,start,end,kind\nb,2024-01-01T00:10:00Z,2024-01-01 00:20Z,down\na,1800,,drain\n"
    with pytest.raises(InputError, match="number"):
        read_cluster_in_time(cluster_in(tmp_path / "mixed", dated))
    folder = cluster_in(tmp_path / "two", dated.replace("1800", "2024-01-01T00:30:00Z"))
    problem = problem_of(read_cluster_in_time(folder))
    assert [column.tolist() for column in problem.outages] == [[1, 0], [600, 1800], [1200, np.inf], [True, False],
                                                               [True, True]]


@pytest.mark.parametrize(("text", "words"), [
    ("node,start,kind\na,1,down\n", "row 1.*end.*column is missing"),
    ("node,start,end,kind\nc,1,2,down\n", "row 2.*node.*'c' is no node"),
    ("node,start,end,kind\na,1,2,down\nb,1,2,away\n", "row 3.*kind.*'away' is neither drain nor down"),
    ("node,start,end,kind\na,,2,down\n", "row 2.*start.*the cell is empty"),
    ("node,start,end,kind\na,2,2,down\n", "row 2.*end.*'2' is not after the start"),
    ("node,start,end,kind\na,soon,2,down\n", "start.*'soon'"),
    ("node,start,end,kind,requeue\na,1,2,down,perhaps\n", "row 2.*requeue.*neither yes nor no")])
def test_a_wrong_row_is_named_with_its_mend(text, words, tmp_path):
    with pytest.raises(InputError, match=words):
        read_cluster_in_time(cluster_in(tmp_path / "one", text))


def test_a_task_that_ran_while_its_node_was_down_is_a_finding(tmp_path):
    folder = cluster_in(tmp_path / "one", "node,start,end,kind\nb,600,900,down\na,600,900,drain\n")
    found = check_cluster(folder).findings
    assert found[found["kind"] == "ran while down"][["row", "column"]].to_numpy().tolist() == [[3, "node"]]
    (folder / "outages.csv").write_text("node,start,end,kind\nb,1750,1900,down\n")  # within a minute of its end
    assert "ran while down" not in set(check_cluster(folder).findings["kind"])


def test_an_answer_says_what_was_closed_and_a_lever_opens_it(tmp_path):
    folder = cluster_in(tmp_path / "one", "node,start,end,kind\nb,600,1200,down\n")
    said = CliRunner().invoke(app, ["replay", f"{folder}", "--policies", "fgd", "--worth", "--out", f"{tmp_path}/out"])
    assert said.exit_code == 0, said.output
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert summary["stopped_runs"].tolist() == [1]
    assert summary["closed_gpu_h"].iloc[0] == pytest.approx(600 / 3600, abs=1e-6)
    assert "outages" in set(pd.read_csv(tmp_path / "out" / "levers.csv")["lever"])
    assert len(pd.read_csv(tmp_path / "out" / "fgd" / "assignments.csv")) == 3
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Nodes were closed for 0.167 node hours, 0 drained and 0.167 down" in page
    assert "Nodes that went down stopped 1 run under fgd." in page


def test_copies_of_a_node_are_closed_when_it_is(tmp_path):
    tables = read_cluster_in_time(cluster_in(tmp_path / "one", "node,start,end,kind\nb,600,1200,down\n"))
    more = what_if(tables, {"nodes": {"scale": 2, "remove": ["a"]}}, 0)
    assert more.outages["node"].tolist() == ["b", "b+1"] and more.outages["start"].tolist() == [600, 600]
    outages = problem_of(tables).outages.on(np.array([0, 1, 1]))
    assert outages.node.tolist() == [1, 2]


def asked_of(*words) -> str:
    """Words that a command prints."""
    said = CliRunner().invoke(app, [str(word) for word in words])
    assert said.exit_code in (0, 1) and "error" not in said.output, said.output
    return said.output


@pytest.mark.parametrize(("from_s", "until_s", "kind", "is_closed"), [
    (3000, "", "drain", True), (4000, 5000, "down", True), (3000, 4000, "down", False), (4001, 5000, "drain", False)])
def test_a_node_that_is_closed_at_the_moment_gets_nothing_new(from_s, until_s, kind, is_closed, tmp_path):
    """The GPUs of a are in use since 4000 s, the last moment of the record, and t3, which comes then, tolerates all."""
    folder = cluster_in(tmp_path / "one", f"node,start,end,kind\nb,{from_s},{until_s},{kind}\n")
    tables = read_cluster_in_time(folder)
    rows = pd.DataFrame({"name": ["t2", "t3"], "submit_s": [3700, 4000], "start_s": [4000, None], "num_gpus": [2, 1],
                         "gpu_milli": 1000, "node": ["a", ""],
                         "constraints": '{"tolerations": [{"operator": "Exists"}]}'})
    tasks = pd.concat([frame.astype(object) for frame in (tables.tasks, with_columns(rows, TASK_COLUMNS))])
    tables = replace(tables, tasks=with_columns(tasks, TASK_COLUMNS))
    write_tables(tables, folder)
    assert (f"is closed ({kind} in outages.csv)" in asked_of("explain", folder, "--task", "t3")) == is_closed
    asked_of("place", folder, "--out", tmp_path / "placed")
    placed = pd.read_csv(tmp_path / "placed" / "placements.csv", keep_default_na=False)
    assert placed[["task", "node"]].to_numpy().tolist() == [["t3", "" if is_closed else "b"]]
    assert closed_nodes(problem_of(closed_at(tables, 4000))) == ({"b"} if is_closed else set())


def test_an_explanation_knows_runs_that_were_stopped_later():
    """At 2 s t1 is on b, which stops it at 3 s, and again at 9 s; at 5 s it waits."""
    problem = timed(ROWS, outages=outages_at((1, 3, 8, True, True)))
    schedule = replay(problem)
    assert [explain(problem, "t2", at_s=at_s, schedule=schedule).about["running"] for at_s in (2, 5, 9)] == [2, 1, 2]


def test_by_slurm_conf_what_a_node_stops_ends_unless_the_table_says_otherwise(tmp_path):
    folder = cluster_in(tmp_path / "one", "node,start,end,kind,requeue\na,600,900,down,yes\nb,600,900,down,\n")
    files = {}
    for value in ("0", "1"):
        config = tmp_path / f"{value}.conf"
        config.write_text(f"ClusterName=c\nJobRequeue={value}\n")
        problem, files[value] = problem_in(folder, {}, 0, config)
        assert problem.outages.requeues.tolist() == [True, value == "1"]
    assert files["0"] != files["1"] == problem_in(folder, {}, 0)[1]  # an answer is of its files
