"""Stored results, and the data and reference results of this machine."""
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from sched_lab.lab.frames import read_frame
from sched_lab.traces import find_data, find_reference
from studies.reproduction import Workplace

RESULTS = Path(__file__).parents[2] / "data" / "results"


@cache
def stored(path: str) -> pd.DataFrame:
    return read_frame(RESULTS / path)


def place_with(folder: Path, needs: tuple[str, ...]) -> Workplace:
    """Workplace of which all needs are on this machine; without them the test is skipped."""

    def find(name):
        return find_data(name) or find_reference(name)

    missing = [need for need in needs if find(need) is None]
    if missing:
        pytest.skip(f"{missing[0]} is not here (sched-lab fetch openb)")
    return Workplace(folder / "cells", find=find)
