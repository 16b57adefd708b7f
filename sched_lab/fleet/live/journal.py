"""Every event and every answer is a line of a file, and the file plays itself again, bit for bit, on any machine."""

# A module, written by hand.

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import pandas as pd

from ... import __version__
from ...lab.frames import InputError, OutputError
from ...lab.reports import Report
from ...online.model import PowerSettings
from ...traces import TaskClasses
from .core import (
    Asked,
    BindFailed,
    Bound,
    Committing,
    Decision,
    Event,
    LiveCluster,
    LiveNode,
    LivePod,
    LiveSettings,
    NodeGone,
    NodeSeen,
    Passed,
    PodGone,
    PodSeen,
    Reservation,
    Share,
    Standing,
)

__all__ = ['Journal', 'replay_journal']

EVENTS = {kind.__name__: kind for kind in (NodeSeen, NodeGone, PodSeen, PodGone, Asked, Committing,
                                           Bound, BindFailed, Passed)}


def said_of(value: LivePod | LiveNode | Decision) -> dict[str, Any]:
    """Fields of a record for JSON, without those that have their usual value."""
    return {field.name: list(map(tuple, own)) if isinstance(own, tuple) else own for field in fields(value)
            if (own := getattr(value, field.name)) != field.default}


def line_of(event: Event, live: LiveCluster) -> dict[str, Any]:
    """An event for JSON; many nodes are said by those that are missing."""
    match event:
        case Asked(pod, nodes, at_s, reserves, least):
            line = {"event": "Asked", "pod": said_of(pod), "at_s": at_s, "reserves": reserves}
            line |= {"least": least} if least else {}
            if nodes is not None:
                missing = live.without(nodes)
                is_short = missing is not None and 2 * len(missing) <= len(live.names)
                line |= {"but": list(missing or ())} if is_short else {"nodes": list(nodes)}
            return line
        case NodeSeen(node):
            return {"event": "NodeSeen", "node": said_of(node)}
        case PodSeen(pod):
            return {"event": "PodSeen", "pod": said_of(pod)}
    return {"event": type(event).__name__, **event._asdict()}


def pod_in(said: Mapping[str, Any]) -> LivePod:
    """A pod of a line."""
    shares = tuple(Share(*share) for share in said.get("shares", ()))
    return LivePod(**{**said, "shares": shares})


def event_in(line: Mapping[str, Any], live: LiveCluster) -> Event:
    """An event of a line.

    Raises
    ------
    KeyError, TypeError : it is none
    """
    kind = EVENTS[line["event"]]
    if kind is NodeSeen:
        return NodeSeen(LiveNode(**line["node"]))
    if kind is PodSeen:
        return PodSeen(pod_in(line["pod"]))
    if kind is not Asked:
        return kind(**{name: line[name] for name in kind._fields})
    nodes = line.get("nodes")
    if "but" in line:
        missing = set(line["but"])
        nodes = [name for name in live.names if name not in missing] if missing else live.names
    return Asked(pod_in(line["pod"]), None if nodes is None else tuple(nodes), line["at_s"],
                 line["reserves"], line.get("least", 0))


def standing_said(standing: Standing) -> dict[str, Any]:
    """How a cluster stands, for JSON."""
    kept = {uid: {**one._asdict(), "decision": said_of(one.decision)}
            for uid, one in standing.reservations.items()}
    return {**standing._asdict(), "reservations": kept, **{
        name: [said_of(one) for one in getattr(standing, name)]
        for name in ("nodes", "waiting", "held")}}


def standing_in(said: Mapping[str, Any]) -> Standing:
    """How a cluster stood, by a first line.

    Raises
    ------
    KeyError, TypeError : it is not said
    """
    def decision_in(one: Mapping[str, Any]) -> Decision:
        rows = {name: tuple(map(tuple, one.get(name, ()))) for name in ("parts", "failed")}
        return Decision(**{**one, **rows})

    return Standing(**{
        **said, "nodes": tuple(LiveNode(**node) for node in said["nodes"]),
        "waiting": tuple(map(pod_in, said["waiting"])), "held": tuple(map(pod_in, said["held"])),
        "reservations": {uid: Reservation(**{**one, "decision": decision_in(one["decision"])})
                         for uid, one in said["reservations"].items()}})


FORMS = (1, 2)  # of the journal: from an empty cluster, and from one that stands as is said
STATE_EVERY = 10_000  # events
START = b'{"journal":'


def target_said(classes: TaskClasses) -> dict[str, Any]:
    """Classes of a target workload for JSON, and their checksum."""
    said = {name: np.asarray(column).tolist() for name, column in vars(classes).items()}
    text = json.dumps(said, sort_keys=True)
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), "classes": said}


def header_of(settings: LiveSettings) -> dict[str, Any]:
    """First line of a journal: all that its decisions depend on."""
    return {"journal": FORMS[0], "sched_lab": __version__, "policy": settings.policy,
            "lapse_s": settings.lapse_s, "gang_s": settings.gang_s, "seed": settings.seed, "power": settings.power._asdict(),
            "target": target_said(settings.classes())}


def settings_in(header: Mapping[str, Any]) -> LiveSettings:
    """Settings of a first line.

    Raises
    ------
    KeyError, TypeError, ValueError : it is none, or its target workload is not as it was written
    """
    said = header["target"]["classes"]
    columns = {name: np.array(values, object if "spec" in name else np.int64)
               for name, values in said.items() if name != "num_tasks"}
    classes = TaskClasses(**columns, num_tasks=said["num_tasks"])
    if target_said(classes)["sha256"] != header["target"]["sha256"]:
        raise ValueError("the target workload is not the one that was written")
    power: dict[str, Any] = {name: {model: tuple(watts) for model, watts in value.items()}
             if isinstance(value, dict) else value for name, value in header["power"].items()}
    return LiveSettings(header["policy"], classes, PowerSettings(**power), header["lapse_s"],
                        header["seed"], header.get("gang_s", LiveSettings.gang_s))


def refuse_writing(path: str | Path, why: object) -> NoReturn:
    """Refuse a file for a journal."""
    raise OutputError(f"{path}: no journal can be written ({why}); give another file")


def whole_lines(file: IO[bytes], path: str | Path) -> int:
    """Length of an old journal without its torn last line; it must be a journal, or empty.

    Raises
    ------
    OutputError : it is something else
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(len(START))
    if not START.startswith(start[:len(START)]) or start != START[:size]:
        file.close()
        refuse_writing(path, "it is there, and is not a journal")
    step = 2**16
    end = size
    while end > 0:
        begin = max(0, end - step)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def open_journal(path: str | Path) -> IO[bytes]:
    """Open a file for appending lines; a torn last line is cut off.

    Raises
    ------
    OutputError : it cannot be written, is written by another, or is no journal
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o600)
        file = open(descriptor, "r+b", buffering=0)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            refuse_writing(path, "it is no plain file")
        with suppress(ImportError):  # keep a second writer out, where the system can
            locks = import_module("fcntl")
            try:
                locks.flock(file, locks.LOCK_EX | locks.LOCK_NB)
            except OSError:
                file.close()
                refuse_writing(path, "another process writes it")
        file.truncate(whole_lines(file, path))
        file.seek(0, os.SEEK_END)
        with suppress(PermissionError):  # another user's, who lets us write
            os.fchmod(descriptor, 0o600)
    except OutputError:
        raise
    except OSError as trouble:
        refuse_writing(path, trouble.strerror or trouble)
    return file


MOST_WAITING = 64 << 20  # bytes of lines; some hours of a large cluster


class LineFile:
    """A file to which lines are appended; what the disk does not take waits, in order."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.file = open_journal(path)
        self.num_bytes = self.file.tell()  # with what waits
        self.waiting = bytearray()
        self.is_unforced = False
        self.trouble = ""

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line, now or when there is room.

        Raises
        ------
        OutputError : too many wait already
        """
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        self.num_bytes += len(text)
        self.waiting += text
        if not self.flush() and len(self.waiting) > MOST_WAITING:
            refuse_writing(self.path, f"{self.trouble}; {len(self.waiting)} bytes wait")

    def flush(self) -> bool:
        """Write what waits, and force it to the disk if that was asked for; whether all is done."""
        try:
            while self.waiting:
                del self.waiting[:self.file.write(bytes(self.waiting))]
            if self.is_unforced:
                os.fsync(self.file.fileno())
                self.is_unforced = False
        except OSError as trouble:
            self.trouble = str(trouble.strerror or trouble)
            return False
        self.trouble = ""
        return True

    def check(self) -> None:
        """Refuse while something waits.

        Raises
        ------
        OutputError : the disk is full, or broken
        """
        if (self.waiting or self.is_unforced) and not self.flush():
            raise OutputError(f"{self.path}: the journal cannot be written ({self.trouble}); no "
                              "decisions until it can")


NUMBERED = re.compile(r"journal-(\d{6,18})\.jsonl(\.gz)?")


def numbered(folder: Path) -> dict[int, Path]:
    """Files of a journal in a folder by their numbers, in order."""
    found = sorted((int(name[1]), bool(name[2]), path) for path in folder.iterdir()
                   if (name := NUMBERED.fullmatch(path.name)))
    return {number: path for number, _, path in reversed(found)}  # as it was, if it is there twice


def tidy(folder: Path, newest: int, keep: int, keep_s: float) -> None:
    """Remove the oldest finished files of a journal, and compress the others, if there is room.

    Parameters
    ----------
    folder : of the journal
    newest : number of the file that is written
    keep, keep_s : how many finished files are kept, and how long after they were finished, in seconds
    """
    finished = [path for number, path in sorted(numbered(folder).items()) if number < newest]
    end_s = time.time() - keep_s
    for path in finished:
        if path in finished[:-keep] or path.stat().st_mtime < end_s:
            for form in (path, path.with_name(f"{path.name}.gz")):
                form.unlink(missing_ok=True)
            continue
        if path.suffix == ".gz":
            continue
        part = path.with_name(f"{path.name}.part")
        try:
            with open(path, "rb") as file, gzip.open(part, "wb", 6) as packed:
                shutil.copyfileobj(file, packed, 2**20)
            part.chmod(0o600)
            shutil.copystat(path, part)
            part.replace(path.with_name(f"{path.name}.gz"))
            path.unlink()
        except OSError:  # no room: after the next file
            part.unlink(missing_ok=True)


OURS = (Asked, Committing)  # events that are ours to refuse; others have happened
FILE_BYTES = 64 << 20
KEEP = 20


class Journal:
    """Applies events to a cluster, and writes each of them with what came of it.

    Every line is given to the operating system before `apply` returns, so that it outlives the
    process; it is forced to the disk with every `STATE_EVERY`-th event and by `close`. On a full
    disk nothing is decided; what happens in the cluster is taken in, and written when there is
    room again.

    Parameters
    ----------
    path : a file, which is continued with a first line of its own if it is there; or a folder of
        numbered files, each of which begins with the state and plays alone; None for none
    live : an empty cluster
    clock : seconds, for the milliseconds of decisions
    file_bytes : after how many there is a new file in a folder
    keep, keep_s : how many finished files are kept there, compressed, and for how long, in seconds

    Raises
    ------
    OutputError : the file cannot be written, is written by another, or is no journal
    """

    def __init__(self, path: str | Path | None, live: LiveCluster,
                 clock: Callable[[], float] = time.perf_counter, file_bytes: int = FILE_BYTES,
                 keep: int = KEEP, keep_s: float = math.inf) -> None:
        self.live = live
        self._clock = clock
        self._num_events = 0
        self._file_bytes = file_bytes
        self._keep = keep, keep_s
        self._lines: LineFile | None = None
        self._number = 0  # of the file in a folder
        self._tidying = threading.Thread()
        if path is None:
            return
        self._header = header_of(live.settings)
        self._path = Path(path)
        if self._path.is_dir():
            found = numbered(self._path)
            self._number = max(found, default=1)
            if self._number in found and found[self._number].suffix == ".gz":
                self._number += 1
        lines = self._begin()
        if lines.trouble:
            lines.file.close()
            refuse_writing(lines.path, lines.trouble)

    def _begin(self) -> LineFile:
        """Begin, or continue, a file with a first line."""
        name = f"journal-{self._number:06d}.jsonl" if self._number else ""
        lines = LineFile(self._path / name)
        num_bytes = lines.num_bytes
        standing = {"journal": FORMS[1], "standing": standing_said(self.live.standing()),
                    "digest": self.live.digest()} if self.live.version else {}
        lines.write({**self._header, **standing})
        self._most_bytes = max(self._file_bytes, 2 * (lines.num_bytes - num_bytes))  # a state is large
        self._lines = lines
        if self._number and not self._tidying.is_alive():
            self._tidying = threading.Thread(
                target=tidy, args=(self._path, self._number, *self._keep), daemon=True)
            self._tidying.start()
        return lines

    def _begin_next(self, old: LineFile) -> None:
        """Finish a file that has become long, and go on in the next, if the disk takes both."""
        write_state(old, self.live)
        self._most_bytes += self._file_bytes  # for another attempt
        if not (old.waiting or old.is_unforced):
            self._number += 1
            try:
                self._begin()
            except OutputError as refused:
                self._number -= 1
                old.trouble = str(refused)
            else:
                old.file.close()

    def num_bytes(self) -> int:
        """Size of the file, or of all files of the folder; 0 without a journal."""
        if self._lines is None:
            return 0
        files = [*numbered(self._path).values()] if self._number else [self._lines.path]
        return sum(Path(file).stat().st_size for file in files if Path(file).exists())

    @property
    def trouble(self) -> str:
        """Why nothing can be written now; empty if it can."""
        return self._lines.trouble if self._lines is not None else ""

    def apply(self, event: Event) -> Decision | None:
        """Apply an event, and write it down before the answer is given.

        Raises
        ------
        OutputError : it is ours to decide, and cannot be written; or too much waits to be written
        """
        if self._lines is None:
            return self.live.apply(event)
        if isinstance(event, OURS):
            self._lines.check()
        start_s = self._clock()
        decision = self.live.apply(event)
        line = {**line_of(event, self.live), "version": self.live.version}
        if decision is not None:
            line["decision"] = said_of(decision)
            line["ms"] = round(1000 * (self._clock() - start_s), 3)
        self._lines.write(line)
        self._num_events += 1
        if self._num_events % STATE_EVERY == 0:
            write_state(self._lines, self.live)
        if isinstance(event, OURS):
            self._lines.check()
        if self._number and self._lines.num_bytes >= self._most_bytes:
            self._begin_next(self._lines)
        return decision

    def close(self) -> None:
        """Write the digest of the state, force all to the disk, and let go of the file.

        Raises
        ------
        OutputError : lines are left that could not be written
        """
        lines = self._lines
        self._lines = None
        if lines is not None:
            with lines.file:
                write_state(lines, self.live)
                if lines.waiting:
                    raise OutputError(f"{lines.path}: the last {len(lines.waiting)} bytes could "
                                      f"not be written ({lines.trouble}); make room")
        if self._tidying.is_alive():
            self._tidying.join()
        if self._number and lines is not None:  # what was finished while another file was compressed
            tidy(self._path, self._number, *self._keep)


def write_state(lines: LineFile, live: LiveCluster) -> None:
    """Append the digest of a state, and force all to the disk."""
    lines.is_unforced = True
    lines.write({"digest": live.digest(), "version": live.version})


def opened(path: str | Path) -> IO[bytes] | gzip.GzipFile:
    """A file of a journal, compressed or not, open for reading."""
    with open(path, "rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if is_packed else open(path, "rb")


def is_journal(path: str | Path) -> bool:
    """Whether a file begins as a journal does, or a folder has files of one."""
    try:
        if Path(path).is_dir():
            return bool(numbered(Path(path)))
        with opened(path) as file:
            return file.read(len(START)) == START
    except (OSError, EOFError):
        return False


def journal_files(path: str | Path) -> dict[int, Path]:
    """Files of a journal in their order, by number; a single one has number 0."""
    return dict(sorted(numbered(Path(path)).items())) if Path(path).is_dir() else {0: Path(path)}


def lines_of(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines of a journal, also a last one without an end.

    Raises
    ------
    InputError : it cannot be read
    """
    try:
        with opened(path) as file:
            yield from enumerate(file, 1)
    except (OSError, EOFError) as trouble:
        why = getattr(trouble, "strerror", None) or trouble
        raise InputError(f"cannot be read ({why})", file=path,
                         mend="give a journal of sched-lab serve") from None


def object_of(line: bytes, path: str | Path, number: int) -> dict[str, Any]:
    """The object of a line of a journal.

    Raises
    ------
    InputError : it is none
    """
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError("the line is no JSON object", file=path, row=number,
                         mend="restore the journal, or cut it off before this line")
    return value


REPLAYED = ("line", "what", "version", "pod", "said", "now", "same", "milliseconds")


def played(line: Mapping[str, Any], live: LiveCluster) -> Iterator[tuple[Any, ...]]:
    """What a line says of decision, digest and version, and what comes of it now."""
    version = int(line["version"])
    if "digest" in line:
        yield "state", str(line["digest"]), live.digest(), np.nan
        return
    decision = live.apply(event_in(line, live))
    if live.version != version:
        yield "version", str(version), str(live.version), np.nan
    if decision is not None or "decision" in line:
        said, now = (json.dumps(one, sort_keys=True) for one in (
            line.get("decision"), decision and said_of(decision)))
        yield "decision", said, now, float(line.get("ms", np.nan))


def begun(header: Mapping[str, Any]) -> LiveCluster:
    """A cluster as a first line of a journal says.

    Raises
    ------
    KeyError, TypeError, ValueError : it says none
    """
    if header["journal"] not in FORMS:
        raise ValueError(f"form {header['journal']!r:.20} is not known here")
    live = LiveCluster(settings_in(header))
    if "standing" in header:
        live.go_on_from(standing_in(header["standing"]))
    return live


def replayed(path: str | Path) -> Iterator[tuple[Any, ...]]:
    """Rows of `REPLAYED` of all lines, each part of the file from its own first line.

    A last line without an end is a row "torn", with its length in place of a version.
    """
    live = None
    for number, text in lines_of(path):
        if not text.endswith(b"\n"):
            yield number, "torn", len(text), "", "", "", True, np.nan
            return
        line = object_of(text, path, number)
        try:
            if "journal" in line:
                live = begun(line)
                if "standing" not in line:
                    continue
                line = {"digest": line["digest"], "version": live.version}
            if live is None:
                raise ValueError("it has no first line")
            pod = str(line.get("pod", {}).get("name", ""))
            for what, said, now, milliseconds in played(line, live):
                yield (number, what, int(line["version"]), pod, said, "" if said == now else now,
                       said == now, milliseconds)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as trouble:
            raise InputError(f"this is no line of a journal ({trouble!r:.100})", file=path,
                             row=number, mend="give a journal of sched-lab serve") from None


def replay_journal(path: str | Path) -> pd.DataFrame:
    """Play a journal again, through new clusters, and compare all that it says.

    Parameters
    ----------
    path : a file, compressed or not, or a folder of numbered ones, of which each is played alone;
        a last line without an end is left out

    Returns
    -------
    one row for each decision, each digest, and each version that differs

    - file : its name, of a folder
    - line : number in the file
    - what : "decision", "state" (a digest) or "version" (only where it differs)
    - version, pod : after the event; name
    - said, now : what the journal says, and what came of it now, empty if it is the same; JSON, or
      a digest
    - same : whether the two are the same, bit for bit
    - milliseconds : that the decision took then; NaN where there is none

    `attrs["torn_bytes"]` is the length of last lines without an end, which a killed process leaves,
    `attrs["missing"]` the numbers of files that are not there between others

    Raises
    ------
    InputError : it is no journal, or a line in it is none of a journal
    """
    if not is_journal(path):
        raise InputError("this is not a journal", file=path,
                         mend="give a file or folder that sched-lab serve --journal has written")
    files = journal_files(path)
    frame = pd.DataFrame([(file.name, *row) for file in files.values() for row in replayed(file)],
                         columns=["file", *REPLAYED])
    is_torn = frame["what"] == "torn"
    torn_bytes = int(frame.loc[is_torn, "version"].sum())
    frame = frame[~is_torn].reset_index(drop=True)
    if set(files) == {0}:
        frame = frame.drop(columns="file")
    frame.attrs["torn_bytes"] = torn_bytes
    frame.attrs["missing"] = sorted(set(range(min(files), max(files))) - set(files))
    return frame


def report_of(frame: pd.DataFrame) -> Report:
    """Report of a journal that was played again: decisions.csv, summary."""
    decisions = frame[frame["what"] == "decision"]
    different = int((~frame["same"].astype(bool)).sum())
    torn = int(frame.attrs["torn_bytes"])
    missing: list[int] = frame.attrs["missing"]
    summary = {"decisions": len(decisions), "states": int((frame["what"] == "state").sum()),
               "different": different, "torn_bytes": torn,
               **({"missing": ", ".join(map(str, missing))} if missing else {})}
    said = (f"{different} of {len(frame)} decisions and states differ" if different else
            f"{len(decisions)} decisions and {summary['states']} states are the same again")
    cut = f"; a torn last line of {torn} bytes was left out" if torn else ""
    gap = f"; missing between the others: {summary['missing']}" if missing else ""
    return Report(summary, {"decisions.csv": frame}, {}, said + cut + gap)
