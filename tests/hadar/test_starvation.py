"""No job that could run waits for ever, whoever decides."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.baselines import one_type_rate
from sched_lab.hadar.model import Cluster, Jobs, State, Workload, check_allocation, nothing_runs
from sched_lab.hadar.policies import POLICIES, Copies, policy_of
from sched_lab.hadar.primal_dual import Hadar, best_round, branch, find_alloc, literal_round, nowhere
from sched_lab.hadar.report import report_of
from sched_lab.hadar.simulation import run_copies, run_rounds
from sched_lab.lab.frames import InputError
from tests.hadar.cases import random_gangs, waiting_rounds, who_fits

seeds = st.integers(0, 10**6)
FORKED = [name for name, record in POLICIES.items() if isinstance(record.scalar_form, Copies)]
ROUNDS = [name for name in POLICIES if name not in FORKED]
MIXING = ["hadar", "hadar-inv", "hadar-sticky", "yarn-cs"]  # the others want each gang on a single type
GREEDY = ["hadar", "hadar-inv", "hadar-sticky"]  # leave no GPU to spare that a waiting job could use


def fits_on_one_type(work):
    """Whether each gang could run on some type alone."""
    try:
        return bool(len(one_type_rate(work.cluster, work.jobs)))
    except InputError:
        return False


def spread_pair():
    """Two workers on a V100 and two K80, one GPU each; a spread gang can use the K80 alone."""
    rate = np.array([[5.0, 2.0]])
    spread = np.array([[0.0, 1.0]])
    jobs = Jobs(np.zeros(1), np.array([360.0]), np.array([2]), np.ones(1), rate, spread)
    cluster = Cluster(np.array([0, 1, 1]), np.array([1, 1, 1]))
    return Workload(("pair",), ("eel", "fox", "gnu"), ("v100", "k80"), cluster, jobs)


@pytest.mark.parametrize("name", ROUNDS)
def test_a_gang_is_not_spread_to_where_it_has_no_pace(name):
    run = report_of(spread_pair(), name).run
    assert run.end_s.tolist() == [370.0]
    assert run.history["node"].unique().tolist() == [1, 2]


@pytest.mark.parametrize("name", ROUNDS)
@settings(max_examples=100, deadline=None)
@given(seed=seeds)
def test_a_cluster_does_not_stand_idle_while_a_job_waits(name, seed):
    work = random_gangs(seed)
    if name not in MIXING and not fits_on_one_type(work):
        with pytest.raises(InputError, match="fits on no single GPU type"):
            run_rounds(work, policy_of(name))
        return
    run = run_rounds(work, policy_of(name))
    for waiting, left in waiting_rounds(run):
        assert not len(waiting) or (left < work.cluster.node_gpus).any()
        assert name not in GREEDY or not who_fits(work, left)[waiting].any()


@pytest.mark.parametrize("name", FORKED)
@settings(max_examples=100, deadline=None)
@given(seed=seeds)
def test_no_node_is_idle_while_a_copy_could_work_on_it(name, seed):
    work = random_gangs(seed, one_gpu=True)
    run = run_copies(work, policy_of(name))
    for number, (waiting, left) in enumerate(waiting_rounds(run)):
        assert len(run.history[run.history["round"] == number])
        free = np.flatnonzero(left)
        assert not (work.jobs.rate[waiting][:, work.cluster.node_type[free]] > 0).any()


@settings(max_examples=200, deadline=None)
@given(seeds)
def test_every_form_of_a_round_finds_a_place_if_there_is_one(seed):
    work = random_gangs(seed)
    rng = np.random.default_rng(seed)
    cluster = work.cluster
    jobs = work.jobs
    nothing = nothing_runs()
    zero = np.zeros(len(jobs.steps))
    jobs = jobs._replace(arrival_s=zero)
    terms, queue = Hadar().terms(State(cluster, jobs, 0.0, np.arange(len(zero)), jobs.steps, nothing, zero, zero))
    left = rng.integers(0, cluster.node_gpus + 1)
    price = np.full(len(left), terms.low)
    fits = who_fits(work, left)
    for job in queue:
        payoff, place = find_alloc(terms, job, left, price, nowhere())
        assert (len(place.node) > 0) == fits[job]
        assert np.isfinite(payoff) == fits[job]
    for beam_width in (1, 2, None):
        found, _ = branch(terms, queue, nothing, left, beam_width=beam_width)
        assert bool(found.taken) == fits.any()
    best, allocation = best_round(terms, queue)
    check_allocation(cluster, jobs, allocation)
    assert best > 0 and len(allocation.job)
    literal_round(terms, queue[:6], left)
