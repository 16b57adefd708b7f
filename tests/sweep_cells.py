"""Cells of the sweeps that tests compute in workers: each imports this module, and should not wait for a test tool."""
from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sched_lab.lab import sweeps
from tests.waiting import HANG_S

MARKS: list[tuple[str, int]] = []  # cells computed in this process


def walk(policy: str, seed: int) -> pd.DataFrame:
    """Three steps of a random walk: a text, a whole number, a float, a truth value."""
    MARKS.append((policy, seed))
    steps = np.random.default_rng(seed).normal(size=3) * (1 if policy == "right" else -1)
    return pd.DataFrame({"step": range(3), "place": steps.cumsum(), "ok": steps > 0, "note": ["a,b", "", policy]})


def bad_at_right_1(policy: str, seed: int) -> pd.DataFrame:
    if (policy, seed) == ("right", 1):
        raise ZeroDivisionError("no way\nto go")
    return walk(policy, seed)


def late_when_first(policy: str, seed: int) -> pd.DataFrame:
    time.sleep(0.5 if (policy, seed) == ("left", 0) else 0)
    return walk(policy, seed)


def slow(n: int) -> dict[str, float]:
    """Take a tenth of a second, and leave a mark if somebody counts who computes what."""
    if "SWEEP_MARKS" in os.environ:
        Path(os.environ["SWEEP_MARKS"], f"{n}-{time.time_ns()}").touch()
    time.sleep(0.1)
    return {"x": n / 7}


def dies(policy: str, seed: int, how: str) -> dict[str, float]:
    if (policy, seed) == ("left", 2):
        if how == "halfway through its result":
            sweeps.open = Half  # type: ignore[attr-defined]
        if how == "and leaves a child":
            if child := os.fork():
                Path(os.environ["CHILD"]).write_text(str(child))
            else:
                time.sleep(HANG_S)  # holds the pipes of its parent open
                os._exit(0)
            os._exit(3)
    return {"x": 0.5}


class Half(io.FileIO):
    """A file of which half is written when its process dies."""

    def write(self, data: Any) -> int:
        super().write(data[:len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        return 0
