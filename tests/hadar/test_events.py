"""Rounds in which nothing happens are passed together: nothing differs from playing them one by one; all runs end."""
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar import simulation
from sched_lab.hadar.model import toy_workload
from sched_lab.hadar.policies import POLICIES, policy_of
from sched_lab.hadar.report import report_of
from sched_lab.hadar.simulation import (
    MOST_ROWS,
    HadarE,
    jobs_frame,
    rounds_frame,
    run_copies,
    run_rounds,
    summary,
)
from sched_lab.lab.frames import InputError
from tests.hadar.cases import random_gangs, workload_of

seeds = st.integers(0, 10**6)
FORESIGHTED = ["hadar-sticky", "gavel-maxmin", "gavel-makespan", "gavel-sum", "tiresias", "yarn-cs"]


class OneByOne:
    """The same scheduler, asked in each round: the oracle."""

    def __init__(self, name, round_s=360.0, restart_s=10.0):
        self.who, self.decisions = policy_of(name, round_s, restart_s), 0

    def allocate(self, state):
        self.decisions += 1
        return self.who.allocate(state)


class Counted(OneByOne):
    """The same, and it tells what it foresees."""

    def rounds_alike(self, state, round_s):
        return self.who.rounds_alike(state, round_s)


def with_steps(work, factor):
    return replace(work, jobs=work.jobs._replace(steps=work.jobs.steps * factor))


def single(steps, rate=2.0):
    """One job on one GPU."""
    return workload_of([steps], [[rate]])


@pytest.mark.parametrize("name", FORESIGHTED)
@settings(max_examples=8, deadline=None)
@given(seed=seeds, lengths=st.sampled_from([(360.0, 10.0), (90.0, 0.0), (3.3, 0.1)]))
def test_every_frame_is_that_of_the_rounds_played_one_by_one(name, seed, lengths):
    round_s, restart_s = lengths
    work = with_steps(random_gangs(seed), round_s / 40)
    plain = OneByOne(name, *lengths)
    quick = Counted(name, *lengths)
    try:
        slow = run_rounds(work, plain, round_s=round_s, restart_s=restart_s)
    except InputError as error:
        assert "single GPU type" in str(error)
        return
    run = run_rounds(work, quick, round_s=round_s, restart_s=restart_s)
    assert quick.decisions <= plain.decisions
    assert run.end_s.tolist() == slow.end_s.tolist()
    assert run.start_s.tolist() == slow.start_s.tolist()
    pd.testing.assert_frame_equal(run.history, slow.history, check_exact=True)
    pd.testing.assert_frame_equal(run.intervals, slow.intervals, check_exact=True)


@pytest.mark.parametrize("name", FORESIGHTED)
def test_a_million_million_steps_end_at_once(name):
    who = Counted(name)
    run_rounds(single(1e12), who)
    assert who.decisions < 100
    done = report_of(single(1e12), name)
    assert done.run.end_s[0] == pytest.approx(5e11, rel=1e-6)
    assert done.summary["rounds"] == pytest.approx(5e11 / 360, rel=1e-6)
    assert done.summary["cru"] == pytest.approx(1)
    assert len(done.run.intervals) < MOST_ROWS
    frame = rounds_frame(done.run)
    assert (frame["start_s"] == frame["round"] * 360).all()


@pytest.mark.parametrize("name", FORESIGHTED)
def test_one_long_job_among_short_ones_ends(name):
    toy = toy_workload()
    long = replace(toy, jobs=toy.jobs._replace(steps=np.where(np.arange(6) == 2, 1e12, toy.jobs.steps)))
    run = run_rounds(long, policy_of(name))
    assert 1e12 / 4.5 <= run.end_s[2] < 1e12 / 0.49
    assert jobs_frame(run)["end_s"].drop(2).max() < 1e5
    assert summary(run)["gru"] > 0


def test_a_short_list_says_the_same_as_a_long_one(monkeypatch):
    work = with_steps(toy_workload(), 30)
    every = summary(run_rounds(work, policy_of("yarn-cs")))
    monkeypatch.setattr(simulation, "MOST_ROWS", 10)
    few = run_rounds(work, policy_of("yarn-cs"))
    assert summary(few) == pytest.approx(every, nan_ok=True)
    assert len(few.intervals) < every["rounds"] / 4


@pytest.mark.parametrize("name", list(POLICIES))
def test_a_run_that_cannot_end_is_refused_before_it_begins(name):
    for steps, round_s, restart_s in ((1e308, 360.0, 10.0), (9e15, 360.0, 10.0), (1e12, 0.001, 0.0),
                                      (9e15, 1e-9, 0.0), (1e308, 1e-300, 0.0)):
        with pytest.raises(InputError, match="rounds of|has .* steps|horizon|no step|longer") as refused:
            report_of(single(steps), name, round_s=round_s, restart_s=restart_s)
        assert len(str(refused.value)) < 300


@pytest.mark.parametrize("name", list(POLICIES))
def test_rounds_of_a_millisecond_end_or_are_refused(name, monkeypatch):
    monkeypatch.setattr(simulation, "MOST_DECISIONS", 3000)  # the real limit takes a minute to reach
    work = workload_of([9000, 5000], [[3, 2], [2, 1]]) if name.startswith("hadare") else toy_workload()
    try:
        assert report_of(work, name, round_s=0.001, restart_s=0.0).summary["ttd_h"] > 0
    except InputError as error:
        assert "rounds of 0.001 s" in str(error) or "no step in a slot of 0.001 s" in str(error)


def test_copies_skip_the_slots_in_which_nobody_is_there():
    work = workload_of([2400, 2400], [[3, 1], [3, 1]], arrival_s=[0, 3.6e9 + 1])
    early = workload_of([2400, 2400], [[3, 1], [3, 1]], arrival_s=[0, 7201])
    late, soon = (run_copies(each, HadarE()) for each in (work, early))
    assert (late.jct_s - soon.jct_s).tolist() == [0, 0]
    assert len(late.intervals) == len(soon.intervals)
