"""The meter of a replay: EOPC curves, wrong records, tasks that wait; for the integral see tests of the spine."""
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.cluster import toy_cluster
from sched_lab.fleet.replay.meter import measure
from sched_lab.fleet.replay.problem import Schedule
from sched_lab.online.inflation import inflate
from sched_lab.online.model import PowerSettings
from sched_lab.traces import toy_tasks
from tests.fleet.problems import problem_like

pytestmark = pytest.mark.usefixtures("python_itself")


def inflated(seed: int = 0, until: float = 0.6):
    """Fill the toy cluster: a problem whose time is the number of the arrival, and the run."""
    cluster, tasks = toy_cluster(), toy_tasks()
    run = inflate(cluster, tasks, "fgd", seed=seed, until=until)
    rows = run.placements.task_row
    named = replace(tasks.take(rows), name=np.array([f"t{k}" for k in range(len(rows))], object))
    at_s = np.arange(len(rows), dtype=float)
    return problem_like(cluster, named, at_s, np.full(len(rows), np.inf)), run


def schedule_of(run, start_s, end_s) -> Schedule:
    is_placed = run.placements.node >= 0
    return Schedule(run.placements.node, run.placements.gpu_mask, np.where(is_placed, start_s, np.nan),
                    np.where(is_placed, end_s, np.nan))


def test_a_wrong_record_is_measured_and_forgotten_when_it_ends():
    """Two whole tasks on one GPU: nothing is left, nothing below it, and all is free in the end."""
    cluster = toy_cluster()
    tasks = replace(toy_tasks().take(np.array([3, 3])), num_gpus=np.array([1, 1]), gpu_milli=np.array([1000, 1000]))
    problem = problem_like(cluster, tasks, [0.0, 10.0], [20.0, 20.0])
    double = Schedule(np.array([0, 0]), np.array([1, 1]), np.array([0.0, 10.0]), np.array([20.0, 30.0]))
    curve = measure(problem, double, PowerSettings(), [0.0, 10.0, 20.0, 30.0, 40.0])
    assert curve["allocated_gpu"].tolist() == [1.0, 1.0, 1.0, 0.0]
    assert curve["running_tasks"].tolist() == [1.0, 2.0, 1.0, 0.0]
    capacity = cluster.gpu_capacity_milli / 1000
    assert (curve[["allocated_gpu", "stranded_gpu", "idle_gpu"]].sum(axis=1) == capacity).all()
    assert (curve[["stranded_gpu", "idle_gpu", "frag_gpu"]] >= 0).all(axis=None)


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 89), min_size=1, max_size=6, unique=True))
def test_bins_add_up_and_waiting_is_the_sum_of_waits(seed, cuts):
    problem, run = inflated(seed % 5, until=0.9)
    rng = np.random.default_rng(seed)
    submit_s = rng.integers(0, 40, len(problem.tasks)).astype(float)
    start_s = submit_s + rng.integers(0, 20, len(submit_s))
    schedule = schedule_of(run, start_s, start_s + rng.integers(0, 30, len(start_s)))
    is_placed = schedule.node >= 0
    problem = replace(problem, submit_s=np.where(is_placed, submit_s, np.nan))
    edges_s = np.array([0, *sorted(cuts), 90], float)
    curve = measure(problem, schedule, PowerSettings(), edges_s, 5.0, 3.0)
    whole = measure(problem, schedule, PowerSettings(), edges_s[[0, -1]], 5.0, 3.0)
    total = curve.iloc[:, 2:].mul(np.diff(edges_s), axis=0).sum()
    assert np.allclose(total, whole.iloc[0, 2:].to_numpy(float) * 90, rtol=1e-12, atol=1e-9)
    assert np.isclose(total["waiting_tasks"], (schedule.start_s - submit_s)[is_placed].sum())
    assert np.isclose(total["running_tasks"], (schedule.end_s - schedule.start_s)[is_placed].sum())
