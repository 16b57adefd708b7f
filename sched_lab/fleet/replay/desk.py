"""What decides where a task goes in a replay: a policy, and what it knows of the nodes as they stand."""

# A module, written by hand.

from __future__ import annotations

from heapq import heappush
from typing import Any, NamedTuple

import numpy as np

from ...cluster import State
from ...lab.arrays import Integers, Truths
from ...lab.jit import njit
from ...online.bid import count_placed, is_due
from ...online.inflation import (
    MAX_GROUPS,
    ArrivingTasks,
    Memory,
    StagedWeights,
    decide,
    decide_by_index,
    empty_memory,
    stage_now,
)
from ...online.model import World
from ...online.score_index import Best, Groups, Index, empty_index, note_change
from ...power import cpu_power_milliwatt, gpu_power_milliwatt
from .case import Case, TimedTasks, hold, node_milliwatt, node_milliwatts
from .problem import Schedule

__all__ = ['Desk']


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
