"""Who held what, where and when: rows of a schedule, and the check that no GPU and no CPU was given away twice."""

# A module, written by hand.

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .cluster import WHOLE_GPU_MILLI, Cluster
from .lab.arrays import Floats, Integers, Truths
from .lab.frames import InputError
from .lab.jit import by_reference

__all__ = ['Holdings', 'check_holdings']


@by_reference
class Holdings(NamedTuple):
    """Who held what, where and when; a row is a stretch of time on one node.

    Parameters
    ----------
    node : (rows,) index of the node
    gpu_mask : (rows,) which of its GPUs, as bits; 0 for none
    gpu_milli : (rows,) how much of each of these GPUs, 1000 for whole ones
    cpu_milli : (rows,) milli-vCPU; 0 where a family does not know
    start_s, end_s : (rows,) from when until when, seconds; infinity: for ever
    """

    node: Integers
    gpu_mask: Integers
    gpu_milli: Integers
    cpu_milli: Integers
    start_s: Floats
    end_s: Floats


def check_holdings(cluster: Cluster, holdings: Holdings) -> None:
    """Refuse holdings that no cluster can have had.

    Parameters
    ----------
    cluster : the nodes
    holdings : who held what, where and when

    Raises
    ------
    InputError : a row is impossible by itself, or a GPU or the CPU of a node is held beyond what
        there is at some moment
    """
    rows = as_holdings(holdings)
    for problem, (is_wrong, mend) in impossible_rows(cluster, rows).items():
        if is_wrong.any():
            row = int(np.flatnonzero(is_wrong)[0])
            node = int(rows.node[row])
            name = repr(cluster.name[node]) if 0 <= node < len(cluster) else node
            raise InputError(f"holding {row} of the schedule, on node {name}: {problem}", mend=mend)
    most = int(cluster.num_gpus.max(initial=1))
    whose, gpu = np.nonzero(rows.gpu_mask[:, None] >> np.arange(most) & 1)
    for what, size, unit, who, amount, room in (
            ("the CPU", 1, rows.node, np.arange(len(rows.node)), rows.cpu_milli, cluster.cpu_milli),
            ("GPU", most, rows.node[whose] * most + gpu, whose, rows.gpu_milli[whose],
             np.full(len(cluster) * most, WHOLE_GPU_MILLI))):
        spells = overfull(Bookings(unit, who, rows.start_s[who], rows.end_s[who], amount), room)
        for number, _, from_s, _, held in zip(*spells, strict=True):
            which = what if what != "GPU" else f"{what} {number % size}"
            node = cluster.name[number // size]
            raise InputError(f"{which} of node {node!r} is held to {held} of {room[number]} "
                             f"thousandths at {from_s:g} s",
                             mend="a schedule must not give away what it does not have")


def impossible_rows(cluster: Cluster, holdings: Holdings) -> dict[str, tuple[Truths, str]]:
    """Rows that are wrong by themselves, and how to mend them, by what is wrong."""
    node, gpu_mask, gpu_milli, cpu_milli, start_s, end_s = holdings
    is_known = (node >= 0) & (node < len(cluster))
    num_gpus = np.append(cluster.num_gpus, 0)[np.where(is_known, node, -1)]
    return {
        "there is no such node": (~is_known, f"number nodes from 0 to {len(cluster) - 1}"),
        "the node has no such GPU": (
            (gpu_mask < 0) | (gpu_mask >> num_gpus != 0), "set the bits of GPUs that it has"),
        "a GPU has 0 to 1000 thousandths": (
            (gpu_milli < 0) | (gpu_milli > WHOLE_GPU_MILLI), "give thousandths of one GPU"),
        "CPU is below 0": (cpu_milli < 0, "give milli-vCPU, 0 or more"),
        "it has no finite start": (~np.isfinite(start_s), "leave out what never started"),
        "its end is before its start": (~(end_s >= start_s), "give an end, or infinity")}


def as_holdings(given: Holdings) -> Holdings:
    """The same rows as arrays of one length, whole numbers and floats.

    Raises
    ------
    InputError : columns of different lengths, or fractions where whole numbers belong
    """
    found: dict[str, Any] = {}
    for name, column in given._asdict().items():
        kind = float if name.endswith("_s") else np.int64
        found[name] = np.array(column, kind)
        if (found[name].shape != (len(given.node),)
                or not np.array_equal(found[name], np.array(column, float), equal_nan=True)):
            raise InputError(f"the column {name} of the holdings has not {len(given.node)} "
                             f"{'numbers' if kind is float else 'whole numbers'}", column=name,
                             mend="give arrays of one length")
    return Holdings(**found)


class Bookings(NamedTuple):
    """Who holds how much of what, from when to when; arrays (bookings,).

    Parameters
    ----------
    unit : number of the GPU or node
    task : position of the task
    start_s, end_s : from, and until when
    weight : how much of it
    """

    unit: Integers
    task: Integers
    start_s: Floats
    end_s: Floats
    weight: Integers


AT_ONCE = 2**18  # bookings that are sorted together; units apart from each other take less memory


class Overfull(NamedTuple):
    """Spells in which units hold more than they have; arrays (spells,)."""

    unit: Integers
    task: Integers
    from_s: Floats
    until_s: Floats
    most: Integers


def overfull(bookings: Bookings, capacity: Floats | Integers) -> Overfull:
    """Find all spells in which a unit is overfull.

    Parameters
    ----------
    bookings : who holds what
    capacity : (units,) what each unit has; NaN if unknown

    Returns
    -------
    unit, the task with which it became overfull, from and until when, and the largest load
    """
    if len(bookings.unit) <= AT_ONCE:
        return spells_of(bookings, capacity)
    edges = np.linspace(0, len(capacity), 2 + len(bookings.unit) // AT_ONCE).astype(int)
    found = [spells_of(Bookings(*(column[is_in] for column in bookings)), capacity) for is_in in (
        (bookings.unit >= first) & (bookings.unit < end) for first, end in pairwise(edges))]
    columns: list[Any] = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    return Overfull(*columns)


def spells_of(bookings: Bookings, capacity: Floats | Integers) -> Overfull:
    """As `overfull`, all units at once."""
    lasts = (bookings.end_s > bookings.start_s) & (bookings.weight > 0)
    unit, task, start_s, end_s, weight = (column[lasts] for column in bookings)
    time_s = np.concatenate([start_s, end_s])
    units = np.concatenate([unit, unit])
    change = np.concatenate([weight, -weight])
    order = np.lexsort((change > 0, time_s, units.astype(np.min_scalar_type(len(capacity)))))
    load = np.cumsum(change[order])
    limit = np.where(np.isnan(capacity), np.inf, capacity)[units[order]]
    if not (load > limit).any():
        return Overfull(load[:0], load[:0], np.zeros(0), np.zeros(0), load[:0])
    before = load - change[order]
    rise = np.flatnonzero((load > limit) & (before <= limit))
    fall = np.flatnonzero((load <= limit) & (before > limit))
    spells = np.stack([rise, fall], axis=1).ravel()
    most = np.maximum.reduceat(load, spells)[::2] if len(spells) else load[:0]
    where = order[rise]
    tasks = np.concatenate([task, task])
    return Overfull(units[where], tasks[where], time_s[where], time_s[order[fall]], most)
