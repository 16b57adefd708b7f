"""Forked copies: plain re-implementations, and laws on random shares, nodes and models."""
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sched_lab.hadar.fork import (
    GPUS,
    PMI,
    JobTracker,
    assign_nodes,
    chances,
    consolidate,
    copy_ids,
    divide_steps,
    estimated_rate,
    first_weights,
    nodes_needed,
    parent_of,
    pmi,
    refine,
    serving_order,
    spiral_task,
    train,
)
from sched_lab.lab.frames import InputError
from tests.hadar.cases import workload_of

# --- copies and shares -----------------------------------------------------------------------------------------------

@given(st.integers(1, 50), st.integers(1, 9), st.data())
def test_no_two_copies_have_the_same_number_and_each_knows_its_parent(most, num_copies, data):
    parents = data.draw(st.lists(st.integers(0, most - 1), min_size=1, max_size=5, unique=True))
    ids = {parent: copy_ids(parent, num_copies, most) for parent in parents}
    assert len({copy for copies in ids.values() for copy in copies}) == len(parents) * num_copies
    assert all(parent_of(copy, most) == parent for parent, copies in ids.items() for copy in copies)


@given(st.integers(0, 10_000), st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any))
def test_shares_are_whole_complete_and_less_than_a_step_from_their_quota(remaining, rates):
    share = divide_steps(remaining, rates)
    quota = [Fraction(remaining * rate, sum(rates)) for rate in rates]
    assert share.sum() == remaining and (share >= 0).all()
    assert all(abs(int(steps) - exact) <= 1 for steps, exact in zip(share, quota, strict=True))
    assert not share[np.array(rates) == 0].any()


@given(st.integers(0, 10_000), st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_faster_nodes_never_get_fewer_steps(remaining, rates):
    share = divide_steps(remaining, sorted(rates, reverse=True)).tolist()
    assert all(faster >= slower for faster, slower in pairwise(share))


# --- one model again -------------------------------------------------------------------------------------------------

numbers = st.floats(-100, 100)
models = st.lists(st.tuples(numbers, numbers, st.integers(0, 50)), min_size=1, max_size=5).filter(
    lambda copies: any(steps for _, _, steps in copies))


@given(models, st.booleans())
def test_an_average_lies_between_the_copies_that_have_done_something(copies, equal):
    weights = [(np.array([a]), np.array([[b]])) for a, b, _ in copies]
    one, two = consolidate(weights, [steps for *_, steps in copies], equal=equal)
    ran = [(a, b) for a, b, steps in copies if steps]
    assert one.shape == (1,) and two.shape == (1, 1)
    assert min(a for a, _ in ran) - 1e-9 <= one[0] <= max(a for a, _ in ran) + 1e-9
    assert min(b for _, b in ran) - 1e-9 <= two[0, 0] <= max(b for _, b in ran) + 1e-9


def test_weights_count_by_steps_and_those_of_idle_copies_not_at_all():
    copies = [(np.array([1.0]),), (np.array([5.0]),), (np.array([np.nan]),)]
    assert consolidate(copies, [300, 100, 0])[0] == pytest.approx(2)  # (300 * 1 + 100 * 5) / 400
    assert consolidate(copies, [300, 100, 0], equal=True)[0] == pytest.approx(3)


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

def test_half_the_pcie_is_half_the_rate_from_version_4_on_only():
    job = {"batch": 1.0, "model_weight": 1.0, "dataset_size": 1.0}
    for name, gpu in GPUS.items():
        ratio = estimated_rate(gpu, **job) / estimated_rate(gpu, **job, pcie4_scaling=1.0)
        assert ratio == (2 if name in ("RTX3090", "A2000") else 1)


@given(st.sampled_from(sorted(PMI)), st.floats(0.1, 500), st.floats(1, 4), st.floats(1, 4))
def test_for_one_job_only_index_and_pcie_tell_nodes_apart(formula, batch, weight, size):
    fast, slow = (estimated_rate(GPUS[name], batch=batch, model_weight=weight, dataset_size=size, formula=formula)
                  for name in ("V100", "K80"))
    assert fast / slow == pytest.approx(pmi(GPUS["V100"], formula) / pmi(GPUS["K80"], formula))


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


@given(rates)
def test_a_node_is_without_a_job_only_if_no_job_can_run_on_it(rate):
    owner = assign_nodes(range(len(rate)), np.array(rate, float))
    speed = np.array(rate, float)
    assert ((owner >= 0) == (speed > 0).any(axis=0)).all()
    assert all(speed[job, node] > 0 for node, job in enumerate(owner) if job >= 0)


@given(st.integers(1, 3000), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_needed_nodes_suffice_and_one_fewer_would_not(remaining, speeds):
    rate = np.array(speeds, float)
    needed = nodes_needed(remaining, rate, 100.0)
    kept = 100 * rate[needed]
    assert kept.sum() >= remaining or needed.all()
    assert kept.sum() - kept.min() < remaining
    assert needed.all() or rate[needed].min() >= rate[~needed].max()


def test_a_node_on_which_the_job_cannot_run_is_never_needed():
    assert nodes_needed(501, np.array([3.0, 0, 2]), 100.0).tolist() == [True, False, True]  # and 500 it will be


@pytest.mark.parametrize(("order", "rates", "left", "queue"), [
    # alone they take 600 and 1200 s; after 360 s, 300 and 1200 s are left: 600 / 660 = 0.91 against 1200 / 1560 = 0.77
    ("density", [[3, 1], [3, 1]], [900, 3600], [0, 1]), ("longest", [[3, 1], [3, 1]], [900, 3600], [1, 0]),
    # 900 steps at 3 are 300 s, 2400 at 12 are 200 s; on the slow node the second would be the longer one
    ("longest", [[3, 1], [12, 1]], [900, 2400], [0, 1])])
def test_density_prefers_what_is_nearly_done_and_length_what_is_not(order, rates, left, queue):
    jobs = workload_of([1800, 3600], rates).jobs
    assert serving_order(jobs, np.arange(2), np.array(left, float), 360.0, order).tolist() == queue


# --- does it train? --------------------------------------------------------------------------------------------------

def test_gradients_are_those_of_finite_differences():
    task = spiral_task(np.random.default_rng(0), num_points=40)
    weights = first_weights(np.random.default_rng(1))
    step_size = 1e-3
    tiny = 1e-6
    pick = np.random.default_rng(2).integers(len(task.x), size=32)

    def loss(layers: tuple[np.ndarray, ...]) -> float:
        return float(-np.log(chances(layers, task.x[pick])[1][np.arange(32), task.label[pick]]).mean())

    after = train(weights, task, 1, np.random.default_rng(2), step_size=step_size)
    for layer, at in ((0, (1, 3)), (1, (5,)), (2, (7, 2)), (3, (0,))):
        shifted = []
        for sign in (1, -1):
            layers = [part.copy() for part in weights]
            layers[layer][at] += sign * tiny
            shifted.append(loss(tuple(layers)))
        slope = (shifted[0] - shifted[1]) / (2 * tiny)
        assert (weights[layer][at] - after[layer][at]) / step_size == pytest.approx(slope, abs=1e-6)


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
