"""A GPU with MIG as NVML, NVIDIA's management library, drives it: instances at their places, tasks as shell commands."""

# A module, written by hand.

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ctypes import byref, c_uint
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ..lab.frames import InputError, SchedLabError
from .mig import Mig, Schedule

__all__ = ['NvmlBackend']


def _nvml() -> Any:
    """NVIDIA's library, imported on request only."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise SchedLabError(
            "execution on a GPU needs NVML; run: pip install 'sched_lab[nvml]'") from None


@contextmanager
def _told(nvml: Any, problem: str) -> Iterator[None]:
    """Turn NVML's error into one that says what could not be done."""
    try:
        yield
    except nvml.NVMLError as error:
        raise SchedLabError(f"{problem}: {error}") from error


def _check_idle(nvml: Any, device: Any, mig: Mig, where: str) -> None:
    """Refuse a GPU that is not in MIG mode, is in use or cut already, or has other slices."""
    if nvml.nvmlDeviceGetMigMode(device)[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        raise SchedLabError(
            f"{where} is not in MIG mode; an administrator enables it: nvidia-smi -mig 1")
    if processes := nvml.nvmlDeviceGetComputeRunningProcesses(device):
        numbers = ", ".join(str(process.pid) for process in processes)
        raise SchedLabError(f"{where} is used by process {numbers}; wait for its end")
    most_slices = 0
    for profile in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        with suppress(nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(device, profile)
            most_slices = max(most_slices, info.sliceCount)
            if nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(device, info.id) < info.instanceCount:
                raise SchedLabError(f"{where} is cut already; destroy its instances first: "
                                    "nvidia-smi mig -dci, -dgi")
    if most_slices != mig.num_slices:
        raise SchedLabError(f"{where} has {most_slices} slices, but the schedule is for "
                            f"{mig.num_slices} ({mig.model})")


class Place(NamedTuple):
    """Where NVML puts an instance: device, number of the profile, memory slices."""

    device: Any
    profile: int
    placement: Any


def _place(nvml: Any, device: Any, first_slice: int, size: int) -> Place:
    """Find the place of an instance that begins at a slice, as NVML lists it."""
    info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(
        device, getattr(nvml, f"NVML_GPU_INSTANCE_PROFILE_{size}_SLICE"))
    count = c_uint(64)  # room for more places than any GPU has
    placements = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, info.id, placements, byref(count))
    for placement in placements[:count.value]:
        if placement.start == first_slice:
            return Place(device, info.id, placement)
    raise SchedLabError(
        f"NVML has no place for an instance of {size} slices that begins at S{first_slice}")


def _check_places(mig: Mig, places: Mapping[int, Place]) -> None:
    """Refuse a GPU on which instances share memory that may exist together in our tree."""
    tree = mig.tree
    for a, b in combinations(places, 2):
        one = places[a].placement
        other = places[b].placement
        shares_memory = one.start < other.start + other.size and other.start < one.start + one.size
        shares_slice = (tree.first_slice[a] < tree.first_slice[b] + tree.span[b]
                        and tree.first_slice[b] < tree.first_slice[a] + tree.span[a])
        if tree.gpu[a] == tree.gpu[b] and shares_memory and not shares_slice:
            raise SchedLabError(f"on this GPU {mig.name(a)} and {mig.name(b)} share memory; "
                                "the schedule cannot work")


@dataclass
class MigInstance:
    """A GPU instance with the one compute instance that fills it; None once it is destroyed."""

    gpu_instance: Any
    compute_instance: Any = None
    uuid: str = ""


def _uuid_of(nvml: Any, device: Any, gpu_instance: Any) -> str:
    """The name by which CUDA knows a GPU instance with a compute instance."""
    number = nvml.nvmlGpuInstanceGetInfo(gpu_instance).id
    for k in range(nvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        with suppress(nvml.NVMLError_NotFound):
            mig_device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, k)
            if nvml.nvmlDeviceGetGpuInstanceId(mig_device) == number:
                return str(nvml.nvmlDeviceGetUUID(mig_device))
    raise SchedLabError(f"NVML knows no MIG device for GPU instance {number}")


def _destroy(nvml: Any, made: MigInstance) -> None:
    """Destroy what exists of an instance."""
    if made.compute_instance is not None:
        nvml.nvmlComputeInstanceDestroy(made.compute_instance)
        made.compute_instance = None
    if made.gpu_instance is not None:
        nvml.nvmlGpuInstanceDestroy(made.gpu_instance)
        made.gpu_instance = None


def _create(nvml: Any, place: Place, size: int) -> MigInstance:
    """Create a GPU instance at its place and a compute instance that fills it, or nothing."""
    device, profile, placement = place
    made = MigInstance(
        nvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, profile, byref(placement)))
    try:
        info = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
            made.gpu_instance, getattr(nvml, f"NVML_COMPUTE_INSTANCE_PROFILE_{size}_SLICE"),
            nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
        made.compute_instance = nvml.nvmlGpuInstanceCreateComputeInstance(
            made.gpu_instance, info.id)
        made.uuid = _uuid_of(nvml, device, made.gpu_instance)
    except BaseException:
        with _told(nvml, "half an instance is left behind, because it could not be destroyed"):
            _destroy(nvml, made)
        raise
    return made


class Processes:
    """Shell commands that run at the same time and can be stopped together."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self._running = list[subprocess.Popen[bytes]]()
        self._is_stopped = False
        self._lock = threading.Lock()

    def run(self, command: str, **environment: str) -> int:
        """Run a command until it ends; return its exit code."""
        with self._lock:
            if self._is_stopped:
                raise SchedLabError("the execution has been stopped")
            process = subprocess.Popen(command, shell=True, env=os.environ | environment,
                                       start_new_session=True)
            self._running.append(process)
        return process.wait()

    def stop(self) -> None:
        """End all commands and let none begin."""
        with self._lock:
            self._is_stopped = True
        for how, patience_s in ((signal.SIGTERM, self.grace_s), (signal.SIGKILL, None)):
            still = [process for process in self._running if process.poll() is None]
            for process in still:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, how)
            for process in still:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(patience_s)


class NvmlBackend:
    """A GPU with MIG: instances through NVML, tasks as shell commands that see their own only.

    Parameters
    ----------
    commands : shell command of each task
    first_gpu : NVML index of the GPU, or of the first of several
    yes_reconfigure : consent to creating and destroying instances; without it nothing is done
    nvml : the module `pynvml` of nvidia-ml-py, imported if not given
    grace_s : how long a task that is stopped may take to end before it is killed
    """

    scale = 1.0

    def __init__(self, commands: Sequence[str], first_gpu: int = 0,
                 yes_reconfigure: bool = False, nvml: Any = None, *, grace_s: float = 5.0) -> None:
        if not yes_reconfigure:
            raise SchedLabError(
                "this would create and destroy instances of a GPU; look at it first with --dry-run "
                "(dry_run), then agree with --yes-reconfigure (yes_reconfigure=True)")
        self.nvml = _nvml() if nvml is None else nvml
        self.commands = commands
        self.first_gpu = first_gpu
        self.grace_s = grace_s
        self.is_open = False
        self.processes = Processes(grace_s)

    def open(self, schedule: Schedule) -> None:
        """Look, without touching anything, whether the schedule can be executed here."""
        if len(self.commands) != len(schedule.instance):
            raise InputError(f"{len(self.commands)} commands for {len(schedule.instance)} tasks",
                             mend="give one each")
        with _told(self.nvml, "NVML does not start"):
            self.nvml.nvmlInit()
        self.is_open = True
        self.mig = schedule.mig
        self.places = dict[int, Place]()
        self.processes = Processes(self.grace_s)
        tree = self.mig.tree
        used = np.unique(schedule.operated)
        for gpu in range(self.mig.num_gpus):
            index = self.first_gpu + gpu
            with _told(self.nvml, f"GPU {index} cannot be cut as the schedule wants it"):
                device = self.nvml.nvmlDeviceGetHandleByIndex(index)
                _check_idle(self.nvml, device, self.mig, f"GPU {index}")
                for i in used[tree.gpu[used] == gpu].tolist():
                    self.places[i] = _place(self.nvml, device, int(tree.first_slice[i]),
                                            int(tree.size[i]))
        _check_places(self.mig, self.places)

    def create(self, instance: int) -> MigInstance:
        """Create an instance at its place."""
        with _told(self.nvml, f"{self.mig.name(instance)} could not be created"):
            return _create(self.nvml, self.places[instance], int(self.mig.tree.size[instance]))

    def run(self, handle: MigInstance, task: int) -> int:
        """Run the command of a task on an instance.

        Parameters
        ----------
        handle : the instance
        task : its number
        """
        return self.processes.run(self.commands[task], CUDA_VISIBLE_DEVICES=handle.uuid)

    def destroy(self, handle: MigInstance) -> None:
        """Destroy what exists of an instance."""
        with _told(self.nvml, "NVML refuses"):
            _destroy(self.nvml, handle)

    def stop(self) -> None:
        """End the commands that run."""
        self.processes.stop()

    def close(self) -> None:
        """Let go of the library."""
        if self.is_open:
            self.nvml.nvmlShutdown()
            self.is_open = False
