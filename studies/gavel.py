"""Gavel's measurements as a table, and Gavel as the Hadar paper tells it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sched_lab.hadar.baselines import pick_by_priority, place_on_types
from sched_lab.hadar.model import Allocation, State, Throughputs, type_gpus
from sched_lab.hadar.workload import GAVEL_TYPES
from sched_lab.lab.arrays import Floats
from sched_lab.lab.frames import Column, read_table

__all__ = ["RoundShares", "read_gavel_throughputs"]


def read_gavel_throughputs(path: str | Path) -> Throughputs:
    """Read Gavel's measurements; keys are such as "ResNet-50 (batch size 64)".

    Raises
    ------
    InputError : at the first thing that is wrong

    References
    ----------
    Gavel's `simulation_throughputs.json`, written as a table
    """
    rate = Column("number", minimum=0, blank=np.nan)
    names = [f"{name}{kind}_steps_per_s" for kind in ("", "_unconsolidated")
             for name in GAVEL_TYPES]
    what = {"model": Column("text"), "batch_size": Column("text"),
            "scale_factor": Column("integer", minimum=1)}
    frame = read_table(path, what | {name: rate for name in names})
    keys = [f"{model} (batch size {batch})" if batch else model
            for model, batch in zip(frame["model"], frame["batch_size"], strict=True)]
    row = {(key, int(workers)): number for number, (key, workers) in
           enumerate(zip(keys, frame["scale_factor"], strict=True))}
    packed = np.nan_to_num(frame[names[:3]].to_numpy(float))
    spread = frame[names[3:]].to_numpy(float)
    return Throughputs(GAVEL_TYPES, row, packed, np.where(np.isnan(spread), packed, spread))


class RoundShares:
    """Gavel as the Hadar paper tells it: share over rounds received on the type, infinite at first.

    Parameters
    ----------
    share : (jobs, types) shares of time, given once and for all
    """

    def __init__(self, share: Floats) -> None:
        self.share = share
        self.rounds = np.zeros(share.shape)

    def allocate(self, state: State) -> Allocation:
        """Ties go to a job that is on the type already, then to the lower number."""
        cluster = state.cluster
        jobs = state.jobs
        active = state.active
        priority = np.where(self.rounds > 0, self.share / np.maximum(self.rounds, 1), np.inf)
        was_on = np.zeros(self.share.shape)
        was_on[state.previous.job, cluster.node_type[state.previous.node]] = 1
        order = np.array([active[np.lexsort((-was_on[active, r], -priority[active, r]))]
                          for r in range(self.share.shape[1])])
        gpus = type_gpus(cluster, self.share.shape[1])
        chosen = pick_by_priority(order, jobs.workers, jobs.rate, gpus)
        runs = np.flatnonzero(chosen >= 0)
        self.rounds[runs, chosen[runs]] += 1
        return place_on_types(cluster, jobs, state.previous, chosen, runs, False)
