"""Tables of claims: one vocabulary of statuses, in every chapter, in chapter 00 and in CONTRIBUTING."""
import re

import pandas as pd

from studies.reproduction import STATUSES
from tests.book import CHAPTERS, ROOT, cells, text_of

CELL = re.compile(r"(?<!\\)\|")


def markdown_statuses(text):
    """Yield the column `status` of the tables of a text."""
    column = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in CELL.split(line.strip().strip("|"))] if line.startswith("|") else []
        if not cells:
            column = None
        elif column is None:
            column = cells.index("status") if "status" in cells[1:] else -1
        elif column >= 0 and not set("".join(cells)) <= set("-: "):
            yield cells[column]


def frame_statuses(html):
    """Yield the column `status` of a frame; frames that have several rows of headings are passed over."""
    head, _, body = html.partition("</thead>")
    names = re.findall("<th[^>]*>(.*?)</th>", head.partition("</tr>")[0])
    if "status" in names and not STATUSES.keys() & {*names}:  # or it is the name of all columns
        from_the_end = names.index("status") - len(names)
        for row in body.split("</tr>"):
            if values := re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row, re.S):
                yield values[from_the_end]


def statuses(chapter):
    """Yield each status that a chapter prints, in text, in a rendered table or in a frame."""
    for cell in cells(chapter):
        if cell["cell_type"] == "markdown":
            yield from markdown_statuses(cell["source"])
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            yield from markdown_statuses("".join(data.get("text/markdown", "")))
            yield from frame_statuses("".join(data.get("text/html", "")))


def test_every_status_of_a_chapter_is_in_the_vocabulary():
    found = [(chapter.stem, status) for chapter in CHAPTERS for status in statuses(chapter)]
    assert len(found) > 250 and [(name, status) for name, status in found if status not in STATUSES] == []


def test_statuses_are_read_from_text_and_from_frames():
    table = "| claim | status | why |\n|---|---|---|\n| it is so | mostly | |\n| a \\| b | holds | |"
    assert list(markdown_statuses(f"text\n\n{table}\n\nmore\n")) == ["mostly", "holds"]
    assert list(markdown_statuses("| node | why |\n|---|---|\n| a | b |")) == []
    frame = pd.DataFrame({"claim": ["it is so"], "status": ["mostly"], "why": [""]})
    assert list(frame_statuses(frame.to_html())) == ["mostly"]


def test_chapter_00_and_contributing_name_the_same_words():
    words = text_of(CHAPTERS[0], "markdown")
    assert dict(re.findall(r"^\| \*([a-z ]+)\* \| ([^|]*) \|$", words, re.M)) == STATUSES
    rule = " ".join((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split())
    named = rule.partition("one of `STATUSES`")[2].partition("What else")[0]
    assert [word for word in STATUSES if not re.search(rf"\b{word}\b", named)] == []
