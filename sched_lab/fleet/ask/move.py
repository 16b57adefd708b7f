"""A few migrations make whole GPUs free, or save watts: the best few, in an order in which no node is ever too full."""

# A module, written by hand.

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...cluster import WHOLE_GPU_MILLI, check_state
from ...lab.arrays import Floats, Integers, Texts, Truths
from ...lab.frames import InputError, check_one_of
from ...lab.jit import njit
from ...lab.reports import Report
from ...online.inflation import ArrivingTasks
from ...online.model import (
    LASTING,
    Placements,
    PowerSettings,
    World,
    check_placements,
    final_state,
    gpu_indices,
    idle_gpus,
    is_share,
    lacking,
    lacking_everywhere,
)
from ...power import Power, cpu_power_milliwatt, gpu_power_milliwatt
from ..read.kubernetes import CORDON
from ..read.tables import OUTAGES
from ..replay.case import take
from ..replay.problem import Problem, Schedule, counted_world, is_part, place_running, running_at, with_tasks
from ..replay.rules import limit_violations
from .explain import blind_to_watts

__all__ = ['Plan', 'plan_moves']

GOALS = {"gpus": "whole GPUs freed", "watts": "watts saved"}


@njit(cache=True)
def worth(power: Power, is_watts: bool, node: int, cpu_left_milli: int,
          gpu_left_milli: Integers) -> int:
    """What the state of a node counts for: idle GPUs, or milliwatts that it does not draw."""
    if is_watts:
        return -(cpu_power_milliwatt(power, node, cpu_left_milli)
                 + gpu_power_milliwatt(power, node, gpu_left_milli))
    idle = 0
    for gpu in range(power.num_gpus[node]):
        idle += gpu_left_milli[gpu] == WHOLE_GPU_MILLI
    return idle


@njit(cache=True)
def best_place(world: World, is_watts: bool, task: int, memory_mib: int,
               own: int) -> tuple[int, int]:
    """Node that loses least by taking a task, -1 if none; its GPUs as a bit mask.

    Parameters
    ----------
    world, is_watts : the cluster; as `worth`
    task, memory_mib, own : class and memory of the task, and the node that it leaves
    """
    cpu_milli = world.demand.cpu_milli[task]
    gpu_milli = world.demand.gpu_milli[task]
    shares = is_share(gpu_milli)
    best = (-(2**62), -(2**62))
    place = (-1, 0)
    for node in range(len(world.gpu_model)):
        if node == own or lacking(world, task, memory_mib, node) != 0:
            continue
        row = world.state.gpu_left_milli[node]
        cpu_left = world.state.cpu_left_milli[node]
        before = worth(world.power, is_watts, node, cpu_left, row)
        for gpu in range(len(row) if shares else 1):
            if shares and row[gpu] < gpu_milli:
                continue
            mask = 1 << gpu if shares else idle_gpus(row, world.demand.num_gpus[task])
            after = row.copy()
            for one in range(len(row)):
                after[one] -= gpu_milli * (mask >> one & 1)
            gain = worth(world.power, is_watts, node, cpu_left - cpu_milli, after) - before
            fullness = -after[gpu] if shares else -after.sum()
            if (gain, fullness) > best:
                best = (gain, fullness)
                place = (node, mask)
    return place


def closed_nodes(problem: Problem) -> frozenset[str]:
    """Names of nodes that somebody has closed to new tasks."""
    if problem.sight is None:
        return frozenset()
    is_closed = [any(taint.key in (CORDON["key"], OUTAGES) for taint in taints)
                 for taints in problem.sight.taint_sets]
    return frozenset(str(name) for name, code in zip(
        problem.cluster.name, problem.sight.taint_code, strict=True) if is_closed[code])


class Layout:
    """Who is where at a moment, and what is left.

    Parameters
    ----------
    problem, schedule, at_s : who runs where at which moment
    power : how nodes draw power
    is_watts : whether worth is power, not idle GPUs

    Attributes
    ----------
    world, power, state : the cluster with the tasks in it, and parts of it
    running, tasks, node, gpu_mask : the problem of the running tasks, they, and where they are
    kind, arriving : (tasks,) class of each task in the world; the same as the engine takes them
    hosts, asks : (kinds, nodes) which nodes admit a kind of task; (tasks,) the kind of each
    stays : (tasks,) why each stays where it is; empty if it may go to another node
    is_movable : (tasks,) whether it may

    Raises
    ------
    InputError : nothing runs then, or more than there is
    """

    def __init__(self, problem: Problem, schedule: Schedule, at_s: float, power: PowerSettings,
                 is_watts: bool) -> None:
        is_running = running_at(schedule, at_s)
        rows = np.flatnonzero(is_running)
        if not len(rows):
            raise InputError(f"no task with a known place runs at {at_s:g} s", value=str(at_s),
                             mend="choose another moment, --at SECONDS")
        self.world, class_of = counted_world(problem, power)
        place_running(self.world, problem, class_of, schedule, is_running)
        self.power, self.state = self.world.power, self.world.state
        self.kind = class_of[rows]
        self.cluster = problem.grouped()
        self.running = with_tasks(problem, rows)
        self.tasks = self.running.tasks
        self.node = schedule.node[rows]
        self.gpu_mask = schedule.gpu_mask[rows]
        self.arriving = ArrivingTasks(self.kind, self.tasks.memory_mib, np.zeros(len(rows), np.int64))
        self.is_watts = is_watts
        kinds, self.asks = np.unique(self.kind, return_inverse=True)
        has_gpus = self.cluster.num_gpus > 0
        self.hosts: Truths = np.array([
            (lacking_everywhere(self.world, kind, 0) & LASTING == 0)
            & (has_gpus | (self.world.demand.num_gpus[kind] == 0)) for kind in kinds])
        others = self.hosts.sum(axis=1)[self.asks] > self.hosts[self.asks, self.node]
        fixed = np.full(len(rows), "", object) if problem.fixed is None else problem.fixed[rows]
        self.stays: Texts = np.where(fixed != "", fixed, np.where(
            is_part(problem)[rows], "it is a part of a job",
            np.where(others, "", "no other node admits it"))).astype(object)
        self.is_movable: Truths = np.asarray(self.stays == "", bool)


class Step(NamedTuple):
    """A move: which running task, from where, and to where."""

    task: int
    from_node: int
    from_mask: int
    to_node: int
    to_mask: int


def worth_of(layout: Layout, node: int, is_watts: bool) -> int:
    """Worth of a node as it is."""
    state = layout.state
    return int(worth(layout.power, is_watts, node, int(state.cpu_left_milli[node]),
                     state.gpu_left_milli[node]))


def shift(layout: Layout, task: int, node: int, mask: int, sign: int) -> int:
    """Give back what a task holds on a node (1), or take it (-1); how much the worth grows."""
    before = worth_of(layout, node, layout.is_watts)
    take(layout.world, layout.arriving, task, node, mask, -sign)
    return worth_of(layout, node, layout.is_watts) - before


def carry(layout: Layout, step: Step, *, back: bool = False) -> int:
    """Do a move, or undo it; how much the worth grows."""
    source = (step.to_node, step.to_mask) if back else (step.from_node, step.from_mask)
    target = (step.from_node, step.from_mask) if back else (step.to_node, step.to_mask)
    gain = shift(layout, step.task, *source, 1) + shift(layout, step.task, *target, -1)
    layout.node[step.task], layout.gpu_mask[step.task] = target
    return gain


def tenants_of(layout: Layout) -> dict[tuple[int, int], list[int]]:
    """Tasks on each shared GPU, by node and number of the GPU, the largest first."""
    tasks = layout.tasks
    shares = np.flatnonzero((tasks.num_gpus > 0) & (tasks.gpu_milli < WHOLE_GPU_MILLI))
    tenants: dict[tuple[int, int], list[int]] = {}
    for task in shares[np.argsort(-tasks.gpu_milli[shares], kind="stable")].tolist():
        gpu = int(layout.gpu_mask[task]).bit_length() - 1
        tenants.setdefault((int(layout.node[task]), gpu), []).append(task)
    return tenants


def is_step(power: Power) -> bool:
    """Whether a processor that is in use at all draws full power."""
    return bool((power.load_permille[1:] == 1000).all())


def cpu_credits(layout: Layout) -> Integers:
    """Most milliwatts of CPUs that leaving saves, (tasks,); 0 if worth is idle GPUs."""
    power = layout.power
    if not layout.is_watts:
        return np.zeros(len(layout.node), np.int64)
    node = layout.node
    package = 2000 * power.cpu_cores[node]
    packages = -(-layout.tasks.cpu_milli // package) + (0 if is_step(power) else 1)
    is_even = power.is_package | (power.cpu_milli[node] % package == 0)
    watts = power.cpu_full_w[node] - np.where(is_even, power.cpu_idle_w[node], 0)
    return np.where(layout.tasks.cpu_milli > 0, 1000 * packages * watts, 0)


def credits_of(layout: Layout) -> Floats:
    """Most that moving each task can gain, (tasks,), by {eq}`eq-move-credit`."""
    power, tasks = layout.power, layout.tasks
    ranges = (1000 * (power.gpu_full_w - power.gpu_idle_w) if layout.is_watts
              else np.ones_like(power.num_gpus))  # what an idle GPU of each node is worth
    least = np.array([ranges[hosts].min(initial=2**40) if hosts.any() else 0
                      for hosts in layout.hosts])[layout.asks]
    is_whole = tasks.gpu_milli == WHOLE_GPU_MILLI
    credit = cpu_credits(layout) + np.where(
        is_whole, tasks.num_gpus * (ranges[layout.node] - least), 0).astype(float)
    together = not layout.is_watts or is_step(power)
    for (node, _), tenants in tenants_of(layout).items():
        credit[tenants] += ranges[node] / (len(tenants) if together else 1)
    return np.where(layout.is_movable, np.maximum(credit, 0), 0)


def bundles_of(layout: Layout, credit: Floats) -> list[list[int]]:
    """What may move together, the most promising first; `credit` is that of `credits_of`."""
    bundles = list(tenants_of(layout).values())
    if layout.is_watts:
        bundles += [[task] for task in np.flatnonzero(credit > 0).tolist()]
    bundles = [bundle for bundle in bundles if layout.is_movable[bundle].all()]
    load = layout.tasks.gpu_milli

    def promise(bundle: list[int]) -> tuple[float, int]:
        return -float(credit[bundle].mean()), int(load[bundle].sum())

    return sorted((bundle for bundle in bundles if credit[bundle].any()), key=promise)


def tried(layout: Layout, bundle: Sequence[int]) -> tuple[list[Step], int]:
    """Moves of a bundle task by task to the best places, and their gain; none if one fits nowhere. All is as before."""
    steps: list[Step] = []
    gain = 0
    for task in bundle:
        own = int(layout.node[task])
        node, mask = best_place(layout.world, layout.is_watts, int(layout.kind[task]),
                                int(layout.tasks.memory_mib[task]), own)
        if node < 0:
            break
        step = Step(task, own, int(layout.gpu_mask[task]), node, mask)
        gain += carry(layout, step)
        steps.append(step)
    undo(layout, steps)
    return (steps, gain) if len(steps) == len(bundle) else ([], 0)


def undo(layout: Layout, steps: Sequence[Step]) -> int:
    """Undo moves; how much they had gained."""
    return -sum(carry(layout, step, back=True) for step in reversed(steps))


def greedy_steps(layout: Layout, moves: int) -> list[Step]:
    """At most so many moves, of the bundle that gains most for each, then of the next; all done."""
    plan: list[Step] = []
    while len(plan) < moves:
        best: list[Step] = []
        rate = 0.0
        credit = credits_of(layout)
        gone = {step.task for step in plan}  # no task moves twice: the bound is of such plans
        for bundle in bundles_of(layout, credit):
            if credit[bundle].mean() <= rate:
                break
            if len(bundle) > moves - len(plan) or not gone.isdisjoint(bundle):
                continue
            steps, gain = tried(layout, bundle)
            if steps and gain / len(steps) > rate:
                best = steps
                rate = gain / len(steps)
        if not best:
            break
        for step in best:
            carry(layout, step)
        plan += best
    return plan


def bound_of(layout: Layout, moves: int) -> float:
    """What no plan of so many moves gains more than: GPUs, or milliwatts."""
    largest = np.sort(credits_of(layout))[::-1][:moves]
    total = float(largest.sum())
    if layout.is_watts:
        return total
    tenants = tenants_of(layout)
    shares = sum(int(layout.tasks.gpu_milli[task]) for held in tenants.values() for task in held)
    return float(min(np.floor(total + 1e-9), len(tenants) - -(-shares // WHOLE_GPU_MILLI)))


@dataclass(frozen=True)
class Plan:
    """Migrations, in an order in which each is possible.

    Parameters
    ----------
    table : one row per move: step, task, from_node, to_node, gpus (that the task holds), from_gpus,
        to_gpus ("0-2"), whole_gpus_freed and watts_saved (by this move; watts nan if unknown)
    goal : "gpus" or "watts"
    gain, bound : of the plan, and what no plan of so many moves that moves no task twice exceeds:
        GPUs or watts
    at_s : moment of the state
    about : running, movable and moves: numbers of tasks
    fixed : tasks that stay: task, node, why
    closed : names of nodes that take no new tasks, and are to stay so
    """

    table: pd.DataFrame
    goal: str
    gain: float
    bound: float
    at_s: float
    about: dict[str, int]
    fixed: pd.DataFrame
    closed: frozenset[str] = frozenset()

    @property
    def headline(self) -> str:
        """What it comes to, in a line."""
        unit = "W saved" if self.goal == "watts" else "whole GPU freed" if self.gain == 1 else (
            "whole GPUs freed")
        best = "the most possible" if self.gain >= self.bound - 1e-6 else (
            f"no plan of so many moves exceeds {self.bound:g}")
        moves = self.about["moves"]
        number = {0: "no move", 1: "1 move"}.get(moves, f"{moves} moves")
        stay = f"; {len(self.fixed)} of {self.about['running']} tasks stay, see fixed.csv" if len(
            self.fixed) else ""
        return f"{number}: {self.gain:g} {unit}, {best}{stay}"

    def report(self) -> Report:
        """Report: moves.csv, fixed.csv with the tasks that stay and why, and a summary."""
        why = {str(why): int(count) for why, count in self.fixed["why"].value_counts().items()}
        summary = {"goal": self.goal, "at_s": self.at_s, "gain": self.gain, "bound": self.bound,
                   **self.about, "fixed": why}
        return Report(summary, {"moves.csv": self.table.round(3), "fixed.csv": self.fixed}, {},
                      self.headline)


MOVE_COLUMNS = ["step", "task", "from_node", "to_node", "gpus", "from_gpus", "to_gpus",
                "whole_gpus_freed", "watts_saved"]


def table_of(layout: Layout, steps: Sequence[Step], has_watts: bool) -> pd.DataFrame:
    """Rows of a plan; the layout is at its beginning, and again in the end."""
    rows = []

    def worths(nodes: tuple[int, int]) -> Integers:
        """Idle GPUs of both nodes, and milliwatts that they do not draw."""
        return np.array([sum(worth_of(layout, node, is_watts) for node in nodes)
                         for is_watts in (False, True)])

    for number, step in enumerate(steps, 1):
        both = (step.from_node, step.to_node)
        before = worths(both)
        carry(layout, step)
        freed, saved_mw = (worths(both) - before).tolist()
        held = layout.tasks.num_gpus[step.task] * layout.tasks.gpu_milli[step.task]
        names = [str(layout.cluster.name[node]) for node in both]
        lists = ["-".join(map(str, gpu_indices(mask))) for mask in (step.from_mask, step.to_mask)]
        rows.append((number, str(layout.tasks.name[step.task]), *names, held / WHOLE_GPU_MILLI,
                     *lists, freed, saved_mw / 1000 if has_watts else np.nan))
    undo(layout, steps)
    return pd.DataFrame(rows, columns=MOVE_COLUMNS)


def plan_moves(problem: Problem, schedule: Schedule, at_s: float, *, moves: int = 10,
               goal: str = "gpus", power: PowerSettings = PowerSettings()) -> Plan:  # noqa: B008
    """Choose migrations of running tasks that free whole GPUs, or save watts.

    Parameters
    ----------
    problem, schedule : who runs where
    at_s : the moment, seconds
    moves : most migrations, at least 1
    goal : "gpus" or "watts"
    power : watts of the models

    Returns
    -------
    plan, each of its moves checked against Cond. 1-8 in the state after it

    Raises
    ------
    InputError : no such goal, nothing runs then, more runs than there is room for, or a GPU model
        without watts, which are to be saved
    """
    check_one_of(goal, GOALS, "goal")
    if moves < 1:
        raise InputError(f"{moves} moves are no plan", value=str(moves), mend="give 1 or more")
    blind = blind_to_watts(problem, power)
    layout = Layout(problem, schedule, at_s, power if goal == "watts" else blind, goal == "watts")
    bound = bound_of(layout, moves)
    steps = greedy_steps(layout, moves)
    undo(layout, steps)
    check_steps(layout, steps)
    table = table_of(layout, steps, blind == power)
    about = {"running": len(layout.node), "movable": int(layout.is_movable.sum()),
             "moves": len(steps)}
    stays = np.flatnonzero(~layout.is_movable)
    fixed = pd.DataFrame({"task": layout.tasks.name[stays],
                          "node": layout.cluster.name[layout.node[stays]],
                          "why": layout.stays[stays]})
    column, unit = ("whole_gpus_freed", 1) if goal == "gpus" else ("watts_saved", 1000)
    return Plan(table, goal, float(table[column].sum()), bound / unit, at_s, about, fixed,
                closed_nodes(problem))


def check_steps(layout: Layout, steps: Sequence[Step]) -> None:
    """Check that moves can be done one after the other (Cond. 1-8 after each).

    Raises
    ------
    ValueError : naming the step and the condition
    """
    node = layout.node.copy()
    mask = layout.gpu_mask.copy()
    now_s = np.zeros(len(node))

    def limits_broken() -> list[str]:
        held = Schedule(node, mask, now_s, now_s + 1)
        return [sentence for _, sentence in limit_violations(layout.running, held)]

    known = limits_broken()
    for number, step in enumerate(steps, 1):
        if (node[step.task], mask[step.task]) != (step.from_node, step.from_mask):
            raise ValueError(f"step {number}: {layout.tasks.name[step.task]} is not there")
        if step.to_node == step.from_node:
            raise ValueError(f"step {number}: {layout.tasks.name[step.task]} stays on its node")
        node[step.task] = step.to_node
        mask[step.task] = step.to_mask
        everyone = Placements(np.arange(len(node)), node, mask)
        try:
            check_state(layout.cluster, final_state(layout.cluster, layout.tasks, everyone))
            check_placements(layout.cluster, layout.tasks, Placements._make(
                column[[step.task]] for column in everyone))
            for sentence in limits_broken():
                if sentence not in known:
                    raise ValueError(sentence)
        except ValueError as trouble:
            raise ValueError(f"step {number}: {trouble}") from None


EVICT = """#!/bin/sh
# Read this before you run it. A pod is evicted, so that disruption budgets count, and its owner
# makes it anew; the scheduler then chooses the node, and may choose another than is meant here.
set -eu
evict() { # NAMESPACE POD: ask for fifteen minutes, then wait until the pod has gone
    for _ in $(seq 90); do
        if printf '{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"%s","namespace":"%s"}}' "$2" "$1" |
            kubectl create --raw "/api/v1/namespaces/$1/pods/$2/eviction" -f -; then
            kubectl wait --for=delete --timeout=15m --namespace "$1" "pod/$2"
            return
        fi
        sleep 10
    done
    return 1
}
"""
HEADS = {"kubernetes": EVICT, "slurm": """#!/bin/sh
# Read this before you run it. A job that is requeued begins anew, from what it has saved.
set -eu
"""}
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def kubernetes_commands(task: str, from_node: str, is_closed: bool) -> list[str]:
    """Commands that have a pod made anew elsewhere; `is_closed` if its node takes none anyway."""
    namespace, _, pod = task.rpartition("/")
    if not all(OBJECT_NAME.fullmatch(name) for name in (namespace or "default", pod, from_node)):
        return ["# no command: this is no name of a pod"]
    evict = shlex.join(["evict", namespace or "default", pod])
    if is_closed:
        return [evict]
    cordon, uncordon = (shlex.join(["kubectl", what, from_node]) for what in ("cordon", "uncordon"))
    return [cordon, f"{evict} || {{ {uncordon}; exit 1; }}", uncordon]


def system_of(about: Any) -> str:
    """Who runs the tasks of a cluster, by the formats of its files; empty if neither."""
    formats = set((about.get("formats") or {}).values())
    if formats & {"slurm", "sacct"}:
        return "slurm"
    return "kubernetes" if "k8s" in formats else ""


def commands_of(plan: Plan, system: str) -> list[str]:
    """Lines of a shell script for a plan: a comment for each move, and its commands if known."""
    lines = HEADS.get(system, "").splitlines() if len(plan.table) else []
    for step, *names in plan.table[["step", "task", "from_node", "to_node"]].to_numpy():
        task, from_node, to_node = map(str, names)
        said = f"{step}. {task}: {from_node} -> {to_node}"
        lines.append("# " + re.sub(r"[\x00-\x1f\x7f\u2028\u2029]", " ", said))
        if system == "kubernetes":
            lines += kubernetes_commands(task, from_node, from_node in plan.closed)
        elif system == "slurm":
            lines += [shlex.join(["scontrol", "requeuehold", task]),
                      shlex.join(["scontrol", "update", f"JobId={task}", f"ReqNodeList={to_node}"]),
                      shlex.join(["scontrol", "release", task])]
    return lines
