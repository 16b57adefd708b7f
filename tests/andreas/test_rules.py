"""ANDREAS rules: the authors' program, best fit with a sorted list of nodes, and laws on random queues."""
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from sched_lab.andreas.instances import toy_instance
from sched_lab.andreas.model import Fleet, Jobs, check_assignment
from sched_lab.andreas.proxy import code_objective
from sched_lab.andreas.rules import (
    Running,
    assign_by_rule,
    candidates,
    edf,
    fifo,
    fill_up,
    nothing_runs,
    open_nodes,
    priority,
    reopen,
    take,
)
from sched_lab.lab.frames import InputError
from tests.andreas.cases import each_case, golden, instance_of, plain_candidates, queues

REFERENCE_NAME = {fifo: "FIFO", edf: "EDF", priority: "PS"}
RULES = (fifo, edf, priority)


# --- the authors' program --------------------------------------------------------------------------------------------

@golden
@each_case
@pytest.mark.parametrize("rule", RULES)
def test_schedules_of_the_rules_are_those_of_the_program(case, rule):
    instance = instance_of(case)
    reference = case["results"][REFERENCE_NAME[rule]]
    plan = assign_by_rule(instance.fleet, instance.jobs, instance.now_s, rule)
    check_assignment(instance.fleet, instance.jobs.times_s, plan)
    schedule: dict[str, Any] = {}
    for name, node, c in zip(instance.job_name, *plan, strict=True):
        gpu, _, count = instance.configuration_name(c).partition(",")
        schedule[name] = None if node < 0 else [instance.node_name[node], gpu, int(count)]
    assert schedule == reference["schedule"]
    value = code_objective(instance.fleet, instance.jobs, instance.now_s, *plan, 100.0)
    assert value == pytest.approx(reference["proxy"], abs=1e-6, rel=0)


# --- random queues ---------------------------------------------------------------------------------------------------

def of(jobs: Jobs, chosen: Any) -> Jobs:
    return Jobs(*(column[chosen] for column in jobs))




@settings(max_examples=40, deadline=None)
@given(queues())
def test_candidates_are_in_time_by_cost_then_late_by_time(queue):
    fleet, jobs, now_s = queue
    for job, row in enumerate(candidates(fleet, jobs.times_s, jobs.due_s, now_s)):
        expected = list(chain(*plain_candidates(fleet, jobs, now_s, job)))
        assert row.tolist() == expected + [-1] * (len(row) - len(expected))


def test_a_configuration_without_a_price_is_no_candidate():
    # prices for one and two GPUs only; the job could run on three
    fleet = toy_instance().fleet._replace(configuration_gpus=np.array([1, 3, 1]))
    assert candidates(fleet, np.array([[5.0, 1.0, 6.0]]), np.array([9.0]), 0.0).tolist() == [[2, 0, -1]]  # 2.16 < 2.70


# --- the lists of nodes ----------------------------------------------------------------------------------------------

def test_a_type_keeps_its_order_until_gpus_of_it_come_back():
    one_a, two_a, one_b = range(3)
    fleet = Fleet(np.array([0, 0, 1]), np.array([3, 3, 1]), np.array([0, 0, 1]), np.array([1, 2, 1]), np.ones((2, 4)))
    opened = open_nodes(fleet, fleet.node_gpus)
    assert [take(fleet, opened, c) for c in (two_a, two_a, one_b)] == [0, 1, 2]
    reopen(fleet, opened, np.array([1, 1, 1]))  # the GPU of B is free again: no news for A, where 1 came back last
    assert take(fleet, opened, one_a) == 1 and take(fleet, opened, one_b) == 2
    reopen(fleet, opened, np.array([1, 1, 0]))  # and now one of A
    assert take(fleet, opened, one_a) == 0


# --- bad input -------------------------------------------------------------------------------------------------------

def test_who_runs_stays_and_who_waits_fills_up():
    toy = toy_instance()
    first = assign_by_rule(toy.fleet, of(toy.jobs, slice(0, 2)), 0.0, fifo)  # A and B
    waits = np.full(3, -1)
    running = Running(np.append(first.node, waits), np.append(first.configuration, waits),
                      open_nodes(toy.fleet, toy.fleet.node_gpus))
    node, _ = fill_up(toy.fleet, toy.jobs, 0.0, edf(toy.jobs), running)
    assert node[:2].tolist() == first.node.tolist()
    assert node.tolist().count(-1) == 2 and node[3] == 1  # D is due first and gets the one GPU that is left
    alone = assign_by_rule(toy.fleet, toy.jobs, 0.0, edf)
    at_once = fill_up(toy.fleet, toy.jobs, 0.0, edf(toy.jobs), nothing_runs(toy.fleet, 5))
    assert (at_once[0] == alone.node).all() and (at_once[1] == alone.configuration).all()


@pytest.mark.parametrize("free", [[3, 0, 0], [-1, 0, 0], [1, 1], [1, 1, 1, 1], 1])
def test_free_gpus_that_the_nodes_cannot_have_are_refused(free):
    toy = toy_instance()
    with pytest.raises(InputError, match="free GPUs"):
        assign_by_rule(toy.fleet, toy.jobs, 0.0, edf, free=np.array(free))
