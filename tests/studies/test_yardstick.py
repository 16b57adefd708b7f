"""The pool of the yardstick, one node with all GPUs in which no job lacks room in one place, and nodes that fail."""
from dataclasses import replace

import numpy as np
import pytest

from sched_lab.cluster import Cluster
from sched_lab.fleet.replay.events import replay
from studies import yardstick
from studies.yardstick import DAY_S, failing_cell, pool_of, with_failures
from tests.fleet.problems import problem_like, tasks_like, texts

TWO = Cluster(texts("ab"), np.array([96_000] * 2), np.array([8192] * 2), np.array([8, 8]), texts(["V100M32"] * 2),
              texts(["", ""]))  # nodes of eight GPUs


def test_a_job_that_needs_a_whole_node_waits_on_nodes_and_not_in_the_pool():
    """Two nodes of eight GPUs, five of each in use until 10: a job of six starts at 10, in the pool at 1."""
    problem = problem_like(TWO, tasks_like([5, 5, 6], [1000] * 3), [0, 0, 1], [10, 10, 5])
    assert replay(problem, "stay", backfill="easy").start_s.tolist() == [0, 0, 10]
    assert replay(pool_of(problem), "bestfit", backfill="easy").start_s.tolist() == [0, 0, 1]


def test_the_parts_of_a_job_are_one_in_the_pool():
    """Two parts of five GPUs are a job of ten: beside seven of sixteen it waits for them."""
    problem = replace(problem_like(TWO, tasks_like([7, 5, 5], [1000] * 3), [0, 1, 1], [10, 5, 5]),
                      job=np.array([0, 1, 1]))
    pool = pool_of(problem)
    assert pool.tasks.cpu_milli.tolist() == [7000, 10_000]
    assert replay(pool, "bestfit", backfill="none").start_s.tolist() == [0, 10]


def test_a_node_that_fails_for_a_day_loses_what_runs_there(monkeypatch):
    """Two jobs fill one of two nodes; when it fails both begin anew on the other, and the work until then is lost."""
    problem = problem_like(TWO, tasks_like([5, 3], [1000] * 2), [0, 0], [20 * DAY_S] * 2)
    monkeypatch.setattr(yardstick, "problem_of_cell", lambda *cell: problem)
    monkeypatch.setattr(yardstick, "WARM_UP_S", 0)
    fails, both = (with_failures(problem, share, 0).outages for share in (0.5, 1.0))
    assert [len(one.node) for one in (fails, both)] == [1, 2] and both.of(np.array([0])) == fails
    assert fails.node == [0] and fails.until_s - fails.from_s == DAY_S
    rows = failing_cell({"a": ()}, "a", "easy", 0.5, 0)
    assert rows["mean_wait_s"].to_numpy() == pytest.approx(fails.from_s[0])
    assert rows["lost_gpu_h"].to_numpy() == pytest.approx(8 * fails.from_s[0] / 3600)
