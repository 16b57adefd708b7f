"""Cases of the authors' ANDREAS program, in our format; tests that need them are skipped where they are absent."""
import json
from typing import Any

import numpy as np
import pytest

from sched_lab.andreas.model import Assignment, Instance, parse_instance
from sched_lab.traces import find_reference

GOLDEN = find_reference("andreas/golden.json")
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text())["cases"] if GOLDEN else []
golden = pytest.mark.skipif(GOLDEN is None, reason="../shared/reference/andreas/golden.json is absent")
each_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def instance_of(case: dict[str, Any]) -> Instance:
    """Write a golden case in the words of our instance file."""
    return parse_instance({
        "now_s": case["Tc"], "cost_eur_per_h": case["cost"],
        "nodes": [{"id": node["id"], "gpu": node["gpu"], "num_gpus": node["ngpus"]} for node in case["nodes"]],
        "jobs": [{"id": job["id"], "submission_s": job["sub"], "due_s": job["due"], "weight_eur_per_s": job["w"],
                  "times_s": job["t"]} for job in case["jobs"]]})


def every_assignment(fleet, jobs, chosen=()):
    """All choices of a node and configuration, or none, for each job that the nodes bear."""
    if len(chosen) == len(jobs.due_s):
        yield Assignment(*np.array(chosen, np.int64).reshape(-1, 2).T)
        return
    used = np.zeros(len(fleet.node_type), np.int64)
    for node, c in chosen:
        used[node] += fleet.configuration_gpus[c] if node >= 0 else 0
    yield from every_assignment(fleet, jobs, (*chosen, (-1, -1)))
    for c in np.flatnonzero(np.isfinite(jobs.times_s[len(chosen)])):
        for node in np.flatnonzero((fleet.node_type == fleet.configuration_type[c])
                                   & (used + fleet.configuration_gpus[c] <= fleet.node_gpus)):
            yield from every_assignment(fleet, jobs, (*chosen, (node, c)))
