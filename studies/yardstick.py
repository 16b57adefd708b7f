"""What placements do to waiting and energy in months of real clusters, under three rules of the queue: fixed before any policy was made for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from sched_lab.cluster import Cluster
from sched_lab.fleet.read.tables import Ledger
from sched_lab.fleet.replay.compare import wait_difference, waits_of, who_waits
from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.meter import measure
from sched_lab.fleet.replay.problem import Problem, Schedule
from sched_lab.lab.arrays import Floats, Integers
from sched_lab.lab.frames import sha256
from sched_lab.lab.sweeps import grid
from sched_lab.online.model import PowerSettings
from sched_lab.traces import Tasks

from .fleet import OPENB, busy_month, openb
from .reproduction import Workplace

__all__ = ['TRACES', 'yardstick']

DAY_S = 86_400.0
MONTH_S = 30 * DAY_S
WARM_UP_S = 5 * DAY_S
ASLEEP_AFTER_S = 900.0
GPUS = 8  # of each node, and most parts of a job that have so many
CPU_MILLI, MEMORY_MIB = 10_000, 65_536  # for each GPU; nodes have a fifth more
LOOKED_AT, JUDGED = 0, 1  # months: what a policy may be made on, and what it is judged by
ITP = ("02", "04", "06", "07")
TRACES = {  # file below the data folder, and the GPU model whose watts are taken
    "openb": (OPENB[1], ""), "philly": ("philly/philly.csv", "P100"),
    **{f"itp-{number}": (f"itp/cluster{number}.csv", "V100M32") for number in ITP}}
LOADS = (0.5, 0.7, 0.9)
RULES = ("none", "first-fit", "easy")
PLACEMENTS = ("fgd", "bestfit", "dotprod", "gpu-packing", "pwr-fgd:0.1", "joint", "kubernetes")


def jobs_of(path: Path) -> tuple[Floats, Floats, Integers]:
    """When the jobs of a trace came, how long they ran, and how many GPUs they had."""
    table = pd.read_csv(path)
    if "timestamp" in table:  # Philly, flat
        submit_s = (pd.to_datetime(table["timestamp"]) - pd.Timestamp("2017-10-01")).dt.total_seconds()
        return submit_s.to_numpy(), table["duration"].to_numpy(float), table["num_gpus"].to_numpy(np.int64)
    return (table["submission_time"].to_numpy(float), table["duration"].to_numpy(float),
            table["num_gpu"].to_numpy(np.int64))


def parts_of(submit_s: Floats, duration_s: Floats, num_gpus: Integers) -> pd.DataFrame:
    """Jobs in parts of a node at most: job, submit_s, duration_s, num_gpus."""
    num_parts = -(-num_gpus // GPUS)
    job = np.repeat(np.arange(len(submit_s)), num_parts)
    return pd.DataFrame({"job": job, "submit_s": submit_s[job], "duration_s": np.maximum(duration_s[job], 1.0),
                         "num_gpus": -(-num_gpus // num_parts)[job]})


@cache
def month_of(path: str, model: str, month: int, load: float) -> Problem:
    """A month of a trace of whole GPUs, on as many nodes of eight as its demand over a load needs.

    Parameters
    ----------
    path, model : the trace, and the GPU model of the nodes
    month : number of the 30 days
    load : GPU time asked for within the month, over what the nodes have
    """
    submit_s, duration_s, num_gpus = jobs_of(Path(path))
    rows = np.flatnonzero((submit_s >= month * MONTH_S) & (submit_s < (month + 1) * MONTH_S))
    rows = rows[np.argsort(submit_s[rows], kind="stable")]
    submit_s = submit_s - month * MONTH_S
    asked_s = (num_gpus * np.minimum(duration_s, MONTH_S - submit_s))[rows].sum()
    num_nodes = max(int(np.ceil(asked_s / (GPUS * MONTH_S * load))), int(-(-num_gpus[rows].max() // GPUS)))
    parts = parts_of(submit_s[rows], duration_s[rows], num_gpus[rows])
    size = len(parts)
    of_part = parts["num_gpus"].to_numpy(np.int64)
    any_model = np.full(size, "", dtype=object)
    nodes = np.full(num_nodes, 12 * GPUS * CPU_MILLI // 10)
    cluster = Cluster(np.array([f"node-{node}" for node in range(num_nodes)], dtype=object), nodes,
                      np.full(num_nodes, 12 * GPUS * MEMORY_MIB // 10), np.full(num_nodes, GPUS),
                      np.full(num_nodes, model, dtype=object), np.full(num_nodes, "", dtype=object))
    tasks = Tasks(np.array([f"job-{row}" for row in range(size)], dtype=object), CPU_MILLI * of_part,
                  MEMORY_MIB * of_part, of_part, np.full(size, 1000), any_model, any_model)
    return Problem(cluster, tasks, any_model[:num_nodes], parts["submit_s"].to_numpy(float),
                   parts["duration_s"].to_numpy(float), np.full(size, np.nan), np.full(size, -1), np.zeros(size, np.int64),
                   any_model, any_model, np.zeros(size, np.int64), Ledger().frame(), None, job=parts["job"].to_numpy())


COPIES = {0.5: 3, 0.7: 4, 0.9: 5}  # of openb's month over itself, for about these loads of every 32nd node


def problem_of_cell(files: tuple[str, ...], trace: str, month: int, load: float) -> Problem:
    """The jobs of a cell: a month of a trace, or of openb laid over itself with turns of its own."""
    if trace == "openb":
        busy = busy_month(openb(*files), COPIES[load], month)
        kept = np.arange(0, len(busy.cluster), 4)
        return replace(busy, cluster=busy.cluster.take(kept), group=busy.group[kept])
    return month_of(*files, TRACES[trace][1], month, load)


def measured(problem: Problem, schedule: Schedule, until_s: float) -> dict[str, float]:
    """Waits of those that came after the warm-up, seconds, and energy until all are done, nodes asleep when empty."""
    counts = problem.submit_s >= WARM_UP_S
    wait_s, run_s = (schedule.start_s - problem.submit_s)[counts], problem.duration_s[counts]
    curve = measure(problem, schedule, PowerSettings(), np.array([0, MONTH_S, until_s]), ASLEEP_AFTER_S)
    hours = np.diff([0, MONTH_S, until_s]) / 3600
    held_s = np.clip(np.minimum(schedule.end_s, MONTH_S) - schedule.start_s, 0, None)
    return {"mean_wait_s": float(np.nanmean(wait_s)), "p99_wait_s": float(np.nanquantile(wait_s, 0.99)),
            "mean_slowdown": float(np.nanmean(np.maximum(1, (wait_s + run_s) / np.maximum(run_s, 600)))),
            "asleep_kwh": float(curve["asleep_w"] @ hours / 1000),
            "served_gpu_h": float(np.nansum(held_s * problem.tasks.gpu_demand_milli) / 3.6e6),
            "never_started": float(np.isnan(schedule.start_s).sum())}


def cell(files: Mapping[str, tuple[str, ...]], placements: tuple[str, ...], trace: str, month: int, load: float,
         rule: str) -> pd.DataFrame:
    """Every placement in one month, with its difference to the first of them in waiting and the interval of that."""
    problem = problem_of_cell(files[trace], trace, month, load)
    schedules = {name: replay(problem, name, backfill=rule) for name in placements}
    until_s = max(MONTH_S + 1, *(float(np.nanmax(each.end_s)) for each in schedules.values()))
    counts = problem.submit_s >= WARM_UP_S
    span, nobody = (WARM_UP_S, until_s), np.zeros(len(problem.tasks), bool)
    waits = {name: waits_of(problem, each, nobody) for name, each in schedules.items()}
    rows = []
    for name, schedule in schedules.items():
        apart = np.where(counts, waits[name].wait_s - waits[placements[0]].wait_s, np.nan)
        busy = who_waits(problem.submit_s, [waits[name], waits[placements[0]]], span)
        found = wait_difference(apart, problem.submit_s, busy, span)
        rows.append({"policy": name, "nodes": len(problem.cluster), "tasks": len(problem.tasks),
                     **measured(problem, schedule, until_s), "difference_s": found.difference,
                     "low_s": found.low, "high_s": found.high})
    return pd.DataFrame(rows)


def frame_of(place: Workplace, name: str, placements: tuple[str, ...], months: tuple[int, ...]) -> pd.DataFrame:
    """All traces, loads and rules.

    Parameters
    ----------
    name : of the sweep
    placements, months : policies, the first of which the others are compared with; and which months
    """
    nodes = str(place.data(OPENB[0]))
    paths = {trace: place.data(file) for trace, (file, _) in TRACES.items()}
    files = {trace: (nodes, str(path)) if trace == "openb" else (str(path),) for trace, path in paths.items()}
    cells = grid(trace=list(TRACES), month=list(months), load=list(LOADS), rule=list(RULES))
    return place.sweep(partial(cell, files, placements), cells, name,
                       depends_on={trace: sha256(path) for trace, path in paths.items()}).round(6)


def yardstick(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """The placements that there were before, in both months."""
    return {"fleet/yardstick.csv": frame_of(place, "yardstick", PLACEMENTS, (LOOKED_AT, JUDGED))}
