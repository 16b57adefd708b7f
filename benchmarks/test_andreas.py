"""How long randomised greedy takes, for one decision and for a whole simulation, and how the time grows with the nodes.

Processor time, so that other programs on the machine count little.
"""
import time

import numpy as np
import pytest

from sched_lab.andreas.greedy import SearchOptions, greedy, randomized_greedy
from sched_lab.andreas.instances import generate
from sched_lab.andreas.model import Jobs
from sched_lab.andreas.policies import policy_of
from sched_lab.andreas.simulation import simulate

pytestmark = pytest.mark.benchmark(timer=time.process_time)
FACTOR = 1.7  # arrivals of the authors' second program: the queue is longest


def queue_of(num_nodes, num_jobs, scenario):
    """Nodes, and the jobs that are there when the last of them arrives."""
    drawn = generate(1, num_nodes, FACTOR, scenario=scenario)
    first = np.argsort(drawn.jobs.submission_s, kind="stable")[:num_jobs]
    jobs = Jobs(*(column[first] for column in drawn.jobs))
    return drawn.fleet, jobs, float(jobs.submission_s.max())


@pytest.mark.parametrize("scenario", [1, 2])
@pytest.mark.parametrize("num_nodes", [100, 200, 400, 1000])
def test_decision(benchmark, num_nodes, scenario):
    """A thousand rounds on 1.5 jobs for each node: crowded in scenario 1, all fit in scenario 2."""
    queue = queue_of(num_nodes, num_nodes * 3 // 2, scenario)
    benchmark.pedantic(randomized_greedy, args=queue, rounds=7, warmup_rounds=1)
    benchmark.extra_info["calls"] = 1


@pytest.mark.parametrize("policy", ["rg", "local"])
@pytest.mark.parametrize("num_jobs", [100, 1_000, 10_000, 100_000])
def test_queue(benchmark, num_jobs, policy):
    """One decision on 100 nodes of 2 or 1 GPUs, by the length of the queue."""
    fleet = generate(1, 100, FACTOR).fleet
    _, jobs, now_s = queue_of(num_jobs // 10 + 1, num_jobs, 1)
    decide = policy_of(policy, SearchOptions(tries=2))
    benchmark.pedantic(decide, args=(fleet, jobs, now_s), rounds=1 if policy == "local" else 3, warmup_rounds=1)
    benchmark.extra_info["calls"] = 1


def test_plain_greedy(benchmark):
    """One round, without chance."""
    queue = queue_of(100, 150, 1)

    def run():
        for _ in range(1000):
            greedy(*queue)

    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    benchmark.extra_info["calls"] = 1000


@pytest.mark.parametrize(("num_nodes", "scenario", "factor"), [
    (10, 1, 1.0), (50, 1, 1.0), (100, 1, 1.0), (100, 1, 0.6), (100, 2, 1.3), (100, 2, FACTOR)])
def test_simulation(benchmark, num_nodes, scenario, factor):
    """All jobs of an instance, ten for each node and one more: a decision at each submission and each completion."""
    simulate(generate(1, 2, 1.0), "rg")  # compile
    drawn = generate(1, num_nodes, factor, scenario=scenario)
    done = benchmark.pedantic(simulate, args=(drawn, "rg"), rounds=1)
    benchmark.extra_info["calls"] = len(done.intervals)
