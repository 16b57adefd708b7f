"""Pages: whatever stands in a name, a page is well formed, asks for nothing from outside and runs nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.lab.frames import OutputError
from sched_lab.lab.pages import (
    ATTRIBUTES,
    SHAPES,
    STYLE,
    Page,
    Picture,
    Section,
    Table,
    escaped,
    page_html,
    picture_html,
    shown,
    table_html,
    write_page,
)
from tests.command_line import call

HOSTILE = [
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", '" onload="alert(1)', "' onload='alert(1)",
    "</title></style><svg onload=alert(1)>", "javascript:alert(1)", "<a href='http://evil.example/'>x</a>",
    "&lt;b&gt; &amp;#60;", "=HYPERLINK(\"http://evil.example\")", "@import url(http://evil.example)", "]]><!--", "-->",
    "exe\u202egpj", "\u2066\u200f\u061c", "مهمة العمل", "\ud800 half", "nul\0 bell\a", "x" * 10_000, "", " ", "🙂 done",
    "{{7*7}} ${7*7} {0} %s"]
VOID = {"meta", "wbr"}
TAGS = {"html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "section", "div", "p", "ul", "li",
        "table", "thead", "tbody", "tr", "th", "td", "b", "code", "pre", "figure", "figcaption", "wbr"}
NAMES = {"lang", "charset", "http-equiv", "content", "name", "class", "scope", "dir", "tabindex", "role", "aria-label"}


class Reader(HTMLParser):
    """What a browser would make of a page: elements, attributes and texts; complains of what is not well formed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        assert tag in TAGS | {shape.lower() for shape in SHAPES}, tag
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def read(page: str) -> Reader:
    """Read a page, and check that it can neither load nor run anything."""
    found = Reader(page)
    known = NAMES | {name.lower() for name in ATTRIBUTES}
    for tag, name, value in found.attributes:
        assert name in known, (tag, name)
        is_style = name not in ("aria-label", "content")
        assert not (is_style and re.search(r"url\((?!#picture\d+-[\w-]+\)$)", value)), value
    assert "default-src 'none'" in page and "<script" not in page and "@import" not in STYLE
    assert "url(" not in STYLE
    return found


def full_page(name: str) -> Page:
    """Put a name into every place of a page that a name can have."""
    columns = pd.Index([name or "empty", "other"], dtype=object)
    frame = pd.DataFrame([[name, 1.5], ["b", np.nan]], columns=columns, dtype=object)
    drawing = Picture(name, f'<svg xmlns="http://www.w3.org/2000/svg" width="9"><text>{escaped(name)}</text></svg>')
    return Page(name, [name, drawing, Picture(name), [name, name], Table(frame, {name: name}, name)],
                [Section(name, [name, Table(frame.head(0)), drawing])], name, name)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_a_text_everywhere(name: str) -> None:
    page = page_html(full_page(name))
    page.encode()  # UTF-8 holds it
    found = read(page)
    for word in ("src=", "http:", "https:", "javascript:", "onload=", "onerror="):
        outside = page.replace(escaped(name), "").replace(escaped(name, 120), "")
        assert word not in re.sub(r"<style>.*?</style>", "", outside, flags=re.S)
    if len(name) < 100:
        shown_name = re.sub("[\0\a\u202e\u2066\u200f\u061c\ud800]", "\ufffd", name)
        assert found.texts.count(shown_name) >= 5 or not name.strip()
    assert len(page) < 60_000


@settings(max_examples=30)
@given(name=st.text(st.characters(codec=None), max_size=40))
def test_any_text_is_escaped(name: str) -> None:
    assert not set(escaped(name)) & set("<>\"'")
    read(page_html(Page(name, [name, Table(pd.DataFrame({"a": [name]}, dtype=object))])))


def test_numbers_have_one_form_and_the_unknown_is_empty() -> None:
    values = [1234567, 0.1 + 0.2, 98765.4, np.float32(0.5), np.nan, None, pd.NA, pd.NaT, True, np.bool_(False),
              -0.001234]
    assert [shown(value) for value in values] == [
        "1,234,567", "0.3", "98,765", "0.5", "", "", "", "", "yes", "no", "-0.001234"]


def test_a_long_table_says_how_long_it_is_and_an_empty_one_that_it_is() -> None:
    frame = pd.DataFrame({"row": range(5000)})
    text = table_html(Table(frame, {"row": "its number"}, "rows.csv"))
    assert text.count("<tr>") == 13 and "The first 12 of 5,000 rows. All are in rows.csv." in text
    assert "<b>row</b>: its number." in text
    assert "There are no rows." in table_html(Table(frame.head(0)))


def test_two_columns_of_one_name_are_two_columns() -> None:
    frame = pd.DataFrame([[1, "x"]], columns=["a", "a"])
    assert '<td class="text" dir="auto">x</td>' in table_html(Table(frame))


def test_chart_texts_with_hostile_names_are_texts(tmp_path: Path) -> None:
    """The drawing program escapes names, and the page would not rely on it."""
    from sched_lab.lab.plots import gantt_chart, save_svg

    names = [name for name in HOSTILE if 0 < len(name.strip()) < 100 and "\ud800" not in name]
    rows = [(lane, 1, 0.0, 9.0, name, "task") for lane, name in enumerate(names)]
    frame = pd.DataFrame(rows, columns=["lane", "num_lanes", "start", "end", "label", "kind"])
    svg = save_svg(gantt_chart(frame, names, title=names[0]), tmp_path / "a.svg").read_text("utf-8")
    found = read(page_html(Page("t", [Picture("words", svg), Picture("words", svg)])))
    assert "<img src=x onerror=alert(1)>" in found.texts and "🙂 done" in found.texts


def test_only_shapes_survive() -> None:
    drawing = picture_html(Picture("w", """<svg xmlns="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xlink"
        onload="a()" style="background:url(http://e)"><style>*{fill:url(http://e)}</style><script>a()</script>
        <use x:href="#c"/><image x:href="http://e"/><a x:href="javascript:a()"><text>t</text></a><foreignObject/>
        <animate attributeName="href"/><set/><clipPath id="c"/><g clip-path="url(#c)" fill="URL(http://e)"/>
        </svg>"""), 7)
    assert re.findall(r"<(\w+)", drawing) == ["figure", "div", "svg", "clipPath", "g", "figcaption"]
    assert 'id="picture7-c"' in drawing and 'clip-path="url(#picture7-c)"' in drawing
    assert "http" not in drawing and "a()" not in drawing


def test_a_picture_has_words_and_may_be_missing_or_too_large() -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><text>t</text></svg>'
    assert '<svg role="img" aria-label="Who &quot;waits&quot;"' in picture_html(Picture('Who "waits"', svg), 0)
    assert "pip install" in picture_html(Picture("words"), 0)
    assert "too large" in picture_html(Picture("words", f"<svg>{' ' * 3_000_000}</svg>"), 0)


def test_a_page_is_whole_or_not_there_and_says_who_wrote_it(tmp_path: Path) -> None:
    path = write_page(Page("a", ["b"], mark='far "0123"'), tmp_path / "report.html")
    assert '<meta name="generator" content="sched_lab far &quot;0123&quot;">' in path.read_text("utf-8")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError):
        write_page(Page("a", ["b"]), tmp_path / "folder")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "report.html"]


# --- pages of commands


def test_the_page_of_a_command_answers_first_and_says_how_to_repeat_it(tmp_path: Path,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = [name for name in HOSTILE if 0 < len(name.strip()) < 100 and "\ud800" not in name and "\0" not in name]
    rows = {"task": names, **{size: [100.0 / int(size) + i for i in range(len(names))] for size in "124"}}
    pd.DataFrame(rows).to_csv("times.csv", index=False)
    assert call("far", "--gpu", "A30", "--times", "times.csv", "--force", "--out", "out") == 0
    page = Path("out/report.html").read_text("utf-8")
    texts = read(page).texts
    assert texts.index("How is the GPU cut, and when is the batch done?") < 3
    assert "sched-lab far --gpu A30 --times times.csv --out DIR" in texts
    assert sum("alert(1)" in text for text in texts) > 3 and page.count("<figure>") == 1
    assert '<meta name="generator" content="sched_lab far ' in page


def test_without_the_packages_that_draw_the_page_says_how_to_get_them(tmp_path: Path) -> None:
    from sched_lab.lab.reports import Answer, Report

    report = Report({"words": 2}, {"words.csv": pd.DataFrame({"word": ["a", "b"]})}, {"words.svg": None}, "2 words")
    report.write_tables(tmp_path)
    question = Answer("greet", {"name": "Ada", "files": {"in": "0" * 64}}, ("words.csv",))
    report.draw(tmp_path, question, "greet --out DIR", can_draw=False)
    texts = read((tmp_path / "report.html").read_text()).texts
    assert "2 words." in texts and "pip install 'sched_lab[charts]'" in texts and "Ada" in texts and "0" * 64 in texts
