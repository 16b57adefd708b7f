"""Write the pages that other pages are looked up by, from what the chapters, files and records say.

Each of these pages holds an introduction and marks; what comes in the place of a mark is read off, never typed twice:

* symbols: the symbol tables of all chapters, part by part; words: the glossary of chapter 00, and the sentence in
  which a chapter sets a word in bold;
* theorems: the statements of all chapters. One with a proof below it is proved; ``:class: repaired`` or
  ``:class: refuted`` says what became of a statement of a paper;
* figures: the charts of all chapters, and what they are drawn from; the data sets of ``data/README.md``;
* changes: the first sentence of each entry of ``CHANGELOG.md``;
* cite: ``CITATION.cff`` as BibTeX and as text.

The footer of each page says version, and date of the last commit: two builds of one state are equal.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from functools import cache
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import yaml

BAR = re.compile(r"(?<!\\)\|")
MATH = re.compile(r"\$[^$]+\$")
QUOTED = re.compile(r"`[^`]+`")
DOC = re.compile(r"\{doc\}`(?P<text>[^`<]*<)?(?P<page>\w+)(?P<end>>?)`")
SCRIPT = re.compile(r"[_^](?:\{[^{}]*\}|\\[a-zA-Z]+|[a-zA-Z0-9*])")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)")


# --- chapters

@cache
def cells(notebook: Path) -> list[dict[str, Any]]:
    """Return the cells of a notebook, their source as one text."""
    read = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in read]


def prose(notebook: Path) -> str:
    """Return the text of a chapter."""
    return "\n\n".join(c["source"] for c in cells(notebook) if c["cell_type"] == "markdown")


def code(notebook: Path) -> str:
    """Return the code of a chapter."""
    return "\n".join(c["source"] for c in cells(notebook) if c["cell_type"] == "code")


def parts(root: Path) -> Iterator[tuple[str, list[Path]]]:
    """Yield name and notebooks of each part of the book."""
    for part in yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]:
        files = [root / f"{entry['file']}.ipynb" for entry in part["chapters"]]
        yield part["caption"], [file for file in files if file.is_file()]


def chapters(root: Path) -> list[Path]:
    """Return the notebooks of the book in its order."""
    return [notebook for _, notebooks in parts(root) for notebook in notebooks]


def link(notebook: Path) -> str:
    """Return a reference to a chapter that shows its number alone."""
    return f"{{doc}}`{notebook.stem.split('_')[0]} <nbs/{notebook.stem}>`"


def from_root(text: str) -> str:
    """Let the references of a chapter be read from a page outside ``nbs/``."""
    return DOC.sub(lambda m: f"{{doc}}`{m['text'] or ''}nbs/{m['page']}{m['end']}`", text)


def split(line: str) -> list[str]:
    """Return the cells of a line of a Markdown table."""
    return [cell.strip() for cell in BAR.split(line.strip().removeprefix("|").removesuffix("|"))]


def tables(text: str, first: str) -> Iterator[dict[str, str]]:
    """Yield the rows of all tables whose first column has this title."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if re.match(rf"\|\s*{first}\s*\|", line):
            head = split(line)
            for row in lines[start + 2:]:
                if not row.startswith("|"):
                    break
                yield dict(zip(head, split(row), strict=True))


def table(head: list[str], rows: Iterator[list[str]] | list[list[str]]) -> list[str]:
    """Return a Markdown table, none without rows."""
    body = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *body, ""] if body else []


# --- symbols

class Symbol(NamedTuple):
    """One symbol of one chapter."""

    symbol: str
    name: str
    meaning: str
    unit: str
    notebook: Path


def pieces(text: str, pattern: re.Pattern[str]) -> list[str]:
    """Return the parts of an enumeration, or all of it where it is none: `$a_i, b_i$`, `` `a`, `b` ``."""
    one = re.fullmatch(r"\$([^$]+)\$", text)
    if one and pattern is MATH:
        inner = re.split(r", (?![^({\[]*[)}\]])", one[1])
        return [f"${part}$" for part in inner] if "=" not in text and "dots" not in text else [text]
    found = pattern.findall(text)
    return found if ", ".join(found) == text else [text]


def first_of(row: dict[str, str], *titles: str) -> str:
    """Return the first of these columns that a row has something in."""
    return next((row[title] for title in titles if row.get(title)), "")


def symbols_in(notebook: Path) -> Iterator[Symbol]:
    """Yield the symbols of a chapter; what stands together with as many names is taken apart."""
    for row in tables(prose(notebook), "symbol"):
        if not row["symbol"]:
            continue
        name = first_of(row, "code name", "code", "column", "column `quantity`")
        meaning = first_of(row, "meaning", "what", "means", "source", "from", "table", "values")
        marks, names = pieces(row["symbol"], MATH), pieces(name, QUOTED)
        units = row.get("unit", "").split(", ")
        if len(marks) != len(names):
            marks, names = [row["symbol"]], [name]
        if len(units) != len(marks):
            units = [row.get("unit", "")] * len(marks)
        for mark, called, unit in zip(marks, names, units, strict=True):
            yield Symbol(mark, called, meaning, unit, notebook)


def key(symbol: str) -> str:
    """Return what makes two spellings of a symbol the same, and what it is sorted by: letters, indices, marks."""
    marks = re.findall(r"\\(mathcal|lvert|overline|bar|hat)(?![a-z])", symbol)
    math = re.sub(r"\\(mathcal|mathrm|text|lvert|rvert|overline|bar|hat)(?![a-z])", "", symbol)
    scripts = sorted(SCRIPT.findall(math))
    base = SCRIPT.sub("", math)
    plain = re.sub(r"[^\w*'() ]", "", base).strip()
    return " ".join([plain, *(re.sub(r"[\s{}]", "", part) for part in scripts), *marks])


def says(symbol: Symbol) -> str:
    """Return what a symbol stands for, in short: the last part of its name in the code, or its meaning."""
    names = re.findall(r"(\w+)`", symbol.name)
    return names[0] if names else symbol.meaning or symbol.name


def symbols_page(root: Path) -> list[str]:
    """Return one table for each part: a line for each symbol, and the chapters that use it so."""
    lines = []
    for caption, notebooks in parts(root):
        found = [symbol for notebook in notebooks for symbol in symbols_in(notebook)]
        found.sort(key=lambda s: (key(s.symbol).lower(), key(s.symbol), says(s)))
        rows = []
        for _, same in groupby(found, key=lambda s: (key(s.symbol), says(s))):
            uses = list(same)
            where = ", ".join(dict.fromkeys(link(use.notebook) for use in uses))
            rows.append([uses[0].symbol, uses[0].name, uses[0].meaning, uses[0].unit, where])
        if rows:
            lines += [f"### {caption}", ""]
            lines += table(["symbol", "in the code", "meaning or source", "unit", "chapters"], rows)
    return [from_root(line) for line in lines]


# --- words

BOLD = re.compile(r"\*\*(?P<word>[a-z][\w-]*(?: [\w-]+){0,2})\*\*")
ITEM = re.compile(r"\n(?=\s*(?:[-*>]|\d+\.) )|\n{2,}")
EMPHASIS = frozenset({    # bold for stress, not for a word that is introduced
    "all", "alone", "blocks", "cheapest", "else", "else if", "first", "if", "last", "left out", "lives", "lose",
    "mortal", "none", "one line", "one thing only", "parallel for", "raise", "served", "still",
    "stray", "user", "uvicorn", "watts", "way", "while", "without"})


def sentence(text: str, word: str) -> str:
    """Return the sentence of a paragraph in which a word is set in bold; "" if it cannot be cut out whole."""
    flat = " ".join(re.sub(r"^\s*(?:[-*>]|\d+\.) ", "", text).split())
    one = next(part for part in re.split(r"(?<=[.?!])\)? (?=[A-Z*$`])", flat) if f"**{word}**" in part)
    if any(one.count(sign) % 2 for sign in ("`", "$", "**")) or "|" in one or len(one) > 300:
        return ""
    return one if one.endswith((".", "?", "!")) else one.rstrip(":;,") + " …"


def introduced(notebook: Path) -> Iterator[tuple[str, str]]:
    """Yield each word that a chapter sets in bold, with its sentence."""
    for paragraph in ITEM.split(prose(notebook)):
        if not paragraph.lstrip().startswith(("|", "```", ":::", "<", "#")):
            for word in BOLD.findall(paragraph):
                if word not in EMPHASIS:
                    yield word, sentence(paragraph, word)


def words_page(root: Path) -> list[str]:
    """Return the words of the glossary, and those that a chapter sets in bold where it introduces them."""
    glossary = chapters(root)[0]
    meant = {re.sub(r"[*`]", "", row["word"]): row["what it means here"] for row in tables(prose(glossary), "word")}
    where: dict[str, list[Path]] = {word: [glossary] for word in meant}
    for notebook in chapters(root):
        for word, text in introduced(notebook):
            meant.setdefault(word, "")
            meant[word] = meant[word] or text
            where.setdefault(word, []).append(notebook)
    rows = [[word, meant[word], ", ".join(dict.fromkeys(map(link, where[word])))]
            for word in sorted(meant, key=str.lower) if meant[word]]
    return [from_root(line) for line in table(["word", "what it means, or how it is introduced", "chapters"], rows)]


# --- theorems

STATEMENT = re.compile(r"^(?:`{3,}|:{3,})\{prf:(?P<kind>theorem|lemma|proposition|corollary|proof)\} *(?P<title>[^\n]*)"
                       r"(?P<options>(?:\n:\w+:[^\n]*)*)", re.M)
FATES = {"proved": "proved", "repaired": "repaired, and proved", "refuted": "refuted", "": "not proved here"}


class Statement(NamedTuple):
    """One theorem, lemma, proposition or corollary; its fate is a key of ``FATES``."""

    kind: str
    title: str
    label: str
    fate: str
    notebook: Path


def statements_in(notebook: Path) -> Iterator[Statement]:
    """Yield the statements of a chapter."""
    found = list(STATEMENT.finditer(prose(notebook)))
    for here, after in zip_longest(found, found[1:]):
        if here["kind"] == "proof":
            continue
        options = dict(re.findall(r":(\w+): *([^\n]*)", here["options"]))
        proved = "proved" if after and after["kind"] == "proof" else ""
        yield Statement(here["kind"], here["title"].strip(), options.get("label", ""),
                        options.get("class", "") or proved, notebook)


def theorems_page(root: Path) -> list[str]:
    """Return one table for each part that states theorems."""
    lines = []
    for caption, notebooks in parts(root):
        rows = [[f"{{prf:ref}}`{one.label}`", one.title, FATES[one.fate], link(one.notebook)]
                for notebook in notebooks for one in statements_in(notebook)]
        lines += [f"## {caption}", "", *table(["statement", "what it says", "status", "chapter"], rows)] if rows else []
    return [from_root(line) for line in lines]


# --- figures and data

SETS = {"pwr/": "openb", "traces/": "openb", "gavel/": "measured speeds"}    # names in data/README.md
FOLDER = re.compile(r"results/(\w+)|\b(pwr|traces|hadar|far|andreas|fleet|batch)/\w+\.csv")
FRAME = re.compile(r"(\w+)\.csv|\bframe\(\"(\w+)\"")
PICTURE = re.compile(r"!\[([^\]]+)\]\(\.\./figures/")


def views(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a chart and all of its panels and layers, from the outside in."""
    yield spec
    inner = [part for name in ("hconcat", "vconcat", "concat", "layer") for part in spec.get(name, [])]
    for part in [*inner, *([spec["spec"]] if "spec" in spec else [])]:
        yield from views(part)


def name_of(spec: dict[str, Any]) -> str:
    """Return the first title of a chart, or what its first axes show: "watts over hours"."""
    for view in views(spec):
        title = view.get("title")
        text = title.get("text") if isinstance(title, dict) else title
        if text:
            return " ".join(text) if isinstance(text, list) else str(text)
    shown: dict[str, str] = {}
    for view in views(spec):
        for axis in {"x", "y"} & set(view.get("encoding", {})):
            channel = view["encoding"][axis]
            shown.setdefault(axis, str(channel.get("title") or channel.get("field") or ""))
    return " over ".join(filter(None, (shown.get("y"), shown.get("x")))) or "chart"


def charts_in(notebook: Path) -> Iterator[str]:
    """Yield what each picture and chart of a chapter is called."""
    yield from PICTURE.findall(prose(notebook))
    for cell in cells(notebook):
        for output in cell.get("outputs", []):
            spec = next((data for kind, data in output.get("data", {}).items() if "vegalite" in kind), None)
            if spec:
                yield name_of(spec)


def sources(root: Path, notebook: Path) -> str:
    """Return the stored frames that a chapter reads, and the public data behind them."""
    stored = root / "data" / "results"
    folders = {a or b for a, b in FOLDER.findall(code(notebook))}
    names = {a or b for a, b in FRAME.findall(code(notebook))}
    frames = sorted(f"{folder}/{name}" for folder in folders for name in names
                    if (stored / folder / f"{name}.json").is_file())
    behind: set[str] = set()
    for frame in frames:
        data = json.loads((stored / f"{frame}.json").read_text(encoding="utf-8"))["parameters"].get("data", {})
        behind |= {name for text in (frame, *data) for start, name in SETS.items() if text.startswith(start)}
        others = [text for text in data if not text.startswith(tuple(SETS))]
        behind |= {"openb" if "openb" in text else text.split("/")[-2] for text in others}
    if not frames and folders & {folder.name for folder in stored.iterdir()}:
        behind = {name for start, name in SETS.items() if start.rstrip("/") in folders}
        frames = sorted(f"{folder}/" for folder in folders)
    if not frames:
        return "runs of the chapter, on data of ours"
    named = ", ".join(f"`{frame}`" for frame in frames)
    return f"{named}; behind them {', '.join(sorted(behind))}" if behind else named


def figures_page(root: Path) -> list[str]:
    """Return a table of all charts."""
    rows = [[link(notebook), title.replace("|", "\\|"), sources(root, notebook)]
            for notebook in chapters(root) for title in charts_in(notebook)]
    return table(["chapter", "figure", "drawn from"], rows)


def data_page(root: Path) -> list[str]:
    """Return the table of data sets, with the licence of each."""
    rows = tables((root / "data" / "README.md").read_text(encoding="utf-8"), "set")
    return [LINK.sub(r"\1", line) for line in table(
        ["set", "source", "licence"], [[row["set"], row["source"], row["licence"]] for row in rows])]


# --- version, citation, changes

def stamp(root: Path) -> tuple[str, str]:
    """Return version, and date of the last commit; "" where there is no history."""
    settings = ConfigParser(delimiters=["="], interpolation=None)
    settings.read(root / "settings.ini", encoding="utf-8")
    date = ""
    if (root / ".git").exists():
        date = subprocess.run(["git", "log", "-1", "--format=%cs"], cwd=root, check=True, capture_output=True,
                              text=True).stdout.strip()
    return settings["DEFAULT"]["version"], date


def citation(root: Path) -> dict[str, str]:
    """Return what a citation of the book says."""
    said = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    version, date = stamp(root)
    authors = [one.get("name") or f"{one['family-names']}, {one['given-names']}" for one in said["authors"]]
    return {"author": " and ".join(authors), "title": said["title"], "version": version, "date": date,
            "year": date[:4] or str(said.get("date-released", ""))[:4], "url": said["repository-code"]}


def cite_page(root: Path) -> list[str]:
    """Return the citation of the book, and those of the papers, as BibTeX."""
    said = citation(root)
    dated = f"version {said['version']}" + (f" of {said['date']}" if said["date"] else "")
    fields = {"author": f"{{{said['author']}}}", "title": said["title"], "year": said["year"],
              "version": said["version"], "url": said["url"]}
    bibtex = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return ["## The book", "", f"> {said['author']}. *{said['title']}*, {dated}. <{said['url']}>", "",
            "```bibtex", "@software{sched_lab,", *bibtex, "}", "```", ""]


PAPERS = ("lettich2024pwr", "weng2023fgd", "filippini2021andreas", "sultana2024hadar", "sultana2025resource",
          "villarrubia2025far")


def papers_page(root: Path) -> list[str]:
    """Return the entries of the papers, as they stand in the bibliography."""
    entries = {m[1]: m[0] for m in re.finditer(
        r"^@\w+\{(\w+),.*?^\}", (root / "references.bib").read_text(encoding="utf-8"), re.M | re.S)}
    return ["```bibtex", "\n\n".join(entries[name] for name in PAPERS), "```", ""]


def changes_page(root: Path) -> list[str]:
    """Return the headings of the changelog that have entries, and of each entry the first sentence."""
    lines: list[str] = []
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ", 1)[1]
    for block in re.split(r"\n(?=#+ |- )", "## " + text):
        if block.startswith("- "):
            whole = LINK.sub(r"\1", " ".join(block.split("\n\n")[0].split()))
            lines.append(re.split(r"(?<=[\w`)%*])[.;] (?=[A-Z`*])", whole, maxsplit=1)[0].rstrip(".;") + ".")
        elif block.startswith("#"):
            lines += ["", block.split("\n")[0], ""]
    while lines and not lines[-1].startswith("- "):
        lines.pop()
    return lines


# --- Sphinx

MARKS: dict[str, dict[str, Callable[[Path], list[str]]]] = {
    "symbols": {"symbols": symbols_page, "words": words_page},
    "theorems": {"theorems": theorems_page},
    "licences": {"figures": figures_page, "data": data_page},
    "cite": {"cite": cite_page, "papers": papers_page},
    "changes": {"changes": changes_page},
}


def fill(app: Any, docname: str, source: list[str]) -> None:
    """Put what was read off in the place of the marks."""
    for mark, page in MARKS.get(docname, {}).items():
        source[0] = source[0].replace(f"<!-- {mark} -->", "\n".join(page(Path(app.srcdir))))


def outdated(app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Read these pages again whenever another page is read: they depend on all."""
    return [page for page in MARKS if page in env.found_docs] if added | changed | removed else []


def footer(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Say version and date below each page, with the ways to cite and to what is new."""
    version, date = app.config.book_stamp
    pages = [(page, text) for page, text in (("cite", "Cite this"), ("changes", "Changes"), ("licences", "Licences"))
             if page in app.env.found_docs]
    links = " · ".join(f'<a href="{context["pathto"](page)}">{text}</a>' for page, text in pages)
    context["theme_extra_footer"] = f'<p class="book-stamp">Version {version}{f", {date}" if date else ""}. {links}</p>'


def read_stamp(app: Any, config: Any) -> None:
    """Ask for version and date once."""
    config.book_stamp = stamp(Path(app.srcdir))


def setup(app: Any) -> dict[str, Any]:
    """Register pages and footer."""
    app.add_config_value("book_stamp", ("", ""), "html", [tuple])
    app.connect("config-inited", read_stamp)
    app.connect("source-read", fill)
    app.connect("env-get-outdated", outdated)
    app.connect("html-page-context", footer)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
