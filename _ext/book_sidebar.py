"""Say in the sidebar what each chapter asks, and fold the parts that the reader is not in.

The question is the heading of the chapter, so nobody types it twice; the short name above it is the ``title`` in
``_toc.yml``. A question that is too long for the sidebar is clipped by ``_assets/book-front.css``.
"""

from __future__ import annotations

import posixpath
import re
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


# --- one sidebar for all pages of a folder: to make it takes most of the time of a page

SHARED: dict[tuple[Any, ...], str] = {}
PART = '<details class="part">'
OPEN = ' open="open">'


def unmarked(html: str, pagename: str) -> str:
    """Return a table of contents that marks no page, from that of one page."""
    html = html.replace('class="current reference internal" href="#"',
                        f'class="reference internal" href="{posixpath.basename(pagename)}.html"')
    return re.sub(r'(<li class="toctree-l\d) current"', r'\1"', html).replace('<ul class="current">', "<ul>")


def marked(html: str, pagename: str) -> str:
    """Return a sidebar with a page, and what is above it, marked and open."""
    link = f'<a class="reference internal" href="{posixpath.basename(pagename)}.html"'
    before, found, after = html.partition(link)
    if not found:
        return html
    after = f'<a class="current reference internal" href="#"{after}'
    for level in range(int(before[before.rindex("toctree-l") + 9]), 0, -1):
        item = f'<li class="toctree-l{level}'
        before, _, inside = before.rpartition(item)
        after = f"{inside}{after}"
        if after.startswith(" has-children"):
            after = after.replace("<details>", f"<details{OPEN}", 1)
        after = f"{item} current active{after}"
    before, _, inside = before.rpartition(PART)
    return f"{before}{PART[:-1]}{OPEN}{inside}{after}"


def share_sidebar(app: Any, pagename: str, templatename: str, context: dict[str, Any],
                  doctree: Any) -> None:
    """Let the theme's function for the sidebar return ours."""
    if "generate_toctree_html" not in context:
        return
    themes, toctree = context["generate_toctree_html"], context["toctree"]

    def shared(kind: str, **options: Any) -> Any:
        if kind != "sidebar":
            return themes(kind, **options)
        key = posixpath.dirname(pagename), *sorted(options.items())
        if key not in SHARED:
            context["toctree"] = lambda **chosen: unmarked(toctree(**chosen), pagename)
            soup = themes(kind, **options)
            ask(app.env, pagename, soup)
            fold(soup)
            name_folds(soup)
            SHARED[key] = str(soup)
        return marked(SHARED[key], pagename)

    context["generate_toctree_html"] = shared


def setup(app: Any) -> dict[str, Any]:
    """Register after the theme."""
    app.connect("env-updated", lambda *_: SHARED.clear())
    app.connect("html-page-context", share_sidebar, priority=950)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
