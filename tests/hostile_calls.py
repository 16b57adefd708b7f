"""Hostile callers on a server that runs.

Starts `sched-lab serve` or `sched-lab andreas serve` on loopback and nowhere else, and asks it wrong questions by a
seed; what is no question at all, too long or too slow, tests/fleet/test_serve.py sends to the same layer. After each
attack the probes are answered, a right question gets a right answer, nothing says 500 or shows a traceback, and the
server's memory has not grown beyond a bound.
"""
import contextlib
import http.client
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.andreas.soak import CLUSTER
from tests.waiting import HANG_S

HOST = "127.0.0.1"  # of all that is called here
LIMIT_S = 120.0  # for any answer, on a machine that may be busy
MOST_GROWTH = 400 << 20  # bytes
REFUSED = {400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 429, 431, 503}
POD = {"metadata": {"name": "p", "namespace": "lab", "uid": "u"}, "spec": {"containers": []}}
NODE = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}}
WORDS: dict[str, list[str]] = {
    "serve": ["serve", "--nodes-in-request", "--mode", "decide", "--rest", "0", "--journal", "journal.jsonl"],
    "andreas": ["andreas", "serve", "--cluster", "cluster.json", "--policy", "greedy", "--database", "jobs.db"]}
# of each server: where a question goes, and a right one with its status
QUESTIONS: dict[str, tuple[str, dict[str, Any], int]] = {
    "serve": ("/filter", {"Pod": POD, "Nodes": {"items": [NODE]}}, 200),
    "andreas": ("/samples", {"id": "s", "application": "lstm", "batch": 32, "configuration": "TESLA,1", "epochs": 2,
                             "seconds": 20.0}, 201)}


class Violation(AssertionError):
    """The server did what it must not."""


@dataclass
class Target:
    """A server that runs, on this machine."""

    kind: str
    process: psutil.Process
    port: int
    headers: dict[str, str]

    @property
    def path(self) -> str:
        """Where questions go."""
        return QUESTIONS[self.kind][0]

    def ask(self, method: str, path: str, body: bytes | None = None,
            headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Return status and body of an answer; 0 if the server hung up."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=LIMIT_S)
        with contextlib.closing(connection), contextlib.suppress(ConnectionError, http.client.BadStatusLine):
            connection.request(method, path, body, self.headers | (headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        return 0, b""

    def refuses(self, found: tuple[int, bytes], what: str, also: tuple[int, ...] = (0,)) -> None:
        """Check an answer to something wrong."""
        status, text = found
        if status not in REFUSED and status not in also or b"Traceback" in text:
            raise Violation(f"{what}: {status} {text[:300]!r}")


Attack = Callable[[Target, random.Random], None]


BROKEN = [b"", b"{", b"[]", b"null", b"NaN", b'"x"', b"{'a': 1}", b'{"a": 1,}', b"\xff\xfe", b"\0", b'{"a": "\0"}',
          b'{"id": "\\ud800"}', b'{"id": "\\u0000"}', b"[" * 100_000, b'{"a":' * 100_000, b'{"a": 1e999}',
          b'{"a": ' + b"9" * 100_000 + b"}", b'{"a": 1}' * 2, b'{"\\udfff": 1}']
VALUES = [None, True, -1, 0, 1e308, 2**63, 2**70, -1e-320, "", "\0", "\u202e", "a" * 10_000, "\U0001f4a3", [], {}, [[]],
          {"a": {}}, "../..", "'; DROP TABLE job; --", "<script>"]


def broken_json(target: Target, chance: random.Random) -> None:
    """Send what is no JSON, or too deep."""
    for body in BROKEN:
        target.refuses(target.ask("POST", target.path, body), repr(body[:30]))


def paths_in(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a question."""
    yield here
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths_in(inner, (*here, key))


def wrong_values(target: Target, chance: random.Random) -> None:
    """Put a wrong value anywhere into a right question."""
    for _ in range(40):
        question = json.loads(json.dumps(QUESTIONS[target.kind][1]))
        *above, last = chance.choice([path for path in paths_in(question) if path])
        place = question
        for key in above:
            place = place[key]
        place[last] = chance.choice(VALUES)
        body = json.dumps(question).encode()
        target.refuses(target.ask("POST", target.path, body), repr(body[:200]), (0, 200, 201))


ATTACKS: list[Attack] = [broken_json, wrong_values]


def check_well(target: Target, attack: str, most_bytes: int) -> None:
    """Check that the server is as it should be after an attack."""
    for path in ("/healthz", "/readyz"):
        if target.ask("GET", path)[0] != 200:
            raise Violation(f"after {attack}: {path} is not well")
    path, question, status = QUESTIONS[target.kind]
    found = target.ask("POST", path, json.dumps(question).encode())
    if found[0] not in (status, 200):
        raise Violation(f"after {attack}: a right question gets {found}")
    if target.process.memory_info().rss > most_bytes:
        raise Violation(f"after {attack}: {target.process.memory_info().rss >> 20} MiB")


@contextlib.contextmanager
def running(kind: str, folder: Path) -> Iterator[Target]:
    """Run a server on loopback until the end of the block; it has to end in order, and say nothing bad."""
    (folder / "cluster.json").write_text(json.dumps(CLUSTER))
    log = folder / "log"
    environment = {**os.environ, "SCHED_LAB_COMPILE": "never", "XDG_STATE_HOME": str(folder / "state"),
                   "KUBECONFIG": str(folder / "none")}
    words = [sys.executable, "-m", "sched_lab", *WORDS[kind], "--host", HOST, "--port", "0"]
    with open(log, "wb") as file:
        process = subprocess.Popen(words, cwd=folder, stderr=file, env=environment)
    try:
        end_s = time.monotonic() + HANG_S
        said: dict[str, Any] = {}
        while "port" not in said:
            if process.poll() is not None or time.monotonic() > end_s:
                raise Violation(f"it does not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)
            lines = [line for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
            said = next((one for one in map(json.loads, lines) if one["message"] == "listening"), {})
        token = Path(said["token_file"]).read_text().strip()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        target = Target(kind, psutil.Process(process.pid), said["port"], headers)
        while target.ask("GET", "/readyz")[0] != 200:
            if process.poll() is not None or time.monotonic() > end_s:
                raise Violation(f"it is never ready: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield target
        process.terminate()
        if process.wait(HANG_S) != 0 or "traceback" in log.read_text().lower():
            raise Violation(f"it ended with {process.returncode}: {log.read_text()[-3000:]}")
    finally:
        process.kill()
        process.wait()


def attack_all(kind: str, seed: int, folder: Path) -> None:
    """Make each attack once.

    Raises
    ------
    Violation : the server did what it must not
    """
    chance = random.Random(seed)
    with running(kind, folder) as target:
        check_well(target, "the start", 1 << 60)
        most_bytes = target.process.memory_info().rss + MOST_GROWTH
        for attack in chance.sample(ATTACKS, len(ATTACKS)):
            attack(target, chance)
            check_well(target, attack.__name__, most_bytes)
