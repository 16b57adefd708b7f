"""Hadar's decision of a round: recorded schedules, brute force on small rounds, and laws on random clusters."""
import json
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.frames import InputError
from sched_lab.hadar.engine import simulate
from sched_lab.hadar.model import (
    Cluster,
    Jobs,
    State,
    Workload,
    allocation_of,
    check_allocation,
    gpus_in_use,
    nothing_runs,
    round_rate,
    workers_that_fit,
)
from sched_lab.hadar.primal_dual import (
    Hadar,
    Terms,
    best_round,
    branch,
    fill,
    find_alloc,
    literal_round,
    pack,
    places_of,
    price,
    price_limits,
    reference_rate,
    serve,
    utility_scale,
)
from sched_lab.hadar.workload import read_gavel_throughputs
from sched_lab.traces import find_data, find_reference

TOY = find_reference("hadar/toy_golden.json")
GOLDEN = find_reference("hadar/golden.json")
THROUGHPUTS = find_data("gavel/throughputs.csv")
toy: dict[str, Any] = json.loads(TOY.read_text()) if TOY else {}
NONE = np.empty(0, np.int64)


def start_of(cluster: Cluster, jobs: Jobs) -> State:
    """Begin with jobs that are all there and nothing running."""
    count = len(jobs.steps)
    return State(cluster, jobs, 0.0, np.arange(count), jobs.steps, nothing_runs(), np.zeros(count), np.zeros(count))


def random_workload(seed: int, *, one_type: bool = False, late: bool = True) -> Workload:
    """Up to eight jobs that can run, on up to four nodes of up to three types; some cannot run everywhere."""
    rng = np.random.default_rng(seed)
    num_jobs, num_nodes = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    num_types = 1 if one_type else int(rng.integers(1, 4))
    cluster = Cluster(rng.integers(0, num_types, num_nodes), rng.integers(1, 5, num_nodes))
    rate = rng.uniform(0.5, 5, (num_jobs, num_types)) * (rng.random((num_jobs, num_types)) > 0.2)
    rate[:, cluster.node_type[0]] = np.maximum(rate[:, cluster.node_type[0]], 0.3)  # each can run on the first node
    spread_rate = rate * rng.uniform(0.5, 1.1, rate.shape)
    workers = np.minimum(rng.integers(1, 5, num_jobs), workers_that_fit(cluster, rate, spread_rate))
    arrival_s = np.round(rng.uniform(0, 2000, num_jobs)) if late else np.zeros(num_jobs)
    jobs = Jobs(arrival_s, rng.uniform(100, 9000, num_jobs), workers, rng.uniform(0.5, 2, num_jobs), rate, spread_rate)
    names = tuple(map(str, range(8)))
    return Workload(names[:num_jobs], names[:num_nodes], names[:num_types], cluster, jobs)


def small_start(seed: int, num_jobs: int = 6) -> State:
    """Start a random workload in which no gang is faster when it is spread."""
    workload = random_workload(seed, late=False)
    jobs = Jobs(*(column[:num_jobs] for column in workload.jobs))
    jobs = jobs._replace(spread_rate=np.minimum(jobs.spread_rate, jobs.rate))
    return start_of(workload.cluster, jobs)


def utility_of(state: State, allocation: Any) -> float:
    """Total utility when everybody starts anew and stays until done."""
    rate = round_rate(state.cluster, state.jobs, allocation)
    run = rate > 0
    return float((utility_scale(state.jobs)[run] / (10 + state.remaining[run] / rate[run])).sum())


# --- recorded results ------------------------------------------------------------------------------------------------

@pytest.mark.skipif(TOY is None, reason="../shared/reference/hadar/toy_golden.json is absent")
def test_prices_are_the_recorded_ones():
    for row in toy["price"]:
        assert price(row["gamma"], row["c"], row["umin"], row["umax"]) == pytest.approx(row["k"], rel=1e-12)


@pytest.mark.skipif(TOY is None or GOLDEN is None or THROUGHPUTS is None,
                    reason="../shared/reference/hadar or ../shared/data/gavel is absent")
@pytest.mark.parametrize(("name", "scheduler"), [
    ("Hadar-effnorm", Hadar()), ("Hadar-eff", Hadar("eff")), ("Hadar-inv", Hadar("inv")),
    ("Hadar-sticky", Hadar(sticky=True))])
def test_six_jobs_run_as_recorded(name, scheduler):
    case = next(case for case in json.loads(GOLDEN.read_text())["cases"] if case["name"] == "tiny6")
    table, given_jobs = read_gavel_throughputs(THROUGHPUTS), case["jobs"]
    rows = [table.row[job["job_type"], job["scale_factor"]] for job in given_jobs]
    jobs = Jobs(np.array([job["arrival_s"] for job in given_jobs], float),
                np.array([job["total_steps"] for job in given_jobs], float),
                np.array([job["scale_factor"] for job in given_jobs]), np.ones(6), table.rate[rows],
                table.spread_rate[rows])
    cluster = Cluster(np.arange(3), np.array([2, 2, 2]))
    run = simulate(Workload(tuple("012345"), ("v", "p", "k"), table.type_name, cluster, jobs), scheduler)
    expected, first = toy["tiny6"][name], run.history[run.history["round"] == 0]
    assert run.end_s == pytest.approx(np.array(expected["finish_s"]), abs=2e-3)  # recorded with few digits
    assert len(run.intervals) == expected["rounds"]
    places = {str(job): [] for job in range(6)}
    for job, node, gpus in zip(first["job"], first["node"], first["gpus"], strict=True):
        places[str(job)].append([node, gpus])
    assert {job: place or None for job, place in places.items()} == expected["first_round"]


# --- by hand ---------------------------------------------------------------------------------------------------------

def test_the_price_limits_of_one_job():
    # 4 slots alone on 1 of 2 GPUs, horizon 10 slots: demand 4, eta = 10 * 2 / 4 = 5, U(T) = 4 / 10 in units of 1 / 4
    jobs = Jobs(np.zeros(1), np.array([1440.0]), np.array([1]), np.ones(1), np.ones((1, 1)), np.ones((1, 1)))
    cluster, active = Cluster(np.array([0]), np.array([2])), np.array([0])
    low, high = price_limits(cluster, jobs, active, utility_scale(jobs), jobs.steps, 0.0, round_s=360.0,
                             horizon_s=3600.0)
    assert low == pytest.approx(0.4 / 4 / (4 * 5))
    assert high == 1
    low, _ = price_limits(cluster, jobs, active, utility_scale(jobs), jobs.steps, 0.0, round_s=360.0,
                          horizon_s=3600.0, eta=1.0)
    assert low == pytest.approx(0.4 / 4 / 4)


def test_fill_takes_the_cheapest_or_the_fewest_nodes_and_only_usable_ones():
    node, gpus = np.zeros(6, np.int64), np.zeros(6, np.int64)
    free, cost, usable = np.array([2, 3, 1]), np.array([0.2, 0.1, 0.1]), np.ones(3, bool)
    assert fill(usable, free, cost, True, node, gpus, 4) == 2   # at 0.1 the node with more free GPUs goes first
    assert (node[:2].tolist(), gpus[:2].tolist()) == ([1, 2], [3, 1])
    assert fill(usable, free, cost, False, node, gpus, 4) == 2
    assert (node[:2].tolist(), gpus[:2].tolist()) == ([1, 0], [3, 1])
    assert fill(np.array([True, False, True]), free, cost, False, node, gpus, 4) == 0


def test_pack_takes_the_cheapest_node_that_holds_the_gang_then_the_fullest():
    node, gpus = np.zeros(6, np.int64), np.zeros(6, np.int64)
    usable = np.ones(3, bool)
    assert pack(usable, np.array([2, 3, 4]), np.array([0.3, 0.2, 0.2]), node, gpus, 2) == 1
    assert (node[0], gpus[0]) == (1, 2)
    assert pack(usable, np.array([1, 1, 2]), np.array([0.1, 0.1, 0.9]), node, gpus, 3) == 2
    assert (node[:2].tolist(), gpus[:2].tolist()) == ([2, 0], [2, 1])


def test_a_job_never_packable_is_compared_by_its_spread_rates():
    jobs = Jobs(np.zeros(1), np.ones(1), np.array([2]), np.ones(1), np.zeros((1, 2)), np.array([[2.0, 1.0]]))
    assert reference_rate(jobs).tolist() == [[2, 1]]


def test_a_place_that_is_still_free_is_kept_on_a_tie():
    # Two equal nodes: the job was on the second; moving costs the 10 s of a restart.
    jobs = Jobs(np.zeros(1), np.array([3600.0]), np.array([1]), np.ones(1), np.ones((1, 1)), np.ones((1, 1)))
    state = start_of(Cluster(np.array([0, 0]), np.array([1, 1])), jobs)
    assert Hadar().allocate(state).node.tolist() == [0]
    assert Hadar().allocate(state._replace(previous=allocation_of({0: {1: 1}}))).node.tolist() == [1]


def test_only_a_second_pass_gives_gpus_to_who_finds_them_too_dear():
    # A node cost above any utility: two workers on two nodes have a negative payoff.
    jobs = Jobs(np.zeros(1), np.array([3600.0]), np.array([2]), np.ones(1), np.ones((1, 1)), np.ones((1, 1)))
    state = start_of(Cluster(np.array([0, 0]), np.array([1, 1])), jobs)
    assert len(Hadar(node_cost=2.0, backfill=False).allocate(state).job) == 0
    assert Hadar(node_cost=2.0).allocate(state).gpus.tolist() == [1, 1]


def test_places_begin_where_the_jobs_do():
    assert places_of(allocation_of({1: {0: 1, 2: 1}, 3: {1: 2}}), 4).tolist() == [0, 0, 2, 2, 3]


# --- bad input -------------------------------------------------------------------------------------------------------

def test_an_unknown_utility_is_refused():
    with pytest.raises(InputError, match="'speed' is no utility"):
        utility_scale(small_start(0).jobs, "speed")


# --- laws ------------------------------------------------------------------------------------------------------------

@given(gpus=st.integers(1, 16), low=st.floats(1e-6, 1), factor=st.floats(1, 1e6))
def test_prices_rise_from_the_lowest_to_the_highest(gpus, low, factor):
    ladder = price(np.arange(gpus + 1), gpus, low, low * factor)
    assert ladder[0] == pytest.approx(low)
    assert ladder[-1] == pytest.approx(low * factor)
    assert (np.diff(ladder) >= 0).all()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_whole_runs_are_valid_and_no_job_is_faster_than_its_best_type(seed):
    workload = random_workload(seed)
    jobs = workload.jobs
    fastest_s = jobs.steps / np.maximum(jobs.rate, jobs.spread_rate).max(axis=1)
    for scheduler in (Hadar(), Hadar("inv", sticky=True), Hadar("eff", backfill=False), Hadar("effgpu", beam_width=4)):
        run = simulate(workload, scheduler)  # the engine checks each round
        assert (run.jct_s >= fastest_s - 1e-6).all()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_some_job_runs_and_capacity_holds(seed):
    state = small_start(seed, 8)
    for scheduler in (Hadar(), Hadar(mixed=False), Hadar(beam_width=3)):
        allocation = scheduler.allocate(state)
        check_allocation(state.cluster, state.jobs, allocation)
        assert len(allocation.job) or not scheduler.mixed
        assert (gpus_in_use(state.cluster, allocation) <= state.cluster.node_gpus).all()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_with_one_type_mixing_changes_nothing(seed):
    workload = random_workload(seed, one_type=True)
    assert (simulate(workload, Hadar()).end_s == simulate(workload, Hadar(mixed=False)).end_s).all()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_sticky_jobs_stay_where_they_are(seed):
    state = small_start(seed, 8)
    before = Hadar().allocate(state)
    kept = before.job != before.job.max()  # all but the last stay, and nobody moves
    before = type(before)(*(column[kept] for column in before))
    after = Hadar(sticky=True).allocate(state._replace(previous=before))
    places = set(zip(*(column.tolist() for column in after), strict=True))
    assert set(zip(*(column.tolist() for column in before), strict=True)) <= places


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), dear=st.booleans())
def test_the_dynamic_program_is_the_best_of_all_subsets(seed, dear):
    state = small_start(seed, 5)
    cluster, jobs = state.cluster, state.jobs
    terms, queue = Hadar(eta=1e-3 if dear else None).terms(state)
    if terms.low >= terms.high:
        terms = terms._replace(high=terms.low * 2)
    best = 0.0
    for taken in product([False, True], repeat=len(queue)):
        free, total = cluster.node_gpus.copy(), 0.0
        for job in queue[np.array(taken)]:
            node_price = price(cluster.node_gpus - free, cluster.node_gpus, terms.low, terms.high)
            payoff, node, gpus = find_alloc(cluster, jobs, job, terms, free, node_price, NONE, NONE)
            total += payoff if payoff > 0 else -np.inf
            if total < 0:
                break
            free[node] -= gpus
        best = max(best, total)
    value, plan, free, seen = branch(cluster, jobs, terms, queue, nothing_runs(), cluster.node_gpus, beam_width=None)
    assert value == pytest.approx(best)
    assert (free == cluster.node_gpus - gpus_in_use(cluster, allocation_of(plan))).all()
    assert seen <= 1 + len(queue) * np.prod(cluster.node_gpus + 1)
    for width in (1, 2, 4):
        assert branch(cluster, jobs, terms, queue, nothing_runs(), cluster.node_gpus,
                      beam_width=width)[0] <= value + 1e-9


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_no_rule_beats_the_best_round(seed):
    state = small_start(seed, 5)
    terms, _ = Hadar().terms(state)
    value, allocation = best_round(state.cluster, state.jobs, state.active, terms)
    check_allocation(state.cluster, state.jobs, allocation)
    assert utility_of(state, allocation) == pytest.approx(value, rel=1e-6)
    for scheduler in (Hadar(), Hadar(mixed=False), Hadar(beam_width=50)):
        assert utility_of(state, scheduler.allocate(state)) <= value * (1 + 1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_printed_algorithm_schedules_nothing(seed):
    state = small_start(seed)
    terms, queue = Hadar().terms(state)
    assert literal_round(state.cluster, state.jobs, terms, queue, state.cluster.node_gpus) == (0.0, {})


def test_serving_uses_up_what_it_gives():
    state = small_start(3)
    terms, queue = Hadar().terms(state)
    free = state.cluster.node_gpus.copy()
    assert isinstance(terms, Terms)
    _, node, gpus = serve(state.cluster, state.jobs, terms, queue, state.previous, free, True)
    used = np.zeros(len(free), np.int64)
    np.add.at(used, node, gpus)
    assert (used + free == state.cluster.node_gpus).all()
