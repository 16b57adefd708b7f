"""HadarE: slots by hand, and laws on random jobs and nodes."""
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.model import Allocation, Workload, check_allocation
from sched_lab.hadar.primal_dual import Hadar
from sched_lab.hadar.simulation import MIXES, NODES, HadarE, node_workload, run_copies, run_rounds, run_slot
from sched_lab.lab.frames import InputError
from tests.hadar.cases import jobs_of, nodes_of, workload_of


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Up to four jobs on up to five nodes; nodes do at least half a step per second, so a slot is long enough."""
    num_jobs = draw(st.integers(1, 4))
    num_nodes = draw(st.integers(1, 5))
    steps = draw(st.lists(st.integers(1, 1500), min_size=num_jobs, max_size=num_jobs))
    rates = draw(st.lists(st.lists(st.floats(0.5, 8), min_size=num_nodes, max_size=num_nodes),
                          min_size=num_jobs, max_size=num_jobs))
    arrivals = draw(st.lists(st.integers(0, 2000), min_size=num_jobs, max_size=num_jobs))
    return workload_of(steps, rates, arrivals)


options = st.builds(HadarE, order=st.sampled_from(["density", "longest"]), slot_s=st.sampled_from([90.0, 360.0]),
                    overhead_s=st.sampled_from([0.0, 10.0]), trim=st.booleans())


# --- slots -----------------------------------------------------------------------------------------------------------

def test_one_job_on_two_nodes_by_hand():
    # slot 1: 350 s at 3 and 1 steps/s, 1400 of 2400 steps; slot 2: 1000 steps as 750 and 250, 250 s after 10 s
    run = run_copies(workload_of([2400], [[3, 1]]))
    assert run.history["steps"].tolist() == [1050, 350, 750, 250]
    assert run.ttd_s == pytest.approx(620)
    assert run.cru == pytest.approx((2 * 360 + 2 * 260) / (2 * 720))
    assert run.intervals["busy_gpu_s"].tolist() == pytest.approx([720, 520])
    assert run.intervals["restarts"].tolist() == [2, 2] and run.start_s.tolist() == [0]
    assert run.intervals["active"].tolist() == [1, 1] and np.isnan(run.backlog_gru)  # never more jobs than GPUs


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


def test_who_chooses_first_depends_on_the_utility():
    workload = workload_of([100, 1000], [[1], [20]])  # alone 100 and 50 s: each has slowdown 1, but 1/50 beats 1/100
    first = {utility: run_copies(workload, HadarE(utility=utility)).history["job"][0]
             for utility in ("effnorm", "inv")}
    assert first == {"effnorm": 0, "inv": 1}


def test_who_chooses_first_depends_on_the_order():
    workload = workload_of([100, 4000], [[1], [20]])  # 100 and 200 s
    first = {order: run_copies(workload, HadarE(order)).history["job"][0] for order in ("density", "longest")}
    assert first == {"density": 0, "longest": 1}


def test_more_jobs_than_nodes_are_a_backlog():
    run = run_copies(workload_of([350, 350, 350], [[1], [1], [1]]))  # one after the other, a slot each
    assert run.intervals["active"].tolist() == [3, 2, 1]
    assert run.backlog_gru == pytest.approx(1) and sorted(run.jct_s) == pytest.approx([360, 720, 1080])


def test_a_wrong_belief_costs_a_second_slot_and_no_third():
    # believed equal, 502 steps each: the slow one does 350 of them, and 152 are left, as 114 and 38, 38 s each
    run = run_copies(workload_of([1004], [[3, 1]]), believed=np.array([[1.0, 1.0]]))
    assert run.history["steps"].tolist() == [502, 350, 114, 38]
    assert run.ttd_s == pytest.approx(360 + 10 + 38)


def test_trimmed_nodes_save_node_time_and_not_time():
    all_nodes, few = (run_copies(workload_of([100], [[3, 1]]), HadarE(trim=trim)) for trim in (False, True))
    assert (all_nodes.ttd_s, few.ttd_s) == pytest.approx((35, 10 + 100 / 3))  # 75 and 25 steps, or 100 on one
    assert all_nodes.intervals["busy_gpu_s"].sum() == pytest.approx(70)
    assert few.intervals["busy_gpu_s"].sum() == pytest.approx(10 + 100 / 3)
    owner, steps = HadarE(trim=True).shares(np.array([0]), np.array([100]), np.array([[3.0, 1]]))
    assert (owner.tolist(), steps.tolist()) == ([0, -1], [100, 0])


def test_trimming_counts_on_the_time_that_is_left_after_the_overhead():
    # 350 s of the fast node are 1050 steps: for 1060 both are needed, 795 and 265 steps; 360 s would have been enough
    assert run_copies(workload_of([1060], [[3, 1]]), HadarE(trim=True)).ttd_s == pytest.approx(10 + 265)


def test_a_node_that_cannot_finish_uses_the_whole_slot():
    job, node, done, ran_s = run_slot(np.array([0, -1, 0]), np.array([1800, 0, 100]), np.array([[3.0, 9.0, 1.0]]),
                                      HadarE())
    assert (job.tolist(), node.tolist(), done.tolist()) == ([0, 0], [0, 2], [1050, 100])
    assert ran_s == pytest.approx([360, 110])


@settings(max_examples=30, deadline=None)
@given(workloads(), options)
def test_steps_are_conserved_and_every_slot_is_a_valid_allocation(workload, how):
    run = run_copies(workload, how)
    jobs = workload.jobs
    left = workload.jobs.steps.astype(float)
    for number, places in run.history.groupby("round"):
        start_s = run.intervals["start_s"][number]
        assert not places["node"].duplicated().any() and (left[places["job"]] > 0).all()
        assert (jobs.arrival_s[places["job"]] <= start_s).all()
        pace = jobs.rate[places["job"], places["node"]]
        assert (places["steps"] <= pace * (how.slot_s - how.overhead_s) + 1e-6).all()
        np.subtract.at(left, places["job"].to_numpy(), places["steps"].to_numpy())
    assert not left.any()
    assert (run.jct_s >= jobs.steps / jobs.rate.sum(axis=1) - 1e-9).all()
    assert 0 < run.cru <= 1


@settings(max_examples=30, deadline=None)
@given(workloads(), options)
def test_a_node_is_without_steps_only_in_a_slot_in_which_a_job_ends(workload, how):
    run = run_copies(workload, HadarE(how.order, slot_s=how.slot_s, overhead_s=how.overhead_s))
    working = run.history.groupby("round").size()
    ends = set(run.history.groupby("job")["round"].max())
    assert set(working.index[working < len(workload.node_name)]) <= ends


@settings(max_examples=20, deadline=None)
@given(workloads(), st.data())
def test_wrong_beliefs_let_all_jobs_end_too(workload, data):
    shape = workload.jobs.rate.shape
    guess = data.draw(st.lists(st.floats(0.01, 100), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    run = run_copies(workload, believed=np.array(guess).reshape(shape))
    assert run.history.groupby("job")["steps"].sum().tolist() == workload.jobs.steps.tolist()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 6))
def test_more_equal_nodes_never_end_one_job_later(steps, num_nodes):
    ttd_s = [run_copies(workload_of([steps], np.ones((1, nodes)))).ttd_s for nodes in (num_nodes, num_nodes + 1)]
    assert ttd_s[1] <= ttd_s[0] + 1e-9


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


@pytest.mark.parametrize("cluster", NODES)
@pytest.mark.parametrize("mix", MIXES)
def test_copies_end_the_mixes_of_the_paper_no_later_than_hadar(cluster, mix):
    workload = node_workload(cluster, mix)
    assert len(workload.job_name) == int(mix.split("-")[1]) and workload.num_gpus == 5
    forked = run_copies(workload, HadarE("longest"))
    alone = run_rounds(workload, Hadar())
    assert forked.ttd_s <= alone.ttd_s
    for _, places in forked.history.groupby("round"):
        for job, own in places.groupby("job"):  # each copy alone is an allocation of one GPU
            for node in own["node"]:
                check_allocation(workload.cluster, workload.jobs, Allocation(*np.array([[job], [node], [1]])))


# --- what is refused -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("wrong", "says"), [
    (lambda: node_workload("moon", "M-1"), "choose from aws, testbed"),
    (lambda: node_workload("aws", "M-2"), "no mix 'M-2'"),
    (lambda: run_copies(workload_of([5], [[1]]), HadarE("shortest")), "there is no order 'shortest'"),
    (lambda: run_copies(workload_of([5], [[1]]), HadarE(slot_s=10.0)), "an overhead of 10.0 s"),
    (lambda: run_copies(workload_of([5, 5], [[1], [0.002]])), "job 1 does no step"),
    (lambda: run_copies(workload_of([5], [[0]])), "job 0 does no step"),
    (lambda: run_copies(workload_of([5], [[1]]), believed=np.zeros((1, 1))), "job 0 does no step"),
    (lambda: run_copies(workload_of([5], [[1]]), believed=np.ones((1, 2))), r"shape \(1, 2\) for \(1, 1\)"),
    (lambda: run_copies(workload_of([5], [[1]]), believed=np.array([[np.nan]])), "give each job a rate"),
    (lambda: run_copies(workload_of([5], [[1]]), believed=np.array([[-1.0]])), "give each job a rate"),
    (lambda: run_copies(workload_of([5], [[1]]), believed=np.array([[np.inf]])), "give each job a rate"),
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
