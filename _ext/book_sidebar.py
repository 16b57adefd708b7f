"""Say in the sidebar what each chapter asks, and fold the parts that the reader is not in.

The question is the heading of the chapter, so nobody types it twice; the short name above it is the ``title`` in
``_toc.yml``. A question that is too long for the sidebar is clipped by ``_assets/book-front.css``.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from typing import Any

from book_chapters import chapter
from bs4 import BeautifulSoup


def question(env: Any, docname: str) -> str:
    """Return what a chapter asks; "" for any other page."""
    named = chapter(env, docname)
    return env.titles[docname].astext().removeprefix(f"{named[1]}: ") if named else ""


def ask(env: Any, pagename: str, soup: BeautifulSoup) -> None:
    """Put the question of each chapter under its name."""
    here = posixpath.dirname(pagename)
    for link in soup.select("li.toctree-l1 > a.reference.internal"):
        target = str(link["href"]).partition("#")[0]
        page = posixpath.normpath(posixpath.join(here, target)) if target else pagename
        if asked := question(env, page.removesuffix(".html")):
            line = soup.new_tag("span", attrs={"class": "question"})
            line.string = asked
            link.extend([" ", line])


def fold(soup: BeautifulSoup) -> None:
    """Make each part a fold, and open the one with the present page."""
    for caption in soup.select("p.caption"):
        part = caption.find_next_sibling("ul")
        if part is None:
            continue
        details = soup.new_tag("details", attrs={"class": "part"})
        if part.select_one(".current"):
            details["open"] = "open"
        summary = soup.new_tag("summary")
        caption.insert_before(details)
        caption.name = "span"    # a summary holds no paragraph
        summary.append(caption.extract())
        details.extend([summary, part.extract()])


def name_folds(soup: BeautifulSoup) -> None:
    """Give the arrow of each fold a name, which the theme does not."""
    for summary in soup.select("li.has-children > details > summary"):
        above = summary.find_previous("a")
        summary["aria-label"] = f"Pages of {above.get_text(' ', strip=True) if above else 'this part'}"


def wrap_toctree(app: Any, pagename: str, templatename: str, context: dict[str, Any],
                 doctree: Any) -> None:
    """Let the theme's function for the sidebar return ours."""
    if "generate_toctree_html" not in context:
        return
    original = context["generate_toctree_html"]

    @cache
    def with_questions(kind: str, **options: Any) -> Any:
        soup = original(kind, **options)
        if kind == "sidebar":
            ask(app.env, pagename, soup)
            fold(soup)
            name_folds(soup)
        return soup

    context["generate_toctree_html"] = with_questions


# --- one table of contents for all pages of a folder

SHARED: dict[tuple[Any, ...], str] = {}
HERE = 'class="current reference internal" href="#"'


def unmarked(html: str, pagename: str) -> str:
    """Return a table of contents that marks no page, from that of one page."""
    html = html.replace(HERE, f'class="reference internal" href="{posixpath.basename(pagename)}.html"')
    return re.sub(r'(<li class="toctree-l\d) current"', r'\1"', html).replace('<ul class="current">', "<ul>")


def marked(html: str, pagename: str) -> str:
    """Return it with a page and what is above it marked."""
    link = f'<a class="reference internal" href="{posixpath.basename(pagename)}.html"'
    place = html.find(link)
    if place < 0:
        return html
    before, after = html[:place], html[place + len(link):]
    for level in range(int(before[before.rindex("toctree-l") + 9]), 0, -1):
        item = f'<li class="toctree-l{level}"'
        start, _, end = before.rpartition(item)
        before = f"{start}{item[:-1]} current\"{end}"
    return f"{before}<a {HERE}{after}"


def share_toctree(app: Any, pagename: str, templatename: str, context: dict[str, Any],
                  doctree: Any) -> None:
    """Let pages of one folder share their table of contents: to make it takes most of the time of a page."""
    original = context["toctree"]

    def shared(**options: Any) -> str:
        key = posixpath.dirname(pagename), *sorted(options.items())
        if key not in SHARED:
            SHARED[key] = unmarked(original(**options), pagename)
        return marked(SHARED[key], pagename)

    context["toctree"] = shared


def setup(app: Any) -> dict[str, Any]:
    """Register before and after the theme."""
    app.connect("env-updated", lambda *_: SHARED.clear())
    app.connect("html-page-context", share_toctree, priority=400)
    app.connect("html-page-context", wrap_toctree, priority=950)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
