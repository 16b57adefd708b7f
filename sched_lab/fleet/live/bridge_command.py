"""`sched-lab serve` answers a live scheduler; `recommend` says from a dump where each pending pod should go."""

# A module, written by hand.

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer

from ...hardware import hardware_of
from ...lab.access import Access, listen
from ...lab.commands import (
    AllowHost,
    ClientCa,
    HardwareFile,
    Host,
    Insecure,
    Port,
    TlsCert,
    TlsKey,
    TokenFile,
    choice,
    conclude,
    option,
    policy_option,
    within,
)
from ...lab.frames import InputError
from ...online.model import PowerSettings
from ...online.policies import POLICIES, policy_of
from ...traces import Tasks, models_of
from ..ask.explain import (
    REASONS,
    Moment,
    is_refused,
    lacks_of,
    moments_before,
    objections_of,
    settings_for,
    why_not,
)
from ..ask.mig_nodes import mig_advice
from ..ask.place import Placed, place_tasks
from ..ask.questions import GpuPower, power_of_files
from ..read.kubernetes import CLAIMS_MISSING
from ..read.reading import read_files
from ..read.tables import ClusterTables, Ledger
from ..replay.problem import (
    demands_of,
    draft_of,
    parts_of,
    refuse_empty,
    tasks_of,
    times_of,
)
from .bridge import GPU_INDEX, MODES, ApiError, Bridge, BridgeSettings
from .core import LiveCluster, LiveSettings
from .follow import CALL_S, CONNECT_S, KubernetesApi, follow
from .journal import Journal

__all__ = ['recommend_command', 'serve_command']


class Advice(NamedTuple):
    """Where a pod should go, or why it cannot run now.

    Parameters
    ----------
    pod : namespace and name
    node : its node, "" if there is none
    gpu_list : its GPUs there, such as "0-1"
    why : what is in the way; "" if nothing is
    """

    pod: str
    node: str
    gpu_list: str
    why: str

    def line(self) -> str:
        """The same for a person."""
        gpus = f", GPU {self.gpu_list}" if self.gpu_list else ""
        return f"{self.pod}: {self.node}{gpus}" if self.node else f"{self.pod}: {self.why}"


def pending_in(tables: ClusterTables) -> dict[str, int]:
    """Pods that wait for a node, by name, with their rows in the table."""
    tasks = tables.tasks
    waits = tasks["start_s"].isna() & tasks["end_s"].isna() & (tasks["node"] == "")
    return {str(tasks["name"].iloc[row]): int(row) for row in np.flatnonzero(waits)}


def refusal_of(tables: ClusterTables, row: int) -> str:
    """Why no problem can be made of a task; empty if it can."""
    ledger = Ledger()
    draft = draft_of("tasks.csv", tables.tasks.iloc[[row]], ledger)
    demands_of(draft)
    times_of(draft)
    said = ledger.frame()
    return "; ".join(said.loc[said["what"] == "refused", "reason"])


def obstacle(moment: Moment, placed: Placed, row: int) -> str:
    """What is in the way of a task on the nodes, counted, and the least of it in words."""
    lacks = lacks_of(moment)
    if not is_refused(lacks).all():
        return "a node has room, and others of its parts found none"
    count = np.sum([amount > 0 for amount in lacks.values()], axis=0)
    node = int(np.argmin(count))
    problem = placed.problem
    counted = ", ".join(f"{REASONS[reason]} {int((amount > 0).sum()):,}"
                        for reason, amount in lacks.items() if (amount > 0).any())
    about_node = {"gpu_model": problem.cluster.gpu_model[node],
                  "objection": objections_of(problem, row)[node]}
    words = why_not(moment, lacks, node, about_node, str(problem.tasks.gpu_spec[row]))
    return f"no node of {len(count):,} ({counted}); {problem.cluster.name[node]}: {words}"


def obstacles_of(placed: Placed, rows: Sequence[int], power: PowerSettings) -> dict[int, str]:
    """What is in the way of each of some tasks, by row."""
    problem = placed.problem
    settings = settings_for(problem, policy_of(placed.policy), power)
    is_held = placed.schedule.node >= 0
    moments = moments_before(problem, placed.schedule, rows, is_held, settings)
    return {row: obstacle(moment, placed, row) for row, moment in zip(rows, moments, strict=True)}


def advice_on(placed: Placed, power: PowerSettings, pods: Collection[str]) -> dict[str, Advice]:
    """Where the waiting tasks of a placement go, by pod; a task of several parts as one."""
    row_of = {str(name): row for row, name in enumerate(placed.problem.tasks.name)}
    table = placed.table
    lost = [row_of[name] for name in table.loc[table["node"] == "", "task"]]
    words = obstacles_of(placed, lost, power) if lost else {}
    found: dict[str, Advice] = {}
    for task, node, gpus in table[["task", "node", "gpu_list"]].itertuples(index=False):
        pod = task if task in pods else task.rpartition("/")[0]
        here = Advice(pod, node, gpus, words.get(row_of[task], ""))
        before = found.get(pod, here)
        if before is not here and before.node == node and node:
            here = here._replace(gpu_list=f"{before.gpu_list}-{gpus}")
        elif before is not here:
            here = Advice(pod, "", "", before.why or here.why or "its GPUs are on several nodes")
        found[pod] = here
    return found


def advise(tables: ClusterTables, policy: str, power: PowerSettings, seed: int) -> list[Advice]:
    """Where every pending pod should go, in the order of the table."""
    pending = pending_in(tables)
    missing = next((one for one in tables.ledger["reason"] if CLAIMS_MISSING in one), "")
    tasks = tables.tasks
    holds = tasks["num_gpus"].isna() & (tasks["node"] != "") & tasks["end_s"].isna()
    if missing and holds.any():
        raise InputError(f"pod {tasks['name'][holds].iloc[0]!r:.80} runs, and which GPUs it holds "
                         "is unknown", mend=missing)
    refused = {name: why for name, row in pending.items() if (why := refusal_of(tables, row))}
    if missing:
        refused = {name: missing if pd.isna(tasks["num_gpus"].iloc[pending[name]]) else why
                   for name, why in refused.items()}
    found: dict[str, Advice] = {}
    if len(refused) < len(pending):
        placed = place_tasks(tables, tables.tasks[:0], policy, seed=seed, power=power)
        found = advice_on(placed, power, pending.keys())
    return [found.get(name) or Advice(name, "", "", refused.get(name, "it does not wait any more"))
            for name in pending]


NodesFile = Annotated[str, option("Nodes, as kubectl get nodes -o json prints them, or of any "
                                  "other format of sched-lab read.", metavar="FILE")]
PodsFile = Annotated[str, option("Pods of all namespaces, running and pending, in the same way.",
                                 metavar="FILE")]
PolicyName = Annotated[str, policy_option(POLICIES)]
AsJson = Annotated[bool, option("Print JSON.", "--json")]
AsMig = Annotated[bool, option(
    "Say instead how to cut GPUs for the pods that ask for MIG instances, and who must end first: "
    "a file for mig-parted. ResourceSlices and claims may be in the same files.", "--mig")]
Seed = Annotated[int, option("Of a policy that draws.", min=0)]


def recommend_command(nodes: NodesFile, pods: PodsFile, policy: PolicyName = "fgd",
                      as_json: AsJson = False, seed: Seed = 0, gpu_power: GpuPower = None,
                      mig: AsMig = False, hardware: HardwareFile = None) -> None:
    """Say where each pending pod of a dump should go, and what is in the way of those that cannot
    run.

    Nothing is changed. Pods are placed one after the other, those of higher priority first, so all
    that is said can be done together. The exit code is 0 if all can run, 1 if some cannot, and 2 if
    the files cannot be used.

    Example: sched-lab recommend --nodes nodes.json --pods pods.json --policy pwr-fgd:0.1
    """
    policy_of(policy)
    if mig:
        files = list(dict.fromkeys([nodes, pods]))
        text, said, is_served = mig_advice(files, as_json, hardware_of(hardware).migs)
        typer.echo(text, nl=as_json)
        if not as_json:
            conclude(said, "read", "k8s", *files, "--out", "mycluster", mark="# ")
        raise typer.Exit(0 if is_served else 1)
    power = power_of_files(hardware, gpu_power)
    tables = read_files("auto", list(dict.fromkeys([nodes, pods])))
    if not len(tables.nodes):
        raise InputError("there are no nodes in these files", file=nodes,
                         mend="give what kubectl get nodes -o json prints to --nodes")
    advice = advise(tables, policy, power, seed)
    run = sum(one.node != "" for one in advice)
    if as_json:
        told = [one._asdict() for one in advice]
        typer.echo(json.dumps({"policy": policy, "pods": told}, indent=1, ensure_ascii=False))
    else:
        lines = [one.line() for one in advice]
        typer.echo("".join(f"{line}\n" for line in lines), nl=False)
        conclude(f"{policy}: {run} of {len(advice)} pending pods can run",
                 "read", "k8s", *dict.fromkeys([nodes, pods]), "--out", "mycluster")
    if run < len(advice):
        raise typer.Exit(1)


def workload_in(file: str) -> Tasks:
    """Tasks of a file, of any format, as a target workload.

    Raises
    ------
    InputError : there is no task in it that asks for something possible
    """
    tables = read_files("auto", [file])
    draft = draft_of(file, tables.tasks, Ledger())
    demands = demands_of(draft)
    refuse_empty(draft, "there are no tasks", "give a file that has some")
    models = ["|".join(models_of(text)) for text in draft.columns.texts("gpu_models")]
    specs = np.where(demands.num_gpus > 0, np.array(models, object), "")
    any_cpu = np.full(len(specs), "", object)
    return tasks_of(draft, demands, parts_of(draft, demands), (specs, any_cpu))


class NoServer:
    """Stands in for an API server that there is no way to: every call is refused."""

    def bind(self, *arguments: Any) -> None:
        """Refuse a bind."""
        raise ApiError(403, "no way to the API server; give --kubeconfig FILE")

    def pod(self, *arguments: Any) -> None:
        """Refuse a look, in the same words."""
        self.bind()


def server_of(kubeconfig: Path | None, nodes_in_request: bool) -> KubernetesApi | NoServer:
    """The API server; a stand-in if no file is named, none is found and nodes need no watch.

    Raises
    ------
    InputError : there is no way to a server, and it is needed
    """
    try:
        return KubernetesApi(kubeconfig)
    except InputError:
        if kubeconfig is not None or not nodes_in_request:
            raise
    return NoServer()


LARGE_BODY = 256 << 20  # nodes of 50 KB each in a request, five thousand of them


Mode = Annotated[str, choice(
    "What is answered. observe: all nodes and equal points, and the journal says what would have "
    "been chosen; score: the nodes that can take the pod, and points; decide: one node, which is "
    "reserved, and the bind.", MODES)]
Kubeconfig = Annotated[Path | None, option(
    "How to reach the API server. [default: the service account of the pod, or else the usual "
    "file]", metavar="FILE")]
NodesInRequest = Annotated[bool, option(
    "Learn nodes from requests (nodeCacheCapable: false) and not from a watch; without a way to "
    "the API server no pod that runs is known, and binds are refused.",
    "--nodes-in-request")]
JournalFile = Annotated[Path | None, option(
    "Write every event and decision there, one JSON object a line; sched-lab replay plays it "
    "again. [default: none]", "--journal", metavar="FILE")]
TargetFile = Annotated[str, option(
    "Tasks or pods whose popular classes are the target workload, of any format of sched-lab read. "
    "[default: embedded, like openb]", "--target", metavar="FILE")]
PART = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
ANNOTATION = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{PART}")


def annotation_named(name: str) -> str:
    """Name of an annotation, checked as Kubernetes checks it."""
    if not ANNOTATION.fullmatch(name):
        raise typer.BadParameter(f"{name!r:.100} is no name of an annotation; give one such as "
                                 f"{GPU_INDEX}")
    return name


GpuIndex = Annotated[str, option("Annotation that gets the GPUs of a pod.",
                                 "--gpu-index-annotation", metavar="NAME",
                                 callback=annotation_named)]
LONGEST_LAPSE_S = 3600
Lapse = Annotated[float, option("Age at which a reservation that is not bound lapses, in seconds.",
                                metavar="SECONDS", callback=within(1, LONGEST_LAPSE_S))]
PAUSES_S = BridgeSettings().pauses_s
MARGIN_S = 5.5  # for the server to end what it has begun, and for the watch to tell
REST_S = (len(PAUSES_S) + 1) * (CONNECT_S + CALL_S) + sum(PAUSES_S) + MARGIN_S
Rest = Annotated[float, option("How long after its start nothing is answered, since a bind of an "
                               "earlier process may still land; not in mode observe.",
                               metavar="SECONDS", callback=within(0, LONGEST_LAPSE_S))]


def serve_command(mode: Mode = "observe", policy: PolicyName = "fgd", host: Host = "127.0.0.1",
                  port: Port = 8888, kubeconfig: Kubeconfig = None,
                  nodes_in_request: NodesInRequest = False, journal: JournalFile = None,
                  token_file: TokenFile = None, tls_cert: TlsCert = None, tls_key: TlsKey = None,
                  client_ca: ClientCa = None, allow_host: AllowHost = None,
                  insecure: Insecure = False, target: TargetFile = "",
                  gpu_index_annotation: GpuIndex = GPU_INDEX, lapse: Lapse = 30.0,
                  rest: Rest = REST_S,
                  gpu_power: GpuPower = None, hardware: HardwareFile = None,
                  seed: Seed = 0) -> None:
    """Answer a live kube-scheduler as its extender, by any policy.

    Endpoints are /filter, /prioritize and /bind, /healthz and /readyz for probes, and /metrics for
    Prometheus. The log is JSON, a line each, on standard error. SIGTERM ends it: not ready first,
    then what runs is finished and the journal is written out.

    In decide and score, callers show a token or a certificate; without --token-file and
    --client-ca a token is made, and the log says where it is. What comes from a page in a browser,
    under another name than ours, or not as application/json is refused.

    Example: sched-lab serve --policy pwr-fgd:0.1 --journal decisions.jsonl
    """
    from ...lab.web import Limits, log_in_json
    from ...lab.web import serve as serve_until_the_end
    from .serve import Extender, warm_up

    policy_of(policy)
    settings = LiveSettings(policy, workload_in(target) if target else None,
                            power_of_files(hardware, gpu_power), lapse, seed)
    api = server_of(kubeconfig, nodes_in_request)
    access = Access(host, port, token_file, tls_cert, tls_key, client_ca, allow_host or (),
                    insecure)
    with listen(access, "reserve GPUs and bind pods", asks=mode != "observe") as listener:
        bridge = Bridge(Journal(journal, LiveCluster(settings)), mode,
                        BridgeSettings(gpu_index_annotation, nodes_in_request))
        limits = (Limits(body_bytes=LARGE_BODY, held_bytes=2 * LARGE_BODY) if nodes_in_request
                  else Limits())
        has_rest = mode != "observe" and isinstance(api, KubernetesApi)
        extender = Extender(bridge, api, limits, warm=partial(warm_up, settings), details={
            "policy": policy, "target": target or "embedded", "lapse_s": lapse, "seed": seed,
            "rest_s": rest, "journal": journal, "gpu_index": gpu_index_annotation,
        }, rest_s=rest if has_rest else 0.0)
        if isinstance(api, KubernetesApi):
            extender.watch(api, partial(follow, objects=bridge.objects),
                           ("pods",) if nodes_in_request else ("nodes", "pods"))
        log_in_json()
        serve_until_the_end(extender, listener)
