"""What each lever is worth: hours of waiting, energy and money a month, and how many GPUs more would wait as little."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...bill import tariff_of
from ...cluster import WHOLE_GPU_MILLI
from ...lab.arrays import Floats, Integers, Truths
from ...lab.jit import interpreted
from .compare import (
    Comparison,
    Question,
    blind_to,
    curve_over,
    energy_difference,
    first_replayed,
    is_small,
    kwh_of,
    levers_among,
    levers_of,
    replay_cell,
    replay_missing,
    who_waits,
)
from .events import BOOKED
from .fidelity import gpus_over
from .problem import Problem, Schedule, models_without_watts
from .waits import Waits, waits_of

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
OF_ENERGY = ("kwh_month", "eur_month", "kwh_apart", "kwh_low", "kwh_high")


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


def mean_wait_s(waits: Waits, enough: float) -> float:
    """Mean over the jobs that started; infinite if fewer did than are enough for it to count."""
    started = waits.wait_s[np.isfinite(waits.wait_s)]
    return float(started.mean()) if len(started) >= max(1.0, enough) else np.inf


def search(wait_with: Callable[[int], float], base: int, step: int, target_s: float) -> None:
    """Look for a larger cluster that waits as little: ever larger ones, and then between the last two of them.

    Parameters
    ----------
    wait_with : mean wait with a number of nodes
    base, step, target_s : nodes that are there, how many more are tried first, and the wait
    """
    low, high = base, base + step
    while wait_with(high) > target_s and high < MOST_SCALE * base:
        low, high = high, base + 2 * (high - base)
    for _ in range(BISECTIONS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        low, high = (middle, high) if wait_with(middle) > target_s else (low, middle)


def gpus_as_good(wait_s: float, own_wait_s: float, gpus: Sequence[int], waits_s: Sequence[float], own: int) -> float:
    """How many GPUs more bring a mean wait, between clusters that were replayed; NaN if none of them does.

    Parameters
    ----------
    wait_s, own_wait_s : with a lever, and without
    gpus, waits_s : of the clusters, ascending, and their mean waits
    own : GPUs that are there
    """
    if wait_s == own_wait_s:  # fewer GPUs may do, too
        return 0.0
    falling_s = np.minimum.accumulate(waits_s)
    if not len(gpus) or not falling_s[-1] <= wait_s <= falling_s[0]:
        return np.nan
    at = np.flatnonzero(falling_s <= wait_s)[0]
    if at and falling_s[at - 1] > falling_s[at]:
        return float(np.interp(-wait_s, -falling_s[at - 1:at + 1], gpus[at - 1:at + 1])) - own
    return float(gpus[at]) - own


def levers_to_try(problem: Problem, asked: Question, step: int, drawn_w: pd.Series | None) -> list[tuple[str, str]]:
    """Levers that are replayed to see what they are worth, with their choices.

    Parameters
    ----------
    problem, asked : of the comparison
    step : how many nodes more or fewer
    drawn_w : (bins,) power of what was replayed first, for a cap; None if it is not known
    """
    cells = [(NODES, f"{more:+d}") for more in (-step, step) if len(problem.cluster) + more > 0] + levers_of_tasks(problem)
    if asked.backfill in BOOKED:
        if problem.walltime_s is not None:
            cells.append((WALLTIMES, "half"))
    elif drawn_w is not None and asked.cap_w is None:
        cells.append((CAP, f"{np.ceil(drawn_w.min() + CAP_SHARE * (drawn_w.max() - drawn_w.min())):.0f}"))
    if problem.outages is not None:
        cells.append((OUTAGES, "none"))
    return cells


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
    problem, about = comparison.problem, comparison.about
    lacking = models_without_watts(problem, asked.power)
    asked = replace(blind_to(asked, lacking), backfill=str(about["backfill"]))
    tried = levers_among(comparison.schedules, asked.backfill)
    if not tried:
        return comparison
    first = next(iter(tried.values()))
    policy, _ = first_replayed(comparison.schedules)
    base_curve = comparison.outcomes[policy].curve
    base, step = len(problem.cluster), max(1, round(NODE_SHARE * len(problem.cluster)))
    cells = levers_to_try(problem, asked, step, None if lacking else base_curve["eopc_w"])
    moved: dict[tuple[str, str], Schedule] = {}
    replay_all = partial(replay_missing, moved, partial(replay_lever, problem, asked, policy), ("lever", "choice"),
                         folder, workers, {**(depends_on or {}), "policy": policy, "backfill": asked.backfill})
    waits_in = partial(waits_of, problem, is_pinned=np.zeros(len(problem.tasks), bool))
    own = waits_in(first)
    enough = (1 - MOST_UNSERVED) * np.isfinite(own.wait_s).sum()  # jobs that start, for a mean wait to count
    waited_s = {base: mean_wait_s(own, enough)}  # by number of nodes

    def wait_with(num_nodes: int) -> float:
        cell = (NODES, f"{num_nodes - base:+d}")
        replay_all([cell])
        waited_s[num_nodes] = mean_wait_s(waits_in(moved[cell]), enough)
        return waited_s[num_nodes]

    with interpreted(is_small(problem, asked.backfill)):
        replay_all(cells)
        tried |= moved | ({} if lacking else {(SLEEP, f"{SLEEP_AFTER_S / 60:g}"): first})
        waits = {cell: waits_in(one) for cell, one in tried.items()}
        for lever, choice in cells:
            if lever == NODES:
                waited_s[base + int(choice)] = mean_wait_s(waits[lever, choice], enough)
        least_s = min(mean_wait_s(one, enough) for one in waits.values())
        if least_s < waited_s[base]:
            search(wait_with, base, step, least_s)
        span = float(about["from_s"]), float(about["until_s"])
        frame = levers_of(waits, problem.submit_s, span)
        worth = pd.DataFrame([monthly_amounts(problem, asked, lacking, cell, one, base_curve, who_waits(
            problem.submit_s, [own, waits[cell]], span)) for cell, one in tried.items()])
    sizes = [count for count in sorted(waited_s) if np.isfinite(waited_s[count])]
    gpus = [int(problem.cluster.num_gpus[node_rows(base, count / base)].sum()) for count in sizes]
    waits_in_full_s = frame["mean_wait_s"].where(frame["tasks"] >= enough)  # who is never served does not wait
    worth["worth_gpus"] = [gpus_as_good(
        wait_s, frame["mean_wait_s"].iloc[0], gpus, [waited_s[count] for count in sizes],
        int(problem.cluster.num_gpus.sum())) for wait_s in waits_in_full_s]
    return replace(comparison, levers=pd.concat([frame, worth], axis=1), about={**about, "worth": True})


def monthly_amounts(problem: Problem, asked: Question, lacking: Sequence[str], cell: tuple[str, str], schedule: Schedule,
            base_curve: pd.DataFrame, busy: tuple[Floats, Floats]) -> dict[str, float]:
    """GPU hours, energy and cost of a schedule a month, and how much more energy that is than before.

    Parameters
    ----------
    problem, asked, lacking : of the comparison
    cell, schedule : lever and choice, and what came of them
    base_curve : of what was replayed first
    busy : when somebody waits (`who_waits`)
    """
    lever, choice = cell
    column = "asleep_w" if lever == SLEEP else "eopc_w"
    if lever == SLEEP:
        asked = replace(asked, asleep_after_s=60 * float(choice))
    edges_s = np.append(base_curve["start_s"].to_numpy(), base_curve["end_s"].iloc[-1])
    span = float(edges_s[0]), float(edges_s[-1])
    hours, month = np.diff(edges_s) / 3600, MONTH_S / (span[1] - span[0])
    tariff = tariff_of(asked.price, asked.carbon, problem.zero, span)
    curve = curve_over(with_lever(problem, lever, choice), schedule, asked, edges_s, tariff, column)
    served = {"gpu_h_month": float((gpus_over(problem, schedule, edges_s) * hours).sum()) * month}
    if lacking:
        return served | dict.fromkeys(OF_ENERGY, np.nan)
    apart = energy_difference(kwh_of(curve, column) - kwh_of(base_curve), edges_s, busy)
    amounts = (kwh_of(curve, column).sum(), curve["cost"].sum(), apart.difference, apart.low, apart.high)
    return served | dict(zip(OF_ENERGY, (month * amount for amount in amounts), strict=True))
