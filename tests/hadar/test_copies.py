"""HadarE: slots by hand, and laws on random jobs and nodes."""
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.primal_dual import Hadar
from sched_lab.hadar.simulation import HadarE, run_copies, run_rounds, run_slot
from sched_lab.lab.frames import InputError
from studies.testbed import node_workload
from tests.hadar.cases import jobs_of, nodes_of, random_gangs, workload_of

# --- slots -----------------------------------------------------------------------------------------------------------

def test_three_jobs_on_five_nodes_end_as_drawn():
    # slot 1: A has 4 + 1 steps/s and is done, B 2 + 1, C 2; slot 2: 210 steps of B at 4 + 2 + 1; slot 3: 400 of C at 10
    workload = workload_of([500, 510, 900], np.tile([4, 2, 2, 1, 1], (3, 1)))
    forked = run_copies(workload, HadarE(slot_s=100.0, overhead_s=0.0))
    assert forked.jct_s == pytest.approx([100, 130, 240])
    assert forked.history.pivot(index="round", columns="node", values="job").to_numpy().tolist() == [
        [0, 1, 2, 0, 1], [1, 2, 1, 2, 1], [2, 2, 2, 2, 2]]
    assert run_rounds(workload, Hadar(), round_s=100.0, restart_s=0.0).jct_s == pytest.approx([125, 255, 325])


def test_parts_of_steps_are_done_as_whole_ones():
    assert run_copies(workload_of([2.5], [[1]]), HadarE(overhead_s=0.0)).ttd_s == pytest.approx(3)


def test_a_node_too_slow_for_a_step_in_a_slot_is_left_out_whatever_is_believed():
    # 350 s at 0.002 steps/s are no step, and by belief it would get all five, in every slot
    run = run_copies(workload_of([5], [[1, 0.002]]), believed=np.array([[0.01, 100]]))
    assert run.history["node"].tolist() == [0] and run.ttd_s == pytest.approx(15)


def test_who_comes_in_a_slot_waits_for_the_next():
    run = run_copies(workload_of([35, 70], [[1], [1]], [100, 400]))
    assert run.start_s.tolist() == [360, 720] and run.end_s == pytest.approx([360 + 10 + 35, 720 + 10 + 70])


def test_a_node_without_steps_is_not_in_use():
    run = run_copies(workload_of([1], [[4, 1]]))  # the quotas of the one step are 0.8 and 0.2
    assert run.history["node"].tolist() == [0] and run.intervals["busy_gpu_s"].tolist() == pytest.approx([10.25])


@pytest.mark.parametrize(("steps", "choice", "first"), [
    # alone 100 and 50 s: each has slowdown 1, but 1/50 beats 1/100
    (1000, [HadarE(utility="effnorm"), HadarE(utility="inv")], [0, 1]),
    (4000, [HadarE("density"), HadarE("longest")], [0, 1])])  # 100 and 200 s
def test_who_chooses_first_depends_on_the_utility_and_the_order(steps, choice, first):
    workload = workload_of([100, steps], [[1], [20]])
    assert [run_copies(workload, how).history["job"][0] for how in choice] == first


def test_more_jobs_than_nodes_are_a_backlog():
    run = run_copies(workload_of([350, 350, 350], [[1], [1], [1]]))  # one after the other, a slot each
    assert run.intervals["active"].tolist() == [3, 2, 1]
    assert run.backlog_gru == pytest.approx(1) and sorted(run.jct_s) == pytest.approx([360, 720, 1080])


def test_trimming_counts_on_the_time_that_is_left_after_the_overhead():
    # 350 s of the fast node are 1050 steps: for 1060 both are needed, 795 and 265 steps; 360 s would have been enough
    assert run_copies(workload_of([1060], [[3, 1]]), HadarE(trim=True)).ttd_s == pytest.approx(10 + 265)


def test_a_node_that_cannot_finish_uses_the_whole_slot():
    job, node, done, ran_s = run_slot(np.array([0, -1, 0]), np.array([1800, 0, 100]), np.array([[3.0, 9.0, 1.0]]),
                                      HadarE())
    assert (job.tolist(), node.tolist(), done.tolist()) == ([0, 0], [0, 2], [1050, 100])
    assert ran_s == pytest.approx([360, 110])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_wrong_beliefs_let_all_jobs_end_too(seed):
    workload = random_gangs(seed, one_gpu=True)
    shape = len(workload.job_name), len(workload.node_name)
    run = run_copies(workload, believed=np.random.default_rng(seed).uniform(0.01, 100, shape))
    assert run.history.groupby("job")["steps"].sum().tolist() == workload.jobs.steps.tolist()


def test_the_mixes_have_the_speeds_of_equation_10_and_the_assumed_lengths():
    aws = node_workload("aws", "M-4")
    assert aws.type_name == ("V100", "T4", "K80") and aws.cluster.node_type.tolist() == [0, 2, 2, 1, 1]
    assert aws.jobs.steps.tolist() == [90_000, 150_000, 150_000, 120_000]
    # 15.7 / 4, 8.1 / 4 and 4.37 / sqrt(12)
    assert aws.jobs.rate[2] == pytest.approx(np.array([100, 100 * 8.1 / 15.7, 100 * 4.37 / 12 ** 0.5 / 3.925]))
    tensor = node_workload("aws", "M-5", "tensor/sqrt(V)")
    assert tensor.jobs.rate[0, 1] == pytest.approx(52) and tensor.jobs.steps[3] == 180_000  # 65 of 125
    testbed = [node_workload("testbed", "M-1", pcie4_scaling=scaling) for scaling in (2.0, 1.0)]
    assert all(mix.type_name[0] == "RTX3090" for mix in testbed)
    # Titan RTX, 16.3 of 35.6 with the same memory; if PCIe 4.0 counts twice, half of it
    assert [mix.jobs.rate[0, mix.type_name.index("TitanRTX")] for mix in testbed] == pytest.approx(
        [50 * 16.3 / 35.6, 100 * 16.3 / 35.6])


# --- what is refused -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("wrong", "says"), [
    (lambda: run_copies(workload_of([5], [[1]]), HadarE("shortest")), "there is no order 'shortest'"),
    (lambda: run_copies(workload_of([5], [[1]]), HadarE(slot_s=10.0)), "an overhead of 10.0 s"),
    (lambda: run_copies(workload_of([5, 5], [[1], [0.002]])), "job 1 does no step"),
    (lambda: run_copies(workload_of([5], [[1]]), believed=np.zeros((1, 1))), "job 0 does no step"),
    (lambda: run_copies(workload_of([5], [[1]]), believed=np.ones((1, 2))), r"shape \(1, 2\) for \(1, 1\)"),
    (lambda: run_copies(workload_of([5], [[1]]), believed=np.array([[np.nan]])), "give each job a rate"),
    (lambda: run_copies(workload_of([5], [[1]]), believed=np.array([[-1.0]])), "give each job a rate"),
    (lambda: run_copies(workload_of([5], [[1]]), HadarE(overhead_s=-1.0)), "an overhead of -1.0 s"),
    (lambda: run_copies(workload_of([5], [[1]]), HadarE(slot_s=np.inf)), "in a slot of inf s"),
])
def test_bad_input_is_refused_with_a_reason(wrong, says):
    with pytest.raises(InputError, match=says):
        wrong()


@pytest.mark.parametrize("wrong", [{"cluster": nodes_of([2])}, {"jobs": jobs_of([[1]], 5, workers=2)}])
def test_larger_nodes_and_gangs_are_refused(wrong):
    with pytest.raises(InputError, match="one GPU and jobs with one worker"):
        run_copies(replace(workload_of([5], [[1]]), **wrong))
