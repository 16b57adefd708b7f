"""Every input is checked on the way in; every result appears whole, or not at all, on the way out."""

# A module, written by hand.

from __future__ import annotations

import csv
import difflib
import errno
import gzip
import hashlib
import io
import json
import math
import os
import re
import select
import shutil
import stat
import tempfile
import tomllib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
import pandas as pd

from .. import __version__
from .jit import PACKAGE

__all__ = ['SchedLabError', 'OutputError', 'InputError', 'expect_error', 'embedded', 'Column', 'read_input', 'read_table',
           'write_json', 'read_json', 'write_frame', 'read_frame', 'is_finished', 'atomic_folder']


class SchedLabError(Exception):
    """What `sched_lab` has to tell its user; the message says how to mend it."""


class OutputError(SchedLabError, OSError):
    """A result cannot be written where it was asked for."""


class InputError(SchedLabError, ValueError):
    """An input is wrong: the message names file, row, column, value and mend.

    Parameters
    ----------
    problem : what is wrong, the value included
    file, row, column : where; the row is the line number in the file, and the header is line 1
    value : the cell as the file has it
    mend : what to write instead
    """

    def __init__(self, problem: str, *, file: str | Path | None = None, row: int | None = None,
                 column: str | None = None, value: object = None, mend: str | None = None) -> None:
        places = [
            str(file or ""), f"row {row}" if row else "", f"column {column}" if column else ""]
        message = ": ".join(filter(None, [", ".join(filter(None, places)), problem]))
        super().__init__(" ".join(f"{message}; {mend}".splitlines()) if mend else message)
        self.problem = problem
        self.file = file
        self.row = row
        self.column = column
        self.value = value
        self.mend = mend


@contextmanager
def expect_error(kind: type[BaseException], words: str = "") -> Iterator[None]:
    """Check that what is done inside ends in an error, and that its message has some words.

    Parameters
    ----------
    kind : of the error; any other one passes through
    words : part of its message

    Raises
    ------
    AssertionError : nothing went wrong, or the message says something else
    """
    try:
        yield
    except kind as error:
        assert words in str(error), f"{words!r} is not in {str(error)!r}"
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def embedded(name: str) -> Path:
    """Path of a file that comes with the package.

    Raises
    ------
    FileNotFoundError : the installation is damaged
    """
    for folder in (PACKAGE / "data", PACKAGE.parent / "data" / "embedded"):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"embedded data file {name!r} is missing from {PACKAGE / 'data'}: "
                            "reinstall sched_lab")


def book_home() -> Path:
    """Folder of chapters, stored results and the papers' numbers: in the package, or the checkout around it."""
    return PACKAGE / "book" if (PACKAGE / "book").is_dir() else PACKAGE.parent


class Later:
    """A module that is loaded when something of it is used.

    Parameters
    ----------
    name : of the module
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


class MissingPackage(SchedLabError, ModuleNotFoundError):
    """A package is needed that the base install does without.

    Parameters
    ----------
    package : as it is imported
    extra : what brings it
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package {package}, which is not installed; "
                         f"pip install 'sched_lab[{extra}]'", name=package)


@dataclass(frozen=True)
class Column:
    """What one column of a table may hold.

    Parameters
    ----------
    kind : "text", "integer" or "number"
    required : whether the file must have the column
    default : what stands in for an optional column that the file does not have
    minimum, maximum : the allowed range, ends included
    unique : whether each value may occur once only (and never be empty)
    blank : what an empty cell of numbers stands for; None if a cell must not be empty
    mend : advice for a wrong cell, as the end of an error message
    """

    kind: Literal["text", "integer", "number"]
    required: bool = True
    default: str | float | None = None
    minimum: float | None = None
    maximum: float | None = None
    unique: bool = False
    blank: float | None = None
    mend: str = ""

    @property
    def advice(self) -> str:
        """The mend, or else kind and range in words."""
        wanted = {
            "text": "give a text", "integer": "give a whole number",
            "number": "give a number"}[self.kind]
        low = self.minimum
        high = self.maximum
        if low is not None and high is not None:
            wanted += f" from {low} to {high}"
        elif low is not None or high is not None:
            wanted += f", {low} or more" if low is not None else f", at most {high}"
        return self.mend or wanted


LONGEST_WORD = 100  # letters of a word that are compared; nobody mistypes more


def nearest(word: str, words: Iterable[str]) -> str:
    """The one of some words that is meant, whatever its capitals; empty if none is near."""
    by_small = {one.lower(): one for one in reversed(list(words))}
    near = difflib.get_close_matches(word[:LONGEST_WORD].lower(), by_small, n=1)
    return by_small[near[0]] if near else ""


def _close(word: str, words: Iterable[str], otherwise: str) -> str:
    """Advice that names the word meant, if one is near."""
    near = nearest(word, words)
    return f"did you mean {near}?" if near else otherwise


def advice_on(word: str, words: Iterable[str], meant: str = "") -> str:
    """Mend of a word that is none of a closed vocabulary.

    Parameters
    ----------
    word, words : what was given, and all that could have been
    meant : the word meant, if that is known; otherwise the nearest
    """
    there = [one for one in words if one]
    meant = meant or nearest(word, there)
    return f"{f'did you mean {meant}? There are' if meant else 'choose one of'} {', '.join(there)}"


def check_one_of(word: str, words: Iterable[str], what: str) -> None:
    """Refuse a word that is none of a closed vocabulary.

    Parameters
    ----------
    word, words : what was given, and all that could have been
    what : what such a word names, as `policy`

    Raises
    ------
    InputError : with the word meant, if one is near, and all of them
    """
    there = list(words)
    if word not in there:
        raise InputError(f"there is no {what} {word!r:.60}", value=word,
                         mend=advice_on(word, there))


def first_repeated(words: Iterable[str]) -> str | None:
    """The first word that was there before; None if each is there once."""
    seen: set[str] = set()
    for word in words:
        if word in seen:
            return word
        seen.add(word)
    return None


LARGEST_INPUT_MIB = 128  # a trace of a million tasks has about 50
csv.field_size_limit(2**31 - 1)  # of a cell: that of its file is enough
PATIENCE_S = 60  # longest silence of a pipe


def _load(path: str | Path, largest_mib: int) -> bytes:
    """All bytes of a file, a pipe or a device that has not too many."""
    data = bytearray()
    # opening a pipe must not wait
    how = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, how), "rb", buffering=0) as file:
        is_plain = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        waiter = None if is_plain or not hasattr(select, "poll") else select.poll()
        if waiter:
            waiter.register(file, select.POLLIN)
        while True:
            if waiter and not waiter.poll(PATIENCE_S * 1000):
                raise InputError(f"nothing has come for {PATIENCE_S} s", file=path,
                                 mend="give a file, or write into the pipe")
            if (piece := file.read(2**20)) == b"":
                return bytes(data)
            data += piece or b""
            if len(data) > largest_mib * 2**20:
                raise _too_large(path, largest_mib)


def _too_large(path: str | Path, largest_mib: int, unpacked: str = "") -> InputError:
    return InputError(f"there are more than {largest_mib} MiB{unpacked}", file=path,
                      mend="give a smaller file")


def _unpacked(data: bytes, path: str | Path, largest_mib: int) -> bytes:
    """Content of a file, unpacked if it is gzip."""
    if Path(path).suffix != ".gz" and data[:2] != b"\x1f\x8b":
        return data
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(data)).read(largest_mib * 2**20 + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError("the gzip file is damaged or cut short", file=path,
                         mend="fetch or write it again") from None
    if len(content) > largest_mib * 2**20:
        raise _too_large(path, largest_mib, " in it, unpacked")
    return content


class InputFile(str):
    """The path of a file that has been read, and what was in it; readers take it as a path.

    Parameters
    ----------
    content : the bytes, unpacked if they were gzip
    sha256 : checksum of the bytes as they were in the file
    """

    content: bytes
    sha256: str


def _missing(path: str | Path) -> InputError:
    """Say that there is no such file, but perhaps one with nearly this name."""
    folder = Path(path).parent
    siblings = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    return InputError("there is no such file", file=path,
                      mend=_close(Path(path).name, siblings, "check the path"))


def reason_of(trouble: Exception) -> object:
    """What the operating system says of an error, or else its message."""
    return trouble.strerror if isinstance(trouble, OSError) and trouble.strerror else trouble


@contextmanager
def _refused(path: str | Path, mend: str) -> Iterator[None]:
    """Say what is wrong if the file cannot be read in the block."""
    try:
        yield
    except FileNotFoundError:
        raise _missing(path) from None
    except InputError:
        raise
    except (OSError, ValueError) as trouble:
        raise InputError(f"cannot be read ({reason_of(trouble)})", file=path, mend=mend) from None


def read_input(path: str | Path, sha256: str | None = None,
               largest_mib: int = LARGEST_INPUT_MIB) -> InputFile:
    """Read a file once.

    Parameters
    ----------
    path : the file; an input file is returned as it is
    sha256 : checksum that the file must have, if any
    largest_mib : size from which it is refused, packed and unpacked

    Raises
    ------
    InputError : it is missing, too large, silent for too long, damaged, or another file than it was
    """
    if isinstance(path, InputFile):
        return path
    error = partial(InputError, file=path)
    with _refused(path, "check the path and its rights"):
        if Path(path).is_dir():
            raise error("this is a folder, not a file", mend="name a file in it")
        data = _load(path, largest_mib)
    file = InputFile(path)
    file.sha256 = hashlib.sha256(data).hexdigest()
    if sha256 not in (None, file.sha256):
        raise error("the file has changed since it was first read",
                    mend="run again, and leave it alone meanwhile")
    file.content = _unpacked(data, path, largest_mib)
    return file


def read_bytes(path: str | Path) -> bytes:
    """Content of a file, unpacked if it is gzip (`read_input`)."""
    return read_input(path).content


_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars"}


def _check_delimiter(text: str, wanted: Set[str], path: str | Path) -> None:
    """Refuse a table whose header is one of ours but for what separates its cells."""
    row, head = next(((row, line) for row, line in enumerate(text.splitlines(), 1) if line.strip()),
                     (1, ""))
    names = {mark: {name.strip(' "') for name in head.split(mark)} for mark in (",", *_DELIMITERS)}
    for mark, words in _DELIMITERS.items():
        if names[mark] & wanted and mark in head and not names[","] & wanted:
            raise InputError(f"the cells are separated by {words}", file=path, row=row, value=mark,
                             mend="separate them by commas, and write decimal points")


def _records(path: str | Path, wanted: Set[str] = frozenset()) -> tuple[list[list[str]], list[int]]:
    """Header and rows of a CSV file, and the line on which each starts."""
    data = read_bytes(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as trouble:
        row = data.count(b"\n", 0, trouble.start) + 1
        byte = f"0x{data[trouble.start]:02x}"
        raise InputError(f"byte {byte} is not UTF-8 text", file=path, row=row, value=byte,
                         mend="save the table as CSV in UTF-8") from None
    _check_delimiter(text, wanted, path)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    records = []
    lines = []
    line = 1
    try:
        for record in reader:
            if len(record) > 1 or "".join(record).strip():
                records.append(record)
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as trouble:
        raise InputError(f"this is not CSV ({trouble})", file=path, row=line,
                         mend="close every quotation mark and separate cells by commas") from None
    return records, lines


def _check_shape(records: list[list[str]], lines: list[int], path: str | Path) -> list[str]:
    """Column names of a table that is rectangular and not empty."""
    error = partial(InputError, file=path)
    if not records:
        raise error("the file is empty", mend="give a header line and at least one row")
    header = [name.strip() for name in records[0]]
    if len(records) == 1:
        raise error("there is a header but no row", row=lines[0], mend="give at least one row")
    if again := first_repeated(filter(None, header)):
        raise error("the header names this column twice", row=lines[0], column=again, value=again,
                    mend="keep one")
    for record, line in zip(records, lines, strict=True):
        if len(record) != len(header):
            raise error(f"there are {len(record)} cells under a header of {len(header)}", row=line,
                        value=",".join(record), mend="give one cell for each column")
    return header


def read_header(path: str | Path) -> list[str]:
    """Column names of a CSV file."""
    return _check_shape(*_records(path), path)


_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST_INTEGER = 2**53  # beyond this, not every whole number is a float


def _shown(cell: str) -> str:
    """A cell as an error message shows it: numbers bare, all else quoted, long ones shortened."""
    text = cell if _NUMBER.fullmatch(cell) else repr(cell)
    return text if len(text) <= 60 else text[:57] + "..."


def _refuse(error: partial[InputError], cells: Sequence[str], lines: Sequence[int], position: int,
            words: str, mend: str) -> NoReturn:
    """Raise the error of one cell."""
    cell = cells[position]
    problem = f"{_shown(cell)} {words}" if cell else "the cell is empty"
    raise error(problem, row=lines[position], value=cell, mend=mend)


def _numbers(cells: Sequence[str], lines: Sequence[int], column: Column,
             error: partial[InputError]) -> np.ndarray:
    """Numbers of a column, (n_rows,), all checked; empty cells may have a meaning."""
    filled = [position for position, cell in enumerate(cells) if cell or column.blank is None]
    if len(filled) < len(cells):
        values = np.full(len(cells), column.blank)
        values[filled] = _numbers([cells[i] for i in filled], [lines[i] for i in filled], column,
                                  error)
        return values
    if not all(map(_NUMBER.fullmatch, cells)):
        position = next(i for i, cell in enumerate(cells) if not _NUMBER.fullmatch(cell))
        infinite = cells[position].lower().lstrip("+-") in ("nan", "inf", "infinity")
        words = "is not a finite number" if infinite else "is not a number"
        _refuse(error, cells, lines, position, words, column.advice)
    numbers = np.array(list(map(float, cells)))
    whole = column.kind == "integer"
    low = column.minimum
    high = column.maximum
    checks = [
        (~np.isfinite(numbers), "is not a finite number"),
        (whole & (numbers != np.rint(numbers)), "is not a whole number"),
        (whole & (np.abs(numbers) > _LARGEST_INTEGER), "is too large"),
        (numbers
         < (-math.inf if low is None else low), "is negative" if low == 0 else f"is below {low}"),
        (numbers > (math.inf if high is None else high), f"is above {high}"), ]
    for is_wrong, words in checks:
        if is_wrong.any():
            _refuse(error, cells, lines, int(np.argmax(is_wrong)), words, column.advice)
    return numbers.astype(np.int64) if whole else numbers


def _check_unique(values: Sequence[str] | np.ndarray, cells: Sequence[str], lines: Sequence[int],
                  column: Column, error: partial[InputError]) -> None:
    """Refuse an empty or repeated value."""
    if "" in cells:
        _refuse(error, cells, lines, cells.index(""), "", column.mend
                or "give each row its own value")
    is_repeated = pd.Series(values).duplicated().to_numpy()
    if is_repeated.any():
        position = int(np.argmax(is_repeated))
        first = lines[list(values).index(values[position])]
        _refuse(error, cells, lines, position, f"is already in row {first}",
                column.mend or "give each row its own value")


def read_table(path: str | Path, columns: Mapping[str, Column]) -> pd.DataFrame:
    """Read and check a CSV file (plain or gzip).

    Parameters
    ----------
    path : the file
    columns : the columns wanted, by name; others in the file are ignored

    Returns
    -------
    one column per entry of `columns`, in that order; the index `row` is the line number in the file

    Raises
    ------
    InputError : at the first thing that is wrong
    """
    records, lines = _records(path, columns.keys())
    header = _check_shape(records, lines, path)
    for name, column in columns.items():
        if column.required and name not in header:
            there = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
            raise InputError(f"the column is missing; there are {there}",
                             file=path, row=lines[0], column=name, mend=_close(
                                 name, header, "add it, or choose another file"))
    lines = lines[1:]
    values: dict[str, Any] = {}
    for name, column in columns.items():
        if name not in header:
            missing = {"text": "", "integer": 0, "number": math.nan}[column.kind]
            values[name] = [missing if column.default is None else column.default] * len(lines)
            continue
        position = header.index(name)
        error = partial(InputError, file=path, column=name)
        cells = [record[position].strip() for record in records[1:]]
        values[name] = cells if column.kind == "text" else _numbers(cells, lines, column, error)
        if column.unique:
            _check_unique(values[name], cells, lines, column, error)
    return pd.DataFrame(values, index=pd.Index(lines, name="row"))


def as_plain(value: Any) -> Any:
    """The same value in JSON's few types."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): as_plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(part) for part in value]
    if isinstance(value, set | frozenset):
        return sorted((as_plain(part) for part in value), key=repr)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.as_posix() if isinstance(value, Path) else value


def input_key(parameters: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits that name a set of parameters."""
    text = json.dumps(as_plain(parameters), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sha256(path: str | Path) -> str:
    """Checksum of a file's bytes, as `sha256sum` prints it."""
    with _refused(path, "check the path"):
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InputError("this is no plain file", file=path,
                             mend="give a file that can be read more than once")
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_output(path: str | Path, trouble: Exception) -> NoReturn:
    """Say that nothing can be written here."""
    raise OutputError(f"{path}: cannot be written ({reason_of(trouble)}); "
                      "choose another --out") from trouble


@contextmanager
def _with_parents(folder: Path) -> Iterator[None]:
    """Create a folder and its parents; upon an error take back those that are new."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for part in missing:
            with suppress(OSError):
                part.rmdir()
        raise


def hidden_neighbour(target: Path) -> Path:
    """The hidden neighbour of a file or folder that this process writes."""
    return target.with_name(f".{target.name}.partial-{os.getpid()}")


def _is_alive(process: int) -> bool:
    """Whether a process of this number runs (taken for granted where it costs too much to ask)."""
    try:
        if os.name == "posix":
            os.kill(process, 0)
        return True
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True


def remove_leftovers(folder: Path, pattern: str) -> None:
    """Remove what killed processes left of files or folders whose names match a pattern."""
    with suppress(OSError):
        for left in list(folder.iterdir()):
            found = re.fullmatch(rf"\.(?:{pattern})\.partial-([0-9]+)", left.name)
            if found is None or _is_alive(int(found[1])):
                continue
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def write_bytes(data: bytes, path: str | Path) -> Path:
    """Write a file so that it appears whole or not at all.

    Raises
    ------
    OutputError : it cannot be written here; nothing is left behind
    """
    target = Path(path)
    try:
        with _with_parents(target.parent):
            remove_leftovers(target.parent, re.escape(target.name))
            neighbour = hidden_neighbour(target)
            try:
                neighbour.unlink(missing_ok=True)  # a link that somebody has put there is not ours
                with open(neighbour, "xb") as file:  # and "x" follows none
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(neighbour, target)
            finally:
                neighbour.unlink(missing_ok=True)
    except (OSError, ValueError) as trouble:
        refuse_output(path, trouble)
    return target


def write_json(value: Any, path: str | Path) -> Path:
    """Write JSON with sorted keys, two spaces of indent and a newline at the end, atomically.

    Parameters
    ----------
    value : numbers, texts, lists and mappings, those of NumPy too
    path : the file
    """
    text = json.dumps(as_plain(value), sort_keys=True, indent=2, ensure_ascii=False,
                      allow_nan=False)
    return write_bytes(f"{text}\n".encode(), path)


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises
    ------
    InputError : the file is missing, or holds no such object
    """
    try:
        value = json.loads(read_bytes(path))
    except ValueError as trouble:
        if isinstance(trouble, InputError):
            raise
        raise InputError("this is not JSON", file=path, mend="give a JSON object") from None
    except RecursionError:
        raise InputError("the lists and objects lie too deep in each other", file=path,
                         mend="give a flatter JSON object") from None
    if not isinstance(value, dict):
        raise InputError("this is not a JSON object", file=path, mend="give one, {...}")
    return value


def printable(text: str) -> str:
    """A text on one line, whatever characters it has."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def iso_moment(text: str) -> datetime | None:
    """A date as ISO 8601 writes it, in UTC if it names no zone; None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    InputError : the file is missing, or is not TOML
    """
    data = read_bytes(path)
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except ValueError as trouble:
        raise InputError(f"this is not TOML ({trouble})", file=path, mend="mend the file") from None
    except RecursionError:
        raise InputError("the lists and tables lie too deep in each other", file=path,
                         mend="mend the file") from None


def sidecar_path(path: str | Path) -> Path:
    """`curves.json` for `curves.csv`, `curves.csv.gz` and `curves.parquet`."""
    target = Path(path)
    stem = re.fullmatch(r"(.+)\.(?:csv|csv\.gz|parquet)", target.name)
    if stem is None:
        raise OutputError(f"{path}: a frame is a .csv, .csv.gz or .parquet file; rename it")
    return target.with_name(f"{stem[1]}.json")


def _refuse_carriage_returns(frame: pd.DataFrame, path: str | Path) -> None:
    """Refuse a text that CSV, as pandas writes it, does not bring back."""
    for number, name in enumerate(frame):
        values = [name, *(frame.iloc[:, number] if frame.dtypes.iloc[number].kind == "O" else ())]
        if wrong := next((value for value in values if isinstance(value, str) and "\r" in value),
                         None):
            raise InputError(f"{wrong!r} has a carriage return, which CSV does not bring back",
                             file=path, column=str(name).replace("\r", "\\r"), value=wrong,
                             mend="replace it, for instance by \\n")


CSV_ROWS = 2**16  # that are texts at once
PLAIN_NUMBERS = ("bool", "int64", "float64", "Int64", "Float64")
MUST_QUOTE = re.compile('[,"\\r\\n]')


def csv_of(frame: pd.DataFrame) -> bytes:
    """A table as CSV, as all files have it: no index, lines that end with a newline."""
    if len(frame) <= CSV_ROWS or frame.shape[1] < 2:  # a lone empty cell is quoted
        return frame.to_csv(index=False, lineterminator="\n").encode()
    parts = [frame.iloc[first:first + CSV_ROWS] for first in range(0, len(frame), CSV_ROWS)]
    return b"".join([csv_of(frame.iloc[:0]), *map(_lines_of, parts)])


def _lines_of(part: pd.DataFrame) -> bytes:
    """Rows as lines of CSV, the same as by pandas, which holds 128 bytes for every float of a table at once."""
    columns = []
    for _, column in part.items():
        cells = column.to_numpy(object, na_value="").tolist()
        if str(column.dtype) in PLAIN_NUMBERS:
            cells = list(map(str, cells))
        elif pd.api.types.infer_dtype(cells, skipna=False) != "string" or MUST_QUOTE.search("".join(cells)):
            return part.to_csv(index=False, header=False, lineterminator="\n").encode()
        columns.append(cells)
    return "\n".join([*map(",".join, zip(*columns, strict=True)), ""]).encode()


def write_frame(frame: pd.DataFrame, path: str | Path, parameters: Mapping[str, Any],
                *, wall_time_s: float | None = None) -> Path:
    """Write a frame and its sidecar, each atomically, the sidecar last.

    Parameters
    ----------
    frame : texts, numbers and truth values; the index is not kept
    path : a .csv, .csv.gz or .parquet file
    parameters : all that the frame depends on, checksums of inputs included
    wall_time_s : how long it took to compute

    Raises
    ------
    InputError : if a text has a carriage return, which would not come back as it was
    """
    sidecar = sidecar_path(path)
    _refuse_carriage_returns(frame, path)
    if Path(path).suffix == ".parquet":
        data = frame.to_parquet(index=False)
    else:
        data = csv_of(frame)
    if Path(path).suffix == ".gz":
        buffer = io.BytesIO()  # without a time or name inside: equal content, equal bytes
        with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as file:
            file.write(data)
        data = buffer.getvalue()
    target = write_bytes(data, path)
    about = {
        "parameters": parameters, "key": input_key(parameters), "sha256": sha256(target),
        "rows": len(frame), "columns": {
            str(name): str(kind) for name, kind in frame.dtypes.items()}, "sched_lab": __version__}
    write_json(about if wall_time_s is None else about | {"wall_time_s": round(wall_time_s, 3)},
               sidecar)
    return target


def read_sidecar(path: str | Path) -> dict[str, Any]:
    """What is known about a frame: parameters, key, checksum, shape, version."""
    sidecar = sidecar_path(path)
    error = partial(InputError, file=sidecar, mend="run the experiment again")
    if not sidecar.is_file():
        raise error(f"the sidecar is missing, so {Path(path).name} was not finished")
    try:
        about = read_json(sidecar)
    except InputError:
        raise error("the sidecar is damaged") from None
    if not {"key", "sha256", "columns", "parameters"} <= about.keys():
        raise error("this is not the sidecar of a frame")
    return about


def read_frame(path: str | Path) -> pd.DataFrame:
    """Read a frame that `write_frame` wrote.

    Raises
    ------
    InputError : file or sidecar is missing, or the file is not the one that was written
    """
    about = read_sidecar(path)
    if sha256(path) != about["sha256"]:
        raise InputError(
            "the file is damaged, cut short or edited: its checksum is not the one in the sidecar",
            file=path, mend="run the experiment again")
    frame = pd.read_csv(path, dtype="str", keep_default_na=False)
    for name, kind in about["columns"].items():
        if kind == "bool":
            frame[name] = frame[name] == "True"
        elif kind.startswith(("int", "uint", "float")):
            # Python's own parsing: the very same float
            frame[name] = frame[name].replace("", "nan").astype(kind)
    return frame


def is_finished(path: str | Path, parameters: Mapping[str, Any]) -> bool:
    """Whether this frame is there, whole, and computed from these parameters.

    Parameters
    ----------
    path : a .csv, .csv.gz or .parquet file
    parameters : all that it must depend on
    """
    try:
        about = read_sidecar(path)
        return bool(about["key"] == input_key(parameters) and about["sha256"] == sha256(path))
    except InputError:
        return False


_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


def _publish(partial_folder: Path, folder: Path) -> None:
    """Move finished files to their place."""
    files = [
        path.relative_to(partial_folder) for path in partial_folder.rglob("*") if not path.is_dir()]
    for name in files:
        with open(partial_folder / name, "rb") as file:
            os.fsync(file.fileno())
        if (folder / name).is_dir():
            raise IsADirectoryError(errno.EISDIR, f"{name} is a folder there")
    if not folder.exists():
        os.rename(partial_folder, folder)
        return
    for name in sorted(files, key=lambda name:
                       (name.suffix == ".json", name.name == "summary.json", name)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial_folder / name, folder / name)


def _is_ours(trouble: OSError, partial_folder: Path) -> bool:
    """Whether an error of the operating system is about writing the results."""
    return trouble.errno in _NO_ROOM or str(trouble.filename or "").startswith(str(partial_folder))


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Lend a hidden folder to write into; its files appear under `path` when the block ends well.

    Raises
    ------
    OutputError : it cannot be written here; nothing is left behind
    """
    ensure_writable(path)
    folder = Path(path).resolve()
    target = folder / "run" if folder.is_dir() else folder  # a neighbour of it is on the same disk
    hidden = hidden_neighbour(target)
    is_lent = False
    try:
        with _with_parents(target.parent):
            for place in {folder, target}:
                remove_leftovers(place.parent, re.escape(place.name))
            try:
                hidden.mkdir()
                is_lent = True
                yield hidden
                is_lent = False
                _publish(hidden, folder)
            finally:
                shutil.rmtree(hidden, ignore_errors=True)
    except OSError as trouble:
        if isinstance(trouble, OutputError):
            raise OutputError(str(trouble).replace(str(hidden), str(path))) from trouble
        if is_lent and not _is_ours(trouble, hidden):
            raise
        refuse_output(path, trouble)


def ensure_writable(path: str | Path) -> None:
    """Refuse, before any work is done, a folder that cannot be written; leaves nothing behind.

    Raises
    ------
    OutputError : the folder cannot be created or written, or is a file
    """
    try:
        folder = next(part for part in (Path(path), *Path(path).parents) if os.path.lexists(part))
        if not folder.is_dir():
            name = "it" if folder == Path(path) else folder
            raise NotADirectoryError(errno.ENOTDIR, f"{name} is a file, not a folder")
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except (OSError, ValueError) as trouble:
        refuse_output(path, trouble)
