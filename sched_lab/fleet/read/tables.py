"""Nodes and timed tasks of anybody's cluster in one pair of tables, and a ledger of all that was not taken as it stood."""

# A module, written by hand.

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import math
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ...lab.arrays import Floats, Texts
from ...lab.frames import (
    InputError,
    InputFile,
    csv_of,
    first_repeated,
    read_input,
    read_json,
    write_bytes,
    write_json,
)
from ...lab.reports import Answer, check_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ['NODE_COLUMNS', 'TASK_COLUMNS', 'CLUSTER_FILES', 'CLUSTER_RECORD', 'Ledger', 'Source', 'sources_of', 'text_table',
           'numbers_in', 'unique_names', 'ClusterTables', 'tables_of', 'with_names', 'write_cluster',
           'cluster_answer', 'read_cluster', 'ReadOptions', 'Format', 'milli_of_profile']

NODE_COLUMNS = {
    "name": "text", "gpu_model": "text", "num_gpus": "integer", "cpu_milli": "integer",
    "memory_mib": "integer", "gpu_memory_mib": "integer", "labels": "text", "taints": "text",
    "devices": "text"}
TASK_COLUMNS = {
    "name": "text", "submit_s": "time", "start_s": "time", "end_s": "time", "num_gpus": "integer",
    "gpu_milli": "integer", "mig_profile": "text", "gpu_models": "text", "cpu_milli": "integer",
    "memory_mib": "integer", "node": "text", "gpu_list": "text", "user": "text", "queue": "text",
    "priority": "integer", "constraints": "text", "state": "text", "job": "text",
    "lacking_parts": "integer", "fixed": "text", "walltime_s": "time", "account": "text", "qos": "text"}

TIMES = ("submit_s", "start_s", "end_s")
OPTIONAL = (  # written only where some row has one
    "taints", "devices", "constraints", "state", "job", "lacking_parts", "fixed", "walltime_s", "account",
    "qos")
WAITING = "waiting"  # state of a task that a dump says waits; empty for all others
LEDGER_COLUMNS = {
    "file": "text", "row": "integer", "what": "text", "reason": "text", "count": "integer"}
LARGEST = 2**53  # beyond this, not every whole number is a float
MOST_PER_NODE = 2**31  # tasks of an application that a limit may allow


CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]+")  # what would break a line


def with_columns(frame: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """The same rows with exactly these columns, unknown where the frame has none.

    Parameters
    ----------
    columns : "text", "integer" or "time" by name
    """
    done = {}
    for name, kind in columns.items():
        values = frame[name] if name in frame else pd.Series([None] * len(frame), dtype="object")
        values = values.reset_index(drop=True)
        done[name] = texts_of(values) if kind == "text" else numbers_of(values, kind)
    return pd.DataFrame(done, columns=list(columns))


def texts_of(values: pd.Series) -> pd.Series:
    """Texts on one line each, empty where unknown."""
    texts = values.astype("object").where(values.notna(), "").astype(str).astype("object")
    is_plain = CONTROL.search("".join(texts)) is None
    return texts if is_plain else texts.str.replace(CONTROL, " ", regex=True).astype("object")


def numbers_of(values: pd.Series, kind: str) -> pd.Series:
    """Numbers, NA where unknown: whole ones if all are whole, or if they must be."""
    numbers: Any = values.astype("Float64")
    is_whole = bool((numbers.dropna() % 1 == 0).all() and (numbers.dropna().abs() <= LARGEST).all())
    if kind == "integer" and not is_whole:
        numbers = np.floor(numbers + 0.5).clip(-LARGEST, LARGEST)
    done: pd.Series = numbers.astype("Int64" if kind == "integer" or is_whole else "Float64")
    return done


class Ledger:
    """What was dropped, filled in or interpreted: one line for each file, deed and reason."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str, str], list[int | None]] = {}

    def note(self, file: str, row: int | None, what: str, reason: str, count: int = 1) -> None:
        """Write a line, or count it if it is there already.

        Parameters
        ----------
        file : name of the file, or of the option that asked for it
        row : the first row that it is about, counted as a reader of the file would; None for all
        what : dropped, filled in, interpreted, extra column or assumed
        reason : why, in words that are the same for equal cases
        count : how many rows it is about
        """
        if count > 0:
            line = self._lines.setdefault((file, what, reason), [row, 0])
            line[0] = row if None in (row, line[0]) else min(row, line[0])  # type: ignore
            line[1] = (line[1] or 0) + int(count)

    def frame(self) -> pd.DataFrame:
        """One row for each line: file, row, what, reason, count."""
        rows = [(file, row, what, reason, count)
                for (file, what, reason), (row, count) in self._lines.items()]
        return with_columns(pd.DataFrame(rows, columns=list(LEDGER_COLUMNS)), LEDGER_COLUMNS)


def note_rows(ledger: Ledger, file: str, rows: Any, what: str, reason: str) -> None:
    """Note many rows at once.

    Parameters
    ----------
    rows : row numbers, (n,); nothing is noted if there are none
    """
    rows = np.asarray(rows)
    if rows.size:
        ledger.note(file, int(rows[0]), what, reason, rows.size)


@dataclass(frozen=True)
class Source:
    """A file that was read once, unpacked.

    Parameters
    ----------
    name : as the reader gave it; of a file in an archive, `archive.zip!inner.json`
    data : its bytes
    """

    name: str
    data: bytes
    _kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def head(self, size: int) -> str:
        """The characters of so many of its first bytes, whatever they are."""
        return self.data[:size].decode(encoding_of(self.data), errors="replace").lstrip("\ufeff")

    def text(self) -> str:
        """The characters of the file.

        Raises
        ------
        InputError : it is neither UTF-8 nor UTF-16
        """
        if "text" not in self._kept:
            encoding = encoding_of(self.data)
            try:
                self._kept["text"] = self.data.decode(encoding)
            except UnicodeDecodeError as trouble:
                byte = f"byte 0x{self.data[trouble.start]:02x} at position {trouble.start}"
                what = "UTF-16" if encoding.startswith("utf-16") else "UTF-8"
                raise InputError(
                    f"{byte} is not {what} text", file=self.name,
                    row=self.data.count(b"\n", 0, trouble.start) + 1,
                    mend="give plain text in UTF-8, gzip, or a ZIP archive of it") from None
        return str(self._kept["text"])

    def json(self) -> Any:
        """The value of a JSON file.

        Raises
        ------
        InputError : it is not JSON; the message says at which position
        """
        if "json" not in self._kept:
            self._kept["json"] = parsed(self.text(), self.name)
        return self._kept["json"]


def encoding_of(data: bytes) -> str:
    """Encoding of a text, from its first bytes."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if data[:1] != b"\0" and data[1:2] == b"\0" and data[3:4] == b"\0":
        return "utf-16-le"
    if data[:1] == b"\0" and data[1:2] != b"\0":
        return "utf-16-be"
    return "utf-8-sig"


def pairs_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Object of JSON, each name once."""
    value = dict(pairs)
    if len(value) < len(pairs):
        again = first_repeated(name for name, _ in pairs)
        raise ValueError(f"an object has the name {again!r:.60} twice")
    return value


def refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")


DECODER = json.JSONDecoder(object_pairs_hook=pairs_once, parse_constant=refuse_constant)
SPACE = re.compile(r"[\s\x1e]*")
HALF = re.compile(r"\\u[dD][89a-fA-F]")  # of a character beyond the first 65,536


def values_in(text: str) -> list[Any]:
    """All values of JSON that stand one after the other in a text; none ends within a character."""
    values = []
    position = SPACE.match(text).end()  # type: ignore[union-attr]
    while position < len(text):
        value, position = DECODER.raw_decode(text, position)
        values.append(value)
        position = SPACE.match(text, position).end()  # type: ignore[union-attr]
    if HALF.search(text):
        try:
            json.dumps(values, ensure_ascii=False).encode()
        except UnicodeEncodeError as trouble:
            half = trouble.object[trouble.start]
            raise ValueError(f"\\u{ord(half):04x} is half of a character") from None
    return values


def parsed(text: str, name: str) -> Any:
    """Value of a JSON text; of several values, their list."""
    error = partial(InputError, file=name, mend="write the file again, whole")
    try:
        values = values_in(text)
    except json.JSONDecodeError as trouble:
        is_cut = trouble.pos >= len(text.rstrip()) - 1 or trouble.msg.startswith("Unterminated")
        problem = "the JSON is cut short" if is_cut else f"this is not JSON ({trouble.msg})"
        raise error(f"{problem} at position {trouble.pos} of {len(text)}, column {trouble.colno}",
                    row=trouble.lineno) from None
    except RecursionError:
        raise error("the lists and objects lie too deep in each other") from None
    except ValueError as trouble:
        raise error(f"this is not JSON that can be trusted: {trouble}") from None
    if not values:
        raise error("the file is empty")
    return values[0] if len(values) == 1 else values


LARGEST_DUMP_MIB = 2048  # a month of a large cluster, unpacked


def dump_file(path: str | Path) -> InputFile:
    """A file of a cluster, which may be larger than other inputs."""
    return read_input(path, largest_mib=LARGEST_DUMP_MIB)


def members_of(name: str, data: bytes) -> list[Source]:
    """Files in a ZIP archive.

    Raises
    ------
    InputError : it is damaged, encrypted, or unpacks to more than an input may have
    """
    largest = LARGEST_DUMP_MIB * 2**20
    found = []
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            if not infos:
                raise InputError("the ZIP archive has no file in it", file=name,
                                 mend="write it again")
            if sum(info.file_size for info in infos) > largest:
                raise InputError(f"there are more than {LARGEST_DUMP_MIB} MiB in it, unpacked",
                                 file=name, mend="give its files one by one, packed with gzip")
            for info in infos:
                with archive.open(info) as member:
                    content = member.read(largest + 1)
                found.append(Source(f"{name}!{info.filename}", content))
    except (zipfile.BadZipFile, EOFError, OSError, RuntimeError, NotImplementedError,
            zlib.error) as trouble:
        raise InputError(f"the ZIP archive cannot be unpacked ({trouble})", file=name,
                         mend="fetch or write it again, without a password") from None
    return found


def sources_of(paths: Iterable[str | Path]) -> list[Source]:
    """Read files, each once.

    Raises
    ------
    InputError : one is missing, empty, too large or damaged
    """
    found: list[Source] = []
    for path in paths:
        file = dump_file(path)
        if file.content[:4] in (b"PK\x03\x04", b"PK\x05\x06"):  # with files, and without any
            found += members_of(str(path), file.content)
        else:
            found.append(Source(str(path), file.content))
    if empty := next((source for source in found if not source.data.strip()), None):
        raise InputError("the file is empty", file=empty.name, mend="write it again")
    return found


SEPARATORS = (",", ";", "\t")


def text_table(source: Source, numbers: Container[str] = ()) -> pd.DataFrame:
    """Cells of a table with a header, as texts without blanks around them.

    Parameters
    ----------
    source : the file
    numbers : columns that are floats, NaN where a cell is empty, if nothing else stands in any of them

    Returns
    -------
    one column for each name of the header; the index `row` is the line in the file

    Raises
    ------
    InputError : it has no header or no row, names a column twice, or a row has another length
    """
    error = partial(InputError, file=source.name)
    separator, header = head_of(source)
    if len(header) > MOST_COLUMNS:
        raise error(f"there are {len(header):,} columns", row=1,
                    mend=f"give a table with at most {MOST_COLUMNS:,}")
    if (again := first_repeated(header)) is not None:
        raise error("the header names this column twice", row=1, column=again or "without name",
                    mend="keep one")
    text = source.text()
    frame = cells_of(text, separator, error, {place: "float64" if name in numbers else "object"
                                              for place, name in enumerate(header)})
    if frame.shape[1] != len(header):
        raise error(f"there are {frame.shape[1]} cells under a header of {len(header)}", row=2,
                    mend="give one cell for each column")
    frame.columns = pd.Index(header)
    has_blanks = not text.isascii() or any(sign in text for sign in BLANKS)
    for name in header if has_blanks else ():
        if frame[name].dtype == object:
            frame[name] = frame[name].str.strip()
    frame.index = pd.RangeIndex(2, len(frame) + 2, name="row")
    return frame


BLANKS = " \t\v\f\r\x1c\x1d\x1e\x1f\""  # of ASCII, and what may enclose the end of a line
LONGEST_HEADER = 2**20  # letters
MOST_COLUMNS = 1000


def head_of(source: Source) -> tuple[str, list[str]]:
    """What stands between the names of a header, and the names; of equals, the first separator."""
    if "head" not in source._kept:
        line = next(iter(source.text()[:LONGEST_HEADER].lstrip("\r\n").splitlines()), "")
        heads: list[tuple[str, list[str]]] = []
        for separator in SEPARATORS:
            names: list[str] = []
            with suppress(csv.Error):
                names = next(csv.reader([line], delimiter=separator), [])
            heads.append((separator, [name.strip() for name in names]))
        source._kept["head"] = max(heads, key=lambda head: len(head[1]))
    head: tuple[str, list[str]] = source._kept["head"]
    return head


def header_of(source: Source) -> list[str]:
    """Names in the first line of a file, blanks around them removed; empty if it is no text."""
    return head_of(source)[1]


TRUTHS = [form(word) for word in ("true", "false") for form in (str.lower, str.title, str.upper)]    # 1 and 0 to pandas


def cells_of(text: str, separator: str, error: partial[InputError], kinds: Mapping[int, str]) -> pd.DataFrame:
    """Cells under the header, (n_rows, n_columns); rows of another length are refused.

    Parameters
    ----------
    text, separator, error : the table, what stands between its cells, and an error about it
    kinds : object or float64 for each column; all are texts if one of the latter has other cells than `text_table` says
    """
    read: Callable[..., Any] = partial(pd.read_csv, sep=separator, header=None, skiprows=1,
                                       keep_default_na=False, skip_blank_lines=True)
    data = text.encode()
    frame: pd.DataFrame | None = None
    numbers = {place: [""] for place, kind in kinds.items() if kind != "object"}
    if numbers and not any(word in text for word in TRUTHS):
        with suppress(ValueError, OverflowError):
            frame = read(io.BytesIO(data), dtype=kinds, na_values=numbers)  # in pieces: a third of the memory
    try:
        frame = read(io.BytesIO(data), dtype="object", low_memory=False) if frame is None else frame
        short = short_row(text, separator, *frame.shape)
    except pd.errors.EmptyDataError:
        raise error("there is a header but no row", row=1, mend="give at least one row") from None
    except (pd.errors.ParserError, csv.Error, ValueError) as trouble:
        place = re.search(r"(?:line|row) (\d+)", str(trouble))
        reason = str(trouble).rpartition("error: ")[2].strip()
        raise error(f"this is not a table ({reason})", row=int(place[1]) if place else None,
                    mend="give one cell for each column, and close every quotation mark") from None
    if short:
        raise error("this row has fewer cells than the first one", row=short,
                    mend="give one cell for each column")
    return frame


def short_row(text: str, separator: str, height: int, width: int) -> int:
    """Number of the first row with fewer cells, the header being 1; 0 if there is none."""
    under = text.find("\n", len(text) - len(text.lstrip("\r\n")))  # the header
    if '"' not in text and under >= 0 and text.count(separator, under) == height * (width - 1):
        return 0
    if '"' in text:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        widths = (len(row) for row in rows if row)
    else:
        lines = io.StringIO(text, newline=None)
        widths = (line.count(separator) + 1 for line in lines if line.strip())
    return next((row for row, found in enumerate(widths, 1) if found < width and row > 1), 0)


UNKNOWN = {"", "none", "null", "nan", "n/a", "na", "unknown", "nil", "-"}


class Cells(NamedTuple):
    """The cells of a column that say something, and whom to tell about them.

    Parameters
    ----------
    texts : the cells, indexed by their place in the column
    rows : (n_rows,) number of each row in the file
    name : of the column
    source, ledger : the file, and where doubts go
    """

    texts: pd.Series
    rows: pd.Index
    name: str
    source: Source
    ledger: Ledger

    def note(self, is_so: pd.Series, reason: str) -> None:
        """Put the cells of a mask, indexed as the texts, into the ledger."""
        places = is_so.index[is_so.to_numpy(bool)]
        note_rows(self.ledger, self.source.name, self.rows[places], "interpreted",
                  f"column {self.name}: {reason}")

    def row_of(self, text: str) -> int:
        """First row with a text."""
        place = int((self.texts == text).to_numpy().argmax())
        return int(self.rows[self.texts.index[place]])

    def error(self, text: str, problem: str, mend: str) -> InputError:
        """Error about the first cell with a text."""
        return InputError(problem, file=self.source.name, row=self.row_of(text), column=self.name,
                          value=text, mend=mend)

    def column(self, numbers: pd.Series) -> pd.Series:
        """All of the column, unknown where the cells say nothing."""
        whole = numbers.reindex(range(len(self.rows))).astype("Float64")
        return whole.set_axis(self.rows).rename(self.name)


def cells_in(texts: pd.Series, source: Source, ledger: Ledger) -> Cells:
    """Cells of a column that say something."""
    known = texts.astype("object").where(texts.notna(), "").astype(str).str.strip()
    known = known.reset_index(drop=True)
    return Cells(known[~known.str.lower().isin(UNKNOWN)], texts.index, str(texts.name), source,
                 ledger)


DECIMAL_COMMA = r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+"
COMMAS_OF_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?"
POINTS_OF_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+"


def plain_numbers(cells: Cells) -> pd.Series:
    """Finite numbers of cells, NaN for those that are none; a comma is read in one way.

    Raises
    ------
    InputError : a comma may be a decimal one or stand between thousands
    """
    texts = cells.texts
    has_comma = texts.str.contains(",", regex=False)
    if has_comma.any():
        is_decimal = texts.str.fullmatch(DECIMAL_COMMA)
        is_thousands = texts.str.fullmatch(COMMAS_OF_THOUSANDS)
        decided = (is_decimal != is_thousands) & has_comma
        readings = {"decimal": bool((is_decimal & decided).any()),
                    "of thousands": bool((is_thousands & decided).any())}
        doubtful = texts[is_decimal & is_thousands]
        if all(readings.values()) or (len(doubtful) and not any(readings.values())):
            text = texts[is_decimal if all(readings.values()) else doubtful.index].iloc[0]
            raise cells.error(text, f"the comma of {text!r:.60} may be a decimal one or stand "
                              "between thousands", "write all numbers of a column with a point, "
                              "and nothing between thousands")
        name = next((name for name, is_so in readings.items() if is_so), "")
        if name:
            cells.note(is_decimal if name == "decimal" else is_thousands,
                       f"commas are {name}")
        if name == "decimal":
            has_point = texts.str.contains(".", regex=False) & ~has_comma
            if (wrong := texts[has_point & ~texts.str.fullmatch(POINTS_OF_THOUSANDS)]).size:
                raise cells.error(wrong.iloc[0], f"{wrong.iloc[0]!r:.60} has a point, and others "
                                  "a decimal comma", "write all numbers of a column alike")
            texts = texts.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
        elif name:
            texts = texts.where(~is_thousands, texts.str.replace(",", "", regex=False))
    numbers = pd.to_numeric(texts, errors="coerce").astype("float64")
    return numbers.where(np.isfinite(numbers))


def numbers_in(texts: pd.Series, source: Source, ledger: Ledger) -> pd.Series:
    """Numbers of a column of texts; a cell that is none becomes unknown, and the ledger says so.

    Parameters
    ----------
    texts : (n_rows,), indexed by row and named as the column; empty, `None`, `NULL`, `nan`, `N/A`
        and `Unknown` are unknown without further words
    source : the file
    ledger : where it is noted
    """
    cells = cells_in(texts, source, ledger)
    numbers = plain_numbers(cells)
    cells.note(numbers.isna(), "not a finite number, taken as unknown")
    return cells.column(numbers)


def unique_names(frame: pd.DataFrame, file: str, ledger: Ledger) -> pd.DataFrame:
    """Rows with a name of their own: repeated rows dropped, other rows of a name renamed `NAME#2`.

    Parameters
    ----------
    frame : rows with a column `name`; the index has their row numbers
    file : name of the file
    ledger : where it is noted
    """
    if frame["name"].is_unique:
        return frame
    is_again = frame.duplicated()
    note_rows(ledger, file, frame.index[is_again], "dropped", "the row is there twice, equal")
    frame = frame[~is_again]
    turn = frame.groupby("name").cumcount()
    note_rows(ledger, file, frame.index[turn > 0], "interpreted",
              "another row has the same name, renamed NAME#2, NAME#3 and so on")
    names = frame["name"].tolist()
    taken = set(names)
    last = dict.fromkeys(names, 1)
    for place in np.flatnonzero(turn > 0).tolist():
        name = names[place]
        numbers = itertools.count(last[name] + 1)
        last[name] = next(one for one in numbers if f"{name}#{one}" not in taken)
        names[place] = f"{name}#{last[name]}"
        taken.add(names[place])
    return frame.assign(name=names)


def without_impossible(frame: pd.DataFrame, file: str, ledger: Ledger, what: str) -> pd.DataFrame:
    """Rows that have a name, and no negative or absurdly large count."""
    is_bad = frame["name"].isna() | (frame["name"].astype(str).str.strip() == "")
    note_rows(ledger, file, frame.index[is_bad], "dropped", f"the {what} has no name")
    frame = frame[~is_bad]
    counts = ("num_gpus", "gpu_milli", "cpu_milli", "memory_mib", "gpu_memory_mib")
    for name in [name for name in counts if name in frame]:
        values = pd.to_numeric(frame[name], errors="coerce").astype("Float64").fillna(0)
        is_bad = (values < 0) | (values > LARGEST)
        note_rows(ledger, file, frame.index[is_bad], "dropped",
                  f"{name} of the {what} is negative or beyond 2**53")
        frame = frame[~is_bad]
    return frame


FIRST_EPOCH_S = 5e8  # from here on, seconds are those since 1970


def since_zero(tasks: pd.DataFrame, file: str) -> tuple[pd.DataFrame, str | None]:
    """Tasks with times since the earliest of them, and that moment; None if there were no dates."""
    times = tasks[[name for name in TIMES if name in tasks]]
    earliest = times.min().min()
    if pd.isna(earliest) or earliest <= FIRST_EPOCH_S:
        return tasks, None
    zero = math.floor(earliest)
    try:
        moment = datetime.fromtimestamp(zero, UTC).isoformat().replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        raise InputError(f"{earliest:g} s is no moment of any calendar", file=file,
                         mend="give seconds since 1970, or dates") from None
    return tasks.assign(**(times - zero)), moment


@dataclass(frozen=True)
class ClusterTables:
    """A cluster: what it has, what ran on it, and how both were read.

    Parameters
    ----------
    nodes, tasks : frames with the columns of `NODE_COLUMNS` and `TASK_COLUMNS`
    ledger : file, row, what, reason, count
    about : format, zero (an ISO time, or None), files with their checksums
    outages : when nodes were closed, as `read_outages` gives it; None if nothing says so
    """

    nodes: pd.DataFrame
    tasks: pd.DataFrame
    ledger: pd.DataFrame
    about: Mapping[str, Any]
    outages: pd.DataFrame | None = None


def tables_of(nodes: pd.DataFrame, tasks: pd.DataFrame, ledger: Ledger, file: str,
              about: Mapping[str, Any] | None = None) -> ClusterTables:
    """Tables from the rows of a reader.

    Parameters
    ----------
    nodes, tasks : some of the canonical columns, indexed by row; times as they stand in the files
    ledger : where it is noted what was dropped or interpreted
    file : name that stands in the ledger for these rows
    about : what `about.json` says beside the zero
    """
    nodes = with_names(nodes)
    tasks = with_known_times(with_names(tasks), file, ledger)
    nodes = unique_names(without_impossible(nodes, file, ledger, "node"), file, ledger)
    tasks = unique_names(without_impossible(tasks, file, ledger, "task"), file, ledger)
    tasks, zero = since_zero(tasks, file)
    if not len(nodes):
        ledger.note(file, None, "interpreted", "there are no nodes in these files: give --nodes "
                    "or --size-to")
    return ClusterTables(with_columns(nodes, NODE_COLUMNS), with_columns(tasks, TASK_COLUMNS),
                         ledger.frame(), {**(about or {}), "zero": zero})


def with_names(frame: pd.DataFrame) -> pd.DataFrame:
    """The same frame, its names as they come back from a file; empty ones if it had none at all."""
    names = texts_of(frame["name"]).str.strip() if "name" in frame else pd.Series(dtype="object")
    return frame.assign(name=names)


def with_known_times(tasks: pd.DataFrame, file: str, ledger: Ledger) -> pd.DataFrame:
    """The same tasks, times that no clock shows unknown."""
    for name in [name for name in TIMES if name in tasks]:
        times = pd.to_numeric(tasks[name], errors="coerce").astype("Float64")
        is_beyond = ~(times.abs() <= LARGEST).fillna(True).astype(bool)
        note_rows(ledger, file, tasks.index[is_beyond], "interpreted",
                  f"{name}: beyond 2**53 s, taken as unknown")
        tasks = tasks.assign(**{name: times.mask(is_beyond)})
    return tasks


CLUSTER_FILES = ("nodes.csv", "tasks.csv", "ledger.csv")
CLUSTER_RECORD = "about.json"
OUTAGES = "outages.csv"  # beside them, if nodes were closed


def as_csv(frame: pd.DataFrame) -> bytes:
    """A table as CSV, optional columns left out where they are empty."""
    empty = [name for name in OPTIONAL if name in frame
             and (frame[name].isna() | frame[name].astype(str).eq("")).all()]
    return csv_of(frame.drop(columns=empty))


def write_tables(tables: ClusterTables, folder: Path) -> None:
    """Write the files into a folder that exists."""
    frames = (tables.nodes, tables.tasks, tables.ledger)
    for name, frame in zip(CLUSTER_FILES, frames, strict=True):
        write_bytes(as_csv(frame), folder / name)
    if tables.outages is not None:
        write_bytes(csv_of(tables.outages), folder / OUTAGES)
    counts = {"nodes": len(tables.nodes), "tasks": len(tables.tasks)}
    write_json({**tables.about, **counts}, folder / CLUSTER_RECORD)


def write_cluster(tables: ClusterTables, folder: str | Path, *, force: bool = False) -> None:
    """Write a cluster, all of it or nothing; it depends on its own content.

    Parameters
    ----------
    tables : what is written
    folder : where
    force : whether another cluster there is replaced

    Raises
    ------
    OutputError : the folder cannot be written, or has something else in it
    """
    answer = cluster_answer({name: hashlib.sha256(as_csv(frame)).hexdigest()
                             for name, frame in (("nodes", tables.nodes), ("tasks", tables.tasks))})
    check_folder(Path(folder), answer, force=force)
    answer.write(Path(folder), partial(write_tables, tables), force=force)


def cluster_answer(inputs: Mapping[str, Any]) -> Answer:
    """The question that a folder with a cluster answers."""
    files = (*CLUSTER_FILES, *([OUTAGES] if "outages" in inputs else []))
    return Answer("read", inputs, files, record=CLUSTER_RECORD)


def column_of(texts: pd.Series, kind: str, path: Path) -> pd.Series:
    """A column of a stored table, checked; of `text_table`, as texts or as numbers."""
    if kind == "text":
        return texts.astype("object")
    numbers = texts.where(texts != "", None) if texts.dtype == object else texts
    numbers = pd.to_numeric(numbers, errors="coerce").astype("float64")
    is_wrong = numbers.abs() > LARGEST
    if texts.dtype == object:
        is_wrong |= (texts != "") & ~np.isfinite(numbers)
    if kind == "integer":
        is_wrong |= numbers % 1 > 0
    if is_wrong.any():
        row = texts.index[int(is_wrong.to_numpy().argmax())]
        if texts.dtype != object:
            texts = text_table(sources_of([path])[0])[texts.name]
        wanted = "a whole number" if kind == "integer" else "a number of seconds"
        raise InputError(f"{texts[row]!r:.60} is not {wanted}", file=path, row=int(row),
                         column=str(texts.name), value=texts[row],
                         mend=f"give {wanted}, or leave the cell empty")
    return numbers_of(numbers.reset_index(drop=True), kind)


def read_stored(path: Path, columns: Mapping[str, str]) -> pd.DataFrame:
    """A stored table with all its columns, the optional ones empty where it has none."""
    source = sources_of([path])[0]
    header = header_of(source)
    if lacking := [name for name in columns if name not in header and name not in OPTIONAL]:
        raise InputError(f"the column is missing; there are {', '.join(header[:20])}", file=path,
                         row=1, column=lacking[0], mend="add it, empty where it is unknown")
    if len(source.text()[:LONGEST_HEADER].strip().splitlines()) <= 1 and len(source.text().strip().splitlines()) == 1:
        return with_columns(pd.DataFrame({"name": []}), columns)
    cells = text_table(source, {name for name, kind in columns.items() if kind != "text"})
    done = {}
    for name, kind in columns.items():
        empty = ("", "object") if kind == "text" else (np.nan, "float64")
        cell = cells[name] if name in cells else pd.Series(empty[0], cells.index, dtype=empty[1])
        done[name] = column_of(cell, kind, path).reset_index(drop=True)
    names = cells["name"] if "name" in columns else pd.Series(dtype="object")
    is_wrong = (names == "") | names.duplicated()
    if is_wrong.any():
        row = int(names.index[int(is_wrong.to_numpy().argmax())])
        problem = f"{names[row]!r:.60} is there already" if names[row] else "the cell is empty"
        raise InputError(problem, file=path, row=row, column="name", value=names[row],
                         mend="give each row its own name")
    return pd.DataFrame(done)


def check_about(about: Mapping[str, Any], path: Path) -> None:
    """Refuse a record whose zero is no moment, or whose formats are not names by file."""
    formats = about.get("formats", {})
    if not (isinstance(formats, dict) and all(isinstance(one, str) for one in formats.values())):
        raise InputError(f"formats is {formats!r:.60}, not the format of each file", file=path,
                         mend="read the cluster again, or leave formats out")
    zero = about["zero"]
    try:
        is_moment = zero is None or datetime.fromisoformat(zero).tzinfo is not None
    except (TypeError, ValueError):
        is_moment = False
    if not is_moment:
        raise InputError(f"zero is {zero!r:.60}, not a moment with its zone", file=path,
                         mend="write such as 2024-01-31T00:00:00Z, or null")


def read_cluster(folder: str | Path) -> ClusterTables:
    """Read a cluster that `write_cluster` wrote, or that was made by hand.

    Raises
    ------
    InputError : a file is missing, a column is missing, a cell is not what it has to be
    """
    folder = Path(folder)
    if not folder.is_dir():
        problem = "this is a file, not a folder" if folder.is_file() else "there is no such folder"
        raise InputError(problem, file=folder,
                         mend="make it with sched-lab read FORMAT FILE... --out FOLDER")
    nodes = read_stored(folder / "nodes.csv", NODE_COLUMNS)
    tasks = read_stored(folder / "tasks.csv", TASK_COLUMNS)
    about = {"zero": None}
    ledger = Ledger().frame()
    if (folder / CLUSTER_RECORD).exists():
        about |= read_json(folder / CLUSTER_RECORD)
        check_about(about, folder / CLUSTER_RECORD)
    if (folder / "ledger.csv").exists():
        ledger = read_stored(folder / "ledger.csv", LEDGER_COLUMNS)
    return ClusterTables(nodes, tasks, ledger, about)


class ReadOptions(NamedTuple):
    """What a reader may be told.

    Parameters
    ----------
    columns : names of columns in the file, by canonical name (`--map num_gpus=gpus`)
    zone : IANA name of the zone of dates that have none; empty for UTC
    dates : dmy, mdy or ymd, the order of dates that can be read in several; empty to refuse those
    """

    columns: Mapping[str, str] = {}
    zone: str = ""
    dates: str = ""


@dataclass(frozen=True)
class Format:
    """A form of files that can be read.

    Parameters
    ----------
    name : as in `sched-lab read NAME`
    sentence : what it is, in one sentence
    looks_like : whether a file looks like one of these; an `InputError` says that it does not
    read : (files, ledger, options) -> rows of nodes, rows of tasks, as `tables_of` takes them
    """

    name: str
    sentence: str
    looks_like: Callable[[Source], bool]
    read: Callable[[Sequence[Source], Ledger, ReadOptions], tuple[pd.DataFrame, pd.DataFrame]]

    def recognises(self, source: Source) -> bool:
        """Whether a file looks like one of these; never fails."""
        with suppress(InputError):
            return self.looks_like(source)
        return False


@dataclass(frozen=True)
class Columns:
    """A table whose numbers are floats, NaN where unknown, and whose texts are never missing.

    Parameters
    ----------
    file : name of the table
    frame : nodes or tasks
    """

    file: str
    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    def numbers(self, column: str) -> Floats:
        """Numbers of a column, (rows,)."""
        return self.frame[column].to_numpy(float, na_value=np.nan)

    def texts(self, column: str) -> Texts:
        """Texts of a column, (rows,)."""
        values = self.frame[column].to_numpy(object, copy=True)
        is_known = pd.api.types.infer_dtype(values, skipna=False) == "string"
        return values if is_known else self.frame[column].fillna("").astype(str).to_numpy(object)


GPU_LIST = re.compile(r"[0-9]{1,9}(?:-[0-9]{1,9})*")


def gpus_of(text: str) -> list[int]:
    """Numbers of GPUs of a text such as "0-2"; empty if it is none."""
    return list(map(int, text.split("-"))) if GPU_LIST.fullmatch(text) else []


def milli_of_profile(profile: str) -> int | None:
    """Thousandths of a GPU that an instance such as `1g.10gb` has; None if it is no profile.

    A leading `mig-` and attributes after the memory (`1g.10gb+me`, `1g.10gb.me`) are understood.
    Source: NVIDIA, MIG user guide, table of profiles.
    """
    found = re.fullmatch(r"(?:mig-)?(?:\d+c\.)?(\d)g\.(\d+)gb(?:[.+-][\w.]+)?", profile.lower())
    if found is None or found[1] not in "123478":
        return None
    slices = 4 if int(found[2]) == 6 * int(found[1]) else 7
    return min(1000 * int(found[1]) // slices, 1000)


PART_BY_TIME = re.compile(r" \(1/(\d+)\)$")  # in the name of a GPU that several share in turn


def profile_named(written: str) -> str:
    """Profile as NVIDIA writes it, `1g.10gb+me`, of the name of a resource or an attribute.

    A part of a GPU that is shared in time, `nvidia.com/gpu.shared (1/4)`, keeps its name.
    """
    if PART_BY_TIME.search(written):
        return written.strip()
    name = written.strip().lower().removeprefix("nvidia.com/").removeprefix("mig-")
    return re.sub(r"[.+](me|gfx)$", r"+\1", name.removesuffix(".shared"))


def instances_in(profiles: str, count: int) -> dict[str, int]:
    """How many instances of each profile a task has.

    Parameters
    ----------
    profiles : cell of `mig_profile`: one name for all, or one for each, `1g.5gb,2g.10gb`; `whole`
        is a GPU that is not cut
    count : `num_gpus` of the task
    """
    names = [profile_named(name) for name in profiles.split(",") if name.strip()]
    return {names[0]: count} if len(names) == 1 and count else dict(Counter(names))


BY_DRIVER = " device"  # in the name of what a driver makes when it is asked for


def profile_shown(device: str) -> str:
    """Profile of the instances that a node shows under a name; empty if they are none.

    Parameters
    ----------
    device : `nvidia.com/mig-1g.5gb`, `nvidia.com/gpu (1g.5gb)`; an instance that a driver makes
        when it is asked for, `gpu.nvidia.com device 1g.5gb`, is not there before
    """
    found = re.search(r"(?<![\w.])(?:mig-)?((?:\d+c\.)?\dg\.\d+gb(?:[.+][\w.+]+)?)", device.lower())
    return profile_named(found[1]) if found and BY_DRIVER not in device else ""
