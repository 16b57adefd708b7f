"""The command line: files in, files out, one line for what is wrong."""
import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from sched_lab import __version__
from sched_lab.andreas.instances import TOY
from sched_lab.cli import BOOK_PARTS, function_of, sentence_of
from sched_lab.cli import COMMANDS as COMMAND_TABLE
from sched_lab.lab.frames import embedded
from studies.reproduction import Claim, Experiment
from tests.command_line import NODES, PROGRAM, STUDY, TASKS, assert_refused, call, content


def test_help_teaches(capsys):
    assert call("--help") == call("inflate", "--help") == 0
    text = capsys.readouterr().out
    for word in ("traces", "fetch", "--policy", "--seeds", "--arrivals", "--until", "Example"):
        assert word in text
    assert call() == 0 and "inflate" in capsys.readouterr().out


def test_traces_describes_nodes_and_tasks(files, capsys):
    assert call("traces", "--nodes", "nodes.csv", "--tasks", "tasks.csv") == 0
    text = capsys.readouterr().out
    assert "T4" in text and "nodes.csv" in text
    assert call("traces") == 0
    assert "openb" in capsys.readouterr().out


def test_fetch_knows_its_data_sets(capsys, monkeypatch):
    monkeypatch.setattr("sched_lab.traces.fetch_openb", lambda to, progressbar: Path("here", "openb"))
    assert call("fetch") == 0 and capsys.readouterr().out == "here/openb\n"
    assert call("fetch", "closedb") == 2
    assert "openb" in capsys.readouterr().err


# --- inputs are read once


def piped(text):
    """Start to write a text into a pipe named `pipe`."""
    os.mkfifo("pipe")
    writer = threading.Thread(target=Path("pipe").write_text, args=(text,))
    writer.start()
    return writer


PIPED = {
    "nodes": ["inflate", "--nodes"], "tasks": ["inflate", "--nodes", "nodes.csv", "--tasks"],
    "gpu power": ["inflate", "--until", "0.01", "--gpu-power"],
    "cpu power": ["inflate", "--until", "0.01", "--cpu-power"],
    "times": ["far", "--no-charts", "--times"],
    "instance": ["andreas", "--no-charts", "--policy", "fifo", "--instance"],
    "jobs": ["hadar", "--no-charts", "--jobs"], "throughputs": ["hadar", "--no-charts", "--throughputs"],
    "cluster": ["hadar", "--no-charts", "--cluster"], "executed times": ["far-run", "--simulated", "1e6", "--times"],
}
CONTENT = {"nodes": NODES, "tasks": TASKS, "gpu power": "model,idle_w,full_w\nT4,11,70\n",
           "cpu power": "model,idle_w,full_w,cores\nMine,11,70,8\n", "instance": json.dumps(TOY)}
CONTENT |= {what: embedded(f"toy/hadar_{what}.csv").read_text() for what in ("jobs", "cluster", "throughputs")}
CONTENT |= {what: embedded("toy/mig_times.csv").read_text() for what in ("times", "executed times")}


@pytest.mark.parametrize("what", PIPED)
def test_every_input_may_be_a_pipe_and_its_bytes_are_hashed(what, files):
    writer = piped(CONTENT[what])
    assert call(*PIPED[what], "pipe", "--out", "out") == 0
    writer.join()
    record = Path("out/seed-0" if PIPED[what][0] == "inflate" else "out", "summary.json")
    checksum = hashlib.sha256(CONTENT[what].encode()).hexdigest()
    assert checksum in json.loads(record.read_text())["inputs"]["files"].values()


# --- folders


# what other commands write is in tests/test_reports.py
COMMANDS = {
    "inflate": ["inflate", "--nodes", "nodes.csv", "--tasks", "tasks.csv"],
    "sweep": ["sweep", "study.toml", "--workers", "1"],
}


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
    assert content("out")["thesis.tex"] == b"Chapter 1" and len(content("out")) >= 3


def test_a_file_of_the_same_name_is_never_overwritten(all_files, capsys):
    Path("out").mkdir()
    Path("out/results.csv").write_text("mine")
    for force in ([], ["--force"]):
        assert call(*COMMANDS["sweep"], "--out", "out", *force) == 2
        assert "was not written by sched-lab" in capsys.readouterr().err
    assert content("out") == {"results.csv": b"mine"}


def test_the_same_question_is_kept_and_another_one_needs_force(files, capsys):
    run = COMMANDS["inflate"]
    assert call(*run, "--out", "out") == call(*run, "--out", "out") == 0
    before = content("out")
    assert [line.endswith("(kept)") for line in capsys.readouterr().out.splitlines()] == [False, True]
    for seed in ("0", "1"):
        assert call(*run, "--policy", "pwr", "--seeds", seed, "--out", "out") == 2
        said = capsys.readouterr().err
        assert "another question" in said and "policy was 'fgd', now 'pwr'" in said and content("out") == before
    assert call(*run, "--policy", "pwr", "--out", "out", "--force") == 0
    assert call(*run, "--policy", "pwr", "--out", "fresh") == 0
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
    assert run.stderr.startswith("sched-lab: warning: gantt.svg could not be drawn")
    assert run.stderr.count("\n") == 1
    assert set(content("out")) == {"schedule.csv", "reconfigurations.csv", "summary.json", "report.html"}
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
    (["inflate", "--seeds", "0-999999999"], "more than 100,000"),
    (["far", "--times", "times.csv", "--gpus", "1000000000"], "--gpus"),
    (["far-run", "--times", "times.csv", "--simulated", "1e-9"], "--simulated"),
    (["far-run", "--times", "times.csv", "--simulated", "nan"], "--simulated"),
    (["far-run", "--times", "times.csv", "--dry-run", "--first-gpu", "99999"], "--first-gpu"),
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
                                       "--seeds", "0-2", "--out", "out"], encoding="utf-8",
                          env={**os.environ, "TERM": "xterm"}, dimensions=(24, 120))
    child.expect(pexpect.EOF)
    assert "%" in child.before  # there was a bar
    for seed in range(3):
        before = child.before.partition(f"out/seed-{seed}:")[0].rpartition("\n")[2]
        assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", before.rpartition("\x1b[2K")[2]).strip("\r") == ""


def test_the_module_says_its_version():
    said = subprocess.run([sys.executable, "-m", "sched_lab", "--version"], capture_output=True, text=True,
                          check=True).stdout
    assert said == f"sched-lab {__version__}\n"


def test_whoever_stops_reading_gets_no_traceback(files):
    run = subprocess.run(["bash", "-c", '"$@" | head -c 1', "bash", *PROGRAM, "traces", "--nodes", "nodes.csv"],
                         capture_output=True, text=True)
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(("name", "words"), [
    ("inflate", "failures.csv"), ("sweep", "means.csv"), ("far", "reconfigurations.csv"), ("far-run", "execution.csv"),
    ("andreas", "summary.json"), ("hadar", "rounds.csv")])
def test_the_help_of_out_names_the_files_of_the_command(name, words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert call(name, "--help") == 0
    assert any("--out" in line and words in line for line in capsys.readouterr().out.splitlines())


# --- examples


@pytest.mark.parametrize("family", ["online", "andreas", "hadar", "far", "fleet"])
def test_what_an_example_says_to_type_next_works(family, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("example", family, "mine") == 0
    then = capsys.readouterr().out.splitlines()[-1]
    assert then.startswith("next: sched-lab ")
    undrawn = [] if family in ("fleet", "online") else ["--no-charts"]
    assert call(*then.removeprefix("next: sched-lab ").split(), *undrawn) == 0


def test_examples_are_written_and_never_overwrite(files, capsys):
    assert call("example", "far", "mine") == 0 and call("example", "far", "mine") == 0
    Path("mine/times.csv").write_text("mine")
    assert call("example", "far", "mine") == 2 and Path("mine/times.csv").read_text() == "mine"
    assert call("example", "online", ".") == 2 and Path("nodes.csv").read_text() == NODES
    assert not Path("study.toml").exists()
    assert call("example", "gavel", ".") == 2 and call("example", "far", "") == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_book_is_copied_once_and_never_over_the_files_of_others(files, capsys, monkeypatch):
    assert re.search(r"^BOOK = (.*)$", (Path(__file__).parents[1] / "setup.py").read_text(), re.M)[1] == str(
        BOOK_PARTS).replace("'", '"')
    theirs = Path("shelf/nbs/22_fgd.ipynb")
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")
    assert call("book", "shelf", "--no-open") == 2 and [*theirs.parent.iterdir()] == [theirs]
    assert theirs.read_text() == "theirs" and "choose another folder" in capsys.readouterr().err
    assert call("book", "mine", "--no-open") == 0
    chapters = Path(__file__).parents[1] / "nbs"
    assert {path.name for path in Path("mine/nbs").iterdir()} == {path.name for path in chapters.glob("*.ipynb")}
    Path("mine/nbs/22_fgd.ipynb").write_text("changed by its reader")
    Path("mine/nbs/23_pwr.ipynb").unlink()
    started = []
    monkeypatch.setattr("os.execv", lambda program, words: started.append(words))
    assert call("book", "mine") == 0 and "1 files written" in capsys.readouterr().out
    assert Path("mine/nbs/22_fgd.ipynb").read_text() == "changed by its reader"
    assert Path("mine/nbs/23_pwr.ipynb").is_file()
    assert bool(started) == bool(find_spec("jupyterlab"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert call("book", "mine") == 0 and "JupyterLab is not installed: pip install" in capsys.readouterr().out
    Path("mine/.sched_lab-book").write_text("0.0.1")
    assert call("book", "mine", "--no-open") == 2 and "a copy of another version" in capsys.readouterr().err


# --- the table of commands


@pytest.mark.parametrize("name", COMMAND_TABLE)
def test_the_table_says_what_the_command_says(name):
    """The help of a line is the first paragraph of the docstring of the function it names."""
    function = getattr(import_module(f"sched_lab.{COMMAND_TABLE[name]}"), function_of(name))
    assert sentence_of(name) == inspect.getdoc(function).partition("\n\n")[0].replace("\n", " ")


LOADED = """import sys
from sched_lab.cli import main
for words in ["--help"], ["--version"], [], ["no-such-command"], ["inflate", "--help"]:
    try: main(words)
    except SystemExit: pass
    print("LOADED", *sys.modules)
"""


def test_the_table_alone_loads_no_family_and_a_command_its_own():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    *by_table, by_command = (set(line.split()) for line in done.stdout.splitlines() if line.startswith("LOADED"))
    assert len(by_table) == 4
    for loaded in by_table:
        assert not loaded & {"numpy", "pandas", "numba", "scipy", "altair", "sched_lab.lab.frames"}
        assert not [name for name in loaded if re.match(r"sched_lab\.(online|andreas|hadar|far)\b", name)]
    assert "sched_lab.online.command" in by_command
    assert not by_command & {"sched_lab.far", "sched_lab.hadar", "altair"}


SMALL = """import sys
from sched_lab.cli import main
for words in %r:
    try: main(words.split())
    except SystemExit as end: assert end.code != 2, words
    assert "numba" not in sys.modules, words
"""


def test_a_command_with_little_to_do_loads_no_compiler(tmp_path, monkeypatch):
    """Its answer is there sooner than the compiler would be; the commands themselves are tested elsewhere."""
    commands = ["example andreas .", "example far .", "example online .", "sweep study.toml --workers 1 --out study",
                "inflate --nodes nodes.csv --tasks tasks.csv --out inflation", "hadar --no-charts --out rounds",
                "far --times times.csv --no-charts --out plan", "read k8s nodes.json pods.json --out mine",
                "andreas --instance jobs.json --policy greedy --no-charts --out day", "replay mine --out answer",
                "explain mine --task team/evaluate", "place mine --out placed", "move mine --out moves",
                "recommend --nodes nodes.json --pods pods.json"]
    monkeypatch.chdir(tmp_path)
    for name in ("nodes.json", "pods.json"):
        Path(name).write_bytes(embedded(f"fleet/{name}").read_bytes())
    environment = {name: value for name, value in os.environ.items() if name != "SCHED_LAB_COMPILE"}
    subprocess.run([sys.executable, "-c", SMALL % commands], check=True, env=environment, stdout=subprocess.DEVNULL)


def test_a_command_that_is_not_there_names_the_nearest(capsys):
    assert call("infate") == 2
    assert capsys.readouterr().err == (
        "sched-lab: No such command 'infate'. Did you mean 'inflate'?; see sched-lab --help\n")


@pytest.mark.parametrize(("words", "meant"), [("sched-lab inf", "inflate"), ("sched-lab hadar --pol", "--policy")])
def test_commands_and_their_options_are_completed(words, meant, capsys, monkeypatch):
    for name, value in (("_SCHED_LAB_COMPLETE", "complete_bash"), ("COMP_WORDS", words),
                        ("COMP_CWORD", str(len(words.split()) - 1))):
        monkeypatch.setenv(name, value)
    assert call() == 0 and capsys.readouterr().out.split() == [meant]


# --- reproduce


def squares(place):
    return {"maths/squares.csv": pd.DataFrame({"n": [1, 2], "square": [1, 4]})}


SQUARES = Experiment("squares", "what squares are", ("maths/squares.csv",), 0.1, {"version": 1}, squares)
CUBES = replace(SQUARES, name="cubes", frames=("maths/cubes.csv",), minutes=30.0, needs=("no/such.csv",))
CLAIM = Claim("two times two", "4", ("maths/squares.csv",),
              lambda frame: (str(frame["square"].max()), "reproduced" if frame["square"].max() == 4 else "not"))


@pytest.fixture
def maths(tmp_path, monkeypatch):
    """Make a family of two experiments, and a folder for its results."""
    home = SimpleNamespace(EXPERIMENTS={"squares": SQUARES, "cubes": CUBES}, CLAIMS=(CLAIM,), FIGURES={
        "squares": lambda read: __import__("altair").Chart(read("maths/squares.csv")).mark_point().encode(x="n:Q")})
    monkeypatch.setattr("sched_lab.cli.study_of", lambda family: home)
    (tmp_path / "results").mkdir()
    return home


def reproduce(tmp_path, *arguments):
    return call("reproduce", "far", *arguments, "--workers", 1, "--results", tmp_path / "results")


def test_a_family_is_listed_stored_and_checked(maths, tmp_path, capsys):
    """What is compared, and how, is in tests/studies/test_reproduction.py."""
    def said(code, *arguments):
        assert reproduce(tmp_path, *arguments) == code
        return capsys.readouterr().out

    assert re.search(r"squares +0.1 min +what squares are\n +maths/squares.csv\n", said(0))
    assert "maths/squares.csv: not stored" in said(0, "squares")
    before = content(tmp_path)
    checked = said(0, "--check")  # the dear one is left out
    assert "maths/squares.csv: same" in checked and "cubes" not in checked
    maths.EXPERIMENTS["squares"] = replace(SQUARES, compute=lambda place: {
        name: frame.assign(square=[1, 5]) for name, frame in squares(place).items()})
    moved = said(1, "--check", "--minutes", 60)
    assert "differs: 1 rows differ in square" in moved and "moves: two times two: 4, reproduced -> 5, not" in moved
    assert "maths/cubes.csv: skipped: no/such.csv is not here" in moved and content(tmp_path) == before
    assert reproduce(tmp_path, "squares", "cubes", "--check") == 2
    assert "no/such.csv is not here; see its source in data/README.md" in capsys.readouterr().err


def test_an_installed_package_says_that_reproduction_needs_a_checkout(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sched_lab.cli.PACKAGE", tmp_path / "site-packages" / "sched_lab")
    for words in ([], ["far"], ["far", "single", "--check"], ["far", "--figures", tmp_path]):
        assert call("reproduce", *words) == 2
        assert capsys.readouterr() == ("", (
            "sched-lab: results are computed again in a checkout, which has the studies; "
            "git clone https://github.com/sched-lab/sched_lab, and pip install -e . there\n"))


def test_experiments_of_all_families_are_listed(capsys):
    assert call("reproduce") == 0
    said = capsys.readouterr().out
    for family in ("pwr", "andreas", "hadar", "far", "fleet"):
        assert f"sched-lab reproduce {family}\n" in said
    assert "cluster-power" in said and "chains" in said
    assert call("reproduce", "--check") == 2 and "choose one of pwr," in capsys.readouterr().err


def test_figures_are_drawn_from_what_is_stored(maths, tmp_path, capsys):
    reproduce(tmp_path, "squares")
    assert reproduce(tmp_path, "--figures", tmp_path / "figures") == 0
    assert (tmp_path / "figures/squares.svg").read_text().startswith("<svg")


def test_what_cannot_be_reproduced_is_one_line(tmp_path, capsys):
    assert call("reproduce", "gavel") == 2
    assert call("reproduce", "far", "--check", "--results", tmp_path / "nothing") == 2
    assert call("reproduce", "far", "no-such-experiment") == 2
    said = capsys.readouterr().err
    assert "no family 'gavel'" in said and "no stored results" in said and "no experiment 'no-such-experiment'" in said
    assert len(said.splitlines()) == 3
