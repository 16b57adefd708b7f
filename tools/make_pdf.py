"""Print the built book into one PDF with a title page, contents, bookmarks, page numbers and links: `make pdf`.

Chromium prints each page of the built book as it stands, on A4 and without what only a screen needs: helpers that are
folded are left out, solutions are opened, charts are drawn at the width of the paper. What is printed is joined with
pypdf, and links from page to page become links inside the document. The reference of the API is left out: it is for
looking up, and would be a third of the book.

    python tools/make_pdf.py --out book.pdf                    the whole book, from _build/html
    python tools/make_pdf.py --out two.pdf nbs/22_fgd index    these pages only
"""

from __future__ import annotations

import argparse
import base64
import html
import re
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urlsplit

import yaml
from pypdf import PageObject, PdfReader, PdfWriter
from pypdf.constants import PageLabelStyle
from pypdf.generic import (
    ArrayObject,
    DecodedStreamObject,
    DictionaryObject,
    FloatObject,
    NameObject,
    NullObject,
)

ROOT = Path(__file__).resolve().parents[1]
CSS = Path(__file__).with_name("pdf.css")
SCALE = 0.8                                  # a code line of 100 characters fits
PAPER_MM = (210, 297)
SIDES_MM = 34                                # both margins of pdf.css
WIDTH_PX = round((PAPER_MM[0] - SIDES_MM) / 25.4 * 96 / SCALE)
WAIT_S = 60
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
         "--disable-background-networking", "--hide-scrollbars", "--allow-file-access-from-files")
PREPARE = """
document.documentElement.dataset.theme = 'light';
document.head.insertAdjacentHTML('beforeend', '<style>' + arguments[0] + '</style>');
for (const e of document.querySelectorAll('details:not(.hide)')) e.open = true;
for (const e of document.querySelectorAll('.toggle-hidden')) e.classList.remove('toggle-hidden');
for (const e of document.querySelectorAll('img[loading]')) e.loading = 'eager';
const links = arguments[1].map((id) => `<a href="#${CSS.escape(id)}"></a>`).join('');
document.body.insertAdjacentHTML('beforeend', `<div style="height:0;overflow:hidden">${links}</div>`);
"""
SETTLED = """
const charts = [...document.querySelectorAll('.vega-chart')];
const math = [...document.querySelectorAll('.math')].filter((m) => m.checkVisibility());
return document.readyState === 'complete' && charts.every((c) => c.dataset.drawn)
    && math.every((m) => m.querySelector('mjx-container, math, svg')) && [...document.images].every((i) => i.complete);
"""
FIT = """
const shrink = [];
for (const e of document.querySelectorAll('.bd-article table, .bd-article mjx-container[display], .vega-chart svg')) {
    const room = e.parentElement.closest('div, section, td, li').clientWidth;
    const wide = e.scrollWidth || e.getBoundingClientRect().width;
    if (wide > room + 1) shrink.push([e, Math.max(room / wide, .4)]);
}
for (const [e, zoom] of shrink) e.style.zoom = zoom;
"""


class Page(NamedTuple):
    """A page of the book: its name without suffix, its title, the part that begins with it, and its sections."""

    name: str
    title: str
    part: str
    sections: list[tuple[str, str]]


class Printed(NamedTuple):
    """A page of the book as PDF, and where it begins, counted from 0 without title and contents."""

    page: Page
    reader: PdfReader
    first: int


def text_of(markup: str) -> str:
    """Return what a reader sees of some HTML."""
    shown = re.sub(r'<a class="headerlink.*?</a>', "", markup, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", shown)).split())


def read_page(folder: Path, name: str, part: str) -> Page:
    """Read title and sections of a built page."""
    article = (folder / f"{name}.html").read_text(encoding="utf-8").split('<article', 1)[1].split("</article>")[0]
    title = re.search(r"<h1[^>]*>(.*?)</h1>", article, re.S)
    sections = re.findall(r'<section id="([^"]+)">\s*(?:<span[^>]*></span>\s*)*<h2[^>]*>(.*?)</h2>', article, re.S)
    return Page(name, text_of(title[1]) if title else name, part, [(id_, text_of(head)) for id_, head in sections])


def book_pages(folder: Path, wanted: list[str]) -> list[Page]:
    """Return the pages of the book in their order, without the reference of the API."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found = [(toc["root"], "")]
    for part in toc["parts"]:
        names = [entry["file"] for entry in part["chapters"] if not entry["file"].startswith("api")]
        found += [(name, part["caption"] if name == names[0] else "") for name in names]
    unknown = set(wanted) - {name for name, _ in found}
    if unknown:
        raise SystemExit(f"make_pdf: no such page in _toc.yml: {', '.join(sorted(unknown))}")
    return [read_page(folder, name, part) for name, part in found if not wanted or name in wanted]


def linked_ids(folder: Path, pages: list[Page]) -> dict[str, set[str]]:
    """Return for each page the places that links of the book lead to, and its sections."""
    found = defaultdict(set, {page.name: {id_ for id_, _ in page.sections} for page in pages})
    for page in pages:
        here = folder / f"{page.name}.html"
        for link in re.findall(r'href="([^":]*?\.html)?#([^"]+)"', here.read_text(encoding="utf-8")):
            target = (here.parent / unquote(link[0])).resolve() if link[0] else here.resolve()
            if target.is_relative_to(folder):
                found[str(target.relative_to(folder).with_suffix(""))].add(unquote(html.unescape(link[1])))
    return found


# --- printing

@contextmanager
def browser() -> Iterator[Any]:
    """Start a browser that prints; selenium finds one where none is on the path."""
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--window-size={WIDTH_PX},1200"):
        options.add_argument(flag)
    here = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if here:
        options.binary_location = here
    try:
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    except WebDriverException as error:
        raise SystemExit("make_pdf: no browser to print with: install Chromium (or Chrome) and its chromedriver, "
                         f"then again ({error.msg})") from error
    try:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        yield driver
    finally:
        driver.quit()


def settle(driver: Any, address: str) -> None:
    """Wait until mathematics, charts and images stand; a page that does not settle is an error."""
    until = time.monotonic() + WAIT_S
    while not driver.execute_script(SETTLED):
        if time.monotonic() > until:
            raise SystemExit(f"make_pdf: {address} did not settle in {WAIT_S} s")
        time.sleep(0.05)


def show(driver: Any, height_px: int) -> None:
    """Give the page a window of the paper's width and this height, so that nothing waits to be scrolled to."""
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": WIDTH_PX, "height": height_px, "deviceScaleFactor": 0.1, "mobile": False})    # few pixels to paint


def print_page(driver: Any, address: str, ids: set[str]) -> PdfReader:
    """Return one page of the book as PDF, with a named place for each of these ids."""
    show(driver, 1200)
    driver.get(address)
    driver.execute_script(PREPARE, CSS.read_text(encoding="utf-8"), sorted(ids))
    show(driver, min(60_000, driver.execute_script("return document.documentElement.scrollHeight")))
    settle(driver, address)
    driver.execute_script(FIT)
    printed = driver.execute_cdp_cmd("Page.printToPDF", {
        "printBackground": True, "preferCSSPageSize": True, "scale": SCALE, "transferMode": "ReturnAsBase64"})
    return PdfReader(BytesIO(base64.b64decode(printed["data"])))


# --- title and contents

FRONT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Contents</title><style>
@page {{ size: A4; margin: 22mm 20mm; }}
body {{ font: 11px/1.5 system-ui, "DejaVu Sans", sans-serif; margin: 0; color: #222; }}
.title {{ break-after: page; padding-top: 70mm; }} .title h1 {{ font-size: 34px; line-height: 1.2; margin: 0 0 8mm; }}
.title p {{ font-size: 13px; }} h2 {{ font-size: 13px; margin: 5mm 0 1mm; break-after: avoid; }}
.line {{ display: flex; gap: 3mm; break-inside: avoid; }} .line a {{ color: inherit; text-decoration: none; flex: 1; }}
.line b {{ font-weight: 400; font-variant-numeric: tabular-nums; }}
</style><div class="title"><h1>{title}</h1><p>{author}</p><p>{stamp}</p><p>{licence}</p></div>
<h1>Contents</h1>{lines}</html>"""


def front_matter(book: list[Printed], folder: Path, said: dict[str, str]) -> str:
    """Return title page and contents as HTML."""
    lines = []
    for one in book:
        if one.page.part:
            lines.append(f"<h2>{html.escape(one.page.part)}</h2>")
        address = (folder / f"{one.page.name}.html").as_uri()
        name = html.escape(one.page.title)
        lines.append(f'<div class="line"><a href="{address}">{name}</a><b>{one.first + 1}</b></div>')
    dated = f"Version {said['version']}" + (f", {said['date']}" if said["date"] else "")
    licence = f"Text, code and figures: Apache License 2.0. {said['url']}"
    return FRONT.format(title=html.escape(said["title"]), author=html.escape(said["author"]), stamp=dated,
                        licence=licence, lines="\n".join(lines))


# --- joining

class Place(NamedTuple):
    """A place in the joined document."""

    number: int
    left: float
    top: float


def places(book: list[Printed], offset: int) -> dict[tuple[str, str], Place]:
    """Return where each page of the book begins, and where each named place of it lies."""
    found = {}
    for one in book:
        start = offset + one.first
        found[one.page.name, ""] = Place(start, 0, float(one.reader.pages[0].mediabox.top))
        for name, there in one.reader.named_destinations.items():
            number = one.reader.get_destination_page_number(there)
            if number is not None and number >= 0:
                found[one.page.name, unquote(str(name).lstrip("/"))] = Place(
                    start + number, float(there.left or 0), float(there.top or 0))
    return found


def leads_to(link: DictionaryObject, name: str, folder: Path) -> tuple[str, str] | str:
    """Return page and place that a link of a page leads to, or an address outside the book; "" if it leads nowhere."""
    action = link.get("/A", DictionaryObject()).get_object()
    inside = link.get("/Dest") or action.get("/D")
    if inside is not None:
        return name, unquote(str(inside).lstrip("/"))
    address, place = urldefrag(str(action.get("/URI", "")))
    if urlsplit(address).scheme != "file":
        return str(action.get("/URI", ""))
    target = Path(unquote(urlsplit(address).path))
    return (str(target.relative_to(folder).with_suffix("")), unquote(place)) if target.is_relative_to(folder) else ""


def mend_links(writer: PdfWriter, page: PageObject, name: str, folder: Path,
               found: dict[tuple[str, str], Place]) -> None:
    """Let links between pages of the book lead inside the document; a link to a file elsewhere is taken off."""
    kept = ArrayObject()
    for reference in page.get("/Annots") or ():
        link = reference.get_object()
        target = leads_to(link, name, folder)
        if isinstance(target, tuple):
            place = found.get(target) or found.get((target[0], ""))
            if place is None:
                continue
            link.pop("/A", None)
            there = writer.pages[place.number].indirect_reference
            link[NameObject("/Dest")] = ArrayObject([
                there, NameObject("/XYZ"), FloatObject(place.left), FloatObject(place.top), NullObject()])
        if target:
            kept.append(reference)
    page[NameObject("/Annots")] = kept


def stream(writer: PdfWriter, text: str) -> Any:
    """Return a content stream."""
    made = DecodedStreamObject()
    made.set_data(text.encode("cp1252", "replace"))
    return writer._add_object(made)


def stamp_page(writer: PdfWriter, page: PageObject, font: Any, left: str, right: str) -> None:
    """Write the chapter and the number below a page."""
    plain = left.translate({ord(sign): "\\" + sign for sign in "\\()"})
    width = float(page.mediabox.width)
    text = (f"Q q 0.35 g BT /FBook 8 Tf 1 0 0 1 48 28 Tm ({plain}) Tj ET "
            f"BT /FBook 8 Tf 1 0 0 1 {width - 48 - 4.45 * len(right):.1f} 28 Tm ({right}) Tj ET Q")
    old = page[NameObject("/Contents")]
    contents = list(old.get_object()) if isinstance(old.get_object(), ArrayObject) else [page.raw_get("/Contents")]
    page[NameObject("/Contents")] = ArrayObject([stream(writer, "q"), *contents, stream(writer, text)])
    fonts = page["/Resources"].get_object().setdefault(NameObject("/Font"), DictionaryObject()).get_object()
    fonts[NameObject("/FBook")] = font


def helvetica(writer: PdfWriter) -> Any:
    """Return a font that every reader of PDF has."""
    return writer._add_object(DictionaryObject({
        NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1"),
        NameObject("/BaseFont"): NameObject("/Helvetica"), NameObject("/Encoding"): NameObject("/WinAnsiEncoding")}))


def join(front: PdfReader, book: list[Printed], folder: Path, said: dict[str, str]) -> PdfWriter:
    """Return the whole document."""
    writer = PdfWriter()
    offset = len(front.pages)
    names = [""] * offset + [one.page.name for one in book for _ in one.reader.pages]
    for reader in (front, *(one.reader for one in book)):
        for page in reader.pages:
            writer.add_page(page)
    found = places(book, offset)
    font = helvetica(writer)
    titles = {one.page.name: one.page.title.partition(":")[0] for one in book}
    for number, (page, name) in enumerate(zip(writer.pages, names, strict=True)):
        mend_links(writer, page, name, folder, found)
        if number >= offset:
            stamp_page(writer, page, font, titles[name], str(number - offset + 1))
    bookmarks(writer, book, offset, found)
    writer.set_page_label(0, offset - 1, style=PageLabelStyle.LOWERCASE_ROMAN)
    writer.set_page_label(offset, len(names) - 1, style=PageLabelStyle.DECIMAL)
    writer.add_metadata({"/Title": said["title"], "/Author": said["author"], "/Subject": f"Version {said['version']}"})
    writer.page_mode = "/UseOutlines"
    return writer


def bookmarks(writer: PdfWriter, book: list[Printed], offset: int, found: dict[tuple[str, str], Place]) -> None:
    """List parts, chapters and their sections beside the document."""
    writer.add_outline_item(title="Contents", page_number=min(1, offset - 1))
    part = None
    for one in book:
        if one.page.part:
            part = writer.add_outline_item(title=one.page.part, page_number=offset + one.first, is_open=False)
        chapter = writer.add_outline_item(title=one.page.title, page_number=offset + one.first, parent=part,
                                          is_open=False)
        for id_, head in one.page.sections:
            if place := found.get((one.page.name, id_)):
                writer.add_outline_item(title=head, page_number=place.number, parent=chapter)


def print_pages(folder: Path, pages: list[Page], ids: dict[str, set[str]]) -> list[PdfReader]:
    """Print pages one after the other, in a browser of its own."""
    with browser() as driver:
        return [print_page(driver, (folder / f"{page.name}.html").as_uri(), ids[page.name]) for page in pages]


def make(folder: Path, wanted: list[str], out: Path, said: dict[str, str], jobs: int = 1) -> int:
    """Print the book with so many browsers; return its number of pages."""
    pages = book_pages(folder, wanted)
    ids = linked_ids(folder, pages)
    with ThreadPoolExecutor(jobs) as pool:
        dealt = list(pool.map(lambda job: print_pages(folder, pages[job::jobs], ids), range(jobs)))
    book: list[Printed] = []
    first = 0
    for number, page in enumerate(pages):
        reader = dealt[number % jobs][number // jobs]
        book.append(Printed(page, reader, first))
        first += len(reader.pages)
    with browser() as driver, tempfile.TemporaryDirectory() as scratch:
        contents = Path(scratch, "contents.html")
        contents.write_text(front_matter(book, folder, said), encoding="utf-8")
        writer = join(print_page(driver, contents.as_uri(), set()), book, folder, said)
    writer.compress_identical_objects()
    out.parent.mkdir(parents=True, exist_ok=True)
    writer.write(out)
    return len(writer.pages)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="*", help="names of _toc.yml; all if none is given")
    parser.add_argument("--html", type=Path, default=ROOT / "_build" / "html", help="the built book")
    parser.add_argument("--out", type=Path, default=ROOT / "_build" / "book.pdf")
    parser.add_argument("--jobs", type=int, default=2, help="browsers that print side by side")
    given = parser.parse_args()
    if not (given.html / "index.html").is_file():
        raise SystemExit(f"make_pdf: no built book in {given.html}: run `make html`")
    sys.path.insert(0, str(ROOT / "_ext"))
    from book_apparatus import citation
    started = time.monotonic()
    number = make(given.html.resolve(), given.pages, given.out, citation(ROOT), given.jobs)
    size_mib = given.out.stat().st_size / 2**20
    print(f"{given.out}: {number} pages, {size_mib:.1f} MiB, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
