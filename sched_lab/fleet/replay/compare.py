"""Several policies replay the same month; a table says what each drew, wasted and kept waiting, how sure that is, and what no policy can beat."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...lab.arrays import Floats
from ...lab.frames import InputError, advice_on
from ...lab.jit import interpreted
from ...lab.sweeps import compute_cells
from ...bill import Tariff, tariff_of
from ...meter import amounts_in, coarser, with_edges
from ...online.inflation import failures_frame
from ...online.model import Placements, PowerSettings
from ...online.policies import POLICIES, policy_of
from .bounds import energy_bounds, floors_of, wait_bound
from .closed import with_closed
from .events import BOOKED, COMPARED, replay
from .fidelity import FIDELITY, edges_of, fidelity_over, horizon_of, record_of, room_while_waiting
from .intervals import CONFIDENCE, Estimate, busy_periods, estimate_over
from .limits import limit_words
from .meter import measure, refused_tasks
from .outages import Lost, closed_hours
from .problem import (
    Problem,
    Schedule,
    instances_nobody_has,
    models_without_watts,
    recorded,
    replayable,
    running_at,
    with_lost,
    with_tasks,
    world_of_problem,
)
from .rules import violations
from .slurm import OWN_NODES, SlurmQueue
from .waits import Waits, gpu_hours_asked, groups_of_tasks, of_jobs, waits_of

__all__ = ['Question', 'Outcome', 'Comparison', 'compare']


@dataclass(frozen=True)
class Question:
    """What a comparison is asked.

    Parameters
    ----------
    policies : names; "recorded" is what really ran. Empty: a choice that suits the problem
    backfill : a rule of the queue, one of `BACKFILLS`
    at_s : moment from which policies decide, seconds; None: from the beginning, on an empty cluster
    seed : of policies that draw lots
    power : how nodes draw power
    asleep_after_s, asleep_w : when an empty node sleeps, and what it then draws (`measure`)
    price, carbon : EUR/kWh and g/kWh: a number, a CSV file with time and value, or empty for
        the default
    against : policy that the others are compared with; empty: the first
    cap_w : most that the nodes may draw together, all awake; None for no cap
    slurm : how Slurm orders and plans its queue, for the rule slurm
    fit : take the rule and the placement under which the replay explains the record best, in place of
        `backfill`
    queues : rules of the queue that every policy is replayed under; empty: `backfill` alone. Of several, the
        first is also `backfill`
    """

    policies: tuple[str, ...] = ()
    backfill: str = "none"
    at_s: float | None = None
    seed: int = 0
    power: PowerSettings = PowerSettings()
    asleep_after_s: float = np.inf
    asleep_w: float = 0.0
    price: str = ""
    carbon: str = ""
    against: str = ""
    cap_w: float | None = None
    slurm: SlurmQueue = field(default_factory=SlurmQueue)
    fit: bool = False
    queues: tuple[str, ...] = ()


WITHOUT_WATTS = tuple(name for name, record in POLICIES.items() if not record.needs_watts)
RECORDED = "recorded"
MOST_FINDINGS = 20  # of a record that violates something
WATTS_MEND = ("give --hardware FILE with idle_w and full_w of [gpu.\"MODEL\"], or --gpu-power FILE "
              "with the columns model, idle_w, full_w, and name the models in nodes.csv, or with "
              "--what-if")


def blind_to(asked: Question, lacking: Sequence[str]) -> Question:
    """The question with GPUs of unknown watts drawing nothing, for policies that do not look."""
    watts = {**(asked.power.gpu_power_w or {}), **dict.fromkeys(lacking, (0, 0))}
    return replace(asked, power=asked.power._replace(gpu_power_w=watts)) if lacking else asked


def chosen_policies(problem: Problem, asked: Question) -> tuple[str, ...]:
    """Names of the policies to compare, checked; if a rule is to be found, and Slurm's settings are given, also its nodes.

    Raises
    ------
    InputError : one is unknown, repeated, has nothing to show, or needs watts that are not known
    """
    lacking = models_without_watts(problem, asked.power)
    is_recorded = bool(((problem.node >= 0) & np.isfinite(problem.start_s)).any())
    usual = ("fgd",) if lacking else ("fgd", "pwr-fgd:0.1", "joint")
    names = asked.policies or (*([RECORDED] if is_recorded else []), *usual)
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InputError(f"the policy {name} is there twice", value=name, mend="name it once")
        if name == RECORDED and not is_recorded:
            raise InputError("no task has a known node and start, so there is nothing recorded",
                             value=name, mend="leave the policy recorded out")
        if name == OWN_NODES:
            if asked.fit or {asked.backfill, *asked.queues} != {"slurm"}:
                raise InputError("the policy slurm is where slurmctld itself puts a job, a part of its plan",
                                 value=name, mend="give --backfill slurm and no other rule, or choose slurm-lln")
            continue
        if name != RECORDED and policy_of(name).needs_watts and lacking:
            raise InputError(f"the policy {name} weighs watts, and {unknown_watts(lacking)}",
                             value=name, mend=f"{WATTS_MEND}, or choose among "
                             + ", ".join(WITHOUT_WATTS))
    if asked.against and asked.against not in names:
        raise InputError(f"--against {asked.against!r:.60} is none of the policies compared",
                         value=asked.against, mend=advice_on(asked.against, names))
    is_own_tried = (asked.fit and asked.slurm.has_weights and problem.walltime_s is not None and asked.cap_w is None
                    and len(problem.tasks) <= MOST_BOOKING)
    return (*names, OWN_NODES) if is_own_tried else tuple(names)


def unknown_watts(lacking: Sequence[str]) -> str:
    """Say which watts are not known."""
    named = [repr(model) for model in lacking if model][:5]
    words = [f"the watts of GPU model {' and '.join(named)} are not known"] if named else []
    if "" in lacking:
        words.append("some GPUs are of no known model")
    return "; ".join(words)


MOST_INTERPRETED = 1_000_000  # times that a task looks at one that waits, or a quarter of a node
MOST_BOOKING = 20_000  # tasks; above, rules that book ahead take longer than all the rest
MOST_QUEUED = 20_000_000  # tasks, times how many wait at once under first-fit; below, booking takes a minute at most


def is_small(problem: Problem, backfill: str = "none") -> bool:
    """Whether Python itself has replayed the tasks before the code for it would be compiled."""
    count = len(problem.tasks)
    work = count * (count + 4 * len(problem.cluster)) * (20 if backfill == "slurm" else 1)
    return work <= MOST_INTERPRETED


def replay_cell(problem: Problem, asked: Question, policy: str, backfill: str) -> pd.DataFrame:
    """Schedule of a policy under a rule of the queue as a frame, checked."""
    with interpreted(is_small(problem, backfill)):
        schedule = replay(problem, policy, seed=asked.seed, backfill=backfill, at_s=asked.at_s,
                          power=asked.power, cap_w=asked.cap_w, slurm=asked.slurm)
    own, lost = schedule[:4], schedule.lost
    return pd.DataFrame({name: np.append(one, gone) for name, one, gone in
                         zip(Lost._fields, (np.full(len(own[0]), -1), *own), lost, strict=True)})


def schedule_in(frame: pd.DataFrame) -> Schedule:
    """Schedule of a frame of `replay_cell`: a row for each task, and then for each lost run, which names its `task`."""
    own, lost = ([some[name].to_numpy() for name in Lost._fields] for some in (
        frame[frame["task"] < 0], frame[frame["task"] >= 0]))
    return Schedule(own[1], own[2], own[3], own[4], Lost(lost[0], lost[1], lost[2], lost[3], lost[4]))


def replay_missing(schedules: dict[tuple[str, str], Schedule], run: Callable[..., pd.DataFrame], names: tuple[str, str],
                   folder: Path | None, workers: int, depends_on: Mapping[str, Any] | None,
                   cells: Iterable[tuple[str, str]]) -> None:
    """Replay what has not been replayed yet.

    Parameters
    ----------
    schedules : by cell; what is replayed is added
    run, names : makes the frame of `replay_cell` of a cell, and takes its parts by these names
    folder, workers, depends_on : as `compare`
    cells : what is wanted
    """
    missing = [cell for cell in dict.fromkeys(cells) if cell not in schedules]
    named = [dict(zip(names, cell, strict=True)) for cell in missing]
    frames = [run(**cell) for cell in named] if folder is None or not named else compute_cells(
        run, named, folder, workers=min(workers, len(named)), shown="levers" if "lever" in names else "replays",
        depends_on=depends_on)[0]
    schedules.update(zip(missing, map(schedule_in, frames), strict=True))


def queued(problem: Problem, schedule: Schedule) -> float:
    """Tasks, times the mean number of those that wait while others come."""
    span_s = max(1.0, float(np.ptp(problem.submit_s)))
    return len(problem.tasks) * float(np.nansum(schedule.start_s - problem.submit_s)) / span_s


def labels_of(names: Sequence[str], asked: Question) -> dict[str, tuple[str, str]]:
    """Policy and rule of the queue of each outcome, by its name: policies first, then the same under other rules.

    The name is that of the policy, and under another rule than `backfill` also that of the rule: `fgd+easy`.

    Parameters
    ----------
    names, asked : the policies, and the question with its rules
    """
    rules = dict.fromkeys((asked.backfill, *asked.queues))
    return {name if rule == asked.backfill else f"{name}+{rule}": (name, "slurm" if name == OWN_NODES else rule)
            for rule in rules for name in names if rule == asked.backfill or name != RECORDED}


Schedules = Mapping[tuple[str, str], Schedule]  # by policy and rule of the queue


def schedules_of(problem: Problem, asked: Question, names: Sequence[str], folder: Path | None,
                 workers: int, depends_on: Mapping[str, Any] | None) -> tuple[Schedules, Question]:
    """Schedules by policy and rule of the queue, and the question with the rule that was taken.

    Where neither policies nor a moment are asked for, or the rule is to be found, the first policy is
    replayed under the other rules, too: levers on waiting.

    Parameters
    ----------
    problem, asked, folder, workers, depends_on : as `compare`
    names : the policies
    """
    schedules: dict[tuple[str, str], Schedule] = {}
    replay_all = partial(replay_missing, schedules, partial(replay_cell, problem, asked), ("policy", "backfill"),
                         folder, workers, depends_on)
    others = [name for name in names if name != RECORDED]
    rules: list[tuple[str, str]] = []
    if others and (asked.fit or not asked.policies and asked.at_s is None):
        is_priced = bool(policy_of(others[0]).dials)
        may_book = asked.cap_w is None and len(problem.tasks) <= MOST_BOOKING and not is_priced
        known = COMPARED if problem.walltime_s is None or not asked.fit else (*COMPARED, "slurm")
        rules = [(others[0], rule) for rule in asked.queues or known if asked.queues or may_book or rule not in BOOKED]
    if asked.fit:
        is_pinned = np.zeros(len(problem.tasks), bool)
        replay_all([*rules, *[(OWN_NODES, "slurm")] * (OWN_NODES in others)])
        if asked.cap_w is None and not (may_book or is_priced) and queued(
                problem, schedules[others[0], "first-fit"]) <= MOST_QUEUED:
            rules = [(others[0], rule) for rule in known]
            replay_all(rules)
        found, _ = fidelity_over(problem, schedules, is_pinned, asked.at_s)
        of_all = found[found["misfit"].notna()].sort_values("misfit", kind="stable")
        if len(of_all):
            asked = replace(asked, backfill=str(of_all["backfill"].iloc[0]))
    chosen = list(labels_of(others, replace(asked, queues=())).values())
    more = [cell for cell in labels_of(others, asked).values() if cell not in chosen]
    replay_all([*chosen, *more, *(cell for cell in rules if cell not in (*chosen, *more))])
    if asked.fit:  # the placement that explains most comes first
        found, _ = fidelity_over(problem, {cell: schedules[cell] for cell in chosen}, is_pinned, asked.at_s)
        misfit = found[found["by"] == "all"].set_index("policy")["misfit"]
        chosen.sort(key=lambda cell: float(misfit.get(cell[0], np.inf)))
        best = chosen[0][0]
        if best != OWN_NODES:
            replay_all([(best, rule) for _, rule in rules if rule not in BOOKED or not policy_of(best).dials])
    ordered = {cell: schedules[cell] for cell in [*chosen, *(cell for cell in schedules if cell not in chosen)]}
    return {(name, asked.backfill): recorded(problem) for name in names if name == RECORDED} | ordered, asked


def curve_over(problem: Problem, schedule: Schedule, asked: Question, edges_s: Floats,
               tariff: Tariff, paid: str = "eopc_w") -> pd.DataFrame:
    """`measure` between edges, with cost and CO2 of each bin, of the power in a column."""
    fine = measure(problem, schedule, asked.power, with_edges(edges_s, list(tariff[:2])),
                   asked.asleep_after_s, asked.asleep_w)
    fine = with_closed(problem, schedule, fine, asked.power, asked.asleep_after_s, asked.asleep_w)
    if not np.isfinite(asked.asleep_after_s):
        fine["asleep_w"] = np.nan
    fine["cost"] = amounts_in(fine, tariff.price, paid)
    fine["co2_kg"] = amounts_in(fine, tariff.carbon, paid) / 1000
    return coarser(fine, edges_s, ("cost", "co2_kg"))


def failures_of(problem: Problem, schedule: Schedule, power: PowerSettings) -> pd.DataFrame:
    """Tasks that never started: task_row, task, state (refused or waiting), failed_for.

    A refused task fits no node, not even an empty one, and `failed_for` says what is in the way, as
    in `failures_frame`; a waiting one was never served.
    """
    is_refused = np.zeros(len(schedule.node), bool)
    if (schedule.node < 0).any():
        is_refused = refused_tasks(problem, schedule, *world_of_problem(problem, power))
    rows = np.flatnonzero(is_refused)
    nowhere = Placements(rows, np.full(len(rows), -1), np.zeros(len(rows), np.int64))
    found = (failures_frame(problem.grouped(), problem.tasks, nowhere) if len(rows) else
             pd.DataFrame({"task_row": rows, "failed_for": []}))
    found["failed_for"] = np.where(instances_nobody_has(problem)[rows], "instances",
                                   found["failed_for"])
    waiting = np.flatnonzero((schedule.node < 0) & ~is_refused)
    states = pd.DataFrame({
        "task_row": [*rows, *waiting],
        "state": ["refused"] * len(rows) + ["waiting"] * len(waiting),
        "failed_for": [*found["failed_for"], *[""] * len(waiting)]}).astype({"task_row": int})
    states.insert(1, "task", problem.tasks.name[states["task_row"]])
    return states.sort_values("task_row", ignore_index=True, kind="stable")


@dataclass(frozen=True)
class Outcome:
    """What one policy made of a problem.

    Parameters
    ----------
    policy : its name, or "recorded"
    schedule : where and when each task ran
    curve : means over bins, as `measure`, with cost and co2_kg of each bin
    failures : tasks that never started: task_row, task, state, failed_for
    waits : how long jobs waited
    findings : what the record violates; empty for a replay, which has been checked
    """

    policy: str
    schedule: Schedule
    curve: pd.DataFrame = field(repr=False)
    failures: pd.DataFrame = field(repr=False)
    waits: Waits = field(repr=False)
    findings: tuple[str, ...] = ()


def waits_table(problem: Problem, outcomes: Mapping[str, Outcome]) -> pd.DataFrame:
    """Waits and slowdowns by policy and group, the largest groups first.

    `bound_mean_wait_s` is of all jobs, and of those of each list of models; none bounds a schedule that violates something.

    Parameters
    ----------
    problem, outcomes : the jobs, and what each policy made of them
    """
    parts, bounds = [], dict[bytes, float]()
    for (policy, outcome), (by, value) in product(outcomes.items(), groups_of_tasks(problem).items()):
        if by != "all" and not (value != "").any():
            continue
        frame = pd.DataFrame({"value": value, **outcome.waits._asdict()}).dropna()
        groups = frame.groupby("value")
        table = pd.DataFrame({
            "policy": policy, "by": by, "tasks": groups.size(), "mean_wait_s": groups["wait_s"].mean(),
            "p50_wait_s": groups["wait_s"].median(), "p99_wait_s": groups["wait_s"].quantile(0.99),
            "mean_slowdown": groups["slowdown"].mean(), "bound_mean_wait_s": np.nan}).reset_index()
        table.insert(2, "value", table.pop("value"))
        for row, one in enumerate(table["value"] if by in ("all", "model") and not outcome.findings else ()):
            wait_s = np.where(value == one, outcome.waits.wait_s, np.nan)
            started = np.isfinite(wait_s).tobytes()  # on which alone the bound depends
            if started not in bounds:
                bounds[started] = wait_bound(problem, wait_s)
            table.loc[row, "bound_mean_wait_s"] = bounds[started]
        parts.append(table.sort_values(["tasks", "value"], ascending=[False, True]))
    return pd.concat(parts, ignore_index=True)


def kwh_of(curve: pd.DataFrame, column: str = "eopc_w") -> Floats:
    """Energy of each bin, kWh."""
    hours = (curve["end_s"] - curve["start_s"]).to_numpy(float) / 3600
    kwh: Floats = curve[column].to_numpy(float) / 1000 * hours
    return kwh


def who_waits(submit_s: Floats, waits: Sequence[Waits],
              span: tuple[float, float]) -> tuple[Floats, Floats]:
    """Begins and ends of the periods in which somebody waits under one policy at least."""
    since_s = np.maximum(np.tile(submit_s, len(waits)), span[0])
    until_s = np.concatenate([np.nan_to_num(submit_s + one.wait_s, nan=-np.inf) for one in waits])
    return busy_periods(since_s, until_s)


def wait_difference(apart: Floats, submit_s: Floats, busy: tuple[Floats, Floats],
                    span: tuple[float, float]) -> Estimate:
    """Difference of means over the jobs that started under both policies.

    Parameters
    ----------
    apart : (tasks,) difference of each job, NaN for who did not start under both
    submit_s, busy, span : when tasks came, who waits (`who_waits`), and the horizon
    """
    both = np.isfinite(apart)
    amounts = np.stack([apart[both], np.ones(both.sum())], axis=1)
    return estimate_over(submit_s[both], amounts, busy[0], busy, span)


def energy_difference(kwh: Floats, edges_s: Floats, busy: tuple[Floats, Floats]) -> Estimate:
    """Difference of energies; the hours at whose begin nobody waits are cuts, however few wait.

    Parameters
    ----------
    kwh : (bins,) more than the other policy
    edges_s : of the bins
    busy : who waits
    """
    begin_s, hours = edges_s[:-1], np.diff(edges_s) / 3600
    begun = np.searchsorted(busy[0], begin_s, side="right")
    is_free = begin_s >= np.append(-np.inf, busy[1])[begun]
    found = estimate_over(begin_s, np.stack([kwh, hours], axis=1), begin_s[is_free], busy,
                          (edges_s[0], edges_s[-1]), fewest_periods=0)
    scale = hours.sum()
    return found._replace(difference=float(kwh.sum()), low=found.low * scale,
                          high=found.high * scale)


def differences_of(mine: Outcome, theirs: Outcome, submit_s: Floats) -> list[dict[str, Any]]:
    """Differences of a policy to another one, with intervals, one row for each quantity.

    Parameters
    ----------
    mine, theirs : of both policies
    submit_s : when tasks came
    """
    curve, waits, other_curve, other_waits = mine.curve, mine.waits, theirs.curve, theirs.waits
    edges_s = np.append(curve["start_s"].to_numpy(), curve["end_s"].iloc[-1])
    span = float(edges_s[0]), float(edges_s[-1])
    busy = who_waits(submit_s, [waits, other_waits], span)
    found = {name: energy_difference(kwh_of(curve, column) - kwh_of(other_curve, column), edges_s,
                                     busy)
             for name, column in (("energy_kwh", "eopc_w"), ("energy_asleep_kwh", "asleep_w"))
             if curve[column].notna().all() and other_curve[column].notna().all()}
    found |= {name: wait_difference(apart, submit_s, busy, span) for name, apart in (
        ("mean_wait_s", waits.wait_s - other_waits.wait_s),
        ("mean_slowdown", waits.slowdown - other_waits.slowdown))}
    return [{"quantity": name, **each._asdict()} for name, each in found.items()
            if np.isfinite(each.difference)]


LEVERS = ["lever", "choice", "mean_wait_s", *Estimate._fields[:3], "tasks", *Estimate._fields[3:]]
QUEUE, PLACEMENT = "queue", "placement"


def first_replayed(schedules: Mapping[tuple[str, str], Any]) -> tuple[str, str]:
    """Policy and rule of what was replayed first, empty if nothing was."""
    return next((cell for cell in schedules if cell[0] != RECORDED), ("", ""))


def levers_among(replayed: Mapping[tuple[str, str], Any], backfill: str) -> dict[tuple[str, str], Any]:
    """What other policies, and the first under other rules, came to, by lever and choice; the first itself at the top.

    Parameters
    ----------
    replayed : by policy and rule
    backfill : rule that was asked for
    """
    first, _ = first_replayed(replayed)
    return {(PLACEMENT, policy) if rule == backfill else (QUEUE, rule): one
            for (policy, rule), one in replayed.items() if policy == first or (policy != RECORDED and rule == backfill)}


def levers_of(waits: Mapping[tuple[str, str], Waits], submit_s: Floats, span: tuple[float, float]) -> pd.DataFrame:
    """What each lever does to waiting, against the first one replayed.

    Parameters
    ----------
    waits : by lever and choice
    submit_s, span : when tasks came, and the horizon
    """
    rows = []
    for (lever, choice), mine in waits.items():
        first = next(iter(waits.values()))
        apart = mine.wait_s - first.wait_s
        found = wait_difference(apart, submit_s, who_waits(submit_s, [mine, first], span), span)
        started = mine.wait_s[np.isfinite(mine.wait_s)]
        rows.append({
            **found._asdict(), "lever": lever, "choice": choice, "tasks": np.isfinite(apart).sum(),
            "mean_wait_s": started.mean() if len(started) else np.nan})
    return pd.DataFrame(rows, columns=LEVERS)


@dataclass(frozen=True)
class Comparison:
    """Several policies on one problem.

    Parameters
    ----------
    problem : cluster and tasks
    outcomes : what each policy made of it, by name
    summary : a row for each policy
    waits : waits and slowdowns by policy and group of tasks
    differences : of each policy to the one they are compared with, with intervals
    levers : waits under other policies and rules of the queue, against the first one replayed
    about : what was asked, the horizon, and what was assumed, in sentences
    fidelity : each replay beside the record (`fidelity_of`), what was replayed first at the top; empty
        where nothing is recorded
    in_use : GPUs in use by the record and by what was replayed first: start_s, end_s, recorded, replayed
    schedules : by policy and rule of the queue, what was replayed first before the other replays
    """

    problem: Problem
    outcomes: Mapping[str, Outcome]
    summary: pd.DataFrame
    waits: pd.DataFrame
    differences: pd.DataFrame
    levers: pd.DataFrame
    about: Mapping[str, Any]
    fidelity: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=FIDELITY))
    in_use: pd.DataFrame = field(default_factory=pd.DataFrame)
    schedules: Schedules = field(default_factory=dict, repr=False)


LEAST_GPU_H = 1e-9


def stopped_runs(problem: Problem, schedule: Schedule) -> int:
    """Runs that an outage stopped, of jobs that waited again or ended there."""
    _, runs, task = with_lost(problem, schedule)
    is_short = runs.end_s - runs.start_s < problem.duration_s[task]
    return len(np.unique(np.stack([task if problem.job is None else problem.job[task], runs.end_s])[:, is_short],
                         axis=1).T)


def summary_of(problem: Problem, outcome: Outcome, bounds: tuple[float, float, float]) -> dict[str, Any]:
    """Row of the summary of one policy; `bounds` are of the mean wait, and of both energies."""
    curve = outcome.curve
    hours = (curve["end_s"] - curve["start_s"]).to_numpy() / 3600
    wait = outcome.waits.wait_s[np.isfinite(outcome.waits.wait_s)]
    is_served = of_jobs(problem, (outcome.schedule.node >= 0).astype(float), np.minimum)
    served, jobs = int(np.nansum(is_served)), int(np.isfinite(is_served).sum())
    asked_gpu_h = gpu_hours_asked(problem, float(curve["end_s"].iloc[-1]))
    refused_gpu_h = float(asked_gpu_h[is_served == 0].sum())
    totals = {name: float(values) for name, values in (
        ("energy_kwh", kwh_of(curve).sum()), ("energy_asleep_kwh", kwh_of(curve, "asleep_w").sum()),
        ("cost", curve["cost"].sum(skipna=False)), ("co2_kg", curve["co2_kg"].sum(skipna=False)))}
    return {
        "policy": outcome.policy, "served_tasks": served,
        "refused_tasks": jobs - served, "refused_task_share": (jobs - served) / max(1, jobs),
        "refused_gpu_h": refused_gpu_h,
        "refused_gpu_h_share": refused_gpu_h / max(np.nansum(asked_gpu_h), LEAST_GPU_H),
        "mean_wait_s": wait.mean() if len(wait) else np.nan,
        "p99_wait_s": np.quantile(wait, 0.99) if len(wait) else np.nan,
        "allocated_gpu_h": (curve["allocated_gpu"] * hours).sum(),
        "stranded_gpu_h": (curve["stranded_gpu"] * hours).sum(),
        **({"closed_gpu_h": (curve["closed_gpu"] * hours).sum(), "stopped_runs": stopped_runs(problem, outcome.schedule)}
           if problem.outages is not None and "closed_gpu" in curve else {}), **totals,
        **dict(zip(("bound_mean_wait_s", "bound_energy_kwh", "bound_energy_asleep_kwh"), bounds,
                   strict=True))}


def about_of(problem: Problem, asked: Question, names: Sequence[str], horizon: tuple[float, float], lacking: Sequence[str],
             tariff: Tariff, schedules: Schedules) -> dict[str, Any]:
    """What a comparison says of itself, and what its numbers rest on."""
    rules = dict.fromkeys((asked.backfill, *asked.queues))
    said = [*("tasks wait in the order of their submission, with backfill " + rule
              if rule != "slurm" else asked.slurm.words for rule in rules),
            "a task runs for as long as it did, wherever it runs",
            "the cluster is empty at the beginning" if asked.at_s is None else
            f"what ran at {asked.at_s:g} s by the record stays where it is"]
    if lacking:
        said.append(f"energy is not known: {unknown_watts(lacking)}")
    else:
        said.append("power is that of the model: idle and full watts of GPUs and CPUs, no cooling")
        said.append(tariff.words.rstrip("."))
    if asked.cap_w is not None:
        said.append(f"under every policy, but not in the record, a task waits while what it adds "
                    f"at the place of the policy's choice would lift the power of all nodes, none "
                    f"of them asleep, above {asked.cap_w:,.10g} W")
    sleeps = np.isfinite(asked.asleep_after_s)
    if sleeps:
        said.append(f"with sleep, a node that is empty for {asked.asleep_after_s / 60:g} min draws "
                    f"{asked.asleep_w:g} W, and wakes at once")
    if problem.outages is not None:
        said.append(
            "a drained node starts nothing and lets go on what runs; rules that book ahead know of drains. A node that "
            "is down stops what runs and draws nothing, and nobody knows ahead when or for how long; what is stopped "
            "begins anew, in its old place in the queue, or ends if outages.csv says requeue = no, or slurm.conf JobRequeue=0")
    ruled = [(name, schedule) for (name, rule), schedule in schedules.items() if rule == "slurm" and name != RECORDED]
    if ruled and (asked.slurm.limits.qualities or asked.slurm.limits.associations):
        said.append(f"under {ruled[0][0]} {limit_words(asked.slurm.limits, problem, ruled[0][1])}")
    return {
        "policies": list(names), "against": asked.against or names[0], "backfill": asked.backfill,
        "at_s": asked.at_s, "seed": asked.seed, "from_s": horizon[0], "until_s": horizon[1],
        "asleep_after_s": asked.asleep_after_s if sleeps else None,
        "asleep_w": asked.asleep_w, "price": asked.price, "carbon": asked.carbon,
        **({} if asked.cap_w is None else {"cap_w": asked.cap_w}),
        "confidence": CONFIDENCE, "assumptions": said,
        **({} if problem.outages is None else {"closed_h": closed_hours(problem.outages, horizon)})}


POWER_COLUMNS = ("eopc_w", "cpu_w", "gpu_w", "asleep_w", "cost", "co2_kg")


def compare(problem: Problem, asked: Question = Question(), folder: Path | None = None, *,
            workers: int = 1, depends_on: Mapping[str, Any] | None = None) -> Comparison:
    """Replay a problem under several policies, measure them alike, and compare.

    Parameters
    ----------
    problem : cluster and timed tasks
    asked : policies, and what their numbers depend on
    folder : where finished replays are kept; None: nowhere, one after the other
    workers, depends_on : as `sweep`, if there is a folder

    Raises
    ------
    InputError : a policy, a price or a backfill is no good for this problem
    """
    problem = replayable(problem)
    lacking = models_without_watts(problem, asked.power)
    names = chosen_policies(problem, asked)
    if asked.cap_w is not None and lacking:
        raise InputError(f"a cap needs watts, and {unknown_watts(lacking)}", value=str(asked.cap_w),
                         mend=WATTS_MEND)
    asked = blind_to(asked, lacking)
    if asked.fit and record_of(problem) is None:
        raise InputError("no task has a recorded start, so no rule of the queue can be found by it",
                         value="--fit", mend="give --backfill NAME")
    with interpreted(is_small(problem, asked.backfill)):
        schedules, asked = schedules_of(problem, asked, names, folder, workers, depends_on)
        return compared(problem, asked, names, lacking, schedules)


def compared(problem: Problem, asked: Question, names: Sequence[str], lacking: Sequence[str],
             schedules: Schedules) -> Comparison:
    """Measure schedules alike.

    Parameters
    ----------
    problem, asked, names, schedules : as `schedules_of` takes and gives them
    lacking : models of which no watts are known
    """
    is_pinned = np.zeros(len(problem.tasks), bool)
    if asked.at_s is not None:  # policies had to do with what had not ended by then
        before = recorded(problem)
        rows = np.flatnonzero(~(before.end_s <= asked.at_s))
        schedules = {cell: Schedule(
            one.node[rows], one.gpu_mask[rows], one.start_s[rows], one.end_s[rows],
            one.lost._replace(task=np.searchsorted(rows, one.lost.task))) for cell, one in schedules.items()}
        is_pinned = running_at(before, asked.at_s)[rows]
        problem = with_tasks(problem, rows)
    labels = labels_of(names, asked)
    waits = {cell: waits_of(problem, one, is_pinned) for cell, one in schedules.items()}
    against = asked.against or names[0]
    horizon = horizon_of(problem, schedules[labels[against]], asked.at_s)
    edges_s = edges_of(horizon)
    tariff = tariff_of(asked.price, asked.carbon, problem.zero, horizon)
    floors = None if lacking else floors_of(problem, asked.power, asked.asleep_w)
    outcomes = {}
    for name, cell in labels.items():
        schedule = schedules[cell]
        findings = violations(replace(problem, outages=None), schedule) if name == RECORDED else iter(())
        curve = curve_over(problem, schedule, asked, edges_s, tariff)
        if lacking:
            curve = curve.assign(**dict.fromkeys(POWER_COLUMNS, np.nan))
        outcomes[name] = Outcome(name, schedule, curve, failures_of(problem, schedule, asked.power), waits[cell],
                                 tuple(islice(findings, MOST_FINDINGS)))
    table = waits_table(problem, outcomes)
    of_all = table[table["by"] == "all"].set_index("policy")["bound_mean_wait_s"]
    summary = []
    for name, outcome in outcomes.items():
        awake = asleep = np.nan
        if floors and not outcome.findings:  # nothing bounds what cannot be
            awake, asleep = energy_bounds(problem, outcome.schedule, floors, horizon)
        summary.append(summary_of(problem, outcome, (
            of_all.get(name, np.nan), awake, np.nan if outcome.curve["asleep_w"].isna().all() else asleep)))
    differences = [{"policy": name, "against": against, **row} for name, outcome in outcomes.items() if name != against
                   for row in differences_of(outcome, outcomes[against], problem.submit_s)]
    columns = ["policy", "against", "quantity", *Estimate._fields]
    levers = levers_of(levers_among(waits, asked.backfill), problem.submit_s, horizon)
    fidelity, in_use = (pd.DataFrame(columns=FIDELITY), pd.DataFrame()) if asked.cap_w is not None else (
        fidelity_over(problem, {cell: one for cell, one in schedules.items() if cell[0] != RECORDED}, is_pinned, asked.at_s))
    about = about_of(problem, asked, list(outcomes), horizon, lacking, tariff, schedules)
    if len(fidelity) and fidelity["misfit"].iloc[0] > 1:
        about["missing"] = missing_of(problem, asked, outcomes, schedules[first_replayed(schedules)])
    return Comparison(problem, outcomes, pd.DataFrame(summary), table,
                      pd.DataFrame(differences, columns=columns), levers, about, fidelity, in_use, schedules)


def missing_of(problem: Problem, asked: Question, outcomes: Mapping[str, Outcome],
               replayed: Schedule) -> dict[str, float]:
    """What a replay that does not explain the record may lack, with its size, by name.

    `recorded_room_h` are hours that jobs waited in the record while some node had room for them, of
    `recorded_wait_h`; the same of the replay; `never_jobs` ran by the record and not in the replay;
    `findings` are impossibilities in the record; `no_walltimes` is 1 where bookings know each end.

    Parameters
    ----------
    problem, asked : the record and the question
    outcomes : of the policies
    replayed : what was replayed first
    """
    then = recorded(problem)
    sizes = dict(zip(("recorded_wait_h", "recorded_room_h", "replayed_wait_h", "replayed_room_h"), (
        *room_while_waiting(problem, then), *room_while_waiting(problem, replayed)), strict=True))
    findings = outcomes[RECORDED].findings if RECORDED in outcomes else ()
    return sizes | {
        "never_jobs": float((np.isfinite(problem.start_s) & (replayed.node < 0)).sum()),
        "findings": float(len(findings)),
        "no_walltimes": float(asked.backfill in BOOKED and problem.walltime_s is None)}
