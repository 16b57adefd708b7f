"""How long jobs waited under a schedule: a job counts once, in the row of its first part, and waits for its last."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...lab.arrays import Floats, Texts, Truths
from ...traces import gpu_requests
from .problem import Problem, Schedule

__all__ = ['Waits', 'waits_of', 'waits_table']

SHORT_S = 10


class Waits(NamedTuple):
    """Waits and slowdowns of a schedule, NaN for a task that did not start or is left out."""

    wait_s: Floats
    slowdown: Floats


def of_jobs(problem: Problem, values: Floats, join: np.ufunc) -> Floats:
    """Value of each job in the row of its first part, NaN in those of the others, (tasks,).

    Parameters
    ----------
    values : (tasks,) of the parts; NaN makes the job's NaN
    join : how those of the parts of a job become one, such as `np.maximum` or `np.add`
    """
    if problem.job is None:
        return values
    order = np.argsort(problem.job, kind="stable")
    begins = np.flatnonzero(np.diff(problem.job[order], prepend=-1))
    whole = np.full(len(values), np.nan)
    whole[order[begins]] = join.reduceat(values[order], begins)
    return whole


def waits_of(problem: Problem, schedule: Schedule, is_pinned: Truths) -> Waits:
    """Waits and slowdowns of jobs, in the row of the first part; a job waits for its last part.

    Parameters
    ----------
    problem, schedule : the jobs, and when each part starts
    is_pinned : (tasks,) who ran already, and is left out
    """
    counts = (schedule.node >= 0) & ~is_pinned
    wait = np.where(counts, schedule.start_s - problem.submit_s, np.nan)
    wait = of_jobs(problem, wait, np.maximum)
    run = of_jobs(problem, problem.duration_s, np.maximum)
    with np.errstate(invalid="ignore"):
        slowdown = np.maximum(1.0, (wait + run) / np.maximum(run, SHORT_S))
    return Waits(wait, np.where(np.isfinite(run), slowdown, 1.0) + 0 * wait)


def parted(problem: Problem, schedule: Schedule) -> tuple[int, int, float]:
    """Jobs of several parts: how many, how many started with parts apart, the longest such time."""
    if problem.job is None:
        return 0, 0, 0.0
    start = np.where(schedule.node >= 0, schedule.start_s, np.nan)
    last, first = (of_jobs(problem, start, join) for join in (np.maximum, np.minimum))
    apart_s = (last - first)[np.isfinite(last - first)]
    return (int((np.bincount(problem.job) > 1).sum()), int((apart_s > 0).sum()),
            float(apart_s.max(initial=0)))


def groups_of_tasks(problem: Problem) -> dict[str, Texts]:
    """Name of each task's group, by kind of group, (tasks,)."""
    words = {"0": "no GPU", "(0, 1)": "a share of a GPU", "1": "1 GPU"}
    requests = gpu_requests(problem.tasks)
    size = np.array([words.get(one, f"{one} GPUs") for one in requests], object)
    if problem.job is not None:
        gpus = of_jobs(problem, problem.tasks.num_gpus.astype(float), np.add)
        is_parted = (np.bincount(problem.job) > 1)[problem.job] & (gpus > 0)
        size[is_parted] = [f"{number:.0f} GPUs" for number in gpus[is_parted]]
    return {"all": np.full(len(size), "", object), "size": size, "queue": problem.queue,
            "user": problem.user, "model": problem.tasks.gpu_spec}


def waits_table(problem: Problem, waits: Mapping[str, Waits]) -> pd.DataFrame:
    """Waits and slowdowns by policy and group, the largest groups first.

    Parameters
    ----------
    problem : the jobs
    waits : of each policy
    """
    parts = []
    for policy, (wait, slowdown) in waits.items():
        for by, value in groups_of_tasks(problem).items():
            if by != "all" and not (value != "").any():
                continue
            frame = pd.DataFrame({"value": value, "wait_s": wait, "slowdown": slowdown}).dropna()
            groups = frame.groupby("value")
            table = pd.DataFrame({
                "tasks": groups.size(), "mean_wait_s": groups["wait_s"].mean(),
                "p50_wait_s": groups["wait_s"].median(),
                "p99_wait_s": groups["wait_s"].quantile(0.99),
                "mean_slowdown": groups["slowdown"].mean()}).reset_index()
            parts.append(table.sort_values(["tasks", "value"], ascending=[False, True]).assign(
                policy=policy, by=by))
    table = pd.concat(parts, ignore_index=True)
    return table[["policy", "by", *table.columns.drop(["policy", "by"])]]
