"""How long jobs waited: a job counts once, however many parts it has, and waits for the last of them."""

# A module, written by hand.

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from ...cluster import WHOLE_GPU_MILLI
from ...lab.arrays import Floats, Texts, Truths
from ...traces import gpu_requests
from .problem import Problem, Schedule

__all__ = ['of_jobs', 'Waits', 'waits_of', 'groups_of_tasks']


def of_jobs(problem: Problem, values: Floats, join: np.ufunc) -> Floats:
    """Value of each job in the row of its first part, NaN in those of the others, (tasks,).

    Parameters
    ----------
    problem : whose jobs
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



SHORT_S = 10



class Waits(NamedTuple):
    """Waits and slowdowns of a schedule, NaN for a task that did not start or is left out."""

    wait_s: Floats
    slowdown: Floats



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



def groups_of_tasks(problem: Problem) -> dict[str, Texts]:
    """Name of each task's group, by kind of group, (tasks,)."""
    words = {"0": "no GPU", "(0, 1)": "a share of a GPU", "1": "1 GPU"}
    code, requests = pd.factorize(gpu_requests(problem.tasks))
    size = np.array([words.get(one, f"{one} GPUs") for one in requests], object)[code]
    if problem.job is not None:
        gpus = of_jobs(problem, problem.tasks.num_gpus.astype(float), np.add)
        is_parted = (np.bincount(problem.job) > 1)[problem.job] & (gpus > 0)
        size[is_parted] = [f"{number:.0f} GPUs" for number in gpus[is_parted]]
    return {"all": np.full(len(size), "", object), "size": size, "queue": problem.queue,
            "user": problem.user, "model": problem.tasks.gpu_spec}



def gpu_hours_asked(problem: Problem, until_s: float) -> Floats:
    """GPU hours that each job asks for, in the row of its first part; no end is one at `until_s`."""
    longest_s = np.maximum(0.0, until_s - problem.submit_s)
    run_s = np.where(np.isfinite(problem.duration_s), problem.duration_s, longest_s)
    return of_jobs(problem, problem.tasks.gpu_demand_milli * run_s / (WHOLE_GPU_MILLI * 3600), np.add)
