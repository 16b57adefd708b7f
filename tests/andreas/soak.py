"""Submit, report, cancel and repeat while the service is killed.

Clients repeat each request until it is answered, and remember what they were told. In the end the database must have
exactly that: every job, every epoch, every cancellation, once.
"""
import contextlib
import http.client
import json
import multiprocessing
import random
import socket
import sqlite3
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLUSTER = {"nodes": [{"id": f"v{k}", "gpu": "TESLA", "num_gpus": 2} for k in range(4)]
           + [{"id": f"t{k}", "gpu": "TURING", "num_gpus": 1} for k in range(2)],
           "cost_eur_per_h": {"TESLA,1": 0.12, "TESLA,2": 0.16, "TURING,1": 0.09}}
GPUS = {node["id"]: node["num_gpus"] for node in CLUSTER["nodes"]}
MOST_OPEN = 10     # jobs of one client that are not over
PATIENCE_S = 120   # for one answer, kills included


class Violation(AssertionError):
    """The service has broken a promise."""


class Service:
    """The process that is killed."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        (folder / "cluster.json").write_text(json.dumps(CLUSTER))
        self.words = ["andreas", "serve", "--cluster", str(folder / "cluster.json"), "--database", database,
                      "--policy", "greedy", "--port", str(self.port), "--period", "5", "--insecure"]
        self.forking = multiprocessing.get_context("forkserver")
        self.forking.set_forkserver_preload(["tests.andreas.soak_service"])
        self.start()

    def start(self) -> None:
        self.process = self.forking.Process(target=serve, args=(self.words, self.folder / "log"))
        self.process.start()

    def kill(self) -> None:
        if not self.process.is_alive():
            raise Violation(f"the service ended by itself: {(self.folder / 'log').read_text()[-3000:]}")
        self.process.kill()   # SIGKILL
        self.process.join()

    def stop(self) -> int | None:
        self.process.terminate()
        self.process.join(60)
        return self.process.exitcode


class Caller:
    """One connection, and patience."""

    def __init__(self, port: int, token: str = "") -> None:
        self.port = port
        self.headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        self.connection: http.client.HTTPConnection | None = None

    def once(self, method: str, path: str, body: object) -> tuple[int, dict[str, Any]]:
        self.connection = self.connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self.connection.request(method, path, json.dumps(body) if body is not None else None, self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.headers.get("connection") == "close":
            self.forget()
        return answer.status, json.loads(text)

    def forget(self) -> None:
        if self.connection:
            self.connection.close()
        self.connection = None

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Repeat a request until it is answered."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                status, answer = self.once(method, path, body)
                if status not in (500, 503):
                    return status, answer
                if status == 500:
                    raise Violation(f"{method} {path}: {answer}")
            self.forget()
            time.sleep(0.02)
        raise Violation(f"{method} {path} was not answered for {PATIENCE_S} s")


def serve(words: list[str], log: Path) -> None:
    """Be the service; only the process that forks imports its module, which leaves all code interpreted."""
    from tests.andreas import soak_service

    soak_service.run(words, log)


@dataclass
class Told:
    """What a client was told about a job."""

    given: dict[str, Any]
    epochs_done: int = 0
    sequence: int = 0
    is_cancelled: bool = False

    @property
    def is_over(self) -> bool:
        return self.is_cancelled or self.epochs_done == self.given["epochs"]


@dataclass
class Client:
    """Works on jobs of its own, by a seed."""

    name: str
    submissions: int
    caller: Caller
    random: random.Random
    told: dict[str, Told] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    trouble: BaseException | None = None

    def run(self) -> None:
        try:
            while len(self.told) < self.submissions or self.open:
                self.act()
        except BaseException as error:
            self.trouble = error
        self.caller.forget()

    def act(self) -> None:
        may_submit = len(self.told) < self.submissions and len(self.open) < MOST_OPEN
        if may_submit and (not self.open or self.random.random() < 0.4):
            self.submit()
        else:
            job = self.random.choice(self.open)
            self.cancel(job) if self.random.random() < 0.05 else self.report(job)
        if self.random.random() < 0.1 and self.told:
            self.repeat(self.random.choice(list(self.told)))

    def expect(self, status: int, wanted: tuple[int, ...], answer: dict[str, Any], job: str) -> None:
        told = self.told.get(job)
        if status not in wanted:
            raise Violation(f"{job}: {status} {answer}, after {told}")
        if told and (answer["epochs_done"], answer["sequence"]) < (told.epochs_done, told.sequence):
            raise Violation(f"{job} went back: {answer}, after {told}")

    def submit(self) -> None:
        job = f"{self.name}-{len(self.told)}"
        given = {"id": job, "application": self.random.choice(["lstm", "conv"]), "batch": 32,
                 "epochs": self.random.randint(1, 4), "due_s": 2e9 + self.random.randint(0, 1000),
                 "weight_eur_per_s": 3e-4}
        status, answer = self.caller.ask("POST", "/jobs", given)
        self.expect(status, (200, 201), answer, job)
        self.told[job] = Told(given)
        self.open.append(job)

    def report(self, job: str) -> None:
        told = self.told[job]
        done = self.random.randint(told.epochs_done, told.given["epochs"])
        body = {"sequence": told.sequence + 1, "epochs_done": done}
        status, answer = self.caller.ask("POST", f"/jobs/{job}/reports", body)
        self.expect(status, (200,), answer, job)
        told.sequence += 1
        told.epochs_done = done
        if told.is_over:
            self.open.remove(job)

    def cancel(self, job: str) -> None:
        status, answer = self.caller.ask("DELETE", f"/jobs/{job}")
        self.expect(status, (200,), answer, job)
        self.told[job].is_cancelled = True
        self.open.remove(job)

    def repeat(self, job: str) -> None:
        """Send something again that was answered long ago."""
        told = self.told[job]
        choice = self.random.randrange(3)
        if choice == 0:
            status, answer = self.caller.ask("POST", "/jobs", told.given)
        elif choice == 1 and told.sequence:
            old = {"sequence": self.random.randint(1, told.sequence), "epochs_done": 0}
            status, answer = self.caller.ask("POST", f"/jobs/{job}/reports", old)
        elif told.is_cancelled:
            status, answer = self.caller.ask("DELETE", f"/jobs/{job}")
        else:
            return
        self.expect(status, (200,), answer, job)


def check_plan(caller: Caller, clients: list[Client], version: int) -> int:
    """No node is overfull, nobody runs who is over, and the version does not go back."""
    over = {job for client in clients for job, told in list(client.told.items()) if told.is_over}
    plan = caller.ask("GET", "/plan")[1]
    used: dict[str, int] = {}
    for run in plan["running"]:
        used[run["node"]] = used.get(run["node"], 0) + run["gpus"]
    if wrong := [node for node in used if used[node] > GPUS[node]]:
        raise Violation(f"{wrong} are overfull: {plan}")
    if wrong := over & {run["id"] for run in plan["running"]} | over & set(plan["waiting"]):
        raise Violation(f"{wrong} are over, and in the plan")
    if plan["version"] < version:
        raise Violation(f"version {plan['version']} after {version}")
    return int(plan["version"])


def check_end(database: str, clients: list[Client]) -> None:
    """Check that the database has what clients were told, no more and no less."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        rows = {row["id"]: row for row in connection.execute("SELECT * FROM job")}
        diary = [dict(row) for row in connection.execute("SELECT * FROM decision")]
    told = {job: known for client in clients for job, known in client.told.items()}
    if rows.keys() != told.keys():
        raise Violation(f"lost {sorted(told.keys() - rows.keys())[:5]}, new {sorted(rows.keys() - told.keys())[:5]}")
    for job, known in told.items():
        row = rows[job]
        is_cancelled = row["end_s"] is not None and row["epochs_done"] < row["epochs"]
        found = ({name: row[name] for name in known.given}, row["epochs_done"], row["sequence"], is_cancelled)
        if found != (known.given, known.epochs_done, known.sequence or 0, known.is_cancelled):
            raise Violation(f"{job}: the database has {found}, the client was told {known}")
    for line in diary:
        end_s = rows[line["job"]]["end_s"]
        if line["node"] is not None and end_s is not None and line["now_s"] > end_s:
            raise Violation(f"{line['job']} was placed after its end: {line}")


def teach(caller: Caller) -> None:
    """Send the samples of two applications, and wait until they are taken in."""
    for application, seconds in (("lstm", (40.0, 30.0, 110.0)), ("conv", (20.0, 18.0, 41.0))):
        for configuration, each in zip(("TESLA,1", "TESLA,2", "TURING,1"), seconds, strict=True):
            body = {"id": f"{application}-{configuration.replace(',', '-')}", "application": application, "batch": 32,
                    "configuration": configuration, "epochs": 1, "seconds": each}
            assert caller.ask("POST", "/samples", body)[0] in (200, 201)


def soak(submissions: int, kills: int, seed: int, database: str, folder: Path) -> tuple[int, int, int]:
    """Run clients against a service that is killed; jobs, kills and versions of the plan, if nothing was lost.

    Raises
    ------
    Violation : something was
    """
    chance = random.Random(seed)
    service = Service(folder, database)
    watcher = Caller(service.port)
    teach(watcher)
    counts = [submissions // 4 + (k < submissions % 4) for k in range(4)]
    clients = [Client(f"c{k}", count, Caller(service.port), random.Random(seed * 100 + k))
               for k, count in enumerate(counts)]
    threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    due = sorted(chance.randrange(submissions) for _ in range(kills))
    killed = version = 0
    look_at_s = 0.0
    try:
        while any(thread.is_alive() for thread in threads):
            stored = sum(len(client.told) for client in clients)
            if due and stored >= due[0]:
                is_twice = len(due) > 1 and chance.random() < 0.1  # once more while it starts
                for pause_s in (0.1, 2.0)[:1 + is_twice]:
                    due.pop(0)
                    time.sleep(chance.random() * pause_s)
                    service.kill()
                    killed += 1
                    service.start()
            if time.monotonic() > look_at_s:
                version = check_plan(watcher, clients, version)
                look_at_s = time.monotonic() + 0.3
            time.sleep(0.01)
        for client in clients:
            if client.trouble:
                raise client.trouble
        status = service.stop()
    finally:
        watcher.forget()
        service.process.kill()
        service.process.join()
    if status not in (0, 143):
        raise Violation(f"the service ended with {status}")
    check_end(database, clients)
    return len([job for client in clients for job in client.told]), killed, version
