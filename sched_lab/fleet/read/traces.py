"""Each publisher has its own words for a GPU and a job; a reader says what it took for what."""

# A module, written by hand.

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...lab.arrays import Floats, Integers, Texts, Truths
from ...lab.frames import InputError
from .dates import durations_in, seconds_in
from .objects import as_json, objects_at
from .states import CANCELLED, OVER, RUNS, WAITS, fate_of
from .tables import (
    MOST_PER_NODE,
    WAITING,
    Format,
    Ledger,
    ReadOptions,
    Source,
    head_of,
    header_of,
    note_rows,
    numbers_in,
    text_table,
)

MIB_OF_GIB = 1024
MOST_PARTS = 10_000  # tasks of one job
MOST_TASKS = 5_000_000
MOST_NODES = 200_000  # of one machine; Fugaku has 158,976


@dataclass(frozen=True)
class Rows:
    """The rows of one table, and the ledger for doubts about them.

    Parameters
    ----------
    source : the file
    cells : (rows, columns) texts; the index is the line in the file
    ledger : where doubts go
    options : how dates are to be read
    used : columns that were asked for
    """

    source: Source
    cells: pd.DataFrame
    ledger: Ledger
    options: ReadOptions = ReadOptions()
    used: set[str] = field(default_factory=set)

    def note(self, is_so: Truths, what: str, reason: str) -> None:
        """Put the rows of a mask into the ledger."""
        note_rows(self.ledger, self.source.name, self.cells.index[is_so], what, reason)

    def texts(self, column: str) -> pd.Series:
        """Texts of a column, empty if the table has no such column."""
        self.used.add(column)
        if column in self.cells:
            return self.cells[column]
        return pd.Series("", self.cells.index, dtype="object", name=column)

    def numbers(self, column: str, scale: float = 1, read: Callable[..., pd.Series] = numbers_in,
                ) -> Floats:
        """Numbers of a column, 0 or more, NaN where unknown."""
        known = read(self.texts(column), self.source, self.ledger)
        numbers = known.to_numpy(float, na_value=np.nan)
        is_below = numbers < 0
        self.note(is_below, "interpreted", f"column {column}: below 0, taken as unknown")
        with np.errstate(over="ignore"):  # such a row is dropped by `without_impossible`
            return np.where(is_below, np.nan, numbers * scale)

    def seconds(self, column: str, unit_s: float = 1) -> Floats:
        """Seconds of a column of dates, or of numbers of a unit, NaN where unknown."""
        return self.numbers(column, read=partial(seconds_in, options=self.options, unit_s=unit_s))

    def durations(self, column: str, unit_s: float = 1) -> Floats:
        """Seconds of a column of `hh:mm:ss`, or of numbers of a unit, NaN where unknown."""
        return self.numbers(column, read=partial(durations_in, unit_s=unit_s))

    def note_rest(self) -> None:
        """Name the columns that nobody asked for."""
        for name in self.cells.columns:
            if name not in self.used:
                self.ledger.note(self.source.name, None, "extra column",
                                 f"column {name}: not used", len(self.cells))


def fates_of(rows: Rows, states: pd.Series, has_ended: Truths) -> Texts:
    """What the state of each row says of it, empty if it says nothing, (rows,)."""
    known = {text: fate_of(text) for text in states.unique()}
    fates = states.map(known).to_numpy(object)
    rows.note((fates == "") & states.ne("").to_numpy(), "interpreted",
              f"column {states.name}: a state that is not known; the times decide")
    is_attempt = states.str.upper().str.startswith("REQUEUE").to_numpy(bool) & has_ended
    rows.note(is_attempt, "interpreted", "put back into the queue: an attempt, which is over")
    return np.where(is_attempt, OVER, fates)


def task_times(rows: Rows, times: tuple[Floats, Floats, Floats], *, lasting_s: Floats | None = None,
               states: pd.Series | None = None) -> tuple[dict[str, Any], Truths]:
    """What times, and states where there are any, say together: when tasks came, started and ended.

    Parameters
    ----------
    times : submission, start and end, (rows,) each, NaN unknown
    lasting_s : (rows,) for how long each ran, where a table says so
    states : (rows,) in the words of the table

    Returns
    -------
    `submit_s`, `start_s`, `end_s` and `state` of the table of tasks; an end without a start is of a
    task that waited and left; and whether anything is known of what a task that is over was, (rows,)
    """
    submit, start, end = times
    if states is None:
        states = pd.Series("", rows.cells.index, dtype="object")
    fates = fates_of(rows, states, np.isfinite(start) & np.isfinite(end))
    waits = fates == WAITS
    if lasting_s is not None:
        ran = (lasting_s > 0) & np.isnan(start) & ~waits
        rows.note(ran & np.isfinite(end), "interpreted", "no start: the duration before the end")
        start = np.where(ran & np.isfinite(end), end - lasting_s, start)
        came = ran & np.isnan(end) & np.isfinite(submit)
        rows.note(came, "assumed", "no start, and a duration: taken to start when submitted")
        start = np.where(came, submit, start)
        ends = np.isnan(end) & np.isfinite(start) & np.isfinite(lasting_s) & (fates != RUNS)
        end = np.where(ends, start + lasting_s, end)
    rows.note(waits & (np.isfinite(start) | np.isfinite(end)), "interpreted",
              "the state says that it waits: its start and end are yet to come")
    rows.note((fates == RUNS) & np.isfinite(end), "interpreted",
              "the state says that it runs: its end is yet to come")
    start = np.where(waits | ((fates == CANCELLED) & (start == end)), np.nan, start)
    end = np.where(waits | (fates == RUNS), np.nan, end)
    rows.note(np.isnan(start) & np.isfinite(end), "interpreted",
              "ended and never started: it waited and left, and was no load")
    is_lost = np.isin(fates, (OVER, CANCELLED)) & np.isnan(end)
    rows.note(is_lost, "dropped", "the state says that it is over, and no time says since when")
    state = np.where(waits, WAITING, "").astype(object)
    return {"submit_s": submit, "start_s": start, "end_s": end, "state": state}, ~is_lost


def gpu_demand(rows: Rows, gpus: Floats) -> dict[str, Floats]:
    """Number of GPUs and thousandths of each, of demands in GPUs, (rows,)."""
    nearest = np.rint(gpus)
    gpus = np.where(np.abs(gpus - nearest) < 1e-9, nearest, gpus)
    is_share = (gpus > 0) & (gpus < 1)
    rows.note((gpus > 1) & (gpus != np.rint(gpus)), "interpreted",
              "more than one GPU and a share, such as 1.5 GPUs: rounded up to whole GPUs")
    milli = np.where(is_share, np.maximum(1, np.rint(1000 * gpus)), np.where(gpus > 0, 1000, gpus))
    return {"num_gpus": np.ceil(gpus), "gpu_milli": milli}


def parts_of(rows: Rows, parts: Floats, reason: str) -> Integers:
    """Number of tasks of each job, 1 where unknown; jobs of absurdly many are refused."""
    counts = np.where(parts >= 1, np.rint(parts), 1)
    error = partial(InputError, file=rows.source.name)
    if (counts > MOST_PARTS).any():
        row = rows.cells.index[int(np.argmax(counts))]
        raise error(f"a job has {counts.max():,.0f} parts", row=int(row),
                    mend=f"give at most {MOST_PARTS:,}")
    if counts.sum() > MOST_TASKS:
        raise error(f"the jobs have {counts.sum():,.0f} parts together",
                    mend=f"give at most {MOST_TASKS:,}, of a shorter time for instance")
    rows.note(counts > 1, "interpreted", reason)
    return counts.astype(np.int64)


def split(jobs: pd.DataFrame, parts: Integers, shared: Sequence[str] = ()) -> pd.DataFrame:
    """One row for each part of each job.

    Parameters
    ----------
    jobs : rows with a column `name`
    parts : (jobs,) number of parts
    shared : columns that the parts of a job divide among them; the others they all have
    """
    if (parts == 1).all():
        return jobs
    job = np.repeat(np.arange(len(jobs)), parts)
    part = np.arange(len(job)) - np.repeat(np.cumsum(parts) - parts, parts)
    tasks = jobs.iloc[job].copy()
    several = parts[job] > 1
    names = tasks["name"].astype(str)
    tasks["name"] = names.where(~several, names + "/" + part.astype(str))
    stated = tasks["job"] if "job" in tasks else ""
    tasks["job"] = names.where(several & (stated == ""), stated)
    for column in shared:
        whole = tasks[column].to_numpy(float)
        tasks[column] = whole // parts[job] + (part < whole % parts[job])
    return tasks


class TableKind(NamedTuple):
    """One kind of table.

    Parameters
    ----------
    holds : nodes, tasks, or what a format joins itself
    telling : columns that a table of this kind has
    read : rows -> frame with canonical columns
    header : columns of a file that may come without one
    """

    holds: str
    telling: frozenset[str]
    read: Callable[[Rows], pd.DataFrame]
    header: tuple[str, ...] = ()


def kind_of(source: Source, kinds: Sequence[TableKind]) -> tuple[TableKind | None, bool]:
    """TableKind of a table, if it is one of these, and whether its header is missing."""
    found = header_of(source)
    for kind in kinds:
        if kind.telling <= set(found):
            return kind, False
        if kind.header and is_row_of(found, kind.header):
            return kind, True
    return None, False


NUMERIC = {"inst_num", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "cap_cpu",
           "cap_mem", "cap_gpu"}


def is_row_of(cells: Sequence[str], header: Sequence[str]) -> bool:
    """Whether the first line of a file is no header but a row under this one."""
    if len(cells) != len(header):
        return False
    pairs = list(zip(cells, header, strict=True))
    numbers = [cell for cell, name in pairs if name in NUMERIC and cell]
    states = [cell for cell, name in pairs if name == "status"]
    is_named = bool(states) or re.fullmatch("[0-9a-f]{16,}", cells[0])  # a machine of PAI
    return bool(numbers and is_named) and all(re.fullmatch(r"-?[0-9.]+(?:e[+-]?\d+)?", one) for one in numbers
                                 ) and all(fate_of(one) for one in states)


Frames = dict[str, list[pd.DataFrame]]


def frames_of(kinds: Sequence[TableKind], files: Sequence[Source], ledger: Ledger,
              options: ReadOptions) -> Frames:
    """Frames that the tables of a trace hold, by what they hold."""
    frames: Frames = {kind.holds: [] for kind in kinds}
    for source in files:
        kind, lacks_header = kind_of(source, kinds)
        if kind is None:
            wanted = " or ".join(", ".join(sorted(kind.telling)) for kind in kinds)
            raise InputError(f"no table of this trace; its columns are "
                             f"{', '.join(header_of(source)[:12])}", file=source.name, row=1,
                             mend=f"give a table with {wanted}")
        whole = source
        if lacks_header:
            ledger.note(source.name, None, "interpreted",
                        "there is no header: columns as in its README")
            names = head_of(source)[0].join(kind.header)
            whole = Source(source.name, f"{names}\n{source.text()}".encode())
        rows = Rows(source, text_table(whole), ledger, options)
        rows.cells.index -= int(lacks_header)
        frames[kind.holds].append(kind.read(rows))
        rows.note_rest()
    return frames


def together(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All rows of some frames; a frame without rows if there are none."""
    return pd.concat(frames) if frames else pd.DataFrame({"name": pd.Series(dtype="object")})


def read_trace(kinds: Sequence[TableKind], files: Sequence[Source], ledger: Ledger,
               options: ReadOptions) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes and tasks of a trace whose tables need not be joined."""
    frames = frames_of(kinds, files, ledger, options)
    return together(frames.get("nodes", ())), together(frames["tasks"])


def is_one_of(kinds: Sequence[TableKind], source: Source) -> bool:
    """Whether a file is a table of one of these kinds."""
    return kind_of(source, kinds)[0] is not None


def compare_durations(rows: Rows, column: str, *lasting_s: Floats, unit_s: float = 1) -> None:
    """Note the rows in which a stated duration is none of these, and those an hour off."""
    stated_s = rows.durations(column, unit_s)
    off_s = np.min(np.abs([stated_s - seconds for seconds in lasting_s]), axis=0)
    is_off = off_s > max(1, unit_s)
    hours = np.rint(off_s / 3600)
    is_clock = is_off & (hours >= 1) & (np.abs(off_s - 3600 * hours) <= 60)
    rows.note(is_clock, "interpreted", f"column {column}: whole hours off the times beside it, as "
              "when a clock is changed; the times stand")
    rows.note(is_off & ~is_clock, "interpreted",
              f"column {column}: another duration than the times beside it; the times stand")


def openb_nodes(rows: Rows) -> pd.DataFrame:
    """Nodes of openb."""
    counts = {name: rows.numbers(name) for name in ("cpu_milli", "memory_mib")}
    gpus = rows.numbers("gpu")
    models = rows.texts("model").where(gpus > 0, "")
    return pd.DataFrame({"name": rows.texts("sn"), "gpu_model": models, "num_gpus": gpus, **counts})


def openb_tasks(rows: Rows) -> pd.DataFrame:
    """Pods of openb."""
    counts = {name: rows.numbers(name) for name in ("cpu_milli", "memory_mib", "gpu_milli")}
    submit, start, end = map(rows.seconds, ("creation_time", "scheduled_time", "deletion_time"))
    times, _ = task_times(rows, (submit, start, end))
    rows.note(np.isnan(submit), "interpreted", "column creation_time: no time; submit_s is unknown")
    rows.ledger.note(rows.source.name, None, "interpreted", "column qos is the queue", len(submit))
    return pd.DataFrame({
        "name": rows.texts("name"), **times, "num_gpus": rows.numbers("num_gpu"), **counts,
        "gpu_models": rows.texts("gpu_spec"), "queue": rows.texts("qos")})


OPENB = (TableKind("nodes", frozenset({"sn", "cpu_milli", "gpu", "model"}), openb_nodes),
         TableKind("tasks", frozenset({"name", "cpu_milli", "num_gpu", "gpu_milli"}), openb_tasks))


def gang_tasks(rows: Rows, wish: Mapping[str, Any]) -> pd.DataFrame:
    """Jobs of Helios or Acme, one row for each node of a job."""
    submit, start, end = map(rows.seconds, ("submit_time", "start_time", "end_time"))
    compare_durations(rows, "duration", end - start, end - submit)
    compare_durations(rows, "queue", start - submit)
    times, is_kept = task_times(rows, (submit, start, end), lasting_s=rows.durations("duration"),
                                states=rows.texts("state"))
    parts = parts_of(rows, rows.numbers("node_num"), "a job on several nodes: one task for each, "
                     "JOB/0, JOB/1, ..., GPUs and CPUs divided; their common start is not kept")
    jobs = pd.DataFrame({
        "name": rows.texts("job_id"), **times, **gpu_demand(rows, rows.numbers("gpu_num")),
        "cpu_milli": rows.numbers("cpu_num", 1000), "user": rows.texts("user"), **wish})
    return split(jobs[is_kept], parts[is_kept], ["num_gpus", "cpu_milli"])


def acme_tasks(rows: Rows) -> pd.DataFrame:
    """Jobs of Acme; memory only in Kalos."""
    memory = rows.numbers("mem_per_pod_GB", MIB_OF_GIB)
    rows.note(memory > 0, "interpreted", "column mem_per_pod_GB: GB are 1024 MiB, of each node")
    return gang_tasks(rows, {"memory_mib": memory})


GANG = frozenset({"job_id", "user", "gpu_num", "cpu_num", "node_num", "submit_time", "start_time"})
HELIOS = (TableKind("tasks", GANG | {"vc"}, lambda rows: gang_tasks(rows, {"queue": rows.texts("vc")})),)
ACME = (TableKind("tasks", GANG | {"type", "gpu_time"}, acme_tasks),)


def pai_times(rows: Rows) -> tuple[dict[str, Any], Truths]:
    """Start and end of tasks or instances of PAI; when they came, the table of jobs says."""
    start, end = map(rows.seconds, ("start_time", "end_time"))
    times, is_kept = task_times(rows, (np.full(len(start), np.nan), start, end),
                                states=rows.texts("status"))
    del times["submit_s"]
    return times, is_kept


def pai_tasks(rows: Rows) -> pd.DataFrame:
    """Tasks of PAI with the number of their instances."""
    times, is_kept = pai_times(rows)
    demand = gpu_demand(rows, rows.numbers("plan_gpu", 0.01))
    model = rows.texts("gpu_type").where(demand["num_gpus"] > 0, "")
    rows.note(model.ne("").to_numpy(), "interpreted",
              "column gpu_type: the GPUs that a task was given are those that it may run on")
    rows.note(demand["num_gpus"] >= 0, "interpreted", "columns plan_cpu, plan_gpu and plan_mem are "
              "in hundredths of a core and of a GPU and in 1024 MiB")
    job, task = map(rows.texts, ("job_name", "task_name"))
    parts = parts_of(rows, rows.numbers("inst_num"), "column inst_num: one task for each instance, "
                     "TASK/0, TASK/1, ..., which all ask for the same")
    return pd.DataFrame({
        "name": job + ":" + task, "job_name": job, "task_name": task, **times, **demand,
        "gpu_models": model, "cpu_milli": rows.numbers("plan_cpu", 10),
        "memory_mib": rows.numbers("plan_mem", MIB_OF_GIB), "parts": parts, "is_kept": is_kept})


def pai_jobs(rows: Rows) -> pd.DataFrame:
    """Jobs of PAI: user and submission."""
    return pd.DataFrame({"job_name": rows.texts("job_name"), "user": rows.texts("user"),
                         "submit_s": rows.seconds("start_time")}).drop_duplicates("job_name")


def pai_instances(rows: Rows) -> pd.DataFrame:
    """Instances of PAI: where and when."""
    times, is_kept = pai_times(rows)
    return pd.DataFrame({"job_name": rows.texts("job_name"), "task_name": rows.texts("task_name"),
                         **times, "node": rows.texts("machine")})[is_kept]


def pai_nodes(rows: Rows) -> pd.DataFrame:
    """Machines of PAI."""
    gpus = rows.numbers("cap_gpu")
    return pd.DataFrame({
        "name": rows.texts("machine"), "gpu_model": rows.texts("gpu_type").where(gpus > 0, ""),
        "num_gpus": gpus, "cpu_milli": rows.numbers("cap_cpu", 1000),
        "memory_mib": rows.numbers("cap_mem", MIB_OF_GIB)})


PAI = (
    TableKind("tasks", frozenset({"job_name", "inst_num", "plan_cpu", "plan_gpu"}), pai_tasks,
              ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu",
               "plan_mem", "plan_gpu", "gpu_type")),
    TableKind("instances", frozenset({"job_name", "task_name", "inst_name", "machine"}),
              pai_instances, ("job_name", "task_name", "inst_name", "worker_name", "inst_id",
                              "status", "start_time", "end_time", "machine")),
    TableKind("jobs", frozenset({"job_name", "inst_id", "user", "start_time"}), pai_jobs,
              ("job_name", "inst_id", "user", "status", "start_time", "end_time")),
    TableKind("nodes", frozenset({"machine", "gpu_type", "cap_gpu"}), pai_nodes,
              ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")))


def on_machines(tasks: pd.DataFrame, instances: pd.DataFrame, file: str,
                ledger: Ledger) -> pd.DataFrame:
    """One row for each instance, with what its task asked for; other tasks as before."""
    key = ["job_name", "task_name"]
    plan = tasks.drop_duplicates(key)
    known = instances.merge(plan.drop(columns=["start_s", "end_s", "state"]), on=key, how="left")
    is_strange = known["name"].isna()
    ledger.note(file, None, "dropped", "an instance whose task is in no table", is_strange.sum())
    known = known[~is_strange]
    number = known.groupby("name", sort=False).cumcount().astype(str)
    known = known.assign(name=known["name"] + "/" + number)
    there = pd.MultiIndex.from_frame(instances[key])
    others = tasks[~pd.MultiIndex.from_frame(tasks[key]).isin(there) & tasks["is_kept"]]
    return pd.concat([known, split(others, others["parts"].to_numpy())])


def read_pai(files: Sequence[Source], ledger: Ledger,
             options: ReadOptions) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes and tasks of PAI, its tables joined."""
    frames = frames_of(PAI, files, ledger, options)
    nodes = together(frames["nodes"])
    if not frames["tasks"]:
        return nodes, together([])
    tasks = together(frames["tasks"])
    name = files[0].name
    if frames["instances"]:
        tasks = on_machines(tasks, together(frames["instances"]), name, ledger)
    else:
        tasks = tasks[tasks["is_kept"]]
        tasks = split(tasks, tasks["parts"].to_numpy())
    if frames["jobs"]:
        tasks = tasks.merge(together(frames["jobs"]), on="job_name", how="left")
    else:
        ledger.note(name, None, "interpreted",
                    "no table of jobs: submissions and users are unknown")
    return nodes, tasks.drop(columns=["job_name", "task_name", "parts", "is_kept"])


def dlrm_limits(rows: Rows) -> pd.Series:
    """Limits of density as JSON, empty where there is none."""
    limit = numbers_in(rows.texts("max_instance_per_node"), rows.source, rows.ledger).astype(float)
    has_limit = (limit >= 1) & (limit <= MOST_PER_NODE)
    rows.note((limit > MOST_PER_NODE).to_numpy(), "interpreted", "column max_instance_per_node: "
              "more than any node has, taken as no limit")
    rows.note(has_limit.to_numpy(), "interpreted", "column max_instance_per_node is in "
              "constraints: most_per_node of a group, which is the application")
    keys = pd.DataFrame({"app": rows.texts("app_name"), "limit": limit}).where(has_limit)
    named = {key: as_json({"group": key[0], "most_per_node": int(key[1])})
             for key in keys.dropna().drop_duplicates().itertuples(index=False, name=None)}
    pairs = zip(keys["app"], keys["limit"], strict=True)
    return pd.Series([named.get(pair, "") for pair in pairs], rows.cells.index, dtype="object")


def dlrm_tasks(rows: Rows) -> pd.DataFrame:
    """Instances of the trace of 2025."""
    submit, start, end = map(rows.seconds, ("creation_time", "scheduled_time", "deletion_time"))
    is_old = np.isnan(submit) & np.isnan(start)
    rows.note(is_old, "filled in", "no time of creation: there before the trace, submitted and "
              "started at 0")
    rows.note(np.isnan(end), "interpreted",
              "no time of deletion: outlives the trace, end_s is unknown")
    rows.note(start >= 0, "interpreted", "memory_request is in GiB, the role is the queue, the "
              "application the user")
    times, _ = task_times(rows, (np.where(is_old, 0, submit), np.where(is_old, 0, start), end))
    return pd.DataFrame({
        "name": rows.texts("instance_sn"), **times,
        **gpu_demand(rows, rows.numbers("gpu_request")),
        "cpu_milli": rows.numbers("cpu_request", 1000),
        "memory_mib": rows.numbers("memory_request", MIB_OF_GIB), "user": rows.texts("app_name"),
        "queue": rows.texts("role"), "constraints": dlrm_limits(rows)})


DLRM = (TableKind("tasks", frozenset({"instance_sn", "app_name", "max_instance_per_node"}),
                  dlrm_tasks),)


def from_submission(rows: Rows, submit: Floats, duration: Floats) -> dict[str, Floats]:
    """Submission, start and end of tasks of which a trace does not say when they started."""
    is_known = np.isfinite(duration)
    rows.note(is_known, "assumed", "the trace has no start: taken to start when submitted")
    return {"submit_s": submit, "start_s": np.where(is_known, submit, np.nan),
            "end_s": submit + duration}


def spot_nodes(rows: Rows) -> pd.DataFrame:
    """Nodes of the trace of 2026."""
    return pd.DataFrame({
        "name": rows.texts("node_name"), "gpu_model": rows.texts("gpu_model"),
        "num_gpus": rows.numbers("gpu_capacity_num"), "cpu_milli": rows.numbers("cpu_num", 1000)})


def spot_tasks(rows: Rows) -> pd.DataFrame:
    """Jobs of the trace of 2026, one row for each worker."""
    submit = rows.seconds("submit_time")
    duration = rows.durations("duration")
    demand = gpu_demand(rows, rows.numbers("gpu_request"))
    times = from_submission(rows, submit, duration)
    kind = rows.texts("job_type")
    rows.note(kind.ne("").to_numpy(), "interpreted", "column job_type is the queue, and the "
              "priority: 1 for HP, 0 for others; organization is the user")
    parts = parts_of(rows, rows.numbers("worker_num"), "column worker_num: one task for each "
                     "worker, JOB/0, JOB/1, ..., which all ask for the same")
    jobs = pd.DataFrame({
        "name": rows.texts("job_name"), **times, **demand,
        "gpu_models": rows.texts("gpu_model").where(demand["num_gpus"] > 0, ""),
        "cpu_milli": rows.numbers("cpu_request", 1000), "user": rows.texts("organization"),
        "queue": kind, "priority": kind.str.upper().eq("HP").astype(int)})
    return split(jobs, parts)


SPOT = (TableKind("nodes", frozenset({"node_name", "gpu_model", "gpu_capacity_num"}), spot_nodes),
        TableKind("tasks", frozenset({"job_name", "gpu_request", "worker_num", "duration"}),
                  spot_tasks))


def philly_flat(rows: Rows) -> pd.DataFrame:
    """Jobs of the flat form."""
    times = from_submission(rows, rows.seconds("timestamp"), rows.durations("duration"))
    rows.ledger.note(rows.source.name, None, "filled in", "jobs have no names: called job-ROW",
                     len(rows.cells))
    return pd.DataFrame({
        "name": "job-" + rows.cells.index.astype(str).astype("object"), **times,
        **gpu_demand(rows, rows.numbers("num_gpus")), "queue": rows.texts("cluster")})


def philly_nodes(rows: Rows) -> pd.DataFrame:
    """Machines, with memory such as "24GB"."""
    memory = rows.texts("single GPU mem").str.extract(r"^([0-9.]+)\s*GB$", expand=False)
    gibs = pd.to_numeric(memory, errors="coerce").to_numpy(float, na_value=np.nan)
    rows.note(np.isfinite(gibs), "interpreted", "column single GPU mem: GB are 1024 MiB")
    return pd.DataFrame({
        "name": rows.texts("machineId"), "num_gpus": rows.numbers("number of GPUs"),
        "gpu_memory_mib": gibs * MIB_OF_GIB})


PHILLY = (TableKind("tasks", frozenset({"timestamp", "duration", "num_gpus", "gpu_time"}),
                    philly_flat),
          TableKind("nodes", frozenset({"machineId", "number of GPUs"}), philly_nodes))

ATTEMPT = ("name", "submit", "start", "end", "node", "gpu_list", "num_gpus", "user", "queue",
           "status")


def gpu_numbers(names: Any) -> list[int]:
    """Numbers of GPUs such as "gpu7", without repetitions; of anything else none."""
    found = (re.fullmatch(r"gpu([0-9]{1,3})", str(name)) for name in names) if isinstance(
        names, list) else ()
    return sorted({int(match[1]) for match in found if match})


def attempt_rows(job: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """One row for each machine of each attempt of a job; none where no machine with GPUs is named."""
    tries = objects_at(job, "attempts")
    submit = job.get("submitted_time")
    found = []
    for number, attempt in enumerate(tries):
        name = f"{job['jobid']}@{number}" if len(tries) > 1 else str(job["jobid"])
        status = job.get("status") if number == len(tries) - 1 else "ended"
        placed = [(str(detail.get("ip") or ""), gpu_numbers(detail.get("gpus")))
                  for detail in objects_at(attempt, "detail")]
        placed = [(node, gpus) for node, gpus in placed if gpus]
        found += [(f"{name}/{part}" if len(placed) > 1 else name, submit, attempt.get("start_time"),
                   attempt.get("end_time"), node, "-".join(map(str, gpus)), len(gpus),
                   job.get("user"), job.get("vc"), status)
                  for part, (node, gpus) in enumerate(placed)]
        submit = attempt.get("end_time")
    return found


def philly_jobs(source: Source, ledger: Ledger, options: ReadOptions) -> pd.DataFrame:
    """Attempts of all jobs of the JSON form; rows are counted as jobs, from 1."""
    jobs = source.json()
    if not isinstance(jobs, list):
        raise InputError("this is not a list of jobs", file=source.name,
                         mend="give cluster_job_log as it was published")
    texts: list[tuple[str, ...]] = []
    numbers: list[int] = []
    for number, job in enumerate(jobs, 1):
        is_job = isinstance(job, dict) and bool(job.get("jobid"))
        rows = attempt_rows(job) if is_job else []
        if not rows:
            ledger.note(source.name, number, "dropped", "no attempt with GPUs, so what the job asked "
                        "for is unknown" if is_job else "not a job with a jobid")
        texts += [tuple("" if cell is None else str(cell) for cell in row) for row in rows]
        numbers += [number] * len(rows)
    cells = pd.DataFrame(texts, index=numbers, columns=list(ATTEMPT), dtype="object")
    return philly_attempts(Rows(source, cells, ledger, options))


def philly_attempts(rows: Rows) -> pd.DataFrame:
    """Tasks of attempts."""
    submit, start, end = map(rows.seconds, ("submit", "start", "end"))
    name = rows.texts("name")
    rows.note(name.str.contains("@").to_numpy(), "interpreted", "a job of several attempts: one "
              "task for each, JOB@0, JOB@1, ..., submitted when the one before ended")
    rows.note(name.str.contains("/").to_numpy(), "interpreted", "an attempt on several machines: "
              "one task for each, JOB/0, JOB/1, ...; their common start is not kept")
    times, is_kept = task_times(rows, (submit, start, end), states=rows.texts("status"))
    return pd.DataFrame({
        "name": name, **times, **gpu_demand(rows, rows.numbers("num_gpus")),
        **{column: rows.texts(column) for column in ("node", "gpu_list", "user", "queue")},
        "job": name.str.extract(r"^(.*)/", expand=False).fillna("")})[is_kept]


def is_philly(source: Source) -> bool:
    """Whether a file is one of Philly's: begins like a list of its jobs, or is a table."""
    head = source.text()[:4000]
    is_list = head.lstrip().startswith("[") and '"attempts"' in head and '"jobid"' in head
    return is_list or is_one_of(PHILLY, source)


def read_philly(files: Sequence[Source], ledger: Ledger,
                options: ReadOptions) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Machines and attempts (JSON), or jobs (CSV)."""
    lists = [source for source in files if source.text().lstrip()[:1] in ("[", "{")]
    frames = frames_of(PHILLY, [one for one in files if one not in lists], ledger, options)
    found = [philly_jobs(source, ledger, options) for source in lists]
    return together(frames["nodes"]), together([*frames["tasks"], *found])


SWF_COLUMNS = (
    "job", "submit", "wait", "run_time", "used_processors", "cpu_time", "used_memory", "processors",
    "requested_time", "requested_memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding_job", "think_time")


SWF_STATES = {"0": "failed", "1": "completed", "5": "cancelled"}
SWF_COMMENT = re.compile(r"^\s*;\s*(\w+):\s*([0-9]{1,15})\b", re.M)  # a name and a whole number


def swf_lines(text: str) -> dict[int, list[str]]:
    """Cells of the lines that are no comments, by the number of the line."""
    return {number: line.split() for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.lstrip().startswith(";")}


def is_swf(source: Source) -> bool:
    """Whether the first line that is no comment has 18 numbers."""
    cells = next(iter(swf_lines(source.text()[:200_000]).values()), [])
    is_number = [re.fullmatch(r"-?[0-9.]+", cell) for cell in cells]
    return len(cells) == len(SWF_COLUMNS) and all(is_number)


def swf_rows(source: Source, ledger: Ledger) -> Rows:
    """Rows of a file without its comments; the index is the line in the file.

    Raises
    ------
    InputError : no line, or a line that has not 18 cells
    """
    lines = swf_lines(source.text())
    error = partial(InputError, file=source.name, mend="give 18 numbers on each line")
    if not lines:
        raise error("there is no job")
    for number, cells in lines.items():
        if len(cells) != len(SWF_COLUMNS):
            raise error(f"there are {len(cells)} cells", row=number)
    frame = pd.DataFrame(list(lines.values()), list(lines), list(SWF_COLUMNS), dtype="object")
    return Rows(source, frame.mask(frame == "-1", ""), ledger)


def swf_demand(rows: Rows, gpu_column: str) -> tuple[Floats, dict[str, Floats]]:
    """Processors of each job, and what they are."""
    asked = rows.numbers("processors")
    used = rows.numbers("used_processors")
    rows.note(np.isnan(asked) & np.isfinite(used), "filled in",
              "no processors were requested: those that were used")
    processors = np.where(np.isnan(asked), used, asked)
    if gpu_column:
        processors = used if gpu_column == "used_processors" else processors
        rows.note(processors > 0, "interpreted", "processors are GPUs, as --map says")
        return processors, gpu_demand(rows, processors)
    rows.note(processors > 0, "interpreted", "processors are CPUs; --map num_gpus=processors "
              "would make them GPUs")
    nothing = np.zeros(len(processors))
    return processors, {"num_gpus": nothing, "gpu_milli": nothing, "cpu_milli": 1000 * processors}


def swf_jobs(rows: Rows, gpu_column: str,
             epoch_s: float) -> tuple[pd.DataFrame, Floats, Truths]:
    """Jobs, the processors of each, and whether its line is one of a job of which all is known."""
    submit = rows.numbers("submit") + epoch_s
    start = submit + rows.numbers("wait")
    lasting_s = rows.numbers("run_time")
    status = rows.texts("status")
    never = (status == "5").to_numpy() & ~(lasting_s > 0)  # cancelled before it started
    left = np.where(never, start, np.nan)
    times, is_kept = task_times(rows, (submit, np.where(never, np.nan, start), left),
                                lasting_s=lasting_s, states=status.map(SWF_STATES).fillna(""))
    processors, demand = swf_demand(rows, gpu_column)
    asked = rows.numbers("requested_memory")
    memory = np.where(np.isnan(asked), rows.numbers("used_memory"), asked) * processors / 1024
    rows.note(np.isfinite(memory), "interpreted", "memory is KiB for each processor, that used "
              "where none was requested")
    jobs = pd.DataFrame({"name": rows.texts("job"), **times, **demand, "memory_mib": np.ceil(memory),
                         "user": rows.texts("user"), "queue": rows.texts("queue"),
                         "walltime_s": rows.numbers("requested_time")})
    is_part = status.isin(["2", "3", "4"]).to_numpy()
    rows.note(is_part, "dropped", "a part of a job that was stopped and went on; the line of the "
              "whole job is read")
    return jobs, processors, is_kept & ~is_part


def swf_nodes(comments: Mapping[str, int], is_gpu: bool, name: str, ledger: Ledger) -> pd.DataFrame:
    """Nodes of the machine that the comments describe, if they do."""
    count = comments.get("MaxNodes", 0)
    processors = comments.get("MaxProcs", 0)
    if not 0 < count <= processors or count > MOST_NODES or processors % count:
        ledger.note(name, None, "interpreted", f"MaxNodes {count} and MaxProcs {processors} are no "
                    f"equal nodes, at most {MOST_NODES}: no nodes", bool(count))
        return together([])
    each = processors // count
    ledger.note(name, None, "filled in", "nodes are those of the comments MaxNodes and MaxProcs, "
                "all alike", count)
    size = {"num_gpus": each} if is_gpu else {"num_gpus": 0, "cpu_milli": 1000 * each}
    return pd.DataFrame({"name": [f"node-{k:04d}" for k in range(count)], **size})


def swf_gpu_column(options: ReadOptions) -> str:
    """The column of processors that `--map` says are GPUs, empty for none."""
    pairs = {frozenset(pair) for pair in options.columns.items()}
    for column in ("processors", "used_processors"):
        if any({column, name} in pairs for name in ("num_gpus", "gpus")):
            return column
    return ""


def read_swf(files: Sequence[Source], ledger: Ledger,
             options: ReadOptions) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes of the comments and jobs of one file or more."""
    gpu_column = swf_gpu_column(options)
    nodes = []
    tasks = []
    for source in files:
        comments = {name: int(number) for name, number in SWF_COMMENT.findall(source.text())}
        rows = swf_rows(source, ledger)
        jobs, processors, is_kept = swf_jobs(rows, gpu_column, comments.get("UnixStartTime", 0))
        nodes.append(swf_nodes(comments, bool(gpu_column), source.name, ledger))
        each = comments["MaxProcs"] // comments["MaxNodes"] if len(nodes[-1]) else np.inf
        parts = parts_of(rows, np.ceil(processors / each), "more processors than a node has: one "
                         "task for each node, JOB/0, JOB/1, ...; their common start is not kept")
        tasks.append(split(jobs[is_kept], parts[is_kept],
                           ["num_gpus" if gpu_column else "cpu_milli", "memory_mib"]))
        rows.note_rest()
    return together(nodes), together(tasks)


FORMATS = (
    Format("openb", "Alibaba 2023, nodes and pods with thousandths of a GPU",
           partial(is_one_of, OPENB), partial(read_trace, OPENB)),
    Format("helios", "SenseTime's Helios, jobs", partial(is_one_of, HELIOS),
           partial(read_trace, HELIOS)),
    Format("acme", "Shanghai AI Laboratory's Acme, jobs of Seren or Kalos",
           partial(is_one_of, ACME), partial(read_trace, ACME)),
    Format("philly", "Microsoft's Philly, JSON with attempts or flat CSV, and a machine list",
           is_philly, read_philly),
    Format("pai", "Alibaba 2020, tables of tasks, jobs, instances and machines",
           partial(is_one_of, PAI), read_pai),
    Format("dlrm", "Alibaba 2025, instances with limits of density",
           partial(is_one_of, DLRM), partial(read_trace, DLRM)),
    Format("spot", "Alibaba 2026, nodes, and jobs with priorities",
           partial(is_one_of, SPOT), partial(read_trace, SPOT)),
    Format("swf", "Standard Workload Format, jobs with processors", is_swf, read_swf),
)
