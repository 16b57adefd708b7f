"""Compute the frames of the chapter on bounds: how far from the best possible each policy is.

python tools/pwr_bounds.py [number of processes, 1 if not given]

A frame is computed again only when its parameters have changed. Needs the openb trace and the recorded workloads of
seeds 42-51; it takes about half an hour of one processor, most of it for the bounds by single nodes.
"""
from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pwr_results import POLICIES, RECORDED, RESULTS, ROOT, TRACES, inputs

from sched_lab.frames import is_finished, write_frame
from sched_lab.online.bounds import METHODS, eopc_lower_bound_w, grar_upper_bound
from sched_lab.online.inflation import cut, inflate
from sched_lab.traces import Arrivals, read_arrivals

FEW = (42, 43, 44)  # of the frames whose bounds are dear
SEEDS = {("aggregated", True): RECORDED, ("aggregated", False): FEW, ("patterns", True): FEW,
         ("patterns", False): FEW[:1]}  # whether the trace is Default
X = (0.2, 0.5, 0.8, 0.9, 0.95, 1.0)
ROUNDS = {"default": 40, "others": 20}
SHARES = (0.89, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.965)
FRONTIER_ROUNDS = 80  # far from what the policies serve, the first contents help less
POWER = "package"


def prefix(trace: str, seed: int, x: float) -> tuple[Any, Any, Arrivals]:
    """Nodes, trace, and the arrivals of a recorded workload until demand reaches x."""
    cluster, tasks, recorded, _ = inputs(trace)
    arrivals = read_arrivals(recorded, seed, cluster, tasks)
    return cluster, tasks, Arrivals(cut(cluster, tasks, arrivals.task_row, x), arrivals.node_rank)


# --- one row of each frame


@cache
def all_served_w(trace: str, seed: int, x: float, method: str) -> float:
    """Bound on the power of any scheduler that places every arrival."""
    cluster, tasks, arrivals = prefix(trace, seed, x)
    return eopc_lower_bound_w(cluster, tasks, arrivals.task_row, power=POWER, method=method,
                              max_rounds=ROUNDS.get(trace, ROUNDS["others"]))


def bound_row(job: tuple[str, int, float, str]) -> dict[str, Any]:
    """Both bounds for one prefix; power if everything is placed, infinite if that is impossible."""
    trace, seed, x, method = job
    cluster, tasks, arrivals = prefix(trace, seed, x)
    grar = grar_upper_bound(cluster, tasks, arrivals.task_row, method=method,
                            max_rounds=ROUNDS.get(trace, ROUNDS["others"]))
    eopc_w = all_served_w(trace, seed, x, method) if grar == 1 else np.inf
    return {"trace": trace, "seed": seed, "x": x, "method": method, "grar_bound": round(grar, 7),
            "eopc_bound_w": round(eopc_w, 2)}


def policy_row(job: tuple[str, int, float, str]) -> dict[str, Any]:
    """Let a policy run; bound the power of any scheduler that serves as much."""
    policy, seed, x, method = job
    cluster, tasks, arrivals = prefix("default", seed, x)
    run = inflate(cluster, tasks, policy, arrivals=arrivals, power=POWER)
    is_placed = (run.assignments["node"] != "").to_numpy()
    served = arrivals.task_row[is_placed]
    gpu_milli, cpu_milli = int(tasks.gpu_demand_milli[served].sum()), int(tasks.cpu_milli[served].sum())
    row = {"policy": policy, "seed": seed, "x": x, "method": method, "eopc_w": round(run.curve["eopc_w"].iloc[-1], 2),
           "grar": round(gpu_milli / int(tasks.gpu_demand_milli[arrivals.task_row].sum()), 7),
           "cpu_share": round(cpu_milli / int(tasks.cpu_milli[arrivals.task_row].sum()), 7)}
    if is_placed.all():
        bound_w = round(all_served_w("default", seed, x, method), 2)
        return row | {"gpu_bound_w": bound_w, "gpu_cpu_bound_w": bound_w}
    bound = partial(eopc_lower_bound_w, cluster, tasks, arrivals.task_row, power=POWER, method=method,
                    max_rounds=ROUNDS["default"], served_gpu_milli=gpu_milli)
    return row | {"gpu_bound_w": round(bound(), 2), "gpu_cpu_bound_w": round(bound(served_cpu_milli=cpu_milli), 2)}


def frontier_row(job: tuple[float, str]) -> dict[str, Any]:
    """Bounds on the power of any scheduler that serves a share of the demand."""
    share, method = job
    cluster, tasks, arrivals = prefix("default", RECORDED[0], 1.0)
    gpu_milli, cpu_milli = (int(np.ceil(share * demand[arrivals.task_row].sum()))
                            for demand in (tasks.gpu_demand_milli, tasks.cpu_milli))
    bound = partial(eopc_lower_bound_w, cluster, tasks, arrivals.task_row, power=POWER, method=method,
                    max_rounds=FRONTIER_ROUNDS, served_gpu_milli=gpu_milli)
    return {"seed": RECORDED[0], "share": share, "method": method, "gpu_bound_w": round(bound(), 2),
            "gpu_cpu_bound_w": round(bound(served_cpu_milli=cpu_milli), 2)}


# --- frames


Row = Callable[[Any], dict[str, Any]]
FRAMES: dict[str, tuple[Row, list[Any], dict[str, Any]]] = {
    "bounds_policies": (policy_row, [(policy, seed, x, method) for seed in FEW for x in X for method in METHODS
                                     for policy in POLICIES], {"policies": POLICIES, "seeds": FEW, "x": X}),
    "bounds_frontier": (frontier_row, [(share, method) for share in SHARES for method in METHODS],
                        {"shares": SHARES, "seeds": RECORDED[:1], "x": 1.0, "rounds": FRONTIER_ROUNDS}),
    "bounds": (bound_row, [(trace, seed, x, method) for trace in TRACES for method in METHODS
                           for seed in SEEDS[method, trace == "default"] for x in X],
               {"traces": TRACES, "x": X, "seeds": {f"{method}, {'default' if is_default else 'others'}": seeds
                                                    for (method, is_default), seeds in SEEDS.items()}}),
}


def compute(processes: int) -> Iterator[Path]:
    """Write the frames that are not there yet, or not from these inputs."""
    for name, (row_of, jobs, parameters) in FRAMES.items():
        depends_on = {"methods": METHODS, "rounds": ROUNDS, "power": POWER, "arithmetic": "exact",
                      "inputs": {trace: inputs(trace)[3] for trace in parameters.get("traces", ("default",))},
                      **parameters}
        path = RESULTS / f"{name}.csv"
        if not is_finished(path, depends_on):
            begin = time.perf_counter()
            with ProcessPoolExecutor(processes) as pool:
                frame = pd.DataFrame(list(pool.map(row_of, jobs)))
            write_frame(frame, path, depends_on, wall_time_s=time.perf_counter() - begin)
            yield path


if __name__ == "__main__":
    for written in compute(int(sys.argv[1]) if sys.argv[1:] else 1):
        print(written.relative_to(ROOT), flush=True)
