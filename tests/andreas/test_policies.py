"""Laws of every policy in the table, whatever it is called."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.andreas.exact import objective_eur
from sched_lab.andreas.greedy import SearchOptions
from sched_lab.andreas.instances import generate, toy_instance
from sched_lab.andreas.model import Assignment, Jobs, check_assignment
from sched_lab.andreas.policies import POLICIES, policy_of
from sched_lab.andreas.rules import Running, nothing_runs, open_nodes
from sched_lab.lab.frames import InputError
from tests.andreas.cases import every_assignment

FEW = SearchOptions(max_iterations=30, tries=3)


def queue_of(seed, num_jobs=5):
    """Nodes, some jobs, and the time when the last of them has arrived."""
    drawn = generate(seed, 2, 1.0, scenario=1 + seed % 2)
    first = np.argsort(drawn.jobs.submission_s, kind="stable")[:num_jobs]
    jobs = Jobs(*(column[first] for column in drawn.jobs))
    return drawn.fleet, jobs, float(jobs.submission_s.max(initial=0.0))


@pytest.mark.parametrize("name", POLICIES)
@given(seed=st.integers(0, 200))
@settings(max_examples=8, deadline=None, derandomize=True)
def test_a_decision_is_valid_repeats_and_leaves_the_queue_as_it_was(name, seed):
    fleet, jobs, now_s = queue_of(seed)
    before = [array.copy() for array in (*fleet, *jobs)]
    one, other = (policy_of(name, FEW)(fleet, jobs, now_s) for _ in range(2))
    check_assignment(fleet, jobs.times_s, one)
    assert all((a == b).all() for a, b in zip(one, other, strict=True))
    assert all((a == b).all() for a, b in zip(before, (*fleet, *jobs), strict=True))


@pytest.mark.parametrize("name", POLICIES)
def test_an_empty_queue_has_an_empty_decision(name):
    fleet, jobs, now_s = queue_of(0, 0)
    assert all(column.shape == (0,) and column.dtype == np.int64 for column in policy_of(name, FEW)(fleet, jobs, now_s))


@pytest.mark.parametrize("name", POLICIES)
def test_options_that_a_policy_does_not_name_do_not_matter(name):
    fleet, jobs, now_s = queue_of(3)
    changed = {"max_iterations": 7, "seed": 5, "as_code": True, "rho": 3.0, "tries": 1, "period_s": 60.0,
               "time_limit_s": 30.0}
    known = POLICIES[name].options
    assert {*known} <= {*changed}
    deaf = FEW._replace(**{option: value for option, value in changed.items() if option not in known})
    plain = policy_of(name, FEW)(fleet, jobs, now_s)
    assert all((a == b).all() for a, b in zip(plain, policy_of(name, deaf)(fleet, jobs, now_s), strict=True))


@pytest.mark.parametrize("name", POLICIES)
def test_nobody_beats_the_best_decision(name):
    fleet, jobs, now_s = queue_of(4, 3)
    least = min(objective_eur(fleet, jobs, now_s, one) for one in every_assignment(fleet, jobs))
    assert objective_eur(fleet, jobs, now_s, policy_of(name, FEW)(fleet, jobs, now_s)) >= least - 1e-9


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_leaves_who_runs_where_it_is_or_begins_anew(name):
    toy = toy_instance()
    waits = np.full(5, -1)
    place = Assignment(waits.copy(), waits.copy())
    place.node[1] = 0  # B on both TESLA of n1
    place.configuration[1] = 1
    running = Running(*place, open_nodes(toy.fleet, toy.fleet.node_gpus))
    found = POLICIES[name].scalar_form(toy.fleet, toy.jobs, 600.0, FEW, running)
    check_assignment(toy.fleet, toy.jobs.times_s, found)
    if "stay where they are" in POLICIES[name].sentence:
        assert (found.node[1], found.configuration[1]) == (0, 1)
    else:
        anew = POLICIES[name].scalar_form(toy.fleet, toy.jobs, 600.0, FEW, nothing_runs(toy.fleet, 5))
        assert (found.node == anew.node).all()


def test_options_out_of_range_are_refused():
    with pytest.raises(InputError, match="0 iterations"):
        policy_of("rg", SearchOptions(max_iterations=0))
    with pytest.raises(InputError, match="time_limit_s is -1"):
        policy_of("exact", SearchOptions(time_limit_s=-1))
