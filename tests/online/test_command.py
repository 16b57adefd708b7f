"""The commands inflate and sweep: files in, files out, one line for what is wrong."""
import gzip
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest

from sched_lab.lab.frames import read_frame, sha256
from sched_lab.online.evaluation import parse_seeds
from sched_lab.traces import find_data, find_reference
from tests.command_line import (
    NODES,
    PROGRAM,
    RESULT,
    STUDY,
    TASKS,
    assert_refused,
    call,
    content,
    inflate,
)
from tests.online.recorded import recorded_seeds
from tests.waiting import until

# --- what is written


def test_inflate_writes_three_files_for_each_seed(files, capsys):
    assert inflate("--policy", "fgd", "--seeds", "0,2") == 0
    assert {path.name for path in Path("out").iterdir()} == {"seed-0", "seed-2"}
    assert {path.name for path in Path("out/seed-2").iterdir()} == RESULT
    assert capsys.readouterr().out.count("GRAR") == 2


def test_columns_and_meaning_of_the_tables(files):
    inflate("--policy", "pwr")
    placed = pd.read_csv("out/seed-0/assignments.csv", keep_default_na=False, dtype=str)
    curve = pd.read_csv("out/seed-0/curve.csv")
    summary = json.loads(Path("out/seed-0/summary.json").read_text())
    assert list(placed) == ["event", "task_row", "node", "gpu_list"]
    assert list(curve) == ["x", "eopc_w", "cpu_w", "gpu_w", "used_gpu_milli", "arrived_gpu_milli", "frag_milli",
                           "failed"]
    assert len(placed) == len(curve) == summary["arrivals"]
    assert (placed["node"] == "").sum() == curve["failed"].iloc[-1] == summary["failed"]
    assert (curve["eopc_w"] == curve["cpu_w"] + curve["gpu_w"]).all()
    assert curve["x"].iloc[-1] >= 1 > curve["x"].iloc[-2]  # 7 GPUs; the last arrival crosses the capacity
    two_gpus = placed[(placed["task_row"] == "2") & (placed["node"] != "")]
    assert two_gpus["gpu_list"].str.fullmatch(r"\d-\d").all()
    assert (placed[(placed["task_row"] == "3") & (placed["node"] != "")]["gpu_list"] == "").all()


def test_same_seed_same_files_byte_for_byte(files):
    """Whatever else the process has done before."""
    options = ["--policy", "pwr-fgd:0.1", "--seeds", "3-4"]
    subprocess.run([*PROGRAM, "inflate", "--nodes", "nodes.csv", "--tasks", "tasks.csv", *options, "--out", "a"],
                   check=True)
    assert inflate(*options, out="b") == 0
    assert content("a") == content("b")
    assert len(content("a")) == 8


def test_recorded_arrivals_are_replayed_in_order_until_their_end(files):
    recorded = {"seeds": {"42": {"pod_rows": [3, 0, 0, 2], "node_rank_by_sorted_name": [3, 2, 1, 0]}}}
    Path("arrivals.json.gz").write_bytes(gzip.compress(json.dumps(recorded).encode()))
    assert inflate("--arrivals", "arrivals.json.gz", "--seed", "42") == 0
    placed = pd.read_csv("out/assignments.csv", keep_default_na=False)
    assert placed["task_row"].tolist() == [3, 0, 0, 2]
    assert placed["node"][0] == "dog"  # rank 0 among nodes of equal score: a CPU-only task changes no GPU anywhere


@pytest.mark.parametrize(("rows", "words"), [([3, 3], "no GPU demand"), ([], "no arrivals")])
def test_a_recording_without_gpu_demand_is_a_run_too(rows, words, files, capsys):
    recorded = {"seeds": {"1": {"pod_rows": rows, "node_rank_by_sorted_name": [0, 1, 2, 3]}}}
    Path("arrivals.json").write_text(json.dumps(recorded))
    assert inflate("--arrivals", "arrivals.json", "--seed", "1") == 0
    assert words in capsys.readouterr().out
    assert len(pd.read_csv("out/curve.csv")) == len(rows)


def test_the_default_is_embedded_and_needs_no_file(tmp_path):
    assert call("inflate", "--until", "0.02", "--out", tmp_path / "out") == 0
    assert {path.name for path in (tmp_path / "out" / "seed-0").iterdir()} == RESULT


def test_a_catalogue_adds_models_and_its_checksum_is_in_the_record(files, capsys):
    Path("nodes.csv").write_text(NODES.replace("A100", "H999"))
    assert inflate() == 2 and "--hardware FILE" in capsys.readouterr().err
    Path("own.toml").write_text('[gpu."H999"]\nidle_w = 70\nfull_w = 700\n')
    assert inflate("--hardware", "own.toml") == 0
    said = json.loads(Path("out/seed-0/summary.json").read_text())["inputs"]["files"]
    assert said["hardware"] == sha256("own.toml")
    Path("study.toml").write_text('nodes = "nodes.csv"\npolicies = ["fgd"]\nseeds = "0"\nstep = 0.5\n'
                                  'hardware = "own.toml"\n[traces]\nmine = "tasks.csv"\n')
    assert call("sweep", "study.toml", "--out", "study", "--workers", "1") == 0
    curve = pd.read_csv("study/results.csv")["eopc_w"]
    Path("watts.csv").write_text("model,idle_w,full_w\nH999,1070,1700\n")  # the table wins
    assert inflate("--hardware", "own.toml", "--gpu-power", "watts.csv", out="more") == 0
    first = [pd.read_csv(f"{folder}/seed-0/curve.csv")["eopc_w"][0] for folder in ("out", "more")]
    assert first[1] - first[0] == 1000 and curve.notna().all()


# --- the real trace, if it is here


def test_the_command_reproduces_the_authors_events(tmp_path):
    nodes = find_data("openb/openb_node_list_gpu_node.csv")
    tasks = find_data("openb/openb_pod_list_default.csv")
    arrivals = find_reference("pwr/arrivals/default.json.gz")
    seeds = recorded_seeds(arrivals) if arrivals else []
    found = {seed: path for seed in seeds if (path := find_reference(f"pwr/assignments/default.PWR100.{seed}.csv.gz"))}
    if not (nodes and tasks and found):
        pytest.skip("the openb trace or its reference results are not in the data folder (sched-lab fetch openb)")
    seed, expected = next(iter(found.items()))
    assert call("inflate", "--nodes", nodes, "--tasks", tasks, "--policy", "pwr-fgd:0.1", "--arrivals", arrivals,
                "--seed", seed, "--power", "package", "--arithmetic", "reference", "--out", tmp_path / "out") == 0
    ours = pd.read_csv(tmp_path / "out" / "assignments.csv", keep_default_na=False, dtype=str)
    theirs = pd.read_csv(expected, keep_default_na=False, dtype=str)
    renamed = theirs.rename(columns={"trace_row": "task_row", "gpus": "gpu_list"})
    pd.testing.assert_frame_equal(ours, renamed[list(ours)])


# --- what is wrong is said in one line, and nothing stays behind


@pytest.mark.parametrize(("name", "change", "parts"), [  # one of each file; its reader's tests have the others
    ("tasks.csv", ("gpu_milli", "gpu_share"), ["column gpu_milli", "missing"]),
    ("nodes.csv", ("G2", "X900"), ["row 3", "column model", "X900", "power"])])
def test_a_wrong_file_is_refused(name, change, parts, files, capsys):
    Path(name).write_text({"tasks.csv": TASKS, "nodes.csv": NODES}[name].replace(*change))
    assert_refused(inflate(), capsys, name, *parts)
    assert sorted(path.name for path in files.iterdir()) == ["nodes.csv", "tasks.csv"]


WRONG_OPTIONS = {
    "alpha above 1": (["--policy", "pwr-fgd:1.5"], ["1.5", "from 0 to 1"]),
    "alpha below 0": (["--policy", "pwr-fgd:-0.1"], ["-0.1", "from 0 to 1"]),
    "alpha missing": (["--policy", "pwr-fgd"], ["''", "from 0 to 1"]),
    "alpha not a number": (["--policy", "pwr-fgd:nan"], ["nan", "from 0 to 1"]),
    "bad seeds": (["--seeds", "9-0"], ["9-0"]),
    "until 0": (["--until", "0"], ["--until"]),
    "until nan": (["--until", "nan"], ["--until"]),
    "seed without arrivals": (["--seed", "1"], ["--seed", "--arrivals"]),
    "arrivals without seed": (["--arrivals", "nodes.csv"], ["--seed"]),
    "arrivals that are none": (["--arrivals", "nodes.csv", "--seed", "1"], ["nodes.csv", "JSON"]),
    "seeds and arrivals": (["--arrivals", "nodes.csv", "--seeds", "1"], ["--seeds", "--arrivals"]),
    "no such option": (["--polciy", "fgd"], ["--polciy"]),
    "not an integer": (["--seed", "x"], ["--seed", "integer"]),
    "no such file": (["--nodes", "node.csv"], ["node.csv", "nodes.csv"]),
}


@pytest.mark.parametrize("what", WRONG_OPTIONS)
def test_a_wrong_option_is_refused(what, files, capsys):
    options, parts = WRONG_OPTIONS[what]
    assert_refused(inflate(*options), capsys, *parts)


def test_an_unwritable_output_is_refused(files, capsys):
    assert inflate(out="nodes.csv/out") == 2
    assert inflate(out="nodes.csv") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all("nodes.csv" in line and "--out" in line for line in lines)
    assert Path("nodes.csv").read_text() == NODES


def test_arrivals_of_another_cluster_are_refused(files, capsys):
    for order, ranks, part in (([0], [0, 1], "node_rank_by_sorted_name"), ([9], [0, 1, 2, 3], "pod_rows"),
                               ([-1], [0, 1, 2, 3], "pod_rows"), ([0], [0, 1, 2, 2], "node_rank_by_sorted_name")):
        recorded = {"seeds": {"1": {"pod_rows": order, "node_rank_by_sorted_name": ranks}}}
        Path("arrivals.json").write_text(json.dumps(recorded))
        assert_refused(inflate("--arrivals", "arrivals.json", "--seed", "1"), capsys, "arrivals.json", part)
    assert_refused(inflate("--arrivals", "arrivals.json", "--seed", "2"), capsys, "no seed 2", "1")


# --- a long run that is killed


def test_finished_seeds_are_kept_and_a_damaged_one_is_made_again(files, capsys):
    inflate("--seeds", "0-2")
    first = content("out")
    Path("out/seed-1/curve.csv").write_text("x\n")
    os.utime("out/seed-0/curve.csv", (1, 1))
    capsys.readouterr()
    inflate("--seeds", "0-2")
    assert [line.endswith("(kept)") for line in capsys.readouterr().out.splitlines()] == [True, False, True]
    assert content("out") == first
    assert os.stat("out/seed-0/curve.csv").st_mtime == 1  # not written again


def test_a_device_gives_the_results_of_one_after_the_other(files, capsys):
    mix = ("--policy", "pwr-fgd:0.1", "--seeds")
    assert inflate(*mix, "0-2", out="alone") == inflate(*mix, "0-2", "--device", "cpu", out="together") == 0
    assert content("alone") == content("together")
    capsys.readouterr()
    assert inflate(*mix, "1-4", "--device", "cpu", out="alone") == inflate(*mix, "3", out="later") == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.endswith("(kept)") for line in said] == [True, True, False, False, False]
    assert content("alone/seed-3") == content("later/seed-3")


def test_a_device_that_cannot_is_refused_before_anything_is_written(files, capsys):
    for options, words in ((["tpu"], "There are cpu"), (["cpu", "--arithmetic", "reference"], "no array form")):
        assert inflate("--device", *options) != 0
        assert words in capsys.readouterr().err
    assert content("out") == {}


FOUR_SEEDS = ["inflate", "--seeds", "0-3", "--out"]


@pytest.fixture(scope="module")
def four_seeds(tmp_path_factory):
    """Contents of what `FOUR_SEEDS` writes when nobody kills it."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert call(*FOUR_SEEDS, out) == 0
    return content(out)


@pytest.mark.parametrize(("what", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_a_signal_that_comes_in_a_compiled_call_ends_the_command_as_any_other(what, code, files, monkeypatch):
    def interrupted(*arguments, **options):
        try:
            raise SystemError("a compiled call returned a result with an exception set") from what
        except SystemError as inner:
            raise SystemError("and so did the one around it") from inner

    monkeypatch.setattr("sched_lab.online.command.inflate", interrupted)
    assert inflate("--tasks", "tasks.csv") == code
    assert not Path("out", "seed-0").exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_resumes_without_losing_finished_seeds(how, four_seeds, tmp_path, capsys):
    out = tmp_path / "out"
    with subprocess.Popen([*PROGRAM, *FOUR_SEEDS, out], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()  # the first seed is finished
        time.sleep(0.1)
        process.send_signal(how)
        process.stdout.read()   # as long as it prints somebody reads
    finished = {name: data for name, data in content(out).items() if not name.startswith(".")}
    assert len(finished) >= len(RESULT)
    if how == signal.SIGTERM:
        assert process.returncode == 143
        assert not [path for path in out.iterdir() if path.name.startswith(".")]
    capsys.readouterr()
    assert call(*FOUR_SEEDS, out) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("(kept)")
    assert content(out) == four_seeds
    assert finished.items() <= content(out).items()


# --- studies

def test_a_study_gives_runs_and_means_and_keeps_what_is_finished(files, capsys):
    Path("study.toml").write_text(STUDY)
    assert call("sweep", "study.toml", "--out", "out", "--workers", "1") == 0
    assert capsys.readouterr().out == "out: 6 cells: 0 kept, 6 computed\n"
    runs = read_frame("out/results.csv")
    means = read_frame("out/means.csv")
    assert len(runs) == 6 * 3 and len(means) == 2 * 3
    assert means.query("policy == 'fgd'")["saving_percent"].tolist() == [0, 0, 0]
    before = content("out")
    cell = next(Path("out/cells").rglob("*.csv"))
    cell.write_bytes(cell.read_bytes()[:-5])
    assert call("sweep", "study.toml", "--out", "out", "--workers", "1") == 0
    said = capsys.readouterr()
    assert str(cell) in said.err and "policy" in said.err and len(said.err.splitlines()) == 1
    assert "5 kept, 1 computed" in said.out
    after = content("out")
    for name in ("results.csv", "means.csv", str(cell.relative_to("out"))):
        assert after[name] == before[name]


def test_a_study_in_parquet_is_the_one_in_csv(files, capsys):
    pytest.importorskip("pyarrow")
    Path("study.toml").write_text(STUDY)
    arguments = ["sweep", "study.toml", "--workers", "1", "--out"]
    assert call(*arguments, "csv") == call(*arguments, "parquet", "--format", "parquet") == 0
    assert content("parquet")["means.csv"] == content("csv")["means.csv"]
    pd.testing.assert_frame_equal(pd.read_parquet("parquet/results.parquet"), read_frame("csv/results.csv"))
    assert call(*arguments, "parquet", "--format", "parquet") == 0
    assert "6 kept, 0 computed" in capsys.readouterr().out
    assert call(*arguments, "other", "--format", "feather") == 2
    error = capsys.readouterr().err
    assert "there is no 'feather'; choose one of csv, parquet" in error and not Path("other").exists()


@pytest.mark.parametrize(("text", "words"), [
    (STUDY.replace("pwr", "pwe"), "no policy 'pwe'"), (STUDY.replace("seeds", "seed"), "no setting 'seed'"),
    (STUDY.replace("tasks.csv", "no.csv"), "no.csv")])
def test_a_wrong_study_leaves_nothing(text, words, files, capsys):
    Path("study.toml").write_text(text)
    assert call("sweep", "study.toml", "--out", "out") == 2
    said = capsys.readouterr()
    assert words in said.err and len(said.err.splitlines()) == 1 and said.out == "" and not Path("out").exists()


def test_a_killed_study_goes_on_and_ends_the_same(files, capsys):
    Path("study.toml").write_text(STUDY.replace('"0-2"', '"0-24"'))
    arguments = ["sweep", "study.toml", "--workers", "1", "--out"]
    assert call(*arguments, "whole") == 0
    process = subprocess.Popen([*PROGRAM, *arguments, "killed"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len(list(Path("killed").rglob("*.json"))) >= 10 or process.poll() is not None)
    assert process.poll() is None, "it ended before it was killed"
    process.kill()
    process.wait()
    assert not Path("killed/means.csv").exists()
    capsys.readouterr()
    assert call(*arguments, "killed") == 0
    said = capsys.readouterr().out
    kept = int(said.split(" kept")[0].split()[-1])
    assert kept >= 10 and f"{50 - kept} computed" in said
    for name in ("results.csv", "means.csv"):
        assert Path("killed", name).read_bytes() == Path("whole", name).read_bytes()


@pytest.mark.parametrize(("text", "seeds"), [("0", [0]), ("0-2", [0, 1, 2]), ("5,1-2", [5, 1, 2]), (" 1 - 2 ", [1, 2])])
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds
