"""A problem becomes a replay that is ready to begin: what runs already, who comes in which order, and what a policy decides with."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...cluster import State
from ...lab.arrays import Floats, Integers, Truths
from ...lab.frames import InputError
from ...lab.jit import by_reference, first_class, interpreted, njit
from ...online.bid import count_placed, is_due
from ...online.inflation import (
    MAX_GROUPS,
    ArrivingTasks,
    Memory,
    StagedWeights,
    decide,
    decide_by_index,
    empty_memory,
    kernels_for,
    stage_now,
    weighing_of,
)
from ...online.model import (
    Limits,
    Policy,
    PowerSettings,
    World,
    count_limit,
    is_feasible,
    slots_left,
    with_memory,
)
from ...online.policies import policy_of
from ...online.score_index import MOST_MIB, Index, empty_index, note_change
from ...power import cpu_power_milliwatt, gpu_power_milliwatt
from .meter import largest_memory_mib
from .outages import NO_OUTAGES, Closings, closings_of
from .problem import (
    Problem,
    Schedule,
    counted_world,
    place_running,
    recorded,
    running_at,
)

__all__ = ['Case', 'Desk', 'TimedTasks']


@by_reference
class TimedTasks(NamedTuple):
    """Tasks with their times, as compiled code reads them.

    Parameters
    ----------
    asks : class, memory and die of each task
    submit_s, duration_s, walltime_s : (tasks,) when it comes, how long it runs, and for how long
        it asked, which is at least as long
    expects_s : (tasks,) how long a policy that looks ahead expects it to run
    first_part, next_part : (tasks,) the first part of its job, and the next one, -1 behind the last; a
        job goes by its first part, and the queue knows no other
    arrival : (coming,) jobs by submission
    place : (tasks,) place in one queue of all jobs that come, -1 for all other tasks
    task_at : (coming,) job at each place
    request : (tasks,) number of the request; of one request are jobs of one part that ask for the
        same with the same priority; a job of several parts is a request of its own
    member : (coming,) jobs by request, each in the order of the queue
    cap_mw : most that the nodes may draw together, all awake, milliwatts; inf for no cap
    closings : when nodes close and open
    """

    asks: ArrivingTasks
    submit_s: Floats
    duration_s: Floats
    walltime_s: Floats
    expects_s: Floats
    first_part: Integers
    next_part: Integers
    arrival: Integers
    place: Integers
    task_at: Integers
    request: Integers
    member: Integers
    cap_mw: float
    closings: Closings


@dataclass(frozen=True)
class Case:
    """One replay, ready to begin.

    Parameters
    ----------
    policy, world : who decides; the cluster with what holds it at the beginning
    empty : the same without a task
    weighing : weights of the policy's scores, stages counted from the empty cluster
    timed : the tasks
    comes : (tasks,) whether it comes at all
    schedule : what has been decided before the beginning; changed
    promise_s : (tasks,) start that conservative backfill promised last, inf if none; changed
    """

    policy: Policy
    world: World
    empty: World
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


FAR = 2**50  # milli-vCPU: more than any node has


@njit(cache=True)
def hide(desk: Desk, node: int, sign: int) -> None:
    """Let no policy see room on a node (sign 1), or let it see it again (-1)."""
    desk.world.state.cpu_left_milli[node] -= sign * FAR
    note_change(desk.by_score, node)
    desk.memory.version[node] += 1


@njit(cache=True)
def cpu_left(world: World, node: int) -> int:
    """Milli-vCPU left on a node, hidden or not."""
    left = world.state.cpu_left_milli[node]
    return int(left + FAR if left < -FAR // 2 else left)


@njit(cache=True)
def node_milliwatt(world: World, node: int) -> int:
    """Power of a node as it stands, awake."""
    state = world.state
    return int(cpu_power_milliwatt(world.power, node, cpu_left(world, node))
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


def whole_since_s(problem: Problem, first: Integers) -> Floats:
    """When the last part of the job of each task came, (tasks,); `first` is as in `parts_of_jobs`."""
    last_s = np.full(len(first), -np.inf)
    np.maximum.at(last_s, first, problem.submit_s)
    return last_s[first]


def by_turn(problem: Problem) -> Integers:
    """Tasks in the order of their turns, (tasks,): jobs by priority and then as they came, part after part."""
    first, _ = parts_of_jobs(problem.job, len(problem.tasks))
    return np.lexsort((np.arange(len(first)), first, whole_since_s(problem, first), -problem.priority[first]))


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
def first_gpus(world: World, kind: int, node: int, left_milli: Integers) -> int:
    """First GPUs of a node with room for a task of a class if so much is left of each, as a mask."""
    num_gpus, gpu_milli = world.demand.num_gpus[kind], world.demand.gpu_milli[kind]
    gpu_mask = 0
    num = 0
    for gpu in range(world.power.num_gpus[node]):
        if num < num_gpus and left_milli[gpu] >= gpu_milli:
            gpu_mask |= 1 << gpu
            num += 1
    return gpu_mask


@njit(cache=True)
def first_place(world: World, asks: ArrivingTasks, task: int) -> tuple[int, int]:
    """First node that has room for a task as it stands, -1 if none has, and its first GPUs."""
    node = node_among(world, asks, task, np.arange(len(world.gpu_model)))
    if node < 0:
        return node, 0
    return node, first_gpus(world, asks.task[task], node, world.state.gpu_left_milli[node])


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


@njit(cache=True)
def place_in(line: Any, one: Any) -> int:
    """Where one stands, or would stand, in an ascending list."""
    low = 0
    high = len(line)
    while low < high:
        middle = (low + high) // 2
        if line[middle] < one:
            low = middle + 1
        else:
            high = middle
    return low


def copied(world: World) -> World:
    """The world with arrays of its own for all that placements change."""
    limits = world.limits
    return world._replace(state=State(*(left.copy() for left in world.state)),
                          residents=world.residents.copy(),
                          limits=limits._replace(num=limits.num.copy(), is_open=limits.is_open.copy()))


FEW = 20_000  # classes times nodes that are looked at before the code for it would be loaded


def case_of(problem: Problem, policy: str | Policy, seed: int, at_s: float | None,
            power: PowerSettings, cap_w: float | None = None) -> Case:
    """Prepare a replay; parameters as `replay`."""
    chosen = policy_of(policy) if isinstance(policy, str) else policy
    world, class_of = counted_world(problem, power)
    memory_mib = np.array(problem.tasks.memory_mib)
    if chosen.needs_memory:
        world, class_of = with_memory(world, class_of, memory_mib)
    empty = copied(world)
    weighing = weighing_of(chosen, world)
    stream = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[2])
    asks = ArrivingTasks(class_of, memory_mib, stream.integers(2**62, size=len(class_of)))
    with interpreted(len(world.demand.kind) * len(world.gpu_model) <= FEW):
        comes = memory_mib <= largest_memory_mib(world)[class_of]
    if problem.replayable is not None:
        comes &= problem.replayable
    size = len(class_of)
    first, next_part = parts_of_jobs(problem.job, size)
    submit_s = whole_since_s(problem, first)
    schedule = Schedule(np.full(size, -1), np.zeros(size, np.int64), np.full(size, np.nan),
                        np.full(size, np.nan))
    if at_s is not None:
        before = recorded(problem)
        runs = running_at(before, at_s)
        comes &= ~runs & ~(before.end_s <= at_s)
        submit_s = np.maximum(submit_s, at_s)
        for column, known in zip(schedule[:4], before[:4], strict=True):
            column[runs] = known[runs]
        place_running(world, problem, class_of, before, runs)
        check_limits(world.limits)
    comes &= np.bincount(first, ~comes, size)[first] == 0  # a part that is there already, or never
    jobs = np.flatnonzero(comes & (first == np.arange(size)) & (next_part >= 0))
    never = [job for job in jobs.tolist() if not fits_together(empty, asks, next_part, job)]
    comes[np.isin(first, never)] = False
    coming = np.flatnonzero(comes & (first == np.arange(size)))
    order = by_turn(problem)
    order = order[np.isin(order, coming)]
    place = np.full(size, -1)
    place[order] = np.arange(len(order))
    number = np.where(next_part < 0, 0, 1 + np.arange(size))
    request = np.zeros(size, np.int64)
    for column in (class_of, memory_mib, problem.priority, number):
        rank, values = pd.factorize(column[order], sort=True)
        request[order] = pd.factorize(request[order] * len(values) + rank, sort=True)[0]
    duration_s = np.array(problem.duration_s)
    walltime_s = duration_s if problem.walltime_s is None else np.array(problem.walltime_s)
    expects_s = walltime_s if problem.expects_s is None else np.array(problem.expects_s)
    timed = TimedTasks(asks, submit_s, duration_s, walltime_s, expects_s, first, next_part,
                       coming[np.argsort(submit_s[coming], kind="stable")], place, order, request,
                       order[np.argsort(request[order], kind="stable")],
                       np.inf if cap_w is None else 1000.0 * cap_w,
                       closings_of(problem.outages or NO_OUTAGES, at_s))
    return Case(chosen, world, empty, weighing, timed, comes, schedule, np.full(size, np.inf))


@by_reference
class Occupants(NamedTuple):
    """Who is on each node, and until when.

    Parameters
    ----------
    first, after : (nodes,) and (tasks,) tasks on a node as a list, -1 at its end
    until_s : (tasks,) when each is expected to leave
    """

    first: Integers
    after: Integers
    until_s: Floats


@njit(cache=True)
def put_first(there: Occupants, node: int, task: int) -> None:
    """Put a task on the list of a node."""
    there.after[task] = there.first[node]
    there.first[node] = task


@njit(cache=True)
def take_off(there: Occupants, node: int, task: int) -> None:
    """Take a task off the list of a node, if it is there."""
    before = -1
    other = there.first[node]
    while other >= 0 and other != task:
        before = other
        other = there.after[other]
    if other == task and before < 0:
        there.first[node] = there.after[task]
    elif other == task:
        there.after[before] = there.after[task]


@njit(cache=True)
def show_stays(world: World, there: Occupants, schedule: Schedule, node: int, from_s: float,
               to_s: float) -> None:
    """Write until when a node and its GPUs are in use by those who are there in a span.

    Parameters
    ----------
    world, there, schedule : its stays are changed; who is on the nodes, since when, on which GPUs
    node, from_s, to_s : the node and the span
    """
    stays = world.stays
    stays.node_until_s[node] = -np.inf
    stays.gpu_until_s[node] = -np.inf
    task = there.first[node]
    while task >= 0:
        since_s, until_s = schedule.start_s[task], there.until_s[task]
        if since_s <= from_s < until_s or from_s < since_s < to_s:
            stays.node_until_s[node] = max(stays.node_until_s[node], until_s)
            for gpu in range(stays.gpu_until_s.shape[1]):
                if schedule.gpu_mask[task] >> gpu & 1:
                    stays.gpu_until_s[node, gpu] = max(stays.gpu_until_s[node, gpu], until_s)
        task = there.after[task]


@by_reference
class Desk(NamedTuple):
    """What decides, and what it knows.

    Parameters
    ----------
    weighing, world : weights of the scores, the cluster
    by_score : index of nodes, the rows of one stage after those of another
    memory, stage : of the plain engine, and (1,) the stage that it knows
    is_plain : (classes,) whether the index has no room for the class
    in_use : (`RESOURCES`,) milli-GPU, milli-vCPU and MiB that tasks hold
    drawn_mw : (nodes,) milliwatts of each node, if there is a cap
    num_closed, num_down : (nodes,) outages that close it now, and those for which it is down
    looks_ahead, there : whether a score asks who leaves when; who is on the nodes
    """

    weighing: StagedWeights
    world: World
    by_score: Index
    memory: Memory
    stage: Integers
    is_plain: Truths
    in_use: Integers
    drawn_mw: Integers
    num_closed: Integers
    num_down: Integers
    looks_ahead: bool
    there: Occupants


def in_use(empty: State, state: State) -> Integers:
    """Milli-GPU, milli-vCPU and MiB that tasks hold."""
    return np.array([empty.gpu_left_milli.sum() - state.gpu_left_milli.sum(),
                     empty.cpu_left_milli.sum() - state.cpu_left_milli.sum(),
                     empty.memory_left_mib.sum() - state.memory_left_mib.sum()])


def has_sums(weighing: StagedWeights) -> bool:
    """Whether several scores are added up in some stage."""
    return bool((weighing.weights > 0).sum(axis=1).max() > 1)


def desk_of(case: Case) -> Desk:
    """Everything that a policy needs to decide, nothing known yet."""
    world = case.world
    num_classes, num_nodes, num_scores = (len(world.demand.cpu_milli), len(world.gpu_model),
                                          len(case.policy.scores))
    index = empty_index(num_classes * len(case.weighing.starts), num_nodes, num_scores,
                        MAX_GROUPS if has_sums(case.weighing) else 1)
    size = len(case.comes)
    is_capped = case.timed.cap_mw < np.inf
    return Desk(case.weighing, world, index, empty_memory(num_classes, num_nodes, num_scores),
                np.full(1, -1), np.zeros(num_classes, np.bool_), in_use(case.empty.state, world.state),
                node_milliwatts(world) if is_capped else np.zeros(num_nodes, np.int64),
                np.zeros(num_nodes, np.int64), np.zeros(num_nodes, np.int64),
                case.policy.looks_ahead, Occupants(np.full(num_nodes, -1), np.full(size, -1), np.full(size, np.nan)))


@njit(cache=True)
def price_anew(scores: Any, desk: Desk) -> None:
    """Let the last of the scores compute prices, if the policy asks; forget all scores."""
    index = desk.by_score
    if desk.world.bids.served_w[0] > 0:
        scores[-1](desk.world, 0, index.stale[:0], index.score[0], index.gpu_mask[0])
        index.owner[:] = -1
        desk.memory.owner[:] = -1


@njit(cache=True)
def decide_by_one(scores: Any, desk: Desk, timed: TimedTasks, task: int,
                  now_s: float) -> tuple[int, int]:
    """As `decide_at`, where one score decides and the index has room for every class."""
    stage = stage_now(desk.weighing, 0, desk.in_use)
    num_rows = len(desk.by_score.owner) // len(desk.weighing.starts)
    return decide_by_index(scores, desk.weighing, stage, desk.world, desk.by_score, None, num_rows,
                           timed.asks, task)


@njit(cache=True)
def decide_by_looking(scores: Any, desk: Desk, timed: TimedTasks, task: int,
                      now_s: float) -> tuple[int, int]:
    """As `decide_at`, by a look at all nodes: for a class without room in the index, or a policy that looks ahead."""
    stage = stage_now(desk.weighing, 0, desk.in_use)
    if desk.looks_ahead:  # what was known a moment ago is not true any more
        desk.world.stays.now_s[0] = now_s
        desk.world.stays.lasts_s[0] = timed.expects_s[task]
    if desk.looks_ahead or stage != desk.stage[0]:
        desk.stage[0] = stage
        desk.memory.owner[:] = -1
    return decide(scores, desk.weighing, stage, desk.world, desk.memory, timed.asks, task)


@njit(cache=True)
def decide_at(scores: Any, desk: Desk, timed: TimedTasks, task: int,
              now_s: float) -> tuple[int, int]:
    """Node of a task, -1 if none has room at a moment, and its GPUs there, by a policy's scores."""
    kind = timed.asks.task[task]
    if not (desk.looks_ahead or desk.is_plain[kind]):
        stage = stage_now(desk.weighing, 0, desk.in_use)
        num_rows = len(desk.by_score.owner) // len(desk.weighing.starts)
        node, gpu_mask = decide_by_index(scores, desk.weighing, stage, desk.world, desk.by_score,
                                         desk.by_score.groups, num_rows, timed.asks, task)
        if gpu_mask >= 0:
            return node, gpu_mask
        desk.is_plain[kind] = True
    return decide_by_looking(scores, desk, timed, task, now_s)


@njit(cache=True)
def decide_within(scores: Any, desk: Desk, timed: TimedTasks, task: int,
                  now_s: float) -> tuple[int, int]:
    """As `decide_at`; -1 also if the watts under the cap would not do."""
    node, gpu_mask = decide_at(scores, desk, timed, task, now_s)
    if node >= 0:
        rise_mw = rise_milliwatt(desk.world, timed.asks.task[task], node, gpu_mask)
        if desk.drawn_mw.sum() + rise_mw > timed.cap_mw:
            return -1, 0
    return node, gpu_mask


def kernels_of(case: Case, desk: Desk) -> tuple[tuple[Any], tuple[Any, ...]]:
    """How the policy of a case decides, as a value, and its scores: an engine calls both, and holds the code of neither.

    Only what this case needs is compiled: most have no cap, and one score that decides.
    """
    scores = kernels_for(case.policy, case.world, desk.by_score)
    decide_so = decide_at
    if case.timed.cap_mw < np.inf:
        decide_so = decide_within
    elif case.policy.looks_ahead:
        decide_so = decide_by_looking
    elif not has_sums(case.weighing) and case.timed.asks.memory_mib.max(initial=0) <= MOST_MIB:
        decide_so = decide_by_one
    return (first_class(decide_so, scores, desk, case.timed, 0, 0.0),), scores


@njit(cache=True, inline="always")
def decide_now(kernels: Any, desk: Desk, timed: TimedTasks, task: int,
               now_s: float) -> tuple[int, int]:
    """As `decide_at`, by the kernels of a case."""
    place: tuple[int, int] = kernels[0][0](kernels[1], desk, timed, task, now_s)
    return place


@njit(cache=True)
def expect_again(desk: Desk, schedule: Schedule, now_s: float) -> None:
    """Expect those who run longer than was expected to run as long again, if a score looks ahead."""
    there = desk.there
    for node in range(len(there.first) if desk.looks_ahead else 0):
        is_overdue = False
        task = there.first[node]
        while task >= 0:
            if there.until_s[task] <= now_s:
                there.until_s[task] = now_s + max(1.0, now_s - schedule.start_s[task])
                is_overdue = True
            task = there.after[task]
        if is_overdue:
            show_stays(desk.world, there, schedule, node, now_s, now_s)


@njit(cache=True)
def note_occupant(desk: Desk, timed: TimedTasks, task: int, schedule: Schedule, sign: int,
                  now_s: float) -> None:
    """Note that a task is on its node (sign 1), or has left it (-1), if a score looks ahead."""
    if desk.looks_ahead:
        there = desk.there
        node = schedule.node[task]
        if sign > 0:
            there.until_s[task] = schedule.start_s[task] + timed.expects_s[task]
            put_first(there, node, task)
        else:
            take_off(there, node, task)
        show_stays(desk.world, there, schedule, node, now_s, now_s)


@njit(cache=True)
def change(desk: Desk, timed: TimedTasks, task: int, schedule: Schedule, sign: int,
           now_s: float) -> None:
    """Let a task take its place on a node (sign 1) or leave it (-1), and note what that changes."""
    hold(desk.world, timed, task, schedule, sign)
    demand = desk.world.demand
    kind = timed.asks.task[task]
    node = schedule.node[task]
    desk.in_use[0] += sign * demand.gpu_milli[kind] * demand.num_gpus[kind]
    desk.in_use[1] += sign * demand.cpu_milli[kind]
    desk.in_use[2] += sign * timed.asks.memory_mib[task]
    note_change(desk.by_score, node)
    desk.memory.version[node] += 1
    note_occupant(desk, timed, task, schedule, sign, now_s)
    if timed.cap_mw < np.inf:
        desk.drawn_mw[node] = node_milliwatt(desk.world, node)


@njit(cache=True)
def rise_milliwatt(world: World, task: int, node: int, gpu_mask: int) -> int:
    """Watts that a task of a class adds on these GPUs of a node, in thousandths."""
    demand = world.demand
    gpu_left_milli = world.state.gpu_left_milli[node].copy()
    for gpu in range(len(gpu_left_milli)):
        gpu_left_milli[gpu] -= demand.gpu_milli[task] * (gpu_mask >> gpu & 1)
    cpu_left_milli = world.state.cpu_left_milli[node] - demand.cpu_milli[task]
    return int(cpu_power_milliwatt(world.power, node, cpu_left_milli)
               + gpu_power_milliwatt(world.power, node, gpu_left_milli)
               - node_milliwatt(world, node))


@njit(cache=True)
def begin(kernels: Any, desk: Desk, timed: TimedTasks, task: int, now_s: float,
          ends: list[tuple[float, int]], schedule: Schedule) -> None:
    """Start a task on the node and GPUs that it is scheduled on; one that ends at once holds nothing.

    Parameters
    ----------
    kernels, desk, timed, schedule : as `replay_events`
    task, now_s : who starts, and when
    ends : heap of (end, task) of those that run
    """
    end_s = now_s + timed.duration_s[task]
    schedule.start_s[task] = now_s
    schedule.end_s[task] = end_s
    if end_s > now_s:
        change(desk, timed, task, schedule, 1, now_s)
        count_placed(desk.world, timed.asks.task[task])
        if end_s < np.inf:
            heappush(ends, (end_s, task))
    if is_due(desk.world):
        price_anew(kernels[1], desk)


@njit(cache=True)
def jobs_on(timed: TimedTasks, schedule: Schedule, node: int, now_s: float) -> list[int]:
    """Jobs of which a part runs on a node, and has not ended by now."""
    jobs = [0]
    jobs.clear()
    for task in range(len(schedule.node)):
        if schedule.node[task] == node and schedule.start_s[task] <= now_s < schedule.end_s[task]:
            job = timed.first_part[task]
            if job not in jobs:
                jobs.append(job)
    return jobs


@njit(cache=True)
def note_stop(timed: TimedTasks, part: int, now_s: float, waits: bool, schedule: Schedule,
              lost: list[tuple[int, int, int, float, float]]) -> None:
    """Write down that a part of a job was stopped, and waits again or has ended; `lost` gets its run in the first case."""
    end_s = min(schedule.end_s[part], now_s)
    if not waits:
        schedule.end_s[part] = end_s
        return
    lost.append((part, schedule.node[part], schedule.gpu_mask[part], schedule.start_s[part], end_s))
    schedule.node[part] = -1
    schedule.gpu_mask[part] = 0
    schedule.start_s[part] = np.nan
    schedule.end_s[part] = np.nan
    timed.submit_s[part] = now_s


@njit(cache=True)
def count_closing(desk: Desk, timed: TimedTasks, one: int) -> bool:
    """Count that a node closes or opens; whether it was open, or is."""
    closings = timed.closings
    node, sign = closings.node[one], closings.change[one]
    desk.num_closed[node] += sign
    desk.num_down[node] += sign * closings.is_down[one]
    if timed.cap_mw < np.inf:
        desk.drawn_mw[node] = 0 if desk.num_down[node] > 0 else node_milliwatt(desk.world, node)
    return bool(desk.num_closed[node] == max(sign, 0))


@njit(cache=True)
def close_and_open(desk: Desk, timed: TimedTasks, one: int, now_s: float, nodes: list[int], back: list[int],
                   lost: list[tuple[int, int, int, float, float]], running: list[tuple[float, int]],
                   schedule: Schedule) -> None:
    """Let a node close or open, and stop what runs there if it is down.

    Parameters
    ----------
    desk, timed, schedule, now_s : as `begin`
    one : of the closings
    nodes, back : nodes that are left or opened, and jobs that wait again, are added
    lost : as `note_stop`
    running : (end by walltime, task) in order, of which those stopped are taken; may be empty
    """
    closings = timed.closings
    node, sign = closings.node[one], closings.change[one]
    if sign > 0 and closings.is_down[one]:
        for job in jobs_on(timed, schedule, node, now_s):
            waits = bool(closings.requeues[one] and timed.place[job] >= 0)
            part = job
            while part >= 0:
                if schedule.end_s[part] > now_s:
                    until = (schedule.start_s[part] + timed.walltime_s[part], part)
                    at = place_in(running, until)
                    if at < len(running):
                        running.pop(at)
                    change(desk, timed, part, schedule, -1, now_s)
                    nodes.append(schedule.node[part])
                note_stop(timed, part, now_s, waits, schedule, lost)
                part = timed.next_part[part]
            if waits:
                back.append(job)
    if count_closing(desk, timed, one):
        hide(desk, node, sign)
        if sign < 0:
            nodes.append(node)


@njit(cache=True)
def forget_stopped(ends: list[tuple[float, int]], schedule: Schedule) -> None:
    """Take the ends of runs that were stopped from the top of a heap."""
    while ends[0][0] < np.inf and schedule.end_s[ends[0][1]] != ends[0][0]:
        heappop(ends)
