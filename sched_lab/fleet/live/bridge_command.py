"""`sched-lab serve` answers a live scheduler."""

# A module, written by hand.

from __future__ import annotations

import math
import re
import socket
import sys
import threading
import uuid
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

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
    option,
    within,
)
from ...lab.frames import InputError
from ...online.policies import policy_of
from ...traces import Tasks, models_of
from ..ask.questions import GpuPower, PolicyName, Seed, power_of_files
from ..read.reading import read_files
from ..read.tables import Ledger
from ..replay.problem import demands_of, draft_of, parts_of, refuse_empty, tasks_of
from .bridge import GPU_INDEX, MODES, ApiError, Bridge, BridgeSettings
from .core import LiveCluster, LiveSettings
from .events import Events
from .follow import CALL_S, CONNECT_S, KubernetesApi, follow
from .hami import HamiBridge
from .lease import Lease
from .journal import FILE_BYTES, KEEP, Journal, refuse_writing

__all__ = ['serve_command']


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

    group = pod


def server_of(kubeconfig: Path | None, nodes_in_request: bool,
              connect_s: float = CONNECT_S) -> KubernetesApi | NoServer:
    """The API server; a stand-in if no file is named, none is found and nodes need no watch.

    Raises
    ------
    InputError : there is no way to a server, and it is needed
    """
    try:
        return KubernetesApi(kubeconfig, connect_s)
    except InputError:
        if kubeconfig is not None or not nodes_in_request:
            raise
    return NoServer()


def make_folder(path: Path) -> None:
    """Make a folder for a journal, for its owner alone, if there is none.

    Raises
    ------
    OutputError : there cannot be one
    """
    try:
        path.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as trouble:
        refuse_writing(path, trouble.strerror or trouble)


LARGE_BODY = 256 << 20  # nodes of 50 KB each in a request, five thousand of them


Mode = Annotated[str, choice(
    "What is answered. observe: all nodes and equal points, and the journal says what would have "
    "been chosen; score: the nodes that can take the pod, and points; decide: one node, which is "
    "reserved, and the bind.", MODES)]
BRIDGES = {"openb": Bridge, "hami": HamiBridge}
DialectName = Annotated[str, choice(
    "Whose device plugin carries out decisions. openb: it reads --gpu-index-annotation; hami: it gets devices by "
    "name, and its node is locked until it has answered.", tuple(BRIDGES), "--dialect")]
Kubeconfig = Annotated[Path | None, option(
    "How to reach the API server. [default: the service account of the pod, or else the usual "
    "file]", metavar="FILE")]
NodesInRequest = Annotated[bool, option(
    "Learn nodes from requests (nodeCacheCapable: false) and not from a watch; without a way to "
    "the API server no pod that runs is known, and binds are refused.",
    "--nodes-in-request")]
JournalFile = Annotated[Path | None, option(
    "Write every event and decision there, one JSON object a line; sched-lab replay plays it "
    "again. A folder gets numbered files, each of which plays alone. [default: none]", "--journal",
    metavar="PATH")]
JournalSize = Annotated[int | None, option(
    "Write --journal as a folder, with a new file after so many MiB. [default: 64 in a folder]",
    min=1, metavar="MIB")]
AGE = re.compile(r"([1-9][0-9]{0,5})([hd]?)")
HOURS = {"h": 1, "d": 24}


def files_or_age(written: str) -> str:
    """How many files are kept, or for how long, checked."""
    if not AGE.fullmatch(written):
        raise typer.BadParameter(f"{written!r:.60} is no number of files and no age; give such as 20, 12h or 7d")
    return written


def kept(written: str) -> tuple[int, float]:
    """How many finished files are kept, and for how long, in seconds."""
    number, unit = AGE.fullmatch(written).groups()  # type: ignore[union-attr]
    return (sys.maxsize, 3600.0 * HOURS[unit] * int(number)) if unit else (int(number), math.inf)


JournalKeep = Annotated[str, option(
    "How many finished files of a folder are kept, compressed, or for how long: 7d, 12h. Files go when the next one begins.",
    metavar="FILES|AGE", callback=files_or_age)]
TargetFile = Annotated[str, option(
    "Tasks or pods whose popular classes are the target workload, of any format of sched-lab read. "
    "[default: embedded, like openb]", "--target", metavar="FILE")]
HasEvents = Annotated[bool, option(
    "Write an Event on each pod that is decided or refused, with the next best node, at most 20 a "
    "second.", "--events")]
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
GangTimeout = Annotated[float, option(
    "Age at which what is reserved for a group of pods that start together is given back, all that is not bound. 0: "
    "groups are not looked at, and each pod is decided alone.", metavar="SECONDS", callback=within(0, LONGEST_LAPSE_S))]
PAUSES_S = BridgeSettings().pauses_s
MARGIN_S = 5.5  # for the server to end what it has begun, and for the watch to tell
REST_S = (len(PAUSES_S) + 1) * (CONNECT_S + CALL_S) + sum(PAUSES_S) + MARGIN_S
Rest = Annotated[float | None, option("How long after its start nothing is answered, since a bind of an "
                               "earlier process may still land; not in mode observe. With --lease: "
                               f"how long before the end of a lease no bind is sent. [default: "
                               f"{REST_S:g}, or a third of --lease-seconds]",
                               metavar="SECONDS", callback=within(0, LONGEST_LAPSE_S))]


def lease_named(name: str) -> str:
    """Name of a lease, checked as Kubernetes checks it."""
    if name and not LEASE_NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r:.100} is no namespace and name; give one such as sched-lab/sched-lab")
    return name


LEADER_CONNECT_S = 1.5  # with `CALL_S`, less than a third of the shortest usual lease
LEASE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
LeaseName = Annotated[str, option(
    "Answer only while this Lease is ours, so that of several replicas one leads and another takes "
    "over. [default: there is one replica]", "--lease", metavar="NAMESPACE/NAME", callback=lease_named)]
LeaseSeconds = Annotated[int, option("How long a leader leads without renewing.", min=3, max=600,
                                     metavar="SECONDS")]


def lease_of(name: str, seconds: int, rest_s: float | None) -> Lease | None:
    """Our part in the election of a leader; None if there is one replica.

    Raises
    ------
    InputError : a leader could hardly ever bind
    """
    rest_s = seconds / 3 if rest_s is None else rest_s
    if name and rest_s > seconds / 2:
        raise InputError(f"--rest {rest_s:g} is more than half of --lease-seconds {seconds}",
                         mend="give a longer lease, or a shorter rest")
    holder = f"{socket.gethostname()}_{uuid.uuid4()}"
    return Lease(name, holder, seconds, rest_s) if name else None


def serve_command(mode: Mode = "observe", policy: PolicyName = "fgd", dialect: DialectName = "openb",
                  host: Host = "127.0.0.1", port: Port = 8888, kubeconfig: Kubeconfig = None,
                  nodes_in_request: NodesInRequest = False, journal: JournalFile = None,
                  journal_size: JournalSize = None, journal_keep: JournalKeep = str(KEEP),
                  token_file: TokenFile = None, tls_cert: TlsCert = None, tls_key: TlsKey = None,
                  client_ca: ClientCa = None, allow_host: AllowHost = None,
                  insecure: Insecure = False, target: TargetFile = "",
                  gpu_index_annotation: GpuIndex = GPU_INDEX, lapse: Lapse = 30.0,
                  gang_timeout: GangTimeout = 60.0,
                  rest: Rest = None, events: HasEvents = False, lease: LeaseName = "", lease_seconds: LeaseSeconds = 15,
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
    if dialect != "openb" and gpu_index_annotation != GPU_INDEX:
        raise InputError(f"--gpu-index-annotation is not read by the plugin of --dialect {dialect}",
                         mend="leave it out")
    settings = LiveSettings(policy, workload_in(target) if target else None,
                            power_of_files(hardware, gpu_power), lapse, seed, gang_timeout)
    leads = lease_of(lease, lease_seconds, rest)
    rest_s = REST_S if rest is None else rest
    api = server_of(kubeconfig, nodes_in_request and not lease and not events and dialect == "openb",
                    LEADER_CONNECT_S if lease else CONNECT_S)
    access = Access(host, port, token_file, tls_cert, tls_key, client_ca, allow_host or (),
                    insecure)
    with listen(access, "reserve GPUs and bind pods", asks=mode != "observe") as listener:
        if journal is not None and journal_size is not None:
            make_folder(journal)
        file_bytes = journal_size << 20 if journal_size else FILE_BYTES
        keep, keep_s = kept(journal_keep)
        bridge = BRIDGES[dialect](
            Journal(journal, LiveCluster(settings), file_bytes=file_bytes, keep=keep, keep_s=keep_s), mode,
            BridgeSettings(gpu_index_annotation, nodes_in_request, has_gangs=gang_timeout > 0))
        limits = (Limits(body_bytes=LARGE_BODY, held_bytes=2 * LARGE_BODY) if nodes_in_request
                  else Limits())
        has_rest = mode != "observe" and isinstance(api, KubernetesApi) and not lease
        extender = Extender(bridge, api, limits, warm=partial(warm_up, settings), details={
            "policy": policy, "target": target or "embedded", "lapse_s": lapse, "gang_s": gang_timeout, "seed": seed,
            "rest_s": leads.rest_s if leads else rest_s, "journal": journal,
            **({"gpu_index": gpu_index_annotation} if dialect == "openb" else {"dialect": dialect}),
            **({"lease": lease, "holder": leads.holder} if leads else {}),
        }, rest_s=rest_s if has_rest else 0.0, lease=leads)
        if events and isinstance(api, KubernetesApi):
            written = Events(api)
            bridge.hears = written.say
            threading.Thread(target=written.write, args=(extender.health.stopping,), daemon=True).start()
        if isinstance(api, KubernetesApi):
            extender.watch(api, partial(follow, objects=bridge.objects),
                           ("pods",) if nodes_in_request else ("nodes", "pods"))
        log_in_json()
        serve_until_the_end(extender, listener)
