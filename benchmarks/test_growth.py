"""How the time grows: with the nodes (1 to 100 times the public cluster) and with the arrivals that fill them."""
import resource
from dataclasses import replace

import numpy as np
import pytest

from sched_lab.cluster import read_nodes
from sched_lab.online.inflation import play, sample_arrivals
from sched_lab.online.model import world_of
from sched_lab.online.policies import policy_of
from sched_lab.power import power_of
from sched_lab.traces import find_data, read_tasks, target_workload, task_classes

FILES = {"nodes": find_data("openb/openb_node_list_gpu_node.csv"),
         "tasks": find_data("openb/openb_pod_list_default.csv")}
pytestmark = pytest.mark.skipif(None in FILES.values(), reason="needs the openb trace")


@pytest.mark.parametrize("until", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("times", [1, 4, 16, 100])
@pytest.mark.parametrize("name", ["fgd", "pwr-fgd:0.1", "bestfit"])
def test_growth(benchmark, name, times, until):
    """Fill so many copies of the cluster to a share of their capacity."""
    one = read_nodes(FILES["nodes"])
    tasks = read_tasks(FILES["tasks"])
    nodes = one.take(np.tile(np.arange(len(one)), times))
    nodes = replace(nodes, name=np.array([f"{name}-{i}" for i, name in enumerate(nodes.name)],
                                         object))
    arrivals = sample_arrivals(nodes, tasks, 0, until)
    nodes = nodes.take(np.argsort(arrivals.node_rank))
    classes, class_of = task_classes(tasks)
    target = target_workload(tasks)
    power = power_of(nodes, "package")
    policy = policy_of(name)
    rows = arrivals.task_row
    benchmark.extra_info["arrivals"] = len(rows)
    benchmark.pedantic(
        play, setup=lambda: ((policy, world_of(nodes, classes, target, power), class_of[
            rows], tasks.memory_mib[rows]), {}), rounds=1 if times > 4 else 3, warmup_rounds=times < 100)
    # the largest so far: run one size alone to measure it
    benchmark.extra_info["memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
