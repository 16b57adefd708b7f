"""A decision for HAMi's device plugin: devices by name for each container, a lock on the node, and its answer."""

# A module, written by hand.

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..read.dates import seconds_of
from ..read.devices import ALLOCATING, GPU, HAMI
from ..read.kubernetes import NodeGpus, amounts_of_containers, given_to, pod_name
from ..read.objects import Item, dig, text_at, texts_at, whole
from ..read.tables import gpus_of
from .bridge import FOR_GOOD, MODEL_RULES, ApiError, BindingArgs, Bridge, Call, Objects, Steps, uid_of
from .core import LiveNode, LivePod

__all__ = ['HamiBridge']

LOCK_S = 300.0  # HAMi's own time limit of a lock
NODE, TIME, BIND_TIME = "hami.io/vgpu-node", "hami.io/vgpu-time", "hami.io/bind-time"
RULES = ("nvidia.com/numa-bind", "nvidia.com/vgpu-mode")  # annotations that choose among the GPUs of a node


def devices_for(item: Item, gpus: NodeGpus, gpu_list: str) -> str:
    """Devices of each container as HAMi's plugin reads them, and a `;` behind each.

    Init containers, which get none, come first. Several containers with shares have the one GPU together.

    Parameters
    ----------
    item : the pod
    gpus : of its node
    gpu_list : that are the pod's
    """
    numbers = gpus_of(gpu_list)
    memories = {one.name: one.memory_mib or 0 for one in gpus.registered}
    asked = amounts_of_containers(item)
    counts = [int(one[GPU]) for one in asked]
    is_together = sum(counts) > len(numbers)
    number, memory, cores, percentage = HAMI.asks[:4]
    written = ";" * len(item.objects("spec", "initContainers"))
    for one, count in zip(asked, counts, strict=True):
        is_whole = not (one[memory] or one[cores] or 0 < one[percentage] < 100)  # and nobody beside it
        part = int(one[percentage]) or (0 if one[memory] else 100)
        for gpu in numbers[:count]:
            uuid = gpus.uuids[gpu]
            mib = max(whole(str(one[memory])) or 0, memories.get(uuid, 0) * part // 100)
            written += f"{uuid},NVIDIA,{mib},{100 if is_whole else int(one[cores])}:"
        written += ";"
        numbers = numbers if is_together else numbers[count:]
    return written


class Unanswered(NamedTuple):
    """A pod for which the plugin of its node has not answered yet, and since when, in seconds since 1970."""

    pod: str
    node: str
    since_s: float


class HamiObjects(Objects):
    """Reader of nodes with a register of HAMi; a GPU keeps its number as long as this reader lives, whatever its node does.

    Attributes
    ----------
    now_s : seconds since 1970
    seen : GPUs that each node has or had
    unanswered : pods that wait for their devices, by uid
    """

    def __init__(self, gpu_index: str = "", has_gangs: bool = True) -> None:
        super().__init__("", has_gangs)
        self.now_s: Callable[[], float] = time.time
        self.seen: dict[str, NodeGpus] = {}
        self.unanswered: dict[str, Unanswered] = {}

    def node(self, body: dict[str, Any]) -> LiveNode:
        """A node with the GPUs of its register and no others; those that may get nothing, or have gone, are closed."""
        node = super().node(body)
        gpus = self.gpus[node.name]
        is_open = {one.name: one.is_open for one in gpus.registered}
        closed = [str(number) for number, name in enumerate(gpus.uuids) if not is_open.get(name)]
        return replace(node, num_gpus=gpus.num_gpus, closed_gpus="-".join(closed))

    def remember(self, name: str, gpus: NodeGpus | None) -> None:
        """Remember the GPUs that a node has or had, as if it had them."""
        if gpus is not None:
            names = tuple(dict.fromkeys([*self.seen.get(name, NodeGpus()).uuids, *(
                one.name for one in gpus.registered)]))
            self.seen[name] = gpus = gpus._replace(num_gpus=len(names), uuids=names)
        super().remember(name, gpus)

    def pod(self, body: dict[str, Any]) -> LivePod | None:
        """A pod; it is remembered if it waits for its devices, or has some that no register has had yet."""
        item, uid = Item("Pod", body), uid_of(body)
        self.unanswered.pop(uid, None)
        pod = super().pod(body)
        devices = {name for given in given_to(item, HAMI) for name, _, _ in given}
        if not (item.is_over or devices <= {*self.seen.get(item.node, NodeGpus()).uuids}):
            self.unsettled[uid] = body
        if item.node and waits_on(item.node, body):
            since_s = whole(item.annotations.get(BIND_TIME)) or 0
            self.unanswered[uid] = Unanswered(pod_name(item), item.node, since_s)
        return pod

    def known(self, names: Sequence[str]) -> dict[str, NodeGpus]:
        """What is remembered of some nodes, also of those that are not there now."""
        return {name: self.seen[name] for name in names if name in self.seen}

    def blocked_nodes(self, names: Sequence[str]) -> dict[str, str]:
        """Nodes whose plugin has not answered for longer than a lock lasts.

        `Allocate` does not name a pod: a plugin that wakes up later would give the next pod's devices to the first.
        """
        late = {}
        for uid, one in list(self.unanswered.items()):  # others may write
            if self.now_s() > one.since_s + LOCK_S and uid not in self.told:
                self.unanswered.pop(uid, None)
            elif self.now_s() > one.since_s + LOCK_S:
                late[one.node] = one.pod
        return {name: f"the device plugin has not answered for {late[name]}" for name in names if name in late}

    def refusal_of(self, item: Item, amounts: Mapping[str, Any]) -> str:
        """Why what a pod asks for cannot be written for HAMi's plugin; empty if it can."""
        if not amounts:
            return ""
        for name in amounts:
            if name not in (*HAMI.asks, *MODEL_RULES):
                return f"{name} says nothing to HAMi's plugin, ask for {GPU}"
        for name in RULES:
            if item.annotations.get(name):
                return f"{name} chooses among GPUs, which is not represented"
        before = Item("Pod", {"spec": {"containers": item.objects("spec", "initContainers")}})
        if any(one[name] for one in amounts_of_containers(before) for name in HAMI.asks):
            return "an init container asks for GPUs, which is not represented"
        if any(not one[GPU] and any(one[name] for name in HAMI.marks) for one in amounts_of_containers(item)):
            return f"a container asks for a share without {GPU}, so its plugin is not asked"
        return ""


class Lock(NamedTuple):
    """The lock of a node that we have written: the node, and the text."""

    node: str
    written: str


class HamiBridge(Bridge):
    """The extender of a scheduler whose nodes have HAMi's device plugin.

    A node is locked before the bind and unlocked by its plugin, so that one pod at a time waits for its devices there.

    Attributes
    ----------
    locks : of nodes, which we have written for a bind that has not happened yet, by uid of the pod
    """

    _reads = HamiObjects
    objects: HamiObjects

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.locks: dict[str, Lock] = {}

    def begin_term(self) -> None:
        """Begin to lead; locks of before are over in time."""
        super().begin_term()
        self.locks.clear()

    def _carry_out(self, binding: BindingArgs, uid: str, gpu_list: str,
                   ) -> Generator[Call, Any, tuple[ApiError | None, bool]]:
        """Lock the node, then bind and write the devices at once."""
        if not gpu_list:
            return (yield from self._send(binding, {}))
        try:
            body = yield Call("pod", (binding.namespace, binding.name))
            if body is None or uid_of(body) != uid or text_at(body, "spec", "nodeName"):
                raise ApiError(409, "it has gone, or has a node")
            if (gpus := self.objects.gpus.get(binding.node)) is None:
                raise ApiError(404, f"there is no node {binding.node} any more")
            devices = devices_for(Item("Pod", body), gpus, gpu_list)
            yield from self._lock(binding, uid)
        except ApiError as trouble:
            return trouble, False
        outcome = yield from self._send(binding, self._written(binding.node, devices))
        if outcome[0] is None:
            self.locks.pop(uid, None)  # it is the plugin's now
        return outcome

    def _written(self, node: str, devices: str) -> dict[str, str]:
        """Annotations that carry out a decision."""
        now = str(int(self.objects.now_s()))
        return {NODE: node, TIME: now, **dict.fromkeys(HAMI.given[:2], devices), HAMI.phase: ALLOCATING, BIND_TIME: now}

    def _lock(self, binding: BindingArgs, uid: str) -> Steps:
        """Lock a node for a pod, in several attempts if need be.

        Raises
        ------
        ApiError : it cannot be locked, or another pod waits for its devices there
        """
        for pause_s in (*self.settings.pauses_s, None):
            try:
                node = yield Call("node", (binding.node,))
                if node is None:
                    raise ApiError(404, f"there is no node {binding.node}")
                written = lock_of(node)
                is_ours = written.split(",")[1:] == [binding.namespace, binding.name]
                is_held = Lock(binding.node, written) in self.locks.values()  # for a bind that may still land
                if written and not is_ours and (is_held or not (yield from self._is_over(written, binding.node))):
                    raise ApiError(409, f"the node is locked until its plugin has answered: {written:.200}")
                now = datetime.fromtimestamp(self.objects.now_s(), UTC)
                lock = f"{now:%Y-%m-%dT%H:%M:%S.%fZ},{binding.namespace},{binding.name}"
                self.locks[uid] = Lock(binding.node, lock)  # also if it is unknown whether it was written
                yield Call("annotate_node", (binding.node, {HAMI.lock: lock}, version_of(node)))
                return
            except ApiError as trouble:
                if pause_s is None or (trouble.status in FOR_GOOD and trouble.status != 409):
                    raise
            yield Call("pause", (pause_s,))

    def _is_over(self, written: str, node: str) -> Generator[Call, Any, bool]:
        """Whether a lock may be broken: its pod has gone or ended, or it is old and its pod waits for nothing there."""
        stated, *owner = written.split(",")
        since_s = seconds_of(stated)
        if since_s is None or len(owner) not in (0, 2):
            return False
        is_old: bool = self.objects.now_s() > since_s + LOCK_S
        if not owner:
            return is_old
        body = yield Call("pod", tuple(owner))
        return body is None or Item("Pod", body).is_over or (is_old and not waits_on(node, body))

    def _tidy(self, uid: str) -> Steps:
        """Take our lock off the node, unless its pod waits for devices there; if that fails, the lock is over in time."""
        lock = self.locks.pop(uid, None)
        if lock is None:
            return
        for pause_s in (*self.settings.pauses_s, None):
            try:
                body = yield Call("pod", tuple(lock.written.split(",")[1:]))
                node = yield Call("node", (lock.node,))
                is_ours = lock_of(node) == lock.written and lock not in self.locks.values()  # of a pod of the same name
                if is_ours and not waits_on(lock.node, body):
                    yield Call("annotate_node", (lock.node, {HAMI.lock: None}, version_of(node)))
                return
            except ApiError:
                if pause_s is not None:
                    yield Call("pause", (pause_s,))


def waits_on(node: str, body: dict[str, Any] | None) -> bool:
    """Whether a pod waits for its devices on a node."""
    item = Item("Pod", body or {})
    return item.node == node and item.annotations.get(HAMI.phase) == ALLOCATING and not item.is_over


def lock_of(node: dict[str, Any] | None) -> str:
    """What the lock of a node says; empty if it has none."""
    return texts_at(dig(node, "metadata"), "annotations").get(HAMI.lock, "")


def version_of(node: dict[str, Any] | None) -> str:
    """Version of a node."""
    return text_at(node, "metadata", "resourceVersion")
