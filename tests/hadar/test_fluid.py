"""The fluid bound: a dense program as oracle, laws, and programs that are priced."""
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy.optimize import linprog

from sched_lab.hadar import fluid
from sched_lab.hadar.fluid import (
    best_prices,
    cheapest_times,
    makespan_bound_s,
    priced_fluid,
    shortest_fluid,
)
from sched_lab.hadar.model import Cluster, type_gpus
from sched_lab.lab.frames import InputError
from tests.hadar.cases import jobs_of, nodes_of, random_workload

seeds = st.integers(0, 10**6)
ONE = np.array([1, 1])


def dense_bound(rate, workers, gpus, steps, late_s):
    """Solve the same program, written down once more: column j * types + r, then T."""
    num_jobs, num_types = rate.shape
    rows = []
    right = []
    for j in range(num_jobs):
        time = np.zeros((num_jobs, num_types))
        work = np.zeros((num_jobs, num_types))
        time[j], work[j] = 1, -rate[j]
        rows += [np.append(time.ravel(), -1), np.append(work.ravel(), 0)]
        right += [-late_s[j], -steps[j]]
    for r in range(num_types):
        use = np.zeros((num_jobs, num_types))
        use[:, r] = workers
        rows.append(np.append(use.ravel(), -gpus[r]))
        right.append(-gpus[r] * min(late_s))
    return linprog(np.append(np.zeros(rate.size), 1), np.array(rows), right, method="highs-ds").fun


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_the_sparse_scaled_program_has_the_optimum_of_the_plain_one(seed):
    work = random_workload(seed)
    jobs = work.jobs
    gpus = type_gpus(work.cluster, len(work.type_name))
    bound_s, times_s = shortest_fluid(jobs.rate, jobs.workers, gpus, jobs.steps, jobs.arrival_s)
    assert bound_s == pytest.approx(dense_bound(jobs.rate, jobs.workers, gpus, jobs.steps, jobs.arrival_s), rel=1e-6)
    assert ((jobs.rate * times_s).sum(axis=1) >= jobs.steps * (1 - 1e-6)).all()
    assert (jobs.arrival_s + times_s.sum(axis=1) <= bound_s * (1 + 1e-6)).all()
    assert (jobs.workers @ times_s <= gpus * (bound_s - jobs.arrival_s.min()) * (1 + 1e-6) + 1e-6).all()
    assert (times_s[jobs.rate <= 0] == 0).all()


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_more_work_never_lowers_the_bound_and_more_nodes_never_raise_it(seed):
    work = random_workload(seed)
    bound_s = makespan_bound_s(work.cluster, work.jobs)
    longer = work.jobs._replace(steps=work.jobs.steps * np.random.default_rng(seed).uniform(1, 2, len(work.job_name)))
    larger = Cluster(np.append(work.cluster.node_type, 0), np.append(work.cluster.node_gpus, 2))
    assert makespan_bound_s(work.cluster, longer) >= bound_s * (1 - 1e-7)
    assert makespan_bound_s(larger, work.jobs) <= bound_s * (1 + 1e-7)


def test_steps_may_be_as_large_or_small_as_they_like():
    for unit in (1e-6, 1.0, 1e12):
        bound_s, _ = shortest_fluid(unit * np.array([[4.0, 1], [4, 2]]), ONE, ONE, unit * np.array([12.0, 12.0]))
        assert bound_s == pytest.approx(30 / 7)


def test_types_without_gpus_do_not_count_and_spread_speeds_do():
    # on the K80 (type 1) a step takes 1 s packed and half a second spread; there is no V100
    jobs = jobs_of([[9, 1]], 10, 2, spread=[[1, 2]])
    assert makespan_bound_s(nodes_of([1, 1], [1, 1]), jobs) == pytest.approx(5)


def test_no_jobs_are_done_at_once():
    assert shortest_fluid(np.zeros((0, 2)), np.zeros(0, int), ONE, np.zeros(0))[0] == 0


@pytest.mark.parametrize(("rate", "gpus"), [([[1.0, 1.0], [0.0, 0.0]], [1, 1]), ([[1.0, 1.0], [0.0, 1.0]], [1, 0])])
def test_a_job_that_runs_nowhere_is_refused(rate, gpus):
    # the second time it could run on a type of which there is no GPU
    with pytest.raises(InputError, match="job 1 has throughput 0 on every GPU type of the cluster"):
        shortest_fluid(np.array(rate), ONE, np.array(gpus), np.array([1.0, 1.0]))


def test_many_jobs_are_solved_by_another_method_with_the_same_optimum(monkeypatch):
    asked = []
    solve = optimize.linprog

    def watched(*args, method, **kwargs):
        asked.append(method)
        return solve(*args, method=method, **kwargs)

    monkeypatch.setattr(optimize, "linprog", watched)
    work = random_workload(4)
    bound_s = makespan_bound_s(work.cluster, work.jobs)
    monkeypatch.setattr(fluid, "MANY_JOBS", 0)
    monkeypatch.setattr(fluid, "MANY_TYPES", 0)
    assert makespan_bound_s(work.cluster, work.jobs) == pytest.approx(bound_s, rel=1e-6)
    assert asked == ["highs", "highs-ipm"]


def test_a_program_that_is_not_solved_is_no_bound(monkeypatch):
    failed = SimpleNamespace(success=False, message="out of time", fun=None, x=None)
    monkeypatch.setattr(optimize, "linprog", lambda *args, **kwargs: failed)
    with pytest.raises(RuntimeError, match="not solved: out of time"):
        shortest_fluid(np.ones((1, 1)), np.array([1]), np.array([1]), np.ones(1))


def random_program(seed):
    """Rates, gangs, GPUs, work and arrivals; some types useless or not there, some jobs alike, some times whole."""
    rng = np.random.default_rng(seed)
    num_jobs = int(rng.integers(1, 40))
    num_types = int(rng.integers(1, 6))
    rate = rng.uniform(0.1, 10, (num_jobs, num_types)) * (rng.random((num_jobs, num_types)) < 0.8)
    rate[:, 0] = np.maximum(rate[:, 0], 0.1)
    rate = np.ceil(rate) if rng.random() < 0.4 else rate
    if rng.random() < 0.3:
        rate[:] = rate[:1]
    gpus = rng.integers(0, 6, num_types)
    gpus[0] = max(gpus[0], 1)
    remaining = rng.uniform(1, 1000, num_jobs) if rng.random() < 0.6 else rng.integers(1, 5, num_jobs).astype(float)
    late_s = rng.uniform(0, 300, num_jobs) * (rng.random() < 0.4)
    return rate, rng.integers(1, 5, num_jobs), gpus, remaining, late_s


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_prices_find_the_optimum_of_the_whole_program_and_prove_it(seed):
    rate, workers, gpus, remaining, late_s = program = random_program(seed)
    exact_s, _ = shortest_fluid(*program)
    priced = priced_fluid(*program)
    assert priced.makespan_s == pytest.approx(exact_s, rel=1e-6) and priced.gap < 1e-6
    assert priced.bound_s <= exact_s * (1 + 1e-6)
    times_s = priced.times_s  # all rows of the program, one by one
    assert (times_s >= 0).all() and not times_s[:, gpus == 0].any()
    assert ((times_s * rate).sum(axis=1) >= remaining * (1 - 1e-9)).all()
    assert (late_s + times_s.sum(axis=1) <= priced.makespan_s * (1 + 1e-9)).all()
    assert (workers @ times_s <= gpus * (priced.makespan_s - late_s.min()) * (1 + 1e-9)).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_any_prices_prove_no_more_than_the_best_ones(seed):
    rate, workers, gpus, remaining, late_s = random_program(seed)
    rate, gpus = rate[:, gpus > 0], gpus[gpus > 0]
    need = np.divide(remaining[:, None], rate, out=np.full(rate.shape, np.inf), where=rate > 0)
    proof = best_prices(need, workers, gpus, late_s)
    assert proof.price @ gpus == pytest.approx(1) and (proof.price >= 0).all()
    for price in np.random.default_rng(seed).dirichlet(np.ones(len(gpus)), 20) / gpus:
        end_s = proof.bound * (1 + 1e-9)
        offer = cheapest_times(need, workers, end_s - late_s, price)
        assert offer.cost + late_s.min() <= proof.bound * (1 + 1e-6)


def test_a_choice_within_a_room_is_the_cheapest():
    rng = np.random.default_rng(3)
    for _ in range(50):
        need = rng.uniform(1, 9, (1, 3))
        room = np.array([need.min() + rng.uniform(0, 4)])
        price = rng.uniform(0, 1, 3)
        found = optimize.linprog(price, [np.ones(3), -1 / need[0]], [room[0], -1.0])
        offer = cheapest_times(need, np.ones(1), room, price)
        assert offer.cost == pytest.approx(found.fun, abs=1e-9)
        assert offer.times.sum() <= room[0] * (1 + 1e-9) and (offer.times / need).sum() == pytest.approx(1)


def test_jobs_that_are_alike_are_hardly_divided():
    priced = priced_fluid(np.full((3000, 2), 2.0), np.ones(3000, np.int64), np.array([7, 5]), np.full(3000, 10.0))
    assert priced.makespan_s == pytest.approx(3000 * 5 / 12) and priced.gap < 1e-6
    assert ((priced.times_s > 0).sum(axis=1) > 1).sum() <= 1


def test_many_jobs_are_priced_and_a_solution_without_a_proof_is_not_taken(monkeypatch):
    program = random_program(5)
    exact_s, _ = shortest_fluid(*program)
    monkeypatch.setattr(fluid, "MANY_JOBS", 0)
    priced = priced_fluid(*program)
    assert shortest_fluid(*program)[0] == priced.makespan_s
    monkeypatch.setattr(fluid, "priced_fluid", lambda *args: priced._replace(makespan_s=1.1 * priced.bound_s))
    assert shortest_fluid(*program)[0] == pytest.approx(exact_s)
