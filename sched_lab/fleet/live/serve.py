"""The bridge behind HTTP: who may ask, how much, for how long, and what is measured."""

# A module, written by hand.

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from prometheus_client import Counter, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request

from ...lab.access import Guard, Refusal
from ...lab.web import Limits, Line, Service

__all__ = ['Extender']

LOG = logging.getLogger("sched_lab.serve")

GAUGES = {
    "eopc_w": ("eopc_watts", 1, "Power of the nodes by Eq. 1-2."),
    "gpus": ("gpus", 1, "GPUs of the nodes."),
    "used_gpu_milli": ("gpus_used", 0.001, "GPUs that pods hold, bound or reserved."),
    "fragmentation_gpu_milli": ("fragmentation_gpus",  0.001, "GPUs that are free and of no use "
                                "to a task of the target workload, expected."),
    "stranded_gpu_milli": ("gpus_stranded", 0.001, "GPUs that are free beyond what the CPU "
                           "beside them can serve at the usual ratio."),
    "pods": ("pods", 1, "Pods that hold something."),
    "reservations": ("reservations", 1, "Reservations that are not bound yet."),
}


class ClusterGauges(Collector):
    """Gauges of the cluster, computed when they are asked for."""

    def __init__(self, gauges: Callable[[], Mapping[str, float]]) -> None:
        self.gauges = gauges

    def collect(self) -> Iterator[Metric]:
        """One family for each gauge; lapsed reservations are a counter."""
        for name, value in self.gauges().items():
            if name in GAUGES:
                metric, factor, words = GAUGES[name]
                yield GaugeMetricFamily(f"sched_lab_{metric}", words, value=factor * value)
            elif name == "lapsed":
                yield CounterMetricFamily("sched_lab_reservations_lapsed", "Reservations that "
                                          "ended by time.", value=value)


def outcome_of(answer: Mapping[str, Any]) -> str:
    """What became of a filter: `fits`, `none` or `error`."""
    if answer.get("Error"):
        return "error"
    nodes = answer.get("NodeNames") or (answer.get("Nodes") or {}).get("items")
    return "fits" if nodes else "none"


class Call(Protocol):
    """A call to carry out: a method of the API, or "pause"."""

    @property
    def method(self) -> str:
        """Its name."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What it is called with."""


Steps = Generator[Any, Any, dict[str, Any]]


class Answering(Protocol):
    """What is served: the bridge, or a stand-in."""

    mode: str

    def filter(self, request: Any, at_s: float) -> dict[str, Any]:
        """Which nodes may take the pod."""

    def prioritize(self, request: Any, at_s: float) -> list[dict[str, Any]]:
        """How good each node is."""

    def binding(self, request: Any, at_s: float) -> Steps:
        """Steps of a bind."""

    def settling(self, at_s: float) -> Steps:
        """Steps that let time pass: reservations lapse, doubts are settled."""

    def tell(self, event: Any) -> Any:
        """Take an event of the cluster."""


async def carry_out(call: Call, api: Any, pool: ThreadPoolExecutor) -> Any:
    """Carry out a call in a thread; a pause needs none."""
    if call.method == "pause":
        return await asyncio.sleep(*call.arguments)
    action = partial(getattr(api, call.method), *call.arguments)
    return await asyncio.get_running_loop().run_in_executor(pool, action)


async def walked(steps: Steps, api: Any, pool: ThreadPoolExecutor) -> dict[str, Any]:
    """Carry out the calls of a generator, hand it what comes of them; return what it returns."""
    try:
        call = next(steps)
        while True:
            try:
                found = await carry_out(call, api, pool)
            except Exception as trouble:
                call = steps.throw(trouble)
            else:
                call = steps.send(found)
    except StopIteration as done:
        return dict(done.value)


EARLIER = "writes of an earlier process"  # that Extender.health may wait for


@dataclass(frozen=True)
class Works:
    """What an extender is made of.

    Parameters
    ----------
    bridge : answers
    api : of the API server, whose methods are called in threads
    gauges : of the cluster, for the metrics
    warm : done once in a thread, before questions are answered: compiles kernels
    close : done last: writes out the journal
    trouble : why nothing can be decided now; empty if nothing is in the way
    about : what is logged when it listens: policy, target workload
    rest_s : from the start to the first answer, while writes of an earlier process may land
    """

    bridge: Answering
    api: Any
    gauges: Callable[[], Mapping[str, float]] = dict
    warm: Callable[[], Any] = dict
    close: Callable[[], Any] = dict
    trouble: Callable[[], str] = str
    about: Mapping[str, Any] = field(default_factory=dict)
    rest_s: float = 0.0


class Extender(Service):
    """A bridge behind HTTP.

    Parameters
    ----------
    works : what it is made of
    limits : of callers
    """

    error_key = "Error"

    def __init__(self, works: Works, limits: Limits) -> None:
        super().__init__(limits, {"kernels", EARLIER} if works.rest_s else {"kernels"},
                         "sched_lab", "verb")
        self.works = works
        self.bridge = works.bridge
        self.pool = ThreadPoolExecutor(limits.requests, "call")
        self.threads: list[threading.Thread] = []
        self.loop: asyncio.AbstractEventLoop | None = None
        self.room = threading.BoundedSemaphore(limits.events)
        registry = self.registry
        self.decisions = Counter("sched_lab_decisions", "Filters by mode and outcome.",
                                 ["mode", "outcome"], registry=registry)
        self.bind_failures = Counter("sched_lab_bind_failures", "Binds that failed.",
                                     registry=registry)
        self.watch_restarts = Counter("sched_lab_watch_restarts", "Watches that were begun again.",
                                      ["kind"], registry=registry)
        registry.register(ClusterGauges(lambda: {} if self.health.waits_for else works.gauges()))
        ProcessCollector(registry=registry)

    @property
    def about(self) -> dict[str, Any]:
        """What is logged when it listens."""
        return {"mode": self.bridge.mode, **self.works.about}

    def lines(self, guard: Guard) -> list[Line]:
        """The three verbs of an extender."""
        may_bind = guard.asks or guard.is_insecure
        answers = {"filter": decide, "prioritize": decide, "bind": bind if may_bind else refuse}
        return [Line("POST", f"/{verb}", partial(answer, self, verb), verb, True)
                for verb, answer in answers.items()]

    def check_open(self) -> None:
        """Refuse questions before the cluster is known."""
        if self.health.waits_for:
            raise Refusal(503, f"not ready: {self.health.words()}")

    @contextlib.asynccontextmanager
    async def life(self) -> AsyncIterator[None]:
        """Compile, rest, watch and let time pass; in the end, write the journal out."""
        self.loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(job(self)) for job in (warm_up, rest, tick)]
        for task in tasks:
            task.add_done_callback(self.health.fail_with)
        if self.threads:
            self.threads.pop(0).start()
        try:
            yield
        finally:
            self.health.stopping.set()
            for task in tasks:
                task.cancel()
            self.pool.shutdown(cancel_futures=True)
            self.works.close()


async def decide(extender: Extender, verb: str, request: Request,
                 question: dict[str, Any]) -> tuple[Any, int]:
    """Which nodes may take a pod, or how good each node is."""
    bridge = extender.bridge
    if verb == "prioritize":
        return bridge.prioritize(question, time.monotonic()), 200
    answer = bridge.filter(question, time.monotonic())
    extender.decisions.labels(bridge.mode, outcome_of(answer)).inc()
    return answer, 200


async def bind(extender: Extender, verb: str, request: Request,
               question: dict[str, Any]) -> tuple[Any, int]:
    """Bind a pod."""
    steps = extender.bridge.binding(question, time.monotonic())
    answer = await walked(steps, extender.works.api, extender.pool)
    if answer["Error"]:
        extender.bind_failures.inc()
        LOG.warning("a bind failed", extra={"fields": {"error": answer["Error"]}})
    return answer, 200


async def refuse(extender: Extender, verb: str, request: Request,
                 question: dict[str, Any]) -> tuple[Any, int]:
    """Refuse to bind for somebody who is not asked who it is."""
    raise Refusal(403, "a bind needs a caller who shows a token or a certificate: start the server "
                  "with --token-file or --client-ca, or with --insecure")


class Heard:
    """An API that says when a watch begins."""

    def __init__(self, api: Any, begun: Callable[[str], None]) -> None:
        self.api = api
        self.begun = begun

    def list(self, kind: str) -> Any:
        """As the API lists; why it does not is logged, since we are not ready before it does."""
        try:
            return self.api.list(kind)
        except Exception as trouble:
            LOG.warning("cannot list %s: %s", kind, trouble)
            raise

    def watch(self, kind: str, version: str) -> Any:
        """As the API watches."""
        self.begun(kind)
        return self.api.watch(kind, version)


def on_loop(extender: Extender, action: Callable[..., None], *arguments: Any) -> None:
    """Let the loop do something that must not fail, in the order in which it is asked to."""
    def act() -> None:
        extender.room.release()
        try:
            action(*arguments)
        except Exception as error:
            extender.health.fail(error)

    extender.room.acquire()
    assert extender.loop is not None
    with contextlib.suppress(RuntimeError):  # it has ended
        extender.loop.call_soon_threadsafe(act)


Follow = Callable[[Any, str, Callable[[Any], None], Callable[[float], Any]], Iterator[Any]]


def note_watch(extender: Extender, kind: str) -> None:
    """Note that a watch has begun: the first means that the list has been read."""
    if kind not in extender.health.waits_for:
        extender.watch_restarts.labels(kind).inc()
        return
    extender.health.done(kind)
    if extender.threads:
        extender.threads.pop(0).start()


def follow_on(extender: Extender, api: Any, follow: Follow, kind: str) -> None:
    """Follow one kind of object until the end; runs in a thread."""
    stopping = extender.health.stopping
    heard = Heard(api, partial(on_loop, extender, note_watch, extender))
    tell = partial(on_loop, extender, extender.bridge.tell)
    try:
        for _ in follow(heard, kind, tell, stopping.wait):
            if stopping.is_set():
                return
        raise RuntimeError(f"the follower of {kind} has ended")
    except Exception as error:
        on_loop(extender, extender.health.fail, error)


def watch_with(extender: Extender, api: Any, follow: Follow,
               kinds: Sequence[str] = ("nodes", "pods")) -> None:
    """Let an extender follow objects, and answer nothing before all have been listed.

    Parameters
    ----------
    extender : not running yet
    api : as `follow` takes it
    follow : of {py:mod}`fleet.live.follow <sched_lab.fleet.live.follow>`, or a stand-in
    kinds : one after the other: what a pod holds may be known only beside its node
    """
    for kind in kinds:
        extender.health.waits_for.add(kind)
        extender.threads.append(threading.Thread(
            target=follow_on, args=(extender, api, follow, kind), daemon=True))


TICK_S = 1.0


async def tick(extender: Extender) -> None:
    """Let time pass for the bridge."""
    while True:
        if not extender.health.waits_for:
            steps = extender.bridge.settling(time.monotonic())
            await walked(steps, extender.works.api, extender.pool)
            extender.health.note(extender.works.trouble())
        await asyncio.sleep(TICK_S)


async def warm_up(extender: Extender) -> None:
    """Compile in a thread: probes are answered meanwhile."""
    await asyncio.get_running_loop().run_in_executor(extender.pool, extender.works.warm)
    extender.health.done("kernels")


async def rest(extender: Extender) -> None:
    """Let writes of an earlier process land, so that the watch tells of them, or die."""
    await asyncio.sleep(extender.works.rest_s)
    extender.health.done(EARLIER)
