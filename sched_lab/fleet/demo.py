"""`sched-lab demo`: a month of jobs on 400 GPUs, drawn so that the rule of the queue is what makes them wait."""

# A module, written by hand.

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from ..lab.commands import Force, folder_option, option
from ..lab.reports import PAGE
from .command import replay_command
from .read.tables import (
    NODE_COLUMNS,
    TASK_COLUMNS,
    ClusterTables,
    Ledger,
    with_columns,
    write_cluster,
)

__all__ = ['demo_cluster', 'demo_command']

NODES = 50
GPUS = 8  # of each node
DAYS, SPRINTS = 30, 4  # of each day
SMALL = 5  # jobs behind those that want a whole node, in each sprint
CPU_MILLI, MEMORY_MIB = 8_000, 65_536  # for each GPU of a job
DAY_S, HOUR_S = 86_400, 3_600


def demo_cluster(seed: int) -> ClusterTables:
    """Draw a cluster and a month of jobs on which backfill is the largest lever, again and again.

    Four times a day a team submits two trainings that want all GPUs of the one H100 node, and then small jobs
    that run on any A100. The second training waits for the first. Without backfill the small jobs behind it
    wait as well, while hundreds of GPUs are free; no policy can place what is not let pass.

    Parameters
    ----------
    seed : of the draw
    """
    rng = np.random.default_rng(seed)
    num = DAYS * SPRINTS
    begins_s = (DAY_S / SPRINTS * (np.arange(num) + rng.uniform(0.0, 0.5, num))).round()
    parts = []
    for begin_s in begins_s:
        trains = rng.uniform(0.7, 1.1, 2)
        tries = rng.uniform(5, 60, SMALL)
        parts.append(pd.DataFrame({
            "submit_s": begin_s + np.append([0, 60], 120 + 60 * np.arange(SMALL)),
            "hours": np.append(trains, tries), "is_wide": [True] * 2 + [False] * SMALL,
            "num_gpus": np.append([GPUS] * 2, rng.choice([1, 2, 4], SMALL))}))
    drawn = pd.concat(parts, ignore_index=True)
    kind = np.where(drawn["is_wide"], "train", "try")
    end_s = drawn["submit_s"] + (drawn["hours"] * HOUR_S).round()
    tasks = pd.DataFrame({
        "name": [f"{word}-{row}" for row, word in enumerate(kind)],
        "submit_s": drawn["submit_s"], "start_s": drawn["submit_s"], "end_s": end_s,
        "num_gpus": drawn["num_gpus"], "gpu_milli": 1000, "cpu_milli": CPU_MILLI * drawn["num_gpus"],
        "memory_mib": MEMORY_MIB * drawn["num_gpus"], "queue": np.where(drawn["is_wide"], "wide", "small"),
        "gpu_models": np.where(drawn["is_wide"], "H100", "A100")})
    nodes = pd.DataFrame({
        "name": [f"node-{node}" for node in range(NODES)], "gpu_model": ["H100"] + ["A100"] * (NODES - 1),
        "num_gpus": GPUS, "cpu_milli": 16_000 * GPUS, "memory_mib": 131_072 * GPUS})
    return ClusterTables(with_columns(nodes, NODE_COLUMNS), with_columns(tasks, TASK_COLUMNS),
                         Ledger().frame(), {"zero": None})


DemoFolder = Annotated[Path, folder_option("the cluster and the answer")]
Seed = Annotated[int, option("Of the draw.", min=0)]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Do not open the page in a browser.")]


def demo_command(out: DemoFolder = Path("sched-lab-demo"), seed: Seed = 0, no_open: NoOpen = False,
                 force: Force = False) -> None:
    """Draw a month of jobs on 400 GPUs, replay it, and open the page that says what to change.

    DIR/cluster is what sched-lab read makes of your own files, DIR/answer what sched-lab replay
    makes of it. The jobs are drawn so that the largest lever is known: those that want the one
    H100 node block the head of the queue, and backfill lets small ones pass.

    Example: sched-lab demo --out demo --no-open
    """
    cluster, answer = out / "cluster", out / "answer"
    write_cluster(demo_cluster(seed), cluster, force=force)
    replay_command(cluster, answer, workers=1, force=force)
    if not no_open and can_show():
        webbrowser.open((answer / PAGE).resolve().as_uri())


def can_show() -> bool:
    """Whether there is a browser with a window; one in the terminal would take it over."""
    if sys.platform.startswith("linux") and not (
            os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
