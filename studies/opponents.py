"""Muri and Synergy beside their rivals and beside our policies: every schedule is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd

from sched_lab.fleet.replay.case import parts_of_jobs
from sched_lab.fleet.replay.events import replay
from sched_lab.lab.arrays import Floats
from sched_lab.lab.frames import sha256
from sched_lab.lab.sweeps import grid

from .muri import GPUS, MOST, NODES, SLOWER, Jobs, Run, read_jobs, simulate
from .reproduction import Experiment, Workplace
from .synergy import (
    ALLOCATIONS,
    CPUS,
    MEASURED,
    MEMORY_GB,
    SERVERS,
    SHARE,
    best_of,
    draw_jobs,
    models_in_turn,
    simulate_rounds,
    speed_of,
)
from .yardstick import (
    JUDGED,
    LOADS,
    WHOLE,
    experiment,
    parts_of,
    problem_of_cell,
    problem_of_parts,
    who_counts,
)

__all__ = ['OPPONENTS', 'faults']

TRACES = {"testbed": "muri/cluster_trace.csv", "1": "muri/trace1.csv", "3": "muri/trace3.csv",
          "3'": "muri/trace3_pr.csv"}  # with ': all come at once
PROGRAMS = {"Muri-S": ("shortest service", True), "SRSF": ("shortest service", False),
            "SRTF": ("shortest time", False), "Muri-L": ("least attained", True),
            "Tiresias": ("least attained", False), "first come": ("first come", False)}
IN_PARTS = ("testbed", "3")  # of these also
PARTS = {"groups": ("first come", True), "one loads": ("shortest service", True)}
RULES = ("none", "first-fit", "easy")
PLACEMENTS = ("fgd", "stay")
FRAME = "fleet/muri.csv"


# --- the validator


def unrolled_period_s(stages_s: Floats, rounds: int = 30) -> float:
    """Shortest period of a group, from the times at which slots end, each as early as it can.

    Parameters
    ----------
    stages_s : (jobs, 3) seconds to load, to compute, to communicate
    rounds : so often each job makes an iteration; the second half counts
    """
    best = np.inf
    for places in permutations(range(MOST), len(stages_s)):
        end_s = [0.0, 0.0]  # of the slots before the first
        for slot in range(MOST * rounds):
            ends = [end_s[-1]]
            for place, (load_s, compute_s, talk_s) in zip(places, stages_s, strict=True):
                step = (slot - place) % MOST
                ends += [end_s[-2] + load_s if step == 1 else 0,
                         end_s[-1] + (compute_s if step == 2 else talk_s if step == 3 else 0)]
            end_s.append(max(ends))
        best = min(best, (end_s[-1] - end_s[-1 - MOST * rounds // 2]) / (rounds // 2))
    return best


def faults(jobs: Jobs, runs: list[Run], num_nodes: int = NODES) -> list[str]:
    """What is wrong with a schedule of shared GPUs; nothing if it can be.

    A group is of one size and of four jobs at most, and no faster than its stages allow. A job runs
    in one group at a time, never before it came, and makes all its iterations. At every moment the
    groups fit on the nodes: parts of nodes on one node, larger ones on whole nodes.
    """
    @cache
    def fastest_s(kinds: tuple[int, ...]) -> float:
        """Of an iteration of a group, with what sharing costs."""
        if len(kinds) == 1:
            return float(jobs.alone_s[kinds[0]])
        return unrolled_period_s(jobs.stages_s[list(kinds)]) * SLOWER[len(kinds) - 1]

    found = []
    made, until_s = np.zeros(len(jobs.kind)), jobs.submit_s.copy()
    for run in sorted(runs):
        members = list(run.group)
        if len({*members}) != len(members) or len(members) > MOST:
            found.append(f"{members} are too many or the same")
        if len({*jobs.num_gpus[members].tolist()}) > 1:
            found.append(f"{members} are of several sizes")
        if run.period_s < fastest_s(tuple(sorted(jobs.kind[members].tolist()))) * (1 - 1e-6):
            found.append(f"{members} are faster than they can be")
        if run.pause_s < jobs.restart_s[jobs.kind[members]].sum() - 1e-9:
            found.append(f"{members} start at no cost")
        if (run.begin_s < until_s[members] - 1e-6).any():
            found.append(f"{members} run before they came, or twice at once")
        until_s[members] = run.end_s
        made[members] += max(0.0, run.end_s - run.begin_s - run.pause_s) / run.period_s
    lacks = np.flatnonzero(np.abs(made - jobs.iterations) > 1e-6 * jobs.iterations + 1e-3)
    found += [f"{job} made {made[job]:g} of {jobs.iterations[job]:g} iterations" for job in lacks]
    return found + crowded(jobs, runs, num_nodes)


def crowded(jobs: Jobs, runs: list[Run], num_nodes: int) -> list[str]:
    """Moments at which groups do not fit on the nodes, placed the largest first."""
    changes = sorted([(run.begin_s, 1, int(jobs.num_gpus[run.group[0]])) for run in runs]
                     + [(run.end_s, -1, int(jobs.num_gpus[run.group[0]])) for run in runs])
    sizes: list[int] = []
    found = []
    for at, (now_s, sign, size) in enumerate(changes):
        if sign < 0:
            sizes.remove(size)
        else:
            sizes.append(size)
        if at + 1 < len(changes) and changes[at + 1][0] <= now_s:
            continue
        free = [GPUS] * num_nodes
        for one in sorted(sizes, reverse=True):
            part = min(one, GPUS)
            for _ in range(-(-one // GPUS)):
                fits = [node for node, left in enumerate(free) if left >= part]
                if not fits:
                    found.append(f"at {now_s:g} s {one} GPUs have no room")
                    break
                free[min(fits, key=free.__getitem__)] -= part
    return found


# --- the comparison


def summary_of(jobs: Jobs, end_s: Floats, together: float) -> dict[str, float]:
    """Mean and 99th percentile of completion times, makespan, and mean jobs on a GPU in use."""
    took_s = np.sort(end_s - jobs.submit_s)
    return {"mean_jct_s": float(took_s.mean()), "makespan_s": float(end_s.max()),
            "p99_jct_s": float(took_s[int(0.99 * len(took_s))]), "jobs_together": together}


def shared_cell(files: Mapping[str, str], trace: str, program: str) -> dict[str, float]:
    """A program of the paper on one of its traces."""
    jobs = read_jobs(Path(files[trace]))
    runs = simulate(jobs, *(PROGRAMS | PARTS)[program], one_loads=program == "one loads")
    if wrong := faults(jobs, runs):
        raise AssertionError(f"{program} on {trace}: {wrong[:3]}")
    end_s = np.zeros(len(jobs.kind))
    for run in runs:
        end_s[list(run.group)] = np.maximum(end_s[list(run.group)], run.end_s)
    held_s = np.array([(run.end_s - run.begin_s) * jobs.num_gpus[run.group[0]] for run in runs])
    together = np.array([len(run.group) for run in runs]) @ held_s / held_s.sum()
    return summary_of(jobs, end_s, float(together))


def own_cell(files: Mapping[str, str], trace: str, rule: str, placement: str,
             by: str) -> dict[str, float]:
    """Our replay of the same jobs, which never stops one: as they come, or the shortest first."""
    jobs = read_jobs(Path(files[trace]))
    duration_s = jobs.iterations * jobs.alone_s[jobs.kind] + jobs.restart_s[jobs.kind]
    parts = parts_of(jobs.submit_s, duration_s, jobs.num_gpus)
    problem = problem_of_parts(parts, NODES, "V100M32")
    if by == "shortest":
        service = duration_s * jobs.num_gpus
        turn = np.empty(len(service), np.int64)
        turn[np.argsort(-service, kind="stable")] = np.arange(len(service))
        problem = replace(problem, priority=turn[parts["job"].to_numpy()])
    first, _ = parts_of_jobs(problem.job, len(problem.tasks))
    end_s = replay(problem, placement, backfill=rule).end_s[first == np.arange(len(first))]
    return summary_of(jobs, end_s, 1.0)


def compared(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """All programs on all traces."""
    files = {trace: str(place.data(name)) for trace, name in TRACES.items()}
    sums = {trace: sha256(Path(path)) for trace, path in files.items()}
    own = place.sweep(partial(own_cell, files),
                      grid(trace=list(TRACES), rule=list(RULES), placement=list(PLACEMENTS),
                           by=["arrival", "shortest"]), "muri-own", depends_on=sums)
    cells = [*grid(trace=list(TRACES), program=list(PROGRAMS)),
             *grid(trace=list(IN_PARTS), program=list(PARTS))]
    shared = place.sweep(partial(shared_cell, files), cells, "muri-shared", depends_on=sums)
    own["program"] = own["rule"] + " " + own["placement"] + " " + own["by"]
    return {FRAME: pd.concat([shared, own])[shared.columns].round(3).reset_index(drop=True)}


# --- Synergy

NUM_JOBS = 12_000  # that come; of the first five thousand the last thousand count
RUNS = {  # axes of cells; beyond 8 jobs an hour FTF lets thousands wait
    "theirs": {"order": ["FIFO", "SRTF", "LAS"], "per_hour": [7.0, 8.0, 9.0], "seed": [42]},
    "FTF": {"order": ["FTF"], "per_hour": [7.0, 8.0], "seed": [42]},
    "other draws": {"order": ["FIFO"], "per_hour": [9.0], "seed": [0, 1]}}


def rounds_cell(order: str, per_hour: float, seed: int, allocation: str) -> dict[str, float]:
    """Synergy, or what it is compared with, on the workload of the authors, jobs of one GPU."""
    jobs = draw_jobs(per_hour, NUM_JOBS, seed)
    end_s, used = simulate_rounds(jobs, order, allocation)
    took_h = ((end_s - jobs.submit_s) / 3600)[MEASURED]
    first = slice(0, MEASURED.stop)
    return {"mean_jct_h": float(took_h.mean()), "p99_jct_h": float(np.quantile(took_h, 0.99)),
            "p999_jct_h": float(np.quantile(took_h, 0.999)), "used_gpus": used,
            "offered_load": float((jobs.work_s * jobs.num_gpus)[first].sum()
                                  / (SERVERS * GPUS * jobs.submit_s[first][-1]))}


def allocated(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """All orders and allocations of Synergy."""
    cells = [one for axes in RUNS.values() for one in grid(**axes, allocation=[*ALLOCATIONS])]
    return {"fleet/synergy.csv": place.sweep(rounds_cell, cells, "synergy").round(3)}


REQUESTS = ("share", "best", "no border")


def month_cell(files: Mapping[str, tuple[str, ...]], trace: str, policy: str) -> pd.DataFrame:
    """A judged month whose jobs are of Synergy's models, and ask for their share or their best.

    What was recorded is taken for the run time with the share. `no border`: as fast as with the
    best, but asking for the share, as if CPU and memory of all nodes were one.
    """
    month = problem_of_cell(files[trace], trace, JUDGED, LOADS[-1])
    first, _ = parts_of_jobs(month.job, len(month.tasks))
    gpus = month.tasks.num_gpus
    of_job = np.bincount(first, gpus)[first].astype(int)
    model = models_in_turn(len(first))[first]
    best = np.array([best_of(*one) for one in zip(model.tolist(), of_job.tolist(), strict=True)])
    speed = np.array([speed_of(one, tuple(each)) for one, each in
                      zip(model.tolist(), best.tolist(), strict=True)])
    size = len(month.cluster)
    cluster = replace(month.cluster, cpu_milli=np.full(size, int(CPUS * 1000)),
                      memory_mib=np.full(size, int(MEMORY_GB * 1024)))
    rows = []
    for request in REQUESTS:
        each = best if request == "best" else np.full_like(best, SHARE)
        tasks = replace(month.tasks, cpu_milli=(1000 * each[:, 0] * gpus).astype(np.int64),
                        memory_mib=(1024 * each[:, 1] * gpus).astype(np.int64))
        problem = replace(month, cluster=cluster, tasks=tasks,
                          duration_s=month.duration_s / (1 if request == "share" else speed))
        schedule = replay(problem, policy, backfill="easy")
        counts = who_counts(problem)
        wait_s, run_s = (schedule.start_s - problem.submit_s)[counts], problem.duration_s[counts]
        rows.append({"request": request, "mean_wait_s": wait_s.mean(), "mean_run_s": run_s.mean()})
    return pd.DataFrame(rows)


OPPONENTS: dict[str, Experiment] = {one.name: one for one in (
    Experiment("muri", "what Muri gains on its own traces, and by what", (FRAME,), 25.0,
               {"traces": TRACES, "programs": PROGRAMS | PARTS, "rules": RULES,
                "placements": PLACEMENTS}, compared, needs=tuple(TRACES.values())),
    Experiment("synergy", "what Synergy gains on the workload that its authors draw",
               ("fleet/synergy.csv",), 3.0,
               {"runs": RUNS, "allocations": ALLOCATIONS}, allocated),
    experiment("synergy-month", "what asking for more CPU is worth in months of four clusters", 1.0,
               {"traces": WHOLE[1:], "policies": PLACEMENTS, "requests": REQUESTS},
               month_cell, trace=WHOLE[1:], policy=PLACEMENTS))}
