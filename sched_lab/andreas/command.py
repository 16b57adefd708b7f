"""`sched-lab andreas`: an instance file or four tables in, a decision or a whole day out."""

# A module, written by hand.

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from ..hardware import hardware_of
from ..lab import commands
from ..lab.frames import InputError, embedded, read_input
from ..lab.jit import interpreted
from ..lab.reports import PAGE, Answer
from ..bill import tariff_of
from .files import read_files
from .greedy import SearchOptions
from .instances import PUE, TOY
from .model import read_instance
from .policies import POLICIES
from .report import CHARTS, TABLES, report_of
from .simulation import LOSSES

__all__ = ['andreas_command']

# jobs that are sooner scheduled than code for it is loaded; 150 for the other policies
MOST_INTERPRETED = {"rg": 10, "local": 30, "exact": 30}

InstancePath = Annotated[
    Path | None, commands.option("Jobs, nodes, run times and prices (JSON).", metavar="FILE.json")]
JobsPath = Annotated[
    Path | None, commands.option("Jobs, in place of --instance.", metavar="FILE.csv")]
NodesPath = Annotated[Path | None, commands.option("Machines and their GPUs.", metavar="FILE.csv")]
PowerPath = Annotated[
    Path | None, commands.option("Watts of GPUs, or of machines.", metavar="FILE.csv")]
TimesPath = Annotated[
    Path | None, commands.option("Seconds per epoch of applications.", metavar="FILE.csv")]
Now = Annotated[str, commands.option("Present time of --jobs, as they write it.", metavar="TIME")]
Pue = Annotated[float | None, commands.option(
    "What the building draws for each watt of --nodes. [default: 1.33, as in the paper]", "--pue",
    callback=commands.within(1, 10))]
EmptyFor = Annotated[float | None, commands.option(
    "How long an empty machine of --nodes stays on. [default: 0, as in the paper]",
    "--asleep-after", metavar="MINUTES", callback=commands.within(0, math.inf))]
Policy = Annotated[str, commands.policy_option(POLICIES)]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="From the first submission to the last completion.")]
SearchSeed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of rg and local.")]
Iterations = Annotated[int, typer.Option(min=1, max=10**7, help="Rounds of rg.")]
Period = Annotated[float, commands.option(
    "Longest time between two decisions of a simulation (s).",
    callback=commands.within(1, math.inf))]
Loss = Annotated[str, commands.choice(
    "What an interruption costs in a simulation: nothing, the started epoch of a job that is "
    "stopped or moved, or that of every job at every decision.", LOSSES)]
TimeLimit = Annotated[
    float, commands.option("Of exact search (s).", callback=commands.within(0.001, 86400))]
DayFolder = Annotated[
    Path, commands.folder_option("schedule.csv, summary.json, gantt.svg and report.html")]


def check_options(files: set[str], told: Iterable[str]) -> None:
    """Refuse options that do not go together.

    Parameters
    ----------
    files : options that name a file and are given
    told : options that say what tables do not, and are given

    Raises
    ------
    InputError : naming them
    """
    tables = files - {"instance"}
    if "instance" in files:
        if extra := [*sorted(tables), *told]:
            raise InputError(f"--instance and --{extra[0]}", mend="give one file, or the tables")
    elif missing := {"jobs", "nodes", "power"} - tables:
        raise InputError(f"--{sorted(missing)[0]} is missing",
                         mend="give --instance, or --jobs, --nodes and --power")


def andreas_command(out: DayFolder, instance: InstancePath = None, jobs: JobsPath = None,
                    nodes: NodesPath = None, power: PowerPath = None, times: TimesPath = None,
                    hardware: commands.HardwareFile = None, now: Now = "",
                    price: commands.Price = "", carbon: commands.Carbon = "", pue: Pue = None,
                    asleep_after: EmptyFor = None, asleep_watts: commands.AsleepWatts = 0.0,
                    policy: Policy = "rg", simulate: Simulate = False, seed: SearchSeed = 4010,
                    max_iterations: Iterations = 1000, period: Period = math.inf,
                    loss: Loss = "none", time_limit: TimeLimit = 60.0, force: commands.Force = False,
                    no_charts: commands.NoCharts = False) -> None:
    """Schedule training jobs with due dates on nodes with energy prices, now or for a whole day.

    **schedule.csv** has job, node, gpu_type, gpus, start_s and end_s of every uninterrupted run;
    **summary.json** energy, penalties and total with a bound that no scheduler can beat, or, of one
    decision, Eq. 1 and how far it is from the best; **gantt.svg** shows the schedule,
    and **report.html** says all of it to a person.

    Example: sched-lab andreas --instance jobs.json --policy local --simulate --out day
    """
    paths = {"instance": instance, "jobs": jobs, "nodes": nodes, "power": power, "times": times,
             "hardware": hardware}
    told = {"now": now, "pue": pue, "asleep-after": asleep_after}
    check_options({name for name, path in paths.items() if path is not None},
                  (name for name, value in told.items() if value))
    files = {name: read_input(path) for name, path in paths.items() if path is not None}
    zero = None
    if "instance" in files:
        problem = read_instance(files["instance"])
    else:
        problem, zero = read_files(
            files["jobs"], files["nodes"], files["power"], files.get("times"), now=now,
            pue=PUE if pue is None else pue, off_after_s=60 * (asleep_after or 0.0),
            off_w=asleep_watts,
            hardware=hardware_of(files["hardware"]) if "hardware" in files else None)
    tariff = None
    if price or carbon:
        begin_s = float(problem.jobs.submission_s.min(initial=math.inf))
        if problem.present is not None or not math.isfinite(begin_s):
            begin_s = problem.now_s
        tariff = tariff_of(price, carbon, zero.isoformat() if zero else None, (begin_s, begin_s))
    files |= commands.series_files(price=price, carbon=carbon)
    about_energy = {"now": now, "price": price, "carbon": carbon, "pue": pue,
                    "asleep_after": asleep_after, "asleep_watts": asleep_watts or None}
    inputs = {
        "policy": policy, "simulate": simulate, "seed": seed, "max_iterations": max_iterations,
        "period": period, "loss": loss, "time_limit": time_limit,
        **{name: value for name, value in about_energy.items() if value not in (None, "")},
        "files": commands.checksums_of(files), "sched_lab": __version__}
    how = SearchOptions(max_iterations, seed, time_limit_s=time_limit)
    compute = partial(report_of, problem, policy, is_simulated=simulate, period_s=period, loss=loss,
                      how=how, tariff=tariff)
    answer = Answer("andreas", inputs, TABLES, (*CHARTS, PAGE))
    most = MOST_INTERPRETED.get(policy, 150)
    with interpreted(len(problem.job_name) <= most and max_iterations <= 1000 and period == math.inf):
        commands.answer_with(answer, out, compute, force=force, no_charts=no_charts)


MIXED = ("jobs", "nodes", "power", "times", "price", "carbon")
EXAMPLES: dict[str, Path | str] = {
    "jobs.json": json.dumps(TOY, indent=1) + "\n",
    **{f"mixed-{name}.csv": embedded(f"andreas/{name}.csv") for name in MIXED}}
