"""Jobs of several parts as programs name them: read, placed whole or not at all, explained, moved and checked."""
import pandas as pd
import pytest

from sched_lab.fleet.read.check import check_cluster
from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.problem import LACKS_PARTS, problem_of
from tests.fleet.objects import CREATED, ENDED, STARTED, holds, node, pod, read_objects, reasons
from tests.fleet.test_problem import tables_of

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
    ([member("a"), member("b")], ["g", "g"], "taken as all of them; give it, too: kubectl get podgroups"),
    ([member("a", **kueue("x")), member("b", **kueue("x"))], ["g", "g"], "taken as all of them"),
    ([group(2), member("a"), member("b", **WAITS), member("c", **WAITS)], ["g", "g", ""], "beyond those of its group"),
    ([group(2), member("a"), member("b", **WAITS)], ["g", "g"], "others of its group run already"),
    ([group(3), member("a"), member("b", **WAITS)], ["g", "g"], "fewer pods of its group are there"),
    ([group(10**30), member("a"), member("b")], ["g", "g"], "taken as all of them"),
    ([member(name, labels={"jobset.sigs.k8s.io/jobset-name": "g"}) for name in "ab"], ["", ""], ""),
    ([group(2, api="x.io/v1"), member("a"), member("b")], ["g", "g"], "objects PodGroup are not read")])
def test_who_is_in_a_gang(objects, jobs, words):
    tables = read_objects(node(**{"nvidia.com__gpu": "4"}), *objects)
    assert [job.rpartition("/")[2] for job in tables.tasks["job"]] == jobs and words in reasons(tables)


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
