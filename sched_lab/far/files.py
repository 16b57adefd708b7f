"""Tables of an operator of GPUs with MIG: tasks by profile, the GPUs, what exists on them now, and what cutting takes."""

# A module, written by hand.

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..hardware import GpuModel, Hardware, default_hardware
from ..lab.arrays import Floats
from ..lab.frames import Column, InputError, read_header, read_table
from .mig import MODELS
from .profiles import OwnTimes, ProfileMig, fault_of, model_named, paper_model, plain_columns
from .tasks import LONGEST_S, SHORTEST_S, Batch, no_terms

__all__ = ['read_operations', 'read_profiled', 'read_gpus', 'read_now', 'with_now']

PROFILE_NAME = re.compile(r"(.+:)?\d+g\.\d+gb.*")


def profile_names(hardware: Hardware | None = None) -> set[str]:
    """All profiles that are known, as `1g.10gb` and as `H100 PCIe:1g.10gb`."""
    models = [*(hardware or default_hardware()).gpus.values(), *map(paper_model, MODELS)]
    return {f"{before}{profile.name}" for model in models for profile in model.profiles
            for before in ("", f"{model.name}:")}


def read_operations(path: str | Path, hardware: Hardware | None = None) -> OwnTimes:
    """Read how long creating and destroying an instance takes, by profile.

    Parameters
    ----------
    path : a CSV file with profile, create_s, destroy_s and, optionally, model
    hardware : the catalogue; the one that comes with the package if not given

    Raises
    ------
    InputError : at the first thing that is wrong
    """
    seconds = Column("number", minimum=0, maximum=3600)
    columns = {"profile": Column("text"), "create_s": seconds, "destroy_s": seconds,
               "model": Column("text", required=False, default="")}
    frame = read_table(path, columns)
    own: dict[tuple[str, str], tuple[float, float]] = {}
    known = profile_names(hardware)
    for line, profile, create_s, destroy_s, named in frame.itertuples(name=None):
        place = {"file": path, "row": line}
        model = model_named(named, hardware, place | {"column": "model"}).name if named else ""
        if (f"{model}:{profile}" if model else profile) not in known:
            raise InputError(f"{model or 'no GPU model'} has {'no' if model else 'a'} profile "
                             f"{profile!r}", **place, column="profile",
                             mend="give one that `sched-lab hardware MODEL` lists")
        if (model, profile) in own:
            raise InputError(f"{profile} has two rows", **place, column="profile",
                             mend="keep one")
        own[model, profile] = (create_s, destroy_s)
    return own


def headers_of(mig: ProfileMig, header: Sequence[str]) -> list[str | None]:
    """Which column of a table has the times of each column of `mig`; None if none has."""
    found = []
    for (model, profile), is_plain in zip(mig.columns, plain_columns(mig), strict=True):
        names = [f"{model}:{profile.name}", profile.name]
        names += [str(profile.compute_slices)] if is_plain else []
        found.append(next((name for name in names if name in header), None))
    return found


def known_header(path: str | Path, hardware: Hardware | None = None) -> list[str]:
    """Header of a table in which everything that is called like a profile is one."""
    header = read_header(path)
    known = profile_names(hardware)
    for name in header:
        if PROFILE_NAME.fullmatch(name) and name not in known:
            raise InputError(f"no GPU model has a profile {name!r}", file=path, row=1, column=name,
                             mend="call it as `sched-lab hardware MODEL` does, or leave it out")
    return list(header)


AT = Column("number", required=False, default=0.0, blank=0.0, minimum=0, maximum=LONGEST_S)
TERMS = {"memory_gib": AT, "release_s": AT,
         "due_s": Column("number", required=False, default=math.inf, blank=math.inf, minimum=0,
                         maximum=LONGEST_S),
         "weight": Column("number", required=False, default=1.0, blank=1.0, minimum=0,
                          maximum=1e9)}
HAS_TERMS = ("release_s", "due_s", "weight")  # columns that only a planner with dates can use


def fitting(mig: ProfileMig, times_s: Floats, memory_gib: Floats, path: str | Path) -> Floats:
    """(tasks, columns) times, infinite where a profile has less memory than a task needs.

    Parameters
    ----------
    mig : the GPUs
    times_s, memory_gib : (tasks, columns), (tasks,) what the table says
    path : of the table

    Raises
    ------
    InputError : if memory is asked for, and that of a model is not known
    """
    if memory_gib.any() and (unknown := [name for name, one in mig.columns if not one.memory_mib]):
        raise InputError(f"how much memory the instances of {unknown[0]} have is not known",
                         file=path, column="memory_gib",
                         mend="name the GPU as `sched-lab hardware` does, 'H100 PCIe'")
    memory_mib = np.array([profile.memory_mib for _, profile in mig.columns])
    return np.where(memory_gib[:, None] * 1024 <= memory_mib, times_s, np.inf)


def read_profiled(path: str | Path, mig: ProfileMig, *, batch: str | None = None,
                  hardware: Hardware | None = None) -> Batch:
    """Read tasks with times on profiles, memory, releases and due dates.

    Parameters
    ----------
    path : a CSV file
    mig : the GPUs
    batch : column that tells which batch a task belongs to
    hardware : the catalogue; the one that comes with the package if not given

    Raises
    ------
    InputError : at the first thing that is wrong
    """
    names = headers_of(mig, known_header(path, hardware))
    if not any(names):
        shown = ", ".join(dict.fromkeys(profile.name for _, profile in mig.columns))
        raise InputError("there is no column with times of these GPUs", file=path, row=1,
                         mend=f"name columns by profiles: {shown}")
    time = Column("number", minimum=SHORTEST_S, maximum=LONGEST_S, blank=math.inf,
                  mend=f"give {SHORTEST_S:g} to {LONGEST_S:g} s, or nothing if it does not fit")
    columns = {"task": Column("text", unique=True)} | TERMS | {name: time for name in names if name}
    frame = read_table(path, columns | ({batch: Column("text")} if batch else {}))
    never = np.full(len(frame), np.inf)
    table_s = np.column_stack([frame[name].to_numpy(float) if name else never for name in names])
    times_s = fitting(mig, table_s, frame["memory_gib"].to_numpy(float), path)
    for row, own_s, need in zip(frame.index, times_s, frame["memory_gib"], strict=True):
        if not np.isfinite(own_s).any():
            problem = f"{need:g} GiB fit on no instance that has a time"
            raise InputError(problem if need else "there is no time", file=path, row=row,
                             column="memory_gib" if need else None,
                             mend="give a time on a larger profile, or a GPU with more memory")
    terms = no_terms(len(frame))._replace(
        **{name: frame[name].to_numpy(float) for name in HAS_TERMS})
    group = frame[batch].to_numpy(object) if batch else np.full(len(frame), "", object)
    return Batch(frame["task"].to_numpy(object), np.ascontiguousarray(times_s), group, terms)


MOST_GPUS = 1024


def read_gpus(given: str, hardware: Hardware | None = None) -> list[GpuModel]:
    """GPUs of "H100 PCIe=2,H200=1", or of a file with the columns model and count.

    Parameters
    ----------
    given : the text, or the path of a file whose name ends in .csv
    hardware : the catalogue; the one that comes with the package if not given

    Raises
    ------
    InputError : if a model is unknown, or a count is not from 1 to 1024
    """
    if given.endswith(".csv"):
        count = Column("integer", minimum=1, maximum=MOST_GPUS)
        frame = read_table(given, {"model": Column("text"), "count": count})
        pairs = [(name, number, {"file": given, "row": row, "column": "model"})
                 for row, name, number in frame.itertuples(name=None)]
    else:
        parts = [part.rpartition("=") for part in given.split(",")]
        pairs = [(name.strip() or number.strip(), number.strip() if mark else "1", {})
                 for name, mark, number in parts]
    gpus: list[GpuModel] = []
    for name, number, place in pairs:
        if not re.fullmatch(r"[1-9]\d{0,3}", str(number)):
            raise InputError(f"{number!r} GPUs of {name!r}", mend="write H100 PCIe=2,H200=1")
        gpus += [model_named(name, hardware, place)] * int(number)
    if len(gpus) > MOST_GPUS:
        raise InputError(f"{len(gpus)} GPUs", mend=f"give {MOST_GPUS} or fewer")
    return gpus


class Now(NamedTuple):
    """An instance that exists: GPU, profile, first memory slice, end of what runs there."""

    gpu: int
    profile: str
    start: int
    until_s: float


def read_now(path: str | Path, gpus: Sequence[GpuModel]) -> list[Now]:
    """Read the instances that exist when the clock starts.

    Parameters
    ----------
    path : a CSV file with gpu, profile, start and until_s
    gpus : the GPUs

    Raises
    ------
    InputError : if a GPU, a profile or a start does not exist, or instances cannot exist together
    """
    until = Column("number", blank=0.0, minimum=0, maximum=LONGEST_S)
    columns = {"gpu": Column("integer", minimum=0, maximum=len(gpus) - 1),
               "profile": Column("text"), "start": Column("integer", minimum=0), "until_s": until}
    found: list[Now] = []
    for line, *cells in read_table(path, columns).itertuples(name=None):
        one = Now(*cells)
        found.append(one)
        model = gpus[one.gpu]
        known = {profile.name: profile for profile in model.profiles}
        if one.profile not in known:
            raise InputError(f"{model.name} has no profile {one.profile!r}", file=path, row=line,
                             column="profile", mend=f"give one of {', '.join(known)}")
        here = [(known[other.profile], other.start) for other in found if other.gpu == one.gpu]
        if fault := fault_of(model, here):
            raise InputError(fault, file=path, row=line, column="start",
                             mend="copy it from nvidia-smi mig -lgi")
    return found


def with_now(mig: ProfileMig, batch: Batch, now: Sequence[Now]) -> Batch:
    """A batch on GPUs that hold instances already.

    Parameters
    ----------
    mig : GPUs that `profiled` has made for these instances
    batch : the tasks
    now : the instances
    """
    place_of = {(int(mig.tree.gpu[i]), mig.profile(i).name, int(mig.start[i])): i
                for i in range(len(mig.start))}
    rows = np.array([place_of[one[:3]] for one in now], np.int64)
    until_s = np.array([one.until_s for one in now], float)
    terms = batch.terms or no_terms(len(batch))
    return replace(batch, terms=terms._replace(instance=rows, until_s=until_s))
