"""Two replicas of `sched-lab serve` on a control plane whose pods come and go, while what serves them is struck.

python -m tools.try_control_plane --seed 1

3,000 pods come and go while the leader is killed ten times and stopped and continued five times, and the API server
killed and begun anew twice. It prints how long nothing was decided each time, and ends with what was broken. A small
API server and a scheduler of a dozen lines replace the programs that tests/fleet/test_control_plane.py names.
"""
from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from http.client import HTTPException
from itertools import count
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np

from tests.fleet.fake_api import FakeApi, kubeconfig_for, served
from tests.fleet.test_control_plane import (
    LACKING,
    NAMESPACE,
    Client,
    Replica,
    Service,
    extender_served,
    node_name,
    place_of,
    pod_body,
    pod_name,
    real_plane,
    replayed,
    schedule_once,
    small,
)
from tests.waiting import until


class FakePlane:
    """A small API server that can begin anew with what it knows, and a scheduler of a dozen lines."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.api = FakeApi()
        self.serving = stack.enter_context(ExitStack())
        address = self.serving.enter_context(served(self.api))
        self.port = int(address.rpartition(":")[2])
        self.client = Client(address)
        self.kubeconfig = kubeconfig_for(address, folder / "kubeconfig")

    def restart(self) -> None:
        self.serving.close()
        time.sleep(2)
        self.serving.enter_context(served(self.api, self.port))

    def schedule(self, extender: Client, names: list[str], is_over: threading.Event) -> None:
        """Place what waits, one pod after the other, until the end."""
        while not is_over.is_set():
            waiting = [body for body in list(self.api.store.objects["pods"].values()) if not place_of(body)[0]]
            for body in waiting:
                schedule_once(self.client, extender, names, body)
            is_over.wait(0.02)


def overfull(pods: list[dict]) -> list[str]:
    """Name GPUs of which pods hold more than there is."""
    held: dict[tuple[str, str], int] = {}
    for body in pods:
        node, gpus = place_of(body)
        for gpu in filter(None, gpus.split("-")):
            milli = int(body["metadata"]["annotations"]["alibabacloud.com/gpu-milli"])
            held[node, gpu] = held.get((node, gpu), 0) + milli
    return [f"GPU {gpu} of {node}: {milli} milli" for (node, gpu), milli in held.items() if milli > 1000]


class Trial:
    """Pods that come and go, and what happens to the replicas meanwhile; one seed fixes both."""

    def __init__(self, client: Client, service: Service, tasks, seed: int) -> None:
        self.client = client
        self.service = service
        self.tasks = tasks
        self.dice = random.Random(seed)
        self.there: list[str] = []
        self.places: set[tuple[str, str, str]] = set()  # that pods had: pod, node and GPUs
        self.given_twice: set[str] = set()
        self.gaps_s: dict[str, list[float]] = {}

    def do(self, method: str, path: str, body: dict | None = None) -> dict | None:
        """Call the API server; what it answers, None if it has to be called again."""
        try:
            return self.client.call(method, f"/api/v1/namespaces/{NAMESPACE}/pods{path}", body)
        except HTTPError as refused:
            return {"is done": True} if refused.code in (404, 409) else None
        except (OSError, HTTPException):
            return None

    def look(self) -> bool:
        """Look where the pods are, and whether a GPU was given twice; whether all have a node."""
        bodies = until(lambda: self.do("GET", ""))["items"]
        self.given_twice |= {*overfull(bodies)}
        self.places |= {(body["metadata"]["name"], *place_of(body)) for body in bodies if place_of(body)[0]}
        return all(place_of(body)[0] for body in bodies)

    def turn_over(self, number: int, most: int) -> None:
        """Create a pod, and delete an older one if there are many."""
        body = pod_body(self.tasks, self.dice.randrange(len(self.tasks)), number)
        until(lambda: self.do("POST", "", body))
        self.there.append(pod_name(number))
        if len(self.there) > most:
            name = self.there.pop(self.dice.randrange(most // 2))
            self.look()
            until(lambda: self.do("DELETE", f"/{name}", {"gracePeriodSeconds": 0}))

    def strike(self, what: str, restart) -> None:
        """Do something to the leader, or the API server; wait until there are decisions again, and put it right."""
        leader = until(self.service.leader)
        time.sleep(2 * self.dice.random())
        begun_s, decided_s = time.monotonic(), self.service.decided_s
        if what == "restart":
            restart()
        else:
            leader.send(signal.SIGKILL if what == "kill" else signal.SIGSTOP)
        done_s = time.monotonic() + 0.3  # a call may be under way
        until(lambda: decided_s and decided_s[-1] > done_s)
        gap_s = np.diff([begun_s, *(at_s for at_s in decided_s if at_s > begun_s)]).max()
        self.gaps_s.setdefault(what, []).append(gap_s)
        print(f"{what} {leader.name}: nothing decided for {gap_s:.1f} s", flush=True)
        if what == "kill":
            leader.begin()
        elif what == "stop":
            time.sleep(2 * self.dice.random())
            leader.send(signal.SIGCONT)
        follower = next(one for one in self.service.replicas if one is not self.service.leader())
        until(lambda: stands_by(follower))


def stands_by(replica: Replica) -> bool:
    """Whether a replica waits for nothing but the lease."""
    try:
        urlopen(f"http://127.0.0.1:{replica.port}/readyz", timeout=1).close()
    except HTTPError as refused:
        return refused.read() == b"waiting for the lease\n"
    except OSError:
        pass
    return False


def few(found: set) -> str:
    """How many there are, and five of them."""
    return f"{len(found)}, as {sorted(found)[:5]}" if found else "none"


def main(arguments=None) -> int:
    """Try two replicas against a control plane, or a small API server; 1 if something was broken."""
    parser = argparse.ArgumentParser(prog="python -m tools.try_control_plane", description=main.__doc__)
    for name, usual in (("seed", 0), ("pods", 3000), ("kills", 10), ("stops", 5), ("restarts", 2), ("nodes", 100),
                        ("lease", 15)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    chosen = parser.parse_args(arguments)
    cluster, tasks, target, rows = small(chosen.nodes, 400)
    tasks = tasks.take(rows)
    names = [node_name(row) for row in range(len(cluster))]
    is_over = threading.Event()
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        if LACKING:
            plane = FakePlane(folder, stack)
            client, restart = plane.client, plane.restart
            client.create_nodes(cluster)
            service = stack.enter_context(extender_served(folder, plane.kubeconfig, target, chosen.lease))
            job = threading.Thread(target=plane.schedule, args=(Client(service.address, timeout_s=10), names, is_over))
            job.start()
            stack.callback(job.join)
            stack.callback(is_over.set)
        else:
            client, service, restart = stack.enter_context(real_plane(folder, cluster, target, chosen.lease))
        trial = Trial(client, service, tasks, chosen.seed)
        strikes = ["kill"] * chosen.kills + ["stop"] * chosen.stops + ["restart"] * chosen.restarts
        trial.dice.shuffle(strikes)
        every = chosen.pods // (len(strikes) + 1) or 1
        striking = threading.Thread()
        for number in count():
            if number >= chosen.pods and not strikes and not striking.is_alive():
                break
            until(lambda number=number: service.num_bound + 20 > number)
            trial.turn_over(number, chosen.nodes)
            is_time = number >= every * (chosen.kills + chosen.stops + chosen.restarts + 1 - len(strikes))
            if strikes and is_time and not striking.is_alive():
                striking = threading.Thread(target=trial.strike, args=(strikes.pop(), restart))
                striking.start()
        until(trial.look, "not all pods have a node")
        is_over.set()
        replicas = service.replicas
        stack.close()
        decided = replayed(replicas)
    strange = trial.places - decided.keys()
    for what, gaps_s in trial.gaps_s.items():
        print(f"{what}: {len(gaps_s)} times, nothing decided for {max(gaps_s):.1f} s at most, lease {chosen.lease} s")
    again = sum(decided[place] > 1 for place in trial.places)
    print(f"{decided.total()} decisions in the journals, all the same again; of {len(trial.places)} places that pods "
          f"had, {again} decided for more than once, and without a decision: {few(strange)}; GPUs given twice: "
          f"{few(trial.given_twice)}")
    return int(bool(strange or trial.given_twice))


if __name__ == "__main__":
    sys.exit(main())
