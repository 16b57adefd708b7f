"""Belief and truth: no error changes nothing, errors change decisions alone, stored headlines are the book's."""
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sched_lab import andreas, far, online
from sched_lab.far.tasks import SCALINGS, WIDTHS, generate_times
from sched_lab.fleet.ask.day import draw_day, nodes_of
from sched_lab.hadar.baselines import Tiresias
from sched_lab.hadar.model import check_simulation, figure_one
from sched_lab.hadar.simulation import run_rounds
from sched_lab.hardware import default_hardware
from sched_lab.lab.frames import InputError
from sched_lab.online.inflation import sample_arrivals
from sched_lab.power import datacenter_power_w
from sched_lab.traces import Tasks
from studies.headlines import against_fgd, example_cluster, summed_up
from studies.robustness import (
    NOMINAL,
    Inflation,
    Misled,
    blend,
    carried_out,
    day_believed,
    jobs_believed,
    misjudged,
    placed_believing,
    settings_of,
    state_at,
    true_watts,
)
from tests.studies.stored import stored


def rng(seed=0):
    return np.random.default_rng(seed)


# ---- errors

@pytest.mark.parametrize("most", [1, 1.1, 2, 5])
def test_errors_of_all_sizes_are_the_same_errors(most):
    factors = misjudged(most, (50, 3), rng())
    assert factors.shape == (50, 3)
    assert ((1 / most <= factors) & (factors <= most)).all()
    assert np.allclose(misjudged(most**2, (50, 3), rng()), factors**2)


@pytest.mark.parametrize("most", [0.5, 0, -1, np.nan, np.inf])
def test_no_error_is_smaller_than_none(most):
    with pytest.raises(InputError, match="give 1 for no error"):
        misjudged(most, 3, rng())


def test_watts_stay_in_their_ranges_and_guesses_leave_them():
    usual = default_hardware()
    for seed in range(20):
        drawn = true_watts(usual, 1.0, rng(seed))
        for name, model in [*usual.gpus.items(), *usual.cpus.items()]:
            own = (drawn.gpus | drawn.cpus)[name]
            assert model.idle_w.low <= own.idle_w.value <= model.idle_w.high
            assert model.full_w.low <= own.full_w.value <= model.full_w.high
        assert drawn.gpus["G2"].full_w.value == 150
    guessed = {true_watts(usual, 3.0, rng(seed)).gpus["G2"].full_w.value for seed in range(20)}
    assert len(guessed) > 10 and 50 <= min(guessed) and max(guessed) <= 450
    assert true_watts(usual, 3.0, rng(1)).gpus["T4"] == true_watts(usual, 1.0, rng(1)).gpus["T4"]


# ---- placing

@pytest.fixture(scope="module")
def work():
    cluster, tasks = online.toy()
    return Inflation(cluster, tasks, sample_arrivals(cluster, tasks, 0))


def test_who_believes_the_truth_places_as_ever(work):
    run = placed_believing(work, "fgd", work.tasks, 0)
    known = online.simulate(work.cluster, work.tasks, "fgd", seed=0, arrivals=work.arrivals, power="package")
    assert (run.placements.node == known.placements.node).all()
    assert (run.placements.gpu_mask == known.placements.gpu_mask).all()
    assert (run.curve["eopc_w"] == known.curve["eopc_w"]).all()


def test_who_believes_another_month_does_not(work):
    whole = np.flatnonzero(work.tasks.num_gpus > 1)
    other = Tasks(*(getattr(work.tasks, name)[whole] for name in work.tasks.__dataclass_fields__))
    runs = [placed_believing(work, "fgd", believed, 0) for believed in (work.tasks, other)]
    assert (runs[0].placements.task_row == runs[1].placements.task_row).all()
    assert (runs[0].curve["arrived_gpu_milli"] == runs[1].curve["arrived_gpu_milli"]).all()
    assert (runs[0].curve["frag_milli"] != runs[1].curve["frag_milli"]).any()  # another month's fragments


def test_a_state_is_billed_as_the_run_was(work):
    run = placed_believing(work, "fgd", work.tasks, 0)
    for row in (len(run.curve) // 2, len(run.curve) - 1):
        state = state_at(work, run.placements, run.curve["x"].iloc[row])
        assert sum(datacenter_power_w(NOMINAL.of(work.cluster), state)) == run.curve["eopc_w"].iloc[row]
        assert (state.memory_left_mib >= 0).all()


def test_the_catalogues_own_watts_are_the_papers(work):
    models = dict.fromkeys(work.cluster.gpu_model[work.cluster.num_gpus > 0].tolist())
    same = settings_of(default_hardware(), models).of(work.cluster)
    for mine, theirs in zip(same, NOMINAL.of(work.cluster), strict=True):
        assert np.array_equal(mine, theirs)


def test_a_blend_has_its_share_of_the_other_month(work):
    tasks = work.tasks
    other = replace(tasks, name=np.array([f"other {name}" for name in tasks.name], object))
    for share, count in ((0, 0), (0.5, round(0.5 * len(tasks))), (1, len(tasks))):
        blended = blend(tasks, other, share, rng())
        assert len(blended) == len(tasks)
        assert sum(name.startswith("other") for name in blended.name) == count
    assert (blend(tasks, other, 0, rng()).name == tasks.name).all()


# ---- jobs

def test_andreas_is_billed_for_what_is_true():
    instance = andreas.toy()
    known = andreas.simulate(instance, "edf")
    told = andreas.simulate(instance, "edf", misjudged_by=np.ones(5))
    assert (told.end_s == known.end_s).all() and told.energy_eur == known.energy_eur
    for seed in range(3):
        wrong = andreas.simulate(instance, "greedy", misjudged_by=misjudged(4, 5, rng(seed)))
        andreas.check(instance, wrong)
    with pytest.raises(InputError, match="one number above 0 for each job"):
        andreas.simulate(instance, "edf", misjudged_by=np.ones(4))
    with pytest.raises(InputError, match="one number above 0 for each job"):
        andreas.simulate(instance, "edf", misjudged_by=np.array([1, 1, 0, 1, 1]))


def test_a_scheduler_that_is_told_the_truth_decides_as_ever():
    work = figure_one()
    known = run_rounds(work, Tiresias())
    told = run_rounds(work, Misled(Tiresias(), jobs_believed(work.jobs, 1, 1, rng())))
    assert (told.end_s == known.end_s).all()
    wrong = run_rounds(work, Misled(Tiresias(), jobs_believed(work.jobs, 4, 2, rng())))
    check_simulation(work, wrong)


def test_a_misled_scheduler_sees_what_it_believes():
    seen = []

    class Watcher(Tiresias):
        def allocate(self, state):
            seen.append(state)
            return super().allocate(state)

    work = figure_one()
    believed = work.jobs._replace(steps=2 * work.jobs.steps, rate=work.jobs.rate / 2)
    run = run_rounds(work, Misled(Watcher(), believed))
    assert (run.end_s == run_rounds(work, Tiresias()).end_s).all()  # Tiresias knows no lengths
    assert (seen[0].remaining == 2 * work.jobs.steps).all() and (seen[0].jobs.rate == believed.rate).all()
    assert all((state.remaining <= believed.steps).all() for state in seen)


def test_a_plan_is_carried_out_in_its_order():
    mig = far.mig_of("A100")
    times_s = generate_times(mig, 12, SCALINGS["mixed"], WIDTHS["wide"], rng())
    plan = far.policy_of("far").scalar_form.schedule(mig, times_s * misjudged(1.5, times_s.shape, rng(1)))
    done = carried_out(plan, times_s)
    assert (done.instance == plan.instance).all()
    for instance in set(plan.instance.tolist()):
        own = np.flatnonzero(plan.instance == instance)
        assert (np.argsort(plan.start_s[own]) == np.argsort(done.start_s[own])).all()
    right = far.policy_of("far").scalar_form.schedule(mig, times_s)
    assert np.allclose(carried_out(right, times_s).end_s, right.end_s)


def test_a_believed_day_differs_in_speeds_alone():
    day = draw_day(nodes_of(example_cluster()), 0)
    believed = day_believed(day, 2, 1.2, rng())
    ratio = believed.training.rate / day.training.rate
    assert ratio.max() <= 2.4 and ratio.min() >= 1 / 2.4 and np.ptp(ratio) > 1
    assert np.allclose(ratio, ratio[:, :1])  # the same for every number of GPUs
    assert (believed.training.steps == day.training.steps).all() and believed.services is day.services
    assert np.array_equal(day_believed(day, 1, 1, rng()).training.rate, day.training.rate)


# ---- frames

def test_a_summary_is_of_its_own_group():
    rows = pd.MultiIndex.from_product([["small", "large"], range(4)], names=["error", "seed"])
    found = summed_up(pd.DataFrame({"a": [1.0, 2, 3, 4, 10, 10, 10, 10]}, rows), ["error"])
    assert found["mean"].tolist() == [2.5, 10] and found.loc[1, ["low", "high"]].tolist() == [10, 10]
    assert 1 <= found.loc[0, "low"] < 2.5 < found.loc[0, "high"] <= 4


def test_a_rival_is_right_even_where_all_are_wrong():
    frame = pd.DataFrame({"month": ["today", "today", "other", "other"], "share": [0.0, 0, 1, 1], "seed": 0,
                          "policy": ["fgd", "joint"] * 2, "eopc_w": [100.0, 80, 200, 90]})
    saved = against_fgd(frame, "eopc_w").set_index(["month", "policy"])["mean"]
    assert np.allclose(saved[[("today", "joint"), ("other", "joint"), ("other", "fgd")]], [20, 10, -100])


def test_without_an_error_the_headlines_are_the_books():
    unseen = stored("andreas/unseen.csv").query("num_nodes == 10").set_index(["scenario", "factor", "seed", "method"])
    planned = stored("fleet/robust_andreas.csv").query("most == 1")
    for row in planned.itertuples():
        known = unseen.loc[(row.scenario, str(row.factor), row.seed, row.method), "total_eur"]
        assert abs(row.total_eur - known) < 1e-5
    energy = stored("hadar/energy.csv").query("table == 'measured'").set_index(["scheduler", "seed"])
    for row in stored("fleet/robust_hadar.csv").query("longer == 1 and faster == 1 and catalogue == -1").itertuples():
        known = energy.loc[(row.scheduler, row.seed)]
        assert np.allclose([row.ttd_h, row.mean_jct_h, row.on_kwh],
                           known[["ttd_h", "mean_jct_h", "on_kwh"]].astype(float))
    day = stored("fleet/day.csv").set_index(["seed", "variant"])
    mine = stored("fleet/robust_day.csv").query("trouble == 'nothing' and catalogue == -1")
    for row in mine.itertuples():
        assert np.isclose(row.total_eur, day.loc[(row.seed, row.variant), "total_eur"])
