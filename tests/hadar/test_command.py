"""`sched-lab hadar`: three tables in, jobs, rounds, a summary and drawings out, one line for what is wrong."""
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.hadar.model import allocation_of, read_workload
from sched_lab.hadar.simulation import run_rounds
from sched_lab.lab.frames import embedded
from tests.command_line import assert_refused, call, content
from tests.hadar.cases import FORKED, GANGS

NUMBERS = {"jobs.csv", "rounds.csv", "summary.json"}
RESULT = NUMBERS | {"places.svg", "progress.svg", "usage.svg", "report.html"}
TABLES = {what: embedded(f"toy/hadar_{what}.csv").read_text() for what in ("jobs", "cluster", "throughputs")}
SINGLE = {  # for copies: nodes with one GPU, jobs with one worker
    "jobs": "name,arrival_s,steps,workers,model\nnight,0,9000,1,LM\nday,500,4000,1,LM\nlast,2000,3000,1,ResNet-50\n",
    "cluster": "node,type,gpus\neel,v100,1\nfox,p100,1\ngnu,k80,1\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with jobs.csv, cluster.csv and throughputs.csv."""
    monkeypatch.chdir(tmp_path)
    for what, text in TABLES.items():
        Path(f"{what}.csv").write_text(text)
    return tmp_path


def hadar(*options, out="out"):
    files = [part for what in TABLES for part in (f"--{what}", f"{what}.csv")]
    return call("hadar", *files, "--out", out, *options)


def given():
    return read_workload(*(f"{what}.csv" for what in TABLES))


def written(out="out"):
    """jobs.csv, rounds.csv and summary.json."""
    return pd.read_csv(f"{out}/jobs.csv"), pd.read_csv(f"{out}/rounds.csv"), json.loads(
        Path(out, "summary.json").read_text())


class Replay:
    """A scheduler that reads from rounds.csv."""

    def __init__(self, workload, rounds):
        job, node = (dict(map(reversed, enumerate(names))) for names in (workload.job_name, workload.node_name))
        self.places = {}
        for row in rounds.itertuples():
            assert row.type == workload.type_name[workload.cluster.node_type[node[row.node]]]
            self.places.setdefault(row.start_s, {}).setdefault(job[row.job], {})[node[row.node]] = row.gpus

    def allocate(self, state):
        return allocation_of(self.places.get(state.now_s, {}))


@pytest.mark.parametrize("name", GANGS)
@pytest.mark.parametrize(("round_s", "restart_s"), [(360, 10), (60, 0)])
def test_the_rounds_that_are_written_replay_to_the_jobs_that_are_written(name, round_s, restart_s, capsys):
    assert hadar("--policy", name, "--round", round_s, "--restart", restart_s, "--no-charts") == 0
    assert set(content("out")) == NUMBERS
    workload = given()
    (jobs, rounds, about) = written()
    run = run_rounds(workload, Replay(workload, rounds), round_s=round_s, restart_s=restart_s)
    assert jobs["name"].tolist() == list(workload.job_name)
    assert jobs["start_s"].to_numpy() == pytest.approx(run.start_s, abs=1e-6)
    assert jobs["end_s"].to_numpy() == pytest.approx(run.end_s, abs=1e-6)
    assert (jobs["jct_s"] - (jobs["end_s"] - jobs["arrival_s"])).abs().max() < 1e-6
    # the summary, from the tables alone
    hours = jobs["jct_s"] / 3600
    ttd_s = jobs["end_s"].max() - jobs["arrival_s"].min()
    assert about["ttd_h"] == pytest.approx(ttd_s / 3600) and about["mean_jct_h"] == pytest.approx(hours.mean())
    assert about["median_jct_h"] == pytest.approx(hours.median()) and about["policy"] == name
    assert about["p90_jct_h"] == pytest.approx(np.percentile(hours, 90))
    held = rounds.merge(jobs, left_on="job", right_on="name")
    busy_gpu_s = (held["gpus"] * (np.minimum(held["start_s_x"] + round_s, held["end_s"]) - held["start_s_x"])).sum()
    assert about["gru"] == pytest.approx(busy_gpu_s / (8 * ttd_s))
    assert about["cru"] == pytest.approx(busy_gpu_s / (8 * about["rounds"] * round_s))
    assert about["restarts"] == run.intervals["restarts"].sum() and about["rounds"] == len(run.intervals)
    assert about["changed_share"] == pytest.approx(run.intervals["changed"].mean())
    assert about["lower_bound_h"] == pytest.approx(1560 / 3600) and about["round_s"] == round_s
    assert about["restart_s"] == restart_s and about["above_bound_percent"] >= -1e-9
    assert f"mean JCT {hours.mean():.2f} h" in capsys.readouterr().out


@pytest.mark.parametrize("name", FORKED)
def test_copies_are_written_too_and_no_node_works_twice_at_a_time(name):
    for what, text in SINGLE.items():
        Path(f"{what}.csv").write_text(text)
    assert hadar("--policy", name, "--round", 90, "--restart", 5, "--no-charts") == 0
    workload = given()
    (jobs, rounds, about) = written()
    assert not rounds.duplicated(["round", "node"]).any() and (rounds["gpus"] == 1).all()
    assert rounds.duplicated(["round", "job"]).any()  # some job has copies
    assert (rounds["start_s"] == 90 * (rounds["start_s"] / 90).round()).all()
    # nobody can have done all steps in less time than its rounds, without what each of them loses, allow
    types = rounds["type"].map({name: kind for kind, name in enumerate(workload.type_name)})
    row = rounds["job"].map({name: job for job, name in enumerate(workload.job_name)})
    most = pd.Series(85 * workload.jobs.rate[row, types]).groupby(rounds["job"]).sum()
    assert (most[list(workload.job_name)].to_numpy() >= workload.jobs.steps).all()
    assert about["options"]["slot_s"] == 90 and about["options"]["overhead_s"] == 5
    assert 0 <= about["above_bound_percent"] and about["ttd_h"] == pytest.approx(jobs["end_s"].max() / 3600)


def test_without_any_file_the_toy_tables_are_taken():
    assert hadar("--no-charts") == 0
    assert call("hadar", "--out", "toy", "--no-charts") == 0
    assert content("out") == content("toy")
    jobs, _, about = written("toy")
    assert jobs["end_s"].tolist() == [485, 1135, 210, 1090, 1130, 1810]  # by hand, in the chapter
    assert (about["policy"], about["round_s"], about["restart_s"]) == ("hadar", 360, 10)


def test_the_drawings_name_jobs_types_and_the_result_and_the_same_command_writes_the_same_bytes():
    assert hadar() == hadar(out="two") == 0
    assert content("out") == content("two") and set(content("out")) == RESULT
    places, progress, usage = (Path("out", f"{name}.svg").read_text() for name in ("places", "progress", "usage"))
    assert all(drawing.startswith("<svg") and "hadar: done after" in drawing for drawing in (places, progress, usage))
    assert "vision" in places and "k80" in places and "no schedule is done before" in progress and "p100" in usage


WRONG = {  # one for each table, and what only all three say; `test_model.py` has the others
    "zero throughput everywhere": ("throughputs", ("LM,1,20,16,5", "LM,1,0,0,0"),
                                   ["jobs.csv", "row 5", "column model", "'notes'", "throughput 0"]),
    "gang larger than the cluster": ("cluster", ("eel,v100,2\nfox,p100,2\ngnu,k80,4", "eel,v100,1"),
                                     ["jobs.csv", "row 2", "column workers", "'vision'", "at most 1 GPUs"]),
    "unknown model": ("jobs", ("CycleGAN", "CycleGun"), ["jobs.csv", "row 4", "CycleGun", "did you mean CycleGAN?"]),
    "not CSV": ("jobs", ("name,", '"name,'), ["jobs.csv", "not CSV"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_table_is_one_line_and_writes_nothing(what, capsys):
    table, change, words = WRONG[what]
    text = TABLES[table].replace(*change)
    assert text != TABLES[table]
    Path(f"{table}.csv").write_text(text)
    assert_refused(hadar(), capsys, *words)


@pytest.mark.parametrize(("options", "words"), [
    (["--policy", "gavel"], ["'gavel'", "gavel-maxmin", "yarn-cs"]),
    (["--policy", "hadare"], ["one GPU", "one worker"]),
    (["--round", "soon"], ["--round", "hadar --help"]),
    (["--restart", "360"], ["a restart of 360 s", "less than a round"]),
    (["--jobs", "job.csv"], ["job.csv", "jobs.csv"]),
])
def test_wrong_options_are_one_line_and_write_nothing(options, words, capsys):
    assert_refused(hadar(*options), capsys, *words)


@pytest.mark.parametrize("name", ["gavel-maxmin", "gavel-makespan", "gavel-sum", "tiresias"])
def test_a_gang_that_fits_on_no_single_type_is_one_line_and_another_scheduler_takes_it(name, capsys):
    Path("cluster.csv").write_text(TABLES["cluster"].replace("k80,4", "k80,1"))
    assert hadar("--policy", name) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "'words'" in said and "no single GPU type" in said and "hadar" in said
    assert not Path("out").exists()
    assert hadar("--policy", "hadar", "--no-charts") == 0
    assert set(pd.read_csv("out/rounds.csv").query("job == 'words'")["type"]) == {"v100", "p100"}


def test_wrong_input_leaves_an_older_result_as_it_was(capsys):
    assert hadar("--no-charts") == 0
    before = content("out")
    for options in (("--round", "0"), ("--policy", "hadare"), ("--policy", "tiresias")):
        assert hadar(*options) == 2 and content("out") == before
    assert hadar("--policy", "tiresias", "--no-charts", "--force") == 0 and written()[2]["policy"] == "tiresias"


def test_a_file_in_the_place_of_the_folder_is_one_line(capsys):
    Path("out").write_text("mine")
    assert hadar() == 2
    assert "not a folder" in capsys.readouterr().err and Path("out").read_text() == "mine"
