"""Prices of node patterns: what a task costs is what the best content of a node loses by it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sched_lab.cluster import WHOLE_GPU_MILLI, Cluster
from sched_lab.lab.arrays import Floats, Integers, Truths
from sched_lab.lab.jit import njit
from sched_lab.online.bid import (
    _bid,
    admitted_types,
    cost_milliwatt,
    count_placed,
    is_due,
    needs_of,
    program_of,
    put_prices,
    room_of,
    set_dials,
)
from sched_lab.online.bounds import fill_gpu, fill_node, taken
from sched_lab.online.inflation import in_file_order, place
from sched_lab.online.model import (
    NUM_ROWS,
    Placements,
    PowerSettings,
    World,
    check_placements,
    is_feasible,
    try_gpus,
    world_of,
)
from sched_lab.traces import Arrivals, Tasks, most_popular, task_classes

HUNDREDTH_MILLI = 10
PAIR_MILLI = 2000
MOST_PAIRS = 64
NEVER = 10**6


class Classes(NamedTuple):
    """Tasks that usually come, in few classes.

    Parameters
    ----------
    size, num_gpus, pairs : (classes,) hundredths of each GPU, GPUs, pairs of vCPU
    fits : (classes, types) whether it may run on an empty node
    gain, per_gpu : (classes,) GPUs of one task; tasks for each GPU that all ask for
    """

    size: Integers
    num_gpus: Integers
    pairs: Integers
    fits: Truths
    gain: Floats
    per_gpu: Floats


def rounded_pairs(cpu_milli: Integers) -> Integers:
    """Pairs of vCPU: exact up to four, multiples of two up to sixteen, of four above."""
    pairs = -(-cpu_milli // PAIR_MILLI)
    step = np.select([pairs <= 4, pairs <= 16], [1, 2], 4)
    rounded: Integers = -(-pairs // step) * step
    return rounded


def classes_of(world: World) -> Classes:
    """Classes of the target workload that ask for GPUs."""
    target = world.target
    fits = admitted_types(world)
    asks = np.flatnonzero(target.num_gpus > 0)
    size = -(-target.gpu_milli // HUNDREDTH_MILLI)
    table = np.column_stack([size, target.num_gpus, rounded_pairs(target.cpu_milli), fits])[asks]
    keys, of = np.unique(table, axis=0, return_inverse=True)
    count = np.bincount(of.ravel(), target.count[asks])
    gpus = np.bincount(of.ravel(), (target.count * target.gpu_milli * target.num_gpus)[asks] / 1000)
    return Classes(keys[:, 0].copy(), keys[:, 1].copy(), keys[:, 2].copy(),
                   keys[:, 3:].astype(bool), gpus / count, count / gpus.sum())


MICRO = 10**6
ROOM = WHOLE_GPU_MILLI // HUNDREDTH_MILLI
MOST_GPUS = 8


class Values(NamedTuple):
    """Tables of one type at some prices: value, and what was put in last.

    Parameters
    ----------
    share, share_last : (`ROOM` + 1, `MOST_PAIRS` + 1) of one GPU, by room and pairs of vCPU
    idle, idle_last : (`MOST_GPUS` + 1, `MOST_PAIRS` + 1) of idle GPUs
    size, gpus, pairs : (parts,) what a part takes of them; classes first, then GPUs with shares
    """

    share: Integers
    share_last: Integers
    idle: Integers
    idle_last: Integers
    size: Integers
    gpus: Integers
    pairs: Integers


def values_of(classes: Classes, price: Floats, node_type: int) -> Values:
    """Fill the tables of a type.

    Parameters
    ----------
    classes, price : (classes,) GPUs for one more task
    node_type : of the cluster
    """
    worth = np.rint(MICRO * np.maximum(0, classes.gain - price)).astype(np.int64)
    is_share = classes.size < ROOM
    here = classes.fits[:, node_type]
    size = np.where(is_share & here, classes.size, NEVER)
    share, share_last = fill_gpu(size, classes.pairs, worth, ROOM, MOST_PAIRS)
    gpus = np.append(np.where(~is_share & here, classes.num_gpus, NEVER),
                     np.ones(MOST_PAIRS + 1, np.int64))
    pairs = np.append(classes.pairs, np.arange(MOST_PAIRS + 1))
    idle, idle_last = fill_node(MOST_GPUS, MOST_PAIRS, gpus, pairs, np.append(worth, share[ROOM]))
    return Values(share, share_last, idle, idle_last, size, gpus, pairs)


@njit(cache=True)
def by_pairs(values: Values, left: Integers, pairs: int) -> tuple[Integers, int, int]:
    """Most that the broken GPUs of a node are worth, by vCPU, GPU by GPU.

    Parameters
    ----------
    left, pairs : (GPUs,) hundredths left; pairs of vCPU left

    Returns
    -------
    (GPUs + 1, pairs + 1), row $k$ after $k$ broken GPUs; how many are broken, and how many idle
    """
    value = np.zeros((len(left) + 1, pairs + 1), np.int64)
    num_broken = 0
    num_idle = 0
    for room in left:
        if room == ROOM:
            num_idle += 1
        elif room > 0:
            num_broken += 1
            for used in range(pairs + 1):
                for here in range(used + 1):
                    both = value[num_broken - 1, used - here] + values.share[room, here]
                    value[num_broken, used] = max(value[num_broken, used], both)
    return value, num_broken, num_idle


@njit(cache=True)
def node_value(values: Values, left: Integers, pairs: int) -> tuple[int, int]:
    """What the best pattern on a state is worth, millionths, and the vCPU of its idle GPUs."""
    value, num_broken, num_idle = by_pairs(values, left, pairs)
    best = -1
    split = 0
    for here in range(pairs + 1):
        both = value[num_broken, pairs - here] + values.idle[num_idle, here]
        if both > best:
            best = both
            split = here
    return best, split


@njit(cache=True)
def best_pattern(values: Values, left: Integers, pairs: int, num_classes: int) -> Integers:
    """How many tasks of each class the best pattern has."""
    value, broken, num_idle = by_pairs(values, left, pairs)
    split = node_value(values, left, pairs)[1]
    parts = taken(values.idle_last, values.gpus, values.pairs, num_idle, split)
    times = parts[:num_classes].copy()
    for here in range(MOST_PAIRS + 1):
        if parts[num_classes + here] > 0:
            times += parts[num_classes + here] * taken(
                values.share_last, values.size, values.pairs[:num_classes], ROOM, here)
    pairs -= split
    for gpu in range(len(left) - 1, -1, -1):
        if 0 < left[gpu] < ROOM:
            here = 0
            while value[broken, pairs] != (value[broken - 1, pairs - here] +
                                           values.share[left[gpu], here]):
                here += 1
            times += taken(values.share_last, values.size, values.pairs[:num_classes], left[gpu],
                           here)
            pairs -= here
            broken -= 1
    return times


def states(world: World) -> tuple[Integers, Integers]:
    """States with some GPU left: type, pairs of vCPU, hundredths of each GPU; nodes in each."""
    left = np.sort(np.maximum(0, world.state.gpu_left_milli) // HUNDREDTH_MILLI, axis=1)[:, ::-1]
    pairs = np.clip(world.state.cpu_left_milli // PAIR_MILLI, 0, MOST_PAIRS)
    table = np.column_stack([world.bids.type_of, pairs, left])
    found, count = np.unique(table[left.any(axis=1)], axis=0, return_counts=True)
    return found, count


def priced(gain: Floats, cover: Any, limit: Floats) -> tuple[float, Floats]:
    """Optimum of a program with limits on its rows, and their prices."""
    from scipy.optimize import linprog

    solved = linprog(-gain, cover, limit)
    return -solved.fun, np.maximum(0, -solved.ineqlin.marginals)


def type_prices(world: World, classes: Classes, asked: Floats) -> Floats:
    """Price of a task of each class in the program over types."""
    needs = np.zeros((len(asked), NUM_ROWS))
    for row, size, num_gpus, pairs in zip(needs, *classes[:3], strict=True):
        needs_of(float(pairs * PAIR_MILLI), int(size * HUNDREDTH_MILLI), int(num_gpus), row)
    matrix, gain = program_of(needs, classes.fits)
    limit = np.concatenate([room_of(world).ravel(), asked])
    return priced(gain, matrix, limit)[1][-len(asked):]


class Patterns:
    """Patterns found so far, each for one state."""

    def __init__(self, classes: Classes, found: Integers) -> None:
        self.classes = classes
        self.found = found
        self.state: list[int] = []
        self.times: list[Integers] = []
        self.known: set[tuple[int, bytes]] = set()

    def add(self, price: Floats) -> Floats:
        """Add the best pattern of each state at these prices; return their values, GPUs."""
        values = [values_of(self.classes, price, k) for k in range(self.classes.fits.shape[1])]
        worth = np.zeros(len(self.found))
        for row, (node_type, pairs, *left) in enumerate(self.found.tolist()):
            here = np.array(left)
            worth[row] = node_value(values[node_type], here, pairs)[0] / MICRO
            times = best_pattern(values[node_type], here, pairs, len(price))
            key = (row, times.tobytes())
            if times.any() and key not in self.known:
                self.known.add(key)
                self.state.append(row)
                self.times.append(times)
        return worth


PARTS_OF_PRICE = (1, 0.97, 0.9, 0.6)
GAP = 0.003
MOST_ROUNDS = 4000


def class_prices(world: World, classes: Classes, before: Floats) -> tuple[float, Floats]:
    """Solve the program over patterns on a cluster as it stands.

    Parameters
    ----------
    world, classes : the cluster; who usually comes
    before : (classes,) prices of the last time

    Returns
    -------
    GPUs that can be served, and (classes,) the price of a task
    """
    from scipy import sparse

    found, count = states(world)
    free = np.maximum(0, world.state.gpu_left_milli).sum() / 1000
    asked = PRESSURE * free * classes.per_gpu
    patterns = Patterns(classes, found)
    for start in (type_prices(world, classes, asked), before):
        for part in PARTS_OF_PRICE:
            patterns.add(part * start)
    patterns.add(0 * before)
    if not patterns.times:  # nobody fits anywhere
        return 0.0, before
    for _ in range(MOST_ROUNDS // len(found) + 6):
        times = sparse.csr_matrix(np.array(patterns.times, float)).T
        where = sparse.csr_matrix((np.ones(times.shape[1]), (
            patterns.state, range(times.shape[1]))), (len(found), times.shape[1]))
        served, price = priced(classes.gain @ times, sparse.vstack([where, times]),
                               np.concatenate([count, asked]))
        worth = patterns.add(price[len(found):])
        if (count * np.maximum(0, worth - price[:len(found)])).sum() < GAP * free:
            break
    return served, price[len(found):]


PRESSURE = 1.05

MOST_SCORES = 40


class Tables(NamedTuple):
    """Tables of all types, stacked: see `Values`."""

    share: Integers
    idle: Integers


@njit(cache=True)
def state_value(tables: Tables, node_type: int, left: Integers, pairs: int) -> int:
    """Value of a state as `node_value` has it, without its pattern."""
    best = np.zeros(pairs + 1, np.int64)
    num_idle = 0
    for room in left:
        num_idle += room == ROOM
        if 0 < room < ROOM:
            for used in range(pairs, -1, -1):
                most = 0
                for here in range(used + 1):
                    most = max(most, best[used - here] + tables.share[node_type, room, here])
                best[used] = most
    most = 0
    for here in range(pairs + 1):
        most = max(most, best[pairs - here] + tables.idle[node_type, num_idle, here])
    return most


@njit(cache=True)
def pattern_cost(tables: Tables, world: World, task: int, node: int) -> tuple[int, int]:
    """Least that the value of a node loses by a task, millionths of a GPU, and the GPUs for it."""
    demand = world.demand
    gpu_left_milli = world.state.gpu_left_milli
    left = np.zeros((1 + gpu_left_milli.shape[1], gpu_left_milli.shape[1]), np.int64)
    masks = np.zeros(len(left), np.int64)
    before = 0
    least = 2**62
    mask = 0
    for n in range(try_gpus(gpu_left_milli, node, demand.gpu_milli[task], demand.num_gpus[task],
                            left, masks)):
        cpu = world.state.cpu_left_milli[node] - demand.cpu_milli[task] * (n > 0)
        value = state_value(tables, world.bids.type_of[node],
                            np.maximum(0, left[n]) // HUNDREDTH_MILLI,
                            min(max(0, cpu) // PAIR_MILLI, MOST_PAIRS))
        if n == 0:
            before = value
        elif before - value < least:
            least = before - value
            mask = masks[n]
    return least, mask


@njit(cache=True)
def choose_by_patterns(tables: Tables, world: World, task: int, nodes: Integers, score: Any,
                       type_cost: Integers, served_w: float) -> tuple[int, int]:
    """Node and GPUs with the best score at the cost of patterns.

    Parameters
    ----------
    nodes, score : feasible nodes; (all nodes,) scores of `bid`, milliwatts
    type_cost : (types,) what `bid` has charged, milliwatts
    served_w : watts for a GPU
    """
    best = -2.0**62
    chosen = -1
    chosen_mask = 0
    last = 2**62
    num_scores = 0
    for rank in np.argsort(-score[nodes], kind="quicksort"):  # numba's own, alike everywhere
        node = nodes[rank]
        if score[node] == last:
            continue
        num_scores += 1
        if num_scores > MOST_SCORES:
            break
        last = score[node]
        cost, mask = pattern_cost(tables, world, task, node)
        own = score[node] + type_cost[world.bids.type_of[node]] - served_w * cost / 1000
        if own > best:
            best = own
            chosen = node
            chosen_mask = mask
    return chosen, chosen_mask


@njit(cache=True)
def hosts(world: World, task: int, memory_mib: int) -> Integers:
    """Nodes that can host a task."""
    nodes = np.zeros(len(world.gpu_model), np.int64)
    num = 0
    for node in range(len(nodes)):
        if world.state.memory_left_mib[node] >= memory_mib and is_feasible(world, task, node):
            nodes[num] = node
            num += 1
    return nodes[:num]


BID = (1000.0, 0.5)
RENEWED = 0.02


class Shop:
    """A world with the prices of patterns, renewed as it fills."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.classes = classes_of(world)
        self.price = np.zeros(len(self.classes.gain))
        self.all_milli = WHOLE_GPU_MILLI * int(world.power.num_gpus.sum())
        self.old_milli = self.all_milli
        set_dials(world, BID)
        self.renew(0)

    def renew(self, placed_milli: int) -> None:
        """Count what was placed, and compute prices when they are old."""
        self.old_milli += placed_milli
        if is_due(self.world) or self.old_milli >= self.all_milli:
            put_prices(self.world)
        if self.old_milli >= RENEWED * self.all_milli:
            self.old_milli = 0
            self.price = class_prices(self.world, self.classes, self.price)[1]
            every = [values_of(self.classes, self.price, k)
                     for k in range(self.classes.fits.shape[1])]
            self.tables = Tables(np.array([values.share for values in every]),
                                 np.array([values.idle for values in every]))


def decided(shop: Shop, task: int, nodes: Integers, served_w: float,
            is_beside: bool) -> tuple[int, int]:
    """Node and GPUs of a task; without GPU `bid` decides alone."""
    world = shop.world
    score = np.zeros(len(world.gpu_model), np.int32)
    masks = np.zeros(len(score), np.int64)
    _bid(0, world, task, nodes, score, masks)
    if world.demand.num_gpus[task] == 0:
        node = int(nodes[score[nodes].argmax()])
        return node, int(masks[node])
    type_cost = cost_milliwatt(world, world.bids.dual, task) * (not is_beside)
    return choose_by_patterns(shop.tables, world, task, nodes, score, type_cost, served_w)


def place_by_patterns(cluster: Cluster, tasks: Tasks, workload: Arrivals, served_w: float,
                      is_beside: bool = False) -> Placements:
    """Let prices of patterns place a workload; the placements are checked against Cond. 1-6.

    Parameters
    ----------
    cluster, tasks, workload : nodes, trace, drawn arrivals
    served_w : watts for a GPU that is not served
    is_beside : add the cost of patterns to that of types, instead of replacing it
    """
    rows = workload.task_row
    order = np.argsort(workload.node_rank, kind="stable")
    kinds, kind_of = task_classes(tasks)
    ranked = cluster.take(order)
    world = world_of(ranked, kinds, most_popular(kinds), PowerSettings("package").of(ranked))
    shop = Shop(world)
    chosen = np.full(len(rows), -1)
    gpu_mask = np.zeros(len(rows), np.int64)
    for arrival, row in enumerate(rows):
        task, memory_mib = int(kind_of[row]), int(tasks.memory_mib[row])
        nodes = hosts(world, task, memory_mib)
        if len(nodes):
            chosen[arrival], gpu_mask[arrival] = decided(shop, task, nodes, served_w,
                                                           is_beside)
            place(world, task, memory_mib, chosen[arrival], gpu_mask[arrival])
            count_placed(world, task)
            shop.renew(int(world.demand.gpu_milli[task] * world.demand.num_gpus[task]))
    placements = Placements(rows, in_file_order(order, chosen), gpu_mask)
    check_placements(cluster, tasks, placements)
    return placements
