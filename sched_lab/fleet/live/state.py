"""What a running bridge says of its cluster, fetched over its own port and laid out as the tables of a dump."""

# A module, written by hand.

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Collection
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
from platformdirs import user_state_path

from ...cluster import Cluster, State, empty_state
from ...lab.access import Secret
from ...lab.frames import InputError
from ..ask.explain import Explanation, explain
from ..read.tables import WAITING, ClusterTables, Ledger, tables_of
from ..replay.problem import problem_of
from .core import LivePod, LiveSettings, Share, Standing, closed_on, key_of, left_on
from .journal import settings_in, standing_in

__all__ = ['fetch_state', 'explain_standing']

ANSWER_S = 30.0
LARGEST_ANSWER = 512 << 20


def fetch_state(url: str, token_file: Path | None = None, ca: Path | None = None,
                cert: Path | None = None) -> tuple[LiveSettings, Standing]:
    """What a bridge decides by, and how its cluster stands.

    Parameters
    ----------
    url : of the bridge, with http or https
    token_file : with the token that is shown; None for that of this user, if there is one
    ca : certificates by which that of the bridge is checked; None for those of the system
    cert : our certificate and its key, in one file

    Raises
    ------
    InputError : no bridge answers there in time, it refuses, or it is none
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r:.100} is no address of a bridge", mend="give such as http://127.0.0.1:8888")
    own = user_state_path("sched_lab") / "token"
    token_file = token_file or (own if own.is_file() else None)
    headers = {"Authorization": f"Bearer {Secret(token_file).current().decode()}"} if token_file else {}
    end_s = time.monotonic() + ANSWER_S
    try:
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=ca)
            if cert is not None:
                context.load_cert_chain(cert)
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=ANSWER_S / 3, context=context)
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=ANSWER_S / 3)
        connection.request("GET", "/state", headers=headers)
        answer = connection.getresponse()
        text = b""
        while chunk := answer.read(2**20):
            text += chunk
            if len(text) > LARGEST_ANSWER or time.monotonic() > end_s:
                raise TimeoutError(f"its answer is too long, or takes more than {ANSWER_S:g} s")
        connection.close()
        said = json.loads(text)
        if answer.status == 200:
            return settings_in(said), standing_in(said["standing"])
        why = f"it answers {answer.status}: {said['Error']!s:.300}"
    except (OSError, http.client.HTTPException, ValueError) as trouble:
        why = f"{type(trouble).__name__}: {trouble!s:.200}"
    except (KeyError, TypeError):
        why = "what answers is no bridge"
    raise InputError(f"no bridge answers at {url!r:.100} ({why})",
                     mend="see that sched-lab serve runs there and is ready, and give --token-file if it asks for a "
                     "token")


def rows_of(pod: LivePod, asked: str) -> list[dict[str, Any]]:
    """Rows of a pod in the table of tasks, one for each share; the first has its processors and memory.

    All have come at 0 s and all but the one that is asked about have started then, so that it comes after them.
    """
    row = {"name": pod.name, "cpu_milli": pod.cpu_milli, "memory_mib": pod.memory_mib, "gpu_models": pod.gpu_models,
           "constraints": pod.constraints, "node": pod.node, "job": pod.gang, "submit_s": 0.0,
           **({"start_s": float(pod.name == asked)} if pod.node else {"state": WAITING})}
    shares = pod.shares or (Share(0, 0),)
    rows = [{**row, "num_gpus": count, "gpu_milli": milli, "gpu_list": gpus} for count, milli, gpus in shares]
    rest = {"cpu_milli": 0, "memory_mib": 0, "constraints": ""}
    return rows if len(rows) == 1 else [
        {**one, **(rest if number else {}), "name": f"{pod.name}/{number}", "job": pod.name}
        for number, one in enumerate(rows)]


def overfull_nodes(standing: Standing, pod: str) -> set[str]:
    """Nodes of which other pods than this one hold more than there is; a bridge puts nothing there."""
    there: dict[str, dict[str, LivePod]] = {}
    for one in standing.held:
        if one.name != pod:
            there.setdefault(one.node, {})[key_of(one)] = one
    overfull = set()
    for node in standing.nodes:
        pods = there.get(node.name, {})
        cpu, memory, gpus, _ = left_on(node, pods)
        most_gpus = max((share.num_gpus for one in pods.values() for share in one.shares), default=0)
        if min(cpu, memory, *gpus) < 0 or most_gpus > len(gpus):
            overfull.add(node.name)
    return overfull


def most_left_of(cluster: Cluster, standing: Standing, overfull: Collection[str]) -> State:
    """What may be given of each node at most: nothing of closed GPUs, and nothing at all of overfull nodes."""
    most = empty_state(cluster)
    node_of = {node.name: node for node in standing.nodes}
    for row, name in enumerate(cluster.name):
        most.gpu_left_milli[row, list(closed_on(node_of[name]))] = 0
        for amount in most:
            amount[row] *= name not in overfull
    return most


def tables_of_standing(standing: Standing, url: str, pod: str, overfull: Collection[str]) -> ClusterTables:
    """Tables of a cluster as it stands: what holds something runs, what else is known waits.

    Parameters
    ----------
    standing, url : what a bridge said, and where it is
    pod : name of the one that is asked about
    overfull : nodes that are not asked what else is left of them; their pods stand there without amounts
    """
    held = [replace(one, cpu_milli=0, memory_mib=0, shares=()) if one.node in overfull and one.name != pod else one
            for one in standing.held]
    held.sort(key=lambda one: (any(not share.gpu_list for share in one.shares), key_of(one)))  # as `left_on` does
    keys = {key_of(one) for one in held}
    pods = [*held, *(one for one in standing.waiting if key_of(one) not in keys)]
    nodes = pd.DataFrame([asdict(node) for node in sorted(standing.nodes, key=lambda node: node.name)])
    tasks = pd.DataFrame([row for one in pods for row in rows_of(one, pod)])
    return tables_of(nodes, tasks, Ledger(), url)


def explain_standing(settings: LiveSettings, standing: Standing, url: str, pod: str, policy: str) -> Explanation:
    """Explain a pod of a bridge as of now, with the watts and the target workload of the bridge.

    Parameters
    ----------
    settings, standing, url : what the bridge said, and where it is
    pod : namespace/name, which must be there
    policy : that decides

    Raises
    ------
    InputError : the bridge knows no such pod
    """
    overfull = sorted(overfull_nodes(standing, pod))
    tables = tables_of_standing(standing, url, pod, overfull)
    if pod not in set(tables.tasks["name"]):
        waiting = [one.name for one in standing.waiting][:3]
        raise InputError(f"the bridge at {url!r:.100} knows no pod {pod!r:.80}", mend="give NAMESPACE/NAME of a pod "
                         f"that waits or runs{', such as ' if waiting else ''}{', '.join(waiting)}")
    problem = problem_of(tables)
    problem = replace(problem, target=settings.classes(), most_left=most_left_of(problem.cluster, standing, overfull))
    found = explain(problem, pod, policy, power=settings.power)
    return replace(found, about=found.about | {"overfull": overfull}) if overfull else found
