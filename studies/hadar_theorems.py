"""Hadar's theorems checked: schedules of small problems, the ideal algorithm, one round."""

from __future__ import annotations

import math
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import optimize

from sched_lab.hadar.model import Jobs
from sched_lab.hadar.primal_dual import price
from sched_lab.lab.arrays import Floats, Integers

__all__ = ["SlottedWorkload", "Verdict", "check_theorem", "forked_utilisation", "most_busy"]


class SlottedWorkload(NamedTuple):
    """Jobs and GPUs over a few slots; time is counted in slots, and there is one node per GPU type.

    Parameters
    ----------
    slots : number of slots T
    gpus : (types,) capacity of the node of each type
    workers : (jobs,) gang size W_j
    worker_rate : (jobs, types) steps per slot of one worker (X_j^r), 0 where the job cannot run
    steps : (jobs,) work E_j N_j
    arrival : (jobs,) first slot in which the job may run
    """

    slots: int
    gpus: Integers
    workers: Integers
    worker_rate: Floats
    steps: Floats
    arrival: Integers


class Schedules(NamedTuple):
    """All schedules of one job that finish its work.

    Parameters
    ----------
    gpus : (schedules, slots, types) GPUs in use
    utility : (schedules,) effective throughput: steps / (finish - arrival)
    """

    gpus: Integers
    utility: Floats


def gang_mixes(slotted: SlottedWorkload, job: int) -> Integers:
    """(mixes, types) ways to spread the gang of a job over the GPU types; the first is to wait."""
    most = np.where(slotted.worker_rate[job] > 0, np.minimum(slotted.gpus, slotted.workers[job]),
                    0)
    mixes = [
        mix for mix in product(*(range(m + 1) for m in most)) if sum(mix) == slotted.workers[job]]
    return np.array([(0,) * len(most), *mixes], np.int64)


def enumerate_schedules(slotted: SlottedWorkload, job: int) -> Schedules:
    """List every schedule of a job that meets (1a), (1b) and (1e) within the slots."""
    mixes = gang_mixes(slotted, job)
    arrival = slotted.arrival[job]
    used = np.where(mixes > 0, slotted.worker_rate[job], np.inf)
    work_per_mix = np.append(0.0, slotted.workers[job] * used[1:].min(axis=1))
    num_slots = int(slotted.slots - arrival)
    choices = np.indices((len(mixes),) * num_slots).reshape(num_slots, -1).T
    done = work_per_mix[choices].cumsum(axis=1)
    # slots since arrival until the work is done
    finish = (done < slotted.steps[job]).sum(axis=1) + 1
    last_use = np.where(choices > 0, np.arange(1, num_slots + 1), 0).max(axis=1)
    keeps = finish == last_use  # never so if the work is not done
    gpus = np.zeros((keeps.sum(), slotted.slots, len(slotted.gpus)), np.int64)
    gpus[:, arrival:] = mixes[choices[keeps]]
    return Schedules(gpus, slotted.steps[job] / finish[keeps])


class Packing(NamedTuple):
    """P2 as a matrix: maximise utility @ y where matrix @ y <= limit.

    Parameters
    ----------
    utility : (schedules,) of all jobs, one after the other
    matrix : (slots * types + jobs, schedules) constraints (2a), then (2b)
    limit : (slots * types + jobs,) capacities, then ones
    """

    utility: Floats
    matrix: Floats
    limit: Floats


def packing(slotted: SlottedWorkload, schedules: list[Schedules]) -> Packing:
    """Write P2 down."""
    utility = np.concatenate([s.utility for s in schedules])
    usage = np.concatenate([s.gpus for s in schedules])
    usage = usage.reshape(-1, slotted.slots * len(slotted.gpus)).T
    owner = np.repeat(np.arange(len(schedules)), [len(s.utility) for s in schedules])
    one_each = (np.arange(len(schedules))[:, None] == owner).astype(float)
    limit = np.concatenate([np.tile(slotted.gpus, slotted.slots), np.ones(len(schedules))])
    return Packing(utility, np.vstack([usage, one_each]).astype(float), limit.astype(float))


def optimum(problem: Packing) -> float:
    """Best total utility of P2, exactly."""
    if not len(problem.utility):
        return 0.0
    result = optimize.milp(
        -problem.utility, integrality=np.ones(len(problem.utility)), bounds=optimize.Bounds(0, 1),
        options={"mip_rel_gap": 0.0},
        constraints=optimize.LinearConstraint(problem.matrix, -np.inf, problem.limit))
    return float(-result.fun)


def linear_optimum(problem: Packing) -> float:
    """Best total utility when schedules may be taken in fractions: equals the minimum of P3."""
    if not len(problem.utility):
        return 0.0
    result = optimize.linprog(-problem.utility, A_ub=problem.matrix, b_ub=problem.limit,
                              method="highs")
    return float(-result.fun)


Eta = Literal["printed", "repaired"]


def price_limits(slotted: SlottedWorkload, eta: Eta = "repaired", *,
                 per_worker: bool = True) -> tuple[float, float]:
    """Lowest and highest price, (7) and (6).

    Parameters
    ----------
    slotted : jobs and GPUs over a few slots
    eta : 1 / eta is at most t_max W / C as printed, or t_max W / (T C) as the proof needs it
    per_worker : divide the largest utility by the gang, as (6) does; else one full GPU blocks every
        job
    """
    _, gpus, workers, worker_rate, steps, arrival = slotted
    slowest = np.where(worker_rate > 0, worker_rate, np.inf).min(axis=1)
    shortest = np.ceil(steps / (workers * worker_rate.max(axis=1)))
    demand = steps / slowest  # t_max W: GPU-slots on the slowest type
    high = (steps / shortest / (workers if per_worker else 1)).max()
    scale = (gpus.sum() * (slotted.slots if eta == "repaired" else 1) / demand).max()
    low = (steps / (slotted.slots - arrival) / demand).min() / (4 * scale)
    return float(low), float(high)


class PrimalDualRun(NamedTuple):
    """What the primal-dual algorithm did.

    Parameters
    ----------
    chosen : (jobs,) schedule of each job, -1 if it was refused
    profit : (jobs,) payoff mu_j of the chosen schedule when it was chosen, 0 if the job was refused
    unblocked_profit : (jobs,) the same over all schedules, fitting or not: what (3a) asks for
    primal, dual : (jobs + 1,) objectives of P2 and P3 before the first job and after each
    final_price : (slots, types)
    alpha, discrete_alpha : as in Theorem 2, and large enough for the steps that were taken
    """

    chosen: Integers
    profit: Floats
    unblocked_profit: Floats
    primal: Floats
    dual: Floats
    final_price: Floats
    alpha: float
    discrete_alpha: float


def primal_dual(slotted: SlottedWorkload, schedules: list[Schedules], limits: tuple[float, float],
                full_at: Integers | None = None) -> PrimalDualRun:
    """Offer each job, in the order given, its schedules at the present prices.

    Parameters
    ----------
    slotted : jobs and GPUs over a few slots
    schedules : all of each job
    limits : lowest and highest price
    full_at : (types,) GPUs in use at which the price is highest; if left out, all of them, as in
        (5)
    """
    gpus = slotted.gpus
    full_at = gpus if full_at is None else full_at
    taken = np.zeros((slotted.slots, len(gpus)), np.int64)
    prices: Floats = price(taken, full_at, *limits)
    chosen = np.full(len(schedules), -1)
    profit = np.zeros(len(schedules))
    unblocked = np.zeros(len(schedules))
    primal = [0.0]
    dual = [float((prices * gpus).sum())]
    largest_step = 0.0
    for job, (usage, utility) in enumerate(schedules):
        payoff = utility - (usage * prices).sum(axis=(1, 2))
        unblocked[job] = payoff.max(initial=0.0)
        payoff[(usage + taken > gpus).any(axis=(1, 2))] = -np.inf
        gain = 0.0
        if len(payoff) and payoff.max() > 0:
            best = int(payoff.argmax())
            chosen[job] = best
            profit[job] = payoff[best]
            gain = utility[best]
            taken = taken + usage[best]
            largest_step = max(largest_step, (usage[best] / full_at).max())
            prices = price(taken, full_at, *limits)
        primal.append(primal[-1] + gain)
        dual.append(float(profit.sum() + (prices * gpus).sum()))
    log_ratio = math.log(limits[1] / limits[0])
    alpha = max(1.0, log_ratio)
    stretch = float((gpus / full_at).max())
    discrete = max(alpha, stretch * discrete_alpha(log_ratio, largest_step))
    return PrimalDualRun(chosen, profit, unblocked, np.array(primal), np.array(dual), prices,
                         alpha, discrete)


def discrete_alpha(log_ratio: float, share: float) -> float:
    """Smallest alpha for the allocation-cost relation if a job takes this share of a node."""
    return math.expm1(log_ratio * share) / share if share > 0 else log_ratio


def random_slotted(rng: np.random.Generator, *, slots: int = 4,
                    gpus_per_node: int = 2) -> SlottedWorkload:
    """Draw four or five jobs of one or two workers on two GPU types; every job can finish alone."""
    num_jobs = int(rng.integers(4, 6))
    gpus = np.full(2, gpus_per_node)
    workers = rng.integers(1, 3, num_jobs)
    worker_rate = rng.integers(1, 5, (num_jobs, 2)).astype(float)
    arrival = rng.integers(0, 2, num_jobs)
    most = workers * worker_rate.max(axis=1) * (slots - arrival)
    steps = np.minimum(rng.integers(1, 9, num_jobs) * workers, most).astype(float)
    return SlottedWorkload(slots, gpus, workers, worker_rate, steps, arrival)


def refused_job(slots: int) -> SlottedWorkload:
    """Counterexample to Theorem 2 as printed: one job that needs the only GPU in every slot."""
    return SlottedWorkload(slots, np.array([1]), np.array([1]), np.array([[1.0]]),
                         np.array([float(slots)]), np.array([0]))


def blocked_gang(speed: float) -> SlottedWorkload:
    """Counterexample to Theorem 2 with the repaired eta: a slow job blocks a fast gang of two."""
    return SlottedWorkload(1, np.array([2]), np.array([1, 2]), np.array([[1.0], [speed]]),
                         np.array([1.0, 2 * speed]), np.array([0, 0]))


class Verdict(NamedTuple):
    """The theorem on one problem.

    Parameters
    ----------
    optimum, linear_optimum : of P2, and of P2 without integrality
    primal, dual, dual_start : what the algorithm reached, and D_0
    feasible_dual : dual objective with each mu_j raised to the best payoff, fitting or not (gap C)
    alpha, discrete_alpha : see `PrimalDualRun`
    lemma2, lemma2_discrete : each job gains at least 1/alpha of what it adds to the dual
    start_is_low : D_0 is at most half the optimum
    weak_duality : the algorithm's dual objective bounds the linear optimum
    bound_holds : the optimum is at most 2 alpha times the algorithm's total utility
    admitted : number of jobs that run
    """

    optimum: float
    linear_optimum: float
    primal: float
    dual: float
    dual_start: float
    feasible_dual: float
    alpha: float
    discrete_alpha: float
    lemma2: bool
    lemma2_discrete: bool
    start_is_low: bool
    weak_duality: bool
    bound_holds: bool
    admitted: int

    @property
    def ratio(self) -> float:
        """Optimum over the algorithm's total utility; 1 if both are 0."""
        if self.primal > 0:
            return self.optimum / self.primal
        return math.inf if self.optimum > 0 else 1.0

    @property
    def proved_limit(self) -> float:
        """Largest optimum that the repaired theorem allows."""
        return 4 / 3 * (self.discrete_alpha * self.primal + self.feasible_dual - self.dual)


TOLERANCE = 1e-9


def reserved(slotted: SlottedWorkload, schedules: list[Schedules]) -> Integers:
    """(types,) GPUs in use from which the largest part of a gang may not fit."""
    most = [s.gpus.max(axis=(0, 1), initial=1) for s in schedules]
    full_at: Integers = slotted.gpus - np.max(most, axis=0) + 1
    return full_at


def check_theorem(slotted: SlottedWorkload, eta: Eta = "repaired", *, per_worker: bool = True,
                  reserve: bool = False) -> Verdict:
    """Run the algorithm on a problem and test every step of the proof of Theorem 2.

    Parameters
    ----------
    slotted : jobs and GPUs over a few slots
    eta, per_worker : as for `price_limits`
    reserve : price as `reserved` says, with the largest utility not divided by the gang

    References
    ----------
    Sultana et al. 2025, Theorem 2 and Lemma 2.
    """
    schedules = [enumerate_schedules(slotted, job) for job in range(len(slotted.workers))]
    problem = packing(slotted, schedules)
    best = optimum(problem)
    linear = linear_optimum(problem)
    limits = price_limits(slotted, eta, per_worker=per_worker and not reserve)
    run = primal_dual(slotted, schedules, limits,
                      reserved(slotted, schedules) if reserve else None)
    gained = np.diff(run.primal)
    added = np.diff(run.dual)
    return Verdict(
        optimum=best,
        linear_optimum=linear,
        primal=float(run.primal[-1]),
        dual=float(run.dual[-1]),
        dual_start=float(run.dual[0]),
        feasible_dual=float(run.dual[-1] + (run.unblocked_profit - run.profit).sum()),
        alpha=run.alpha,
        discrete_alpha=run.discrete_alpha,
        lemma2=bool((gained >= added / run.alpha - TOLERANCE).all()),
        lemma2_discrete=bool((gained >= added / run.discrete_alpha - TOLERANCE).all()),
        start_is_low=bool(run.dual[0] <= best / 2 + TOLERANCE),
        weak_duality=bool(run.dual[-1] >= linear - TOLERANCE),
        bound_holds=bool(best <= 2 * run.alpha * run.primal[-1] + TOLERANCE),
        admitted=int((run.chosen >= 0).sum()))


def forked_utilisation(rounds_alone: int, num_nodes: int) -> Floats:
    """(nodes,) share of node time in use when one job runs in 1, 2, ... copies.

    Parameters
    ----------
    rounds_alone : rounds that it fills on one node
    num_nodes : equal nodes

    References
    ----------
    Sultana et al. 2025, Theorem 3.
    """
    copies = np.arange(1, num_nodes + 1)
    return rounds_alone / (num_nodes * np.ceil(rounds_alone / copies))


Pace = Literal["slowest", "mean"]


class GangRounds(NamedTuple):
    """Unknowns of the MILP: whether a job runs in a round, and how.

    Parameters
    ----------
    job, round : (unknowns,)
    gpus : (unknowns, types) GPUs in use
    steps : (unknowns,) work done in the round
    """

    job: Integers
    round: Integers
    gpus: Integers
    steps: Floats


def gang_rounds(jobs: Jobs, gpus: Integers, num_rounds: int, pace: Pace = "slowest") -> GangRounds:
    """List how each job may run in each round of one second, on one node per GPU type."""
    rows = []
    for job, workers in enumerate(jobs.workers):
        for mix in product(*(range(min(most, workers) + 1) for most in gpus)):
            used = np.array(mix)
            rate = jobs.rate[job]
            if sum(mix) == workers and (rate[used > 0] > 0).all():
                steps = rate[used > 0].min() if pace == "slowest" else rate @ used / workers
                rows += [(job, number, mix, steps) for number in range(num_rounds)]
    job_of, round_of, gpus_of, steps_of = zip(*rows, strict=True)
    return GangRounds(np.array(job_of), np.array(round_of), np.array(gpus_of),
                      np.array(steps_of, float))


def _work_rows(ways: GangRounds, job: int, steps: float, num_rounds: int) -> list[tuple[Any, ...]]:
    """Rows of a job: all steps are done, one way a round, and only while there is work left."""
    mine = ways.job == job
    rows: list[tuple[Any, ...]] = [(mine * ways.steps, steps, np.inf)]
    big = num_rounds * ways.steps[mine].max()
    for number in range(num_rounds):
        now = mine & (ways.round == number)
        before = mine & (ways.round < number)
        rows.append((now * 1.0, -np.inf, 1))
        rows.append((before * ways.steps + now * big, -np.inf, steps * (1 - 1e-3) + big))
    return rows


def most_busy(jobs: Jobs, gpus: Integers, num_rounds: int, pace: Pace = "slowest") -> int | None:
    """Most GPU-rounds in use if all jobs are to be done in so many rounds; None if they cannot be.

    Parameters
    ----------
    jobs : steps, and rates per round
    gpus : (types,) of the one node of each type
    num_rounds : in which all must be done
    pace : of a mixed gang: its slowest worker's, as (1b) has it, or the mean of its workers'
    """
    ways = gang_rounds(jobs, gpus, num_rounds, pace)
    rows = [(row, -np.inf, most) for number in range(num_rounds) for row, most in zip(
        (ways.gpus * (ways.round == number)[:, None]).T, gpus, strict=True)]
    for job, steps in enumerate(jobs.steps):
        rows += _work_rows(ways, job, steps, num_rounds)
    row, low, high = zip(*rows, strict=True)
    found = optimize.milp(-ways.gpus.sum(axis=1), integrality=np.ones(len(ways.job)),
                          bounds=optimize.Bounds(0, 1),
                          constraints=optimize.LinearConstraint(np.array(row), low, high))
    return None if found.x is None else round(-found.fun)
