"""What results chapters print: tables of words, claims as a table, and the source of a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import getsource
from typing import TYPE_CHECKING, Any

import pandas as pd

from .reproduction import Claim, claims_frame

if TYPE_CHECKING:
    from IPython.display import Markdown


def markdown(text: str) -> Markdown:
    """Text for the page."""
    from IPython.display import Markdown

    page: Callable[[str], Markdown] = Markdown
    return page(text)


def text_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Markdown:
    """Rows of words as a table of the page."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *rows]
    return markdown("\n".join("| " + " | ".join(line) + " |" for line in lines))


def claim_table(claims: Iterable[Claim], read: Callable[[str], pd.DataFrame]) -> Markdown:
    """Claims as a table of the page: section, what the paper says, what we get, status, why."""
    decided = claims_frame(claims, read)
    rows = decided[["paper", "claim", "ours", "status", "why"]].to_numpy().tolist()
    return text_table(["section", "paper", "ours", "status", "why"], rows)


def source_of(*functions: Callable[..., Any]) -> Markdown:
    """Source of functions of a study, as it is."""
    return markdown("```python\n" + "\n\n".join(map(getsource, functions)) + "```")
