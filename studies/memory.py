"""Host memory strands GPUs too, and no score looks at it: what is gained when it has a price."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sched_lab.lab.arrays import Integers
from sched_lab.lab.jit import njit
from sched_lab.online.joint import stranded_milli, usual_ratio
from sched_lab.online.model import Policy, Score, World
from sched_lab.online.policies import policy_of
from sched_lab.traces import Tasks, task_classes

__all__ = ['price_memory']


class Usual(NamedTuple):
    """What tasks usually ask of memory.

    Parameters
    ----------
    memory_mib : (classes,) mean of each class
    ratio : MiB and milli-GPU that the GPU tasks of the trace ask for in all
    """

    memory_mib: tuple[int, ...]
    ratio: tuple[int, int]


def usual_memory(tasks: Tasks) -> Usual:
    """Memory that the tasks of a trace usually ask for."""
    classes, class_of = task_classes(tasks)
    mean_mib = np.bincount(class_of, tasks.memory_mib, len(classes)) / classes.count
    asks = tasks.num_gpus > 0
    return Usual(tuple(np.rint(mean_mib).astype(int).tolist()),
                 (int(tasks.memory_mib[asks].sum()), int(tasks.gpu_demand_milli[asks].sum())))


@njit(cache=True, error_model="numpy")
def stranded_by_memory(ratio: tuple[int, int], memory_ratio: tuple[int, int], cpu_left_milli: int,
                       memory_left_mib: int, free_milli: int) -> int:
    """Milli-GPU of a node that memory strands beside those that CPU strands."""
    fed_milli = max(0, memory_left_mib) * memory_ratio[1] // max(1, memory_ratio[0])
    by_cpu = stranded_milli(ratio, cpu_left_milli, free_milli)
    return max(by_cpu, free_milli - fed_milli) - by_cpu


def with_memory(kernel: Any, stage: int, usual: Usual) -> Any:
    """A kernel of `bid` that charges for GPUs that memory strands."""
    class_mib = np.array(usual.memory_mib)
    memory_ratio = usual.ratio

    @njit(error_model="numpy")
    def priced(world: World, task: int, nodes: Integers, score: NDArray[np.int32],
               gpu_mask: Integers) -> None:
        kernel(world, task, nodes, score, gpu_mask)
        ratio = usual_ratio(world.target)
        lost_w = world.bids.lost_w[stage, 1]
        cpu_milli = world.demand.cpu_milli[task]
        takes_milli = world.demand.gpu_milli[task] * world.demand.num_gpus[task]
        for node in nodes:
            cpu = world.state.cpu_left_milli[node]
            mib = world.state.memory_left_mib[node]
            free = world.state.gpu_left_milli[node].sum()
            more = stranded_by_memory(ratio, memory_ratio, cpu - cpu_milli,
                                      mib - class_mib[task], free - takes_milli)
            score[node] -= lost_w * (more - stranded_by_memory(ratio, memory_ratio, cpu, mib, free))

    return priced


@lru_cache(maxsize=8)
def scores_with_memory(name: str, usual: Usual) -> tuple[Score, ...]:
    """Scores of a policy with dials, memory priced; compiled once for each trace."""
    return tuple(Score(with_memory(score.kernel, stage, usual))
                 for stage, score in enumerate(policy_of(name).scores))


def price_memory(name: str, tasks: Tasks) -> Policy:
    """`bid`, or a point of its family, with a price of memory.

    Parameters
    ----------
    name : "bid" or "bid:SERVED:SAVED"
    tasks : the trace, which says what tasks usually ask for

    Returns
    -------
    a policy for `inflate` on this trace

    Raises
    ------
    ValueError : the policy has no price of stranded GPUs
    """
    policy = policy_of(name)
    if policy.dials is None:
        raise ValueError(f"{name} has no price of stranded GPUs; give bid or bid:SERVED:SAVED")
    return replace(policy, name=f"{name}+memory",
                   scores=scores_with_memory(name, usual_memory(tasks)))
