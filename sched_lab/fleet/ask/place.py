"""New tasks meet the cluster as it is now: what runs stays, what waits goes first, and each new task gets a node or the reason why not."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import pandas as pd

from ...lab.arrays import Integers, Truths
from ...lab.frames import InputError
from ...lab.jit import interpreted
from ...lab.reports import Report
from ...online.inflation import failures_frame
from ...online.model import Placements, Policy, PowerSettings, gpu_indices
from ..read.tables import TASK_COLUMNS, ClusterTables, Ledger, with_columns
from ..replay.case import by_turn, parts_of_jobs
from ..replay.events import replay
from ..replay.problem import (
    Problem,
    Schedule,
    closed_at,
    instances_nobody_has,
    is_part,
    latest_s,
    limits_of,
    problem_of,
    recorded,
    running_at,
    with_tasks,
)
from .explain import (
    Moment,
    alone_in_the_way,
    blind_to_watts,
    hold,
    moments_before,
    number_words,
    obstacle,
    places_together,
)

__all__ = ['Placed', 'place_tasks']


def with_new(tables: ClusterTables, new: pd.DataFrame, at_s: float) -> ClusterTables:
    """The tables with more tasks, which come now.

    Raises
    ------
    InputError : a new task has the name of one that is there
    """
    if again := set(new["name"]) & set(tables.tasks["name"]):
        raise InputError(f"{min(again)!r:.60} is a task of the cluster already", column="name",
                         mend="give new tasks names of their own")
    unplaced = {"start_s": None, "end_s": None, "node": "", "gpu_list": "", "submit_s": at_s}
    added = with_columns(new.assign(**unplaced), TASK_COLUMNS)
    together = [frame.astype(object) for frame in (tables.tasks, added)]
    return replace(tables, tasks=with_columns(pd.concat(together), TASK_COLUMNS))


def is_among(problem: Problem, names: set[str]) -> Truths:
    """Whether each task, or the row that it is a part of, has one of these names, (tasks,)."""
    return np.array([name in names or name.rpartition("/")[0] in names
                     for name in problem.tasks.name], bool)


def present_of(problem: Problem, is_new: Truths, at_s: float) -> tuple[Problem, Truths]:
    """What runs, waits and is new at a moment, all of it without an end; whether each runs."""
    record = recorded(problem)
    is_running = running_at(record, at_s) & ~is_new
    has_started = problem.start_s <= at_s
    is_withdrawn = np.isnan(problem.start_s) & (problem.submit_s + problem.duration_s <= at_s)
    is_waiting = (problem.submit_s <= at_s) & ~has_started & ~is_withdrawn
    rows = np.flatnonzero(is_running | is_waiting | is_new)
    runs = is_running[rows]
    some = with_tasks(problem, rows)
    lacks_parts = np.zeros(len(rows), bool) if some.lacking_parts is None else (some.lacking_parts > 0) & ~runs
    job = None if some.job is None else 2 * some.job + runs  # those that wait start together
    present = replace(
        some, replayable=~lacks_parts if lacks_parts.any() else None, job=job, duration_s=np.full(len(rows), np.inf), node=np.where(runs, some.node, -1),
        start_s=np.where(runs, some.start_s, np.nan),
        gpu_mask=np.where(runs, record.gpu_mask[rows], 0))
    return present, runs


@dataclass(frozen=True)
class Placed:
    """Where waiting and new tasks go.

    Parameters
    ----------
    table : one row per task: task, came ("new" or "waiting"), node ("" if none), gpu_list, and
        failed_for (what alone was in the way on some node: cpu, memory, gpu, model, instances;
        "several" if nothing was alone in the way; of a job of several parts, in the way of the first
        part that found no node, or "parts" if some are not there); where there are such jobs, also
        why (how many parts of the job fit, and what the next one lacks)
    problem, schedule : the present, and where all of it is
    ledger : what was refused or interpreted in the new tasks
    at_s, policy : when, and by which policy
    num_lost : running tasks whose place is unknown
    """

    table: pd.DataFrame
    problem: Problem
    schedule: Schedule
    ledger: pd.DataFrame
    at_s: float
    policy: str
    num_lost: int

    @property
    def headline(self) -> str:
        """How many tasks found a place, in a line."""
        has_node = self.table["node"] != ""
        said = []
        for came in ("waiting", "new"):
            of_these = self.table["came"] == came
            if num := int(of_these.sum()):
                tasks = f"{came} task" if num == 1 else f"{came} tasks"
                said.append(f"{int((of_these & has_node).sum())} of {num} {tasks}")
        what = f"{' and '.join(said)} placed" if said else "no task waits"
        lost = f"; {self.num_lost} running tasks have no known place" if self.num_lost else ""
        return f"{self.policy} at {self.at_s:g} s: {what}{lost}"

    def report(self) -> Report:
        """Report: placements.csv, ledger.csv of the new tasks, and a summary."""
        failed = self.table.loc[self.table["node"] == "", "failed_for"]
        summary = {
            "policy": self.policy, "at_s": self.at_s, "tasks": len(self.table),
            "placed": int((self.table["node"] != "").sum()), "lost": self.num_lost,
            "failed_for": {str(why): int(count) for why, count in failed.value_counts().items()}}
        return Report(summary, {"placements.csv": self.table, "ledger.csv": self.ledger}, {},
                      self.headline)


MOST_ORDERED = 5  # parts of a job that are tried in every order
MOST_INTERPRETED = 20_000  # times that a task looks at a node
COLUMNS = ["task", "came", "node", "gpu_list", "failed_for"]


def in_another_order(moments: Sequence[Moment]) -> list[tuple[int, int]]:
    """Node and GPUs of each part in some order in which all find room, each on the first node; empty if there is none.

    If there is any way at all, an order finds one: node after node, and there what asks for whole GPUs before shares,
    GPU after GPU, each part finds room where that way has it, or before.

    Parameters
    ----------
    moments : the parts, all of one world, which is as it was in the end
    """
    if any(places_together([one])[1] is not None for one in moments):
        return []
    refused = set()  # beginnings of orders, by what their parts ask for
    for order in permutations(range(len(moments))):
        kinds = tuple((moments[part].task, moments[part].memory_mib) for part in order)
        if not any(kinds[:length] in refused for length in range(1, len(kinds) + 1)):
            places, lost = places_together(moments[part] for part in order)
            if lost is None:
                return [place for _, place in sorted(zip(order, places, strict=True))]
            refused.add(kinds[:len(places) + 1])
    return []


def jobs_refused(problem: Problem, schedule: Schedule, is_running: Truths,
                 queue: Integers) -> dict[int, tuple[str, str]]:
    """What was in the way of each part of a job that found no place, as `failed_for` and `why`.

    Parameters
    ----------
    problem, schedule, is_running : the present, and where all of it is
    queue : rows that did not run already, in the order in which they were asked
    """
    first, next_part = parts_of_jobs(problem.job, len(problem.tasks))
    settings = blind_to_watts(problem, PowerSettings())
    rows = queue.tolist()
    moments = dict(zip(rows, moments_before(problem, schedule, rows, is_running, settings), strict=True))
    refused: dict[int, tuple[str, str]] = {}
    for row, moment in moments.items():
        lacking = 0 if problem.lacking_parts is None else int(problem.lacking_parts[row])
        if schedule.node[row] >= 0:
            hold(moment, int(schedule.node[row]), int(schedule.gpu_mask[row]), 1)
        elif lacking:
            refused[row] = ("parts", f"its job lacks {number_words(lacking, 'parts')}")
        elif first[row] == row and next_part[row] >= 0:
            parts = [row]
            while next_part[parts[-1]] >= 0:
                parts.append(int(next_part[parts[-1]]))
            found, lost = places_together(moments[part] for part in parts)
            assert lost is not None, "its parts fit, and it was refused"
            name = problem.tasks.name[parts[len(found)]]
            why = f"{len(found)} of {len(parts)} parts fit; {name}: {obstacle(lost, problem, parts[len(found)])}"
            ways = in_another_order([moments[part] for part in parts]) if len(parts) <= MOST_ORDERED else []
            if ways:
                why += "; in another order all do: " + ", ".join(
                    f"{problem.tasks.name[part]} to {problem.cluster.name[node]}"
                    for part, (node, _) in zip(parts, ways, strict=True))
            refused |= dict.fromkeys(parts, (alone_in_the_way(lost), why))
    return refused


def table_of(problem: Problem, schedule: Schedule, is_running: Truths,
             is_new: Truths) -> pd.DataFrame:
    """Rows of the tasks that did not run already."""
    waits = np.flatnonzero(~is_running)
    queue = by_turn(problem)
    queue = queue[~is_running[queue]]
    has_jobs = bool(is_part(problem)[waits].any())
    refused = jobs_refused(problem, schedule, is_running, queue) if has_jobs else {}
    asked = queue[~np.isin(queue, list(refused))]
    rows = np.concatenate([np.flatnonzero(is_running), asked])
    placements = Placements(rows, schedule.node[rows], schedule.gpu_mask[rows])
    failures = failures_frame(problem.grouped(), problem.tasks, placements, limits_of(problem))
    nobody_has = instances_nobody_has(problem)
    failed_for = {row: "instances" if nobody_has[row] else why for row, why in zip(
        failures["task_row"].tolist(), failures["failed_for"], strict=True)}
    failed_for |= {row: word for row, (word, _) in refused.items()}
    table = pd.DataFrame({
        "task": problem.tasks.name[waits], "came": np.where(is_new[waits], "new", "waiting"),
        "node": np.append(problem.cluster.name, "")[schedule.node[waits]],
        "gpu_list": ["-".join(map(str, gpu_indices(mask))) for mask in schedule.gpu_mask[waits]],
        "failed_for": [failed_for.get(row, "") for row in waits.tolist()]}, columns=COLUMNS)
    return table.assign(why=[refused.get(row, ("", ""))[1] for row in waits.tolist()]) if has_jobs else table


def place_tasks(tables: ClusterTables, new: pd.DataFrame, policy: str | Policy = "fgd", *,
                at_s: float | None = None, seed: int = 0,
                power: PowerSettings | None = None) -> Placed:
    """Place waiting and new tasks on a cluster as it is at a moment.

    Parameters
    ----------
    tables : the cluster and what is recorded of it; nodes that are closed at the moment get nothing
    new : tasks, if any, with the columns of `TASK_COLUMNS`; their times and places do not count
    policy : a name for `policy_of`, or a policy
    at_s : the moment, seconds; None for the last one of the record
    seed : of a policy that draws lots
    power : watts, for policies that ask

    Raises
    ------
    InputError : a new task has the name of an old one, no new task can be placed anywhere, the
        cluster holds more than there is, or no such policy
    """
    moment = latest_s(tables) if at_s is None else at_s
    tables, ledger = closed_at(tables, moment), Ledger().frame()
    if len(new):
        alone = with_new(replace(tables, tasks=tables.tasks[:0]), new, moment)
        ledger = problem_of(alone).ledger
    whole = problem_of(with_new(tables, new, moment))
    names = set(new["name"])
    problem, is_running = present_of(whole, is_among(whole, names), moment)
    if is_running.all():  # there is nothing to decide
        schedule, table = recorded(problem), pd.DataFrame(columns=COLUMNS, dtype=object)
    else:
        looks = int((~is_running).sum()) * len(problem.cluster)
        with interpreted(looks <= MOST_INTERPRETED):
            schedule = replay(problem, policy, seed=seed, backfill="first-fit", at_s=moment,
                              power=power)
            table = table_of(problem, schedule, is_running, is_among(problem, names))
    is_lost = (whole.node < 0) & (whole.start_s <= moment) & (
        whole.start_s + whole.duration_s > moment)
    name = policy if isinstance(policy, str) else policy.name
    return Placed(table, problem, schedule, ledger, moment, name, int(is_lost.sum()))
