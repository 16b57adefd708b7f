"""`sched-lab read` and `sched-lab check`: exit codes, damaged files, and folders that are whole or not there."""
import gzip
import json
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from sched_lab.fleet.read.tables import CLUSTER_FILES, CLUSTER_RECORD
from sched_lab.lab.frames import embedded
from tests.command_line import assert_refused, call, content
from tests.fleet.test_slurm import ACCOUNTS
from tests.fleet.test_traces import SAMPLES

NODES, PODS = (embedded(f"fleet/{name}.json").read_bytes() for name in ("nodes", "pods"))
POD = json.loads(PODS)["items"][0]


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("nodes.json").write_bytes(NODES)
    Path("pods.json").write_bytes(PODS)


def pods(change) -> bytes:
    """Change the dump of pods."""
    dump = json.loads(PODS)
    change(dump["items"])
    return json.dumps(dump).encode()


def renamed(name: str):
    def change(items):
        items[0]["metadata"]["name"] = name
    return pods(change)


def test_the_path_of_a_new_user(capsys):
    assert call("read", "k8s", "nodes.json", "pods.json", "--out", "out") == 0
    assert set(content("out")) == {*CLUSTER_FILES, CLUSTER_RECORD}
    before = content("out")
    assert call("check", "out") == 0 and "usable: " in capsys.readouterr().out
    assert call("check", "out", "--json") == 0 and json.loads(capsys.readouterr().out)["exit_code"] == 0
    assert call("read", "auto", "nodes.json", "pods.json", "--out", "other") == 0
    assert content("out") == before and content("other")["tasks.csv"] == before["tasks.csv"]


def test_a_cluster_is_kept_replaced_by_force_or_left_alone(capsys):
    for _ in range(2):
        assert call("read", "k8s", "nodes.json", "pods.json", "--out", "out") == 0
    assert "(kept)" in capsys.readouterr().out
    before = content("out")
    assert call("read", "k8s", "nodes.json", "--out", "out") == 2 and content("out") == before
    assert call("read", "k8s", "nodes.json", "--out", "out", "--force") == 0
    assert "there are no tasks" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [
    ("slrum", "pods.json"), ("auto", "absent.json"), ("auto", "."), ("sacct", "pods.json"), ("swf", "pods.json"),
    ("csv", "pods.json", "--map", "a"), ("csv", "pods.json", "--map", "a=b", "--map", "a=c"),
    ("k8s", "pods.json", "--size-to", "80"), ("k8s", "pods.json", "--nodes", "pods.json"),
    ("k8s", "pods.json", "--nodes", "absent.json"), ("auto", "pods.json", "/dev/null"),
    ("auto", "naive.csv", "--zone", "Mars")])
def test_what_cannot_be_read_is_one_line(arguments, capsys):
    Path("naive.csv").write_text("name,num_gpus,submit_s\na,1,2025-01-01 00:00:00\n")
    assert_refused(call("read", *arguments, "--out", "out"), capsys, "sched-lab: ")


REFUSED = {
    "truncated": PODS[:-40], "cut in a text": PODS[:PODS.index(b"notebook") + 3], "empty": b"", "blanks": b" \n\n",
    "cut gzip": gzip.compress(PODS)[:-20], "noise": bytes(range(256)) * 40, "zip head": b"PK\x03\x04" + PODS,
    "cut UTF-16": PODS.decode().encode("utf-16")[:-1], "latin-1": PODS.replace(b"notebook", b"caf\xe9"),
    "NaN": PODS.replace(b'"items"', b'"x": NaN, "items"', 1), "deep": b"[" * 100_000, "html": b"<html>login</html>",
    "a name twice": PODS.replace(b'"kind"', b'"kind": "Node", "kind"', 1)}
TAKEN = {
    "gzip": gzip.compress(PODS), "byte order mark": b"\xef\xbb\xbf" + PODS, "UTF-16": PODS.decode().encode("utf-16"),
    "lines of Windows": PODS.replace(b"\n", b"\r\n"), "duplicate pods": pods(lambda items: items.append(items[0])),
    "same name": pods(lambda items: items.append(POD | {"metadata": POD["metadata"] | {"uid": "other"}})),
    "quotes": renamed('he said "no", \'twice\''), "markup": renamed("<script>alert(1)</script>&amp;"),
    "formula": renamed("=cmd|' /C calc'!A0"), "path": renamed("../../etc/passwd"), "lines": renamed("a\r\nb\0c\u2028d"),
    "right to left": renamed("\u202e\u0627"), "no name": renamed(""), "a long name": renamed("x" * 10_000),
    "wrong types": pods(lambda items: items.__setitem__(0, {"kind": "Pod", "metadata": [], "spec": 7, "status": None})),
    "negative": PODS.replace(b'"2Gi"', b'"-2Gi"'), "a billion GPUs": PODS.replace(
        b'"nvidia.com/gpu.shared": "1"', b'"nvidia.com/gpu.shared": "1000000000"'),
    "no times": PODS.replace(b"2026-", b"year "), "year 9999": PODS.replace(b"2026-", b"9999-"),
    "other zone": PODS.replace(b":00Z", b":00+14:00"), "a number": b"7", "a text": b'"pods"',
    "no items": b'{"apiVersion": "v1", "kind": "List", "items": []}'}

NOTHING = ("a number", "a text", "no items")


@pytest.mark.parametrize("kind", ["duplicate pods", "same name", "negative", "no name", "wrong types", *NOTHING])
def test_what_was_not_taken_as_it_stood_is_in_the_ledger(kind):
    Path("odd.json").write_bytes(TAKEN[kind])
    said = []
    for name in ("pods", "odd"):
        assert call("read", "k8s", "nodes.json", f"{name}.json", "--out", name) == 0
        said.append(set(pd.read_csv(f"{name}/ledger.csv")["reason"]))
    assert said[1] - said[0]


def test_an_archive_with_both_files(capsys):
    with zipfile.ZipFile("dump.zip", "w") as archive:
        archive.write("nodes.json")
        archive.write("pods.json")
        archive.writestr("../README", "not a dump")
    assert call("read", "auto", "dump.zip", "--out", "out") == 0
    assert not Path("../README").exists() and "no format knows this file" in Path("out/ledger.csv").read_text()


def test_check_of_a_trace_without_nodes_is_2_and_says_what_to_give(capsys):
    Path("swf.txt").write_text(SAMPLES["helios"])
    assert call("read", "auto", "swf.txt", "--out", "out") == 0
    assert "--size-to" in capsys.readouterr().err
    assert call("check", "out") == 2 and "--size-to 80%" in capsys.readouterr().out
    assert call("read", "auto", "swf.txt", "--size-to", "80%", "--out", "sized") == 0
    assert call("check", "sized") == 0


def test_accounts_with_nodes_of_another_format(capsys):
    Path("sacct.txt").write_text(ACCOUNTS)
    assert call("read", "sacct", "sacct.txt", "--nodes", "nodes.json", "--zone", "Europe/Berlin", "--out", "out") == 0
    assert "dates without a zone, read as Europe/Berlin" in Path("out/ledger.csv").read_text()
    assert call("check", "out") == 1 and "unknown node" in capsys.readouterr().out


