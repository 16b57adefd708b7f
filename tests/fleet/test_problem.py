"""Every row of a cluster is in the problem or in its ledger, and groups say what labels and taints say."""
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.fleet.read.reading import read_files
from sched_lab.fleet.read.tables import NODE_COLUMNS, TASK_COLUMNS, ClusterTables, Ledger, with_columns
from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.problem import (
    Rule,
    Taint,
    Toleration,
    as_in_the_past,
    counted_world,
    limits_of,
    meets,
    place_running,
    power_of_problem,
    problem_of,
    recorded,
    running_at,
    tolerates,
    world_of_problem,
)
from sched_lab.lab.frames import InputError
from sched_lab.online.model import Placements, PowerSettings, check_placements, slots_left
from sched_lab.traces import admits

pytestmark = pytest.mark.usefixtures("python_itself")
SHARED = Path(__file__).parents[3] / "shared"
NODE = {"name": "n0", "gpu_model": "T4", "num_gpus": 4, "cpu_milli": 64_000, "memory_mib": 262_144, "labels": "{}"}
TASK = {"submit_s": 0, "start_s": 5, "end_s": 65, "num_gpus": 1, "gpu_milli": 1000, "cpu_milli": 8000,
        "memory_mib": 16_384, "node": "n0", "gpu_list": "0"}
REFUSED = "refused"


def tables_of(tasks: list[dict], nodes: list[dict] = ({},)) -> ClusterTables:
    """Tables whose rows are the good ones but for what is said."""
    rows = [{**TASK, "name": f"task-{k}", **task} for k, task in enumerate(tasks)] or {"name": []}
    columns = [{**NODE, "name": f"n{k}", **node} for k, node in enumerate(nodes)]
    return ClusterTables(with_columns(pd.DataFrame(columns), NODE_COLUMNS),
                         with_columns(pd.DataFrame(rows), TASK_COLUMNS), Ledger().frame(), {"zero": None})


def problem_with(*tasks: dict, nodes: list[dict] = ({},)):
    return problem_of(tables_of(list(tasks), list(nodes)))


def lines(problem, what: str) -> list[tuple]:
    """Reason and count of the lines of a ledger."""
    rows = problem.ledger[problem.ledger["what"] == what]
    return list(zip(rows["reason"], rows["count"], strict=True))


def check_accounts(tables: ClusterTables, problem) -> None:
    """Every row of the tasks is in the problem, once or in parts, or refused; so is every node."""
    for file, frame, names in (("tasks.csv", tables.tasks, problem.tasks.name),
                               ("nodes.csv", tables.nodes, problem.cluster.name)):
        own = set(frame["name"])
        there = {name if name in own else name.rpartition("/")[0] for name in names}
        ledger = problem.ledger
        refused = ledger.loc[(ledger["what"] == REFUSED) & (ledger["file"] == file), "count"].sum()
        assert there <= own and len(there) + refused == len(frame)


def check_record(problem) -> None:
    """Check that what is on the nodes at each start is a placement, groups included."""
    record = recorded(problem)
    for moment in np.unique(record.start_s[np.isfinite(record.start_s)]):
        rows = np.flatnonzero(running_at(record, moment))
        check_placements(problem.grouped(), problem.tasks,
                         Placements(rows, record.node[rows], record.gpu_mask[rows]))


def test_a_good_row_stands_as_it_is():
    problem = problem_with({"user": "u", "queue": "q", "priority": 3, "gpu_models": "T4|A100"})
    assert problem.ledger.empty
    assert (problem.submit_s[0], problem.start_s[0], problem.duration_s[0]) == (0, 5, 60)
    assert (problem.node[0], problem.gpu_mask[0], problem.priority[0]) == (0, 1, 3)
    assert (problem.user[0], problem.queue[0], problem.tasks.gpu_spec[0]) == ("u", "q", "T4|A100")
    check_record(problem)


@pytest.mark.parametrize(("task", "reason"), [
    ({"end_s": 4}, "ended before it began"),
    ({"start_s": None, "submit_s": None}, "an end, and neither submission nor start"),
    ({"num_gpus": None}, "the number of GPUs is unknown"),
    ({"gpu_milli": 1500}, "gpu_milli is more than a GPU, 1000"),
    ({"gpu_milli": 0}, "the task asks for GPUs, and for nothing of each"),
    ({"num_gpus": -1}, "num_gpus is below 0 or beyond 2**40"),
    ({"num_gpus": 10**13}, "num_gpus is below 0 or beyond 2**40"),
    ({"num_gpus": 10**9, "gpu_milli": 500}, "shares of more GPUs than a node has"),
    ({"cpu_milli": -5}, "cpu_milli is below 0 or beyond 2**40"),
    ({"constraints": "disk=fast"}, "the constraints cannot be read"),
    ({"constraints": '{"affinity": [[{"key": "a", "operator": "Like", "values": []}]]}'},
     "the constraints cannot be read"),
    ({"constraints": '{"affinity": 3}'}, "the constraints cannot be read"),
    ({"constraints": '["a"]'}, "the constraints cannot be read"),
])
def test_an_impossible_row_is_refused_by_name(task, reason):
    problem = problem_with({}, task)
    assert problem.tasks.name.tolist() == ["task-0"] and lines(problem, REFUSED) == [(reason, 1)]
    assert problem.ledger["row"].tolist() == [3]


@pytest.mark.parametrize(("task", "expected"), [
    ({"submit_s": None}, (5, 5, 60)),
    ({"submit_s": 9}, (5, 5, 60)),
    ({"end_s": None}, (0, 5, np.inf)),
    ({"start_s": None, "node": ""}, (0, np.nan, 65)),
    ({"start_s": None, "end_s": None, "node": ""}, (0, np.nan, np.inf)),
    ({"start_s": None, "end_s": None, "submit_s": None, "node": ""}, (0, np.nan, np.inf)),
    ({"start_s": None, "end_s": None, "submit_s": 7}, (7, 7, np.inf)),
    ({"start_s": 5.0001, "end_s": 65}, (0, 5, 60)),
])
def test_unknown_times_are_understood_as_the_ledger_says(task, expected):
    problem = problem_with(task)
    np.testing.assert_equal((problem.submit_s[0], problem.start_s[0], problem.duration_s[0]), expected)
    assert problem.ledger.empty == (task.get("start_s") == 5.0001)


def test_what_never_ran_is_no_load_in_a_replay():
    """Four rows of four GPUs on one node: with-drawn, neither time, waiting, and one that ran."""
    never = {"num_gpus": 4, "gpu_list": "", "node": "", "start_s": None}
    problem = problem_with({**never, "end_s": 40}, {**never, "end_s": None}, {**never, "end_s": None,
                           "state": "waiting"}, {"num_gpus": 4, "gpu_list": "", "node": "", "end_s": 45})
    assert problem.replayable.tolist() == [False, False, True, True]
    assert [reason for reason, _ in lines(problem, "left out")] == [
        "ended and never started: waited and left, no load in a replay",
        "neither start nor end: no load in a replay, since nothing says that it waits, nor for how long it would run"]
    schedule = replay(problem, "fgd", power=PowerSettings(), backfill="first-fit")
    assert schedule.node.tolist() == [-1, -1, 0, -1] and schedule.start_s[2] == 0


def test_a_node_that_is_drained_now_was_open_before():
    drained = json.dumps([{"key": "slurm/state", "value": "DRAIN", "effect": "NoSchedule"},
                          {"key": "team", "effect": "NoSchedule"}])
    only = json.dumps([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])
    tables = tables_of([{"node": "n0"}, {"node": "n1"}, {"node": "n2", "end_s": None}],
                       [{"taints": drained}, {"taints": only}, {"taints": only}])
    past = as_in_the_past(tables)
    assert past.nodes["taints"].tolist() == ['[{"effect": "NoSchedule", "key": "team"}]', "", only]
    assert past.ledger["count"].tolist() == [2] and past.ledger["row"].tolist() == [2]
    assert tables.nodes["taints"].tolist() == [drained, only, only]


@given(st.floats(0, 1e9), st.floats(0, 1e8))
@settings(max_examples=30)
def test_start_and_duration_are_the_end_to_the_bit(start_s, lasting_s):
    problem = problem_with({"start_s": start_s, "end_s": start_s + lasting_s, "submit_s": None},
                           {"start_s": start_s + lasting_s, "end_s": None})
    assert problem.start_s[0] + problem.duration_s[0] == problem.start_s[1]


def test_shares_of_several_gpus_are_several_tasks():
    problem = problem_with({"num_gpus": 2, "gpu_milli": 300, "gpu_list": "1-3"},
                           {"num_gpus": 3, "gpu_milli": 142, "gpu_list": "2"})
    assert problem.tasks.name.tolist() == ["task-0/0", "task-0/1", "task-1/0", "task-1/1", "task-1/2"]
    assert problem.gpu_mask.tolist() == [2, 8, 4, 4, 4]
    assert problem.tasks.cpu_milli.tolist() == [8000, 0, 8000, 0, 0]
    assert problem.tasks.gpu_milli.tolist() == [300, 300, 142, 142, 142]
    check_record(problem)


CUT = json.dumps({"whole": 1, "nvidia.com/mig-1g.5gb": 3, "nvidia.com/mig-2g.10gb": 2})
WAITS = {"start_s": None, "end_s": None, "node": "", "gpu_list": ""}


def test_an_instance_is_counted_and_is_no_share_of_a_gpu():
    """A task has all of its instances on one node, and its whole GPUs there, too."""
    problem = problem_with({"mig_profile": "mig-1g.5gb", "gpu_list": "1"},
                           {"num_gpus": 3, "mig_profile": "1g.5gb,2g.10gb,1g.5gb"},
                           {**WAITS, "num_gpus": 3, "mig_profile": "whole,2g.10gb,whole"}, WAITS,
                           nodes=[{"gpu_model": "A100", "num_gpus": 2, "devices": CUT}, {}])
    assert problem.cluster.num_gpus.tolist() == [1, 4] and problem.cluster.gpu_model.tolist() == ["A100", "T4"]
    assert problem.tasks.num_gpus.tolist() == [0, 0, 2, 1] and problem.tasks.gpu_milli.tolist() == [0, 0, 1000, 1000]
    assert problem.gpu_mask.tolist() == [0, 0, 0, 0]
    profiles, need, room = problem.instances
    assert profiles == ("1g.5gb", "2g.10gb") and room.tolist() == [[3, 2], [0, 0]]
    assert need.tolist() == [[1, 0], [2, 1], [0, 1], [0, 0]]
    admitted = [[admits(spec, group) for group in problem.group] for spec in problem.tasks.cpu_spec]
    assert admitted == [[True, False]] * 3 + [[True, True]]
    assert ("GPUs that are cut serve instances only, which are counted: their watts and GPU hours are not",
            1) in lines(problem, "interpreted")


def test_gpus_that_are_cut_are_for_nobody_else():
    problem = problem_with(WAITS, nodes=[{"num_gpus": 8, "devices": '{"nvidia.com/gpu (1g.5gb)": 56}'},
                                         {"devices": '{"gpu.nvidia.com device 1g.5gb": 28}'}, {"devices": "what?"}])
    assert problem.cluster.num_gpus.tolist() == [0, 4, 4] and problem.cluster.gpu_model.tolist() == ["", "T4", "T4"]
    assert ("devices of the node cannot be read: taken as none", 1) in lines(problem, "interpreted")


def test_instances_that_ran_were_there():
    """Where nodes say nothing, or too little, as many are taken to be there as ran at once, whatever the order."""
    one = {"mig_profile": "1g.5gb"}
    tasks = [{**one, "start_s": 0, "end_s": 10}, {**one, "start_s": 5, "end_s": 20},
             {**one, "start_s": 10, "end_s": 20}, {**one, "start_s": 30, "end_s": None, "num_gpus": 4},
             *[{**one, "node": "n1"}] * 2, {"node": "n1", "num_gpus": 4}]
    problem = problem_with(*tasks, nodes=[{}, {}, {"devices": '{"1g.5gb": 1}'}])
    assert problem.instances.room.tolist() == [[4], [2], [1]]
    assert problem.cluster.num_gpus.tolist() == [3, 4, 0]  # on the second node whole GPUs ran beside them
    assert lines(problem, "assumed") == [("instances that ran there are taken to be there all the time", 2)]
    check_record(problem)
    more = problem_with(one, one, nodes=[{"devices": '{"1g.5gb": 1}'}])
    assert more.instances.room.tolist() == [[2]]
    assert ("more instances ran at once than the node shows: taken as there", 1) in lines(more, "interpreted")


def test_what_nobody_has_is_placed_nowhere():
    """No share of a GPU stands in for an instance, be the profile known or not."""
    problem = problem_with({**WAITS, "mig_profile": "9x"}, {**WAITS, "mig_profile": "3g.20gb"}, {"num_gpus": 2,
                           "mig_profile": "1g.5gb,2g.10gb,1g.5gb"})
    assert [[admits(spec, group) for group in problem.group] for spec in problem.tasks.cpu_spec] == [[False], [False]]
    assert ("no node has the instances that it asks for: no policy can place it", 2) in lines(problem, "interpreted")
    assert lines(problem, REFUSED) == [("mig_profile names another number of instances than num_gpus", 1)]


def test_a_model_that_an_instance_must_be_of():
    nodes = [{"gpu_model": "A100", "devices": '{"1g.5gb": 7}'}, {"gpu_model": "A30", "devices": '{"1g.5gb": 7}'}]
    problem = problem_with({**WAITS, "mig_profile": "1g.5gb", "gpu_models": "A30"}, nodes=nodes)
    assert [admits(problem.tasks.cpu_spec[0], group) for group in problem.group] == [False, True]
    assert problem.tasks.gpu_spec.tolist() == [""]


def test_kinds_of_gpus_are_devices_of_a_node():
    asks = {**WAITS, "gpu_milli": 250, "constraints": '{"devices": ["nvidia.com/gpu.shared (1/4)"]}'}
    nodes = [{}, {"devices": '{"nvidia.com/gpu.shared (1/4)": 8}'}, {"devices": '{"nvidia.com/gpu.shared (1/4)": 0}'}]
    problem = problem_with(asks, {**asks, "constraints": '{"devices": "all"}'}, nodes=nodes)
    assert [admits(problem.tasks.cpu_spec[0], group) for group in problem.group] == [False, True, False]
    assert lines(problem, REFUSED) == [("the constraints cannot be read", 1)]
    assert problem.cluster.num_gpus.tolist() == [4, 4, 4]


def test_limits_of_applications_and_of_instances():
    limit = {**WAITS, "constraints": '{"group": "a", "most_per_node": 2}'}
    problem = problem_with({**limit, "mig_profile": "1g.5gb"}, limit, {**WAITS, "mig_profile": "1g.5gb"}, WAITS,
                           nodes=[{"devices": '{"1g.5gb": 1}'}])
    number, limits = limits_of(problem)
    assert number[3] == -1 and len(set(number[:3].tolist())) == 3
    assert [slots_left(limits, limit, 0) for limit in number[:3]] == [1, 2, 1]
    limits.num[0, number[2]] = 1
    assert [slots_left(limits, limit, 0) for limit in number[:3]] == [0, 2, 0]


def test_nodes_of_unknown_size_are_never_in_the_way():
    problem = problem_with({}, {"gpu_list": "1", "cpu_milli": None}, nodes=[{"cpu_milli": None, "memory_mib": None}])
    assert problem.cluster.cpu_milli[0] == 8000 and problem.cluster.memory_mib[0] == 2 * 16_384
    assert power_of_problem(problem, PowerSettings()).cpu_full_w[0] == 0
    assert power_of_problem(problem, PowerSettings(cpu_power_w={"unknown": (1, 2, 4)})).cpu_full_w[0] == 2
    check_record(problem)


def test_models_are_kept_with_watts_or_without():
    problem = problem_with({"node": "n1"}, {"gpu_models": "H999"}, {"gpu_models": "B1"},
                           nodes=[{"gpu_model": " H999 "}, {"gpu_model": "A100+T4"}, {"num_gpus": 0}])
    assert problem.cluster.gpu_model.tolist() == ["H999", "A100+T4", ""]
    assert [reason.partition(":")[0] for reason, _ in lines(problem, "interpreted")] == [
        "GPUs of several models", "asks for GPU models that no node has"]
    with pytest.raises(InputError, match="H999"):
        world_of_problem(problem, PowerSettings())


@pytest.mark.parametrize(("tasks", "nodes", "words"), [
    ([{}], [{"num_gpus": 10**9}], "more than 62 GPUs in a node"), ([{"end_s": 1}], [{}], "ended before it began"),
    ([{}], [], "there are no nodes"), ([], [{}], "there are no tasks"),
    ([{"constraints": "?"}], [{}], "constraints cannot be read")])
def test_nothing_to_replay_is_an_error(tasks, nodes, words):
    with pytest.raises(InputError, match=words):
        problem_of(tables_of(tasks, nodes))


@pytest.mark.parametrize("gpu_list", ["0-1", "4", "x", "0-99999"])
def test_a_list_that_does_not_fit_is_unknown(gpu_list):
    problem = problem_with({"gpu_list": gpu_list})
    assert problem.gpu_mask.tolist() == [0] and recorded(problem).gpu_mask.tolist() == [1]
    assert lines(problem, "interpreted") == [
        ("gpu_list does not fit the task or the node: its GPUs are unknown", 1)]


def test_gpus_that_are_not_recorded_are_chosen_in_the_order_of_time():
    share = {"gpu_milli": 400, "gpu_list": ""}
    problem = problem_with({"gpu_list": "1"}, {"num_gpus": 2, "gpu_list": ""}, share, share, share,
                           {"start_s": 65, "end_s": 80, "num_gpus": 3, "gpu_list": ""})
    assert recorded(problem).gpu_mask.tolist() == [2, 5, 8, 8, 8, 7]
    check_record(problem_with({"gpu_list": "1"}, {"num_gpus": 2, "gpu_list": ""}, share, share))


def test_running_tasks_are_taken_from_the_world():
    problem = problem_with({}, {"num_gpus": 2, "gpu_list": "1-2"}, {"start_s": 70, "end_s": 80})
    record = recorded(problem)
    world, class_of = world_of_problem(problem, PowerSettings())
    place_running(world, problem, class_of, record, running_at(record, 6))
    assert world.state.gpu_left_milli.tolist() == [[0, 0, 0, 1000]]
    assert world.state.cpu_left_milli.tolist() == [64_000 - 16_000] and world.residents.sum() == 2
    for moment, expected in ((4, 0), (5, 2), (65, 0), (70, 1)):
        assert running_at(record, moment).sum() == expected


def test_what_was_booked_twice_is_refused_with_the_node():
    problem = problem_with({}, {})
    world, class_of = world_of_problem(problem, PowerSettings())
    with pytest.raises(InputError, match="node n0.*GPU"):
        place_running(world, problem, class_of, recorded(problem), np.ones(2, bool))


def test_a_cordoned_node_keeps_what_it_has():
    cordon = '[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]'
    problem = problem_with({}, nodes=[{"taints": cordon}, {}])
    assert problem.group.tolist() == ["g0", "g1"] and problem.tasks.cpu_spec.tolist() == ["g1"]
    world, class_of = world_of_problem(problem, PowerSettings())
    place_running(world, problem, class_of, recorded(problem), np.ones(1, bool))
    assert world.state.gpu_left_milli[0].tolist() == [0, 1000, 1000, 1000]


def test_what_is_not_represented_is_named():
    problem = problem_with({"constraints": '{"spread": "zone", "pod_affinity": []}'}, {"gpu_list": "1"})
    assert [reason.partition(" ")[0] for reason, _ in lines(problem, "interpreted")] == ["pod_affinity", "spread"]


def test_walltimes_are_at_least_as_long_as_what_ran():
    problem = problem_with({"walltime_s": 90}, {"walltime_s": 30}, {}, {"walltime_s": 0},
                           {"end_s": None, "walltime_s": 90})
    assert problem.walltime_s.tolist() == [90, 60, 60, 60, np.inf]
    assert [count for reason, count in lines(problem, "interpreted") if "longer than its walltime" in reason] == [1]
    assert problem_with({}).walltime_s is None


def test_limits_of_applications():
    shares = {"num_gpus": 2, "gpu_milli": 500, "constraints": '{"group": "a", "most_per_node": 3}'}
    problem = problem_with({"constraints": '{"group": "b", "most_per_node": 2}'}, {}, shares,
                           {"constraints": '{"group": "a", "most_per_node": 1}'})
    assert problem.app.tolist() == ["b", "", "a", "", "a"] and problem.most_per_node.tolist() == [2, 0, 3, 0, 1]
    number, limits = limits_of(problem)
    assert number.tolist() == [2, -1, 1, -1, 0] and limits.most.tolist() == [1, 3, 2]
    assert limits.span.tolist() == [[0, 2], [0, 2], [2, 3]]
    world, class_of = counted_world(problem, PowerSettings())
    assert world.demand.limit[class_of].tolist() == number.tolist()
    assert problem_with({}).app is None


@pytest.mark.parametrize("said", ['{"group": "a"}', '{"most_per_node": 2}', '{"group": "a", "most_per_node": 0}',
                                  '{"group": "a", "most_per_node": "2"}', '{"group": ["a"], "most_per_node": 2}',
                                  '{"group": "a", "most_per_node": true}', '{"group": "a", "most_per_node": 1e400}'])
def test_limits_that_are_none(said):
    problem = problem_with({"constraints": said}, {})
    assert lines(problem, "refused") == [("the constraints cannot be read", 1)]


@pytest.mark.parametrize("name", ["labels", "taints"])
@pytest.mark.parametrize("text", ["a=b", "3", "[[" * 2000])
def test_labels_and_taints_that_cannot_be_read(name, text):
    problem = problem_with({}, nodes=[{name: text}])
    assert lines(problem, "interpreted") == [(f"{name} of the node cannot be read: taken as none", 1)]


@pytest.mark.parametrize(("rule", "value", "is_met"), [
    (Rule("k", "In", ("a", "b")), "b", True), (Rule("k", "In", ("a",)), None, False),
    (Rule("k", "NotIn", ("a",)), None, True), (Rule("k", "NotIn", ("a",)), "a", False),
    (Rule("k", "Exists", ()), "", True), (Rule("k", "Exists", ()), None, False),
    (Rule("k", "DoesNotExist", ()), None, True), (Rule("k", "DoesNotExist", ()), "", False),
    (Rule("k", "Gt", ("4",)), "5", True), (Rule("k", "Gt", ("4",)), "4", False),
    (Rule("k", "Gt", ("4",)), None, False), (Rule("k", "Gt", ("4",)), "many", False),
    (Rule("k", "Lt", ("4",)), "3", True), (Rule("k", "Lt", ("4", "5")), "3", False),
])
def test_rules_are_those_of_kubernetes(rule, value, is_met):
    assert meets(rule, value) == is_met


@pytest.mark.parametrize(("toleration", "is_covered"), [
    (Toleration("", "Exists", "", ""), True), (Toleration("k", "Exists", "", ""), True),
    (Toleration("k", "", "v", ""), True), (Toleration("k", "Equal", "w", ""), False),
    (Toleration("k", "Equal", "v", "NoExecute"), False), (Toleration("k", "Equal", "v", "NoSchedule"), True),
    (Toleration("j", "Exists", "", ""), False),
])
def test_tolerations_are_those_of_kubernetes(toleration, is_covered):
    assert tolerates(toleration, Taint("k", "v", "NoSchedule")) == is_covered


ZONES = [{"labels": '{"zone": "a"}'}, {"labels": '{"zone": "b", "cpus": 8}'},
         {"labels": '{"zone": "a"}', "taints": '[{"key": "team", "value": "x", "effect": "NoExecute"}]'},
         {"taints": '[{"key": "slow", "effect": "PreferNoSchedule"}]'}]


@pytest.mark.parametrize(("said", "nodes"), [
    ("", [0, 1, 3]), ('{"node_selector": {"zone": "a"}}', [0]), ('{"node_selector": {"disk": "fast"}}', []),
    ('{"affinity": [[{"key": "zone", "operator": "NotIn", "values": ["a"]}]]}', [1, 3]),
    ('{"affinity": [[{"key": "cpus", "operator": "Gt", "values": [4]}], [{"key": "metadata.name", "operator": "In", '
     '"values": ["n3"]}]]}', [1, 3]),
    ('{"affinity": [[]]}', []), ('{"tolerations": [{"operator": "Exists"}]}', [0, 1, 2, 3]),
    ('{"tolerations": [{"key": "team", "value": "x"}], "node_selector": {"zone": "a"}}', [0, 2])])
def test_groups_say_what_labels_and_taints_say(said, nodes):
    """The law for any labels and taints is checked in chapter 63."""
    problem = problem_with({"constraints": said}, {**WAITS, "constraints": '{"node_selector": {"cpus": "8"}}'},
                           nodes=ZONES)
    assert [n for n, group in enumerate(problem.group) if admits(problem.tasks.cpu_spec[0], group)] == nodes
    assert not nodes == bool(any("no policy can place it" in reason for reason, _ in lines(problem, "interpreted")))


def maybe(strategy):
    return st.one_of(st.none(), strategy)


ROWS = st.fixed_dictionaries({
    "submit_s": maybe(st.integers(0, 9)), "start_s": maybe(st.integers(0, 9)), "end_s": maybe(st.integers(0, 9)),
    "num_gpus": maybe(st.integers(-1, 5)), "gpu_milli": maybe(st.sampled_from([0, 300, 1000, 2000])),
    "cpu_milli": maybe(st.integers(-1, 9)), "gpu_list": st.sampled_from(["", "0", "0-1", "x"]),
    "node": st.sampled_from(["", "n0", "n9"]), "mig_profile": st.sampled_from(["", "1g.5gb", "?"]),
    "constraints": st.sampled_from(["", "?", '{"node_selector": {"a": "1"}}']),
    "gpu_models": st.sampled_from(["", "T4", "B1|B2"])})


@given(st.lists(ROWS, max_size=8), st.lists(st.sampled_from([
    {}, {"num_gpus": 99}, {"num_gpus": None}, {"cpu_milli": None}, {"memory_mib": -1}]), max_size=3))
@settings(max_examples=40)
def test_counts_add_up_whatever_the_rows_are(rows, nodes):
    tables = tables_of([{}, *rows], [{}, *nodes])
    problem = problem_of(tables)
    check_accounts(tables, problem)
    record = recorded(problem)
    assert not (np.isnan(record.start_s) ^ (record.node < 0)).any()
    assert (record.end_s[record.node >= 0] >= record.start_s[record.node >= 0]).all()


SAMPLES = {
    "kubernetes": (["reference/kubernetes/nodes.json", "reference/kubernetes/pods.json"], ""),
    "claims": ([f"reference/kubernetes/dra_{name}.json" for name in ("slices", "claims", "pods")], ""),
    "slurm 24.11": ([f"reference/slurm/24.11/{name}.json" for name in ("nodes_v0.0.42", "jobs", "squeue_v0.0.42")],
                    ""),
    "openb": (["data/openb/openb_node_list_all_node.csv", "data/openb/openb_pod_list_default.csv"], ""),
    "dlrm": (["data/alibaba_v2025/disaggregated_DLRM_trace.csv"], "80%"),
    "spot": (["data/alibaba_v2026_spot/node_info_df.csv", "data/samples/alibaba_v2026_spot_jobs.csv"], ""),
    "helios": (["data/samples/helios.csv"], "80%")}


@pytest.mark.parametrize("name", SAMPLES)
def test_real_samples_become_problems(name):
    files, size_to = SAMPLES[name]
    paths = [SHARED / file for file in files]
    if not all(path.exists() for path in paths):
        pytest.skip(f"{paths[0]} is not there")
    tables = read_files("auto", paths, size_to=size_to)
    problem = problem_of(tables)
    check_accounts(tables, problem)
    check_record(problem)
    watts = dict.fromkeys(problem.cluster.gpu_model, (0, 0))
    world, class_of = world_of_problem(problem, PowerSettings(gpu_power_w=watts))
    assert len(class_of) == len(problem.tasks) and len(world.gpu_model) == len(problem.cluster)
