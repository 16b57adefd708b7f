"""`serve --dialect hami`: devices and locks by hand, HAMi's plugin against the small API server, and faults."""
from dataclasses import replace

import pytest

from sched_lab.fleet.live.bridge import ApiError, BridgeSettings, eligibility_of
from sched_lab.fleet.live.core import NodeSeen, PodGone, PodSeen, Share
from sched_lab.fleet.live.follow import KubernetesApi
from sched_lab.fleet.live.hami import LOCK_S, HamiBridge, HamiObjects
from sched_lab.fleet.live.lease import Lease
from tests.fleet.fake_api import FakeApi, kubeconfig_for, served
from tests.fleet.faults import simulate
from tests.fleet.hami import BUGS, GPU, SOUND, Plugin, lock_of, register_of, said_of
from tests.fleet.objects import node, openb_node, pod
from tests.fleet.store import Store
from tests.fleet.test_bridge import DrivenBridge, bound

MEMORY, CORES, PERCENT = "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage"
PHASE, DEVICES = "hami.io/bind-phase", "hami.io/vgpu-devices-allocated"
NOW_S = 1_800_000_000.0


def hami_node(name="n", gpus="ab", register="", **more):
    register = register or register_of([f"GPU-{letter}" for letter in gpus])
    return node(name, annotations={"hami.io/node-nvidia-register": register}, **more)


def asking(name, *each, **more):
    """Return a pod that waits, whose containers have these limits."""
    body = pod(name, at="", phase="Pending", containers=[{"resources": {"limits": one}} for one in each], **more)
    body["metadata"]["uid"] = f"uid-{name[1:]}"
    return body


class StoreApi:
    """An API server without a network."""

    def __init__(self):
        self.store = Store()

    def pod(self, _, name):
        return self.store.objects["pods"].get(name)

    def node(self, name):
        return self.store.objects["nodes"].get(name)

    def annotate_node(self, *arguments):
        self.store.annotate("nodes", *arguments)

    def bind(self, _, *arguments):
        self.store.bind(*arguments)


class DrivenHami(DrivenBridge, HamiBridge):
    """As it is driven in the tests of the protocol, at a moment that can be set."""

    def __init__(self, api, *nodes):
        super().__init__(api, "decide", BridgeSettings(pauses_s=()), None)
        self.objects.now_s = lambda: self.wall_s
        self.wall_s = NOW_S
        for body in nodes:
            api.store.create("nodes", body)
        self.look_around()

    def look_around(self):
        """Be told of everything, as after a start."""
        for body in self.api.store.objects["nodes"].values():
            self.tell(NodeSeen(self.objects.node(body)))
        for body in self.api.store.objects["pods"].values():
            seen = self.objects.pod(body)
            self.tell(PodGone(body["metadata"]["uid"]) if seen is None else PodSeen(seen))

    def placed(self, body):
        """Create, filter and bind a pod; what bind says, or None if no node can take it."""
        self.api.store.create("pods", body)
        nodes = self.filter({"Pod": body, "NodeNames": list(self.live.names)}, 0.0)["NodeNames"]
        return bound(self, body, *nodes) if nodes else None

    def held(self, name):
        return self.live.holds(f"uid-{name[1:]}").shares


ASKED = {  # limits of containers -> share, devices on GPU a (and b)
    "MiB": ([{GPU: "1", MEMORY: "4096"}], Share(1, 250, "0"), "GPU-a,NVIDIA,4096,0:;"),
    "MiB and cores": ([{GPU: "1", MEMORY: "4096", CORES: "40"}], Share(1, 400, "0"), "GPU-a,NVIDIA,4096,40:;"),
    "percent": ([{GPU: "1", PERCENT: "30"}], Share(1, 300, "0"), "GPU-a,NVIDIA,4915,0:;"),
    "cores alone, all MiB": ([{GPU: "1", CORES: "30"}], Share(1, 1000, "0"), "GPU-a,NVIDIA,16384,30:;"),
    "whole": ([{GPU: "2"}], Share(2, 1000, "0-1"), "GPU-a,NVIDIA,16384,100:GPU-b,NVIDIA,16384,100:;"),
    "a slot at least": ([{GPU: "1", MEMORY: "16"}], Share(1, 100, "0"), "GPU-a,NVIDIA,16,0:;"),
    "nothing in between": ([{}, {GPU: "1", MEMORY: "8192"}, {}], Share(1, 500, "0"), ";GPU-a,NVIDIA,8192,0:;;"),
    "behind an init container": ([{GPU: "1", MEMORY: "8192"}], Share(1, 500, "0"), ";GPU-a,NVIDIA,8192,0:;"),
    "two on one GPU": ([{GPU: "1", MEMORY: "4096"}, {GPU: "1", MEMORY: "8192", CORES: "10"}], Share(1, 750, "0"),
                       "GPU-a,NVIDIA,4096,0:;GPU-a,NVIDIA,8192,10:;"),
    "two with whole ones": ([{GPU: "1"}, {GPU: "1"}], Share(2, 1000, "0-1"),
                            "GPU-a,NVIDIA,16384,100:;GPU-b,NVIDIA,16384,100:;")}


@pytest.mark.parametrize("name", ASKED)
def test_what_is_written_is_what_was_decided_and_is_read_so(name):
    """By the plugin, too, container by container; and a bridge that starts later knows it from annotations alone."""
    each, share, devices = ASKED[name]
    bridge = DrivenHami(StoreApi(), hami_node())
    before = {"initContainers": [{"name": "first"}]} if name == "behind an init container" else {}
    assert bridge.placed(asking("p1", *each, **before)) == ""
    body = bridge.api.store.objects["pods"]["p1"]
    assert said_of(body, DEVICES) == said_of(body, "hami.io/vgpu-devices-to-allocate") == devices
    assert {key: said_of(body, f"hami.io/{key}") for key in ("vgpu-node", "vgpu-time", "bind-phase", "bind-time")} == {
        "vgpu-node": "n", "vgpu-time": "1800000000", "bind-phase": "allocating", "bind-time": "1800000000"}
    assert lock_of(bridge.api.node("n")) == "2027-01-15T08:00:00.000000Z,team,p1"
    version = bridge.live.version
    bridge.look_around()
    assert bridge.held("p1") == (share,) and bridge.live.version == version, "the watch brings no news"
    plugin = Plugin(bridge.api.store, "n")
    assert plugin.admit() == "running" and lock_of(bridge.api.node("n")) == ""
    assert [device[0] for device in plugin.used["uid-1"]] == [
        entry.split(",")[0] for part in devices.split(";") for entry in part.split(":") if entry]
    later = DrivenHami(bridge.api)
    assert later.held("p1") == (share,) and later.live.violations() == []


REFUSED = {  # what is asked -> words
    "another dialect": (pod("p1", annotations={"alibabacloud.com/gpu-milli": "500"}, at=""), "gpu-milli says nothing"),
    "a part by time": (asking("p1", {"nvidia.com/gpu.shared": "1"}), "gpu.shared says nothing"),
    "a NUMA node": (asking("p1", {GPU: "1"}), "numa-bind chooses among GPUs"),
    "a share without a GPU": (asking("p1", {MEMORY: "4096"}), "without nvidia.com/gpu"),
    "an init container": (asking("p1", {GPU: "1"}, initContainers=[{"resources": {"limits": {GPU: "1"}}}]), "init"),
    "containers that are unlike": (asking("p1", {GPU: "1"}, {GPU: "1", MEMORY: "4096"}), "several sizes"),
    "shares of two GPUs": (asking("p1", {GPU: "2", MEMORY: "4096"}), "shares of several GPUs")}
REFUSED["a NUMA node"][0]["metadata"]["annotations"]["nvidia.com/numa-bind"] = "true"


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_is_refused_by_name(name):
    body, words = REFUSED[name]
    bridge = DrivenHami(StoreApi(), hami_node(), openb_node("other", 8))
    answer = bridge.filter({"Pod": body, "NodeNames": ["n", "other"]}, 0.0)
    assert answer["NodeNames"] == [] and all(words in why for why in answer["FailedAndUnresolvableNodes"].values())


def test_gpus_keep_their_numbers_and_closed_ones_get_nothing_new():
    """Whatever the register says next: another order, a GPU that is ill, cordoned, in mode mig, or has gone."""
    objects = HamiObjects()
    plain = register_of(["GPU-a", "GPU-b", "GPU-c"])
    assert objects.node(hami_node(register=plain)).closed_gpus == ""
    for register, closed in ((register_of(["GPU-c", "GPU-b", "GPU-a"]), ""), (register_of(["GPU-c", "GPU-d"]), "0-1"),
                             (plain.replace("GPU-b,10", "GPU-b,0"), "3"),
                             (plain.replace("true:", "true,0,mig:"), "0-1-2-3"),
                             (register_of(["GPU-a", "GPU-b"], ["GPU-b"]), "1-2-3")):
        seen = objects.node(hami_node(register=register))
        assert seen.closed_gpus == closed and objects.gpus["n"].uuids[:3] == ("GPU-a", "GPU-b", "GPU-c")
    half = hami_node(register=register_of(["GPU-a", "GPU-b"], ["GPU-a"]))
    bridge = DrivenHami(StoreApi(), half, openb_node("other", 8))
    assert bridge.live.digest() != DrivenHami(StoreApi(), hami_node(), openb_node("other", 8)).live.digest()
    bridge.placed(asking("p1", {GPU: "1"}))
    assert bridge.held("p1") == (Share(1, 1000, "1"),) and bridge.placed(asking("p2", {GPU: "1"})) is None


def test_a_pod_that_is_told_of_before_its_node_has_its_gpus_in_the_end():
    bridge = DrivenHami(StoreApi())
    body = asking("p1", {GPU: "1"}) | {"status": {"phase": "Running"}}
    body["spec"]["nodeName"] = "n"
    body["metadata"]["annotations"] = {DEVICES: "GPU-b,NVIDIA,8192,0:;"}
    bridge.tell(PodSeen(bridge.objects.pod(body)))
    bridge.tell(NodeSeen(bridge.objects.node(hami_node())))
    assert bridge.held("p1") == (Share(1, 500, "1"),)


# --- locks

def test_one_pod_at_a_time_waits_for_its_devices_on_a_node(tmp_path):
    """Over HTTP: the second is refused until the plugin has answered; what fails is free again."""
    fake = FakeApi()
    with served(fake) as address:
        api = KubernetesApi(kubeconfig_for(address, tmp_path / "kubeconfig"))
        api.store = fake.store
        bridge = DrivenHami(api, hami_node())
        plugin = Plugin(fake.store, "n")
        assert bridge.placed(asking("p1", {GPU: "2"})) == ""
        assert bridge.placed(asking("p2", {GPU: "1"})) is None, "there is no GPU"
        assert plugin.admit(fails=True, says_so=False) == "failed" and said_of(api.pod("team", "p1"), PHASE) == "failed"
        bridge.look_around()
        assert bridge.held("p1") == () and bridge.placed(asking("p3", {GPU: "1"})) == ""
        assert "the node is locked" in bridge.placed(asking("p4", {GPU: "1"})) and not bridge.live.reservations
        assert plugin.admit() == "running" and bound(bridge, fake.store.objects["pods"]["p4"], "n") == ""
        fake.trouble["bind"] = [403]
        assert plugin.admit() == "running" and lock_of(api.node("n")) == ""
        bridge.tell(PodGone("uid-4"))
        assert "403" in bridge.placed(asking("p5", {GPU: "1"})) and lock_of(api.node("n")) == "", "it was ours"
        fake.trouble["patch"] = [409, 500, 403]
        for status in (409, 500, 403):
            assert str(status) in bound(bridge, fake.store.objects["pods"]["p5"], "n")
        assert api.node("absent") is None


WAITS = {"hami.io/bind-phase": "allocating"}
LOCKS = {  # lock, what became of its pod -> whether it may be broken when it is young, and when it is old
    "of a pod that waits for a node": ("{at},team,other", asking("other", {}), (False, True)),
    "of a pod that waits for devices": ("{at},team,other", pod("other", annotations=WAITS), (False, False)),
    "of a pod that waits elsewhere": ("{at},team,other", pod("other", annotations=WAITS, at="m"), (False, True)),
    "of a pod that runs": ("{at},team,other", pod("other"), (False, True)),
    "of a pod that has ended": ("{at},team,other", pod("other", annotations=WAITS, phase="Failed"), (True, True)),
    "of a pod that has gone": ("{at},team,gone", None, (True, True)), "of nobody": ("{at}", None, (False, True)),
    "of the pod itself": ("{at},team,p1", None, (True, True)), "that is none": ("x,y", None, (False, False)),
    "that is none, either": ("{at},a,b,c", None, (False, False))}


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("is_old", [False, True])
def test_which_locks_are_broken(name, is_old):
    lock, other, broken = LOCKS[name]
    bridge = DrivenHami(StoreApi(), hami_node())
    written = lock.format(at="2027-01-15T08:00:00Z")
    bridge.api.store.annotate("nodes", "n", {"hami.io/mutex.lock": written})
    if other:
        bridge.api.store.create("pods", other)
    bridge.wall_s += LOCK_S + 1 if is_old else LOCK_S - 1
    assert (bridge.placed(asking("p1", {GPU: "1"})) == "") == broken[is_old]
    assert lock_of(bridge.api.node("n")).endswith(",team,p1") or lock_of(bridge.api.node("n")) == written


def test_a_node_whose_plugin_never_answers_gets_no_pod_until_its_pod_has_gone():
    """`Allocate` names no pod: a plugin that wakes up later would give the devices of the next pod to the first."""
    bridge = DrivenHami(StoreApi(), hami_node())
    assert bridge.placed(asking("p1", {GPU: "1"})) == ""
    bridge.look_around()
    bridge.wall_s += LOCK_S + 1
    eligible = eligibility_of(bridge.objects, asking("p2", {GPU: "1"}), ["n"])
    assert eligible.excluded == {"n": "the device plugin has not answered for team/p1"}
    assert bridge.placed(asking("p3", {"cpu": "1"})) == "", "it asks for no GPU"
    bridge.tell(PodGone("uid-1"))
    bridge.objects.told.pop("uid-1")  # as a watch does
    bridge.api.store.delete("pods", "p1")
    assert bridge.placed(asking("p2", {GPU: "2"})) == "", "the lock of a pod that has gone is broken"


def about_to_bind(names):
    """Return a bridge that has decided for some pods, and the steps of a bind of p1, which has locked the node."""
    bridge = DrivenHami(StoreApi(), hami_node())
    for name in names:
        bridge.api.store.create("pods", asking(name, {GPU: "1"}))
        bridge.filter({"Pod": bridge.api.pod("team", name), "NodeNames": ["n"]}, 0.0)
    steps = bridge.binding({"PodName": "p1", "PodNamespace": "team", "PodUID": "uid-1", "Node": "n"}, 0.0)
    call = next(steps)
    while call.method != "bind":
        call = steps.send(getattr(bridge.api, call.method)(*call.arguments))
    return bridge, steps


def test_an_old_lock_of_a_bind_that_may_still_land_is_not_broken():
    """The process stood still between a lock and its bind."""
    bridge, _ = about_to_bind(("p1", "p2"))
    bridge.wall_s += 400
    answer = bridge.bind({"PodName": "p2", "PodNamespace": "team", "PodUID": "uid-2", "Node": "n"}, 400.0)
    assert "the node is locked" in answer["Error"] and lock_of(bridge.api.node("n")).endswith(",team,p1")


def test_a_lock_is_taken_off_by_who_wrote_it_and_not_twice():
    """A bind fails, and before its lock is taken off the node has another one."""
    bridge, steps = about_to_bind(("p1",))
    bridge.api.store.annotate("nodes", "n", {"hami.io/mutex.lock": "2027-01-15T08:00:01Z,team,p2"})
    call = steps.throw(ApiError(403, "forbidden"))
    with pytest.raises(StopIteration):
        while True:
            assert call.method in ("pod", "node")
            call = steps.send(getattr(bridge.api, call.method)(*call.arguments))
    assert lock_of(bridge.api.node("n")).endswith(",p2") and not bridge.locks


# --- faults

def test_nothing_breaks_with_plugins_that_fail_or_do_not_answer():
    runs = [simulate(seed, 150, replace(SOUND, lease=lease)) for lease in (None, Lease) for seed in range(12)]
    assert [run for run in runs if run.finding] == [] and sum(run.decisions for run in runs) > 80


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_mistake_with_locks_or_devices_is_found(bug):
    """In the first run that did; hunt again for another one if what is simulated has changed."""
    makers, seed = BUGS[bug]
    assert simulate(seed, 200, makers).finding and not simulate(seed, 200, SOUND).finding
