"""Energy of Hadar's runs: an account checked against the meter, and lines below every schedule."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import optimize

from sched_lab.hadar.energy import (
    Account,
    Draw,
    TypeWatts,
    held_s,
    holdings_of,
    least_energy,
    window_of,
)
from sched_lab.hadar.fluid import makespan_bound_s
from sched_lab.hadar.model import SECONDS_PER_HOUR, Workload, type_gpus
from sched_lab.hadar.planned import gang_rate, gpu_seconds, type_prices
from sched_lab.hadar.simulation import Simulation
from sched_lab.lab.arrays import Floats
from sched_lab.meter import NodeWatts, meter

__all__ = ["MeanFront", "check_energy", "mean_front"]


def check_energy(run: Simulation, watts: TypeWatts, account: Account) -> None:
    """Check an account without sleep against the shared meter.

    Parameters
    ----------
    run, watts : of `energy_of`
    account : what it returned

    Raises
    ------
    ValueError : if the engine counted other GPU-seconds, more GPUs are held than there are, or
        the parts are not the whole
    """
    counted_s = float(run.intervals["busy_gpu_s"].sum())
    if not np.isclose(held_s(run).sum(), counted_s, rtol=1e-9):
        raise ValueError(
            f"{held_s(run).sum()} GPU-seconds are held, the engine counted {counted_s}")
    cluster, holdings = holdings_of(run, watts)
    kind = run.workload.cluster.node_type
    busy = np.arange(cluster.num_gpus.max() + 1)
    idle = np.maximum(cluster.num_gpus[:, None] - busy, 0)
    draws = NodeWatts(np.outer(watts.full_w[kind], busy) + watts.idle_w[kind][:, None] * idle)
    first_s, last_s = window_of(run)
    mean_w = meter(cluster, holdings, draws, np.array([first_s, last_s]))["power_w"].iloc[0]
    whole_wh = mean_w * (last_s - first_s) / SECONDS_PER_HOUR
    if not np.isclose(account.whole_wh, whole_wh, rtol=1e-9):
        raise ValueError(f"the parts are {account.whole_wh} Wh, the whole is {whole_wh} Wh")


def line_s(need_s: Floats, price: Floats, draw: Draw, s_per_wh: float) -> float:
    """B: mean completion time plus priced energy, in s, that no schedule lies below.

    Parameters
    ----------
    need_s : (jobs, types) GPU-seconds for all steps of a job
    price : (types,) whose sum over all GPUs is 1
    draw : base and addition
    s_per_wh : price of energy, seconds of the mean for a watt-hour
    """
    num_jobs = len(need_s)
    joules = s_per_wh * (draw.busy_w + draw.base_w * price) / SECONDS_PER_HOUR
    position = np.arange(1, num_jobs + 1) / num_jobs
    cost = np.full((num_jobs, num_jobs), np.inf)
    for kind in range(len(price)):
        each = position * price[kind] + joules[kind]
        usable = np.isfinite(need_s[:, kind])
        cost[usable] = np.minimum(cost[usable], need_s[usable, kind, None] * each)
    return float(cost[optimize.linear_sum_assignment(cost)].sum())


class MeanFront(NamedTuple):
    """Lines of mean completion time and energy, each below every schedule.

    Parameters
    ----------
    s_per_wh : (lines,) price of energy
    least_s : (lines,) s, of the mean plus the priced energy
    """

    s_per_wh: Floats
    least_s: Floats

    def mean_s(self, energy_wh: float) -> float:
        """Mean completion time in s below which no schedule of this energy comes."""
        return float((self.least_s - self.s_per_wh * energy_wh).max())


def mean_front(workload: Workload, draw: Draw, s_per_wh: Floats) -> MeanFront:
    """Lines that no schedule of gangs lies below.

    Parameters
    ----------
    workload : jobs and nodes
    draw : base and addition
    s_per_wh : (lines,) prices of energy to draw a line for
    """
    cluster = workload.cluster
    jobs = workload.jobs
    rate = gang_rate(cluster, jobs)
    need_s = gpu_seconds(jobs, rate)
    gpus = type_gpus(cluster, rate.shape[1])
    end_s, price = type_prices(cluster, jobs)
    prices = [price]
    for factor in (1.02, 1.05, 1.1):  # with more time, GPUs that waste energy are worth less
        scarce = least_energy(jobs, rate, gpus, draw.busy_w,
                              factor * max(end_s, makespan_bound_s(cluster, jobs))).scarcity
        if scarce.any():
            prices.append(scarce / (gpus @ scarce))
    late_s = float((jobs.arrival_s - jobs.arrival_s.min()).mean())
    least = [max(line_s(need_s, each, draw, theta) for each in prices) - late_s
             for theta in s_per_wh]
    return MeanFront(np.asarray(s_per_wh, float), np.array(least))
