"""A grid of parameters and seeds becomes one frame, the same for any number of workers, and a killed sweep goes on where it stood."""

# A module, written by hand.

from __future__ import annotations

import ctypes
import itertools
import math
import multiprocessing
import os
import pickle
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import product
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .. import __version__
from . import jit
from .frames import (
    InputError,
    SchedLabError,
    ensure_writable,
    input_key,
    read_frame,
    read_sidecar,
    sidecar_path,
    write_frame,
)

__all__ = ['grid', 'count_cores', 'SweepError', 'Sweep', 'sweep']

Cell = dict[str, Any]
Function = Callable[..., Any]


def grid(**axes: Any) -> list[Cell]:
    """Every combination of the axes' values, the last axis fastest.

    Parameters
    ----------
    axes : the values of each parameter; a single text, number or truth value is an axis of one

    Raises
    ------
    InputError : an axis has no value
    """
    listed = {name: list(axis) if isinstance(axis, Iterable) and not isinstance(axis, str) else [axis]
              for name, axis in axes.items()}
    if empty := next((name for name, axis in listed.items() if not axis), None):
        raise InputError("this axis of the grid is empty", column=empty, mend="give at least one value")
    return [dict(zip(listed, values, strict=True)) for values in product(*listed.values())]


def name_cell(cell: Mapping[str, Any]) -> str:
    """A cell as messages show it: `cell policy=fgd, seed=3`."""
    return "cell " + ", ".join(f"{name}={value}" for name, value in cell.items())


_UNWRITABLE = re.compile("[\\r\\0\\ud800-\\udfff]")  # what CSV in UTF-8 does not give back


def is_plain(value: Any) -> bool:
    """Whether a parameter can be a value in a column."""
    if type(value) is str:
        return not _UNWRITABLE.search(value)
    return type(value) is bool or (type(value) is int and -(2**63) <= value < 2**63) or (
        type(value) is float and math.isfinite(value))


def _plain_cell(cell: Mapping[str, Any], names: list[str]) -> Cell:
    """The same cell in Python's own types, its parameters in the order of `names`."""
    error = partial(
        InputError,
        mend="give every cell the same parameters, as texts, finite numbers or truth values")
    if sorted(map(str, cell)) != sorted(names):
        raise error(f"{name_cell(cell)}: the first cell has the parameters {', '.join(names)}")
    plain = {
        name: cell[name].item() if isinstance(cell[name], np.generic) else cell[name]
        for name in names}
    for name, value in plain.items():
        if not is_plain(value):
            raise error(f"{name_cell(cell)}: {name} cannot be written as a value in a column",
                        column=name, value=value)
    return plain


def checked_cells(cells: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Cells in plain types, all different, with columns of one kind each."""
    given = list(cells)
    if not given:
        raise InputError("there is no cell to compute", mend="give at least one")
    names = [str(name) for name in given[0]]
    plain = [_plain_cell(cell, names) for cell in given]
    seen: dict[tuple[Any, ...], int] = {}
    for number, cell in enumerate(plain):
        if (first := seen.setdefault(tuple(cell.values()), number)) != number:
            raise InputError(
                f"{name_cell(cell)}: it is there twice, as cells {first + 1} and {number + 1}",
                mend="give each cell once")
        for name, value in cell.items():
            if isinstance(value, str | bool) | isinstance(plain[0][name], str | bool) and (
                    type(value) is not type(plain[0][name])):
                raise InputError(
                    f"{name_cell(cell)}: {name} is {value!r}, "
                    f"but {plain[0][name]!r} in the first cell",
                    column=name, value=value, mend="give texts only, or numbers only")
    return plain


def _kind(column: pd.Series[Any]) -> str:
    """What a column holds: texts, numbers or truth values."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return "truth values" if column.dtype.kind == "b" else "numbers"
    if all(isinstance(value, str)
           for value in column.dropna()) and column.dtype in ("str", "object"):
        return "texts"
    raise TypeError(
        f"the column {column.name} holds {column.dtype}; return texts, numbers or truth values")


_BAD_TEXT = ("a text holds a carriage return, a zero byte or half a character; "
             "leave them out")


def _frame_of(result: Any) -> pd.DataFrame:
    """A frame, or a mapping for one row, as a frame with rows counted from 0."""
    if not isinstance(result, pd.DataFrame | Mapping):
        raise TypeError(
            f"the result is a {type(result).__name__}; return a frame, or a mapping for one row")
    if isinstance(result, pd.DataFrame):
        return result.reset_index(drop=True)
    try:
        return pd.DataFrame([result])
    except UnicodeEncodeError:  # pandas keeps texts in Arrow where it finds it
        raise ValueError(_BAD_TEXT) from None


def tidy(result: Any, cell: Cell) -> pd.DataFrame:
    """The result of one cell as the frame that its file will give back."""
    frame = _frame_of(result)
    names = list(frame.columns)
    if not names or not all(isinstance(name, str)
                            for name in names) or len(set(names)) < len(names):
        raise ValueError(f"the columns are {names}; give each a name of its own")
    if both := [name for name in names if name in cell]:
        raise ValueError(
            f"the column {both[0]} is a parameter too; leave it out, the sweep adds it")
    texts = [name for name in names if _kind(frame[name]) == "texts"]
    if any(_UNWRITABLE.search(value) for name in texts for value in frame[name].dropna()):
        raise ValueError(_BAD_TEXT)
    return frame.assign(**{name: frame[name].astype("str").fillna("") for name in texts})


class Outcome(NamedTuple):
    """What became of one cell: a frame, or else what went wrong."""

    number: int
    frame: Any
    seconds: float = 0.0
    problem: str = ""
    trace: str = ""


def failed_outcome(trouble: BaseException, number: int, *_: Any,
                   seconds: float = 0.0) -> tuple[Any, ...]:
    """Outcome of a cell in which something was raised."""
    problem = " ".join(f"{type(trouble).__name__}: {trouble}".split())
    return number, None, seconds, problem, "".join(traceback.format_exception(trouble))


def compute_cell(function: Function, number: int, cell: Cell) -> tuple[Any, ...]:
    """Outcome of one cell, as a plain tuple; this is all that a worker runs."""
    start = time.perf_counter()
    try:
        with jit.heard():
            result = function(**cell)
        return number, tidy(result, cell), time.perf_counter() - start, "", ""
    except jit.Terminated:
        raise
    except (Exception, SystemExit) as trouble:
        return failed_outcome(trouble, number, seconds=time.perf_counter() - start)


Job = Callable[[int, Any], tuple[Any, ...]]  # a number and what to compute -> an `Outcome`
Numbered = Iterable[tuple[int, Any]]
Outcomes = Generator[Outcome, None, None]


def _here(job: Job, cells: Numbered) -> Outcomes:
    """One cell after the other in this process."""
    for number, cell in cells:
        yield Outcome(*job(number, cell))


class _Sent:
    """A function on its way to another process: by name from a module, else by value."""

    def __init__(self, function: Callable[..., Any]) -> None:
        import cloudpickle

        self.packed: bytes = cloudpickle.dumps(function)

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        return cloudpickle.loads, (self.packed,)


def _pack(job: Job) -> bytes:
    """The job as bytes; refuse one whose function cannot travel."""
    try:
        return _Sent(job).packed
    except Exception as trouble:  # whatever the objects inside it raise
        raise InputError(f"the function cannot be sent to a worker ({trouble})",
                         mend="bind plain values only, or compute with one worker") from None


def _unpack(packed: bytes) -> Job:
    """The job, or one that fails like this did: the first cell then tells why."""
    try:
        job: Job = pickle.loads(packed)
        return job
    except Exception as trouble:
        return partial(failed_outcome, trouble)


PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal that a process gets when its parent is gone


def _end_with_parent() -> None:
    """From now on, end this process when the one that started it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _serve(pipe: Any, packed: bytes, is_interpreted: bool) -> None:
    """What a worker does: receive cells and send back their outcomes, until the pipe ends."""
    # Ctrl-C is for the parent, who then ends its workers
    signal.signal(signal.SIGINT, lambda *_: None)
    _end_with_parent()
    jit.is_interpreted = is_interpreted  # before the job's own modules are imported
    job = _unpack(packed)
    with suppress(EOFError, OSError):
        while True:
            number, cell = pipe.recv()
            pipe.send(job(number, cell))

# how often to see whether a silent worker is alive; children of its own may hold its pipe open
LOOK_EVERY_S = 1.0
END_WITHIN_S = 5.0  # how long a worker may take to end after its last cell


@dataclass
class _Worker:
    """A process, the pipe to it, and the number of the cell it is at."""

    process: Any
    pipe: Any
    number: int = -1

    def begin(self, number: int, cell: Any) -> None:
        """Give it a cell; if it is dead, that shows when its outcome is read."""
        self.number = number
        with suppress(OSError):
            self.pipe.send((number, cell))

    def outcome(self) -> Outcome:
        """What it has sent, or that it died."""
        with suppress(EOFError, OSError):
            if self.pipe.poll() or self.process.is_alive():
                return Outcome(*self.pipe.recv())
        self.process.join(LOOK_EVERY_S)
        code = self.process.exitcode or 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return Outcome(
            self.number, None,
            problem=f"a worker process died at it ({how}), perhaps because memory ran "
            "out; run again, with fewer workers: finished cells are kept")


def _hire(packed: bytes) -> _Worker:
    """Start a worker, which does not run the program of `__main__` again."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    serve: Any = _Sent(_serve)
    process = spawning.Process(target=serve, args=(theirs, packed, jit.is_interpreted))
    program = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        process.start()
    except OSError as trouble:
        raise SweepError(
            f"a worker process cannot be started ({trouble.strerror}); give fewer workers"
        ) from None
    finally:
        sys.modules["__main__"] = program
        theirs.close()
    return _Worker(process, ours)


def _in_processes(job: Job, cells: Numbered, workers: int) -> Outcomes:
    """Cells in processes of this machine, as they finish."""
    packed = _pack(job)
    waiting = iter(cells)
    crew: list[_Worker] = []
    try:
        for number, cell in itertools.islice(waiting, workers):
            crew.append(_hire(packed))
            crew[-1].begin(number, cell)
        at_work = {worker.pipe: worker for worker in crew}
        while at_work:
            ready = wait(list(at_work), LOOK_EVERY_S)
            for pipe in ready or [
                    pipe for pipe, worker in at_work.items() if not worker.process.is_alive()]:
                worker = at_work[pipe]
                outcome = worker.outcome()
                if (following := next(waiting, None)) is not None:
                    worker.begin(*following)
                else:
                    at_work.pop(pipe).pipe.close()
                yield outcome
        for worker in crew:
            worker.process.join(END_WITHIN_S)
    finally:
        for worker in crew:
            worker.process.kill()
        for worker in crew:
            worker.pipe.close()
            worker.process.join(END_WITHIN_S)


def count_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may use, by its affinity and the quota of its container, if any."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os,
                                                    "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no such file; "max" for no quota
        used_us, period_us = quota.read_text(encoding="ascii").split()
        cores = min(cores, math.ceil(int(used_us) / int(period_us)))
    return max(cores, 1)


ANSWER_WITHIN_S = 10  # how long a Dask scheduler, and its first worker, may take to answer
LOOP_WITHIN_S = 60    # how long a thread of this process may take to begin


@contextmanager
def _event_loop(address: str) -> Iterator[Any]:
    """Lend an event loop that runs in a thread."""
    import asyncio

    loops = import_module("tornado.ioloop")
    begun = Future[tuple[Any, asyncio.Event]]()

    async def live() -> None:
        end = asyncio.Event()
        begun.set_result((loops.IOLoop.current(), end))
        await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(live()), daemon=True)
    thread.start()
    try:
        loop, end = begun.result(LOOP_WITHIN_S)
    except TimeoutError:
        raise InputError(
            f"this machine is too busy to talk to {address}: "
            f"in {LOOP_WITHIN_S} s no event loop started",
            value=address, mend="try again later") from None
    try:
        yield loop
    finally:
        loop.add_callback(end.set)
        thread.join(ANSWER_WITHIN_S)


def _distributed(address: str) -> Any:
    """The package `distributed`, if it is there."""
    try:
        return import_module("distributed")
    except ImportError:
        raise InputError(
            f"dask={address} needs the package distributed, which is not installed",
            mend="pip install 'sched_lab[distributed]', or give workers instead") from None


def _connect(distributed: Any, address: str, loop: Any) -> Any:
    """A client of the Dask scheduler at this address, which has at least one worker."""
    try:
        # a client that does not like its address cannot be closed
        distributed.comm.resolve_address(address)
        client = distributed.Client(address, timeout=ANSWER_WITHIN_S, set_as_default=False,
                                    loop=loop)
    except (OSError, ValueError, TypeError) as trouble:
        raise InputError(
            f"no Dask scheduler answers at {address} ({type(trouble).__name__})", value=address,
            mend="start one with `dask scheduler` and give the tcp:// address it prints") from None
    try:
        client.wait_for_workers(1, timeout=ANSWER_WITHIN_S)
        return client
    except TimeoutError:
        client.close()
        raise InputError(f"the Dask scheduler at {address} has no worker", value=address,
                         mend=f"start one with `dask worker {address}`") from None


WAITING_PER_THREAD = 4  # cells that a scheduler holds ready for each thread of its workers


def _on_dask(job: Job, cells: Numbered, address: str) -> Outcomes:
    """Cells on the workers of a Dask scheduler, as they finish."""
    distributed = _distributed(address)
    _ = _pack(job)
    waiting = iter(cells)
    numbers: dict[str, int] = {}
    with _event_loop(address) as loop, _connect(distributed, address, loop) as client:
        arriving = distributed.as_completed(loop=loop)

        def submit() -> int:
            most: int = WAITING_PER_THREAD * max(1, sum(client.nthreads().values()))
            if batch := list(itertools.islice(waiting, most - len(numbers))):
                futures = client.map(job, *zip(*batch, strict=True), pure=False, retries=0)
                numbers.update((future.key, number)
                               for future, (number, _) in zip(futures, batch, strict=True))
                arriving.update(futures)
            return most

        most = submit()
        for future in arriving:
            number = numbers.pop(future.key)
            if future.status == "finished":
                yield Outcome(*future.result())
            else:
                trouble = repr(
                    future.exception()) if future.status == "error" else "the scheduler was lost"
                yield Outcome(number, None,
                              problem=f"Dask gave it up ({' '.join(trouble.split())})")
            if 2 * len(numbers) <= most:
                most = submit()


def _name_function(function: Callable[..., Any]) -> str:
    """Module and name of a function that a worker can import; of a partial, of its function."""
    inner = function.func if isinstance(function, partial) else function
    name = f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', '?')}"
    if not callable(inner) or any(sign in name for sign in "<?"):
        raise InputError(
            f"{name} cannot be found by its name",
            mend="give a function of a module, not a lambda or a function inside another")
    return name


def _cell_file(folder: Path, inputs: Mapping[str, Any]) -> Path:
    """Where the frame of these inputs is."""
    key = input_key(inputs)
    return folder / "cells" / key[:2] / f"{key}.csv"


def _read_cell(file: Path) -> pd.DataFrame | None:
    """The frame of a cell, or nothing if it is not there.

    Raises
    ------
    ValueError : something is there, but not the whole of this cell
    """
    if not file.exists() and not sidecar_path(file).exists():
        return None
    if read_sidecar(file)["key"] != file.stem:
        raise ValueError("this is another cell")
    return read_frame(file)


KEPT = re.compile(r"(cells/[0-9a-f]{2}/)?\.?(results|[0-9a-f]{16})\.(csv|json)(\.partial-\d+)?")


def remove_cells(folder: Path) -> None:
    """Remove what a sweep has kept in a folder, and the folder if there was nothing else in it."""
    for path in sorted([folder, *folder.rglob("*")], reverse=True):
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            elif KEPT.fullmatch(path.relative_to(folder).as_posix()):
                path.unlink()


class SweepError(SchedLabError):
    """A sweep could not be completed; the cells finished so far are kept.

    Parameters
    ----------
    problem : what went wrong
    cell : the cell it went wrong in, if one can be named
    """

    def __init__(self, problem: str, cell: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{name_cell(cell)}: {problem}" if cell else problem)
        self.problem = problem
        self.cell = cell


def _names(frame: pd.DataFrame) -> str:
    return ", ".join(map(str, frame.columns))


def check_alike(frame: pd.DataFrame, cell: Cell, other: pd.DataFrame, other_cell: Cell) -> None:
    """Refuse a frame that cannot stand under another one."""
    if list(frame) != list(other):
        raise SweepError(
            f"it has the columns {_names(frame)}, but {name_cell(other_cell)} has {_names(other)}; "
            "return the same columns from every cell", cell)
    for name in frame if len(frame) and len(other) else ():
        if (kind := _kind(frame[name])) != (usual := _kind(other[name])):
            raise SweepError(
                f"the column {name} holds {kind}, but {usual} in {name_cell(other_cell)}; "
                "return the same kind from every cell", cell)


def _add(frames: dict[int, pd.DataFrame], number: int, frame: pd.DataFrame,
         cells: Sequence[Cell]) -> None:
    """Add the frame of one cell, unless it is unlike those that are there."""
    if frames:
        other = next((n for n, part in frames.items() if len(part)), next(iter(frames)))
        check_alike(frame, cells[number], frames[other], cells[other])
    frames[number] = frame


def _kept(files: Sequence[Path], cells: Sequence[Cell], report: Callable[[str], object]) -> tuple[
        dict[int, pd.DataFrame], tuple[str, ...]]:
    """Frames that need not be computed, by number, and a line for each file that is no good."""
    kept: dict[int, pd.DataFrame] = {}
    damaged: list[str] = []
    for number, (file, cell) in enumerate(zip(files, cells, strict=True)):
        try:
            if (frame := _read_cell(file)) is not None:
                _add(kept, number, frame, cells)
        except (ValueError, TypeError, LookupError, OSError):
            damaged.append(
                f"{name_cell(cell)}: {file.as_posix()} is damaged or unfinished; computing it again"
            )
            report(damaged[-1])
    return kept, tuple(damaged)


def _assemble(cells: Sequence[Cell], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All frames under each other, each with its cell's parameters as leading columns."""
    rows = [len(frame) for frame in frames]
    whole = pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
    for position, name in enumerate(cells[0]):
        column = pd.Series([cell[name] for cell in cells]).repeat(rows)
        whole.insert(position, name, column.reset_index(drop=True))
    return whole


def progress_note(kept: int, computed: int, total: int, elapsed_s: float) -> str:
    """What stands beside the bar: how many cells were kept, and about how long the others take.

    Parameters
    ----------
    kept, computed, total : numbers of cells
    elapsed_s : since the first one began
    """
    words = [f"{kept} kept"] if kept else []
    if computed and (missing := total - kept - computed):
        left_s = math.ceil(elapsed_s / computed * missing)
        hours = left_s // 3600
        minutes = left_s // 60 % 60
        seconds = left_s % 60
        words.append(
            f"about {hours} h {minutes:02} min left" if hours else
            f"about {minutes} min {seconds:02} s left" if minutes else f"about {seconds} s left")
    return ", ".join(words)


def _to_stderr(line: str) -> None:
    """Say one line to whoever watches."""
    print(line, file=sys.stderr)


class Shown(NamedTuple):
    """What a sweep says while it runs.

    Parameters
    ----------
    words : what stands before the bar
    has_bar : whether there is a bar, if standard error is a terminal
    report : is told a line about each damaged file
    """

    words: str = "cells"
    has_bar: bool = True
    report: Callable[[str], object] = _to_stderr


SHOWN = Shown()


@contextmanager
def progress_bar(shown: Shown, kept: int, total: int) -> Iterator[Callable[[int], None]]:
    """Lend a function that is told how many cells were computed.

    On a terminal it moves a bar, in JupyterLab it writes one line again and again, and elsewhere
    nothing.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("{task.fields[note]}"))
    is_shown = shown.has_bar and sys.stderr.isatty()
    start = time.monotonic()
    with Progress(*columns, console=Console(stderr=True), transient=True,
                  disable=not is_shown) as bar:
        task = bar.add_task(shown.words, total=total, completed=kept,
                            note=progress_note(kept, 0, total, 0))

        def advance(computed: int) -> None:
            note = progress_note(kept, computed, total, time.monotonic() - start)
            bar.update(task, completed=kept + computed, note=note)
            if shown.has_bar and not is_shown and jit.is_watched():
                line = ", ".join(filter(None, [f"{shown.words}: {kept + computed} of {total}", note]))
                print(f"\r{line:<72}", end="\n" if kept + computed == total else "",
                      file=sys.stderr, flush=True)

        yield advance


def in_words(kept: int, computed: int, damaged: Sequence[str]) -> str:
    """Account of a sweep in one line."""
    again = f", {len(damaged)} of them again because the file was damaged" if damaged else ""
    return f"{kept + computed} cells: {kept} kept, {computed} computed{again}"


@dataclass(frozen=True)
class Sweep:
    """A finished sweep.

    Parameters
    ----------
    frame : one frame for all cells, the parameters as leading columns, in the order of the cells
    kept, computed : number of cells that were found on disk, and that were not
    damaged : one line for each cell that was found on disk but was no good, and is among those
        computed
    """

    frame: pd.DataFrame
    kept: int
    computed: int
    damaged: tuple[str, ...] = ()

    def __str__(self) -> str:
        return in_words(self.kept, self.computed, self.damaged)


def about_sweep(function: Function, depends_on: Mapping[str, Any] | None) -> dict[str, Any]:
    """What all cells of a sweep depend on, besides their parameters."""
    if isinstance(function, partial) and not depends_on:
        raise InputError("a partial holds arguments that the key of a cell cannot see",
                         mend="name them in depends_on")
    about = {
        "function": _name_function(function), "depends_on": dict(depends_on or {}),
        "sched_lab": __version__}
    try:
        input_key(about)
    except (TypeError, ValueError) as trouble:
        raise InputError(f"depends_on cannot be written as JSON ({trouble})",
                         mend="give texts and numbers, such as checksums and versions") from None
    return about


def _summary(cells: Sequence[Cell]) -> dict[str, Any]:
    """Which cells a result is made of: number, values of each axis, key of the exact list."""
    axes = {name: list(dict.fromkeys(cell[name] for cell in cells)) for name in cells[0]}
    return {"cells": len(cells), "axes": axes, "cells_key": input_key({"cells": cells})}


def outcomes_of(job: Job, cells: Numbered, workers: int, dask: str | None) -> Outcomes:
    """The back end asked for, at work."""
    if dask is not None:
        return _on_dask(job, cells, dask)
    return _here(job, cells) if workers == 1 else _in_processes(job, cells, workers)


def error_of(outcome: Outcome, cell: Cell) -> SweepError:
    """What to raise for a cell that could not be computed."""
    error = SweepError(outcome.problem, cell)
    if outcome.trace:
        error.add_note(outcome.trace)
    return error


def _gather(outcomes: Outcomes, cells: Sequence[Cell], frames: dict[int, pd.DataFrame],
            store: Callable[[int, pd.DataFrame, float], object]) -> None:
    """Store outcomes as they come, add them to `frames`, stop at the first that is no good."""
    with closing(outcomes):
        for outcome in outcomes:
            if outcome.problem:
                raise error_of(outcome, cells[outcome.number])
            _add(frames, outcome.number, outcome.frame, cells)
            store(outcome.number, outcome.frame, outcome.seconds)


def check_workers(workers: int) -> None:
    """Refuse a number of workers that makes no sense.

    Raises
    ------
    InputError : it is not 1 or more
    """
    if workers < 1:
        raise InputError(f"{workers} workers cannot compute anything", value=workers,
                         mend="give 1 or more")


def _store(files: Sequence[Path], inputs: Sequence[Mapping[str, Any]], advance: Callable[[], None],
           number: int, frame: pd.DataFrame, seconds: float) -> None:
    """Write the frame of a cell, and say that there is one more."""
    write_frame(frame, files[number], inputs[number], wall_time_s=seconds)
    advance()


def sweep(function: Callable[..., Any], cells: Iterable[Mapping[str, Any]], folder: str | Path, *,
          depends_on: Mapping[str, Any] | None = None, workers: int = 1, dask: str | None = None,
          shown: Shown = SHOWN, results: str = "results.csv") -> Sweep:
    """Compute every cell once, on whatever is at hand, and put the frames together.

    Parameters
    ----------
    function : called as `function(**cell)`; deterministic, returns a frame (or a mapping: one row);
        workers find it by its name; of a `functools.partial`, `depends_on` must tell what is bound
    cells : parameters of each cell, for instance from `grid`
    folder : where finished cells and, at the end, the results are kept; another sweep may use it
        too
    depends_on : what else the results depend on, as JSON: checksums of files, a number raised when
        the model changes
    workers : processes on this machine; 1 computes in this very process
    dask : address of a running Dask scheduler, such as `tcp://10.0.0.1:8786`; `workers` is then not
        used
    shown : what is said meanwhile
    results : name of the file with all results, .csv or .parquet

    Raises
    ------
    InputError : cells, function or address are no good; nothing was computed
    SweepError : a cell failed, or a worker died; finished cells are kept and the next call goes on
        from there
    OutputError : the folder cannot be written
    """
    checked = checked_cells(cells)
    about = about_sweep(function, depends_on)
    place = Path(folder)
    check_workers(workers)
    ensure_writable(place)
    inputs = [about | {"cell": cell} for cell in checked]
    files = [_cell_file(place, asked) for asked in inputs]
    frames, damaged = _kept(files, checked, shown.report)
    kept = len(frames)
    missing = [item for item in enumerate(checked) if item[0] not in frames]
    with progress_bar(shown, kept, len(checked)) as advance:
        store = partial(_store, files, inputs, lambda: advance(len(frames) - kept))
        if missing:
            outcomes = outcomes_of(partial(compute_cell, function), missing, workers, dask)
            _gather(outcomes, checked, frames, store)
    whole = _assemble(checked, [frames[number] for number in range(len(checked))])
    write_frame(whole, place / results, about | _summary(checked))
    return Sweep(whole, kept, len(missing), damaged)
