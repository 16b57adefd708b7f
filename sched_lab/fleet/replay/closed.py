"""Nodes that are closed draw nothing while they are down, and what is free on them is neither stranded nor idle."""

# A module, written by hand.

from __future__ import annotations

import numpy as np
import pandas as pd

from ...cluster import WHOLE_GPU_MILLI
from ...lab.arrays import Floats, Integers
from ...lab.jit import interpreted
from ...online.joint import stranded_milli, usual_ratio
from ...online.model import PowerSettings
from .outages import Outages, apart, mean_over
from .problem import Problem, Schedule, idle_milliwatts, with_lost, world_of_problem

__all__ = ['with_closed']


def with_closed(problem: Problem, schedule: Schedule, fine: pd.DataFrame, power: PowerSettings,
                asleep_after_s: float, asleep_w: float) -> pd.DataFrame:
    """A curve in which nodes that are down draw nothing, with `closed_gpu`: GPUs of closed nodes that nobody holds.

    These are then neither stranded nor idle. Without outages it is the curve as it was.

    Parameters
    ----------
    problem, schedule, power, asleep_after_s, asleep_w : as `measure`
    fine : as `measure` gives it
    """
    if problem.outages is None:
        return fine
    edges_s = np.append(fine["start_s"].to_numpy(), fine["end_s"].iloc[-1])
    down, closed = apart(problem.outages.down), apart(problem.outages)
    problem, schedule, _ = with_lost(problem, schedule)
    fine = fine.copy()
    idle_w = idle_milliwatts(problem, power) / 1000
    cpu_w, gpu_w = (mean_over(down.from_s, down.until_s, watts[down.node], edges_s) for watts in idle_w)
    fine["cpu_w"] -= cpu_w
    fine["gpu_w"] -= gpu_w
    fine["eopc_w"] -= cpu_w + gpu_w
    from_s, until_s, free_milli, stranded = free_when_closed(problem, schedule, power, closed)
    fine["closed_gpu"], of_no_use = (mean_over(from_s, until_s, milli / WHOLE_GPU_MILLI, edges_s)
                                     for milli in (free_milli, stranded))
    fine["stranded_gpu"] = np.maximum(0.0, fine["stranded_gpu"] - of_no_use)
    fine["idle_gpu"] = np.maximum(0.0, fine["idle_gpu"] - (fine["closed_gpu"] - of_no_use))
    if np.isfinite(asleep_after_s):  # less what those that are down would draw if they were only empty
        sleeps_s = np.clip(empty_since(schedule, down, edges_s[0]) + asleep_after_s, down.from_s, down.until_s)
        fine["asleep_w"] -= (
            mean_over(down.from_s, sleeps_s, idle_w.sum(axis=0)[down.node], edges_s)
            + mean_over(sleeps_s, down.until_s, np.full(len(sleeps_s), asleep_w), edges_s))
    return fine


def empty_since(schedule: Schedule, down: Outages, first_s: float) -> Floats:
    """Since when each node that goes down is empty by then, (outages,); `first_s` if nothing ran there before."""
    return np.array([schedule.end_s[(schedule.node == node) & (schedule.end_s <= from_s)].max(initial=first_s)
                     for node, from_s in zip(down.node, down.from_s, strict=True)])


def free_when_closed(problem: Problem, schedule: Schedule, power: PowerSettings,
                     closed: Outages) -> tuple[Floats, Floats, Integers, Integers]:
    """Spans in which as much of a closed node is free: from when, until when, milli-GPU, and how much of it is stranded.

    Parameters
    ----------
    problem, schedule, power : as `measure`, each run as a task
    closed : spans in which nodes are closed, each moment of a node once
    """
    tasks, cluster = problem.tasks, problem.cluster
    asks = np.column_stack([tasks.gpu_demand_milli, tasks.cpu_milli])
    by_node = np.argsort(schedule.node, kind="stable")
    first = np.searchsorted(schedule.node[by_node], np.arange(len(cluster) + 1))
    spans, free = [np.zeros((0, 2))], [np.zeros((0, 2), np.int64)]
    for node, from_s, until_s in zip(*closed[:3], strict=True):
        rows = by_node[first[node]:first[node + 1]]
        rows = rows[(schedule.end_s[rows] > from_s) & (schedule.start_s[rows] < until_s)]
        at_s = np.clip(np.concatenate([[from_s], schedule.start_s[rows], schedule.end_s[rows], [until_s]]), from_s, until_s)
        order = np.argsort(at_s, kind="stable")
        whole = [WHOLE_GPU_MILLI * cluster.num_gpus[node], min(cluster.cpu_milli[node], 10**9)]
        spans.append(np.column_stack([at_s[order[:-1]], at_s[order[1:]]]))
        free.append(np.cumsum(np.vstack([[whole], -asks[rows], asks[rows]])[order[:-1]], axis=0))
    from_s, until_s = np.concatenate(spans).T
    gpu_milli, cpu_milli = np.maximum(0, np.concatenate(free)).T
    with interpreted(True):  # a few moments of each
        ratio = usual_ratio(world_of_problem(problem, power)[0].target)
        stranded = np.array([stranded_milli(ratio, *left) for left in zip(cpu_milli.tolist(), gpu_milli.tolist(),
                                                                           strict=True)], np.int64)
    return from_s, until_s, gpu_milli, stranded
