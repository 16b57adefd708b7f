"""Measure when a batch pays: time of an arrival in lockstep and alone, and of scoring all pairs of larger clusters.

python tools/batch_results.py [device, cpu if not given]

Writes data/results/batch/throughput_<device>.csv and scoring_<device>.csv on the embedded default data, with the
machine in the sidecar. Times differ from machine to machine; leave the machine alone while it runs (some 10 minutes).
"""
from __future__ import annotations

import platform
import sys
import time
import tracemalloc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sched_lab.arrays import (
    best_time_s,
    copy_bandwidth_bytes_per_s,
    get_xp,
    synchronise,
    traffic_of,
)
from sched_lab.cluster import State, default_cluster, empty_state
from sched_lab.frames import write_frame
from sched_lab.online.batch import (
    SCRATCH_BYTES,
    Setting,
    Workload,
    bytes_per_pair,
    bytes_per_replica,
    draws_of,
    empty_flock,
    play_batch,
    rules_of,
    setting_of,
    workload_of,
)
from sched_lab.online.combine import policy_of
from sched_lab.online.inflation import play, sample_arrivals
from sched_lab.online.pairs import fgd_pairs, is_feasible, pwr_pairs, rooms_of, score_all
from sched_lab.online.policy import final_state, world_of
from sched_lab.power import power_of
from sched_lab.traces import default_tasks, target_workload, task_classes

RESULTS = Path(__file__).resolve().parents[1] / "data" / "results" / "batch"
POLICIES = ("fgd", "pwr", "pwr-fgd:0.1", "bestfit", "random")
REPLICAS = {"cpu": (1, 4, 16, 64, 128), "cuda": (1, 8, 64, 256, 1000)}
SCALES = (1, 10, 100)
STEPS = 200  # arrivals that are timed on the larger clusters


def machine(device: str, xp: Any) -> dict[str, Any]:
    """Describe what is measured on, for the sidecar."""
    if device == "cuda":
        name = xp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    else:
        lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
        name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    library = __import__("cupy") if device == "cuda" else np
    return {"device": name, "library": f"{library.__name__} {library.__version__}",
            "copy_gb_per_s": round(copy_bandwidth_bytes_per_s(xp) / 1e9, 2), "made by": "tools/batch_results.py"}


class Clock:
    """Seconds of a block: processor time on a CPU, time on the wall, device included, on a GPU."""

    def __init__(self, xp: Any) -> None:
        self.xp, self.now = xp, time.perf_counter if hasattr(xp, "cuda") else time.process_time

    def __enter__(self) -> Clock:
        synchronise(self.xp)
        self.start = self.now()
        return self

    def __exit__(self, *args: object) -> None:
        synchronise(self.xp)
        self.seconds = self.now() - self.start


@cache
def setting(device: str, scale: int = 1) -> Setting:
    """Default trace on so many default clusters."""
    cluster = default_cluster().take(np.tile(np.arange(len(default_cluster())), scale))
    return setting_of(cluster, default_tasks(), power_of(cluster), get_xp(device))


# --- arrivals


def alone_us(policy: str, seed: int) -> tuple[float, int]:
    """Microseconds for an arrival in the compiled engine, and number of arrivals."""
    cluster, tasks = default_cluster(), default_tasks()
    arrivals = sample_arrivals(cluster, tasks, seed)
    ranked = cluster.take(np.argsort(arrivals.node_rank))
    classes, class_of = task_classes(tasks)
    world = world_of(ranked, classes, target_workload(tasks), power_of(ranked))
    with Clock(np) as clock:
        play(policy_of(policy), world, class_of[arrivals.task_row], tasks.memory_mib[arrivals.task_row], seed)
    return 1e6 * clock.seconds / len(arrivals.task_row), len(arrivals.task_row)


def together_us(policy: str, replicas: int, here: Setting, steps: int | None = None) -> tuple[float, int]:
    """Microseconds for an arrival of one replica in lockstep, and number of arrivals."""
    xp = here.tables.xp
    draws = list(draws_of(here.cluster, here.tasks, range(replicas), 1.0 if steps is None else 0.05,
                          "replacement", None).values())
    rows = [draw.task_row[:steps] for draw in draws]
    order = np.stack([draw.order for draw in draws])
    rules = rules_of(xp, [policy_of(policy)] * replicas, empty_state(here.cluster))
    workload = workload_of(xp, [here.class_of[each] for each in rows], [here.tasks.memory_mib[each] for each in rows],
                           range(replicas))
    max_pairs = max(1, SCRATCH_BYTES // bytes_per_pair(here.tables))
    nodes = xp.asarray(here.type_of[order]), xp.asarray(here.cluster.memory_mib[order])
    play_batch(here.tables, rules, empty_flock(here.tables, rules.parts, *nodes),
               Workload(*(column[:20, :] for column in workload)), max_pairs)  # warms up
    flock = empty_flock(here.tables, rules.parts, *nodes)
    with Clock(xp) as clock:
        play_batch(here.tables, rules, flock, workload, max_pairs)
    num_arrivals = sum(map(len, rows))
    return 1e6 * clock.seconds / num_arrivals, num_arrivals


def throughput(device: str) -> Iterator[dict[str, Any]]:
    """Time of one arrival of one replica: alone, and in lockstep with others."""
    for policy in POLICIES:
        alone_us(policy, 0)  # compiles
        for seed in range(3):
            alone, num_arrivals = alone_us(policy, seed)
            yield {"policy": policy, "engine": "scalar", "replicas": 1, "arrivals": num_arrivals, "us": round(alone, 2)}
        for replicas in REPLICAS[device]:
            together, num_arrivals = together_us(policy, replicas, setting(device))
            yield {"policy": policy, "engine": "batch", "replicas": replicas, "arrivals": num_arrivals,
                   "us": round(together, 2)}
            print(f"{policy:12s} {replicas:5d} replicas {together:8.2f} us, alone {alone:8.2f} us", flush=True)


# --- pairs


@cache
def half_full() -> State:
    """Default cluster after FGD has placed half of its GPU capacity."""
    cluster, tasks = default_cluster(), default_tasks()
    arrivals = sample_arrivals(cluster, tasks, 0, until=0.5)
    classes, class_of = task_classes(tasks)
    world = world_of(cluster, classes, target_workload(tasks), power_of(cluster))
    rows = arrivals.task_row
    node, gpus, _ = play(policy_of("fgd"), world, class_of[rows], tasks.memory_mib[rows])
    return final_state(cluster, tasks, rows, node, gpus)


def scoring(device: str) -> Iterator[dict[str, Any]]:
    """Time, work and memory of scoring every class on every node of half-full clusters, and of steps of one replica."""
    for scale in SCALES:
        here = setting(device, scale)
        xp, nodes = here.tables.xp, len(here.cluster)
        state = State(*(np.concatenate([column] * scale) for column in half_full()))
        rooms, classes = rooms_of(here.tables, here.type_of, state), here.tables.world.demand.cpu_milli.shape[0]
        for name, score in (("fgd", fgd_pairs), ("pwr", pwr_pairs)):
            def all_pairs(score: Any = score, rooms: Any = rooms, here: Any = here) -> None:
                score_all(here.tables, score, rooms)
            seconds = best_time_s(all_pairs, xp, repeats=5 if scale < 100 else 2)
            tracemalloc.start()
            step_us, _ = together_us(name, 1, here, STEPS)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            step_us, _ = together_us(name, 1, here, STEPS)  # again, without the watcher
            work = work_of_a_pair(name, scale)
            yield {"score": name, "scale": scale, "nodes": nodes, "pairs": classes * nodes,
                   "seconds": round(seconds, 5), "pairs_per_s": round(classes * nodes / seconds),
                   "bytes_per_pair": work[0], "operations_per_pair": work[1],
                   "gb_per_s": round(work[0] * classes * nodes / seconds / 1e9, 2), "step_us": round(step_us, 1),
                   "replica_mib": round(bytes_per_replica(here.tables, 1, nodes, STEPS) / 2**20, 1),
                   "peak_mib": round(peak / 2**20, 1) if device == "cpu" else np.nan}
            print(f"{name} x{scale}: {classes * nodes / seconds / 1e6:.2f} million pairs/s", flush=True)


def work_of_a_pair(name: str, scale: int) -> tuple[float, float]:
    """Bytes and operations for each pair, counted on the CPU for 2**14 pairs: what `score_all` does at once."""
    here, score = setting("cpu", scale), {"fgd": fgd_pairs, "pwr": pwr_pairs}[name]
    state = State(*(np.concatenate([column] * scale) for column in half_full()))
    pair = np.arange(2**14)
    task, node = pair // len(here.cluster), pair % len(here.cluster)
    some = type(rooms := rooms_of(here.tables, here.type_of, state))(*(column[..., node] for column in rooms))

    def work(tables: Any, rooms: Any, task: Any) -> None:
        score(tables, rooms, task)
        is_feasible(tables, rooms, task)

    traffic = traffic_of(work, here.tables, some, task)
    total = traffic.read_bytes + traffic.written_bytes
    return round(total / len(pair), 1), round(traffic.operations / len(pair), 1)


def main(device: str = "cpu") -> None:
    """Measure and write."""
    about = machine(device, get_xp(device))
    print(about, flush=True)
    for name, rows in (("scoring", scoring(device)), ("throughput", throughput(device))):
        write_frame(pd.DataFrame(list(rows)), RESULTS / f"{name}_{device}.csv", about)


if __name__ == "__main__":
    main(*sys.argv[1:])
