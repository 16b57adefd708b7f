"""How long a timed replay takes: openb with its own times, a million tasks, and growth with the nodes."""
import resource
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sched_lab.cluster import read_nodes
from sched_lab.fleet.replay.case import case_of
from sched_lab.fleet.replay.events import simulate
from sched_lab.fleet.replay.problem import Problem
from sched_lab.online.model import PowerSettings
from sched_lab.traces import find_data, read_tasks

FILES = {"nodes": find_data("openb/openb_node_list_gpu_node.csv"),
         "all": find_data("openb/openb_node_list_all_node.csv"),
         "tasks": find_data("openb/openb_pod_list_default.csv")}
pytestmark = pytest.mark.skipif(None in FILES.values(), reason="needs the openb trace")
MEAN_S = 3600.0


def problem(nodes, tasks, submit_s, duration_s):
    """Problem without a record."""
    count = len(tasks)
    none = np.full(count, "", object)
    zeros = np.zeros(count, np.int64)
    return Problem(nodes, tasks, nodes.cpu_model, submit_s, duration_s, np.full(count, np.nan),
                   zeros - 1, zeros, none, none, zeros, pd.DataFrame(), None)


def drawn(times, count, load):
    """Tasks of the trace, drawn again, with exponential gaps and durations, at an offered load."""
    nodes = read_nodes(FILES["nodes"])
    nodes = nodes.take(np.tile(np.arange(len(nodes)), times))
    nodes = replace(nodes, name=np.array([f"n{n}" for n in range(len(nodes))], object))
    trace = read_tasks(FILES["tasks"])
    rng = np.random.default_rng(0)
    tasks = trace.take(rng.integers(len(trace), size=count))
    rate = load * nodes.gpu_capacity_milli / (trace.gpu_demand_milli.mean() * MEAN_S)
    return problem(nodes, tasks, np.cumsum(rng.exponential(1 / rate, count)),
                   rng.exponential(MEAN_S, count))


def measure(benchmark, one, policy, backfill, rounds=3):
    """Time the engine alone; `replay` also checks the schedule."""
    count = len(one.tasks)
    benchmark.extra_info["arrivals"] = count
    small = replace(one, tasks=one.tasks.take(np.arange(9)), **{
        name: getattr(one, name)[:9] for name in
        ("submit_s", "duration_s", "start_s", "node", "gpu_mask", "user", "queue", "priority")})
    simulate(case_of(small, policy, 0, None, PowerSettings()), backfill)  # compiles
    benchmark.pedantic(simulate, setup=lambda: (
        (case_of(one, policy, 0, None, PowerSettings()), backfill), {}), rounds=rounds)
    seconds = benchmark.stats.stats.min
    benchmark.extra_info["memory_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\n{2 * count / seconds:,.0f} events/s")


@pytest.mark.parametrize("nodes", ["nodes", "all"])
@pytest.mark.parametrize("backfill", ["none", "first-fit", "conservative"])
@pytest.mark.parametrize("policy", ["fgd", "pwr-fgd:0.1", "joint"])
def test_openb_with_its_times(benchmark, policy, backfill, nodes):
    """The 8,152 tasks of the trace at the times at which they came, for as long as they ran."""
    trace = read_tasks(FILES["tasks"])
    table = pd.read_csv(FILES["tasks"])
    began_s = table["scheduled_time"].fillna(table["creation_time"])
    one = problem(read_nodes(FILES[nodes]), trace, table["creation_time"].to_numpy(float),
                  (table["deletion_time"] - began_s).to_numpy(float))
    measure(benchmark, one, policy, backfill)


@pytest.mark.parametrize("policy", ["fgd", "pwr-fgd:0.1", "joint"])
def test_a_million_tasks(benchmark, policy):
    measure(benchmark, drawn(1, 1_000_000, 0.8), policy, "first-fit", rounds=1)


@pytest.mark.parametrize("times", [1, 4, 16])
def test_growth(benchmark, times):
    """So many copies of the cluster, at one load: the same tasks, more of them at a time."""
    measure(benchmark, drawn(times, 200_000, 0.8), "fgd", "first-fit", rounds=1)


@pytest.mark.parametrize("count", [10_000, 40_000])
def test_booking_ahead(benchmark, count):
    """Conservative backfill where tasks wait."""
    measure(benchmark, drawn(1, count, 0.9), "fgd", "conservative", rounds=1)
