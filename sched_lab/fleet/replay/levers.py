"""Which lever moves waiting most: the rule of the queue, or the policy that places."""

# A module, written by hand.

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...lab.sweeps import sweep
from .compare import RECORDED, Comparison, Question, blind_to, differences_of, replay_cell, waits_of
from .events import BACKFILLS, BOOKED
from .problem import Problem, Schedule, replayable

__all__ = ['with_levers']

COLUMNS = ["lever", "choice", "mean_wait_s", "difference", "low", "high", "tasks"]
QUEUE, PLACEMENT = "queue", "placement"
MOST_TASKS = 20_000  # above, rules that book ahead are left out: they take longer than the rest


def rule_cell(problem: Problem, asked: Question, policy: str, backfill: str) -> pd.DataFrame:
    """Schedule of a policy under a rule of the queue."""
    return replay_cell(problem, replace(asked, backfill=backfill), policy)


def with_levers(comparison: Comparison, problem: Problem, asked: Question, folder: Path,
                **how: Any) -> Comparison:
    """The comparison with its levers: what each other policy or rule does to waiting.

    They are compared with the first policy that is replayed, under the rule that was asked for.
    Other rules are replayed where neither policies nor a moment were asked for.

    Parameters
    ----------
    comparison, problem, asked : what came out, what was compared, and how
    folder, how : of finished replays, and more as `sweep` takes it
    """
    names = [name for name in comparison.outcomes if name != RECORDED]
    if not names:
        return replace(comparison, levers=pd.DataFrame(columns=COLUMNS))
    problem = replayable(problem)
    base = names[0]
    tried = {(PLACEMENT, name): comparison.outcomes[name].schedule for name in names}
    if not asked.policies and asked.at_s is None:
        may_book = asked.cap_w is None and len(problem.tasks) <= MOST_TASKS  # nobody can book watts
        rules = [rule for rule in BACKFILLS if rule != asked.backfill
                 and (may_book or rule not in BOOKED)]
        done = sweep(partial(rule_cell, problem, blind_to(problem, asked), base),
                     [{"backfill": rule} for rule in rules], folder, shown="rules of the queue", **how)
        for rule, frame in done.frame.groupby("backfill", sort=False):
            tried[QUEUE, str(rule)] = Schedule(*(np.array(frame[name]) for name in Schedule._fields))
    here = comparison.problem
    is_pinned = here.start_s <= (-np.inf if asked.at_s is None else asked.at_s)
    nothing = comparison.outcomes[base].curve.assign(eopc_w=np.nan, asleep_w=np.nan)
    waits = {key: waits_of(here, schedule, is_pinned) for key, schedule in tried.items()}
    base_wait = waits[PLACEMENT, base]
    rows = []
    for (lever, choice), wait in waits.items():
        lines = differences_of((nothing, wait), (nothing, base_wait), here.submit_s, asked.seed)
        found = {line["quantity"]: line for line in lines}.get("mean_wait_s", {})
        started = wait.wait_s[np.isfinite(wait.wait_s)]
        both = np.isfinite(wait.wait_s - base_wait.wait_s).sum()
        rows.append((lever, choice, started.mean() if len(started) else np.nan,
                     *(found.get(name, np.nan) for name in ("difference", "low", "high")), both))
    return replace(comparison, levers=pd.DataFrame(rows, columns=COLUMNS))
