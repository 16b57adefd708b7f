"""The engine: runs by hand, laws that no scheduler can break, and what it refuses."""

import numpy as np
import pytest

from sched_lab.hadar.baselines import YarnCs
from sched_lab.hadar.model import allocation_of
from sched_lab.hadar.simulation import (
    keeps_place,
    round_start_s,
    run_round,
    run_rounds,
    summary,
)
from sched_lab.lab.frames import InputError
from tests.hadar.cases import Script, jobs_of, named, nodes_of, workload_of


def two_jobs(arrival_s=(0.0, 0.0)):
    """Give A (2 and 1 steps/s, 1000 steps) and B (4 and 1 steps/s, 900 steps) on two nodes with one GPU each."""
    return workload_of([1000, 900], [[2, 1], [4, 1]], arrival_s)


THERE = {0: {0: 1}, 1: {1: 1}}


# --- by hand ---------------------------------------------------------------------------------------------------------

def test_measures_of_three_jobs_in_turn_on_one_gpu_by_hand():
    work = workload_of([300, 200, 180], np.ones((3, 1)), 360.0)
    run = run_rounds(work, Script(*({job: {0: 1}} for job in range(3))), restart_s=60.0)
    # each loads for 60 s; rounds begin at 360, 720 and 1080 s; the GPU is held for 360, 260 and 240 s of them
    assert run.jct_s.tolist() == [360, 620, 960]
    found = {"ttd_h": 960 / 3600, "mean_jct_h": 1940 / 3 / 3600, "median_jct_h": 620 / 3600,
             "p90_jct_h": (620 + 0.8 * 340) / 3600, "gru": 860 / 960, "backlog_gru": 620 / 720, "cru": 860 / 1080,
             "changed_share": 1, "rounds": 3, "restarts": 3}
    assert summary(run) == pytest.approx(found)


def test_a_job_that_comes_in_a_round_waits_for_the_next_one():
    run = run_rounds(two_jobs((0.0, 361.0)), Script({0: {0: 1}}, {0: {0: 1}}, {1: {0: 1}}), restart_s=0.0)
    # A: 720 steps, then 280 in 140 s; B starts at 720 s and takes 225 s
    assert run.start_s.tolist() == [0, 720]
    assert run.end_s.tolist() == [500, 945]
    assert run.jct_s.tolist() == [500, 584]


def test_time_without_jobs_counts_for_gru_and_not_for_cru():
    run = run_rounds(two_jobs((0.0, 3500.0)), Script(*[{0: {0: 1}}] * 2, {1: {0: 1}}), restart_s=0.0)
    assert run.start_s.tolist() == [0, 3600]
    assert run.end_s.tolist() == [500, 3825]
    assert run.gru == pytest.approx((500 + 225) / (2 * 3825))
    assert run.cru == pytest.approx((500 + 225) / (2 * 1080))


def test_a_job_loads_again_after_a_round_without_gpus():
    run = run_rounds(two_jobs(), Script(THERE, {1: {1: 1}}, THERE, THERE), restart_s=60.0)
    # A: 600, nothing, 60 + 200 s from 720 s on; B: 300 + 360, then 240 s
    assert run.intervals["restarts"].tolist() == [2, 0, 1]
    assert run.intervals["changed"].tolist() == [True, True, True]  # in the second round A is stopped
    assert run.end_s.tolist() == [980, 960]


def test_a_gang_holds_all_its_gpus():
    work = named(nodes_of([4]), jobs_of(np.ones((2, 1)), [200, 100], [2, 1]))
    run = run_rounds(work, Script({0: {0: 2}, 1: {0: 1}}), restart_s=0.0)
    assert run.intervals["busy_gpu_s"].tolist() == [2 * 200 + 100]


def test_rounds_begin_at_multiples_of_their_length():
    run = run_rounds(two_jobs(), YarnCs(), round_s=3.3, restart_s=0.0)  # adding up 3.3 would drift away
    assert run.intervals["start_s"].tolist() == [number * 3.3 for number in range(len(run.intervals))]


def test_a_round_never_begins_before_the_arrival_it_is_to_see():
    arrival_s = 126.70000000000002  # 1267 rounds of 0.1 s, and a little more: the division gives 1267
    assert round_start_s(arrival_s, 0.1) == pytest.approx(126.8)


def test_work_that_ends_with_the_round_ends_in_it():
    # 0.1 * 3 rounds of 360 s is 108 steps up to rounding: no fourth round for 1e-14 steps
    steps, until_s = run_round(np.array([0.1]), np.array([0.1 * 360 * (1 + 1e-13)]), np.zeros(1), 0.0, 360.0)
    assert steps[0] == 0.1 * 360 * (1 + 1e-13)
    assert until_s[0] == pytest.approx(360)


@pytest.mark.parametrize(("before", "after", "keeps"), [
    ({0: {0: 2}}, {0: {0: 2}}, True),
    ({0: {0: 2}}, {0: {0: 1}}, False),              # fewer GPUs of the same node
    ({0: {0: 1}}, {0: {1: 1}}, False),              # another node
    ({0: {0: 1}}, {0: {0: 1, 1: 1}}, False),        # one more node
    ({0: {0: 1, 1: 1}}, {0: {0: 1}}, False),        # one node less
    ({}, {0: {0: 1}}, False),                       # first start
    ({0: {0: 1, 2: 3}, 1: {1: 1}}, {0: {0: 1, 2: 3}}, True),
])
def test_who_keeps_his_place(before, after, keeps):
    assert keeps_place(allocation_of(before), allocation_of(after), 2).tolist() == [keeps, False]


# --- what is refused -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("places", "message"), [
    ({0: {0: 1, 1: 1}}, "1e .gang.: job 0 has 2 GPUs, not 1"), ({0: {0: 1}, 1: {0: 1}}, "1d .capacity.: node 0"),
    ({1: {0: 1}}, "1e .arrival.: job 1"), ({0: {5: 1}}, "node 5 does not exist")])
def test_a_scheduler_that_breaks_a_constraint_is_stopped(places, message):
    with pytest.raises(ValueError, match=message):
        run_rounds(two_jobs((0.0, 1000.0)), Script(places))


def test_a_scheduler_that_runs_a_job_without_steps_is_stopped():
    with pytest.raises(ValueError, match="1a .work.: job 0"):
        run_rounds(two_jobs(), Script(THERE, THERE, THERE), restart_s=0.0)  # A is done at 500 s


@pytest.mark.parametrize(("whole_steps", "now_s"), [(False, 360_000), (True, 0)])
def test_a_scheduler_that_never_runs_anybody_is_stopped(whole_steps, now_s):
    with pytest.raises(InputError, match=f"at {now_s} s 2 jobs wait for ever"):
        run_rounds(two_jobs(), Script(*[{}] * 2000), whole_steps=whole_steps)
