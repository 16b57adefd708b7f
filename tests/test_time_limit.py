"""A test that hangs is ended, shows where all of its threads are, and fails."""
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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


def run_pytest(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(code)
    return subprocess.run([sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder),
                           "-p", "no:cacheprovider", "--timeout", "2", "-o", "faulthandler_timeout=4", *options,
                           str(folder)], capture_output=True, text=True, timeout=120, cwd=folder)


def test_five_minutes_are_the_limit_of_every_test() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert (options["timeout"], options["timeout_method"]) == (300, "signal")
    assert (options["faulthandler_timeout"], options["faulthandler_exit_on_timeout"]) == (360, True)


def test_a_hanging_cell_of_a_chapter_fails_by_name_before_its_process_is_ended() -> None:
    limits = re.findall(r"--nbval-cell-timeout (\d+)", (ROOT / "Makefile").read_text())
    assert [0 < int(limit) < 300 for limit in limits] == [True]


@pytest.mark.parametrize("options", [(), ("-n", "1", "--max-worker-restart", "0")])
def test_a_hanging_test_shows_all_stacks_and_fails_alone(options: tuple[str, ...], tmp_path: Path) -> None:
    run = run_pytest(tmp_path, HANGS, *options)
    assert "in background" in run.stdout and ">       time.sleep(600)" in run.stdout
    assert "FAILED test_it.py::test_hangs - Failed: Timeout (>2.0s)" in run.stdout
    assert "1 failed, 1 passed" in run.stdout


def test_a_test_that_hears_no_signal_is_ended_with_its_process(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, STUCK)
    assert run.returncode != 0 and run.stderr.startswith("Timeout (0:00:04)!\n") and "in test_is_stuck" in run.stderr


def test_when_a_process_is_ended_the_run_ends_and_names_the_test(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, STUCK, "-n", "2", "--dist", "loadfile", "--max-worker-restart", "0")
    assert run.returncode != 0 and "crashed while running 'test_it.py::test_is_stuck'" in run.stdout
