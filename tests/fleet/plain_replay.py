"""A replay with nothing kept from one moment to the next: slow, and easy to believe. What the engine must equal."""
from typing import Any

import numpy as np

from sched_lab.cluster import State
from sched_lab.fleet.replay.case import (
    FAR,
    Case,
    Desk,
    TimedTasks,
    desk_of,
    hold,
    in_use,
    node_milliwatts,
    price_anew,
    rise_milliwatt,
)
from sched_lab.fleet.replay.events import COMPARED
from sched_lab.fleet.replay.outages import NO_OUTAGES, Outages, lost_of
from sched_lab.fleet.replay.problem import Schedule
from sched_lab.lab.arrays import Floats, Truths
from sched_lab.online.bid import count_placed, is_due
from sched_lab.online.inflation import decide, kernels_for, stage_now
from sched_lab.online.model import lacking, open_nodes

NONE, FIRST_FIT, EASY, CONSERVATIVE = range(4)


def show_state(desk: Desk, empty: State, timed: TimedTasks, schedule: Schedule,
               until_s: Floats, moment_s: float) -> None:
    """Write what the tasks that run at a moment leave free to the world."""
    state = desk.world.state
    desk.world.limits.num[:] = 0
    open_nodes(desk.world.limits)
    state.cpu_left_milli[:] = empty.cpu_left_milli
    state.memory_left_mib[:] = empty.memory_left_mib
    state.gpu_left_milli[:] = empty.gpu_left_milli
    for task in range(len(schedule.node)):
        if schedule.start_s[task] <= moment_s < until_s[task]:
            hold(desk.world, timed, task, schedule, 1)


def show_least(desk: Desk, empty: State, timed: TimedTasks, schedule: Schedule,
               until_s: Floats, from_s: float, to_s: float) -> None:
    """Write the least that is free at any time of a span to the world, and who is there then."""
    state = desk.world.state
    cpu_left = empty.cpu_left_milli.copy()
    memory_left = empty.memory_left_mib.copy()
    gpu_left = empty.gpu_left_milli.copy()
    limits = desk.world.limits
    num = np.zeros_like(limits.num)
    for task in range(-1, len(schedule.node)):
        moment_s = from_s if task < 0 else schedule.start_s[task]
        if task < 0 or from_s < moment_s < to_s:
            show_state(desk, empty, timed, schedule, until_s, moment_s)
            cpu_left = np.minimum(cpu_left, state.cpu_left_milli)
            memory_left = np.minimum(memory_left, state.memory_left_mib)
            gpu_left = np.minimum(gpu_left, state.gpu_left_milli)
            num = np.maximum(num, limits.num)
    desk.world.residents[:] = 0
    for task in range(len(schedule.node)):
        start_s = schedule.start_s[task]
        if start_s <= from_s < until_s[task] or from_s < start_s < to_s:
            hold(desk.world, timed, task, schedule, 1)
    state.cpu_left_milli[:] = cpu_left
    state.memory_left_mib[:] = memory_left
    state.gpu_left_milli[:] = gpu_left
    limits.num[:] = num
    open_nodes(limits)


def is_closed(outages: Outages, num_nodes: int, moment_s: float, now_s: float) -> Truths:
    """Nodes where nothing may start at a moment: drains are known ahead, and of who is down nobody knows how long."""
    node, from_s, until_s, is_down, _ = outages
    seen_s = np.where(is_down, now_s, moment_s)
    closed = np.zeros(num_nodes, bool)
    closed[node[(from_s <= seen_s) & (seen_s < until_s)]] = True
    return closed


def show_stays_plainly(desk: Desk, timed: TimedTasks, schedule: Schedule, until_s: Floats, task: int,
                       from_s: float, to_s: float) -> None:
    """Write until when nodes and GPUs are expected to be in use, and for how long the task is to run."""
    stays = desk.world.stays
    stays.now_s[0] = from_s
    stays.lasts_s[0] = timed.expects_s[task]
    stays.node_until_s[:] = -np.inf
    stays.gpu_until_s[:] = -np.inf
    for other, node in enumerate(schedule.node):
        start_s = schedule.start_s[other]
        if start_s <= from_s < until_s[other] or from_s < start_s < to_s:
            again_s = desk.there.until_s[other]
            leaves_s = start_s + timed.expects_s[other] if np.isnan(again_s) else again_s
            stays.node_until_s[node] = max(stays.node_until_s[node], leaves_s)
            for gpu in range(stays.gpu_until_s.shape[1]):
                if schedule.gpu_mask[other] >> gpu & 1:
                    stays.gpu_until_s[node, gpu] = max(stays.gpu_until_s[node, gpu], leaves_s)


def expect_plainly(desk: Desk, timed: TimedTasks, schedule: Schedule, now_s: float) -> None:
    """Expect those who run longer than was expected to run as long again."""
    for task, end_s in enumerate(schedule.end_s):
        start_s, again_s = schedule.start_s[task], desk.there.until_s[task]
        leaves_s = start_s + timed.expects_s[task] if np.isnan(again_s) else again_s
        if start_s <= now_s < end_s and leaves_s <= now_s:
            desk.there.until_s[task] = now_s + max(1.0, now_s - start_s)
        elif not start_s <= now_s < end_s:
            desk.there.until_s[task] = np.nan


def decide_anew(kernels: Any, desk: Desk, empty: State, timed: TimedTasks, task: int, schedule: Schedule,
                until_s: Floats, from_s: float, to_s: float, closed: Truths) -> tuple[int, int]:
    """Ask the policy about the state in the world, of nodes that are open; nothing that is known of it is used."""
    show_stays_plainly(desk, timed, schedule, until_s, task, from_s, to_s)
    desk.in_use[:] = in_use(empty, desk.world.state)
    desk.world.state.cpu_left_milli[closed] -= FAR
    desk.memory.owner[:] = -1
    stage = stage_now(desk.weighing, 0, desk.in_use)
    return decide(kernels, desk.weighing, stage, desk.world, desk.memory, timed.asks, task)


def next_moment(timed: TimedTasks, schedule: Schedule, outages: Outages, now_s: float) -> float:
    """Next submission or end, or closing or opening of a node; inf if there is none."""
    next_s = np.inf
    for moment_s in [*outages.from_s, *outages.until_s]:
        if moment_s > now_s:
            next_s = min(next_s, moment_s)
    for task in timed.arrival:
        if timed.submit_s[task] > now_s:
            next_s = min(next_s, timed.submit_s[task])
    for end_s in schedule.end_s:
        if end_s > now_s:
            next_s = min(next_s, end_s)
    return next_s


def possible_starts(until_s: Floats, now_s: float, is_booked: bool, outages: Outages) -> Floats:
    """Moments at which a task may be tried, ascending: now, and if booked ahead all promised ends, also of drains."""
    starts = [now_s]
    if is_booked:
        for end_s in [*until_s, *outages.until_s[~outages.is_down]]:
            if now_s < end_s < np.inf:
                starts.append(end_s)
    return np.unique(np.array(starts))


def give_up_booking(schedule: Schedule, until_s: Floats, task: int) -> None:
    """Give up the booking of a task."""
    schedule.node[task] = -1
    schedule.gpu_mask[task] = 0
    schedule.start_s[task] = np.nan
    schedule.end_s[task] = np.nan
    until_s[task] = np.nan


def give_up_bookings(timed: TimedTasks, schedule: Schedule, until_s: Floats, now_s: float,
                     backfill: int) -> None:
    """Give up the bookings behind the first task that comes now, or all of EASY's."""
    is_behind = backfill == EASY
    for task in timed.task_at:
        is_behind |= timed.submit_s[task] == now_s
        is_for_now = backfill == EASY and schedule.start_s[task] == now_s  # asked again
        if is_behind and schedule.start_s[task] > now_s or is_for_now:
            give_up_parts(timed, schedule, until_s, task)


def book_plainly(timed: TimedTasks, schedule: Schedule, until_s: Floats, task: int, node: int,
                 gpu_mask: int, start_s: float, now_s: float) -> None:
    """Write down a start; who ends at once holds nothing."""
    schedule.node[task] = node
    schedule.gpu_mask[task] = gpu_mask
    schedule.start_s[task] = start_s
    schedule.end_s[task] = start_s + timed.duration_s[task]
    until_s[task] = start_s + timed.walltime_s[task]
    if schedule.end_s[task] == now_s:
        until_s[task] = now_s


def end_plainly(schedule: Schedule, until_s: Floats, now_s: float, is_freer: Truths) -> None:
    """Give back what those who have ended had asked for beyond."""
    for task in range(len(until_s)):
        if schedule.end_s[task] <= now_s < until_s[task] and schedule.start_s[task] <= now_s:
            until_s[task] = now_s
            is_freer[schedule.node[task]] = True


def parts_of(timed: TimedTasks, job: int) -> list[int]:
    """All parts of a job, the first first."""
    parts = [job]
    while timed.next_part[parts[-1]] >= 0:
        parts.append(timed.next_part[parts[-1]])
    return parts


def give_up_parts(timed: TimedTasks, schedule: Schedule, until_s: Floats, job: int) -> None:
    """Give up the bookings of all parts of a job."""
    for part in parts_of(timed, job):
        give_up_booking(schedule, until_s, part)


def book_all_parts(kernels: Any, desk: Desk, empty: State, timed: TimedTasks, job: int, start_s: float, to_s: float,
                   now_s: float, schedule: Schedule, until_s: Floats, outages: Outages) -> bool:
    """Start all parts of a job at a moment, each where the policy puts it beside those before, or none."""
    for part in parts_of(timed, job):
        show_least(desk, empty, timed, schedule, until_s, start_s, to_s)
        drawn_mw = node_milliwatts(desk.world)
        drawn_mw[is_closed(outages.of(outages.is_down), len(drawn_mw), now_s, now_s)] = 0
        node, gpu_mask = decide_anew(kernels, desk, empty, timed, part, schedule, until_s, start_s, to_s,
                                     is_closed(outages, len(drawn_mw), start_s, now_s))
        if node >= 0 and timed.cap_mw < np.inf:
            rise_mw = rise_milliwatt(desk.world, timed.asks.task[part], node, gpu_mask)
            node = node if drawn_mw.sum() + rise_mw <= timed.cap_mw else -1
        if node < 0:
            give_up_parts(timed, schedule, until_s, job)
            return False
        book_plainly(timed, schedule, until_s, part, node, gpu_mask, start_s, now_s)
    return True


def move_up_parts_plainly(kernels: Any, desk: Desk, empty: State, timed: TimedTasks, now_s: float, job: int,
                          schedule: Schedule, until_s: Floats, is_freer: Truths, outages: Outages) -> None:
    """Let all parts of a job start earlier, or stay."""
    parts = parts_of(timed, job)
    own = [(schedule.node[part], schedule.gpu_mask[part]) for part in parts]
    old_s = np.inf if own[0][0] < 0 else schedule.start_s[job]
    give_up_parts(timed, schedule, until_s, job)
    for start_s in possible_starts(until_s, now_s, True, outages):
        if start_s < old_s and book_all_parts(kernels, desk, empty, timed, job, start_s,
                                              start_s + timed.walltime_s[job], now_s, schedule, until_s, outages):
            for node, _ in own:
                is_freer[node] |= node >= 0
            return
    if own[0][0] >= 0:
        for part, (node, gpu_mask) in zip(parts, own, strict=True):
            book_plainly(timed, schedule, until_s, part, node, gpu_mask, old_s, now_s)


def move_up_plainly(kernels: Any, desk: Desk, empty: State, timed: TimedTasks, now_s: float,
                    schedule: Schedule, until_s: Floats, is_freer: Truths, outages: Outages) -> None:
    """Let who waits, in order, move to an earlier start on a node that became freer."""
    for task in timed.task_at:
        if timed.submit_s[task] >= now_s or schedule.start_s[task] <= now_s:
            continue
        if timed.next_part[task] >= 0:
            if is_freer.any():
                move_up_parts_plainly(kernels, desk, empty, timed, now_s, task, schedule, until_s, is_freer,
                                      outages)
            continue
        node = schedule.node[task]
        gpu_mask = schedule.gpu_mask[task]
        old_s = np.inf if node < 0 else schedule.start_s[task]
        give_up_booking(schedule, until_s, task)
        is_moved = False
        for start_s in possible_starts(until_s, now_s, True, outages):
            if start_s >= old_s or is_moved:
                break
            closed = is_closed(outages, len(is_freer), start_s, now_s)
            show_least(desk, empty, timed, schedule, until_s, start_s,
                       start_s + timed.walltime_s[task])
            for freer in np.flatnonzero(is_freer & ~closed):
                is_moved |= lacking(desk.world, timed.asks.task[task],
                                    timed.asks.memory_mib[task], freer) == 0
            if is_moved:
                is_freer[node] |= node >= 0
                node, gpu_mask = decide_anew(kernels, desk, empty, timed, task, schedule, until_s, start_s,
                                             start_s + timed.walltime_s[task], closed)
                book_plainly(timed, schedule, until_s, task, node, gpu_mask, start_s, now_s)
        if not is_moved and node >= 0:
            book_plainly(timed, schedule, until_s, task, node, gpu_mask, old_s, now_s)


def serve_plainly(kernels: Any, desk: Desk, empty: State, timed: TimedTasks, now_s: float,
                  backfill: int, schedule: Schedule, until_s: Floats, outages: Outages, is_anew: bool) -> None:
    """Try all waiting tasks in their order, if `is_anew` whoever has come; parameters as `replay_plainly`."""
    is_over = np.zeros(len(timed.task_at), np.bool_)  # requests that found too few watts or no room
    is_behind = backfill != CONSERVATIVE or is_anew
    has_booked = False
    for task in timed.task_at:
        is_behind |= timed.submit_s[task] == now_s
        if not is_behind:
            continue
        if timed.submit_s[task] > now_s or schedule.node[task] >= 0:
            continue
        if timed.cap_mw < np.inf and is_over[timed.request[task]]:
            continue
        is_booked = backfill == CONSERVATIVE or backfill == EASY and not has_booked
        for start_s in possible_starts(until_s, now_s, is_booked, outages):
            end_s = start_s + timed.duration_s[task]
            to_s = start_s + timed.walltime_s[task] if backfill >= EASY else start_s
            is_booked_now = book_all_parts(kernels, desk, empty, timed, task, start_s, to_s, now_s, schedule, until_s,
                                           outages)
            is_over[timed.request[task]] = not is_booked_now
            if is_booked_now:
                has_booked |= start_s > now_s
                show_state(desk, empty, timed, schedule, until_s, start_s)
                if end_s > start_s:
                    for part in parts_of(timed, task):
                        count_placed(desk.world, timed.asks.task[part])
                if is_due(desk.world):
                    closed = is_closed(outages, len(desk.world.gpu_model), now_s, now_s)
                    desk.world.state.cpu_left_milli[closed] -= FAR
                    price_anew(kernels, desk)
                break
        if schedule.node[task] < 0 and backfill == NONE:
            return


def stop_plainly(timed: TimedTasks, schedule: Schedule, until_s: Floats, outages: Outages, now_s: float,
                 is_freer: Truths) -> list[tuple[int, int, int, float, float]]:
    """Stop all jobs that run on nodes that go down now, and give up what is booked; runs of those that wait again."""
    lost = []
    for task in timed.task_at:
        if schedule.start_s[task] >= now_s:
            give_up_parts(timed, schedule, until_s, task)
    for node in range(len(is_freer)):
        for one in np.flatnonzero((outages.node == node) & (outages.from_s == now_s) & outages.is_down)[:1]:
            for job in timed.task_at:
                parts = parts_of(timed, job)
                if any(schedule.node[part] == node and schedule.end_s[part] > now_s for part in parts):
                    for part in parts:
                        end_s = min(schedule.end_s[part], now_s)
                        if outages.requeues[one]:
                            lost.append((part, schedule.node[part], schedule.gpu_mask[part], schedule.start_s[part],
                                         end_s))
                            give_up_booking(schedule, until_s, part)
                        else:
                            schedule.end_s[part] = until_s[part] = end_s
    return lost


def replay_plainly(kernels: Any, desk: Desk, empty: State, timed: TimedTasks, backfill: int,
                   schedule: Schedule, outages: Outages) -> list[tuple[int, int, int, float, float]]:
    """Replay with nothing kept from one moment to the next: slow, and easy to believe.

    Parameters
    ----------
    kernels, desk : the policy's scores; weights and the cluster
    empty : what the nodes have
    timed, schedule : the tasks; those that run already, completed
    backfill : place in `COMPARED`
    outages : when nodes are closed

    Returns
    -------
    runs that outages stopped, as `note_stop` adds them
    """
    lost = []
    price_anew(kernels, desk)
    until_s = schedule.start_s + timed.walltime_s
    is_freer = np.zeros(len(empty.cpu_left_milli), np.bool_)
    now_s = next_moment(timed, schedule, outages, -np.inf)
    while now_s < np.inf:
        is_freer[:] = False
        moments_s = np.append(outages.from_s, outages.until_s)
        is_anew = bool((np.tile(outages.is_down, 2) & (moments_s == now_s)).any())
        if is_anew:
            lost += stop_plainly(timed, schedule, until_s, outages, now_s, is_freer)
        end_plainly(schedule, until_s, now_s, is_freer)
        expect_plainly(desk, timed, schedule, now_s)
        if backfill == CONSERVATIVE and is_freer.any() and not is_anew:
            move_up_plainly(kernels, desk, empty, timed, now_s, schedule, until_s, is_freer, outages)
        if backfill >= EASY:
            give_up_bookings(timed, schedule, until_s, now_s, backfill)
        serve_plainly(kernels, desk, empty, timed, now_s, backfill, schedule, until_s, outages, is_anew)
        now_s = next_moment(timed, schedule, outages, now_s)
    return lost


def replay_plain(case: Case, backfill: str, outages: Outages = NO_OUTAGES) -> Schedule:
    """Complete the schedule of a case by a rule of the queue."""
    desk = desk_of(case)
    kernels = kernels_for(case.policy, case.world, desk.by_score)
    lost = replay_plainly(kernels, desk, case.empty.state, case.timed, COMPARED.index(backfill), case.schedule, outages)
    return case.schedule._replace(lost=lost_of(lost))
