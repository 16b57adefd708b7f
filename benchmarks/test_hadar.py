"""How long a round takes under Hadar, HadarE and Gavel, how the time grows with the jobs, and whole simulations.

Processor time, so that other programs on the machine count little; the embedded synthetic speeds.
"""
import time

import numpy as np
import pytest

from sched_lab.hadar.baselines import Gavel, Tiresias, YarnCs, fair_shares, fastest_shares, shortest_shares
from sched_lab.hadar.fluid import makespan_bound_s
from sched_lab.hadar.model import Cluster, State, check_simulation, nothing_runs, type_gpus
from sched_lab.hadar.planned import Planned
from sched_lab.hadar.primal_dual import Hadar
from sched_lab.hadar.simulation import HadarE, run_copies, run_rounds
from sched_lab.hadar.workload import default_throughputs, draw_workload, paper_cluster
from studies.testbed import node_workload

pytestmark = pytest.mark.benchmark(timer=time.process_time)
PAPER_S = 7 * 60  # Section IV: a decision for 2,048 jobs takes less than 7 minutes
MAKE = {
    "hadar": Hadar, "hadar-inv": lambda: Hadar("inv"), "gavel-maxmin": lambda: Gavel("maxmin"),
    "gavel-makespan": lambda: Gavel("makespan"), "gavel-sum": lambda: Gavel("sum"),
    "tiresias": Tiresias, "yarn-cs": YarnCs, "planned": Planned}
PLAIN = {"maxmin": lambda jobs, gpus: fair_shares(jobs.rate, jobs.workers, gpus, jobs.weight),
         "makespan": lambda jobs, gpus: shortest_shares(jobs.rate, jobs.workers, gpus, jobs.steps),
         "sum": lambda jobs, gpus: fastest_shares(jobs.rate, jobs.workers, gpus)}
LARGE = 20_000, 333
SIZES = 2 ** np.arange(7, 16)  # 128 to 32,768 jobs


def present(num_jobs, nodes_per_type):
    """All jobs of a draw before the first round, on nodes with four GPUs of three types."""
    jobs = draw_workload(default_throughputs(), 0, num_jobs=num_jobs).jobs
    none = np.zeros(num_jobs)
    return State(
        paper_cluster(nodes_per_type)[1], jobs, 0.0, np.arange(num_jobs), jobs.steps,
        nothing_runs(), none, none)


def second_round(key, state):
    """Give the same jobs a round later, on the GPUs that a scheduler has given them."""
    first = MAKE[key]().allocate(state)
    return state._replace(previous=first, now_s=360.0)


@pytest.mark.parametrize(("num_jobs", "nodes_per_type", "key"), [
    *((2048, 21, key) for key in MAKE),
    *((*LARGE, key) for key in MAKE)])
def test_round(benchmark, num_jobs, nodes_per_type, key):
    """One decision with all jobs waiting, Gavel's linear program included."""
    state = present(num_jobs, nodes_per_type)
    benchmark.pedantic(lambda: MAKE[key]().allocate(state), rounds=5, warmup_rounds=1)
    benchmark.extra_info["calls"] = 1
    benchmark.extra_info["paper_s"] = PAPER_S if num_jobs == 2048 and key.startswith(
        "hadar") else None


@pytest.mark.parametrize(("num_jobs", "nodes_per_type"), [(2048, 21), LARGE],
                         ids=["252-gpus", "3996-gpus"])
def test_later_round(benchmark, num_jobs, nodes_per_type):
    """One decision of Hadar when jobs run already: whether to stay is looked at too."""
    state = second_round("hadar", present(num_jobs, nodes_per_type))
    benchmark.pedantic(Hadar().allocate, args=(state,), rounds=5, warmup_rounds=1)
    benchmark.extra_info["calls"] = 1


@pytest.mark.parametrize("objective", PLAIN)
def test_plain_program(benchmark, objective):
    """Gavel's linear program with an unknown for each job and type, not for each kind of job; 2,048 jobs."""
    state = present(2048, 21)
    benchmark.pedantic(PLAIN[objective], args=(state.jobs, type_gpus(state.cluster, 3)), rounds=3,
                       warmup_rounds=1)
    benchmark.extra_info["calls"] = 1


@pytest.mark.parametrize("key", MAKE)
def test_trace(benchmark, key):
    """480 jobs on 60 GPUs to completion, every allocation checked."""
    drawn = draw_workload(default_throughputs(), 0)
    run_rounds(draw_workload(default_throughputs(), 0, num_jobs=5), MAKE[key]())  # compile
    run = benchmark.pedantic(lambda: run_rounds(drawn, MAKE[key]()), rounds=3)
    assert run.ttd_s >= makespan_bound_s(drawn.cluster, drawn.jobs)
    benchmark.extra_info["calls"] = len(run.intervals)


@pytest.mark.parametrize("key", ["hadar", "planned"])
def test_large_run(benchmark, key):
    """20,000 jobs on 3,996 GPUs to completion, every allocation checked, and the validator."""
    work = draw_workload(default_throughputs(), 0, num_jobs=LARGE[0])
    node_name, cluster = paper_cluster(LARGE[1])
    work = type(work)(work.job_name, node_name, work.type_name, cluster, work.jobs)
    run_rounds(draw_workload(default_throughputs(), 0, num_jobs=5), MAKE[key]())  # compile
    run = benchmark.pedantic(lambda: run_rounds(work, MAKE[key]()), rounds=1)
    start_s = time.process_time()
    check_simulation(work, run)
    benchmark.extra_info["check_s"] = time.process_time() - start_s
    benchmark.extra_info["calls"] = len(run.intervals)


@pytest.mark.parametrize("key", ["hadar", "planned", "gavel-maxmin", "gavel-makespan"])
def test_growth(benchmark, key):
    """One decision each for 128 to 32,768 jobs, eight for each GPU; exponents fitted to all, and from 2,048 on."""
    states = [present(int(num_jobs), max(2, int(num_jobs) // 96)) for num_jobs in SIZES]
    each_s = np.zeros((3, len(SIZES)))

    def run():
        for number, state in enumerate(states):
            for attempt in each_s:
                start_s = time.process_time()
                MAKE[key]().allocate(state)
                attempt[number] = time.process_time() - start_s

    benchmark.pedantic(run, rounds=1, warmup_rounds=1)
    best_s = each_s.min(axis=0)
    large = SIZES >= 2048
    benchmark.extra_info["growth"] = dict(zip(SIZES.tolist(),
                                              best_s.round(5).tolist(), strict=True))
    benchmark.extra_info["exponent"], benchmark.extra_info["exponent_large"] = (float(
        np.polyfit(np.log(SIZES[some]), np.log(best_s[some]), 1)[0]) for some in (SIZES > 0, large))


@pytest.mark.parametrize("mix", ["M-1", "M-12"])
def test_hadare(benchmark, mix):
    """A mix of the paper on its five nodes to completion."""
    benchmark.pedantic(run_copies, args=(node_workload("testbed", mix),), rounds=5,
                       warmup_rounds=1)
    benchmark.extra_info["calls"] = 1


@pytest.mark.parametrize(("num_jobs", "num_nodes"), [(100, 25), (200, 50), (400, 100)])
def test_hadare_grows(benchmark, num_jobs, num_nodes):
    """Jobs of one GPU, forked over nodes with one GPU each, four jobs a node; one simulation."""
    drawn = draw_workload(default_throughputs(), 0, num_jobs=num_jobs, gangs="one", scale=0.1)
    nodes = Cluster(np.arange(num_nodes) % 3, np.ones(num_nodes, np.int64))
    work = type(drawn)(drawn.job_name, tuple(map(str, range(num_nodes))), drawn.type_name, nodes,
                       drawn.jobs)
    run = benchmark.pedantic(run_copies, args=(work, HadarE()), rounds=1, warmup_rounds=0)
    benchmark.extra_info["calls"] = len(run.intervals)
