"""Damaged dumps of every format: one clear line, or a line in the ledger; and what the other commands say of them."""
import csv
import gzip
import json
import os
from pathlib import Path

import pandas as pd
import pytest

from sched_lab.fleet.read.check import check_cluster
from sched_lab.fleet.read.reading import read_files
from sched_lab.fleet.read.tables import CLUSTER_FILES, CLUSTER_RECORD
from sched_lab.fleet.replay import report
from sched_lab.lab.frames import InputError
from tests.command_line import assert_refused, call, content
from tests.fleet.test_command import NODES, NOTHING, REFUSED, TAKEN
from tests.fleet.test_slurm import ACCOUNTS

HEADER = "name,submit_s,start_s,end_s,num_gpus,gpu_milli,cpu_milli,memory_mib,node,gpu_list,user\n"
GOOD = "a,0,0,60,1,1000,1000,1024,n0,0,u\nb,10,20,90,1,500,1000,1024,n0,1,v\n"
OWN = "name,gpu_model,num_gpus,cpu_milli,memory_mib\nn0,T4,2,64000,262144\n"
CELLS = [  # of rows that cannot be, by their columns; each is found in tests/fleet/test_check.py or in the ledger
    {"start_s": "-5"}, {"num_gpus": "-1"}, {"num_gpus": "0.5"}, {"num_gpus": "1000000000"}, {"num_gpus": "9" * 400},
    {"num_gpus": "two"}, {"num_gpus": ""}, {"gpu_milli": "1001"}, {"gpu_milli": "0"}, {"cpu_milli": "-1"},
    {"num_gpus": "2", "gpu_list": "0-1"}, {"memory_mib": "inf"}, {"end_s": "1"}, {"start_s": "5"}, {"end_s": "1e308"},
    {"end_s": "253402300799"}, {"start_s": "yesterday"}, {"node": "n9"}, {"node": "n0", "gpu_list": "7"},
    {"gpu_list": "zero"}, {"name": "a"}, {"name": ""}, {"submit_s": "", "start_s": "", "end_s": ""}]
DATED = "name,submit_time,start_time,end_time,num_gpus\n"


# each is refused in one line, or leaves a line in the ledger or a finding that the good table has not
TABLES = {
    "no header": GOOD, "a column twice": HEADER.replace("user", "name") + GOOD,
    "columns without names": HEADER.replace("gpu_list,user", ",") + GOOD,
    "a cell too many": HEADER + GOOD + "x,1,2,3,1,1000,1,1,n0,0,u,extra\n", "a cell too few": HEADER + GOOD + "x,1,2\n",
    "header alone": HEADER, "an open quote": HEADER + GOOD + 'x,"1,2,3\n', "blanks": " \n\n",
    "NUL": HEADER + GOOD + "x\0,", "cut in a row": (HEADER + GOOD)[:-20], "the same row": HEADER + GOOD + GOOD,
    "a date that was skipped": DATED + "x,2025-03-30 02:30:00,2025-03-30 03:30:00,2025-03-30 04:00:00,1\n",
    "a date that came twice": DATED + "x,2025-10-26 02:30:00,2025-10-26 02:45:00,2025-10-26 02:10:00,1\n",
    "mixed zones": DATED + "x,2025-06-01T00:00:00Z,2025-06-01 01:00:00,2025-06-01T02:00:00+09:00,1\n",
    "no such date": DATED + "x,2025-02-30 00:00:00,2025-13-01 00:00:00,,1\n",
    "Latin-1": (HEADER + GOOD).encode() + b"caf\xe9,0,0,60,1,1000,1,1,n0,0,u\n", "noise": bytes(range(256)) * 20,
    "cut gzip": gzip.compress((HEADER + GOOD).encode())[:-12], "cut UTF-16": (HEADER + GOOD).encode("utf-16")[:-1]}
# each is a name that is read as it stands: strange, and not wrong
NAMES = ["=cmd|' /C calc'!A0", "<script>alert(1)</script>", "\"he said \"\"no\"\", 'twice'\"", "../../etc/passwd",
         "\u202e\u0627", "x" * 10_000, '"a,b"', "{{7*7}}${x}%n", "\U0001f600"]
STRANGE = HEADER + GOOD + "".join(
    f"{name},0,{100 + 9 * number},{109 + 9 * number},1,500,1000,1024,n0,1,v\n" for number, name in enumerate(NAMES))
LINES = ACCOUNTS.splitlines(keepends=True)
OTHERS = {
    "sacct, cut": ("sacct", ACCOUNTS[:-30]), "sacct, no header": ("sacct", "".join(LINES[1:])),
    "sacct, twice": ("sacct", ACCOUNTS + LINES[-1]), "sacct, header alone": ("sacct", LINES[0])}
CODES = {"a billion GPUs": 1, "no times": 1, **dict.fromkeys(NOTHING, 2)}  # of a check of what is in `TAKEN`; else 0


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("nodes.json").write_bytes(NODES)
    Path("own.csv").write_text(OWN)


def write(data: str | bytes) -> None:
    Path("dump").write_bytes(data if isinstance(data, bytes) else data.encode())


def words_of(name: str, data: str | bytes, nodes: str = "own.csv") -> set[tuple[str, str]] | None:
    """Return what ledger and check say of a dump; None if it is refused, in one line that names it."""
    write(data)
    try:
        tables = read_files(name, ["dump"], nodes=[nodes])
    except InputError as error:
        assert "dump" in str(error) and len(str(error).splitlines()) == 1
        return None
    names = tables.tasks["name"]
    assert names.is_unique and not names.str.contains(r"[\r\n\x00]", regex=True).any()
    said = zip(tables.ledger["what"], tables.ledger["reason"], strict=True)
    return {*said, *(("finding", kind) for kind in check_cluster(tables).findings["kind"])}


@pytest.fixture
def usual():
    """Return what is said of the good table."""
    return words_of("csv", HEADER + GOOD)


@pytest.mark.parametrize("kind", TABLES)
def test_a_damaged_table_is_refused_or_leaves_words(kind, usual):
    found = words_of("csv", TABLES[kind])
    assert found is None or found - usual


@pytest.mark.parametrize("text", [
    gzip.compress(STRANGE.encode()), b"\xef\xbb\xbf" + STRANGE.encode(), STRANGE.encode("utf-16"),
    STRANGE.replace("\n", "\r\n")])
def test_a_strange_table_is_read_as_it_stands(text, usual):
    assert words_of("csv", text) == usual
    tasks = read_files("csv", ["dump"], nodes=["own.csv"]).tasks
    assert tasks["name"].tolist() == ["a", "b", *(row[0] for row in csv.reader(NAMES))]


@pytest.mark.parametrize("kind", OTHERS)
def test_a_damaged_dump_of_another_format_is_refused_or_read(kind):
    words_of(*OTHERS[kind], "nodes.json")


@pytest.mark.parametrize("kind", [*REFUSED, *TAKEN])
def test_a_damaged_dump_of_pods_is_refused_or_read_and_checked(kind, capsys):
    write({**REFUSED, **TAKEN}[kind])
    code = call("read", "k8s", "nodes.json", "dump", "--out", "out")
    error = capsys.readouterr().err
    assert code == (0 if kind in TAKEN else 2) and "Traceback" not in error
    if code:
        assert len(error.splitlines()) == 1 and "dump" in error and not Path("out").exists()
    else:
        assert set(content("out")) == {*CLUSTER_FILES, CLUSTER_RECORD} and call("check", "out") == CODES.get(kind, 0)


USUAL = dict(zip(HEADER.strip().split(","), "x,10,20,90,1,500,1000,1024,,,v".split(","), strict=True))
ROWS = [",".join((USUAL | {"name": f"x{number}"} | cells).values()) for number, cells in enumerate(CELLS)]
PODS = [pod for data in TAKEN.values() if data[:1] == b"{" for pod in json.loads(data)["items"]]
for one in PODS:
    if isinstance(one["spec"], dict):
        one["spec"].pop("nodeName", None)  # so that a few do not fill the nodes


@pytest.mark.parametrize(("name", "data"), [
    ("csv", STRANGE + "\n".join(ROWS)), ("k8s", json.dumps({"kind": "List", "items": PODS}))])
def test_every_question_about_damaged_rows_has_an_answer_or_one_line(name, data, monkeypatch, capsys):
    """Explain two tasks, replay the cluster, and place a new task in it."""
    monkeypatch.setattr(report, "svgs_of", lambda charts: None if charts() else {})  # made, and not drawn
    write(data)
    assert call("read", name, "dump", "--nodes", "own.csv" if name == "csv" else "nodes.json", "--out", "out") == 0
    before = content("out")
    names = pd.read_csv("out/tasks.csv", dtype=str, keep_default_na=False)["name"]
    Path("new.csv").write_text("name,num_gpus,gpu_milli,cpu_milli,memory_mib\nnew one,1,500,1000,1024\n")
    capsys.readouterr()
    for number, words in enumerate((
            ("replay", "--policies", "fgd", "--backfill", "first-fit"), ("explain", f"--task={names.iloc[0]}"),
            ("explain", f"--task={names.iloc[-1]}"), ("place", "--tasks", "new.csv"))):
        command, *options = words
        code = call(command, "out", *options, "--out", f"answer{number}")
        error = capsys.readouterr().err
        assert code in (0, 1, 2) and "Traceback" not in error and "Warning" not in error, error
        lines = [line for line in error.splitlines() if "warning:" not in line and "compiling" not in line]
        assert len(lines) == (code == 2) and Path(f"answer{number}").exists() == (code < 2), error
        assert code == 0 or command != "replay"
    assert content("out") == before


def test_a_folder_that_cannot_be_written_is_read_from_and_named_as_a_place_for_results(capsys):
    locked = Path("locked")
    locked.mkdir()
    (locked / "dump").write_text(HEADER + GOOD)
    locked.chmod(0o555)
    try:
        before = content(locked)
        assert call("read", "csv", "locked/dump", "--nodes", "own.csv", "--out", "mine") == 0
        capsys.readouterr()
        places = [*(["locked/out"] if os.geteuid() else []), "/proc/out", "locked/dump/out"]  # no folder for anybody
        for place in places:
            assert_refused(call("read", "csv", "locked/dump", "--nodes", "own.csv", "--out", place), capsys, place)
            assert_refused(call("replay", "mine", "--policies", "fgd", "--out", place), capsys, place)
        assert content(locked) == before
    finally:
        locked.chmod(0o755)
