"""A month of openb: its last one, laid several times over itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from sched_lab.fleet.read.reading import read_files
from sched_lab.fleet.replay.problem import Problem, problem_of, with_tasks

from .online import GPU_NODES, pods

__all__ = ['OPENB', 'openb', 'busy_month']

DAY_S = 86_400.0
MONTH_S = 31 * DAY_S
BEGIN_S = 118 * DAY_S  # of the trace
EVERY_NODE = 8  # one node in eight
OPENB = (GPU_NODES, pods("default"))


@cache
def openb(nodes: str, tasks: str) -> Problem:
    """The trace as it was recorded."""
    return problem_of(read_files("openb", [tasks], nodes=[nodes]))


def last_month(problem: Problem) -> Problem:
    """Tasks that ran in the last month, times since its begin; what ran already comes at 0."""
    end_s = problem.start_s + problem.duration_s
    rows = np.flatnonzero((end_s > BEGIN_S) & (problem.submit_s < BEGIN_S + MONTH_S))
    part = with_tasks(problem, rows)
    ran_before = part.submit_s < BEGIN_S
    return replace(part, submit_s=np.maximum(part.submit_s - BEGIN_S, 0.0),
                   start_s=np.full(len(rows), np.nan),
                   duration_s=np.where(ran_before, end_s[rows] - BEGIN_S, part.duration_s))


def busy_month(problem: Problem, copies: int, seed: int) -> Problem:
    """A month laid several times over itself, each copy turned, on a part of the nodes.

    Parameters
    ----------
    problem : the trace as recorded
    copies : how often
    seed : of the turns
    """
    month = last_month(problem)
    num_tasks = len(month.tasks)
    turns_s = np.random.default_rng(seed).integers(int(MONTH_S), size=copies)
    submit_s = np.tile(month.submit_s, copies)
    turned_s = (submit_s + np.repeat(turns_s, num_tasks)) % MONTH_S
    submit_s = np.where(submit_s > 0, turned_s, 0.0)
    order = np.argsort(submit_s, kind="stable")
    kept = np.arange(0, len(problem.cluster), EVERY_NODE)
    return replace(with_tasks(month, order % num_tasks), submit_s=submit_s[order],
                   cluster=problem.cluster.take(kept), group=problem.group[kept])
