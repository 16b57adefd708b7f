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
    assert len(parts_of(HTML / "index.html")[0]) > 100
    assert faults(HTML) == []


def test_every_name_that_is_to_be_a_link_is_one():
    assert [(name, found) for name in PAGES if not name.startswith("_modules")
            for found in UNRESOLVED.findall(page(name))] == []


def test_broken_links_would_be_found(tmp_path):
    (tmp_path / "other.html").write_text('<h1 id="there">x</h1>', encoding="utf-8")
    good = ('<p id="here"><a href="other.html#there">a</a><a href="#here">b</a><a href="https://example.org/x#y">c</a>'
            '<script>"<a href=\\"no.html\\">"</script><img src="data:,x">')
    (tmp_path / "index.html").write_text(good, encoding="utf-8")
    assert faults(tmp_path) == []
    parts_of.cache_clear()
    bad = [f'<a class="x" href="{link}">' for link in ("no.html", "other.html#here", "#there", "../up.html", "http://a.b")]
    (tmp_path / "index.html").write_text(good + "".join(bad) + '<script src="no.js"></script>', encoding="utf-8")
    assert len(faults(tmp_path)) == 6
    name = '<code class="xref py py-obj docutils"><span>f</span></code>'
    assert UNRESOLVED.findall(f'<a class="reference" title="f">{name}</a> or {name}') == ["<span>f</span>"]
