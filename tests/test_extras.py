"""Every command on the base install: it does what it can, and names the extra of what it lacks."""
import json
import os
import re
import shlex
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from sched_lab._extras import EXTRA_OF, need
from sched_lab.lab.frames import MissingPackage

ROOT = Path(__file__).parents[1]
HIDDEN = """import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else super().find_spec(name, path, target)

HIDDEN = set(sys.argv.pop(1).split(","))
sys.meta_path[:] = [Hiding if finder is PathFinder else finder for finder in sys.meta_path]
"""
RUN = HIDDEN + """import contextlib, io, json, shlex
from sched_lab.cli import main

answers = {}
for command in json.load(sys.stdin):
    said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said[0]), contextlib.redirect_stderr(said[1]):
        try:
            main(shlex.split(command))
        except SystemExit as end:
            answers[command] = end.code or 0, said[0].getvalue(), said[1].getvalue().splitlines()
json.dump(answers, sys.stdout)
"""


def on_base(folder: Path, program: str, given: str = "") -> str:
    """Run a program as if only the base were installed, and return what it prints."""
    done = subprocess.run([sys.executable, "-c", program, ",".join(EXTRA_OF)], cwd=folder, text=True, input=given,
                          capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT), "SCHED_LAB_COMPILE": "never"})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("base")


@pytest.fixture(scope="module")
def answers(folder):
    """Exit code, result and lines of complaint of each command, all run one after the other."""
    examples = [f"example {family} ." for family in ("online", "andreas", "hadar", "far")]
    found = json.loads(on_base(folder, RUN, json.dumps([*examples, *ANSWERED, BARE, *REFUSED])))
    assert all(found[example][0] == 0 and not found[example][2] for example in examples)
    return found


NO_CHARTS = r"sched-lab: warning: no charts: .*\[charts\]'"
ANSWERED = {
    "traces --nodes nodes.csv --tasks tasks.csv": [],
    "inflate --nodes nodes.csv --tasks tasks.csv --out inflated": [],
    "inflate --nodes nodes.csv --tasks tasks.csv --device cpu --out together": [],
    "sweep study.toml --workers 1 --out studied": [],
    "andreas --instance jobs.json --policy greedy --out now": [
        NO_CHARTS, r"sched-lab: warning: no distance from the best: .*\[solvers\]', and give --force"],
    "andreas --instance jobs.json --policy fifo --simulate --out day": [NO_CHARTS],
    "hadar --policy tiresias --out week": [
        NO_CHARTS, r"sched-lab: warning: no bounds: .*\[solvers\]', and give --force"],
    "far --times times.csv --out cut": [NO_CHARTS],
    "far --times times.csv --no-charts --out plain": [],
    "far-run --times times.csv --dry-run --out ran": [],
    "reproduce far": [],
}


@pytest.mark.parametrize("command", ANSWERED)
def test_a_command_does_what_it_can(answers, command):
    code, _, said = answers[command]
    assert code == 0 and len(said) == len(ANSWERED[command]), said
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(ANSWERED[command], said, strict=True)), said


BARE = "hadar --no-charts --policy yarn-cs --out bare"


def test_what_is_not_known_is_not_made_up(answers, folder):
    code, out, _ = answers[BARE]
    assert code == 0 and "no schedule before" not in out
    summary = json.loads((folder / "bare" / "summary.json").read_text())
    assert summary["lower_bound_h"] is summary["above_bound_percent"] is summary["mean_jct_bound_h"] is None


REFUSED = {
    "andreas --instance jobs.json --policy exact --no-charts --out out": "scipy, which is not installed; .*solvers",
    "hadar --policy planned --no-charts --out out": "scipy, which is not installed; .*solvers",
    "fetch openb --to out": "pooch, which is not installed; .*traces",
    "inflate --nodes nodes.csv --tasks tasks.csv --device cuda --out out": ".*gpu",
    "serve --mode observe": ".*kubernetes",
    "andreas serve --cluster jobs.json": "starlette, which is not installed; .*service",
}


@pytest.mark.parametrize("command", REFUSED)
def test_a_missing_package_is_one_line_with_its_extra(answers, command):
    code, _, said = answers[command]
    assert code == 2 and len(said) == 1, said
    assert re.search(REFUSED[command], said[0]) and "pip install 'sched_lab[" in said[0]


def test_other_packages_hear_what_they_always_do(tmp_path):
    tried = HIDDEN + """import sched_lab
from importlib.util import find_spec
try:
    import scipy
except ModuleNotFoundError as error:
    print(type(error).__name__, find_spec("altair"))
"""
    assert on_base(tmp_path, tried) == "ModuleNotFoundError None\n"


def test_a_need_that_is_not_met_is_refused(monkeypatch):
    monkeypatch.setitem(EXTRA_OF, "no_such_package", "charts")
    with pytest.raises(MissingPackage, match=r"no_such_package.*pip install 'sched_lab\[charts\]'"):
        need("numpy", "no_such_package")


def test_extras_are_declared_and_the_manual_names_them():
    settings = ConfigParser(delimiters=["="])
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    extras = set(EXTRA_OF.values())
    assert {f"{name}_requirements" for name in extras} <= settings["DEFAULT"].keys()
    declared = (ROOT / "setup.py").read_text(encoding="utf-8")
    asked = [key.removesuffix("_requirements") for key in settings["DEFAULT"] if key.endswith("_requirements")]
    assert all(f'"{name}"' in declared for name in asked if name)
    base = {re.split("[<>=]", word)[0] for word in shlex.split(settings["DEFAULT"]["requirements"])}
    assert not base & {name.replace("_", "-") for name in EXTRA_OF} and len(base) <= 10
    page = (ROOT / "manual" / "promises.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in {*extras, "all"})
