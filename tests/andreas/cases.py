"""Cases of the authors' ANDREAS program, in our format; tests that need them are skipped where they are absent."""
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

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


@st.composite
def queues(draw, *, most_jobs=7, factors=(1.0, 2.0)):
    """Fleet, jobs and time; few different numbers, so that pressures, costs and objectives are often equal."""
    def some(*values):
        return draw(st.sampled_from(values))
    nodes = [{"id": f"n{i}", "gpu": some("A", "A", "B"), "num_gpus": some(1, 2, 2, 4)} for i in range(some(1, 2, 3, 5))]
    cost = {}
    for gpu in "AB":
        steps = [some(0.36, 0.9, 1.8), *(some(0.0, 0.09, 0.18, 0.9) for _ in range(3))]
        cost |= {f"{gpu},{k + 1}": float(sum(steps[:k + 1])) * some(1.0, *factors) for k in range(4)}
    jobs = []
    for i in range(some(*range(1, most_jobs + 1))):
        times_s = {f"{gpu},{k}": some(600.0, 900.0, 1200.0, 4800.0, 700.3) for gpu in "AB" for k in (1, 2, 3, 8)
                   if some(True, True, False)}
        times_s[f"{some(*(node['gpu'] for node in nodes))},1"] = some(1200.0, 2400.0)  # one that fits on some node
        jobs.append({"id": f"j{i}", "submission_s": 0.0, "due_s": some(900.0, 1800.0, 3600.0, 7200.0, 40000.0),
                     "weight_eur_per_s": some(0.0, 1e-5, 0.0002, 0.001, 0.001, 0.0045), "times_s": times_s})
    instance = parse_instance({"nodes": nodes, "cost_eur_per_h": cost, "jobs": jobs})
    return instance.fleet, instance.jobs, some(0.0, 600.0, 5000.3)


def crowd(num_jobs):
    """Many jobs on four nodes of three sorts, all numbers different."""
    rng = np.random.default_rng(34)
    jobs = [{"id": f"j{i}", "submission_s": 0.0, "due_s": float(rng.uniform(1000, 15000)),
             "weight_eur_per_s": float(rng.uniform(0.0003, 0.003)),
             "times_s": {name: float(rng.uniform(500, 4000)) for name in ("A,1", "A,2", "B,1")}}
            for i in range(num_jobs)]
    nodes = [{"id": f"n{i}", "gpu": "AABA"[i], "num_gpus": (2, 1, 2, 2)[i]} for i in range(4)]
    cost = {"A,1": 0.1, "A,2": 0.15, "B,1": 0.09, "B,2": 0.11}
    instance = parse_instance({"nodes": nodes, "cost_eur_per_h": cost, "jobs": jobs})
    return instance.fleet, instance.jobs, 600.0


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


def plain_candidates(fleet, jobs, now_s, job):
    """List configurations of a job in time, cheapest first, and late ones, fastest first; sorting is stable."""
    def cost(c):
        return jobs.times_s[job, c] * fleet.cost_eur_per_h[fleet.configuration_type[c], fleet.configuration_gpus[c]]
    usable = [c for c in range(jobs.times_s.shape[1]) if jobs.times_s[job, c] < np.inf
              and fleet.configuration_gpus[c] < fleet.cost_eur_per_h.shape[1]]
    in_time = [c for c in usable if jobs.times_s[job, c] + now_s <= jobs.due_s[job]]
    late = [c for c in usable if c not in in_time]
    return sorted(in_time, key=cost), sorted(late, key=lambda c: jobs.times_s[job, c])


def plain_objective(fleet, jobs, now_s, node, configuration, rho):
    """Energy until the first completion, tardiness then, and the worst case of those that wait; as coded."""
    running = [job for job in range(len(node)) if node[job] >= 0]
    if not running:
        return np.inf
    first_s = min(jobs.times_s[job, configuration[job]] for job in running)
    used = [sum(fleet.configuration_gpus[configuration[job]] for job in running if node[job] == n)
            for n in range(len(fleet.node_type))]
    eur = first_s * sum(fleet.cost_eur_per_h[kind, gpus] / 3600
                        for kind, gpus in zip(fleet.node_type, used, strict=True) if gpus)
    for job in range(len(node)):
        slowest_s = max(time_s for time_s in jobs.times_s[job] if time_s < np.inf)
        until_s = now_s + (first_s if job in running else slowest_s)
        eur += (1.0 if job in running else rho) * jobs.weight_eur_per_s[job] * max(until_s - jobs.due_s[job], 0.0)
    return eur


def plain_eq_1(fleet, jobs, now_s, node, configuration, rho, period_s):
    """Eq. 1: each job late at its own end, waiting ones at worst after H; the first job of each node, as if alone."""
    eur = 0.0
    first = {}
    for job, (n, c) in enumerate(zip(node, configuration, strict=True)):
        if n < 0:
            slowest_s = max(time_s for time_s in jobs.times_s[job] if time_s < np.inf)
            eur += rho * jobs.weight_eur_per_s[job] * max(now_s + period_s + slowest_s - jobs.due_s[job], 0.0)
            continue
        run_s = jobs.times_s[job, c]
        price = fleet.cost_eur_per_h[fleet.node_type[n], fleet.configuration_gpus[c]]
        eur += jobs.weight_eur_per_s[job] * max(now_s + run_s - jobs.due_s[job], 0.0)
        first[n] = min(first.get(n, (np.inf, np.inf)), (run_s, run_s * price / 3600))
    return eur + sum(first[n][1] for n in sorted(first))  # by node, as ours: equal rounds are equal to the last bit
