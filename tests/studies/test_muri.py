"""Muri: the turns of a group by hand, the matching against all matchings, and schedules that cannot be."""
from collections import Counter
from itertools import combinations_with_replacement

import numpy as np
import pytest

from studies.muri import Jobs, Muri, chosen_of, matched, period_s, simulate
from studies.opponents import faults, unrolled_period_s

STAGES_S = np.array([[4.0, 0, 0], [0, 2, 0], [0, 0, 2], [1, 1, 1]])  # loads; computes; communicates; all
KINDS = range(len(STAGES_S))


@pytest.fixture
def jobs():
    """Six jobs for one node of eight GPUs; iterations of a job alone take five seconds at most."""
    kind = np.array([0, 1, 2, 3, 0, 1])
    return Jobs(np.array([0.0, 0, 0, 1, 2, 30]), np.array([8, 8, 8, 4, 4, 8]), np.array([5.0, 10, 10, 4, 3, 2]), kind,
                STAGES_S, STAGES_S.sum(axis=1) + 0.5, np.ones(4))


@pytest.mark.parametrize(("members", "period"), [
    ([0], 4), ([0, 1, 2], 4), ([1, 1], 4), ([1, 1, 2, 2], 4), ([3], 3), ([0, 0], 4), ([0, 0, 0, 0], 8)])
def test_jobs_take_turns(members, period):
    """Beside 4 s of loading others compute and communicate for 2 s; two that compute for 2 s need 4 s.

    Loading stands for two resources, so that two jobs do it at once, but not four.
    """
    assert period_s(STAGES_S[members]) == unrolled_period_s(STAGES_S[members]) == period


def test_the_period_is_that_of_slots_that_end_as_early_as_they_can():
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 4, 4, 4):
        stages_s = rng.integers(0, 6, (size, 3)).astype(float)
        assert period_s(stages_s) == pytest.approx(unrolled_period_s(stages_s))
        assert stages_s.max() <= period_s(stages_s) <= stages_s.sum() + 1e-9


def test_the_efficiency_is_the_used_share_of_four_resources(jobs):
    """Together 8 s of work in 4 s times four resources; sharing by three costs 1.5 over 1.015."""
    assert Muri(jobs, 8).efficiency((0, 1, 2)) == pytest.approx(8 / (4 * 4 * 1.5 / 1.015))


def all_weights(counts, weight_of):
    """Weight of every matching."""
    yield 0.0
    for a, b in combinations_with_replacement([sort for sort, num in counts.items() if num], 2):
        if len(a + b) <= 4 and (a != b or counts[a] > 1):
            left = Counter(counts)
            left.subtract([a, b])
            yield from (weight_of(tuple(sorted(a + b))) + more for more in all_weights(left, weight_of))


@pytest.mark.parametrize("counts", [
    {(0,): 3, (1,): 1}, {(0,): 1, (1,): 1, (2,): 1}, {(0,): 2, (1,): 2, (2,): 1}, {(0, 0): 2, (1,): 1, (0, 1, 2): 1}])
def test_no_matching_has_more_weight(counts):
    rng = np.random.default_rng(1)
    weights = {}

    def weight_of(kinds):
        return weights.setdefault(kinds, float(rng.uniform(0.1, 1)))

    found = matched(counts, weight_of)
    used = Counter(sort for pair in found.elements() for sort in pair)
    assert all(num <= counts[sort] for sort, num in used.items())
    assert sum(weight_of(tuple(sorted(a + b))) for a, b in found.elements()) == pytest.approx(
        max(all_weights(counts, weight_of)))


def test_who_fits_takes_the_next_of_its_size_with_it():
    """Of sizes 4, 8, 4, 4: the first takes another of 4; then four GPUs are left, for the last."""
    order, num_gpus = np.array([2, 0, 1, 3]), np.array([8, 4, 4, 4])
    chosen = chosen_of(order, num_gpus, 8, 2)
    assert {size: rows.tolist() for size, rows in chosen.items()} == {4: [2, 1, 3]}


@pytest.mark.parametrize("order", ["first come", "shortest time", "shortest service", "least attained"])
@pytest.mark.parametrize("in_groups", [False, True])
def test_a_schedule_is_without_fault(jobs, order, in_groups):
    runs = simulate(jobs, order, in_groups, 8)
    assert faults(jobs, runs, 1) == []
    assert (max(len(run.group) for run in runs) > 1) is in_groups


def test_three_jobs_of_a_node_run_together(jobs):
    """They pause for 1 s each; an iteration takes 4 s, slowed by 1.5 over 1.015."""
    first = min(simulate(jobs, "shortest service", True, 8))
    assert first.group == (0, 1, 2) and first.pause_s == 3 and first.period_s == pytest.approx(4 * 1.5 / 1.015)


@pytest.mark.parametrize(("change", "found"), [
    ({"group": (0, 1, 2, 4)}, "several sizes"), ({"group": (0, 1, 1)}, "the same"), ({"period_s": 1.0}, "faster"),
    ({"pause_s": 0.0}, "no cost"), ({"begin_s": -1.0}, "before they came"), ({"end_s": 32.0}, "twice"),
    ({"end_s": 29.5}, "iterations")])
def test_a_fault_is_found(jobs, change, found):
    runs = sorted(simulate(jobs, "shortest service", True, 8))
    runs[3] = runs[3]._replace(**change)
    assert any(found in fault for fault in faults(jobs, runs, 1))


def test_two_groups_do_not_fit_on_one_node(jobs):
    runs = simulate(jobs, "shortest service", False, 16)
    assert faults(jobs, runs, 2) == [] and any("no room" in fault for fault in faults(jobs, runs, 1))
