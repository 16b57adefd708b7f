"""Forked copies: plain re-implementations, and laws on random shares and nodes."""
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sched_lab.hadar.fork import (
    GPUS,
    JobTracker,
    assign_nodes,
    consolidate,
    copy_ids,
    divide_steps,
    nodes_needed,
    pmi,
    refine,
    serving_order,
)
from sched_lab.lab.frames import InputError
from tests.hadar.cases import workload_of

# --- copies and shares -----------------------------------------------------------------------------------------------

@given(st.integers(0, 10_000), st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any))
def test_shares_are_whole_complete_and_less_than_a_step_from_their_quota(remaining, rates):
    share = divide_steps(remaining, rates)
    quota = [Fraction(remaining * rate, sum(rates)) for rate in rates]
    assert share.sum() == remaining and (share >= 0).all()
    assert all(abs(int(steps) - exact) <= 1 for steps, exact in zip(share, quota, strict=True))
    assert not share[np.array(rates) == 0].any()


# --- one model again -------------------------------------------------------------------------------------------------

def test_the_tracker_adds_steps_of_all_copies_of_a_job_and_of_no_other():
    tracker = JobTracker(max_job_count=10)
    mine = tracker.register(3, 100, 2)
    other = tracker.register(4, 50, 2)
    assert mine == [13, 23] and other == [14, 24]
    assert tracker.report({13: 60, 23: 30, 24: 49}) == []
    assert tracker.remaining == {3: 10, 4: 1}
    assert tracker.report({13: 7, 23: 8, 14: 1}) == [3, 4]  # 15 done of 10: nothing below zero is left
    assert tracker.remaining == {3: 0, 4: 0}


def test_the_tracker_keeps_a_model_that_nobody_has_trained_further():
    tracker = JobTracker(max_job_count=1)
    copies = tracker.register(0, 10, 2, (np.array([4.0]),))
    tracker.report(dict.fromkeys(copies, 0), dict.fromkeys(copies, (np.array([9.0]),)))
    assert tracker.weights[0][0] == 4


@pytest.mark.parametrize(("equal", "weight"), [(False, 2), (True, 3)])
def test_the_tracker_averages_as_it_is_told(equal, weight):
    tracker = JobTracker(max_job_count=1)
    copies = tracker.register(0, 1000, 2, (np.array([0.0]),))
    done = (300, 100)  # (300 * 1 + 100 * 5) / 400, or (1 + 5) / 2
    trained = ((np.array([1.0]),), (np.array([5.0]),))
    tracker.report(dict(zip(copies, done, strict=True)), dict(zip(copies, trained, strict=True)), equal=equal)
    assert tracker.weights[0][0] == pytest.approx(weight)


# --- estimates -------------------------------------------------------------------------------------------------------

def test_an_unmeasured_rate_takes_the_correction_of_its_job_or_else_of_all():
    estimate = np.array([[2.0, 1.0, 4.0], [1.0, 1.0, 1.0]])
    steps = np.zeros((2, 3))
    seconds = np.zeros((2, 3))
    assert (refine(estimate, steps, seconds) == estimate).all()
    steps[0, 0] = 300  # 3 instead of 2: 1.5 times
    seconds[0, 0] = 100
    assert refine(estimate, steps, seconds) == pytest.approx(np.array([[3, 1.5, 6], [1.5, 1.5, 1.5]]))
    steps[0, 1] = 600  # 6 instead of 1: the mean of 1.5 and 6 is 3, in factors
    seconds[0, 1] = 100
    assert refine(estimate, steps, seconds) == pytest.approx(np.array([[3, 6, 12], [3, 3, 3]]))
    seconds[1, 0] = 100  # on a node on which no whole step was done, nothing is measured
    assert refine(estimate, steps, seconds) == pytest.approx(np.array([[3, 6, 12], [3, 3, 3]]))
    steps[1, 2] = 50  # half of what was believed: its own correction counts
    seconds[1, 2] = 100
    assert refine(estimate, steps, seconds) == pytest.approx(np.array([[3, 6, 12], [0.5, 0.5, 0.5]]))


# --- who works where -------------------------------------------------------------------------------------------------

def plain_assignment(order: list[int], rate: list[list[float]]) -> list[int]:
    """Copy after copy, job after job: the fastest node that is free, the first of equals."""
    owner = [-1] * len(rate[0])
    for _ in owner:
        for job in order:
            free = [node for node, who in enumerate(owner) if who < 0 and rate[job][node] > 0]
            if free:
                owner[max(free, key=lambda node: (rate[job][node], -node))] = job
    return owner


rates = st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(st.sampled_from([0.0, 1, 2, 3, 5]), min_size=n,
                                                              max_size=n), min_size=1, max_size=4))


@given(rates, st.randoms(use_true_random=False))
def test_copies_choose_as_in_a_plain_loop(rate, random):
    order = random.sample(range(len(rate)), len(rate))
    assert assign_nodes(order, np.array(rate, float)).tolist() == plain_assignment(order, rate)


@given(st.integers(1, 3000), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_needed_nodes_suffice_and_one_fewer_would_not(remaining, speeds):
    rate = np.array(speeds, float)
    needed = nodes_needed(remaining, rate, 100.0)
    kept = 100 * rate[needed]
    assert kept.sum() >= remaining or needed.all()
    assert kept.sum() - kept.min() < remaining
    assert needed.all() or rate[needed].min() >= rate[~needed].max()


# --- what is refused -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("wrong", "says"), [
    (lambda: copy_ids(100, 1, 100), "job 100 of at most 100"),
    (lambda: copy_ids(-1, 1, 100), "job -1 of at most 100"),
    (lambda: divide_steps(-1, [1.0]), "-1 steps"),
    (lambda: divide_steps(5, [0.0, 0.0]), "one rate above 0"),
    (lambda: divide_steps(5, [2.0, -1.0]), "for rates"),
    (lambda: consolidate([(np.ones(1),)], [0]), "some copy must have done some"),
    (lambda: consolidate([(np.ones(1),)], [1, 1]), "1 copies did"),
    (lambda: pmi(GPUS["T4"], "tflops"), "there is no index"),
    (lambda: serving_order(workload_of([5], [[1]]).jobs, np.arange(1), np.ones(1), 0.0, "shortest"),
     "there is no order"),
])
def test_bad_input_is_refused_with_a_reason(wrong, says):
    with pytest.raises(InputError, match=says):
        wrong()


@pytest.mark.parametrize("done", [{14: 1}, {13: 5, 23: -1}])
def test_a_second_job_of_a_number_a_stranger_and_less_than_nothing_are_refused(done):
    tracker = JobTracker(max_job_count=10)
    tracker.register(3, 100, 2)
    with pytest.raises(InputError, match="registered already"):
        tracker.register(3, 100, 2)
    with pytest.raises(InputError, match="a report of"):
        tracker.report(done)
    assert tracker.remaining == {3: 100}
