"""FAR for many batches at once: a run in a batch is the run alone, to the last bit, on every device."""
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.far.allocations import family, first_allocation, least_makespans, raises
from sched_lab.far.baselines import best_partition, first_free, fix_partition_best, partition_name
from sched_lab.far.bounds import area_bound, least_work, longest_bound, lower_bound
from sched_lab.far.lockstep import (
    added_up,
    best_plans,
    bytes_per_run,
    check_runs,
    cuts,
    families,
    fixed_makespans_s,
    ideals_s,
    longest_bounds_s,
    lower_bounds_s,
    ranks,
    repartition_runs,
    runs_of,
    score_runs,
)
from sched_lab.far.mig import mig_of, without_reconfiguration
from sched_lab.far.refine import ROUNDING, best_plan, far
from sched_lab.far.repartition import longest_first, repartition
from sched_lab.far.tasks import SCALINGS, WIDTHS, generate_times
from sched_lab.lab.arrays import get_xp, to_host
from sched_lab.lab.frames import InputError


def cuda_is_absent() -> str:
    """Why there is no GPU to compute on, or nothing."""
    try:
        get_xp("cuda")
    except InputError as error:
        return str(error)
    return ""


CUDA = pytest.param("cuda", marks=pytest.mark.skipif(bool(cuda_is_absent()), reason=cuda_is_absent()))
DEVICES = pytest.mark.parametrize("device", ["cpu", "strict", CUDA])
A30 = mig_of("A30")
A100 = mig_of("A100")


@st.composite
def cases(draw):
    """GPUs and a few batches: whole times (ties everywhere) or a third of them, sizes that do not fit."""
    mig = mig_of(draw(st.sampled_from(["A30", "A100", "H100"])), draw(st.integers(1, 3)))
    mig = draw(st.sampled_from([mig, without_reconfiguration(mig)]))  # without, makespans tie as well
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 9)), len(mig.sizes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    times_s = rng.integers(1, draw(st.sampled_from([3, 20])), shape) / draw(st.sampled_from([1, 3]))
    if draw(st.booleans()):
        times_s = np.sort(times_s)[:, :, ::-1].copy()  # times that never grow
    if draw(st.booleans()):
        times_s[rng.random(shape) < 0.3] = np.inf
        times_s[:, :, draw(st.integers(0, shape[2] - 1))] = rng.integers(1, 9, shape[:2])
    return mig, times_s


def generated(mig, num_runs, num_tasks, scaling="mixed"):
    rng = np.random.default_rng(num_tasks)
    return np.array([generate_times(mig, num_tasks, SCALINGS[scaling], WIDTHS["wide"], rng) for _ in range(num_runs)])


def bounds_of_members(times_s, sizes, num_slices):
    """`least_makespans` of a family."""
    first = first_allocation(times_s, sizes, False)
    return least_makespans(times_s, sizes, first, raises(times_s, sizes, False), num_slices)


def members_tried(mig, times_s):
    """How many members the scalar search schedules: by increasing bound, until a bound is above the best."""
    members = family(times_s, np.array(mig.sizes))
    order = longest_first(times_s)
    least_s = bounds_of_members(times_s, np.array(mig.sizes), mig.total_slices)
    best_s = np.inf
    tried = 0
    for k in np.argsort(least_s, kind="stable"):
        if least_s[k] * (1 - ROUNDING) > best_s:
            break
        best_s = min(best_s, repartition(mig.tree, times_s, order, members[k], np.inf, False)[2])
        tried = tried + 1
    return tried


def check_phase_1(mig, times_s, device):
    found = families(runs_of(mig, times_s, get_xp(device)))
    members, least_s, size = (to_host(x) for x in found)
    for r, one in enumerate(times_s):
        alone = family(one, np.array(mig.sizes))
        assert size[r] == len(alone)
        assert np.array_equal(members[:size[r], :, r], alone)
        assert np.array_equal(least_s[:size[r], r], bounds_of_members(one, np.array(mig.sizes), mig.total_slices))
        assert np.isinf(least_s[size[r]:, r]).all()


def check_phases_1_and_2(mig, times_s, device):
    runs = runs_of(mig, times_s, get_xp(device))
    best = type(found := best_plans(runs, families(runs)))(*(to_host(x) for x in found))
    for r, one in enumerate(times_s):
        plan, end_s, makespan_s, member = best_plan(mig.tree, one, np.array(mig.sizes), False)
        assert np.array_equal(best.instance[:, r], plan) and np.array_equal(best.end_s[:, r], end_s)
        assert (best.makespan_s[r], best.member[r]) == (makespan_s, member)
        assert best.tried[r] == members_tried(mig, one)


def check_bounds(mig, times_s, device):
    runs = runs_of(mig, times_s, get_xp(device))
    sizes = np.array(mig.sizes)
    with_s, without_s, ideal_s, longest_s = (to_host(x) for x in (
        lower_bounds_s(runs), lower_bounds_s(runs, with_reconfiguration=False), ideals_s(runs), longest_bounds_s(runs)))
    for r, one in enumerate(times_s):
        assert with_s[r] == lower_bound(mig, one)
        assert without_s[r] == lower_bound(mig, one, with_reconfiguration=False)
        assert ideal_s[r] == least_work(one, sizes, np.zeros(len(sizes)), np.inf) / mig.total_slices
        assert ideal_s[r] == pytest.approx(area_bound(mig, one), rel=1e-14)
        assert longest_s[r] == longest_bound(mig, one)


def check_fixed(mig, times_s, device):
    fixed_s = to_host(fixed_makespans_s(runs_of(mig, times_s, get_xp(device))))
    ways = cuts(mig)[0]
    for r, one in enumerate(times_s):
        assert fixed_s[:, r].tolist() == [first_free(one, mig.tree.size_index[list(way)])[1].max() for way in ways]


# --- a run in a batch is the run alone -------------------------------------------------------------------------------

@DEVICES
@given(case=cases())
@settings(max_examples=15, deadline=None)
def test_phase_1_of_a_batch_is_phase_1_alone(device, case):
    check_phase_1(*case, device)


@DEVICES
@given(case=cases())
@settings(max_examples=15, deadline=None)
def test_phases_1_and_2_of_a_batch_are_those_alone(device, case):
    check_phases_1_and_2(*case, device)


@DEVICES
@given(case=cases())
@settings(max_examples=15, deadline=None)
def test_bounds_of_a_batch_are_those_alone(device, case):
    check_bounds(*case, device)


@DEVICES
@given(case=cases())
@settings(max_examples=15, deadline=None)
def test_fixed_partitions_of_a_batch_are_those_alone(device, case):
    check_fixed(*case, device)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize("mig", [A30, A100, mig_of("A100", 2), mig_of("A30", 2, has_one_sequence=True)],
                         ids=["A30", "A100", "two A100", "two A30, one sequence"])
@pytest.mark.parametrize("num_tasks", [7, 25])
def test_generated_batches_are_scored_as_alone(device, mig, num_tasks):
    times_s = generated(A100, 40, num_tasks)[:, :, [k for k, s in enumerate(A100.sizes) if s in mig.sizes]]
    for check in (check_phase_1, check_phases_1_and_2, check_bounds, check_fixed):
        check(mig, times_s, device)


# --- by hand ---------------------------------------------------------------------------------------------------------

def test_a_sum_is_added_up_from_the_first_row_on():
    # 1e16 + 1 is 1e16, twice; the ones first would make 2
    assert added_up(np, np.array([[1e16], [1.0], [1.0], [-1e16]])).tolist() == [0.0]
    assert added_up(np, np.array([[1.0], [1.0], [1e16], [-1e16]])).tolist() == [2.0]
    values = np.random.default_rng(0).random((1000, 1))  # NumPy adds a long row in groups
    assert added_up(np, values)[0] == sum(values[:, 0].tolist()[1:], start=float(values[0, 0])) != values.sum()


def test_a_run_that_is_done_waits_for_the_others_and_keeps_its_result():
    # two tasks on one A30. Both on the whole GPU: two pops. Both on single slices: root, S0-S1, S2-S3 are cut, so five
    times_s = np.array([[[99.0, 99, 1], [99, 99, 1]], [[1, 99, 99], [1, 99, 99]]])
    runs = runs_of(A30, times_s, np)
    plans = repartition_runs(runs, ranks(runs), np.array([[2, 0], [2, 0]]), np.arange(2))
    assert plans.pops.tolist() == [2, 5] and plans.steps == 5
    # created 0.13, then 1 + 1; the other: created one after the other, 0.11 and 0.22, then 1
    assert plans.makespan_s == pytest.approx([2.13, 1.22])
    assert plans.instance.tolist() == [[0, 2], [0, 3]]


def test_the_longest_task_of_equal_ones_is_raised_first_in_number():
    times_s = np.array([[[5.0, 4, 3], [5, 4, 3]]])
    members = families(runs_of(A30, times_s, np)).allocation[:, :, 0]
    assert members.tolist() == [[0, 0], [1, 0], [1, 1], [2, 1], [2, 2]]


def test_of_members_that_end_together_the_first_wins_even_if_tried_later():
    # member 1: both on one slice, 1 and 2 s. Members 2 and 3: the second task on two slices, 2 s, then on four, 1 s.
    # Bounds 2, 2 and (1 + 4) / 4 = 1.25: member 3 is tried first, 1 + 1 = 2 s, then member 1, 2 s. 4 and 5 raise
    # the first task, to 2 s and works of 4 and 8: bounds 2 and (8 + 4) / 4 = 3, the last is not tried
    times_s = np.array([[[1.0, 2, 2], [2, 2, 1]]])
    runs = runs_of(without_reconfiguration(A30), times_s, np)
    found = families(runs)
    best = best_plans(runs, found)
    assert found.least_s[:, 0].tolist() == [2, 2, 1.25, 2, 3]
    assert (best.tried[0], best.makespan_s[0], best.member[0]) == (4, 2.0, 0)


# --- one call --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_a_score_is_what_far_and_the_bounds_say(device):
    times_s = generated(A100, 20, 12, "good")
    for one, row in zip(times_s, score_runs(A100, times_s, device=device).itertuples(), strict=True):
        result = far(A100, one)
        assert (row.before_s, row.member) == (result.before_s, result.member)
        assert row.lower_bound_s == lower_bound(A100, one)
        assert row.rho_before == pytest.approx(result.before_s / area_bound(A100, one), rel=1e-14)
        assert row.members == len(family(one, np.array(A100.sizes))) and row.tried == members_tried(A100, one)
        assert row.fixpart_best_s == fix_partition_best(A100, one).makespan_s
        assert row.partition == partition_name(A100, best_partition(A100, one))


@DEVICES
def test_the_score_does_not_depend_on_what_stands_beside_it(device):
    times_s = generated(A30, 7, 5, "poor")[:, :, :3]
    together = score_runs(A30, times_s, device=device)
    for at_once in (1, 3, 7, 100):
        assert score_runs(A30, times_s, device=device, at_once=at_once).equals(together)
    backwards = score_runs(A30, times_s[::-1], device=device)
    assert backwards[::-1].reset_index(drop=True).equals(together)


def test_fixed_partitions_on_which_a_task_fits_nowhere_never_end():
    only_whole = [np.inf, np.inf, 2.0]
    only_ones = [3.0, np.inf, np.inf]
    scores = score_runs(A30, np.array([[only_whole, only_whole], [only_whole, only_ones]]))
    assert scores["fixpart_best_s"].tolist() == [4.0, np.inf] and scores["partition"][0] == "4"
    assert np.isfinite(scores["before_s"]).all()


@pytest.mark.parametrize(("mig", "num_tasks"), [(A30, 4), (A30, 60), (A100, 20), (mig_of("A100", 3), 10)],
                         ids=["small", "many tasks", "A100", "three A100"])
def test_runs_take_no_more_memory_than_estimated_and_not_far_less(mig, num_tasks):
    times_s = generated(A100, 200, num_tasks)[:, :, :len(mig.sizes)]
    num_runs = 200
    score_runs(mig, times_s)
    tracemalloc.start()
    score_runs(mig, times_s)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert num_runs * bytes_per_run(mig, num_tasks) / 8 < peak < num_runs * bytes_per_run(mig, num_tasks)


def test_too_many_runs_are_refused_with_the_number_that_fits():
    times_s = generated(A30, 9, 4)[:, :, :3]
    room = 5 * bytes_per_run(A30, 4)
    assert len(score_runs(A30, times_s, max_bytes=room)) == 9  # in two parts
    with pytest.raises(InputError, match="6 runs need .* ask for at most 5"):
        score_runs(A30, times_s, at_once=6, max_bytes=room)


GOOD = [[2.0, 2.0, 1.0]]


@pytest.mark.parametrize(("times_s", "message"), [
    ([], "batches of no tasks"),
    ([np.zeros((0, 3))], "batches of 0 tasks"),
    ([GOOD, 2 * GOOD], "batches of 1 and 2 tasks"),
    ([GOOD, [[1.0, 2.0]]], "batch 1: times of shape"),
    ([GOOD, GOOD, [[1.0, 0.0, 1.0]]], "batch 2: time 0 s of task 0 on 2 slices"),
    ([[[np.nan, 1.0, 1.0]]], "batch 0: time nan s"),
    ([GOOD, [[np.inf, np.inf, np.inf]]], "batch 1: task 0 fits on no instance"),
])
def test_bad_batches_are_refused_by_number(times_s, message):
    with pytest.raises(InputError, match=message):
        check_runs(A30, times_s)


@pytest.mark.parametrize(("options", "message"), [
    ({"device": "tpu"}, "no device 'tpu'"),
    ({"at_once": 0}, "0 runs at once"),
    ({"at_once": -3}, "-3 runs at once"),
])
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        score_runs(A30, [GOOD], **options)
