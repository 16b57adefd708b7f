"""Nodes, pods, claims and slices in, in whichever of eight dialects; nodes and timed tasks out."""

# A module, written by hand.

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pandas as pd

from ...lab.frames import InputError
from .devices import (
    FAILED,
    GPU,
    MIG,
    OPENB,
    OTHER_GPUS,
    SHARED,
    UNDERSTOOD,
    VIRTUAL,
    Dialect,
    ResourceKind,
    amounts_shown,
    driver_device,
    gpus_in,
    is_gpu_name,
    model_of,
    plugin_kinds,
    replicas_of,
)
from .eviction import MIRROR, why_budgeted, why_kept, why_lost, why_tied
from .gangs import join_gangs, says_how_many
from .objects import (
    Item,
    Rule,
    as_json,
    dig,
    mebibytes,
    meets,
    objects_at,
    quantity,
    rule_of,
    rules_in,
    seconds_at,
    text_at,
    texts_at,
    whole,
)
from .tables import (
    BY_DRIVER,
    WAITING,
    Format,
    Ledger,
    ReadOptions,
    Source,
    milli_of_profile,
    profile_named,
    profile_shown,
)

__all__ = ['read_kubernetes']


KINDS = {
    "nodes": "Node", "pods": "Pod", "resourceSlices": "ResourceSlice",
    "resourceClaims": "ResourceClaim", "resourceClaimTemplates": "ResourceClaimTemplate", "podGroups": "PodGroup", "queues": "Queue"}


def unfolded(value: Any, kind: str = "") -> Iterator[tuple[str, dict[str, Any], Any, bool]]:
    """Objects in a value, however they are packed: kind, object, time and end of its event."""
    if isinstance(value, list):
        for one in value:
            yield from unfolded(one, kind)
    elif not isinstance(value, dict):
        return
    elif isinstance(resource := value.get("resource", value.get("object")), dict) and (
            "event" in value or "type" in value):
        event = text_at(value, "event") or text_at(value, "type")
        is_deleted = event.lower() in ("delete", "deleted")
        yield (text_at(resource, "kind") or kind, resource, value.get("time"), is_deleted)
    elif isinstance(value.get("items"), list):
        yield from unfolded(value["items"], text_at(value, "kind").removesuffix("List"))
    elif isinstance(value.get("rawObjects"), dict):
        yield from unfolded(value["rawObjects"])
    elif "metadata" not in value and any(isinstance(value.get(name), list) for name in KINDS):
        for name, objects in value.items():
            if isinstance(objects, list):
                yield from unfolded(objects, KINDS.get(name) or name)
    else:
        yield text_at(value, "kind") or kind, value, None, False


@dataclass
class Dump:
    """Objects by kind, and what was learnt from them on the way to the tables.

    Parameters
    ----------
    ledger : where it is noted what was done
    items : objects by kind
    nodes, labels : what each node says about its GPUs; its labels, and its name as one
    named : objects by kind, namespace and name
    devices : of ResourceSlices, by driver, pool and name
    claims, claims_held : ResourceClaims by namespace and name; the pod that has each
    unclaimed : pods whose claims are missing, and what is missing
    reserved : number of the GPU that is reserved for a group
    mixed : kinds of shared GPUs that some node shows beside GPUs that are not shared
    """

    ledger: Ledger
    items: dict[str, list[Item]] = field(default_factory=lambda: defaultdict(list))
    nodes: dict[str, NodeGpus] = field(default_factory=dict)
    devices: dict[tuple[str, str, str], Device] = field(default_factory=dict)
    named: dict[tuple[str, str, str], Item] = field(default_factory=dict)
    claims: dict[tuple[str, str], Item] = field(default_factory=dict)
    claims_held: dict[tuple[str, str], str] = field(default_factory=dict)
    unclaimed: dict[str, tuple[Item, str]] = field(default_factory=dict)
    reserved: dict[str, str] = field(default_factory=dict)
    mixed: set[str] = field(default_factory=set)
    labels: dict[str, dict[str, str]] = field(default_factory=dict)

    def if_shown(self, device: str) -> str:
        """A kind of GPUs if some node has it; else nothing."""
        return device if any(device in node.devices for node in self.nodes.values()) else ""

    def note(self, item: Item, what: str, reason: str) -> None:
        """Write into the ledger what was done with an object."""
        self.ledger.note(item.file, item.row, what, reason)


def latest(items: Sequence[Item], ledger: Ledger) -> list[Item]:
    """Each object once, as it was last; the objects of a name that was given again are several."""
    found: dict[tuple[str, ...], Item] = {}
    for item in items:
        key = (item.kind, item.namespace, item.name, item.text("metadata", "uid"))
        if key in found:
            before = found[key]
            is_event = item.event_s is not None
            ledger.note(before.file, before.row, "interpreted" if is_event else "dropped",
                        "an earlier state of the object, a later one is read" if is_event else
                        f"the {item.kind} is there again further on, which is read instead")
            if item.is_deleted and not dig(item.body, "spec"):
                item = replace(item, body=before.body)
        found[key] = item
    return list(found.values())


class NodeGpus(NamedTuple):
    """What a node says about its GPUs.

    Parameters
    ----------
    models : of its GPUs, each once
    num_gpus, memory_mib : how many, and the memory of each; None if unknown
    replicas : how many pods share a GPU by time slicing, if they share all of them
    profile : of the instances, if each of them is shown as a GPU
    uuids, registered : names of the GPUs, by number; what HAMi or Volcano say of each
    uncut : GPUs that are neither cut into instances nor shared in time beside others that are not
    kinds : what its resources are, of NVIDIA's device plugin
    devices : how many it has of each kind, by the word that pods have for it
    """

    models: tuple[str, ...] = ()
    num_gpus: int = 0
    memory_mib: int | None = None
    replicas: int = 1
    profile: str = ""
    uuids: tuple[str, ...] = ()
    registered: tuple[Device, ...] = ()
    uncut: int = 0
    kinds: tuple[ResourceKind, ...] = ()
    devices: Mapping[str, int] = {}


def instances_on_one(profile: str) -> int:
    """How many instances of a profile fit on one GPU; two of three slices leave one idle."""
    share = milli_of_profile(profile) or 1000
    return 1 if share > 500 else 1000 // share


def gpus_by_plugin(item: Item, dump: Dump) -> NodeGpus:
    """GPUs of a node as NVIDIA's device plugin and its labels show them."""
    labels = item.labels
    amounts = amounts_shown(item.allocatable)
    kinds = plugin_kinds(labels, amounts)
    known = UNDERSTOOD | {kind.resource for kind in kinds}
    for name in (name for name in amounts if is_gpu_name(name) and name not in known):
        dump.note(item, "dropped", f"{name}: nothing on the node says what GPUs these are")
    product = labels.get("nvidia.com/gpu.product", "")
    gpus = NodeGpus((model_of(product),) if product else (), kinds=tuple(kinds), devices={
        kind.device: amounts[kind.resource] for kind in kinds})
    plain = [kind for kind in kinds if not kind.resource.startswith(MIG)]
    count = gpus_in(plain, amounts)
    if plain and plain[0].profile:  # every GPU is an instance of one profile
        on_one = instances_on_one(plain[0].profile)
        named = re.search(r"(\d+)GB", gpus.models[0])
        dump.note(item, "interpreted",
                  f"its GPUs are instances of {plain[0].profile}, {on_one} on each")
        return gpus._replace(num_gpus=-(-count // on_one), replicas=plain[0].replicas,
                             memory_mib=int(named[1]) * 1024 if named else None,
                             profile=plain[0].profile)
    apart = [kind for kind in plain if kind.replicas == 1]
    shared = [kind for kind in plain if kind.replicas > 1]
    for kind in shared:
        dump.note(item, "interpreted", f"each GPU is shown {kind.replicas} times, shared in time")
    shares = 0  # thousandths of GPUs that are cut into instances with names of their own
    for kind in (kind for kind in kinds if kind.resource.startswith(MIG)):
        replicas = replicas_of(labels) if kind.resource.endswith(".shared") else 1
        shares += (milli_of_profile(kind.profile) or 1000) * -(-amounts[kind.resource] // replicas)
    gpus = gpus._replace(
        memory_mib=whole(labels.get("nvidia.com/gpu.memory"), down=True), num_gpus=count,
        uncut=gpus_in(apart, amounts) if apart else count,
        replicas=shared[0].replicas if shared and not apart else 1)
    if not shares:
        return gpus
    dump.note(item, "interpreted", "GPUs cut into instances are counted by their slices")
    labelled = whole(labels.get("nvidia.com/gpu.count")) or 0
    return gpus._replace(num_gpus=max(count + -(-shares // 1000), min(labelled, 64)))


class Device(NamedTuple):
    """A GPU, or a part of one, that a program has registered.

    Parameters
    ----------
    name, model, memory_mib : of it
    profile, parent : of an instance of MIG
    is_open : whether something new may be put there
    number : on its node, as its program counts
    slots : how many containers may share it; 0 if that is not known
    """

    name: str
    model: str = ""
    memory_mib: int | None = None
    profile: str = ""
    parent: str = ""
    is_open: bool = True
    number: int = 0
    slots: int = 0


def registered(written: str, cordoned: str, dialect: Dialect) -> list[Device]:
    """Devices of a register, in the order of their numbers."""
    try:
        entries = objects_at({"it": json.loads(written)}, "it")
    except (ValueError, RecursionError):
        entries = []
    if not entries:
        cells = [entry.strip().split(",") for entry in written.split(":") if entry.strip()]
        entries = [dict(zip(dialect.entry, cell, strict=False)) for cell in cells]
        entries = [entry for entry in entries if "health" in entry]
    devices = []
    for entry in entries:
        is_whole = text_at(entry, "mode") != "mig" and (whole(entry.get("devcore", 100)) or 0) >= 100
        name = text_at(entry, "id")
        devices.append(Device(
            name, text_at(entry, "type"), whole(entry.get("devmem")), number=whole(entry.get("index")) or 0,
            is_open=is_whole and entry.get("health") in (True, "true") and name not in cordoned.split(","),
            slots=whole(entry.get("count")) or 0))
    return sorted(devices, key=lambda device: device.number)


def gpus_by_register(item: Item, dump: Dump) -> NodeGpus:
    """GPUs of a node as the register of HAMi or Volcano has them."""
    for dialect in VIRTUAL:
        for name in dialect.registers:
            written = item.annotations.get(name, "")
            if devices := registered(written, item.annotations.get(dialect.cordoned, ""), dialect):
                healthy = [device for device in devices if device.is_open]
                if len(healthy) < len(devices):
                    dump.note(item, "dropped", f"GPUs that are not healthy, or not for shares, by {name}")
                memories = [device.memory_mib for device in healthy if device.memory_mib]
                models = dict.fromkeys(device.model.removeprefix("NVIDIA-") for device in healthy)
                return NodeGpus(tuple(models), len(healthy), min(memories, default=None),
                                uuids=tuple(device.name for device in devices), registered=tuple(devices),
                                devices=dict.fromkeys(dialect.marks, len(healthy)))
            if written:
                dump.note(item, "interpreted", f"{name} cannot be read")
    return NodeGpus()


def gpus_by_count(item: Item, dump: Dump) -> NodeGpus:
    """GPUs of a node as openb's annotations have them, or another maker's plugin."""
    count, milli = (whole(item.allocatable.get(f"alibabacloud.com/gpu-{name}"), down=True) or 0
                    for name in ("count", "milli"))
    if milli > 1000 * count > 0:
        dump.note(item, "interpreted", "gpu-milli and gpu-count differ, gpu-count is taken")
    model = item.labels.get("alibabacloud.com/gpu-card-model", "")
    devices = {OPENB: milli or 1000 * count} if count or milli else {}
    for name in OTHER_GPUS:
        own = whole(item.allocatable.get(name), down=True) or 0
        devices |= {name: own} if own else {}
        count = count or own
        model = model or item.labels.get(f"{name}.product-name", "")
    return NodeGpus((model,) if model else (), count or milli // 1000, devices=devices)


def attribute(device: dict[str, Any], *names: str) -> str:
    """Text of the first attribute that a device has of these names, qualified or not."""
    device = device.get("basic", device) if isinstance(device.get("basic"), dict) else device
    attributes = dig(device, "attributes")
    for key in attributes if isinstance(attributes, dict) else ():
        if key.rpartition("/")[2] in names:
            value = dig(attributes, key)
            return text_at(value, "string") or text_at(value, "version") or text_at(value, "int")
    return ""


def device_of(body: dict[str, Any]) -> Device:
    """A device of a slice."""
    basic = body.get("basic") if isinstance(body.get("basic"), dict) else body
    memory = dig(basic, "capacity", "memory")
    sets = objects_at(basic, "consumesCounters")
    profile = attribute(body, "profile").lower()
    return Device(text_at(body, "name"), attribute(body, "productName", "model"),
                  mebibytes(dig(memory, "value") if isinstance(memory, dict) else memory),
                  profile if milli_of_profile(profile) else "",
                  text_at(sets[0], "counterSet") if sets else attribute(body, "parentUUID"))


def read_slices(dump: Dump) -> dict[str, NodeGpus]:
    """GPUs of each node as its ResourceSlices show them, each possible part beside the whole."""
    by_node: dict[str, list[Device]] = defaultdict(list)
    words: dict[str, Counter[str]] = defaultdict(Counter)
    for item in dump.items["ResourceSlice"]:
        pool = item.text("spec", "pool", "name")
        node = item.node or pool
        driver = item.text("spec", "driver")
        if driver and not any(word in driver for word in ("gpu", "nvidia", "amd")):
            dump.note(item, "dropped", f"the ResourceSlice of driver {driver} has no GPUs")
            continue
        for body in item.objects("spec", "devices"):
            device = device_of(body)
            if objects_at(body, "taints"):
                dump.note(item, "extra column", "taints of devices are not honoured")
            dump.devices[driver, pool, device.name] = device
            by_node[node].append(device)
            words[node][driver_device(driver, device.profile)] += 1
    found = {}
    for node, devices in by_node.items():
        parents = dict.fromkeys(device.parent for device in devices if device.parent)
        alone = [one.name for one in devices if not one.parent and not one.profile]
        memories = [device.memory_mib for device in devices if device.memory_mib]
        models = dict.fromkeys(device.model for device in devices if device.model)
        names = (*parents, *alone)
        found[node] = NodeGpus(tuple(models), len(names), max(memories, default=None), uuids=names,
                               devices=words[node])
    return found


def gpus_of_node(item: Item, dump: Dump, by_slices: Mapping[str, NodeGpus]) -> NodeGpus:
    """GPUs of a node, by the first dialect in which it has any."""
    register, counted, plugin = (by(item, dump) for by in (
        gpus_by_register, gpus_by_count, gpus_by_plugin))
    said = (register, counted, by_slices.get(item.name, NodeGpus()), plugin)
    chosen = next((gpus for gpus in said if gpus.num_gpus or gpus.registered), NodeGpus())
    differ = {gpus.num_gpus for gpus in said if gpus.num_gpus} - {chosen.num_gpus}
    if differ and chosen is not register:
        dump.note(item, "interpreted", f"the node has {chosen.num_gpus} GPUs in one way of "
                  f"counting and {sorted(differ)[0]} in another, the first is taken")
    devices = {name: amount for name, amount in amounts_shown(item.allocatable).items()
               if "/" in name and not is_gpu_name(name)}
    for gpus in said:
        devices |= gpus.devices
    return chosen._replace(
        models=chosen.models or plugin.models, memory_mib=chosen.memory_mib or plugin.memory_mib,
        uncut=plugin.uncut if chosen is plugin else chosen.num_gpus, kinds=plugin.kinds,
        devices=devices)


CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def node_row(item: Item, dump: Dump, gpus: NodeGpus) -> dict[str, Any]:
    """Row of a node."""
    allocatable = item.allocatable
    if not allocatable and (allocatable := texts_at(item.body, "status", "capacity")):
        dump.note(item, "filled in", "the node has no allocatable, its capacity is taken")
    if len(gpus.models) > 1:
        dump.note(item, "interpreted", "the node has GPUs of several models, named together")
    for name in ("cpu", "memory"):
        if quantity(allocatable.get(name)) is None:
            dump.note(item, "interpreted", f"{name} of the node is no quantity, unknown")
    taints: list[dict[str, str]] = [
        {name: text_at(taint, name) for name in ("key", "value", "effect") if name in taint}
        for taint in item.objects("spec", "taints")]
    if dig(item.body, "spec", "unschedulable") is True and CORDON not in taints:
        taints.append(CORDON)
    return {
        "name": item.name, "gpu_model": "+".join(gpus.models), "num_gpus": gpus.num_gpus,
        "cpu_milli": whole(allocatable.get("cpu"), 1000, down=True),
        "memory_mib": mebibytes(allocatable.get("memory"), down=True),
        "gpu_memory_mib": gpus.memory_mib, "labels": as_json(item.labels),
        "taints": as_json(taints) if taints else ""}


def node_rows(dump: Dump) -> dict[tuple[str, int], dict[str, Any]]:
    """Rows of all nodes, by file and row; a node that only a slice knows has GPUs and no more."""
    by_slices = read_slices(dump)
    rows = {}
    for item in dump.items["Node"]:
        gpus = dump.nodes[item.name] = gpus_of_node(item, dump, by_slices)
        dump.labels[item.name] = {**item.labels, "metadata.name": item.name}
        rows[item.file, item.row] = node_row(item, dump, gpus)
        if item.is_deleted:
            dump.note(item, "interpreted", "the node was removed while events were recorded")
    for item in dump.items["ResourceSlice"]:
        if item.node in by_slices and item.node not in dump.nodes:
            dump.note(item, "filled in", "the node is known from its ResourceSlices only")
            gpus = dump.nodes[item.node] = by_slices[item.node]
            rows[item.file, item.row] = {
                "name": item.node, "gpu_model": "+".join(gpus.models), "num_gpus": gpus.num_gpus,
                "gpu_memory_mib": gpus.memory_mib, "labels": "{}"}
    for gpus in dump.nodes.values():
        shared = [kind for kind in gpus.kinds if kind.replicas > 1 and not kind.profile]
        if len(shared) < sum(not kind.profile for kind in gpus.kinds):
            dump.mixed |= {kind.device for kind in shared}
    return rows


Amounts = Counter[str]


def amounts_in(written: Mapping[str, str], item: Item, dump: Dump) -> Amounts:
    """Amounts by resource; those that are none are 0, and the ledger says so."""
    asked: Amounts = Counter()
    for name, text in written.items():
        number = quantity(text)
        if number is None or number < 0:
            dump.note(item, "interpreted", f"the amount of {name} is no quantity, taken as 0")
            continue
        asked[name] = number  # type: ignore[assignment]
    return asked


def in_force(status: Any, item: Item, dump: Dump) -> Amounts:
    """Amounts that a container or a pod has by its status, the larger of allocated and actual."""
    actual, allocated = (amounts_in(texts_at(status, *path), item, dump)
                         for path in (("resources", "requests"), ("allocatedResources",)))
    return actual | allocated


def asked_now(container: Any, item: Item, dump: Dump) -> Amounts:
    """Amounts of a container; while it is resized, the largest of asked, allocated and actual."""
    written = [texts_at(container, "resources", which) for which in ("limits", "requests")]
    asked = amounts_in(written[0] | written[1], item, dump)
    name = text_at(container, "name")
    found = [one for kind in ("containerStatuses", "initContainerStatuses")
             for one in item.objects("status", kind) if text_at(one, "name") == name]
    now = in_force(found[0], item, dump) if found and name else Counter()
    is_refused = any(text_at(one, "type") == "PodResizePending"
                     and text_at(one, "reason") == "Infeasible"
                     for one in item.objects("status", "conditions"))
    largest = Counter({**asked, **now}) if is_refused else asked | now
    if now and any(largest[one] != asked[one] for one in now):
        dump.note(item, "interpreted", "the pod is being resized: the largest of what it asks for, "
                  "is allocated and has; what it has, if the node cannot do it")
    return largest


def asked_by_pod(item: Item, dump: Dump) -> Amounts:
    """Amounts that a pod asks for, by resource."""
    staying: Amounts = Counter()
    largest: Amounts = Counter()
    for container in item.objects("spec", "initContainers"):
        asked = asked_now(container, item, dump)
        largest |= staying + asked
        if text_at(container, "restartPolicy") == "Always":
            staying += asked
    together = staying
    for container in item.objects("spec", "containers"):
        together = together + asked_now(container, item, dump)
    total = together | largest
    requests, limits, overhead = (amounts_in(texts_at(item.body, "spec", *path), item, dump)
                                  for path in (("resources", "requests"), ("resources", "limits"),
                                               ("overhead",)))
    own = Counter({name: requests[name] if name in requests else total[name] or limits[name]
                   for name in requests | limits})  # of the pod as a whole, not of its containers
    if own:
        own |= in_force(item.body.get("status"), item, dump)
    return Counter({**total, **own}) + overhead


class Holding(NamedTuple):
    """GPUs of which a pod has the same share each; None if that is not known.

    Parameters
    ----------
    num_gpus, gpu_milli, mig_profile, gpu_list : as in `tasks.csv`
    device : kind of the GPUs, as nodes name it; empty for any
    """

    num_gpus: Any
    gpu_milli: Any
    mig_profile: str = ""
    gpu_list: str = ""
    device: str = ""

    @property
    def is_counted(self) -> bool:
        """Whether it is instances that are there, and that one of the pods may have."""
        return bool(self.mig_profile) and BY_DRIVER not in self.device


def memory_share(mib: Any, gpus: NodeGpus, item: Item, dump: Dump) -> int:
    """Thousandths of a GPU that so much of its memory is; 1000 if its memory is unknown."""
    memory = whole(mib)
    total = gpus.memory_mib
    if memory is None or memory <= 0:
        return 0
    if not total:
        memories = Counter(other.memory_mib for other in dump.nodes.values() if other.memory_mib)
        total = memories.most_common(1)[0][0] if memories else None
        dump.note(item, "interpreted", "a share in MiB, with no node: of the commonest GPU here"
                  if total else "a share in MiB of a GPU of unknown memory, taken as whole")
    return min(-(-1000 * memory // total), 1000) if total else 1000


def numbers_of_gpus(uuids: Sequence[str], gpus: NodeGpus) -> str:
    """Numbers of GPUs on their node, as `0-2`; empty if one of them is unknown there."""
    if not uuids or not set(uuids) <= set(gpus.uuids):
        return ""
    return "-".join(str(number) for number in sorted({gpus.uuids.index(name) for name in uuids}))


HeldBy = Callable[[Item, "Dump", Amounts, NodeGpus], "list[Holding] | None"]
GPU_SET = re.compile(r"\d{1,4}(?:[-,|]\d{1,4})*")


def held_by_openb(item: Item, dump: Dump, asked: Amounts, gpus: NodeGpus) -> list[Holding] | None:
    """What a pod holds by the annotations of openb."""
    said = item.annotations
    place = "alibabacloud.com/gpu-"
    if f"{place}milli" not in said and not asked[f"{place}milli"]:
        return None
    milli = whole(said.get(f"{place}milli", str(asked[f"{place}milli"])))
    count = whole(said.get(f"{place}count", 1))
    if milli is None or count is None or milli < 0 or count < 0:
        dump.note(item, "interpreted", "gpu-milli or gpu-count is no number, taken as no GPU")
        return []
    if milli > 1000:
        dump.note(item, "interpreted", "gpu-milli is more than a GPU, taken as whole GPUs")
        count = count if count > 1 else -(-milli // 1000)
    index = said.get(f"{place}index", "").strip("- ")
    gpu_list = re.sub(r"[,|]", "-", index) if GPU_SET.fullmatch(index) else ""
    device = dump.if_shown(OPENB)
    return [Holding(count, min(milli, 1000), "", gpu_list, device)] if milli and count else []


def held_by_kai(item: Item, dump: Dump, asked: Amounts, gpus: NodeGpus) -> list[Holding] | None:
    """What a pod holds by the annotations of KAI and Run:ai."""
    said = item.annotations
    if not {"gpu-fraction", "gpu-memory"} & set(said):
        return None
    fraction = quantity(said.get("gpu-fraction", 0))
    count = whole(said.get("gpu-fraction-num-devices", 1)) or 1
    milli = memory_share(said.get("gpu-memory"), gpus, item, dump)
    if fraction is None or fraction < 0 or (fraction > 1 and fraction % 1):
        dump.note(item, "interpreted", "gpu-fraction is no share of a GPU, taken as whole")
        fraction = quantity("1")
    device = dump.if_shown(GPU)
    if fraction and fraction > 1:
        return [Holding(int(fraction), 1000, device=device)]
    milli = math.ceil(fraction * 1000) if fraction else milli
    numbers = [dump.reserved.get(group, "") for group in groups_of(item)]
    is_known = numbers and all(re.fullmatch(r"\d{1,4}", number) for number in numbers)
    listed = "-".join(sorted(set(numbers), key=int)) if is_known else ""
    return [Holding(count, milli, "", listed, device)] if milli and count > 0 else []


def groups_of(item: Item) -> list[str]:
    """Groups of pods that share a GPU, to which a pod of KAI belongs."""
    return [value or name for name, value in item.labels.items()
            if name == "runai-gpu-group" or name.startswith("runai-gpu-group/")]


def is_reservation(item: Item) -> bool:
    """Whether a pod only reserves a GPU for pods that share it."""
    return item.namespace in ("kai-resource-reservation", "runai-reservation")


def given_to(item: Item, dialect: Dialect) -> list[list[tuple[str, str, str]]]:
    """Devices that each container of a pod with a node was given, as name, MiB and percent of the cores; none if none."""
    for name in dialect.given if item.node else ():
        each = [[entry.split(",") for entry in part.split(":")]  # device, maker, MiB, percent of the cores
                for part in item.annotations.get(name, "").split(";")]
        found = [[(entry[0].strip(), entry[2], entry[3]) for entry in entries if len(entry) >= 4 and entry[0].strip()]
                 for entries in each]
        if any(found):
            return found
    return []


def held_virtually(item: Item, dump: Dump, asked: Amounts, gpus: NodeGpus) -> list[Holding] | None:
    """What a pod holds by HAMi or Volcano: as given, unless its plugin could not; or else as it asks."""
    for dialect in VIRTUAL:
        if devices := [device for devices in given_to(item, dialect) for device in devices]:
            if item.annotations.get(dialect.phase) == FAILED:
                return []
            device = next((one for one in dialect.marks if asked[one]), "") or dump.if_shown(dialect.marks[0])
            return holdings_of_devices(devices, device, gpus, item, dump)
    for dialect in VIRTUAL:
        if asks_for(asked, dialect):
            each = [one for one in amounts_of_containers(item) if any(one[name] for name in dialect.asks)]
            return on_one_gpu([holding_asked(one, dialect, gpus, item, dump)
                               for one in (each if len(each) > 1 else [asked])])
    return None


def asks_for(asked: Amounts, dialect: Dialect) -> bool:
    """Whether amounts are shares of GPUs in a dialect; a number of GPUs alone may be whole ones."""
    number, *parts = dialect.asks[:4]
    return bool(asked[number] and number != GPU or any(asked[name] for name in parts))


def amounts_of_containers(item: Item) -> list[Amounts]:
    """Amounts that each container of a pod asks for, in their order."""
    return [asked_now(container, item, Dump(Ledger())) for container in item.objects("spec", "containers")]


def holding_asked(asked: Amounts, dialect: Dialect, gpus: NodeGpus, item: Item, dump: Dump) -> Holding:
    """Holding of what a container, or a pod, asks for."""
    number, memory, cores, percentage = dialect.asks[:4]
    count = math.ceil(asked[number]) or 1
    share = max(memory_share(str(asked[memory]), gpus, item, dump) if asked[memory] else 0,
                math.ceil(10 * asked[cores]), math.ceil(10 * asked[percentage]), least_share(gpus, dump))
    takes_all = not (asked[memory] or asked[percentage])
    device = next((name for name in (memory, percentage, cores, number) if asked[name]), number)
    return Holding(count, 1000 if takes_all else min(share, 1000), device=device)


def on_one_gpu(holdings: list[Holding]) -> list[Holding]:
    """Holdings of the containers of a pod: whole GPUs together, shares on one GPU if there is room, else as they are."""
    first = holdings[0]
    milli = sum(one.gpu_milli for one in holdings)
    if all(one.gpu_milli == 1000 for one in holdings):
        return [first._replace(num_gpus=sum(one.num_gpus for one in holdings))]
    if all(one.num_gpus == 1 for one in holdings) and milli <= 1000:
        return [first._replace(gpu_milli=milli)]
    return holdings


def least_share(gpus: NodeGpus, dump: Dump) -> int:
    """Thousandths of a GPU that any share is, since no more containers than it has slots may be there; 0 if any number may.

    Of a pod without a node, by the nodes where it may go.
    """
    nodes = [gpus] if gpus.registered else dump.nodes.values()
    slots = [device.slots for node in nodes for device in node.registered if device.slots]
    return -(-1000 // min(slots)) if slots else 0


def holdings_of_devices(devices: Sequence[tuple[str, str, str]], device: str, gpus: NodeGpus,
                        item: Item, dump: Dump) -> list[Holding]:
    """Holdings by share, of the devices that were given to a pod."""
    memories = {one.name: one.memory_mib for one in gpus.registered}
    held: dict[str, int] = {}
    for uuid, memory, cores in devices:
        own = gpus._replace(memory_mib=memories.get(uuid) or gpus.memory_mib)
        share = max(memory_share(memory, own, item, dump), 10 * (whole(cores) or 0), least_share(gpus, dump))
        held[uuid] = min(held.get(uuid, 0) + share, 1000)
    shares: dict[int, list[str]] = {}
    for uuid, milli in held.items():
        shares.setdefault(milli or 1000, []).append(uuid.split("[")[0])
    return [Holding(len(uuids), milli, "", numbers_of_gpus(uuids, gpus), device)
            for milli, uuids in shares.items()]


PROFILE_WISH = re.compile(r"(?<![\w.])(?:mig-)?(\d+g\.\d+gb(?:\.\w+)?)", re.I)


def claims_named(item: Item) -> list[tuple[str, str]]:
    """Claim and template that a pod names, one of which may be empty."""
    made = {text_at(one, "name"): text_at(one, "resourceClaimName")
            for one in item.objects("status", "resourceClaimStatuses")}
    names = [(text_at(one, "resourceClaimName") or made.get(text_at(one, "name"), ""),
              text_at(one, "resourceClaimTemplateName"))
             for one in item.objects("spec", "resourceClaims")]
    extended = item.text("status", "extendedResourceClaimStatus", "resourceClaimName")
    return [*names, (extended, "")] if extended else names


def claims_of(item: Item) -> list[tuple[str, str]]:
    """Namespace and name of the claims that a pod names."""
    return [(item.namespace, name) for name, _ in claims_named(item) if name]


def held_by_claims(item: Item, dump: Dump, asked: Amounts, gpus: NodeGpus) -> list[Holding] | None:
    """What a pod holds by its ResourceClaims."""
    if not item.objects("spec", "resourceClaims") and not any(
            key in dump.claims for key in claims_of(item)):
        return None
    holdings: list[Holding] = []
    pod = pod_name(item)
    for name, template in claims_named(item):
        key = item.namespace, name or f"{pod} {template}"
        claim = dump.claims.get(key)
        made = dump.named.get(("ResourceClaimTemplate", item.namespace, template))
        if claim is None and made is not None:
            claim = replace(made, body={"spec": dig(made.body, "spec", "spec")})
        if claim is None:
            wanted = f"ResourceClaim {item.namespace}/{name}" if name else (
                f"ResourceClaimTemplate {item.namespace}/{template}")
            dump.unclaimed.setdefault(pod, (item, wanted))
        elif dump.claims_held.setdefault(key, pod) != pod:
            dump.note(item, "interpreted", "the pod shares a ResourceClaim that another pod has")
        else:
            holdings += holdings_of_claim(claim, dump, gpus)
    return merged(holdings)


def holdings_of_claim(claim: Item, dump: Dump, gpus: NodeGpus) -> list[Holding]:
    """Holdings of a claim: of the devices it was allocated, or else of those it requests."""
    results = objects_at(claim.body, "status", "allocation", "devices", "results")
    holdings = []
    for result in (one for one in results if one.get("adminAccess") is not True):
        names = [text_at(result, name) for name in ("driver", "pool", "device")]
        device = dump.devices.get((names[0], names[1], names[2]))
        if device is None:
            found = PROFILE_WISH.search(names[2])
            device = Device(names[2], profile=found[1].lower() if found else "")
            dump.note(claim, "interpreted", "a device of the claim is in no ResourceSlice")
        milli = milli_of_profile(device.profile) or 1000
        place = numbers_of_gpus([device.parent or device.name], gpus)
        profile = device.profile if milli < 1000 else ""
        holdings.append(Holding(1, milli, profile, place, driver_device(names[0], profile)))
    return holdings if results else requested_by(claim, dump)


def requested_by(claim: Item, dump: Dump) -> list[Holding]:
    """Holdings that a claim requests; of several choices, the first."""
    holdings = []
    drivers = dict.fromkeys(driver for driver, _, _ in dump.devices)
    for request in claim.objects("spec", "devices", "requests"):
        choices = objects_at(request, "firstAvailable")
        exactly = dig(request, "exactly")
        wish = choices[0] if choices else exactly if isinstance(exactly, dict) else request
        if choices[1:]:
            dump.note(claim, "interpreted", "of the choices of a claim the first is taken")
        if text_at(wish, "allocationMode") == "All":
            dump.note(claim, "interpreted", "a claim for all devices of a node, taken as one")
        rules = " ".join(text_at(one, "cel", "expression") for one in objects_at(wish, "selectors"))
        named = text_at(wish, "deviceClassName")
        profile = PROFILE_WISH.search(rules) or PROFILE_WISH.search(named)
        count = max(whole(wish.get("count", 1)) or 1, 1)
        name = profile[1].lower() if profile else ""
        # the class bears the name of its driver, or there is only one driver
        driver = named if named in drivers or len(drivers) != 1 else next(iter(drivers))
        holdings.append(Holding(count, milli_of_profile(name) or 1000, name, "",
                                driver_device(driver or "any", name)))
    return holdings


def merged(holdings: Sequence[Holding]) -> list[Holding]:
    """The same holdings, those of one share and profile together."""
    alike: dict[tuple[int, str, str], list[Holding]] = {}
    for one in holdings:
        alike.setdefault((one.gpu_milli, one.mig_profile, one.device), []).append(one)
    found = []
    for (milli, profile, device), some in alike.items():
        numbers = {int(number) for one in some for number in one.gpu_list.split("-") if number}
        listed = "-".join(map(str, sorted(numbers))) if all(one.gpu_list for one in some) else ""
        found.append(Holding(sum(one.num_gpus for one in some), milli, profile, listed, device))
    return found


def held_by_plugin(item: Item, dump: Dump, asked: Amounts, gpus: NodeGpus) -> list[Holding] | None:
    """What a pod holds by NVIDIA's device plugin, or another maker's."""
    holdings = []
    for name in (name for name in asked if asked[name]):
        if name.startswith(MIG):
            profile = profile_named(name)
            milli = milli_of_profile(profile)
            if milli is None:
                dump.note(item, "interpreted", f"{name} is no known profile: on no GPU that is "
                          "not cut so")
            holdings.append(Holding(math.ceil(asked[name]), milli or 1000, profile, device=name))
        elif name in (GPU, SHARED, *OTHER_GPUS) or kinds_on(dump.nodes, name, dump):
            kind = kind_of(name, item, dump)
            if kind.replicas > 1:
                dump.note(item, "interpreted", "a GPU shared in time, taken as one part of its "
                          "replicas")
            counted = kind.device if kind.device in dump.mixed else ""
            holdings.append(Holding(math.ceil(asked[name]), kind.gpu_milli,
                                    kind.profile or counted, device=kind.device))
    return holdings or None


def kind_of(resource: str, item: Item, dump: Dump) -> ResourceKind:
    """What a unit of a resource is on the node of a pod, or on those where it may go."""
    kinds = kinds_on([item.node] if item.node else dump.nodes, resource, dump)
    if len(kinds) > 1 and not item.node:
        open_to = [name for name in dump.nodes if may_go(item, dump.labels.get(name, {}))]
        kinds = kinds_on(open_to, resource, dump) or kinds
    if len(kinds) > 1:
        dump.note(item, "interpreted", f"the pod waits, and {resource} is not the same on all "
                  "nodes: on those where it is the largest part of a GPU")
    return max(kinds, key=lambda kind: (not kind.profile, kind.gpu_milli),
               default=ResourceKind(resource))


def kinds_on(names: Iterable[str], resource: str, dump: Dump) -> list[ResourceKind]:
    """What a unit of a resource is on some nodes, each answer once."""
    return list(dict.fromkeys(kind for name in names if name in dump.nodes
                              for kind in dump.nodes[name].kinds if kind.resource == resource))


def may_go(item: Item, labels: Mapping[str, str]) -> bool:
    """Whether the labels of a node are those that a pod asks for; taints are not looked at."""
    selector = texts_at(item.body, "spec", "nodeSelector")
    terms = terms_of(item)
    return all(labels.get(key) == value for key, value in selector.items()) and (
        not terms or any(all(meets(rule, labels.get(rule.key)) for rule in term)
                         for term in terms))


HELD_BY: tuple[HeldBy, ...] = (
    held_by_openb, held_by_kai, held_virtually, held_by_claims, held_by_plugin)


def held_by(item: Item, dump: Dump, asked: Amounts, gpus: NodeGpus) -> list[Holding]:
    """What a pod holds of GPUs, by the first dialect that it speaks."""
    said = (held(item, dump, asked, gpus) for held in HELD_BY)
    return next((holdings for holdings in said if holdings is not None), [])


def condition_s(item: Item, kind: str, status: str) -> float | None:
    """When a condition of a pod turned to a status."""
    times = [seconds_at(one, "lastTransitionTime")
             for one in item.objects("status", "conditions")
             if text_at(one, "type") == kind and text_at(one, "status") == status]
    return max((time for time in times if time is not None), default=None)


def start_of(item: Item, dump: Dump) -> float | None:
    """When a pod with a node got it."""
    if (start := seconds_at(item.body, "status", "startTime")) is not None:
        return start
    if (start := condition_s(item, "PodScheduled", "True")) is None:
        dump.note(item, "interpreted", "the pod has a node, but no time of its start")
    else:
        dump.note(item, "filled in", "no startTime, the time of condition PodScheduled is taken")
    return start


def end_of(item: Item, dump: Dump) -> float | None:
    """When a pod that has ended did; None if nothing says so."""
    ends = [seconds_at(one, "state", "terminated", "finishedAt")
            for one in item.objects("status", "containerStatuses")]
    end = max((time for time in ends if time is not None), default=None)
    if end is None and item.is_deleted and item.event_s is not None:
        dump.note(item, "filled in", "the pod was deleted, the time of that event is its end")
        return item.event_s
    for kind, status in (("Ready", "False"), ("ContainersReady", "False"),
                         ("DisruptionTarget", "True")):
        if end is None and (end := condition_s(item, kind, status)) is not None:
            dump.note(item, "filled in", f"no finishedAt, the time of condition {kind} is taken")
    return end


def times_of(item: Item, dump: Dump) -> dict[str, Any] | None:
    """When a pod came, started and ended; None if it holds nothing and never will."""
    phase = item.text("status", "phase")
    submit_s = seconds_at(item.body, "metadata", "creationTimestamp")
    if submit_s is None:
        dump.note(item, "interpreted", "creationTimestamp is no date, the submission is unknown")
    if item.is_over and not item.node:
        dump.note(item, "dropped", "the pod is over and never had a node")
        return None
    if not item.is_over and phase not in ("Running", "Pending"):
        dump.note(item, "interpreted", f"phase {phase or 'is missing'}: taken as it has a node "
                  "or not")
    times: dict[str, Any] = {"submit_s": submit_s}
    if item.node:
        times["start_s"] = start_of(item, dump)
    if not item.is_over:
        return {**times, "state": "" if item.node else WAITING}
    if (end := end_of(item, dump)) is None:
        dump.note(item, "dropped", "the pod is over, and nothing says since when")
        return None
    return {**times, "end_s": end}


MODEL_LABELS = ("alibabacloud.com/gpu-card-model", "nvidia.com/gpu.product",
                "amd.com/gpu.product-name")
NODE_AFFINITY = ("spec", "affinity", "nodeAffinity")
ANTI_AFFINITY = ("spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
NOT_HONOURED = {
    "podAffinity": ("spec", "affinity", "podAffinity"),
    "podAntiAffinity": ("spec", "affinity", "podAntiAffinity"),
    "preferred nodeAffinity": (*NODE_AFFINITY, "preferredDuringSchedulingIgnoredDuringExecution"),
    "topologySpreadConstraints": ("spec", "topologySpreadConstraints"),
    "schedulingGates": ("spec", "schedulingGates"),
    "nominatedNodeName": ("status", "nominatedNodeName")}


def terms_of(item: Item) -> list[list[Rule]]:
    """Terms of required node affinity, of which a node must match one: rules."""
    required = dig(item.body, *NODE_AFFINITY, "requiredDuringSchedulingIgnoredDuringExecution")
    return [[rule_of(one) for name in ("matchExpressions", "matchFields")
             for one in objects_at(term, name)]
            for term in objects_at(required, "nodeSelectorTerms")]


def limit_of(item: Item) -> dict[str, Any]:
    """Limit of a pod that wants none of its kind beside it, by required anti-affinity; empty for none.

    Its kind are the pods of its namespace that state the same term, which it meets itself.
    """
    for term in item.objects(*ANTI_AFFINITY):
        rules = rules_in(term.get("labelSelector"))
        is_own = text_at(term, "topologyKey") == "kubernetes.io/hostname" and term.get(
            "namespaceSelector") is None and term.get("namespaces") in (None, [], [item.namespace])
        if is_own and rules and all(meets(rule, item.labels.get(rule.key)) for rule in rules):
            return {"group": f"{item.namespace} {as_json(sorted(rules))}", "most_per_node": 1}
    return {}


TOLERATION = ("key", "operator", "value", "effect")


def tolerations_of(item: Item) -> list[dict[str, str]]:
    """Tolerations of a pod for taints that keep it away, but for those that every pod gets."""
    return [{name: text_at(one, name) for name in TOLERATION if name in one}
            for one in item.objects("spec", "tolerations")
            if text_at(one, "effect") in ("", "NoSchedule", "NoExecute")
            and not (text_at(one, "key").startswith("node.kubernetes.io/")
                     and dig(one, "tolerationSeconds") is not None)]


def constraints_of(item: Item, dump: Dump, devices: Sequence[str] = ()) -> str:
    """What the node of a pod must have beside room, as JSON; empty if nothing."""
    ignored = [name for name, path in NOT_HONOURED.items() if dig(item.body, *path)]
    limit = limit_of(item)
    if limit:
        dump.note(item, "interpreted", "anti-affinity by node to pods of its kind: "
                  "of those that state it, one on a node")
        if dig(item.body, *ANTI_AFFINITY[:-1]) == {ANTI_AFFINITY[-1]: item.objects(*ANTI_AFFINITY)[:1]}:
            ignored.remove("podAntiAffinity")
    if any(dig(port, "hostPort") for container in item.objects("spec", "containers")
           for port in objects_at(container, "ports")):
        ignored.append("hostPort")
    if any(dig(one, "persistentVolumeClaim") for one in item.objects("spec", "volumes")):
        ignored.append("persistentVolumeClaim")
    for name in ignored:
        dump.note(item, "extra column", f"{name} of pods is not honoured")
    if item.annotations.get(MIRROR):
        dump.note(item, "interpreted", "a static pod, which no scheduler moves: on its node only")
        own = {"key": "metadata.name", "operator": "In", "values": [item.node]}
        return as_json({"affinity": [[own]], "tolerations": [{"operator": "Exists"}]})
    said = {"node_selector": texts_at(item.body, "spec", "nodeSelector"),
            "affinity": [[rule._asdict() for rule in term] for term in terms_of(item)],
            "tolerations": tolerations_of(item),
            "devices": list(devices), **limit}
    said = {name: value for name, value in said.items() if value}
    return as_json(said) if said else ""


def models_wanted(item: Item) -> str:
    """Models that a pod accepts, as `A100|T4`; empty for any."""
    wish = item.annotations.get("alibabacloud.com/gpu-card-model", "") or (
        item.annotations.get("nvidia.com/use-gputype", "").replace(",", "|"))
    selector = texts_at(item.body, "spec", "nodeSelector")
    models = [model for model in wish.split("|") if model]
    models += [model_of(selector[name]) for name in MODEL_LABELS if selector.get(name)]
    named = [[model_of(value) for rule in term if rule.key in MODEL_LABELS
              and rule.operator == "In" for value in rule.values] for term in terms_of(item)]
    if not models and all(named):
        models = [model for term in named for model in term]
    return "|".join(dict.fromkeys(models))


QUEUES = (("labels", "kai.scheduler/queue"), ("labels", "runai/queue"),
          ("labels", "kueue.x-k8s.io/queue-name"),
          ("annotations", "scheduling.volcano.sh/queue-name"), ("labels", "queue"))
KNOWN = re.compile(r"cpu|memory|ephemeral-storage|pods|hugepages-.*")


def pod_name(item: Item) -> str:
    """Namespace and name of a pod; empty if it has no name."""
    return f"{item.namespace}/{item.name}" if item.namespace and item.name else item.name


class Demand(NamedTuple):
    """What a pod asks for, or holds.

    Parameters
    ----------
    cpu_milli, memory_mib : as in `tasks.csv`
    holdings : of GPUs; none if it has none
    devices : kinds of GPUs and other resources that not every node has, and that it needs
    """

    cpu_milli: int
    memory_mib: int
    holdings: list[Holding]
    devices: list[str]


def demand_of(item: Item, dump: Dump, asked: Amounts) -> Demand:
    """What a pod asks for, or holds on its node, of the amounts that its containers ask for."""
    holdings = held_by(item, dump, asked, dump.nodes.get(item.node, NodeGpus()))
    if pod_name(item) in dump.unclaimed:
        holdings = [Holding(None, None)]
    devices = devices_of(item, dump, asked, holdings)
    if len(holdings) > 1 and any(one.is_counted for one in holdings) and all(
            one.is_counted or one.gpu_milli == 1000 for one in holdings):
        holdings = [together(holdings)]
    return Demand(math.ceil(1000 * asked["cpu"]), math.ceil(asked["memory"] / 2**20), holdings,
                  devices)


def pod_rows(item: Item, dump: Dump) -> list[dict[str, Any]]:
    """Rows of a pod: one for each share of GPUs that it holds, or one if it holds none.

    Of several rows, the first has its processors and memory, and counts for its limit.
    """
    if is_reservation(item):
        dump.note(item, "dropped", RESERVES)
        return []
    times = times_of(item, dump)
    if times is None:
        return []
    demand = demand_of(item, dump, asked_by_pod(item, dump))
    queues = (getattr(item, kind).get(name) for kind, name in QUEUES)
    priority = dig(item.body, "spec", "priority")
    if priority is not None and (type(priority) is not int or abs(priority) >= 2**40):
        dump.note(item, "interpreted",
                  "spec.priority is no whole number below 2**40, taken as unknown")
        priority = None
    row = {
        "name": pod_name(item), **times, "user": item.namespace,
        "queue": next(filter(None, queues), ""), "priority": priority,
        "gpu_models": models_wanted(item), "constraints": constraints_of(item, dump, demand.devices),
        "node": item.node, "fixed": fixed_of(item, dump) if item.node and "state" in times else "",
        "cpu_milli": demand.cpu_milli, "memory_mib": demand.memory_mib}
    shares = [dict(zip(Holding._fields[:-1], one, strict=False))
              for one in demand.holdings or [Holding(0, 0)]]  # all but the kind of device
    if len(shares) == 1:
        return [row | shares[0]]
    dump.note(item, "interpreted", "shares of several sizes are several rows, POD/0, POD/1, ...")
    said = {name: value for name, value in json.loads(row["constraints"] or "{}").items()
            if name not in limit_of(item)}
    rest = {"cpu_milli": 0, "memory_mib": 0, "constraints": as_json(said) if said else ""}
    return [{**row, **(rest if number else {}), **one,
             "job": row["name"], "name": f"{row['name']}/{number}"}
            for number, one in enumerate(shares)]


RESERVES = "the pod reserves a GPU for pods that are rows themselves"


def fixed_of(item: Item, dump: Dump) -> str:
    """Why a pod that runs should not be stopped; empty if nothing speaks against it."""
    def body_of(kind: str, namespace: str, name: str) -> dict[str, Any]:
        found = dump.named.get((kind, namespace, name))
        return {} if found is None else found.body

    budgets = [one.body for one in dump.items["PodDisruptionBudget"]]
    return why_lost(item.body) or why_kept(item.body) or why_tied(item.body, body_of) or (
        why_budgeted(item.body, budgets))


def devices_of(item: Item, dump: Dump, asked: Amounts, holdings: Sequence[Holding]) -> list[str]:
    """Kinds of GPUs and other resources that not every node has, and that a pod needs."""
    read = UNDERSTOOD | {kind.resource for node in dump.nodes.values() for kind in node.kinds}
    wanted = {one.device: True for one in holdings if one.device}
    for name in (name for name in asked if asked[name] and name not in read
                 and not name.startswith(MIG) and not KNOWN.fullmatch(name)):
        wanted[name] = is_gpu_name(name)
        dump.note(item, "interpreted" if is_gpu_name(name) else "extra column",
                  f"{name} of the pod: no node says what GPU that is, so none will do"
                  if is_gpu_name(name) else f"{name} of pods is not counted, a node must show it")
    return [device for device, is_gpu in wanted.items() if is_choosy(device, is_gpu, dump)]


def is_choosy(device: str, is_gpu: bool, dump: Dump) -> bool:
    """Whether a kind of GPUs, or another resource, is not on every node that might have it."""
    nodes = [node for node in dump.nodes.values() if node.num_gpus or not is_gpu]
    if profile := profile_shown(device):  # instances are counted; only another name of them matters
        return any(kind.profile == profile and not node.devices.get(device)
                   for node in nodes for kind in node.kinds)
    is_made = BY_DRIVER in device and not device.endswith(BY_DRIVER)
    return is_made or (not nodes and is_gpu and device not in UNDERSTOOD) or any(
        not node.devices.get(device) for node in nodes)


def together(holdings: Sequence[Holding]) -> Holding:
    """Instances, and GPUs that are not cut, as one holding that names the profile of each."""
    count = sum(one.num_gpus for one in holdings)
    milli = sum(one.num_gpus * one.gpu_milli for one in holdings)
    names = [one.mig_profile or "whole" for one in holdings
             for _ in range(min(one.num_gpus, MOST_NAMED))]
    return Holding(count, milli // max(count, 1), ",".join(names))


MOST_NAMED = 4096  # more GPUs than any pod may have


READ = ("Node", "Pod", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate")
BESIDE = ("PodDisruptionBudget", "PersistentVolume", "PersistentVolumeClaim")  # for moves only
CLAIMS_MISSING = "not in the files, so the GPUs of their pods are unknown"
DUMP_CLAIMS = "kubectl get resourceclaims,resourceclaimtemplates,resourceslices -A -o json"
MARKS = re.compile(r'"(?:kind|rawObjects|pods|nodes|resource|object|apiVersion)"\s*:')


def is_kubernetes(source: Source) -> bool:
    """Whether a file has objects of Kubernetes."""
    head = source.head(4096).lstrip()
    if head[:1] not in ("{", "[") or '"jobs"' in head[:200]:
        return False
    try:
        return any(kind in READ and (text_at(body, "kind") or dig(body, "metadata"))
                   for kind, body, _, _ in unfolded(source.json()))
    except InputError:
        return bool(MARKS.search(head) and ("apiVersion" in head or "metadata" in head))


def load(sources: Sequence[Source], ledger: Ledger) -> Dump:
    """Objects of all files, each once, by kind."""
    found: list[Item] = []
    for source in sources:
        items = [Item(kind, body, source.name, row, seconds_at({"t": time}, "t"), is_deleted)
                 for row, (kind, body, time, is_deleted) in enumerate(unfolded(source.json()), 1)]
        found += items
        ledger.note(source.name, None, "dropped", "there is no object in the file", not items)
    for item in found:
        for part in ("metadata", "spec", "status"):
            if not isinstance(item.body.get(part, {}), dict | None):
                ledger.note(item.file, item.row, "interpreted",
                            f"{part} of the {item.kind:.60} is no object, and nothing in it is read")
    dump = Dump(ledger)
    for item in latest(found, ledger):
        if item.kind in READ + BESIDE or says_how_many(item):
            dump.items[item.kind].append(item)
            dump.named[item.kind, item.namespace, item.name] = item
        else:
            dump.note(item, "extra column",
                      f"objects {item.kind or 'without a kind':.60} are not read")
    dump.claims = {(namespace, name): item for (kind, namespace, name), item in dump.named.items()
                   if kind == "ResourceClaim"}
    for item in dump.items["Pod"]:
        if is_reservation(item):
            index = item.annotations.get("run.ai/reserve_for_gpu_index", "")
            dump.reserved |= dict.fromkeys(groups_of(item), index)
    return dump


def read_kubernetes(sources: Sequence[Source], ledger: Ledger,
                    options: ReadOptions) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read objects of Kubernetes.

    Parameters
    ----------
    sources : JSON: lists of objects, events, an export of kube-scheduler-simulator, a KAI snapshot
    ledger : where it is noted what was dropped, filled in or interpreted
    options : nothing of them is used

    Returns
    -------
    rows of nodes, rows of tasks, with times in seconds since 1970

    Raises
    ------
    InputError : a file is not JSON, or there is neither a node nor a pod in any
    """
    dump = load(sources, ledger)
    nodes = node_rows(dump)
    if not nodes and not dump.items["Pod"]:
        raise InputError("there is neither a Node nor a Pod in it", file=sources[0].name,
                         mend="give the output of kubectl get nodes,pods -A -o json")
    found = [(item, pod_rows(item, dump)) for item in dump.items["Pod"]]
    join_gangs(found, [*dump.items["PodGroup"], *dump.items["Workload"]], dump.note)
    pods = [(item.row, row) for item, rows in found for row in rows]
    if dump.unclaimed:
        missing = list(dict.fromkeys(wanted for _, wanted in dump.unclaimed.values()))
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        first = next(iter(dump.unclaimed.values()))[0]
        ledger.note(first.file, first.row, "interpreted", f"{', '.join(missing[:3])}{more}: "
                    f"{CLAIMS_MISSING}; give them, too: {DUMP_CLAIMS}", len(dump.unclaimed))
    used = {device for _, row in pods for device in
            (json.loads(row["constraints"]).get("devices", ()) if row["constraints"] else ())}
    for row in nodes.values():
        row["devices"] = devices_shown(dump.nodes[row["name"]], used | dump.mixed, dump)
    return (pd.DataFrame(list(nodes.values()), index=[row for _, row in nodes]),
            pd.DataFrame([row for _, row in pods], index=[number for number, _ in pods]))


def devices_shown(gpus: NodeGpus, used: Collection[str], dump: Dump) -> str:
    """Kinds of GPUs of a node that tell it from others, as JSON; empty if there are none.

    Parameters
    ----------
    gpus : what the node says
    used : kinds that some pod needs
    dump : the others
    """
    kept = {name: count for name, count in gpus.devices.items()
            if name in used or profile_shown(name)}
    if any(profile_shown(name) or name in dump.mixed for name in kept):
        is_apart = not gpus.profile and not dump.mixed.isdisjoint(gpus.devices) and all(
            kind.replicas > 1 for kind in gpus.kinds if not kind.profile)
        kept["whole"] = 0 if is_apart or gpus.profile else gpus.uncut
    return as_json(kept) if kept else ""


FORMATS = (
    Format("k8s", "objects of Kubernetes as kubectl prints them in JSON, watches, exports of "
           "kube-scheduler-simulator, snapshots of KAI", is_kubernetes, read_kubernetes),)
