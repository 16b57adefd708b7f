"""Muri beside its rivals and beside our policies, on its own traces: every schedule is checked."""

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
from .yardstick import parts_of, problem_of_parts

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


OPPONENTS: dict[str, Experiment] = {one.name: one for one in (
    Experiment("muri", "what Muri gains on its own traces, and by what", (FRAME,), 25.0,
               {"traces": TRACES, "programs": PROGRAMS | PARTS, "rules": RULES,
                "placements": PLACEMENTS}, compared, needs=tuple(TRACES.values())),)}
