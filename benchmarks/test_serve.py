"""Whole HTTP calls of the extender on loopback, from another process: latency of a decision, decisions a second.

    pytest benchmarks/test_serve.py --benchmark-only -s

The server is a process of its own with a cluster in memory, a journal, and an API that binds at once. A decision is
a filter with the names of all nodes, on one kept connection; a bind follows, which is not in its latency.
"""
import http.client
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

PAIRS = 1000
ORDERS = 20  # of the names: the scheduler sends the same nodes in ever another order


def serve_nodes(num_nodes, policy, folder):
    """Serve copies of the embedded cluster, and say the port on standard output."""
    from sched_lab.cluster import read_nodes
    from sched_lab.fleet.live.bridge import Bridge
    from sched_lab.fleet.live.core import LiveCluster, LiveNode, LiveSettings, NodeSeen
    from sched_lab.fleet.live.journal import Journal
    from sched_lab.fleet.live.serve import Extender, warm_up
    from sched_lab.lab.access import Access, listen
    from sched_lab.lab.frames import embedded
    from sched_lab.lab.web import Limits, serve

    class AtOnce:
        def bind(self, *arguments):
            pass

    settings = LiveSettings(policy)
    journal = Journal(Path(folder, "journal.jsonl"), LiveCluster(settings))
    bridge = Bridge(journal)
    cluster = read_nodes(embedded("nodes.csv"))
    for number in range(num_nodes):
        row = number % len(cluster)
        bridge.tell(NodeSeen(LiveNode(
            f"n{number:05d}", str(cluster.gpu_model[row]), int(cluster.num_gpus[row]),
            int(cluster.cpu_milli[row]), int(cluster.memory_mib[row]))))
    extender = Extender(bridge, AtOnce(), Limits(), warm=lambda: warm_up(settings))
    with listen(Access(is_insecure=True), "reserve GPUs") as listener:
        print(listener.port, flush=True)
        serve(extender, listener)


def questions(num_nodes, count):
    """Bodies of filters and of binds, drawn from the embedded tasks."""
    from sched_lab.traces import default_tasks

    tasks = default_tasks()
    stream = np.random.default_rng(0)
    names = np.array([f"n{number:05d}" for number in range(num_nodes)], object)
    orders = [json.dumps(stream.permutation(names).tolist()).encode() for _ in range(ORDERS)]
    rows = stream.integers(len(tasks), size=count)
    for number, row in enumerate(rows.tolist()):
        gpus, milli = int(tasks.num_gpus[row]), int(tasks.gpu_milli[row])
        said = {"alibabacloud.com/gpu-count": str(gpus), "alibabacloud.com/gpu-milli": str(milli)} if gpus else {}
        amounts = {"cpu": f"{tasks.cpu_milli[row]}m", "memory": f"{tasks.memory_mib[row]}Mi"}
        if gpus:
            amounts["alibabacloud.com/gpu-milli"] = str(gpus * milli)
        pod = {"metadata": {"name": f"p{number}", "namespace": "lab", "uid": f"u{number}", "annotations": said},
               "spec": {"containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]},
               "status": {"phase": "Pending"}}
        body = b'{"Pod":' + json.dumps(pod).encode() + b',"Nodes":null,"NodeNames":' + orders[number % ORDERS] + b"}"
        yield body, {"PodName": f"p{number}", "PodNamespace": "lab", "PodUID": f"u{number}"}


def asked(connection, verb, body):
    """Answer of the server."""
    connection.request("POST", f"/{verb}", body, {"Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())


class Served:
    """A server process and a connection to it."""

    def __init__(self, num_nodes, policy):
        self.folder = tempfile.TemporaryDirectory()
        words = [sys.executable, __file__, str(num_nodes), policy, self.folder.name]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", int(self.process.stdout.readline()), timeout=60)
        while True:
            self.connection.request("GET", "/readyz")
            answer = self.connection.getresponse()
            answer.read()
            if answer.status == 200:
                return
            time.sleep(0.1)

    def cpu_s(self):
        """Processor time of the server so far."""
        times = psutil.Process(self.process.pid).cpu_times()
        return times.user + times.system

    def close(self):
        self.connection.close()
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()
        self.folder.cleanup()


def decide_all(served, bodies):
    """Seconds of each filter; a bind follows each that found a node."""
    seconds = []
    for body, binding in bodies:
        begun_s = time.perf_counter()
        nodes = asked(served.connection, "filter", body)["NodeNames"]
        seconds.append(time.perf_counter() - begun_s)
        if nodes:
            assert asked(served.connection, "bind", json.dumps({**binding, "Node": nodes[0]})) == {"Error": ""}
    return np.array(seconds)


@pytest.mark.parametrize(("num_nodes", "policy"), [
    (1213, "fgd"), (1213, "pwr-fgd:0.1"), (10_000, "fgd"), (10_000, "pwr-fgd:0.1")])
def test_decide_by_name(benchmark, num_nodes, policy):
    served = Served(num_nodes, policy)
    try:
        bodies = list(questions(num_nodes, PAIRS + 50))
        decide_all(served, bodies[:50])
        before_s = served.cpu_s()
        seconds = benchmark.pedantic(decide_all, (served, bodies[50:]), rounds=1)
        cpu_ms = 1000 * (served.cpu_s() - before_s) / PAIRS
        memory_mib = psutil.Process(served.process.pid).memory_info().rss / 2**20
    finally:
        served.close()
    p50, p99, most = 1000 * np.quantile(seconds, [0.5, 0.99, 1])
    total_s = benchmark.stats.stats.min
    print(f"\n{num_nodes:,} nodes, {policy}: filter p50 {p50:.2f} ms, p99 {p99:.2f} ms, most {most:.1f} ms (wall); "
          f"{cpu_ms:.2f} ms of processor time of the server for filter and bind; {PAIRS / total_s:,.0f} "
          f"filters with binds a second, one after the other; {memory_mib:.0f} MiB")


if __name__ == "__main__":
    serve_nodes(int(sys.argv[1]), sys.argv[2], sys.argv[3])
