"""Let a page load what it uses, and nothing else; and nothing before its text that can wait.

The theme gives every page a script with two thousand icons, half a megabyte when compressed, of
which the book shows twenty: these are drawn by ``_assets/book-icons.css``. It gives every page
the index of all words, which only the page of search results reads, and every page that Jupyter
Book makes gets the scripts that set mathematics, also where there is none.

What is left is fetched so that a reader on a slow line sees the text early: one style sheet in
place of fourteen, scripts after the text, and colours that follow the system from the start.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from functools import cache
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


# --- scripts after the text

EARLY = re.compile(r"[ \t]*<link rel=\"preload\" as=\"script\"[^>]*>\n?")
SCRIPT = re.compile(r"<script (?![^>]*\bdefer\b)(?=[^>]*\bsrc=)")
OPTIONS = re.compile(r"<script src=\"[^\"]*documentation_options\.js[^\"]*\"></script>")
THEME = 'localStorage.getItem("theme") || "auto"'
SYSTEM = 'matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"'
KEPT_THEME = f'localStorage.getItem("mode") !== "auto" && localStorage.getItem("theme") || ({SYSTEM})'


def postponed(html: str, options: str) -> str:
    """Text of a page whose scripts wait for it; the options that they read stand in the page itself."""
    html = OPTIONS.sub(lambda _: f"<script>{options}</script>", EARLY.sub("", html))
    return SCRIPT.sub("<script defer ", html).replace(THEME, KEPT_THEME)


# --- one style sheet

SHEET = re.compile(r"[ \t]*<link(?=[^>]*rel=\"stylesheet\")[^>]*href=\"([^\"?:]*_static/[^\"?]+)[^\"]*\"[^>]*>\n?")
IMPORT = re.compile(r"@import \"([^\"]+)\";")
ADDRESS = re.compile(r"url\((['\"]?)(?!data:|#)([^'\")]+)\1\)")
REMARK = re.compile(r"@charset \"[^\"]*\";|/\*.*?\*/", re.S)


@cache
def styles(root: Path, file: str) -> str:
    """Rules of a style sheet with those that it imports, and addresses that hold in ``_static``."""
    folder = posixpath.dirname(file)
    text = REMARK.sub("", (root / "_static" / file).read_text(encoding="utf-8"))
    text = ADDRESS.sub(lambda found: f'url("{posixpath.normpath(posixpath.join(folder, found[2]))}")', text)
    return IMPORT.sub(lambda found: styles(root, posixpath.normpath(posixpath.join(folder, found[1]))), text)


def bundled(html: str, root: Path) -> str:
    """Text of a page with one style sheet, which is written once for all pages that need the same."""
    files = [posixpath.normpath(path.rpartition("_static/")[2]) for path in SHEET.findall(html)]
    if len(files) < 2:
        return html
    sheet = root / "_static" / f"book-{hashlib.sha256(' '.join(files).encode()).hexdigest()[:8]}.css"
    if sheet not in WRITTEN:
        WRITTEN[sheet] = "\n".join(styles(root, file) for file in files)
        sheet.write_text(WRITTEN[sheet], encoding="utf-8")
    first = SHEET.search(html)
    above = first[1].rpartition("_static/")[0] if first else ""
    version = hashlib.sha256(WRITTEN[sheet].encode()).hexdigest()[:8]
    link = f'<link rel="stylesheet" type="text/css" href="{above}_static/{sheet.name}?v={version}" />\n'
    return SHEET.sub("", html).replace("</title>", f"</title>\n{link}", 1)


WRITTEN: dict[Path, str] = {}


def lighten(app: Any, exception: Exception | None) -> None:
    """Write the pages that are lighter than before."""
    if exception is not None or app.builder.format != "html":
        return
    root = Path(app.outdir)
    options = (root / "_static" / "documentation_options.js").read_text(encoding="utf-8")
    styles.cache_clear()
    WRITTEN.clear()
    for page in root.rglob("*.html"):
        if "_static" not in page.relative_to(root).parts:
            html = page.read_text(encoding="utf-8")
            lighter = bundled(postponed(lightened(html, page.name), options), root)
            if lighter != html:
                page.write_text(lighter, encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Register the step at the end of a build."""
    app.add_css_file("book-icons.css")
    app.connect("build-finished", lighten, priority=900)    # after the theme has written the colours of code
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
