"""Several policies replay the same month; a table says what each drew, wasted and kept waiting, how sure that is, and what no policy can beat."""

# A module, written by hand.

from __future__ import annotations

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
from ...lab.arrays import Floats, Integers, Texts, Truths
from ...lab.frames import InputError, advice_on
from ...lab.jit import interpreted, njit
from ...lab.sweeps import sweep
from ...bill import Tariff, tariff_of
from ...meter import amounts_in, coarser, with_edges
from ...online.inflation import failures_frame
from ...online.model import Placements, PowerSettings
from ...online.policies import POLICIES, policy_of
from ...power import Power, cpu_power_milliwatt, gpu_power_milliwatt
from ...traces import gpu_requests
from .events import BACKFILLS, BOOKED, replay
from .meter import measure, refused_tasks
from .problem import (
    Problem,
    Schedule,
    instances_nobody_has,
    models_without_watts,
    power_of_problem,
    recorded,
    replayable,
    running_at,
    with_tasks,
    world_of_problem,
)
from .rules import violations

__all__ = ['Question', 'Outcome', 'Comparison', 'compare']


@dataclass(frozen=True)
class Question:
    """What a comparison is asked.

    Parameters
    ----------
    policies : names; "recorded" is what really ran. Empty: a choice that suits the problem
    backfill : none, first-fit, easy or conservative
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
MOST_FINDINGS = 20  # of a record that violates something
WATTS_MEND = ("give --hardware FILE with idle_w and full_w of [gpu.\"MODEL\"], or --gpu-power FILE "
              "with the columns model, idle_w, full_w, and name the models in nodes.csv, or with "
              "--what-if")


def blind_to(asked: Question, lacking: Sequence[str]) -> Question:
    """The question with GPUs of unknown watts drawing nothing, for policies that do not look."""
    watts = {**(asked.power.gpu_power_w or {}), **dict.fromkeys(lacking, (0, 0))}
    return replace(asked, power=asked.power._replace(gpu_power_w=watts)) if lacking else asked


def chosen_policies(problem: Problem, asked: Question, lacking: Sequence[str]) -> tuple[str, ...]:
    """Names of the policies to compare, checked.

    Raises
    ------
    InputError : one is unknown, repeated, has nothing to show, or needs watts that are not known
    """
    is_recorded = bool(((problem.node >= 0) & np.isfinite(problem.start_s)).any())
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


MOST_INTERPRETED = 1_000_000  # times that a task looks at one that waits, or a quarter of a node
MOST_BOOKING = 20_000  # tasks; above, rules that book ahead take longer than all the rest


def is_small(problem: Problem) -> bool:
    """Whether Python itself has replayed the tasks before the code for it would be compiled."""
    count = len(problem.tasks)
    return count * (count + 4 * len(problem.cluster)) <= MOST_INTERPRETED


def replay_cell(problem: Problem, asked: Question, policy: str, backfill: str) -> pd.DataFrame:
    """Schedule of a policy under a rule of the queue as a frame, checked."""
    with interpreted(is_small(problem)):
        schedule = replay(problem, policy, seed=asked.seed, backfill=backfill, at_s=asked.at_s,
                          power=asked.power, cap_w=asked.cap_w)
    return pd.DataFrame(schedule._asdict())


def schedules_of(problem: Problem, asked: Question, names: Sequence[str], folder: Path | None,
                 workers: int, depends_on: Mapping[str, Any] | None,
                 ) -> dict[tuple[str, str], Schedule]:
    """Schedules by policy and rule of the queue.

    Where neither policies nor a moment are asked for, the first policy is replayed under the other
    rules, too: levers on waiting.

    Parameters
    ----------
    problem, asked, folder, workers, depends_on : as `compare`
    names : the policies
    """
    others = [name for name in names if name != RECORDED]
    cells = [{"policy": name, "backfill": asked.backfill} for name in others]
    if not asked.policies and asked.at_s is None:
        may_book = asked.cap_w is None and len(problem.tasks) <= MOST_BOOKING
        cells += [{"policy": others[0], "backfill": rule} for rule in BACKFILLS
                  if rule != asked.backfill and (may_book or rule not in BOOKED)]
    run = partial(replay_cell, problem, asked)
    if folder is None or not cells:
        frames = {(cell["policy"], cell["backfill"]): run(**cell) for cell in cells}
    else:
        done = sweep(run, cells, folder, workers=min(workers, len(cells)), shown="replays",
                     depends_on=depends_on)
        frames = {(str(name), str(rule)): part for (name, rule), part in
                  done.frame.groupby(["policy", "backfill"], sort=False)}
    schedules = {(name, asked.backfill): recorded(problem) for name in names if name == RECORDED}
    for cell, frame in frames.items():
        schedules[cell] = Schedule(*(np.array(frame[column]) for column in Schedule._fields))
    return schedules


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


def kwh_of(curve: pd.DataFrame, column: str = "eopc_w") -> Floats:
    """Energy of each bin, kWh."""
    hours = (curve["end_s"] - curve["start_s"]).to_numpy(float) / 3600
    kwh: Floats = curve[column].to_numpy(float) / 1000 * hours
    return kwh


def difference_of(values: Floats, edges_s: Floats, seed: int) -> dict[str, Any]:
    """A difference with its interval.

    Parameters
    ----------
    values : (bins, 1) what adds up to it, or (bins, 2) also what the sum is divided by
    edges_s, seed : of the bins, and of the draws
    """
    block = block_of(edges_s)
    sums = resampled_sums(values, block, seed)
    if values.shape[1] == 1:
        value, samples = values.sum(), sums[:, 0]
    else:
        value, samples = ratio_of(values.sum(axis=0)), ratio_of(sums)
    low, high = interval_of(samples)
    return {"difference": float(value), "low": low, "high": high,
            "block_s": block * (edges_s[1] - edges_s[0]), "resamples": RESAMPLES}


def sums_in(apart: Floats, submit_s: Floats, edges_s: Floats) -> Floats:
    """Sum and number of what is known of tasks, in the bin in which each came, (bins, 2)."""
    bins = len(edges_s) - 1
    is_pair = np.isfinite(apart)
    place = np.searchsorted(edges_s, submit_s[is_pair], side="right") - 1
    where = np.clip(place, 0, bins - 1)
    return np.stack([np.bincount(where, apart[is_pair], bins),
                     np.bincount(where, minlength=bins)], axis=1)


def differences_of(mine: tuple[pd.DataFrame, Waits], theirs: tuple[pd.DataFrame, Waits],
                   submit_s: Floats, seed: int) -> list[dict[str, Any]]:
    """Differences of a policy to another one, with intervals, one row for each quantity.

    Parameters
    ----------
    mine, theirs : curve and waits of both
    submit_s, seed : when tasks came; of the intervals
    """
    (curve, waits), (other_curve, other_waits) = mine, theirs
    edges_s = np.append(curve["start_s"].to_numpy(), curve["end_s"].iloc[-1])
    values = {name: (kwh_of(curve, column) - kwh_of(other_curve, column))[:, None]
              for name, column in (("energy_kwh", "eopc_w"), ("energy_asleep_kwh", "asleep_w"))}
    values |= {name: sums_in(apart, submit_s, edges_s) for name, apart in (
        ("mean_wait_s", waits.wait_s - other_waits.wait_s),
        ("mean_slowdown", waits.slowdown - other_waits.slowdown))}
    rows: list[dict[str, Any]] = [{"quantity": name, **difference_of(each, edges_s, seed)}
                                  for name, each in values.items()]
    return [row for row in rows if np.isfinite(row["difference"])]


LEVERS = ["lever", "choice", "mean_wait_s", "difference", "low", "high", "tasks"]
QUEUE, PLACEMENT = "queue", "placement"


def levers_of(waits: Mapping[tuple[str, str], Waits], backfill: str, submit_s: Floats,
              edges_s: Floats, seed: int) -> pd.DataFrame:
    """What each other policy, or rule of the queue, does to waiting, against the first one replayed.

    Parameters
    ----------
    waits : by policy and rule, without the record
    backfill : rule that was asked for
    submit_s, edges_s, seed : as `differences_of` takes and makes them
    """
    rows = []
    for (policy, rule), (wait_s, _) in waits.items():
        apart = wait_s - next(iter(waits.values())).wait_s
        found = difference_of(sums_in(apart, submit_s, edges_s), edges_s, seed)
        started = wait_s[np.isfinite(wait_s)]
        rows.append({
            **found, "lever": PLACEMENT if rule == backfill else QUEUE,
            "choice": policy if rule == backfill else rule, "tasks": np.isfinite(apart).sum(),
            "mean_wait_s": started.mean() if len(started) else np.nan})
    return pd.DataFrame(rows, columns=LEVERS)


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
    levers : waits under other policies and rules of the queue, against the first one replayed
    about : what was asked, the horizon, and what was assumed, in sentences
    """

    problem: Problem
    outcomes: Mapping[str, Outcome]
    summary: pd.DataFrame
    waits: pd.DataFrame
    differences: pd.DataFrame
    levers: pd.DataFrame
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


def about_of(asked: Question, names: Sequence[str], horizon: tuple[float, float],
             lacking: Sequence[str], tariff: Tariff) -> dict[str, Any]:
    """What a comparison says of itself, and what its numbers rest on."""
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
    sleeps = np.isfinite(asked.asleep_after_s)
    if sleeps:
        said.append(f"with sleep, a node that is empty for {asked.asleep_after_s / 60:g} min draws "
                    f"{asked.asleep_w:g} W, and wakes at once")
    return {
        "policies": list(names), "against": asked.against or names[0], "backfill": asked.backfill,
        "at_s": asked.at_s, "seed": asked.seed, "from_s": horizon[0], "until_s": horizon[1],
        "asleep_after_s": asked.asleep_after_s if sleeps else None,
        "asleep_w": asked.asleep_w, "price": asked.price, "carbon": asked.carbon,
        **({} if asked.cap_w is None else {"cap_w": asked.cap_w}),
        "confidence": CONFIDENCE, "assumptions": said}


POWER_COLUMNS = ("eopc_w", "cpu_w", "gpu_w", "asleep_w", "cost", "co2_kg")


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
    names = chosen_policies(problem, asked, lacking)
    if asked.cap_w is not None and lacking:
        raise InputError(f"a cap needs watts, and {unknown_watts(lacking)}", value=str(asked.cap_w),
                         mend=WATTS_MEND)
    asked = blind_to(asked, lacking)
    with interpreted(is_small(problem)):
        schedules = schedules_of(problem, asked, names, folder, workers, depends_on)
        return compared(problem, asked, names, lacking, schedules)


def compared(problem: Problem, asked: Question, names: Sequence[str], lacking: Sequence[str],
             schedules: Mapping[tuple[str, str], Schedule]) -> Comparison:
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
        schedules = {cell: Schedule(one.node[rows], one.gpu_mask[rows], one.start_s[rows],
                                    one.end_s[rows]) for cell, one in schedules.items()}
        is_pinned = running_at(before, asked.at_s)[rows]
        problem = with_tasks(problem, rows)
    chosen = {name: schedules[name, asked.backfill] for name in names}
    all_waits = {cell: waits_of(problem, one, is_pinned) for cell, one in schedules.items()}
    waits = {name: all_waits[name, asked.backfill] for name in names}
    horizon = horizon_of(problem, list(chosen.values()), asked.at_s)
    edges_s = edges_of(horizon)
    tariff = tariff_of(asked.price, asked.carbon, problem.zero, horizon)
    floors = None if lacking else floors_of(problem, asked.power, asked.asleep_w)
    outcomes, summary = {}, []
    for name, schedule in chosen.items():
        findings = violations(problem, schedule) if name == RECORDED else iter(())
        curve = curve_over(problem, schedule, asked, edges_s, tariff)
        if lacking:
            curve = curve.assign(**dict.fromkeys(POWER_COLUMNS, np.nan))
        outcomes[name] = Outcome(name, schedule, curve, failures_of(problem, schedule, asked.power),
                                 tuple(islice(findings, MOST_FINDINGS)))
        summary.append(summary_of(problem, outcomes[name], waits[name], bounds_of(
            problem, outcomes[name], waits[name], floors, horizon)))
    against = asked.against or names[0]
    differences = [{"policy": name, "against": against, **row} for name in names if name != against
                   for row in differences_of((outcomes[name].curve, waits[name]),
                                             (outcomes[against].curve, waits[against]),
                                             problem.submit_s, asked.seed)]
    columns = ["policy", "against", "quantity", "difference", "low", "high", "block_s", "resamples"]
    levers = levers_of({cell: one for cell, one in all_waits.items() if cell[0] != RECORDED},
                       asked.backfill, problem.submit_s, edges_s, asked.seed)
    return Comparison(problem, outcomes, pd.DataFrame(summary), waits_table(problem, waits),
                      pd.DataFrame(differences, columns=columns), levers,
                      about_of(asked, names, horizon, lacking, tariff))
