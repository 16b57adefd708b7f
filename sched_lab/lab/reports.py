"""A report is tables, charts, a page and a summary; a folder holds the answer to one question, and says to which."""

# A module, written by hand.

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import pandas as pd

from .. import __version__
from .._extras import without
from .frames import (
    InputError,
    OutputError,
    as_plain,
    atomic_folder,
    csv_of,
    input_key,
    read_json,
    remove_leftovers,
    sha256,
    write_bytes,
    write_json,
)
from .jit import compiling_told
from .pages import Page, Part, Picture, Section, Table, write_page

if TYPE_CHECKING:
    import altair as alt

__all__ = ['Report', 'Answer', 'check_folder']

RECORD = "summary.json"
PAGE = "report.html"
MOST_FILES = 60  # whose checksums a page shows
DIGITS = 12  # of a number in a summary; what comes after them differs from processor to processor

ENERGY_MEANINGS = {
    "energy_kwh": "energy of the whole run, with all nodes on, kWh",
    "asleep_kwh": "the same with empty nodes asleep, kWh",
    "energy_eur": "what energy_kwh costs, EUR",
    "co2_kg": "CO2 that energy_kwh stands for, kg",
    "energy_assumptions": "whose watts, price and intensity these are, and what is left out"}


def energy_sentence(summary: Mapping[str, Any]) -> str:
    """What was drawn, paid and emitted, in a sentence; the numbers are those of a summary."""
    asleep = (f" ({summary['asleep_kwh']:,.1f} kWh with empty nodes asleep)"
              if "asleep_kwh" in summary else "")
    return (f"It draws {summary['energy_kwh']:,.1f} kWh{asleep}, which cost "
            f"{summary['energy_eur']:,.2f} EUR and stand for {summary['co2_kg']:,.1f} kg of CO2.")


def assumed(inputs: Mapping[str, Any]) -> Section:
    """Every option and its value, defaults included."""
    options = {name: "" if value is None else str(value) for name, value in inputs.items()
               if name not in ("files", "sched_lab")}
    frame = pd.DataFrame({"option": list(options), "value": list(options.values())})
    words = "All options and their values, those that nobody gave included; empty means none."
    return Section("What was assumed", [words, Table(frame, most_rows=len(frame))])


def repeated(inputs: Mapping[str, Any], tables: Mapping[str, str]) -> Section:
    """Version and checksums, of files that were read and of tables that were written."""
    files = inputs.get("files", {})
    rows = [("read", name, checksum) for name, checksum in files.items()]
    rows += [("written", name, checksum) for name, checksum in tables.items()]
    frame = pd.DataFrame(rows, columns=["what", "file", "sha256"])
    words = (f"Written by sched_lab {__version__}. The same files and options give the same "
             "tables, bit for bit; the checksums tell whether they are the same.")
    return Section("How to reproduce it", [words, Table(frame, most_rows=MOST_FILES)])


def to_digits(value: Any) -> Any:
    """The same plain value with its fractions rounded to `DIGITS` significant digits."""
    if isinstance(value, dict):
        return {key: to_digits(part) for key, part in value.items()}
    if isinstance(value, list):
        return [to_digits(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


@dataclass(frozen=True)
class Report:
    """What a run came to.

    Parameters
    ----------
    summary : what summary.json holds
    tables : frames by file name, rounded as they are to be written
    charts : functions that draw, by file name (.svg)
    headline : the result in a few words
    texts : what other files hold, by name
    """

    summary: dict[str, Any]
    tables: Mapping[str, pd.DataFrame]
    charts: Mapping[str, Callable[[], alt.TopLevelMixin]]
    headline: str
    texts: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    question: ClassVar[str] = "What did the run come to?"
    meanings: ClassVar[Mapping[str, str]] = {}  # of files, columns and numbers, by name

    def answer(self) -> list[str]:
        """The result in sentences, the main number in the first."""
        return [f"{self.headline}."]

    def write_tables(self, folder: Path) -> None:
        """Write tables, texts, and the summary to `DIGITS` digits, into a folder that exists."""
        for name, table in self.tables.items():
            write_bytes(csv_of(table), Path(folder, name))
        for name, text in self.texts.items():
            write_bytes(text.encode(), Path(folder, name))
        write_json(to_digits(as_plain(self.summary)), Path(folder, RECORD))

    def draw(self, folder: Path, question: Answer | None = None, called: str = "", *, can_draw: bool = True) -> None:
        """Draw the charts, and write the page; what cannot be drawn is a warning.

        Parameters
        ----------
        folder : has the tables already
        question : what was asked; without it there is no page
        called : the command line
        can_draw : whether the packages that draw are there; the page has words in place of charts
            if not
        """
        from .plots import draw_apart

        if can_draw and compiling_told.is_command:
            with without("anywidget"):  # what lets charts answer in JupyterLab is in no file
                import_module("altair")
        charts = {name: draw() for name, draw in self.charts.items()} if can_draw else {}
        svgs = draw_apart(charts, folder) if charts else {}
        if question:
            write_page(page_of(self, folder, svgs, question, called), Path(folder, PAGE))

    def write(self, folder: str | Path) -> None:
        """Write the tables, all or nothing, and then the charts.

        Raises
        ------
        OutputError : the folder cannot be written; nothing is left behind
        """
        with atomic_folder(folder) as partial_folder:
            self.write_tables(partial_folder)
            for name in self.charts:  # an old one would not show the new tables
                Path(folder, name).unlink(missing_ok=True)
        self.draw(Path(folder))


def numbers_table(report: Report) -> list[Part]:
    """The numbers of a summary that the report gives a meaning."""
    known = {name: value for name, value in report.summary.items()
             if name in report.meanings and value is not None and not isinstance(value, list | dict)}
    if not known:
        return []
    columns = {"number": list(known), "value": list(known.values()),
               "meaning": [report.meanings[name] for name in known]}
    return [Table(pd.DataFrame(columns, dtype=object), most_rows=len(known))]


def page_of(report: Report, folder: Path, svgs: Mapping[str, str], question: Answer, called: str) -> Page:
    """The page of a report.

    Parameters
    ----------
    report : with its tables in a folder
    folder : where they are
    svgs : its charts that could be drawn, by stem
    question, called : what was asked, and the command line
    """
    stems = [Path(name).stem for name in report.charts]
    pictures = [Picture(report.meanings.get(stem, stem), svgs.get(stem)) for stem in stems]
    heads: list[Part] = []
    for name, table in report.tables.items():
        heads += [f"{name}: {report.meanings.get(name, 'a table')}.",
                  Table(table, report.meanings, name)]
    written = {name: sha256(folder / name) for name in report.tables}
    ends = [assumed(question.inputs), repeated(question.inputs, written)]
    answer = [*report.answer(), *pictures[:1], *numbers_table(report)]
    mark = f"{question.command} {input_key(question.inputs)}"
    there = Section("What is there", [*pictures[1:], *heads])
    return Page(report.question, answer, [there, *ends], called, mark)


@dataclass(frozen=True)
class Answer:
    """The files in which a command answers one question.

    Parameters
    ----------
    command, inputs : who answers, and all that the answer depends on
    tables, charts : the files beside the record; charts may be missing
    can_be_repeated : whether the same question has the same answer again
    record : the JSON file that says so, beside its own content
    """

    command: str
    inputs: Mapping[str, Any]
    tables: tuple[str, ...]
    charts: tuple[str, ...] = ()
    can_be_repeated: bool = True
    record: str = RECORD

    def in_folder(self, folder: Path) -> dict[str, Any]:
        """Read the record of this command in a folder; empty if there is none."""
        try:
            about = read_json(folder / self.record)
        except InputError:
            return {}
        return about if about.get("command") == self.command and isinstance(
            about.get("files"), dict) else {}

    def is_in(self, folder: Path) -> bool:
        """Whether this folder holds the whole, unchanged answer."""
        about = self.in_folder(folder)
        try:
            return bool(about and about["key"] == input_key(self.inputs)
                        and about["files"] == {name: sha256(folder / name) for name in self.tables})
        except (InputError, KeyError):
            return False

    def write(self, folder: Path, write_tables: Callable[[Path], object], *,
              headline: str | None = None, force: bool = False) -> None:
        """Have tables and record written into a hidden folder, complete the record, move all.

        Parameters
        ----------
        folder : where all appears, or nothing
        write_tables : called with the hidden folder
        headline : the result in a few words, for the record
        force : whether the answer to another question is replaced

        Raises
        ------
        OutputError : the folder cannot be written, or has something else in it by now
        """
        with atomic_folder(folder) as partial_folder:
            write_tables(partial_folder)
            files = {name: sha256(partial_folder / name) for name in self.tables}
            about = {
                "command": self.command, "inputs": self.inputs, "key": input_key(self.inputs),
                "files": files}
            about |= {} if headline is None else {"headline": headline}
            write_json({**read_json(partial_folder / self.record), **about},
                       partial_folder / self.record)
            check_folder(folder, self, force=force)  # something may have come into it since
            for name in self.charts:
                (folder / name).unlink(missing_ok=True)


def input_difference(there: Any, here: Any, name: str = "") -> str:
    """Name the first input that is not the same."""
    there = as_plain(there)
    here = as_plain(here)
    if isinstance(there, dict) and isinstance(here, dict):
        for part in {**here, **there}:
            if there.get(part) != here.get(part):
                longer = "" if part == "files" else f"{name} {part}".strip()
                return input_difference(there.get(part), here.get(part), longer)
    checksum = re.compile("[0-9a-f]{64}")
    if any(isinstance(value, str) and checksum.fullmatch(value) for value in (there, here)):
        return f"{name} was another file"
    return f"{name} was {there!r}, now {here!r}"


def refuse_folder(folder: Path, problem: str, mend: str) -> NoReturn:
    """Say why nothing is written into a folder."""
    raise OutputError(f"{folder}: {problem}; {mend}")


def check_folder(folder: Path, answer: Answer, *, force: bool = False) -> None:
    """Refuse a folder in which an answer has no place; remove what killed processes left there.

    Parameters
    ----------
    folder : where the answer is to be written; need not exist
    answer : the question, and the files that answer it
    force : whether the answer to another question may be replaced

    Raises
    ------
    OutputError : it holds something else, or the answer to another question, and there is no
        `force`; or a file that this command did not write would be overwritten
    """
    remove_leftovers(folder.parent, re.escape(folder.name))
    remove_leftovers(folder, "run")
    if not folder.is_dir():
        return
    about = answer.in_folder(folder)
    there = {path.name for path in folder.iterdir()}
    ours = {answer.record, *answer.charts, *about["files"]} if about else set()
    if taken := sorted(there & {answer.record, *answer.tables, *answer.charts} - ours):
        refuse_folder(folder, f"{taken[0]} there was not written by sched-lab {answer.command}",
                      "move it away, or choose another --out")
    if force:
        return
    if about and about.get("key") != input_key(answer.inputs):
        difference = input_difference(about.get("inputs"), answer.inputs)
        refuse_folder(folder, f"it has the answer to another question ({difference})",
                      "choose another --out, or replace it with --force")
    if about and not answer.can_be_repeated:
        refuse_folder(folder, "this was done before, and is on record there",
                      "choose another --out, or replace the record with --force")
    if not about and (others := sorted(name for name in there if not name.startswith("."))):
        refuse_folder(folder, f"it is not empty, there is {others[0]}",
                      "choose another --out, or write beside it with --force")
