"""`sched-lab hadar`: three tables in; jobs, rounds, a summary and three drawings out."""

# A module, written by hand.

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from .. import __version__
from ..hardware import hardware_of
from ..lab import commands
from ..lab.frames import embedded, read_input
from ..lab.jit import interpreted
from ..lab.reports import PAGE, Answer
from ..meter import Sleep
from .energy import AWAKE
from .model import read_workload
from .policies import POLICIES, record_of
from .report import CHARTS, TABLES, report_of
from .simulation import RESTART_S, ROUND_S

__all__ = ['hadar_command']

MOST_INTERPRETED = 40  # jobs that are sooner scheduled than code for it is loaded

EXAMPLES: dict[str, Path | str] = {
    f"{what}.csv": embedded(f"toy/hadar_{what}.csv")
    for what in ("jobs", "cluster", "throughputs")}
JobsFile = Annotated[Path | None, commands.option(
    "Jobs: name, arrival_s, steps, workers, model (a key of the throughputs), weight if any. "
    "[default: embedded toy]")]
ClusterFile = Annotated[
    Path | None, commands.option("Nodes: node, type, gpus. [default: embedded toy]")]
ThroughputsFile = Annotated[Path | None, commands.option(
    "Speeds: key, workers, and for each GPU type a column with steps/s of the whole gang on one "
    "node, 0 where it cannot run; TYPE_spread on several nodes, if other. "
    "[default: embedded toy]")]
PolicyName = Annotated[str, commands.policy_option(POLICIES)]
RoundLength = Annotated[float, commands.option(
    "Time between two decisions (s).", "--round", callback=commands.within(1, 1e7))]
RestartDelay = Annotated[float, commands.option(
    "What a job loses when its GPUs change (s).", "--restart", callback=commands.within(0, 1e7))]
RoundsFolder = Annotated[Path, commands.folder_option(
    f"{', '.join(TABLES)}, summary.json, {', '.join(CHARTS)} and {PAGE}")]


def hadar_command(out: RoundsFolder, jobs: JobsFile = None, cluster: ClusterFile = None,
                  throughputs: ThroughputsFile = None, policy: PolicyName = "hadar",
                  round_s: RoundLength = ROUND_S, restart_s: RestartDelay = RESTART_S,
                  hardware: commands.HardwareFile = None, price: commands.Price = "",
                  carbon: commands.Carbon = "", asleep_after: commands.AsleepAfter = None,
                  asleep_watts: commands.AsleepWatts = 0.0,
                  force: commands.Force = False, no_charts: commands.NoCharts = False) -> None:
    """Share GPUs of different speed among training jobs, round by round, until all are done.

    **jobs.csv** has name, workers, arrival_s, start_s, end_s, jct_s and energy_kwh; **rounds.csv**
    round, start_s, job, node, type and gpus; **summary.json** TTD, completion times, utilisation
    and a bound on TTD that no schedule beats; energy, its cost and its CO2 with what they rest on,
    if the hardware catalogue knows the GPU types; **places.svg**, **progress.svg** and
    **usage.svg** show who ran where, jobs done, and GPUs in use, and **report.html** says all of it
    to a person.

    Example: sched-lab hadar --jobs jobs.csv --cluster cluster.csv --throughputs speeds.csv
    --policy hadar --out run
    """
    record_of(policy)
    given = {"jobs": jobs, "cluster": cluster, "throughputs": throughputs}
    files = {
        name: read_input(path or embedded(f"toy/hadar_{name}.csv"))
        for name, path in given.items()}
    workload = read_workload(**files)
    if hardware is not None:
        files["hardware"] = read_input(hardware)
    inputs = {
        "policy": policy, "round": round_s, "restart": restart_s, "price": price, "carbon": carbon,
        **commands.checksums_of(commands.series_files(price=price, carbon=carbon)),
        "asleep_after": asleep_after, "asleep_watts": asleep_watts,
        "files": commands.checksums_of(files), "sched_lab": __version__}
    sleep = AWAKE if asleep_after is None else Sleep(60 * asleep_after, asleep_watts)
    catalogue = None if hardware is None else hardware_of(hardware)
    compute = partial(report_of, workload, policy, round_s=round_s, restart_s=restart_s,
                      hardware=catalogue, price=price, carbon=carbon, sleep=sleep)
    answer = Answer("hadar", inputs, TABLES, (*CHARTS, PAGE))
    is_small = len(workload.job_name) <= MOST_INTERPRETED and round_s >= ROUND_S
    with interpreted(is_small):
        commands.answer_with(answer, out, compute, force=force, no_charts=no_charts)
