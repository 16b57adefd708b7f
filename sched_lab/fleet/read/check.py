"""A dump is believed when its rows agree: times, sizes, units, and no GPU given away twice."""

# A module, written by hand.

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...cluster import MAX_GPUS_PER_NODE, WHOLE_GPU_MILLI
from ...hardware import known_gpu_w
from ...lab.arrays import Floats, Integers, Truths
from ...lab.frames import InputError
from ...holdings import Bookings, Overfull, overfull
from ...traces import models_of
from ..replay.problem import LACKS_PARTS, LARGEST_AMOUNT, Problem, Schedule, other_spelling, problem_of, recorded, replayable
from ..replay.rules import limit_violations
from .outages import read_cluster_in_time
from .tables import (
    PART_BY_TIME,
    ClusterTables,
    Columns,
    gpus_of,
    milli_of_profile,
)

__all__ = ['Checked', 'check_cluster']

EXIT_CODES = {"note": 0, "finding": 1, "unusable": 2}
MOST_SHOWN = 20  # rows of one kind of finding that are spelled out
MOST_NAMES = 5  # tasks that a double booking names


class Finding(NamedTuple):
    """What one check found.

    Parameters
    ----------
    severity : note, finding or unusable
    kind : in two or three words
    file, column : where
    rows : positions in that table, (n,); empty for all of it
    problems : a sentence for each of the first `MOST_SHOWN` of them
    mend : what to do
    """

    severity: str
    kind: str
    file: str
    column: str
    rows: Integers
    problems: Sequence[str]
    mend: str

    def lines(self) -> list[dict[str, Any]]:
        """One record for each of the first rows."""
        return [{"severity": self.severity, "kind": self.kind, "file": self.file, "row": row,
                 "column": self.column, "problem": problem, "mend": self.mend,
                 "count": max(1, len(self.rows))}
                for row, problem in zip((self.rows + 2).tolist() or [None], self.problems,
                                        strict=False)]


class Table(Columns):
    """A table in which something is found."""

    def findings(self, kind: str, column: str, is_so: Truths, words: str | Callable[[int], str],
                 mend: str, *values: Any, severity: str = "finding") -> Iterator[Finding]:
        """Yield what a mask says, if it says something.

        Parameters
        ----------
        words : the sentence of a row, or a text with a place for each of the values
        values : (rows,) each
        """
        rows = np.flatnonzero(is_so)
        if len(rows):
            problems = [words.format(*(shown(one[row]) for one in values))
                        if isinstance(words, str) else words(row)
                        for row in rows[:MOST_SHOWN].tolist()]
            yield Finding(severity, kind, self.file, column, rows, problems, mend)


@dataclass(frozen=True)
class Tables:
    """Both tables.

    Parameters
    ----------
    nodes, tasks : their columns
    watts : models of GPUs whose watts are known
    """

    nodes: Table
    tasks: Table
    watts: frozenset[str]


def about_table(severity: str, kind: str, file: str, sentence: str, mend: str) -> Finding:
    """A finding about all of a table."""
    return Finding(severity, kind, file, "", np.empty(0, np.int64), [sentence], mend)


def shown(value: Any) -> str:
    """A number as a sentence shows it, or a text."""
    return value if isinstance(value, str) else f"{value:,.10g}"


def check_content(tables: Tables) -> Iterator[Finding]:
    """Nodes, tasks and times that a replay needs."""
    if not len(tables.nodes):
        yield about_table("unusable", "no nodes", "nodes.csv", "there are no nodes",
                          "read again with --nodes FILE, or with --size-to 80%")
    if not len(tables.tasks):
        yield about_table("unusable", "no tasks", "tasks.csv", "there are no tasks",
                          "read again, with a file that has some")
        return
    if all(np.isnan(tables.tasks.numbers(name)).all() for name in ("submit_s", "start_s")):
        yield about_table("finding", "no times", "tasks.csv", "no task has a time",
                          "read again and map the columns of times; sched-lab inflate places tasks "
                          "without any one after the other")
    gpus = tables.tasks.numbers("num_gpus")
    if len(gpus) and not (gpus > 0).any():
        yield about_table("note", "no GPU tasks", "tasks.csv", "no task asks for a GPU",
                          "map a column to num_gpus if one says so")


COUNTS = ("num_gpus", "gpu_milli", "cpu_milli", "memory_mib", "gpu_memory_mib")


def check_counts(tables: Tables) -> Iterator[Finding]:
    """Counts below zero, and numbers of GPUs that are unknown."""
    for columns in (tables.nodes, tables.tasks):
        for name in [name for name in COUNTS if name in columns.frame]:
            values = columns.numbers(name)
            yield from columns.findings("negative count", name, values < 0, "{} is negative",
                                        "give 0 or more, or leave the cell empty", values)
        unknown = np.isnan(columns.numbers("num_gpus"))
        yield from columns.findings("unknown GPUs", "num_gpus", unknown,
                                    "the number of GPUs is unknown",
                                    "give it, 0 for none, or take the row out")


def check_models(tables: Tables) -> Iterator[Finding]:
    """GPU models whose watts are not known."""
    models = tables.nodes.texts("gpu_model")
    has_gpus = tables.nodes.numbers("num_gpus") > 0
    is_silent = has_gpus & (models == "")
    yield from tables.nodes.findings(
        "no GPU model", "gpu_model", is_silent, "the node has GPUs of no known model",
        "name the model if power matters; sched-lab hardware lists those that are known",
        severity="note")
    unknown = [model for model in pd.unique(models) if model and model not in tables.watts]
    for model in unknown:
        words = re.split(r"[^a-z0-9]+", model.lower())  # of NVIDIA-A100-SXM4-80GB
        near = [name for name in sorted(tables.watts) if name.lower() in words]
        hint = f"; {near[0]} may be the same" if near else ""
        yield from tables.nodes.findings(
            "no watts", "gpu_model", has_gpus & (models == model),
            "the watts of {!r} are not known",
            f"give idle_w and full_w of {model!r} with --hardware FILE{hint}", models,
            severity="note")


def check_demands(tables: Tables) -> Iterator[Finding]:
    """GPU demands that are neither a share of one GPU nor whole GPUs nor instances."""
    tasks = tables.tasks
    gpus = tasks.numbers("num_gpus")
    milli = tasks.numbers("gpu_milli")
    profiles = tasks.texts("mig_profile")
    has_profile = profiles != ""
    known = {name: all(milli_of_profile(one) or one == "whole" or PART_BY_TIME.search(one)
                       for one in name.split(",")) for name in pd.unique(profiles) if name}
    is_known = np.array([known.get(name, True) for name in profiles], bool)
    yield from tasks.findings("unknown MIG profile", "mig_profile", ~is_known,
                              "{!r} is no profile", "write 1g.10gb, for instance", profiles)
    words = "{} thousandths of each of {} GPUs"
    beyond = (milli > WHOLE_GPU_MILLI) | ((gpus > 0) & (milli == 0))
    yield from tasks.findings("impossible share", "gpu_milli", beyond, words,
                              "gpu_milli is the demand on each GPU: give 1 to 1000", milli, gpus)
    several = (gpus > 1) & (milli < WHOLE_GPU_MILLI) & (milli > 0) & ~has_profile
    yield from tasks.findings("shares of several", "gpu_milli", several, words,
                              "only one GPU can be shared: split the task, or give 1000", milli,
                              gpus)
    yield from tasks.findings("share of nothing", "gpu_milli", (gpus == 0) & (milli > 0), words,
                              "give num_gpus 1, or gpu_milli 0", milli, gpus)


HOUR_S = 3600.0
SPAN_OF_SECONDS = 3e10  # a thousand years
FARTHEST_ZONES_S = 26 * HOUR_S


def check_times(tables: Tables) -> Iterator[Finding]:
    """Times in the wrong order."""
    submit, start, end = map(tables.tasks.numbers, ("submit_s", "start_s", "end_s"))
    for early, late, lag_s in (
            ("start_s", "end_s", end - start), ("submit_s", "start_s", start - submit),
            ("submit_s", "end_s", np.where(np.isnan(start), end - submit, 0))):
        kind = f"{late.removesuffix('_s')} before {early.removesuffix('_s')}"
        words = f"{late} is {{}} s before {early}"
        is_hour = (lag_s < 0) & (lag_s >= -HOUR_S)
        yield from tables.tasks.findings(
            kind, late, is_hour, words, "a clock put back an hour looks like this: add an hour to "
            f"{late} if the zone changed then, or else correct it", -lag_s)
        yield from tables.tasks.findings(
            kind, late, lag_s < -HOUR_S, words,
            "correct one of the two times, or take the row out", -lag_s)
    yield from tables.tasks.findings("a thousand years", "end_s", end - submit > SPAN_OF_SECONDS,
                                     "ends at {} s", "correct it, or leave the cell empty if the "
                                     "task still runs", end)
    for name, times in (("submit_s", submit), ("start_s", start), ("end_s", end)):
        yield from tables.tasks.findings(
            "negative time", name, times < 0, "{} s is before the zero",
            "times are seconds since the earliest: give 0 or more", times)


def check_clock(tables: Tables) -> Iterator[Finding]:
    """Clocks that were put back, and columns in two zones."""
    submit = tables.tasks.numbers("submit_s")
    rows = np.flatnonzero(np.isfinite(submit))
    step_s = np.diff(submit[rows])
    is_back = step_s < 0
    is_hour = (step_s <= -HOUR_S / 4) & (step_s >= -HOUR_S)
    if is_back.sum() <= max(2, len(rows) // 1000) and len(rows) >= 10 and is_hour.any():
        back_s = np.zeros(len(submit))
        back_s[rows[1:][is_hour]] = -step_s[is_hour]
        yield from tables.tasks.findings(
            "clock put back", "submit_s", back_s > 0, "{} s before the row above, though nearly all "
            "rows are in order", "give times with their zone, or in UTC", back_s)
    wait_s = tables.tasks.numbers("start_s") - submit
    known = wait_s[np.isfinite(wait_s)]
    if len(known) >= 10 and (shift_s := zone_shift(known)):
        sentence = (f"starts lie {shift_s / HOUR_S:+g} h from submissions in {len(known)} tasks, "
                    "as if the two columns were in different time zones")
        yield about_table("finding" if shift_s < 0 else "note", "mixed zones", "tasks.csv",
                          sentence, "give both columns in one zone")


def zone_shift(wait_s: Floats) -> float:
    """Half hours by which all waits are shifted, s; 0 if they do not look shifted.

    The shortest wait of a trace is nearly 0, so it shows the shift.
    """
    low = float(np.quantile(wait_s, 0.01))
    shift_s = np.floor(low / (HOUR_S / 2) + 0.1) * HOUR_S / 2
    is_shifted = abs(low) >= HOUR_S * 0.9 and abs(low) <= FARTHEST_ZONES_S
    is_near = low - shift_s <= 600
    return float(shift_s) if is_shifted and is_near else 0.0


SHAPE = ["num_gpus", "gpu_models", "cpu_milli", "memory_mib"]
OFFER = ["gpu_model", "num_gpus", "cpu_milli", "memory_mib"]


def fits_nowhere(tables: Tables) -> Truths:
    """Tasks that no node could hold, (tasks,).

    A plain form beside the table of conditions: tables may say impossible things, such as half a
    GPU or a million of them in a node, of which no world can be made.
    """
    shape = tables.tasks.frame[SHAPE].groupby(SHAPE, dropna=False, sort=False).ngroup().to_numpy()
    asked = tables.tasks.frame[SHAPE].iloc[np.unique(shape, return_index=True)[1]]
    wishes = asked["gpu_models"].fillna("").astype(str)
    gpus, cpu, memory = (asked[name].to_numpy(float, na_value=np.nan) for name in
                         ("num_gpus", "cpu_milli", "memory_mib"))
    fits = np.zeros(len(asked), bool)
    for offer in tables.nodes.frame[OFFER].drop_duplicates().to_numpy(object):
        model, *sizes = offer
        has_gpus, has_cpu, has_memory = (np.inf if pd.isna(size) else size for size in sizes)
        admits = wishes.map(lambda wish, has=model: not models_of(wish) or has in models_of(wish))
        is_too_small = (gpus > has_gpus) | (cpu > has_cpu) | (memory > has_memory)
        fits |= ~is_too_small & (admits.to_numpy() | ~(gpus > 0))
    return ~fits[shape]


def check_sizes(tables: Tables) -> Iterator[Finding]:
    """Tasks larger than any node."""
    if not len(tables.nodes) or not len(tables.tasks):
        return
    asked = {name: tables.tasks.numbers(name) for name in ("num_gpus", "cpu_milli", "memory_mib")}
    largest = {name: np.nanmax(np.nan_to_num(tables.nodes.numbers(name), nan=np.inf))
               for name in asked}
    wishes = tables.tasks.texts("gpu_models")

    def words(row: int) -> str:
        beyond = [f"{name} {shown(values[row])}, and the largest node has {shown(largest[name])}"
                  for name, values in asked.items() if values[row] > largest[name]]
        all_of_it = " and ".join(f"{name} {shown(values[row])}" for name, values in asked.items()
                                 if values[row] > 0)
        models = f" on {wishes[row]}" if wishes[row] else ""
        return f"asks for {'; '.join(beyond) or f'{all_of_it}{models}, which no node has at once'}"

    is_lost = fits_nowhere(tables)
    models = pd.unique(tables.nodes.texts("gpu_model"))
    for wish in pd.unique(wishes[is_lost]):
        if not set(models_of(wish)) & set(models) and (hint := other_spelling(wish, models)):
            of_these = is_lost & (wishes == wish)
            is_lost = is_lost & ~of_these
            yield from tables.tasks.findings(
                "GPU model spelled otherwise", "gpu_models", of_these,
                "asks for {!r:.60}, which no node has", hint, wishes)
    yield from tables.tasks.findings(
        "larger than any node", "num_gpus", is_lost, words,
        "split the task, correct its demand, or add nodes that can hold it")


def node_positions(tables: Tables) -> Integers:
    """Position of each task's node in the table of nodes, -1 if it is not there, (tasks,)."""
    position = {name: node for node, name in reversed([*enumerate(tables.nodes.texts("name"))])}
    codes, distinct = pd.factorize(tables.tasks.texts("node"))
    return np.array([position.get(name, -1) for name in distinct] or [-1], np.int64)[codes]


def gpu_lists(tasks: Columns) -> tuple[Integers, list[list[int]]]:
    """Number of the list of GPUs of each task, (tasks,), and the different lists."""
    codes, distinct = pd.factorize(tasks.texts("gpu_list"))
    return codes, [gpus_of(text) for text in distinct]


def check_places(tables: Tables) -> Iterator[Finding]:
    """Nodes and GPUs that do not exist."""
    tasks = tables.tasks
    node = node_positions(tables)
    names = tasks.texts("node")
    if len(tables.nodes):
        yield from tasks.findings("unknown node", "node", (names != "") & (node < 0),
                                  "there is no node {!r:.60}",
                                  "add it to nodes.csv, or correct the name", names)
    lists = tasks.texts("gpu_list")
    codes, numbers = gpu_lists(tasks)
    count = np.array([len(set(found)) for found in numbers] or [0])[codes]
    highest = np.array([max(found, default=-1) for found in numbers] or [0])[codes]
    is_listed = lists != ""
    yield from tasks.findings("no GPU list", "gpu_list", is_listed & (count == 0),
                              "{!r:.60} is no list of GPUs", "write 0-2 for 0 and 2", lists)
    size = np.append(tables.nodes.numbers("num_gpus"), np.nan)[node]
    yield from tasks.findings("GPU beyond the node", "gpu_list", highest >= size,
                              "GPU {} of a node with {} GPUs",
                              "GPUs are counted from 0: correct the list or the node", highest, size)
    gpus = tasks.numbers("num_gpus")
    is_other = is_listed & (count > 0) & (count != gpus) & (tasks.texts("mig_profile") == "")
    yield from tasks.findings("another number of GPUs", "gpu_list", is_other,
                              "{} GPUs are listed, and {} were asked for",
                              "correct the list or num_gpus", count, gpus)


def bookings_of(tasks: Columns, unit: Integers, task: Integers, weight: Floats) -> Bookings:
    """Bookings of units by some tasks, (bookings,), as long as each is there; `weight` is of all tasks, (tasks,)."""
    submit, start, end = map(tasks.numbers, ("submit_s", "start_s", "end_s"))
    since = np.where(np.isfinite(start), start, np.where(np.isfinite(submit), submit, -np.inf))
    until = np.where(np.isfinite(end), end, np.inf)
    whole = np.nan_to_num(weight).clip(0, LARGEST_AMOUNT).astype(np.int64)
    return Bookings(unit, task, since[task], until[task], whole[task])


def gpu_bookings(tables: Tables, node: Integers) -> tuple[Bookings, Integers]:
    """Bookings of single GPUs, and the number of the first GPU of each node, (nodes + 1,)."""
    codes, lists = gpu_lists(tables.tasks)
    count = np.array([len(found) for found in lists] or [0])[codes]
    task = np.repeat(np.arange(len(codes)), count)
    numbers = np.concatenate([np.empty(0, np.int64), *(
        np.array(lists[code], np.int64) for code in codes if lists[code])])
    gpus = np.nan_to_num(tables.nodes.numbers("num_gpus"))
    size = gpus.clip(0, MAX_GPUS_PER_NODE).astype(np.int64)
    first = np.concatenate([[0], np.cumsum(size)])
    is_there = (node[task] >= 0) & (numbers < np.append(size, 0)[node[task]])
    task = task[is_there]
    unit = first[node[task]] + numbers[is_there]
    return bookings_of(tables.tasks, unit, task, tables.tasks.numbers("gpu_milli")), first


def booked_twice(tables: Tables, kind: str, bookings: Bookings, capacity: Floats,
                 name_of: Callable[[int], str]) -> Iterator[Finding]:
    """A finding for each spell in which a unit is overfull."""
    spells = overfull(bookings, capacity)
    if not len(spells.unit):
        return
    order = np.argsort(spells.from_s, kind="stable")
    spells = Overfull._make(array[order] for array in spells)
    names = tables.tasks.texts("name")

    def words(spell: int) -> str:
        unit = int(spells.unit[spell])
        from_s = spells.from_s[spell]
        held = bookings.task[(bookings.unit == unit) & (bookings.start_s <= from_s)
                             & (bookings.end_s > from_s) & (bookings.weight > 0)]
        tasks = ", ".join(map(str, names[held[:MOST_NAMES]]))
        more = f" and {len(held) - MOST_NAMES} more" if len(held) > MOST_NAMES else ""
        share = f"{shown(spells.most[spell])} of {shown(capacity[unit])}"
        spell_s = f"{shown(from_s)} s until {shown(spells.until_s[spell])} s"
        return f"{name_of(unit)} holds {share} from {spell_s}: {tasks}{more}"

    problems = list(map(words, range(min(MOST_SHOWN, len(order)))))
    yield Finding("finding", kind, "tasks.csv", "node", spells.task, problems,
                  "one of these rows has a wrong place, time or demand: correct it or take it out")


def check_bookings(tables: Tables) -> Iterator[Finding]:
    """GPUs, and CPU and memory of nodes, that were given away twice."""
    if not len(tables.nodes) or not len(tables.tasks):
        return
    node = node_positions(tables)
    placed = np.flatnonzero(node >= 0)
    names = tables.nodes.texts("name")
    bookings, first = gpu_bookings(tables, node)

    def gpu_name(unit: int) -> str:
        place = int(np.searchsorted(first, unit, side="right")) - 1
        return f"GPU {unit - first[place]} of {names[place]}"

    yield from booked_twice(tables, "GPU booked twice", bookings,
                            np.full(int(first[-1]), float(WHOLE_GPU_MILLI)), gpu_name)
    demand = tables.tasks.numbers("num_gpus") * tables.tasks.numbers("gpu_milli")
    is_listed = tables.tasks.texts("gpu_list") != ""
    if not is_listed[node >= 0].all():
        yield from booked_twice(tables, "GPUs of a node overbooked",
                                bookings_of(tables.tasks, node[placed], placed, demand),
                                tables.nodes.numbers("num_gpus") * WHOLE_GPU_MILLI,
                                lambda unit: f"{names[unit]} (milli-GPU)")
    for column, what in (("cpu_milli", "CPU"), ("memory_mib", "memory")):
        yield from booked_twice(
            tables, f"{what} overbooked", bookings_of(tables.tasks, node[placed], placed, tables.tasks.numbers(column)),
            tables.nodes.numbers(column), [f"{column} of {name}" for name in names].__getitem__)


TOGETHER_S = 60.0  # parts of a job that start or end within a minute do so together


def check_jobs(tables: Tables) -> Iterator[Finding]:
    """Jobs that lack parts, of which some parts run and others wait, or whose parts start or end apart."""
    tasks = tables.tasks
    job = tasks.texts("job")
    if not (job != "").any():
        return
    start, end = map(tasks.numbers, ("start_s", "end_s"))
    lacking = tasks.numbers("lacking_parts")
    yield from tasks.findings(
        "job lacks parts", "lacking_parts", (lacking > 0) & np.isnan(end),
        "{} parts that must start together with it are not there", "read again with the files that have them; until "
        "they come, what waits of the job cannot start", lacking)
    runs = pd.Series(np.isfinite(start) & np.isnan(end))
    waits = np.isnan(start) & np.isnan(end) & (job != "")
    yield from tasks.findings(
        "half-placed job", "job", waits & runs.groupby(job).transform("any").to_numpy(),
        "waits, and another part of its job {!r:.80} runs", "a job that starts together should run whole or wait "
        "whole: see whether parts of it were evicted or failed", job)
    for name, times in (("start_s", start), ("end_s", end)):
        first_s = pd.Series(times).groupby(job).transform("min").to_numpy()
        word = name.removesuffix("_s")
        yield from tasks.findings(
            f"parts {word} apart", name, (job != "") & (times - first_s > TOGETHER_S),
            f"{word}s {{}} s after the first part of its job", "nothing to mend, if the parts need not "
            f"{word} together; a replay starts them together, and each runs for its own time", times - first_s,
            severity="note")


def mostly_beyond(values: Floats, largest: float, factor: float) -> bool:
    """Whether half of the values exceed the largest node, and nearly none does in a finer unit."""
    beyond = np.mean(values > largest) >= 0.5
    return bool(beyond and np.mean(values / factor > largest) <= 0.05)


def whole_cores(values: Floats, largest: float) -> bool:
    """Whether these are small numbers, not round as thousandths are, and would fit as cores."""
    is_round = bool((values % 5 == 0).all())
    return bool(values.max() <= 512 and not is_round and np.mean(1000 * values > largest) <= 0.05)


FEW = 5  # values from which a column can be judged
# table and column; whether its positive values, with the largest node's, look as if they had another unit; what to say
SLIPS: tuple[tuple[str, str, Callable[[Floats, float], Any], str, str], ...] = (
    ("tasks.csv", "num_gpus", lambda v, top: mostly_beyond(v, top, 100) and (v % 5 == 0).all(),
     "GPUs look like per cent of a GPU",
     "divide num_gpus by 100; below 1, give 1 and gpu_milli"),
    ("nodes.csv", "num_gpus", lambda v, _: (v >= 100).all() and (v % 100 == 0).all(),
     "GPUs of nodes look like per cent of a GPU", "divide num_gpus by 100"),
    ("tasks.csv", "gpu_milli", lambda v, _: 1 < v.max() <= 100,
     "shares look like per cent of a GPU", "multiply gpu_milli by 10"),
    ("tasks.csv", "gpu_milli", lambda v, _: v.max() <= 1,
     "shares look like GPUs", "multiply gpu_milli by 1000"),
    ("tasks.csv", "cpu_milli", lambda v, top: top > 512 and whole_cores(v, top),
     "CPU looks like cores", "multiply cpu_milli by 1000"),
    ("nodes.csv", "cpu_milli", lambda v, _: v.max() <= 512,
     "CPU of nodes looks like cores", "multiply cpu_milli by 1000"),
    ("nodes.csv", "memory_mib", lambda v, _: v.max() <= 4096,
     "memory of nodes looks like GiB", "multiply memory_mib by 1024"),
    ("nodes.csv", "memory_mib", lambda v, _: v.min() >= 2**26,
     "memory of nodes looks like KiB or bytes", "divide memory_mib by 1024 or by 1048576"),
    ("tasks.csv", "memory_mib", lambda v, top: mostly_beyond(v, top, 2**20),
     "memory looks like KiB or bytes", "divide memory_mib by 1024 or by 1048576"),
    ("tasks.csv", "submit_s", lambda v, _: np.ptp(v) > SPAN_OF_SECONDS,
     "times span more than a thousand years, like milliseconds", "divide all times by 1000"),
)


def check_units(tables: Tables) -> Iterator[Finding]:
    """Columns that look as if they had another unit."""
    both = {columns.file: columns for columns in (tables.nodes, tables.tasks)}
    for file, column, is_so, sentence, mend in SLIPS:
        values = both[file].numbers(column)
        values = values[values > 0]
        offered = tables.nodes.numbers(column) if column in tables.nodes.frame else np.empty(0)
        largest = float(np.max(offered, initial=0.0, where=np.isfinite(offered)))
        fewest = FEW if file == "tasks.csv" else 1
        if len(values) >= fewest and is_so(values, largest or np.inf):
            middle = f"; half of them are {np.median(values):g} or more"
            yield about_table("finding", "unit slip", file, f"{column}: {sentence}{middle}", mend)


CHECKS = (check_content, check_counts, check_models, check_demands, check_units, check_times,
          check_clock, check_sizes, check_places, check_bookings, check_jobs)
FINDING_COLUMNS = ["severity", "kind", "file", "row", "column", "problem", "mend", "count"]


def findings_frame(found: Sequence[Finding]) -> pd.DataFrame:
    """Findings as a frame, the gravest first."""
    lines = [line for one in sorted(found, key=lambda one: -EXIT_CODES[one.severity])
             for line in one.lines()]
    frame = pd.DataFrame(lines, columns=FINDING_COLUMNS)
    return frame.astype({"row": "Int64", "count": "int64"})


def unusable(kind: str, error: InputError) -> Finding:
    """The finding that the folder cannot be read, or its tasks cannot be replayed."""
    row = np.array([error.row - 2] if error.row else [], np.int64)
    return Finding("unusable", kind, Path(error.file or "").name, error.column or "", row,
                   [error.problem], error.mend or "mend the file")


def check_limits(problem: Problem) -> Iterator[Finding]:
    """Tasks of which more were on a node at once than one of them allows, by the rules of a schedule."""
    since_s = np.where(np.isnan(problem.start_s), problem.submit_s, problem.start_s)
    held = Schedule(problem.node, problem.gpu_mask, since_s, since_s + problem.duration_s)
    if found := list(limit_violations(problem, held)):
        tasks, sentences = zip(*found, strict=True)
        assert problem.row is not None, "the problem is of a table"
        yield Finding("finding", "more than a limit", "tasks.csv", "constraints", problem.row[list(tasks)],
                      sentences[:MOST_SHOWN], "correct the limit, or a node or time of these tasks")


def check_outages(problem: Problem) -> Iterator[Finding]:
    """Tasks that ran on a node while it was down, by the record."""
    if problem.outages is None or problem.row is None:
        return
    ran = recorded(problem)
    found: dict[int, str] = {}
    for node, from_s, until_s, is_down, _ in zip(*problem.outages, strict=True):
        is_on = (ran.node == node) & is_down & (np.minimum(ran.end_s, until_s) - np.maximum(ran.start_s, from_s)
                                                > TOGETHER_S)
        for task in np.flatnonzero(is_on).tolist():
            found.setdefault(task, f"runs on {problem.cluster.name[node]!r:.60}, which is down from {shown(from_s)} s "
                             f"until {shown(until_s)} s")
    if found:
        rows = sorted(found, key=lambda task: int(problem.row[task]))  # type: ignore[index]
        yield Finding("finding", "ran while down", "tasks.csv", "node", problem.row[rows],
                      [found[task] for task in rows[:MOST_SHOWN]],
                      "correct the times in outages.csv, or write drain if what runs there goes on")


def check_replay(cluster: ClusterTables, found: Sequence[Finding]) -> Iterator[Finding]:
    """Rows that a replay refuses or goes without, unless something was found in them already."""
    severe = [one for one in found if one.severity != "note"]
    if any(one.severity == "unusable" for one in severe):
        return
    try:
        with warnings.catch_warnings(action="ignore"):  # what they say has been found
            problem = problem_of(cluster)
    except InputError as error:
        yield unusable("cannot be replayed", error)
        return
    yield from check_limits(problem)
    yield from check_outages(problem)
    ledger = problem.ledger
    if problem.job is not None:
        count = np.bincount(problem.job)
        yield about_table(
            "note", "jobs on several nodes", "tasks.csv", f"{count[count > 1].sum():,} tasks "
            f"are parts of {(count > 1).sum():,} jobs; in a replay those of a job start together, "
            "on one node or several as the policy likes; it counts as one task",
            "nothing to mend; give each part a constraint if it needs a node of its own")
    try:
        replayable(problem)
    except InputError as error:
        is_known = any(one.kind == "no times" for one in found)
        if not is_known and problem.replayable is not None and not problem.replayable.all():
            yield unusable("cannot be replayed", error)._replace(severity="finding")
    else:
        is_told = ledger["reason"] == LACKS_PARTS  # by check_jobs
        for line in ledger[(ledger["what"] == "left out") & ~is_told].to_dict("records"):
            yield Finding("note", "no load", line["file"], "", np.array([line["row"] - 2], np.int64),
                          [f"{line['reason']}, in {line['count']:,} rows"],
                          "fill in its times, if it ran")
    known = {(one.file, int(row)) for one in severe for row in one.rows}
    for line in ledger[ledger["what"] == "refused"].to_dict("records"):
        if (line["file"], line["row"] - 2) not in known:
            others = f", in {line['count']:,} rows" if line["count"] > 1 else ""
            yield Finding("finding", "left out of a replay", line["file"], "",
                          np.array([line["row"] - 2], np.int64), [line["reason"] + others],
                          "correct it, or take the row out")


@dataclass(frozen=True)
class Checked:
    """What `check_cluster` found.

    Parameters
    ----------
    size : what the cluster has, in a line
    findings : severity, kind, file, row, column, problem, mend, count; the first rows of each kind
    """

    size: str
    findings: pd.DataFrame

    @property
    def exit_code(self) -> int:
        """0 if the cluster is usable as it is, 1 if there are findings, 2 if it is unusable."""
        return max(map(EXIT_CODES.__getitem__, self.findings["severity"]), default=0)

    def summary(self) -> list[str]:
        """Lines that a person reads in ten seconds: one for each kind, and a verdict."""
        lines = []
        kinds = ["severity", "kind", "column", "mend"]
        for _, rows in self.findings.groupby(kinds, sort=False):  # how often, and where first
            first = rows.iloc[0]
            column = f", column {first['column']}" if first["column"] else ""
            row = "" if pd.isna(first["row"]) else f" row {first['row']}"
            count = f" ({first['count']:,} rows)" if first["count"] > 1 else ""
            lines.append(f"{first['severity']}: {first['kind']}{count}: {first['file']}{row}"
                         f"{column}: {first['problem']}; {first['mend']}")
        verdict = ("usable", "usable, but see the findings", "unusable")[self.exit_code]
        return [*lines, f"{verdict}: {self.size}"]

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        rows = self.findings.astype(object).where(self.findings.notna(), None)
        return {"size": self.size, "exit_code": self.exit_code, "findings": rows.to_dict("records")}


def size_of(tables: Tables) -> str:
    """Nodes, GPUs, tasks and days of a cluster, in a line."""
    gpus = np.nansum(tables.nodes.numbers("num_gpus"))
    times = np.concatenate([tables.tasks.numbers(name)
                            for name in ("submit_s", "start_s", "end_s")])
    times = times[np.isfinite(times)]
    days = f" in {np.ptp(times) / 86400:.1f} days" if len(times) else ""
    ran = int((tables.tasks.texts("node") != "").sum())
    placed = f", {ran:,} of them on a known node" if ran else ""
    return (f"{len(tables.nodes):,} nodes with {gpus:,.0f} GPUs, {len(tables.tasks):,} tasks{days}"
            f"{placed}")


def check_cluster(cluster: ClusterTables | str | Path,
                  gpu_power_w: Mapping[str, Any] | None = None) -> Checked:
    """Look for all that cannot be right in a cluster; nothing is changed.

    Parameters
    ----------
    cluster : its tables, or the folder with them
    gpu_power_w : watts of GPU models beside those that the book knows

    Returns
    -------
    findings with row and mend; a folder that cannot be read is unusable, and that is the finding
    """
    if not isinstance(cluster, ClusterTables):
        try:
            cluster = read_cluster_in_time(cluster)
        except InputError as error:
            return Checked(f"{cluster}: not a cluster",
                           findings_frame([unusable("not readable", error)]))
    tables = Tables(Table("nodes.csv", cluster.nodes), Table("tasks.csv", cluster.tasks),
                    frozenset(known_gpu_w(gpu_power_w)))
    found = [one for check in CHECKS for one in check(tables)]
    return Checked(size_of(tables), findings_frame([*found, *check_replay(cluster, found)]))
