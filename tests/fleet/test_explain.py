"""An explanation is a proof: the engine makes the same choice, every other node has a line, and each line is true."""
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sched_lab.cluster import State, toy_cluster
from sched_lab.fleet.ask.explain import (
    Ballot,
    Moment,
    Part,
    about_task,
    before,
    explain,
    explained,
    freed,
    lacks_of,
    moment_of,
    nearest_of,
    settings_for,
    vote,
    winner_past,
    winning_shares,
)
from sched_lab.fleet.live.core import Engine, LiveNode
from sched_lab.fleet.read.tables import NODE_COLUMNS, TASK_COLUMNS, ClusterTables, Ledger, with_columns
from sched_lab.fleet.replay.problem import Schedule, problem_of, recorded
from sched_lab.lab.frames import InputError
from sched_lab.lab.jit import interpreted
from sched_lab.lab.records import PolicyRecord, PolicyTable
from sched_lab.online.bid import pricing
from sched_lab.online.inflation import ArrivingTasks, decide, empty_memory, price, stage_now, weighing_of
from sched_lab.online.model import PowerSettings, Score, is_feasible, with_memory, world_of
from sched_lab.online.policies import POLICIES, policy_of
from sched_lab.online.pwr import pwr
from sched_lab.power import power_of
from sched_lab.traces import target_workload, task_classes, toy_tasks

CLUSTER, TASKS = toy_cluster(), toy_tasks()
CLASSES, CLASS_OF = task_classes(TASKS)
MIXES = ["pwr-fgd:0.1", "fgd-pwr:0.5", "bestfit-pwr:1/3", "random-fgd:0.5", "pwr@0.3@fgd",
         "pwr-fgd:0.2@0.5@pwr-fgd:0.8"]
NODE_TABLE = pd.DataFrame({"name": CLUSTER.name, "gpu_model": CLUSTER.gpu_model})


def moment_at(row: int, seed: int) -> Moment:
    """Put a toy task in front of the toy cluster with any amounts left, whether tasks could have led there or not."""
    stream = np.random.default_rng(seed)
    world = world_of(CLUSTER, CLASSES, target_workload(TASKS), power_of(CLUSTER))
    empty = State(*(amount.copy() for amount in world.state))
    world.state.cpu_left_milli[:] = stream.integers(0, CLUSTER.cpu_milli // 1000 + 1) * 1000
    world.state.memory_left_mib[:] = stream.integers(0, CLUSTER.memory_mib // 4096 + 1) * 4096
    left = stream.choice([0, 200, 300, 500, 700, 999, 1000, 1000], empty.gpu_left_milli.shape)
    world.state.gpu_left_milli[:] = np.where(empty.gpu_left_milli > 0, left, 0)
    world.residents[:] = stream.integers(0, 3, world.residents.shape)
    return Moment(world, empty, int(CLASS_OF[row]), int(TASKS.memory_mib[row]), int(stream.integers(2**62)))


def engine_choice(moment: Moment, policy) -> tuple[int, int]:
    """Node and GPUs by the plain loop of the engine, at prices of the moment if the policy asks for prices."""
    weighing = weighing_of(policy, moment.world._replace(state=moment.empty))
    in_use = np.array([(full - left).sum() for full, left in (
        (moment.empty.gpu_left_milli, moment.world.state.gpu_left_milli),
        (moment.empty.cpu_left_milli, moment.world.state.cpu_left_milli),
        (moment.empty.memory_left_mib, moment.world.state.memory_left_mib))])
    memory_mib = np.array([moment.memory_mib])
    world, task = with_memory(moment.world, np.array([moment.task]), memory_mib)
    arriving = ArrivingTasks(task, memory_mib, np.array([moment.die]))
    memory = empty_memory(len(CLASSES), len(CLUSTER), len(policy.scores))
    kernels = tuple(score.kernel for score in policy.scores)
    price((pricing,), world, memory, None)
    return decide(kernels, weighing, stage_now(weighing, 0, in_use), world, memory, arriving, 0)


@pytest.fixture(autouse=True)
def plain():
    """Let Python run the kernels: nothing to compile for each policy."""
    with interpreted(is_small=True):
        yield


MOMENTS = st.builds(moment_at, st.integers(0, len(TASKS) - 1), st.integers(0, 2**32))
SLOW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", [*POLICIES, *MIXES])
@SLOW
@given(moment=MOMENTS)
@example(moment=moment_at(2, 1788))  # `bid` goes elsewhere without its prices
@example(moment=moment_at(0, 192902))  # and here two prices were nearly equal
def test_the_engine_chooses_what_the_lines_prove(name, moment):
    policy = policy_of(name)
    ballot = vote(moment, policy)
    chosen = (ballot.nodes[0], ballot.gpu_mask) if len(ballot.nodes) else (-1, 0)
    assert chosen == engine_choice(moment, policy)
    is_lacking = sum(ballot.lacks.values()) > 0
    assert sorted([*ballot.nodes, *np.flatnonzero(is_lacking)]) == list(range(len(CLUSTER)))
    for node in range(len(CLUSTER)):
        has_memory = moment.world.state.memory_left_mib[node] >= moment.memory_mib
        assert is_lacking[node] != (is_feasible(moment.world, moment.task, node) and has_memory)
    is_fewer = ballot.total[1:] < ballot.total[:1]
    is_later = (ballot.total[1:] == ballot.total[:1]) & (ballot.nodes[1:] > ballot.nodes[:1])
    assert (is_fewer | is_later).all()


@SLOW
@given(moment=MOMENTS, alpha=st.fractions(0, 1, max_denominator=50))
def test_the_verdict_changes_where_it_says(moment, alpha):
    policy = policy_of(f"pwr-fgd:{alpha}")
    ballot = vote(moment, policy)
    if not ballot.is_mix:
        assert alpha in (0, 1) or not len(ballot.nodes)
        return
    (low, has_low), (high, has_high) = winning_shares(ballot, 0)
    assert low <= alpha <= high
    tiny = Fraction(1, 10**9)

    def winner(share):
        return vote(moment, policy_of(f"pwr-fgd:{share}")).nodes[0]

    inside = [low + tiny, high - tiny] if high - low > 2 * tiny else []
    inside += [low] * has_low + [high] * has_high
    assert {winner(share.limit_denominator(10**10)) for share in inside} <= {ballot.nodes[0]}
    for end, is_in, sign in ((low, has_low, -1), (high, has_high, 1)):
        past = end + sign * tiny * is_in
        if 0 <= past <= 1:
            told = ballot.nodes[winner_past(ballot, (end, is_in), sign == 1)]
            assert told == winner(past.limit_denominator(10**10)) != ballot.nodes[0]


def test_a_node_that_is_never_best_wins_with_no_weight():
    form = Score(POLICIES["fgd"].scalar_form.kernel)
    lines = np.array([[0, 4, 4, 1], [0, 1, 1, 4]])
    parts = [Part(name, 1, form, points, points, points) for name, points in zip("ab", lines, strict=True)]
    ballot = Ballot({}, np.array([2, 0, 1, 3]), parts, lines.sum(axis=0), 0)
    assert winning_shares(ballot, 0) is None and winning_shares(ballot, 2) is None
    assert winning_shares(ballot, 1) == ((Fraction(0), True), (Fraction(1, 2), True))
    assert winning_shares(ballot, 3) == ((Fraction(1, 2), False), (Fraction(1), True))


@SLOW
@given(moment=MOMENTS)
def test_what_is_freed_is_enough_and_not_too_much(moment):
    policy = policy_of("fgd")
    near = nearest_of(moment, policy, vote(moment, policy), CLUSTER.name.tolist())
    if near is None:
        empty = lacks_of(moment._replace(world=moment.world._replace(state=moment.empty)))
        assert not ((sum(empty.values()) == 0) & (sum(lacks_of(moment).values()) > 0)).any()
        return
    node = CLUSTER.name.tolist().index(near["node"])
    other, missing = freed(moment, lacks_of(moment), node)
    assert sum(lacks_of(other).values())[node] == 0
    assert (vote(other, policy).nodes[0] == node) == near["would_win"]
    for array, index in ((other.world.state.cpu_left_milli, node) if near["cpu_milli"] else (None, 0),
                         *((other.world.state.gpu_left_milli, (node, gpu)) for gpu in missing)):
        if array is not None:
            array[index] -= 1
            assert sum(lacks_of(other).values())[node] > 0
            array[index] += 1


def tables(tasks, nodes=None) -> ClusterTables:
    """Tables of the toy nodes and these tasks."""
    own = pd.DataFrame({"name": CLUSTER.name, "gpu_model": CLUSTER.gpu_model, "num_gpus": CLUSTER.num_gpus,
                        "cpu_milli": CLUSTER.cpu_milli, "memory_mib": CLUSTER.memory_mib})
    rows = [{"num_gpus": 0, "gpu_milli": 0, "cpu_milli": 1000, "memory_mib": 1024} | task for task in tasks]
    return ClusterTables(with_columns(own if nodes is None else nodes, NODE_COLUMNS),
                         with_columns(pd.DataFrame(rows), TASK_COLUMNS), Ledger().frame(), {"zero": None})


SHARE = {"num_gpus": 1, "gpu_milli": 700}
STORY = [{"name": "first", "submit_s": 0, "start_s": 0, "end_s": 100, "node": "ant", "gpu_list": "0", **SHARE},
         {"name": "second", "submit_s": 5, "start_s": 10, "end_s": 60, "node": "bee", "gpu_list": "1", **SHARE},
         {"name": "third", "submit_s": 5, "start_s": 10, "node": "ant", "gpu_list": "1", **SHARE},
         {"name": "waits", "submit_s": 20, "num_gpus": 4, "gpu_milli": 1000, "gpu_models": "T4|A100"},
         {"name": "gave up", "submit_s": 20, "end_s": 30, **SHARE}]


def test_the_state_is_that_of_the_record_when_the_task_came():
    problem = problem_of(tables(STORY))
    second = explain(problem, "second")
    assert (second.about["at_s"], second.about["running"], second.about["state"]) == (10, 1, "recorded")
    assert explain(problem, "third").about["running"] == 2  # second started in the same moment, and stands before it
    assert second.about["ran"]["node"] == "bee"
    gpus = second.gpus.set_index(["node", "gpu"])
    assert gpus.loc[("ant", 0), "left_milli"] == 300 and gpus.loc[("ant", 1), "left_milli"] == 1000
    assert explain(problem, "second", at_s=70).about["running"] == 2
    assert explain(problem, "gave up").about["at_s"] == 20
    late = explain(problem, "waits")
    assert late.about["at_s"] == 100 and late.about["running"] == 1 and late.about["choice"] is None
    assert "no node could take it even without any other task" in late.lines()
    lines = dict(zip(late.nodes["node"], late.nodes["line"], strict=True))
    assert lines["bee"] == "its GPU model is G2, not T4 or A100" and lines["dog"] == "has no GPU"
    assert lines["ant"] == "lacks 4 free GPUs (has 1 of 2)" and lines["cat"] == "lacks 4 free GPUs (has 1 of 1)"


NONE = "none of 2 alternatives holds: "
LABELS = ['{"zone": "a"}', '{"zone": "b"}', "", '{"zone": "a", "disk": "ssd"}']
TAINTS = ["", "", "", '[{"key": "x", "value": "y", "effect": "NoSchedule"}]']


@pytest.mark.parametrize(("constraints", "lines"), [
    ({"node_selector": {"zone": "a"}},
     ["", "label zone is b, wants a", "label zone is missing, wants a", "taint x=y:NoSchedule is not tolerated"]),
    ({"affinity": [[{"key": "zone", "operator": "NotIn", "values": ["a"]}]],
      "tolerations": [{"key": "x", "operator": "Exists"}]},
     ["label zone is a, must not be a", "", "", "label zone is a, must not be a"]),
    ({"affinity": [[{"key": "zone", "operator": "In", "values": ["c", "d"]}],
                   [{"key": "disk", "operator": "Exists", "values": []}]]},
     [f"{NONE}label zone is a, wants c or d | label disk is missing, must be there",
      f"{NONE}label zone is b, wants c or d | label disk is missing, must be there",
      f"{NONE}label zone is missing, wants c or d | label disk is missing, must be there",
      "taint x=y:NoSchedule is not tolerated"]),
    ({"affinity": [], "tolerations": [{"operator": "Exists"}]}, ["its affinity admits no node"] * 4)])
def test_labels_and_taints_are_called_by_name(constraints, lines):
    nodes = pd.DataFrame({"name": CLUSTER.name, "gpu_model": "T4", "num_gpus": 2, "cpu_milli": 8000,
                          "memory_mib": 4096, "labels": LABELS, "taints": TAINTS})
    problem = problem_of(tables([{"name": "one", **SHARE, "constraints": json.dumps(constraints)}], nodes))
    found = explain(problem, "one").nodes.set_index("node")["line"]
    assert ["" if lines[k] == "" else found[name] for k, name in enumerate(CLUSTER.name)] == lines
    assert all("label" not in found[name] for name, line in zip(CLUSTER.name, lines, strict=True) if not line)


def test_a_limit_of_an_application_is_a_reason():
    limit = {"constraints": '{"group": "web", "most_per_node": 1}', "num_gpus": 0}
    story = [{"name": f"web {name}", "submit_s": 0, "start_s": 0, "node": name, **limit} for name in CLUSTER.name[:3]]
    story += [{"name": "again", "submit_s": 5, **limit}, {"name": "other", "submit_s": 5, "num_gpus": 0}]
    found = explain(problem_of(tables(story)), "again")
    assert found.about["choice"]["node"] == "dog" and found.about["refused"] == {"instances": 3}
    assert found.nodes["line"][1] == "is at the limit of its application (1 task of it would have to leave)"
    assert found.about["nearest"]["instances"] == 1
    assert any("could take it with 1 fewer task of its application" in line for line in found.lines())
    assert "limit of its application 3" in " ".join(found.lines())
    assert "lacks_instances" not in explain(problem_of(tables(story)), "other").nodes


def test_everything_is_in_the_json_and_in_the_files(tmp_path):
    for task in ("second", "waits"):
        found = explain(problem_of(tables(STORY)), task, "pwr-fgd:0.1")
        told = json.loads(json.dumps(found.as_json(), allow_nan=False))
        assert len(told["nodes"]) == len(CLUSTER) and len(told["gpus"]) == CLUSTER.num_gpus.sum()
        found.report().write_tables(tmp_path)
        assert json.loads((tmp_path / "summary.json").read_text())["policy"] == "pwr-fgd:0.1"
        assert len(pd.read_csv(tmp_path / "nodes.csv")) == len(CLUSTER)
    assert told["choice"] is None and {"node", "line", "lacks_gpus"} <= told["nodes"][0].keys()


@pytest.mark.parametrize("name", ['</text><script>alert(1)</script> "b" {c} %d', "x" * 3000])
def test_foreign_names_are_data(name, tmp_path):
    nodes = pd.DataFrame({"name": [name, "other"], "gpu_model": ["T4", "G2"], "num_gpus": [2, 4],
                          "cpu_milli": [8000, 8000], "memory_mib": [4096, 4096]})
    problem = problem_of(tables([{"name": name, **SHARE}], nodes))
    found = explain(problem, name, "pwr-fgd:0.1")
    assert any(name in line for line in found.lines())
    found.report().write(tmp_path)
    assert "<script" not in (tmp_path / "explanation.svg").read_text()


def test_only_policies_of_power_need_watts():
    story = tables(STORY)
    story = replace(story, nodes=story.nodes.assign(gpu_model=["H999", "G2", "A100", ""]))
    problem = problem_of(story)
    for name in POLICIES:
        if policy_of(name).needs_watts:
            with pytest.raises(InputError, match="H999"):
                explain(problem, "first", name)
        else:
            assert explain(problem, "first", name).about["choice"]


def in_other_words(world, task, nodes, score, gpu_mask):
    """Leave the decision to PWR."""
    pwr(world, task, nodes, score, gpu_mask)


def test_a_policy_that_delegates_to_pwr_needs_watts_too():
    """Whoever does not say that a policy is blind to watts gets no GPU that draws 0 W."""
    table = PolicyTable(*POLICIES.values(), PolicyRecord("mine", "is PWR", "a test", Score(in_other_words)))
    story = tables(STORY)
    problem = problem_of(replace(story, nodes=story.nodes.assign(gpu_model=["H999", "G2", "A100", ""])))
    for name in ("mine", "mine-fgd:0.5", "fgd@0.5@mine"):
        chosen = policy_of(name, table=table)
        assert chosen.needs_watts and settings_for(problem, chosen, PowerSettings()) == PowerSettings()
        engine = Engine([LiveNode("a", "H999", 1, 1000, 1000)], target_workload(TASKS), chosen, PowerSettings())
        assert engine.barred[0].endswith("'H999'")
    assert not policy_of("mine-fgd:0", table=table).needs_watts


def test_more_than_there_is_cannot_be_explained():
    twice = [*STORY, {"name": "ghost", "submit_s": 0, "start_s": 1, "node": "ant", "gpu_list": "0", **SHARE}]
    with pytest.raises(InputError, match="hold more than there is"):
        explain(problem_of(tables(twice)), "second")


def test_the_moment_of_a_task_without_times_is_the_present():
    problem = problem_of(tables([{"name": "a", "node": "ant", "start_s": 50}, {"name": "b", "submit_s": 7}]))
    schedule = recorded(problem)
    assert moment_of(problem, schedule, 0) == 50 and moment_of(problem, schedule, 1) == 50
    nothing = Schedule(np.array([-1, -1]), np.zeros(2, int), np.full(2, np.nan), np.full(2, np.nan))
    assert moment_of(problem, nothing, 1) == 50 and not before(problem, nothing, 1, 50.0).any()


def test_a_draw_is_called_a_draw():
    moment = moment_at(5, 1)
    about = {"task": about_task(TASKS, 5)}
    found = explained(moment, policy_of("random"), NODE_TABLE, about)
    assert found.about["is_drawn"] and "not drawn" in set(found.nodes["line"]) and "by a draw" in found.lines()[1]
