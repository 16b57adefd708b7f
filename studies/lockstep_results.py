"""Time and memory that a step of lockstep takes, and how many replicas make up for it."""

from __future__ import annotations

import platform
import time
import tracemalloc
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sched_lab.cluster import State, default_cluster, empty_state
from sched_lab.lab.arrays import get_xp, to_device
from sched_lab.online.inflation import play, sample_arrivals
from sched_lab.online.lockstep import (
    SCRATCH_BYTES,
    ArrivalColumns,
    Setting,
    arrival_columns,
    bytes_per_pair,
    bytes_per_replica,
    empty_states,
    play_together,
    rules_of,
    setting_of,
)
from sched_lab.online.model import Placements, final_state, world_of
from sched_lab.online.pairs import Rooms, fgd_pairs, is_feasible, pwr_pairs
from sched_lab.online.policies import policy_of
from sched_lab.power import power_of
from sched_lab.traces import default_tasks, target_workload, task_classes

from .rulers import best_time_s, copy_bandwidth_bytes_per_s, synchronise, traffic_of

ENGINES = ("fgd", "pwr", "pwr-fgd:0.1", "bestfit", "random")  # policies that are timed
REPLICAS = {"cpu": (1, 4, 16, 64, 128), "cuda": (1, 64, 1000, 8000)}
ARRIVALS = {"cpu": None, "cuda": 1000}  # a step on a GPU waits for its launches, early and late
SCALES = (1, 10, 100)
STEPS = 200  # arrivals that are timed on the larger clusters
MEASURED = ("us", "seconds", "pairs_per_s", "gb_per_s", "step_us", "peak_mib")


class Clock:
    """Seconds of a block: processor time on a CPU, time on the wall, device included, on a GPU."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.now = time.perf_counter if hasattr(xp, "cuda") else time.process_time

    def __enter__(self) -> Clock:
        synchronise(self.xp)
        self.start = self.now()
        return self

    def __exit__(self, *args: object) -> None:
        synchronise(self.xp)
        self.seconds = self.now() - self.start


def machine(device: str) -> dict[str, Any]:
    """Describe what is measured on, for the sidecar of a frame."""
    xp = get_xp(device)
    if device == "cuda":
        name = xp.cuda.runtime.getDeviceProperties(0)["name"].decode()
        library = import_module("cupy")
    else:
        name = processor_name()
        library = np
    return {"device": name, "library": f"{library.__name__} {library.__version__}",
            "copy_gb_per_s": round(copy_bandwidth_bytes_per_s(xp) / 1e9, 2)}


def processor_name() -> str:
    """Name of the processor of this machine."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    models = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


@cache
def copies(device: str, scale: int = 1) -> Setting:
    """Default trace on so many default clusters."""
    cluster = default_cluster().take(np.tile(np.arange(len(default_cluster())), scale))
    return setting_of(cluster, default_tasks(), power_of(cluster), get_xp(device))


def alone_us(policy: str, seed: int) -> tuple[float, int]:
    """Microseconds for an arrival in the compiled engine, and number of arrivals."""
    cluster = default_cluster()
    tasks = default_tasks()
    arrivals = sample_arrivals(cluster, tasks, seed)
    ranked = cluster.take(np.argsort(arrivals.node_rank, kind="stable"))
    classes, class_of = task_classes(tasks)
    world = world_of(ranked, classes, target_workload(tasks), power_of(ranked))
    with Clock(np) as clock:
        play(policy_of(policy), world, class_of[arrivals.task_row],
             tasks.memory_mib[arrivals.task_row], seed)
    return 1e6 * clock.seconds / len(arrivals.task_row), len(arrivals.task_row)


def together_us(policy: str, replicas: int, here: Setting,
                steps: int | None = None) -> tuple[float, int]:
    """Microseconds for an arrival of one replica in lockstep, and number of arrivals.

    Parameters
    ----------
    policy, replicas : what runs, and how often at once
    here : cluster, trace and device
    steps : arrivals to time; all up to the capacity if not given
    """
    xp = here.tables.xp
    until = 1.0 if steps is None else 0.2
    draws = [sample_arrivals(here.cluster, here.tasks, seed, until) for seed in range(replicas)]
    rows = [draw.task_row[:steps] for draw in draws]
    order = np.stack([np.argsort(draw.node_rank, kind="stable") for draw in draws])
    rules = rules_of(xp, [policy_of(policy)] * replicas, empty_state(here.cluster))
    columns = arrival_columns(xp, [here.class_of[each] for each in rows],
                              [here.tasks.memory_mib[each] for each in rows], range(replicas))
    max_pairs = max(1, SCRATCH_BYTES // bytes_per_pair(here.tables))
    nodes = (xp.asarray(here.type_of[order]), xp.asarray(here.cluster.memory_mib[order]))
    first = ArrivalColumns(*(column[:20, :] for column in columns))
    play_together(here.tables, rules, empty_states(here.tables, rules.parts, *nodes), first,
                  max_pairs)  # warms up
    states = empty_states(here.tables, rules.parts, *nodes)
    with Clock(xp) as clock:
        play_together(here.tables, rules, states, columns, max_pairs)
    num_arrivals = sum(map(len, rows))
    return 1e6 * clock.seconds / num_arrivals, num_arrivals


def measured_throughput(device: str) -> pd.DataFrame:
    """Time of one arrival of one replica: alone, and in lockstep with others."""
    rows = []
    for policy in ENGINES:
        alone_us(policy, 0)  # compiles
        for seed in range(3):
            alone, num_arrivals = alone_us(policy, seed)
            rows.append((policy, "scalar", 1, num_arrivals, round(alone, 2)))
        for replicas in REPLICAS[device]:
            together, num_arrivals = together_us(policy, replicas, copies(device),
                                                 ARRIVALS[device])
            rows.append((policy, "batch", replicas, num_arrivals, round(together, 2)))
    frame = pd.DataFrame(rows, columns=["policy", "engine", "replicas", "arrivals", "us"])
    frame.attrs.update(machine(device))
    return frame


@cache
def half_full() -> State:
    """Default cluster after FGD has placed half of its GPU capacity."""
    cluster = default_cluster()
    tasks = default_tasks()
    arrivals = sample_arrivals(cluster, tasks, 0, until=0.5)
    classes, class_of = task_classes(tasks)
    world = world_of(cluster, classes, target_workload(tasks), power_of(cluster))
    rows = arrivals.task_row
    node, gpu_mask, _ = play(policy_of("fgd"), world, class_of[rows], tasks.memory_mib[rows])
    return final_state(cluster, tasks, Placements(rows, node, gpu_mask))


def rooms_in(here: Setting, scale: int) -> Rooms:
    """Rooms of so many half-full default clusters, on the device; residents do not count here."""
    state = State(*(np.concatenate([column] * scale) for column in half_full()))
    residents = np.zeros((here.tables.world.residents.shape[1], len(here.type_of)), np.int64)
    gpu_left_milli = state.gpu_left_milli.T.copy()
    columns = here.type_of, state.cpu_left_milli, gpu_left_milli, residents
    return Rooms(*to_device(columns, here.tables.xp))


PAIR_SCORES = {"fgd": fgd_pairs, "pwr": pwr_pairs}


def score_all(tables: Any, score: Any, rooms: Rooms,
              max_pairs: int = 2**14) -> tuple[Any, Any]:
    """Score of every task class on every room, and whether it is possible there.

    Parameters
    ----------
    tables, rooms : what scores look up, nodes in some state
    score : the array form of a kernel
    max_pairs : number of pairs to score at once

    Returns
    -------
    scores and marks, both (classes, rooms)
    """
    xp = tables.xp
    shape = (tables.world.demand.cpu_milli.shape[0], rooms.node_type.shape[0])
    scores = xp.empty(shape[0] * shape[1], dtype=xp.int64)
    possible = xp.empty(shape[0] * shape[1], dtype=xp.bool)
    for start in range(0, shape[0] * shape[1], max_pairs):
        end = min(start + max_pairs, shape[0] * shape[1])
        pair = xp.arange(start, end)
        some = Rooms(*(xp.take(column, pair % shape[1], axis=-1) for column in rooms))
        task = pair // shape[1]
        scores[start:end], _ = score(tables, some, task)
        possible[start:end] = is_feasible(tables, some, task)
    return xp.reshape(scores, shape), xp.reshape(possible, shape)


def work_of_a_pair(name: str, scale: int) -> tuple[float, float]:
    """Bytes and operations per pair, counted for 2**14 pairs: what `score_all` does at once."""
    here = copies("cpu", scale)
    pair = np.arange(2**14)
    task = pair // len(here.cluster)
    node = pair % len(here.cluster)
    rooms = rooms_in(here, scale)
    some = Rooms(*(column[..., node] for column in rooms))

    def work(tables: Any, rooms: Any, task: Any) -> None:
        PAIR_SCORES[name](tables, rooms, task)
        is_feasible(tables, rooms, task)

    traffic = traffic_of(work, here.tables, some, task)
    total = traffic.read_bytes + traffic.written_bytes
    return round(total / len(pair), 1), round(traffic.operations / len(pair), 1)


def step_and_peak(name: str, here: Setting) -> tuple[float, float]:
    """Microseconds of a step of one replica, and MiB that the run held at most."""
    tracemalloc.start()
    together_us(name, 1, here, STEPS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    step_us, _ = together_us(name, 1, here, STEPS)  # again, without the watcher
    return step_us, peak / 2**20


def scoring_row(name: str, scale: int, device: str) -> dict[str, Any]:
    """Time, work and memory of scoring every class on every node, and of steps of one replica.

    Parameters
    ----------
    name : of the score
    scale : copies of the default cluster
    device : "cpu" or "cuda"
    """
    here = copies(device, scale)
    nodes = len(here.cluster)
    rooms = rooms_in(here, scale)
    pairs = here.tables.world.demand.cpu_milli.shape[0] * nodes
    seconds = best_time_s(lambda: score_all(here.tables, PAIR_SCORES[name], rooms),
                          here.tables.xp, repeats=5 if scale < 100 else 2)
    step_us, peak_mib = step_and_peak(name, here)
    pair_bytes, operations = work_of_a_pair(name, scale)
    replica_mib = bytes_per_replica(here.tables, 1, nodes, STEPS) / 2**20
    return {"score": name, "scale": scale, "nodes": nodes, "pairs": pairs,
            "seconds": round(seconds, 5), "pairs_per_s": round(pairs / seconds),
            "bytes_per_pair": pair_bytes, "operations_per_pair": operations,
            "gb_per_s": round(pair_bytes * pairs / seconds / 1e9, 2), "step_us": round(step_us, 1),
            "replica_mib": round(replica_mib, 1),
            "peak_mib": round(peak_mib, 1) if device == "cpu" else np.nan}


def measured_scoring(device: str) -> pd.DataFrame:
    """Scoring of all pairs on half-full clusters of several sizes."""
    frame = pd.DataFrame([scoring_row(name, scale, device)
                          for scale in SCALES for name in PAIR_SCORES])
    frame.attrs.update(machine(device))
    return frame
