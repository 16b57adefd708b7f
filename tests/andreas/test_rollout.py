"""Rollouts: a plain re-implementation, the room on the nodes, laws on random queues, and what whole days cost."""
from math import exp, inf
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.andreas.greedy import draw
from sched_lab.andreas.instances import toy_instance
from sched_lab.andreas.model import Assignment, Fleet, Jobs, parse_instance
from sched_lab.andreas.rollout import (
    BASE_POLICIES,
    BY_PRICE,
    EXPENSE,
    IN_TIME,
    PRESSURE,
    assign_by_rollout,
    board_of,
    cost_to_go,
    rollout,
    room_of,
)
from sched_lab.lab.frames import InputError, read_frame
from tests.andreas.cases import crowd, queues

RESULTS = Path(__file__).resolve().parents[2] / "data" / "results" / "andreas"
FACTORS = (1.0, 2.0, 0.0)  # of prices: some number of GPUs costs nothing
NAMES = [(order, place) for place in (BY_PRICE, IN_TIME) for order in (PRESSURE, EXPENSE)]


# --- a plain re-implementation: lists, dictionaries, one loop inside the other

class Option(NamedTuple):
    """A place for a job; the least value wins, the first of equals."""

    value: tuple[bool, float]
    energy_eur: float
    configuration: int
    node: int


def plain_rank(jobs: Jobs, now_s: float, order: int) -> list[int]:
    """Least slack first, or highest apparent tardiness cost first; sorting is stable."""
    fastest_s = [min(times_s) for times_s in jobs.times_s.tolist()]
    slack_s = [due_s - now_s - time_s for due_s, time_s in zip(jobs.due_s, fastest_s, strict=True)]
    mean_s = sum(fastest_s) / len(fastest_s)
    expense = [weight / time_s * exp(-max(slack, 0.0) / (2 * mean_s))
               for weight, time_s, slack in zip(jobs.weight_eur_per_s, fastest_s, slack_s, strict=True)]
    return sorted(range(len(slack_s)), key=lambda job: slack_s[job] if order == PRESSURE else -expense[job])


def plain_price(fleet: Fleet, kind: int, size: int, used: int, gpus: int) -> float:
    """EUR/s that some more GPUs add to a node; of an empty one, their share of the full node."""
    eur_per_h = fleet.cost_eur_per_h[kind]
    more_eur_per_h = eur_per_h[used + gpus] - eur_per_h[used] if used else eur_per_h[size] * gpus / size
    return more_eur_per_h / 3600


def plain_sorts(fleet: Fleet) -> list[tuple[int, int]]:
    """GPU type and size of the nodes, each once."""
    return list(dict.fromkeys(zip(fleet.node_type.tolist(), fleet.node_gpus.tolist(), strict=True)))


def plain_options(fleet, stacks, jobs, job, left, now_s, place):
    """All places for a job: every configuration on every sort of node, fullest first."""
    for c, time_s in enumerate(jobs.times_s[job] * left):
        kind = fleet.configuration_type[c]
        gpus = fleet.configuration_gpus[c]
        late_s = max(now_s + time_s - jobs.due_s[job], 0.0)
        for (own, size), nodes in stacks.items():
            for free in range(gpus, size + 1):
                if own == kind and nodes[free] and time_s < inf:
                    energy_eur = time_s * plain_price(fleet, kind, size, size - free, gpus)
                    if place == BY_PRICE:
                        value = False, energy_eur + jobs.weight_eur_per_s[job] * late_s
                    else:
                        value = bool(late_s), time_s * (gpus if late_s else fleet.cost_eur_per_h[kind, gpus])
                    yield Option(value, energy_eur, c, nodes[free][-1])


def plain_least_eur(fleet, times_s):
    """Energy cost of a run on full nodes."""
    return min(time_s * plain_price(fleet, kind, size, 0, fleet.configuration_gpus[c])
               for c, time_s in enumerate(times_s) for kind, size in plain_sorts(fleet)
               if time_s < inf and kind == fleet.configuration_type[c] and fleet.configuration_gpus[c] <= size)


def plain_places(fleet, jobs, left, now_s, order, place):
    """Place jobs on empty nodes; node and configuration of those that run, and when the first will have ended."""
    stacks = {(kind, size): [[] for _ in range(size + 1)] for kind, size in plain_sorts(fleet)}
    free = fleet.node_gpus.tolist()
    for n in reversed(range(len(free))):
        stacks[fleet.node_type[n], free[n]][free[n]].append(n)
    runs = {}
    first_s = inf
    for job in order:
        best = min(plain_options(fleet, stacks, jobs, job, left[job], now_s, place), default=None,
                   key=lambda option: option.value)
        if best is None:
            continue
        is_dear = best.energy_eur > 3 * plain_least_eur(fleet, jobs.times_s[job]) * left[job]
        if place == BY_PRICE and is_dear and first_s + left[job] * min(jobs.times_s[job]) <= jobs.due_s[job]:
            continue
        n = best.node
        c = best.configuration
        levels = stacks[fleet.node_type[n], fleet.node_gpus[n]]
        levels[free[n]].remove(n)
        free[n] -= fleet.configuration_gpus[c]
        levels[free[n]].append(n)
        runs[job] = n, c
        first_s = min(first_s, now_s + jobs.times_s[job, c] * left[job])
    return runs, first_s


def plain_play(fleet, jobs, now_s, order, place):
    """Energy and penalties until all are done, and what is decided first."""
    left = [1.0] * len(order)
    total = 0.0
    decided = None
    while order:
        runs, then_s = plain_places(fleet, jobs, left, now_s, order, place)
        decided = runs if decided is None else decided
        eur = 0.0
        waiting = []
        for n, kind in enumerate(fleet.node_type):
            used = sum(fleet.configuration_gpus[c] for node, c in runs.values() if node == n)
            eur += (then_s - now_s) * fleet.cost_eur_per_h[kind, used] / 3600
        for job in order:
            if job in runs:
                left[job] -= (then_s - now_s) / jobs.times_s[job, runs[job][1]]
            if left[job] < 1e-9:
                eur += jobs.weight_eur_per_s[job] * max(then_s - jobs.due_s[job], 0.0)
            else:
                waiting.append(job)
        order = waiting
        total = total + eur
        now_s = then_s
    return total, decided


def plain_rollout(fleet, jobs, now_s, tries, seed):
    """Play four policies, then move one job at a time; the least cost found first wins."""
    best = None
    for order, place in NAMES:
        ranked = plain_rank(jobs, now_s, order)
        total, decided = plain_play(fleet, jobs, now_s, ranked, place)
        if best is None or total < best[0]:
            best = total, decided, ranked, place
    state = np.array([seed])
    count = len(jobs.due_s)
    for _ in range(tries):
        source = int(draw(state) * count)
        target = int(draw(state) * count)
        order = list(best[2])
        order.insert(target, order.pop(source))
        total, decided = plain_play(fleet, jobs, now_s, order, best[3])
        if total < best[0]:
            best = total, decided, order, best[3]
    return best[:2]


def play(fleet, jobs, now_s, order, place, limit_eur=inf):
    """Cost to go of an order, and what is decided: {job: (node, configuration)}."""
    decision = Assignment(*np.full((2, len(order)), -7))
    eur = cost_to_go(board_of(fleet, jobs, now_s), np.array(order), place, limit_eur, decision)
    return eur, runs_of(*decision)


def runs_of(node, configuration):
    """Leave the jobs that wait out."""
    assert ((node < 0) == (configuration < 0)).all() and min(node.min(), configuration.min()) >= -1
    return {job: (node[job], configuration[job]) for job in range(len(node)) if node[job] >= 0}


@settings(max_examples=60, deadline=None)
@given(queues(factors=FACTORS), st.sampled_from([BY_PRICE, IN_TIME]), st.randoms())
def test_a_queue_costs_what_a_plain_play_of_it_costs(queue, place, random):
    fleet, jobs, now_s = queue
    order = list(range(len(jobs.due_s)))
    random.shuffle(order)
    expected_eur, decided = plain_play(fleet, jobs, now_s, order, place)
    eur, runs = play(*queue, order, place)
    assert eur == pytest.approx(expected_eur, rel=1e-12) and runs == decided


@settings(max_examples=30, deadline=None)
@given(queues(factors=FACTORS), st.integers(1, 2**31 - 2), st.sampled_from([0, 1, 8]))
def test_the_rollout_decides_as_a_plain_one(queue, seed, tries):
    expected_eur, decided = plain_rollout(*queue, tries, seed)
    found, eur = rollout(*queue, tries=tries, seed=seed)
    assert eur == pytest.approx(expected_eur, rel=1e-12) and runs_of(*found) == decided


# --- laws

def test_many_changes_of_a_crowd_are_those_of_the_plain_search():
    queue = crowd(30)
    expected_eur, decided = plain_rollout(*queue, 25, 7)
    found, eur = rollout(*queue, tries=25, seed=7)
    assert eur == pytest.approx(expected_eur, rel=1e-12) and runs_of(*found) == decided
    assert len({rollout(*queue, tries=tries, seed=7)[1] for tries in range(26)}) > 3  # changes add up


# --- by hand

def equal_jobs(count, **changes):
    """Give some jobs of an hour that differ in nothing."""
    job = {"submission_s": 0.0, "due_s": 7200.0, "weight_eur_per_s": 0.001, "times_s": {"A,1": 3600.0, "B,1": 3600.0}}
    return [job | changes | {"id": f"j{i}"} for i in range(count)]


def instance_with(jobs, cost, *nodes):
    """Put jobs on nodes, such as ("A", 2)."""
    entries = [{"id": f"n{i}", "gpu": gpu, "num_gpus": gpus} for i, (gpu, gpus) in enumerate(nodes)]
    return parse_instance({"nodes": entries, "cost_eur_per_h": cost, "jobs": jobs})


@pytest.mark.parametrize(("dear", "due_s", "waits"), [
    (10.0, 7200.0, True),  # in time if it waits
    (10.0, 7199.0, False),  # late if it waits
    (3.0, 7200.0, False),  # three times the least is not too dear
    (3.001, 7200.0, True),
])
def test_a_job_waits_for_a_cheap_place_if_it_can_be_in_time_then(dear, due_s, waits):
    # Cheap A costs 1 EUR/s: dear numbers, but without rounding. The second job finds only B.
    instance = instance_with(equal_jobs(2, due_s=due_s, weight_eur_per_s=0.0), {"A,1": 3600.0, "B,1": 3600.0 * dear},
                             ("A", 1), ("B", 1))
    eur, runs = play(instance.fleet, instance.jobs, 0.0, [1, 0], BY_PRICE)
    assert runs == ({1: (0, 0)} if waits else {1: (0, 0), 0: (1, 1)})
    assert eur == pytest.approx(7200.0 if waits else 3600.0 * (1 + dear))
    assert play(instance.fleet, instance.jobs, 0.0, [1, 0], IN_TIME)[1] == {1: (0, 0), 0: (1, 1)}  # it never waits


def test_a_change_of_the_order_is_found():
    # Both late: the heavy one should go first, but the light one has the least slack. One move mends it.
    jobs = [equal_jobs(1)[0] | {"id": name, "due_s": due_s, "weight_eur_per_s": weight, "times_s": {"A,1": 3600.0}}
            for name, due_s, weight in (("light", 3600.0, 0.001), ("heavy", 3700.0, 0.01))]
    instance = instance_with(jobs, {"A,1": 0.0}, ("A", 1))
    by_pressure = BASE_POLICIES[2:3]
    (node, _), eur = assign_by_rollout(instance.fleet, instance.jobs, 0.0, by_pressure, 0, 1)
    assert node.tolist() == [0, -1] and eur == pytest.approx(35.0)
    (node, _), eur = assign_by_rollout(instance.fleet, instance.jobs, 0.0, by_pressure, 20, 1)
    assert node.tolist() == [-1, 0] and eur == pytest.approx(3.6)


# --- edges and bad input

def test_a_configuration_larger_than_all_nodes_is_no_way():
    fleet = toy_instance().fleet._replace(node_gpus=np.ones(3, np.int64))
    fits = np.flatnonzero(fleet.configuration_gpus == 1)
    assert set(room_of(fleet).ways.configuration.tolist()) == set(fits.tolist())


def test_times_since_1970_end_too():
    rng = np.random.default_rng(0)
    for _ in range(50):
        jobs = [{"id": f"j{i}", "submission_s": 1.7e9, "due_s": 1.7e9 + 500, "weight_eur_per_s": 0.001,
                 "times_s": {"A,1": float(rng.uniform(1, 300))}} for i in range(6)]
        instance = instance_with(jobs, {"A,1": 0.36, "A,2": 0.5}, ("A", 2))
        late = instance.jobs._replace(due_s=instance.jobs.due_s - 1.7e9)
        assert rollout(instance.fleet, instance.jobs, 1.7e9, tries=2)[1] == pytest.approx(
            rollout(instance.fleet, late, 0.0, tries=2)[1], rel=1e-6)


@pytest.mark.parametrize("wrong", [{"tries": -1}, {"seed": -1}, {"tries": -3, "seed": 5}], ids=str)
def test_bad_input_is_refused_with_its_value_and_a_mend(wrong):
    toy = toy_instance()
    with pytest.raises(InputError) as caught:
        rollout(toy.fleet, toy.jobs, 0.0, **wrong)
    assert str(next(iter(wrong.values()))) in str(caught.value) and "give" in str(caught.value)


# --- whole days

@pytest.mark.parametrize("names", [["unseen"], ["sweep", "search"]], ids=["unseen", "seen"])
def test_rollouts_have_the_least_mean_cost_in_every_cell(names):
    files = [RESULTS / f"{name}.csv" for name in names]
    if not all(file.is_file() for file in files):
        pytest.skip(f"{RESULTS} has no {' or no '.join(names)}: run sched-lab reproduce andreas")
    frame = pd.concat([read_frame(file) for file in files])
    cell = ["num_nodes", "scenario", "factor"]
    played = frame[frame["method"] == "local"].set_index([*cell, "seed"]).index  # larger fleets have fewer seeds
    same = frame.set_index([*cell, "seed"]).loc[lambda f: f.index.isin(played)].reset_index()
    assert (same.groupby([*cell, "method"])["seed"].nunique().groupby(cell).nunique() == 1).all()  # like with like
    mean = same.groupby([*cell, "method"])["total_eur"].mean().unstack()
    others = mean.drop(columns="local").min(axis=1)
    assert len(mean) >= 16 and {"fifo", "edf", "priority", "greedy", "rg"} < set(mean.columns)
    assert mean[mean["local"] > others].empty
