"""HAMi's side: kubelet and device plugin of a node on a store, and a world of such nodes for the simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sched_lab.fleet.live.bridge import ApiError, BindingArgs, Call, Steps
from sched_lab.fleet.live.core import LiveNode, LivePod
from sched_lab.fleet.live.hami import LOCK_S, HamiBridge, HamiObjects, lock_of
from sched_lab.fleet.read.dates import seconds_of
from sched_lab.fleet.read.devices import HAMI
from tests.fleet.faults import ACTIONS, Broken, Makers, Simulation, World, answer, end, held_by_ours, pass_time
from tests.fleet.objects import node
from tests.fleet.store import Body, Store

REGISTER = "hami.io/node-nvidia-register"
DEVICES, TO_ALLOCATE = HAMI.given[:2]
MIB = 16384
GPU = "nvidia.com/gpu"
Given = list[list[tuple[str, int, int]]]  # by container: name, MiB, percent of the cores


def given_in(text: str) -> Given:
    """Devices in an annotation, read plainly."""
    cells = [[entry.split(",") for entry in part.split(":") if entry] for part in text.split(";")]
    return [[(name, int(mib), int(cores)) for name, _, mib, cores in entries] for entries in cells]


def said_of(body: Body, name: str) -> str:
    """Return an annotation; empty if there is none."""
    return body["metadata"].get("annotations", {}).get(name, "")


def register_of(names: Sequence[str], ill: Sequence[str] = (), model: str = "NVIDIA-T4") -> str:
    """Register of a node, with the health of each GPU."""
    return "".join(f"{name},10,{MIB},100,{model},0,{str(name not in ill).lower()}:" for name in names)


class Plugin:
    """Kubelet and device plugin of a node, as HAMi's `server.go`, `util.go` and `nodelock.go` do it.

    Parameters
    ----------
    store, name, names : of objects; of the node; of its GPUs

    Attributes
    ----------
    asleep_s : until when the simulation asks it for nothing
    used, refused : devices that containers really got, by uid of their pod; pods that got none
    """

    def __init__(self, store: Store, name: str, names: Sequence[str] = ()) -> None:
        self.store = store
        self.name = name
        self.names = names
        self.asleep_s = 0.0
        self.used: dict[str, list[tuple[str, int, int]]] = {}
        self.refused: set[str] = set()

    def pods(self) -> list[Body]:
        """Pods of the node, in the order in which they came."""
        bodies = [body for body in self.store.objects["pods"].values() if body["spec"].get("nodeName") == self.name]
        return sorted(bodies, key=lambda body: int(body["metadata"]["uid"].strip("uid-") or 0))

    def waiting(self) -> list[Body]:
        """Pods whose containers have not started, and ask for GPUs."""
        return [body for body in self.pods() if body["status"]["phase"] == "Pending" and any(counts_of(body))
                and body["metadata"]["uid"] not in {*self.used, *self.refused}]

    def pending_pod(self) -> Body | None:
        """Pod to which `Allocate` gives devices: that of the lock, or else the first that waits for some."""
        owner = lock_of(self.store.objects["nodes"].get(self.name)).split(",")
        if len(owner) == 3:
            return self.store.objects["pods"].get(owner[2])
        return next((body for body in self.pods() if body["status"]["phase"] == "Pending"
                     and said_of(body, "hami.io/bind-time") and said_of(body, "hami.io/vgpu-node") == self.name
                     and said_of(body, HAMI.phase) in ("allocating", "success")), None)

    def admit(self, fails: bool = False, says_so: bool = True) -> str:
        """Let kubelet admit the next pod, container by container; what became of it, empty if there is none.

        Parameters
        ----------
        fails : whether the plugin cannot give it its devices
        says_so : whether kubelet comes to write that the pod has failed
        """
        body = next(iter(self.waiting()), None)
        if body is None:
            return ""
        for count in filter(None, counts_of(body)):
            got = self.allocate(count, fails)
            if got is None:
                self.refused.add(body["metadata"]["uid"])
                if says_so:
                    self.set_phase(body, "Failed")  # UnexpectedAdmissionError
                return "failed"
            self.used.setdefault(body["metadata"]["uid"], []).extend(got)
        self.set_phase(body, "Running")
        return "running"

    def allocate(self, count: int, fails: bool) -> list[tuple[str, int, int]] | None:
        """Give a container the next devices of the pod that waits, whichever container it is; None if that fails."""
        body = self.pending_pod()
        if body is None:
            return None
        parts = said_of(body, TO_ALLOCATE).split(";")
        row = next((row for row, part in enumerate(parts) if part), None)
        got = given_in(parts[row])[0] if row is not None else []
        if fails or len(got) != count or row is None:
            self.answer(body, "failed")
            return None
        parts[row] = ""
        name = body["metadata"]["name"]
        self.store.annotate("pods", name, {TO_ALLOCATE: ";".join(parts)})
        if not any(parts):
            self.answer(body, "success")
        return got

    def answer(self, body: Body, phase: str) -> None:
        """Say what came of it, and take the lock off if it is the pod's."""
        meta = body["metadata"]
        if meta["name"] in self.store.objects["pods"]:
            self.store.annotate("pods", meta["name"], {HAMI.phase: phase})
        if lock_of(self.store.objects["nodes"].get(self.name)).endswith(f",{meta['namespace']},{meta['name']}"):
            self.store.annotate("nodes", self.name, {HAMI.lock: None})

    def set_phase(self, body: Body, phase: str) -> None:
        """Write the phase of a pod as it is now."""
        now = self.store.objects["pods"][body["metadata"]["name"]]
        self.store.write("pods", "MODIFIED", {**now, "status": {**now["status"], "phase": phase}})


def counts_of(body: Body) -> list[int]:
    """How many GPUs each container of a pod asks for."""
    return [int(one["resources"].get("limits", {}).get(GPU, 0)) for one in body["spec"]["containers"]]


# --- a world

def add_nodes(sim: Simulation) -> None:
    """Add two to four nodes with a plugin each, awake."""
    for number in range(2 + int(sim.dice.random() * 3)):
        name = f"n{number}"
        names = [f"GPU-{number}{letter}" for letter in "abcd"[:sim.pick((1, 2, 2, 4))]]
        slots = {"nvidia.com__gpu": str(10 * len(names))}
        sim.store.write("nodes", "ADDED", node(name, annotations={REGISTER: register_of(names)}, cpu="16", **slots))
        sim.plugins[name] = Plugin(sim.store, name, names)


def new_pod(sim: Simulation, name: str) -> Body:
    """Return a pod of one or two containers with a share, or GPUs."""
    sim.num_pods += 1
    amounts = [{GPU: "1", "nvidia.com/gpumem": str(sim.pick((2048, 4096, 8192)))},
               {GPU: "1", "nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "40"},
               {GPU: "1", "nvidia.com/gpumem-percentage": "50"}, {GPU: sim.pick(("1", "1", "2"))}, {}]
    each = [sim.pick(amounts)] + ([sim.pick(amounts[:1])] if sim.dice.random() < 0.2 else [])
    meta = {"name": name, "namespace": "default", "uid": f"u{sim.num_pods}", "annotations": {}, "labels": {}}
    return {"metadata": meta,
            "spec": {"containers": [{"resources": {"limits": {"cpu": "1", **one}}} for one in each]},
            "status": {"phase": "Pending"}}


def check_sum(sim: Simulation, name: str, held: Iterator[tuple[str, int, int]], what: str) -> None:
    """See that nobody holds more of a GPU than there is.

    Raises
    ------
    Broken : somebody does
    """
    mib: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    for gpu, own_mib, own_cores in held:
        mib[gpu] += own_mib
        cores[gpu] += own_cores
    if not mib.keys() <= {*sim.plugins[name].names}:
        raise Broken(f"node {name} has no {sorted(mib)}")
    if max(mib.values(), default=0) > MIB or max(cores.values(), default=0) > 100:
        raise Broken(f"{what} on node {name}: {dict(mib)} MiB, {dict(cores)} percent")


def check_node(sim: Simulation, name: str) -> None:
    """See that what we have promised, and what containers got, is no more than a node has."""
    ours = list(held_by_ours(sim, name))
    promised = (device for body in ours if said_of(body, HAMI.phase) != "failed"
                for part in given_in(said_of(body, DEVICES)) for device in part)
    check_sum(sim, name, promised, "promised")
    runs = {body["metadata"]["uid"] for body in ours}
    used = (device for uid, got in sim.plugins[name].used.items() if uid in runs for device in got)
    check_sum(sim, name, used, "in use")


def check_write(sim: Simulation, call: Call) -> None:
    """See that a bind has its devices and the lock of its node, and that nobody touches a lock of another that counts.

    Raises
    ------
    Broken : it has not, or somebody does
    """
    if call.method == "bind":
        _, name, _, where, written = call.arguments
        body = sim.store.objects["pods"].get(name)
        if body is None or body["spec"].get("nodeName") or body["metadata"]["uid"] != call.arguments[2]:
            return  # the server refuses it
        if [len(part) for part in given_in(written.get(DEVICES, ""))[:-1]] != counts_of(body) and any(counts_of(body)):
            raise Broken(f"{name} is bound with the devices {written.get(DEVICES)!r}, and asked for {counts_of(body)}")
        there = sim.store.objects["nodes"].get(where)  # or it has just gone, and its lock with it
        if there and any(counts_of(body)) and not lock_of(there).endswith(f",default,{name}"):
            raise Broken(f"{name} is bound to {where}, whose lock is not its own")
    if call.method == "annotate_node":
        where, written, version = call.arguments
        node_now = sim.store.objects["nodes"].get(where)
        if node_now is None or version and version != node_now["metadata"]["resourceVersion"]:
            return  # the server refuses it
        before, after = lock_of(node_now), written[HAMI.lock] or ""
        if not before or before.split(",")[1:] == after.split(",")[1:]:
            return
        stated, _, owner = before.split(",")
        body = sim.store.objects["pods"].get(owner)
        is_here = body is not None and body["spec"].get("nodeName") == where
        if body is None or body["status"]["phase"] in ("Failed", "Succeeded"):
            return
        if is_here and said_of(body, HAMI.phase) == "allocating":
            raise Broken(f"the lock of {owner} on {where} is taken off while its plugin is asked for devices")
        if after and sim.now_s <= (seconds_of(stated) or 0.0) + LOCK_S:
            raise Broken(f"the lock of {owner} on {where} is broken before its time")


def admit(sim: Simulation) -> None:
    """Ask a plugin that is awake for devices, which it gives, or fails."""
    plugin = sim.pick(list(sim.plugins.values()))
    if sim.is_calm or plugin.asleep_s <= sim.now_s:
        waits = [body["metadata"]["uid"] for body in plugin.waiting()]
        fails = sim.dice.random() < 5 * sim.rates["failed"]
        if came := plugin.admit(fails, says_so=sim.dice.random() < 0.5):
            sim.say(f"plugin of {plugin.name}: {waits[0]} is {came}")
        check_node(sim, plugin.name)


def fall_asleep(sim: Simulation) -> None:
    """Let a kubelet, and the plugin with it, not answer for a while."""
    plugin = sim.pick(list(sim.plugins.values()))
    plugin.asleep_s = sim.now_s + 3 * LOCK_S * sim.dice.random()
    sim.say(f"plugin of {plugin.name}: asleep until {plugin.asleep_s:.0f} s")


def fall_ill(sim: Simulation) -> None:
    """Let a GPU fall ill, or out of the register, or all be well again."""
    name = sim.pick(list(sim.store.objects["nodes"]))
    names = sim.plugins[name].names
    gpu = sim.pick(names)
    kept = [one for one in names if one != gpu or len(names) == 1]
    register = sim.pick((register_of(names), register_of(names, [gpu]), register_of(kept)))
    sim.store.annotate("nodes", name, {REGISTER: register})
    sim.say(f"register of {name}: {register}")


def pass_long(sim: Simulation) -> None:
    """Let time go by until locks may be old."""
    pass_time(sim, 1.5 * LOCK_S * sim.dice.random())


WORLD = World(add_nodes, new_pod, check_node, check_write, HamiObjects, {
    **{name: action for name, action in ACTIONS.items() if name not in ("place by others", "relabel")},
    "answer": (answer, 80.0, False), "end": (end, 3.0, False), "admit": (admit, 24.0, False),
    "fall asleep": (fall_asleep, 2.0, True), "fall ill": (fall_ill, 0.5, True), "pass long": (pass_long, 1.0, True)})


# --- mistakes

class TakesNoLock(HamiBridge):
    """Bug: nobody locks the node."""

    def _lock(self, binding: BindingArgs, uid: str) -> Steps:
        """Go on."""
        yield from ()


class BreaksLocks(HamiBridge):
    """Bug: any lock is taken for one that may be broken."""

    def _is_over(self, written: str, node: str) -> Steps:
        """Say so."""
        yield from ()
        return True


class ReleasesWhatIsThere(HamiBridge):
    """Bug: after a bind the lock is taken off whosever it is, also by who has no lock any more."""

    def _tidy(self, uid: str) -> Steps:
        """Take it off."""
        held = self.locks.pop(uid, None)
        for where in list(self.objects.gpus) if held is None else [held.node]:
            try:
                found = yield Call("node", (where,))
                if lock_of(found):
                    yield Call("annotate_node", (where, {HAMI.lock: None}, found["metadata"]["resourceVersion"]))
            except ApiError:
                pass


class CountsFailed(HamiObjects):
    """Bug: what a plugin could not give counts nevertheless."""

    def pod(self, body: Body) -> LivePod | None:
        """Read a pod as if its plugin still worked."""
        said = dict(body["metadata"]["annotations"])
        said |= {HAMI.phase: "success"} if said.get(HAMI.phase) == "failed" else {}
        return super().pod({**body, "metadata": {**body["metadata"], "annotations": said}})


class WritesAfterwards(HamiBridge):
    """Bug: a pod is bound first, and its devices are to be written afterwards."""

    def _written(self, node: str, devices: str) -> dict[str, str]:
        """All but the devices."""
        return {name: text for name, text in super()._written(node, devices).items() if name not in HAMI.given}


class CountsAnew(HamiObjects):
    """Bug: GPUs get other numbers when one falls out of the register."""

    def node(self, body: Body) -> LiveNode:
        """Read a node and forget which GPUs it had."""
        self.seen.pop(body["metadata"]["name"], None)
        return super().node(body)


class ForgetsTheLate(HamiObjects):
    """Bug: a node may get the next pod, whose plugin has not answered for the last one."""

    def blocked_nodes(self, names: Sequence[str]) -> dict[str, str]:
        """None."""
        return {}


class TrustsTime(HamiBridge):
    """Bug: as HAMi does, a lock that is old is broken, though its pod still waits for its devices."""

    _reads = ForgetsTheLate

    def _is_over(self, written: str, node: str) -> Steps:
        """Whether it is old."""
        yield from ()
        return self.objects.now_s() > (seconds_of(written.split(",")[0]) or 0.0) + LOCK_S


def reading(kind: type[HamiObjects]) -> type[HamiBridge]:
    """Return a bridge that reads objects in another way."""
    return type(kind.__name__, (HamiBridge,), {"_reads": kind})


SOUND = Makers(bridge=HamiBridge, world=WORLD)
BUGS = {bridge.__name__: (replace(SOUND, bridge=bridge), seed) for bridge, seed in (  # and a seed that finds it
    (TakesNoLock, 0), (BreaksLocks, 0), (ReleasesWhatIsThere, 0), (reading(CountsFailed), 20), (WritesAfterwards, 0),
    (reading(CountsAnew), 1822), (TrustsTime, 399))}
