"""Random rounds and objectives side by side: what the compiled programs return one after the other, to the last bit."""
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.andreas.greedy import (
    MODULUS,
    MULTIPLIER,
    TWO_STEPS,
    SearchOptions,
    draw,
    pressure_s,
    randomized_greedy,
    shake,
)
from sched_lab.andreas.instances import generate, toy_instance
from sched_lab.andreas.lockstep import (
    add_rows,
    full_shelves,
    has_ties,
    leaps,
    numbers,
    numbers_each,
    orders_of,
    place_together,
    plan_of,
    powers,
    problem_of,
    proxies_eur,
    random_rounds,
    starts_of,
    wishes_of,
)
from sched_lab.andreas.model import Assignment, Fleet, Jobs
from sched_lab.andreas.proxy import PERIOD_S, RHO, code_objective, paper_objective
from sched_lab.andreas.rules import open_nodes, place_all
from sched_lab.lab.arrays import get_xp
from sched_lab.lab.frames import InputError
from tests.andreas.cases import each_case, golden, instance_of


def why_not(device):
    """Say what is missing for a device, if anything."""
    try:
        get_xp(device)
    except InputError as error:
        return str(error)
    return ""


no_gpu = why_not("cuda")
DEVICES = ["cpu", "strict", pytest.param("cuda", marks=pytest.mark.skipif(bool(no_gpu), reason=no_gpu))]
TOY = toy_instance()


@st.composite
def queues(draw):
    """Small fleets and queues in few round numbers, so that times, pressures and objectives are often equal."""
    num_nodes = draw(st.integers(1, 5))
    num_jobs = draw(st.integers(1, 7))
    kinds = np.array(draw(st.lists(st.integers(0, 1), min_size=num_nodes, max_size=num_nodes)))
    gpus = np.array(draw(st.lists(st.integers(1, 3), min_size=num_nodes, max_size=num_nodes)))
    cost = np.array([[np.inf, 0.5, 0.75, 1.0], [np.inf, 0.25, 0.375, draw(st.sampled_from([0.4, np.inf]))]])
    gpus = np.where((kinds == 1) & (cost[1, 3] == np.inf), np.minimum(gpus, 2), gpus)
    fleet = Fleet(kinds, gpus, np.array([0, 0, 1, 1]), np.array([1, 2, 1, 3]), cost)
    numbers = st.sampled_from([1000.0, 2000.0, 3000.0, 1000 / 3, 0.1])
    times = draw(st.lists(st.lists(st.one_of(numbers, st.just(np.inf)), min_size=3, max_size=3), min_size=num_jobs,
                          max_size=num_jobs))
    own = draw(st.lists(numbers, min_size=num_jobs, max_size=num_jobs))  # everyone can run somewhere
    due = draw(st.lists(st.sampled_from([600.0, 1600.0, 2600.0, 9000.1]), min_size=num_jobs, max_size=num_jobs))
    weight = draw(st.lists(st.sampled_from([0.0, 0.001, 0.002, 1 / 3000]), min_size=num_jobs, max_size=num_jobs))
    times_s = np.column_stack([own, np.array(times)])
    jobs = Jobs(np.zeros(num_jobs), np.array(due), np.array(weight), times_s)
    return fleet, jobs, draw(st.sampled_from([0.0, 600.0]))


def queue_of(seed, num_jobs, num_nodes=6, scenario=2):
    """Jobs of the authors' generator, all different, that have arrived."""
    drawn = generate(seed, num_nodes, 1.7, scenario=scenario)
    first = np.argsort(drawn.jobs.submission_s, kind="stable")[:num_jobs]
    jobs = Jobs(*(column[first] for column in drawn.jobs))
    return drawn.fleet, jobs, float(jobs.submission_s.max())


def decisions_of(fleet, jobs, num, seed):
    """Feasible decisions at random, (jobs, decisions)."""
    rng = np.random.default_rng(seed)
    num_jobs = len(jobs.due_s)
    node, configuration = (np.full((num_jobs, num), -1) for _ in range(2))
    options = np.where(np.isfinite(jobs.times_s), np.arange(len(fleet.configuration_type)), -1)
    for i in range(num):
        tried = np.array([rng.permutation(row) for row in options])
        tried[rng.random(num_jobs) < 0.2] = -1
        place_all(fleet, open_nodes(fleet, fleet.node_gpus), rng.permutation(num_jobs), tried, node[:, i],
                  configuration[:, i])
    return Assignment(node, configuration)


def assert_same_rounds(queue, rounds, device, at_once=None, **options):
    found = random_rounds(*queue, SearchOptions(max_iterations=rounds, **options), device=device, at_once=at_once)
    assert found.value_eur.shape == (rounds,)
    for k in range(1, rounds + 1):  # the best of the first k, for all k: every value that matters
        best, eur = randomized_greedy(*queue, SearchOptions(max_iterations=k, **options))
        assert found.value_eur[:k].min() == eur
    assert found.best_eur == eur
    assert found.best.node.tolist() == best.node.tolist()
    assert found.best.configuration.tolist() == best.configuration.tolist()
    return found


# --- rounds

@pytest.mark.parametrize("device", DEVICES)
@given(queue=queues(), seed=st.integers(0, 2**33), as_code=st.booleans(), at_once=st.sampled_from([None, 1, 2, 5]),
       period_s=st.sampled_from([0.0, 300.0, 1000 / 3]))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_rounds_side_by_side_are_the_rounds_in_turn(device, queue, seed, as_code, at_once, period_s):
    assert_same_rounds(queue, 7, device, seed=seed, as_code=as_code, at_once=at_once, period_s=period_s)


@pytest.mark.parametrize("as_code", [False, True])
@pytest.mark.parametrize(("seed", "num_jobs", "scenario"), [(1, 1, 1), (2, 9, 1), (3, 40, 1), (4, 12, 2), (5, 60, 2)])
def test_a_hundred_rounds_of_different_jobs(seed, num_jobs, scenario, as_code):
    queue = queue_of(seed, num_jobs, scenario=scenario)
    assert not has_ties(pressure_s(queue[1], queue[2]))
    assert_same_rounds(queue, 100, "cpu", seed=seed, as_code=as_code, at_once=33)


def test_the_random_queues_can_tell_a_round_from_another():
    # Without this, a batch that plays the same round again and again would pass.
    found = random_rounds(*queue_of(5, 60))
    assert len(np.unique(found.value_eur)) > 5 and found.best_eur < found.value_eur[0]


def test_jobs_of_equal_pressure_keep_the_order_of_the_round_before_across_pieces():
    jobs = Jobs(np.zeros(6), np.full(6, 2000.0), np.arange(1, 7) / 1000, np.tile([3000.0, 2000.0, 4000.0], (6, 1)))
    assert has_ties(pressure_s(jobs, 0.0))
    found = assert_same_rounds((TOY.fleet, jobs, 0.0), 60, "cpu", at_once=7)
    assert len(np.unique(found.value_eur[1:])) > 2  # they wander: the last rounds are better than the first


@golden
@each_case
def test_cases_of_the_authors_program_side_by_side(case):
    instance = instance_of(case)
    for seed, expected in case["RG"].items():
        queue = instance.fleet, instance.jobs, instance.now_s
        found = random_rounds(*queue, SearchOptions(seed=int(seed), as_code=True))
        assert found.best_eur == randomized_greedy(*queue, SearchOptions(seed=int(seed), as_code=True))[1]
        assert found.best_eur <= expected["proxy_python"] + 1e-9  # a thousand rounds, not fewer


def test_a_queue_without_jobs_has_the_objective_of_nothing():
    nobody = Jobs(*(np.empty((0, 3)[:1 + (i == 3)]) for i in range(4)))
    for as_code, value_eur in ((True, np.inf), (False, 0.0)):
        found = random_rounds(TOY.fleet, nobody, 0.0, SearchOptions(max_iterations=4, as_code=as_code))
        assert (found.value_eur == value_eur).all()


# --- random numbers

@pytest.mark.parametrize("device", DEVICES)
@given(seed=st.integers(1, MODULUS - 1), num=st.integers(1, 70))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_every_number_can_be_reached_at_once(device, seed, num):
    xp = get_xp(device)
    state = np.array([seed])
    states = [seed * int(factor) % MODULUS for factor in powers(xp, TWO_STEPS, num)]
    drawn = numbers(xp, xp.asarray(states))
    assert [float(drawn[i]) for i in range(num)] == [draw(state) for _ in range(num)]


def test_leaps_that_land_just_past_the_modulus():
    # Products whose upper and lower bits add up to just more than the modulus: chance would never meet one.
    for left in range(1, 9):
        number = left * pow(MULTIPLIER, -1, MODULUS) % MODULUS
        assert leaps(np, np.array([number]), MULTIPLIER).tolist() == [left]


@pytest.mark.parametrize("as_code", [False, True])
def test_each_round_starts_where_the_last_one_stopped(as_code):
    # As printed: 5 for the order, 2 for each of A and D that will be late, 1 for each of the others: 12. As coded: 5.
    plan = plan_of(TOY.fleet, TOY.jobs, 600.0, SearchOptions(as_code=as_code), np)
    state = np.array([7])
    for start in starts_of(plan, 7, slice(0, 20)).tolist():
        assert start == state[0]
        for _ in range(5 if as_code else 12):
            draw(state)
    assert starts_of(plan, 7, slice(20, 21)).tolist() == state.tolist()


def test_orders_are_those_of_the_compiled_pass():
    # One draw too many or too few in the pass shifts all that follow; this looks at the pass alone.
    plan = plan_of(TOY.fleet, TOY.jobs, 600.0, SearchOptions(as_code=True), np)
    state = np.array([4010])
    for column in orders_of(plan, TOY.jobs, starts_of(plan, 4010, slice(0, 50))).T:
        order = plan.order.copy()
        shake(order, TOY.jobs.weight_eur_per_s, state, True)
        assert column.tolist() == order.tolist()


# --- objectives

@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("objective", ["code", "paper"])
@given(queue=queues(), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_objectives_of_a_batch_are_those_of_its_columns(device, objective, queue, seed):
    fleet, jobs, now_s = queue
    decisions = decisions_of(fleet, jobs, 6, seed)
    more = (RHO, PERIOD_S)[:1 + (objective == "paper")]
    scalar = code_objective if objective == "code" else paper_objective
    expected = [scalar(*queue, *(x[:, i].copy() for x in decisions), *more) for i in range(6)]
    assert proxies_eur(*queue, decisions,
                       SearchOptions(as_code=objective == "code"), device=device).tolist() == expected


def test_pieces_do_not_change_the_values():
    queue = queue_of(8, 20)
    decisions = decisions_of(*queue[:2], 30, 1)
    piece = 8 * numbers_each(queue[0], 20) * 7  # seven fit
    for as_code in (True, False):
        how = SearchOptions(as_code=as_code)
        whole = proxies_eur(*queue, decisions, how)
        assert (proxies_eur(*queue, decisions, how, max_bytes=piece) == whole).all()
        assert len(np.unique(whole)) > 20
    assert proxies_eur(*queue, Assignment(*(x[:, :0] for x in decisions))).shape == (0,)


def test_rows_are_added_one_after_another():
    rows = np.random.default_rng(1).random((50, 300)) * 10.0 ** np.arange(50)[:, None] % 1e7
    expected = np.zeros(300)
    for row in rows:
        expected += row
    assert (add_rows(np.zeros(300), rows) == expected).all()
    assert (expected != np.ascontiguousarray(rows.T).sum(axis=1)).any()  # the case can tell


# --- places

def test_the_program_stops_when_nothing_is_left_in_any_round():
    # 40 jobs that all take one of 4 GPUs: after 4 turns nothing is left, and the next look is at turn 16.
    fleet = Fleet(np.zeros(2, int), np.full(2, 2), np.zeros(1, int), np.ones(1, int), np.array([[np.inf, 0.5, 0.7]]))
    jobs = Jobs(np.zeros(40), np.full(40, 1e6), np.ones(40), np.full((40, 1), 100.0))
    ask = np.tile(np.arange(40)[:, None], (1, 3))
    wishes = wishes_of(np.zeros((40, 1), int))
    shelves = full_shelves(fleet, 3, np)
    node, configuration = place_together(problem_of(fleet, jobs, 0.0, RHO, np), fleet, wishes, shelves, ask)
    assert node.shape == configuration.shape == (16, 3)
    assert node[:, 0].tolist() == [0, 0, 1, 1] + [-1] * 12


# --- refusals

def test_bad_decisions_are_refused_with_the_reason_of_the_validator():
    jobs = Jobs(*(column[:2] for column in TOY.jobs))
    good = np.array([[0, 0], [1, 2]])
    for node, configuration, reason in [
            ([[0, 1], [1, 1]], [[0, 2], [2, 2]], "node 1 has more GPUs in use"),      # two on one TURING
            ([[0, 0], [1, -1]], [[0, 1], [2, 2]], "job 1 has half a place"),
            ([[0, 1], [1, 2]], [[0, 0], [2, 0]], "job 0")]:                            # a TESLA on the TURING's node
        with pytest.raises(ValueError, match=reason):
            proxies_eur(TOY.fleet, jobs, 0.0, Assignment(np.array(node), np.array(configuration)))
    never = jobs._replace(times_s=np.where(np.arange(3) == 0, np.inf, jobs.times_s))
    with pytest.raises(ValueError, match="job 0"):
        proxies_eur(TOY.fleet, never, 0.0, Assignment(good, np.array([[1, 0], [2, 0]])))
    for node in (3, -2):
        with pytest.raises(InputError, match="no such node"):
            proxies_eur(TOY.fleet, jobs, 0.0, Assignment(np.array([[node], [1]]), np.array([[0], [2]])))
    with pytest.raises(InputError, match=r"\(jobs, decisions\)"):
        proxies_eur(TOY.fleet, jobs, 0.0, Assignment(good, good[:, :1]))


@pytest.mark.parametrize("bad", [
    *({"how": how, "more": {}} for how in ({"max_iterations": 0}, {"seed": -1}, {"rho": -1.0}, {"rho": np.inf})),
    *({"how": {}, "more": more} for more in ({"at_once": 0}, {"device": "tpu"}, {"max_bytes": 10},
                                             {"at_once": 100, "max_bytes": 20_000}))])
def test_bad_runs_are_refused(bad):
    with pytest.raises(InputError):
        random_rounds(TOY.fleet, TOY.jobs, 600.0, SearchOptions(**bad["how"]), **bad["more"])


@pytest.mark.parametrize(("num_nodes", "num_jobs", "as_code"), [
    (4, 40, False), (40, 10, False), (6, 60, True), (3, 2, True)])
def test_the_guard_counts_at_least_what_is_taken(num_nodes, num_jobs, as_code):
    queue = queue_of(2, num_jobs, num_nodes)
    random_rounds(*queue, SearchOptions(max_iterations=10, as_code=as_code))
    decisions = decisions_of(*queue[:2], 2000, 1)
    guard = 2000 * 8 * numbers_each(queue[0], num_jobs)
    for call in (lambda: random_rounds(*queue, SearchOptions(max_iterations=2001, as_code=as_code), at_once=2000),
                 lambda: proxies_eur(*queue, decisions), lambda: proxies_eur(*queue, decisions,
                                                                             SearchOptions(as_code=True))):
        tracemalloc.start()
        call()
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert taken < guard
