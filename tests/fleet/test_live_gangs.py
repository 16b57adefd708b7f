"""Pods of a group get their places together or not at all: in the core, a journal, the bridge and a world of faults."""
import itertools
import json
import random
from dataclasses import replace

import numpy as np
import pytest

from sched_lab.fleet.live.bridge import ApiError, BridgeSettings, Objects, eligibility_of, meaning_of
from sched_lab.fleet.live.core import (
    Asked,
    BindFailed,
    Bound,
    Committing,
    LiveNode,
    LivePod,
    LiveSettings,
    NodeGone,
    NodeSeen,
    Passed,
    PodGone,
    PodSeen,
    Share,
)
from sched_lab.fleet.live.journal import Journal, replay_journal
from sched_lab.fleet.live.lease import Lease
from sched_lab.traces import toy_tasks
from tests.fleet import objects
from tests.fleet.audit import AuditedCluster
from tests.fleet.faults import OF_GANGS, Makers, simulate
from tests.fleet.objects import openb_node, openb_pod
from tests.fleet.test_bridge import DrivenBridge, Server
from tests.fleet.test_live import cluster_with

SETTINGS = LiveSettings(target=toy_tasks())
pytestmark = pytest.mark.usefixtures("python_itself")


def part(name: str, num_gpus: int = 1, milli: int = 1000, gang: str | None = None) -> LivePod:
    """Return a pod that is called after its gang and a number."""
    return LivePod(name, name, 100, 10, (Share(num_gpus, milli),), gang=name[0] if gang is None else gang)


def cluster(*gpus: int, waiting=()) -> AuditedCluster:
    return cluster_with(*(LiveNode(f"n{number}", "T4", count, 8000, 8000) for number, count in enumerate(gpus)),
                        events=tuple(map(PodSeen, waiting)))


def ask(live, pod, least=4, nodes=None, at_s=0.0, reserves=True):
    return live.apply(Asked(pod, nodes, at_s, reserves, least))


def places(live, pods):
    return [held.node if (held := live.holds(pod.uid)) else "" for pod in pods]


A, B = ([part(f"{gang}{number}") for number in range(4)] for gang in "ab")


def test_two_gangs_that_ask_by_turns_do_not_hold_a_half_each():
    """The example by hand: six GPUs, two gangs of four; each alone would take three, and neither could ever start."""
    live = cluster(3, 3, waiting=[*A, *B])
    said = [ask(live, pod) for pair in zip(A, B, strict=True) for pod in pair]
    assert all(places(live, A)) and not any(places(live, B))
    assert [answer.node for answer in said[::2]] == places(live, A)
    assert {answer.together for answer in said[1::2]} == {"2 of 4 parts of group b fit"}
    assert all(sum(count for _, count in answer.failed) == 2 for answer in said[1::2])
    for pod in A:
        live.apply(PodGone(pod.uid))
    assert ask(live, B[2]).node and all(places(live, B)) and live.violations() == []


def test_who_is_not_there_is_waited_for_and_what_all_get_is_kept_until_it_is_bound():
    live = cluster(4, waiting=A[:3])
    assert ask(live, A[0]).refused == "3 of 4 pods of group a are there" and places(live, A) == [""] * 4
    live.apply(PodSeen(A[3]))
    first = ask(live, A[1])
    assert first.together == "one of 4 parts of group a that start together"
    version = live.version
    assert ask(live, A[1]) == first and live.version == version  # nothing is decided twice
    extra = part("a4", gang="a")
    assert ask(live, extra).refused == ("the 4 pods of group a that start together have their places, and are not all "
                                        "bound yet")
    for pod in A:
        live.apply(Committing(pod.uid, 1.0))
        live.apply(Bound(pod.uid))
    said = ask(live, extra)
    assert said.refused == said.together == "" and said.failed  # beyond the four it is a task of its own


def test_after_the_time_limit_what_is_not_bound_is_given_back_whole_and_who_runs_stays():
    live = cluster(4, waiting=A)
    ask(live, A[0], at_s=10.0)
    live.apply(Committing("a0", 11.0))
    live.apply(Bound("a0"))
    live.apply(Committing("a1", 12.0))
    live.apply(Passed(70.0))
    assert all(places(live, A))
    live.apply(Passed(70.5))
    assert [bool(place) for place in places(live, A)] == [True, True, False, False]
    live.apply(BindFailed("a1"))  # it is promised nothing without the others
    assert places(live, A) == ["n0", "", "", ""] and live.gauges()["gangs_waiting"] == 1
    live.apply(PodSeen(replace(part("x", 3, gang=""), node="n0")))
    said = ask(live, A[3], at_s=80.0)
    assert said.together == "0 of 3 parts of group a fit, and 1 have their places"
    live.apply(PodGone("x"))
    assert ask(live, A[3], at_s=81.0).node and all(places(live, A))
    assert live.gauges()["gangs_waiting"] == 0 and live.violations() == []


def test_a_bind_that_failed_leaves_the_gang_whole_and_a_part_that_goes_gives_back_the_rest():
    live = cluster(4, waiting=A)
    ask(live, A[0])
    live.apply(Committing("a2", 1.0))
    live.apply(BindFailed("a2"))
    assert all(places(live, A))
    live.apply(PodGone("a2"))
    assert places(live, A) == [""] * 4
    again = cluster(4, waiting=A)
    ask(again, A[0])
    again.apply(PodSeen(replace(A[1], node="n0")))  # somebody else bound it
    again.apply(PodSeen(replace(A[1], node="n0", gang="")))  # and it is about to go
    assert places(again, A) == ["", "n0", "", ""] and live.violations() == again.violations() == []


def test_a_part_that_may_not_go_where_it_was_promised_moves_alone_or_with_all_or_nobody_moves():
    live = cluster(2, 2, 2, waiting=A[:2])
    ask(live, A[0], least=2)
    before = places(live, A[:2])
    other = next(name for name in ("n0", "n1", "n2") if name not in before)
    assert ask(live, A[1], least=2, nodes=(other,), at_s=3.0).node == other
    assert places(live, A[:2]) == [before[0], other]
    assert {kept.at_s for kept in live.reservations.values()} == {0.0}  # the limit is that of all
    small = cluster(1, 1, waiting=A[:2])
    ask(small, A[0], least=2)
    node = small.holds("a0").node
    assert ask(small, A[1], least=2, nodes=(node,)).node == "" and places(small, A[:2]) == ["", ""]
    gone = cluster(2, 2, waiting=A[:2])
    node = ask(gone, A[0], least=2).node
    gone.apply(NodeGone(node))
    assert ask(gone, A[0], least=2).node not in ("", node)
    assert live.violations() == small.violations() == gone.violations() == []


def test_a_part_that_cannot_be_asked_for_stops_all_and_observing_keeps_nothing():
    wrong = part("a1", 2, 500)
    live = cluster(4, waiting=[A[0], wrong])
    assert ask(live, A[0], least=2).refused == "a1: shares of several GPUs" and places(live, A) == [""] * 4
    watched = cluster(4, waiting=A)
    version = watched.version
    assert ask(watched, A[0], reserves=False).node and watched.version == version and places(watched, A) == [""] * 4


def can_all_start(gpus, sizes):
    """Whether shares of some sizes fit, by trying every way."""
    for way in itertools.product(range(len(gpus)), repeat=len(sizes)):
        if all(sum(size for size, node in zip(sizes, way, strict=True) if node == place) <= free
               for place, free in enumerate(gpus)):
            return True
    return False


def test_like_parts_start_exactly_if_there_is_a_way_at_all():
    dice = np.random.default_rng(7)
    outcomes = set()
    for _ in range(60):
        gpus = dice.integers(0, 5, size=3).tolist()
        least, size = int(dice.integers(2, 5)), int(dice.integers(1, 4))
        pods = [part(f"g{number}", size) for number in range(least)]
        live = cluster(*gpus, waiting=pods)
        is_decided = bool(ask(live, pods[0], least).node)
        assert is_decided == can_all_start(gpus, [size] * least) == all(places(live, pods))
        assert is_decided == any(places(live, pods)) and live.violations() == []
        outcomes.add(is_decided)
    assert outcomes == {True, False}


# --- in a journal

def test_a_journal_with_gangs_plays_itself_again_and_so_does_one_from_before(tmp_path):
    events = [*(NodeSeen(LiveNode(f"n{number}", "T4", 3, 8000, 8000)) for number in range(2)), *map(PodSeen, [*A, *B]),
              *(Asked(pod, None, 1.0, True, 4) for pod in (A[0], B[0], A[1])), Committing("a0", 2.0), Bound("a0"),
              *(Asked(pod, None, 3.0, True, 4) for pod in (A[2], B[3])), Passed(65.0), Asked(A[3], None, 66.0, True, 4)]
    folder = tmp_path / "folder"
    folder.mkdir()
    journal = Journal(folder, AuditedCluster(SETTINGS), file_bytes=3000)
    for event in events:
        journal.apply(event)
    journal.close()
    frame = replay_journal(folder)
    assert frame["same"].all() and frame["file"].nunique() > 1 and (frame["what"] == "decision").sum() == 6
    assert journal.live.violations() == [] and all(places(journal.live, A))
    before = tmp_path / "before.jsonl"
    old = Journal(before, AuditedCluster(SETTINGS))
    for event in (*events[:2], PodSeen(part("x", gang="")), Asked(part("y", gang=""), None, 1.0, True), Passed(40.0)):
        old.apply(event)
    old.close()
    lines = [json.loads(line) for line in before.read_text().splitlines()]
    assert lines[0].pop("gang_s") == 60.0 and not any("gang" in text for text in map(json.dumps, lines))
    before.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert replay_journal(before)["same"].all()


# --- at the bridge

POD_GROUP = "scheduling.x-k8s.io/pod-group"


class Groups(Server):
    """A server with groups, too; `looked` is who asked for which."""

    def __init__(self):
        super().__init__()
        self.groups, self.looked = {}, []

    def group(self, program, kind, namespace, name):
        self.looked.append((program, kind, namespace, name))
        found = self.groups.get(name)
        if isinstance(found, ApiError):
            raise found
        return found


def driven(mode="decide", settings=None):
    bridge = DrivenBridge(Groups(), mode, settings, None)
    for number in range(2):
        bridge.tell(NodeSeen(bridge.objects.node(openb_node(f"n{number}", gpus=2))))
    return bridge


def member(name, gates=(), **metadata):
    body = openb_pod(name)
    body["metadata"] |= {"labels": {POD_GROUP: "train"}, **metadata}
    body["spec"] |= {"schedulingGates": [{"name": gate} for gate in gates]}
    return body


def filtered(bridge, body, at_s=0.0):
    request = {"pod": body, "nodenames": ["n0", "n1"]}
    bridge._carried_out(bridge.looking_at_group(request, at_s))
    return bridge.filter(request, at_s)


def why(answer):
    return {*answer["FailedNodes"].values(), *answer["FailedAndUnresolvableNodes"].values()}


def seen(bridge, *bodies):
    for body in bodies:
        bridge.api.pods[body["metadata"]["name"]] = body
        bridge.tell(PodSeen(bridge.objects.pod(body)))


def group(least):
    return {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": least},
            "metadata": {"name": "train", "namespace": "team"}}


def test_a_gang_of_an_object_is_looked_at_once_and_is_bound_one_by_one():
    bridge = driven()
    bodies = [member(f"p{number}") for number in range(3)]
    seen(bridge, *bodies)
    assert why(filtered(bridge, bodies[0])) == {
        "nothing says how many pods of group scheduling.x-k8s.io team/train start together, as kubectl get "
        "podgroups.scheduling.x-k8s.io -A -o json would"}
    bridge.api.groups["train"] = ApiError(403, "forbidden")
    assert "it cannot be looked at: 403 forbidden" in next(iter(why(filtered(bridge, bodies[0]))))
    bridge.api.groups["train"] = group(3)
    nodes = {body["metadata"]["name"]: filtered(bridge, body)["NodeNames"] for body in bodies}
    assert len(bridge.api.looked) == 3 and all(len(names) == 1 for names in nodes.values())
    assert bridge.api.looked[0] == ("scheduling.x-k8s.io", "PodGroup", "team", "train")
    for name, (node,) in nodes.items():
        assert bridge.bind({"PodName": name, "PodNamespace": "team", "PodUID": f"uid-{name}", "Node": node}, 1.0) == {
            "Error": ""}
    assert bridge.live.reservations == {} and bridge.live.violations() == []
    bridge.api.groups["train"] = ApiError(0, "away")
    assert filtered(bridge, member("p9"), 40.0)["NodeNames"] and len(bridge.api.looked) == 4  # what was known counts


def test_what_is_held_back_or_about_to_go_or_cannot_be_promised_is_not_there():
    bridge = driven()
    bridge.api.groups["train"] = group(3)
    strange = member("p2", annotations={"nvidia.com/use-gpuuuid": "GPU-1"})
    seen(bridge, member("p0"), member("p1", gates=("wait",)), strange,
         member("p3", deletionTimestamp="2026-03-02T09:00:00Z"))
    assert why(filtered(bridge, member("p0"))) == {"1 of 3 pods of group scheduling.x-k8s.io team/train are there"}
    seen(bridge, member("p1"), member("p2"))
    assert filtered(bridge, member("p0"))["NodeNames"]


def tell_of_node(bridge, name, memory, product="T4"):
    labels = {"nvidia.com/gpu.memory": memory, "nvidia.com/gpu.product": product}
    bridge.tell(NodeSeen(bridge.objects.node(objects.node(name, labels, **{"nvidia.com__gpu": "1"}))))
    bridge.settle(0.0)


def members_in_mib(bridge, count, mib):
    """Pods of a group that start together, on a T4, which the bridge has seen."""
    bridge.api.groups["train"] = group(count)
    bodies = [objects.pod(f"p{number}", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": mib}, at="", phase="Pending",
                          annotations={"nvidia.com/use-gputype": "T4"}, labels={POD_GROUP: "train"})
              for number in range(count)]
    seen(bridge, *bodies)
    return bodies


def test_pods_in_mib_are_read_again_when_nodes_say_something_else():
    """Parts that were told of before any node are not there for their gang; with one they are, in its thousandths."""
    bridge = DrivenBridge(Groups(), "decide", None, None)
    bodies = members_in_mib(bridge, 2, "4096")
    assert [(one.gang, one.shares) for one in bridge.live.standing().waiting] == [("", (Share(1, 1000),))] * 2
    for memory, milli in (("16384", 250), ("8192", 500)):
        tell_of_node(bridge, "n0", memory)
        assert {one.shares for one in bridge.live.standing().waiting} == {(Share(1, milli),)}
    assert filtered(bridge, bodies[0])["NodeNames"] == ["n0"]
    assert [held.shares for held in bridge.live.standing().held] == [(Share(1, 500, "0"),)] * 2
    bridge.tell(PodGone("team/p0"))
    for memory in ("4096", "8192"):
        tell_of_node(bridge, "n0", memory)
        assert [one.name for one in bridge.live.standing().waiting] == ["team/p1"], "who has gone stays so"
        bridge.objects.pod(bodies[0])  # an old watch, which nobody hears


def test_pods_that_wait_are_read_by_one_node_of_each_kind_as_by_all_of_them():
    """Nodes come, change and go; only a kind that is new, or has gone, is news."""
    reader, dice = Objects(), random.Random(0)
    pod = objects.pod("p0", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}, at="", phase="Pending",
                      annotations={"nvidia.com/use-gputype": "T4"}, labels={POD_GROUP: "train"})
    told = set()
    for _ in range(150):
        name, memory = dice.choice("abcd"), dice.choice(("8192", "16384", ""))
        before, reader.has_news = set(reader.kinds), False
        if dice.random() < 0.4:
            reader.remember(name, None)
        else:
            labels = {"nvidia.com/gpu.memory": memory, "nvidia.com/gpu.product": dice.choice(("T4", "T4", "A100"))}
            reader.node(objects.node(name, labels, **{"nvidia.com__gpu": dice.choice("0128")}))
        kinds = {meaning_of(gpus) for gpus in reader.gpus.values()}
        assert reader.kinds.keys() == kinds and reader.has_news == (kinds != before)
        found = eligibility_of(reader, pod, tuple(reader.gpus))
        read = reader.pod(pod)
        assert read == found.pod if not found.refused else read.gang == ""
        told.add(found.refused)
    assert len(told) > 2 and "" in told


def test_parts_in_mib_are_counted_by_the_gpus_that_they_may_go_to():
    """Three times 8192 MiB are no way onto one T4 of 16384, whatever the other nodes have."""
    bridge = DrivenBridge(Groups(), "decide", None, None)
    for name, memory, product in (("n0", "16384", "T4"), ("n1", "81920", "A100"), ("n2", "81920", "A100")):
        tell_of_node(bridge, name, memory, product)
    bodies = members_in_mib(bridge, 3, "8192")
    assert filtered(bridge, bodies[0])["NodeNames"] == [] and not bridge.live.standing().held
    bridge.api.groups["train"] = group(2)
    assert filtered(bridge, bodies[0], 40.0)["NodeNames"] == ["n0"]
    assert {held.shares for held in bridge.live.standing().held} == {(Share(1, 500, "0"),)}


def test_a_bind_whose_place_was_given_back_is_refused_and_reasons_say_what_fits():
    bridge = driven("score")  # in which no other pod has anything reserved
    bodies = [member(f"p{number}") for number in range(2)]
    seen(bridge, *bodies)
    bridge.api.groups["train"] = group(2)
    (node,) = filtered(bridge, bodies[0])["NodeNames"]
    assert len(bridge.live.reservations) == 2
    bridge.settle(100.0)
    said = bridge.bind({"PodName": "p0", "PodNamespace": "team", "PodUID": "uid-p0", "Node": node}, 100.0)
    assert said["Error"].endswith("its place was given back: its group is decided anew") and not bridge.api.sent
    bridge.tell(PodSeen(replace(bridge.objects.pod(openb_pod("big", count=2)), node="n0")))
    bridge.tell(PodSeen(replace(bridge.objects.pod(openb_pod("one")), node="n1")))
    assert filtered(bridge, bodies[0], 101.0)["FailedNodes"] == {
        "n0": "1 of 2 parts of group scheduling.x-k8s.io team/train fit; 1 GPUs with 1000 milli left asked for, there "
              "are 0",
        "n1": "1 of 2 parts of group scheduling.x-k8s.io team/train fit; alone it would fit"}


@pytest.mark.parametrize(("mode", "settings"), [("observe", None), ("decide", BridgeSettings(has_gangs=False))])
def test_observing_lets_all_through_and_without_a_time_limit_there_are_no_gangs(mode, settings):
    bridge = driven(mode, settings)
    bridge.api.groups["train"] = group(3)
    answer = filtered(bridge, member("p0"))
    assert answer["NodeNames"] and len(bridge.live.reservations) == (mode == "decide")


# --- in a world of faults

def test_nothing_breaks_with_gangs_in_the_first_seeds():
    runs = [simulate(seed, 150, Makers(has_gangs=True)) for seed in range(8)]
    runs += [simulate(seed, 150, Makers(has_gangs=True, lease=Lease)) for seed in range(3)]
    assert [run for run in runs if run.finding] == [] and sum(run.decisions for run in runs) > 100


@pytest.mark.parametrize("kind", OF_GANGS)
def test_a_planted_bug_of_gangs_is_found(kind):
    """In the first run of `hunt` that did; hunt again for another one if what is simulated has changed."""
    assert simulate(OF_GANGS[kind], 150, Makers(live=kind, has_gangs=True)).finding
