"""No schedule beats the bounds of chapter 55, and its optima are those of another program."""
import re
from types import SimpleNamespace

import numpy as np
import pytest

from sched_lab.far.bounds import (
    MOST_TASKS,
    lower_bound,
    optimum,
    optimum_with_reconfiguration,
    start_loss,
)
from sched_lab.far.mig import mig_of, without_reconfiguration
from sched_lab.far.refine import far
from sched_lab.far.repartition import schedule_of
from sched_lab.lab.jit import interpreted
from sched_lab.traces import find_reference
from tests.far.cases import any_times, mixed_times

SLACK = 1 + 1e-9


def test_deadline_bound_is_the_least_time_that_passes_its_own_test():
    rng = np.random.default_rng(5)
    for model, gpus in (("A30", 1), ("A100", 2)):
        mig = mig_of(model, gpus)
        sizes = np.array(mig.sizes)
        create_s = np.array([mig.tree.create_s[mig.tree.size == s][0] for s in mig.sizes])
        for scale in (0.01, 1.0):
            times_s = any_times(rng, mig, 4) * scale

            def is_possible(deadline_s, times_s=times_s, sizes=sizes, create_s=create_s, mig=mig):
                work = np.where(times_s + create_s <= deadline_s, times_s * sizes, np.inf).min(axis=1).sum()
                lost = mig.num_gpus * min(start_loss(mig), deadline_s)
                return work + lost <= mig.total_slices * deadline_s

            bound_s = lower_bound(mig, times_s)
            assert is_possible(bound_s * SLACK) and not is_possible(bound_s / SLACK)


@pytest.mark.parametrize("find", [optimum, optimum_with_reconfiguration])
def test_exhausted_budget_leaves_a_valid_bound_and_a_plan_no_worse_than_far(find):
    mig = mig_of("A100")
    free = without_reconfiguration(mig) if find is optimum else mig
    times_s = mixed_times(mig, 10, [10, 0], 0.0)
    full = find(mig, times_s)
    far_s = far(free, times_s).schedule.makespan_s
    assert full.is_proved and full.makespan_s < far_s  # so that a budget can be too small
    for max_visits in (0, 1000, 100_000):  # the tables alone take more than 100,000 splits
        cut = find(mig, times_s, max_visits=max_visits)
        assert not cut.is_proved and cut.bound_s <= full.makespan_s <= cut.makespan_s <= far_s


@pytest.mark.parametrize(("model", "num_tasks", "cases"), [("A30", 4, 60), ("A100", 3, 20)])
def test_search_finds_the_same_optimum_from_a_poor_plan(monkeypatch, model, num_tasks, cases):
    mig = mig_of(model)
    rng = np.random.default_rng(3)
    with interpreted(True):
        for _ in range(cases):
            times_s = np.minimum(any_times(rng, mig, num_tasks), 300) * rng.choice([0.01, 0.03, 0.1, 1.0])
            found = optimum_with_reconfiguration(mig, times_s)
            poor = schedule_of(mig, times_s, np.full(num_tasks, np.argmin(mig.tree.span)))
            with monkeypatch.context() as patched:
                patched.setattr("sched_lab.far.bounds.far", lambda *_, poor=poor: SimpleNamespace(schedule=poor))
                again = optimum_with_reconfiguration(mig, times_s)
            assert again.is_proved and again.makespan_s <= found.makespan_s * SLACK


def test_search_that_was_cut_short_never_claims_a_proof():
    mig = mig_of("A100")
    rng = np.random.default_rng(8)
    num_cut = 0
    for _ in range(3):
        times_s = any_times(rng, mig, 7) * 0.05  # creations count: the search has much to do
        best_s = optimum_with_reconfiguration(mig, times_s).makespan_s
        for budget in np.geomspace(5e3, 5e4, 12):  # the tables take less than 8,000 splits
            cut = optimum_with_reconfiguration(mig, times_s, max_visits=int(budget))
            num_cut += not cut.is_proved and cut.bound_s > lower_bound(mig, times_s)
            assert not cut.is_proved or cut.makespan_s <= best_s * SLACK
    assert num_cut > 0  # some ran out of budget after their tables were complete


def test_too_many_tasks_get_the_plan_of_far_and_the_deadline_bound(monkeypatch):
    monkeypatch.setattr("sched_lab.far.bounds.fill_tables", None)  # must not be called: 3^21 splits
    mig = mig_of("A30")
    times_s = np.random.default_rng(6).uniform(1, 9, (MOST_TASKS + 1, 3))
    found = optimum(mig, times_s)
    free = without_reconfiguration(mig)
    assert not found.is_proved and found.bound_s == lower_bound(free, times_s)
    assert found.makespan_s == far(free, times_s).schedule.makespan_s


def golden_ratios() -> list[tuple[int, int, float, float, np.ndarray]]:
    """GPU model, GPUs, FAR, optimum and times of the worst cases that another program's search found."""
    path = find_reference("far/ratios.txt")
    if path is None:
        pytest.skip("far/ratios.txt of the reference results is absent")
    cases = re.split(r"^gpu ", path.read_text(), flags=re.M)[1:]
    found = []
    for case in cases:
        head, *lines = case.strip().splitlines()
        model, gpus, far_s, opt_s = re.match(r"(\d+) x(\d+) .* far (\S+) opt (\S+)", head).groups()
        times_s = np.array([line.split() for line in lines], float)
        found.append((int(model), int(gpus), float(far_s), float(opt_s), times_s))
    return found


def test_optima_are_those_of_an_independent_branch_and_bound():
    cases = golden_ratios()
    assert cases
    for model, gpus, _, opt_s, times_s in cases:
        found = optimum(mig_of(f"A{model}", gpus), times_s)
        assert found.is_proved and found.makespan_s == pytest.approx(opt_s, abs=5e-5)  # times are rounded to 1e-5
