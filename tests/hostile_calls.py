"""Hostile callers on a server that runs.

Starts `sched-lab serve` or `sched-lab andreas serve` on loopback and nowhere else, and calls it in every wrong way by a
seed. After each attack the probes are answered, a right question gets a right answer, nothing says 500 or shows a
traceback, and the server's memory has not grown beyond a bound.
"""
import contextlib
import http.client
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.andreas.soak import CLUSTER

HOST = "127.0.0.1"  # of all that is called here
LIMIT_S = 30.0  # for any answer, on a machine that may be busy
MOST_SOCKETS = 300  # at once, more than the server takes
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

    def open(self, data: bytes = b"") -> socket.socket:
        """Open a connection and send this, as far as it goes."""
        one = socket.create_connection((HOST, self.port), timeout=LIMIT_S)
        with contextlib.suppress(OSError):
            one.sendall(data)
        return one

    def head(self, length: int, more: str = "") -> bytes:
        """Return the head of a right question."""
        named = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return f"POST {self.path} HTTP/1.1\r\nhost: {HOST}\r\n{named}content-length: {length}\r\n{more}\r\n".encode()

    def refuses(self, found: tuple[int, bytes], what: str, also: tuple[int, ...] = (0,)) -> None:
        """Check an answer to something wrong."""
        status, text = found
        if status not in REFUSED and status not in also or b"Traceback" in text:
            raise Violation(f"{what}: {status} {text[:300]!r}")


Attack = Callable[[Target, random.Random], None]


def heard(one: socket.socket) -> tuple[int, bytes]:
    """Return what a server says until it hangs up, and the status in it."""
    text = b""
    with contextlib.suppress(ConnectionError):
        while data := one.recv(65536):
            text += data
    return (int(text[9:12]) if text.startswith(b"HTTP/1.1 ") else 0), text


def many_connections(target: Target, chance: random.Random) -> None:
    """Hold all connections, idle or in the middle of a head."""
    first = chance.choice([b"", b"G", b"GET /nope HTTP/1.1\r\nhost: localhost\r\n", target.head(100)[:-2],
                           b"GET /nope HTTP/1.1\r\nhost: localhost\r\n\r\n"])
    crowd = [target.open(first) for _ in range(MOST_SOCKETS)]
    try:
        for _ in range(5):
            if target.ask("GET", "/healthz")[0] != 200:
                raise Violation("the probe is not answered while others hold the connections")
    finally:
        for one in crowd:
            one.close()


def slow_and_half(target: Target, chance: random.Random) -> None:
    """Send heads and bodies by drops, or go away in the middle."""
    whole = target.head(1000) + b"{"
    for _ in range(20):
        end = chance.randrange(1, len(whole))
        with target.open(whole[:end]) as one, contextlib.suppress(OSError):
            for byte in whole[end:end + 5]:
                one.send(bytes([byte]))


def huge_heads(target: Target, chance: random.Random) -> None:
    """Send heads beyond 64 KB, by one header or by thousands."""
    for line in (b"a: " + b"b" * 400_000 + b"\r\n", b"a:b\r\n" * 80_000, b"x" * 400_000):
        with target.open(target.head(2)[:-2] + line + b"\r\n{}") as one:
            target.refuses(heard(one), "a huge head")


def huge_bodies(target: Target, chance: random.Random) -> None:
    """Announce too much, send too much, or send it in endless chunks."""
    with target.open(target.head(1 << 40)) as one:
        target.refuses(heard(one), "a body that is announced too long")
    body = b'{"a": "' + b"x" * chance.randrange(1 << 20, 20 << 20)
    target.refuses(target.ask("POST", target.path, body), "a huge body without an end")
    chunked = target.head(0).replace(b"content-length: 0", b"transfer-encoding: chunked")
    for chunk in (b"1\r\nx\r\n" * 1000, b"zz\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"0\r\na: " + b"b" * 300_000):
        with target.open(chunked + chunk) as one:
            one.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                target.refuses(heard(one), f"chunks {chunk[:20]!r}")


def wrong_calls(target: Target, chance: random.Random) -> None:
    """Call by other methods, paths, names, pages, kinds and versions."""
    body = json.dumps(QUESTIONS[target.kind][1]).encode()
    for method in ("PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"):
        target.refuses(target.ask(method, target.path, body), method)
    for path in ("/nope", "/../etc/passwd", "/%2e%2e/x", "/%00", f"{target.path}/", "//", "/" + "a" * 10_000):
        target.refuses(target.ask("POST", path, body), path[:40])
    for headers in ({"Host": "evil.example"}, {"Host": "localhost.evil.example"}, {"Origin": "http://evil.example"},
                    {"Origin": "null"}, {"Content-Type": "text/plain"}, {"Content-Type": ""}, {"Expect": "x"},
                    {"Authorization": "Bearer wrong"}, {"Authorization": "Basic !"}, {"Authorization": ""}):
        also = (200, 201, 0) if "Expect" in headers else (0,)
        target.refuses(target.ask("POST", target.path, body, headers), str(headers), also)
    for line in (b"GET / HTTP/9.9\r\n\r\n", b"GET /\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"\0" * 2000,
                 chance.randbytes(3000) + b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
                 b"POST / HTTP/1.1\r\nhost: a\r\nhost: b\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"):
        with target.open(line) as one:
            target.refuses(heard(one), repr(line[:30]))


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


ATTACKS: list[Attack] = [many_connections, slow_and_half, huge_heads, huge_bodies, wrong_calls, broken_json,
                         wrong_values]


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
        end_s = time.monotonic() + 600
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
        if process.wait(60) != 0 or "traceback" in log.read_text().lower():
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
