"""`sched-lab explain` says why a task is where it is, or waits; `place` and `recommend` where the next ones go; `move` which to move for room, or power."""

# A module, written by hand.

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ... import __version__
from ...hardware import hardware_of, watts_of_files
from ...lab.commands import (
    ClusterFolder,
    Force,
    HardwareFile,
    NoCharts,
    answer_with,
    choice,
    conclude,
    folder_named,
    folder_option,
    moment_option,
    name_next,
    option,
    policy_option,
)
from ...lab.frames import InputError, sha256
from ...lab.jit import interpreted
from ...lab.reports import Answer, Report
from ...online.model import PowerSettings
from ...online.policies import POLICIES, policy_of
from ..read.reading import read_files
from ..read.outages import read_cluster_in_time
from ..read.tables import OUTAGES, ClusterTables, sources_of
from ..replay.problem import Problem, Schedule, as_in_the_past, closed_at, latest_s, problem_of, recorded
from .explain import Explanation, explain, moment_of, row_of_task
from .mig_nodes import MigPlan, read_mig, recommend_mig
from .move import GOALS, closed_nodes, commands_of, plan_moves, system_of
from .place import place_tasks
from .recommend import Recommendation, recommend

__all__ = ['explain_command', 'place_command', 'move_command', 'recommend_command']

STATES = ("recorded", "replayed")


def schedule_for(problem: Problem, state: str, policy: str,
                 power: PowerSettings) -> Schedule | None:
    """What was running: None for the record, or the policy's own replay.

    Raises
    ------
    InputError : nothing is recorded
    """
    has_record = bool((recorded(problem).node >= 0).any())
    if state == "recorded" and not has_record:
        raise nothing_recorded("leave out --state, or give --state replayed")
    if state == "recorded" or (has_record and not state):
        return None
    from ..replay.events import replay

    return replay(problem, policy, power=power)


def nothing_recorded(mend: str) -> InputError:
    """That nothing is known of what ran, and what to do about it."""
    return InputError("no task has both a node and a time: nothing is recorded", file="tasks.csv",
                      mend=mend)


def check_task(tables: ClusterTables, problem: Problem, name: str) -> None:
    """Refuse a task that is in the table, and cannot be placed by any policy.

    Raises
    ------
    InputError : naming its row and the reason
    """
    rows = tables.tasks.index[tables.tasks["name"] == name]
    is_whole = (problem.tasks.name == name).any() or (problem.tasks.name == f"{name}/0").any()
    if len(rows) and not is_whole:
        lines = problem.ledger[(problem.ledger["file"] == "tasks.csv")
                               & (problem.ledger["what"] == "refused")]
        row = int(rows[0]) + 2
        here = lines[lines["row"] == row]  # a reason names its first row only
        reasons = " or ".join((here if len(here) else lines)["reason"])
        raise InputError(f"the task {name!r:.60} cannot be replayed: {reasons}",
                         file="tasks.csv", row=row, mend="see sched-lab check")


def tell(found: Explanation | Recommendation | MigPlan, as_json: bool, *then: object,
         mark: str = "") -> None:
    """Print an answer, in JSON or in words that end with what to type next.

    Parameters
    ----------
    found : the answer
    as_json : whether a program reads it
    then, mark : as `conclude` takes them

    Raises
    ------
    typer.Exit : with code 1, if something cannot run
    """
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=1, ensure_ascii=False))
    else:
        typer.echo("".join(f"{line}\n" for line in found.lines()), nl=False)
        conclude(found.headline, *then, mark=mark)
    if not found.is_served:
        raise typer.Exit(1)


def is_small(tables: ClusterTables, most: int = 500) -> bool:
    """Whether a question is sooner answered than code for it is loaded: of at most so many tasks."""
    return len(tables.tasks) <= most


MOST_REPLAYED = 150_000  # tasks, times nodes and 25 more: one replay takes about as long as its code to load


FolderOrLive = Annotated[Path | None, typer.Argument(metavar="CLUSTER", parser=folder_named,
                                                     help="Folder that sched-lab read has written, unless --live.")]
Live = Annotated[str, option("Address of a running sched-lab serve, which is asked in place of CLUSTER; policy, watts and "
                             "target workload are its own.", metavar="URL")]
LiveToken = Annotated[Path | None, option(
    "File with the token that the bridge asks for. [default: that of this user's servers, if there is one]",
    "--token-file", metavar="FILE")]
LiveCa = Annotated[Path | None, option("Certificates (PEM) by which that of the bridge is checked. [default: the system's]",
                                       "--live-ca", metavar="FILE")]
LiveCert = Annotated[Path | None, option("Our certificate and its key (PEM), if the bridge asks for one.",
                                         "--live-cert", metavar="FILE")]
TaskName = Annotated[str, option("Name of the task, as in tasks.csv.", "--task", metavar="NAME")]
PolicyName = Annotated[str, policy_option(POLICIES)]
At = Annotated[float | None, moment_option(
    "The moment, seconds since the zero of the cluster. [default: the task's start; if it has not "
    "started, the last known moment]")]
State = Annotated[str, choice(
    "What was running then: what really ran, or what the policy itself would have placed. "
    "[default: recorded, if anything is]", ("", *STATES))]
GpuPower = Annotated[Path | None, option(
    "Watts of GPU models, to add or override: model, idle_w, full_w.")]
AsJson = Annotated[bool, option("Print JSON: every node, every GPU, every score.", "--json")]
ExplanationFolder = Annotated[Path | None, option(
    "Folder for nodes.csv, gpus.csv, summary.json and explanation.svg. [default: none]",
    metavar="DIR", parser=folder_named)]


def power_of_files(hardware: Path | None, gpu_power: Path | None) -> PowerSettings:
    """Power settings with watts of one's own."""
    gpu_w, cpu_w = watts_of_files(hardware, gpu_power)
    return PowerSettings("eq1", gpu_w or None, cpu_w or None)


def checksums(cluster: Path, **files: Path | None) -> dict[str, str]:
    """Checksums of all files that an answer depends on."""
    outages = cluster / OUTAGES if (cluster / OUTAGES).exists() else None
    paths = {"nodes": cluster / "nodes.csv", "tasks": cluster / "tasks.csv", "outages": outages, **files}
    return {name: sha256(path) for name, path in paths.items() if path}


def explain_live(url: str, task: str, policy: str, token_file: Path | None, ca: Path | None,
                 cert: Path | None) -> tuple[Explanation, dict[str, object]]:
    """Ask a running bridge for its cluster, and explain a pod of it as of now; the answer, and what was asked.

    Parameters
    ----------
    url, token_file, ca, cert : as `fetch_state` takes them
    task, policy : the pod; empty for the policy of the bridge
    """
    from ..live.state import explain_standing, fetch_state

    settings, standing = fetch_state(url, token_file, ca, cert)
    policy = policy or settings.policy
    found = explain_standing(settings, standing, url, task, policy)
    return found, {"task": task, "policy": policy, "live": url, "version": standing.version, "sched_lab": __version__}


def explain_command(task: TaskName, cluster: FolderOrLive = None, policy: PolicyName = "", at: At = None,
                    state: State = "", gpu_power: GpuPower = None,
                    hardware: HardwareFile = None, as_json: AsJson = False,
                    out: ExplanationFolder = None, force: Force = False,
                    no_charts: NoCharts = False, live: Live = "", token_file: LiveToken = None,
                    live_ca: LiveCa = None, live_cert: LiveCert = None) -> None:
    """Explain why a policy puts a task on a node, and what every other node lacks.

    For every node there is a line: what it lacks (vCPU, memory, GPUs, the GPU model, labels or
    taints), or its points, score by score and GPU by GPU. Then follow the runner-up, the weights
    with which the verdict would be another, and what would have to be freed. The exit code is 0 if
    a node can take the task, 1 if none can, and 2 if the question cannot be answered.

    The policy is fgd if none is given. With --live a running sched-lab serve says how its cluster stands now, and by
    its own policy the same answer is given for a pod.

    Example: sched-lab explain mycluster --task train-7 --policy pwr-fgd:0.1
    """
    policy_of(policy or "fgd")
    answer = Answer("explain", {}, ("nodes.csv", "gpus.csv"), ("explanation.svg",))
    if live:
        if cluster or state or gpu_power or hardware or at is not None:
            raise InputError("--live asks a bridge, and a folder, --at, --state and watts are of another answer",
                             mend="leave them out, or leave out --live")
        found, asked = explain_live(live, task, policy, token_file, live_ca, live_cert)
        if out is not None:
            answer_with(replace(answer, inputs=asked), out, found.report, force=force, no_charts=no_charts)
        return tell(found, as_json, "explain", "--live", live, "--task", task, "--json")
    if cluster is None:
        raise InputError("no cluster is named", mend="give the folder that sched-lab read has written, or --live URL")
    policy = policy or "fgd"
    tables = read_cluster_in_time(cluster)
    has_started = tables.tasks["start_s"][tables.tasks["name"] == task].notna().any()
    is_past = has_started if at is None else at < latest_s(tables)
    power = power_of_files(hardware, gpu_power)
    with interpreted(is_small(tables) or len(tables.tasks) * (25 + len(tables.nodes)) <= MOST_REPLAYED):
        tables = as_in_the_past(tables) if is_past else tables
        problem = problem_of(tables)
        check_task(tables, problem, task)
        schedule = schedule_for(problem, state, policy, power)
        at_s = at
        if tables.outages is not None:
            row = row_of_task(problem, task)
            at_s = moment_of(problem, schedule or recorded(problem), row) if at is None else at
            problem = problem_of(closed_at(tables, at_s))
        found = explain(problem, task, policy, at_s=at_s, schedule=schedule, power=power)
        if out is not None:
            asked = {"task": task, "policy": policy, "at": at, "state": state,
                     "files": checksums(cluster, gpu_power=gpu_power, hardware=hardware),
                     "sched_lab": __version__}
            answer_with(replace(answer, inputs=asked), out, found.report, force=force, no_charts=no_charts)
        then = ("place", cluster, "--out", "placed") if found.is_served else (
            "move", cluster, "--out", "moves")
        tell(found, as_json, *then)


NewTasks = Annotated[list[str] | None, option(
    "File with tasks, of any format; may be repeated.", "--tasks", metavar="FILE")]
Now = Annotated[float | None, moment_option(
    "The moment, seconds since the zero of the cluster. [default: the last known moment]")]
Seed = Annotated[int, option("Of a policy that draws.", min=0)]
PlacementsFolder = Annotated[Path, folder_option("placements.csv, ledger.csv and summary.json")]


def place_command(cluster: ClusterFolder, out: PlacementsFolder, tasks: NewTasks = None,
                  policy: PolicyName = "fgd", at: Now = None, seed: Seed = 0,
                  gpu_power: GpuPower = None, hardware: HardwareFile = None,
                  force: Force = False) -> None:
    """Place the next tasks on a cluster as it stands, by any policy.

    What runs at the moment stays where it is; tasks that wait come first, and then those of
    --tasks. **placements.csv** has task, node and GPUs, or why it found no place; **ledger.csv**
    what was interpreted in the new tasks.

    Example: sched-lab place mycluster --tasks next.csv --policy pwr-fgd:0.1 --out placements
    """
    policy_of(policy)
    tables = read_cluster_in_time(cluster)
    power = power_of_files(hardware, gpu_power)
    new = {f"new {number}": Path(path) for number, path in enumerate(tasks or ())}
    asked = {"policy": policy, "at": at, "seed": seed, "sched_lab": __version__,
             "files": checksums(cluster, gpu_power=gpu_power, hardware=hardware, **new)}

    def compute() -> Report:
        rows = read_files("auto", tasks).tasks if tasks else tables.tasks[:0]
        return place_tasks(tables, rows, policy, at_s=at, seed=seed, power=power).report()

    answer = Answer("place", asked, ("placements.csv", "ledger.csv"))
    with interpreted(is_small(tables)):
        about = answer_with(answer, out, compute, force=force, no_charts=True)
    if about["placed"] < about["tasks"]:
        name_next("move", cluster, "--out", f"{out}-moves")
    else:
        name_next("replay", cluster, "--policies", policy, "--out", f"{out}-replay")


Moves = Annotated[int, option("Most migrations.", min=1, max=1000)]
Goal = Annotated[str, choice("What they are for: whole GPUs freed, or watts saved.", GOALS,
                             "--for")]
PlanFolder = Annotated[Path, folder_option("moves.csv, fixed.csv, commands.sh and summary.json")]


def move_command(cluster: ClusterFolder, out: PlanFolder, at: Now = None, moves: Moves = 10,
                 goal: Goal = "gpus", gpu_power: GpuPower = None, hardware: HardwareFile = None,
                 force: Force = False) -> None:
    """Find a few migrations that free most whole GPUs, or save most watts.

    **moves.csv** has the moves in an order in which each finds room, and what each of them brings;
    **fixed.csv** the tasks that stay, each with the reason, such as a pod that no controller
    would make anew; **commands.sh** what a person can run, after reading it; **summary.json** what
    no plan of so many moves exceeds.

    Example: sched-lab move mycluster --moves 5 --for gpus --out plan
    """
    tables = read_cluster_in_time(cluster)
    power = power_of_files(hardware, gpu_power)
    with interpreted(is_small(tables, 100)):
        now_s = latest_s(tables)
        at_s = now_s if at is None else at
        problem = problem_of(closed_at(tables, at_s))
        closed = closed_nodes(problem if at_s >= now_s else problem_of(closed_at(tables, now_s)))
        schedule = recorded(problem)
    if not (schedule.node >= 0).any():
        raise nothing_recorded("give the nodes and the starts of tasks that run")
    asked = {"at": at, "moves": moves, "goal": goal, "sched_lab": __version__,
             "files": checksums(cluster, gpu_power=gpu_power, hardware=hardware)}

    def compute() -> Report:
        plan = plan_moves(problem, schedule, at_s, moves=moves, goal=goal, power=power)
        lines = commands_of(replace(plan, closed=closed), system_of(tables.about))
        return replace(plan.report(), texts={"commands.sh": "".join(f"{line}\n" for line in lines)})

    answer = Answer("move", asked, ("moves.csv", "fixed.csv", "commands.sh"))
    with interpreted(is_small(tables, 100)):
        answer_with(answer, out, compute, force=force, no_charts=True)
    name_next("place", cluster, "--out", f"{out}-next")


NodesFile = Annotated[str, option("Nodes, as kubectl get nodes -o json prints them, or of any "
                                  "other format of sched-lab read.", metavar="FILE")]
PodsFile = Annotated[str, option("Pods of all namespaces, running and pending, in the same way.",
                                 metavar="FILE")]
InJson = Annotated[bool, option("Print JSON.", "--json")]
AsMig = Annotated[bool, option(
    "Say instead how to cut GPUs for the pods that ask for MIG instances, and who must end first: "
    "a file for mig-parted. ResourceSlices and claims may be in the same files.", "--mig")]


def recommend_command(nodes: NodesFile, pods: PodsFile, policy: PolicyName = "fgd",
                      as_json: InJson = False, seed: Seed = 0, gpu_power: GpuPower = None,
                      mig: AsMig = False, hardware: HardwareFile = None) -> None:
    """Say where each pending pod of a dump should go, and what is in the way of those that cannot
    run.

    Nothing is changed. Pods are placed one after the other, those of higher priority first, so all
    that is said can be done together. The exit code is 0 if all can run, 1 if some cannot, and 2 if
    the files cannot be used.

    Example: sched-lab recommend --nodes nodes.json --pods pods.json --policy pwr-fgd:0.1
    """
    policy_of(policy)
    files = list(dict.fromkeys([nodes, pods]))
    then = ("read", "k8s", *files, "--out", "mycluster")
    if mig:
        plan = recommend_mig(read_mig(sources_of(files), hardware_of(hardware).migs))
        tell(plan, as_json, *then, mark="# ")
        return
    power = power_of_files(hardware, gpu_power)
    tables = read_files("auto", files)
    if not len(tables.nodes):
        raise InputError("there are no nodes in these files", file=nodes,
                         mend="give what kubectl get nodes -o json prints to --nodes")
    with interpreted(is_small(tables, 50)):
        found = recommend(tables, policy, power, seed)
    tell(found, as_json, *then)
