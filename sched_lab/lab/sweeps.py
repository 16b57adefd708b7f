"""A grid of parameters and seeds becomes one frame, the same for any number of workers, and a killed sweep goes on where it stood."""

# A module, written by hand.

from __future__ import annotations

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
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing.connection import wait as wait_for
from multiprocessing.context import SpawnContext
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
    hidden_neighbour,
    input_key,
    read_frame,
    read_sidecar,
    refuse_output,
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


def checked_cells(cells: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Cells in Python's own types, no two alike, with texts that a file gives back.

    Raises
    ------
    InputError : there is none, or what is wrong with one
    """
    plain = [{str(name): value.item() if isinstance(value, np.generic) else value
              for name, value in cell.items()} for cell in cells]
    if not plain:
        raise InputError("there is no cell to compute", mend="give at least one")
    seen: dict[tuple[Any, ...], int] = {}
    for number, cell in enumerate(plain):
        if (first := seen.setdefault(tuple(sorted(cell.items())), number)) != number:
            raise InputError(
                f"{name_cell(cell)}: it is there twice, as cells {first + 1} and {number + 1}",
                mend="give each cell once")
        for name, value in cell.items():
            if isinstance(value, str) and _UNWRITABLE.search(value):
                raise InputError(f"{name_cell(cell)}: {name} cannot be written as a value in a column",
                                 column=name, value=value, mend="leave out carriage returns, zero bytes and "
                                 "halves of characters")
    return plain


def tidy(result: Any, cell: Cell) -> pd.DataFrame:
    """The result of one cell, a frame or a mapping for one row, as the frame that its file gives back."""
    frame = result.reset_index(drop=True) if isinstance(result, pd.DataFrame) else pd.DataFrame([result])
    if both := [name for name in frame if name in cell]:
        raise ValueError(
            f"the column {both[0]} is a parameter too; leave it out, the sweep adds it")
    texts = [name for name, kind in frame.dtypes.items() if kind.kind not in "biuf"]
    return frame.assign(**{str(name): frame[name].astype("str").fillna("") for name in texts})


class Outcome(NamedTuple):
    """What became of one cell: a frame, or else what went wrong."""

    number: int
    frame: Any
    seconds: float = 0.0
    problem: str = ""
    trace: str = ""


Numbered = Iterable[tuple[int, Cell]]
Outcomes = Generator[Outcome, None, None]


def compute_cell(function: Function, number: int, cell: Cell) -> Outcome:
    """Outcome of one cell; this is all that a worker runs."""
    start = time.perf_counter()
    try:
        with jit.heard():
            result = function(**cell)
        return Outcome(number, tidy(result, cell), time.perf_counter() - start)
    except jit.Terminated:
        raise
    except (Exception, SystemExit) as trouble:
        return Outcome(number, None, time.perf_counter() - start,
                       " ".join(f"{type(trouble).__name__}: {trouble}".split()),
                       "".join(traceback.format_exception(trouble)))


# --- workers on this machine


def _end_with_parent() -> None:
    """From now on, end this process when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    # while compiled code runs, the thread does not; where a pipe can send SIGIO, that ends the process
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, os.O_ASYNC)


_computed: Function  # by this process, if it is a worker


def _begin(packed: bytes, is_small: bool) -> None:
    """Make this process a worker."""
    global _computed
    signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is for the parent, who then ends its workers
    _end_with_parent()
    jit.runs_interpreted.set(is_small)
    _computed = pickle.loads(packed)


def _compute(number: int, cell: Cell, file: Path) -> None:
    """Compute a cell, and leave its outcome in a file: who reads half of it from a pipe would wait for the rest for ever."""
    outcome = pickle.dumps(compute_cell(_computed, number, cell))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)  # a link that somebody has put there is not ours
        with open(file, "xb") as out:
            out.write(outcome)
    except OSError as trouble:
        refuse_output(file, trouble)


LOOK_EVERY_S = 1.0  # whether a silent worker is alive; children of its own may hold its pipes open
END_WITHIN_S = 5.0  # how long a worker may take to end after its last cell


class _Spawning(SpawnContext):
    """Starts a process that does not run the program of `__main__` again, and keeps it in hand."""

    def Process(self, *arguments: Any, **options: Any) -> Any:  # type: ignore[override]
        self.process = super().Process(*arguments, **options)
        return self.process


class _Worker:
    """A process in an executor of its own, so that the cell is known at which it dies.

    Parameters
    ----------
    packed : the function that computes cells
    """

    def __init__(self, packed: bytes) -> None:
        spawning = _Spawning()
        program = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # else the worker would run the program again
        try:
            self.executor = ProcessPoolExecutor(1, spawning, _begin, (packed, jit.runs_interpreted.get()))
            self.executor.submit(os.getpid)  # starts it
        except OSError as trouble:
            raise SweepError(
                f"a worker process cannot be started ({trouble.strerror}); give fewer workers"
            ) from None
        finally:
            sys.modules["__main__"] = program
        self.process = spawning.process

    def begin(self, number: int, cell: Cell, file: Path) -> Future[None]:
        """Give it a cell."""
        self.number = number
        self.file = file
        return self.executor.submit(_compute, number, cell, file)

    def outcome(self, future: Future[None]) -> Outcome:
        """What it has computed, or that it died."""
        try:
            future.result(LOOK_EVERY_S)
            outcome: Outcome = pickle.loads(self.file.read_bytes())
            return outcome
        except (BrokenProcessPool, TimeoutError):
            until = time.monotonic() + END_WITHIN_S
            while (code := self.process.exitcode) is None and time.monotonic() < until:
                time.sleep(0.01)  # the executor's own thread may have heard of the end first, and note it now
            how = f"killed by {signal.Signals(-code).name}" if code and code < 0 else f"exit code {code}"
            return Outcome(
                self.number, None,
                problem=f"a worker process died at it ({how}), perhaps because memory ran "
                "out; run again, with fewer workers: finished cells are kept")
        finally:
            self.file.unlink(missing_ok=True)


def _in_processes(function: Function, cells: Numbered, workers: int,
                  files: Sequence[Path]) -> Outcomes:
    """Cells in processes of this machine, as they finish."""
    import cloudpickle

    packed = cloudpickle.dumps(function)  # by name from a module, else by value
    waiting = iter(cells)
    crew: list[_Worker] = []
    at_work: dict[Future[None], _Worker] = {}

    def begin(worker: _Worker, number: int, cell: Cell) -> None:
        at_work[worker.begin(number, cell, hidden_neighbour(files[number]))] = worker

    try:
        for number, cell in itertools.islice(waiting, workers):
            crew.append(_Worker(packed))
            begin(crew[-1], number, cell)
        while at_work:
            done, _ = wait(at_work, LOOK_EVERY_S, FIRST_COMPLETED)
            for future in done or [one for one, worker in at_work.items()
                                   if not worker.process.is_alive()]:
                worker = at_work.pop(future)
                outcome = worker.outcome(future)
                if outcome.problem:
                    yield outcome
                    return
                if (following := next(waiting, None)) is not None:
                    begin(worker, *following)
                else:
                    worker.executor.shutdown(wait=False)
                yield outcome
        for worker in crew:
            worker.process.join(END_WITHIN_S)
    finally:
        for worker in crew:
            worker.process.kill()
        for worker in crew:
            worker.executor.shutdown(wait=False, cancel_futures=True)
            worker.process.join(END_WITHIN_S)
        for worker in at_work.values():
            worker.file.unlink(missing_ok=True)


def count_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Cores that this process may use, by its affinity and the quota of its container, if any."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no such file; "max" for no quota
        used_us, period_us = quota.read_text(encoding="ascii").split()
        cores = min(cores, math.ceil(int(used_us) / int(period_us)))
    return max(cores, 1)


# --- what is kept


def _name_function(function: Callable[..., Any]) -> str:
    """Module and name of a function that a worker can import; of a partial, of its function."""
    inner = function.func if isinstance(function, partial) else function
    name = f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', '?')}"
    if not callable(inner) or any(sign in name for sign in "<?"):
        raise InputError(
            f"{name} cannot be found by its name",
            mend="give a function of a module, not a lambda or a function inside another")
    return name


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


def _add(frames: dict[int, pd.DataFrame], number: int, frame: pd.DataFrame,
         cells: Sequence[Cell]) -> None:
    """Add the frame of one cell, unless it cannot stand under those that are there."""
    if frames:
        first, other = next(iter(frames.items()))
        if list(frame) != list(other):
            has, there = (", ".join(map(str, one.columns)) for one in (frame, other))
            raise SweepError(f"it has the columns {has}, but {name_cell(cells[first])} has {there}; "
                             "return the same columns from every cell", cells[number])
    frames[number] = frame


def _kept(files: Sequence[Path],
          cells: Sequence[Cell]) -> tuple[dict[int, pd.DataFrame], tuple[str, ...]]:
    """Frames that need not be computed, by number, and a line for each file that is no good."""
    kept: dict[int, pd.DataFrame] = {}
    damaged: list[str] = []
    for number, (file, cell) in enumerate(zip(files, cells, strict=True)):
        try:
            if file.exists() or sidecar_path(file).exists():
                if read_sidecar(file)["key"] != file.stem:
                    raise ValueError("this is another cell")
                _add(kept, number, read_frame(file), cells)
        except (ValueError, TypeError, LookupError, OSError):
            damaged.append(
                f"{name_cell(cell)}: {file.as_posix()} is damaged or unfinished; computing it again"
            )
            print(damaged[-1], file=sys.stderr)
    return kept, tuple(damaged)


def _assemble(cells: Sequence[Cell], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All frames under each other, each with its cell's parameters as leading columns."""
    rows = [len(frame) for frame in frames]
    whole = pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
    for position, name in enumerate(cells[0]):
        column = pd.Series([cell[name] for cell in cells]).repeat(rows)
        whole.insert(position, name, column.reset_index(drop=True))
    return whole


@contextmanager
def progress_bar(words: str, kept: int, total: int) -> Iterator[Callable[[int], None]]:
    """Lend a function that is told how many cells were computed.

    On a terminal it moves a bar, in JupyterLab it writes one line again and again, and elsewhere
    nothing.

    Parameters
    ----------
    words : what stands before the bar; empty for no bar
    kept, total : numbers of cells
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())
    is_terminal = sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True,
                  disable=not (words and is_terminal)) as bar:
        task = bar.add_task(words, total=total, completed=kept)

        def advance(computed: int) -> None:
            done = kept + computed
            bar.update(task, completed=done)
            if words and not is_terminal and jit.is_watched():
                print(f"\r{words}: {done} of {total}", end="\n" if done == total else "",
                      file=sys.stderr, flush=True)

        yield advance


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
        again = f", {len(self.damaged)} of them again because the file was damaged"
        return (f"{self.kept + self.computed} cells: {self.kept} kept, {self.computed} computed"
                f"{again if self.damaged else ''}")


def about_sweep(function: Function, depends_on: Mapping[str, Any] | None) -> dict[str, Any]:
    """What all cells of a sweep depend on, besides their parameters."""
    if isinstance(function, partial) and not depends_on:
        raise InputError("a partial holds arguments that the key of a cell cannot see",
                         mend="name them in depends_on")
    return {"function": _name_function(function), "depends_on": dict(depends_on or {}),
            "sched_lab": __version__}


def sweep(function: Callable[..., Any], cells: Iterable[Mapping[str, Any]], folder: str | Path, *,
          depends_on: Mapping[str, Any] | None = None, workers: int = 1,
          shown: str = "cells", results: str = "results.csv") -> Sweep:
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
    shown : what stands before the bar of progress; empty for no bar
    results : name of the file with all results, .csv or .parquet

    Raises
    ------
    InputError : cells or function are no good; nothing was computed
    SweepError : a cell failed, or a worker died; finished cells are kept and the next call goes on
        from there
    OutputError : the folder cannot be written
    """
    checked = checked_cells(cells)
    frames, kept, damaged = compute_cells(function, checked, folder, depends_on=depends_on, workers=workers, shown=shown)
    whole = _assemble(checked, frames)
    axes = {name: list(dict.fromkeys(cell[name] for cell in checked)) for name in checked[0]}
    write_frame(whole, Path(folder, results), about_sweep(function, depends_on) | {
        "cells": len(checked), "axes": axes, "cells_key": input_key({"cells": checked})})
    return Sweep(whole, kept, len(checked) - kept, damaged)


def compute_cells(function: Callable[..., Any], cells: Iterable[Mapping[str, Any]], folder: str | Path, *,
                  depends_on: Mapping[str, Any] | None = None, workers: int = 1,
                  shown: str = "cells") -> tuple[list[pd.DataFrame], int, tuple[str, ...]]:
    """As `sweep`, without a file of all results: the frame of each cell, and `kept` and `damaged` as in `Sweep`."""
    checked = checked_cells(cells)
    about = about_sweep(function, depends_on)
    place = Path(folder)
    ensure_writable(place)
    inputs = [about | {"cell": cell} for cell in checked]
    keys = map(input_key, inputs)
    files = [place / "cells" / key[:2] / f"{key}.csv" for key in keys]
    frames, damaged = _kept(files, checked)
    kept = len(frames)
    missing = [item for item in enumerate(checked) if item[0] not in frames]
    if missing and workers > 1:
        outcomes = _in_processes(function, missing, workers, files)
    else:
        outcomes = (compute_cell(function, number, cell) for number, cell in missing)
    with progress_bar(shown, kept, len(checked)) as advance, closing(outcomes):
        for number, frame, seconds, problem, trace in outcomes:
            if problem:
                error = SweepError(problem, checked[number])
                if trace:
                    error.add_note(trace)
                raise error
            _add(frames, number, frame, checked)
            write_frame(frame, files[number], inputs[number], wall_time_s=seconds)
            advance(len(frames) - kept)
    return [frames[number] for number in range(len(checked))], kept, damaged
