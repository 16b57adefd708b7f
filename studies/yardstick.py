"""What placements do to waiting and energy in months of six real clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sched_lab.cluster import Cluster
from sched_lab.fleet.read.tables import Ledger
from sched_lab.fleet.replay.case import parts_of_jobs
from sched_lab.fleet.replay.compare import wait_difference, who_waits
from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.meter import measure
from sched_lab.fleet.replay.outages import Outages
from sched_lab.fleet.replay.problem import Problem, Schedule, with_tasks
from sched_lab.fleet.replay.slurm import SlurmQueue
from sched_lab.fleet.replay.waits import waits_of
from sched_lab.lab.arrays import Floats, Integers, Texts, Truths
from sched_lab.lab.frames import sha256
from sched_lab.lab.sweeps import grid
from sched_lab.online.model import PowerSettings
from sched_lab.traces import Tasks

from .months import OPENB, busy_month, openb
from .reproduction import Experiment, Workplace

__all__ = ['YARDSTICKS', 'NEW', 'PLACEMENTS']

DAY_S = 86_400.0
MONTH_S = 30 * DAY_S
WARM_UP_S = 5 * DAY_S
ASLEEP_AFTER_S = 900.0
GPUS = 8  # of each node, and most parts of a job that have so many
CPU_MILLI, MEMORY_MIB = 10_000, 65_536  # for each GPU of a job; nodes have a fifth more
LOOKED_AT, JUDGED = 0, 1  # months: what a policy may be made on, and what it is judged by
ITP = ("02", "04", "06", "07")
TRACES = {  # file below the data folder, and the GPU model whose watts are taken
    "openb": (OPENB[1], ""), "philly": ("philly/philly.csv", "P100"),
    **{f"itp-{number}": (f"itp/cluster{number}.csv", "V100M32") for number in ITP}}
WHOLE = [trace for trace in TRACES if trace != "openb"]  # those of whole GPUs, on equal nodes
LOADS = (0.5, 0.7, 0.9)
COPIES = dict(zip(LOADS, (3, 4, 5), strict=True))  # of openb's month over itself, for such loads
EVERY_NODE = 4  # of those nodes
RULES = ("none", "first-fit", "easy")
PLACEMENTS = ("fgd", "bestfit", "dotprod", "gpu-packing", "pwr-fgd:0.1", "joint", "kubernetes")
NEW = "stay"
MULTIFACTOR = SlurmQueue(age_weight=1000, size_weight=1000, has_weights=True)  # age and size


def jobs_of(path: Path) -> tuple[Floats, Floats, Integers]:
    """When the jobs of a trace came, how long they ran, and how many GPUs they had."""
    table = pd.read_csv(path)
    if "timestamp" in table:  # Philly, flat
        since = pd.to_datetime(table["timestamp"]) - pd.Timestamp("2017-10-01")
        table["submission_time"] = since.dt.total_seconds()
    num_gpus = table["num_gpus" if "num_gpus" in table else "num_gpu"]
    return (np.array(table["submission_time"], float), np.array(table["duration"], float),
            np.array(num_gpus, np.int64))


def parts_of(submit_s: Floats, duration_s: Floats, num_gpus: Integers) -> pd.DataFrame:
    """Jobs in parts of a node at most: job, submit_s, duration_s, num_gpus."""
    num_parts = -(-num_gpus // GPUS)
    job = np.repeat(np.arange(len(submit_s)), num_parts)
    return pd.DataFrame({
        "job": job, "submit_s": submit_s[job], "duration_s": np.maximum(duration_s[job], 1.0),
        "num_gpus": (-(-num_gpus // num_parts))[job]})


def texts(text: str, size: int) -> Texts:
    """The same text so often."""
    return np.full(size, text, dtype=object)


def problem_of_parts(parts: pd.DataFrame, num_nodes: int, model: str) -> Problem:
    """Jobs in parts on equal nodes of eight GPUs.

    Parameters
    ----------
    parts : as `parts_of` makes them
    num_nodes, model : the nodes, and their GPUs
    """
    size = len(parts)
    of_part = parts["num_gpus"].to_numpy(np.int64)
    cluster = Cluster(np.array([f"node-{node}" for node in range(num_nodes)], dtype=object),
                      np.full(num_nodes, 12 * GPUS * CPU_MILLI // 10),
                      np.full(num_nodes, 12 * GPUS * MEMORY_MIB // 10), np.full(num_nodes, GPUS),
                      texts(model, num_nodes), texts("", num_nodes))
    tasks = Tasks(np.array([f"job-{row}" for row in range(size)], dtype=object),
                  CPU_MILLI * of_part, MEMORY_MIB * of_part, of_part, np.full(size, 1000),
                  texts("", size), texts("", size))
    return Problem(cluster, tasks, texts("", num_nodes), parts["submit_s"].to_numpy(float),
                   parts["duration_s"].to_numpy(float), np.full(size, np.nan), np.full(size, -1),
                   np.zeros(size, np.int64), texts("", size), texts("", size),
                   np.zeros(size, np.int64), Ledger().frame(), None,
                   job=parts["job"].to_numpy(np.int64))


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
    submit_s = submit_s - month * MONTH_S
    rows = np.flatnonzero((submit_s >= 0) & (submit_s < MONTH_S))
    rows = rows[np.argsort(submit_s[rows], kind="stable")]
    asked_s = (num_gpus * np.minimum(duration_s, MONTH_S - submit_s))[rows].sum()
    num_nodes = max(int(np.ceil(asked_s / (GPUS * MONTH_S * load))),
                    int(-(-num_gpus[rows].max() // GPUS)))
    return problem_of_parts(parts_of(submit_s[rows], duration_s[rows], num_gpus[rows]), num_nodes,
                            model)


def problem_of_cell(files: tuple[str, ...], trace: str, month: int, load: float) -> Problem:
    """A month of a trace, or of openb laid over itself with turns of its own."""
    if trace != "openb":
        return month_of(*files, TRACES[trace][1], month, load)
    busy = busy_month(openb(*files), COPIES[load], month)
    kept = np.arange(0, len(busy.cluster), EVERY_NODE)
    return replace(busy, cluster=busy.cluster.take(kept), group=busy.group[kept])


def who_counts(problem: Problem) -> Truths:
    """Jobs that came after the warm-up, each by its first part."""
    first, _ = parts_of_jobs(problem.job, len(problem.tasks))
    counts: Truths = (problem.submit_s >= WARM_UP_S) & (first == np.arange(len(first)))
    return counts


def measured(problem: Problem, schedule: Schedule, until_s: float) -> dict[str, float]:
    """Waits of those that count, and energy until all are done if empty nodes sleep."""
    counts = who_counts(problem)
    wait_s, run_s = (schedule.start_s - problem.submit_s)[counts], problem.duration_s[counts]
    edges_s = np.array([0, MONTH_S, until_s])
    curve = measure(problem, schedule, PowerSettings(), edges_s, ASLEEP_AFTER_S)
    kwh = curve["asleep_w"].to_numpy(float) @ np.diff(edges_s) / 3.6e6
    held_s = np.clip(np.minimum(schedule.end_s, MONTH_S) - schedule.start_s, 0, None)
    return {"mean_wait_s": float(np.nanmean(wait_s)),
            "p99_wait_s": float(np.nanquantile(wait_s, 0.99)),
            "mean_slowdown": float(np.nanmean((wait_s + run_s).clip(600) / run_s.clip(600))),
            "asleep_kwh": float(kwh),
            "served_gpu_h": float(np.nansum(held_s * problem.tasks.gpu_demand_milli) / 3.6e6),
            "never_started": float(np.isnan(schedule.start_s).sum())}


def compared(problem: Problem, schedules: Mapping[str, Schedule]) -> pd.DataFrame:
    """Each schedule, with its difference to the first one in waiting and the interval of that."""
    until_s = max(MONTH_S + 1, *(float(np.nanmax(one.end_s)) for one in schedules.values()))
    counts = who_counts(problem)
    nobody = np.zeros(len(problem.tasks), bool)
    waits = {name: waits_of(problem, one, nobody) for name, one in schedules.items()}
    first = next(iter(waits.values()))
    rows = []
    for name, schedule in schedules.items():
        apart = np.where(counts, waits[name].wait_s - first.wait_s, np.nan)
        span = (WARM_UP_S, until_s)
        busy = who_waits(problem.submit_s, [waits[name], first], span)
        found = wait_difference(apart, problem.submit_s, busy, span)
        rows.append({"policy": name, "nodes": len(problem.cluster), "tasks": len(problem.tasks),
                     **measured(problem, schedule, until_s), "difference_s": found.difference,
                     "low_s": found.low, "high_s": found.high})
    return pd.DataFrame(rows)


def pool_of(problem: Problem) -> Problem:
    """The same jobs on one node that has all GPUs of the cluster, as vCPU: a pool without borders.

    Parameters
    ----------
    problem : of whole GPUs
    """
    first, _ = parts_of_jobs(problem.job, len(problem.tasks))
    job = np.flatnonzero(first == np.arange(len(first)))
    asks_milli = np.bincount(first, problem.tasks.gpu_demand_milli)[job].astype(np.int64)
    of_jobs = with_tasks(problem, job)
    none = np.zeros(len(job), np.int64)
    tasks = replace(of_jobs.tasks, cpu_milli=asks_milli, memory_mib=none, num_gpus=none,
                    gpu_milli=none)
    cluster = Cluster(texts("pool", 1), np.array([problem.cluster.gpu_capacity_milli]),
                      np.zeros(1, np.int64), np.zeros(1, np.int64), texts("", 1), texts("", 1))
    return replace(of_jobs, cluster=cluster, group=texts("", 1), tasks=tasks, job=None)


def pool_cell(files: Mapping[str, tuple[str, ...]], trace: str, load: float,
              rule: str) -> pd.DataFrame:
    """Mean waits in a pool and on nodes: of all, of jobs for whole nodes, and of those for less."""
    problem = problem_of_cell(files[trace], trace, JUDGED, load)
    first, _ = parts_of_jobs(problem.job, len(problem.tasks))
    counts = who_counts(problem)
    is_whole = problem.tasks.num_gpus >= GPUS
    pool = pool_of(problem)
    wait_s = np.full(len(first), np.nan)
    is_first = first == np.arange(len(first))
    wait_s[is_first] = replay(pool, "bestfit", backfill=rule).start_s - pool.submit_s
    waits = {"pool": wait_s} | {
        name: replay(problem, name, backfill=rule).start_s - problem.submit_s
        for name in ("joint", NEW)}
    return pd.DataFrame([
        {"policy": name, "mean_wait_s": np.nanmean(wait_s[counts]),
         "whole_wait_s": np.nanmean(wait_s[counts & is_whole]),
         "less_wait_s": np.nanmean(wait_s[counts & ~is_whole])} for name, wait_s in waits.items()])


def cell(files: Mapping[str, tuple[str, ...]], trace: str, month: int, load: float,
         rule: str) -> pd.DataFrame:
    """Every placement in one month."""
    problem = problem_of_cell(files[trace], trace, month, load)
    return compared(problem, {name: replay(problem, name, backfill=rule, slurm=MULTIFACTOR)
                              for name in (*PLACEMENTS, NEW)})


def history_s(problem: Problem, num_last: int = 20) -> Floats:
    """Median run time of the last jobs of the same size that are over, as if each began at once.

    Parameters
    ----------
    problem, num_last : the jobs, and so many of them
    """
    expects_s = np.full(len(problem.tasks), np.inf)
    end_s = problem.submit_s + problem.duration_s
    for size in np.unique(problem.tasks.gpu_demand_milli):
        rows = np.flatnonzero(problem.tasks.gpu_demand_milli == size)
        over = rows[np.argsort(end_s[rows], kind="stable")]
        num_over = np.searchsorted(end_s[over], problem.submit_s[rows], side="right")
        for row, num in zip(rows, num_over, strict=True):
            if num:
                expects_s[row] = np.median(problem.duration_s[over[max(0, num - num_last):num]])
    return expects_s


def wrong_s(problem: Problem, factor: float) -> Floats:
    """Run times, each times or over a factor or anything between, at random."""
    draw = np.random.default_rng(0).uniform(-1, 1, len(problem.tasks))
    return problem.duration_s * factor**draw


KNOWN = ("run times", "off by 3", "off by 10", "last jobs", "nothing")


def doubtful_cell(files: Mapping[str, tuple[str, ...]], trace: str, load: float,
                  rule: str) -> pd.DataFrame:
    """FGD, BestFit, and the new policy with ever less knowledge of run times, in a judged month."""
    problem = problem_of_cell(files[trace], trace, JUDGED, load)
    expects_s = {"run times": problem.duration_s, "off by 3": wrong_s(problem, 3),
                 "off by 10": wrong_s(problem, 10), "last jobs": history_s(problem),
                 "nothing": np.full(len(problem.tasks), np.inf)}
    schedules = {name: replay(problem, name, backfill=rule) for name in ("fgd", "bestfit")}
    return compared(problem, schedules | {
        name: replay(replace(problem, expects_s=expects_s[name]), NEW, backfill=rule)
        for name in KNOWN})


FAILING = ("openb", "philly", "itp-07")
SHARES = (0.05, 0.1)
SEEDS = (0, 1, 2)


def with_failures(problem: Problem, share: float, seed: int) -> Problem:
    """The same month, in which some nodes are down for a day each; what they stop begins anew.

    Parameters
    ----------
    problem : a month
    share : of the nodes; with the same seed a larger share has the failures of a smaller one
    seed : which nodes, and when
    """
    rng = np.random.default_rng(seed)
    num_nodes = len(problem.cluster)
    fail = slice(round(share * num_nodes))
    node = rng.permutation(num_nodes)[fail]
    from_s = rng.uniform(0, MONTH_S - DAY_S, num_nodes)[fail]
    yes = np.ones(len(node), bool)
    return replace(problem, outages=Outages(node, from_s, from_s + DAY_S, yes, yes))


def failing_cell(files: Mapping[str, tuple[str, ...]], trace: str, rule: str, share: float,
                 seed: int) -> pd.DataFrame:
    """FGD, BestFit and the new policy in a judged month in which nodes fail."""
    problem = with_failures(problem_of_cell(files[trace], trace, JUDGED, LOADS[-1]), share, seed)
    schedules = {name: replay(problem, name, backfill=rule) for name in ("fgd", "bestfit", NEW)}
    lost = [one.lost for one in schedules.values()]
    lost_s = [(run.end_s - run.start_s) @ problem.tasks.gpu_demand_milli[run.task] for run in lost]
    return compared(problem, schedules).assign(lost_gpu_h=np.array(lost_s) / 3.6e6)


NEEDS = tuple(dict.fromkeys([*OPENB, *(file for file, _ in TRACES.values())]))


def experiment(name: str, sentence: str, minutes: float, parameters: Mapping[str, Any],
               function: Callable[..., pd.DataFrame], **axes: Iterable[Any]) -> Experiment:
    """One frame, of a function of the files of all traces in all cells.

    Parameters
    ----------
    name, sentence, minutes, parameters : as in `Experiment`; the frame has the name with _ for -
    function : called as `function(files, **cell)`
    axes : values of each parameter of a cell
    """
    frame = f"fleet/{name.replace('-', '_')}.csv"

    def compute(place: Workplace) -> Mapping[str, pd.DataFrame]:
        """All cells."""
        paths = {trace: str(place.data(file)) for trace, (file, _) in TRACES.items()}
        files = {trace: (str(place.data(OPENB[0])), path) if trace == "openb" else (path,)
                 for trace, path in paths.items()}
        sums = {trace: sha256(Path(path)) for trace, path in paths.items()}
        cells = grid(**{axis: [*values] for axis, values in axes.items()})
        return {frame: place.sweep(partial(function, files), cells, name, depends_on=sums).round(6)}

    return Experiment(name, sentence, (frame,), minutes, parameters, compute, needs=NEEDS)


YARDSTICKS: dict[str, Experiment] = {one.name: one for one in (
    experiment("yardstick", "what placements do to waiting and energy in months of six clusters",
               25.0, {"traces": list(TRACES), "loads": LOADS, "rules": RULES,
                      "policies": [*PLACEMENTS, NEW]},
               cell, trace=TRACES, month=[LOOKED_AT, JUDGED], load=LOADS, rule=RULES),
    experiment("yardstick-slurm", "judged months under the queue of Slurm", 8.0,
               {"traces": list(TRACES), "loads": LOADS, "policies": [*PLACEMENTS, NEW],
                "queue": {name: value for name, value in MULTIFACTOR._asdict().items()
                          if value != SlurmQueue._field_defaults[name]}},
               cell, trace=TRACES, month=[JUDGED], load=LOADS, rule=["slurm"]),
    experiment("yardstick-doubtful", "the same where nobody knows run times well", 8.0,
               {"traces": list(TRACES), "loads": LOADS[1:], "rules": RULES[:2], "known": KNOWN},
               doubtful_cell, trace=TRACES, load=LOADS[1:], rule=RULES[:2]),
    experiment("yardstick-pool", "the same in one pool of GPUs: whom borders of nodes let wait",
               5.0, {"traces": WHOLE, "loads": LOADS, "rules": RULES,
                     "policies": ["pool", "joint", NEW]},
               pool_cell, trace=WHOLE, load=LOADS, rule=RULES),
    experiment("yardstick-failing", "the same at the highest load, where nodes fail for a day",
               3.0, {"traces": FAILING, "rules": RULES[:1], "shares": SHARES, "seeds": SEEDS,
                     "policies": ["fgd", "bestfit", NEW]},
               failing_cell, trace=FAILING, rule=RULES[:1], share=SHARES, seed=SEEDS))}
