"""Rulers for work: times wait for the device, and every operation on arrays is counted."""
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from studies import rulers
from studies.rulers import best_time_s, copy_bandwidth_bytes_per_s, synchronise, traffic_of


class Pair(NamedTuple):
    left: object
    right: object


def test_the_shortest_call_counts_and_the_first_does_not(monkeypatch):
    clock = iter([0, 99, 100, 103, 200, 202, 300, 305])   # 99 to warm up, then 3, 2, 5
    monkeypatch.setattr(rulers.time, "perf_counter", lambda: next(clock))
    assert best_time_s(lambda: None, np, repeats=3) == 2


def test_both_ends_of_a_measurement_wait_for_the_device():
    waits = []
    calls = []
    stream = SimpleNamespace(synchronize=lambda: waits.append(len(calls)))
    fake = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream))
    best_time_s(lambda: calls.append(1), fake, repeats=1)
    assert waits == [0, 1, 1, 2]
    synchronise(np)


def test_bandwidth_counts_reading_and_writing(monkeypatch):
    monkeypatch.setattr(rulers, "best_time_s", lambda function, xp, repeats: function() is not None and 0.5)
    assert copy_bandwidth_bytes_per_s(np, num_bytes=800) == 2 * 800 / 0.5


# --- work

A = np.arange(100)
B = np.arange(100.0)


@pytest.mark.parametrize(("program", "arguments", "expected"), [
    (lambda x: x + 1, (A,), (800, 800, 100, 1)),
    (lambda x, y: x * y, (A, B), (1600, 800, 100, 1)),
    (lambda x: x > 3, (A,), (800, 100, 100, 1)),
    (lambda x: np.sum(x), (A,), (800, 8, 1, 1)),
    (lambda x: np.where(x > 3, x, 0), (A,), (800 + 900, 100 + 800, 200, 2)),
    (lambda x: x[np.array([1, 2])], (A,), (32, 16, 2, 1)),
    (lambda x: np.take(x, np.array([1, 2]), axis=0), (A,), (32, 16, 2, 1)),
    (lambda x: np.concat([x, x]), (A,), (1600, 1600, 200, 1)),
    (lambda x: np.astype(x, np.int8), (A,), (800, 100, 100, 1)),
    (lambda x: x[3:9][None, :].reshape(-1), (A,), (0, 0, 0, 0)),
    (lambda pair: pair.left + pair.right, (Pair(A, 2),), (800, 800, 100, 1)),
    (lambda x: (x + 1) * 2, (A,), (1600, 1600, 200, 2)),
])
def test_work_is_counted_by_hand(program, arguments, expected):
    assert traffic_of(program, *arguments) == expected


def test_counting_changes_no_result():
    seen = []
    traffic_of(lambda x: seen.append(np.cumulative_sum(np.sort(x)[::-1] // 3)), A)
    assert np.array_equal(seen[0], np.cumsum(np.sort(A)[::-1] // 3))
