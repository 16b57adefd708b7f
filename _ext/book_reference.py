"""Write the two reference pages as the rest of the book reads.

* API: our docstrings say ``name : description`` and no types (annotations have them). Napoleon would take what
  follows the colon for a type, so the sections are turned into fields here.
* Bibliography: a source is labelled as the text cites it, "Lettich et al., 2024".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pybtex.plugin import register_plugin
from pybtex.style.formatting.alpha import Style as AlphaStyle
from pybtex.style.labels import BaseLabelStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle

RULE = re.compile(r"-{3,}\s*")
NAMED = re.compile(r"(?P<name>\S.*?) : (?P<text>.*)")
FIELDS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns")


def sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield title and lines of each section of a docstring; the summary has no title."""
    heads = [i for i in range(len(lines) - 1) if lines[i].strip() and RULE.fullmatch(lines[i + 1])]
    starts = [*heads, len(lines)]
    yield "", lines[:starts[0]]
    for here, after in pairwise(starts):
        yield lines[here].strip(), lines[here + 2:after]


def entries(lines: list[str]) -> list[str]:
    """Return the entries of a section, one line each: what is indented continues the entry above."""
    found: list[str] = []
    for line in filter(str.strip, lines):
        if line.startswith(" ") and found:
            found[-1] += (" " if " : " in found[-1] else " : ") + line.strip()
        else:
            found.append(line.strip())
    return found


def field(title: str, lines: list[str]) -> list[str]:
    """Return a section as a reST field: a list of named values, or running text where nothing has a name."""
    if not any(NAMED.fullmatch(entry) for entry in entries(lines)):
        return [f":{title}: {' '.join(entries(lines))}"]
    named = [NAMED.sub(lambda m: f"**{m['name'].replace('*', chr(92) + '*')}** -- {m['text']}", entry, count=1)
             for entry in entries(lines)]
    return [f":{title}:", *(f"    * {entry}" for entry in named)]


def docstring_fields(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite the sections of a docstring in place."""
    out: list[str] = []
    for title, body in sections(lines):
        if title in FIELDS:
            out += field(title, body)
        else:
            out += ["", *([f".. rubric:: {title}", ""] if title else []), *body]
    lines[:] = [*out, ""]


class AuthorYearLabels(BaseLabelStyle):
    """Labels of the bibliography, made by the rule that makes the citations."""

    def format_labels(self, sorted_entries: list[Any]) -> Iterator[str]:
        """Yield one label for each entry."""
        style = AuthorYearReferenceStyle()
        names = style.person.names("author", full=False)
        for entry in sorted_entries:
            yield f"{names.format_data({'entry': entry, 'style': style})}{style.author_year_sep}{entry.fields['year']}"


class AuthorYearStyle(AlphaStyle):
    """The usual bibliography, sorted by author, with the labels above."""

    default_label_style = AuthorYearLabels


def setup(app: Any) -> dict[str, Any]:
    """Register both."""
    register_plugin("pybtex.style.formatting", "author_year", AuthorYearStyle)
    app.connect("autodoc-process-docstring", docstring_fields)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
