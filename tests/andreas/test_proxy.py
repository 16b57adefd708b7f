"""ANDREAS proxies: the authors' program, both objectives in plain Python, and what each rewards."""
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.andreas.instances import generate, toy_instance
from sched_lab.andreas.model import Assignment, Fleet, Instance, Jobs, check_assignment
from sched_lab.andreas.proxy import (
    PERIOD_S,
    RHO,
    code_objective,
    paper_objective,
)
from tests.andreas.cases import each_case, golden, instance_of, plain_eq_1, plain_objective, queues


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
    asked = (instance.fleet, instance.jobs, instance.now_s, *placed(instance, places), case["exact"]["rho"])
    return code_objective(*asked) if objective == "code" else paper_objective(*asked, case["exact"]["H"])


# --- the authors' program and the reference implementation -----------------------------------------------------------

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
def decided(draw: st.DrawFn) -> tuple[Fleet, Jobs, float, Assignment]:
    """Draw a queue, and a valid assignment that shares nodes and lets jobs wait."""
    fleet, jobs, now_s = draw(queues(most_jobs=5))
    decision = Assignment(np.full(len(jobs.due_s), -1), np.full(len(jobs.due_s), -1))
    free = fleet.node_gpus.copy()
    for job, times_s in enumerate(jobs.times_s):
        places = np.argwhere((fleet.node_type[:, None] == fleet.configuration_type) & np.isfinite(times_s)
                             & (fleet.configuration_gpus <= free[:, None])).tolist()
        if places and draw(st.integers(0, 3)):
            decision.node[job], decision.configuration[job] = n, c = draw(st.sampled_from(places))
            free[n] -= fleet.configuration_gpus[c]
    return fleet, jobs, now_s, decision


@settings(max_examples=150, deadline=None)
@given(decided(), st.sampled_from([0.0, 1.0, 100.0]), st.sampled_from([0.0, 3.0, 300.0]))
def test_both_objectives_equal_plain_python(decision, rho, period_s):
    fleet, jobs, now_s, assignment = decision
    asked = (fleet, jobs, now_s, *assignment, rho)
    assert code_objective(*asked) == pytest.approx(plain_objective(*asked), rel=1e-12)
    assert paper_objective(*asked, period_s) == pytest.approx(plain_eq_1(*asked, period_s), rel=1e-12)


def test_compiled_code_and_python_say_the_same_to_the_last_bit():
    """Of thirty nodes with a job each: NumPy's sum of more than seven numbers is no loop."""
    instance = generate(1, 30, 1.0)
    fleet, rng = instance.fleet, np.random.default_rng(0)
    single = np.flatnonzero(fleet.configuration_gpus == 1)
    on_type = {int(fleet.configuration_type[c]): int(c) for c in single}
    jobs = Jobs(*(column[:30] for column in instance.jobs))
    for _ in range(20):
        node = rng.permutation(30)
        configuration = np.array([on_type[kind] for kind in fleet.node_type[node].tolist()])
        asked = (fleet, jobs, 0.0, node, configuration, RHO, PERIOD_S)
        assert paper_objective(*asked) == paper_objective.py_func(*asked)


# --- by hand ---------------------------------------------------------------------------------------------------------

TOY = toy_instance()

def test_if_nothing_runs_the_program_says_infinite_and_the_paper_gives_a_number():
    a = Jobs(*(column[:1] for column in TOY.jobs))
    nothing = Assignment(np.array([-1]), np.array([-1]))
    assert code_objective(TOY.fleet, a, 0.0, *nothing, RHO) == np.inf
    assert paper_objective(TOY.fleet, a._replace(due_s=np.array([1e6])), 0.0, *nothing, RHO, PERIOD_S) == 0
    nobody = Jobs(*(column[:0] for column in TOY.jobs))
    assert paper_objective(TOY.fleet, nobody, 0.0, *np.empty((2, 0), np.int64), RHO, PERIOD_S) == 0
