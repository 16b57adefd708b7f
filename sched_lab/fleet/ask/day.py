"""One heterogeneous cluster, one clock, one meter and one price: services that come and go, training jobs with due dates and speeds, and batches on MIG."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from ... import far, online
from ...andreas.instances import WEIGHTS_EUR_PER_S
from ...cluster import Cluster
from ...far.mig import Mig
from ...far.tasks import SCALINGS, Batch, generate_times
from ...hadar.model import Throughputs, read_throughputs
from ...hadar.simulation import RESTART_S
from ...hardware import Hardware, changed_watts, default_hardware, usual_watts
from ...lab.arrays import Floats, Integers, Texts, Truths
from ...lab.frames import InputError, embedded
from ...bill import Tariff
from ...holdings import Holdings
from ...meter import Rate, amounts_in, meter, with_edges
from ...power import Power, cpu_power_w, gpu_power_w
from ...traces import Tasks
from ..read.tables import Ledger
from ..replay.bounds import slope_of
from ..replay.problem import NO_CPU_POWER, Problem, Schedule
from ..replay.rules import capacity_violations, place_violations, time_violations

__all__ = ['Day', 'draw_day', 'Happened', 'check_day']


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes of a day, and what each is for.

    Parameters
    ----------
    cluster : the nodes
    mig_model : (nodes,) key of `far.MODELS` of a node that is kept for batches, "" for the others
    train_type : (nodes,) number of the type for training, -1 where no job may train
    type_name : models of these numbers
    speeds : of training, with a column for each of these types
    power : watts
    notes : what had to be assumed
    """

    cluster: Cluster
    mig_model: Texts
    train_type: Integers
    type_name: tuple[str, ...]
    speeds: Throughputs
    power: online.PowerSettings
    notes: tuple[str, ...] = ()

    @property
    def group(self) -> Texts:
        """(nodes,) placement group of each node."""
        return np.where(self.mig_model == "", GENERAL, CUT)


GENERAL, CUT = "general", "mig"
TICK_S = 360.0
DAY_S = 86_400.0
HORIZON_S = 72 * 3600.0
MEASURED = (("V100", "v100"), ("P100", "p100"), ("K80", "k80"))  # in a model's name, and Gavel's
CUTTABLE = ("A30", "A100", "H100", "B200")
MOST_CUT = 16  # GPUs of a model that are kept for batches


def trainable(cluster: Cluster, is_general: Truths) -> tuple[Integers, tuple[str, ...], list[int]]:
    """Type of each node for training, names of the types, and the column of each in the table."""
    is_usable = is_general & (cluster.num_gpus > 0)
    columns = {model: column for column, (begin, _) in enumerate(MEASURED)
               for model in np.unique(cluster.gpu_model[is_usable]) if begin in model.upper()}
    if not columns:
        columns = dict.fromkeys(np.unique(cluster.gpu_model[is_usable]).tolist(), 0)
    names = tuple(columns)
    number = [names.index(model) if usable and model in columns else -1
              for model, usable in zip(cluster.gpu_model, is_usable, strict=True)]
    return np.array(number, np.int64), names, list(columns.values())


def kept_for_batches(cluster: Cluster) -> Texts:
    """(nodes,) MIG model of the nodes that are kept for batches: the first ones of each model."""
    kept = np.full(len(cluster), "", object)
    room = dict.fromkeys(CUTTABLE, MOST_CUT)
    for node, (name, gpus) in enumerate(zip(cluster.gpu_model, cluster.num_gpus.tolist(),
                                            strict=True)):
        model = next((model for model in CUTTABLE if model in name.upper()), "")
        if model and 0 < gpus <= room[model]:
            kept[node] = model
            room[model] -= gpus
    return kept


def watts_of(cluster: Cluster, hardware: Hardware) -> dict[str, tuple[int, int]]:
    """Idle and full watts of the GPU models of a cluster, the paper's where it has them.

    Raises
    ------
    InputError : a model has no watts
    """
    known = {**usual_watts()[0], **changed_watts(hardware)[0]}
    for model in np.unique(cluster.gpu_model[cluster.num_gpus > 0].astype(str)).tolist():
        if model and model not in known:
            found = hardware.gpu(model)
            known[model] = (int(found.idle_w.value), int(found.full_w.value))
    return known


def nodes_of(cluster: Cluster, hardware: Hardware | None = None) -> Nodes:
    """Say what each node of a cluster is for.

    Parameters
    ----------
    cluster : the nodes
    hardware : watts of GPU models; the catalogue of {doc}`12a_hardware` if not given

    Raises
    ------
    InputError : no node with a GPU is left for services and training, or a GPU model has no watts
    """
    mig_model = kept_for_batches(cluster)
    is_general = mig_model == ""
    if not (cluster.num_gpus[is_general] > 0).any():
        raise InputError("every GPU of this cluster can be cut, and none is left for services",
                         mend=f"give more than {MOST_CUT} GPUs of a model, "
                         "or nodes of other models too")
    train_type, names, columns = trainable(cluster, is_general)
    table = read_throughputs(embedded("hadar_throughputs.csv"))
    speeds = Throughputs(names, table.row, table.rate[:, columns], table.spread_rate[:, columns])
    notes = []
    if not any(begin in name.upper() for name in names for begin, _ in MEASURED):
        notes.append(f"no training speed is known for {', '.join(names)}: all train like a V100")
    if not (mig_model != "").any():
        notes.append("no GPU can be cut: there is no batch, and FAR is worth nothing here")
    power = online.PowerSettings(gpu_power_w=watts_of(cluster, hardware or default_hardware()))
    return Nodes(cluster, mig_model, train_type, names, speeds, power, tuple(notes))


class Training(NamedTuple):
    """Training jobs.

    Parameters
    ----------
    submit_s, due_s, weight_eur_per_s, steps : (jobs,)
    gpus : (jobs,) what the user asks for
    rate, spread : (jobs, counts, types) steps/s on so many GPUs of one node, and of several
    """

    submit_s: Floats
    due_s: Floats
    weight_eur_per_s: Floats
    steps: Floats
    gpus: Integers
    rate: Floats
    spread: Floats


@dataclass(frozen=True)
class MigWork:
    """A batch, and the GPUs that it runs on.

    Parameters
    ----------
    mig, batch : in the terms of FAR
    node, gpu : (GPUs,) where each GPU of `mig` is
    release_s, due_s : seconds of the day
    weight_eur_per_s : (tasks,)
    """

    mig: Mig
    batch: Batch
    node: Integers
    gpu: Integers
    release_s: float
    due_s: float
    weight_eur_per_s: Floats


@dataclass(frozen=True, eq=False)
class Day:
    """Nodes, work and rates.

    Parameters
    ----------
    nodes : what there is
    services : the nodes and the services, as a replay wants them
    training, batches : the rest of the work
    tariff : price and carbon intensity until the horizon
    """

    nodes: Nodes
    services: Problem
    training: Training
    batches: tuple[MigWork, ...]
    tariff: Tariff


SERVICES_PER_GPU = 3.2
RUNNING_PER_GPU = 0.35
JOBS_PER_GPU = 2.4
TASKS_PER_GPU = 12
COUNTS = (1, 2, 4)  # GPUs that a job can use
SMALL_W = 150
WORKER_MILLI = 4000  # vCPU of each GPU in training
TASK_MILLI = 2000
RELEASE_S = 20 * 3600.0
BATCH_DUE_S = 30 * 3600.0
ON_ONE_SLICE_S = (1800.0, 28_800.0)
ROUNDING_S = 1e-6  # of sums of times


def comes_s(rng: np.random.Generator, count: int) -> Floats:
    """Ticks of a day, most of them about two in the afternoon, ascending."""
    ticks = np.arange(0.0, DAY_S, TICK_S)
    rate = 1 + 0.7 * np.sin(2 * np.pi * (ticks / DAY_S - 8 / 24))
    return np.sort(rng.choice(ticks, count, p=rate / rate.sum()))


def lengths_s(rng: np.random.Generator, count: int, median_h: float, most_h: float) -> Floats:
    """Lognormal times, at least half an hour."""
    return 3600 * np.clip(rng.lognormal(np.log(median_h), 0.9, count), 0.5, most_h)


def small_models(nodes: Nodes) -> str:
    """Models of general nodes that draw little, as a task would ask for them; "" if none does."""
    full_w = power_of_nodes(nodes).gpu_full_w
    is_small = (nodes.mig_model == "") & (nodes.cluster.num_gpus > 0) & (full_w <= SMALL_W)
    return "|".join(np.unique(nodes.cluster.gpu_model[is_small].astype(str)).tolist())


@lru_cache(maxsize=4)
def power_of_nodes(nodes: Nodes) -> Power:
    """Power model of the nodes, as the replay has it."""
    return nodes.power._replace(cpu_power_w=NO_CPU_POWER).of(nodes.cluster)


NOTHING_NOTED = Ledger().frame()


def problem_with(nodes: Nodes, tasks: Tasks, submit_s: Floats, duration_s: Floats) -> Problem:
    """The nodes with some tasks, none of which has a place yet."""
    count = len(tasks)
    nothing = np.full(count, "", object)
    return Problem(nodes.cluster, tasks, nodes.group, submit_s, duration_s, np.full(count, np.nan),
                   np.full(count, -1), np.zeros(count, np.int64), nothing, nothing,
                   np.zeros(count, np.int64), NOTHING_NOTED, None)


def draw_services(nodes: Nodes, rng: np.random.Generator) -> Problem:
    """Services that run at midnight, and those that come."""
    gpus = int(nodes.cluster.num_gpus[nodes.mig_model == ""].sum())
    running = rng.poisson(RUNNING_PER_GPU * gpus)
    count = running + rng.poisson(SERVICES_PER_GPU * gpus)
    submit_s = np.append(np.zeros(running), comes_s(rng, count - running))
    duration_s = np.ceil(lengths_s(rng, count, 2.0, 24.0) / TICK_S) * TICK_S
    kind = rng.choice(4, count, p=[0.6, 0.25, 0.1, 0.05])  # share, one GPU, two, CPU only
    share = rng.choice([100, 200, 250, 500, 750], count)
    cpu = np.choose(kind, [rng.integers(2, 9, count), rng.integers(4, 13, count),
                           rng.integers(8, 17, count), rng.integers(8, 33, count)])
    most = int(nodes.cluster.num_gpus[nodes.mig_model == ""].max())
    num_gpus = np.minimum(np.choose(kind, [1, 1, 2, 0]), most)
    is_picky = (kind == 0) & (rng.random(count) < 0.3)
    cpu_milli = np.minimum(1000 * cpu, int(nodes.cluster.cpu_milli[nodes.mig_model == ""].min()))
    names = np.array([f"service-{i}" for i in range(count)], object)
    tasks = tasks_in(GENERAL, names, cpu_milli, num_gpus, np.choose(kind, [share, 1000, 1000, 0]))
    picky = replace(tasks, gpu_spec=np.where(is_picky, small_models(nodes), "").astype(object))
    return problem_with(nodes, picky, submit_s, duration_s)


def draw_training(nodes: Nodes, rng: np.random.Generator) -> Training:
    """Jobs of Gavel's table, as many as suit the GPUs that can train."""
    gpus = int(nodes.cluster.num_gpus[nodes.train_type >= 0].sum())
    count = max(1, int(rng.poisson(JOBS_PER_GPU * gpus)))
    row = nodes.speeds.row
    models = [[row[key, count] for count in COUNTS] for key in dict.fromkeys(key for key, _ in row)
              if all((key, count) in row for count in COUNTS)]
    known = np.array([rows for rows in models  # that run everywhere, on every number of GPUs
                      if (nodes.speeds.rate[rows] > 0).all()])
    chosen = known[rng.integers(len(known), size=count)]
    rate, spread = nodes.speeds.rate[chosen], nodes.speeds.spread_rate[chosen]
    most = int(nodes.cluster.num_gpus[nodes.train_type >= 0].max())  # GPUs that one node has
    size = np.minimum(rng.choice(len(COUNTS), count, p=[0.6, 0.25, 0.15]),
                      np.searchsorted(COUNTS, most, side="right") - 1)
    run_s = lengths_s(rng, count, 3.0, 9.0)
    submit_s = comes_s(rng, count)
    mean_rate = rate[np.arange(count), size].mean(axis=1)
    return Training(submit_s, submit_s + run_s * rng.uniform(1, 3, count),
                    rng.uniform(*WEIGHTS_EUR_PER_S, count), run_s * mean_rate,
                    np.array(COUNTS)[size], rate, spread)


def draw_batches(nodes: Nodes, rng: np.random.Generator) -> tuple[MigWork, ...]:
    """A nightly batch for each model that can be cut."""
    works = []
    for model in dict.fromkeys(name for name in nodes.mig_model if name):
        rows = np.flatnonzero(nodes.mig_model == model)
        counts = nodes.cluster.num_gpus[rows]
        node = np.repeat(rows, counts)
        gpu = np.concatenate([np.arange(count) for count in counts])
        mig = far.mig_of(model, len(node))
        count = TASKS_PER_GPU * len(node)
        mixed = SCALINGS["mixed"]
        shares = mixed if tuple(mixed) == mig.sizes else dict.fromkeys(mig.sizes, 1 / len(mig.sizes))
        drawn_s = generate_times(mig, count, shares, ON_ONE_SLICE_S, rng)
        # the memory of some sizes is too small for a task
        least = np.minimum(rng.choice(3, count, p=[0.6, 0.25, 0.15]), len(mig.sizes) - 2)
        times_s = np.where(np.arange(len(mig.sizes)) < least[:, None], np.inf, drawn_s)
        name = np.array([f"{model}-{i}" for i in range(count)], object)
        works.append(MigWork(mig, Batch(name, times_s, np.full(count, "", object)), node, gpu,
                             RELEASE_S, BATCH_DUE_S, rng.uniform(*WEIGHTS_EUR_PER_S, count)))
    return tuple(works)


PRICE_EUR = (*[0.16] * 6, *[0.24] * 4, *[0.18] * 6, *[0.34] * 5, *[0.22] * 3)
CARBON_G = (*[300] * 6, *[380] * 4, *[220] * 6, *[450] * 5, *[350] * 3)


def daily_tariff() -> Tariff:
    """The tariff of the example: a day's hours, again and again until the horizon."""
    hours = np.arange(0.0, HORIZON_S, 3600.0)
    price, carbon = (Rate(hours, np.resize(np.array(values, float), len(hours)), HORIZON_S)
                     for values in (PRICE_EUR, CARBON_G))
    return Tariff(price, carbon,
                  "Energy costs 0.16 to 0.34 EUR/kWh and emits 220 to 450 g/kWh by the hour, an "
                  "assumption of the book.")


def draw_day(nodes: Nodes, seed: int, tariff: Tariff | None = None) -> Day:
    """Draw the work of a day, in proportion to the nodes.

    Parameters
    ----------
    nodes : what there is
    seed : services, jobs and batches each have a stream of their own
    tariff : price and carbon intensity; those of `daily_tariff` if not given
    """
    streams = [np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(3)]
    return Day(nodes, draw_services(nodes, streams[0]), draw_training(nodes, streams[1]),
               draw_batches(nodes, streams[2]), tariff or daily_tariff())


def drawn_of(nodes: Nodes) -> str:
    """What of a day is not from the cluster, in sentences."""
    words = ["Services, training jobs and batches were drawn in proportion to the GPUs: times and "
             "demands of services at random, jobs of Gavel's table with due dates and weights, "
             "batches as in the FAR paper.", *(f"{note}." for note in nodes.notes)]
    return " ".join(word[0].upper() + word[1:] for word in words)


class Runs(NamedTuple):
    """Runs of training jobs; a gang on several nodes has a row for each, with the same times.

    Parameters
    ----------
    job, node, gpu_mask : (runs,)
    start_s, end_s : (runs,)
    """

    job: Integers
    node: Integers
    gpu_mask: Integers
    start_s: Floats
    end_s: Floats

    def take(self, rows: Integers | slice) -> Runs:
        """Some of the runs."""
        return Runs._make(column[rows] for column in self)


@dataclass(frozen=True)
class Happened:
    """What a variant made of a day.

    Parameters
    ----------
    services : where and when each ran
    runs, end_s : of jobs, and (jobs,) completions
    batches : schedules, times since the release
    """

    services: Schedule
    runs: Runs
    end_s: Floats
    batches: tuple[far.Schedule, ...]


def tasks_in(group: str, name: Texts, cpu_milli: Integers, num_gpus: Integers,
             gpu_milli: Integers) -> Tasks:
    """Tasks of a placement group that ask for no memory and no model."""
    count = len(name)
    return Tasks(name, cpu_milli, np.zeros(count, np.int64), num_gpus, gpu_milli,
                 np.full(count, "", object), np.full(count, group, object))


def whole_day(day: Day, happened: Happened) -> tuple[Problem, Schedule]:
    """All that held anything, as one problem and one schedule."""
    runs = happened.runs
    gpus = np.bitwise_count(runs.gpu_mask).astype(np.int64)
    names = np.array([f"job-{job}" for job in runs.job], object)
    parts = [(day.services.tasks, happened.services),
             (tasks_in(GENERAL, names, WORKER_MILLI * gpus, gpus, np.full(len(gpus), 1000)),
              Schedule(*runs[1:]))]
    for work, schedule in zip(day.batches, happened.batches, strict=True):
        tree = work.mig.tree
        on = tree.gpu[schedule.instance]
        milli = 1000 * tree.size[schedule.instance] // work.mig.num_slices
        tasks = tasks_in(CUT, work.batch.name, np.full(len(on), TASK_MILLI),
                         np.ones(len(on), np.int64), milli)
        parts.append((tasks, Schedule(
            work.node[on], 1 << work.gpu[on], work.release_s + schedule.start_s,
            work.release_s + schedule.end_s - ROUNDING_S)))
    held = Tasks(*(np.concatenate([getattr(tasks, field.name) for tasks, _ in parts])
                   for field in fields(Tasks)))
    node, gpu_mask, start_s, end_s = map(np.concatenate, zip(*(times[:4] for _, times in parts), strict=True))
    whole = Schedule(node, gpu_mask, start_s, end_s)
    return problem_with(day.nodes, held, whole.start_s, whole.end_s - whole.start_s), whole


def service_faults(day: Day, services: Schedule) -> Iterator[str]:
    """Services that did not run, or not as they should: constraint 2."""
    yield from time_violations(day.services, services)
    name = day.services.tasks.name
    for is_wrong, words in ((services.node < 0, "never ran"),
                            (services.start_s % TICK_S != 0, "starts between two ticks")):
        for task in np.flatnonzero(is_wrong).tolist():
            yield f"service: {name[task]} {words}"


def pace_of(day: Day, job: int, node: Integers, gpu_mask: Integers) -> float:
    """Steps/s of a job on GPUs of some nodes, 0 where it cannot run."""
    types = day.nodes.train_type[node]
    gpus = int(np.bitwise_count(gpu_mask).sum())
    if gpus not in COUNTS or (types < 0).any():
        return 0.0
    table = day.training.rate if len(node) == 1 else day.training.spread
    return float(table[job, COUNTS.index(gpus), types].min())


def job_faults(day: Day, job: int, runs: Runs, end_s: float) -> Iterator[str]:
    """What is wrong with the runs of a job, in the order of their starts: constraint 3."""
    done = 0.0
    last_s = float(day.training.submit_s[job])
    begins = np.flatnonzero(np.diff(runs.start_s, prepend=-np.inf)).tolist()
    for begin, behind in pairwise([*begins, len(runs.start_s)]):
        gang = runs.take(slice(begin, behind))
        start_s = float(gang.start_s[0])
        pace = pace_of(day, job, gang.node, gang.gpu_mask)
        if start_s < last_s:
            yield f"job {job} runs from {start_s} s on, and is not free before {last_s} s"
        if pace <= 0:
            yield f"job {job} cannot run where it is at {start_s} s"
        if np.ptp(gang.end_s) > 0 or len(set(gang.node.tolist())) < len(gang.node):
            yield f"job {job} has a torn gang at {start_s} s"
        done += max(0.0, float(gang.end_s[0]) - start_s - RESTART_S) * pace
        last_s = float(gang.end_s.max())
    if abs(done / day.training.steps[job] - 1) > 1e-6:
        yield f"job {job} did {done:.6g} of {day.training.steps[job]:.6g} steps"
    if end_s != last_s:
        yield f"job {job} ends at {end_s} s, and its last run at {last_s} s"


def faults_of(day: Day, happened: Happened) -> Iterator[str]:
    """Every violated constraint, in a sentence."""
    yield from service_faults(day, happened.services)
    order = np.lexsort((happened.runs.start_s, happened.runs.job))
    runs = happened.runs.take(order)
    jobs = np.arange(len(happened.end_s))
    begin, behind = (np.searchsorted(runs.job, jobs, side).tolist() for side in ("left", "right"))
    for job, end_s in enumerate(happened.end_s.tolist()):
        yield from job_faults(day, job, runs.take(slice(begin[job], behind[job])), end_s)
    problem, schedule = whole_day(day, happened)
    yield from place_violations(problem, schedule, np.zeros(len(schedule.node), bool))
    yield from (sentence for _, sentence in capacity_violations(problem, schedule))
    if not (schedule.end_s <= HORIZON_S).all():
        yield f"horizon: something still runs after {HORIZON_S} s"


def check_day(day: Day, happened: Happened) -> None:
    """Check what happened against all constraints of a day.

    Parameters
    ----------
    day, happened : the problem, and what a variant made of it

    Raises
    ------
    ValueError : naming the first thing that cannot be
    """
    for work, schedule in zip(day.batches, happened.batches, strict=True):
        far.check(work.mig, work.batch, schedule)
    if fault := next(faults_of(day, happened), None):
        raise ValueError(fault)


ASLEEP_AFTER_S = 600.0
ASLEEP_W = 10.0


def holdings_of(day: Day, happened: Happened) -> Holdings:
    """All that held anything, in the terms of the meter."""
    problem, held = whole_day(day, happened)
    return Holdings(held.node, held.gpu_mask, problem.tasks.gpu_milli, problem.tasks.cpu_milli, held.start_s,
                    held.end_s)


def bill_of_day(day: Day, happened: Happened) -> dict[str, float]:
    """What a day came to.

    Parameters
    ----------
    day, happened : the problem, and what a variant made of it

    Returns
    -------
    energy_kwh, energy_eur, co2_kg, job_penalty_eur, batch_penalty_eur, total_eur, late_jobs,
    mean_jct_h and job_wait_h (jobs), service_wait_min, makespan_h (longest batch)
    """
    price, carbon, _ = day.tariff
    edges_s = with_edges(np.array([0.0, HORIZON_S]), [price, carbon])
    fine = meter(day.nodes.cluster, holdings_of(day, happened), power_of_nodes(day.nodes), edges_s,
                 asleep_after_s=ASLEEP_AFTER_S, asleep_w=ASLEEP_W)
    hours = np.diff(edges_s) / 3600
    runs = happened.runs
    submit_s = day.training.submit_s
    late_s = np.maximum(0.0, happened.end_s - day.training.due_s)
    begins_s = pd.Series(runs.start_s).groupby(runs.job).min().to_numpy()
    waits_s = happened.services.start_s - day.services.submit_s
    pairs = list(zip(day.batches, happened.batches, strict=True))
    tasks_late_s = np.concatenate([np.zeros(0), *(np.maximum(
        0.0, work.release_s + schedule.end_s - work.due_s) for work, schedule in pairs)])
    weights = np.concatenate([np.zeros(0), *(work.weight_eur_per_s for work in day.batches)])
    bill = {
        "energy_kwh": float((fine["asleep_w"] * hours).sum() / 1000),
        "energy_eur": float(amounts_in(fine, price, "asleep_w").sum()),
        "co2_kg": float(amounts_in(fine, carbon, "asleep_w").sum() / 1000),
        "job_penalty_eur": float(late_s @ day.training.weight_eur_per_s),
        "batch_penalty_eur": float(tasks_late_s @ weights),
        "late_jobs": float((late_s > 0).sum()),
        "mean_jct_h": float((happened.end_s - submit_s).mean() / 3600),
        "job_wait_h": float((begins_s - submit_s).mean() / 3600),
        "service_wait_min": float(waits_s.mean() / 60),
        "makespan_h": max((schedule.makespan_s for _, schedule in pairs), default=0.0) / 3600}
    return {**bill, "total_eur": sum(
        bill[name] for name in ("energy_eur", "job_penalty_eur", "batch_penalty_eur"))}


class Prices(NamedTuple):
    """Least watts of work, (nodes,): for a whole GPU with its part of the idle node, and a vCPU."""

    gpu_w: Floats
    cpu_w: Floats
    asleep_w: Floats


@lru_cache(maxsize=4)
def least_prices(nodes: Nodes) -> Prices:
    """What a GPU and a vCPU draw at least on each node."""
    power = power_of_nodes(nodes)
    slope = slope_of(power)
    gpus = np.maximum(power.num_gpus, 1)
    whole = np.full(int(power.num_gpus.max()), 1000)
    idle_w = np.array([cpu_power_w(power, node, power.cpu_milli[node])
                       + gpu_power_w(power, node, whole) for node in range(len(gpus))])
    awake_w = np.maximum(0.0, idle_w - ASLEEP_W)
    return Prices(slope * (power.gpu_full_w - power.gpu_idle_w) + awake_w / gpus,
                  slope * (power.cpu_full_w - power.cpu_idle_w) / (2 * power.cpu_cores),
                  np.minimum(idle_w, ASLEEP_W))


def least_service_w(day: Day, prices: Prices) -> Floats:
    """(services,) watts of each at its cheapest place."""
    tasks = day.services.tasks
    watts = np.zeros(len(tasks))
    is_general = day.nodes.mig_model == ""
    for spec in np.unique(tasks.gpu_spec.astype(str)):
        models = spec.split("|") if spec else day.nodes.cluster.gpu_model
        may = is_general & np.isin(day.nodes.cluster.gpu_model.astype(str), models)
        has = may & (day.nodes.cluster.num_gpus > 0)
        mine = tasks.gpu_spec == spec
        watts[mine] = (tasks.gpu_demand_milli[mine] / 1000 * prices.gpu_w[has].min()
                       + tasks.cpu_milli[mine] / 1000 * prices.cpu_w[is_general].min())
    return watts


def least_job_kwh(day: Day, prices: Prices) -> Floats:
    """(jobs,) energy of each on the type and number of GPUs that suit it best."""
    types = day.nodes.train_type
    watts = prices.gpu_w + WORKER_MILLI / 1000 * prices.cpu_w
    of_type = np.array([watts[types == kind].min() for kind in range(len(day.nodes.type_name))])
    rate = np.maximum(day.training.rate, day.training.spread)
    joules: Floats = day.training.steps[:, None, None] * np.array(COUNTS)[:, None] * of_type / rate
    least: Floats = joules.min(axis=(1, 2)) / 3.6e6
    return least


def least_task_kwh(work: MigWork, prices: Prices) -> Floats:
    """(tasks,) energy of each task of a batch on the size that suits it best."""
    share = 1000 * np.array(work.mig.sizes) // work.mig.num_slices / 1000
    cpu_w = TASK_MILLI / 1000 * prices.cpu_w[work.node].min()
    watts = share * prices.gpu_w[work.node].min() + cpu_w
    least: Floats = (work.batch.times_s * watts).min(axis=1) / 3.6e6
    return least


def cheapest_hours(price: Rate, from_s: Floats, length_s: Floats) -> Floats:
    """Least integral of the price over a window of each length, from some time on, EUR h/kWh."""
    ticks = np.arange(0.0, HORIZON_S + TICK_S, TICK_S)
    at = np.searchsorted(price.since_s, ticks[:-1], side="right") - 1
    upto = np.append(0.0, np.cumsum(price.value[at] * TICK_S / 3600))
    found = np.empty(len(from_s))
    for i, (begin, length) in enumerate(zip(from_s / TICK_S, length_s / TICK_S, strict=True)):
        windows = upto[int(length):] - upto[:len(upto) - int(length)]
        found[i] = windows[int(begin):].min()
    return found


def lowest_after(price: Rate, from_s: Floats) -> Floats:
    """Lowest price from some times on."""
    ends_s = np.append(price.since_s[1:], price.until_s)
    return np.array([price.value[ends_s > begin].min() for begin in from_s])


def bound_of_day(day: Day) -> dict[str, float]:
    """What no schedule of a day can go below.

    Returns
    -------
    energy_kwh, energy_eur, penalty_eur and total_eur
    """
    prices = least_prices(day.nodes)
    watts = least_service_w(day, prices)
    services = day.services
    floor_kw = prices.asleep_w.sum() / 1000
    job_kwh = least_job_kwh(day, prices)
    task_kwh = [least_task_kwh(work, prices) for work in day.batches]
    energy = (floor_kw * HORIZON_S / 3600 + watts @ services.duration_s / 3.6e6 + job_kwh.sum()
              + sum(kwh.sum() for kwh in task_kwh))
    eur = float(floor_kw * cheapest_hours(day.tariff.price, np.zeros(1), np.array([HORIZON_S]))[0])
    hours = cheapest_hours(day.tariff.price, services.submit_s, services.duration_s)
    eur += float(watts @ hours) / 1000
    eur += float(job_kwh @ lowest_after(day.tariff.price, day.training.submit_s))
    eur += sum(kwh.sum() * lowest_after(day.tariff.price, np.array([work.release_s]))[0]
               for work, kwh in zip(day.batches, task_kwh, strict=True))
    penalty = least_penalty_eur(day)
    return {"energy_kwh": float(energy), "energy_eur": eur, "penalty_eur": penalty,
            "total_eur": eur + penalty}


def least_penalty_eur(day: Day) -> float:
    """Penalties if everything ran alone, at once and at its best pace."""
    training = day.training
    pace = np.maximum(training.rate, training.spread).max(axis=(1, 2))
    late_s = training.submit_s + RESTART_S + training.steps / pace - training.due_s
    penalty = float(np.maximum(0.0, late_s) @ training.weight_eur_per_s)
    for work in day.batches:
        late_s = work.release_s + work.batch.times_s.min(axis=1) - work.due_s
        penalty += float(np.maximum(0.0, late_s) @ work.weight_eur_per_s)
    return penalty
