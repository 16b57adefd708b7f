"""A replay lets tasks come, wait, run and go as they did, and lets another policy decide where they run."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...cluster import WHOLE_GPU_MILLI, State
from ...lab.arrays import Floats, Integers, Truths
from ...lab.frames import InputError, check_one_of
from ...lab.jit import njit, quiet
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
    place,
    stage_now,
    weighing_of,
)
from ...online.model import Policy, PowerSettings, World, is_feasible, slots_beside, slots_left
from ...online.model import _all_admitted as all_admitted
from ...online.policies import policy_of
from ...online.score_index import Best, Groups, Index, empty_index, note_change
from ...power import cpu_power_milliwatt, gpu_power_milliwatt
from ..read.check import Bookings, overfull
from .problem import (
    Problem,
    Schedule,
    Slots,
    count_slot,
    limited_world,
    place_running,
    recorded,
    running_at,
    show_slots,
)

__all__ = ['check_schedule', 'replay']

BACKFILLS = ("none", "first-fit", "conservative")


@dataclass(frozen=True)
class Case:
    """One replay, ready to begin.

    Parameters
    ----------
    policy, world : who decides; the cluster with what holds it at the beginning
    empty : what the nodes have
    weighing : weights of the policy's scores, stages counted from the empty cluster
    asks : class, memory and die of each task
    submit_s, duration_s, priority : (tasks,) when it comes, how long it runs, how urgent it is
    comes : (tasks,) whether it comes at all
    schedule : what has been decided before the beginning; changed
    slots : limits of applications
    cap_w : most that the nodes may draw together, all awake; None for no cap
    """

    policy: Policy
    world: World
    empty: State
    weighing: StagedWeights
    asks: ArrivingTasks
    submit_s: Floats
    duration_s: Floats
    priority: Integers
    comes: Truths
    schedule: Schedule
    slots: Slots
    cap_w: float | None = None


def nothing_scheduled(num_tasks: int) -> Schedule:
    """Schedule in which no task has started."""
    return Schedule(np.full(num_tasks, -1), np.zeros(num_tasks, np.int64),
                    np.full(num_tasks, np.nan), np.full(num_tasks, np.nan))


@njit(cache=True)
def fits(world: World, asks: ArrivingTasks, task: int, node: int) -> bool:
    """Cond. 1-6 of a task on a node as it stands."""
    return bool(is_feasible(world, asks.task[task], node)
                and world.state.memory_left_mib[node] >= asks.memory_mib[task])


@njit(cache=True)
def largest_memory_mib(world: World) -> Integers:
    """Largest memory among the nodes that can hold a class, (classes,); -1 if none can."""
    largest = np.full(len(world.demand.cpu_milli), -1)
    for task in range(len(largest)):
        for node in range(len(world.gpu_model)):
            if is_feasible(world, task, node):
                largest[task] = max(largest[task], world.state.memory_left_mib[node])
    return largest


@njit(cache=True)
def hold(world: World, asks: ArrivingTasks, task: int, schedule: Schedule, sign: int) -> None:
    """Take what a task asks for from the node it is on (sign 1), or give it back (-1)."""
    state = world.state
    demand = world.demand
    kind = asks.task[task]
    node = schedule.node[task]
    for gpu in range(state.gpu_left_milli.shape[1]):
        is_held = schedule.gpu_mask[task] >> gpu & 1
        state.gpu_left_milli[node, gpu] -= sign * is_held * demand.gpu_milli[kind]
    state.cpu_left_milli[node] -= sign * demand.cpu_milli[kind]
    state.memory_left_mib[node] -= sign * asks.memory_mib[task]
    if demand.kind[kind] >= 0:
        world.residents[node, demand.kind[kind]] += sign


@njit(cache=True)
def hold_slot(world: World, asks: ArrivingTasks, slots: Slots, task: int, schedule: Schedule,
              sign: int) -> None:
    """As `hold`, and count the task towards the limit of its application."""
    hold(world, asks, task, schedule, sign)
    count_slot(world, slots, asks.task[task], schedule.node[task], sign)


def count_running(world: World, slots: Slots, class_of: Integers, schedule: Schedule,
                  is_running: Truths) -> None:
    """Count tasks that run towards the limits of their applications.

    Raises
    ------
    InputError : more of an application are on a node than one of them allows
    """
    limits = slots.limits
    for task in np.flatnonzero(is_running & (slots.limit[class_of] >= 0)).tolist():
        count_slot(world, slots, class_of[task], schedule.node[task], 1)
    for node, limit in np.argwhere(limits.num > 0).tolist():
        if slots_left(limits, limit, node) < 0:
            raise InputError("more tasks of an application run on a node than one of them allows: "
                             f"{limits.most[limit]}", file="tasks.csv", column="constraints",
                             mend="correct most_per_node, or the places of these tasks")


def case_of(problem: Problem, policy: str | Policy, seed: int, at_s: float | None,
            power: PowerSettings, cap_w: float | None = None) -> Case:
    """Prepare a replay; parameters as `replay`."""
    chosen = policy_of(policy) if isinstance(policy, str) else policy
    world, class_of, slots = limited_world(problem, power)
    empty = State(*(left.copy() for left in world.state))
    weighing = weighing_of(chosen, world)
    stream = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[2])
    asks = ArrivingTasks(class_of, np.array(problem.tasks.memory_mib),
                         stream.integers(2**62, size=len(class_of)))
    comes = asks.memory_mib <= largest_memory_mib(world)[class_of]
    if problem.replayable is not None:
        comes &= problem.replayable
    submit_s = np.array(problem.submit_s)
    schedule = nothing_scheduled(len(class_of))
    if at_s is not None:
        before = recorded(problem)
        runs = running_at(problem, before, at_s)
        comes &= ~runs & ~(before.end_s <= at_s)
        submit_s = np.maximum(submit_s, at_s)
        for column, known in zip(schedule, before, strict=True):
            column[runs] = known[runs]
        place_running(world, problem, class_of, before, runs)
        count_running(world, slots, class_of, before, runs)
    return Case(chosen, world, empty, weighing, asks, submit_s, np.array(problem.duration_s),
                np.array(problem.priority), comes, schedule, slots, cap_w)


def time_violations(problem: Problem, schedule: Schedule) -> Iterator[str]:
    """Tasks that start before they are submitted, or do not run as long as they should."""
    name = problem.tasks.name
    has_started = schedule.node >= 0
    has_times = ~np.isnan(schedule.start_s) & ~np.isnan(schedule.end_s)
    late_s = schedule.start_s - problem.submit_s
    end_s = schedule.start_s + problem.duration_s
    for is_wrong, words in (
            (has_started != has_times, "has a node without times, or times without a node"),
            (has_started & (late_s < 0), "starts before it is submitted"),
            (has_started & (schedule.end_s != end_s), "does not run for its duration")):
        for task in np.flatnonzero(is_wrong).tolist():
            yield f"time: task {name[task]} {words}, at {schedule.start_s[task]} s"


def place_violations(problem: Problem, schedule: Schedule, ran: Truths) -> Iterator[str]:
    """Tasks where Cond. 4, 5 or 6 does not let them be.

    Parameters
    ----------
    problem, schedule : as `check_schedule`
    ran : (tasks,) those that ran before: labels that change, and cordons, evict nobody
    """
    tasks = np.flatnonzero(schedule.node >= 0)
    node = schedule.node[tasks]
    mask = schedule.gpu_mask[tasks]
    cluster = problem.cluster
    for condition, ok in (
            ("Cond. 4 (placement group)",
             ran[tasks] | all_admitted(problem.tasks.cpu_spec[tasks], problem.group[node])),
            ("Cond. 5 (GPU model)",
             ran[tasks] | all_admitted(problem.tasks.gpu_spec[tasks], cluster.gpu_model[node])),
            ("Cond. 6 (GPUs)", (np.bitwise_count(mask) == problem.tasks.num_gpus[tasks])
             & (mask >> cluster.num_gpus[node] == 0))):
        for task in tasks[~ok].tolist():
            yield (f"{condition}: task {problem.tasks.name[task]} is on node "
                   f"{cluster.name[schedule.node[task]]} from {schedule.start_s[task]} s")


def bookings_of(schedule: Schedule, tasks: Integers, unit: Integers, weight: Integers) -> Bookings:
    """Bookings of units by tasks that have started."""
    return Bookings(unit, tasks, schedule.start_s[tasks], schedule.end_s[tasks], weight)


def capacity_violations(problem: Problem, schedule: Schedule) -> Iterator[str]:
    """Nodes and GPUs that hold more than they have (Cond. 1-3), and from when on."""
    cluster = problem.cluster
    tasks = np.flatnonzero(schedule.node >= 0)
    node = schedule.node[tasks]
    most_gpus = int(cluster.num_gpus.max(initial=0))
    taken, gpu = np.nonzero(schedule.gpu_mask[tasks][:, None] >> np.arange(most_gpus) & 1)
    shared = tasks[taken]
    for condition, bookings, capacity, size in (
            ("Cond. 1 (CPU)", bookings_of(schedule, tasks, node, problem.tasks.cpu_milli[tasks]),
             cluster.cpu_milli, 1),
            ("Cond. 2 (memory)",
             bookings_of(schedule, tasks, node, problem.tasks.memory_mib[tasks]),
             cluster.memory_mib, 1),
            ("Cond. 3 (GPU)", bookings_of(schedule, shared, node[taken] * most_gpus + gpu,
                                          problem.tasks.gpu_milli[shared]),
             np.full(len(cluster) * most_gpus, WHOLE_GPU_MILLI), most_gpus)):
        spells = overfull(bookings, capacity.astype(float))
        for unit, task, from_s, _, most in zip(*spells, strict=True):
            yield (f"{condition}: node {cluster.name[unit // size]} holds {most} of "
                   f"{capacity[unit]} from {from_s} s, with task {problem.tasks.name[task]}")


def limit_violations(problem: Problem, schedule: Schedule) -> Iterator[str]:
    """Nodes that hold more tasks of an application than one of them allows (Cond. 7), and when."""
    if problem.app is None or problem.most_per_node is None:
        return
    held = (schedule.node >= 0) & (schedule.end_s > schedule.start_s)
    tasks = np.flatnonzero(held & (problem.most_per_node > 0))
    node_and_app = zip(schedule.node[tasks].tolist(), problem.app[tasks], strict=True)
    unit, units = pd.factorize(pd.Index(list(node_and_app), tupleize_cols=False))
    each = bookings_of(schedule, tasks, unit, np.ones_like(tasks))
    for most in np.unique(problem.most_per_node[tasks]).tolist():
        asks = problem.most_per_node[tasks] == most
        for one, _, from_s, until_s, _ in zip(*overfull(each, np.full(len(units), float(most))),
                                              strict=True):
            there = tasks[asks & (unit == one)]
            there = there[(schedule.start_s[there] < until_s) & (schedule.end_s[there] > from_s)]
            for task in there[:1].tolist():
                node, app = units[one]
                moment_s = max(from_s, schedule.start_s[task])
                yield (f"Cond. 7 (instances): node {problem.cluster.name[node]} holds more than "
                       f"{most} tasks of {app} at {moment_s} s, and task "
                       f"{problem.tasks.name[task]} allows no more")


def instance_violations(problem: Problem, schedule: Schedule) -> Iterator[str]:
    """Nodes of which tasks hold more instances than there are (Cond. 8), and from when on."""
    if problem.instances is None:
        return
    profiles, need, room = problem.instances
    for profile, own, there in zip(profiles, need.T, room.T, strict=True):
        tasks = np.flatnonzero((schedule.node >= 0) & (own > 0))
        each = bookings_of(schedule, tasks, schedule.node[tasks], own[tasks])
        for node, task, from_s, _, most in zip(*overfull(each, there.astype(float)), strict=True):
            yield (f"Cond. 8 (instances): node {problem.cluster.name[node]} holds {most} of "
                   f"{there[node]} {profile} from {from_s} s, with task {problem.tasks.name[task]}")


def record_violations(problem: Problem, schedule: Schedule, at_s: float) -> Iterator[str]:
    """Tasks of the time before a moment that are not where they were."""
    before = recorded(problem)
    runs = running_at(problem, before, at_s)
    moved = runs & ((schedule.node != before.node) | (schedule.gpu_mask != before.gpu_mask)
                    | (schedule.start_s != before.start_s))
    again = (before.end_s <= at_s) & (schedule.node >= 0)
    early = ~runs & (schedule.start_s < at_s)
    for is_wrong, words in ((moved, "runs already, and was moved"), (again, "has ended already"),
                            (early, "starts before the beginning")):
        for task in np.flatnonzero(is_wrong).tolist():
            yield f"record: task {problem.tasks.name[task]} {words}, at {at_s} s"


def violations(problem: Problem, schedule: Schedule, at_s: float | None = None) -> Iterator[str]:
    """Sentences about times and places that cannot be, whoever made the schedule."""
    ran = np.zeros(len(schedule.node), bool)
    if at_s is not None:
        ran = running_at(problem, recorded(problem), at_s)
    yield from time_violations(problem, schedule)
    yield from place_violations(problem, schedule, ran)
    yield from capacity_violations(problem, schedule)
    yield from limit_violations(problem, schedule)
    yield from instance_violations(problem, schedule)


def empty_out(case: Case) -> None:
    """Take all tasks out of the world of a case."""
    for left, full in zip(case.world.state, case.empty, strict=True):
        left[:] = full
    case.slots.limits.num[:] = 0
    if len(case.slots.limits.most):
        case.world.demand.cpu_is_admitted[:] = case.slots.is_admitted


END, ARRIVAL, START = range(3)
OVERTAKEN = -2
NOTHING = -1
NOWHERE, AT_ORDER, AT_NODES = range(3)


class Happenings(NamedTuple):
    """(happenings,) time, what (end, arrival or start) and which task, in order."""

    time_s: Floats
    what: Integers
    task: Integers


def happenings_of(case: Case, order: Integers) -> Happenings:
    """What happens in a schedule to the tasks that wait in this order, and to those before."""
    schedule = case.schedule
    started = np.flatnonzero(schedule.node >= 0)
    held = started[schedule.end_s[started] > schedule.start_s[started]]
    ended = held[np.isfinite(schedule.end_s[held])]
    time_s = np.concatenate([schedule.end_s[ended], case.submit_s[order],
                             schedule.start_s[started]])
    what = np.repeat([END, ARRIVAL, START], [len(ended), len(order), len(started)])
    by_time = np.lexsort((what, time_s))
    return Happenings(time_s[by_time], what[by_time],
                      np.concatenate([ended, order, started])[by_time])


@njit(cache=True)
def node_for(world: World, asks: ArrivingTasks, task: int) -> int:
    """First node on which a task fits; `NOTHING` if there is none."""
    for node in range(len(world.gpu_model)):
        if fits(world, asks, task, node):
            return node
    return NOTHING


@njit(cache=True)
def node_among(world: World, asks: ArrivingTasks, task: int, nodes: list[int]) -> int:
    """First of the given nodes on which a task fits; `NOTHING` if there is none."""
    for node in nodes:
        if fits(world, asks, task, node):
            return node
    return NOTHING


@njit(cache=True)
def retrace(world: World, asks: ArrivingTasks, slots: Slots, happenings: Happenings,
            task_at: Integers, schedule: Schedule, looks: int) -> tuple[float, int, int]:
    """Go through a schedule, and look whether the head of the queue waits for no reason.

    Parameters
    ----------
    world, asks, slots : the empty cluster, in the end in its last state; what tasks ask for
    happenings, task_at : the schedule, and the task at each place of the queue
    schedule : who is where
    looks : what is looked at: `NOWHERE`, whether the head is overtaken, or whether it also fits

    Returns
    -------
    when, which task, and the node on which it fits, or `OVERTAKEN`; nothing is wrong with `NOTHING`
    """
    place_of = np.full(len(schedule.node), -1)
    place_of[task_at] = np.arange(len(task_at))
    waiting = [0]
    waiting.clear()
    nodes = [0]  # left at this moment
    head = -1
    last = -1  # place of the last one in the queue that starts at this moment
    for n in range(len(happenings.task)):
        task = happenings.task[n]
        now_s = happenings.time_s[n]
        if n == 0 or now_s > happenings.time_s[n - 1]:
            nodes.clear()
            last = -1
        if happenings.what[n] == ARRIVAL:
            heappush(waiting, place_of[task])
        elif happenings.what[n] == END:
            hold_slot(world, asks, slots, task, schedule, -1)
            nodes.append(schedule.node[task])
        else:
            last = max(last, place_of[task])
            if schedule.end_s[task] > now_s:
                hold_slot(world, asks, slots, task, schedule, 1)
        is_over = n + 1 == len(happenings.task) or happenings.time_s[n + 1] > now_s
        while len(waiting) > 0 and is_over and schedule.start_s[task_at[waiting[0]]] <= now_s:
            heappop(waiting)
        if looks != NOWHERE and is_over and len(waiting) > 0:
            task = task_at[waiting[0]]
            is_new = waiting[0] != head
            node = NOTHING
            if looks == AT_NODES:
                node = node_for(world, asks, task) if is_new else node_among(world, asks, task,
                                                                             nodes)
            head = waiting[0]
            if head < last or node != NOTHING:
                return now_s, task, OVERTAKEN if head < last else node
    return 0.0, 0, NOTHING


def queue_violations(case: Case, names: tuple[Any, Any], backfill: str) -> Iterator[str]:
    """Tasks that wait for no reason, or are refused for none.

    Parameters
    ----------
    case : of the problem, its schedule complete, its world empty
    names : of the tasks and of the nodes
    backfill : one of `BACKFILLS`
    """
    task_name, node_name = names
    order = queue_order(case)
    looks = NOWHERE if backfill != "none" else AT_NODES if case.cap_w is None else AT_ORDER
    moment_s, task, node = retrace(case.world, case.asks, case.slots, happenings_of(case, order),
                                   order, case.schedule, looks)
    if node == OVERTAKEN:
        yield f"queue: task {task_name[task]} waits at {moment_s} s, and one behind it starts"
    elif node != NOTHING:
        yield (f"queue: task {task_name[task]} waits at {moment_s} s, and fits on node "
               f"{node_name[node]}")
    elif backfill != "none" and case.cap_w is None:
        never = order[case.schedule.node[order] < 0]
        asked = np.column_stack([case.asks.task[never], case.asks.memory_mib[never]])
        for task in never[np.unique(asked, axis=0, return_index=True)[1]].tolist():
            if (node := node_for(case.world, case.asks, task)) != NOTHING:
                yield (f"queue: task {task_name[task]} never starts, and fits on node "
                       f"{node_name[node]} in the end")


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


@njit(cache=True)
def first_excess(world: World, asks: ArrivingTasks, happenings: Happenings, schedule: Schedule,
                 comes: Truths, cap_mw: float) -> tuple[float, int, int]:
    """Go through a schedule until tasks have started and the nodes draw more than a cap.

    Parameters
    ----------
    world, asks, happenings, schedule : as `retrace`
    comes : (tasks,) whether its start was decided, not recorded
    cap_mw : the cap, milliwatts

    Returns
    -------
    when, the last task that started, and the milliwatts; nothing is wrong with `NOTHING`
    """
    share_mw = node_milliwatts(world)
    now_mw = share_mw.sum()
    last = NOTHING
    for n in range(len(happenings.task)):
        task = happenings.task[n]
        now_s = happenings.time_s[n]
        is_start = happenings.what[n] == START and schedule.end_s[task] > now_s
        if is_start or happenings.what[n] == END:
            node = schedule.node[task]
            hold(world, asks, task, schedule, 1 if is_start else -1)
            now_mw -= share_mw[node]
            share_mw[node] = node_milliwatt(world, node)
            now_mw += share_mw[node]
        if is_start and comes[task]:
            last = task
        if n + 1 == len(happenings.task) or happenings.time_s[n + 1] > now_s:
            if last != NOTHING and now_mw > cap_mw:
                return now_s, last, now_mw
            last = NOTHING
    return 0.0, NOTHING, 0


def check_schedule(problem: Problem, schedule: Schedule, *, backfill: str | None = None,
                   at_s: float | None = None, cap_w: float | None = None,
                   power: PowerSettings = PowerSettings()) -> None:  # noqa: B008
    """Check a schedule against times, Cond. 1-8 at every moment, and the rules of the queue.

    Parameters
    ----------
    problem, schedule : the tasks, and what became of them
    backfill : rule of the queue, as in `replay`; None for no rule, as with a record
    at_s, cap_w, power : as in `replay`

    Raises
    ------
    ValueError : naming condition, task, node and time of the first violation
    """
    for sentence in violations(problem, schedule, at_s):
        raise ValueError(sentence)
    if at_s is not None:
        for sentence in record_violations(problem, schedule, at_s):
            raise ValueError(sentence)
    if backfill is not None:
        watts = dict.fromkeys(problem.cluster.gpu_model, (0, 0))
        case = case_of(problem, "fgd", 0, at_s, PowerSettings(gpu_power_w=watts), cap_w)
        empty_out(case)
        names = problem.tasks.name, problem.cluster.name
        for sentence in queue_violations(replace(case, schedule=schedule), names, backfill):
            raise ValueError(sentence)
    if cap_w is not None:
        case = replace(case_of(problem, "fgd", 0, at_s, power, cap_w), schedule=schedule)
        empty_out(case)
        happenings = happenings_of(case, queue_order(case))
        moment_s, task, drawn_mw = first_excess(case.world, case.asks, happenings, schedule,
                                                case.comes, 1000 * cap_w)
        if task != NOTHING:
            raise ValueError(f"cap: {drawn_mw / 1000:,.10g} W of {cap_w:,.10g} W from {moment_s} s "
                             f"on, with task {problem.tasks.name[task]}")


class TimedTasks(NamedTuple):
    """Tasks with their times, as compiled code reads them.

    Parameters
    ----------
    asks, submit_s, duration_s : as in `Case`
    arrival : (coming,) tasks by submission
    place : (tasks,) place in one queue of all that come
    task_at : (coming,) task at each place
    request : (tasks,) number of the request; of one request are tasks that ask for the same with
        the same priority
    member : (coming,) tasks by request, each in the order of the queue
    slots, counted : limits of applications; None instead where nobody has one
    cap_mw : most that the nodes may draw together, milliwatts; inf for no cap
    """

    asks: ArrivingTasks
    submit_s: Floats
    duration_s: Floats
    arrival: Integers
    place: Integers
    task_at: Integers
    request: Integers
    member: Integers
    slots: Slots
    counted: Slots | None
    cap_mw: float


class Queue(NamedTuple):
    """Who waits, request by request.

    Parameters
    ----------
    head, tail : (requests,) places in `member`: those from head on and before tail wait
    active, num_active : (requests,) and (1,) requests of which a task waits
    """

    head: Integers
    tail: Integers
    active: Integers
    num_active: Integers


class Desk(NamedTuple):
    """What decides, and what it knows.

    Parameters
    ----------
    weighing, world : weights of the scores, the cluster
    by_score : index of nodes, the rows of one stage after those of another
    memory, stage : of the plain engine, and (1,) the stage that it knows
    is_plain : (classes,) whether the index has no room for the class
    in_use : (`RESOURCES`,) milli-GPU, milli-vCPU and MiB that tasks hold
    """

    weighing: StagedWeights
    world: World
    by_score: Index
    memory: Memory
    stage: Integers
    is_plain: Truths
    in_use: Integers


def queue_order(case: Case) -> Integers:
    """Tasks that come, in the order in which they would stand in one queue."""
    coming = np.flatnonzero(case.comes)
    return coming[np.lexsort((coming, case.submit_s[coming], -case.priority[coming]))]


def kernels_of(case: Case, index: Index) -> tuple[Any, ...]:
    """Scores of a policy in the form that compiled code calls, as many for every policy."""
    return kernels_for(case.policy, case.world, index)


@njit(cache=True)
def in_use(empty: State, state: State) -> Integers:
    """Milli-GPU, milli-vCPU and MiB that tasks hold."""
    return np.array([empty.gpu_left_milli.sum() - state.gpu_left_milli.sum(),
                     empty.cpu_left_milli.sum() - state.cpu_left_milli.sum(),
                     empty.memory_left_mib.sum() - state.memory_left_mib.sum()])


def requests_of(case: Case, order: Integers) -> Integers:
    """Number of the request of each task, (tasks,): same class, memory and priority."""
    table = np.column_stack([case.asks.task, case.asks.memory_mib, case.priority])
    request = np.zeros(len(table), np.int64)
    request[order] = np.unique(table[order], axis=0, return_inverse=True)[1].ravel()
    return request


def timed_tasks(case: Case) -> tuple[TimedTasks, Queue]:
    """Tasks of a case as compiled code reads them, and a queue in which nobody waits."""
    order = queue_order(case)
    place_of = np.zeros(len(case.comes), np.int64)
    place_of[order] = np.arange(len(order))
    request = requests_of(case, order)
    member = order[np.argsort(request[order], kind="stable")]
    first = np.flatnonzero(np.diff(request[member], prepend=-1))
    coming = np.sort(order)
    arrival = coming[np.argsort(case.submit_s[coming], kind="stable")]
    timed = TimedTasks(case.asks, case.submit_s, case.duration_s, arrival, place_of, order, request,
                       member, case.slots, case.slots if len(case.slots.limits.most) else None,
                       np.inf if case.cap_w is None else 1000.0 * case.cap_w)
    return timed, Queue(first, first.copy(), np.zeros_like(first), np.zeros(1, np.int64))


@njit(cache=True)
def price_anew(kernels: Any, desk: Desk) -> None:
    """Let the last of the kernels compute prices, if the policy asks; forget all scores."""
    index = desk.by_score
    if desk.world.bids.served_w[0] > 0:
        kernels[-1](desk.world, 0, index.stale[:0], index.score[0], index.gpu_mask[0])
        index.owner[:] = -1
        desk.memory.owner[:] = -1


@njit(cache=True)
def index_of_stage(index: Index, stage: int, num_stages: int) -> Index:
    """Rows of an index that belong to a stage."""
    if num_stages == 1:
        return index
    size = len(index.owner) // num_stages
    start = stage * size
    end = start + size
    best = index.best
    some = index.groups
    return Index(index.owner[start:end], index.seen[start:end], index.value[start:end],
                 index.num_changes, index.changes, index.last_change, index.stale, index.score,
                 index.gpu_mask,
                 Best(best.score[start:end], best.asked_mib[start:end],
                      best.score_then[start:end]),
                 Groups(some.num[start:end], some.slot[start:end], some.score[start:end],
                        some.room_mib[start:end], some.most_mib[start:end]))


@njit(cache=True)
def decide_now(kernels: Any, desk: Desk, asks: ArrivingTasks, task: int) -> tuple[int, int]:
    """Node of a task, -1 if none has room now, and its GPUs there."""
    weighing = desk.weighing
    stage = stage_now(weighing, 0, desk.in_use)
    kind = asks.task[task]
    if not desk.is_plain[kind]:
        index = index_of_stage(desk.by_score, stage, len(weighing.starts))
        node, gpu_mask = decide_by_index(kernels, weighing, stage, desk.world, index, asks, task)
        if gpu_mask >= 0:
            return node, gpu_mask
        desk.is_plain[kind] = True
    if stage != desk.stage[0]:
        desk.stage[0] = stage
        desk.memory.owner[:] = -1
    return decide(kernels, weighing, stage, desk.world, desk.memory, asks, task)


@njit(cache=True)
def count_use(desk: Desk, asks: ArrivingTasks, task: int, node: int, sign: int) -> None:
    """Note that a task came to a node (sign 1) or left it (-1)."""
    demand = desk.world.demand
    kind = asks.task[task]
    desk.in_use[0] += sign * demand.gpu_milli[kind] * demand.num_gpus[kind]
    desk.in_use[1] += sign * demand.cpu_milli[kind]
    desk.in_use[2] += sign * asks.memory_mib[task]
    note_change(desk.by_score, node)
    desk.memory.version[node] += 1


class Budget(NamedTuple):
    """Watts under a cap.

    Parameters
    ----------
    cap_mw, now_mw : most that the nodes may draw together; (1,) what they draw now
    share_mw : (nodes,) of it, each node
    """

    cap_mw: float
    now_mw: Integers
    share_mw: Integers


def budget_of(case: Case) -> Budget | None:
    """What the nodes of a case draw at the beginning; None if there is no cap."""
    if case.cap_w is None:
        return None
    share_mw = node_milliwatts(case.world)
    return Budget(1000.0 * case.cap_w, share_mw.sum(keepdims=True), share_mw)


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
def decide_within(kernels: Any, desk: Desk, budget: Budget | None, asks: ArrivingTasks,
                  task: int) -> tuple[int, int]:
    """As `decide_now`; -1 also if the watts would not do."""
    node, gpu_mask = decide_now(kernels, desk, asks, task)
    if budget is not None:
        if node >= 0:
            rise_mw = rise_milliwatt(desk.world, asks.task[task], node, gpu_mask)
            if budget.now_mw[0] + rise_mw > budget.cap_mw:
                return -1, 0
    return node, gpu_mask


@njit(cache=True)
def count_watts(budget: Budget | None, world: World, node: int) -> None:
    """Count the power of a node that has changed."""
    if budget is not None:
        now_mw = node_milliwatt(world, node)
        budget.now_mw[0] += now_mw - budget.share_mw[node]
        budget.share_mw[node] = now_mw


@njit(cache=True)
def num_tried(budget: Budget | None, queue: Queue) -> int:
    """How many active requests cannot fit unless something ends: those of before, without a cap."""
    if budget is not None:
        return 0
    return int(queue.num_active[0])


class Moment(NamedTuple):
    """What happens now.

    Parameters
    ----------
    now_s : the time
    ends : heap of (end, task) of those that run, with a last one that never ends
    nodes : nodes that tasks leave now
    budget : watts under a cap, if there is one
    """

    now_s: float
    ends: list[tuple[float, int]]
    nodes: list[int]
    budget: Budget | None


@njit(cache=True)
def begin(desk: Desk, timed: TimedTasks, moment: Moment, task: int, place_of_task: tuple[int, int],
          schedule: Schedule) -> None:
    """Start a task on a node and its GPUs; one that ends at once holds nothing."""
    node, gpu_mask = place_of_task
    asks = timed.asks
    end_s = moment.now_s + timed.duration_s[task]
    schedule.node[task] = node
    schedule.gpu_mask[task] = gpu_mask
    schedule.start_s[task] = moment.now_s
    schedule.end_s[task] = end_s
    if end_s > moment.now_s:
        place(desk.world, asks.task[task], asks.memory_mib[task], node, gpu_mask)
        count_use(desk, asks, task, node, 1)
        count_slot(desk.world, timed.counted, asks.task[task], node, 1)
        count_watts(moment.budget, desk.world, node)
        count_placed(desk.world, asks.task[task])
    if moment.now_s < end_s < np.inf:
        heappush(moment.ends, (end_s, task))


@njit(cache=True)
def end_all(desk: Desk, timed: TimedTasks, moment: Moment, schedule: Schedule) -> None:
    """Let the tasks go that end by now."""
    while moment.ends[0][0] <= moment.now_s:
        _, task = heappop(moment.ends)
        node = schedule.node[task]
        hold(desk.world, timed.asks, task, schedule, -1)
        count_use(desk, timed.asks, task, node, -1)
        count_slot(desk.world, timed.counted, timed.asks.task[task], node, -1)
        count_watts(moment.budget, desk.world, node)
        moment.nodes.append(node)


@njit(cache=True)
def serve_in_order(kernels: Any, desk: Desk, timed: TimedTasks, moment: Moment, waiting: list[int],
                   schedule: Schedule) -> bool:
    """Start tasks from the head of the queue; return whether one is left there that fits nowhere.

    Parameters
    ----------
    kernels, desk, timed, moment, schedule : as `replay_events`
    waiting : heap of places in the queue
    """
    while len(waiting) > 0:
        task = timed.task_at[waiting[0]]
        node, gpu_mask = decide_within(kernels, desk, moment.budget, timed.asks, task)
        if node < 0:
            return True
        heappop(waiting)
        begin(desk, timed, moment, task, (node, gpu_mask), schedule)
        if is_due(desk.world):
            price_anew(kernels, desk)
    return False


@njit(cache=True)
def join(timed: TimedTasks, queue: Queue, task: int) -> None:
    """Put a task at the end of the queue of its request."""
    request = timed.request[task]
    if queue.head[request] == queue.tail[request]:
        queue.active[queue.num_active[0]] = request
        queue.num_active[0] += 1
    queue.tail[request] += 1


@njit(cache=True)
def heads_to_try(desk: Desk, timed: TimedTasks, queue: Queue, nodes: list[int],
                 num_old: int) -> list[tuple[int, int]]:
    """Heap of (place, request): requests that may fit now, which they did not before.

    Parameters
    ----------
    desk, timed, queue : as `replay_events`
    nodes : nodes that tasks leave now
    num_old : so many of the active requests were tried before
    """
    heads = [(0, 0)]
    heads.clear()
    for n in range(num_old if len(nodes) == 0 else 0, queue.num_active[0]):
        request = queue.active[n]
        task = timed.member[queue.head[request]]
        if n >= num_old or node_among(desk.world, timed.asks, task, nodes) >= 0:
            heappush(heads, (timed.place[task], request))
    return heads


@njit(cache=True)
def serve_first_fit(kernels: Any, desk: Desk, timed: TimedTasks, moment: Moment, queue: Queue,
                    num_old: int, schedule: Schedule) -> None:
    """Start every waiting task that fits, in the order of the queue.

    Parameters
    ----------
    kernels, desk, timed, moment, queue, schedule : as `replay_events`
    num_old : so many of the active requests were tried before
    """
    heads = heads_to_try(desk, timed, queue, moment.nodes, num_old)
    while len(heads) > 0:
        _, request = heappop(heads)
        task = timed.member[queue.head[request]]
        node, gpu_mask = decide_within(kernels, desk, moment.budget, timed.asks, task)
        if node >= 0:
            begin(desk, timed, moment, task, (node, gpu_mask), schedule)
            if is_due(desk.world):
                price_anew(kernels, desk)
            queue.head[request] += 1
            if queue.head[request] < queue.tail[request]:
                heappush(heads, (timed.place[timed.member[queue.head[request]]], request))
    num_left = num_old if len(moment.nodes) == 0 else 0
    for n in range(num_left, queue.num_active[0]):
        request = queue.active[n]
        if queue.head[request] < queue.tail[request]:
            queue.active[num_left] = request
            num_left += 1
    queue.num_active[0] = num_left


@njit(cache=True)
def replay_events(kernels: Any, desk: Desk, timed: TimedTasks, queue: Queue, is_first_fit: bool,
                  budget: Budget | None, schedule: Schedule) -> None:
    """Replay event by event.

    Parameters
    ----------
    kernels, desk : the policy's scores; the cluster and what is known of it
    timed, queue : the tasks; nobody waits yet
    is_first_fit : whether others may start when the first one cannot
    budget : watts under a cap; None for no cap
    schedule : those that run already; completed
    """
    price_anew(kernels, desk)
    ends = [(np.inf, -1)]
    for task in range(len(schedule.end_s)):
        if schedule.end_s[task] < np.inf:
            heappush(ends, (schedule.end_s[task], task))
    waiting = [0]
    waiting.clear()
    nodes = [0]
    arrived = 0
    is_blocked = False
    while arrived < len(timed.arrival) or ends[0][0] < np.inf:
        now_s = ends[0][0]
        if arrived < len(timed.arrival):
            now_s = min(now_s, timed.submit_s[timed.arrival[arrived]])
        nodes.clear()
        moment = Moment(now_s, ends, nodes, budget)
        end_all(desk, timed, moment, schedule)
        is_blocked &= len(nodes) == 0
        num_old = num_tried(budget, queue)
        while arrived < len(timed.arrival) and timed.submit_s[timed.arrival[arrived]] <= now_s:
            task = timed.arrival[arrived]
            arrived += 1
            if is_first_fit:
                join(timed, queue, task)
            else:
                heappush(waiting, timed.place[task])
                is_blocked &= waiting[0] != timed.place[task]
        if is_first_fit:
            serve_first_fit(kernels, desk, timed, moment, queue, num_old, schedule)
        elif not is_blocked:
            is_blocked = serve_in_order(kernels, desk, timed, moment, waiting, schedule)


class Profile(NamedTuple):
    """What each node has free from now on, as a list of spells between which it changes.

    Parameters
    ----------
    first : (nodes,) spell that lasts now
    after : (spells,) the next spell of the node, -1 behind the last
    from_s : (spells,) when it begins
    cpu_milli, memory_mib, gpu_milli : (spells,), (spells,) and (spells, GPUs) free in it
    num : (spells, limits) tasks with each limit that are there
    spare, num_spare : (spells,) and (1,) spells that belong to no node
    """

    first: Integers
    after: Integers
    from_s: Floats
    cpu_milli: Integers
    memory_mib: Integers
    gpu_milli: Integers
    num: Integers
    spare: Integers
    num_spare: Integers


def empty_profile(empty: State, num_tasks: int, num_limits: int) -> Profile:
    """Profile of empty nodes, with spells for so many tasks: each begins and ends once."""
    num_nodes, num_gpus = empty.gpu_left_milli.shape
    size = num_nodes + 2 * num_tasks
    profile = Profile(np.arange(num_nodes), np.full(size, -1), np.full(size, -np.inf),
                      np.zeros(size, np.int64), np.zeros(size, np.int64),
                      np.zeros((size, num_gpus), np.int64), np.zeros((size, num_limits), np.int64),
                      np.arange(num_nodes, size), np.array([2 * num_tasks]))
    profile.cpu_milli[:num_nodes] = empty.cpu_left_milli
    profile.memory_mib[:num_nodes] = empty.memory_left_mib
    profile.gpu_milli[:num_nodes] = empty.gpu_left_milli
    return profile


@njit(cache=True)
def spell_at(profile: Profile, node: int, moment_s: float) -> int:
    """Spell of a node that lasts at a moment."""
    spell = profile.first[node]
    after = profile.after[spell]
    while after >= 0 and profile.from_s[after] <= moment_s:
        spell = after
        after = profile.after[spell]
    return int(spell)


@njit(cache=True)
def spell_from(profile: Profile, node: int, moment_s: float) -> int:
    """Spell of a node that begins at a moment: the one that lasts then is cut in two."""
    spell = spell_at(profile, node, moment_s)
    if profile.from_s[spell] >= moment_s:
        return spell
    profile.num_spare[0] -= 1
    new = profile.spare[profile.num_spare[0]]
    profile.after[new] = profile.after[spell]
    profile.after[spell] = new
    profile.from_s[new] = moment_s
    profile.cpu_milli[new] = profile.cpu_milli[spell]
    profile.memory_mib[new] = profile.memory_mib[spell]
    profile.gpu_milli[new] = profile.gpu_milli[spell]
    profile.num[new] = profile.num[spell]
    return int(new)


@njit(cache=True)
def set_aside(profile: Profile, spell: int) -> None:
    """Keep a spell for later use."""
    profile.spare[profile.num_spare[0]] = spell
    profile.num_spare[0] += 1


@njit(cache=True)
def forget_past(profile: Profile, node: int, now_s: float) -> None:
    """Drop the spells of a node that are over."""
    after = profile.after[profile.first[node]]
    while after >= 0 and profile.from_s[after] <= now_s:
        set_aside(profile, profile.first[node])
        profile.first[node] = after
        after = profile.after[after]


@njit(cache=True)
def join_equal(profile: Profile, node: int) -> None:
    """Make one spell of neighbours in which a node has the same free."""
    spell = profile.first[node]
    while profile.after[spell] >= 0:
        after = profile.after[spell]
        if (profile.cpu_milli[spell] == profile.cpu_milli[after]
                and profile.memory_mib[spell] == profile.memory_mib[after]
                and (profile.gpu_milli[spell] == profile.gpu_milli[after]).all()
                and (profile.num[spell] == profile.num[after]).all()):
            profile.after[spell] = profile.after[after]
            set_aside(profile, after)
        else:
            spell = after


class Plan(NamedTuple):
    """Who holds each node, now or later.

    Parameters
    ----------
    desk, timed, schedule : what decides; the tasks and their bookings
    profile : what is free when
    first, after : (nodes,) and (tasks,) tasks on a node as a list, -1 at its end
    gpu_milli, num : (GPUs,) and (limits,) room for the answer of `least_left`
    """

    desk: Desk
    timed: TimedTasks
    schedule: Schedule
    profile: Profile
    first: Integers
    after: Integers
    gpu_milli: Integers
    num: Integers


def empty_plan(case: Case, desk: Desk, timed: TimedTasks) -> Plan:
    """Plan in which nobody holds anything."""
    num_nodes, num_gpus = case.empty.gpu_left_milli.shape
    num_tasks = len(case.comes)
    num_limits = len(case.slots.limits.most)
    return Plan(desk, timed, case.schedule, empty_profile(case.empty, num_tasks, num_limits),
                np.full(num_nodes, -1), np.full(num_tasks, -1), np.zeros(num_gpus, np.int64),
                np.zeros(num_limits, np.int64))


@njit(cache=True)
def hold_span(plan: Plan, task: int, sign: int) -> None:
    """Take what a task asks for from its node while it runs (sign 1), or give it back (-1)."""
    schedule = plan.schedule
    profile = plan.profile
    demand = plan.desk.world.demand
    kind = plan.timed.asks.task[task]
    node = schedule.node[task]
    limit = plan.timed.slots.limit[kind]
    spell = spell_from(profile, node, schedule.start_s[task])
    end = -1
    if schedule.end_s[task] < np.inf:
        end = spell_from(profile, node, schedule.end_s[task])
    while spell != end:
        profile.cpu_milli[spell] -= sign * demand.cpu_milli[kind]
        profile.memory_mib[spell] -= sign * plan.timed.asks.memory_mib[task]
        for gpu in range(profile.gpu_milli.shape[1]):
            is_held = schedule.gpu_mask[task] >> gpu & 1
            profile.gpu_milli[spell, gpu] -= sign * is_held * demand.gpu_milli[kind]
        if limit >= 0:
            profile.num[spell, limit] += sign
        spell = profile.after[spell]


@njit(cache=True)
def link(plan: Plan, task: int) -> None:
    """Put a task on the list of its node."""
    node = plan.schedule.node[task]
    plan.after[task] = plan.first[node]
    plan.first[node] = task
    hold_span(plan, task, 1)


@njit(cache=True)
def unlink(plan: Plan, task: int) -> None:
    """Take a task off the list of its node, if it is there."""
    node = plan.schedule.node[task]
    before = -1
    other = plan.first[node]
    while other >= 0 and other != task:
        before = other
        other = plan.after[other]
    if other == task and before < 0:
        plan.first[node] = plan.after[task]
    elif other == task:
        plan.after[before] = plan.after[task]


@njit(cache=True)
def give_up(plan: Plan, task: int) -> None:
    """Give up the booking of a task, if it has one."""
    schedule = plan.schedule
    if schedule.node[task] >= 0 and schedule.end_s[task] > schedule.start_s[task]:
        unlink(plan, task)
        hold_span(plan, task, -1)
        join_equal(plan.profile, schedule.node[task])
    schedule.node[task] = -1
    schedule.gpu_mask[task] = 0
    schedule.start_s[task] = np.nan
    schedule.end_s[task] = np.nan


@njit(cache=True)
def least_left(plan: Plan, node: int, from_s: float, until_s: float) -> tuple[int, int]:
    """Least free CPU and memory of a node in a span; least GPUs and most tasks go to the plan."""
    profile = plan.profile
    spell = spell_at(profile, node, from_s)
    cpu = profile.cpu_milli[spell]
    memory = profile.memory_mib[spell]
    plan.gpu_milli[:] = profile.gpu_milli[spell]
    plan.num[:] = profile.num[spell]
    spell = profile.after[spell]
    while spell >= 0 and profile.from_s[spell] < until_s:
        cpu = min(cpu, profile.cpu_milli[spell])
        memory = min(memory, profile.memory_mib[spell])
        for gpu in range(len(plan.gpu_milli)):
            plan.gpu_milli[gpu] = min(plan.gpu_milli[gpu], profile.gpu_milli[spell, gpu])
        for limit in range(len(plan.num)):
            plan.num[limit] = max(plan.num[limit], profile.num[spell, limit])
        spell = profile.after[spell]
    return cpu, memory


@njit(cache=True)
def is_enough(plan: Plan, task: int, node: int, cpu: int, memory: int, left: Integers) -> bool:
    """Whether so much of a node would do for a task."""
    demand = plan.desk.world.demand
    kind = plan.timed.asks.task[task]
    if cpu < demand.cpu_milli[kind] or memory < plan.timed.asks.memory_mib[task]:
        return False
    num_fit = 0
    for gpu in range(plan.desk.world.power.num_gpus[node]):
        num_fit += left[gpu] >= demand.gpu_milli[kind]
    return bool(num_fit >= demand.num_gpus[kind])


@njit(cache=True)
def is_open(plan: Plan, task: int, node: int, num: Integers) -> bool:
    """Whether a node admits a task (Cond. 4 and 5), and has a slot for it beside others.

    Parameters
    ----------
    plan, task, node : as `fits_span`
    num : (limits,) tasks with each limit that are there
    """
    world = plan.desk.world
    slots = plan.timed.slots
    kind = plan.timed.asks.task[task]
    if world.demand.num_gpus[kind] > 0:
        if not world.demand.gpu_is_admitted[kind, world.gpu_model[node]]:
            return False
    limit = slots.limit[kind]
    if limit < 0:
        return bool(world.demand.cpu_is_admitted[kind, world.cpu_model[node]])
    return bool(slots.is_admitted[kind, node] and slots_beside(slots.limits, limit, node, num) > 0)


@njit(cache=True)
def fits_span(plan: Plan, task: int, node: int, spell: int, from_s: float) -> bool:
    """Whether a task can have a node from a moment in a spell on until it ends."""
    profile = plan.profile
    if not is_enough(plan, task, node, profile.cpu_milli[spell], profile.memory_mib[spell],
                     profile.gpu_milli[spell]):
        return False
    cpu, memory = least_left(plan, node, from_s, from_s + plan.timed.duration_s[task])
    return (is_enough(plan, task, node, cpu, memory, plan.gpu_milli)
            and is_open(plan, task, node, plan.num))


@njit(cache=True)
def earliest_start(plan: Plan, task: int, now_s: float) -> float:
    """First moment from which on some node has room for a task until it ends; inf if never."""
    profile = plan.profile
    nobody = np.zeros_like(plan.num)
    best_s = np.inf
    for node in range(len(profile.first)):
        if not is_open(plan, task, node, nobody):
            continue
        spell = spell_at(profile, node, now_s)
        start_s = now_s
        while spell >= 0 and start_s < best_s:
            if fits_span(plan, task, node, spell, start_s):
                best_s = start_s
            spell = profile.after[spell]
            start_s = profile.from_s[spell]
        if best_s == now_s:
            break
    return best_s


@njit(cache=True)
def show_node(plan: Plan, node: int, from_s: float, until_s: float) -> None:
    """Write the least that a node has free in a span to the world, and who is there then."""
    desk = plan.desk
    state = desk.world.state
    cpu, memory = least_left(plan, node, from_s, until_s)
    for gpu in range(len(plan.gpu_milli)):
        desk.in_use[0] += state.gpu_left_milli[node, gpu] - plan.gpu_milli[gpu]
        state.gpu_left_milli[node, gpu] = plan.gpu_milli[gpu]
    desk.in_use[1] += state.cpu_left_milli[node] - cpu
    desk.in_use[2] += state.memory_left_mib[node] - memory
    state.cpu_left_milli[node] = cpu
    state.memory_left_mib[node] = memory
    desk.world.residents[node] = 0
    task = plan.first[node]
    while task >= 0:
        start_s = plan.schedule.start_s[task]
        kind = desk.world.demand.kind[plan.timed.asks.task[task]]
        is_there = start_s <= from_s < plan.schedule.end_s[task] or from_s < start_s < until_s
        if is_there and kind >= 0:
            desk.world.residents[node, kind] += 1
        task = plan.after[task]
    slots = plan.timed.slots
    if len(plan.num) > 0:
        slots.limits.num[node] = plan.num
    for limit in range(len(plan.num)):
        if slots.limits.span[limit, 0] == limit:
            show_slots(desk.world, slots, limit, node)
    note_change(desk.by_score, node)
    desk.memory.version[node] += 1


@njit(cache=True)
def changes_by(plan: Plan, node: int, start_s: float, until_s: float) -> bool:
    """Whether a node may have something else free in a later span than it has now."""
    after = plan.profile.after[plan.profile.first[node]]
    return bool(after >= 0 and (plan.profile.from_s[after] <= start_s
                                or plan.profile.from_s[after] < until_s))


@njit(cache=True)
def book(kernels: Any, plan: Plan, task: int, now_s: float, is_alone: bool,
         moments: list[tuple[float, int]]) -> None:
    """Book the earliest hole for a task, at a node of the policy's choice; never, if there is none.

    Parameters
    ----------
    kernels, plan, moments : as `replay_booked`
    task, now_s : what to book, and the time
    is_alone : whether nothing has been booked for later
    """
    schedule = plan.schedule
    start_s = now_s
    node = -1
    gpu_mask = 0
    if is_alone:
        node, gpu_mask = decide_now(kernels, plan.desk, plan.timed.asks, task)
    if node < 0:
        start_s = earliest_start(plan, task, now_s)
        if start_s == np.inf:
            return
        until_s = start_s + plan.timed.duration_s[task]
        nodes = [n for n in range(len(plan.first)) if changes_by(plan, n, start_s, until_s)]
        for other in nodes:
            show_node(plan, other, start_s, until_s)
        node, gpu_mask = decide_now(kernels, plan.desk, plan.timed.asks, task)
        for other in nodes:
            show_node(plan, other, now_s, now_s)
    schedule.node[task] = node
    schedule.gpu_mask[task] = gpu_mask
    schedule.start_s[task] = start_s
    schedule.end_s[task] = start_s + plan.timed.duration_s[task]
    heappush(moments, (start_s, task))
    if schedule.end_s[task] > start_s:
        link(plan, task)
        heappush(moments, (schedule.end_s[task], task))
    if start_s == now_s:
        forget_past(plan.profile, node, now_s)
        show_node(plan, node, now_s, now_s)


@njit(cache=True)
def position_in(waiting: list[int], place_in_queue: int) -> int:
    """Where a place of the queue stands, or would stand, in an ascending list."""
    low = 0
    high = len(waiting)
    while low < high:
        middle = (low + high) // 2
        if waiting[middle] < place_in_queue:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def book_line(kernels: Any, plan: Plan, now_s: float, waiting: list[int], num_before: int,
              moments: list[tuple[float, int]]) -> None:
    """Book anew for all who wait, but the first `num_before`; parameters as `replay_booked`."""
    task_at = plan.timed.task_at
    line = waiting[num_before:]
    del waiting[num_before:]
    for position in line:
        give_up(plan, task_at[position])
    for position in line:
        book(kernels, plan, task_at[position], now_s, len(waiting) == 0, moments)
        if plan.schedule.start_s[task_at[position]] != now_s:
            waiting.append(position)


@njit(cache=True)
def pass_moment(plan: Plan, now_s: float, waiting: list[int],
                moments: list[tuple[float, int]]) -> None:
    """Let what was booked until now start, and what ends by now end."""
    while len(moments) > 0 and moments[0][0] <= now_s:
        time_s, task = heappop(moments)
        node = plan.schedule.node[task]
        is_end = plan.schedule.end_s[task] == time_s and plan.schedule.start_s[task] < time_s
        if is_end:
            unlink(plan, task)
        elif plan.schedule.start_s[task] == time_s:
            position = position_in(waiting, plan.timed.place[task])
            if position == len(waiting) or waiting[position] != plan.timed.place[task]:
                continue
            waiting.pop(position)
        else:
            continue
        forget_past(plan.profile, node, now_s)
        show_node(plan, node, now_s, now_s)


@njit(cache=True)
def replay_booked(kernels: Any, plan: Plan) -> None:
    """Replay with conservative backfill.

    Parameters
    ----------
    kernels, plan : the policy's scores; what decides, and all who hold something at the beginning
    """
    timed = plan.timed
    moments = [(np.inf, -1)]
    for task in range(len(plan.schedule.node)):
        if plan.schedule.node[task] >= 0:
            link(plan, task)
            heappush(moments, (plan.schedule.end_s[task], task))
    waiting = [0]  # places in the queue of those that have not started, in order
    waiting.clear()
    arrived = 0
    while arrived < len(timed.arrival):
        now_s = timed.submit_s[timed.arrival[arrived]]
        while moments[0][0] <= now_s:
            pass_moment(plan, moments[0][0], waiting, moments)
        num_before = len(waiting)
        while arrived < len(timed.arrival) and timed.submit_s[timed.arrival[arrived]] == now_s:
            place_in_queue = timed.place[timed.arrival[arrived]]
            position = position_in(waiting, place_in_queue)
            waiting.insert(position, place_in_queue)
            num_before = min(num_before, position)
            arrived += 1
        book_line(kernels, plan, now_s, waiting, num_before, moments)


def desk_of(case: Case) -> Desk:
    """Everything that a policy needs to decide, nothing known yet."""
    num_classes, num_nodes, num_scores = (len(case.world.demand.cpu_milli),
                                          len(case.world.gpu_model), len(case.policy.scores))
    num_stages = len(case.weighing.starts)
    several = (case.weighing.weights > 0).sum(axis=1).max() > 1
    index = empty_index(num_classes * num_stages, num_nodes, num_scores,
                        MAX_GROUPS if several else 1)
    return Desk(case.weighing, case.world, index, empty_memory(num_classes, num_nodes, num_scores),
                np.full(1, -1), np.zeros(num_classes, np.bool_),
                in_use(case.empty, case.world.state))


def simulate(case: Case, backfill: str) -> Schedule:
    """Complete the schedule of a case by a rule of the queue, one of `BACKFILLS`."""
    desk = desk_of(case)
    timed, queue = timed_tasks(case)
    kernels = kernels_of(case, desk.by_score)
    with quiet():
        if backfill == "conservative":
            replay_booked(kernels, empty_plan(case, desk, timed))
        else:
            replay_events(kernels, desk, timed, queue, backfill == "first-fit", budget_of(case),
                          case.schedule)
    return case.schedule


def check_prices(case: Case, backfill: str) -> None:
    """Refuse prices that would have to be known for later.

    Raises
    ------
    InputError : a policy with prices, and conservative backfill
    """
    if case.policy.dials and backfill == "conservative":
        raise InputError(f"{case.policy.name!r} and conservative backfill do not go together: its "
                         "prices are those of the cluster as it stands, and a booking would need "
                         "those of later", value=case.policy.name,
                         mend="choose --backfill none or first-fit")


def check_cap(case: Case, backfill: str) -> None:
    """Refuse a cap that cannot be held.

    Raises
    ------
    InputError : with conservative backfill, or lower than what the cluster draws without tasks
    """
    if case.cap_w is None:
        return
    if backfill == "conservative":
        raise InputError("a cap on power and conservative backfill do not go together: a booking "
                         "would have to promise watts for later, on which all other nodes draw",
                         value=str(case.cap_w), mend="choose --backfill none or first-fit")
    empty = case.world._replace(state=case.empty)
    idle_w = node_milliwatts(empty).sum() / 1000
    if not case.cap_w >= idle_w:
        raise InputError(f"the cluster draws {idle_w:,.10g} W without any task, and the cap is "
                         f"{case.cap_w:,.10g} W", value=str(case.cap_w),
                         mend="raise the cap, or remove nodes")


def replay(problem: Problem, policy: str | Policy = "fgd", *, seed: int = 0,
           backfill: str = "none", at_s: float | None = None,
           power: PowerSettings | None = None, cap_w: float | None = None) -> Schedule:
    """Let the tasks of a problem come, wait, run and go, placed by one policy.

    Parameters
    ----------
    problem : the cluster and its timed tasks
    policy : a name for `policy_of`, or a policy
    seed : of a policy that draws lots
    backfill : who may start before an earlier task that has to wait, one of `BACKFILLS`
    at_s : begin with what ran at this second by the record, and go on from there; None for an
        empty cluster
    power : watts, for policies that ask, and for the cap
    cap_w : most that the nodes may draw together, all awake; None for no cap

    Returns
    -------
    node, GPUs, start and end of each task; it has been checked by `check_schedule`

    Raises
    ------
    InputError : no such policy or backfill, no watts for a model, a cap that cannot be held, or
        prices and conservative backfill
    """
    check_one_of(backfill, BACKFILLS, "backfill")
    settings = power or PowerSettings()
    case = case_of(problem, policy, seed, at_s, settings, cap_w)
    check_cap(case, backfill)
    check_prices(case, backfill)
    schedule = simulate(case, backfill)
    check_schedule(problem, schedule, backfill=backfill, at_s=at_s, cap_w=cap_w, power=settings)
    return schedule
