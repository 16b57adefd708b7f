"""`sched-lab andreas`: an instance file or four tables in, a decision or a whole day out."""

# A module, written by hand.

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from .. import __version__
from ..hardware import hardware_of
from ..lab.commands import (
    AsleepWatts,
    Carbon,
    Force,
    HardwareFile,
    NoCharts,
    Price,
    answer_with,
    checksums_of,
    choice,
    folder_option,
    option,
    policy_option,
    within,
)
from ..lab.frames import InputError, InputFile, embedded, read_input
from ..lab.reports import PAGE, Answer
from ..meter import Tariff, tariff_of
from .files import Files, Terms, read_files
from .greedy import SearchOptions
from .instances import TOY
from .model import Instance, read_instance
from .policies import POLICIES
from .report import CHARTS, TABLES, report_of
from .simulation import LOSSES

__all__ = ['andreas_command']

InstancePath = Annotated[Path | None, option("Jobs, nodes, run times and prices (JSON).",
                                             metavar="FILE.json")]
JobsPath = Annotated[Path | None, option("Jobs, in place of --instance.", metavar="FILE.csv")]
NodesPath = Annotated[Path | None, option("Machines and their GPUs.", metavar="FILE.csv")]
PowerPath = Annotated[Path | None, option("Watts of GPUs, or of machines.", metavar="FILE.csv")]
TimesPath = Annotated[Path | None, option("Seconds per epoch of applications.",
                                          metavar="FILE.csv")]
Now = Annotated[str, option("Present time of --jobs, as they write it.", metavar="TIME")]
Pue = Annotated[float | None, option("What the building draws for each watt of --nodes. "
                                     "[default: 1.33, as in the paper]", "--pue",
                                     callback=within(1, 10))]
EmptyFor = Annotated[float | None, option(
    "How long an empty machine of --nodes stays on. [default: 0, as in the paper]",
    "--asleep-after", metavar="MINUTES", callback=within(0, math.inf))]
Policy = Annotated[str, policy_option(POLICIES)]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="From the first submission to the last completion.")]
SearchSeed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of rg and local.")]
Iterations = Annotated[int, typer.Option(min=1, max=10**7, help="Rounds of rg.")]
Period = Annotated[float, option("Longest time between two decisions of a simulation (s).",
                                 callback=within(1, math.inf))]
Loss = Annotated[
    str, choice("What an interruption costs in a simulation: nothing, the started epoch of a job "
                "that is stopped or moved, or that of every job at every decision.", LOSSES)]
TimeLimit = Annotated[float, option("Of exact search (s).", callback=within(0.001, 86400))]
DayFolder = Annotated[
    Path, folder_option("schedule.csv, summary.json, gantt.html and report.html")]


class Given(NamedTuple):
    """Where the problem comes from, and what the files do not say.

    Parameters
    ----------
    paths : by option, None where it is not given
    now, pue, off_after_min, off_w : "" or None where they are not given
    """

    paths: dict[str, Path | None]
    now: str
    pue: float | None
    off_after_min: float | None
    off_w: float


def check_given(given: Given) -> None:
    """Refuse options that do not go together.

    Raises
    ------
    InputError : naming them
    """
    named = {name for name, path in given.paths.items() if path is not None}
    tables = named - {"instance"}
    if "instance" in named:
        told = {"now": given.now, "pue": given.pue, "asleep-after": given.off_after_min}
        extra = [*sorted(tables), *(word for word, value in told.items() if value)]
        if extra:
            raise InputError(f"--instance and --{extra[0]}", mend="give one file, or the tables")
    elif missing := {"jobs", "nodes", "power"} - tables:
        raise InputError(f"--{sorted(missing)[0]} is missing",
                         mend="give --instance, or --jobs, --nodes and --power")


def terms_of(given: Given, catalogue: InputFile | None) -> Terms:
    """What the tables do not say, as the options give it."""
    terms = Terms(now=given.now, off_after_s=60 * (given.off_after_min or 0.0), off_w=given.off_w,
                  hardware=None if catalogue is None else hardware_of(catalogue))
    return terms if given.pue is None else terms._replace(pue=given.pue)


def problem_of(given: Given, read: dict[str, InputFile]) -> tuple[Instance, str | None]:
    """The instance, and the date of its second 0 if it has dates."""
    if "instance" in read:
        return read_instance(read["instance"]), None
    files = Files(read["jobs"], read["nodes"], read["power"], read.get("times"))
    instance, zero = read_files(files, terms_of(given, read.get("hardware")))
    site = instance.site
    if given.off_after_min and site is not None and not site.base_w.all():
        name = site.machine_name[int((site.base_w == 0).argmax())]
        raise InputError(f"{name} has no idle_w, and --asleep-after asks what it draws when it is "
                         "empty", file=read["nodes"], column="idle_w", mend="fill it in")
    return instance, None if zero is None else zero.isoformat()


def tariff_for(instance: Instance, zero: str | None, price: str, carbon: str) -> Tariff | None:
    """Price and intensity from the first event on; None if neither is given."""
    if not price and not carbon:
        return None
    begin_s = float(instance.jobs.submission_s.min(initial=math.inf))
    if instance.present is not None or not math.isfinite(begin_s):
        begin_s = instance.now_s
    return tariff_of(price, carbon, zero, (begin_s, begin_s))


def is_number(text: str) -> bool:
    """Whether an option that takes a number or a file has a number, or nothing."""
    try:
        return not text or not math.isnan(float(text))
    except ValueError:
        return False


def series(price: str, carbon: str) -> dict[str, InputFile]:
    """Files among the two options."""
    given = {"price": price, "carbon": carbon}
    return {name: read_input(text) for name, text in given.items() if not is_number(text)}


def energy_inputs(given: Given, price: str, carbon: str) -> dict[str, str | float]:
    """Options about energy and the present time that are given, for the record."""
    said = {"now": given.now, "price": price, "carbon": carbon, "pue": given.pue,
            "asleep_after": given.off_after_min, "asleep_watts": given.off_w or None}
    return {name: value for name, value in said.items() if value is not None and value != ""}


def andreas_command(out: DayFolder, instance: InstancePath = None, jobs: JobsPath = None,
                    nodes: NodesPath = None, power: PowerPath = None, times: TimesPath = None,
                    hardware: HardwareFile = None, now: Now = "", price: Price = "",
                    carbon: Carbon = "", pue: Pue = None,
                    asleep_after: EmptyFor = None, asleep_watts: AsleepWatts = 0.0,
                    policy: Policy = "rg", simulate: Simulate = False, seed: SearchSeed = 4010,
                    max_iterations: Iterations = 1000, period: Period = math.inf,
                    loss: Loss = "none", time_limit: TimeLimit = 60.0, force: Force = False,
                    no_charts: NoCharts = False) -> None:
    """Schedule training jobs with due dates on nodes with energy prices, now or for a whole day.

    **schedule.csv** has job, node, gpu_type, gpus, start_s and end_s of every uninterrupted run;
    **summary.json** energy, penalties and total with a bound that no scheduler can beat, or, of one
    decision, Eq. 1 and how far it is from the best; **gantt.html** shows the schedule,
    and **report.html** says all of it to a person.

    Example: sched-lab andreas --instance jobs.json --policy local --simulate --out day
    """
    given = Given({"instance": instance, "jobs": jobs, "nodes": nodes, "power": power,
                   "times": times, "hardware": hardware}, now, pue, asleep_after, asleep_watts)
    check_given(given)
    read = {name: read_input(path) for name, path in given.paths.items() if path is not None}
    problem, zero = problem_of(given, read)
    tariff = tariff_for(problem, zero, price, carbon)
    inputs = {
        "policy": policy, "simulate": simulate, "seed": seed, "max_iterations": max_iterations,
        "period": period, "loss": loss, "time_limit": time_limit,
        **energy_inputs(given, price, carbon), "files": checksums_of(read | series(price, carbon)),
        "sched_lab": __version__}
    how = SearchOptions(max_iterations, seed, time_limit_s=time_limit)
    compute = partial(report_of, problem, policy, is_simulated=simulate, period_s=period, loss=loss,
                      how=how, tariff=tariff)
    answer = Answer("andreas", inputs, TABLES, (*CHARTS, PAGE))
    answer_with(answer, out, compute, force=force, no_charts=no_charts)


MIXED = ("jobs", "nodes", "power", "times", "price", "carbon")
EXAMPLES: dict[str, Path | str] = {
    "jobs.json": json.dumps(TOY, indent=1) + "\n",
    **{f"mixed-{name}.csv": embedded(f"andreas/{name}.csv") for name in MIXED}}
