"""Theorem 2 on exact instances, its counterexamples and its repair; Theorem 3; what exact gangs can do on Fig. 1."""
import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.bounds import (
    TOLERANCE,
    SlottedWorkload,
    blocked_gang,
    check_theorem,
    discrete_alpha,
    enumerate_schedules,
    forked_utilisation,
    gang_mixes,
    gang_rounds,
    linear_optimum,
    most_busy,
    optimum,
    packing,
    price_limits,
    primal_dual,
    random_slotted,
    refused_job,
    reserved,
)
from sched_lab.hadar.model import figure_one
from tests.hadar.cases import jobs_of

# --- Theorem 2 -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("slots", [2, 3, 4, 5, 20])
def test_as_printed_the_only_job_is_refused_from_four_slots_on(slots):
    verdict = check_theorem(refused_job(slots), "printed")
    assert (verdict.optimum, verdict.dual_start) == pytest.approx((1, slots / 4))
    assert (verdict.start_is_low, verdict.bound_holds) == (slots <= 2, slots <= 3)  # 3/4 < 1: admitted
    if slots >= 4:
        assert (verdict.primal, verdict.admitted, verdict.ratio) == (0, 0, math.inf)


@pytest.mark.parametrize(("speed", "breaks_printed", "breaks_discrete"), [(2, False, False), (8, True, False),
                                                                         (32, True, True)])
def test_a_blocked_gang_breaks_the_theorem_with_the_repaired_eta(speed, breaks_printed, breaks_discrete):
    verdict = check_theorem(blocked_gang(speed))
    assert (verdict.optimum, verdict.primal) == (pytest.approx(2 * speed), 1)
    assert verdict.alpha == pytest.approx(math.log(8 * speed))
    assert verdict.discrete_alpha == pytest.approx(2 * (math.sqrt(8 * speed) - 1))
    assert verdict.start_is_low
    assert (verdict.ratio > 2 * verdict.alpha) == breaks_printed
    assert verdict.bound_holds != breaks_printed
    assert (verdict.ratio > 2 * verdict.discrete_alpha) == breaks_discrete
    assert not verdict.weak_duality
    assert verdict.feasible_dual >= verdict.optimum
    assert verdict.optimum <= verdict.proved_limit


def test_a_reserve_price_leaves_nothing_blocked():
    verdict = check_theorem(blocked_gang(32), reserve=True)
    assert verdict.feasible_dual == verdict.dual >= verdict.optimum
    # U_max 64, U_min 1/8, and a step of one GPU when the price is highest at one of two
    assert verdict.discrete_alpha == pytest.approx(2 * (64 * 8 - 1))
    assert verdict.optimum <= verdict.proved_limit


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 9999), gpus_per_node=st.sampled_from([2, 3, 4]), slots=st.integers(2, 3))
def test_every_step_of_the_repaired_proof_holds(seed, gpus_per_node, slots):
    instance = random_slotted(np.random.default_rng(seed), slots=slots, gpus_per_node=gpus_per_node)
    for reserve in (False, True):
        verdict = check_theorem(instance, reserve=reserve)  # optimum by MILP over all schedules
        assert verdict.lemma2_discrete
        assert verdict.dual_start <= verdict.optimum / 4 + TOLERANCE
        assert verdict.feasible_dual >= verdict.linear_optimum - TOLERANCE >= verdict.optimum - 2 * TOLERANCE
        assert verdict.optimum <= verdict.proved_limit + TOLERANCE
        assert verdict.weak_duality or not reserve


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(1000, 9999))
def test_jobs_of_one_worker_are_never_blocked_at_a_profit(seed):
    given_instance = random_slotted(np.random.default_rng(seed), slots=3, gpus_per_node=2)
    single = given_instance._replace(workers=np.ones_like(given_instance.workers),
                                     steps=np.minimum(given_instance.steps, given_instance.worker_rate.max(axis=1)))
    verdict = check_theorem(single)
    assert verdict.feasible_dual == pytest.approx(verdict.dual)
    assert verdict.optimum <= 4 / 3 * verdict.discrete_alpha * verdict.primal + TOLERANCE


def test_the_reserve_is_what_the_largest_part_of_a_gang_needs():
    instance = blocked_gang(2)
    schedules = [enumerate_schedules(instance, job) for job in range(2)]
    assert reserved(instance, schedules).tolist() == [1]      # 2 - 2 + 1
    assert reserved(instance, schedules[:1]).tolist() == [2]  # single workers fit until the node is full
    run = primal_dual(instance, schedules, (0.5, 8.0), np.array([1]))
    assert run.final_price.tolist() == [[8.0]]  # one of two GPUs taken


def test_discrete_steps_cost_more_the_larger_they_are():
    shares = np.linspace(1e-6, 1, 50)
    alphas = [discrete_alpha(5.0, share) for share in shares]
    assert (np.diff(alphas) > 0).all()
    assert alphas[0] == pytest.approx(5, rel=1e-4)
    assert discrete_alpha(5.0, 0.0) == 5


# --- schedules and P2 ------------------------------------------------------------------------------------------------

def by_brute_force(instance: SlottedWorkload, job: int) -> list[tuple[tuple[int, ...], ...]]:
    """Every choice of a mix for each slot that finishes the work with its last slot in use."""
    rate = instance.worker_rate[job]
    need = instance.steps[job]
    mixes = [mix for mix in product(*(range(most + 1) for most in instance.gpus))
             if sum(mix) in (0, instance.workers[job]) and all(rate[r] > 0 for r, used in enumerate(mix) if used)]
    found = []
    for choice in product(mixes, repeat=instance.slots):
        if any(sum(mix) for mix in choice[:instance.arrival[job]]):
            continue
        work = [instance.workers[job] * min((rate[r] for r, used in enumerate(mix) if used), default=0.0)
                for mix in choice]
        last = max((t for t, mix in enumerate(choice) if sum(mix)), default=-1)
        if sum(work) >= need and sum(work[:last]) < need:
            found.append(choice)
    return found


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 9999))
def test_all_schedules_are_listed_once(seed):
    rng = np.random.default_rng(seed)
    instance = random_slotted(rng, slots=3, gpus_per_node=2)
    instance.worker_rate[0, int(rng.integers(2))] = 0  # a type on which the first job cannot run
    for job in range(2):
        mine = enumerate_schedules(instance, job)
        listed = [tuple(tuple(slot) for slot in schedule) for schedule in mine.gpus.tolist()]
        assert sorted(listed) == sorted(by_brute_force(instance, job))


def test_a_job_without_schedules_gets_none_and_earns_nothing():
    late = SlottedWorkload(2, np.array([1]), np.array([2]), np.array([[1.0]]), np.array([2.0]), np.array([0]))
    assert gang_mixes(late, 0).tolist() == [[0]]  # two workers, one GPU
    short = SlottedWorkload(1, np.array([1]), np.array([1]), np.array([[1.0]]), np.array([2.0]), np.array([0]))
    schedules = [enumerate_schedules(short, 0)]
    assert len(schedules[0].utility) == 0
    assert optimum(packing(short, schedules)) == linear_optimum(packing(short, schedules)) == 0
    assert primal_dual(short, schedules, (0.1, 1.0)).chosen.tolist() == [-1]


def test_without_integrality_halves_of_schedules_may_be_taken():
    # Three jobs of two workers on three GPUs, one slot: one fits, or three halves of a job's two workers.
    instance = SlottedWorkload(1, np.array([3]), np.full(3, 2), np.ones((3, 1)), np.full(3, 2.0), np.zeros(3, int))
    problem = packing(instance, [enumerate_schedules(instance, job) for job in range(3)])
    assert optimum(problem) == pytest.approx(2)
    assert linear_optimum(problem) == pytest.approx(3)


def test_the_repaired_price_is_the_printed_one_over_the_slots():
    instance = random_slotted(np.random.default_rng(5))
    printed = price_limits(instance, "printed")
    repaired = price_limits(instance)
    assert repaired[0] == pytest.approx(printed[0] / instance.slots)
    assert repaired[1] == printed[1] <= price_limits(instance, per_worker=False)[1]


def test_the_proved_limit_is_four_thirds_of_the_discrete_alpha():
    verdict = check_theorem(refused_job(4))  # U_max / U_min = 16, and the job takes the whole node at once
    assert (verdict.discrete_alpha, verdict.primal, verdict.proved_limit) == pytest.approx((15, 1, 20))


def test_alpha_is_at_least_one_also_if_no_job_is_admitted():
    instance = blocked_gang(2)
    run = primal_dual(instance, [enumerate_schedules(instance, job) for job in range(2)], (10.0, 20.0))
    assert (run.alpha, run.discrete_alpha, run.chosen.tolist()) == (1, 1, [-1, -1])


def test_prices_leave_out_types_on_which_a_job_cannot_run():
    two = SlottedWorkload(2, np.array([1, 1]), np.array([1, 1]), np.array([[2.0, 0.0], [1.0, 1.0]]),
                          np.array([2.0, 2.0]), np.array([0, 0]))
    # utilities 2 and 1 at best, 1 at the end; 1 and 2 GPU-slots; eta = 2 GPUs * 2 slots / 1
    assert price_limits(two) == (1 / 2 / (4 * 4), 2)


def test_the_highest_price_is_of_a_worker_or_of_a_gang():
    assert price_limits(blocked_gang(8))[1] == 8
    assert price_limits(blocked_gang(8), per_worker=False)[1] == 16
    assert check_theorem(blocked_gang(8), per_worker=False).alpha == pytest.approx(math.log(16 * 8))


def test_limits_of_p2_are_capacities_slot_by_slot_and_one_schedule_for_each_job():
    two = SlottedWorkload(2, np.array([2, 1]), np.array([1, 1]), np.ones((2, 2)), np.ones(2), np.zeros(2, int))
    problem = packing(two, [enumerate_schedules(two, job) for job in range(2)])
    assert problem.limit.tolist() == [2, 1, 2, 1, 1, 1]
    assert problem.matrix.sum(axis=0).tolist() == [2] * 8  # one GPU in one slot, and one schedule


# --- Theorem 3 and Fig. 1 --------------------------------------------------------------------------------------------

@given(rounds=st.integers(1, 100), nodes=st.integers(1, 20))
def test_forking_one_job_never_hurts_and_helps_only_if_there_is_more_than_a_round(rounds, nodes):
    used = forked_utilisation(rounds, nodes)
    assert (np.diff(used) >= 0).all()
    assert used[0] == pytest.approx(1 / nodes)
    assert (used[-1] > used[0] * (1 + 1e-9)) == (rounds > 1 and nodes > 1)


def test_exact_gangs_need_six_rounds_on_the_motivating_example():
    jobs = figure_one().jobs
    gpus = np.array([2, 3, 1])
    assert most_busy(jobs, gpus, 5) is None
    assert most_busy(jobs, gpus, 6) == 28  # two jobs at a time, J1 in four rounds: 4 * 5 + 2 * 4
    assert most_busy(jobs, gpus, 5, "mean") == 24  # 80%, not 26 of 30


def test_a_mixed_gang_has_the_pace_of_its_slowest_worker():
    jobs = figure_one().jobs
    for pace, steps in (("slowest", 20), ("mean", 30)):  # J1 on V100, P100, K80: 40, 20, 30
        ways = gang_rounds(jobs, np.array([1, 1, 1]), 1, pace)
        assert ways.steps[ways.job == 0].tolist() == [steps]


def test_a_job_runs_in_one_way_a_round_and_only_where_it_can():
    rate = np.ones((1, 2))
    gpus = np.array([1, 1])
    one = jobs_of(rate, 2)
    assert most_busy(one, gpus, 1) is None  # not on both GPUs at once
    assert most_busy(one, gpus, 2) == 2
    ways = gang_rounds(one._replace(rate=np.array([[1.0, 0.0]])), gpus, 1)
    assert ways.gpus.tolist() == [[1, 0]]
