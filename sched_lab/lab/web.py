"""Limits, secrets, probes and an orderly end: the part of HTTP that is not about scheduling."""

# A module, written by hand.

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import ipaddress
import json
import logging
import math
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .frames import InputError

__all__ = ['Limits', 'Address']


@dataclass(frozen=True)
class Limits:
    """What callers may take, one by one and together.

    Parameters
    ----------
    body_bytes, header_bytes : longest body, and most of a request before it
    held_bytes : bodies of all callers together
    header_s, body_s : to send the head of a request, and its body
    answer_s, idle_s : from its head to the end of the answer; and without a request
    connections, requests, events : open, in work, and heard of the cluster but not yet applied
    drain_s, finish_s : after a request to end: still answering, and then finishing what runs
    """

    body_bytes: int = 16 << 20
    header_bytes: int = 64 << 10
    held_bytes: int = 64 << 20
    header_s: float = 10.0
    body_s: float = 10.0
    answer_s: float = 60.0
    idle_s: float = 120.0
    connections: int = 256
    requests: int = 64
    events: int = 10_000
    drain_s: float = 2.0
    finish_s: float = 20.0


CHUNK_BYTES = 256 << 10  # most that uvloop reads at once


class BoundedProtocol(HttpToolsProtocol):
    """HTTP of uvicorn, with an end to everything."""

    limits: Limits
    alarm: asyncio.TimerHandle | None = None
    is_asking = True  # the head of a request has not come yet
    received = 0  # bytes of this request

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note who calls, and hang up if there are too many."""
        self.limits = self.app_state["limits"]
        has_certificate = bool(transport.get_extra_info("peercert"))
        self.app_state = {**self.app_state, "has_certificate": has_certificate}
        super().connection_made(transport)
        self.wait(self.limits.header_s)
        if len(self.connections) > self.limits.connections:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the alarm off."""
        if self.alarm:
            self.alarm.cancel()
        super().connection_lost(exc)

    def wait(self, seconds: float) -> None:
        """Set the alarm anew."""
        if self.alarm:
            self.alarm.cancel()
        self.alarm = self.loop.call_later(seconds, self.refuse, b"408 Request Timeout")

    def refuse(self, status: bytes) -> None:
        """Say why if the caller listens, and hang up."""
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()
            return
        if self.cycle is None or self.cycle.response_complete or self.is_asking:
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n"
                                 b"connection: close\r\n\r\n")
        self.transport.close()


class BoundedRequests(BoundedProtocol):
    """The same, for each request of a connection."""

    def on_message_begin(self) -> None:
        """Wait for the head of a request."""
        super().on_message_begin()
        self.is_asking = True
        self.received = 0
        self.wait(self.limits.header_s)

    def on_headers_complete(self) -> None:
        """Wait for our own answer."""
        self.is_asking = False
        self.wait(self.limits.answer_s)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the caller to fetch the answer."""
        self.is_asking = True
        self.wait(self.limits.idle_s)
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        """Count what comes: the head alone, or all of a request with its chunks and trailers."""
        self.received += len(data)
        super().data_received(data)
        most = self.limits.header_bytes + (0 if self.is_asking else self.limits.body_bytes)
        if self.received > most + CHUNK_BYTES:
            self.refuse(b"431 Request Header Fields Too Large" if self.is_asking
                        else b"413 Content Too Large")


Stamp = tuple[int, int, int]


def stamp_of(path: Path) -> Stamp:
    """What changes when a file is written or replaced, through links as well."""
    found = os.stat(path)
    return found.st_mtime_ns, found.st_ino, found.st_size


def shown_by(authorization: str) -> bytes:
    """The secret in a header: a bearer token, or the password of "Basic"; empty if none."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip().encode("latin-1", "replace")
    if scheme.lower() == "basic":
        with contextlib.suppress(binascii.Error, ValueError):
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
    return b""


class Secret:
    """A token in a file, read again when the file changes.

    Parameters
    ----------
    path : the file; white space around the token does not count

    Raises
    ------
    InputError : it cannot be read, or is empty
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamp: Stamp | None = None
        self.token = b""
        try:
            is_empty = not self.current()
        except OSError as error:
            raise InputError(f"it cannot be read: {error.strerror}", file=path) from error
        if is_empty:
            raise InputError("there is no token in it", file=path,
                             mend="write for instance 32 random bytes in hexadecimal")

    def current(self) -> bytes:
        """The token as the file has it now."""
        stamp = stamp_of(self.path)
        if stamp != self.stamp:
            self.token = self.path.read_bytes().strip()
            self.stamp = stamp
        return self.token

    def is_shown_by(self, authorization: str) -> bool:
        """Whether a header shows the token; nobody does while the file cannot be read."""
        try:
            token = self.current()
        except OSError as error:
            LOG.error("the token cannot be read: %s", error)
            return False
        return bool(token) and hmac.compare_digest(token, shown_by(authorization))


def check_address(host: str, is_guarded: bool, harm: str) -> None:
    """Refuse to listen where others can reach us, if anybody may ask.

    Parameters
    ----------
    host : name or address to listen on
    is_guarded : whether a token or a client's certificate is asked for
    harm : what anybody could do who reaches us

    Raises
    ------
    InputError : others can reach it, and nothing is asked for
    """
    try:
        is_ours = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_ours = host == "localhost"
    if not (is_ours or is_guarded):
        raise InputError(f"whoever reaches {host} could {harm}", value=host,
                         mend="give --token-file or --client-ca, or --insecure if a network "
                         "policy lets nobody in who may not ask")


LOG = logging.getLogger("sched_lab.serve")


class JsonLines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Time in UTC, level, message, and the fields given as `extra={"fields": ...}`."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {"at": f"{at}.{int(record.msecs):03d}Z", "level": record.levelname.lower(),
                "message": record.getMessage(), **getattr(record, "fields", {})}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_in_json() -> None:
    """Log in JSON lines on standard error, ours and errors of the server."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name, level in (("sched_lab.serve", logging.INFO), ("uvicorn.error", logging.ERROR)):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False


class Refusal(Exception):
    """A request that is not answered.

    Parameters
    ----------
    status : of HTTP
    why : a sentence for the caller
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def in_json(content: Any, status: int = 200) -> Response:
    """An answer in JSON; the connection is closed after a refusal, whose body may not be read."""
    headers = None if status < 400 else {"connection": "close"}
    return Response(orjson.dumps(content), status, headers, "application/json")


def question_of(body: bytes) -> dict[str, Any]:
    """The question in a body.

    Raises
    ------
    Refusal : it is not JSON, or not an object
    """
    try:
        question = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from error
    if not isinstance(question, dict):
        raise Refusal(400, "the body is not a JSON object")
    return question


class Intake:
    """What is asked before a question is read, and the reading.

    Parameters
    ----------
    limits : of callers
    secret : the token that a caller shows, if any
    needs_certificate : whether a caller has to show a certificate, which TLS has checked
    """

    def __init__(self, limits: Limits, secret: Secret | None, needs_certificate: bool) -> None:
        self.limits = limits
        self.secret = secret
        self.needs_certificate = needs_certificate
        self.held_bytes = 0

    def admit(self, request: Request) -> None:
        """Refuse whoever shows neither the token nor, if one is asked for, a certificate."""
        if self.needs_certificate and not request.scope["state"].get("has_certificate"):
            raise Refusal(401, "a client certificate is asked for")
        shown = request.headers.get("authorization", "")
        if self.secret and not self.secret.is_shown_by(shown):
            raise Refusal(401, "the token is missing, or is another one")

    def hold(self, size: int) -> None:
        """Make room for a part of a body."""
        if self.held_bytes + size > self.limits.held_bytes:
            raise Refusal(503, "too much is asked at once; ask again")
        self.held_bytes += size


async def body_of(intake: Intake, request: Request) -> bytes:
    """The body of a request, in time and in size.

    Raises
    ------
    Refusal : it is too long, too slow, or there are too many of them
    """
    most = intake.limits.body_bytes
    too_long = Refusal(413, f"the body has more than {most} bytes")
    if int(request.headers.get("content-length", 0)) > most:
        raise too_long
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(intake.limits.body_s):
            async for part in request.stream():
                intake.hold(len(part))
                size += len(part)
                if size > most:
                    raise too_long
                parts.append(part)
    except TimeoutError:
        raise Refusal(408, f"the body took more than {intake.limits.body_s:g} s") from None
    finally:
        intake.held_bytes -= size
    return b"".join(parts)


class Health:
    """Whether to answer, and until when.

    Parameters
    ----------
    waits_for : what has to happen before questions are answered
    """

    def __init__(self, waits_for: set[str]) -> None:
        self.waits_for = waits_for
        self.stop_at_s = math.inf
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    @property
    def is_ready(self) -> bool:
        """Whether new questions should be sent here."""
        return not self.waits_for and self.stop_at_s == math.inf

    def words(self) -> str:
        """Why we are not ready."""
        if self.waits_for:
            return f"waiting for {', '.join(sorted(self.waits_for))}"
        return "ending" if self.stop_at_s < math.inf else "ok"

    def stop(self, after_s: float) -> None:
        """End, but answer a little longer: others take a moment to see that we are not ready."""
        self.stop_at_s = min(self.stop_at_s, time.monotonic() + after_s)

    def fail(self, error: BaseException) -> None:
        """End with this error."""
        self.failure = self.failure or error
        self.stop(0)

    def done(self, what: str) -> None:
        """Note that something has happened."""
        if what in self.waits_for:
            self.waits_for.remove(what)
            LOG.info("%s: done", what, extra={"fields": {"waits_for": sorted(self.waits_for)}})


Endpoint = Callable[[Request], Any]


def probe_of(is_well: Callable[[], bool], words: Callable[[], str]) -> Endpoint:
    """Answers a probe: 200, or 503 with what is missing."""
    async def answer(request: Request) -> Response:
        status, text = (200, "ok") if is_well() else (503, words())
        return Response(f"{text}\n", status, {"connection": "close"}, "text/plain")
    return answer


class Served(Protocol):
    """What a server has to know of a program."""

    health: Health
    limits: Limits

    @property
    def about(self) -> Mapping[str, Any]:
        """What is logged when it listens."""


class OrderlyServer(uvicorn.Server):
    """A server that is not ready first, and ends then."""

    def __init__(self, config: uvicorn.Config, served: Served) -> None:
        super().__init__(config)
        self.health = served.health
        self.drain_s = served.limits.drain_s
        self.about = served.about
        self.stamps = self.stamps_now()

    def stamps_now(self) -> list[Stamp]:
        """State of the files of our certificate."""
        files = (self.config.ssl_certfile, self.config.ssl_keyfile)
        return [stamp_of(Path(file)) for file in files if file]

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Begin to end."""
        is_again = self.health.stop_at_s < math.inf
        LOG.info("asked to end", extra={"fields": {"signal": sig}})
        self.health.stop(0 if is_again or sig == signal.SIGINT else self.drain_s)

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and say where."""
        await super().startup(sockets)
        host, port, *_ = self.servers[0].sockets[0].getsockname()
        LOG.info("listening", extra={"fields": {"host": host, "port": port, **self.about}})

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to end now. Once a second, look at the certificate."""
        if counter % 10 == 0 and self.config.ssl:
            self.renew()
        return await super().on_tick(counter) or time.monotonic() >= self.health.stop_at_s

    def renew(self) -> None:
        """Load a certificate that was renewed, for the connections to come."""
        with contextlib.suppress(OSError):  # half written: a second later again
            if (stamps := self.stamps_now()) != self.stamps:
                assert self.config.ssl and self.config.ssl_certfile
                self.config.ssl.load_cert_chain(self.config.ssl_certfile, self.config.ssl_keyfile)
                self.stamps = stamps
                LOG.info("certificate renewed")


@dataclass(frozen=True)
class Address:
    """Where to listen, and as whom.

    Parameters
    ----------
    host, port : port 0 for any that is free
    certificate, key : files in PEM; without them, HTTP in the clear
    client_ca : file with the authorities whose clients may ask
    """

    host: str = "127.0.0.1"
    port: int = 8888
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None


def server_of(app: Starlette, served: Served, address: Address) -> OrderlyServer:
    """The server of an application, not started.

    Parameters
    ----------
    app : the application; its lifespan hands out the limits as the state's "limits"
    served : what it serves
    address : where

    Raises
    ------
    InputError : a certificate or key cannot be used
    """
    config = uvicorn.Config(
        app, address.host, address.port, loop="uvloop", http=BoundedRequests,
        ws="none", lifespan="on", log_config=None, access_log=False, server_header=False,
        date_header=False, proxy_headers=False, backlog=served.limits.connections,
        timeout_keep_alive=math.ceil(served.limits.idle_s),
        timeout_graceful_shutdown=math.ceil(served.limits.finish_s),
        ssl_certfile=address.certificate, ssl_keyfile=address.key,
        ssl_ca_certs=str(address.client_ca) if address.client_ca else None,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if address.client_ca else ssl.CERT_NONE)
    try:
        config.load()
    except OSError as error:  # of TLS, too
        raise InputError(f"TLS cannot be used: {error}", file=address.certificate) from error
    return OrderlyServer(config, served)


def serve(app: Starlette, served: Served, address: Address) -> None:
    """Serve until somebody says to end.

    Parameters
    ----------
    app, served : as `server_of` takes them
    address : where

    Raises
    ------
    InputError : nobody can listen there, or a certificate cannot be used
    Exception : what failed that must not fail
    """
    server = server_of(app, served, address)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        port = socket.create_server((address.host, address.port), family=family,
                                    backlog=served.limits.connections)
    except (OSError, OverflowError) as error:
        where = f"{address.host}, port {address.port}"
        raise InputError(f"cannot listen on {where}: {error}") from error
    server.run([port])
    if served.health.failure:
        raise served.health.failure
