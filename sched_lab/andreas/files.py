"""Jobs, machines, watts and run times as four CSV files, with one message for each mistake.

- **nodes**: `node`, `gpu`, `gpus`, and optionally `memory_gib` of each GPU and `idle_w` of the whole machine; a row is the GPUs of one
  type in a machine.
- **power**: `gpu`, `idle_w` and `full_w` of one GPU; or `gpu`, `gpus` and `watts` of a whole machine with so many GPUs in use.
- **times**: `application`, `gpu`, `gpus`, `epoch_s`; a row is a measurement.
- **jobs**: `job`, `submission`, `due`, `epochs`, and `weight_eur_per_h` or `priority`; optionally `application`, `memory_gib`,
  `epochs_done`, `node`, `gpu`, `gpus`.

`submission` and `due` are seconds, or dates such as 2026-03-02T08:00; seconds count from midnight (UTC) of the first date. A
`priority` from 1 to 5 stands for the paper's five weights. `memory_gib` of a job is what it needs on each of its GPUs. A job that
runs now has a `node`, the `gpus` that it has there, and the `gpu` type if the machine has two. Run times come from `times` by
application, or from columns of the job's own, such as `epoch_s V100x2` for the seconds of an epoch on two V100; its own columns take
precedence.
"""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..hardware import Hardware, meant_by
from ..lab.arrays import Floats, Truths
from ..lab.frames import Column, InputError, iso_moment, read_header, read_table
from ..bill import is_date, seconds_of
from .instances import PRICE_EUR_PER_KWH, PRIORITIES, PUE
from .model import (
    LEAST_S,
    MOST_EPOCHS,
    MOST_EUR,
    MOST_GPUS,
    MOST_S,
    SECONDS_PER_HOUR,
    Fleet,
    Instance,
    Jobs,
    Memory,
    Present,
    Site,
    energy_cost_eur_per_h,
    without_small,
)

__all__ = ['read_files']

MIB_PER_GIB = 1024.0
MOST_W = 1e6

GpuCount = tuple[str, int]  # GPU type and number
EpochTimes = dict[GpuCount, float]  # seconds per epoch


def first_row(table: pd.DataFrame, wrong: pd.Series[bool] | Truths) -> int:
    """Number of the first row, as an editor counts, about which something is wrong."""
    return int(table.index[int(np.argmax(wrong))])


def check_filled(table: pd.DataFrame, names: Sequence[str], path: str | Path) -> None:
    """Refuse an empty cell of a text."""
    for name in names:
        if (empty := table[name] == "").any():
            raise InputError("the cell is empty", file=path, row=first_row(table, empty),
                             column=name, mend="fill it in")


def check_unique(table: pd.DataFrame, names: Sequence[str], path: str | Path, mend: str) -> None:
    """Refuse a second row about the same."""
    if (again := table.duplicated(list(names))).any():
        row = first_row(table, again)
        what = ", ".join(str(table.loc[row, name]) for name in names)
        raise InputError(f"there is a row of {what} already", file=path, row=row,
                         column=names[-1], mend=mend)


# --- machines and watts

NODE_COLUMNS = {
    "node": Column("text"), "gpu": Column("text"),
    "gpus": Column("integer", minimum=1, maximum=MOST_GPUS),
    "memory_gib": Column("number", required=False, default=np.inf, minimum=0, maximum=1e6, blank=np.inf),
    "idle_w": Column("number", required=False, minimum=0, maximum=MOST_W, blank=np.nan)}


class Part(NamedTuple):
    """GPUs of one type in a machine; `idle_w` is the machine's, NaN if unknown."""

    machine: str
    gpu: str
    gpus: int
    memory_mib: float
    idle_w: float
    row: int

    @property
    def base_w(self) -> float:
        """Idle watts of the machine; 0 if unknown, which a table of whole machines contains."""
        return 0.0 if np.isnan(self.idle_w) else self.idle_w

    @property
    def kind(self) -> tuple[str, float, float]:
        """What makes two nodes equal: GPU, its memory, idle watts of the machine."""
        return self.gpu, self.memory_mib, self.base_w


def read_parts(path: str | Path) -> list[Part]:
    """Machines by name, and their GPUs by type."""
    table = read_table(path, NODE_COLUMNS)
    check_filled(table, ("node", "gpu"), path)
    check_unique(table, ("node", "gpu"), path, "put equal GPUs of a machine into one row")
    idle_w: dict[str, float] = {}
    for row, node, watts in zip(table.index, table["node"], table["idle_w"], strict=True):
        if not np.isnan(watts) and idle_w.setdefault(node, watts) != watts:
            raise InputError(f"{watts:g}, and {idle_w[node]:g} in another row of {node}", file=path,
                             row=int(row), column="idle_w", value=watts,
                             mend="it is that of the whole machine: write it once")
    columns = (table[name].tolist() for name in NODE_COLUMNS)
    return sorted(Part(node, gpu, gpus, MIB_PER_GIB * gib, idle_w.get(node, np.nan), int(row))
                  for row, node, gpu, gpus, gib, _ in zip(table.index, *columns, strict=True))


class Watts(NamedTuple):
    """What GPUs in use draw: each one, or whole machines with so many of them.

    Parameters
    ----------
    file : where it stands
    each : by type, what one GPU in use adds
    whole : by type and number, what a machine draws
    """

    file: str | Path
    each: Mapping[str, float]
    whole: Mapping[GpuCount, float]


def read_watts(path: str | Path) -> Watts:
    """Either form of the table of watts."""
    watt = Column("number", minimum=0, maximum=MOST_W)
    if "full_w" in read_header(path):
        table = read_table(path, {"gpu": Column("text", unique=True), "idle_w": watt,
                                  "full_w": watt})
        if (wrong := table["full_w"] < table["idle_w"]).any():
            row = first_row(table, wrong)
            gpu, idle_w, full_w = table.loc[row, ["gpu", "idle_w", "full_w"]]
            raise InputError(f"a {gpu} draws {full_w:g} W at work and {idle_w:g} W idle", file=path,
                             row=row, column="full_w", value=full_w, mend="swap them")
        return Watts(path, dict(zip(table["gpu"], table["full_w"] - table["idle_w"], strict=True)),
                     {})
    columns = {"gpu": Column("text"), "gpus": Column("integer", minimum=1, maximum=MOST_GPUS),
               "watts": watt}
    table = read_table(path, columns)
    check_unique(table, ("gpu", "gpus"), path, "keep one")
    return Watts(path, {}, {(gpu, gpus): watts for gpu, gpus, watts in zip(
        *(table[name].tolist() for name in columns), strict=True)})


def added_by(part: Part, watts: Watts, is_alone: bool, nodes: str | Path) -> list[float]:
    """Watts that 0, 1, ... GPUs of a part in use add to what its machine draws.

    Parameters
    ----------
    is_alone : whether the machine has GPUs of no other type
    nodes : file of the part, for messages
    """
    error = partial(InputError, file=nodes, row=part.row)
    if watts.each:
        if part.gpu not in watts.each:
            raise error(f"there are no watts of {part.gpu!r:.60}", column="gpu",
                        mend=f"add it to {watts.file}, correct its name, or give --hardware")
        if np.isnan(part.idle_w):
            raise error(f"{part.machine} has no idle_w", column="idle_w",
                        mend="write what the machine draws with all of its GPUs idle")
        return [count * watts.each[part.gpu] for count in range(part.gpus + 1)]
    if not is_alone:
        raise error(f"{part.machine} has GPUs of two types, and {watts.file} knows machines "
                    "with one", column="gpu",
                    mend="give gpu, idle_w and full_w there, of single GPUs")
    added = [0.0]
    for count in range(1, part.gpus + 1):
        if (part.gpu, count) not in watts.whole:
            raise error(f"there are no watts of a machine with {count} {part.gpu} in use",
                        column="gpus", mend=f"add a row to {watts.file}")
        added.append(watts.whole[part.gpu, count] - part.base_w)
        if added[-1] < added[-2]:
            raise error(f"{part.machine} draws less with {count} {part.gpu} in use than with one "
                        "less", column="idle_w", mend=f"correct idle_w, or {watts.file}")
    return added


def filled(parts: list[Part], watts: Watts, hardware: Hardware) -> tuple[list[Part], Watts]:
    """Parts and watts with what a catalogue knows and the tables leave out."""
    models = {gpu: hardware.gpus[entry] for gpu in {part.gpu for part in parts}
              if (entry := meant_by(gpu, hardware.names))}
    parts = [part._replace(memory_mib=models[part.gpu].memory_mib)
             if np.isinf(part.memory_mib) and part.gpu in models else part for part in parts]
    if watts.whole:  # a data sheet of a GPU says nothing of a whole machine
        return parts, watts
    added = {gpu: model.full_w.value - model.idle_w.value for gpu, model in models.items()}
    return parts, watts._replace(each={**added, **watts.each})


# --- run times and jobs

EPOCH_S = Column("number", minimum=LEAST_S, maximum=MOST_S)
TIME_COLUMNS = {"application": Column("text"), "gpu": Column("text"),
                "gpus": Column("integer", minimum=1, maximum=MOST_GPUS), "epoch_s": EPOCH_S}


def read_times(path: str | Path) -> dict[str, EpochTimes]:
    """Seconds per epoch of each application."""
    table = read_table(path, TIME_COLUMNS)
    check_filled(table, ("application", "gpu"), path)
    check_unique(table, ("application", "gpu", "gpus"), path, "keep one")
    times: dict[str, EpochTimes] = {}
    for name, gpu, gpus, epoch_s in zip(*(table[name].tolist() for name in TIME_COLUMNS),
                                        strict=True):
        times.setdefault(name, {})[gpu, gpus] = epoch_s
    return times


OWN = "epoch_s "


def own_columns(path: str | Path) -> dict[str, GpuCount]:
    """Columns such as "epoch_s V100x2", and what each is about."""
    found = {}
    for name in read_header(path):
        if name.startswith(OWN.strip()):
            gpu, _, count = name.removeprefix(OWN).rpartition("x")
            if not (gpu and count.isdecimal() and len(count) < 5 and 0 < int(count) <= MOST_GPUS):
                raise InputError("this column says nothing about GPUs", file=path, row=1,
                                 column=name, mend='name it such as "epoch_s V100x2"')
            found[name] = (gpu, int(count))
    return found


JOB_COLUMNS = {
    "job": Column("text", unique=True), "submission": Column("text"), "due": Column("text"),
    "epochs": Column("integer", minimum=1, maximum=MOST_EPOCHS),
    "weight_eur_per_h": Column("number", required=False, minimum=0, maximum=MOST_EUR),
    "priority": Column("integer", required=False, minimum=1, maximum=len(PRIORITIES)),
    "application": Column("text", required=False),
    "memory_gib": Column("number", required=False, default=0.0, minimum=0, maximum=1e6, blank=0.0),
    "epochs_done": Column("number", required=False, default=0.0, minimum=0, blank=0.0),
    "node": Column("text", required=False), "gpu": Column("text", required=False),
    "gpus": Column("integer", required=False, minimum=1, maximum=MOST_GPUS, blank=0.0)}


def read_jobs(path: str | Path) -> pd.DataFrame:
    """Jobs as they stand there, with a column weight_eur_per_s, and one of their own times."""
    own = own_columns(path)
    header = read_header(path)
    times = {name: Column("number", minimum=LEAST_S, maximum=MOST_S, blank=np.inf) for name in own}
    weights = [name for name in ("weight_eur_per_h", "priority") if name in header]
    if len(weights) != 1:
        raise InputError(f"there are {len(weights)} columns that say what a delay costs",
                         file=path, row=1, column="weight_eur_per_h",
                         mend="give weight_eur_per_h or priority")
    table = read_table(path, {**JOB_COLUMNS, **times})
    table["weight_eur_per_s"] = table["weight_eur_per_h"] / SECONDS_PER_HOUR if weights == [
        "weight_eur_per_h"] else table["priority"].map(PRIORITIES)
    own_times = [{place: row[name] for name, place in own.items() if row[name] < np.inf}
                 for row in table[list(own)].to_dict("records")]
    return table.assign(own=pd.Series(own_times, table.index, dtype=object))


def epoch_times_of(table: pd.DataFrame, path: str | Path,
                   times: str | Path | None) -> list[EpochTimes]:
    """Seconds per epoch of each job: its application's, and its own before them."""
    of_application = {} if times is None else read_times(times)
    found = []
    for row, job, name, own in zip(table.index, table["job"], table["application"], table["own"],
                                   strict=True):
        if name and name not in of_application:
            known = ", ".join(sorted(of_application)[:12]) or "none"
            raise InputError(f"nothing is known of the application {name!r:.60}", file=path,
                             row=int(row), column="application", value=name,
                             mend=f"measure it and add it to {times or 'a table of times'}; "
                             f"known: {known}")
        epoch_s = {**of_application.get(name, {}), **own}
        if not epoch_s:
            raise InputError(f"{job} has no run time", file=path, row=int(row),
                             column="application",
                             mend='name its application, or fill a column such as "epoch_s V100x2"')
        found.append(epoch_s)
    return found


def seconds(text: str, zero: datetime | None, error: partial[InputError]) -> float:
    """Seconds of a cell that holds a number, or a date if the file has dates."""
    is_alike = is_date(text) == (zero is not None)
    found = seconds_of(text, zero.isoformat() if zero else None) if is_alike else None
    if found is None or not -MOST_S <= found <= MOST_S:
        wanted = "seconds" if zero is None else "a date such as 2026-03-02T08:00"
        raise error(f"{text!r:.60} is no time", value=text, mend=f"give {wanted}, as in other rows")
    return found


def add_seconds(table: pd.DataFrame, now: str, path: str | Path) -> tuple[float, datetime | None]:
    """Add submission_s and due_s; the present time, and the date of second 0.

    That is midnight before the first date, and None if there are no dates.
    """
    dates = [date for text in [*table["submission"], *table["due"]]
             if not text.isdecimal() and (date := iso_moment(text))]
    zero = min(dates).replace(hour=0, minute=0, second=0, microsecond=0) if dates else None
    for name in ("submission", "due"):
        table[f"{name}_s"] = [
            seconds(text, zero, partial(InputError, file=path, row=int(row), column=name))
            for row, text in zip(table.index, table[name], strict=True)]
    if (early := table["submission_s"] < 0).any():
        raise InputError("it is before second 0", file=path, column="submission",
                         row=first_row(table, early), mend="give 0 or more")
    now_s = 0.0 if now == "" else seconds(now, zero, partial(InputError, column="--now"))
    return now_s, zero


def check_jobs(table: pd.DataFrame, times_s: Floats, memory: Memory, fleet: Fleet,
               path: str | Path) -> None:
    """Refuse jobs that are done, and those that fit nowhere, for want of times or of memory."""
    for number, (row, job) in enumerate(zip(table.index, table["job"], strict=True)):
        error = partial(InputError, file=path, row=int(row))
        if not table["epochs_done"].iloc[number] < table["epochs"].iloc[number]:
            raise error(f"all of the {table['epochs'].iloc[number]} epochs of {job} are done",
                        column="epochs_done", mend="take the job out, or correct the numbers")
        known = np.isfinite(times_s[number])
        if not known.any():
            raise error(f"{job} has no run time on GPUs that the machines have",
                        column="application", mend="measure it there")
        most_mib = memory.gpu_mib[fleet.configuration_type[known]].max()
        if memory.job_mib[number] > most_mib:
            raise error(f"{job} needs {memory.job_mib[number] / MIB_PER_GIB:g} GiB on each GPU and "
                        f"fits nowhere: the largest that it has a time on has "
                        f"{most_mib / MIB_PER_GIB:g} GiB", column="memory_gib",
                        mend="measure it on a larger GPU, or correct the number")


def present_of(table: pd.DataFrame, parts: Sequence[Part], fleet: Fleet, times_s: Floats,
               now_s: float, path: str | Path) -> Present | None:
    """What runs now and how far jobs have come; None if the table says nothing of it."""
    if not ((table["node"] != "") | (table["epochs_done"] > 0)).any():
        return None
    configurations = list(zip(fleet.configuration_type.tolist(), fleet.configuration_gpus.tolist(),
                              strict=True))
    place = np.full((2, len(table)), -1)
    free = [part.gpus for part in parts]
    columns = (table[name].tolist() for name in ("node", "gpu", "gpus", "submission_s"))
    for number, (row, node, gpu, gpus, come_s) in enumerate(zip(table.index, *columns,
                                                                strict=True)):
        if node == "":
            continue
        error = partial(InputError, file=path, row=int(row))
        gpus = int(gpus)
        here = [i for i, part in enumerate(parts) if part.machine == node]
        if not here:
            raise error(f"there is no machine {node!r:.60}", column="node",
                        mend="name one of the nodes")
        own = [i for i in here if gpu in ("", parts[i].gpu)]
        if len(own) != 1:
            types = ", ".join(parts[i].gpu for i in here)
            raise error(f"{node} has {types}", column="gpu", value=gpu,
                        mend="name one of its types")
        n = own[0]
        configuration = (int(fleet.node_type[n]), gpus)
        if configuration not in configurations or gpus > parts[n].gpus:
            raise error(f"it cannot run on {gpus} GPUs of {node}", column="gpus", value=gpus,
                        mend="give the number that it has, and its run time there")
        c = configurations.index(configuration)
        free[n] -= gpus
        if not np.isfinite(times_s[number, c]):
            raise error("it cannot run where it runs", column="node", value=node,
                        mend="give its run time there, and check its memory")
        if free[n] < 0:
            raise error(f"with it, {node} has {-free[n]} GPUs more in use than it has",
                        column="gpus", mend="correct what runs there")
        if come_s > now_s:
            raise error(f"it runs, and is submitted after the present time of {now_s:g} s",
                        column="submission", mend="correct it, or give --now")
        place[:, number] = n, c
    return Present(place[0], place[1], (table["epochs_done"] / table["epochs"]).to_numpy(float))


# --- all together

def read_files(jobs: str | Path, nodes: str | Path, power: str | Path,
               times: str | Path | None = None, *, now: str = "",
               eur_per_kwh: float = PRICE_EUR_PER_KWH, pue: float = PUE, off_after_s: float = 0.0,
               off_w: float = 0.0, hardware: Hardware | None = None
               ) -> tuple[Instance, datetime | None]:
    """Make an instance of tables that an operator has.

    Machines of one kind make one type of node: the same GPU, as much memory, as many idle watts.

    Parameters
    ----------
    jobs, nodes, power, times : CSV files; without `times` the jobs have columns of their own
    now : present time, as the jobs write it; "" for second 0
    eur_per_kwh, pue : price of electricity for decisions, and what the building adds
    off_after_s, off_w : see `Site`
    hardware : catalogue for watts and memory that the tables leave out; None: they have to be there

    Returns
    -------
    the instance, and the date of its second 0 if the tables have dates

    Raises
    ------
    InputError : naming file, row and column of the first thing that is wrong, and the mend
    """
    parts, watts = read_parts(nodes), read_watts(power)
    if hardware is not None:
        parts, watts = filled(parts, watts, hardware)
    for part in parts:
        if off_after_s and np.isnan(part.idle_w):
            raise InputError(f"{part.machine} has no idle_w, and --asleep-after asks what it draws "
                             "when it is empty", file=nodes, row=part.row, column="idle_w",
                             mend="fill it in")
    machines = [part.machine for part in parts]
    is_alone = [machines.count(machine) == 1 for machine in machines]
    added_w = [added_by(part, watts, alone, nodes)
               for part, alone in zip(parts, is_alone, strict=True)]
    table = read_jobs(jobs)
    now_s, zero = add_seconds(table, now, jobs)
    epoch_times = epoch_times_of(table, jobs, times)

    kinds = sorted({part.kind for part in parts})
    kind = np.array([kinds.index(part.kind) for part in parts])
    most_w = np.full((len(kinds), max(part.gpus for part in parts) + 1), np.inf)
    for row, of_part in zip(kind, added_w, strict=True):
        most_w[row, :len(of_part)] = of_part
    names = sorted(set(machines))
    base_w = {part.machine: part.base_w for part in parts}
    site = Site(tuple(names), np.array([names.index(machine) for machine in machines]),
                np.array([base_w[name] for name in names]), most_w, eur_per_kwh, pue, off_after_s,
                off_w)

    known = {place for of_job in epoch_times for place in of_job}
    largest = [max(part.gpus for part in parts if part.kind == one) for one in kinds]
    configurations = sorted((k, count) for k, one in enumerate(kinds) for gpu, count in known
                            if gpu == one[0] and count <= largest[k])
    configuration_type, configuration_gpus = np.array(configurations, np.int64).reshape(-1, 2).T
    idle_w = np.array([one[2] for one in kinds])
    cost = energy_cost_eur_per_h(site.added_w + idle_w[:, None], eur_per_kwh, pue)
    cost[:, 0] = 0.0
    fleet = Fleet(kind, np.array([part.gpus for part in parts]), configuration_type.copy(),
                  configuration_gpus.copy(), cost)

    memory = Memory(MIB_PER_GIB * table["memory_gib"].to_numpy(float),
                    np.array([one[1] for one in kinds]))
    left = np.maximum((table["epochs"] - table["epochs_done"]).to_numpy(float), LEAST_S)
    rows = [[of_job.get((kinds[k][0], count), np.inf) for k, count in configurations]
            for of_job in epoch_times]
    times_s = np.array(rows).reshape(len(epoch_times), len(configurations)) * left[:, None]
    check_jobs(table, times_s, memory, fleet, jobs)
    times_s = without_small(times_s, memory, fleet.configuration_type)
    present = present_of(table, parts, fleet, times_s, now_s, jobs)
    submission_s, due_s, weight = (
        table[name].to_numpy(float) for name in ("submission_s", "due_s", "weight_eur_per_s"))
    node_name = tuple(part.machine if alone else f"{part.machine}:{part.gpu}"
                      for part, alone in zip(parts, is_alone, strict=True))
    instance = Instance(node_name, tuple(table["job"]), tuple(one[0] for one in kinds), fleet,
                        Jobs(submission_s, due_s, weight, times_s),
                        table["epochs"].to_numpy(np.int64), now_s, present, memory, site)
    return instance, zero
