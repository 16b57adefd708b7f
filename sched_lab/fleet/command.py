"""`sched-lab read` turns dumps and traces into two tables and a ledger, `sched-lab check` says whether they can be right, `sched-lab replay` what another policy would have made of them."""

# A module, written by hand.

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from .. import __version__
from ..hardware import watts_of_files
from ..lab.commands import (
    AsleepAfter,
    AsleepWatts,
    Carbon,
    ClusterFolder,
    Force,
    HardwareFile,
    Price,
    Workers,
    answer_with,
    choice,
    conclude,
    folder_named,
    folder_option,
    moment_option,
    option,
    workers_of,
)
from ..lab.frames import (
    InputError,
    check_one_of,
    csv_of,
    embedded,
    ensure_writable,
    read_input,
    sha256,
    write_bytes,
    write_json,
)
from ..lab.reports import PAGE, RECORD, Answer, check_folder, refuse_folder
from ..lab.sweeps import remove_cells
from ..online.command import CpuPower, GpuPower, LoadCurve, PowerName
from ..online.model import PowerSettings, gpu_indices
from ..power import load_permille
from .read.check import check_cluster
from .read.columns import LOOKS_LIKE
from .read.dates import ORDERS
from .read.kubernetes import CLAIMS_MISSING
from .read.outages import read_cluster_in_time, with_outages
from .read.reading import FORMATS, read_files
from .read.tables import (
    CLUSTER_FILES,
    CLUSTER_RECORD,
    OUTAGES,
    ClusterTables,
    ReadOptions,
    cluster_answer,
    dump_file,
    write_tables,
)
from .live.journal import is_journal, journal_files, replay_journal, report_of
from .replay import report
from .replay.compare import (
    RECORDED,
    WATTS_MEND,
    Comparison,
    Question,
    chosen_policies,
    compare,
    labels_of,
)
from .replay.events import BACKFILLS, RULES
from .replay.slurm import OWN_NODES, SlurmQueue, read_slurm_queue, requeues_in
from .replay.worth import OBJECTIVES, with_worth
from .replay.problem import (
    Problem,
    Schedule,
    as_in_the_past,
    problem_of,
    with_lost,
)

__all__ = ['EXAMPLES', 'read_command', 'check_command', 'replay_command']

FormatName = Annotated[str, typer.Argument(
    metavar="|".join(["auto", *FORMATS]), show_default=False,
    help="Which format the files have; auto finds out, file by file. " + "; ".join(
        f"{one.name}: {one.sentence}" for one in FORMATS.values()) + ".")]
Files = Annotated[list[str], typer.Argument(
    metavar="FILE...", help="Files, plain, gzip or in a ZIP archive.")]
Nodes = Annotated[list[str] | None, option(
    "File with nodes, of any format, for a trace that has none; may be repeated.",
    metavar="FILE")]
Map = Annotated[list[str] | None, option(
    "Meaning of a column of a CSV file, such as num_gpus=gpus; may be repeated.", "--map",
    metavar="COLUMN=COLUMN")]
SizeTo = Annotated[str, option(
    "Make nodes of the commonest shape, so many that the mean demand is this share of their GPUs.",
    metavar="SHARE")]
Zone = Annotated[str, option("Time zone of dates that name none. [default: UTC]",
                             metavar="NAME")]
Dates = Annotated[str, choice("Order of day, month and year in dates that can be read in several, "
                              "such as 01.02.2024.", ("", *ORDERS))]
Outages = Annotated[Path | None, option(
    "When nodes were closed: CSV with the columns node, start, end, kind (drain: nothing new starts; down: what runs is "
    "stopped), or what sacctmgr show event -P prints.", metavar="FILE")]
ReadFolder = Annotated[Path, folder_option(", ".join((*CLUSTER_FILES, CLUSTER_RECORD)))]


def map_of(pairs: Sequence[str]) -> dict[str, str]:
    """Columns by their meaning, as `--map` gives them.

    Raises
    ------
    InputError : one is not NAME=NAME, or a name is there twice
    """
    columns: dict[str, str] = {}
    for pair in pairs:
        left, equals, right = (part.strip() for part in pair.partition("="))
        if not (left and equals and right):
            raise InputError(f"--map {pair!r} is not NAME=NAME", value=pair,
                             mend="write for instance --map num_gpus=gpus")
        if left in columns:
            raise InputError(f"--map gives {left} twice", value=pair, mend="keep one")
        columns[left] = right
    return columns


def headline_of(tables: ClusterTables) -> str:
    """What was read, in a line."""
    gpus = int(tables.nodes["num_gpus"].fillna(0).sum())
    counts = tables.ledger.groupby("what", sort=False)["count"].sum()
    said = ", ".join(f"{count:,} {what}" for what, count in counts.items()
                     if what != "extra column")
    return (f"{len(tables.nodes):,} nodes with {gpus:,} GPUs, {len(tables.tasks):,} tasks; "
            f"ledger: {said or 'nothing to say'}")


def warn_of(tables: ClusterTables) -> None:
    """Say on standard error what a replay will lack."""
    if not len(tables.nodes):
        typer.echo("sched-lab: warning: there are no nodes in these files: give --nodes FILE, or "
                   "--size-to 80%", err=True)
    if not len(tables.tasks):
        typer.echo("sched-lab: warning: there are no tasks in these files", err=True)
    for reason in tables.ledger["reason"]:
        if CLAIMS_MISSING in reason or LOOKS_LIKE in reason:
            typer.echo(f"sched-lab: warning: {reason}", err=True)


def read_command(format: FormatName, files: Files, out: ReadFolder, nodes: Nodes = None,
                 map: Map = None, size_to: SizeTo = "", zone: Zone = "",
                 dates: Dates = "", outages: Outages = None, force: Force = False) -> None:
    """Read a dump of a cluster or a trace into two tables, nodes and tasks, and a ledger.

    **nodes.csv** and **tasks.csv** have the same columns whatever the files were; **ledger.csv**
    names every row that was dropped, filled in or interpreted, with file, row, reason and count;
    **about.json** has the zero of all times and the checksums of the files; **outages.csv**, with --outages,
    when nodes were drained or down.

    Example: sched-lab read k8s nodes.json pods.json --out mycluster
    """
    check_one_of(format, ["auto", *FORMATS], "format")
    options = ReadOptions(map_of(map or ()), zone, dates)
    paths = [dump_file(path) for path in files]
    extra = [dump_file(path) for path in nodes or ()]
    inputs = {
        "format": format, "files": {str(path): path.sha256 for path in paths},
        "nodes": {str(path): path.sha256 for path in extra}, "map": dict(options.columns),
        "size_to": size_to, "zone": zone, "dates": dates, "sched_lab": __version__,
        **({"outages": dump_file(outages).sha256} if outages else {})}
    answer = cluster_answer(inputs)
    check_folder(out, answer, force=force)
    ensure_writable(out)
    is_kept = answer.is_in(out)
    if not is_kept:
        tables = read_files(format, paths, options, nodes=extra, size_to=size_to)
        tables = with_outages(tables, outages, options) if outages else tables
        answer.write(out, partial(write_tables, tables), headline=headline_of(tables), force=force)
        warn_of(tables)
    conclude(f"{out}: {answer.in_folder(out)['headline']}{' (kept)' if is_kept else ''}", "check", out)


AsJson = Annotated[bool, option("Print JSON, every finding with its first rows.", "--json")]


def check_command(cluster: ClusterFolder, as_json: AsJson = False,
                  hardware: HardwareFile = None) -> None:
    """Look for all that cannot be right in a cluster: impossible rows, GPUs that are booked twice,
    slips of units and clocks.

    Prints a line for each kind of finding, with its first row and how to mend it, and writes
    nothing. The exit code is 0 if the cluster is usable, 1 if there are findings, and 2 if it is
    unusable.

    Example: sched-lab check mycluster
    """
    checked = check_cluster(cluster, watts_of_files(hardware)[0])
    if as_json:
        typer.echo(json.dumps(checked.as_json(), indent=1, ensure_ascii=False))
    else:
        *lines, verdict = checked.summary()
        typer.echo("".join(f"{line}\n" for line in lines), nl=False)
        is_usable = checked.exit_code < 2
        then = ("replay", cluster, "--out", "answer") if is_usable else ("check", cluster, "--json")
        conclude(verdict, *then)
    if checked.exit_code:
        raise typer.Exit(checked.exit_code)


Policies = Annotated[str, option(
    "Policies to compare: recorded is what really ran, the others as in sched-lab inflate. "
    "[default: recorded where known, fgd, pwr-fgd:0.1, joint]", metavar="NAME,NAME,...")]
Backfill = Annotated[str, choice("Which tasks may start before an earlier one that has to wait: " + "; ".join(
    f"{rule.name}, {rule.sentence}" for rule in RULES) + ".", BACKFILLS)]
Queues = Annotated[str, option(
    "Rules of the queue that every policy is replayed under, in place of --backfill, which is then the first; of the "
    "others, a policy goes by its name and theirs, such as fgd+easy.", metavar="NAME,NAME,...")]
SlurmConfig = Annotated[Path | None, option(
    "slurm.conf, or what scontrol show config prints, with weights of priorities and settings of the plan for "
    "--backfill slurm; --policies slurm takes the nodes that slurmctld would. [default: Slurm's defaults, and the "
    "priorities of the record]", metavar="FILE")]
SlurmShares = Annotated[Path | None, option(
    "What sshare -a -P prints: the shares of accounts and users, for the fair share of --slurm-config.", metavar="FILE")]
SlurmLimits = Annotated[Path | None, option(
    "What sacctmgr -P show qos and sacctmgr -P show assoc print, one behind the other: QOS, and limits of them, accounts and "
    "users, for the queue of --slurm-config.", metavar="FILE")]
Fit = Annotated[bool, option(
    "Take the rule of the queue under which the replay explains the record best, in place of --backfill, and then "
    "the placement among --policies.", "--fit")]
Worth = Annotated[bool, option(
    "Also replay a twentieth more and fewer nodes, walltimes half as wrong, sleep, a cap on power, no outages, any GPU "
    "model, and whole GPUs or instances of MIG in place of shares; say what each lever brings a month and how many GPUs "
    "more would do the same.", "--worth")]
ObjectiveName = Annotated[str, choice(
    "What the first sentence and the order of levers are about; implies --worth. [default: what the best of them "
    "surely changes most]", ("", *OBJECTIVES))]
At = Annotated[float | None, moment_option(
    "Let policies decide from this second on; what ran then stays where it is. "
    "[default: from the beginning, on an empty cluster]")]

OF_A_RECORD = {"gpu_models", "gpu_power_w", "power_cap_w"}  # changes that leave what ran as it was
WhatIf = Annotated[Path | None, option(
    "Changes to the cluster in a TOML file: load = 1.3, nodes.scale, nodes.remove, "
    "gpu_models, gpu_power_w, power_cap_w.", metavar="FILE")]
Against = Annotated[str, option("Policy that the others are compared with. [default: the first]",
                                metavar="NAME")]
Seed = Annotated[int, option("Of policies that draw lots, and of a changed load.",
                             min=0)]
ClusterOrJournal = Annotated[Path, typer.Argument(
    metavar="CLUSTER", parser=folder_named,
    help="Folder that sched-lab read has written, or a journal of sched-lab serve: a file, or a folder.")]
AnswerFolder = Annotated[Path, folder_option(
    "summary.csv, waits.csv, differences.csv, levers.csv, fidelity.csv, ledger.csv, report.html, and a folder for each "
    "policy")]

TABLES = ("summary.csv", "waits.csv", "differences.csv", "levers.csv", "fidelity.csv", "ledger.csv")
OF_A_POLICY = ("assignments.csv", "curve.csv", "failures.csv", "summary.json")
MORE_NODES = "nodes.toml"  # the --what-if, with the nodes of the lever
HIDDEN = ".replays"


def assignments_of(problem: Problem, schedule: Schedule) -> pd.DataFrame:
    """Where and when each task ran, in the order of submission; runs that an outage stopped before are rows, too."""
    problem, schedule, _ = with_lost(problem, schedule)
    order = np.lexsort((np.arange(len(problem.submit_s)), problem.submit_s))
    node = schedule.node[order]
    masks = schedule.gpu_mask[order].tolist()
    words = {mask: "-".join(map(str, gpu_indices(mask))) for mask in set(masks)}
    return pd.DataFrame({
        "event": np.arange(len(order)), "task": problem.tasks.name[order],
        "node": np.where(node >= 0, problem.cluster.name[node], ""),
        "gpu_list": [words[mask] for mask in masks], "submit_s": problem.submit_s[order],
        "start_s": schedule.start_s[order],
        "end_s": np.where(np.isinf(schedule.end_s), np.nan, schedule.end_s)[order]})


def write_table(table: pd.DataFrame, folder: Path, name: str) -> None:
    """Write a table as CSV; numbers to a millionth."""
    write_bytes(csv_of(table.round(6)), folder / name)


def with_more_nodes(said: Mapping[str, Any], scale: float) -> str:
    """TOML of the changes of a --what-if, with so many times as many nodes."""
    nodes = said.get("nodes", {})
    whole = {**said, "nodes": {**nodes, "scale": float(f"{nodes.get('scale', 1) * scale:.12g}")}}
    tables = {name: part for name, part in whole.items() if isinstance(part, dict)}
    lines = [f"{name} = {json.dumps(value)}" for name, value in whole.items() if name not in tables]
    for name, part in tables.items():
        lines += [f"[{name}]", *(f"{json.dumps(key, ensure_ascii=False)} = {json.dumps(value, ensure_ascii=False)}"
                                 for key, value in part.items())]
    return "\n".join([*lines, ""])


def write_comparison(comparison: Comparison, said: Mapping[str, Any], folder: Path) -> None:
    """Write an answer into a folder that exists; `said` are the changes of --what-if."""
    for name, table in zip(TABLES, (comparison.summary, comparison.waits, comparison.differences,
                                    comparison.levers, comparison.fidelity, comparison.problem.ledger), strict=True):
        write_table(table, folder, name)
    for policy, outcome in comparison.outcomes.items():
        place = folder / policy
        place.mkdir()
        for name, table in zip(OF_A_POLICY, (
                assignments_of(comparison.problem, outcome.schedule), outcome.curve,
                outcome.failures.drop(columns="task_row")), strict=False):
            write_table(table, place, name)
        row = comparison.summary[comparison.summary["policy"] == policy].iloc[0]
        known = {name: value for name, value in row.items() if value == value}
        write_json({**known, "findings": outcome.findings}, place / OF_A_POLICY[-1])
    more = [int(choice) for lever, choice in zip(comparison.levers["lever"], comparison.levers["choice"], strict=True)
            if lever == "nodes" and int(choice) > 0]
    if more:
        scale = 1 + more[0] / len(comparison.problem.cluster)
        write_bytes(with_more_nodes(said, scale).encode(), folder / MORE_NODES)
    write_bytes(report.page_of(comparison).encode(), folder / PAGE)
    write_json(comparison.about, folder / RECORD)


def words_of(row: pd.Series) -> str:
    """One policy in a few words."""
    energy = "" if pd.isna(row["energy_kwh"]) else f", {row['energy_kwh']:,.1f} kWh"
    wait = "" if pd.isna(row["mean_wait_s"]) else f", mean wait {row['mean_wait_s']:,.0f} s"
    never = f", {row['refused_tasks']:,} never" if row["refused_tasks"] else ""
    return f"{row['policy']}: {row['served_tasks']:,} served{never}{wait}{energy}"


def warn_of_comparison(comparison: Comparison) -> None:
    """Say on standard error what a reader of the numbers has to know."""
    if comparison.summary["energy_kwh"].isna().all():
        unknown = next(one for one in comparison.about["assumptions"] if "not known" in one)
        typer.echo(f"sched-lab: warning: {unknown}; {WATTS_MEND}", err=True)
    for outcome in comparison.outcomes.values():
        if outcome.findings:
            typer.echo(f"sched-lab: warning: {outcome.policy}: {outcome.findings[0]}; see "
                       "sched-lab check", err=True)


def problem_in(cluster: Path, what_if: Mapping[str, Any], seed: int, slurm_config: Path | None = None) -> tuple[
        Problem, dict[str, str]]:
    """Read a cluster, change it, and make a problem of it; return checksums of its files, too.

    By `JobRequeue=0` of a `slurm.conf` what an outage stops ends there, unless outages.csv says that it waits again.
    """
    tables = read_cluster_in_time(cluster)
    files = {name: sha256(cluster / name) for name in (*CLUSTER_FILES, CLUSTER_RECORD, OUTAGES)
             if (cluster / name).exists()}
    if slurm_config and tables.outages is not None and not requeues_in(slurm_config):
        tables = replace(tables, outages=tables.outages.replace({"requeue": {"": "no"}}))
        files["slurm.conf"] = sha256(slurm_config)
    if what_if:
        from .replay.what_if import changed

        tables = changed(tables, what_if, seed)
    tables = as_in_the_past(tables)
    problem = problem_of(tables)
    if what_if.keys() - OF_A_RECORD:
        nowhere = np.full(len(problem.node), -1)
        problem = replace(problem, node=nowhere, gpu_mask=np.zeros_like(nowhere),
                          start_s=np.full(len(nowhere), np.nan))
    ledger = pd.concat([tables.ledger, problem.ledger], ignore_index=True)
    return replace(problem, ledger=ledger), files


def sum_of(given: str) -> str:
    """Checksum of the file that an option names; a number is itself."""
    try:
        float(given)
    except ValueError:
        return read_input(given).sha256 if given else ""
    return given


MUCH = 0.01  # of the GPU hours asked for: who refuses more says so in the last sentence
LITTLE = 300_000  # tasks times policies that one process has done before others have started


def next_words(levers: pd.DataFrame, fidelity: pd.DataFrame, told: Mapping[str, Any], backfill: str,
               paths: tuple[Path, Path, Path | None, Mapping[str, Path]]) -> list[str]:
    """What to type after a replay, after `sched-lab`.

    Parameters
    ----------
    levers, fidelity : of the comparison
    told, backfill : options of the call, and the rule that was taken
    paths : the cluster, the answer, the file of `--what-if`, and options of Slurm's queue with their files
    """
    cluster, out, what_if, of_slurm = paths
    slurm = [word for option, file in of_slurm.items() for word in (option, file)]

    def ruled(rule: str) -> list[str | Path]:
        return ["--backfill", rule, *(slurm if rule == "slurm" else [])]

    same = ["replay", cluster, *(["--policies", ",".join(told["policies"])] if told["policies"] else []),
            *([] if told["at"] is None else ["--at", f"{told['at']:g}"])]
    again = [*same, *(["--what-if", what_if] if what_if else [])]
    worth = "worth" in told
    best = report.best_lever(levers, report.objective_of(levers, told.get("objective", "")))
    misfit = report.judged(fidelity)["misfit"]
    if (misfit[:1] > 1).any():
        is_nearer = misfit.min() < misfit.iloc[0] and "fit" not in told
        then = [*again, "--fit", *slurm, "--out", f"{out}-fit"] if is_nearer else ["check", cluster]
    elif levers.empty:
        then = ["replay", cluster, "--out", f"{out}-policies"]
    elif best is None:
        then = ["place", cluster] if worth or told["at"] is not None else [
            *again, *ruled(backfill), "--worth", "--out", f"{out}-worth"]
    else:
        choice = best["choice"]
        then = {
            "queue": [*again, *ruled(choice), "--out", f"{out}-{choice}"],
            "placement": ["place", cluster, "--policy", choice, "--out", f"{out}-next"] if choice != OWN_NODES else [
                "place", cluster],
            "nodes": [*same, *ruled(backfill), "--what-if", out / MORE_NODES, "--out", f"{out}-nodes"],
            "sleep": [*again, *ruled(backfill), "--asleep-after", choice, "--out", f"{out}-asleep"]
        }.get(str(best["lever"]), ["place", cluster])  # no option moves the others
    return list(map(str, then))


def answer_replay(problem: Problem, out: Path, asked: Question, told: Mapping[str, Any],
                  workers: int, force: bool, paths: tuple[Path, Path, Path | None, Mapping[str, Path]]) -> str:
    """Compute and write what is not there yet, print it, and return it in a sentence; `paths` as `next_words`."""
    names = chosen_policies(problem, asked)
    files = [f"{policy}/{name}" for policy in labels_of(names, asked) for name in OF_A_POLICY] + [MORE_NODES] * ("worth" in told and set(names) != {RECORDED})
    answer = Answer("replay", {**told, "sched_lab": __version__}, (*TABLES, PAGE, *files))
    check_folder(out, answer, force=force)
    ours = set(answer.in_folder(out).get("files", ()))
    for name in answer.tables:
        if name not in ours and (out / name).exists():
            refuse_folder(out, f"{name} there was not written by sched-lab replay",
                          "move it away, or choose another --out")
    ensure_writable(out)
    is_kept = answer.is_in(out) and not force
    if not is_kept:
        if not workers and len(names) * len(problem.tasks) < LITTLE:
            workers = 1
        made = [path for path in (out, *out.parents) if not path.exists()]
        try:
            comparison = compare(problem, asked, out / HIDDEN, workers=workers_of(workers),
                                 depends_on=answer.inputs)
            if "worth" in told:
                comparison = with_worth(comparison, asked, out / HIDDEN, workers=workers_of(workers),
                                        depends_on=answer.inputs)
                comparison = replace(comparison, about={**comparison.about, "objective": told["objective"]})
            then = next_words(comparison.levers, comparison.fidelity, told, comparison.about["backfill"], paths)
            comparison = replace(comparison, about={
                **comparison.about, "then": shlex.join(["sched-lab", *then])})
        except InputError:  # nothing of it stays
            remove_cells(out / HIDDEN)
            for path in made:
                if path.is_dir() and not any(path.iterdir()):
                    path.rmdir()
            raise
        headline = "; ".join([*(words_of(row) for _, row in comparison.summary.iterrows()),
                              " ".join(filter(None, (
                                  report.fidelity_sentence(comparison),
                                  report.lever_sentence(comparison)
                                  if report.is_believed(comparison.fidelity) else "",
                                  report.refused_sentence(comparison.summary, MUCH))))])
        answer.write(out, partial(write_comparison, comparison, told["what_if"]), headline=headline, force=force)
        for name in ours - set(answer.tables):  # of the answer that was replaced
            (out / name).unlink(missing_ok=True)
            if (out / name).parent != out and not any((out / name).parent.iterdir()):
                (out / name).parent.rmdir()
        warn_of_comparison(comparison)
    remove_cells(out / HIDDEN)
    said: str = answer.in_folder(out)["headline"]
    *lines, sentence = said.split("; ")
    typer.echo("\n".join([*lines, f"{out / PAGE}{' (kept)' if is_kept else ''}"]))
    return sentence


def answer_journal(journal: Path, out: Path, force: bool) -> None:
    """Play a journal again, write what came of each decision, and say it.

    Raises
    ------
    typer.Exit : with code 1, if something differs
    """
    files = {path.name if number else "journal": sha256(path)
             for number, path in journal_files(journal).items()}
    answer = Answer("replay", {"files": files, "sched_lab": __version__}, ("decisions.csv",))
    summary = answer_with(answer, out, lambda: report_of(replay_journal(journal)), force=force,
                          no_charts=True)
    if summary["different"]:
        raise typer.Exit(1)


def replay_command(cluster: ClusterOrJournal, out: AnswerFolder, policies: Policies = "",
                   backfill: Backfill = "none", queues: Queues = "", fit: Fit = False, worth: Worth = False,
                   objective: ObjectiveName = "", at: At = None,
                   price: Price = "", carbon: Carbon = "", asleep_after: AsleepAfter = None,
                   asleep_watts: AsleepWatts = 0.0, what_if: WhatIf = None,
                   power: PowerName = "eq1", gpu_power: GpuPower = None,
                   cpu_power: CpuPower = None, hardware: HardwareFile = None,
                   load_curve: LoadCurve = "step", against: Against = "", seed: Seed = 0,
                   slurm_config: SlurmConfig = None, slurm_shares: SlurmShares = None,
                   slurm_limits: SlurmLimits = None, workers: Workers = 0, force: Force = False) -> None:
    """Replay the tasks of a cluster at their times under several policies, and compare.

    **summary.csv** has a row for each policy: tasks served and refused (those that never start),
    with their shares of tasks and GPU hours, waits, GPU hours, energy, cost and CO2, and bounds
    that no policy beats on what it served; **waits.csv** has waits by queue, user, size and
    admitted models, **differences.csv** the differences to the first policy with intervals, or why
    there is none, **levers.csv** what other policies and rules of the queue do to waiting,
    **fidelity.csv** how well each explains the record, **ledger.csv** all that was not taken as it
    stood. A folder for each policy has **assignments.csv**, **curve.csv** (means over the hours),
    **failures.csv** and **summary.json**. **report.html** is all this for a browser.

    With --worth, **levers.csv** also has nodes, sleep, walltimes, a cap, no outages, GPU models and shares, and what each lever is
    worth a month and in GPUs; **nodes.toml** is the --what-if of more nodes, with
    the changes of the one that was given.

    A journal is played again as it is: **decisions.csv** says of every decision whether it is the
    same, bit for bit, and the exit code is 1 if one is not.

    Example: sched-lab replay mycluster --policies recorded,fgd,pwr-fgd:0.1 --out answer
    """
    if (cluster.is_file() or cluster.is_dir()) and is_journal(cluster):
        for name, value in (("policies", policies), ("at", at), ("what-if", what_if),
                            ("slurm-config", slurm_config), ("slurm-shares", slurm_shares),
                            ("slurm-limits", slurm_limits)):
            if value not in ("", None):
                raise InputError(f"--{name} does not go with a journal", value=value,
                                 mend="a journal is played again as it is: leave it out")
        answer_journal(cluster, out, force)
        return
    names = tuple(name.strip() for name in policies.split(",")) if policies.strip() else ()
    said: dict[str, Any] = {}
    if what_if:
        from .replay.what_if import read_what_if

        said = read_what_if(what_if)
    never_was = said.keys() - OF_A_RECORD
    if never_was and (at is not None or RECORDED in names):
        raise InputError(f"{'the policy recorded' if at is None else '--at'} needs a record, and "
                         "there is none of a cluster that never was",
                         mend="leave it out, or --what-if")
    load_permille(load_curve)
    if slurm_config and "slurm" not in (backfill, *queues.split(",")) and not fit:
        raise InputError(f"--slurm-config says how Slurm's queue is served, not that of {backfill}",
                         value=slurm_config, mend="give --backfill slurm, or leave it out")
    for name, value in (("shares", slurm_shares), ("limits", slurm_limits)):
        if value and not slurm_config:
            raise InputError(f"--slurm-{name} goes with --slurm-config, which says whether and how much they count",
                             value=value, mend="give the slurm.conf, too")
    rules = tuple(rule.strip() for rule in queues.split(",")) if queues.strip() else ()
    for rule in rules:
        check_one_of(rule, BACKFILLS, "rule of the queue")
    if rules and (backfill != "none" or fit or len(set(rules)) < len(rules)):
        raise InputError("--queues names the rules, each once, and goes with neither --backfill nor --fit",
                         value=queues, mend="give one of them")
    backfill = rules[0] if rules else backfill
    worth = worth or bool(objective)
    if worth and at is not None:
        raise InputError("--worth compares whole records, and --at begins in the middle of one", value=at,
                         mend="leave one of them out")
    if fit and backfill != "none":
        raise InputError(f"--fit looks for the rule of the queue, and --backfill {backfill} names one",
                         value=backfill, mend="give one of them")
    gpu_w, cpu_w = watts_of_files(hardware, gpu_power, cpu_power)
    settings = PowerSettings(power, gpu_w | said.get("gpu_power_w", {}), cpu_w or None, load_curve)
    asked = Question(names, backfill, at, seed, settings,
                  np.inf if asleep_after is None else 60 * asleep_after, asleep_watts, price,
                  carbon, against, said.get("power_cap_w"),
                  read_slurm_queue(slurm_config, slurm_shares, slurm_limits) if slurm_config else SlurmQueue(), fit, rules)
    problem, files = problem_in(cluster, said, seed, slurm_config)
    told = {"cluster": files, "policies": names, "backfill": backfill, "at": at,
            "asleep_after": asleep_after, "asleep_watts": asleep_watts, "price": sum_of(price), "carbon": sum_of(carbon),
            "what_if": said, "power": settings._asdict(), "against": against, "seed": seed,
            **({"files": {"hardware": sha256(hardware)}} if hardware else {}),
            **({"fit": True} if fit else {}), **({"queues": rules} if rules else {}),
            **({"worth": True, "objective": objective} if worth else {}),
            **({"slurm": asked.slurm._asdict()} if slurm_config else {})}
    of_slurm = {"--slurm-config": slurm_config, "--slurm-shares": slurm_shares, "--slurm-limits": slurm_limits}
    paths = cluster, out, what_if, {option: file for option, file in of_slurm.items() if file}
    sentence = answer_replay(problem, out, asked, told, workers, force, paths)
    conclude(sentence, *next_words(
        pd.read_csv(out / "levers.csv", dtype={"choice": str}), pd.read_csv(out / "fidelity.csv"), told,
        json.loads((out / RECORD).read_bytes())["backfill"], paths))


EXAMPLES: dict[str, Path | str] = {
    name: embedded(f"fleet/{name}") for name in ("nodes.json", "pods.json")}
