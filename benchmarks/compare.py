"""Two checkouts side by side: the same subjects in turn, each in a fresh process, and whether the results are equal.

    python benchmarks/compare.py ../before . --out compare.csv            # all subjects
    python benchmarks/compare.py ../before . --only inflate --rounds 3    # those whose name begins so

Processor time of the best round, after one call that loads compiled code; peak memory of the process; the power of the
size with which the time grows. A subject that takes longer than a twentieth of `--limit` in one checkout is not
tried there at a larger size.
"""
from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Work = Callable[[], Any]


def fingerprint(result: Any) -> str:
    """Hash of arrays, numbers and texts, however they are nested; equal results have equal ones."""
    import numpy as np
    import pandas as pd

    def plain(value: Any) -> Any:
        if isinstance(value, pd.DataFrame):
            return {name: plain(value[name].to_numpy()) for name in value}
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, (tuple, list)):
            return [plain(each) for each in value]
        return value.item() if isinstance(value, np.generic) else value

    return hashlib.sha256(pickle.dumps(plain(result))).hexdigest()[:12]


# --- subjects: a function of a size gives the work; imports inside, since each checkout has its own package


def inflation(policy: str) -> Callable[[int], Work]:
    """One inflation to full demand on so many copies of the embedded cluster."""
    def of(copies: int) -> Work:
        from dataclasses import replace

        import numpy as np

        from sched_lab.online import read, simulate
        one, tasks = read()
        cluster = one.take(np.tile(np.arange(len(one)), copies))
        names = np.array([f"{name}-{row}" for row, name in enumerate(cluster.name)], object)
        cluster = replace(cluster, name=names)

        def work() -> Any:
            run = simulate(cluster, tasks, policy)
            return run.placements, run.curve

        return work
    return of


def far_batch(num_tasks: int) -> Work:
    """FAR, all phases, on one batch drawn for an A100."""
    import numpy as np

    from sched_lab.far.mig import mig_of
    from sched_lab.far.refine import far
    from sched_lab.far.tasks import SCALINGS, WIDTHS, generate_times
    a100 = mig_of("A100")
    times_s = generate_times(a100, num_tasks, SCALINGS["mixed"], WIDTHS["wide"], np.random.default_rng(num_tasks))

    def work() -> Any:
        schedule = far(a100, times_s)
        return [getattr(schedule, name) for name in ("task", "instance", "start_s", "end_s") if hasattr(schedule, name)]

    return work


def andreas_queue(num_nodes: int, num_jobs: int) -> Any:
    """Take the first jobs of a generated instance, and the nodes of a smaller one, when the last job has come."""
    import numpy as np

    from sched_lab.andreas.instances import generate
    from sched_lab.andreas.model import Jobs
    drawn = generate(1, max(num_nodes, -(-num_jobs // 10)), 1.7, scenario=1)
    fleet = generate(1, num_nodes, 1.7, scenario=1).fleet
    first = np.argsort(drawn.jobs.submission_s, kind="stable")[:num_jobs]
    jobs = Jobs(*(column[first] for column in drawn.jobs))
    return fleet, jobs, float(jobs.submission_s.max())


def andreas_decision(num_jobs: int) -> Work:
    """Randomized greedy, one decision, on 100 nodes."""
    from sched_lab.andreas.greedy import randomized_greedy
    queue = andreas_queue(100, num_jobs)
    return lambda: randomized_greedy(*queue)


def andreas_simulation(policy: str) -> Callable[[int], Work]:
    """All jobs of a generated instance: ten for each node and one more."""
    def of(num_nodes: int) -> Work:
        from sched_lab.andreas import simulate
        from sched_lab.andreas.instances import generate
        instance = generate(1, num_nodes, 1.0)

        def work() -> Any:
            done = simulate(instance, policy)
            return done.intervals

        return work
    return of


def hadar_jobs(num_jobs: int) -> Any:
    """Draw the paper's workload, five jobs for each GPU, and nodes with four GPUs of three types."""
    from sched_lab.hadar.workload import default_throughputs, draw_workload, paper_cluster
    drawn = draw_workload(default_throughputs(), 0, num_jobs=num_jobs)
    return drawn, paper_cluster(max(1, num_jobs // 60))


def hadar_round(policy: str) -> Callable[[int], Work]:
    """One decision with all jobs waiting."""
    def of(num_jobs: int) -> Work:
        import numpy as np

        from sched_lab.hadar.model import State, nothing_runs
        from sched_lab.hadar.policies import policy_of
        drawn, nodes = hadar_jobs(num_jobs)
        none = np.zeros(num_jobs)
        state = State(nodes[1], drawn.jobs, 0.0, np.arange(num_jobs), drawn.jobs.steps, nothing_runs(), none, none)
        return lambda: policy_of(policy).allocate(state)
    return of


def hadar_simulation(policy: str) -> Callable[[int], Work]:
    """All jobs from their arrival to the end."""
    def of(num_jobs: int) -> Work:
        from sched_lab.hadar import simulate
        drawn, (names, nodes) = hadar_jobs(num_jobs)
        workload = type(drawn)(drawn.job_name, names, drawn.type_name, nodes, drawn.jobs)
        return lambda: simulate(workload, policy).end_s
    return of


class Subject(NamedTuple):
    """What is measured, at which sizes, and what a size counts."""

    of: Callable[[int], Work]
    sizes: tuple[int, ...]
    counts: str


SUBJECTS = {
    **{f"inflate {policy}": Subject(inflation(policy), sizes, "x nodes") for policy, sizes in {
        "fgd": (1, 4, 16, 100), "pwr-fgd:0.1": (1, 4, 16, 100), "bestfit": (1, 4, 16), "joint": (1, 4),
        "pwr-target": (1, 4), "bid": (1, 4)}.items()},
    "far": Subject(far_batch, (10, 100, 1000, 10_000, 100_000), "tasks"),
    "andreas rg decision": Subject(andreas_decision, (100, 1000, 10_000), "jobs"),
    **{f"andreas {policy} simulation": Subject(andreas_simulation(policy), (10, 30, 100), "nodes")
       for policy in ("rg", "local")},
    **{f"hadar {policy} round": Subject(hadar_round(policy), (1000, 4000, 20_000), "jobs")
       for policy in ("hadar", "planned")},
    **{f"hadar {policy} simulation": Subject(hadar_simulation(policy), (1000, 4000, 20_000), "jobs")
       for policy in ("hadar", "planned")},
}

def measure(name: str, size: int, repeats: int) -> dict[str, Any]:
    """Best processor time of a few calls after the first, peak memory, and what came out."""
    import resource

    work = SUBJECTS[name].of(size)
    start_s = time.process_time()
    result = work()
    first_s = time.process_time() - start_s
    best_s = first_s
    for _ in range(repeats if first_s < 30 else 0):
        start_s = time.process_time()
        result = work()
        best_s = min(best_s, time.process_time() - start_s)
        if best_s > 5:
            break
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": best_s, "peak_mib": peak_mib, "result": fingerprint(result)}


def measured_in(checkout: Path, name: str, size: int, repeats: int, limit_s: float) -> dict[str, Any]:
    """Measure in a fresh process that imports the package of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    command = [sys.executable, __file__, "--measure", name, str(size), "--repeats", str(repeats)]
    with tempfile.TemporaryDirectory() as folder:  # not a folder with a package in it
        try:
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return {"seconds": float("nan"), "peak_mib": float("nan"), "result": f"over {limit_s:g} s"}
    if done.returncode:
        return {"seconds": float("nan"), "peak_mib": float("nan"), "result": done.stderr.strip().splitlines()[-1]}
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def rows_of(name: str, before: Path, after: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure each size of a subject, a row each."""
    import numpy as np

    subject = SUBJECTS[name]
    rows: list[dict[str, Any]] = []
    is_over = {before: False, after: False}
    for size in subject.sizes:
        best: dict[Path, dict[str, Any]] = {}
        for _ in range(options.rounds):
            for checkout in (before, after):
                if is_over[checkout]:
                    continue
                now = measured_in(checkout, name, size, options.repeats, options.limit)
                is_over[checkout] = not now["seconds"] < options.limit / 20
                if checkout not in best or now["seconds"] < best[checkout]["seconds"]:
                    best[checkout] = now
        row: dict[str, Any] = {"subject": name, "size": size, "counts": subject.counts}
        for word, checkout in (("before", before), ("after", after)):
            got = best.get(checkout, {"seconds": float("nan"), "peak_mib": float("nan"), "result": "not tried"})
            row |= {f"{word}_s": got["seconds"], f"{word}_mib": got["peak_mib"], f"{word}_result": got["result"]}
        row["ratio"] = row["before_s"] / row["after_s"]
        row["is_equal"] = row["before_result"] == row["after_result"]
        rows.append(row)
        print("{subject:28s} {size:7d} {counts:8s} {before_s:9.4f} s {after_s:9.4f} s {ratio:7.1f} x "
              "{before_mib:6.0f} {after_mib:6.0f} MiB  {is_equal}".format(**row), flush=True)
    for word in ("before", "after"):
        known = [(row["size"], row[f"{word}_s"]) for row in rows if row[f"{word}_s"] > 0]
        power = float(np.polyfit(*np.log(known).T, 1)[0]) if len(known) > 1 else float("nan")
        for row in rows:
            row[f"{word}_exponent"] = power
    words = "{subject:28s} grows with the power {before_exponent:.2f} before, {after_exponent:.2f} after"
    print(words.format(**rows[0]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?", default=Path())
    parser.add_argument("--only", default="", help="subjects whose name begins so")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each checkout for each size")
    parser.add_argument("--repeats", type=int, default=5, help="calls in each process, after the first")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one process")
    parser.add_argument("--out", type=Path, help="CSV file for the rows")
    parser.add_argument("--measure", nargs=2, metavar=("SUBJECT", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure[0], int(options.measure[1]), options.repeats)))
        return
    if options.before is None:
        parser.error("name the checkout before, and the one after")
    rows = [row for name in SUBJECTS if name.startswith(options.only)
            for row in rows_of(name, options.before, options.after, options)]
    if options.out:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), restval="")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
