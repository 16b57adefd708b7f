"""Let a page load what it uses, and nothing else.

The theme gives every page a script with two thousand icons, half a megabyte when compressed, of
which the book shows sixteen: these are drawn by ``_assets/book-icons.css``. It gives every page
the index of all words, which only the page of search results reads, and every page that Jupyter
Book makes gets the scripts that set mathematics, also where there is none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ICONS = re.compile(r"[ \t]*<script [^>]*scripts/fontawesome\.js[^>]*></script>\n?")
WORDS = re.compile(r"[ \t]*<script src=\"[^\"]*(?:searchtools|language_data|searchindex)\.js"
                   r"[^\"]*\"></script>\n?")
MATHEMATICS = re.compile(r"[ \t]*<script(?: [^>]*mathjax/[^>]*>|>window\.MathJax = .*?)</script>\n?")
HAS_MATHEMATICS = re.compile(r"class=\"[^\"]*(?<!no)math\b")


def lightened(html: str, name: str) -> str:
    """Text of a page without the scripts that it has no use for."""
    html = ICONS.sub("", html)
    if name != "search.html":
        html = WORDS.sub("", html)
    return html if HAS_MATHEMATICS.search(html) else MATHEMATICS.sub("", html)


def lighten(app: Any, exception: Exception | None) -> None:
    """Write the pages that are lighter than before."""
    if exception is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        if "_static" not in page.relative_to(app.outdir).parts:
            html = page.read_text(encoding="utf-8")
            lighter = lightened(html, page.name)
            if lighter != html:
                page.write_text(lighter, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Register the step at the end of a build."""
    app.add_css_file("book-icons.css")
    app.connect("build-finished", lighten)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
