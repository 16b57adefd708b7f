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
WIDE, SMALL = 270, 600  # jobs of a whole node, and of one or two GPUs
CPU_MILLI, MEMORY_MIB = 8_000, 65_536  # for each GPU of a job
MONTH_S = 30 * 86_400
HOUR_S = 3_600


def demo_cluster(seed: int) -> ClusterTables:
    """Draw a cluster and a month of jobs on which backfill is the largest lever.

    Jobs of one or two GPUs run for days on nearly every node, so a job that wants a whole node
    stands at the head of the queue until one drains. Without backfill all behind it wait as well,
    while hundreds of GPUs are free; no policy can place what is not let pass.

    Parameters
    ----------
    seed : of the draw
    """
    rng = np.random.default_rng(seed)
    num = WIDE + SMALL
    is_wide = rng.permutation(num) < WIDE
    submit_s = np.sort(rng.uniform(0, 0.9 * MONTH_S, num)).round()
    hours = np.where(is_wide, rng.uniform(24, 60, num), rng.uniform(100, 300, num))
    gpus = np.where(is_wide, GPUS, rng.integers(1, 3, num))
    tasks = pd.DataFrame({
        "name": [f"{'train' if wide else 'try'}-{row}" for row, wide in enumerate(is_wide)],
        "submit_s": submit_s, "start_s": submit_s, "end_s": submit_s + (hours * HOUR_S).round(),
        "num_gpus": gpus, "gpu_milli": 1000, "cpu_milli": CPU_MILLI * gpus,
        "memory_mib": MEMORY_MIB * gpus, "queue": np.where(is_wide, "wide", "small")})
    nodes = pd.DataFrame({
        "name": [f"node-{node}" for node in range(NODES)], "gpu_model": "A100", "num_gpus": GPUS,
        "cpu_milli": 16_000 * GPUS, "memory_mib": 131_072 * GPUS})
    return ClusterTables(with_columns(nodes, NODE_COLUMNS), with_columns(tasks, TASK_COLUMNS),
                         Ledger().frame(), {"zero": None})


DemoFolder = Annotated[Path, folder_option("the cluster and the answer")]
Seed = Annotated[int, option("Of the draw.", min=0)]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Do not open the page in a browser.")]


def demo_command(out: DemoFolder = Path("sched-lab-demo"), seed: Seed = 0, no_open: NoOpen = False,
                 force: Force = False) -> None:
    """Draw a month of jobs on 400 GPUs, replay it, and open the page that says what to change.

    DIR/cluster is what sched-lab read makes of your own files, DIR/answer what sched-lab replay
    makes of it. The jobs are drawn so that the largest lever is known: those that want a whole
    node block the head of the queue, and backfill lets small ones pass.

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
