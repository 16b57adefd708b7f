"""One file that opens anywhere: the question, the answer in words with one picture, and then the evidence."""

# A module, written by hand.

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .frames import write_bytes

__all__ = ['Table', 'Picture', 'Section', 'Page', 'write_page']

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
                     "\ud800-\udfff\ufeff\ufffe\uffff]")
CELL_LETTERS = 120  # shown of a text in a table
TEXT_LETTERS = 3000  # and of a paragraph


def escaped(value: object, most: int = TEXT_LETTERS) -> str:
    """A text as it may stand between tags, or between quotation marks within one.

    Parameters
    ----------
    value : anything, as `str` writes it
    most : letters that are kept
    """
    text = str(value)
    if len(text) > most:
        text = f"{text[:most]}… ({len(text):,} letters)"
    return html.escape(_UNSEEN.sub("\ufffd", text))


def shown(value: Any) -> str:
    """A value of a table as a person reads it, escaped; empty if there is none."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if not isinstance(value, int | float | np.number):
        return escaped(value, CELL_LETTERS)
    number: Any = value
    if pd.isna(number):
        return ""
    is_long = isinstance(number, int | np.integer) or abs(number) >= 1000
    return f"{number:,.0f}" if is_long else f"{number:.4g}"


@dataclass(frozen=True)
class Table:
    """Head of a frame.

    Parameters
    ----------
    frame : numbers, texts and truth values; the index is not shown
    meanings : what columns mean, by name; others explain themselves
    file : name of the file that has all rows, if there is one
    most_rows : how many are shown
    """

    frame: pd.DataFrame
    meanings: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    most_rows: int = 12


LONG_LETTERS = 24  # a longer text may be broken into lines anywhere


def _row(cells: Sequence[object], is_number: Sequence[bool]) -> str:
    """A row of a table; the first cell names it."""
    parts = []
    for place, (cell, is_right) in enumerate(zip(cells, is_number, strict=True)):
        tag = "td" if place else 'th scope="row"'
        text = shown(cell)
        kind = "number" if is_right else "long" if len(text) > LONG_LETTERS else "text"
        parts.append(f'<{tag} class="{kind}" dir="auto">{text}</{tag[:2]}>')
    return f"<tr>{''.join(parts)}</tr>"


def _rest_of(table: Table) -> str:
    """Which rows are not shown, and where all are."""
    rows = len(table.frame)
    where = f" All are in {table.file}." if table.file else ""
    if not rows:
        return "There are no rows."
    if rows <= table.most_rows:
        return ""
    return f"The first {table.most_rows:,} of {rows:,} rows.{where}"


def heading(name: object) -> str:
    """Name of a column, which paper may break after an underscore."""
    return escaped(name, CELL_LETTERS).replace("_", "_<wbr>")


def table_html(table: Table) -> str:
    """A table in a box that scrolls, with the meanings of its columns below."""
    frame = table.frame
    is_number = [kind.kind in "iuf" for kind in frame.dtypes]
    head = "".join(f'<th scope="col"{" class=number" if is_right else ""}>{heading(name)}</th>'
                   for name, is_right in zip(frame.columns, is_number, strict=True))
    columns = [frame.iloc[:table.most_rows, place].tolist() for place in range(frame.shape[1])]
    body = "".join(_row(cells, is_number) for cells in zip(*columns, strict=True))
    words = [f"<b>{escaped(name)}</b>: {escaped(table.meanings[name])}"
             for name in map(str, frame.columns) if name in table.meanings]
    notes = [escaped(rest)] if (rest := _rest_of(table)) else []
    notes += [f"{'; '.join(words)}."] if words else []
    small = "".join(f"<p class=\"note\">{note}</p>" for note in notes)
    return (f'<div class="box" tabindex="0"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>{small}")


@dataclass(frozen=True)
class Picture:
    """A drawing, or the place where it would be.

    Parameters
    ----------
    words : what it shows, for those who cannot see it, and for all if there is no drawing
    svg : as `draw_apart` returns it; None if it could not be drawn
    """

    words: str
    svg: str | None = None


SHAPES = frozenset(
    "svg g path rect circle line text tspan defs clipPath linearGradient stop".split())
ATTRIBUTES = frozenset(
    "width height viewBox transform d x y x1 x2 y1 y2 cx cy r rx ry dx dy offset id clip-path fill "
    "fill-opacity stroke stroke-width stroke-opacity stroke-dasharray stroke-dashoffset "
    "stroke-linecap stroke-linejoin stroke-miterlimit opacity stop-color stop-opacity "
    "gradientUnits font-family font-size font-weight font-style text-anchor".split())
_INSIDE = re.compile(r"url\(#([\w-]+)\)")


def _attribute(name: str, value: str, number: int) -> str:
    """An attribute of a shape; empty if a chart has no need of it."""
    if name == "id":
        value = f"picture{number}-{value}"
    elif found := _INSIDE.fullmatch(value):
        value = f"url(#picture{number}-{found[1]})"
    elif "url" in value.lower() and name != "d":
        return ""
    return f' {name}="{escaped(value, len(value))}"' if name in ATTRIBUTES else ""


def _shape(node: ET.Element, number: int) -> Iterator[str]:
    """A shape and what is in it, written anew."""
    name = node.tag.rpartition("}")[2]
    if name not in SHAPES:
        return
    inner = "".join(_attribute(key, value, number) for key, value in node.items())
    yield f"<{name}{inner}>{escaped(node.text or '')}"
    for child in node:
        yield from _shape(child, number)
        yield escaped(child.tail or "")
    yield f"</{name}>"


def picture_html(picture: Picture, number: int) -> str:
    """A drawing with its words, or the words and how to get the drawing.

    Parameters
    ----------
    picture : with or without its drawing
    number : of the picture in the page
    """
    words = escaped(picture.words)
    if picture.svg is None:
        return f'<p class="note">{words} {NO_PICTURE}</p>'
    if len(picture.svg) > LARGEST_SVG:
        return f'<p class="note">{words} {TOO_LARGE}</p>'
    drawing = "".join(_shape(ET.fromstring(picture.svg), number))
    named = drawing.replace("<svg", f'<svg role="img" aria-label="{words}"', 1)
    below = f"<figcaption>{words}</figcaption>"
    return f'<figure><div class="box" tabindex="0">{named}</div>{below}</figure>'


LARGEST_SVG = 3_000_000  # letters; a mail with more does not arrive
TOO_LARGE = "The picture is too large for a page."
NO_PICTURE = ("The picture is missing. Install the extra <code>charts</code> "
              "(<code>pip install 'sched_lab[charts]'</code>) and run the command again "
              "with <code>--force</code>.")

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d1d1f; --soft: #55585d; --line: #d9dbde;
  --band: #f5f6f7; --accent: #0072b2 }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); overflow-wrap: anywhere;
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .8rem }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-top: .9rem;
  border-top: 1px solid var(--line) }
p, ul { max-width: 46rem; margin: .6rem 0 }
.answer > p:first-child { font-size: 1.15rem; padding-left: .8rem;
  border-left: 4px solid var(--accent) }
.note, figcaption, footer { color: var(--soft); font-size: .87rem }
.box { overflow-x: auto; max-width: 100% }
table { border-collapse: collapse; font-size: .9rem; margin: .6rem 0 .2rem }
th, td { padding: .3rem .7rem; text-align: start; vertical-align: top;
  border-bottom: 1px solid var(--line); max-width: 24rem; unicode-bidi: isolate;
  overflow-wrap: break-word }
th { font-weight: 600 }
tbody th { font-weight: 400 }
thead th { background: var(--band); vertical-align: bottom }
thead th, .text, .number { white-space: nowrap }
.number { text-align: end; font-variant-numeric: tabular-nums }
.long { min-width: 12rem; overflow-wrap: anywhere }
pre { background: var(--band); padding: .8rem; margin: .6rem 0; white-space: pre-wrap;
  font-size: .87rem }
code { font-family: ui-monospace, "Liberation Mono", monospace }
figure { margin: 1rem 0 }
svg { display: block; height: auto; max-width: 100%; min-width: 34rem }
@media (max-width: 40rem) {  /* a phone: whole, and larger when it is touched */
  svg { min-width: 0 }
  .box:focus svg { max-width: none; min-width: 34rem }
}
"""

DARK_AND_PRINT = """


@media screen and (prefers-color-scheme: dark) {
  :root { --paper: #1a1a1a; --ink: #e8e8e8; --soft: #a8abb0; --line: #3a3c40; --band: #252628;
    --accent: #56b4e9 }
  svg { filter: invert(.898) hue-rotate(180deg) }
}


@media print {
  @page { margin: 15mm }
  :root { color-scheme: light }
  body { max-width: none; padding: 0; font-size: 10pt }
  .box { overflow: visible }
  table { font-size: 8pt }
  thead th, .text { white-space: normal }
  th, td { min-width: 0; padding: .2rem .35rem }
  tr, figure, pre { break-inside: avoid }
  h2 { break-after: avoid }
  svg { min-width: 0; max-height: 200mm }
}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

Part = str | Sequence[str] | Table | Picture


@dataclass(frozen=True)
class Section:
    """A heading, and what stands below it.

    Parameters
    ----------
    heading : in a few words
    parts : paragraphs, lists of texts, tables and pictures
    """

    heading: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Page:
    """A question, its answer, and the evidence.

    Parameters
    ----------
    title : the question
    answer : parts of the first screen; first a sentence with the main number
    sections : all else, the most important first
    command_line : what makes the same page again
    mark : who wrote it, such as the name of a command and the key of its question
    """

    title: str
    answer: Sequence[Part]
    sections: Sequence[Section] = ()
    command_line: str = ""
    mark: str = ""


def _part(part: Part, number: int) -> str:
    """A part of a page."""
    if isinstance(part, str):
        return f"<p>{escaped(part)}</p>"
    if isinstance(part, Table):
        return table_html(part)
    if isinstance(part, Picture):
        return picture_html(part, number)
    return f"<ul>{''.join(f'<li>{escaped(line)}</li>' for line in part)}</ul>"


def page_html(page: Page) -> str:
    """The page as one text of HTML."""
    body = [f"<main><h1>{escaped(page.title)}</h1>", '<div class="answer">']
    body += [_part(part, place) for place, part in enumerate(page.answer)]
    body.append("</div>")
    number = len(page.answer)
    for section in page.sections:
        body.append(f"<section><h2>{escaped(section.heading)}</h2>")
        body += [_part(part, number + place) for place, part in enumerate(section.parts)]
        body.append("</section>")
        number += len(section.parts)
    if page.command_line:
        body.append(f"<pre><code>{escaped(page.command_line)}</code></pre>")
    head = (f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta name="generator" content="sched_lab {escaped(page.mark)}">'
            f"<title>{escaped(page.title)}</title>"
            f"<style>{STYLE}{DARK_AND_PRINT}</style>")
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">{head}</head>\n<body>'
            f"{chr(10).join(body)}</main></body></html>\n")


def write_page(page: Page, path: str | Path) -> Path:
    """Write a page as one HTML file that needs nothing else.

    Parameters
    ----------
    page : texts, tables and pictures
    path : the .html file

    Raises
    ------
    OutputError : it cannot be written there; nothing is left behind
    """
    return write_bytes(page_html(page).encode(), path)
