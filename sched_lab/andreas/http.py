"""One process of ANDREAS over HTTP: commands in JSON, an optimizer beside them, and what happens while the database is away."""

# A module, written by hand.

from __future__ import annotations

import asyncio
import contextlib
import html
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import orjson
from prometheus_client import Counter, Gauge, Histogram
from pydantic import ValidationError
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .. import __version__
from ..lab.access import Guard, Refusal
from ..lab.web import SECONDS, Endpoint, Limits, Service
from . import service
from .greedy import SearchOptions
from .service import Book, Change, Command, Join
from .store import Gone, Store, Superseded, commit, read_book

LOG = logging.getLogger("sched_lab.serve")
SMALL = Limits(body_bytes=64 << 10, held_bytes=8 << 20, answer_s=30.0)
COMMAND_S = 20.0  # after which a caller is told to ask again
PAUSE_S = 0.1  # between two decisions, so that callers have their turn
RETRY_S = 1.0  # between two attempts at a database that is away
STATUS = {"unknown": 404, "wrong": 422, "conflict": 409, "full": 429}

Make = Callable[[Book, float], Change | None]
Answered = tuple[dict[str, Any], int]  # content and status


def checked(kind: type[Command], values: dict[str, Any]) -> Any:
    """A command, or the first thing that is wrong with it.

    Raises
    ------
    Refusal : 400, in one sentence
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        words = {"extra_forbidden": "is an unknown key", "missing": "is missing"}.get(first["type"])
        value = f"is {first['input']!r:.60}: {first['msg'].removeprefix('Value error, ')}"
        raise Refusal(400, f"{place:.60} {words or value}") from None


MOST_LISTED = 1000


class Manager(Service):
    """Job Manager, Profiler and Optimizer of the paper's Fig. 1 in one process.

    Parameters
    ----------
    store : where rows go
    prices, nodes : cost_eur_per_h, and nodes that join at the first start, by id
    policy, how : its name, and how it searches
    period_s : H, longest time between two decisions
    most_queued : unfinished jobs
    about : what is logged when it listens
    """

    about: Mapping[str, Any] = {}

    def __init__(self, store: Store, prices: Mapping[str, float], nodes: Mapping[str, Join],
                 policy: str, how: SearchOptions, *, period_s: float, most_queued: int,
                 about: Mapping[str, Any]) -> None:
        super().__init__(SMALL, {"database", "nodes"}, "andreas", "route")
        self.store = store
        self.prices = prices
        self.nodes = nodes
        self.decide_places = partial(service.decide_places, policy=policy, how=how)
        self.period_s = period_s
        self.about = about
        document = openapi()
        self.pages = {"/": HTMLResponse(page_of(document)), "/openapi.json": Response(
            orjson.dumps(document), media_type="application/json")}
        self.book = Book(prices, most_queued)
        self.is_current = False  # whether the database has what the book has
        self.retry_at_s = 0.0
        self.events: list[str] = []
        self.turn = asyncio.Lock()
        self.waker = asyncio.Event()
        self.opened = asyncio.Event()  # all nodes of the file have joined
        self.writing = ThreadPoolExecutor(1, "write")
        self.thinking = ThreadPoolExecutor(1, "think")
        registry = self.registry
        self.decisions = Counter("andreas_decisions", "Decisions by event.", ["event"],
                                 registry=registry)
        self.decision_s = Histogram("andreas_decision_seconds", "Time of the policy.",
                                    buckets=SECONDS, registry=registry)
        self.undecided = Counter("andreas_decision_failures", "Decisions that failed by a mistake "
                                 "of ours.", registry=registry)
        self.failures = Counter("andreas_database_failures", "Transactions that failed.",
                                registry=registry)
        for name, words, value in (
                ("gpus", "GPUs of nodes that are there.", lambda: sum(
                    node.num_gpus for node in self.book.nodes.values() if node.is_present)),
                ("gpus_used", "GPUs that jobs have.", lambda: service.used_gpus(
                    self.book.queue.values()).total()),
                ("eur_per_hour", "What nodes in use cost.", lambda: service.plan_of(
                    self.book, self.book.last_s)["eur_per_h"]),
                ("plan_version", "Of the plan.", lambda: self.book.version),
                ("database_is_known", "Whether memory and database agree.",
                 lambda: self.is_current)):
            Gauge(f"andreas_{name}", words, registry=registry).set_function(value)
        jobs = Gauge("andreas_jobs", "Jobs by state.", ["state"], registry=registry)
        jobs.labels("running").set_function(lambda: self.count_queue(is_placed=True))
        jobs.labels("waiting").set_function(lambda: self.count_queue(is_placed=False))
        jobs.labels("ended").set_function(lambda: len(self.book.jobs) - len(self.book.queue))

    def count_queue(self, *, is_placed: bool) -> int:
        """Unfinished jobs that run, or that wait."""
        return sum((job.node is not None) == is_placed for job in self.book.queue.values())

    def endpoints(self, guard: Guard) -> list[Endpoint]:
        """Its routes."""
        return [Endpoint(route.method, route.path, partial(self.answered, route.answer),
                         f"{route.method} {route.path}", route.body is not None) for route in ROUTES]

    async def answered(self, answer: Answer, request: Request, body: dict[str, Any]) -> Answered:
        """What a route answers.

        Raises
        ------
        Refusal : it refuses
        """
        try:
            return await answer(self, request, body)
        except service.Refused as refused:
            raise Refusal(STATUS[refused.kind], str(refused)) from refused

    def check_open(self) -> None:
        """Refuse questions before the book is open."""
        if not self.opened.is_set():
            raise Refusal(503, "starting; ask again")

    def now_s(self) -> float:
        """Present time."""
        return service.clock_s(self.book, time.time())

    def wake(self, event: str) -> None:
        """Let the optimizer think, because of something."""
        self.events.append(event)
        self.waker.set()

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Open, think and look after the database until the end; then close."""
        tasks = [asyncio.create_task(job()) for job in (self.keep_database, self.keep_deciding)]
        for task in tasks:
            task.add_done_callback(self.health.fail_with)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            async with self.turn:  # what has begun is finished
                self.writing.shutdown()
            self.thinking.shutdown(wait=False, cancel_futures=True)
            self.store.close()

    async def read_anew(self) -> None:
        """Read the book if the database may have something else.

        Raises
        ------
        Gone : it does not answer, or did not a moment ago
        """
        if self.is_current:
            return
        if time.monotonic() < self.retry_at_s:
            raise Gone("the database failed a moment ago")
        self.retry_at_s = math.inf  # until the attempt is over
        try:
            read = partial(read_book, self.store, self.prices, self.book.most_queued)
            self.book = await asyncio.get_running_loop().run_in_executor(self.writing, read)
            self.is_current = True
            self.health.done("database")
            self.wake("restart")
        finally:
            self.retry_at_s = time.monotonic() + RETRY_S

    async def carry_out(self, make: Make) -> bool:
        """Steps 1 to 3 of a command; whether anything changed."""
        async with self.turn:
            await self.read_anew()
            change = make(self.book, self.now_s())
            if change is None:
                return False
            write = partial(commit, self.store, self.book, change)
            try:
                await asyncio.get_running_loop().run_in_executor(self.writing, write)
            except BaseException:
                self.is_current = False
                self.retry_at_s = time.monotonic() + RETRY_S
                self.health.waits_for.add("database")
                raise
            self.book.apply(change)
            if change.asks:
                self.wake(change.event)
            return True

    async def command(self, make: Make) -> bool:
        """The same, with an end to waiting, and failures as answers.

        Raises
        ------
        Refusal : 503; the command may be stored, or not
        """
        steps = asyncio.ensure_future(self.carry_out(make))
        steps.add_done_callback(self.count_failure)
        try:
            async with asyncio.timeout(COMMAND_S):
                return await asyncio.shield(steps)
        except Gone as gone:
            raise Refusal(503, f"{gone}; ask again, it is safe") from gone
        except Superseded as gone:
            raise Refusal(503, str(gone)) from gone
        except TimeoutError:
            raise Refusal(503, "the database is slow; ask again, it is safe") from None

    def count_failure(self, steps: asyncio.Future[bool]) -> None:
        """Count failures; a service whose database has gone to another one ends."""
        error = None if steps.cancelled() else steps.exception()
        if isinstance(error, Superseded):
            self.health.fail(error)
        elif isinstance(error, Gone):
            self.failures.inc()

    async def decide(self) -> None:
        """Decide once, because of the events so far."""
        event = self.events[0] if self.events else "period"
        self.events.clear()
        self.waker.clear()
        snapshot = service.snapshot_of(self.book, self.now_s())
        places = {}
        if snapshot is not None:
            began_s = time.perf_counter()
            places = await asyncio.get_running_loop().run_in_executor(
                self.thinking, self.decide_places, snapshot)
            self.decision_s.observe(time.perf_counter() - began_s)

        def make(book: Book, now_s: float) -> Change | None:
            change = service.move_jobs(book, places, event, now_s)
            if change is not None and not service.is_valid(book, change):
                self.wake("node joined")  # another one than when we asked
                return None
            return change
        await self.command(make)
        self.decisions.labels(event).inc()

    async def keep_deciding(self) -> None:
        """Decide at every event and at the end of every period; wait while the database is away."""
        await self.opened.wait()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.period_s):
                    await self.waker.wait()
            try:
                await self.decide()
                await asyncio.sleep(PAUSE_S)
            except Refusal as refusal:
                LOG.warning("no decision: %s", refusal)
                self.wake("restart")
                await asyncio.sleep(RETRY_S)
            except Exception:  # the queue is the same after a restart: ending would not mend it
                LOG.exception("no decision: our mistake")
                self.undecided.inc()
                await asyncio.sleep(RETRY_S)

    async def keep_database(self) -> None:
        """Open the book, with the nodes of the file; then read it anew whenever that is needed."""
        while True:
            try:
                if not self.is_current:
                    await self.carry_out(lambda book, now_s: None)
                if not self.opened.is_set():
                    for name, given in self.nodes.items():
                        await self.carry_out(
                            lambda book, now_s, name=name, given=given:  # type: ignore[misc]
                            None if name in book.nodes else
                            service.join(book, name, given, now_s))
                    self.opened.set()
                    self.health.done("nodes")
                    self.wake("restart")
            except Gone as gone:
                LOG.warning("%s", gone)
            await asyncio.sleep(RETRY_S)

    async def changed_job(self, make: Make, job: str) -> Answered:
        """Carry a command out; answer with the job as it is now."""
        is_new = await self.command(make)
        row = service.job_of(self.book, job)
        body = service.job_as_json(self.book, row, self.now_s())
        return {**body, "version": self.book.version, "repeated": not is_new}, 200

    async def post_job(self, request: Request, body: dict[str, Any]) -> Answered:
        """Submit a job; the same job again is answered as the first time."""
        given = checked(service.Submit, body)
        answer, _ = await self.changed_job(
            lambda book, now_s: service.submit(book, given, now_s), given.id)
        return answer, 200 if answer["repeated"] else 201

    async def post_report(self, request: Request, body: dict[str, Any]) -> Answered:
        """Report finished epochs of a job, numbered by its worker; may be repeated."""
        job = request.path_params["id"]
        given = checked(service.Report, body)
        return await self.changed_job(
            lambda book, now_s: service.report(book, job, given, now_s), job)

    async def delete_job(self, request: Request, body: dict[str, Any]) -> Answered:
        """Cancel a job for good; may be repeated."""
        job = request.path_params["id"]
        return await self.changed_job(lambda book, now_s: service.cancel(book, job, now_s), job)

    async def get_job(self, request: Request, body: dict[str, Any]) -> Answered:
        """One job, and what is known of it."""
        job = service.job_of(self.book, request.path_params["id"])
        return service.job_as_json(self.book, job, self.now_s()), 200

    async def get_jobs(self, request: Request, body: dict[str, Any]) -> Answered:
        """Jobs by number, a thousand at most: those after the number `after`."""
        text = request.query_params.get("after", "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 12):
            raise Refusal(400, f"after is {text!r:.60}: give the number of a job")
        after = (job for job in self.book.jobs.values() if job.number > int(text))
        jobs = list(islice(after, MOST_LISTED))
        now_s = self.now_s()
        return {"jobs": [service.job_as_json(self.book, job, now_s) for job in jobs],
                "next": jobs[-1].number if len(jobs) == MOST_LISTED else None}, 200

    async def get_plan(self, request: Request, body: dict[str, Any]) -> Answered:
        """The plan: who runs where, on how many GPUs, since when, and who waits."""
        return service.plan_of(self.book, self.now_s()), 200

    async def post_sample(self, request: Request, body: dict[str, Any]) -> Answered:
        """Send a sample of the profiler: so many epochs took so many seconds."""
        given = checked(service.Measure, body)
        is_new = await self.command(lambda book, now_s: service.measure(book, given, now_s))
        times = self.book.epoch_s(given.application, given.batch)
        return {"epoch_s": times, "repeated": not is_new}, 201 if is_new else 200

    async def put_node(self, request: Request, body: dict[str, Any]) -> Answered:
        """Let a node join, or change."""
        node = checked(service.Named, {"id": request.path_params["id"]}).id
        given = checked(Join, body)
        is_new = await self.command(lambda book, now_s: service.join(book, node, given, now_s))
        return {**self.book.nodes[node]._asdict(), "repeated": not is_new}, 200

    async def delete_node(self, request: Request, body: dict[str, Any]) -> Answered:
        """Say that a node is lost; its jobs wait with the epochs that they have reported."""
        node = request.path_params["id"]
        is_new = await self.command(lambda book, now_s: service.leave(book, node, now_s))
        return {**self.book.nodes[node]._asdict(), "repeated": not is_new}, 200

    async def get_nodes(self, request: Request, body: dict[str, Any]) -> Answered:
        """Nodes that are there, and those that were."""
        return {"nodes": [node._asdict() for node in self.book.nodes.values()]}, 200


Answer = Callable[[Manager, Request, dict[str, Any]], Awaitable[Answered]]


class Operation(NamedTuple):
    """A route: method, path, what answers, and what its body is."""

    method: str
    path: str
    answer: Answer
    body: type[Command] | None = None


ROUTES = (
    Operation("POST", "/jobs", Manager.post_job, service.Submit),
    Operation("GET", "/jobs", Manager.get_jobs), Operation("GET", "/jobs/{id}", Manager.get_job),
    Operation("DELETE", "/jobs/{id}", Manager.delete_job),
    Operation("POST", "/jobs/{id}/reports", Manager.post_report, service.Report),
    Operation("GET", "/plan", Manager.get_plan),
    Operation("POST", "/samples", Manager.post_sample, service.Measure),
    Operation("GET", "/nodes", Manager.get_nodes),
    Operation("PUT", "/nodes/{id}", Manager.put_node, Join),
    Operation("DELETE", "/nodes/{id}", Manager.delete_node))


def operation_of(line: Operation) -> dict[str, Any]:
    """One route as OpenAPI describes it."""
    found: dict[str, Any] = {
        "summary": (line.answer.__doc__ or "").strip().rstrip("."),
        "operationId": getattr(line.answer, "__name__", line.path),
        "responses": {"2XX": {"description": "What was asked for, as a JSON object."},
                      "4XX": {"description": "{\"error\": one sentence}; not carried out."},
                      "503": {"description": "Perhaps carried out; ask again, it is safe."}}}
    if "{id}" in line.path:
        found["parameters"] = [{"name": "id", "in": "path", "required": True,
                                "schema": {"type": "string", "maxLength": 100}}]
    if line.path == "/jobs" and line.method == "GET":
        found["parameters"] = [{"name": "after", "in": "query", "schema": {"type": "integer"}}]
    if line.body:
        reference = {"$ref": f"#/components/schemas/{line.body.__name__}"}
        found["requestBody"] = {"required": True,
                                "content": {"application/json": {"schema": reference}}}
    return found


def openapi() -> dict[str, Any]:
    """The OpenAPI document of the service."""
    bodies = [line.body for line in ROUTES if line.body]
    _, schemas = models_json_schema([(body, "validation") for body in bodies],
                                    ref_template="#/components/schemas/{model}")
    paths: dict[str, dict[str, Any]] = {}
    for line in ROUTES:
        paths.setdefault(line.path, {})[line.method.lower()] = operation_of(line)
    return {"openapi": "3.1.0", "info": {"title": "ANDREAS job manager", "version": __version__},
            "paths": paths, "security": [{"token": []}, {}],
            "components": {"schemas": schemas["$defs"],
                           "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}}


STYLE = ("body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}"
         "code{background:#8881}:root{color-scheme:light dark}")


def page_of(document: Mapping[str, Any]) -> str:
    """The routes as a page that asks for nothing."""
    title = document["info"]["title"]
    routes = "".join(
        f"<dt><code>{method.upper()} {html.escape(path)}</code><dd>{html.escape(one['summary'])}."
        for path, methods in document["paths"].items() for method, one in methods.items())
    return (f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}"
            f"</style><h1>{title}</h1><p>Every answer is a JSON object. Every request may be "
            "repeated. <a href=openapi.json>OpenAPI</a> has the keys of every body; <a href=plan>"
            f"plan</a>, <a href=jobs>jobs</a>, <a href=nodes>nodes</a>.<dl>{routes}</dl>")
