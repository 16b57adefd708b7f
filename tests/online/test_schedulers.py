"""Rules of schedulers in service: against what a real one chose, and against a plain form in fractions."""

from fractions import Fraction
from math import floor

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.cluster import Cluster
from sched_lab.online.inflation import inflate, place
from sched_lab.online.model import World, lacking_everywhere, with_memory, world_to_ask
from sched_lab.online.policies import policy_of
from sched_lab.traces import Arrivals, Tasks, find_reference, task_classes
from tests.fleet.problems import texts

RECORD = "kubernetes/default_scheduler"
many = settings(derandomize=True, max_examples=60)


def tasks_of(cpu_milli, memory_mib, num_gpus, gpu_milli=None) -> Tasks:
    """Tasks that ask for so much; whole GPUs if it is not said how much of each."""
    cpu, memory, gpus = (np.array(column, np.int64) for column in (cpu_milli, memory_mib, num_gpus))
    milli = np.where(gpus > 0, 1000, 0) if gpu_milli is None else np.array(gpu_milli, np.int64)
    blank = texts([""] * len(cpu))
    return Tasks(texts(f"t{row}" for row in range(len(cpu))), cpu, memory, gpus, milli, blank, blank)


def cluster_of(cpu_milli, memory_mib, num_gpus) -> Cluster:
    """Nodes that have so much."""
    cpu, memory, gpus = (np.array(column, np.int64) for column in (cpu_milli, memory_mib, num_gpus))
    return Cluster(texts(f"n{row}" for row in range(len(cpu))), cpu, memory, gpus,
                   texts("T4" if count else "" for count in gpus), texts([""] * len(cpu)))


def world_with_memory(cluster: Cluster, tasks: Tasks) -> tuple[World, np.ndarray]:
    """Empty world whose classes agree in memory, and the class of each task."""
    classes, class_of = task_classes(tasks)
    return with_memory(world_to_ask(cluster, classes), class_of, tasks.memory_mib)


def scores_of(policy: str, world: World, task: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes that can take a class, what a policy with one score gives them, and the GPUs there."""
    memory_mib = world.demand.memory_mib[task]
    nodes = np.flatnonzero(lacking_everywhere(world, task, memory_mib) == 0)
    score, gpu_mask = np.zeros(len(world.gpu_model), np.int32), np.zeros(len(world.gpu_model), np.int64)
    policy_of(policy).scores[0].kernel(world, task, nodes, score, gpu_mask)
    return nodes, score[nodes], gpu_mask[nodes]


@pytest.mark.parametrize(("policy", "record"), [("kubernetes", "default_1.csv"), ("kubernetes-most", "most_1.csv")])
def test_a_real_scheduler_chose_one_of_the_best_nodes(policy, record):
    file = find_reference(f"{RECORD}/{record}")
    if file is None:
        pytest.skip(f"the record of kube-scheduler, {RECORD}/{record}, is not here")
    known = pd.read_csv(file.parent / "nodes.csv")
    cluster = cluster_of(known["cpu_milli"], known["memory_mib"], known["gpus"])
    row_of = {name: row for row, name in enumerate(known["node"])}
    events = pd.read_csv(file)
    created = events[events["event"] == "create"].set_index("pod")
    tasks = tasks_of(created["cpu_milli"], created["memory_mib"], created["gpus"])
    world, class_of = world_with_memory(cluster, tasks)
    task_of = dict(zip(created.index, range(len(tasks)), strict=True))
    taken, choices = {}, 0
    for event, pod, chosen in zip(events["event"], events["pod"], events["node"], strict=True):
        row = task_of[pod]
        task, memory_mib = class_of[row], tasks.memory_mib[row]
        if event == "delete":
            node, mask = taken.pop(row)
            world.state.cpu_left_milli[node] += tasks.cpu_milli[row]
            world.state.memory_left_mib[node] += memory_mib
            for gpu in range(known["gpus"][node]):
                world.state.gpu_left_milli[node, gpu] += 1000 * (mask >> gpu & 1)
            continue
        nodes, score, gpu_mask = scores_of(policy, world, task)
        at = int(np.flatnonzero(nodes == row_of[chosen])[0])
        assert score[at] == score.max(), (pod, chosen)
        choices += score.max() > score.min()
        taken[row] = nodes[at], gpu_mask[at]
        place(world, task, memory_mib, *taken[row])
    assert len(tasks) == 1500 and choices > 1400


def evenness_plainly(used, has) -> int:
    """Points for even use of CPU and memory, in the floating point of the plugin."""
    if not has[0] or not has[1]:
        return 100
    cpu, memory = (min(now / most, 1.0) for now, most in zip(used, has, strict=True))
    return int((1 - abs(cpu - memory) / 2) * 100)


def kubernetes_plainly(policy: str, asked, used, has) -> int:
    """Points as the documentation of the plugins words them; amounts of CPU, memory and GPU."""
    counted = [amount or default for amount, default in zip(asked, (100, 200, 0), strict=True)]
    share = [Fraction(min(now + more, most), most) if more and most else None
             for now, more, most in zip(used, counted, has, strict=True)]
    if policy == "kubernetes":
        parts = [(1, floor(100 * (1 - part))) for part in share[:2] if part is not None]
    else:
        weights = (1, 1, 5) if policy == "kubernetes-most" else (0, 0, 1)
        parts = [(weight, floor(100 * part)) for weight, part in zip(weights, share, strict=True) if part is not None]
    fit = sum(weight * points for weight, points in parts) // (sum(weight for weight, _ in parts) or 1)
    if not asked[0] and not asked[1]:
        return fit
    before, after = (evenness_plainly(amount[:2], has[:2]) for amount in (used, np.add(used, asked).tolist()))
    return fit + 50 + (50 + after - before) // 2


def others_plainly(policy: str, asked, used, has) -> int:
    """Points of the other programs, in millionths, from their sources; amounts as before."""
    share = [(Fraction(now, most), Fraction(now + more, most)) if more and most else None
             for now, more, most in zip(used, asked, has, strict=True)]
    cpu, _, gpu = share
    if policy == "volcano-binpack":
        parts = [floor(10**6 * part[1]) for part in share if part]
        return sum(parts) // (len(parts) or 1)
    if policy == "slurm-lln":
        return floor(10**6 * (1 - cpu[0])) if cpu else 0
    return floor(10**6 * (gpu[0] if policy == "hami-binpack" else 1 - gpu[0])) if gpu else 0


amounts = st.tuples(st.integers(0, 33), st.integers(0, 33), st.integers(0, 4))
few = st.sampled_from([0, 0, 1, 7])


@pytest.mark.usefixtures("python_itself")
@pytest.mark.parametrize("policy", ["kubernetes", "kubernetes-most", "kubernetes-ratio", "slurm-lln", "volcano-binpack",
                                    "hami-binpack", "hami-spread"])
@given(asked=st.tuples(few, few, st.integers(0, 2)),
       nodes=st.lists(st.tuples(amounts, amounts), min_size=1, max_size=30))
@many
def test_points_are_those_of_the_plain_form(policy, asked, nodes):
    scale = (300, 70, 1)
    asked = np.multiply(asked, scale)
    used, left = (np.multiply([node[kind] for node in nodes], scale) for kind in (0, 1))
    has = used + left
    world, class_of = world_with_memory(cluster_of(*has.T), tasks_of(*asked[:, None]))
    world.state.cpu_left_milli[:], world.state.memory_left_mib[:] = left[:, 0], left[:, 1]
    world.state.gpu_left_milli[:] = 1000 * (np.arange(world.state.gpu_left_milli.shape[1]) < left[:, 2:])
    can_host, score, gpu_mask = scores_of(policy, world, class_of[0])
    assert can_host.tolist() == np.flatnonzero((asked <= left).all(axis=1)).tolist()
    assert np.bitwise_count(gpu_mask).tolist() == [asked[2]] * len(can_host)
    plainly = kubernetes_plainly if policy.startswith("kubernetes") else others_plainly
    assert score.tolist() == [plainly(policy, asked.tolist(), used[node].tolist(), has[node].tolist())
                              for node in can_host]


@pytest.mark.usefixtures("python_itself")
@pytest.mark.parametrize(("policy", "gpu"), [("slurm-lln", 0), ("hami-binpack", 2), ("hami-spread", 1)])
def test_a_share_gets_the_first_the_fullest_or_the_emptiest_gpu_that_has_room(policy, gpu):
    world, class_of = world_with_memory(cluster_of([8000], [8192], [5]), tasks_of([1000], [1], [1], [300]))
    world.state.gpu_left_milli[0] = [600, 1000, 400, 200, 1000]
    _, _, gpu_mask = scores_of(policy, world, class_of[0])
    assert gpu_mask.tolist() == [1 << gpu]


def test_tasks_of_one_class_go_apart_where_memory_counts():
    """Node 0 has little memory, node 1 little CPU: a task that differs in memory only goes to the other."""
    cluster = cluster_of([16_000, 8000], [8192, 65_536], [2, 2])
    tasks = tasks_of([4000, 4000], [1024, 6144], [1, 1])
    assert len(task_classes(tasks)[0]) == 1
    in_order = Arrivals(np.arange(2), np.arange(2))
    node = {policy: inflate(cluster, tasks, policy, arrivals=in_order).placements.node.tolist()
            for policy in ("kubernetes", "fgd")}
    assert node == {"kubernetes": [0, 1], "fgd": [0, 0]}
