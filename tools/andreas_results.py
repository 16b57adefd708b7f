"""Compute the frames of the chapter on the results of ANDREAS, and draw their figures.

python tools/andreas_results.py [NAME ...]   frames that are missing or out of date (or those named), then the figures
python tools/andreas_results.py figures      the figures alone, from the stored frames

A frame is computed again only when its parameters have changed. Finished cells are kept in _build/cells/andreas, so
that a killed call goes on where it was. Everything is generated: no data set is needed. Two cores take about half
an hour, most of it randomized greedy and rollouts with 50 nodes.
"""
from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from sched_lab.andreas.greedy import Randomness
from sched_lab.andreas.instances import generate
from sched_lab.andreas.simulation import simulate
from sched_lab.frames import read_frame, write_frame
from sched_lab.plots import policy_colours, save_svg, use_book_style
from sched_lab.sweeps import count_cores, grid, sweep

ROOT = Path(__file__).resolve().parents[1]
RESULTS, FIGURES = ROOT / "data" / "results" / "andreas", ROOT / "figures"
CELLS = ROOT / "_build" / "cells" / "andreas"
FACTORS = {"0.433": 1.3 / 3, "0.6": 0.6, "0.8": 0.8, "1.0": 1.0, "1.2": 1.2, "1.3": 1.3, "1.4": 1.4, "1.7": 1.7}
SEEDS = [1000 * (i + 1) ** 2 for i in range(10)]  # of the authors' scripts
BASELINES = ["fifo", "edf", "priority", "greedy"]
# raised when a change of the package changes these results
VERSION = {"sweep": 2, "search": 2, "unseen": 2}


def costs(scenario: int, factor: str, num_nodes: int, seeds: str, methods: str) -> pd.DataFrame:
    """Simulate instances with several methods; one row per seed and method."""
    rows = []
    for seed in map(int, seeds.split()):
        instance = generate(seed, num_nodes, FACTORS[factor], scenario=scenario)
        for method in methods.split(", "):
            begin_s = time.process_time()
            done = simulate(instance, method.split()[0], how=Randomness(as_code=method == "rg as coded"))
            spent_s = time.process_time() - begin_s
            rows.append({"seed": seed, "method": method, "total_eur": done.total_eur, "energy_eur": done.energy_eur,
                         "makespan_s": done.makespan_s, "late_jobs": int((done.end_s > instance.jobs.due_s).sum()),
                         "mean_queue": done.intervals["queue"].mean(), "decisions": len(done.intervals),
                         "decision_ms": 1000 * spent_s / len(done.intervals)})
    return pd.DataFrame(rows)


def cells(num_nodes: list[int], seeds: list[int], methods: list[str]) -> list[dict[str, Any]]:
    """Both scenarios and every factor."""
    return [cell | {"seeds": " ".join(map(str, seeds)), "methods": ", ".join(methods)}
            for cell in grid(num_nodes=num_nodes, scenario=[1, 2], factor=list(FACTORS))]


CELLS_OF = {
    "sweep": cells(list(range(10, 101, 10)), SEEDS[:3], BASELINES),
    "unseen": cells([10], SEEDS[3:], [*BASELINES, "rg", "local"]),
    "search": cells([10, 20, 30], SEEDS[:3], ["rg", "rg as coded", "local"])
    + cells([40, 50], SEEDS[:3], ["rg", "local"]),
}


def compute(names: list[str]) -> Iterator[Path]:
    """Bring frames up to date; yield their files. Times are kept apart: they differ from run to run."""
    for name in names:
        version = {"version": VERSION[name]}
        done = sweep(costs, CELLS_OF[name], CELLS / name, depends_on=version, workers=count_cores(), words=name)
        frame = done.frame.drop(columns=["seeds", "methods"])
        made_by = {"made by": "tools/andreas_results.py", **version}
        yield write_frame(frame.drop(columns="decision_ms").round(6), RESULTS / f"{name}.csv", made_by)
        if name == "search":
            times = frame.groupby(["num_nodes", "scenario", "factor", "method"])["decision_ms"].mean().reset_index()
            yield write_frame(times.round(3), RESULTS / "times.csv", made_by)


# --- figures


def totals_figure() -> alt.FacetChart:
    """Draw total cost of each method over the arrival factor, ten nodes, instances that no parameter has seen."""
    frame = read_frame(RESULTS / "unseen.csv").groupby(["scenario", "factor", "method"])["total_eur"].mean()
    frame = frame.reset_index().assign(scenario=lambda f: "scenario " + f["scenario"].astype(str))
    colours = policy_colours(frame["method"])
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    chart: alt.FacetChart = alt.Chart(frame).mark_line(point=True).encode(
        alt.X("factor:Q", title="arrival factor"),
        alt.Y("total_eur:Q", title="energy and penalties (EUR)", scale=alt.Scale(type="log")),
        alt.Color("method:N", title=None, scale=scale)).properties(width=280, height=240).facet(
            alt.Facet("scenario:N", title=None))
    return chart


if __name__ == "__main__":
    for path in compute([name for name in sys.argv[1:] or CELLS_OF if name != "figures"]):
        print(path.relative_to(ROOT))
    use_book_style()
    print(save_svg(totals_figure(), FIGURES / "andreas_totals.svg").relative_to(ROOT))
