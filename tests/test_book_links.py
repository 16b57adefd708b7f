"""Every link of the built book that stays inside it: the page is there, and the place on it."""
import re
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.book import HTML, PAGES, built, page

INERT = re.compile(r"<script\b[^>]*>.*?</script>|<!--.*?-->", re.S)
UNRESOLVED = re.compile(r'(?<!">)<code class="xref [^"]*"[^>]*>(.*?)</code>', re.S)      # no link around it
TAG = re.compile(r"<[a-zA-Z][^>]*>")
GIVEN = re.compile(r'\s(href|src|poster|srcset|id|name)="([^"]*)"')

pytestmark = built


@cache
def parts_of(file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return where a page leads to, and what on it can be led to."""
    text = file.read_text(encoding="utf-8")
    scripts = re.findall(r'<script\b[^>]*?\ssrc="([^"]*)"', text)
    given = [pair for tag in TAG.findall(INERT.sub("", text)) for pair in GIVEN.findall(tag)]
    links = {unescape(value) for key, value in given if key not in ("id", "name")} | {*map(unescape, scripts)}
    return frozenset(links), frozenset(unescape(value) for key, value in given if key in ("id", "name"))


@cache
def target_of(folder: Path, path: str) -> tuple[Path, bool]:
    """Return the file that a link leads to from a folder, and whether it is there."""
    target = (folder / unquote(path)).resolve()
    return target, target.is_file()


def fault(link: str, page: Path, root: Path) -> str:
    """Return what is wrong with a link of a page; "" if nothing is, or if it leaves the book."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return "" if parts.scheme in ("https", "mailto", "data") else f"{link}: neither inside nor https"
    target, is_there = target_of(page.parent, parts.path) if parts.path else (page, True)
    if not (is_there and target.is_relative_to(root)):
        return f"{link}: no such file"
    anchor = unquote(parts.fragment)
    if anchor and target.suffix == ".html" and anchor not in parts_of(target)[1]:
        return f"{link}: no such place on that page"
    return ""


def faults(root: Path) -> list[str]:
    """Return what is wrong with the links of all pages of a folder."""
    pages = [page for page in sorted(root.rglob("*.html")) if "_static" not in page.relative_to(root).parts]
    return [f"{page.relative_to(root)}: {wrong}" for page in pages for link in sorted(parts_of(page)[0])
            if (wrong := fault(link, page, root))]


def test_every_link_inside_the_book_leads_somewhere():
    index = HTML / "index.html"
    assert len(parts_of(index)[0]) > 100 and "main-content" in parts_of(index)[1]
    assert all(fault(link, index, HTML) for link in ("no.html", "#no-such-place", "../up.html", "http://a.b"))
    assert faults(HTML) == []


def test_every_name_that_is_to_be_a_link_is_one():
    assert [(name, found) for name in PAGES if not name.startswith("_modules")
            for found in UNRESOLVED.findall(page(name))] == []


