"""Gavel, Tiresias and YARN-CS: laws on random workloads, and single decisions by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sched_lab.hadar import baselines, fluid
from sched_lab.hadar.baselines import (
    Gavel,
    Tiresias,
    YarnCs,
    fair_shares,
    fair_shares_of_kinds,
    fastest_shares,
    kinds_of,
    one_type_rate,
    shortest_shares,
    shortest_shares_of_kinds,
)
from sched_lab.hadar.model import allocation_of
from sched_lab.hadar.simulation import rounds_frame, run_rounds
from sched_lab.hadar.workload import default_throughputs, draw_workload
from sched_lab.lab.frames import InputError
from tests.hadar.cases import jobs_of, nodes_of, random_workload, state_of

seeds = st.integers(0, 10**6)
MAKE = {"maxmin": lambda: Gavel("maxmin"), "makespan": lambda: Gavel("makespan"), "sum": lambda: Gavel("sum"),
        "tiresias": Tiresias, "yarn": YarnCs, "yarn-one-type": lambda: YarnCs(mixed=False)}


# --- laws ------------------------------------------------------------------------------------------------------------

@settings(max_examples=30, deadline=None)
@given(seeds, st.sampled_from(sorted(set(MAKE) - {"yarn"})))
def test_gangs_of_one_type_stay_whole(seed, key):
    run = run_rounds(random_workload(seed), MAKE[key]())  # every allocation is checked by the engine
    assert np.isfinite(run.end_s).all()
    assert (rounds_frame(run).groupby(["round", "job"])["type"].nunique() == 1).all()


@settings(max_examples=30, deadline=None)
@given(seeds, st.booleans())
def test_yarn_never_stops_or_moves_a_job_and_nobody_overtakes(seed, mixed):
    work = random_workload(seed)
    run = run_rounds(work, YarnCs(mixed=mixed))
    for job, rows in run.history.groupby("job"):
        rounds = np.unique(rows["round"])
        assert (np.diff(rounds) == 1).all()
        assert len(rows) == len(rounds) * rows["node"].nunique()
        assert (rows.groupby("node")["gpus"].nunique() == 1).all()
        assert rows[rows["round"] == rounds[0]]["gpus"].sum() == work.jobs.workers[job]
    line = np.lexsort((np.arange(len(run.start_s)), work.jobs.arrival_s))
    assert (np.diff(run.start_s[line]) >= 0).all()


@settings(max_examples=30, deadline=None)
@example(6705)  # the solver's own shares are below 0 here
@given(seeds)
def test_programs_over_kinds_of_jobs_have_the_optimum_of_the_plain_ones(seed):
    rng = np.random.default_rng(seed)
    of = rng.integers(0, 3, 12)  # twelve jobs of at most three speeds, some on few types
    gpus = rng.integers(2, 9, 3)
    rate = (rng.uniform(0.1, 10, (3, 3)) * (rng.random((3, 3)) > 0.2))[of] + [0, 1, 0]
    workers = rng.integers(1, 3, 12)
    weight = rng.integers(1, 3, 12).astype(float)
    left = rng.exponential(100, 12)
    level, share = fair_shares_of_kinds(rate, workers, gpus, weight)
    speed = (workers / weight) * (rate * share).sum(axis=1) / (rate @ (gpus / gpus.sum()))
    assert level == pytest.approx(fair_shares(rate, workers, gpus, weight)[0], rel=1e-6)
    assert speed.min() == pytest.approx(level, rel=1e-6)
    makespan_s, parts = shortest_shares_of_kinds(rate, workers, gpus, left)
    assert makespan_s == pytest.approx(shortest_shares(rate, workers, gpus, left)[0], rel=1e-6)
    assert (makespan_s * (rate * parts).sum(axis=1) >= left * (1 - 1e-6)).all()
    for found in (share, parts):
        assert found.min() >= 0
        assert found.sum(axis=1).max() <= 1 + 1e-6
        assert (workers @ found <= gpus + 1e-6).all()
    alone, _ = fair_shares(rate[:, 1:2], workers, gpus[1:2], np.ones(12))  # one type: its speeds do not matter
    assert alone == pytest.approx(min(workers.min(), gpus[1] / 12), rel=1e-6)
    _, twins, _ = kinds_of(rate, workers, weight)
    assert all((np.ptp(share[twins == kind], axis=0) == 0).all() for kind in twins)


# --- one decision ----------------------------------------------------------------------------------------------------

def plain_jobs(workers, spread=1.0):
    return jobs_of(np.ones((len(workers), 1)), 1e6, workers, spread=spread)


@pytest.mark.parametrize(("threshold_gpu_s", "service_gpu_s", "winner"), [
    (3600.0, 3600.0, 1), (3600.0, 3599.0, 0), (1e9, 3600.0, 0)])
def test_much_service_sends_a_job_to_tiresias_second_queue(threshold_gpu_s, service_gpu_s, winner):
    state = state_of(nodes_of([1]), plain_jobs([1, 1]), service_gpu_s=np.array([service_gpu_s, 0.0]))
    assert Tiresias(threshold_gpu_s=threshold_gpu_s).allocate(state).job.tolist() == [winner]


def test_tiresias_asks_queue_then_arrival_then_number():
    jobs = plain_jobs([1, 1, 1])
    cluster = nodes_of([1])
    for arrival_s, service, winner in (([0.0, 9, 9], [3600.0, 0, 0], 1), ([5.0, 1, 3], [0.0, 0, 0], 1),
                                       ([5.0, 5, 5], [0.0, 0, 0], 0), ([5.0, 1, 3], [3600.0, 3600, 0], 2)):
        state = state_of(cluster, jobs._replace(arrival_s=np.array(arrival_s)), service_gpu_s=np.array(service))
        assert Tiresias().allocate(state).job.tolist() == [winner]


def test_mixed_yarn_uses_the_last_gpus_but_none_on_which_the_job_cannot_run():
    jobs = plain_jobs([2])
    cluster = nodes_of([1, 1], range(2))
    both = jobs._replace(rate=np.ones((1, 2)), spread_rate=np.ones((1, 2)))
    assert YarnCs().allocate(state_of(cluster, both)).gpus.tolist() == [1, 1]
    assert YarnCs(mixed=False).allocate(state_of(cluster, both)).gpus.tolist() == []
    for rate, spread_rate in (([[1.0, 0.0]], [[1.0, 1.0]]), ([[1.0, 1.0]], [[1.0, 0.0]])):
        one = both._replace(rate=np.array(rate), spread_rate=np.array(spread_rate))
        assert YarnCs().allocate(state_of(cluster, one)).gpus.tolist() == []


def test_gavels_books_by_hand():
    """Two jobs, one GPU; the shares are 0.7 and 0.3 at first, then 1/2 each for whoever is active."""
    jobs = plain_jobs([1, 1, 1])
    calls = []

    def shares(state, rate):
        calls.append(state.now_s)
        return np.array([[0.7], [0.3]]) if len(calls) == 1 else np.full((len(state.active), 1), 0.5)

    gavel = Gavel(shares, reset_s=720.0)
    cluster = nodes_of([1])

    def decide(now_s, active, ran_s):
        state = state_of(cluster, jobs, now_s=now_s, active=np.array(active), ran_s=np.array(ran_s))
        return gavel.allocate(state).job.tolist()

    assert decide(360.0, [0, 1], [0.0, 0, 0]) == [0]
    assert decide(720.0, [0, 1], [360.0, 0, 0]) == [1]
    # received 180 + 360 and 180 s of 720
    assert gavel.priority()[:2, 0] == pytest.approx([0.7 / 0.75, 0.3 / 0.25])
    assert decide(1079.0, [0, 1, 2], [0.0, 300, 0]) == [0]  # job 1 held its GPU for 300 s; too early for new shares
    assert gavel.priority()[:2, 0] == pytest.approx([0.7 / (540 / 1020), 0.3 / (480 / 1020)])
    assert decide(1080.0, [0, 1, 2], [1.0, 0, 0]) == [0]
    # promised 0.7 and 0.3 of 720 s, received 361 and 300 s
    assert gavel.deficit_s[:, 0] == pytest.approx([504 - 361, 216 - 300, 0])
    decide(1800.0, [1, 2], [720.0, 0, 0])
    # job 0, which is done now, was promised half of another 720 s, and had all of it
    assert gavel.deficit_s[:, 0] == pytest.approx([143 + 360 - 720, -84 + 360, 360])
    assert calls == [360, 1080, 1800]


def test_gavel_solves_again_at_once_after_a_solution_at_time_zero_and_not_for_the_same_jobs():
    calls = []

    def shares(state, rate):
        calls.append(state.now_s)
        return np.ones((len(state.active), 1))

    gavel = Gavel(shares)
    jobs = plain_jobs([1, 1])
    cluster = nodes_of([2])
    for now_s, active in ((0.0, [0, 1]), (360.0, [0, 1]), (720.0, [0]), (1080.0, [1]), (2640.0, [1]), (3000.0, [1])):
        gavel.allocate(state_of(cluster, jobs, now_s=now_s, active=np.array(active)))
    assert calls == [0, 720, 2640]  # 1920 s after 720 s


def test_gavels_order_is_priority_then_debt_then_share_and_the_first_has_the_first_node():
    gavel = Gavel(lambda state, rate: np.ones((2, 1)))
    jobs = plain_jobs([1, 1])
    one = nodes_of([1])
    two = nodes_of([1, 1])
    for share, received_s, deficit_s, winner in (([0.2, 0.4], [180, 180], [9, 0], 1),   # higher priority
                                                 ([0.2, 0.4], [180, 360], [9, 0], 0),   # the same, but more is owed
                                                 ([0.2, 0.4], [180, 360], [0, 9], 1),
                                                 ([0.2, 0.4], [180, 360], [0, 0], 1),   # the larger share
                                                 ([0.4, 0.4], [180, 180], [0, 0], 0)):  # the lower number
        gavel.allocate(state_of(one, jobs))
        for cluster in (one, two):
            gavel.share, gavel.received_s, gavel.deficit_s = (
                np.array(column, float)[:, None] for column in (share, received_s, deficit_s))
            now = gavel.allocate(state_of(cluster, jobs))
            assert now.job[now.node == 0].tolist() == [winner]


def test_gangs_that_cannot_be_spread_wait_for_a_node():
    jobs = plain_jobs([2, 1], spread=0.0)
    cluster = nodes_of([1, 2])
    # the small one is on the node of two and stays: only one GPU is left on each node
    for scheduler in (Tiresias(), Gavel("maxmin")):
        now = scheduler.allocate(state_of(cluster, jobs, previous=allocation_of({1: {1: 1}})))
        assert now.job.tolist() == [1]


def test_a_gang_that_fits_on_no_type_is_refused():
    jobs = jobs_of([[1, 1]], workers=3)
    two_and_two = nodes_of([2, 2], [0, 1])
    for scheduler in (Tiresias(), Gavel("sum")):
        with pytest.raises(InputError, match="job 0 fits on no single GPU type"):
            scheduler.allocate(state_of(two_and_two, jobs))
    assert YarnCs().allocate(state_of(two_and_two, jobs)).gpus.tolist() == [2, 1]
    # two nodes of one type hold it, if it may be spread
    assert one_type_rate(nodes_of([2, 2], [0, 0]), jobs).tolist() == [[1, 0]]


def test_each_objective_solves_its_own_program_for_what_is_active_and_left():
    rate = np.array([[9.0, 1.0], [4.0, 2.0], [5.0, 4.0], [3.0, 3.0]])
    jobs = jobs_of(rate, [90, 40, 50, 30], [1, 1, 2, 1], weight=[1, 1, 3, 1])
    active = np.array([0, 1, 2])
    left = np.array([10.0, 40, 45, 0])
    gpus = np.array([2, 2])
    state = state_of(nodes_of(gpus, range(2)), jobs, active=active, remaining=left)
    some = (rate[active], jobs.workers[active], gpus)
    weight = jobs.weight[active]
    equal = rate[active].mean(axis=1)
    shares = {}
    for key in ("maxmin", "sum", "makespan"):
        gavel = Gavel(key)
        gavel.allocate(state)
        assert (gavel.share[3] == 0).all()
        shares[key] = gavel.share[active]
    speed = {key: (rate[active] * share).sum(axis=1) for key, share in shares.items()}
    assert (some[1] / weight * speed["maxmin"] / equal).min() == pytest.approx(fair_shares(*some, weight)[0])
    assert speed["sum"].sum() == pytest.approx(fastest_shares(*some)[0])
    assert (left[active] / speed["makespan"]).max() == pytest.approx(shortest_shares(*some, left[active])[0])


@pytest.mark.parametrize("key", ["maxmin", "makespan", "sum"])
def test_the_last_digits_of_a_solver_decide_nothing(key, monkeypatch):
    """With other kernels for sums and products, a solver's numbers differ in their last digits, and nothing else."""
    work = draw_workload(default_throughputs(), 0, num_jobs=120)
    expected = run_rounds(work, Gavel(key)).history
    exactly = fluid.solved
    rng = np.random.default_rng(0)

    def nearly(*program):
        found = exactly(*program)
        found.x = np.maximum(found.x + rng.integers(-2, 3, len(found.x)) * np.spacing(found.x), 0.0)
        return found

    for module in (fluid, baselines):
        monkeypatch.setattr(module, "solved", nearly)
    pd.testing.assert_frame_equal(run_rounds(work, Gavel(key)).history, expected)


def test_an_unknown_objective_is_refused():
    with pytest.raises(InputError, match="there is no objective 'fast'"):
        Gavel("fast")
