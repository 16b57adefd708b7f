"""What each lever is worth: hours of waiting, energy and money a month, and how many GPUs more would wait as little."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...bill import tariff_of
from ...cluster import WHOLE_GPU_MILLI
from ...lab.arrays import Integers, Truths
from ...lab.jit import interpreted
from ...lab.sweeps import compute_cells
from .compare import (
    RECORDED,
    Comparison,
    Question,
    Waits,
    blind_to,
    curve_over,
    energy_difference,
    is_small,
    kwh_of,
    levers_of,
    replay_cell,
    schedule_in,
    waits_of,
    who_waits,
)
from .events import BOOKED
from .fidelity import gpus_over
from .problem import Problem, Schedule, models_without_watts

__all__ = ['OBJECTIVES', 'node_rows', 'with_node_rows', 'with_worth']

OBJECTIVES = ("waiting", "energy", "served", "cost")
NODES, SLEEP, WALLTIMES, CAP, OUTAGES = "nodes", "sleep", "walltimes", "cap", "outages"
MODELS, SHARES, MIG = "models", "shares", "mig"
IN_SEVENTHS = {"A100", "H100", "B200"}  # models that MIG cuts into seven slices
NODE_SHARE = 0.05  # of the nodes: the lever is so many more or fewer, one at least
MOST_SCALE = 8  # times as many nodes, up to which as little waiting is looked for
BISECTIONS = 3
SLEEP_AFTER_S = 900.0
CAP_SHARE = 0.9  # of the way from the power of idle nodes to the largest hour
MOST_UNSERVED = 0.01  # of the tasks: a lever that leaves more of them unserved is none
MONTH_S = 30 * 86_400
WORTH = ["gpu_h_month", "kwh_month", "eur_month", "kwh_apart", "kwh_low", "kwh_high", "worth_gpus"]


def node_rows(num_nodes: int, scale: float) -> Integers:
    """Rows of more or fewer nodes, spread evenly over those that are there; some come again if there are more.

    Parameters
    ----------
    num_nodes, scale : how many are there, and how many times as many are wanted
    """
    edges = np.floor(np.arange(num_nodes + 1) * scale + 1e-9).astype(np.int64)
    return np.repeat(np.arange(num_nodes), np.diff(edges))


def with_node_rows(problem: Problem, rows: Integers) -> Problem:
    """The problem on some of its nodes, or on copies, and without a record.

    Parameters
    ----------
    problem : cluster and tasks
    rows : of its cluster
    """
    instances = problem.instances and problem.instances._replace(room=problem.instances.room[rows])
    nowhere = np.full(len(problem.node), -1)
    return replace(problem, cluster=problem.cluster.take(rows), group=problem.group[rows], instances=instances,
                   outages=problem.outages and problem.outages.on(rows), sight=None, node=nowhere, gpu_mask=np.zeros_like(nowhere),
                   start_s=np.full(len(nowhere), np.nan))


def asks_for_a_share(problem: Problem) -> Truths:
    """Whether each task asks for a part of one GPU, (tasks,)."""
    is_share: Truths = (problem.tasks.num_gpus == 1) & (problem.tasks.gpu_milli < WHOLE_GPU_MILLI)
    return is_share


def levers_of_tasks(problem: Problem) -> list[tuple[str, str]]:
    """Levers that change what tasks ask for, where some ask so: models of GPUs, shares, and instances of MIG for these."""
    models = set(problem.cluster.gpu_model[problem.cluster.num_gpus > 0])
    is_choosy = (problem.tasks.gpu_spec[problem.tasks.num_gpus > 0] != "").any()
    has_shares = asks_for_a_share(problem).any()
    return [*([(MODELS, "any")] if is_choosy and len(models) > 1 else []), *([(SHARES, "none")] if has_shares else []),
            *([(MIG, "7")] if has_shares and models <= IN_SEVENTHS else [])]


def with_lever(problem: Problem, lever: str, choice: str) -> Problem:
    """The problem with a lever moved: other nodes, walltimes half as wrong, no outages, or other wishes of tasks.

    Under "models" every task may run on any model; under "shares" who asks for a part of a GPU has a whole one, and
    under "mig" as many sevenths as hold the part.
    """
    tasks = problem.tasks
    if lever == NODES:
        return with_node_rows(problem, node_rows(len(problem.cluster), 1 + int(choice) / len(problem.cluster)))
    if lever == WALLTIMES and problem.walltime_s is not None:
        asked_s, run_s = problem.walltime_s, problem.duration_s
        halfway_s = np.where(np.isfinite(asked_s), run_s + (asked_s - run_s) / 2, asked_s)
        return replace(problem, walltime_s=halfway_s)
    if lever == MODELS:
        return replace(problem, tasks=replace(tasks, gpu_spec=np.full_like(tasks.gpu_spec, "")))
    if lever in (SHARES, MIG):
        parts = 1 if lever == SHARES else int(choice)
        num_parts = -(-tasks.gpu_milli * parts // WHOLE_GPU_MILLI)
        milli = np.where(asks_for_a_share(problem), -(-num_parts * WHOLE_GPU_MILLI // parts), tasks.gpu_milli)
        return replace(problem, tasks=replace(tasks, gpu_milli=milli))
    return replace(problem, outages=None) if lever == OUTAGES else problem


def replay_lever(problem: Problem, asked: Question, policy: str, lever: str, choice: str) -> pd.DataFrame:
    """Schedule under a policy with a lever moved, as a frame, checked."""
    if lever == CAP:
        asked = replace(asked, cap_w=float(choice))
    return replay_cell(with_lever(problem, lever, choice), asked, policy, asked.backfill)


class Levers:
    """Replays of one month with one lever moved at a time.

    Parameters
    ----------
    comparison, asked : the policies and rules that were replayed, and the question
    folder, workers, depends_on : as `compare`
    """

    def __init__(self, comparison: Comparison, asked: Question, folder: Path | None, workers: int,
                 depends_on: Mapping[str, Any] | None) -> None:
        self.problem, self.about = comparison.problem, comparison.about
        self.lacking = models_without_watts(self.problem, asked.power)
        self.asked = replace(blind_to(asked, self.lacking), backfill=str(self.about["backfill"]))
        self.schedules = {cell: one for cell, one in comparison.schedules.items() if cell[0] != RECORDED}
        self.policy = next(iter(self.schedules), ("", ""))[0]
        self.schedules = {cell: one for cell, one in self.schedules.items()
                          if cell[0] == self.policy or cell[1] == self.asked.backfill}
        self.curves = {name: one.curve for name, one in comparison.outcomes.items()}
        self.place, self.workers, self.depends_on = folder, workers, depends_on
        self.moved: dict[tuple[str, str], Schedule] = {}
        self.enough = 0.0  # jobs that start, for a mean wait to count
        for first in list(self.schedules.values())[:1]:
            self.enough = (1 - MOST_UNSERVED) * np.isfinite(self.waits(first).wait_s).sum()

    def replay(self, cells: Iterable[tuple[str, str]]) -> None:
        """Replay what has not been replayed yet, by lever and choice."""
        run = partial(replay_lever, self.problem, self.asked, self.policy)
        missing = [cell for cell in dict.fromkeys(cells) if cell not in self.moved]
        named = [dict(zip(("lever", "choice"), cell, strict=True)) for cell in missing]
        frames = [run(**cell) for cell in named] if self.place is None or not named else compute_cells(
            run, named, self.place, workers=min(self.workers, len(named)), shown="levers",
            depends_on={**(self.depends_on or {}), "policy": self.policy, "backfill": self.asked.backfill})[0]
        self.moved.update(zip(missing, map(schedule_in, frames), strict=True))

    def waits(self, schedule: Schedule) -> Waits:
        """Waits of a schedule."""
        return waits_of(self.problem, schedule, np.zeros(len(self.problem.tasks), bool))

    def mean_wait_s(self, waits: Waits) -> float:
        """Mean over the jobs that started; infinite if clearly fewer did than in what was replayed first."""
        started = waits.wait_s[np.isfinite(waits.wait_s)]
        return float(started.mean()) if len(started) >= max(1.0, self.enough) else np.inf

    def gpus_and_waits(self) -> tuple[Integers, list[float]]:
        """GPUs of the clusters that were tried and serve enough, ascending, and the mean wait of each."""
        base = len(self.problem.cluster)
        counts = {base: next(iter(self.schedules.values()))} | {
            base + int(choice): one for (lever, choice), one in self.moved.items() if lever == NODES}
        waits_s = {count: self.mean_wait_s(self.waits(counts[count])) for count in sorted(counts)}
        enough = [count for count, wait_s in waits_s.items() if np.isfinite(wait_s)]
        gpus = [int(self.problem.cluster.num_gpus[node_rows(base, count / base)].sum()) for count in enough]
        return np.array(gpus), [waits_s[count] for count in enough]

    def search(self, target_s: float, step: int) -> None:
        """Replay larger clusters until one waits as little, and then between the last two of them."""
        base = len(self.problem.cluster)

        def wait_s(count: int) -> float:
            cell = (NODES, f"{count - base:+d}")
            self.replay([cell])
            return self.mean_wait_s(self.waits(self.moved[cell]))

        low, high = base, base + step
        while wait_s(high) > target_s and high < MOST_SCALE * base:
            low, high = high, base + 2 * (high - base)
        for _ in range(BISECTIONS):
            if high - low <= 1:
                break
            middle = (low + high) // 2
            low, high = (middle, high) if wait_s(middle) > target_s else (low, middle)


def with_worth(comparison: Comparison, asked: Question, folder: Path | None = None, *, workers: int = 1,
               depends_on: Mapping[str, Any] | None = None) -> Comparison:
    """The comparison with more levers, and what each is worth, beside what was replayed first.

    Levers are the other placements and rules of the queue, a twentieth more and fewer nodes, nodes that
    sleep, walltimes half as wrong, where a rule books with them, a cap on power, where none does, no outages, and what
    tasks ask for (`levers_of_tasks`).
    `worth_gpus` is how many GPUs more, of the mix at hand, would bring the same mean wait under the policy and
    the rule that were replayed first, between clusters that were replayed.

    Parameters
    ----------
    comparison, asked : as `compare` gives and takes them
    folder, workers, depends_on : as `compare`
    """
    levers = Levers(comparison, asked, folder, workers, depends_on)
    if not levers.schedules:
        return comparison
    problem, about = comparison.problem, comparison.about
    base_curve = levers.curves[levers.policy]
    base, step = len(problem.cluster), max(1, round(NODE_SHARE * len(problem.cluster)))
    cells = [(NODES, f"{more:+d}") for more in (-step, step) if base + more > 0] + levers_of_tasks(problem)
    if levers.asked.backfill in BOOKED:
        if problem.walltime_s is not None:
            cells.append((WALLTIMES, "half"))
    elif not levers.lacking and levers.asked.cap_w is None:
        idle_w = base_curve["eopc_w"].min()
        cells.append((CAP, f"{np.ceil(idle_w + CAP_SHARE * (base_curve['eopc_w'].max() - idle_w)):.0f}"))
    if problem.outages is not None:
        cells.append((OUTAGES, "none"))
    with interpreted(is_small(problem, levers.asked.backfill)):
        levers.replay(cells)
        first = next(iter(levers.schedules.values()))
        tried = {cell: levers.waits(one) for cell, one in levers.schedules.items()}
        moved = {cell: levers.waits(levers.moved[cell]) for cell in cells}
        if not levers.lacking:
            moved[SLEEP, f"{SLEEP_AFTER_S / 60:g}"] = levers.waits(first)
        least_s = min(map(levers.mean_wait_s, [*tried.values(), *moved.values()]), default=np.nan)
        own_s = levers.mean_wait_s(levers.waits(first))
        if least_s < own_s:
            levers.search(least_s, step)
        span = float(about["from_s"]), float(about["until_s"])
        frame = levers_of(tried, levers.asked.backfill, problem.submit_s, span, moved)
        worth = worth_of(levers, frame, base_curve, span)
    whole = pd.concat([frame, worth], axis=1)
    return replace(comparison, levers=whole, about={**about, "worth": True})


def worth_of(levers: Levers, frame: pd.DataFrame, base_curve: pd.DataFrame,
             span: tuple[float, float]) -> pd.DataFrame:
    """GPU hours, energy and cost of each row of `levers_of`, a month, and what it is worth in GPUs.

    Parameters
    ----------
    levers, frame : what was replayed, and its waits
    base_curve : of what was replayed first
    span : first and last moment
    """
    problem, asked = levers.problem, levers.asked
    edges_s = np.append(base_curve["start_s"].to_numpy(), base_curve["end_s"].iloc[-1])
    tariff = tariff_of(asked.price, asked.carbon, problem.zero, span)
    base_waits = levers.waits(next(iter(levers.schedules.values())))
    gpus, waits_s = levers.gpus_and_waits()
    own, own_wait_s = int(problem.cluster.num_gpus.sum()), frame["mean_wait_s"].iloc[0]
    falling_s = np.minimum.accumulate(waits_s)
    month = MONTH_S / (span[1] - span[0])
    rows = []
    waits_in_full_s = frame["mean_wait_s"].where(frame["tasks"] >= levers.enough)  # who is never served does not wait
    for lever, choice, wait_s in zip(frame["lever"], frame["choice"], waits_in_full_s, strict=True):
        column, question, changed = "eopc_w", asked, problem
        if (lever, choice) in levers.moved:
            schedule, changed = levers.moved[lever, choice], with_lever(problem, lever, choice)
        elif lever == SLEEP:
            schedule, column = next(iter(levers.schedules.values())), "asleep_w"
            question = replace(asked, asleep_after_s=60 * float(choice))
        else:
            cell = (choice, asked.backfill) if lever == "placement" else (levers.policy, choice)
            schedule = levers.schedules[cell]
        curve = curve_over(changed, schedule, question, edges_s, tariff, column)
        row = dict.fromkeys(WORTH, np.nan)
        hours = np.diff(edges_s) / 3600
        row["gpu_h_month"] = float((gpus_over(problem, schedule, edges_s) * hours).sum()) * month  # as tasks asked
        if not levers.lacking:
            busy = who_waits(problem.submit_s, [base_waits, levers.waits(schedule)], span)
            apart = energy_difference(kwh_of(curve, column) - kwh_of(base_curve), edges_s, busy)
            row |= {"kwh_month": kwh_of(curve, column).sum() * month, "eur_month": curve["cost"].sum() * month,
                    "kwh_apart": apart.difference * month, "kwh_low": apart.low * month,
                    "kwh_high": apart.high * month}
        if wait_s == own_wait_s:  # fewer GPUs may do, too
            row["worth_gpus"] = 0.0
        elif len(gpus) and falling_s[-1] <= wait_s <= falling_s[0]:
            at = np.flatnonzero(falling_s <= wait_s)[0]
            row["worth_gpus"] = float(gpus[at]) - own
            if at and falling_s[at - 1] > falling_s[at]:
                row["worth_gpus"] = float(np.interp(-wait_s, -falling_s[at - 1:at + 1], gpus[at - 1:at + 1])) - own
        rows.append(row)
    return pd.DataFrame(rows, columns=WORTH)
