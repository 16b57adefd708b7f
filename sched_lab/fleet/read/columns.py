"""A map of columns and their units is written down once, and nothing is guessed from the values."""

# A module, written by hand.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...lab.arrays import Floats, Truths
from ...lab.frames import InputError
from .dates import is_date
from .tables import Format, Ledger, ReadOptions, Source, header_of, milli_of_profile, text_table
from .traces import (
    Rows,
    compare_durations,
    gpu_demand,
    task_times,
    parts_of,
    split,
    together,
)


class Measure(NamedTuple):
    """What a name stands for: a quantity, and how much of the canonical unit its unit is."""

    quantity: str
    size: float = 1


SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
MIBS = {"bytes": 2**-20, "kb": 1e3 / 2**20, "kib": 2**-10, "mb": 1e6 / 2**20, "mib": 1,
        "gb": 1e9 / 2**20, "gib": 2**10, "tb": 1e12 / 2**20, "tib": 2**20}
TIMES = ("submit", "start", "end", "duration", "wait", "walltime")
TEXTS = ("name", "user", "queue", "node", "gpu_list", "gpu_models", "mig_profile", "constraints",
         "state", "job", "fixed", "account", "qos", "gpu_model", "labels", "taints", "devices")

JOB = "job"
MEASURES = {
    **{f"{time}_{unit}": Measure(time, size) for time in TIMES for unit, size in SECONDS.items()},
    **{f"{kind}_{unit}": Measure(kind, size) for kind in ("memory", "gpu_memory")
       for unit, size in MIBS.items()},
    "num_gpus": Measure("gpus"), "gpus": Measure("gpus"), "gpu_percent": Measure("gpu_share", 0.01),
    "gpu_milli": Measure("gpu_share", 0.001), "cpu_milli": Measure("cpu"),
    "cpus": Measure("cpu", 1000), "cpu_percent": Measure("cpu", 10),
    "num_nodes": Measure("parts"), "priority": Measure("priority"),
    **{name: Measure(name) for name in TEXTS},
}
NODE_ONLY = {"gpu_model", "gpu_memory", "labels", "taints", "devices"}
TASK_ONLY = {*TIMES, "gpu_share", "parts", "priority", "user", "queue", "gpu_list", "gpu_models",
             "node", "mig_profile", "constraints", "job", "fixed", "account", "qos"}

UNITS_IN_NAMES = re.compile(
    r"(?:^|[_ \-(\[.])(us|ms|s|sec|seconds|min|minutes|h|hours|d|days|bytes|kb|kib|mb|mib|gb|gib|"
    r"tb|tib|milli|percent|pct|cores|%)[)\]]?$")
SAME_UNIT = {"sec": "s", "seconds": "s", "minutes": "min", "hours": "h", "days": "d",
             "pct": "percent", "%": "percent"}


def unit_of(name: str) -> str:
    """Unit that a name states at its end; empty if it states none."""
    found = UNITS_IN_NAMES.search(name.lower())
    if found is None or (found.start() == 0 and len(found[0]) < 4):  # a column called d or h
        return ""
    return SAME_UNIT.get(found[1], found[1])


def check_unit(measure: str, column: str, file: str) -> None:
    """Refuse a column whose name states another unit than the measure that it is mapped to."""
    said = unit_of(column)
    meant = {"cpus": "cores", "num_gpus": "", "gpus": ""}.get(measure, unit_of(measure))
    if said and meant and said != meant:
        stem = measure.removesuffix(f"_{meant}")
        right = f"{stem}_{said}" if f"{stem}_{said}" in MEASURES else "another measure"
        raise InputError(f"the name says {said}, and {measure} is in {meant}", file=file, row=1,
                         column=column, mend=f"write --map {right}={column}, or rename the column")


def place_of(left: str, right: str, header: Sequence[str]) -> tuple[str, str] | None:
    """Measure and column of a line of the map, if the file has the column.

    Many tables call the name of a task `job`: that word is the measure only on the left, and of another column.
    """
    is_column = left in header and right in MEASURES and right != JOB
    if right in header and left in MEASURES and not (left == JOB and is_column):
        return left, right
    return (right, left) if is_column else None


def stated_columns(source: Source, columns: Mapping[str, str]) -> dict[str, str]:
    """Column of the file by measure: those of the map, then those whose name is a measure."""
    header = header_of(source)
    stated: dict[str, str] = {}
    for pair in (place_of(left, right, header) for left, right in columns.items()):
        if pair and pair[0] in stated:
            raise InputError(f"{pair[0]} is both {stated[pair[0]]} and {pair[1]}", file=source.name,
                             mend="map one column to it")
        if pair:
            check_unit(*pair, source.name)
            stated[pair[0]] = pair[1]
    for name in header:
        if name in MEASURES and name != JOB and name not in stated and name not in stated.values():
            stated[name] = name
    return stated


def check_map(files: Sequence[Source], columns: Mapping[str, str]) -> None:
    """Refuse a line of the map that no file can follow."""
    headers = [header_of(source) for source in files]
    for left, right in columns.items():
        if any(place_of(left, right, header) for header in headers):
            continue
        has_column = any({left, right} & set(header) for header in headers)
        problem = "neither side is a measure" if has_column else "no file has such a column"
        there = ", ".join(dict.fromkeys(name for header in headers for name in header[:12]))
        raise InputError(f"--map {left}={right}: {problem}", mend="write MEASURE=COLUMN, for "
                         f"instance num_gpus={right}; the columns are {there}")


class Stated(NamedTuple):
    """The rows of a table and what its columns are.

    Parameters
    ----------
    rows : the rows
    columns : column of the file by measure
    """

    rows: Rows
    columns: Mapping[str, str]

    def has(self, quantity: str) -> bool:
        """Whether a column states this."""
        return any(MEASURES[measure].quantity == quantity for measure in self.columns)

    def column(self, quantity: str) -> tuple[str, float]:
        """Column of a quantity and the size of its unit; an empty name if there is none."""
        found = [measure for measure in self.columns if MEASURES[measure].quantity == quantity]
        if len(found) > 1:
            raise InputError(f"{found[0]} and {found[1]} are both there", row=1,
                             file=self.rows.source.name, column=self.columns[found[1]],
                             mend="map one, and rename the other")
        return (self.columns[found[0]], MEASURES[found[0]].size) if found else ("", 1)

    def numbers(self, quantity: str) -> Floats:
        """Numbers in the canonical unit, NaN where unknown."""
        return self.rows.numbers(*self.column(quantity))

    def seconds(self, quantity: str) -> Floats:
        """Moments in seconds; dates are understood."""
        return self.rows.seconds(*self.column(quantity))

    def durations(self, quantity: str) -> Floats:
        """Durations in seconds; hh:mm:ss is understood."""
        return self.rows.durations(*self.column(quantity))

    def texts(self, quantity: str) -> pd.Series:
        """Texts, empty where unknown."""
        return self.rows.texts(self.column(quantity)[0])


def own_times(stated: Stated) -> tuple[dict[str, Any], Truths]:
    """Submission, start and end; a wait or duration stands in where start or end is not stated."""
    submit, start, end = map(stated.seconds, ("submit", "start", "end"))
    note = partial(stated.rows.note, what="interpreted")
    states = stated.texts("state")
    lasting_s = stated.durations("duration") if stated.has("duration") else None
    if stated.has("wait") and not stated.has("start"):
        start = submit + stated.durations("wait")
        note(np.isfinite(start), reason="start_s is submission and wait")
    elif not stated.has("start"):
        came = np.isfinite(submit) & (np.isfinite(end) if lasting_s is None else lasting_s >= 0)
        stated.rows.note(came, "assumed", "no column states a start: taken to start when submitted")
        start = np.where(came, submit, start)
    if lasting_s is not None and stated.has("end"):
        column, unit_s = stated.column("duration")
        compare_durations(stated.rows, column, end - start, unit_s=unit_s)
    elif lasting_s is not None:
        note(np.isfinite(start + lasting_s), reason="end_s is start and duration")
    return task_times(stated.rows, (submit, start, end), lasting_s=lasting_s, states=states)


def own_demand(stated: Stated) -> dict[str, Floats]:
    """Number of GPUs and thousandths of each."""
    rows = stated.rows
    gpus = stated.numbers("gpus")
    share = stated.numbers("gpu_share")
    if stated.has("gpus") and stated.has("gpu_share"):
        rows.note(share > 0, "interpreted", "number of GPUs and share: the share of each")
        rows.note(gpus % 1 > 0, "interpreted", "no whole number of GPUs: rounded")
        return {"num_gpus": gpus, "gpu_milli": np.where(gpus > 0, np.rint(1000 * share), 0)}
    if not (stated.has("gpus") or stated.has("gpu_share")):
        rows.note(np.isnan(gpus), "interpreted",
                  "no column states GPUs: unknown; --map num_gpus=COLUMN")
    demand = gpu_demand(rows, share if stated.has("gpu_share") else gpus)
    profiles = stated.texts("mig_profile")
    milli = {name: milli_of_profile(name) for name in profiles.unique() if name}
    of_profile = profiles.map(lambda name: milli.get(name, np.nan)).to_numpy(float)
    demand["gpu_milli"] = np.where(np.isnan(of_profile), demand["gpu_milli"], of_profile)
    return demand


def names_of(stated: Stated, word: str) -> pd.Series:
    """Names of rows; rows of a table without names are called by their place in it."""
    if stated.has("name"):
        return stated.texts("name")
    rows = stated.rows
    rows.ledger.note(rows.source.name, None, "filled in", f"no column states names: {word}-ROW",
                     len(rows.cells))
    return pd.Series(f"{word}-" + rows.cells.index.astype(str).astype("object"), rows.cells.index)


def own_tasks(stated: Stated) -> pd.DataFrame:
    """Tasks of a table of one's own."""
    wish = "gpu_models" if stated.has("gpu_models") else "gpu_model"
    texts = {name: stated.texts(name) for name in
             ("user", "queue", "node", "gpu_list", "mig_profile", "constraints", "job", "fixed", "account", "qos")}
    is_shared = (texts["job"] != "") & texts["job"].duplicated(keep=False)
    texts["job"] = texts["job"].where(is_shared, "")
    stated.rows.note(is_shared.to_numpy(), "interpreted", "tasks of one job start together")
    times, is_kept = own_times(stated)
    jobs = pd.DataFrame({
        "name": names_of(stated, "task"), **times, **own_demand(stated),
        "cpu_milli": np.rint(stated.numbers("cpu")),
        "memory_mib": np.ceil(stated.numbers("memory")), "gpu_models": stated.texts(wish),
        "priority": stated.numbers("priority"), "walltime_s": stated.durations("walltime"),
        **texts})
    parts = parts_of(stated.rows, stated.numbers("parts"), "a job on several nodes: one task for "
                     "each, JOB/0, JOB/1, ..., GPUs and CPUs divided")
    return split(jobs[is_kept], parts[is_kept], ["num_gpus", "cpu_milli"])


def own_nodes(stated: Stated) -> pd.DataFrame:
    """Nodes of a table of one's own."""
    texts = {name: stated.texts(name) for name in ("gpu_model", "labels", "taints", "devices")}
    gpu_memory = {"gpu_memory_mib": np.floor(stated.numbers("gpu_memory"))}
    return pd.DataFrame({
        "name": names_of(stated, "node"), "num_gpus": stated.numbers("gpus"),
        "cpu_milli": np.rint(stated.numbers("cpu")),
        "memory_mib": np.floor(stated.numbers("memory")), **gpu_memory, **texts})


def holds_nodes(stated: Stated) -> bool:
    """Whether a table is one of nodes: it has something that only nodes have, and no times."""
    quantities = {MEASURES[measure].quantity for measure in stated.columns}
    return bool(quantities & NODE_ONLY) and not quantities & TASK_ONLY


LOOKS_LIKE = "is not used, and looks like"
TIME_NAMES = {"submit_s": "submi|creat|queued|arriv|enqueue", "end_s": "end|finish|complet|stop|termin",
              "start_s": "start|began|begin|launch|sched", "duration_s": "durat|elapsed|runtime|run_time",
              "wait_s": "wait"}


def note_times(rows: Rows) -> None:
    """Name the columns that nobody asked for and that have times by their names or dates in them."""
    for name in map(str, rows.cells):
        if name in rows.used:
            continue
        some = [text for text in rows.cells[name].head(1000) if text][:20]
        has_digits = bool(some) and all(re.search(r"\d", text) for text in some)
        words = [measure for measure, pattern in TIME_NAMES.items()
                 if re.search(pattern, name.lower()) and has_digits
                 and not re.search(r"node|host|gpu|cpu|mem", name.lower())]
        is_dated = bool(some) and sum(map(is_date, some)) > len(some) / 2
        if words or is_dated:
            measure = words[0] if words else "submit_s"
            rows.ledger.note(rows.source.name, None, "extra column", f"column {name} {LOOKS_LIKE} a "
                             f"time: --map {measure}={name} would read it", len(rows.cells))


def read_own(files: Sequence[Source], ledger: Ledger,
             options: ReadOptions) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes and tasks of tables whose columns a map states."""
    nodes = []
    tasks = []
    for source in files:
        rows = Rows(source, text_table(source), ledger, options)
        stated = Stated(rows, stated_columns(source, options.columns))
        if not stated.columns:
            raise InputError("no column has a name that is known", file=source.name, row=1,
                             mend=f"map them, --map num_gpus={header_of(source)[0]} for instance")
        for measure, column in stated.columns.items():
            if measure != column:
                ledger.note(source.name, None, "interpreted", f"column {column} is {measure}",
                            len(rows.cells))
        if holds_nodes(stated):
            nodes.append(own_nodes(stated))
        else:
            tasks.append(own_tasks(stated))
        rows.note_rest()
        note_times(rows)
    return together(nodes), together(tasks)


def is_own(source: Source) -> bool:
    """Whether the columns are named as in the tables of a cluster."""
    header = set(header_of(source))
    return {"name", "num_gpus"} <= header or {"submit_s", "num_gpus"} <= header


FORMATS = (Format("csv", "CSV of one's own, its columns stated by --map", is_own, read_own),)
