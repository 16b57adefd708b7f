"""No method beats a proved optimum; times that are refused, extreme ones, and a signal that is heard."""
import os
import signal
import threading
import time
from functools import partial

import numpy as np
import pytest

from sched_lab.far.baselines import miso
from sched_lab.far.bounds import optimum_with_reconfiguration
from sched_lab.far.mig import check_schedule, mig_of
from sched_lab.far.plus import far_plus
from sched_lab.far.refine import far
from sched_lab.lab.frames import InputError
from sched_lab.lab.jit import heard
from tests.far.cases import any_times

SLACK = 1 + 1e-9
INF = np.inf


@pytest.mark.parametrize(("model", "gpus", "batches"),
                         [("A30", 1, 20), ("A100", 1, 20), ("A30", 2, 15)])
def test_no_method_beats_a_proved_optimum(model, gpus, batches):
    mig = mig_of(model, gpus)
    rng = np.random.default_rng([11, gpus, len(model)])
    num_proved = 0
    methods = [miso, partial(miso, has_barrier=True), partial(miso, mapping="best"),
               lambda mig, times_s: far(mig, times_s).schedule,
               lambda mig, times_s: far_plus(mig, times_s, proposals=400, max_visits=0).schedule]
    for _ in range(batches):
        times_s = any_times(rng, mig, int(rng.integers(1, 6))) * 10 ** rng.uniform(-2.5, 0)
        best = optimum_with_reconfiguration(mig, times_s, max_visits=10**6)
        check_schedule(best.schedule, times_s)
        assert best.bound_s <= best.schedule.makespan_s
        num_proved += best.is_proved
        for method in methods:
            makespan_s = method(mig, times_s).makespan_s
            assert best.bound_s <= makespan_s * SLACK
            assert not best.is_proved or best.schedule.makespan_s <= makespan_s * SLACK, times_s.tolist()
    assert num_proved > 0.98 * batches


@pytest.mark.parametrize("wrong_s", [1.7e308, 1e13, 5e-324, 1e-7, 0.0, -1.0, np.nan, -INF])
@pytest.mark.parametrize("solve", [optimum_with_reconfiguration, far_plus, far, miso])
def test_times_that_cannot_be_added_up_are_refused(solve, wrong_s):
    times_s = np.full((9, 3), 1.0)
    times_s[4, 1] = wrong_s
    with pytest.raises(InputError, match=r"task 4 on 2 slices; give 1e-06 to 1e\+12 s"):
        solve(mig_of("A30"), times_s)


def test_the_longest_and_shortest_times_are_computed_right():
    # 9 tasks of 1e12 s fit on four slices only: one after the other; 9 of 1e-6 s: the creation alone counts
    for time_s in (1e12, 1e-6):
        times_s = np.array([[INF, INF, time_s]] * 9)
        for schedule in (optimum_with_reconfiguration(mig_of("A30"), times_s).schedule,
                         far_plus(mig_of("A30"), times_s).schedule, far(mig_of("A30"), times_s).schedule):
            check_schedule(schedule, times_s)
            assert schedule.makespan_s == pytest.approx(0.13 + 9 * time_s, rel=1e-12)
    mixed_s = np.array([[1e12, INF, INF], [1e-6, INF, INF]])  # a ratio of 10^18
    found = optimum_with_reconfiguration(mig_of("A30"), mixed_s)
    check_schedule(found.schedule, mixed_s)
    assert found.is_proved and found.makespan_s == pytest.approx(1e12 + 0.11, rel=1e-12)


class Stop(Exception):
    """What the signal handler of the next test raises."""


ENDLESS = {
    "tables": lambda: optimum_with_reconfiguration(mig_of("A100"), endless_times(20), max_visits=10**12),
    "plans": lambda: optimum_with_reconfiguration(mig_of("H100"), 0.02 * endless_times(12), max_visits=10**12),
    "annealing": lambda: far_plus(mig_of("A100"), endless_times(500), proposals=10**9, max_visits=0),
    "family": lambda: one_after_the_other(endless_times(3000)),
}


def endless_times(num_tasks: int) -> np.ndarray:
    return np.random.default_rng(num_tasks).uniform(1, 9, (num_tasks, 5))


def one_after_the_other(times_s: np.ndarray) -> None:
    """Schedule for ever, listening as the command line does."""
    with heard():
        while True:
            far_plus(mig_of("A100"), times_s, proposals=0)


@pytest.mark.parametrize("name", list(ENDLESS))
def test_a_signal_is_heard_within_a_second_of_computing(name):
    far_plus(mig_of("A100"), endless_times(6))  # compile first
    far_plus(mig_of("A100"), endless_times(6), proposals=100, max_visits=0)
    sent_s = []

    def on_signal(number: int, frame: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGUSR1, on_signal)
    timer = threading.Timer(1.5, lambda: (sent_s.append(time.process_time()), os.kill(os.getpid(), signal.SIGUSR1)))
    timer.start()
    try:
        with pytest.raises(Stop):
            ENDLESS[name]()
        assert time.process_time() - sent_s[0] < 1.5
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
