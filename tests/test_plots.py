"""Charts: names are data wherever they go, and a colour means one thing."""
import importlib
import importlib.util
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import altair as alt
import nbformat
import numpy as np
import pandas as pd
import pytest
import vl_convert
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.far.mig import mig_of, schedule_chart
from sched_lab.far.refine import far
from sched_lab.hadar.model import toy_workload
from sched_lab.hadar.report import places_chart, report_of, usage_chart
from sched_lab.lab import plots, records
from sched_lab.lab.jit import interpreted
from sched_lab.lab.plots import (
    BOUND_STYLES,
    GANTT_COLOURS,
    band_chart,
    curve_chart,
    finished,
    fixed_colour,
    gantt_chart,
    node_chart,
    policy_colours,
    policy_dashes,
    save_svg,
    stacked_area_chart,
    use_book_style,
)
from sched_lab.lab.records import PolicyRecord, PolicyTable
from sched_lab.online.policies import POLICIES

EXTENSION = Path(__file__).parents[1] / "_ext" / "nbdev_book.py"
HOSTILE = ["</script><script>document.title=1</script>", "<!--<script>", "it's", 'a "b"', "a\\", "a\\'];alert(1)//",
           "${alert(1)}", "{{1+1}}", "datum.x", "a.b[c]", "&lt;b&gt;", "<img src=x onerror=document.title=1>",
           "line\u2028end\u2029", "nul\x00 bell\x07", "\ud800 half", "x" * 5000, "\u202eright to left", "مهمة", "🙂",
           "", " ", "null", "signal", "=1+1", "]]>", "%", "two\nlines\ttab"]
NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=30), st.text("<>&'\"\\/!-[]{}.$`;=\u2028\x00", max_size=9))
LABELS = NAMES.filter(lambda name: "\ud800" not in name)    # a frame cannot hold half a character
ONLINE = [*POLICIES, *(f"pwr-fgd:{share}" for share in (0.05, 0.1, 0.2, 0.5)), "pwr@0.8@fgd"]
FAMILIES = {family: list(importlib.import_module(f"sched_lab.{family}.policies").POLICIES)
            for family in ("andreas", "hadar", "far")} | {"online": ONLINE}
COLOURS = plots._own_colours()


def gantt(lanes, labels, **options):
    """One rectangle a lane."""
    frame = pd.DataFrame({"lane": range(len(lanes)), "num_lanes": 1, "start": 0.0, "end": 10.0, "label": labels,
                          "kind": "task"})
    return gantt_chart(frame, lanes, **options)


def texts(value):
    """Every string of a specification, with the path of keys that leads there."""
    todo = [((), value)]
    while todo:
        path, part = todo.pop()
        if isinstance(part, dict):
            todo += [((*path, key), inner) for key, inner in part.items()]
        elif isinstance(part, list):
            todo += [((*path, "[]"), inner) for inner in part]
        elif isinstance(part, str):
            yield path, part


def program_texts(spec):
    """List the strings that Vega takes for a program: expressions, filters, signals and tests."""
    return [text for path, text in texts(spec) if {"expr", "signal", "filter", "calculate", "test", "update",
                                                   "labelExpr", "format"} & set(path) and "datasets" not in path]


def shown(svg):
    """Texts of an SVG file, which must be well formed."""
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


# --- names are data


@settings(max_examples=8)
@given(st.lists(NAMES, min_size=1, max_size=4), st.lists(LABELS, min_size=4, max_size=4), NAMES)
def test_hostile_names_stay_data(tmp_path_factory, lanes, labels, title):
    folder = tmp_path_factory.mktemp("charts")
    chart = gantt(lanes, labels[:1] * len(lanes), title=title)
    svg = save_svg(chart, folder / "a.svg").read_text(encoding="utf-8")
    assert len(shown(svg)) >= sum(bool(name.strip()) for name in lanes)    # well formed, and every lane has its text
    spec = plots._specification(chart)
    data = [row for rows in spec["datasets"].values() for row in rows]
    kept = [row["name"] for row in data if "name" in row]
    assert [re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "\ufffd", name) for name in lanes] == kept


def test_no_name_is_part_of_an_expression():
    marked = ["ZQ'); alert(1)//", "ZQ\\"]
    toy = toy_workload()
    run = report_of(replace(toy, job_name=tuple(f"ZQ'{name}" for name in toy.job_name)), "hadar").run
    charts = [gantt(marked, marked, title="ZQ"), gantt(marked, marked, until=4, since=1),
              node_chart(pd.DataFrame({"node": marked, "gpu": 0, "used_milli": 500, "label": marked})),
              curve_chart(pd.DataFrame({"x": [0, 1], "y": [0, 1], "c": marked}), "x", "y", "c", x_title="", y_title=""),
              places_chart(run, title="ZQ"), usage_chart(run, title="ZQ")]
    for chart in charts:
        programs = program_texts(chart.to_dict())
        assert not [text for text in programs if "ZQ" in text]


def test_column_names_are_no_paths():
    """A chart with odd column names draws what the same chart with plain names draws."""
    name = "a.b[0] it's \"b\" a\\b pwr-fgd:0.1 <x>"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": np.arange(6.0), "y": rng.random(6), "c": list("ababab"), "d": list("vvvwww")})
    odd = frame.rename(columns={column: name + column for column in "xycd"})
    words = {"x_title": "x", "y_title": "y"}
    for draw in (curve_chart, band_chart):
        pair = [draw(table, *columns, **words) for table, columns in (
            (frame, "xyc"), (odd, [name + column for column in "xyc"]))]
        marks = [re.findall(r'\bd="(M[^"]*)"', vl_convert.vegalite_to_svg(chart.to_dict())) for chart in pair]
        assert marks[0] == marks[1] and len(marks[0]) > 4
    pair = [stacked_area_chart(table, x, {part: "part"}, share=share, **words)
            for table, x, part, share in ((frame, "x", "y", "y"), (odd, *(name + column for column in "xyy")))]
    svgs = [vl_convert.vegalite_to_svg(chart.to_dict()) for chart in pair]
    assert re.findall(r'\bd="(M[^"]*)"', svgs[0]) == re.findall(r'\bd="(M[^"]*)"', svgs[1])


@pytest.fixture(scope="module")
def extension():
    """Load the reader that the book has for its notebooks."""
    location = importlib.util.spec_from_file_location("nbdev_book", EXTENSION)
    module = importlib.util.module_from_spec(location)
    location.loader.exec_module(module)
    return module


@settings(max_examples=40)
@given(title=NAMES, row=st.dictionaries(NAMES, NAMES, max_size=3))
def test_the_books_pages_hold_names_as_data(extension, title, row):
    """The same rule where the book puts a stored chart into a page."""
    spec = {"description": title, "data": row}
    block = extension.vega_block(spec)
    assert block.count("<script") == block.count("</script") == 1 and "<!--" not in block
    assert json.loads(re.search(r'class="vega-spec">(.*?)</script', block, re.S)[1]) == spec


def test_a_helper_is_open_where_its_page_speaks_of_it(extension):
    cells = ["Every format is asked (`asked_first`).", "#| exporti\ndef asked_first():\n    return 1",
             "#| exporti\nBEFORE, AFTER = 0, 1\nWORDS: dict[str, int] = {}", "#| exporti\ndef checked():\n    return 2",
             "#| export\ndef public():\n    return helper()", "#| exporti\nclass Helper: ...\n\n\ndef helper(): ...",
             "assert checked() == 2", "#| hide\nprint(WORDS)"]
    make = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    notebook = nbformat.v4.new_notebook(cells=[make[number == 0](text) for number, text in enumerate(cells)])
    page = extension.read_nb(nbformat.writes(notebook)).cells
    tags = {cell.source.splitlines()[0]: cell.metadata.tags for cell in page if cell.cell_type == "code"}
    assert tags == {"def asked_first():": [], "BEFORE, AFTER = 0, 1": ["hide-input"], "def checked():": [],
                    "def public():": [], "class Helper: ...": ["hide-input"], "assert checked() == 2": [],
                    "print(WORDS)": ["remove-cell"]}
    assert [cell.metadata.mystnb.code_prompt_show for cell in page if "mystnb" in cell.metadata] == [
        "Show BEFORE, AFTER, WORDS", "Show Helper, helper"]


@pytest.mark.parametrize("source, is_folded", [
    ("import os\n\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import abc", True),
    ("import os\nos.name", False), ("if os:\n    import abc", False),
    ("%matplotlib inline\nimport os", False), ("", False)])
def test_a_cell_that_only_imports_is_folded(extension, source, is_folded):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("#| export\n" + source)])
    cell = extension.read_nb(nbformat.writes(notebook)).cells[0]
    assert ("hide-input" in cell.metadata.tags) == is_folded
    assert cell.metadata.get("mystnb", {}).get("code_prompt_show") == ("Show imports" if is_folded else None)


# --- a colour means one thing


def lab(colour):
    """CIE L*a*b*."""
    part = np.array([int(colour[i:i + 2], 16) for i in (1, 3, 5)]) / 255
    light = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ light
    f = np.cbrt(np.maximum(xyz / [0.9505, 1.0, 1.089], 1e-9))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_registered_has_a_colour_of_its_own(family):
    names = list(FAMILIES[family])
    assert [name for name in names if fixed_colour(name) is None] == []
    seen = {name: (fixed_colour(name), tuple(policy_dashes([name])[name])) for name in names}
    for (one, (colour, dash)), (other, (colour_2, dash_2)) in combinations(seen.items(), 2):
        assert dash != dash_2 or np.linalg.norm(lab(colour) - lab(colour_2)) > 15, (one, other)


@settings(max_examples=30)
@given(st.lists(st.sampled_from([*COLOURS, *BOUND_STYLES, *ONLINE, "mine", "yours", "no: mix:0.1"]),
                unique=True))
def test_colours_do_not_depend_on_the_company(names):
    colours = policy_colours(names)
    assert list(colours) == names
    assert all(colours[name] == fixed_colour(name) for name in names if fixed_colour(name))
    assert all(re.fullmatch("#[0-9A-F]{6}", colour) for colour in colours.values())


def test_a_new_policy_needs_no_line():
    """Ten new policies of a table have colours, apart from all others, and keep them in any company."""
    new = [f"new-{number}" for number in range(10)]
    assert [fixed_colour(name) for name in new] == [None] * 10
    table = PolicyTable(*(PolicyRecord(name, "does something new", "nobody", None) for name in [*new, "fgd"]),
                        PolicyRecord("mine", "has a colour", "nobody", None, colour="#123456"))
    try:
        colours = {name: fixed_colour(name) for name in new}
        assert policy_colours(reversed(new))["new-3"] == colours["new-3"] and len(set(colours.values())) == 10
        for name, other in combinations([*colours.values(), *COLOURS.values()], 2):
            assert name == other or np.linalg.norm(lab(name) - lab(other)) > 9
        assert fixed_colour("fgd") == COLOURS["fgd"] and fixed_colour("new-1-fgd:0.5")
        assert fixed_colour("mine") == "#123456" and fixed_colour("mine-fgd:0.5")
        assert fixed_colour("new-1@0.5@fgd") and policy_dashes(["new-1@0.5@fgd"])["new-1@0.5@fgd"] == [9, 3]
    finally:
        records._TABLES.remove(table)
    assert fixed_colour("new-3") is None


def test_bounds_are_no_policies():
    policies = {fixed_colour(name) for name in [*COLOURS, *ONLINE]}
    assert not policies & {colour for colour, _ in BOUND_STYLES.values()}
    assert all(policy_dashes([name])[name] != [1, 0] and fixed_colour(name) for name in BOUND_STYLES)


def test_dashes_are_drawn():
    frame = pd.DataFrame({"x": [0, 1] * 3, "y": range(6), "c": ["pwr"] * 2 + ["bound"] * 2 + ["pwr@0.8@fgd"] * 2,
                          "d": ["one"] * 4 + ["two"] * 2})
    line = curve_chart(frame, "x", "y", "c", x_title="", y_title="").to_dict()["layer"][0]["encoding"]
    assert dict(zip(line["strokeDash"]["scale"]["domain"], line["strokeDash"]["scale"]["range"], strict=True)) == {
        "pwr": [1, 0], "bound": [6, 4], "pwr@0.8@fgd": [9, 3]}
    line = curve_chart(frame, "x", "y", "c", x_title="", y_title="", dash="d").to_dict()["layer"][0]["encoding"]
    assert line["strokeDash"]["field"] == "d" and line["strokeDash"]["scale"]["domain"] == ["one", "two"]
    plain = curve_chart(frame[:2], "x", "y", "c", x_title="", y_title="").to_dict()["layer"][0]["encoding"]
    assert "strokeDash" not in plain


# --- rectangles


def fills(svg):
    """Widths in px and fills of the rectangles of a Gantt chart, and the fills of its legend."""
    paths = re.findall(r'<path aria-label="[^"]*" role="graphics-symbol" aria-roledescription="rect mark" '
                       r'd="M([^,]+),[^h]*h([^v]+)v[^"]*"([^>]*)>', svg)
    symbols = re.findall(r'<g class="mark-symbol role-legend-symbol".*?</g>', svg, re.S)
    return ([(float(left), float(width), re.search('fill="([^"]+)"', rest)[1], "stroke=" in rest)
             for left, width, rest in paths], re.findall('fill="(#[^"]+)"', "".join(symbols)))


def drawn(chart, path):
    """Find the rectangles in the file of a chart."""
    return fills(save_svg(chart, path).read_text())


@pytest.mark.parametrize("count", [40, 400])
def test_back_to_back_jobs_fill_their_lane(tmp_path, count):
    """Rectangles of any width: no stroke, at most a pixel in four is left free, none is erased."""
    start = np.arange(count) * 10.0
    frame = pd.DataFrame({"lane": 0, "num_lanes": 1, "start": start, "end": start + 10, "label": "", "kind": "task"})
    bars, _ = drawn(gantt_chart(frame, ["GPU"]), tmp_path / "a.svg")
    assert len(bars) == count and not any(stroke for *_, stroke in bars)
    width = 640 / count
    assert sum(wide for _, wide, *_ in bars) >= 640 * (0.74 if width >= 4 else 0.99)
    assert min(wide for _, wide, *_ in bars) > 0.7 * width
    gaps = [right[0] - left[0] - left[1] for left, right in zip(bars[:-1], bars[1:], strict=True)]
    assert np.allclose(gaps, 1 if width >= 4 else 0, atol=0.15)


def test_what_is_too_narrow_to_be_told_apart_is_drawn_as_one(tmp_path):
    """Six thousand on two lanes and then on one, with a hole, a change of kind and a wide one."""
    start = np.arange(6000) * 10.0
    frame = pd.DataFrame({"lane": 0, "num_lanes": np.where(start < 30_000, 2, 1), "start": start, "end": start + 10,
                          "label": "a", "kind": np.where(start < 45_000, "task", "create")}).drop(range(1500, 2000))
    wide = pd.DataFrame([[0, 2, 60_000.0, 64_000.0, "wide", "task"]], columns=frame.columns)
    svg = save_svg(gantt_chart(pd.concat([frame, wide]), ["GPU 0", "GPU 1"]), tmp_path / "a.svg").read_text()
    task, create = GANTT_COLOURS["task"], GANTT_COLOURS["create"]
    assert sorted((round(left), round(wide), fill) for left, wide, fill, _ in fills(svg)[0]) == [
        (0, 149, task), (0, 149, task), (200, 99, task), (200, 249, task), (450, 149, create), (600, 39, task)]
    assert "wide" in shown(svg)


@pytest.mark.parametrize("kinds", [["task"], ["create", "task", "destroy"]])
def test_every_kind_has_its_legend_colour(tmp_path, kinds):
    """Also beside a chart with other kinds, with which it shares its legend."""
    frame = pd.DataFrame({"lane": range(len(kinds)), "num_lanes": 1, "start": 0.0, "end": 5.0, "label": "",
                          "kind": kinds})
    alone = gantt_chart(frame, ["a"] * len(kinds))
    other = gantt_chart(frame.assign(kind="task")[:1], ["a"])
    for chart, more in ((alone, []), (alt.vconcat(alone, other), ["task"]), (alt.vconcat(other, alone), ["task"])):
        bars, legend = drawn(chart, tmp_path / "a.svg")
        wanted = [GANTT_COLOURS[kind] for kind in [*kinds, *more]]
        assert sorted(fill for _, _, fill, _ in bars) == sorted(wanted)
        assert legend == (list(GANTT_COLOURS.values()) if len(kinds) > 1 else [])


def test_cuts_have_the_colour_of_the_legend(tmp_path):
    mig = mig_of("A30")
    with interpreted(True):
        schedule = far(mig, np.array([[16.0, 8.0, 5.0], [12.0, 9.0, 6.0], [10.0, 6.0, 4.0]])).schedule
    bars, legend = drawn(schedule_chart(schedule, ["a", "b", "c"]), tmp_path / "a.svg")
    assert legend == list(GANTT_COLOURS.values())
    count = {fill: sum(part == fill for _, _, part, _ in bars) for fill in legend}
    assert count[GANTT_COLOURS["task"]] == 3
    assert count[GANTT_COLOURS["create"]] == schedule.is_creation.sum()
    assert count[GANTT_COLOURS["destroy"]] == (~schedule.is_creation).sum()


def test_a_part_can_be_enlarged(tmp_path):
    frame = pd.DataFrame({"lane": 0, "num_lanes": 1, "start": [0.0, 10.0, 10.1, 20.0], "end": [10.0, 10.1, 20.0, 30.0],
                          "label": "", "kind": ["task", "create", "task", "task"]})
    bars, _ = drawn(gantt_chart(frame, ["a"], since=9.0, until=11.0), tmp_path / "a.svg")
    assert [(round(left), round(wide)) for left, wide, *_ in bars] == [(0, 319), (320, 31), (352, 287)]


def test_an_empty_day_is_drawn(tmp_path):
    frame = pd.DataFrame(columns=["lane", "num_lanes", "start", "end", "label", "kind"])
    svg = save_svg(gantt_chart(frame, ["GPU 0", "GPU 1"]), tmp_path / "a.svg").read_text()
    assert {"GPU 0", "GPU 1"} <= set(shown(svg)) and "NaN" not in svg


# --- files


def test_files_have_the_books_look(tmp_path):
    """Whatever look the session has; and the session keeps its own."""
    chart = alt.Chart(pd.DataFrame({"a": [1]})).mark_point().encode(alt.X("a:Q", axis=alt.Axis(grid=True)))
    alt.theme.enable("default")
    svg = save_svg(chart, tmp_path / "a.svg").read_text()
    assert alt.theme.active == "default" and "#E7E7E7" in svg


def test_titles_fit_in_other_fonts(tmp_path):
    """No line is wider than its file in letters of 0.7 em, as wide as DejaVu Sans has them in bold."""
    run = report_of(toy_workload(), "hadar").run
    long = "hadar: done after 8.32 h, no schedule before 6.10 h; mean JCT 4.21 h, GRU 0.812, and " * 2
    charts = [places_chart(run, title=long), usage_chart(run, title=long), gantt(["a"], ["a"], title=long),
              alt.vconcat(gantt(["a"], ["a"], title=long), gantt(["a"], ["a"], title=long))]
    for chart in charts:
        svg = save_svg(chart, tmp_path / "a.svg").read_text()
        wide = float(re.search(r'<svg[^>]* width="([\d.]+)"', svg)[1])
        lines = re.findall(r"<t(?:ext|span)[^>]*>([^<]{20,})<", svg)
        assert len(lines) >= 3 and max(map(len, lines)) * 0.7 * 15 <= wide
        assert "Arial" in svg and 'font-family="sans-serif"' not in svg


@pytest.mark.parametrize(("server", "answers"), [("nbs/22_fgd.ipynb", True), (None, False)])
def test_a_chart_answers_in_jupyterlab_and_is_stored_as_it_was_written(monkeypatch, server, answers):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    if server:
        monkeypatch.setenv("JPY_SESSION_NAME", server)
    use_book_style()
    rows = pd.DataFrame({"x": [0, 1, 2] * 2, "y": range(6), "policy": ["fgd"] * 3 + ["pwr"] * 3})
    chart = curve_chart(rows, "x", "y", "policy", x_title="load", y_title="kW", title="Watts")
    shown = chart._repr_mimebundle_()
    spec = (shown[0] if isinstance(shown, tuple) else shown)["application/vnd.vegalite.v5+json"]
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    use_book_style()
    assert ("description" in spec) == answers == ("panel_rule" in str(spec["params"]))
    assert finished(spec) == finished(finished(spec))
