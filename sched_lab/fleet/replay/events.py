"""A replay lets tasks come, wait, run and go as they did, and lets another policy decide where they run."""

# A module, written by hand.

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from ...lab.arrays import Floats, Integers, Truths
from ...lab.frames import InputError, check_one_of
from ...lab.jit import by_reference, njit, quiet
from ...online.model import LASTING, Policy, PowerSettings, World, lacking_of, slots_left
from ...online.score_index import note_change
from ..read.dates import seconds_of
from .case import (
    FAR,
    Case,
    Desk,
    TimedTasks,
    begin,
    case_of,
    change,
    close_and_open,
    count_closing,
    cpu_left,
    decide_now,
    desk_of,
    first_gpus,
    expect_again,
    first_place,
    forget_stopped,
    jobs_on,
    kernels_of,
    node_among,
    node_milliwatts,
    note_stop,
    note_occupant,
    place_in,
    price_anew,
    put_first,
    show_stays,
    take_off,
)
from .outages import lost_of
from .problem import Problem, Schedule
from .rules import check_promises, check_schedule
from .limits import ceilings_of
from .slurm import OWN_NODES, SlurmQueue, order_of, planner_of, replay_slurm

__all__ = ['replay']


class Rule(NamedTuple):
    """A rule of the queue.

    Parameters
    ----------
    name : as `--backfill` takes it
    sentence : which jobs may start before an earlier one that has to wait
    source : where it comes from
    books : whether it sets room aside for later, so that neither a cap nor prices go with it
    """

    name: str
    sentence: str
    source: str
    books: bool


RULES = (
    Rule("none", "nobody may start before an earlier one", "first come, first served", False),
    Rule("first-fit", "who fits may start", "greedy, without a plan", False),
    Rule("easy", "who fits may, unless it would delay the first in the queue", "Lifka 1995", True),
    Rule("conservative", "who fits may, unless it would delay one before it",
         "Mu'alem and Feitelson 2001", True),
    Rule("slurm", "as slurmctld plans: anew at each pass, by priority then, on whole nodes kept free",
         "SchedMD/slurm, sched/backfill and priority/multifactor", True))
BACKFILLS = tuple(rule.name for rule in RULES)
BOOKED = tuple(rule.name for rule in RULES if rule.books)
COMPARED = BACKFILLS[:4]  # what a replay compares by itself: rules that need no configuration


@by_reference
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


@njit(cache=True, inline="always")
def places_together(kernels: Any, desk: Desk, timed: TimedTasks, job: int, by_policy: bool,
                    now_s: float, schedule: Schedule) -> bool:
    """Find places for all parts of a job as the nodes stand, one after another, or for none.

    Parameters
    ----------
    kernels, desk, timed, schedule : as `replay_events`
    job : its first part
    by_policy, now_s : whether the policy chooses; else each part gets the first node with room; the
        time
    """
    part = job
    while part >= 0:
        if by_policy:
            place = decide_now(kernels, desk, timed, part, now_s)
        else:
            place = first_place(desk.world, timed.asks, part)
        if place[0] < 0:
            break
        schedule.node[part], schedule.gpu_mask[part] = place
        schedule.start_s[part] = now_s
        if timed.duration_s[part] > 0 and timed.next_part[part] >= 0:  # there is another to see it
            change(desk, timed, part, schedule, 1, now_s)
        part = timed.next_part[part]
    other = job
    while other != part:
        if timed.duration_s[other] > 0 and timed.next_part[other] >= 0:
            change(desk, timed, other, schedule, -1, now_s)
        if part >= 0:
            schedule.node[other] = -1
            schedule.gpu_mask[other] = 0
            schedule.start_s[other] = np.nan
        other = timed.next_part[other]
    return part < 0


@njit(cache=True, inline="always")
def begin_job(kernels: Any, desk: Desk, timed: TimedTasks, job: int, now_s: float,
              ends: list[tuple[float, int]], schedule: Schedule) -> bool:
    """Start all parts of a job, or none if they have no room together; parameters as `begin`.

    The policy places part after part. If it leaves no room for the last ones, the first nodes with
    room are tried, unless a cap decides.
    """
    for by_policy in (True, False):
        if places_together(kernels, desk, timed, job, by_policy, now_s, schedule):
            part = job
            while part >= 0:
                begin(kernels, desk, timed, part, now_s, ends, schedule)
                part = timed.next_part[part]
            return True
        if timed.next_part[job] < 0 or timed.cap_mw < np.inf:
            break
    return False


@njit(cache=True, inline="always")
def serve_in_order(kernels: Any, desk: Desk, timed: TimedTasks, heads: list[tuple[int, int]],
                   now_s: float, ends: list[tuple[float, int]], schedule: Schedule) -> None:
    """Start who fits, in the order of the queue, until one does not; parameters as `serve_every`."""
    while len(heads) > 0 and begin_job(kernels, desk, timed, timed.task_at[heads[0][0]], now_s, ends, schedule):
        heappop(heads)


@njit(cache=True, inline="always")
def serve_every(kernels: Any, desk: Desk, timed: TimedTasks, queue: Queue, heads: list[tuple[int, int]],
                now_s: float, ends: list[tuple[float, int]], schedule: Schedule) -> None:
    """Start every one who fits, in the order of the queue.

    Parameters
    ----------
    kernels, desk, timed, queue, schedule : as `replay_events`
    heads : heap of (place, request) of those to try, the first of each request
    now_s, ends : as `begin`
    """
    while len(heads) > 0:
        place, request = heappop(heads)
        if begin_job(kernels, desk, timed, timed.task_at[place], now_s, ends, schedule):
            queue.head[request] += 1
            if queue.head[request] < queue.tail[request]:
                heappush(heads, (timed.place[timed.member[queue.head[request]]], request))


@njit(cache=True)
def join(timed: TimedTasks, queue: Queue, task: int) -> None:
    """Put a task at the end of the queue of its request."""
    request = timed.request[task]
    if queue.head[request] == queue.tail[request]:
        queue.active[queue.num_active[0]] = request
        queue.num_active[0] += 1
    queue.tail[request] += 1


@njit(cache=True)
def rejoin(timed: TimedTasks, queue: Queue, job: int) -> None:
    """Let a job that had started wait in the queue of its request again, in its old place."""
    request = timed.request[job]
    member = timed.member
    at = queue.head[request] - 1
    if queue.head[request] == queue.tail[request]:
        queue.active[queue.num_active[0]] = request
        queue.num_active[0] += 1
    queue.head[request] -= 1
    while member[at] != job:
        at -= 1
    while at < queue.head[request] or (at + 1 < queue.tail[request]
                                       and timed.place[member[at + 1]] < timed.place[job]):
        member[at] = member[at + 1]
        at += 1
    member[at] = job


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
        job = timed.member[queue.head[request]]
        part = job
        while n < num_old and part >= 0 and node_among(desk.world, timed.asks, part, nodes) < 0:
            part = timed.next_part[part]
        if part >= 0:
            heappush(heads, (timed.place[job], request))
    return heads


@njit(cache=True)
def forget_empty(queue: Queue, first: int) -> None:
    """Strike requests of which nobody waits any more from the active ones, from a number on."""
    num_left = first
    for n in range(first, queue.num_active[0]):
        request = queue.active[n]
        if queue.head[request] < queue.tail[request]:
            queue.active[num_left] = request
            num_left += 1
    queue.num_active[0] = num_left


@njit(cache=True)
def replay_events(kernels: Any, desk: Desk, timed: TimedTasks, queue: Queue | None,
                  schedule: Schedule) -> list[tuple[int, int, int, float, float]]:
    """Replay event by event.

    Parameters
    ----------
    kernels, desk : the policy's scores; the cluster and what is known of it
    timed : the tasks
    queue : those who wait, nobody yet, if others may start when the first one cannot (first-fit);
        else None, and what it would need is not compiled
    schedule : those that run already; completed

    Returns
    -------
    runs that outages stopped, as `note_stop` adds them
    """
    price_anew(kernels[1], desk)
    lost = [(0, 0, 0, 0.0, 0.0)]
    lost.clear()
    back = [0]  # jobs that wait again
    running = [(np.inf, -1)]  # who asks for it is Slurm's queue
    running.clear()
    done = 0
    num_closings = len(timed.closings.at_s)
    ends = [(np.inf, -1)]  # heap of those that run, and one that never ends
    for task in range(len(schedule.end_s)):
        if schedule.end_s[task] < np.inf:
            heappush(ends, (schedule.end_s[task], task))
        if schedule.node[task] >= 0:
            note_occupant(desk, timed, task, schedule, 1, schedule.start_s[task])
    heads = [(0, 0)]  # those in order; or those of first-fit that may fit now
    heads.clear()
    nodes = [0]  # that tasks leave at this moment
    arrived = 0
    is_blocked = False
    while arrived < len(timed.arrival) or ends[0][0] < np.inf or done < num_closings:
        now_s = ends[0][0]
        if arrived < len(timed.arrival):
            now_s = min(now_s, timed.submit_s[timed.arrival[arrived]])
        if done < num_closings:
            now_s = min(now_s, timed.closings.at_s[done])
        nodes.clear()
        while ends[0][0] <= now_s:
            _, task = heappop(ends)
            change(desk, timed, task, schedule, -1, now_s)
            nodes.append(schedule.node[task])
            forget_stopped(ends, schedule)
        back.clear()
        while done < num_closings and timed.closings.at_s[done] <= now_s:
            close_and_open(desk, timed, done, now_s, nodes, back, lost, running, schedule)
            forget_stopped(ends, schedule)
            done += 1
            is_blocked = False
        expect_again(desk, schedule, now_s)
        is_blocked &= len(nodes) == 0
        num_old = 0
        if queue is not None:  # so many requests cannot fit unless something ends; under a cap any may
            num_old = 0 if timed.cap_mw < np.inf else queue.num_active[0]
        for job in back:
            if queue is not None:
                rejoin(timed, queue, job)
            else:
                heappush(heads, (timed.place[job], timed.request[job]))
        while arrived < len(timed.arrival) and timed.submit_s[timed.arrival[arrived]] <= now_s:
            task = timed.arrival[arrived]
            arrived += 1
            if queue is not None:
                join(timed, queue, task)
            else:
                heappush(heads, (timed.place[task], timed.request[task]))
                is_blocked &= heads[0][0] != timed.place[task]
        if queue is not None:
            heads = heads_to_try(desk, timed, queue, nodes, num_old)
            serve_every(kernels, desk, timed, queue, heads, now_s, ends, schedule)
            forget_empty(queue, num_old if len(nodes) == 0 else 0)
        elif not is_blocked:
            serve_in_order(kernels, desk, timed, heads, now_s, ends, schedule)
            is_blocked = len(heads) > 0
    return lost


@by_reference
class Profile(NamedTuple):
    """What each node has free from now on, as a list of spells between which it changes.

    Parameters
    ----------
    first : (nodes,) spell that lasts now
    after : (spells,) the next spell of the node, -1 behind the last
    from_s : (spells,) when it begins
    cpu_milli, memory_mib, gpu_milli : (spells,), (spells,) and (spells, GPUs) free in it
    num : (spells, limits) tasks with each limit that are there
    num_closed : (spells,) outages for which nothing may start in it
    spare, num_spare : (spells,) and (1,) spells that belong to no node
    """

    first: Integers
    after: Integers
    from_s: Floats
    cpu_milli: Integers
    memory_mib: Integers
    gpu_milli: Integers
    num: Integers
    num_closed: Integers
    spare: Integers
    num_spare: Integers


def empty_profile(empty: World, num_tasks: int, num_closings: int) -> Profile:
    """Profile of empty nodes, with spells for so many tasks: each begins and ends, or is cut; and for closings."""
    room = 3 * num_tasks + num_closings
    num_nodes = len(empty.gpu_model)
    cpu_milli, memory_mib, gpu_milli, num = (
        np.concatenate([left, np.zeros((room, *left.shape[1:]), np.int64)])
        for left in (*empty.state, empty.limits.num))
    size = num_nodes + room
    return Profile(np.arange(num_nodes), np.full(size, -1), np.full(size, -np.inf), cpu_milli,
                   memory_mib, gpu_milli, num, np.zeros(size, np.int64), np.arange(num_nodes, size), np.array([room]))


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
    profile.num_closed[new] = profile.num_closed[spell]
    return int(new)


@njit(cache=True)
def close_from(profile: Profile, node: int, from_s: float, change: int) -> None:
    """Let one outage more (change 1) or less (-1) close a node from a moment on."""
    spell = spell_from(profile, node, from_s)
    while spell >= 0:
        profile.num_closed[spell] += change
        spell = profile.after[spell]


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
                and (profile.num[spell] == profile.num[after]).all()
                and profile.num_closed[spell] == profile.num_closed[after]):
            profile.after[spell] = profile.after[after]
            set_aside(profile, after)
        else:
            spell = after


@by_reference
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
    num_nodes, num_gpus = case.empty.state.gpu_left_milli.shape
    num_tasks = len(case.comes)
    return Plan(desk, case.timed, case.schedule, empty_profile(case.empty, num_tasks, len(case.timed.closings.at_s)),
                *desk.there,
                np.zeros(num_nodes, np.bool_), np.zeros(num_nodes, np.bool_), case.promise_s,
                np.full(num_tasks, np.nan), np.zeros(num_gpus, np.int64),
                np.zeros(len(case.empty.limits.most), np.int64))


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
    put_first(plan.desk.there, plan.schedule.node[task], task)
    hold_span(plan, task, plan.schedule.start_s[task], 1)


@njit(cache=True)
def give_up(plan: Plan, task: int) -> None:
    """Give up the booking of a task, if it has one."""
    schedule = plan.schedule
    if schedule.node[task] >= 0 and plan.until_s[task] > schedule.start_s[task]:
        take_off(plan.desk.there, schedule.node[task], task)
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
    if plan.profile.num_closed[spell] > 0 or lacking_in(plan, task, node, spell) != 0:
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
    desk.in_use[1] += cpu_left(desk.world, node) - cpu
    desk.in_use[2] += state.memory_left_mib[node] - memory
    is_closed = plan.profile.num_closed[spell_at(plan.profile, node, from_s)] > 0
    state.cpu_left_milli[node] = cpu - FAR * is_closed
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
    if desk.looks_ahead:
        show_stays(desk.world, desk.there, plan.schedule, node, from_s, until_s)


@njit(cache=True)
def changes_by(plan: Plan, node: int, now_s: float, start_s: float, until_s: float) -> bool:
    """Whether a task leaves a node until a later span begins, or comes before it ends, or the node opens or closes."""
    closed = plan.profile.num_closed
    if (closed[spell_at(plan.profile, node, start_s)] > 0) != (closed[spell_at(plan.profile, node, now_s)] > 0):
        return True
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
    place = decide_now(kernels, plan.desk, plan.timed, task, start_s)
    for other in nodes:
        show_node(plan, other, now_s, now_s)
    return place


@njit(cache=True)
def give_back(plan: Plan, task: int, now_s: float) -> None:
    """Let a task that is over leave its node, and give back what it had asked for beyond."""
    node = plan.schedule.node[task]
    take_off(plan.desk.there, node, task)
    plan.has_ended[node] = True
    if plan.until_s[task] > now_s:
        hold_span(plan, task, now_s, -1)
        join_equal(plan.profile, node)
        plan.until_s[task] = now_s
        plan.is_freer[node] = True


@njit(cache=True)
def first_then(plan: Plan, task: int, start_s: float) -> tuple[int, int]:
    """First node that has room for a task from a moment on, and its first GPUs; it has one."""
    node = 0
    while earliest_on(plan, task, node, start_s, np.inf) > start_s:
        node += 1
    least_left(plan, node, start_s, start_s + plan.timed.walltime_s[task])
    return node, first_gpus(plan.desk.world, plan.timed.asks.task[task], node, plan.gpu_milli)


@njit(cache=True)
def enter(plan: Plan, task: int, place: tuple[int, int], start_s: float, now_s: float) -> None:
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
        forget_past(plan.profile, place[0], now_s)
        show_node(plan, place[0], now_s, now_s)


@njit(cache=True)
def let_run(plan: Plan, job: int, now_s: float, moments: list[tuple[float, int]]) -> None:
    """Note when the parts of a job that starts now end."""
    part = job
    while part >= 0:
        if plan.schedule.end_s[part] > now_s:
            heappush(moments, (plan.schedule.end_s[part], part))
        part = plan.timed.next_part[part]


@njit(cache=True)
def give_up_parts(plan: Plan, job: int, last: int, now_s: float) -> None:
    """Give up what is booked for the parts of a job, up to one, and let the nodes be seen so."""
    part = job
    while part != last:
        node = plan.schedule.node[part]
        give_up(plan, part)
        if node >= 0:
            plan.has_ended[node] = True
            show_node(plan, node, now_s, now_s)  # it may have been booked for now
        part = plan.timed.next_part[part]


@njit(cache=True)
def next_change(profile: Profile, moment_s: float) -> float:
    """When something changes on any node after a moment; inf if nothing does."""
    next_s = np.inf
    for node in range(len(profile.first)):
        spell = profile.after[spell_at(profile, node, moment_s)]
        if spell >= 0:
            next_s = min(next_s, profile.from_s[spell])
    return float(next_s)


@njit(cache=True)
def enter_parts(kernels: Any, plan: Plan, job: int, start_s: float, now_s: float,
                by_policy: bool) -> float:
    """Book all parts of a job from a moment on, or none, and say when it may be tried again.

    Parameters
    ----------
    kernels, plan, now_s : as `book`
    job, start_s : its first part, and the moment
    by_policy : whether the policy chooses; else each part gets the first node with room

    Returns
    -------
    the moment, if all are booked; else a later one, at which others leave room; inf if there is none
    """
    part = job
    at_s = start_s
    while part >= 0:
        at_s = earliest_start(plan, part, start_s)
        if at_s > start_s:
            break
        if by_policy:
            place = choose_then(kernels, plan, part, start_s, now_s)
        else:
            place = first_then(plan, part, start_s)
        enter(plan, part, place, start_s, now_s)
        part = plan.timed.next_part[part]
    if part >= 0:
        give_up_parts(plan, job, part, now_s)
        if part != job:  # beside its own parts, which are gone by then
            at_s = next_change(plan.profile, start_s)
    return at_s


@njit(cache=True)
def book_parts(kernels: Any, plan: Plan, job: int, now_s: float) -> None:
    """Book the earliest moment at which all parts of a job have room together; parameters as `book`.

    The first part is tried at its earliest start; if another has no room beside it, all are tried
    again when something has changed.
    """
    for by_policy in (True, False):
        start_s = now_s
        while start_s < np.inf:
            at_s = enter_parts(kernels, plan, job, start_s, now_s, by_policy)
            if at_s == start_s:
                return
            start_s = at_s


@njit(cache=True)
def book(kernels: Any, plan: Plan, task: int, now_s: float, is_alone: bool) -> None:
    """Book the earliest hole for a job, at a node of the policy's choice; never, if there is none.

    Parameters
    ----------
    kernels, plan : as `replay_booked`
    task, now_s : what to book, and the time
    is_alone : whether nothing has been booked for later
    """
    if is_alone and plan.timed.next_part[task] < 0:  # then what is free now is free for ever
        place = decide_now(kernels, plan.desk, plan.timed, task, now_s)
        if place[0] >= 0:
            enter(plan, task, place, now_s, now_s)
            return
    book_parts(kernels, plan, task, now_s)


@njit(cache=True)
def keep_waiting(plan: Plan, position: int, now_s: float, waiting: list[int],
                 moments: list[tuple[float, int]]) -> None:
    """Let a job wait on, and start when it has been booked for, or run, if that is now."""
    task = plan.timed.task_at[position]
    start_s = plan.schedule.start_s[task]
    if start_s == now_s:
        let_run(plan, task, now_s, moments)
        return
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
        part = task_at[position]
        while part >= 0:
            give_up(plan, part)
            part = plan.timed.next_part[part]
    for position in line:
        task = task_at[position]
        book(kernels, plan, task, now_s, len(waiting) == 0)
        has_booked = plan.schedule.node[task] >= 0
        plan.promise_s[task] = plan.schedule.start_s[task] if has_booked else np.inf
        keep_waiting(plan, position, now_s, waiting, moments)


@njit(cache=True, inline="always")
def move_up_parts(kernels: Any, plan: Plan, job: int, old_s: float, now_s: float) -> bool:
    """Book all parts of a job anew if they can start before a moment, and say whether they can."""
    schedule = plan.schedule
    own = [(schedule.node[job], schedule.gpu_mask[job])]
    part = plan.timed.next_part[job]
    while part >= 0:
        own.append((schedule.node[part], schedule.gpu_mask[part]))
        part = plan.timed.next_part[part]
    give_up_parts(plan, job, -1, now_s)
    book_parts(kernels, plan, job, now_s)
    is_earlier = bool(schedule.node[job] >= 0 and schedule.start_s[job] < old_s)
    if not is_earlier:
        give_up_parts(plan, job, -1, now_s)
    part = job
    for place in own:
        if is_earlier and place[0] >= 0:
            plan.is_freer[place[0]] = True
        elif not is_earlier and place[0] >= 0:
            enter(plan, part, place, old_s, now_s)
        part = plan.timed.next_part[part]
    return is_earlier


@njit(cache=True, inline="always")
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
        if plan.timed.next_part[task] >= 0:
            if plan.is_freer.any() and move_up_parts(kernels, plan, task, old_s, now_s):
                keep_waiting(plan, position, now_s, waiting, moments)
            else:
                waiting.append(position)
            continue
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
            enter(plan, task, place, start_s, now_s)
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


@njit(cache=True, inline="always")
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
    give_up_parts(plan, head, -1, now_s)
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
                book(kernels, plan, task, now_s, True)
                if plan.schedule.node[task] < 0:
                    too_long_s[request] = -np.inf
            elif timed.next_part[task] >= 0:
                if enter_parts(kernels, plan, task, now_s, now_s, True) > now_s:
                    enter_parts(kernels, plan, task, now_s, now_s, False)
            elif fits_now(plan, task, now_s, timed.submit_s[task] == now_s):
                place = choose_then(kernels, plan, task, now_s, now_s)
                enter(plan, task, place, now_s, now_s)
            else:
                too_long_s[request] = timed.walltime_s[task]
        if plan.schedule.start_s[task] == now_s:
            let_run(plan, task, now_s, moments)
            continue
        waiting.append(position)
        if head < 0 and plan.schedule.node[task] >= 0:
            head = task
    plan.has_ended[:] = False
    return head


@njit(cache=True, inline="always")
def pass_moment(plan: Plan, now_s: float, waiting: list[int],
                moments: list[tuple[float, int]]) -> None:
    """Let what was booked until now start, and what ends by now end."""
    schedule = plan.schedule
    while moments[0][0] <= now_s:
        time_s, task = heappop(moments)
        position = place_in(waiting, plan.timed.place[task])
        waits = position < len(waiting) and waiting[position] == plan.timed.place[task]
        if waits and schedule.start_s[task] == time_s:
            waiting.pop(position)
            part = task
            while part >= 0:
                heappush(moments, (schedule.end_s[part], part))
                forget_past(plan.profile, schedule.node[part], now_s)
                show_node(plan, schedule.node[part], now_s, now_s)
                part = plan.timed.next_part[part]
        elif schedule.start_s[task] <= time_s == schedule.end_s[task]:
            give_back(plan, task, now_s)
            forget_past(plan.profile, schedule.node[task], now_s)
            show_node(plan, schedule.node[task], now_s, now_s)


@njit(cache=True, inline="always")
def close_booked(plan: Plan, one: int, now_s: float, back: list[int],
                 lost: list[tuple[int, int, int, float, float]], moments: list[tuple[float, int]]) -> None:
    """As `close_and_open`, on spells; the ends of what is stopped are no moments any more."""
    timed, schedule = plan.timed, plan.schedule
    closings = timed.closings
    node, sign = closings.node[one], closings.change[one]
    count_closing(plan.desk, timed, one)
    if closings.is_down[one]:
        close_from(plan.profile, node, now_s, sign)
    if closings.is_down[one] and sign > 0:
        for job in jobs_on(timed, schedule, node, now_s):
            waits = bool(closings.requeues[one] and timed.place[job] >= 0)
            part = job
            while part >= 0:
                there = schedule.node[part]
                if schedule.end_s[part] >= now_s:  # what ends at this moment has not been passed yet
                    moments.remove((schedule.end_s[part], part))
                    give_back(plan, part, now_s)
                note_stop(timed, part, now_s, waits, schedule, lost)
                show_node(plan, there, now_s, now_s)
                part = timed.next_part[part]
            if waits:
                back.append(job)
        heapify(moments)
    plan.has_ended[node] |= sign < 0
    show_node(plan, node, now_s, now_s)


@njit(cache=True)
def replay_booked(kernels: Any, plan: Plan, is_easy: bool) -> list[tuple[int, int, int, float, float]]:
    """Replay with bookings: for all who wait, or only for the first of them (EASY).

    A drain is known ahead: nothing is booked to start in it. When a node goes down or comes back,
    which nobody knew, all who wait are booked anew.

    Parameters
    ----------
    kernels, plan : the policy's scores; what decides, and all who hold something at the beginning
    is_easy : whether only the first is booked

    Returns
    -------
    runs that outages stopped, as `note_stop` adds them
    """
    timed = plan.timed
    schedule = plan.schedule
    lost = [(0, 0, 0, 0.0, 0.0)]
    lost.clear()
    back = [0]  # jobs that wait again
    closings = timed.closings
    num_closings = len(closings.at_s)
    done = 0
    for one in range(num_closings):
        if not closings.is_down[one]:
            close_from(plan.profile, closings.node[one], closings.at_s[one], closings.change[one])
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
    while arrived < len(timed.arrival) or moments[0][0] < np.inf or done < num_closings:
        now_s = moments[0][0]
        if arrived < len(timed.arrival):
            now_s = min(now_s, timed.submit_s[timed.arrival[arrived]])
        back.clear()
        is_anew = False
        if done < num_closings:
            now_s = min(now_s, closings.at_s[done])
            one = done
            while one < num_closings and closings.at_s[one] <= now_s:
                is_anew |= closings.is_down[one]
                one += 1
        for position in waiting if is_anew else waiting[:0]:
            give_up_parts(plan, timed.task_at[position], -1, now_s)
        while done < num_closings and closings.at_s[done] <= now_s:
            close_booked(plan, done, now_s, back, lost, moments)
            done += 1
        pass_moment(plan, now_s, waiting, moments)
        if is_anew:
            head = -1
            plan.is_freer[:] = False
        if not is_easy and plan.is_freer.any():
            move_up(kernels, plan, now_s, waiting, moments)
        num_before = 0 if is_anew else len(waiting)
        for job in back:
            waiting.insert(place_in(waiting, timed.place[job]), timed.place[job])
        while arrived < len(timed.arrival) and timed.submit_s[timed.arrival[arrived]] == now_s:
            place_in_queue = timed.place[timed.arrival[arrived]]
            position = place_in(waiting, place_in_queue)
            waiting.insert(position, place_in_queue)
            num_before = min(num_before, position)
            arrived += 1
        if is_easy:
            head = serve_easily(kernels, plan, now_s, waiting, head, moments)
        else:
            book_line(kernels, plan, now_s, waiting, num_before, moments)
    return lost


def simulate(case: Case, backfill: str, problem: Problem | None = None,
             slurm: SlurmQueue = SlurmQueue()) -> Schedule:  # noqa: B008
    """Complete the schedule of a case by a rule of the queue, one of `BACKFILLS`.

    Parameters
    ----------
    case, backfill : the replay and the rule
    problem, slurm : whose case it is, and how Slurm orders its queue; for the rule slurm alone
    """
    desk = desk_of(case)
    timed = case.timed
    with quiet():
        kernels = kernels_of(case, desk)
        if backfill == "slurm" and problem is not None:
            zero_s = seconds_of(problem.zero or "") or 0.0
            lost = replay_slurm(kernels, planner_of(desk, timed, order_of(problem, timed, slurm),
                                                    ceilings_of(slurm.limits, problem), case.schedule, slurm, zero_s))
        elif backfill in BOOKED:
            lost = replay_booked(kernels, empty_plan(case, desk), backfill == "easy")
        else:
            first = np.flatnonzero(np.diff(timed.request[timed.member], prepend=-1))
            queue = Queue(first, first.copy(), np.zeros_like(first), np.zeros(1, np.int64))
            lost = replay_events(kernels, desk, timed, queue if backfill == "first-fit" else None, case.schedule)
    return case.schedule._replace(lost=lost_of(lost))


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
        idle_w = node_milliwatts(case.empty).sum() / 1000
        if not cap_w >= idle_w:
            raise InputError(f"the cluster draws {idle_w:,.10g} W without any task, and the cap is "
                             f"{cap_w:,.10g} W", value=str(cap_w),
                             mend="raise the cap, or remove nodes")


def replay(problem: Problem, policy: str | Policy = "fgd", *, seed: int = 0,
           backfill: str = "none", at_s: float | None = None,
           power: PowerSettings | None = None, cap_w: float | None = None,
           slurm: SlurmQueue = SlurmQueue()) -> Schedule:  # noqa: B008
    """Let the tasks of a problem come, wait, run and go, placed by one policy.

    Parameters
    ----------
    problem : the cluster and its timed tasks
    policy : a name for `policy_of`, or a policy; or "slurm", for the rule slurm alone: the nodes that
        Slurm would choose
    seed : of a policy that draws lots
    backfill : who may start before an earlier task that has to wait, one of `BACKFILLS`
    at_s : begin with what ran at this second by the record, and go on from there; None for an
        empty cluster
    power : watts, for policies that ask, and for the cap
    cap_w : most that the nodes may draw together, all awake; None for no cap
    slurm : how Slurm orders and plans its queue, for the rule slurm

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
    if policy == OWN_NODES and backfill == "slurm":
        policy, slurm = "fgd", slurm._replace(own_nodes=True)  # which is never asked
    case = case_of(problem, policy, seed, at_s, settings, cap_w)
    check_options(case, backfill, cap_w)
    schedule = simulate(case, backfill, problem, slurm)
    check_schedule(problem, schedule, backfill=backfill, at_s=at_s, cap_w=cap_w, power=settings,
                   limits=slurm.limits if backfill == "slurm" else None)
    check_promises(problem, schedule, case.promise_s)
    return schedule
