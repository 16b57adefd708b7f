"""What a pod asks for is what the nodes of the dump show under that name, and is never guessed."""
import json
from pathlib import Path

import pandas as pd
import pytest

from sched_lab.fleet.replay import report
from tests.command_line import call
from tests.fleet.objects import A100, GPU, listed, node, pod, read_objects

WAITS = {"at": "", "phase": "Pending"}
SLICED = {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.memory": "15360",
          "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.memory": "81559"}
SINGLE = A100 | {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/mig.strategy": "single"}
REGISTER = "GPU-a,10,40960,100,NVIDIA-A100-SXM4-40GB,0,true:GPU-b,10,40960,100,NVIDIA-A100-SXM4-40GB,0,true:"
SHARED = "nvidia.com/gpu.shared"


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def resources(**amounts):
    """Resources of a node by the part of their names after `nvidia.com/`."""
    return {f"nvidia.com__{name}": str(count) for name, count in amounts.items()}


def cut(**profiles):
    """Instances of a node: `cut(_1g_5gb=3)`."""
    return {f"nvidia.com__mig-{name[1:].replace('_', '.')}": str(count) for name, count in profiles.items()}


def many(count, *names):
    """Pods that wait, each for one of these."""
    return [pod(f"{names[0].rpartition('/')[2]}-{k}", dict.fromkeys(names, "1"), **WAITS) for k in range(count)]


def write(*objects):
    Path("dump.json").write_text(json.dumps(listed(*objects)))


def advice(capsys, *objects, options=()):
    """Node of each pod by `recommend`, empty if it can run nowhere, and what is said of it."""
    write(*objects)
    call("recommend", "--nodes", "dump.json", "--pods", "dump.json", "--json", *options)
    told = json.loads(capsys.readouterr().out)["pods"]
    return {one["pod"].removeprefix("team/"): one["node"] for one in told}, {
        one["pod"].removeprefix("team/"): one["why"] for one in told}


def test_an_instance_is_no_share_of_a_whole_gpu(capsys):
    one = node("w", labels=A100 | {"nvidia.com/gpu.count": "1"}, **resources(gpu=1))
    where, why = advice(capsys, one, *many(4, "nvidia.com/mig-1g.5gb"), pod("big", {GPU: "1"}, **WAITS))
    assert where == {**{f"mig-1g.5gb-{k}": "" for k in range(4)}, "big": "w"}
    assert "has no instance of 1g.5gb" in why["mig-1g.5gb-0"]


def test_instances_are_counted_beside_whole_gpus(capsys):
    one = node("x", labels=A100, **resources(gpu=1), **cut(_1g_5gb=3, _2g_10gb=2))
    where, why = advice(capsys, one, *many(4, "nvidia.com/mig-1g.5gb"), *many(3, "nvidia.com/mig-2g.10gb"),
                        *many(2, GPU))
    assert [name for name, at in where.items() if not at] == ["mig-1g.5gb-3", "mig-2g.10gb-2", "gpu-1"]
    assert "lacks 1 instance of 1g.5gb (0 of 3 free)" in why["mig-1g.5gb-3"]


def test_two_profiles_of_a_pod_are_on_one_node(capsys):
    both = many(1, "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb")
    nodes = [node("a", labels=A100, **cut(_1g_5gb=7)), node("b", labels=A100, **cut(_2g_10gb=3))]
    assert advice(capsys, *nodes, *both)[0] == {"mig-1g.5gb-0": ""}
    nodes.append(node("c", labels=A100, **cut(_1g_5gb=1, _2g_10gb=1)))
    assert advice(capsys, *nodes, *both)[0] == {"mig-1g.5gb-0": "c"}


def test_a_shared_gpu_is_no_whole_one_and_no_part_of_another(capsys):
    nodes = [node("t4", labels=SLICED, **resources(**{"gpu.shared": 8})), node("h", labels=H100, **resources(gpu=2))]
    where, _ = advice(capsys, *nodes, *many(9, SHARED), *many(3, GPU))
    assert [where[f"gpu.shared-{k}"] for k in range(9)] == ["t4"] * 8 + [""]
    assert [where[f"gpu-{k}"] for k in range(3)] == ["h", "h", ""]


def test_shared_and_whole_gpus_on_one_node(capsys):
    one = node("b", labels=SLICED | {"nvidia.com/gpu.count": "4"}, **resources(gpu=2, **{"gpu.shared": 8}))
    where, _ = advice(capsys, one, *many(9, SHARED), *many(3, GPU))
    assert [name for name, at in where.items() if not at] == ["gpu.shared-8", "gpu-2"]


def test_one_name_with_two_meanings_goes_where_it_is_a_whole_gpu(capsys):
    nodes = [node("t4", labels=SLICED, **resources(gpu=8)), node("h", labels=H100, **resources(gpu=1))]
    there = pod("t4", {GPU: "1"}, nodeSelector={"nvidia.com/gpu.product": "Tesla-T4-SHARED"}, **WAITS)
    assert advice(capsys, *nodes, *many(2, GPU), there)[0] == {"gpu-0": "h", "gpu-1": "", "t4": "t4"}


def test_an_instance_that_is_shown_as_a_gpu(capsys):
    nodes = [node("si", labels=SINGLE, **resources(gpu=14)), node("h", labels=H100, **resources(gpu=1))]
    there = pod("si", {GPU: "1"}, nodeSelector={"nvidia.com/gpu.product": SINGLE["nvidia.com/gpu.product"]}, **WAITS)
    where, _ = advice(capsys, *nodes, *many(2, GPU), there, *many(1, "nvidia.com/mig-1g.5gb"))
    assert where == {"gpu-0": "h", "gpu-1": "", "si": "si", "mig-1g.5gb-0": ""}


def test_renamed_gpus_are_known_by_their_number_and_others_are_refused_by_name(capsys):
    nodes = [node("r", labels=H100, **resources(h100=2)), node("u", labels=A100, **resources(thing=5))]
    names = ["nvidia.com/h100", "nvidia.com/thing", GPU, "aliyun.com/gpu-mem", "rdma/hca"]
    where, why = advice(capsys, *nodes, *(many(1, name)[0] for name in names))
    assert [name for name, at in where.items() if at] == ["h100-0"] and where["h100-0"] == "r"
    for name in names[1:]:
        assert f"shows no {name}" in why[f"{name.rpartition('/')[2]}-0"]


def test_a_share_of_hami_goes_to_a_node_of_hami(capsys):
    nodes = [node("h", labels=H100, **resources(gpu=2)),
             node("hami", labels=A100, annotations={"hami.io/node-nvidia-register": REGISTER}, **resources(gpu=20))]
    share = pod("s", {GPU: "1", "nvidia.com/gpumem": "4096"}, **WAITS)
    assert advice(capsys, *nodes, share)[0] == {"s": "hami"}
    assert advice(capsys, nodes[0], share)[0] == {"s": ""}


def test_a_node_of_hami_has_the_gpus_of_its_register(capsys):
    write(node("hami", labels=A100, annotations={"hami.io/node-nvidia-register": REGISTER}, **resources(gpu=20)),
          *many(1, "nvidia.com/mig-1g.5gb"))
    call("recommend", "--nodes", "dump.json", "--pods", "dump.json", "--mig")
    assert capsys.readouterr().out.count("- devices: [") == 2


def owned(one, kind="ReplicaSet", annotations=None, volumes=(), **spec):
    """Give a pod an owner, and what else decides whether it may be stopped."""
    one["metadata"]["ownerReferences"] = [{"kind": kind, "name": "o", "controller": True}] if kind else []
    one["metadata"]["annotations"] |= annotations or {}
    one["spec"] |= {"volumes": list(volumes), **spec}
    return one


SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
EMPTY = {"name": "d", "emptyDir": {}}
BUDGET = {"kind": "PodDisruptionBudget", "metadata": {"name": "b", "namespace": "team"},
          "spec": {"selector": {"matchLabels": {"app": "x"}}}}


@pytest.mark.parametrize(("kind", "more", "why"), [
    ("ReplicaSet", {}, ""), ("StatefulSet", {}, ""), ("", {"restartPolicy": "Never"}, "nothing owns it"),
    ("", {"annotations": {SAFE: "true"}}, "nothing owns it"), ("DaemonSet", {}, "DaemonSet"),
    ("Node", {}, "static pod"), ("ReplicaSet", {"annotations": {"kubernetes.io/config.mirror": "x"}}, "static pod"),
    ("Job", {"restartPolicy": "Never"}, "begin its work anew"), ("Job", {"annotations": {SAFE: "true"}}, ""),
    ("PyTorchJob", {}, "is not known"), ("PyTorchJob", {"annotations": {SAFE: "true"}}, ""),
    ("ReplicaSet", {"annotations": {SAFE: "false"}}, "forbids it"),
    ("ReplicaSet", {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "forbids it"),
    ("ReplicaSet", {"volumes": [EMPTY]}, "volume d"),
    ("ReplicaSet", {"volumes": [EMPTY], "annotations": {SAFE: "true"}}, ""),
    ("ReplicaSet", {"volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}, ""),
    ("ReplicaSet", {"volumes": [{"name": "d", "hostPath": {"path": "/x"}}]}, "volume d"),
    ("ReplicaSet", {"initContainers": [{"resources": {"requests": {"cpu": "1"}}}]}, "")])
def test_which_pods_may_be_stopped(kind, more, why):
    tables = read_objects(node(labels=A100, **resources(gpu=2)), owned(pod(requests={GPU: "1"}), kind, **more))
    said = tables.tasks["fixed"][0]
    assert why in said and bool(said) == bool(why)


@pytest.mark.parametrize(("status", "budgets", "why"), [
    ({"disruptionsAllowed": 0}, 1, "allows no disruption"), ({}, 1, "allows no disruption"),
    ({"disruptionsAllowed": 1}, 1, ""), ({"disruptionsAllowed": 1}, 2, "several")])
def test_a_budget_forbids_or_allows(status, budgets, why):
    tables = read_objects(
        node(labels=A100, **resources(gpu=2)), owned(pod(requests={GPU: "1"}, labels={"app": "x"})),
        *({**BUDGET, "status": status, "metadata": {**BUDGET["metadata"], "name": f"b{k}"}} for k in range(budgets)))
    said = tables.tasks["fixed"][0]
    assert why in said and bool(said) == bool(why)


def test_the_same_holds_for_place_explain_move_and_replay(monkeypatch, capsys):
    """A pod with an instance and one with a part of a T4 stay where such things are."""
    monkeypatch.setattr(report, "svgs_of", lambda charts: None if charts() else {})  # made, and not drawn
    write(node("m", labels=A100, **cut(_1g_5gb=2)), node("w", labels=A100, **resources(gpu=2)),
          node("t4", labels=SLICED, **resources(**{"gpu.shared": 8})), node("h", labels=H100, **resources(gpu=2)),
          owned(pod("has", {"nvidia.com/mig-1g.5gb": "1"}, at="m")), owned(pod("part", {SHARED: "1"}, at="t4")),
          *many(2, "nvidia.com/mig-1g.5gb"), *many(1, SHARED))
    assert call("read", "k8s", "dump.json", "--out", "c") == 0
    assert call("check", "c") == 0
    assert call("place", "c", "--out", "p") == 0
    placed = pd.read_csv("p/placements.csv", keep_default_na=False).set_index("task")
    assert placed["node"].tolist() == ["m", "", "t4"]
    assert placed.loc["team/mig-1g.5gb-1", "failed_for"] == "instances"
    capsys.readouterr()
    assert call("explain", "c", "--task", "team/mig-1g.5gb-0") == 0
    text = capsys.readouterr().out
    assert "asks for 1 instance of 1g.5gb" in text and "w: has no instance of 1g.5gb" in text
    assert call("move", "c", "--out", "mv") == 0
    fixed = pd.read_csv("mv/fixed.csv").set_index("task")["why"]
    assert fixed["team/has"] == fixed["team/part"] == "no other node admits it"
    for backfill in ("none", "conservative"):
        assert call("replay", "c", "--policies", "fgd", "--backfill", backfill, "--out", backfill) == 0
