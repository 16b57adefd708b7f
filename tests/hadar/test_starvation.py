"""No job that could run waits for ever, whoever decides."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.baselines import one_type_rate
from sched_lab.hadar.model import nothing_runs
from sched_lab.hadar.policies import policy_of, simulate
from sched_lab.hadar.primal_dual import Hadar, branch, find_alloc, nowhere
from sched_lab.hadar.simulation import run_copies, run_rounds
from sched_lab.lab.frames import InputError
from tests.hadar.cases import FORKED, GANGS, jobs_of, named, nodes_of, random_gangs, state_of, waiting_rounds, who_fits

seeds = st.integers(0, 10**6)
MIXING = ["hadar", "hadar-inv", "hadar-sticky", "yarn-cs"]  # the others want each gang on a single type
GREEDY = ["hadar", "hadar-inv", "hadar-sticky"]  # leave no GPU to spare that a waiting job could use


def fits_on_one_type(work):
    """Whether each gang could run on some type alone."""
    try:
        return bool(len(one_type_rate(work.cluster, work.jobs)))
    except InputError:
        return False


@pytest.mark.parametrize("name", GANGS)
def test_a_gang_is_not_spread_to_where_it_has_no_pace(name):
    # two workers on a V100 and two K80, one GPU each; a spread gang can use the K80 alone
    jobs = jobs_of([[5, 2]], 360, 2, spread=np.array([[0, 0.5]]))
    run = simulate(named(nodes_of([1, 1, 1], [0, 1, 1]), jobs), name)
    assert run.end_s.tolist() == [370.0]
    assert run.history["node"].unique().tolist() == [1, 2]


@pytest.mark.parametrize("name", GANGS)
@settings(max_examples=15, deadline=None)
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
@settings(max_examples=15, deadline=None)
@given(seed=seeds)
def test_no_node_is_idle_while_a_copy_could_work_on_it(name, seed):
    work = random_gangs(seed, one_gpu=True)
    run = run_copies(work, policy_of(name))
    for number, (waiting, left) in enumerate(waiting_rounds(run)):
        assert len(run.history[run.history["round"] == number])
        free = np.flatnonzero(left)
        assert not (work.jobs.rate[waiting][:, work.cluster.node_type[free]] > 0).any()


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_every_form_of_a_round_finds_a_place_if_there_is_one(seed):
    work = random_gangs(seed)
    jobs = work.jobs._replace(arrival_s=np.zeros(len(work.job_name)))
    terms, queue = Hadar().terms(state_of(work.cluster, jobs))
    left = np.random.default_rng(seed).integers(0, work.cluster.node_gpus + 1)
    price = np.full(len(left), terms.low)
    fits = who_fits(work, left)
    for job in queue:
        payoff, place = find_alloc(terms, job, left, price, nowhere())
        assert (len(place.node) > 0) == fits[job]
        assert np.isfinite(payoff) == fits[job]
    for beam_width in (1, 2, None):
        found, _ = branch(terms, queue, nothing_runs(), left, beam_width=beam_width)
        assert bool(found.taken) == fits.any()
