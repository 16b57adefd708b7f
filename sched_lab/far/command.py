"""`sched-lab far` plans a batch on GPUs that can be cut, `sched-lab far-run` carries the plan out."""

# A module, written by hand.

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from ..hardware import Hardware, hardware_of
from ..lab.commands import (
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
    series_files,
    within,
)
from ..lab.frames import (
    Column,
    InputError,
    InputFile,
    embedded,
    ensure_writable,
    read_header,
    read_input,
    read_table,
)
from ..lab.jit import interpreted
from ..lab.reports import PAGE, RECORD, Answer, Report, check_folder
from .due import OBJECTIVES
from .execution import Backend, SimulatedBackend, execute
from .execution import dry_run as dry_run_of
from .files import (
    HAS_TERMS,
    PROFILE_NAME,
    read_gpus,
    read_now,
    read_operations,
    read_profiled,
    with_now,
)
from .layout import has_layout
from .mig import MODELS, Mig, mig_of
from .nvml import NvmlBackend
from .policies import POLICIES, policy_of
from .profiles import profiled
from .report import CHARTS, LAYOUT, TABLES, report_of
from .tasks import Batch, read_times

__all__ = ['EXAMPLES', 'far_command', 'far_run_command']

Times = Annotated[
    Path,
    option("Run times: task, and seconds for each profile (columns 1g.10gb, ...) or size (1, 2, 3, "
           "4, 7), empty where the task does not fit; memory_gib, release_s, due_s and weight if "
           "there are any.")]


def as_of_papers(gpu: str) -> str:
    """The name of a model of the papers whatever its capitals, and any other as it is."""
    return {name.lower(): name for name in MODELS}.get(gpu.strip().lower(), gpu)


GpuName = Annotated[
    str,
    option(f"GPU model: {', '.join(MODELS)}, or one that sched-lab hardware lists; several as "
           "'H100 PCIe=2,H200=1', or as a file .csv with model and count.", metavar="MODEL",
           callback=as_of_papers)]
Gpus = Annotated[int, option("How many GPUs of that model.", max=1024)]
PolicyName = Annotated[str, policy_option(POLICIES)]
BatchColumn = Annotated[
    str | None,
    option("Column that says which batch a task belongs to; batches run one after the other.")]
OneSequence = Annotated[
    bool,
    option("Creations and destructions of different GPUs wait for each other too.",
           "--one-sequence")]
ScheduleFolder = Annotated[Path, folder_option(", ".join((*TABLES, RECORD, *CHARTS, PAGE)))]
NowFile = Annotated[
    Path | None,
    option("Instances that exist now: gpu, profile, start, and until_s, when what runs there ends; "
           "empty if nothing does.", "--now", metavar="FILE")]
OperationsFile = Annotated[
    Path | None,
    option("How long cutting takes, as measured: profile, create_s, destroy_s, and model if that "
           "matters.", "--operations", metavar="FILE")]
Objective = Annotated[
    str, choice(f"What is to be least: {' or '.join(OBJECTIVES)} (weighted).", OBJECTIVES)]


def problem_of(files: dict[str, InputFile], hardware: Hardware, gpu: str, gpus: int,
               batch: str | None, one_sequence: bool) -> tuple[Mig, Batch]:
    """GPUs and batch of a command line.

    Parameters
    ----------
    files : by option
    hardware : the catalogue
    gpu, gpus, batch, one_sequence : the options

    Raises
    ------
    InputError : at the first thing that is wrong
    """
    header = read_header(files["times"])
    has_profiles = any(PROFILE_NAME.fullmatch(name) for name in header)
    if gpu in MODELS and not has_profiles and not (
            {"memory_gib", *HAS_TERMS} & set(header) or {"now", "operations"} & set(files)):
        mig = mig_of(gpu, gpus, has_one_sequence=one_sequence)
        return mig, read_times(files["times"], mig, batch=batch)
    if one_sequence:
        raise InputError("--one-sequence goes with sizes and times alone", mend="leave it out")
    is_list = "=" in gpu or "gpu" in files
    if is_list and gpus != 1:
        raise InputError(f"--gpus {gpus} beside a list of GPUs", mend="leave --gpus out")
    models = read_gpus(files.get("gpu", gpu if is_list else f"{gpu}={gpus}"), hardware)
    now = read_now(files["now"], models) if "now" in files else []
    own = read_operations(files["operations"], hardware) if "operations" in files else {}
    profile_mig = profiled(models, own=own, now=[one[:3] for one in now])
    tasks = read_profiled(files["times"], profile_mig, batch=batch, hardware=hardware)
    return profile_mig, with_now(profile_mig, tasks, now)


MOST_INTERPRETED = {"far-plus": 10, "optimal": 10}  # tasks; 300 for the other policies


def is_small(mig: Mig, tasks: Batch, policy: str) -> bool:
    """Whether a batch is sooner planned than code for it is loaded."""
    return mig.num_gpus == 1 and len(tasks.name) <= MOST_INTERPRETED.get(policy, 300)


def far_command(times: Times, out: ScheduleFolder, gpu: GpuName = "A100", gpus: Gpus = 1,
                policy: PolicyName = "far", batch: BatchColumn = None,
                objective: Objective = "makespan", now: NowFile = None,
                operations: OperationsFile = None, hardware: HardwareFile = None,
                price: Price = "", carbon: Carbon = "", one_sequence: OneSequence = False,
                force: Force = False, no_charts: NoCharts = False) -> None:
    """Cut GPUs into instances (MIG) and schedule a batch of tasks on them.

    **schedule.csv** has task, gpu, first_slice, size, start_s and end_s; **reconfigurations.csv**
    every creation and destruction of an instance; **summary.json** makespan_s, lower_bound_s (no
    schedule ends earlier), rho (over perfectly shared work) and optimum_s where it is known;
    **gantt.svg** shows the schedule, and **report.html** says all of it to a
    person. With real profiles **mig-parted.yaml** and **layout.sh** say how to cut, stage by stage.

    Example: sched-lab far --gpu A100 --times times.csv --policy far-plus --out schedule
    """
    policy_of(policy)
    given = {"times": times, "now": now, "operations": operations, "hardware": hardware,
             "gpu": Path(gpu) if gpu.endswith(".csv") else None}
    files = {name: read_input(path) for name, path in given.items() if path}
    files |= series_files(price=price, carbon=carbon)
    catalogue = hardware_of(files.get("hardware"))
    mig, tasks = problem_of(files, catalogue, gpu, gpus, batch, one_sequence)
    inputs = {
        "gpu": gpu, "gpus": gpus, "policy": policy, "objective": objective, "batch": batch,
        "one_sequence": one_sequence, "price": price, "carbon": carbon,
        "files": checksums_of(files), "sched_lab": __version__}
    answer = Answer("far", inputs, (*TABLES, *(LAYOUT if has_layout(mig) else ())),
                    (*CHARTS, PAGE))
    compute = partial(report_of, mig, tasks, policy, objective=objective, hardware=catalogue,
                      price=files.get("price", price), carbon=files.get("carbon", carbon))
    with interpreted(is_small(mig, tasks, policy)):
        answer_with(answer, out, compute, force=force, no_charts=no_charts)


Commands = Annotated[str, option("Column of the table with the shell command of each task.")]
DryRun = Annotated[bool, option("Print the plan and do nothing.", "--dry-run")]
Simulated = Annotated[
    float | None,
    option("Sleep instead, this many times faster.", "--simulated", callback=within(0.01, 1e9))]
Consent = Annotated[
    bool,
    option("Agree that instances of the GPU are created and destroyed.", "--yes-reconfigure")]
FirstGpu = Annotated[
    int,
    option("NVML index of the GPU, or of the first of several.", "--first-gpu", min=0, max=1023)]
ExecutionFolder = Annotated[Path, folder_option(f"execution.csv and {RECORD}")]


def far_run_command(times: Times, out: ExecutionFolder, gpu: GpuName = "A100", gpus: Gpus = 1,
                    policy: PolicyName = "far", command: Commands = "command",
                    dry_run: DryRun = False, simulated: Simulated = None,
                    yes_reconfigure: Consent = False, first_gpu: FirstGpu = 0,
                    force: Force = False) -> None:
    """Schedule a batch as `far` does, and carry it out: every task is a shell command on an
    instance of its own.

    **execution.csv** has every step with its planned and its actual times, and the exit code of
    every command; **summary.json** counts them. The program's own exit code is 1 if any of them is
    not 0. What is on record in a folder is not carried out again without --force.

    Example: sched-lab far-run --gpu A100 --times times.csv --dry-run --out run
    """
    if dry_run + (simulated is not None) + yes_reconfigure != 1:
        raise InputError("nothing is carried out unless you say how",
                         mend="give one of --dry-run, --simulated 100 and --yes-reconfigure")
    mig = mig_of(gpu, gpus)
    file = read_input(times)
    tasks = read_times(file, mig)
    with interpreted(is_small(mig, tasks, policy)):
        schedule = report_of(mig, tasks, policy).schedule
    if dry_run:
        typer.echo(dry_run_of(schedule, tasks.name))
        return
    inputs = {
        "gpu": gpu, "gpus": gpus, "policy": policy, "simulated": simulated,
        "files": checksums_of({"times": file}), "sched_lab": __version__}
    answer = Answer("far-run", inputs, ("execution.csv",), can_be_repeated=False)
    check_folder(out, answer, force=force)
    ensure_writable(out)
    if simulated is not None:
        machine: Backend = SimulatedBackend(tasks.times_s, simulated)
    else:
        commands = read_table(file, {command: Column("text")})[command].tolist()
        machine = NvmlBackend(commands, first_gpu, yes_reconfigure=True)
    steps = execute(schedule, tasks.name, machine)
    about = {"tasks": int((steps["kind"] == "run").sum()),
             "failed": int((steps["exit_code"].fillna(0) != 0).sum()),
             "end_s": float(steps["end_s"].max())}
    report = Report(about, {"execution.csv": steps.round(6)}, {}, "")
    answer.write(out, report.write_tables, force=force)
    typer.echo(f"{out}: {about['tasks']} tasks, {about['failed']} failed, {about['end_s']:.2f} s")
    if about["failed"]:
        raise typer.Exit(1)


EXAMPLES: dict[str, Path | str] = {
    "times.csv": embedded("toy/mig_times.csv"),
    **{name: embedded(f"far/{name}") for name in ("models.csv", "gpus.csv", "now.csv",
                                                  "operations.csv")}}
