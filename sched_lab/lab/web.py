"""A program behind HTTP: how much its callers may take and for how long, what is measured, and an orderly end."""

# A module, written by hand.

from __future__ import annotations

import asyncio
import json
import logging
import math
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import orjson
import uvicorn
import uvloop
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from .access import Guard, Listener, Refusal
from .frames import InputError, OutputError

__all__ = ['Limits', 'serve']

LOG = logging.getLogger("sched_lab.serve")


@dataclass(frozen=True)
class Limits:
    """What callers may take, one by one and together.

    Parameters
    ----------
    body_bytes, header_bytes : longest body, and longest head before it
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


# --- a program behind HTTP

class Health:
    """Whether to answer, and until when.

    Parameters
    ----------
    waits_for : what has to happen before questions are answered
    """

    def __init__(self, waits_for: set[str]) -> None:
        self.waits_for = waits_for
        self.trouble = ""  # why nothing is decided for the time being
        self.stop_at_s = math.inf
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    @property
    def is_ready(self) -> bool:
        """Whether new questions should be sent here."""
        return not (self.waits_for or self.trouble) and self.stop_at_s == math.inf

    def words(self) -> str:
        """Why we are not ready."""
        if self.waits_for:
            return f"waiting for {', '.join(sorted(self.waits_for))}"
        return self.trouble or ("ending" if self.stop_at_s < math.inf else "ok")

    def note(self, trouble: str) -> None:
        """Note why nothing is decided for the time being; empty if nothing is in the way."""
        if trouble and trouble != self.trouble:
            LOG.error("no decisions: %s", trouble)
        elif self.trouble and not trouble:
            LOG.info("decisions are made again")
        self.trouble = trouble

    def stop(self, after_s: float) -> None:
        """End, but answer a little longer: others take a moment to see that we are not ready."""
        self.stop_at_s = min(self.stop_at_s, time.monotonic() + after_s)

    def fail(self, error: BaseException) -> None:
        """End with this error."""
        self.failure = self.failure or error
        self.stop(0)

    def fail_with(self, task: asyncio.Task[Any]) -> None:
        """End if a task has failed; for `add_done_callback`."""
        if not task.cancelled() and (error := task.exception()):
            self.fail(error)

    def done(self, what: str) -> None:
        """Note that something has happened."""
        if what in self.waits_for:
            self.waits_for.remove(what)
            LOG.info("%s: done", what, extra={"fields": {"waits_for": sorted(self.waits_for)}})


Answer = Callable[[Request, dict[str, Any]], Awaitable[tuple[Any, int]]]
SECONDS = (.0005, .001, .002, .003, .005, .01, .015, .025, .05, .1, .25, 1, 5, 10, 30)


class Endpoint(NamedTuple):
    """A route of a service.

    Parameters
    ----------
    method, path : as Starlette has them
    answer : given the request and the object in its body, content for JSON and a status
    name : in the metrics
    reads : whether there is a body
    """

    method: str
    path: str
    answer: Answer
    name: str
    reads: bool


class Service:
    """A program behind HTTP; a subclass says what it answers.

    Parameters
    ----------
    limits : of callers
    waits_for : what has to happen before it is ready
    metrics, label : first word of the names of metrics, and what tells routes apart in them
    """

    error_key = "error"
    pages: Mapping[str, Response] = {}

    def __init__(self, limits: Limits, waits_for: set[str], metrics: str, label: str) -> None:
        self.limits = limits
        self.health = Health(waits_for)
        self.running = 0
        self.held_bytes = 0
        self.registry = CollectorRegistry()
        self.requests = Counter(f"{metrics}_requests", "Requests by route and status of HTTP.",
                                [label, "status"], registry=self.registry)
        self.seconds = Histogram(f"{metrics}_request_seconds", "From the head of a request to its "
                                 "answer.", [label], buckets=SECONDS, registry=self.registry)

    @property
    def about(self) -> Mapping[str, Any]:
        """What is logged when it listens."""
        return {}

    def endpoints(self, guard: Guard) -> Sequence[Endpoint]:
        """Its routes.

        Parameters
        ----------
        guard : who may ask
        """
        raise NotImplementedError

    def lifespan(self) -> AbstractAsyncContextManager[None]:
        """What runs beside the answers."""
        raise NotImplementedError

    def check_open(self) -> None:
        """Refuse questions that come too early."""


def in_json(content: Any, status: int = 200) -> Response:
    """An answer in JSON; the connection is closed after a refusal, whose body may not be read."""
    headers = None if status < 400 else {"connection": "close"}
    return Response(orjson.dumps(content), status, headers, "application/json")


async def question_of(service: Service, request: Request) -> dict[str, Any]:
    """The question in the body of a request, in time and in size.

    Raises
    ------
    Refusal : it is no JSON object, too long or too slow, or there are too many of them
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # which a page may not send to others without asking first
        raise Refusal(415, "give Content-Type: application/json")
    limits = service.limits
    too_long = Refusal(413, f"the body has more than {limits.body_bytes} bytes")
    if int(request.headers.get("content-length", 0)) > limits.body_bytes:
        raise too_long
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_s):
            async for part in request.stream():
                if service.held_bytes + len(part) > limits.held_bytes:
                    raise Refusal(503, "too much is asked at once; ask again")
                service.held_bytes += len(part)
                size += len(part)
                if size > limits.body_bytes:
                    raise too_long
                parts.append(part)
        question = orjson.loads(b"".join(parts))
    except TimeoutError:
        raise Refusal(408, f"the body took more than {limits.body_s:g} s") from None
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"the body is not JSON: {error}") from error
    finally:
        service.held_bytes -= size
    if not isinstance(question, dict):
        raise Refusal(400, "the body is not a JSON object")
    return question


def admit(guard: Guard, request: Request) -> None:
    """Refuse whoever may not ask."""
    connection = request.state.connection
    guard.admit(request.headers.get("authorization", ""), connection.has_certificate)
    connection.is_known = guard.asks


Handler = Callable[[Request], Awaitable[Response]]


def handler_of(service: Service, guard: Guard, endpoint: Endpoint) -> Handler:
    """Answers one route, and measures it; a mistake of ours is told to the log alone."""
    def refused(why: object, status: int) -> Response:
        return in_json({service.error_key: str(why)}, status)

    async def respond(request: Request) -> Response:
        admit(guard, request)
        service.check_open()
        if service.running >= service.limits.requests:
            raise Refusal(503, "too many requests at once; ask again")
        service.running += 1
        try:
            question = await question_of(service, request) if endpoint.reads else {}
            return in_json(*await endpoint.answer(request, question))
        finally:
            service.running -= 1

    async def answer(request: Request) -> Response:
        began_s = time.perf_counter()
        try:
            response = await respond(request)
        except Refusal as refusal:
            response = refused(refusal, refusal.status)
        except InputError as error:
            response = refused(error, 400)
        except OutputError as error:
            response = refused(error, 503)
        except ClientDisconnect:
            response = Response(status_code=400)  # nobody is there to read it
        except Exception:
            LOG.exception("our mistake, in %s", endpoint.name)
            response = refused("the server failed; its log says how", 500)
        service.requests.labels(endpoint.name, response.status_code).inc()
        service.seconds.labels(endpoint.name).observe(time.perf_counter() - began_s)
        return response
    return answer


def probe_of(is_well: Callable[[], bool], words: Callable[[], str]) -> Handler:
    """Answers a probe: 200, or 503 with what is missing."""
    async def answer(request: Request) -> Response:
        status, text = (200, "ok") if is_well() else (503, words())
        return Response(f"{text}\n", status, {"connection": "close"}, "text/plain")
    return answer


def app_of(service: Service, guard: Guard) -> Starlette:
    """The routes of a service, its metrics and its probes."""
    async def metrics(request: Request) -> Response:
        try:
            admit(guard, request)
        except Refusal as refusal:
            return in_json({service.error_key: str(refusal)}, refusal.status)
        return Response(generate_latest(service.registry), media_type=CONTENT_TYPE_LATEST)

    async def page(request: Request) -> Response:
        return service.pages[request.url.path]

    async def nowhere(request: Request, error: Exception) -> Response:
        why = f"{request.method} {request.url.path!r:.100} is no route"
        return in_json({service.error_key: why}, getattr(error, "status_code", 404))

    health = service.health
    routes = [Route(endpoint.path, handler_of(service, guard, endpoint), methods=[endpoint.method])
              for endpoint in service.endpoints(guard)]
    routes += [Route(path, page) for path in service.pages]
    routes += [Route("/metrics", metrics),
               Route("/healthz", probe_of(lambda: health.failure is None, health.words)),
               Route("/readyz", probe_of(lambda: health.is_ready, health.words))]
    app = Starlette(routes=routes, exception_handlers={404: nowhere, 405: nowhere})
    app.router.redirect_slashes = False
    return app


# --- connections

PROBES = ("/healthz", "/readyz")
Key = tuple[Any, Any]


class Connection:
    """Stands before uvicorn's protocol on a connection, and hangs up.

    uvicorn bounds neither the time nor the size of a head, counts probes with all others, and
    does not tell the application whether a caller has shown a certificate. So bytes of a head are
    kept here until it is whole, and of all else they are counted.

    Parameters
    ----------
    application : that it is a connection to
    protocol : uvicorn's own, made of `options`
    """

    def __init__(self, application: Application, protocol: Callable[..., Any],
                 **options: Any) -> None:
        self.inner = protocol(**options)
        self.application = application
        self.limits = application.service.limits
        self.head = bytearray()
        self.is_asking = True  # the head of a request has not come yet
        self.beyond = 0  # bytes since the last head
        self.is_working = False  # on an answer
        self.is_known = False  # it has shown a token or a certificate
        self.begun_s = time.monotonic()
        self.end_s = self.begun_s + self.limits.header_s

    def __getattr__(self, name: str) -> Any:
        """All else that a transport calls."""
        return getattr(self.inner, name)

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Come in, if there is room."""
        self.transport = transport
        self.has_certificate = bool(transport.get_extra_info("peercert"))
        peer, own = (transport.get_extra_info(name) for name in ("peername", "sockname"))
        self.key: Key = (peer and peer[:2], own and own[:2])
        self.inner.connection_made(transport)
        self.application.enter(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Leave."""
        self.application.leave(self)
        self.inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        """Pass on a head when it is whole, and what comes after it."""
        if self.is_asking:
            self.end_s = min(self.end_s, time.monotonic() + self.limits.header_s)
            data = self.whole_head(data)
        else:
            self.beyond += len(data)
        if self.beyond > self.limits.header_bytes + self.limits.body_bytes:
            self.transport.abort()
        elif data:
            self.inner.data_received(data)

    def whole_head(self, data: bytes) -> bytes:
        """The head and what came with it, if it is whole now; else nothing."""
        if not self.head:
            data = data.lstrip(b"\r\n")
        searched = max(0, len(self.head) - 3)
        self.head += data
        end = self.head.find(b"\r\n\r\n", searched)
        if (len(self.head) if end < 0 else end) > self.limits.header_bytes:
            self.hang_up(b"431 Request Header Fields Too Large")
        elif end >= 0 or not self.head[:1].isalpha():  # the latter is no request
            data = bytes(self.head)
            self.head.clear()
            self.is_asking = False
            self.beyond = len(data) - end - 4
            return data
        return b""

    def begin(self) -> None:
        """Work on an answer."""
        self.is_working = True
        self.end_s = time.monotonic() + self.limits.answer_s

    def finish(self, length: int) -> None:
        """Wait for the next request, or for the caller to fetch the answer.

        Parameters
        ----------
        length : of the body of the request
        """
        self.is_asking = True
        self.is_working = False
        self.begun_s = time.monotonic()
        is_fetched = not self.transport.get_write_buffer_size()
        self.end_s = self.begun_s + (self.limits.idle_s if is_fetched else self.limits.answer_s)
        if self.beyond != length:  # the body was not read, or more was sent than one request
            self.transport.close()

    def hang_up(self, status: bytes = b"") -> None:
        """Say why if the caller may listen, and hang up."""
        if status and not (self.transport.is_closing() or self.transport.get_write_buffer_size()):
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n"
                                 b"connection: close\r\n\r\n")
            self.transport.close()
        else:
            self.transport.abort()


class Application:
    """The ASGI application of a service: its connections, and what is asked before any route.

    Parameters
    ----------
    service : what answers
    guard : who may ask
    """

    def __init__(self, service: Service, guard: Guard) -> None:
        self.service = service
        self.guard = guard
        self.app = app_of(service, guard)
        self.connections: dict[Key, Connection] = {}

    def enter(self, connection: Connection) -> None:
        """Take a connection in; if there are too many, the idle go, strangers and the oldest first.

        A probe, which has just come, is never the one to go.
        """
        idle = [one for one in self.connections.values() if not one.is_working]
        if len(self.connections) >= self.service.limits.connections:
            last = min(idle, key=lambda one: (one.is_known, one.begun_s), default=connection)
            last.transport.abort()
            self.leave(last)
        if not connection.transport.is_closing():
            self.connections[connection.key] = connection

    def leave(self, connection: Connection) -> None:
        """Forget a connection."""
        if self.connections.get(connection.key) is connection:
            del self.connections[connection.key]

    def sweep(self) -> None:
        """Hang up on all whose time is over."""
        now_s = time.monotonic()
        for one in [one for one in self.connections.values() if now_s >= one.end_s]:
            one.hang_up(b"408 Request Timeout" if one.head else b"")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        connection = self.connections.get((scope["client"], scope["server"]))
        if connection is None:  # the caller has gone already
            return
        headers = scope["headers"]
        is_chunked = any(name == b"transfer-encoding" for name, _ in headers)
        length = sum(int(value) for name, value in headers if name == b"content-length")

        async def answer(message: Message) -> None:
            connection.is_working = False
            if is_chunked and message["type"] == "http.response.start":
                message["headers"].append((b"connection", b"close"))  # where it ends is not seen
            await send(message)

        connection.begin()
        scope["state"] = {"connection": connection}
        try:
            if scope["path"] not in PROBES:
                self.guard.check_names(headers)
            await self.app(scope, receive, answer)
        except Refusal as refusal:
            why = {self.service.error_key: str(refusal)}
            await in_json(why, refusal.status)(scope, receive, answer)
        finally:
            connection.finish(length)


# --- from the beginning to the end

def heed_signals(service: Service) -> None:
    """Begin to end when somebody says so."""
    health = service.health

    def end(number: int) -> None:
        is_again = health.stop_at_s < math.inf
        LOG.info("asked to end", extra={"fields": {"signal": number}})
        health.stop(0 if is_again or number == signal.SIGINT else service.limits.drain_s)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, end, number)


TICK_S = 0.1


async def keep(server: uvicorn.Server, application: Application, listener: Listener) -> None:
    """Hang up on the slow, renew the certificate, and end when it is time."""
    while not server.started:
        await asyncio.sleep(0.01)
    heed_signals(application.service)  # after uvicorn, which would end at once
    ticks = 0
    while True:
        application.sweep()
        if ticks % 10 == 0:
            listener.renew()
        if time.monotonic() >= application.service.health.stop_at_s:
            server.should_exit = True
        ticks += 1
        await asyncio.sleep(TICK_S)


async def run(service: Service, listener: Listener, application: Application) -> None:
    """Serve until somebody says to end."""
    limits = service.limits
    context = listener.context
    tls: dict[str, Any] = {"ssl_context_factory": lambda *_: context} if context else {}
    config = uvicorn.Config(
        application, http="httptools", ws="none", lifespan="off", interface="asgi3",
        log_config=None, access_log=False, server_header=False, date_header=False,
        proxy_headers=False, backlog=limits.connections, timeout_keep_alive=math.ceil(limits.idle_s),
        timeout_graceful_shutdown=math.ceil(limits.finish_s), **tls)
    config.load()
    protocol: Any = partial(Connection, application, config.http_protocol_class)
    config.http_protocol_class = protocol
    server = uvicorn.Server(config)
    async with service.lifespan():
        keeping = asyncio.create_task(keep(server, application, listener))
        keeping.add_done_callback(service.health.fail_with)
        LOG.info("listening", extra={"fields": {
            "host": listener.access.host, "port": listener.port, **service.about,
            "token_file": listener.guard.secret and listener.guard.secret.path.absolute()}})
        await server.serve([listener.socket])
        keeping.cancel()
        heed_signals(service)  # uvicorn has restored the default: to end in the middle


def serve(service: Service, listener: Listener, application: Application | None = None) -> None:
    """Serve until somebody says to end.

    Parameters
    ----------
    service : what is served
    listener : from `listen`
    application : of both, if somebody wants to look at it

    Raises
    ------
    Exception : what failed that must not fail
    """
    uvloop.run(run(service, listener, application or Application(service, listener.guard)))
    if service.health.failure:
        raise service.health.failure
