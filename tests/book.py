"""What tests of the book share: its chapters, each read once, and where its built pages are."""
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
CHAPTERS = sorted((ROOT / "nbs").glob("[0-9]*.ipynb"))
HTML = Path(os.environ.get("BOOK_HTML", ROOT / "_build" / "html")).resolve()
built = pytest.mark.skipif(not (HTML / "index.html").exists(), reason=f"no built book in {HTML.name}: run `make html`")
PAGES = sorted(str(path.relative_to(HTML)) for path in HTML.rglob("*.html") if "_static" not in path.parts)


@cache
def page(name: str) -> str:
    """Return the text of a built page."""
    return (HTML / name).read_text(encoding="utf-8")


def article(name: str) -> str:
    """Return what stands between sidebar and footer of a built page."""
    return page(name).split('<article class="bd-article"')[1].split("</article>")[0]


@cache
def cells(chapter: Path) -> list[dict[str, Any]]:
    """Return the cells of a chapter, the source of each as one text."""
    read = json.loads(chapter.read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in read]


def text_of(chapter: Path, kind: str) -> str:
    """Return all cells of a kind, "markdown" or "code", as one text."""
    return "\n".join(cell["source"] for cell in cells(chapter) if cell["cell_type"] == kind)


def charts_of(chapter: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the cell and the specification of each chart that a chapter stores."""
    return [(cell["id"], spec) for cell in cells(chapter) for output in cell.get("outputs", [])
            for kind, spec in output.get("data", {}).items() if "vegalite" in kind]
