"""The experiments that make every stored frame of Hadar, and the numbers they are compared with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sched_lab.hadar.baselines import Gavel, Tiresias, YarnCs
from sched_lab.hadar.energy import (
    AWAKE,
    OFF,
    Draw,
    EnergyFirst,
    GreenHadar,
    GreenPlanned,
    draw_of,
    energy_bound_wh,
    energy_of,
    watts_of,
)
from sched_lab.hadar.fluid import makespan_bound_s
from sched_lab.hadar.model import (
    SECONDS_PER_HOUR,
    Scheduler,
    State,
    Throughputs,
    Workload,
    check_simulation,
    figure_one,
    nothing_runs,
)
from sched_lab.hadar.planned import Planned, mean_jct_bound_s, type_prices
from sched_lab.hadar.primal_dual import Hadar
from sched_lab.hadar.simulation import (
    HadarE,
    Simulation,
    run_copies,
    run_rounds,
    summary,
)
from sched_lab.hadar.workload import (
    GAVEL_TYPES,
    default_throughputs,
    draw_workload,
    paper_cluster,
)
from sched_lab.lab import plots
from sched_lab.lab.frames import embedded, sha256
from sched_lab.lab.sweeps import Cell, grid
from sched_lab.traces import find_data

from .gavel import RoundShares, read_gavel_throughputs
from .hadar_energy import check_energy, mean_front
from .hadar_theorems import check_theorem, forked_utilisation, most_busy, refused_job
from .reproduction import Claim, Experiment, Workplace
from .spiral import training_curve
from .testbed import MIXES, NODES, node_workload

__all__ = ['EXPERIMENTS', 'CLAIMS', 'FIGURES']

BOUND = "fluid bound"
COPIES_BOUND = "fluid bound, copies"
PRICE_BOUND = "price bound"
READINGS: dict[str, Callable[[], Scheduler]] = {
    "Gavel makespan": lambda: Gavel("makespan"),
    "Gavel max-min": lambda: Gavel("maxmin"),
    "Gavel max-sum": lambda: Gavel("sum"),
    "Hadar eff": lambda: Hadar("eff"),
    "Hadar effnorm": Hadar,
    "Hadar effnorm, one type": lambda: Hadar(mixed=False),
    "Hadar inv": lambda: Hadar("inv"),
    "Hadar sticky": lambda: Hadar(sticky=True),
    "Tiresias": Tiresias,
    "YARN-CS": YarnCs,
    "YARN-CS, one type": lambda: YarnCs(mixed=False),
    "Planned": Planned,
    "Planned, by area": lambda: Planned(by_area=True)}
VARIANTS: dict[str, Callable[[], Scheduler]] = {
    "Hadar effnorm": Hadar,
    "Hadar effnorm, eta 1": lambda: Hadar(eta=1.0),
    "Hadar effnorm, no second pass": lambda: Hadar(backfill=False),
    "Hadar effgpu": lambda: Hadar("effgpu"),
    "Hadar inv, one type": lambda: Hadar("inv", mixed=False),
    "Hadar inv, sticky": lambda: Hadar("inv", sticky=True),
    "Tiresias, 10 GPU-hours": lambda: Tiresias(threshold_gpu_s=36_000.0)}

COPIES: dict[str, Callable[[float], HadarE]] = {
    "HadarE density": lambda slot_s: HadarE(slot_s=slot_s),
    "HadarE longest": lambda slot_s: HadarE("longest", slot_s=slot_s),
    "HadarE trim": lambda slot_s: HadarE(slot_s=slot_s, trim=True)}
AS_LISTED = "Gavel max-min, as listed"  # types in the order of the paper's list of nodes
ON_NODES: dict[str, Callable[[float], Scheduler]] = {
    "Hadar effnorm": lambda slot_s: Hadar(round_s=slot_s),
    "Hadar inv": lambda slot_s: Hadar("inv", round_s=slot_s),
    "Gavel max-min": lambda slot_s: Gavel("maxmin"),
    "Gavel makespan": lambda slot_s: Gavel("makespan"),
    AS_LISTED: lambda slot_s: Gavel("maxmin")}
NODE_RATES = (4.0, 2.0, 2.0, 1.0, 1.0)
WAYS: dict[str, tuple[tuple[float, ...], int, int]] = {  # rates, steps in all and in a round
    "one copy, same steps": ((1.0,), 2000, 100),
    "one copy, same time": ((1.0,), 800, 40),
    "five copies": (NODE_RATES, 2000, 100)}

MEASURED = "gavel/throughputs.csv"
TABLES = ("measured", "synthetic")
WORKLOADS: dict[str, dict[str, Any]] = {
    "K80-hours": {}, "K80-hours x 0.62": {"scale": 0.62},
    "K80-hours, Philly gangs": {"gangs": "philly"}, "P100-hours": {"reference": "p100"},
    "V100-hours": {"reference": "v100"}}


def throughputs(table: str) -> Throughputs:
    """Gavel's measured speeds, or the synthetic ones of the package."""
    if table == "synthetic":
        return default_throughputs()
    path = find_data(MEASURED)
    assert path is not None, "experiments without their data are skipped before"
    return read_gavel_throughputs(path)


def trace_workload(table: str, workload: str, seed: int) -> Workload:
    """Draw the 480 jobs."""
    return draw_workload(throughputs(table), seed, **WORKLOADS[workload])


DONE = tuple(range(0, 101, 2))  # per cent


def time_shares(run: Simulation) -> pd.DataFrame:
    """Share of the time until the last job is done in which at most so many % are held."""
    begin_s = run.intervals["start_s"].iloc[0]
    gpus = run.workload.num_gpus
    length_s = np.minimum(run.intervals["length_s"], begin_s + run.ttd_s - run.intervals["start_s"])
    percent = 100 * run.intervals["busy_gpu_s"] / (gpus * length_s)
    at = np.arange(0, 101, 2.5)
    share = [float(length_s[percent <= most + 1e-9].sum() / length_s.sum()) for most in at]
    return pd.DataFrame({"measure": "time_share", "at": at, "value": share})


def hours_done(run: Simulation) -> pd.DataFrame:
    """Hours after which so many per cent of the jobs are done."""
    hours = np.append(0.0, np.sort(run.jct_s) / SECONDS_PER_HOUR)
    at = [hours[round(percent / 100 * (len(hours) - 1))] for percent in DONE]
    return pd.DataFrame({"measure": "done_h", "at": np.array(DONE, float), "value": at})


def measures(run: Simulation) -> pd.DataFrame:
    """The numbers of `summary`, one row each."""
    return pd.DataFrame([("summary " + name, 0.0, value) for name, value in summary(run).items()],
                        columns=["measure", "at", "value"])


def run_trace(table: str, workload: str, scheduler: str, seed: int) -> pd.DataFrame:
    """One scheduler on one draw of the 480 jobs, or a bound: measure, at, value.

    Parameters
    ----------
    table, workload, seed : of `trace_workload`
    scheduler : a key of `READINGS`, or a bound
    """
    work = trace_workload(table, workload, seed)
    if scheduler == BOUND:
        bound_h = makespan_bound_s(work.cluster, work.jobs) / SECONDS_PER_HOUR
        return pd.DataFrame({"measure": ["summary ttd_h"], "at": [0.0], "value": [bound_h]})
    if scheduler == PRICE_BOUND:
        end_s, _ = type_prices(work.cluster, work.jobs)
        bounds_h = np.array([end_s, mean_jct_bound_s(work.cluster, work.jobs)]) / SECONDS_PER_HOUR
        names = ["summary ttd_h", "summary mean_jct_h"]
        return pd.DataFrame({"measure": names, "at": 0.0, "value": bounds_h})
    run = run_rounds(work, READINGS[scheduler]())
    return pd.concat([measures(run), hours_done(run), time_shares(run)])


TRACE_CELL = ("table", "workload", "scheduler", "seed")


def runs_of(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per run, a column per measure."""
    rows = frame[frame["measure"].str.startswith("summary ")]
    names = list(dict.fromkeys(rows["measure"]))
    order = pd.MultiIndex.from_frame(rows[list(TRACE_CELL)].drop_duplicates())
    wide = rows.pivot(index=list(TRACE_CELL), columns="measure", values="value").loc[order, names]
    return wide.set_axis([name.removeprefix("summary ") for name in names], axis=1).reset_index()


def curve_of(frame: pd.DataFrame, measure: str) -> pd.DataFrame:
    """A row per run and point of a curve, for the main workload."""
    rows = frame[frame["measure"].str.startswith(measure) & (frame["workload"] == "K80-hours")]
    return rows.drop(columns=["workload", "measure"]).rename(
        columns={"at": "percent", "value": measure})


def run_variant(table: str, scheduler: str, round_s: float, seed: int) -> dict[str, float]:
    """Run other readings of Hadar and Tiresias, and rounds of other lengths.

    Parameters
    ----------
    table, seed : of `trace_workload`
    scheduler : a key of `VARIANTS` or `READINGS`
    round_s : s
    """
    how = (VARIANTS | READINGS)[scheduler]()
    if isinstance(how, Hadar):
        how = replace(how, round_s=round_s)
    return summary(run_rounds(trace_workload(table, "K80-hours", seed), how, round_s=round_s))


def time_decision(table: str, num_jobs: int, scheduler: str) -> dict[str, float]:
    """Processor time of a decision, least of five after one to warm up.

    Parameters
    ----------
    table : of speeds
    num_jobs : on a cluster that grows with them
    scheduler : a key of `READINGS`
    """
    nodes_per_type = max(2, round(num_jobs / 96))  # as in the trace, and room for a gang of eight
    work = draw_workload(throughputs(table), 0, num_jobs=num_jobs)
    node_name, cluster = paper_cluster(nodes_per_type)
    work = replace(work, node_name=node_name, cluster=cluster)
    nothing = np.zeros(num_jobs)
    state = State(cluster, work.jobs, 0.0, np.arange(num_jobs), work.jobs.steps, nothing_runs(),
                  nothing, nothing)
    spent_s = []
    for _ in range(6):
        how = READINGS[scheduler]()
        begin_s = time.process_time()
        how.allocate(state)
        spent_s.append(time.process_time() - begin_s)
    return {"gpus": work.num_gpus, "decision_ms": 1000 * min(spent_s[1:])}


FORMULAS = ("fp32/sqrt(V)", "tensor/sqrt(V)", "sqrt(tensor/V)")
SLOTS_S = (90.0, 180.0, 360.0, 720.0)
NODE_MEASURES = ("ttd_s", "mean_jct_s", "min_jct_s", "max_jct_s", "cru", "gru", "rounds",
                 "rounds_with_idle_nodes")


def as_listed(work: Workload) -> Workload:
    """Put the GPU types into the order of the nodes; `node_workload` has fast types first."""
    order = list(dict.fromkeys(work.cluster.node_type.tolist()))
    node_type = np.array([order.index(kind) for kind in work.cluster.node_type])
    jobs = work.jobs._replace(rate=work.jobs.rate[:, order],
                              spread_rate=work.jobs.spread_rate[:, order])
    return replace(work, type_name=tuple(work.type_name[kind] for kind in order), jobs=jobs,
                   cluster=work.cluster._replace(node_type=node_type))


def run_of_mix(work: Workload, slot_s: float, scheduler: str) -> Simulation:
    """Run a mix as copies or as gangs."""
    if scheduler in COPIES:
        return run_copies(work, COPIES[scheduler](slot_s))
    work = as_listed(work) if scheduler == AS_LISTED else work
    return run_rounds(work, ON_NODES[scheduler](slot_s), round_s=slot_s)


def run_nodes(cluster: str, mix: str, formula: str, slot_s: float,
              scheduler: str) -> dict[str, float]:
    """Run a mix on five nodes: HadarE with forked jobs, the others without.

    Parameters
    ----------
    cluster, mix, formula : of `node_workload`
    slot_s : s, length of a round
    scheduler : a key of `COPIES` or `ON_NODES`, or a bound
    """
    work = node_workload(cluster, mix, formula)
    if scheduler in (BOUND, COPIES_BOUND):
        all_nodes = work.jobs.rate[0, work.cluster.node_type].sum()
        copies_s = work.jobs.steps.sum() / all_nodes
        gangs_s = makespan_bound_s(work.cluster, work.jobs)
        least_s = gangs_s if scheduler == BOUND else copies_s
        return dict.fromkeys(NODE_MEASURES, np.nan) | {"ttd_s": float(least_s)}
    run = run_of_mix(work, slot_s, scheduler)
    used = run.history.groupby("round")["node"].nunique()
    idle = int((used.iloc[:-1] < len(work.node_name)).sum())
    values = [run.ttd_s, run.jct_s.mean(), run.jct_s.min(), run.jct_s.max(), run.cru, run.gru,
              len(run.intervals), idle]
    return dict(zip(NODE_MEASURES, map(float, values), strict=True))


def train(way: str, seed: int) -> dict[str, float]:
    """Train in copies, or in one; what was learned in the end."""
    rates, num_steps, steps_per_round = WAYS[way]
    curve = training_curve(seed, rates, num_steps=num_steps, steps_per_round=steps_per_round)
    return {name: float(curve[name].iloc[-1]) for name in ("loss", "accuracy")}


def speed_ratios(table: str) -> pd.DataFrame:
    """How much faster a V100 is than a K80, by model: least and largest over batch sizes."""
    found = throughputs(table)
    of_model: dict[str, list[float]] = {}
    for (key, workers), row in sorted(found.row.items()):
        if workers == 1:
            ratio = found.rate[row, 0] / found.rate[row, 2]
            of_model.setdefault(key.split(" (")[0], []).append(ratio)
    rows = [(model, min(ratios), max(ratios)) for model, ratios in of_model.items()]
    return pd.DataFrame(rows, columns=["model", "least", "largest"])


Watts = tuple[float, ...]
BLIND = ("Gavel makespan", "Gavel max-min", "Hadar effnorm", "Hadar inv", "Tiresias", "YARN-CS",
         "Planned")
GREEN: dict[str, Callable[[Watts], Scheduler]] = {
    **{f"hadar-green:{price:g}": partial(lambda gpu_w, per_kwh: GreenHadar(
        gpu_w=gpu_w, per_kwh=per_kwh), per_kwh=price)
       for price in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)},
    **{f"planned-green:{slack:g}": partial(lambda gpu_w, slack: GreenPlanned(
        gpu_w=gpu_w, slack=slack), slack=slack) for slack in (0.0, 0.05, 0.1, 0.2, 0.4)},
    **{f"energy-first:{ratio:g}": partial(EnergyFirst, ratio=ratio) for ratio in (1.0, 1.5)}}
TIMES = (1.0, 1.01, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)  # of the shortest
S_PER_WH = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)


def energy_question(table: str, seed: int) -> tuple[Workload, dict[str, Draw]]:
    """The 480 jobs, and what the cluster draws if empty nodes stay on, and if they are off."""
    work = trace_workload(table, "K80-hours", seed)
    watts = watts_of(work.type_name)
    return work, {name: draw_of(work.cluster, watts, sleep)
                  for name, sleep in (("on", AWAKE), ("off", OFF))}


def run_energy(table: str, scheduler: str, seed: int) -> dict[str, float]:
    """Energy and times of one scheduler on one draw of the 480 jobs, and the bounds at them.

    Parameters
    ----------
    table, seed : of `trace_workload`
    scheduler : one of `BLIND` or of `GREEN`
    """
    work, draws = energy_question(table, seed)
    watts = watts_of(work.type_name)
    blind = scheduler in BLIND
    how = READINGS[scheduler]() if blind else GREEN[scheduler](tuple(draws["on"].busy_w))
    run = run_rounds(work, how)
    check_simulation(work, run)
    account = energy_of(run, watts)
    check_energy(run, watts, account)
    off_wh = energy_of(run, watts, OFF).whole_wh
    bounds = {name: energy_bound_wh(work, draw, run.ttd_s) for name, draw in draws.items()}
    of_type = dict(zip(work.type_name, account.jobs_wh.sum(axis=0) / 1000, strict=True))
    return {"ttd_h": run.ttd_s / SECONDS_PER_HOUR,
            "mean_jct_h": float(run.jct_s.mean()) / SECONDS_PER_HOUR,
            "median_jct_h": float(np.median(run.jct_s)) / SECONDS_PER_HOUR,
            **{f"{name}_kwh": float(energy) for name, energy in of_type.items()},
            "idle_kwh": float(account.idle_wh.sum()) / 1000,
            "on_kwh": account.whole_wh / 1000, "off_kwh": off_wh / 1000,
            "on_bound_kwh": bounds["on"] / 1000, "off_bound_kwh": bounds["off"] / 1000}


def energy_front(table: str, nodes: str, seed: int) -> pd.DataFrame:
    """Bounds of the 480 jobs: least energy by a time, and lines of energy and the mean.

    Parameters
    ----------
    table, seed : of `trace_workload`
    nodes : "on" or "off", what empty nodes are
    """
    work, draws = energy_question(table, seed)
    draw = draws[nodes]
    shortest_s = makespan_bound_s(work.cluster, work.jobs) * (1 + 1e-9)
    ends = [(factor * shortest_s / SECONDS_PER_HOUR,
             energy_bound_wh(work, draw, factor * shortest_s) / 1000) for factor in TIMES]
    front = mean_front(work, draw, np.array(S_PER_WH))
    lines = zip(front.s_per_wh / SECONDS_PER_HOUR * 1000, front.least_s / SECONDS_PER_HOUR,
                strict=True)
    return pd.DataFrame([("end", *row) for row in ends] + [("mean", *row) for row in lines],
                        columns=["bound", "at", "least"])


SEEDS = (0, 1, 2)
MAIN = list(WORKLOADS)[:2]
EVERY = (BOUND, PRICE_BOUND, *READINGS)
EVERY_ON_NODES = (BOUND, COPIES_BOUND, *COPIES, *ON_NODES)
CELLS: dict[str, tuple[Callable[..., Any], list[Cell]]] = {
    "trace": (run_trace, [
        *grid(table=TABLES, workload=MAIN, scheduler=EVERY, seed=SEEDS),
        *grid(table=TABLES, workload=[name for name in WORKLOADS if name not in MAIN],
              scheduler=EVERY, seed=SEEDS[:1])]),
    "variants": (run_variant, [
        *grid(table=TABLES, scheduler=list(VARIANTS), round_s=[360.0], seed=SEEDS),
        *grid(table=TABLES, scheduler=["Hadar effnorm", "Gavel max-min"],
              round_s=[90.0, 180.0, 720.0], seed=SEEDS[:1])]),
    "decisions": (time_decision, grid(
        table=TABLES[1:], num_jobs=[32, 64, 128, 256, 512, 1024, 2048],
        scheduler=["Hadar effnorm", "Gavel max-min", "Gavel makespan", "Gavel max-sum"])),
    "nodes": (run_nodes, [
        *grid(cluster=list(NODES), mix=list(MIXES), formula=FORMULAS[:1], slot_s=SLOTS_S,
              scheduler=EVERY_ON_NODES),
        *grid(cluster=list(NODES), mix=list(MIXES), formula=FORMULAS[1:], slot_s=[90.0, 360.0],
              scheduler=EVERY_ON_NODES)]),
    "training": (train, grid(way=list(WAYS), seed=range(6))),
    "speed_ratios": (speed_ratios, grid(table=TABLES[:1])),
    "energy": (run_energy, grid(table=TABLES, scheduler=[*BLIND, *GREEN], seed=SEEDS)),
    "energy_fronts": (energy_front, grid(table=TABLES, nodes=["on", "off"], seed=SEEDS))}

VERSION = 2  # of all experiments: raised when a change of the package changes their results


def sweep_of(name: str, place: Workplace) -> pd.DataFrame:
    """Frame of all cells of an experiment."""
    function, cells = CELLS[name]
    about: dict[str, Any] = {"version": VERSION}
    if any(cell.get("table") == "measured" for cell in cells):
        about[MEASURED] = sha256(place.data(MEASURED))
    return place.sweep(function, cells, name, depends_on=about)


def compute_one(name: str, place: Workplace) -> Mapping[str, pd.DataFrame]:
    """The frame of an experiment that makes one."""
    return {f"hadar/{name}.csv": sweep_of(name, place).round(6)}


def compute_trace(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """The three frames of the 480 jobs."""
    whole = sweep_of("trace", place)
    frames = {"trace": runs_of(whole), "curves": curve_of(whole, "done_h"),
              "utilisation": curve_of(whole, "time_share")}
    return {f"hadar/{name}.csv": frame.round(6) for name, frame in frames.items()}


def compute_decisions(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """Times of decisions, with nothing else beside them."""
    return compute_one("decisions", replace(place, workers=1))


def compute_energy(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """What runs draw, and the bounds; the sidecars say with which watts."""
    watts = watts_of(GAVEL_TYPES)
    frames = {}
    for name in ("energy", "energy_fronts"):
        frame = sweep_of(name, place).round(6)
        frame.attrs["watts"] = dict(zip(GAVEL_TYPES, zip(
            watts.idle_w.tolist(), watts.full_w.tolist(), strict=True), strict=True))
        frames[f"hadar/{name}.csv"] = frame
    return frames


def _experiment(name: str, sentence: str, minutes: float, *, frames: tuple[str, ...] = (),
                compute: Callable[[Workplace], Mapping[str, pd.DataFrame]] | None = None,
                measured: tuple[str, ...] = ()) -> Experiment:
    """An experiment of this chapter; it needs measured speeds if one of its cells does."""
    _, cells = CELLS[name]
    needs = any(cell.get("table") == "measured" for cell in cells)
    paths = tuple(f"hadar/{frame}.csv" for frame in frames or (name,))
    return Experiment(name, sentence, paths, minutes, {"version": VERSION},
                      compute or partial(compute_one, name), measured,
                      (MEASURED,) if needs else ())


EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (
    _experiment("trace", "Every scheduler and two bounds on 480 jobs, five ways to draw them", 12,
                frames=("trace", "curves", "utilisation"), compute=compute_trace),
    _experiment("variants", "What the paper leaves to choose, and rounds of other lengths", 5),
    _experiment("decisions", "Processor time of a decision, 32 to 2048 jobs", 0.2,
                compute=compute_decisions, measured=("decision_ms",)),
    _experiment("nodes", "HadarE, Hadar and Gavel on five nodes, with slots of four lengths", 4),
    _experiment("training", "A network that is really trained, in one copy and in five", 0.5),
    _experiment("energy", "What the 480 jobs draw, with and without a price of energy", 8,
                frames=("energy", "energy_fronts"), compute=compute_energy),
    _experiment("speed_ratios", "How much faster a V100 is than a K80, by model", 0.1))}

HADAR = ["Hadar eff", "Hadar effnorm", "Hadar inv"]
GAVEL = ["Gavel max-min", "Gavel makespan", "Gavel max-sum"]
YARN = ["YARN-CS", "YARN-CS, one type"]
TRACE_READINGS = {
    "Hadar": ["Hadar effnorm", "Hadar eff", "Hadar inv"], "Gavel": GAVEL,
    "Tiresias": ["Tiresias"], "YARN-CS": YARN}
NODE_READINGS = {
    "HadarE": list(COPIES), "Hadar": ["Hadar effnorm", "Hadar inv"],
    "Gavel": ["Gavel max-min", "Gavel makespan"], "bound": [COPIES_BOUND]}
SETTING = ["cluster", "formula", "slot_s"]
DEFAULT = (FORMULAS[0], 360.0)
Interval = tuple[float, float, float]  # main reading, least and largest


def number_at(frame: pd.DataFrame, row: str, column: str | int) -> float:
    """One number of a frame."""
    value: Any = frame.loc[row, column]
    return float(value)


class Evidence:
    """What stored frames say about the paper, computed when it is asked for.

    Parameters
    ----------
    frames : by their paths below data/results; those that are asked for
    table : speeds, measured or synthetic
    """

    def __init__(self, frames: Mapping[str, pd.DataFrame], table: str = "measured") -> None:
        self.frames = frames
        self.table = table

    def frame(self, name: str) -> pd.DataFrame:
        """A frame; of one with two tables of speeds, the rows of one."""
        frame = self.frames[f"hadar/{name}.csv"]
        return frame[frame["table"] == self.table] if "table" in frame else frame

    def means(self, workload: str = "K80-hours") -> pd.DataFrame:
        """One row per scheduler, mean over the draws of the 480 jobs."""
        trace = self.frame("trace")
        own = trace[trace["workload"] == workload].drop(columns=["table", "workload", "seed"])
        return own.groupby("scheduler", sort=False).mean()

    @cached_property
    def mean(self) -> pd.DataFrame:
        """One row per scheduler and bound."""
        return self.means()

    @cached_property
    def points(self) -> pd.DataFrame:
        """One row per scheduler."""
        return self.mean.drop(index=[BOUND, PRICE_BOUND])

    @cached_property
    def bound_h(self) -> float:
        """Before which no schedule of the 480 jobs ends."""
        return number_at(self.mean, BOUND, "ttd_h")

    @cached_property
    def limit(self) -> float:
        """The largest speed-up over Gavel max-min that any scheduler can have."""
        return number_at(self.mean, "Gavel max-min", "ttd_h") / self.bound_h

    @cached_property
    def mixing(self) -> pd.DataFrame:
        """Hadar with gangs of mixed types, and without."""
        return self.points.loc[["Hadar effnorm", "Hadar effnorm, one type"]]

    @cached_property
    def decision_ms(self) -> pd.DataFrame:
        """(schedulers, numbers of jobs) time of a decision."""
        frame = self.frames["hadar/decisions.csv"]
        return frame.pivot(index="scheduler", columns="num_jobs", values="decision_ms")


def growth(evidence: Evidence) -> pd.Series:
    """How much longer a decision takes for 2048 jobs than for 32."""
    return evidence.decision_ms[2048] / evidence.decision_ms[32]


def lengths(evidence: Evidence) -> pd.DataFrame:
    """(schedulers, lengths of a round) TTD of one draw."""
    trace = evidence.frame("trace")
    variants = evidence.frame("variants").query("round_s != 360")
    at_360 = trace[trace["workload"] == "K80-hours"].assign(round_s=360.0)
    one_draw = pd.concat([variants, at_360]).query("seed == 0")
    return one_draw.pivot_table(index="scheduler", columns="round_s", values="ttd_h").dropna()


class NodeEvidence(Evidence):
    """What the runs on five nodes say."""

    @cached_property
    def wide(self) -> dict[str, pd.DataFrame]:
        """For each measure, a row per setting and mix, a column per scheduler."""
        nodes = self.frame("nodes")
        return {name: nodes.pivot(index=[*SETTING, "mix"], columns="scheduler", values=name)
                for name in ("ttd_s", "mean_jct_s", "min_jct_s", "max_jct_s", "cru")}

    @cached_property
    def at(self) -> dict[str, pd.DataFrame]:
        """The same in the default setting, a row per cluster and mix."""
        return {name: pd.DataFrame(frame.xs(DEFAULT, level=("formula", "slot_s")))
                for name, frame in self.wide.items()}

    def ratio(self, quantity: str, who: str, against: str, mix: str = "") -> pd.Series:
        """Speed-up of one scheduler over another in each setting.

        Parameters
        ----------
        quantity : a measure
        who, against : columns of `wide`
        mix : one of `MIXES`; the mean over all of them if left out
        """
        frame = self.wide[quantity]
        better, worse = (who, against) if quantity == "cru" else (against, who)
        each = frame[better] / frame[worse]
        if mix:
            return each.xs(mix, level="mix")
        return each.groupby(level=SETTING, sort=False).mean()

    def interval(self, quantity: str, who: str, against: str, cluster: str,
                 mix: str = "") -> Interval:
        """Main reading of a speed-up, least and largest over all settings and readings.

        Parameters
        ----------
        quantity : a measure
        who, against : keys of `NODE_READINGS`
        cluster, mix : of `node_workload`; all mixes if left out
        """
        ratios = [self.ratio(quantity, one, other, mix) for one in NODE_READINGS[who]
                  for other in NODE_READINGS[against]]
        every = pd.concat(ratios)[cluster]
        return float(ratios[0][(cluster, *DEFAULT)]), float(every.min()), float(every.max())


def best_slots(evidence: NodeEvidence, scheduler: str) -> pd.DataFrame:
    """CRU of each slot, and the best slot by CRU and by TTD, a row per cluster and mix.

    Parameters
    ----------
    evidence : with the runs on five nodes
    scheduler : a column of `wide`
    """
    cru, ttd_s = (evidence.wide[name][scheduler].xs(DEFAULT[0], level="formula").unstack("slot_s")
                  for name in ("cru", "ttd_s"))
    table = cru.round(3).assign(
        **{"best by CRU": cru.idxmax(axis=1), "best by TTD": ttd_s.idxmin(axis=1)})
    return table.reindex(pd.MultiIndex.from_product([NODES, MIXES], names=["cluster", "mix"]))


def narrower(evidence: NodeEvidence, who: str, against: str) -> pd.Series:
    """(clusters and mixes) whether completion times differ less; of M-1, one job, they do not."""
    spread_s = evidence.at["max_jct_s"] - evidence.at["min_jct_s"]
    spread_s = spread_s[spread_s.index.get_level_values("mix") != "M-1"]
    return spread_s[who] < spread_s[against]


def cru_gain(evidence: NodeEvidence) -> pd.DataFrame:
    """(mixes, clusters) CRU of HadarE over that of Gavel."""
    cru = evidence.at["cru"]
    gain = cru["HadarE density"] / cru["Gavel max-min"]
    return gain.unstack("cluster").reindex(list(MIXES))


def loss(evidence: NodeEvidence) -> pd.Series:
    """What is left to learn, by way to train, mean over the seeds."""
    return evidence.frame("training").groupby("way")["loss"].mean()


class Number(NamedTuple):
    """A number of the paper: where it stands, what it is, of whom, over whom."""

    where: str
    quantity: str
    setting: str
    mix: str
    scheduler: str
    against: str
    value: float


def paper_numbers() -> list[Number]:
    """All numbers of the paper, in its order."""
    table = pd.read_csv(embedded("paper/hadar.csv"), keep_default_na=False)
    return [Number(*row) for row in table[list(Number._fields)].itertuples(index=False, name=None)]


@cache
def figure_one_in_use() -> tuple[tuple[float, ...], int]:
    """Fig. 1: share of the GPUs in use in each round of Gavel, and the most in six rounds."""
    shares = np.array([[0.6, 0.4, 0], [0.2, 0.6, 0.2], [0.2, 0, 0.8]])
    work = figure_one()
    run = run_rounds(work, RoundShares(shares), round_s=1.0, restart_s=0.0)
    busy = run.history.groupby("round")["gpus"].sum() / work.num_gpus
    most = most_busy(work.jobs, np.array([2, 3, 1]), 6)
    assert most is not None and most_busy(work.jobs, np.array([2, 3, 1]), 5) is None
    return tuple(busy), most


TRACE_QUANTITY = {"ttd_ratio": "ttd_h", "median_ratio": "median_jct_h"}
NODE_QUANTITY = {"ttd_ratio": "ttd_s", "jct_ratio": "mean_jct_s", "cru_ratio": "cru"}
NODE_SECONDS = ("ttd_s", "mean_jct_s", "min_jct_s", "max_jct_s", "cru")
NOTHING: Interval = (np.nan, np.nan, np.nan)


def of_figure_one(row: Number) -> float:
    """Gavel's side of Fig. 1, or the most that whole gangs of 3, 2 and 2 on six GPUs allow."""
    busy, most = figure_one_in_use()
    gavel = {"cru_round_1_percent": 100 * busy[0], "cru_round_2_percent": 100 * busy[1],
             "cru_percent": 100 * float(np.mean(busy)), "rounds": len(busy)}
    whole = {"cru_round_1_percent": 500 / 6, "cru_round_2_percent": 500 / 6,
             "cru_percent": 100 * most / 36, "rounds": 6}
    return (gavel if row.scheduler == "Gavel" else whole)[row.quantity]


def of_trace(evidence: Evidence, row: Number) -> list[float]:
    """Main reading first: a ratio of means over the draws, or a mean."""
    points = evidence.points
    if row.against:
        column = points[TRACE_QUANTITY[row.quantity]]
        return [column[b] / column[a] for a in TRACE_READINGS[row.scheduler]
                for b in TRACE_READINGS[row.against]]
    if row.quantity == "changed_percent":  # of running jobs that keep their GPUs
        names = ["Hadar sticky", *TRACE_READINGS["Hadar"]]
        return [100 * number_at(points, name, "changed_share") for name in names]
    return list(points.loc[TRACE_READINGS[row.scheduler], row.quantity])


def of_nodes(evidence: NodeEvidence, row: Number) -> Interval:
    """A ratio on five nodes."""
    if row.quantity == "ttd_reduction_percent":
        main, least, largest = evidence.interval("ttd_s", "HadarE", "Hadar", row.setting)
        return 100 - 100 / main, 100 - 100 / least, 100 - 100 / largest
    if row.setting == "nodes":  # over whom is not said: over Gavel and Hadar, on both clusters
        each = [evidence.interval("cru", "HadarE", against, cluster)
                for against in ("Gavel", "Hadar") for cluster in NODES]
        mains, leasts, largests = zip(*each, strict=True)
        return float(np.mean(mains)), min(leasts), max(largests)
    if row.quantity in NODE_QUANTITY:
        return evidence.interval(NODE_QUANTITY[row.quantity], row.scheduler, row.against,
                                 row.setting, row.mix)
    seconds = evidence.wide[row.quantity][NODE_READINGS[row.scheduler][0]]
    return seconds[(row.setting, *DEFAULT, row.mix)], np.nan, np.nan


def frames_of(row: Number) -> tuple[str, ...]:
    """Frames that decide a number of the paper."""
    if row.where == "Table IV" or row.setting == "toy":
        return ()
    name = {"speed_ratio": "speed_ratios", "decision_s": "decisions"}.get(
        row.quantity, "trace" if row.setting == "trace" else "nodes")
    return (f"hadar/{name}.csv",)


def ours(evidence: NodeEvidence, row: Number) -> Interval:
    """Main reading, least and largest; nothing if the number cannot be computed."""
    if row.where == "Table IV":
        return NOTHING
    if row.setting == "toy":
        return of_figure_one(row), np.nan, np.nan
    if row.quantity == "speed_ratio":
        speeds = evidence.frame("speed_ratios").set_index("model")
        values = [number_at(speeds, row.mix, name) for name in ("largest", "least")]
    elif row.quantity == "decision_s":
        values = [number_at(evidence.decision_ms, "Hadar effnorm", 2048) / 1000]
    elif row.setting == "trace":
        values = of_trace(evidence, row)
    else:
        return of_nodes(evidence, row)
    return values[0], min(values), max(values)


def is_loose(row: Number) -> bool:
    """Whether the order of ties, or another optimum, moves a number by more than 5 %."""
    return row.against == "Tiresias" or (row.quantity == "median_ratio" and row.against == "Gavel")


def is_near(row: Number, found: float) -> bool:
    """Whether a number is within 5 % of the paper's."""
    return abs(found - row.value) <= 0.05 * row.value


def status_of(evidence: Evidence, row: Number, found: float) -> str:
    """Status of a number, by rule."""
    if row.where == "Table IV" or row.quantity in NODE_SECONDS:
        return "not testable"
    if row.setting == "toy" and row.scheduler == "Hadar":
        beyond = found < row.value if "percent" in row.quantity else found > row.value
        return "impossible" if beyond else "reproduced" if is_near(row, found) else "not reproduced"
    if row.quantity == "ttd_h" and row.value < evidence.bound_h:
        return "impossible"
    if row.quantity == "decision_s":
        return "reproduced" if found <= row.value else "not reproduced"
    if is_near(row, found) and (found > 1) == (row.value > 1) and not is_loose(row):
        return "reproduced"
    floor = 1.0 if row.quantity.endswith("ratio") else np.inf
    floor = 0.0 if row.quantity == "ttd_reduction_percent" else floor
    return "direction only" if found > floor else "not reproduced"


def gain_limit(evidence: NodeEvidence, against: str) -> str:
    """What is the most that forking can gain, in words."""
    aws, testbed = (evidence.interval("ttd_s", "bound", against, cluster)[0] for cluster in NODES)
    return f"bound of this: {aws:.2f} (aws), {testbed:.2f} (testbed)"


def hours_needed(evidence: Evidence) -> str:
    """Bounds on the time of the 480 jobs, in words."""
    small = evidence.means("K80-hours x 0.62")["ttd_h"]
    return (f"bound {evidence.bound_h:.1f} h; with sizes x 0.62 the bound is {small[BOUND]:.1f} h "
            f"and Hadar at {small['Hadar effnorm']:.1f} h")


def changes(evidence: Evidence) -> str:
    """How often something changes, in words."""
    gavel = 100 * number_at(evidence.points, "Gavel max-min", "changed_share")
    return ("running jobs keep their GPUs; the range is for free choice in each round. "
            f"Gavel: {gavel:.0f}")


Reason = str | Callable[[Any], str]

# (quantity, scheduler, against, setting) -> why; the first that fits, with "" for anything
WHY: dict[tuple[str, str, str, str], Reason] = {
    ("ttd_ratio", "Hadar", "Gavel", "trace"):
        lambda evidence: f"no scheduler can exceed {evidence.limit:.2f} on these jobs",
    ("ttd_h", "Hadar", "", ""): hours_needed,
    ("ttd_h", "YARN-CS", "", ""): "long jobs stay on K80s",
    ("ttd_ratio", "Hadar", "YARN-CS", ""): "the end of the trace: long jobs stay on K80s",
    ("ttd_ratio", "Hadar", "Tiresias", ""): "the same",
    ("median_ratio", "Hadar", "", ""):
        "throughput as utility favours long work; only with 1 / JCT, with a worse TTD",
    ("changed_percent", "", "", ""): changes,
    ("decision_s", "", "", ""): "2048 jobs on 252 GPUs, one core",
    ("speed_ratio", "V100", "K80", ""): "measured by Gavel's authors, over batch sizes",
    ("", "Gavel", "", "toy"): "same rounds, same epochs",
    ("cru_round_1_percent", "Hadar", "", "toy"): "gangs of 3, 2, 2 use at most 5 of 6",
    ("cru_round_2_percent", "Hadar", "", "toy"): "5 of 6 is the most there is",
    ("", "Hadar", "", "toy"): "the best any schedule with whole gangs can do",
    ("cru_ratio", "HadarE", "Gavel", ""):
        "as mean of ratios; M-1 alone has the largest part in it",
    ("cru_ratio", "HadarE", "Hadar", ""):
        "our Hadar uses less than our Gavel, so more is left to gain",
    ("cru_ratio", "Hadar", "Gavel", ""): "short jobs first, and nodes idle in the end",
    ("ttd_ratio", "Hadar", "Gavel", ""): "the same",
    ("ttd_ratio", "HadarE", "Gavel", ""): partial(gain_limit, against="Gavel"),
    ("ttd_ratio", "HadarE", "Hadar", ""): partial(gain_limit, against="Hadar"),
    ("ttd_reduction_percent", "", "", ""):
        "1.5 times faster is 33 % less; 80 % less would be five times faster",
    ("cru_ratio", "HadarE", "", "nodes"):
        "over whom is not said; mean over Hadar and Gavel, both clusters",
    ("ttd_s", "", "", ""): "lengths of the jobs are not published",
    ("max_jct_s", "", "", ""): "the same",
    ("min_jct_s", "", "", ""): "the same",
    ("jct_ratio", "Hadar", "Gavel", ""): "short jobs first",
    ("jct_ratio", "HadarE", "", ""): "depends on lengths and overhead, which are assumed",
    ("", "", "", ""): "data, models and training times are not published"}


def why(evidence: Any, row: Number) -> str:
    """Why it is so, in our opinion."""
    given = (row.quantity, row.scheduler, row.against, row.setting)
    reason = next(
        reason for key, reason in WHY.items()
        if all(part in ("", name) for part, name in zip(key, given, strict=True)))
    return reason if isinstance(reason, str) else reason(evidence)


WORDS = {
    "ttd_ratio": "TTD speed-up", "jct_ratio": "JCT speed-up", "cru_ratio": "CRU gain",
    "median_ratio": "median JCT speed-up", "ttd_h": "TTD, h",
    "changed_percent": "rounds with a change, %", "decision_s": "time of a decision, s, at most",
    "speed_ratio": "speed", "cru_round_1_percent": "CRU in round 1, %",
    "cru_round_2_percent": "CRU in round 2, %", "cru_percent": "CRU, %", "rounds": "rounds",
    "max_jct_s": "largest JCT, s", "min_jct_s": "least JCT, s", "ttd_s": "TTD, s",
    "ttd_reduction_percent": "TTD reduced by, %"}
PLACES = {"trace": "480 jobs", "toy": "Fig. 1", "aws": "AWS", "nodes": "five nodes"}


def words_of(row: Number) -> str:
    """A number of the paper in words."""
    over = f" over {row.against}" if row.against else ""
    places = "".join(f", {PLACES.get(name, name)}" for name in (row.setting, row.mix) if name)
    return f"{WORDS.get(row.quantity, row.quantity)}, {row.scheduler}{over}{places}"


def digits(value: float) -> str:
    """Three digits or so."""
    if 0.1 <= value < 10 and value % 1:
        return f"{value:.2f}"
    return f"{value:.{max(3, len(f'{value:.0f}'))}g}"


def in_words(found: Interval) -> str:
    """Main reading and range."""
    main, least, largest = found
    if np.isnan(main):
        return "none"
    span = f" ({digits(least)} to {digits(largest)})" if largest > least + 0.005 else ""
    return digits(main) + span


def decide(row: Number, *frames: pd.DataFrame) -> tuple[str, str, str]:
    """Our number in words, its status, and why."""
    evidence = NodeEvidence(dict(zip(frames_of(row), frames, strict=True)))
    found = ours(evidence, row)
    return in_words(found), status_of(evidence, row, found[0]), why(evidence, row)


def counted(holds: Any) -> tuple[int, int]:
    """How often a condition holds, and of how many."""
    return int(np.sum(holds)), int(np.size(holds))


def verdict(holds: Any) -> tuple[str, str]:
    """In how many cases a claim holds that should hold in all, and its status."""
    number, of = counted(holds)
    failed = "not reproduced" if number <= of / 2 else "direction only"
    return f"in {number} of {of} cases", "reproduced" if number == of else failed


def sentence(where: str, text: str, frames: str, holds: Callable[[Any], Any],
             reason: Reason = "") -> Claim:
    """A claim that should hold in every case.

    Parameters
    ----------
    where, text : place in the paper, and what it says
    frames : names, with blanks between
    holds : evidence -> truths
    reason : in our opinion
    """
    paths = tuple(f"hadar/{name}.csv" for name in frames.split())

    def ours(*given: pd.DataFrame) -> tuple[str, str, str]:
        evidence = NodeEvidence(dict(zip(paths, given, strict=True)))
        said = reason if isinstance(reason, str) else reason(evidence)
        return (*verdict(holds(evidence)), said)

    return Claim(f"{where}: {text}", "", paths, ours)


def ttd_below_gavel(evidence: Evidence) -> Any:
    """Each reading of Hadar against two policies of Gavel."""
    gavel_h = evidence.points.loc[["Gavel max-min", "Gavel makespan"], "ttd_h"]
    return evidence.points.loc[HADAR, "ttd_h"].to_numpy()[:, None] < gavel_h.to_numpy()


def mixing_percent(evidence: Evidence) -> float:
    """By how much gangs of mixed types shorten TTD."""
    with_mixed, without = evidence.mixing["ttd_h"]
    return float(100 * (1 - with_mixed / without))


def growth_words(evidence: Evidence) -> str:
    """How the times of decisions grow, in words."""
    hadar, gavel = growth(evidence)[["Hadar effnorm", "Gavel max-min"]]
    return f"32 to 2048 jobs: Hadar x {hadar:.0f}, Gavel max-min x {gavel:.0f}"


def best_words(evidence: Evidence) -> str:
    """How near to the bound a reading of Hadar comes, in words."""
    least_h = evidence.points.loc[HADAR, "ttd_h"].min()
    return f"{least_h / evidence.bound_h:.2f} of the bound at best"


ON_TRACE = (
    sentence("IV-B", "TTD of Hadar below Gavel's", "trace", ttd_below_gavel,
             "three utilities, two policies of Gavel"),
    sentence("IV-B", "TTD of Hadar below that of Tiresias and YARN-CS", "trace",
             lambda e: e.points.loc[HADAR, "ttd_h"].max()
             < e.points.loc[["Tiresias", *YARN], "ttd_h"], "they are blind to types"),
    sentence("IV-B, Fig. 3", "YARN-CS has the highest GRU", "trace",
             lambda e: e.points.loc["YARN-CS", "backlog_gru"]
             >= e.points.loc[[*HADAR, *GAVEL, "Tiresias"], "backlog_gru"],
             "while jobs wait; the head of the line blocks"),
    sentence("IV-B, Fig. 3", "GRU of Hadar similar to YARN-CS", "trace",
             lambda e: abs(e.points.loc[HADAR, "backlog_gru"]
                           - e.points.loc["YARN-CS", "backlog_gru"]) < 0.05, "within 5 points"),
    sentence("IV-B, Fig. 3", "GRU of Hadar above Gavel's and Tiresias'", "trace",
             lambda e: e.points.loc["Hadar effnorm", "backlog_gru"]
             >= e.points.loc[[*GAVEL, "Tiresias"], "backlog_gru"], "by less than half a point"),
    sentence("I, IV-B", "Gangs of mixed types shorten TTD", "trace",
             lambda e: mixing_percent(e) > 2,
             lambda e: f"by {mixing_percent(e):.1f} %; we ask for 2"),
    sentence("IV", "Rounds of 1.5 to 6 minutes are best", "trace variants",
             lambda e: lengths(e).idxmin(axis=1) <= 360, "12 minutes are worse"),
    sentence("IV-B, Fig. 5", "Hadar and Gavel scale alike", "decisions",
             lambda e: growth(e)["Hadar effnorm"] > growth(e)[GAVEL] / 2, growth_words),
    sentence("VII", "Hadar generates optimal decisions", "trace",
             lambda e: e.points.loc[HADAR, "ttd_h"] < 1.01 * e.bound_h, best_words))


def gap_of(evidence: NodeEvidence) -> pd.Series:
    """TTD of Gavel over that of Hadar."""
    return evidence.at["ttd_s"]["Gavel max-min"] / evidence.at["ttd_s"]["Hadar effnorm"]


def gains_more(evidence: NodeEvidence) -> pd.Series:
    """Whether HadarE gains more mean JCT over Hadar than Hadar over Gavel."""
    jct_s = evidence.at["mean_jct_s"]
    of_hadare = jct_s["Hadar effnorm"] / jct_s["HadarE density"]
    return of_hadare > jct_s["Gavel max-min"] / jct_s["Hadar effnorm"]


def best_slot(evidence: NodeEvidence, scheduler: str) -> pd.Series:
    """(clusters and mixes) slot of largest CRU."""
    return best_slots(evidence, scheduler)["best by CRU"]


def is_large(evidence: NodeEvidence) -> pd.Series:
    """(clusters and mixes) whether the paper calls a mix large."""
    index = best_slot(evidence, "Hadar effnorm").index
    order = list(MIXES)
    return pd.Series({key: order.index(key[1]) >= (4 if key[0] == "aws" else 3) for key in index})


def losses(evidence: NodeEvidence) -> str:
    """What copies and one node have learned, in words."""
    left = loss(evidence)
    alone = left[["one copy, same steps", "one copy, same time"]].max()
    return (f"small network: loss {left['five copies']:.3f} against {alone:.3f} in the same time; "
            "{doc}`42_fork`")


def with_longest(evidence: NodeEvidence) -> str:
    """In how many mixes completion times differ less if the longest job chooses first."""
    number, _ = counted(narrower(evidence, "HadarE longest", "Gavel max-min"))
    return f"with `longest` in {number}"


def below_gavel(quantity: str) -> Callable[[NodeEvidence], pd.Series]:
    """Whether Hadar is below Gavel."""
    return lambda e: e.at[quantity]["Hadar effnorm"] < e.at[quantity]["Gavel max-min"]


ON_FIVE_NODES = (
    sentence("VI-C, Fig. 8", "HadarE gains CRU where jobs are fewer than nodes", "nodes",
             lambda e: cru_gain(e).loc["M-1"] > cru_gain(e).loc["M-5":].max(), "per cluster"),
    sentence("VI-C, Fig. 9", "TTD of Hadar below Gavel's for every mix", "nodes",
             below_gavel("ttd_s"), "one job cannot differ"),
    sentence("VI-C, Fig. 9", "This gap hardly changes with the mix", "nodes",
             lambda e: abs(gap_of(e) / gap_of(e).mean() - 1) < 0.1,
             "within 10 % of its mean, which is below 1"),
    sentence("VI-C, Fig. 10", "JCT of Hadar below Gavel's for every mix", "nodes",
             below_gavel("mean_jct_s"), "one job cannot differ"),
    sentence("VI-C, Fig. 10", "HadarE gains more over Hadar than Hadar over Gavel", "nodes",
             gains_more, "in mixes with few jobs"),
    sentence("VI-C, Fig. 10", "Range of JCT narrower with HadarE than with Gavel", "nodes",
             lambda e: narrower(e, "HadarE density", "Gavel max-min"), with_longest),
    sentence("VI-C, Fig. 10", "and than with Hadar", "nodes",
             lambda e: narrower(e, "HadarE density", "Hadar effnorm")),
    sentence("VI-D, Fig. 11", "Large mixes have the highest CRU at 360 s", "nodes",
             lambda e: best_slot(e, "HadarE density")[is_large(e)] == 360,
             "overhead counts as use"),
    sentence("VI-D, Fig. 11", "Small mixes at 90 s", "nodes",
             lambda e: best_slot(e, "HadarE density")[~is_large(e)] == 90, "the others at 180 s"),
    sentence("VI-D, Fig. 12", "Hadar, AWS: 90 or 180 s, but for M-3", "nodes",
             lambda e: best_slot(e, "Hadar effnorm").loc["aws"].drop("M-3") <= 180),
    sentence("VI-D, Fig. 12", "M-3 at 360 s", "nodes",
             lambda e: best_slot(e, "Hadar effnorm").loc["aws"].loc[["M-3"]] == 360),
    sentence("VI-D, Fig. 12", "Hadar, testbed, M-5 to M-12: 360 s", "nodes",
             lambda e: best_slot(e, "Hadar effnorm")[is_large(e)].loc["testbed"] == 360,
             "PCIe of the nodes is not modelled"),
    sentence("VI-C, Table IV", "Forking trains better models", "training",
             lambda e: loss(e)["five copies"] < loss(e)[
                 ["one copy, same steps", "one copy, same time"]], losses))


def theorem_2() -> tuple[str, str]:
    """The counterexample to Theorem 2 as printed."""
    refused = check_theorem(refused_job(4), "printed")
    assert refused.ratio == np.inf
    return f"counterexample: {refused.admitted} of 1 job admitted", "impossible"


def theorem_3() -> tuple[str, str]:
    """Use of five nodes by one job of six rounds, in 1, 2, ... copies."""
    forked = forked_utilisation(6, 5)
    assert forked[2] == forked[4]
    return f"5 nodes, 6 rounds: {', '.join(f'{x:.1f}' for x in forked)}", "not reproduced"


THEOREMS = (
    Claim("III-D: Theorem 1: polynomial time, $n H R$ states", "", (),
          lambda: ("states are vectors", "not reproduced"),
          "{doc}`45_hadar_bounds`; a beam is polynomial"),
    Claim("III-D: Theorem 2: $2 \\alpha$-competitive", "", (), theorem_2,
          "$\\eta$ forgets the slots; repaired in {doc}`45_hadar_bounds`"),
    Claim("V-C: Theorem 3: CRU grows strictly with copies", "", (), theorem_3,
          "weakly for one job: repaired in {doc}`45_hadar_bounds`"),
    sentence("V-C", "Corollary: no idle node before the last round", "nodes",
             lambda e: e.frame("nodes").groupby("scheduler")["rounds_with_idle_nodes"].sum()[
                 ["HadarE density", "HadarE longest"]] == 0,
             "in assignment; `trim` leaves some idle on purpose"))

CLAIMS: tuple[Claim, ...] = (
    *(Claim(f"{row.where}: {words_of(row)}", f"{row.value:g}", frames_of(row), partial(decide, row))
      for row in paper_numbers()), *ON_TRACE, *ON_FIVE_NODES, *THEOREMS)

SHOWN = ["Gavel max-min", "Hadar effnorm", "Hadar inv", "Tiresias", "YARN-CS"]


def completion_figure(read: Callable[[str], pd.DataFrame]) -> Any:
    """Draw how many jobs are done when."""
    frame = read("hadar/curves.csv").query("table == 'measured'")
    frame = frame.groupby(["scheduler", "percent"], sort=False)["done_h"].mean().reset_index()
    frame = frame.assign(share=frame["percent"] / 100)
    return plots.curve_chart(frame[frame["scheduler"].isin(SHOWN)], "done_h", "share", "scheduler",
                             x_title="time (h)", y_title="jobs done", percent=True,
                             title="480 jobs on 60 GPUs")


FIGURES: dict[str, Callable[[Callable[[str], pd.DataFrame]], Any]] = {
    "hadar_completions": completion_figure}
