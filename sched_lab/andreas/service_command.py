"""`sched-lab andreas serve`: a job manager with due dates and energy prices, as a service that may be killed."""

# A module, written by hand.

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._extras import need
from ..lab import commands
from ..lab.access import Access, listen
from ..lab.frames import InputError, read_json
from .greedy import SearchOptions
from .model import parse_instance
from .policies import POLICIES, day_policies

__all__ = ['andreas_serve_command']


def cluster_in(file: Path) -> dict[str, Any]:
    """Nodes and prices of a file, checked.

    Raises
    ------
    InputError : as the instance file has it
    """
    value = read_json(file)
    if not isinstance(value, dict):
        raise InputError("this is no JSON object", file=file, mend="give nodes and cost_eur_per_h")
    keys = [name for name in ("nodes", "cost_eur_per_h") if name in value]
    given: dict[str, Any] = {name: value[name] for name in keys}
    parse_instance({**given, "jobs": []}, file)
    return given


ClusterFile = Annotated[Path, commands.option(
    "Nodes and cost_eur_per_h, as in the instance file; its jobs, if any, are not submitted.",
    "--cluster", metavar="FILE.json")]
Database = Annotated[Path, commands.option(
    "SQLite file with its jobs; made if it is absent.", metavar="FILE",
    envvar="SCHED_LAB_DATABASE")]
PolicyName = Annotated[str, commands.policy_option(POLICIES)]
Period = Annotated[float, commands.option(
    "Longest time between two decisions (s).", callback=commands.within(1, 86_400))]
Iterations = Annotated[int, typer.Option(min=1, max=10**5, help="Rounds of rg.")]
Wait = Annotated[float, commands.option(
    "For a database that is locked (s).", callback=commands.within(0.1, 15))]
Queue = Annotated[int, typer.Option(min=1, max=100_000, help="Most unfinished jobs.")]

PACKAGES = ("starlette", "uvicorn", "httptools", "uvloop", "orjson", "prometheus_client")


def andreas_serve_command(
        cluster: ClusterFile, database: Database = Path("andreas.db"),
        policy: PolicyName = "rg", period: Period = 300.0, max_iterations: Iterations = 200,
        wait: Wait = 5.0, queue: Queue = 2000, host: commands.Host = "127.0.0.1",
        port: commands.Port = 8890, token_file: commands.TokenFile = None,
        tls_cert: commands.TlsCert = None, tls_key: commands.TlsKey = None,
        client_ca: commands.ClientCa = None, allow_host: commands.AllowHost = None,
        insecure: commands.Insecure = False) -> None:
    """Run the job manager of ANDREAS as a service: submit, cancel and report jobs, read the plan.

    GET / describes it, with an OpenAPI document; /healthz and /readyz are for probes, /metrics for
    Prometheus. Whatever was answered is in the database: it may be killed at any moment, and goes
    on when it is started again. Every request may be repeated. SIGTERM ends it.

    Callers show a token or a certificate; without --token-file and --client-ca a token is made,
    and the log says where it is. What comes from a page in a browser, under another name than
    ours, or not as application/json is refused.

    Example: sched-lab andreas serve --cluster jobs.json --database jobs.db --policy local
    """
    need(*PACKAGES, extra="service")
    from sched_lab.andreas.http import Manager
    from sched_lab.andreas.service import Join
    from sched_lab.andreas.store import Store
    from sched_lab.lab.web import log_in_json, serve

    POLICIES.record(policy)
    if policy not in day_policies():
        raise InputError(f"policy {policy!r} decides once",
                         mend=f"choose one of {', '.join(day_policies())}")
    given = cluster_in(cluster)
    nodes = {node["id"]: Join(gpu=node["gpu"], num_gpus=node["num_gpus"])
             for node in given["nodes"]}
    access = Access(host, port, token_file, tls_cert, tls_key, client_ca, allow_host or (),
                    insecure)
    with listen(access, "submit and cancel jobs", asks=True) as listener:
        manager = Manager(
            Store(database, wait), given["cost_eur_per_h"], nodes,
            policy, SearchOptions(max_iterations=max_iterations, period_s=period), period_s=period,
            most_queued=queue,
            about={"policy": policy, "period_s": period, "nodes": len(nodes)})
        log_in_json()
        serve(manager, listener)
