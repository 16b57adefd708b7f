"""Hostile calls of every command: each ends soon, in little memory, with a result or one line that names the mend."""

from __future__ import annotations

import json
import shlex
import time
import zipfile
from pathlib import Path

import pytest

from sched_lab.fleet.replay import report
from tests.command_line import assert_refused, call

pytestmark = pytest.mark.usefixtures("files")


# --- words that are none of a closed vocabulary ---

ONLINE = "--nodes nodes.csv --tasks tasks.csv --out out"


@pytest.mark.parametrize(("words", "meant"), [
    (f"inflate {ONLINE} --policy pwr-fdg", "did you mean pwr-fgd:ALPHA?"),
    (f"inflate {ONLINE} --policy pwr-fdg:0.1", "did you mean pwr-fgd:0.1?"),
    (f"inflate {ONLINE} --policy FGD", "did you mean fgd?"),
    (f"inflate {ONLINE} --policy fgd@0.8@bestfti", "did you mean bestfit?"),
    (f"inflate {ONLINE} --policy zzz", "choose one of fgd, "),
    (f"inflate {ONLINE} --policy {'x' * 100_000}", "choose one of fgd, "),
    (f"inflate {ONLINE} --sampling permutation", "did you mean permutation-first?"),
    (f"inflate {ONLINE} --power packages", "did you mean package?"),
    (f"inflate {ONLINE} --arithmetic refrence", "did you mean reference?"),
    (f"inflate {ONLINE} --device cdua", "did you mean cuda?"),
    (f"inflate {ONLINE} --load-curve liner", "did you mean linear?"),
    ("serve --mode observ", "did you mean observe?"),
    ("read csv nodes.csv --dates dmmy --out out", "did you mean dmy?"),
    ("sweep study.toml --out out --format parqet", "did you mean parquet?"),
    ("replay mine --out out --backfill firstfit", "did you mean first-fit?"),
    ("explain mine --task a --state record", "did you mean recorded?"),
    ("move mine --out out --for GPU", "did you mean gpus?"),
    ("read k8 nodes.csv --out out", "did you mean k8s?"),
    ("far --times times.csv --objective tardines --out out", "did you mean tardiness?"),
    ("andreas --instance jobs.json --loss move --out out", "did you mean moved?"),
    ("example fleat .", "did you mean fleet?"),
    ("reproduce hadarr", "did you mean hadar?"),
    ("reproduce pwr cluster-powr --check --results .", "did you mean cluster-power?")])
def test_a_mistyped_word_is_answered_by_the_one_that_was_meant(words, meant, capsys):
    assert_refused(call(*words.split()), capsys, meant)


# --- files and numbers that nobody means well by: one line each, soon ---

OWN = "name,gpu_model,num_gpus,cpu_milli,memory_mib\nn0,T4,8,64000,262144\n"
TIMED = "name,submit_s,start_s,end_s,num_gpus\na,0,0,9,1\n"
LISTS = {
    "wide.csv": ",".join(f"c{k}" for k in range(100_000)) + "\n" + ",".join("1" * 100_000) + "\n",
    "keys.json": '{"items": [{' + "".join(f'"k{k}": 1, ' for k in range(10**5)) + '"k99999": 1}]}',
    "broken.json": '{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": }]}',
    "pods.json": '{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "a", "creationTimestamp": '
                 '"2024-01-01T00:00:00Z"}, "spec": {"containers": []}, "status": {"phase": "Pending"}}]}',
    "parts.csv": "name,submit_s,start_s,end_s,num_gpus,num_nodes\n" + "a,0,0,9,1,10000\n" * 501,
    "own.csv": OWN, "timed.csv": TIMED}


@pytest.mark.parametrize(("words", "said"), [
    ("read csv wide.csv --out out", "there are 100,000 columns; give a table with at most 1,000"),
    ("read k8s keys.json --out out", "has the name 'k99999' twice"),
    ("read auto broken.json --out out", "broken.json, row 1: this is not JSON (Expecting value) at position"),
    ("read auto empty.zip --out out", "the ZIP archive has no file in it"),
    ("read csv parts.csv --out out", "5,010,000 parts together; give at most 5,000,000"),
    ("read csv timed.csv --size-to nan --out out", "is not a share"),
    ("recommend --nodes broken.json --pods broken.json", "broken.json, row 1: this is not JSON"),
    ("recommend --nodes pods.json --pods pods.json", "no nodes in these files; give what kubectl get nodes"),
    ("replay timed.csv --out out", "this is a file, not a folder"),
    *((f"replay mine --at {at} --out out", "is not in the range from") for at in ("1e300", "-1e300", "nan", "inf")),
    ("reproduce pwr --check --minutes nan", "nan is not in the range from 0"),
    (f"inflate {ONLINE} --seeds 0-1000000000", "of at most nine digits each"),
    (f"inflate {ONLINE} --seeds 0-999999999", "are more than"),
    (f"inflate {ONLINE} --until 1e308", "give a number above 0 and below 1000")])
def test_what_nobody_means_well_is_one_line_soon(words, said, capsys):
    for name, text in LISTS.items():
        Path(name).write_text(text)
    zipfile.ZipFile("empty.zip", "w").close()
    begun = time.process_time()
    assert_refused(call(*words.split()), capsys, said)
    assert time.process_time() - begun < 5


SERIES = {"beyond.csv": "time,value\n0,1e308\n86400,1\n172800,1\n",
          "below.csv": "time,value\n0,-1\n86400,1\n172800,1\n",
          "late.csv": "time,value\n0,1\n1e308,1\n"}
RATED = {"hadar": "hadar", "far": "far --times times.csv", "andreas": "andreas --instance jobs.json",
         "inflate": "inflate --nodes nodes.csv --tasks tasks.csv"}
REFUSED = [
    ("--price beyond.csv", "1e308 is above 1000000.0"), ("--carbon below.csv", "-1 is negative"),
    ("--price late.csv", "neither a number of seconds nor a date"),
    ("--price 1e308", "give a number from -1,000,000 to"), ("--carbon -1", "give a number from 0 to 1,000,000"),
    (f"--price {'x' * 300}", "File name too long"), ("--price loop", "cannot be read")]


@pytest.mark.parametrize(("command", "words", "said"), [
    *(("inflate", *one) for one in REFUSED), *((command, *REFUSED[2]) for command in ("hadar", "far", "andreas"))])
def test_rates_that_are_none(command, words, said, capsys):
    if command in ("far", "andreas"):
        call("example", command, ".")
    for name, text in SERIES.items():
        Path(name).write_text(text)
    Path("loop").symlink_to("loop")
    capsys.readouterr()
    assert_refused(call(*shlex.split(f"{RATED[command]} {words} --out out")), capsys, said)


@pytest.mark.parametrize("words", ["calibrate", "far --times", "hadar --jobs", "andreas --instance", "inflate --nodes"])
def test_a_name_that_no_file_can_have(words, capsys):
    assert_refused(call(*words.split(), "a\0b", "--out", "out"), capsys, "null byte")


@pytest.mark.parametrize(("about", "said"), [
    ('{"formats": 5}', "formats is 5"), ('{"formats": {"a": 5}}', "formats is"), ('{"zero": 5}', "zero is 5"),
    ('{"zero": "soon"}', "zero is 'soon'"), ('{"zero": "2024-01-01"}', "zero is '2024-01-01'"), ("[]", "not a JSON")])
def test_a_record_that_is_none_is_refused_by_name(about, said, capsys):
    Path("timed.csv").write_text(TIMED)
    Path("own.csv").write_text(OWN)
    assert call("read", "csv", "timed.csv", "--nodes", "own.csv", "--out", "mine") == 0
    Path("mine/about.json").write_text(about)
    capsys.readouterr()
    for words in ("replay mine --out out", "move mine --out out", "explain mine --task a"):
        assert_refused(call(*words.split()), capsys, "about.json", said)


# --- what `read` writes, `check` and `replay` read ---

SUBMITTED = "name,submit_s,wait_s,duration_s,num_gpus,priority\n"
POD = {"kind": "Pod", "metadata": {"name": "a", "creationTimestamp": "2024-01-01T00:00:00Z"},
       "spec": {"containers": []}, "status": {"phase": "Pending"}}
DLRM = ("instance_sn,role,app_name,cpu_request,gpu_request,memory_request,max_instance_per_node,creation_time,"
        "scheduled_time,deletion_time\na,HN,b,1,1,1,{},0,1,2\n")
HUGE = "x" * 10**6
ODD_PODS = [{**POD, "spec": "text"}, *({**POD, "metadata": {**POD["metadata"], "name": name}} for name in (
    "," * 10**6, "a\x01", "a\x02", " a", "a"))]
WRITTEN = {
    "csv": (f'{SUBMITTED}a#2,0,0,9,1,\na,0,0,9,1,\na,0,1,9,1,\nt,0,0,1e17,1,\np,0,0,9,1,1e400\n"{HUGE},",0,0,9,1,\n',
            ["renamed NAME#2", "beyond 2**53 s", "not a finite number"]),
    "k8s": (json.dumps(ODD_PODS), ["spec of the Pod is no object", "there twice, equal"]),
    "dlrm": (DLRM.format("inf") + DLRM.splitlines()[1].format("1e300"), ["not a finite number", "taken as no limit"]),
    "swf": ("; MaxNodes: 5000000\n; MaxProcs: 5000000\n1 0 1 9 1 -1 -1 1 9 -1 1 1 1 1 1 1 -1 -1\n", ["no nodes"])}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_read_writes_check_and_replay_read(name, monkeypatch, capsys):
    monkeypatch.setattr(report, "svgs_of", lambda charts: None if charts() else {})  # made, and not drawn
    text, said = WRITTEN[name]
    Path("dump").write_text(text)
    Path("own.csv").write_text(OWN)
    begun = time.process_time()
    assert call("read", name, "dump", "--nodes", "own.csv", "--out", "mine") == 0
    assert all(words in Path("mine/ledger.csv").read_text() for words in said)
    assert call("check", "mine") in (0, 1)
    assert time.process_time() - begun < 5
    assert call("replay", "mine", "--policies", "fgd", "--out", "out") == 0
    assert "Traceback" not in capsys.readouterr().err


# --- accounts of Slurm ---

ACCOUNTS = "JobID|Submit|Start|End|State|NNodes|NodeList|AllocTRES|ReqTRES|Priority\n"
ACCOUNT = ("{job}|2024-01-01T00:00:00|2024-01-01T00:00:10|2024-01-01T01:00:00|{state}|{nodes}|{hosts}|{tres}||"
           "{priority}\n")


def accounts(count: int = 1, **cells: str) -> str:
    """Make a table of jobs that are equal but for a number, `K` in what is said."""
    usual = {"job": "K", "state": "COMPLETED", "nodes": "1", "hosts": "n1", "tres": "cpu=4,gres/gpu=1", "priority": "1"}
    return ACCOUNTS + "".join(ACCOUNT.format(**usual | cells).replace("K", str(k)) for k in range(count))


@pytest.mark.parametrize(("text", "said"), [
    (accounts(30, nodes="99999", hosts="n[0-99998]"), "2,999,970 rows"), (accounts(1000, hosts="mK[0-99998]"), "rows"),
    (accounts(100, job="K_[0-99999]", state="PENDING", hosts=""), "1,100,000 rows"),
    (accounts(1, job="K_[0-99999]", state="PENDING", hosts="", nodes="100000"), "10,000,000,000 rows"),
    (json.dumps({"jobs": [{"job_id": 1, "job_state": ["PENDING"], "array_task_string": "0-99999", "array_job_id": 7,
                           "node_count": 100_000}]}), "10,000,000,000 rows")])
def test_a_few_lines_of_slurm_are_not_millions_of_rows(text, said, capsys):
    Path("dump").write_text(text)
    begun = time.process_time()
    assert_refused(call("read", "slurm", "dump", "--out", "out"), capsys, "dump, row", said, "at most 1,000,000")
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(("cells", "said"), [
    *(({"hosts": hosts}, "where it ran is unknown") for hosts in ("n[1-2", "n[9-1:0]", "n[1-2]]", "n[a-b]", "n[]")),
    ({"priority": "1e400"}, "column Priority"), ({"priority": "9" * 5000}, "column Priority"),
    ({"tres": f"cpu=4,mem={'9' * 300}P,gres/gpu=1"}, "memory_mib of the task is negative or beyond"),
    ({"tres": f"cpu={'9' * 5000},gres/gpu=1", "priority": "x"}, "column Priority")])
def test_what_slurm_cannot_mean_is_in_the_ledger(cells, said):
    Path("dump").write_text(accounts(1, **cells))
    assert call("read", "sacct", "dump", "--out", "mine") == 0
    assert said in Path("mine/ledger.csv").read_text()


def test_a_long_list_of_hosts_takes_the_time_of_a_long_list():
    Path("dump").write_text(accounts(1, nodes="90000", hosts=",".join(f"a{k}" for k in range(90_000))))
    begun = time.process_time()
    assert call("read", "sacct", "dump", "--out", "mine") == 0
    assert time.process_time() - begun < 5
    assert Path("mine/tasks.csv").read_text().count("\n") == 90_001
