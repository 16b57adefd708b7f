"""The extender's protocol: recorded exchanges, every dialect, every way in which a binding ends."""

import json
from collections import Counter
from contextlib import suppress

import pytest

from sched_lab.fleet.live.bridge import ApiError, Bridge, BridgeSettings, Objects, eligibility_of, uid_of
from sched_lab.fleet.live.core import Decision, LiveSettings, NodeSeen, PodSeen, Share
from sched_lab.fleet.live.events import MOST_WAITING, Events
from sched_lab.fleet.live.journal import Journal
from sched_lab.lab.frames import InputError
from sched_lab.traces import find_reference
from tests.fleet.audit import AuditedCluster
from tests.fleet.objects import damaged, node, openb_node, openb_pod, pod
from tests.fleet.store import carried_out

NODES = find_reference("kubernetes/nodes.json")
needs_recordings = pytest.mark.skipif(NODES is None, reason="the recorded exchanges are not on this machine")
GPU = "alibabacloud.com/gpu-index"


class DrivenBridge(Bridge):
    """A bridge whose calls to the API server are carried out at once, with a clock that passes when it is told to."""

    def __init__(self, api, mode, settings, journal):
        super().__init__(Journal(journal, AuditedCluster(LiveSettings())), mode, settings)
        self.api = api
        self.pause = lambda seconds: None

    def bind(self, request, at_s):
        """Answer a bind."""
        return dict(self._carried_out(self.binding(request, at_s)))

    def settle(self, at_s):
        """Let time pass, and settle what has been in doubt for long."""
        self._carried_out(self.settling(at_s))

    def _carried_out(self, steps):
        return carried_out(steps, lambda call: (
            self.pause if call.method == "pause" else getattr(self.api, call.method))(*call.arguments))


class Server:
    """Pods in a dictionary; `says` is what bind does, one a call: an error, or None."""

    def __init__(self):
        self.pods, self.says, self.sent, self.looks = {}, [], [], []

    def bind(self, namespace, name, uid, node, annotations):
        self.sent.append((namespace, name, uid, node, annotations))
        trouble = self.says.pop(0) if self.says else None
        happens = trouble is None or getattr(trouble, "happens", False)
        if happens and name in self.pods:
            self.pods[name]["spec"]["nodeName"] = node
            self.pods[name]["metadata"].setdefault("annotations", {}).update(annotations)
        if trouble is not None:
            raise trouble

    def pod(self, namespace, name):
        if self.looks and (trouble := self.looks.pop(0)):
            raise trouble
        return self.pods.get(name)


def lost(happens):
    trouble = ApiError(0, "time-out")
    trouble.happens = happens
    return trouble


def bridge_of(*nodes, mode="decide", journal=None, **settings):
    bridge = DrivenBridge(Server(), mode, BridgeSettings(**settings), journal)
    for one in nodes:
        bridge.tell(NodeSeen(bridge.objects.node(one)))
    return bridge


def filtered(bridge, body, at_s=0.0, names=None):
    bridge.api.pods.setdefault(body["metadata"]["name"], body)
    return bridge.filter({"Pod": body, "Nodes": None, "NodeNames": names or list(bridge.live.names)}, at_s)


def bound(bridge, body, where, at_s=0.0, **more):
    meta = body["metadata"]
    request = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta.get("uid", ""), "Node": where}
    return bridge.bind(request | more, at_s)["Error"]


# --- the protocol


@needs_recordings
def test_recorded_exchanges_are_answered_as_recorded_in_meaning():
    """One node of those asked, the one that was recorded where the policy is the same; no error; whole nodes bind."""
    bridge = bridge_of(*json.loads(NODES.read_text())["items"])
    verbs = Counter()
    for path in sorted(NODES.parent.glob("extender.jsonl*")):
        for line in [path.read_text()] if path.suffix == ".json" else path.read_text().splitlines():
            one = json.loads(line)
            verb = one["path"].strip("/")
            verbs[verb] += 1
            if verb == "bind":
                assert bridge.bind(one["request"], 0.0) == one["response"]
            elif verb in ("decide", "filter"):
                bridge.api.pods[one["request"]["Pod"]["metadata"]["name"]] = one["request"]["Pod"]
                answer = bridge.filter(one["request"], 0.0)
                assert (answer["Error"] or "") == (one["response"]["Error"] or "")
                assert len(answer["NodeNames"]) == min(1, len(one["response"]["NodeNames"]))
                assert set(answer["NodeNames"]) <= set(one["request"]["NodeNames"])
            else:
                answer = bridge.prioritize(one["request"], 0.0)
                assert [host["Host"] for host in answer] == one["request"]["NodeNames"]
                assert all(type(host["Score"]) is int for host in answer)
    assert verbs["decide"] >= 2 and verbs["bind"] >= 1
    assert all(set(sent[-1]) <= {GPU} for sent in bridge.api.sent) and GPU in bridge.api.sent[0][-1]


@needs_recordings
def test_recorded_claims_pass_and_bind_where_the_scheduler_chose():
    """With DRA the scheduler chooses devices: every node that it names may take the pod, and nothing is written."""
    bridge = bridge_of(*json.loads(NODES.read_text())["items"], mode="score")
    lines = (NODES.parent / "extender_exchanges_dra.jsonl").read_text().splitlines()
    pods = {}
    for one in map(json.loads, lines):
        request = one["q"]
        if one["verb"] == "filter":
            pods[request["Pod"]["metadata"]["name"]] = request["Pod"]
            assert bridge.filter(request, 0.0)["NodeNames"] == request["NodeNames"]
        elif one["verb"] == "prioritize":
            assert len(bridge.prioritize(request, 0.0)) == len(request["NodeNames"])
        else:
            bridge.api.pods = pods
            assert bridge.bind(request, 0.0) == {"Error": ""}
    assert len(bridge.api.sent) == 4 and {str(sent[-1]) for sent in bridge.api.sent} == {"{}"}


@needs_recordings
def test_the_recorded_cluster_is_read_as_it_was_bound():
    """Every pod of the dump holds the GPUs of its annotation, and nothing is over 1000."""
    bridge = bridge_of(*json.loads(NODES.read_text())["items"])
    bodies = json.loads((NODES.parent / "pods.json").read_text())["items"]
    for body in bodies:
        if body["spec"].get("nodeName"):
            seen = bridge.objects.pod(body)
            assert seen.shares[0].gpu_list == body["metadata"]["annotations"][GPU]
            bridge.tell(PodSeen(seen))
    assert bridge.live.violations() == [] and bridge.live.gauges()["pods"] > 50


def test_keys_are_read_whatever_their_case():
    bridge = bridge_of(openb_node("a"))
    body = openb_pod("p")
    answer = bridge.filter({"pod": body, "NODENAMES": ["a", "a"]}, 0.0)
    assert answer["NodeNames"] == ["a"] and answer["Error"] == ""
    assert bridge.prioritize({"Pod": body, "nodeNames": ["a"]}, 0.0) == [{"Host": "a", "Score": 1}]
    assert bridge.bind({"podname": "p", "PODNAMESPACE": "team", "podUid": "uid-p", "node": "a"}, 0.0) == {"Error": ""}


def test_whole_nodes_are_answered_with_whole_nodes():
    nodes = [openb_node("a", cpu="1"), openb_node("b")]
    bridge = bridge_of(*nodes)
    request = {"Pod": openb_pod("p", cpu="4"), "Nodes": {"items": nodes}, "NodeNames": None}
    answer = bridge.filter(request, 0.0)
    assert answer["Nodes"]["items"] == [nodes[1]] and answer["NodeNames"] is None


def test_nodes_can_be_learnt_from_requests():
    bridge = bridge_of(nodes_in_request=True)
    nodes = [openb_node("a", gpus=0), openb_node("b")]
    for one in nodes:
        one["metadata"]["resourceVersion"] = "5"
    ask = {"Pod": openb_pod("p"), "Nodes": {"items": nodes}}
    assert [one["metadata"]["name"] for one in bridge.filter(ask, 0.0)["Nodes"]["items"]] == ["b"]
    version = bridge.live.version
    bridge.prioritize(ask, 0.0)
    assert bridge.live.version == version, "nodes of the same version are not read again"
    nodes[0]["metadata"]["resourceVersion"], nodes[0]["status"]["allocatable"]["alibabacloud.com/gpu-count"] = "6", "2"
    ask = {"Pod": openb_pod("q", count=2), "Nodes": {"items": nodes}}
    assert [one["metadata"]["name"] for one in bridge.filter(ask, 0.0)["Nodes"]["items"]] == ["a"]


P = openb_pod("p")
BINDING = {"PodName": "p", "PodNamespace": "team", "PodUID": "u", "Node": "a"}


@pytest.mark.parametrize("request_", [
    None, [], "x", 7, {}, {"Pod": None, "NodeNames": []}, {"Pod": {}, "NodeNames": []}, {"Pod": P},
    {"Pod": P, "NodeNames": "a"}, {"Pod": P, "NodeNames": [1]}, {"Pod": P, "NodeNames": None, "Nodes": {"items": None}},
    {"Pod": [], "NodeNames": []}, {"Pod": P, "Nodes": {"items": [{}]}}, {"Pod": P, "Nodes": {"items": ["a"]}},
    {"Pod": P, "Nodes": ["a"]}, *(BINDING | {name: None} for name in ("PodName", "PodNamespace", "Node")),
    BINDING | {"PodUID": 7}])
def test_a_request_that_is_none_is_refused_with_a_mend(request_):
    bridge = bridge_of(openb_node("a"))
    for verb in (bridge.filter, bridge.prioritize, bridge.bind):
        with pytest.raises(InputError, match=";"):
            verb(request_, 0.0)
    assert bridge.live.reservations == {}


WRONG = (None, 0, -1, 1e308, True, "", "x" * 1000, [], [[]], [None], {}, {"a": {}}, ["n0", None], {"a": ["b"]})
FIELDS = [("Pod",), ("NodeNames",), ("Nodes",), ("Nodes", "items"), *(("Pod", name) for name in (
    "metadata", "spec", "status")), *(("Pod", "metadata", name) for name in (
        "annotations", "labels", "name", "uid", "namespace")), *(("Pod", "spec", name) for name in (
            "containers", "tolerations", "nodeSelector", "affinity", "initContainers", "overhead", "resourceClaims"))]


def test_whatever_a_field_holds_a_question_is_answered_or_refused():
    bridge = bridge_of(openb_node("n0"))
    whole = {"Pod": openb_pod("new", 500), "Nodes": {}, "NodeNames": ["n0"]}
    questions = [(verb, damaged(whole, (path, value))) for verb in (bridge.filter, bridge.prioritize)
                 for path in FIELDS for value in WRONG]
    questions += [(bridge.bind, BINDING | {"PodName": "absent/..", name: value}) for name in BINDING for value in WRONG]
    for verb, asked in questions:
        with suppress(InputError):
            assert isinstance(verb(asked, 0.0), list | dict)
    many = [f"n{number}" for number in range(100_000)]
    assert len(bridge.filter({**whole, "NodeNames": many}, 100.0)["NodeNames"]) == 1
    assert bridge.filter(whole, 200.0)["NodeNames"] == ["n0"]


# --- deciding


def test_names_count_in_any_order_and_others_of_the_same_number_are_others():
    bridge = bridge_of(openb_node("a"), openb_node("b"), openb_node("c"))
    given = [["b", "a"], ["a", "b"], ["b", "c"], ["a", "c"], ["c", "b", "a"], ["b", "a", "b"]]
    found = [filtered(bridge, openb_pod(f"p{row}"), names=names)["NodeNames"] for row, names in enumerate(given)]
    assert found == [["a"], ["a"], ["b"], ["c"], ["b"], []]


def test_decide_reserves_what_it_answers_and_says_why_nothing_fits():
    bridge = bridge_of(openb_node("a"), openb_node("b", gpus=1, model="P100"))
    first = filtered(bridge, openb_pod("p", count=2))
    assert first["NodeNames"] == ["a"] and bridge.live.holds("uid-p").shares == (Share(2, 1000, "0-1"),)
    assert filtered(bridge, openb_pod("q"))["NodeNames"] == ["b"]
    none = filtered(bridge, openb_pod("r", 500), names=["b", "a", "new"])
    assert none["NodeNames"] == [] and none["Error"] == "" and list(none["FailedNodes"]) == ["b", "a", "new"]
    assert "500 milli" in none["FailedNodes"]["a"] and "not known" in none["FailedNodes"]["new"]
    assert filtered(bridge, openb_pod("s", **{"alibabacloud.com/gpu-card-model": "A10"}))["NodeNames"] == []


def test_a_pod_without_gpus_is_placed_and_bound_without_an_annotation():
    bridge = bridge_of(openb_node("a", gpus=0, cpu="4"))
    body = openb_pod("p", milli=0, cpu="3")
    assert filtered(bridge, body)["NodeNames"] == ["a"] and bound(bridge, body, "a") == ""
    assert bridge.api.sent == [("team", "p", "uid-p", "a", {})]
    assert "1000 left" in filtered(bridge, openb_pod("q", milli=0, cpu="2"))["FailedNodes"]["a"]


def test_node_and_gpus_are_one_write_under_a_name_that_can_be_set():
    bridge = bridge_of(openb_node("a", gpus=4), gpu_index="lab/gpus")
    body = openb_pod("p", count=2)
    filtered(bridge, body)
    assert bound(bridge, body, "a") == "" and bridge.api.sent[0][-1] == {"lab/gpus": "0-1"}
    again = bridge.objects.pod(bridge.api.pods["p"])
    version = bridge.live.version
    bridge.tell(PodSeen(again))
    assert bridge.live.version == version and again == bridge.live.holds("uid-p"), "the watch brings no news"


def test_reservations_lapse_without_anybody_keeping_the_clock():
    bridge = bridge_of(openb_node("a", gpus=1))
    assert filtered(bridge, openb_pod("p"))["NodeNames"] == ["a"]
    assert filtered(bridge, openb_pod("q"), at_s=20.0)["NodeNames"] == []
    assert filtered(bridge, openb_pod("q"), at_s=40.0)["NodeNames"] == ["a"]
    assert "does not fit on a any more" in bound(bridge, bridge.api.pods["p"], "a", 41.0)


def test_a_toleration_that_a_dump_leaves_out_counts_here():
    """The scheduler puts daemons on cordoned nodes."""
    bridge = bridge_of(openb_node("a", spec={"unschedulable": True}))
    daemon = openb_pod("p", milli=0)
    assert "taints" in filtered(bridge, daemon)["FailedNodes"]["a"]
    daemon["spec"]["tolerations"] = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    assert filtered(bridge, daemon)["NodeNames"] == ["a"]


def test_without_a_uid_the_name_is_one():
    bridge = bridge_of(openb_node("a", gpus=1))
    body = openb_pod("p", uid="")
    assert filtered(bridge, body)["NodeNames"] == ["a"] and list(bridge.live.reservations) == ["team/p"]
    assert bound(bridge, body, "a") == "" and bridge.api.sent[0][2] == ""
    other = openb_pod("q")
    bridge = bridge_of(openb_node("a", gpus=1))
    filtered(bridge, other)
    assert bound(bridge, other, "a", PodUID="") == "" and bridge.live.holds("uid-q").node == "a"


# --- binding


def test_a_binding_that_was_lost_and_happened_is_found_out():
    bridge = bridge_of(openb_node("a", gpus=1))
    body = openb_pod("p")
    filtered(bridge, body)
    bridge.api.says = [lost(True), ApiError(409, "already assigned")]
    assert bound(bridge, body, "a") == "" and len(bridge.api.sent) == 2
    assert not bridge.live.reservations and bridge.live.holds("uid-p").shares[0].gpu_list == "0"


def test_a_second_binding_says_nothing_of_the_first_one_that_is_under_way():
    bridge = bridge_of(openb_node("a", gpus=1))
    body = openb_pod("p")
    filtered(bridge, body)
    request = {"PodName": "p", "PodNamespace": "lab", "PodUID": "uid-p", "Node": "a"}
    first = bridge.binding(request, 0.0)
    assert next(first).method == "bind"  # written, and not answered yet
    bridge.api.says = [ApiError(403, "forbidden")]
    assert "under way already" in bound(bridge, body, "a") and not bridge.api.sent
    assert bridge.live.reservations["uid-p"].is_committing
    with pytest.raises(StopIteration) as end:
        first.send(None)
    assert end.value.value["Error"] == "" and not bridge.live.reservations
    assert bridge.live.holds("uid-p").node == "a" and not bridge.sending


REFUSALS = {  # what bind says -> how often it is sent, whether the GPU is free afterwards
    "no": ([ApiError(403, "forbidden")], 1, True),
    "gone": ([ApiError(404, "no pod")], 1, True),
    "conflict": ([ApiError(409, "being deleted")], 1, True),
    "busy": ([ApiError(429)] * 3, 3, True),
    "broken": ([ApiError(500)] * 3, 3, False),
    "lost": ([lost(False)] * 3, 3, False),
    "lost, then no": ([lost(False), ApiError(403)], 2, False),
    "lost, then conflict": ([lost(False), ApiError(409)], 2, False),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_gpus_are_free_again_when_a_binding_certainly_failed_and_not_before(name):
    says, times, is_free = REFUSALS[name]
    bridge = bridge_of(openb_node("a", gpus=1))
    body = openb_pod("p")
    filtered(bridge, body)
    bridge.api.says = list(says)
    assert bound(bridge, body, "a") and len(bridge.api.sent) == times
    assert (filtered(bridge, openb_pod("q"), 50.0)["NodeNames"] == ["a"]) == is_free
    assert (filtered(bridge, body, 51.0)["NodeNames"] == ["a"]) != is_free  # q has it, or p still does
    if not is_free:  # the scheduler tries again, and it works
        assert bound(bridge, body, "a", 52.0) == "" and bridge.doubts == {} and not bridge.live.reservations


def test_pauses_grow_with_what_the_server_wants_within_bounds():
    paused = []
    bridge = bridge_of(openb_node("a", gpus=1))
    bridge.pause = paused.append
    filtered(bridge, body := openb_pod("p"))
    bridge.api.says = [ApiError(429, retry_after_s=60.0), ApiError(500), None]
    assert bound(bridge, body, "a") == "" and paused == [1.0, 0.4]


@pytest.mark.parametrize("truth", ["bound", "elsewhere", "not bound", "gone", "another", "no answer"])
def test_a_doubt_is_settled_by_a_look_when_it_is_old_enough(truth):
    bridge = bridge_of(openb_node("a", gpus=1), openb_node("b", gpus=1, model="P100"))
    body = openb_pod("p", **{"alibabacloud.com/gpu-card-model": "T4"})
    filtered(bridge, body)
    bridge.api.says = [lost(False)] * 3
    assert "may have been bound" in bound(bridge, body, "a", 10.0)
    bridge.settle(11.0)
    bridge.settle(60.0)
    assert list(bridge.doubts) == ["uid-p"] and bridge.live.reservations["uid-p"].is_committing
    if truth in ("bound", "elsewhere"):
        bridge.api.pods["p"] = openb_pod("p", at="a" if truth == "bound" else "b", **{GPU: "0"})
    elif truth == "gone":
        bridge.api.pods.pop("p")
    elif truth == "another":
        bridge.api.pods["p"] = openb_pod("p", uid="other")
    elif truth == "no answer":
        bridge.api.looks = [ApiError(500)]
    bridge.settle(101.0)
    held = bridge.live.holds("uid-p")
    assert (held and held.node) == {"bound": "a", "elsewhere": "b", "no answer": "a"}.get(truth)
    assert bool(bridge.doubts) == bool(bridge.live.reservations) == (truth == "no answer")


def test_a_doubt_is_as_old_as_its_last_attempt_and_none_is_settled_while_one_is_sent():
    bridge = bridge_of(openb_node("a", gpus=1))
    filtered(bridge, body := openb_pod("p"))
    bridge.api.says = [lost(False)] * 3
    bound(bridge, body, "a", 10.0)
    for at_s in (200.0, 289.0):  # it was asked for at 10 s, and stood still before the last attempt
        bridge.settle(at_s)
        assert bridge.live.reservations["uid-p"].is_committing
    again = bridge.binding({"PodName": "p", "PodNamespace": "team", "PodUID": "uid-p", "Node": "a"}, 289.5)
    assert next(again).method == "bind"
    for at_s in (300.0, 600.0):
        bridge.settle(at_s)
        assert bridge.live.reservations["uid-p"].is_committing
    assert again.throw(ApiError(404)).method == "pod"
    with pytest.raises(StopIteration) as done:
        again.send(bridge.api.pods["p"])
    assert "may have been bound" in done.value.value["Error"], "by an earlier attempt"
    for at_s, is_over in ((700.0, False), (789.0, False), (790.0, True)):
        bridge.settle(at_s)
        assert (not bridge.live.reservations) == is_over


def test_who_leads_again_keeps_nothing_of_what_it_promised_before():
    bridge = bridge_of(openb_node("a", gpus=1))
    filtered(bridge, body := openb_pod("p"))
    bridge.api.says = [lost(False)] * 3
    assert "may have been bound" in bound(bridge, body, "a", 1.0)
    again = bridge.binding({"PodName": "p", "PodNamespace": "team", "PodUID": "uid-p", "Node": "a"}, 2.0)
    assert next(again).method == "bind"
    bridge.begin_term()
    assert not bridge.live.reservations and bridge.doubts == {}
    with pytest.raises(StopIteration) as done:
        again.throw(ApiError(404))
    assert "decided anew" in done.value.value["Error"] and bridge.is_idle()
    assert filtered(bridge, other := openb_pod("q"), 3.0)["NodeNames"] == ["a"]
    assert "does not fit" in bound(bridge, body, "a", 4.0) and bound(bridge, other, "a", 5.0) == ""


def test_a_doubt_that_the_watch_has_settled_is_none():
    bridge = bridge_of(openb_node("a", gpus=1))
    filtered(bridge, body := openb_pod("p"))
    bridge.api.says = [lost(True)] * 3
    bridge.api.looks = [ApiError(500)]
    assert "may have been bound" in bound(bridge, body, "a")
    bridge.tell(PodSeen(bridge.objects.pod(bridge.api.pods["p"])))
    bridge.settle(1.0)
    assert bridge.doubts == {} and bridge.live.holds("uid-p").node == "a"
    assert bound(bridge, body, "a", 2.0) == "" and len(bridge.api.sent) == 3, "it is bound, nothing is sent"


def test_a_pod_whose_binding_is_in_doubt_is_sent_nowhere_else():
    bridge = bridge_of(openb_node("a"), openb_node("b"))
    filtered(bridge, body := openb_pod("p"))
    bridge.api.says = [lost(False)] * 3
    bound(bridge, body, "a")
    answer = filtered(bridge, body, 1.0, names=["b"])
    assert answer["NodeNames"] == [] and "about to be" in answer["FailedNodes"]["b"]
    assert "about to be" in bound(bridge, body, "b", 2.0)


def test_the_watch_may_be_faster_than_the_answer_of_a_binding():
    bridge = bridge_of(openb_node("a", gpus=1))
    filtered(bridge, body := openb_pod("p"))
    steps = bridge.binding({"PodName": "p", "PodNamespace": "team", "PodUID": "uid-p", "Node": "a"}, 0.0)
    call = next(steps)
    assert call.method == "bind"
    assert filtered(bridge, openb_pod("q"), 1.0)["NodeNames"] == [], "other questions are answered meanwhile"
    bridge.api.bind(*call.arguments)
    bridge.tell(PodSeen(bridge.objects.pod(bridge.api.pods["p"])))
    with pytest.raises(StopIteration) as done:
        steps.send(None)
    assert done.value.value == {"Error": ""} and bridge.live.holds("uid-p").node == "a"
    assert body["spec"]["nodeName"] == "a"


def test_after_a_restart_gpus_are_found_again_on_the_node_or_refused():
    bridge = bridge_of(openb_node("a", gpus=2), openb_node("b", gpus=2))
    bridge.tell(PodSeen(bridge.objects.pod(openb_pod("old", at="b", **{GPU: "0"}))))
    bridge.api.pods = {name: openb_pod(name, count=count) for name, count in (("p", 1), ("q", 2), ("r", 1))}
    assert bound(bridge, openb_pod("p"), "b") == "" and bridge.api.sent[0][-1] == {GPU: "1"}
    assert "q does not fit on b any more: 2 GPUs" in bound(bridge, openb_pod("q", count=2), "b")
    assert bound(bridge, openb_pod("none"), "b") == "there is no pod team/none"
    assert "another pod is called team/r" in bound(bridge, openb_pod("r", uid="new"), "b")
    assert "does not fit on nowhere any more: " in bound(bridge, openb_pod("r"), "nowhere")
    bridge.api.pods["r"] = openb_pod("r", at="a", **{GPU: "1"})
    assert bound(bridge, openb_pod("r"), "b") == "team/r is bound to a" and bridge.live.holds("uid-r").node == "a"
    bridge.api.looks = [ApiError(503)]
    assert "cannot be looked at: 503" in bound(bridge, openb_pod("s"), "a")
    assert len(bridge.api.sent) == 1 and not bridge.live.reservations


# --- the other modes


def test_score_returns_all_that_fit_and_whole_numbers():
    bridge = bridge_of(openb_node("a"), openb_node("b"), openb_node("c", gpus=0), mode="score")
    bridge.tell(PodSeen(bridge.objects.pod(openb_pod("old", 500, at="b", **{GPU: "0"}))))
    body = openb_pod("p", 500)
    assert filtered(bridge, body, names=["c", "b", "a"])["NodeNames"] == ["b", "a"] and not bridge.live.reservations
    hosts = bridge.prioritize({"Pod": body, "NodeNames": ["c", "b", "a"]}, 0.0)
    score = {host["Host"]: host["Score"] for host in hosts}
    assert score["c"] == 0 and score["b"] > score["a"] >= 1 and {type(one) for one in score.values()} == {int}


def test_score_has_the_race_and_refuses_who_comes_second():
    bridge = bridge_of(openb_node("a", gpus=1), mode="score")
    pods = [openb_pod("p"), openb_pod("q")]
    assert [filtered(bridge, body)["NodeNames"] for body in pods] == [["a"], ["a"]]
    assert bound(bridge, pods[0], "a") == "" and bridge.api.sent[0][-1] == {GPU: "0"}
    assert "does not fit on a any more" in bound(bridge, pods[1], "a") and len(bridge.api.sent) == 1


def test_observe_changes_nothing_and_writes_down_what_it_would_have_done(tmp_path):
    bridge = bridge_of(openb_node("a", gpus=1), openb_node("b", gpus=0), mode="observe", journal=tmp_path / "j")
    digest = bridge.live.digest()
    body = openb_pod("p")
    for name in ("p", "q"):  # nothing is reserved: both would have got the same GPU
        assert filtered(bridge, openb_pod(name), names=["b", "a"])["NodeNames"] == ["b", "a"]
    assert bridge.prioritize({"Pod": body, "NodeNames": ["b", "a"]}, 0.0) == [
        {"Host": "b", "Score": 0}, {"Host": "a", "Score": 0}]
    assert bridge.live.digest() == digest
    assert bound(bridge, body, "b") == "" and bridge.api.sent == [("team", "p", "uid-p", "b", {})]
    bridge.api.says = [lost(True)] * 3
    assert bound(bridge, openb_pod("q"), "b") == ""
    bridge.api.says = [ApiError(409)]
    assert "409" in bound(bridge, openb_pod("r"), "b")
    mig = pod("mig", {"nvidia.com/mig-1g.5gb": "1"}, at="")
    assert filtered(bridge, mig, names=["b", "a"])["NodeNames"] == ["b", "a"], "not in charge: not refused either"
    bridge.journal.close()
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()]
    assert [line["decision"]["node"] for line in lines if line.get("event") == "Asked"] == ["a", "a"]


# --- dialects

HAMI = {"hami.io/node-nvidia-register": "GPU-0,10,16384,100,NVIDIA-T4,0,true:GPU-1,10,16384,100,NVIDIA-T4,0,true:"}


def plain(name="n", product="T4", memory="16384", gpus="2", **labels):
    said = {"product": product, "memory": memory} | labels
    return node(name, {f"nvidia.com/gpu.{key}": text for key, text in said.items() if text}, **{
        "nvidia.com__gpu": gpus})


def eligible(nodes, requests=None, annotations=None, **spec):
    objects = Objects()
    names = [objects.node(one).name for one in nodes]
    return eligibility_of(objects, pod("p", requests or {}, annotations or {}, at="", **spec), names)


ASKED = {  # dialect -> nodes, requests, annotations, share
    "openb": ([openb_node("n")], {}, {"alibabacloud.com/gpu-milli": "250"}, (1, 250)),
    "openb, resource": ([openb_node("n")], {"alibabacloud.com/gpu-milli": "1k"}, {}, (1, 1000)),
    "plugin": ([plain()], {"nvidia.com/gpu": "2"}, {}, (2, 1000)),
    "plugin, shared in time": ([plain(gpus="8", replicas="4")], {"nvidia.com/gpu": "1"}, {}, (1, 250)),
    "HAMi, MiB": ([node("n", annotations=HAMI)], {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}, {}, (1, 250)),
    "HAMi, cores": (
        [node("n", annotations=HAMI)],
        {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "40"}, {}, (1, 400)),
    "HAMi, percent": ([plain()], {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "30"}, {}, (1, 300)),
    "KAI": ([plain()], {}, {"gpu-fraction": "0.5"}, (1, 500)),
    "KAI, MiB": ([plain()], {}, {"gpu-memory": "8192"}, (1, 500)),
    "Volcano": ([plain()], {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "2048"}, {}, (1, 125)),
    "another maker": ([node("n", **{"amd.com__gpu": "2"})], {"amd.com/gpu": "2"}, {}, (2, 1000)),
}


@pytest.mark.parametrize("name", ASKED)
def test_every_dialect_can_be_asked_in(name):
    nodes, requests, annotations, share = ASKED[name]
    found = eligible(nodes, requests, annotations)
    assert found.refused == "" and found.excluded == {} and found.pod.shares == (Share(*share),)


MIXED = [plain("n"), plain("m", "A100", "81920")]
REFUSED = {  # what is asked -> nodes, requests, annotations, words
    "MiB of two kinds": (MIXED, {"nvidia.com/gpumem": "4096"}, {}, "nvidia.com/gpumem.*16384, 81920"),
    "MiB of two kinds, KAI": (MIXED, {}, {"gpu-memory": "4096"}, "gpu-memory is in MiB.*16384, 81920"),
    "MiB, Volcano": (MIXED, {"volcano.sh/vgpu-memory": "1"}, {}, "volcano.sh/vgpu-memory"),
    "MiB of unknown": ([plain(memory="")], {"nvidia.com/gpumem": "4096"}, {}, "memory of GPUs here is unknown"),
    "MiB without GPUs": ([openb_node("n", gpus=0)], {"nvidia.com/gpumem": "4096"}, {}, "GPUs here is unknown"),
    "more MiB than there are": ([plain()], {"nvidia.com/gpumem": "20000"}, {}, "more than the 16384 MiB"),
    "more than all cores": ([plain()], {"nvidia.com/gpucores": "150"}, {}, "nvidia.com/gpucores is more than 100"),
    "an instance of MIG": ([plain()], {"nvidia.com/mig-1g.5gb": "1"}, {}, "nvidia.com/mig-1g.5gb is no share"),
    "a part of an Intel GPU": ([plain()], {"gpu.intel.com/millicores": "1"}, {}, "gpu.intel.com/millicores"),
    "a resource of somebody": ([plain()], {"aliyun.com/gpu-mem": "4"}, {}, "aliyun.com/gpu-mem is no share"),
    "a GPU by name": ([plain()], {"nvidia.com/gpu": "1"}, {"nvidia.com/use-gpuuuid": "GPU-0"}, "use-gpuuuid"),
    "not a model": ([plain()], {"nvidia.com/gpu": "1"}, {"nvidia.com/nouse-gputype": "T4"}, "nouse-gputype"),
    "two dialects": ([plain()], {"nvidia.com/gpu": "1"}, {"gpu-fraction": "0.5"}, "several ways, KAI and NVIDIA"),
    "no share of a GPU": ([plain()], {}, {"gpu-fraction": "1.5"}, "no share of a GPU"),
    "no number": ([openb_node("n")], {}, {"alibabacloud.com/gpu-milli": "half"}, "no number"),
    "more than a GPU": ([openb_node("n")], {}, {"alibabacloud.com/gpu-milli": "1500"}, "more than a GPU"),
    "a count of nothing": ([openb_node("n")], {}, {"alibabacloud.com/gpu-count": "2"}, "gpu-count without"),
    "parts of two kinds": (
        [plain("n", replicas="2"), plain("m", replicas="4")], {"nvidia.com/gpu": "1"}, {}, "1/2, 1/4 of a GPU"),
    "an instance as a GPU": (
        [plain(product="A100-SXM4-40GB-MIG-1g.5gb", gpus="7")], {"nvidia.com/gpu": "1"}, {}, "instance of MIG"),
    "several shares": ([plain()], {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "4096"}, {}, "shares of several GPUs"),
    "several shares, KAI": ([plain()], {}, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"},
                            "shares of several GPUs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_represented_is_refused_by_name(name):
    nodes, requests, annotations, words = REFUSED[name]
    bridge = bridge_of(*nodes)
    asked = pod("p", requests, annotations, at="")
    names = [one["metadata"]["name"] for one in nodes]
    answer = bridge.filter({"Pod": asked, "NodeNames": names}, 0.0)
    assert answer["NodeNames"] == [] and answer["Error"] == "" and not bridge.live.reservations
    why = answer["FailedAndUnresolvableNodes"]
    assert list(why) == names
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(why[names[0]])
    bridge.api.pods["p"] = asked
    if len(names) == 1:  # on one of two nodes it may have one meaning
        assert why[names[0]] in bound(bridge, asked, names[0]) and not bridge.api.sent
    assert bridge.prioritize({"Pod": asked, "NodeNames": names}, 0.0)[0]["Score"] == 0


def test_mib_are_fine_where_the_pod_chooses_one_kind():
    for chosen in ({"annotations": {"nvidia.com/use-gputype": "A100"}},
                   {"nodeSelector": {"nvidia.com/gpu.product": "A100"}}):
        found = eligible(MIXED, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"}, **chosen)
        assert found.refused == "" and found.pod.shares == (Share(1, 100),) and found.pod.gpu_models == "A100"


def test_whole_gpus_go_where_gpus_are_whole_and_the_others_say_so():
    nodes = [plain("n", replicas="2"), plain("m")]
    bridge = bridge_of(*nodes)
    assert filtered(bridge, pod("p", {"nvidia.com/gpu": "2"}, at=""))["NodeNames"] == ["m"]
    none = filtered(bridge, pod("q", {"nvidia.com/gpu": "1"}, at=""))
    assert none["FailedNodes"]["n"] == "nvidia.com/gpu is a part of a GPU here"
    bridge.api.pods["q"] = pod("q", {"nvidia.com/gpu": "1"}, at="")
    assert bound(bridge, bridge.api.pods["q"], "n") == ""  # there alone it has one meaning
    assert bridge.api.sent[-1][-1] == {GPU: "0"} and bridge.live.holds("team/q").shares[0].gpu_milli == 500


def test_a_pod_that_reserves_gpus_for_others_is_refused_and_holds_nothing():
    holder = pod("p", {"nvidia.com/gpu": "1"}, at="")
    holder["metadata"]["namespace"] = "kai-resource-reservation"
    assert Objects().pod(holder) is None
    answer = filtered(bridge_of(plain()), holder)
    assert "reserves a GPU" in answer["FailedAndUnresolvableNodes"]["n"]


def test_a_claim_is_left_to_the_scheduler_and_the_rest_is_counted():
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c0"}]}
    found = eligible([plain()], {"cpu": "2", "nvidia.com/gpu": "1"}, **claims)
    assert found.refused == "" and found.pod.shares == (Share(1, 1000),) and found.pod.cpu_milli == 2000


# --- events


def test_events_say_what_was_decided_once_and_no_more_than_can_be_written():
    bridge = bridge_of(openb_node("n0"), openb_node("n1", 1))
    events = Events(bridge.api)
    bridge.hears = events.say
    for body in (openb_pod("half", 500), openb_pod("half", 500), openb_pod("many", count=4),
                 openb_pod("odd", **{"nvidia.com/nouse-gputype": "A10"})):
        filtered(bridge, body)
    said = [events.waiting.get_nowait()[1] for _ in range(events.waiting.qsize())]
    assert [(one["involvedObject"]["name"], one["reason"], one["type"]) for one in said] == [
        ("half", "Decided", "Normal"), ("many", "NoNode", "Warning"), ("odd", "Refused", "Warning")]
    held = bridge.live.holds(uid_of(openb_pod("half", 500)))
    other = "n0" if held.node == "n1" else "n1"
    assert said[0]["message"].startswith(f"{held.node} with GPU {held.shares[0].gpu_list} has ")
    assert f"; next best: {other} with " in said[0]["message"] and "GPUs on 2" in said[1]["message"]
    for number in range(MOST_WAITING + 5):
        events.say(openb_pod(f"p{number}"), Decision(0, f"u{number}", "p", "n0"))
    assert events.waiting.qsize() == MOST_WAITING
