"""`sched-lab replay`: the files of an answer, what is refused in one line, and folders that are whole or not there."""
import json
from pathlib import Path

import pandas as pd
import pytest

from sched_lab.fleet import command
from sched_lab.fleet.replay import report
from sched_lab.fleet.replay.events import COMPARED
from sched_lab.lab.frames import embedded, sha256
from tests.command_line import assert_concluded, assert_refused, call, content

TASKS = """name,submit_s,start_s,end_s,num_gpus,gpu_milli,node,gpu_list,user,cpu_milli,memory_mib
a,0,5,4000,1,1000,n0,0,ann,4000,1024
"=HYPERLINK(""x"")",10,10,9000,1,300,n0,1,<b>bob</b>,4000,1024
c,20,30,,2,1000,n1,0-1,ann,4000,1024
"""
NODES = "name,gpu_model,num_gpus,cpu_milli,memory_mib\nn0,T4,2,64000,262144\nn1,T4,2,64000,262144\n"
FILES = {"summary.csv", "waits.csv", "differences.csv", "levers.csv", "fidelity.csv", "ledger.csv", "report.html",
         "summary.json"}
OF_A_POLICY = {"assignments.csv", "curve.csv", "failures.csv", "summary.json"}
COLUMNS = ["policy", "served_tasks", "refused_tasks", "refused_task_share", "refused_gpu_h", "refused_gpu_h_share",
           "mean_wait_s", "p99_wait_s", "allocated_gpu_h", "stranded_gpu_h", "energy_kwh",
           "energy_asleep_kwh", "cost", "co2_kg"]


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch, request):
    if "all_its_files" not in request.node.name:
        monkeypatch.setattr(report, "page_of", lambda comparison: "<!DOCTYPE html>")  # pictures take seconds
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text(TASKS)
    Path("own.csv").write_text(NODES)
    assert call("read", "csv", "jobs.csv", "own.csv", "--out", "mine") == 0


def replay(*options, out="out", cluster="mine"):
    return call("replay", cluster, "--out", out, "--workers", "1", *options)


def test_most_tasks_must_have_what_a_replay_needs(capsys):
    """Columns of times that nobody maps: no task has any, and none is played as if it ran for ever."""
    rows = "".join(f"t{k},2024-01-{1 + k % 20:02} 10:00:00,1\n" for k in range(20))
    Path("jobs.csv").write_text(f"name,began,num_gpus\n{rows}")
    assert call("read", "csv", "jobs.csv", "own.csv", "--out", "untimed") == 0
    assert "column began is not used, and looks like a time: --map start_s=began" in capsys.readouterr().err
    assert_refused(replay("--policies", "fgd", cluster="untimed"), capsys,
                   "20 of 20 tasks lack what a replay needs (neither start nor end)", "--map submit_s=COLUMN")
    mostly = [f"s{k},{k},{k + 5 if k < 8 else ''},{k + 9 if k < 8 else ''},1" for k in range(14)]
    Path("jobs.csv").write_text("name,submit_s,start_s,end_s,num_gpus\n" + "\n".join(mostly))
    assert call("read", "csv", "jobs.csv", "own.csv", "--out", "mostly") == 0
    assert replay("--policies", "fgd", cluster="mostly") == 0
    assert pd.read_csv("out/summary.csv")["served_tasks"].tolist() == [8]


def test_a_job_on_several_nodes_counts_once_and_its_parts_start_together(capsys):
    """Two GPUs are free beside k, and the two parts of j want two each: j waits until k ends at 100 s, k not at all."""
    Path("jobs.csv").write_text("name,submit_s,start_s,end_s,num_gpus,num_nodes\nk,0,0,100,2,1\nj,0,0,50,4,2\n")
    assert call("read", "csv", "jobs.csv", "own.csv", "--out", "gang") == 0
    capsys.readouterr()
    assert replay("--policies", "fgd", cluster="gang") == 0
    summary = pd.read_csv("out/summary.csv").iloc[0]
    assert (summary["served_tasks"], summary["refused_tasks"], summary["mean_wait_s"]) == (2, 0, 50)
    assert pd.read_csv("out/waits.csv").query("value == '4 GPUs'")["mean_wait_s"].tolist() == [100]
    assert call("check", "gang") == 0
    assert "2 tasks are parts of 1 jobs" in capsys.readouterr().out


def test_much_that_never_starts_is_in_the_last_sentence(capsys):
    """A job of eight GPUs fits no node of two: a task in four, and 8 of 9 GPU hours."""
    rows = "".join(f"t{k},0,0,1200,1\n" for k in range(3))
    Path("jobs.csv").write_text(f"name,submit_s,start_s,end_s,num_gpus\n{rows}wide,0,0,3600,8\n")
    assert call("read", "csv", "jobs.csv", "own.csv", "--out", "wide") == 0
    capsys.readouterr()
    assert replay("--policies", "fgd,pwr", cluster="wide") == 0
    summary = pd.read_csv("out/summary.csv")
    assert (summary["refused_task_share"] == 0.25).all() and (summary["refused_gpu_h"] == 8).all()
    assert summary["refused_gpu_h_share"].tolist() == pytest.approx([8 / 9] * 2, abs=1e-6)
    sentence = capsys.readouterr().out.splitlines()[-2]
    assert sentence.endswith(" Never started: 25 % of the tasks with 88.9 % of the GPU hours under every policy.")


def test_an_answer_has_all_its_files(capsys):
    capsys.readouterr()
    assert replay("--asleep-after", "30", "--price", "0.25", "--carbon", "400") == 0
    policies = ["recorded", "fgd", "pwr-fgd:0.1", "joint"]
    there = content("out")
    assert set(there) == FILES | {f"{policy}/{name}" for policy in policies for name in OF_A_POLICY}
    summary = pd.read_csv("out/summary.csv")
    assert list(summary)[:len(COLUMNS)] == COLUMNS and summary["policy"].tolist() == policies
    assert all(name.startswith("bound_") for name in list(summary)[len(COLUMNS):])
    assert (summary["cost"] - 0.25 * summary["energy_kwh"]).abs().max() < 1e-5
    assert (summary["co2_kg"] - 0.4 * summary["energy_kwh"]).abs().max() < 1e-5
    assignments = pd.read_csv("out/recorded/assignments.csv")
    assert assignments["gpu_list"].tolist() == ["0", "1", "0-1"] and assignments["end_s"].isna().tolist() == [
        False, False, True]
    assert assignments["task"][1] == '=HYPERLINK("x")'
    curve = pd.read_csv("out/fgd/curve.csv")
    assert (curve[["allocated_gpu", "stranded_gpu", "idle_gpu"]].sum(axis=1) - 4).abs().max() < 2e-6
    about = json.loads(there["summary.json"])
    levers = pd.read_csv("out/levers.csv")
    assert levers["choice"].tolist() == ["fgd", "pwr-fgd:0.1", "joint", *COMPARED[1:]]
    assert about["command"] == "replay" and about["from_s"] == 0 and about["until_s"] == 9000
    text = capsys.readouterr()
    assert_concluded(text.out)
    assert "fewer than 30 tasks tell little" in text.out and "Traceback" not in text.err
    assert b"<b>bob" not in there["report.html"] and b"http-equiv=refresh" not in there["report.html"]


def test_several_rules_of_the_queue_are_what_each_is_alone(capsys):
    """t2 waits for both GPUs of a node, and t3, which fits beside t0, waits behind it under none alone."""
    rows = "".join(f"t{k},{k},{k},{k + 100},{1 + (k in (1, 2))}\n" for k in range(4))
    Path("jobs.csv").write_text(f"name,submit_s,start_s,end_s,num_gpus\n{rows}")
    assert call("read", "csv", "jobs.csv", "own.csv", "--out", "queue") == 0
    given = ("--policies", "fgd,pwr")
    assert replay(*given, "--queues", "none,first-fit,conservative", cluster="queue") == 0
    labels = ["fgd", "pwr", "fgd+first-fit", "pwr+first-fit", "fgd+conservative", "pwr+conservative"]
    assert pd.read_csv("out/summary.csv")["policy"].tolist() == labels
    assert pd.read_csv("out/levers.csv")["choice"].tolist() == ["fgd", "pwr", "first-fit", "conservative"]
    waits_s = pd.read_csv("out/summary.csv").set_index("policy")["mean_wait_s"]
    assert waits_s["fgd"] > waits_s["fgd+first-fit"] > 0
    for rule, mark in (("none", ""), ("first-fit", "+first-fit"), ("conservative", "+conservative")):
        assert replay(*given, "--backfill", rule, cluster="queue", out=rule) == 0
        for policy in ("fgd", "pwr"):
            found = Path(f"out/{policy}{mark}/assignments.csv").read_bytes()
            assert found == Path(f"{rule}/{policy}/assignments.csv").read_bytes()
    capsys.readouterr()
    for options, words in ((("--queues", "none,some"), "some"), (("--queues", "none,none"), "each once"),
                           (("--queues", "none", "--backfill", "easy"), "neither --backfill nor --fit")):
        assert replay(*options, cluster="queue", out="bad") == 2
        assert words in capsys.readouterr().err and not Path("bad").exists()


def test_an_answer_is_kept_replaced_by_force_or_left_alone(monkeypatch, capsys):
    """The page that lacks its pictures says: install the extra charts and run the command again with --force."""
    assert replay("--policies", "fgd,pwr") == 0
    before = content("out")
    monkeypatch.setattr(report, "page_of", lambda comparison: "<!DOCTYPE html><svg></svg>")
    assert replay("--policies", "fgd,pwr") == 0 and "(kept)" in capsys.readouterr().out
    assert replay("--policies", "fgd") == 2 and content("out") == before
    assert "another question" in capsys.readouterr().err
    assert replay("--policies", "fgd,pwr", "--force") == 0 and "(kept)" not in capsys.readouterr().out
    after = content("out")
    assert {name for name in after if after[name] != before[name]} == {"report.html", "summary.json"}
    assert replay("--policies", "fgd", "--force") == 0
    assert set(content("out")) == FILES | {f"fgd/{name}" for name in OF_A_POLICY}
    assert not list(Path("out").glob(".*"))


@pytest.mark.parametrize("name", ["fgd/curve.csv", "summary.csv", "report.html"])
def test_nothing_foreign_is_overwritten(name):
    Path("out", name).parent.mkdir(parents=True)
    Path("out", name).write_text("mine")
    for options in ((), ("--force",)):
        assert replay("--policies", "fgd", *options) == 2
        assert content("out") == {name: b"mine"}


def test_a_broken_run_goes_on_where_it_was(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt
    with monkeypatch.context() as broken:
        broken.setattr(command, "write_comparison", stop)
        assert replay("--policies", "fgd,pwr") != 0
    assert not FILES & set(content("out"))
    kept = [name for name in content("out") if name.startswith(".replays/cells/")]
    assert len(kept) == 4
    times = {name: Path("out", name).stat().st_mtime_ns for name in kept}
    assert replay("--policies", "fgd,pwr") == 0
    assert times and not Path("out/.replays").exists()
    assert replay("--policies", "fgd,pwr", out="other") == 0
    assert {k: v for k, v in content("out").items() if k.endswith("csv")} == {
        k: v for k, v in content("other").items() if k.endswith("csv")}


def test_what_killed_replays_left_is_removed_and_nothing_foreign():
    assert replay("--policies", "fgd") == 0
    left = [".replays/cells/ab/0123456789abcdef.csv", ".replays/cells/ab/.0123456789abcdef.json.partial-2"]
    for name in [*left, ".replays/cells/notes.txt"]:
        Path("out", name).parent.mkdir(parents=True, exist_ok=True)
        Path("out", name).write_text("mine")
    assert replay("--policies", "fgd") == 0
    assert [name for name in content("out") if name.startswith(".")] == [".replays/cells/notes.txt"]


def test_a_series_of_prices_is_paid_hour_by_hour():
    Path("price.csv").write_text("time,value\n0,0.2\n1800,0.4\n5400,0.1\n12600,9\n")
    assert replay("--policies", "fgd", "--price", "price.csv") == 0
    curve = pd.read_csv("out/fgd/curve.csv")
    assert curve["cost"].sum() == pytest.approx(pd.read_csv("out/summary.csv")["cost"][0], abs=1e-4)
    hours = (curve["end_s"] - curve["start_s"]) / 3600
    rate = curve["cost"] / (curve["eopc_w"] / 1000 * hours)
    assert rate.between(0.0999, 0.4001).all() and rate.iloc[0] == pytest.approx(0.2, abs=1e-3)


@pytest.mark.parametrize(("options", "words"), [
    (("--policies", "fgd,firstfit"), "sched-lab: there is no policy 'firstfit'"),
    (("--backfill", "some"), "some"), (("--price", "x.csv"), "x.csv"),
    (("--what-if", "absent.toml"), "absent.toml"), (("--gpu-power", "absent.csv"), "absent.csv"),
    (("--against", "pwr", "--policies", "fgd"), "none of"), (("--load-curve", "odd"), "odd"),
    (("--policies", "recorded,fgd", "--what-if", "more.toml"), "never was"), (("--at", "5", "--what-if", "more.toml"),
                                                                             "never was")])
def test_what_cannot_be_asked_is_one_line(options, words, capsys):
    Path("more.toml").write_text("load = 1.3\n")
    capsys.readouterr()
    assert_refused(replay(*options), capsys, words)


def test_a_cluster_without_nodes_names_the_options(capsys):
    assert call("read", "csv", "jobs.csv", "--out", "alone") == 0
    capsys.readouterr()
    assert_refused(replay(cluster="alone"), capsys, "--nodes", "--size-to")
    assert_refused(replay(cluster="nothing"), capsys, "nothing")


def test_a_snapshot_of_pods_is_replayed(capsys):
    for name in ("nodes.json", "pods.json"):
        Path(name).write_bytes(embedded(f"fleet/{name}").read_bytes())
    assert call("read", "k8s", "nodes.json", "pods.json", "--out", "pods") == 0
    assert replay(cluster="pods") == 0
    assert replay("--at", "1000", "--backfill", "first-fit", cluster="pods", out="now") == 0
    assert pd.read_csv("now/summary.csv")["served_tasks"].min() > 0


def test_what_if_another_cluster(capsys):
    Path("more.toml").write_text('load = 2\n[nodes]\nscale = 2\n[gpu_models]\nT4 = "X1"\n[gpu_power_w]\nX1 = [5, 50]\n')
    assert replay("--what-if", "more.toml") == 0
    summary = pd.read_csv("out/summary.csv")
    assert summary["policy"].tolist() == ["fgd", "pwr-fgd:0.1", "joint"]
    assert (summary["served_tasks"] == 6).all() and summary["energy_kwh"].notna().all()
    assert (pd.read_csv("out/ledger.csv")["what"] == "what if").sum() == 3


def test_a_record_can_be_measured_with_other_models():
    Path("own.csv").write_text(NODES.replace("T4", ""))
    assert call("read", "csv", "jobs.csv", "own.csv", "--out", "odd") == 0
    Path("named.toml").write_text('[gpu_models]\n"" = "A10"\n')
    assert replay("--policies", "recorded", "--what-if", "named.toml", cluster="odd") == 0
    assert pd.read_csv("out/summary.csv")["energy_kwh"].notna().all()


def test_unknown_watts_are_said(capsys):
    Path("own.csv").write_text(NODES.replace("T4", "H999"))
    assert call("read", "csv", "jobs.csv", "own.csv", "--out", "odd") == 0
    capsys.readouterr()
    assert replay(cluster="odd") == 0
    error = capsys.readouterr().err
    assert "'H999'" in error and "--gpu-power" in error
    assert pd.read_csv("out/summary.csv")["energy_kwh"].isna().all()
    Path("watts.csv").write_text("model,idle_w,full_w\nH999,60,700\n")
    assert replay("--gpu-power", "watts.csv", cluster="odd", out="known") == 0
    assert pd.read_csv("known/summary.csv")["energy_kwh"].notna().all()


def energy_kwh(folder):
    return pd.read_csv(f"{folder}/summary.csv")["energy_kwh"]


def test_a_cluster_of_today_needs_no_option_and_a_catalogue_changes_it():
    Path("own.csv").write_text(NODES.replace("T4", "NVIDIA-H100-80GB-HBM3"))
    assert call("read", "csv", "jobs.csv", "own.csv", "--out", "new") == 0
    assert replay("--policies", "recorded,fgd", cluster="new") == 0
    assert energy_kwh("out").notna().all()
    Path("own.toml").write_text('[gpu."H100"]\nidle_w = 140\n')
    assert replay("--policies", "recorded,fgd", "--hardware", "own.toml", cluster="new", out="warm") == 0
    assert (energy_kwh("warm") > energy_kwh("out")).all()
    said = json.loads(Path("warm/summary.json").read_text())["inputs"]
    assert said["files"] == {"hardware": sha256("own.toml")}
    assert set(map(tuple, said["power"]["gpu_power_w"].values())) == {(140, 700)}


def test_a_power_cap_is_held_and_said(capsys):
    """Two nodes draw 40 W of GPUs and their CPUs idle; one busy T4 adds 60 W beside its CPU."""
    capped = ("--policies", "fgd", "--what-if", "cap.toml")
    Path("cap.toml").write_text("power_cap_w = 10\n")
    assert_refused(replay(*capped), capsys, "without any task, and the cap is 10 W")
    Path("cap.toml").write_text("power_cap_w = 400\n")
    assert_refused(replay(*capped, "--backfill", "conservative"), capsys, "do not go together")
    assert replay(*capped) == 0
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["cap_w"] == 400 and any("above 400 W" in one for one in summary["assumptions"])
    assert pd.read_csv("out/fgd/curve.csv")["eopc_w"].max() <= 400
    assert replay("--what-if", "cap.toml", out="all") == 0      # rules that book ahead are not tried as levers
    assert not {"easy", "conservative"} & set(pd.read_csv("all/levers.csv")["choice"])
