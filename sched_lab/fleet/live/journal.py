"""Every event and every answer is a line of a file, and the file plays itself again, bit for bit, on any machine."""

# A module, written by hand.

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections import deque
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
    Share,
)

__all__ = ['Journal', 'replay_journal']

EVENTS = {kind.__name__: kind for kind in (NodeSeen, NodeGone, PodSeen, PodGone, Asked, Committing,
                                           Bound, BindFailed, Passed)}


def said_of(value: LivePod | LiveNode | Decision) -> dict[str, Any]:
    """Fields of a record for JSON, without those that have their usual value."""
    return {field.name: own for field in fields(value)
            if (own := getattr(value, field.name)) != field.default}


def line_of(event: Event, live: LiveCluster) -> dict[str, Any]:
    """An event for JSON; many nodes are said by those that are missing."""
    match event:
        case Asked(pod, nodes, at_s, reserves):
            line = {"event": "Asked", "pod": said_of(pod), "at_s": at_s, "reserves": reserves}
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
                 line["reserves"])


FORM = 1  # of the journal
STATE_EVERY = 10_000  # events
START = b'{"journal":'


def target_said(classes: TaskClasses) -> dict[str, Any]:
    """Classes of a target workload for JSON, and their checksum."""
    said = {name: np.asarray(column).tolist() for name, column in vars(classes).items()}
    text = json.dumps(said, sort_keys=True)
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), "classes": said}


def header_of(settings: LiveSettings) -> dict[str, Any]:
    """First line of a journal: all that its decisions depend on."""
    power = settings.power._asdict()
    return {"journal": FORM, "sched_lab": __version__, "policy": settings.policy,
            "lapse_s": settings.lapse_s, "seed": settings.seed, "power": power,
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
                        header["seed"])


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
        self.waiting = bytearray()
        self.is_unforced = False
        self.trouble = ""

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line, now or when there is room.

        Raises
        ------
        OutputError : too many wait already
        """
        self.waiting += json.dumps(line, separators=(",", ":")).encode() + b"\n"
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


OURS = (Asked, Committing)  # events that are ours to refuse; others have happened


class Journal:
    """Applies events to a cluster, and writes each of them with what came of it.

    Every line is given to the operating system before `apply` returns, so that it outlives the
    process; it is forced to the disk with every `STATE_EVERY`-th event and by `close`. On a full
    disk nothing is decided; what happens in the cluster is taken in, and written when there is
    room again.

    Parameters
    ----------
    path : the file; an old journal is continued with a first line of its own; None for none
    live : an empty cluster
    clock : seconds, for the milliseconds of decisions

    Raises
    ------
    OutputError : the file cannot be written, is written by another, or is no journal
    """

    def __init__(self, path: str | Path | None, live: LiveCluster,
                 clock: Callable[[], float] = time.perf_counter) -> None:
        self.live = live
        self._clock = clock
        self._num_events = 0
        self._lines = None if path is None else LineFile(path)
        if self._lines is not None:
            self._lines.write(header_of(live.settings))
            if self._lines.trouble:
                self._lines.file.close()
                refuse_writing(self._lines.path, self._lines.trouble)

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


def write_state(lines: LineFile, live: LiveCluster) -> None:
    """Append the digest of a state, and force all to the disk."""
    lines.is_unforced = True
    lines.write({"digest": live.digest(), "version": live.version})


def is_journal(path: str | Path) -> bool:
    """Whether a file begins as a journal does."""
    try:
        with open(path, "rb") as file:
            return file.read(len(START)) == START
    except OSError:
        return False


def lines_of(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered lines of a journal; a last one without an end is left out.

    Raises
    ------
    InputError : a line that has an end is no JSON object
    """
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    value = None
                if not isinstance(value, dict):
                    raise InputError("the line is no JSON object", file=path, row=number,
                                     mend="restore the journal, or cut it off before this line")
                yield number, value
    except OSError as trouble:
        raise InputError(f"cannot be read ({trouble.strerror})", file=path,
                         mend="give a journal of sched-lab serve") from None


REPLAYED = ("line", "what", "version", "pod", "said", "now", "same", "milliseconds")


def replayed(path: str | Path) -> Iterator[tuple[Any, ...]]:
    """Rows of `REPLAYED` of all lines, each part of the file from its own first line."""
    live = None
    for number, line in lines_of(path):
        try:
            if "journal" in line:
                if line["journal"] != FORM:
                    raise ValueError(f"form {line['journal']!r:.20} is not known here")
                live = LiveCluster(settings_in(line))
                continue
            if live is None:
                raise ValueError("it has no first line")
            version = int(line["version"])
            if "digest" in line:
                found = [("state", str(line["digest"]), live.digest(), np.nan)]
            else:
                decision = live.apply(event_in(line, live))
                found = [("version", str(version), str(live.version), np.nan)] * (
                    live.version != version)
                if decision is not None or "decision" in line:
                    said, now = (json.dumps(one, sort_keys=True) for one in (
                        line.get("decision"), decision and said_of(decision)))
                    found.append(("decision", said, now, float(line.get("ms", np.nan))))
            pod = str(line.get("pod", {}).get("name", ""))
            for what, said, now, milliseconds in found:
                yield (number, what, version, pod, said, "" if said == now else now, said == now,
                       milliseconds)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as trouble:
            raise InputError(f"this is no line of a journal ({trouble!r:.100})", file=path,
                             row=number, mend="give a journal of sched-lab serve") from None


def replay_journal(path: str | Path) -> pd.DataFrame:
    """Play a journal again, through a new cluster, and compare all that it says.

    Parameters
    ----------
    path : the file; a last line without an end is left out

    Returns
    -------
    one row for each decision, each digest, and each version that differs

    - line : number in the file
    - what : "decision", "state" (a digest) or "version" (only where it differs)
    - version, pod : after the event; name
    - said, now : what the journal says, and what came of it now, empty if it is the same; JSON, or
      a digest
    - same : whether the two are the same, bit for bit
    - milliseconds : that the decision took then; NaN where there is none

    `attrs["torn_bytes"]` is the length of a last line without an end, which a killed process leaves

    Raises
    ------
    InputError : it is no journal, or a line in it is none of a journal
    """
    if not is_journal(path):
        raise InputError("this is not a journal", file=path,
                         mend="give a file that sched-lab serve --journal has written")
    frame = pd.DataFrame(list(replayed(path)), columns=list(REPLAYED))
    with open(path, "rb") as file:
        last = next(iter(deque(file, 1)), b"")
    frame.attrs["torn_bytes"] = 0 if last.endswith(b"\n") else len(last)
    return frame


def report_of(frame: pd.DataFrame) -> Report:
    """Report of a journal that was played again: decisions.csv, summary."""
    decisions = frame[frame["what"] == "decision"]
    different = int((~frame["same"].astype(bool)).sum())
    torn = int(frame.attrs["torn_bytes"])
    summary = {"decisions": len(decisions), "states": int((frame["what"] == "state").sum()),
               "different": different, "torn_bytes": torn}
    said = (f"{different} of {len(frame)} decisions and states differ" if different else
            f"{len(decisions)} decisions and {summary['states']} states are the same again")
    cut = f"; a torn last line of {torn} bytes was left out" if torn else ""
    return Report(summary, {"decisions.csv": frame}, {}, said + cut)
