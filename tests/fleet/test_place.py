"""New tasks meet the present: what runs stays, what waits goes first, nothing is overfull."""
import numpy as np
import pandas as pd
import pytest

from sched_lab.fleet.ask.explain import explain
from sched_lab.fleet.ask.place import place_tasks, present_of, with_new
from sched_lab.fleet.read.tables import TASK_COLUMNS, with_columns
from sched_lab.fleet.replay.problem import latest_s, problem_of
from sched_lab.lab.frames import InputError
from sched_lab.online.model import Placements, check_placements
from tests.fleet.test_problem import tables_of


def tasks_named(*names: str, **asked) -> pd.DataFrame:
    """Tasks that ask for one GPU, or for what is said."""
    one = {"num_gpus": 1, "gpu_milli": 1000, "cpu_milli": 1000, "memory_mib": 1024, **asked}
    return with_columns(pd.DataFrame([{"name": name, **one} for name in names]), TASK_COLUMNS)


DRAINED = '[{"key": "slurm/state", "value": "DRAIN", "effect": "NoSchedule"}]'
RUNS = {"start_s": 5, "end_s": None, "num_gpus": 2, "gpu_list": "0-1"}
OVER = {"start_s": 5, "end_s": 8, "num_gpus": 2, "gpu_list": "2-3"}
WAITS = {"submit_s": 6, "start_s": None, "end_s": None, "num_gpus": 1, "node": "", "gpu_list": ""}
FUTURE = {"submit_s": 50, "start_s": 60, "end_s": 70, "num_gpus": 1, "gpu_list": "2"}
WITHDRAWN = {"submit_s": 6, "start_s": None, "end_s": 7, "node": "", "gpu_list": ""}


@pytest.mark.parametrize(("at_s", "is_open"), [(None, False), (8, False), (7, True)])
def test_a_node_that_a_dump_found_drained_gets_tasks_at_an_earlier_moment(at_s, is_open):
    tables = tables_of([OVER], [{"taints": DRAINED}])
    placed = place_tasks(tables, tasks_named("a"), at_s=at_s)
    assert (placed.table["node"][0] != "") == is_open


def test_the_present_is_what_runs_and_waits():
    tables = tables_of([RUNS, OVER, WAITS, FUTURE, WITHDRAWN])
    problem = problem_of(with_new(tables, tasks_named("a"), 20))
    present, runs = present_of(problem, np.array([False] * 5 + [True]), 20)
    assert present.tasks.name.tolist() == ["task-0", "task-2", "a"] and runs.tolist() == [True, False, False]
    assert np.isinf(present.duration_s).all() and present.gpu_mask.tolist() == [3, 0, 0]
    assert present_of(problem, np.zeros(6, bool), 6)[0].tasks.name.tolist() == ["task-0", "task-1", "task-2", "task-4"]


def test_waiting_tasks_go_first_and_nothing_is_overfull():
    tables = tables_of([RUNS, OVER, WAITS, FUTURE])
    placed = place_tasks(tables, tasks_named("a", "b"), at_s=20)
    assert placed.table["task"].tolist() == ["task-2", "a", "b"]
    assert (placed.table["node"] != "").tolist() == [True, True, False]
    assert placed.table["failed_for"].tolist() == ["", "", "gpu"]
    rows = np.arange(len(placed.problem.tasks))
    check_placements(placed.problem.grouped(), placed.problem.tasks,
                     Placements(rows, placed.schedule.node, placed.schedule.gpu_mask))
    assert placed.headline == "fgd at 20 s: 1 of 1 waiting task and 1 of 2 new tasks placed"
    report = placed.report()
    assert report.summary["failed_for"] == {"gpu": 1} and list(report.tables) == ["placements.csv", "ledger.csv"]


def test_what_python_places_itself_is_what_compiled_code_places(monkeypatch):
    """So it is with what is explained: the same policies, conditions and draws."""
    policy = "pwr-fgd:0.1"
    tables = tables_of([RUNS, OVER, WAITS, FUTURE])
    answers = []
    for said in ("never", "always"):
        monkeypatch.setenv("SCHED_LAB_COMPILE", said)
        placed = place_tasks(tables, tasks_named("a", "b", gpu_milli=300), policy, at_s=20)
        found = explain(problem_of(tables), "task-2", policy)
        answers.append((placed.table.to_csv(), found.as_json(), found.lines()))
    assert answers[0] == answers[1]


def test_parts_wishes_and_ledger_of_new_tasks():
    new = tasks_named("a", num_gpus=2, gpu_milli=300, gpu_models="H1")
    placed = place_tasks(tables_of([RUNS]), new)
    assert placed.table["task"].tolist() == ["a/0", "a/1"] and placed.table["failed_for"].tolist() == ["model"] * 2
    assert placed.at_s == latest_s(tables_of([RUNS])) == 5
    assert placed.ledger.loc[placed.ledger["file"] == "tasks.csv", "row"].tolist() == [2, 2, 2]


def test_running_tasks_without_a_place_are_counted():
    placed = place_tasks(tables_of([{**RUNS, "node": ""}]), tasks_named("a"), at_s=9)
    assert placed.num_lost == 1 and "1 running tasks have no known place" in placed.headline


@pytest.mark.parametrize(("tasks", "new", "words"), [
    ([RUNS], tasks_named("task-0"), "is a task of the cluster already"),
    ([RUNS, RUNS], tasks_named("a"), "more than there is"),
    ([RUNS], tasks_named("a", num_gpus=None), "the number of GPUs is unknown")])
def test_what_cannot_be_placed_is_an_error(tasks, new, words):
    with pytest.raises(InputError, match=words):
        place_tasks(tables_of(tasks), new, at_s=9)


def test_limits_of_applications_hold_for_new_tasks():
    limit = {"num_gpus": 0, "constraints": '{"group": "web", "most_per_node": 2}'}
    tables = tables_of([{**RUNS, **limit, "gpu_list": ""}, {**RUNS, "node": "n1"}], nodes=[{}, {"cpu_milli": 9000}])
    placed = place_tasks(tables, tasks_named("a", "b", "c", "d", cpu_milli=500, **limit), at_s=9)
    assert sorted(placed.table["node"]) == ["", "n0", "n1", "n1"]
    assert placed.table["failed_for"].tolist()[-1] == "instances"


def test_a_running_task_stays_on_a_node_that_was_cordoned():
    cordon = '[{"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}]'
    tables = tables_of([RUNS], nodes=[{"taints": cordon}])
    placed = place_tasks(tables, tasks_named("a"), at_s=9)
    assert placed.table["failed_for"].tolist() == ["model"] and placed.schedule.node.tolist() == [0, -1]
