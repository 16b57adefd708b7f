"""The bridge behind HTTP: who may ask, how much, for how long, and what is measured."""

# A module, written by hand.

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

from prometheus_client import Counter, Gauge, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request

from ...lab.access import Guard, Refusal
from ...lab.web import Endpoint, Limits, Service
from ...power import GPU_POWER_W
from .bridge import Bridge, Steps
from .core import Asked, Event, LiveCluster, LiveNode, LivePod, LiveSettings, NodeSeen, PodGone, Share
from .journal import header_of, standing_said
from .lease import FencedApi, Lease

__all__ = ['Extender']

LOG = logging.getLogger("sched_lab.serve")

GAUGES = {
    "eopc_w": ("eopc_watts", 1, "Power of the nodes by Eq. 1-2."),
    "gpus": ("gpus", 1, "GPUs of the nodes that are not closed."),
    "closed_gpus": ("gpus_closed", 1, "GPUs on which nothing new may be put."),
    "used_gpu_milli": ("gpus_used", 0.001, "GPUs, not closed, that pods hold, bound or reserved."),
    "fragmentation_gpu_milli": ("fragmentation_gpus",  0.001, "GPUs that are free and of no use "
                                "to a task of the target workload, expected."),
    "stranded_gpu_milli": ("gpus_stranded", 0.001, "GPUs that are free beyond what the CPU "
                           "beside them can serve at the usual ratio."),
    "pods": ("pods", 1, "Pods that hold something."),
    "reservations": ("reservations", 1, "Reservations that are not bound yet."),
    "gangs_waiting": ("gangs_waiting", 1, "Groups of pods that start together, of which some have no place."),
}


class BridgeGauges(Collector):
    """What a bridge and its cluster can say of themselves when they are asked.

    Parameters
    ----------
    bridge : that is asked
    is_ready : whether it knows its cluster
    """

    def __init__(self, bridge: Bridge, is_ready: Callable[[], bool]) -> None:
        self.bridge = bridge
        self.is_ready = is_ready

    def collect(self) -> Iterator[Metric]:
        """One family for each gauge; lapsed reservations and refusals are counters."""
        yield GaugeMetricFamily("sched_lab_journal_bytes", "Size of the journal.",
                                value=self.bridge.journal.num_bytes())
        refusals = CounterMetricFamily("sched_lab_refusals", "Questions without a node, by what was in the way on most "
                                       "nodes; refused: by the question itself.", labels=["condition"])
        for condition, count in self.bridge.refusals.items():
            refusals.add_metric([condition], count)
        yield refusals
        for name, value in self.bridge.live.gauges().items() if self.is_ready() else ():
            if name in GAUGES:
                metric, factor, words = GAUGES[name]
                yield GaugeMetricFamily(f"sched_lab_{metric}", words, value=factor * value)
            elif name == "lapsed":
                yield CounterMetricFamily("sched_lab_reservations_lapsed", "Reservations that "
                                          "ended by time.", value=value)


async def carry_out(steps: Steps, api: Any, pool: ThreadPoolExecutor | None) -> Any:
    """Carry out the calls that a generator hands out, in threads; return what it returns."""
    loop = asyncio.get_running_loop()
    try:
        call = next(steps)
        while True:
            try:
                if call.method == "pause":
                    found = await asyncio.sleep(*call.arguments)
                else:
                    action = partial(getattr(api, call.method), *call.arguments)
                    found = await loop.run_in_executor(pool, action)
            except Exception as trouble:
                call = steps.throw(trouble)
            else:
                call = steps.send(found)
    except StopIteration as done:
        return done.value


def warm_up(settings: LiveSettings) -> None:
    """Ask what a scheduler asks of a small cluster, so that all that is needed is compiled."""
    live = LiveCluster(settings)
    model = min(GPU_POWER_W)
    for node in (LiveNode("a", model, 4, 64_000, 65_536), LiveNode("b", "", 0, 64_000, 65_536)):
        live.apply(NodeSeen(node))
    for number, shares in enumerate([(), (Share(1, 500),), (Share(2, 1000),), (Share(9, 1000),)]):
        pod = LivePod(f"u{number}", f"lab/p{number}", 1000, 1024, shares,
                      constraints='{"group": "warm", "most_per_node": 9}')
        live.scores(pod)
        live.apply(Asked(pod, None, 0.0, True))
        live.why_not(pod)
    live.gauges()


Follow = Callable[[Any, str, Callable[[Any], None], Callable[[float], Any]], Iterator[Any]]
EARLIER = "writes of an earlier process"
LEASE = "the lease"
TICK_S = 1.0


class Extender(Service):
    """A bridge behind HTTP.

    Parameters
    ----------
    bridge : answers
    api : of the API server, whose methods are called in threads
    limits : of callers
    warm : done once in a thread, before questions are answered: compiles kernels
    details : logged when it listens: policy, target workload
    rest_s : from the start to the first answer, while writes of an earlier process may land
    lease : which of several replicas answers; None if there is one
    """

    error_key = "Error"

    def __init__(self, bridge: Bridge, api: Any, limits: Limits, *, warm: Callable[[], Any],
                 details: Mapping[str, Any] | None = None, rest_s: float = 0.0,
                 lease: Lease | None = None) -> None:
        waits_for = {"kernels", *([EARLIER] if rest_s else []), *([LEASE] if lease else [])}
        super().__init__(limits, waits_for, "sched_lab", "verb")
        self.bridge = bridge
        self.lease = lease
        self.is_warm = False  # it could answer, if it led
        self.api = FencedApi(api, lease) if lease else api
        self.turns: dict[str, int] = defaultdict(int)  # by kind: how often it was listed for a new leader
        self.warm = warm
        self.details = details or {}
        self.rest_s = rest_s
        self.pool = ThreadPoolExecutor(limits.requests, "call")
        self.threads: list[threading.Thread] = []
        self.loop: asyncio.AbstractEventLoop | None = None
        self.room = threading.BoundedSemaphore(limits.events)
        registry = self.registry
        self.decisions = Counter("sched_lab_decisions", "Filters by mode and outcome.",
                                 ["mode", "outcome"], registry=registry)
        self.bind_failures = Counter("sched_lab_bind_failures", "Binds that failed.",
                                     registry=registry)
        if lease is not None:
            leads = Gauge("sched_lab_leads", "1 if the lease is ours.", registry=registry)
            leads.set_function(lambda: float(lease.left_s() > 0))
        self.watch_restarts = Counter("sched_lab_watch_restarts", "Watches that were begun again.",
                                      ["kind"], registry=registry)
        registry.register(BridgeGauges(bridge, lambda: not self.health.waits_for))
        ProcessCollector(registry=registry)

    @property
    def about(self) -> dict[str, Any]:
        """What is logged when it listens."""
        return {"mode": self.bridge.mode, **self.details}

    def endpoints(self, guard: Guard) -> list[Endpoint]:
        """The three verbs of an extender, and what `explain --live` reads."""
        may_bind = guard.asks or guard.is_insecure
        answers = {"filter": self._filter, "prioritize": self._prioritize,
                   "bind": self._bind if may_bind else self._refuse_bind}
        return [*(Endpoint("POST", f"/{verb}", answer, verb, True) for verb, answer in answers.items()),
                Endpoint("GET", "/state", self._state, "state", False)]

    def check_open(self) -> None:
        """Refuse questions before the cluster is known."""
        if self.health.waits_for:
            raise Refusal(503, f"not ready: {self.health.words()}")

    async def _filter(self, request: Request, question: dict[str, Any]) -> tuple[Any, int]:
        """Which nodes may take a pod."""
        await carry_out(self.bridge.looking_at_group(question, time.monotonic()), self.api, self.pool)
        self._check_lease()
        answer = self.bridge.filter(question, time.monotonic())
        nodes = answer.get("NodeNames") or (answer.get("Nodes") or {}).get("items")
        outcome = "error" if answer.get("Error") else "fits" if nodes else "none"
        self.decisions.labels(self.bridge.mode, outcome).inc()
        return answer, 200

    async def _prioritize(self, request: Request, question: dict[str, Any]) -> tuple[Any, int]:
        """How good each node is."""
        self._check_lease()
        return self.bridge.prioritize(question, time.monotonic()), 200

    def _check_lease(self, *, binds: bool = False) -> None:
        """Refuse what another may be asked for by now."""
        if self.lease and not (self.lease.may_bind() if binds else self.lease.left_s() > 0):
            raise Refusal(503, "not the leader: the lease was not renewed in time")

    async def _bind(self, request: Request, question: dict[str, Any]) -> tuple[Any, int]:
        """Bind a pod."""
        self._check_lease(binds=True)
        steps = self.bridge.binding(question, time.monotonic())
        answer = await carry_out(steps, self.api, self.pool)
        if answer["Error"]:
            self.bind_failures.inc()
            LOG.warning("a bind failed", extra={"fields": {"error": answer["Error"]}})
        return answer, 200

    async def _state(self, request: Request, question: dict[str, Any]) -> tuple[Any, int]:
        """How the cluster stands, as a file of a journal begins."""
        live = self.bridge.live
        return {**header_of(live.settings), "standing": standing_said(live.standing())}, 200

    async def _refuse_bind(self, request: Request, question: dict[str, Any]) -> tuple[Any, int]:
        """Refuse to bind for somebody who is not asked who it is."""
        raise Refusal(403, "a bind needs a caller who shows a token or a certificate: start the "
                      "server with --token-file or --client-ca, or with --insecure")

    # --- beside the answers

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Compile, rest, watch and let time pass; in the end, write the journal out."""
        self.loop = asyncio.get_running_loop()
        jobs = [self._warm_up, self._rest, self._tick, *([self._lead] if self.lease else [])]
        tasks = [asyncio.create_task(job()) for job in jobs]
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
            if self.lease:
                await asyncio.gather(*tasks, return_exceptions=True)
                await carry_out(self.lease.step(False, self.bridge.is_idle), self.api, None)
            self.bridge.journal.close()

    async def _warm_up(self) -> None:
        """Compile in a thread: probes are answered meanwhile."""
        await asyncio.get_running_loop().run_in_executor(self.pool, self.warm)
        self.health.done("kernels")

    async def _rest(self) -> None:
        """Let writes of an earlier process land, so that the watch tells of them, or die."""
        await asyncio.sleep(self.rest_s)
        self.health.done(EARLIER)

    async def _tick(self) -> None:
        """Let time pass for the bridge."""
        while True:
            self._note_lease()
            if self.health.waits_for <= {LEASE}:
                await carry_out(self.bridge.settling(time.monotonic()), self.api, self.pool)
                why = self.bridge.journal.trouble
                self.health.note(why and f"the journal cannot be written: {why}")
            await asyncio.sleep(TICK_S)

    async def _lead(self) -> None:
        """Take part in the election of a leader, in threads that no bind can keep busy."""
        assert self.lease is not None
        while True:
            self.is_warm = self.is_warm or self.health.waits_for <= {LEASE}
            is_able = self.is_warm and not self.bridge.journal.trouble
            await carry_out(self.lease.step(is_able, self.bridge.is_idle), self.api, None)
            self._note_lease()
            await asyncio.sleep(self.lease.pause_s())

    def _note_lease(self) -> None:
        """Begin to answer when the lease is ours and pods have been listed since; or do so no more.

        All that was bound before is in such a list, and may not have been told by a watch yet.
        """
        if self.lease is None:
            return
        leads = self.lease.left_s() > 0
        if leads and (LEASE in self.health.waits_for or self.lease.was_others):  # lost and taken again in one step, too
            if self.lease.was_others:
                self.bridge.begin_term()
            self.lease.was_others = False
            self.turns["pods"] += 1
            self._begin_to_follow("pods")
            self.threads.pop().start()
            self.health.done(LEASE)
        elif not leads and LEASE not in self.health.waits_for:
            self.health.waits_for.add(LEASE)
            LOG.warning("the lease is not ours any more")

    def watch(self, api: Any, follow: Follow, kinds: Sequence[str] = ("nodes", "pods")) -> None:
        """Follow objects once it runs, and answer nothing before all have been listed.

        Parameters
        ----------
        api : as `follow` takes it
        follow : of {py:mod}`fleet.live.follow <sched_lab.fleet.live.follow>`, or a stand-in
        kinds : one after the other: what a pod holds may be known only beside its node
        """
        self.followed = (api, follow)
        for kind in kinds:
            self._begin_to_follow(kind)

    def _begin_to_follow(self, kind: str) -> None:
        """Have a thread ready that lists and follows one kind of object, which we wait for."""
        self.health.waits_for.add(kind)
        self.threads.append(threading.Thread(
            target=self._follow, args=(*self.followed, kind, self.turns[kind]), daemon=True))

    def _follow(self, api: Any, follow: Follow, kind: str, turn: int) -> None:
        """Follow one kind of object until the end, or until it is listed anew; runs in a thread."""
        stopping = self.health.stopping

        def tell(event: Event) -> None:
            if turn == self.turns[kind] or isinstance(event, PodGone):  # who has gone stays so
                self.bridge.tell(event)

        def watch(kind: str, version: str) -> Any:
            self._on_loop(self._note_watch, turn, kind)
            return api.watch(kind, version)

        try:
            announcing = SimpleNamespace(list=lambda kind: api.list(kind), watch=watch)
            for _ in follow(announcing, kind, partial(self._on_loop, tell), stopping.wait):
                if stopping.is_set() or turn != self.turns[kind]:
                    return
            raise RuntimeError(f"the follower of {kind} has ended")
        except Exception as error:
            self._on_loop(self.health.fail, error)

    def _note_watch(self, turn: int, kind: str) -> None:
        """Note that a watch has begun: the first means that the list has been read."""
        if turn != self.turns[kind]:
            return
        if kind not in self.health.waits_for:
            self.watch_restarts.labels(kind).inc()
            return
        self.health.done(kind)
        if self.threads:
            self.threads.pop(0).start()

    def _on_loop(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Let the loop do something that must not fail, in the order in which it is asked to."""
        def act() -> None:
            self.room.release()
            try:
                action(*arguments)
            except Exception as error:
                self.health.fail(error)

        self.room.acquire()
        assert self.loop is not None
        with contextlib.suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(act)
