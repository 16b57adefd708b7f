"""``njit`` compiles when numba is there and changes nothing when it is not.
"""

# A module, written by hand.

from __future__ import annotations

import gc
import hashlib
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache, cached_property, lru_cache, update_wrapper
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from threading import current_thread, main_thread
from types import MethodType
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
Record = TypeVar("Record", bound=type)
PACKAGE = Path(__file__).resolve().parents[1]
STUDIES = "studies"         # beside the package in a checkout: what computes the results chapters
BESIDE = (STUDIES, "tools")     # folders of a checkout whose compiled code is kept, too
IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+(\.*)([\w.]*)(?:[ \t]+import[ \t]+(\([^)]*\)|[^\n]*))?", re.M)


class Terminated(SystemExit):
    """This process was asked to end, by SIGTERM."""


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


def file_of(function: Callable[..., Any]) -> Path:
    """File in which a function is defined."""
    return Path(function.__code__.co_filename).resolve()


def is_ours(file: Path) -> bool:
    """Whether a file belongs to the package, or to the folders beside it in a checkout."""
    return not {PACKAGE, *(PACKAGE.parent / name for name in BESIDE)}.isdisjoint(file.parents)


@cache
def _imported_files(file: Path) -> tuple[Path, ...]:
    """Files of ours that one of them imports, at the top or inside a function."""
    folder = file.relative_to(PACKAGE.parent).parent.parts
    ours = {PACKAGE.name, *BESIDE}
    found: set[str] = set()     # plain texts: a command asks for a thousand, most of which are names of functions
    for dots, module, names in IMPORT.findall(file.read_text(encoding="utf-8")):
        base = folder[:len(folder) - len(dots) + 1] if dots else ()
        start = (*base, *filter(None, module.split(".")))
        if start and start[0] in ours:
            below = "/".join(start)
            found |= {below, *(f"{below}/{name}" for name in re.findall(r"\w+", names))}
    root = str(PACKAGE.parent)
    paths = (f"{root}/{name}{end}" for name in found for end in (".py", "/__init__.py"))
    return tuple(sorted(Path(path) for path in paths if os.path.isfile(path)))


@cache
def source_stamp(file: Path) -> str:
    """Hash of a source file and of all files of ours that it imports, directly or not.

    A compiled function is stale when one of them changes: it may hold code of any of them.
    """
    files, todo = set(), [file.resolve(), Path(__file__).resolve()]
    while todo:
        path = todo.pop()
        if path not in files:
            files.add(path)
            todo += _imported_files(path)
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.relative_to(PACKAGE.parent)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _folders() -> Iterator[Path]:
    """Where compiled code may be kept, the best place first."""
    if said := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(said)
    yield PACKAGE / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", PACKAGE.name)


@cache
def kept_in() -> Path | None:
    """Folder in which compiled code is kept; None if there is none that can be written."""
    for folder in _folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder):
                return folder
    return None


OLD_S = 86_400.0    # after which code made of other sources is removed


@cache
def _folder_of(file: Path) -> str:
    """Folder for what is compiled of a file: another one when the file changes, or one that it imports."""
    base = kept_in()
    assert base is not None
    name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    folder = base / f"{name}-{source_stamp(file)[:16]}"
    for other in base.glob(f"{name}-*") if base.parent == PACKAGE and not folder.is_dir() else ():
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > OLD_S:
                shutil.rmtree(other)
    return str(folder)


def _is_kept(function: Any, options: dict[str, Any]) -> bool:
    """Whether what is compiled of a function is kept on disk: one of ours, unless it is told not to be."""
    return bool(options.get("cache", True)) and is_ours(file_of(function)) and kept_in() is not None


def _compiled(function: Any, options: dict[str, Any], form: str, *signature: Any) -> Any:
    """A function of ours in compiled form, kept on disk; another one compiled afresh in every process."""
    import numba

    _listen()
    config: Any = numba.config
    plain = config.CACHE_DIR
    is_kept = _is_kept(function, options)
    config.CACHE_DIR = f"{_folder_of(file_of(function))}/{form}" if is_kept else plain
    try:
        return numba.njit(*signature, **options | {"cache": is_kept})(function)
    finally:
        config.CACHE_DIR = plain


_to_refer: list[type] = []      # records and functions that numba has not heard of yet
_to_offer: list[Compiled] = []


def by_reference(record: Record) -> Record:
    """Let compiled code take a record, a `NamedTuple`, as one pointer and not as all that it holds, one by one.

    It may look at fields by their names, and no more: it cannot make such a record, take it apart, or return it. A
    call that hands on fifty arrays costs more than most of what is called, and takes three times as long to compile.
    """
    _to_refer.append(record)
    return record


def _refer() -> None:
    """Tell numba of the records that it has not heard of."""
    if _to_refer:
        from .references import refer

        while _to_refer:
            refer(_to_refer.pop())


def _offer(function: Compiled) -> None:
    """Let compiled code call a function of ours (numba's documentation, "High-level extension API").

    Such a form takes plain numbers where literal ones are handed to it, and has no entry from Python.
    """
    import numba
    from numba.extending import overload

    config: Any = numba.config
    is_kept = _is_kept(function.py_func, function.options)
    options: Any = {name: value for name, value in function.options.items() if name != "inline"} | {"cache": is_kept}

    @overload(function, jit_options=options, strict=False)
    def form(*arguments: Any, **keywords: Any) -> Any:
        if is_kept:     # numba is about to ask where; `_listen` sets it back
            config.CACHE_DIR = f"{_folder_of(file_of(function.py_func))}/from compiled code"
        return function.py_func


runs_interpreted: ContextVar[bool] = ContextVar("runs_interpreted", default=False)


@contextmanager
def interpreted(is_small: bool) -> Iterator[None]:
    """Let Python itself run compiled functions that the block calls, if there is less to do than to compile or load them.

    The results are the same. Other threads go on with compiled code. `SCHED_LAB_COMPILE` says always or never. Within a
    block that is interpreted all is.
    """
    said = os.environ.get("SCHED_LAB_COMPILE", "")
    is_so = said == "never" or (said != "always" and is_small)
    token = runs_interpreted.set(is_so or runs_interpreted.get())
    try:
        yield
    finally:
        runs_interpreted.reset(token)


class Compiled:
    """A compiled function that lets compiled callers have another form of it, without an entry from Python.

    That entry takes arguments apart and puts results together; to compile it took as long as the function itself, and
    most functions are called from compiled code only. A function that compiled code calls is compiled a second time if
    Python calls it too. With one form alone a first `sched-lab inflate` takes 40 s of CPU in place of 20.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func = function
        self.options = options
        _to_offer.append(self)

    @cached_property
    def outer(self) -> Any:
        """The form that Python calls."""
        return _compiled(self.py_func, self.options, "from Python")

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if runs_interpreted.get():
            return self.py_func(*arguments, **keywords)
        _refer()
        return self.outer(*arguments, **keywords)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A routine to whoever asks, such as the maker of the reference; bound to an instance as a function is."""
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.outer, name)

    def __reduce__(self) -> str:
        return self.py_func.__qualname__


class Turns:
    """Lets one process at a time make the code of a function, and keep it.

    Numba numbers the files of a function: two processes that keep one each at once could write into one file, and the
    index would name it for the other. Each function has a byte of one file, which its process locks until the code is
    kept; functions call each other in one direction only, so nobody waits in a circle.
    """

    longest_s = 600.0   # a process that is stopped does not hold up the others for ever

    def __init__(self) -> None:
        self.depth = 0
        self.file: Any = None
        self.made: list[int] = []

    def __call__(self, begins: bool) -> None:
        """Note that a thread of this process asks for the compiler, or is done with it: what was made is kept then."""
        self.depth += 1 if begins else -1
        if not begins and self.file is not None:
            from fcntl import LOCK_UN, lockf

            while self.made:
                lockf(self.file, LOCK_UN, 1, self.made.pop())
            if not self.depth:
                self.file.close()
                self.file = None

    def byte_of(self, function: Callable[..., Any]) -> int:
        """Byte of a function."""
        name = f"{file_of(function)} {function.__qualname__}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:7])

    def take(self, function: Callable[..., Any]) -> None:
        """Wait until no other process makes the code of a function."""
        folder = kept_in()
        if folder is None or not is_ours(file_of(function)):
            return
        with suppress(ImportError, OSError):
            from fcntl import LOCK_EX, LOCK_NB, lockf

            if self.file is None:
                self.file = open(folder / "sched_lab.lock", "ab")
            until_s = time.monotonic() + self.longest_s
            while time.monotonic() < until_s:
                try:
                    lockf(self.file, LOCK_EX | LOCK_NB, 1, self.byte_of(function))
                    return
                except (BlockingIOError, PermissionError):
                    time.sleep(0.02)

    def finish(self, function: Callable[..., Any]) -> None:
        """Note that the code of a function is made, and about to be kept."""
        if self.file is not None:
            self.made.append(self.byte_of(function))


def is_watched() -> bool:
    """Whether somebody sees standard error as it comes: on a terminal or in JupyterLab, and not in a worker."""
    from multiprocessing import parent_process

    return parent_process() is None and (sys.stderr.isatty() or "JPY_SESSION_NAME" in os.environ)


class Compiling:
    """Says once that functions are compiled, when that takes noticeable time.

    A command always says it; elsewhere it is said only where somebody watches.
    """

    blink_s = 0.3

    def __init__(self) -> None:
        self.is_command = False
        self.is_said = False
        self.owner = os.getpid()
        self.depth = 0
        self.begun_s = 0.0
        self.done_s = 0.0
        self.plain_thresholds = gc.get_threshold()
        self.held_back: BaseException | None = None

    def interrupt(self, error: BaseException) -> None:
        """Raise what a signal asks for, but not while a function compiles: then, as soon as it or one within it has.

        A callback of the compiler would print it and go on.
        """
        if self.depth:
            self.held_back = error
        else:
            raise error

    def __call__(self, begins: bool) -> None:
        """Note that a compilation begins, perhaps within another one, or ends."""
        if os.getpid() != self.owner:
            return
        if begins and not self.depth:
            self.begun_s = time.perf_counter()
            self.plain_thresholds = gc.get_threshold()
            gc.set_threshold(50_000, 20, 100)   # a tenth of the time went into looking for garbage where there is none
        self.depth += 1 if begins else -1
        spent_s = self.done_s + time.perf_counter() - self.begun_s
        if not self.is_said and spent_s > self.blink_s and (self.is_command or is_watched()):
            print("sched-lab: compiling once, which can take a minute", file=sys.stderr, flush=True)
            self.is_said = True
        if not self.depth:
            self.done_s = spent_s
            gc.set_threshold(*self.plain_thresholds)
        if self.held_back is not None and current_thread() is main_thread():
            error, self.held_back = self.held_back, None
            raise error


compiling_told = Compiling()


@cache
def _listen() -> None:
    """Hear of numba's events (its documentation, "Event API")."""
    import numba
    from numba.core import event

    turns = Turns()
    config: Any = numba.config

    class Compilation(event.Listener):
        def __init__(self) -> None:
            self.levels: list[int] = []

        def on_start(self, event: Any) -> None:
            while _to_offer:
                _offer(_to_offer.pop())
            compiling_told(True)
            turns.take(event.data["dispatcher"].py_func)
            self.levels.append(config.OPT)
            if len(self.levels) > 1:    # LLVM optimises it once more, in full, as a part of the one that is called
                config.OPT = min(config.OPT, 1)

        def on_end(self, event: Any) -> None:
            config.OPT = self.levels.pop()
            turns.finish(event.data["dispatcher"].py_func)
            compiling_told(False)

    class Compiler(event.Listener):
        plain: Any = None

        def on_start(self, event: Any) -> None:
            if not turns.depth:
                self.plain = config.CACHE_DIR
            turns(True)

        def on_end(self, event: Any) -> None:
            turns(False)
            if not turns.depth:
                config.CACHE_DIR = self.plain

    if compiling_told.is_command:   # numba looks for SciPy's matrix products, which no function of ours asks it for
        from .._extras import without

        with without("scipy.linalg.cython_blas"):
            import_module("numba.np.arraymath")
    register: Any = event.register
    register("numba:compile", Compilation())
    register("numba:compiler_lock", Compiler())


@cache
def _can_compile() -> bool:
    """Whether numba is there, and nobody has said that it is not wanted."""
    is_off = os.environ.get("SCHED_LAB_COMPILE") == "never" or os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
    return not is_off and find_spec("numba") is not None


def njit(**options: Any) -> Callable[[F], F]:
    """``numba.njit`` with a safe on-disk cache when numba is installed, the identity otherwise.

    Numba is imported when a function is first compiled or loaded: it takes longer than a small problem.

    Numba's cache looks at the caller's own file only: after an edit of ``frag`` it would go on running the old
    ``frag`` inlined in a compiled caller of another module. Here the folder has a stamp of the file and all it imports. A
    function of a notebook is compiled afresh in every kernel, because its callees may be cells.

    Nothing is checked for a division by zero: there is none, and numba compiles what functions of one error model call
    once for all of them.
    """
    if not _can_compile():
        return lambda function: function

    def compiled(function: F) -> F:
        # it is called as the function is
        return cast(F, Compiled(function, {"no_cfunc_wrapper": True, "error_model": "numpy"} | options))

    return compiled


@lru_cache(maxsize=256)
def _compiled_for(function: Any, types: tuple[Any, ...]) -> Any:
    """One function compiled for one list of argument types, and closed to others: numba then takes it as a value."""
    return _compiled(function, {"error_model": "numpy", "no_cpython_wrapper": True}, "as a value", types)


def first_class(function: F, *arguments: Any) -> F:
    """``function`` (made by ``njit``) in a form that compiled code can be handed in a tuple and call, and Python cannot.

    Functions of equal argument types then have equal type, so that one compiled engine serves all of them, and
    numba can keep it on disk. Without numba, the function itself.
    """
    python = getattr(function, "py_func", None)
    if python is None or runs_interpreted.get():
        return function
    import numba

    _refer()
    type_of: Any = numba.typeof
    compiled: F = _compiled_for(python, tuple(map(type_of, arguments)))
    return compiled


@contextmanager
def quiet() -> Iterator[None]:
    """Silence numba's notice that functions as values are an experimental feature."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "First-class function type feature is experimental")
        yield
