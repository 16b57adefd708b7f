"""Finished cells are appended to journals, and full parts become Parquet files: memory and the cost of a kill do not grow with the study."""

# A module, written by hand.

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .frames import (
    InputError,
    OutputError,
    ensure_writable,
    input_key,
    read_json,
    write_bytes,
    write_json,
)
from .sweeps import (
    SHOWN,
    Cell,
    Function,
    Grid,
    Outcomes,
    Shown,
    SweepError,
    about_sweep,
    check_alike,
    check_workers,
    checked_cells,
    error_of,
    failed_outcome,
    in_words,
    is_plain,
    name_cell,
    outcomes_of,
    progress_bar,
    tidy,
)

__all__ = ['Streamed', 'stream', 'Dataset']


def plain_axis(name: str, axis: Sequence[Any]) -> list[Any]:
    """Values of an axis in plain types, all different and of one kind.

    Raises
    ------
    InputError : they are not; `checked_cells` says why
    """
    values = [value.item() if isinstance(value, np.generic) else value for value in axis]
    kinds = set(map(type, values))
    if not (all(map(is_plain, values)) and len(set(values)) == len(values) and (
            len(kinds) == 1 or kinds == {int, float})):
        checked_cells({name: value} for value in values)
    return values


def plain_cells(cells: Iterable[Mapping[str, Any]]) -> Sequence[Cell]:
    """Cells in plain types, all different; of a `Grid` only the axes are looked at."""
    if isinstance(cells, Grid):
        return Grid(**{name: plain_axis(name, axis) for name, axis in cells.axes.items()})
    return checked_cells(cells)


def axes_of(cells: Sequence[Cell]) -> dict[str, list[Any]]:
    """Values of each parameter."""
    if isinstance(cells, Grid):
        return cells.axes
    return {name: list(dict.fromkeys(cell[name] for cell in cells)) for name in cells[0]}


def check_types(frame: pd.DataFrame, cell: Cell, other: pd.DataFrame, other_cell: Cell) -> None:
    """Refuse a frame that cannot stand under another one in a file."""
    if frame.columns.equals(other.columns) and [*frame.dtypes] == [*other.dtypes]:
        return
    check_alike(frame, cell, other, other_cell)
    for name in frame if len(frame) and len(other) else ():
        if frame[name].dtype != other[name].dtype:
            raise SweepError(
                f"the column {name} holds {frame[name].dtype}, but {other[name].dtype} in "
                f"{name_cell(other_cell)}; return the same type from every cell", cell)


class Stack(NamedTuple):
    """Results of neighbouring cells in one frame, the rows of each, and what went wrong next."""

    frame: pd.DataFrame
    rows: list[int]
    problem: str = ""
    trace: str = ""


def are_alike(results: Sequence[Any]) -> bool:
    """Whether all results are mappings of the same names and types."""
    return all(isinstance(result, Mapping) for result in results) and len(
        {(*result, *map(type, result.values())) for result in results}) == 1


def stacked(results: Sequence[Any], cells: Sequence[Cell]) -> Stack:
    """Stack of results, up to the first that is no good."""
    if are_alike(results):
        with suppress(TypeError, ValueError):  # said again below, with the cell
            return Stack(tidy(pd.DataFrame(results), cells[0]), [1] * len(results))
    frames: list[pd.DataFrame] = []
    usual = 0  # one that has rows, if any has
    problem = trace = ""
    for result, cell in zip(results, cells, strict=False):
        try:
            frame = tidy(result, cell)
            if frames:
                check_types(frame, cell, frames[usual], cells[usual])
        except SweepError as trouble:
            problem = trouble.problem
            break
        except (TypeError, ValueError) as trouble:
            problem, trace = failed_outcome(trouble, 0)[3:]
            break
        frames.append(frame)
        usual = usual if len(frames[usual]) else len(frames) - 1
    filled = [frame for frame in frames if len(frame)] or frames[:1] or [pd.DataFrame()]
    return Stack(pd.concat(filled, ignore_index=True), list(map(len, frames)), problem, trace)


def compute_stack(function: Function, start: int, cells: Sequence[Cell]) -> tuple[Any, ...]:
    """Outcome of neighbouring cells, up to the first that fails; its frame makes a `Stack`."""
    begin = time.perf_counter()
    results: list[Any] = []
    problem = trace = ""
    for cell in cells:
        try:
            results.append(function(**cell))
        except (Exception, SystemExit) as trouble:
            problem, trace = failed_outcome(trouble, start)[3:]
            break
    frame, rows, *wrong = stacked(results, cells)
    if wrong[0]:  # of a cell before the one that failed
        problem, trace = wrong
    return start, (frame, rows), time.perf_counter() - begin, problem, trace


CELLS_PER_PART = 1000
AIM_S = 0.5  # for one stack


@dataclass
class Pace:
    """How many cells a worker gets at once, and which it has got.

    Parameters
    ----------
    cells : number of cells of the next stack
    at_work : first cell and number of cells of each stack on its way
    """

    cells: int = 1
    at_work: dict[int, int] = field(default_factory=dict)

    def learn(self, cells: int, seconds: float) -> None:
        """Follow what a stack has taken, doubling at most."""
        wanted = int(AIM_S * cells / max(seconds, 1e-9))
        self.cells = max(1, min(wanted, 2 * self.cells, CELLS_PER_PART))


def stacks(cells: Sequence[Cell], missing: Iterable[range], pace: Pace) -> Iterator[
        tuple[int, list[Cell]]]:
    """Cut what is missing into stacks, each when it is asked for."""
    for span in missing:
        start = span.start
        while start < span.stop:
            stop = min(start + pace.cells, span.stop)
            pace.at_work[start] = stop - start
            yield start, [cells[number] for number in range(start, stop)]
            start = stop


HEAD = struct.Struct("<QI")  # bytes that follow, and their CRC-32


def append_record(journal: Path, record: bytes) -> None:
    """Append a record to a journal.

    Raises
    ------
    OutputError : it cannot be written
    """
    try:
        with open(journal, "ab") as file:
            file.write(HEAD.pack(len(record), zlib.crc32(record)) + record)
    except OSError as trouble:
        raise OutputError(f"{journal}: cannot be written ({trouble.strerror}); make room and run "
                          "again, finished cells are kept") from trouble


def records_in(journal: Path) -> Iterator[bytes]:
    """Whole records of a journal; what is torn at its end is cut off."""
    good = 0
    with open(journal, "rb") as file:
        while len(head := file.read(HEAD.size)) == HEAD.size:
            length, checksum = HEAD.unpack(head)
            record = file.read(length)
            if len(record) < length or zlib.crc32(record) != checksum:
                break
            yield record
            good = file.tell()
    if journal.stat().st_size > good:
        os.truncate(journal, good)


def arrow_of() -> Any:
    """The package `pyarrow` with what it has for Parquet."""
    for part in ("parquet", "dataset"):
        import_module(f"pyarrow.{part}")
    return import_module("pyarrow")


def table_of(arrow: Any, frame: pd.DataFrame) -> Any:
    """Arrow table of a frame of texts, numbers and truth values."""
    return arrow.table({
        name: arrow.array(column.to_numpy(object), arrow.string()) if column.dtype == "str"
        else arrow.array(column.to_numpy()) for name, column in frame.items()})


class Record(NamedTuple):
    """A stack in a journal: its first cell, the number of rows of each cell, its Arrow table."""

    start: int
    rows: list[int]
    table: Any


def packed_record(arrow: Any, record: Record) -> bytes:
    """A record as bytes."""
    about = json.dumps({"start": record.start, "rows": record.rows})
    table = record.table.replace_schema_metadata({"stack": about})
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def unpacked_record(arrow: Any, data: bytes) -> Record:
    """The record in these bytes."""
    table = arrow.ipc.open_stream(data).read_all()
    about = json.loads(table.schema.metadata[b"stack"])
    return Record(about["start"], about["rows"], table.replace_schema_metadata(None))


@dataclass
class Parts:
    """What a streamed sweep writes.

    Parameters
    ----------
    place : its folder
    cells : all cells, plain and checked
    about : what all cells depend on
    arrow : the package `pyarrow`
    schema, schema_cell : columns of the first cell with rows, and that cell
    """

    place: Path
    cells: Sequence[Cell]
    about: Mapping[str, Any]
    arrow: Any
    schema: Any = None
    schema_cell: Cell = field(default_factory=dict)

    def __post_init__(self) -> None:
        types = {str: "string", bool: "bool_", int: "int64", float: "float64"}
        self.keys: dict[int, str] = {}
        self.types = {
            name: getattr(self.arrow, types[float if float in kinds else min(kinds, key=str)])()
            for name, values in axes_of(self.cells).items() if (kinds := set(map(type, values)))}

    def __len__(self) -> int:
        return -(-len(self.cells) // CELLS_PER_PART)

    def span(self, part: int) -> range:
        """Numbers of the cells of a part."""
        start = part * CELLS_PER_PART
        return range(start, min(start + CELLS_PER_PART, len(self.cells)))

    def file(self, part: int) -> Path:
        """Where a finished part is."""
        return self.place / f"part-{part:06d}.parquet"

    def journal(self, part: int) -> Path:
        """Where the finished cells of an unfinished part are."""
        return self.place / f".part-{part:06d}.journal"


def key_of(parts: Parts, part: int) -> str:
    """Key of everything that a part depends on."""
    if part not in parts.keys:
        cells = [parts.cells[number] for number in parts.span(part)]
        parts.keys[part] = input_key({**parts.about, "cells": cells})
    return parts.keys[part]


def check_schema(parts: Parts, record: Record) -> None:
    """Refuse a stack whose columns are not those of the others.

    Raises
    ------
    SweepError : naming the two cells
    """
    filled = next((place for place, rows in enumerate(record.rows) if rows), None)
    if filled is None:
        return
    cell = parts.cells[record.start + filled]
    if parts.schema is None:
        parts.schema = record.table.schema
        parts.schema_cell = cell
    if not record.table.schema.equals(parts.schema):
        ours, usual = (", ".join(f"{column.name} ({column.type})" for column in schema)
                       for schema in (record.table.schema, parts.schema))
        raise SweepError(
            f"it has the columns {ours}, but {name_cell(parts.schema_cell)} has {usual}; "
            "return the same columns and types from every cell", cell)


def part_table(parts: Parts, part: int) -> Any:
    """Rows of all cells of a part in their order, the parameters as leading columns."""
    arrow = parts.arrow
    records = sorted(unpacked_record(arrow, data) for data in records_in(parts.journal(part)))
    tables = [record.table for record in records if record.table.num_rows]
    schema = parts.schema or records[0].table.schema
    rows = [count for record in records for count in record.rows]
    body = (arrow.concat_tables(tables) if tables else schema.empty_table()).combine_chunks()
    cell_of_row = arrow.array(np.repeat(np.arange(len(rows)), rows))
    cells = [parts.cells[number] for number in parts.span(part)]
    columns = {name: arrow.array([cell[name] for cell in cells], kind).take(cell_of_row)
               for name, kind in parts.types.items()}
    return arrow.table(columns | dict(zip(body.column_names, body.columns, strict=True)))


def write_part(parts: Parts, part: int) -> None:
    """Make a part of its journal, which is complete, and remove that."""
    table = part_table(parts, part).replace_schema_metadata({"sched_lab": key_of(parts, part)})
    sink = parts.arrow.BufferOutputStream()
    parts.arrow.parquet.write_table(table, sink, compression="zstd", write_page_checksum=True)
    write_bytes(sink.getvalue().to_pybytes(), parts.file(part))
    parts.journal(part).unlink()


def is_whole(parts: Parts, part: int) -> bool:
    """Whether a part that is there is undamaged, and made of these cells."""
    try:
        file = parts.arrow.parquet.ParquetFile(parts.file(part), page_checksum_verification=True)
        schema = file.schema_arrow
        for group in range(file.num_row_groups):
            file.read_row_group(group)
    except (OSError, ValueError, parts.arrow.ArrowException):
        return False
    if (schema.metadata or {}).get(b"sched_lab", b"").decode() != key_of(parts, part):
        return False
    if parts.schema is None and file.metadata.num_rows:
        own = [column for column in schema if column.name not in parts.types]
        parts.schema = parts.arrow.schema(own)
        parts.schema_cell = parts.cells[parts.span(part).start]
    return True


def journaled(parts: Parts, part: int) -> set[int]:
    """Numbers of the cells in the journal of a part, if there is one."""
    done: set[int] = set()
    if parts.journal(part).exists():
        for data in records_in(parts.journal(part)):
            record = unpacked_record(parts.arrow, data)
            check_schema(parts, record)
            done.update(range(record.start, record.start + len(record.rows)))
    return done


def spans_of(numbers: Iterable[int]) -> list[range]:
    """Neighbouring numbers of an ascending sequence as ranges."""
    spans: list[range] = []
    for number in numbers:
        if spans and spans[-1].stop == number:
            spans[-1] = range(spans[-1].start, number + 1)
        else:
            spans.append(range(number, number + 1))
    return spans


class Found(NamedTuple):
    """What is still missing: of each part the number of cells, and all of them as ranges."""

    left: dict[int, int]
    missing: list[range]
    damaged: tuple[str, ...]


def look(parts: Parts, report: Callable[[str], object]) -> Found:
    """Look what is there, and make parts of the journals that are complete."""
    left: dict[int, int] = {}
    missing: list[range] = []
    damaged: list[str] = []
    for part in range(len(parts)):
        if parts.file(part).exists():
            if is_whole(parts, part):
                parts.journal(part).unlink(missing_ok=True)
                continue
            damaged.append(f"{parts.file(part).as_posix()} is damaged; computing it again")
            report(damaged[-1])
        done = journaled(parts, part)
        left[part] = len(parts.span(part)) - len(done)
        missing += spans_of(number for number in parts.span(part) if number not in done)
    return Found(left, missing, tuple(damaged))


def finish_parts(parts: Parts, left: dict[int, int], is_end: bool = False) -> None:
    """Write every part of which nothing is missing."""
    for part in [part for part, count in left.items() if count == 0]:
        if parts.schema is not None or is_end:
            write_part(parts, part)
            del left[part]


def record_outcomes(parts: Parts, left: dict[int, int], outcomes: Outcomes, pace: Pace) -> Iterator[
        int]:
    """Append outcomes as they come; yield the number of cells of each, stop at a failure."""
    with closing(outcomes):
        for outcome in outcomes:
            count = pace.at_work.pop(outcome.number)
            if outcome.frame is None:  # nobody knows how far it came
                if count > 1:
                    place = f"; it was this cell or one of the {count - 1} that follow"
                    outcome = outcome._replace(problem=outcome.problem + place)
                raise error_of(outcome, parts.cells[outcome.number])
            stack = Stack(*outcome.frame)
            if stack.rows:
                record = Record(outcome.number, stack.rows, table_of(parts.arrow, stack.frame))
                check_schema(parts, record)
                part = outcome.number // CELLS_PER_PART
                append_record(parts.journal(part), packed_record(parts.arrow, record))
                left[part] -= len(stack.rows)
                finish_parts(parts, left)
                pace.learn(len(stack.rows), outcome.seconds)
            yield len(stack.rows)
            if outcome.problem:
                raise error_of(outcome, parts.cells[outcome.number + len(stack.rows)])


def compute_missing(parts: Parts, found: Found, outcomes_of_stacks: Callable[..., Outcomes],
                    shown: Shown) -> None:
    """Compute all cells that are missing, and write what gets complete.

    Parameters
    ----------
    parts, found : what is to be written, and what of it is missing
    outcomes_of_stacks : the back end, which still wants the cells
    shown : what is said meanwhile
    """
    pace = Pace()
    computed = 0
    total = len(parts.cells)
    kept = total - sum(map(len, found.missing))
    outcomes = outcomes_of_stacks(stacks(parts.cells, found.missing, pace))
    with progress_bar(shown, kept, total) as advance:
        for count in record_outcomes(parts, found.left, outcomes, pace):
            computed += count
            advance(computed)


def summary_of(parts: Parts, is_finished: bool) -> dict[str, Any]:
    """What `_about.json` says of a dataset."""
    keys = [key_of(parts, part) for part in range(len(parts))]
    return {"parameters": {**parts.about, "cells": len(parts.cells), "axes": axes_of(parts.cells)},
            "key": input_key({"parts": keys}), "cells_per_part": CELLS_PER_PART,
            "is_finished": is_finished}


def claim(parts: Parts) -> None:
    """Refuse a folder that holds something else; else say what will be in it.

    Raises
    ------
    OutputError : it does
    """
    about = parts.place / "_about.json"
    mine = summary_of(parts, False)
    if about.exists():
        if read_json(about).get("key") != mine["key"]:
            raise OutputError(f"{parts.place}: it holds another sweep; choose another folder")
    elif any(not path.name.startswith(".") for path in parts.place.iterdir()):
        raise OutputError(f"{parts.place}: it is not empty; choose another folder")
    else:
        write_json(mine, about)


@contextmanager
def alone_in(place: Path) -> Iterator[None]:
    """Keep other sweeps out of a folder.

    Raises
    ------
    OutputError : another process is writing there
    """
    place.mkdir(parents=True, exist_ok=True)
    if os.name != "posix":
        yield
        return
    locks = import_module("fcntl")
    handle = os.open(place, os.O_RDONLY)
    try:
        locks.flock(handle, locks.LOCK_EX | locks.LOCK_NB)
        yield
    except BlockingIOError:
        raise OutputError(f"{place}: another sweep is writing there; wait for it, or choose "
                          "another folder") from None
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Streamed:
    """A finished streamed sweep.

    Parameters
    ----------
    place : folder of the dataset, for `Dataset` or any reader of Parquet
    kept, computed : number of cells that were found on disk, and that were not
    damaged : one line for each part that was found on disk but was no good
    """

    place: Path
    kept: int
    computed: int
    damaged: tuple[str, ...] = ()

    def __str__(self) -> str:
        return in_words(self.kept, self.computed, self.damaged)


def stream(function: Function, cells: Iterable[Mapping[str, Any]], folder: str | Path, *,
           depends_on: Mapping[str, Any] | None = None, workers: int = 1, dask: str | None = None,
           shown: Shown = SHOWN) -> Streamed:
    """Compute every cell once and write Parquet as they finish, in memory that does not grow.

    Parameters
    ----------
    function : as of `sweep`; returns the same columns and types from every cell
    cells : parameters of each cell; a `Grid` takes no memory for them
    folder : of this dataset alone; a call that was killed goes on from there
    depends_on, workers, dask, shown : as of `sweep`

    Raises
    ------
    InputError : cells, function or address are no good, or there is no package `pyarrow`
    SweepError : a cell failed, or a worker died; finished cells are kept
    OutputError : the folder cannot be written, or holds something else
    """
    check_workers(workers)
    place = Path(folder)
    parts = Parts(place, plain_cells(cells), about_sweep(function, depends_on), arrow_of())
    ensure_writable(place)
    with alone_in(place):
        claim(parts)
        found = look(parts, shown.report)
        finish_parts(parts, found.left)
        computed = sum(map(len, found.missing))
        kept = len(parts.cells) - computed
        if computed:
            job = partial(compute_stack, function)
            compute_missing(parts, found, partial(outcomes_of, job, workers=workers, dask=dask),
                            shown)
        finish_parts(parts, found.left, is_end=True)
        write_json(summary_of(parts, True), place / "_about.json")
    return Streamed(place, kept, computed, found.damaged)


class Dataset:
    """A finished streamed sweep, to be read a piece at a time.

    Parameters
    ----------
    place : its folder

    Raises
    ------
    InputError : there is none, or it is not finished
    """

    def __init__(self, place: str | Path) -> None:
        about = read_json(Path(place) / "_about.json")
        if not about.get("is_finished"):
            raise InputError("the sweep is not finished", file=place,
                             mend="run it again; finished cells are kept")
        self.axes: dict[str, list[Any]] = about["parameters"]["axes"]
        self._sets = arrow_of().dataset
        checked = self._sets.ParquetFragmentScanOptions(page_checksum_verification=True)
        self._table = self._sets.dataset(place, format=self._sets.ParquetFileFormat(
            default_fragment_scan_options=checked))

    def read(self, columns: Sequence[str] | None = None, **where: Any) -> pd.DataFrame:
        """Rows in the order of the cells.

        Parameters
        ----------
        columns : which, None for all
        where : for each column named, its value, or a pair of its least and its largest value
        """
        chosen = self._sets.scalar(True)
        for name, value in where.items():
            column = self._sets.field(name)
            low, high = value if isinstance(value, tuple) else (value, value)
            chosen = chosen & (column >= low) & (column <= high)
        table = self._table.to_table(columns=None if columns is None else list(columns),
                                     filter=chosen)
        return pd.DataFrame(table.to_pandas())
