"""The twin: what it keeps changes no answer, its forecasts come true, it follows a live cluster and does not flap."""
import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sched_lab.fleet.live.core.twin import LiveTwin, Twin

from sched_lab.cluster import Cluster
from sched_lab.fleet.live.bridge import Bridge
from sched_lab.fleet.live.core import (
    Asked,
    Bound,
    Committing,
    LiveCluster,
    LiveNode,
    LivePod,
    LiveSettings,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    PolicyChosen,
    Share,
)
from sched_lab.fleet.live.core import twin as twins
from sched_lab.fleet.live.journal import Journal, replay_journal
from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.problem import Problem
from sched_lab.lab.frames import InputError
from sched_lab.online.inflation import play
from sched_lab.online.model import PowerSettings, world_of
from sched_lab.online.policies import policy_of
from sched_lab.traces import Tasks, target_workload, task_classes
from tests.command_line import assert_refused, call
from tests.fleet import test_serve_command as serving
from tests.waiting import until

api = serving.api
dump = serving.dump
POLICIES = ("fgd", "pwr-fgd:0.1", "joint", "random")


def texts(*values) -> np.ndarray:
    return np.array(values, object)


NODES = Cluster(texts("n0", "n1", "n2", "n3"), np.array([32_000, 32_000, 64_000, 16_000]),
                np.array([65_536, 65_536, 131_072, 32_768]), np.array([2, 1, 4, 0]), texts("T4", "G2", "G2", ""),
                texts("", "", "", ""))
TASKS = Tasks(texts("half", "whole", "t4", "pair", "cpu", "third"), np.array([1000, 4000, 1000, 8000, 8000, 500]),
              np.array([1024, 8192, 2048, 16_384, 16_384, 512]), np.array([1, 1, 1, 2, 0, 1]),
              np.array([500, 1000, 500, 1000, 0, 300]), texts("", "", "T4", "", "", ""), texts(*[""] * 6))
CLASSES, CLASS_OF = task_classes(TASKS)


def empty_world():
    return world_of(NODES, CLASSES, target_workload(TASKS), PowerSettings().of(NODES))


def filled(rows):
    """World in which tasks have been placed by fgd, and the empty state."""
    world = empty_world()
    empty = twins.copied(world.state)
    play(policy_of("fgd"), world, CLASS_OF[rows], TASKS.memory_mib[rows])
    return world, empty


def drawn(rng, count, *, ends=True):
    rows = rng.integers(len(TASKS), size=count)
    lasts = rng.choice([5.0, 30.0, np.inf], size=count) if ends else np.inf
    return twins.coming(CLASS_OF[rows], TASKS.memory_mib[rows], np.sort(rng.integers(0, 60, count)).astype(float),
                        lasts)


def as_tuple(world):
    return [*world.state, world.residents]


# --- what is kept

def test_a_twin_that_has_looked_before_says_what_a_new_one_says():
    rng = np.random.default_rng(0)
    old = Twin(POLICIES, "waiting", seed=3)
    waited = 0
    for _ in range(25):
        world, empty = filled(rng.integers(len(TASKS), size=rng.integers(0, 9)))
        pods = drawn(rng, rng.integers(1, 30))
        table = old.what_if(world, empty, pods)
        pd.testing.assert_frame_equal(table, Twin(POLICIES, "waiting", seed=3).what_if(world, empty, pods))
        waited += table["failed"].sum()
    assert waited > 50


def test_a_what_if_changes_nothing_but_the_twin():
    world, empty = filled(np.array([0, 1, 2]))
    before = [array.copy() for array in (*as_tuple(world), *empty)]
    Twin(POLICIES).what_if(world, empty, drawn(np.random.default_rng(1), 20))
    for array, known in zip((*as_tuple(world), *empty), before, strict=True):
        np.testing.assert_array_equal(array, known)


def test_other_classes_of_pods_are_noticed():
    twin = Twin(("fgd", "joint"))
    for rows in ([0, 2, 4], [5, 2, 4], [1, 3, 4], [0, 2, 4]):  # as many classes and kinds, or not
        tasks = TASKS.take(np.array(rows))
        classes, class_of = task_classes(tasks)
        world = world_of(NODES, classes, target_workload(TASKS), PowerSettings().of(NODES))
        pods = twins.coming(np.tile(class_of, 6), np.tile(tasks.memory_mib, 6), np.arange(18.0))
        new = Twin(("fgd", "joint")).what_if(world, world.state, pods)
        pd.testing.assert_frame_equal(twin.what_if(world, world.state, pods), new)


# --- what it says

@pytest.mark.parametrize("name", [*POLICIES, "bestfit"])
def test_without_ends_a_forecast_is_an_inflation(name):
    rng = np.random.default_rng(2)
    rows = rng.integers(len(TASKS), size=18)
    history, future = rows[:0 if name == "random" else 6], rows[0 if name == "random" else 6:]
    whole = play(policy_of(name), empty_world(), CLASS_OF[rows], TASKS.memory_mib[rows], seed=4)
    now = empty_world()
    empty = twins.copied(now.state)
    play(policy_of(name), now, CLASS_OF[history], TASKS.memory_mib[history], seed=4)
    pods = twins.coming(CLASS_OF[future], TASKS.memory_mib[future], np.zeros(len(future)))
    row = Twin([name], seed=4).what_if(now, empty, pods).iloc[0]
    assert row["watts"] == whole.curve[-1][:2].sum()
    assert row["failed"] == (whole.node[len(history):] < 0).sum() > 0
    assert row["served"] == (whole.node[len(history):] >= 0).sum()


def test_energy_and_waits_by_hand():
    """One GPU; it is taken until 10 s, pod A takes it from 10 to 16 s, B waits until the end at 20 s, C comes then."""
    node = Cluster(texts("n"), np.array([32_000]), np.array([65_536]), np.array([1]), texts("T4"), texts(""))
    one = Tasks(texts("a"), np.array([0]), np.array([0]), np.array([1]), np.array([1000]), texts(""), texts(""))
    classes, class_of = task_classes(one)
    world = world_of(node, classes, target_workload(one), PowerSettings().of(node))
    empty = twins.copied(world.state)
    nobody = twins.coming(class_of[:0], one.memory_mib[:0], np.zeros(0))
    idle_w = Twin(["fgd"]).what_if(world, empty, nobody)["watts"][0]
    world.state.gpu_left_milli[0, 0] = 0
    zero = np.zeros(4, np.int64)
    pods = twins.Pods(zero, zero, np.array([0.0, 4.0, 10.0, 20.0]), np.array([10.0, 6.0, np.inf, 1.0]),
                      np.array([0, -1, -1, -1]), np.array([1, 0, 0, 0]))
    table = Twin(["fgd"]).what_if(world, empty, pods)
    assert table.loc[0, ["served", "failed"]].tolist() == [2, 1]  # B starts at 16 s and stays
    assert table["mean_wait_s"][0] == (6 + 6 + 0) / 3
    assert table["watts"][0] == idle_w + 60
    pods = pods._replace(submit_s=np.array([0.0, 12.0, 18.0, 20.0]))
    table = Twin(["fgd"]).what_if(world, empty, pods)  # free from 10 to 12 s
    assert table["watts"][0] == pytest.approx(idle_w + 60 * 18 / 20)


def test_the_loss_of_watts_is_for_those_that_serve_as_many():
    rows = [{"watts": watts, "failed": failed, "mean_wait_s": 0.0}
            for watts, failed in ((9, 2), (5, 3), (7, 2), (8, 0))]
    assert twins.losses(rows, "watts", 0).tolist() == [9, np.inf, 7, 8]
    assert twins.losses(rows, "watts", 1).tolist() == [9, 5, 7, 8]
    assert twins.losses(rows, "served", 0).tolist() == [2, 3, 2, 0]


def test_what_comes_next_is_what_came():
    past = drawn(np.random.default_rng(5), 30)._replace(submit_s=np.arange(30) * 7.0 + 1000)
    again = twins.as_before(past)
    assert again.submit_s.tolist() == (np.arange(30) * 7.0).tolist() and again.task.tolist() == past.task.tolist()
    one, same, other = (twins.as_before(past, seed) for seed in (1, 1, 2))
    assert one.task.tolist() == same.task.tolist() != other.task.tolist()
    assert set(zip(one.task, one.memory_mib, one.duration_s, strict=True)) <= set(
        zip(past.task, past.memory_mib, past.duration_s, strict=True))
    lasting = twins.memoryless(twins.coming(np.zeros(4000, int), np.zeros(4000, int), np.zeros(4000)), 50.0, 0)
    assert lasting.duration_s.mean() == pytest.approx(50, rel=0.05)
    assert np.isinf(twins.memoryless(past, np.nan, 0).duration_s).all()


# --- how it is used

def test_it_changes_its_mind_late_and_seldom():
    for leaders in itertools.product("abc", repeat=6):
        choice, changed_s = twins.Choice("a"), []
        for at_s, leader in enumerate(leaders):
            loss = {name: 1.0 if name == leader else 2.0 for name in "abc"}
            after = twins.next_choice(choice, loss, at_s, twins.Patience(0.1, 1.0))
            if after.policy != choice.policy:
                changed_s.append(at_s)
                assert leaders[at_s - 1:at_s + 1] == (after.policy,) * 2
            choice = after
        assert all(later - earlier > 1 for earlier, later in itertools.pairwise(changed_s))
    for loss in ({"a": 0.0, "b": 0.0}, {"a": 9.9999, "b": 10.0}):  # a draw, and less than the margin
        assert twins.next_choice(twins.Choice("b"), loss, 0.0, twins.Patience()) == twins.Choice("b")


def test_a_life_with_one_policy_is_a_replay():
    rng = np.random.default_rng(7)
    count = 150
    tasks = TASKS.take(rng.integers(len(TASKS), size=count))
    nobody = np.full(count, "", object)
    problem = Problem(NODES, tasks, NODES.cpu_model, np.sort(rng.integers(0, 400, count)) / 4,
                      rng.choice([0.0, 3.0, 8.25, np.inf], count, p=[0.1, 0.5, 0.35, 0.05]), np.full(count, np.nan),
                      np.full(count, -1), np.zeros(count, np.int64), nobody, nobody, np.zeros(count, np.int64),
                      pd.DataFrame(), None)
    whole = replay(problem, "fgd", backfill="first-fit")
    assert (whole.start_s > problem.submit_s).sum() > 20
    for knows in twins.KNOWLEDGE:
        lived, said = twins.live(problem, Twin(["fgd"]), np.arange(0.0, 130.0, 10.0), knows)
        begun = whole.start_s <= 120
        for one, other in zip(lived, whole, strict=True):
            np.testing.assert_array_equal(one[begun], other[begun])
        assert (lived.node[~begun] == -1).all() and said["in_use"].all()


@pytest.mark.parametrize(("options", "words"), [
    ({"policies": ()}, "needs policies"), ({"policies": ("fgd", "fgd")}, "each of them once"),
    ({"policies": ("best",)}, "no such policy|there is no"), ({"policies": ("fgd",), "objective": "fame"}, "fame")])
def test_bad_options_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        Twin(**options)


def test_bad_times_are_refused():
    world, empty = filled(np.array([0]))
    pods = drawn(np.random.default_rng(0), 3)
    for wrong in (pods._replace(submit_s=np.array([0.0, -1.0, 2.0])),
                  pods._replace(duration_s=np.array([0.0, np.nan, 2.0]))):
        with pytest.raises(InputError, match="before now, or at no time"):
            Twin(["fgd"]).what_if(world, empty, wrong)
    with pytest.raises(InputError, match="no way to look ahead"):
        LiveTwin(Twin(["fgd"]), 0.0)
    with pytest.raises(InputError, match="no way to look ahead"):
        LiveTwin(Twin(["fgd"]), 60.0, "known")


# --- in front of a live cluster

def live_nodes():
    return [LiveNode(f"n{n}", model, gpus, 32_000, 65_536) for n, (model, gpus) in enumerate(
        (("T4", 1), ("G2", 1), ("G2", 2)))]


def pod(number, milli=500, models=""):
    return LivePod(f"u{number}", f"ns/p{number}", 1000, 1024, (Share(1, milli),), models)


def start(policy="pwr"):
    live = LiveCluster(LiveSettings(policy))
    for node in live_nodes():
        live.apply(NodeSeen(node))
    return live


def ask(live, twin, one, at_s):
    """Ask, commit and bind, as the bridge does; return the decision."""
    decision = None
    for event in (Asked(one, None, at_s, True), Committing(one.uid, at_s), Bound(one.uid)):
        decision = live.apply(event) or decision
        twin.saw(event, at_s)
        if not decision.node:
            break
    return decision


def test_a_live_twin_looks_when_it_is_time_and_changes_nothing():
    live = start()
    twin = LiveTwin(Twin(("pwr", "fgd"), "served"), every_s=60.0)
    assert twin.look(live, 0.0) is None  # nobody has asked
    ask(live, twin, pod(1), 1.0)
    digest = live.digest()
    first = twin.look(live, 2.0)
    assert first.policy == "" and first.table["policy"].tolist() == ["pwr", "fgd"]
    assert first.text.startswith("stay with pwr; best for served: pwr")
    assert twin.look(live, 61.9) is None and twin.look(live, 62.0) is not None
    assert live.digest() == digest and live.policy == "pwr"


def test_a_change_is_an_event_that_the_journal_plays_again(tmp_path):
    """PWR gives both halves of the T4 to pods that could be elsewhere; FGD knows who else asks for them."""
    target = TASKS.take(np.array([0, 2]))
    live = LiveCluster(LiveSettings("pwr", target))
    journal = Journal(tmp_path / "journal.jsonl", live)
    twin = LiveTwin(Twin(("pwr", "fgd"), "served"), every_s=1.0)
    for node in live_nodes()[:2]:
        journal.apply(NodeSeen(node))
    models = ("", "", "T4", "T4")
    nodes = [ask(journal, twin, pod(number, 500, model), float(number)).node for number, model in enumerate(models)]
    assert nodes == ["n0", "n0", "", ""]
    for uid in ("u0", "u1"):
        journal.apply(PodGone(uid))
        twin.saw(PodGone(uid), 4.0)
    proposal = twin.look(live, 5.0)
    assert proposal.policy == "fgd" and proposal.text.startswith("change to fgd; best for served: fgd; failed: pwr 2")
    assert proposal.table.set_index("policy")["failed"].to_dict() == {"pwr": 2, "fgd": 0}
    assert live.policy == "pwr" and twin.look(live, 6.0).policy == "fgd"  # again, as long as nobody does it
    for event in (PolicyChosen("fgd"), PolicyChosen("fgd")):
        version = live.version
        journal.apply(event)
        twin.saw(event, 6.5)
    assert live.policy == "fgd" == twin.twin.choice.policy and live.version == version
    assert twin.look(live, 8.0).policy == ""
    nodes = [ask(journal, twin, pod(9 + number, 500, model), 9.0).node for number, model in enumerate(models)]
    assert nodes == ["n1", "n1", "n0", "n0"]
    with pytest.raises(InputError, match="best-of-all"):
        live.apply(PolicyChosen("best-of-all"))
    assert live.policy == "fgd"
    journal.close()
    played = replay_journal(tmp_path / "journal.jsonl")
    assert (played["what"] == "decision").sum() == 8 and played["what"].iloc[-1] == "state" and played["same"].all()
    lines = (tmp_path / "journal.jsonl").read_text().splitlines(keepends=True)
    path = tmp_path / "without.jsonl"
    path.write_text("".join(line for line in lines if "PolicyChosen" not in line))
    assert not replay_journal(path)["same"].all()


@dataclass(frozen=True)
class Plain:
    bridge: Any
    api: Any
    warm: Any
    gauges: Any


def walk(steps, hands):
    """Carry out the calls of steps, as the server does; return what they return, and the methods called."""
    called = []
    try:
        call = next(steps)
        while True:
            called.append(call.method)
            try:
                found = getattr(hands, call.method)(*call.arguments)
            except Exception as trouble:
                call = steps.throw(trouble)
            else:
                call = steps.send(found)
    except StopIteration as done:
        return done.value, called


@pytest.mark.parametrize("is_used", [False, True])
def test_a_lookout_looks_when_time_passes(tmp_path, is_used, caplog):
    live = LiveCluster(LiveSettings("pwr", TASKS.take(np.array([0, 2]))))
    twin = LiveTwin(Twin(("pwr", "fgd"), "served"), every_s=10.0)
    clock = iter(range(100))
    journal = Journal(tmp_path / "journal.jsonl", live)
    overheard = twins.Overheard(journal, twin, lambda: float(next(clock)))
    bridge = Bridge(live, overheard, mode="decide")
    lookout = twins.Lookout(bridge, twin, is_used=is_used)
    hands = twins.Hands(live, twin)
    assert hands.violations() == [] and lookout.mode == "decide" and lookout.gauges() == {}
    for node in live_nodes()[:2]:
        lookout.tell(NodeSeen(node))
    assert walk(lookout.settling(5.0), hands) == ({"Doubts": 0}, [])
    for number, models in enumerate(("", "", "T4", "T4")):
        lookout.tell(Asked(pod(number, 500, models), None, float(number), True))
    with caplog.at_level("INFO", "sched_lab.serve"):
        assert walk(lookout.settling(40.0), hands)[1] == ["play"]  # reservations have lapsed
    assert "change to fgd" in caplog.text and lookout.gauges() == {"twin pwr": 2.0, "twin fgd": 0.0}
    assert live.policy == ("fgd" if is_used else "pwr")
    assert ("PolicyChosen" in (tmp_path / "journal.jsonl").read_text()) == is_used
    hands.play = None  # a twin that fails
    assert walk(lookout.settling(60.0), hands) == ({"Doubts": 0}, ["play"])
    assert "the twin cannot look ahead" in caplog.text
    journal.close()
    assert replay_journal(tmp_path / "journal.jsonl")["same"].all()


def test_a_server_is_made_with_a_lookout_in_front():
    live = start("fgd")
    twin = LiveTwin(Twin(("fgd", "pwr")))
    bridge = Bridge(live, mode="score")
    lookout = twins.Lookout(bridge, twin, is_used=False)
    done = []
    made = Plain(bridge, live, lambda: done.append("warm"), lambda: {"pods": 1.0})
    works = lookout.over(made)
    assert works.bridge is lookout and works.api.names == live.names and works.gauges() == {"pods": 1.0}
    works.warm()
    assert done == ["warm"] and twin.memory.asked == {} and live.version == len(live_nodes())


def test_the_command_looks_ahead(api):
    """PWR is in use, of which half is left on one node; what is said is in the metrics, the log and the journal."""
    options = ("--policy", "pwr", "--twin", "pwr,fgd", "--objective", "served", "--twin-every", "1", "--twin-use")
    with serving.Serving(*options, "--journal", "j.jsonl") as one:
        assert one.ask("filter", {"Pod": serving.pod("new", 500), "NodeNames": ["n0", "n1"]})[1]["NodeNames"]
        text = until(lambda: "sched_lab_twin_loss{" in (said := one.ask("metrics", None, "GET")[1]) and said)
        assert 'sched_lab_twin_loss{policy="pwr"} 0.0' in text and 'sched_lab_twin_loss{policy="fgd"} 0.0' in text
        assert one.end() == 0
    said = [line["message"] for line in one.lines if line["message"].startswith("twin: ")]
    assert said and said[0].startswith("twin: stay with pwr; best for served: pwr; failed: pwr 0, fgd 0")
    assert replay_journal("j.jsonl")["same"].all()


@pytest.mark.parametrize(("arguments", "words"), [
    (("--twin", "fdg"), "did you mean fgd"), (("--twin", "fgd", "--objective", "fame"), "choose one of watts"),
    (("--twin", "pwr,pwr"), "each of them once"), (("--twin", "pwr", "--twin-every", "0"), "--twin-every")])
def test_the_command_refuses_in_one_line(dump, arguments, words, capsys):
    serving.kubeconfig_for(1)
    assert_refused(call("serve", "--kubeconfig", "kubeconfig", *arguments), capsys, words)


def test_pods_that_end_make_room_in_the_forecast():
    live = start("fgd")
    twin = LiveTwin(Twin(["fgd"], "served"), every_s=1.0, lasting="memoryless")
    for number in range(4):
        assert ask(live, twin, pod(number, 1000), float(number)).node
    assert twin.memory.mean_s() != twin.memory.mean_s()  # nan: nobody has ended
    assert twin.look(live, 100.0).table["failed"][0] == 4
    for event, at_s in ((PodGone("u0"), 101.0), (PodSeen(pod(7, 1000)), 101.0)):
        live.apply(event)
        twin.saw(event, at_s)
    assert twin.memory.mean_s() == 101.0
    still = twin.still(live, 200.0)
    assert (still.pods.node >= 0).sum() == len(twins.drawn_ends(twin.memory, 101.0, 200.0, 0)) > 0
    assert still.until_s == 200.0 and (still.pods.submit_s[still.pods.node < 0] == 0).any()
    stays = LiveTwin(Twin(["fgd"], "served"), every_s=1.0)
    stays.memory = twin.memory
    assert twin.look(live, 300.0).table["failed"][0] < stays.look(live, 300.0).table["failed"][0]


def test_nodes_and_pods_may_come_and_go_between_looks():
    live = start("fgd")
    twin = LiveTwin(Twin(("fgd", "pwr-fgd:0.1"), "watts"), every_s=1.0, lasting="memoryless")
    for number in range(4):
        ask(live, twin, pod(number, 300), float(number))
    for at_s, event in enumerate((NodeGone("n1"), PodGone("u2"), NodeSeen(LiveNode("n9", "A10", 4, None, None)),
                                  PodSeen(LivePod("x", "ns/x", 99_000, 1, (), "", "", "n0"))), 10):
        live.apply(event)
        twin.saw(event, float(at_s))
        seen = twin.look(live, float(at_s))
        fresh = LiveTwin(Twin(("fgd", "pwr-fgd:0.1"), "watts"), every_s=1.0, lasting="memoryless")
        fresh.memory = twin.memory
        pd.testing.assert_frame_equal(seen.table, fresh.look(live, float(at_s)).table)


def test_only_the_last_pods_are_remembered_and_each_once():
    twin = LiveTwin(Twin(["fgd"]))
    for number in range(twins.RECENT + 30):
        for at_s in (number, number + 0.5):
            twin.saw(Asked(pod(number), None, float(at_s), True), float(at_s))
    twin.saw(Asked(LivePod("bad", "ns/bad", 1, 1, (Share(1, 500), Share(1, 300))), None, 1.0, True), 1.0)
    assert len(twin.memory.asked) == twins.RECENT
    assert next(iter(twin.memory.asked.values()))[1] == 30.0 and "bad" not in twin.memory.asked
