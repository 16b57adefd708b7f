"""`sched-lab recommend` and `serve`: exit codes, one line for what is wrong, and a whole pod's way over HTTP."""
import http.client
import http.server
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sched_lab.fleet.live.bridge import ApiError
from sched_lab.fleet.live.bridge_command import server_of, workload_in
from sched_lab.fleet.live.journal import replay_journal
from sched_lab.lab.frames import InputError
from tests.command_line import PROGRAM, assert_refused, call
from tests.fleet.fake_api import FakeApi, kubeconfig_for, kubeconfig_of, served
from tests.fleet.objects import listed, openb_node, openb_pod
from tests.waiting import HANG_S, until

# --- recommend

@pytest.fixture
def dump(tmp_path, monkeypatch):
    """Work in a folder with a node of two GPUs and four pods, of which one runs."""
    monkeypatch.chdir(tmp_path)
    Path("nodes.json").write_text(json.dumps(listed(openb_node("n0"), openb_node("n1", 1, "A10"))))
    Path("pods.json").write_text(json.dumps(listed(
        openb_pod("runs", 700, at="n0", **{"alibabacloud.com/gpu-index": "0"}), openb_pod("half", 500),
        openb_pod("whole"), openb_pod("pair", count=2))))
    return tmp_path


FILES = ("--nodes", "nodes.json", "--pods", "pods.json")


def test_recommend_says_where_and_why_not(dump, capsys):
    code = call("recommend", *FILES)
    lines = capsys.readouterr().out.splitlines()
    assert code == 1 and lines[-2] == "fgd: 2 of 3 pending pods can run"
    assert re.fullmatch(r"team/half: n[01], GPU [01]", lines[0])
    assert re.fullmatch(r"team/whole: n[01], GPU [01]", lines[1])
    assert lines[2].startswith("team/pair: no node of 2 (") and "lacks" in lines[2]
    assert call("recommend", *FILES, "--policy", "pwr-fgd:0.1", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["policy"] == "pwr-fgd:0.1" and [one["node"] == "" for one in told["pods"]] == [False, False, True]


def test_recommend_is_0_if_all_can_run(dump, capsys):
    Path("pods.json").write_text(json.dumps(listed(openb_pod("half", 500))))
    assert call("recommend", *FILES) == 0
    Path("pods.json").write_text(json.dumps(listed(openb_pod("runs", at="n0"))))
    assert call("recommend", *FILES) == 0
    assert capsys.readouterr().out.splitlines()[-2] == "fgd: 0 of 0 pending pods can run"


def test_recommend_names_what_cannot_be_asked_at_all(dump, capsys):
    Path("tasks.csv").write_text("name,num_gpus,gpu_milli,cpu_milli,memory_mib\nodd,1,1500,1000,1024\n")
    assert call("recommend", "--nodes", "nodes.json", "--pods", "tasks.csv") == 1
    assert "odd: gpu_milli is more than a GPU" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "words"), [
    (("--nodes", "absent.json", "--pods", "pods.json"), "absent.json"), (("--nodes", "nodes.json"), "--pods"),
    ((*FILES, "--policy", "fdg"), "did you mean fgd"), ((*FILES, "--gpu-power", "absent.csv"), "absent.csv")])
def test_recommend_refuses_in_one_line(dump, arguments, words, capsys):
    assert_refused(call("recommend", *arguments), capsys, words)


def test_recommend_refuses_damaged_files(dump, capsys):
    for text in ("", "{", "[]", '{"items": [1]}', "\udcff"):
        Path("pods.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        assert_refused(call("recommend", *FILES), capsys, "sched-lab: ")


# --- serve: what is refused before it starts

@pytest.mark.parametrize(("arguments", "words"), [
    (("--mode", "rule"), "choose one of observe, score, decide"), (("--policy", "fdg"), "did you mean fgd"),
    (("--host", "0.0.0.0"), "reserve GPUs"), (("--host", ""), "--host is empty"),
    (("--gpu-index-annotation", ""), "no name of an annotation"), (("--gpu-index-annotation", "a/b/c"), "'a/b/c'"),
    (("--gpu-index-annotation", "-x"), "'-x'"), (("--gpu-index-annotation", "x" * 64), "no name"),
    (("--dialect", "volcano"), "choose one of openb, hami"),
    (("--dialect", "hami", "--gpu-index-annotation", "a/b"), "not read by the plugin"),
    (("--tls-cert", "cert.pem"), "go together"),
    (("--client-ca", "ca.pem"), "needs TLS"), (("--lapse", "0"), "--lapse"),
    (("--journal-keep", "7w"), "such as 20, 12h"),
    (("--lease", "alone"), "no namespace and name"), (("--lease", "a/b", "--rest", "9"), "more than half"),
    (("--rest", "-1"), "--rest"), (("--lapse", "nan"), "--lapse"),
    (("--port", "65536"), "--port"), (("--kubeconfig", "absent"), "no way to a cluster"),
    (("--target", "absent.csv"), "absent.csv"), (("--token-file", "absent"), "cannot be read"),
    (("--journal", "pods.json"), "not a journal"), (("--journal", "pods.json", "--journal-size", "1"), "File exists"),
    (("--tls-cert", "pods.json", "--tls-key", "pods.json"), "pods.json: TLS cannot be used: there is no certificate")])
def test_serve_refuses_in_one_line(dump, arguments, words, capsys):
    kubeconfig_for("http://127.0.0.1:1", Path("kubeconfig"))
    given = arguments if "--kubeconfig" in arguments else ("--kubeconfig", "kubeconfig", *arguments)
    assert_refused(call("serve", *given), capsys, words)


def test_a_port_that_is_taken_is_one_line(dump, capsys):
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as other:
        port = other.server_address[1]
        kubeconfig_for(f"http://127.0.0.1:{port}", Path("kubeconfig"))
        given = ("--kubeconfig", "kubeconfig", "--port", port, "--journal", "j.jsonl", "--mode", "decide")
        assert_refused(call("serve", *given), capsys, "cannot listen on")
        assert not Path("j.jsonl").exists()


def test_a_target_workload_is_any_file_with_tasks(dump):
    tasks = workload_in("pods.json")
    assert tasks.gpu_milli.tolist() == [700, 500, 1000, 1000] and tasks.num_gpus.tolist() == [1, 1, 1, 2]


# --- serve: an API server that is none, and a pod's way

@pytest.fixture
def api(dump):
    """Serve two nodes, a pod that runs, and one that waits."""
    fake = FakeApi()
    for name in ("n0", "n1"):
        fake.store.create("nodes", openb_node(name, cpu="16"))
    fake.store.create("pods", openb_pod("runs", at="n0", **{"alibabacloud.com/gpu-index": "1"}))
    fake.store.create("pods", openb_pod("new"))
    with served(fake) as address:
        kubeconfig_for(address, Path("kubeconfig"))
        yield fake


class Serving:
    """The command in a process of its own."""

    def __init__(self, *arguments):
        words = [*PROGRAM, "serve", "--kubeconfig", "kubeconfig", "--port", "0", "--rest", "0", *arguments]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True,
                                        env=os.environ | {"SCHED_LAB_COMPILE": "never"})
        self.lines = []

    def __enter__(self):
        for line in self.process.stderr:
            self.lines.append(json.loads(line))
            if self.lines[-1]["message"] == "listening":
                break
        self.connection = http.client.HTTPConnection("127.0.0.1", self.lines[-1]["port"], timeout=HANG_S)
        self.headers = {"Content-Type": "application/json"}
        if token_file := self.lines[-1]["token_file"]:
            self.headers["Authorization"] = f"Bearer {Path(token_file).read_text().strip()}"
        until(lambda: self.ask("readyz", None, "GET")[0] == 200)
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        self.connection.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.lines += map(json.loads, self.process.communicate(timeout=HANG_S)[1].splitlines())
        return self.process.returncode

    def ask(self, verb, content, method="POST"):
        self.connection.request(method, f"/{verb}", content and json.dumps(content), self.headers)
        answer = self.connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text.decode()


BIND = {"PodName": "new", "PodNamespace": "team", "PodUID": "uid-new", "Node": "n0"}


def question(name, count=1):
    return {"Pod": openb_pod(name, count=count), "Nodes": None, "NodeNames": ["n0", "n1"]}


def fill_the_disk(one):
    """Let the journal have no room for a while: nothing is decided until it has.

    A limit on the size of files stands for the disk: writing beyond it fails as on a full one.
    """
    least, most = resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (Path("j.jsonl").stat().st_size + 100, most))
    status, answer = one.ask("filter", question("late"))
    assert status == 503 and "the journal cannot be written (File too large)" in answer["Error"]
    one.connection.close()  # as the server has, after a refusal
    until(lambda: one.ask("readyz", None, "GET") == (503, "the journal cannot be written: File too large\n"))
    assert one.ask("healthz", None, "GET")[0] == 200
    resource.prlimit(one.process.pid, resource.RLIMIT_FSIZE, (least, most))
    until(lambda: one.ask("readyz", None, "GET")[0] == 200)
    assert one.ask("filter", question("late"))[0] == 200
    assert one.end() == 0
    said = [line["message"] for line in one.lines]
    assert sum(words.startswith("no decisions") for words in said) == 1, "\n".join(said)
    assert said.count("decisions are made again") == 1
    assert not any("traceback" in line for line in one.lines)


def refuse_half_a_gang(api, one):
    """Ask for one of two pods that start together, where one GPU is left."""
    api.store.create("podgroups", {"metadata": {"name": "train"}, "spec": {"minMember": 2}})
    pair = [openb_pod(f"part-{number}") for number in range(2)]
    for body in pair:
        body["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
        api.store.create("pods", body)
    asked = question("part-0") | {"Pod": pair[0]}
    whole = "1 of 2 parts of group scheduling.x-k8s.io team/train fit; "
    until(lambda: all(why.startswith(whole) for why in one.ask("filter", asked)[1]["FailedNodes"].values()))
    assert "sched_lab_gangs_waiting 1.0" in one.ask("metrics", None, "GET")[1]


def explain_as_it_decides(one, node, capsys):
    """Ask the bridge from the command line: what it answers for a pod is what was decided."""
    where = ("explain", "--live", f"http://127.0.0.1:{one.connection.port}", "--task")
    assert call(*where, "team/part-1", "--json") == 1  # of its two parts one has room
    assert json.loads(capsys.readouterr().out)["job"]["fit"] == 1
    capsys.readouterr()
    assert call(*where, "team/next", "--out", "why") == 0
    assert f"fgd puts it on {node}, GPU " in capsys.readouterr().out and Path("why/nodes.csv").is_file()
    for arguments, words in (((*where, "team/none"), "knows no pod 'team/none'"),
                             ((*where, "team/next", "--at", "3"), "--live asks a bridge"),
                             ((*where, "team/next", "--token-file", "other"), "answers 401"),
                             (("explain", "--live", "http://127.0.0.1:9", "--task", "p"), "no bridge answers at"),
                             (("explain", "--live", "file:///etc", "--task", "p"), "is no address of a bridge"),
                             (("explain", "--task", "p"), "no cluster is named")):
        Path("other").write_text("wrong")
        assert_refused(call(*arguments), capsys, words)


def test_a_pod_is_filtered_reserved_and_bound(api, capsys):
    api.trouble["event"] = [500]  # delays no decision
    with Serving("--mode", "decide", "--journal", "j.jsonl", "--policy", "fgd", "--events") as one:
        start = one.lines[-1]
        assert start["token_file"]
        assert (start["mode"], start["target"], start["policy"]) == ("decide", "embedded", "fgd")
        status, answer = one.ask("filter", question("new"))
        assert status == 200 and answer["Error"] == "" and len(answer["NodeNames"]) == 1
        chosen = answer["NodeNames"][0]
        api.trouble["bind"] = [may_bind := threading.Event()]
        found = []
        other = http.client.HTTPConnection("127.0.0.1", one.connection.port, timeout=HANG_S)
        binding = threading.Thread(target=lambda: (
            other.request("POST", "/bind", json.dumps(BIND | {"Node": chosen}), one.headers),
            found.append(json.loads(other.getresponse().read()))))
        binding.start()
        status, second = one.ask("filter", question("next"))
        assert status == 200 and second["NodeNames"] and not found  # the pod is not bound yet
        may_bind.set()
        binding.join()
        other.close()
        assert found == [{"Error": ""}]
        until(lambda: api.events)
        assert api.events[0]["involvedObject"]["name"] == "next" and " points; " in api.events[0]["message"]
        body = api.store.get("pods", "new")
        assert body["spec"]["nodeName"] == chosen
        assert re.fullmatch(r"[01]", body["metadata"]["annotations"]["alibabacloud.com/gpu-index"])
        status, text = one.ask("metrics", None, "GET")
        assert 'sched_lab_decisions_total{mode="decide",outcome="fits"} 2.0' in text
        assert "sched_lab_gpus 4.0" in text and "sched_lab_reservations 1.0" in text
        refuse_half_a_gang(api, one)
        explain_as_it_decides(one, second["NodeNames"][0], capsys)
        if hasattr(resource, "prlimit"):  # which is on Linux alone
            fill_the_disk(one)
    played = replay_journal("j.jsonl")
    assert played["same"].all() and (played["what"] == "decision").sum() >= 2


def test_serving_loads_no_charts_no_solvers_and_no_client_of_kubernetes():
    program = ("import sys, sched_lab.fleet.live.bridge_command, sched_lab.fleet.live.serve\n"
               "heavy = {'altair', 'vl_convert', 'matplotlib', 'scipy.optimize', 'scipy.sparse', 'kubernetes'}\n"
               "print(sorted(heavy & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- without a way to an API server

@pytest.mark.parametrize("content", [
    b"", b"hello", b"[]", b"7", b"{", b"a:\n\t- b", b"\0\0", b"\xff\xfe", b"[" * 5000,
    b"!!python/object/apply:os.system ['true']", b'{"contexts": "x"}', *map(str.encode, map(kubeconfig_of, (
        {"server": 7}, {}, {"server": "http://["}, {"server": "ftp://127.0.0.1"}, {"server": None},
        {"server": "https://127.0.0.1:1", "certificate-authority": "absent.pem"})))])
def test_a_kubeconfig_file_that_is_none_is_one_line(dump, content, capsys):
    Path("kubeconfig").write_bytes(content)
    assert_refused(call("serve", "--kubeconfig", "kubeconfig", "--journal", "j.jsonl"), capsys, "kubeconfig",
                   "no way to a cluster")
    assert not Path("j.jsonl").exists()


def test_nodes_in_requests_need_no_api_server_and_binds_are_refused(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    server = server_of(None, True)
    for ask in (server.bind, server.pod):
        with pytest.raises(ApiError, match="give --kubeconfig FILE") as refused:
            ask("team", "p")
        assert not refused.value.is_unsure  # so GPUs are free again at once
    with pytest.raises(InputError, match="no way to a cluster"):
        server_of(None, False)
    with pytest.raises(InputError):
        server_of(tmp_path / "absent.yaml", True)
