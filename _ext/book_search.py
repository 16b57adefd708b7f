"""Give the search its excerpts also where the book is a folder, not a site.

Sphinx's search fetches each page that it found, and a page opened from a folder (``file://``) may
fetch nothing. It may load scripts, though. So the text of every page is written as a small script
of its own, with the anchors that results point to, and ``_assets/book-search.js`` loads those of
the pages found.
"""

from __future__ import annotations

import json
import re
from html import escape, unescape
from pathlib import Path
from typing import Any

TAG = re.compile(r"""<(/?)([a-zA-Z][^\s/>]*)((?:[^>"']|"[^"]*"|'[^']*')*)>|<!--.*?-->""", re.S)
ANCHOR = re.compile(r"""\sid=["']([^"']*)""")
SKIPPED = {"script", "style", "noscript", "svg"}
VOID = {
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track",
    "wbr"}


def page_text(html: str) -> str:
    """Return the text of a page, and of its elements only those that have an anchor.

    A regular expression does it in a quarter of the time of a parser: Sphinx writes the page, and closes what it opens.
    """
    parts: list[str] = []
    opened: list[str] = []    # what closes each open element: nothing, a tag, or "skip"
    skips = end = 0
    for found in TAG.finditer(html):
        if not skips:
            parts.append(escape(unescape(html[end:found.start()]), quote=False))
        end = found.end()
        closes, name, given = found.groups()
        if name is None or name in VOID or given.endswith("/"):
            continue
        if closes:
            closing = opened.pop() if opened else ""
            skips -= closing == "skip"
            parts.append(closing if closing != "skip" else "")
        elif name in SKIPPED or "headerlink" in given:
            opened.append("skip")
            skips += 1
        elif anchor := ANCHOR.search(given):
            parts.append(f'<div id="{anchor[1]}">')
            opened.append("</div>")
        else:
            opened.append("")
    return re.sub(r"\s+", " ", "".join(parts)).strip()


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
