"""A problem becomes a replay that is ready to begin: who decides, what runs already, and who comes in which order."""

# A module, written by hand.

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...cluster import State
from ...lab.arrays import Floats, Integers, Truths
from ...lab.frames import InputError
from ...lab.jit import njit
from ...online.inflation import ArrivingTasks, StagedWeights, weighing_of
from ...online.model import (
    Limits,
    Policy,
    PowerSettings,
    World,
    count_limit,
    slots_left,
    with_memory,
)
from ...online.policies import policy_of
from ...power import cpu_power_milliwatt, gpu_power_milliwatt
from .meter import largest_memory_mib
from .problem import (
    Problem,
    Schedule,
    counted_world,
    place_running,
    recorded,
    running_at,
)

__all__ = ['Case', 'TimedTasks']


class TimedTasks(NamedTuple):
    """Tasks with their times, as compiled code reads them.

    Parameters
    ----------
    asks : class, memory and die of each task
    submit_s, duration_s, walltime_s : (tasks,) when it comes, how long it runs, and for how long
        it asked, which is at least as long
    arrival : (coming,) tasks by submission
    place : (tasks,) place in one queue of all that come, -1 for the others
    task_at : (coming,) task at each place
    request : (tasks,) number of the request; of one request are tasks that ask for the same with
        the same priority
    member : (coming,) tasks by request, each in the order of the queue
    cap_mw : most that the nodes may draw together, all awake, milliwatts; inf for no cap
    """

    asks: ArrivingTasks
    submit_s: Floats
    duration_s: Floats
    walltime_s: Floats
    arrival: Integers
    place: Integers
    task_at: Integers
    request: Integers
    member: Integers
    cap_mw: float


@dataclass(frozen=True)
class Case:
    """One replay, ready to begin.

    Parameters
    ----------
    policy, world : who decides; the cluster with what holds it at the beginning
    empty : what the nodes have
    weighing : weights of the policy's scores, stages counted from the empty cluster
    timed : the tasks
    comes : (tasks,) whether it comes at all
    schedule : what has been decided before the beginning; changed
    promise_s : (tasks,) start that conservative backfill promised last, inf if none; changed
    """

    policy: Policy
    world: World
    empty: State
    weighing: StagedWeights
    timed: TimedTasks
    comes: Truths
    schedule: Schedule
    promise_s: Floats


@njit(cache=True)
def hold(world: World, timed: TimedTasks, task: int, schedule: Schedule, sign: int) -> None:
    """Take what a task asks for from the node it is on (sign 1), or give it back (-1)."""
    state = world.state
    demand = world.demand
    kind = timed.asks.task[task]
    node = schedule.node[task]
    for gpu in range(state.gpu_left_milli.shape[1]):
        is_held = schedule.gpu_mask[task] >> gpu & 1
        state.gpu_left_milli[node, gpu] -= sign * is_held * demand.gpu_milli[kind]
    state.cpu_left_milli[node] -= sign * demand.cpu_milli[kind]
    state.memory_left_mib[node] -= sign * timed.asks.memory_mib[task]
    if demand.kind[kind] >= 0:
        world.residents[node, demand.kind[kind]] += sign
    if demand.limit[kind] >= 0:
        count_limit(world.limits, demand.limit[kind], node, sign)


@njit(cache=True)
def node_milliwatt(world: World, node: int) -> int:
    """Power of a node as it stands, awake."""
    state = world.state
    return int(cpu_power_milliwatt(world.power, node, state.cpu_left_milli[node])
               + gpu_power_milliwatt(world.power, node, state.gpu_left_milli[node]))


@njit(cache=True)
def node_milliwatts(world: World) -> Integers:
    """Power of all nodes, (nodes,)."""
    return np.array([node_milliwatt(world, node) for node in range(len(world.gpu_model))])


def check_limits(limits: Limits) -> None:
    """Refuse more tasks of an application on a node than one of those there allows.

    Raises
    ------
    InputError : there are more
    """
    for node, limit in np.argwhere(limits.num > 0).tolist():
        if slots_left(limits, limit, node) < 0:
            raise InputError("more tasks of an application run on a node than one of them allows: "
                             f"{limits.most[limit]}", file="tasks.csv", column="constraints",
                             mend="correct most_per_node, or the places of these tasks")


def case_of(problem: Problem, policy: str | Policy, seed: int, at_s: float | None,
            power: PowerSettings, cap_w: float | None = None) -> Case:
    """Prepare a replay; parameters as `replay`."""
    chosen = policy_of(policy) if isinstance(policy, str) else policy
    world, class_of = counted_world(problem, power)
    memory_mib = np.array(problem.tasks.memory_mib)
    if chosen.needs_memory:
        world, class_of = with_memory(world, class_of, memory_mib)
    empty = State(*(left.copy() for left in world.state))
    weighing = weighing_of(chosen, world)
    stream = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[2])
    asks = ArrivingTasks(class_of, memory_mib, stream.integers(2**62, size=len(class_of)))
    comes = memory_mib <= largest_memory_mib(world)[class_of]
    if problem.replayable is not None:
        comes &= problem.replayable
    submit_s = np.array(problem.submit_s)
    size = len(class_of)
    schedule = Schedule(np.full(size, -1), np.zeros(size, np.int64), np.full(size, np.nan),
                        np.full(size, np.nan))
    if at_s is not None:
        before = recorded(problem)
        runs = running_at(before, at_s)
        comes &= ~runs & ~(before.end_s <= at_s)
        submit_s = np.maximum(submit_s, at_s)
        for column, known in zip(schedule, before, strict=True):
            column[runs] = known[runs]
        place_running(world, problem, class_of, before, runs)
        check_limits(world.limits)
    coming = np.flatnonzero(comes)
    order = coming[np.lexsort((coming, submit_s[coming], -problem.priority[coming]))]
    place = np.full(size, -1)
    place[order] = np.arange(len(order))
    kinds = np.column_stack([class_of, memory_mib, problem.priority])
    request = np.zeros(size, np.int64)
    request[order] = np.unique(kinds[order], axis=0, return_inverse=True)[1].ravel()
    duration_s = np.array(problem.duration_s)
    walltime_s = duration_s if problem.walltime_s is None else np.array(problem.walltime_s)
    timed = TimedTasks(asks, submit_s, duration_s, walltime_s,
                       coming[np.argsort(submit_s[coming], kind="stable")], place, order, request,
                       order[np.argsort(request[order], kind="stable")],
                       np.inf if cap_w is None else 1000.0 * cap_w)
    return Case(chosen, world, empty, weighing, timed, comes, schedule, np.full(size, np.inf))
