"""Prices bound the end and the mean of every schedule; the plan ends with its deadline and runs short jobs first."""
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.fluid import shortest_fluid
from sched_lab.hadar.model import Cluster, allocation_of, check_allocation, nothing_runs, type_gpus
from sched_lab.hadar.planned import (
    Planned,
    gang_rate,
    gpu_seconds,
    pick_in_order,
    place_large_first,
    shortest_first_mean_s,
    type_prices,
    urgency_order,
)
from sched_lab.hadar.simulation import run_rounds
from sched_lab.lab.frames import InputError
from tests.hadar.cases import jobs_of, named, nodes_of, random_workload, state_of

seeds = st.integers(0, 10**6)


def equal_gpus(lengths, num_gpus):
    """Jobs with one worker on GPUs of one type, a node each, 1 step/s."""
    return named(nodes_of([1] * num_gpus), jobs_of(np.ones((len(lengths), 1)), lengths))


def test_a_gang_larger_than_every_node_of_a_type_runs_at_its_spread_pace():
    cluster = Cluster(np.array([0, 0, 1]), np.array([4, 4, 8]))
    jobs = jobs_of([[10, 5, 9]], 60, 8)._replace(spread_rate=np.array([[6.0, 3.0, 2.0]]))
    assert gang_rate(cluster, jobs).tolist() == [[6, 5, 0]]  # type 2 has no node
    assert gpu_seconds(jobs, gang_rate(cluster, jobs)).tolist() == [[80, 96, np.inf]]


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_prices_add_up_to_the_cluster_and_prove_their_bound(seed):
    work = random_workload(seed)
    end_s, price = type_prices(work.cluster, work.jobs)
    gpus = type_gpus(work.cluster, len(work.type_name))
    rate = gang_rate(work.cluster, work.jobs)
    assert (price >= 0).all() and price @ gpus == pytest.approx(1)
    work_gpu = (work.jobs.workers * work.jobs.steps)[:, None]

    def paid(price):
        return np.where(rate > 0, price * work_gpu / np.where(rate > 0, rate, 1), np.inf).min(axis=1).sum()

    assert paid(price) == pytest.approx(end_s, rel=1e-7)
    for other in np.random.default_rng(seed).dirichlet(np.ones(len(gpus)), 20) / gpus:  # no prices prove more
        assert paid(other) <= end_s * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_the_price_bound_is_the_fluid_program_without_the_rows_of_time(seed):
    work = random_workload(seed, with_arrivals=False)
    gpus = type_gpus(work.cluster, len(work.type_name))
    rate = gang_rate(work.cluster, work.jobs)
    parts = 50  # each job in so many equal parts, none of which is long enough to need its row
    fluid_s, _ = shortest_fluid(np.repeat(rate, parts, 0), np.repeat(work.jobs.workers, parts), gpus,
                                np.repeat(work.jobs.steps / parts, parts))
    end_s, _ = type_prices(work.cluster, work.jobs)
    assert end_s <= fluid_s * (1 + 1e-7)
    assert fluid_s <= shortest_fluid(rate, work.jobs.workers, gpus, work.jobs.steps)[0] * (1 + 1e-7)
    longest_s = (work.jobs.steps / parts / np.where(rate > 0, rate, np.inf).min(axis=1)).max()
    if longest_s <= end_s:
        assert fluid_s == pytest.approx(end_s, rel=1e-6)


def least_mean(work, arrival):
    """Least mean completion time of one machine, by trying every choice in every slot."""
    @cache
    def least_sum(slot, left):
        if not any(left):
            return 0
        if not (there := [job for job in range(len(left)) if left[job] and arrival[job] <= slot]):
            return least_sum(slot + 1, left)
        choices = [tuple(have - (job == k) for k, have in enumerate(left)) for job in there]
        return min((least_sum(slot + 1, then) + (slot + 1 - arrival[job]) * (then[job] == 0)
                    for job, then in zip(there, choices, strict=True)))

    return least_sum(0, tuple(work)) / len(work)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 9)), min_size=1, max_size=4))
def test_shortest_remaining_first_has_the_least_mean_of_all_schedules(jobs):
    work, arrival = zip(*jobs, strict=True)
    assert shortest_first_mean_s(np.array(work, float), np.array(arrival, float)) == pytest.approx(
        least_mean(work, arrival))


def test_without_urgency_short_jobs_go_first():
    how = {"round_s": 1.0, "restart_s": 0.0, "margin_rounds": 0}
    run = run_rounds(equal_gpus([5, 1, 3], 1), Planned(**how), round_s=1.0, restart_s=0.0)
    assert run.end_s.tolist() == [9, 1, 4]


def planned_at_start(work, **how):
    """Return a scheduler that has made its plan, and to which nobody has run yet."""
    scheduler = Planned(**how)
    scheduler.allocate(state_of(work.cluster, work.jobs))
    scheduler.chosen[:] = -1
    return scheduler


def test_by_area_a_long_job_with_one_worker_goes_before_a_short_gang():
    work = named(nodes_of([2]), jobs_of(np.ones((2, 1)), [3, 2], [1, 2]))
    for by_area, first in ((False, 1), (True, 0)):  # 2 < 3 rounds, but 3 < 4 GPU-rounds
        scheduler = planned_at_start(work, round_s=1.0, restart_s=0.0, by_area=by_area)
        scheduler.deadline_s = 100.0
        assert scheduler.allocate(state_of(work.cluster, work.jobs)).job.tolist() == [first]


def test_a_plan_leaves_room_for_the_restart():
    # 720 s of work need three rounds of 360 s, because the first begins with 10 s of loading: with a deadline after
    # three rounds the long job is urgent at once, although the other one is shorter
    work = equal_gpus([720, 360], 1)
    scheduler = planned_at_start(work, margin_rounds=1)
    scheduler.deadline_s = 3 * 360.0
    assert scheduler.allocate(state_of(work.cluster, work.jobs)).job.tolist() == [0]


def test_a_divided_job_stays_on_its_type_until_its_part_there_is_done():
    work = named(nodes_of([1, 1], [0, 1]), jobs_of([[1, 1]], 10_000))
    for on in range(2):
        scheduler = planned_at_start(work)
        scheduler.steps_on[:] = [[4_000.0, 6_000.0]]
        scheduler.chosen[:] = on
        assert scheduler.allocate(state_of(work.cluster, work.jobs)).node.tolist() == [on]


def test_a_plan_is_made_again_after_so_many_rounds_and_counts_from_now():
    made = []

    class Counted(Planned):
        def solve(self, state):
            made.append(state.now_s)
            return super().solve(state)

    scheduler = Counted(round_s=1.0, restart_s=0.0, plan_rounds=4)
    late = named(nodes_of([1]), jobs_of([[1]], 10, arrival_s=100))
    run_rounds(late, scheduler, round_s=1.0, restart_s=0.0)
    assert made == [100, 104, 108] and scheduler.deadline_s == 110


def test_nothing_is_planned_for_a_type_that_has_not_enough_gpus():
    work = named(nodes_of([2, 4], [0, 1]), jobs_of([[9, 1]], workers=3))
    assert planned_at_start(work).rate.tolist() == [[0, 1]]


def test_a_job_leaves_a_node_of_another_type():
    before = allocation_of({0: {0: 1}})
    now = place_large_first(nodes_of([1, 1], [0, 1]), jobs_of([[1, 1]]), before, np.ones(1, np.int64), np.zeros(1, int))
    assert now.node.tolist() == [1]


def test_urgent_jobs_come_first_then_the_shortest_for_their_weight():
    jobs = jobs_of(np.ones((4, 1)), workers=[1, 4, 1, 1], weight=[1, 1, 1, 4])
    rounds = np.array([3.0, 2, 9, 8])
    slack = np.array([9.0, 9, 2, 9])
    waits = np.ones(4, bool)
    assert urgency_order(jobs, np.arange(4), rounds, slack, waits, 3, False).tolist() == [2, 1, 3, 0]  # 2, 8 / 4, 3
    assert urgency_order(jobs, np.arange(4), rounds, slack, waits, 3, True).tolist() == [2, 3, 0, 1]  # 8 / 4, 3, 2 * 4
    assert urgency_order(jobs, np.arange(4), rounds, slack, waits, 2, False).tolist() == [1, 3, 0, 2]
    runs = np.array([True, True, True, False])
    assert urgency_order(jobs, np.arange(4), rounds, slack, runs, 2, False).tolist() == [3, 1, 0, 2]  # who runs, stays


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_picked_jobs_fit_their_types_and_no_gpus_stay_idle_that_somebody_could_use(seed):
    rng = np.random.default_rng(seed)
    num_jobs = int(rng.integers(1, 9))
    gpus = rng.integers(0, 7, 3)
    rate = rng.integers(0, 3, (num_jobs, 3)).astype(float)
    workers = rng.integers(1, 5, num_jobs)
    rate[:, 0] += 1
    wanted = rate.argmax(axis=1)
    order = rng.permutation(num_jobs)
    chosen = pick_in_order(order, wanted, workers, rate, gpus)
    left = gpus - np.array([workers[chosen == kind].sum() for kind in range(3)])
    assert (left >= 0).all()
    assert all(rate[job, chosen[job]] > 0 for job in np.flatnonzero(chosen >= 0))
    assert not any((left >= workers[job])[rate[job] > 0].any() for job in np.flatnonzero(chosen < 0))
    if workers[order[0]] <= gpus[wanted[order[0]]]:
        assert chosen[order[0]] == wanted[order[0]]


@settings(max_examples=20, deadline=None)
@given(seeds)
def test_gangs_of_powers_of_two_are_never_spread_without_need(seed):
    rng = np.random.default_rng(seed)
    cluster = nodes_of([4] * 6, np.repeat([0, 1], 3))
    workers = rng.choice([1, 2, 4], 12)
    kind = rng.integers(0, 2, 12)
    jobs = jobs_of(np.ones((12, 2)), workers=workers)
    previous = nothing_runs()
    for _ in range(3):
        order = rng.permutation(12)
        chosen = pick_in_order(order, kind, workers, np.eye(2)[kind], np.full(2, 12))
        previous = place_large_first(cluster, jobs, previous, chosen, order[chosen[order] >= 0])
        check_allocation(cluster, jobs, previous)
        assert len(previous.job) == len(np.unique(previous.job)) == (chosen >= 0).sum()
        assert (cluster.node_type[previous.node] == chosen[previous.job]).all()


def test_who_can_stay_stays_and_who_cannot_be_spread_waits():
    cluster = nodes_of([2, 2])
    jobs = jobs_of(np.ones((3, 1)), workers=[1, 1, 2], spread=0)
    before = allocation_of({0: {1: 1}, 1: {1: 1}})
    placed = place_large_first(cluster, jobs, before, np.zeros(3, np.int64), np.arange(3))
    assert placed.node.tolist() == [1, 1, 0]  # the gang takes the empty node, both others stay
    three = jobs._replace(workers=np.array([1, 1, 3]))
    alone = place_large_first(cluster, three, before, np.zeros(3, np.int64), np.arange(3))
    assert alone.job.tolist() == [0, 1]


def test_a_plan_without_rounds_or_a_gang_without_a_type_is_refused():
    with pytest.raises(InputError, match="0 rounds"):
        Planned(plan_rounds=0)
    with pytest.raises(InputError, match="margin of -1"):
        Planned(margin_rounds=-1)
    work = equal_gpus([1, 1], 2)
    torn = work.jobs._replace(workers=np.array([1, 3]))
    with pytest.raises(InputError, match="fits on no single GPU type"):
        run_rounds(replace(work, jobs=torn), Planned())
