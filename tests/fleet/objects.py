"""Nodes, pods, slices and claims for tests, one builder each, and what damage may be done to any JSON."""
import copy
import json
import pickle

from sched_lab.fleet.read.kubernetes import read_kubernetes
from sched_lab.fleet.read.tables import Ledger, ReadOptions, Source, tables_of
from sched_lab.lab.frames import InputError

CREATED, STARTED, ENDED = "2026-03-02T08:00:00Z", "2026-03-02T08:00:10Z", "2026-03-02T09:00:00Z"
GPU = "nvidia.com/gpu"
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.memory": "40960"}
OPENB = "alibabacloud.com/gpu-"


def node(name="n", labels=None, annotations=None, spec=None, **allocatable):
    """Return a node; `__` stands for the slash in the name of a resource."""
    amounts = {"cpu": "8", "memory": "32Gi"} | {key.replace("__", "/"): text for key, text in allocatable.items()}
    return {"kind": "Node", "apiVersion": "v1", "spec": spec or {}, "status": {"allocatable": amounts},
            "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}}}


def pod(name="p", requests=None, annotations=None, labels=None, at="n", phase="Running", **spec):
    """Return a pod of the namespace `team`, which started ten seconds after it came if it has a node."""
    one = {"kind": "Pod", "apiVersion": "v1", "status": {"phase": phase},
           "metadata": {"name": name, "namespace": "team", "creationTimestamp": CREATED,
                        "annotations": annotations or {}, "labels": labels or {}},
           "spec": {"containers": [{"resources": {"requests": requests or {}}}]} | spec}
    if at:
        one["spec"]["nodeName"] = at
        one["status"]["startTime"] = STARTED
    return one


def openb_node(name, gpus=2, model="T4", cpu="8", **more):
    one = node(name, labels={f"{OPENB}card-model": model}, **more)
    one["status"]["allocatable"] |= {"cpu": cpu, f"{OPENB}count": str(gpus)}
    return one


def openb_pod(name, milli=1000, count=1, cpu="1", at="", uid=None, **annotations):
    said = {f"{OPENB}milli": str(milli), f"{OPENB}count": str(count), **annotations} if milli else {}
    one = pod(name, {"cpu": cpu}, said, at=at, phase="Running" if at else "Pending")
    one["metadata"]["uid"] = f"uid-{name}" if uid is None else uid
    return one


def slices(name="n", gpus=2):
    """GPUs of a driver, each with two possible instances."""
    devices = [{"name": f"gpu-{gpu}{suffix}", "capacity": {"memory": {"value": size}},
                "attributes": {"productName": {"string": "A100"}, "profile": {"string": profile}},
                "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": {"slices": {"value": cost}}}]}
               for gpu in range(gpus) for suffix, profile, size, cost in (
                   ("", "full", "40Gi", "7"), ("-mig-0", "3g.20gb", "20Gi", "3"), ("-mig-1", "3g.20gb", "20Gi", "3"))]
    return {"kind": "ResourceSlice", "metadata": {"name": f"{name}-devices"}, "spec": {
        "driver": "gpu.nvidia.com", "nodeName": name, "pool": {"name": name}, "devices": devices}}


def claim(name, *devices, rule="", kind="ResourceClaim", **request):
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": 1} | request
    if rule:
        exactly["selectors"] = [{"cel": {"expression": f"device.attributes['x'].profile == '{rule}'"}}]
    results = [{"driver": "gpu.nvidia.com", "pool": "n", "device": device, "request": "r"} for device in devices]
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    return {"kind": kind, "metadata": {"name": name, "namespace": "team"},
            "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec,
            "status": {"allocation": {"devices": {"results": results}}} if results else {}}


def claims(*names):
    return [{"name": name, "resourceClaimName": name} for name in names]


def listed(*items):
    return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": list(items)}


# --- what is read, and damage

def holds(tables, *columns):
    columns = columns or ("num_gpus", "gpu_milli", "mig_profile", "gpu_list")
    return [tuple(row) for row in tables.tasks[list(columns)].itertuples(index=False)]


def reasons(tables):
    return " | ".join(f"{line.what}: {line.reason}" for line in tables.ledger.itertuples())


STRANGE = [None, True, -1, 0, 1e300, 10**30, "", "x", "-5", "NaN", "1e9999", "\0", "=1+1", "<script>", "🐜" * 300,
           [], [None], [[]], {}, {"x": {}}, {"kind": "Pod"}]
GONE = object()


def places(value, path=()):
    """Paths to all values in a value."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def damaged(value, *changes):
    """Return a copy with something strange, or nothing, at some places; a place that is gone is passed over."""
    value = copy.deepcopy(value)
    for path, strange in changes:
        inner = value
        try:
            for key in path[:-1]:
                inner = inner[key]
            if strange is GONE:
                del inner[path[-1]]
            else:
                inner[path[-1]] = copy.deepcopy(strange)
        except (KeyError, IndexError, TypeError):
            continue
    return value


def read_objects(*objects):
    """Tables of objects of Kubernetes."""
    ledger = Ledger()
    source = Source("dump.json", json.dumps(listed(*objects)).encode())
    return tables_of(*read_kubernetes([source], ledger, ReadOptions()), ledger, "dump.json")


def survives(reader, value, seen: set[bytes]) -> None:
    """Read a dump, or have it refused in one line; whatever is read, and not in `seen`, can be shown."""
    ledger = Ledger()
    try:
        frames = reader([Source("dump.json", json.dumps(value).encode())], ledger, ReadOptions())
        found = pickle.dumps((frames, vars(ledger)))
        if found in seen:
            return
        seen.add(found)
        tables = tables_of(*frames, ledger, "dump.json")
    except InputError as error:
        assert "dump.json" in str(error) and len(str(error).splitlines()) == 1
        return
    assert tables.tasks["name"].is_unique and not (tables.nodes["num_gpus"] < 0).any()
    assert "\n" not in "".join([*tables.tasks["name"], *tables.nodes["labels"], *tables.ledger["reason"]])


def survives_everywhere(reader, dump) -> None:
    """Put something strange in each place of a dump, two places at once and all kinds in turn."""
    seen: set[bytes] = set()
    paths = list(places(dump))
    half = len(paths) // 2
    for number, pair in enumerate(zip(paths, paths[half:], strict=False)):
        kinds = (STRANGE[(number + turn) % len(STRANGE)] for turn in (0, 1))
        survives(reader, damaged(dump, *zip(pair, kinds, strict=True)), seen)
