"""Nodes whose GPUs are cut, or can be cut, into instances: the cut that leaves most of use, and the layout that serves most of the pods that wait."""

# A module, written by hand.

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import pandas as pd

from ...far.layout import device_lines
from ...hardware import MigTable, default_hardware
from ...lab.frames import InputError, printable
from ..read.devices import MIG, amounts_shown
from ..read.gangs import join_gangs
from ..read.kubernetes import (
    Dump,
    Holding,
    NodeGpus,
    asked_by_pod,
    attribute,
    claims_of,
    held_by,
    load,
    node_rows,
    pod_name,
    requested_by,
    times_of,
)
from ..read.objects import Item, dig, objects_at, text_at, whole
from ..read.tables import Ledger, Source, milli_of_profile, profile_named

__all__ = ['read_mig', 'recommend_mig']

Tables = Mapping[str, MigTable]


def model_named(product: str, memory_mib: int | None, profiles: set[str], known: Tables) -> str:
    """Line of the table for a product label, the memory of a GPU and the profiles that it shows.

    Empty if no line agrees with all of them, or more than one.

    Parameters
    ----------
    product, memory_mib, profiles : of a GPU, as far as a node shows them
    known : tables of a catalogue
    """
    words = set(re.split(r"[^A-Z0-9]+", product.upper()))
    lines = [name for name in known if set(name.upper().split("-")[:-1] or [name]) <= words]
    lines = [name for name in lines if name.split("-")[-1] in words] or lines
    if len(lines) > 1 and memory_mib:
        lines = [name for name in lines if abs(known[name].memory_mib - memory_mib) < 3000]
    lines = [name for name in lines if profiles <= {one.name for one in known[name].profiles}]
    return lines[0] if len(lines) == 1 else ""


Amounts = tuple[int, ...]


def has_room(needs: Amounts, left: Amounts) -> bool:
    """Whether amounts fit into what is left; a counter that is not needed does not matter."""
    return all(need <= rest for need, rest in zip(needs, left, strict=True) if need)


def less(left: Amounts, needs: Amounts) -> Amounts:
    """What is left afterwards."""
    return tuple(rest - need for rest, need in zip(left, needs, strict=True))


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
    kind : a table of the catalogue, or the name of a driver
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


def cuts_of_table(table: MigTable) -> Cuts:
    """What a GPU can be cut into: a counter for each memory slice, and one for the engines."""
    _, slices = table.slices
    placements = []
    for one in table.profiles:
        for start in one.starts if not one.name.endswith("+me.all") else ():
            bits = [int(start <= slot < start + one.memory_slices) for slot in range(slices)]
            placements.append(Placement(one.name, start, (*bits, int(one.name.endswith("+me")))))
    return cuts_with(table.name, (1,) * (slices + 1), tuple(placements))


@lru_cache(maxsize=2**16)
def most_of(cuts: Cuts, left: Amounts) -> tuple[int, ...]:
    """$N_q$: how many instances of each profile alone could still be made, (profiles,)."""
    counts = dict.fromkeys(cuts.profiles, 0)
    for name in counts:
        rest = left
        for needs in sorted((one.needs for one in cuts.placements if one.profile == name), key=sum):
            if has_room(needs, rest):  # the small ones first
                rest = less(rest, needs)
                counts[name] += 1
    return tuple(counts.values())


@lru_cache(maxsize=2**16)
def share_of(cuts: Cuts, profile: str) -> Fraction:
    """$u_q$: share of a GPU that a profile takes, the mean over all counters."""
    needs = next(one.needs for one in cuts.placements if one.profile == profile)
    parts = [Fraction(need, size) for need, size in zip(needs, cuts.capacity, strict=True) if size]
    return sum(parts, Fraction(0)) / max(len(parts), 1)


Weights = tuple[tuple[str, int], ...]  # demand by profile; empty: every profile alike


@lru_cache(maxsize=2**16)
def worth(cuts: Cuts, left: Amounts, weights: Weights) -> Fraction:
    """$V$: share of the GPU that profiles could still use, weighted by demand."""
    demand = dict(weights or ((name, 1) for name in cuts.profiles))
    return sum((demand.get(name, 0) * share_of(cuts, name) * most for name, most in
                zip(cuts.profiles, most_of(cuts, left), strict=True)), Fraction(0))


@lru_cache(maxsize=2**16)
def cheapest(cuts: Cuts, left: Amounts, idle: frozenset[int], profile: str,
             weights: Weights = ()) -> tuple[Fraction, int] | None:
    """Least loss of a placement of a profile, and which one; None if none is possible."""
    before = worth(cuts, left, weights)
    best = min(((before - worth(cuts, less(left, one.needs), weights), number not in idle, number)
                for number, one in enumerate(cuts.placements)
                if one.profile == profile and has_room(one.needs, left)), default=None)
    return best and (best[0], best[2])


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


class Found(NamedTuple):
    """A place for an instance: number of the GPU, and of the placement in its `Cuts`."""

    gpu: int
    placement: int


def find_place(gpus: Sequence[MigGpu], left: Sequence[Amounts], among: Sequence[int], profile: str,
               weights: Weights = ()) -> Found | None:
    """Place where the least of what could still be made is lost; None if it fits nowhere.

    Parameters
    ----------
    gpus, left : GPUs, and what is left of each
    among : numbers of those where the instance may go
    profile : `3g.20gb`
    weights : demand by profile, for instance how many pods wait for each
    """
    seen = set()
    options = []
    for number in among:
        gpu = gpus[number]
        state = gpu.cuts, left[number], gpu.idle
        if state not in seen and (found := cheapest(*state, profile, weights)):
            options.append((found[0], found[1] not in gpu.idle, number, found[1]))
        seen.add(state)
    return Found(*min(options)[2:]) if options else None


def place_all(gpus: Sequence[MigGpu], left: list[Amounts], among: Sequence[int],
              profiles: Sequence[str]) -> list[Found] | None:
    """Places for instances in turn, taken off what is left; None, and nothing taken, if one fails."""
    before = list(left)
    found = []
    for profile in profiles:
        place = find_place(gpus, left, among, profile)
        if place is None:
            left[:] = before
            return None
        left[place.gpu] = less(left[place.gpu], gpus[place.gpu].needs(place.placement))
        found.append(place)
    return found


# --- what drivers and device plugins show

def amounts_at(value: Any) -> dict[str, int]:
    """Amounts of its counters, in thousandths."""
    found = dig(value, "counters")
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


def holders_of_devices(dump: Dump) -> dict[Key, str]:
    """Pod that has each allocated device; the claim's name where no pod is in the files."""
    pods = {key: pod_name(item) for item in dump.items.get("Pod", []) if not item.is_over
            for key in claims_of(item)}
    held = {}
    for key, claim in dump.claims.items():
        for result in objects_at(claim.body, "status", "allocation", "devices", "results"):
            if result.get("adminAccess") is not True:
                names = [text_at(result, part) for part in ("driver", "pool", "device")]
                held[names[0], names[1], names[2]] = pods.get(key, "claim " + "/".join(key))
    return held


def gpus_of_slices(dump: Dump) -> list[MigGpu]:
    """GPUs that drivers publish with counters, and the instances that claims hold."""
    counters: dict[Key, dict[str, int]] = {}
    devices: dict[Key, list[tuple[str, str, str, dict[str, int]]]] = {}
    for item in dump.items.get("ResourceSlice", []):
        spec = dig(item.body, "spec")
        driver, pool = text_at(spec, "driver"), text_at(spec, "pool", "name")
        for one in objects_at(spec, "sharedCounters"):
            counters[driver, pool, text_at(one, "name")] = amounts_at(one)
        for body in objects_at(spec, "devices"):
            basic = body.get("basic") if isinstance(body.get("basic"), dict) else body
            uses = objects_at(basic, "consumesCounters")
            if len(uses) > 1:
                dump.note(item, "dropped", "a device that draws on several counter sets")
            elif uses:
                said = attribute(body, "profile")
                profile = profile_named(said) if milli_of_profile(said) else "whole"
                devices.setdefault((driver, pool, text_at(uses[0], "counterSet")), []).append((
                    text_at(spec, "nodeName") or pool, text_at(body, "name"), profile,
                    amounts_at(uses[0])))
    holder = holders_of_devices(dump)
    gpus = []
    for key in (key for key in counters if key in devices):
        nodes, names, profiles, uses_of = zip(*devices[key], strict=True)
        cuts = cuts_of_devices(key[0], counters[key], list(zip(profiles, uses_of, strict=True)))
        held = tuple(Instance(number, holder[key[0], key[1], name])
                     for number, name in enumerate(names) if (key[0], key[1], name) in holder)
        gpus.append(MigGpu(nodes[0], key[2], cuts, held, names))
    return gpus


def cut_as_counted(node: str, cuts: Cuts, counts: Counter[str], labelled: int) -> list[MigGpu]:
    """GPUs that are cut so that the counts come out; none if there is no such cut."""
    evenly = labelled > 0 and not any(count % labelled for count in counts.values())
    for number in [labelled] if evenly else range(max(labelled, 1), 65):
        one = [name for name, count in counts.items()
               for _ in range(count // number if evenly else count)]
        if not set(one) <= set(cuts.profiles):
            break
        one.sort(key=lambda name: (-share_of(cuts, name), name))  # the largest first
        blank = [MigGpu(node, str(k), cuts) for k in range(1 if evenly else number)]
        places = place_all(blank, [cuts.capacity] * len(blank), range(len(blank)), one)
        if places is not None:
            made = [tuple(sorted(place.placement for place in places if place.gpu == k))
                    for k in range(len(blank))] * (number if evenly else 1)
            return [MigGpu(node, str(k), cuts, tuple(map(Instance, each)))
                    for k, each in enumerate(made)]
    return []


def gpus_of_plugin(item: Item, dump: Dump, tables: Tables) -> list[MigGpu]:
    """GPUs of a node with NVIDIA's device plugin that are cut, or that can be."""
    node, labels = item.name, item.labels
    shown = dump.nodes[node]
    amounts = amounts_shown(item.allocatable)
    if shown.profile:  # its instances are called GPUs
        uncut = labelled = 0
        counts = Counter({shown.profile: sum(amounts[kind.resource] for kind in shown.kinds
                                             if not kind.resource.startswith(MIG))})
    else:
        uncut = shown.uncut
        labelled = max((whole(labels.get("nvidia.com/gpu.count")) or 0) - uncut, 0)
        counts = Counter({profile_named(name): number for name, number in amounts.items()
                          if name.startswith(MIG)})
    model = model_named("+".join(shown.models), shown.memory_mib, set(counts), tables)
    if not model or shown.replicas > 1 or labels.get("nvidia.com/mig.capable") == "false":
        if counts:
            dump.note(item, "dropped", "instances on a GPU that is not in the table of profiles")
        return []
    cuts = cuts_of_table(tables[model])
    cut = cut_as_counted(node, cuts, counts, labelled) if counts else []
    if counts and not cut:
        dump.note(item, "dropped", f"no GPUs of {model} can be cut into the instances it shows")
        return []
    return cut + [MigGpu(node, str(len(cut) + k), cuts) for k in range(uncut)]


def holdings_of(item: Item, dump: Dump) -> list[Holding]:
    """What a pod of the device plugin asks for or holds."""
    return held_by(item, dump, asked_by_pod(item, dump), dump.nodes.get(item.node, NodeGpus()))


def give(gpus: list[MigGpu], profile: str, pod: str) -> bool:
    """Give a pod an instance, or a GPU that is not cut; False if none is free."""
    for number, gpu in enumerate(gpus):
        free = [one for one in gpu.instances if not one.pod
                and gpu.cuts.placements[one.placement].profile == profile]
        if free:
            rest = [one for one in gpu.instances if one is not free[0]]
            gpus[number] = replace(gpu, instances=(replace(free[0], pod=pod), *rest))
        elif not profile and not gpu.instances:
            gpus[number] = replace(gpu, instances=(Instance(WHOLE, pod),))
        else:
            continue
        return True
    return False


def with_pods(gpus: list[MigGpu], dump: Dump) -> list[MigGpu]:
    """GPUs of nodes with the device plugin, with the pods that hold instances there."""
    by_node: dict[str, list[MigGpu]] = {}
    for gpu in gpus:
        by_node.setdefault(gpu.node, []).append(gpu)
    for item in dump.items.get("Pod", []):
        here = by_node.get(item.node)
        if here is None or item.is_over:
            continue
        for holding in holdings_of(item, dump):
            for _ in range(holding.num_gpus):
                if not give(here, profile_named(holding.mig_profile), pod_name(item)):
                    dump.note(item, "interpreted", "the pod holds an instance that its node does "
                              "not show")
    return [gpu for group in by_node.values() for gpu in group]


@dataclass(frozen=True)
class Ask:
    """A pod that waits for instances.

    Parameters
    ----------
    pod : namespace/name
    profiles : one for each instance; `whole` for a whole GPU of a driver
    by_claim : whether it asks by a ResourceClaim
    job : group with which it starts together; empty if it is alone
    lacking_parts : how many pods the group should have and has not
    """

    pod: str
    profiles: tuple[str, ...]
    by_claim: bool
    job: str = ""
    lacking_parts: int = 0


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
    if item.is_over or item.node:
        return None
    by_claim = bool(item.objects("spec", "resourceClaims"))
    profiles = asked_by_claims(item, dump) if by_claim else [
        profile_named(one.mig_profile) for one in holdings_of(item, dump) if one.mig_profile
        for _ in range(one.num_gpus)]
    return Ask(pod_name(item), tuple(sorted(profiles)), by_claim) if profiles else None


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
    unread = Dump(Ledger())  # what times lack changes no layout
    pods = [(item, [row]) for item in dump.items["Pod"] if (row := times_of(item, unread)) is not None]
    join_gangs(pods, [*dump.items["PodGroup"], *dump.items["Workload"]], dump.note)
    pods.sort(key=lambda pod: (-(whole(dig(pod[0].body, "spec", "priority")) or 0),
                               text_at(pod[0].body, "metadata", "creationTimestamp")))
    asks = [replace(ask, job=row.get("job", ""), lacking_parts=row.get("lacking_parts") or 0)
            for item, (row,) in pods if (ask := ask_of(item, dump))]
    return MigCluster(tuple(gpus), tuple(asks), ledger.frame())


def row_of(gpu: MigGpu, placement: int, **more: str) -> dict[str, Any]:
    """Row of an instance in a table."""
    one = Placement("whole", 0, ()) if placement == WHOLE else gpu.cuts.placements[placement]
    device = gpu.devices[placement] if gpu.devices and placement != WHOLE else ""
    return {"node": gpu.node, "gpu": gpu.name, "profile": one.profile, "start": one.start,
            "device": device, "known": "claim" if gpu.devices else "assumed", **more}


# --- pods that can be served now

Group = tuple[bool, tuple[str, ...]]  # asks by a claim; profiles


def sets_for(gpus: Sequence[MigGpu], group: Group) -> list[list[int]]:
    """Sets of GPUs from which a pod may have its instances: all, or those of one node."""
    by_claim, profiles = group
    nodes: dict[str, list[int]] = {}
    for k, gpu in enumerate(gpus):
        if bool(gpu.devices) == by_claim:
            nodes.setdefault(gpu.node if len(profiles) > 1 else "", []).append(k)
    return list(nodes.values())


class Draft:
    """GPUs on which a layout is being made: what is left of each, and who got what."""

    def __init__(self, gpus: Sequence[MigGpu]) -> None:
        self.gpus = gpus
        self.left = [gpu.left for gpu in gpus]
        self.places: list[tuple[Group, list[Found]]] = []

    def put(self, group: Group) -> bool:
        """Place all instances of a pod; False, and nothing changed, if they find no room."""
        for among in sets_for(self.gpus, group):
            found = place_all(self.gpus, self.left, among, group[1])
            if found is not None:
                self.places.append((group, found))
                return True
        return False


def most_served(gpus: Sequence[MigGpu], demand: Mapping[Group, int]) -> Draft:
    """A draft that serves as many pods as it can; groups from small to large."""
    counts: dict[Group, int] = {}
    best = Draft(gpus)
    for group, wanted in demand.items():
        low = 0
        high = wanted
        while low < high:  # all at first, then by bisection
            middle = high if high == wanted and low == 0 else (low + high + 1) // 2
            draft = Draft(gpus)
            tried = {**counts, group: middle}  # the last group is placed first
            if all(draft.put(each) for each in reversed(tried) for _ in range(tried[each])):
                low = middle
                best = draft
            else:
                high = middle - 1
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


# --- pods that have to wait until others end

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


Later = tuple[Found, tuple[str, ...]]  # a place for an instance, once these pods have ended


def add(held: dict[Any, Amounts], key: Any, needs: Amounts) -> None:
    """Add to what somebody, or what of a GPU, is held already."""
    held[key] = tuple(map(sum, zip(held.get(key, (0,) * len(needs)), needs, strict=True)))


class Queue:
    """GPUs with what pods hold of them or will, and the pods that have to end."""

    def __init__(self, gpus: Sequence[MigGpu], new: Sequence[Mapping[int, str]]) -> None:
        self.gpus = gpus
        self.ended: set[str] = set()
        self.length = [0] * len(gpus)
        self.holds: list[dict[str, Amounts]] = [{} for _ in gpus]
        for gpu, holds, coming in zip(gpus, self.holds, new, strict=True):
            placed = [(one.placement, one.pod) for one in gpu.instances if one.pod]
            for placement, pod in [*placed, *coming.items()]:
                add(holds, pod, gpu.needs(placement))

    def best(self, among: Sequence[int], profile: str, own: Mapping[int, Amounts]) -> Later | None:
        """Place with the fewest new ends among some GPUs, of which the pod has some already."""
        options: list[tuple[int, int, int, int, tuple[str, ...]]] = []
        for k in among:
            cuts = self.gpus[k].cuts
            left = less(cuts.capacity, own[k]) if k in own else cuts.capacity
            holds = [(pod in self.ended, sum(held), pod, held)
                     for pod, held in self.holds[k].items()]
            for number, one in enumerate(cuts.placements):
                if one.profile == profile and (ending := ends_for(one.needs, left, holds)) is not None:
                    options.append((len(set(ending) - self.ended), self.length[k], k, number, ending))
        best = min(options, default=None)
        return best and (Found(*best[2:4]), best[4])

    def together(self, among: Sequence[int], profiles: Sequence[str]) -> list[Later]:
        """Places for all instances of a pod among some GPUs; none if they never fit."""
        own: dict[int, Amounts] = {}
        found = []
        for profile in profiles:
            later = self.best(among, profile, own)
            if later is None:
                return []
            k, placement = later[0]
            add(own, k, self.gpus[k].needs(placement))
            found.append(later)
        return found

    def wait(self, ask: Ask) -> list[Later]:
        """Places for a pod that waits; none if it never fits."""
        sets = sets_for(self.gpus, (ask.by_claim, ask.profiles))
        options = [found for among in sets if (found := self.together(among, ask.profiles))]
        found = min(options, default=[], key=lambda found: len({pod for _, after in found for pod in after}
                                                               - self.ended))
        for (k, placement), after in found:
            needs = self.gpus[k].needs(placement)
            for pod in after:  # whoever waits for this pod has waited for those as well
                if pod in self.holds[k] and not any(
                        held > need for held, need in zip(self.holds[k][pod], needs, strict=True)):
                    del self.holds[k][pod]
            add(self.holds[k], ask.pod, needs)
            self.length[k] += 1
            self.ended |= set(after)
        return found


# --- the layout

@dataclass(frozen=True)
class MigPlan:
    """A layout for the pods that wait.

    Parameters
    ----------
    cluster : what it was made for
    table : node, gpu, profile, start, device, state, pod, after (pods that must end first, by |),
        known
    apart : why each group of which not all can start gets nothing
    """

    cluster: MigCluster
    table: pd.DataFrame
    apart: Mapping[str, str]

    @property
    def served(self) -> set[str]:
        """Pods that it serves without that anything ends."""
        return set(self.table.loc[self.table["state"].isin(["ready", "new"]), "pod"])

    @property
    def is_served(self) -> bool:
        """Whether all pods that wait can be served."""
        return len(self.served) == len(self.cluster.asks)

    @property
    def headline(self) -> str:
        """How many pods it serves, in a line."""
        return (f"{len(self.served)} of {len(self.cluster.asks)} pods that wait for MIG instances "
                "can be served")

    def sentences(self) -> list[str]:
        """The headline, and what each pod that it does not serve has to wait for."""
        waiting = self.table[self.table["state"].isin(["later", "nowhere"])]
        said = [self.headline]
        for row in waiting.itertuples():
            where = f"{row.node} GPU {row.gpu}"
            pods = str(row.after).replace("|", " and ")
            said.append(f"{row.pod} ({row.profile}): on {where}, once {pods} ended"
                        if row.state == "later" else
                        f"{row.pod} ({row.profile}): no GPU here can make such an instance")
        return said + [f"{ask.pod} ({'+'.join(ask.profiles)}): its group {ask.job} cannot start: {self.apart[ask.job]}"
                       for ask in self.cluster.asks if ask.job in self.apart]

    def lines(self) -> list[str]:
        """A file for mig-parted, with all that is not its own as comments."""
        shown = self.table.map(lambda cell: printable(cell) if isinstance(cell, str) else cell)
        table = shown.to_string(index=False) if len(shown) else ""
        said = [*map(printable, self.sentences()), "", *table.splitlines()]
        return [*(f"# {line}".rstrip() for line in said), *mig_parted(self)]

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {"said": self.sentences(), "layout": self.table.to_dict("records"),
                "mig_parted": "".join(f"{line}\n" for line in mig_parted(self))}


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
    rows = [row_of(gpu, placement, state=state, pod=pod)
            for state, placement, pod in sorted(states)]
    return sorted(rows, key=lambda row: row["start"])


def recommend_mig(cluster: MigCluster) -> MigPlan:
    """Find a layout that serves most pods, and say who must end for the others.

    The pods of a group get their instances together or not at all: group after group, in the order of their first
    pods, it is tried whether all get theirs beside those of the groups before. Pods of it that ask for no instance are
    not looked at.

    Parameters
    ----------
    cluster : what `read_mig` says
    """
    asks = cluster.asks
    jobs = dict.fromkeys(ask.job for ask in asks if ask.job)
    lacking = {ask.job: f"it lacks {ask.lacking_parts} of its pods" for ask in asks if ask.lacking_parts}
    plan = layout_without(cluster, dict.fromkeys(jobs, "not all of its pods that wait get instances") | lacking)
    for job in (job for job in jobs if job not in lacking):
        tried = layout_without(cluster, {name: why for name, why in plan.apart.items() if name != job})
        if all(ask.pod in tried.served for ask in asks if ask.job and ask.job not in tried.apart):
            plan = tried
    return plan


def layout_without(cluster: MigCluster, apart: Mapping[str, str]) -> MigPlan:
    """A layout for all pods but those of some groups.

    Parameters
    ----------
    cluster : what `read_mig` says
    apart : the groups, and why they get nothing
    """
    waiting = groups_of(replace(cluster, asks=tuple(ask for ask in cluster.asks if ask.job not in apart)))
    draft = most_served(cluster.gpus, {group: len(asks) for group, asks in waiting.items()})
    new: list[dict[int, str]] = [{} for _ in cluster.gpus]
    for group, places in draft.places:
        ask = waiting[group].pop(0)
        for place in places:
            new[place.gpu][place.placement] = ask.pod
    rows = [row for gpu, here, left in zip(cluster.gpus, new, draft.left, strict=True)
            for row in rows_of_gpu(gpu, here, left)]
    queue = Queue(cluster.gpus, new)
    for ask in (ask for asks in waiting.values() for ask in asks):
        rows += [row_of(cluster.gpus[k], placement, state="later", pod=ask.pod,
                        after="|".join(after)) for (k, placement), after in queue.wait(ask)] or [
            {"profile": "+".join(ask.profiles), "state": "nowhere", "pod": ask.pod}]
    rows += [{"profile": "+".join(ask.profiles), "state": "apart", "pod": ask.pod}
             for ask in cluster.asks if ask.job in apart]
    columns = ["node", "gpu", "profile", "start", "device", "state", "pod", "after", "known"]
    whole_rows = [dict.fromkeys(columns, "") | row for row in rows]
    return MigPlan(cluster, pd.DataFrame(whole_rows, columns=columns, dtype=object), apart)


def mig_parted(plan: MigPlan) -> list[str]:
    """Lines of a configuration for NVIDIA's mig-parted, of each node whose GPUs a plugin shows.

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
            lines += device_lines(gpu.name, bool(counts) and "whole" not in counts, counts)
    return lines if len(lines) > 2 else []
