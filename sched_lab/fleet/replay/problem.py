"""A cluster and its timed tasks become a placement problem: labels and taints turn into groups of nodes, and every row is in it or in a ledger."""

# A module, written by hand.

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...cluster import MAX_GPUS_PER_NODE, WHOLE_GPU_MILLI, Cluster, State, check_state, empty_state
from ...hardware import knows_gpu_w
from ...lab.arrays import Floats, Integers, Texts, Truths
from ...lab.frames import InputError
from ...lab.jit import by_reference, interpreted, njit
from ...holdings import Bookings, overfull
from ...online.model import (
    Limits,
    Placements,
    PowerSettings,
    World,
    final_state,
    new_limits,
    no_limits,
    open_nodes,
    with_limits,
    world_of,
)
from ...power import Power, cpu_power_milliwatt, gpu_power_milliwatt
from ...traces import TaskClasses, Tasks, admits, models_of, most_popular, task_classes
from ..read.objects import OPERATORS, Rule, meets
from ..read.tables import (
    BY_DRIVER,
    MOST_PER_NODE,
    OUTAGES,
    PART_BY_TIME,
    WAITING,
    ClusterTables,
    Columns,
    Ledger,
    gpus_of,
    instances_in,
    milli_of_profile,
    note_rows,
    profile_shown,
)
from .outages import NONE_LOST, Lost, Outages

__all__ = ['Problem', 'Schedule', 'problem_of']


@dataclass(frozen=True)
class Problem:
    """A cluster and its timed tasks in the terms of the online family.

    Parameters
    ----------
    cluster : the nodes with their real models, as power sees them
    tasks : rows that can be replayed; `cpu_spec` lists the admissible placement groups
    group : (nodes,) placement group of each node
    submit_s, duration_s, start_s : (tasks,) seconds since `zero`; inf if a task does not end, nan
        if its start is unknown
    node, gpu_mask : (tasks,) recorded place; -1, and 0, if unknown
    user, queue, account, qos : (tasks,) empty if unknown; an account is what Slurm charges for a user's job, and QOS is
        its quality of service there; None if no task has one
    priority : (tasks,) larger goes first
    ledger : rows refused or interpreted on the way here: file, row, what, reason, count
    zero : ISO time of second 0; None if there were no dates
    app, most_per_node : (tasks,) application, and most tasks of it on the node; empty, and 0,
        without a limit; None if no task has one
    sight, constraint : labels, taints and devices of the nodes, and what each task says of them,
        (tasks,); None if nobody asked
    replayable : (tasks,) whether a replay has them: not those that left the queue without a start,
        whose `duration_s` is how long they waited, and those of which nothing says how long they
        would run; None for all
    job : (tasks,) number of the job that each is a part of, most of them the only one; None if all
        are
    lacking_parts : (tasks,) how many parts its job should have and has not, without which none can start; None if
        none lacks any
    instances : instances of MIG, which are counted and are no shares of the GPUs above; None if
        no task asks for one
    walltime_s : (tasks,) for how long each asked, at least as long as it ran; as long as it ran
        where nothing is known, None if it is known of no task
    expects_s : (tasks,) how long a policy that looks ahead expects each to run, inf where it does not
        know; None for `walltime_s`
    fixed : (tasks,) why nobody should stop a task that runs; empty if nothing speaks against it,
        None if nothing is known
    row : (tasks,) place in the table that each comes from; None if from none
    outages : when nodes are drained or down; None if never
    target : classes of the target workload; None for that of the tasks
    most_left : what of each node may be given at most, whatever its tasks leave; None for all of it
    """

    cluster: Cluster
    tasks: Tasks
    group: Texts
    submit_s: Floats
    duration_s: Floats
    start_s: Floats
    node: Integers
    gpu_mask: Integers
    user: Texts
    queue: Texts
    priority: Integers
    ledger: pd.DataFrame
    zero: str | None
    app: Texts | None = None
    most_per_node: Integers | None = None
    sight: Sight | None = None
    constraint: Texts | None = None
    replayable: Truths | None = None
    instances: Instances | None = None
    fixed: Texts | None = None
    job: Integers | None = None
    walltime_s: Floats | None = None
    row: Integers | None = None
    lacking_parts: Integers | None = None
    outages: Outages | None = None
    target: TaskClasses | None = None
    expects_s: Floats | None = None
    most_left: State | None = None
    account: Texts | None = None
    qos: Texts | None = None

    def grouped(self) -> Cluster:
        """The cluster with placement groups for CPU models: Cond. 4 is then that of placement."""
        return replace(self.cluster, cpu_model=self.group)


class Instances(NamedTuple):
    """Instances of MIG by profile.

    Parameters
    ----------
    profiles : their names
    need : (tasks, profiles) instances that each task takes
    room : (nodes, profiles) instances that each node has
    """

    profiles: tuple[str, ...]
    need: Integers
    room: Integers


def with_tasks(problem: Problem, rows: Integers) -> Problem:
    """The problem with some of its tasks only, in the order of these rows."""
    some: dict[str, Any] = {}
    for field in fields(problem):
        value = getattr(problem, field.name)
        if isinstance(value, Tasks):
            some[field.name] = value.take(rows)
        elif isinstance(value, Instances):
            some[field.name] = value._replace(need=value.need[rows])
        elif isinstance(value, np.ndarray) and field.name != "group":  # nor are outages of tasks
            some[field.name] = value[rows]
    return replace(problem, **some)


def is_part(problem: Problem) -> Truths:
    """Whether a task starts together with others, which may not all be there, (tasks,)."""
    size = len(problem.tasks)
    alone = np.ones(size, bool) if problem.job is None else np.bincount(problem.job)[problem.job] == 1
    return ~alone if problem.lacking_parts is None else ~alone | (problem.lacking_parts > 0)


@by_reference
class Schedule(NamedTuple):
    """What a policy, or the record, made of the tasks of a problem.

    Parameters
    ----------
    node : (tasks,) row of the cluster; -1 if never started
    gpu_mask : (tasks,) GPUs as a bit mask
    start_s, end_s : (tasks,) nan if never started; an end is inf if the task does not end
    lost : runs before that, which outages stopped
    """

    node: Integers
    gpu_mask: Integers
    start_s: Floats
    end_s: Floats
    lost: Lost = NONE_LOST


def with_lost(problem: Problem, schedule: Schedule) -> tuple[Problem, Schedule, Integers]:
    """Problem and schedule in which each lost run is a task of its own, and whose run each row is, (rows,).

    The runs of a task stand together, in order; the next waits since the one before it was stopped.
    """
    size, lost = len(schedule.node), schedule.lost
    if not len(lost.task):
        return problem, schedule, np.arange(size)
    task = np.append(np.arange(size), lost.task)
    start_s = np.append(np.where(schedule.node >= 0, schedule.start_s, np.inf), lost.start_s)
    rows = np.lexsort((start_s, task))
    task = task[rows]
    stop_s = np.append(np.full(size, np.inf), stop_of(problem, lost))[rows]
    node, gpu_mask, start_s, end_s = (np.append(own, gone)[rows] for own, gone in
                                      zip(schedule[:4], lost[1:], strict=True))
    runs = Schedule(node, gpu_mask, start_s, end_s)
    more = with_tasks(problem, task)
    is_next = np.append(False, task[1:] == task[:-1])
    more = replace(more, submit_s=np.where(is_next, np.append(np.nan, stop_s[:-1]), more.submit_s),
                   duration_s=np.where(np.isfinite(stop_s), runs.end_s - runs.start_s, more.duration_s))
    if more.job is not None:
        _, job = np.unique(np.stack([more.job, stop_s]), axis=1, return_inverse=True)
        more = replace(more, job=job.ravel())
    return more, runs, task


def stop_of(problem: Problem, lost: Lost) -> Floats:
    """When the job of each lost run was stopped, (runs,): with the last of the parts that began with it."""
    job = lost.task if problem.job is None else problem.job[lost.task]
    begun = pd.DataFrame({"job": job, "start_s": lost.start_s, "end_s": lost.end_s})
    return np.asarray(begun.groupby(["job", "start_s"])["end_s"].transform("max"))


@dataclass
class Draft:
    """A table on its way into a problem.

    Parameters
    ----------
    columns : the table
    ledger : where deeds are noted
    is_kept : (rows,) whether a row has not been refused
    """

    columns: Columns
    ledger: Ledger
    is_kept: Truths

    def note(self, is_so: Truths, reason: str, what: str = "interpreted") -> None:
        """Note rows of a mask that are still there."""
        rows = np.flatnonzero(is_so & self.is_kept) + 2
        note_rows(self.ledger, self.columns.file, rows, what, reason)

    def refuse(self, is_so: Truths, reason: str) -> None:
        """Take the rows of a mask out."""
        self.note(is_so, reason, "refused")
        self.is_kept &= ~is_so


def draft_of(file: str, frame: pd.DataFrame, ledger: Ledger) -> Draft:
    """A draft with all rows of a table."""
    return Draft(Columns(file, frame), ledger, np.ones(len(frame), bool))


LARGEST_AMOUNT = 2**40


def amounts_of(draft: Draft, column: str, unknown: str = "") -> Floats:
    """Numbers of a column, NaN where unknown, (rows,); impossible ones are refused.

    Parameters
    ----------
    unknown : what is noted of rows where it is unknown; nothing if empty
    """
    amounts = draft.columns.numbers(column)
    draft.refuse((amounts < 0) | (amounts > LARGEST_AMOUNT), f"{column} is below 0 or beyond 2**40")
    if unknown:
        draft.note(np.isnan(amounts), unknown, "filled in")
    return amounts


def known_or(amounts: Floats, instead: float) -> Integers:
    """Whole numbers, with something instead of what is unknown or refused."""
    is_known = (amounts >= 0) & (amounts <= LARGEST_AMOUNT)
    return np.where(is_known, amounts, instead).astype(np.int64)


class Demands(NamedTuple):
    """What the rows of a table of tasks ask for, (rows,) each; 0 in rows that were refused."""

    cpu_milli: Integers
    memory_mib: Integers
    num_gpus: Integers
    gpu_milli: Integers
    is_several: Truths
    needs: Needs


WHOLE = "whole"  # in place of a profile: a GPU that is not cut


def asks_driver(constraint: str) -> bool:
    """Whether a driver is to make what a task asks for."""
    asked = constraint_of(constraint) if BY_DRIVER in constraint else None
    return asked is not None and any(BY_DRIVER in device for device in asked.devices)


class Needs(NamedTuple):
    """Instances of MIG that rows ask for.

    Parameters
    ----------
    profiles : their names
    counts : (rows, profiles)
    whole : (rows,) GPUs that are not cut, beside them
    is_so : (rows,) whether a row asks for instances at all
    """

    profiles: tuple[str, ...]
    counts: Integers
    whole: Integers
    is_so: Truths


def needs_of(draft: Draft, gpus: Floats) -> Needs:
    """Instances that tasks ask for; those that a driver makes when asked are shares of a GPU."""
    texts = draft.columns.texts
    is_named = texts("mig_profile") != ""
    asked = pd.MultiIndex.from_arrays([
        texts("mig_profile"), np.where(is_named, known_or(gpus, 0), 0),
        np.where(is_named, texts("constraints"), "")])
    number, kinds = pd.factorize(asked)
    found = [{} if asks_driver(constraints) else instances_in(cell, count)
             for cell, count, constraints in kinds]
    is_other = np.array([bool(one) and sum(one.values()) != count
                         for one, (_, count, _) in zip(found, kinds, strict=True)], bool)[number]
    draft.refuse(is_other, "mig_profile names another number of instances than num_gpus")
    profiles = tuple(sorted({name for one in found for name in one} - {WHOLE}))
    count = np.array([[one.get(name, 0) for name in (*profiles, WHOLE)] for one in found],
                     np.int64).reshape(len(found), len(profiles) + 1)[number]
    count[~draft.is_kept] = 0
    return Needs(profiles, count[:, :-1], count[:, -1], count.sum(axis=1) > 0)


def demands_of(draft: Draft) -> Demands:
    """What tasks ask for; impossible demands are refused."""
    cpu, memory = (amounts_of(draft, name, f"{name} of the task is unknown: taken as 0")
                   for name in ("cpu_milli", "memory_mib"))
    gpus = amounts_of(draft, "num_gpus")
    draft.refuse(np.isnan(gpus), "the number of GPUs is unknown")
    needs = needs_of(draft, gpus)
    gpus = np.where(needs.is_so, needs.whole, gpus)
    milli = np.where(needs.is_so, WHOLE_GPU_MILLI, amounts_of(draft, "gpu_milli"))
    draft.note((gpus > 0) & np.isnan(milli), "gpu_milli is unknown: taken as whole GPUs",
               "filled in")
    milli = np.where(np.isnan(milli), WHOLE_GPU_MILLI, milli)
    draft.refuse((gpus > 0) & (milli > WHOLE_GPU_MILLI), "gpu_milli is more than a GPU, 1000")
    draft.refuse((gpus > 0) & (milli == 0), "the task asks for GPUs, and for nothing of each")
    draft.note((gpus == 0) & ~needs.is_so & (draft.columns.numbers("gpu_milli") > 0),
               "gpu_milli without a GPU: taken as no GPU")
    is_several = (gpus > 1) & (milli < WHOLE_GPU_MILLI)
    draft.refuse(is_several & (gpus > MAX_GPUS_PER_NODE), "shares of more GPUs than a node has")
    draft.note(is_several, "shares of several GPUs: one task for each, NAME/0, NAME/1, ..., "
               "which start together; that they share a node is not represented")
    return Demands(known_or(cpu, 0), known_or(memory, 0), known_or(gpus, 0),
                   np.where(gpus > 0, milli, 0).astype(np.int64), is_several & draft.is_kept,
                   needs)


TICKS = 1024  # of a second
LACKS_PARTS = "waits for parts of its job that are not there: no load in a replay"


class Times(NamedTuple):
    """When the rows of a table of tasks came, started, and for how long they ran, (rows,).

    `replayable` is as in `Problem`.
    """

    submit_s: Floats
    start_s: Floats
    duration_s: Floats
    replayable: Truths


def times_of(draft: Draft) -> Times:
    """Times of tasks; those that contradict each other, or say too little, are refused."""
    submit, start, end = (np.rint(draft.columns.numbers(name) * TICKS) / TICKS
                          for name in ("submit_s", "start_s", "end_s"))
    lacks_start = np.isnan(start) & np.isfinite(submit)
    has_node = draft.columns.texts("node") != ""
    draft.note(lacks_start & has_node, "a node and no start: taken to start when submitted",
               "filled in")
    start = np.where(lacks_start & has_node, submit, start)
    since = np.where(np.isnan(start), submit, start)
    has_left = np.isnan(start) & np.isfinite(end)
    draft.refuse(np.isnan(since) & np.isfinite(end), "an end, and neither submission nor start")
    draft.refuse(end < since, "ended before it began")
    draft.note(np.isnan(submit) & np.isfinite(start), "no submission: taken as the start",
               "filled in")
    draft.note(np.isnan(submit) & np.isnan(start), "no time at all: submitted at 0", "filled in")
    draft.note(start < submit, "started before it was submitted: submitted at its start")
    submit = np.where(np.isnan(submit) | (start < submit), start, submit)
    submit = np.where(np.isnan(submit), 0.0, submit)
    draft.note(has_left, "ended and never started: waited and left, no load in a replay",
               "left out")
    draft.note(np.isfinite(start) & np.isnan(end), "no end: runs for ever")
    has_neither = np.isnan(start) & np.isnan(end)
    waits = has_neither & (draft.columns.texts("state") == WAITING)
    lacks_parts = waits & (draft.columns.numbers("lacking_parts") > 0)
    draft.note(lacks_parts, LACKS_PARTS, "left out")
    waits &= ~lacks_parts
    draft.note(waits, "waits; in a replay it runs for ever once it starts")
    draft.note(has_neither & ~waits & ~lacks_parts, "neither start nor end: no load in a replay, since nothing says "
               "that it waits, nor for how long it would run", "left out")
    return Times(submit, start, np.where(np.isnan(end - since), np.inf, end - since),
                 ~has_left & (waits | ~has_neither))


def walltimes_of(draft: Draft, times: Times) -> Floats | None:
    """For how long each task asked, (rows,), at least as long as it ran; None if nothing is known."""
    asked = np.rint(draft.columns.numbers("walltime_s") * TICKS) / TICKS
    is_known = (asked > 0) & (asked <= LARGEST_AMOUNT)
    if not (is_known & draft.is_kept).any():
        return None
    draft.note(is_known & (asked < times.duration_s) & np.isfinite(times.duration_s),
               "ran for longer than its walltime: taken to have asked for as long as it ran")
    return np.where(is_known, np.maximum(asked, times.duration_s), times.duration_s)


class Toleration(NamedTuple):
    """Taints that a task does not mind; an empty key or effect stands for any."""

    key: str
    operator: str
    value: str
    effect: str


class Taint(NamedTuple):
    """What keeps tasks away from a node."""

    key: str
    value: str
    effect: str


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration covers a taint; none covers an outage (`closed_at`)."""
    if taint.key == OUTAGES or toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


class Constraint(NamedTuple):
    """What the node of a task must have.

    Parameters
    ----------
    selector : rules that it must all meet
    terms : lists of rules, of which it must meet one; None if there are none
    tolerations : taints that it may have
    app, most_per_node : so many tasks of this application on a node; empty, and 0, for any number
    devices : kinds of GPUs, by the names under which a node shows them, of which it needs each
    others : names of what is not understood
    """

    selector: tuple[Rule, ...] = ()
    terms: tuple[tuple[Rule, ...], ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    app: str = ""
    most_per_node: int = 0
    devices: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


UNDERSTOOD = ("node_selector", "affinity", "tolerations", "group", "most_per_node", "devices")


def constraint_of(text: str) -> Constraint | None:
    """Constraint of a cell of the column `constraints`; None if it cannot be read."""
    if not text:
        return Constraint()
    try:
        said = json.loads(text)
        selector = tuple(Rule(str(key), "In", (str(value),))
                         for key, value in said.get("node_selector", {}).items())
        affinity = said.get("affinity")
        terms = affinity and tuple(
            tuple(Rule(str(one["key"]), str(one["operator"]), tuple(map(str, one["values"])))
                  for one in term) for term in affinity)
        tolerations = tuple(Toleration(*(str(one.get(name, "")) for name in Toleration._fields))
                            for one in said.get("tolerations", ()))
        app, most, devices = (said.get("group", ""), said.get("most_per_node", 0),
                              said.get("devices", []))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    is_limit = (isinstance(app, str) and app != "" and type(most) is int
                and 0 < most <= MOST_PER_NODE)
    if not ((is_limit or (app == "" and most == 0)) and isinstance(devices, list)
            and all(isinstance(one, str) for one in devices)
            and all(one.operator in OPERATORS for term in terms or () for one in term)):
        return None
    return Constraint(selector, terms, tolerations, app, most, tuple(devices),
                      tuple(sorted(set(said) - set(UNDERSTOOD))))


class Sight:
    """Labels, taints and devices of nodes, as constraints see them.

    Parameters
    ----------
    names : (nodes,)
    labels : of each node, value by name
    taints : of each node, those that keep tasks away
    devices : of each node, number by kind of GPU; None if that is not known of any
    """

    def __init__(self, names: Texts, labels: list[dict[str, str]],
                 taints: list[tuple[Taint, ...]],
                 devices: list[dict[str, int]] | None = None) -> None:
        self.devices = devices or [{} for _ in labels]
        self.labels = [{**own, "metadata.name": str(name)}
                       for name, own in zip(names, labels, strict=True)]
        number = {one: code for code, one in enumerate(dict.fromkeys(taints))}
        self.taint_sets = list(number)
        self.taint_code = np.array([number[one] for one in taints], np.int64)
        self._values: dict[str, tuple[dict[str | None, int], Integers]] = {}
        self._met: dict[Rule, Truths] = {}

    def values(self, key: str) -> tuple[dict[str | None, int], Integers]:
        """Different values of a label, numbered, and the number of each node's value."""
        if key not in self._values:
            found = [own.get(key) for own in self.labels]
            number = {value: code for code, value in enumerate(dict.fromkeys(found))}
            self._values[key] = (number, np.array([number[value] for value in found]))
        return self._values[key]

    def meet(self, rule: Rule) -> Truths:
        """Whether each node meets a rule, (nodes,)."""
        if rule not in self._met:
            number, code = self.values(rule.key)
            if rule.operator in ("In", "NotIn"):
                is_met = np.full(len(number), rule.operator == "NotIn")
                there = [number[value] for value in rule.values if value in number]
                is_met[there] = rule.operator == "In"
            else:
                is_met = np.array([meets(rule, value) for value in number])
            self._met[rule] = is_met[code]
        return self._met[rule]

    def admitted(self, constraint: Constraint) -> Truths:
        """Nodes that a constraint admits, (nodes,)."""
        is_tolerated = [all(any(tolerates(one, taint) for one in constraint.tolerations)
                            for taint in taints) for taints in self.taint_sets]
        admitted = np.array(is_tolerated, bool)[self.taint_code]
        for rule in constraint.selector:
            admitted &= self.meet(rule)
        if constraint.terms is not None:
            met = [np.logical_and.reduce([self.meet(rule) for rule in term])
                   for term in constraint.terms if term]
            admitted &= np.logical_or.reduce(met) if met else False
        if constraint.devices:
            admitted &= [all(own.get(device) for device in constraint.devices)
                         for own in self.devices]
        return admitted


KEEPS_AWAY = ("NoSchedule", "NoExecute")


def json_of(text: str, kind: type) -> Any:
    """Value of a cell that holds JSON of a kind; empty if the cell is, None if it holds no such."""
    try:
        value = json.loads(text) if text else kind()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, kind) else None


def taints_in(value: Any) -> tuple[Taint, ...]:
    """Taints that keep tasks away, of a list of them."""
    taints = [Taint(*(str(one.get(name, "")) for name in Taint._fields))
              for one in value if isinstance(one, dict)]
    return tuple(sorted({taint for taint in taints if taint.effect in KEEPS_AWAY}))


def counts_in(text: str) -> dict[str, int] | None:
    """Numbers by name in a cell that holds them as JSON; None if it does not."""
    counts = json_of(text, dict)
    is_right = counts is not None and all(type(one) is int and one >= 0 for one in counts.values())
    return counts if is_right else None


def sight_of(draft: Draft) -> Sight:
    """Labels, taints and devices of the nodes that are kept."""
    rows = np.flatnonzero(draft.is_kept)
    texts = {name: draft.columns.texts(name) for name in ("name", "labels", "taints", "devices")}
    labels = [json_of(text, dict) for text in texts["labels"]]
    taints = [json_of(text, list) for text in texts["taints"]]
    devices = [counts_in(text) for text in texts["devices"]]
    for name, values in (("labels", labels), ("taints", taints), ("devices", devices)):
        draft.note(np.array([value is None for value in values], bool),
                   f"{name} of the node cannot be read: taken as none")
    return Sight(texts["name"][rows], [{str(key): str(value) for key, value in
                                        (labels[row] or {}).items()} for row in rows],
                 [taints_in(taints[row] or []) for row in rows],
                 [devices[row] or {} for row in rows])


OF_NOW = ("slurm/state", "node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")


def as_in_the_past(tables: ClusterTables) -> ClusterTables:
    """The tables with nodes open that a dump found drained or cordoned, if tasks came and went there.

    Such a taint is of the moment of the dump. A node on which nothing ended stays closed, since
    nothing says that it was ever open.
    """
    tasks = tables.tasks
    has_ended = tasks["end_s"].notna() & tasks["start_s"].notna()
    served = set(tasks["node"][has_ended]) - {""}
    told = set() if tables.outages is None else set(tables.outages["node"])
    rows, open_taints = [], tables.nodes["taints"].copy()
    for row, (name, text) in enumerate(zip(tables.nodes["name"], tables.nodes["taints"],
                                           strict=True)):
        taints = json_of(text, list) if name in served | told else None
        left = [one for one in taints or () if not (
            isinstance(one, dict) and str(one.get("key", "")).startswith(OF_NOW))]
        if taints and len(left) < len(taints):
            rows.append(row + 2)
            open_taints.iloc[row] = json.dumps(left, sort_keys=True) if left else ""
    if not rows:
        return tables
    ledger = Ledger()
    note_rows(ledger, "nodes.csv", rows, "interpreted", "closed when the dump was made (drained, "
              "cordoned or down), and tasks came and went there before: open at all earlier moments"
              + (" but where outages.csv says otherwise" if told else ""))
    lines = pd.concat([tables.ledger, ledger.frame()], ignore_index=True)
    return replace(tables, nodes=tables.nodes.assign(taints=open_taints),
                   ledger=lines.astype(tables.ledger.dtypes))


def latest_s(tables: ClusterTables) -> float:
    """Last second at which a task of a record came, started or ended; 0 if there are no times."""
    times = tables.tasks[["submit_s", "start_s", "end_s"]].to_numpy(float, na_value=np.nan)
    return float(np.max(times, initial=0.0, where=np.isfinite(times)))


def closed_at(tables: ClusterTables, at_s: float) -> ClusterTables:
    """The tables as of a moment: nodes that are closed then have a taint that says so, and there are no other outages.

    That a dump found a node drained says nothing of a moment before the last one of the record.
    """
    tables = as_in_the_past(tables) if at_s < latest_s(tables) else tables
    if tables.outages is None:
        return tables
    lasts = tables.outages[(tables.outages["start"] <= at_s) & ~(tables.outages["end"] <= at_s)]
    kind = dict(lasts.sort_values("kind", ascending=False, kind="stable")[["node", "kind"]].to_numpy().tolist())  # down wins
    taints = [json.dumps([*(json_of(text, list) or ()), {"key": OUTAGES, "value": kind[name], "effect": "NoSchedule"}])
              if name in kind else text
              for name, text in zip(tables.nodes["name"], tables.nodes["taints"], strict=True)]
    return replace(tables, nodes=tables.nodes.assign(taints=taints).astype(tables.nodes.dtypes), outages=None)


NOWHERE = "nowhere"  # a list of groups that has none of them


def groups_of(is_admitted: Truths) -> tuple[Integers, Truths]:
    """Nodes that every constraint treats alike.

    Parameters
    ----------
    is_admitted : (constraints, nodes)

    Returns
    -------
    number of each node's group, (nodes,); which groups each constraint admits, (constraints,
    groups)
    """
    columns = np.ascontiguousarray(np.packbits(is_admitted, axis=0).T)
    number = pd.factorize(np.array([column.tobytes() for column in columns], object))[0]
    first = np.unique(number, return_index=True)[1]
    return number, is_admitted[:, first]


def spec_of(is_admitted: Truths) -> str:
    """Admissible groups as a list, empty for all of them."""
    groups = np.flatnonzero(is_admitted)
    if len(groups) == len(is_admitted):
        return ""
    return "|".join(f"g{group}" for group in groups) or NOWHERE


def placement_of(tasks: Draft, nodes: Draft, stock: Stock | None) -> tuple[
        Texts, Texts, Texts, Integers, Sight]:
    """What labels, taints, devices and constraints say of nodes that are kept, and of tasks.

    Parameters
    ----------
    tasks, nodes : the tables
    stock : instances of MIG that nodes have and tasks ask for; None if there are none

    Returns
    -------
    placement group of each node that is kept, (nodes,); admissible groups, application and most
    tasks of it on a node, (rows,); labels and taints of the nodes
    """
    codes, texts = pd.factorize(tasks.columns.texts("constraints"))
    found = [constraint_of(text) for text in texts]
    tasks.refuse(np.array([one is None for one in found], bool)[codes],
                 "the constraints cannot be read")
    constraints = [one or Constraint() for one in found]
    for name in sorted({name for one in constraints for name in one.others}):
        tasks.note(np.array([name in one.others for one in constraints])[codes],
                   f"{name} of constraints is not represented: placements may violate it")
    sight = sight_of(nodes)
    table = np.array([sight.admitted(one) for one in constraints])
    tasks.note((table.sum(axis=1) == 0)[codes], "no node has the labels and devices that it asks for, "
               "and only taints that it tolerates: no policy can place it")
    app = np.array([one.app for one in constraints], object)[codes]
    most = np.array([one.most_per_node for one in constraints], np.int64)[codes]
    if stock is not None:
        codes, table = with_instances(tasks, stock, codes, table)
    number, admits_group = groups_of(table)
    specs = np.array([spec_of(admitted) for admitted in admits_group], object)
    return np.array([f"g{one}" for one in number], object), specs[codes], app, most, sight


def with_instances(tasks: Draft, stock: Stock, code: Integers,
                   admitted: Truths) -> tuple[Integers, Truths]:
    """Constraints of which each also says how many instances it needs, and of which GPU models.

    Parameters
    ----------
    tasks, stock : the table, and what it asks for
    code, admitted : number of the constraint of each row, (rows,); nodes that each admits,
        (constraints, nodes)
    """
    needs = stock.needs
    wishes = np.where(needs.is_so, tasks.columns.texts("gpu_models"), "")
    asked = pd.MultiIndex.from_arrays([code, wishes, *needs.counts.T])
    number, kinds = pd.factorize(asked)
    has_all = np.array([(stock.room >= count).all(axis=1) for _, _, *count in kinds])
    tasks.note((has_all.sum(axis=1) == 0)[number],
               "no node has the instances that it asks for: no policy can place it")
    is_right = np.array([[not wish or admits(wish, model) for model in stock.models]
                         for _, wish, *_ in kinds])
    return number, admitted[[kind[0] for kind in kinds]] & has_all & is_right


UNKNOWN_CPU = "unknown"
NO_CPU_POWER = {UNKNOWN_CPU: (0, 0, 1)}
ENOUGH = 2**28  # 268,000 vCPU, or 256 TiB; scores multiply it with sums over all tasks


def enough_for(amounts: Integers) -> int:
    """As much as all tasks ask for together, at least 1; no more than is enough for any node."""
    together = min(float(amounts.sum(dtype=float)), ENOUGH)
    return int(max(1.0, together, amounts.max(initial=0)))


def cluster_of(draft: Draft, demands: Demands) -> Cluster:
    """Nodes that are kept, in the order of the table."""
    cpu = amounts_of(draft, "cpu_milli", "cpu_milli of the node is unknown: taken as enough, and "
                     "its CPUs draw 0 W")
    memory = amounts_of(draft, "memory_mib", "memory_mib of the node is unknown: taken as enough")
    gpus = amounts_of(draft, "num_gpus", "num_gpus of the node is unknown: taken as none")
    draft.refuse(gpus > MAX_GPUS_PER_NODE, f"more than {MAX_GPUS_PER_NODE} GPUs in a node")
    models = np.array([model.strip() for model in draft.columns.texts("gpu_model")], object)
    draft.note((gpus > 0) & (models == ""), "the GPU model is unknown: its GPUs draw 0 W")
    draft.note((gpus > 0) & np.array(["+" in model for model in models], bool), "GPUs of several "
               "models: a model of its own, for tasks that name none")
    rows = np.flatnonzero(draft.is_kept)
    refuse_empty(draft, "there are no nodes", "read again with --nodes FILE, or with --size-to 80%")
    num_gpus = known_or(gpus, 0)
    cpu_model = np.where(np.isnan(cpu), UNKNOWN_CPU, "").astype(object)
    return Cluster(draft.columns.texts("name"), known_or(cpu, enough_for(demands.cpu_milli)),
                   known_or(memory, enough_for(demands.memory_mib)), num_gpus,
                   np.where(num_gpus > 0, models, ""), cpu_model).take(rows)


class Stock(NamedTuple):
    """Instances of MIG that nodes have, and who asks for them.

    Parameters
    ----------
    needs : what tasks ask for
    room : (nodes, profiles) instances that each node has
    models : (nodes,) GPU models, also of GPUs that are all cut
    """

    needs: Needs
    room: Integers
    models: Texts


def recorded_most(draft: Draft, demands: Demands, times: Times,
                  node: Integers, num_nodes: int) -> tuple[Integers, Integers]:
    """Most instances, (nodes, profiles), and thousandths of other GPUs, that ran at once."""
    ran = np.flatnonzero(draft.is_kept & (node >= 0) & np.isfinite(times.start_s))
    start_s = times.start_s[ran]
    amounts = [*demands.needs.counts.T, demands.num_gpus * demands.gpu_milli]
    most = np.zeros((len(amounts), num_nodes), np.int64)
    for own, amount in zip(most, amounts, strict=True):
        spells = overfull(Bookings(node[ran], ran, start_s, start_s + times.duration_s[ran],
                                   amount[ran]), np.zeros(num_nodes))
        np.maximum.at(own, spells.unit, spells.most)
    return most[:-1].T, most[-1]


def stock_of(nodes: Draft, draft: Draft, demands: Demands, times: Times,
             cluster: Cluster) -> tuple[Stock | None, Cluster]:
    """Instances of the nodes that are kept, and their GPUs that are not cut into any.

    A node has the instances that its devices name. Where a record shows more, there were more.

    Parameters
    ----------
    nodes, draft : the tables
    demands, times : of the tasks
    cluster : all GPUs of the nodes, cut or not
    """
    needs = demands.needs
    devices = [counts_in(text) or {} for text in nodes.columns.texts("devices")[nodes.is_kept]]
    shown = [instances_shown(own) for own in devices]
    if not needs.profiles and not any(shown):
        return None, cluster
    profiles = needs.profiles
    room = np.array([[own.get(name, 0) for name in profiles] for own in shown], np.int64)
    ran, others = recorded_most(draft, demands, times, nodes_named(draft, cluster, is_quiet=True),
                                len(cluster))
    more = (ran > room.reshape(ran.shape)).any(axis=1)
    kept = np.flatnonzero(nodes.is_kept)
    for is_so, what, reason in (
            (more & np.array(list(map(bool, shown))), "interpreted",
             "more instances ran at once than the node shows: taken as there"),
            (more & ~np.array(list(map(bool, shown))), "assumed",
             "instances that ran there are taken to be there all the time")):
        note_rows(nodes.ledger, nodes.columns.file, kept[is_so] + 2, what, reason)
    milli = np.array([milli_of_profile(name) or WHOLE_GPU_MILLI for name in profiles], np.int64)
    free = np.maximum(cluster.num_gpus - -(-(ran @ milli) // WHOLE_GPU_MILLI),
                      np.minimum(-(-others // WHOLE_GPU_MILLI), cluster.num_gpus))
    uncut = np.array([min(own.get(WHOLE, 0), count) if cut else rest for own, cut, rest, count in
                      zip(devices, shown, free, cluster.num_gpus, strict=True)], np.int64)
    note_rows(nodes.ledger, nodes.columns.file, kept[uncut < cluster.num_gpus] + 2, "interpreted",
              "GPUs that are cut serve instances only, which are counted: their watts and GPU "
              "hours are not")
    models = np.where(uncut > 0, cluster.gpu_model, "").astype(object)
    return (Stock(needs, np.maximum(room.reshape(ran.shape), ran), cluster.gpu_model),
            replace(cluster, num_gpus=uncut, gpu_model=models))


def instances_shown(devices: dict[str, int]) -> dict[str, int]:
    """Instances by profile among the devices of a node.

    Where it also has whole GPUs, or says that it has none, parts of GPUs that are shared in time
    are counted in the same way.
    """
    found: dict[str, int] = {}
    for device, count in devices.items():
        is_part = WHOLE in devices and PART_BY_TIME.search(device)
        if (profile := device if is_part else profile_shown(device)) and count:
            found[profile] = found.get(profile, 0) + count
    return found


def nodes_named(draft: Draft, cluster: Cluster, *, is_quiet: bool = False) -> Integers:
    """Row in the cluster of the node of each task, -1 if it is unknown, (rows,)."""
    code, names = pd.factorize(draft.columns.texts("node"))
    row_of = {name: row for row, name in enumerate(cluster.name)}
    node = np.array([row_of.get(name, -1) for name in names] or [-1])[code]
    if not is_quiet:
        draft.note((draft.columns.texts("node") != "") & (node < 0),
                   "ran on a node that is not in the problem: its place is unknown")
    return node


class Parts(NamedTuple):
    """Tasks of the problem: the row of the table that each comes from, and which part it is."""

    row: Integers
    part: Integers
    is_several: Truths


def parts_of(draft: Draft, demands: Demands) -> Parts:
    """One task for each row that is kept, or for each share of several GPUs."""
    rows = np.flatnonzero(draft.is_kept)
    count = np.where(demands.is_several[rows], demands.num_gpus[rows], 1)
    row = np.repeat(rows, count)
    part = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    return Parts(row, part, demands.is_several[row])


def other_spelling(wish: str, there: Iterable[str]) -> str:
    """What to mend in a wish for GPU models that no node has, but for case and signs; or nothing."""
    plain = {re.sub(r"[^a-z0-9]", "", model.casefold()): model for model in there if model}
    for model in models_of(wish):
        if other := plain.get(re.sub(r"[^a-z0-9]", "", model.casefold())):
            return (f"tasks.csv has {model!r:.60} and nodes.csv {other!r:.60}, which differ only in "
                    "spelling: write the same in both")
    return ""


def wishes_of(draft: Draft, demands: Demands, cluster: Cluster) -> Texts:
    """Admissible GPU models of each task, (rows,)."""
    code, texts = pd.factorize(draft.columns.texts("gpu_models"))
    there = set(cluster.gpu_model)
    wanted = [models_of(text) for text in texts]
    lacking = [bool(models) and not there & set(models) for models in wanted]
    hints = [other_spelling(text, there) if is_so else "" for text, is_so in
             zip(texts, lacking, strict=True)]
    for hint in dict.fromkeys(hints if any(lacking) else ()):
        is_so = np.array([one and other == hint for one, other in zip(lacking, hints, strict=True)])
        is_asked = is_so[code] & (demands.num_gpus > 0)
        draft.note(is_asked, "asks for GPU models that no node has: no policy can place it"
                   + (f"; {hint}" if hint else ""))
        if hint and is_asked.any():
            warnings.warn(f"no policy can place {is_asked.sum():,} tasks: {hint}", stacklevel=2)
    specs = np.array(["|".join(models) for models in wanted] or [""], object)
    return np.where(demands.num_gpus > 0, specs[code], "")


def tasks_of(draft: Draft, demands: Demands, parts: Parts, specs: tuple[Texts, Texts]) -> Tasks:
    """Tasks of the problem; of the parts of a row the first has its CPU and memory."""
    row, part, is_several = parts
    gpu_spec, cpu_spec = specs
    name = draft.columns.texts("name")[row]
    for task in np.flatnonzero(is_several):
        name[task] = f"{name[task]}/{part[task]}"
    return Tasks(name, np.where(part == 0, demands.cpu_milli[row], 0),
                 np.where(part == 0, demands.memory_mib[row], 0),
                 np.where(is_several, 1, demands.num_gpus[row]), demands.gpu_milli[row],
                 gpu_spec[row], cpu_spec[row])


def refuse_empty(draft: Draft, problem: str, mend: str) -> None:
    """Refuse a table of which no row is left.

    Parameters
    ----------
    problem, mend : what is said of a table that has none at all
    """
    if draft.is_kept.any():
        return
    lines = draft.ledger.frame()
    lines = lines[(lines["file"] == draft.columns.file) & (lines["what"] == "refused")]
    if len(lines):
        raise InputError(f"no row can be used: {' or '.join(lines['reason'])}",
                         file=draft.columns.file, row=int(lines["row"].iloc[0]),
                         mend="correct these rows; sched-lab check names them")
    raise InputError(problem, file=draft.columns.file, mend=mend)


def problem_of(tables: ClusterTables) -> Problem:
    """Turn the tables of a cluster into a problem that can be replayed.

    Parameters
    ----------
    tables : nodes and tasks, as `read_cluster` gives them

    Returns
    -------
    problem; what became of rows that are not in it as they stood is in its ledger

    Raises
    ------
    InputError : there is no node, or no task that can be replayed
    """
    ledger = Ledger()
    nodes = draft_of("nodes.csv", tables.nodes, ledger)
    draft = draft_of("tasks.csv", tables.tasks, ledger)
    demands = demands_of(draft)
    times = times_of(draft)
    walltime_s = walltimes_of(draft, times)
    cluster = cluster_of(nodes, demands)
    no_tasks = ("there are no tasks", "read again, with a file that has some")
    refuse_empty(draft, *no_tasks)
    stock, cluster = stock_of(nodes, draft, demands, times, cluster)
    group, spec, app, most_per_node, sight = placement_of(draft, nodes, stock)
    refuse_empty(draft, *no_tasks)
    specs = (wishes_of(draft, demands, cluster), spec)
    parts = parts_of(draft, demands)
    row = parts.row
    node, gpu_mask = places_of(draft, demands, parts, cluster)
    priority = known_or(draft.columns.numbers("priority"), 0)[row]
    user, queue, constraint, fixed, account, qos = (draft.columns.texts(name)[row] for name in (
        "user", "queue", "constraints", "fixed", "account", "qos"))
    job = draft.columns.texts("job")
    lacking_parts = known_or(draft.columns.numbers("lacking_parts"), 0)[row]
    is_limited = (most_per_node[row] > 0) & (parts.part == 0)  # a row counts once
    has_limits = bool(is_limited.any())
    number = np.where(job == "", np.arange(len(job)), len(job) + pd.factorize(job)[0])[row]
    whole, number = np.unique(number, return_inverse=True)
    outages = None if tables.outages is None else outages_of(tables.outages, cluster.name, ledger)
    return Problem(
        cluster, tasks_of(draft, demands, parts, specs), group, times.submit_s[row],
        times.duration_s[row], times.start_s[row], node, gpu_mask, user, queue, priority,
        ledger.frame(), tables.about.get("zero"),
        np.where(is_limited, app[row], "") if has_limits else None,
        np.where(is_limited, most_per_node[row], 0) if has_limits else None, sight, constraint,
        times.replayable[row],
        stock and Instances(demands.needs.profiles, demands.needs.counts[row], stock.room),
        fixed if (fixed != "").any() else None, None if len(whole) == len(number) else number,
        None if walltime_s is None else walltime_s[row], row, lacking_parts if lacking_parts.any() else None,
        outages, account=account if (account != "").any() else None, qos=qos if (qos != "").any() else None)


def outages_of(rows: pd.DataFrame, names: Texts, ledger: Ledger) -> Outages | None:
    """Outages of the nodes of a problem, in the order in which they begin; None if there are none.

    Parameters
    ----------
    rows : as `read_outages` gives them
    names : of the nodes
    ledger : where it is noted what they do
    """
    row_of = {name: row for row, name in enumerate(names)}
    node = np.array([row_of.get(name, -1) for name in rows["node"]], np.int64)
    is_down, waits_again = (rows["kind"] == "down").to_numpy(), (rows["requeue"] != "no").to_numpy()
    for is_so, what, reason in (
            (node < 0, "left out", "the node is not in the problem"),
            ((node >= 0) & ~is_down, "interpreted", "drained: nothing starts there, and what runs goes on"),
            ((node >= 0) & is_down & waits_again, "interpreted", "down: what runs is stopped, and waits again"),
            ((node >= 0) & is_down & ~waits_again, "interpreted", "down: what runs ends there")):
        note_rows(ledger, "outages.csv", np.flatnonzero(is_so) + 2, what, reason)
    from_s, until_s = (np.rint(rows[name].to_numpy(float) * TICKS) / TICKS for name in ("start", "end"))
    kept = np.flatnonzero((node >= 0) & ~(until_s <= from_s))
    kept = kept[np.argsort(from_s[kept], kind="stable")]
    until_s = np.where(np.isnan(until_s), np.inf, until_s)
    return Outages(node, from_s, until_s, is_down, waits_again).of(kept) if len(kept) else None


def replayable(problem: Problem) -> Problem:
    """The problem without the tasks that a replay cannot have.

    Raises
    ------
    InputError : that would be most of them
    """
    if problem.replayable is None:
        return problem
    lost = ~problem.replayable & np.isinf(problem.duration_s)
    refused = problem.ledger[(problem.ledger["what"] == "refused")
                             & (problem.ledger["file"] == "tasks.csv")]
    number = int(lost.sum()) + int(refused["count"].sum())
    total = len(problem.tasks) + int(refused["count"].sum())
    if number > total / 2 or not problem.replayable.any():
        reasons = [*refused["reason"], *(["neither start nor end"] if lost.any() else [])]
        raise InputError(f"{number:,} of {total:,} tasks lack what a replay needs "
                         f"({'; '.join(reasons) or 'all left the queue without a start'})",
                         file="tasks.csv", mend="read again and say which columns are the times, "
                         "--map submit_s=COLUMN, start_s, end_s or duration_s; tasks without any "
                         "are for sched-lab inflate")
    return with_tasks(problem, np.flatnonzero(problem.replayable))


def places_of(draft: Draft, demands: Demands, parts: Parts,
              cluster: Cluster) -> tuple[Integers, Integers]:
    """Recorded node and GPUs of each task, as a bit mask, 0 if unknown, (tasks,)."""
    node = nodes_named(draft, cluster)
    texts = draft.columns.texts("gpu_list")
    code, distinct = pd.factorize(texts)
    lists = [sorted(set(gpus_of(text))) for text in distinct] or [[]]
    lists = [gpus if gpus and gpus[-1] < MAX_GPUS_PER_NODE else [] for gpus in lists]
    gpu = np.zeros((len(lists), MAX_GPUS_PER_NODE), np.int64)
    for number, gpus in enumerate(lists):
        gpu[number, : len(gpus)] = gpus
    size = np.array([len(gpus) for gpus in lists])
    bits = np.array([sum(1 << one for one in gpus) for gpus in lists])
    count = size[code]
    is_right = (count > 0) & (node >= 0) & (
        gpu.max(axis=1)[code] < np.append(cluster.num_gpus, 0)[node])
    is_right &= (count == demands.num_gpus) | (demands.is_several & (count == 1))
    draft.note((texts != "") & ~is_right & (node >= 0) & ~demands.needs.is_so,
               "gpu_list does not fit the task or the node: its GPUs are unknown")
    row, part, is_several = parts
    one_of_list = 1 << gpu[code[row], part % np.maximum(count[row], 1)]
    mask = np.where(is_several, one_of_list, bits[code[row]])
    return node[row], np.where(is_right[row], mask, 0)


@njit(cache=True)
def pick_gpus(left: Integers, num_gpus: int, gpu_milli: int) -> int:
    """GPUs for a task of which only the node is known, as a bit mask.

    Parameters
    ----------
    left : (GPUs of the node,) milli-GPU
    num_gpus, gpu_milli : what the task has
    """
    mask = 0
    for _ in range(min(num_gpus, len(left))):
        best = -1
        for gpu in range(len(left)):
            if mask >> gpu & 1:
                continue
            is_better = best < 0 or left[gpu] > left[best]
            if best >= 0 and left[best] >= gpu_milli:
                is_better = gpu_milli <= left[gpu] < left[best]
            if is_better:
                best = gpu
        mask |= 1 << best
    return mask


@njit(cache=True)
def fill_masks(task: Integers, is_start: Truths, node: Integers, mask: Integers,
               demand: Integers, num_gpus: Integers, left: Integers) -> None:
    """Give GPUs to tasks of which only the node is known.

    Parameters
    ----------
    task, is_start : (events,) in the order of time, ends before starts
    node, mask : (tasks,) places; masks of 0 are written
    demand : (tasks, 2) number of GPUs and milli-GPU of each
    num_gpus : (nodes,)
    left : (nodes, GPUs) milli-GPU left; written to
    """
    for event in range(len(task)):
        now = task[event]
        row = left[node[now], : num_gpus[node[now]]]
        if is_start[event] and mask[now] == 0:
            mask[now] = pick_gpus(row, demand[now, 0], demand[now, 1])
        for gpu in range(len(row)):
            if mask[now] >> gpu & 1:
                row[gpu] += -demand[now, 1] if is_start[event] else demand[now, 1]


def recorded(problem: Problem) -> Schedule:
    """What really ran, where and when; a task is in it if its node and start are known."""
    ran = (problem.node >= 0) & np.isfinite(problem.start_s)
    start = np.where(ran, problem.start_s, np.nan)
    end = start + problem.duration_s
    holds = np.flatnonzero(ran & (problem.duration_s > 0) & (problem.tasks.num_gpus > 0))
    time = np.concatenate([start[holds], end[holds]])
    is_start = np.arange(len(time)) < len(holds)
    order = np.lexsort((is_start, time))
    demand = np.stack([problem.tasks.num_gpus, problem.tasks.gpu_milli], axis=1)
    mask = np.where(ran, problem.gpu_mask, 0)
    fill_masks(np.tile(holds, 2)[order], is_start[order], problem.node, mask, demand,
               problem.cluster.num_gpus, empty_state(problem.cluster).gpu_left_milli)
    return Schedule(np.where(ran, problem.node, -1), mask, start, end)


def running_at(schedule: Schedule, at_s: float) -> Truths:
    """Tasks that hold something at a moment: started, and not ended, (tasks,)."""
    return (schedule.node >= 0) & (schedule.start_s <= at_s) & (schedule.end_s > at_s)


def power_of_problem(problem: Problem, power: PowerSettings) -> Power:
    """Power model of the nodes; CPUs of unknown number draw nothing unless it is said what."""
    return power._replace(cpu_power_w={**NO_CPU_POWER, **(power.cpu_power_w or {})}).of(
        problem.cluster)


def idle_milliwatts(problem: Problem, power: PowerSettings) -> Integers:
    """Power of the CPUs and of the GPUs of each node without tasks, (2, nodes), milliwatts."""
    of_node, empty = power_of_problem(problem, power), empty_state(problem.cluster)
    with interpreted(True):  # once for each node
        drawn = [(cpu_power_milliwatt(of_node, node, empty.cpu_left_milli[node]),
                  gpu_power_milliwatt(of_node, node, empty.gpu_left_milli[node]))
                 for node in range(len(problem.cluster))]
    return np.array(drawn).reshape(-1, 2).T


def world_of_problem(problem: Problem, power: PowerSettings) -> tuple[World, Integers]:
    """Empty world of a problem, and the class of each task, (tasks,).

    Ties are broken in the order of `nodes.csv`; the target workload is that of the trace, unless it is given.

    Raises
    ------
    InputError : a GPU or CPU model has no watts
    """
    classes, class_of_task = task_classes(problem.tasks)
    target = problem.target or most_popular(classes)
    world = world_of(problem.grouped(), classes, target, power_of_problem(problem, power))
    return world, class_of_task


def models_without_watts(problem: Problem, power: PowerSettings) -> list[str]:
    """GPU models of a problem of which no watts are known, "" for GPUs of no known model."""
    models = pd.unique(problem.cluster.gpu_model[problem.cluster.num_gpus > 0])
    return [model for model in models if not knows_gpu_w(model, power.gpu_power_w)]


def counted_world(problem: Problem, power: PowerSettings) -> tuple[World, Integers]:
    """As `world_of_problem`, with the limits of applications and of instances in the world."""
    return with_limits(*world_of_problem(problem, power), *limits_of(problem))


def place_running(world: World, problem: Problem, class_of: Integers, schedule: Schedule,
                  is_running: Truths) -> None:
    """Take from the state of an empty world what tasks hold.

    Parameters
    ----------
    world, class_of : as `world_of_problem` gives them; the state is written to
    problem, schedule : who is where
    is_running : (tasks,) those that hold something

    Raises
    ------
    InputError : a node does not have what they hold together, or as many GPUs as one asks for
    """
    rows = np.flatnonzero(is_running)
    count = np.bitwise_count(schedule.gpu_mask[rows])
    for task in rows[count != problem.tasks.num_gpus[rows]].tolist():
        raise InputError(f"task {problem.tasks.name[task]!r:.60} runs on a node with fewer GPUs "
                         "than it asks for", file="tasks.csv", mend="see sched-lab check, and "
                         "correct its node or num_gpus")
    placements = Placements(rows, schedule.node[rows], schedule.gpu_mask[rows])
    left = final_state(problem.cluster, problem.tasks, placements)
    try:
        check_state(problem.cluster, left)
    except ValueError as trouble:
        raise InputError(f"tasks that run at once hold more than there is: {trouble}",
                         file="tasks.csv", mend="see sched-lab check, and correct the places or "
                         "the demands of these tasks") from None
    for array, now in zip(world.state, left, strict=True):
        array[:] = now
    for counts, column in ((world.residents, world.demand.kind),
                           (world.limits.num, world.demand.limit)):
        number = column[class_of[rows]]
        np.add.at(counts, (placements.node[number >= 0], number[number >= 0]), 1)
    open_nodes(world.limits)


MANY = 2**40  # tasks of an application on a node, where it has no limit


def limits_of(problem: Problem) -> tuple[Integers, Limits]:
    """Number of the limit of each task, (tasks,), -1 for none; the limits, nobody counted yet."""
    size = len(problem.tasks)
    has_app = problem.app is not None and problem.most_per_node is not None
    _, need, room = problem.instances or Instances(
        (), np.zeros((size, 0), np.int64), np.zeros((len(problem.cluster), 0), np.int64))
    return limits_among(problem.app.astype(str) if has_app else np.full(size, ""),  # type: ignore[union-attr]
                        problem.most_per_node if has_app else np.zeros(size, np.int64),  # type: ignore[arg-type]
                        need, room)


def limits_among(app: Texts, most: Integers, need: Integers,
                 room: Integers) -> tuple[Integers, Limits]:
    """Number of the limit of each task, (tasks,), -1 for none; the limits, nobody counted yet.

    Tasks that ask for instances have a limit, too: of as many tasks as the node has instances for.

    Parameters
    ----------
    app, most : (tasks,) as `Constraint` has them: the application, and most tasks of it on a node
    need, room : as in `Instances`
    """
    number = np.full(len(app), -1)
    rows = np.flatnonzero((most > 0) | need.any(axis=1))
    if not len(rows):
        return number, no_limits(len(room))
    code = np.unique(app[rows], return_inverse=True)[1]
    own = np.where(most[rows] > 0, most[rows], MANY)
    kinds, number[rows] = np.unique(np.column_stack([code, own, need[rows]]), axis=0,
                                    return_inverse=True)
    span = np.column_stack([np.searchsorted(kinds[:, 0], kinds[:, 0], side)
                            for side in ("left", "right")])
    return number, new_limits(kinds[:, 1].copy(), span, kinds[:, 2:].copy(), room)


def instances_nobody_has(problem: Problem) -> Truths:
    """Whether a task asks for more instances than there are on any node, (tasks,)."""
    if problem.instances is None:
        return np.zeros(len(problem.tasks), bool)
    _, need, room = problem.instances
    number, kinds = pd.factorize(pd.MultiIndex.from_arrays([*need.T])) if need.shape[1] else (
        np.zeros(len(need), np.int64), [()])
    is_somewhere = [bool((room >= np.array(kind, np.int64)).all(axis=1).any()) for kind in kinds]
    return ~np.array(is_somewhere, bool)[number]
