"""`sched-lab andreas serve`: a job manager with due dates and energy prices, as a service that may be killed."""

# A module, written by hand.

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .._extras import need
from ..lab.access import Access, listen
from ..lab.commands import (
    AllowHost,
    ClientCa,
    Host,
    Insecure,
    Port,
    TlsCert,
    TlsKey,
    TokenFile,
    option,
    policy_option,
    within,
)
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


ClusterFile = Annotated[Path, option(
    "Nodes and cost_eur_per_h, as in the instance file; its jobs, if any, are not submitted.",
    "--cluster", metavar="FILE.json")]
Database = Annotated[str, option(
    "SQLite file, or URL such as mariadb://user@host/name or postgresql://...; made if it is "
    "absent.", metavar="FILE|URL", envvar="SCHED_LAB_DATABASE")]
PasswordFile = Annotated[Path | None, option(
    "Password of the user in the URL of --database, which others would see in a list of processes. "
    "It may also be in the URL in SCHED_LAB_DATABASE.", "--database-password-file",
    metavar="FILE")]
PolicyName = Annotated[str, policy_option(POLICIES)]
Period = Annotated[float, option("Longest time between two decisions (s).",
                                 callback=within(1, 86_400))]
Iterations = Annotated[int, typer.Option(min=1, max=10**5, help="Rounds of rg.")]
Wait = Annotated[float, option("For a database that is locked or does not answer (s).",
                               callback=within(0.1, 15))]
Queue = Annotated[int, typer.Option(min=1, max=100_000, help="Most unfinished jobs.")]

PACKAGES = ("sqlalchemy", "starlette", "uvicorn", "httptools", "uvloop", "orjson",
            "prometheus_client")


def with_password(database: str, file: Path | None) -> str:
    """URL of a database with the password in a file.

    Raises
    ------
    InputError : the file cannot be read, or the URL has no room for a password
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    if file is None:
        return database
    try:
        password = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the password cannot be read: {error}", file=file,
                         mend="give a file with the password alone") from None
    try:
        url = make_url(database)
    except (ArgumentError, ValueError):
        url = None
    if url is None or not url.username or url.password or not password:
        raise InputError("the password in it has no use", file=file,
                         mend="give --database a URL with a user and without a password, such as "
                         "mariadb://user@host/name, and a file that is not empty")
    return url.set(password=password).render_as_string(hide_password=False)


def andreas_serve_command(
        cluster: ClusterFile, database: Database = "andreas.db",
        database_password_file: PasswordFile = None, policy: PolicyName = "rg",
        period: Period = 300.0, max_iterations: Iterations = 200, wait: Wait = 5.0,
        queue: Queue = 2000, host: Host = "127.0.0.1", port: Port = 8890,
        token_file: TokenFile = None, tls_cert: TlsCert = None, tls_key: TlsKey = None,
        client_ca: ClientCa = None, allow_host: AllowHost = None,
        insecure: Insecure = False) -> None:
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
    from sched_lab.andreas.service import Bounds, Join
    from sched_lab.andreas.store import Store
    from sched_lab.lab.web import log_in_json, serve

    POLICIES.record(policy)
    if policy not in day_policies():
        raise InputError(f"policy {policy!r} decides once",
                         mend=f"choose one of {', '.join(day_policies())}")
    address = with_password(database, database_password_file)
    given = cluster_in(cluster)
    nodes = {node["id"]: Join(gpu=node["gpu"], num_gpus=node["num_gpus"])
             for node in given["nodes"]}
    access = Access(host, port, token_file, tls_cert, tls_key, client_ca, allow_host or (),
                    insecure)
    with listen(access, "submit and cancel jobs", asks=True) as listener:
        manager = Manager(
            Store(address, wait), given["cost_eur_per_h"], nodes,
            POLICIES.record(policy).scalar_form,
            SearchOptions(max_iterations=max_iterations, period_s=period), period_s=period,
            bounds=Bounds(queue=queue),
            about={"policy": policy, "period_s": period, "nodes": len(nodes)})
        log_in_json()
        serve(manager, listener)
