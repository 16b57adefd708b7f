"""Run what a change can break, the nearest first, for two minutes at most; `make test` runs everything.

python tools/check.py [BASE]        changed: what differs from the commit BASE (default HEAD: not committed yet)

First what costs seconds: export, layers, style, ruff and mypy. Then tests that were changed themselves, tests of the
changed modules, of the modules that import them, and so on; and the changed chapters. What the time did not suffice for
is named; the tests have a minute of it, however long the first part took.
"""
from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
LIMIT_S = 110
LEAST_S = 60  # of them for tests and chapters
ALWAYS = ["tests/test_export.py", "tests/test_layers.py", "tests/test_style.py"]


def changed_files(base: str) -> list[str]:
    """Files that differ from a commit, new ones included; deleted ones left out."""
    commands = (["git", "diff", "--name-only", base], ["git", "ls-files", "-o", "--exclude-standard"])
    lines = [subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True).stdout
             for command in commands]
    return [name for name in "".join(lines).splitlines() if (ROOT / name).is_file()]


def distances(graph: dict[str, set[str]], changed: set[str]) -> dict[str, int]:
    """How many imports lie between each module and the nearest changed one; modules that none reaches are left out."""
    found = dict.fromkeys(changed & graph.keys(), 0)
    reached, steps = set(found), 0
    while reached:
        steps += 1
        reached = {module for module, imported in graph.items() if imported & reached} - found.keys()
        found |= dict.fromkeys(reached, steps)
    return found


def tests_of(module: str) -> list[str]:
    """Test files that mirror a module: those of `fleet.read.slurm` are in `tests/fleet/`, without `read/`."""
    *folders, name = module.split(".")
    return [str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "".join(folders[:1])).glob(f"test_{name}.py")]


def near_tests(files: list[str]) -> list[str]:
    """Test files that the changed files can break, the nearest first."""
    from tests.test_layers import PACKAGE, read_graph

    graph, _ = read_graph(PACKAGE)
    changed = {name.removeprefix("sched_lab/").removesuffix(".py").replace("/", ".") for name in files
               if name.startswith(("sched_lab/", "studies/"))}
    near = sorted(distances(graph, changed).items(), key=lambda entry: entry[1])
    own = [name for name in files if name.startswith("tests/") and Path(name).name.startswith("test_")]
    listed = dict.fromkeys([*own, *(test for module, _ in near for test in tests_of(module))])
    return [test for test in listed if test not in ALWAYS and test != "tests/test_book_pages.py"]


class Clock:
    """Stop a run of pytest when the time is up, and remember which files it has finished."""

    def __init__(self, end_s: float) -> None:
        self.end_s = end_s
        self.seen: set[str] = set()
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that has ended, and whether it failed."""
        self.seen.add(report.nodeid.partition("::")[0])
        self.failed += [report.nodeid] if report.failed else []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be read."""
        self.failed += [report.nodeid] if report.failed else []

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Stop after this test if the time is up."""
        if time.monotonic() > self.end_s:
            item.session.shouldstop = "the two minutes are over"


def main(base: str = "HEAD") -> int:
    """Run the checks; return 1 if one failed."""
    end_s = time.monotonic() + LIMIT_S
    files = changed_files(base)
    chapters = [name for name in files if name.startswith("nbs/") and name.endswith(".ipynb")]
    tests = near_tests(files)
    print(f"{len(files)} changed files; {len(chapters)} chapters and {len(tests)} test files to run")
    quick = [["ruff", "check", "."], ["mypy"], [sys.executable, "-m", "pytest", "-q", *ALWAYS]]
    failed = [" ".join(command[:2]) for command in quick if subprocess.run(command, cwd=ROOT).returncode]
    nbval = ["--nbval", "--nbval-cell-timeout", "60", "--nbval-current-env",
             "--nbval-sanitize-with", "nbs/sanitize.cfg"]
    end_s = max(end_s, time.monotonic() + LEAST_S)
    late = []
    for what, options in ((tests, ["--benchmark-disable"]), (chapters, nbval)):
        clock = Clock(end_s)
        if what and time.monotonic() < end_s:
            pytest.main(["-q", "-x", "-p", "no:cacheprovider", *options, *what], plugins=[clock])
            failed += clock.failed
        late += [name for name in what if name not in clock.seen]
    print(f"not reached in time, left to `make test`: {', '.join(late)}" if late else "everything near the change ran")
    print(f"failed: {', '.join(failed)}" if failed else "no check failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
