"""Events in, decisions out: what nodes have and pods hold, one pod's question at a time, by the kernels of an inflation."""

# A module, written by hand.

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ...cluster import MAX_GPUS_PER_NODE, WHOLE_GPU_MILLI, Cluster, empty_state
from ...hardware import knows_gpu_w
from ...lab.arrays import Integers, Truths
from ...lab.jit import njit
from ...online.bid import put_prices
from ...online.inflation import (
    Memory,
    add_points,
    draw_gpus,
    empty_memory,
    node_share,
    nth_marked,
    outdated,
    stage_now,
    weighing_of,
)
from ...online.joint import stranded_milli, usual_ratio
from ...online.model import (
    CONDITIONS,
    ONE_AT_RANDOM,
    Demand,
    Policy,
    PowerSettings,
    World,
    count_limit,
    gpu_indices,
    lacking,
    open_nodes,
    world_of,
)
from ...online.policies import policy_of
from ...traces import TaskClasses, Tasks, admits, default_tasks, models_of, target_workload
from ..read.tables import gpus_of
from ..replay.problem import (
    ENOUGH,
    LARGEST_AMOUNT,
    NO_CPU_POWER,
    UNKNOWN_CPU,
    Constraint,
    Sight,
    constraint_of,
    json_of,
    limits_among,
    pick_gpus,
    taints_in,
)

__all__ = ['LivePod', 'LiveNode', 'Decision', 'LiveSettings', 'LiveCluster']


class Share(NamedTuple):
    """GPUs that a pod asks for, or holds.

    Parameters
    ----------
    num_gpus : how many
    gpu_milli : of each; 1000 is a whole GPU
    gpu_list : which, as "2-3"; empty if they are not chosen yet, or not known
    """

    num_gpus: int
    gpu_milli: int
    gpu_list: str = ""


@dataclass(frozen=True)
class LivePod:
    """A pod: what it asks for and, once it has a node, what it holds.

    Parameters
    ----------
    uid : what tells it from an older pod of the same name; if it is empty, the name does
    name : namespace/name
    cpu_milli, memory_mib : demand
    shares : GPUs; several may be held, but not asked for
    gpu_models : admissible GPU models, "A10|T4"; empty for any
    constraints : JSON, as in the column of `tasks.csv`
    node : where it is; empty if it is nowhere yet
    gang : group with which it starts together; empty if it is alone, or is not there for its group
    """

    uid: str
    name: str
    cpu_milli: int
    memory_mib: int
    shares: tuple[Share, ...] = ()
    gpu_models: str = ""
    constraints: str = ""
    node: str = ""
    gang: str = ""


@dataclass(frozen=True)
class LiveNode:
    """A node, as a row of `nodes.csv`.

    Parameters
    ----------
    name, gpu_model, num_gpus : as there
    cpu_milli, memory_mib : capacity; None if it is not known, which counts as enough
    labels, taints : JSON texts
    closed_gpus : on which nothing new may be put, as "2-3"
    """

    name: str
    gpu_model: str
    num_gpus: int
    cpu_milli: int | None
    memory_mib: int | None
    labels: str = "{}"
    taints: str = ""
    closed_gpus: str = ""


class NodeSeen(NamedTuple):
    """A node is there, or is no longer as it was."""

    node: LiveNode


class NodeGone(NamedTuple):
    """A node is not there any more; what is known of its pods stays."""

    name: str


class PodSeen(NamedTuple):
    """A pod holds what it asks for (it has a node), or waits (it has none)."""

    pod: LivePod


class PodGone(NamedTuple):
    """A pod was deleted, or has ended."""

    uid: str


class Asked(NamedTuple):
    """Which node for this pod?

    Parameters
    ----------
    pod : who asks; a node that it names does not count
    nodes : names of the nodes that may be answered; None for all
    at_s : when, seconds of a clock that never goes back
    reserves : whether the answer is kept free for the pod
    least : how many pods of its gang must start together; below 2 it is decided alone
    """

    pod: LivePod
    nodes: tuple[str, ...] | None
    at_s: float
    reserves: bool
    least: int = 0


class Committing(NamedTuple):
    """The bind is about to be sent: from now on the reservation does not lapse by time."""

    uid: str
    at_s: float


class Bound(NamedTuple):
    """The API server says that the pod has the node that was reserved for it."""

    uid: str


class BindFailed(NamedTuple):
    """The API server says that it has not."""

    uid: str


class Passed(NamedTuple):
    """Time has passed: reservations that are too old lapse."""

    at_s: float


Event = NodeSeen | NodeGone | PodSeen | PodGone | Asked | Committing | Bound | BindFailed | Passed


@dataclass(frozen=True)
class Decision:
    """Answer to `Asked`.

    Parameters
    ----------
    version : of the state on which it was made
    uid, pod : who asked
    node, gpu_list : the choice; empty if no node can take the pod
    runner_up : node that would be next; empty if there is none
    points, runner_up_points : weighted sums of the two
    parts : name of each score, its weight, and its points at the chosen node
    failed : what was in the way first, by number of nodes that were asked
    refused : why the question itself was refused; empty if it was not
    together : how many parts of its gang have a place, in words; empty if it was decided alone
    """

    version: int
    uid: str
    pod: str
    node: str = ""
    gpu_list: str = ""
    runner_up: str = ""
    points: int = 0
    runner_up_points: int = 0
    parts: tuple[tuple[str, int, int], ...] = ()
    failed: tuple[tuple[str, int], ...] = ()
    refused: str = ""
    together: str = ""


class Reservation(NamedTuple):
    """What is kept free for a pod that has no node yet.

    Parameters
    ----------
    decision : what was answered, with the place
    at_s : since when, for `Passed`
    is_committing : whether a bind is on its way, so that only its outcome counts
    least : how many pods of its gang must hold something; 0 if it was decided alone
    """

    decision: Decision
    at_s: float
    is_committing: bool = False
    least: int = 0


@dataclass(frozen=True)
class LiveSettings:
    """What does not change while a cluster is served.

    Parameters
    ----------
    policy : a name for `policy_of`
    target : tasks whose popular classes are the target workload, or these classes; None for the
        embedded tasks
    power : how nodes draw power
    lapse_s : age at which a reservation lapses
    seed : of a policy that draws lots
    gang_s : age at which the reservations of a gang lapse, all together
    """

    policy: str = "fgd"
    target: Tasks | TaskClasses | None = None
    power: PowerSettings = PowerSettings()
    lapse_s: float = 30.0
    seed: int = 0
    gang_s: float = 60.0

    def classes(self) -> TaskClasses:
        """Classes of the target workload."""
        if isinstance(self.target, TaskClasses):
            return self.target
        return target_workload(default_tasks() if self.target is None else self.target)


def key_of(pod: LivePod) -> str:
    """What a pod is known by."""
    return pod.uid or pod.name


def within(amount: int | None) -> int:
    """An amount that sums of arrays can hold."""
    return min(max(int(amount or 0), 0), LARGEST_AMOUNT)


@lru_cache(maxsize=2**14)
def mask_of(share: Share, num_gpus: int) -> int:
    """GPUs of a share as a bit mask; 0 if they are unknown, or cannot be right on such a node."""
    gpus = set(gpus_of(share.gpu_list))
    is_right = len(gpus) == share.num_gpus and max(gpus, default=0) < num_gpus
    return sum(1 << gpu for gpu in gpus) if is_right else 0


class Register:
    """Who waits, who holds what, and for whom something is reserved: no arithmetic.

    What takes note of something returns the nodes on which something changed, None if it is no news.

    Attributes
    ----------
    waiting : pods that were seen without a node, by uid
    held : pods with the node and the GPUs that they hold, reserved or bound, by uid
    reservations : those of them that are not bound yet, by uid
    on_node : what is held by node and uid, also on nodes that are not there
    parts : what is held by gang and uid
    num_lapsed : reservations that ended by time
    """

    def __init__(self) -> None:
        self.waiting: dict[str, LivePod] = {}
        self.held: dict[str, LivePod] = {}
        self.reservations: dict[str, Reservation] = {}
        self.on_node: dict[str, dict[str, LivePod]] = {}
        self.parts: dict[str, dict[str, LivePod]] = {}
        self.num_lapsed = 0

    def hold(self, uid: str, pod: LivePod) -> set[str]:
        """Let a pod hold this and nothing else."""
        changed = self.drop(uid)
        self.held[uid] = pod
        self.on_node.setdefault(pod.node, {})[uid] = pod
        if pod.gang:
            self.parts.setdefault(pod.gang, {})[uid] = pod
        return changed | {pod.node}

    def drop(self, uid: str) -> set[str]:
        """Let a pod hold nothing."""
        self.reservations.pop(uid, None)
        pod = self.held.pop(uid, None)
        if pod is None:
            return set()
        for held_by, name in ((self.on_node, pod.node), (self.parts, pod.gang)):
            if name in held_by:
                del held_by[name][uid]
                if not held_by[name]:
                    del held_by[name]
        return {pod.node}

    def open_parts(self, gang: str) -> list[str]:
        """Uids of the parts of a gang that have been promised a place together, and may lose it."""
        kept = ((uid, self.reservations.get(uid)) for uid in self.parts.get(gang, ()))
        return [uid for uid, one in kept if one is not None and one.least and not one.is_committing]

    def keep_whole(self, gang: str) -> set[str]:
        """Give back all that is promised to a gang that holds less than must start together."""
        promised = self.open_parts(gang)
        least = max((self.reservations[uid].least for uid in promised), default=0)
        if len(self.parts.get(gang, ())) >= least:
            return set()
        return {name for uid in promised for name in self.drop(uid)}

    def lose(self, uid: str) -> set[str]:
        """Let a pod hold nothing, nor its gang what it was promised, unless the gang is whole without it."""
        gang = self.held[uid].gang if uid in self.held else ""
        return self.drop(uid) | self.keep_whole(gang)

    def see(self, pod: LivePod) -> set[str] | None:
        """Take note of a pod that has its node, or waits."""
        uid = key_of(pod)
        is_reserved = uid in self.reservations
        if pod.node:
            if self.held.get(uid) == pod and not is_reserved:
                return None
            self.waiting.pop(uid, None)
            before = self.held.get(uid, pod).gang
            return self.hold(uid, pod) | self.keep_whole(before)
        is_bound = uid in self.held and not is_reserved
        if is_bound or self.waiting.get(uid) == pod:
            return None
        self.waiting[uid] = pod
        return set()

    def forget(self, uid: str) -> set[str] | None:
        """Forget a pod."""
        is_known = uid in self.waiting or uid in self.held
        self.waiting.pop(uid, None)
        return self.lose(uid) if is_known else None

    def commit(self, uid: str) -> set[str] | None:
        """Keep a reservation until the outcome of its bind is known."""
        kept = self.reservations.get(uid)
        if kept is None or kept.is_committing:
            return None
        self.reservations[uid] = kept._replace(is_committing=True)
        return set()

    def bind(self, uid: str) -> set[str] | None:
        """Turn a reservation into what a pod holds."""
        if uid not in self.reservations:
            return None
        self.waiting.pop(uid, None)
        return self.hold(uid, self.held[uid])

    def unbind(self, uid: str) -> set[str] | None:
        """Drop a reservation; that of a part stays as long as those of its gang."""
        kept = self.reservations.get(uid)
        if kept is None or not kept.least:
            return None if kept is None else self.drop(uid)
        self.reservations[uid] = kept._replace(is_committing=False)
        return self.keep_whole(self.held[uid].gang)

    def lapse(self, at_s: float, lapse_s: float, gang_s: float) -> set[str] | None:
        """Drop reservations that are too old, those of a gang together; one made later than now is dated back."""
        old = []
        is_dated = False
        for uid, kept in self.reservations.items():
            if kept.at_s > at_s:  # the clock went back
                self.reservations[uid] = kept._replace(at_s=at_s)
                is_dated = True
            elif not kept.is_committing and at_s - kept.at_s > (gang_s if kept.least else lapse_s):
                old.append(uid)
        self.num_lapsed += len(old)
        changed = {name for uid in old for name in self.lose(uid)}
        return changed if old or is_dated else None


class Left(NamedTuple):
    """What is left on a node; below 0 where others took more than there is.

    Parameters
    ----------
    cpu_milli, memory_mib : left
    gpu_milli : left of each GPU
    residents : tasks of each kind of GPU request, as in `World`
    """

    cpu_milli: int
    memory_mib: int
    gpu_milli: list[int]
    residents: list[int]


def kind_of(share: Share) -> int:
    """Kind of a GPU request: 0 for a share, else the number of GPUs."""
    return share.num_gpus if share.gpu_milli >= WHOLE_GPU_MILLI else 0


def capacity_of(node: LiveNode) -> tuple[int, int, int]:
    """Milli-vCPU, MiB and GPUs of a node; enough where it is unknown."""
    cpu, memory = (ENOUGH if amount is None else min(within(amount), ENOUGH)
                   for amount in (node.cpu_milli, node.memory_mib))
    gpus = max(node.num_gpus, 0)
    return cpu, memory, gpus if gpus <= MAX_GPUS_PER_NODE else 0


def closed_on(node: LiveNode) -> set[int]:
    """GPUs of a node on which nothing new may be put."""
    return {gpu for gpu in gpus_of(node.closed_gpus) if gpu < capacity_of(node)[2]}


def left_on(node: LiveNode, pods: Mapping[str, LivePod]) -> Left:
    """What is left on a node, from the pods that hold something on it.

    GPUs that are known come first; those that are not are chosen then, in the order of uids, so
    that the order of events does not matter.
    """
    cpu, memory, num_gpus = capacity_of(node)
    closed = closed_on(node)
    gpu_milli = [0 if gpu in closed else WHOLE_GPU_MILLI for gpu in range(num_gpus)]
    residents = [0] * (num_gpus + 1)
    unknown = []
    for uid, pod in pods.items():
        cpu -= within(pod.cpu_milli)
        memory -= within(pod.memory_mib)
        for part, share in enumerate(pod.shares):
            residents[min(kind_of(share), num_gpus)] += share.num_gpus > 0
            mask = mask_of(share, num_gpus)
            if mask:
                take(gpu_milli, mask, share.gpu_milli)
            elif share.num_gpus > 0:
                unknown.append((uid, part, share))
    for _, _, share in sorted(unknown):
        milli = within(share.gpu_milli)
        mask = pick_gpus(np.array(gpu_milli, np.int64), within(share.num_gpus), milli)
        take(gpu_milli, mask, milli)
    for gpu in closed:  # who holds one keeps it, and is in nobody's way on the others
        gpu_milli[gpu] = min(gpu_milli[gpu] + WHOLE_GPU_MILLI, 0)
    return Left(cpu, memory, gpu_milli, residents)


def take(gpu_milli: list[int], mask: int, milli: int) -> None:
    """Take something from each GPU of a mask."""
    for gpu in gpu_indices(mask):
        gpu_milli[gpu] -= within(milli)


def barred_by(node: LiveNode, power: PowerSettings, needs_watts: bool) -> str:
    """Why nothing can be placed on a node, whatever is asked for; empty if nothing is wrong."""
    model = node.gpu_model.strip()
    if node.num_gpus > MAX_GPUS_PER_NODE:
        return f"more than {MAX_GPUS_PER_NODE} GPUs"
    if needs_watts and node.num_gpus > 0 and model and not knows_gpu_w(model, power.gpu_power_w):
        return f"no watts are known of GPU model {model!r:.60}"
    return ""


def cluster_of_nodes(nodes: Sequence[LiveNode]) -> Cluster:
    """Nodes as a spine's cluster; the CPU model says whether the number of CPUs is known."""
    sizes = np.array([capacity_of(node) for node in nodes], np.int64).reshape(-1, 3)
    cpu, memory, gpus = np.ascontiguousarray(sizes.T)
    models = [node.gpu_model.strip() if count > 0 else ""
              for node, count in zip(nodes, gpus, strict=True)]
    cpus = [UNKNOWN_CPU if node.cpu_milli is None else "" for node in nodes]
    return Cluster(np.array([node.name for node in nodes], object), cpu, memory, gpus,
                   np.array(models, object), np.array(cpus, object))


def sight_of_nodes(nodes: Sequence[LiveNode]) -> Sight:
    """Labels and taints of nodes; what cannot be read counts as none."""
    labels = [json_of(node.labels, dict) or {} for node in nodes]
    names = np.array([node.name for node in nodes], object)
    return Sight(names, [{str(key): str(value) for key, value in own.items()} for own in labels],
                 [taints_in(json_of(node.taints, list) or []) for node in nodes])


class Limit(NamedTuple):
    """What says how many pods may be on a node together; fields as of `Constraint`."""

    app: str
    most_per_node: int


constraint_in = lru_cache(maxsize=2**12)(constraint_of)  # the pods of an application have the same


def limit_of(pod: LivePod) -> Limit | None:
    """Limit of a pod, None if it has none."""
    said = constraint_in(pod.constraints)
    return Limit(said.app, said.most_per_node) if said and said.most_per_node else None


def limits_of(pods: Iterable[LivePod]) -> list[Limit]:
    """Limits of those pods that have one."""
    return [limit for limit in map(limit_of, pods) if limit is not None]


class TaskClass(NamedTuple):
    """What makes two pods the same to every score; memory only if one looks at it, else it is 0."""

    cpu_milli: int
    num_gpus: int
    gpu_milli: int
    gpu_models: str
    constraints: str
    memory_mib: int
    limit: Limit | None


def class_of(pod: LivePod, needs_memory: bool) -> TaskClass:
    """Class of a pod that asks, for a policy that looks at memory or not."""
    share = next((share for share in pod.shares if share.num_gpus > 0), Share(0, 0))
    milli = share.gpu_milli if share.num_gpus else 0
    models = "|".join(models_of(pod.gpu_models)) if share.num_gpus else ""
    return TaskClass(within(pod.cpu_milli), within(share.num_gpus), within(milli), models,
                     pod.constraints, within(pod.memory_mib) if needs_memory else 0, limit_of(pod))


def refusal_of(pod: LivePod) -> str:
    """Why a question cannot be answered at all; empty if it can."""
    shares = [share for share in pod.shares if share.num_gpus > 0]
    if len(shares) > 1:
        return "shares of several sizes"
    if min(pod.cpu_milli, pod.memory_mib, *(share.num_gpus for share in pod.shares)) < 0:
        return "an amount below 0"
    if any(not 0 < share.gpu_milli <= WHOLE_GPU_MILLI for share in shares):
        return "milli-GPU below 1 or above 1000"
    if any(share.num_gpus > 1 and share.gpu_milli < WHOLE_GPU_MILLI for share in shares):
        return "shares of several GPUs"
    if constraint_in(pod.constraints) is None:
        return "constraints that cannot be read"
    return ""


def size_of(pod: LivePod) -> tuple[int, int]:
    """Milli-GPU and milli-vCPU that a pod asks for."""
    return sum(share.num_gpus * share.gpu_milli for share in pod.shares), pod.cpu_milli


def is_like(pod: LivePod, other: LivePod) -> bool:
    """Whether two pods ask for the same."""
    return replace(pod, uid=other.uid, name=other.name) == other


NONE = np.zeros(0, np.int64)
NO_CLASSES = TaskClasses(NONE, NONE, NONE, NONE.astype(object), NONE.astype(object), NONE, 0)
MOST_CLASSES = 1024
MOST_CELLS = 2**25


def room_for_classes(num_nodes: int) -> int:
    """How many classes of tasks are kept at a time; when there are more, all are forgotten."""
    return max(16, min(MOST_CLASSES, MOST_CELLS // max(1, num_nodes)))


UNKNOWN = "it is not known here"
ORDER = sorted(CONDITIONS, key=lambda condition: not condition.is_lasting)  # what stays so first
BITS = tuple(1 << CONDITIONS.index(condition) for condition in ORDER)
WAYS = ("barred", *(condition.answer for condition in ORDER))


class Question(NamedTuple):
    """A pod before the nodes, as compiled code reads it.

    Parameters
    ----------
    task : row of its class
    memory_mib : what it needs (Cond. 2)
    random_number : a large one, for policies that draw
    is_asked, is_open : (nodes,) whether the answer may be that node; whether anything may go there
    """

    task: int
    memory_mib: int
    random_number: int
    is_asked: Truths
    is_open: Truths


@njit(cache=True)
def first_lack(world: World, question: Question, node: int) -> int:
    """What is in the way first on a node, a position in `WAYS`; their number if nothing is."""
    if not question.is_open[node]:
        return 0
    lack = lacking(world, question.task, question.memory_mib, node)
    for way in range(len(BITS)):
        if lack & BITS[way]:
            return way + 1
    return len(BITS) + 1


@njit(cache=True)
def first_lacks(world: World, question: Question) -> Integers:
    """What is in the way first on each node, as `first_lack`."""
    ways = np.zeros(len(question.is_open), np.int64)
    for node in range(len(ways)):
        ways[node] = first_lack(world, question, node)
    return ways


class NodeScores(NamedTuple):
    """How the nodes stand with a pod, written over by the next question.

    Parameters
    ----------
    points : (scores, nodes) points of each score, 0 where a node cannot take the pod
    total : (nodes,) their weighted sum
    can_host : (nodes,) who can take the pod
    failed : (`WAYS` + 1,) how many of the nodes asked about have what in the way first
    """

    points: Integers
    total: Integers
    can_host: Truths
    failed: Integers


@njit(cache=True)
def mark_hosts(scores: NodeScores, is_feasible: Truths, world: World, question: Question) -> None:
    """Write down which nodes can take a pod, and count what is in the way on the others."""
    scores.failed[:] = 0
    memory_left_mib = world.state.memory_left_mib
    for node in range(len(is_feasible)):
        can_host = (is_feasible[node] and question.is_asked[node] and question.is_open[node]
                    and memory_left_mib[node] >= question.memory_mib)
        scores.can_host[node] = can_host
        if question.is_asked[node] and not can_host:
            scores.failed[first_lack(world, question, node)] += 1


@njit(cache=True)
def first_two(total: Integers, can_host: Truths) -> tuple[int, int]:
    """First node with the largest sum, and the first of the others' largest; -1 for none."""
    first = -1
    second = -1
    for node in range(len(total)):
        if not can_host[node]:
            continue
        if first < 0 or total[node] > total[first]:
            second = first
            first = node
        elif second < 0 or total[node] > total[second]:
            second = node
    return first, second


@njit(cache=True)
def choose_node(scores: NodeScores, weights: Integers, normalise: Integers, world: World,
                memory: Memory, row: int, question: Question) -> tuple[int, int, int]:
    """Add up the points of every node that can take a pod, as `choose` does.

    Parameters
    ----------
    scores : written
    weights, normalise : (scores,) of the policy, now
    world, memory, row : the cluster, the known scores, and where those of the class are
    question : the pod

    Returns
    -------
    the best node and the next, -1 if there is none; GPUs at the best, as a bit mask
    """
    mark_hosts(scores, memory.is_feasible[row], world, question)
    scores.points[:] = 0
    scores.total[:] = 0
    for part in range(len(weights)):
        points = scores.points[part]
        if normalise[part] == ONE_AT_RANDOM:
            count = max(1, scores.can_host.sum())
            points[nth_marked(scores.can_host, question.random_number % count)] = 100
        elif weights[part] > 0:
            add_points(points, memory.score[part, row], scores.can_host, 1, normalise[part])
        for node in range(len(points)):
            scores.total[node] += weights[part] * points[node]
    first, second = first_two(scores.total, scores.can_host)
    if first < 0:
        return first, second, 0
    marked = memory.gpu_mask[np.argmax(weights), row, first]
    num_gpus = world.demand.num_gpus[question.task]
    return first, second, draw_gpus(marked, num_gpus, question.random_number >> 31)


@njit(cache=True)
def add_gauges(world: World) -> tuple[float, float, float]:
    """Milliwatts, fragmented milli-GPU and stranded milli-GPU of all nodes."""
    milliwatts = 0.0
    fragmented = 0.0
    stranded = 0.0
    ratio = usual_ratio(world.target)
    for node in range(len(world.gpu_model)):
        cpu, gpu, frag = node_share(world, node, True)
        milliwatts += cpu + gpu
        fragmented += frag
        # a node of unknown size has more CPU than the product with a ratio may have
        cpu_left = min(world.state.cpu_left_milli[node], 10**9)
        stranded += stranded_milli(ratio, cpu_left, world.state.gpu_left_milli[node].sum())
    return milliwatts, fragmented / max(1, world.target.num_tasks), stranded


AMOUNTS = ("eopc_w", "gpus", "closed_gpus", "used_gpu_milli", "fragmentation_gpu_milli", "stranded_gpu_milli")


def rows_named(row_of: Mapping[str, int], names: Sequence[str]) -> Truths:
    """Which rows are named, (rows,); names that are not known are passed over."""
    mask = np.zeros(len(row_of), bool)
    try:
        mask[np.fromiter(map(row_of.__getitem__, names), np.int64, len(names))] = True
    except KeyError:
        return rows_named(row_of, [name for name in names if name in row_of])
    return mask


class Engine:
    """A policy in front of nodes, in the order of their names: what is left, as the kernels read it.

    Attributes
    ----------
    nodes, names, row_of : the nodes, their names, row by name
    world, memory : as the engine of an inflation has them; `world.state` is never below 0
    empty, left : without any pod; now, and below 0 where others took more than there is
    barred : (nodes,) why nothing can be placed there whatever is asked for; empty if nothing is
    is_open : (nodes,) not barred, and others did not take more than there is
    models : GPU models, by number
    in_use : milli-GPU, milli-vCPU and MiB
    scores : of the last question
    weighing, stage : weights of the policy's scores, and which of them hold now
    """

    def __init__(self, nodes: Iterable[LiveNode], target: TaskClasses, policy: Policy,
                 power: PowerSettings) -> None:
        self.nodes = sorted(nodes, key=lambda node: node.name)
        self.names = [node.name for node in self.nodes]
        self.row_of = {name: row for row, name in enumerate(self.names)}
        cluster = cluster_of_nodes(self.nodes)
        num_nodes = len(cluster)
        self.models = sorted(set(map(str, cluster.gpu_model)))
        unknown = {model: (0, 0) for model in cluster.gpu_model
                   if not knows_gpu_w(model, power.gpu_power_w)}  # which draw nothing
        watts = power._replace(gpu_power_w={**unknown, **(power.gpu_power_w or {})},
                               cpu_power_w={**NO_CPU_POWER, **(power.cpu_power_w or {})})
        room = room_for_classes(num_nodes)
        cpu, milli, gpus, kind, memory = (np.zeros(room, np.int64) for _ in range(5))
        demand = Demand(cpu, milli, gpus, np.zeros((room, len(self.models)), bool),
                        np.zeros((room, num_nodes), bool), kind,
                        np.full(room, -1), memory)
        most_gpus = int(cluster.num_gpus.max(initial=0))
        self.world = world_of(cluster, NO_CLASSES, target, watts.of(cluster))._replace(
            cpu_model=np.arange(num_nodes),  # each node is one, to say which nodes are admitted
            demand=demand, residents=np.zeros((num_nodes, most_gpus + 1), np.int64))
        num_scores = len(policy.scores)
        self.memory = empty_memory(room, num_nodes, num_scores)
        self.empty = empty_state(cluster)
        self.left = empty_state(cluster)
        self.barred = [barred_by(node, power, policy.needs_watts) for node in self.nodes]
        self.is_open = np.array([why == "" for why in self.barred], bool)
        self.in_use = np.zeros(3, np.int64)
        self.scores = NodeScores(
            np.zeros((num_scores, num_nodes), np.int64), np.zeros(num_nodes, np.int64),
            np.zeros(num_nodes, bool), np.zeros(len(WAYS) + 1, np.int64))
        self.weighing = weighing_of(policy, self.world._replace(state=self.empty))
        self.stage = 0
        self._has_prices = policy.dials is not None
        self._needs_memory = policy.needs_memory
        self._score_names = [score.label for score in policy.scores]
        self._kernels = [score.kernel for score in policy.scores]
        self._everywhere = np.ones(num_nodes, bool)
        self._limits: dict[Limit, int] = {}
        self._asked: tuple[Sequence[str], Truths] = ((), np.zeros(num_nodes, bool))
        self.forget_classes()

    def forget_classes(self) -> None:
        """Forget all classes of tasks, and what was known of them."""
        self.classes: dict[TaskClass, int] = {}
        self._sight = sight_of_nodes(self.nodes)
        self.memory.owner[:] = -1

    def learn(self, limits: Collection[Limit]) -> None:
        """Give limits that are not known yet a number in the world, and the others theirs anew."""
        fresh = set(limits) - self._limits.keys()
        if not fresh:
            return
        known = list(self._limits.values())
        kinds = [*self._limits, *sorted(fresh)]
        app, most = zip(*kinds, strict=True)
        number, learnt = limits_among(np.array(app), np.array(most), np.zeros((len(kinds), 0), np.int64),
                                      self.world.limits.room)
        anew = np.zeros(len(known) + 1, np.int64)
        anew[known] = number[:len(known)]
        anew[-1] = -1  # of no limit
        learnt.num[:, anew[:-1]] = self.world.limits.num
        open_nodes(learnt)
        self.world.demand.limit[:] = anew[self.world.demand.limit]
        self.world = self.world._replace(limits=learnt)
        self._limits = dict(zip(kinds, number.tolist(), strict=True))

    def recount(self, name: str, pods: Mapping[str, LivePod]) -> None:
        """Count anew what pods leave of a node; nothing happens if it is not there."""
        row = self.row_of.get(name)
        if row is None:
            return
        left = left_on(self.nodes[row], pods)
        state = self.left
        before = [state.gpu_left_milli[row].sum(), state.cpu_left_milli[row],
                  state.memory_left_mib[row]]
        num_gpus = len(left.gpu_milli)
        state.gpu_left_milli[row, :num_gpus] = left.gpu_milli
        state.cpu_left_milli[row] = left.cpu_milli
        state.memory_left_mib[row] = left.memory_mib
        self.in_use += np.array(before) - [sum(left.gpu_milli), left.cpu_milli, left.memory_mib]
        for now, exact in zip(self.world.state, state, strict=True):
            now[row] = np.maximum(exact[row], 0)
        self.world.residents[row, :num_gpus + 1] = left.residents
        self.count_limits(row, pods.values())
        is_over = min(left.cpu_milli, left.memory_mib, *left.gpu_milli) < 0
        self.is_open[row] = not is_over and not self.barred[row]
        self.memory.version[row] += 1

    def count_limits(self, row: int, pods: Collection[LivePod]) -> None:
        """Count anew the pods with a limit on a node."""
        limits = limits_of(pods)
        self.learn(limits)
        if not self._limits:
            return
        before = self.world.limits.num[row].copy()
        now = np.bincount(list(map(self._limits.__getitem__, limits)), minlength=len(before))
        for limit in np.flatnonzero(now != before).tolist():
            count_limit(self.world.limits, limit, row, now[limit] - before[limit])

    def row_of_class(self, wanted: TaskClass) -> int:
        """Row of a class of tasks in the world, which is written if it is new."""
        if (row := self.classes.get(wanted)) is not None:
            return row
        demand = self.world.demand
        if len(self.classes) == len(demand.cpu_milli):
            self.forget_classes()
        row = self.classes[wanted] = len(self.classes)
        demand.cpu_milli[row] = wanted.cpu_milli
        demand.gpu_milli[row] = wanted.gpu_milli
        demand.num_gpus[row] = wanted.num_gpus
        demand.limit[row] = -1 if wanted.limit is None else self._limits[wanted.limit]
        demand.memory_mib[row] = wanted.memory_mib
        demand.gpu_is_admitted[row] = [admits(wanted.gpu_models, model) for model in self.models]
        demand.cpu_is_admitted[row] = self._sight.admitted(constraint_in(wanted.constraints)
                                                           or Constraint())
        kind = kind_of(Share(wanted.num_gpus, wanted.gpu_milli))
        demand.kind[row] = min(kind, self.world.residents.shape[1] - 1) if wanted.num_gpus else -1
        return row

    def mask_of(self, nodes: Sequence[str] | None) -> Truths:
        """Which of the nodes are among these names, (nodes,); those not known are passed over."""
        if nodes is None:
            return self._everywhere
        if nodes is not self._asked[0] and nodes != self._asked[0]:
            self._asked = (nodes, rows_named(self.row_of, nodes))
        return self._asked[1]

    def question_of(self, pod: LivePod, nodes: Sequence[str] | None,
                    random_number: int) -> Question:
        """A pod's question; weights are as of now."""
        asks = class_of(pod, self._needs_memory)
        if asks.limit is not None:
            self.learn([asks.limit])
        task = self.row_of_class(asks)
        stage = stage_now(self.weighing, 0, self.in_use)
        if stage != self.stage:
            self.memory.owner[:] = -1  # scores without weight so far are not known
            self.stage = stage
        if self._has_prices:  # of the cluster as it stands: the answer must not depend on the past
            put_prices(self.world)
            self.memory.owner[:] = -1
        return Question(task, within(pod.memory_mib), random_number, self.mask_of(nodes),
                        self.is_open)

    def choose(self, question: Question) -> tuple[int, int, int]:
        """Best node, the next, and GPUs at the best; the points are in `scores`."""
        row, num_stale = outdated(self.world, self.memory, question.task)
        weights: Integers = self.weighing.weights[self.stage]
        if num_stale:
            for part in np.flatnonzero(weights).tolist():
                self._kernels[part](
                    self.world, question.task, self.memory.stale[:num_stale],
                    self.memory.score[part, row], self.memory.gpu_mask[part, row])
        first, second, mask = choose_node(self.scores, weights, self.weighing.normalise, self.world,
                                          self.memory, row, question)
        return int(first), int(second), int(mask)

    def decide(self, about: Decision, question: Question) -> Decision:
        """A decision with the choice of the nodes in it."""
        first, second, mask = self.choose(question)
        failed = tuple((way, count) for way, count in zip(WAYS, self.scores.failed.tolist(),
                                                          strict=False) if count)
        if first < 0:
            return replace(about, failed=failed)
        weights = self.weighing.weights[self.stage].tolist()
        parts = tuple((name, weight, points) for name, weight, points in zip(
            self._score_names, weights, self.scores.points[:, first].tolist(), strict=True)
            if weight > 0)
        runner_up, runner_up_points = "", 0
        if second >= 0:
            runner_up, runner_up_points = self.names[second], int(self.scores.total[second])
        return replace(about, node=self.names[first], failed=failed, parts=parts,
                       gpu_list="-".join(map(str, gpu_indices(mask))),
                       points=int(self.scores.total[first]), runner_up=runner_up,
                       runner_up_points=runner_up_points)

    def lacks(self, question: Question) -> list[str]:
        """What is in the way first on each node, in words; empty if nothing is."""
        demand = self.world.demand
        state = self.left
        task = question.task
        milli = int(demand.gpu_milli[task])
        is_there = np.arange(state.gpu_left_milli.shape[1]) < self.world.power.num_gpus[:, np.newaxis]
        num_fit = ((state.gpu_left_milli >= milli) & is_there).sum(axis=1).tolist()
        cpu_left_milli, memory_left_mib = state.cpu_left_milli.tolist(), state.memory_left_mib.tolist()
        said: dict[str, Callable[[int], str]] = {
            "group": lambda row: "labels or taints do not admit the pod",
            "gpu_model": lambda row: f"GPU model {self.nodes[row].gpu_model} is not one that the pod admits",
            "cpu_milli": lambda row: f"{demand.cpu_milli[task]} milli-vCPU asked for, "
                                     f"{cpu_left_milli[row]} left",
            "memory_mib": lambda row: f"{question.memory_mib} MiB asked for, {memory_left_mib[row]} left",
            "gpus": lambda row: f"{demand.num_gpus[task]} GPUs with {milli} milli left asked for, there are "
                                f"{num_fit[row]}"}
        found = []
        for row, way in enumerate(first_lacks(self.world, question).tolist()):
            if way == 0:
                found.append(self.barred[row] or "its pods hold more than it has")
            elif way == len(WAYS):
                found.append("")
            else:
                condition = ORDER[way - 1]
                words = said.get(condition.name)
                found.append(words(row) if words else f"in the way: {condition.words}")
        return found

    def amounts(self) -> dict[str, float]:
        """Watts and milli-GPU, by the names of `AMOUNTS`."""
        milliwatts, fragmented, stranded = add_gauges(self.world)
        closed = sum(len(closed_on(node)) for node in self.nodes)
        gpus = self.world.power.num_gpus.sum() - closed
        used = self.in_use[0] - closed * WHOLE_GPU_MILLI  # to the policy a closed GPU is in use
        found = (milliwatts / 1000, gpus, closed, used, fragmented, stranded)
        return {name: float(amount) for name, amount in zip(AMOUNTS, found, strict=True)}


class Standing(NamedTuple):
    """All that later answers of a cluster depend on, each in the order in which it was told.

    Parameters
    ----------
    version, num_decisions, num_lapsed : events that changed something, questions that were
        decided, reservations that ended by time
    nodes : that are there
    waiting, held : pods that have no node, and those that hold something, reserved or bound
    reservations : of those that are not bound yet, by uid
    """

    version: int
    num_decisions: int
    num_lapsed: int
    nodes: tuple[LiveNode, ...]
    waiting: tuple[LivePod, ...]
    held: tuple[LivePod, ...]
    reservations: dict[str, Reservation]


node_values, pod_values = (attrgetter(*(field.name for field in fields(kind))) for kind in (LiveNode, LivePod))


def without_empty_last(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Fields of a node or pod for a digest, which is as it was before there were closed GPUs and gangs."""
    return values if values[-1] else values[:-1]


class LiveCluster:
    """A cluster that is told what happens and asked where pods should go.

    Parameters
    ----------
    settings : what does not change

    Attributes
    ----------
    settings, version : as given; how many events changed something

    Raises
    ------
    InputError : no such policy
    """

    def __init__(self, settings: LiveSettings) -> None:
        self.settings = settings
        self.version = 0
        self._policy = policy_of(settings.policy)
        self._target = settings.classes()
        self._nodes: dict[str, LiveNode] = {}
        self._names: tuple[str, ...] | None = None
        self._register = Register()
        self._engine: Engine | None = None
        self._num_decisions = 0

    def apply(self, event: Event) -> Decision | None:
        """Take note of an event.

        Returns
        -------
        the answer, if it is a question

        Raises
        ------
        TypeError : it is no event
        """
        if isinstance(event, Asked):
            return self._settled(event) or self._decide(event)
        self._note(self._changed_by(event))
        return None

    def _changed_by(self, event: Event) -> set[str] | None:
        """Take note of an event that is no question, as `Register` does."""
        register = self._register
        match event:
            case NodeSeen(node):
                if self._nodes.get(node.name) == node:
                    return None
                self._nodes[node.name] = node
            case NodeGone(name):
                if self._nodes.pop(name, None) is None:
                    return None
            case PodSeen(pod):
                return register.see(pod)
            case PodGone(uid):
                return register.forget(uid)
            case Committing(uid, _):
                return register.commit(uid)
            case Bound(uid):
                return register.bind(uid)
            case BindFailed(uid):
                return register.unbind(uid)
            case Passed(at_s):
                return register.lapse(at_s, self.settings.lapse_s, self.settings.gang_s)
            case _:
                raise TypeError(f"{event!r:.80} is no event")
        self._engine = None  # it is built anew at the next question
        self._names = None
        return set()

    def _note(self, changed: set[str] | None) -> None:
        """Count nodes anew, and the version up; nothing if there is no news."""
        if changed is not None:
            self.version += 1
        self._recount(changed or ())

    def _recount(self, names: Iterable[str]) -> None:
        """Count some nodes anew."""
        if self._engine is not None:
            for name in names:
                self._engine.recount(name, self._register.on_node.get(name, {}))

    def _ready(self) -> Engine:
        """The engine, built anew if the nodes have changed."""
        if self._engine is None:
            self._engine = Engine(self._nodes.values(), self._target, self._policy,
                                  self.settings.power)
            self._engine.learn(limits_of(self._register.held.values()))
            closed: dict[str, dict[str, LivePod]] = {node.name: {} for node in self._nodes.values() if node.closed_gpus}
            for name, pods in {**closed, **self._register.on_node}.items():
                self._engine.recount(name, pods)
        return self._engine

    def _chosen(self, pod: LivePod, nodes: tuple[str, ...] | None, together: str = "") -> Decision:
        """The place of a pod as things stand, without taking it."""
        decision = Decision(self.version, key_of(pod), pod.name, together=together)
        if self._nodes:
            engine = self._ready()
            decision = engine.decide(decision, engine.question_of(pod, nodes, self._random_number()))
        self._num_decisions += 1
        return decision

    def _reserve(self, pod: LivePod, decision: Decision, at_s: float, least: int = 0) -> set[str]:
        """Keep the place free that was chosen for a pod; return the nodes that changed."""
        shares = tuple(share._replace(gpu_list=decision.gpu_list)
                       for share in pod.shares if share.num_gpus > 0)
        changed = self._register.hold(decision.uid, replace(pod, node=decision.node, shares=shares))
        self._register.reservations[decision.uid] = Reservation(decision, at_s, least=least)
        return changed

    def _random_number(self) -> int:
        """A large number of the next decision, by its place in the order of all."""
        stream = np.random.Generator(np.random.Philox(key=self.settings.seed % 2**64,
                                                      counter=self._num_decisions))
        return int(stream.integers(2**62))

    def _settled(self, asked: Asked) -> Decision | None:
        """Answer for a pod whose place is settled; None if it is open."""
        uid = key_of(asked.pod)
        pod = self.holds(uid)
        kept = self.reservations.get(uid)
        if pod is None or kept is not None and not kept.is_committing:
            return None
        settled = Decision(self.version, uid, asked.pod.name)
        if asked.nodes is not None and pod.node not in asked.nodes:
            return replace(settled, refused=f"it has its place on {pod.node} already")
        gpu_list = "-".join(share.gpu_list for share in pod.shares if share.gpu_list)
        return kept.decision if kept else replace(settled, node=pod.node, gpu_list=gpu_list)

    def _decide(self, asked: Asked) -> Decision:
        """Decide, and reserve what was chosen if that is wanted."""
        pod, register = asked.pod, self._register
        uid = key_of(pod)
        kept = register.reservations.get(uid)
        if kept is not None and not (kept.least and asked.least > 1):
            self._note(register.lose(uid))
        if pod.gang and asked.least > 1:
            promised = register.open_parts(pod.gang)
            num_settled = len(register.parts.get(pod.gang, ())) - len(promised)
            if num_settled < asked.least:
                return self._decide_together(asked, promised, num_settled)
        if why := refusal_of(pod):
            return Decision(self.version, uid, pod.name, refused=why)
        decision = self._chosen(pod, asked.nodes)
        if decision.node and asked.reserves:
            self._note(self._reserve(pod, decision, asked.at_s))
        return decision

    def _decide_together(self, asked: Asked, promised: Sequence[str], num_settled: int) -> Decision:
        """Decide for as many pods of a gang as must start together, or for none of them.

        A part that was promised a place gets it. If it may not go there, it is looked for another one beside the
        places of the others, and then for all of them anew.

        Parameters
        ----------
        asked : the question of one of them
        promised : uids of those who have a place reserved
        num_settled : how many others are bound, or about to be
        """
        pod, register = asked.pod, self._register
        uid = key_of(pod)
        answer = Decision(self.version, uid, pod.name)
        num_parts = asked.least - num_settled
        if uid in promised:
            kept = register.reservations[uid]
            node = kept.decision.node
            if node in self._nodes and (asked.nodes is None or node in asked.nodes):
                return kept.decision
            decision = self._place([pod], asked, kept.at_s)[uid]
            if decision.node:
                return decision
        elif promised:
            return replace(answer, refused=f"the {asked.least} pods of group {pod.gang} that start together have "
                                           "their places, and are not all bound yet")
        first = set(promised)
        others = sorted((one for key, one in register.waiting.items() if one.gang == pod.gang and key != uid
                         and (key in first or key not in register.held)),
                        key=lambda one: (key_of(one) not in first, one.name, one.uid))
        if given_back := {name for key in promised for name in register.drop(key)}:
            self._note(given_back)
        together = [pod, *others[:num_parts - 1]]
        if len(together) < num_parts:
            return replace(answer, refused=f"{num_settled + len(together)} of {asked.least} pods of group {pod.gang} "
                                           "are there")
        if refusals := [f"{one.name}: {why}" for one in together if (why := refusal_of(one))]:
            return replace(answer, refused=refusals[0])
        found = self._place(sorted(together, key=size_of, reverse=True), asked, asked.at_s)
        lacking = [decision for decision in found.values() if not decision.node]
        if not lacking:
            return found[uid]
        settled = f", and {num_settled} have their places" if num_settled else ""
        return replace(answer, failed=lacking[0].failed, together=f"{num_parts - len(lacking)} of {num_parts} parts "
                                                                  f"of group {pod.gang} fit{settled}")

    def _place(self, parts: Sequence[LivePod], asked: Asked, at_s: float) -> dict[str, Decision]:
        """Decide for parts of a gang, one after the other; places are kept if all have one, and that is wanted.

        Parameters
        ----------
        parts : pods; who asks for the same as the one that asked may go to the same nodes, others to all
        asked : the question
        at_s : since when places are kept
        """
        found: dict[str, Decision] = {}
        changed: set[str] = set()
        for pod in parts:
            nodes = asked.nodes if is_like(pod, asked.pod) else None
            decision = self._chosen(pod, nodes, f"one of {asked.least} parts of group {pod.gang} that start together")
            found[decision.uid] = decision
            if decision.node:
                taken = self._reserve(pod, decision, at_s, asked.least)
                self._recount(taken)
                changed |= taken
        if asked.reserves and all(decision.node for decision in found.values()):
            self._note(set())
        else:
            self._give_back(found)
            self._recount(changed)
        return found

    def _give_back(self, found: Collection[str]) -> None:
        """Drop what was reserved for parts of a gang, of which some have no place."""
        for uid in found:
            self._register.drop(uid)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, in order."""
        if self._names is None:
            self._names = tuple(sorted(self._nodes))
        return self._names

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """What is reserved and not bound yet, by uid."""
        return self._register.reservations

    def holds(self, uid: str) -> LivePod | None:
        """What a pod holds, reserved or bound; None if it holds nothing."""
        return self._register.held.get(uid)

    def waits(self, uid: str) -> bool:
        """Whether a pod was seen without a node, and has not gone."""
        return uid in self._register.waiting

    def without(self, nodes: Sequence[str]) -> tuple[str, ...] | None:
        """Known nodes that are not among some names; None if one of these is not known."""
        if not self._nodes:
            return None
        mask = self._ready().mask_of(nodes)
        if mask.sum() != len(nodes):
            return None
        return tuple(self.names[row] for row in np.flatnonzero(~mask).tolist())

    def scores(self, pod: LivePod, nodes: Sequence[str] | None = None) -> dict[str, int]:
        """Weighted sum of points of each node that can take a pod; changes nothing.

        Parameters
        ----------
        pod, nodes : as in `Asked`
        """
        if refusal_of(pod) or not self._nodes:
            return {}
        engine = self._ready()
        engine.choose(engine.question_of(pod, nodes, self._random_number()))
        rows = np.flatnonzero(engine.scores.can_host).tolist()
        return dict(zip([engine.names[row] for row in rows], engine.scores.total[rows].tolist(),
                        strict=True))

    def why_not(self, pod: LivePod, nodes: Sequence[str] | None = None) -> dict[str, str]:
        """What is in the way first, in words with amounts, of each node that cannot take a pod.

        Parameters
        ----------
        pod, nodes : as in `Asked`
        """
        asked = self.names if nodes is None else nodes
        if why := refusal_of(pod) or ("" if self._nodes else UNKNOWN):
            return dict.fromkeys(asked, why)
        engine = self._ready()
        question = engine.question_of(pod, nodes, 0)
        lacks = engine.lacks(question)
        said = {name: lacks[engine.row_of[name]] if name in engine.row_of else UNKNOWN for name in asked}
        return {name: why for name, why in said.items() if why}

    def gauges(self) -> dict[str, float]:
        """Watts, milli-GPU and counts, for a dashboard."""
        amounts = self._ready().amounts() if self._nodes else dict.fromkeys(AMOUNTS, 0.0)
        register = self._register
        waiting = {pod.gang for uid, pod in register.waiting.items() if pod.gang and uid not in register.held}
        return {**amounts, "pods": float(len(register.held)), "gangs_waiting": float(len(waiting)),
                "reservations": float(len(register.reservations)),
                "lapsed": float(register.num_lapsed)}

    def standing(self) -> Standing:
        """How the cluster stands, for another one to go on from."""
        register = self._register
        return Standing(self.version, self._num_decisions, register.num_lapsed,
                        tuple(self._nodes.values()), tuple(register.waiting.values()),
                        tuple(register.held.values()), dict(register.reservations))

    def go_on_from(self, standing: Standing) -> None:
        """Stand as another cluster stood; this one must be empty."""
        register = self._register
        self.version, self._num_decisions, register.num_lapsed = standing[:3]
        self._nodes.update((node.name, node) for node in standing.nodes)
        register.waiting.update((key_of(pod), pod) for pod in standing.waiting)
        for pod in standing.held:
            register.hold(key_of(pod), pod)
        register.reservations.update(standing.reservations)

    def digest(self) -> str:
        """SHA-256 of the state: equal for equal states, whatever the way there."""
        register = self._register
        kept = {uid: (one.at_s, one.is_committing, *([one.least] if one.least else []))
                for uid, one in register.reservations.items()}
        said = {
            "policy": self._policy.name,
            "nodes": [without_empty_last(node_values(self._nodes[name])) for name in sorted(self._nodes)],
            "waiting": [(uid, *without_empty_last(pod_values(register.waiting[uid])))
                        for uid in sorted(register.waiting)],
            "held": [(uid, *without_empty_last(pod_values(register.held[uid])), kept.get(uid))
                     for uid in sorted(register.held)]}
        text = json.dumps(said, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
