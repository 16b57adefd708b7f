"""A real scheduler binds 2,000 pods of openb through `sched-lab serve`, each where `inflate` puts it, GPU for GPU.

The programs are found as controller-runtime's envtest finds them: KUBEBUILDER_ASSETS names a folder with etcd,
kube-apiserver and kube-scheduler. Without it, all but those three are tried: the same objects, the same comparison,
and the same `sched-lab serve`, against a small API server and a scheduler of a dozen lines. A trial by hand is in
tools/try_control_plane.py.

Nodes are called n00000, n00001, ... in the order of the cluster of `inflate`, since ties go to the first name. Pods
are created one at a time, the next when the last has its node: so they are decided in order whatever the queue does.
"""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from sched_lab.cluster import read_nodes
from sched_lab.fleet.live.journal import replay_journal
from sched_lab.lab.frames import embedded
from sched_lab.lab.jit import interpreted
from sched_lab.online.inflation import inflate
from sched_lab.online.model import gpu_indices
from sched_lab.traces import Arrivals, find_data, read_tasks
from tests.fleet.fake_api import FakeApi, kubeconfig_for, served
from tests.waiting import HANG_S, until

ROOT = Path(__file__).parents[2]
NAMESPACE = "lab"
GPU_INDEX = "alibabacloud.com/gpu-index"
NUM_PODS = 2000
ASSETS = os.environ.get("KUBEBUILDER_ASSETS", "")
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
LACKING = [name for name in PROGRAMS if not shutil.which(name, path=ASSETS or os.devnull)]


# --- what is created, and what is expected


def trace():
    """Nodes and tasks of openb, and the file of the tasks; the embedded ones where openb is not there."""
    nodes = find_data("openb/openb_node_list_gpu_node.csv") or embedded("nodes.csv")
    tasks = find_data("openb/openb_pod_list_default.csv") or embedded("tasks.csv")
    return read_nodes(nodes), read_tasks(tasks), tasks


def node_name(row: int) -> str:
    return f"n{row:05d}"


def pod_name(row: int) -> str:
    return f"p{row:05d}"


def node_body(cluster, row: int) -> dict:
    """Return a node as openb's simulator states it, ready for pods without a kubelet."""
    amounts = {"cpu": f"{cluster.cpu_milli[row]}m", "memory": f"{cluster.memory_mib[row]}Mi", "pods": "500",
               "alibabacloud.com/gpu-count": str(cluster.num_gpus[row]),
               "alibabacloud.com/gpu-milli": str(1000 * cluster.num_gpus[row])}
    model = {"alibabacloud.com/gpu-card-model": cluster.gpu_model[row]} if cluster.gpu_model[row] else {}
    condition = {"type": "Ready", "status": "True", "reason": "fake", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": node_name(row), "labels": model},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}}


def pod_body(tasks, row: int, number: int) -> dict:
    """Return a pod that asks for what a task asks for; its GPUs in annotations."""
    said = {}
    if tasks.num_gpus[row]:
        said = {"alibabacloud.com/gpu-count": str(tasks.num_gpus[row]),
                "alibabacloud.com/gpu-milli": str(tasks.gpu_milli[row]),
                "alibabacloud.com/gpu-card-model": tasks.gpu_spec[row]}
    amounts = {"cpu": f"{tasks.cpu_milli[row]}m", "memory": f"{tasks.memory_mib[row]}Mi"}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    return {"kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": pod_name(number), "namespace": NAMESPACE,
                         "annotations": {name: text for name, text in said.items() if text}},
            "spec": {"containers": [container], "automountServiceAccountToken": False}}


def expected(cluster, tasks, rows) -> list[tuple[str, str]]:
    """Return node and GPUs of each arrival, as `inflate` places them; all must find room."""
    run = inflate(cluster, tasks, "fgd", arrivals=Arrivals(rows, np.arange(len(cluster))))
    assert (run.placements.node >= 0).all(), "the comparison is of pods that fit"
    masks = run.placements.gpu_mask.tolist()
    return [(node_name(node), "-".join(map(str, gpu_indices(mask))))
            for node, mask in zip(run.placements.node.tolist(), masks, strict=True)]


def place_of(body: dict) -> tuple[str, str]:
    """Return node and GPUs of a pod as the API server has them."""
    return body["spec"].get("nodeName", ""), body["metadata"].get("annotations", {}).get(GPU_INDEX, "")


def differences(found: list[tuple[str, str]], wanted: list[tuple[str, str]]) -> list[str]:
    """Return a line for each pod that is elsewhere, or on other GPUs."""
    return [f"{pod_name(number)}: {one}, and inflate has {other}"
            for number, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other]


# --- programs


class Client:
    """A few calls of the API, without the official client, which is under test itself."""

    def __init__(self, address: str, token: str = "", timeout_s: float = HANG_S) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self.context = ssl._create_unverified_context() if address.startswith("https") else None

    def call(self, method: str, path: str, body: dict | None = None):
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.address + path, data, self.headers, method=method)
        with urlopen(request, timeout=self.timeout_s, context=self.context) as response:
            text = response.read()
        return json.loads(text) if text[:1] == b"{" else text.decode()

    def create_nodes(self, cluster) -> None:
        for row in range(len(cluster)):
            body = node_body(cluster, row)
            made = self.call("POST", "/api/v1/nodes", body)
            if not made.get("status", {}).get("allocatable"):
                self.call("PUT", f"/api/v1/nodes/{node_name(row)}/status", made | {"status": body["status"]})

    def create_pod(self, body: dict) -> None:
        self.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body)

    def wait_for_node(self, name: str) -> dict:
        """Return a pod when it has a node."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
        return until(lambda: body if place_of(body := self.call("GET", path))[0] else None, f"{name} has no node")


def answers(address: str, path: str, token: str = "", timeout_s: float = HANG_S):
    """Whether a server answers 200 at a path."""
    try:
        return Client(address, token, timeout_s).call("GET", path) is not None
    except (HTTPError, URLError, OSError):
        return False


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def begun(command: list, log: Path) -> subprocess.Popen:
    """Start a program, which appends what it says to a file, in the folder of that file."""
    with open(log, "ab") as file:
        return subprocess.Popen([str(part) for part in command], cwd=log.parent, stdout=file, stderr=file,
                                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"})


@contextmanager
def running(name: str, command: list, folder: Path, is_ready):
    """Run a program until the end of the block; lend what begins it anew.

    What it says is in a file, and printed if something goes wrong.
    """
    log = folder / f"{name}.log"

    def restart() -> None:
        nonlocal process
        process.kill()
        process.wait()
        process = begun(command, log)

    process = begun(command, log)
    try:
        until(lambda: process.poll() is not None or is_ready(), f"{name} is not ready")
        assert process.poll() is None
        yield restart
        assert process.poll() is None
    except BaseException:
        state = "runs" if process.poll() is None else f"has ended with {process.returncode}"
        print(f"{name} {state}; its last words: {log.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        stop(process)


def stop(process: subprocess.Popen) -> None:
    """End a program, kindly first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                continue


def scheduler_config(kubeconfig: Path, extender: str) -> dict:
    """Return a KubeSchedulerConfiguration that asks one extender about every pod, those without GPUs, too.

    A pod whose question had no answer is asked about again after a second, not after up to ten as by default.
    """
    return {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 2000, "burst": 4000},
            "leaderElection": {"leaderElect": False}, "percentageOfNodesToScore": 100, "podMaxBackoffSeconds": 1,
            "profiles": [{"schedulerName": "default-scheduler"}],
            "extenders": [{"urlPrefix": extender, "filterVerb": "filter", "bindVerb": "bind",
                           "nodeCacheCapable": True, "httpTimeout": "10s", "ignorable": False}]}


LEASE_S = 3


class Replica:
    """`sched-lab serve` in mode decide, in a process of its own that can be stopped, killed and begun again."""

    def __init__(self, folder: Path, number: int, port: int, kubeconfig: Path, target: Path, lease_s: int) -> None:
        self.port = port
        self.name = f"sched-lab-{number}"
        self.journal = folder / f"journal-{number}"
        self.log = folder / f"{self.name}.log"
        self.is_ready = False
        self.is_stopped = False
        self.command = [
            sys.executable, "-m", "sched_lab", "serve", "--mode", "decide", "--policy", "fgd", "--host", "127.0.0.1",
            "--port", self.port, "--kubeconfig", kubeconfig, "--journal", self.journal, "--journal-size", "1",
            "--target", target, "--lease", f"{NAMESPACE}/bridge", "--lease-seconds", lease_s, "--rest", lease_s / 3,
            "--insecure"]
        self.begin()

    def begin(self) -> None:
        self.process = begun(self.command, self.log)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        self.is_stopped = number == signal.SIGSTOP
        if number == signal.SIGKILL:
            self.process.wait(HANG_S)


class Service:
    """One address for replicas, as a Service of Kubernetes is: who is ready gets the calls, the others none."""

    def __init__(self, replicas: list[Replica]) -> None:
        self.replicas = replicas
        self.is_open = True
        self.decided_s: list[float] = []  # when a filter found a node
        self.num_bound = 0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        jobs = [(self.server.serve_forever, ()), *((self.probe, (one,)) for one in replicas)]
        for job, arguments in jobs:
            threading.Thread(target=job, args=arguments, daemon=True).start()

    def probe(self, replica: Replica) -> None:
        """Ask a replica ten times a second whether it is ready."""
        while self.is_open:
            replica.is_ready = answers(f"http://127.0.0.1:{replica.port}", "/readyz", timeout_s=1)
            time.sleep(0.1)

    def leader(self) -> Replica | None:
        return next((one for one in self.replicas if one.is_ready), None)

    def handler(self):
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                leader = service.leader()
                status, text = 503, b'{"Error": "no replica is ready"}'
                if leader is not None:
                    request = Request(f"http://127.0.0.1:{leader.port}{self.path}", body,
                                      {"Content-Type": "application/json"})
                    try:
                        with urlopen(request, timeout=5) as response:
                            status, text = 200, response.read()
                        if self.path == "/bind":
                            service.num_bound += json.loads(text) == {"Error": ""}
                        elif json.loads(text)["NodeNames"]:
                            service.decided_s.append(time.monotonic())
                    except HTTPError as refused:
                        status, text = refused.code, refused.read()
                    except (OSError, HTTPException) as trouble:
                        text = json.dumps({"Error": str(trouble)}).encode()
                head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
                self.wfile.write(head.encode() + text)

        return Handler


@contextmanager
def extender_served(folder: Path, kubeconfig: Path, target: Path, lease_s: int = LEASE_S):
    """Run two replicas of `sched-lab serve` in mode decide; lend their Service."""
    replicas = [Replica(folder, number, port, kubeconfig, target, lease_s) for number, port in enumerate(free_ports(2))]
    service = Service(replicas)
    try:
        until(lambda: service.leader() or any(one.process.poll() is not None for one in replicas))
        assert service.leader(), "no replica leads"
        yield service
    except BaseException:
        for one in replicas:
            print(f"{one.name}: {one.process.poll()}; {one.log.read_text(errors='replace')[-3000:]}")
        raise
    finally:
        service.is_open = False
        service.server.shutdown()
        service.server.server_close()
        for one in replicas:
            if one.is_stopped:
                one.send(signal.SIGCONT)
            stop(one.process)


# --- the real control plane


def server_command(folder: Path, etcd: str, port: int) -> list:
    """Return the command of kube-apiserver; writes its key and token."""
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text('secret,admin,admin,"system:masters"\n')
    return [
        shutil.which("kube-apiserver", path=ASSETS), f"--etcd-servers={etcd}", "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={folder / 'tokens.csv'}", "--authorization-mode=RBAC",
        f"--service-account-issuer=https://127.0.0.1:{port}", f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
    ]


@contextmanager
def control_plane(folder: Path):
    """Run etcd and kube-apiserver; lend a client, a kubeconfig file, and what begins the server anew."""
    client_port, peer_port, port = free_ports(3)
    etcd = f"http://127.0.0.1:{client_port}"
    command = [shutil.which("etcd", path=ASSETS), "--data-dir", folder / "etcd", "--listen-client-urls", etcd,
               "--advertise-client-urls", etcd, "--listen-peer-urls", f"http://127.0.0.1:{peer_port}",
               "--unsafe-no-fsync"]
    address = f"https://127.0.0.1:{port}"
    with running("etcd", command, folder, lambda: answers(etcd, "/health")):
        command = server_command(folder, etcd, port)
        with running("kube-apiserver", command, folder, lambda: answers(address, "/readyz", "secret")) as restart:
            yield Client(address, "secret"), kubeconfig_for(address, folder / "kubeconfig", token="secret"), restart


@contextmanager
def scheduler(folder: Path, kubeconfig: Path, extender: str):
    """Run kube-scheduler, which asks an extender."""
    config = folder / "scheduler.json"
    config.write_text(json.dumps(scheduler_config(kubeconfig, extender)))
    command = [shutil.which("kube-scheduler", path=ASSETS), f"--config={config}", "--secure-port=0"]
    with running("kube-scheduler", command, folder, lambda: True):
        yield


def made_namespace(client: Client) -> bool:
    """Whether the namespace is there; a server that has just started may not take it yet."""
    try:
        client.call("POST", "/api/v1/namespaces", {"kind": "Namespace", "apiVersion": "v1", "metadata": {
            "name": NAMESPACE}})
    except HTTPError as trouble:
        return trouble.code == 409
    except URLError:
        return False
    return True


@contextmanager
def real_plane(folder: Path, cluster, target: Path, lease_s: int = LEASE_S):
    """Run a control plane whose scheduler asks two replicas; lend a client, their Service, and a restart."""
    with control_plane(folder) as (client, kubeconfig, restart):
        until(lambda: made_namespace(client))
        client.create_nodes(cluster)
        with (extender_served(folder, kubeconfig, target, lease_s) as service,
              scheduler(folder, kubeconfig, service.address)):
            yield client, service, restart


needs_control_plane = pytest.mark.skipif(
    bool(LACKING), reason="KUBEBUILDER_ASSETS names no folder with etcd, kube-apiserver and kube-scheduler "
    f"({', '.join(LACKING)} missing): no real scheduler is asked")


@needs_control_plane
@pytest.mark.timeout(3600)
def test_a_real_scheduler_places_2000_pods_as_inflate_does(tmp_path):
    pytest.importorskip("kubernetes", reason="the extra `kubernetes` is not installed")
    cluster, tasks, target = trace()
    rows = np.arange(NUM_PODS)
    wanted = expected(cluster, tasks, rows)
    with real_plane(tmp_path, cluster, target) as (client, _, _):
        found = []
        for number, row in enumerate(rows.tolist()):
            client.create_pod(pod_body(tasks, row, number))
            found.append(place_of(client.wait_for_node(pod_name(number))))
            assert found[-1] == wanted[number], differences(found, wanted[: number + 1])
    assert differences(found, wanted) == [] and len(found) == NUM_PODS


@needs_control_plane
def test_pods_of_a_group_start_together_on_a_real_control_plane(tmp_path):
    """Two of three get nothing, as their events say; with the third all have their place; larger ones never."""
    pytest.importorskip("kubernetes", reason="the extra `kubernetes` is not installed")
    cluster, tasks, target, rows = small(4)

    def create(group: str, number: int, num_gpus: int) -> None:
        body = pod_body(tasks, rows[0], 0)
        said = {"kueue.x-k8s.io/pod-group-total-count": "3", "alibabacloud.com/gpu-count": str(num_gpus),
                "alibabacloud.com/gpu-milli": "1000"}
        client.create_pod(body | {"metadata": {"name": f"{group}-{number}", "namespace": NAMESPACE, "annotations": said,
                                               "labels": {"kueue.x-k8s.io/pod-group-name": group}}})

    def told(sentence: str) -> bool:
        events = client.call("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        return any(sentence in event["message"] for event in events)

    with real_plane(tmp_path, cluster, target) as (client, extender, _):
        for number in range(2):
            create("small", number, 1)
        until(lambda: told("2 of 3 pods of group kueue.x-k8s.io lab/small are there"))
        assert extender.num_bound == 0
        create("small", 2, 1)
        places = [place_of(client.wait_for_node(f"small-{number}")) for number in range(3)]
        assert len({*places}) == 3
        for number in range(3):
            create("large", number, cluster.num_gpus.max())
        until(lambda: told("of 3 parts of group kueue.x-k8s.io lab/large fit"))
        assert extender.num_bound == 3


# --- the same without the three programs


def schedule_once(client: Client, extender: Client, names: list[str], body: dict) -> bool:
    """Ask an extender about one pod, and bind it, as the scheduler does in mode decide; whether it worked."""
    with suppress(OSError):  # also whatever answers with a refusal
        pod = client.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{body['metadata']['name']}")
        answer = extender.call("POST", "/filter", {"Pod": pod, "Nodes": None, "NodeNames": names})
        if answer["Error"] or not answer["NodeNames"]:
            return False
        assert len(answer["NodeNames"]) == 1, answer
        meta = pod["metadata"]
        request = {"PodName": meta["name"], "PodNamespace": NAMESPACE, "PodUID": meta["uid"],
                   "Node": answer["NodeNames"][0]}
        return extender.call("POST", "/bind", request) == {"Error": ""}
    return False


def small(count: int = 12, num_pods: int = 16):
    """Take a few nodes and tasks of the trace."""
    cluster, tasks, target = trace()
    nodes = cluster.take(np.linspace(0, len(cluster) - 1, count).astype(int))
    fits = [row for row in range(400) if not tasks.gpu_spec[row] and tasks.num_gpus[row] <= 1]
    return nodes, tasks, target, np.array(fits[:num_pods])


def replayed(replicas: list[Replica]) -> Counter[tuple[str, str, str]]:
    """Count decisions by pod, node and GPUs in the journals of all replicas, each of which plays itself again."""
    frames = [replay_journal(one.journal) for one in replicas]
    assert all(frame["same"].all() and not frame.attrs["missing"] for frame in frames)
    found = [(pod.partition("/")[2], json.loads(said)) for frame in frames
             for pod, said in frame.loc[frame["what"] == "decision", ["pod", "said"]].itertuples(index=False)]
    return Counter((pod, said.get("node", ""), said.get("gpu_list", "")) for pod, said in found)


def test_two_replicas_place_pods_as_inflate_does_for_a_small_scheduler(tmp_path, monkeypatch):
    """All of the real test but the three programs; the leader is stopped and goes on too late, the next is killed."""
    for name in ("kubernetes", "uvicorn", "starlette"):
        pytest.importorskip(name, reason="the extra `kubernetes` is not installed")
    monkeypatch.setenv("SCHED_LAB_COMPILE", "never")
    cluster, tasks, target, rows = small()
    with interpreted(is_small=True):
        wanted = expected(cluster, tasks, rows)
    api = FakeApi()
    with served(api) as address, ExitStack() as stack:
        client = Client(address)
        client.create_nodes(cluster)
        service = stack.enter_context(
            extender_served(tmp_path, kubeconfig_for(address, tmp_path / "kubeconfig"), target))
        names = [node_name(row) for row in range(len(cluster))]
        extender = Client(service.address)
        found = []
        for number, row in enumerate(rows.tolist()):
            if number == 5:
                first = until(service.leader)
                first.send(signal.SIGSTOP)
            elif number == 10:
                second = until(service.leader)
                assert second is not first
                first.send(signal.SIGCONT)  # and its lease has run out
                asked = Request(f"http://127.0.0.1:{first.port}/filter", b"{}", {"Content-Type": "application/json"})
                with pytest.raises(HTTPError, match="503"):
                    urlopen(asked, timeout=HANG_S)
                second.send(signal.SIGKILL)
            body = pod_body(tasks, row, number)
            client.create_pod(body)
            until(lambda body=body: schedule_once(client, extender, names, body))
            found.append(place_of(client.wait_for_node(pod_name(number))))
        assert until(service.leader) is first
    assert differences(found, wanted) == []
    assert replayed(service.replicas).keys() >= {(pod_name(number), *place) for number, place in enumerate(found)}
