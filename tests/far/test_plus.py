"""FAR+: never worse than FAR, always valid, the same for the same seed."""
import numpy as np
import pytest

from sched_lab.far.mig import check_schedule, mig_of, without_reconfiguration
from sched_lab.far.plus import best_plans, energy, far_plus, heaviest_path_s
from sched_lab.far.refine import far
from sched_lab.far.repartition import loads, run_plan
from sched_lab.lab.frames import InputError
from tests.far.cases import any_times

MIGS = [mig_of(model, gpus) for model in ("A30", "A100", "H100") for gpus in (1, 2)]
EVERY_MIG = [*MIGS, *(without_reconfiguration(mig) for mig in MIGS)]


def test_never_worse_than_far_and_always_valid():
    rng = np.random.default_rng(58)
    gained = 0
    for k in range(24):
        mig = EVERY_MIG[k % len(EVERY_MIG)]
        times_s = any_times(rng, mig, int(rng.integers(1, 16)))
        better = far_plus(mig, times_s, proposals=1000, seed=k, max_visits=0 if k % 3 else 10_000)
        check_schedule(better.schedule, times_s)
        assert better.far_s == far(mig, times_s).schedule.makespan_s
        assert better.schedule.makespan_s <= better.far_s
        gained += better.schedule.makespan_s < better.far_s * 0.999
    assert gained > 6  # a search that returned FAR's own schedule would pass all of the above


def test_more_than_one_seed_and_each_gives_the_same_schedule_again():
    mig = mig_of("A100")
    times_s = any_times(np.random.default_rng(2), mig_of("A100"), 16)
    once, again = (far_plus(mig, times_s, proposals=4000, seed=3).schedule for _ in range(2))
    assert (once.instance == again.instance).all() and (once.start_s == again.start_s).all()
    plans = {tuple(far_plus(mig, times_s, proposals=4000, seed=seed).schedule.instance) for seed in range(4)}
    assert len(plans) > 1


def test_small_batches_get_the_best_plan_and_annealing_never_beats_it():
    rng = np.random.default_rng(7)
    was_better = 0
    for k in range(12):
        mig = EVERY_MIG[k % len(EVERY_MIG)]
        times_s = any_times(rng, mig, int(rng.integers(2, 7)))
        solved = far_plus(mig, times_s)
        annealed = far_plus(mig, times_s, proposals=2000, max_visits=0)
        assert solved.is_proved and not annealed.is_proved
        assert solved.schedule.makespan_s <= annealed.schedule.makespan_s * (1 + 1e-9)
        was_better += solved.schedule.makespan_s < solved.far_s * 0.999
    assert was_better > 2


def test_best_plans_are_sorted_distinct_and_hold_what_far_finds():
    rng = np.random.default_rng(4)
    for mig in MIGS:
        times_s = any_times(rng, mig, 9)
        plans, makespans_s = best_plans(mig.tree, times_s, np.array(mig.sizes), 6)
        assert (np.diff(makespans_s) > 0).all()
        assert makespans_s[0] <= far(mig, times_s).schedule.makespan_s + 1e-9
        for plan, makespan_s in zip(plans, makespans_s, strict=True):
            assert run_plan(mig.tree, loads(mig.tree, times_s, plan)).makespan_s == makespan_s


def test_the_limit_never_hides_a_proposal_that_keeps_it():
    rng = np.random.default_rng(6)
    for mig in MIGS:
        times_s = any_times(rng, mig, 8)
        plan = far(mig, times_s).schedule.instance
        load_s = loads(mig.tree, times_s, plan)
        for weight in (0.0, 1.0):
            free = energy(mig.tree, load_s, weight, np.inf)
            assert heaviest_path_s(mig.tree, load_s) <= free[1] == run_plan(mig.tree, load_s).makespan_s
            assert energy(mig.tree, load_s, weight, free[0] * (1 + 1e-9)) == free


def test_one_task_has_its_instance_made():
    mig = mig_of("A30")
    assert far_plus(mig, np.array([[8.0, 4.0, 3.0]])).schedule.makespan_s == pytest.approx(3.13)  # 0.13 s for S0-S3


@pytest.mark.parametrize("wrong", [{"proposals": -1}, {"chains": 0}, {"seed": -1}, {"max_visits": -1}])
def test_wrong_options_are_refused(wrong):
    with pytest.raises(InputError, match="proposals"):
        far_plus(mig_of("A30"), np.array([[8.0, 4.0, 3.0]]), **wrong)
