"""How long one inflation of the real Default trace takes: 10,866 arrivals on 1,213 nodes, to 1.3 x the GPU capacity."""
import os
import subprocess
import sys

import numpy as np
import pytest

from sched_lab.cluster import read_nodes
from sched_lab.online.inflation import inflate, play
from sched_lab.online.model import world_of
from sched_lab.online.policies import policy_of
from sched_lab.power import power_of
from sched_lab.traces import find_data, find_reference, read_arrivals, read_tasks, target_workload, task_classes

FILES = {"nodes": find_data("openb/openb_node_list_gpu_node.csv"),
         "tasks": find_data("openb/openb_pod_list_default.csv"),
         "arrivals": find_reference("pwr/arrivals/default.json.gz")}
pytestmark = pytest.mark.skipif(None in FILES.values(),
                                reason="needs the openb trace and its recorded arrivals")
POLICIES = ("fgd", "pwr", "pwr-fgd:0.1", "bid")


@pytest.fixture(scope="module")
def trace():
    cluster = read_nodes(FILES["nodes"])
    tasks = read_tasks(FILES["tasks"])
    return cluster, tasks, read_arrivals(FILES["arrivals"], 42, cluster, tasks)


@pytest.mark.parametrize("arithmetic", ["exact", "reference"])
@pytest.mark.parametrize("name", POLICIES)
def test_placing(benchmark, trace, name, arithmetic):
    """The placements alone, compiled: what `play` does."""
    cluster, tasks, arrivals = trace
    nodes = cluster.take(np.argsort(arrivals.node_rank))
    classes, class_of = task_classes(tasks)
    target = target_workload(tasks)
    power = power_of(nodes)
    policy = policy_of(name, arithmetic)
    rows = arrivals.task_row
    benchmark.extra_info["arrivals"] = len(rows)
    benchmark.pedantic(
        play, setup=lambda: ((policy, world_of(nodes, classes, target, power), class_of[rows], tasks
                              .memory_mib[rows]), {}), rounds=7, warmup_rounds=1)


@pytest.mark.parametrize("name", POLICIES)
def test_whole_run(benchmark, trace, name):
    """From tables to frames: classes, target workload, placements, their check, frames."""
    cluster, tasks, arrivals = trace
    benchmark.extra_info["arrivals"] = len(arrivals.task_row)
    benchmark.pedantic(inflate, (cluster, tasks, name), {"arrivals": arrivals}, rounds=7,
                       warmup_rounds=1)


@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_command_line(benchmark, tmp_path_factory, cache):
    """The whole program in a new process: import, compile (cold) or load from disk (warm), read, place, write."""
    folder = tmp_path_factory.mktemp("cli")
    # the peak of the new process itself; ru_maxrss would remember this one, from which it was
    # forked
    code = ("import re, sys; from sched_lab.cli import main\ntry: main()\nexcept SystemExit: pass\n"
            "peak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())\n"
            "print(int(peak[1]) / 1024, file=sys.stderr)")
    command = [
        sys.executable, "-c", code, "inflate", "--nodes", FILES["nodes"], "--tasks", FILES["tasks"],
        "--arrivals", FILES["arrivals"], "--seed", "42", "--policy", "fgd", "--out", folder / "out"]

    def run():
        (folder / "out" / "summary.json").unlink(missing_ok=True)
        done = subprocess.run(command, env={**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache")},
                              check=True, capture_output=True, text=True)
        benchmark.extra_info["memory_mib"] = float(done.stderr.split()[-1])

    benchmark.pedantic(run, rounds=1 if cache == "cold" else 3, warmup_rounds=cache == "warm")
