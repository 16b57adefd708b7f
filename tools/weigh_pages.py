"""What the pages of the built book weigh: kilobytes that a reader's browser fetches, compressed as a server sends them.

    python tools/weigh_pages.py [HTML]        default _build/html; one line a page, the heaviest last

A page weighs its own text and each script, style and picture that it names, and the fonts and pictures that its styles
name. What a script fetches later, on a click or when a chart comes into view, is counted where the script says so:
the drawing of charts on pages with charts, the index of words not at all.
"""
from __future__ import annotations

import gzip
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMED = re.compile(r"<(?:script|img|link)\b[^>]*?\b(?:src|href)=\"([^\"#?:]+)[^\"]*\"[^>]*>")
LATER = ("searchindex.js", "genindex.html", "search.html")
COMPRESSED = {".woff2", ".woff", ".png", ".jpg", ".gz"}


@cache
def fetched_bytes(path: Path) -> int:
    """Bytes that go over the wire for a file."""
    content = path.read_bytes()
    return len(content) if path.suffix in COMPRESSED else len(gzip.compress(content, 6))


def named_in(page: Path) -> set[Path]:
    """Files that a page names, and those that its styles and its charts need."""
    text = page.read_text(encoding="utf-8")
    files = set()
    for tag in NAMED.finditer(text):
        path = (page.parent / tag[1]).resolve()
        is_page = path.suffix == ".html" or "rel=\"preload\"" in tag[0] and "as=\"font\"" in tag[0]
        if path.is_file() and not is_page and path.name not in LATER:
            files.add(path)
    if "class=\"vega-chart\"" in text:
        files |= set(page.parents[len(page.relative_to(html_of(page)).parts) - 1].glob("_static/vendor/vega/*.js"))
    return files


@cache
def html_of(page: Path) -> Path:
    """Root of the built book that a page belongs to."""
    return next(folder for folder in page.parents if (folder / "_static").is_dir())


def weights(html: Path) -> dict[str, int]:
    """Bytes fetched for each page, the page itself included."""
    return {str(page.relative_to(html)): fetched_bytes(page) + sum(map(fetched_bytes, named_in(page)))
            for page in sorted(html.rglob("*.html")) if "_static" not in page.parts}


def main() -> None:
    """Print the weights."""
    html = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "_build" / "html"
    for name, weight in sorted(weights(html).items(), key=lambda pair: pair[1]):
        print(f"{weight / 1000:8.0f} kB  {name}")


if __name__ == "__main__":
    main()
