"""Workloads that the tests of the Hadar chapters share: the golden cases of Gavel's simulator, and random ones."""
import json
from typing import Any

import numpy as np
import pytest

from sched_lab.hadar.model import Cluster, Jobs, Workload, workers_that_fit
from sched_lab.traces import find_reference

TYPES = ("v100", "p100", "k80")
GOLDEN = find_reference("hadar/golden.json")
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text())["cases"] if GOLDEN else []
golden = pytest.mark.skipif(GOLDEN is None, reason="reference/hadar/golden.json is absent")
TOY_GOLDEN = find_reference("hadar/toy_golden.json")
TOY: dict[str, Any] = json.loads(TOY_GOLDEN.read_text()) if TOY_GOLDEN else {}
toy_golden = pytest.mark.skipif(TOY_GOLDEN is None, reason="reference/hadar/toy_golden.json is absent")
RUNS = [(case, run) for case in CASES for run in case["results"]]


def run_name(pair):
    case, run = pair
    return f"{case['name']}-{run['policy']}-{run['cvxpy_solver']}"


def golden_workload(case):
    """Jobs and nodes of a golden case; its speeds are recorded with each call of the linear program."""
    calls = [call for run in case["results"] for call in run["allocation_calls"]]
    speed = {job: row for call in calls for job, row in zip(call["job_ids"], call["throughputs"], strict=True)}
    rate = np.array([speed[job] for job in range(len(case["jobs"]))])
    arrival_s, steps, workers, weight = (np.array([job[name] for job in case["jobs"]]) for name in
                                         ("arrival_s", "total_steps", "scale_factor", "priority"))
    node_type = np.repeat(np.arange(3), [case["cluster"][name] // case["gpus_per_server"][name] for name in TYPES])
    cluster = Cluster(node_type, np.array([case["gpus_per_server"][TYPES[kind]] for kind in node_type]))
    jobs = Jobs(arrival_s.astype(float), steps.astype(float), workers, weight.astype(float), rate, rate)
    names = (tuple(map(str, range(count))) for count in (len(steps), len(node_type)))
    return Workload(*names, TYPES, cluster, jobs)


def workload_of(steps, rates, arrival_s=None):
    """Jobs on nodes that are each of a type of their own."""
    rate = np.array(rates, float)
    num_jobs, num_nodes = rate.shape
    jobs = Jobs(np.zeros(num_jobs) if arrival_s is None else np.array(arrival_s, float), np.array(steps, float),
                np.ones(num_jobs, np.int64), np.ones(num_jobs), rate, rate)
    nodes = tuple(f"node {node}" for node in range(num_nodes))
    return Workload(tuple(f"job {job}" for job in range(num_jobs)), nodes, nodes,
                    Cluster(np.arange(num_nodes), np.ones(num_nodes, np.int64)), jobs)


def random_workload(seed, *, with_arrivals=True):
    """One to eight jobs that each fit on one node of a type; some speeds are 0, some gangs faster when spread."""
    rng = np.random.default_rng(seed)
    num_types = int(rng.integers(1, 4))
    num_jobs = int(rng.integers(1, 9))
    num_nodes = int(rng.integers(num_types, 6))
    node_type = np.sort(np.concatenate([np.arange(num_types), rng.integers(0, num_types, num_nodes - num_types)]))
    cluster = Cluster(node_type, rng.integers(1, 5, num_nodes))
    rate = rng.uniform(0.5, 10, (num_jobs, num_types)) * (rng.random((num_jobs, num_types)) > 0.2)
    rate[np.arange(num_jobs), rng.integers(0, num_types, num_jobs)] += 1
    spread = np.where(rng.random(rate.shape) < 0.2, 0, rate * rng.uniform(0.5, 1.1, rate.shape))
    largest = np.array([cluster.node_gpus[node_type == kind].max() for kind in range(num_types)])
    workers = np.array([rng.integers(1, largest[row > 0].max() + 1) for row in rate])
    arrival_s = np.where(rng.random(num_jobs) < 0.5, 0, rng.uniform(0, 3000, num_jobs)) * with_arrivals
    jobs = Jobs(arrival_s, rng.uniform(1, 5000, num_jobs), workers, np.ones(num_jobs), rate, spread)
    names = (tuple(map(str, range(count))) for count in (num_jobs, num_nodes, num_types))
    return Workload(*names, cluster, jobs)


def random_gangs(seed, *, one_gpu=False):
    """Gangs as large as any that fits, a third of the types of no use when spread, a quarter of no use at all."""
    rng = np.random.default_rng([seed, 1])
    num_types = int(rng.integers(1, 4))
    num_jobs = int(rng.integers(1, 7))
    num_nodes = int(rng.integers(num_types, 7))
    node_type = np.concatenate([np.arange(num_types), rng.integers(0, num_types, num_nodes - num_types)])
    cluster = Cluster(node_type, np.ones(num_nodes, np.int64) if one_gpu else rng.integers(1, 4, num_nodes))
    rate = rng.uniform(0.5, 10, (num_jobs, num_types)) * (rng.random((num_jobs, num_types)) > 0.25)
    rate[np.arange(num_jobs), rng.integers(0, num_types, num_jobs)] += 1
    spread = rate * rng.uniform(0.5, 1.1, rate.shape) * (rng.random(rate.shape) > 0.33)
    most = workers_that_fit(cluster, rate, spread)
    workers = np.ones(num_jobs, np.int64) if one_gpu else rng.integers(1, most + 1)
    arrival_s = np.where(rng.random(num_jobs) < 0.5, 0, rng.uniform(0, 9000, num_jobs))
    steps = np.ceil(rng.uniform(1, 9000, num_jobs))
    weight = rng.choice([1.0, 3.0], num_jobs)
    jobs = Jobs(arrival_s, steps, workers, weight, rate, spread)
    names = (tuple(map(str, range(count))) for count in (num_jobs, num_nodes, num_types))
    return Workload(*names, cluster, jobs)


def waiting_rounds(run):
    """Yield, for each round, the jobs that are there and do not run, and the (nodes,) GPUs that are left."""
    work = run.workload
    history = run.history
    for number, start_s in enumerate(run.intervals["start_s"]):
        rows = history[history["round"] == number]
        active = np.flatnonzero((work.jobs.arrival_s <= start_s) & (run.end_s > start_s))
        left = work.cluster.node_gpus.copy()
        np.subtract.at(left, rows["node"], rows["gpus"])
        yield np.setdiff1d(active, rows["job"]), left


def who_fits(work, left):
    """(jobs,) whether a gang could run on the GPUs that are left, alone."""
    jobs = work.jobs
    return workers_that_fit(work.cluster._replace(node_gpus=left), jobs.rate, jobs.spread_rate) >= jobs.workers
