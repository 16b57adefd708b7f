"""Workloads that the tests of the Hadar chapters share: the golden cases of Gavel's simulator, and random ones."""
import json
from typing import Any

import numpy as np

from sched_lab.hadar.model import (
    Allocation,
    Cluster,
    Jobs,
    State,
    Workload,
    allocation_of,
    nothing_runs,
    round_rate,
    workers_that_fit,
)
from sched_lab.hadar.policies import POLICIES, policy_of
from sched_lab.hadar.simulation import HadarE, keeps_place
from sched_lab.traces import find_reference

TYPES = ("v100", "p100", "k80")
TOY_GOLDEN = find_reference("hadar/toy_golden.json")
TOY: dict[str, Any] = json.loads(TOY_GOLDEN.read_text()) if TOY_GOLDEN else {}
GANGS, FORKED = ([name for name in POLICIES if isinstance(policy_of(name), HadarE) == is_forked]
                 for is_forked in (False, True))


class Script:
    """Does what it is told, round by round."""

    def __init__(self, *rounds):
        self.rounds = list(rounds)

    def allocate(self, state):
        return allocation_of(self.rounds.pop(0))


def jobs_of(rate, steps=1.0, workers=1, *, spread=1.0, arrival_s=0.0, weight=1.0):
    """Jobs, a row of rates each; a number holds for all of them, and `spread` is a factor of the rates."""
    rate = np.array(rate, float)
    columns = [np.array(np.broadcast_to(np.asarray(value, kind), len(rate))) for value, kind in (
        (arrival_s, float), (steps, float), (workers, np.int64), (weight, float))]
    return Jobs(*columns, rate, rate * spread)


def nodes_of(gpus, types=None):
    """Nodes with so many GPUs, all of one type if nothing else is said."""
    return Cluster(np.array([0] * len(gpus) if types is None else types), np.array(gpus))


def named(cluster, jobs, types=TYPES):
    """Make a workload in which jobs and nodes are called by their numbers."""
    names = (tuple(map(str, range(count))) for count in (len(jobs.steps), len(cluster.node_gpus)))
    return Workload(*names, tuple(types[:jobs.rate.shape[1]]), cluster, jobs)


def state_of(cluster, jobs, **changes):
    """Begin with all jobs there and nothing running, but for what is said."""
    none = np.zeros(len(jobs.steps))
    start = State(cluster, jobs, 0.0, np.arange(len(none)), jobs.steps, nothing_runs(), none, none)
    return start._replace(**changes)


def golden_workload(case):
    """Jobs and nodes of a golden case; its speeds are recorded with each call of the linear program."""
    calls = [call for run in case["results"] for call in run["allocation_calls"]]
    speed = {job: row for call in calls for job, row in zip(call["job_ids"], call["throughputs"], strict=True)}
    rate = [speed[job] for job in range(len(case["jobs"]))]
    arrival_s, steps, workers, weight = (np.array([job[name] for job in case["jobs"]]) for name in
                                         ("arrival_s", "total_steps", "scale_factor", "priority"))
    node_type = np.repeat(np.arange(3), [case["cluster"][name] // case["gpus_per_server"][name] for name in TYPES])
    cluster = nodes_of([case["gpus_per_server"][TYPES[kind]] for kind in node_type], node_type)
    return named(cluster, jobs_of(rate, steps, workers, arrival_s=arrival_s, weight=weight))


def workload_of(steps, rates, arrival_s=0.0):
    """Jobs with one worker on nodes with one GPU that are each of a type of their own."""
    jobs = jobs_of(rates, steps, arrival_s=arrival_s)
    types = np.arange(jobs.rate.shape[1])
    return named(nodes_of(np.ones_like(types), types), jobs, [f"type {kind}" for kind in types])


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
    return named(cluster, jobs)


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
    return named(cluster, jobs)


def steps_done(run, restart_s):
    """(jobs,) steps that the recorded places do in the time for which they are held."""
    work = run.workload
    before = nothing_runs()
    done = np.zeros(len(work.job_name))
    rounds = dict(tuple(run.history.groupby("round")))
    for number, interval in enumerate(run.intervals.itertuples()):
        places = nothing_runs()
        if number in rounds:
            places = Allocation(*(rounds[number][name].to_numpy() for name in ("job", "node", "gpus")))
        held_s = np.minimum(run.end_s - interval.start_s, interval.length_s)
        held_s -= restart_s * ~keeps_place(before, places, len(done))
        done += round_rate(work.cluster, work.jobs, places) * held_s
        before = places
    return done


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
