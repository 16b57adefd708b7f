"""The report of a Hadar run: the same numbers as the engine's, bounds that hold, pictures that add up."""
import html
import re

import altair as alt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.hadar.baselines import Gavel, Tiresias, YarnCs
from sched_lab.hadar.bounds import bound
from sched_lab.hadar.fluid import makespan_bound_s
from sched_lab.hadar.model import Cluster, Jobs, Workload, allocation_of, toy_workload
from sched_lab.hadar.planned import Planned, mean_jct_bound_s
from sched_lab.hadar.policies import POLICIES, policy_of
from sched_lab.hadar.primal_dual import Hadar
from sched_lab.hadar.report import MAX_ROUNDS, places_frame, progress_frame, report_of, usage_frame
from sched_lab.hadar.simulation import HadarE, node_workload, run_copies, run_rounds, summary
from sched_lab.hadar.workload import default_throughputs, draw_workload, paper_cluster
from sched_lab.lab import reports as module
from sched_lab.lab.frames import InputError, OutputError, read_json
from tests.hadar.cases import random_workload

GANGS = {  # the same schedulers, made without the table of names
    "hadar": lambda round_s, restart_s: Hadar(round_s=round_s, restart_s=restart_s),
    "hadar-inv": lambda round_s, restart_s: Hadar(utility="inv", round_s=round_s, restart_s=restart_s),
    "hadar-sticky": lambda round_s, restart_s: Hadar(sticky=True, round_s=round_s, restart_s=restart_s),
    "gavel-maxmin": lambda *_: Gavel("maxmin"),
    "gavel-makespan": lambda *_: Gavel("makespan"),
    "gavel-sum": lambda *_: Gavel("sum"),
    "tiresias": lambda *_: Tiresias(),
    "yarn-cs": lambda *_: YarnCs(),
    "planned": lambda round_s, restart_s: Planned(round_s, restart_s),
    "planned-area": lambda round_s, restart_s: Planned(round_s, restart_s, by_area=True),
}
COPIES = {"hadare": "density", "hadare-longest": "longest"}


class Swap:
    """Job 0 on the first two nodes, then on the second one."""

    def __init__(self):
        self.rounds = [{0: {0: 1, 1: 2}}] * 2 + [{0: {1: 3}}] * 9

    def allocate(self, state):
        return allocation_of(self.rounds.pop(0))


def one_gang():
    """One job with three workers that does a step a second wherever it is, and two nodes of different type."""
    rate = np.ones((1, 2))
    jobs = Jobs(np.zeros(1), np.array([25.0]), np.array([3]), np.ones(1), rate, rate)
    return Workload(("gang",), ("v", "k"), ("V100", "K80"), Cluster(np.arange(2), np.array([1, 3])), jobs)


def single_gpus(seed):
    """Random jobs with one worker on random nodes with one GPU."""
    drawn = random_workload(seed)
    cluster = drawn.cluster._replace(node_gpus=np.ones_like(drawn.cluster.node_gpus))
    jobs = drawn.jobs._replace(workers=np.ones_like(drawn.jobs.workers), steps=drawn.jobs.steps.round() + 1)
    return Workload(drawn.job_name, drawn.node_name, drawn.type_name, cluster, jobs)


def busy():
    """Forty short jobs at once on six nodes: no two schedulers do the same."""
    drawn = draw_workload(default_throughputs(), 0, num_jobs=40, scale=0.1)
    node_name, cluster = paper_cluster(2)
    return Workload(drawn.job_name, node_name, drawn.type_name, cluster, drawn.jobs)


def in_use_gpu_s(run):
    """GPU-seconds under the usage curves."""
    wide = usage_frame(run).pivot(index="time_h", columns="type", values="gpus").sum(axis=1)
    return float((wide.to_numpy()[:-1] * np.diff(wide.index)).sum() * 3600)


def test_every_name_is_tried_here():
    assert POLICIES.keys() == GANGS.keys() | COPIES.keys()


@pytest.mark.parametrize("name", GANGS)
@pytest.mark.parametrize(("round_s", "restart_s"), [(360.0, 10.0), (90.0, 30.0)])
def test_the_report_is_the_run_of_the_engine(name, round_s, restart_s):
    toy = toy_workload()
    done = report_of(toy, name, round_s=round_s, restart_s=restart_s)
    run = run_rounds(toy, GANGS[name](round_s, restart_s), round_s=round_s, restart_s=restart_s)
    assert (done.run.end_s == run.end_s).all() and (done.run.start_s == run.start_s).all()
    pd.testing.assert_frame_equal(done.run.history, run.history)
    measures = summary(run)
    assert {name: done.summary[name] for name in measures if name != "backlog_gru"} == {
        name: value for name, value in measures.items() if name != "backlog_gru"}
    assert done.summary["lower_bound_h"] == pytest.approx(1560 / 3600)  # the last job arrives at 1200 s and needs 360 s
    assert done.summary["above_bound_percent"] == pytest.approx(100 * (run.ttd_s / 1560 - 1))
    assert (done.summary["jobs"], done.summary["nodes"], done.summary["gpus"]) == (6, 3, 8)
    assert done.summary["mean_jct_bound_h"] == pytest.approx(mean_jct_bound_s(toy.cluster, toy.jobs) / 3600)
    assert done.summary["mean_jct_bound_h"] <= done.summary["mean_jct_h"]


def test_every_name_stands_for_another_scheduler():
    ends_s = {}
    for name in GANGS:
        own = report_of(busy(), name).run.end_s
        assert (own == run_rounds(busy(), GANGS[name](360.0, 10.0)).end_s).all(), name
        ends_s[tuple(own)] = name
    assert list(ends_s.values()) == list(GANGS)


@pytest.mark.parametrize("name", COPIES)
def test_copies_get_the_length_of_a_slot_and_its_overhead(name):
    workload = node_workload("aws", "M-4")
    done = report_of(workload, name, round_s=90.0, restart_s=5.0)
    run = run_copies(workload, HadarE(order=COPIES[name], slot_s=90.0, overhead_s=5.0))
    assert (done.run.end_s == run.end_s).all() and (done.run.intervals["length_s"] == 90).all()
    assert done.summary["options"]["slot_s"] == 90 and done.summary["options"]["overhead_s"] == 5
    assert done.summary["options"]["order"] == COPIES[name]
    assert done.summary["mean_jct_bound_h"] is None


def test_the_options_of_a_plan_are_told():
    options = report_of(toy_workload(), "planned-area", round_s=90.0, restart_s=5.0).summary["options"]
    assert (options["round_s"], options["restart_s"], options["by_area"]) == (90, 5, True)


@pytest.mark.parametrize("name", ["hadar", "hadar-inv", "hadar-sticky"])
def test_hadar_knows_the_round_and_the_restart(name):
    made = policy_of(name, 90.0, 5.0)
    assert (made.round_s, made.restart_s) == (90.0, 5.0)
    options = report_of(toy_workload(), name, round_s=90.0, restart_s=5.0).summary["options"]
    assert options["round_s"] == 90 and options["restart_s"] == 5
    assert options["utility"] == ("inv" if name == "hadar-inv" else "effnorm")
    assert options["sticky"] == (name == "hadar-sticky")


def test_each_call_makes_a_fresh_scheduler():
    assert policy_of("gavel-sum") is not policy_of("gavel-sum")
    first, second = (report_of(toy_workload(), "gavel-sum") for _ in range(2))
    assert (first.run.end_s == second.run.end_s).all() and first.summary.keys() == second.summary.keys()


# --- bounds


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 9999), name=st.sampled_from(list(GANGS)))
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
@given(seed=st.integers(0, 9999), name=st.sampled_from(list(COPIES)))
def test_no_copies_are_done_before_their_bound(seed, name):
    workload = single_gpus(seed)
    about = report_of(workload, name).summary
    assert about["ttd_h"] >= about["lower_bound_h"] * (1 - 1e-9)
    assert about["lower_bound_h"] * 3600 == pytest.approx(bound(workload, is_forked=True))
    assert bound(workload, is_forked=True) <= bound(workload) * (1 + 1e-9)


def test_the_bound_with_copies_of_one_job_is_all_speeds_added():
    single = node_workload("aws", "M-1")
    per_s = single.jobs.rate[0, single.cluster.node_type]
    assert bound(single, is_forked=True) == pytest.approx(120_000 / per_s.sum())
    assert bound(single) == pytest.approx(120_000 / per_s.max())
    about = report_of(single, "hadare").summary
    assert about["lower_bound_h"] <= about["ttd_h"] < bound(single) / 3600  # copies beat any single node


def test_the_bound_with_copies_counts_a_gang_by_its_workers():
    # three workers do a step a second together: four GPUs could do 4/3
    assert bound(one_gang(), is_forked=True) == pytest.approx(25 / (4 / 3))


def test_the_bound_is_counted_from_the_first_arrival():
    toy = toy_workload()
    late = Workload(toy.job_name, toy.node_name, toy.type_name, toy.cluster,
                    toy.jobs._replace(arrival_s=toy.jobs.arrival_s + 7200))
    assert bound(late) == pytest.approx(bound(toy)) == pytest.approx(1560)
    assert makespan_bound_s(late.cluster, late.jobs) == pytest.approx(8760)
    above_percent, same_percent = (report_of(run).summary["above_bound_percent"] for run in (late, toy))
    assert above_percent == pytest.approx(same_percent)


# --- pictures


def test_a_gang_on_two_types_is_drawn_in_proportion():
    # ten seconds a round: two rounds on 1 V100 + 2 K80, then on 3 K80 until the 25 steps are done
    places = places_frame(run_rounds(one_gang(), Swap(), round_s=10.0, restart_s=0.0))
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
    odd = Workload(("it's", 'a "b"', "<c>", "d\\e", "f,g", "h"), toy.node_name, toy.type_name, toy.cluster, toy.jobs)
    report_of(odd).write(tmp_path / "out")
    drawn = (tmp_path / "out/places.svg").read_text()
    words = [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawn)]
    assert [word for word in words if word in odd.job_name] == list(odd.job_name)  # the toy jobs are sorted by arrival
    assert set(pd.read_csv(tmp_path / "out/rounds.csv")["job"]) == set(odd.job_name)


# --- what goes wrong


@pytest.mark.parametrize(("round_s", "restart_s"), [(0.0, 0.0), (-1.0, 0.0), (np.inf, 10.0), (np.nan, 10.0),
                                                    (360.0, 360.0), (360.0, 400.0), (360.0, -1.0), (360.0, np.nan)])
@pytest.mark.parametrize("name", ["hadar", "hadare", "yarn-cs"])
def test_lengths_that_make_no_sense_are_refused(name, round_s, restart_s):
    with pytest.raises(InputError, match="give a round above 0"):
        report_of(node_workload("aws", "M-3"), name, round_s=round_s, restart_s=restart_s)


def test_an_unknown_policy_and_no_job_are_refused():
    with pytest.raises(InputError, match="there is no policy 'gavel'.*gavel-maxmin.*yarn-cs"):
        report_of(toy_workload(), "gavel")
    toy = toy_workload()
    with pytest.raises(InputError, match="no job"):
        report_of(Workload((), toy.node_name, toy.type_name, toy.cluster, toy.jobs))


@pytest.mark.parametrize("name", COPIES)
def test_copies_want_nodes_with_one_gpu_and_jobs_with_one_worker(name):
    with pytest.raises(InputError, match="copies are for nodes with one GPU and jobs with one worker"):
        report_of(toy_workload(), name)


def test_a_job_that_makes_no_step_in_a_slot_is_named():
    workload = node_workload("aws", "M-3")
    slow = Workload(workload.job_name, workload.node_name, workload.type_name, workload.cluster,
                    workload.jobs._replace(rate=workload.jobs.rate * np.array([[1.0], [1e-6], [1.0]])))
    with pytest.raises(InputError, match="job 'MM1' does no step"):
        report_of(slow, "hadare")


@pytest.mark.parametrize("name", ["gavel-maxmin", "gavel-makespan", "gavel-sum", "tiresias"])
def test_a_gang_that_fits_on_no_single_type_is_named(name):
    toy = toy_workload()
    narrow = Workload(toy.job_name, toy.node_name, toy.type_name,
                      toy.cluster._replace(node_gpus=np.array([2, 2, 1])), toy.jobs)
    with pytest.raises(InputError, match="job 'words' fits on no single GPU type; choose"):
        report_of(narrow, name)
    for other in ("hadar", "yarn-cs"):
        words = places_frame(report_of(narrow, other).run).query("job == 1")
        assert words["type"].nunique() > 1


@pytest.mark.parametrize("broken", ["write_bytes", "write_json"])
def test_an_error_while_writing_leaves_nothing_behind(broken, tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    done = report_of(toy_workload())
    monkeypatch.setattr(module, broken, fail)
    with pytest.raises(KeyboardInterrupt):
        done.write(tmp_path / "new" / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_gets_new_files_and_keeps_the_others(tmp_path, monkeypatch):
    out = tmp_path / "out"
    report_of(toy_workload(), "hadar").write(out)
    (out / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in out.iterdir()}

    def fail(*_):
        raise KeyboardInterrupt

    tiresias = report_of(toy_workload(), "tiresias")
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_json", fail)
        with pytest.raises(KeyboardInterrupt):
            tiresias.write(out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    tiresias.write(out)
    assert read_json(out / "summary.json")["policy"] == "tiresias" and (out / "notes.txt").read_text() == "mine"
    assert {path.name for path in out.iterdir()} == before.keys()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputError, match="not a folder"):
        report_of(toy_workload()).write(tmp_path / "out")
