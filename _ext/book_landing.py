"""Paths through the book with their minutes, and a map of what depends on what, for the first page.

Both are computed when the page is read: minutes from the words of the chapters, the map from ``_toc.yml`` and from what
each chapter says that it builds on. So neither can be out of date.

* ``{path}``: one line for each stage, ``stage: chapters``. A chapter with ``!`` is read up to its first section.
  ``:exercises:`` counts those as well.
* ``{book-map}``: an SVG in two forms, a wide one with names, a narrow one with numbers for a phone.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from html import escape
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from book_chapters import CHAPTER, chapter
from docutils import nodes
from docutils.parsers.rst import Directive, directives
from sphinx.errors import ExtensionError

WORDS_A_MINUTE = 200
NOT_PROSE = re.compile(r"(`{3,}|\$\$).*?\1|<[^>]+>|\{[\w:]+\}|https?://\S+", re.S)
EXERCISE = re.compile(r"^\d+\. ", re.M)


# --- minutes

def prose(file: Path) -> str:
    """Return the text of a page: the Markdown cells of a notebook, or a Markdown file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def count_words(text: str) -> int:
    """Count what is read word by word: no code, no displayed formula."""
    return len(re.findall(r"[^\W_]+(?:[.,'’-][^\W_]+)*", NOT_PROSE.sub(" ", text)))


class Reading(NamedTuple):
    """What it takes to read some pages."""

    words: int
    exercises: int

    @property
    def minutes(self) -> int:
        """Minutes, at least one."""
        return max(1, round(self.words / WORDS_A_MINUTE))


def reading(root: Path, names: list[str]) -> Reading:
    """Return words and exercises of some pages.

    Parameters
    ----------
    root : folder of the book
    names : names of chapters, such as ``22_fgd``; with ``!`` only what stands before the first section; ``index``

    Raises
    ------
    ExtensionError : there is no such page
    """
    words = exercises = 0
    for name in names:
        stem = name.removesuffix("!")
        file = root / "index.md" if stem == "index" else root / "nbs" / f"{stem}.ipynb"
        if not file.is_file():
            raise ExtensionError(f"path: there is no chapter {stem}: name it as its file, without .ipynb")
        whole = prose(file)
        text = whole if name == stem else whole.partition("\n## ")[0]
        words += count_words(text)
        exercises += len(EXERCISE.findall(text.partition("\n## Exercises")[2]))
    return Reading(words, exercises)


def stages(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Return stage and chapters of each line of a path."""
    split = [line.partition(":") for line in lines if line.strip()]
    return [(stage.strip(), names.split()) for stage, _, names in split]


def in_words(minutes: int) -> str:
    """Return a time as one says it."""
    if minutes == 1:
        return "1 minute"
    return f"{minutes} minutes" if minutes < 100 else f"{round(minutes / 30) / 2:g} hours"


class PathDirective(Directive):
    """A path through the book: its stages, their chapters, and what it takes to read them."""

    has_content = True
    option_spec = {"exercises": directives.flag}

    def run(self) -> list[nodes.Node]:
        """Return the list of stages below the total."""
        env = self.state.document.settings.env
        env.note_reread()    # its minutes are those of other pages
        root = Path(env.srcdir)
        steps = stages(list(self.content))
        total = reading(root, [name for _, names in steps for name in names])
        rows = nodes.bullet_list("", *(self.stage(env, root, *step) for step in steps), classes=["path"])
        return [nodes.paragraph("", "", nodes.strong("", self.effort(total)), classes=["path-total"]), rows]

    def effort(self, of: Reading) -> str:
        """Return minutes, and exercises if they are asked for."""
        more = f", {of.exercises} exercises" if "exercises" in self.options and of.exercises else ""
        return f"{in_words(of.minutes)}{more}"

    def stage(self, env: Any, root: Path, label: str, names: list[str]) -> nodes.list_item:
        """Return one stage: its name, links to its chapters, its minutes."""
        line = nodes.paragraph("", f"{label}: ")
        for place, name in enumerate(names):
            line += [nodes.Text(", ")] if place else []
            line += link(env, name.removesuffix("!"))
        line += nodes.inline("", f" {self.effort(reading(root, names))}", classes=["minutes"])
        return nodes.list_item("", line)


def link(env: Any, stem: str) -> nodes.Node:
    """Return a link that says number and short name of a chapter."""
    if stem == "index":
        return nodes.Text("this page")
    number, name = chapter(env, f"nbs/{stem}") or ("", stem)
    target = env.app.builder.get_relative_uri(env.docname, f"nbs/{stem}")
    return nodes.reference("", f"{number} {name}", refuri=target, internal=True)


# --- the map

class Part(NamedTuple):
    """A part of the book: its caption, and its pages."""

    caption: str
    files: list[tuple[str, str]]    # docname, short name


def parts_of(root: Path) -> list[Part]:
    """Return the parts of the book that have chapters."""
    parts = []
    for given in yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]:
        files = [(entry["file"], entry.get("title", entry["file"])) for entry in given["chapters"]]
        parts += [Part(given["caption"], files)] if any(CHAPTER.fullmatch(file) for file, _ in files) else []
    return parts


def builds_on(notebook: Path) -> list[str]:
    """Return the chapters that one must have read before, as the line "Builds on" of a chapter names them."""
    said = re.search(r"^Builds on (.*)$", prose(notebook), re.M)
    return re.findall(r"\{doc\}`(\w+)`", said[1]) if said else []


def before(root: Path, name: str) -> set[str]:
    """Return the chapters that one builds on, and those that these build on."""
    direct = builds_on(root / "nbs" / f"{name}.ipynb")
    return set(direct).union(*(before(root, one) for one in direct))


def uses(root: Path, parts: list[Part]) -> Counter[tuple[int, int]]:
    """Count the chapters from part to part that build on one another, parts by number."""
    part_of = {docname: number for number, part in enumerate(parts) for docname, _ in part.files}
    counted = Counter((user, part_of[f"nbs/{used}"]) for docname, user in part_of.items() if CHAPTER.fullmatch(docname)
                      for used in builds_on(root / f"{docname}.ipynb"))
    return Counter({pair: number for pair, number in counted.items() if pair[0] != pair[1]})


def levels(count: int, edges: Counter[tuple[int, int]]) -> list[int]:
    """Return how high each part stands: one above the highest that it uses."""
    level = [0] * count
    for _ in range(count):
        for user, used in edges:
            level[user] = max(level[user], level[used] + 1)
    if max(level) >= count:
        raise ExtensionError("book-map: parts of the book build on each other in a circle")
    return level


def branches(files: list[tuple[str, str]]) -> list[list[tuple[str, str, str]]]:
    """Return chapters in groups of one number: 22, or 24 with 24a and 24b; each as docname, number, name."""
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for docname, name in files:
        file = CHAPTER.fullmatch(docname)
        number = file["number"] if file else ""
        groups.setdefault(number[:2] or docname, []).append((docname, number, name))
    return list(groups.values())


class Form(NamedTuple):
    """One of the two forms of the map, in pixels."""

    name: str
    width: int
    gap: int
    line: int


WIDE = Form("wide", 760, 34, 26)
NARROW = Form("narrow", 340, 30, 28)
ACROSS = 2    # boxes side by side


class Map:
    """The drawing of one form."""

    def __init__(self, form: Form, uri: Any) -> None:
        self.form = form
        self.uri = uri
        self.marks: list[str] = []

    def chip(self, x: float, y: float, entry: tuple[str, str, str], shown: str, width: float) -> None:
        """Draw the link to a chapter."""
        docname, number, name = entry
        full = escape(f"{number} {name}".strip())
        self.marks.append(
            f'<a href="{self.uri(docname)}" aria-label="{full}"><title class="nohighlight">{full}</title>'
            f'<rect class="chip" x="{x:g}" y="{y:g}" width="{width:g}" height="{self.form.line - 4}" rx="4"/>'
            f'<text text-anchor="middle" x="{x + width / 2:g}" y="{y + self.form.line / 2 + 2.5:g}">{escape(shown)}'
            '</text></a>')

    def named(self, x: float, y: float, room: float, groups: list[list[tuple[str, str, str]]]) -> float:
        """Draw groups one after another: the first chapter by name, those with a letter by their letters."""
        left, top = x, y
        for first, *others in groups:
            shown = f"{first[1]} {first[2]}".strip()
            width = 7 * len(shown) + 2 * sum(map(str.isupper, shown)) + 10
            if left + width + 23 * len(others) > x + room:
                left, top = x, top + self.form.line
            self.chip(left, top, first, shown, width)
            for place, other in enumerate(others):
                self.chip(left + width + 3 + 23 * place, top, other, other[1][2:], 20)
            left += width + 23 * len(others) + 10
        return top - y + self.form.line

    def numbered(self, x: float, y: float, room: float, groups: list[list[tuple[str, str, str]]]) -> float:
        """Draw all chapters by their numbers alone."""
        entries = [entry for group in groups for entry in group]
        columns = int(room // 38)
        for place, entry in enumerate(entries):
            self.chip(x + 38 * (place % columns), y + self.form.line * (place // columns), entry, entry[1] or "…",
                      35)
        return -(-len(entries) // columns) * self.form.line

    def part(self, x: float, y: float, width: float, part: Part) -> float:
        """Write caption and chapters of a part; return its lower edge."""
        narrow = self.form is NARROW and width < 200
        caption = part.caption.rpartition(": ")[2] if narrow else part.caption
        self.marks.append(f'<text class="bold" x="{x + 10:g}" y="{y + 20:g}">{escape(caption)}</text>')
        draw = self.named if self.form is WIDE else self.numbered
        return y + 34 + draw(x + 8, y + 30, width - 12, branches(part.files))

    def arrow(self, x: float, y: float, below: float, count: int) -> None:
        """Draw an arrow down, with the number of steps from chapter to chapter beside it."""
        self.marks.append(
            f'<path class="soft-line" stroke-width="1.5" d="M{x:g} {y:g}V{below - 6:g}"/>'
            f'<path class="soft-ink" d="M{x:g} {below:g}l-4-8h8z"/>'
            f'<text class="soft-ink" x="{x + 7:g}" y="{(y + below) / 2 + 3:g}">{count}</text>')

    def row(self, top: float, parts: list[Part]) -> float:
        """Draw parts side by side in boxes of one height; return the lower edge."""
        mark = len(self.marks)
        width = (self.form.width - 8 * (len(parts) - 1)) / len(parts)
        below = max(self.part((width + 8) * place, top, width, part) for place, part in enumerate(parts))
        self.marks[mark:mark] = [
            f'<rect class="pale" x="{(width + 8) * place + 1:g}" y="{top:g}" width="{width - 2:g}" '
            f'height="{below - top:g}" rx="6"/>' for place in range(len(parts))]
        return below

    def draw(self, parts: list[Part], edges: Counter[tuple[int, int]]) -> str:
        """Draw the parts by level, the highest at the top, and an arrow from each level to the next; return the SVG."""
        level = levels(len(parts), edges)
        y = 2.0
        above: list[int] = []
        for height in range(max(level), -1, -1):
            here = [number for number, of in enumerate(level) if of == height]
            if above:
                self.arrow(self.form.width / 2, y, y + self.form.gap, sum(edges[pair] for pair in product(above, here)))
            y += self.form.gap if above else 0
            for start in range(0, len(here), ACROSS):
                y += 8 if start else 0
                y = self.row(y, [parts[number] for number in here[start:start + ACROSS]])
            above = here
        return self.svg(y + 2)

    def svg(self, height: float) -> str:
        """Return the drawing as an element of the page."""
        return (f'<svg class="picture book-map {self.form.name}" viewBox="0 0 {self.form.width} {height:g}" '
                f'role="group" aria-label="Map of the book">{"".join(self.marks)}</svg>')


class MapDirective(Directive):
    """The map of the book, in both forms."""

    def run(self) -> list[nodes.Node]:
        """Return the drawings as raw HTML."""
        env = self.state.document.settings.env
        env.note_reread()
        root = Path(env.srcdir)
        parts = parts_of(root)
        edges = uses(root, parts)
        drawn = [Map(form, lambda docname: env.app.builder.get_relative_uri(env.docname, docname)).draw(parts, edges)
                 for form in (WIDE, NARROW)]
        return [nodes.raw("", "".join(drawn), format="html")]


def setup(app: Any) -> dict[str, Any]:
    """Register both directives."""
    app.add_directive("path", PathDirective)
    app.add_directive("book-map", MapDirective)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
