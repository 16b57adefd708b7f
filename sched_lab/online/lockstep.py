"""Replicas of a whole cluster, each with its own luck and its own policy, place their tasks in lockstep, as one program on arrays."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..cluster import Cluster, State, empty_state
from ..lab.arrays import (
    Array,
    Floats,
    Integers,
    free_bytes,
    get_xp,
    in_rows,
    put,
    that_fit,
    to_host,
)
from ..lab.frames import InputError
from ..lab.sweeps import progress_bar
from ..power import Power
from ..traces import Arrivals, Tasks, target_workload, task_classes
from .inflation import (
    CURVE,
    Run,
    about_run,
    arrivals_of,
    curve_frame,
    in_file_order,
    run_of,
)
from .model import (
    AS_IS,
    ONE_AT_RANDOM,
    Placements,
    Policy,
    PowerSettings,
    Score,
    check_placements,
    stage_starts,
)
from .pairs import (
    DRAWN,
    Rooms,
    Tables,
    cpu_milliwatt,
    empty_rooms,
    first,
    fits,
    fragmentation,
    gpu_milliwatt,
    is_feasible,
    node_types,
    tables_of,
    taken_milli,
)
from .policies import policy_of

__all__ = ['Runs', 'simulate_together']


def parts_of(policy: Policy) -> tuple[Score, ...]:
    """Scores of a policy, all of which have an array form.

    Raises
    ------
    InputError : one has none
    """
    if any(score.array_form is None for score in policy.scores):
        raise InputError(
            f"policy {policy.name!r} has no array form in {policy.arithmetic} arithmetic, so it "
            "cannot run in lockstep", value=policy.name,
            mend="run it alone, with inflate; or give each part of it an array form in POLICIES "
            "(reference arithmetic adds floating-point numbers in an order that no array keeps)")
    return policy.scores


class Rules(NamedTuple):
    """How the replicas weigh their parts.

    Parameters
    ----------
    parts : scores that all replicas have
    weights : (replicas, stages, parts)
    starts : (replicas, stages, resources) from when on a stage holds, see `stage_starts`
    total_type : integers that hold every weighted sum
    """

    parts: tuple[Score, ...]
    weights: Array
    starts: Array
    total_type: Any


def rules_of(xp: Any, policies: Sequence[Policy], empty: State) -> Rules:
    """Rules of replicas, empty as yet, whose policies have the same scores and equally many stages.

    Raises
    ------
    InputError : a score has no array form, or weights are all 0, or so large that a sum exceeds 64
        bits
    """
    parts = parts_of(policies[0])
    weights = np.array([[policy.weights, *(later for _, later in policy.later)]
                        for policy in policies], np.int64)
    highest = [101 if part.unit == "points" or part.normalise != AS_IS else 2 * WIDE
               for part in parts]
    idle = np.argwhere(weights.max(axis=2) == 0)
    if len(idle):
        name = policies[idle[0, 0]].name
        raise InputError(f"the policy {name!r} weighs none of its scores", value=name,
                         mend="give one a weight above 0")
    most = max(
        sum(int(w) * high for w, high in zip(now, highest, strict=True)) for each in weights
        for now in each)
    if most >= 2**62:
        raise InputError(
            f"the weights of {policies[0].name!r} are too large for whole numbers of 64 bits",
            mend="give alpha with fewer decimals")
    starts = np.stack([stage_starts(policy, empty) for policy in policies])
    return Rules(parts, xp.asarray(weights), xp.asarray(starts),
                 xp.int32 if most < 2**30 else xp.int64)


class ArrivalColumns(NamedTuple):
    """Arrivals of several replicas, one column each; short ones end with tasks that fit nowhere.

    Parameters
    ----------
    task : (arrivals, replicas) task class
    memory_mib : (arrivals, replicas) unsigned
    seen : (arrivals, replicas) arrival before at which the class came last, -1 if it is new
    die : (arrivals, replicas) a large random number
    """

    task: Array
    memory_mib: Array
    seen: Array
    die: Array


NO_NODE_HAS = 2**31 - 1


def last_seen(task: Integers) -> NDArray[np.int32]:
    """Position before at which each entry came last, -1 if it is new."""
    order = np.argsort(task, kind="stable")
    before = np.concatenate([[-1], order[:-1]])
    before[np.flatnonzero(np.diff(task[order], prepend=-1))] = -1
    seen = np.empty(len(task), np.int32)
    seen[order] = before
    return seen


def arrival_columns(xp: Any, tasks: Sequence[Integers], memory_mib: Sequence[Integers],
                seeds: Sequence[int]) -> ArrivalColumns:
    """Arrivals of the replicas side by side, on the device of `xp`.

    Parameters
    ----------
    tasks, memory_mib : for each replica class and memory of its arriving tasks
    seeds : of each replica, for the dice of `play`
    """
    shape = (max(map(len, tasks)), len(tasks))
    task = np.zeros(shape, np.int64)
    memory = np.full(shape, NO_NODE_HAS, np.uint32)
    seen = np.full(shape, NO_NODE_HAS, np.int32)
    die = np.zeros(shape, np.int64)
    for i, (rows, mib, seed) in enumerate(zip(tasks, memory_mib, seeds, strict=True)):
        end = len(rows)
        task[:end, i] = rows
        memory[:end, i] = mib
        seen[:end, i] = last_seen(rows)
        dice = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[2])
        die[:end, i] = dice.integers(2**62, size=end)
    return ArrivalColumns(*map(xp.asarray, (task, memory, seen, die)))


class ReplicaStates(NamedTuple):
    """State of several replicas, and what is known of it.

    Parameters
    ----------
    nodes : (replicas * nodes, columns) one row of 32-bit numbers for each node, the columns of
        `Rooms` side by side
    memory_left_mib : (replicas, nodes) unsigned
    touched : (replicas, nodes) arrival at which the node last got a task, -2 if it never did
    key : for each part (replicas * classes, nodes), unsigned: 0 if the node cannot hold the class,
        else the score plus a constant above all that makes it positive
    gpu : for each part (replicas * classes * nodes,), the GPU that a share would get
    """

    nodes: Array
    memory_left_mib: Array
    touched: Array
    key: tuple[Array, ...]
    gpu: tuple[Array, ...]


def rows_of(tables: Tables, rooms: Rooms) -> Array:
    """States of nodes as rows of `ReplicaStates.nodes`."""
    xp = tables.xp
    columns = [
        rooms.node_type[None, :], rooms.cpu_left_milli[None, :], rooms.gpu_left_milli,
        rooms.residents]
    return xp.astype(xp.permute_dims(xp.concat(columns), (1, 0)), xp.int32)


def rooms_at(tables: Tables, states: ReplicaStates, at: Array) -> Rooms:
    """States of the nodes at positions replica * nodes + node."""
    xp = tables.xp
    end = 2 + tables.world.state.gpu_left_milli.shape[1]
    columns = in_rows(xp, xp.permute_dims(xp.take(states.nodes, at, axis=0), (1, 0)))
    columns = xp.astype(columns, xp.int64)
    return Rooms(columns[0, :], columns[1, :], columns[2:end, :], columns[end:, :])


WIDE = 2**30


def keys_of(tables: Tables, part: Score, rooms: Rooms, task: Array) -> tuple[Array, Array]:
    """Key (see `ReplicaStates`) and GPU of each possible pair of a room and a task class."""
    assert part.array_form is not None
    score, gpu = part.array_form(tables, rooms, task)
    key = score + (1 if part.unit == "points" else WIDE)
    return tables.xp.astype(key, tables.xp.uint32), tables.xp.astype(gpu, tables.xp.int8)


def first_keys(tables: Tables, part: Score, node_type: Array) -> tuple[Array, Array]:
    """Keys and GPUs of all classes on all nodes of empty replicas, shaped as in `ReplicaStates`.

    Parameters
    ----------
    node_type : (replicas, nodes); every type is scored once
    """
    xp = tables.xp
    world = tables.world
    num_types = world.gpu_model.shape[0]
    num_classes = world.demand.cpu_milli.shape[0]
    pair = xp.arange(num_classes * num_types)
    rooms = empty_rooms(tables, pair % num_types)
    task = pair // num_types
    key, gpu = keys_of(tables, part, rooms, task)
    copies = []
    for column in (key * xp.astype(is_feasible(tables, rooms, task), xp.uint32), gpu):
        of_nodes = xp.take(xp.reshape(column, (num_classes, num_types)),
                           xp.reshape(node_type, (-1,)), axis=1)
        copies.append(
            xp.permute_dims(xp.reshape(of_nodes, (num_classes, *node_type.shape)), (1, 0, 2)))
    return xp.reshape(copies[0], (-1, node_type.shape[1])), xp.reshape(copies[1], (-1,))


def empty_states(tables: Tables, parts: Sequence[Score], node_type: Array,
                memory_mib: Array) -> ReplicaStates:
    """Replicas without any task.

    Parameters
    ----------
    node_type, memory_mib : (replicas, nodes) type and memory of each node, in the order in which
        ties are broken
    """
    xp = tables.xp
    rooms = empty_rooms(tables, xp.reshape(node_type, (-1,)))
    known = [first_keys(tables, part, node_type) for part in parts]
    return ReplicaStates(in_rows(xp, rows_of(tables, rooms)), xp.astype(memory_mib, xp.uint32),
                 xp.full(node_type.shape, -2, dtype=xp.int32), tuple(key for key, _ in known),
                 tuple(gpu for _, gpu in known))


def rescore(tables: Tables, parts: Sequence[Score], states: ReplicaStates, task: Array, seen: Array,
            max_pairs: int) -> None:
    """Score the arriving class of each replica again on the nodes that changed since it came last.

    Parameters
    ----------
    task, seen : (replicas,) class, and arrival at which it came last
    max_pairs : number of pairs to score at once
    """
    xp = tables.xp
    num_nodes = states.touched.shape[1]
    stale = xp.nonzero(xp.reshape(states.touched >= seen[:, None], (-1,)))[0]
    num_classes = tables.world.demand.cpu_milli.shape[0]
    for start in range(0, stale.shape[0], max_pairs):
        at = stale[start:min(start + max_pairs, stale.shape[0])]
        replica = at // num_nodes
        rooms = rooms_at(tables, states, at)
        now = task[replica]
        cell = (replica * (num_classes - 1) + now) * num_nodes + at
        possible = xp.nonzero(is_feasible(tables, rooms, now))[0]
        rooms = Rooms(*(xp.take(column, possible, axis=-1) for column in rooms))
        now = now[possible]
        for part, known, gpu_known in zip(parts, states.key, states.gpu, strict=True):
            keys = xp.reshape(known, (-1,))
            put(keys, cell, xp.zeros(cell.shape, dtype=xp.uint32))
            key, gpu = keys_of(tables, part, rooms, now)
            put(keys, cell[possible], key)
            put(gpu_known, cell[possible], gpu)


def spread(xp: Any, key: Array, equal: int) -> Array:
    """Points 0..100 between worst and best feasible node of each replica (`add_points`).

    Parameters
    ----------
    key : (replicas, nodes)
    equal : points if all are equal

    Returns
    -------
    (replicas, nodes) points; anything where the key is 0
    """
    high = xp.max(key, axis=1)
    low = xp.min(key - 1, axis=1) + 1  # 0 - 1 is the largest unsigned number
    height = xp.astype(high, xp.float64) - xp.astype(low, xp.float64)
    is_flat = height <= 0
    height = xp.where(is_flat, 1.0, height)
    slope = xp.where(is_flat, 0.0, 100.0 / height)
    start = xp.where(is_flat, float(equal), 0.5 / height - xp.astype(low, xp.float64) * slope)
    above = xp.astype(xp.maximum(key, low[:, None]), xp.float64)
    return xp.astype(above * slope[:, None] + start[:, None], xp.int32)


def nth_host(xp: Any, key: Array, die: Array) -> Array:
    """Node number `die` modulo their number among the feasible ones of each replica."""
    num_nodes = key.shape[1]
    hosts = xp.nonzero(xp.reshape(key, (-1,)) > 0)[0]
    before = xp.searchsorted(hosts, xp.arange(key.shape[0] + 1) * num_nodes)
    chosen = before[:-1] + die % xp.maximum(before[1:] - before[:-1], 1)
    return xp.concat([hosts, xp.zeros(1, dtype=hosts.dtype)])[chosen] % num_nodes


def choose(xp: Any, rules: Rules, keys: Sequence[Array], weights: Array, die: Array) -> Array:
    """First feasible node with the largest weighted sum of points; any node if none is feasible.

    Parameters
    ----------
    rules : how the replicas weigh their parts
    keys : (replicas, nodes) of each part, 0 where a node is not feasible now
    weights : (replicas, parts)
    die : (replicas,) for `ONE_AT_RANDOM`
    """
    if len(keys) == 1:  # the best node is the same, spread over 0..100 or not
        is_drawn = rules.parts[0].normalise == ONE_AT_RANDOM
        return nth_host(xp, keys[0], die) if is_drawn else xp.argmax(keys[0], axis=1)
    total = xp.ones(keys[0].shape, dtype=rules.total_type)
    for i, (part, key) in enumerate(zip(rules.parts, keys, strict=True)):
        weight = xp.astype(weights[:, i], rules.total_type)
        if part.normalise == ONE_AT_RANDOM:
            at = xp.arange(key.shape[0]) * key.shape[1] + nth_host(xp, key, die)
            flat = xp.reshape(total, (-1,))
            put(flat, at, flat[at] + 100 * weight)
        else:
            points = key if part.normalise == AS_IS else spread(xp, key, part.normalise)
            total = total + weight[:, None] * xp.astype(points, rules.total_type)
    return xp.argmax(total * xp.astype(keys[0] > 0, rules.total_type), axis=1)


def drawn_gpu(xp: Any, marks: Array, die: Array) -> Array:
    """One marked GPU of each room, (rooms,), drawn with a large random number like `draw_gpus`."""
    for left in range(marks.shape[0], 1, -1):
        turn = xp.cumulative_sum(xp.astype(marks, xp.int64), axis=0)
        is_on = turn[-1, :] == left
        marks = marks & ((turn != (die % left + 1)[None, :]) | ~is_on[None, :])
        die = xp.where(is_on, die // left, die)
    return first(xp, marks)


def place(tables: Tables, states: ReplicaStates, at: Array, rooms: Rooms, taken: Array,
          is_placed: Array, now: ArrivalColumns, arrival: int) -> None:
    """Take what the tasks ask for from one node of each replica where a task is placed.

    Parameters
    ----------
    at, rooms : (replicas,) flat position of the node, and its state
    taken : (GPUs, replicas) what each GPU gives
    is_placed : (replicas,) whether the task is placed at all
    now, arrival : one row of the arrivals, and its number
    """
    xp = tables.xp
    demand = tables.world.demand
    num = xp.astype(is_placed, xp.int64)
    kind = xp.arange(rooms.residents.shape[0])[:, None] == demand.kind[now.task][None, :]
    then = rooms._replace(cpu_left_milli=rooms.cpu_left_milli - num * demand.cpu_milli[now.task],
                          gpu_left_milli=rooms.gpu_left_milli - num[None, :] * taken,
                          residents=rooms.residents + num[None, :] * xp.astype(kind, xp.int64))
    put(states.nodes, at, rows_of(tables, then))
    memory = xp.reshape(states.memory_left_mib, (-1,))
    touched = xp.reshape(states.touched, (-1,))
    put(memory, at, memory[at] - xp.astype(num, xp.uint32) * now.memory_mib)
    put(touched, at, xp.where(is_placed, arrival, touched[at]))


def known_gpu(xp: Any, states: ReplicaStates, cell: Array, weights: Array) -> Array:
    """GPU that the heaviest part wants for the class on the node of each replica."""
    gpu = xp.astype(states.gpu[0][cell], xp.int64)
    if len(states.gpu) > 1:
        heaviest = xp.argmax(weights, axis=1)
        for i, known in enumerate(states.gpu[1:], start=1):
            gpu = xp.where(heaviest == i, xp.astype(known[cell], xp.int64), gpu)
    return gpu


def step(tables: Tables, rules: Rules, states: ReplicaStates, now: ArrivalColumns, stage: Array,
         arrival: int, max_pairs: int) -> tuple[Array, Array]:
    """Place one arrival in each replica.

    Parameters
    ----------
    now, arrival : one row of the arrivals, and its number
    stage : (replicas,) stage of each policy
    max_pairs : number of pairs to score at once

    Returns
    -------
    node, -1 where there is none, and GPUs as a bit mask, both (replicas,)
    """
    xp = tables.xp
    num_nodes = states.touched.shape[1]
    rescore(tables, rules.parts, states, now.task, now.seen, max_pairs)
    replica = xp.arange(now.task.shape[0])
    row = replica * tables.world.demand.cpu_milli.shape[0] + now.task
    # all bits if enough is left, else none
    has_memory = ((states.memory_left_mib - now.memory_mib[:, None]) >> 31) - 1
    keys = [xp.take(known, row, axis=0) & has_memory for known in states.key]
    weights = xp.take(xp.reshape(rules.weights, (-1, rules.weights.shape[2])),
                      replica * rules.weights.shape[1] + stage, axis=0)
    node = choose(xp, rules, keys, weights, now.die)
    is_placed = keys[0][replica, node] > 0
    gpu = known_gpu(xp, states, row * num_nodes + node, weights)
    at = replica * num_nodes + node
    rooms = rooms_at(tables, states, at)
    if any(part.normalise == ONE_AT_RANDOM for part in rules.parts):
        drawn = drawn_gpu(xp, fits(tables, rooms, now.task), now.die >> 31)
        gpu = xp.where(gpu == DRAWN, drawn, gpu)
    taken = taken_milli(tables, rooms, now.task, gpu)
    place(tables, states, at, rooms, taken, is_placed, now, arrival)
    bit = 1 << xp.arange(taken.shape[0])[:, None]
    gpu_mask = xp.sum(xp.astype(taken > 0, xp.int64) * bit, axis=0)
    return xp.where(is_placed, node, -1), gpu_mask * xp.astype(is_placed, xp.int64)


def play_together(tables: Tables, rules: Rules, states: ReplicaStates, columns: ArrivalColumns,
                  max_pairs: int) -> tuple[Array, Array]:
    """Let every replica place its arrivals in lockstep: the array form of `replay`, but no curve.

    Parameters
    ----------
    tables, rules, states : the cluster, the policies, empty replicas; the last are changed
    columns : arrivals of the replicas
    max_pairs : number of pairs to score at once

    Returns
    -------
    node, -1 where none was feasible, and GPUs as a bit mask, both (arrivals, replicas)
    """
    xp = tables.xp
    demand = tables.world.demand
    shape = columns.task.shape
    node, gpu_mask = (xp.empty(shape, dtype=xp.int64) for _ in range(2))
    in_use = xp.zeros((shape[1], rules.starts.shape[2]), dtype=xp.int64)
    stage = xp.zeros(shape[1], dtype=xp.int64)
    for arrival in range(shape[0]):
        now = ArrivalColumns(*(column[arrival, :] for column in columns))
        placed = step(tables, rules, states, now, stage, arrival, max_pairs)
        node[arrival, :], gpu_mask[arrival, :] = placed
        if rules.weights.shape[1] > 1:
            asked = xp.stack([  # the resources
                demand.gpu_milli[now.task] * demand.num_gpus[now.task], demand.cpu_milli[now.task],
                xp.astype(now.memory_mib, xp.int64)], axis=1)
            in_use = in_use + asked * xp.astype(node[arrival, :] >= 0, xp.int64)[:, None]
            has_begun = xp.any(rules.starts[:, 1:, :] <= in_use[:, None, :], axis=2)
            stage = xp.sum(xp.astype(has_begun, xp.int64), axis=1)
    return node, gpu_mask


def exact_curves(tables: Tables, node_type: Array, task: Array, node: Array,
                 gpu_mask: Array) -> tuple[Array, ...]:
    """Power and fragmentation after every arrival, from the placements.

    Parameters
    ----------
    node_type : (replicas, nodes)
    task, node, gpu_mask : (arrivals, replicas)

    Returns
    -------
    milliwatts of CPUs, of GPUs, and fragmentation times `num_tasks`, each (arrivals, replicas)
    """
    xp = tables.xp
    demand = tables.world.demand
    num_replicas, num_nodes = node_type.shape
    num_places = num_replicas * num_nodes
    replica = xp.arange(num_replicas)[None, :]
    # the arrivals node by node, on each in their order; those that have no node come last
    at = xp.reshape(xp.where(node >= 0, replica * num_nodes + node, num_places), (-1,))
    order = xp.argsort(at, stable=True)
    at = at[order]
    task = xp.reshape(task, (-1,))[order]
    begin = xp.searchsorted(at, at)  # where the list of the node begins
    is_placed = xp.astype(at < num_places, xp.int64)
    empty = empty_rooms(tables, xp.reshape(node_type, (-1,))[xp.minimum(at, num_places - 1)])

    def left_after_each(full: Array, asked: Array) -> Array:
        so_far = xp.cumulative_sum(asked, axis=1)
        return full - so_far + xp.take(so_far - asked, begin, axis=1)

    gpu = xp.arange(empty.gpu_left_milli.shape[0])[:, None]
    is_taken = xp.reshape(gpu_mask, (-1,))[order][None, :] >> gpu & 1
    cpu_left = left_after_each(empty.cpu_left_milli[None, :],
                               (demand.cpu_milli[task] * is_placed)[None, :])
    gpu_left = left_after_each(empty.gpu_left_milli, is_taken * demand.gpu_milli[task][None, :])
    rooms = empty._replace(cpu_left_milli=cpu_left[0, :], gpu_left_milli=gpu_left)

    def measures(rooms: Rooms) -> tuple[Array, ...]:
        return (cpu_milliwatt(tables, rooms.node_type, rooms.cpu_left_milli),
                gpu_milliwatt(tables, rooms.node_type, rooms.gpu_left_milli),
                fragmentation(tables, rooms))

    start = empty_rooms(tables, xp.arange(tables.world.gpu_model.shape[0]))
    is_first = begin == xp.arange(begin.shape[0])
    curves = []
    for now, idle in zip(measures(rooms), measures(start), strict=True):
        before = xp.where(is_first, idle[rooms.node_type], xp.concat([now[:1], now[:-1]]))
        change = xp.zeros_like(now)
        put(change, order, (now - before) * is_placed)
        change = xp.reshape(change, node.shape)
        curves.append(xp.cumulative_sum(change, axis=0) + xp.sum(idle[node_type], axis=1)[None, :])
    return tuple(curves)


def curves_of(tables: Tables, node_type: Array, columns: ArrivalColumns, node: Array,
              gpu_mask: Array) -> Floats:
    """Columns `CURVE` of every replica, (replicas, arrivals, columns), in the units of `play`.

    Parameters
    ----------
    tables, node_type : the cluster, type of each node, (replicas, nodes)
    columns : arrivals of the replicas
    node, gpu_mask : (arrivals, replicas) where they went
    """
    xp = tables.xp
    demand = tables.world.demand
    cpu, gpu, frag = exact_curves(tables, node_type, columns.task, node, gpu_mask)
    asked = demand.gpu_milli[columns.task] * demand.num_gpus[columns.task]
    is_placed = xp.astype(node >= 0, xp.int64)
    used, arrived, failed = (xp.cumulative_sum(x, axis=0)
                             for x in (asked * is_placed, asked, 1 - is_placed))
    cpu, gpu, used, arrived, frag, failed = (to_host(x).T for x in (
        cpu, gpu, used, arrived, frag, failed))
    return np.stack([cpu / 1000, gpu / 1000, used, arrived, frag / tables.world.target.num_tasks,
                     failed], axis=-1)


class Replica(NamedTuple):
    """One of many runs: its summary, and what its frames are made of.

    Parameters
    ----------
    about : policy, seed and parameters
    cluster : the nodes
    placements : where the tasks went
    curve : (arrivals, len(CURVE)) as in `play`
    """

    about: dict[str, Any]
    cluster: Cluster
    placements: Placements
    curve: Floats


@dataclass(frozen=True)
class Runs:
    """Runs of many policies and seeds on one cluster and trace; `runs[i]` is one with its frames.

    Parameters
    ----------
    summary : one row per replica: policy, seed, parameters and the last row of its curve, as
        `Run.summary`
    replicas : what the frames are made of
    """

    summary: pd.DataFrame
    replicas: tuple[Replica, ...]

    def __len__(self) -> int:
        return len(self.replicas)

    def __getitem__(self, index: int) -> Run:
        about, cluster, placements, curve = self.replicas[index]
        return run_of(cluster, placements, curve, about)

    def __iter__(self) -> Iterator[Run]:
        return (self[index] for index in range(len(self)))


def runs_of(cluster: Cluster, replicas: Sequence[Replica]) -> Runs:
    """Finished replicas with their summary."""
    last = np.array([
        each.curve[-1] if len(each.curve) else np.zeros(len(CURVE)) for each in replicas])
    ends = curve_frame(cluster, last)
    about = pd.DataFrame([each.about for each in replicas])
    grar = ends["used_gpu_milli"] / ends["arrived_gpu_milli"]
    return Runs(pd.concat([about, ends.assign(grar=grar)], axis=1), tuple(replicas))


SCRATCH_BYTES = 2**27


def bytes_per_pair(tables: Tables) -> int:
    """Most memory that scoring one pair takes, roughly: 24 numbers for each GPU."""
    return 8 * 24 * (int(tables.world.state.gpu_left_milli.shape[1]) + 2)


def bytes_per_replica(tables: Tables, num_parts: int, num_nodes: int, num_arrivals: int) -> int:
    """Memory that one replica takes at most: keys, twice while they are made, and all the rest.

    Parameters
    ----------
    tables : of the cluster and the trace
    num_parts, num_nodes, num_arrivals : scores of the policy, size of the cluster, of the workload
    """
    world = tables.world
    num_gpus = int(world.state.gpu_left_milli.shape[1])
    num_kinds = int(world.residents.shape[1])
    known = (5 * num_parts + 5) * int(world.demand.cpu_milli.shape[0])
    state = 4 * (4 + num_gpus + num_kinds) + 8 * (3 + 2 * num_parts)
    return num_nodes * (known + state) + 48 * num_arrivals


MOST_NODE_W = 100_000  # scores in milliwatts stay far below `WIDE`


class Setting(NamedTuple):
    """What all replicas of a batch share.

    Parameters
    ----------
    cluster, tasks : the nodes in file order, the trace
    class_of : (tasks,) task class
    type_of : (nodes,) node type
    tables : on the device
    """

    cluster: Cluster
    tasks: Tasks
    class_of: Integers
    type_of: Integers
    tables: Tables


def setting_of(cluster: Cluster, tasks: Tasks, model: Power, xp: Any) -> Setting:
    """Tables of a cluster and a trace, which is also the target workload.

    Raises
    ------
    InputError : a number that arithmetic in 32 bits cannot hold
    """
    for column, unit in (("memory_mib", "MiB"), ("cpu_milli", "milli-vCPU")):
        if max(getattr(table, column).max(initial=0) for table in (cluster, tasks)) >= NO_NODE_HAS:
            raise InputError(f"a node or a task has 2**31 {unit} or more", column=column,
                             mend=f"give {unit}")
    cpus = -(-model.cpu_milli // (2000 * model.cpu_cores))
    if (cpus * model.cpu_full_w + model.num_gpus * model.gpu_full_w).max(initial=0) >= MOST_NODE_W:
        raise InputError(f"a node draws {MOST_NODE_W} W or more when full", column="full_w",
                         mend="give watts")
    classes, class_of = task_classes(tasks)
    type_of, _ = node_types(model, cluster)
    return Setting(cluster, tasks, class_of, type_of,
                   tables_of(cluster, model, classes, target_workload(tasks), xp))


def run_together(setting: Setting, replicas: Sequence[tuple[Policy, int]],
                 draws: Mapping[int, Arrivals]) -> Iterator[tuple[Integers, Integers, Floats]]:
    """Let replicas whose policies have the same scores and equally many stages go in lockstep.

    Parameters
    ----------
    setting : what they share
    replicas : policy and seed of each
    draws : workload of each seed

    Yields
    ------
    node, GPUs and curve of each, as `play`
    """
    tables = setting.tables
    xp = setting.tables.xp
    drawn = [draws[seed] for _, seed in replicas]
    rules = rules_of(xp, [policy for policy, _ in replicas], empty_state(setting.cluster))
    columns = arrival_columns(xp, [setting.class_of[draw.task_row] for draw in drawn],
                              [setting.tasks.memory_mib[draw.task_row] for draw in drawn],
                              [seed for _, seed in replicas])
    order = np.stack([np.argsort(draw.node_rank, kind="stable") for draw in drawn])
    node_type = xp.asarray(setting.type_of[order])
    memory_mib = xp.asarray(setting.cluster.memory_mib[order])
    states = empty_states(tables, rules.parts, node_type, memory_mib)
    max_pairs = max(1, SCRATCH_BYTES // bytes_per_pair(tables))
    node, gpu_mask = play_together(tables, rules, states, columns, max_pairs)
    width = max(1, SCRATCH_BYTES // max(1, columns.task.shape[0] * bytes_per_pair(tables)))
    for start in range(0, len(drawn), width):
        some = slice(start, min(start + width, len(drawn)))
        part = ArrivalColumns(*(column[:, some] for column in columns))
        placed = node[:, some], gpu_mask[:, some]
        curves = curves_of(tables, node_type[some, :], part, *placed)
        for i, (draw, curve) in enumerate(zip(drawn[some], curves, strict=True)):
            end = len(draw.task_row)
            yield *(to_host(x[:, i])[:end] for x in placed), curve[:end]


CPU_AT_ONCE = 64


def groups_of(replicas: Sequence[tuple[Policy, int]], at_once: int) -> Iterator[list[int]]:
    """Positions of replicas that can go in lockstep, at most `at_once` together."""
    alike: dict[Any, list[int]] = {}
    for i, (policy, _) in enumerate(replicas):
        alike.setdefault((policy.scores, len(policy.later)), []).append(i)
    for members in alike.values():
        for start in range(0, len(members), at_once):
            yield members[start:start + at_once]


def simulate_together(cluster: Cluster, tasks: Tasks,
                      policies: str | Policy | Sequence[str | Policy] = "fgd",
                      seeds: Sequence[int] | Mapping[int, str | Arrivals] = (0,), *,
                      device: str = "cpu", at_once: int | None = None,
                      until: float | None = None, power: str | PowerSettings = "eq1") -> Runs:
    """Run `inflate` for every policy and seed, many replicas in lockstep, with equal results.

    Parameters
    ----------
    cluster, tasks, until, power : as `inflate`
    policies : names or policies, in exact arithmetic; each meets the workload of every seed
    seeds : workloads to draw with replacement; or what `inflate` takes as arrivals, by seed
    device : "cpu" or "cuda"
    at_once : replicas in lockstep; as many as fit into half of the free memory if not given, on a
        CPU at most `CPU_AT_ONCE`

    Raises
    ------
    InputError : a policy has no array form, no such device, or too many replicas at once for its
        memory
    """
    settings = PowerSettings(power) if isinstance(power, str) else power
    xp = get_xp(device)
    names = [policies] if isinstance(policies, str | Policy) else policies
    chosen = [policy_of(name) if isinstance(name, str) else name for name in names]
    if not (chosen and len(seeds)):
        raise InputError("a lockstep needs a policy and a seed", mend="give one of each, or more")
    arrivals = seeds if isinstance(seeds, Mapping) else dict.fromkeys(seeds, "replacement")
    draws = {seed: arrivals_of(cluster, tasks, seed, until, how) for seed, how in arrivals.items()}
    replicas = [(policy, seed) for policy in chosen for seed in seeds]
    setting = setting_of(cluster, tasks, settings.of(cluster), xp)
    num_parts = max(len(parts_of(policy)) for policy in chosen)
    num_arrivals = max(len(draw.task_row) for draw in draws.values())
    each = bytes_per_replica(setting.tables, num_parts, len(cluster), num_arrivals)
    fitting = that_fit(each, free_bytes(xp) // 2, at_once and min(at_once, len(replicas)))
    if not at_once and not hasattr(xp, "cuda"):
        fitting = min(fitting, CPU_AT_ONCE)
    results: dict[int, Replica] = {}
    with progress_bar("runs in lockstep", 0, len(replicas)) as advance:
        for members in groups_of(replicas, fitting):
            found = run_together(setting, [replicas[i] for i in members], draws)
            for i, (node, gpu_mask, curve) in zip(members, found, strict=True):
                policy, seed = replicas[i]
                rows = draws[seed].task_row
                order = np.argsort(draws[seed].node_rank, kind="stable")
                placements = Placements(rows, in_file_order(order, node), gpu_mask)
                check_placements(cluster, tasks, placements)
                about = about_run(cluster, policy, seed, len(rows), until, arrivals[seed], settings)
                results[i] = Replica(about, cluster, placements, curve)
            advance(len(results))
    return runs_of(cluster, [results[i] for i in range(len(replicas))])
