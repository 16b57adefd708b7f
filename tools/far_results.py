"""Compute the frames of the chapters on the results of FAR, and draw their figures.

python tools/far_results.py [NAME ...]   frames that are missing or out of date (or those named), then the figures
python tools/far_results.py figures      the figures alone, from the stored frames

A frame is computed again only when its parameters have changed. Finished cells are kept in _build/cells/far, so that a
killed call goes on where it was. Everything is generated: no data set is needed. Two cores take about half an hour.
"""
from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from sched_lab.far.baselines import fix_partition, fix_partition_best, miso, parse_partition
from sched_lab.far.bounds import lower_bound, optimum_with_reconfiguration
from sched_lab.far.mig import Floats, Mig, check_schedule, mig_of
from sched_lab.far.multibatch import batch_plans, chain, excess_percent, gain_percent, ideal_s, trivial_chain
from sched_lab.far.plus import far_plus
from sched_lab.far.refine import far
from sched_lab.far.tasks import NEAR, SCALINGS, SUB, WIDTHS, generate_times
from sched_lab.frames import read_frame, write_frame
from sched_lab.plots import save_svg, use_book_style
from sched_lab.sweeps import count_cores, grid, sweep

ROOT = Path(__file__).resolve().parents[1]
RESULTS, FIGURES, CELLS = ROOT / "data" / "results" / "far", ROOT / "figures", ROOT / "_build" / "cells" / "far"
RUNS, BATCHES = 1000, 1001
SIZES = (10, 15, 20, 25, 30, 35)
SUPERS = ("0", "0.25", "0.5", "0.5 near")  # p_sup; what memory-bound tasks drop to is sub-linear unless said
# raised when a change of the package changes these results
VERSION = {"single": 1, "plus": 5, "effort": 1, "distance": 2, "sigma": 1, "chains": 1}


# --- batches


def batches(scaling: str, width: str, num_tasks: int, p_sup: str, count: int) -> Iterator[tuple[Mig, Floats]]:
    """Yield the A100 and the times of each batch of a cell, always the same ones for the same words."""
    mig, (share, *drop) = mig_of("A100"), p_sup.split()
    words = f"{scaling} {width} {num_tasks} {p_sup}"
    for run in range(count):
        rng = np.random.default_rng([zlib.crc32(words.encode()), run])
        yield mig, generate_times(mig, num_tasks, SCALINGS[scaling], WIDTHS[width], rng, super_share=float(share),
                                  after=NEAR if drop else SUB)


def averaged(rows: list[dict[str, float]]) -> pd.DataFrame:
    """One row per quantity: its mean, standard error, and number of runs."""
    frame = pd.DataFrame(rows)
    return pd.DataFrame({"quantity": frame.columns, "mean": frame.mean().to_numpy(),
                         "standard_error": (frame.std(ddof=1) / len(frame) ** 0.5).to_numpy(), "runs": len(frame)})


# --- cells


def single(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """FAR on one batch at a time: Tables 4 and 6."""
    rows = []
    for mig, times_s in batches(scaling, width, num_tasks, p_sup, RUNS):
        done = far(mig, times_s)
        check_schedule(done.schedule, times_s)
        makespan_s, ideal = done.schedule.makespan_s, ideal_s(mig, [times_s])
        rows.append({"rho": makespan_s / ideal, "rho_before": done.before_s / ideal, "moves": done.moves,
                     "swaps": done.swaps, "p_ref_percent": 100 * (done.before_s / makespan_s - 1)})
    return averaged(rows)


def plus(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """FAR and FAR+ on the same batches."""
    rows = []
    for mig, times_s in batches(scaling, width, num_tasks, p_sup, RUNS // 25):
        better, ideal = far_plus(mig, times_s), ideal_s(mig, [times_s])
        check_schedule(better.schedule, times_s)
        assert better.schedule.makespan_s <= better.far_s
        rows.append({"rho_far": better.far_s / ideal, "rho_family": better.family_s / ideal,
                     "rho_plus": better.schedule.makespan_s / ideal, "rho_bound": lower_bound(mig, times_s) / ideal})
    return averaged(rows)


def effort(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """FAR+ with fewer and more proposals."""
    rows = []
    for mig, times_s in batches(scaling, width, num_tasks, p_sup, RUNS // 25):
        ideal, row = ideal_s(mig, [times_s]), {}
        for proposals in (0, 25_000, 100_000, 400_000, 1_600_000):
            better = far_plus(mig, times_s, proposals=proposals)
            row |= {"rho_far": better.far_s / ideal, f"rho_{proposals}": better.schedule.makespan_s / ideal}
        rows.append(row)
    return averaged(rows)


def distance(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """How far FAR, annealing and the lower bound are from the optimum."""
    rows = []
    for mig, times_s in batches(scaling, width, num_tasks, p_sup, RUNS // 5):
        best, annealed = optimum_with_reconfiguration(mig, times_s), far_plus(mig, times_s, max_visits=0)
        check_schedule(best.schedule, times_s)
        assert best.is_proved and best.makespan_s <= annealed.schedule.makespan_s * (1 + 1e-9)
        found_s = {"far": annealed.far_s, "annealed": annealed.schedule.makespan_s,
                   "far_plus": far_plus(mig, times_s).schedule.makespan_s,
                   "ideal": ideal_s(mig, [times_s]), "bound": lower_bound(mig, times_s)}
        rows.append({name: 100 * (value_s / best.makespan_s - 1) for name, value_s in found_s.items()})
    return averaged(rows)


def sigma(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """Makespans of simpler schedulers over FAR's: Table 5, and the readings of MISO-opt."""
    rows = []
    for mig, times_s in batches(scaling, width, num_tasks, p_sup, RUNS):
        far_s = far(mig, times_s).schedule.makespan_s
        finest, whole = parse_partition(mig, "1-1-1-1-1-1-1"), parse_partition(mig, "7")
        others = {"miso": miso(mig, times_s), "miso, barrier": miso(mig, times_s, has_barrier=True),
                  "miso, best mapping": miso(mig, times_s, mapping="best"),
                  "miso, best mapping, barrier": miso(mig, times_s, mapping="best", has_barrier=True),
                  "fixpart:1-1-1-1-1-1-1": fix_partition(mig, times_s, finest),
                  "fixpart:7": fix_partition(mig, times_s, whole), "fixpart-best": fix_partition_best(mig, times_s)}
        for name, schedule in others.items():
            check_schedule(schedule, times_s, existing=np.unique(schedule.instance) if "fixpart" in name else ())
        rows.append({f"sigma {name}": schedule.makespan_s / far_s for name, schedule in others.items()})
    return averaged(rows)


def chains(scaling: str, width: str, num_tasks: int, p_sup: str) -> pd.DataFrame:
    """Batches one after the other: Tables 7, 8 and 9."""
    mig, times_s = mig_of("A100"), [t for _, t in batches(scaling, width, num_tasks, p_sup, BATCHES)]
    plans = batch_plans(mig, times_s)
    plain, turned = trivial_chain(mig, times_s, plans=plans), chain(mig, times_s, plans=plans, moves=False)
    moved = chain(mig, times_s, plans=plans)
    for one in (plain, turned, moved):
        check_schedule(one.schedule, np.concatenate(times_s))
    pairs = [[f(mig, times_s[k:k + 2], plans=plans[k:k + 2]).makespan_s for k in range(0, BATCHES - 1, 2)]
             for f in (trivial_chain, partial(chain, moves=False), chain)]
    alone_s, turned_s, moved_s = (np.array(of_pairs) for of_pairs in pairs)
    values = {"p_rev_percent": gain_percent(plain.makespan_s, turned.makespan_s),
              "p_move_swap_percent": gain_percent(plain.makespan_s, moved.makespan_s),
              "p_rev_percent of pairs": 100 * (alone_s / turned_s - 1).mean(),
              "p_move_swap_percent of pairs": 100 * (alone_s / moved_s - 1).mean(),
              "moves": moved.moves[1:].mean(), "swaps": moved.swaps[1:].mean(),
              "p_multi_batch_percent": excess_percent(mig, times_s, moved.makespan_s),
              "p_trivial_percent": excess_percent(mig, times_s, plain.makespan_s)}
    return pd.DataFrame({"quantity": list(values), "mean": list(values.values()), "runs": BATCHES})


CELLS_OF: dict[str, tuple[Callable[..., pd.DataFrame], list[dict[str, Any]]]] = {
    "single": (single, grid(scaling=list(SCALINGS), width=list(WIDTHS), num_tasks=list(SIZES), p_sup=list(SUPERS))),
    "plus": (plus, grid(scaling=list(SCALINGS), width=list(WIDTHS), num_tasks=list(SIZES), p_sup=["0"])),
    "effort": (effort, grid(scaling=["mixed"], width=["wide"], num_tasks=[20, 30, 35], p_sup=["0"])),
    "distance": (distance, grid(scaling=list(SCALINGS), width=list(WIDTHS), num_tasks=[10], p_sup=["0"])),
    "sigma": (sigma, grid(scaling=list(SCALINGS), width=list(WIDTHS), num_tasks=[15], p_sup=list(SUPERS))),
    "chains": (chains, grid(scaling=list(SCALINGS), width=list(WIDTHS), num_tasks=list(SIZES), p_sup=["0", "0.5"])),
}


def compute(names: list[str]) -> Iterator[Path]:
    """Bring frames up to date; yield their files."""
    for name in names:
        function, cells = CELLS_OF[name]
        version = {"version": VERSION[name]}
        done = sweep(function, cells, CELLS / name, depends_on=version, workers=count_cores(), words=name)
        yield write_frame(done.frame.round(6), RESULTS / f"{name}.csv",
                          {"made by": "tools/far_results.py", **version, "runs": RUNS, "batches": BATCHES})


# --- figures


def rho_figure() -> alt.LayerChart:
    """Draw Table 4: points are the paper's, lines ours."""
    paper = pd.read_csv(ROOT / "data" / "paper" / "far_tables.csv").query("table == 4")
    ours = read_frame(RESULTS / "single.csv").query("quantity == 'rho' and width == 'wide' and p_sup == '0'")
    axes = {"x": alt.X("num_tasks:Q", title="tasks in the batch", scale=alt.Scale(domain=[9, 36], nice=False)),
            "color": alt.Color("scaling:N", title=None, sort=list(SCALINGS))}
    line = alt.Chart(ours).mark_line().encode(**axes, y=alt.Y("mean:Q", title="rho", scale=alt.Scale(zero=False)))
    points = alt.Chart(paper).mark_point(filled=True, size=60).encode(**axes, y="paper:Q")
    title = "Makespan of FAR over perfectly shared work, A100"
    chart: alt.LayerChart = alt.layer(line, points, title=title).properties(width=520, height=260)
    return chart


def plus_figure() -> alt.FacetChart:
    """Draw rho of FAR and FAR+ for every kind of batch."""
    names = {"rho_far": "FAR", "rho_plus": "FAR+"}
    frame = read_frame(RESULTS / "plus.csv").query(f"quantity in {list(names)}")
    frame = frame.assign(method=frame["quantity"].map(names), kind=frame["scaling"] + ", " + frame["width"])
    chart: alt.FacetChart = alt.Chart(frame).mark_line(point=True).encode(
        alt.X("num_tasks:O", title="tasks in the batch"), alt.Y("mean:Q", title="rho", scale=alt.Scale(zero=False)),
        alt.Color("method:N", title=None)).properties(width=190, height=150).facet(
            alt.Facet("kind:N", title=None), columns=3)
    return chart


if __name__ == "__main__":
    for path in compute([name for name in sys.argv[1:] or CELLS_OF if name != "figures"]):
        print(path.relative_to(ROOT))
    use_book_style()
    for name, draw in {"far_rho": rho_figure, "far_plus": plus_figure}.items():
        print(save_svg(draw(), FIGURES / f"{name}.svg").relative_to(ROOT))
