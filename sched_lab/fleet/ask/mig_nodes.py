"""Nodes whose GPUs are cut, or can be cut, into instances: the cut that leaves most of use, and the layout that serves most of the pods that wait."""

# A module, written by hand.

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ...hardware import MigProfile, MigTable, default_hardware
from ...lab.frames import InputError, write_bytes
from ...lab.reports import Report
from ..read.devices import MIG, amounts_shown
from ..read.kubernetes import (
    Dump,
    Holding,
    Item,
    NodeGpus,
    asked_by_pod,
    attribute,
    claims_of,
    held_by,
    load,
    node_rows,
    pod_name,
    requested_by,
)
from ..read.objects import dig, objects_at, text_at, texts_at, whole
from ..read.tables import Ledger, Source, milli_of_profile, profile_named, sources_of

__all__ = ['choose_instance', 'read_mig', 'instances_of', 'recommend_mig']


def rows_of_table(table: MigTable) -> tuple[MigProfile, ...]:
    """Profiles of a table that can be placed."""
    return tuple(one for one in table.profiles if not one.name.endswith("+me.all"))


MIG_MODELS: dict[str, tuple[str, tuple[int, ...], str]] = {
    name: (table.tree, tuple(one.memory_slices for one in rows_of_table(table)),
           " ".join(one.name for one in rows_of_table(table)))
    for name, table in default_hardware().migs.items()}


Tables = Mapping[str, MigTable]


def model_named(product: str, memory_mib: int | None, profiles: set[str],
                tables: Tables | None = None) -> str:
    """Line of the table for a product label, the memory of a GPU and the profiles that it shows.

    Empty if no line agrees with all of them, or more than one.

    Parameters
    ----------
    product, memory_mib, profiles : of a GPU, as far as a node shows them
    tables : of a catalogue; None for the one that comes with the package
    """
    known = tables or default_hardware().migs
    words = set(re.split(r"[^A-Z0-9]+", product.upper()))
    lines = [name for name in known if set(name.upper().split("-")[:-1] or [name]) <= words]
    lines = [name for name in lines if name.split("-")[-1] in words] or lines
    if len(lines) > 1 and memory_mib:
        lines = [name for name in lines if abs(memory_of(known[name]) - memory_mib) < 3000]
    lines = [name for name in lines if profiles <= {one.name for one in known[name].profiles}]
    return lines[0] if len(lines) == 1 else ""


def memory_of(table: MigTable) -> int:
    """Memory of a GPU of a table, MiB: that of its largest instance."""
    return max(one.memory_mib for one in table.profiles)


Amounts = tuple[int, ...]


class Placement(NamedTuple):
    """An instance at a place on a GPU.

    Parameters
    ----------
    profile : its name, `3g.20gb`; `whole` for a device that is the whole GPU
    start : first memory slice; for a device of a driver, its number among those of its profile
    needs : (counters,) what it takes
    """

    profile: str
    start: int
    needs: Amounts


@dataclass(frozen=True, eq=False)
class Cuts:
    """What a GPU of one kind can be cut into; made once for each kind.

    Parameters
    ----------
    kind : a line of the table of profiles, or the name of a driver
    capacity : (counters,) what an empty GPU has
    placements : all legal ones
    """

    kind: str
    capacity: Amounts
    placements: tuple[Placement, ...]

    @property
    def profiles(self) -> tuple[str, ...]:
        """Its profiles, each once."""
        return tuple(dict.fromkeys(one.profile for one in self.placements))


# one object for one content, so that results can be kept by the object
cuts_with = lru_cache(maxsize=2**16)(Cuts)


@lru_cache
def cuts_of_model(model: str) -> Cuts:
    """What a GPU of the table can be cut into."""
    return cuts_of_table(default_hardware().migs[model])


def cuts_of_table(table: MigTable) -> Cuts:
    """What a GPU can be cut into: a counter for each memory slice, and one for the engines."""
    rows = rows_of_table(table)
    slices = max(one.memory_slices for one in rows)
    placements = []
    for one in rows:
        for start in one.starts:
            bits = [int(start <= slot < start + one.memory_slices) for slot in range(slices)]
            placements.append(Placement(one.name, start, (*bits, int(one.name.endswith("+me")))))
    return cuts_with(table.name, (1,) * (slices + 1), tuple(placements))


def has_room(needs: Amounts, left: Amounts) -> bool:
    """Whether amounts fit into what is left; a counter that is not needed does not matter."""
    return all(need <= rest for need, rest in zip(needs, left, strict=True) if need)


def less(left: Amounts, needs: Amounts) -> Amounts:
    """What is left afterwards."""
    return tuple(rest - need for rest, need in zip(left, needs, strict=True))


def most_together(needs: Sequence[Amounts], left: Amounts) -> int:
    """How many of these fit together, the small ones first."""
    count = 0
    for one in sorted(needs, key=sum):
        if has_room(one, left):
            left = less(left, one)
            count += 1
    return count


@lru_cache(maxsize=2**16)
def most_of(cuts: Cuts, left: Amounts) -> tuple[int, ...]:
    """$N_q$: how many instances of each profile alone could still be made, (profiles,)."""
    return tuple(most_together([one.needs for one in cuts.placements if one.profile == name], left)
                 for name in cuts.profiles)


@lru_cache(maxsize=2**16)
def share_of(cuts: Cuts, profile: str) -> Fraction:
    """$u_q$: share of a GPU that a profile takes, the mean over all counters."""
    needs = next(one.needs for one in cuts.placements if one.profile == profile)
    parts = [Fraction(need, size) for need, size in zip(needs, cuts.capacity, strict=True) if size]
    return sum(parts, Fraction(0)) / max(len(parts), 1)


Weights = tuple[tuple[str, int], ...]  # demand by profile, sorted; empty: every profile alike


@lru_cache(maxsize=2**16)
def worth(cuts: Cuts, left: Amounts, weights: Weights) -> Fraction:
    """$V$: share of the GPU that profiles could still use, weighted by demand."""
    demand = dict(weights) if weights else dict.fromkeys(cuts.profiles, 1)
    return sum((demand.get(name, 0) * share_of(cuts, name) * most for name, most in
                zip(cuts.profiles, most_of(cuts, left), strict=True)), Fraction(0))


@dataclass(frozen=True)
class Instance:
    """An instance that exists: which placement it is, and the pod that has it; empty if none."""

    placement: int  # in `Cuts.placements`; WHOLE for a GPU that is not cut
    pod: str = ""


WHOLE = -1


@dataclass(frozen=True)
class MigGpu:
    """A GPU that is cut, or can be.

    Parameters
    ----------
    node, name : its node, and its number there or the name of its counter set
    cuts : what it can be cut into
    instances : those that exist
    devices : (placements,) names of a driver's devices; empty if there is no driver for DRA
    """

    node: str
    name: str
    cuts: Cuts
    instances: tuple[Instance, ...] = ()
    devices: tuple[str, ...] = ()

    def needs(self, placement: int) -> Amounts:
        """What a placement takes; all of the GPU if it is `WHOLE`."""
        return self.cuts.capacity if placement == WHOLE else self.cuts.placements[placement].needs

    @property
    def left(self) -> Amounts:
        """What the pods leave of it; an instance that no pod has can be cut anew."""
        left = self.cuts.capacity
        for one in self.instances:
            left = less(left, self.needs(one.placement)) if one.pod else left
        return left

    @property
    def idle(self) -> frozenset[int]:
        """Placements of instances that exist and that no pod has."""
        return frozenset(one.placement for one in self.instances if not one.pod) - {WHOLE}


@lru_cache(maxsize=2**16)
def cheapest(cuts: Cuts, left: Amounts, idle: frozenset[int], profile: str,
             weights: Weights) -> tuple[Fraction, int] | None:
    """Least loss of a placement of a profile, and which one; None if none is possible."""
    before = worth(cuts, left, weights)
    found = [(before - worth(cuts, less(left, one.needs), weights), number not in idle, number)
             for number, one in enumerate(cuts.placements)
             if one.profile == profile and has_room(one.needs, left)]
    if not found:
        return None
    loss, _, number = min(found)
    return loss, number


def weights_of(weights: Mapping[str, int] | None) -> Weights:
    """Demand as a key."""
    return tuple(sorted((weights or {}).items()))


class Found(NamedTuple):
    """A place for an instance: number of the GPU, and of the placement in its `Cuts`."""

    gpu: int
    placement: int


def find_place(gpus: Sequence[MigGpu], left: Sequence[Amounts], among: Sequence[int], profile: str,
               weights: Weights) -> Found | None:
    """Place of least loss among some GPUs, of which so much is left."""
    seen = set()
    best: tuple[Fraction, bool, int, int] | None = None
    for number in among:
        state = gpus[number].cuts, left[number], gpus[number].idle
        if state in seen:
            continue
        seen.add(state)
        if found := cheapest(*state, profile, weights):
            best = min(best or (found[0], True, number, found[1]),
                       (found[0], found[1] not in state[2], number, found[1]))
    return Found(best[2], best[3]) if best else None


class Choice(NamedTuple):
    """Where an instance is to be.

    Parameters
    ----------
    gpu : number in the list of GPUs
    start : first memory slice, or the number of the device among those of its profile
    device : name of the device for DRA; empty without a driver
    """

    gpu: int
    start: int
    device: str


def choice_of(gpus: Sequence[MigGpu], found: Found) -> Choice:
    """A place in words that tools understand."""
    gpu = gpus[found.gpu]
    device = gpu.devices[found.placement] if gpu.devices else ""
    return Choice(found.gpu, gpu.cuts.placements[found.placement].start, device)


def choose_instance(gpus: Sequence[MigGpu], profile: str,
                    weights: Mapping[str, int] | None = None) -> Choice | None:
    """Place an instance where the least of what could still be made is lost.

    Parameters
    ----------
    gpus : where it may go, with what their pods hold
    profile : `3g.20gb`, `mig-3g.20gb`, `1g.10gb.me`
    weights : demand by profile, for instance how many pods wait for each; None: all alike

    Returns
    -------
    the place, or None if it fits nowhere
    """
    left = [gpu.left for gpu in gpus]
    found = find_place(gpus, left, range(len(gpus)), profile_named(profile), weights_of(weights))
    return found and choice_of(gpus, found)


def amounts_at(value: Any, *path: str) -> dict[str, int]:
    """Amounts of counters at the end of a path, in thousandths."""
    found = dig(value, *path)
    return {name: whole(dig(found, name, "value"), 1000) or 0
            for name in (found if isinstance(found, dict) else ())}


def start_in(needs: Mapping[str, int], before: int) -> int:
    """First memory slice that a device takes; its number among its kind if nothing says so."""
    slots = [int(found[1]) for name, need in needs.items()
             if need and (found := re.search(r"memory-?slice-?(\d+)", name, re.I))]
    return min(slots, default=before)


def cuts_of_devices(driver: str, counters: Mapping[str, int],
                    devices: Sequence[tuple[str, Mapping[str, int]]]) -> Cuts:
    """What a GPU of a driver can be cut into.

    Parameters
    ----------
    driver : its name
    counters : what the GPU has, by counter
    devices : profile of each possible instance, and what it takes
    """
    capacity = tuple(counters.values())
    rows = [tuple(uses.get(name, 0) for name in counters) for _, uses in devices]
    twice = [number for number, row in enumerate(rows)
             if has_room(tuple(2 * need for need in row), capacity)]
    placements: list[Placement] = []
    for number, ((profile, uses), row) in enumerate(zip(devices, rows, strict=True)):
        own = tuple(int(row == capacity or number == other) for other in twice)
        before = sum(one.profile == profile for one in placements)
        placements.append(Placement(profile, start_in(uses, before), row + own))
    return cuts_with(driver, capacity + (1,) * len(twice), tuple(placements))


Key = tuple[str, str, str]  # driver, pool, and counter set or device


Published = tuple[str, str, str, dict[str, int]]  # a device: node, name, profile, amounts


def devices_by_set(dump: Dump) -> Iterator[tuple[Key, Published]]:
    """Devices that draw on one counter set, with its key."""
    for item in dump.items.get("ResourceSlice", []):
        spec = dig(item.body, "spec")
        driver = text_at(spec, "driver")
        pool = text_at(spec, "pool", "name")
        for body in objects_at(spec, "devices"):
            basic = body.get("basic") if isinstance(body.get("basic"), dict) else body
            uses = objects_at(basic, "consumesCounters")
            if len(uses) > 1:
                dump.note(item, "dropped", "a device that draws on several counter sets")
            elif uses:
                said = attribute(body, "profile")
                profile = profile_named(said) if milli_of_profile(said) else "whole"
                yield (driver, pool, text_at(uses[0], "counterSet")), (
                    text_at(spec, "nodeName") or pool, text_at(body, "name"), profile,
                    amounts_at(uses[0], "counters"))


def gpus_of_slices(dump: Dump) -> list[MigGpu]:
    """GPUs that drivers publish with counters, and the instances that claims hold."""
    counters: dict[Key, dict[str, int]] = {}
    for item in dump.items.get("ResourceSlice", []):
        spec = dig(item.body, "spec")
        for one in objects_at(spec, "sharedCounters"):
            key = text_at(spec, "driver"), text_at(spec, "pool", "name"), text_at(one, "name")
            counters[key] = amounts_at(one, "counters")
    devices: dict[Key, list[Published]] = {}
    for key, device in devices_by_set(dump):
        devices.setdefault(key, []).append(device)
    holder = holders_of_devices(dump)
    gpus = []
    for key in (key for key in counters if key in devices):
        cuts = cuts_of_devices(key[0], counters[key], [one[2:] for one in devices[key]])
        names = tuple(name for _, name, _, _ in devices[key])
        held = tuple(Instance(number, holder[key[0], key[1], name])
                     for number, name in enumerate(names) if (key[0], key[1], name) in holder)
        gpus.append(MigGpu(devices[key][0][0], key[2], cuts, held, names))
    return gpus


def is_over(item: Item) -> bool:
    """Whether a pod has ended or was deleted."""
    return item.is_deleted or text_at(item.body, "status", "phase") in ("Succeeded", "Failed")


def holders_of_devices(dump: Dump) -> dict[Key, str]:
    """Pod that has each allocated device; the claim's name where no pod is in the files."""
    pods = {key: pod_name(item) for item in dump.items.get("Pod", []) if not is_over(item)
            for key in claims_of(item)}
    held = {}
    for key, claim in dump.claims.items():
        for result in objects_at(claim.body, "status", "allocation", "devices", "results"):
            if result.get("adminAccess") is not True:
                names = [text_at(result, part) for part in ("driver", "pool", "device")]
                held[names[0], names[1], names[2]] = pods.get(key, "claim " + "/".join(key))
    return held


def pack(gpus: Sequence[MigGpu], profiles: Sequence[str]) -> list[Found] | None:
    """Places for instances on GPUs, the largest first; None if they do not all fit."""
    left = [gpu.left for gpu in gpus]
    sizes = {name: max((share_of(gpu.cuts, name) for gpu in gpus if name in gpu.cuts.profiles),
                       default=Fraction(0)) for name in set(profiles)}
    found = []
    for name in sorted(profiles, key=lambda name: (-sizes[name], name)):
        place = find_place(gpus, left, range(len(gpus)), name, ())
        if place is None:
            return None
        left[place.gpu] = less(left[place.gpu], gpus[place.gpu].needs(place.placement))
        found.append(place)
    return found


def cut_as_counted(node: str, cuts: Cuts, counts: Counter[str], labelled: int) -> list[MigGpu]:
    """GPUs that are cut so that the counts come out; none if there is no such cut."""
    evenly = labelled > 0 and not any(count % labelled for count in counts.values())
    tries = [labelled] if evenly else range(max(labelled, 1), 65)
    for number in tries:
        share = [name for name, count in counts.items() for _ in range(
            count // number if evenly else count)]
        blank = [MigGpu(node, str(k), cuts) for k in range(1 if evenly else number)]
        if (places := pack(blank, share)) is not None:
            made = [tuple(sorted(place.placement for place in places if place.gpu == k))
                    for k in range(len(blank))] * (number if evenly else 1)
            return [MigGpu(node, str(k), cuts, tuple(map(Instance, one)))
                    for k, one in enumerate(made)]
    return []


def gpus_of_plugin(item: Item, dump: Dump, tables: Tables) -> list[MigGpu]:
    """GPUs of a node with NVIDIA's device plugin that are cut, or that can be."""
    shown = dump.nodes[text_at(item.body, "metadata", "name")]
    labels = texts_at(item.body, "metadata", "labels")
    node = text_at(item.body, "metadata", "name")
    amounts = amounts_shown(texts_at(item.body, "status", "allocatable"))
    counts = Counter({profile_named(name): number for name, number in amounts.items()
                      if name.startswith(MIG)})
    uncut = 0 if shown.profile else shown.uncut
    if shown.profile:
        counts = Counter({shown.profile: sum(amounts[kind.resource] for kind in shown.kinds
                                             if not kind.resource.startswith(MIG))})
    model = model_named("+".join(shown.models), shown.memory_mib, set(counts),
                        tables)
    if not model or shown.replicas > 1 or labels.get("nvidia.com/mig.capable") == "false":
        if counts:
            dump.note(item, "dropped", "instances on a GPU that is not in the table of profiles")
        return []
    labelled = 0 if shown.profile else (whole(labels.get("nvidia.com/gpu.count")) or 0) - uncut
    cuts = cuts_of_table(tables[model])
    cut = cut_as_counted(node, cuts, counts, max(labelled, 0)) if counts else []
    if counts and not cut:
        dump.note(item, "dropped", f"no GPUs of {model} can be cut into the instances it shows")
        return []
    return cut + [MigGpu(node, str(len(cut) + k), cuts) for k in range(uncut)]


def holdings_of(item: Item, dump: Dump) -> list[Holding]:
    """What a pod of the device plugin asks for or holds."""
    node = dump.nodes.get(text_at(item.body, "spec", "nodeName"), NodeGpus())
    return held_by(item, dump, asked_by_pod(item, dump), node)


def given(gpus: list[MigGpu], profile: str, pod: str) -> list[MigGpu] | None:
    """The GPUs after a pod has got an instance, or a GPU that is not cut; None if none is free."""
    for number, gpu in enumerate(gpus):
        free = [k for k, one in enumerate(gpu.instances) if not one.pod and
                gpu.cuts.placements[one.placement].profile == profile]
        if not profile and not gpu.instances:
            taken = replace(gpu, instances=(Instance(WHOLE, pod),))
        elif profile and free:
            with_pod = replace(gpu.instances[free[0]], pod=pod)
            rest = gpu.instances[:free[0]] + gpu.instances[free[0] + 1:]
            taken = replace(gpu, instances=(with_pod, *rest))
        else:
            continue
        return [*gpus[:number], taken, *gpus[number + 1:]]
    return None


def with_pods(gpus: list[MigGpu], dump: Dump) -> list[MigGpu]:
    """GPUs of nodes with the device plugin, with the pods that hold instances there."""
    by_node: dict[str, list[MigGpu]] = {}
    for gpu in gpus:
        by_node.setdefault(gpu.node, []).append(gpu)
    for item in dump.items.get("Pod", []):
        here = by_node.get(text_at(item.body, "spec", "nodeName"))
        if here is None or is_over(item):
            continue
        for holding in holdings_of(item, dump):
            for _ in range(holding.num_gpus):
                after = given(here, profile_named(holding.mig_profile), pod_name(item))
                if after is None:
                    dump.note(item, "interpreted", "the pod holds an instance that its node does "
                              "not show")
                here = after or here
        by_node[here[0].node] = here
    return [gpu for group in by_node.values() for gpu in group]


@dataclass(frozen=True)
class Ask:
    """A pod that waits for instances.

    Parameters
    ----------
    pod : namespace/name
    profiles : one for each instance; `whole` for a whole GPU of a driver
    by_claim : whether it asks by a ResourceClaim
    """

    pod: str
    profiles: tuple[str, ...]
    by_claim: bool


@dataclass(frozen=True)
class MigCluster:
    """GPUs that are cut or can be, and the pods that wait for instances.

    Parameters
    ----------
    gpus : by node
    asks : higher priority first, then by age
    ledger : file, row, what, reason, count
    """

    gpus: tuple[MigGpu, ...]
    asks: tuple[Ask, ...]
    ledger: pd.DataFrame


def asked_by_claims(item: Item, dump: Dump) -> list[str]:
    """Profiles of claims of a pod that are not allocated."""
    profiles = []
    for claim in (dump.claims[key] for key in claims_of(item) if key in dump.claims):
        said = json.dumps(dig(claim.body, "spec") or {}).lower()
        is_gpu = any(word in said for word in ("gpu", "mig"))
        if is_gpu and not objects_at(claim.body, "status", "allocation", "devices", "results"):
            profiles += [profile_named(one.mig_profile) or "whole"
                         for one in requested_by(claim, dump) for _ in range(one.num_gpus)]
    return profiles


def ask_of(item: Item, dump: Dump) -> Ask | None:
    """What a pod that waits asks for; None if it does not wait, or for no instance."""
    if is_over(item) or text_at(item.body, "spec", "nodeName"):
        return None
    by_claim = bool(objects_at(item.body, "spec", "resourceClaims"))
    profiles = asked_by_claims(item, dump) if by_claim else [
        profile_named(one.mig_profile) for one in holdings_of(item, dump) if one.mig_profile
        for _ in range(one.num_gpus)]
    return Ask(pod_name(item), tuple(sorted(profiles)), by_claim) if profiles else None


def urgency(item: Item) -> tuple[int, str]:
    """Where a pod stands among those that wait: higher priority first, then by age."""
    priority = whole(dig(item.body, "spec", "priority")) or 0
    return -priority, text_at(item.body, "metadata", "creationTimestamp")


def read_mig(sources: Sequence[Source], tables: Tables | None = None) -> MigCluster:
    """Read GPUs that are cut or can be, and the pods that wait for instances.

    Parameters
    ----------
    sources : JSON with nodes, pods and, for DRA, ResourceSlices and ResourceClaims
    tables : of a catalogue, what GPUs can be cut into; None for the one of the package

    Raises
    ------
    InputError : a file is not JSON, or there is no GPU that can be cut
    """
    ledger = Ledger()
    dump = load(sources, ledger)
    node_rows(dump)
    known = tables or default_hardware().migs
    by_plugin = [gpu for item in dump.items.get("Node", [])
                 for gpu in gpus_of_plugin(item, dump, known)]
    gpus = [*with_pods(by_plugin, dump), *gpus_of_slices(dump)]
    if not gpus:
        raise InputError("no node has a GPU that can be cut",
                         file=sources[0].name if sources else "",
                         mend="give the output of kubectl get nodes,pods,resourceslices,"
                         "resourceclaims -A -o json; nvidia.com/gpu.product names the GPU")
    pods = sorted(dump.items.get("Pod", []), key=urgency)
    asks = [ask for item in pods if (ask := ask_of(item, dump))]
    return MigCluster(tuple(gpus), tuple(asks), ledger.frame())


def named(gpu: MigGpu, placement: int) -> dict[str, Any]:
    """Profile, start and device of a placement."""
    if placement == WHOLE:
        return {"profile": "whole", "start": 0, "device": ""}
    one = gpu.cuts.placements[placement]
    return {"profile": one.profile, "start": one.start,
            "device": gpu.devices[placement] if gpu.devices else ""}


def instances_of(cluster: MigCluster) -> pd.DataFrame:
    """All instances that exist.

    Parameters
    ----------
    cluster : what `read_mig` says

    Returns
    -------
    one row per instance: node, gpu, kind, profile, start, device, pod ("" if none has it), known
    ("claim" if a claim says who has it, "assumed" if only the number on the node is known)
    """
    rows = [{"node": gpu.node, "gpu": gpu.name, "kind": gpu.cuts.kind, **named(gpu, one.placement),
             "pod": one.pod, "known": "claim" if gpu.devices else "assumed"}
            for gpu in cluster.gpus for one in gpu.instances]
    columns = ("node", "gpu", "kind", "profile", "start", "device", "pod", "known")
    return pd.DataFrame(rows, columns=list(columns))


Group = tuple[bool, tuple[str, ...]]  # asks by a claim; profiles


class Draft:
    """GPUs on which a layout is being made: what is left of each, and who got what."""

    def __init__(self, gpus: Sequence[MigGpu]) -> None:
        self.gpus = gpus
        self.left = [gpu.left for gpu in gpus]
        self.places: list[tuple[Group, list[Found]]] = []

    def among(self, group: Group) -> list[list[int]]:
        """Sets of GPUs from which a pod may have its instances: all, or those of one node."""
        usable = [k for k, gpu in enumerate(self.gpus) if bool(gpu.devices) == group[0]]
        if len(group[1]) == 1:
            return [usable]
        nodes: dict[str, list[int]] = {}
        for k in usable:
            nodes.setdefault(self.gpus[k].node, []).append(k)
        return list(nodes.values())

    def put(self, group: Group) -> bool:
        """Place all instances of a pod; False, and nothing changed, if they find no room."""
        for among in self.among(group):
            before = list(self.left)
            found = []
            for profile in group[1]:
                place = find_place(self.gpus, self.left, among, profile, ())
                if place is None:
                    break
                found.append(place)
                needs = self.gpus[place.gpu].needs(place.placement)
                self.left[place.gpu] = less(self.left[place.gpu], needs)
            if len(found) == len(group[1]):
                self.places.append((group, found))
                return True
            self.left = before
        return False


def draft_of(gpus: Sequence[MigGpu], counts: Mapping[Group, int]) -> Draft | None:
    """A draft that serves so many pods of each group, the last group first; None if none does."""
    draft = Draft(gpus)
    for group in reversed(list(counts)):
        for _ in range(counts[group]):
            if not draft.put(group):
                return None
    return draft


def most_served(gpus: Sequence[MigGpu], demand: Mapping[Group, int]) -> Draft:
    """A draft that serves as many pods as it can; groups from small to large."""
    counts: dict[Group, int] = {}
    best = Draft(gpus)
    for group, wanted in demand.items():
        low = 0
        high = wanted
        while low < high:  # all at first, then by bisection
            middle = high if high == wanted and low == 0 else (low + high + 1) // 2
            draft = draft_of(gpus, {**counts, group: middle})
            if draft is None:
                high = middle - 1
            else:
                low = middle
                best = draft
        counts[group] = low
    for group, wanted in demand.items():  # whoever fits beside them
        for _ in range(wanted - counts[group]):
            if not best.put(group):
                break
    return best


def groups_of(cluster: MigCluster) -> dict[Group, list[Ask]]:
    """Pods that wait by what they ask for, from small to large."""
    def size(group: Group) -> tuple[int, Fraction, Group]:
        sizes = [min((share_of(gpu.cuts, name) for gpu in kinds.values()
                      if name in gpu.cuts.profiles), default=Fraction(9)) for name in group[1]]
        return len(sizes), sum(sizes, Fraction(0)), group

    kinds = {id(gpu.cuts): gpu for gpu in cluster.gpus}
    groups: dict[Group, list[Ask]] = {}
    for ask in cluster.asks:
        groups.setdefault((ask.by_claim, ask.profiles), []).append(ask)
    return {group: groups[group] for group in sorted(groups, key=size)}


Hold = tuple[bool, int, str, Amounts]  # has to end already, its size, the pod, what it has


def ends_for(needs: Amounts, left: Amounts, holds: Sequence[Hold]) -> tuple[str, ...] | None:
    """Pods that have to end before an instance fits; None if it does not fit without them all.

    Parameters
    ----------
    needs : of the instance
    left : of the GPU, were all pods gone
    holds : of its pods
    """
    if not has_room(needs, left):
        return None
    ending = []
    for _, _, pod, amounts in sorted(holds):  # keep those that need not end, small ones first
        if has_room(needs, less(left, amounts)):
            left = less(left, amounts)
        else:
            ending.append(pod)
    return tuple(sorted(ending))


class Later(NamedTuple):
    """A place for a pod that waits, once pods have ended."""

    place: Found
    after: tuple[str, ...]


class Queue:
    """GPUs with what pods hold of them or will, and the pods that have to end."""

    def __init__(self, gpus: Sequence[MigGpu], new: Sequence[Mapping[int, str]]) -> None:
        self.gpus = gpus
        self.ended: set[str] = set()
        self.length = [0] * len(gpus)
        self.holds: list[dict[str, Amounts]] = [{} for _ in gpus]
        for k, gpu in enumerate(gpus):
            for one in gpu.instances:
                if one.pod:
                    self.hold(k, one.pod, gpu.needs(one.placement))
            for placement, pod in new[k].items():
                self.hold(k, pod, gpu.needs(placement))

    def hold(self, k: int, pod: str, needs: Amounts) -> None:
        """Note what a pod has of a GPU, with what it has already."""
        before = self.holds[k].get(pod, (0,) * len(needs))
        self.holds[k][pod] = tuple(map(sum, zip(before, needs, strict=True)))

    def best(self, among: Sequence[int], profile: str, own: Mapping[int, Amounts]) -> Later | None:
        """Place with the fewest new ends among some GPUs, of which the pod has some already."""
        options: list[tuple[int, int, int, int, tuple[str, ...]]] = []
        for k in among:
            cuts = self.gpus[k].cuts
            left = less(cuts.capacity, own[k]) if k in own else cuts.capacity
            holds = [(pod in self.ended, sum(held), pod, held)
                     for pod, held in self.holds[k].items()]
            for number, one in enumerate(cuts.placements):
                if one.profile == profile:
                    ending = ends_for(one.needs, left, holds)
                    if ending is not None:
                        options.append((len(set(ending) - self.ended), self.length[k], k, number,
                                        ending))
        if not options:
            return None
        _, _, k, number, ending = min(options)
        return Later(Found(k, number), ending)


def on_one_node(queue: Queue, among: Sequence[int], profiles: Sequence[str]) -> list[Later]:
    """Places for all instances of a pod among some GPUs; none if they never fit."""
    own: dict[int, Amounts] = {}
    found = []
    for profile in profiles:
        later = queue.best(among, profile, own)
        if later is None:
            return []
        needs = queue.gpus[later.place.gpu].needs(later.place.placement)
        before = own.get(later.place.gpu, (0,) * len(needs))
        own[later.place.gpu] = tuple(map(sum, zip(before, needs, strict=True)))
        found.append(later)
    return found


def wait_for(queue: Queue, sets: Sequence[Sequence[int]], ask: Ask) -> list[Later]:
    """Places for a pod that waits, on one of some sets of GPUs; none if it never fits."""
    options = [found for among in sets if (found := on_one_node(queue, among, ask.profiles))]
    if not options:
        return []
    found = min(options, key=lambda found: len({pod for one in found for pod in one.after}
                                               - queue.ended))
    for (k, placement), after in found:
        needs = queue.gpus[k].needs(placement)
        for pod in after:  # whoever waits for this pod has waited for those as well
            if pod in queue.holds[k] and not any(
                    held > need for held, need in zip(queue.holds[k][pod], needs, strict=True)):
                del queue.holds[k][pod]
        queue.hold(k, ask.pod, needs)
        queue.length[k] += 1
        queue.ended |= set(after)
    return found


@dataclass(frozen=True)
class MigPlan:
    """A layout for the pods that wait.

    Parameters
    ----------
    cluster : what it was made for
    table : node, gpu, profile, start, device, state, pod, after (pods that must end first, by |),
        known
    """

    cluster: MigCluster
    table: pd.DataFrame

    @property
    def num_served(self) -> int:
        """Pods that it serves without that anything ends."""
        now = self.table["state"].isin(["ready", "new"])
        return int(self.table.loc[now, "pod"].nunique())

    def lines(self) -> list[str]:
        """The result in sentences."""
        waiting = self.table[self.table["state"].isin(["later", "nowhere"])]
        said = [f"{self.num_served} of {len(self.cluster.asks)} pods that wait for MIG instances "
                "can be served"]
        for row in waiting.itertuples():
            where = f"{row.node} GPU {row.gpu}"
            pods = str(row.after).replace("|", " and ")
            said.append(f"{row.pod} ({row.profile}): on {where}, once {pods} ended"
                        if row.state == "later" else
                        f"{row.pod} ({row.profile}): no GPU here can make such an instance")
        return said


def rows_of_gpu(gpu: MigGpu, new: Mapping[int, str], left: Amounts) -> list[dict[str, Any]]:
    """Instances of a GPU in a layout: placements of new ones with their pods, and what is left."""
    states = []
    for one in gpu.instances:
        needs = gpu.needs(one.placement)
        if one.pod:
            states.append(("in use", one.placement, one.pod))
        elif one.placement in new:
            states.append(("ready", one.placement, new[one.placement]))
        elif has_room(needs, left):
            left = less(left, needs)
            states.append(("idle", one.placement, ""))
        else:
            states.append(("goes", one.placement, ""))
    states += [("new", number, pod) for number, pod in new.items() if number not in gpu.idle]
    return [row_of(gpu, number, state, pod) for state, number, pod in
            sorted(states, key=lambda one: (named(gpu, one[1])["start"], one))]


def row_of(gpu: MigGpu, placement: int, state: str, pod: str, after: str = "") -> dict[str, Any]:
    """Row of an instance in the table of a layout."""
    return {"node": gpu.node, "gpu": gpu.name, **named(gpu, placement), "state": state,
            "pod": pod, "after": after, "known": "claim" if gpu.devices else "assumed"}


def recommend_mig(cluster: MigCluster) -> MigPlan:
    """Find a layout that serves most pods, and say who must end for the others.

    Parameters
    ----------
    cluster : what `read_mig` says
    """
    groups = groups_of(cluster)
    draft = most_served(cluster.gpus, {group: len(asks) for group, asks in groups.items()})
    waiting = {group: list(asks) for group, asks in groups.items()}
    new: list[dict[int, str]] = [{} for _ in cluster.gpus]
    for group, places in draft.places:
        ask = waiting[group].pop(0)
        for place in places:
            new[place.gpu][place.placement] = ask.pod
    rows = [row for gpu, here, left in zip(cluster.gpus, new, draft.left, strict=True)
            for row in rows_of_gpu(gpu, here, left)]
    queue = Queue(cluster.gpus, new)
    for group, asks in waiting.items():
        for ask in asks:
            later = wait_for(queue, draft.among(group), ask)
            rows += [row_of(cluster.gpus[one.place.gpu], one.place.placement, "later", ask.pod,
                            "|".join(one.after)) for one in later] or [
                {"profile": "+".join(group[1]), "state": "nowhere", "pod": ask.pod}]
    columns = ["node", "gpu", "profile", "start", "device", "state", "pod", "after", "known"]
    whole_rows = [dict.fromkeys(columns, "") | row for row in rows]
    return MigPlan(cluster, pd.DataFrame(whole_rows, columns=columns, dtype=object))


def mig_parted(plan: MigPlan) -> str:
    """A configuration for NVIDIA's mig-parted, one for each node whose GPUs a plugin shows.

    Parameters
    ----------
    plan : what `recommend_mig` says; `later` is left out, since it cannot be made yet
    """
    lines = ["version: v1", "mig-configs:"]
    stays = plan.table[plan.table["state"].isin(["in use", "idle", "ready", "new"])]
    changes = plan.table[plan.table["state"].isin(["new", "goes"])]
    gpus = [gpu for gpu in plan.cluster.gpus if not gpu.devices]
    for node in dict.fromkeys(gpu.node for gpu in gpus):
        lines.append(f"  {json.dumps('sched-lab-' + node)}:")
        for gpu in (gpu for gpu in gpus if gpu.node == node):
            here = stays[(stays["node"] == node) & (stays["gpu"] == gpu.name)]
            changed = ((changes["node"] == node) & (changes["gpu"] == gpu.name)).any()
            pods = [one.pod for one in gpu.instances if one.pod]
            counts = Counter(here["profile"])
            if changed and pods:
                lines.append(f"    # must end before this GPU changes: {json.dumps(pods)[1:-1]}")
            lines.append(f"    - devices: [{gpu.name}]")
            is_cut = bool(counts) and "whole" not in counts
            lines.append(f"      mig-enabled: {json.dumps(is_cut)}")
            if is_cut:
                lines.append("      mig-devices:")
                lines += [f"        {json.dumps(name)}: {n}" for name, n in sorted(counts.items())]
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


@dataclass(frozen=True)
class MigReport(Report):
    """A layout as files: layout.csv, ledger.csv, summary.json and mig-parted.yaml."""

    parted: str

    def write_tables(self, folder: Path) -> None:
        """Write the tables, and the configuration, into a folder that exists."""
        super().write_tables(folder)
        write_bytes(self.parted.encode(), Path(folder, "mig-parted.yaml"))


def report_of(plan: MigPlan) -> MigReport:
    """Report of a layout.

    Parameters
    ----------
    plan : what `recommend_mig` says
    """
    states = {str(name): int(count) for name, count in plan.table["state"].value_counts().items()}
    summary = {"gpus": len(plan.cluster.gpus), "pods": len(plan.cluster.asks),
               "served": plan.num_served, "instances": states}
    tables = {"layout.csv": plan.table, "ledger.csv": plan.cluster.ledger}
    return MigReport(summary, tables, {}, plan.lines()[0], mig_parted(plan))


def text_of(plan: MigPlan) -> str:
    """A layout as a file for mig-parted, with all that is not its own as comments."""
    table = plan.table.map(printable).to_string(index=False) if len(plan.table) else ""
    said = [*plan.lines(), "", *table.splitlines()]
    comments = "".join(f"# {line}".rstrip() + "\n" for line in map(printable, said))
    return comments + mig_parted(plan)


def printable(value: Any) -> Any:
    """A text on one line, whatever characters it has; other values as they are."""
    return value if not isinstance(value, str) else "".join(
        letter if letter.isprintable() else "?" for letter in value)


def mig_advice(files: Sequence[str | Path], as_json: bool,
               tables: Tables | None = None) -> tuple[str, bool]:
    """What `sched-lab recommend --mig` prints, and whether every pod that waits is served.

    Parameters
    ----------
    files : with nodes, pods and, for DRA, ResourceSlices and ResourceClaims
    as_json : the table and the sentences in JSON
    tables : as in `read_mig`

    Raises
    ------
    InputError : as `read_mig`
    """
    plan = recommend_mig(read_mig(sources_of(list(files)), tables))
    is_served = plan.num_served == len(plan.cluster.asks)
    if not as_json:
        return text_of(plan), is_served
    told = {"said": plan.lines(), "layout": plan.table.to_dict("records"),
            "mig_parted": mig_parted(plan)}
    return json.dumps(told, indent=1), is_served
