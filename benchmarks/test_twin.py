"""How long a what-if takes: 200 arrivals over the 1,213 embedded nodes under five policies, in processor time."""
import time

import numpy as np
import pytest
from sched_lab.fleet.live.core.twin import Twin, coming, copied

from sched_lab.cluster import default_cluster
from sched_lab.fleet.replay.events import hold
from sched_lab.fleet.replay.problem import Schedule
from sched_lab.online.inflation import ArrivingTasks, play, sample_arrivals
from sched_lab.online.model import PowerSettings, world_of
from sched_lab.online.policies import policy_of
from sched_lab.traces import default_tasks, target_workload, task_classes

POLICIES = ("fgd", "pwr-fgd:0.1", "bestfit", "dotprod", "joint")
ARRIVALS = 200


def scene(until):
    """Return a world that fgd has filled, the empty state, the arrivals to come, and tasks to change it."""
    cluster = default_cluster()
    tasks = default_tasks()
    classes, class_of = task_classes(tasks)
    world = world_of(cluster, classes, target_workload(tasks), PowerSettings().of(cluster))
    empty = copied(world.state)
    drawn = sample_arrivals(cluster, tasks, 0, until).task_row
    history, future = drawn[:-ARRIVALS], drawn[-ARRIVALS:]
    kind, memory_mib = class_of[history], tasks.memory_mib[history]
    trail = play(policy_of("fgd"), world, kind, memory_mib)
    there = np.flatnonzero(trail.node >= 0)[-100:]
    asks = ArrivingTasks(kind[there], memory_mib[there], np.zeros(len(there), np.int64))
    held = Schedule(trail.node[there], trail.gpu_mask[there], np.zeros(len(there)), np.full(len(there), np.inf))
    pods = coming(class_of[future], tasks.memory_mib[future], np.arange(ARRIVALS) * 1.0)
    return world, empty, pods, (asks, held)


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("until", [0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("kept", ["kept", "new"])
def test_what_if(benchmark, kept, until):
    """Kept: a twin that has looked before, and ten tasks have come or gone since. New: one that knows nothing."""
    world, empty, pods, (asks, held) = scene(until)
    twin = Twin(POLICIES)
    twin.what_if(world, empty, pods)
    turn = 0

    def changed():
        nonlocal turn, twin
        for task in range(turn % 100 // 10 * 10, turn % 100 // 10 * 10 + 10):
            hold(world, asks, task, held, -1 if turn < 100 else 1)
        turn = (turn + 10) % 200
        if kept == "new":
            twin = Twin(POLICIES)
        return (world, empty, pods), {}

    benchmark.extra_info["calls"] = 1
    benchmark.pedantic(lambda *given: twin.what_if(*given), setup=changed, rounds=40)
    print(f"\n{1000 * benchmark.stats.stats.median:.1f} ms, {len(set(pods.task.tolist()))} classes")
