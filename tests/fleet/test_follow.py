"""Following a cluster: scripted servers for every way in which an answer breaks off, and the official client."""

import threading
import time

import pytest

from sched_lab.fleet.live.bridge import ApiError, Objects
from sched_lab.fleet.live.core import NodeGone, NodeSeen, PodGone
from sched_lab.fleet.live.follow import KubernetesApi, follow, pause_s
from sched_lab.fleet.live.lease import NOBODY, Lease
from tests.fleet.fake_api import FakeApi, kubeconfig_for, served
from tests.fleet.objects import node, pod
from tests.fleet.store import carried_out

EXTRA = pytest.importorskip("kubernetes", reason="the extra `kubernetes` is not installed")


def versioned(body, version, **meta):
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(version), **meta}}


def a_pod(uid, version, at="", phase="Pending", **more):
    return versioned(pod(f"p-{uid}", {"cpu": "1"}, at=at, phase=phase, **more), version, uid=uid)


class Script:
    """An API whose lists and watches are written down: an exception is raised where it stands."""

    def __init__(self, lists, watches):
        self.lists, self.watches = list(lists), list(watches)
        self.asked: list[str] = []

    def list(self, kind):
        self.asked.append("list")
        return self.said(self.lists)

    def said(self, script):
        if not script:
            raise StopFollowing
        if isinstance(script[0], Exception):
            raise script.pop(0)
        return script.pop(0)

    def watch(self, kind, version):
        self.asked.append(version)
        for change in self.said(self.watches):
            if isinstance(change, Exception):
                raise change
            yield change


class StopFollowing(Exception):
    """The script is over."""


def played(lists, watches, kind="pods", **options):
    """Play a script: what is told, what is asked, and for how long it waits."""
    api = Script(lists, watches)
    told: list = []
    paused: list[float] = []
    try:
        for _ in follow(api, kind, told.append, paused.append, **options):
            pass
    except StopFollowing:
        pass
    return told, api.asked, paused


def uids(told):
    return [(type(event).__name__, event.uid if isinstance(event, PodGone) else event.pod.uid) for event in told]


def test_a_watch_begins_where_the_list_ended_and_the_next_where_it_broke_off():
    watches = [[("ADDED", a_pod("b", 12)), ApiError(0, "lost")], [("MODIFIED", a_pod("b", 15, at="n"))], []]
    told, asked, paused = played([([a_pod("a", 7)], "10")], watches)
    assert asked == ["list", "10", "12", "15", "15"]
    assert uids(told) == [("PodSeen", "a"), ("PodSeen", "b"), ("PodSeen", "b")] and told[-1].pod.node == "n"
    assert paused == [0.2, 0.2]  # a watch that brought something ended: no pause


def test_a_bookmark_moves_the_version_and_tells_nothing():
    mark = ("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "99"}})
    told, asked, _ = played([([], "10")], [[mark, ApiError(500)], []])
    assert told == [] and asked == ["list", "10", "99", "99"]


@pytest.mark.parametrize("where", ["at once", "later"])
def test_after_410_there_is_a_new_list_and_what_is_not_in_it_is_gone(where):
    gone = ApiError(410, "too old")
    first = gone if where == "at once" else [("ADDED", a_pod("c", 11)), gone]
    lists = [([a_pod("a", 3, at="n", phase="Running"), a_pod("b", 4)], "10"), ([a_pod("b", 20), a_pod("d", 21)], "30")]
    told, asked, paused = played(lists, [first, []])
    assert asked == ["list", "10", "list", "30", "30"] and len(paused) == 2
    there = [("PodSeen", "a"), ("PodSeen", "b")] + ([] if where == "at once" else [("PodSeen", "c")])
    gone = [("PodGone", "a")] + ([] if where == "at once" else [("PodGone", "c")])
    assert uids(told) == [*there, *gone, ("PodSeen", "d")]  # b is as it was


def test_a_pod_of_the_same_name_is_another_pod():
    again = versioned(pod("p-a", {"cpu": "1"}, at="n"), 20, uid="a2")
    told, _, _ = played([([a_pod("a", 3, at="n")], "10"), ([again], "30")], [ApiError(410), []])
    assert uids(told) == [("PodSeen", "a"), ("PodGone", "a"), ("PodSeen", "a2")]  # free first, then taken


def test_a_pod_that_ended_is_gone_and_one_that_is_being_deleted_is_not():
    dying = versioned(pod("p-b", {"cpu": "1"}, at="n"), 12, uid="b", deletionTimestamp="2026-01-01T00:00:00Z")
    over = a_pod("a", 11, at="n", phase="Succeeded")
    over["status"]["containerStatuses"] = [{"state": {"terminated": {"finishedAt": "2026-03-02T09:00:00Z"}}}]
    changes = [("MODIFIED", over), ("ADDED", dying),
               ("MODIFIED", a_pod("c", 13, at="n", phase="Failed")), ("DELETED", dying | {"metadata": {
                   **dying["metadata"], "resourceVersion": "14"}})]
    told, _, _ = played([([a_pod("a", 3, at="n", phase="Running")], "10")], [changes, []])
    assert uids(told) == [("PodSeen", "a"), ("PodGone", "a"), ("PodSeen", "b"), ("PodGone", "b")]


def test_old_news_is_no_news():
    """A doubled change, one that comes late, and one of a pod that is gone: nothing is told."""
    lists = [([a_pod("a", 3, at="n"), a_pod("b", 9)], "10")]
    changes = [("MODIFIED", a_pod("b", 12, at="n")), ("MODIFIED", a_pod("b", 11)), ("MODIFIED", a_pod("b", 12, at="n")),
               ("DELETED", a_pod("a", 13, at="n")), ("MODIFIED", a_pod("a", 12, at="n")), ("ADDED", a_pod("z", 9))]
    told, _, _ = played(lists, [changes, []])
    assert uids(told)[2:] == [("PodSeen", "b"), ("PodGone", "a")]


def test_after_many_watches_there_is_a_list_anyway():
    told, asked, _ = played([([a_pod("a", 3)], "10"), ([], "20")], [[], [], []], relist_after=2)
    assert asked[:5] == ["list", "10", "10", "list", "20"] and uids(told) == [("PodSeen", "a"), ("PodGone", "a")]


def test_waiting_doubles_up_to_a_bound_and_one_change_ends_it():
    lost = ApiError(0, "refused")
    lists = [ApiError(500), lost, ([], "10")]
    _, _, paused = played(lists, [lost, lost, [("ADDED", a_pod("a", 11)), lost], lost])
    assert paused == [0.2, 0.4, 0.8, 1.6, 0.2, 0.4]
    assert [pause_s(n) for n in (1, 2, 8, 9, 10**6)] == [0.2, 0.4, 25.6, 30.0, 30.0]


def test_nodes_are_told_when_something_of_them_changes():
    first = versioned(node("n", nvidia_com__gpu="4"), 5)
    beat = versioned(first, 12)
    beat["status"] = {**first["status"], "conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}
    cordoned = versioned({**beat, "spec": {"unschedulable": True}}, 13)
    objects = Objects()
    watches = [[("MODIFIED", beat), ("MODIFIED", cordoned)], ApiError(410), []]
    told, _, _ = played([([first], "10"), ([], "40")], watches, kind="nodes", objects=objects)
    assert [type(event) for event in told] == [NodeSeen, NodeSeen, NodeGone]
    assert "unschedulable" in told[1].node.taints and told[2].name == "n" and objects.gpus == {}


def test_the_gpus_of_a_pod_come_back_from_its_annotation():
    """What the bridge wrote before it was restarted, in every dialect, and nothing that cannot be."""
    objects = Objects("lab/gpus")
    objects.node(node("n", nvidia_com__gpu="4") | {"status": {"allocatable": {"nvidia.com/gpu": "4", "cpu": "8"}}})

    def held(text, **requests):
        body = pod("p", {name.replace("__", "/").replace("_", "."): value for name, value in requests.items()} or {
            "nvidia.com/gpu": "2"}, annotations={"lab/gpus": text})
        return objects.pod(body).shares[0].gpu_list

    assert [held("1-3"), held("3,1"), held("0-1-2"), held("3-4"), held("x"), held("")] == ["1-3", "1-3", "", "", "", ""]
    waits = pod("p", {"nvidia.com/gpu": "2"}, annotations={"lab/gpus": "1-3"}, at="")
    assert objects.pod(waits).shares[0].gpu_list == ""  # anybody may write this on a pod that waits


# --- the official client


@pytest.fixture
def server(tmp_path):
    api = FakeApi()
    with served(api) as address:
        yield api, KubernetesApi(kubeconfig_for(address, tmp_path / "kubeconfig"))


def test_a_list_comes_in_pages_of_one_version(server, monkeypatch):
    api, client = server
    monkeypatch.setattr("sched_lab.fleet.live.follow.PAGE", 3)
    for k in range(8):
        api.store.create("nodes", node(f"n{k}"))
    bodies, version = client.list("nodes")
    assert [body["metadata"]["name"] for body in bodies] == [f"n{k}" for k in range(8)]
    assert version == "8" and api.calls == ["list"] * 3


def test_pages_that_expire_are_asked_for_in_one_piece(server, monkeypatch):
    api, client = server
    monkeypatch.setattr("sched_lab.fleet.live.follow.PAGE", 3)
    for k in range(8):
        api.store.create("nodes", node(f"n{k}"))
    api.trouble["list"] = [None, 410]
    assert len(client.list("nodes")[0]) == 8 and api.calls == ["list"] * 3


@pytest.mark.parametrize("trouble, status", [(429, 429), (500, 500), (403, 403), ("lost", 0), ("cut", 0)])
def test_what_went_wrong_has_a_status(server, trouble, status):
    api, client = server
    api.store.create("pods", pod("p", at=""))
    for verb, call in {"list": lambda: client.list("pods"), "pod": lambda: client.pod("team", "p"),
                       "bind": lambda: client.bind("team", "p", "", "n", {})}.items():
        api.trouble[verb] = [trouble]
        with pytest.raises(ApiError) as found:
            call()
        assert found.value.status == status and found.value.is_unsure == (status in (0, 500)), verb
        assert found.value.retry_after_s == (1.0 if status == 429 else 0.0)
        assert api.calls.count(verb) == 1, "the client must not try again by itself"


def step(client, lease, is_able=True, is_idle=True):
    """One step of a lease; whether it leads then."""
    carried_out(lease.step(is_able, lambda: is_idle), lambda call: getattr(client, call.method)(*call.arguments))
    return lease.left_s() > 0


def test_a_lease_is_taken_renewed_and_given_back_and_not_written_over_another(server):
    api, client = server
    assert client.lease("lab", "bridge") is None
    now_s = [0.0]
    ours, theirs = (Lease("lab/bridge", name, 15.0, 5.0, lambda: now_s[0]) for name in ("a", "b"))

    def spec():
        return client.lease("lab", "bridge")["spec"]

    assert not step(client, ours)  # who held a lease that is not there may still lead
    assert spec()["holderIdentity"] == NOBODY
    now_s[0] = 15.0
    assert step(client, ours) and not step(client, theirs)
    assert (spec()["holderIdentity"], spec()["leaseDurationSeconds"], spec()["leaseTransitions"]) == ("a", 15, 2)
    api.store.objects["leases"]["bridge"]["metadata"]["labels"] = {"kept": "yes"}
    now_s[0] = 20.0
    assert step(client, ours) and ours.left_s() == 13.5 and not step(client, theirs)
    stale = client.lease("lab", "bridge")
    assert step(client, ours)
    with pytest.raises(ApiError, match="409"):
        client.write_lease("lab", "bridge", theirs.record(stale, "b"))
    assert not step(client, ours, is_able=False, is_idle=False) and spec()["holderIdentity"] == "a"
    assert not step(client, ours, is_able=False) and spec()["holderIdentity"] == ""
    assert step(client, theirs) and not step(client, ours) and spec()["leaseTransitions"] == 3
    assert client.lease("lab", "bridge")["metadata"]["labels"] == {"kept": "yes"}


def test_who_sees_no_lease_twice_does_not_know_that_there_was_none_in_between(server):
    api, client = server
    now_s = [0.0]
    ours, theirs = (Lease("lab/bridge", name, 15.0, 5.0, lambda: now_s[0]) for name in ("a", "b"))
    assert not step(client, theirs, is_able=False)  # sees none
    assert not step(client, ours)
    now_s[0] = 15.0
    assert step(client, ours)
    api.store.delete("leases", "bridge")
    now_s[0] = 16.0
    assert not step(client, theirs) and ours.left_s() > 0
    now_s[0] = 30.9
    assert not step(client, theirs) and ours.left_s() < 0
    now_s[0] = 31.0
    assert step(client, theirs)


def test_a_server_that_says_nothing_is_given_up(server, monkeypatch):
    api, client = server
    monkeypatch.setattr("sched_lab.fleet.live.follow.CALL_S", 0.1)
    api.trouble["bind"] = ["silent"]
    with pytest.raises(ApiError, match="imeout") as found:
        client.bind("team", "p", "", "n", {})
    assert found.value.status == 0


def test_binding_writes_node_and_annotation_at_once(server):
    api, client = server
    made = api.store.create("pods", pod("p", {"nvidia.com/gpu": "1"}, annotations={"old": "x"}, at=""))
    version = api.store.version
    client.bind("team", "p", made["metadata"]["uid"], "n", {"alibabacloud.com/gpu-index": "3"})
    body = client.pod("team", "p")
    assert body["spec"]["nodeName"] == "n" and api.store.version == version + 1
    assert body["metadata"]["annotations"] == {"old": "x", "alibabacloud.com/gpu-index": "3"}
    for uid, node_name in ((made["metadata"]["uid"], "m"), ("another", "n")):
        with pytest.raises(ApiError) as found:
            client.bind("team", "p", uid, node_name, {})
        assert found.value.status == 409
    assert client.pod("team", "none") is None


def test_what_says_how_many_pods_start_together_is_read_by_name(server):
    api, client = server
    api.store.create("podgroups", {"metadata": {"name": "train"}, "spec": {"minMember": 4}})
    asked = ("scheduling.x-k8s.io", "PodGroup", "team")
    assert client.group(*asked, "train")["spec"] == {"minMember": 4}
    assert client.group(*asked, "none") is None and client.group("scheduling.volcano.sh", *asked[1:], "train") is None
    api.trouble["group"] = [403]
    with pytest.raises(ApiError, match="403"):
        client.group(*asked, "train")


def test_ten_writers_and_a_forgetful_server_lose_nothing(server):
    api, client = server
    api.bookmark_s = 0.02
    api.trouble["watch"] = ["cut", 410, "end", "410 inside", "cut", "end"] * 3
    told: dict[str, str] = {}
    events: list = []

    def write(first):
        for k in range(first, 60, 10):
            made = api.store.create("pods", pod(f"p{k}", at=""))
            if k % 3 == 0:
                api.store.bind(f"p{k}", "", f"n{k}", {})
            if k % 7 == 0:
                api.store.forget()
            time.sleep(0.01)
            if k % 5 == 0:
                api.store.delete("pods", f"p{k}")
            assert made["metadata"]["uid"]

    writers = [threading.Thread(target=write, args=(k,)) for k in range(10)]
    quiet = 0
    for number, step in enumerate(follow(client, "pods", events.append, lambda seconds: None)):
        if number == 0:
            [one.start() for one in writers]
        quiet = quiet + 1 if step == "unchanged" else 0
        if quiet > 3 and not any(one.is_alive() for one in writers):
            break
    assert api.calls.count("watch") > 3, "trouble came"
    for event in events:
        if isinstance(event, PodGone):
            told.pop(event.uid, None)
        else:
            told[event.pod.uid] = event.pod.node
    now = {body["metadata"]["uid"]: body["spec"].get("nodeName", "") for body in api.store.objects["pods"].values()}
    assert told == now and len(now) == 48
