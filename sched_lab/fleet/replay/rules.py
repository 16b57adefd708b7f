"""The rules that a schedule must keep: times, Cond. 1-8 at every moment, the order of the queue, and a cap on power."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...cluster import WHOLE_GPU_MILLI
from ...lab.arrays import Floats, Integers, Truths
from ...lab.jit import njit
from ...holdings import Bookings, Holdings, overfull
from ...meter import power_steps
from ...online.model import (
    PowerSettings,
    World,
    all_admitted,
)
from .case import (
    FAR,
    Case,
    TimedTasks,
    case_of,
    first_place,
    fits_together,
    hold,
    node_among,
    node_milliwatts,
    parts_of_jobs,
)
from .limits import Limits, past_limits
from .outages import Closings
from .problem import Problem, Schedule, power_of_problem, recorded, running_at, with_lost

__all__ = ['check_schedule', 'violations']


def time_violations(problem: Problem, schedule: Schedule) -> Iterator[str]:
    """Tasks that start before they are submitted, or do not run as long as they should."""
    name = problem.tasks.name
    has_started = schedule.node >= 0
    has_times = ~np.isnan(schedule.start_s) & ~np.isnan(schedule.end_s)
    late_s = schedule.start_s - problem.submit_s
    end_s = schedule.start_s + problem.duration_s
    asked_s = problem.duration_s if problem.walltime_s is None else problem.walltime_s
    for is_wrong, words in (
            (has_started != has_times, "has a node without times, or times without a node"),
            (has_started & (late_s < 0), "starts before it is submitted"),
            (has_started & (schedule.end_s != end_s), "does not run for its duration"),
            (has_started & (schedule.end_s > schedule.start_s + asked_s),
             "runs for longer than its walltime")):
        for task in np.flatnonzero(is_wrong).tolist():
            yield f"time: task {name[task]} {words}, at {schedule.start_s[task]} s"


def job_violations(problem: Problem, schedule: Schedule, ran: Truths) -> Iterator[str]:
    """Jobs of which the parts do not start together, or are not all there; of none that ran before; as `place_violations`."""
    first, _ = parts_of_jobs(problem.job, len(ran))
    start_s = np.where(schedule.node >= 0, schedule.start_s, np.inf)
    is_apart = (start_s != start_s[first]) & ~ran & ~ran[first]
    for task in np.flatnonzero(is_apart).tolist():
        yield (f"job: task {problem.tasks.name[task]} does not start with "
               f"{problem.tasks.name[first[task]]}, a part of the same job, at {start_s[task]} s")
    if problem.lacking_parts is None:
        return
    starts = (problem.lacking_parts > 0) & np.isnan(problem.start_s) & (schedule.node >= 0) & ~ran
    for task in np.flatnonzero(starts).tolist():
        yield f"job: task {problem.tasks.name[task]} starts, and not all parts of its job are there"


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


def excesses(problem: Problem, schedule: Schedule, condition: str, tasks: Integers,
             unit: Integers, amount: Integers, room: Integers, *, size: int = 1,
             what: str = "") -> Iterator[tuple[int, str]]:
    """Units that hold more than they have, and from when on: a task there, and a sentence.

    Parameters
    ----------
    problem, schedule : as `check_schedule`
    condition, what : what is broken, and of what there is too much
    tasks, unit, amount : (bookings,) who holds so much, and of which unit
    room, size : (units,) what each has; units of a node
    """
    spells = overfull(Bookings(unit, tasks, schedule.start_s[tasks], schedule.end_s[tasks], amount),
                      room)
    for one, task, from_s, _, most in zip(*spells, strict=True):
        yield task, (f"{condition}: node {problem.cluster.name[one // size]} holds {most} of {room[one]}"
                     f"{what} from {from_s} s, with task {problem.tasks.name[task]}")


def capacity_violations(problem: Problem, schedule: Schedule) -> Iterator[tuple[int, str]]:
    """Nodes and GPUs that hold more than they have (Cond. 1-3), as `excesses`."""
    cluster = problem.cluster
    tasks = np.flatnonzero(schedule.node >= 0)
    node = schedule.node[tasks]
    most_gpus = int(cluster.num_gpus.max(initial=0))
    of_gpu = [np.flatnonzero(schedule.gpu_mask[tasks] >> gpu & 1) for gpu in range(most_gpus)]
    for condition, amount, room in (
            ("Cond. 1 (CPU)", problem.tasks.cpu_milli, cluster.cpu_milli),
            ("Cond. 2 (memory)", problem.tasks.memory_mib, cluster.memory_mib)):
        yield from excesses(problem, schedule, condition, tasks, node, amount[tasks], room)
    taken, gpu = np.concatenate([tasks[:0], *of_gpu]), np.repeat(np.arange(most_gpus), list(map(len, of_gpu)))
    yield from excesses(problem, schedule, "Cond. 3 (GPU)", tasks[taken],
                        node[taken] * most_gpus + gpu, problem.tasks.gpu_milli[tasks[taken]],
                        np.full(len(cluster) * most_gpus, WHOLE_GPU_MILLI), size=most_gpus)


def limit_violations(problem: Problem, schedule: Schedule) -> Iterator[tuple[int, str]]:
    """Nodes with more tasks of an application (Cond. 7), or more instances, than they may hold, as `excesses`."""
    if problem.instances is not None:
        profiles, need, room = problem.instances
        tasks = np.flatnonzero(schedule.node >= 0)
        for profile, own, there in zip(profiles, need.T, room.T, strict=True):
            yield from excesses(problem, schedule, "Cond. 8 (instances)", tasks,
                                schedule.node[tasks], own[tasks], there, what=f" {profile}")
    if problem.app is None or problem.most_per_node is None:
        return
    held = (schedule.node >= 0) & (schedule.end_s > schedule.start_s)
    tasks = np.flatnonzero(held & (problem.most_per_node > 0))
    node_and_app = zip(schedule.node[tasks].tolist(), problem.app[tasks], strict=True)
    unit, units = pd.factorize(pd.Index(list(node_and_app), tupleize_cols=False))
    each = Bookings(unit, tasks, schedule.start_s[tasks], schedule.end_s[tasks],
                    np.ones_like(tasks))
    for most in np.unique(problem.most_per_node[tasks]).tolist():
        asks = problem.most_per_node[tasks] == most
        for one, _, from_s, until_s, _ in zip(*overfull(each, np.full(len(units), float(most))),
                                              strict=True):
            there = tasks[asks & (unit == one)]
            there = there[(schedule.start_s[there] < until_s) & (schedule.end_s[there] > from_s)]
            for task in there[:1].tolist():
                node, app = units[one]
                moment_s = max(from_s, schedule.start_s[task])
                yield task, (f"Cond. 7 (instances): node {problem.cluster.name[node]} holds more than "
                             f"{most} tasks of {app} at {moment_s} s, and task "
                             f"{problem.tasks.name[task]} allows no more")


def outage_violations(problem: Problem, schedule: Schedule, ran: Truths, full_s: Floats,
                      at_s: float | None = None) -> Iterator[str]:
    """Tasks that start on a closed node or run on one that is down, and runs that end early for no reason.

    Parameters
    ----------
    problem, schedule : each run as a task (`with_lost`)
    ran : (runs,) those of tasks that ran before, which wait no more when they are stopped
    full_s : (runs,) how long each would have run
    at_s : as in `replay`; who ran then by the record is not stopped by an outage from before
    """
    if problem.outages is None:
        return
    names, node_names = problem.tasks.name, problem.cluster.name
    order = np.argsort(schedule.node, kind="stable")
    stopped_by: dict[tuple[int, float], bool] = {}
    for node, from_s, until_s, is_down, requeues in zip(*map(np.ndarray.tolist, problem.outages), strict=True):
        rows = order[slice(*np.searchsorted(schedule.node[order], [node, node + 1]))]
        start_s, end_s = schedule.start_s[rows], schedule.end_s[rows]
        for task in rows[(start_s >= from_s) & (start_s < until_s) & ~ran[rows]].tolist():
            yield (f"outage: task {names[task]} starts at {schedule.start_s[task]} s on node "
                   f"{node_names[node]}, which is closed from {from_s} s until {until_s} s")
        if is_down and (at_s is None or from_s > at_s):
            stopped_by.setdefault((node, from_s), requeues)
            for task in rows[(start_s < from_s) & (end_s > from_s)].tolist():
                yield (f"outage: task {names[task]} runs on node {node_names[node]} when it goes down, "
                       f"at {from_s} s")
    is_short = (schedule.node >= 0) & (schedule.end_s < schedule.start_s + full_s)
    is_lost = problem.duration_s < full_s
    job = np.arange(len(ran)) if problem.job is None else problem.job
    stop_s = np.full(job.max(initial=-1) + 1, np.nan)
    for task in np.flatnonzero(is_short).tolist():
        requeues = stopped_by.get((int(schedule.node[task]), float(schedule.end_s[task])))
        if requeues is not None and (requeues and not ran[task]) == is_lost[task]:
            stop_s[job[task]] = schedule.end_s[task]
    for task in np.flatnonzero(is_short & (schedule.end_s != stop_s[job])).tolist():
        yield (f"outage: task {names[task]} ends at {schedule.end_s[task]} s before its time, and no node of its "
               f"job goes down{' so that it waits again' if is_lost[task] else ''}")


def record_violations(problem: Problem, schedule: Schedule, before: Schedule,
                      at_s: float) -> Iterator[str]:
    """Tasks of the time before a moment that are not where they were by the record, `before`."""
    runs = running_at(before, at_s)
    moved = runs & ((schedule.node != before.node) | (schedule.gpu_mask != before.gpu_mask)
                    | (schedule.start_s != before.start_s))
    again = (before.end_s <= at_s) & (schedule.node >= 0)
    early = ~runs & (schedule.start_s < at_s)
    for is_wrong, words in ((moved, "runs already, and was moved"), (again, "has ended already"),
                            (early, "starts before the beginning")):
        for task in np.flatnonzero(is_wrong).tolist():
            yield f"record: task {problem.tasks.name[task]} {words}, at {at_s} s"


def violations(problem: Problem, schedule: Schedule, ran: Truths | None = None,
               at_s: float | None = None) -> Iterator[str]:
    """Sentences about times and places that cannot be, whoever made the schedule.

    Parameters
    ----------
    problem, schedule, at_s : as `check_schedule`
    ran : as `place_violations`; None for nobody
    """
    full_s = problem.duration_s
    problem, schedule, task = with_lost(problem, schedule)
    before = np.zeros(len(task), bool) if ran is None else ran[task]
    if problem.outages is not None:
        yield from outage_violations(problem, schedule, before, full_s[task], at_s)
        is_stopped = schedule.end_s - schedule.start_s < problem.duration_s  # as it has been checked
        problem = replace(problem, duration_s=np.where(is_stopped, schedule.end_s - schedule.start_s,
                                                       problem.duration_s))
    yield from time_violations(problem, schedule)
    yield from place_violations(problem, schedule, before)
    for _, sentence in chain(capacity_violations(problem, schedule), limit_violations(problem, schedule)):
        yield sentence


def down_at(problem: Problem, moment_s: float) -> Integers:
    """Nodes that are down at a moment."""
    if problem.outages is None:
        return np.zeros(0, np.int64)
    node, from_s, until_s, is_down, _ = problem.outages
    return np.unique(node[is_down & (from_s <= moment_s) & (moment_s < until_s)])


def cap_violations(problem: Problem, schedule: Schedule, power: PowerSettings, cap_w: float,
                   comes: Truths, idle_mw: Integers) -> Iterator[str]:
    """The first moment at which tasks start and the nodes then draw more than a cap.

    Parameters
    ----------
    problem, schedule : each run as a task (`with_lost`)
    power, cap_w : as `check_schedule`
    comes : (runs,) whether its start was decided, not recorded
    idle_mw : (nodes,) what each draws without tasks, unless it is down
    """
    ran = np.flatnonzero(schedule.node >= 0)
    held = Holdings(schedule.node[ran], schedule.gpu_mask[ran], problem.tasks.gpu_milli[ran],
                    problem.tasks.cpu_milli[ran], schedule.start_s[ran], schedule.end_s[ran])
    moments, drawn_mw = power_steps(problem.cluster, held, power_of_problem(problem, power))
    if not len(drawn_mw):  # nothing ran, or nothing took any time
        return
    starts = np.flatnonzero((moments.sign < 0) & comes[ran[moments.row]])
    at_s, first = np.unique(moments.at_s, return_index=True)
    then_mw = drawn_mw[np.append(first[1:], len(drawn_mw)) - 1]
    last = np.full(len(at_s), -1)
    last[np.searchsorted(at_s, moments.at_s[starts])] = ran[moments.row[starts]]
    for one in np.flatnonzero((last >= 0) & (then_mw > 1000 * cap_w)).tolist():
        drawn = then_mw[one] - idle_mw[down_at(problem, at_s[one])].sum()
        if drawn > 1000 * cap_w:
            yield (f"cap: {drawn / 1000:,.10g} W of {cap_w:,.10g} W from {at_s[one]} s on, "
                   f"with task {problem.tasks.name[last[one]]}")
            return


END, CLOSING, ARRIVAL, START = range(4)
OVERTAKEN = -2
NOTHING = -1
LATE = -3
NOWHERE, AT_ORDER, AT_NODES = range(3)


class Happenings(NamedTuple):
    """(happenings,) time, what (end, closing, arrival or start) and which task or closing, in order."""

    time_s: Floats
    what: Integers
    task: Integers


def happenings_of(case: Case) -> Happenings:
    """What happens in the schedule of a case to the tasks that come, and to those before."""
    schedule = case.schedule
    order = case.timed.task_at
    started = np.flatnonzero(schedule.node >= 0)
    held = started[schedule.end_s[started] > schedule.start_s[started]]
    ended = held[np.isfinite(schedule.end_s[held])]
    closing_s = case.timed.closings.at_s
    time_s = np.concatenate([schedule.end_s[ended], closing_s, case.timed.submit_s[order],
                             schedule.start_s[started]])
    what = np.repeat([END, CLOSING, ARRIVAL, START], [len(ended), len(closing_s), len(order), len(started)])
    by_time = np.lexsort((what, time_s))
    return Happenings(time_s[by_time], what[by_time],
                      np.concatenate([ended, np.arange(len(closing_s)), order, started])[by_time])


@njit(cache=True)
def shut(world: World, closings: Closings, one: int, num_closed: Integers, sign: int) -> None:
    """Let a node close or open (sign 1), or take that back (-1): nothing has room on one that is closed."""
    node, change = closings.node[one], sign * closings.change[one]
    num_closed[node] += change
    if num_closed[node] == max(change, 0):
        world.state.cpu_left_milli[node] -= change * FAR


@njit(cache=True)
def node_of_job(world: World, timed: TimedTasks, job: int, nodes: list[int]) -> int:
    """First node for a job as they stand, -1 if it has no room; `nodes` are all that one of one part may have."""
    if timed.next_part[job] < 0:
        return node_among(world, timed.asks, job, nodes)
    if fits_together(world, timed.asks, timed.next_part, job):
        return first_place(world, timed.asks, job)[0]
    return NOTHING


@njit(cache=True)
def promised_start(world: World, timed: TimedTasks, job: int, running: list[int],
                   schedule: Schedule, now_s: float, closed: int, num_closed: Integers) -> float:
    """First moment at which a job fits if all that run go on for their walltimes; inf if never.

    Nodes close and open as they are known to, for drains; so many of the closings are over, and
    `num_closed` (nodes,) outages last now.
    """
    there = [(np.inf, -1)]
    for other in running:
        heappush(there, (schedule.start_s[other] + timed.walltime_s[other], other))
    left = [0]
    left.clear()
    closings = timed.closings
    one = closed
    at_s = now_s
    nodes = list(range(len(world.gpu_model)))  # of which something has been left since the last look
    while at_s < np.inf:
        if node_of_job(world, timed, job, nodes) != NOTHING:
            break
        nodes.clear()
        at_s = there[0][0]
        while one < len(closings.at_s) and closings.is_down[one]:
            one += 1
        if one < len(closings.at_s):
            at_s = min(at_s, closings.at_s[one])
        while one < len(closings.at_s) and closings.at_s[one] == at_s:
            if not closings.is_down[one]:
                shut(world, closings, one, num_closed, 1)
                nodes.append(closings.node[one])
            one += 1
        while there[0][0] == at_s < np.inf:
            _, other = heappop(there)
            hold(world, timed, other, schedule, -1)
            left.append(other)
            nodes.append(schedule.node[other])
    for other in left:
        hold(world, timed, other, schedule, 1)
    for back in range(one - 1, closed - 1, -1):
        if not closings.is_down[back]:
            shut(world, closings, back, num_closed, -1)
    return at_s


@njit(cache=True)
def retrace(world: World, timed: TimedTasks, happenings: Happenings, schedule: Schedule,
            looks: int, promised_s: Floats | None) -> tuple[float, int, int]:
    """Go through a schedule, and look whether the head of the queue waits for no reason.

    Parameters
    ----------
    world, timed : the empty cluster, in the end in its last state; the tasks
    happenings, schedule : what happens, and who is where
    looks : what is looked at: `NOWHERE`, whether the head is overtaken, or whether it also fits
    promised_s : (1,) when all that run would let the head start by their walltimes, inf: then it is
        looked whether it starts later instead; else None, and what it would need is not compiled

    Returns
    -------
    when, which task, and the node on which it fits, or `OVERTAKEN`, or `LATE`; nothing is wrong
    with `NOTHING`
    """
    waiting = [0]
    waiting.clear()
    every = list(range(len(world.gpu_model)))
    nodes = [0]  # left at this moment
    head = -1
    last = -1  # place of the last one in the queue that starts at this moment
    first = len(timed.task_at)  # place of the first one that comes at this moment
    running = [0]
    running.clear()
    closed = 0
    num_closed = np.zeros(len(world.gpu_model), np.int64)
    has_failed = False
    for n in range(len(happenings.task)):
        task = happenings.task[n]
        now_s = happenings.time_s[n]
        if n == 0 or now_s > happenings.time_s[n - 1]:
            nodes.clear()
            last = -1
            first = len(timed.task_at)
            has_failed = False
        if happenings.what[n] == CLOSING:
            shut(world, timed.closings, task, num_closed, 1)
            closed += 1
            has_failed |= timed.closings.is_down[task]
            nodes.append(timed.closings.node[task])
        elif happenings.what[n] == ARRIVAL:
            heappush(waiting, timed.place[task])
            first = min(first, timed.place[task])
        elif happenings.what[n] == END:
            hold(world, timed, task, schedule, -1)
            nodes.append(schedule.node[task])
            if promised_s is not None:
                running.remove(task)
        else:
            last = max(last, timed.place[task])
            if schedule.end_s[task] > now_s:
                hold(world, timed, task, schedule, 1)
                if promised_s is not None:
                    running.append(task)
        is_over = n + 1 == len(happenings.task) or happenings.time_s[n + 1] > now_s
        while len(waiting) > 0 and is_over and schedule.start_s[timed.task_at[waiting[0]]] <= now_s:
            if promised_s is not None:
                if waiting[0] == head and first > head and now_s > promised_s[0] and not has_failed:
                    return now_s, timed.task_at[head], LATE
            heappop(waiting)
        if looks != NOWHERE and is_over and len(waiting) > 0:
            task = timed.task_at[waiting[0]]
            is_new = waiting[0] != head
            node = NOTHING
            if looks == AT_NODES:
                node = node_of_job(world, timed, task, every if is_new else nodes)
            head = waiting[0]
            if promised_s is not None:
                if is_new or first < head or has_failed:
                    promised_s[0] = np.inf
                    if timed.walltime_s[task] > 0:  # who asks for no time can have none set aside
                        promised_s[0] = promised_start(world, timed, task, running, schedule, now_s, closed, num_closed)
                if now_s >= promised_s[0]:
                    return now_s, task, LATE
                continue
            if head < last or node != NOTHING:
                return now_s, task, OVERTAKEN if head < last else node
    return 0.0, 0, NOTHING


def queue_violations(problem: Problem, case: Case, backfill: str) -> Iterator[str]:
    """Tasks that wait for no reason, or are refused for none.

    Parameters
    ----------
    problem, backfill : as `check_schedule`
    case : of the problem, its schedule complete, its world empty
    """
    task_name, node_name = problem.tasks.name, problem.cluster.name
    world, timed, schedule = case.world, case.timed, case.schedule
    is_capped = timed.cap_mw < np.inf
    looks = {"none": AT_ORDER if is_capped else AT_NODES, "easy": AT_ORDER}.get(backfill, NOWHERE)
    moment_s, task, node = retrace(world, timed, happenings_of(case), schedule, looks,
                                   np.full(1, np.inf) if backfill == "easy" else None)
    if node == OVERTAKEN:
        yield f"queue: task {task_name[task]} waits at {moment_s} s, and one behind it starts"
    elif node == LATE:
        yield (f"queue: task {task_name[task]} is first, and waits at {moment_s} s, though those that "
               "ran when it came first would have left room by their walltimes")
    elif node != NOTHING:
        yield (f"queue: task {task_name[task]} waits at {moment_s} s, and fits on node "
               f"{node_name[node]}")
    elif backfill not in ("none", "slurm") and not is_capped:  # Slurm looks no deeper than bf_max_job_test
        never = timed.task_at[schedule.node[timed.task_at] < 0]
        asked = np.column_stack([timed.asks.task[never], timed.asks.memory_mib[never],
                                 np.where(timed.next_part[never] < 0, -1, never)])
        for task in never[np.unique(asked, axis=0, return_index=True)[1]].tolist():
            if fits_together(world, timed.asks, timed.next_part, task):
                node = first_place(world, timed.asks, task)[0]
                yield (f"queue: task {task_name[task]} never starts, and fits on node "
                       f"{node_name[node]} in the end")


def check_promises(problem: Problem, schedule: Schedule, promise_s: Floats) -> None:
    """Check that every task starts when conservative backfill had promised, or earlier.

    Parameters
    ----------
    problem, schedule : as `check_schedule`
    promise_s : (tasks,) start that was promised, inf for none; void when one comes before it in
        the queue, and promised anew

    Raises
    ------
    ValueError : naming the first task that starts later, or never
    """
    for task in np.flatnonzero(np.isfinite(promise_s) & ~(schedule.start_s <= promise_s)).tolist():
        raise ValueError(f"queue: task {problem.tasks.name[task]} was promised a start at "
                         f"{promise_s[task]} s, and starts at {schedule.start_s[task]} s")


def check_schedule(problem: Problem, schedule: Schedule, *, backfill: str | None = None,
                   at_s: float | None = None, cap_w: float | None = None,
                   power: PowerSettings = PowerSettings(),  # noqa: B008
                   limits: Limits | None = None) -> None:
    """Check a schedule against times, Cond. 1-8 at every moment, the rules of the queue, and limits.

    Parameters
    ----------
    problem, schedule : the tasks, and what became of them
    backfill : rule of the queue, as in `replay`; None for no rule, as with a record
    at_s, cap_w, power : as in `replay`
    limits : those of `--backfill slurm`; None for none

    Raises
    ------
    ValueError : naming condition, task, node and time of the first violation
    """
    for sentence in faults(problem, schedule, backfill, at_s, cap_w, power, limits):
        raise ValueError(sentence)


def faults(problem: Problem, schedule: Schedule, backfill: str | None, at_s: float | None,
           cap_w: float | None, power: PowerSettings, limits: Limits | None = None) -> Iterator[str]:
    """Sentences about what `check_schedule` finds."""
    if at_s is None:
        yield from violations(problem, schedule)
    else:
        before = recorded(problem)
        yield from violations(problem, schedule, running_at(before, at_s), at_s)
        yield from record_violations(problem, schedule, before, at_s)
    if backfill is None and cap_w is None:
        return
    submit_s = problem.submit_s
    problem, schedule, task = with_lost(problem, schedule)
    if backfill is not None and (problem.job is not None or problem.lacking_parts is not None):
        ran = (np.zeros(len(schedule.node), bool) if at_s is None
               else recorded(problem).start_s <= at_s)
        yield from job_violations(problem, schedule, ran)
    if limits is not None:
        yield from past_limits(limits, problem, schedule, np.zeros(len(task), bool) if at_s is None
                                    else recorded(problem).start_s <= at_s)
    no_watts = PowerSettings(gpu_power_w=dict.fromkeys(problem.cluster.gpu_model, (0, 0)))
    in_line = replace(problem, submit_s=submit_s[task])  # who was stopped has its old place
    case = case_of(in_line, "fgd", 0, at_s, no_watts if cap_w is None else power, cap_w)
    again_s = np.where(problem.submit_s > submit_s[task], problem.submit_s, case.timed.submit_s)
    idle_mw = np.zeros(0, np.int64) if cap_w is None else node_milliwatts(case.empty)
    case = replace(case, schedule=schedule, world=case.empty, timed=case.timed._replace(submit_s=again_s))
    if backfill is not None:
        yield from queue_violations(problem, case, backfill)
    if cap_w is not None:
        yield from cap_violations(problem, schedule, power, cap_w, case.comes, idle_mw)
