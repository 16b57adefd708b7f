"""Limits of users, accounts and QOS: who waits though there is room, as slurmctld's accounting policy holds jobs back."""

# A module, written by hand.

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...lab.arrays import Floats, Integers, Truths
from ...lab.frames import InputError, read_input
from ...lab.jit import by_reference, njit
from ..read.slurm import memory_in
from ..read.tables import Source
from .case import parts_of_jobs
from .problem import Problem, Schedule

__all__ = ['Limits', 'read_limits']

COUNTED = ("jobs", "cpu", "mem", "gres/gpu")
LEVELS = ("user", "account", "QOS")
BY_JOBS, BY_RESOURCES = 1, 2  # why a job is held: by the number of jobs, or by what they have
Amounts = tuple[tuple[str, int], ...]  # of `COUNTED`, thousandths of CPUs and MiB


class Quality(NamedTuple):
    """A QOS of Slurm.

    Parameters
    ----------
    name, priority : as `sacctmgr` has them
    is_first : whether its limits go before those of the QOS of the partition (OverPartQOS)
    group, per_account, per_user : most that its jobs have at once: all, those of an account, and those of a user
    """

    name: str
    priority: int = 0
    is_first: bool = False
    group: Amounts = ()
    per_account: Amounts = ()
    per_user: Amounts = ()


class Association(NamedTuple):
    """An account, or a user in it.

    Parameters
    ----------
    account, user : names; the user is empty for the account itself
    above : row of the account that it belongs to, -1 for none
    group : most that it and all below have at once (GrpJobs, GrpTRES)
    own : most that a user has at once (MaxJobs)
    qos : QOS of a job that names none
    """

    account: str
    user: str
    above: int = -1
    group: Amounts = ()
    own: Amounts = ()
    qos: str = ""


class Limits(NamedTuple):
    """QOS and associations, and the QOS of partitions, by name."""

    qualities: tuple[Quality, ...] = ()
    associations: tuple[Association, ...] = ()
    of_partition: tuple[tuple[str, str], ...] = ()

    def factor(self, name: str) -> float:
        """Priority of a QOS over that of the highest, 0 for none."""
        of_name = {one.name: one.priority for one in self.qualities}
        return of_name.get(name, 0) / max([1, *of_name.values()])


ASKED = "give what `sacctmgr -P show qos` and `sacctmgr -P show assoc` print, one behind the other"
UNMODELLED = ("GrpTRESMins", "GrpTRESRunMins", "GrpWall", "MaxTRESRunMinsPA", "MaxTRESRunMinsPU", "Partition")


def rows_of(path: str | Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Lines of QOS and associations by column, each with its number.

    Raises
    ------
    InputError : there is no header, or a line has another number of cells
    """
    head: list[str] = []
    for row, line in enumerate(Source(str(path), read_input(path).content).text().splitlines(), 1):
        cells = [cell.strip() for cell in line.split("|")]
        if {"Account", "User"} <= {*cells} or {"Name", "Priority"} <= {*cells}:
            head = cells
        elif line.strip():
            if len(cells) != len(head):
                raise InputError(f"{len(cells)} cells under {len(head)} columns", file=path, row=row, mend=ASKED)
            yield row, dict(zip(head, cells, strict=True))


def limits_in(cell: dict[str, str], tres: str, jobs: str, place: tuple[str | Path, int],
               unmodelled: list[str]) -> Amounts:
    """Limits of two columns, such as GrpTRES and GrpJobs; those of resources that are not counted go to `unmodelled`.

    Raises
    ------
    InputError : one is no whole number
    """
    found = []
    for column in (jobs, tres):
        written = cell.get(column, "")
        for part in filter(None, [f"jobs={written}" if written and column == jobs else "", *(
                written.split(",") if column == tres else [])]):
            what, _, number = part.partition("=")
            if what in COUNTED and not re.fullmatch(r"\d{1,15}[KMGTP]?" if what == "mem" else r"\d{1,12}", number):
                raise InputError(f"{part!r:.60} is no limit", file=place[0], row=place[1], column=column, value=part,
                                 mend=ASKED)
            if what in COUNTED:
                size = memory_in(part) or 0 if what == "mem" else int(number) * (1000 if what == "cpu" else 1)
                found.append((what, size))
            else:
                unmodelled.append(f"{column}={part}")
    return tuple(found)


def read_limits(path: str | Path, cluster: str = "", above: dict[str, str] | None = None) -> tuple[Limits, tuple[str, ...]]:
    """Read limits from what `sacctmgr -P show qos` and `sacctmgr -P show assoc` print, one behind the other.

    Parameters
    ----------
    path : the file
    cluster : of which the associations are taken, if they name theirs; empty for all
    above : account above each account where there is no column ParentName

    Returns
    -------
    limits without those of partitions, and what is written there and counts nothing here

    Raises
    ------
    InputError : it is no such file, a limit is no number, an account stands there twice or above itself, or there
        is neither a QOS nor an association
    """
    qualities: list[Quality] = []
    lines: dict[tuple[str, str], tuple[int, Association, str]] = {}
    unmodelled: list[str] = []
    for row, cell in rows_of(path):
        place = (path, row)
        unmodelled += [f"{name}={cell[name]}" for name in UNMODELLED if cell.get(name)]
        group = limits_in(cell, "GrpTRES", "GrpJobs", place, unmodelled)
        if "Name" in cell:
            qualities.append(Quality(
                cell["Name"], int(cell["Priority"]) if re.fullmatch(r"\d{1,12}", cell["Priority"]) else 0,
                "OverPartQOS" in cell.get("Flags", ""), group, limits_in(cell, "MaxTRESPA", "MaxJobsPA", place, unmodelled),
                limits_in(cell, "MaxTRESPU", "MaxJobsPU", place, unmodelled)))
        elif cell.get("Cluster", cluster) in ("", cluster) or not cluster:
            key = cell["Account"], cell["User"]
            if key in lines and not cell.get("Partition"):
                raise InputError(f"{' '.join(filter(None, key))!r:.60} stands there twice", file=path, row=row,
                                 column="Account", value=key[0], mend="give the associations of one cluster, cluster=NAME")
            own = limits_in(cell, "", "MaxJobs", place, unmodelled)
            lines.setdefault(key, (row, Association(*key, -1, group, own, cell.get("Def QOS", "")), cell.get(
                "ParentName", (above or {}).get(key[0], ""))))
    if not qualities and not lines:
        raise InputError("there is neither a QOS nor an association in it", file=path, mend=ASKED)
    number = {key: place for place, key in enumerate(lines)}
    associations = []
    for (account, user), (row, one, parent) in lines.items():
        seen = [account]
        while not user and (parent_of := lines.get((seen[-1], ""), (0, one, ""))[2]):
            if parent_of in seen:
                raise InputError(f"account {account} is above itself", file=path, row=row, column="ParentName",
                                 value=parent, mend=ASKED)
            seen.append(parent_of)
        associations.append(one._replace(above=number.get((account if user else parent, ""), -1)))
    return Limits(tuple(qualities), tuple(associations)), tuple(dict.fromkeys(unmodelled))


class Slot(NamedTuple):
    """What a job counts towards.

    Parameters
    ----------
    scope : whose jobs are counted together
    level : one of `LEVELS`
    most : what this job is held to; limits that others go before are left out
    """

    scope: tuple[Any, ...]
    level: str
    most: Amounts


def slots_of(limits: Limits, user: str, account: str, qos: str, queue: str) -> list[Slot]:
    """What a job counts towards (`acct_policy.c`, `acct_policy_job_runnable_pre_select` and `..._post_select`).

    Of limits of the same kind that of the partition's QOS goes first, then that of the job's QOS, then those of its
    association and of all accounts above.
    """
    rows = {(one.user, one.account): place for place, one in reversed([*enumerate(limits.associations)])}
    rows |= {(one.user, ""): place for place, one in reversed([*enumerate(limits.associations)]) if one.user}
    at = rows.get((user, account), rows.get(("", account), -1))
    named = {one.name: one for one in limits.qualities}
    own = named.get(qos or (limits.associations[at].qos if at >= 0 else "") or "normal")
    part = named.get(dict(limits.of_partition).get(queue, ""))
    slots = []
    said: set[tuple[str, str]] = set()
    both = [own, part] if own and own.is_first else [part, own]
    for one in dict.fromkeys(one for one in both if one):
        for level, most, who in (("QOS", one.group, ""), ("account", one.per_account, account), (
                "user", one.per_user, user)):
            slots.append(Slot((one.name, level, who), level, tuple(
                pair for pair in most if (level, pair[0]) not in said)))
            said |= {(level, what) for what, _ in slots[-1].most}
    if at >= 0:
        is_said = said & {("user", "jobs"), ("account", "jobs")}
        slots.append(Slot((at, "own"), "user", () if is_said else limits.associations[at].own))
    while at >= 0:
        here = limits.associations[at]
        slots.append(Slot((at,), "user" if here.user else "account", tuple(
            pair for pair in here.group if ("QOS", pair[0]) not in said)))
        at = here.above
    return slots


@by_reference
class Ceilings(NamedTuple):
    """Limits as compiled code has them, and what is in use.

    Parameters
    ----------
    kind : (tasks,) number of what the task counts towards
    scope : (kinds, slots) row of `used` of each slot of a kind, -1 if it has fewer
    most : (kinds, slots, counted) what its jobs are held to; inf without a limit
    level : (kinds, slots) number of the level
    own, whole : (tasks, counted) what a task counts, the job itself at its first part; and all parts of its job
    used : (scopes, counted) what those who run count
    """

    kind: Integers
    scope: Integers
    most: Floats
    level: Integers
    own: Floats
    whole: Floats
    used: Floats


def ceilings_of(limits: Limits, problem: Problem) -> Ceilings:
    """The limits of the tasks of a problem, when nothing is in use.

    Parameters
    ----------
    limits, problem : what there is, and whose tasks they hold

    Raises
    ------
    InputError : no task is of a QOS or an association that is known
    """
    size, tasks = len(problem.tasks), problem.tasks
    numbers: dict[tuple[str, ...], int] = {}
    texts = [[""] * size if column is None else column.tolist()
             for column in (problem.user, problem.account, problem.qos, problem.queue)]
    kind = np.array([numbers.setdefault(key, len(numbers)) for key in zip(*texts, strict=True)], np.int64)
    slots = [slots_of(limits, *key) for key in numbers]
    if (limits.qualities or limits.associations) and size and not any(slots):
        raise InputError("the limits are of no user, account or QOS of the tasks",
                         mend="give the limits of this cluster, or read jobs with their users, accounts and QOS")
    limiting = {slot.scope for some in slots for slot in some if slot.most}  # others need no counting
    shape = len(slots), max((sum(slot.scope in limiting for slot in some) for some in slots), default=0)
    scope, level, most = np.full(shape, -1), np.zeros(shape, np.int64), np.full((*shape, len(COUNTED)), np.inf)
    scopes: dict[tuple[Any, ...], int] = {}
    for row, some in enumerate(slots):
        for column, slot in enumerate(slot for slot in some if slot.scope in limiting):
            scope[row, column] = scopes.setdefault(slot.scope, len(scopes))
            level[row, column] = LEVELS.index(slot.level)
            for what, amount in slot.most:
                most[row, column, COUNTED.index(what)] = amount
    first, _ = parts_of_jobs(problem.job, size)
    own = np.column_stack([first == np.arange(size), tasks.cpu_milli, tasks.memory_mib, tasks.num_gpus]).astype(float)
    whole = np.zeros_like(own)
    np.add.at(whole, first, own)
    return Ceilings(kind, scope, most, level, own, whole[first], np.zeros((len(scopes), len(COUNTED))))


@njit(cache=True)
def count(ceilings: Ceilings, task: int, sign: int) -> None:
    """Count a task that starts or ends.

    Parameters
    ----------
    ceilings, task, sign : where, whom, and 1 for a start or -1 for an end
    """
    kind = ceilings.kind[task]
    for slot in range(ceilings.scope.shape[1]):
        row = ceilings.scope[kind, slot]
        if row >= 0:
            ceilings.used[row] += sign * ceilings.own[task]


@njit(cache=True)
def hold_reason(ceilings: Ceilings, job: int) -> int:
    """Whether a limit holds a job: 0, `BY_JOBS` or `BY_RESOURCES`.

    Parameters
    ----------
    ceilings, job : limits and what is in use of them, and the first part of the job
    """
    kind = ceilings.kind[job]
    reason = 0
    for slot in range(ceilings.scope.shape[1]):
        row = ceilings.scope[kind, slot]
        for what in range(4 if row >= 0 else 0):
            ask = ceilings.whole[job, what]
            if ask > 0 and ceilings.used[row, what] + ask > ceilings.most[kind, slot, what]:
                if what == 0:
                    return BY_JOBS
                reason = BY_RESOURCES
    return reason


class Spell(NamedTuple):
    """A limit, whom it holds, and what was in use of it.

    Parameters
    ----------
    what, level : numbers of what is counted, and of the level
    most : what is allowed
    held : (tasks,) whether a task is held to it
    counts : (tasks,) what each task in its scope counts
    at_s, used : (moments,) since when so much was in use; nothing before the first
    """

    what: int
    level: int
    most: float
    held: Truths
    counts: Floats
    at_s: Floats
    used: Floats


def spells(ceilings: Ceilings, schedule: Schedule) -> Iterator[Spell]:
    """What was in use of each limit by a schedule, and when."""
    for row in range(len(ceilings.used)):
        is_slot = ceilings.scope == row
        for what in range(len(COUNTED)):
            most = np.where(is_slot, ceilings.most[:, :, what], np.inf).min(axis=1)
            if np.isinf(most).all():
                continue
            counts = np.where(is_slot.any(axis=1)[ceilings.kind] & (schedule.node >= 0), ceilings.own[:, what], 0)
            runs = np.flatnonzero((counts > 0) & (schedule.end_s > schedule.start_s))
            at_s, place = np.unique(np.append(schedule.start_s[runs], schedule.end_s[runs]), return_inverse=True)
            used = np.cumsum(np.bincount(place, np.append(counts[runs], -counts[runs]), len(at_s)).astype(float))
            yield Spell(what, int(ceilings.level[is_slot][0]), float(most.min()), np.isfinite(most)[ceilings.kind],
                        counts, at_s, used)


def limited(limits: Limits, problem: Problem, schedule: Schedule) -> dict[str, int]:
    """How many jobs waited while a limit held them, by its level; and in `all` of them.

    Parameters
    ----------
    limits, problem, schedule : what holds the tasks, and what became of them
    """
    ceilings = ceilings_of(limits, problem)
    start_s = np.where(schedule.node >= 0, schedule.start_s, np.inf)
    waits = (ceilings.own[:, 0] > 0) & (start_s > problem.submit_s)
    has_waited = np.zeros((len(LEVELS), len(waits)), bool)
    for one in spells(ceilings, schedule):
        rows = np.flatnonzero(waits & one.held & (ceilings.whole[:, one.what] > 0))
        used = np.concatenate([[0], one.used, [0]])
        since = np.searchsorted(one.at_s, problem.submit_s[rows], "right")
        until = np.maximum(np.searchsorted(one.at_s, start_s[rows], "left"), since) + 1
        if len(rows):
            peak = np.maximum.reduceat(used, np.column_stack([since, until]).ravel())[::2]
            has_waited[one.level, rows] |= peak + ceilings.whole[rows, one.what] > one.most
    return {"all": int(has_waited.any(axis=0).sum())} | {
        level: int(row.sum()) for level, row in zip(LEVELS, has_waited, strict=True)}


def limit_words(limits: Limits, problem: Problem, schedule: Schedule) -> str:
    """How many jobs waited while a limit held them, in words.

    Parameters
    ----------
    limits, problem, schedule : as `limited`
    """
    found, of_jobs = limited(limits, problem, schedule), np.unique(parts_of_jobs(problem.job, len(problem.tasks))[0])
    levels = [f"{found[level]:,} of their {level}" for level in LEVELS if found[level]]
    return f"of {len(of_jobs):,} jobs {found['all']:,} waited while a limit held them" + f" ({', '.join(levels)})" * bool(levels)


def past_limits(limits: Limits, problem: Problem, schedule: Schedule, ran: Truths) -> Iterator[str]:
    """Jobs that start beyond a limit, but for those that ran before.

    Who starts at the same time and is not held to it may have come later, and does not count.

    Parameters
    ----------
    limits, problem, schedule : as `limited`
    ran : (tasks,) who ran before
    """
    ceilings = ceilings_of(limits, problem)
    for one in spells(ceilings, schedule):
        starts = np.flatnonzero(one.held & (one.counts > 0) & ~ran & (schedule.end_s > schedule.start_s))
        others = np.flatnonzero(~one.held & (one.counts > 0) & (schedule.end_s > schedule.start_s))
        for task in starts.tolist():
            now_s = schedule.start_s[task]
            used = one.used[np.searchsorted(one.at_s, now_s, "right") - 1]
            used -= one.counts[others][schedule.start_s[others] == now_s].sum()
            if used > one.most:
                yield (f"limit of the {LEVELS[one.level]}: {used:g} of {one.most:g} {COUNTED[one.what]} are in use at "
                       f"{now_s} s, when task {problem.tasks.name[task]} starts")
