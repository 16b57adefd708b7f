"""ANDREAS proxies: the authors' program, both objectives in plain Python, and what each rewards."""
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sched_lab.andreas.instances import toy_instance
from sched_lab.andreas.model import Assignment, Fleet, Instance, Jobs, check_assignment
from sched_lab.andreas.proxy import (
    OBJECTIVES,
    PERIOD_S,
    RHO,
    code_objective,
    cost_eur_per_s,
    first_completion_s,
    gpus_in_use,
    paper_objective,
    proxy_eur,
    slowest_s,
)
from sched_lab.lab.frames import InputError
from tests.andreas.cases import each_case, golden, instance_of


def placed(instance: Instance, places: dict[str, list[Any] | None]) -> Assignment:
    """Read an assignment of the reference files: node, perhaps GPU type, GPUs."""
    number = {instance.configuration_name(c): c for c in range(len(instance.fleet.configuration_gpus))}
    node = np.full(len(instance.job_name), -1)
    configuration = np.full(len(instance.job_name), -1)
    for job, name in enumerate(instance.job_name):
        if place := places.get(name):
            node[job] = instance.node_name.index(place[0])
            kind = instance.type_name[instance.fleet.node_type[node[job]]]
            configuration[job] = number[f"{kind},{place[-1]}"]
    assignment = Assignment(node, configuration)
    check_assignment(instance.fleet, instance.jobs.times_s, assignment)
    return assignment


def value_eur(instance: Instance, places: dict[str, list[Any] | None], objective: str, case: dict[str, Any]) -> float:
    return proxy_eur(instance.fleet, instance.jobs, instance.now_s, placed(instance, places), objective=objective,
                     rho=case["exact"]["rho"], period_s=case["exact"]["H"])


# --- the authors' program and the reference implementation -----------------------------------------------------------

@golden
@each_case
@pytest.mark.parametrize("method", ["G", "FIFO", "EDF", "PS"])
def test_code_objective_of_every_method_is_what_the_program_evaluates(case, method):
    instance = instance_of(case)
    reference = case["results"][method]
    value = value_eur(instance, reference["schedule"], "code", case)
    assert value == pytest.approx(reference["proxy"], abs=1e-6, rel=0)
    first_s = first_completion_s(instance.jobs.times_s, *placed(instance, reference["schedule"]))
    assert first_s == pytest.approx(reference["first_finish"], abs=1e-6)


@golden
@each_case
def test_code_objective_of_randomised_greedy_is_what_the_program_evaluates(case):
    instance = instance_of(case)
    for reference in case["RG"].values():
        value = value_eur(instance, reference["schedule_cpp"], "code", case)
        assert value == pytest.approx(reference["proxy_python"], abs=1e-6, rel=0)
        assert value == pytest.approx(reference["proxy_cpp_printed"], rel=1e-5)  # six digits are printed


@golden
@each_case
def test_paper_objective_is_that_of_the_exact_model(case):
    instance = instance_of(case)
    exact = case["exact"]
    value = value_eur(instance, case["results"]["G"]["schedule"], "paper", case)
    assert value == pytest.approx(exact["greedy_paper_obj_first_ending"], abs=1e-6, rel=0)
    for model in ("milp_corrected_first_ending", "milp_first_ending_cover4n"):
        value = value_eur(instance, exact[model]["assign"], "paper", case)
        assert value == pytest.approx(exact[model]["value"], abs=1e-6, rel=0)
    if optimum := exact.get("code_proxy_optimum_bruteforce"):
        assert value_eur(instance, optimum["assign"], "code", case) == pytest.approx(optimum["value"], abs=1e-6, rel=0)


# --- both objectives in plain Python ---------------------------------------------------------------------------------

@st.composite
def decided(draw: st.DrawFn, *, some_run: bool = False) -> tuple[Fleet, Jobs, float, Assignment]:
    """Small fleet, jobs, present time, and a valid assignment that shares nodes and lets jobs wait."""
    num_types = draw(st.integers(1, 2))
    configurations = [(kind, gpus) for kind in range(num_types) for gpus in (1, 2, 3)]
    num_nodes = draw(st.integers(1, 3))
    num_jobs = draw(st.integers(1, 5))
    whole = st.integers(1, 20)
    prices = np.array([[0, *np.cumsum(draw(st.lists(whole, min_size=3, max_size=3)))] for _ in range(num_types)], float)
    fleet = Fleet(np.array(draw(st.lists(st.integers(0, num_types - 1), min_size=num_nodes, max_size=num_nodes))),
                  np.array(draw(st.lists(st.integers(1, 3), min_size=num_nodes, max_size=num_nodes))),
                  *(np.array(column) for column in zip(*configurations, strict=True)), prices)
    row = st.lists(st.one_of(whole.map(float), st.just(math.inf)), min_size=len(configurations),
                   max_size=len(configurations)).filter(lambda times: min(times) < math.inf)
    column = st.lists(whole.map(float), min_size=num_jobs, max_size=num_jobs)
    jobs = Jobs(np.zeros(num_jobs), 2 * np.array(draw(column)), np.array(draw(column)),
                np.array(draw(st.lists(row, min_size=num_jobs, max_size=num_jobs))))
    node = np.full(num_jobs, -1)
    configuration = np.full(num_jobs, -1)
    free = fleet.node_gpus.copy()
    for job in range(num_jobs):
        places = [(n, c) for n in range(num_nodes) for c, (kind, gpus) in enumerate(configurations)
                  if kind == fleet.node_type[n] and gpus <= free[n] and jobs.times_s[job, c] < math.inf]
        if places and draw(st.integers(0, 3)):
            node[job], configuration[job] = draw(st.sampled_from(places))
            free[node[job]] -= configurations[configuration[job]][1]
    assume(not some_run or node.max() >= 0)
    return fleet, jobs, float(draw(st.integers(0, 30))), Assignment(node, configuration)


def plain_eur(fleet: Fleet, jobs: Jobs, now_s: float, assignment: Assignment, objective: str, rho: float,
              period_s: float) -> float:
    """Evaluate the two formulas, sum by sum."""
    running = {}
    waiting = []
    for j, (n, c) in enumerate(zip(*assignment, strict=True)):
        if n < 0:
            waiting.append(j)
        else:
            running[j] = int(n), int(fleet.configuration_gpus[c]), float(jobs.times_s[j, c])
    price = {(n, g): float(fleet.cost_eur_per_h[kind, g]) / 3600
             for n, kind in enumerate(fleet.node_type) for g in range(fleet.cost_eur_per_h.shape[1])}
    slowest = {j: max(float(t) for t in jobs.times_s[j] if t < math.inf) for j in waiting}
    hosts = {n for n, _, _ in running.values()}
    if objective == "code":
        if not running:
            return math.inf
        first_s = min(t for _, _, t in running.values())
        begin_s = now_s
        energy = sum(first_s * price[n, sum(g for m, g, _ in running.values() if m == n)] for n in hosts)
        ends = dict.fromkeys(running, now_s + first_s)
    else:
        begin_s = now_s + period_s
        energy = sum(min((t, t * price[n, g]) for m, g, t in running.values() if m == n)[1] for n in hosts)
        ends = {j: now_s + t for j, (_, _, t) in running.items()}
    late = sum(jobs.weight_eur_per_s[j] * max(end - jobs.due_s[j], 0) for j, end in ends.items())
    return float(energy + late + rho * sum(jobs.weight_eur_per_s[j] * max(begin_s + slowest[j] - jobs.due_s[j], 0)
                                           for j in waiting))


@settings(max_examples=150, deadline=None)
@given(decided(), st.sampled_from([0.0, 1.0, 100.0]), st.sampled_from([0.0, 3.0, 300.0]))
def test_both_objectives_equal_plain_python(decision, rho, period_s):
    for objective in OBJECTIVES:
        value = proxy_eur(*decision, objective=objective, rho=rho, period_s=period_s)
        assert value == pytest.approx(plain_eur(*decision, objective, rho, period_s), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(decided())
def test_gpus_in_use_are_those_of_the_validator_and_empty_nodes_cost_nothing(decision):
    fleet, jobs, _, assignment = decision
    used = gpus_in_use(fleet, *assignment)
    assert (used == check_assignment(fleet, jobs.times_s, assignment)).all()
    prices = [fleet.cost_eur_per_h[fleet.node_type[n], used[n]] / 3600 for n in np.flatnonzero(used)]
    assert cost_eur_per_s(fleet, used) == pytest.approx(sum(prices), rel=1e-12)


# --- laws ------------------------------------------------------------------------------------------------------------

@settings(max_examples=150, deadline=None)
@given(decided(some_run=True))
def test_letting_a_job_wait_that_is_in_no_danger_lowers_the_code_objective(decision):
    fleet, jobs, now_s, (node, configuration) = decision
    end_s = np.where(node >= 0, jobs.times_s[np.arange(len(node)), configuration], np.inf)
    is_safe = now_s + slowest_s(jobs.times_s) <= jobs.due_s
    before = code_objective(fleet, jobs, now_s, node, configuration, RHO)
    for job in np.flatnonzero((node >= 0) & is_safe):
        if np.delete(end_s, job).min(initial=np.inf) > end_s[job]:
            continue  # it alone ends first
        mine = np.arange(len(node)) == job
        after = code_objective(fleet, jobs, now_s, np.where(mine, -1, node), np.where(mine, -1, configuration), RHO)
        assert after < before


@settings(max_examples=150, deadline=None)
@given(decided(), st.integers(0, 50), st.data())
def test_only_time_until_the_due_date_counts_and_the_order_of_jobs_does_not(decision, later_s, data):
    fleet, jobs, now_s, assignment = decision
    order = np.array(data.draw(st.permutations(range(len(jobs.due_s)))))
    shifted = jobs._replace(due_s=jobs.due_s + later_s)
    shuffled = Jobs(*(column[order] for column in jobs)), Assignment(*(column[order] for column in assignment))
    for objective in OBJECTIVES:
        value = proxy_eur(*decision, objective=objective)
        assert proxy_eur(fleet, shifted, now_s + later_s, assignment, objective=objective) == pytest.approx(value)
        assert proxy_eur(fleet, shuffled[0], now_s, shuffled[1], objective=objective) == pytest.approx(value)


@settings(max_examples=150, deadline=None)
@given(decided(some_run=True), st.floats(0, 200), st.floats(0, 200))
def test_rho_and_the_period_only_make_waiting_dearer(decision, rho, period_s):
    fleet, jobs, now_s, (node, configuration) = decision
    for objective in OBJECTIVES:
        value = proxy_eur(*decision, objective=objective, rho=rho, period_s=period_s)
        assert proxy_eur(*decision, objective=objective, rho=rho + 1, period_s=period_s + 1) >= value
        if (node >= 0).all():
            assert proxy_eur(*decision, objective=objective, rho=rho + 1, period_s=period_s + 1) == value
    value = proxy_eur(*decision, objective="code", rho=rho, period_s=period_s)
    assert value == code_objective(fleet, jobs, now_s, node, configuration, rho)  # whatever the period


# --- by hand ---------------------------------------------------------------------------------------------------------

TOY = toy_instance()
T1, T2, U1 = range(3)  # one TESLA, two, one TURING
THREE = TOY.fleet._replace(node_gpus=np.array([3, 1, 1]),  # a third TESLA in n1, 0.90 EUR/h
                           cost_eur_per_h=np.array([[0, 0.54, 0.72, 0.90], [0, 0.36, np.inf, np.inf]]))


def test_two_jobs_on_one_node_are_priced_alone_by_the_paper_and_together_by_the_program():
    # B and C on one TESLA of n1 each, 1800 s; paper: one of them, 1800 s * 0.54 EUR/h = 0.27 EUR;
    # program: the node with two in use, 1800 s * 0.72 EUR/h = 0.36 EUR
    jobs = Jobs(*(column[1:3] for column in TOY.jobs))
    both = Assignment(np.array([0, 0]), np.array([T1, T1]))
    assert proxy_eur(TOY.fleet, jobs, 0.0, both) == pytest.approx(0.27)
    assert proxy_eur(TOY.fleet, jobs, 0.0, both, objective="code") == pytest.approx(0.36)


def test_paper_charges_the_job_of_a_node_that_ends_first_though_another_is_cheaper():
    # X takes 1000 s on two TESLA, 1000 * 0.72 / 3600 = 0.20 EUR; Y 1200 s on one, 1200 * 0.54 / 3600 = 0.18 EUR
    times_s = np.array([[np.inf, 1000.0, np.inf], [1200.0, np.inf, np.inf]])
    jobs = Jobs(np.zeros(2), np.full(2, 1e6), np.ones(2), times_s)
    both = Assignment(np.array([0, 0]), np.array([T2, T1]))
    assert proxy_eur(THREE, jobs, 0.0, both) == pytest.approx(0.20)
    assert proxy_eur(THREE, jobs, 0.0, both, objective="code") == pytest.approx(0.25)  # 1000 s * 0.90 EUR/h


def test_of_two_jobs_that_end_together_the_paper_charges_the_cheaper_in_either_order():
    # X on two of three TESLA, Y on one, both 1000 s: 0.20 and 0.15 EUR
    jobs = Jobs(np.zeros(2), np.full(2, 1e6), np.ones(2), np.full((2, 3), 1000.0))
    for configuration in ([T2, T1], [T1, T2]):
        assert proxy_eur(THREE, jobs, 0.0, Assignment(np.array([0, 0]), np.array(configuration))) == pytest.approx(0.15)


def test_a_waiting_job_is_charged_for_its_slowest_configuration_though_no_node_offers_it():
    # A alone waits, on a fleet without a TURING: slowest still 7200 s; 100 * 0.002 * (300 + 7200 - 2700) = 960 EUR
    fleet = TOY.fleet._replace(node_type=np.array([0, 0, 0]))
    a = Jobs(*(column[:1] for column in TOY.jobs))
    assert proxy_eur(fleet, a, 0.0, Assignment(np.array([-1]), np.array([-1]))) == pytest.approx(960)
    assert (RHO, PERIOD_S) == (100, 300)


def test_if_nothing_runs_the_program_says_infinite_and_the_paper_gives_a_number():
    a = Jobs(*(column[:1] for column in TOY.jobs))
    nothing = Assignment(np.array([-1]), np.array([-1]))
    assert proxy_eur(TOY.fleet, a, 0.0, nothing, objective="code") == np.inf
    assert paper_objective(TOY.fleet, a._replace(due_s=np.array([1e6])), 0.0, *nothing, RHO, PERIOD_S) == 0
    nobody = Jobs(*(column[:0] for column in TOY.jobs))
    assert proxy_eur(TOY.fleet, nobody, 0.0, Assignment(*np.empty((2, 0), np.int64))) == 0


# --- bad input -------------------------------------------------------------------------------------------------------

def test_unknown_objective_is_refused_with_the_names_of_the_known():
    with pytest.raises(InputError, match=r"unknown objective 'bill'.*\n?.*give one of paper, code"):
        proxy_eur(TOY.fleet, TOY.jobs, 0.0, Assignment(np.full(5, -1), np.full(5, -1)), objective="bill")


@pytest.mark.parametrize(("node", "configuration", "complaint"), [
    ([0, 0, -1, -1, -1], [T2, T1, -1, -1, -1], "node 0 has more GPUs in use"),  # three of two
    ([7, -1, -1, -1, -1], [T1, -1, -1, -1, -1], "does not exist"),
    ([0, -1, -1, -1, -1], [9, -1, -1, -1, -1], "does not exist"),
    ([1, -1, -1, -1, -1], [T1, -1, -1, -1, -1], "of a type that node 1 does not have"),
    ([0, -1, -1, -1, -1], [-1, -1, -1, -1, -1], "half a place"),
    ([-1, -1], [-1, -1], "5 jobs, but 2 nodes"),
])
def test_an_assignment_that_violates_a_constraint_has_no_value(node, configuration, complaint):
    assignment = Assignment(np.array(node), np.array(configuration))
    for objective in OBJECTIVES:
        with pytest.raises(ValueError, match=complaint):
            proxy_eur(TOY.fleet, TOY.jobs, 0.0, assignment, objective=objective)
