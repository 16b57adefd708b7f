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


def run_pytest(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(HANGS)
    return subprocess.run([sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder),
                           "-p", "no:cacheprovider", "-o", "faulthandler_timeout=2", *options, str(folder)],
                          capture_output=True, text=True, timeout=120, cwd=folder)


def test_five_minutes_are_the_limit_of_every_test() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert (options["faulthandler_timeout"], options["faulthandler_exit_on_timeout"]) == (300, True)


def test_a_hanging_cell_of_a_chapter_fails_by_name_before_its_process_is_ended() -> None:
    limits = re.findall(r"--nbval-cell-timeout (\d+)", (ROOT / "Makefile").read_text())
    assert [0 < int(limit) < 300 for limit in limits] == [True]


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_a_hanging_test_shows_all_stacks_and_fails(options: tuple[str, ...], tmp_path: Path) -> None:
    run = run_pytest(tmp_path, *options)
    assert run.returncode != 0
    assert run.stderr.startswith("Timeout (0:00:02)!\n")
    assert "in background" in run.stderr and "in test_hangs" in run.stderr
    if options:  # another process goes on with the rest
        assert "crashed while running 'test_it.py::test_hangs'" in run.stdout
        assert "1 failed, 1 passed" in run.stdout
