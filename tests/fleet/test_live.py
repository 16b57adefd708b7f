"""A live cluster decides as an inflation does, and its arrays are what its pods say, in any order of events."""
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.cluster import default_cluster
from sched_lab.fleet.live.core import (
    Asked,
    BindFailed,
    Bound,
    Committing,
    Event,
    LiveCluster,
    LiveNode,
    LivePod,
    LiveSettings,
    NodeGone,
    NodeSeen,
    Passed,
    PodGone,
    PodSeen,
    Share,
    left_on,
)
from sched_lab.fleet.live.state import explain_standing
from sched_lab.lab.frames import InputError
from sched_lab.lab.jit import runs_interpreted
from sched_lab.online.inflation import inflate, sample_arrivals
from sched_lab.online.model import PowerSettings
from sched_lab.online.policies import POLICIES
from sched_lab.traces import Arrivals, default_tasks, toy_tasks
from tests.fleet.audit import AuditedCluster

TAINT = '[{"key": "only", "value": "gpu", "effect": "NoSchedule"}]'
TOLERATES = '{"tolerations": [{"key": "only", "operator": "Exists"}]}'
A, B, C = (LiveNode("a", "T4", 2, 8000, 16384), LiveNode("b", "T4", 4, 16000, 16384),
           LiveNode("c", "G2", 2, 8000, None, '{"zone": "east"}', TAINT))
pytestmark = pytest.mark.usefixtures("python_itself")


def pod(uid: str, *shares: tuple, cpu: int = 1000, memory: int = 1024, **rest) -> LivePod:
    return LivePod(uid, f"ns/{uid}", cpu, memory, tuple(Share(*share) for share in shares), **rest)


def asked(who: LivePod, nodes: tuple[str, ...] | None = None, at_s: float = 0.0, reserves: bool = True) -> Asked:
    return Asked(who, nodes, at_s, reserves)


def cluster_with(*nodes: LiveNode, events: tuple[Event, ...] = (), **rest) -> AuditedCluster:
    live = AuditedCluster(LiveSettings(**{"target": toy_tasks(), **rest}))
    for event in (*map(NodeSeen, nodes), *events):
        live.apply(event)
    return live


def ours(live: AuditedCluster) -> list[str]:
    return [line for line in live.violations() if line.startswith("ours")]


# --- the law: equal to inflate

def live_nodes(cluster) -> list[LiveNode]:
    return [LiveNode(str(name), str(model), int(gpus), int(cpu), int(memory)) for name, model, gpus, cpu, memory in
            zip(cluster.name, cluster.gpu_model, cluster.num_gpus, cluster.cpu_milli, cluster.memory_mib, strict=True)]


def pod_of_row(uid: str, tasks, row: int) -> LivePod:
    shares = ((int(tasks.num_gpus[row]), int(tasks.gpu_milli[row])),) if tasks.num_gpus[row] else ()
    return pod(uid, *shares, cpu=int(tasks.cpu_milli[row]), memory=int(tasks.memory_mib[row]),
               gpu_models=str(tasks.gpu_spec[row]))


def played(cluster, tasks, policy: str, rows, names=None) -> tuple[list, list]:
    """Places by event of a live cluster and of an inflation, nodes in the order of names."""
    live = AuditedCluster(LiveSettings(policy, tasks))
    for node in live_nodes(cluster)[::-1]:
        live.apply(NodeSeen(node))
    here = []
    for event, row in enumerate(rows.tolist()):
        decision = live.apply(asked(pod_of_row(f"u{event}", tasks, row), names))
        here.append((decision.node, decision.gpu_list))
        live.apply(Bound(f"u{event}"))
    rank = np.argsort(np.argsort(cluster.name.astype(str)))
    run = inflate(cluster, tasks, policy, arrivals=Arrivals(rows, rank))
    assert live.violations() == []
    assert live.gauges()["eopc_w"] == run.curve["eopc_w"].iloc[-1]
    assert live.gauges()["used_gpu_milli"] == run.curve["used_gpu_milli"].iloc[-1]
    assert live.gauges()["fragmentation_gpu_milli"] == pytest.approx(run.curve["frag_milli"].iloc[-1])
    there = run.assignments
    return here, list(zip(there["node"], there["gpu_list"], strict=True))


# bid has its prices put for each question
@pytest.mark.parametrize("policy", [*(name for name in POLICIES if name not in ("random", "bid")),
                                    "pwr-fgd:0.1", "pwr@0.4@fgd", "dotprod-bestfit:0.5"])
def test_every_policy_decides_as_in_an_inflation(policy):
    some = default_cluster().take(np.array([1210, 3, 700, 900, 560, 1100, 1180]))
    rows = sample_arrivals(some, default_tasks(), 4, 1.3).task_row
    here, there = played(some, default_tasks(), policy, rows)
    assert here == there and len(rows) > 20 and ("", "") in here


def test_the_default_cluster_is_filled_as_by_an_inflation():
    cluster = default_cluster()
    rows = sample_arrivals(cluster, default_tasks(), 7).task_row[:800]
    runs_interpreted.set(False)  # here there is enough to do
    here, there = played(cluster, default_tasks(), "pwr-fgd:0.1", rows, tuple(sorted(cluster.name, reverse=True)))
    assert here == there


# --- states and events

def state_of(live: AuditedCluster, uid: str) -> str:
    if uid in live.reservations:
        return "committing" if live.reservations[uid].is_committing else "reserved"
    return "held" if live.holds(uid) else "pending" if uid in live.pending else "unknown"


P = pod("p", (1, 500))
PLACED = replace(P, node="a", shares=(Share(1, 500, "0"),))
TO = {"unknown": (), "pending": (PodSeen(P),), "reserved": (asked(P, ("a",)),),
      "committing": (asked(P, ("a",)), Committing("p", 1.0)), "held": (PodSeen(PLACED),)}
EVENTS = {"asked": asked(P, ("a",), 50.0), "committing": Committing("p", 1.0), "bound": Bound("p"),
          "failed": BindFailed("p"), "passed": Passed(50.0), "seen": PodSeen(P), "seen at a": PodSeen(PLACED),
          "gone": PodGone("p")}
TABLE = {  # state before -> state after each of the events
    "unknown": ("reserved", "unknown", "unknown", "unknown", "unknown", "pending", "held", "unknown"),
    "pending": ("reserved", "pending", "pending", "pending", "pending", "pending", "held", "unknown"),
    "reserved": ("reserved", "committing", "held", "unknown", "unknown", "reserved", "held", "unknown"),
    "committing": ("committing", "committing", "held", "unknown", "committing", "committing", "held", "unknown"),
    "held": ("held", "held", "held", "held", "held", "held", "held", "unknown")}


@pytest.mark.parametrize("before", TABLE)
def test_a_pod_goes_from_state_to_state_as_the_table_says(before):
    for (name, event), after in zip(EVENTS.items(), TABLE[before], strict=True):
        live = cluster_with(A, events=TO[before])
        assert state_of(live, "p") == before
        version, digest = live.version, live.digest()
        live.apply(event)
        assert state_of(live, "p") == after, name
        assert (live.version == version) == (live.digest() == digest), name


def test_what_is_reserved_counts_and_comes_back():
    live = cluster_with(A)
    for uid in "pqrs":
        assert live.apply(asked(pod(uid, (1, 600)))).node == ("a" if uid in "pq" else "")
    decision = live.apply(asked(pod("s", (1, 600))))
    assert dict(decision.failed) == {"gpu": 1} and decision.points == 0 and decision.parts == ()
    live.apply(Committing("q", 10.0))
    live.apply(Passed(30.0))
    assert set(live.reservations) == {"p", "q"}  # not older than 30 s
    live.apply(Passed(30.5))
    assert set(live.reservations) == {"q"} and live.gauges()["lapsed"] == 1
    assert live.apply(asked(pod("s", (1, 600)))).gpu_list == "0"


def test_a_lapsed_pod_that_was_seen_waits_again():
    live = cluster_with(A, events=(PodSeen(P), asked(P)))
    assert live.pending == {}
    live.apply(Passed(31.0))
    assert live.pending == {"p": P}


def test_a_reservation_of_the_future_is_dated_back():
    live = cluster_with(A, events=(asked(P, at_s=1e9), Passed(5.0)))
    assert live.reservations["p"].at_s == 5.0
    live.apply(Passed(35.5))
    assert live.reservations == {}


def test_asking_twice_moves_the_reservation_and_asking_while_committing_does_not():
    live = cluster_with(A, B)
    first = live.apply(asked(P, ("a",)))
    moved = live.apply(asked(P, ("b",)))
    assert (first.node, moved.node, moved.version) == ("a", "b", first.version + 2)
    assert live.holds("p").node == "b" and live.gauges()["used_gpu_milli"] == 500
    live.apply(Committing("p", 1.0))
    assert live.apply(asked(P)) == moved
    other = live.apply(asked(P, ("a",)))
    assert other.node == "" and "b" in other.refused
    live.apply(Bound("p"))
    again = live.apply(asked(P))
    assert (again.node, again.gpu_list, again.refused) == ("b", moved.gpu_list, "")


def test_a_question_alone_changes_nothing():
    live = cluster_with(A, B)
    digest = live.digest()
    decision = live.apply(asked(P, reserves=False))
    assert decision.node and live.digest() == digest and live.version == 2
    assert live.scores(P) and live.why_not(pod("big", (4, 1000))) and live.digest() == digest


def test_what_the_watch_says_wins_over_a_reservation():
    live = cluster_with(A, B, events=(asked(P, ("a",)), PodSeen(replace(PLACED, node="b"))))
    assert live.holds("p").node == "b" and live.reservations == {}
    assert live.apply(asked(pod("q", (2, 1000)), ("a",))).node == "a"


def test_a_pod_is_counted_when_its_node_comes_and_remembered_when_it_goes():
    live = cluster_with(B, events=(PodSeen(replace(PLACED, shares=(Share(2, 1000, "0-1"),))),))
    assert live.gauges()["used_gpu_milli"] == 0
    live.apply(NodeSeen(A))
    assert live.gauges()["used_gpu_milli"] == 2000
    assert live.apply(asked(pod("q", (1, 10)), ("a",))).node == ""
    live.apply(NodeGone("a"))
    assert live.gauges()["used_gpu_milli"] == 0 and live.holds("p").node == "a"
    live.apply(NodeSeen(replace(A, num_gpus=3)))
    assert live.apply(asked(pod("q", (1, 10)), ("a",))).gpu_list == "2"


# --- what a question may be, and what is in the way

def test_a_question_that_cannot_be_answered_says_why():
    live = cluster_with(A)
    for who, why in ((pod("p", (1, 500), (1, 300)), "several sizes"), (pod("p", (2, 500)), "several GPUs"),
                     (pod("p", (1, 1001)), "1000"), (pod("p", (1, 0)), "below 1"),
                     (pod("p", constraints="{"), "cannot be read"), (pod("p", cpu=-1), "below 0")):
        decision = live.apply(asked(who))
        assert why in decision.refused and decision.node == "" and live.reservations == {}
        assert why in live.why_not(who)["a"] and live.scores(who) == {}


def test_what_is_in_the_way_is_said_with_amounts():
    live = cluster_with(A, B, C, events=(PodSeen(pod("q", (2, 900, "0-1"), cpu=7500, node="a")),))
    who = pod("p", (1, 500), gpu_models="T4")
    said = live.why_not(who, ("a", "b", "c", "d"))
    assert said == {"a": "1000 milli-vCPU asked for, 500 left", "c": "labels or taints do not admit the pod",
                    "d": "it is not known here"}
    assert live.why_not(replace(who, cpu_milli=0), ("a",)) == {
        "a": "1 GPUs with 500 milli left asked for, there are 0"}
    assert "G2" in live.why_not(replace(who, constraints=TOLERATES), ("c",))["c"]
    assert "MiB" in live.why_not(replace(who, memory_mib=20_000), ("b",))["b"]
    decision = live.apply(asked(who))
    assert decision.node == "b" and dict(decision.failed) == {"cpu": 1, "constraints": 1}


def test_labels_and_taints_decide_and_may_change():
    live = cluster_with(A, C)
    east = pod("p", constraints='{"node_selector": {"zone": "east"}, ' + TOLERATES[1:])
    assert live.apply(asked(east, reserves=False)).node == "c"
    assert live.apply(asked(pod("q"), reserves=False)).node == "a"
    live.apply(NodeSeen(replace(C, labels="{}")))
    assert live.apply(asked(east, reserves=False)).node == ""
    live.apply(NodeSeen(replace(A, labels='{"zone": "east"}')))
    assert live.apply(asked(east, reserves=False)).node == "a"


ALONE, PAIR = ('{"group": "g", "most_per_node": 1}', '{"group": "g", "most_per_node": 2}')


def test_pods_of_an_application_are_counted_by_the_limits_of_all_of_them():
    live = cluster_with(A, B, events=(PodSeen(pod("q", node="b", constraints=PAIR)),))
    assert live.apply(asked(pod("r", constraints=ALONE))).node == "a"
    decision = live.apply(asked(pod("s", constraints=PAIR)))  # beside q; r wants to be alone
    assert decision.node == "b" and dict(decision.failed) == {"instances": 1}
    third = pod("t", constraints=PAIR)
    assert live.apply(asked(third)).node == "" and live.apply(asked(pod("u"), ("a",))).node == "a"
    assert live.why_not(third) == dict.fromkeys("ab", "in the way: limit of its application")
    other = replace(third, constraints='{"group": "h", "most_per_node": 1}')
    assert live.apply(asked(other, ("b",), reserves=False)).node == "b"
    live.apply(PodGone("q"))
    assert live.apply(asked(third)).node == "b" and live.violations() == []
    live.apply(PodSeen(pod("v", node="b", constraints=ALONE)))
    assert live.violations() == ["theirs: node b: 3 pods of g, of which one admits 1"]


def test_a_node_that_cannot_be_used_is_kept_and_passed_over():
    odd = LiveNode("0", "B9", 2, 8000, 16384)
    live = cluster_with(A, odd, LiveNode("1", "T4", 63, 8000, 16384), policy="pwr")
    assert live.apply(asked(P)).node == "a"
    assert "B9" in live.why_not(P)["0"] and "62" in live.why_not(P)["1"]
    assert cluster_with(A, odd, policy="fgd").apply(asked(P, ("0",))).node == "0"
    known = PowerSettings(gpu_power_w={"B9": (10, 20)})
    assert cluster_with(odd, policy="pwr", power=known).apply(asked(P)).node == "0"


def test_no_nodes_no_answer():
    live = cluster_with()
    assert live.apply(asked(P)).node == "" and live.scores(P) == {} and live.why_not(P) == {}
    assert live.gauges()["eopc_w"] == 0 and live.violations() == []
    assert cluster_with(policy="random").apply(asked(P)).node == ""


def test_names_may_be_any_of_the_nodes_and_others():
    live = cluster_with(A, B)
    for names, found in ((("b", "x"), {"b"}), (("x",), set()), (("b", "a", "b"), {"a", "b"}), ((), set())):
        assert set(live.scores(P, names)) == found
    assert live.without(("b",)) == ("a",) and live.without(("b", "x")) is None


def test_lots_are_drawn_by_number_of_the_decision_and_seed():
    def drawn(seed: int) -> list[str]:
        live = cluster_with(A, B, policy="random", seed=seed)
        return [live.apply(asked(pod(f"u{k}", (1, 1)))).node for k in range(24)]
    assert drawn(1) == drawn(1) != drawn(2) and set(drawn(1)) == {"a", "b"}


def test_a_policy_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="nobody"):
        LiveCluster(LiveSettings("nobody"))
    with pytest.raises(TypeError, match="no event"):
        cluster_with(A).apply("hello")


# --- what others do

def test_where_others_took_too_much_nothing_is_placed_and_it_is_theirs():
    others = (PodSeen(replace(PLACED, shares=(Share(1, 800, "0"),))),
              PodSeen(pod("q", (1, 800, "0"), node="a")))
    live = cluster_with(A, events=others)
    decision = live.apply(asked(pod("r", (1, 500))))
    assert decision.node == "" and decision.failed == (("barred", 1),)  # GPU 1 is free, the books are wrong
    assert live.violations() == ["theirs: node a: 1600 milli held of GPU 0"]
    live.apply(PodGone("q"))
    assert live.apply(asked(pod("r", (1, 500)))).node == "a"
    live.apply(PodSeen(pod("q", (1, 800, "0"), node="a")))  # after ours
    assert [line[:6] for line in live.violations()] == ["theirs"]


def test_what_we_get_wrong_is_ours():
    live = cluster_with(A, events=(asked(P), Bound("p")))
    for wrong in (replace(PLACED, cpu_milli=9000), replace(PLACED, shares=(Share(1, 500, "7"),)),
                  replace(PLACED, gpu_models="A100"), replace(PLACED, memory_mib=2**20),
                  replace(PLACED, constraints='{"node_selector": {"zone": "west"}}')):
        right = live.holds("p")
        live._register.hold("p", wrong)
        assert ours(live), wrong
        live._register.hold("p", right)
    assert live.violations() == []


def test_gpus_that_nobody_names_are_chosen_after_those_that_are():
    unnamed = pod("a0", (1, 600), node="a")
    named = pod("z", (1, 600, "0"), node="a")
    for events in itertools.permutations([PodSeen(unnamed), PodSeen(named), PodSeen(pod("b", (1, 300), node="a"))]):
        live = cluster_with(A, events=events)
        # 600 of GPU 0 are named; 600 go to GPU 1, and 300 to the fuller of the two that can hold them
        assert live.apply(asked(pod("r", (1, 400)))).gpu_list == "1"
    left = left_on(A, live._register.on_node["a"])
    assert left.gpu_milli == [100, 0] and left.cpu_milli == 4000 and left.residents[0] == 4


def test_guesses_go_by_uid_and_not_by_who_came_first():
    for order in itertools.permutations([("a0", 600), ("b", 500), ("c", 400)]):
        live = cluster_with(A, events=tuple(PodSeen(pod(uid, (1, milli), node="a")) for uid, milli in order))
        assert left_on(A, live._register.on_node["a"]).gpu_milli == [0, 500]


def test_a_list_that_cannot_be_right_is_unknown():
    live = cluster_with(A, events=(PodSeen(pod("p", (1, 1000, "5"), node="a")),
                                   PodSeen(pod("q", (1, 1000, "0-1"), node="a"))))
    assert live.gauges()["used_gpu_milli"] == 2000 and live.violations() == []


def test_a_closed_gpu_is_no_capacity_and_a_pod_that_stays_on_it_does_not_close_its_node():
    ill = replace(B, closed_gpus="1-2-7")
    live = cluster_with(ill, events=tuple(PodSeen(pod(name, share, node="b")) for name, share in (
        ("p", (1, 600, "1")), ("q", (1, 1000, "0")))))
    amounts = live.gauges()
    assert [amounts[name] for name in ("gpus", "closed_gpus", "used_gpu_milli")] == [2, 2, 1000]
    assert live.apply(asked(pod("r", (1, 400)))).gpu_list == "3"
    assert live.gauges()["used_gpu_milli"] == 1400 and live.apply(asked(pod("s", (1, 1000)))).node == ""


def test_explain_of_a_standing_says_what_the_bridge_would_do_with_closed_gpus_and_too_many_pods():
    dice = np.random.default_rng(5)
    outcomes = set()
    for _ in range(16):
        nodes = [replace(node, closed_gpus="-".join(map(str, np.flatnonzero(dice.random(node.num_gpus) < 0.3))))
                 for node in (A, B)]
        held = [pod(f"p{number}", (1, int(dice.choice([400, 1000])), str(dice.integers(node.num_gpus))), node=node.name)
                for number, node in enumerate(nodes[k] for k in dice.integers(2, size=3))]
        wants = pod("q", (int(dice.integers(1, 3)), 1000) if dice.random() < 0.7 else (1, 500))
        live = cluster_with(*nodes, events=tuple(map(PodSeen, [*held, wants])))
        found = explain_standing(live.settings, live.standing(), "http://b", "ns/q", "fgd")
        said = live.apply(asked(wants))
        choice = found.about["choice"] or {"node": "", "gpu_list": []}
        assert (choice["node"], "-".join(map(str, choice["gpu_list"]))) == (said.node, said.gpu_list)
        overfull = found.about.get("overfull", [])
        assert overfull == [line.split()[2][:-1] for line in live.violations()]
        words = "its pods hold more than it has, so nothing else goes there"
        assert all(f"{name}: {words}" in found.lines() for name in overfull)
        assert (found.gpus["left_milli"] >= 0).all()
        outcomes |= {bool(said.node), f"{len(overfull)} overfull"}
    assert outcomes >= {True, False, "0 overfull", "1 overfull"}
    lone = cluster_with(replace(A, closed_gpus="0"), events=(PodSeen(pod("p", (1, 900, "1"), node="a")),))
    lone.apply(PodSeen(one := pod("r", (1, 1000))))
    found = explain_standing(lone.settings, lone.standing(), "http://b", one.name, "fgd")
    assert found.about["nearest"]["gpu_milli_by_gpu"] == {1: 900}  # not of the closed one
    lone.apply(PodSeen(pod("s", (1, 100, "1"), node="a")))
    found = explain_standing(lone.settings, lone.standing(), "http://b", one.name, "fgd")
    assert found.about["nearest"]["gpu_milli_by_gpu"] == {1: 1000}


def test_absurd_amounts_do_not_overflow():
    huge = pod("p", (10**30, 10**30), cpu=10**30, memory=10**30, node="a")
    live = cluster_with(A, replace(B, cpu_milli=10**30), events=(PodSeen(huge),))
    assert live.apply(asked(pod("q", (1, 1000)), ("a",))).node == ""
    assert live.apply(asked(pod("r", cpu=10**30))).node == ""
    live.apply(PodGone("p"))
    assert live.apply(asked(pod("q", (1, 1000)), ("a",))).node == "a"


def test_many_classes_share_the_rows_and_change_no_answer(monkeypatch):
    many = [pod(f"u{k}", (1, 1 + 7 * k % 90), cpu=k % 50) for k in range(120)]
    wide = cluster_with(A, B)
    wide.scores(P)  # its rows are there now
    monkeypatch.setattr("sched_lab.fleet.live.core.room_for_classes", lambda num_nodes: 4)
    narrow = cluster_with(A, B)
    for each in many:
        assert wide.apply(asked(each)) == narrow.apply(asked(each))
    assert len(narrow._engine.classes) <= 4 < len(wide._engine.classes)


# --- any order of events

UIDS = [f"u{k}" for k in range(5)]
NODES = [A, B, C, replace(A, num_gpus=1), replace(B, cpu_milli=3000), replace(C, taints="")]
SHARES = [(), ((1, 500),), ((1, 700),), ((1, 1000),), ((2, 1000),)]
HELD = [(), ((1, 500),), ((1, 500, "0"),), ((1, 900, "1"),), ((2, 1000, "0-1"),), ((1, 300, "0"), (1, 600, "1"))]
names = st.sampled_from(["a", "b", "c"])
uids = st.sampled_from(UIDS)
times = st.integers(0, 80).map(float)
limits = st.sampled_from(["", "", ALONE, PAIR])
asking = st.builds(lambda uid, shares, cpu, limit: pod(uid, *shares, cpu=cpu, constraints=limit), uids,
                   st.sampled_from(SHARES), st.sampled_from([500, 3000]), limits)
holding = st.builds(lambda uid, shares, node, limit: pod(uid, *shares, cpu=2000, node=node, constraints=limit), uids,
                    st.sampled_from(HELD), names, limits)
events = st.lists(st.one_of(
    st.sampled_from(NODES).map(NodeSeen), names.map(NodeGone), asking.map(PodSeen), holding.map(PodSeen),
    uids.map(PodGone), uids.map(Bound), uids.map(BindFailed), times.map(Passed), st.builds(Committing, uids, times),
    st.builds(Asked, asking, st.sampled_from([None, ("a", "b"), ("c", "b"), ("a",)]), times, st.booleans()),
    st.builds(Asked, asking, st.none(), times, st.just(True))), max_size=40)


def rebuilt(live: AuditedCluster) -> AuditedCluster:
    """Tell a new cluster what the other one knows, as after a restart."""
    again = AuditedCluster(live.settings)
    for uid in UIDS[::-1]:
        if held := live.holds(uid):
            again.apply(PodSeen(held))
        elif uid in live.pending:
            again.apply(PodSeen(live.pending[uid]))
    for node in live._nodes.values():
        again.apply(NodeSeen(node))
    return again


@settings(max_examples=80, deadline=None)
@given(events)
def test_any_events_leave_a_state_that_its_pods_explain(told):
    live = cluster_with(A, B)
    for event in told:
        version = live.version
        decision = live.apply(event)
        assert live.version - version in (0, 1, 2)
        assert ours(live) == []
        if decision is not None and decision.node and isinstance(event, Asked):
            assert event.nodes is None or decision.node in event.nodes
        assert set(live.reservations) <= {uid for uid in UIDS if live.holds(uid)}
    again = rebuilt(live)
    for uid in UIDS:
        live.apply(Bound(uid))
    assert live.digest() == again.digest() and live.gauges()["pods"] == again.gauges()["pods"]
    if not live.names:
        return
    state = live._ready()
    fresh = again._ready()
    for here, there in zip((*state.left, *state.world.state, state.world.residents, state.is_open, state.in_use),
                           (*fresh.left, *fresh.world.state, fresh.world.residents, fresh.is_open, fresh.in_use),
                           strict=True):
        assert np.array_equal(here, there)
    for limit in ("", ALONE, PAIR):
        probe = pod("probe", (1, 400), constraints=limit)
        assert live.scores(probe) == again.scores(probe) and live.why_not(probe) == again.why_not(probe)
