"""Give the search its excerpts also where the book is a folder, not a site.

Sphinx's search fetches each page that it found, and a page opened from a folder (``file://``) may
fetch nothing. It may load scripts, though. So the text of every page is written as a small script
of its own, with the anchors that results point to, and ``_assets/book-search.js`` loads those of
the pages found.
"""

from __future__ import annotations

import json
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

SKIPPED = {"script", "style", "noscript", "svg"}
VOID = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track",
    "wbr"}


class Text(HTMLParser):
    """The text of a page, and of its elements only those that have an anchor."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.open: list[str] = []    # what closes each open element: nothing, a tag, or "skip"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        given = dict(attrs)
        if tag in VOID:
            return
        if tag in SKIPPED or "headerlink" in (given.get("class") or ""):
            self.open.append("skip")
        elif given.get("id"):
            self.parts.append(f'<div id="{escape(given["id"] or "")}">')
            self.open.append("</div>")
        else:
            self.open.append("")

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        if tag not in VOID and self.open and (end := self.open.pop()) != "skip":
            self.parts.append(end)

    def handle_data(self, data: str) -> None:
        """Keep text that a reader sees."""
        if "skip" not in self.open:
            self.parts.append(escape(data, quote=False))


def page_text(html: str) -> str:
    """Return the text of a page with its anchors."""
    text = Text()
    text.feed(html)
    return re.sub(r"\s+", " ", "".join(text.parts)).strip()


def write_text(app: Any, pagename: str, templatename: str, context: dict[str, Any],
               doctree: Any) -> None:
    """Write the text of a page beside the book; let the search page load such texts."""
    if pagename == "search":
        app.add_js_file("book-search.js")
    if doctree is None or app.builder.format != "html":
        return
    target = Path(app.outdir, "_static", "text", f"{pagename}.js")
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(page_text(context["body"]), ensure_ascii=False)
    target.write_text(f"bookText({json.dumps(pagename)}, {text});\n", encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Register the texts."""
    app.connect("html-page-context", write_text)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
