"""Several policies replay the same month; a table says what each drew, wasted and kept waiting, how sure that is, and what no policy can beat."""

# A module, written by hand.

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...cluster import WHOLE_GPU_MILLI, empty_state
from ...hardware import knows_gpu_w
from ...lab.arrays import Floats, Integers, Texts, Truths
from ...lab.frames import InputError, advice_on, read_bytes
from ...lab.jit import njit
from ...lab.sweeps import sweep
from ...meter import Tariff, amounts_in, coarser, tariff_of, with_edges
from ...online.inflation import failures_frame
from ...online.model import Placements, PowerSettings
from ...online.policies import POLICIES, policy_of
from ...power import Power, cpu_power_milliwatt, gpu_power_milliwatt
from ...traces import gpu_requests, models_of
from ..read.tables import ClusterTables, Ledger, milli_of_profile, note_rows
from .events import replay, violations
from .meter import measure, refused_tasks
from .problem import (
    Problem,
    Schedule,
    instances_nobody_has,
    power_of_problem,
    recorded,
    replayable,
    running_at,
    with_tasks,
    world_of_problem,
)

__all__ = ['Question', 'Outcome', 'Comparison', 'compare']


@dataclass(frozen=True)
class Question:
    """What a comparison is asked.

    Parameters
    ----------
    policies : names; "recorded" is what really ran. Empty: a choice that suits the problem
    backfill : none, first-fit or conservative
    at_s : moment from which policies decide, seconds; None: from the beginning, on an empty cluster
    seed : of policies that draw lots, and of the intervals
    power : how nodes draw power
    asleep_after_s, asleep_w : when an empty node sleeps, and what it then draws (`measure`)
    price, carbon : EUR/kWh and g/kWh: a number, a CSV file with time and value, or empty for
        the default
    against : policy that the others are compared with; empty: the first
    cap_w : most that the nodes may draw together, all awake; None for no cap
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


WITHOUT_WATTS = tuple(name for name, record in POLICIES.items() if not record.needs_watts)
RECORDED = "recorded"
WATTS_MEND = ("give --hardware FILE with idle_w and full_w of [gpu.\"MODEL\"], or --gpu-power FILE "
              "with the columns model, idle_w, full_w, and name the models in nodes.csv, or with "
              "--what-if")


def models_without_watts(problem: Problem, power: PowerSettings) -> list[str]:
    """GPU models of a problem of which no watts are known, "" for GPUs of no known model."""
    models = pd.unique(problem.cluster.gpu_model[problem.cluster.num_gpus > 0])
    return [model for model in models if not knows_gpu_w(model, power.gpu_power_w)]


def without_watts(power: PowerSettings, models: Sequence[str]) -> PowerSettings:
    """Settings under which GPUs of these models draw nothing, for policies that do not look."""
    no_watts = dict.fromkeys(models, (0, 0))
    return power._replace(gpu_power_w={**(power.gpu_power_w or {}), **no_watts})


def chosen_policies(problem: Problem, asked: Question, lacking: Sequence[str]) -> tuple[str, ...]:
    """Names of the policies to compare, checked.

    Raises
    ------
    InputError : one is unknown, repeated, has nothing to show, or needs watts that are not known
    """
    is_recorded = bool((recorded(problem).node >= 0).any())
    usual = ("fgd",) if lacking else ("fgd", "pwr-fgd:0.1", "joint")
    names = asked.policies or (*([RECORDED] if is_recorded else []), *usual)
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InputError(f"the policy {name} is there twice", value=name, mend="name it once")
        if name == RECORDED and not is_recorded:
            raise InputError("no task has a known node and start, so there is nothing recorded",
                             value=name, mend="leave the policy recorded out")
        if name != RECORDED and policy_of(name).needs_watts and lacking:
            raise InputError(f"the policy {name} weighs watts, and {unknown_watts(lacking)}",
                             value=name, mend=f"{WATTS_MEND}, or choose among "
                             + ", ".join(WITHOUT_WATTS))
    if asked.against and asked.against not in names:
        raise InputError(f"--against {asked.against!r:.60} is none of the policies compared",
                         value=asked.against, mend=advice_on(asked.against, names))
    return tuple(names)


def unknown_watts(lacking: Sequence[str]) -> str:
    """Say which watts are not known."""
    named = [repr(model) for model in lacking if model][:5]
    words = [f"the watts of GPU model {' and '.join(named)} are not known"] if named else []
    if "" in lacking:
        words.append("some GPUs are of no known model")
    return "; ".join(words)


def replay_cell(problem: Problem, asked: Question, policy: str) -> pd.DataFrame:
    """Schedule of one policy as a frame, checked."""
    schedule = replay(problem, policy, seed=asked.seed, backfill=asked.backfill, at_s=asked.at_s,
                      power=asked.power, cap_w=asked.cap_w)
    return pd.DataFrame(schedule._asdict())


def schedule_in(frame: pd.DataFrame) -> Schedule:
    """The schedule of a frame."""
    return Schedule(*(np.array(frame[name]) for name in Schedule._fields))


MOST_FINDINGS = 20


class Place(NamedTuple):
    """Where and on how many processes replays are computed.

    Parameters
    ----------
    folder : where finished replays are kept; None: nowhere, one after the other
    workers : processes
    depends_on : what the problem was made of, as JSON
    dask : address of a Dask scheduler, on whose workers they run instead
    """

    folder: Path | None = None
    workers: int = 1
    depends_on: Mapping[str, Any] = {}
    dask: str | None = None


NOWHERE = Place()


def schedules_of(problem: Problem, asked: Question, names: Sequence[str],
                 place: Place) -> dict[str, Schedule]:
    """Schedule of each policy."""
    run = partial(replay_cell, problem, asked)
    found = {RECORDED: recorded(problem)} if RECORDED in names else {}
    others = [name for name in names if name != RECORDED]
    if place.folder is None:
        found |= {name: schedule_in(run(policy=name)) for name in others}
    elif others:
        done = sweep(run, [{"policy": name} for name in others], place.folder,
                     depends_on=place.depends_on, workers=min(place.workers, len(others)),
                     dask=place.dask, shown="policies")
        found |= {str(name): schedule_in(part) for name, part in done.frame.groupby("policy")}
    return {name: found[name] for name in names}


def findings_of(problem: Problem, schedule: Schedule) -> tuple[str, ...]:
    """The first things that a record violates."""
    return tuple(islice(violations(problem, schedule), MOST_FINDINGS))


BIN_S = (3600.0, 600.0, 60.0)
FEWEST_BINS = 48
MOST_BINS = 90_000  # ten years of hours


def horizon_of(problem: Problem, schedules: Sequence[Schedule],
               at_s: float | None) -> tuple[float, float]:
    """First and last moment that is measured."""
    times = np.concatenate([problem.submit_s] + [column for one in schedules
                                                 for column in (one.start_s, one.end_s)])
    times = times[np.isfinite(times)]
    first = float(times.min(initial=np.inf) if at_s is None else at_s)
    return first, max(float(times.max(initial=-np.inf)), first + 3600)


def edges_of(horizon: tuple[float, float]) -> Floats:
    """Edges of bins; the last bin may be shorter."""
    first, last = horizon
    fine = [width for width in BIN_S if FEWEST_BINS * width <= last - first]
    days = np.ceil((last - first) / MOST_BINS / 86400)
    width = 86400 * days if last - first > MOST_BINS * BIN_S[0] else fine[0]
    edges = first + width * np.arange(int((last - first) / width) + 1)
    return np.append(edges[edges < last], last)


def curve_over(problem: Problem, schedule: Schedule, asked: Question, edges_s: Floats,
               tariff: Tariff) -> pd.DataFrame:
    """`measure` between edges, with cost and CO2 of each bin."""
    fine = measure(problem, schedule, asked.power, with_edges(edges_s, list(tariff[:2])),
                   asked.asleep_after_s, asked.asleep_w)
    if not np.isfinite(asked.asleep_after_s):
        fine["asleep_w"] = np.nan
    fine["cost"] = amounts_in(fine, tariff.price, "eopc_w")
    fine["co2_kg"] = amounts_in(fine, tariff.carbon, "eopc_w") / 1000
    return coarser(fine, edges_s, ("cost", "co2_kg"))


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
    """Waits and slowdowns of jobs, in the row of the first part; a job waits for its last part."""
    counts = (schedule.node >= 0) & ~is_pinned
    wait = np.where(counts, schedule.start_s - problem.submit_s, np.nan)
    wait = of_jobs(problem, wait, np.maximum)
    run = of_jobs(problem, problem.duration_s, np.maximum)
    with np.errstate(invalid="ignore"):
        slowdown = np.maximum(1.0, (wait + run) / np.maximum(run, SHORT_S))
    return Waits(wait, np.where(np.isfinite(run), slowdown, 1.0) + 0 * wait)


class Parted(NamedTuple):
    """Jobs of several parts: how many, how many started with parts apart, the longest such time."""

    jobs: int
    apart: int
    longest_s: float


def parted(problem: Problem, schedule: Schedule) -> Parted:
    """What became of the jobs of several parts."""
    if problem.job is None:
        return Parted(0, 0, 0.0)
    count = np.bincount(problem.job)
    start = np.where(schedule.node >= 0, schedule.start_s, np.nan)
    last, first = (of_jobs(problem, start, join) for join in (np.maximum, np.minimum))
    apart_s = (last - first)[np.isfinite(last - first)]
    return Parted(int((count > 1).sum()), int((apart_s > 0).sum()), float(apart_s.max(initial=0)))


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
            "user": problem.user}


def waits_table(problem: Problem, waits: Mapping[str, Waits]) -> pd.DataFrame:
    """Waits and slowdowns by policy and group, the largest groups first."""
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


class Supply(NamedTuple):
    """Watts of the cheapest supply of a resource: a piecewise linear function of the demand."""

    milli: Floats
    watts: Floats

    def at(self, demand: Floats) -> Floats:
        """Watts for a demand; what is above the capacity costs nothing."""
        return np.interp(demand, self.milli, self.watts)


def supply_of(capacity: Floats, price: Floats) -> Supply:
    """Cheapest supply from nodes, (nodes,): thousandths, and watts for one of them."""
    order = np.argsort(price, kind="stable")
    milli = np.cumsum(capacity[order])
    watts = np.cumsum((capacity * price)[order])
    return Supply(np.append(0.0, milli), np.append(0.0, watts))


def slope_of(power: Power) -> float:
    """Least share of the range that a thousandth of load draws, over its fair share."""
    load = np.arange(1, len(power.load_permille))
    return float((power.load_permille[1:] / load).min())


class Floors(NamedTuple):
    """What power cannot fall below.

    Parameters
    ----------
    idle_w, asleep_w : of a cluster without tasks, awake and asleep
    gpu, gpu_asleep, cpu : cheapest supply; of GPUs also with the idle power of their nodes
    """

    idle_w: float
    asleep_w: float
    gpu: Supply
    gpu_asleep: Supply
    cpu: Supply


def floors_of(problem: Problem, settings: PowerSettings, asleep_w: float) -> Floors:
    """Bounds of the power of a cluster."""
    power = power_of_problem(problem, settings)
    state = empty_state(problem.cluster)
    idle_w = np.array([
        (cpu_power_milliwatt(power, node, state.cpu_left_milli[node])
         + gpu_power_milliwatt(power, node, state.gpu_left_milli[node])) / 1000
        for node in range(len(problem.cluster))])
    slope = slope_of(power)
    gpu_price = slope * (power.gpu_full_w - power.gpu_idle_w) / WHOLE_GPU_MILLI
    cpu_price = slope * (power.cpu_full_w - power.cpu_idle_w) / (2000 * power.cpu_cores)
    gpu_milli = (WHOLE_GPU_MILLI * power.num_gpus).astype(float)
    awake_w = np.maximum(0, idle_w - asleep_w)
    return Floors(float(idle_w.sum()), float(np.minimum(idle_w, asleep_w).sum()),
                  supply_of(gpu_milli, gpu_price),
                  supply_of(gpu_milli, gpu_price + awake_w / np.maximum(gpu_milli, 1)),
                  supply_of(power.cpu_milli.astype(float), cpu_price))


def demand_over(schedule: Schedule, amount: Integers,
                horizon: tuple[float, float]) -> tuple[Floats, Floats]:
    """Demand of running tasks as steps: how long each lasts, and how much it is."""
    ran = schedule.node >= 0
    begin = np.clip(schedule.start_s[ran], *horizon)
    end = np.clip(schedule.end_s[ran], *horizon)
    times = np.concatenate([[horizon[0]], begin, end, [horizon[1]]])
    change = np.concatenate([[0], amount[ran], -amount[ran], [0]])
    order = np.argsort(times, kind="stable")
    return np.diff(times[order]), np.cumsum(change[order])[:-1].astype(float)


def energy_bounds(problem: Problem, schedule: Schedule, floors: Floors,
                  horizon: tuple[float, float]) -> tuple[float, float]:
    """Least energy of what ran when it ran, kWh: nodes always awake, and empty ones asleep."""
    gpu_s, gpu = demand_over(schedule, problem.tasks.gpu_demand_milli, horizon)
    cpu_s, cpu = demand_over(schedule, problem.tasks.cpu_milli, horizon)
    for_cpu = (floors.cpu.at(cpu) * cpu_s).sum()
    length_s = horizon[1] - horizon[0]
    awake = floors.idle_w * length_s + (floors.gpu.at(gpu) * gpu_s).sum() + for_cpu
    asleep = floors.asleep_w * length_s + (floors.gpu_asleep.at(gpu) * gpu_s).sum() + for_cpu
    return float(awake / 3.6e6), float(asleep / 3.6e6)


@njit(cache=True)
def pooled_completions(release_s: Floats, work_s: Floats) -> float:
    """Sum of completion times, shortest remaining work first, on one machine.

    Parameters
    ----------
    release_s : (tasks,) ascending
    work_s : (tasks,) how long each would have the machine
    """
    heap = [0.0]
    heappop(heap)
    total = 0.0
    now = 0.0
    come = 0
    while come < len(release_s) or len(heap) > 0:
        if len(heap) == 0:
            now = max(now, release_s[come])
        while come < len(release_s) and release_s[come] <= now:
            heappush(heap, work_s[come])
            come += 1
        left = heappop(heap)
        until = np.inf
        if come < len(release_s):
            until = release_s[come]
        if now + left <= until:
            now += left
            total += now
        else:
            heappush(heap, left - (until - now))
            now = until
    return total


def wait_bound(problem: Problem, waits: Waits) -> float:
    """Least mean wait of the tasks that started, s; NaN if none did."""
    rows = np.flatnonzero(np.isfinite(waits.wait_s))
    if not len(rows):
        return np.nan
    rows = rows[np.argsort(problem.submit_s[rows], kind="stable")]
    run_s = of_jobs(problem, problem.duration_s, np.maximum)
    ends = rows[np.isfinite(run_s[rows])]
    tasks = problem.tasks
    best = 0.0
    finite_s = np.where(np.isfinite(problem.duration_s), problem.duration_s, 0.0)
    for demand, capacity in ((tasks.gpu_demand_milli, problem.cluster.gpu_capacity_milli),
                             (tasks.cpu_milli, int(problem.cluster.cpu_milli.sum()))):
        asks = ends[of_jobs(problem, demand.astype(float), np.add)[ends] > 0]
        release = problem.submit_s[asks]
        if len(asks) and capacity:
            begin = release[0]
            run = run_s[asks]
            work = of_jobs(problem, np.asarray(demand * finite_s, float), np.add)[asks] / capacity
            late = pooled_completions(release - begin, work) - (release - begin + run).sum()
            best = max(best, late / len(rows))
    return float(best)


RESAMPLES = 1000
CONFIDENCE = 0.95


def block_of(edges_s: Floats) -> int:
    """Number of bins in a block."""
    bins = len(edges_s) - 1
    in_a_day = max(1, round(86400 / (edges_s[1] - edges_s[0])))
    return in_a_day if bins >= 10 * in_a_day else int(np.ceil(bins ** (1 / 3) - 1e-9))


def resampled_sums(values: Floats, block: int, seed: int) -> Floats:
    """Sums of columns over resampled bins.

    Parameters
    ----------
    values : (bins, columns)
    block : bins drawn together, at most all of them
    seed : of the draws

    Returns
    -------
    (`RESAMPLES`, columns)
    """
    rng = np.random.default_rng(seed)
    upto = np.vstack([np.zeros(values.shape[1]), values.cumsum(axis=0)])
    sums = np.zeros((RESAMPLES, values.shape[1]))
    lengths = [block] * (len(values) // block)
    lengths += [len(values) % block] if len(values) % block else []
    for length in lengths:
        begin = rng.integers(0, len(values) - length + 1, RESAMPLES)
        sums += upto[begin + length] - upto[begin]
    return sums


def interval_of(samples: Floats) -> tuple[float, float]:
    """Middle part of resampled values."""
    samples = samples[np.isfinite(samples)]
    if not len(samples):
        return np.nan, np.nan
    low, high = np.quantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def ratio_of(sums: Floats) -> Floats:
    """First column over the second, NaN for nothing over nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio: Floats = sums[..., 0] / sums[..., 1]
    return ratio


def difference_of_means(mine: Floats, theirs: Floats, in_bin: Integers, bins: int) -> Floats:
    """Per bin, the sum of differences of paired tasks and their number, (bins, 2)."""
    is_pair = np.isfinite(mine) & np.isfinite(theirs)
    where = in_bin[is_pair]
    return np.stack([np.bincount(where, (mine - theirs)[is_pair], bins),
                     np.bincount(where, minlength=bins)], axis=1)


class Measured(NamedTuple):
    """What the differences are made of: curve, waits and slowdowns of a policy."""

    curve: pd.DataFrame
    waits: Waits


def kwh_of(curve: pd.DataFrame, column: str = "eopc_w") -> Floats:
    """Energy of each bin, kWh."""
    hours = (curve["end_s"] - curve["start_s"]).to_numpy(float) / 3600
    kwh: Floats = curve[column].to_numpy(float) / 1000 * hours
    return kwh


def differences_of(mine: Measured, theirs: Measured, submit_s: Floats,
                   seed: int) -> list[dict[str, Any]]:
    """Differences of a policy to another one, with intervals, one row for each quantity."""
    edges_s = np.append(mine.curve["start_s"].to_numpy(), mine.curve["end_s"].iloc[-1])
    bins = len(edges_s) - 1
    block = block_of(edges_s)
    in_bin = np.clip(np.searchsorted(edges_s, submit_s, side="right") - 1, 0, bins - 1)
    rows = []
    for column in ("eopc_w", "asleep_w"):
        values = (kwh_of(mine.curve, column) - kwh_of(theirs.curve, column))[:, None]
        name = "energy_kwh" if column == "eopc_w" else "energy_asleep_kwh"
        rows.append((name, values.sum(), interval_of(resampled_sums(values, block, seed)[:, 0])))
    for name, one, other in (("mean_wait_s", mine.waits.wait_s, theirs.waits.wait_s),
                             ("mean_slowdown", mine.waits.slowdown, theirs.waits.slowdown)):
        values = difference_of_means(one, other, in_bin, bins)
        rows.append((name, float(ratio_of(values.sum(axis=0))),
                     interval_of(ratio_of(resampled_sums(values, block, seed)))))
    return [{"quantity": name, "difference": value, "low": low, "high": high,
             "block_s": block * (edges_s[1] - edges_s[0]), "resamples": RESAMPLES}
            for name, value, (low, high) in rows if np.isfinite(value)]


@dataclass(frozen=True)
class Outcome:
    """What one policy made of a problem.

    Parameters
    ----------
    policy : its name, or "recorded"
    schedule : where and when each task ran
    curve : means over bins, as `measure`, with cost and co2_kg of each bin
    failures : tasks that never started: task_row, task, state, failed_for
    findings : what the record violates; empty for a replay, which has been checked
    """

    policy: str
    schedule: Schedule
    curve: pd.DataFrame = field(repr=False)
    failures: pd.DataFrame = field(repr=False)
    findings: tuple[str, ...] = ()


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
    about : what was asked, the horizon, and what was assumed, in sentences
    """

    problem: Problem
    outcomes: Mapping[str, Outcome]
    summary: pd.DataFrame
    waits: pd.DataFrame
    differences: pd.DataFrame
    about: Mapping[str, Any]


def summary_of(problem: Problem, outcome: Outcome, waits: Waits,
               bounds: tuple[float, float, float]) -> dict[str, Any]:
    """Row of the summary of one policy; `bounds` are of the mean wait, and of both energies."""
    curve = outcome.curve
    hours = (curve["end_s"] - curve["start_s"]).to_numpy() / 3600
    wait = waits.wait_s[np.isfinite(waits.wait_s)]
    is_served = of_jobs(problem, (outcome.schedule.node >= 0).astype(float), np.minimum)
    served = int(np.nansum(is_served))
    totals = {name: float(values) for name, values in (
        ("energy_kwh", kwh_of(curve).sum()), ("energy_asleep_kwh", kwh_of(curve, "asleep_w").sum()),
        ("cost", curve["cost"].sum(skipna=False)), ("co2_kg", curve["co2_kg"].sum(skipna=False)))}
    return {
        "policy": outcome.policy, "served_tasks": served,
        "refused_tasks": int(np.isfinite(is_served).sum()) - served,
        "mean_wait_s": wait.mean() if len(wait) else np.nan,
        "p99_wait_s": np.quantile(wait, 0.99) if len(wait) else np.nan,
        "allocated_gpu_h": (curve["allocated_gpu"] * hours).sum(),
        "stranded_gpu_h": (curve["stranded_gpu"] * hours).sum(), **totals,
        **dict(zip(("bound_mean_wait_s", "bound_energy_kwh", "bound_energy_asleep_kwh"), bounds,
                   strict=True))}


def assumptions_of(asked: Question, lacking: Sequence[str], tariff: Tariff) -> list[str]:
    """What the numbers of a comparison rest on."""
    said = [f"tasks wait in the order of their submission, with backfill {asked.backfill}",
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
    if np.isfinite(asked.asleep_after_s):
        said.append(f"with sleep, a node that is empty for {asked.asleep_after_s / 60:g} min draws "
                    f"{asked.asleep_w:g} W, and wakes at once")
    return said


def about_of(asked: Question, names: Sequence[str], horizon: tuple[float, float],
             assumptions: list[str]) -> dict[str, Any]:
    """What a comparison says of itself."""
    return {
        "policies": list(names), "against": asked.against or names[0], "backfill": asked.backfill,
        "at_s": asked.at_s, "seed": asked.seed, "from_s": horizon[0], "until_s": horizon[1],
        "asleep_after_s": asked.asleep_after_s if np.isfinite(asked.asleep_after_s) else None,
        "asleep_w": asked.asleep_w, "price": asked.price, "carbon": asked.carbon,
        **({} if asked.cap_w is None else {"cap_w": asked.cap_w}),
        "confidence": CONFIDENCE, "assumptions": assumptions}


def outcome_of(problem: Problem, name: str, schedule: Schedule, asked: Question, edges_s: Floats,
               tariff: Tariff) -> Outcome:
    """Measure one schedule."""
    findings = findings_of(problem, schedule) if name == RECORDED else ()
    return Outcome(name, schedule, curve_over(problem, schedule, asked, edges_s, tariff),
                   failures_of(problem, schedule, asked.power), findings)


POWER_COLUMNS = ("eopc_w", "cpu_w", "gpu_w", "asleep_w", "cost", "co2_kg")


def without_power(outcome: Outcome) -> Outcome:
    """The same outcome, power unknown."""
    return replace(outcome, curve=outcome.curve.assign(**dict.fromkeys(POWER_COLUMNS, np.nan)))


def bounds_of(problem: Problem, outcome: Outcome, waits: Waits, floors: Floors | None,
              horizon: tuple[float, float]) -> tuple[float, float, float]:
    """Bounds of mean wait and both energies; NaN if power is unknown or a record wrong."""
    if outcome.findings:
        return np.nan, np.nan, np.nan
    awake = asleep = np.nan
    if floors:
        awake, asleep = energy_bounds(problem, outcome.schedule, floors, horizon)
    if outcome.curve["asleep_w"].isna().all():
        asleep = np.nan
    return wait_bound(problem, waits), awake, asleep


def rest_of(problem: Problem, at_s: float | None) -> Integers:
    """Rows of the tasks that policies had to do with: those that had not ended before."""
    if at_s is None:
        return np.arange(len(problem.tasks))
    return np.flatnonzero(~(recorded(problem).end_s <= at_s))


def only(schedule: Schedule, rows: Integers) -> Schedule:
    """The schedule of these tasks."""
    return Schedule(schedule.node[rows], schedule.gpu_mask[rows], schedule.start_s[rows],
                    schedule.end_s[rows])


def compare(problem: Problem, asked: Question = Question(), place: Place = NOWHERE) -> Comparison:
    """Replay a problem under several policies, measure them alike, and compare.

    Parameters
    ----------
    problem : cluster and timed tasks
    asked : policies, and what their numbers depend on
    place : where finished replays are kept, and on how many processes they run

    Raises
    ------
    InputError : a policy, a price or a backfill is no good for this problem
    """
    problem = replayable(problem)
    lacking = models_without_watts(problem, asked.power)
    names = chosen_policies(problem, asked, lacking)
    if asked.cap_w is not None and lacking:
        raise InputError(f"a cap needs watts, and {unknown_watts(lacking)}", value=str(asked.cap_w),
                         mend=WATTS_MEND)
    blind = replace(asked, power=without_watts(asked.power, lacking))
    rows = rest_of(problem, asked.at_s)
    schedules = {name: only(schedule, rows) for name, schedule in
                 schedules_of(problem, blind, names, place).items()}
    problem = with_tasks(problem, rows)
    horizon = horizon_of(problem, list(schedules.values()), asked.at_s)
    edges_s = edges_of(horizon)
    tariff = tariff_of(asked.price, asked.carbon, problem.zero, horizon)
    outcomes = {name: outcome_of(problem, name, schedule, blind, edges_s, tariff)
                for name, schedule in schedules.items()}
    floors = None if lacking else floors_of(problem, asked.power, asked.asleep_w)
    if lacking:
        outcomes = {name: without_power(outcome) for name, outcome in outcomes.items()}
    assumptions = assumptions_of(asked, lacking, tariff)
    about = about_of(asked, names, horizon, assumptions)
    return compared(problem, outcomes, floors, about)


def compared(problem: Problem, outcomes: Mapping[str, Outcome], floors: Floors | None,
             about: Mapping[str, Any]) -> Comparison:
    """Tables of measured outcomes."""
    horizon = (about["from_s"], about["until_s"])
    is_pinned = np.zeros(len(problem.submit_s), bool)
    if about["at_s"] is not None:
        is_pinned = running_at(problem, recorded(problem), about["at_s"])
    waits = {name: waits_of(problem, outcome.schedule, is_pinned)
             for name, outcome in outcomes.items()}
    rows = [summary_of(problem, outcome, waits[name],
                       bounds_of(problem, outcome, waits[name], floors, horizon))
            for name, outcome in outcomes.items()]
    measured = {name: Measured(outcome.curve, waits[name]) for name, outcome in outcomes.items()}
    against = about["against"]
    differences = [{"policy": name, "against": against, **row} for name in outcomes
                   if name != against for row in differences_of(
                       measured[name], measured[against], problem.submit_s, about["seed"])]
    columns = ["policy", "against", "quantity", "difference", "low", "high", "block_s", "resamples"]
    return Comparison(problem, outcomes, pd.DataFrame(rows), waits_table(problem, waits),
                      pd.DataFrame(differences, columns=columns), about)


OF_A_RECORD = {"gpu_models", "gpu_power_w", "power_cap_w"}  # changes that leave what ran as it was
WHAT_IF = {"load": (int, float), "mig": (bool,), "nodes": (dict,), "gpu_models": (dict,),
           "gpu_power_w": (dict,), "power_cap_w": (int, float)}
OF_NODES = {"scale": (int, float), "remove": (list,)}


def check_keys(said: Mapping[str, Any], known: Mapping[str, tuple[type, ...]], path: str | Path,
               inside: str = "") -> None:
    """Refuse a key that is unknown, or whose value is of another kind.

    Raises
    ------
    InputError : naming the key
    """
    for key, value in said.items():
        if key not in known:
            is_cap = "cap" in key and "power_cap_w" in known
            raise InputError(f"{inside}{key}: there is no such key", file=path, value=key,
                             mend="say power_cap_w = WATTS" if is_cap else
                             advice_on(key, known))
        if not isinstance(value, known[key]) or isinstance(value, bool) != (known[key] == (bool,)):
            raise InputError(f"{inside}{key} = {value!r} is not {known[key][-1].__name__}",
                             file=path, value=key, mend="see sched-lab replay --help")


def read_what_if(path: str | Path) -> dict[str, Any]:
    """Changes that a TOML file asks for, checked.

    Raises
    ------
    InputError : it is no TOML, or has a key that is not understood
    """
    try:
        said = tomllib.loads(read_bytes(path).decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as trouble:
        raise InputError(f"this is not TOML: {trouble}", file=path,
                         mend='write lines such as load = 1.3') from None
    check_keys(said, WHAT_IF, path)
    check_keys(said.get("nodes", {}), OF_NODES, path, "nodes.")
    for key, number in (("load", said.get("load", 1)),
                        ("nodes.scale", said.get("nodes", {}).get("scale", 1))):
        if not 0 < number <= 100:
            raise InputError(f"{key} = {number} is not a factor above 0, at most 100", file=path,
                             value=key, mend="give 1.3 for 30 % more, say")
    if not 0 < said.get("power_cap_w", 1) < np.inf:
        raise InputError(f"power_cap_w = {said['power_cap_w']} is not a number of watts above 0",
                         file=path, value="power_cap_w",
                         mend="write power_cap_w = 50000 for 50 kW, say")
    for model, other in said.get("gpu_models", {}).items():
        if not isinstance(other, str) or not other:
            raise InputError(f"gpu_models.{model} = {other!r} is not the name of a model",
                             file=path, value=model, mend='write T4 = "A10"')
    for model, watts in said.get("gpu_power_w", {}).items():
        if not (isinstance(watts, list) and len(watts) == 2 and 0 <= watts[0] <= watts[1]
                and all(type(one) is int for one in watts)):
            raise InputError(f"gpu_power_w.{model} = {watts!r} is not idle and full watts",
                             file=path, value=model, mend=f"write {model} = [30, 150]")
    return said


def repeated(frame: pd.DataFrame, count: Integers, mark: str) -> pd.DataFrame:
    """Rows as often as counted; the second and later ones have a name of their own."""
    rows = np.repeat(np.arange(len(frame)), count)
    turn = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    copies = frame.iloc[rows].reset_index(drop=True)
    names = copies["name"].astype(str)
    return copies.assign(name=names.where(turn == 0, names + mark + pd.Series(turn).astype(str)))


def with_nodes(nodes: pd.DataFrame, said: Mapping[str, Any], ledger: Ledger) -> pd.DataFrame:
    """Nodes without those removed, and more or fewer of the others."""
    removed = [str(name) for name in said.get("remove", ())]
    for name in removed:
        if name not in set(nodes["name"]):
            raise InputError(f"nodes.remove: there is no node {name!r:.60}", value=name,
                             mend="give a name of nodes.csv")
    is_gone = nodes["name"].isin(removed)
    note_rows(ledger, "nodes.csv", np.flatnonzero(is_gone) + 2, "what if", "removed")
    nodes = nodes[~is_gone].reset_index(drop=True)
    edges = np.floor(np.arange(len(nodes) + 1) * said.get("scale", 1) + 1e-9).astype(np.int64)
    if edges[-1] != len(nodes):
        ledger.note("nodes.csv", None, "what if", f"{edges[-1]} nodes in place of {len(nodes)}")
    return repeated(nodes, np.diff(edges), "+")


def with_models(tables: ClusterTables, other: Mapping[str, str], ledger: Ledger) -> ClusterTables:
    """Tables with other GPU models in nodes and in wishes."""
    nodes = tables.nodes
    for model in other:
        is_one = (nodes["gpu_model"] == model) & (nodes["num_gpus"].fillna(0) > 0)
        if not is_one.any():
            raise InputError(f"gpu_models: no node has the model {model!r:.60}", value=model,
                             mend="name a gpu_model of nodes.csv")
        note_rows(ledger, "nodes.csv", np.flatnonzero(is_one) + 2, "what if",
                  f"{model} is {other[model]}")
    wishes = {text: "|".join(other.get(one, one) for one in models_of(text))
              for text in tables.tasks["gpu_models"].unique()}
    models = nodes["gpu_model"].where(nodes["num_gpus"].fillna(0) == 0,
                                      nodes["gpu_model"].replace(dict(other)))
    return replace(tables, nodes=nodes.assign(gpu_model=models),
                   tasks=tables.tasks.assign(gpu_models=tables.tasks["gpu_models"].map(wishes)))


SEVENTHS = [milli_of_profile(f"{slices}g.{10 * slices}gb") for slices in (1, 2, 3, 4, 7)]


def with_instances(tasks: pd.DataFrame, ledger: Ledger) -> pd.DataFrame:
    """Tasks whose share of a GPU is a whole number of sevenths that an instance has."""
    sizes = np.array(SEVENTHS, float)
    milli = tasks["gpu_milli"].to_numpy(float, na_value=np.nan)
    is_share = (milli > 0) & (milli < WHOLE_GPU_MILLI)
    larger = sizes[np.minimum(np.searchsorted(sizes, milli), len(sizes) - 1)]
    is_changed = is_share & (larger != milli)
    note_rows(ledger, "tasks.csv", np.flatnonzero(is_changed) + 2, "what if",
              "the share of a GPU is the smallest instance that holds it")
    ledger.note("tasks.csv", None, "what if", "mig = true only rounds shares of GPUs: no GPU is "
                "cut, and a share may lie where no instance could")
    return tasks.assign(gpu_milli=tasks["gpu_milli"].mask(is_changed, pd.Series(larger)))


def changed(tables: ClusterTables, said: Mapping[str, Any], seed: int) -> ClusterTables:
    """Tables of a cluster that never was.

    Parameters
    ----------
    tables : of the one that was
    said : as `read_what_if` gives it
    seed : of the tasks that come again, or not at all

    Raises
    ------
    InputError : a node or a model that is to change is not there
    """
    ledger = Ledger()
    tables = replace(tables, nodes=with_nodes(tables.nodes, said.get("nodes", {}), ledger))
    if "gpu_models" in said:
        tables = with_models(tables, said["gpu_models"], ledger)
    tasks = with_instances(tables.tasks, ledger) if said.get("mig") else tables.tasks
    if (load := said.get("load", 1)) != 1:
        draws = np.random.default_rng(seed).random(len(tasks))
        count = int(load) + (draws < load % 1)
        ledger.note("tasks.csv", None, "what if",
                    f"load {load:g}: {count.sum()} tasks in place of {len(tasks)}")
        tasks = repeated(tasks, count, "~")
    lines = pd.concat([tables.ledger, ledger.frame()], ignore_index=True)
    return replace(tables, tasks=tasks, ledger=lines.astype(tables.ledger.dtypes))
