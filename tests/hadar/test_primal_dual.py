"""Hadar's decision of a round: recorded schedules, brute force on small rounds, and laws on random clusters."""
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.fluid import makespan_bound_s
from sched_lab.hadar.model import (
    Allocation,
    Cluster,
    Jobs,
    State,
    Workload,
    allocation_of,
    check_allocation,
    gpus_in_use,
    joined,
    nothing_runs,
    round_rate,
    workers_that_fit,
)
from sched_lab.hadar.primal_dual import (
    Hadar,
    Place,
    Terms,
    best_round,
    branch,
    density,
    fill,
    find_alloc,
    is_same,
    largest_first,
    literal_round,
    nowhere,
    pack,
    payoff_of,
    places_of,
    price,
    price_limits,
    reference_rate,
    serve,
    serve_in,
    speeds_of,
    utility_scale,
    ways_of,
)
from sched_lab.hadar.simulation import keeps_place, run_rounds
from sched_lab.hadar.workload import read_gavel_throughputs
from sched_lab.lab.frames import InputError
from sched_lab.traces import find_data
from tests.hadar.cases import CASES, TOY, random_gangs, toy_golden

THROUGHPUTS = find_data("gavel/throughputs.csv")


def at(node: Any, gpus: Any) -> Place:
    """Make a place of two lists."""
    return Place(np.array(node, np.int64), np.array(gpus, np.int64))


def listed(place: Place) -> tuple[list[int], list[int]]:
    """Nodes and GPUs of a place."""
    return place.node.tolist(), place.gpus.tolist()


def start_of(cluster: Cluster, jobs: Jobs) -> State:
    """Begin with jobs that are all there and nothing running."""
    count = len(jobs.steps)
    return State(cluster, jobs, 0.0, np.arange(count), jobs.steps, nothing_runs(), np.zeros(count), np.zeros(count))


def random_workload(seed: int, *, one_type: bool = False, late: bool = True) -> Workload:
    """Up to eight jobs that can run, on up to four nodes of up to three types; some cannot run everywhere."""
    rng = np.random.default_rng(seed)
    num_jobs = int(rng.integers(1, 9))
    num_nodes = int(rng.integers(1, 5))
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

@toy_golden
def test_prices_are_the_recorded_ones():
    for row in TOY["price"]:
        assert price(row["gamma"], row["c"], row["umin"], row["umax"]) == pytest.approx(row["k"], rel=1e-12)


@pytest.mark.skipif(not TOY or not CASES or THROUGHPUTS is None,
                    reason="../shared/reference/hadar or ../shared/data/gavel is absent")
@pytest.mark.parametrize(("name", "scheduler"), [
    ("Hadar-effnorm", Hadar()), ("Hadar-eff", Hadar("eff")), ("Hadar-inv", Hadar("inv")),
    ("Hadar-sticky", Hadar(sticky=True))])
def test_six_jobs_run_as_recorded(name, scheduler):
    case = next((case for case in CASES if case["name"] == "tiny6"), None)
    if case is None:
        pytest.skip("the recorded cases have no tiny6")
    table = read_gavel_throughputs(THROUGHPUTS)
    given_jobs = case["jobs"]
    rows = [table.row[job["job_type"], job["scale_factor"]] for job in given_jobs]
    jobs = Jobs(np.array([job["arrival_s"] for job in given_jobs], float),
                np.array([job["total_steps"] for job in given_jobs], float),
                np.array([job["scale_factor"] for job in given_jobs]), np.ones(6), table.rate[rows],
                table.spread_rate[rows])
    cluster = Cluster(np.arange(3), np.array([2, 2, 2]))
    run = run_rounds(Workload(tuple("012345"), ("v", "p", "k"), table.type_name, cluster, jobs), scheduler)
    expected = TOY["tiny6"][name]
    first = run.history[run.history["round"] == 0]
    assert run.end_s == pytest.approx(np.array(expected["finish_s"]), abs=2e-3)  # recorded with few digits
    assert len(run.intervals) == expected["rounds"]
    places = {str(job): [] for job in range(6)}
    for job, node, gpus in zip(first["job"], first["node"], first["gpus"], strict=True):
        places[str(job)].append([node, gpus])
    assert {job: place or None for job, place in places.items()} == expected["first_round"]


# --- by hand ---------------------------------------------------------------------------------------------------------

def three_jobs() -> State:
    """Start the chapter's toy: A, B and C want 1, 2 and 3 of two V100 and four K80, and weigh 1, 2 and 1."""
    rate = np.array([[4.0, 1], [2, 1], [2, 1]])
    spread_rate = np.array([[4.0, 1], [1.6, 0.8], [1.8, 0.9]])
    jobs = Jobs(np.zeros(3), np.array([7200.0, 3600.0, 3600.0]), np.array([1, 2, 3]), np.array([1.0, 2.0, 1.0]), rate,
                spread_rate)
    return start_of(Cluster(np.array([0, 1]), np.array([2, 4])), jobs)


def equal_jobs(workers: list[int], nodes: list[int], *, spread: float = 1.0, steps: float = 3600.0) -> State:
    """Start jobs of 1 step/s on nodes of one type."""
    count = len(workers)
    jobs = Jobs(np.zeros(count), np.full(count, steps), np.array(workers), np.ones(count), np.ones((count, 1)),
                np.full((count, 1), spread))
    return start_of(Cluster(np.zeros(len(nodes), int), np.array(nodes)), jobs)


def test_utilities_count_steps_gangs_and_weights():
    jobs = three_jobs().jobs
    assert utility_scale(jobs).tolist() == [1800, 2 * 1800, 1800]
    assert utility_scale(jobs, "eff").tolist() == [7200, 2 * 3600, 3600]
    assert utility_scale(jobs, "effgpu").tolist() == [7200, 2 * 3600 * 2, 3600 * 3]
    assert utility_scale(jobs, "effnormgpu").tolist() == [1800, 2 * 1800 * 2, 1800 * 3]
    assert utility_scale(jobs, "inv").tolist() == [1, 2, 1]


def test_the_price_limits_of_jobs_under_way():
    # After 720 s, rounds of 360 s, horizon 10 rounds, 3 GPUs. The first job needs 1800 s at best and 3600 s on its
    # slowest type (not infinitely many on the third): 10 rounds, 20 GPU-rounds, done at 4320 s, beyond the horizon.
    # The second needs 90 s, which count as a round. So eta is 10 * 3 / 1.
    rate = np.array([[2.0, 0.5, 0.0], [4.0, 4.0, 4.0]])
    jobs = Jobs(np.array([100.0, 360.0]), np.array([3600.0, 720.0]), np.array([2, 1]), np.ones(2), rate, rate)
    cluster = Cluster(np.arange(3), np.ones(3, int))
    active = np.arange(2)
    left = np.array([1800.0, 360.0])
    speeds = speeds_of(jobs)
    assert speeds.scale.tolist() == [1800, 180]
    # utilities of the rest: 1800 / (720 + 900 - 100) and 180 / (720 + 90 - 360), the first for two workers
    assert density(jobs, active, speeds, left, 720.0) == pytest.approx([1800 / 1520 / 2, 180 / 450])
    state = start_of(cluster, jobs)._replace(now_s=720.0, remaining=left)
    low, high = price_limits(state, speeds, round_s=360.0, horizon_s=3600.0)
    assert low == pytest.approx(min(1800 / (4320 - 100) / 20, 180 / (3600 - 360)) / (4 * 30))
    assert high == pytest.approx(1800 / 1520 / 2)


def test_types_are_compared_packed_even_if_the_gang_is_faster_spread():
    jobs = Jobs(np.zeros(1), np.ones(1), np.array([2]), np.ones(1), np.array([[2.0, 1.0]]), np.array([[1.0, 3.0]]))
    assert reference_rate(jobs).tolist() == [[2, 1]]


def test_a_node_without_free_gpus_takes_no_part():
    free = np.array([0, 2])
    cost = np.array([0.1, 0.2])
    assert listed(fill(np.ones(2, bool), free, cost, True, 2)) == ([1], [2])
    assert listed(fill(np.ones(2, bool), free, cost, False, 3)) == ([], [])


def test_of_equal_nodes_the_first_holds_the_gang():
    cost = np.array([0.3, 0.2, 0.2])
    assert listed(pack(np.ones(3, bool), np.array([2, 2, 2]), cost, 2)) == ([1], [2])
    # the cheapest one may not be used, and a fuller node is no reason to pay more
    assert listed(pack(np.array([True, False, True]), np.array([2, 2, 3]), cost, 2)) == ([2], [2])


@pytest.mark.parametrize(("node", "gpus", "same"), [
    ([0, 2], [1, 3], True), ([2, 0], [3, 1], True), ([2, 0], [1, 3], False), ([0], [1], False),
    ([0, 1], [1, 3], False), ([0, 3], [1, 3], False), ([0, 2, 1], [1, 3, 1], False)])
def test_places_are_the_same_if_nodes_and_gpus_are(node, gpus, same):
    assert is_same(at(node, gpus), at([0, 2], [1, 3])) == same


def test_a_payoff_is_the_utility_left_over_minus_the_cost_of_a_round():
    state = three_jobs()
    jobs = state.jobs._replace(arrival_s=np.array([0.0, 0.0, 100.0]))
    terms = Terms(state.cluster, jobs, utility_scale(jobs), reference_rate(jobs),
                  np.array([7200.0, 3600.0, 1800.0]), 500.0, 20.0, 0.05, True, 0.01, 1.0)
    cost = np.array([0.1, 0.2])
    both = at([0, 1], [1, 2])
    # C on a V100 and two K80 at 0.9: 500 + 20 + 2000 - 100 s; three GPUs, two nodes
    moved = payoff_of(terms, 2, cost, both, True)
    assert moved == pytest.approx(1800 / 2420 - 0.1 - 2 * 0.2 - 0.05)
    stayed = payoff_of(terms, 2, cost, both, False)
    assert stayed == pytest.approx(1800 / 2400 - 0.1 - 2 * 0.2 - 0.05)
    # on K80 alone, packed at 1 step/s: 500 + 1800 - 100 s, one node
    packed = payoff_of(terms, 2, cost, at([1], [3]), False)
    assert packed == pytest.approx(1800 / 2200 - 3 * 0.2)
    unspread = terms._replace(jobs=jobs._replace(spread_rate=np.zeros((3, 2))))
    assert payoff_of(unspread, 2, cost, both, True) == -np.inf
    assert payoff_of(terms, 2, cost, nowhere(), True) == -np.inf


def place_of(state: State, job: int, *, free: list[int], cost: list[float], old: tuple[Any, Any] = ((), ()),
             **changes: Any) -> dict[int, int]:
    """Node -> GPUs of the best place for a job."""
    terms = Terms(state.cluster, state.jobs, utility_scale(state.jobs), reference_rate(state.jobs), state.remaining,
                  0.0, 10.0, 0.0, True, 0.1, 1.0)
    _, place = find_alloc(terms._replace(**changes), job, np.array(free), np.array(cost), at(*old))
    return dict(zip(*listed(place), strict=True))


def test_the_best_place_is_found_by_hand():
    toy = three_jobs()
    assert place_of(toy, 0, free=[2, 4], cost=[0.1, 0.1]) == {0: 1}           # four times as fast on a V100
    assert place_of(toy, 0, free=[2, 4], cost=[0.9, 0.1]) == {1: 1}           # 0.994 - 0.9 < 0.249 - 0.1
    assert place_of(toy, 2, free=[1, 4], cost=[0.0, 0.0]) == {1: 3}           # alone on K80: 1, not 0.9
    assert place_of(toy, 2, free=[1, 2], cost=[0.0, 0.0]) == {0: 1, 1: 2}
    assert place_of(toy, 2, free=[1, 2], cost=[0.0, 0.0], mixed=False) == {}
    assert place_of(toy, 2, free=[1, 1], cost=[0.0, 0.0]) == {}
    # two workers: packed on the dear node, or a GPU each of two cheap ones if spreading costs less than that
    for spread, place in ((0.9, {1: 1, 2: 1}), (0.5, {0: 2})):
        state = equal_jobs([2], [2, 1, 1], spread=spread)
        assert place_of(state, 0, free=[2, 1, 1], cost=[0.2, 0.1, 0.1]) == place


def test_of_equally_good_places_the_first_one_found_is_taken():
    # packed fills the second node, unpacked would begin with the one that has more free GPUs
    assert place_of(equal_jobs([2], [3, 2]), 0, free=[3, 2], cost=[0.1, 0.1]) == {1: 2}
    # with no restart to save, the old place is no better than the first one
    old = ([1], [1])
    assert place_of(equal_jobs([1], [1, 1]), 0, free=[1, 1], cost=[0.1, 0.1], old=old, restart_s=0.0) == {0: 1}


def test_the_old_place_is_kept_only_while_all_of_it_is_free():
    # spread over the first two nodes, at 9/10; the third one holds the gang, but a restart takes 1000 of 3600 s
    state = equal_jobs([2], [1, 1, 2], spread=0.9)
    old = ([0, 1], [1, 1])
    for free, place in (([1, 1, 2], {0: 1, 1: 1}), ([0, 1, 2], {2: 2}), ([1, 0, 2], {2: 2})):
        assert place_of(state, 0, free=free, cost=[0.1] * 3, old=old, restart_s=1000.0) == place
    assert place_of(state, 0, free=[1, 1, 2], cost=[0.1] * 3, old=old, restart_s=10.0) == {2: 2}


def test_prices_rise_while_the_queue_is_served():
    # the second job finds the first node half full, and dearer
    state = equal_jobs([1, 1], [2, 2])
    assert Hadar().allocate(state).node.tolist() == [0, 1]
    # and it is no cheaper because the first one was there before
    stays = state._replace(previous=allocation_of({0: {0: 1}}))
    assert Hadar(sticky=True).allocate(stays).node.tolist() == [0, 1]


def test_a_gang_may_take_the_last_gpus():
    assert Hadar().allocate(equal_jobs([1, 3], [2, 2])).gpus.tolist() == [1, 1, 2]


def test_the_queue_is_that_of_the_active_jobs_densest_first():
    state = three_jobs()._replace(active=np.array([0, 2]), now_s=360.0)
    terms, queue = Hadar("inv", restart_s=20.0, mixed=False, node_cost=0.5, eta=1.0, horizon_s=36_000).terms(state)
    assert queue.tolist() == [0, 2]  # 1 / 2160, and a third of that
    heavy = state._replace(jobs=state.jobs._replace(weight=np.array([1.0, 1.0, 9.0])))
    assert Hadar("inv").terms(heavy)[1].tolist() == [2, 0]
    assert (terms.now_s, terms.restart_s, terms.mixed, terms.node_cost) == (360, 20, False, 0.5)
    assert terms.scale.tolist() == [1, 2, 1]
    assert terms.high == pytest.approx(1 / (360 + 1800))
    assert terms.low == pytest.approx(1 / 36_000 / 30 / 4)  # C: 30 GPU-rounds on K80; B is not active


def test_without_backfill_the_best_branch_is_all_that_runs():
    dear = equal_jobs([2], [1, 1])
    assert len(Hadar(node_cost=2.0, beam_width=4, backfill=False).allocate(dear).job) == 0
    assert Hadar(node_cost=2.0, beam_width=4).allocate(dear).gpus.tolist() == [1, 1]
    # a round in which the best branch leaves GPUs that somebody could pay for
    state = small_start(218, 8)
    terms, queue = Hadar().terms(state)
    best, _ = branch(terms, queue, nothing_runs(), state.cluster.node_gpus, beam_width=2)
    assert set(Hadar(beam_width=2, backfill=False).allocate(state).job) == set(best.taken)
    assert set(Hadar(beam_width=2).allocate(state).job) > set(best.taken)


def test_the_dynamic_program_looks_at_every_state_once():
    state = three_jobs()
    terms, queue = Hadar(horizon_s=36_000).terms(state)
    for width, seen in ((None, 1 + 2 + 4 + 8), (2, 1 + 2 + 4 + 4), (1, 1 + 2 + 2 + 2)):
        assert branch(terms, queue, nothing_runs(), state.cluster.node_gpus, beam_width=width)[1] == seen
    dear = equal_jobs([2], [1, 1])  # spread over two nodes, of which the second costs 2: no branch takes the job
    terms, queue = Hadar(node_cost=2.0).terms(dear)
    best, looked_at = branch(terms, queue, nothing_runs(), dear.cluster.node_gpus, beam_width=None)
    assert (best.taken, looked_at) == ({}, 2)


def test_ways_to_run_a_job_by_hand():
    state = three_jobs()
    ways = [(way.job, way.nodes.tolist(), way.rate) for way in ways_of(state.cluster, state.jobs, 1)]
    assert ways == [(1, [0], 2.0), (1, [1], 1.0), (1, [0, 1], 0.8), (1, [0], 1.6)]
    # one worker is never spread, and nobody runs at rate 0
    single = state.jobs._replace(rate=np.array([[4.0, 0.0]] * 3), spread_rate=np.array([[3.0, 0.0]] * 3))
    assert [(way.nodes.tolist(), way.rate) for way in ways_of(state.cluster, single, 0)] == [([0], 4.0)]


def test_the_best_round_by_hand():
    # one GPU at 500 s: A was there from the start, B from 400 s on; both need 1000 s after a restart of 20 s
    state = equal_jobs([1, 1], [1], steps=1000.0)
    jobs = state.jobs._replace(arrival_s=np.array([0.0, 400.0]))
    terms = Terms(state.cluster, jobs, utility_scale(jobs), reference_rate(jobs), jobs.steps, 500.0, 20.0, 0.0, True,
                  0.1, 1.0)
    value, allocation = best_round(terms, np.arange(2))
    assert value == pytest.approx(1000 / (500 + 20 + 1000 - 400))
    assert allocation.job.tolist() == [1]
    too_large = equal_jobs([2], [1, 1], spread=0.0)
    value, allocation = best_round(terms._replace(cluster=too_large.cluster, jobs=too_large.jobs), np.arange(1))
    assert (value, len(allocation.job)) == (0, 0)


def test_the_price_limits_of_one_job():
    # 4 slots alone on 1 of 2 GPUs, horizon 10 slots: demand 4, eta = 10 * 2 / 4 = 5, U(T) = 4 / 10 in units of 1 / 4
    jobs = Jobs(np.zeros(1), np.array([1440.0]), np.array([1]), np.ones(1), np.ones((1, 1)), np.ones((1, 1)))
    state = start_of(Cluster(np.array([0]), np.array([2])), jobs)
    low, high = price_limits(state, speeds_of(jobs), round_s=360.0, horizon_s=3600.0)
    assert low == pytest.approx(0.4 / 4 / (4 * 5))
    assert high == 1
    low, _ = price_limits(state, speeds_of(jobs), round_s=360.0, horizon_s=3600.0, eta=1.0)
    assert low == pytest.approx(0.4 / 4 / 4)


def test_fill_takes_the_cheapest_or_the_fewest_nodes_and_only_usable_ones():
    free = np.array([2, 3, 1])
    cost = np.array([0.2, 0.1, 0.1])
    usable = np.ones(3, bool)
    assert listed(fill(usable, free, cost, True, 4)) == ([1, 2], [3, 1])  # at 0.1 more free GPUs go first
    assert listed(fill(usable, free, cost, False, 4)) == ([1, 0], [3, 1])
    assert listed(fill(np.array([True, False, True]), free, cost, False, 4)) == ([], [])


def test_pack_takes_the_cheapest_node_that_holds_the_gang_then_the_fullest():
    usable = np.ones(3, bool)
    assert listed(pack(usable, np.array([2, 3, 4]), np.array([0.3, 0.2, 0.2]), 2)) == ([1], [2])
    assert listed(pack(usable, np.array([1, 1, 2]), np.array([0.1, 0.1, 0.9]), 3)) == ([], [])


def test_a_gang_that_no_node_holds_is_packed_on_as_few_as_possible():
    state = equal_jobs([3], [1, 1, 2], spread=0.9)
    assert place_of(state, 0, free=[1, 1, 2], cost=[0.1, 0.1, 0.1]) == {2: 2, 0: 1}


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
    with pytest.raises(InputError, match="there is no utility 'speed'"):
        utility_scale(small_start(0).jobs, "speed")


@pytest.mark.parametrize(("options", "message"), [
    ({"beam_width": 0}, "beam_width is 0; give at least 1"), ({"eta": 0.2}, "eta is 0.2; give at least 0.25"),
    ({"eta": np.nan}, "eta is nan"), ({"restart_s": -1.0}, "restart_s is -1.0"), ({"node_cost": -0.1}, "node_cost"),
    ({"round_s": 0.0}, "a round of 0.0 s"), ({"round_s": -360.0}, "a round of -360.0 s"),
    ({"horizon_s": 300.0}, "a round of 360.0 s in a horizon of 300.0 s")])
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Hadar(**options)


# --- laws ------------------------------------------------------------------------------------------------------------

@given(gpus=st.integers(1, 16), low=st.floats(1e-6, 1), factor=st.floats(1, 1e6))
def test_prices_rise_from_the_lowest_to_the_highest(gpus, low, factor):
    ladder = price(np.arange(gpus + 1), gpus, low, low * factor)
    assert ladder[0] == pytest.approx(low)
    assert ladder[-1] == pytest.approx(low * factor)
    assert (np.diff(ladder) >= 0).all()


def steps_of(workload: Workload, run: Any, restart_s: float) -> Any:
    """(jobs,) steps that the recorded places do in the time in which they are held."""
    before = allocation_of({})
    done = np.zeros(len(workload.job_name))
    rounds = dict(tuple(run.history.groupby("round")))
    for number, interval in enumerate(run.intervals.itertuples()):
        rows = rounds.get(number)
        places = allocation_of({}) if rows is None else Allocation(*(rows[name].to_numpy()
                                                                     for name in ("job", "node", "gpus")))
        held_s = np.minimum(run.end_s - interval.start_s, interval.length_s)
        lost_s = restart_s * ~keeps_place(before, places, len(done))
        done += round_rate(workload.cluster, workload.jobs, places) * (held_s - lost_s)
        before = places
    return done


ALL_OPTIONS = st.builds(Hadar, st.sampled_from(["effnorm", "effnormgpu", "eff", "effgpu", "inv"]), sticky=st.booleans(),
                        mixed=st.just(True), backfill=st.booleans(), beam_width=st.sampled_from([1, 4]),
                        eta=st.sampled_from([None, 1.0, 100.0]), node_cost=st.sampled_from([0.0, 1e-5])).filter(
    lambda scheduler: scheduler.backfill or not scheduler.node_cost)  # or a spread gang may wait for ever


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), scheduler=ALL_OPTIONS)
def test_whole_runs_are_valid_complete_and_no_faster_than_possible(seed, scheduler):
    workload = random_workload(seed)
    jobs = workload.jobs  # the engine checks capacity and gangs of each round
    run = run_rounds(workload, scheduler)
    fastest_s = jobs.steps / np.maximum(jobs.rate, jobs.spread_rate).max(axis=1)
    assert (run.jct_s >= fastest_s - 1e-6).all()
    assert run.end_s.max() >= makespan_bound_s(workload.cluster, jobs) * (1 - 1e-9)
    assert steps_of(workload, run, scheduler.restart_s) == pytest.approx(jobs.steps, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), beam_width=st.sampled_from([1, 3]))
def test_a_sticky_job_runs_without_a_break_where_it_began(seed, beam_width):
    run = run_rounds(random_workload(seed), Hadar(sticky=True, beam_width=beam_width))
    for _, rows in run.history.groupby("job"):
        rounds = np.unique(rows["round"])
        assert (np.diff(rounds) == 1).all()
        places = {tuple(zip(now["node"], now["gpus"], strict=True)) for _, now in rows.groupby("round")}
        assert len(places) == 1


class Watched(Hadar):
    """Check the prices of each round before and after the decision."""

    def allocate(self, state: State) -> Allocation:
        """Who runs where in the round that starts now."""
        terms, queue = self.terms(state)
        assert 0 < terms.low <= terms.high
        decided = super().allocate(state)
        for taken in (0, gpus_in_use(state.cluster, decided)):
            cost = price(taken, state.cluster.node_gpus, terms.low, terms.high)
            assert (cost >= terms.low * (1 - 1e-12)).all()
            assert (cost <= terms.high * (1 + 1e-12)).all()
        # the highest one is what the densest job can pay for a GPU
        speeds = self.speeds(state.jobs)
        assert terms.high == pytest.approx(density(state.jobs, queue, speeds, terms.remaining, terms.now_s)[0])
        return decided


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), utility=st.sampled_from(["effnorm", "effnormgpu", "eff", "effgpu", "inv"]),
       eta=st.sampled_from([None, 0.25, 1.0]), horizon_s=st.sampled_from([360.0, 3600.0, 720_000.0]))
def test_prices_stay_within_their_limits_in_every_round(seed, utility, eta, horizon_s):
    run_rounds(random_workload(seed), Watched(utility, eta=eta, horizon_s=horizon_s))


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
    assert (run_rounds(workload, Hadar()).end_s == run_rounds(workload, Hadar(mixed=False)).end_s).all()


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
    cluster = state.cluster
    terms, queue = Hadar().terms(state)
    if dear:  # so that some payoffs are negative
        terms = terms._replace(low=terms.high / 2, high=terms.high * 2)
    best = 0.0
    for taken in product([False, True], repeat=len(queue)):
        free = cluster.node_gpus.copy()
        total = 0.0
        for job in queue[np.array(taken)]:
            node_price = price(cluster.node_gpus - free, cluster.node_gpus, terms.low, terms.high)
            payoff, (node, gpus) = find_alloc(terms, job, free, node_price, nowhere())
            total += payoff if payoff > 0 else -np.inf
            if total < 0:
                break
            free[node] -= gpus
        best = max(best, total)
    found, seen = branch(terms, queue, nothing_runs(), cluster.node_gpus, beam_width=None)
    assert found.value == pytest.approx(best)
    assert (found.free == cluster.node_gpus - gpus_in_use(cluster, allocation_of(found.taken))).all()
    assert seen <= 1 + len(queue) * np.prod(cluster.node_gpus + 1)
    values = [branch(terms, queue, nothing_runs(), cluster.node_gpus, beam_width=width)[0].value
              for width in (1, 2, 4, None)]
    assert (np.array(values) <= found.value + 1e-9).all()
    job, _, _ = serve(terms, queue, nothing_runs(), cluster.node_gpus.copy(), False)
    narrow, _ = branch(terms, queue, nothing_runs(), cluster.node_gpus, beam_width=1)
    assert list(narrow.taken) == list(dict.fromkeys(job.tolist()))  # with one state it is the greedy rule


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_no_rule_beats_the_best_round(seed):
    state = small_start(seed, 5)
    terms, _ = Hadar().terms(state)
    value, allocation = best_round(terms, state.active)
    check_allocation(state.cluster, state.jobs, allocation)
    assert utility_of(state, allocation) == pytest.approx(value, rel=1e-6)
    for scheduler in (Hadar(), Hadar(mixed=False), Hadar(beam_width=50)):
        assert utility_of(state, scheduler.allocate(state)) <= value * (1 + 1e-6)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_the_printed_algorithm_schedules_nothing(seed):
    state = small_start(seed)
    terms, queue = Hadar().terms(state)
    assert literal_round(terms, queue, state.cluster.node_gpus) == (0.0, {})


def test_serving_uses_up_what_it_gives():
    state = small_start(3)
    terms, queue = Hadar().terms(state)
    free = state.cluster.node_gpus.copy()
    assert isinstance(terms, Terms)
    _, node, gpus = serve(terms, queue, state.previous, free, True)
    used = np.zeros(len(free), np.int64)
    np.add.at(used, node, gpus)
    assert (used + free == state.cluster.node_gpus).all()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6))
def test_buckets_serve_as_a_walk_over_all_nodes_does(seed):
    rng = np.random.default_rng(seed)
    work = random_gangs(seed) if rng.random() < 0.5 else random_workload(seed, late=False)
    repeats = int(rng.integers(1, 6))  # so that nodes are alike
    cluster = Cluster(np.tile(work.cluster.node_type, repeats), np.tile(work.cluster.node_gpus, repeats))
    jobs = Jobs(*(np.concatenate([column] * 4) for column in work.jobs))
    speeds = speeds_of(jobs)
    low, high = sorted(10.0 ** rng.uniform(-6, 2, 2))
    terms = Terms(cluster, jobs, speeds.scale, speeds.reference, jobs.steps, 4000.0, 10.0,
                  rng.choice([0.0, 0.1]), bool(rng.random() < 0.7), low, high)
    held = nothing_runs()
    backfill = bool(rng.random() < 0.7)
    for _ in range(4):
        queue = rng.permutation(len(jobs.steps))
        free, same = cluster.node_gpus.copy(), cluster.node_gpus.copy()
        walked = serve(terms, queue, held, free, backfill)
        looked_up = serve_in(terms, speeds.order, queue, held, same, backfill)
        assert (walked == looked_up).all() and (free == same).all()
        held = joined([Allocation(*walked)])


def test_what_is_known_of_the_speeds_is_computed_once_and_anew_for_other_jobs():
    scheduler = Hadar()
    state = small_start(0)
    scheduler.allocate(state)
    assert scheduler.speeds(state.jobs) is scheduler.speeds(state.jobs)
    other = state.jobs._replace(steps=2 * state.jobs.steps)
    assert (scheduler.speeds(other).scale == 2 * speeds_of(state.jobs).scale).all()


def test_among_equal_values_the_first_one_comes_first():
    assert largest_first(np.array([1.0, 3.0, 3.0, 2.0, 3.0])).tolist() == [1, 2, 4, 3, 0]
    value = np.random.default_rng(0).random(500)
    assert (largest_first(value) == np.argsort(-value, kind="stable")).all()
