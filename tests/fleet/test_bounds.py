"""What no policy can beat: less energy than the cheapest supply draws, or shorter waits than the best of all orders."""
from dataclasses import replace
from functools import cache
from itertools import permutations, product

import numpy as np
import pytest

from sched_lab.cluster import Cluster, toy_cluster
from sched_lab.fleet.replay import bounds
from sched_lab.fleet.replay.bounds import energy_bounds, floors_of, pooled_completions, wait_bound
from sched_lab.fleet.replay.compare import kwh_of
from sched_lab.fleet.replay.events import BACKFILLS, replay
from sched_lab.fleet.replay.meter import measure
from sched_lab.fleet.replay.waits import waits_of
from sched_lab.online.model import PowerSettings
from sched_lab.traces import toy_tasks
from tests.fleet.problems import problem_like, random_problem, tasks_like, texts

pytestmark = pytest.mark.usefixtures("python_itself")

MODELS = ("A", "B")
POWERS = [PowerSettings(), PowerSettings("package"), PowerSettings(load_curve="linear"),
          PowerSettings(load_curve="0:0,0.5:0.2,1:1")]


def small_problem(seed, jobs=5, parts=False):
    """Draw jobs of whole GPUs that come almost together to a node of each of two models, some admitted by one alone."""
    rng = np.random.default_rng(seed)
    gpus = rng.integers(2, 4, 2)
    cluster = Cluster(texts(["n0", "n1"]), np.full(2, 9000), np.full(2, 9000), gpus, texts(MODELS), texts(["", ""]))
    wide = rng.integers(1, gpus.min() + 1, jobs)
    tasks = tasks_like(wide, gpu_spec=rng.choice(["", "", "A", "B", "A|B"], jobs))
    known = {"job": np.array([0, 0, *range(1, jobs - 1)])} if parts else {}
    submit_s = np.sort(rng.integers(0, 4, jobs))
    if parts:
        submit_s[1] = submit_s[0]
    return problem_like(cluster, tasks, submit_s, rng.integers(1, 9, jobs), **known)


def earliest_start(problem, held, task, node):
    """First whole second from which the GPUs that a task wants on a node are free for as long as it runs."""
    gpus = problem.cluster.num_gpus[node]
    start = int(problem.submit_s[task])
    while True:
        seconds = range(start, start + int(problem.duration_s[task]))
        if all(held.get((node, second), 0) + problem.tasks.num_gpus[task] <= gpus for second in seconds):
            return start
        start += 1


@cache
def plain_least_wait(seed, parts=False):
    """Least mean wait of a job: every order, every choice of nodes, each task as early as it can be."""
    problem = small_problem(seed, 4, parts)
    count, best = len(problem.tasks), np.inf
    nodes = [[node for node, model in enumerate(MODELS) if spec == "" or model in spec.split("|")]
             for spec in problem.tasks.gpu_spec]
    job = np.arange(count) if problem.job is None else problem.job
    for where in product(*nodes):
        for order in permutations(range(count)):
            held, last = {}, {}
            for task in order:
                start = earliest_start(problem, held, task, where[task])
                for second in range(start, start + int(problem.duration_s[task])):
                    key = where[task], second
                    held[key] = held.get(key, 0) + problem.tasks.num_gpus[task]
                wait = start - problem.submit_s[task]
                last[job[task]] = max(wait, last.get(job[task], 0))
            best = min(best, sum(last.values()) / len(last))
    return best


def bound_of(problem):
    """Bound for all jobs of a problem, each of which counts in the row of its first part."""
    first = np.arange(len(problem.tasks)) if problem.job is None else np.unique(problem.job, return_index=True)[1]
    wait_s = np.full(len(problem.tasks), np.nan)
    wait_s[first] = 0.0
    return wait_bound(problem, wait_s)


@pytest.mark.parametrize("parts", [False, True])
def test_no_order_and_no_placement_waits_less(parts, monkeypatch):
    """Sixty lists of four tasks: what the bound says is never above the best of all schedules, and often not 0."""
    monkeypatch.setattr(bounds, "CELLS", 32)  # seconds, not minutes, each with its price
    found = np.array([[bound_of(small_problem(seed, 4, parts)), plain_least_wait(seed, parts)] for seed in range(60)])
    assert (found[:, 0] <= found[:, 1] + 1e-9).all(), found[found[:, 0] > found[:, 1] + 1e-9]
    waits = found[:, 1] > 0
    assert waits.sum() > 20 and (found[waits, 0] > 0).mean() > 0.6
    assert found[waits, 0].sum() > 0.35 * found[waits, 1].sum()


@pytest.mark.parametrize("wrong", ["capacity", "release", "models"])
def test_brute_force_finds_a_bound_that_is_too_large(wrong, monkeypatch):
    """Planted: half of the capacity paid for; a wait counted twice; a job of any model kept off all but one."""
    found = bounds.wait_by_prices

    def mistaken(asks, capacity):
        if wrong == "capacity":
            return found(asks, capacity / 2)
        if wrong == "release":
            return found(asks._replace(weight=2 * asks.weight), capacity)
        only = np.arange(asks.admits.shape[1]) == 0
        return found(asks._replace(admits=np.broadcast_to(only, asks.admits.shape)), capacity)

    monkeypatch.setattr(bounds, "CELLS", 32)
    monkeypatch.setattr(bounds, "wait_by_prices", mistaken)
    assert any(bound_of(small_problem(seed, 4)) > plain_least_wait(seed) + 1e-9 for seed in range(60))


def test_a_month_of_more_work_than_gpus_has_a_bound_and_no_rule_is_below_it():
    """Jobs of ten hours for a half more than the GPUs of the toy cluster can do; on one machine the bound was 0."""
    rng = np.random.default_rng(0)
    count = 150
    tasks = toy_tasks().take(rng.choice([3, 4], count))
    tasks = replace(tasks, name=texts([f"t{k}" for k in range(count)]), cpu_milli=np.full(count, 1000),
                    num_gpus=np.full(count, 1), gpu_milli=np.full(count, 1000), gpu_spec=texts([""] * count))
    problem = problem_like(toy_cluster(), tasks, np.sort(rng.uniform(0, 510_000, count)), np.full(count, 36_000.0))
    least = bound_of(problem)
    for backfill in BACKFILLS:
        schedule = replay(problem, "fgd", backfill=backfill)
        mean_s = np.nanmean(waits_of(problem, schedule, np.zeros(count, bool)).wait_s)
        assert 0.7 * mean_s < least <= mean_s


def test_the_bound_is_the_same_for_jobs_in_another_unit_of_time():
    problem = small_problem(7, 5)
    slower = replace(problem, submit_s=3600 * problem.submit_s, duration_s=3600 * problem.duration_s)
    assert bound_of(slower) == pytest.approx(3600 * bound_of(problem), rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_no_policy_beats_a_bound(seed):
    problem = random_problem(seed)
    horizon = (float(problem.submit_s[0]), 9000.0)
    for policy, backfill in (("fgd", "none"), ("pwr", "first-fit"), ("random", "first-fit")):
        schedule = replay(problem, policy, backfill=backfill, seed=seed)
        for power, (asleep_w, after_s) in product(POWERS, ((0.0, 0.0), (7.0, 300.0))):
            curve = measure(problem, schedule, power, [horizon[0], 3000, horizon[1]], after_s, asleep_w)
            floors = floors_of(problem, power, asleep_w)
            awake, asleep = energy_bounds(problem, schedule, floors, horizon)
            assert awake <= kwh_of(curve).sum() * (1 + 1e-12)
            assert asleep <= kwh_of(curve, "asleep_w").sum() * (1 + 1e-12)
        waits = waits_of(problem, schedule, np.zeros(len(problem.tasks), bool))
        assert wait_bound(problem, waits.wait_s) <= np.nanmean(waits.wait_s) * (1 + 1e-12) + 1e-9


def test_the_bounds_are_reached_where_nothing_is_lost():
    """One full GPU on a node, CPUs in whole packages: the cheapest supply is the only one."""
    cluster = replace(toy_cluster().take(np.array([2])), cpu_milli=np.array([32_000]))
    tasks = replace(toy_tasks().take(np.array([3])), cpu_milli=np.array([32_000]), num_gpus=np.array([1]),
                    gpu_milli=np.array([1000]), gpu_spec=np.array([""], object))
    problem = problem_like(cluster, tasks, [0.0], [1800.0])
    schedule = replay(problem, "fgd")
    curve = measure(problem, schedule, PowerSettings(), [0, 3600], 0.0)
    awake, asleep = energy_bounds(problem, schedule, floors_of(problem, PowerSettings(), 0.0), (0, 3600))
    assert awake == pytest.approx(kwh_of(curve).sum(), rel=1e-12)
    assert asleep == pytest.approx(kwh_of(curve, "asleep_w").sum(), rel=1e-12)


def test_the_wait_bound_is_that_of_one_machine():
    """Three tasks on one GPU: the shortest first, as by hand; equal to the best of all orders."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        release = np.sort(rng.integers(0, 6, 4)).astype(float)
        work = rng.integers(1, 6, 4).astype(float)
        assert pooled_completions(release, work) == plain_completions(release, work)


def plain_completions(release, work):
    """Second by second: work on what has least left."""
    left = work.copy()
    total, now = 0.0, 0.0
    while left.any():
        there = np.flatnonzero((release <= now) & (left > 0))
        now += 1
        if len(there):
            task = there[np.argmin(left[there])]
            left[task] -= 1
            total += now * (left[task] == 0)
    return total
