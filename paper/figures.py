"""The figures of the paper, drawn from stored frames at the width of a column."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import found
import pandas as pd
import vl_convert

WIDTH = 250
INK, BLUE, RED, GREEN, GREY = "#222222", "#0072B2", "#D55E00", "#009E73", "#999999"
CONFIG: dict[str, Any] = {
    "font": "Libertinus Serif", "view": {"stroke": None}, "background": None,
    "axis": {"labelFontSize": 9, "titleFontSize": 9.5, "titleFontWeight": "normal", "gridColor": "#e4e4e4",
             "titleColor": INK, "labelColor": INK, "titlePadding": 4, "tickSize": 3},
    "legend": {"labelFontSize": 9, "title": None, "orient": "top", "padding": 0, "columnPadding": 6, "labelLimit": 0,
               "symbolSize": 34, "offset": 4},
    "text": {"fontSize": 9, "font": "Libertinus Serif"}, "header": {"labelFontSize": 9, "title": None}}
FIGURES: dict[str, Callable[[], alt.TopLevelMixin]] = {}


def figure(draw: Callable[[], alt.TopLevelMixin]) -> Callable[[], alt.TopLevelMixin]:
    """Enter a figure under the name of its function."""
    FIGURES[draw.__name__] = draw
    return draw


def draw(name: str, path: Path) -> None:
    """Write a figure as SVG."""
    spec = FIGURES[name]().to_dict()
    spec["config"] = CONFIG
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    path.write_text(vl_convert.vegalite_to_svg(spec, vl_version=version), encoding="utf-8")


def coloured(names: dict[str, str]) -> alt.Color:
    """Colours of named lines, in their order."""
    return alt.Color("line:N", sort=list(names), scale=alt.Scale(domain=list(names), range=list(names.values())))


@figure
def watts() -> alt.TopLevelMixin:
    """Draw the saving of the mix at 0.1 under three tables of watts."""
    names = {"paper": "as in the paper", "linear": "no step", "G2 is like a V100": "undisclosed GPU like a V100"}
    frame = found.read(found.SENSITIVITY).query("policy == 'pwr-fgd:0.1' and trace == 'default'")
    frame = frame[frame["watts"].isin(names) & (frame["x"] > 0)].assign(line=lambda f: f["watts"].map(names))
    lines = dict(zip(names.values(), (BLUE, GREEN, RED), strict=True))
    return alt.Chart(frame, width=WIDTH, height=105).mark_line(point={"size": 14}, strokeWidth=1.6).encode(
        alt.X("x:Q", title="arrived GPU demand, share of capacity"),
        alt.Y("saving_percent:Q", title="power saved (%)", scale=alt.Scale(zero=True)),
        coloured(lines).legend(columns=2))


@figure
def factors() -> alt.TopLevelMixin:
    """Reduction of cost by greedy, by arrival factor; the paper's two numbers as rules."""
    ours = found.reductions(found.read(found.SWEEP)).rename("saved").reset_index()
    names = {1: "small nodes", 2: "large nodes"}
    ours["line"] = ours["scenario"].map(names)
    theirs = pd.DataFrame({"line": list(names.values()), "saved": [
        found.claimed(found.read(found.THEIRS_ANDREAS), scenario) for scenario in names]})
    colour = coloured(dict(zip(names.values(), (BLUE, RED), strict=True)))
    y = alt.Y("saved:Q", title="cost saved (%)")
    lines = alt.Chart(ours, width=WIDTH, height=110).mark_line(point={"size": 16}, strokeWidth=1.6).encode(
        alt.X("factor:Q", title="arrival factor", scale=alt.Scale(zero=False, nice=False)), y, colour)
    return alt.Chart(theirs).mark_rule(strokeDash=[4, 3]).encode(y, colour) + lines


@figure
def jobs() -> alt.TopLevelMixin:
    """Total time against mean completion time; the bound, and what the paper reports."""
    trace, theirs = found.read(found.TRACE), found.read(found.THEIRS_HADAR)
    ends, means = found.on_trace(trace), found.on_trace(trace, "mean_jct_h")
    names = ["Hadar eff", "Hadar effnorm", "Hadar inv", "Gavel makespan", "Gavel max-min", "Planned"]
    points = pd.DataFrame({"name": names, "end": ends[names].to_numpy(), "mean": means[names].to_numpy()})
    points["line"] = points["name"].str.partition(" ")[0]
    lines = pd.DataFrame({"end": [ends["fluid bound"], found.of_paper(theirs, "ttd_h", "IV-B", scheduler="Hadar")],
                          "what": ["bound", "as reported"]})
    x = alt.X("end:Q", title="until all jobs are done (h)", scale=alt.Scale(domain=[38, 78], nice=False))
    rules = alt.Chart(lines, width=WIDTH, height=120).mark_rule(color=GREY).encode(
        x, strokeDash=alt.StrokeDash("what:N", legend=None, sort=["as reported", "bound"]))
    said = alt.Chart(lines).mark_text(align="left", dx=3, color="#666666").encode(x, y=alt.value(6), text="what:N")
    dots = alt.Chart(points).mark_point(filled=True, size=45, opacity=1).encode(
        x, alt.Y("mean:Q", title="mean completion (h)"),
        coloured({"Hadar": RED, "Gavel": BLUE, "Planned": GREEN}).legend(columns=3))
    return rules + said + dots


@figure
def optimum() -> alt.TopLevelMixin:
    """Distance from the exact optimum at ten tasks, by kind of batch."""
    frame = found.read(found.DISTANCE).query("quantity in ['far', 'annealed']")
    frame = frame.assign(line=frame["quantity"].map({"far": "FAR", "annealed": "FAR+ without its exact part"}),
                         kind=frame["scaling"] + ", " + frame["width"])
    return alt.Chart(frame, width=WIDTH - 30, height=alt.Step(7)).mark_bar().encode(
        alt.X("mean:Q", title="above the optimum (%)"),
        alt.Y("kind:N", title=None), alt.YOffset("line:N", sort=["FAR"]),
        coloured({"FAR": RED, "FAR+ without its exact part": GREEN}))


@figure
def ideas() -> alt.TopLevelMixin:
    """Draw what each idea is worth on one cluster, with intervals over the days."""
    days = found.read(found.DAY)
    panels = []
    for column, title in ((found.EUR, "EUR a day"), (found.KWH, "kWh a day")):
        frame = found.effects_of(days, column).query("way == 'share'")
        base = alt.Chart(frame, width=95, height=72).encode(
            alt.Y("idea:N", title=None, sort=["PWR+FGD", "ANDREAS", "Hadar", "FAR"],
                  axis=alt.Axis(labels=not panels, ticks=not panels)))
        panels.append(base.mark_rule(color=BLUE, strokeWidth=1.6).encode(alt.X("low:Q", title=title), alt.X2("high:Q"))
                      + base.mark_point(filled=True, size=35, color=BLUE, opacity=1).encode(alt.X("saving:Q")))
    return alt.hconcat(*panels, spacing=8)
