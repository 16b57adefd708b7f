"""From three tables to every job's completion time, who ran where in each round, and a bound that no schedule beats."""

# A module, written by hand.

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from ..hardware import Hardware
from ..lab import plots
from ..lab.frames import InputError, Later, MissingPackage
from ..lab.reports import ENERGY_MEANINGS, Report, energy_sentence
from ..bill import tariff_of
from ..meter import Sleep
from .bounds import bound
from .energy import AWAKE, bill_run, draw_of, energy_bound_wh, energy_of, watts_of, window_of
from .fluid import MANY_JOBS
from .model import SECONDS_PER_HOUR, Workload
from .planned import mean_jct_bound_s
from .policies import options_of, policy_of, simulate
from .simulation import RESTART_S, ROUND_S, HadarE, Simulation, jobs_frame, rounds_frame, summary

if TYPE_CHECKING:
    import altair as alt
else:
    alt = Later("altair")  # needed for drawings only

__all__ = ['places_chart', 'report_of']

MAX_ROUNDS = 180  # drawn in a picture


def places_frame(run: Simulation) -> pd.DataFrame:
    """Rectangles, one per job, GPU type and unchanged stretch of time.

    Returns
    -------
    columns job (number), type (name), start_s, end_s, and low and high: shares of the job's GPUs
    """
    every = -(-len(run.intervals) // MAX_ROUNDS)
    history = run.history[run.history["round"] % every == 0]
    kind = run.workload.cluster.node_type[history["node"]]
    parts = history.assign(kind=kind).groupby(["round", "job", "kind"])["gpus"].sum().reset_index()
    gang = parts.groupby(["round", "job"])["gpus"]
    high = gang.cumsum()
    whole = gang.transform("sum")
    begin_s, length_s = (run.intervals[name].to_numpy()[parts["round"]]
                         for name in ("start_s", "length_s"))
    end_s = np.minimum(begin_s + every * length_s, run.end_s[parts["job"]])
    parts = parts.assign(start_s=begin_s.round(6), end_s=end_s.round(6),
                         low=(high - parts["gpus"]) / whole, high=high / whole)
    shown = ["job", "kind", "start_s", "end_s", "low", "high"]
    merged = plots.joined(parts[shown], ["job", "kind", "low", "high"], "start_s", "end_s")
    merged.insert(1, "type", np.array(run.workload.type_name, object)[merged.pop("kind")])
    return merged.reset_index(drop=True)


NAMED_ROWS = 30
ROW_PX = 22
MOST_PX = 640


def _colour_of_types(run: Simulation, **more: Any) -> alt.Color:
    """The colours of the GPU types, in their order."""
    colours = plots.policy_colours(run.workload.type_name)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color("type:N", scale=scale, **more)


def _rectangles(run: Simulation, row: np.ndarray) -> pd.DataFrame:
    """Stretches of time in hours, in the (jobs,) row of their job."""
    places = places_frame(run)
    top = row[places["job"]] + 0.1
    return pd.DataFrame({
        "job": np.array(run.workload.job_name, object)[places["job"]],
        "type": places["type"],
        "start": places["start_s"] / SECONDS_PER_HOUR,
        "end": places["end_s"] / SECONDS_PER_HOUR,
        "top": top + 0.8 * places["low"],
        "bottom": top + 0.8 * places["high"]}).round(6)


def places_chart(run: Simulation, *, title: str = "") -> alt.LayerChart:
    """Jobs over time, coloured by GPU type; a thin line while a job is there and waits.

    Parameters
    ----------
    run : what happened
    title : above the chart
    """
    jobs = run.workload.jobs
    names = run.workload.job_name
    order = np.argsort(jobs.arrival_s, kind="stable")
    row = np.argsort(order, kind="stable")
    there = pd.DataFrame({
        "start": jobs.arrival_s / SECONDS_PER_HOUR, "end": run.end_s / SECONDS_PER_HOUR,
        "top": row + 0.5}).round(6)
    is_named = len(names) <= NAMED_ROWS
    down = alt.Y("top:Q", title=None if is_named else f"{len(names)} jobs, by arrival",
                 axis=alt.Axis(values=[], grid=False, ticks=False),
                 scale=alt.Scale(domain=[0, len(names)], reverse=True, nice=False))
    across = alt.X("start:Q", title="time (h)", scale=alt.Scale(nice=False))
    lines = alt.Chart(there).mark_rule(color=plots.LINE, strokeWidth=0.6 if is_named else 0.2)
    bars = alt.Chart(_rectangles(run, row)).mark_rect()
    layers = [
        lines.encode(across, down, alt.X2("end")),
        bars.encode(across, down, alt.X2("end"), alt.Y2("bottom"),
                    _colour_of_types(run, title=None),
                    tooltip=["job:N", "type:N", "start:Q", "end:Q"])]
    if is_named:
        layers.append(plots.lane_names([names[job] for job in order], down))
    chart: alt.LayerChart = alt.layer(*layers, title=title).properties(
        width=plots.WIDTH, height=min(ROW_PX * len(names), MOST_PX))
    return chart


def progress_frame(run: Simulation) -> pd.DataFrame:
    """How many jobs have arrived and are done from each moment on: time_h, what, jobs."""
    moments_s = {"arrived": np.sort(run.workload.jobs.arrival_s), "done": np.sort(run.end_s)}
    moment_s = np.unique(np.concatenate(list(moments_s.values())))
    return pd.concat([
        pd.DataFrame({
            "time_h": moment_s / SECONDS_PER_HOUR, "what": what,
            "jobs": np.searchsorted(own_s, moment_s, side="right")})
        for what, own_s in moments_s.items()], ignore_index=True)


def usage_frame(run: Simulation) -> pd.DataFrame:
    """GPUs in use from each moment on, one row per moment and type: time_h, type, gpus."""
    workload = run.workload
    number = run.history["round"].to_numpy()
    job, node, gpus = (run.history[name].to_numpy() for name in ("job", "node", "gpus"))
    begin_s = run.intervals["start_s"].to_numpy()[number]
    end_s = np.minimum(begin_s + run.intervals["length_s"].to_numpy()[number], run.end_s[job])
    moment_s, place = np.unique(np.append(begin_s, end_s).round(6), return_inverse=True)
    change = np.zeros((len(moment_s), len(workload.type_name)), np.int64)
    kind = workload.cluster.node_type[node]
    np.add.at(change, (place, np.append(kind, kind)), np.append(gpus, -gpus))
    return pd.DataFrame({"time_h": np.repeat(moment_s, change.shape[1]) / SECONDS_PER_HOUR,
                         "type": np.tile(np.array(workload.type_name, object), len(moment_s)),
                         "gpus": change.cumsum(axis=0).ravel()})


def progress_chart(run: Simulation, bound_s: float | None, *, title: str = "") -> alt.LayerChart:
    """Jobs that have arrived and are done over time, and when all could be done at the earliest.

    Parameters
    ----------
    run : what happened
    bound_s : s from the first arrival, if it is known
    title : above the chart
    """
    frame = progress_frame(run)
    first_s = float(run.workload.jobs.arrival_s.min())
    lines = alt.Chart(frame.round(6)).mark_line(interpolate="step-after").encode(
        alt.X("time_h:Q", title="time (h)", scale=alt.Scale(nice=False)),
        alt.Y("jobs:Q", scale=alt.Scale(domain=[0, len(run.end_s)], nice=False)),
        alt.Color("what:N", title=None,
                  scale=alt.Scale(domain=["arrived", "done"], range=[plots.LINE, plots.INK])))
    if bound_s is None:
        return alt.layer(lines, title=title)
    earliest = pd.DataFrame({
        "time_h": [round((first_s + bound_s) / SECONDS_PER_HOUR, 6)],
        "text": ["no schedule is done before"]})
    mark = alt.Chart(earliest).encode(alt.X("time_h:Q"))
    rule = mark.mark_rule(color=plots.SOFT_INK, strokeDash=[4, 4])
    words = mark.mark_text(color=plots.SOFT_INK, align="right", dx=-4,
                           y=plots.HEIGHT - 8).encode(text="text:N")
    return alt.layer(lines, rule, words, title=title)


def usage_chart(run: Simulation, *, title: str = "") -> alt.Chart:
    """GPUs in use over time, by type; the full height is the cluster.

    Parameters
    ----------
    run : what happened
    title : above the chart
    """
    frame = usage_frame(run).round(6)
    types = dict.fromkeys(run.workload.type_name)
    frame["order"] = frame["type"].map({name: number for number, name in enumerate(types)})
    chart: alt.Chart = alt.Chart(frame, title=title).mark_area(interpolate="step-after").encode(
        alt.X("time_h:Q", title="time (h)", scale=alt.Scale(nice=False)),
        alt.Y("gpus:Q", title="GPUs in use", stack="zero",
              scale=alt.Scale(domain=[0, run.workload.num_gpus], nice=False)),
        _colour_of_types(run, legend=alt.Legend(title=None, symbolType="square")),
        alt.Order("order:Q"))
    return chart


TABLES = ("jobs.csv", "rounds.csv")
CHARTS = ("places.svg", "progress.svg", "usage.svg")

MEANINGS = {
    "places": "Every job over time, coloured by the GPU type that it runs on; a thin line while it "
              "is there and waits.",
    "progress": "Jobs that have arrived and are done over time, and before when no schedule can "
                "have done them all.",
    "usage": "GPUs in use over time, by type; the full height is the cluster.",
    "jobs.csv": "one row for each job", "rounds.csv": "who had which GPUs in each round",
    "arrival_s": "s", "start_s": "s, when it begins", "end_s": "s, when it is done",
    "jct_s": "s, from arrival to end", "workers": "GPUs that it asks for",
    "gpus": "GPUs", "jobs": "in all", "ttd_h": "h, from the first arrival to the last end",
    "lower_bound_h": "h, no schedule is done earlier", "mean_jct_h": "h, mean from arrival to end",
    "mean_jct_bound_h": "h, no schedule has a smaller mean",
    "gru": "share of the GPUs' time in which they were used",
    "restarts": "times that a job changed its GPUs",
    **ENERGY_MEANINGS, "idle_kwh": "of energy_kwh, GPUs that no job holds, kWh",
    "energy_bound_kwh": "kWh, no schedule that takes as long draws less, with all nodes on"}


@dataclass(frozen=True)
class RunReport(Report):
    """Tables, charts and a summary of a run, and the run itself.

    Parameters
    ----------
    run : what happened
    """

    run: Simulation

    question: ClassVar[str] = "When are the jobs done, and which GPUs do they use?"
    meanings: ClassVar[Mapping[str, str]] = MEANINGS

    def answer(self) -> list[str]:
        """When all is done, how much sooner it could be, and how long a job takes."""
        summary = self.summary
        bound_h = summary["lower_bound_h"]
        done = (f"Under the policy {summary['policy']} all {summary['jobs']} jobs are done after "
                f"{summary['ttd_h']:.2f} h")
        if bound_h is None:
            done += "; how much sooner they could be is not known."
        elif summary["ttd_h"] <= bound_h * (1 + 1e-6):
            done += ", and no schedule is faster."
        else:
            spared = 100 * (1 - bound_h / summary["ttd_h"])
            done += (f". No schedule is done before {bound_h:.2f} h, so at most {spared:.0f} % of the "
                     "time can be saved.")
        words = [done, f"On average a job is done {summary['mean_jct_h']:.2f} h after it arrives; "
                       f"{100 * summary['gru']:.0f} % of the GPUs' time is used."]
        if summary["energy_kwh"] is None:
            return [*words, summary["energy_assumptions"]]
        idle = 100 * summary["idle_kwh"] / max(summary["energy_kwh"], 1e-12)
        return [*words, energy_sentence(summary), f"{idle:.0f} % of that is drawn by GPUs that no job holds.",
                summary["energy_assumptions"]]


def energy_summary(run: Simulation, hardware: Hardware | None, price: str, carbon: str,
                   sleep: Sleep, *, is_forked: bool) -> tuple[dict[str, Any], Any]:
    """What summary.json says of energy, and (jobs,) kWh of each job; None if it is not known.

    Parameters
    ----------
    run, is_forked : what happened, and whether jobs ran in copies
    hardware, price, carbon, sleep : as `report_of` takes them

    Raises
    ------
    InputError : if energy was asked for and the watts of a type are not known
    """
    try:
        watts = watts_of(run.workload.type_name, hardware)
        tariff = tariff_of(price, carbon, None, window_of(run))
        bill = bill_run(run, watts, tariff, sleep)
    except InputError as error:
        if hardware is not None or price or carbon or sleep != AWAKE:
            raise
        unknown = dict.fromkeys(("energy_kwh", "energy_eur", "co2_kg", "idle_kwh",
                                 "energy_bound_kwh"))
        return {**unknown, "energy_assumptions": f"Energy is not known: {error}."}, None
    account = energy_of(run, watts)
    bound_kwh = None
    if len(run.end_s) <= MANY_JOBS:
        draw = draw_of(run.workload.cluster, watts)
        with suppress(MissingPackage):  # the warning is that of the other bounds
            bound_wh = energy_bound_wh(run.workload, draw, run.ttd_s, is_forked=is_forked)
            bound_kwh = round(bound_wh / 1000, 6) if np.isfinite(bound_wh) else None
    of_type = dict(zip(run.workload.type_name, account.jobs_wh.sum(axis=0) / 1000, strict=True))
    about = {**bill.summary(), "idle_kwh": round(float(account.idle_wh.sum()) / 1000, 6),
             "jobs_kwh_by_type": {name: round(float(kwh), 6) for name, kwh in of_type.items()},
             "energy_bound_kwh": bound_kwh}
    return about, account.jobs_wh.sum(axis=1) / 1000


def report_of(workload: Workload, policy: str = "hadar", *, round_s: float = ROUND_S,
              restart_s: float = RESTART_S, hardware: Hardware | None = None, price: str = "",
              carbon: str = "", sleep: Sleep = AWAKE) -> RunReport:
    """Run all jobs to completion and say what it took.

    Parameters
    ----------
    workload : jobs and nodes
    policy : a name of `POLICIES`
    round_s : s, time between two decisions
    restart_s : s, lost by a job whose GPUs change; by every copy in every round
    hardware : watts by GPU type; the package's own if left out
    price, carbon : as `bill.tariff_of` takes them; a file has to cover the run
    sleep : what empty nodes do, told beside nodes that stay on; who says nothing of energy gets
        none if a GPU type is not known

    Raises
    ------
    InputError : if there is no job or no such policy, the lengths make no sense, the policy
        cannot run a job, or the energy is asked for and a GPU type is not known
    """
    run = simulate(workload, policy, round_s=round_s, restart_s=restart_s, hardware=hardware)
    scheduler = policy_of(policy, round_s, restart_s, workload, hardware)
    is_forked = isinstance(scheduler, HadarE)
    ttd_s: float | None = None
    mean_jct_s: float | None = None
    try:
        ttd_s = bound(workload, is_forked=is_forked)
        if not is_forked:
            mean_jct_s = mean_jct_bound_s(workload.cluster, workload.jobs)
    except MissingPackage as error:
        warnings.warn(f"no bounds: {error}, and give --force", stacklevel=2)
    measures = summary(run)
    about = {
        "policy": policy, "options": options_of(scheduler),
        "round_s": float(round_s), "restart_s": float(restart_s),
        "jobs": len(workload.job_name), "nodes": len(workload.node_name),
        "gpus": workload.num_gpus, **measures,
        "rounds": int(measures["rounds"]), "restarts": int(measures["restarts"]),
        "lower_bound_h": ttd_s and ttd_s / SECONDS_PER_HOUR,
        "above_bound_percent": ttd_s and 100 * (run.ttd_s / ttd_s - 1),
        "mean_jct_bound_h": mean_jct_s and mean_jct_s / SECONDS_PER_HOUR}
    drawn, job_kwh = energy_summary(run, hardware, price, carbon, sleep, is_forked=is_forked)
    about |= drawn
    bound_h = about["lower_bound_h"]
    earliest = "" if bound_h is None else f", no schedule before {bound_h:.2f} h"
    headline = (f"done after {about['ttd_h']:.2f} h{earliest}; mean JCT "
                f"{about['mean_jct_h']:.2f} h, GRU {about['gru']:.3f}")
    title = f"{policy}: {headline}"
    jobs = jobs_frame(run) if job_kwh is None else jobs_frame(run).assign(energy_kwh=job_kwh)
    tables = {"jobs.csv": jobs.round(9), "rounds.csv": rounds_frame(run).round(9)}
    charts: dict[str, Any] = {
        "places.svg": partial(places_chart, run, title=title),
        "progress.svg": partial(progress_chart, run, ttd_s, title=title),
        "usage.svg": partial(usage_chart, run, title=title)}
    return RunReport(about, tables, charts, headline, run)
