"""Compute the frames of the chapter on the results of Hadar and HadarE, and draw their figures.

python tools/hadar_results.py [NAME ...]   frames that are missing or out of date (or those named), then the figures
python tools/hadar_results.py figures      the figures alone, from the stored frames

A frame is computed again only when its parameters have changed. Finished cells are kept in _build/cells/hadar, so that
a killed call goes on where it was. The speeds that Gavel's authors measured are read from gavel/throughputs.csv of the
data folder; without them only what rests on the embedded table is computed, and the rows that need them stay as they
are stored. Two cores take about twenty minutes. To add a scheduler, add a line to SCHEDULERS: only its cells are new.
"""
from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from sched_lab.frames import read_frame, sha256, write_frame
from sched_lab.hadar.baselines import Gavel, Tiresias, YarnCs
from sched_lab.hadar.copies import MIXES, NODES, HadarE, node_workload, simulate_copies
from sched_lab.hadar.engine import Simulation, simulate, summary
from sched_lab.hadar.fluid import makespan_bound_s
from sched_lab.hadar.fork import training_curve
from sched_lab.hadar.model import SECONDS_PER_HOUR, Scheduler, State, Throughputs, Workload, nothing_runs
from sched_lab.hadar.planned import Planned, PlanOptions, mean_jct_bound_s, type_prices
from sched_lab.hadar.primal_dual import Hadar
from sched_lab.hadar.workload import default_throughputs, draw_workload, paper_cluster, read_gavel_throughputs
from sched_lab.plots import curve_chart, save_svg, use_book_style
from sched_lab.sweeps import Cell, count_cores, grid, sweep
from sched_lab.traces import find_data

ROOT = Path(__file__).resolve().parents[1]
RESULTS, FIGURES, CELLS = ROOT / "data" / "results" / "hadar", ROOT / "figures", ROOT / "_build" / "cells" / "hadar"
MEASURED = "gavel/throughputs.csv"
SCHEDULERS: dict[str, Callable[[], Scheduler]] = {
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
    "Planned, by area": lambda: Planned(PlanOptions(by_area=True)),
}
VARIANTS: dict[str, Callable[[], Scheduler]] = {  # what was left to choose
    "Hadar effnorm": Hadar,
    "Hadar effnorm, eta 1": lambda: Hadar(eta=1.0),
    "Hadar effnorm, no second pass": lambda: Hadar(backfill=False),
    "Hadar effgpu": lambda: Hadar("effgpu"),
    "Hadar inv, one type": lambda: Hadar("inv", mixed=False),
    "Hadar inv, sticky": lambda: Hadar("inv", sticky=True),
    "Tiresias, 10 GPU-hours": lambda: Tiresias(threshold_gpu_s=36_000.0),
}
BOUND, COPIES_BOUND, PRICE_BOUND = "fluid bound", "fluid bound, copies", "price bound"
WORKLOADS: dict[str, dict[str, Any]] = {
    "K80-hours": {}, "K80-hours x 0.62": {"scale": 0.62}, "K80-hours, Philly gangs": {"gangs": "philly"},
    "P100-hours": {"reference": "p100"}, "V100-hours": {"reference": "v100"}}
SEEDS = (0, 1, 2)
ROUNDS_S = (90.0, 180.0, 360.0, 720.0)
DONE = tuple(range(0, 101, 2))  # per cent
COPIES: dict[str, Callable[[float], HadarE]] = {
    "HadarE density": lambda slot_s: HadarE(slot_s=slot_s),
    "HadarE longest": lambda slot_s: HadarE("longest", slot_s=slot_s),
    "HadarE trim": lambda slot_s: HadarE(slot_s=slot_s, trim=True)}
ON_NODES: dict[str, Callable[[float], Scheduler]] = {
    "Hadar effnorm": lambda slot_s: Hadar(round_s=slot_s),
    "Hadar inv": lambda slot_s: Hadar("inv", round_s=slot_s),
    "Gavel max-min": lambda slot_s: Gavel("maxmin"),
    "Gavel makespan": lambda slot_s: Gavel("makespan"),
    "Gavel max-min, as listed": lambda slot_s: Gavel("maxmin")}  # types in the order of the paper's list of nodes
FORMULAS = ("fp32/sqrt(V)", "tensor/sqrt(V)", "sqrt(tensor/V)")
MEASURES = ("ttd_s", "mean_jct_s", "min_jct_s", "max_jct_s", "cru", "gru", "rounds", "rounds_with_idle_nodes")
NODE_RATES = (4.0, 2.0, 2.0, 1.0, 1.0)
WAYS: dict[str, tuple[tuple[float, ...], dict[str, int]]] = {  # who trains
    "one copy, same steps": ((1.0,), {}),
    "one copy, same time": ((1.0,), {"num_steps": 800, "steps_per_round": 40}),
    "five copies": (NODE_RATES, {})}
# raised when a change of the package changes these results
VERSION = {"trace": 1, "variants": 1, "decisions": 1, "nodes": 1, "training": 1, "speed_ratios": 1}


# --- inputs


def throughputs(table: str) -> Throughputs:
    """Gavel's measured speeds, or the synthetic ones of the package."""
    if table == "synthetic":
        return default_throughputs()
    path = find_data(MEASURED)
    assert path is not None, "cells without data are skipped before"
    return read_gavel_throughputs(path)


def workload_of(table: str, workload: str, seed: int) -> Workload:
    """Draw the 480 jobs."""
    return draw_workload(throughputs(table), seed, **WORKLOADS[workload])


# --- cells


def utilisation(run: Simulation) -> pd.DataFrame:
    """Share of the time, up to the last completion, in which at most so many per cent of the GPUs are held."""
    begin_s, gpus = run.intervals["start_s"].iloc[0], run.workload.num_gpus
    length_s = np.minimum(run.intervals["length_s"], begin_s + run.ttd_s - run.intervals["start_s"])
    percent = 100 * run.intervals["busy_gpu_s"] / (gpus * length_s)
    at = np.arange(0, 101, 2.5)
    share = [float(length_s[percent <= most + 1e-9].sum() / length_s.sum()) for most in at]
    return pd.DataFrame({"measure": "time_share", "at": at, "value": share})


def done(run: Simulation) -> pd.DataFrame:
    """Hours after which so many per cent of the jobs are done."""
    hours = np.append(0.0, np.sort(run.jct_s) / SECONDS_PER_HOUR)
    at = [hours[round(percent / 100 * (len(hours) - 1))] for percent in DONE]
    return pd.DataFrame({"measure": "done_h", "at": np.array(DONE, float), "value": at})


def measured(run: Simulation) -> pd.DataFrame:
    """Return the numbers of `summary`, one row each."""
    return pd.DataFrame([("summary " + name, 0.0, value) for name, value in summary(run).items()],
                        columns=["measure", "at", "value"])


def trace(table: str, workload: str, scheduler: str, seed: int) -> pd.DataFrame:
    """One scheduler on one draw of the 480 jobs, or a bound; long, so that one run fills three frames."""
    work = workload_of(table, workload, seed)
    if scheduler == BOUND:
        bound_h = makespan_bound_s(work.cluster, work.jobs) / SECONDS_PER_HOUR
        return pd.DataFrame({"measure": ["summary ttd_h"], "at": [0.0], "value": [bound_h]})
    if scheduler == PRICE_BOUND:
        bounds_h = np.array([type_prices(work.cluster, work.jobs)[0], mean_jct_bound_s(work.cluster, work.jobs)])
        return pd.DataFrame({"measure": ["summary ttd_h", "summary mean_jct_h"], "at": 0.0,
                             "value": bounds_h / SECONDS_PER_HOUR})
    run = simulate(work, SCHEDULERS[scheduler]())
    return pd.concat([measured(run), done(run), utilisation(run)])


def variants(table: str, scheduler: str, round_s: float, seed: int) -> dict[str, float]:
    """Run other readings of Hadar and Tiresias, and rounds of other lengths."""
    options = {"round_s": round_s} if round_s != 360 else {}
    how = (VARIANTS | SCHEDULERS)[scheduler]()
    if options and isinstance(how, Hadar):
        how = replace(how, **options)
    return summary(simulate(workload_of(table, "K80-hours", seed), how, **options))


def decisions(table: str, num_jobs: int, scheduler: str) -> dict[str, float]:
    """Processor time of a decision on a cluster that grows with the jobs: least of five, after one to warm up."""
    nodes_per_type = max(2, round(num_jobs / 96))  # as many as in the trace, and room for a gang of eight
    work = draw_workload(throughputs(table), 0, num_jobs=num_jobs)
    node_name, cluster = paper_cluster(nodes_per_type)
    work = replace(work, node_name=node_name, cluster=cluster)
    nothing = np.zeros(num_jobs)
    state = State(cluster, work.jobs, 0.0, np.arange(num_jobs), work.jobs.steps, nothing_runs(), nothing, nothing)
    spent_s = []
    for _ in range(6):
        how = SCHEDULERS[scheduler]()
        begin_s = time.process_time()
        how.allocate(state)
        spent_s.append(time.process_time() - begin_s)
    return {"gpus": work.num_gpus, "decision_ms": 1000 * min(spent_s[1:])}


def as_listed(work: Workload) -> Workload:
    """Put the GPU types into the order in which the nodes are listed; `node_workload` has fast types first."""
    order = list(dict.fromkeys(work.cluster.node_type.tolist()))
    node_type = np.array([order.index(kind) for kind in work.cluster.node_type])
    jobs = work.jobs._replace(rate=work.jobs.rate[:, order], spread_rate=work.jobs.spread_rate[:, order])
    return replace(work, type_name=tuple(work.type_name[kind] for kind in order), jobs=jobs,
                   cluster=work.cluster._replace(node_type=node_type))


def nodes(cluster: str, mix: str, formula: str, slot_s: float, scheduler: str) -> dict[str, float]:
    """Run a mix on five nodes: HadarE with forked jobs, the others without."""
    work = node_workload(cluster, mix, formula)
    if scheduler in (BOUND, COPIES_BOUND):  # jobs differ in length only, so copies share all nodes perfectly
        all_nodes = work.jobs.rate[0, work.cluster.node_type].sum()
        least_s = makespan_bound_s(work.cluster, work.jobs) if scheduler == BOUND else work.jobs.steps.sum() / all_nodes
        return dict.fromkeys(MEASURES, np.nan) | {"ttd_s": float(least_s)}
    if scheduler in COPIES:
        run = simulate_copies(work, COPIES[scheduler](slot_s))
    else:
        work = as_listed(work) if scheduler.endswith("as listed") else work
        run = simulate(work, ON_NODES[scheduler](slot_s), round_s=slot_s)
    used = run.history.groupby("round")["node"].nunique()
    idle = int((used.iloc[:-1] < len(work.node_name)).sum())
    values = [run.ttd_s, run.jct_s.mean(), run.jct_s.min(), run.jct_s.max(), run.cru, run.gru, len(run.intervals), idle]
    return dict(zip(MEASURES, map(float, values), strict=True))


def training(way: str, seed: int) -> dict[str, float]:
    """Train in copies, or in one; return what was learned in the end."""
    rates, options = WAYS[way]
    return training_curve(seed, rates, **options).iloc[-1][["loss", "accuracy"]].astype(float).to_dict()


def speed_ratios(table: str) -> pd.DataFrame:
    """How much faster one V100 is than one K80: for each model, least and largest over the sizes of its batches."""
    found = throughputs(table)
    of_model: dict[str, list[float]] = {}
    for (key, workers), row in sorted(found.row.items()):
        if workers == 1:
            of_model.setdefault(key.split(" (")[0], []).append(found.rate[row, 0] / found.rate[row, 2])
    rows = [(model, min(ratios), max(ratios)) for model, ratios in of_model.items()]
    return pd.DataFrame(rows, columns=["model", "least", "largest"])


EVERY, ON_NODES_ALL = [BOUND, PRICE_BOUND, *SCHEDULERS], [BOUND, COPIES_BOUND, *COPIES, *ON_NODES]
TABLES = ["measured", "synthetic"]
REST = [name for name in WORKLOADS if name not in list(WORKLOADS)[:2]]
CELLS_OF: dict[str, tuple[Callable[..., Any], list[Cell]]] = {
    "trace": (trace, grid(table=TABLES, workload=list(WORKLOADS)[:2], scheduler=EVERY, seed=SEEDS)
              + grid(table=TABLES, workload=REST, scheduler=EVERY, seed=SEEDS[:1])),
    "variants": (variants, grid(table=TABLES, scheduler=list(VARIANTS), round_s=[360.0], seed=SEEDS)
                 + grid(table=TABLES, scheduler=["Hadar effnorm", "Gavel max-min"], round_s=[90.0, 180.0, 720.0],
                        seed=SEEDS[:1])),
    "decisions": (decisions, grid(table=TABLES[1:], num_jobs=[32, 64, 128, 256, 512, 1024, 2048],
                                  scheduler=["Hadar effnorm", "Gavel max-min", "Gavel makespan", "Gavel max-sum"])),
    "nodes": (nodes, grid(cluster=list(NODES), mix=list(MIXES), formula=FORMULAS[:1], slot_s=ROUNDS_S,
                          scheduler=ON_NODES_ALL)
              + grid(cluster=list(NODES), mix=list(MIXES), formula=FORMULAS[1:], slot_s=[90.0, 360.0],
                     scheduler=ON_NODES_ALL)),
    "training": (training, grid(way=list(WAYS), seed=range(6))),
    "speed_ratios": (speed_ratios, grid(table=TABLES[:1])),
}
SPLIT = {"trace": "summary ", "curves": "done_h", "utilisation": "time_share"}  # frames of `trace`, by its measures


def split_trace(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Three frames of the long one: a row per run, completion curves, and utilisation over time."""
    cell = ["table", "workload", "scheduler", "seed"]
    for part, start in SPLIT.items():
        rows = frame[frame["measure"].str.startswith(start)]
        if part == "trace":
            names = list(dict.fromkeys(rows["measure"]))
            order = pd.MultiIndex.from_frame(rows[cell].drop_duplicates())
            wide = rows.pivot(index=cell, columns="measure", values="value").loc[order, names]
            yield part, wide.set_axis([name.removeprefix(start) for name in names], axis=1).reset_index()
        else:
            rows = rows[rows["workload"] == "K80-hours"].drop(columns=["workload", "measure"])
            yield part, rows.rename(columns={"at": "percent", "value": start})


def kept_rows(path: Path, table_cells: list[Cell]) -> pd.DataFrame | None:
    """Return stored rows that rest on measured speeds, for a machine that does not have these."""
    if not table_cells or not path.exists():
        return None
    frame = read_frame(path)
    return frame[frame["table"] == "measured"]


def compute(names: list[str]) -> Iterator[Path]:
    """Bring frames up to date; yield their files."""
    speeds_file = find_data(MEASURED)
    for name in names:
        function, cells = CELLS_OF[name]
        version: dict[str, Any] = {"version": VERSION[name]}
        needs = [cell for cell in cells if cell.get("table") == "measured"]
        if needs and speeds_file is None:
            print(f"{name}: {len(needs)} of {len(cells)} cells skipped, {MEASURED} is in no data folder; see "
                  "data/README.md", file=sys.stderr)
            cells = [cell for cell in cells if cell not in needs]
        elif needs and speeds_file is not None:
            version[MEASURED] = sha256(speeds_file)
        if not cells:
            continue
        workers = 1 if name == "decisions" else count_cores()
        whole = sweep(function, cells, CELLS / name, depends_on=version, workers=workers, words=name)
        for part, frame in split_trace(whole.frame) if name == "trace" else [(name, whole.frame)]:
            path, made_by = RESULTS / f"{part}.csv", {"made by": "tools/hadar_results.py", **version}
            if needs and speeds_file is None and (kept := kept_rows(path, needs)) is not None:
                frame = pd.concat([kept, frame])
                made_by["rows kept from"] = sha256(path)
            yield write_frame(frame.round(6), path, made_by)


# --- figures


def completion_figure() -> alt.LayerChart:
    """Draw how many jobs are done when (Fig. 4 of the paper)."""
    frame = read_frame(RESULTS / "curves.csv").query("table == 'measured'")
    frame = frame.groupby(["scheduler", "percent"], sort=False)["done_h"].mean().reset_index()
    frame = frame.assign(share=frame["percent"] / 100)
    chosen = frame[frame["scheduler"].isin(["Gavel max-min", "Hadar effnorm", "Hadar inv", "Tiresias", "YARN-CS"])]
    return curve_chart(chosen, "done_h", "share", "scheduler", x_title="time (h)", y_title="jobs done", percent=True,
                       title="480 jobs on 60 GPUs")


if __name__ == "__main__":
    for path in compute([name for name in sys.argv[1:] or CELLS_OF if name != "figures"]):
        print(path.relative_to(ROOT))
    use_book_style()
    for name, draw in {"hadar_completions": completion_figure}.items():
        print(save_svg(draw(), FIGURES / f"{name}.svg").relative_to(ROOT))
