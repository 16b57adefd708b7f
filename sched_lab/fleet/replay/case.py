"""A problem becomes a replay that is ready to begin: who decides, what runs already, and who comes in which order."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Sequence
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
    is_feasible,
    open_nodes,
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
    next_part : (tasks,) the next part of the same job, -1 behind the last; a job goes by its first
        part, and the queue knows no other
    arrival : (coming,) jobs by submission
    place : (tasks,) place in one queue of all jobs that come, -1 for all other tasks
    task_at : (coming,) job at each place
    request : (tasks,) number of the request; of one request are jobs of one part that ask for the
        same with the same priority; a job of several parts is a request of its own
    member : (coming,) jobs by request, each in the order of the queue
    cap_mw : most that the nodes may draw together, all awake, milliwatts; inf for no cap
    """

    asks: ArrivingTasks
    submit_s: Floats
    duration_s: Floats
    walltime_s: Floats
    next_part: Integers
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
def take(world: World, asks: ArrivingTasks, task: int, node: int, gpu_mask: int, sign: int) -> None:
    """Take what a task asks for from a node and its GPUs (sign 1), or give it back (-1)."""
    state = world.state
    demand = world.demand
    kind = asks.task[task]
    for gpu in range(state.gpu_left_milli.shape[1]):
        state.gpu_left_milli[node, gpu] -= sign * (gpu_mask >> gpu & 1) * demand.gpu_milli[kind]
    state.cpu_left_milli[node] -= sign * demand.cpu_milli[kind]
    state.memory_left_mib[node] -= sign * asks.memory_mib[task]
    if demand.kind[kind] >= 0:
        world.residents[node, demand.kind[kind]] += sign
    if demand.limit[kind] >= 0:
        count_limit(world.limits, demand.limit[kind], node, sign)


@njit(cache=True)
def hold(world: World, timed: TimedTasks, task: int, schedule: Schedule, sign: int) -> None:
    """Take what a task asks for from the node it is on (sign 1), or give it back (-1)."""
    take(world, timed.asks, task, schedule.node[task], schedule.gpu_mask[task], sign)


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


def parts_of_jobs(job: Integers | None, size: int) -> tuple[Integers, Integers]:
    """First part of the job of each task, and the next part of the same job, -1 behind the last."""
    every = np.arange(size)
    if job is None:
        return every, np.full(size, -1)
    order = np.argsort(job, kind="stable")
    is_first = np.diff(job[order], prepend=-1) != 0
    first, next_part = np.zeros(size, np.int64), np.full(size, -1)
    first[order] = order[np.flatnonzero(is_first)][np.cumsum(is_first) - 1]
    next_part[order[:-1]] = np.where(is_first[1:], -1, order[1:])
    return first, next_part


@njit(cache=True)
def node_among(world: World, asks: ArrivingTasks, task: int,
               nodes: Sequence[int] | Integers) -> int:
    """First of the given nodes on which a task fits as they stand (Cond. 1-8), or -1."""
    for node in nodes:
        if (is_feasible(world, asks.task[task], node)
                and world.state.memory_left_mib[node] >= asks.memory_mib[task]):
            return int(node)
    return -1


@njit(cache=True)
def first_gpus(left_milli: Integers, num_gpus: int, gpu_milli: int) -> int:
    """First GPUs with room for so many shares, as a bit mask."""
    gpu_mask = 0
    num = 0
    for gpu in range(len(left_milli)):
        if num < num_gpus and left_milli[gpu] >= gpu_milli:
            gpu_mask |= 1 << gpu
            num += 1
    return gpu_mask


@njit(cache=True)
def first_place(world: World, asks: ArrivingTasks, task: int) -> tuple[int, int]:
    """First node that has room for a task as it stands, -1 if none has, and its first GPUs."""
    node = node_among(world, asks, task, np.arange(len(world.gpu_model)))
    kind = asks.task[task]
    left_milli = world.state.gpu_left_milli[node, :world.power.num_gpus[node] if node >= 0 else 0]
    return node, first_gpus(left_milli, world.demand.num_gpus[kind], world.demand.gpu_milli[kind])


@njit(cache=True)
def fits_together(world: World, asks: ArrivingTasks, next_part: Integers, job: int) -> bool:
    """Whether all parts of a job fit as the nodes stand, each on the first with room."""
    held = [(0, 0, 0)]
    held.clear()
    part = job
    while part >= 0:
        node, gpu_mask = first_place(world, asks, part)
        if node < 0:
            break
        take(world, asks, part, node, gpu_mask, 1)
        held.append((part, node, gpu_mask))
        part = next_part[part]
    for other, node, gpu_mask in held:
        take(world, asks, other, node, gpu_mask, -1)
    return part < 0


def together_nowhere(world: World, empty: State, asks: ArrivingTasks, first: Integers,
                     next_part: Integers, comes: Truths) -> Integers:
    """Tasks of jobs of several parts that do not fit the empty cluster together."""
    jobs = np.flatnonzero(comes & (first == np.arange(len(first))) & (next_part >= 0))
    bare = world._replace(state=State(*(left.copy() for left in empty)),
                          residents=np.zeros_like(world.residents),
                          limits=world.limits._replace(num=np.zeros_like(world.limits.num),
                                                       is_open=world.limits.is_open.copy()))
    open_nodes(bare.limits)
    never = [job for job in jobs.tolist() if not fits_together(bare, asks, next_part, job)]
    return np.flatnonzero(np.isin(first, never))


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
    first, next_part = parts_of_jobs(problem.job, size)
    comes &= np.bincount(first, ~comes, size)[first] == 0  # a part that is there already, or never
    comes[together_nowhere(world, empty, asks, first, next_part, comes)] = False
    coming = np.flatnonzero(comes & (first == np.arange(size)))
    order = coming[np.lexsort((coming, submit_s[coming], -problem.priority[coming]))]
    place = np.full(size, -1)
    place[order] = np.arange(len(order))
    number = np.where(next_part < 0, 0, 1 + np.arange(size))
    kinds = np.column_stack([class_of, memory_mib, problem.priority, number])
    request = np.zeros(size, np.int64)
    request[order] = np.unique(kinds[order], axis=0, return_inverse=True)[1].ravel()
    duration_s = np.array(problem.duration_s)
    walltime_s = duration_s if problem.walltime_s is None else np.array(problem.walltime_s)
    timed = TimedTasks(asks, submit_s, duration_s, walltime_s, next_part,
                       coming[np.argsort(submit_s[coming], kind="stable")], place, order, request,
                       order[np.argsort(request[order], kind="stable")],
                       np.inf if cap_w is None else 1000.0 * cap_w)
    return Case(chosen, world, empty, weighing, timed, comes, schedule, np.full(size, np.inf))
