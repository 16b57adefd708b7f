"""A test that hangs or ends its process fails by name, and all others run."""
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
from hypothesis import HealthCheck, settings

from tests.scheduler import SLOW

ROOT = Path(__file__).parents[1]
HANGS = """
import threading, time

def background():
    time.sleep(600)

def test_hangs():
    threading.Thread(target=background, daemon=True).start()
    time.sleep(600)

def test_is_quick():
    pass
"""


STUCK = """
import ctypes, signal

def test_is_stuck():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    ctypes.PyDLL(None).sleep(600)

def test_is_quick():
    pass
"""


CRASHES = """
import os, pytest

@pytest.mark.parametrize("number", range({count}))
def test_of_{name}(number):
    if number in {crashing}:
        os._exit(1)
"""


def run_pytest(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run tests under our limits, each a hundredth or less of what it is."""
    (folder / "test_it.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder),
               "-p", "no:cacheprovider", "-p", "xdist", "-p", "pytest_timeout",
               "--timeout", "2", "-o", "faulthandler_timeout=4", *options, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder,
                          env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


def test_twenty_minutes_are_the_limit_of_every_test() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert (options["timeout"], options["timeout_method"]) == (1200, "signal")
    assert (options["faulthandler_timeout"], options["faulthandler_exit_on_timeout"]) == (1260, True)


def test_an_example_may_take_as_long_as_it_does() -> None:
    assert settings().deadline is None and HealthCheck.too_slow in settings().suppress_health_check


def test_a_hanging_cell_of_a_chapter_fails_by_name_before_its_process_is_ended() -> None:
    limits = re.findall(r"--nbval-cell-timeout (\d+)", (ROOT / "Makefile").read_text())
    assert [600 < int(limit) < 1200 for limit in limits] == [True]


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_hanging_test_shows_all_stacks_and_fails_alone(options: tuple[str, ...], tmp_path: Path) -> None:
    run = run_pytest(tmp_path, HANGS, *options)
    assert "in background" in run.stdout and ">       time.sleep(600)" in run.stdout
    assert "FAILED test_it.py::test_hangs - Failed: Timeout (>2.0s)" in run.stdout
    assert "1 failed, 1 passed" in run.stdout


def test_a_test_that_hears_no_signal_is_ended_with_its_process(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, STUCK)
    assert run.returncode != 0 and run.stderr.startswith("Timeout (0:00:04)!\n") and "in test_is_stuck" in run.stderr


def test_what_is_slow_is_there_and_what_is_needed_is_compiled_first() -> None:
    assert [name for name in SLOW if not (ROOT / name).exists()] == []
    steps = re.findall(r"--no-print-directory (?:-j.* )?(\w+)$", (ROOT / "Makefile").read_text(), re.M)
    assert steps.index("alone") < steps.index("compile") < steps.index("unit") < steps.index("nbval")


@pytest.mark.parametrize("files", [
    {"a": (2, {0}), "b": (2, {}), "c": (1, {})}, {"a": (3, {2}), "b": (3, {0, 1}), "c": (1, {}), "d": (1, {0})}],
    ids=["one", "several"])
def test_a_lost_worker_fails_its_test_and_the_rest_runs_once(files, tmp_path: Path) -> None:
    for name, (count, crashing) in files.items():
        (tmp_path / f"test_{name}.py").write_text(CRASHES.format(name=name, count=count, crashing=set(crashing)))
    run = run_pytest(tmp_path, "", "-n", "2", "--dist", "loadfile", "-p", "tests.scheduler")
    lost = [(name, number) for name, (_, crashing) in files.items() for number in crashing]
    for name, number in lost:
        told = rf"^worker '\w+' crashed while running 'test_{name}\.py::test_of_{name}\[{number}\]'$"
        assert len(re.findall(told, run.stdout, re.M)) == 1, run.stdout
    passed = sum(count for count, _ in files.values()) - len(lost)
    assert re.search(rf"\b{len(lost)} failed, {passed} passed in", run.stdout), run.stdout


def test_a_test_that_hears_no_signal_is_lost_with_its_worker_and_the_rest_runs(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, STUCK, "-n", "2", "--dist", "loadfile", "-p", "tests.scheduler")
    assert "crashed while running 'test_it.py::test_is_stuck'" in run.stdout and "1 failed, 1 passed" in run.stdout


def test_the_death_of_a_kernel_is_heard_at_once(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(code) for code in ("import os", "os._exit(1)")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "dies.ipynb")
    shutil.copy(ROOT / "nbs" / "conftest.py", tmp_path)
    run = run_pytest(tmp_path, "", "-p", "nbval.plugin", "--nbval", "--nbval-current-env", "--timeout", "120",
                     "-o", "faulthandler_timeout=130")
    assert "FAILED dies.ipynb::Cell 1 - pytest plugin exception: the kernel has died" in run.stdout, run.stdout
    assert "1 failed, 1 passed" in run.stdout
