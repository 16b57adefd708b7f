"""Jobs of several parts as programs name them: read, placed whole or not at all, explained, moved and checked."""
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from sched_lab.fleet.ask.explain import explain, is_refused, lacks_of, moments_before, places_together, vote
from sched_lab.fleet.ask.place import in_another_order, place_tasks
from sched_lab.fleet.ask.recommend import recommend
from sched_lab.fleet.read.check import check_cluster
from sched_lab.fleet.read.kubernetes import read_kubernetes
from sched_lab.fleet.replay.case import first_gpus
from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.problem import LACKS_PARTS, Schedule, problem_of, recorded
from sched_lab.fleet.replay.rules import check_schedule
from sched_lab.online.model import PowerSettings
from sched_lab.online.policies import policy_of
from tests.fleet.objects import (
    CREATED,
    ENDED,
    STARTED,
    holds,
    listed,
    node,
    pod,
    read_objects,
    reasons,
    survives_everywhere,
)
from tests.fleet.test_problem import tables_of

pytestmark = pytest.mark.usefixtures("python_itself")
COSCHEDULING, KUEUE = "scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/pod-group-name"
WAITS = {"at": "", "phase": "Pending"}
GPU = {"nvidia.com/gpu": "1"}


def member(name, **more):
    """Make a pod of the group `g`, of coscheduling unless it is said otherwise."""
    return pod(name, GPU, **({"labels": {COSCHEDULING: "g"}} | more))


def group(least, name="g", api="scheduling.x-k8s.io/v1alpha1", kind="PodGroup", **spec):
    said = {} if least is None else {"minMember": least}
    return {"kind": kind, "apiVersion": api, "metadata": {"name": name, "namespace": "team"}, "spec": said | spec}


def jobs_of(*objects):
    """Name, job and lacking parts of the tasks of a dump with a node of four GPUs."""
    return holds(read_objects(node(**{"nvidia.com__gpu": "4"}), *objects), "name", "job", "lacking_parts")


def kueue(count):
    return {"labels": {KUEUE: "g"}, "annotations": {f"{KUEUE[:-4]}total-count": count}}


GANG = {"gang": {"minCount": 2}}
SAYS = {
    "scheduling.x-k8s.io": ({}, [group(2)]),
    "scheduling.volcano.sh": ({"labels": {}, "annotations": {"scheduling.k8s.io/group-name": "g"}},
                              [group(2, api="scheduling.volcano.sh/v1beta1")]),
    "scheduling.run.ai": ({"labels": {}, "annotations": {"pod-group-name": "g"}},
                          [group(2, api="scheduling.run.ai/v2alpha2")]),
    "kueue.x-k8s.io": (kueue("2"), []),
    "scheduling.koordinator.sh": ({"labels": {}, "annotations": {
        "gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}}, []),
    "scheduling.sigs.k8s.io": ({"labels": {
        "pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}}, []),
    "scheduling.k8s.io": ({"labels": {}, "schedulingGroup": {"podGroupName": "g"}},
                          [group(None, api="scheduling.k8s.io/v1alpha2", schedulingPolicy=GANG)])}


@pytest.mark.parametrize("program", SAYS)
def test_each_program_says_who_starts_together(program):
    says, objects = SAYS[program]
    assert jobs_of(*objects, member("a", **says), member("b", **says), member("c", labels={})) == [
        ("team/a", f"{program} team/g", pd.NA), ("team/b", f"{program} team/g", pd.NA), ("team/c", "", pd.NA)]


def test_kubernetes_1_35_names_a_group_of_a_workload():
    ref = {"labels": {}, "workloadRef": {"name": "w", "podGroup": "p", "podGroupReplicaKey": "0"}}
    for policy, job in ((GANG, "scheduling.k8s.io team/w/p/0"), ({"basic": {}}, "")):
        said = group(None, "w", "scheduling.k8s.io/v1alpha1", "Workload", podGroups=[{"name": "p", "policy": policy}])
        assert [row[1] for row in jobs_of(said, member("a", **ref), member("b", **ref))] == [job, job]


@pytest.mark.parametrize(("objects", "jobs", "words"), [
    ([group(1), member("a"), member("b")], ["", ""], ""),
    ([group(None), member("a"), member("b")], ["", ""], ""),
    ([member("a"), member("b")], ["g", "g"],
     "as kubectl get podgroups.scheduling.x-k8s.io -A -o json would: taken as all of them"),
    ([member("a", **kueue("x")), member("b", **kueue("x"))], ["g", "g"],
     "as annotation kueue.x-k8s.io/pod-group-total-count would: taken as all of them"),
    ([group(2), member("a"), member("b", **WAITS), member("c", **WAITS)], ["g", "g", ""], "beyond those of its group"),
    ([group(2), member("a"), member("b", **WAITS)], ["g", "g"], "others of its group run already"),
    ([group(3), member("a"), member("b", **WAITS)], ["g", "g"], "fewer pods of its group are there"),
    ([group(10**30), member("a"), member("b")], ["g", "g"], "taken as all of them"),
    ([member(name, labels={"jobset.sigs.k8s.io/jobset-name": "g"}) for name in "ab"], ["", ""], ""),
    ([group(2, api="x.io/v1"), member("a"), member("b")], ["g", "g"], "objects PodGroup are not read")])
def test_who_is_in_a_gang(objects, jobs, words):
    tables = read_objects(node(**{"nvidia.com__gpu": "4"}), *objects)
    assert [job.rpartition("/")[2] for job in tables.tasks["job"]] == jobs and words in reasons(tables)


def test_strange_groups_are_read_or_refused_in_a_line():
    survives_everywhere(read_kubernetes, listed(group(2), member("a")))


def test_a_group_that_is_made_anew_is_another_job():
    again = [member("c", phase="Running"), member("d", **WAITS)]
    for one in again:
        one["metadata"]["creationTimestamp"] = ENDED
    old = [member(name, phase="Succeeded") for name in "ab"]
    for one in old:
        one["status"]["containerStatuses"] = [{"state": {"terminated": {"finishedAt": ENDED}}}]
    job = f"{COSCHEDULING[:-10]} team/g"
    assert [row[1] for row in jobs_of(group(2), *old, *again)] == [job, job, f"{job} 2", f"{job} 2"]


def test_a_job_comes_with_its_last_part_and_one_that_lacks_parts_never_starts():
    late = member("b", **WAITS)
    late["metadata"]["creationTimestamp"] = STARTED
    tables = read_objects(node(**{"nvidia.com__gpu": "4"}), group(2), member("a", **WAITS), late)
    assert replay(problem_of(tables), "fgd").start_s.tolist() == [10, 10] and CREATED < STARTED
    tables.tasks["lacking_parts"] = 1
    problem = problem_of(tables)
    assert problem.replayable.tolist() == [False, False] and LACKS_PARTS in set(problem.ledger["reason"])
    started = replay(replace(problem, replayable=None, lacking_parts=None), "fgd")
    with pytest.raises(ValueError, match="not all parts of its job are there"):
        check_schedule(problem, started, backfill="none")


# ---- check
PART = {"job": "j", "gpu_list": ""}
UNSTARTED = {**PART, "start_s": None, "end_s": None, "node": "", "state": "waiting"}


@pytest.mark.parametrize(("rows", "found"), [
    ([PART, {**PART, "end_s": 600}, {"end_s": 10**6}], ["parts end apart"]),
    ([PART, {**PART, "start_s": 64, "end_s": 124}], []),
    ([PART, {**PART, "start_s": 66, "end_s": 124}], ["parts start apart"]),
    ([{**PART, "end_s": None}, UNSTARTED], ["half-placed job"]),
    ([PART, UNSTARTED], []), ([UNSTARTED, UNSTARTED], []),
    ([{**PART, "lacking_parts": 2, "end_s": None}], ["job lacks parts"]),
    ([{**PART, "lacking_parts": 2}], [])])
def test_check_finds_jobs_that_are_not_whole(rows, found):
    kinds = set(check_cluster(tables_of(rows)).findings["kind"])
    assert sorted(kinds & {"parts end apart", "parts start apart", "half-placed job", "job lacks parts"}) == found


# ---- place
def one_of(problem, node, mask, part, policy):
    """Node and GPUs of a part where the others are, by a policy or the first; the world is made anew each time."""
    there = Schedule(node, mask, np.zeros(len(node)), np.full(len(node), np.inf))
    (moment,) = moments_before(problem, there, [part], node >= 0, PowerSettings())
    if policy:
        ballot = vote(moment, policy)
        return (int(ballot.nodes[0]), ballot.gpu_mask) if len(ballot.nodes) else None
    for one in np.flatnonzero(~is_refused(lacks_of(moment)))[:1].tolist():
        return one, first_gpus(moment.world, moment.task, one, moment.world.state.gpu_left_milli[one])
    return None


def placed_plainly(problem, name):
    """All or nothing by copies: node, GPUs and, of each job that was refused, how many parts the first nodes took."""
    node, mask, fitted = problem.node.copy(), problem.gpu_mask.copy(), {}
    jobs = problem.job if problem.job is not None else np.arange(len(node))
    waiting = [np.flatnonzero((jobs == job) & (node < 0)) for job in np.unique(jobs)]
    queue = sorted((parts for parts in waiting if len(parts)),
                   key=lambda parts: (-problem.priority[parts[0]], problem.submit_s[parts].max(), parts[0]))
    for parts in queue:
        for policy in (policy_of(name), None):
            tried = node.copy(), mask.copy()
            for number, part in enumerate(parts):
                place = one_of(problem, *tried, part, policy)
                if place is None:
                    fitted |= dict.fromkeys(problem.tasks.name[parts], number)
                    break
                tried[0][part], tried[1][part] = place
            else:
                node, mask = tried
                fitted = {task: number for task, number in fitted.items() if task not in problem.tasks.name[parts]}
                break
    return node, mask, fitted


@pytest.mark.parametrize("seed", range(5))
def test_a_job_is_placed_whole_or_leaves_no_trace(seed):
    stream = np.random.default_rng(seed)
    nodes = [{"num_gpus": int(stream.integers(1, 5)), "cpu_milli": 20_000} for _ in range(3)]
    sizes = [(1, 300), (1, 1000), (2, 1000), (0, 0)]
    rows = [{**UNSTARTED, **dict(zip(("num_gpus", "gpu_milli"), sizes[stream.integers(4)], strict=True)),
             "job": f"j{number % 4}", "priority": number % 4 == 1, "submit_s": int(stream.integers(9)),
             "cpu_milli": 3000} for number in range(9)]
    tables = tables_of(rows, nodes)
    placed = place_tasks(tables, tables.tasks[:0], "fgd", at_s=20)
    node, mask, fitted = placed_plainly(placed.problem, "fgd")
    assert placed.schedule.node.tolist() == node.tolist() and placed.schedule.gpu_mask.tolist() == mask.tolist()
    table = placed.table.set_index("task")
    assert set(fitted) == set(table.index[table["node"] == ""]) == set(table.index[table["why"] != ""])
    assert all(why.startswith(f"{fitted[task]} of ") for task, why in table["why"].items() if why)
    assert all(table["failed_for"][task] for task in fitted)


def test_who_waits_for_parts_has_no_place_and_those_that_wait_beside_others_have_one():
    rows = [{**PART, "end_s": None, "gpu_list": "0"}, UNSTARTED, {**UNSTARTED, "job": "k", "lacking_parts": 2}]
    tables = tables_of(rows)
    table = place_tasks(tables, tables.tasks[:0]).table
    assert table[["task", "node", "failed_for", "why"]].to_numpy().tolist() == [
        ["task-1", "n0", "", ""], ["task-2", "", "parts", "its job lacks 2 parts"]]
    assert recommend(tables, "fgd", PowerSettings()).lines() == ["task-1: n0, GPU 1", "task-2: its job lacks 2 parts"]


def test_the_reason_of_a_job_names_the_part_that_found_no_node():
    asked = [(3, "j"), (2, "j"), (4, "k"), (1, "k"), (1, "k"), (1, "")]
    rows = [{**UNSTARTED, "num_gpus": gpus, "job": job} for gpus, job in asked]
    tables = tables_of(rows, [{}, {"num_gpus": 1}])
    table = place_tasks(tables, tables.tasks[:0]).table
    why = "1 of 2 parts fit; task-1: no node of 2 (GPUs 2); n0: lacks 2 free GPUs (has 1 of 4)"
    other = "2 of 3 parts fit; task-4: no node of 2 (GPUs 2); n0: lacks a free GPU (has 0 of 4)"
    assert table["why"].tolist() == [why] * 2 + [other] * 3 + [""]
    assert table["failed_for"].tolist() == ["gpu"] * 5 + [""]
    assert recommend(tables, "fgd", PowerSettings()).table["why"].tolist() == table["why"].tolist()


def ways_of(parts, nodes):
    """Every way to put parts (GPUs, milli of each, CPU) on nodes (CPU, milli left of each GPU), by brute force."""
    if not parts:
        yield []
        return
    (num_gpus, milli, cpu), *rest = parts
    for number, (cpu_left, left) in enumerate(nodes):
        for gpus in combinations(range(len(left)), num_gpus):
            if cpu <= cpu_left and all(left[gpu] >= milli for gpu in gpus):
                after = [one - milli * (gpu in gpus) for gpu, one in enumerate(left)]
                others = [*nodes[:number], (cpu_left - cpu, after), *nodes[number + 1:]]
                yield from ([number, *way] for way in ways_of(rest, others))


def test_if_parts_of_several_sizes_fit_in_any_way_an_order_finds_one():
    stream = np.random.default_rng(0)
    outcomes = set()
    for _ in range(12):
        nodes = [(int(stream.integers(3, 8)) * 1000, [1000] * gpus) for gpus in (1, 2)]
        first = int(stream.integers(1, 4)) * 100
        sizes = stream.permutation([first, 1000 - first, 600, 400, 1000][:5 - stream.integers(2)])
        asks = [(1, int(milli), int(stream.integers(1, 4)) * 1000) for milli in sizes]
        problem = problem_of(tables_of(
            [{**UNSTARTED, **dict(zip(("num_gpus", "gpu_milli", "cpu_milli"), one, strict=True))} for one in asks],
            [{"cpu_milli": cpu, "num_gpus": len(left)} for cpu, left in nodes]))
        rows, nothing = np.arange(len(asks)), np.zeros(len(asks), bool)
        moments = list(moments_before(problem, recorded(problem), rows.tolist(), nothing, PowerSettings()))
        ways, found = list(ways_of(asks, nodes)), in_another_order(moments)
        assert bool(found) == bool(ways) and (not ways or [node for node, _ in found] in ways)
        outcomes.add((places_together(moments)[1] is None, bool(ways)))
    assert outcomes == {(True, True), (False, True), (False, False)}


def test_a_refused_job_says_in_which_order_all_its_parts_find_room():
    rows = [{**UNSTARTED, "num_gpus": gpus} for gpus in (1, 2, 4)]
    tables = tables_of(rows, [{"num_gpus": 4}, {"num_gpus": 3}])
    table = place_tasks(tables, tables.tasks[:0]).table
    assert table["node"].tolist() == [""] * 3
    assert table["why"][0].startswith("2 of 3 parts fit; task-2: no node of 2 (GPUs 2)")
    assert table["why"][0].endswith("; in another order all do: task-0 to n1, task-1 to n1, task-2 to n0")


def test_tasks_that_wait_are_served_as_they_came_and_not_as_they_stand_in_the_table():
    rows = [{**UNSTARTED, "job": "", "num_gpus": 3, "submit_s": submit} for submit in (9, 6)]
    tables = tables_of(rows)
    table = place_tasks(tables, tables.tasks[:0], at_s=20).table
    assert table["node"].tolist() == ["", "n0"] and "why" not in table


# ---- explain
def test_an_explanation_sends_each_part_where_place_sends_it():
    rows = [{**UNSTARTED, "num_gpus": gpus} for gpus in (2, 1, 2)]
    tables = tables_of([{**PART, "job": "", "end_s": None, "gpu_list": "0"}, *rows], [{}, {"num_gpus": 2}])
    problem = problem_of(tables)
    table = place_tasks(tables, tables.tasks[:0], "pwr-fgd:0.1").table.set_index("task")
    for task in table.index:
        found = explain(problem, task, "pwr-fgd:0.1")
        assert found.about["choice"]["node"] == table.loc[task, "node"] and found.is_served
        job = found.about["job"]
        assert {place["task"]: place["node"] for place in job["places"]} == table["node"].to_dict() and job["fit"] == 3
    assert "it starts with its job: 3 of 3 parts fit" in found.lines()
    assert "job" not in explain(problem, "task-0").about


@pytest.mark.parametrize("seed", range(2))
def test_a_replay_of_jobs_is_explained_part_by_part(seed):
    stream = np.random.default_rng(seed)
    rows = [{**PART, "job": f"j{number // 3}", "node": "", "start_s": submit, "end_s": submit + 20, "submit_s": submit,
             "num_gpus": int(stream.integers(1, 4)), "priority": number // 3 % 2}
            for number, submit in enumerate(stream.integers(0, 30, 18).tolist())]
    problem = problem_of(tables_of(rows, [{}, {"num_gpus": 2}, {"num_gpus": 3}]))
    schedule = replay(problem, "fgd", backfill="first-fit")
    by_policy = 0
    for part in np.flatnonzero(schedule.node >= 0):
        found = explain(problem, problem.tasks.name[part], schedule=schedule).about
        first = problem.tasks.name[np.flatnonzero(problem.job == problem.job[part])[0]]
        if explain(problem, first, schedule=schedule).about["job"]["by"] == "fgd":
            by_policy += 1
            assert found["choice"]["node"] == problem.cluster.name[schedule.node[part]]
    assert by_policy >= 9


def test_an_explanation_says_why_the_job_as_a_whole_cannot_start():
    running = {**PART, "end_s": None, "gpu_list": "0"}
    problem = problem_of(tables_of([{**running, "job": ""}, *({**UNSTARTED, "num_gpus": gpus} for gpus in (2, 2))]))
    for task, choice in (("task-1", "n0"), ("task-2", None)):
        found = explain(problem, task)
        assert not found.is_served and (found.about["choice"] or {"node": None})["node"] == choice
        assert found.headline.endswith("; its job cannot start: 1 of 2 parts fit")
        assert found.about["job"]["lost"] == {
            "task": "task-2", "why": "no node of 1 (GPUs 1); n0: lacks 2 free GPUs (has 1 of 4)"}
    half = explain(problem_of(tables_of([running, {**UNSTARTED, "num_gpus": 2}])), "task-1")
    assert half.is_served and "  task-0: runs on n0, GPU 0" in half.lines()
    lacks = explain(problem_of(tables_of([{**UNSTARTED, "lacking_parts": 2}])), "task-0")
    assert not lacks.is_served and lacks.headline.endswith("its job cannot start: it lacks 2 parts")
