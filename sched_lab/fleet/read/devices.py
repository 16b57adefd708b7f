"""What a name of a resource means is said by the node that shows it: a GPU, a part of one by time, or an instance of MIG."""

# A module, written by hand.

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .objects import whole
from .tables import BY_DRIVER, milli_of_profile, profile_named

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
OTHER_GPUS = ("amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
MIG = "nvidia.com/mig-"


class Dialect(NamedTuple):
    """How the programs of one maker tell each other of shares of GPUs, in objects of Kubernetes.

    Parameters
    ----------
    name : of the dialect, as in `serve --dialect`
    asks : resources of a container: how many GPUs; of each, MiB, percent of the cores, percent of the memory; what else
    registers : annotations of a node with its devices
    entry : what stands in the entry of a device there, if it is text; in JSON it has these names
    cordoned : annotation of a node with the devices that get nothing new
    given : annotations of a pod with the devices of each container, by name; the first that is there counts
    numbers : annotation of a pod with its GPUs, by number
    phase : annotation of a pod in which the plugin on its node says what came of `given`
    lock : annotation of a node, there while a pod waits for its devices
    """

    name: str
    asks: tuple[str, ...]
    registers: tuple[str, ...] = ()
    entry: tuple[str, ...] = ()
    cordoned: str = ""
    given: tuple[str, ...] = ()
    numbers: str = ""
    phase: str = ""
    lock: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """Resources that nobody asks for in another dialect."""
        return tuple(name for name in self.asks if name and name != GPU)


FAILED, ALLOCATING = "failed", "allocating"  # values of `phase`
DIALECTS = {dialect.name: dialect for dialect in (
    Dialect("openb", ("alibabacloud.com/gpu-count", "", "", ""), numbers="alibabacloud.com/gpu-index"),
    Dialect("hami", (GPU, "nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage",
                     "nvidia.com/priority"),
            ("hami.io/node-nvidia-register", "hami.io/node-register-nvidia"),
            ("id", "count", "devmem", "devcore", "type", "numa", "health", "index", "mode"), "hami.io/device-cordon",
            ("hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate", "4pd.io/vgpu-ids-new"),
            phase="hami.io/bind-phase", lock="hami.io/mutex.lock"),
    Dialect("volcano", ("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores",
                        "volcano.sh/vgpu-memory-percentage"),
            ("volcano.sh/node-vgpu-register",), ("id", "count", "devmem", "type", "health", "mode"),
            given=("volcano.sh/vgpu-ids-new", "volcano.sh/devices-to-allocate")),
    Dialect("volcano-gpu", ("volcano.sh/gpu-number", "volcano.sh/gpu-memory", "", "")))}
HAMI = DIALECTS["hami"]
VIRTUAL = tuple(dialect for dialect in DIALECTS.values() if dialect.asks[1])  # whose GPUs are shared by MiB
OPENB = "alibabacloud.com/gpu-milli"
UNDERSTOOD = {GPU, SHARED, *OTHER_GPUS, OPENB,
              *(name for dialect in DIALECTS.values() for name in dialect.asks if name)}
SOUNDS_LIKE_GPU = re.compile(r"gpu|cuda|/mig-|^nvidia\.com/|^amd\.com/", re.I)
IS_NETWORK = re.compile(r"rdma|nic|hostdev|sriov|roce|\bib\b|/vf", re.I)
MIG_SUFFIX = re.compile(r"-MIG-(\d+g\.\d+gb[\w.+]*)$", re.I)


class ResourceKind(NamedTuple):
    """What one unit of a resource is on a node.

    Parameters
    ----------
    resource : its name
    replicas : how many units one GPU, or one instance, is shown as
    profile : of MIG, if a unit is an instance; else empty
    """

    resource: str
    replicas: int = 1
    profile: str = ""

    @property
    def device(self) -> str:
        """The same in a word that pods and nodes share."""
        if self.resource.startswith(MIG) or self.resource in UNDERSTOOD - {GPU, SHARED}:
            return self.resource
        part = self.profile or (f"1/{self.replicas}" if self.replicas > 1 else "")
        return f"{self.resource} ({part})" if part else self.resource

    @property
    def gpu_milli(self) -> int:
        """Thousandths of a GPU that a unit is."""
        return max((milli_of_profile(self.profile) or 1000) // self.replicas, 1)


def model_of(product: str) -> str:
    """Model of a product label, without what sharing added to it."""
    return MIG_SUFFIX.sub("", product.removesuffix("-SHARED")).strip()


def is_gpu_name(resource: str) -> bool:
    """Whether a resource that nobody has explained may be a GPU."""
    return bool(SOUNDS_LIKE_GPU.search(resource)) and not IS_NETWORK.search(resource)


def replicas_of(labels: Mapping[str, str]) -> int:
    """How often a GPU is shown, by the labels of its node."""
    if labels.get("nvidia.com/gpu.sharing-strategy", "") == "none":
        return 1
    return min(max(whole(labels.get("nvidia.com/gpu.replicas")) or 1, 1), 1000)


def amounts_shown(allocatable: Mapping[str, str]) -> dict[str, int]:
    """Resources of a node of which it has some."""
    found = {name: whole(text, down=True) or 0 for name, text in allocatable.items()}
    return {name: amount for name, amount in found.items() if amount > 0}


def renamed(labels: Mapping[str, str], amounts: Mapping[str, int]) -> tuple[str, ...]:
    """Names that a node gives to its GPUs in place of `nvidia.com/gpu`; none if it cannot be seen.

    They are such if all of them together are as many GPUs, or shares of GPUs, as the labels count.
    """
    count = whole(labels.get("nvidia.com/gpu.count")) or 0
    names = tuple(name for name in amounts if name.startswith("nvidia.com/") and is_gpu_name(name)
                  and name not in UNDERSTOOD and not name.startswith(MIG))
    usual = gpus_in(kinds_of(labels, (GPU, SHARED), amounts), amounts)
    own = gpus_in(kinds_of(labels, names, amounts), amounts)
    return names if count and usual + own == count else ()


def kinds_of(labels: Mapping[str, str], names: Iterable[str],
             amounts: Mapping[str, int]) -> list[ResourceKind]:
    """What a unit of each of some resources is, of those that a node shows."""
    shown = [name for name in names if amounts.get(name)]
    found = MIG_SUFFIX.search(labels.get("nvidia.com/gpu.product", "").removesuffix("-SHARED"))
    profile = profile_named(found[1]) if found else ""
    replicas = replicas_of(labels)
    count = whole(labels.get("nvidia.com/gpu.count")) or 0
    has_both = len({name.endswith(".shared") for name in shown}) == 2  # then only those are shared
    kinds = []
    for name in shown:
        parts = 1 if has_both and not name.endswith(".shared") else replicas
        if parts == 1 and name.endswith(".shared"):  # by how much, its labels do not say
            parts = amounts[name] // count if count and not amounts[name] % count else 0
        kinds += [ResourceKind(name, parts, profile)] if parts else []
    return kinds


def gpus_in(kinds: Iterable[ResourceKind], amounts: Mapping[str, int]) -> int:
    """How many GPUs, or instances, units of these kinds are together."""
    return sum(-(-amounts[kind.resource] // kind.replicas) for kind in kinds)


def plugin_kinds(labels: Mapping[str, str], amounts: Mapping[str, int]) -> list[ResourceKind]:
    """Kinds of GPUs, parts of GPUs and instances that NVIDIA's device plugin shows on a node."""
    cut = [ResourceKind(name, 1, profile_named(name)) for name in amounts if name.startswith(MIG)]
    return [*kinds_of(labels, (GPU, SHARED, *renamed(labels, amounts)), amounts), *cut]


def driver_device(driver: str, profile: str = "") -> str:
    """Word for a device that a driver gives out, or makes when it is asked for."""
    return f"{driver}{BY_DRIVER} {profile}".rstrip()
