"""Say to screen readers what the theme leaves unsaid, and let the keyboard pass by what does nothing.

The sidebar becomes a landmark, an empty heading of a table a cell, and a formula no stop of the tabulator, unless it
scrolls (``_assets/book-access.js``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

SIDEBAR = re.compile(r'(<div id="pst-primary-sidebar")(?! role)')
EMPTY_HEAD = re.compile(r"<th>\s*</th>")
SAYS_ITSELF = re.compile(r'(<summary) aria-label="Toggle hidden content"')    # "Show code cell source"


def said(html: str) -> str:
    """Text of a page with what it should say."""
    html = SIDEBAR.sub(r'\1 role="complementary" aria-label="The book"', html)
    html = html.replace('role="doc-biblioentry"', 'role="listitem"')    # they stand in a list
    return SAYS_ITSELF.sub(r"\1", EMPTY_HEAD.sub("<td></td>", html))


def say(app: Any, exception: Exception | None) -> None:
    """Write the pages that say more than before."""
    if exception is not None or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        if "_static" not in page.relative_to(app.outdir).parts:
            html = page.read_text(encoding="utf-8")
            if (spoken := said(html)) != html:
                page.write_text(spoken, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Register the script and the step at the end of a build."""
    app.add_js_file("book-access.js", loading_method="defer")
    app.connect("build-finished", say)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
