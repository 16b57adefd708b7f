"""What other pages are looked up by: symbols, words, theorems, figures, changes, citation, and the book as one PDF."""
import importlib.util
import json
import re
import sys
from collections import defaultdict

import pytest

from tests.book import CHAPTERS, HTML, PAGES, ROOT, article, built, charts_of, page
from tests.browser import needs_browser

# by the first chapter of a part: one symbol, one meaning, under two names in the code
SAME = {
    "30": {"M _j"},
    "40": {"s _jh"},
}
# one symbol, two meanings, in chapters that no third one builds on: why the letter stays
TWICE = {
    "12": {"b _i": "the start of a task in 54a; the slices of an instance in 58",
           "d _k": "the advantage of a set of policies in 29d; the durations of a task in 57",
           "k": "how far ahead of its due date a job counts in 34a; a step of a plan in 57",
           "P": "power in 12b; the placements of instances in 66d",
           "w _q": "the slices that phase 1 counts for a profile in 50b; the demand for a profile in 66d"},
    "00": {"N": "the count of 11; the empty seconds of 14, which counts no tasks"},
    "20": {"G": "the most GPU of a node in 21, as in the competitors' formula; all GPU in 26",
           "Delta": "the letter of two papers, each in its own Algorithm 1"},
    "40": {"T": "the horizon of (7), the makespan of a plan, the slots of P1: the letter of three sources",
           "x _jr": "Gavel's share of time; the gang's speed in our plans",
           "D": "the dual of 45; the deadline of 46, which has no dual"},
}


@pytest.fixture(scope="module")
def apparatus():
    sys.path.insert(0, str(ROOT / "_ext"))
    yield pytest.importorskip("book_apparatus", reason="the book's requirements are not installed")
    sys.path.remove(str(ROOT / "_ext"))
    sys.modules.pop("book_apparatus", None)


# --- symbols and words

def clashes(apparatus, found):
    """Return symbols that stand for several things, with the chapters of each."""
    meanings = defaultdict(lambda: defaultdict(list))
    for symbol in found:
        meanings[apparatus.key(symbol.symbol)][apparatus.says(symbol)].append(symbol.notebook.stem.split("_")[0])
    return {key: dict(said) for key, said in meanings.items() if len(said) > 1}


def test_a_symbol_has_one_meaning_within_a_part(apparatus):
    for _, notebooks in apparatus.parts(ROOT):
        part = notebooks[0].stem[:2] if notebooks else ""
        found = clashes(apparatus, [symbol for book in notebooks for symbol in apparatus.symbols_in(book)])
        known = SAME.get(part, set()) | set(TWICE.get(part, ()))
        assert {key: said for key, said in found.items() if key not in known} == {}, part
        assert known - set(found) == set(), f"{part}: no longer needed"


def test_symbols_that_stand_together_get_a_line_each(apparatus):
    assert apparatus.pieces("$a_i, b_i$", apparatus.MATH) == ["$a_i$", "$b_i$"]
    assert apparatus.pieces("$a_i$, $b_i$", apparatus.MATH) == ["$a_i$", "$b_i$"]
    assert apparatus.pieces("$m = (c_m, d_m)$", apparatus.MATH) == ["$m = (c_m, d_m)$"]
    assert apparatus.split(r"| $P(a \| b)$ | `x` |") == [r"$P(a \| b)$", "`x`"]


def test_every_symbol_of_every_chapter_is_listed(apparatus):
    page = "\n".join(apparatus.symbols_page(ROOT))
    symbols = [s for notebook in apparatus.chapters(ROOT) for s in apparatus.symbols_in(notebook)]
    assert len(symbols) > 400
    assert [s.symbol for s in symbols if f"<nbs/{s.notebook.stem}>" not in page] == []
    listed = {apparatus.key(apparatus.split(line)[0]) for line in page.splitlines() if line.startswith("|")}
    assert {apparatus.key(apparatus.from_root(s.symbol)) for s in symbols} <= listed


def test_words_come_with_a_sentence_and_a_chapter(apparatus):
    rows = [apparatus.split(line) for line in apparatus.words_page(ROOT)[2:] if line]
    words = {row[0]: row[1] for row in rows}
    assert len(words) > 120 and {"node", "payoff", "stranded", "repartition tree", "lockstep"} <= set(words)
    assert all(len(row) == 3 and row[1] and "<nbs/" in row[2] for row in rows)
    assert words["payoff"].startswith("The right side is the **payoff** of a schedule")
    assert apparatus.sentence("One. A **b** is c. Two.", "b") == "A **b** is c."
    assert apparatus.sentence("A **b** is:", "b") == "A **b** is …" and apparatus.sentence("`x **b** y", "b") == ""


# --- theorems

def test_every_statement_has_a_label_a_title_and_a_fate(apparatus):
    found = [one for notebook in apparatus.chapters(ROOT) for one in apparatus.statements_in(notebook)]
    assert len(found) >= 35 and len({one.label for one in found}) == len(found)
    fated = [one for one in found if one.fate in ("proved", "repaired", "refuted")]
    assert fated == found and all(one.label and one.title for one in found)
    fates = {one.label: one.fate for one in found}
    assert fates["thm-hbound-printed"] == "refuted" and fates["thm-hbound-repaired"] == "repaired"
    assert fates["thm-price-bound"] == "proved"


def test_a_statement_without_proof_says_so(apparatus, tmp_path):
    said = "```{prf:lemma} A\n:label: a\nx\n```\n\n```{prf:lemma} B\n:label: b\n:class: refuted\n```\n"
    notebook = tmp_path / "10_x.ipynb"
    notebook.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": said}]}))
    assert [one.fate for one in apparatus.statements_in(notebook)] == ["", "refuted"]


# --- figures, changes, citation

def test_every_chart_is_listed_with_what_it_is_drawn_from(apparatus):
    rows = [apparatus.split(line) for line in apparatus.figures_page(ROOT)[2:] if line]
    charts = sum(len(charts_of(chapter)) for chapter in CHAPTERS)
    assert charts > 120 and len(rows) >= charts
    assert [row for row in rows if len(row) != 3 or row[1] in ("", "chart") or not row[2]] == []
    drawn = {row[1]: row[2] for row in rows}
    assert drawn["No scheduler lies below the line (Default trace, demand = capacity)"].endswith("behind them openb")
    sets = {apparatus.split(line)[0] for line in apparatus.data_page(ROOT)}
    assert set(apparatus.SETS.values()) <= sets


def test_each_change_is_one_sentence_of_the_changelog(apparatus):
    text = " ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split())
    entries = [line for line in apparatus.changes_page(ROOT) if line.startswith("- ")]
    assert len(entries) == len(re.findall(r"^- ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M))
    assert [entry for entry in entries if entry[:-1] not in apparatus.LINK.sub(r"\1", text)] == []


def test_the_citation_has_the_version_and_is_the_same_each_time(apparatus):
    said = apparatus.citation(ROOT)
    settings = (ROOT / "settings.ini").read_text(encoding="utf-8")
    assert f"version = {said['version']}\n" in settings and said == apparatus.citation(ROOT)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d|", said["date"])
    page = "\n".join(apparatus.cite_page(ROOT))
    assert said["title"] in page and f"version = {{{said['version']}}}" in page
    assert "10.1109/FiCloud49777.2021.00063" in "\n".join(apparatus.papers_page(ROOT))


def test_without_history_there_is_a_version_and_no_date(apparatus, tmp_path):
    (tmp_path / "settings.ini").write_text("[DEFAULT]\nversion = 1.2.3\n")
    assert apparatus.stamp(tmp_path) == ("1.2.3", "")


@built
def test_every_page_says_version_and_how_to_cite():
    names = [name for name in PAGES if not name.startswith("_modules")]
    assert len(names) > 80
    assert [name for name in names if 'class="book-stamp">Version ' not in page(name)] == []


@built
def test_the_pages_have_nothing_left_to_fill_in():
    for name in ("symbols", "theorems", "licences", "cite", "changes"):
        text = article(f"{name}.html")
        assert "<!-- " not in text and "{doc}" not in text and "{prf:ref}" not in text
        assert len(text) > 2000


# --- the book on paper

@built
@needs_browser
def test_two_chapters_become_one_pdf(apparatus, tmp_path, monkeypatch):
    pytest.importorskip("pypdf")
    from pypdf import PdfReader
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    make_pdf = importlib.import_module("make_pdf")
    out = tmp_path / "two.pdf"
    made = make_pdf.make(HTML, ["nbs/13_frag", "nbs/14_meter"], out, apparatus.citation(ROOT))
    document = PdfReader(out)
    assert made == len(document.pages) > 6
    assert document.page_labels[:3] == ["i", "ii", "1"]
    text = [page.extract_text() for page in document.pages]
    assert "13 Fragmentation" in text[1] and text[1].rstrip().endswith(document.page_labels[text.index(
        next(page for page in text[2:] if page.startswith("14 Meter")))])
    assert "Version 0.1.0" in text[0]
    targets = [link.get_object() for page in document.pages for link in page.get("/Annots", ())]
    addresses = [str(link["/A"]["/URI"]) for link in targets if "/A" in link]
    assert any("/Dest" in link for link in targets) and not any(a.startswith("file:") for a in addresses)
    titles = [item["/Title"] for item in flat(document.outline)]
    assert any(title.startswith("14 Meter") for title in titles) and "Exercises" in titles


def flat(outline):
    for item in outline:
        yield from flat(item) if isinstance(item, list) else [item]
