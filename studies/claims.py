"""Claims as rows of a table: what the paper says, our numbers in a sentence, and their comparison.

Claims of one section share their numbers, which one function measures on the stored frames.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .reproduction import Claim

Table = Any  # a frame or a column; what `loc` gives is beyond the types that pandas declares
Numbers = Any  # measured numbers, by name
Measure = Callable[..., dict[str, Any]]


class Each(tuple[float, ...]):
    """Numbers that a sentence lists one after the other: `{each:.2f}`."""

    def __format__(self, form: str) -> str:
        return ", ".join(format(value, form) for value in self)


def graded(holds: bool | np.bool_, partly: bool | np.bool_ = False) -> str:
    """Status of a claim that holds, holds for some of what it names, or does not hold."""
    return "reproduced" if holds else "direction only" if partly else "not reproduced"


def held(holds: bool | np.bool_) -> str:
    """Status of a statement of this book."""
    return "holds" if holds else "fails"


class Row(NamedTuple):
    """A claim.

    Parameters
    ----------
    paper, text : its number or section, and what it says
    ours : the sentence that says what we get, with names of numbers in braces
    status : of the numbers, one of `STATUSES`
    why : the reason, where the paper and we differ; it may name numbers, too
    """

    paper: str
    text: str
    ours: str
    status: Callable[[Numbers], str]
    why: str = ""


class Measured:
    """Numbers of frames, measured once as long as the frames are the same objects.

    Parameters
    ----------
    measure : called with frames; returns numbers by name
    """

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.frames: tuple[pd.DataFrame, ...] | None = None
        self.numbers: dict[str, Any] = {}

    def __call__(self, *frames: pd.DataFrame) -> dict[str, Any]:
        if self.frames is None or [*map(id, frames)] != [*map(id, self.frames)]:
            self.numbers, self.frames = self.measure(*frames), frames
        return self.numbers


def answer(row: Row, measured: Measured, *frames: pd.DataFrame) -> tuple[str, ...]:
    """What we get, the status, and why, by the numbers of frames."""
    numbers = measured(*frames)
    return (row.ours.format_map(numbers), row.status(SimpleNamespace(**numbers)),
            row.why.format_map(numbers))


def section(measure: Measure, frames: tuple[str, ...], *rows: Row) -> tuple[Claim, ...]:
    """Claims that the numbers of the same frames decide.

    Parameters
    ----------
    measure : called with the frames; returns numbers by name
    frames : paths below data/results
    rows : the claims
    """
    measured = Measured(measure)
    return tuple(Claim(row.text, row.paper, frames, partial(answer, row, measured))
                 for row in rows)


def said(paper: str, text: str, ours: str, status: str, why: str) -> Claim:
    """Claim that no frame decides.

    Parameters
    ----------
    paper, text : its number or section, and what it says
    ours, status, why : the answer
    """
    return Claim(text, paper, (), lambda: (ours, status, why))
