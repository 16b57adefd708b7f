"""What a running bridge says of its cluster, fetched over its own port and laid out as the tables of a dump."""

# A module, written by hand.

from __future__ import annotations

import http.client
import json
import ssl
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pandas as pd
from platformdirs import user_state_path

from ...lab.access import Secret
from ...lab.frames import InputError
from ..read.tables import WAITING, ClusterTables, Ledger, tables_of
from ..replay.problem import Problem, problem_of
from .core import LivePod, LiveSettings, Share, Standing
from .journal import settings_in, standing_in

__all__ = ['fetch_state', 'live_problem']

ANSWER_S = 30.0
LARGEST_ANSWER = 512 << 20


def fetch_state(url: str, token_file: Path | None = None, ca: Path | None = None,
                cert: Path | None = None) -> tuple[LiveSettings, Standing]:
    """What a bridge decides by, and how its cluster stands.

    Parameters
    ----------
    url : of the bridge, such as http://127.0.0.1:8888
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


def tables_of_standing(standing: Standing, url: str, pod: str) -> ClusterTables:
    """Tables of a cluster as it stands: what holds something runs, what else is known waits.

    Parameters
    ----------
    standing, url : what a bridge said, and where it is
    pod : name of the one that is asked about
    """
    held = {one.uid or one.name for one in standing.held}
    pods = [*standing.held, *(one for one in standing.waiting if (one.uid or one.name) not in held)]
    nodes = pd.DataFrame([asdict(node) for node in sorted(standing.nodes, key=lambda node: node.name)])
    tasks = pd.DataFrame([row for one in pods for row in rows_of(one, pod)])
    return tables_of(nodes, tasks, Ledger(), url)


def live_problem(settings: LiveSettings, standing: Standing, url: str, pod: str) -> Problem:
    """The cluster of a bridge as a problem, with its target workload.

    Parameters
    ----------
    settings, standing, url : what the bridge said, and where it is
    pod : namespace/name, which must be there

    Raises
    ------
    InputError : the bridge knows no such pod
    """
    tables = tables_of_standing(standing, url, pod)
    if pod not in set(tables.tasks["name"]):
        waiting = [one.name for one in standing.waiting][:3]
        raise InputError(f"the bridge at {url!r:.100} knows no pod {pod!r:.80}", mend="give NAMESPACE/NAME of a pod "
                         f"that waits or runs{', such as ' if waiting else ''}{', '.join(waiting)}")
    return replace(problem_of(tables), target=settings.classes())
