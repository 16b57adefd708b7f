"""What no policy can beat: the least energy of what ran when it ran, and the least mean wait of any order of the queue."""

# A module, written by hand.

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ...cluster import WHOLE_GPU_MILLI
from ...lab.arrays import Floats, Integers, Texts, Truths
from ...lab.jit import njit
from ...online.model import PowerSettings
from ...power import Power
from ...traces import admits
from .outages import apart, mean_over, steps_over
from .problem import Problem, Schedule, idle_milliwatts, power_of_problem
from .waits import of_jobs

__all__ = ['energy_bounds', 'floors_of', 'wait_bound']


class Supply(NamedTuple):
    """Watts of the cheapest supply of a resource: a piecewise linear function of the demand."""

    milli: Floats
    watts: Floats

    def at(self, demand: Floats) -> Floats:
        """Watts for a demand; what is above the capacity costs nothing."""
        return np.interp(demand, self.milli, self.watts)


def supply_of(capacity: Floats, price: Floats) -> Supply:
    """Cheapest supply from nodes, (nodes,): thousandths, and watts for one of them."""
    order = np.argsort(price, kind="stable")
    milli = np.cumsum(capacity[order])
    watts = np.cumsum((capacity * price)[order])
    return Supply(np.append(0.0, milli), np.append(0.0, watts))


def slope_of(power: Power) -> float:
    """Least share of the range that a thousandth of load draws, over its fair share."""
    load = np.arange(1, len(power.load_permille))
    return float((power.load_permille[1:] / load).min())


class Floors(NamedTuple):
    """What power cannot fall below.

    Parameters
    ----------
    node_w : (nodes,) of each node without tasks, awake
    idle_w, asleep_w : of a cluster without tasks, awake and asleep
    gpu, gpu_asleep, cpu : cheapest supply; of GPUs also with the idle power of their nodes
    """

    node_w: Floats
    idle_w: float
    asleep_w: float
    gpu: Supply
    gpu_asleep: Supply
    cpu: Supply


def floors_of(problem: Problem, settings: PowerSettings, asleep_w: float) -> Floors:
    """Bounds of the power of a cluster.

    Parameters
    ----------
    problem : with its nodes
    settings : how they draw power
    asleep_w : what an empty node draws that sleeps
    """
    power = power_of_problem(problem, settings)
    idle_mw = idle_milliwatts(problem, settings)
    idle_w = idle_mw.sum(axis=0) / 1000
    slope = slope_of(power)
    gpu_price = slope * (power.gpu_full_w - power.gpu_idle_w) / WHOLE_GPU_MILLI
    cpu_price = slope * (power.cpu_full_w - power.cpu_idle_w) / (2000 * power.cpu_cores)
    gpu_milli = (WHOLE_GPU_MILLI * power.num_gpus).astype(float)
    awake_w = np.maximum(0, idle_w - asleep_w)
    return Floors((idle_mw / 1000).sum(axis=0), float(idle_w.sum()), float(np.minimum(idle_w, asleep_w).sum()),
                  supply_of(gpu_milli, gpu_price),
                  supply_of(gpu_milli, gpu_price + awake_w / np.maximum(gpu_milli, 1)),
                  supply_of(power.cpu_milli.astype(float), cpu_price))


def demand_over(schedule: Schedule, amount: Integers,
                horizon: tuple[float, float]) -> tuple[Floats, Floats]:
    """Demand of running tasks as steps: how long each lasts, and how much it is."""
    ran = schedule.node >= 0
    times_s, level = steps_over(schedule.start_s[ran], schedule.end_s[ran], amount[ran], horizon)
    return np.diff(times_s), level


def energy_bounds(problem: Problem, schedule: Schedule, floors: Floors,
                  horizon: tuple[float, float]) -> tuple[float, float]:
    """Least energy of what ran when it ran, kWh: nodes always awake, and empty ones asleep; nodes that are down draw nothing.

    Parameters
    ----------
    problem, schedule : the tasks, and when each ran
    floors : of the cluster
    horizon : first and last moment, seconds
    """
    gpu_s, gpu = demand_over(schedule, problem.tasks.gpu_demand_milli, horizon)
    cpu_s, cpu = demand_over(schedule, problem.tasks.cpu_milli, horizon)
    for_cpu = (floors.cpu.at(cpu) * cpu_s).sum()
    length_s = horizon[1] - horizon[0]
    awake = floors.idle_w * length_s + (floors.gpu.at(gpu) * gpu_s).sum() + for_cpu
    asleep = floors.asleep_w * length_s + (floors.gpu_asleep.at(gpu) * gpu_s).sum() + for_cpu
    off_kwh = 0.0
    if problem.outages is not None:
        down, edges_s = apart(problem.outages.down), np.array(horizon)
        off_w = mean_over(down.from_s, down.until_s, floors.node_w[down.node], edges_s)
        off_kwh = float(off_w[0]) * float(length_s) / 3.6e6
    return max(0.0, float(awake / 3.6e6) - off_kwh), max(0.0, float(asleep / 3.6e6) - off_kwh)


@njit(cache=True)
def pooled_completions(release_s: Floats, work_s: Floats) -> float:
    """Sum of completion times, shortest remaining work first, on one machine.

    Parameters
    ----------
    release_s : (tasks,) ascending
    work_s : (tasks,) how long each would have the machine
    """
    heap = [0.0]
    heappop(heap)
    total = 0.0
    now = 0.0
    come = 0
    while come < len(release_s) or len(heap) > 0:
        if len(heap) == 0:
            now = max(now, release_s[come])
        while come < len(release_s) and release_s[come] <= now:
            heappush(heap, work_s[come])
            come += 1
        left = heappop(heap)
        until = np.inf
        if come < len(release_s):
            until = release_s[come]
        if now + left <= until:
            now += left
            total += now
        else:
            heappush(heap, left - (until - now))
            now = until
    return total


class Asks(NamedTuple):
    """What is asked of one resource; a job of several parts asks once for each.

    Parameters
    ----------
    release_s, run_s : (asks,) when each comes, and for how long it holds what it asks for
    rate : (asks,) how much of the resource it holds
    weight : (asks,) part of its job's wait that its own stands for; those of a job add up to 1
    admits : (asks, pools) pools of the resource that it may be served from
    """

    release_s: Floats
    run_s: Floats
    rate: Floats
    weight: Floats
    admits: Truths


def integral_at(prices: Floats, edges_s: Floats, at_s: Floats) -> Floats:
    """Integral of a price from the first edge until moments, (cells,) and (moments,)."""
    width_s = edges_s[1] - edges_s[0]
    place = np.minimum((at_s - edges_s[0]) / width_s, len(prices))
    cell = np.minimum(place.astype(np.int64), len(prices) - 1)
    until = np.append(0.0, np.cumsum(prices))
    whole: Floats = (until[cell] + prices[cell] * (place - cell)) * width_s
    return whole


def cheapest_starts(asks: Asks, edges_s: Floats,
                    prices: Floats) -> tuple[Floats, Floats, Integers]:
    """Least of weighted wait and price of each ask, its start and its pool, (asks,) each.

    The cost of a start is piecewise linear, so a start at the release, or one that begins or ends
    at an edge, is cheapest. They are tried in order, until the wait alone costs more.

    Parameters
    ----------
    asks : what is asked
    edges_s : (cells + 1,) of equal cells of time
    prices : (pools, cells) for a unit of the resource and a second; nothing after the last edge
    """
    release_s, run_s, rate, weight, is_admitted = asks
    cells = prices.shape[1]
    width_s = edges_s[1] - edges_s[0]
    least = np.full(len(rate), np.inf)
    start_s = release_s.copy()
    pool = np.zeros(len(rate), np.int64)
    span_s = np.minimum([release_s, release_s + run_s], edges_s[-1]) - edges_s[0]
    first, last = np.minimum((span_s / width_s).astype(np.int64) + 1, cells)
    for number, price in enumerate(prices):
        rows = np.flatnonzero(is_admitted[:, number])
        for step in range(-1, cells + 1):
            if step >= 0:  # what is tried next waits for as many cells at least
                rows = rows[weight[rows] * step * width_s < least[rows]]
            if not len(rows):
                break
            for tried_s in [release_s[rows]] if step < 0 else [
                    edges_s[np.minimum(first[rows] + step, cells)],
                    edges_s[np.minimum(last[rows] + step, cells)] - run_s[rows]]:
                tried_s = np.maximum(tried_s, release_s[rows])
                paid = (integral_at(price, edges_s, tried_s + run_s[rows])
                        - integral_at(price, edges_s, tried_s))
                cost = weight[rows] * (tried_s - release_s[rows]) + rate[rows] * paid
                is_less = cost < least[rows]
                better = rows[is_less]
                least[better], start_s[better], pool[better] = cost[is_less], tried_s[is_less], number
    return least, start_s, pool


def use_between(asks: Asks, start_s: Floats, pool: Integers, edges_s: Floats) -> Floats:
    """What asks that start at these moments use of each pool in each cell, (pools, cells)."""
    cells = len(edges_s) - 1
    width_s = edges_s[1] - edges_s[0]
    pools = asks.admits.shape[1]
    here, after = np.zeros((2, pools, cells + 1))
    for at_s, sign in ((start_s, 1), (start_s + asks.run_s, -1)):
        place = np.minimum((at_s - edges_s[0]) / width_s, cells)
        cell = place.astype(np.int64)
        where = pool * (cells + 1) + cell
        for sums, amount in ((here, asks.rate * (cell + 1 - place)), (after, asks.rate)):
            sums += sign * np.bincount(where, amount, sums.size).reshape(sums.shape)
    before = np.cumsum(after, axis=1) - after
    use: Floats = ((here + before) * width_s)[:, :-1]
    return use


def queued_on_one_machine(asks: Asks, capacity: float) -> tuple[float, float]:
    """Weighted waits in the order of coming on one machine as fast as all, and its last moment."""
    order = np.argsort(asks.release_s, kind="stable")
    release_s = asks.release_s[order]
    work_s = (asks.rate * np.where(np.isfinite(asks.run_s), asks.run_s, 0.0))[order] / capacity
    slack_s = np.cumsum(work_s) - work_s - release_s
    queued_s = slack_s - np.minimum.accumulate(slack_s)
    return float((queued_s * asks.weight[order]).sum()), float(release_s[-1] + work_s.sum())


CELLS = 128  # of time, each with a price
MOST_STEPS, FEWEST_STEPS = 40, 8  # of the search for prices
AT_ONCE = 400_000  # asks that are priced anew in all steps together, about


def wait_by_prices(asks: Asks, capacity: Floats) -> float:
    """Weighted wait that no schedule undercuts, by prices for the use of pools at each time.

    Whatever the prices, each ask at its cheapest start, less what all capacity would cost, is at
    most what any schedule waits (weak duality); a subgradient, which keeps what improves, looks for
    prices that make it large.

    Parameters
    ----------
    asks : what is asked
    capacity : (pools,) of the resource
    """
    kind = asks.admits @ (1 << np.arange(len(capacity)))  # who admits the same pools, and all
    alike = [(kind == one, capacity[[one >> pool & 1 > 0 for pool in range(len(capacity))]].sum())
             for one in np.unique(kind)]
    queues = [queued_on_one_machine(Asks(*(column[who] for column in asks)), room)
              for who, room in [(np.ones(len(kind), bool), capacity.sum()), *alike]]
    scale, end_s = map(max, zip(*queues, strict=True))
    begin_s = float(asks.release_s.min())
    if scale <= 0 or end_s <= begin_s:
        return 0.0
    edges_s = np.linspace(begin_s, end_s, CELLS + 1)
    full = (capacity * (edges_s[1] - edges_s[0]))[:, None]
    best, stride = -np.inf, 0.1
    prices = kept = np.zeros((len(capacity), CELLS))
    drift = np.zeros_like(prices)
    for step in range(max(FEWEST_STEPS, min(MOST_STEPS, AT_ONCE // len(asks.rate)))):
        least, start_s, pool = cheapest_starts(asks, edges_s, prices)
        value = float(least.sum() - (prices * full).sum())
        excess = use_between(asks, start_s, pool, edges_s) - full
        drift = 0.3 * excess + 0.7 * drift if step else excess
        if value > best:
            best, kept, stride = value, prices, min(1.3 * stride, 2.0)
        else:
            stride *= 0.5
        rise = np.where((kept <= 0) & (drift < 0), 0.0, drift)
        if not rise.any():
            drift = excess
            rise = np.maximum(excess, 0.0)
        if not rise.any():
            break
        length = stride * (max(scale, 1.05 * best) - best) / float((rise**2).sum())
        prices = np.maximum(0.0, kept + float(f"{length:.6g}") * rise)  # no last digit decides
    return max(0.0, best)


def wait_on_one_machine(problem: Problem, rows: Integers, demand: Integers,
                        capacity: float) -> float:
    """Least sum of the waits of jobs, on one machine as fast as all, which may interrupt them."""
    run_s = of_jobs(problem, problem.duration_s, np.maximum)
    finite_s = np.where(np.isfinite(problem.duration_s), problem.duration_s, 0.0)
    work = of_jobs(problem, np.asarray(demand * finite_s, float), np.add)
    rows = rows[np.isfinite(run_s[rows]) & (of_jobs(problem, demand.astype(float), np.add)[rows] > 0)]
    if not len(rows):
        return 0.0
    rows = rows[np.argsort(problem.submit_s[rows], kind="stable")]
    release_s = problem.submit_s[rows] - problem.submit_s[rows[0]]
    return (pooled_completions(release_s, work[rows] / capacity)
            - float((release_s + run_s[rows]).sum()))


def pools_of(problem: Problem, specs: Texts) -> tuple[Floats, Truths]:
    """Capacity of pools of GPUs, milli-GPU, and which each list of models admits, (specs, pools).

    Models that the same lists admit are one pool; those that none admits are none.
    """
    cluster = problem.cluster
    models, model = np.unique(cluster.gpu_model.astype(str), return_inverse=True)
    admitted = np.array([[admits(spec, one) for one in models] for spec in specs], bool)
    kinds, kind = np.unique(admitted, axis=1, return_inverse=True)
    capacity = np.bincount(kind.reshape(-1)[model], WHOLE_GPU_MILLI * cluster.num_gpus,
                           kinds.shape[1]).astype(float)
    is_pool: Truths = (capacity > 0) & kinds.any(axis=0)
    return capacity[is_pool], kinds[:, is_pool]


def wait_bound(problem: Problem, wait_s: Floats) -> float:
    """Least mean wait of the jobs that started under any order and placement, s; NaN if none did.

    Each job holds what it asks for during all of its time, on GPUs of a model that it admits. The
    bound is the largest of four: by prices and on one machine, for GPUs and for CPUs.

    Parameters
    ----------
    problem : cluster and tasks
    wait_s : (tasks,) NaN for a task that did not start, and for all but the first part of a job
    """
    rows = np.flatnonzero(np.isfinite(wait_s))
    if not len(rows):
        return np.nan
    parts, is_in = np.ones(len(wait_s)), np.isfinite(wait_s)
    if problem.job is not None:
        parts = np.bincount(problem.job)[problem.job].astype(float)
        is_in = np.isin(problem.job, problem.job[rows])
    tasks = problem.tasks
    specs, spec = np.unique(tasks.gpu_spec[is_in].astype(str), return_inverse=True)
    all_cpus = np.array([float(problem.cluster.cpu_milli.sum())]), np.ones((len(specs), 1), bool)
    least = 0.0
    for demand, (capacity, admitted) in ((tasks.gpu_demand_milli, pools_of(problem, specs)),
                                         (tasks.cpu_milli, all_cpus)):
        is_admitted = admitted[spec]
        does_ask = (demand[is_in] > 0) & is_admitted.any(axis=1)
        asked = np.flatnonzero(is_in)[does_ask]
        if len(asked) and capacity.sum() > 0:
            asks = Asks(problem.submit_s[asked], problem.duration_s[asked],
                        demand[asked].astype(float), 1 / parts[asked], is_admitted[does_ask])
            least = max(least, wait_by_prices(asks, capacity),
                        wait_on_one_machine(problem, rows, demand, capacity.sum()))
    return least / len(rows)
