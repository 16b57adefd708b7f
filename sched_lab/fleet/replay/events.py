"""A replay lets tasks come, wait, run and go as they did, and lets another policy decide where they run."""

# A module, written by hand.

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from ...cluster import State
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
    stage_now,
)
from ...online.model import LASTING, Policy, PowerSettings, World, lacking_of, slots_left
from ...online.score_index import Best, Groups, Index, empty_index, note_change
from ...power import cpu_power_milliwatt, gpu_power_milliwatt
from .case import Case, TimedTasks, case_of, hold, node_milliwatt, node_milliwatts
from .problem import Problem, Schedule
from .rules import check_promises, check_schedule, node_among

__all__ = ['replay']

BACKFILLS = ("none", "first-fit", "easy", "conservative")
BOOKED = BACKFILLS[2:]  # rules that promise a start


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
    drawn_mw : (nodes,) milliwatts of each node, if there is a cap
    """

    weighing: StagedWeights
    world: World
    by_score: Index
    memory: Memory
    stage: Integers
    is_plain: Truths
    in_use: Integers
    drawn_mw: Integers


@njit(cache=True)
def in_use(empty: State, state: State) -> Integers:
    """Milli-GPU, milli-vCPU and MiB that tasks hold."""
    return np.array([empty.gpu_left_milli.sum() - state.gpu_left_milli.sum(),
                     empty.cpu_left_milli.sum() - state.cpu_left_milli.sum(),
                     empty.memory_left_mib.sum() - state.memory_left_mib.sum()])


def desk_of(case: Case) -> Desk:
    """Everything that a policy needs to decide, nothing known yet."""
    world = case.world
    num_classes, num_nodes, num_scores = (len(world.demand.cpu_milli), len(world.gpu_model),
                                          len(case.policy.scores))
    several = (case.weighing.weights > 0).sum(axis=1).max() > 1
    index = empty_index(num_classes * len(case.weighing.starts), num_nodes, num_scores,
                        MAX_GROUPS if several else 1)
    is_capped = case.timed.cap_mw < np.inf
    return Desk(case.weighing, world, index, empty_memory(num_classes, num_nodes, num_scores),
                np.full(1, -1), np.zeros(num_classes, np.bool_), in_use(case.empty, world.state),
                node_milliwatts(world) if is_capped else np.zeros(num_nodes, np.int64))


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
def change(desk: Desk, timed: TimedTasks, task: int, schedule: Schedule, sign: int) -> None:
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
def decide_within(kernels: Any, desk: Desk, timed: TimedTasks, task: int) -> tuple[int, int]:
    """As `decide_now`; -1 also if the watts under the cap would not do."""
    node, gpu_mask = decide_now(kernels, desk, timed.asks, task)
    if timed.cap_mw < np.inf and node >= 0:
        rise_mw = rise_milliwatt(desk.world, timed.asks.task[task], node, gpu_mask)
        if desk.drawn_mw.sum() + rise_mw > timed.cap_mw:
            return -1, 0
    return node, gpu_mask


@njit(cache=True)
def begin(kernels: Any, desk: Desk, timed: TimedTasks, task: int, place: tuple[int, int],
          now_s: float, ends: list[tuple[float, int]], schedule: Schedule) -> None:
    """Start a task on a node and its GPUs; one that ends at once holds nothing.

    Parameters
    ----------
    kernels, desk, timed, schedule : as `replay_events`
    task, place, now_s : who starts, node and GPUs, and when
    ends : heap of (end, task) of those that run
    """
    end_s = now_s + timed.duration_s[task]
    schedule.node[task], schedule.gpu_mask[task] = place
    schedule.start_s[task] = now_s
    schedule.end_s[task] = end_s
    if end_s > now_s:
        change(desk, timed, task, schedule, 1)
        count_placed(desk.world, timed.asks.task[task])
        if end_s < np.inf:
            heappush(ends, (end_s, task))
    if is_due(desk.world):
        price_anew(kernels, desk)


@njit(cache=True)
def serve_in_order(kernels: Any, desk: Desk, timed: TimedTasks, waiting: list[int], now_s: float,
                   ends: list[tuple[float, int]], schedule: Schedule) -> bool:
    """Start tasks from the head of the queue; return whether one is left there that fits nowhere.

    Parameters
    ----------
    kernels, desk, timed, schedule : as `replay_events`
    waiting : heap of places in the queue
    now_s, ends : as `begin`
    """
    while len(waiting) > 0:
        task = timed.task_at[waiting[0]]
        place = decide_within(kernels, desk, timed, task)
        if place[0] < 0:
            return True
        heappop(waiting)
        begin(kernels, desk, timed, task, place, now_s, ends, schedule)
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
def serve_first_fit(kernels: Any, desk: Desk, timed: TimedTasks, queue: Queue, num_old: int,
                    nodes: list[int], now_s: float, ends: list[tuple[float, int]],
                    schedule: Schedule) -> None:
    """Start every waiting task that fits, in the order of the queue.

    Parameters
    ----------
    kernels, desk, timed, queue, schedule : as `replay_events`
    num_old, nodes : as `heads_to_try`
    now_s, ends : as `begin`
    """
    heads = heads_to_try(desk, timed, queue, nodes, num_old)
    while len(heads) > 0:
        _, request = heappop(heads)
        task = timed.member[queue.head[request]]
        place = decide_within(kernels, desk, timed, task)
        if place[0] >= 0:
            begin(kernels, desk, timed, task, place, now_s, ends, schedule)
            queue.head[request] += 1
            if queue.head[request] < queue.tail[request]:
                heappush(heads, (timed.place[timed.member[queue.head[request]]], request))
    num_left = num_old if len(nodes) == 0 else 0
    for n in range(num_left, queue.num_active[0]):
        request = queue.active[n]
        if queue.head[request] < queue.tail[request]:
            queue.active[num_left] = request
            num_left += 1
    queue.num_active[0] = num_left


@njit(cache=True)
def replay_events(kernels: Any, desk: Desk, timed: TimedTasks, queue: Queue, is_first_fit: bool,
                  schedule: Schedule) -> None:
    """Replay event by event.

    Parameters
    ----------
    kernels, desk : the policy's scores; the cluster and what is known of it
    timed, queue : the tasks; nobody waits yet
    is_first_fit : whether others may start when the first one cannot
    schedule : those that run already; completed
    """
    price_anew(kernels, desk)
    ends = [(np.inf, -1)]  # heap of those that run, and one that never ends
    for task in range(len(schedule.end_s)):
        if schedule.end_s[task] < np.inf:
            heappush(ends, (schedule.end_s[task], task))
    waiting = [0]
    waiting.clear()
    nodes = [0]  # that tasks leave at this moment
    arrived = 0
    is_blocked = False
    while arrived < len(timed.arrival) or ends[0][0] < np.inf:
        now_s = ends[0][0]
        if arrived < len(timed.arrival):
            now_s = min(now_s, timed.submit_s[timed.arrival[arrived]])
        nodes.clear()
        while ends[0][0] <= now_s:
            _, task = heappop(ends)
            change(desk, timed, task, schedule, -1)
            nodes.append(schedule.node[task])
        is_blocked &= len(nodes) == 0
        # so many requests cannot fit unless something ends; under a cap any may
        num_old = 0 if timed.cap_mw < np.inf else queue.num_active[0]
        while arrived < len(timed.arrival) and timed.submit_s[timed.arrival[arrived]] <= now_s:
            task = timed.arrival[arrived]
            arrived += 1
            if is_first_fit:
                join(timed, queue, task)
            else:
                heappush(waiting, timed.place[task])
                is_blocked &= waiting[0] != timed.place[task]
        if is_first_fit:
            serve_first_fit(kernels, desk, timed, queue, num_old, nodes, now_s, ends, schedule)
        elif not is_blocked:
            is_blocked = serve_in_order(kernels, desk, timed, waiting, now_s, ends, schedule)


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
    """Profile of empty nodes, with spells for so many tasks: each begins and ends, or is cut."""
    num_nodes, num_gpus = empty.gpu_left_milli.shape
    size = num_nodes + 3 * num_tasks
    profile = Profile(np.arange(num_nodes), np.full(size, -1), np.full(size, -np.inf),
                      np.zeros(size, np.int64), np.zeros(size, np.int64),
                      np.zeros((size, num_gpus), np.int64), np.zeros((size, num_limits), np.int64),
                      np.arange(num_nodes, size), np.array([3 * num_tasks]))
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
    until_s : (tasks,) until when what it holds is set aside: its walltime, or its end if it is over
    is_freer : (nodes,) where something was given back at this moment before it had to
    has_ended : (nodes,) where a task has ended, or lost its booking, since EASY last served
    promise_s : as in `Case`
    too_long_s : (requests,) walltime with which a request did not fit at this moment, NaN if untried
    gpu_milli, num : (GPUs,) and (limits,) room for the answer of `least_left`
    """

    desk: Desk
    timed: TimedTasks
    schedule: Schedule
    profile: Profile
    first: Integers
    after: Integers
    until_s: Floats
    is_freer: Truths
    has_ended: Truths
    promise_s: Floats
    too_long_s: Floats
    gpu_milli: Integers
    num: Integers


def empty_plan(case: Case, desk: Desk) -> Plan:
    """Plan in which nobody holds anything."""
    num_nodes, num_gpus = case.empty.gpu_left_milli.shape
    num_tasks = len(case.comes)
    num_limits = len(case.world.limits.most)
    return Plan(desk, case.timed, case.schedule, empty_profile(case.empty, num_tasks, num_limits),
                np.full(num_nodes, -1), np.full(num_tasks, -1), np.full(num_tasks, np.nan),
                np.zeros(num_nodes, np.bool_), np.zeros(num_nodes, np.bool_), case.promise_s,
                np.full(num_tasks, np.nan), np.zeros(num_gpus, np.int64), np.zeros(num_limits, np.int64))


@njit(cache=True)
def hold_span(plan: Plan, task: int, from_s: float, sign: int) -> None:
    """Set aside what a task asks for on its node (sign 1), or give it back (-1), from a moment on."""
    schedule = plan.schedule
    profile = plan.profile
    demand = plan.desk.world.demand
    kind = plan.timed.asks.task[task]
    node = schedule.node[task]
    limit = demand.limit[kind]
    spell = spell_from(profile, node, from_s)
    end = -1
    if plan.until_s[task] < np.inf:
        end = spell_from(profile, node, plan.until_s[task])
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
    hold_span(plan, task, plan.schedule.start_s[task], 1)


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
    if schedule.node[task] >= 0 and plan.until_s[task] > schedule.start_s[task]:
        unlink(plan, task)
        hold_span(plan, task, schedule.start_s[task], -1)
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
def lacking_in(plan: Plan, task: int, node: int, spell: int) -> int:
    """What a node lacks for a task in a spell: a bit for each of `CONDITIONS`, 0 if it fits."""
    profile = plan.profile
    asks = plan.timed.asks
    return lacking_of(plan.desk.world, asks.task[task], asks.memory_mib[task], node,
                      profile.cpu_milli[spell], profile.memory_mib[spell],
                      profile.gpu_milli[spell], profile.num[spell])


@njit(cache=True)
def fits_span(plan: Plan, task: int, node: int, spell: int, from_s: float) -> bool:
    """Whether a task can have a node from a moment in a spell on for its walltime."""
    if lacking_in(plan, task, node, spell) != 0:
        return False
    asks = plan.timed.asks
    cpu, memory = least_left(plan, node, from_s, from_s + plan.timed.walltime_s[task])
    return bool(lacking_of(plan.desk.world, asks.task[task], asks.memory_mib[task], node, cpu,
                           memory, plan.gpu_milli, plan.num) == 0)


@njit(cache=True)
def earliest_on(plan: Plan, task: int, node: int, now_s: float, before_s: float) -> float:
    """First moment from which on a node has room for a task; `before_s` if none is earlier."""
    profile = plan.profile
    spell = spell_at(profile, node, now_s)
    if lacking_in(plan, task, node, spell) & LASTING:
        return before_s
    start_s = now_s
    while spell >= 0 and start_s < before_s:
        if fits_span(plan, task, node, spell, start_s):
            return start_s
        spell = profile.after[spell]
        start_s = profile.from_s[spell]
    return before_s


@njit(cache=True)
def earliest_start(plan: Plan, task: int, now_s: float) -> float:
    """First moment from which on some node has room for a task; inf if never."""
    best_s = np.inf
    for node in range(len(plan.first)):
        best_s = earliest_on(plan, task, node, now_s, best_s)
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
        is_there = start_s <= from_s < plan.until_s[task] or from_s < start_s < until_s
        if is_there and kind >= 0:
            desk.world.residents[node, kind] += 1
        task = plan.after[task]
    limits = desk.world.limits
    for limit in range(len(plan.num)):
        limits.num[node, limit] = plan.num[limit]
    for limit in range(len(plan.num)):
        limits.is_open[node, limit] = slots_left(limits, limit, node) > 0
    note_change(desk.by_score, node)
    desk.memory.version[node] += 1


@njit(cache=True)
def changes_by(plan: Plan, node: int, now_s: float, start_s: float, until_s: float) -> bool:
    """Whether a task leaves a node until a later span begins, or comes before it ends."""
    task = plan.first[node]
    while task >= 0:
        if plan.until_s[task] <= start_s or now_s < plan.schedule.start_s[task] < until_s:
            return True
        task = plan.after[task]
    return False


@njit(cache=True)
def choose_then(kernels: Any, plan: Plan, task: int, start_s: float,
                now_s: float) -> tuple[int, int]:
    """Node and GPUs of a task that starts later: the policy sees the least that is free then."""
    until_s = start_s + plan.timed.walltime_s[task]
    nodes = [n for n in range(len(plan.first)) if changes_by(plan, n, now_s, start_s, until_s)]
    for other in nodes:
        show_node(plan, other, start_s, until_s)
    place = decide_now(kernels, plan.desk, plan.timed.asks, task)
    for other in nodes:
        show_node(plan, other, now_s, now_s)
    return place


@njit(cache=True)
def give_back(plan: Plan, task: int, now_s: float) -> None:
    """Let a task that is over leave its node, and give back what it had asked for beyond."""
    node = plan.schedule.node[task]
    unlink(plan, task)
    plan.has_ended[node] = True
    if plan.until_s[task] > now_s:
        hold_span(plan, task, now_s, -1)
        join_equal(plan.profile, node)
        plan.until_s[task] = now_s
        plan.is_freer[node] = True


@njit(cache=True)
def enter(plan: Plan, task: int, place: tuple[int, int], start_s: float, now_s: float,
          moments: list[tuple[float, int]]) -> None:
    """Book a node and GPUs for a task; one that starts now and ends at once holds nothing."""
    schedule = plan.schedule
    schedule.node[task], schedule.gpu_mask[task] = place
    schedule.start_s[task] = start_s
    schedule.end_s[task] = start_s + plan.timed.duration_s[task]
    plan.until_s[task] = start_s + plan.timed.walltime_s[task]
    if start_s == now_s and schedule.end_s[task] == now_s:
        plan.until_s[task] = now_s
    if plan.until_s[task] > start_s:
        link(plan, task)
    if start_s == now_s:
        if schedule.end_s[task] > now_s:
            heappush(moments, (schedule.end_s[task], task))
        forget_past(plan.profile, place[0], now_s)
        show_node(plan, place[0], now_s, now_s)


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
    start_s = now_s
    place = (-1, 0)
    if is_alone:
        place = decide_now(kernels, plan.desk, plan.timed.asks, task)
    if place[0] < 0:
        start_s = earliest_start(plan, task, now_s)
        if start_s == np.inf:
            return
        place = choose_then(kernels, plan, task, start_s, now_s)
    enter(plan, task, place, start_s, now_s, moments)


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
def keep_waiting(plan: Plan, position: int, now_s: float, waiting: list[int],
                 moments: list[tuple[float, int]]) -> None:
    """Let a task wait on, and start when it has been booked for; nothing if it starts now."""
    task = plan.timed.task_at[position]
    start_s = plan.schedule.start_s[task]
    if start_s != now_s:
        waiting.append(position)
        if start_s > now_s:
            heappush(moments, (start_s, task))


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
        task = task_at[position]
        book(kernels, plan, task, now_s, len(waiting) == 0, moments)
        has_booked = plan.schedule.node[task] >= 0
        plan.promise_s[task] = plan.schedule.start_s[task] if has_booked else np.inf
        keep_waiting(plan, position, now_s, waiting, moments)


@njit(cache=True)
def move_up(kernels: Any, plan: Plan, now_s: float, waiting: list[int],
            moments: list[tuple[float, int]]) -> None:
    """Let who waits, in the order of the queue, start earlier on nodes that became freer.

    A booking moves to where it is earlier and else stays, so no promise is broken. The node that
    one leaves is freer for those behind it. Parameters as `replay_booked`.
    """
    schedule = plan.schedule
    line = waiting[:]
    waiting.clear()
    for position in line:
        task = plan.timed.task_at[position]
        own = schedule.node[task]
        old_s = np.inf if own < 0 else schedule.start_s[task]
        is_in_the_way = own >= 0 and plan.is_freer[own] and plan.until_s[task] > old_s
        if is_in_the_way:
            hold_span(plan, task, old_s, -1)
        start_s = old_s
        for node in range(len(plan.first)):
            if plan.is_freer[node]:
                start_s = earliest_on(plan, task, node, now_s, start_s)
        if is_in_the_way:
            hold_span(plan, task, old_s, 1)
            join_equal(plan.profile, own)
        if start_s < old_s:
            give_up(plan, task)
            if own >= 0:
                plan.is_freer[own] = True
            place = choose_then(kernels, plan, task, start_s, now_s)
            enter(plan, task, place, start_s, now_s, moments)
            keep_waiting(plan, position, now_s, waiting, moments)
        else:
            waiting.append(position)
    plan.is_freer[:] = False


@njit(cache=True)
def fits_now(plan: Plan, task: int, now_s: float, is_new: bool) -> bool:
    """Whether some node has room for a task from now on for its walltime, beside what is booked.

    One that is not new had room nowhere when it was last tried, and can have some only where a
    task has ended since.
    """
    for node in range(len(plan.first)):
        if is_new or plan.has_ended[node]:
            if fits_span(plan, task, node, spell_at(plan.profile, node, now_s), now_s):
                return True
    return False


@njit(cache=True)
def serve_easily(kernels: Any, plan: Plan, now_s: float, waiting: list[int], head: int,
                 moments: list[tuple[float, int]]) -> int:
    """Start who may, in the order of the queue, and book for the first who may not.

    Parameters
    ----------
    kernels, plan, moments : as `replay_booked`
    now_s, waiting : the time, and places in the queue of those that have not started, in order
    head : task that was booked until now, -1 for none

    Returns
    -------
    task that is booked from now on, -1 for none
    """
    timed = plan.timed
    if head >= 0:
        node = plan.schedule.node[head]
        plan.has_ended[node] = True
        give_up(plan, head)
        show_node(plan, node, now_s, now_s)  # it may have been booked for now
    head = -1
    too_long_s = plan.too_long_s
    line = waiting[:]
    waiting.clear()
    for position in line:
        too_long_s[timed.request[timed.task_at[position]]] = np.nan
    for position in line:
        task = timed.task_at[position]
        request = timed.request[task]
        if not timed.walltime_s[task] >= too_long_s[request]:
            if head < 0:
                book(kernels, plan, task, now_s, True, moments)
                if plan.schedule.node[task] < 0:
                    too_long_s[request] = -np.inf
            elif fits_now(plan, task, now_s, timed.submit_s[task] == now_s):
                place = choose_then(kernels, plan, task, now_s, now_s)
                enter(plan, task, place, now_s, now_s, moments)
            else:
                too_long_s[request] = timed.walltime_s[task]
        if plan.schedule.start_s[task] == now_s:
            continue
        waiting.append(position)
        if head < 0 and plan.schedule.node[task] >= 0:
            head = task
    plan.has_ended[:] = False
    return head


@njit(cache=True)
def pass_moment(plan: Plan, now_s: float, waiting: list[int],
                moments: list[tuple[float, int]]) -> None:
    """Let what was booked until now start, and what ends by now end."""
    schedule = plan.schedule
    while moments[0][0] <= now_s:
        time_s, task = heappop(moments)
        if schedule.start_s[task] == time_s:
            position = position_in(waiting, plan.timed.place[task])
            if position < len(waiting) and waiting[position] == plan.timed.place[task]:
                waiting.pop(position)
                heappush(moments, (schedule.end_s[task], task))
            elif schedule.end_s[task] == time_s:
                give_back(plan, task, now_s)
            else:
                continue
        elif schedule.end_s[task] == time_s and schedule.start_s[task] < time_s:
            give_back(plan, task, now_s)
        else:
            continue
        node = schedule.node[task]
        forget_past(plan.profile, node, now_s)
        show_node(plan, node, now_s, now_s)


@njit(cache=True)
def replay_booked(kernels: Any, plan: Plan, is_easy: bool) -> None:
    """Replay with bookings: for all who wait, or only for the first of them (EASY).

    Parameters
    ----------
    kernels, plan : the policy's scores; what decides, and all who hold something at the beginning
    is_easy : whether only the first is booked
    """
    timed = plan.timed
    schedule = plan.schedule
    moments = [(np.inf, -1)]
    for task in range(len(schedule.node)):
        if schedule.node[task] >= 0:
            plan.until_s[task] = schedule.start_s[task] + timed.walltime_s[task]
            link(plan, task)
            heappush(moments, (schedule.end_s[task], task))
    waiting = [0]  # places in the queue of those that have not started, in order
    waiting.clear()
    arrived = 0
    head = -1
    while arrived < len(timed.arrival) or moments[0][0] < np.inf:
        now_s = moments[0][0]
        if arrived < len(timed.arrival):
            now_s = min(now_s, timed.submit_s[timed.arrival[arrived]])
        pass_moment(plan, now_s, waiting, moments)
        if not is_easy and plan.is_freer.any():
            move_up(kernels, plan, now_s, waiting, moments)
        num_before = len(waiting)
        while arrived < len(timed.arrival) and timed.submit_s[timed.arrival[arrived]] == now_s:
            place_in_queue = timed.place[timed.arrival[arrived]]
            position = position_in(waiting, place_in_queue)
            waiting.insert(position, place_in_queue)
            num_before = min(num_before, position)
            arrived += 1
        if is_easy:
            head = serve_easily(kernels, plan, now_s, waiting, head, moments)
        else:
            book_line(kernels, plan, now_s, waiting, num_before, moments)


def simulate(case: Case, backfill: str) -> Schedule:
    """Complete the schedule of a case by a rule of the queue, one of `BACKFILLS`."""
    desk = desk_of(case)
    timed = case.timed
    kernels = kernels_for(case.policy, case.world, desk.by_score)
    with quiet():
        if backfill in BOOKED:
            replay_booked(kernels, empty_plan(case, desk), backfill == "easy")
        else:
            first = np.flatnonzero(np.diff(timed.request[timed.member], prepend=-1))
            queue = Queue(first, first.copy(), np.zeros_like(first), np.zeros(1, np.int64))
            replay_events(kernels, desk, timed, queue, backfill == "first-fit", case.schedule)
    return case.schedule


def check_options(case: Case, backfill: str, cap_w: float | None) -> None:
    """Refuse bookings of prices or watts that nobody knows yet, and a cap that cannot be held.

    Raises
    ------
    InputError : a rule that books ahead, with prices or a cap, or a cap that is lower than what the
        cluster draws without tasks
    """
    if backfill in BOOKED:
        mend = "choose --backfill none or first-fit"
        if cap_w is not None:
            raise InputError(f"a cap on power and {backfill} backfill do not go together: a "
                             "booking would have to promise watts for later, on which all other "
                             "nodes draw", value=str(cap_w), mend=mend)
        if case.policy.dials:
            raise InputError(f"{case.policy.name!r} and {backfill} backfill do not go together: "
                             "its prices are those of the cluster as it stands, and a booking "
                             "would need those of later", value=case.policy.name, mend=mend)
    if cap_w is not None:
        idle_w = node_milliwatts(case.world._replace(state=case.empty)).sum() / 1000
        if not cap_w >= idle_w:
            raise InputError(f"the cluster draws {idle_w:,.10g} W without any task, and the cap is "
                             f"{cap_w:,.10g} W", value=str(cap_w),
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
        prices and a rule that books ahead
    """
    check_one_of(backfill, BACKFILLS, "backfill")
    settings = power or PowerSettings()
    case = case_of(problem, policy, seed, at_s, settings, cap_w)
    check_options(case, backfill, cap_w)
    schedule = simulate(case, backfill)
    check_schedule(problem, schedule, backfill=backfill, at_s=at_s, cap_w=cap_w, power=settings)
    check_promises(problem, schedule, case.promise_s)
    return schedule
