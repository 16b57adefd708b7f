"""The command line: your nodes and your tasks in, placements, curves and a summary out."""

# A module, written by hand.

from __future__ import annotations

import ast
import contextlib
import gc
import os
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from . import __version__
from .lab import jit
from .lab.commands import (
    Workers,
    fail,
    folder_named,
    name_next,
    note_call,
    option,
    warnings_said,
    within,
    workers_of,
)
from .lab.jit import PACKAGE, STUDIES, heard

__all__ = ['COMMANDS', 'main']

REPOSITORY = "https://github.com/sched-lab/sched_lab"


COMMANDS = {  # command -> module with its function, in the order of --help
    "inflate": "online.command",
    "sweep": "online.command",
    "andreas": "andreas.command",
    "andreas serve": "andreas.service_command",
    "hadar": "hadar.command",
    "far": "far.command",
    "far-run": "far.command",
    "read": "fleet.command",
    "check": "fleet.command",
    "replay": "fleet.command",
    "demo": "fleet.demo",
    "explain": "fleet.ask.questions",
    "place": "fleet.ask.questions",
    "move": "fleet.ask.questions",
    "day": "fleet.ask.day_command",
    "recommend": "fleet.ask.questions",
    "serve": "fleet.live.bridge_command",
    "hardware": "hardware_command",
    "calibrate": "hardware_command",
    "traces": "cli",
    "fetch": "cli",
    "example": "cli",
    "book": "cli",
    "reproduce": "cli",
}


class OurCommand(TyperCommand):
    """A command whose words are noted, for the record of its answer."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line."""
        note_call(str(self.name), args)
        return super().parse_args(ctx, args)


def function_of(command: str) -> str:
    """Name of the function that carries a command out: `andreas_serve_command`."""
    return f"{re.sub('[ -]', '_', command)}_command"


def sentence_of(command: str) -> str:
    """First paragraph of the docstring of a command, whose module need not be imported for that."""
    source = PACKAGE.joinpath(*COMMANDS[command].split(".")).with_suffix(".py").read_text("utf-8")
    function = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)
                    and node.name == function_of(command))
    return " ".join((ast.get_docstring(function) or "").partition("\n\n")[0].split())


class Deferred(TyperCommand):
    """A line of the table, in place of a command that is not loaded yet."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None,
                     **extra: Any) -> Any:
        """Load the command, and let it read its command line."""
        name = str(self.name)
        function = getattr(import_module(f"sched_lab.{COMMANDS[name]}"), function_of(name))
        alone = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        alone.command(name, cls=OurCommand)(function)
        return typer.main.get_command(alone).make_context(info_name, args, parent, **extra)


class Table(TyperGroup):
    """All commands of the table, none of them loaded."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: Deferred(name, rich_markup_mode="markdown") for name in COMMANDS}

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands, each of which now has its sentence beside it."""
        for name, command in self.commands.items():
            command.help = sentence_of(name)
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command of two words, such as `andreas serve`, or else of one."""
        if (name := " ".join(args[:2])) in self.commands and len(args) > 1:
            return name, self.commands[name], args[2:]
        return super().resolve_command(ctx, args)


app = typer.Typer(name="sched-lab", cls=Table, rich_markup_mode="markdown",
                  context_settings={"help_option_names": ["-h", "--help"]})


def _say_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"sched-lab {__version__}")
        raise typer.Exit


@app.callback()
def common_options(
    version: Annotated[bool,
                       typer.Option("--version", callback=_say_version, is_eager=True,
                                    help="Print the version, and stop.")] = False
) -> None:
    """Schedule GPU-cluster workloads: place them, and see power, fragmentation and failures."""


NodesFile = Annotated[
    Path | None,
    option("Node list: sn, cpu_milli, memory_mib, gpu, model. [default: embedded]")]
TasksFile = Annotated[
    Path | None,
    option("Task list: name, cpu_milli, memory_mib, num_gpu, gpu_milli (of each GPU), gpu_spec if "
           "any. [default: embedded]")]


def traces_command(nodes: NodesFile = None, tasks: TasksFile = None) -> None:
    """Describe a node list and a trace; without any, the embedded default, and where the public
    data is.

    Example: sched-lab traces --nodes nodes.csv --tasks tasks.csv
    """
    from .cluster import describe_nodes, read_nodes
    from .lab.frames import embedded
    from .traces import describe_tasks, find_data, read_tasks

    cluster = read_nodes(nodes or embedded("nodes.csv"))
    trace = read_tasks(tasks or embedded("tasks.csv"))
    for what, path, frame in (("nodes", nodes, describe_nodes(cluster)),
                              ("tasks", tasks, describe_tasks(trace))):
        typer.echo(f"{what}: {path or 'embedded default'}\n{frame.to_string(index=False)}\n")
    if nodes is tasks is None:
        openb = find_data("openb/openb_pod_list_default.csv")
        typer.echo(
            f"openb: {openb.parent}" if openb else "openb: not here; run sched-lab fetch openb")


CacheFolder = Annotated[
    Path | None,
    option("Where to keep it. [default: the user cache]", metavar="DIR", parser=folder_named)]


DataSet = Annotated[str, typer.Argument(metavar="openb", help="Which data set.")]


def fetch_command(name: DataSet = "openb", to: CacheFolder = None) -> None:
    """Download a public data set with its checksums: openb is Alibaba's GPU cluster trace of 2023.

    Example: sched-lab fetch --to data
    """
    from .lab.frames import InputError
    from .traces import fetch_openb

    if name != "openb":
        raise InputError(f"there is no data set {name!r} to fetch", mend="choose openb")
    typer.echo(fetch_openb(to, progressbar=sys.stderr.isatty()))


def families() -> list[str]:
    """Families that have commands, in the order of the table."""
    modules = (module.split(".") for module in COMMANDS.values())
    return list(dict.fromkeys(names[0] for names in modules if names[-1] == "command"))


def name_of_family(family: str) -> str:
    """Name of a family, which may also go by the name of its paper.

    Raises
    ------
    InputError : there is no such family
    """
    from .lab.frames import check_one_of

    name = {"pwr": "online"}.get(family, family)
    if name not in families():
        check_one_of(family, families(), "family")
    return name


def study_of(family: str) -> Any:
    """What computes the results of a family: a module of `studies`, beside the package in a checkout.

    Raises
    ------
    InputError : there is no such family, or this is no checkout
    """
    from .lab.frames import InputError

    name = name_of_family(family)
    checkout = PACKAGE.parent
    if not (checkout / STUDIES / f"{name}.py").is_file():
        raise InputError("results are computed again in a checkout, which has the studies",
                         mend=f"git clone {REPOSITORY}, and pip install -e . there")
    if str(checkout) not in sys.path:
        sys.path.append(str(checkout))
    return import_module(f"{STUDIES}.{name}")


Family = Annotated[
    str, typer.Argument(metavar="|".join(families()), help="Which commands the files are for.")]
ExampleFolder = Annotated[
    Path, typer.Argument(metavar="DIR", parser=folder_named, help="Where to write them.")]


FIRST = {  # what to type with the files of a family
    "online": "inflate --nodes nodes.csv --tasks tasks.csv --policy fgd --seeds 0 --out runs",
    "andreas": "andreas --instance jobs.json --policy local --simulate --out day",
    "hadar": "hadar --jobs jobs.csv --cluster cluster.csv --throughputs throughputs.csv --out rounds",
    "far": "far --gpu A100 --times times.csv --policy far-plus --out schedule",
    "fleet": "read k8s nodes.json pods.json --out mycluster"}


def example_command(family: Family, folder: ExampleFolder) -> None:
    """Write small files to try the other commands with, and to start from: online for inflate,
    sweep and traces.

    Example: sched-lab example online .
    """
    from .lab.frames import ensure_writable, write_bytes
    from .lab.reports import refuse_folder

    examples = import_module(f"sched_lab.{name_of_family(family)}.command").EXAMPLES
    ensure_writable(folder)
    files = {folder / name: content.encode() if isinstance(content, str) else content.read_bytes()
             for name, content in examples.items()}
    for path, data in files.items():
        if os.path.lexists(path) and not (path.is_file() and path.read_bytes() == data):
            refuse_folder(path, "there is a file of this name already",
                          "move it away, or choose another folder")
    for path, data in files.items():
        if not path.exists():
            write_bytes(data, path)
        typer.echo(path)
    name_next(*(folder / word if word in examples else word for word in FIRST[name_of_family(family)].split()))


PAPERS = ("pwr", *families()[1:])
Paper = Annotated[str | None, typer.Argument(metavar="|".join(PAPERS), help="Whose results. "
                                             "[default: list those of all]")]
Names = Annotated[list[str] | None, typer.Argument(help="Which experiments. [default: list them]")]
Check = Annotated[bool, typer.Option("--check", help="Compare with what is stored, and write "
                                     "nothing; without names, the cheap experiments.")]
Minutes = Annotated[float, option("With --check and no names: the most an experiment may take.",
                                  callback=within(0, 1e6))]
ResultsFolder = Annotated[
    Path | None, option("Stored results. [default: data/results of the checkout]",
                        metavar="DIR", parser=folder_named)]
FiguresFolder = Annotated[
    Path | None, option("Draw the figures into this folder too, from what is stored.",
                        metavar="DIR", parser=folder_named)]


def reproduce_command(family: Paper = None, names: Names = None, check: Check = False,
                      workers: Workers = 0, minutes: Minutes = 1.0, results: ResultsFolder = None,
                      figures: FiguresFolder = None) -> None:
    """List what computes the stored results of a family, compute it again, or check what is stored.

    In a checkout only. A killed run goes on where it stood. With --check, exit code 1 means that a frame came out
    differently, and each published claim that moves is named. Columns of times are not compared.
    Without names, experiments whose data is not on this machine are skipped.

    Example: sched-lab reproduce andreas sweep --check --workers 4
    """
    from .lab.frames import InputError

    if family is None and (check or figures):
        raise InputError("whose results to take is not said", mend=f"choose one of {', '.join(PAPERS)}")
    studies = {paper: study_of(paper) for paper in ([family] if family else PAPERS)}
    running = import_module(f"{STUDIES}.reproduction")
    if not (names or check or figures):
        for paper, study in studies.items():
            if not family:
                typer.echo(f"sched-lab reproduce {paper}")
            running.list_experiments(study.EXPERIMENTS)
        return
    assert family
    is_same = running.reproduce_family(
        studies[family], {"online": "pwr"}.get(family, family), names or (), check=check,
        workers=workers_of(workers), minutes=minutes, results=results, figures=figures)
    if check and not is_same:
        raise typer.Exit(1)


BOOK_PARTS = ("nbs/*.ipynb", "studies/*.py", "figures/*.svg", "data/paper/*.csv", "data/results/**/*")
BOOK_MARK = ".sched_lab-book"  # in a copy: of which version it is


def copy_book(folder: Path) -> int:
    """Write what is missing of the chapters into a folder; return how many files that were.

    Raises
    ------
    InputError : there are no chapters, as in an archive that was built without them
    OutputError : a file of another origin, or a copy of another version, is in the way
    """
    from .lab.frames import InputError, book_home, ensure_writable, write_bytes
    from .lab.reports import refuse_folder

    home = book_home()  # in the package, or the checkout
    if not any(home.glob(BOOK_PARTS[0])):
        raise InputError(f"there are no chapters in {home}",
                         mend="install the package anew, or work in a checkout")
    files = {folder / BOOK_MARK: f"{__version__}\n".encode()}
    files |= {folder / path.relative_to(home): path.read_bytes() for part in BOOK_PARTS
              for path in sorted(home.glob(part)) if path.is_file()}
    ensure_writable(folder)
    there = [path for path in files if os.path.lexists(path)]
    is_copy = folder / BOOK_MARK in there
    for path in there[:1] if is_copy else there:
        if not (path.is_file() and path.read_bytes() == files[path]):
            what = "a copy of another version" if is_copy else "a file of this name already"
            refuse_folder(path, f"there is {what}", "choose another folder")
    for path in files.keys() - set(there):
        write_bytes(files[path], path)
    return len(files) - len(there)


BookFolder = Annotated[
    Path, typer.Argument(metavar="DIR", parser=folder_named, help="Where to copy them.")]
NoOpen = Annotated[bool, typer.Option("--no-open", help="Copy, and do not start JupyterLab.")]


def book_command(folder: BookFolder, no_open: NoOpen = False) -> None:
    """Copy the chapters into a folder, and open them in JupyterLab.

    A second call writes what is missing and leaves the rest as you have changed it.

    Example: sched-lab book mybook
    """
    from importlib.util import find_spec

    typer.echo(f"{folder}: {copy_book(folder)} files written")
    lab = ["-m", "jupyterlab", f"--ServerApp.root_dir={folder.resolve()}",
           str(min(folder.resolve().glob(BOOK_PARTS[0])))]
    if no_open:
        return
    if find_spec("jupyterlab"):
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *lab])
    else:
        typer.echo(f"JupyterLab is not installed: pip install 'sched_lab[lab]', then jupyter lab "
                   f"{folder}")


UsageError: Any = typer.BadParameter.__base__  # Click's own class, wherever Typer keeps its Click


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Parameters
    ----------
    arguments : what stands after `sched-lab`; without any, those of the process

    Raises
    ------
    SystemExit : always; 2 for wrong input, 1 where a command says so, 130 when interrupted, 143
        when terminated, 141 when nobody reads on
    """
    with contextlib.suppress(ValueError):  # not in the main thread: signals are not ours to handle
        signal.signal(signal.SIGTERM, lambda *_: jit.compiling_told.interrupt(jit.Terminated(143)))
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    is_own = arguments is None and words[0] in COMMANDS  # not a call
    if is_own:
        signal.signal(signal.SIGINT,
                      lambda *_: jit.compiling_told.interrupt(KeyboardInterrupt()))
        gc.set_threshold(50_000, 20, 100)  # looking for garbage took a tenth of a command
    jit.compiling_told.is_command = is_own
    try:
        with heard(), warnings_said():
            status = app(words, prog_name="sched-lab", standalone_mode=False)
    except UsageError as error:
        where = error.ctx.command_path if error.ctx else "sched-lab"
        fail(f"{error.format_message().rstrip('.')}; see {where} --help")
    except MemoryError:
        fail("there is not enough memory; give smaller inputs, or raise the limit (ulimit -v)")
    except BrokenPipeError:  # whoever read our lines has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(130) from None
    except Exception as error:
        from .lab.frames import SchedLabError

        if not isinstance(error, SchedLabError):
            raise
        fail(str(error))
    raise SystemExit(status or 0)
