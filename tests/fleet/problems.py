"""Problems for tests of a replay, one builder each."""
from dataclasses import replace

import numpy as np
import pandas as pd

from sched_lab.cluster import Cluster, toy_cluster
from sched_lab.fleet.replay.outages import Outages
from sched_lab.fleet.replay.problem import Problem
from sched_lab.traces import Tasks, toy_tasks

NO_LEDGER = pd.DataFrame({name: [] for name in ("file", "row", "what", "reason", "count")})


def texts(values) -> np.ndarray:
    """Make an array of texts."""
    return np.array(list(values), object)


def tasks_like(num_gpus, gpu_milli=1000, *, cpu_milli=1000, memory_mib=0, gpu_spec="") -> Tasks:
    """Make tasks t0, t1, ... of so many GPUs each, alike in what is said once."""
    count = len(num_gpus)
    amounts = (np.full(count, amount) for amount in (cpu_milli, memory_mib))
    return Tasks(texts(f"t{k}" for k in range(count)), *amounts, np.array(num_gpus), np.full(count, gpu_milli),
                 np.full(count, gpu_spec, object), np.full(count, "", object))


def problem_like(cluster: Cluster, tasks: Tasks, submit_s, duration_s, **known) -> Problem:
    """Make a problem of which nothing was recorded but what is given."""
    count = len(tasks)
    nothing = {"group": np.full(len(cluster), "g0", object), "start_s": np.full(count, np.nan),
               "node": np.full(count, -1), "gpu_mask": np.zeros(count, np.int64), "user": texts([""] * count),
               "queue": texts([""] * count), "priority": np.zeros(count, np.int64), "ledger": NO_LEDGER, "zero": None}
    return Problem(cluster=cluster, tasks=tasks, submit_s=np.array(submit_s, float),
                   duration_s=np.array(duration_s, float), **(nothing | known))


def random_problem(seed: int, count: int = 40) -> Problem:
    """Draw tasks for the toy cluster that come within an hour, some of them larger than any node."""
    rng = np.random.default_rng(seed)
    tasks = toy_tasks().take(rng.integers(0, 9, count))
    tasks = replace(tasks, name=texts(f"t{k}" for k in range(count)),
                    cpu_milli=np.where(rng.random(count) < 0.05, 10**6, tasks.cpu_milli))
    duration_s = rng.integers(0, 2000, count).astype(float)
    duration_s[rng.random(count) < 0.05] = np.inf
    return problem_like(toy_cluster(), tasks, np.sort(rng.integers(0, 3600, count)), duration_s,
                        user=texts(f"u{k % 3}" for k in range(count)))


def two_nodes() -> Cluster:
    """Two GPUs of a T4 node, one of a G2 node; 8 vCPU each."""
    return Cluster(texts("ab"), np.array([8000, 8000]), np.array([8192, 8192]), np.array([2, 1]),
                   texts(["T4", "G2"]), texts(["", ""]))


def timed(rows, **more) -> Problem:
    """Problem of tasks (submit, duration, GPUs, milli), 1 vCPU and 1 GiB each, on two nodes."""
    submit, duration, num, milli = zip(*rows, strict=True)
    return problem_like(two_nodes(), tasks_like(num, milli, memory_mib=1024), submit, duration, **more)


def in_jobs(job, rows, **more) -> Problem:
    """Tasks that are parts of these jobs."""
    return timed(rows, job=np.array(job), **more)


def outages_at(*rows) -> Outages:
    """Outages of node, from, until, whether down, whether what it stops waits again; in order."""
    node, from_s, until_s, is_down, requeues = zip(*sorted(rows, key=lambda row: row[1]), strict=True)
    return Outages(np.array(node), np.array(from_s, float), np.array(until_s, float), np.array(is_down, bool),
                   np.array(requeues, bool))
