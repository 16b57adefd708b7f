"""Waiting on a machine that may be busy: for what happens, never for a time that should suffice."""
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
HANG_S = 600.0  # nothing that a test waits for takes as long, eight busy processes beside it or not


def until(look: Callable[[], Found], what: str = "it did not happen", limit_s: float = HANG_S) -> Found:
    """Return what `look` finds, as soon as it is true.

    Raises
    ------
    AssertionError : it is not true within the limit
    """
    end_s = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < end_s, f"{what} within {limit_s:g} s"
        time.sleep(0.01)
    return found
