"""Jobs, machines, watts and run times as four CSV files, with one message for each mistake."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from .instances import PRICE_EUR_PER_KWH, PRIORITIES, PUE
from .model import (LEAST_S, MOST_EPOCHS, MOST_EUR, MOST_GPUS, MOST_S,
                                     SECONDS_PER_HOUR, Fleet, Instance, Jobs, Memory, Present, Site,
                                     energy_cost_eur_per_h, without_small)
from ..lab.arrays import Floats
from ..lab.frames import Column, InputError, read_header, read_table
from ..hardware import Hardware, meant_by

__all__ = ['read_files']

MIB_PER_GIB = 1024.0
MOST_W = 1e6
Sort = tuple[str, float, float]  # GPU, MiB of it, and idle watts of the machine around it
Place = tuple[str, int]  # GPU type and number
Pace = dict[Place, float]  # seconds per epoch


class Files(NamedTuple):
    """Paths of the tables; without `times` the jobs have columns of their own.

    Parameters
    ----------
    jobs, nodes, power, times : CSV files
    """

    jobs: str | Path
    nodes: str | Path
    power: str | Path
    times: str | Path | None = None


class Terms(NamedTuple):
    """What the tables do not say.

    Parameters
    ----------
    now : present time, as the jobs write it; "" for second 0
    eur_per_kwh, pue : price of electricity for decisions, and what the building adds
    off_after_s, off_w : see `Site`
    hardware : catalogue for watts and memory that the tables leave out; None: they have to be there
    """

    now: str = ""
    eur_per_kwh: float = PRICE_EUR_PER_KWH
    pue: float = PUE
    off_after_s: float = 0.0
    off_w: float = 0.0
    hardware: Hardware | None = None


AS_PUBLISHED = Terms()

NODE_COLUMNS = {
    "node": Column("text"), "gpu": Column("text"),
    "gpus": Column("integer", minimum=1, maximum=MOST_GPUS),
    "memory_gib": Column("number", required=False, default=np.inf, minimum=0, blank=np.inf),
    "idle_w": Column("number", required=False, minimum=0, maximum=MOST_W, blank=np.nan)}


class Part(NamedTuple):
    """GPUs of one type in a machine; `idle_w` is the machine's, NaN if unknown."""

    machine: str
    gpu: str
    gpus: int
    memory_mib: float
    idle_w: float
    row: int


def _check_filled(table: pd.DataFrame, names: Sequence[str], path: str | Path) -> None:
    """Refuse an empty cell of a text."""
    for name in names:
        if (table[name] == "").any():
            raise InputError("the cell is empty", file=path, row=int(table.index[
                int(np.argmax(table[name] == ""))]), column=name, mend="fill it in")


def _idle_of(table: pd.DataFrame, path: str | Path) -> dict[str, float]:
    """Idle watts of each machine that has some in one of its rows."""
    found: dict[str, float] = {}
    for row, node, watts in zip(table.index, table["node"], table["idle_w"], strict=True):
        if not np.isnan(watts) and found.setdefault(node, watts) != watts:
            raise InputError(f"{watts:g}, and {found[node]:g} in another row of {node}", file=path,
                             row=int(row), column="idle_w", value=watts,
                             mend="it is that of the whole machine: write it once")
    return found


def read_parts(path: str | Path) -> list[Part]:
    """Machines by name, and their GPUs by type."""
    table = read_table(path, NODE_COLUMNS)
    _check_filled(table, ("node", "gpu"), path)
    idle_w = _idle_of(table, path)
    first: dict[tuple[str, str], int] = {}
    for row, node, gpu in zip(table.index, table["node"], table["gpu"], strict=True):
        if first.setdefault((node, gpu), row) != row:
            raise InputError(f"{node} has {gpu} already in row {first[node, gpu]}", file=path,
                             row=int(row), column="gpu", value=gpu,
                             mend="put equal GPUs of a machine into one row")
    columns = (table[name].tolist() for name in NODE_COLUMNS)
    parts = [Part(node, gpu, gpus, MIB_PER_GIB * gib, idle_w.get(node, np.nan), int(row))
             for row, node, gpu, gpus, gib, _ in zip(table.index, *columns, strict=True)]
    return sorted(parts)


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
    whole: Mapping[Place, float]


WATT = Column("number", minimum=0, maximum=MOST_W)


def _read_each(path: str | Path) -> dict[str, float]:
    """Watts that one GPU in use adds, by type."""
    columns = {"gpu": Column("text", unique=True), "idle_w": WATT, "full_w": WATT}
    table = read_table(path, columns)
    for row, gpu, idle_w, full_w in zip(table.index, *(table[name] for name in columns),
                                        strict=True):
        if full_w < idle_w:
            raise InputError(f"a {gpu} draws {full_w:g} W at work and {idle_w:g} W idle", file=path,
                             row=int(row), column="full_w", value=full_w, mend="swap them")
    return dict(zip(table["gpu"], table["full_w"] - table["idle_w"], strict=True))


def _unique_places(table: pd.DataFrame, names: Sequence[str], path: str | Path) -> None:
    """Refuse a second row about the same."""
    again = table.duplicated(list(names)).to_numpy()
    if again.any():
        row = table.index[int(np.argmax(again))]
        what = ", ".join(str(table.loc[row, name]) for name in names)
        raise InputError(f"there is a row of {what} already", file=path, row=int(row),
                         column=names[-1], mend="keep one")


def read_watts(path: str | Path) -> Watts:
    """Either form of the table of watts."""
    if "full_w" in read_header(path):
        return Watts(path, _read_each(path), {})
    columns = {"gpu": Column("text"), "gpus": Column("integer", minimum=1, maximum=MOST_GPUS),
               "watts": WATT}
    table = read_table(path, columns)
    _unique_places(table, ("gpu", "gpus"), path)
    return Watts(path, {}, {(gpu, gpus): watts for gpu, gpus, watts in zip(
        *(table[name].tolist() for name in columns), strict=True)})


def _added_by_each(part: Part, watts: Watts, error: partial[InputError]) -> list[float]:
    """Watts added by 0, 1, ... GPUs in use, of so many for each."""
    if part.gpu not in watts.each:
        raise error(f"there are no watts of {part.gpu!r:.60}", column="gpu",
                    mend=f"add it to {watts.file}, correct its name, or give --hardware")
    if np.isnan(part.idle_w):
        raise error(f"{part.machine} has no idle_w", column="idle_w",
                    mend="write what the machine draws with all of its GPUs idle")
    return [count * watts.each[part.gpu] for count in range(part.gpus + 1)]


def _added_by_table(part: Part, watts: Watts, error: partial[InputError]) -> list[float]:
    """Watts added by 0, 1, ... GPUs in use, of a table of whole machines."""
    added = [0.0]
    idle_w = 0.0 if np.isnan(part.idle_w) else part.idle_w
    for count in range(1, part.gpus + 1):
        if (part.gpu, count) not in watts.whole:
            raise error(f"there are no watts of a machine with {count} {part.gpu} in use",
                        column="gpus", mend=f"add a row to {watts.file}")
        added.append(watts.whole[part.gpu, count] - idle_w)
        if added[-1] < added[-2]:
            raise error(f"{part.machine} draws less with {count} {part.gpu} in use than with one "
                        "less", column="idle_w", mend=f"correct idle_w, or {watts.file}")
    return added


def added_by(parts: Sequence[Part], watts: Watts, nodes: str | Path) -> list[list[float]]:
    """Watts that 0, 1, ... GPUs in use add, for each part of a machine."""
    machines = [part.machine for part in parts]
    found = []
    for part in parts:
        error = partial(InputError, file=nodes, row=part.row)
        if watts.each:
            found.append(_added_by_each(part, watts, error))
            continue
        if machines.count(part.machine) > 1:
            raise error(f"{part.machine} has GPUs of two types, and {watts.file} knows machines "
                        "with one", column="gpu",
                        mend="give gpu, idle_w and full_w there, of single GPUs")
        found.append(_added_by_table(part, watts, error))
    return found


def filled(parts: list[Part], watts: Watts, hardware: Hardware) -> tuple[list[Part], Watts]:
    """Parts and watts with what a catalogue knows and the tables leave out."""
    models = {gpu: hardware.gpus[entry] for gpu in {part.gpu for part in parts}
              if (entry := meant_by(gpu, hardware.names))}
    parts = [part._replace(memory_mib=models[part.gpu].memory_mib)
             if np.isinf(part.memory_mib) and part.gpu in models else part for part in parts]
    if watts.whole:
        return parts, watts
    added = {gpu: model.full_w.value - model.idle_w.value for gpu, model in models.items()}
    return parts, watts._replace(each={**added, **watts.each})


EPOCH_S = Column("number", minimum=LEAST_S, maximum=MOST_S)
TIME_COLUMNS = {"application": Column("text"), "gpu": Column("text"),
                "gpus": Column("integer", minimum=1, maximum=MOST_GPUS), "epoch_s": EPOCH_S}


def read_times(path: str | Path) -> dict[str, Pace]:
    """Seconds per epoch of each application."""
    table = read_table(path, TIME_COLUMNS)
    _check_filled(table, ("application", "gpu"), path)
    _unique_places(table, ("application", "gpu", "gpus"), path)
    paces: dict[str, Pace] = {}
    for name, gpu, gpus, epoch_s in zip(*(table[name].tolist() for name in TIME_COLUMNS),
                                        strict=True):
        paces.setdefault(name, {})[gpu, gpus] = epoch_s
    return paces


OWN = "epoch_s "


def own_columns(path: str | Path) -> dict[str, Place]:
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


def _moment(text: str) -> datetime | None:
    """A date, in UTC if it does not say where; None if it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def zero_of(texts: Sequence[str]) -> datetime | None:
    """Midnight before the first date; None if there is none."""
    moments = [moment for text in texts if (moment := _moment(text)) is not None
               and not text.isdecimal()]
    return min(moments).replace(hour=0, minute=0, second=0, microsecond=0) if moments else None


def seconds(text: str, zero: datetime | None, error: partial[InputError]) -> float:
    """Seconds of a cell that holds a number, or a date if the file has dates."""
    if zero is None:
        try:
            found = float(text)
        except ValueError:
            found = np.nan
    else:
        moment = None if text.isdecimal() else _moment(text)
        found = np.nan if moment is None else (moment - zero).total_seconds()
    if not -MOST_S <= found <= MOST_S:
        wanted = "seconds" if zero is None else "a date such as 2026-03-02T08:00"
        raise error(f"{text!r:.60} is no time", value=text, mend=f"give {wanted}, as in other rows")
    return found


JOB_COLUMNS = {
    "job": Column("text", unique=True), "submission": Column("text"), "due": Column("text"),
    "epochs": Column("integer", minimum=1, maximum=MOST_EPOCHS),
    "weight_eur_per_h": Column("number", required=False, minimum=0, maximum=MOST_EUR),
    "priority": Column("integer", required=False, minimum=1, maximum=len(PRIORITIES)),
    "application": Column("text", required=False),
    "memory_gib": Column("number", required=False, default=0.0, minimum=0, blank=0.0),
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
    own_paces = [{place: row[name] for name, place in own.items() if row[name] < np.inf}
                 for row in table[list(own)].to_dict("records")]
    return table.assign(own=pd.Series(own_paces, table.index, dtype=object))


def paces_of(table: pd.DataFrame, times: Mapping[str, Pace], files: Files) -> list[Pace]:
    """Seconds per epoch of each job: its application's, and its own before them."""
    found = []
    for row, job, name, own in zip(table.index, table["job"], table["application"], table["own"],
                                   strict=True):
        if name and name not in times:
            known = ", ".join(sorted(times)[:12]) or "none"
            raise InputError(f"nothing is known of the application {name!r:.60}", file=files.jobs,
                             row=int(row), column="application", value=name,
                             mend=f"measure it and add it to {files.times or 'a table of times'}; "
                             f"known: {known}")
        pace = {**times.get(name, {}), **own}
        if not pace:
            raise InputError(f"{job} has no run time", file=files.jobs, row=int(row),
                             column="application",
                             mend='name its application, or fill a column such as "epoch_s V100x2"')
        found.append(pace)
    return found


class Layout(NamedTuple):
    """Machines, parts and sorts of nodes in their order.

    Parameters
    ----------
    parts : by machine and type, one for each node of the fleet
    sorts : types of the fleet
    added_w : (parts) watts of 0, 1, ... GPUs in use
    configurations : type and number of GPUs
    """

    parts: list[Part]
    sorts: list[Sort]
    added_w: list[list[float]]
    configurations: list[tuple[int, int]]


def sort_of(part: Part) -> Sort:
    """What makes two nodes equal."""
    return part.gpu, part.memory_mib, 0.0 if np.isnan(part.idle_w) else part.idle_w


def layout_of(parts: list[Part], added_w: list[list[float]], paces: Sequence[Pace]) -> Layout:
    """Number the types and the configurations that some job can use and some node offers."""
    sorts = sorted({sort_of(part) for part in parts})
    most = {sort: max(part.gpus for part in parts if sort_of(part) == sort) for sort in sorts}
    places = {place for pace in paces for place in pace}
    configurations = sorted((sorts.index(sort), count) for sort in sorts for gpu, count in places
                            if gpu == sort[0] and count <= most[sort])
    return Layout(parts, sorts, added_w, configurations)


def site_from(layout: Layout, terms: Terms) -> Site:
    """What the machines draw."""
    names = sorted({part.machine for part in layout.parts})
    most = max(part.gpus for part in layout.parts)
    base_w = {part.machine: sort_of(part)[2] for part in layout.parts}
    added = np.full((len(layout.sorts), most + 1), np.inf)
    for part, watts in zip(layout.parts, layout.added_w, strict=True):
        added[layout.sorts.index(sort_of(part)), :len(watts)] = watts
    return Site(tuple(names), np.array([names.index(part.machine) for part in layout.parts]),
                np.array([base_w[name] for name in names]), added, terms.eur_per_kwh, terms.pue,
                terms.off_after_s, terms.off_w)


def fleet_from(layout: Layout, site: Site) -> Fleet:
    """Nodes and prices: each part of a machine as if it were one."""
    idle_w = np.array([sort[2] for sort in layout.sorts])
    cost = energy_cost_eur_per_h(site.added_w + idle_w[:, None], site.eur_per_kwh, site.pue)
    cost[:, 0] = 0.0
    kinds = [layout.sorts.index(sort_of(part)) for part in layout.parts]
    kind, count = np.array(layout.configurations, np.int64).reshape(-1, 2).T
    return Fleet(np.array(kinds), np.array([part.gpus for part in layout.parts]), kind.copy(),
                 count.copy(), cost)


def times_from(layout: Layout, table: pd.DataFrame, paces: Sequence[Pace]) -> Floats:
    """(jobs, configurations) run times that are left."""
    left = np.maximum((table["epochs"] - table["epochs_done"]).to_numpy(float), LEAST_S)
    rows = [[pace.get((layout.sorts[kind][0], count), np.inf)
             for kind, count in layout.configurations] for pace in paces]
    full: Floats = np.array(rows).reshape(len(paces), len(layout.configurations))
    full *= left[:, None]
    return full


def _check_jobs(table: pd.DataFrame, times_s: Floats, memory: Memory, fleet: Fleet,
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


def _place_now(layout: Layout, node: str, gpu: str, gpus: int,
               error: partial[InputError]) -> tuple[int, int]:
    """Number of node and configuration where a job runs."""
    here = [i for i, part in enumerate(layout.parts) if part.machine == node]
    if not here:
        raise error(f"there is no machine {node!r:.60}", column="node",
                    mend="name one of the nodes")
    own = [i for i in here if gpu in ("", layout.parts[i].gpu)]
    if len(own) != 1:
        types = ", ".join(layout.parts[i].gpu for i in here)
        raise error(f"{node} has {types}", column="gpu", value=gpu, mend="name one of its types")
    kind = layout.sorts.index(sort_of(layout.parts[own[0]]))
    if (kind, gpus) not in layout.configurations or gpus > layout.parts[own[0]].gpus:
        raise error(f"it cannot run on {gpus} GPUs of {node}", column="gpus", value=gpus,
                    mend="give the number that it has, and its run time there")
    return own[0], layout.configurations.index((kind, gpus))


def present_from(layout: Layout, table: pd.DataFrame, times_s: Floats, now_s: float,
                 path: str | Path) -> Present | None:
    """What runs now and how far jobs have come; None if the table says nothing of it."""
    if not ((table["node"] != "") | (table["epochs_done"] > 0)).any():
        return None
    place = np.full((2, len(table)), -1)
    free = [part.gpus for part in layout.parts]
    columns = (table[name].tolist() for name in ("node", "gpu", "gpus", "submission_s"))
    rows = zip(table.index, *columns, strict=True)
    for number, (row, node, gpu, gpus, come_s) in enumerate(rows):
        if node == "":
            continue
        error = partial(InputError, file=path, row=int(row))
        n, c = _place_now(layout, node, gpu, int(gpus), error)
        free[n] -= int(gpus)
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


def node_names(parts: Sequence[Part]) -> tuple[str, ...]:
    """Machines, and with its type each part of a machine that has two."""
    machines = [part.machine for part in parts]
    return tuple(f"{part.machine}:{part.gpu}" if machines.count(part.machine) > 1 else part.machine
                 for part in parts)


def with_seconds(table: pd.DataFrame, now: str, path: str | Path) -> tuple[float, datetime | None]:
    """Add submission_s and due_s; the present time, and the date of second 0."""
    zero = zero_of([*table["submission"], *table["due"]])
    for name in ("submission", "due"):
        table[f"{name}_s"] = [
            seconds(text, zero, partial(InputError, file=path, row=int(row), column=name))
            for row, text in zip(table.index, table[name], strict=True)]
    early = table["submission_s"] < 0
    if early.any():
        raise InputError("it is before second 0", file=path, column="submission",
                         row=int(table.index[int(np.argmax(early))]), mend="give 0 or more")
    now_s = 0.0 if now == "" else seconds(now, zero, partial(InputError, column="--now"))
    return now_s, zero


def read_files(files: Files, terms: Terms = AS_PUBLISHED) -> tuple[Instance, datetime | None]:
    """Make an instance of tables that an operator has.

    Parameters
    ----------
    files : the tables
    terms : present time, price and PUE, when empty machines are switched off, and a catalogue

    Returns
    -------
    the instance, and the date of its second 0 if the tables have dates

    Raises
    ------
    InputError : naming file, row and column of the first thing that is wrong, and the mend
    """
    parts, watts = read_parts(files.nodes), read_watts(files.power)
    if terms.hardware is not None:
        parts, watts = filled(parts, watts, terms.hardware)
    added_w = added_by(parts, watts, files.nodes)
    times = read_times(files.times) if files.times is not None else {}
    table = read_jobs(files.jobs)
    now_s, zero = with_seconds(table, terms.now, files.jobs)
    paces = paces_of(table, times, files)
    layout = layout_of(parts, added_w, paces)
    return _assembled(layout, table, paces, terms, now_s, files.jobs), zero


def _assembled(layout: Layout, table: pd.DataFrame, paces: Sequence[Pace], terms: Terms,
               now_s: float, path: str | Path) -> Instance:
    """Check the jobs against the machines, and put all together."""
    site = site_from(layout, terms)
    fleet = fleet_from(layout, site)
    memory = Memory(MIB_PER_GIB * table["memory_gib"].to_numpy(float),
                    np.array([sort[1] for sort in layout.sorts]))
    times_s = times_from(layout, table, paces)
    _check_jobs(table, times_s, memory, fleet, path)
    times_s = without_small(times_s, memory, fleet.configuration_type)
    submission_s, due_s, weight = (
        table[name].to_numpy(float) for name in ("submission_s", "due_s", "weight_eur_per_s"))
    jobs = Jobs(submission_s, due_s, weight, times_s)
    present = present_from(layout, table, times_s, now_s, path)
    return Instance(node_names(layout.parts), tuple(table["job"]),
                    tuple(sort[0] for sort in layout.sorts), fleet, jobs,
                    table["epochs"].to_numpy(np.int64), now_s, present, memory, site)
