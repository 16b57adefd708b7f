"""The loop from decision to decision that ANDREAS, Hadar and a mixed day share."""
from __future__ import annotations

import numpy as np

from sched_lab.lab.clock import run_queue


def test_who_has_come_is_asked_about_in_order_until_nobody_is_left() -> None:
    """Four jobs of one second each, one at a time; job 1 comes while others run, job 3 long after."""
    asked: list[tuple[list[int], float, float]] = []

    def advance(queue, now_s, later_s):
        asked.append((queue.tolist(), now_s, later_s))
        return now_s + 1, queue != queue[0]

    run_queue(np.array([0.0, 0.5, 0.0, 10.25]), advance)
    assert asked == [([0, 2], 0.0, 0.5), ([2, 1], 1.0, 10.25), ([1], 2.0, 10.25), ([3], 10.25, np.inf)]
    asked.clear()
    run_queue(np.array([0.0, 0.5, 0.0, 10.25]), advance, 4.0, seen_s=np.ceil)
    assert asked == [([0, 2, 1], 4.0, 11.0), ([2, 1], 5.0, 11.0), ([1], 6.0, 11.0), ([3], 11.0, np.inf)]


def test_who_decides_may_end_it() -> None:
    asked: list[float] = []
    run_queue(np.array([1.0, 2.0]), lambda queue, now_s, _: (asked.append(now_s) or np.inf, queue >= 0))
    assert asked == [1.0]
    run_queue(np.empty(0), lambda *_: (0.0, np.empty(0, bool)))
