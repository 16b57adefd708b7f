"""The simulations behind the chapter on ANDREAS' results, its figure, and the paper's claims."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from sched_lab.andreas.greedy import SearchOptions
from sched_lab.andreas.instances import armida, generate
from sched_lab.andreas.simulation import simulate
from sched_lab.lab.plots import policy_colours
from sched_lab.lab.sweeps import grid

from .claims import Row, graded, said, section
from .reproduction import Experiment, Workplace

if TYPE_CHECKING:
    import altair as alt

__all__ = ['EXPERIMENTS', 'CLAIMS', 'FIGURES']

Read = Callable[[str], pd.DataFrame]


def costs_of(instance: Any, method: str) -> dict[str, Any]:
    """Simulate an instance with one policy, as printed or as coded; one row."""
    begin_s = time.process_time()
    how = SearchOptions(as_code=method.endswith("as coded"))
    done = simulate(instance, method.split()[0], how=how)
    spent_s = time.process_time() - begin_s
    return {
        "method": method, "total_eur": done.total_eur, "energy_eur": done.energy_eur,
        "makespan_s": done.makespan_s,
        "late_jobs": int((done.end_s > instance.jobs.due_s).sum()),
        "mean_queue": done.intervals["queue"].mean(), "decisions": len(done.intervals),
        "decision_ms": 1000 * spent_s / len(done.intervals)}


FACTORS = {"0.433": 1.3 / 3, "0.6": 0.6, "0.8": 0.8, "1.0": 1.0, "1.2": 1.2, "1.3": 1.3,
           "1.4": 1.4, "1.7": 1.7}


def costs(scenario: int, factor: str, num_nodes: int, seeds: str, methods: str) -> pd.DataFrame:
    """Simulate instances with several policies; one row per seed and policy.

    Parameters
    ----------
    factor : a key of `FACTORS`
    seeds, methods : texts, with spaces and with commas between
    """
    rows = []
    for seed in map(int, seeds.split()):
        instance = generate(seed, num_nodes, FACTORS[factor], scenario=scenario)
        rows += [{"seed": seed, **costs_of(instance, method)} for method in methods.split(", ")]
    return pd.DataFrame(rows)


SEEDS = [1000 * (i + 1)**2 for i in range(10)]
RULES = ["fifo", "edf", "priority"]


def cells(num_nodes: list[int], seeds: list[int], methods: list[str]) -> list[dict[str, Any]]:
    """Both scenarios and every factor."""
    more = {"seeds": " ".join(map(str, seeds)), "methods": ", ".join(methods)}
    return [cell | more for cell in grid(num_nodes=num_nodes, scenario=[1, 2],
                                         factor=list(FACTORS))]


CELLS = {
    "sweep": cells(list(range(10, 101, 10)), SEEDS[:3], [*RULES, "greedy"]),
    "unseen": cells([10], SEEDS[3:], [*RULES, "greedy", "rg", "local"]),
    "search": [*cells([10, 20, 30], SEEDS[:3], ["rg", "rg as coded", "local"]),
               *cells([40, 50], SEEDS[:3], ["rg", "local"])]}


def days(name: str, workplace: Workplace) -> pd.DataFrame:
    """All simulated days of an experiment, a row each, with the time of a decision."""
    done = workplace.sweep(costs, CELLS[name], name)
    return done.drop(columns=["seeds", "methods"])


def without_times(name: str, workplace: Workplace) -> Mapping[str, pd.DataFrame]:
    """The frame of an experiment."""
    frame = days(name, workplace).drop(columns="decision_ms")
    return {f"andreas/{name}.csv": frame.round(6)}


def with_times(name: str, workplace: Workplace) -> Mapping[str, pd.DataFrame]:
    """The frame of an experiment, and apart from it the mean time of a decision."""
    frame = days(name, workplace)
    cell = ["num_nodes", "scenario", "factor", "method"]
    times = frame.groupby(cell)["decision_ms"].mean().reset_index()
    return {f"andreas/{name}.csv": frame.drop(columns="decision_ms").round(6),
            "andreas/times.csv": times.round(3)}


EXPERIMENTS = {one.name: one for one in (
    Experiment("sweep", "What greedy saves against the three rules, on 10 to 100 nodes",
               ("andreas/sweep.csv",), 1.5, {"version": 2}, partial(without_times, "sweep")),
    Experiment("unseen", "What every policy costs on ten nodes, on seeds no parameter has seen",
               ("andreas/unseen.csv",), 0.4, {"version": 2}, partial(without_times, "unseen")),
    Experiment("search", "What both readings of RG and local cost, on 10 to 50 nodes, and how "
               "long a decision takes", ("andreas/search.csv", "andreas/times.csv"), 6.0,
               {"version": 2}, partial(with_times, "search"), ("decision_ms",)))}

CELL = ["scenario", "factor", "num_nodes"]


def by_method(frame: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """One row per instance, one column per method."""
    return frame.pivot_table(index=[*CELL, "seed"], columns="method", values=quantity)


def reduction_percent(wide: pd.DataFrame, method: str, against: list[str] = RULES) -> pd.Series:
    """Mean of the reductions against each of these rules, for each row."""
    return (100 * (1 - 1 / wide[against].div(wide[method], axis=0))).mean(axis=1)


def by_greedy(sweep: pd.DataFrame, quantity: str = "total_eur") -> pd.Series:
    """Reduction by greedy (%) for each scenario and factor: mean of all instances."""
    each = reduction_percent(by_method(sweep, quantity), "greedy")
    return each.groupby(["scenario", "factor"]).mean()


def by_nodes_of_rg(sweep: pd.DataFrame, search: pd.DataFrame) -> pd.DataFrame:
    """Reduction by RG as printed (%) for each scenario and factor, by number of nodes."""
    wide = by_method(pd.concat([sweep, search]), "total_eur").dropna(subset="rg")
    return reduction_percent(wide, "rg").groupby(CELL).mean().unstack("num_nodes")


def by_rg(sweep: pd.DataFrame, search: pd.DataFrame) -> pd.Series:
    """Reduction by RG as printed (%) for each scenario and factor: mean over the nodes."""
    return by_nodes_of_rg(sweep, search).mean(axis=1).rename("rg as printed")


def near(percent: pd.Series, wanted: float) -> pd.Series:
    """Whether a reduction is the one wanted, within three points."""
    return (percent - wanted).abs() < 3


def reductions(sweep: pd.DataFrame, search: pd.DataFrame) -> dict[str, Any]:
    """What greedy and RG as printed save against the rules, by scenario and factor."""
    greedy, rg = by_greedy(sweep), by_rg(sweep, search)
    both = [factor for each in (greedy.unstack("scenario"), rg.unstack("scenario"))
            for factor in each.index[near(each[1], 62) & near(each[2], 30)]]
    return {"greedy": greedy, "least": greedy.min(), "most": greedy.max(),
            "rg_least": rg.min(), "rg_most": rg.max(),
            "small": greedy[1], "large": greedy[2], "rg_small": rg[1], "rg_large": rg[2],
            "both": ", ".join(both) or "no factor gives both", "num_both": len(both),
            "loses_from": greedy[1].index[greedy[1] < 0].min(),
            "rg_loses_from": rg[1].index[rg[1] < 0].min()}


def plots(sweep: pd.DataFrame) -> dict[str, Any]:
    """What greedy saves of the makespan and of the energy."""
    makespan, energy = (by_greedy(sweep, name) for name in ("makespan_s", "energy_eur"))
    return {"least": makespan.min(), "most": makespan.max(),
            "least_energy": energy.min(), "most_energy": energy.max()}


def decisions(times: pd.DataFrame) -> dict[str, Any]:
    """Mean time of a decision of RG as printed, least and most over the numbers of nodes."""
    of_rg = times[times["method"] == "rg"]
    spent_ms = of_rg.groupby(["scenario", "num_nodes"])["decision_ms"].mean()
    return {"small_ms": spent_ms[1].max(), "large_ms": [spent_ms[2].min(), spent_ms[2].max()]}


PREDICTED_EUR = 1.08438
MEASURED_EUR = 0.95111


def armida_day() -> dict[str, Any]:
    """The ARMIDA day with greedy, where interruptions cost a moved job's epoch or everybody's."""
    moved, always = (simulate(armida(), "greedy", period_s=300, loss=loss)
                     for loss in ("moved", "always"))
    late = int((moved.end_s > moved.instance.jobs.due_s).sum())
    return {"moved": moved.energy_eur, "always": always.energy_eur,
            "deviation": round(100 * (PREDICTED_EUR - MEASURED_EUR) / MEASURED_EUR, 2),
            "late": late or "none"}


BOTH = ("andreas/sweep.csv", "andreas/search.csv")
OF_REDUCTIONS = (
    *section(
        reductions, BOTH,
        Row("30 to 62 %", "cost reduction on average (abstract, V-B, VI)",
            "greedy {least:.0f} to {most:.0f} %, RG as printed {rg_least:.0f} to {rg_most:.0f} %",
            lambda n: graded(30 <= n.least and n.most <= 62, n.most > 62),
            "depends on $f$, which is not given; each value is reached at some $f$"),
        Row("around 62 %", "scenario 1 (V-B)",
            "greedy {small[1.0]:.0f} % at $f = 1.0$, {small[1.4]:.0f} % at 1.4; RG as printed "
            "{rg_small[0.6]:.0f} % at 0.6, {rg_small[0.8]:.0f} % at 0.8, "
            "{rg_small[1.4]:.0f} % at 1.4",
            lambda n: graded(near(n.small, 62).all(), n.small.max() > 62),
            "reached at one factor, as printed at two; the sign changes above"),
        Row("almost 30 %", "scenario 2 (V-B)",
            "greedy {large[1.3]:.0f} % at $f = 1.3$, {large[1.4]:.0f} % at 1.4; RG as printed "
            "{rg_large[1.2]:.0f} % at 1.2, {rg_large[1.3]:.0f} % at 1.3",
            lambda n: graded(near(n.large, 30).all(), n.large.max() > 30),
            "reached between these factors"),
        Row("implied", "both with one setting", "{both}", lambda n: graded(n.num_both > 0),
            "large nodes are always less loaded"),
        Row("Figures 2 and 3", "RG costs less than FIFO, EDF, PS",
            "true but for overload: scenario 1 from $f = {loses_from}$ on, as printed from "
            "{rg_loses_from} on",
            lambda n: graded((n.greedy > 0).all(), (n.large > 0).all()),
            "in overload the latest go first")),
    said("the reason given", "the rules lose because jobs wait for long ones (V-B)",
         "fewer than one late job in ten", "not reproduced",
         "jobs stay on slow GPUs; moving them is the gain"))

OF_PLOTS = (
    *section(
        plots, ("andreas/sweep.csv",),
        Row("third plot, no number", "RG reduces the time until all jobs are done",
            "0 to {most:.0f} %", lambda n: graded(n.least > 1, n.most > 1),
            "nothing at light load: the arrivals last as long as they last"),
        Row("first plot, no number", "energy costs",
            "{least_energy:.0f} to {most_energy:.0f} % less", lambda n: "not testable",
            "the curves are published as pictures")),
    said("captions: first, second scenario; text: second, first", "Figure 2, Figure 3", "",
         "impossible", "the captions are exchanged, or the text; by the text the 62 % are those "
         "of Figure 3"),
    *section(
        decisions, ("andreas/times.csv",),
        Row("< 100 ms", "a decision takes less than 0.1 s, always (scenario 1)",
            "{small_ms:.0f} ms on average at most", lambda n: graded(n.small_ms < 100),
            "a mean of whole simulations; single calls: `benchmarks/README.md`"),
        Row("< 10 ms", "less than 0.01 s on average (scenario 2)",
            "{large_ms[0]:.1f} to {large_ms[1]:.1f} ms", lambda n: graded(n.large_ms[1] < 10),
            "another program on another machine")),
    said("fourth plot", "RG takes longer than the rules",
         "greedy, one round: 0.08 ms at 100 nodes", "reproduced", "`benchmarks/README.md`"))

PREDICTED, DEVIATION, IN_TIME = section(
    armida_day, (),
    Row("1.08438 EUR", "predicted cost of the ARMIDA day (Table III)",
        "greedy {moved:.3f} to {always:.3f} EUR; RG: {{doc}}`35_andreas_simulation`",
        lambda n: graded(n.moved <= PREDICTED_EUR <= n.always),
        "as a band: seed and lost progress are not given"),
    Row("12.29 %", "deviation from the real cost; below 13 % (abstract, VI)", "{deviation} %",
        lambda n: graded(n.deviation < 13), "12.29 % is of the predicted cost"),
    Row("none late", "all jobs in time (V-C)", "{late} late",
        lambda n: graded(n.late == "none"),
        "with greedy and RG as printed, and due dates put right"))
OF_ARMIDA = (
    PREDICTED,
    said("0.95111 EUR", "measured cost (Table III)", "none", "not testable",
         "needs the cluster, or its power as numbers"),
    DEVIATION,
    said("10.81 %", "average deviation of each call (Table III)", "none", "not testable",
         "no cost of a call is published"),
    IN_TIME)

CLAIMS = (*OF_REDUCTIONS, *OF_PLOTS, *OF_ARMIDA)


def _draw_totals(read: Read) -> alt.FacetChart:
    """Total cost of each policy over the arrival factor, ten nodes, unseen instances."""
    import altair as alt

    mean = read("andreas/unseen.csv").groupby(["scenario", "factor", "method"])["total_eur"].mean()
    frame = mean.reset_index()
    frame = frame.assign(scenario="scenario " + frame["scenario"].astype(str))
    colours = policy_colours(frame["method"])
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    y_title = "energy and penalties (EUR)"
    lines = alt.Chart(frame).mark_line(point=True).encode(
        alt.X("factor:Q", title="arrival factor"),
        alt.Y("total_eur:Q", title=y_title, scale=alt.Scale(type="log")),
        alt.Color("method:N", title=None, scale=scale))
    chart: alt.FacetChart = lines.properties(width=280, height=240).facet(
        alt.Facet("scenario:N", title=None))
    return chart


FIGURES = {"andreas_totals": _draw_totals}
