"""One look for every figure: a tidy frame goes in, a chart comes out, and a policy keeps its colour throughout the book."""

# A module, written by hand.

from __future__ import annotations

import colorsys
import copy
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from .frames import Later, write_bytes
from .records import load_families, policy_tables

if TYPE_CHECKING:
    import altair as alt
else:
    alt = Later("altair")  # who draws nothing need not wait for it

__all__ = ['use_book_style', 'policy_colours', 'curve_chart', 'band_chart', 'stacked_area_chart', 'node_chart', 'gantt_chart',
           'save_svg', 'draw_apart']

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5BA8", "#A88A00")
INK = "#222222"
SOFT_INK = "#5A5A5A"
LINE = "#9A9A9A"
GRID = "#E7E7E7"
WIDTH = 540  # pixels of the plotting area
HEIGHT = 300


def book_theme() -> alt.theme.ThemeConfig:
    """Look of every chart in the book."""
    axis: Any = {
        "labelColor": SOFT_INK, "titleColor": INK, "gridColor": GRID, "domainColor": LINE,
        "tickColor": LINE, "labelFontSize": 12, "titleFontSize": 12.5, "titleFontWeight": "normal",
        "titlePadding": 10, "labelPadding": 5, "labelFlush": False}
    return {
        "background": "white", "padding": 12, "config": {
            "font": "sans-serif",
            "view": {"continuousWidth": WIDTH, "continuousHeight": HEIGHT, "strokeWidth": 0},
            "axis": axis, "axisX": {"grid": False}, "title": {
                "anchor": "start", "frame": "group", "fontSize": 15, "fontWeight": 600,
                "color": INK, "offset": 14, "subtitleColor": SOFT_INK, "subtitleFontSize": 12.5,
                "subtitlePadding": 5}, "legend": {
                    "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
                    "titleColor": SOFT_INK, "labelColor": INK, "symbolStrokeWidth": 3,
                    "symbolSize": 160, "rowPadding": 5, "symbolOpacity": 1, "labelLimit": 190},
            "line": {"strokeWidth": 2.2, "strokeCap": "round",
                     "strokeJoin": "round"}, "range": {"category": list(PALETTE)}, }, }


def use_book_style() -> None:
    """Switch the book's look on; a chapter calls this once, in its first cell.

    In JupyterLab and Notebook, whose server names its sessions, charts answer as in the book.
    """
    alt.theme.register("sched_lab", enable=True)(book_theme)
    alt.renderers.register("sched_lab", _shown)
    alt.renderers.enable("sched_lab" if "JPY_SESSION_NAME" in os.environ else "mimetype")


def _shown(spec: dict[str, Any], **metadata: Any) -> Any:
    """The chart as a notebook shows it, `finished`."""
    from altair.vegalite.v5.display import mimetype_renderer

    return mimetype_renderer(finished(spec), **metadata)


RECORD = {"recorded": "#4F7F86"}  # what really ran, which no policy decided
BOUND_STYLES = {
    "bound": (INK, [6, 4]), "fluid bound": (INK, [6, 4]), "bound, single nodes": (INK, [6, 4]),
    "no schedule ends before": (INK, [6, 4]), "bound, node types": (LINE, [2, 3]),
    "price bound": (LINE, [2, 3]), }

_MIXTURE_STOPS = {
    0: "#0072B2", 0.05: "#46369A", 0.1: "#9350C4", 0.2: "#DB8FC6", 0.5: "#B5174F", 1: "#D55E00"}
_SHARE = re.compile(r"(.+):(0?\.\d+|[01](?:\.0*)?)")
_STAGED_DASH = [9, 3]
_SOLID = [1, 0]
_OF_VARIANTS = (_SOLID, [6, 4], [2, 3], [9, 3, 2, 3])


def _rgb(colour: str) -> list[int]:
    """Red, green and blue of "#RRGGBB"."""
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _hex(parts: Iterable[float]) -> str:
    """ "#RRGGBB" of red, green and blue."""
    return "#" + "".join(f"{round(float(part)):02X}" for part in parts)


def _between(stops: Mapping[float, str], at: float) -> str:
    """Colour at a place between stops."""
    parts = np.array([_rgb(colour) for colour in stops.values()])
    return _hex(np.interp(at, list(stops), parts[:, i]) for i in range(3))


_GOLDEN_TURN = 0.618
_APART = 60.0  # least distance of two colours, in red, green and blue from 0 to 255


def _new_colours(count: int, taken: Iterable[str]) -> list[str]:
    """Colours for policies that have none, of an endless series, apart from all that are taken."""
    greys = [colour for colour, _ in BOUND_STYLES.values()]
    apart = np.array([_rgb(colour) for colour in [*taken, *greys]])
    found: list[str] = []
    number = 0
    while len(found) < count:
        lightness = 0.32 + 0.11 * (number % 3)
        colour = _hex(255 * part for part in
                      colorsys.hls_to_rgb(0.13 + _GOLDEN_TURN * number, lightness, 0.55))
        is_apart = np.linalg.norm(apart - _rgb(colour), axis=1).min() > _APART / (1 + number // 36)
        if is_apart:
            found.append(colour)
            apart = np.vstack([apart, _rgb(colour)])
        number += 1
    return found


def _own_colours() -> dict[str, str]:
    """Colours that the records of policies have, by their names and labels."""
    return RECORD | {label: record.colour for table in policy_tables() for record in table.values()
                     if record.colour for label in (record.name, *record.labels)}


def _coloured_policies() -> dict[str, str]:
    """Colour of every policy of every family: its own, or one apart from all others."""
    load_families()
    own = _own_colours()
    colours = dict(own)
    for table in policy_tables():
        new = [name for name in table if name not in own]
        colours |= dict(zip(new, _new_colours(len(new), own.values()), strict=True))
    return colours


def _mixture_colour(pair: str, share: float) -> str | None:
    """Colour of `first-second` if both have one; `share` is that of the first."""
    if pair in ("pwr-fgd", "fgd-pwr"):
        return _between(_MIXTURE_STOPS, share if pair == "pwr-fgd" else 1 - share)
    known = _coloured_policies()
    for first in known:
        second = pair.removeprefix(f"{first}-")
        if second != pair and second in known:
            return _between({0: known[second], 1: known[first]}, share)
    return None


def _staged_colour(stages: Sequence[str]) -> str | None:
    """Colour of policy, load, policy, load, policy: each stage counts as long as it holds."""
    colours = [fixed_colour(name) for name in stages[::2]]
    try:
        ends = [0.0, *map(float, stages[1::2]), 1.0]
    except ValueError:
        return None
    known = [_rgb(colour) for colour in colours if colour]
    weights = np.diff(ends)
    if len(known) < len(colours) or len(known) != len(weights) or (weights < 0).any():
        return None
    return _hex(weights @ np.array(known))


def fixed_colour(name: str) -> str | None:
    """Colour that a policy, a mixture, a staged policy or a bound has in every figure.

    Parameters
    ----------
    name : of a policy or a bound, or any other label, which has none
    """
    if name in BOUND_STYLES:
        return BOUND_STYLES[name][0]
    if own := _own_colours().get(name):
        return own  # without a look at families that nobody has asked for
    if "@" in name:
        return _staged_colour(name.split("@"))
    if mixture := _SHARE.fullmatch(name):
        return _mixture_colour(mixture[1], float(mixture[2]))
    return _coloured_policies().get(name)


def policy_colours(policies: Iterable[str]) -> dict[str, str]:
    """Colour of each policy (or of any other label), in the order given.

    What `fixed_colour` knows has the same colour in every figure; other labels take the next colour
    that is free.
    """
    fixed = {name: fixed_colour(name) for name in policies}
    free = [colour for colour in PALETTE if colour not in fixed.values()] or list(PALETTE)
    unknown = [name for name, colour in fixed.items() if colour is None]
    return {name: colour or free[unknown.index(name) % len(free)] for name, colour in fixed.items()}


def policy_dashes(policies: Iterable[str]) -> dict[str, list[int]]:
    """Dashes of each line: bounds and policies in stages have some, all others are solid."""
    dashes = {}
    for name in policies:
        is_staged = "@" in name and fixed_colour(name)
        dashes[name] = BOUND_STYLES[name][1] if name in BOUND_STYLES else (
            _STAGED_DASH if is_staged else _SOLID)
    return dashes


def _plain(column: str) -> str:
    """A column's name without what Vega reads as a path or a quotation: `a.b` becomes `a_2e_b`."""
    return re.sub(r"[^\w -]", lambda sign: f"_{ord(sign[0]):x}_", str(column))


def _drawn(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The columns a chart needs, under plain names, floats rounded to five significant digits."""
    small = frame[list(dict.fromkeys(columns))].reset_index(drop=True).rename(columns=_plain)
    for name in small.select_dtypes("float"):
        small[name] = [float(f"{value:.5g}") for value in small[name]]
    return small


def _colour(frame: pd.DataFrame, column: str) -> alt.Color:
    """Colour channel with the book's colours, in the order in which the labels appear."""
    colours = policy_colours(frame[column].astype(str))
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color(field=column, type="nominal", scale=scale,
                     legend=alt.Legend(title=None, symbolType="stroke"))


def _dashed(column: str, dashes: Mapping[str, list[int]], **more: Any) -> dict[str, alt.StrokeDash]:
    """Channel of the dashes by the labels of a column, if any label has some."""
    if all(dash == _SOLID for dash in dashes.values()) and not more:
        return {}
    scale = alt.Scale(domain=list(dashes), range=list(dashes.values()))
    legend = alt.Legend(title=None, symbolType="stroke", **more)
    return {"strokeDash": alt.StrokeDash(field=column, type="nominal", scale=scale, legend=legend)}


def _axis(channel: type[Any], column: str, title: str, domain: Sequence[float] | None,
          percent: bool) -> Any:
    """A numeric x or y channel."""
    scale = alt.Scale(domain=list(domain), nice=False) if domain else alt.Scale(zero=False)
    axis = alt.Axis(format=".0%") if percent else alt.Axis()
    return channel(field=column, type="quantitative", title=title, scale=scale, axis=axis)


def _tip(column: str, title: str, percent: bool = False) -> alt.Tooltip:
    """One line of the box at the mouse."""
    if percent:
        return alt.Tooltip(field=column, type="quantitative", title=title, format=".1%")
    return alt.Tooltip(field=column, type="nominal", title=title)


def _at_mouse(x: str) -> alt.Parameter:
    """The x next to the mouse."""
    near: alt.Parameter = alt.selection_point("near", nearest=True, on="pointerover", fields=[x],
                                              empty=False, clear="pointerout")
    return near


def _shown_if(chosen: alt.Parameter, shown: float, otherwise: float) -> Any:
    """Opacity that depends on what the mouse has chosen."""
    return alt.when(chosen).then(alt.value(shown)).otherwise(alt.value(otherwise))


def curve_chart(frame: pd.DataFrame, x: str, y: str, colour: str, *, x_title: str, y_title: str,
                title: str = "", step: bool = False, dash: str | None = None,
                x_domain: Sequence[float] | None = None, y_domain: Sequence[float] | None = None,
                percent: bool = False, x_percent: bool = False) -> alt.LayerChart:
    """One line per label, with the numbers at the mouse.

    Parameters
    ----------
    frame : tidy, one row per point
    x, y, colour : columns of the two coordinates and of the label
    step : hold each value until the next one, instead of joining the points
    dash : column of up to four variants, a line each; the first one seen is solid
    x_title, y_title : what the axes show, with units
    title : above the chart
    x_domain, y_domain : fixed ranges; what lies outside is clipped
    percent, x_percent : write y (or x) shares as percentages
    """
    data = _drawn(frame, [x, y, colour, *([dash] if dash else [])])
    tips = [_tip(_plain(name), name) for name in (colour, dash) if name]
    x, y, colour = (_plain(name) for name in (x, y, colour))
    tips += [_tip(x, x_title, x_percent), _tip(y, y_title, percent)]
    near = _at_mouse(x)
    picked = alt.selection_point("picked", fields=[colour], bind="legend")
    across = _axis(alt.X, x, x_title, x_domain, x_percent)
    up = _axis(alt.Y, y, y_title, y_domain, percent)
    base = alt.Chart(data).encode(across, up, _colour(data, colour))
    dashes = _dashed(colour, policy_dashes(data[colour].astype(str)))
    if dash:
        variants = dict.fromkeys(data[_plain(dash)].astype(str))
        dashes = _dashed(_plain(dash), dict(zip(variants, _OF_VARIANTS, strict=False)), symbolStrokeColor=INK)
    lines = base.mark_line(clip=True, interpolate="step-after" if step else "linear").encode(
        opacity=_shown_if(picked, 1, 0.12), **dashes).add_params(picked)
    points = base.mark_point(clip=True, filled=True, size=70).encode(
        opacity=_shown_if(near, 1, 0), tooltip=tips).add_params(near)
    rule = alt.Chart(data).mark_rule(color=LINE, clip=True)
    rule = rule.encode(across, opacity=_shown_if(near, 0.5, 0))
    return alt.layer(lines, points, rule, title=title)  # a rule that names `near` must follow it


def band_chart(frame: pd.DataFrame, x: str, y: str, colour: str, *, x_title: str, y_title: str,
               title: str = "", spread: Literal["range", "sd"] = "range",
               x_domain: Sequence[float] | None = None, percent: bool = False, x_percent: bool = False) -> alt.LayerChart:
    """Mean line and spread over the rows that share x and label (the seeds).

    Parameters
    ----------
    frame : tidy, one row per point and seed
    x, y, colour : columns of the two coordinates and of the label
    x_title, y_title : what the axes show, with units
    title : above the chart
    spread : "range" from minimum to maximum, "sd" one standard deviation (n - 1) to each side
    x_domain : fixed range; what lies outside is clipped
    percent, x_percent : write y (or x) shares as percentages
    """
    grouped = frame.groupby([colour, x], sort=False)[y]
    means = grouped.mean().reset_index()
    if spread == "sd":
        deviation = grouped.std().fillna(0).to_numpy()
        means = means.assign(low=means[y] - deviation, high=means[y] + deviation)
    else:
        means = means.assign(low=grouped.min().to_numpy(), high=grouped.max().to_numpy())
    data = _drawn(means, [x, y, colour, "low", "high"])
    x, y, colour = (_plain(name) for name in (x, y, colour))
    curves = curve_chart(data, x, y, colour, x_title=x_title, y_title=y_title, x_domain=x_domain,
                         percent=percent, x_percent=x_percent)
    across = _axis(alt.X, x, x_title, x_domain, x_percent)
    up = _axis(alt.Y, "low", y_title, None, percent)
    band = alt.Chart(data).mark_area(opacity=0.18, clip=True).encode(across, up, alt.Y2("high"),
                                                                     _colour(data, colour))
    return alt.layer(band, curves, title=title)


PART_PALETTE = ("#6B8FB3", "#DDB56A", "#8DB596", "#B898B8", "#C98B75", "#A9A9A9")


def stacked_area_chart(frame: pd.DataFrame, x: str, parts: Mapping[str, str], *, x_title: str,
                       y_title: str, title: str = "", share: str | None = None,
                       share_title: str = "share", share_domain: Sequence[float] = (0, 1),
                       x_percent: bool = False) -> alt.LayerChart:
    """Areas that add up, and optionally a dashed share on a right-hand axis.

    Parameters
    ----------
    frame : one row per x, one column per part
    x : column of the common coordinate
    parts : label of each part's column, the lowest area first
    x_title, y_title : what the axes show, with units
    title : above the chart
    share : column of a share between 0 and 1
    share_title, share_domain : of the axis on the right
    x_percent : write x as percentages
    """
    data = _drawn(frame, [x, *parts] + ([share] if share else []))
    x = _plain(x)
    share = _plain(share) if share else None
    parts = {_plain(name): label for name, label in parts.items()}
    ends = (float(data[x].min()), float(data[x].max()))
    across = _axis(alt.X, x, x_title, ends, x_percent)
    labels = list(parts.values())
    long = data.rename(columns=parts).melt(x, labels, "part", "value")
    long["order"] = long["part"].map({label: i for i, label in enumerate(labels)})
    colours = alt.Scale(domain=labels[::-1], range=[*PART_PALETTE[: len(labels)]][::-1])
    areas = alt.Chart(long).mark_area().encode(
        across, alt.Y("value:Q", title=y_title, stack="zero"),
        alt.Color("part:N", scale=colours, legend=alt.Legend(title=None, symbolType="square")),
        alt.Order("order:Q"))
    near = _at_mouse(x)
    tips = [_tip(x, x_title, x_percent), *(_tip(name, parts[name]) for name in parts)]
    tips += [_tip(share, share_title, True)] if share else []
    rule = alt.Chart(data).mark_rule(color=INK).encode(
        across, opacity=_shown_if(near, 0.6, 0), tooltip=tips).add_params(near)
    if share is None:
        return alt.layer(areas, rule, title=title)
    right = alt.Axis(orient="right", format=".0%", grid=False)
    up = alt.Y(field=share, type="quantitative", title=f"{share_title} (dashed)", axis=right,
               scale=alt.Scale(domain=list(share_domain)))
    dashed = alt.Chart(data).mark_line(color=INK, strokeDash=[6, 5],
                                       strokeWidth=2).encode(across, up)
    both: alt.LayerChart = alt.layer(alt.layer(areas, rule), dashed,
                                     title=title).resolve_scale(y="independent")
    return both


_GPU_PX = 84
_NODE_PX = 50


def node_chart(frame: pd.DataFrame, *, title: str = "") -> alt.LayerChart:
    """Boxes for the GPUs of a few nodes, filled by the share in use.

    Parameters
    ----------
    frame : one row per GPU with `node`, `gpu` (index in the node), `used_milli` (0 to 1000), and
        optionally `label`
    title : above the chart
    """
    data = _drawn(frame, ["node", "gpu", "used_milli", *(["label"] if "label" in frame else [])])
    data["label"] = data["label"] if "label" in data else data["used_milli"].astype(int).astype(str)
    data["left"] = data["gpu"] + 0.05
    data["middle"] = data["gpu"] + 0.5
    data["right"] = data["gpu"] + 0.95
    data["used"] = data["left"] + 0.9 * data["used_milli"] / 1000
    data = _drawn(data, list(data.columns))
    num_gpus = int(data["gpu"].max()) + 1
    axis = alt.Axis(orient="top", values=[i + 0.5 for i in range(num_gpus)],
                    labelExpr="'GPU ' + floor(datum.value)", grid=False, domain=False, ticks=False)
    all_gpus = alt.Scale(domain=[0, num_gpus], nice=False)
    across = alt.X("left:Q", title=None, axis=axis, scale=all_gpus)
    names = alt.Axis(domain=False, ticks=False, labelFontSize=13, labelColor=INK)
    rows = alt.Scale(paddingInner=0.22, paddingOuter=0.05)
    down = alt.Y("node:N", title=None, sort=None, scale=rows, axis=names)
    base = alt.Chart(data).encode(across, down,
                                  tooltip=["node:N", "gpu:Q", "used_milli:Q", "label:N"])
    boxes = base.mark_rect(fill="#F4F4F4", cornerRadius=4).encode(x2="right")
    fills = base.mark_rect(fill="#86BBDD", cornerRadius=4).encode(x2="used")
    fills = fills.transform_filter("datum.used_milli > 0")
    edges = base.mark_rect(filled=False, stroke=LINE, cornerRadius=4).encode(x2="right")
    texts = base.mark_text(color=INK, fontSize=13).encode(x=alt.X("middle:Q"), text="label:N")
    chart: alt.LayerChart = alt.layer(boxes, fills, edges, texts, title=title).properties(
        width=_GPU_PX * num_gpus, height=alt.Step(_NODE_PX))
    return chart

# what neither XML nor Arrow can hold, such as a lone surrogate
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

GANTT_COLOURS = {"task": "#86BBDD", "create": "#4D4D4D", "destroy": "#B8B8B8"}
_LANE_PX = 30
_GANTT_PX = 640
_LETTER_PX = 7
_LABEL_PX = 180
_GAP_PX = 1  # the gap after a rectangle, and how wide it must be to have one
_LEAST_PX = 4
_MOST_APART = 5000  # rectangles that are drawn one by one, however narrow


def lane_names(names: Sequence[str], lanes: alt.Y) -> alt.Chart:
    """Names at the left of a chart whose lane k reaches from k to k + 1 on the scale of `lanes`."""
    seen = [_NO_XML.sub("\ufffd", str(name)) for name in names]
    data = pd.DataFrame({"middle": np.arange(len(names)) + 0.5, "name": seen})
    down = lanes.copy()
    down.shorthand = "middle:Q"
    chart: alt.Chart = alt.Chart(data).mark_text(align="right", x=-8, color=SOFT_INK, fontSize=12,
                                                 limit=_LABEL_PX).encode(down, text="name:N")
    return chart


def joined(stretches: pd.DataFrame, alike: Sequence[str], start: str = "start", end: str = "end") -> pd.DataFrame:
    """One stretch of time for those that are alike and follow each other without a gap.

    Parameters
    ----------
    stretches : in any order
    alike : columns in which they agree; of the others, what the first one says is kept
    start, end : columns of the two moments
    """
    ordered = stretches.sort_values([*alike, start], kind="stable")
    last = ordered.shift()
    goes_on = (ordered[[*alike]] == last[[*alike]]).all(axis=1) & (ordered[start] == last[end])
    return ordered.groupby((~goes_on).cumsum().to_numpy()).agg(dict.fromkeys(ordered, "first") | {end: "last"})


def _as_seen(data: pd.DataFrame, least: float) -> pd.DataFrame:
    """Rectangles of a lane each as one where they are too narrow for a gap and a label, and touch."""
    is_narrow = data["end"] - data["start"] < least
    narrow = data[is_narrow]
    each = narrow.loc[narrow.index.repeat(narrow["num_lanes"])].assign(num_lanes=1, label="")
    each["lane"] += each.groupby(level=0).cumcount()
    return pd.concat([data[~is_narrow], joined(each, ["lane", "kind"])], ignore_index=True)


def _rectangles(data: pd.DataFrame, since: float, until: float) -> pd.DataFrame:
    """Corners of what lies between two times, and the labels that fit."""
    data = data[(data["start"] < until) & (data["end"] > since)].astype({"label": str})
    pixel = (until - since) / _GANTT_PX
    if len(data) > _MOST_APART:
        data = _as_seen(data, _LEAST_PX * pixel)
    left = data["start"].clip(lower=since)
    right = data["end"].clip(upper=until)
    width = right - left
    data["left"] = left
    data["right"] = right - np.where(width >= _LEAST_PX * pixel, _GAP_PX * pixel, 0)
    data["top"] = data["lane"] + 0.04
    data["bottom"] = data["lane"] + data["num_lanes"] - 0.04
    data["x"] = (left + right) / 2
    data["y"] = data["lane"] + data["num_lanes"] / 2
    data["shown"] = data["label"].where(width >= _LETTER_PX * data["label"].str.len() * pixel, "")
    return _drawn(
        data,
        ["start", "end", "label", "kind", "left", "right", "top", "bottom", "x", "y", "shown"])


def gantt_chart(frame: pd.DataFrame, lanes: Sequence[str], *, title: str = "",
                x_title: str = "time (s)", colours: Mapping[str, str] = GANTT_COLOURS,
                since: float = 0.0, until: float | None = None) -> alt.LayerChart:
    """Rectangles of time by lane: a Gantt chart.

    Parameters
    ----------
    frame : one row per rectangle with `lane` (first lane, from 0), `num_lanes`, `start`, `end`,
        `label` and `kind`; of very many, those of a kind that touch and are too narrow for a label are drawn as one
    lanes : names of the lanes, top to bottom
    colours : fill by kind, all that there can be; the legend shows them if the frame has several
    since, until : ends of the time axis, to enlarge a part or to compare schedules; 0 and the last
        end if not given
    title, x_title : above the chart, and below the time axis
    """
    data = _drawn(frame, ["lane", "num_lanes", "start", "end", "label", "kind"])
    kinds = set(data["kind"])
    if until is None:
        until = float(data["end"].max()) if len(data) else since + 1.0
    across = alt.X("left:Q", title=x_title, scale=alt.Scale(domain=[since, until], nice=False))
    # all layers say it, or one's default wins
    none = alt.Axis(values=[], grid=False, ticks=False, domain=False)
    down = alt.Y("top:Q", title=None, axis=none, scale=alt.Scale(domain=[0, len(lanes)],
                                                                 reverse=True, nice=False))
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    several = alt.Color("kind:N", title=None, scale=scale, legend=alt.Legend())
    fill = several if len(kinds) > 1 else alt.ColorValue(colours[min(kinds)] if kinds else INK)
    tips = [
        "label:N", "kind:N",
        alt.Tooltip("start:Q", format=".4~g"),
        alt.Tooltip("end:Q", format=".4~g")]
    base = alt.Chart(_rectangles(data, since, until))
    bars = base.mark_rect().encode(
        across, down, alt.X2(field="right"), alt.Y2(field="bottom"), color=fill, tooltip=tips)
    texts = base.mark_text(color=INK, fontSize=12).encode(
        alt.X("x:Q"), alt.Y("y:Q", title=None, axis=none), text="shown:N")
    chart: alt.LayerChart = alt.layer(bars, texts, lane_names(lanes, down), title=title).properties(
        width=_GANTT_PX, height=_LANE_PX * len(lanes))
    return chart

# as wide as the letters that vl-convert measures
_SVG_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
_TITLE_LETTERS = 64


def _vega_lite() -> str:
    """Version of the drawing program that the charts are written for."""
    return ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def _readable(value: Any) -> Any:
    """The same, without characters that XML forbids (control characters, halves of a pair)."""
    if isinstance(value, str):
        return _NO_XML.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_readable(key): _readable(part) for key, part in value.items()}
    return [_readable(part) for part in value] if isinstance(value, list) else value


def _break_titles(spec: dict[str, Any]) -> None:
    """Break long titles into lines, those of concatenated charts too."""
    if isinstance(title := spec.get("title"), str) and len(title) > _TITLE_LETTERS:
        spec["title"] = textwrap.wrap(title, _TITLE_LETTERS)
    for way in ("vconcat", "hconcat", "concat"):
        for part in spec.get(way, []):
            _break_titles(part)


def _specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """What goes into a file, in the book's look."""
    alt.theme.register("sched_lab", enable=False)(book_theme)
    # as many rows as it needs: Altair's limit of 5000 is meant for notebooks
    with alt.theme.enable("sched_lab"), alt.data_transformers.enable("default", max_rows=None):
        spec: dict[str, Any] = _readable(chart.to_dict())
    _break_titles(spec)
    spec["config"]["font"] = _SVG_FONT
    return spec


def save_svg(chart: alt.TopLevelMixin, path: str | Path) -> Path:
    """Draw a chart into an SVG file.

    Parameters
    ----------
    chart : of Altair
    path : the .svg file

    Raises
    ------
    OutputError : the file cannot be written
    """
    import vl_convert

    svg = vl_convert.vegalite_to_svg(_specification(chart), vl_version=_vega_lite())
    return write_bytes(svg.encode(), path)


Part = dict[str, Any]  # a chart in Vega-Lite, or a part of one
_PANELS = ("hconcat", "vconcat", "concat")


def _title_of(channel: Part) -> str:
    """What an axis or a legend shows."""
    inner = channel.get("axis") or channel.get("legend") or {}
    title = channel.get("title") or inner.get("title") or channel.get("field") or ""
    return " ".join(map(str, title)) if isinstance(title, list) else str(title).replace("_", " ")


def _heading(part: Part) -> str:
    """Title and subtitle of a chart as one line."""
    title = part.get("title") or ""
    parts = title if isinstance(title, dict) else {"text": title}
    lines = [parts.get("text", ""), parts.get("subtitle", "")]
    words = [" ".join(map(str, line)) if isinstance(line, list) else str(line) for line in lines]
    return ". ".join(word.strip().rstrip(".") for word in words if word.strip())


class Unit(NamedTuple):
    """One mark of a chart.

    Parameters
    ----------
    mark : line, bar, ...
    encoding : its channels, those of the layers around it too
    rows : its data; none if they are computed when the chart is drawn
    part : where it stands in the chart
    """

    mark: str
    encoding: Part
    rows: list[Part]
    part: Part


def _units(part: Part, datasets: Mapping[str, list[Part]], above: Part | None = None,
           panels: bool = True) -> Iterator[Unit]:
    """Every mark of a chart, from the back to the front."""
    around: Part = {
        "data": part.get("data") or (above or {}).get("data") or {},
        "encoding": {**(above or {}).get("encoding", {}), **part.get("encoding", {})},
        "transform": [*(above or {}).get("transform", []), *part.get("transform", [])]}
    if "mark" in part:
        rows = datasets.get(around["data"].get("name", "")) or around["data"].get("values") or []
        yield Unit(_mark_of(part), around["encoding"], [] if around["transform"] else rows, part)
    inner = [*part.get("layer", []), *([part["spec"]] if "spec" in part else [])]
    for one in inner + [one for way in _PANELS if panels for one in part.get(way, [])]:
        yield from _units(one, datasets, around)


_SAYS = {"line": "Lines", "area": "Areas", "bar": "Bars", "point": "Points", "circle": "Points",
         "tick": "Ticks", "rect": "Cells", "rule": "Rules", "text": "Words"}
_MOST_NAMES = 9


def _named(names: Iterable[Any]) -> str:
    """Names, the first few of many."""
    known = [_written(name, {}) for name in dict.fromkeys(names)]
    more = [f"{len(known) - _MOST_NAMES} more"] if len(known) > _MOST_NAMES + 1 else []
    return "; ".join(known[: _MOST_NAMES if more else None] + more)


def _is_share(channel: Part) -> bool:
    """Whether an axis writes percentages."""
    return str((channel.get("axis") or {}).get("format", "")).endswith("%")


def _written(value: Any, channel: Part) -> str:
    """A value as its axis writes it."""
    if not isinstance(value, int | float):
        return str(value)
    return f"{100 * value:.4g} %" if _is_share(channel) else f"{value:.5g}"


def _values(unit: Unit, channel: str) -> list[Any]:
    """What a mark shows on a channel, row by row; none if a row has nothing."""
    field = unit.encoding.get(channel, {}).get("field")
    values = [row.get(field) for row in unit.rows]
    return [] if any(value is None for value in values) else values


def _extremes(pairs: Sequence[tuple[Any, Any]], channel: Part) -> str:
    """Least and most of pairs of a value and a name."""
    least, most = (choose(pairs, key=lambda pair: pair[0]) for choose in (min, max))
    first, last = (f"{_written(value, channel)} ({name})" for value, name in (least, most))
    return f"all {_written(most[0], channel)}" if least[0] == most[0] else f"from {first} to {last}"


def _line_ends(unit: Unit) -> str:
    """Where lines end, or where a single one begins and ends."""
    x, y, names = (_values(unit, channel) for channel in ("x", "y", "color"))
    if not x or not y or not all(isinstance(value, int | float) for value in y):
        return ""
    lines: dict[Any, dict[Any, Any]] = {}
    for across, up, name in zip(x, y, names or [""] * len(x), strict=True):
        lines.setdefault(name, {})[across] = up
    shared = set.intersection(*(set(line) for line in lines.values()))
    if not shared:
        return ""
    ends = [_written(end, unit.encoding["x"]) for end in (min(shared), max(shared))]
    if len(lines) == 1:
        line = next(iter(lines.values()))
        low, high = (_written(line[end], unit.encoding["y"]) for end in (min(shared), max(shared)))
        return f"From {low} at {ends[0]} to {high} at {ends[1]}."
    at_end = [(line[max(shared)], name) for name, line in lines.items()]
    return f"At {ends[1]}: {_extremes(at_end, unit.encoding['y'])}."


def _range(unit: Unit) -> str:
    """Least and most of what bars, points or areas show, and where."""
    kinds = {axis: unit.encoding.get(axis, {}).get("type") for axis in "xy"}
    amount = "x" if kinds["x"] == "quantitative" and kinds["y"] != "quantitative" else "y"
    values = _values(unit, amount)
    if not values or not all(isinstance(value, int | float) for value in values):
        return ""
    others = [_values(unit, one) for one in ("y" if amount == "x" else "x", "color", "facet")]
    names = [_named(name).replace("; ", ", ") for name in zip(*filter(None, others),
                                                              strict=True)]
    if not names:
        return ""
    title = _title_of(unit.encoding[amount])
    return f"{title}: {_extremes(list(zip(values, names, strict=True)), unit.encoding[amount])}."


def _boxes(rows: Sequence[Part]) -> str:
    """What a node chart shows."""
    nodes: dict[Any, list[str]] = {}
    for row in rows:
        label = str(row["label"]).strip()
        nodes.setdefault(row["node"], []).append(label or str(row["used_milli"]))
    said = "; ".join(f"{node}: {', '.join(boxes)}" for node, boxes in nodes.items())
    return f"A row for each node, a box for each GPU, filled by what is in use. {said}."


def _lanes(rows: Sequence[Part], names: Iterable[Any], x_title: str) -> str:
    """What a Gantt chart shows."""
    kinds = [str(row.get("kind", "bar")) for row in rows]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)) or "none"
    since, until = (f"{choose((row.get(end, 0) for row in rows), default=0):.5g}"
                    for choose, end in ((min, "start"), (max, "end")))
    return f"Bars by lane ({_named(names)}) over {x_title}, {since} to {until}: {counts}."


def _main_unit(units: Sequence[Unit]) -> Unit:
    """The mark that carries the message: one with series, and lines before areas and bars."""
    order = [*_SAYS]
    return min(units, key=lambda unit: (
        not unit.encoding.get("color", {}).get("field"),
        order.index(unit.mark) if unit.mark in order else len(order)))


def _series_of(main: Unit, facets: Part) -> str:
    """Names of the series, and of the panels."""
    color = main.encoding.get("color", {})
    known = _values(main, "color") or (color.get("scale") or {}).get("domain") or []
    is_named = color.get("field") and known and color.get("type") != "quantitative"
    seen = [row[facets["field"]] for row in main.rows if facets.get("field") in row]
    panels = f" A panel for each {_title_of(facets)}: {_named(seen)}." if seen else ""
    return panels + (f" Series: {_named(known)}." if is_named else "")


def _panel_says(part: Part, datasets: Mapping[str, list[Part]], above: Part) -> str:
    """Axes, series and the answer of one panel."""
    units = list(_units(part, datasets, above, panels=False))
    for unit in units:
        row = unit.rows[0] if unit.rows else {}
        if {"node", "used_milli", "label"} <= row.keys():
            return _boxes(unit.rows)
        if {"top", "bottom", "start", "end"} <= row.keys():
            names = [row["name"] for unit in units for row in unit.rows if "middle" in row]
            return _lanes(unit.rows, names, _title_of(unit.encoding["x"]))
    if not units:
        return ""
    main = _main_unit(units)
    axes = " by ".join(filter(None, (_title_of(main.encoding.get(axis, {})) for axis in "yx")))
    facet = part.get("facet") or main.encoding.get("facet") or {}
    facets = facet if "field" in facet else facet.get("column") or facet.get("row") or {}
    answer = _line_ends(main) if main.mark == "line" and not facets else ""
    shown = f"{_SAYS.get(main.mark, 'Marks')} of {axes or 'the data'}.{_series_of(main, facets)}"
    return f"{shown} {answer or _range(main)}".strip()


def described(spec: Part) -> str:
    """What a chart shows, for who does not see it: title, axes, series and the answer.

    Parameters
    ----------
    spec : of Vega-Lite; its own `description` goes before all
    """
    if own := str(spec.get("description", "")).strip():
        return own
    datasets = spec.get("datasets", {})
    panels: list[tuple[Part, Part]] = [(spec, {})]
    for part, above in panels:
        panels += [(one, {**above, **part}) for way in _PANELS for one in part.get(way, [])]
    binds = [param.get("bind") for param in spec.get("params", [])]
    choices = [f"Choose {bind.get('name', '')}{_named(bind['options'])}."
               for bind in binds if isinstance(bind, dict) and "options" in bind]
    said = [text for part, above in panels for text in (
        _heading(part) or _heading(part.get("spec", {})), _panel_says(part, datasets, above))]
    return str(_readable(" ".join(text if text.endswith((".", "?", "!")) else f"{text}."
                                  for text in said + choices if text)))


_CROWD = 60  # points of lines from which on a chart can be enlarged
_WITH_KEY = "wheel![event.ctrlKey || event.metaKey]"  # the wheel alone moves the page
_WITH_MOUSE = "[pointerdown[event.pointerType === 'mouse'], window:pointerup] > window:pointermove!"
_AGAIN = ("event.shiftKey || (length(data('{0}_store')) === 1 && data('{0}_store')[0].values[0] "
          "=== (datum.value || item().items[0].items[0].datum.value))")  # the same name once more


def _curve_of(part: Part, datasets: Mapping[str, list[Part]], above: Part) -> Unit | None:
    """The lines of a panel, with names and a value for each x, if nothing else answers the mouse."""
    units = list(_units(part, datasets, above, panels=False))
    curves = [unit for unit in units if unit.mark == "line"]
    others = [unit for unit in units if unit.mark not in ("line", "point", "circle")]
    if len(curves) != 1 or any("tooltip" in unit.encoding for unit in others):
        return None
    line = curves[0]
    x, y, color = (line.encoding.get(channel, {}) for channel in ("x", "y", "color"))
    is_plain = not {"aggregate", "bin", "timeUnit", "stack"} & {*x, *y}
    has_panels = {"row", "column", "facet", "detail"} & line.encoding.keys()
    has_fields = all(channel.get("field") for channel in (x, y, color))
    is_curve = is_plain and not has_panels and has_fields and (
        y.get("type") == "quantitative" and color.get("type") == "nominal")
    return line if is_curve else None


def _format(channel: Part) -> str:
    """How the box at the mouse writes a number."""
    return ".1%" if _is_share(channel) else ".5~g"


def _rule_at_mouse(line: Unit, groups: Sequence[str], near: str) -> Part:
    """A rule at the x next to the mouse, with a box that lists all series there."""
    x, y, color = (line.encoding[channel] for channel in ("x", "y", "color"))
    names = (color.get("scale") or {}).get("domain") or dict.fromkeys(_values(line, "color"))
    keys = [{"label": name, "series": f"s{number}"} for number, name in enumerate(names)]
    named = {"data": {"values": keys}, "key": "label", "fields": ["series"]}
    steps: list[Part] = [
        {"lookup": color["field"], "from": named},
        {"pivot": "series", "value": y["field"], "groupby": [x["field"], *groups], "op": "mean"}]
    wanted = f"isValid(datum.{{0}}) ? format(datum.{{0}}, '{_format(y)}') : '\u2013'"
    steps += [{"calculate": wanted.format(key["series"]), "as": key["series"]} for key in keys]
    form = {"format": _format(x)} if x.get("type") == "quantitative" else {}
    tips = [{"field": x["field"], "type": x["type"], "title": _title_of(x), **form}]
    tips += [{"field": key["series"], "type": "nominal", "title": str(key["label"]) or " "}
             for key in keys]
    seen = {"condition": [{"param": near, "empty": False, "value": 0.5}], "value": 0}
    return {"mark": {"type": "rule", "color": LINE, "clip": True}, "transform": steps,
            "encoding": {"x": x, "tooltip": tips, "opacity": seen}}


def _param(spec: Part, name: str, of: Part, view: str, **bind: str) -> str:
    """Name of a parameter of a chart: one that does the same is asked to serve another view."""
    params = spec.setdefault("params", [])
    for param in params:
        if param["name"].startswith(name) and param.get("select") == of:
            param["views"].append(view)
            return str(param["name"])
    name += f"_{len(params)}" if any(param["name"] == name for param in params) else ""
    params.append({"name": name, "select": of, "views": [view], **bind})
    return name


def _without_old_rule(spec: Part, part: Part) -> None:
    """Take away the box for one point, and the rule that came with it."""
    old = {view for param in spec.get("params", []) for view in param.get("views", [])
           if (param.get("select") or {}).get("nearest")}
    part["layer"] = [one for one in part["layer"] if not (
        "rule" in str(one.get("mark")) and "'near" in str(one["encoding"].get("opacity")))]
    for one in part["layer"]:
        if str(one.get("mark")) and one.get("encoding", {}).get("tooltip") is not None:
            del one["encoding"]["tooltip"]
        if one.get("name") in old:
            view = one.pop("name")
            for param in spec["params"]:
                if view in param.get("views", []):
                    param["views"].remove(view)


def _touch(spec: Part, part: Part, line: Unit, view: str, facets: Sequence[str]) -> None:
    """Let a panel of lines list all series at the mouse, isolate one of them, and be enlarged."""
    if "layer" not in part:
        keys = [key for key in ("mark", "encoding", "name") if key in part]
        part["layer"] = [{key: part.pop(key) for key in keys}]
    else:
        _without_old_rule(spec, part)
    one = next(one for one in part["layer"] if _mark_of(one) == "line")
    one["name"] = one.get("name") or f"{view}_lines"
    color = line.encoding["color"]
    if color.get("legend", {}) is not None and "opacity" not in one.get("encoding", {}):
        picked = _param(spec, "picked", {"type": "point", "fields": [color["field"]]}, one["name"],
                        bind="legend")
        seen = {"condition": [{"param": picked, "value": 1}], "value": 0.12}
        one["encoding"] = {**one.get("encoding", {}), "opacity": seen}
    x = line.encoding["x"]["field"]
    choice = {"type": "point", "fields": [x], "nearest": True, "on": "pointerover",
              "clear": "pointerout"}
    near = _param(spec, "near", choice, f"{view}_rule")
    rule = _rule_at_mouse(line, facets, near)
    rule["transform"] = [*one.get("transform", []), *rule["transform"]]
    own = {"data": one["data"]} if "data" in one else {}
    part["layer"].append({**own, **rule, "name": f"{view}_rule"})
    axes = [axis for axis in "xy" if line.encoding[axis].get("type") == "quantitative"]
    is_crowded = not 0 < len(line.rows) < _CROWD
    if not facets and is_crowded and axes == ["x", "y"]:
        zoomed = {"type": "interval", "encodings": axes, "zoom": _WITH_KEY,
                  "translate": _WITH_MOUSE}
        spec["params"].append({"name": f"{view}_zoomed", "select": zoomed, "bind": "scales",
                               "views": [one["name"]]})


def _mark_of(part: Part) -> str:
    """Kind of mark, "" of what has none itself."""
    mark = part.get("mark", "")
    return str(mark if isinstance(mark, str) else mark["type"])


def _touch_panels(spec: Part, part: Part, above: Part, facets: Sequence[str], place: str) -> None:
    """Find the panels of lines, and let each answer the mouse."""
    inner = [part["spec"]] if "spec" in part else []
    inner += [one for way in (*_PANELS, "layer") for one in part.get(way, [])]
    is_panel = "mark" in part or any(_mark_of(one) == "line" for one in part.get("layer", []))
    if is_panel and not any("encoding" in one and "layer" in one for one in (part, above)):
        line = _curve_of(part, spec.get("datasets", {}), above)
        if line and not (facets and "transform" in line.part):
            _touch(spec, part, line, place, facets)
        return
    facet = part.get("facet") or {}
    fields = [one["field"] for one in (facet, *facet.values())
              if isinstance(one, dict) and "field" in one]
    for number, one in enumerate(inner):
        _touch_panels(spec, one, {**above, **part}, [*facets, *fields], f"{place}_{number}")
    if fields and (rule := part["spec"].get("layer", [{}])[-1]).get("name") == f"{place}_0_rule":
        part.setdefault("transform", []).append(rule["transform"].pop(0))  # no look-up in panels


def finished(spec: Part) -> Part:
    """A chart that says what it shows, and lines that can be asked; the same if it was finished.

    Parameters
    ----------
    spec : of Vega-Lite
    """
    done = copy.deepcopy(spec)
    if any("panel" in str(param.get("views")) for param in spec.get("params", [])):
        return done
    done["description"] = described(spec)
    _touch_panels(done, done, {}, [], "panel")
    done["params"] = [param for param in done.get("params", []) if param.get("views") != []]
    for param in done["params"]:
        if param.get("bind") == "legend":
            param["select"] = {**param["select"], "toggle": _AGAIN.format(param["name"])}
    if not done["params"]:
        del done["params"]
    return done


DRAWN_WITHIN_S = 300  # all charts of a folder
_DRAW = """
import json, sys
job = json.load(sys.stdin)
sys.path[:] = job["path"]
import vl_convert
for file, spec in job["charts"].items():
    svg = vl_convert.vegalite_to_svg(spec, vl_version=job["version"])
    with open(file, "w", encoding="utf-8", newline="") as out:
        out.write(svg)
"""


def _draw(specs: Mapping[str, Any]) -> str:
    """Draw specifications, by file, in a child process; return what went wrong, if anything."""
    task = json.dumps({"path": sys.path, "version": _vega_lite(), "charts": specs})
    try:
        done = subprocess.run([sys.executable, "-P", "-c", _DRAW], input=task, text=True,
                              encoding="utf-8", capture_output=True, timeout=DRAWN_WITHIN_S)
    except subprocess.TimeoutExpired:
        return f"drawing took more than {DRAWN_WITHIN_S} s"
    if done.returncode < 0:
        return f"the drawing process died of signal {-done.returncode}, perhaps for want of memory"
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def draw_apart(charts: Mapping[str, alt.TopLevelMixin],
               folder: str | Path | None = None) -> dict[str, str]:
    """Draw charts into .svg files of a folder, in a process of their own.

    Without a folder nothing is written.

    Parameters
    ----------
    charts : by file name
    folder : where they go

    Returns
    -------
    SVG of each chart that could be drawn, by file name without its suffix

    Warns
    -----
    UserWarning : a chart could not be drawn or written; the others are there
    """
    missing = list(charts)
    svgs: dict[str, str] = {}
    reason = ""
    try:
        with tempfile.TemporaryDirectory() as place:
            drawings = {name: Path(place, f"{number}.svg") for number, name in enumerate(charts)}
            reason = _draw({str(drawings[name]): _specification(chart)
                            for name, chart in charts.items()})
            drawn = {name: path.read_text("utf-8") for name, path in drawings.items()
                     if path.is_file()}
        for name, svg in drawn.items():
            svgs[Path(name).stem] = svg
            if folder is not None:
                write_bytes(svg.encode(), Path(folder, name))
            missing.remove(name)
    except OSError as trouble:
        reason = str(trouble)
    if missing:
        where = "" if folder is None else f"; all else is in {folder}"
        warnings.warn(f"{', '.join(missing)} could not be drawn ({reason}){where}", stacklevel=2)
    return svgs
