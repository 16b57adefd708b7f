"""The command line: files in, files out, one line for what is wrong."""
import gzip
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pandas as pd
import pytest

from sched_lab import __version__
from sched_lab._compat import embedded
from sched_lab.andreas.instances import TOY
from sched_lab.cli import main
from sched_lab.frames import read_frame, sha256
from sched_lab.online.evaluation import parse_seeds
from sched_lab.traces import find_data, find_reference

NODES = """sn,cpu_milli,memory_mib,gpu,model
ant,16000,65536,2,T4
bee,32000,131072,4,G2
cat,64000,262144,1,A100
dog,32000,65536,0,
"""
TASKS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
one,4000,8192,1,500,
two,2000,4096,1,300,T4|G2
three,8000,16384,2,1000,
four,8000,16384,0,0,
"""
PROGRAM = [sys.executable, "-c", "from sched_lab.cli import main; main()"]
RESULT = {"assignments.csv", "curve.csv", "failures.csv", "summary.json"}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Work in a folder with nodes.csv and tasks.csv."""
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text(NODES)
    Path("tasks.csv").write_text(TASKS)
    return tmp_path


def call(*arguments):
    """Exit code of the command line."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    return stop.value.code or 0


def inflate(*options, out="out"):
    return call("inflate", "--nodes", "nodes.csv", "--tasks", "tasks.csv", "--out", out, *options)


def content(folder):
    """Every file below a folder, by relative path."""
    files = (path for path in sorted(Path(folder).rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


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
    assert list(placed) == ["event", "task_row", "node", "gpus"]
    assert list(curve) == ["x", "eopc_w", "cpu_w", "gpu_w", "used_gpu_milli", "arrived_gpu_milli", "frag_milli",
                           "failed"]
    assert len(placed) == len(curve) == summary["arrivals"]
    assert (placed["node"] == "").sum() == curve["failed"].iloc[-1] == summary["failed"]
    assert (curve["eopc_w"] == curve["cpu_w"] + curve["gpu_w"]).all()
    assert curve["x"].iloc[-1] >= 1 > curve["x"].iloc[-2]  # 7 GPUs; the last arrival crosses the capacity
    two_gpus = placed[(placed["task_row"] == "2") & (placed["node"] != "")]
    assert two_gpus["gpus"].str.fullmatch(r"\d-\d").all()
    assert (placed[(placed["task_row"] == "3") & (placed["node"] != "")]["gpus"] == "").all()


def test_same_seed_same_files_byte_for_byte(files):
    for out in ("a", "b"):
        subprocess.run([*PROGRAM, "inflate", "--nodes", "nodes.csv", "--tasks", "tasks.csv", "--policy", "pwr-fgd:0.1",
                        "--seeds", "3-4", "--out", out], check=True)
    assert content("a") == content("b")
    assert len(content("a")) == 8


def test_another_seed_gives_another_workload(files):
    inflate("--seeds", "0-1")
    assert sha256("out/seed-0/assignments.csv") != sha256("out/seed-1/assignments.csv")


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


def test_gpu_power_can_be_added(files, capsys):
    Path("nodes.csv").write_text(NODES.replace("A100", "H999"))
    Path("watts.csv").write_text("model,idle_w,full_w\nH999,70,700\n")
    assert inflate() == 2
    assert inflate("--gpu-power", "watts.csv") == 0


# --- the real trace, if it is here


def test_the_command_reproduces_the_authors_events(tmp_path):
    nodes, tasks = find_data("openb/openb_node_list_gpu_node.csv"), find_data("openb/openb_pod_list_default.csv")
    arrivals, expected = (find_reference(f"pwr/{name}") for name in
                          ("arrivals/default.json.gz", "assignments/default.PWR100.42.csv.gz"))
    if not (nodes and tasks and arrivals and expected):
        pytest.skip("the openb trace or its reference results are not in the data folder (sched-lab fetch openb)")
    assert call("inflate", "--nodes", nodes, "--tasks", tasks, "--policy", "pwr-fgd:0.1", "--arrivals", arrivals,
                "--seed", 42, "--power", "package", "--arithmetic", "reference", "--out", tmp_path / "out") == 0
    ours = pd.read_csv(tmp_path / "out" / "assignments.csv", keep_default_na=False, dtype=str)
    theirs = pd.read_csv(expected, keep_default_na=False, dtype=str)
    pd.testing.assert_frame_equal(ours, theirs.rename(columns={"trace_row": "task_row"})[list(ours)])


# --- what is wrong is said in one line, and nothing stays behind


def edited(text, line, column, value):
    """Replace one cell of a table; line 1 is the header."""
    rows = [row.split(",") for row in text.splitlines()]
    rows[line - 1][rows[0].index(column)] = value
    return "\n".join(",".join(row) for row in rows) + "\n"


WRONG_FILES = {
    "missing column": ("tasks.csv", TASKS.replace("gpu_milli", "gpu_share"), ["column gpu_milli", "missing"]),
    "negative": ("tasks.csv", edited(TASKS, 3, "cpu_milli", "-20"), ["row 3", "column cpu_milli", "-20 is negative"]),
    "non-numeric": ("tasks.csv", edited(TASKS, 2, "memory_mib", "8GB"), ["row 2", "column memory_mib", "8GB"]),
    "over 1000 on several": ("tasks.csv", edited(TASKS, 4, "gpu_milli", "2000"), ["row 4", "column gpu_milli", "2000"]),
    "share of several GPUs": ("tasks.csv", edited(TASKS, 4, "gpu_milli", "500"), ["row 4", "column gpu_milli", "500"]),
    "no demand on one GPU": ("tasks.csv", edited(TASKS, 2, "gpu_milli", "0"), ["row 2", "column gpu_milli"]),
    "ragged row": ("tasks.csv", TASKS + "five,1000\n", ["row 6", "cells"]),
    "unknown GPU model": ("nodes.csv", edited(NODES, 3, "model", "B200"), ["row 3", "column model", "B200", "power"]),
    "GPUs without a model": ("nodes.csv", edited(NODES, 3, "model", ""), ["row 3", "column model"]),
    "duplicate node": ("nodes.csv", edited(NODES, 4, "sn", "ant"), ["row 4", "column sn", "ant", "row 2"]),
    "too many GPUs": ("nodes.csv", edited(NODES, 2, "gpu", "64"), ["row 2", "column gpu", "64"]),
    "empty file": ("nodes.csv", "", ["empty"]),
    "header only": ("nodes.csv", NODES.splitlines()[0] + "\n", ["no row"]),
}


def assert_refused(code, capsys, *parts):
    """Exit code 2, one line on standard error with these parts, and no output folder."""
    error = capsys.readouterr().err
    assert code == 2
    assert len(error.splitlines()) == 1, error
    assert all(part in error for part in parts), error
    assert "Traceback" not in error
    assert not Path("out").exists()


@pytest.mark.parametrize("what", WRONG_FILES)
def test_a_wrong_file_is_refused(what, files, capsys):
    name, text, parts = WRONG_FILES[what]
    Path(name).write_text(text)
    assert_refused(inflate(), capsys, name, *parts)
    assert sorted(path.name for path in files.iterdir()) == ["nodes.csv", "tasks.csv"]


WRONG_OPTIONS = {
    "unknown policy": (["--policy", "best"], ["'best'", "fgd, pwr"]),
    "alpha above 1": (["--policy", "pwr-fgd:1.5"], ["1.5", "from 0 to 1"]),
    "alpha below 0": (["--policy", "pwr-fgd:-0.1"], ["-0.1", "from 0 to 1"]),
    "alpha missing": (["--policy", "pwr-fgd"], ["''", "from 0 to 1"]),
    "alpha not a number": (["--policy", "pwr-fgd:nan"], ["nan", "from 0 to 1"]),
    "unknown power model": (["--power", "eq9"], ["eq9", "package"]),
    "unknown arithmetic": (["--arithmetic", "fuzzy"], ["fuzzy", "reference"]),
    "unknown sampling": (["--sampling", "bootstrap"], ["bootstrap", "permutation-first"]),
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


def test_other_options_neither_keep_nor_replace_old_results(files, capsys):
    inflate("--policy", "fgd")
    before = content("out")
    capsys.readouterr()
    for seeds in ("0", "1"):
        assert inflate("--policy", "pwr", "--seeds", seeds) == 2
        assert "policy was 'fgd', now 'pwr'" in capsys.readouterr().err
    assert content("out") == before
    assert inflate("--policy", "pwr", "--force") == 0
    assert "(kept)" not in capsys.readouterr().out
    assert json.loads(Path("out/seed-0/summary.json").read_text())["policy"] == "pwr"


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
    for options, words in ((["tpu"], "choose one of cpu"), (["cpu", "--arithmetic", "reference"], "no array form")):
        assert inflate("--device", *options) != 0
        assert words in capsys.readouterr().err
    assert content("out") == {}


FOUR_SEEDS = [*PROGRAM, "inflate", "--seeds", "0-3", "--out"]


@pytest.fixture(scope="module")
def four_seeds(tmp_path_factory):
    """Contents of what `FOUR_SEEDS` writes when nobody kills it."""
    out = tmp_path_factory.mktemp("whole") / "out"
    subprocess.run([*FOUR_SEEDS, out], check=True, capture_output=True)
    return content(out)


@pytest.mark.parametrize(("what", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_a_signal_that_comes_in_a_compiled_call_ends_the_command_as_any_other(what, code, files, monkeypatch):
    def interrupted(*arguments, **options):
        try:
            raise SystemError("a compiled call returned a result with an exception set") from what
        except SystemError as inner:
            raise SystemError("and so did the one around it") from inner

    monkeypatch.setattr("sched_lab.cli.inflate", interrupted)
    assert inflate("--tasks", "tasks.csv") == code
    assert not Path("out", "seed-0").exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_resumes_without_losing_finished_seeds(how, four_seeds, tmp_path):
    out = tmp_path / "out"
    with subprocess.Popen([*FOUR_SEEDS, out], stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()  # the first seed is finished
        time.sleep(0.1)
        process.send_signal(how)
    finished = {name: data for name, data in content(out).items() if not name.startswith(".")}
    assert len(finished) >= len(RESULT)
    if how == signal.SIGTERM:
        assert process.returncode == 143
        assert not [path for path in out.iterdir() if path.name.startswith(".")]
    again = subprocess.run([*FOUR_SEEDS, out], check=True, capture_output=True, text=True).stdout
    assert again.splitlines()[0].endswith("(kept)")
    assert content(out) == four_seeds
    assert finished.items() <= content(out).items()


# --- the rest


# --- studies

STUDY = """nodes = "nodes.csv"
policies = ["fgd", "pwr"]
seeds = "0-2"
step = 0.5
[traces]
mine = "tasks.csv"
"""


def test_a_study_gives_runs_and_means_and_keeps_what_is_finished(files, capsys):
    Path("study.toml").write_text(STUDY)
    assert call("sweep", "study.toml", "--out", "out", "--workers", "1") == 0
    assert capsys.readouterr().out == "out: 6 cells: 0 kept, 6 computed\n"
    runs, means = read_frame("out/results.csv"), read_frame("out/means.csv")
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


@pytest.mark.parametrize(("text", "words"), [
    (STUDY.replace("pwr", "pwe"), "no policy 'pwe'"), (STUDY.replace("seeds", "seed"), "no setting 'seed'"),
    (STUDY.replace("tasks.csv", "no.csv"), "no.csv")])
def test_a_wrong_study_leaves_nothing(text, words, files, capsys):
    Path("study.toml").write_text(text)
    assert call("sweep", "study.toml", "--out", "out") == 2
    said = capsys.readouterr()
    assert words in said.err and len(said.err.splitlines()) == 1 and said.out == "" and not Path("out").exists()


def test_a_study_needs_a_scheduler_that_answers(files, capsys):
    Path("study.toml").write_text(STUDY)
    assert call("sweep", "study.toml", "--out", "out", "--dask", "nonsense") == 2
    assert "nonsense" in capsys.readouterr().err


def test_a_killed_study_goes_on_and_ends_the_same(files):
    Path("study.toml").write_text(STUDY.replace('"0-2"', '"0-99"'))
    arguments = [*PROGRAM, "sweep", "study.toml", "--workers", "1", "--out"]
    subprocess.run([*arguments, "whole"], check=True, capture_output=True, cwd=files)
    process = subprocess.Popen([*arguments, "killed"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=files)
    deadline = time.monotonic() + 120
    while len(list(Path("killed").rglob("*.json"))) < 10:
        assert process.poll() is None and time.monotonic() < deadline, "it ended before it was killed"
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not Path("killed/means.csv").exists()
    again = subprocess.run([*arguments, "killed"], check=True, capture_output=True, text=True, cwd=files)
    kept = int(again.stdout.split(" kept")[0].split()[-1])
    assert kept >= 10 and f"{200 - kept} computed" in again.stdout
    for name in ("results.csv", "means.csv"):
        assert Path("killed", name).read_bytes() == Path("whole", name).read_bytes()


def test_help_teaches(capsys):
    assert call("--help") == 0
    assert call("inflate", "--help") == 0
    text = capsys.readouterr().out
    for word in ("inflate", "traces", "fetch", "--policy", "--seeds", "--arrivals", "--until", "Example"):
        assert word in text


def test_no_command_shows_the_help(capsys):
    assert call() == 0
    assert "inflate" in capsys.readouterr().out


def test_traces_describes_nodes_and_tasks(files, capsys):
    assert call("traces", "--nodes", "nodes.csv", "--tasks", "tasks.csv") == 0
    text = capsys.readouterr().out
    assert "T4" in text and "nodes.csv" in text
    assert call("traces") == 0
    assert "openb" in capsys.readouterr().out


def test_fetch_knows_its_data_sets(capsys):
    assert call("fetch", "closedb") == 2
    assert "openb" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "seeds"), [("0", [0]), ("0-2", [0, 1, 2]), ("5,1-2", [5, 1, 2]), (" 1 - 2 ", [1, 2])])
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


# --- inputs are read once


def test_another_table_through_the_same_pipe_is_another_question(files, capsys):
    for size, code in ((None, 0), (None, 0), (-1, 2)):
        os.mkfifo("pipe")
        writer = threading.Thread(target=Path("pipe").write_text, args=("".join(TASKS.splitlines(True)[:size]),))
        writer.start()
        assert call("inflate", "--nodes", "nodes.csv", "--tasks", "pipe", "--out", "out") == code
        writer.join()
        os.unlink("pipe")
    said = capsys.readouterr()
    assert [line.endswith("(kept)") for line in said.out.splitlines()] == [False, True]
    assert "tasks was another file" in said.err
    inputs = json.loads(Path("out/seed-0/summary.json").read_text())["inputs"]
    assert inputs["files"]["tasks"] == sha256("tasks.csv") and inputs["files"]["nodes"] == sha256("nodes.csv")


PIPED = {
    "nodes": ["inflate", "--nodes"], "tasks": ["inflate", "--nodes", "nodes.csv", "--tasks"],
    "gpu power": ["inflate", "--until", "0.01", "--gpu-power"],
    "cpu power": ["inflate", "--until", "0.01", "--cpu-power"],
    "times": ["far", "--no-charts", "--times"],
    "instance": ["andreas", "--no-charts", "--method", "fifo", "--instance"],
    "jobs": ["hadar", "--no-charts", "--jobs"], "throughputs": ["hadar", "--no-charts", "--throughputs"],
    "cluster": ["hadar", "--no-charts", "--cluster"], "executed times": ["far-run", "--simulated", "1e6", "--times"],
}
CONTENT = {"nodes": NODES, "tasks": TASKS, "gpu power": "model,idle_w,full_w\nT4,11,70\n",
           "cpu power": "model,idle_w,full_w,cores\nMine,11,70,8\n", "instance": json.dumps(TOY)}
CONTENT |= {what: embedded(f"toy/hadar_{what}.csv").read_text() for what in ("jobs", "cluster", "throughputs")}
CONTENT |= {what: embedded("toy/mig_times.csv").read_text() for what in ("times", "executed times")}


@pytest.mark.parametrize("what", PIPED)
def test_every_input_may_be_a_pipe_and_its_bytes_are_hashed(what, files):
    os.mkfifo("pipe")
    writer = threading.Thread(target=Path("pipe").write_text, args=(CONTENT[what],))
    writer.start()
    assert call(*PIPED[what], "pipe", "--out", "out") == 0
    writer.join()
    record = Path("out/seed-0" if PIPED[what][0] == "inflate" else "out",
                  "costs.json" if what == "instance" else "summary.json")
    checksum = hashlib.sha256(CONTENT[what].encode()).hexdigest()
    assert checksum in json.loads(record.read_text())["inputs"]["files"].values()


# --- folders


COMMANDS = {
    "far": ["far", "--no-charts", "--times", embedded("toy/mig_times.csv")],
    "hadar": ["hadar", "--no-charts"],
    "andreas": ["andreas", "--no-charts", "--method", "fifo", "--instance", "jobs.json"],
    "inflate": ["inflate", "--nodes", "nodes.csv", "--tasks", "tasks.csv"],
    "sweep": ["sweep", "study.toml", "--workers", "1"],
}
OTHER = {"far": ["--gpus", "2"], "hadar": ["--scheduler", "yarn-cs"], "andreas": ["--simulate"],
         "inflate": ["--policy", "pwr"]}


@pytest.fixture
def all_files(files):
    """Write the inputs of `COMMANDS`."""
    Path("jobs.json").write_text(json.dumps(TOY))
    Path("study.toml").write_text(STUDY)
    return files


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_with_something_else_is_refused_and_left_alone(name, all_files, capsys):
    Path("out").mkdir()
    Path("out/thesis.tex").write_text("Chapter 1")
    assert call(*COMMANDS[name], "--out", "out") == 2
    assert "thesis.tex" in capsys.readouterr().err and content("out") == {"thesis.tex": b"Chapter 1"}
    assert call(*COMMANDS[name], "--out", "out", "--force") == 0
    assert content("out")["thesis.tex"] == b"Chapter 1" and len(content("out")) >= 3  # andreas writes two files


@pytest.mark.parametrize("name", ["far", "hadar", "andreas", "sweep"])
def test_a_file_of_the_same_name_is_never_overwritten(name, all_files, capsys):
    for file in ("summary.json", "costs.json", "results.csv"):
        Path("out").mkdir(exist_ok=True)
        Path("out", file).write_text("mine")
    for force in ([], ["--force"]):
        assert call(*COMMANDS[name], "--out", "out", *force) == 2
        assert "was not written by sched-lab" in capsys.readouterr().err
    assert content("out") == dict.fromkeys(("costs.json", "results.csv", "summary.json"), b"mine")


@pytest.mark.parametrize("name", OTHER)
def test_the_same_question_is_kept_and_another_one_needs_force(name, all_files, capsys):
    assert call(*COMMANDS[name], "--out", "out") == 0
    before = content("out")
    capsys.readouterr()
    assert call(*COMMANDS[name], "--out", "out") == 0
    assert capsys.readouterr().out.endswith("(kept)\n")
    assert call(*COMMANDS[name], *OTHER[name], "--out", "out") == 2
    assert "another question" in capsys.readouterr().err and content("out") == before
    assert call(*COMMANDS[name], *OTHER[name], "--out", "out", "--force") == 0
    assert call(*COMMANDS[name], *OTHER[name], "--out", "fresh") == 0
    assert content("out") == content("fresh") != before


def test_a_study_may_grow_but_not_change_its_files(all_files, capsys):
    assert call(*COMMANDS["sweep"], "--out", "out") == 0
    Path("study.toml").write_text(STUDY.replace("0-2", "0-3"))
    assert call(*COMMANDS["sweep"], "--out", "out") == 0
    assert "8 cells: 6 kept, 2 computed" in capsys.readouterr().out
    Path("tasks.csv").write_text(TASKS.replace("one,4000", "one,4001"))
    assert call(*COMMANDS["sweep"], "--out", "out") == 2
    assert "trace mine was another file" in capsys.readouterr().err
    assert call(*COMMANDS["sweep"], "--out", "out", "--force") == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_an_empty_name_of_a_folder_is_refused(name, all_files, capsys):
    before = content(".")
    assert call(*COMMANDS[name], "--out", "") == 2
    assert "the name of the folder is empty" in capsys.readouterr().err and content(".") == before


def test_what_was_carried_out_is_not_carried_out_again(files, capsys):
    run = ["far-run", "--times", embedded("toy/mig_times.csv"), "--simulated", "1e6", "--out", "out"]
    assert call(*run) == 0
    assert call(*run) == 2 and "done before" in capsys.readouterr().err
    assert call(*run, "--force") == 0


# --- charts


def test_a_drawing_process_that_dies_is_a_warning_after_the_tables(files):
    run = subprocess.run(["bash", "-c", 'ulimit -v 60000000; exec "$@"', "bash", *PROGRAM, "far", "--times",
                          embedded("toy/mig_times.csv"), "--out", "out"], capture_output=True, text=True)
    assert run.returncode == 0 and "makespan" in run.stdout
    assert run.stderr.startswith("sched-lab: warning: gantt.html, gantt.svg could not be drawn")
    assert run.stderr.count("\n") == 1
    assert set(content("out")) == {"schedule.csv", "reconfigurations.csv", "summary.json"}
    assert not [path for path in Path().iterdir() if path.name.startswith(".")]


def test_charts_that_are_missing_are_drawn_by_the_next_call(files, capsys):
    far = ["far", "--times", embedded("toy/mig_times.csv"), "--out", "out"]
    assert call(*far, "--no-charts") == 0 and len(content("out")) == 3
    assert call(*far) == 0 and len(content("out")) == 5
    assert call(*far) == 0 and call(*far, "--no-charts") == 0
    assert [line.endswith("(kept)") for line in capsys.readouterr().out.splitlines()] == [False, False, True, True]
    assert len(content("out")) == 5


# --- bounds


@pytest.mark.parametrize(("arguments", "words"), [
    (["sweep", "study.toml", "--workers", "100000"], "--workers 100000 on"),
    (["sweep", "study.toml", "--workers", "-1"], "--workers"),
    (["inflate", "--seeds", "0-999999999"], "more than 100000"),
    (["far", "--times", "times.csv", "--gpus", "1000000000"], "--gpus"),
    (["far-run", "--times", "times.csv", "--simulated", "1e-9"], "--simulated"),
    (["far-run", "--times", "times.csv", "--simulated", "nan"], "--simulated"),
    (["far-run", "--times", "times.csv", "--dry-run", "--device", "99999"], "--device"),
    (["andreas", "--instance", "jobs.json", "--max-iterations", "99999999999999999999"], "--max-iterations"),
    (["andreas", "--instance", "jobs.json", "--max-iterations", "0"], "--max-iterations"),
    (["andreas", "--instance", "jobs.json", "--seed", "-1"], "--seed"),
    (["andreas", "--instance", "jobs.json", "--simulate", "--period", "1e-9"], "--period"),
    (["andreas", "--instance", "jobs.json", "--simulate", "--period", "nan"], "--period"),
    (["andreas", "--instance", "jobs.json", "--time-limit", "inf"], "--time-limit"),
    (["hadar", "--round", "0.001"], "--round"), (["hadar", "--restart", "nan"], "--restart"),
])
def test_a_number_out_of_range_is_one_line(arguments, words, all_files, capsys):
    assert_refused(call(*arguments, "--out", "out"), capsys, words)


# --- a terminal, a shell, a module


def test_on_a_terminal_results_have_lines_of_their_own(files):
    import pexpect

    child = pexpect.spawn(PROGRAM[0], [*PROGRAM[1:], "inflate", "--nodes", "nodes.csv", "--tasks", "tasks.csv",
                                       "--seeds", "0-2", "--out", "out"], encoding="utf-8", timeout=300,
                          env={**os.environ, "TERM": "xterm"}, dimensions=(24, 120))
    child.expect(pexpect.EOF)
    assert "%" in child.before  # there was a bar
    for seed in range(3):
        before = child.before.partition(f"out/seed-{seed}:")[0].rpartition("\n")[2]
        assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", before.rpartition("\x1b[2K")[2]).strip("\r") == ""


def test_version_module_and_completion(files):
    as_module = [sys.executable, "-m", "sched_lab"]
    said = subprocess.run([*as_module, "--version"], capture_output=True, text=True, check=True).stdout
    assert said == f"sched-lab {__version__}\n"
    completed = subprocess.run(as_module, capture_output=True, text=True, check=True, env={
        **os.environ, "_SCHED_LAB_COMPLETE": "complete_bash", "COMP_WORDS": "sched-lab inf", "COMP_CWORD": "1"}).stdout
    assert completed.split() == ["inflate"]


def test_whoever_stops_reading_gets_no_traceback(files):
    run = subprocess.run(["bash", "-c", '"$@" | head -c 1', "bash", *PROGRAM, "traces", "--nodes", "nodes.csv"],
                         capture_output=True, text=True)
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(("name", "words"), [
    ("inflate", "failures.csv"), ("sweep", "means.csv"), ("far", "reconfigurations.csv"), ("far-run", "execution.csv"),
    ("andreas", "costs.json"), ("hadar", "rounds.csv")])
def test_the_help_of_out_names_the_files_of_the_command(name, words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert call(name, "--help") == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "--out" in line and "Folder for" in line)
    assert words in line and (name == "inflate") == ("assignments.csv" in line)


# --- examples


def test_examples_are_written_and_never_overwrite(files, capsys):
    assert call("example", "far", "mine") == 0 and call("example", "far", "mine") == 0
    Path("mine/times.csv").write_text("mine")
    assert call("example", "far", "mine") == 2 and Path("mine/times.csv").read_text() == "mine"
    assert call("example", "online", ".") == 2 and Path("nodes.csv").read_text() == NODES
    assert not Path("study.toml").exists()
    assert call("example", "gavel", ".") == 2 and call("example", "far", "") == 2
    assert "Traceback" not in capsys.readouterr().err
