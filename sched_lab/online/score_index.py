"""An index of nodes by score: a placement changes one node, and a choice looks at a few numbers in place of all nodes."""

# A module, written by hand.

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..lab.arrays import Integers
from ..lab.jit import by_reference, njit
from .bid import cost_milliwatt
from .model import World, is_feasible

BLOCK = 64
NOWHERE = -(2**31)
MOST_MIB = 2**31 - 2


class Best(NamedTuple):
    """Highest scores in each place, for each task class; used where one score decides.

    A place is a region of `BLOCK` blocks or a block of `BLOCK` nodes; regions come first.

    Parameters
    ----------
    score : (rows, places) highest score there
    asked_mib : (rows, places) memory that was once asked for there in vain
    score_then : (rows, places) no node there with at least so much memory has a higher score
    """

    score: NDArray[np.int32]
    asked_mib: NDArray[np.int32]
    score_then: NDArray[np.int32]


@by_reference
class Groups(NamedTuple):
    """Nodes of equal scores, for each task class; used only where several scores are added up.

    Parameters
    ----------
    num : (rows,) groups so far, also those that have become empty
    slot : (rows, slots) hash table from scores to number of the group, -1 for a free slot
    score : (rows, scores, groups) scores of the group
    room_mib : (rows, groups, places) its nodes there have less memory left than this; 0 if there
        are none
    most_mib : (rows, groups) the same for all its nodes
    """

    num: Integers
    slot: NDArray[np.int16]
    score: NDArray[np.int32]
    room_mib: NDArray[np.int32]
    most_mib: NDArray[np.int32]


@by_reference
class Index(NamedTuple):
    """Nodes by score, for each task class.

    One row for each task class (with very many classes they take turns on fewer rows), or for each
    in each stage.

    Parameters
    ----------
    owner : (rows,) task class that the row is about, -1 for none
    seen : (rows,) changes that the row knows of, -1 if it knows nothing
    value : (rows, nodes) score of the node, or its group if several scores are added up; `NOWHERE`
        if it cannot hold the class
    num_changes : (1,) changes so far
    changes : (nodes,) the last of them, change number n in place n modulo the number of nodes
    last_change : (nodes,) number of the last change of each node
    stale : (nodes,) room for the list of nodes to score again
    score, gpu_mask : (scores, nodes) room for what the kernels write
    best : highest values
    groups : of equal scores, a `Groups`; None where one score decides
    """

    owner: Integers
    seen: Integers
    value: NDArray[np.int32]
    num_changes: Integers
    changes: Integers
    last_change: Integers
    stale: Integers
    score: NDArray[np.int32]
    gpu_mask: Integers
    best: Best
    groups: Any


@njit(cache=True)
def count_regions(num_places: int) -> int:
    """Regions among so many places, which come before the blocks."""
    return -(-num_places // (BLOCK + 1))


def empty_index(num_classes: int, num_nodes: int, num_scores: int, max_groups: int = 1,
                max_bytes: int = 2**29) -> Index:
    """Index that knows nothing yet, of at most about `max_bytes`.

    Parameters
    ----------
    num_classes, num_nodes, num_scores : of tasks, of the cluster, of the policy
    max_groups : of nodes of equal scores, for each class; 0 if scores are never added up: no table
    """
    num_blocks = -(-num_nodes // BLOCK)
    num_places = -(-num_blocks // BLOCK) + num_blocks
    row_bytes = 18 + 4 * num_nodes + 12 * num_places + max_groups * (
        8 + 4 * (num_scores + num_places))
    rows = max(1, min(num_classes, max_bytes // row_bytes))
    # a power of two, so that a remainder is a few bits; more than half of the slots stay free
    num_slots = 1 << (2 * max_groups).bit_length()

    def zeros(*shape: int) -> NDArray[np.int32]:
        return np.zeros(shape, np.int32)

    best = Best(*(np.full((rows, num_places), value, np.int32)
                  for value in (NOWHERE, MOST_MIB + 1, NOWHERE)))
    groups = None if max_groups == 0 else Groups(
        np.zeros(rows, np.int64), np.full((rows, num_slots), -1, np.int16),
        zeros(rows, num_scores, max_groups), zeros(rows, max_groups, num_places),
        zeros(rows, max_groups))
    return Index(np.full(rows, -1), np.full(rows, -1),
                 np.full((rows, num_nodes), NOWHERE, np.int32), np.zeros(1, np.int64),
                 np.zeros(num_nodes, np.int64), np.zeros(num_nodes, np.int64),
                 np.zeros(num_nodes, np.int64), zeros(num_scores, num_nodes),
                 np.zeros((num_scores, num_nodes), np.int64), best, groups)


@njit(cache=True)
def note_change(index: Index, node: int) -> None:
    """Note that the state of a node has changed."""
    number = index.num_changes[0]
    index.changes[number % len(index.changes)] = node
    index.last_change[node] = number
    index.num_changes[0] = number + 1


@njit(cache=True)
def list_stale(index: Index, row: int) -> int:
    """Write the nodes that changed since a row was last up to date to `stale`; return how many."""
    stale = index.stale
    changes = index.changes
    since = index.seen[row]
    until = index.num_changes[0]
    is_new = since < 0 or until - since >= len(changes)
    index.seen[row] = until
    if is_new:
        for node in range(len(stale)):
            stale[node] = node
        return len(stale)
    num_stale = 0
    place = since % len(changes)
    for number in range(since, until):
        node = changes[place]
        stale[num_stale] = node
        num_stale += index.last_change[node] == number
        place = place + 1 if place + 1 < len(changes) else 0
    return num_stale


@njit(cache=True)
def keep_highest(below: NDArray[np.int32], start: int, highest: NDArray[np.int32], place: int,
                 before: int, now: int) -> None:
    """Keep the highest value of a place when one of its values changes.

    Parameters
    ----------
    below, start : the values; those of the place begin at `start`, `BLOCK` of them or up to the end
    highest, place : where the highest one is kept
    before, now : the value that has changed
    """
    if now >= highest[place]:
        highest[place] = now
    elif before == highest[place]:
        there = below[start:start + BLOCK]
        most = there[0]
        for n in range(len(there)):
            if there[n] > most:  # many at once, which `max` would not be
                most = there[n]
        highest[place] = most


@njit(cache=True)
def row_of(best: Best, row: int) -> Best:
    """(places,) each, of one task class (not to be called from Python)."""
    return Best(best.score[row], best.asked_mib[row], best.score_then[row])


@njit(cache=True)
def keep_scores(value: NDArray[np.int32], best: Best, score: NDArray[np.int32],
                memory_left_mib: Integers, stale: Integers, num_feasible: int) -> None:
    """Write down the scores of the stale nodes, and what follows for their blocks and regions.

    Parameters
    ----------
    value, best : (nodes,) and (places,) each, the row of a task class
    score, memory_left_mib : (nodes,) what the kernel wrote, what is left
    stale, num_feasible : the nodes; so many of them can hold the class, the others cannot
    """
    highest = best.score
    num_regions = count_regions(len(highest))
    for n in range(len(stale)):
        node = stale[n]
        before = value[node]
        now = score[node] if n < num_feasible else NOWHERE
        if now == NOWHERE and before == NOWHERE:
            continue
        value[node] = now
        block = num_regions + node // BLOCK
        region = node // BLOCK**2
        before_there = highest[block]
        keep_highest(value, node - node % BLOCK, highest, block, before, now)
        if highest[block] != before_there:
            keep_highest(highest, num_regions + region * BLOCK, highest, region, before_there,
                         highest[block])
        for place in (block, region):
            if now > best.score_then[place] and memory_left_mib[node] >= best.asked_mib[place]:
                best.score_then[place] = now


@njit(cache=True)
def best_place(best: Best, start: int, stop: int, memory_mib: int) -> tuple[int, int]:
    """First place that may have the best node with enough memory, and a score none is above there.

    Parameters
    ----------
    best : (places,) each, the row of a task class
    start, stop : the places in question
    memory_mib : memory asked for

    Returns
    -------
    (-1, `NOWHERE`) if there is no such node
    """
    found = -1
    most = NOWHERE
    for place in range(start, stop):
        bound = int(best.score[place])
        if memory_mib >= best.asked_mib[place]:
            bound = min(bound, int(best.score_then[place]))
        if bound > most:
            most = bound
            found = place
    return found, most


@njit(cache=True)
def best_in_block(value: NDArray[np.int32], start: int, memory_left_mib: Integers,
                  memory_mib: int) -> tuple[int, int]:
    """First node with the highest score in a block among those with enough memory, and the score.

    Parameters
    ----------
    value, start : (nodes,) scores; first node of the block
    memory_left_mib, memory_mib : (nodes,) what is left, what is needed
    """
    found = -1
    most = NOWHERE
    for node in range(start, min(start + BLOCK, len(value))):
        if value[node] > most and memory_left_mib[node] >= memory_mib:
            most = int(value[node])
            found = node
    return found, most


@njit(cache=True)
def first_highest(value: NDArray[np.int32], best: Best, memory_left_mib: Integers,
                  memory_mib: int) -> int:
    """First node with the highest score among those with enough memory, -1 if there is none.

    Parameters
    ----------
    value, best : (nodes,) and (places,) each, the row of a task class
    memory_left_mib, memory_mib : (nodes,) what is left, what is needed (Cond. 2)
    """
    num_places = len(best.score)
    num_regions = count_regions(num_places)
    while True:
        region, hoped = best_place(best, 0, num_regions, memory_mib)
        if region < 0:
            return -1
        place = region
        start = num_regions + region * BLOCK
        block, found = best_place(best, start, min(start + BLOCK, num_places), memory_mib)
        if found >= hoped:
            place = block
            hoped = found
            first = (block - num_regions) * BLOCK
            node, found = best_in_block(value, first, memory_left_mib, memory_mib)
            if found == hoped:
                return node
        best.asked_mib[place] = memory_mib
        best.score_then[place] = found


@njit(cache=True)
def slot_of(slot: NDArray[np.int16], known: NDArray[np.int32], score: NDArray[np.int32],
            node: int, weights: Integers) -> int:
    """Place in the hash table of the group with the scores of a node; a free one if it is new.

    Parameters
    ----------
    slot, known : (slots,) and (scores, groups), the row of a task class in `Groups`
    score, node : (scores, nodes) what the kernels wrote, the node
    weights : (scores,) of the policy; scores without weight are left out
    """
    mixed = 0
    for part in range(len(weights)):
        if weights[part] > 0:
            mixed = (mixed ^ int(score[part, node])) * 0x5F356495 & 0x7FFFFFFF
    place = mixed >> 8 & len(slot) - 1
    is_found = False
    while not is_found:
        group = slot[place]
        is_found = True
        for part in range(len(weights)):
            if group >= 0 and weights[part] > 0 and known[part, group] != score[part, node]:
                is_found = False
        place = place if is_found else place + 1 & len(slot) - 1
    return place


@njit(cache=True)
def join(room_mib: NDArray[np.int32], most_mib: NDArray[np.int32], group: int, node: int,
         memory_left_mib: int) -> None:
    """Note that a group has a node with so much memory.

    Parameters
    ----------
    room_mib, most_mib : (groups, places) and (groups,), the row of a task class in `Groups`
    group, node, memory_left_mib : the group, the node, what is left on it
    """
    room = min(memory_left_mib, MOST_MIB) + 1
    block = count_regions(room_mib.shape[1]) + node // BLOCK
    if room > room_mib[group, block]:
        room_mib[group, block] = room
        region = node // BLOCK**2
        if room > room_mib[group, region]:
            room_mib[group, region] = room
            most_mib[group] = max(most_mib[group], room)


@njit(cache=True)
def keep_groups(index: Index, groups: Groups, row: int, weights: Integers,
                memory_left_mib: Integers, num_stale: int, num_feasible: int) -> bool:
    """Move the stale nodes to the groups of their scores; false if there is no room for a new one.

    Parameters
    ----------
    index, row, weights : as `refresh`
    groups : those of the index
    memory_left_mib : (nodes,) what is left
    num_stale, num_feasible : so many are stale; the first ones can hold the class
    """
    slot = groups.slot[row]
    known = groups.score[row]
    room_mib = groups.room_mib[row]
    most_mib = groups.most_mib[row]
    value = index.value[row]
    for n in range(num_stale):
        node = index.stale[n]
        if n >= num_feasible:
            value[node] = NOWHERE
            continue
        place = slot_of(slot, known, index.score, node, weights)
        group = int(slot[place])
        if group < 0:
            group = groups.num[row]
            if group == len(most_mib):
                return False
            groups.num[row] += 1
            slot[place] = group
            for part in range(len(known)):
                known[part, group] = index.score[part, node]
        value[node] = group
        join(room_mib, most_mib, group, node, memory_left_mib[node])
    return True


@njit(cache=True)
def first_with_room(room_mib: NDArray[np.int32], start: int, stop: int,
                memory_mib: int) -> tuple[int, int]:
    """First place that may have a node with enough memory; -1 if there is none. And the most room.

    Parameters
    ----------
    room_mib : (places,) of a group, as in `Groups`
    start, stop : the places in question
    memory_mib : memory asked for
    """
    most = 0
    for place in range(start, stop):
        if room_mib[place] > memory_mib:
            return place, most
        most = max(most, int(room_mib[place]))
    return -1, most


@njit(cache=True)
def first_in_block(value: NDArray[np.int32], start: int, group: int, memory_left_mib: Integers,
                   memory_mib: int) -> tuple[int, int]:
    """First node of a group in a block with enough memory; -1 if there is none. And the most room.

    Parameters
    ----------
    value, start, group : (nodes,) groups; first node of the block; the group
    memory_left_mib, memory_mib : (nodes,) what is left, what is needed
    """
    most = 0
    for node in range(start, min(start + BLOCK, len(value))):
        if value[node] == group:
            if memory_left_mib[node] >= memory_mib:
                return node, most
            most = max(most, memory_left_mib[node] + 1)
    return -1, most


@njit(cache=True)
def first_member(value: NDArray[np.int32], room_mib: NDArray[np.int32],
                 most_mib: NDArray[np.int32], group: int, memory_left_mib: Integers,
                 memory_mib: int) -> int:
    """First node of a group with enough memory, -1 if there is none.

    Parameters
    ----------
    value, room_mib, most_mib : (nodes,), (groups, places) and (groups,), the row of a task class
    group : one of its groups
    memory_left_mib, memory_mib : (nodes,) what is left, what is needed
    """
    there_mib = room_mib[group]
    num_places = len(there_mib)
    num_regions = count_regions(num_places)
    while most_mib[group] > memory_mib:
        region, most = first_with_room(there_mib, 0, num_regions, memory_mib)
        if region < 0:
            most_mib[group] = most
            continue
        place = region
        start = num_regions + region * BLOCK
        block, most = first_with_room(there_mib, start, min(start + BLOCK, num_places), memory_mib)
        if block >= 0:
            place = block
            first = (block - num_regions) * BLOCK
            node, most = first_in_block(value, first, group, memory_left_mib, memory_mib)
            if node >= 0:
                return node
        there_mib[place] = most
    return -1


@njit(cache=True)
def forget(index: Index, groups: Groups | None, row: int) -> None:
    """Empty a row of an index that has these groups."""
    best = index.best
    index.seen[row] = -1
    index.value[row] = NOWHERE
    best.score[row] = NOWHERE
    best.asked_mib[row] = MOST_MIB + 1
    if groups is not None:
        groups.slot[row] = -1
        groups.most_mib[row] = 0
        groups.room_mib[row, :groups.num[row]] = 0
        groups.num[row] = 0


@njit(cache=True)
def is_sum(weights: Integers) -> bool:
    """Whether several scores are added up."""
    num_weighted = 0
    for part in range(len(weights)):
        num_weighted += weights[part] > 0
    return num_weighted > 1


@njit(cache=True)
def put_feasible_first(world: World, stale: Integers, task: int, num_stale: int) -> int:
    """Put the stale nodes that can hold a task class first; return how many can."""
    num_feasible = 0
    for n in range(num_stale):
        node = stale[n]
        if is_feasible(world, task, node):
            stale[n] = stale[num_feasible]
            stale[num_feasible] = node
            num_feasible += 1
    return num_feasible


@njit(cache=True)
def keep(index: Index, groups: Groups | None, row: int, weights: Integers,
         memory_left_mib: Integers, num_stale: int, num_feasible: int, last: int) -> bool:
    """Write down what the kernels say; false if there is no room for a new group.

    Parameters
    ----------
    index, groups, row, weights, memory_left_mib, num_stale, num_feasible : as `keep_groups`
    last : the score that decides, if only one does
    """
    if groups is not None:
        if is_sum(weights):
            return keep_groups(index, groups, row, weights, memory_left_mib, num_stale,
                               num_feasible)
    keep_scores(index.value[row], row_of(index.best, row), index.score[last], memory_left_mib,
                index.stale[:num_stale], num_feasible)
    return True


@njit(cache=True, inline="always")
def refresh(kernels: Any, weights: Integers, world: World, index: Index, groups: Groups | None, row: int,
            task: int) -> bool:
    """Bring a row of the index up to date for a task class; false if there is no room.

    Parameters
    ----------
    kernels, weights : the policy's scores; those without weight are left out
    world, index, groups : the cluster, what is known of it; the index's groups, None where one score decides
    row, task : where, and the task class
    """
    memory_left_mib = world.state.memory_left_mib
    if index.owner[row] != task:
        index.owner[row] = task
        forget(index, groups, row)
    for _ in range(2):
        num_stale = list_stale(index, row)
        num_feasible = put_feasible_first(world, index.stale, task, num_stale)
        last = 0
        for part in range(len(weights)):
            if weights[part] > 0:
                last = part
                kernels[part](world, task, index.stale[:num_feasible], index.score[part],
                              index.gpu_mask[part])
        if keep(index, groups, row, weights, memory_left_mib, num_stale, num_feasible, last):
            return True
        forget(index, groups, row)  # once more without the groups that have become empty
    return False


@njit(cache=True)
def shift_scores(index: Index, world: World) -> None:
    """Bring all rows from the prices before the last change to those of now."""
    bids = world.bids
    best = index.best
    memory_left_mib = world.state.memory_left_mib
    num_regions = count_regions(best.score.shape[1])
    for row in range(len(index.owner)):
        task = index.owner[row]
        if task < 0:
            continue
        rise = cost_milliwatt(world, bids.before, task) - cost_milliwatt(world, bids.dual, task)
        value = index.value[row]
        highest = best.score[row]
        highest[:] = NOWHERE
        for node in range(len(memory_left_mib)):
            if value[node] != NOWHERE:
                value[node] += rise[bids.type_of[node]]
                block = num_regions + node // BLOCK
                region = node // BLOCK**2
                highest[block] = max(highest[block], value[node])
                highest[region] = max(highest[region], value[node])
        best.asked_mib[row] = MOST_MIB + 1


@njit(cache=True)
def price_anew(prices: Any, world: World, index: Index) -> None:
    """Let a kernel compute prices, and bring the scores up to date with them."""
    prices(world, 0, index.stale[:0], index.score[0], index.gpu_mask[0])
    shift_scores(index, world)
