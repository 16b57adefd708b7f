"""An experiment is a value: what it computes, at which cost, and into which frames.

A claim is a sentence of a paper with a function that decides it.
"""

from __future__ import annotations

import inspect
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import typer

from sched_lab.lab.frames import (
    InputError,
    check_one_of,
    is_finished,
    read_frame,
    sha256,
    write_frame,
)
from sched_lab.lab.jit import PACKAGE, is_ours, source_stamp
from sched_lab.lab.sweeps import sweep
from sched_lab.traces import find_data, find_reference

__all__ = ['STATUSES', 'Workplace', 'Experiment', 'Claim', 'claims_frame', 'reproduce']

STORED = PACKAGE.parent / "data" / "results"


@dataclass(frozen=True)
class Workplace:
    """Where experiments compute.

    Parameters
    ----------
    folder : keeps finished cells of experiments under way
    workers : processes
    find : finds a data file by name, or None if it is not on this machine
    say : is told a line about each experiment that begins
    """

    folder: Path
    workers: int = 1
    find: Callable[[str], Path | None] = lambda name: None
    say: Callable[[str], object] = lambda line: None

    def sweep(self, function: Callable[..., Any], cells: Iterable[Mapping[str, Any]], name: str, *,
              depends_on: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Frame of all cells, finished ones taken from the folder (`sched_lab.lab.sweeps.sweep`).

        Parameters
        ----------
        function : called as `function(**cell)`; returns a frame, or a mapping for one row
        cells : parameters of each cell
        name : of this sweep, among those of the family
        depends_on : what else the results depend on, such as checksums of data
        """
        plain: Any = function
        while isinstance(plain, partial):
            plain = plain.func
        file = Path(inspect.getsourcefile(inspect.unwrap(plain)) or "").resolve()
        about = {"code": source_stamp(file)[:16]} if is_ours(file) else {}
        return sweep(function, cells, self.folder / name, depends_on=about | dict(depends_on or {}),
                     workers=self.workers, shown=name).frame

    def data(self, name: str) -> Path:
        """Path of a data file.

        Raises
        ------
        InputError : it is not on this machine
        """
        path = self.find(name)
        if path is None:
            source = ("run sched-lab fetch openb" if name.startswith("openb") else
                      "see its source in data/README.md")
            raise InputError(f"the data file {name} is not here", value=name,
                             mend=f"{source}, and point SCHED_LAB_DATA to the folder it is in")
        return path


@dataclass(frozen=True)
class Experiment:
    """What computes some of the stored frames.

    Parameters
    ----------
    name : as in `sched-lab reproduce FAMILY NAME`
    sentence : what it finds out
    frames : paths below data/results
    minutes : how long it takes on two cores
    parameters : all that the frames depend on, for their sidecars
    compute : called with a workplace; returns each frame by its path
    measured : columns of times, which are never compared
    needs : data files without which it is skipped
    """

    name: str
    sentence: str
    frames: tuple[str, ...]
    minutes: float
    parameters: Mapping[str, Any]
    compute: Callable[[Workplace], Mapping[str, pd.DataFrame]] = field(repr=False)
    measured: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


STATUSES = {
    "reproduced": "the claim holds in what we computed or proved",
    "direction only": "the effect is there, of another size or not everywhere",
    "not reproduced": "we computed it, and it is not so",
    "impossible": "the claim contradicts arithmetic, or another statement of its paper",
    "repaired": "not true as printed; true after a change that we name",
    "not testable": "it needs what is not published, or a machine that we do not have",
    "holds": "a statement of this book, and still so in what we computed",
    "fails": "a statement of this book, and not so there",
}


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and what decides it.

    Parameters
    ----------
    text : what is claimed
    paper : its number, as printed
    frames : paths below data/results
    ours : called with these frames; returns our number in words, the status, one of `STATUSES`,
        and, if the reason has numbers as well, the reason
    why : the reason, where the two differ
    """

    text: str
    paper: str
    frames: tuple[str, ...]
    ours: Callable[..., tuple[str, ...]] = field(repr=False)
    why: str = ""


def claims_frame(claims: Iterable[Claim],
                 read: Callable[[str], pd.DataFrame]) -> pd.DataFrame:
    """Decide claims: one row each with claim, paper, ours, status and why.

    Parameters
    ----------
    claims : of a family
    read : returns a frame by its path below data/results

    Raises
    ------
    ValueError : a claim has a status that is not one of `STATUSES`
    """
    rows = []
    for claim in claims:
        ours, status, *why = claim.ours(*map(read, claim.frames))
        if status not in STATUSES:
            raise ValueError(f"{claim.text}: {status!r} is not one of {', '.join(STATUSES)}")
        rows.append((claim.text, claim.paper, ours, status, why[0] if why else claim.why))
    return pd.DataFrame(rows, columns=["claim", "paper", "ours", "status", "why"])


def as_stored(frame: pd.DataFrame) -> pd.DataFrame:
    """The same frame after a round through a file."""
    with tempfile.TemporaryDirectory() as folder:
        stored = read_frame(write_frame(frame, Path(folder, "frame.csv"), {}))
    stored.attrs = frame.attrs
    return stored


def difference(stored: pd.DataFrame, computed: pd.DataFrame, measured: Sequence[str] = ()) -> str:
    """How two frames of files differ, measured columns aside; empty if they do not."""
    left = stored.drop(columns=list(measured), errors="ignore")
    right = computed.drop(columns=list(measured), errors="ignore")
    if list(left) != list(right):
        other = sorted({*map(str, left)} ^ {*map(str, right)})
        return f"other columns: {', '.join(other) or 'their order'}"
    if len(left) != len(right):
        return f"{len(right)} rows, stored {len(left)}"
    for name in left:
        if not left[name].equals(right[name]):
            is_same = (left[name] == right[name]) | (left[name].isna() & right[name].isna())
            return f"{int((~is_same).sum())} rows differ in {name}" if not is_same.all() else (
                f"{name} is {right[name].dtype}, stored {left[name].dtype}")
    return ""


def moved_claims(claims: Iterable[Claim], read: Callable[[str], pd.DataFrame],
                 computed: Mapping[str, pd.DataFrame]) -> list[str]:
    """Claims that computed frames decide otherwise than stored ones, each with both answers."""
    def read_new(path: str) -> pd.DataFrame:
        return computed[path] if path in computed else read(path)

    moved = []
    for claim in claims:
        if computed.keys() & {*claim.frames}:
            before = claim.ours(*map(read, claim.frames))
            after = claim.ours(*map(read_new, claim.frames))
            if before != after:
                words = (", ".join(answer[:2]) for answer in (before, after))
                moved.append(f"{claim.text}: {' -> '.join(words)}")
    return moved


def outcome_of(experiment: Experiment, path: Path, computed: pd.DataFrame) -> str:
    """Whether a computed frame is the one that is stored."""
    if not path.is_file():
        return "not stored"
    found = difference(read_frame(path), computed, experiment.measured)
    return f"differs: {found}" if found else "same"


def store(experiment: Experiment, path: Path, frame: pd.DataFrame, made_by: str,
          workplace: Workplace) -> None:
    """Write a frame with what it was made from, unless that very frame is there.

    What `frame.attrs` has goes into the sidecar too: the machine on which times were measured, say.
    """
    data = {name: sha256(workplace.data(name)) for name in experiment.needs}
    attributes = {str(name): value for name, value in frame.attrs.items()}
    parameters: dict[str, Any] = {"made by": made_by, **experiment.parameters, **attributes}
    parameters |= {"data": data} if data else {}
    is_same = path.is_file() and outcome_of(experiment, path, frame) == "same"
    if not (is_same and is_finished(path, parameters)):
        write_frame(frame, path, parameters)


def run_one(experiment: Experiment, claims: Sequence[Claim], results: Path, workplace: Workplace,
            *, made_by: str | None) -> Iterator[dict[str, Any]]:
    """Compute one experiment; yield a row per frame.

    Parameters
    ----------
    experiment : to compute
    claims : of its family
    results : the folder data/results
    workplace : where to compute
    made_by : by which command, for the sidecars; None to store nothing
    """
    missing = [name for name in experiment.needs if workplace.find(name) is None]
    if missing:
        for name in experiment.frames:
            yield {"frame": name, "minutes": 0.0, "claims moved": "",
                   "outcome": f"skipped: {', '.join(missing)} is not here"}
        return
    workplace.say(f"{experiment.name}: about {experiment.minutes:g} minutes on two cores")
    begin_s = time.perf_counter()
    computed = {name: as_stored(frame) for name, frame in experiment.compute(workplace).items()}
    minutes = (time.perf_counter() - begin_s) / 60
    if sorted(computed) != sorted(experiment.frames):
        raise ValueError(f"experiment {experiment.name} made {sorted(computed)}")
    for name, frame in computed.items():
        path = results / name
        outcome = outcome_of(experiment, path, frame)
        moved = []
        if outcome.startswith("differs"):
            stored = read_frame(path)
            times = [one for one in experiment.measured if one in frame and one in stored]
            new = frame.assign(**stored[times]) if len(stored) == len(frame) else frame
            moved = moved_claims(claims, lambda other: read_frame(results / other), {name: new})
        if made_by is not None:
            store(experiment, path, frame, made_by, workplace)
        yield {"frame": name, "minutes": round(minutes, 2), "outcome": outcome,
               "claims moved": "; ".join(moved)}


def reproduce(experiments: Mapping[str, Experiment], claims: Sequence[Claim], names: Iterable[str],
              *, results: Path, workplace: Workplace, check: bool = False,
              command: str = "sched-lab reproduce") -> pd.DataFrame:
    """Compute experiments again.

    Parameters
    ----------
    experiments, claims : of a family
    names : which experiments, in this order
    results : the folder data/results
    workplace : where to compute, and with how many workers
    check : compare with the stored frames, and write nothing
    command : what makes the frames, for their sidecars; the name of the experiment is added

    Returns
    -------
    one row per frame: experiment, frame, minutes, outcome ("same", "differs: ...", "not stored",
    "skipped: ..."), claims moved

    Raises
    ------
    InputError : there is no such experiment; nothing was computed
    """
    chosen = list(names)
    for name in chosen:
        check_one_of(name, experiments, "experiment")
    rows = []
    for name in chosen:
        made_by = None if check else f"{command} {name}"
        place = replace(workplace, folder=workplace.folder / name)
        found = run_one(experiments[name], claims, Path(results), place, made_by=made_by)
        rows += [{"experiment": name, **row} for row in found]
        shutil.rmtree(place.folder, ignore_errors=True)  # finished: the next run computes afresh
    return pd.DataFrame(rows, columns=["experiment", "frame", "minutes", "outcome", "claims moved"])


# --- the command


def find_anything(name: str) -> Path | None:
    """Find a file of the data or of the reference results."""
    return find_data(name) or find_reference(name)


def list_experiments(experiments: Mapping[str, Experiment]) -> None:
    """Print what can be reproduced: name, minutes, what it finds out, and its frames."""
    width = max(map(len, experiments), default=0)
    for name, one in experiments.items():
        absent = [file for file in one.needs if find_anything(file) is None]
        lacks = f" (skipped here: {absent[0]} is absent)" if absent else ""
        typer.echo(f"{name:<{width}}  {one.minutes:7.1f} min  {one.sentence}{lacks}")
        typer.echo(f"{'':<{width}}               {', '.join(one.frames)}")


def reproduce_family(study: Any, paper: str, names: Sequence[str], *, check: bool, workers: int,
                     minutes: float, results: Path | None, figures: Path | None) -> bool:
    """Reproduce experiments and print a line for each frame; whether none came out differently.

    Parameters
    ----------
    study : has its experiments, claims and figures
    paper : what the command calls it
    names : of experiments; without any, check those that take no more than `minutes`
    check, workers, minutes, results, figures : as the command has them

    Raises
    ------
    InputError : results, an experiment or data that it needs is not there; nothing was computed
    """
    stored = results or STORED
    if not stored.is_dir():
        raise InputError(f"there are no stored results in {stored}",
                         mend="give their folder with --results")
    cells = PACKAGE.parent / "_build" / "cells" if stored.resolve() == STORED else stored / ".cells"
    place = Workplace(cells / paper, workers, find_anything, partial(typer.echo, err=True))
    experiments = study.EXPERIMENTS
    for name in names:
        check_one_of(name, experiments, "experiment")
    for file in [file for name in names for file in experiments[name].needs]:
        place.data(file)
    is_same = True
    for name in names or [name for name, one in experiments.items()
                          if check and one.minutes <= minutes]:
        found = reproduce(experiments, study.CLAIMS, [name], results=stored, workplace=place,
                          check=check, command=f"sched-lab reproduce {paper}")
        for row in found.itertuples(index=False):
            typer.echo(f"{row.frame}: {row.outcome} ({row.minutes:.1f} min)")
            for line in filter(None, row[-1].split("; ")):
                typer.echo(f"  moves: {line}")
        is_same &= bool(found["outcome"].str.match("same|skipped").all())
    if figures:
        from sched_lab.lab.plots import save_svg, use_book_style

        use_book_style()
        for name, draw in study.FIGURES.items():
            path = figures / f"{name.removesuffix('.svg')}.svg"
            typer.echo(save_svg(draw(lambda frame: read_frame(stored / frame)), path))
    return is_same
