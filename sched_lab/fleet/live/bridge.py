"""The extender's protocol of Kubernetes without a socket: a question about a pod comes in as JSON, an answer goes out, and no GPU is promised twice."""

# A module, written by hand.

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ...lab.frames import InputError, OutputError
from ..read.devices import GPU, OTHER_GPUS, SHARED, VIRTUAL
from ..read.kubernetes import (
    Dump,
    Item,
    NodeGpus,
    asked_by_pod,
    gpus_of,
    models_wanted,
    node_row,
    pod_name,
    pod_rows,
)
from ..read.objects import as_json, dig, objects_at, quantity, text_at, texts_at
from ..read.tables import Ledger
from .core import (
    Asked,
    BindFailed,
    Bound,
    Committing,
    Decision,
    Event,
    LiveCluster,
    LiveNode,
    LivePod,
    NodeSeen,
    Passed,
    PodGone,
    PodSeen,
    Share,
)
from .journal import Journal

__all__ = ['ApiError', 'Api', 'BridgeSettings', 'Bridge']


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


class Api(Protocol):
    """What is asked of an API server; each method may raise `ApiError`."""

    def list(self, kind: str) -> tuple[list[dict[str, Any]], str]:
        """Objects of a kind, "nodes" or "pods", and the version of the list."""

    def watch(self, kind: str, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Changes since a version: ADDED, MODIFIED, DELETED or BOOKMARK, and the object.

        Parameters
        ----------
        kind : "nodes" or "pods"
        version : of a list, or of the last change that was taken in
        """

    def bind(self, namespace: str, name: str, uid: str, node: str,
             annotations: dict[str, str]) -> None:
        """Give a pod its node and annotations, in one write.

        Parameters
        ----------
        namespace, name : of the pod
        uid : the pod must have it, if it is not empty
        node : name
        annotations : are merged into those of the pod
        """

    def pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """A pod as it is now; None if there is none.

        Parameters
        ----------
        namespace, name : of the pod
        """


class Sentences(Ledger):
    """A ledger of one object: the reasons, as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def note(self, file: str, row: int | None, what: str, reason: str, count: int = 1) -> None:
        """Keep a reason."""
        self.said.append(reason)


def item_of(kind: str, body: dict[str, Any]) -> Item:
    """An object as the readers take it."""
    return Item("", 0, kind, body)


def without_claims(body: dict[str, Any]) -> dict[str, Any]:
    """The same pod, without what the scheduler allocates itself."""
    spec = dig(body, "spec")
    if not isinstance(spec, dict) or "resourceClaims" not in spec:
        return body
    return {**body, "spec": {name: spec[name] for name in spec if name != "resourceClaims"}}


def with_tolerations(constraints: str, body: dict[str, Any]) -> str:
    """The same constraints, with every toleration of taints that keep pods away."""
    names = ("key", "operator", "value", "effect")
    tolerations = [{name: text_at(one, name) for name in names if name in one}
                   for one in objects_at(body, "spec", "tolerations")
                   if text_at(one, "effect") != "PreferNoSchedule"]
    said = json.loads(constraints) if constraints else {}
    said.pop("devices", None)  # the scheduler asks about nodes that have them
    said |= {"tolerations": tolerations} if tolerations else {}
    return as_json(said) if said else ""


GPU_INDEX = "alibabacloud.com/gpu-index"
GPU_LIST = re.compile(r"\d{1,4}(?:-\d{1,4})*")


def gpu_list_of(written: str, num_gpus: int, on_node: int | None) -> str:
    """GPUs that an annotation names; empty if it cannot be so.

    Parameters
    ----------
    num_gpus : how many the pod holds
    on_node : how many its node has, if known
    """
    text = re.sub(r"[,|]", "-", written).strip("- ")
    if not GPU_LIST.fullmatch(text):
        return ""
    numbers = sorted({int(number) for number in text.split("-")})
    is_there = on_node is None or numbers[-1] < on_node
    return "-".join(map(str, numbers)) if len(numbers) == num_gpus and is_there else ""


class Objects:
    """Reader of nodes and pods that remembers what nodes say about their GPUs.

    Parameters
    ----------
    gpu_index : annotation that names the GPUs of a pod

    Attributes
    ----------
    gpus : of the nodes that were read, by name
    told : uids of pods that the cluster was told of, by a watch, a question or a look
    """

    def __init__(self, gpu_index: str = GPU_INDEX) -> None:
        self.gpu_index = gpu_index
        self.told: dict[str, None] = {}
        self.gpus: dict[str, NodeGpus] = {}

    def node(self, body: dict[str, Any]) -> LiveNode:
        """A node, which is remembered."""
        dump = Dump(Sentences())
        item = item_of("Node", body)
        gpus = gpus_of(item, dump, {})
        row = node_row(item, dump, gpus)
        self.gpus[row["name"]] = gpus
        if not gpus.profile:  # the others are for pods that ask for instances
            row["num_gpus"] = gpus.uncut
        del row["gpu_memory_mib"]
        return LiveNode(**row)

    def pod(self, body: dict[str, Any]) -> LivePod | None:
        """A pod with what it holds, or asks for; None if it only reserves GPUs for others."""
        node = text_at(body, "spec", "nodeName")
        nodes = self.known([node]) if node else self.gpus.copy()  # others may write meanwhile
        return self.read(body, Dump(Sentences(), nodes=nodes))

    def known(self, names: Sequence[str]) -> dict[str, NodeGpus]:
        """What is remembered of some nodes."""
        return {name: self.gpus[name] for name in names if name in self.gpus}

    def read(self, body: dict[str, Any], dump: Dump) -> LivePod | None:
        """A pod, read beside some nodes; what the readers say is in the ledger of `dump`."""
        item = item_of("Pod", without_claims(body))
        rows = pod_rows(item, dump)
        if not rows:
            return None
        name = pod_name(item)
        is_alike = bool(self.gpus.get(rows[0]["node"], NodeGpus()).profile)
        shares = [self.share(row, body) for row in rows if row["num_gpus"] > 0
                  and (is_alike or not row["node"] or not row.get("mig_profile"))]
        return LivePod(
            uid_of(body), name, rows[0]["cpu_milli"], rows[0]["memory_mib"], tuple(shares),
            rows[0]["gpu_models"], with_tolerations(rows[0]["constraints"], body), rows[0]["node"])

    def share(self, row: dict[str, Any], body: dict[str, Any]) -> Share:
        """Share of GPUs in a row; which GPUs, if the pod has a node and says so."""
        count = row["num_gpus"]
        if not row["node"]:
            return Share(count, row["gpu_milli"])
        on_node = self.gpus[row["node"]].num_gpus if row["node"] in self.gpus else None
        written = text_at(body, "metadata", "annotations", self.gpu_index)
        listed = gpu_list_of(written or row.get("gpu_list", ""), count, on_node)
        return Share(count, row["gpu_milli"], listed)


def node_of(body: dict[str, Any]) -> LiveNode:
    """A node of Kubernetes as the live cluster takes it."""
    return Objects().node(body)


def pod_of(body: dict[str, Any]) -> LivePod | None:
    """A pod of Kubernetes as the live cluster takes it; None if it only reserves GPUs for others.

    A share in MiB needs the nodes: use `Objects` where there are such.
    """
    return Objects().pod(body)


def uid_of(body: dict[str, Any]) -> str:
    """UID of an object; namespace and name if it has none."""
    return text_at(body, "metadata", "uid") or pod_name(item_of("Pod", body))


def is_over(body: dict[str, Any]) -> bool:
    """Whether a pod has ended, and holds nothing any more."""
    return text_at(body, "status", "phase") in ("Succeeded", "Failed")


DOUBTS = (  # of the readers; a promise is not made on them
    "is no quantity", "is no number", "is no share of a GPU", "more than a GPU",
    "of unknown memory", "reserves a GPU")
READ_FROM = {  # resources and annotations with GPUs in their names that the readers understand
    "alibabacloud.com/gpu-milli", "alibabacloud.com/gpu-count", "nvidia.com/gpu.shared",
    *OTHER_GPUS, *(name for names in VIRTUAL for name in names if name)}
GPU_WORDS = re.compile(r"gpu|cuda|/mig-", re.I)
MODEL_RULES = ("nvidia.com/nouse-gputype", "nvidia.com/use-gpuuuid", "nvidia.com/nouse-gpuuuid")
BY_MEMORY = tuple(names[1] for names in VIRTUAL)
BY_PERCENT = tuple(name for names in VIRTUAL for name in names[2:] if name)


class Wish(NamedTuple):
    """A question that can be put to the live cluster, or why it cannot.

    Parameters
    ----------
    pod : that asks; None if it only reserves GPUs for others
    nodes : that it may go to
    excluded : nodes on which it would not get what it names, with the reason
    refused : why nothing can be promised; empty if it can
    """

    pod: LivePod | None
    nodes: tuple[str, ...]
    excluded: dict[str, str] = {}
    refused: str = ""


def named_amounts(body: dict[str, Any]) -> dict[str, Any]:
    """What a pod asks for that has to do with GPUs: resources and annotations, by name."""
    item = item_of("Pod", body)
    asked = asked_by_pod(item, Dump(Sentences()))
    said = texts_at(body, "metadata", "annotations")
    names = ("gpu-fraction", "gpu-memory", "alibabacloud.com/gpu-milli",
             "alibabacloud.com/gpu-count", *MODEL_RULES)
    found: dict[str, Any] = {name: said[name] for name in names if said.get(name)}
    return {**{name: asked[name] for name in asked if GPU_WORDS.search(name) and asked[name]},
            **found}


def dialects_in(amounts: Mapping[str, Any]) -> set[str]:
    """Which ways of stating a share the names belong to."""
    makers = {"alibabacloud.com": "openb", "volcano.sh": "Volcano", "nvidia.com": "NVIDIA"}
    names = [name for name in amounts if name not in MODEL_RULES]
    return {makers.get(name.partition("/")[0], name.partition("/")[0]) if "/" in name else "KAI"
            for name in names}


def refusal_of_names(amounts: Mapping[str, Any]) -> str:
    """Why what a pod names cannot be promised, whatever the nodes; empty if it can."""
    unread = [name for name in amounts
              if "/" in name and name not in READ_FROM and name not in MODEL_RULES]
    if unread:
        return f"{unread[0]} is no share of a GPU that can be counted"
    for name in MODEL_RULES:
        if amounts.get(name):
            return f"{name} chooses among GPUs, which is not represented"
    if len(dialects := dialects_in(amounts)) > 1:
        return f"GPUs are stated in several ways, {' and '.join(sorted(dialects))}"
    place = "alibabacloud.com/gpu-"
    if f"{place}count" in amounts and f"{place}milli" not in amounts:
        return f"{place}count without {place}milli"
    for name in BY_PERCENT:
        if (amounts.get(name) or 0) > 100:
            return f"{name} is more than 100 percent of a GPU"
    return ""


def refusal_of_memory(amounts: Mapping[str, Any], gpus: Sequence[NodeGpus]) -> str:
    """Why a share in MiB is none in thousandths on these nodes; empty if it is."""
    name = next((name for name in (*BY_MEMORY, "gpu-memory") if amounts.get(name)), "")
    if not name:
        return ""
    memories = {one.memory_mib for one in gpus if one.num_gpus}
    if not memories or None in memories:
        return f"{name} is in MiB, and the memory of GPUs here is unknown"
    if len(memories) > 1:
        said = ", ".join(map(str, sorted(memories)))  # type: ignore[type-var]
        return f"{name} is in MiB, and GPUs here have {said} MiB: select nodes of one model"
    asked = quantity(amounts[name] if isinstance(amounts[name], str) else str(amounts[name]))
    if asked is None:
        return f"{name} is no quantity"
    most = memories.pop() or 0
    return f"{name} is more than the {most} MiB of a GPU here" if asked > most else ""


PLAIN = (GPU, SHARED)


def parted(amounts: Mapping[str, Any], gpus: Mapping[str, NodeGpus]) -> dict[str, str]:
    """Nodes that show parts of GPUs as GPUs, if a pod asks for GPUs and others show whole ones."""
    is_plain = any(amounts.get(name) for name in PLAIN)
    if not is_plain or any(amounts.get(name) for names in VIRTUAL for name in names[1:] if name):
        return {}
    parts = {name: "nvidia.com/gpu is a part of a GPU here" for name, one in gpus.items()
             if one.num_gpus and (one.replicas > 1 or one.profile)}
    return parts if len(parts) < sum(one.num_gpus > 0 for one in gpus.values()) else {}


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


def wish_of(objects: Objects, body: dict[str, Any], names: Sequence[str]) -> Wish:
    """What a pod asks for, if it can be promised on some nodes.

    Parameters
    ----------
    objects : what nodes said about their GPUs
    body : the pod
    names : of nodes that it may go to
    """
    amounts = named_amounts(body)
    plain = not amounts or dialects_in(amounts) == {"openb"}  # means the same on every node
    gpus = {} if plain else with_model(objects.known(names), body)
    excluded = parted(amounts, gpus)
    kept = {name: one for name, one in gpus.items() if name not in excluded}
    dump = Dump(Sentences(), nodes=kept)
    spec = dig(body, "spec")
    own = spec if isinstance(spec, dict) else {}
    pod = objects.read({**body, "spec": {**own, "nodeName": ""}}, dump)
    doubts = [said for said in dump.ledger.said  # type: ignore[attr-defined]
              if any(words in said for words in DOUBTS)]
    if pod is None and not doubts:
        doubts = ["the pod is over"]
    refused = refusal_of_names(amounts) or refusal_of_memory(amounts, list(kept.values())) or (
        refusal_of_parts(amounts, list(kept.values())) or "".join(doubts[:1]))
    nodes = [name for name in names if name not in excluded] if excluded else names
    return Wish(pod, tuple(nodes), excluded, refused)


def with_model(gpus: Mapping[str, NodeGpus], body: dict[str, Any]) -> dict[str, NodeGpus]:
    """Those of some nodes that have a model which a pod accepts."""
    models = {name for name in models_wanted(item_of("Pod", body)).split("|") if name}
    return {name: one for name, one in gpus.items() if not models or "+".join(one.models) in models}


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


def required(request: Mapping[str, Any], name: str) -> str:
    """A text of a request.

    Raises
    ------
    InputError : it is missing, empty, or no text
    """
    value = request.get(name.lower())
    if not isinstance(value, str) or not value:
        raise InputError(f"{value!r:.60} is no name", column=name, mend="give a text")
    return value


class Question(NamedTuple):
    """A request about a pod and the nodes that it may go to.

    Parameters
    ----------
    body : the pod
    names : of the nodes, each once
    items : the nodes themselves, by name; None if only names were sent
    """

    body: dict[str, Any]
    names: tuple[str, ...]
    items: dict[str, dict[str, Any]] | None


def question_of(request: Any) -> Question:
    """The question in a request to filter or prioritize.

    Raises
    ------
    InputError : it has no pod with a name, or neither nodes nor names of nodes
    """
    said = folded(request)
    body = said.get("pod")
    if not isinstance(body, dict) or not text_at(body, "metadata", "name"):
        raise InputError("there is no pod with a name", column="Pod", mend="send the pod")
    names = said.get("nodenames")
    if isinstance(names, list) and set(map(type, names)) <= {str}:
        return Question(body, tuple(dict.fromkeys(names)), None)
    items = dig(folded(said.get("nodes") or {}), "items")
    if names is not None or not isinstance(items, list):
        raise InputError("there are neither nodes nor names of nodes", column="NodeNames",
                         mend="send a list of names, or Nodes with a list of items")
    found = {text_at(one, "metadata", "name"): one for one in items}
    if "" in found:
        raise InputError("a node has no name", column="Nodes", mend="send whole nodes")
    return Question(body, tuple(found), found)


def answer_of(question: Question, names: Sequence[str], failed: Mapping[str, str] | None = None,
              unresolvable: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Answer of a filter.

    Parameters
    ----------
    names : nodes that are left
    failed, unresolvable : why others are not, by node; the second would be so on an empty cluster
    """
    answer: dict[str, Any] = {"NodeNames": list(names)}
    if question.items is not None:
        answer = {"NodeNames": None,
                  "Nodes": {"metadata": {}, "items": [question.items[name] for name in names]}}
    return {**answer, "FailedNodes": dict(failed or {}),
            "FailedAndUnresolvableNodes": dict(unresolvable or {}), "Error": ""}


class Call(NamedTuple):
    """Something for the caller to do: a method of `Api`, or "pause" with seconds."""

    method: str
    arguments: tuple[Any, ...]


Steps = Generator[Call, Any, dict[str, Any]]


def carried_out(steps: Steps, api: Api | None, pause: Callable[[float], None]) -> dict[str, Any]:
    """Carry out the calls of a generator one after the other, and return what it returns.

    Parameters
    ----------
    steps : hands out calls
    api : whose methods are called
    pause : waits for some seconds

    Raises
    ------
    RuntimeError : there is no API
    """
    if api is None:
        raise RuntimeError("this bridge has no API: carry out the steps of `binding` yourself")
    methods: dict[str, Callable[..., Any]] = {"bind": api.bind, "pod": api.pod,
                                              "pause": pause}
    try:
        call = next(steps)
        while True:
            try:
                found = methods[call.method](*call.arguments)
            except ApiError as trouble:
                call = steps.throw(trouble)
            else:
                call = steps.send(found)
    except StopIteration as done:
        return dict(done.value)


MODES = ("observe", "score", "decide")


@dataclass(frozen=True)
class BridgeSettings:
    """How a bridge behaves in every mode.

    Parameters
    ----------
    gpu_index : annotation that gets the GPUs of a pod
    nodes_in_request : whether nodes are learnt from requests, and not from a watch
    pauses_s : between attempts of a binding; there is one attempt more
    doubt_s : after so long a binding of unknown outcome is known not to happen any more
    """

    gpu_index: str = GPU_INDEX
    nodes_in_request: bool = False
    pauses_s: tuple[float, ...] = (0.1, 0.4)
    doubt_s: float = 90.0


class Binding(NamedTuple):
    """A request to bind; `sent_uid` is the UID as it was sent, perhaps empty."""

    namespace: str
    name: str
    sent_uid: str
    node: str

    @property
    def pod(self) -> str:
        """Namespace and name of the pod."""
        return f"{self.namespace}/{self.name}"


def binding_of(request: Any) -> Binding:
    """The binding that a request asks for.

    Raises
    ------
    InputError : a name is missing
    """
    said = folded(request)
    uid = said.get("poduid") or ""
    if not isinstance(uid, str):
        raise InputError(f"{uid!r:.60} is no UID", column="PodUID", mend="give a text")
    return Binding(required(said, "PodNamespace"), required(said, "PodName"), uid,
                   required(said, "Node"))


class Doubt(NamedTuple):
    """A binding of which nobody knows whether it happened, and when it was last tried."""

    binding: Binding
    at_s: float


def result(problem: str) -> dict[str, Any]:
    """Answer of a bind; the problem is empty if there was none."""
    return {"Error": problem}


class Desk:
    """What the verbs share: the cluster, who reads objects, what is in doubt.

    Parameters
    ----------
    live : the cluster; nobody else may change it
    mode : "decide", "score" or "observe"
    settings : names and times

    Raises
    ------
    InputError : there is no such mode
    """

    def __init__(self, live: LiveCluster, mode: str, settings: BridgeSettings) -> None:
        if mode not in MODES:
            raise InputError(f"there is no mode {mode!r}",
                             mend=f"choose one of {', '.join(MODES)}")
        self.live = live
        self.mode = mode
        self.settings = settings
        self.objects = Objects(settings.gpu_index)
        self.doubts: dict[str, Doubt] = {}
        self.sending: set[str] = set()
        self.node_versions: dict[str, str] = {}
        self.passed_s = 0.0
        self.last_names: tuple[str, ...] = ()
        self.last_set: frozenset[str] = frozenset()

    def tell(self, event: Event) -> Decision | None:
        """Give an event to the cluster; return what was decided, if it was a question."""
        return self.live.apply(event)

    def same_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The names of the last question if these are the same in another order, or these.

        The scheduler sends the same nodes in ever another order, on which no answer depends; the
        cluster recognises a tuple that it knows without looking up each name.
        """
        if len(names) != len(self.last_names) or not self.last_set.issuperset(names):
            self.last_names = names
            self.last_set = frozenset(names)
        return self.last_names

    def uid_of(self, binding: Binding) -> str:
        """UID of the pod of a binding; if none was sent, that of a reservation by its name."""
        if binding.sent_uid:
            return binding.sent_uid
        reserved = self.live.reservations.items()
        return next((uid for uid, one in reserved if one.pod.name == binding.pod), binding.pod)


def let_pass(desk: Desk, at_s: float) -> None:
    """Let time pass, by whole seconds, so that reservations lapse whoever keeps the clock."""
    if at_s >= desk.passed_s + 1:
        desk.passed_s = at_s
        desk.tell(Passed(at_s))


def learn(desk: Desk, question: Question) -> None:
    """Take over nodes of a request that are new or have changed."""
    if not desk.settings.nodes_in_request:
        return
    for name, body in (question.items or {}).items():
        version = text_at(body, "metadata", "resourceVersion")
        if not version or desk.node_versions.get(name) != version:
            desk.node_versions[name] = version
            desk.tell(NodeSeen(desk.objects.node(body)))


def where_it_is(desk: Desk, uid: str) -> str:
    """Node to which a pod is bound, or will be if a binding in doubt happens; empty if none."""
    held = desk.live.holds(uid)
    reserved = desk.live.reservations.get(uid)
    is_free = reserved is not None and not reserved.is_committing
    return "" if held is None or is_free else held.node


def reasons_on(desk: Desk, wish: Wish, names: Sequence[str]) -> dict[str, str]:
    """What is in the way of a pod on each of some nodes."""
    said = desk.live.why_not(wish.pod, wish.nodes) if wish.pod is not None else {}
    unknown = "the node is not known here yet"
    return {name: wish.excluded.get(name) or said.get(name) or unknown for name in names}


def filtered(desk: Desk, question: Question, at_s: float) -> dict[str, Any]:
    """Answer of a filter in the modes that have a say."""
    wish = wish_of(desk.objects, question.body, question.names)
    if wish.pod is None or wish.refused:
        return answer_of(question, (), None, dict.fromkeys(question.names, wish.refused))
    if node := where_it_is(desk, wish.pod.uid):
        why = f"the pod is bound to {node}, or about to be"
        return answer_of(question, [node] if node in question.names else [], {
            name: why for name in question.names if name != node})
    decision = desk.tell(Asked(wish.pod, desk.same_names(wish.nodes), at_s, desk.mode == "decide"))
    assert decision is not None, "a question gets a decision"
    if decision.refused:
        return answer_of(question, (), None, dict.fromkeys(question.names, decision.refused))
    if not decision.node:
        return answer_of(question, (), reasons_on(desk, wish, question.names))
    if desk.mode == "decide":
        return answer_of(question, [decision.node])
    fits = desk.live.scores(wish.pod, wish.nodes)
    return answer_of(question, [name for name in question.names if name in fits])


def observed(desk: Desk, question: Question, at_s: float) -> dict[str, Any]:
    """Answer of a filter that only looks on: all nodes; what it would have chosen is decided."""
    wish = wish_of(desk.objects, question.body, question.names)
    if wish.pod is not None and not wish.refused:
        desk.tell(Asked(wish.pod, desk.same_names(wish.nodes), at_s, False))
    return answer_of(question, question.names)


def points_for(desk: Desk, question: Question) -> Mapping[str, int]:
    """Points of the nodes that a pod may go to, by name; nothing for the others."""
    if desk.mode == "decide":
        held = desk.live.holds(uid_of(question.body))
        return {held.node: 0} if held is not None else {}
    if desk.mode == "observe":
        return {}
    wish = wish_of(desk.objects, question.body, question.names)
    return desk.live.scores(wish.pod, wish.nodes) if wish.pod and not wish.refused else {}


def host_scores(names: Sequence[str], points: Mapping[str, int]) -> list[dict[str, Any]]:
    """Answer of a prioritize: a whole number for each node."""
    lowest = min(points.values(), default=0)
    return [{"Host": name, "Score": int(points[name] - lowest) + 1 if name in points else 0}
            for name in names]


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


def look(binding: Binding) -> Generator[Call, Any, Look]:
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


def find_again(desk: Desk, binding: Binding, body: dict[str, Any], at_s: float) -> str:
    """Reserve GPUs for a pod on the node that the scheduler chose; why not, or empty."""
    wish = wish_of(desk.objects, body, (binding.node,))
    if wish.pod is None or wish.refused or wish.excluded:
        return f"{binding.pod}: {wish.refused or wish.excluded[binding.node]}"
    decision = desk.tell(Asked(wish.pod, wish.nodes, at_s, True))
    assert decision is not None, "a question gets a decision"
    if decision.node:
        return ""
    why = decision.refused or reasons_on(desk, wish, wish.nodes)[binding.node]
    return f"{binding.pod} does not fit on {binding.node} any more: {why}"


def take_over(desk: Desk, body: dict[str, Any]) -> None:
    """Tell the cluster of a pod that was looked at."""
    pod = desk.objects.pod(body)
    if is_over(body):
        desk.tell(PodGone(uid_of(body)))
    elif pod is not None:
        desk.tell(PodSeen(pod))


def reserve(desk: Desk, binding: Binding, at_s: float) -> Generator[Call, Any, str]:
    """See to it that a pod holds GPUs on the node of a binding; why not, or empty."""
    uid = desk.uid_of(binding)
    held = desk.live.holds(uid)
    if held is not None and held.node == binding.node:
        return ""
    if node := where_it_is(desk, uid):
        return f"{binding.pod} is bound to {node}, or about to be"
    found = yield from look(binding)
    if found.body is None:
        return found.problem
    if found.node:
        take_over(desk, found.body)
        return "" if found.node == binding.node else f"{binding.pod} is bound to {found.node}"
    return find_again(desk, binding, found.body, at_s)


FOR_GOOD = (400, 401, 403, 404, 405, 409, 410, 413, 422)
LONGEST_PAUSE_S = 1.0  # the scheduler waits for the answer


class Sent(NamedTuple):
    """What came of the attempts to write a binding.

    Parameters
    ----------
    trouble : of the last attempt; None if it worked
    is_unsure : whether any attempt may have worked
    """

    trouble: ApiError | None
    is_unsure: bool = False


def send(desk: Desk, binding: Binding,
         annotations: dict[str, str]) -> Generator[Call, Any, Sent]:
    """Write a binding, several times if need be."""
    call = Call("bind", (binding.namespace, binding.name, binding.sent_uid, binding.node,
                         annotations))
    done = Sent(None)
    for pause_s in (*desk.settings.pauses_s, None):
        try:
            yield call
            return Sent(None)
        except ApiError as trouble:
            done = Sent(trouble, done.is_unsure or trouble.is_unsure)
            wanted_s = min(trouble.retry_after_s, LONGEST_PAUSE_S)
            is_last = pause_s is None or trouble.status in FOR_GOOD
        if is_last:
            break
        yield Call("pause", (max(pause_s or 0.0, wanted_s),))
    return done


def bound(desk: Desk, binding: Binding, at_s: float) -> Steps:
    """Answer of a bind in the modes that have a say."""
    if problem := (yield from reserve(desk, binding, at_s)):
        return result(problem)
    uid = desk.uid_of(binding)
    held = desk.live.holds(uid)
    if held is None or uid not in desk.live.reservations:
        return result("")  # it was bound before
    if uid in desk.sending:
        return result(f"a bind of {binding.pod} is under way already")
    try:
        desk.tell(Committing(uid, at_s))
    except OutputError:  # nothing was sent, unless by an earlier attempt
        if uid not in desk.doubts:
            conclude(desk, uid, BindFailed(uid))
        raise
    if uid in desk.doubts:
        desk.doubts[uid] = Doubt(binding, at_s)  # as old as the last attempt
    gpu_list = held.shares[0].gpu_list if held.shares else ""
    annotations = {desk.settings.gpu_index: gpu_list} if gpu_list else {}
    desk.sending.add(uid)
    try:
        done = yield from send(desk, binding, annotations)
        if done.trouble is None:
            conclude(desk, uid, Bound(uid))
            return result("")
        return (yield from after_trouble(desk, binding, uid, at_s, done))
    finally:
        desk.sending.discard(uid)


def conclude(desk: Desk, uid: str, event: Event) -> None:
    """End a reservation; the watch may have been faster."""
    desk.doubts.pop(uid, None)
    if uid in desk.live.reservations:
        desk.tell(event)


def after_trouble(desk: Desk, binding: Binding, uid: str, at_s: float, done: Sent) -> Steps:
    """Find out what became of a binding that did not simply work."""
    said = f"{binding.pod} to {binding.node}: {done.trouble}"
    is_unsure = done.is_unsure or uid in desk.doubts
    found = Look(None)
    if is_unsure or (done.trouble is not None and done.trouble.status == 409):
        found = yield from look(binding)
    if found.node and found.body is not None:
        desk.doubts.pop(uid, None)
        if uid in desk.live.reservations:  # else a watch was faster, and the look is old
            take_over(desk, found.body)
        return result("" if found.node == binding.node else f"{said}; it is on {found.node}")
    if is_unsure and not found.is_gone:
        desk.doubts[uid] = Doubt(binding, at_s)
        return result(f"{said}; it may have been bound, and its GPUs stay reserved")
    conclude(desk, uid, BindFailed(uid))
    return result("; ".join(filter(None, [said, found.problem])))


def bound_plainly(desk: Desk, binding: Binding) -> Steps:
    """Answer of a bind that only passes it on."""
    done = yield from send(desk, binding, {})
    if done.trouble is None:
        return result("")
    found = yield from look(binding)
    is_there = found.node == binding.node
    return result("" if is_there else f"{binding.pod} to {binding.node}: {done.trouble}")


def settled(desk: Desk, at_s: float) -> Steps:
    """Let time pass, and look at pods whose binding has been in doubt for long."""
    desk.passed_s = max(desk.passed_s, at_s)
    desk.tell(Passed(at_s))
    for uid, doubt in list(desk.doubts.items()):
        if uid not in desk.live.reservations:
            desk.doubts.pop(uid, None)
        elif at_s >= doubt.at_s + desk.settings.doubt_s:
            found = yield from look(doubt.binding)
            if desk.doubts.get(uid) is not doubt or uid not in desk.live.reservations:
                continue  # it was tried again meanwhile, or a watch was faster
            if found.node and found.body is not None:
                desk.doubts.pop(uid, None)
                take_over(desk, found.body)
            elif found.body is not None or found.is_gone:
                conclude(desk, uid, BindFailed(uid))
    return {"Doubts": len(desk.doubts)}


class Bridge(Desk):
    """The extender of a scheduler: requests in, answers out, events to a live cluster.

    Parameters
    ----------
    live : the cluster; nobody else may change it
    journal : of the same cluster, keeps events and decisions; None for none
    api : for `bind` and `settle`; None if their calls are carried out elsewhere
    mode : "decide", "score" or "observe"
    settings : names and times
    pause : waits for some seconds between the attempts of `bind`

    Raises
    ------
    InputError : there is no such mode
    """

    def __init__(self, live: LiveCluster, journal: Journal | None = None, api: Api | None = None,
                 mode: str = "decide", settings: BridgeSettings | None = None, *,
                 pause: Callable[[float], None] = lambda seconds: None) -> None:
        super().__init__(live, mode, settings or BridgeSettings())
        self.journal = journal
        self.api = api
        self.pause = pause

    def tell(self, event: Event) -> Decision | None:
        """Give an event to the cluster and the journal; return what was decided, if asked."""
        if isinstance(event, Asked | PodSeen):
            self.objects.told[event.pod.uid] = None
        return super().tell(event) if self.journal is None else self.journal.apply(event)

    def filter(self, request: Any, at_s: float) -> dict[str, Any]:
        """Answer a filter.

        Parameters
        ----------
        request : as the scheduler sent it
        at_s : now, in seconds that only grow

        Raises
        ------
        InputError : it is no such request
        """
        question = question_of(request)
        let_pass(self, at_s)
        learn(self, question)
        answer = observed if self.mode == "observe" else filtered
        return answer(self, question, at_s)

    def prioritize(self, request: Any, at_s: float) -> list[dict[str, Any]]:
        """Answer a prioritize.

        Parameters
        ----------
        request, at_s : as of `filter`
        """
        question = question_of(request)
        let_pass(self, at_s)
        learn(self, question)
        return host_scores(question.names, points_for(self, question))

    def binding(self, request: Any, at_s: float) -> Steps:
        """Answer a bind in steps, of which the caller carries out the calls.

        Parameters
        ----------
        request, at_s : as of `filter`
        """
        binding = binding_of(request)
        let_pass(self, at_s)
        steps = bound_plainly(self, binding)
        return steps if self.mode == "observe" else bound(self, binding, at_s)

    def bind(self, request: Any, at_s: float) -> dict[str, Any]:
        """Answer a bind with the API of this bridge.

        Parameters
        ----------
        request, at_s : as of `filter`
        """
        return carried_out(self.binding(request, at_s), self.api, self.pause)

    def settling(self, at_s: float) -> Steps:
        """Steps that let time pass and settle what has been in doubt for long."""
        return settled(self, at_s)

    def settle(self, at_s: float) -> dict[str, Any]:
        """Let time pass and settle what has been in doubt for long, with the API of this bridge."""
        return carried_out(self.settling(at_s), self.api, self.pause)
