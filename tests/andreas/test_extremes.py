"""Extreme numbers in an instance file: a result that makes sense, or one error in one line."""
import copy
import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.andreas.greedy import SearchOptions
from sched_lab.andreas.instances import TOY
from sched_lab.andreas.model import parse_instance
from sched_lab.andreas.policies import day_policies
from sched_lab.andreas.report import report_of
from sched_lab.andreas.simulation import LOSSES, lower_bound_eur, simulate
from sched_lab.lab.frames import InputError

FEW = SearchOptions(max_iterations=10, tries=2)
HUGE = [1e11, 1e300, 1e308, 10**19, 10**400, -1e11, -1e308, float("inf"), float("nan")]


def toy_with(place, key, value):
    file = copy.deepcopy(TOY)
    where = file if place is None else file[place] if place == "cost_eur_per_h" else file[place][0]
    where[key] = value
    return file


@pytest.mark.parametrize(("place", "key"), [
    ("jobs", "submission_s"), ("jobs", "due_s"), ("jobs", "weight_eur_per_s"), ("jobs", "epochs"), ("jobs", "times_s"),
    ("cost_eur_per_h", "TESLA,1"), ("nodes", "num_gpus"), (None, "now_s")])
def test_a_number_beyond_every_cluster_is_refused_in_one_line(place, key):
    for value in HUGE:
        with pytest.raises(InputError) as caught:
            parse_instance(toy_with(place, key, {"TESLA,1": value} if key == "times_s" else value))
        assert key in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize("time_s", [5e-324, 1e-300, 1e-7, 0.0])
def test_a_run_time_below_a_microsecond_is_refused(time_s):
    with pytest.raises(InputError, match="times_s"):
        parse_instance(toy_with("jobs", "times_s", {"TESLA,1": time_s}))


@pytest.mark.parametrize("name", ["TESLA,1001", "TESLA,1000000000", "TESLA," + "9" * 5000])
@pytest.mark.parametrize("place", ["times_s", "cost_eur_per_h"])
def test_a_configuration_of_a_thousand_million_gpus_takes_no_memory(place, name):
    file = toy_with("jobs", "times_s", {name: 5.0}) if place == "times_s" else toy_with(place, name, 1.0)
    with pytest.raises(InputError, match="no configuration") as caught:
        parse_instance(file)
    assert len(str(caught.value)) < 300 + len(name) * (place == "times_s" and len(name) < 100)


@pytest.mark.filterwarnings("ignore:.*due before it is submitted")
def test_the_largest_numbers_that_are_taken_give_a_bill():
    file = toy_with("jobs", "weight_eur_per_s", 1e6)
    file["jobs"][0] |= {"times_s": {"TESLA,1": 1e10}, "epochs": 10**9, "due_s": -1e10}
    instance = parse_instance({**file, "jobs": file["jobs"][:1]})
    for policy in day_policies():
        costs = report_of(instance, policy, is_simulated=True, how=FEW).summary
        assert costs["penalty_eur"] == pytest.approx(2e16) and len(json.dumps(costs)) < 1000
    assert report_of(instance, "exact").summary["objective_eur"] == pytest.approx(2e16)


def test_no_jobs_cost_nothing():
    assert lower_bound_eur(parse_instance({**TOY, "jobs": []})) == 0


def test_a_free_node_bounds_nothing_where_a_job_cannot_run():
    free = {**TOY, "cost_eur_per_h": dict.fromkeys(TOY["cost_eur_per_h"], 0.0)}
    free["jobs"] = [TOY["jobs"][0] | {"times_s": {"TESLA,1": 100.0}}, TOY["jobs"][1]]
    assert lower_bound_eur(parse_instance(free)) == 0  # not 0 times infinity


def test_a_bound_of_next_to_nothing_is_no_bound_to_compare_with():
    free = {**TOY, "cost_eur_per_h": dict.fromkeys(TOY["cost_eur_per_h"], 0.0)}
    free["jobs"] = [job | {"weight_eur_per_s": 1e-300} for job in TOY["jobs"]]
    instance = parse_instance(free)
    assert "gap_percent" not in report_of(instance, "fifo").summary
    assert "above_bound_percent" not in report_of(instance, "fifo", is_simulated=True).summary


def test_a_run_time_that_a_late_clock_cannot_show_is_refused():
    late = {**TOY, "jobs": [job | {"submission_s": 1.7e9, "due_s": 1.7e9 + 9} for job in TOY["jobs"]]}
    assert np.isfinite(simulate(parse_instance(late), "greedy").end_s).all()  # seconds since 1970
    late["jobs"][0]["times_s"] = {"TESLA,1": 1e-3}
    with pytest.raises(InputError, match="0.001 s is lost in the rounding of a clock"):
        simulate(parse_instance(late), "greedy")


TIMES_S = st.sampled_from([1e-3, 1.0, 60.0, 3600.0, 1e5])
CLOCK_S = st.sampled_from([0.0, 1.0, 1e4, 1e5])


@st.composite
def files(draw):
    """Files with numbers that are all allowed, and far apart."""
    kinds = draw(st.lists(st.sampled_from(["A", "B"]), min_size=1, max_size=3))
    money = st.sampled_from([0.0, 1e-300, 1e-6, 0.5, 1e6])
    jobs = [{"id": f"j{i}", "submission_s": draw(CLOCK_S), "due_s": draw(CLOCK_S) - draw(CLOCK_S),
             "weight_eur_per_s": draw(money), "epochs": draw(st.sampled_from([1, 7, 10**9])),
             "times_s": {name: draw(TIMES_S) for name in draw(st.lists(
                 st.sampled_from([f"{kinds[0]},1", "A,2", "B,1"]), min_size=1, unique=True))} | {f"{kinds[0]},1": 60.0}}
            for i in range(draw(st.integers(1, 4)))]
    return {"nodes": [{"id": f"n{i}", "gpu": kind, "num_gpus": 2} for i, kind in enumerate(kinds)], "jobs": jobs,
            "cost_eur_per_h": {f"{kind},{gpus}": draw(money) for kind in "AB" for gpus in (1, 2)},
            "now_s": draw(st.sampled_from([0.0, 1e5, 1e10]))}


@settings(max_examples=30, deadline=None)
@given(files(), st.sampled_from(sorted(day_policies())), st.booleans(), st.sampled_from(sorted(LOSSES)))
def test_whatever_is_allowed_gives_finite_costs_or_one_error(file, policy, is_simulated, loss):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # due before it is submitted
        instance = parse_instance(file)
    try:
        done = report_of(instance, policy, is_simulated=is_simulated, loss=loss, how=FEW._replace(time_limit_s=5.0))
    except InputError as error:
        assert "\n" not in str(error)
    else:
        numbers = [value for value in done.summary.values() if isinstance(value, float)]
        assert np.isfinite(numbers).all() and max(map(abs, numbers)) < 1e30 and len(done.headline) < 200
