"""Bounds, phases 1 and 2 and fixed partitions of many batches as array programs, and what has to stay one by one."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..lab.arrays import (
    Array,
    Floats,
    Integers,
    free_bytes,
    get_xp,
    put,
    that_fit,
    to_device,
    to_host,
)
from ..lab.frames import InputError
from .allocations import EQUAL_WORK
from .baselines import fix_partition, on_all_gpus, partition_name
from .bounds import start_loss
from .mig import Mig, Schedule, Tree, partitions, without_reconfiguration
from .refine import ROUNDING, check_times, refine
from .repartition import loads, run_plan, schedule_of

__all__ = ['score_runs']


class Runs(NamedTuple):
    """Batches of equally many tasks side by side on one device.

    Parameters
    ----------
    xp : array functions of the device
    mig, tree : the GPUs, and their tree on the device
    times_s, work : (sizes, tasks, runs) run times in s, and these times the slices
    """

    xp: Any
    mig: Mig
    tree: Tree
    times_s: Array
    work: Array


def check_runs(mig: Mig, times_s: Floats | Sequence[Floats]) -> Floats:
    """Give the batches back as one array (runs, tasks, sizes).

    Raises
    ------
    InputError : if there is none, their numbers of tasks differ, or `check_times` finds fault with
        one
    """
    lengths = sorted({len(one) for one in times_s})
    if len(lengths) != 1 or lengths == [0]:
        raise InputError(f"batches of {' and '.join(map(str, lengths)) or 'no'} tasks",
                         mend="give batches of equally many tasks, at least one of each")
    checked = []
    for run, one in enumerate(times_s):
        try:
            checked.append(check_times(mig, one))
        except InputError as error:
            raise InputError(f"batch {run}: {error}", value=run) from None
    return np.array(checked)


def runs_of(mig: Mig, times_s: Floats | Sequence[Floats], xp: Any) -> Runs:
    """Batches (runs, tasks, sizes) side by side on the device of `xp`."""
    of_sizes = np.ascontiguousarray(check_runs(mig, times_s).transpose(2, 1, 0))
    work = np.array(mig.sizes)[:, None, None] * of_sizes
    return Runs(xp, mig, *to_device((mig.tree, of_sizes, work), xp))


def added_up(xp: Any, values: Array) -> Array:
    """Sum over the first axis, row after row: the same last digit on every device."""
    total = xp.zeros(values.shape[1:], dtype=xp.float64)
    for row in range(values.shape[0]):
        total = total + values[row, ...]
    return total


def ideals_s(runs: Runs) -> Array:
    """(runs,) least work of all tasks over all slices: the array form of `area_bound`."""
    return added_up(runs.xp, runs.xp.min(runs.work, axis=0)) / runs.mig.total_slices


def longest_bounds_s(runs: Runs) -> Array:
    """(runs,) longest task, each where it is fastest: the array form of `longest_bound`."""
    return runs.xp.max(runs.xp.min(runs.times_s, axis=0), axis=0)


def least_works(runs: Runs, ready_s: Array, deadline_s: Array) -> Array:
    """(runs,) the array form of `least_work`.

    Parameters
    ----------
    ready_s : (sizes, tasks, runs) creation and run time
    deadline_s : (runs,)
    """
    in_time = runs.xp.where(ready_s <= deadline_s[None, None, :], runs.work, runs.xp.inf)
    return added_up(runs.xp, runs.xp.min(in_time, axis=0))


def ready_times_s(runs: Runs, mig: Mig) -> Array:
    """(sizes, tasks, runs) creation and run time; the creations are those of `mig`."""
    create_s = [mig.tree.create_s[mig.tree.size == size].min() for size in mig.sizes]
    return runs.times_s + runs.xp.asarray(np.array(create_s))[:, None, None]


def deadlines_s(runs: Runs, ready_s: Array) -> Array:
    """(deadlines * runs,) deadlines to try, row after row: 0, all that occur, infinity."""
    xp = runs.xp
    num_runs = runs.times_s.shape[2]
    first = xp.zeros((1, num_runs), dtype=xp.float64)
    steps = xp.sort(xp.reshape(ready_s, (-1, num_runs)), axis=0)
    return xp.reshape(xp.concat([first, steps, first + xp.inf]), (-1,))


def lower_bounds_s(runs: Runs, *, with_reconfiguration: bool = True) -> Array:
    """(runs,) time before which no schedule can end: the array form of `lower_bound`."""
    xp = runs.xp
    num_runs = runs.times_s.shape[2]
    mig = runs.mig if with_reconfiguration else without_reconfiguration(runs.mig)
    ready_s = ready_times_s(runs, mig)
    lost = mig.num_gpus * start_loss(mig)

    def needed_s(deadline_s: Array) -> Array:
        work = least_works(runs, ready_s, deadline_s)
        return xp.minimum((work + lost) / mig.total_slices,
                          work / (mig.total_slices - mig.num_gpus))

    run = xp.arange(num_runs)
    steps = deadlines_s(runs, ready_s)
    low = xp.zeros_like(run)
    high = xp.full_like(run, steps.shape[0] // num_runs - 1)
    while bool(xp.any(high - low > 1)):  # steps[low] is too early (or 0), steps[high] is possible
        middle = (low + high) // 2
        deadline_s = steps[middle * num_runs + run]
        is_enough = needed_s(deadline_s) <= deadline_s
        low = xp.where(is_enough, low, middle)
        high = xp.where(is_enough, middle, high)
    return xp.minimum(needed_s(steps[low * num_runs + run]), steps[high * num_runs + run])


def next_sizes(runs: Runs) -> Array:
    """(1 + sizes, tasks, runs) `cheapest_size` of all sizes, of those above the first, ..."""
    xp = runs.xp
    (num_sizes, *shape) = runs.work.shape
    found = []
    for above in range(-1, num_sizes):
        best = xp.full(shape, -1, dtype=xp.int64)
        best_work = xp.full(shape, xp.inf, dtype=xp.float64)
        for k in range(above + 1, num_sizes):
            is_less = runs.work[k, ...] < best_work * (1 - EQUAL_WORK)
            best = xp.where(is_less, k, best)
            best_work = xp.where(is_less, runs.work[k, ...], best_work)
        found.append(best)
    return xp.stack(found)


class Families(NamedTuple):
    """Phase 1 of all runs.

    Parameters
    ----------
    allocation : (members, tasks, runs) position of each task's size; the last member of a run is
        repeated
    least_s : (members, runs) as `least_makespans`; infinite where a run has no such member
    size : (runs,) number of members
    """

    allocation: Array
    least_s: Array
    size: Array


class Sizes(NamedTuple):
    """What tasks need on each size, and the size they have now, all flat: cell = task * runs + run.

    Parameters
    ----------
    time_s, work : (sizes * cells,) as in `Runs`
    after : ((1 + sizes) * cells,) what `next_sizes` says
    now, own_s : (cells,) size now, the last member; time on it; changed in place
    """

    time_s: Array
    work: Array
    after: Array
    now: Array
    own_s: Array


def sizes_of(runs: Runs) -> Sizes:
    """All tasks on the size on which they have least work: the first member."""
    xp = runs.xp
    time_s = xp.reshape(runs.times_s, (-1,))
    work = xp.reshape(runs.work, (-1,))
    after = xp.reshape(next_sizes(runs), (-1,))
    cells = runs.times_s.shape[1] * runs.times_s.shape[2]
    now = xp.asarray(after[:cells], copy=True)
    return Sizes(time_s, work, after, now, time_s[now * cells + xp.arange(cells)])


def raise_sizes(runs: Runs, sizes: Sizes) -> tuple[Array, Array, Array]:
    """Raise the longest task of every run, in place.

    Returns
    -------
    (runs,) how long it took before, whether it could be raised, how much work that adds
    """
    xp = runs.xp
    (_, num_tasks, num_runs) = runs.times_s.shape
    cells = num_tasks * num_runs
    longest = xp.argmax(xp.reshape(sizes.own_s, (num_tasks, num_runs)), axis=0)
    cell = longest * num_runs + xp.arange(num_runs)
    before = sizes.now[cell]
    longest_s = sizes.own_s[cell]
    after = sizes.after[(before + 1) * cells + cell]
    is_raised = after >= 0
    after = xp.where(is_raised, after, before)
    put(sizes.now, cell, after)
    put(sizes.own_s, cell, sizes.time_s[after * cells + cell])
    added = sizes.work[after * cells + cell] - sizes.work[before * cells + cell]
    return longest_s, is_raised, added


def families(runs: Runs) -> Families:
    """Families of all runs, in lockstep: the array form of `raises` and `least_makespans`."""
    xp = runs.xp
    (_, num_tasks, num_runs) = runs.times_s.shape
    cells = num_tasks * num_runs
    sizes = sizes_of(runs)
    first = xp.reshape(sizes.work[sizes.now * cells + xp.arange(cells)], (num_tasks, num_runs))
    area = added_up(xp, first)
    size = xp.ones_like(xp.arange(num_runs))
    members = []
    least_s = []
    while True:
        members.append(xp.astype(sizes.now, xp.int8))
        is_alive = size == len(members)
        longest_s, is_raised, added = raise_sizes(runs, sizes)
        bound_s = xp.maximum(xp.where(is_raised | (size == 1), longest_s, 0.0),
                             area / runs.mig.total_slices)
        least_s.append(xp.where(is_alive, bound_s, xp.inf))
        if not bool(xp.any(is_raised)):
            break
        area = area + added
        size = size + xp.astype(is_raised, xp.int64)
    allocation = xp.reshape(xp.stack(members), (-1, num_tasks, num_runs))
    return Families(allocation, xp.stack(least_s), size)


NEVER = 2**62  # rank of what is not open at the time


class Walk(NamedTuple):
    """State of Algorithm 1 in all runs; each array is flat, one row of runs after the other.

    Parameters
    ----------
    time_s, rank : (instances * runs,) heap entries; the time is infinite where an instance is not
        open
    is_used, end_s : (instances * runs,) as in `repartition`
    free_s : (sequences * runs,) end of the last operation
    cursor : (sizes * runs,) place in the queue of the next task of each size
    host : (tasks * runs,) instance of each place of the queue
    left, pops : (runs,) tasks to be placed, pops made
    """

    time_s: Array
    rank: Array
    is_used: Array
    end_s: Array
    free_s: Array
    cursor: Array
    host: Array
    left: Array
    pops: Array


def first_open(runs: Runs, walk: Walk) -> tuple[Array, Array]:
    """(runs,) the instance that a heap would pop, and its time."""
    xp = runs.xp
    shape = (runs.tree.gpu.shape[0], walk.left.shape[0])
    time_s = xp.reshape(walk.time_s, shape)
    now_s = xp.min(time_s, axis=0)
    is_later = xp.astype(time_s != now_s[None, :], xp.int64)
    return xp.argmin(xp.reshape(walk.rank, shape) + is_later * NEVER, axis=0), now_s


class Queues(NamedTuple):
    """Tasks in the order in which Algorithm 1 takes them: by size, longest first.

    Parameters
    ----------
    task : (tasks, runs)
    time_s : (tasks * runs,) on the size that the task has
    begin, end : (sizes * runs,) places of the tasks of each size
    """

    task: Array
    time_s: Array
    begin: Array
    end: Array


def ranks(runs: Runs) -> Array:
    """(sizes, tasks, runs) place of each task in `longest_first`."""
    order = runs.xp.argsort(-runs.times_s, axis=1, stable=True)
    return runs.xp.argsort(order, axis=1, stable=True)


def queues_of(runs: Runs, rank: Array, allocation: Array, run: Array) -> Queues:
    """Queues of several allocations side by side.

    Parameters
    ----------
    rank : what `ranks` says
    allocation : (tasks, columns) position of each task's size
    run : (columns,) the run of each
    """
    xp = runs.xp
    (num_sizes, num_tasks, num_runs) = runs.times_s.shape
    task = xp.arange(num_tasks)[:, None]
    run = run[None, :]
    rank = xp.reshape(rank, (-1,))[(allocation * num_tasks + task) * num_runs + run]
    places = xp.sort((allocation * num_tasks + rank) * num_tasks + task, axis=0)
    task = places % num_tasks
    k = places // num_tasks**2
    time_s = xp.reshape(runs.times_s, (-1,))[(k * num_tasks + task) * num_runs + run]
    count = xp.stack([
        xp.sum(xp.astype(allocation == size, xp.int64), axis=0) for size in range(num_sizes)])
    end = xp.cumulative_sum(count, axis=0)
    return Queues(task, *(xp.reshape(x, (-1,)) for x in (time_s, end - count, end)))


def walk_of(runs: Runs, queues: Queues) -> Walk:
    """Before the first pop: the root of each GPU is open, from left to right."""
    xp = runs.xp
    (num_tasks, width) = queues.task.shape
    count = runs.tree.gpu.shape[0]
    row = xp.arange(count * width) // width
    zero_s = xp.zeros(count * width, dtype=xp.float64)
    is_root = xp.take(runs.tree.parent, row, axis=0) < 0
    return Walk(xp.where(is_root, zero_s, xp.inf), row - count,
                xp.zeros(count * width, dtype=xp.bool), zero_s,
                xp.zeros(count * width, dtype=xp.float64), xp.asarray(queues.begin, copy=True),
                xp.zeros(num_tasks * width, dtype=xp.int64),
                xp.full(width, num_tasks, dtype=xp.int64), xp.zeros(width, dtype=xp.int64))


def open_children(runs: Runs, walk: Walk, i: Array, now_s: Array, opens: Array,
                  number: int) -> None:
    """Open the children of instances where asked, in place.

    Parameters
    ----------
    i, now_s, opens : (runs,) instance, time, and whether its children are opened
    number : of the step
    """
    xp = runs.xp
    width = i.shape[0]
    children = xp.take(runs.tree.children, i, axis=0)
    column = xp.arange(width)
    for side in range(children.shape[1]):
        is_open = opens & (children[:, side] >= 0)
        cell = xp.where(is_open, children[:, side], i) * width + column
        put(walk.end_s, cell, xp.where(is_open, now_s, walk.end_s[cell]))
        put(walk.time_s, cell, xp.where(is_open, now_s, walk.time_s[cell]))
        put(walk.rank, cell, xp.where(is_open, 2 * number + side, walk.rank[cell]))


class Pop(NamedTuple):
    """What one pop of Algorithm 1 finds; every array is (runs,).

    Parameters
    ----------
    i, now_s : the instance, and its time
    cell, of_size, of_gpu : where its state, the queue of its size and its sequence are
    place : in the queues, of the task that it would take
    takes, opens, creates, destroys : whether it takes that task, or opens its children; whether it
        is created for it, or destroyed
    """

    i: Array
    now_s: Array
    cell: Array
    of_size: Array
    of_gpu: Array
    place: Array
    takes: Array
    opens: Array
    creates: Array
    destroys: Array


def pop_of(runs: Runs, queues: Queues, walk: Walk) -> Pop:
    """What the next pop finds in every run."""
    xp = runs.xp
    tree = runs.tree
    width = walk.left.shape[0]
    column = xp.arange(width)
    (i, now_s) = first_open(runs, walk)
    cell = i * width + column
    of_size = tree.size_index[i] * width + column
    of_gpu = tree.sequence[i] * width + column
    is_used = walk.is_used[cell]
    cursor = walk.cursor[of_size]
    place = xp.minimum(cursor, queues.task.shape[0] - 1) * width + column
    takes = cursor < queues.end[of_size]
    opens = (walk.left > 0) & ~takes
    return Pop(i, now_s, cell, of_size, of_gpu, place, takes, opens, takes & ~is_used,
               opens & is_used)


def step(runs: Runs, queues: Queues, walk: Walk, number: int) -> Walk:
    """One pop of Algorithm 1 in every run; arrays are changed in place.

    Parameters
    ----------
    number : of the step
    """
    xp = runs.xp
    tree = runs.tree
    pop = pop_of(runs, queues, walk)
    free_s = walk.free_s[pop.of_gpu]
    asked_s = xp.maximum(free_s, pop.now_s)
    ready_s = xp.where(pop.creates, asked_s + tree.create_s[pop.i], pop.now_s)
    closed_s = xp.where(pop.destroys, asked_s + tree.destroy_s[pop.i], free_s)
    end_s = ready_s + queues.time_s[pop.place]
    taken = xp.astype(pop.takes, xp.int64)
    put(walk.free_s, pop.of_gpu, xp.where(pop.creates, ready_s, closed_s))
    put(walk.host, pop.place, xp.where(pop.takes, pop.i, walk.host[pop.place]))
    put(walk.cursor, pop.of_size, walk.cursor[pop.of_size] + taken)
    put(walk.is_used, pop.cell, walk.is_used[pop.cell] | pop.takes)
    put(walk.end_s, pop.cell, xp.where(pop.takes, end_s, walk.end_s[pop.cell]))
    closed_or_now_s = xp.where(pop.opens, xp.inf, pop.now_s)
    put(walk.time_s, pop.cell, xp.where(pop.takes, end_s, closed_or_now_s))
    put(walk.rank, pop.cell, xp.where(pop.takes, 2 * number, walk.rank[pop.cell]))
    open_children(runs, walk, pop.i, pop.now_s, pop.opens, number)
    is_on = xp.astype(walk.left > 0, xp.int64)
    return walk._replace(left=walk.left - taken, pops=walk.pops + is_on)


class Plans(NamedTuple):
    """Phase 2 of one allocation per column.

    Parameters
    ----------
    instance : (tasks, columns) the plan
    end_s : (instances, columns) end of each instance
    makespan_s, pops : (columns,) pops are those that did something
    steps : pops of the lockstep
    """

    instance: Array
    end_s: Array
    makespan_s: Array
    pops: Array
    steps: int


def repartition_runs(runs: Runs, rank: Array, allocation: Array, run: Array) -> Plans:
    """Place the tasks of several allocations in lockstep: the array form of `repartition`.

    Parameters
    ----------
    rank, allocation, run : as for `queues_of`
    """
    xp = runs.xp
    width = run.shape[0]
    number = 0
    queues = queues_of(runs, rank, allocation, run)
    walk = walk_of(runs, queues)
    while bool(xp.any(walk.left > 0)):
        walk = step(runs, queues, walk, number)
        number = number + 1
    instance = xp.zeros_like(walk.host)
    put(instance, xp.reshape(queues.task * width + xp.arange(width)[None, :], (-1,)), walk.host)
    end_s = xp.reshape(walk.end_s, (-1, width))
    return Plans(xp.reshape(instance, (-1, width)), end_s, xp.max(end_s, axis=0), walk.pops, number)


class Best(NamedTuple):
    """Phases 1 and 2 of all runs.

    Parameters
    ----------
    instance, end_s : (tasks, runs) and (instances, runs), the plan of least makespan
    makespan_s, member : (runs,) of this plan
    tried, pops, steps : (runs,) members scheduled; pops that did something; pops of the locksteps
        it was in
    """

    instance: Array
    end_s: Array
    makespan_s: Array
    member: Array
    tried: Array
    pops: Array
    steps: Array


def no_plan(runs: Runs) -> Best:
    """Before the first member is scheduled."""
    xp = runs.xp
    (_, num_tasks, num_runs) = runs.times_s.shape
    member, tried, pops, steps = (xp.zeros(num_runs, dtype=xp.int64) for _ in range(4))
    return Best(xp.zeros((num_tasks, num_runs), dtype=xp.int64),
                xp.zeros((runs.tree.gpu.shape[0], num_runs), dtype=xp.float64),
                xp.full(num_runs, xp.inf, dtype=xp.float64), member, tried, pops, steps)


def put_columns(xp: Any, x: Array, columns: Array, values: Array) -> None:
    """Set `x[:, columns] = values`."""
    width = x.shape[1]
    cell = xp.arange(x.shape[0])[:, None] * width + columns[None, :]
    put(xp.reshape(x, (-1,)), xp.reshape(cell, (-1,)), xp.reshape(values, (-1,)))


def keep_better(xp: Any, best: Best, plans: Plans, live: Array, member: Array) -> None:
    """Keep plans of runs `live` that end first, in place; of equals that of the lowest member."""
    for total, more in ((best.tried, 1), (best.pops, plans.pops), (best.steps, plans.steps)):
        put(total, live, total[live] + more)
    known_s = best.makespan_s[live]
    is_tie_won = (plans.makespan_s == known_s) & (member < best.member[live])
    column = xp.nonzero((plans.makespan_s < known_s) | is_tie_won)[0]
    put(best.makespan_s, live[column], plans.makespan_s[column])
    put(best.member, live[column], member[column])
    put_columns(xp, best.instance, live[column], xp.take(plans.instance, column, axis=1))
    put_columns(xp, best.end_s, live[column], xp.take(plans.end_s, column, axis=1))


def best_plans(runs: Runs, found: Families) -> Best:
    """Plans of least makespan over the families, round by round: the array form of `best_plan`."""
    xp = runs.xp
    (_, num_tasks, num_runs) = runs.times_s.shape
    rank = ranks(runs)
    best = no_plan(runs)
    live = xp.arange(num_runs)
    order = xp.reshape(xp.argsort(found.least_s, axis=0, stable=True), (-1,))
    least_s = xp.reshape(found.least_s, (-1,))
    allocation = xp.reshape(found.allocation, (-1,))
    for attempt in range(found.least_s.shape[0]):
        member = order[attempt * num_runs + live]
        bound_s = least_s[member * num_runs + live]
        # never where there is no such member
        may_win = ~(bound_s * (1 - ROUNDING) > best.makespan_s[live])
        live = live[may_win]
        member = member[may_win]
        if live.shape[0] == 0:
            break
        cell = (member[None, :] * num_tasks +
                xp.arange(num_tasks)[:, None]) * num_runs + live[None, :]
        plans = repartition_runs(runs, rank, xp.astype(allocation[cell], xp.int64), live)
        keep_better(xp, best, plans, live, member)
    return best


def cuts(mig: Mig) -> tuple[list[tuple[int, ...]], Integers]:
    """All partitions, the same on each GPU; sizes of their instances (instances, partitions)."""
    ways = [on_all_gpus(mig, way) for way in partitions(mig)]
    # a size beyond the last: there is none
    size_index = np.full((max(map(len, ways)), len(ways)), len(mig.sizes))
    for column, way in enumerate(ways):
        size_index[:len(way), column] = mig.tree.size_index[list(way)]
    return ways, size_index


def fixed_makespans_s(runs: Runs) -> Array:
    """(partitions, runs) makespan of FixPart on each; infinite where a task fits on no instance."""
    xp = runs.xp
    (_, num_tasks, num_runs) = runs.times_s.shape
    size_index = xp.asarray(cuts(runs.mig)[1])
    (height, num_ways) = size_index.shape
    none_s = xp.full((1, num_runs), xp.inf, dtype=xp.float64)
    column = xp.arange(num_ways * num_runs)
    free_s = xp.zeros(height * column.shape[0], dtype=xp.float64)
    makespan_s = xp.zeros_like(column, dtype=xp.float64)
    for task in range(num_tasks):
        own_s = xp.concat([runs.times_s[:, task, :], none_s])
        time_s = xp.reshape(xp.take(own_s, xp.reshape(size_index, (-1,)), axis=0), (-1,))
        waits_s = xp.reshape(xp.where(time_s < xp.inf, free_s, xp.inf), (height, -1))
        cell = xp.argmin(waits_s, axis=0) * column.shape[0] + column
        end_s = free_s[cell] + time_s[cell]
        put(free_s, cell, end_s)  # if it fits nowhere the makespan is infinite, whatever comes
        makespan_s = xp.maximum(makespan_s, end_s)
    return xp.reshape(makespan_s, (num_ways, num_runs))


def bytes_per_run(mig: Mig, num_tasks: int) -> int:
    """Memory that one run takes on the device at most, roughly, if its family is the largest."""
    num_sizes = len(mig.sizes)
    members = num_tasks * (len(mig.sizes) - 1) + 1
    tables = 12 * num_sizes * num_tasks + 16 * len(mig.tree.gpu) + 6 * cuts(mig)[1].size
    return 8 * tables + members * (2 * num_tasks + 32)


def runs_that_fit(mig: Mig, times_s: Floats | Sequence[Floats], device: str,
                  at_once: int | None = None, max_bytes: int | None = None) -> Iterator[Runs]:
    """Batches in lots that fit into the memory of a device; all as for `score_runs`."""
    xp = get_xp(device)
    times_s = check_runs(mig, times_s)
    most = free_bytes(xp) // 2 if max_bytes is None else max_bytes
    width = that_fit(bytes_per_run(mig, times_s.shape[1]), most, at_once, "runs")
    for start in range(0, len(times_s), width):
        yield runs_of(mig, times_s[start:start + width], xp)


def score(runs: Runs) -> pd.DataFrame:
    """One row per run of what `score_runs` says."""
    found = families(runs)
    fixed_s = to_host(fixed_makespans_s(runs))
    best = best_plans(runs, found)
    names = [partition_name(runs.mig, way) for way in cuts(runs.mig)[0]]
    columns = {
        "ideal_s": ideals_s(runs), "lower_bound_s": lower_bounds_s(runs), "members": found.size,
        "member": best.member, "tried": best.tried, "before_s": best.makespan_s}
    frame = pd.DataFrame({name: to_host(column) for name, column in columns.items()})
    frame["rho_before"] = frame["before_s"] / frame["ideal_s"]
    frame["fixpart_best_s"] = fixed_s.min(axis=0)
    frame["partition"] = [names[k] for k in fixed_s.argmin(axis=0)]
    return frame


def score_runs(mig: Mig, times_s: Floats | Sequence[Floats], *, device: str = "cpu",
               at_once: int | None = None, max_bytes: int | None = None) -> pd.DataFrame:
    """Score batches of equally many tasks, many of them side by side.

    Parameters
    ----------
    mig : the GPUs
    times_s : (runs, tasks, sizes) as for `far`
    device : "cpu" or "cuda" (`get_xp`)
    at_once : number of runs side by side; as many as fit if not given
    max_bytes : memory to take on the device; half of what is free if not given

    Returns
    -------
    one row per batch: `ideal_s`, `lower_bound_s`; members of the family, the chosen one, how many
    were `tried`; `before_s`, the makespan of phases 1 and 2, and `rho_before`, that over the ideal;
    FixPartBest and its partition

    Raises
    ------
    InputError : what `check_runs` says, no such device, or `at_once` is below 1 or more than fits
        into its memory
    """
    parts = [score(runs) for runs in runs_that_fit(mig, times_s, device, at_once, max_bytes)]
    return pd.concat(parts, ignore_index=True)


def refined(mig: Mig, times_s: Floats, plan: Integers, end_s: Floats) -> Schedule:
    """Phase 3 on one plan of phase 2; what it did is kept only if the schedule then ends earlier.

    Parameters
    ----------
    times_s : (tasks, sizes) run times in s
    plan, end_s : (tasks,) instance of each task; (instances,) when each ends
    """
    tree = mig.tree
    changed = plan.copy()
    done = refine(tree, times_s, changed, end_s)
    before_s = run_plan(tree, loads(tree, times_s, plan)).makespan_s
    after_s = run_plan(tree, loads(tree, times_s, changed)).makespan_s
    is_better = done.moves + done.swaps > 0 and after_s < before_s
    return schedule_of(mig, times_s, changed if is_better else plan)


def times_of_each(runs: Runs) -> Floats:
    """(runs, tasks, sizes) times on the host."""
    return np.ascontiguousarray(to_host(runs.times_s).transpose(2, 1, 0))


def far_together(runs: Runs) -> list[Schedule]:
    """FAR: phases 1 and 2 in lockstep, phase 3 one by one."""
    best = best_plans(runs, families(runs))
    plans = np.ascontiguousarray(to_host(best.instance).T)
    ends_s = np.ascontiguousarray(to_host(best.end_s).T)
    return [refined(runs.mig, times_s, plan, end_s)
            for times_s, plan, end_s in zip(times_of_each(runs), plans, ends_s, strict=True)]


def fix_partition_best_together(runs: Runs) -> list[Schedule]:
    """FixPartBest: the partitions are compared in lockstep.

    Raises
    ------
    InputError : if there is a batch without a partition on which every task fits somewhere
    """
    makespans_s = to_host(fixed_makespans_s(runs))
    if np.isinf(makespans_s.min(axis=0)).any():
        raise InputError("no partition has an instance for every task",
                         mend="use a policy that cuts the GPU anew")
    ways = [cuts(runs.mig)[0][k] for k in makespans_s.argmin(axis=0)]
    return [fix_partition(runs.mig, times_s, way)
            for times_s, way in zip(times_of_each(runs), ways, strict=True)]
