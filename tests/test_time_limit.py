"""A test that hangs or ends its process fails by name, and all others run."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat

from tests.scheduler import SLOW

ROOT = Path(__file__).parents[1]
FILES = {
    "hangs": """
import threading, time

def background():
    time.sleep(600)

def test_hangs():
    threading.Thread(target=background, daemon=True).start()
    time.sleep(600)

def test_is_quick():
    pass
""",
    "is_stuck": """
import ctypes, signal

def test_is_stuck():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    ctypes.PyDLL(None).sleep(600)

def test_is_quick():
    pass
"""}
CRASHES = """
import os, pytest

@pytest.mark.parametrize("number", range({count}))
def test_of_{name}(number):
    if number in {crashing}:
        os._exit(1)
"""
CRASHING = {"a": (3, {2}), "b": (3, {0, 1}), "c": (1, {}), "d": (1, {0})}    # of each file: how many tests, which end


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder under our limits, each a hundredth or less of what it is."""
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder),
               "-p", "no:cacheprovider", "-p", "xdist", "-p", "pytest_timeout",
               "--timeout", "2", "-o", "faulthandler_timeout=4", *options, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder,
                          env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


def test_what_is_slow_is_there() -> None:
    assert [name for name in SLOW if not (ROOT / name).exists()] == []


def test_what_hangs_or_ends_its_process_fails_by_name_and_the_rest_runs_once(tmp_path: Path) -> None:
    for name, code in FILES.items():
        (tmp_path / f"test_{name}.py").write_text(code)
    for name, (count, crashing) in CRASHING.items():
        (tmp_path / f"test_{name}.py").write_text(CRASHES.format(name=name, count=count, crashing=set(crashing)))
    run = run_pytest(tmp_path, "-n", "2", "--dist", "loadfile", "-p", "tests.scheduler")
    lost = [rf"test_{name}\.py::test_of_{name}\[{number}\]" for name, (_, all_) in CRASHING.items() for number in all_]
    for test in (*lost, r"test_is_stuck\.py::test_is_stuck"):
        assert len(re.findall(rf"^worker '\w+' crashed while running '{test}'$", run.stdout, re.M)) == 1, run.stdout
    assert "Timeout (0:00:04)!\n" in run.stderr and "in test_is_stuck" in run.stderr, run.stderr
    assert "in background" in run.stdout and ">       time.sleep(600)" in run.stdout
    assert "FAILED test_hangs.py::test_hangs - Failed: Timeout (>2.0s)" in run.stdout
    passed = 2 + sum(count for count, _ in CRASHING.values()) - len(lost)
    assert re.search(rf"\b{len(lost) + 2} failed, {passed} passed in", run.stdout), run.stdout


def test_the_death_of_a_kernel_is_heard_at_once(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_code_cell(code) for code in ("import os", "os._exit(1)")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "dies.ipynb")
    shutil.copy(ROOT / "nbs" / "conftest.py", tmp_path)
    run = run_pytest(tmp_path, "-p", "nbval.plugin", "--nbval", "--nbval-current-env", "--timeout", "120",
                     "-o", "faulthandler_timeout=130")
    assert "FAILED dies.ipynb::Cell 1 - pytest plugin exception: the kernel has died" in run.stdout, run.stdout
    assert "1 failed, 1 passed" in run.stdout
