"""Two commands: `inflate` places a workload and records every step, `sweep` runs a whole study."""

# A module, written by hand.

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from .._extras import need
from ..cluster import Cluster, read_nodes
from ..hardware import known_gpu_w, watts_of_files
from ..lab.arrays import DEVICES
from ..lab.commands import (
    Carbon,
    Force,
    HardwareFile,
    Price,
    Workers,
    checksums_of,
    choice,
    folder_option,
    option,
    policy_option,
    progress,
    series_files,
    workers_of,
)
from ..lab.frames import (
    InputError,
    as_plain,
    embedded,
    ensure_writable,
    read_input,
    read_json,
    remove_leftovers,
    write_frame,
)
from ..lab.jit import interpreted
from ..lab.reports import Answer, check_folder, input_difference, refuse_folder
from ..bill import Tariff, tariff_of
from ..power import POWER_MODELS, load_permille
from ..traces import Arrivals, Tasks, read_arrivals, read_tasks
from .evaluation import (
    Study,
    compare,
    parse_seeds,
    problem_in,
    read_study,
    run_cell,
    run_study,
)
from .inflation import SAMPLINGS, Run, inflate
from .model import Policy, PowerSettings
from .policies import ARITHMETICS, POLICIES, policy_of
from .report import HOUR_S, TABLES, headline, run_report

__all__ = ['EXAMPLES', 'inflate_command', 'sweep_command']


@dataclass(frozen=True)
class Inflation:
    """Checked options of `sched-lab inflate`.

    Parameters
    ----------
    cluster, tasks : the nodes and the trace
    policy, until, power : as `inflate` gets them for every seed
    sampling : how to draw a workload
    recorded : workload of a seed, or None to draw one
    tariff : what an hour at a load is billed with
    inputs : what a result depends on, for its key
    """

    cluster: Cluster
    tasks: Tasks
    policy: Policy
    until: float | None
    power: PowerSettings
    sampling: str
    recorded: Callable[[int], Arrivals] | None
    tariff: Tariff
    inputs: dict[str, Any]

    def answer(self, seed: int) -> Answer:
        """What the folder of a seed holds."""
        return Answer("inflate", {**self.inputs, "seed": seed}, TABLES)

    def write(self, run: Run, seed: int, folder: Path, force: bool) -> None:
        """Write a run into its folder, all or nothing."""
        report = run_report(self.cluster, self.tasks, run, self.power, self.tariff)
        self.answer(seed).write(folder, report.write_tables, force=force)


LOT = 64  # seeds in lockstep: what a killed run loses at most


def run_seeds(inflation: Inflation, folders: Mapping[int, Path], device: str | None,
              force: bool = False) -> Iterator[tuple[int, bool]]:
    """Run seeds one by one, or on a device in lockstep, a lot at a time; what is there is kept.

    Yields
    ------
    a seed, and whether it was run now
    """
    cluster, tasks, policy = inflation.cluster, inflation.tasks, inflation.policy
    size = LOT if device else 1
    for start in range(0, len(folders), size):
        lot = list(folders)[start:start + size]
        todo = [seed for seed in lot if not inflation.answer(seed).is_in(folders[seed])]
        arrivals = {seed: inflation.recorded(seed) if inflation.recorded else inflation.sampling
                    for seed in todo}
        if device and todo:
            from sched_lab.online.lockstep import simulate_together

            runs: Iterable[Run] = simulate_together(cluster, tasks, policy, arrivals, device=device,
                                                    until=inflation.until, power=inflation.power)
        else:
            runs = (inflate(cluster, tasks, policy, seed=seed, until=inflation.until,
                            arrivals=given, power=inflation.power)
                    for seed, given in arrivals.items())
        for seed, run in zip(todo, runs, strict=True):
            inflation.write(run, seed, folders[seed], force)
        yield from ((seed, seed in todo) for seed in lot)


def inflation_of(paths: Mapping[str, Path], options: dict[str, Any]) -> Inflation:
    """Read and check the inputs of an inflation.

    Parameters
    ----------
    paths : nodes, tasks; arrivals, gpu_power, cpu_power and hardware as far as given
    options : policy, power, arithmetic, until, sampling, load_curve, price, carbon

    Raises
    ------
    InputError : at the first thing that is wrong
    """
    policy = policy_of(options["policy"], options["arithmetic"])
    load_permille(options["load_curve"])
    files = {name: read_input(path) for name, path in paths.items()}
    watts, cpu_watts = watts_of_files(files.get("hardware"), files.get("gpu_power"),
                                      files.get("cpu_power"))
    cluster = read_nodes(files["nodes"], known_models=known_gpu_w(watts))
    trace = read_tasks(files["tasks"])
    recorded = None
    if "arrivals" in files:
        recorded = partial(read_arrivals, files["arrivals"], cluster=cluster, tasks=trace)
    power = PowerSettings(options["power"], watts, cpu_watts, options["load_curve"])
    rates = {name: options[name] for name in ("price", "carbon")}
    tariff = tariff_of(**rates, horizon=(0.0, HOUR_S))
    files |= series_files(**rates)
    inputs = {**options, "files": checksums_of(files), "sched_lab": __version__}
    return Inflation(cluster, trace, policy, options["until"], power, options["sampling"],
                     recorded, tariff, inputs)


NodesFile = Annotated[
    Path | None,
    option("Node list: sn, cpu_milli, memory_mib, gpu, model. [default: embedded]")]
TasksFile = Annotated[
    Path | None,
    option("Task list: name, cpu_milli, memory_mib, num_gpu, gpu_milli (of each GPU), gpu_spec "
           "if any. [default: embedded]")]
PolicyName = Annotated[str, policy_option(POLICIES)]
Seeds = Annotated[
    str | None,
    option("Random workloads to draw, 0-9 or 0,3,5-7; one sub-folder seed-N each. [default: 0]")]
Sampling = Annotated[
    str,
    choice("replacement draws every task anew (the paper's text); permutation-first draws each "
           "task once before it repeats one (what the authors ran).", SAMPLINGS)]
ArrivalsFile = Annotated[
    Path | None, option("Recorded workload to replay instead: JSON, plain or gzip.")]
SeedOfFile = Annotated[int | None, option("Which seed of the recorded workload.")]

PowerName = Annotated[
    str,
    choice("CPU power as Eq. 1 is printed, or as the authors' code counts packages.",
           POWER_MODELS)]
GpuPower = Annotated[
    Path | None, option("Watts of GPU models, to add or override: model, idle_w, full_w.")]
CpuPower = Annotated[
    Path | None, option("The same for CPU models: model, idle_w, full_w, cores.")]
LoadCurve = Annotated[
    str,
    option("How power rises from idle to full: at once (step), with the load, or in between.",
           metavar="step|linear|concave|0:0,0.5:0.7,1:1")]
Arithmetic = Annotated[
    str,
    choice("exact integers, or the authors' floating-point order (reference).", ARITHMETICS)]
Until = Annotated[
    float | None,
    option("Stop when arrived GPU demand reaches this share of the capacity. "
           "[default: 1.0 with --seeds, the whole recording with --arrivals]")]
ArrayDevice = Annotated[
    str | None,
    choice("Step all seeds in lockstep here, with the same results. "
           "[default: one by one, compiled]", DEVICES, metavar="cpu|cuda")]
RunsFolder = Annotated[
    Path, folder_option("assignments.csv, curve.csv, failures.csv and summary.json")]


def check_choice(seeds: str | None, arrivals: Path | None, seed: int | None,
                 until: float | None) -> list[int]:
    """Seeds to run, from options that must go together.

    Parameters
    ----------
    seeds, arrivals, seed, until : the options as given

    Raises
    ------
    InputError : they do not go together
    """
    if until is not None and not 0 < until < 1000:
        raise InputError(f"--until {until} is not a share of the capacity",
                         mend="give a number above 0 and below 1000, such as 1.0")
    if arrivals is None:
        if seed is not None:
            raise InputError("--seed chooses a seed of --arrivals, which is not given",
                             mend="give --seeds instead")
        return parse_seeds("0" if seeds is None else seeds)
    if seeds is not None:
        raise InputError("--seeds draws workloads, --arrivals replays one",
                         mend="give one of the two")
    if seed is None:
        raise InputError("--arrivals holds several seeds",
                         mend="choose one with --seed, such as --seed 42")
    return [seed]


MOST_INTERPRETED = 400


def is_sooner_interpreted(cluster: Cluster, tasks: Tasks, policies: Sequence[str], runs: int,
                          until: float) -> bool:
    """Whether so many runs take less time than to load compiled code for them.

    Nodes and tasks count, or eighths of what arrives, twice for policies that look ahead.

    Parameters
    ----------
    cluster, tasks, policies, runs : what is run, and how often in all
    until : arrived GPU demand over the capacity at which a run ends
    """
    each_milli = max(1.0, tasks.gpu_demand_milli.sum() / len(tasks))
    arrivals = until * cluster.gpu_capacity_milli / each_milli
    work = runs * max(len(cluster) + len(tasks), arrivals / 8)
    return bool(work <= MOST_INTERPRETED / (1 + any("joint" in name for name in policies)))


def check_seed_folders(inflation: Inflation, folders: Mapping[int, Path], out: Path,
                       force: bool) -> None:
    """Refuse a folder that holds something else than seeds of this inflation.

    Parameters
    ----------
    folders : folder of each seed, `out` itself or below it

    Raises
    ------
    OutputError : it does, and there is no `force`; or a file would be overwritten that is not ours
    """
    there: dict[int, Path] = {}
    if out not in folders.values() and out.is_dir():
        remove_leftovers(out, "seed-[0-9]+")
        names = sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
        others = [name for name in names if not re.fullmatch("seed-(0|[1-9][0-9]{0,8})", name)]
        if others and not force:
            refuse_folder(out, f"it is not empty, there is {others[0]}",
                          "choose another --out, or write beside it with --force")
        there = {} if force else {int(name[5:]): out / name for name in names}
    for seed, folder in {**there, **folders}.items():
        check_folder(folder, inflation.answer(seed), force=force)


def inflate_command(out: RunsFolder, nodes: NodesFile = None, tasks: TasksFile = None,
                    policy: PolicyName = "fgd", seeds: Seeds = None,
                    sampling: Sampling = "replacement", arrivals: ArrivalsFile = None,
                    seed: SeedOfFile = None, power: PowerName = "eq1", gpu_power: GpuPower = None,
                    cpu_power: CpuPower = None, load_curve: LoadCurve = "step",
                    arithmetic: Arithmetic = "exact", until: Until = None,
                    device: ArrayDevice = None, hardware: HardwareFile = None, price: Price = "",
                    carbon: Carbon = "", force: Force = False) -> None:
    """Let random tasks arrive on an empty cluster until it is full, and record every step.

    Tasks never leave; what fits nowhere fails for good. Per arrival, **assignments.csv** has event,
    task_row, node and gpu_list (empty node: failed), **curve.csv** has x (arrived GPU demand over
    capacity), eopc_w (power of the datacenter), cpu_w, gpu_w, used_gpu_milli, arrived_gpu_milli,
    frag_milli and failed (failures so far); **failures.csv** has what alone was in the way of each
    failed task on some node (cpu, memory, gpu, model; or several things on every node);
    **summary.json** has the end, and what an hour at half load, at four fifths and at the end costs
    and emits (a series has to cover second 0 to 3600). With --seeds, each seed has a sub-folder,
    and finished ones are kept.

    Example: sched-lab inflate --nodes nodes.csv --tasks tasks.csv --policy pwr-fgd:0.1 --seeds 0-9
    --out results
    """
    chosen = check_choice(seeds, arrivals, seed, until)
    ensure_writable(out)
    options = {"policy": policy, "power": power, "arithmetic": arithmetic, "until": until,
               "sampling": sampling, "load_curve": load_curve, "price": price,
               "carbon": carbon}
    paths = {"nodes": nodes or embedded("nodes.csv"), "tasks": tasks or embedded("tasks.csv"),
             "arrivals": arrivals, "gpu_power": gpu_power, "cpu_power": cpu_power,
             "hardware": hardware}
    given = {name: path for name, path in paths.items() if path}
    inflation = inflation_of(given, options)
    folders = {s: out / f"seed-{s}" if arrivals is None else out for s in chosen}
    check_seed_folders(inflation, folders, out, force)
    is_small = arrivals is None and device is None and is_sooner_interpreted(
        inflation.cluster, inflation.tasks, [policy], len(folders), until or 1.0)
    with interpreted(is_small), progress(len(folders), "inflate") as say:
        for s, was_run in run_seeds(inflation, folders, device, force):
            summary = read_json(folders[s] / "summary.json")
            say(f"{folders[s]}: {headline(summary)}{'' if was_run else ' (kept)'}")


FORMATS = ("csv", "parquet")
RESULTS = ("results.csv", "results.parquet", "results.json", "means.csv", "means.json")


def study_in(file: Path) -> dict[str, Any]:
    """What a file says of the study beside it; empty if that was not written here."""
    try:
        about = dict(read_json(file).get("parameters", {}))
    except InputError:
        return {}
    is_ours = about.get("function") == f"{run_cell.__module__}.{run_cell.__qualname__}"
    return about if is_ours else {}


def check_study_folder(out: Path, study: Study, force: bool) -> None:
    """Refuse a folder that holds something else, or a study of other files or options.

    Raises
    ------
    OutputError : it does, and there is no `force`; or a file would be overwritten that is not ours
    """
    remove_leftovers(out.parent, re.escape(out.name))
    there = {path.name for path in out.iterdir()
             if not path.name.startswith(".")} if out.is_dir() else set()
    if about := study_in(out / "results.json"):
        if not force and about["depends_on"] != as_plain(study.depends_on()):
            difference = input_difference(about["depends_on"], study.depends_on())
            refuse_folder(out, f"it has another study ({difference})",
                          "choose another --out, or replace it with --force")
    elif taken := sorted(there & {*RESULTS}):
        refuse_folder(out, f"{taken[0]} there was not written by sched-lab sweep",
                      "move it away, or choose another --out")
    elif not force and (others := sorted(there - {"cells"})):
        refuse_folder(out, f"it is not empty, there is {others[0]}",
                      "choose another --out, or write beside it with --force")


StudyOut = Annotated[
    Path, folder_option("results.csv (or results.parquet), means.csv and the finished runs")]
StudyFile = Annotated[
    Path, typer.Argument(metavar="CONFIG.toml", help="The study: traces, policies, seeds, ...")]
ResultFormat = Annotated[
    str, choice("Kind of the file with all runs.", FORMATS)]


def sweep_command(config: StudyFile, out: StudyOut, workers: Workers = 0,
                  format: ResultFormat = "csv", force: Force = False) -> None:
    """Run every policy of a study on every trace and seed; what is finished is kept.

    **results.csv** has trace, policy, seed, x and the curve of each run; **means.csv** has the
    means over the seeds, GRAR, the power saved against fgd, and their spread. A file CONFIG.toml
    may say: nodes = "nodes.csv", policies = ["fgd", "pwr"], seeds = "0-9", power = "package", and
    under [traces] a line mine = "tasks.csv".

    Example: sched-lab sweep study.toml --out study --workers 4
    """
    if format == "parquet":
        need("pyarrow")
    study = read_study(config)
    check_study_folder(out, study, force)
    is_small = not study.arrivals and all(is_sooner_interpreted(
        *problem_in(study, trace), study.policies, len(study.cells()),
        study.options.get("until", 1.0)) for trace in study.traces)
    with interpreted(is_small):
        result = run_study(study, out, workers=workers_of(workers), shown=True,
                           results=f"results.{format}")
    write_frame(compare(result.frame), out / "means.csv",
                {"cells": study.cells(), "depends_on": study.depends_on()})
    typer.echo(f"{out}: {result}")


EXAMPLES: dict[str, Path | str] = {
    "nodes.csv": embedded("toy/nodes.csv"),
    "tasks.csv": embedded("toy/tasks.csv"),
    "study.toml": """# sched-lab sweep study.toml --out study
nodes = "nodes.csv"
policies = ["fgd", "pwr", "pwr-fgd:0.1"]
seeds = "0-2"

[traces]
mine = "tasks.csv"
""",
}
