"""Executing a schedule: in its order, whatever happens on the way, and nothing is left behind. No GPU is touched."""
import ctypes
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sched_lab.far import execution
from sched_lab.far import nvml as nvml_module
from sched_lab.far.mig import Schedule, check_schedule, mig_of
from sched_lab.far.nvml import NvmlBackend, Processes
from sched_lab.far.refine import far
from sched_lab.far.repartition import schedule_of
from sched_lab.far.tasks import toy_batch
from sched_lab.lab.frames import InputError, SchedLabError
from tests.far.cases import mixed_times
from tests.waiting import HANG_S, until

A30 = mig_of("A30")
A100 = mig_of("A100")
MIGS = {"A30": A30, "A100": A100, "two H100": mig_of("H100", 2), "two A30, one sequence": mig_of("A30", 2,
                                                                                                has_one_sequence=True)}


def toy_plan(mig=A30):
    batch = toy_batch(mig)
    return far(mig, batch.times_s).schedule, batch


class Recorder(execution.SimulatedBackend):
    """A simulated machine that writes down, with a clock of its own, what is done to it; may fail at one thing."""

    def __init__(self, times_s, scale=200.0, fails_at=None, **options):
        super().__init__(times_s, scale, **options)
        self.fails_at, self.events, self.calls = fails_at, [], []

    def _record(self, what, instance, task, action):
        begin = time.monotonic()
        self.calls.append((what, instance, task))
        if self.fails_at == (what, task if what == "run" else instance):
            raise RuntimeError(f"{what} broke")
        result = action()
        self.events.append((what, instance, task, begin, time.monotonic()))
        return result

    def create(self, instance):
        return self._record("create", instance, None, lambda: execution.SimulatedBackend.create(self, instance))

    def run(self, handle, task):
        return self._record("run", handle, task, lambda: execution.SimulatedBackend.run(self, handle, task))

    def destroy(self, handle):
        self._record("destroy", handle, None, lambda: execution.SimulatedBackend.destroy(self, handle))

    def stop(self):
        self.calls.append(("stop", None, None))
        super().stop()

    def close(self):
        self.calls.append(("close", None, None))

    def alive(self):
        """Instances that were created and not destroyed."""
        made = [i for what, i, *_ in self.events if what == "create"]
        return sorted(set(made) - {i for what, i, *_ in self.events if what == "destroy"})


def recorded(mig, events):
    """Make a schedule of what a `Recorder` saw, on GPUs whose operations take what they took, and its run times."""
    begun = min(event[3] for event in events)
    runs = sorted((event for event in events if event[0] == "run"), key=lambda event: event[2])
    operations = [event for event in events if event[0] != "run"]
    span_s = {"create": mig.tree.create_s.copy(), "destroy": mig.tree.destroy_s.copy()}
    for what, instance, _, begin, end in operations:
        span_s[what][instance] = end - begin
    tree = mig.tree._replace(create_s=span_s["create"], destroy_s=span_s["destroy"])

    def column(of, k):
        return np.array([event[k] for event in of])

    instance, start_s, end_s = (column(runs, k) for k in (1, 3, 4))
    schedule = Schedule(replace(mig, tree=tree), instance, start_s - begun, end_s - begun, column(operations, 1),
                        column(operations, 0) == "create", column(operations, 3) - begun, column(operations, 4) - begun)
    return schedule, np.repeat((end_s - start_s)[:, None], len(mig.sizes), axis=1)


# --- the plan


def test_dry_run_says_every_step_and_touches_nothing(monkeypatch):
    monkeypatch.setattr(nvml_module, "_nvml", lambda: pytest.fail("asked for NVML"))
    monkeypatch.setattr(nvml_module.subprocess, "Popen", lambda *_, **__: pytest.fail("started a process"))
    # train on S0-S1, then copy and bfs on S0 and S1: 0.12 + 16 + 0.10 + 0.11 = 16.33; 16.33 + 4; 16.44 + 6
    plan = schedule_of(A30, np.array([[40.0, 16, 11], [4, 2, 2], [6, 5, 5]]), np.array([1, 2, 3]))
    assert execution.dry_run(plan, ["train", "copy", "bfs"]).splitlines() == [
        "step   start_s     end_s  what     instance     task             after",
        "   0      0.00      0.12  create   S0-S1",
        "   1      0.12     16.12  run      S0-S1        train            0",
        "   2     16.12     16.22  destroy  S0-S1                         0, 1",
        "   3     16.22     16.33  create   S0                            2",
        "   4     16.33     16.44  create   S1                            3",
        "   5     16.33     20.33  run      S0           copy             3",
        "   6     16.44     22.44  run      S1           bfs              4",
        "makespan 22.44 s on 1 A30"]


def test_a_plan_that_violates_a_constraint_has_no_steps():
    plan, batch = toy_plan()
    early = replace(plan, start_s=plan.start_s - 0.05, end_s=plan.end_s - 0.05)
    with pytest.raises(ValueError, match="constraint 3"):
        execution.steps_of(early, batch.name)
    with pytest.raises(InputError, match="2 names for 7 tasks"):
        execution.dry_run(plan, ["a", "b"])


# --- real threads


@pytest.mark.parametrize("mig", MIGS.values(), ids=MIGS)
def test_threads_do_every_step_in_order_and_what_they_did_is_a_valid_schedule(mig):
    times_s = mixed_times(mig, 12, 5)
    plan = far(mig, times_s).schedule
    names = [f"task {k}" for k in range(12)]
    machine = Recorder(times_s, scale=400, jitter=0.3, seed=1)
    result = execution.execute(plan, names, machine)
    steps = execution.steps_of(plan, names)
    assert list(zip(result["kind"], result["task"], strict=True)) == [(step.kind, step.name) for step in steps]
    begins = {event[:3]: event[3] for event in machine.events}
    ends = {event[:3]: event[4] for event in machine.events}
    keys = [(step.kind, step.instance, step.task if step.kind == "run" else None) for step in steps]
    for number, step in enumerate(steps):
        assert all(ends[keys[j]] <= begins[keys[number]] for j in step.after)
        assert all(result["end_s"][j] <= result["start_s"][number] for j in step.after)
    check_schedule(*recorded(mig, machine.events))
    assert machine.alive() == [] and machine.calls[-1][0] == "close"
    assert sorted(task for what, _, task in machine.calls if what == "run") == list(range(12))  # each once


def test_a_task_that_fails_is_reported_and_the_others_go_on():
    plan, batch = toy_plan()
    machine = Recorder(batch.times_s, exit_codes={0: 7, 6: 1})
    result = execution.execute(plan, batch.name, machine)
    codes = result.dropna(subset="exit_code").set_index("task")["exit_code"].to_dict()
    assert codes == dict.fromkeys(batch.name, 0) | {"train": 7, "copy": 1}
    assert result.loc[result["kind"] != "run", "exit_code"].isna().all() and machine.alive() == []


@pytest.mark.parametrize("fails_at", [("run", 0), ("create", 3), ("create", 1), ("destroy", 1)])
def test_an_error_stops_the_tasks_destroys_the_instances_and_comes_through(fails_at):
    plan, batch = toy_plan()  # train, task 0, runs on S0-S1, row 1, for 16 s; row 3 is S1
    machine = Recorder(batch.times_s, scale=100, fails_at=fails_at)
    message = "left behind.*S0-S1 \\(destroy broke\\)" if fails_at[0] == "destroy" else f"{fails_at[0]} broke"
    with pytest.raises((RuntimeError, SchedLabError), match=message):
        execution.execute(plan, batch.name, machine)
    assert machine.alive() == ([1] if fails_at[0] == "destroy" else [])
    names = [call[0] for call in machine.calls]
    assert names.count("stop") == 1 and names[-1] == "close"
    assert set(names[names.index("stop") + 1:-1]) <= {"destroy"}  # nothing begins any more
    if fails_at != ("create", 3):  # sort, task 3, waits for S0, row 2, which is cut from S0-S1
        assert ("run", 2, 3) not in machine.calls


def test_ctrl_c_destroys_everything():
    plan, batch = toy_plan()

    class Impatient(Recorder):
        def run(self, handle, task):
            if task == 0:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return super().run(handle, task)

    machine = Impatient(batch.times_s * 1e5, scale=100)
    with pytest.raises(KeyboardInterrupt):
        execution.execute(plan, batch.name, machine)
    assert machine.alive() == [] and machine.calls[-1][0] == "close"
    assert ("run", 2, 3) not in machine.calls


def test_nothing_is_left_by_a_thread_that_the_pool_does_not_know(monkeypatch):
    plan, batch = toy_plan()
    shutdown = ThreadPoolExecutor.shutdown
    monkeypatch.setattr(ThreadPoolExecutor, "shutdown",
                        lambda pool, **words: shutdown(pool, wait=False, cancel_futures=True))
    is_stopped = threading.Event()

    class Late(Recorder):
        def create(self, instance):
            if self.events:     # the second one is still being made when all ends
                is_stopped.wait(HANG_S)
                time.sleep(0.2)
            return super().create(instance)

        def run(self, handle, task):
            raise RuntimeError("run broke")

        def stop(self):
            super().stop()
            is_stopped.set()

    machine = Late(batch.times_s * 1e5, scale=100)
    with pytest.raises(RuntimeError, match="run broke"):
        execution.execute(plan, batch.name, machine)
    until(lambda: len(machine.events) == 4)
    assert machine.alive() == [] and machine.calls[-1][0] == "close"


def test_a_second_ctrl_c_does_not_interrupt_the_cleaning():
    plan, batch = toy_plan()

    class Slow(Recorder):
        def stop(self):
            for _ in range(3):
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
                time.sleep(0.02)
            super().stop()

    machine = Slow(batch.times_s, fails_at=("run", 0))
    with pytest.raises(RuntimeError, match="run broke"):
        execution.execute(plan, batch.name, machine)
    assert machine.alive() == [] and machine.calls[-1][0] == "close"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_machine_that_cannot_stop_its_tasks_is_cleaned_all_the_same():
    plan, batch = toy_plan()

    class Stubborn(Recorder):
        def stop(self):
            super().stop()
            raise PermissionError("not yours")

    machine = Stubborn(batch.times_s)
    with pytest.raises(SchedLabError, match=r"left behind.*tasks that run \(not yours\)"):
        execution.execute(plan, batch.name, machine)
    assert machine.alive() == []


@pytest.mark.parametrize("scale", [0, -1, float("nan")])
def test_simulated_time_must_pass(scale):
    with pytest.raises(InputError, match="give a number above 0"):
        execution.SimulatedBackend(np.ones((1, 3)), scale)


def test_commands_are_stopped_with_all_they_started(tmp_path):
    shell = Processes(grace_s=0.2)
    codes = []
    commands = [f"sleep 600 & echo $! > {tmp_path}/child; wait", f"trap '' TERM; touch {tmp_path}/deaf; "
                "while :; do sleep 600; done"]
    threads = [threading.Thread(target=lambda c=command: codes.append(shell.run(c))) for command in commands]
    for thread in threads:
        thread.start()
    while not ((tmp_path / "deaf").exists() and (tmp_path / "child").exists() and (tmp_path / "child").read_text()):
        time.sleep(0.01)
    shell.stop()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [-signal.SIGTERM, -signal.SIGKILL]  # the deaf one had to be killed
    state = Path(f"/proc/{(tmp_path / 'child').read_text().strip()}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"  # dead, if not yet buried
    with pytest.raises(SchedLabError, match="stopped"):
        shell.run("true")


# --- NVML, played by a stand-in


class FakeNvml:
    """The functions of pynvml that are called, on devices that keep NVML's rules; `log` has what was done to them."""

    NVML_DEVICE_MIG_ENABLE = 1
    NVML_GPU_INSTANCE_PROFILE_COUNT = 9
    NVML_GPU_INSTANCE_PROFILE_1_SLICE = NVML_COMPUTE_INSTANCE_PROFILE_1_SLICE = 0
    NVML_GPU_INSTANCE_PROFILE_2_SLICE = NVML_COMPUTE_INSTANCE_PROFILE_2_SLICE = 1
    NVML_GPU_INSTANCE_PROFILE_3_SLICE = NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE = 2
    NVML_GPU_INSTANCE_PROFILE_4_SLICE = NVML_COMPUTE_INSTANCE_PROFILE_4_SLICE = 3
    NVML_GPU_INSTANCE_PROFILE_7_SLICE = NVML_COMPUTE_INSTANCE_PROFILE_7_SLICE = 4
    NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED = 0
    # profile: slices, places by first memory slice, memory slices of each
    PROFILES = {"A30": {0: (1, (0, 1, 2, 3), 1), 1: (2, (0, 2), 2), 3: (4, (0,), 4)},
                "A100": {0: (1, (0, 1, 2, 3, 4, 5, 6), 1), 1: (2, (0, 2, 4), 2), 2: (3, (0, 4), 4), 3: (4, (0,), 4),
                         4: (7, (0,), 8)}}

    class NVMLError(Exception):
        """Any error of NVML."""

    class NVMLError_NotSupported(NVMLError):  # noqa: N801
        """As in pynvml."""

    class NVMLError_InvalidArgument(NVMLError):  # noqa: N801
        """As in pynvml."""

    class NVMLError_NotFound(NVMLError):  # noqa: N801
        """As in pynvml."""

    class c_nvmlGpuInstancePlacement_t(ctypes.Structure):  # noqa: N801
        """As in pynvml."""

        _fields_ = [("start", ctypes.c_uint), ("size", ctypes.c_uint)]

    def __init__(self, model="A30", num_gpus=1, broken=""):
        self.profiles, self.broken, self.log = dict(self.PROFILES[model]), broken, []
        self.is_mig, self.pids, self.num_made, self.was = 1, [], 0, {}
        self.gpus = [{} for _ in range(num_gpus)]  # of each: number -> the instance

    def _do(self, name, *words):
        self.log.append((name, *words))
        if self.broken == name:
            raise self.NVMLError("In use by another client")

    def nvmlInit(self):  # noqa: N802
        self._do("init")

    def nvmlShutdown(self):  # noqa: N802
        self._do("shutdown")

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        if not 0 <= index < len(self.gpus):
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetMigMode(self, device):  # noqa: N802
        return [self.is_mig, self.is_mig]

    def nvmlDeviceGetComputeRunningProcesses(self, device):  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetGpuInstanceProfileInfo(self, device, profile):  # noqa: N802
        if profile not in self.profiles:
            raise self.NVMLError_NotSupported("Not Supported")
        size, starts, _ = self.profiles[profile]
        return SimpleNamespace(id=profile + 100, sliceCount=size, instanceCount=len(starts))

    def _is_free(self, device, start, size):
        return all(start + size <= made.start or made.start + made.memory <= start
                   for made in self.gpus[device].values())

    def nvmlDeviceGetGpuInstanceRemainingCapacity(self, device, profile_id):  # noqa: N802
        _, starts, memory = self.profiles[profile_id - 100]
        return sum(self._is_free(device, start, memory) for start in starts)

    def nvmlDeviceGetGpuInstancePossiblePlacements(self, device, profile_id, places, count):  # noqa: N802
        _, starts, memory = self.profiles[profile_id - 100]
        for place, start in zip(places, starts[::-1], strict=False):  # in an order that nobody should rely on
            place.start, place.size = start, memory
        count._obj.value = len(starts)

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, device, profile_id, place):  # noqa: N802
        size, starts, memory = self.profiles[profile_id - 100]
        start = place._obj.start
        wanted = place._obj.size
        self._do("create GPU instance", device, size, start)
        if start not in starts or wanted != memory or not self._is_free(device, start, memory):
            raise self.NVMLError("Insufficient Resources")
        self.num_made += 1
        made = SimpleNamespace(id=self.num_made, device=device, size=size, start=start, memory=memory, compute=None)
        self.gpus[device][made.id] = made
        return made

    def nvmlGpuInstanceGetInfo(self, made):  # noqa: N802
        return SimpleNamespace(id=made.id)

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(self, made, profile, engines):  # noqa: N802
        assert engines == self.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
        return SimpleNamespace(id=profile + 200)

    def nvmlGpuInstanceCreateComputeInstance(self, made, profile_id):  # noqa: N802
        self._do("create compute instance", made.device, self.profiles[profile_id - 200][0], made.start)
        made.compute = SimpleNamespace(of=made, uuid=f"MIG-{made.device}-{made.id}")
        self.was[made.compute.uuid] = (made.device, made.start, made.size)
        return made.compute

    def nvmlDeviceGetMaxMigDeviceCount(self, device):  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device, k):  # noqa: N802
        found = [made for made in self.gpus[device].values() if made.compute and made.id % 7 == k]
        if not found:
            raise self.NVMLError_NotFound("Not Found")
        return found[0]

    def nvmlDeviceGetGpuInstanceId(self, mig_device):  # noqa: N802
        return mig_device.id

    def nvmlDeviceGetUUID(self, mig_device):  # noqa: N802
        return mig_device.compute.uuid

    def nvmlComputeInstanceDestroy(self, compute):  # noqa: N802
        self._do("destroy compute instance", compute.of.device, compute.of.size, compute.of.start)
        compute.of.compute = None

    def nvmlGpuInstanceDestroy(self, made):  # noqa: N802
        self._do("destroy GPU instance", made.device, made.size, made.start)
        if made.compute:
            raise self.NVMLError("In use by another client")
        del self.gpus[made.device][made.id]


def test_the_stand_in_has_no_name_that_the_library_lacks():
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed", exc_type=ImportError)
    names = [name for name in dir(FakeNvml) if name.lower().startswith(("nvml", "c_nvml"))]
    assert len(names) > 30 and [name for name in names if not hasattr(pynvml, name)] == []
    for size in (1, 2, 3, 4, 7):  # the numbers of the profiles are those of the library
        for kind in ("GPU", "COMPUTE"):
            name = f"NVML_{kind}_INSTANCE_PROFILE_{size}_SLICE"
            assert getattr(FakeNvml, name) == getattr(pynvml, name)


def test_without_consent_nothing_happens_not_even_an_import(monkeypatch):
    monkeypatch.setattr(nvml_module, "_nvml", lambda: pytest.fail("asked for NVML"))
    nvml = FakeNvml()
    for given in (None, nvml):
        with pytest.raises(SchedLabError, match="--dry-run.*--yes-reconfigure"):
            NvmlBackend(["true"], nvml=given)
    assert nvml.log == []


def test_without_the_library_one_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(SchedLabError, match=r"^execution on a GPU needs NVML; run: pip install 'sched_lab\[nvml\]'$"):
        NvmlBackend(["true"], yes_reconfigure=True)


def test_one_task_after_another_in_calls_of_nvml(tmp_path):
    # train on S0-S1, then copy on S0: the places of the profiles of 2 and 1 slices that begin at 0
    plan = schedule_of(A30, np.array([[40.0, 16, 11], [4, 2, 2]]), np.array([1, 2]))
    nvml = FakeNvml()
    commands = [f"echo {name} $CUDA_VISIBLE_DEVICES >> {tmp_path}/log" for name in ("train", "copy")]
    result = execution.execute(plan, ["train", "copy"], NvmlBackend(commands, 0, True, nvml))
    calls = ["create GPU instance", "create compute instance", "destroy compute instance", "destroy GPU instance"]
    assert nvml.log == [("init",), *((name, 0, 2, 0) for name in calls),  # size 2, from slice 0
                        *((name, 0, 1, 0) for name in calls), ("shutdown",)]
    assert (tmp_path / "log").read_text() == "train MIG-0-1\ncopy MIG-0-2\n"
    assert result["exit_code"].dropna().tolist() == [0, 0]


@pytest.mark.parametrize("mig", [A30, mig_of("A100", 2)], ids=["A30", "two A100"])
def test_every_task_sees_its_own_instance_at_its_place_and_all_are_destroyed(mig, tmp_path):
    times_s = mixed_times(mig, 12, 7)
    plan = far(mig, times_s).schedule
    nvml = FakeNvml(mig.model, mig.num_gpus + 1)
    commands = [f"echo $CUDA_VISIBLE_DEVICES > {tmp_path}/{task}; exit {task % 3}" for task in range(12)]
    machine = NvmlBackend(commands, 1, True, nvml)  # from device 1 on
    result = execution.execute(plan, [str(task) for task in range(12)], machine)
    for task, i in enumerate(plan.instance.tolist()):
        uuid = (tmp_path / str(task)).read_text().strip()
        assert nvml.was[uuid] == (mig.tree.gpu[i] + 1, mig.tree.first_slice[i], mig.tree.size[i])
    codes = result.dropna(subset="exit_code").set_index("task")["exit_code"]
    assert {int(task): code for task, code in codes.items()} == {task: task % 3 for task in range(12)}
    assert not any(nvml.gpus) and nvml.log[-1] == ("shutdown",) and nvml.num_made == plan.is_creation.sum()


def test_the_left_instance_of_size_3_takes_the_memory_of_4_slices():
    left = int(np.flatnonzero((A100.tree.size == 3) & (A100.tree.first_slice == 0))[0])
    plan = schedule_of(A100, np.full((1, 5), 4.0), np.array([left]))
    nvml = FakeNvml("A100")
    machine = NvmlBackend(["true"], 0, True, nvml)
    machine.open(plan)
    made = machine.create(left).gpu_instance
    assert (made.size, made.start, made.memory) == (3, 0, 4)


CUT = {9: SimpleNamespace(id=9, device=0, size=1, start=3, memory=1, compute=None)}
OVERLAPPING = {0: (1, (0, 1, 2, 3), 2), 1: (2, (0, 2), 2), 3: (4, (0,), 4)}  # S0 and S1 share memory slice 1


@pytest.mark.parametrize(("changes", "options", "words"), [
    ({"is_mig": 0}, {}, "GPU 0 is not in MIG mode; .*nvidia-smi -mig 1"),
    ({"pids": [17, 18]}, {}, "GPU 0 is used by process 17, 18"),
    ({"gpus": [CUT]}, {}, "GPU 0 is cut already"),
    ({"profiles": FakeNvml.PROFILES["A100"]}, {}, r"GPU 0 has 7 slices, but the schedule is for 4 \(A30\)"),
    ({"profiles": OVERLAPPING}, {}, "on this GPU S0 and S1 share memory"),
    ({"profiles": {0: (1, (0, 1, 3), 1), 1: (2, (0, 2), 2), 3: (4, (0,), 4)}}, {}, "no place for .* 1 slices .* at S2"),
    ({}, {"first_gpu": 1}, "GPU 1 cannot be cut .*: Invalid Argument"),
    ({"broken": "init"}, {}, "NVML does not start: In use"),
    ({}, {"commands": ["true"] * 6}, "6 commands for 7 tasks"),
])
def test_a_device_that_does_not_suit_is_refused_and_not_touched(changes, options, words):
    plan, batch = toy_plan()
    nvml = FakeNvml()
    for name, value in changes.items():
        setattr(nvml, name, value)
    options = {"commands": ["true"] * 7, "yes_reconfigure": True, "nvml": nvml} | options
    with pytest.raises(SchedLabError, match=words):
        execution.execute(plan, batch.name, NvmlBackend(**options))
    assert nvml.log in ([], [("init",)], [("init",), ("shutdown",)])
    assert nvml.broken or nvml.log.count(("init",)) == nvml.log.count(("shutdown",))


def test_half_an_instance_is_not_left_behind():
    plan, batch = toy_plan()
    nvml = FakeNvml(broken="create compute instance")
    with pytest.raises(SchedLabError, match="S0-S1 could not be created: In use"):
        execution.execute(plan, batch.name, NvmlBackend(["true"] * 7, 0, True, nvml))
    assert nvml.gpus == [{}] and nvml.log[-2:] == [("destroy GPU instance", 0, 2, 0), ("shutdown",)]


def test_what_cannot_be_destroyed_is_named():
    plan, batch = toy_plan()
    nvml = FakeNvml(broken="destroy GPU instance")
    with pytest.raises(SchedLabError, match=r"left behind.*S0-S1 \(NVML refuses: In use by another client\)"):
        execution.execute(plan, batch.name, NvmlBackend(["true"] * 7, 0, True, nvml))
    assert nvml.log.count(("destroy compute instance", 0, 2, 0)) == 1  # done, so it is not asked for again
    assert nvml.log.count(("destroy GPU instance", 0, 2, 0)) == 2 and nvml.log[-1] == ("shutdown",)
