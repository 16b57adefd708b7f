"""Greedy and randomised greedy: the authors' results, a plain re-implementation, and laws on random queues."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.andreas.greedy import (
    SearchOptions,
    draw,
    greedy,
    leap,
    randomized_greedy,
)
from sched_lab.andreas.instances import toy_instance
from sched_lab.andreas.model import Jobs, check_assignment, parse_instance
from sched_lab.andreas.proxy import PERIOD_S, RHO, code_objective
from sched_lab.lab.frames import InputError
from tests.andreas.cases import (
    CASES,
    crowd,
    each_case,
    golden,
    instance_of,
    plain_candidates,
    plain_eq_1,
    plain_objective,
    queues,
)

M = 2**31 - 1


# --- the authors' program

@golden
@each_case
def test_greedy_assigns_as_the_authors_program(case):
    instance = instance_of(case)
    expected = case["results"]["G"]
    fleet = instance.fleet
    jobs = instance.jobs
    now_s = instance.now_s
    assignment = greedy(fleet, jobs, now_s)
    check_assignment(fleet, jobs.times_s, assignment)
    ours = {}
    for name, node, configuration in zip(instance.job_name, *assignment, strict=True):
        gpu, _, count = instance.configuration_name(configuration).partition(",")
        ours[name] = [instance.node_name[node], gpu, int(count)] if node >= 0 else None
    assert ours == expected["schedule"]
    assert code_objective(fleet, jobs, now_s, *assignment, RHO) == pytest.approx(expected["proxy"], abs=1e-9)


@golden
@each_case
def test_randomised_as_coded_reaches_the_authors_objective_from_each_seed(case):
    # Objectives only: the program breaks ties by the order of a hash map.
    instance = instance_of(case)
    fleet = instance.fleet
    jobs = instance.jobs
    now_s = instance.now_s
    gpu_counts = (np.isfinite(fleet.cost_eur_per_h) * np.arange(fleet.cost_eur_per_h.shape[1])).sum()
    rounds = int(min(1000, len(fleet.node_type) * len(instance.job_name) * gpu_counts))  # as in chapter 33
    for seed, expected in case["RG"].items():
        found, eur = randomized_greedy(fleet, jobs, now_s,
                                       SearchOptions(max_iterations=rounds, seed=int(seed), as_code=True))
        check_assignment(fleet, jobs.times_s, found)
        assert eur == pytest.approx(expected["proxy_python"], abs=1e-9)


@golden
def test_the_cases_are_those_that_can_tell_the_randomised_from_the_plain():
    # Without this, a randomisation that does nothing would pass the test above wherever greedy is the best.
    assert any(result["proxy_python"] < case["results"]["G"]["proxy"] - 1e-9
               for case in CASES for result in case["RG"].values())


# --- a plain re-implementation: lists, dictionaries, one loop inside the other

class Engine:
    """minstd_rand0; a real number takes two steps."""

    def __init__(self, seed: int):
        self.number = max(seed % M, 1)

    def step(self) -> int:
        self.number = self.number * 16807 % M
        return self.number

    def real(self) -> float:
        first = self.step()
        second = self.step()
        r = M - 1.0
        return (first - 1 + (second - 1) * r) / (r * r)


def plain_round(fleet, jobs, now_s, order, engine, as_code):
    """Place the jobs in this order; with an engine, first try a configuration in time drawn at odds of 1 / cost."""
    nodes = list(range(len(fleet.node_type)))  # front to back: who comes first among equally free nodes
    free = fleet.node_gpus.tolist()
    node = [-1] * len(order)
    configuration = [-1] * len(order)
    for job in order:
        in_time, late = plain_candidates(fleet, jobs, now_s, job)
        options = in_time + late
        if engine and not as_code:
            odds = [1 / (jobs.times_s[job, c] * fleet.cost_eur_per_h[fleet.configuration_type[c],
                                                                    fleet.configuration_gpus[c]]) for c in in_time]
            sums = np.cumsum(odds).tolist()
            limit = engine.real() * (sums[-1] if sums else 0.0)
            if sums:
                options = [in_time[next(i for i, reached in enumerate(sums) if reached >= limit)], *options]
            else:
                engine.real()
        for c in options:
            fitting = [n for n in nodes if fleet.node_type[n] == fleet.configuration_type[c]
                       and free[n] >= fleet.configuration_gpus[c]]
            if fitting:
                chosen = min(fitting, key=lambda n: free[n])  # the first of the fullest
                free[chosen] -= fleet.configuration_gpus[c]
                nodes.remove(chosen)
                nodes.insert(0, chosen)  # in front of those as full as it is now
                node[job], configuration[job] = chosen, c
                break
    return node, configuration


def plain_shake(order, weight, engine, as_code):
    """Go through the positions once, and let the job there go behind the next one at random."""
    for i in range(len(order)):
        chance = engine.real()
        if i + 1 == len(order):
            break
        own = weight[order[i]]
        other = weight[order[i + 1]]
        limit = (0.55 if own > other else 0.45) if as_code else 0.5 * min(weight) / own if own else 0.5
        if chance < limit:
            order[i], order[i + 1] = order[i + 1], order[i]


def plain_rounds(fleet, jobs, now_s, rounds, seed, as_code, rho, period_s=PERIOD_S):
    """Algorithm 1: the first round is the plain greedy; the best one found first wins, as printed by Eq. 1."""
    pressure = [now_s + min(jobs.times_s[job]) - jobs.due_s[job] for job in range(len(jobs.due_s))]
    engine = Engine(seed)
    weight = jobs.weight_eur_per_s
    best = None
    order = list(range(len(pressure)))
    for k in range(rounds):
        order = sorted(order, key=lambda job: -pressure[job])  # equals stay as they were
        if k:
            plain_shake(order, weight, engine, as_code)
        node, configuration = plain_round(fleet, jobs, now_s, order, engine if k else None, as_code)
        eur = (plain_objective(fleet, jobs, now_s, node, configuration, rho) if as_code
               else plain_eq_1(fleet, jobs, now_s, node, configuration, rho, period_s))
        if best is None or eur < best[2]:
            best = node, configuration, eur
    return best


@settings(max_examples=60, deadline=None)
@given(queues(most_jobs=15), st.integers(0, 2**32), st.booleans(), st.sampled_from([1, 2, 7, 40, 150]),
       st.sampled_from([0.0, 1.0, RHO]),
       st.sampled_from([0.0, 300.0, 1800.0]))
def test_the_fast_path_finds_what_a_plain_one_finds(queue, seed, as_code, rounds, rho, period_s):
    node, configuration, eur = plain_rounds(*queue, rounds, seed, as_code, rho, period_s)
    how = SearchOptions(max_iterations=rounds, seed=seed, as_code=as_code, rho=rho, period_s=period_s)
    found, found_eur = randomized_greedy(*queue, how)
    assert found.node.tolist() == node and found.configuration.tolist() == configuration
    assert found_eur == pytest.approx(eur, abs=1e-12)
    if rounds == 1:
        plain = greedy(*queue)
        assert plain.node.tolist() == node and plain.configuration.tolist() == configuration


# --- laws

@pytest.mark.parametrize("as_code", [False, True])
def test_rounds_in_pieces_are_the_rounds_in_one_call(as_code, monkeypatch):
    whole = randomized_greedy(*crowd(40), SearchOptions(max_iterations=60, as_code=as_code))
    for turns in (1, 40 * 7):
        monkeypatch.setattr("sched_lab.andreas.greedy.TURNS_AT_ONCE", turns)
        pieces = randomized_greedy(*crowd(40), SearchOptions(max_iterations=60, as_code=as_code))
        assert pieces[1] == whole[1] and (pieces[0].node == whole[0].node).all()
        assert (pieces[0].configuration == whole[0].configuration).all()


# --- parts

def test_the_engine_is_the_one_of_the_cpp_standard():
    state = np.array([1])
    for _ in range(5000):
        draw(state)
    assert state[0] == 1043618065  # number 10,000 of minstd_rand0, section [rand.predef]


def test_the_numbers_of_the_edges_of_the_remainder():
    for number in (1, 2, 127773, 127774, 2**30, M - 2, M - 1):
        assert leap(number, 16807) == number * 16807 % M
    assert leap(pow(16807, -1, M), 16807) == 1  # both parts of the product add up to 2^31


def test_seeds_that_are_zero_to_the_engine_are_one():
    # As in C++: zero would stay zero for ever.
    queue = crowd(40)
    expected = randomized_greedy(*crowd(40), SearchOptions(max_iterations=20, seed=1))[0].node
    for seed in (0, M, 2 * M, M + 1):
        assert (randomized_greedy(*queue, SearchOptions(max_iterations=20, seed=seed))[0].node == expected).all()


# --- edges and bad input

@pytest.mark.parametrize("as_code", [False, True])
def test_nobody_waits_is_no_trouble(as_code):
    toy = toy_instance()
    empty = Jobs(*(column[:0] for column in toy.jobs))
    found, eur = randomized_greedy(toy.fleet, empty, 0.0, SearchOptions(max_iterations=3, as_code=as_code))
    assert len(found.node) == len(found.configuration) == 0 and eur == (np.inf if as_code else 0)


def test_no_job_fits_gives_an_infinite_objective_as_coded_and_the_price_of_waiting_as_printed():
    # Both GPUs of type A are asked for, but the nodes have one each: no place, whatever the order.
    fleet = parse_instance({"nodes": [{"id": "n", "gpu": "A", "num_gpus": 1}],
                            "cost_eur_per_h": {"A,1": 1.0, "A,2": 2.0},
                            "jobs": [{"id": "j", "submission_s": 0.0, "due_s": 9.0, "weight_eur_per_s": 1.0,
                                      "times_s": {"A,1": 5.0, "A,2": 3.0}}]}).fleet
    jobs = Jobs(np.zeros(1), np.array([9.0]), np.ones(1), np.array([[np.inf, 3.0]]))
    for as_code, expected in ((True, np.inf), (False, 100 * (300 + 3 - 9))):
        found, eur = randomized_greedy(fleet, jobs, 0.0, SearchOptions(max_iterations=5, as_code=as_code))
        assert found.node.tolist() == [-1] and eur == expected


@pytest.mark.parametrize("wrong", [
    {"max_iterations": 0},
    {"max_iterations": -5},
    {"seed": -1},
    {"rho": -1.0},
    {"rho": np.inf},
    {"rho": np.nan},
    {"period_s": -1.0},
    {"period_s": np.inf},
], ids=str)
def test_bad_input_is_refused_with_its_value_and_a_mend(wrong):
    toy = toy_instance()
    with pytest.raises(InputError) as caught:
        randomized_greedy(toy.fleet, toy.jobs, 0.0, SearchOptions(**wrong))
    assert str(next(iter(wrong.values()))) in str(caught.value) and "give" in str(caught.value)
