"""A second process compiles ahead of a command: from a list that fits the package, and without changing anything."""
import inspect
import json
import os
import shutil
import subprocess
import sys
from importlib import import_module

import pytest

from sched_lab import _ahead
from sched_lab.lab import jit

LISTED = json.loads(_ahead.LIST.read_text(encoding="utf-8"))


@pytest.mark.parametrize("words, case", [
    (["inflate", "--policy", "joint"], "inflate joint"), (["inflate", "--policy=joint"], "inflate joint"),
    (["inflate"], "inflate pwr-fgd:0.1"), (["sweep", "study.toml"], "inflate pwr-fgd:0.1"),
    (["far-run", "--policy", "far-plus"], "far far-plus"), (["far"], "far"), (["read", "k8s"], ""), ([], ""),
])
def test_a_command_line_finds_the_list_that_fits_best(words, case):
    assert _ahead.case_of(words, list(LISTED["cases"])) == case


def test_the_list_names_functions_that_there_are_with_as_many_arguments():
    pytest.importorskip("numba")
    wrong = []
    for module, name, form, kinds in LISTED["functions"]:
        function = getattr(import_module(module), name, None)
        if function is None or len(inspect.signature(function.py_func).parameters) != len(kinds):
            wrong.append(f"{module}.{name}")
        assert form in ("from Python", "from compiled code", "as a value")
    assert wrong == [], "run tools/list_compiled.py"
    assert {number for numbers in LISTED["cases"].values() for number in numbers} == {*range(len(LISTED["functions"]))}


def test_types_are_spelled_and_read_again():
    pytest.importorskip("numba")
    with jit.quiet():
        assert [_ahead.spelled(_ahead.type_of(each)) for each in LISTED["types"]] == LISTED["types"]


def test_a_type_without_a_spelling_is_refused():
    types = pytest.importorskip("numba").types
    with pytest.raises(ValueError, match="no spelling for Set"):
        _ahead.spelled(types.Set(types.int64))


TOY = {
    "callee": "from sched_lab.lab.jit import njit\n\n@njit()\ndef rate(x):\n    return x * 2\n",
    "caller": "from sched_lab.lab.jit import njit\nfrom sched_lab.callee import rate\n\n"
              "@njit()\ndef cost(x):\n    return rate(x) + 1\n",
}
LIST = {"types": ["int64", ["set"]], "cases": {"cost": [0, 1, 2, 3]}, "functions": [
    ["sched_lab.callee", "rate", "from compiled code", [0]], ["sched_lab.caller", "gone", "from Python", [0]],
    ["sched_lab.caller", "cost", "from Python", [0, 0]], ["sched_lab.caller", "cost", "from Python", [0]]]}
HELPED = """
import time
from sched_lab import _ahead
from sched_lab.lab import jit
_ahead.processors = lambda: {processors}
helpers = []
class Noted(_ahead.Helper):
    def __init__(self, words):
        super().__init__(words)
        helpers.append(self)
_ahead.Helper = Noted
with _ahead.helped(["cost"]):
    from sched_lab.caller import cost
    process = helpers[0].process if helpers else None
    {meanwhile}
    print(cost(10), sum(cost.stats.cache_hits.values()))
print(process and process.poll(), jit.compiling)
"""


@pytest.fixture
def toy(tmp_path):
    """Package named as ours, with a list of what its one command compiles; parts of the list are wrong."""
    package = tmp_path / "sched_lab"
    (package / "lab").mkdir(parents=True)
    shutil.copy(jit.__file__, package / "lab")
    shutil.copy(_ahead.__file__, package)
    for folder in (package, package / "lab"):
        (folder / "__init__.py").touch()
    for name, text in TOY.items():
        (package / f"{name}.py").write_text(text)
    (package / "_ahead.json").write_text(json.dumps(LIST))
    return package


def run(toy, meanwhile, processors=2):
    """Words printed by a command of the toy package."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    program = HELPED.format(meanwhile=meanwhile, processors=processors)
    done = subprocess.run([sys.executable, "-c", program], cwd=toy.parent, capture_output=True, text=True,
                          env=clean | {"PYTHONPATH": str(toy.parent)})
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_command_takes_what_the_second_process_has_kept_and_says_goodbye(toy):
    pytest.importorskip("numba")
    assert run(toy, "process.wait()") == ["21", "1", "0", "[]"]      # it got over the wrong parts of the list


def test_a_second_process_that_is_killed_costs_nothing_but_time(toy):
    pytest.importorskip("numba")
    assert run(toy, "process.kill(); process.wait()") == ["21", "0", "-9", "[]"]


def test_a_command_that_is_done_first_ends_the_second_process(toy):
    pytest.importorskip("numba")
    assert run(toy, "import signal; process.send_signal(signal.SIGSTOP)") == ["21", "0", "-9", "[]"]


def test_nothing_is_started_when_code_has_been_kept_or_for_one_processor(toy):
    pytest.importorskip("numba")
    assert run(toy, "", processors=1) == ["21", "0", "None", "[]"]
    assert run(toy, "") == ["21", "1", "None", "[]"]


def test_no_list_is_no_error(toy):
    pytest.importorskip("numba")
    (toy / "_ahead.json").unlink()
    assert run(toy, "") == ["21", "0", "None", "[]"]
