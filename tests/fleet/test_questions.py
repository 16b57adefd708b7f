"""`sched-lab explain`, `place`, `move` and `recommend`: exit codes, whole files or none, one line for what is wrong."""
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.fleet.ask.explain import explain
from sched_lab.fleet.read.tables import read_cluster
from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.problem import problem_of
from sched_lab.lab.frames import embedded, sha256
from sched_lab.lab.jit import interpreted
from tests.command_line import assert_concluded, assert_refused, call, content

NODES = ("name,gpu_model,num_gpus,cpu_milli,memory_mib\nn0,T4,2,32000,65536\nn1,T4,2,32000,65536\n"
         "n2,A100,4,64000,65536\n")
TASKS = ("name,submit_s,start_s,end_s,num_gpus,gpu_milli,cpu_milli,memory_mib,gpu_models,node,gpu_list\n"
         "a,0,0,,1,400,1000,1024,,n0,0\nb,5,5,,1,300,1000,1024,,n0,1\nc,9,9,60,1,200,1000,1024,,n1,0\n"
         "waits,10,,,3,1000,1000,1024,T4,,\nbad,10,20,15,1,1000,1000,1024,,,\n"
         "later,30,30,90,2,1000,8000,1024,,n2,0-1\n")
NEXT = "name,num_gpus,gpu_milli,cpu_milli,memory_mib\nd,1,500,1000,1024\ne,4,1000,8000,1024\nf,8,1000,1,1\n"
QUESTIONS = {"explain": ("--task", "a", "--no-charts"), "place": ("--tasks", "next.csv"), "move": ("--moves", "2")}


def read(tasks: str = TASKS, nodes: str = NODES, out: str = "mine") -> None:
    Path("jobs.csv").write_text(tasks)
    Path("own.csv").write_text(nodes)
    assert call("read", "csv", "jobs.csv", "--nodes", "own.csv", "--out", out) == 0


@pytest.fixture(scope="module")
def was_read(tmp_path_factory):
    """Read the cluster once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("read"))
        Path("next.csv").write_text(NEXT)
        read()
        return Path.cwd()


@pytest.fixture(autouse=True)
def cluster(was_read, tmp_path, monkeypatch):
    monkeypatch.setenv("SCHED_LAB_COMPILE", "never")
    monkeypatch.chdir(shutil.copytree(was_read, tmp_path, dirs_exist_ok=True))


def asked(*arguments, capsys) -> tuple[int, str]:
    """Exit code and what is printed of `sched-lab explain mine`."""
    code = call("explain", "mine", *arguments)
    return code, capsys.readouterr().out


def test_a_task_is_explained_in_words_and_in_json(capsys):
    code, text = asked("--task", "later", capsys=capsys)
    assert code == 0 and text.splitlines()[1] == "at 30 s, running (recorded): 3 tasks"
    assert "it really ran there" in text or "it really ran on n2" in text
    code, text = asked("--task", "later", "--policy", "pwr-fgd:0.1", "--json", capsys=capsys)
    told = json.loads(text)
    assert code == 0 and told["policy"] == "pwr-fgd:0.1" and len(told["nodes"]) == 3 and len(told["gpus"]) == 8
    assert asked("--task", "later", "--at", "100", capsys=capsys)[1].splitlines()[1].endswith(": 2 tasks")


def test_a_task_that_no_node_can_take_is_exit_code_1(capsys):
    code, text = asked("--task", "waits", capsys=capsys)
    assert code == 1 and "n0: lacks 3 free GPUs (has 0 of 2)" in text and "n2: its GPU model is A100, not T4" in text
    assert "no node could take it even without any other task" in text.splitlines()


@pytest.mark.parametrize(("arguments", "words"), [
    (("--task", "lter"), "did you mean later"), (("--task", "ate"), "did you mean later"),
    (("--task", ""), "there are a, b, c"),
    (("--task", "bad"), "row 6"), (("--task", "a", "--policy", "fdg"), "did you mean fgd"),
    (("--task", "a", "--state", "now"), "choose one of recorded, replayed"), ((), "--task"),
    (("--task", "a", "--at", "noon"), "--at"), (("--task", "a", "--gpu-power", "absent.csv"), "absent.csv"),
    (("--task", "a", "--at", "nan"), "--at"), (("--task", "a", "--at", "inf"), "--at")])
def test_what_cannot_be_asked_is_one_line(arguments, words, capsys):
    assert_refused(call("explain", "mine", *arguments, "--out", "out"), capsys, words)


@pytest.mark.parametrize("words", [
    "check mine", "explain mine --task a", "explain mine --task waits",
    "place mine --out out", "place mine --tasks next.csv --out out", "move mine --out out",
    "recommend --nodes nodes.json --pods pods.json"])
def test_every_answer_ends_with_a_sentence_and_what_to_type_next(words, capsys):
    for name in ("nodes.json", "pods.json"):
        Path(name).write_bytes(embedded(f"fleet/{name}").read_bytes())
    assert call(*words.split()) in (0, 1)
    assert_concluded(capsys.readouterr().out)


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_kept_replaced_by_force_or_left_alone(question, capsys):
    options = QUESTIONS[question]
    for _ in range(2):
        assert call(question, "mine", *options, "--out", "out") == 0
    assert "(kept)" in capsys.readouterr().out
    before = content("out")
    assert call(question, "mine", *options, "--at", "40", "--out", "out") == 2 and content("out") == before
    assert call(question, "mine", *options, "--at", "40", "--out", "out", "--force") == 0
    assert call(question, "mine", *options, "--out", "mine") == 2  # the cluster itself is not overwritten


def test_the_files_of_an_explanation(capsys):
    assert call("explain", "mine", "--task", "later", "--out", "out") == 0
    assert set(content("out")) == {"nodes.csv", "gpus.csv", "summary.json", "explanation.svg", "report.html"}
    assert call("explain", "mine", "--task", "later", "--out", "plain", "--no-charts") == 0
    assert set(content("plain")) == {"nodes.csv", "gpus.csv", "summary.json"}


def test_nothing_recorded_is_replayed(capsys):
    read(TASKS.replace(",n0,0", ",,").replace(",n0,1", ",,").replace(",n1,0", ",,").replace(",n2,0-1", ",,"), out="new")
    assert_refused(call("explain", "new", "--task", "b", "--state", "recorded"), capsys, "nothing is recorded")
    assert call("explain", "new", "--task", "b") == 0
    assert "running (replayed): 1 task" in capsys.readouterr().out
    assert_refused(call("move", "new", "--out", "out"), capsys, "give the nodes and the starts of tasks that run")


def test_where_nobody_waits_there_is_nothing_to_place(capsys):
    """Not even where nothing runs any more."""
    read("".join(TASKS.splitlines(keepends=True)[:1]) + "a,0,0,5,1,400,1000,1024,,n0,0\n", out="over")
    assert call("place", "over", "--out", "out") == 0
    assert "fgd at 5 s: no task waits" in capsys.readouterr().out
    assert Path("out/placements.csv").read_text() == "task,came,node,gpu_list,failed_for\n"


@pytest.mark.parametrize("policy", ["pwr-fgd:0.1", "joint", "gpu-clustering", "kubernetes"])
def test_a_replay_is_explained_task_by_task(policy):
    """What a replay decided is what the explanation of each of its tasks finds."""
    stream = np.random.default_rng(7)
    lines = TASKS.splitlines()[:1]
    for number in range(25):
        submit, length, cpu = (int(stream.integers(*ends)) for ends in ((0, 60), (1, 40), (0, 9)))
        demand = ("1,300", "1,500", "1,1000", "2,1000", "0,0")[stream.integers(5)]
        lines.append(f"t{number},{submit},{submit},{submit + length},{demand},{cpu}000,{2048 * number % 9000},,,")
    read("\n".join(lines) + "\n", out="many")
    problem = problem_of(read_cluster("many"))
    with interpreted(is_small=True):
        schedule = replay(problem, policy)
    assert (schedule.node >= 0).sum() > 15
    for row in np.flatnonzero(schedule.node >= 0):
        found = explain(problem, problem.tasks.name[row], policy, schedule=schedule).about["choice"]
        assert found["node"] == problem.cluster.name[schedule.node[row]]
        assert sum(1 << gpu for gpu in found["gpu_list"]) == schedule.gpu_mask[row]


def test_the_next_tasks_are_placed_or_told_why_not(capsys):
    assert call("place", "mine", "--tasks", "next.csv", "--policy", "bestfit", "--out", "placed") == 0
    placed = pd.read_csv("placed/placements.csv", keep_default_na=False).set_index("task")
    assert placed.loc["d", "node"] and not placed.loc["f", "node"] and placed.loc["f", "failed_for"]
    assert_refused(call("place", "mine", "--tasks", "absent.csv", "--out", "out"), capsys, "absent.csv")
    assert_refused(call("place", "mine", "--tasks", "next.csv", "--policy", "fdg", "--out", "out"), capsys, "fgd")


def test_moves_come_as_a_table_and_as_commands(capsys):
    assert call("move", "mine", "--moves", "2", "--at", "10", "--out", "plan") == 0
    assert set(content("plan")) == {"moves.csv", "fixed.csv", "commands.sh", "summary.json"}
    moves = pd.read_csv("plan/moves.csv")
    lines = Path("plan/commands.sh").read_text().splitlines()
    assert moves["whole_gpus_freed"].sum() >= 1 and len(lines) == len(moves) and all(line[0] == "#" for line in lines)
    assert call("move", "mine", "--for", "watts", "--out", "watts") == 0


def test_of_a_moment_that_is_past_the_commands_do_not_lift_a_cordon_of_now():
    """At 10 s c leaves n1, which was open then, since o ended there, and which the dump found cordoned."""
    read(TASKS.replace("b,5,5,,1", "o,0,0,4,1,300,1000,1024,,n1,1\nb,5,5,,1"), out="closed")
    cordon = '[{"effect": "NoSchedule", "key": "node.kubernetes.io/unschedulable"}]'
    pd.read_csv("closed/nodes.csv", dtype=str).assign(taints=["", cordon, ""]).to_csv("closed/nodes.csv", index=False)
    about = json.loads(Path("closed/about.json").read_text())
    Path("closed/about.json").write_text(json.dumps({**about, "formats": {"pods.json": "k8s"}}))
    assert call("move", "closed", "--moves", "1", "--at", "10", "--out", "plan") == 0
    lines = Path("plan/commands.sh").read_text().splitlines()
    assert lines[-2:] == ["# 1. c: n1 -> n0", "evict default c"]


def test_watts_that_nobody_knows_matter_to_power_only(capsys):
    read(nodes=NODES.replace("A100", "H999"), out="new")
    assert call("explain", "new", "--task", "later") == 0
    assert call("move", "new", "--out", "plan") == 0
    capsys.readouterr()
    assert_refused(call("explain", "new", "--task", "later", "--policy", "pwr"), capsys, "H999")
    assert_refused(call("move", "new", "--for", "watts", "--out", "out"), capsys, "H999")
    Path("own.toml").write_text('[gpu."H999"]\nidle_w = 50\nfull_w = 500\n')
    for command, options in (("explain", ("--task", "later", "--policy", "pwr", "--no-charts")),
                             ("move", ("--for", "watts")), ("place", ("--policy", "pwr"))):
        assert call(command, "new", *options, "--hardware", "own.toml", "--out", f"own {command}") == 0
        said = json.loads(Path(f"own {command}/summary.json").read_text())["inputs"]["files"]
        assert said["hardware"] == sha256("own.toml")
    Path("watts.csv").write_text("model,idle_w,full_w\nH999,50,500\n")
    assert call("explain", "new", "--task", "later", "--policy", "pwr", "--gpu-power", "watts.csv") == 0
