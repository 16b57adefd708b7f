"""Theorem 2: every step of its repaired proof on exact instances, schedules by enumeration, the reserve; one round."""
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studies.hadar_theorems import (
    TOLERANCE,
    SlottedWorkload,
    blocked_gang,
    check_theorem,
    enumerate_schedules,
    gang_mixes,
    gang_rounds,
    linear_optimum,
    most_busy,
    optimum,
    packing,
    price_limits,
    primal_dual,
    random_slotted,
    reserved,
)
from tests.hadar.cases import jobs_of

# --- Theorem 2 -------------------------------------------------------------------------------------------------------

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


def test_alpha_is_at_least_one_also_if_no_job_is_admitted():
    instance = blocked_gang(2)
    run = primal_dual(instance, [enumerate_schedules(instance, job) for job in range(2)], (10.0, 20.0))
    assert (run.alpha, run.discrete_alpha, run.chosen.tolist()) == (1, 1, [-1, -1])


def test_prices_leave_out_types_on_which_a_job_cannot_run():
    two = SlottedWorkload(2, np.array([1, 1]), np.array([1, 1]), np.array([[2.0, 0.0], [1.0, 1.0]]),
                          np.array([2.0, 2.0]), np.array([0, 0]))
    # utilities 2 and 1 at best, 1 at the end; 1 and 2 GPU-slots; eta = 2 GPUs * 2 slots / 1
    assert price_limits(two) == (1 / 2 / (4 * 4), 2)


# --- one round ------------------------------------------------------------------------------------------------------

def test_a_job_runs_in_one_way_a_round_and_only_where_it_can():
    rate = np.ones((1, 2))
    gpus = np.array([1, 1])
    one = jobs_of(rate, 2)
    assert most_busy(one, gpus, 1) is None  # not on both GPUs at once
    assert most_busy(one, gpus, 2) == 2
    ways = gang_rounds(one._replace(rate=np.array([[1.0, 0.0]])), gpus, 1)
    assert ways.gpus.tolist() == [[1, 0]]
