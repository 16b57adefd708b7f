"""A plan of migrations is possible step by step, no better than the best one, and that no better than the bound."""
import shlex
import subprocess
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sched_lab.cluster import Cluster, empty_state
from sched_lab.fleet.ask.move import (
    Layout,
    Plan,
    Step,
    carry,
    check_steps,
    commands_of,
    plan_moves,
    system_of,
)
from sched_lab.fleet.replay.problem import Problem, recorded
from sched_lab.lab.frames import InputError
from sched_lab.online.model import PowerSettings
from sched_lab.traces import Tasks, admits

MODELS = ["T4", "A100", "T4"]


def problem_of_rows(rows: list[dict], models: list[str] = MODELS, cpu_milli: int = 96_000) -> Problem:
    """Nodes of two GPUs of these models, and running tasks: node, mask, gpus, milli, cpu and wishes."""
    size = len(models)
    names = np.array([f"n{node}" for node in range(size)], object)
    cluster = Cluster(names, np.full(size, cpu_milli), np.full(size, 1000), np.full(size, 2), np.array(models, object),
                      np.full(size, "", object))
    blank = {"cpu": 0, "memory": 0, "spec": "", "groups": "", "app": "", "most": 0}
    rows = [{"name": f"task {k}", **blank, **row} for k, row in enumerate(rows)]

    def column(name: str, kind: type) -> np.ndarray:
        return np.array([row[name] for row in rows], kind)

    tasks = Tasks(column("name", object), column("cpu", int), column("memory", int), column("gpus", int),
                  column("milli", int), column("spec", object), column("groups", object))
    zeros = np.zeros(len(rows))
    texts = np.full(len(rows), "", object)
    return Problem(cluster, tasks, np.array([f"g{node}" for node in range(size)], object), zeros, zeros + np.inf, zeros,
                   column("node", int), column("mask", int), texts, texts, zeros.astype(int), pd.DataFrame(), None,
                   column("app", object), column("most", int))


def plan_of(problem: Problem, **options) -> Plan:
    return plan_moves(problem, recorded(problem), 0, **options)


def layout_of(problem: Problem, goal: str = "gpus", power: PowerSettings = PowerSettings()) -> Layout:  # noqa: B008
    return Layout(problem, recorded(problem), 0, power, goal == "watts")


# a task that leaves and comes back to another GPU would gain more than the bound
DETOUR = problem_of_rows([
    {"node": node, "mask": mask, "gpus": 1, "milli": milli, "cpu": cpu, "spec": spec, "groups": groups}
    for node, mask, milli, cpu, spec, groups in [
        (0, 1, 200, 0, "", ""), (0, 2, 700, 32_000, "T4", "g0"), (1, 1, 200, 32_000, "A100", "g1"),
        (1, 2, 500, 32_000, "", "g1|g0"), (2, 1, 1000, 40_000, "", "g2|g0"), (2, 2, 700, 8000, "", "g2|g0")]])
LIMITED = [{"node": 0, "mask": 1, "gpus": 1, "milli": 300, "app": "x", "most": 1},
           {"node": 2, "mask": 1, "gpus": 1, "milli": 300, "app": "x", "most": 2}]


def test_a_move_keeps_the_limits_of_applications():
    """Both would share a GPU of one T4; but the first bears no other of its application on its node."""
    for second, gain in (({"app": "", "most": 0}, 1), ({}, 0), ({"app": "y"}, 1)):
        assert plan_of(problem_of_rows([LIMITED[0], {**LIMITED[1], **second}])).gain == gain
    problem = problem_of_rows(LIMITED)
    with pytest.raises(ValueError, match=r"step 1: Cond\. 7 \(instances\): node n0 holds more than 1 tasks"):
        check_steps(layout_of(problem), [Step(1, 2, 1, 0, 1)])


class Room:
    """What is left on the nodes, counted without the package: GPUs by number, CPU, memory."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.left = empty_state(problem.cluster)
        self.at = {}
        for task, name in enumerate(problem.tasks.name):
            gpus = [gpu for gpu in range(2) if problem.gpu_mask[task] >> gpu & 1]
            self.put(name, int(problem.node[task]), gpus)

    def change(self, name: str, sign: int) -> None:
        tasks = self.problem.tasks
        task = list(tasks.name).index(name)
        node, gpus = self.at[name]
        self.left.cpu_left_milli[node] += sign * tasks.cpu_milli[task]
        self.left.memory_left_mib[node] += sign * tasks.memory_mib[task]
        for gpu in gpus:
            self.left.gpu_left_milli[node, gpu] += sign * tasks.gpu_milli[task]

    def put(self, name: str, node: int, gpus: list[int]) -> None:
        self.at[name] = (node, gpus)
        self.change(name, -1)
        assert all((left >= 0).all() for left in self.left)
        apps = dict(zip(self.problem.tasks.name, zip(self.problem.app, self.problem.most_per_node, strict=True),
                        strict=True))
        there = [apps[one] for one, (at, _) in self.at.items() if at == node]
        for app, most in there:
            assert not app or [one for one, _ in there].count(app) <= most

    def idle(self) -> int:
        return int((self.left.gpu_left_milli == 1000).sum())

    def gpu_watts(self) -> float:
        watts = {"T4": (10, 70), "A100": (50, 400)}
        return sum(watts[model][int(left < 1000)] for model, row in
                   zip(self.problem.cluster.gpu_model, self.left.gpu_left_milli, strict=True) for left in row)


def check_plan(problem: Problem, plan: Plan, moves: int) -> None:
    """Do a plan by hand, from its table alone."""
    room = Room(problem)
    tasks = problem.tasks
    names = list(problem.cluster.name)
    assert len(plan.table) <= moves and plan.table["step"].tolist() == list(range(1, len(plan.table) + 1))
    for move in plan.table.itertuples():
        idle, watts = room.idle(), room.gpu_watts()
        task = list(tasks.name).index(move.task)
        node = names.index(move.to_node)
        gpus = [int(gpu) for gpu in move.to_gpus.split("-") if gpu]
        assert names[room.at[move.task][0]] == move.from_node != move.to_node
        assert "-".join(map(str, room.at[move.task][1])) == move.from_gpus
        assert len(gpus) == tasks.num_gpus[task] and admits(tasks.cpu_spec[task], problem.group[node])
        assert not gpus or admits(tasks.gpu_spec[task], problem.cluster.gpu_model[node])
        room.change(move.task, 1)
        room.put(move.task, node, gpus)
        assert room.idle() - idle == move.whole_gpus_freed
        if not tasks.cpu_milli.any():
            assert watts - room.gpu_watts() == pytest.approx(move.watts_saved)
    column = "whole_gpus_freed" if plan.goal == "gpus" else "watts_saved"
    assert plan.gain == pytest.approx(plan.table[column].sum()) and plan.gain <= plan.bound + 1e-6


@st.composite
def states(draw) -> Problem:
    """Draw running tasks on three nodes that are nowhere too full."""
    left = np.full((3, 2), 1000)
    cpu = np.full(3, 96_000)
    rows = []
    for node, gpu in [(node, gpu) for node in range(3) for gpu in range(2)] * 2:
        milli = draw(st.sampled_from([0, 200, 300, 500, 700, 1000]))
        asked = draw(st.sampled_from([0, 0, 8000, 32_000, 40_000]))
        if milli > left[node, gpu] or asked > cpu[node] or (milli == 0 and asked == 0):
            continue
        left[node, gpu] -= milli
        cpu[node] -= asked
        rows.append({"node": node, "mask": (milli > 0) << gpu, "gpus": int(milli > 0), "milli": milli, "cpu": asked,
                     "spec": draw(st.sampled_from(["", "", "T4"] if node != 1 else ["", "A100"])) if milli else "",
                     "groups": draw(st.sampled_from(["", "", f"g{node}", f"g{node}|g0"]))})
    for app in "xy" if draw(st.booleans()) else "":
        members = draw(st.lists(st.sampled_from(rows), max_size=6)) if rows else []
        held = [sum(1 for row in members if row["node"] == node) for node in range(3)]
        for row in members:
            row |= {"app": app, "most": max(held) + draw(st.integers(0, 1))}
    return problem_of_rows(rows or [{"node": 0, "mask": 1, "gpus": 1, "milli": 200}])


def best_by_trying(layout: Layout, moves: int, gone: frozenset[int] = frozenset()) -> int:
    """Most that moves gain, each of a task that has not moved yet, by trying all that break no condition."""
    best = 0
    for task in set(np.flatnonzero(layout.is_movable).tolist()) - gone if moves else ():
        own, mask = int(layout.node[task]), int(layout.gpu_mask[task])
        for node, to_mask in [(node, gpu) for node in range(3) for gpu in ((1, 2) if mask else (0,))]:
            step = Step(task, own, mask, node, to_mask)
            try:
                check_steps(layout, [step])
            except ValueError:
                continue
            gain = carry(layout, step)
            best = max(best, gain + best_by_trying(layout, moves - 1, gone | {task}))
            carry(layout, step, back=True)
    return best


@given(states(), st.integers(1, 4), st.sampled_from(["gpus", "watts"]), st.sampled_from(["eq1", "package"]))
@example(DETOUR, 3, "watts", "eq1")
@settings(deadline=None, max_examples=40)
def test_a_plan_is_possible_no_better_than_the_best_and_that_no_better_than_the_bound(problem, moves, goal, model):
    power = PowerSettings(model)
    plan = plan_of(problem, moves=moves, goal=goal, power=power)
    check_plan(problem, plan, moves)
    assert plan.table["task"].is_unique
    unit = 1 if goal == "gpus" else 1000
    best = best_by_trying(layout_of(problem, goal, power), min(moves, 2)) / unit
    assert best <= plan.bound + 1e-6 and (moves > 2 or plan.gain <= best + 1e-6)


PAIR = [{"node": 0, "mask": 1, "gpus": 1, "milli": 400}, {"node": 1, "mask": 1, "gpus": 1, "milli": 500}]


def test_two_shares_become_one_gpu():
    plan = plan_of(problem_of_rows(PAIR))
    assert plan.gain == plan.bound == 1 and plan.headline == "1 move: 1 whole GPU freed, the most possible"
    report = plan.report()
    assert list(report.tables) == ["moves.csv", "fixed.csv"] and report.summary["gain"] == 1


@pytest.mark.parametrize("change", [
    {"groups": "g0"}, {"spec": "T4"}, {"memory": 900}, {"cpu": 96_000}])
def test_what_a_node_must_have_is_kept(change):
    rows = [{**PAIR[0], **change}, {**PAIR[1], "groups": "g1", "memory": 200, "cpu": 1000}]
    plan = plan_of(problem_of_rows(rows), moves=3)
    assert len(plan.table) == 0 and plan.gain == 0


def test_parts_of_a_job_stay():
    for known, movable in (({"job": np.zeros(2, int)}, 0), ({"lacking_parts": np.array([1, 0])}, 1), ({}, 2)):
        plan = plan_of(replace(problem_of_rows([{**one, "name": f"12/{k}"} for k, one in enumerate(PAIR)]), **known))
        assert plan.about["movable"] == movable and set(plan.fixed["why"]) <= {"it is a part of a job"}


@pytest.mark.parametrize(("step", "words"), [
    (Step(0, 0, 1, 1, 2), None), (Step(0, 2, 1, 1, 2), "is not there"), (Step(0, 0, 1, 0, 2), "stays on its node"),
    (Step(0, 0, 1, 1, 4), "Cond. 6"), (Step(0, 0, 1, 1, 3), "Cond. 6"), (Step(0, 0, 1, 2, 1), "GPU")])
def test_the_validator_sees_what_is_wrong(step, words):
    rows = [*PAIR, {"node": 2, "mask": 1, "gpus": 1, "milli": 900}]
    layout = layout_of(problem_of_rows(rows))
    if words is None:
        check_steps(layout, [step])
        return
    with pytest.raises(ValueError, match=f"step 1.*{words}"):
        check_steps(layout, [step])


def test_gpus_without_watts_can_be_freed_and_not_be_saved():
    problem = problem_of_rows(PAIR, ["H999", "H999", "T4"])
    plan = plan_of(problem)
    assert plan.gain == 1 and plan.table["watts_saved"].isna().all()
    with pytest.raises(InputError, match="H999"):
        plan_of(problem, goal="watts")


@pytest.mark.parametrize(("options", "words"), [
    ({"goal": "peace"}, "no goal"), ({"moves": 0}, "no plan")])
def test_what_cannot_be_asked(options, words):
    with pytest.raises(InputError, match=words):
        plan_of(problem_of_rows(PAIR), **options)


def test_a_moment_at_which_nothing_runs_or_too_much():
    problem = problem_of_rows(PAIR)
    with pytest.raises(InputError, match="no task with a known place"):
        plan_moves(problem, recorded(problem), -5)
    full = problem_of_rows([{**PAIR[0], "milli": 700}, {**PAIR[0], "milli": 700}])
    with pytest.raises(InputError, match="more than there is"):
        plan_of(full)


def test_commands_quote_what_comes_from_files():
    evil = "team/x; rm -rf ~ $(id)\n`id`"
    problem = problem_of_rows([{**PAIR[0], "name": evil}, PAIR[1] | {"groups": "g1"}])
    problem = replace(problem, cluster=replace(problem.cluster, name=np.array(["--all", "b'", "c"], object)))
    plan = plan_of(problem)
    for system in ("kubernetes", "slurm", ""):
        lines = commands_of(plan, system)
        lines = lines[next(k for k, line in enumerate(lines) if line.startswith("# 1. ")):]
        assert "\n" not in lines[0]
        words = [shlex.split(line, comments=True) for line in lines[1:]]
        assert all(line[0] == "scontrol" for line in words if line)
    assert commands_of(plan, "kubernetes")[-1] == "# no command: this is no name of a pod"


def test_a_pod_is_evicted_and_never_deleted():
    problem = problem_of_rows([{**PAIR[0], "name": "team/a"}, PAIR[1] | {"name": "team/b", "groups": "g1"}])
    plan = plan_of(problem)
    source = plan.table["from_node"][0]
    text = "\n".join(commands_of(plan, "kubernetes"))
    assert f"kubectl cordon {source}\nevict team a || {{ kubectl uncordon {source}; exit 1; }}" in text
    assert "delete pod" not in text and subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    closed = commands_of(replace(plan, closed=frozenset([source])), "kubernetes")
    assert closed[-1] == "evict team a" and "cordon " not in "\n".join(closed[-2:])


def test_what_is_fixed_stays_and_is_listed():
    problem = problem_of_rows([{**PAIR[0], "name": "a"}, PAIR[1] | {"name": "b"}])
    fixed = replace(problem, fixed=np.array(["nothing owns it", "nothing owns it"], object))
    assert plan_of(problem).gain == 1
    plan = plan_of(fixed)
    assert plan.gain == 0 and not len(plan.table)
    assert plan.fixed["why"].tolist() == ["nothing owns it"] * 2
    assert plan.report().summary["fixed"] == {"nothing owns it": 2}


@pytest.mark.parametrize(("formats", "system"), [
    ({"a": "k8s"}, "kubernetes"), ({"a": "sacct"}, "slurm"), ({"a": "openb"}, ""), (None, "")])
def test_who_runs_the_tasks(formats, system):
    assert system_of({"formats": formats}) == system
