"""`sched-lab far` and `far-run`: a table of run times in, a schedule out, one line for what is wrong."""
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.far.mig import Schedule, check_schedule, mig_of
from sched_lab.far.policies import POLICIES
from sched_lab.far.tasks import read_times
from tests.command_line import assert_refused, call, content

TIMES = """task,1,2,4,batch,command
train,40,16,8,night,echo train
gemm,24,12,6,day,echo gemm
stencil,20,9,5,night,echo stencil
sort,12,8,6,day,echo sort
big,,,9,night,echo big
"""
NUMBERS = {"schedule.csv", "reconfigurations.csv", "summary.json"}
RESULT = NUMBERS | {"gantt.svg", "report.html"}
POLICY_NAMES = (*POLICIES, "fixpart:4")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with times.csv."""
    monkeypatch.chdir(tmp_path)
    Path("times.csv").write_text(TIMES)
    return tmp_path


def far(*options, times="times.csv", gpu="A30", out="out"):
    return call("far", "--gpu", gpu, "--times", times, "--out", out, *options)


def instances(mig, frame):
    """Rows of the tree that a table of GPUs, first slices and sizes names."""
    tree = mig.tree
    rows = zip(tree.gpu.tolist(), tree.first_slice.tolist(), tree.size.tolist(), strict=True)
    number = {instance: i for i, instance in enumerate(rows)}
    return np.array([number[one] for one in zip(frame["gpu"], frame["first_slice"], frame["size"], strict=True)], int)


def schedule_written(folder, mig, batch):
    """Read the schedule that the files of a folder describe, tasks in the order of the table."""
    tasks = pd.read_csv(f"{folder}/schedule.csv").set_index("task").loc[list(batch.name)]
    operations = pd.read_csv(f"{folder}/reconfigurations.csv")
    return Schedule(mig, instances(mig, tasks), tasks["start_s"].to_numpy(), tasks["end_s"].to_numpy(),
                    instances(mig, operations), (operations["operation"] == "create").to_numpy(),
                    operations["start_s"].to_numpy(), operations["end_s"].to_numpy())


@pytest.mark.parametrize("policy", POLICY_NAMES)
@pytest.mark.parametrize("gpus", [1, 2])
def test_what_is_written_is_a_valid_schedule(policy, gpus, capsys):
    assert far("--policy", policy, "--gpus", gpus, "--no-charts") == 0
    assert set(content("out")) == NUMBERS
    mig = mig_of("A30", gpus)
    summary = json.loads(Path("out/summary.json").read_text())
    batch = read_times("times.csv", mig)
    schedule = schedule_written("out", mig, batch)
    if not len(schedule.operated):
        schedule = replace(schedule, existing=np.unique(schedule.instance))
    check_schedule(schedule, batch.times_s)
    assert summary["makespan_s"] == pytest.approx(schedule.makespan_s, abs=1e-8)
    # least works: train 32, gemm 24, stencil 18, sort 12, big 36, of four slices each
    assert summary["rho"] == pytest.approx(schedule.makespan_s / (122 / 4 / gpus), abs=1e-8)
    assert summary["lower_bound_s"] <= summary["makespan_s"] + 1e-9
    assert ("optimum_s" in summary) == (policy == "optimal")
    assert summary["reconfigurations"] == len(schedule.operated)
    assert f"makespan {schedule.makespan_s:.2f} s" in capsys.readouterr().out


def test_batches_run_one_after_the_other_in_the_order_of_the_table():
    assert far("--batch", "batch", "--no-charts") == 0
    table = pd.read_csv("out/schedule.csv").set_index("task")
    assert table["batch"].to_dict() == {"train": "night", "gemm": "day", "stencil": "night", "sort": "day",
                                        "big": "night"}
    assert json.loads(Path("out/summary.json").read_text())["batches"] == 2
    ends = table.groupby("batch")["end_s"].max()
    assert ends["night"] < ends["day"]


@pytest.mark.parametrize("policy", ["far-plus", "fixpart:4"])
def test_the_same_command_writes_the_same_bytes(policy):
    """Of a schedule with reconfigurations, and of one without."""
    for out in ("one", "two"):
        assert far("--policy", policy, "--gpus", 2, out=out) == 0
    assert content("one") == content("two") and set(content("one")) == RESULT


@pytest.mark.parametrize(("options", "words"), [
    (["--times", "soon.csv"], ["soon.csv", "row 3", "column 1", "soon"]),
    (["--policy", "best"], ["'best'", "far-plus"]),
    (["--policy", "fixpart:3-1"], ["3-1", "2-1-1"]),
    (["--policy", "fixpart:"], ["fixpart:"]),
    (["--policy", "fixpart:2-2"], ["fits on no instance of 2-2"]),
    (["--gpus", "0"], ["0 GPUs"]),
    (["--batch", "night"], ["night"]),
])
def test_what_is_wrong_is_one_line_and_writes_nothing(options, words, capsys):
    Path("soon.csv").write_text(TIMES.replace("gemm,24,", "gemm,soon,"))
    assert_refused(far(*options), capsys, *words)


def test_an_unknown_gpu_and_a_missing_or_empty_table_are_one_line(capsys):
    Path("empty.csv").write_text("task,1,2,4\n")
    for given, words in (({"gpu": "A31"}, ("'A31'", "A30")), ({"times": "no.csv"}, ("no.csv",)),
                         ({"times": "empty.csv"}, ("no row",))):
        assert_refused(far(**given), capsys, *words)


@pytest.mark.parametrize("table", [TIMES, "task,due_s,1,2,4\na,,3,2,1\n"])
@pytest.mark.parametrize("policy", ["far", "lists"])
def test_tardiness_of_tasks_of_which_none_is_due_is_refused(table, policy, capsys):
    Path("times.csv").write_text(table)
    assert_refused(far("--policy", policy, "--objective", "tardiness"), capsys, "no task has a due date")


def test_the_bound_on_a_task_with_a_release_is_not_above_its_end(tmp_path):
    Path("r.csv").write_text("task,release_s,due_s,1g.10gb\na,600,660,60\n")
    options = ("--policy", "lists", "--objective", "tardiness", "--no-charts")
    assert far(*options, times="r.csv", gpu="H100 PCIe") == 0
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["lower_bound_s"] == summary["makespan_s"] == 660
    assert summary["tardiness_bound_s"] == summary["tardiness_s"] == 0


def test_far_run_prints_the_plan_and_touches_nothing(capsys):
    assert call("far-run", "--gpu", "A30", "--times", "times.csv", "--dry-run", "--out", "run") == 0
    said = capsys.readouterr().out
    assert "create" in said and "train" in said and not Path("run").exists() and "pynvml" not in sys.modules


def test_far_run_simulates_in_the_order_of_the_plan():
    assert call("far-run", "--gpu", "A30", "--times", "times.csv", "--simulated", "1000", "--out", "run") == 0
    steps = pd.read_csv("run/execution.csv")
    assert set(steps["kind"]) <= {"create", "run", "destroy"} and (steps["kind"] == "run").sum() == 5
    assert (steps.loc[steps["kind"] == "run", "exit_code"] == 0).all()


@pytest.mark.parametrize("options", [[], ["--dry-run", "--simulated", "10"], ["--dry-run", "--yes-reconfigure"]])
def test_far_run_wants_to_hear_exactly_one_way_to_run(options, capsys):
    assert call("far-run", "--gpu", "A30", "--times", "times.csv", "--out", "run", *options) == 2
    assert "--yes-reconfigure" in capsys.readouterr().err and not Path("run").exists()


def test_a_schedule_on_instances_made_beforehand_is_not_carried_out(capsys):
    assert call("far-run", "--gpu", "A30", "--times", "times.csv", "--dry-run", "--out", "run",
                "--policy", "fixpart-best") == 2
    assert "nobody creates" in capsys.readouterr().err


def test_help_lists_every_policy_of_the_table(capsys):
    assert call("far", "--help") == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert all(f"{name}: " in said for name in POLICIES.sentences())
