"""What a person types and waits for: whole processes of two checkouts in turn, first after an install, and warm.

    git worktree add --detach ../before c934a1b
    python benchmarks/commands.py ../before .                   # every command of a minute or less, some twenty minutes
    python benchmarks/commands.py ../before . --only inflate    # those whose name begins so
    python benchmarks/commands.py ../before . --long            # the long ones only: a million jobs, the paper, make
    python benchmarks/commands.py                               # the table again from the stored rows

The first run has nothing compiled by numba yet; Python's own bytecode is there, as an installer makes it. Warm is the
quickest of the runs after it. A run counts the processor time of a process and its children and the peak memory of
the largest of them. The tables (CSV) that both checkouts wrote are compared byte by byte. Inputs are drawn with a
fixed seed from the data in the package. A row is kept in `benchmarks/frames/commands.csv` as soon as it is measured, in
the place of the one of the same name, and the table of the README is written from there.
"""
from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Row = dict[str, Any]
HERE = Path(__file__).parent
README = HERE / "README.md"
STORED = HERE / "frames" / "commands.csv"
SIDES = ("before", "after")
GROWS = (1, 4, 16)


class Command(NamedTuple):
    """What is typed, `{out}` for the folder of its answer and `{size}` for a size.

    Parameters
    ----------
    words : after `python -m sched_lab`; or a command of the shell, if it begins with `!`
    sizes : what `{size}` becomes, smallest first
    counts : what a size counts
    clock : what the table shows, processor time or, for what uses all processors, wall-clock time
    is_long : takes more than a minute or so, and is run only if asked for
    """

    words: str
    sizes: tuple[int, ...] = (1,)
    counts: str = ""
    clock: str = "cpu"
    is_long: bool = False


FLEET = "x 4 nodes, 5,140 jobs"
COMMANDS = {
    "import online, toy": Command('!python -c "from sched_lab import online; online.toy()"'),
    "inflate": Command("inflate --nodes nodes{size}.csv --policy fgd --out {out}", GROWS, "x 1,213 nodes"),
    "inflate pwr-fgd": Command("inflate --nodes nodes{size}.csv --policy pwr-fgd:0.1 --out {out}", GROWS,
                               "x 1,213 nodes"),
    "read": Command("read csv fleet{size}/nodes.csv fleet{size}/jobs.csv --out {out}", GROWS, FLEET),
    "replay": Command("replay cluster{size} --policies fgd --out {out}", GROWS, FLEET),
    "replay three": Command("replay cluster{size} --policies fgd,pwr-fgd:0.1,bestfit --workers 1 --out {out}", GROWS,
                            FLEET),
    "replay conservative": Command("replay cluster{size} --policies fgd --backfill conservative --out {out}", GROWS,
                                   FLEET),
    "explain": Command("explain cluster{size} --task j5000 --state replayed --out {out}", GROWS, FLEET),
    "place": Command("place cluster{size} --at 40000 --tasks next.csv --out {out}", GROWS, FLEET),
    "day": Command("day cluster{size} --days 2 --out {out}", GROWS, FLEET),
    "andreas": Command("andreas --instance andreas{size}.json --policy rg --simulate --out {out}", (10, 30, 100),
                       "nodes, ten jobs each"),
    "andreas local": Command("andreas --instance andreas{size}.json --policy local --simulate --out {out}",
                             (10, 30, 100), "nodes, ten jobs each"),
    "hadar": Command("hadar --jobs hadar{size}.csv --cluster types{size}.csv --throughputs throughputs.csv"
                     " --policy hadar --out {out}", GROWS, "x 480 jobs, 60 GPUs"),
    "far": Command("far --times times{size}.csv --policy far --out {out}", (10, 100, 1000), "tasks"),
    "far-plus": Command("far --times times{size}.csv --policy far-plus --out {out}", (10, 100), "tasks"),
    "read 10^6 jobs": Command("read csv fleet{size}/nodes.csv fleet{size}/jobs.csv --out {out}", (200,), FLEET,
                              is_long=True),
    "replay 10^6 jobs": Command("replay cluster{size} --policies fgd --out {out}", (200,), FLEET, is_long=True),
    "1,430 runs": Command("!python -m pytest -q -p no:cacheprovider -o faulthandler_timeout=0 --timeout 0"
                          " --benchmark-disable benchmarks/test_sweep.py -k exact", clock="wall", is_long=True),
    "make test": Command("!make test", clock="wall", is_long=True),
    "make book": Command("!make book", clock="wall", is_long=True),
}


# --- inputs


def write_rows(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file, and its folder if there is none."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def embedded(name: str) -> list[list[str]]:
    """Rows of an embedded table, its header first."""
    with (HERE.parent / "data" / "embedded" / name).open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def fleet_jobs(count: int, load: float, num_gpus: int) -> Iterator[list[Any]]:
    """Jobs of 0 to 8 GPUs or a share of one, exponential in gap and length, that offer a load to so many GPUs."""
    rng = np.random.default_rng(count)
    gpus = rng.choice([0, 1, 2, 4, 8], count, p=[0.14, 0.43, 0.14, 0.145, 0.145])
    milli = np.where(gpus == 0, 0, np.where(gpus == 1, rng.choice([1000, 700, 500, 250], count, p=[.6, .14, .13, .13]),
                                            1000))
    length_s = 1 + rng.exponential(3600, count).astype(int)
    submit_s = np.cumsum(rng.exponential((gpus * milli * length_s).mean() / 1000 / load / num_gpus, count)).astype(int)
    start_s = submit_s + rng.integers(0, 600, count)
    yield ["name", "submit_s", "start_s", "end_s", "num_gpus", "gpu_milli", "user", "queue", "cpu_milli", "memory_mib"]
    for job in range(count):
        yield [f"j{job}", submit_s[job], start_s[job], start_s[job] + length_s[job], gpus[job], milli[job],
               f"u{job % 37}", f"q{job % 5}", max(4000, 4000 * gpus[job]), max(2048, 2048 * gpus[job])]


def write_fleet(folder: Path, size: int) -> None:
    """Write nodes of 8 GPUs and their jobs: at 16 times, 64 nodes and 82,247 jobs."""
    head = ["name", "gpu_model", "num_gpus", "cpu_milli", "memory_mib"]
    write_rows(folder / f"fleet{size}" / "nodes.csv", [head, *(
        [f"n{node:03}", "A10" if node % 3 == 0 else "V100M16", 8, 96000, 786432] for node in range(4 * size))])
    write_rows(folder / f"fleet{size}" / "jobs.csv", fleet_jobs(82_247 * size // 16, 0.85, 32 * size))


def write_andreas(path: Path, num_nodes: int) -> None:
    """Write an instance drawn as the authors' generator does."""
    sys.path.insert(0, str(HERE.parent))
    from sched_lab.andreas.instances import generate

    drawn = generate(1, num_nodes, 1.0)
    fleet, jobs = drawn.fleet, drawn.jobs
    path.write_text(json.dumps({
        "nodes": [{"id": name, "gpu": drawn.type_name[kind], "num_gpus": int(count)} for name, kind, count in zip(
            drawn.node_name, fleet.node_type, fleet.node_gpus, strict=True)],
        "cost_eur_per_h": {f"{drawn.type_name[kind]},{count}": cost for (kind, count), cost in np.ndenumerate(
            fleet.cost_eur_per_h) if count and np.isfinite(cost)},
        "jobs": [{"id": name, "submission_s": jobs.submission_s[job], "due_s": jobs.due_s[job],
                  "weight_eur_per_s": jobs.weight_eur_per_s[job], "epochs": int(drawn.epochs[job]),
                  "times_s": {drawn.configuration_name(one): time_s for one, time_s in enumerate(
                      jobs.times_s[job]) if np.isfinite(time_s)}} for job, name in enumerate(drawn.job_name)]}))


def write_hadar(folder: Path, size: int) -> None:
    """Write jobs of the embedded speeds, half an hour to ten hours on a V100, and nodes with 4 GPUs of a type."""
    rng = np.random.default_rng(size)
    known = [row for row in embedded("hadar_throughputs.csv")[1:] if int(row[1]) in (1, 2, 4)]
    arrival_s = np.cumsum(rng.exponential(60 / size, 480 * size)).astype(int)
    write_rows(folder / f"hadar{size}.csv", [["name", "arrival_s", "steps", "workers", "model", "weight"], *(
        [f"job{job}", time_s, max(1, int(float(row[2]) * 1800 * 20 ** rng.random())), row[1], row[0], 1]
        for job, time_s in enumerate(arrival_s) for row in [known[rng.integers(len(known))]])])
    write_rows(folder / f"types{size}.csv", [["node", "type", "gpus"], *(
        [f"{kind}-{node}", kind, 4] for kind in ("v100", "p100", "k80") for node in range(5 * size))])


def write_far(path: Path, num_tasks: int) -> None:
    """Write tasks that scale differently well with the slices."""
    rng = np.random.default_rng(num_tasks)
    least_s, power = rng.uniform(1, 20, num_tasks), rng.uniform(0.3, 1.1, num_tasks)
    write_rows(path, [["task", "1", "2", "3", "4", "7"], *(
        [f"t{task}", *(round(least_s[task] * (7 / size) ** power[task], 3) for size in (1, 2, 3, 4, 7))]
        for task in range(num_tasks))])


def write_inputs(folder: Path, commands: Iterable[Command], environment: dict[str, str]) -> None:
    """Write the files that commands read."""
    wanted = {word for command in commands for size in command.sizes
              for word in command.words.format(size=size, out="").split()}
    nodes = embedded("nodes.csv")
    for size in {size for command in commands for size in command.sizes}:
        if f"nodes{size}.csv" in wanted:
            write_rows(folder / f"nodes{size}.csv", [nodes[0], *(
                [f"{name}-{copy}", *rest] for name, *rest in nodes[1:] for copy in range(size))])
        if wanted & {f"fleet{size}/nodes.csv", f"cluster{size}"}:
            write_fleet(folder, size)
        if f"cluster{size}" in wanted:
            words = f"read csv fleet{size}/nodes.csv fleet{size}/jobs.csv --out cluster{size}"
            run(words, folder, environment, math.inf)
        if f"andreas{size}.json" in wanted:
            write_andreas(folder / f"andreas{size}.json", size)
        if f"hadar{size}.csv" in wanted:
            write_hadar(folder, size)
        if f"times{size}.csv" in wanted:
            write_far(folder / f"times{size}.csv", size)
    shutil.copy(HERE.parent / "data" / "embedded" / "hadar_throughputs.csv", folder / "throughputs.csv")
    write_rows(folder / "next.csv", [["name", "submit_s", "num_gpus", "gpu_milli", "cpu_milli", "memory_mib"], *(
        [f"next{job}", 40_000, 1 + job % 2, 1000, 4000, 2048] for job in range(8))])


# --- processes


def run(words: str, folder: Path, environment: dict[str, str], limit_s: float) -> Row:
    """Wall-clock and processor time in s and peak memory in MiB; empty if it fails, infinite if it takes too long."""
    called = shlex.split(words.removeprefix("!"))
    if not words.startswith("!"):
        called = [sys.executable, "-m", "sched_lab", *called]
    elif called[0] == "python":
        called[0] = sys.executable
    with tempfile.TemporaryFile("w+") as said:
        start_s = time.perf_counter()
        process = subprocess.Popen(called, env=environment, cwd=folder, stdout=said, stderr=said,
                                   start_new_session=True)
        ended = threading.Timer(min(limit_s, threading.TIMEOUT_MAX), os.killpg, (process.pid, signal.SIGKILL))
        ended.start()
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - start_s
        ended.cancel()
        if wall_s >= limit_s:
            return dict.fromkeys(("wall_s", "cpu_s", "mib"), math.inf)
        if status:
            said.seek(0)
            last = (said.read().strip().splitlines() or ["no word"])[-1]
            print(f"{environment['PYTHONPATH']}: {words}: {last}", file=sys.stderr, flush=True)
            return {}
    return {"wall_s": wall_s, "cpu_s": used.ru_utime + used.ru_stime, "mib": used.ru_maxrss / 1024}


def tables_of(folder: Path) -> dict[str, str]:
    """Return the checksum of each table below a folder."""
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*.csv"))}


def environment_of(checkout: Path, cache: Path) -> dict[str, str]:
    """Where a checkout keeps compiled code."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "NUMBA_CACHE_DIR": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def rows_of(name: str, checkouts: dict[str, Path], inputs: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Measure each size of a command, a row each, the checkouts in turn."""
    command = COMMANDS[name]
    with tempfile.TemporaryDirectory() as temporary:
        given_up: set[str] = set()
        for size in command.sizes:
            runs: dict[str, list[Row]] = {side: [] for side in SIDES}
            tables: dict[str, dict[str, str]] = {}
            for turn in range(1 if command.words.startswith("!make") else 1 + options.rounds):
                for side in SIDES[::-1] if turn % 2 else SIDES:
                    if side in given_up:
                        continue
                    out = Path(temporary, f"{side}-out")
                    shutil.rmtree(out, ignore_errors=True)
                    folder = checkouts[side] if "-m pytest" in command.words or "!make" in command.words else inputs
                    one = run(command.words.format(size=size, out=out), folder,
                              environment_of(checkouts[side], Path(temporary, f"{side}-cache")), options.limit)
                    if one and math.isfinite(one["wall_s"]):
                        tables[side] = tables_of(out)
                    else:
                        given_up.add(side)
                    runs[side].append(one)
            row: Row = {"command": name, "size": size, "counts": command.counts, "clock": command.clock}
            for side in SIDES:
                first, *warm = runs[side] or [{}]
                clock = f"{command.clock}_s"
                row[f"{side}_first_s"] = first.get(clock, "") if size == command.sizes[0] else ""
                row[f"{side}_warm_s"] = min((one[clock] for one in warm if one), default=first.get(clock, "")
                                            if math.isinf(first.get(clock, 0)) else "")
                row[f"{side}_mib"] = max((one["mib"] for one in warm or [first] if one), default="")
            both = [tables.get(side) for side in SIDES]
            row["is_equal"] = both[0] == both[1] if all(both) else ""
            yield row


# --- rows and table


def stored() -> dict[tuple[str, str], Row]:
    """Rows that have been kept, by command and size."""
    if not STORED.exists():
        return {}
    with STORED.open(newline="", encoding="utf-8") as file:
        return {(row["command"], row["size"]): row for row in csv.DictReader(file)}


def keep(row: Row) -> None:
    """Put a row in the place of the one of the same name, and print it."""
    short = {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in row.items()}
    print(*(f"{key}={value}" for key, value in short.items()), flush=True)
    rows = stored() | {(short["command"], short["size"]): short}
    order = list(COMMANDS)
    known = sorted((each for each in rows.values() if each["command"] in COMMANDS),
                   key=lambda each: (order.index(each["command"]), int(each["size"])))
    write_rows(STORED, [list(short), *(list(each.values()) for each in known)])


def in_s(text: str) -> str:
    """Write seconds; a dash for what was not measured."""
    if not text:
        return "-"
    value = float(text)
    return "over the limit" if math.isinf(value) else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def in_mib(text: str) -> str:
    """Write a whole number; a dash for what was not measured."""
    return f"{float(text):,.0f}" if text and math.isfinite(float(text)) else "-"


def ratio(row: Row, what: str) -> str:
    """How often after goes into before."""
    pair = [row[f"{side}_{what}"] for side in SIDES]
    return f"{float(pair[0]) / float(pair[1]):.1f}" if all(pair) and math.isfinite(float(pair[0])) else "-"


def growth(rows: list[Row]) -> str:
    """Power of the size with which the warm time after grows, from the smallest size to the largest."""
    known = [(float(row["size"]), float(row["after_warm_s"])) for row in rows if row["after_warm_s"]]
    if len(known) < 2 or not all(map(math.isfinite, known[-1])):
        return "-"
    (small, short_s), (large, long_s) = known[0], known[-1]
    return f"{math.log(long_s / short_s) / math.log(large / small):.2f}"


def table() -> str:
    """Write the rows in Markdown."""
    head = ["what a person types", "size", "first before", "first after", "warm before", "warm after", "ratio",
            "growth", "MiB before", "MiB after", "same tables"]
    rows = list(stored().values())
    lines = []
    for row in rows:
        own = [each for each in rows if each["command"] == row["command"]]
        lines.append([
            row["command"] + (" (wall)" if row["clock"] == "wall" else ""),
            f"{int(row['size']):,} {row['counts']}" if row["counts"] else "",
            *(in_s(row[f"{side}_{state}_s"]) for state in ("first", "warm") for side in SIDES),
            ratio(row, "warm_s" if row["after_warm_s"] else "first_s"),
            growth(own) if row is own[-1] else "",
            *(in_mib(row[f"{side}_mib"]) for side in SIDES),
            {"True": "yes", "False": "**no**"}.get(row["is_equal"], "-")])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *lines])


def write_table() -> None:
    """Put the table between its marks in the README."""
    begin, end = "<!-- commands -->\n", "\n<!-- end of commands -->"
    head, _, rest = README.read_text(encoding="utf-8").partition(begin)
    README.write_text(f"{head}{begin}{table()}{end}{rest.partition(end)[2]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?", default=HERE.parent)
    parser.add_argument("--only", default="", help="commands whose name begins so")
    parser.add_argument("--long", action="store_true", help="the long commands, in place of the others")
    parser.add_argument("--rounds", type=int, default=2, help="warm runs of each checkout; the quickest counts")
    parser.add_argument("--limit", type=float, help="seconds after which a process is ended, and its larger sizes"
                        " are not tried [default: 120, 1800 with --long]")
    options = parser.parse_args()
    options.limit = options.limit or (1800 if options.long else 120)
    if options.before is not None:
        checkouts = {"before": options.before.resolve(), "after": options.after.resolve()}
        if not all((checkout / "sched_lab").is_dir() for checkout in checkouts.values()):
            sys.exit(f"no package sched_lab in {checkouts['before']} or in {checkouts['after']}")
        chosen = [name for name, command in COMMANDS.items()
                  if name.startswith(options.only) and command.is_long == options.long]
        for checkout in checkouts.values():
            subprocess.run([sys.executable, "-m", "compileall", "-q", str(checkout / "sched_lab"),
                            sysconfig.get_path("purelib")], check=False, capture_output=True)
        with tempfile.TemporaryDirectory() as folder:
            write_inputs(Path(folder), [COMMANDS[name] for name in chosen],
                         environment_of(checkouts["after"], Path(folder, "cache")))
            for name in chosen:
                for row in rows_of(name, checkouts, Path(folder), options):
                    keep(row)
    write_table()


if __name__ == "__main__":
    main()
