"""Options, progress, warnings, results and errors have one form, whichever family a command belongs to."""

# A module, written by hand.

from __future__ import annotations

import contextlib
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from .frames import InputFile
    from .records import PolicyTable
    from .reports import Answer, Report

__all__ = ['option', 'choice', 'within', 'moment_option', 'folder_option', 'policy_option', 'progress', 'warnings_said',
           'answer_with', 'conclude', 'name_next', 'fail']


def option(help: str, *names: str, metavar: str | None = None, **more: Any) -> Any:
    """An option of a command, as `Annotated[type, option("What it means.")]`.

    Parameters
    ----------
    help : one sentence
    names : such as "--policy"; without any, the name of the parameter
    metavar : what stands for the value in the help text
    more : as `typer.Option` takes it
    """
    return typer.Option(*names, help=help, metavar=metavar, show_default=True, **more)


def within(low: float, high: float) -> Callable[[float | None], float | None]:
    """Check of a number of an option: `option("Seconds.", callback=within(0, 60))`.

    Parameters
    ----------
    low, high : ends of the range, which are allowed
    """
    def check(value: float | None) -> float | None:
        if value is None or low <= value <= high:
            return value
        raise typer.BadParameter(f"{value:g} is not in the range from {low:g} to {high:g}")
    return check


FARTHEST_S = 1e12  # of a moment: 30,000 years


def moment_option(help: str) -> Any:
    """The option `--at`: a moment, in seconds since the zero of a cluster."""
    return option(help, "--at", metavar="SECONDS", callback=within(-FARTHEST_S, FARTHEST_S))


def choice(help: str, words: Iterable[str], *names: str, metavar: str | None = None) -> Any:
    """An option that takes one of some words: `choice("What for.", ("gpus", "watts"), "--for")`.

    Parameters
    ----------
    help : one sentence
    words : all that it takes
    names : as `option` takes them
    metavar : what stands for the value in the help text; without any, the words
    """
    there = tuple(words)

    def check(value: str | None) -> str | None:
        if value is None or value in there:
            return value
        from .frames import advice_on

        raise typer.BadParameter(f"there is no {value!r:.60}; {advice_on(value, there)}")

    return option(help, *names, metavar=metavar or "|".join(filter(None, there)), callback=check)


def folder_named(name: str | Path) -> Path:
    """Folder that an option names, or its default, checked not to be empty."""
    if not str(name).strip():
        raise typer.BadParameter("the name of the folder is empty; give one, or . for this folder")
    return Path(name)


def folder_option(files: str) -> Any:
    """The option `--out`: a folder for these files."""
    return option(f"Folder for {files}.", metavar="DIR", parser=folder_named)


ClusterFolder = Annotated[Path, typer.Argument(metavar="CLUSTER", parser=folder_named,
                                               help="Folder that sched-lab read has written.")]
Force = Annotated[
    bool,
    typer.Option("--force", help="Answer again, replace the answer to another question, or write "
                 "beside other files; what this command did not write stays as it is.")]
NoCharts = Annotated[bool, typer.Option("--no-charts", help="Write the tables only, and no page.")]
Workers = Annotated[
    int, typer.Option(min=0, help="Processes on this machine; 0 for one on each core.")]

HardwareFile = Annotated[
    Path | None,
    option("Catalogue of GPUs and CPUs of one's own, TOML, laid over what sched-lab hardware "
           "lists; --gpu-power and --cpu-power win over it.", "--hardware", metavar="FILE")]

MOST_WORKERS = 8  # on each core


def workers_of(workers: int) -> int:
    """Number of processes that the option `--workers` asks for.

    Raises
    ------
    InputError : more than make sense on this machine
    """
    from .frames import InputError
    from .sweeps import count_cores

    cores = count_cores()
    if workers > MOST_WORKERS * cores:
        raise InputError(f"--workers {workers} on {cores} cores",
                         mend=f"give 0 to {MOST_WORKERS * cores}")
    return workers or cores


Price = Annotated[str, option(
    "Price of energy in EUR/kWh: a number, or a CSV file with the columns time (seconds, or "
    "dates) and value. [default: 0.17168313, as in ANDREAS]", "--price",
    metavar="FILE|NUMBER")]
Carbon = Annotated[str, option(
    "CO2 intensity of energy in g/kWh, as --price. [default: 214, the EU in 2023]", "--carbon",
    metavar="FILE|NUMBER")]
AsleepAfter = Annotated[float | None, option(
    "Also add up the energy if a node sleeps once it has been empty for so long. "
    "[default: not]", "--asleep-after", metavar="MINUTES", callback=within(0, 1e9))]
AsleepWatts = Annotated[float, option("What a node that sleeps draws.", "--asleep-watts",
                                      metavar="W", callback=within(0, 1e6))]


Host = Annotated[str, option("Address to listen on.", metavar="ADDRESS")]
Port = Annotated[int, option("Port; 0 for any that is free.", min=0, max=65535)]
TokenFile = Annotated[Path | None, option(
    "Secret that callers show, as a bearer token or as the password of a URL; read again when it "
    "changes. [default: made, where callers can change something; the log says where]",
    metavar="FILE")]
TlsCert = Annotated[Path | None, option("Certificate to serve HTTPS with.", metavar="FILE")]
TlsKey = Annotated[Path | None, option("Its key, without a password.", metavar="FILE")]
ClientCa = Annotated[Path | None, option(
    "Authorities whose certificates callers have to show (mTLS).", metavar="FILE")]
AllowHost = Annotated[list[str] | None, option(
    "Name by which callers may call this server, besides its address; may be repeated. All others "
    "are refused, since a page in a browser can make a name of its own lead here.", metavar="NAME")]
Insecure = Annotated[bool, option(
    "Ask nobody who calls, and listen on any address.", "--insecure")]


def policy_option(table: PolicyTable[Any]) -> Any:
    """The option `--policy` of a family, its help made of the sentences of the family's table."""
    sentences = table.sentences()
    help = "; ".join(f"{name}: {words.rstrip('.')}" for name, words in sentences.items()) + "."
    return option(help, "--policy", metavar="NAME")

@contextlib.contextmanager
def progress(total: int, what: str) -> Iterator[Callable[[str], None]]:
    """Lend a function that prints the line of a finished part, above a bar with the time left.

    Parameters
    ----------
    total : number of parts
    what : word beside the bar
    """
    if total < 2:
        yield typer.echo
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield typer.echo
        return
    with Progress(console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=total)

        def say(line: str) -> None:
            bar.stop()
            typer.echo(line)
            bar.advance(task)
            bar.start()

        yield say


@contextlib.contextmanager
def warnings_said() -> Iterator[None]:
    """Pass warnings on to standard error, one line each, the same line once."""
    said: set[str] = set()

    def say(message: Warning | str, *_: Any, **__: Any) -> None:
        line = f"sched-lab: warning: {' '.join(str(message).split())}"
        if line not in said:
            typer.echo(line, err=True)
        said.add(line)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = say
        yield


def checksums_of(files: Mapping[str, InputFile]) -> dict[str, str]:
    """Checksums of input files, by option."""
    return {name: file.sha256 for name, file in files.items()}


def series_files(**given: str) -> dict[str, InputFile]:
    """Files among options that take a number or a file, by name: `series_files(price=price)`."""
    from .frames import read_input

    def is_number(text: str) -> bool:
        try:
            return float(text) == float(text)
        except ValueError:
            return False
    return {name: read_input(text) for name, text in given.items()
            if text and not is_number(text)}


def can_draw() -> bool:
    """Whether the packages that draw are installed; says so if they are not."""
    from .._extras import need
    from .frames import MissingPackage

    try:
        need("altair", "vl_convert")
    except MissingPackage as error:
        typer.echo(f"sched-lab: warning: no charts: {error}", err=True)
        return False
    return True


as_called: ContextVar[str] = ContextVar("as_called", default="")


def note_call(command: str, arguments: Sequence[str]) -> None:
    """Note the words of a command line, all but the folder of its answer and `--force`."""
    words = ["sched-lab", command]
    last = ""
    for word in arguments:
        if word != "--force":
            words.append("--out=DIR" if word.startswith("--out=") else
                         "DIR" if last == "--out" else word)
        last = word
    as_called.set(shlex.join(words))


def answer_with(answer: Answer, out: Path, compute: Callable[[], Report], *, force: bool,
                no_charts: bool) -> dict[str, Any]:
    """Compute and write what is not there yet, and print its headline; return its summary.

    Parameters
    ----------
    answer : the question, and the files that answer it
    out : their folder
    compute : makes the report
    force : whether an answer is replaced, be it to this question or another
    no_charts : whether the tables are enough

    Raises
    ------
    OutputError : the folder holds something else, or cannot be written
    """
    from .frames import ensure_writable
    from .reports import PAGE, check_folder

    check_folder(out, answer, force=force)
    ensure_writable(out)
    is_able = not no_charts and can_draw()
    charts = () if no_charts else answer.charts if is_able else (PAGE,)
    is_whole = answer.is_in(out) and "headline" in answer.in_folder(out)
    is_kept = not force and is_whole and all((out / name).is_file() for name in charts)
    if not is_kept:
        report = compute()
        answer.write(out, report.write_tables, headline=report.headline, force=force)
        if charts:
            report.draw(out, answer, as_called.get(), can_draw=is_able)
    summary = answer.in_folder(out)
    typer.echo(f"{out}: {summary['headline']}{' (kept)' if is_kept else ''}")
    return summary


def conclude(answer: str, *then: object, mark: str = "") -> None:
    """Print what a command came to, as its last lines: the answer, and what to type next.

    Parameters
    ----------
    answer : one sentence with the number and the unit that a person cares about
    then : words of the next command, after `sched-lab`
    mark : begins both lines, where what was printed is a file with comments
    """
    typer.echo(f"{mark}{answer}")
    name_next(*then, mark=mark)


def name_next(*then: object, mark: str = "") -> None:
    """Print what to type next, as the last line, where the answer stands above it.

    Parameters
    ----------
    then, mark : as `conclude` takes them
    """
    typer.echo(f"{mark}next: {shlex.join(['sched-lab', *map(str, then)])}")


def fail(message: str) -> NoReturn:
    """Print one line on standard error and exit with code 2."""
    typer.echo(f"sched-lab: {' '.join(message.split())}", err=True)
    raise SystemExit(2)
