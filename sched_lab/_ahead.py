"""A second process compiles at once with the first one (hand-written, as ``jit.py`` is).

A command that finds nothing compiled goes through its functions from the innermost to the outermost. The helper has the
list of them (``_ahead.json``, made by ``tools/list_compiled.py``) and goes through it from the other end; both keep what
they have made in numba's folder, and take from there what the other one has. The list may be old, and the helper may be
ended at any time: the command compiles what it does not find.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .lab import jit

LIST = Path(__file__).with_suffix(".json")
STAND_IN = {"sweep": "inflate", "far-run": "far"}    # commands that need what another one needs

# --- argument types as JSON


def spelled(kind: Any) -> Any:
    """A numba type as JSON: a scalar by its name, a literal as itself, and what has parts as a list with a tag.

    Raises
    ------
    ValueError : no function of ours has had such an argument so far
    """
    types: Any = import_module("numba.core.types")
    if isinstance(kind, types.Array) and kind.mutable and kind.aligned:
        return ["array", spelled(kind.dtype), kind.ndim, kind.layout]
    if isinstance(kind, types.BaseTuple):
        maker = getattr(kind, "instance_class", tuple)
        return ["tuple", f"{maker.__module__}:{maker.__qualname__}", *map(spelled, kind.types)]
    if isinstance(kind, types.List) and not kind.reflected:
        return ["list", spelled(kind.dtype)]
    if isinstance(kind, types.FunctionType):
        return ["function", spelled(kind.signature.return_type), *map(spelled, kind.signature.args)]
    if isinstance(kind, types.IntegerLiteral):
        return kind.literal_value
    if getattr(types, str(kind), None) is kind:
        return str(kind)
    raise ValueError(f"no spelling for {kind!r}")


def type_of(spelling: Any) -> Any:
    """The numba type of a spelling."""
    types: Any = import_module("numba.core.types")
    if isinstance(spelling, str):
        return getattr(types, spelling)
    if isinstance(spelling, int):
        return types.literal(spelling)
    tag, first, *rest = spelling
    if tag == "array":
        return types.Array(type_of(first), *rest)
    if tag == "list":
        return types.List(type_of(first))
    if tag == "function":
        return types.FunctionType(type_of(first)(*map(type_of, rest)))
    module, _, name = first.partition(":")
    maker = getattr(import_module(module), name)
    return types.BaseTuple.from_types(tuple(map(type_of, rest)), None if maker is tuple else maker)


# --- the list


def case_of(words: Sequence[str], cases: Sequence[str]) -> str:
    """Name of the case of a command line that has most in common with it; empty if there is none of the command."""
    command = STAND_IN.get(words[0], words[0]) if words else ""
    said = " ".join(words).replace("=", " ").split()
    of_command = [case for case in cases if case.split()[0] == command]
    fitting = [case for case in of_command if set(case.split()[1:]) <= {*said}]
    return max(fitting, key=len, default=of_command[0] if of_command else "")


def calls_of(case: str) -> Iterator[tuple[Any, str, tuple[Any, ...]]]:
    """Compiled functions of a case, the form of each that is needed, and the types of its arguments."""
    listed = json.loads(LIST.read_text(encoding="utf-8"))
    for number in listed["cases"][case]:
        module, name, form, kinds = listed["functions"][number]
        function = getattr(import_module(module), name, None)
        if function is not None:
            yield function, form, tuple(type_of(listed["types"][kind]) for kind in kinds)


def compile_all(case: str, parent: int) -> None:
    """Compile and keep the functions of a case, as long as the process that asked for it is there."""
    from numba.core.errors import NumbaError

    with jit.quiet():
        for function, form, types in calls_of(case):
            if os.getppid() != parent:
                return
            with contextlib.suppress(NumbaError, TypeError):    # the list is older than the function: the command tells
                jit.compile_form(function, form, types)


# --- the command's side


def is_empty() -> bool:
    """Whether nothing at all has been kept where numba keeps things first."""
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or jit.PACKAGE)
    return os.access(jit.PACKAGE, os.W_OK) and not any(folder.rglob("*.nbi"))


class Helper:
    """Starts the second process when the first compilation begins, or at once if nothing has been compiled yet."""

    def __init__(self, words: Sequence[str]) -> None:
        cases = json.loads(LIST.read_text(encoding="utf-8"))["cases"] if LIST.exists() else []
        self.case = case_of(words, list(cases))
        self.owner = os.getpid()
        self.process: subprocess.Popen[bytes] | None = None
        if not jit.is_interpreted and "--help" not in words and is_empty():
            self.start()

    def __call__(self, begins: bool) -> None:
        """Note that a compilation begins or ends."""
        if self.process is None and os.getpid() == self.owner:    # workers leave it to us
            self.start()

    def start(self) -> None:
        """Start it, if there is a list for the command."""
        if self.case:
            arguments = [sys.executable, "-m", __name__, self.case, str(self.owner)]
            nothing = subprocess.DEVNULL
            self.process = subprocess.Popen(arguments, stdin=nothing, stdout=nothing, stderr=nothing)

    def stop(self) -> None:
        """End it; what it has kept is whole."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def helped(words: Sequence[str]) -> Iterator[None]:
    """Compile with a second process what is missing, where there is a second processor.

    Parameters
    ----------
    words : of the command line
    """
    if processors() < 2:
        yield
        return
    helper = Helper(words)
    jit.compiling.append(helper)
    try:
        yield
    finally:
        jit.compiling.remove(helper)
        helper.stop()


if __name__ == "__main__":
    compile_all(sys.argv[1], int(sys.argv[2]))
