"""Ctrl-C and a request to end are heard within seconds of computing, however long a call would take."""
import signal
import threading
import time

import numpy as np
import pytest
import scipy.optimize  # noqa: F401  (the signal is to come when the solver works, not when it is loaded)
import scipy.sparse  # noqa: F401

from sched_lab.andreas.exact import Model
from sched_lab.andreas.greedy import SearchOptions, randomized_greedy
from sched_lab.andreas.instances import generate
from sched_lab.andreas.rollout import rollout
from sched_lab.andreas.simulation import simulate

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that sends a signal here")
MANY = 10**9  # a compiled call of all rounds would take hours
AFTER_S = 0.5
PATIENCE_S = 8.0


class Stopped(BaseException):
    """What the signal raises, as Ctrl-C raises KeyboardInterrupt."""


def stop(*_):
    raise Stopped


def queue_of(num_jobs):
    drawn = generate(1, num_jobs // 10, 1.0, scenario=2)
    return drawn.fleet, type(drawn.jobs)(*(column[:num_jobs] for column in drawn.jobs)), 0.0


def hard_model():
    """Sixty knapsacks that share four hundred things."""
    rng = np.random.default_rng(0)
    model = Model()
    kg = rng.integers(1, 1000, (60, 400))
    things = model.add(-kg.sum(axis=0) + rng.integers(-50, 50, 400), is_binary=True)
    for row in kg:
        model.row((things, row), upper=row.sum() // 2)
    return model


CALLS = {
    "rounds of randomised greedy": lambda: randomized_greedy(*queue_of(400), SearchOptions(max_iterations=MANY)),
    "rounds of few jobs": lambda: randomized_greedy(*queue_of(20), SearchOptions(max_iterations=MANY)),
    "changes of a rollout": lambda: rollout(*queue_of(400), tries=MANY),
    "events of a simulation": lambda: simulate(generate(1, 4, 1.0), "fifo", period_s=1e-6),
    "branch and bound": lambda: hard_model().solve(4.0, 0.0),
}


@pytest.fixture(autouse=True)
def _compiled():
    for policy in ("rg", "local", "fifo"):
        simulate(generate(1, 1, 1.0), policy, how=SearchOptions(max_iterations=2, tries=1))


@pytest.mark.parametrize("name", CALLS)
def test_a_signal_is_heard_soon(name):
    threads = threading.enumerate()
    before = signal.signal(signal.SIGALRM, stop)
    begin_s = time.process_time()
    signal.setitimer(signal.ITIMER_REAL, AFTER_S)
    try:
        with pytest.raises(Stopped):
            CALLS[name]()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.process_time() - begin_s < AFTER_S + PATIENCE_S
    working = set(threading.enumerate()) - set(threads)
    assert bool(working) == (name == "branch and bound")    # it was heard before the solver had come to its end
    for thread in working:
        thread.join()  # a solver that works on ends the process badly
