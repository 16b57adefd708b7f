"""Packages that the base install does without, and the extras that bring them (hand-written: importing it costs nothing).

Whoever in this package imports one that is absent hears which extra has it; other packages that try one hear what they
always do.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any, cast

# package, as it is imported -> extra of settings.ini
EXTRA_OF = {
    "altair": "charts", "vl_convert": "charts",
    "scipy": "solvers",
    "pooch": "traces", "pyarrow": "parquet",
    "kubernetes": "kubernetes", "starlette": "kubernetes", "uvicorn": "kubernetes",
    "httptools": "kubernetes", "uvloop": "kubernetes", "orjson": "kubernetes",
    "prometheus_client": "kubernetes",
    "anywidget": "widgets", "cupy": "gpu", "array_api_compat": "gpu", "pynvml": "nvml",
}


def _is_asked_by_us() -> bool:
    """Whether the import in progress stands in this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame and (frame.f_globals.get("__name__") == __name__
                     or str(frame.f_globals.get("__name__")).partition(".")[0] == "importlib"):
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("sched_lab.")


def _refusal(package: str, extra: str = "") -> Exception:
    """The error that names the extra; its module is loaded for it."""
    refused: Exception = import_module(f"{__package__}.lab.frames").MissingPackage(package, extra or EXTRA_OF[package])
    return refused


class _Refuser:
    """Asked for a module when nobody else has it."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        """Refuse a package of the table, by its extra."""
        if name in EXTRA_OF and _is_asked_by_us():
            raise _refusal(name)
        return None


def name_extras() -> None:
    """Let an import of an absent package name its extra."""
    if _Refuser not in sys.meta_path:
        sys.meta_path.append(_Refuser)


def need(*packages: str, extra: str = "") -> None:
    """Refuse now what a later import would refuse; nothing is loaded. An `extra` may bring all of them.

    Raises
    ------
    MissingPackage : one is not installed
    """
    for package in packages:
        try:
            found = find_spec(package)
        except ModuleNotFoundError:  # refused by the table, which names one extra for each package
            found = None
        if found is None:
            raise _refusal(package, extra)


@contextmanager
def without(module: str) -> Iterator[None]:
    """Let the imports of a block go without a module that they only try, and that takes long to be imported."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = cast(Any, None)  # "not found", to whoever imports it
    try:
        yield
    finally:
        del sys.modules[module]
