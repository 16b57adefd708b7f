"""A run ends as three tables, a summary, and one line that says how it went."""

# A module, written by hand.

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..cluster import Cluster, empty_state
from ..lab.arrays import Floats
from ..lab.frames import Later, read_json
from ..lab.pages import Page, Part, Picture, Section, Table
from ..lab.reports import ENERGY_MEANINGS, Origin, Report, assumed, repeated
from ..meter import (
    OUTSIDE,
    Bill,
    Holdings,
    Tariff,
    bill_of_curve,
    tariff_of,
    watts_in_words,
    with_edges,
)
from ..power import datacenter_power_w
from ..traces import Arrivals, Tasks
from .inflation import Run, failures_frame, inflate
from .model import Placements, Policy, PowerSettings

if TYPE_CHECKING:
    import altair as alt
else:
    alt = Later("altair")  # needed for drawings only

__all__ = ['report_of']

TABLES = ("assignments.csv", "curve.csv", "failures.csv")


def headline(summary: Mapping[str, Any]) -> str:
    """Say in one line how a run ended, from what summary.json holds."""
    if not summary["arrivals"]:
        return f"{summary['policy']}, no arrivals"
    served = f"GRAR {summary['grar']:.4f}" if "grar" in summary else "no GPU demand"
    why = ", ".join(f"{word} {number}" for word, number in sorted(summary["failed_for"].items()))
    power_kw = summary["eopc_w"] / 1e3
    return (f"{summary['policy']}, {summary['arrivals']} arrivals to x = {summary['x']:.3f}: "
            f"{power_kw:.1f} kW, {served}, {summary['failed']} failed{f' ({why})' if why else ''}")


def holdings_of(cluster: Cluster, tasks: Tasks, placements: Placements, start_s: Floats,
                end_s: Floats | float = np.inf) -> tuple[Cluster, Holdings]:
    """What the placed arrivals hold, as the meter takes it; the others hold nothing.

    Parameters
    ----------
    cluster, tasks, placements : of a run
    start_s, end_s : (arrivals,) when each begins and ends, seconds
    """
    placed = np.flatnonzero(placements.node >= 0)
    rows = placements.task_row[placed]
    times = (np.broadcast_to(one, len(placements.node))[placed] for one in (start_s, end_s))
    return cluster, Holdings(placements.node[placed], placements.gpu_mask[placed],
                             tasks.gpu_milli[rows], tasks.cpu_milli[rows], *times)


HOUR_S = 3600.0
LEVELS = (0.5, 0.8)  # arrived GPU demand over the capacity


def hours_of(cluster: Cluster, run: Run, power: PowerSettings,
             tariff: Tariff) -> tuple[list[dict[str, Any]], Bill]:
    """What an hour costs at each load that the run came to, and at its end.

    A GPU hour that is served bears its part of the whole.
    """
    nodes = power.of(cluster)
    words = " ".join((watts_in_words(nodes), OUTSIDE, tariff.words))
    edges_s = with_edges(np.array([0.0, HOUR_S]), [tariff.price, tariff.carbon])
    x = run.curve["x"].to_numpy() if len(run.curve) else np.zeros(0)
    rows_at = {f"x = {level:g}": int(np.argmax(x >= level)) for level in LEVELS
               if (x >= level).any()}
    rows = []
    for at, row in {**rows_at, "end": len(x) - 1}.items():
        has_begun = row >= 0
        power_w = (run.curve["eopc_w"].iloc[row] if has_begun else
                   sum(datacenter_power_w(nodes, empty_state(cluster))))
        used_gpu = float(run.curve["used_gpu_milli"].iloc[row] / 1000) if has_begun else 0.0
        hour = pd.DataFrame({"start_s": edges_s[:-1], "end_s": edges_s[1:],
                             "power_w": float(power_w)})
        bill = bill_of_curve(hour, tariff, words)
        amounts = {name: round(getattr(bill, name), 6)
                   for name in ("energy_kwh", "energy_eur", "co2_kg")}
        each = {f"{name}_per_gpu_h": round(amount / used_gpu, 6) if used_gpu else None
                for name, amount in amounts.items()}
        rows.append({"at": at, "served_gpu_h": round(used_gpu, 3), **amounts, **each})
    return rows, bill


@dataclass(frozen=True)
class RunReport(Report):
    """What a run came to, with the run itself."""

    run: Run


def run_report(cluster: Cluster, tasks: Tasks, run: Run, power: PowerSettings | None = None,
               tariff: Tariff | None = None) -> RunReport:
    """Report of a run that is there already, such as one of many that went in lockstep.

    Parameters
    ----------
    cluster, tasks : what the run was made of
    run : from `inflate` or `simulate_together`
    power : how nodes drew power in the run
    tariff : what an hour at a load is billed with, the default one if not given
    """
    failures = failures_frame(cluster, tasks, run.placements)
    hours, bill = hours_of(cluster, run, power or PowerSettings(), tariff or tariff_of())
    summary = {**run.summary, "failed_for": dict(Counter(failures["failed_for"])),
               **bill.summary(), "hours": hours}
    tables = dict(zip(TABLES, (run.assignments, run.curve, failures), strict=True))
    return RunReport(summary, tables, {}, headline(summary), run)


def report_of(cluster: Cluster, tasks: Tasks, policy: str | Policy = "fgd", *, seed: int = 0,
              until: float | None = None, arrivals: str | Arrivals = "replacement",
              power: str | PowerSettings = "eq1") -> RunReport:
    """Run a workload under a policy, and report.

    Parameters
    ----------
    cluster, tasks, policy, seed, until, arrivals, power : as `inflate`

    Raises
    ------
    InputError : as `inflate`
    """
    run = inflate(cluster, tasks, policy, seed=seed, until=until, arrivals=arrivals, power=power)
    settings = PowerSettings(power) if isinstance(power, str) else power
    return run_report(cluster, tasks, run, settings)


POINTS = 120  # of a curve in a picture
MOST_CURVES = 10
MEANINGS = {
    "x": "arrived GPU demand over the capacity", "power_kw": "power of the cluster at the end",
    "grar": "share of the arrived GPU demand that is served", "arrivals": "tasks that came",
    "failed": "tasks that found no place", "at": "where the cluster stands still for an hour",
    "served_gpu_h": "GPU hours that tasks have in it",
    **ENERGY_MEANINGS, "energy_kwh": "energy of the hour, kWh",
    **{f"{name}_per_gpu_h": f"{words} for a GPU hour that is served" for name, words in (
        ("energy_kwh", "kWh"), ("energy_eur", "EUR"), ("co2_kg", "kg of CO2"))}}


def ends_frame(summaries: Mapping[int, Mapping[str, Any]]) -> pd.DataFrame:
    """How each seed ended: seed, x, power_kw, grar, arrivals, failed."""
    return pd.DataFrame([{
        "seed": str(seed), "x": about.get("x", np.nan),
        "power_kw": about.get("eopc_w", np.nan) / 1e3, "grar": about.get("grar", np.nan),
        "arrivals": about["arrivals"], "failed": about.get("failed", 0)}
        for seed, about in summaries.items()])


def spread_of(values: pd.Series, form: str) -> str:
    """A number, or the mean of several and their range."""
    words = format(values.mean(), form)
    ends = [format(value, form) for value in (values.min(), values.max())]
    return words if ends[0] == ends[1] else f"{words} ({' to '.join(ends)})"


def sentences_of(policy: str, ends: pd.DataFrame) -> list[str]:
    """How the runs ended, in words."""
    ran = ends[ends["arrivals"] > 0]
    if ran.empty:
        return ["No task arrived."]
    seeds = "" if len(ran) == 1 else f" In the mean of {len(ran)} seeds, the range in brackets."
    first = (f"Under the policy {policy} the cluster draws {spread_of(ran['power_kw'], ',.1f')} kW "
             f"when the GPUs asked for are {spread_of(ran['x'], '.1%')} of those there are.{seeds}")
    known = ran.dropna(subset="grar")
    served = f"{spread_of(known['grar'], '.1%')} of the GPU demand is served, and " if len(
        known) else ""
    last = (f"{served}{spread_of(ran['failed'], ',.0f')} of {spread_of(ran['arrivals'], ',.0f')} "
            "tasks find no place.")
    return [first, last[0].upper() + last[1:]]


def hours_frame(summaries: Mapping[int, Mapping[str, Any]]) -> pd.DataFrame:
    """What an hour costs at each load, the mean of the seeds that came so far."""
    rows = [row for about in summaries.values() for row in about.get("hours", ())]
    if not rows:
        return pd.DataFrame()
    means = pd.DataFrame(rows).groupby("at", sort=False).mean().astype(float).round(4)
    return means.loc[sorted(means.index, key=lambda at: (at == "end", at))].reset_index()


def hour_sentences(summaries: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """What an hour at the end costs and emits, and what that rests on."""
    hours = hours_frame(summaries)
    if hours.empty:
        return []
    last = hours.iloc[-1]
    return [f"An hour at the end takes {last['energy_kwh']:,.1f} kWh, which cost "
            f"{last['energy_eur']:,.2f} EUR and stand for {last['co2_kg']:,.1f} kg of CO2.",
            str(next(iter(summaries.values()))["energy_assumptions"])]


def curves_frame(folders: Mapping[int, Path]) -> pd.DataFrame:
    """Power and served share of a few seeds on the way: seed, x, power_kw, served."""
    parts = []
    for seed, folder in list(folders.items())[:MOST_CURVES]:
        curve = pd.read_csv(folder / "curve.csv")
        if len(curve):
            rows = np.unique(np.linspace(0, len(curve) - 1, POINTS).astype(np.int64))
            some = curve.iloc[rows]
            served = some["used_gpu_milli"] / some["arrived_gpu_milli"].replace(0, np.nan)
            parts.append(pd.DataFrame({
                "seed": str(seed), "x": some["x"].round(5),
                "power_kw": (some["eopc_w"] / 1e3).round(3), "served": served.round(5)}))
    return pd.concat(parts) if parts else pd.DataFrame()


def path_chart(frame: pd.DataFrame, column: str, title: str) -> alt.Chart:
    """A quantity of each seed over the arrived demand."""
    axis = alt.Axis(format=".0%") if column == "served" else alt.Axis()
    legend = alt.Legend() if frame["seed"].nunique() > 1 else None
    chart: alt.Chart = alt.Chart(frame.dropna(subset=column)).mark_line().encode(
        alt.X("x:Q", title="arrived GPU demand over capacity", axis=alt.Axis(format=".0%")),
        alt.Y(f"{column}:Q", title=title, axis=axis, scale=alt.Scale(zero=False)),
        alt.Color("seed:N", sort=None, legend=legend))
    return chart.properties(width=540, height=240)


PICTURES = {
    "power_kw": ("power (kW)", "Power of the cluster as tasks arrive, a line for each seed."),
    "served": ("served demand", "Share of the arrived GPU demand that is served so far.")}


def run_pictures(folders: Mapping[int, Path], can_draw: bool) -> list[Part]:
    """Pictures of the runs; words in their place if they cannot be drawn."""
    from ..lab.plots import draw_apart

    svgs: dict[str, str] = {}
    frame = curves_frame(folders) if can_draw else pd.DataFrame()
    if len(frame):
        svgs = draw_apart({f"{name}.svg": path_chart(frame, name, title)
                           for name, (title, _) in PICTURES.items() if frame[name].notna().any()})
    return [Picture(words, svgs.get(name)) for name, (_, words) in PICTURES.items()
            if name in svgs or not can_draw]


def page_of_runs(folders: Mapping[int, Path], origin: Origin, mark: str, *,
                 can_draw: bool = True) -> Page:
    """The page of one or more seeds, from what is in their folders.

    Parameters
    ----------
    folders : folder of each seed, finished
    origin : what asked
    mark : of the page
    can_draw : whether the packages that draw are there
    """
    records = {seed: read_json(folder / "summary.json") for seed, folder in folders.items()}
    ends = ends_frame(records)
    pictures = run_pictures(folders, can_draw)
    written = {f"{folders[seed].name}/{name}": str(checksum) for seed, about in records.items()
               for name, checksum in about.get("files", {}).items()}
    failed: Counter[str] = Counter()
    for about in records.values():
        failed.update(about.get("failed_for", {}))
    ways = pd.DataFrame({"in the way": list(failed), "tasks": list(failed.values())})
    policy = str(next(iter(records.values()))["policy"])
    there: list[Part] = [*pictures[1:], Table(ends, MEANINGS, most_rows=40)]
    if len(hours := hours_frame(records)):
        there += ["What an hour costs in which the cluster stands still:", Table(hours, MEANINGS)]
    if failed:
        there += ["What alone was in the way of failed tasks on some node, or together on all:",
                  Table(ways.sort_values("tasks", ascending=False, kind="stable"))]
    sections = [Section("What is there", there), assumed(origin), repeated(origin, written)]
    return Page("What does the cluster draw, and what can it serve, until it is full?",
                [*sentences_of(policy, ends), *hour_sentences(records), *pictures[:1]], sections,
                origin.command_line, mark)
