"""HadarE: numbers of the reference, a plain re-implementation of a slot, and laws on random jobs and nodes."""
import json
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.frames import InputError
from sched_lab.hadar.engine import simulate
from sched_lab.hadar.fork import (
    GPUS,
    MIXES,
    NODES,
    PMI,
    HadarE,
    JobTracker,
    assign_nodes,
    chances,
    consolidate,
    copy_ids,
    divide_steps,
    estimated_rate,
    first_weights,
    left_with_fixed_portions,
    node_workload,
    nodes_needed,
    parent_of,
    pmi,
    refine,
    run_slot,
    serving_order,
    simulate_copies,
    spiral_task,
    train,
    training_curve,
)
from sched_lab.hadar.model import Allocation, Cluster, Jobs, Workload, check_allocation
from sched_lab.hadar.primal_dual import Hadar
from sched_lab.traces import find_reference

GOLDEN = find_reference("hadar/toy_golden.json")
TOY: dict[str, Any] = json.loads(GOLDEN.read_text()) if GOLDEN else {}
golden = pytest.mark.skipif(GOLDEN is None, reason="../shared/reference/hadar/toy_golden.json is absent")


def workload_of(steps: Any, rates: Any, arrival_s: Any = None) -> Workload:
    """Jobs on nodes that are each of a type of their own."""
    rate = np.array(rates, float)
    num_jobs, num_nodes = rate.shape
    jobs = Jobs(np.zeros(num_jobs) if arrival_s is None else np.array(arrival_s, float), np.array(steps, float),
                np.ones(num_jobs, np.int64), np.ones(num_jobs), rate, rate)
    nodes = tuple(f"node {node}" for node in range(num_nodes))
    return Workload(tuple(f"job {job}" for job in range(num_jobs)), nodes, nodes,
                    Cluster(np.arange(num_nodes), np.ones(num_nodes, np.int64)), jobs)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Up to four jobs on up to five nodes; nodes do at least half a step per second, so a slot is long enough."""
    num_jobs, num_nodes = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    steps = draw(st.lists(st.integers(1, 1500), min_size=num_jobs, max_size=num_jobs))
    rates = draw(st.lists(st.lists(st.floats(0.5, 8), min_size=num_nodes, max_size=num_nodes),
                          min_size=num_jobs, max_size=num_jobs))
    arrivals = draw(st.lists(st.integers(0, 2000), min_size=num_jobs, max_size=num_jobs))
    return workload_of(steps, rates, arrivals)


options = st.builds(HadarE, order=st.sampled_from(["density", "longest"]), slot_s=st.sampled_from([90.0, 360.0]),
                    overhead_s=st.sampled_from([0.0, 10.0]), trim=st.booleans())


# --- the reference implementation ------------------------------------------------------------------------------------

@golden
def test_numbers_of_copies_are_those_of_the_reference():
    case = TOY["job_ids"]
    assert copy_ids(case["parent"], case["n"], case["max_job_count"]) == case["ids"]


@golden
def test_steps_are_divided_as_in_the_reference():
    for case in TOY["step_division"]:
        assert divide_steps(case["remaining"], case["throughputs"]).tolist() == case["steps"]


@golden
def test_data_sheets_and_all_readings_of_the_index_are_those_of_the_reference():
    for name, case in TOY["pmi"].items():
        assert GPUS[name] == (case["fp32"], case["tensor_fp16"], case["vram_gb"], case["pcie"])
        for formula in PMI:
            assert pmi(GPUS[name], formula) == pytest.approx(case[formula], abs=5.01e-5)  # stored with four decimals


@golden
def test_equation_10_is_that_of_the_reference():
    for case in TOY["eq10_examples"]:
        rate = estimated_rate(GPUS[case["gpu"]], batch=case["batch"], model_weight=case["model_weight"],
                              dataset_size=case["dataset"])
        assert rate == pytest.approx(case["throughput"], abs=1e-5)


@golden
def test_fixed_portions_leave_half_behind_every_round_as_in_the_reference():
    assert left_with_fixed_portions(2, 1, 6) == pytest.approx(TOY["literal_n_portions_decay_2nodes_1copy"])


@golden
def test_utilisation_of_one_job_in_copies_is_the_closed_form_of_the_reference():
    for case in TOY["theorem3_single"]:
        for copies in range(1, case["n"] + 1):
            rates = np.arange(case["n"]) < copies  # on the other nodes it cannot run
            run = simulate_copies(workload_of([360 * case["R1"]], [rates]), HadarE(overhead_s=0.0))
            assert run.cru == pytest.approx(case["cru"][copies - 1], abs=5.01e-5)


@golden
def test_two_jobs_get_a_node_each_and_the_better_end_of_the_counterexample():
    case = TOY["theorem3_counter"]
    steps = [round(360 * work) for work in case["jobs"].values()]
    run = simulate_copies(workload_of(steps, np.ones((2, 2))), HadarE(overhead_s=0.0))
    assert len(run.intervals) == case["hadare_one_copy_each"]["rounds"]
    assert run.cru == pytest.approx(case["hadare_one_copy_each"]["cru"])
    assert run.cru > case["hadare_A_then_B"]["cru"]


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


def test_copies_that_do_not_run_keep_their_portion_for_ever():
    assert left_with_fixed_portions(5, 5, 1).tolist() == [0.0]  # all five run: nothing is left
    assert left_with_fixed_portions(4, 1, 2) == pytest.approx([3 / 4, 9 / 16])


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
    mine, other = tracker.register(3, 100, 2), tracker.register(4, 50, 2)
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
    steps, seconds = np.zeros((2, 3)), np.zeros((2, 3))
    assert (refine(estimate, steps, seconds) == estimate).all()
    steps[0, 0], seconds[0, 0] = 300, 100  # 3 instead of 2: 1.5 times
    assert refine(estimate, steps, seconds) == pytest.approx(np.array([[3, 1.5, 6], [1.5, 1.5, 1.5]]))
    steps[0, 1], seconds[0, 1] = 600, 100  # 6 instead of 1: the mean of 1.5 and 6 is 3, in factors
    assert refine(estimate, steps, seconds) == pytest.approx(np.array([[3, 6, 12], [3, 3, 3]]))


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
    owner, speed = assign_nodes(range(len(rate)), np.array(rate, float)), np.array(rate, float)
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


def test_density_prefers_what_is_nearly_done_and_length_what_is_not():
    # alone they take 600 and 1200 s; after 360 s, 300 and 1200 s are left: 600 / 660 = 0.91 against 1200 / 1560 = 0.77
    jobs, left = workload_of([1800, 3600], [[3, 1], [3, 1]]).jobs, np.array([900.0, 3600.0])
    assert serving_order(jobs, np.arange(2), left, 360.0).tolist() == [0, 1]
    assert serving_order(jobs, np.arange(2), left, 360.0, "longest").tolist() == [1, 0]


# --- slots -----------------------------------------------------------------------------------------------------------

def test_one_job_on_two_nodes_by_hand():
    # slot 1: 350 s at 3 and 1 steps/s, 1400 of 2400 steps; slot 2: 1000 steps as 750 and 250, 250 s after 10 s
    run = simulate_copies(workload_of([2400], [[3, 1]]))
    assert run.history["steps"].tolist() == [1050, 350, 750, 250]
    assert run.ttd_s == pytest.approx(620)
    assert run.cru == pytest.approx((2 * 360 + 2 * 260) / (2 * 720))
    assert run.intervals["busy_gpu_s"].tolist() == pytest.approx([720, 520])
    assert run.intervals["active"].tolist() == [1, 1] and np.isnan(run.backlog_gru)  # never more jobs than GPUs


def test_more_jobs_than_nodes_are_a_backlog():
    run = simulate_copies(workload_of([350, 350, 350], [[1], [1], [1]]))  # one after the other, a slot each
    assert run.intervals["active"].tolist() == [3, 2, 1]
    assert run.backlog_gru == pytest.approx(1) and sorted(run.jct_s) == pytest.approx([360, 720, 1080])


def test_a_wrong_belief_costs_a_second_slot_and_no_third():
    # believed equal, 502 steps each: the slow one does 350 of them, and 152 are left, as 114 and 38, 38 s each
    run = simulate_copies(workload_of([1004], [[3, 1]]), believed=np.array([[1.0, 1.0]]))
    assert run.history["steps"].tolist() == [502, 350, 114, 38]
    assert run.ttd_s == pytest.approx(360 + 10 + 38)


def test_trimmed_nodes_save_node_time_and_not_time():
    all_nodes, few = (simulate_copies(workload_of([100], [[3, 1]]), HadarE(trim=trim)) for trim in (False, True))
    assert (all_nodes.ttd_s, few.ttd_s) == pytest.approx((35, 10 + 100 / 3))  # 75 and 25 steps, or 100 on one
    assert all_nodes.intervals["busy_gpu_s"].sum() == pytest.approx(70)
    assert few.intervals["busy_gpu_s"].sum() == pytest.approx(10 + 100 / 3)


def test_a_node_that_cannot_finish_uses_the_whole_slot():
    job, node, done, ran_s = run_slot(np.array([0, -1, 0]), np.array([1800, 0, 100]), np.array([[3.0, 9.0, 1.0]]),
                                      HadarE())
    assert (job.tolist(), node.tolist(), done.tolist()) == ([0, 0], [0, 2], [1050, 100])
    assert ran_s == pytest.approx([360, 110])


@settings(max_examples=30, deadline=None)
@given(workloads(), options)
def test_steps_are_conserved_and_every_slot_is_a_valid_allocation(workload, how):
    run = simulate_copies(workload, how)
    jobs, left = workload.jobs, workload.jobs.steps.astype(float)
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
    run = simulate_copies(workload, HadarE(how.order, slot_s=how.slot_s, overhead_s=how.overhead_s))
    working = run.history.groupby("round").size()
    ends = set(run.history.groupby("job")["round"].max())
    assert set(working.index[working < len(workload.node_name)]) <= ends


@settings(max_examples=20, deadline=None)
@given(workloads(), st.data())
def test_wrong_beliefs_let_all_jobs_end_too(workload, data):
    shape = workload.jobs.rate.shape
    guess = data.draw(st.lists(st.floats(0.01, 100), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    run = simulate_copies(workload, believed=np.array(guess).reshape(shape))
    assert run.history.groupby("job")["steps"].sum().tolist() == workload.jobs.steps.tolist()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 6))
def test_more_equal_nodes_never_end_one_job_later(steps, num_nodes):
    ttd_s = [simulate_copies(workload_of([steps], np.ones((1, nodes)))).ttd_s for nodes in (num_nodes, num_nodes + 1)]
    assert ttd_s[1] <= ttd_s[0] + 1e-9


@pytest.mark.parametrize("cluster", NODES)
@pytest.mark.parametrize("mix", MIXES)
def test_copies_end_the_mixes_of_the_paper_no_later_than_hadar(cluster, mix):
    workload = node_workload(cluster, mix)
    assert len(workload.job_name) == int(mix.split("-")[1]) and workload.num_gpus == 5
    forked, alone = simulate_copies(workload, HadarE("longest")), simulate(workload, Hadar())
    assert forked.ttd_s <= alone.ttd_s
    for _, places in forked.history.groupby("round"):
        for job, own in places.groupby("job"):  # each copy alone is an allocation of one GPU
            for node in own["node"]:
                check_allocation(workload.cluster, workload.jobs, Allocation(*np.array([[job], [node], [1]])))


# --- does it train? --------------------------------------------------------------------------------------------------

def test_gradients_are_those_of_finite_differences():
    task, weights = spiral_task(np.random.default_rng(0), num_points=40), first_weights(np.random.default_rng(1))
    step_size, tiny = 1e-3, 1e-6
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


def test_one_copy_is_plain_training():
    curve = training_curve(3, [2.0], num_steps=150)
    rng = np.random.default_rng([3, 0])
    task, weights = spiral_task(rng), first_weights(rng)
    plain = train(weights, task, 150, np.random.default_rng([3, 1]))
    likelihood = chances(plain, task.test_x)[1][np.arange(len(task.test_x)), task.test_label]
    assert curve["steps"].tolist() == [100, 150]
    assert curve["loss"].iloc[-1] == pytest.approx(float(-np.log(likelihood).mean()))


def test_averaged_copies_learn_but_less_than_the_fastest_alone_in_the_same_time():
    ways = {"five": ([4.0, 2, 2, 1, 1], {}), "fastest": ([1.0], {"num_steps": 800, "steps_per_round": 40}),
            "few": ([1.0], {"num_steps": 520, "steps_per_round": 26})}  # (40^2 + 2 * 20^2 + 2 * 10^2) / 100 = 26
    loss = {way: np.mean([training_curve(seed, rates, **how)["loss"].iloc[-1] for seed in range(3)])
            for way, (rates, how) in ways.items()}
    untrained = training_curve(0, [1.0], num_steps=1)["loss"].iloc[-1]
    assert loss["fastest"] < loss["five"] < 0.2 * untrained
    assert loss["five"] == pytest.approx(loss["few"], rel=0.15)


# --- what is refused -------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("wrong", "says"), [
    (lambda: copy_ids(100, 1, 100), "job 100 of at most 100"),
    (lambda: copy_ids(-1, 1, 100), "job -1 of at most 100"),
    (lambda: divide_steps(-1, [1.0]), "-1 steps"),
    (lambda: divide_steps(5, [0.0, 0.0]), "one rate above 0"),
    (lambda: divide_steps(5, [2.0, -1.0]), "for rates"),
    (lambda: consolidate([(np.ones(1),)], [0]), "some copy must have done some"),
    (lambda: consolidate([(np.ones(1),)], [1, 1]), "1 copies did"),
    (lambda: pmi(GPUS["T4"], "tflops"), "is no index"),
    (lambda: node_workload("moon", "M-1"), "choose from aws, testbed"),
    (lambda: node_workload("aws", "M-2"), "no mix 'M-2'"),
    (lambda: simulate_copies(workload_of([5], [[1]]), HadarE("shortest")), "'shortest' is no order"),
    (lambda: simulate_copies(workload_of([5], [[1]]), HadarE(slot_s=10.0)), "an overhead of 10.0 s"),
    (lambda: simulate_copies(workload_of([5, 5], [[1], [0.002]])), "job 1 does no step"),
    (lambda: simulate_copies(workload_of([5], [[0]])), "job 0 does no step"),
    (lambda: simulate_copies(workload_of([5], [[1]]), believed=np.zeros((1, 1))), "job 0 does no step"),
])
def test_bad_input_is_refused_with_a_reason(wrong, says):
    with pytest.raises(InputError, match=says):
        wrong()


def test_a_job_is_registered_once():
    tracker = JobTracker(max_job_count=10)
    tracker.register(3, 100, 2)
    with pytest.raises(InputError, match="registered already"):
        tracker.register(3, 100, 2)


def test_larger_nodes_and_gangs_are_refused():
    one = workload_of([5], [[1]])
    large = Workload(one.job_name, one.node_name, one.type_name, Cluster(np.array([0]), np.array([2])), one.jobs)
    gang = Workload(one.job_name, one.node_name, one.type_name, one.cluster, one.jobs._replace(workers=np.array([2])))
    for wrong in (large, gang):
        with pytest.raises(InputError, match="one GPU and jobs with one worker"):
            simulate_copies(wrong)
