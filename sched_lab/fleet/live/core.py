"""Events in, decisions out: what nodes have and pods hold, one pod's question at a time, by the kernels of an inflation."""

# A module, written by hand.

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ...cluster import MAX_GPUS_PER_NODE, WHOLE_GPU_MILLI, Cluster, State, empty_state
from ...hardware import knows_gpu_w
from ...lab.arrays import Integers, Texts, Truths
from ...lab.frames import InputError
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
    ONE_AT_RANDOM,
    Demand,
    Policy,
    PowerSettings,
    Score,
    World,
    gpu_indices,
    no_bids,
    world_of,
)
from ...online.policies import POLICIES, policy_of
from ...traces import TaskClasses, Tasks, admits, default_tasks, models_of, target_workload
from ..read.tables import gpus_of
from ..replay.problem import (
    ENOUGH,
    LARGEST_AMOUNT,
    NO_CPU_POWER,
    UNKNOWN_CPU,
    Constraint,
    Rule,
    Sight,
    constraint_of,
    json_of,
    meets,
    pick_gpus,
    taints_in,
    tolerates,
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
    """

    uid: str
    name: str
    cpu_milli: int
    memory_mib: int
    shares: tuple[Share, ...] = ()
    gpu_models: str = ""
    constraints: str = ""
    node: str = ""


@dataclass(frozen=True)
class LiveNode:
    """A node, as a row of `nodes.csv`.

    Parameters
    ----------
    name, gpu_model, num_gpus : as there
    cpu_milli, memory_mib : capacity; None if it is not known, which counts as enough
    labels, taints : JSON texts
    """

    name: str
    gpu_model: str
    num_gpus: int
    cpu_milli: int | None
    memory_mib: int | None
    labels: str = "{}"
    taints: str = ""


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
    """

    pod: LivePod
    nodes: tuple[str, ...] | None
    at_s: float
    reserves: bool


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


class PolicyChosen(NamedTuple):
    """From now on this policy decides; what is reserved stays where it is."""

    policy: str


Event = (NodeSeen | NodeGone | PodSeen | PodGone | Asked | Committing | Bound | BindFailed
         | Passed | PolicyChosen)


class Reservation(NamedTuple):
    """What is kept free for a pod that has no node yet.

    Parameters
    ----------
    pod : with the node and GPUs that were chosen
    at_s : since when, for `Passed`
    is_committing : whether a bind is on its way, so that only its outcome counts
    """

    pod: LivePod
    at_s: float
    is_committing: bool = False


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
    """

    policy: str = "fgd"
    target: Tasks | TaskClasses | None = None
    power: PowerSettings = PowerSettings()
    lapse_s: float = 30.0
    seed: int = 0

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


class Holding(NamedTuple):
    """What a pod holds on its node, reserved or bound.

    Parameters
    ----------
    pod : with its node
    is_ours : whether we chose the place
    since : version of the state after which it was there
    """

    pod: LivePod
    is_ours: bool
    since: int


class Register:
    """Who waits, who holds what, and for whom something is reserved: no arithmetic.

    Attributes
    ----------
    waiting : pods that were seen without a node, by uid
    holdings : what is held, by uid
    reservations : those of them that are not bound yet
    made : decisions behind the reservations
    on_node : what is held by node and uid, also on nodes that are not there
    """

    def __init__(self) -> None:
        self.waiting: dict[str, LivePod] = {}
        self.holdings: dict[str, Holding] = {}
        self.reservations: dict[str, Reservation] = {}
        self.made: dict[str, Decision] = {}
        self.on_node: dict[str, dict[str, Holding]] = {}

    def hold(self, uid: str, holding: Holding) -> set[str]:
        """Let a pod hold this and nothing else; return the nodes where something changed."""
        changed = self.drop(uid)
        self.holdings[uid] = holding
        self.on_node.setdefault(holding.pod.node, {})[uid] = holding
        return changed | {holding.pod.node}

    def drop(self, uid: str) -> set[str]:
        """Let a pod hold nothing; return the node where something changed."""
        self.reservations.pop(uid, None)
        self.made.pop(uid, None)
        holding = self.holdings.pop(uid, None)
        if holding is None:
            return set()
        there = self.on_node[holding.pod.node]
        del there[uid]
        if not there:
            del self.on_node[holding.pod.node]
        return {holding.pod.node}


def seen_again(register: Register, pod: LivePod, version: int) -> set[str] | None:
    """Take note of a pod; return the nodes where something changed, None if it is no news."""
    uid = key_of(pod)
    before = register.holdings.get(uid)
    if pod.node:
        is_same = before is not None and before.pod == pod
        if is_same and uid not in register.reservations:
            return None
        register.waiting.pop(uid, None)
        since = before if is_same and before is not None else Holding(pod, False, version)
        return register.hold(uid, since)
    is_bound = before is not None and uid not in register.reservations
    if is_bound or register.waiting.get(uid) == pod:
        return None
    register.waiting[uid] = pod
    return set()


def bound(register: Register, uid: str) -> set[str] | None:
    """Turn a reservation into what a pod holds; None if there is none."""
    if uid not in register.reservations:
        return None
    register.waiting.pop(uid, None)
    return register.hold(uid, register.holdings[uid])


def committing(register: Register, uid: str) -> set[str] | None:
    """Keep a reservation until the outcome of its bind is known; None if nothing changes."""
    kept = register.reservations.get(uid)
    if kept is None or kept.is_committing:
        return None
    register.reservations[uid] = kept._replace(is_committing=True)
    return set()


def lapsed(register: Register, at_s: float, lapse_s: float) -> tuple[list[str], bool]:
    """Uids whose reservation is too old; whether one was made later than now, and dated back."""
    old = []
    is_dated = False
    for uid, kept in register.reservations.items():
        if kept.at_s > at_s:  # the clock went back
            register.reservations[uid] = kept._replace(at_s=at_s)
            is_dated = True
        elif not kept.is_committing and at_s - kept.at_s > lapse_s:
            old.append(uid)
    return old, is_dated


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


def left_on(node: LiveNode, holdings: Mapping[str, Holding]) -> Left:
    """What is left on a node, from the pods on it alone.

    GPUs that are known come first; those that are not are chosen then, in the order of uids, so
    that the order of events does not matter.
    """
    cpu, memory, num_gpus = capacity_of(node)
    gpu_milli = [WHOLE_GPU_MILLI] * num_gpus
    residents = [0] * (num_gpus + 1)
    unknown = []
    for uid, (pod, _, _) in holdings.items():
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
    return Left(cpu, memory, gpu_milli, residents)


def take(gpu_milli: list[int], mask: int, milli: int) -> None:
    """Take something from each GPU of a mask."""
    for gpu in gpu_indices(mask):
        gpu_milli[gpu] -= within(milli)


def name_of_score(score: Score) -> str:
    """Name of a score in the table of policies; that of its function if it is not there."""
    forms = (score, score.kernel)
    return next((name for name, record in POLICIES.items()
                 if record.scalar_form.scores == (score,)
                 or record.scalar_form.scores[0].reference in forms),
                str(getattr(score.kernel, "__name__", "score")))


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


def watts_for(cluster: Cluster, power: PowerSettings) -> PowerSettings:
    """Power settings in which models and sizes that are unknown draw nothing."""
    unknown = {model: (0, 0) for model in cluster.gpu_model
               if not knows_gpu_w(model, power.gpu_power_w)}
    return power._replace(gpu_power_w={**unknown, **(power.gpu_power_w or {})},
                          cpu_power_w={**NO_CPU_POWER, **(power.cpu_power_w or {})})


def sight_of_nodes(nodes: Sequence[LiveNode]) -> Sight:
    """Labels and taints of nodes; what cannot be read counts as none."""
    labels = [json_of(node.labels, dict) or {} for node in nodes]
    names = np.array([node.name for node in nodes], object)
    return Sight(names, [{str(key): str(value) for key, value in own.items()} for own in labels],
                 [taints_in(json_of(node.taints, list) or []) for node in nodes])


class Wish(NamedTuple):
    """What makes two pods the same to every score: a class of tasks, memory left out."""

    cpu_milli: int
    num_gpus: int
    gpu_milli: int
    gpu_models: str
    constraints: str


def wish_of(pod: LivePod) -> Wish:
    """Class of a pod that asks."""
    share = next((share for share in pod.shares if share.num_gpus > 0), Share(0, 0))
    milli = share.gpu_milli if share.num_gpus else 0
    models = "|".join(models_of(pod.gpu_models)) if share.num_gpus else ""
    return Wish(within(pod.cpu_milli), within(share.num_gpus), within(milli), models,
                pod.constraints)


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
    if constraint_of(pod.constraints) is None:
        return "constraints that cannot be read"
    return ""


NONE = np.zeros(0, np.int64)
NO_CLASSES = TaskClasses(NONE, NONE, NONE, NONE.astype(object), NONE.astype(object), NONE, 0)
MOST_CLASSES = 1024
MOST_CELLS = 2**25


def room_for_classes(num_nodes: int) -> int:
    """How many classes of tasks are kept at a time; when there are more, all are forgotten."""
    return max(16, min(MOST_CLASSES, MOST_CELLS // max(1, num_nodes)))


def empty_demand(num_classes: int, num_models: int, num_nodes: int) -> Demand:
    """Room for classes of tasks; every node is a CPU model, to say which nodes are admitted."""
    cpu, milli, gpus, kind = (np.zeros(num_classes, np.int64) for _ in range(4))
    return Demand(cpu, milli, gpus, np.zeros((num_classes, num_models), bool),
                  np.zeros((num_classes, num_nodes), bool), kind)


class Stock:
    """Nodes in the order of their names, and what is left on them, as the kernels read it.

    Attributes
    ----------
    nodes, names, row_of : the nodes, their names, row by name
    world, memory : as the engine of an inflation has them; `world.state` is never below 0
    empty, left : without any pod; now, and below 0 where others took more than there is
    barred : (nodes,) why nothing can be placed there whatever is asked for; empty if nothing is
    is_open : (nodes,) not barred, and others did not take more than there is
    models : GPU models, by number
    in_use : milli-GPU, milli-vCPU and MiB
    """

    def __init__(self, nodes: Iterable[LiveNode], target: TaskClasses, policy: Policy,
                 power: PowerSettings) -> None:
        self.nodes = sorted(nodes, key=lambda node: node.name)
        self.names = [node.name for node in self.nodes]
        self.row_of = {name: row for row, name in enumerate(self.names)}
        cluster = cluster_of_nodes(self.nodes)
        self.models = sorted(set(map(str, cluster.gpu_model)))
        world = world_of(cluster, NO_CLASSES, target, watts_for(cluster, power).of(cluster))
        rooms = room_for_classes(len(cluster))
        most_gpus = int(cluster.num_gpus.max(initial=0))
        self.world = world._replace(
            cpu_model=np.arange(len(cluster)),
            demand=empty_demand(rooms, len(self.models), len(cluster)),
            residents=np.zeros((len(cluster), most_gpus + 1), np.int64))
        self.memory = empty_memory(rooms, len(cluster), len(policy.scores))
        self.empty = empty_state(cluster)
        self.left = empty_state(cluster)
        self.barred = [barred_by(node, power, policy.needs_watts) for node in self.nodes]
        self.is_open = np.array([why == "" for why in self.barred], bool)
        self.in_use = np.zeros(3, np.int64)
        self.forget()

    def forget(self) -> None:
        """Forget all classes of tasks, and what was known of them."""
        self.classes: dict[Wish, int] = {}
        self.sight = sight_of_nodes(self.nodes)
        self.memory.owner[:] = -1


def recount(stock: Stock, name: str, holdings: Mapping[str, Holding]) -> None:
    """Count anew what is left on a node; nothing happens if it is not there."""
    row = stock.row_of.get(name)
    if row is None:
        return
    left = left_on(stock.nodes[row], holdings)
    state = stock.left
    before = [state.gpu_left_milli[row].sum(), state.cpu_left_milli[row],
              state.memory_left_mib[row]]
    num_gpus = len(left.gpu_milli)
    state.gpu_left_milli[row, :num_gpus] = left.gpu_milli
    state.cpu_left_milli[row] = left.cpu_milli
    state.memory_left_mib[row] = left.memory_mib
    stock.in_use += np.array(before) - [sum(left.gpu_milli), left.cpu_milli, left.memory_mib]
    for now, exact in zip(stock.world.state, state, strict=True):
        now[row] = np.maximum(exact[row], 0)
    stock.world.residents[row, :num_gpus + 1] = left.residents
    is_over = min(left.cpu_milli, left.memory_mib, *left.gpu_milli) < 0
    stock.is_open[row] = not is_over and not stock.barred[row]
    stock.memory.version[row] += 1


def class_of(stock: Stock, wish: Wish) -> int:
    """Row of a class of tasks in the world, which is written if it is new."""
    row = stock.classes.get(wish)
    if row is None:
        if len(stock.classes) == len(stock.world.demand.cpu_milli):
            stock.forget()
        row = len(stock.classes)
        stock.classes[wish] = row
        fill_class(stock, stock.world.demand, row, wish)
    return row


def fill_class(stock: Stock, demand: Demand, row: int, wish: Wish) -> None:
    """Write a class of tasks."""
    most_gpus = stock.world.residents.shape[1] - 1
    kind = kind_of(Share(wish.num_gpus, wish.gpu_milli))
    demand.cpu_milli[row] = wish.cpu_milli
    demand.gpu_milli[row] = wish.gpu_milli
    demand.num_gpus[row] = wish.num_gpus
    demand.gpu_is_admitted[row] = [admits(wish.gpu_models, model) for model in stock.models]
    demand.cpu_is_admitted[row] = stock.sight.admitted(constraint_of(wish.constraints)
                                                       or Constraint())
    demand.kind[row] = min(kind, most_gpus) if wish.num_gpus else -1


UNKNOWN = "it is not known here"
WAYS = ("barred", "constraints", "model", "cpu", "memory", "gpu")


class Question(NamedTuple):
    """A pod before the nodes, as compiled code reads it.

    Parameters
    ----------
    task : row of its class
    memory_mib : what it needs (Cond. 2)
    die : a large random number
    is_asked, is_open : (nodes,) whether the answer may be that node; whether anything may go there
    """

    task: int
    memory_mib: int
    die: int
    is_asked: Truths
    is_open: Truths


@njit(cache=True)
def first_lack(world: World, question: Question, node: int) -> int:
    """What is in the way first on a node, a position in `WAYS`; their number if nothing is."""
    demand = world.demand
    state = world.state
    task = question.task
    num_gpus = demand.num_gpus[task]
    if not question.is_open[node]:
        return 0
    if not demand.cpu_is_admitted[task, world.cpu_model[node]]:
        return 1
    if (num_gpus > 0 and world.power.num_gpus[node] > 0
            and not demand.gpu_is_admitted[task, world.gpu_model[node]]):
        return 2
    if demand.cpu_milli[task] > state.cpu_left_milli[node]:
        return 3
    if question.memory_mib > state.memory_left_mib[node]:
        return 4
    num_fit = 0
    for gpu in range(world.power.num_gpus[node]):
        num_fit += state.gpu_left_milli[node, gpu] >= demand.gpu_milli[task]
    return 5 if num_fit < num_gpus else 6


class Sheet(NamedTuple):
    """What a ballot came to, written over by the next one.

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


def empty_sheet(num_scores: int, num_nodes: int) -> Sheet:
    """Room for a ballot."""
    return Sheet(np.zeros((num_scores, num_nodes), np.int64), np.zeros(num_nodes, np.int64),
                 np.zeros(num_nodes, bool), np.zeros(len(WAYS) + 1, np.int64))


@njit(cache=True)
def note_hosts(sheet: Sheet, is_feasible: Truths, world: World, question: Question) -> None:
    """Write down which nodes can take a pod, and count what is in the way on the others."""
    sheet.failed[:] = 0
    memory_left_mib = world.state.memory_left_mib
    for node in range(len(is_feasible)):
        can_host = (is_feasible[node] and question.is_asked[node] and question.is_open[node]
                    and memory_left_mib[node] >= question.memory_mib)
        sheet.can_host[node] = can_host
        if question.is_asked[node] and not can_host:
            sheet.failed[first_lack(world, question, node)] += 1


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
def elect(sheet: Sheet, weights: Integers, normalise: Integers, world: World, memory: Memory,
          row: int, question: Question) -> tuple[int, int, int]:
    """Add up the points of every node that can take a pod, as `choose` does.

    Parameters
    ----------
    sheet : written
    weights, normalise : (scores,) of the policy, now
    world, memory, row : the cluster, the known scores, and where those of the class are
    question : the pod

    Returns
    -------
    the best node and the next, -1 if there is none; GPUs at the best, as a bit mask
    """
    note_hosts(sheet, memory.is_feasible[row], world, question)
    sheet.points[:] = 0
    sheet.total[:] = 0
    for part in range(len(weights)):
        points = sheet.points[part]
        if normalise[part] == ONE_AT_RANDOM:
            count = max(1, sheet.can_host.sum())
            points[nth_marked(sheet.can_host, question.die % count)] = 100
        elif weights[part] > 0:
            add_points(points, memory.score[part, row], sheet.can_host, 1, normalise[part])
        for node in range(len(points)):
            sheet.total[node] += weights[part] * points[node]
    first, second = first_two(sheet.total, sheet.can_host)
    if first < 0:
        return first, second, 0
    marked = memory.gpu_mask[np.argmax(weights), row, first]
    num_gpus = world.demand.num_gpus[question.task]
    return first, second, draw_gpus(marked, num_gpus, question.die >> 31)


class Engine:
    """A policy in front of a stock of nodes.

    Attributes
    ----------
    stock, sheet : the nodes; what the last ballot came to
    weighing, stage : weights of the policy's scores, and which of them hold now
    has_prices : whether the policy asks what room is worth
    """

    def __init__(self, stock: Stock, policy: Policy) -> None:
        self.stock = stock
        self.sheet = empty_sheet(len(policy.scores), len(stock.nodes))
        self.weighing = weighing_of(policy, stock.world._replace(state=stock.empty))
        self.stage = 0
        self.has_prices = policy.dials is not None
        self.names = [name_of_score(score) for score in policy.scores]
        self.kernels = [score.kernel for score in policy.scores]
        self._everywhere = np.ones(len(stock.nodes), bool)
        self._asked: tuple[Sequence[str], Truths] = ((), np.zeros(len(stock.nodes), bool))

    @property
    def weights(self) -> Integers:
        """(scores,) weights that hold now."""
        weights: Integers = self.weighing.weights[self.stage]
        return weights

    def mask_of(self, nodes: Sequence[str] | None) -> Truths:
        """Which of the nodes are among these names, (nodes,); those not known are passed over."""
        if nodes is None:
            return self._everywhere
        if nodes is not self._asked[0] and nodes != self._asked[0]:
            self._asked = (nodes, mask_of_names(self.stock.row_of, nodes))
        return self._asked[1]

    def question_of(self, pod: LivePod, nodes: Sequence[str] | None, die: int) -> Question:
        """A pod's question; weights are as of now."""
        task = class_of(self.stock, wish_of(pod))
        stage = stage_now(self.weighing, 0, self.stock.in_use)
        if stage != self.stage:
            self.stock.memory.owner[:] = -1  # scores without weight so far are not known
            self.stage = stage
        if self.has_prices:  # of the cluster as it stands: the answer must not depend on the past
            put_prices(self.stock.world)
            self.stock.memory.owner[:] = -1
        return Question(task, within(pod.memory_mib), die, self.mask_of(nodes),
                        self.stock.is_open)


def ballot(engine: Engine, question: Question) -> tuple[int, int, int]:
    """Best node, the next, and GPUs; the rest is in the engine's sheet."""
    world = engine.stock.world
    memory = engine.stock.memory
    row, num_stale = outdated(world, memory, question.task)
    weights = engine.weights
    if num_stale:
        for part in np.flatnonzero(weights).tolist():
            engine.kernels[part](world, question.task, memory.stale[:num_stale],
                                 memory.score[part, row], memory.gpu_mask[part, row])
    first, second, mask = elect(engine.sheet, weights, engine.weighing.normalise, world, memory,
                                row, question)
    return int(first), int(second), int(mask)


def mask_of_names(row_of: Mapping[str, int], names: Sequence[str]) -> Truths:
    """Which rows are named, (rows,); names that are not known are passed over."""
    mask = np.zeros(len(row_of), bool)
    try:
        mask[np.fromiter(map(row_of.__getitem__, names), np.int64, len(names))] = True
    except KeyError:
        return mask_of_names(row_of, [name for name in names if name in row_of])
    return mask


def decide(engine: Engine, about: Decision, question: Question) -> Decision:
    """A decision with the choice of the nodes in it."""
    first, second, mask = ballot(engine, question)
    sheet = engine.sheet
    failed = tuple((way, count) for way, count in zip(WAYS, sheet.failed.tolist(), strict=False)
                   if count)
    if first < 0:
        return replace(about, failed=failed)
    weights = engine.weights.tolist()
    parts = tuple((name, weight, points) for name, weight, points in zip(
        engine.names, weights, sheet.points[:, first].tolist(), strict=True) if weight > 0)
    names = engine.stock.names
    has_second = second >= 0
    return replace(about, node=names[first], gpu_list=words_of(mask), failed=failed, parts=parts,
                   points=int(sheet.total[first]), runner_up=names[second] if has_second else "",
                   runner_up_points=int(sheet.total[second]) if has_second else 0)


def words_of(gpu_mask: int) -> str:
    """GPUs of a bit mask as a list, "2-3"."""
    return "-".join(map(str, gpu_indices(gpu_mask)))


def placed_pod(pod: LivePod, node: str, gpu_list: str) -> LivePod:
    """A pod with a node and GPUs."""
    shares = tuple(share._replace(gpu_list=gpu_list) for share in pod.shares if share.num_gpus > 0)
    return replace(pod, node=node, shares=shares)


def die_of(seed: int, number: int) -> int:
    """Large random number of a decision, by its number."""
    stream = np.random.Generator(np.random.Philox(key=seed % 2**64, counter=number))
    return int(stream.integers(2**62))


class Noted:
    """A cluster that is told what happens (the first of three layers of `LiveCluster`)."""

    def __init__(self, settings: LiveSettings) -> None:
        self.settings = settings
        self.version = 0
        self._policy = policy_of(settings.policy)
        self._target = settings.classes()
        self._nodes: dict[str, LiveNode] = {}
        self._node_since: dict[str, int] = {}
        self._names: tuple[str, ...] | None = None
        self._register = Register()
        self._engine: Engine | None = None
        self._num_decisions = 0
        self._num_lapsed = 0

    def _note(self, changed: set[str] | None) -> None:
        """Count nodes anew, and the version up; nothing if there is no news."""
        if changed is not None:
            self.version += 1
        if self._engine is not None:
            for name in changed or ():
                recount(self._engine.stock, name, self._register.on_node.get(name, {}))

    def _ready(self) -> Engine:
        """The engine, built anew if the nodes have changed."""
        if self._engine is None:
            stock = Stock(self._nodes.values(), self._target, self._policy, self.settings.power)
            for node in stock.nodes:
                if node.name in self._register.on_node:
                    recount(stock, node.name, self._register.on_node[node.name])
            self._engine = Engine(stock, self._policy)
        return self._engine


def changed_by(cluster: Noted, event: Event) -> set[str] | None:
    """Take note of an event that is no question; nodes where something changed, None if nothing.

    Raises
    ------
    TypeError : it is no event
    InputError : it names no policy
    """
    register = cluster._register
    match event:
        case NodeSeen(node):
            return node_seen(cluster, node)
        case NodeGone(name):
            return node_gone(cluster, name)
        case PodSeen(pod):
            return seen_again(register, pod, cluster.version + 1)
        case PodGone(uid):
            is_known = uid in register.waiting or uid in register.holdings
            register.waiting.pop(uid, None)
            return register.drop(uid) if is_known else None
        case Committing(uid, _):
            return committing(register, uid)
        case Bound(uid):
            return bound(register, uid)
        case BindFailed(uid):
            return register.drop(uid) if uid in register.reservations else None
        case Passed(at_s):
            return passed(cluster, at_s)
        case PolicyChosen(policy):
            return policy_chosen(cluster, policy)
    raise TypeError(f"{event!r:.80} is no event")


def node_seen(cluster: Noted, node: LiveNode) -> set[str] | None:
    """Take note of a node; the engine is built anew at the next question."""
    if cluster._nodes.get(node.name) == node:
        return None
    cluster._nodes[node.name] = node
    cluster._node_since[node.name] = cluster.version + 1
    cluster._engine = None
    cluster._names = None
    return set()


def node_gone(cluster: Noted, name: str) -> set[str] | None:
    """Forget a node."""
    if cluster._nodes.pop(name, None) is None:
        return None
    del cluster._node_since[name]
    cluster._engine = None
    cluster._names = None
    return set()


def policy_chosen(cluster: Noted, policy: str) -> set[str] | None:
    """Let another policy decide; the engine is built anew at the next question."""
    if cluster._policy.name == policy:
        return None
    cluster._policy = policy_of(policy)
    cluster._engine = None
    return set()


def passed(cluster: Noted, at_s: float) -> set[str] | None:
    """Let reservations lapse."""
    register = cluster._register
    old, is_dated = lapsed(register, at_s, cluster.settings.lapse_s)
    cluster._num_lapsed += len(old)
    changed = {name for uid in old for name in register.drop(uid)}
    return changed if old or is_dated else None


def same_again(cluster: Noted, asked: Asked) -> Decision | None:
    """Answer for a pod whose place is settled; None if it is open."""
    register = cluster._register
    uid = key_of(asked.pod)
    holding = register.holdings.get(uid)
    kept = register.reservations.get(uid)
    if holding is None or kept is not None and not kept.is_committing:
        return None
    node = holding.pod.node
    settled = Decision(cluster.version, uid, asked.pod.name)
    if asked.nodes is not None and node not in asked.nodes:
        return replace(settled, refused=f"it has its place on {node} already")
    gpu_list = "-".join(share.gpu_list for share in holding.pod.shares if share.gpu_list)
    return register.made.get(uid) or replace(settled, node=node, gpu_list=gpu_list)


class Asking(Noted):
    """A cluster that answers, too (the second layer)."""

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
            return same_again(self, event) or self._decided(event)
        self._note(changed_by(self, event))
        return None

    def _decided(self, asked: Asked) -> Decision:
        """Decide, and reserve what was chosen if that is wanted."""
        uid = key_of(asked.pod)
        if uid in self._register.reservations:
            self._note(self._register.drop(uid))
        about = Decision(self.version, uid, asked.pod.name)
        if why := refusal_of(asked.pod):
            return replace(about, refused=why)
        decision = self._ballot(asked.pod, asked.nodes, about)
        self._num_decisions += 1
        if decision.node and asked.reserves:
            pod = placed_pod(asked.pod, decision.node, decision.gpu_list)
            changed = self._register.hold(uid, Holding(pod, True, self.version + 1))
            self._register.reservations[uid] = Reservation(pod, asked.at_s)
            self._register.made[uid] = decision
            self._note(changed)
        return decision

    def _ballot(self, pod: LivePod, nodes: Sequence[str] | None, about: Decision) -> Decision:
        """Ask all nodes."""
        if not self._nodes:
            return about
        engine = self._ready()
        die = die_of(self.settings.seed, self._num_decisions)
        return decide(engine, about, engine.question_of(pod, nodes, die))


def lacks_in_words(stock: Stock, question: Question, row: int) -> str:
    """What is in the way first on a node; empty if nothing is."""
    demand = stock.world.demand
    state = stock.left
    task = question.task
    milli = int(demand.gpu_milli[task])
    num_gpus = stock.world.power.num_gpus[row]
    num_fit = int((state.gpu_left_milli[row, :num_gpus] >= milli).sum())
    return (
        stock.barred[row] or "its pods hold more than it has",
        "labels or taints do not admit the pod",
        f"GPU model {stock.nodes[row].gpu_model} is not one that the pod admits",
        f"{demand.cpu_milli[task]} milli-vCPU asked for, {state.cpu_left_milli[row]} left",
        f"{question.memory_mib} MiB asked for, {state.memory_left_mib[row]} left",
        f"{demand.num_gpus[task]} GPUs with {milli} milli left asked for, there are {num_fit}", "",
    )[first_lack(stock.world, question, row)]


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


AMOUNTS = ("eopc_w", "gpus", "used_gpu_milli", "fragmentation_gpu_milli", "stranded_gpu_milli")


def amounts_of_stock(stock: Stock) -> dict[str, float]:
    """Watts and milli-GPU of a stock, by the names of `AMOUNTS`."""
    milliwatts, fragmented, stranded = add_gauges(stock.world)
    gpus = stock.world.power.num_gpus.sum()
    found = (milliwatts / 1000, gpus, stock.in_use[0], fragmented, stranded)
    return {name: float(amount) for name, amount in zip(AMOUNTS, found, strict=True)}


class WorldCopy(NamedTuple):
    """A copy of the present, with the classes of some pods, for whoever plays it forward.

    Parameters
    ----------
    world : arrays of its own; nodes on which nothing can be placed admit no class
    empty : state of the same nodes without any pod
    task, memory_mib : (pods,) class and memory of each of the pods
    name : (nodes,) in the order of the rows
    """

    world: World
    empty: State
    task: Integers
    memory_mib: Integers
    name: Texts


def copy_of(stock: Stock, pods: Sequence[LivePod]) -> WorldCopy:
    """A copy of a stock, with exactly the classes of these pods."""
    own = {wish: number for number, wish in enumerate(dict.fromkeys(map(wish_of, pods)))}
    demand = empty_demand(len(own), len(stock.models), len(stock.nodes))
    for wish, number in own.items():
        fill_class(stock, demand, number, wish)
    demand.cpu_is_admitted[:, ~stock.is_open] = False
    known = stock.world.known
    world = stock.world._replace(
        state=State(*(array.copy() for array in stock.world.state)), demand=demand,
        residents=stock.world.residents.copy(), notes=np.full(4, -1.0),
        bids=no_bids(stock.world.gpu_model, stock.world.power.num_gpus),
        known=known._replace(key=np.zeros_like(known.key), value=np.zeros_like(known.value),
                             num=np.zeros_like(known.num), asked=np.zeros_like(known.asked)))
    return WorldCopy(world, State(*(array.copy() for array in stock.empty)),
                     np.array([own[wish_of(pod)] for pod in pods], np.int64),
                     np.array([within(pod.memory_mib) for pod in pods], np.int64),
                     np.array(stock.names, object))


def excess_of(cluster: Noted, name: str, before: int | None) -> list[str]:
    """What pods of a node hold beyond what it has, counted from the pods alone.

    Parameters
    ----------
    cluster, name : the node
    before : only pods that were there after this version or earlier, and GPUs that are known;
        None for all
    """
    node = cluster._nodes[name]
    cpu, memory, num_gpus = capacity_of(node)
    held = [holding.pod for holding in cluster._register.holdings.values()
            if holding.pod.node == name and (before is None or holding.since <= before)]
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


def wrong_places(cluster: Noted, name: str) -> list[str]:
    """Pods that we placed on a node, as it is now, without need of its labels, model or GPUs."""
    node = cluster._nodes[name]
    found = []
    for uid, (pod, is_ours, since) in cluster._register.holdings.items():
        if pod.node != name or not is_ours or since <= cluster._node_since[name]:
            continue
        gpus = [gpu for share in pod.shares for gpu in gpus_of(share.gpu_list)]
        count = sum(share.num_gpus for share in pod.shares)
        if len(set(gpus)) != count or max(gpus, default=-1) >= node.num_gpus:
            found.append(f"{uid} holds GPUs {gpus}, and asked for {count}")
        if count and not admits(pod.gpu_models, node.gpu_model.strip()):
            found.append(f"{uid} does not admit model {node.gpu_model}")
        if not admitted_by(node, constraint_of(pod.constraints) or Constraint()):
            found.append(f"{uid} does not admit the labels or taints")
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


def violations_on(cluster: Noted, name: str) -> list[str]:
    """What is wrong on a node, ours or theirs: ours if it was so once our last pod had come."""
    ours = [holding.since for holding in cluster._register.holdings.values()
            if holding.pod.node == name and holding.is_ours]
    last = max(ours, default=0)
    if last > cluster._node_since[name]:
        by_us = [*excess_of(cluster, name, last), *wrong_places(cluster, name)]
        if by_us:
            return [f"ours: node {name}: {what}" for what in by_us]
    return [f"theirs: node {name}: {what}" for what in excess_of(cluster, name, None)]


values_of_node, values_of_pod = (attrgetter(*(field.name for field in fields(kind)))
                                 for kind in (LiveNode, LivePod))


def canonical(cluster: Noted) -> str:
    """The state as a text: equal for equal states, whatever the way there."""
    register = cluster._register
    said = {
        "policy": cluster._policy.name,
        "nodes": [values_of_node(cluster._nodes[name]) for name in sorted(cluster._nodes)],
        "waiting": [(uid, *values_of_pod(register.waiting[uid]))
                    for uid in sorted(register.waiting)],
        "held": [(uid, *values_of_pod(register.holdings[uid].pod),
                  register.reservations[uid][1:] if uid in register.reservations else None)
                 for uid in sorted(register.holdings)]}
    return json.dumps(said, ensure_ascii=True, separators=(",", ":"))


class Telling(Asking):
    """A cluster that says why, too (the third layer)."""

    @property
    def policy(self) -> str:
        """Name of the policy that decides now."""
        return self._policy.name

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, in order."""
        if self._names is None:
            self._names = tuple(sorted(self._nodes))
        return self._names

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
        die = die_of(self.settings.seed, self._num_decisions)
        ballot(engine, engine.question_of(pod, nodes, die))
        rows = np.flatnonzero(engine.sheet.can_host).tolist()
        return dict(zip([engine.stock.names[row] for row in rows],
                        engine.sheet.total[rows].tolist(), strict=True))

    def why_not(self, pod: LivePod, nodes: Sequence[str] | None = None) -> dict[str, str]:
        """What is in the way first, in words with amounts, of each node that cannot take a pod.

        Parameters
        ----------
        pod, nodes : as in `Asked`
        """
        asked = self.names if nodes is None else nodes
        if why := refusal_of(pod) or ("" if self._nodes else UNKNOWN):
            return dict.fromkeys(asked, why)
        stock = self._ready().stock
        question = self._ready().question_of(pod, nodes, 0)
        said = {name: lacks_in_words(stock, question, stock.row_of[name])
                if name in stock.row_of else UNKNOWN for name in asked}
        return {name: why for name, why in said.items() if why}


class LiveCluster(Telling):
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

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """What is reserved and not bound yet, by uid."""
        return self._register.reservations

    @property
    def pending(self) -> Mapping[str, LivePod]:
        """Pods that were seen without a node and have no reservation, by uid."""
        register = self._register
        return {uid: pod for uid, pod in register.waiting.items() if uid not in register.holdings}

    def holds(self, uid: str) -> LivePod | None:
        """What a pod holds, reserved or bound; None if it holds nothing."""
        holding = self._register.holdings.get(uid)
        return None if holding is None else holding.pod

    def violations(self) -> list[str]:
        """What pods hold against the conditions, "ours: ..." or "theirs: ...", pods alone."""
        return [line for name in self.names for line in violations_on(self, name)]

    def digest(self) -> str:
        """SHA-256 of the state: equal for equal states, whatever the way there."""
        return hashlib.sha256(canonical(self).encode()).hexdigest()

    def gauges(self) -> dict[str, float]:
        """Watts, milli-GPU and counts, for a dashboard."""
        counts = {"pods": len(self._register.holdings), "reservations": len(self.reservations),
                  "lapsed": self._num_lapsed}
        amounts = dict.fromkeys(AMOUNTS, 0.0)
        if self._nodes:
            amounts = amounts_of_stock(self._ready().stock)
        return {**amounts, **{name: float(count) for name, count in counts.items()}}

    def world(self, pods: Sequence[LivePod] = ()) -> WorldCopy:
        """A copy of the present, with classes for some pods, for whoever plays it forward.

        Raises
        ------
        InputError : there are no nodes
        """
        if not self._nodes:
            raise InputError("there are no nodes", mend="wait until the cluster has been read")
        return copy_of(self._ready().stock, pods)
