"""Hadar's decision of a round: prices, payoffs and places by hand, and laws on random clusters."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.fluid import makespan_bound_s
from sched_lab.hadar.model import Allocation, allocation_of, gpus_in_use, joined, nothing_runs
from sched_lab.hadar.primal_dual import (
    NO_TOLL,
    Hadar,
    Place,
    branch,
    density,
    find_alloc,
    largest_first,
    nowhere,
    payoff_of,
    price,
    price_limits,
    serve,
    speeds_of,
    utility_scale,
)
from sched_lab.hadar.simulation import run_rounds
from sched_lab.lab.frames import InputError
from tests.hadar.cases import jobs_of, nodes_of, random_gangs, state_of, steps_done

seeds = st.integers(0, 10_000)
UTILITIES = ["effnorm", "effnormgpu", "eff", "effgpu", "inv"]


def at(node, gpus):
    """Make a place of two lists."""
    return Place(np.array(node, np.int64), np.array(gpus, np.int64))


def random_state(seed):
    """All jobs of a random workload, before the first round."""
    work = random_gangs(seed)
    return state_of(work.cluster, work.jobs._replace(arrival_s=np.zeros(len(work.job_name))))


# --- by hand ---------------------------------------------------------------------------------------------------------

def three_jobs():
    """Start the chapter's toy: A, B and C want 1, 2 and 3 of two V100 and four K80, and weigh 1, 2 and 1."""
    jobs = jobs_of([[4, 1], [2, 1], [2, 1]], [7200, 3600, 3600], [1, 2, 3], weight=[1, 2, 1],
                   spread=np.array([[1], [0.8], [0.9]]))
    return state_of(nodes_of([2, 4], [0, 1]), jobs)


def equal_jobs(workers, nodes, spread=1.0):
    """Start jobs of an hour at 1 step/s on nodes of one type."""
    return state_of(nodes_of(nodes), jobs_of(np.ones((len(workers), 1)), 3600, workers, spread=spread))


def test_the_price_limits_of_jobs_under_way():
    # After 720 s, rounds of 360 s, horizon 10 rounds, 3 GPUs. The first job needs 1800 s at best and 3600 s on its
    # slowest type (not infinitely many on the third): 10 rounds, 20 GPU-rounds, done at 4320 s, beyond the horizon.
    # The second needs 90 s, which count as a round. So eta is 10 * 3 / 1.
    jobs = jobs_of([[2, 0.5, 0], [4, 4, 4]], [3600, 720], [2, 1], arrival_s=[100, 360])
    left = np.array([1800.0, 360.0])
    speeds = speeds_of(jobs)
    assert speeds.scale.tolist() == [1800, 180]
    # utilities of the rest: 1800 / (720 + 900 - 100) and 180 / (720 + 90 - 360), the first for two workers
    assert density(jobs, np.arange(2), speeds, left, 720.0) == pytest.approx([1800 / 1520 / 2, 180 / 450])
    state = state_of(nodes_of([1, 1, 1], range(3)), jobs, now_s=720.0, remaining=left)
    low, high = price_limits(state, speeds, round_s=360.0, horizon_s=3600.0)
    assert low == pytest.approx(min(1800 / (4320 - 100) / 20, 180 / (3600 - 360)) / (4 * 30))
    assert high == pytest.approx(1800 / 1520 / 2)


def test_a_payoff_is_the_utility_left_over_minus_the_cost_of_a_round():
    state = three_jobs()
    jobs = state.jobs._replace(arrival_s=np.array([0.0, 0.0, 100.0]))
    left = np.array([7200.0, 3600.0, 1800.0])
    terms, _ = Hadar(restart_s=20.0, node_cost=0.05).terms(state._replace(jobs=jobs, now_s=500.0, remaining=left))
    cost = np.array([0.1, 0.2])
    both = at([0, 1], [1, 2])
    # C on a V100 and two K80 at 0.9: 500 + 20 + 2000 - 100 s; three GPUs, two nodes
    assert payoff_of(terms, 2, cost, both, True) == pytest.approx(1800 / 2420 - 0.1 - 2 * 0.2 - 0.05)
    assert payoff_of(terms, 2, cost, both, False) == pytest.approx(1800 / 2400 - 0.1 - 2 * 0.2 - 0.05)
    # on K80 alone, packed at 1 step/s: 500 + 1800 - 100 s, one node
    assert payoff_of(terms, 2, cost, at([1], [3]), False) == pytest.approx(1800 / 2200 - 3 * 0.2)
    unspread = terms._replace(jobs=jobs._replace(spread_rate=np.zeros((3, 2))))
    assert payoff_of(unspread, 2, cost, both, True) == payoff_of(terms, 2, cost, nowhere(), True) == -np.inf


TOY = three_jobs()
SPREAD = equal_jobs([2], [1, 1, 2], 0.9)  # on the first two nodes at 9/10, or on the third
OLD = ([0, 1], [1, 1])


@pytest.mark.parametrize(("state", "job", "free", "cost", "more", "place"), [
    (TOY, 0, [2, 4], [0.1, 0.1], {}, {0: 1}),                    # four times as fast on a V100
    (TOY, 0, [2, 4], [0.9, 0.1], {}, {1: 1}),                    # 0.994 - 0.9 < 0.249 - 0.1
    (TOY, 2, [1, 4], [0.0, 0.0], {}, {1: 3}),                    # alone on K80: 1, not 0.9
    (TOY, 2, [1, 2], [0.0, 0.0], {}, {0: 1, 1: 2}),
    (TOY, 2, [1, 2], [0.0, 0.0], {"mixed": False}, {}),
    (TOY, 2, [1, 1], [0.0, 0.0], {}, {}),
    # packed on the dear node, or a GPU each of two cheap ones if spreading costs less than that
    (equal_jobs([2], [2, 1, 1], 0.9), 0, [2, 1, 1], [0.2, 0.1, 0.1], {}, {1: 1, 2: 1}),
    (equal_jobs([2], [2, 1, 1], 0.5), 0, [2, 1, 1], [0.2, 0.1, 0.1], {}, {0: 2}),
    # packed fills the second node, unpacked would begin with the one that has more free GPUs
    (equal_jobs([2], [3, 2]), 0, [3, 2], [0.1, 0.1], {}, {1: 2}),
    # with no restart to save, the old place is no better than the first one
    (equal_jobs([1], [1, 1]), 0, [1, 1], [0.1, 0.1], {"restart_s": 0.0, "old": ([1], [1])}, {0: 1}),
    (equal_jobs([1], [1, 1]), 0, [1, 1], [0.1, 0.1], {"old": ([1], [1])}, {1: 1}),
    # the old place is kept only while all of it is free, and a restart is dear
    (SPREAD, 0, [1, 1, 2], [0.1] * 3, {"restart_s": 1000.0, "old": OLD}, {0: 1, 1: 1}),
    (SPREAD, 0, [0, 1, 2], [0.1] * 3, {"restart_s": 1000.0, "old": OLD}, {2: 2}),
    (SPREAD, 0, [1, 0, 2], [0.1] * 3, {"restart_s": 1000.0, "old": OLD}, {2: 2}),
    (SPREAD, 0, [1, 1, 2], [0.1] * 3, {"restart_s": 10.0, "old": OLD}, {2: 2})])
def test_the_best_place_is_found_by_hand(state, job, free, cost, more, place):
    old = at(*more.get("old", ((), ())))
    terms, _ = Hadar().terms(state)
    terms = terms._replace(low=0.1, high=1.0, **{name: value for name, value in more.items() if name != "old"})
    _, found = find_alloc(terms, job, np.array(free), np.array(cost), old)
    assert dict(zip(found.node.tolist(), found.gpus.tolist(), strict=True)) == place


def test_prices_rise_while_the_queue_is_served():
    # the second job finds the first node half full, and dearer
    state = equal_jobs([1, 1], [2, 2])
    assert Hadar().allocate(state).node.tolist() == [0, 1]
    # and it is no cheaper because the first one was there before
    stays = state._replace(previous=allocation_of({0: {0: 1}}))
    assert Hadar(sticky=True).allocate(stays).node.tolist() == [0, 1]
    # the last GPUs may be taken
    assert Hadar().allocate(equal_jobs([1, 3], [2, 2])).gpus.tolist() == [1, 1, 2]


def test_the_queue_is_that_of_the_active_jobs_densest_first():
    state = three_jobs()._replace(active=np.array([0, 2]), now_s=360.0)
    terms, queue = Hadar("inv", restart_s=20.0, mixed=False, node_cost=0.5, eta=1.0, horizon_s=36_000).terms(state)
    assert queue.tolist() == [0, 2]  # 1 / 2160, and a third of that
    heavy = state._replace(jobs=state.jobs._replace(weight=np.array([1.0, 1.0, 9.0])))
    assert Hadar("inv").terms(heavy)[1].tolist() == [2, 0]
    assert (terms.now_s, terms.restart_s, terms.mixed, terms.node_cost) == (360, 20, False, 0.5)
    assert terms.speeds.scale.tolist() == [1, 2, 1]
    assert terms.high == pytest.approx(1 / (360 + 1800))
    assert terms.low == pytest.approx(1 / 36_000 / 30 / 4)  # C: 30 GPU-rounds on K80; B is not active


def test_only_a_second_pass_gives_gpus_to_who_finds_them_too_dear():
    dear = equal_jobs([2], [1, 1])  # each node after the first costs more than any utility
    for beam_width in (1, 4):
        assert len(Hadar(node_cost=2.0, beam_width=beam_width, backfill=False).allocate(dear).job) == 0
        assert Hadar(node_cost=2.0, beam_width=beam_width).allocate(dear).gpus.tolist() == [1, 1]


def test_among_equal_values_the_first_one_comes_first():
    assert largest_first(np.array([1.0, 3.0, 3.0, 2.0, 3.0])).tolist() == [1, 2, 4, 3, 0]
    value = np.random.default_rng(0).random(500)
    assert (largest_first(value) == np.argsort(-value, kind="stable")).all()


@pytest.mark.parametrize(("options", "message"), [
    ({"beam_width": 0}, "beam_width is 0; give at least 1"), ({"eta": 0.2}, "eta is 0.2; give at least 0.25"),
    ({"eta": np.nan}, "eta is nan"), ({"restart_s": -1.0}, "restart_s is -1.0"), ({"node_cost": -0.1}, "node_cost"),
    ({"round_s": 0.0}, "a round of 0.0 s"), ({"round_s": -360.0}, "a round of -360.0 s"),
    ({"horizon_s": 300.0}, "a round of 360.0 s in a horizon of 300.0 s")])
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Hadar(**options)


def test_an_unknown_utility_is_refused():
    with pytest.raises(InputError, match="there is no utility 'speed'"):
        utility_scale(three_jobs().jobs, "speed")


# --- laws ------------------------------------------------------------------------------------------------------------

class Watched(Hadar):
    """Check the prices of each round before and after the decision."""

    def allocate(self, state):
        """Who runs where in the round that starts now."""
        terms, queue = self.terms(state)
        assert 0 < terms.low <= terms.high
        decided = super().allocate(state)
        for taken in (0, gpus_in_use(state.cluster, decided)):
            cost = price(taken, state.cluster.node_gpus, terms.low, terms.high)
            assert (cost >= terms.low * (1 - 1e-12)).all() and (cost <= terms.high * (1 + 1e-12)).all()
        # the highest one is what the densest job can pay for a GPU
        densest = density(state.jobs, queue[:1], terms.speeds, terms.remaining, terms.now_s)
        assert terms.high == pytest.approx(densest[0])
        return decided


OPTIONS = st.builds(Watched, st.sampled_from(UTILITIES), sticky=st.booleans(), mixed=st.just(True),
                    backfill=st.booleans(), beam_width=st.sampled_from([1, 4]),
                    eta=st.sampled_from([None, 0.25, 1.0, 100.0]), node_cost=st.sampled_from([0.0, 1e-5]),
                    horizon_s=st.sampled_from([360.0, 3600.0, 720_000.0])).filter(
    lambda how: how.backfill or (not how.node_cost and how.horizon_s > 1e5))  # or somebody may wait for ever


@settings(max_examples=30, deadline=None)
@given(seed=seeds, scheduler=OPTIONS)
def test_whole_runs_are_complete_and_no_faster_than_possible_at_prices_within_limits(seed, scheduler):
    work = random_gangs(seed)
    run = run_rounds(work, scheduler)  # which checks capacity and gangs of each round
    fastest_s = work.jobs.steps / np.maximum(work.jobs.rate, work.jobs.spread_rate).max(axis=1)
    assert (run.jct_s >= fastest_s - 1e-6).all()
    assert run.end_s.max() >= makespan_bound_s(work.cluster, work.jobs) * (1 - 1e-9)
    assert steps_done(run, scheduler.restart_s) == pytest.approx(work.jobs.steps, rel=1e-9)
    if scheduler.sticky:  # each job runs without a break where it began
        for _, rows in run.history.groupby("job"):
            assert (np.diff(np.unique(rows["round"])) == 1).all()
            assert len({tuple(zip(now["node"], now["gpus"], strict=True)) for _, now in rows.groupby("round")}) == 1


@settings(max_examples=30, deadline=None)
@given(seed=seeds, dear=st.booleans())
def test_serving_is_the_dynamic_program_with_one_state_and_a_wider_one_is_no_worse(seed, dear):
    state = random_state(seed)
    terms, queue = Hadar().terms(state)
    if dear:  # so that some payoffs are negative
        terms = terms._replace(low=terms.high / 2, high=terms.high * 2)
    every = state.cluster.node_gpus
    held = nothing_runs()
    for _ in range(2):
        free = every.copy()
        served = joined([Allocation(*serve(terms, NO_TOLL, queue, held, free, False))])
        narrow, *wider = (branch(terms, queue, held, every, beam_width=width)[0] for width in (1, 4, None))
        for ours, theirs in zip(served, allocation_of(narrow.taken), strict=True):
            assert (ours == theirs).all()
        assert (free == every - gpus_in_use(state.cluster, served)).all() and (free == narrow.free).all()
        assert all(narrow.value <= one.value + 1e-9 for one in wider)
        held = served


def test_what_is_known_of_the_speeds_is_computed_anew_for_other_jobs():
    scheduler = Hadar()
    state = random_state(0)
    scheduler.allocate(state)
    other = state._replace(jobs=state.jobs._replace(steps=2 * state.jobs.steps))
    assert (scheduler.terms(other)[0].speeds.scale == 2 * speeds_of(state.jobs).scale).all()
