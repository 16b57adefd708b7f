"""`sched-lab day CLUSTER --out DIR` lets days pass on the nodes of your own cluster, with and without the idea of each paper."""

# A module, written by hand.

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd

from ... import __version__
from ...cluster import MAX_GPUS_PER_NODE, Cluster
from ...hardware import hardware_of
from ...lab.commands import (
    Carbon,
    ClusterFolder,
    Force,
    HardwareFile,
    NoCharts,
    Price,
    answer_with,
    checksums_of,
    folder_option,
    name_next,
    option,
    progress,
    series_files,
)
from ...lab.frames import InputError, sha256
from ...lab.jit import interpreted
from ...lab.reports import PAGE, Answer
from ...bill import Tariff, tariff_of
from ..read.tables import read_cluster
from .day import HORIZON_S, Nodes, draw_day, nodes_of
from .day_run import CHARTS, TABLES, DayReport, report_of_days, run_day

__all__ = ['day_command']

VCPU_MILLI = 16_000  # of each GPU, where a node does not say


def cluster_in(nodes: pd.DataFrame, most_nodes: int) -> tuple[Cluster, list[str]]:
    """Nodes with GPUs of a known model, no more than so many, and what was done to get them.

    Raises
    ------
    InputError : there is none
    """
    gpus = nodes["num_gpus"].fillna(0).astype(int)
    model = nodes["gpu_model"].fillna("").astype(str).str.strip()
    is_good = (gpus > 0) & (gpus <= MAX_GPUS_PER_NODE) & (model != "")
    if not is_good.any():
        raise InputError("no node has a GPU of a known model", file="nodes.csv",
                         mend="name the models in gpu_model")
    rows = np.flatnonzero(is_good)
    every = -(-len(rows) // most_nodes)
    notes = [f"nodes without GPUs of a known model are left out: {len(nodes) - len(rows)}"
             ] if len(rows) < len(nodes) else []
    notes += [f"one node in {every} stands for the {len(rows)} of this cluster"
              ] if every > 1 else []
    kept = nodes.iloc[rows[::every]]
    gpus = gpus.iloc[rows[::every]]
    cpu = kept["cpu_milli"].fillna(VCPU_MILLI * gpus).to_numpy(np.int64)
    memory = kept["memory_mib"].fillna(2**40).to_numpy(np.int64)
    if kept["cpu_milli"].isna().any():
        notes.append(f"{VCPU_MILLI // 1000} vCPU for each GPU are assumed where a node says none")
    return Cluster(kept["name"].to_numpy(object), cpu, memory, np.asarray(gpus, np.int64),
                   model.iloc[rows[::every]].to_numpy(object),
                   np.full(len(kept), "", object)), notes


Days = Annotated[int, option("How many days are drawn.", min=1, max=1000)]
Seed = Annotated[int, option("Of the first day; the others follow.", min=0)]
MostNodes = Annotated[int, option("Most nodes; of a larger cluster every second, third, ... is "
                                  "taken.", "--nodes", min=1, max=1000)]
DayFolder = Annotated[Path, folder_option(", ".join((*TABLES, *CHARTS, PAGE)))]


MOST_INTERPRETED = 40    # days of a node; compiling for them would take longer


def days_of(nodes: Nodes, tariff: Tariff, seeds: range) -> pd.DataFrame:
    """All variants of some days, with a line as each is done."""
    found = []
    with progress(len(seeds), "days") as say:
        for seed in seeds:
            found.append(run_day(draw_day(nodes, seed, tariff)).assign(seed=seed))
            say(f"day {len(found)} of {len(seeds)}: {len(nodes.cluster)} nodes, "
                f"{len(found[-1])} variants, all checked")
    return pd.concat(found, ignore_index=True)


def nodes_in(found: pd.DataFrame, most_nodes: int, hardware: Path | None) -> Nodes:
    """What each node of a table is for."""
    some, notes = cluster_in(found, most_nodes)
    nodes = nodes_of(some, hardware_of(hardware))
    return replace(nodes, notes=(*notes, *nodes.notes))


def day_command(cluster: ClusterFolder, out: DayFolder, days: Days = 10, seed: Seed = 0,
                nodes: MostNodes = 60, price: Price = "", carbon: Carbon = "",
                hardware: HardwareFile = None, force: Force = False,
                no_charts: NoCharts = False) -> None:
    """Let days pass on the nodes of a cluster, with and without the idea of each paper.

    Services, training jobs and batches are drawn in proportion to the GPUs. **effects.csv** says
    what each idea saves alone, added last, and averaged over all orders of adding them, with 95 %
    intervals over the days; **days.csv** has every variant of every day; **summary.json** what was
    drawn, and what no schedule can beat.

    Example: sched-lab day mycluster --days 10 --out worth
    """
    files = {"nodes": cluster / "nodes.csv", "hardware": hardware}
    rates = checksums_of(series_files(price=price, carbon=carbon))
    asked = {"days": days, "seed": seed, "nodes": nodes, "price": price, "carbon": carbon,
             "files": {name: sha256(path) for name, path in files.items() if path} | rates,
             "sched_lab": __version__}
    tables = read_cluster(cluster)
    some = nodes_in(tables.nodes, nodes, hardware)
    tariff = tariff_of(price, carbon, None, (0.0, HORIZON_S))

    def compute() -> DayReport:
        with interpreted(days * len(some.cluster) <= MOST_INTERPRETED):
            found = days_of(some, tariff, range(seed, seed + days))
        return report_of_days(found, some, tariff)

    answer_with(Answer("day", asked, TABLES, (*CHARTS, PAGE)), out, compute, force=force,
                no_charts=no_charts)
    name_next(*(("replay", cluster, "--out", f"{out}-replay") if len(tables.tasks) else ("check", cluster)))
