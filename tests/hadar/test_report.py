"""The report of a Hadar run: the same numbers as the engine's, bounds that hold, pictures that add up."""
import html
import re
from dataclasses import replace

import altair as alt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.bounds import bound
from sched_lab.hadar.fluid import makespan_bound_s
from sched_lab.hadar.model import toy_workload
from sched_lab.hadar.planned import mean_jct_bound_s
from sched_lab.hadar.report import MAX_ROUNDS, places_frame, progress_frame, report_of, usage_frame
from sched_lab.hadar.simulation import run_rounds
from sched_lab.lab import reports as module
from sched_lab.lab.frames import InputError
from studies.testbed import node_workload
from tests.hadar.cases import FORKED, GANGS, Script, jobs_of, named, nodes_of, random_gangs, random_workload


def one_gang():
    """Make one job with three workers that does a step a second wherever it is, and two nodes of different type."""
    return named(nodes_of([1, 3], [0, 1]), jobs_of([[1, 1]], 25, 3), ("V100", "K80"))


def in_use_gpu_s(run):
    """GPU-seconds under the usage curves."""
    wide = usage_frame(run).pivot(index="time_h", columns="type", values="gpus").sum(axis=1)
    return float((wide.to_numpy()[:-1] * np.diff(wide.index)).sum() * 3600)


def test_the_report_says_sizes_options_and_the_bound_of_the_mean():
    toy = toy_workload()
    about = report_of(toy, "hadar", round_s=90.0, restart_s=30.0).summary
    assert (about["jobs"], about["nodes"], about["gpus"]) == (6, 3, 8)
    assert about["mean_jct_bound_h"] == pytest.approx(mean_jct_bound_s(toy.cluster, toy.jobs) / 3600)
    assert about["mean_jct_bound_h"] <= about["mean_jct_h"]
    assert (about["options"]["round_s"], about["options"]["restart_s"]) == (90.0, 30.0)


# --- bounds


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 9999), name=st.sampled_from(GANGS))
def test_nobody_is_done_before_the_bound_and_the_pictures_add_up(seed, name):
    done = report_of(random_workload(seed), name)
    jobs = done.run.workload.jobs
    assert done.summary["ttd_h"] >= done.summary["lower_bound_h"] * (1 - 1e-9)
    assert in_use_gpu_s(done.run) == pytest.approx(done.run.intervals["busy_gpu_s"].sum(), abs=1e-3)
    places = places_frame(done.run)
    held_s = (places["end_s"] - places["start_s"]) * (places["high"] - places["low"]) * jobs.workers[places["job"]]
    if len(done.run.intervals) <= MAX_ROUNDS:
        assert held_s.sum() == pytest.approx(done.run.intervals["busy_gpu_s"].sum(), abs=1e-3)
    last = progress_frame(done.run).groupby("what")["jobs"].max()
    assert (last == len(jobs.steps)).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 9999), name=st.sampled_from(FORKED))
def test_no_copies_are_done_before_their_bound(seed, name):
    workload = random_gangs(seed, one_gpu=True)
    about = report_of(workload, name).summary
    assert about["ttd_h"] >= about["lower_bound_h"] * (1 - 1e-9)
    assert about["lower_bound_h"] * 3600 == pytest.approx(bound(workload, is_forked=True))
    assert about["mean_jct_bound_h"] is None
    assert bound(workload, is_forked=True) <= bound(workload) * (1 + 1e-9)


def test_the_bound_with_copies_counts_a_gang_by_its_workers():
    # three workers do a step a second together: four GPUs could do 4/3
    assert bound(one_gang(), is_forked=True) == pytest.approx(25 / (4 / 3))


def test_the_bound_is_counted_from_the_first_arrival():
    toy = toy_workload()
    late = replace(toy, jobs=toy.jobs._replace(arrival_s=toy.jobs.arrival_s + 7200))
    assert bound(late) == pytest.approx(bound(toy)) == pytest.approx(1560)
    assert makespan_bound_s(late.cluster, late.jobs) == pytest.approx(8760)
    above_percent, same_percent = (report_of(run).summary["above_bound_percent"] for run in (late, toy))
    assert above_percent == pytest.approx(same_percent)


# --- pictures


def test_a_gang_on_two_types_is_drawn_in_proportion():
    # ten seconds a round: two rounds on 1 V100 + 2 K80, then on 3 K80 until the 25 steps are done
    moves = Script(*[{0: {0: 1, 1: 2}}] * 2, *[{0: {1: 3}}] * 9)
    places = places_frame(run_rounds(one_gang(), moves, round_s=10.0, restart_s=0.0))
    rows = [(row.type, row.start_s, row.end_s, round(row.low, 6), round(row.high, 6)) for row in places.itertuples()]
    assert sorted(rows) == [("K80", 0.0, 20.0, 0.333333, 1.0), ("K80", 20.0, 25.0, 0.0, 1.0),
                            ("V100", 0.0, 20.0, 0.0, 0.333333)]


def test_of_a_long_run_some_rounds_are_drawn_and_all_of_the_time():
    done = report_of(toy_workload(), "yarn-cs", round_s=1.0, restart_s=0.0)
    assert len(done.run.intervals) > 5 * MAX_ROUNDS
    places = places_frame(done.run)
    every = -(-len(done.run.intervals) // MAX_ROUNDS)
    assert (places["start_s"] % every == 0).all()  # rounds last a second
    for job, end_s in enumerate(done.run.end_s):
        own = places[places["job"] == job]
        assert end_s - every <= own["end_s"].max() <= end_s + 1e-6
        assert abs(own["start_s"].min() - done.run.start_s[job]) <= every


def test_more_than_five_thousand_rows_are_drawn_and_altair_is_left_as_it_was(tmp_path):
    before = (alt.theme.active, alt.data_transformers.options.get("max_rows"))
    done = report_of(toy_workload(), "yarn-cs", round_s=0.5, restart_s=0.0)
    assert len(usage_frame(done.run)) > 5000
    done.write(tmp_path / "out")
    assert (alt.theme.active, alt.data_transformers.options.get("max_rows")) == before


def test_names_with_quotes_are_drawn(tmp_path):
    toy = toy_workload()
    odd = replace(toy, job_name=("it's", 'a "b"', "<c>", "d\\e", "f,g", "h"))
    report_of(odd).write(tmp_path / "out")
    drawn = (tmp_path / "out/places.svg").read_text()
    words = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawn)]
    assert [word for word in words if word in odd.job_name] == list(odd.job_name)  # the toy jobs are sorted by arrival
    assert set(pd.read_csv(tmp_path / "out/rounds.csv")["job"]) == set(odd.job_name)


# --- what goes wrong


def test_no_job_is_refused():
    with pytest.raises(InputError, match="no job"):
        report_of(replace(toy_workload(), job_name=()))


def test_a_job_that_makes_no_step_in_a_slot_is_named():
    workload = node_workload("aws", "M-3")
    slow = replace(workload, jobs=workload.jobs._replace(rate=workload.jobs.rate * np.array([[1.0], [1e-6], [1.0]])))
    with pytest.raises(InputError, match="job 'MM1' does no step"):
        report_of(slow, "hadare")


def test_an_error_while_writing_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    done = report_of(toy_workload())
    monkeypatch.setattr(module, "write_json", fail)
    with pytest.raises(KeyboardInterrupt):
        done.write(tmp_path / "new" / "out")
    assert list(tmp_path.iterdir()) == []
