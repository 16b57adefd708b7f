"""The pool of the yardstick: one node with all GPUs, in which no job lacks room in one place."""
from dataclasses import replace

import numpy as np

from sched_lab.cluster import Cluster
from sched_lab.fleet.replay.events import replay
from studies.yardstick import pool_of
from tests.fleet.problems import problem_like, tasks_like, texts


def test_a_job_that_needs_a_whole_node_waits_on_nodes_and_not_in_the_pool():
    """Two nodes of eight GPUs, five of each in use until 10: a job of six starts at 10, in the pool at 1."""
    nodes = Cluster(texts("ab"), np.array([96_000] * 2), np.array([8192] * 2), np.array([8, 8]), texts(["V100M32"] * 2),
                    texts(["", ""]))
    problem = problem_like(nodes, tasks_like([5, 5, 6], [1000] * 3), [0, 0, 1], [10, 10, 5])
    assert replay(problem, "stay", backfill="easy").start_s.tolist() == [0, 0, 10]
    assert replay(pool_of(problem), "bestfit", backfill="easy").start_s.tolist() == [0, 0, 1]


def test_the_parts_of_a_job_are_one_in_the_pool():
    """Two parts of five GPUs are a job of ten: beside seven of sixteen it waits for them."""
    nodes = Cluster(texts("ab"), np.array([96_000] * 2), np.array([8192] * 2), np.array([8, 8]), texts(["V100M32"] * 2),
                    texts(["", ""]))
    problem = replace(problem_like(nodes, tasks_like([7, 5, 5], [1000] * 3), [0, 1, 1], [10, 5, 5]),
                      job=np.array([0, 1, 1]))
    pool = pool_of(problem)
    assert pool.tasks.cpu_milli.tolist() == [7000, 10_000]
    assert replay(pool, "bestfit", backfill="none").start_s.tolist() == [0, 10]
