"""The text of the built book: chapters go by one number and one name, sources are labelled as they are cited."""
import html
import json
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from tests.book import CHAPTERS, HTML, ROOT, article, built, cells, page

TOC = [entry for part in yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
       for entry in part["chapters"]]
NAMES = {Path(entry["file"]).name: entry.get("title") for entry in TOC if entry["file"].startswith("nbs/")}
PAGES = [*(f"nbs/{name}.html" for name in NAMES), "index.html"]
REFERENCE = re.compile(r'<a class="reference internal" href="([^"#]*)[^"]*"><span class="doc">(.*?)</span></a>', re.S)
SIDEBAR = re.compile(r'<li class="toctree-l1[^"]*"><a class="[^"]*" href="([^"]*)">(.*?)</a>', re.S)
QUESTION = re.compile(r'<span class="question">(.*?)</span>', re.S)
CITED = re.compile(r'href="([^"]*bibliography\.html)?#(id\d+)"[^>]*>(.*?)</a>', re.S)
LABEL = re.compile(r'<div class="citation" id="(\w+)"[^>]*>\s*<span class="label">(.*?)</span>\s*<(?:span|p)\b', re.S)


def text(markup: str) -> str:
    """Return what a reader sees of some HTML."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", markup)).split())


def number(name: str) -> str:
    return name.split("_")[0]


def spoken(name: str) -> str:
    return f"{number(name)} {NAMES[name]}"


def wrong_references(markup: str) -> list[str]:
    """List references of a page that do not say number and short name of the chapter that they lead to."""
    wrong = []
    for target, shown in REFERENCE.findall(markup):
        name = Path(target).stem
        if name in NAMES and text(shown) != f"Chapter {number(name)} ({NAMES[name]})":
            wrong.append(f"{target}: {text(shown)}")
    return wrong + re.findall(r"[Cc]hapter Chapter[^(]*", text(markup))


def wrong_headings(page: str, markup: str) -> list[str]:
    """List titles of a chapter that do not begin with its number and name, and numbers at other headings."""
    name = Path(page).stem
    first, *others = re.findall(r"<h[1-6]>(.*?)</h[1-6]>", markup, re.S)
    wrong = [] if text(first).startswith(f"{spoken(name)}: ") else [f"title: {text(first)}"]
    return wrong + [f"heading: {text(head)}" for head in others if 'class="section-number"' in head]


def wrong_sidebar(page: str, markup: str) -> list[str]:
    """List chapters that the sidebar of a page leaves out or calls otherwise."""
    shown = {Path(page if link == "#" else link).stem: text(QUESTION.sub("", label))
             for link, label in SIDEBAR.findall(markup)}
    return [f"{name}: {shown.get(name)}" for name in NAMES if shown.get(name) != spoken(name)]


def wrong_questions(markup: str) -> list[str]:
    """List chapters whose question the sidebar of a page leaves out, or tells otherwise than their notebook."""
    asked = {Path(link).stem: text("".join(QUESTION.findall(label))) for link, label in SIDEBAR.findall(markup)}
    return [f"{name}: {asked.get(name)}" for name in NAMES if asked.get(name) != heading(name)]


def heading(name: str) -> str:
    """Return the first line of a chapter, without mathematics and quotes that the page sets otherwise."""
    return cells(ROOT / "nbs" / f"{name}.ipynb")[0]["source"].splitlines()[0].removeprefix("# ").replace("'", "’")


def test_every_chapter_has_a_short_name_of_its_own():
    assert set(NAMES) == {path.stem for path in CHAPTERS}
    assert all(NAMES.values()) and len(set(NAMES.values())) == len(NAMES)
    assert max(map(len, NAMES.values())) <= 20


def test_every_chapter_asks_a_question():
    assert [name for name in NAMES if not heading(name).endswith("?")] == []


def test_the_readme_calls_chapters_as_the_book_does():
    links = re.findall(r"\[([^\]]*)\]\(nbs/(\w+)\.ipynb\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(links) >= 3
    assert [words for words, name in links
            if words.casefold() != f"chapter {number(name)} ({NAMES[name]})".casefold()] == []


@built
def test_references_say_number_and_name():
    assert sum(len(REFERENCE.findall(article(name))) for name in PAGES) > 300
    assert [wrong for name in PAGES for wrong in wrong_references(article(name))] == []


@built
def test_headings_and_sidebar_have_the_number_of_the_file():
    for name in PAGES[:-1]:
        assert wrong_headings(name, article(name)) == [] and wrong_sidebar(name, page(name)) == []
        assert f"<title>{spoken(Path(name).stem)}: " in html.unescape(page(name))


@built
def test_the_sidebar_asks_what_the_chapters_ask():
    assert wrong_questions(page("index.html")) == []
    assert len(wrong_questions(page("index.html").replace("Which placement wastes least?", "Which one?"))) == 1


@built
def test_neighbours_equations_and_theorems_have_the_number_of_the_file():
    neighbours = re.findall(r'class="prev-next-title">(.*?)</p>', page("nbs/45_hadar_bounds.html"))
    shown = [text(title) for title in neighbours]
    assert [title.split(":")[0] for title in shown] == [spoken("44_hadar_simulation"), spoken("46_hadar_planned")]
    for name in PAGES[:-1]:
        counted = re.findall(r'class="(?:eqno|caption-number)">\(?[A-Za-z ]*([\w.]*?\d[\w.]*)', article(name))
        assert {found.split(".")[0] for found in counted} <= {number(Path(name).stem)}


@built
def test_theorems_are_referred_to_by_their_numbers():
    pages = "".join(map(article, PAGES))
    links = map(text, re.findall(r'href="[^"]*#(?:thm|lem|prop|cor|alg)-[^"]*"[^>]*>(.*?)</a>', pages, re.S))
    counted = [link for link in links if re.match(r"(Theorem|Lemma|Proposition|Corollary|Algorithm) ", link)]
    assert len(counted) > 20 and all(re.search(r" \d\d[a-z]?\.\d+$", shown) for shown in counted)


@built
def test_search_finds_chapters_by_number_and_name():
    index = (HTML / "searchindex.js").read_text(encoding="utf-8")
    titles = json.loads(index[index.index("{"):index.rindex("}") + 1])["titles"]
    assert {text(title).split(":")[0] for title in titles} >= {spoken(name) for name in NAMES}


# --- what a reader knows at the end

def unclear(said: str) -> list[str]:
    """List what is wrong with the end of a chapter: it is three plain sentences below one heading."""
    head, *items = [line for line in said.splitlines() if line]
    wrong = [] if head == "## What you now know" and len(items) == 3 else [f"{head}: {len(items)} items"]
    return wrong + [item for item in items if not re.fullmatch(r"- [^-].*[.]", item)
                    or re.search(r"[.?!] [A-Z]", item) or len(item.split()) > 45]


def test_a_chapter_ends_with_what_a_reader_now_knows():
    for chapter in CHAPTERS[1:]:  # chapter 00 is for looking up
        last = cells(chapter)[-1]
        assert (last["id"], unclear(last["source"])) == (f"{number(chapter.stem)}-know", [])
    good = "## What you now know\n\n- You can do one thing.\n- A law holds: 3.5 W.\n- It pays from 64 on."
    assert unclear(good) == []
    for bad in (good.replace("now ", ""), good.rsplit("\n", 1)[0], good.replace("3.5 W.", "3.5 W. And more."),
                good.replace("from 64 on.", "from 64 on")):
        assert unclear(bad)


# --- sources and docstrings

@built
def test_sources_are_labelled_as_they_are_cited():
    labels = {key: text(label).strip("[]") for key, label in LABEL.findall(article("bibliography.html"))}
    assert len(labels) > 25 and len(set(labels.values())) == len(labels)
    cited = [(key, text(shown)) for name in PAGES for link, key, shown in CITED.findall(article(name)) if link]
    assert len(cited) > 50
    assert [(key, shown) for key, shown in cited if not labels[key].endswith(shown)] == []


@built
def test_every_public_name_is_in_the_reference():
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (HTML / "api").glob("*.html")}
    assert len(pages) == 9 and max(map(len, pages.values())) < 700_000
    modules = [".".join(path.relative_to(ROOT).with_suffix("").parts)
               for path in (ROOT / "sched_lab").rglob("*.py") if not path.name.startswith("_")]
    names = [f"{module}.{name}" for module in modules for name in getattr(import_module(module), "__all__", ())]
    anchors = set(re.findall(r'id="(.*?)"', "".join(pages.values())))
    assert len(names) > 200 and [name for name in names if name not in anchors] == []


@built
def test_api_takes_no_description_for_a_type():
    reference = "".join(article(f"api/{path.name}") for path in (HTML / "api").glob("*.html"))
    assert "<strong>seed</strong>" in reference
    assert re.findall(r"<strong>[^<]*</strong> \(<em>.*?</em>", reference) == []


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "_ext"))
    yield pytest.importorskip("book_reference", reason="the book's requirements are not installed")
    sys.modules.pop("book_reference", None)


def test_every_folder_has_a_page_in_the_reference(reference, tmp_path):
    pages = reference.modules_by_page(ROOT)
    assert len(reference.contents_lines(ROOT, pages)) == len(pages) + 2
    assert pages["online"]["online.fgd"] == "22_fgd" and pages["fleet"]["fleet.read.kubernetes"] == ""
    assert ".. automodule:: studies.far" in reference.page_lines("studies", pages["studies"], ROOT / "sched_lab")
    for name in ("api", "sched_lab"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "_toc.yml").write_text("parts: []\n", encoding="utf-8")
    (tmp_path / "api" / "far.md").unlink()
    with pytest.raises(reference.ExtensionError, match="no page for far.allocations: write api/far.md"):
        reference.modules_by_page(tmp_path)


def test_docstrings_become_fields(reference):
    lines = ["Sum.", "", "Parameters", "----------", "a, b : (n,) what is", "    added", "seed : any", "",
             "Returns", "-------", "the sum, and", "nothing else", "", "Raises", "------", "ValueError", "    if a : b",
             "", "Notes", "-----", "Slow."]
    reference.docstring_fields(None, "function", "f", None, None, lines)
    assert list(filter(None, lines)) == [
        "Sum.", ":Parameters:", "    * **a, b** -- (n,) what is added", "    * **seed** -- any",
        ":Returns: the sum, and nothing else", ":Raises:", "    * **ValueError** -- if a : b",
        ".. rubric:: Notes", "Slow."]
