"""Each score a second time, as a few operations on whole arrays: the same integers, for thousands of pairs of a node and a task in one call."""

# A module, written by hand.

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..lab.arrays import Array, Integers, put, to_device
from ..cluster import WHOLE_GPU_MILLI, Cluster
from ..frag import Target
from .fgd import fgd_points
from .foresight import full_price
from .joint import LOST_W, usual_ratio
from .model import World, world_of
from ..power import Power
from ..traces import TaskClasses

__all__ = ['tables_of']


def node_types(power: Power, cluster: Cluster) -> tuple[Integers, Integers]:
    """Type of each node, (nodes,), and one node of each type; they differ in memory only."""
    columns = {"gpu_model": cluster.gpu_model, "cpu_model": cluster.cpu_model,
               **{name: getattr(power, name) for name in Power._fields[:7]}}
    frame = pd.DataFrame(columns)
    type_of = np.asarray(frame.groupby(list(columns), sort=False).ngroup(), np.int64)
    return type_of, np.unique(type_of, return_index=True)[1].astype(np.int64)


def fgd_steps(num_tasks: int) -> Integers:
    """Least decrease, `num_tasks` times milli-GPU, that earns 1, 2, ..., 100 of FGD's points."""
    unit = WHOLE_GPU_MILLI * num_tasks
    changes = range(-64 * unit, 64 * unit)
    return np.array([
        changes[bisect_left(changes, points, key=lambda change: fgd_points(change / unit))]
        for points in range(1, 101)])


class NextTask(NamedTuple):
    """Class of the target workload: demand, tasks, full price, models that admit it."""

    cpu_milli: int
    gpu_milli: int
    num_gpus: int
    tasks: int
    full_milliwatt: int
    is_admitted: Array


class Tables(NamedTuple):
    """All that scores look up, on one device.

    Parameters
    ----------
    xp : array functions of the device
    world : a cluster with one node of each type, its task classes, power model and target workload
    is_admitted : (classes, types) Cond. 4 and 5
    is_share : (classes,) whether the class asks for a share of one GPU
    sharing : (GPU models * CPU levels * share levels,) as in `Target`
    whole_use : (GPU models * CPU levels * idle GPUs,) `Target.whole` times what is idle
    fgd_steps : (100,) least decrease of fragmentation for 1, 2, ..., 100 points
    ratio : of the target workload, see `usual_ratio`
    next_tasks : the classes of the target workload
    """

    xp: Any
    world: World
    is_admitted: Array
    is_share: Array
    sharing: Array
    whole_use: Array
    fgd_steps: Array
    ratio: tuple[int, int]
    next_tasks: tuple[NextTask, ...]


def next_tasks(target: Target, price: tuple[float, float]) -> tuple[NextTask, ...]:
    """Classes of a target workload, with their price on full processors (`full_price`)."""
    demands = zip(target.cpu_milli.tolist(), target.gpu_milli.tolist(), target.num_gpus.tolist(),
                  strict=True)
    return tuple(
        NextTask(cpu, gpu, num, int(target.count[m]), int(price[0] * gpu * num + price[1] * cpu),
                 target.is_admitted[:, m].copy())
        for m, (cpu, gpu, num) in enumerate(demands))


def tables_of(cluster: Cluster, power: Power, classes: TaskClasses, target: TaskClasses,
              xp: Any) -> Tables:
    """Tables of a cluster, task classes that arrive and a target workload.

    Parameters
    ----------
    cluster, power : the nodes, their power model
    classes, target : task classes that arrive, target workload
    xp : array functions of the device
    """
    type_of, first = node_types(power, cluster)
    of_types = power._replace(**{name: getattr(power, name)[first] for name in Power._fields[:7]})
    world = world_of(cluster.take(first), classes, target, of_types)
    demand = world.demand
    known = world.target
    admitted = demand.cpu_is_admitted[:, world.cpu_model] & (
        demand.gpu_is_admitted[:, world.gpu_model] | (demand.num_gpus == 0)[:, None])
    idle = WHOLE_GPU_MILLI * np.arange(known.whole.shape[2])
    return Tables(xp, *to_device((
        world, admitted.reshape(-1), (demand.gpu_milli > 0) & (demand.gpu_milli < WHOLE_GPU_MILLI),
        known.sharing.reshape(-1), (known.whole * idle).reshape(-1), fgd_steps(known.num_tasks),
        usual_ratio(known), next_tasks(known, full_price(power))), xp))


class Rooms(NamedTuple):
    """States of nodes, one column each.

    Parameters
    ----------
    node_type : (rooms,) as the nodes of `Tables.world`
    cpu_left_milli : (rooms,)
    gpu_left_milli : (GPUs, rooms) 0 where a node has no such GPU
    residents : (kinds, rooms) number of tasks of each kind of GPU request
    """

    node_type: Array
    cpu_left_milli: Array
    gpu_left_milli: Array
    residents: Array


def empty_rooms(tables: Tables, node_type: Array) -> Rooms:
    """Nodes of the given types without any task."""
    xp = tables.xp
    world = tables.world
    gpus = xp.arange(world.state.gpu_left_milli.shape[1])[:, None]
    present = xp.astype(gpus < world.power.num_gpus[node_type][None, :], xp.int64)
    return Rooms(node_type, world.power.cpu_milli[node_type], WHOLE_GPU_MILLI * present,
                 xp.zeros((world.residents.shape[1], node_type.shape[0]), dtype=xp.int64))


def count(xp: Any, marks: Array) -> Array:
    """Number of true values in each column of (GPUs, rooms); there are at most 62 GPUs."""
    return xp.sum(xp.astype(marks, xp.int8), axis=0, dtype=xp.int8)


def first(xp: Any, marks: Array) -> Array:
    """Row of the first true value in each column of (GPUs, rooms); the height if there is none."""
    height = marks.shape[0]
    from_below = xp.arange(height, 0, -1, dtype=xp.int8)[:, None]
    return height - xp.max(xp.astype(marks, xp.int8) * from_below, axis=0)


def allowed(xp: Any, values: Array, marks: Array) -> Array:
    """Value where marked, so little elsewhere that it is never the largest."""
    return values - xp.astype(~marks, xp.int64) * 2**61


def fits(tables: Tables, rooms: Rooms, task: Array) -> Array:
    """Whether each GPU has room for one part of the task, (GPUs, rooms)."""
    return rooms.gpu_left_milli >= tables.world.demand.gpu_milli[task][None, :]


def is_feasible(tables: Tables, rooms: Rooms, task: Array) -> Array:
    """Cond. 1 and 3-6 for each pair of a room and a task class, (pairs,)."""
    demand = tables.world.demand
    num_types = tables.world.gpu_model.shape[0]
    return ((demand.cpu_milli[task] <= rooms.cpu_left_milli)
            & tables.is_admitted[task * num_types + rooms.node_type]
            & (count(tables.xp, fits(tables, rooms, task)) >= demand.num_gpus[task]))


def level_row(tables: Tables, node_type: Array, cpu_left_milli: Array) -> Array:
    """Row of the tables of popularity: one for each GPU model and CPU level."""
    target = tables.world.target
    level = tables.xp.searchsorted(target.cpu_steps, cpu_left_milli, side="right")
    return tables.world.gpu_model[node_type] * (target.cpu_steps.shape[0] + 1) + level


def sharing(tables: Tables, row: Array, level: Array) -> Array:
    """S: number of tasks that can share a GPU, (GPUs, rooms)."""
    return tables.sharing[(row * tables.world.target.sharing.shape[2])[None, :] + level]


def whole_use(tables: Tables, row: Array, num_idle: Array) -> Array:
    """What the whole-GPU classes can use of so many idle GPUs; nothing of fewer than none."""
    return tables.whole_use[row * tables.world.target.whole.shape[2] +
                            tables.xp.maximum(num_idle, 0)]


def share_change(tables: Tables, row: Array, gpu_left_milli: Array, used: Array,
                 taken_milli: Array) -> Array:
    """What each GPU loses for sharing classes, (GPUs, rooms); `used` is what it has now."""
    left = gpu_left_milli - tables.xp.minimum(gpu_left_milli, taken_milli[None, :])
    return left * sharing(tables, row, tables.world.target.share_level[left]) - used


def fgd_pairs(tables: Tables, rooms: Rooms, task: Array) -> tuple[Array, Array]:
    """FGD's points of each pair, and the GPU that a share gets: the array form of `fgd`."""
    xp = tables.xp
    demand = tables.world.demand
    target = tables.world.target
    left = rooms.gpu_left_milli
    gpu_milli = demand.gpu_milli[task]
    num_gpus = demand.num_gpus[task]
    is_share = tables.is_share[task]
    now = level_row(tables, rooms.node_type, rooms.cpu_left_milli)
    then = level_row(tables, rooms.node_type, rooms.cpu_left_milli - demand.cpu_milli[task])
    is_idle = left == WHOLE_GPU_MILLI
    level = target.share_level[left]
    num_idle = count(xp, is_idle)
    before = sharing(tables, then, level)
    wholes = whole_use(tables, then, num_idle)
    base = (num_gpus * gpu_milli * target.num_tasks + wholes - whole_use(tables, now, num_idle)
            + xp.sum(left * (before - sharing(tables, now, level)), axis=0))
    one = (share_change(tables, then, left, left * before, gpu_milli) +
           xp.astype(is_idle, xp.int64) * (whole_use(tables, then, num_idle - 1) - wholes)[None, :])
    one = allowed(xp, one, fits(tables, rooms, task))
    # the last level: all that is left of a GPU
    idle_share = tables.sharing[(then + 1) * target.sharing.shape[2] - 1]
    several = (whole_use(tables, then, num_idle - num_gpus) - wholes
               - num_gpus * WHOLE_GPU_MILLI * idle_share)
    best = base + xp.where(is_share, xp.max(one, axis=0), several)
    points = xp.searchsorted(tables.fgd_steps, best, side="right")
    enough = xp.where(points > 0, tables.fgd_steps[xp.maximum(points - 1, 0)] - base, -(2**60))
    return points, first(xp, one >= enough[None, :])


def cpu_milliwatt(tables: Tables, node_type: Array, cpu_left_milli: Array) -> Array:
    """Power of the CPUs of a node: the array form of `cpu_power_milliwatt`."""
    xp = tables.xp
    power = tables.world.power
    idle_w = power.cpu_idle_w[node_type]
    full_w = power.cpu_full_w[node_type]
    cores = power.cpu_cores[node_type]
    capacity = power.cpu_milli[node_type]
    left = cpu_left_milli
    size = cores * 2000
    if power.is_package:
        capacity = -(-capacity // 2000)
        left = left // 2000
        size = cores
    full_cpus = (capacity - left) // size
    rest = capacity - left - full_cpus * size
    idle_cpus = left // size
    if power.is_package:
        idle_cpus = -(-capacity // size) - full_cpus - xp.astype(rest > 0, xp.int64)
    part = 1000 * idle_w + (full_w - idle_w) * power.load_permille[-(-rest * 1000 // size)]
    return 1000 * (full_w * full_cpus + idle_w * idle_cpus) + xp.astype(rest > 0, xp.int64) * part


def gpu_milliwatt(tables: Tables, node_type: Array, gpu_left_milli: Array) -> Array:
    """Power of the GPUs of a node: the array form of `gpu_power_milliwatt`."""
    xp = tables.xp
    power = tables.world.power
    num_gpus = power.num_gpus[node_type]
    idle_w = power.gpu_idle_w[node_type]
    is_there = xp.arange(gpu_left_milli.shape[0])[:, None] < num_gpus[None, :]
    load = power.load_permille[WHOLE_GPU_MILLI - gpu_left_milli] * xp.astype(is_there, xp.int64)
    return 1000 * num_gpus * idle_w + (power.gpu_full_w[node_type] - idle_w) * xp.sum(load, axis=0)


def pwr_pairs(tables: Tables, rooms: Rooms, task: Array) -> tuple[Array, Array]:
    """Milliwatts saved by each pair, and the GPU of a share: the array form of `pwr`."""
    xp = tables.xp
    demand = tables.world.demand
    power = tables.world.power
    gpu_milli = demand.gpu_milli[task]
    node_type = rooms.node_type
    cpu_left = rooms.cpu_left_milli
    range_w = power.gpu_full_w[node_type] - power.gpu_idle_w[node_type]
    saved = (cpu_milliwatt(tables, node_type, cpu_left)
             - cpu_milliwatt(tables, node_type, cpu_left - demand.cpu_milli[task]))
    load = WHOLE_GPU_MILLI - rooms.gpu_left_milli
    then = xp.minimum(load + gpu_milli[None, :], WHOLE_GPU_MILLI)
    rise = power.load_permille[then] - power.load_permille[load]
    one = allowed(xp, -range_w[None, :] * rise, fits(tables, rooms, task))
    best = xp.max(one, axis=0)
    several = -WHOLE_GPU_MILLI * demand.num_gpus[task] * range_w
    return saved + xp.where(tables.is_share[task], best, several), first(xp, one == best[None, :])


def fullest_gpu(tables: Tables, rooms: Rooms, task: Array) -> Array:
    """GPU with least left that still fits a share, the first of equals."""
    left = allowed(tables.xp, -rooms.gpu_left_milli, fits(tables, rooms, task))
    return first(tables.xp, left == tables.xp.max(left, axis=0)[None, :])


def largest_node(tables: Tables) -> tuple[int, int]:
    """CPU of the node with most CPU, GPU of the node with most GPUs, at least 1."""
    xp = tables.xp
    power = tables.world.power
    most_gpu = int(xp.max(power.num_gpus)) * WHOLE_GPU_MILLI
    return max(1, int(xp.max(power.cpu_milli))), max(1, most_gpu)


def as_real(xp: Any, x: Array) -> Array:
    """Integers as 64-bit floating-point numbers."""
    return xp.astype(x, xp.float64)


def bestfit_pairs(tables: Tables, rooms: Rooms, task: Array) -> tuple[Array, Array]:
    """BestFit: the array form of `bestfit_score`, operation by operation."""
    xp = tables.xp
    demand = tables.world.demand
    most_cpu, most_gpu = largest_node(tables)
    free = xp.sum(rooms.gpu_left_milli, axis=0) - demand.gpu_milli[task] * demand.num_gpus[task]
    cpu = rooms.cpu_left_milli - demand.cpu_milli[task]
    rest = 0.5 * as_real(xp, cpu) / most_cpu + 0.5 * as_real(xp, free) / most_gpu
    return xp.astype(xp.trunc((1.0 - rest) * 100.0), xp.int64), fullest_gpu(tables, rooms, task)


def dotprod_pairs(tables: Tables, rooms: Rooms, task: Array) -> tuple[Array, Array]:
    """DotProd: the array form of `dotprod_score`, operation by operation."""
    xp = tables.xp
    demand = tables.world.demand
    most_cpu, most_gpu = largest_node(tables)
    free = xp.sum(rooms.gpu_left_milli, axis=0)
    ask = demand.gpu_milli[task] * demand.num_gpus[task]
    cpu = rooms.cpu_left_milli
    cpu_milli = demand.cpu_milli[task]
    product = ((as_real(xp, cpu) / most_cpu) * (as_real(xp, cpu_milli) / most_cpu)
               + (as_real(xp, free) / most_gpu) * (as_real(xp, ask) / most_gpu))
    points = xp.astype(xp.trunc(100.0 * (1.0 - product / 2.0)), xp.int64)
    return points, fullest_gpu(tables, rooms, task)


def packing_pairs(tables: Tables, rooms: Rooms, task: Array) -> tuple[Array, Array]:
    """GpuPacking: the array form of `packing_score`."""
    xp = tables.xp
    left = rooms.gpu_left_milli
    num_gpus = tables.world.demand.num_gpus[task]
    num_idle = count(xp, left == WHOLE_GPU_MILLI)
    least = -xp.max(allowed(xp, -left, fits(tables, rooms, task)), axis=0)
    used = xp.maximum(100 - least * 100 // WHOLE_GPU_MILLI // 10, 50)
    points = xp.where(tables.is_share[task] & (least < WHOLE_GPU_MILLI), used,
                      xp.maximum(50 - num_gpus, 33))
    is_empty = num_idle == tables.world.power.num_gpus[rooms.node_type]
    points = xp.where(is_empty, xp.astype(xp.maximum(33 - num_idle, num_idle), xp.int64), points)
    return xp.where(num_gpus > 0, points, 0), fullest_gpu(tables, rooms, task)


def clustering_pairs(tables: Tables, rooms: Rooms, task: Array) -> tuple[Array, Array]:
    """GpuClustering: the array form of `clustering_score`."""
    xp = tables.xp
    _, most_gpu = largest_node(tables)
    kind = tables.world.demand.kind[task]
    num_rooms = rooms.node_type.shape[0]
    cell = xp.maximum(kind, 0) * num_rooms + xp.arange(num_rooms)
    same = xp.reshape(rooms.residents, (-1,))[cell]
    total = xp.sum(rooms.residents, axis=0)
    among_others = 50 + 25 * xp.astype(total == same, xp.int64)
    company = xp.where(same > 0, among_others, 25 * xp.astype(total == 0, xp.int64))
    points = 25 * (most_gpu - xp.sum(rooms.gpu_left_milli, axis=0)) // most_gpu + company
    return xp.where(kind >= 0, points, 0), fullest_gpu(tables, rooms, task)


DRAWN = -1


def random_pairs(tables: Tables, rooms: Rooms, task: Array) -> tuple[Array, Array]:
    """Random: no opinion, and the GPU is drawn."""
    nothing = tables.xp.zeros_like(task)
    return nothing, nothing + DRAWN


NOWHERE = 2**30


def least_rise_permille(tables: Tables, gpu_left_milli: Array, gpu_milli: int) -> Array:
    """Least rise of the load curve on a GPU that takes the demand; `NOWHERE` if none can."""
    xp = tables.xp
    load_permille = tables.world.power.load_permille
    load = WHOLE_GPU_MILLI - gpu_left_milli
    rise = load_permille[xp.minimum(load + gpu_milli, WHOLE_GPU_MILLI)] - load_permille[load]
    return xp.minimum(-xp.max(allowed(xp, -rise, gpu_left_milli >= gpu_milli), axis=0), NOWHERE)


def benefit_milliwatt(tables: Tables, rooms: Rooms) -> Array:
    """What each room saves the next task, times number of tasks, as the scalar function."""
    xp = tables.xp
    power = tables.world.power
    model = tables.world.gpu_model[rooms.node_type]
    cpu_left = rooms.cpu_left_milli
    num_idle = count(xp, rooms.gpu_left_milli == WHOLE_GPU_MILLI)
    now = cpu_milliwatt(tables, rooms.node_type, cpu_left)
    total = xp.zeros_like(cpu_left)
    range_w = power.gpu_full_w[rooms.node_type] - power.gpu_idle_w[rooms.node_type]
    rises = {gpu_milli: least_rise_permille(tables, rooms.gpu_left_milli, gpu_milli)
             for gpu_milli in {task.gpu_milli for task in tables.next_tasks if task.num_gpus > 0}}
    for task in tables.next_tasks:
        can = (task.cpu_milli <= cpu_left) & task.is_admitted[model]
        spare = xp.full_like(total, task.full_milliwatt)
        if task.num_gpus > 0:
            rise = rises[task.gpu_milli]
            spare = spare - range_w * task.num_gpus * rise
            can = can & (rise < NOWHERE) & (spare > 0)
        if task.gpu_milli == WHOLE_GPU_MILLI:
            can = can & (num_idle >= task.num_gpus)
        cpu_then = xp.maximum(cpu_left - task.cpu_milli, 0)
        more = cpu_milliwatt(tables, rooms.node_type, cpu_then) - now
        total = total + task.tasks * xp.where(can, xp.maximum(spare - more, 0), 0)
    return total


def outlook_milliwatt(tables: Tables, rooms: Rooms) -> Array:
    """Minus the power of each room, plus what it saves the next task, as the scalar function."""
    return (benefit_milliwatt(tables, rooms) // tables.world.target.num_tasks
            - cpu_milliwatt(tables, rooms.node_type, rooms.cpu_left_milli)
            - gpu_milliwatt(tables, rooms.node_type, rooms.gpu_left_milli))


def fragmentation(tables: Tables, rooms: Rooms) -> Array:
    """F_n(M) of each room, `num_tasks` times milli-GPU: the array form of `frag.fragmentation`."""
    xp = tables.xp
    left = rooms.gpu_left_milli
    target = tables.world.target
    row = level_row(tables, rooms.node_type, rooms.cpu_left_milli)
    useful = (xp.sum(left * sharing(tables, row, target.share_level[left]), axis=0)
              + whole_use(tables, row, count(xp, left == WHOLE_GPU_MILLI)))
    return xp.sum(left, axis=0) * target.num_tasks - useful


def worth_milliwatt(tables: Tables, rooms: Rooms, lost_w: tuple[int, int]) -> Array:
    """Outlook less fragments and stranded GPU: the array form of the function of this name."""
    ratio = tables.ratio
    free = tables.xp.sum(rooms.gpu_left_milli, axis=0)
    stranded = tables.xp.maximum(free - rooms.cpu_left_milli * ratio[1] // max(1, ratio[0]), 0)
    fragments = lost_w[0] * fragmentation(tables, rooms) // tables.world.target.num_tasks
    return outlook_milliwatt(tables, rooms) - fragments - lost_w[1] * stranded


def gpu_choices(tables: Tables, rooms: Rooms, task: Array) -> Array:
    """GPUs that a task might get, (GPUs, pairs): of equal neighbours the first."""
    xp = tables.xp
    left = rooms.gpu_left_milli
    row = xp.arange(left.shape[0])[:, None]
    is_new = (left != xp.concat([left[:1, :], left[:-1, :]])) | (row == 0)
    is_share = tables.is_share[task][None, :]
    return (is_share & is_new & fits(tables, rooms, task)) | (~is_share & (row == 0))


def taken_milli(tables: Tables, rooms: Rooms, task: Array, gpu: Array) -> Array:
    """What a task takes of each GPU, (GPUs, pairs): of the given one, or of the first idle ones."""
    xp = tables.xp
    demand = tables.world.demand
    left = rooms.gpu_left_milli
    is_idle = left == WHOLE_GPU_MILLI
    turn = xp.cumulative_sum(xp.astype(is_idle, xp.int64), axis=0)
    is_whole = is_idle & (turn <= demand.num_gpus[task][None, :])
    is_chosen = xp.arange(left.shape[0])[:, None] == gpu[None, :]
    is_taken = xp.where(tables.is_share[task][None, :], is_chosen, is_whole)
    return xp.astype(is_taken, xp.int64) * demand.gpu_milli[task][None, :]




def gain_pairs(tables: Tables, rooms: Rooms, task: Array,
               worth: Callable[[Tables, Rooms], Array]) -> tuple[Array, Array]:
    """Rise of a room's worth, with the GPU where it rises most: the array form of `keep_best`."""
    xp = tables.xp
    shape = rooms.gpu_left_milli.shape
    cell = xp.nonzero(xp.reshape(gpu_choices(tables, rooms, task), (-1,)))[0]
    pair = cell % shape[1]
    then = Rooms(*(xp.take(column, pair, axis=-1) for column in rooms))
    left = then.gpu_left_milli - taken_milli(tables, then, task[pair], cell // shape[1])
    cpu_left = then.cpu_left_milli - tables.world.demand.cpu_milli[task[pair]]
    after = xp.full((shape[0] * shape[1],), -(2**61), dtype=xp.int64)
    put(after, cell, worth(tables, then._replace(cpu_left_milli=cpu_left, gpu_left_milli=left)))
    after = xp.reshape(after, shape)
    best = xp.max(after, axis=0)
    return best - worth(tables, rooms), first(xp, after == best[None, :])


JOINT_PAIRS = tuple(partial(gain_pairs, worth=partial(worth_milliwatt, lost_w=lost_w))
                    for lost_w in LOST_W)
