"""What pods hold against the conditions, counted from the pods alone, and whether it is ours or theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sched_lab.cluster import WHOLE_GPU_MILLI
from sched_lab.fleet.live.core import (
    Asked,
    Decision,
    Event,
    LiveCluster,
    LiveNode,
    LivePod,
    LiveSettings,
    NodeSeen,
    Passed,
    PodSeen,
    capacity_of,
    mask_of,
    within,
)
from sched_lab.fleet.read.tables import gpus_of
from sched_lab.fleet.replay.problem import Constraint, Rule, constraint_of, json_of, meets, taints_in, tolerates
from sched_lab.traces import admits


class AuditedCluster(LiveCluster):
    """A live cluster that remembers who chose each place, and since when it is taken."""

    def __init__(self, settings: LiveSettings) -> None:
        super().__init__(settings)
        self.placed_by_us: dict[str, bool] = {}  # by uid
        self.since: dict[str, int] = {}  # version after which a pod held what it holds
        self.node_since: dict[str, int] = {}
        self.least: dict[str, int] = {}  # of parts that were promised a place together, by uid
        self.halves: list[str] = []  # gangs of which some parts were promised a place, and others had none

    def apply(self, event: Event) -> Decision | None:
        """Take note of an event, and of what it changed."""
        version = self.version
        before = dict(self._register.held) if isinstance(event, Asked | PodSeen) else {}
        promised = self._promised()
        decision = super().apply(event)
        if isinstance(event, Asked | PodSeen):
            is_ours = isinstance(event, Asked)
            settled = sum(pod.gang == event.pod.gang for uid, pod in before.items() if uid not in promised)
            is_together = is_ours and event.pod.gang and settled < event.least > 1
            for uid, pod in self._register.held.items():
                if before.get(uid) is not pod and (is_ours or before.get(uid) != pod):
                    self.placed_by_us[uid] = is_ours
                    self.since[uid] = self.version
                    self.least[uid] = event.least if is_together else 0
        self._look_for_halves(event)
        if isinstance(event, NodeSeen) and self.version > version:
            self.node_since[event.node.name] = self.version
        return decision

    def _promised(self) -> list[str]:
        """Uids of pods with a place that they may lose."""
        return [uid for uid, one in self.reservations.items() if not one.is_committing]

    def _look_for_halves(self, event: Event) -> None:
        """Note gangs that hold a part of what was promised together, and promises that are too old."""
        for uid in self._promised():
            gang, least = self._register.held[uid].gang, self.least.get(uid, 0)
            parts = sum(pod.gang == gang for pod in self._register.held.values())
            if parts < least:
                self.halves.append(f"ours: {parts} of {least} parts of {gang} have a place")
            if isinstance(event, Passed) and least and event.at_s - self.reservations[uid].at_s > self.settings.gang_s:
                self.halves.append(f"ours: {gang} has its place for too long")

    @property
    def pending(self) -> dict[str, LivePod]:
        """Pods that were seen without a node and have no reservation, by uid."""
        return {uid: pod for uid, pod in self._register.waiting.items() if self.holds(uid) is None}

    def violations(self) -> list[str]:
        """Say what is wrong, "ours: ..." or "theirs: ...": ours if it was so once our last pod had come."""
        return [*self.halves, *(line for name in self.names for line in [*self._violations_on(self._nodes[name]),
                                                                         *self._crowds_on(name)])]

    def _violations_on(self, node: LiveNode) -> list[str]:
        pods = self._register.on_node.get(node.name, {})
        last = max((self.since[uid] for uid in pods if self.placed_by_us[uid]), default=0)
        if last > self.node_since[node.name]:
            there = [pod for uid, pod in pods.items() if self.since[uid] <= last]
            if by_us := [*excess_of(node, there), *self._wrong_places(node)]:
                return [f"ours: node {node.name}: {what}" for what in by_us]
        return [f"theirs: node {node.name}: {what}" for what in excess_of(node, pods.values())]

    def _crowds_on(self, name: str) -> list[str]:
        """Applications of which more pods are on a node than one of them admits."""
        most: dict[str, dict[str, int]] = {}  # by application and uid
        for uid, pod in self._register.on_node.get(name, {}).items():
            said = json.loads(pod.constraints or "{}")
            if "group" in said:
                most.setdefault(said["group"], {})[uid] = said["most_per_node"]
        found = []
        for app, there in sorted(most.items()):
            last = max((self.since[uid] for uid in there if self.placed_by_us[uid]), default=0)
            then = [limit for uid, limit in there.items() if self.since[uid] <= last]
            if len(there) > min(there.values()):
                whose = "ours" if then and len(then) > min(then) else "theirs"
                found.append(f"{whose}: node {name}: {len(there)} pods of {app}, of which one admits "
                             f"{min(there.values())}")
        return found

    def _wrong_places(self, node: LiveNode) -> list[str]:
        """Pods that we placed on a node, as it is now, without need of its labels, model or GPUs."""
        found = []
        for uid, pod in self._register.on_node.get(node.name, {}).items():
            if not self.placed_by_us[uid] or self.since[uid] <= self.node_since[node.name]:
                continue
            gpus = [gpu for share in pod.shares for gpu in gpus_of(share.gpu_list)]
            count = sum(share.num_gpus for share in pod.shares)
            if len(set(gpus)) != count or max(gpus, default=-1) >= node.num_gpus:
                found.append(f"{uid} holds GPUs {gpus}, and asked for {count}")
            if closed := sorted(set(gpus) & set(gpus_of(node.closed_gpus))):
                found.append(f"{uid} holds GPUs {closed}, on which nothing new may be")
            if count and not admits(pod.gpu_models, node.gpu_model.strip()):
                found.append(f"{uid} does not admit model {node.gpu_model}")
            if not admitted_by(node, constraint_of(pod.constraints) or Constraint()):
                found.append(f"{uid} does not admit the labels or taints")
        return found


def excess_of(node: LiveNode, pods: Iterable[LivePod]) -> list[str]:
    """Say what pods hold beyond what their node has."""
    cpu, memory, num_gpus = capacity_of(node)
    held = list(pods)
    used_cpu = sum(within(pod.cpu_milli) for pod in held)
    used_memory = sum(within(pod.memory_mib) for pod in held)
    found = [f"{used} {unit} held of {there}" for used, there, unit in (
        (used_cpu, cpu, "milli-vCPU"), (used_memory, memory, "MiB")) if used > there]
    shares = [(mask_of(share, num_gpus), share) for pod in held for share in pod.shares]
    for gpu in range(num_gpus):
        used = sum(within(share.gpu_milli) for mask, share in shares if mask >> gpu & 1)
        if used > WHOLE_GPU_MILLI:
            found.append(f"{used} milli held of GPU {gpu}")
    return found


def admitted_by(node: LiveNode, constraint: Constraint) -> bool:
    """Whether one node has the labels and no more taints than a constraint admits."""
    own = {str(key): str(value) for key, value in (json_of(node.labels, dict) or {}).items()}
    own["metadata.name"] = node.name

    def holds(rules: Iterable[Rule]) -> bool:
        return all(meets(rule, own.get(rule.key)) for rule in rules)

    is_tolerated = all(any(tolerates(one, taint) for one in constraint.tolerations)
                       for taint in taints_in(json_of(node.taints, list) or []))
    is_met = constraint.terms is None or any(map(holds, filter(None, constraint.terms)))
    return is_tolerated and is_met and holds(constraint.selector)
