"""Compiled functions follow the sources they are made of, and the package works without a compiler."""
import atexit
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from select import select

import pytest

import sched_lab.lab.jit as compat

CALLEE = "from sched_lab.lab.jit import njit\n\n@njit()\ndef rate(x):\n    return x * {factor}\n"
CALLER = ("from sched_lab.lab.jit import njit\nfrom sched_lab.callee import rate\n\n"
          "@njit()\ndef cost(x):\n    return rate(x) + 1\n")
RUN = "from sched_lab.caller import cost\nprint(cost(10), sum(cost.stats.cache_hits.values()))"
WARM = """import json, os, sys
import numba
numba.njit(lambda x: x)(1)
for line in sys.stdin:
    folder, environment, codes = json.loads(line)
    children = []
    for number, code in enumerate(codes):
        if not (child := os.fork()):
            os.chdir(folder)
            os.environ |= environment
            sys.path.insert(0, folder)
            sys.stdout = open(f"said-{number}", "w")
            sys.exit(exec(code))
        children.append(child)
    print(*(os.waitpid(child, 0)[1] for child in children), flush=True)
"""


@pytest.fixture
def toy(tmp_path):
    """Package named as ours, with two modules: ``caller.cost`` inlines ``callee.rate``."""
    package = tmp_path / "sched_lab"
    (package / "lab").mkdir(parents=True)
    for folder in (package, package / "lab"):
        (folder / "__init__.py").touch()
    shutil.copy(compat.__file__, package / "lab")
    (package / "callee.py").write_text(CALLEE.format(factor=2))
    (package / "caller.py").write_text(CALLER)
    return package


def clean() -> dict[str, str]:
    """Environment of a new process, without settings of the compiler."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1"}  # its cache takes an edit in the same second for none


@cache
def warm() -> subprocess.Popen[str]:
    """Process that has compiled and imported nothing of ours: what it is told to run, a fork of it runs."""
    pytest.importorskip("numba")
    process = subprocess.Popen([sys.executable, "-c", WARM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=clean())
    atexit.register(process.communicate)
    return process


def run_at_once(toy: Path, *codes: str, **env: str) -> list[list[str]]:
    """Words printed by each code in a process of its own, which imports the toy package and nothing else of ours."""
    print(json.dumps([str(toy.parent), env, codes]), file=warm().stdin, flush=True)
    assert not any(map(int, warm().stdout.readline().split()))
    return [(toy.parent / f"said-{number}").read_text().split() for number in range(len(codes))]


def run(toy: Path, code: str = RUN, **env: str) -> list[str]:
    """Words printed by one code."""
    return run_at_once(toy, code, **env)[0]


def run_anew(toy: Path, code: str, **env: str) -> list[str]:
    """Words printed by the code in a new process that imports the toy package."""
    done = subprocess.run([sys.executable, "-c", code], cwd=toy.parent, capture_output=True, text=True,
                          env=clean() | {"PYTHONPATH": str(toy.parent)} | env)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_compiled_code_is_kept_until_a_file_that_it_depends_on_changes(toy):
    (toy / "stranger.py").write_text(CALLEE.format(factor=5))
    assert run(toy) == ["21", "0"]
    (toy / "stranger.py").write_text(CALLEE.format(factor=6))
    assert run(toy) == ["21", "1"]                              # another process, and a file that is not imported
    (toy / "callee.py").write_text(CALLEE.format(factor=3))     # same size, other content
    assert run(toy) == ["31", "0"]
    assert run(toy) == ["31", "1"]


@pytest.mark.parametrize("line", [
    "from sched_lab import callee", "from . import callee", "import sched_lab.callee as c", "from .middle import rate",
    "def late():\n    from .callee import (\n        rate,\n    )",
])
def test_every_form_of_import_is_followed(toy, monkeypatch, line):
    monkeypatch.setattr(compat, "PACKAGE", toy)
    monkeypatch.setattr(compat, "__file__", str(toy / "lab" / "jit.py"))
    (toy / "middle.py").write_text("from .callee import rate\n")
    (toy / "caller.py").write_text(line)
    stamps = []
    for factor in (2, 3):
        (toy / "callee.py").write_text(CALLEE.format(factor=factor))
        compat.source_stamp.cache_clear()
        compat._imported_files.cache_clear()
        stamps.append(compat.source_stamp(toy / "caller.py"))
    assert stamps[0] != stamps[1]


def test_code_of_other_sources_is_kept_for_a_day(toy):
    assert run(toy) == ["21", "0"]
    kept = {path.name: path for path in (toy / "__pycache__").glob("sched_lab.call*-*")}
    assert len(kept) == 2
    day_ago_s = time.time() - 2 * compat.OLD_S
    old = next(path for name, path in kept.items() if name.startswith("sched_lab.caller-"))
    os.utime(old, (day_ago_s, day_ago_s))
    (toy / "callee.py").write_text(CALLEE.format(factor=3))
    assert run(toy) == ["31", "0"]
    assert [path.is_dir() for path in kept.values()] == [path != old for path in kept.values()]


HOLD = """import sys
from pathlib import Path
from sched_lab.lab import jit
jit.kept_in = lambda: Path(sys.argv[1])
turns = jit.Turns()
turns(True)
turns.take(jit.file_of)
print("held", flush=True)
sys.stdin.read()
"""


def test_processes_take_turns_at_a_function(tmp_path, monkeypatch):
    pytest.importorskip("fcntl")
    monkeypatch.setattr(compat, "kept_in", lambda: tmp_path)
    turns = compat.Turns()
    turns.longest_s = 60
    turns(True)

    def waits_s(function):
        begun_s = time.monotonic()
        turns.take(function)
        return time.monotonic() - begun_s

    hold = partial(subprocess.Popen, [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE,
                   stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(compat.PACKAGE.parent)})
    with hold() as other:
        assert other.stdout.readline() == "held\n"
        assert waits_s(compat.is_ours) < 30     # another function
        turns.longest_s = 0.3
        assert waits_s(compat.file_of) >= 0.3   # and not for ever
        other.stdin.close()
        assert other.wait(60) == 0
    turns.longest_s = 60
    assert waits_s(compat.file_of) < 30
    turns.finish(compat.file_of)
    turns(True)
    turns(False)
    with hold() as other:       # what is kept is free for others while the function around it still compiles
        is_free = bool(select([other.stdout], [], [], 120)[0])
        other.kill()
    assert is_free
    assert turns.file is not None
    turns(False)
    assert turns.file is None


PAIR = """from sched_lab.caller import cost
print(*[cost(kind(10)) for kind in ({})])
"""


def test_processes_that_compile_at_once_keep_what_is_right(toy):
    pair = [PAIR.format(kinds) for kinds in ("int, float, complex, bool", "complex, bool, float, int")]
    for _ in range(2):
        assert run_at_once(toy, *pair) == [["21", "21.0", "(21+0j)", "3"], ["(21+0j)", "3", "21.0", "21"]]


def test_cache_moves_when_the_package_folder_is_not_writable(toy, tmp_path):
    (toy / "__pycache__").touch()                               # a file in its place stops the superuser too
    assert run(toy, XDG_CACHE_HOME=str(tmp_path / "cache")) == ["21", "0"]
    assert run(toy, XDG_CACHE_HOME=str(tmp_path / "cache")) == ["21", "1"]
    (tmp_path / "nowhere").touch()
    assert run(toy, XDG_CACHE_HOME=str(tmp_path / "nowhere")) == ["21", "0"]


def test_nothing_loads_the_compiler_before_it_is_needed(toy):
    code = ("import sys\nfrom sched_lab.caller import cost\nfrom sched_lab.lab.jit import interpreted\n"
            "with interpreted(True): print(cost(10))\nprint('numba' in sys.modules, cost(10), 'numba' in sys.modules)")
    assert run_anew(toy, code) == ["21", "False", "21", "True"]
    code = "from sched_lab.caller import cost\nprint(type(cost).__name__)"
    assert run_anew(toy, code, SCHED_LAB_COMPILE="never") == ["function"]


def test_a_function_of_a_notebook_is_not_cached():
    pytest.importorskip("numba")

    @compat.njit()
    def double(x):
        return 2 * x

    assert double(4) == 8 and not list(double.stats.cache_hits)


ENGINE = """from sched_lab.lab.jit import njit

@njit()
def run(functions, x):
    total = 0
    for function in functions:
        total += function(x)
    return total
"""
VALUES = """from sched_lab.lab.jit import first_class, quiet
from sched_lab.callee import rate
from sched_lab.caller import cost
from sched_lab.engine import run
with quiet():
    a = run((first_class(rate, 1), first_class(cost, 1)), 10)
    b = run((first_class(cost, 1), first_class(cost, 1)), 10)
print(a, b, len(run.signatures), sum(run.stats.cache_hits.values()))
"""


def test_functions_as_values_share_one_compiled_engine_that_is_kept_on_disk(toy):
    (toy / "engine.py").write_text(ENGINE)
    assert run(toy, VALUES) == ["41", "42", "1", "0"]           # 20 + 21, 21 + 21: one signature for both
    assert run(toy, VALUES) == ["41", "42", "1", "1"]
    (toy / "callee.py").write_text(CALLEE.format(factor=3))
    assert run(toy, VALUES) == ["61", "62", "1", "1"]           # 30 + 31, 31 + 31: the engine holds no callee


def test_functions_as_values_work_without_a_compiler(toy):
    (toy / "engine.py").write_text(ENGINE)
    plain = VALUES.replace("len(run.signatures), sum(run.stats.cache_hits.values())", "type(run).__name__")
    assert run_anew(toy, "import sys; sys.modules['numba'] = None\n" + plain) == ["41", "42", "function"]
    assert run_anew(toy, plain, NUMBA_DISABLE_JIT="1") == ["41", "42", "function"]


RECORDS = """
from typing import Any, NamedTuple
from sched_lab.lab.jit import by_reference, njit

@by_reference
class Limits(NamedTuple):
    most: Any
    unit: int

@by_reference
class World(NamedTuple):
    left: Any
    limits: Limits

@njit()
def fits(world, node, asked):
    return asked * world.limits.unit <= min(world.left[node], world.limits.most[node])

@njit()
def place(world, asked):
    placed = 0
    for node in range(len(world.left)):
        if fits(world, node, asked):
            world.left[node] -= asked
            placed += 1
    return placed
"""
PLACE = """
import sys
import numpy as np
from sched_lab.records import Limits, World, place
left, most = np.array([5, 1, 7]), np.array([9, 9, 2])
held = [sys.getrefcount(array) for array in (left, most)]
placed = [place(World(left, Limits(most, unit)), 3) for unit in (2, 1, 1)]
print(*placed, *left, [sys.getrefcount(array) for array in (left, most)] == held)
print(len(place.signatures), sum(place.stats.cache_hits.values()))
"""


def test_a_record_goes_by_reference_and_its_arrays_are_let_go(toy):
    shutil.copy(Path(compat.__file__).with_name("references.py"), toy / "lab")
    (toy / "records.py").write_text(RECORDS)
    placed = ["0", "1", "0", "2", "1", "7", "True", "1"]    # 6 > 5 at first; then 3 <= 5, and no node has 3 left
    assert run(toy, PLACE) == [*placed, "0"]
    assert run(toy, PLACE) == [*placed, "1"]                # kept on disk
    assert run_anew(toy, PLACE.partition("print(len")[0], SCHED_LAB_COMPILE="never") == placed[:7]


def one_calls_another():
    """Make two compiled functions, the second of which calls the first."""
    pytest.importorskip("numba")

    @compat.njit()
    def double(x):
        return 2 * x

    @compat.njit()
    def quadruple(x):
        return double(double(x))

    return double, quadruple


def test_what_only_compiled_code_calls_has_no_entry_from_python():
    double, quadruple = one_calls_another()
    assert quadruple(4) == 16
    assert double.signatures == [] and len(quadruple.signatures) == 1
    assert double(4) == 8 and len(double.signatures) == 1


DEEP = """
import numba
from sched_lab.lab.jit import njit

@numba.njit(cache=True)
def depth(n):
    if n < 0:
        raise ValueError(f"{n} is below 0")
    if n == 0:
        return 0
    return 1 + depth(n - 1)

@njit()
def twice(n):
    return 2 * depth(n)

@njit()
def thrice(n):
    return 3 * depth(n)
"""


def test_python_runs_compiled_functions_itself_where_there_is_little_to_do(monkeypatch):
    double, quadruple = one_calls_another()
    monkeypatch.delenv("SCHED_LAB_COMPILE", raising=False)
    with compat.interpreted(True):
        assert quadruple(4) == 16 and compat.first_class(double, 1) is double
    assert not quadruple.signatures and not double.signatures
    for said, is_small, is_compiled in (("never", False, False), ("always", True, True), ("", False, True)):
        monkeypatch.setenv("SCHED_LAB_COMPILE", said)
        with compat.interpreted(is_small):
            assert compat.runs_interpreted.get() != is_compiled
    assert not compat.runs_interpreted.get()
    assert quadruple(4) == 16 and len(quadruple.signatures) == 1


@contextmanager
def compilations(state):
    """Names of what numba compiles in the block, each with a state at that moment."""
    event = pytest.importorskip("numba.core.event")
    said = []

    class Listener(event.Listener):
        def on_start(self, event):
            said.append((event.data["dispatcher"].py_func.__name__, state()))

        def on_end(self, event):
            """Nothing is asked then."""

    compat._listen()    # it hears of the same events, and before
    with event.install_listener("numba:compile", Listener()):
        yield said


def test_literals_make_no_second_form():
    pytest.importorskip("numba")

    @compat.njit()
    def following(x, step):
        return x + step

    @compat.njit()
    def count(n):
        at = 0
        while at < n:
            at = following(at, 1)
        return following(at, 2)

    with compilations(lambda: None) as said:
        assert count(3) == 5
    assert [name for name, _ in said] == ["count", "following"]


def test_the_collector_of_garbage_and_the_level_of_llvm_are_as_before_after_compiling():
    config = pytest.importorskip("numba").config

    def state():
        return gc.get_threshold(), int(config.OPT)

    before = state()
    with compilations(state) as said:
        assert one_calls_another()[1](4) == 16
    held = (50_000, 20, 100)
    assert said == [("quadruple", (held, before[1])), ("double", (held, min(before[1], 1)))]
    assert state() == before


BOTH = """
from numba import config
from sched_lab.callee import rate
from sched_lab.caller import cost
print({first}(10), {then}(10), rate.signatures, sum(rate.stats.cache_hits.values()), config.CACHE_DIR == "")
"""


@pytest.mark.parametrize(("first", "then", "said"), [("cost", "rate", "21 20"), ("rate", "cost", "20 21")])
def test_a_function_can_be_called_from_python_and_from_compiled_code(toy, first, then, said):
    code = BOTH.format(first=first, then=then)
    for num_kept in (0, 1):     # of two kept, the form with an entry from Python
        assert run(toy, code) == [*said.split(), "[(int64,)]", str(num_kept), "True"]


def test_a_function_of_others_that_calls_itself_is_linked_and_kept(toy):
    """Each process finds more of it on disk than the one before."""
    (toy / "deep.py").write_text(DEEP)
    for names in (["twice"], ["twice", "thrice"], ["thrice", "depth"]):
        code = f"from sched_lab.deep import {', '.join(names)}\n" + "".join(
            f"print({name}(5))\ntry: {name}(-1)\nexcept ValueError as error: print(error)\n" for name in names)
        factor = {"twice": 2, "thrice": 3, "depth": 1}
        assert run(toy, code) == [word for name in names for word in (str(5 * factor[name]), *"-1 is below 0".split())]


def test_only_documented_parts_of_numba_are_named():
    """Of `numba.core` the events alone are documented."""
    for file in compat.PACKAGE.rglob("*.py"):
        for parts in re.findall(r"numba\.core[\w.]*(?: import [\w, ]+)?|numba\.\w*\._\w+", file.read_text()):
            assert parts == "numba.core import event", file


# --- what is said of it


LINE = "sched-lab: compiling once, which can take a minute\n"


@pytest.mark.parametrize(("is_command", "is_in_lab", "is_owner", "is_worker", "blink_s", "said"), [
    (True, False, True, False, -1, LINE), (False, True, True, False, -1, LINE), (False, False, True, False, -1, ""),
    (True, True, False, False, -1, ""), (False, True, True, True, -1, ""), (True, True, True, False, 60, "")])
def test_compiling_is_said_once_where_somebody_reads_it(is_command, is_in_lab, is_owner, is_worker, blink_s, said,
                                                        monkeypatch, capsys):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    if is_in_lab:
        monkeypatch.setenv("JPY_SESSION_NAME", "mine.ipynb")
    if is_worker:
        monkeypatch.setattr("multiprocessing.parent_process", lambda: "somebody")
    told = compat.Compiling()
    told.is_command = is_command
    told.owner *= 1 if is_owner else -1
    told.blink_s = blink_s
    for begins in (True, True, False, False, True, False):    # one within another, and a third
        told(begins)
    assert capsys.readouterr() == ("", said)


def test_a_signal_waits_for_the_compiler():
    told = compat.Compiling()
    with pytest.raises(KeyboardInterrupt):
        told.interrupt(KeyboardInterrupt())
    told(True)
    told(True)
    told.interrupt(compat.Terminated(143))
    with pytest.raises(compat.Terminated):
        told(False)
    told(False)
    assert told.depth == 0


@pytest.mark.skipif(os.name != "posix", reason="it needs a pseudo-terminal")
def test_compiling_beside_a_bar_has_a_line_of_its_own():
    """On a terminal a bar of days, say, is up when the first of them compiles."""
    pexpect = pytest.importorskip("pexpect")
    program = """from sched_lab.lab import jit
from sched_lab.lab.commands import progress
jit.compiling_told.blink_s = -1.0
with progress(2, "days") as say:
    jit.compiling_told(True)
    say("one")
"""
    with pexpect.spawn(sys.executable, ["-c", program], encoding="utf-8", timeout=120, dimensions=(20, 80)) as child:
        child.expect(pexpect.EOF)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", child.before)
    rows = [row.rpartition("\r")[2].strip() for row in plain.replace("\r\n", "\n").split("\n")]
    assert [row for row in rows if "compiling" in row] == ["sched-lab: compiling once, which can take a minute"]
    assert "one" in rows
