"""The extender's protocol of Kubernetes without a socket: a question about a pod comes in as JSON, an answer goes out, and no GPU is promised twice."""

# A module, written by hand.

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple

from ...lab.frames import InputError, OutputError
from ..read.devices import DIALECTS, GPU, OPENB, SHARED, UNDERSTOOD, VIRTUAL
from ..read.gangs import COUNTS, Group, group_of, least_of
from ..read.kubernetes import (
    RESERVES,
    TOLERATION,
    Amounts,
    Dump,
    NodeGpus,
    asked_by_pod,
    constraints_of,
    demand_of,
    gpus_of_node,
    is_reservation,
    models_wanted,
    node_row,
    pod_name,
)
from ..read.objects import Item, as_json, dig, quantity, text_at
from ..read.tables import Ledger, gpus_of
from .core import (
    Asked,
    BindFailed,
    Bound,
    Committing,
    Decision,
    Event,
    LiveNode,
    LivePod,
    NodeSeen,
    Passed,
    PodGone,
    PodSeen,
    Share,
)
from .journal import Journal

__all__ = ['ApiError', 'BridgeSettings', 'Bridge']


class ApiError(Exception):
    """A call to the API server failed.

    Parameters
    ----------
    status : of HTTP; 0 if the outcome is unknown: a time-out, a lost connection
    reason : in words
    retry_after_s : how long the server wants to be left alone
    """

    def __init__(self, status: int, reason: str = "", retry_after_s: float = 0.0) -> None:
        super().__init__(f"{status or 'no answer'} {reason}".strip())
        self.status = status
        self.retry_after_s = retry_after_s

    @property
    def is_unsure(self) -> bool:
        """Whether the call may have been carried out nevertheless."""
        return self.status == 0 or self.status >= 500


class Reasons(Ledger):
    """A ledger of one object: the reasons, as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def note(self, file: str, row: int | None, what: str, reason: str, count: int = 1) -> None:
        """Keep a reason."""
        self.said.append(reason)


GPU_INDEX = DIALECTS["openb"].numbers


def gpu_list_of(written: str, num_gpus: int, on_node: int | None) -> str:
    """GPUs that an annotation names; empty if it cannot be so.

    Parameters
    ----------
    num_gpus : how many the pod holds
    on_node : how many its node has, if known
    """
    numbers = sorted(set(gpus_of(re.sub(r"[,|]", "-", written).strip("- "))))
    is_there = on_node is None or max(numbers, default=0) < on_node
    return "-".join(map(str, numbers)) if len(numbers) == num_gpus and is_there else ""


def uid_of(body: dict[str, Any]) -> str:
    """UID of an object; namespace and name if it has none."""
    return text_at(body, "metadata", "uid") or pod_name(Item("Pod", body))


class Objects:
    """Reader of nodes and pods that remembers what nodes say about their GPUs.

    Parameters
    ----------
    gpu_index : annotation that names the GPUs of a pod
    has_gangs : whether pods of a group start together

    Attributes
    ----------
    gpus : of the nodes that were read, by name
    kinds, num_alike : GPUs of one node of each kind, and how many nodes are of it, by what they mean to a pod that waits
    has_news : whether there are other kinds than when waiting pods were read last
    told : uids of pods that the cluster was told of, by a watch, a question or a look
    unsettled : pods of which another kind, or a node that says something else, may change what they ask for or hold, by
        uid
    """

    def __init__(self, gpu_index: str = GPU_INDEX, has_gangs: bool = True) -> None:
        self.gpu_index = gpu_index
        self.has_gangs = has_gangs
        self.told: dict[str, None] = {}
        self.gpus: dict[str, NodeGpus] = {}
        self.kinds: dict[Meaning, NodeGpus] = {}
        self.num_alike: Counter[Meaning] = Counter()
        self.has_news = False
        self.unsettled: dict[str, dict[str, Any]] = {}

    def node(self, body: dict[str, Any]) -> LiveNode:
        """A node, which is remembered."""
        dump = Dump(Reasons())
        item = Item("Node", body)
        gpus = gpus_of_node(item, dump, {})
        self.remember(item.name, gpus)
        row = node_row(item, dump, gpus)
        del row["gpu_memory_mib"]
        if not gpus.profile:  # the others are for pods that ask for instances
            row["num_gpus"] = gpus.uncut
        return LiveNode(**row)

    def remember(self, name: str, gpus: NodeGpus | None) -> None:
        """Remember what a node says about its GPUs; None if it has gone."""
        before = self.gpus.pop(name, None)
        if gpus is not None:
            self.gpus[name] = gpus
            self.num_alike[meaning_of(gpus)] += 1
        if before is not None:
            self.num_alike[meaning_of(before)] -= 1
        for one in filter(None, (before, gpus)):
            meaning = meaning_of(one)
            is_there = self.num_alike[meaning] > 0
            self.has_news |= is_there != (meaning in self.kinds)
            if is_there:
                self.kinds.setdefault(meaning, one)
            else:
                self.kinds.pop(meaning, None)
                del self.num_alike[meaning]

    def pod(self, body: dict[str, Any]) -> LivePod | None:
        """A pod with what it holds, or asks for; None if it has ended, or reserves for others."""
        item = left_to_us(body)
        self.unsettled.pop(uid_of(body), None)
        if item.is_over or is_reservation(item):
            return None
        nodes = self.known([item.node]) if item.node else {
            f"/{number}": gpus for number, gpus in enumerate(self.kinds.copy().values())}  # others may write
        dump = Dump(Reasons(), nodes=nodes)
        asked = asked_by_pod(item, dump)
        pod = self.live_pod(item, dump, asked)
        if pod.gang and not item.node:  # it is decided with others, as if it asked itself
            if dialects_in(amounts_of(item, asked)) - {"openb"}:
                self.unsettled[pod.uid] = body
            found, _, _, refused = eligibility_of(self, body, tuple(nodes), nodes)
            return found if found is None or not refused else replace(found, gang="")  # its group waits for it
        return pod

    def refusal_of(self, item: Item, amounts: Mapping[str, Any]) -> str:
        """Why what a pod asks for cannot be written for whoever carries it out; empty if it can."""
        return ""

    def blocked_nodes(self, names: Sequence[str]) -> dict[str, str]:
        """Nodes of some on which no pod can get GPUs now, with the reason."""
        return {}

    def known(self, names: Sequence[str]) -> dict[str, NodeGpus]:
        """What is remembered of some nodes."""
        found = ((name, self.gpus.get(name)) for name in names)
        return {name: gpus for name, gpus in found if gpus is not None}

    def live_pod(self, item: Item, dump: Dump, asked: Amounts) -> LivePod:
        """A pod that asks for such amounts, beside some nodes."""
        demand = demand_of(item, dump, asked)
        gpus = dump.nodes.get(item.node)
        is_alike = gpus is not None and bool(gpus.profile)
        written = item.annotations.get(self.gpu_index, "")
        shares = []
        for one in demand.holdings:
            if one.num_gpus > 0 and (is_alike or not item.node or not one.mig_profile):
                listed = gpu_list_of(written or one.gpu_list, one.num_gpus,
                                     gpus and gpus.num_gpus) if item.node else ""
                shares.append(Share(one.num_gpus, one.gpu_milli, listed))
        said = json.loads(constraints_of(item, dump) or "{}")
        tolerations = [{name: text_at(one, name) for name in TOLERATION if name in one}
                       for one in item.objects("spec", "tolerations")
                       if text_at(one, "effect") != "PreferNoSchedule"]  # more than a dump keeps
        said |= {"tolerations": tolerations} if tolerations else {}
        return LivePod(uid_of(item.body), pod_name(item), demand.cpu_milli, demand.memory_mib,
                       tuple(shares), models_wanted(item), as_json(said) if said else "", item.node,
                       self.gang_of(item))

    def gang_of(self, item: Item) -> str:
        """Group with which a pod starts together; empty if it is alone, held back by a gate, or about to go."""
        group = group_of(item) if self.has_gangs else None
        is_there = not item.objects("spec", "schedulingGates") and not item.text("metadata", "deletionTimestamp")
        return group.job if group is not None and is_there else ""


Meaning = tuple[Any, ...]


def meaning_of(gpus: NodeGpus) -> Meaning:
    """What GPUs of a node mean to a pod that has no node: all but how many there are, and their names."""
    return (gpus.models, gpus.memory_mib, gpus.replicas, gpus.profile, gpus.num_gpus > 0, gpus.uncut < gpus.num_gpus,
            gpus.kinds, frozenset(gpus.devices), frozenset(one.slots for one in gpus.registered))


def left_to_us(body: dict[str, Any], **changes: Any) -> Item:
    """A pod without its claims, which the scheduler allocates, and with changes to its `spec`."""
    spec = body.get("spec")
    kept = {name: value for name, value in spec.items() if name != "resourceClaims"} if isinstance(
        spec, dict) else {}
    return Item("Pod", {**body, "spec": {**kept, **changes}})


DOUBTS = (  # of the readers; a promise is not made on them
    "is no quantity", "is no number", "is no share of a GPU", "more than a GPU",
    "of unknown memory")
GPU_WORDS = re.compile(r"gpu|cuda|/mig-", re.I)
MODEL_RULES = ("nvidia.com/nouse-gputype", "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid")
SHARES = ("gpu-fraction", "gpu-memory", OPENB, "alibabacloud.com/gpu-count")  # in annotations
MAKERS = {"alibabacloud.com": "openb", "volcano.sh": "Volcano", "nvidia.com": "NVIDIA"}
BY_MEMORY = (*(dialect.asks[1] for dialect in VIRTUAL), "gpu-memory")
BY_PERCENT = tuple(name for dialect in VIRTUAL for name in dialect.asks[2:4] if name)
PLAIN = (GPU, SHARED)


def amounts_of(item: Item, asked: Amounts) -> dict[str, Any]:
    """What a pod says about GPUs, by name, of the amounts that its containers ask for and in its annotations."""
    amounts: dict[str, Any] = {name: asked[name] for name in asked if GPU_WORDS.search(name) and asked[name]}
    said = item.annotations
    return amounts | {name: said[name] for name in (*SHARES, *MODEL_RULES) if said.get(name)}


def dialects_in(amounts: Mapping[str, Any]) -> set[str]:
    """Which ways of stating a share the names belong to."""
    makers = {name.partition("/")[0] if "/" in name else "KAI" for name in amounts
              if name not in MODEL_RULES}
    return {MAKERS.get(maker, maker) for maker in makers}


def refusal_of_names(amounts: Mapping[str, Any]) -> str:
    """Why what a pod names cannot be promised, whatever the nodes; empty if it can."""
    for name in amounts:
        if "/" in name and name not in UNDERSTOOD and name not in MODEL_RULES:
            return f"{name} is no share of a GPU that can be counted"
    for name in MODEL_RULES:
        if name in amounts:
            return f"{name} chooses among GPUs, which is not represented"
    if len(dialects := dialects_in(amounts)) > 1:
        return f"GPUs are stated in several ways, {' and '.join(sorted(dialects))}"
    if "alibabacloud.com/gpu-count" in amounts and OPENB not in amounts:
        return f"alibabacloud.com/gpu-count without {OPENB}"
    for name in BY_PERCENT:
        if (amounts.get(name) or 0) > 100:
            return f"{name} is more than 100 percent of a GPU"
    return ""


def refusal_of_memory(amounts: Mapping[str, Any], gpus: Sequence[NodeGpus]) -> str:
    """Why a share in MiB is none in thousandths on these nodes; empty if it is."""
    name = next((name for name in BY_MEMORY if amounts.get(name)), "")
    if not name:
        return ""
    memories = {one.memory_mib for one in gpus if one.num_gpus}
    if not memories or None in memories:
        return f"{name} is in MiB, and the memory of GPUs here is unknown"
    if len(memories) > 1:
        said = ", ".join(map(str, sorted(memories)))  # type: ignore[type-var]
        return f"{name} is in MiB, and GPUs here have {said} MiB: select nodes of one model"
    asked = quantity(str(amounts[name]))
    if asked is None:
        return f"{name} is no quantity"
    most = memories.pop() or 0
    return f"{name} is more than the {most} MiB of a GPU here" if asked > most else ""


def refusal_of_parts(amounts: Mapping[str, Any], gpus: Sequence[NodeGpus]) -> str:
    """Why `nvidia.com/gpu` is no share on nodes that show parts of GPUs as GPUs."""
    kinds = {(one.replicas, one.profile) for one in gpus if one.num_gpus}
    beside = {kind.resource for one in gpus if one.uncut < one.num_gpus and not one.profile
              for kind in one.kinds if kind.replicas > 1}
    if names := sorted(name for name in beside if amounts.get(name)):
        return f"{names[0]} is a part of a GPU here, beside GPUs that nobody shares"
    if not any(amounts.get(name) for name in PLAIN) or kinds <= {(1, "")}:
        return ""
    if any(profile for _, profile in kinds):
        return "nvidia.com/gpu is an instance of MIG here, which is no share of a GPU"
    said = ", ".join(f"1/{replicas}" for replicas, _ in sorted(kinds))
    return "" if len(kinds) == 1 else f"nvidia.com/gpu is {said} of a GPU here, by node"


def parted(amounts: Mapping[str, Any], gpus: Mapping[str, NodeGpus]) -> dict[str, str]:
    """Nodes that show parts of GPUs as GPUs, if a pod asks for GPUs and others show whole ones."""
    is_plain = any(amounts.get(name) for name in PLAIN)
    if not is_plain or any(amounts.get(name) for dialect in VIRTUAL for name in dialect.asks[1:4]):
        return {}
    parts = {name: "nvidia.com/gpu is a part of a GPU here" for name, one in gpus.items()
             if one.num_gpus and (one.replicas > 1 or one.profile)}
    return parts if len(parts) < sum(one.num_gpus > 0 for one in gpus.values()) else {}


class Eligibility(NamedTuple):
    """What a pod asks for and where it may go, as the live cluster is asked, or why it cannot be.

    Parameters
    ----------
    pod : that asks; None if it has ended, or reserves GPUs for others
    nodes : that it may go to
    excluded : nodes on which it would not get what it names, with the reason
    refused : why nothing can be promised; empty if it can
    """

    pod: LivePod | None
    nodes: tuple[str, ...]
    excluded: dict[str, str] = {}
    refused: str = ""


def eligibility_of(objects: Objects, body: dict[str, Any], names: Sequence[str],
                   known: Mapping[str, NodeGpus] | None = None) -> Eligibility:
    """What a pod asks for, if it can be promised on some nodes.

    Parameters
    ----------
    objects : what nodes said about their GPUs
    body : the pod
    names : of nodes that it may go to
    known : GPUs of these; None for what is remembered of them
    """
    item = left_to_us(body, nodeName="")
    reasons = Reasons()
    asked = asked_by_pod(item, Dump(reasons))
    amounts = amounts_of(item, asked)
    gpus: dict[str, NodeGpus] = {}
    if amounts and dialects_in(amounts) != {"openb"}:  # that means the same on every node
        models = {name for name in models_wanted(item).split("|") if name}
        gpus = {name: one for name, one in (objects.known(names) if known is None else known).items()
                if not models or "+".join(one.models) in models}
    excluded = parted(amounts, gpus) | (objects.blocked_nodes(names) if amounts else {})
    kept = {name: one for name, one in gpus.items() if name not in excluded}
    nodes = tuple(names)
    if excluded:
        nodes = tuple(name for name in names if name not in excluded)
    refused = objects.refusal_of(item, amounts) or refusal_of_names(amounts) or refusal_of_memory(
        amounts, list(kept.values())) or refusal_of_parts(amounts, list(kept.values()))
    if item.is_over or is_reservation(item):
        why = RESERVES if is_reservation(item) else "the pod is over"
        return Eligibility(None, nodes, excluded, refused or why)
    pod = objects.live_pod(item, Dump(reasons, nodes=kept), asked)
    doubts = [said for said in reasons.said if any(words in said for words in DOUBTS)]
    return Eligibility(pod, nodes, excluded, refused or "".join(doubts[:1]))


def folded(request: Any) -> dict[str, Any]:
    """Values of a request by lower-case name, the last of a name counting.

    Raises
    ------
    InputError : it is no object
    """
    if not isinstance(request, dict):
        raise InputError(f"a request is an object, not a {type(request).__name__}",
                         mend="send what kube-scheduler sends to an extender")
    return {str(name).lower(): value for name, value in request.items()}


class ExtenderArgs(NamedTuple):
    """What kube-scheduler sends to a filter or a prioritize.

    Parameters
    ----------
    body : the pod
    names : of the nodes that it may go to, each once
    nodes : the same, in the order of the last question that had them, on which no decision depends
    items : the nodes themselves, by name; None if only names were sent
    """

    body: dict[str, Any]
    names: Sequence[str]
    nodes: tuple[str, ...]
    items: dict[str, dict[str, Any]] | None

    def answer(self, names: Sequence[str], failed: Mapping[str, str] | None = None,
               unresolvable: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Answer of a filter.

        Parameters
        ----------
        names : nodes that are left
        failed, unresolvable : why others are not, by node; the second would be so on an empty
            cluster
        """
        answer: dict[str, Any] = {"NodeNames": list(names)}
        if self.items is not None:
            items = [self.items[name] for name in names]
            answer = {"NodeNames": None, "Nodes": {"metadata": {}, "items": items}}
        return {**answer, "FailedNodes": dict(failed or {}),
                "FailedAndUnresolvableNodes": dict(unresolvable or {}), "Error": ""}


class KnownNames(NamedTuple):
    """Names of the last question: the scheduler sends the same in ever another order, and the core knows them as one tuple."""

    nodes: tuple[str, ...] = ()
    known: frozenset[str] = frozenset()

    def are(self, names: Sequence[Any]) -> bool:
        """Whether some names are these, each once."""
        try:
            return len(names) == len(self.known) and not self.known.difference(names)
        except TypeError:  # something among them is no text
            return False


def extender_args(request: Any, last: KnownNames) -> ExtenderArgs:
    """The pod and the nodes in a request to filter or prioritize.

    Parameters
    ----------
    request : as the scheduler sent it
    last : names of the last one

    Raises
    ------
    InputError : it has no pod with a name, or neither nodes nor names of nodes
    """
    said = folded(request)
    body = said.get("pod")
    if not isinstance(body, dict) or not text_at(body, "metadata", "name"):
        raise InputError("there is no pod with a name", column="Pod", mend="send the pod")
    names = said.get("nodenames")
    if isinstance(names, list) and last.are(names):
        return ExtenderArgs(body, names, last.nodes, None)
    if isinstance(names, list) and set(map(type, names)) <= {str}:
        nodes = tuple(dict.fromkeys(names))
        return ExtenderArgs(body, nodes, nodes, None)
    items = dig(folded(said.get("nodes") or {}), "items")
    if names is not None or not isinstance(items, list):
        raise InputError("there are neither nodes nor names of nodes", column="NodeNames",
                         mend="send a list of names, or Nodes with a list of items")
    found = {text_at(one, "metadata", "name"): one for one in items}
    if "" in found:
        raise InputError("a node has no name", column="Nodes", mend="send whole nodes")
    nodes = tuple(found)
    return ExtenderArgs(body, nodes, last.nodes if last.are(nodes) else nodes, found)


class BindingArgs(NamedTuple):
    """What kube-scheduler sends to a bind; `sent_uid` is the UID as it was sent, perhaps empty."""

    namespace: str
    name: str
    sent_uid: str
    node: str

    @property
    def pod(self) -> str:
        """Namespace and name of the pod."""
        return f"{self.namespace}/{self.name}"


def binding_args(request: Any) -> BindingArgs:
    """The binding that a request asks for.

    Raises
    ------
    InputError : a name is missing
    """
    said = folded(request)
    uid = said.get("poduid") or ""
    if not isinstance(uid, str):
        raise InputError(f"{uid!r:.60} is no UID", column="PodUID", mend="give a text")
    names: dict[str, Any] = {name: said.get(name.lower()) for name in ("PodNamespace", "PodName", "Node")}
    for name, value in names.items():
        if not isinstance(value, str) or not value:
            raise InputError(f"{value!r:.60} is no name", column=name, mend="give a text")
    return BindingArgs(names["PodNamespace"], names["PodName"], uid, names["Node"])


class Call(NamedTuple):
    """Something for the caller to do: a method of an API server, as of `KubernetesApi`, or "pause" with seconds."""

    method: str
    arguments: tuple[Any, ...]


Steps = Generator[Call, Any, Any]
MODES = ("observe", "score", "decide")
FOR_GOOD = (400, 401, 403, 404, 405, 409, 410, 413, 422)
LONGEST_PAUSE_S = 1.0  # the scheduler waits for the answer


@dataclass(frozen=True)
class BridgeSettings:
    """How a bridge behaves in every mode.

    Parameters
    ----------
    gpu_index : annotation that gets the GPUs of a pod
    nodes_in_request : whether nodes are learnt from requests, and not from a watch
    pauses_s : between attempts of a binding; there is one attempt more
    doubt_s : after so long a binding of unknown outcome is known not to happen any more
    has_gangs : whether pods of a group start together
    """

    gpu_index: str = GPU_INDEX
    nodes_in_request: bool = False
    pauses_s: tuple[float, ...] = (0.1, 0.4)
    doubt_s: float = 90.0
    has_gangs: bool = True


class Doubt(NamedTuple):
    """A binding of which nobody knows whether it happened, and since when it has not been tried.

    That is not when somebody asked for it: a process may stand still between two attempts.
    """

    binding: BindingArgs
    since_s: float | None = None


class Look(NamedTuple):
    """What a look at the pod of a binding showed.

    Parameters
    ----------
    body : the pod; None if it is not there, or cannot be looked at
    problem : why there is none
    is_gone : whether it is certain that there is none
    """

    body: dict[str, Any] | None
    problem: str = ""
    is_gone: bool = False

    @property
    def node(self) -> str:
        """Node of the pod; empty if it has none."""
        return text_at(self.body, "spec", "nodeName")


GROUP_S = 30.0  # after which a group is looked at again
MOST_GROUPS = 10_000


class GroupSeen(NamedTuple):
    """What says how many pods of a group start together, when that was looked at, and why there is nothing."""

    found: Item | None
    at_s: float
    problem: str = ""


def look(binding: BindingArgs) -> Generator[Call, Any, Look]:
    """Look at the pod of a binding."""
    try:
        body = yield Call("pod", (binding.namespace, binding.name))
    except ApiError as trouble:
        return Look(None, f"{binding.pod} cannot be looked at: {trouble}")
    if body is None:
        return Look(None, f"there is no pod {binding.pod}", is_gone=True)
    if binding.sent_uid and uid_of(body) != binding.sent_uid:
        return Look(None, f"another pod is called {binding.pod} by now", is_gone=True)
    return Look(body)


class Bridge:
    """The extender of a scheduler: requests in, answers out, events to a live cluster.

    What takes calls to the API server is a generator that hands them out, so that other questions
    are answered meanwhile.

    Parameters
    ----------
    journal : of the cluster, which nobody else may change; keeps events and decisions
    mode : "decide", "score" or "observe"
    settings : names and times

    Attributes
    ----------
    live : the cluster
    objects : reads nodes and pods
    refusals : questions without a node, by what was in the way on most nodes, or "refused"
    groups : what was looked at about groups of pods, by program, kind, namespace and name
    doubts : bindings of unknown outcome, by uid
    sending : uids of pods whose binding is being written
    term : how often we have begun to lead
    hears : is told of each answer of a filter in mode score and decide: the pod, and the decision
    """

    _reads: type[Objects] = Objects

    def __init__(self, journal: Journal, mode: str = "decide",
                 settings: BridgeSettings | None = None) -> None:
        self.journal = journal
        self.live = journal.live
        self.mode = mode
        self.settings = settings or BridgeSettings()
        self.objects = self._reads(self.settings.gpu_index, self.settings.has_gangs)
        self.refusals: Counter[str] = Counter()
        self.groups: dict[tuple[str, str, str, str], GroupSeen] = {}
        self.doubts: dict[str, Doubt] = {}
        self.sending: set[str] = set()
        self.term = 0
        self.hears: Callable[[dict[str, Any], Decision], object] = lambda body, decision: None
        self._node_versions: dict[str, str] = {}
        self._passed_s = 0.0
        self._last_names = KnownNames()

    def tell(self, event: Event) -> Decision | None:
        """Give an event to the journal and the cluster; return what was decided, if asked."""
        objects = self.objects
        if isinstance(event, PodSeen) and (body := objects.unsettled.get(event.pod.uid)):
            event = PodSeen(objects.pod(body) or event.pod)  # a node may have been told of meanwhile
        if isinstance(event, PodGone):
            objects.unsettled.pop(event.uid, None)
        if isinstance(event, Asked | PodSeen):
            objects.told[event.pod.uid] = None
        decision = self.journal.apply(event)
        if isinstance(event, NodeSeen):
            self._read_again(event.node.name)
        return decision

    def _read_again(self, node: str) -> None:
        """Tell again of pods of a node, or of those that have none, of which nodes may say something else by now."""
        for uid, body in list(self.objects.unsettled.items()):  # others may write, also a watch that is not heard any more
            is_known = self.live.holds(uid) is not None if node else self.live.waits(uid)
            if is_known and text_at(body, "spec", "nodeName") == node and (pod := self.objects.pod(body)) is not None:
                self.journal.apply(PodSeen(pod))

    def _read_waiting_again(self) -> None:
        """Tell again of pods that wait, if nodes say something else about their GPUs: so may what the pods ask for."""
        if self.objects.has_news:
            self.objects.has_news = False
            self._read_again("")

    def is_idle(self) -> bool:
        """Whether no binding is under way, or in doubt."""
        return not (self.sending or self.doubts)

    def begin_term(self) -> None:
        """Begin to lead after another one may have. All pods are listed next: what is not bound by then never will be."""
        self.term += 1
        for uid in list(self.live.reservations):
            self.tell(PodGone(uid))
        self.doubts.clear()

    # --- gangs

    def looking_at_group(self, request: Any, at_s: float) -> Steps:
        """Look at what says how many pods start together with that of a filter, in steps as those of `binding`.

        Parameters
        ----------
        request, at_s : as of `filter`, which comes next
        """
        group = self._group_of(dig(folded(request), "pod"))
        if group is None or group.program in COUNTS:
            return
        key = (*group[:3], group.names[0])
        seen = self.groups.get(key)
        if seen is not None and seen.found is not None and at_s < seen.at_s + GROUP_S:
            return
        try:
            body = yield Call("group", key)
        except ApiError as trouble:
            seen = GroupSeen(seen and seen.found, at_s, f", and it cannot be looked at: {trouble}")
        else:
            seen = GroupSeen(body and Item(group.kind, body), at_s)
        if len(self.groups) >= MOST_GROUPS:
            self.groups.clear()
        self.groups[key] = seen

    def _group_of(self, body: Any) -> Group | None:
        """Group of a pod that starts together; None if it is alone."""
        return group_of(Item("Pod", body)) if self.settings.has_gangs and body else None

    def _least(self, body: dict[str, Any]) -> tuple[int, str]:
        """How many pods start together with one, 0 if it is alone; and why that cannot be known, or empty."""
        group = self._group_of(body)
        if group is None:
            return 0, ""
        key = (*group[:3], group.names[0])
        seen = self.groups.get(key, GroupSeen(None, 0.0))
        least = least_of(group, Item("Pod", body), {} if seen.found is None else {key: seen.found})
        return least or 0, "" if least else (f"nothing says how many pods of group {group.job} start together, as "
                                             f"{group.shown_by} would{seen.problem}")

    # --- filter and prioritize

    def filter(self, request: Any, at_s: float) -> dict[str, Any]:
        """Answer a filter: in mode observe all nodes, in mode decide the one that is reserved.

        Parameters
        ----------
        request : as the scheduler sent it
        at_s : now, in seconds that only grow

        Raises
        ------
        InputError : it is no such request
        """
        args = self._received(request, at_s)
        eligible = eligibility_of(self.objects, args.body, args.nodes)
        least, unknown = self._least(args.body)
        if least > 1:
            self._read_waiting_again()
        eligible = eligible._replace(refused=eligible.refused or unknown)
        pod = eligible.pod
        if self.mode == "observe":  # what would have been chosen stands in the journal
            if pod is not None and not eligible.refused:
                self._ask(pod, eligible.nodes, at_s, reserves=False, least=least)
            return args.answer(args.names)
        if pod is None or eligible.refused:
            uid = uid_of(args.body)
            self.refusals["refused"] += 1
            self.hears(args.body, Decision(self.live.version, uid, uid, refused=eligible.refused))
            return args.answer((), unresolvable=dict.fromkeys(args.names, eligible.refused))
        if node := self._settled_node(pod.uid):
            why = f"the pod is bound to {node}, or about to be"
            return args.answer([node] if node in args.names else [],
                               {name: why for name in args.names if name != node})
        reserves = self.mode == "decide" or least > 1  # half a gang is promised to nobody
        decision = self._ask(pod, eligible.nodes, at_s, reserves=reserves, least=least)
        self.hears(args.body, decision)
        if decision.refused:
            return args.answer((), unresolvable=dict.fromkeys(args.names, decision.refused))
        if not decision.node:
            reasons = self._reasons(eligible, args.names, decision.together)
            return args.answer((), reasons)
        if reserves:
            return args.answer([decision.node])
        fits = self.live.scores(pod, eligible.nodes)
        return args.answer([name for name in args.names if name in fits])

    def prioritize(self, request: Any, at_s: float) -> list[dict[str, Any]]:
        """Answer a prioritize: a whole number for each node, 0 if the pod may not go there.

        Parameters
        ----------
        request, at_s : as of `filter`
        """
        args = self._received(request, at_s)
        points: Mapping[str, int] = {}
        if self.mode == "decide":
            held = self.live.holds(uid_of(args.body))
            points = {held.node: 0} if held is not None else {}
        elif self.mode == "score":
            eligible = eligibility_of(self.objects, args.body, args.nodes)
            if eligible.pod and not eligible.refused:
                points = self.live.scores(eligible.pod, eligible.nodes)
        lowest = min(points.values(), default=0)
        return [{"Host": name, "Score": int(points[name] - lowest) + 1 if name in points else 0}
                for name in args.names]

    def _received(self, request: Any, at_s: float) -> ExtenderArgs:
        """A request; nodes in it that are new or have changed are taken over if that is wanted."""
        args = extender_args(request, self._last_names)
        if args.nodes is not self._last_names.nodes:
            self._last_names = KnownNames(args.nodes, frozenset(args.nodes))
        self._let_pass(at_s)
        items = args.items if self.settings.nodes_in_request else None
        for name, body in (items or {}).items():
            version = text_at(body, "metadata", "resourceVersion")
            if not version or self._node_versions.get(name) != version:
                self._node_versions[name] = version
                self.tell(NodeSeen(self.objects.node(body)))
        return args

    def _let_pass(self, at_s: float) -> None:
        """Let time pass, by whole seconds, so that reservations lapse whoever keeps the clock."""
        if at_s >= self._passed_s + 1:
            self._passed_s = at_s
            self.tell(Passed(at_s))

    def _ask(self, pod: LivePod, nodes: tuple[str, ...], at_s: float, *,
             reserves: bool, least: int = 0) -> Decision:
        """Ask the cluster for a node."""
        decision = self.tell(Asked(pod, nodes, at_s, reserves, least))
        assert decision is not None, "a question gets a decision"
        if not decision.node:
            way, _ = max(decision.failed, key=itemgetter(1), default=("", 0))
            self.refusals["refused" if decision.refused else way or "nodes"] += 1
        return decision

    def _settled_node(self, uid: str) -> str:
        """Node to which a pod is bound, or will be if a binding in doubt happens; empty if none."""
        held = self.live.holds(uid)
        reserved = self.live.reservations.get(uid)
        is_free = reserved is not None and not reserved.is_committing
        return "" if held is None or is_free else held.node

    def _reasons(self, eligible: Eligibility, names: Sequence[str], together: str = "") -> dict[str, str]:
        """What is in the way of a pod on each of some nodes, beside what its gang lacks."""
        said = self.live.why_not(eligible.pod, eligible.nodes) if eligible.pod is not None else {}
        unknown = "alone it would fit" if together else "the node is not known here yet"
        reasons = {name: eligible.excluded.get(name) or said.get(name) or unknown for name in names}
        return {name: f"{together}; {why}" for name, why in reasons.items()} if together else reasons

    # --- bind

    def binding(self, request: Any, at_s: float) -> Steps:
        """Answer a bind in steps, of which the caller carries out the calls.

        Parameters
        ----------
        request, at_s : as of `filter`

        Raises
        ------
        InputError : it is no such request
        """
        binding = binding_args(request)
        self._let_pass(at_s)
        steps = (self._pass_on(binding) if self.mode == "observe" else
                 self._reserve_and_bind(binding, at_s))
        problem = yield from self._within_term(steps)
        return {"Error": problem}

    def _within_term(self, steps: Generator[Call, Any, str]) -> Generator[Call, Any, str]:
        """Carry out steps as long as the term lasts in which they began: later ones would go by what was true then."""
        term = self.term
        answer: Any = None
        trouble: ApiError | None = None
        while True:
            try:
                call = steps.send(answer) if trouble is None else steps.throw(trouble)
            except StopIteration as done:
                return str(done.value)
            answer = trouble = None
            try:
                answer = yield call
            except ApiError as error:
                trouble = error
            if self.term != term:
                steps.close()
                return "another replica may have led meanwhile: the pod is to be decided anew"

    def _pass_on(self, binding: BindingArgs) -> Generator[Call, Any, str]:
        """Bind without having a say; why not, or empty."""
        trouble, _ = yield from self._send(binding, {})
        if trouble is None:
            return ""
        found = yield from look(binding)
        return "" if found.node == binding.node else f"{binding.pod} to {binding.node}: {trouble}"

    def _reserve_and_bind(self, binding: BindingArgs, at_s: float) -> Generator[Call, Any, str]:
        """Bind where GPUs are reserved, or can be; why not, or empty."""
        if problem := (yield from self._reserve(binding, at_s)):
            return problem
        uid = self._uid_of(binding)
        held = self.live.holds(uid)
        if held is None or uid not in self.live.reservations:
            return ""  # it was bound before
        if uid in self.sending:
            return f"a bind of {binding.pod} is under way already"
        try:
            self.tell(Committing(uid, at_s))
        except OutputError:  # nothing was sent, unless by an earlier attempt
            if uid not in self.doubts:
                self._conclude(uid, BindFailed(uid))
            raise
        if uid in self.doubts:
            self.doubts[uid] = Doubt(binding)
        gpu_list = held.shares[0].gpu_list if held.shares else ""
        self.sending.add(uid)
        try:
            trouble, is_unsure = yield from self._carry_out(binding, uid, gpu_list)
            if trouble is None:
                self._conclude(uid, Bound(uid))
                return ""
            problem = yield from self._find_out(binding, uid, trouble, is_unsure)
            if uid not in self.doubts:
                yield from self._tidy(uid)
            return problem
        finally:
            self.sending.discard(uid)

    def _carry_out(self, binding: BindingArgs, uid: str, gpu_list: str,
                   ) -> Generator[Call, Any, tuple[ApiError | None, bool]]:
        """Bind a pod and write which GPUs it has, for whoever gives them to it; returns what `_send` does."""
        return (yield from self._send(
            binding, {self.settings.gpu_index: gpu_list} if gpu_list else {}))

    def _tidy(self, uid: str) -> Steps:
        """Undo what was done for a bind and nobody needs: it did not happen, or an earlier one had."""
        yield from ()

    def _uid_of(self, binding: BindingArgs) -> str:
        """UID of the pod of a binding; if none was sent, that of a reservation by its name."""
        if binding.sent_uid:
            return binding.sent_uid
        reserved = self.live.reservations.items()
        return next((uid for uid, one in reserved if one.decision.pod == binding.pod), binding.pod)

    def _reserve(self, binding: BindingArgs, at_s: float) -> Generator[Call, Any, str]:
        """See to it that a pod holds GPUs on the node of a binding; why not, or empty."""
        uid = self._uid_of(binding)
        held = self.live.holds(uid)
        if held is not None and held.node == binding.node:
            return ""
        if node := self._settled_node(uid):
            return f"{binding.pod} is bound to {node}, or about to be"
        found = yield from look(binding)
        if found.body is None:
            return found.problem
        if found.node:
            self._take_over(found.body)
            return "" if found.node == binding.node else f"{binding.pod} is bound to {found.node}"
        eligible = eligibility_of(self.objects, found.body, (binding.node,))
        if eligible.pod is None or eligible.refused or eligible.excluded:
            return f"{binding.pod}: {eligible.refused or eligible.excluded[binding.node]}"
        least, unknown = self._least(found.body)
        if least > 1 or unknown:
            return f"{binding.pod} starts together with others, and its place was given back: its group is decided anew"
        decision = self._ask(eligible.pod, eligible.nodes, at_s, reserves=True)
        if decision.node:
            return ""
        why = decision.refused or self._reasons(eligible, eligible.nodes)[binding.node]
        return f"{binding.pod} does not fit on {binding.node} any more: {why}"

    def _take_over(self, body: dict[str, Any]) -> None:
        """Tell the cluster of a pod that was looked at."""
        pod = self.objects.pod(body)
        if Item("Pod", body).is_over:
            self.tell(PodGone(uid_of(body)))
        elif pod is not None:
            self.tell(PodSeen(pod))

    def _send(self, binding: BindingArgs, annotations: dict[str, str],
              ) -> Generator[Call, Any, tuple[ApiError | None, bool]]:
        """Write a binding, several times if need be.

        Returns
        -------
        trouble of the last attempt, None if it worked; whether any attempt may have worked
        """
        call = Call("bind", (binding.namespace, binding.name, binding.sent_uid, binding.node,
                             annotations))
        trouble: ApiError | None = None
        is_unsure = False
        for pause_s in (*self.settings.pauses_s, None):
            try:
                yield call
                return None, False
            except ApiError as error:
                trouble = error
            is_unsure = is_unsure or trouble.is_unsure
            if pause_s is None or trouble.status in FOR_GOOD:
                break
            yield Call("pause", (max(pause_s, min(trouble.retry_after_s, LONGEST_PAUSE_S)),))
        return trouble, is_unsure

    def _conclude(self, uid: str, event: Event) -> None:
        """End a reservation; the watch may have been faster."""
        self.doubts.pop(uid, None)
        if uid in self.live.reservations:
            self.tell(event)

    def _find_out(self, binding: BindingArgs, uid: str, trouble: ApiError,
                  is_unsure: bool) -> Generator[Call, Any, str]:
        """Find out what became of a binding that did not simply work."""
        said = f"{binding.pod} to {binding.node}: {trouble}"
        is_unsure = is_unsure or uid in self.doubts
        found = Look(None)
        if is_unsure or trouble.status == 409:
            found = yield from look(binding)
        if found.node and found.body is not None:
            self.doubts.pop(uid, None)
            if uid in self.live.reservations:  # else a watch was faster, and the look is old
                self._take_over(found.body)
            return "" if found.node == binding.node else f"{said}; it is on {found.node}"
        if is_unsure and not found.is_gone:
            self.doubts[uid] = Doubt(binding)
            return f"{said}; it may have been bound, and its GPUs stay reserved"
        self._conclude(uid, BindFailed(uid))
        return "; ".join(filter(None, [said, found.problem]))

    def settling(self, at_s: float) -> Steps:
        """Let time pass, and look at pods whose binding has been in doubt for long."""
        self._passed_s = max(self._passed_s, at_s)
        self._read_waiting_again()
        self.tell(Passed(at_s))
        for uid, doubt in list(self.doubts.items()):
            if uid not in self.live.reservations:
                self.doubts.pop(uid, None)
            elif uid in self.sending:
                continue
            elif doubt.since_s is None:
                self.doubts[uid] = doubt._replace(since_s=at_s)
            elif at_s >= doubt.since_s + self.settings.doubt_s:
                found = yield from look(doubt.binding)
                if self.doubts.get(uid) is not doubt or uid not in self.live.reservations:
                    continue  # it was tried again meanwhile, or a watch was faster
                if found.node and found.body is not None:
                    self.doubts.pop(uid, None)
                    self._take_over(found.body)
                elif found.body is not None or found.is_gone:
                    self._conclude(uid, BindFailed(uid))
            if uid not in self.doubts:
                yield from self._tidy(uid)
