"""Objects of Kubernetes: every dialect by hand, the recorded cluster, and dumps that are damaged."""

import copy
import json
from collections import Counter

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.fleet.live.bridge_command import advise
from sched_lab.fleet.read.kubernetes import is_kubernetes, read_kubernetes
from sched_lab.fleet.read.objects import quantity
from sched_lab.fleet.read.tables import ClusterTables, Ledger, ReadOptions, Source, sources_of, tables_of
from sched_lab.lab.frames import InputError
from sched_lab.online.model import PowerSettings
from sched_lab.traces import find_reference

CREATED, STARTED, ENDED = "2026-03-02T08:00:00Z", "2026-03-02T08:00:10Z", "2026-03-02T09:00:00Z"
NODES = find_reference("kubernetes/nodes.json")
needs_samples = pytest.mark.skipif(NODES is None, reason="the recorded cluster is not on this machine")


def node(name="n", labels=None, annotations=None, spec=None, **allocatable):
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "spec": spec or {},
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi"} | {k.replace("__", "/"): v for k, v in allocatable.items()}
        },
    }


def pod(name="p", requests=None, annotations=None, labels=None, at="n", phase="Running", **spec):
    one = {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "team",
            "creationTimestamp": CREATED,
            "annotations": annotations or {},
            "labels": labels or {},
        },
        "spec": {"containers": [{"resources": {"requests": requests or {}}}]} | spec,
        "status": {"phase": phase},
    }
    if at:
        one["spec"]["nodeName"] = at
        one["status"]["startTime"] = STARTED
    return one


def read(*objects, raw=None) -> ClusterTables:
    data = raw if raw is not None else json.dumps({"kind": "List", "items": list(objects)}).encode()
    ledger = Ledger()
    return tables_of(*read_kubernetes([Source("dump.json", data)], ledger, ReadOptions()), ledger, "dump.json")


def holds(tables, *columns):
    columns = columns or ("num_gpus", "gpu_milli", "mig_profile", "gpu_list")
    return [tuple(row) for row in tables.tasks[list(columns)].itertuples(index=False)]


def reasons(tables):
    return " | ".join(f"{line.what}: {line.reason}" for line in tables.ledger.itertuples())


A100 = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.memory": "40960",
}
GPU = "nvidia.com/gpu"


# ---- one dialect after the other ----
def test_openb():
    said = {
        "alibabacloud.com/gpu-milli": "1000",
        "alibabacloud.com/gpu-count": "2",
        "alibabacloud.com/gpu-index": "2-3",
        "alibabacloud.com/gpu-card-model": "G2|T4",
    }
    part = {"alibabacloud.com/gpu-milli": "250", "alibabacloud.com/gpu-count": "1"}
    tables = read(
        node(
            labels={"alibabacloud.com/gpu-card-model": "G2"},
            **{"alibabacloud.com__gpu-count": "4", "alibabacloud.com__gpu-milli": "4k"},
        ),
        pod(annotations=said),
        pod("q", annotations=part),
        pod("r", {"cpu": "1"}, annotations={"alibabacloud.com/gpu-milli": "0"}),
    )
    assert tables.nodes[["gpu_model", "num_gpus"]].values.tolist() == [["G2", 4]]
    assert holds(tables) == [(2, 1000, "", "2-3"), (1, 250, "", ""), (0, 0, "", "")]
    assert tables.tasks["gpu_models"].tolist() == ["G2|T4", "", ""]


def test_whole_gpus_of_the_device_plugin():
    tables = read(
        node(labels=A100, **{"nvidia.com__gpu": "2"}), pod(requests={GPU: "2", "cpu": "500m", "memory": "1G"})
    )
    assert tables.nodes.iloc[0][["gpu_model", "num_gpus", "cpu_milli", "memory_mib", "gpu_memory_mib"]].tolist() == [
        "NVIDIA-A100-SXM4-40GB",
        2,
        8000,
        32768,
        40960,
    ]
    assert holds(tables, "num_gpus", "gpu_milli", "cpu_milli", "memory_mib") == [(2, 1000, 500, 954)]


@pytest.mark.parametrize("resource", [GPU, "nvidia.com/gpu.shared"])
def test_time_slicing(resource):
    labels = A100 | {
        "nvidia.com/gpu.replicas": "4",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
        "nvidia.com/gpu.product": "Tesla-T4-SHARED",
    }
    tables = read(node(labels=labels, **{resource.replace("/", "__"): "8"}), pod(requests={resource: "1"}))
    assert tables.nodes[["gpu_model", "num_gpus"]].values.tolist() == [["Tesla-T4", 2]]
    assert holds(tables) == [(1, 250, "", "")] and "shared in time" in reasons(tables)


def test_replicas_without_sharing_count_nothing():
    labels = A100 | {"nvidia.com/gpu.replicas": "1", "nvidia.com/gpu.sharing-strategy": "none"}
    assert read(node(labels=labels, **{"nvidia.com__gpu": "2"})).nodes["num_gpus"].tolist() == [2]


def test_mig_where_all_instances_are_alike():
    labels = A100 | {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "nvidia.com/mig.strategy": "single",
        "nvidia.com/gpu.count": "14",
        "nvidia.com/gpu.memory": "4864",
    }
    tables = read(
        node(labels=labels, **{"nvidia.com__gpu": "14"}), pod(requests={GPU: "2"}), pod("q", {GPU: "1"}, at="")
    )
    assert tables.nodes[["gpu_model", "num_gpus", "gpu_memory_mib"]].values.tolist() == [
        ["NVIDIA-A100-SXM4-40GB", 2, 40960]
    ]
    assert holds(tables) == [(2, 142, "1g.5gb", ""), (1, 142, "1g.5gb", "")]


def test_mig_mixed():
    mixed = {"nvidia.com__gpu": "1", "nvidia.com__mig-1g.5gb": "3", "nvidia.com__mig-2g.10gb": "2"}
    tables = read(
        node(labels=A100 | {"nvidia.com/mig.strategy": "mixed"}, **mixed),
        pod(requests={"nvidia.com/mig-2g.10gb": "1"}),
        pod("both", {"cpu": "2", "nvidia.com/mig-1g.5gb": "2", "nvidia.com/mig-2g.10gb": "1"}),
    )
    assert tables.nodes["num_gpus"].tolist() == [2]
    assert holds(tables, "name", "num_gpus", "gpu_milli", "mig_profile", "cpu_milli") == [
        ("team/p", 1, 285, "2g.10gb", 0),
        ("team/both", 3, 189, "1g.5gb,1g.5gb,2g.10gb", 2000),  # one pod is one row, and stays on one node
    ]
    assert json.loads(tables.nodes["devices"][0]) == {
        "nvidia.com/mig-1g.5gb": 3, "nvidia.com/mig-2g.10gb": 2, "whole": 1}


REGISTER = "GPU-a,10,32768,100,NVIDIA-Tesla V100,0,true:GPU-b,10,32768,100,NVIDIA-Tesla V100,0,true:"
JSON_REGISTER = json.dumps(
    [
        {"id": "GPU-a", "count": 10, "devmem": 32768, "devcore": 100, "type": "NVIDIA-Tesla V100", "health": True},
        {"id": "GPU-b", "devmem": 32768, "type": "NVIDIA-Tesla V100", "health": True},
    ]
)


@pytest.mark.parametrize("register", [REGISTER, JSON_REGISTER])
def test_hami(register):
    tables = read(
        node(annotations={"hami.io/node-nvidia-register": register}, **{"nvidia.com__gpu": "20"}),
        pod("given", annotations={"hami.io/vgpu-devices-allocated": "GPU-b,NVIDIA,16384,10:;"}),
        pod("two", annotations={"hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,3277,0:GPU-b,NVIDIA,3277,0:;"}),
        pod("asks", {GPU: "1", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "30"}),
        pod("cores", {GPU: "1", "nvidia.com/gpucores": "30"}),
        pod("half", {GPU: "2", "nvidia.com/gpumem-percentage": "50"}),
        pod("whole", {GPU: "1"}),
    )
    assert tables.nodes[["gpu_model", "num_gpus", "gpu_memory_mib"]].values.tolist() == [["Tesla V100", 2, 32768]]
    assert holds(tables) == [
        (1, 500, "", "1"),
        (2, 101, "", "0-1"),
        (1, 300, "", ""),
        (1, 1000, "", ""),
        (2, 500, "", ""),
        (1, 1000, "", ""),
    ]


def test_an_unhealthy_gpu_is_not_there():
    tables = read(node(annotations={"hami.io/node-nvidia-register": REGISTER.replace("0,true:", "0,false:", 1)}))
    assert tables.nodes["num_gpus"].tolist() == [1] and "not healthy" in reasons(tables)


def test_gpus_of_two_models_are_named_together():
    register = REGISTER.replace("Tesla V100", "A100", 1)
    tables = read(node(annotations={"hami.io/node-nvidia-register": register}))
    assert tables.nodes[["gpu_model", "num_gpus"]].values.tolist() == [["A100+Tesla V100", 2]]
    assert "several models" in reasons(tables)


def test_volcano():
    register = "GPU-a,10,24576,NVIDIA-A10,true,hami-core:GPU-b,10,24576,NVIDIA-A10,true,hami-core"
    tables = read(
        node(annotations={"volcano.sh/node-vgpu-register": register}, **{"volcano.sh__vgpu-number": "20"}),
        pod("given", annotations={"volcano.sh/vgpu-ids-new": "GPU-b,NVIDIA,6144,50:"}),
        pod(
            "asks",
            {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "6144"},
            annotations={"scheduling.volcano.sh/queue-name": "research"},
        ),
    )
    assert tables.nodes[["gpu_model", "num_gpus"]].values.tolist() == [["A10", 2]]
    assert holds(tables) == [(1, 500, "", "1"), (2, 250, "", "")] and tables.tasks["queue"].tolist() == ["", "research"]


def test_kai_and_its_reservations():
    reservation = pod(
        "gpu-reservation-n-x",
        {GPU: "1"},
        labels={"runai-gpu-group": "group-1"},
        annotations={"run.ai/reserve_for_gpu_index": "1"},
    )
    reservation["metadata"]["namespace"] = "kai-resource-reservation"
    group = {"runai-gpu-group": "group-1", "kai.scheduler/queue": "team-a"}
    tables = read(
        node(labels=A100, **{"nvidia.com__gpu": "2"}),
        reservation,
        pod("half", annotations={"gpu-fraction": "0.5"}, labels=group),
        pod("memory", annotations={"gpu-memory": "10240"}, labels=group),
        pod("three", annotations={"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}),
    )
    assert holds(tables) == [(1, 500, "", "1"), (1, 250, "", "1"), (2, 250, "", "")]
    assert "reserves a GPU" in reasons(tables) and tables.tasks["queue"].tolist() == ["team-a", "team-a", ""]


def slices(name="n", gpus=2):
    full, part = ({"slices": {"value": str(n)}} for n in (7, 3))
    devices = [
        {
            "name": f"gpu-{g}{suffix}",
            "attributes": {"productName": {"string": "A100"}, "profile": {"string": profile}},
            "capacity": {"memory": {"value": size}},
            "consumesCounters": [{"counterSet": f"gpu-{g}", "counters": cost}],
        }
        for g in range(gpus)
        for suffix, profile, size, cost in (
            ("", "full", "40Gi", full),
            ("-mig-0", "3g.20gb", "20Gi", part),
            ("-mig-1", "3g.20gb", "20Gi", part),
        )
    ]
    pool = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": {"name": name}}
    return {"kind": "ResourceSlice", "metadata": {"name": f"{name}-devices"}, "spec": pool | {"devices": devices}}


def claim(name, *devices, rule="", **request):
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": 1} | request
    if rule:
        exactly["selectors"] = [{"cel": {"expression": f"device.attributes['x'].profile == '{rule}'"}}]
    results = [{"driver": "gpu.nvidia.com", "pool": "n", "device": device, "request": "r"} for device in devices]
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {"allocation": {"devices": {"results": results}}} if results else {},
    }


def claims(*names):
    return [{"name": name, "resourceClaimName": name} for name in names]


def test_dra():
    tables = read(
        node(),
        slices(),
        claim("a", "gpu-0-mig-1"),
        claim("b", "gpu-1"),
        claim("c", rule="3g.20gb"),
        claim("d", count=2),
        pod("a", resourceClaims=claims("a")),
        pod("b", resourceClaims=claims("b")),
        pod("c", at="", phase="Pending", resourceClaims=claims("c")),
        pod("d", at="", phase="Pending", resourceClaims=claims("d")),
        pod("again", resourceClaims=claims("a")),
    )
    assert tables.nodes[["gpu_model", "num_gpus", "gpu_memory_mib"]].values.tolist() == [["A100", 2, 40960]]
    assert holds(tables) == [
        (1, 428, "3g.20gb", "0"),
        (1, 1000, "", "1"),
        (1, 428, "3g.20gb", ""),
        (2, 1000, "", ""),
        (0, 0, "", ""),
    ]
    assert "shares a ResourceClaim" in reasons(tables)


def test_a_pod_whose_claim_is_not_in_the_files_has_unknown_gpus():
    waits = {"at": "", "phase": "Pending"}
    tables = read(node(), slices(), claim("a", "gpu-1"), pod("a", resourceClaims=claims("a")),
                  pod("b", resourceClaims=claims("b"), **waits),
                  pod("t", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "tmpl"}], **waits))
    assert holds(tables, "name", "num_gpus")[0] == ("team/a", 1)
    assert tables.tasks["num_gpus"].isna().tolist() == [False, True, True]
    said = reasons(tables)
    assert "ResourceClaim team/b, ResourceClaimTemplate team/tmpl: not in the files" in said
    assert "kubectl get resourceclaims,resourceclaimtemplates,resourceslices -A -o json" in said
    told = {one.pod: one for one in advise(tables, "bestfit", PowerSettings(), 0)}
    assert told["team/b"].node == "" and "kubectl get resourceclaims" in told["team/b"].why
    runs = read(node(), slices(), pod("b", resourceClaims=claims("b")))
    with pytest.raises(InputError, match="team/b.*which GPUs it holds is unknown.*kubectl get resourceclaims"):
        advise(runs, "bestfit", PowerSettings(), 0)


def test_a_template_says_what_a_pod_without_a_claim_asks_for():
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "tmpl", "namespace": "team"},
                "spec": {"spec": {"devices": {"requests": [{"name": "g", "exactly": {
                    "deviceClassName": "gpu.nvidia.com", "count": 2}}]}}}}
    ask = [{"name": "gpu", "resourceClaimTemplateName": "tmpl"}]
    tables = read(node(), slices(), template, pod("a", at="", phase="Pending", resourceClaims=ask),
                  pod("b", at="", phase="Pending", resourceClaims=ask))
    assert tables.tasks["num_gpus"].tolist() == [2, 2]


def test_a_claim_of_a_template_is_found_by_its_status():
    one = pod("a", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    one["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]
    assert holds(read(node(), slices(), claim("a-gpu-x", "gpu-1"), one)) == [(1, 1000, "", "1")]


# ---- what a pod asks for, and when ----
@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("500m", 0.5),
        ("2", 2),
        ("1Gi", 2**30),
        ("1e3", 1000),
        ("1k", 1000),
        ("1.5", 1.5),
        ("100n", 1e-7),
        (3, 3),
        ("1E", 1e18),
        ("", None),
        ("1 Gi", None),
        ("Gi", None),
        (None, None),
        (True, None),
        ("1e1000", None),
        ("٣", None),
    ],
)
def test_quantities(written, number):
    found = quantity(written)
    assert (None if found is None else float(found)) == number


def test_init_containers_are_a_maximum_and_those_that_stay_add():
    asks = [
        {"resources": {"requests": {"cpu": "3"}}},
        {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"resources": {"requests": {"cpu": "2500m"}}},
    ]
    one = pod(requests={"cpu": "1500m"}, initContainers=asks, overhead={"cpu": "250m"})
    assert read(node(), one).tasks["cpu_milli"].tolist() == [3750]


def test_resources_of_the_pod_as_a_whole_and_overhead():
    """By KEP-2837 the pod's own requests count, its limit where nothing is requested; overhead comes on top."""
    whole = {"requests": {"cpu": "4"}, "limits": {"cpu": "5", "memory": "2Gi"}}
    one = pod(requests={"cpu": "1", "memory": "1Gi", GPU: "1"}, resources=whole, overhead={"cpu": "250m"})
    two = pod("two", resources={"limits": {"cpu": "2"}})
    tasks = read(node(labels=A100, **{"nvidia.com__gpu": "2"}), one, two).tasks
    assert tasks[["cpu_milli", "memory_mib", "num_gpus"]].values.tolist() == [[4250, 1024, 1], [2000, 0, 0]]


@pytest.mark.parametrize(("status", "conditions", "cpu_milli"), [
    ({"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}}, [], 1000),
    ({"allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "3"}}}, [], 3000),
    ({"allocatedResources": {"cpu": "500m"}, "resources": {"requests": {"cpu": "500m"}}}, [], 1000),
    ({"allocatedResources": {"cpu": "500m"}, "resources": {"requests": {"cpu": "500m"}}},
     [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}], 500),
    ({"allocatedResources": [], "resources": "3"}, [], 1000)])
def test_a_pod_that_is_resized_holds_the_largest(status, conditions, cpu_milli):
    one = pod(containers=[{"name": "main", "resources": {"requests": {"cpu": "1"}}}])
    one["status"] |= {"containerStatuses": [{"name": "main", **status}], "conditions": conditions}
    tables = read(node(), one)
    assert tables.tasks["cpu_milli"].tolist() == [cpu_milli]
    assert ("being resized" in reasons(tables)) == (cpu_milli != 1000)


def test_a_resize_of_the_pod_as_a_whole():
    one = pod(resources={"requests": {"cpu": "1"}})
    one["status"] |= {"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "1500m"}}
    assert read(node(), one).tasks["cpu_milli"].tolist() == [2000]


def test_what_a_live_server_adds_is_read_or_said():
    """A static pod, one of a DaemonSet, a gated one, one with ports and volumes, a debugged one."""
    static = pod("static", annotations={"kubernetes.io/config.mirror": "x"},
                 tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    agent = pod("agent", tolerations=[
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}})
    gated = pod("gated", at="", phase="Pending", schedulingGates=[{"name": "wait"}])
    gated["status"]["nominatedNodeName"] = "n"
    tied = pod("tied", hostNetwork=True, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
               containers=[{"name": "c", "ports": [{"containerPort": 1, "hostPort": 1}]}],
               ephemeralContainers=[{"name": "debug", "resources": {"requests": {"cpu": "7"}}}])
    one = node(spec={"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
                     "unschedulable": True})
    one["status"] |= {"declaredFeatures": ["X"], "nodeInfo": {"swap": {"capacity": 8}}}
    one["metadata"] |= {"managedFields": [{"manager": "kubelet"}], "ownerReferences": [{}]}
    tables = read(one, static, agent, gated, tied)
    assert tables.tasks["cpu_milli"].tolist() == [0, 0, 0, 0]
    pins = [json.loads(text)["affinity"][0][0]["values"] for text in tables.tasks["constraints"][:2]]
    assert pins == [["n"], ["n"]]
    kept = [json.loads(text)["tolerations"] for text in tables.tasks["constraints"][:2]]
    assert kept[0] == [{"operator": "Exists"}]
    assert [one["key"] for one in kept[1]] == ["node.kubernetes.io/unschedulable"]
    for name in ("schedulingGates", "nominatedNodeName", "hostPort", "persistentVolumeClaim"):
        assert f"extra column: {name} of pods is not honoured" in reasons(tables)
    assert "a static pod" in reasons(tables)


def test_an_extended_resource_that_is_a_claim():
    """By KEP-5004 the scheduler makes a claim for `example.com/gpu`; if the claim is there, its device is."""
    gpus = [{"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(2)]
    gpus[1]["taints"] = [{"key": "x", "effect": "NoSchedule"}]
    slices = {"kind": "ResourceSlice", "metadata": {"name": "s"},
              "spec": {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": {"name": "n"},
                       "devices": gpus}}
    result = {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-1"}
    claim = {"kind": "ResourceClaim", "metadata": {"name": "made", "namespace": "team"}, "spec": {},
             "status": {"allocation": {"devices": {"results": [result]}}}}
    one = pod(requests={"example.com/gpu": "1"})
    one["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "made"}
    tables = read(node(), slices, claim, one)
    assert holds(tables) == [(1, 1000, "", "1")] and tables.nodes["num_gpus"].tolist() == [2]
    assert "taints of devices are not honoured" in reasons(tables)
    plain = pod(requests={GPU: "1"})
    plain["status"] = one["status"]
    assert holds(read(node(labels=A100, **{"nvidia.com__gpu": "2"}), plain)) == [(1, 1000, "", "")]


def test_phases():
    over = pod("over", phase="Succeeded")
    over["status"]["containerStatuses"] = [{"state": {"terminated": {"finishedAt": end}}} for end in (STARTED, ENDED)]
    evicted = pod("evicted", phase="Failed")
    tables = read(
        node(),
        pod("runs"),
        pod("bound", phase="Pending"),
        pod("waits", at="", phase="Pending"),
        over,
        evicted,
        pod("never", at="", phase="Failed"),
        pod("odd", phase="Unknown"),
    )
    times = {row.name: (row.submit_s, row.start_s, row.end_s) for row in tables.tasks.fillna(-1).itertuples()}
    assert times == {
        "team/runs": (0, 10, -1),
        "team/bound": (0, 10, -1),
        "team/waits": (0, -1, -1),
        "team/over": (0, 10, 3600),
        "team/odd": (0, 10, -1),
    }
    assert tables.ledger[tables.ledger["what"] == "dropped"]["count"].sum() == 2


def test_constraints_are_kept_and_what_is_not_is_said():
    rule = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["A100-SXM4-40GB", "H100"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
        },
        "podAntiAffinity": {"x": 1},
    }
    tables = read(
        node(spec={"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}),
        pod(
            at="",
            phase="Pending",
            affinity=affinity,
            nodeSelector={"zone": "a"},
            tolerations=[{"key": "k", "operator": "Exists"}],
        ),
    )
    kept = json.loads(tables.tasks["constraints"][0])
    assert kept["node_selector"] == {"zone": "a"} and kept["affinity"] == [[rule]] and len(kept["tolerations"]) == 1
    assert tables.tasks["gpu_models"].tolist() == ["A100-SXM4-40GB|H100"]
    taints = [taint["key"] for taint in json.loads(tables.nodes["taints"][0])]
    assert taints == ["k", "node.kubernetes.io/unschedulable"]
    assert "podAntiAffinity of pods is not honoured" in reasons(tables)


# ---- how objects are packed ----
def test_packings_are_equal():
    objects = [node(labels=A100, **{"nvidia.com__gpu": "2"}), pod(requests={GPU: "1"})]
    bare = [{key: value for key, value in one.items() if key not in ("kind", "apiVersion")} for one in objects]
    packed = [
        {"kind": "List", "items": objects},
        objects,
        {"nodes": bare[:1], "pods": bare[1:], "pvs": []},
        {"rawObjects": {"nodes": bare[:1], "pods": bare[1:], "queues": None}},
        [{"kind": "NodeList", "items": bare[:1]}, {"kind": "PodList", "items": bare[1:]}],
        [{"time": CREATED, "event": "Add", "resource": one} for one in objects],
        [{"type": "ADDED", "object": one} for one in objects],
    ]
    for value in packed:
        for data in (json.dumps(value), json.dumps(value).encode("utf-16"), "\ufeff" + json.dumps(value)):
            data = data if isinstance(data, bytes) else data.encode()
            assert is_kubernetes(Source("x", data))
            tables = read(raw=data)
            assert (len(tables.nodes), tables.nodes["num_gpus"].sum(), holds(tables)) == (1, 2, [(1, 1000, "", "")])


def test_a_recording_ends_a_pod_when_it_was_deleted():
    first = pod(requests={GPU: "1"})
    events = [("Add", pod(requests={GPU: "1"}, at="", phase="Pending")), ("Update", first), ("Delete", first)]
    lines = "\n".join(json.dumps({"time": ENDED, "event": event, "resource": one}) for event, one in events)
    tables = read(raw=lines.encode())
    assert holds(tables, "submit_s", "start_s", "end_s") == [(0, 10, 3600)]


def test_an_object_that_is_there_twice_counts_once():
    tables = read(node(), pod(), pod(requests={"cpu": "2"}))
    assert tables.tasks["cpu_milli"].tolist() == [2000] and "there again" in reasons(tables)


# ---- the recorded cluster ----
@needs_samples
def test_the_recorded_cluster():
    ledger = Ledger()
    sources = sources_of([NODES, find_reference("kubernetes/pods.json")])
    tables = tables_of(*read_kubernetes(sources, ledger, ReadOptions()), ledger, "pods.json")
    assert (len(tables.nodes), tables.nodes["num_gpus"].sum(), len(tables.tasks)) == (20, 90, 70)
    assert Counter(zip(tables.tasks["num_gpus"], tables.tasks["gpu_milli"], strict=True)) == {
        (1, 1000): 26,
        (2, 1000): 10,
        (1, 500): 12,
        (1, 100): 12,
        (1, 250): 10,
    }
    used = Counter()
    for task in tables.tasks.itertuples():
        used.update({(task.node, gpu): task.gpu_milli for gpu in filter(None, task.gpu_list.split("-"))})
    assert max(used.values()) == 1000 and (tables.tasks["node"] == "").sum() == 1
    assert [line.count for line in tables.ledger.itertuples()] == [69]


@needs_samples
def test_the_recorded_cluster_with_claims():
    ledger = Ledger()
    files = [find_reference(f"kubernetes/dra_{name}.json") for name in ("slices", "claims", "pods")]
    tables = tables_of(*read_kubernetes(sources_of(files), ledger, ReadOptions()), ledger, "dra")
    assert tables.nodes[["name", "gpu_model", "num_gpus", "gpu_memory_mib"]].values.tolist() == [
        ["n0001", "A100", 1, 40960],
        ["n0002", "A100", 1, 40960],
    ]
    assert holds(tables) == [(1, 428, "3g.20gb", "0")] * 4 + [(1, 428, "3g.20gb", ""), (1, 1000, "", "")]


# ---- damage ----
DUMP = {
    "kind": "List",
    "items": [
        node(labels=A100, annotations={"hami.io/node-nvidia-register": REGISTER}, **{"nvidia.com__gpu": "20"}),
        node("m", labels=A100 | {"nvidia.com/gpu.replicas": "4"}, **{"nvidia.com__gpu": "8"}),
        slices("s"),
        claim("a", "gpu-1"),
        pod(
            requests={GPU: "1", "cpu": "1"},
            tolerations=[{"key": "k"}],
            nodeSelector={"a": "b"},
            initContainers=[{"resources": {"requests": {"cpu": "1"}}}],
        ),
        pod("q", at="m", requests={GPU: "1"}),
        pod("r", at="s", resourceClaims=claims("a")),
        pod("s", annotations={"gpu-fraction": "0.5"}),
        pod("t", phase="Succeeded"),
    ],
}
STRANGE = [
    None,
    True,
    -1,
    0,
    1e300,
    10**30,
    "",
    "x",
    "-5",
    "NaN",
    "1e9999",
    "\u0000",
    "=1+1",
    "<script>",
    "🐜" * 300,
    [],
    [None],
    [[]],
    {},
    {"x": {}},
    {"kind": "Pod"},
]


def places(value, path=()):
    """Paths to all values in a value."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


PLACES = list(places(DUMP))


def survives(value):
    """Read the dump, or have it refused in words; whatever is read can be shown."""
    try:
        tables = read(raw=json.dumps(value).encode())
    except InputError as error:
        assert "dump.json" in str(error) and len(str(error).splitlines()) == 1
        return
    assert tables.tasks["name"].is_unique and not (tables.nodes["num_gpus"] < 0).any()
    assert "\n" not in "".join([*tables.tasks["name"], *tables.nodes["labels"], *tables.ledger["reason"]])


@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(STRANGE)), min_size=1, max_size=3))
@settings(deadline=None, max_examples=40)
def test_whatever_is_wrong_with_a_value_the_dump_is_read_or_refused(changes):
    value = copy.deepcopy(DUMP)
    for path, strange in changes:
        inner = value
        try:
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = copy.deepcopy(strange)
        except (KeyError, IndexError, TypeError):
            continue
    survives(value)


@pytest.mark.parametrize("number", range(len(STRANGE)))
def test_every_place_may_hold_something_strange(number):
    for path in PLACES[number :: len(STRANGE)]:
        value = copy.deepcopy(DUMP)
        inner = value
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = STRANGE[number]
        survives(value)


@given(st.integers(0, len(json.dumps(DUMP)) - 1))
@settings(deadline=None, max_examples=25)
def test_a_dump_that_is_cut_short_is_refused(length):
    data = json.dumps(DUMP).encode()[:length]
    with pytest.raises(InputError, match=r"dump\.json"):
        read(raw=data)


def test_names_with_markup_and_formulas_are_data():
    name = '<img src=x onerror=alert(1)>,"=cmd()"'
    assert read(node(), pod(name)).tasks["name"].tolist() == [f"team/{name}"]


def test_a_billion_gpus_are_a_row():
    tables = read(node(**{"nvidia.com__gpu": "1G"}), pod(requests={GPU: "1e9"}))
    assert tables.nodes["num_gpus"].tolist() == tables.tasks["num_gpus"].tolist() == [10**9]


@pytest.mark.parametrize(("written", "read_as"), [(7, 7), (-3, -3), (None, None), ("high", None), (True, None),
                                                  (2.5, None), (2**40, None)])
def test_a_priority_that_is_no_number_is_said(written, read_as):
    tables = read(node(), pod(at="", phase="Pending", priority=written))
    assert [None if pd.isna(one) else one for one in tables.tasks["priority"]] == [read_as]
    assert ("spec.priority is no whole number" in reasons(tables)) == (written is not None and read_as is None)
