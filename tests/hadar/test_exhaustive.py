"""No schedule of a small problem is below a bound of the family: every allocation of every round is tried."""
from itertools import product

import numpy as np
import pytest

from sched_lab.hadar.bounds import bound
from sched_lab.hadar.energy import Draw, energy_bound_wh
from sched_lab.hadar.model import Cluster, Jobs
from sched_lab.hadar.planned import mean_jct_bound_s
from studies.hadar_energy import mean_front
from tests.hadar.cases import named

ROUND_S = 10.0
SLACK = 1 + 1e-7  # of the solver
DRAW = Draw(np.array([250.0, 90.0]), 60.0)


def drawn(seed, *, is_forked=False):
    """Two or three gangs on up to three nodes of two types; rates and steps such that jobs end when rounds do."""
    rng = np.random.default_rng(seed)
    num_jobs = 2 if is_forked else int(rng.integers(2, 4))
    cluster = Cluster(np.array([0, 1, 1]), np.ones(3, np.int64) if is_forked else np.array([2, 1, 2]))
    workers = np.ones(num_jobs, np.int64) if is_forked else rng.integers(1, 4, num_jobs)
    rate = rng.choice([1.0, 2.0, 4.0], (num_jobs, 2))
    rate[rng.random(num_jobs) < 0.25, 1] = 0
    spread_rate = rate * rng.choice([0.0, 0.5, 1.0, 1.1], rate.shape)
    spread_rate[:, 1] = np.where(workers == 3, rate.max(axis=1), spread_rate[:, 1])  # whom no node holds
    rate[:, 1] = np.maximum(rate[:, 1], spread_rate[:, 1])
    steps = rng.choice([1, 2, 4, 6], num_jobs) * rate.max(axis=1) * ROUND_S / 2
    arrival_s = rng.choice([0, 0, 1, 2], num_jobs) * ROUND_S + 30.0
    jobs = Jobs(arrival_s, steps, workers, rng.choice([1.0, 3.0], num_jobs), rate, spread_rate)
    return named(cluster, jobs)


def gangs(work, job):
    """Every way to place a gang: its GPUs on each node, and its steps per second."""
    cluster, jobs = work.cluster, work.jobs
    for gpus in product(*(range(most + 1) for most in cluster.node_gpus)):
        nodes = [n for n in range(len(gpus)) if gpus[n]]
        if sum(gpus) == jobs.workers[job]:
            table = jobs.rate if len(nodes) == 1 else jobs.spread_rate
            rate = min(table[job, cluster.node_type[n]] for n in nodes)
            if rate > 0:
                yield np.array(gpus), rate


def copies(work, job):
    """Every way to run copies of a job: on which nodes, and their steps per second together."""
    for gpus in product((0, 1), repeat=len(work.cluster.node_gpus)):
        rate = sum(work.jobs.rate[job, work.cluster.node_type[n]] for n in range(len(gpus)) if gpus[n])
        if rate > 0:
            yield np.array(gpus), rate


def rounds_of(work, ways):
    """Every round that differs: steps per second, and watts above the base, of each job that runs."""
    nothing = (np.zeros(len(work.cluster.node_gpus), np.int64), 0.0)
    found = {}
    for plan in product(*([nothing, *ways(work, job)] for job in range(len(work.jobs.steps)))):
        if (sum(gpus for gpus, _ in plan) <= work.cluster.node_gpus).all():
            watts = tuple(float(gpus @ DRAW.busy_w[work.cluster.node_type]) for gpus, _ in plan)
            rates = tuple(rate for _, rate in plan)
            found[rates] = min(watts, found.get(rates, watts), key=sum)
    return list(found.items())


def outcomes(work, ways):
    """Every (end of each job, least energy in Wh above the base) that rounds of ten seconds can lead to."""
    rounds = rounds_of(work, ways)
    arrival_s = work.jobs.arrival_s
    states = {(tuple(work.jobs.steps.tolist()), ()): 0.0}
    done = {}
    for number in range(9):
        now_s = float(arrival_s.min()) + number * ROUND_S
        following = {}
        for (left, ends), joules in states.items():
            for rates, watts in rounds:
                if any(rate and (left[j] <= 0 or arrival_s[j] > now_s) for j, rate in enumerate(rates)):
                    continue
                ran_s = [min(ROUND_S, left[j] / rate) if rate else 0.0 for j, rate in enumerate(rates)]
                after = tuple(round(left[j] - rate * ran_s[j], 6) for j, rate in enumerate(rates))
                ended = tuple(sorted([*ends, *((j, now_s + ran_s[j]) for j, part in enumerate(after)
                                               if part <= 0 < left[j])]))
                cost = joules + sum(watts[j] * ran_s[j] for j in range(len(watts)))
                into = following if any(after) else done
                into[after, ended] = min(cost, into.get((after, ended), np.inf))
        states = following
    return [(np.array([end_s for _, end_s in ends]), joules / 3600) for (_, ends), joules in done.items()]


@pytest.mark.parametrize("is_priced", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_no_schedule_of_gangs_is_below_a_bound(seed, is_priced, monkeypatch):
    if is_priced:  # as if there were many jobs
        monkeypatch.setattr("sched_lab.hadar.fluid.MANY_JOBS", 0)
        monkeypatch.setattr("sched_lab.hadar.planned.MANY_JOBS", 0)
    work = drawn(seed)
    arrival_s = work.jobs.arrival_s
    found = outcomes(work, gangs)
    ttd_s = [float(end_s.max() - arrival_s.min()) for end_s, _ in found]
    mean_s = [float((end_s - arrival_s).mean()) for end_s, _ in found]
    assert bound(work) <= min(ttd_s) * SLACK
    assert mean_jct_bound_s(work.cluster, work.jobs) <= min(mean_s) * SLACK
    front = mean_front(work, DRAW, np.array([0.0, 0.5, 5.0, 50.0, 500.0]))
    whole_wh = [wh + DRAW.base_w * last_s / 3600 for (_, wh), last_s in zip(found, ttd_s, strict=True)]
    for last_s in set(ttd_s):
        least_wh = min(wh for wh, own_s in zip(whole_wh, ttd_s, strict=True) if own_s == last_s)
        assert energy_bound_wh(work, DRAW, last_s) <= least_wh * SLACK
    assert all(front.mean_s(wh) <= jct_s * SLACK for wh, jct_s in zip(whole_wh, mean_s, strict=True))


@pytest.mark.parametrize("seed", range(4))
def test_no_schedule_of_copies_is_below_a_bound(seed):
    work = drawn(seed, is_forked=True)
    found = outcomes(work, copies)
    least_s = bound(work, is_forked=True)
    least_wh = {}
    for end_s, wh in found:
        last_s = float(end_s.max() - work.jobs.arrival_s.min())
        least_wh[last_s] = min(least_wh.get(last_s, np.inf), wh + DRAW.base_w * last_s / 3600)
    assert least_s <= min(least_wh) * SLACK
    for last_s, wh in least_wh.items():
        assert energy_bound_wh(work, DRAW, last_s, is_forked=True) <= wh * SLACK
