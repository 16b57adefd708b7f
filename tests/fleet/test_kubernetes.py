"""Objects of Kubernetes: every dialect by hand, the recorded cluster, and dumps that are damaged."""
import json
from collections import Counter

import pandas as pd
import pytest

from sched_lab.fleet.ask.recommend import recommend
from sched_lab.fleet.read.check import check_cluster
from sched_lab.fleet.read.kubernetes import is_kubernetes, read_kubernetes
from sched_lab.fleet.read.objects import quantity
from sched_lab.fleet.read.tables import ClusterTables, Ledger, ReadOptions, Source, sources_of, tables_of
from sched_lab.lab.frames import InputError
from sched_lab.online.model import PowerSettings
from sched_lab.traces import find_reference
from tests.fleet.objects import (
    A100,
    CREATED,
    ENDED,
    GPU,
    STARTED,
    claim,
    claims,
    holds,
    listed,
    node,
    pod,
    read_objects,
    reasons,
    slices,
    survives_everywhere,
)

needs_samples = pytest.mark.skipif(find_reference("kubernetes/nodes.json") is None,
                                   reason="the recorded cluster is not on this machine")
WAITS = {"at": "", "phase": "Pending"}
TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "tmpl"}]


def read_sources(sources) -> ClusterTables:
    ledger = Ledger()
    return tables_of(*read_kubernetes(sources, ledger, ReadOptions()), ledger, "dump.json")


def plugin(gpus="2", **labels):
    return node(labels=A100 | {f"nvidia.com/{name.replace('_', '.')}": text for name, text in labels.items()},
                **{"nvidia.com__gpu": gpus})


def openb(milli, **more):
    return {f"alibabacloud.com/gpu-{name.replace('_', '-')}": text for name, text in {"milli": milli, **more}.items()}


# ---- one dialect after the other
REGISTER = "GPU-a,10,32768,100,NVIDIA-Tesla V100,0,true:GPU-b,10,32768,100,NVIDIA-Tesla V100,0,true:"
JSON_REGISTER = json.dumps([
    {"id": "GPU-a", "count": 10, "devmem": 32768, "devcore": 100, "type": "NVIDIA-Tesla V100", "health": True},
    {"id": "GPU-b", "devmem": 32768, "type": "NVIDIA-Tesla V100", "health": True}])
BY_HAMI = [
    pod("given", annotations={"hami.io/vgpu-devices-allocated": "GPU-b,NVIDIA,16384,10:;"}),
    pod("two", annotations={"hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,3277,0:GPU-b,NVIDIA,3277,0:;"}),
    pod("asks", {GPU: "1", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "30"}),
    pod("cores", {GPU: "1", "nvidia.com/gpucores": "30"}),
    pod("half", {GPU: "2", "nvidia.com/gpumem-percentage": "50"}), pod("whole", {GPU: "1"})]
HELD_BY_HAMI = [(1, 500, "", "1"), (2, 101, "", "0-1"), (1, 300, "", ""), (1, 1000, "", ""), (2, 500, "", ""),
                (1, 1000, "", "")]
SLICED = {"gpu_replicas": "4", "gpu_sharing-strategy": "time-slicing", "gpu_product": "Tesla-T4-SHARED"}


def hami(register=REGISTER, **amounts):
    return node(annotations={"hami.io/node-nvidia-register": register}, **amounts)


def two_containers(name, *each):
    return pod(name, containers=[{"resources": {"limits": amounts}} for amounts in each])


def of_group(name, **annotations):
    return pod(name, annotations={key.replace("_", "-"): text for key, text in annotations.items()},
               labels={"runai-gpu-group": "group-1", "kai.scheduler/queue": "team-a"})


RESERVATION = pod("gpu-reservation", {GPU: "1"}, {"run.ai/reserve_for_gpu_index": "1"}, {"runai-gpu-group": "group-1"})
RESERVATION["metadata"]["namespace"] = "kai-resource-reservation"
BY_TEMPLATE = pod("a", resourceClaims=TEMPLATE)
BY_TEMPLATE["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]
DIALECTS = {  # objects -> model, GPUs and their memory of the node; GPUs, share, profile and list of each pod; words
    "openb": (
        [node(labels=openb("", card_model="G2"), **{"alibabacloud.com__gpu-count": "4",
                                                    "alibabacloud.com__gpu-milli": "4k"}),
         pod(annotations=openb("1000", count="2", index="2-3", card_model="G2|T4")),
         pod("q", annotations=openb("250", count="1")), pod("r", {"cpu": "1"}, openb("0"))],
        ["G2", 4, None], [(2, 1000, "", "2-3"), (1, 250, "", ""), (0, 0, "", "")], ""),
    "whole GPUs": ([plugin(), pod(requests={GPU: "2"})], ["NVIDIA-A100-SXM4-40GB", 2, 40960], [(2, 1000, "", "")], ""),
    "replicas without sharing": ([plugin(gpu_replicas="1", **{"gpu_sharing-strategy": "none"})],
                                 ["NVIDIA-A100-SXM4-40GB", 2, 40960], [], ""),
    "shared in time": ([plugin("8", **SLICED), pod(requests={GPU: "1"})], ["Tesla-T4", 2, 40960],
                       [(1, 250, "", "")], "shared in time"),
    "instances as GPUs": (
        [plugin("14", gpu_product="NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", mig_strategy="single", gpu_count="14",
                gpu_memory="4864"), pod(requests={GPU: "2"}), pod("q", {GPU: "1"}, at="")],
        ["NVIDIA-A100-SXM4-40GB", 2, 40960], [(2, 142, "1g.5gb", ""), (1, 142, "1g.5gb", "")], "instances of 1g.5gb"),
    "HAMi": ([hami(**{"nvidia.com__gpu": "20"}), *BY_HAMI], ["Tesla V100", 2, 32768], HELD_BY_HAMI, ""),
    "HAMi in JSON": ([hami(JSON_REGISTER), *BY_HAMI], ["Tesla V100", 2, 32768], HELD_BY_HAMI, ""),
    "HAMi, by container": (  # together on one GPU if there is room; else rows of their own
        [hami(), two_containers("fits", {GPU: "1", "nvidia.com/gpumem": "8192"}, {GPU: "1", "nvidia.com/gpucores": "40",
                                                                                  "nvidia.com/gpumem": "4096"}),
         two_containers("whole", {GPU: "2"}, {GPU: "1", "nvidia.com/gpumem-percentage": "100"}),
         two_containers("apart", {GPU: "1"}, {GPU: "1", "nvidia.com/gpumem": "4096"})],
        ["Tesla V100", 2, 32768], [(1, 650, "", ""), (3, 1000, "", ""), (1, 1000, "", ""), (1, 125, "", "")],
        "shares of several sizes"),
    "HAMi, what does not hold": (  # its plugin could not; what a pod without a node was given; less than 1 of 10 slots
        [hami(), pod("failed", annotations={"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,16384,10:;",
                                            "hami.io/bind-phase": "failed"}),
         pod("waits", {GPU: "1", "nvidia.com/gpumem": "8192"},
             {"hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,32768,100:;"}, **WAITS),
         pod("little", {GPU: "1", "nvidia.com/gpumem": "16"})],
        ["Tesla V100", 2, 32768], [(0, 0, "", ""), (1, 250, "", ""), (1, 100, "", "")], ""),
    "HAMi, by number": (
        [hami("GPU-b,10,32768,100,T4,0,true,1,hami-core:GPU-a,10,16384,100,T4,0,true,0,hami-core:"),
         pod("given", annotations={"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,8192,0:;"})],
        ["T4", 2, 16384], [(1, 500, "", "0")], ""),
    "HAMi, closed": (
        [node(annotations={"hami.io/node-nvidia-register": REGISTER.replace("0,true:", "0,true,1,mig:", 1),
                           "hami.io/device-cordon": "GPU-b"}, **{"nvidia.com__gpu": "20"})], ["", 0, None], [],
        "not for shares"),
    "not healthy": ([hami(REGISTER.replace("0,true:", "0,false:", 1))], ["Tesla V100", 1, 32768], [], "not healthy"),
    "two models": ([hami(REGISTER.replace("Tesla V100", "A100", 1))], ["A100+Tesla V100", 2, 32768], [],
                   "several models"),
    "Volcano": (
        [node(annotations={"volcano.sh/node-vgpu-register": "GPU-a,10,24576,NVIDIA-A10,true,hami-core:"
                           "GPU-b,10,24576,NVIDIA-A10,true,hami-core"}, **{"volcano.sh__vgpu-number": "20"}),
         pod("given", annotations={"volcano.sh/vgpu-ids-new": "GPU-b,NVIDIA,6144,50:"}),
         pod("asks", {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "6144"})],
        ["A10", 2, 24576], [(1, 500, "", "1"), (2, 250, "", "")], ""),
    "KAI": (
        [plugin(), RESERVATION, of_group("half", gpu_fraction="0.5"), of_group("memory", gpu_memory="10240"),
         pod("two", annotations={"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"})],
        ["NVIDIA-A100-SXM4-40GB", 2, 40960], [(1, 500, "", "1"), (1, 250, "", "1"), (2, 250, "", "")],
        "reserves a GPU"),
    "claims": (
        [node(), slices(), claim("a", "gpu-0-mig-1"), claim("b", "gpu-1"), claim("c", rule="3g.20gb"),
         claim("d", count=2), pod("a", resourceClaims=claims("a")), pod("b", resourceClaims=claims("b")),
         *(pod(name, resourceClaims=claims(name), **WAITS) for name in "cd"), pod("e", resourceClaims=claims("a"))],
        ["A100", 2, 40960], [(1, 428, "3g.20gb", "0"), (1, 1000, "", "1"), (1, 428, "3g.20gb", ""), (2, 1000, "", ""),
                             (0, 0, "", "")], "shares a ResourceClaim"),
    "a template without a claim": (
        [node(), slices(), claim("tmpl", kind="ResourceClaimTemplate", count=2),
         *(pod(name, resourceClaims=TEMPLATE, **WAITS) for name in "ab")],
        ["A100", 2, 40960], [(2, 1000, "", "")] * 2, ""),
    "a claim of a template": ([node(), slices(), claim("a-gpu-x", "gpu-1"), BY_TEMPLATE], ["A100", 2, 40960],
                              [(1, 1000, "", "1")], ""),
    "a billion GPUs": ([node(**{"nvidia.com__gpu": "1G"}), pod(requests={GPU: "1e9"})], ["", 10**9, None],
                       [(10**9, 1000, "", "")], ""),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_each_dialect_says_what_nodes_have_and_pods_hold(name):
    objects, gpus, held, words = DIALECTS[name]
    tables = read_objects(*objects)
    found = tables.nodes[["gpu_model", "num_gpus", "gpu_memory_mib"]].astype(object)
    assert found.where(found.notna(), None).values.tolist() == [gpus]
    assert holds(tables) == held and words in reasons(tables)


def test_mig_mixed():
    mixed = {"nvidia.com__gpu": "1", "nvidia.com__mig-1g.5gb": "3", "nvidia.com__mig-2g.10gb": "2"}
    both = {"cpu": "2", "nvidia.com/mig-1g.5gb": "2", "nvidia.com/mig-2g.10gb": "1"}
    tables = read_objects(node(labels=A100 | {"nvidia.com/mig.strategy": "mixed"}, **mixed),
                  pod(requests={"nvidia.com/mig-2g.10gb": "1"}), pod("both", both))
    assert tables.nodes["num_gpus"].tolist() == [2]
    assert holds(tables, "name", "num_gpus", "gpu_milli", "mig_profile", "cpu_milli") == [
        ("team/p", 1, 285, "2g.10gb", 0),
        ("team/both", 3, 189, "1g.5gb,1g.5gb,2g.10gb", 2000)]  # one pod is one row, and stays on one node
    assert json.loads(tables.nodes["devices"][0]) == {
        "nvidia.com/mig-1g.5gb": 3, "nvidia.com/mig-2g.10gb": 2, "whole": 1}


def test_a_pod_whose_claim_is_not_in_the_files_has_unknown_gpus():
    tables = read_objects(node(), slices(), claim("a", "gpu-1"), pod("a", resourceClaims=claims("a")),
                  pod("b", resourceClaims=claims("b"), **WAITS), pod("t", resourceClaims=TEMPLATE, **WAITS))
    assert tables.tasks["num_gpus"].isna().tolist() == [False, True, True]
    said = reasons(tables)
    assert "ResourceClaim team/b, ResourceClaimTemplate team/tmpl: not in the files" in said
    assert "kubectl get resourceclaims,resourceclaimtemplates,resourceslices -A -o json" in said
    told = recommend(tables, "bestfit", PowerSettings()).table.set_index("pod").loc["team/b"]
    assert told["node"] == "" and "kubectl get resourceclaims" in told["why"]
    runs = read_objects(node(), slices(), pod("b", resourceClaims=claims("b")))
    with pytest.raises(InputError, match="team/b.*which GPUs it holds is unknown.*kubectl get resourceclaims"):
        recommend(runs, "bestfit", PowerSettings())


# ---- what a pod asks for, and when
@pytest.mark.parametrize(("written", "number"), [
    ("500m", 0.5), ("2", 2), ("1Gi", 2**30), ("1e3", 1000), ("1k", 1000), ("1.5", 1.5), ("100n", 1e-7), (3, 3),
    ("1E", 1e18), ("", None), ("1 Gi", None), ("Gi", None), (None, None), (True, None), ("1e1000", None), ("٣", None)])
def test_quantities(written, number):
    found = quantity(written)
    assert (None if found is None else float(found)) == number


def resized(allocated, actual, conditions=()):
    one = pod(containers=[{"name": "main", "resources": {"requests": {"cpu": "1"}}}])
    status = {"name": "main", "allocatedResources": allocated, "resources": actual}
    one["status"] |= {"containerStatuses": [status], "conditions": list(conditions)}
    return one


def cpus(text):
    return {"requests": {"cpu": text}}


REFUSED = [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
RESIZED_WHOLE = pod(resources=cpus("1"))
RESIZED_WHOLE["status"] |= {"resources": cpus("2"), "allocatedResources": {"cpu": "1500m"}}
AMOUNTS = [  # by KEP-2837 the pod's own requests count, its limit where nothing is requested; overhead is on top
    (pod(requests={"cpu": "500m", "memory": "1G", GPU: "2"}), (500, 954, 2)),
    (pod(requests={"cpu": "1500m"}, overhead={"cpu": "250m"}, initContainers=[  # the maximum; those that stay add
        {"resources": cpus("3")}, {"restartPolicy": "Always", "resources": cpus("1")}, {"resources": cpus("2500m")}]),
     (3750, 0, 0)),
    (pod(requests={"cpu": "1", "memory": "1Gi", GPU: "1"}, overhead={"cpu": "250m"}, resources={
        "requests": {"cpu": "4"}, "limits": {"cpu": "5", "memory": "2Gi"}}), (4250, 1024, 1)),
    (pod(resources={"limits": {"cpu": "2"}}), (2000, 0, 0)),
    (resized({"cpu": "1"}, cpus("1")), (1000, 0, 0)), (resized({"cpu": "2"}, cpus("3")), (3000, 0, 0)),
    (resized({"cpu": "500m"}, cpus("500m")), (1000, 0, 0)), (resized([], "3"), (1000, 0, 0)),
    (resized({"cpu": "500m"}, cpus("500m"), REFUSED), (500, 0, 0)), (RESIZED_WHOLE, (2000, 0, 0))]


@pytest.mark.parametrize(("one", "amounts"), AMOUNTS)
def test_what_a_pod_asks_for(one, amounts):
    tables = read_objects(plugin(), one)
    assert holds(tables, "cpu_milli", "memory_mib", "num_gpus") == [amounts]
    is_resized = bool(one["status"].get("containerStatuses")) and amounts[0] != 1000
    assert ("being resized" in reasons(tables)) == is_resized


def test_what_a_live_server_adds_is_read_or_said():
    """A static pod, one of a DaemonSet, a gated one, one with ports and volumes, a debugged one."""
    static = pod("static", annotations={"kubernetes.io/config.mirror": "x"},
                 tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    agent = pod("agent", tolerations=[
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}})
    gated = pod("gated", schedulingGates=[{"name": "wait"}], **WAITS)
    gated["status"]["nominatedNodeName"] = "n"
    tied = pod("tied", hostNetwork=True, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
               containers=[{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}],
               ephemeralContainers=[{"name": "debug", "resources": cpus("7")}])
    one = node(spec={"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
                     "unschedulable": True})
    one["status"] |= {"declaredFeatures": ["X"], "nodeInfo": {"swap": {"capacity": 8}}}
    one["metadata"] |= {"managedFields": [{"manager": "kubelet"}], "ownerReferences": [{}]}
    tables = read_objects(one, static, agent, gated, tied)
    assert tables.tasks["cpu_milli"].tolist() == [0, 0, 0, 0]
    kept = list(map(json.loads, tables.tasks["constraints"][:2]))
    assert [one["affinity"][0][0]["values"] for one in kept] == [["n"], ["n"]]
    assert kept[0]["tolerations"] == [{"operator": "Exists"}]
    assert [one["key"] for one in kept[1]["tolerations"]] == ["node.kubernetes.io/unschedulable"]
    for name in ("schedulingGates", "nominatedNodeName", "hostPort", "persistentVolumeClaim"):
        assert f"extra column: {name} of pods is not honoured" in reasons(tables)
    assert "a static pod" in reasons(tables)


def test_an_extended_resource_that_is_a_claim():
    """By KEP-5004 the scheduler makes a claim for `example.com/gpu`; if the claim is there, its device is."""
    devices = slices()
    devices["spec"]["devices"] = [{"name": "gpu-0"}, {"name": "gpu-1", "taints": [{"key": "x"}]}]
    one, plain = pod(requests={"example.com/gpu": "1"}), pod(requests={GPU: "1"})
    for each in (one, plain):
        each["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "made"}
    tables = read_objects(node(), devices, claim("made", "gpu-1"), one)
    assert holds(tables) == [(1, 1000, "", "1")] and tables.nodes["num_gpus"].tolist() == [2]
    assert "taints of devices are not honoured" in reasons(tables)
    assert holds(read_objects(plugin(), plain)) == [(1, 1000, "", "")]


def test_phases():
    over = pod("over", phase="Succeeded")
    over["status"]["containerStatuses"] = [{"state": {"terminated": {"finishedAt": end}}} for end in (STARTED, ENDED)]
    tables = read_objects(node(), pod("runs"), pod("bound", phase="Pending"), pod("waits", **WAITS), over,
                  pod("evicted", phase="Failed"), pod("never", at="", phase="Failed"), pod("odd", phase="Unknown"))
    assert [tuple(row) for row in tables.tasks[["name", "submit_s", "start_s", "end_s"]].fillna(-1).values] == [
        ("team/runs", 0, 10, -1), ("team/bound", 0, 10, -1), ("team/waits", 0, -1, -1), ("team/over", 0, 10, 3600),
        ("team/odd", 0, 10, -1)]
    assert tables.ledger[tables.ledger["what"] == "dropped"]["count"].sum() == 2


def test_constraints_models_and_queues_are_kept_and_what_is_not_is_said():
    rule = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["A100-SXM4-40GB", "H100"]}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
    tables = read_objects(
        node(spec={"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}),
        pod(affinity={"nodeAffinity": terms, "podAntiAffinity": {"x": 1}}, nodeSelector={"zone": "a"},
            tolerations=[{"key": "k", "operator": "Exists"}], labels={"kai.scheduler/queue": "team-a"}, **WAITS),
        pod("q", annotations={"scheduling.volcano.sh/queue-name": "research"} | openb("500", card_model="G2|T4")))
    kept = json.loads(tables.tasks["constraints"][0])
    assert kept["node_selector"] == {"zone": "a"} and kept["affinity"] == [[rule]] and len(kept["tolerations"]) == 1
    assert tables.tasks["gpu_models"].tolist() == ["A100-SXM4-40GB|H100", "G2|T4"]
    assert tables.tasks["queue"].tolist() == ["team-a", "research"]
    taints = [taint["key"] for taint in json.loads(tables.nodes["taints"][0])]
    assert taints == ["k", "node.kubernetes.io/unschedulable"]
    assert "podAntiAffinity of pods is not honoured" in reasons(tables)


def apart(topology: str = "kubernetes.io/hostname", **term) -> dict:
    """Make required anti-affinity to pods of the same application."""
    own = {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": "web"}}, **term}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [own]}}


@pytest.mark.parametrize(("affinity", "labels", "is_limit"), [
    (apart(), {"app": "web"}, True), (apart(namespaces=["team"]), {"app": "web", "more": "x"}, True),
    (apart(labelSelector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}), {"app": "web"}, True),
    (apart(), {"app": "db"}, False), (apart("topology.kubernetes.io/zone"), {"app": "web"}, False),
    (apart(namespaces=["other"]), {"app": "web"}, False), (apart(namespaceSelector={}), {"app": "web"}, False),
    (apart(labelSelector={}), {"app": "web"}, False), ({}, {"app": "web"}, False)])
def test_a_pod_that_wants_none_of_its_kind_beside_it_has_a_limit(affinity, labels, is_limit):
    tables = read_objects(node(), pod(affinity=affinity, labels=labels))
    said = json.loads(tables.tasks["constraints"][0] or "{}")
    assert (said.get("most_per_node") == 1 and said["group"].startswith("team ")) == is_limit
    assert ("podAntiAffinity of pods is not honoured" in reasons(tables)) == (bool(affinity) and not is_limit)


def test_a_pod_of_several_rows_counts_once_for_its_limit():
    held = {"hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,8192,0:GPU-b,NVIDIA,4096,0:;"}
    tables = read_objects(node(annotations={"hami.io/node-nvidia-register": REGISTER}),
                          pod(annotations=held, affinity=apart(), labels={"app": "web"}, nodeSelector={"a": "b"}))
    said = list(map(json.loads, tables.tasks["constraints"]))
    assert [one["node_selector"] for one in said] == [{"a": "b"}] * 2
    assert [one.get("most_per_node") for one in said] == [1, None]


@pytest.mark.parametrize(("written", "read_as"), [(7, 7), (-3, -3), (None, None), ("high", None), (True, None),
                                                  (2.5, None), (2**40, None)])
def test_a_priority_that_is_no_number_is_said(written, read_as):
    tables = read_objects(node(), pod(priority=written, **WAITS))
    assert [None if pd.isna(one) else one for one in tables.tasks["priority"]] == [read_as]
    assert ("spec.priority is no whole number" in reasons(tables)) == (written is not None and read_as is None)


# ---- how objects are packed
def test_packings_are_equal():
    objects = [plugin(), pod(requests={GPU: "1"})]
    bare = [{key: value for key, value in one.items() if key not in ("kind", "apiVersion")} for one in objects]
    packed = [
        listed(*objects), objects, {"nodes": bare[:1], "pods": bare[1:], "pvs": []},
        {"rawObjects": {"nodes": bare[:1], "pods": bare[1:], "queues": None}},
        [{"kind": "NodeList", "items": bare[:1]}, {"kind": "PodList", "items": bare[1:]}],
        [{"time": CREATED, "event": "Add", "resource": one} for one in objects],
        [{"type": "ADDED", "object": one} for one in objects]]
    for value in packed:
        for encoding in ("utf-8", "utf-16", "utf-8-sig"):
            data = json.dumps(value).encode(encoding)
            assert is_kubernetes(Source("x", data))
            tables = read_sources([Source("dump.json", data)])
            assert (len(tables.nodes), tables.nodes["num_gpus"].sum(), holds(tables)) == (1, 2, [(1, 1000, "", "")])


def test_a_recording_ends_a_pod_when_it_was_deleted_and_an_object_that_is_there_twice_counts_once():
    first = pod(requests={GPU: "1"})
    events = [("Add", pod(requests={GPU: "1"}, **WAITS)), ("Update", first), ("Delete", first)]
    lines = "\n".join(json.dumps({"time": ENDED, "event": event, "resource": one}) for event, one in events)
    assert holds(read_sources([Source("x", lines.encode())]), "submit_s", "start_s", "end_s") == [(0, 10, 3600)]
    tables = read_objects(node(), pod(), pod(requests={"cpu": "2"}))
    assert tables.tasks["cpu_milli"].tolist() == [2000] and "there again" in reasons(tables)


# ---- the recorded cluster
@needs_samples
def test_the_recorded_cluster():
    tables = read_sources(sources_of([find_reference(f"kubernetes/{name}.json") for name in ("nodes", "pods")]))
    assert (len(tables.nodes), tables.nodes["num_gpus"].sum(), len(tables.tasks)) == (20, 90, 70)
    assert Counter(holds(tables, "num_gpus", "gpu_milli")) == {
        (1, 1000): 26, (2, 1000): 10, (1, 500): 12, (1, 100): 12, (1, 250): 10}
    used = Counter()
    for task in tables.tasks.itertuples():
        used.update({(task.node, gpu): task.gpu_milli for gpu in filter(None, task.gpu_list.split("-"))})
    assert max(used.values()) == 1000 and (tables.tasks["node"] == "").sum() == 1
    assert [line.count for line in tables.ledger.itertuples()] == [69] and check_cluster(tables).exit_code == 0


@needs_samples
def test_the_recorded_cluster_with_claims():
    files = [find_reference(f"kubernetes/dra_{name}.json") for name in ("slices", "claims", "pods")]
    tables = read_sources(sources_of(files))
    assert tables.nodes[["name", "gpu_model", "num_gpus", "gpu_memory_mib"]].values.tolist() == [
        ["n0001", "A100", 1, 40960], ["n0002", "A100", 1, 40960]]
    assert holds(tables) == [(1, 428, "3g.20gb", "0")] * 4 + [(1, 428, "3g.20gb", ""), (1, 1000, "", "")]


# ---- damage
DUMP = listed(
    node(labels=A100, annotations={"hami.io/node-nvidia-register": REGISTER}, **{"nvidia.com__gpu": "20"}),
    node("m", labels=A100 | {"nvidia.com/gpu.replicas": "4"}, **{"nvidia.com__gpu": "8"}), slices("s"),
    claim("a", "gpu-1"),
    pod(requests={GPU: "1", "cpu": "1"}, tolerations=[{"key": "k"}], nodeSelector={"a": "b"},
        initContainers=[{"resources": cpus("1")}]),
    pod("q", at="m", requests={GPU: "1"}), pod("r", at="s", resourceClaims=claims("a")),
    pod("s", annotations={"gpu-fraction": "0.5"}), pod("t", phase="Succeeded"))
def test_every_place_may_hold_something_strange():
    survives_everywhere(read_kubernetes, DUMP)
