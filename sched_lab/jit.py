"""What no notebook can hold (hand-written: the one module not exported from a chapter).

``njit`` compiles when numba is there and changes nothing when it is not.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
PACKAGE = Path(__file__).resolve().parent
IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\.*)([\w.]*)(?:[ \t]+import[ \t]+(\([^)]*\)|[^\n]*))?", re.M)


@contextmanager
def heard() -> Iterator[None]:
    """Let Ctrl-C and requests to end through as what they are, also when they come while a compiled call begins or ends.

    Numba turns them into one SystemError or more, "returned a result with an exception set", each with its cause.
    """
    try:
        yield
    except SystemError as error:
        cause: BaseException = error
        while isinstance(cause, SystemError) and cause.__cause__ is not None:
            cause = cause.__cause__
        raise cause from None


@cache
def _imported_files(file: Path) -> tuple[Path, ...]:
    """Files of the package that a file of it imports, at the top or inside a function."""
    folder = file.relative_to(PACKAGE.parent).parent.parts
    found: set[Path] = set()
    for dots, module, names in IMPORT.findall(file.read_text(encoding="utf-8")):
        base = [*folder[:len(folder) - len(dots) + 1]] if dots else []
        start = [*base, *filter(None, module.split("."))]
        for name in ["", *re.findall(r"\w+", names)]:
            path = PACKAGE.parent.joinpath(*start, *filter(None, [name]))
            found |= {path.with_suffix(".py"), path / "__init__.py"}
    return tuple(sorted(path for path in found if PACKAGE in path.parents and path.is_file()))


@cache
def source_stamp(file: Path) -> str:
    """Hash of a source file and of all files of the package it imports, directly or not.

    A compiled function is stale when one of them changes: it may hold code of any of them.
    """
    files, todo = set(), [file.resolve(), PACKAGE / Path(__file__).name]
    while todo:
        path = todo.pop()
        if path not in files:
            files.add(path)
            todo += _imported_files(path)
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def njit(**options: Any) -> Callable[[F], F]:
    """``numba.njit`` with a safe on-disk cache when numba is installed, the identity otherwise.

    Numba's cache looks at the caller's own file only: after an edit of ``frag`` it would go on running the old
    ``frag`` inlined in a compiled caller of another module. Here a stamp covers the file and all it imports; it is
    made of contents, so a file written again unchanged costs nothing. A function of a notebook is compiled afresh
    in every kernel, because its callees may be cells.
    """
    try:
        import numba
    except ImportError:
        return lambda function: function

    def decorate(function: F) -> F:
        if not options.get("cache", True) or not function.__module__.startswith(f"{PACKAGE.name}."):
            plain: F = numba.njit(**options | {"cache": False})(function)
            return plain
        try:
            compiled: F = numba.njit(**options | {"cache": True})(function)
            if hasattr(compiled, "_cache"):                     # absent under NUMBA_DISABLE_JIT=1
                file = compiled._cache._cache_file              # private (numba 0.63-0.68): an index with one stamp
                file._source_stamp = source_stamp(Path(function.__code__.co_filename))
        except (AttributeError, RuntimeError):                  # other numba internals; no writable cache folder
            compiled = numba.njit(**options | {"cache": False})(function)
        return compiled

    return decorate


@lru_cache(maxsize=256)
def _compiled_for(function: Any, types: tuple[Any, ...]) -> Any:
    """One function compiled for one list of argument types, and closed to others: numba then takes it as a value."""
    compiled: Any = njit(cache=True)(function)
    compiled.compile(types)
    compiled.disable_compile()
    return compiled


def first_class(function: F, *arguments: Any) -> F:
    """``function`` (made by ``njit``) in a form that compiled code can be handed in a tuple and call.

    Functions of equal argument types then have equal type, so that one compiled engine serves all of them, and
    numba can keep it on disk. Without numba, the function itself.
    """
    python = getattr(function, "py_func", None)
    if python is None:
        return function
    import numba

    type_of: Any = numba.typeof
    compiled: F = _compiled_for(python, tuple(map(type_of, arguments)))
    return compiled


@contextmanager
def quiet() -> Iterator[None]:
    """Silence numba's notice that functions as values are an experimental feature."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "First-class function type feature is experimental")
        yield
