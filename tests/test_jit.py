"""Compiled functions follow the sources they are made of, and the package works without a compiler."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sched_lab.jit as compat

CALLEE = "from sched_lab.jit import njit\n\n@njit()\ndef rate(x):\n    return x * {factor}\n"
CALLER = ("from sched_lab.jit import njit\nfrom sched_lab.callee import rate\n\n"
          "@njit()\ndef cost(x):\n    return rate(x) + 1\n")
RUN = "from sched_lab.caller import cost\nprint(cost(10), sum(cost.stats.cache_hits.values()))"


@pytest.fixture
def toy(tmp_path):
    """Package named as ours, with two modules: ``caller.cost`` inlines ``callee.rate``."""
    package = tmp_path / "sched_lab"
    package.mkdir()
    (package / "__init__.py").touch()
    shutil.copy(compat.__file__, package)
    (package / "callee.py").write_text(CALLEE.format(factor=2))
    (package / "caller.py").write_text(CALLER)
    return package


def run(toy: Path, code: str = RUN, **env: str) -> list[str]:
    """Words printed by the code in a new process that imports the toy package."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    clean["PYTHONDONTWRITEBYTECODE"] = "1"  # its cache takes an edit in the same second for none
    done = subprocess.run([sys.executable, "-c", code], cwd=toy.parent, capture_output=True, text=True,
                          env=clean | {"PYTHONPATH": str(toy.parent)} | env)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_second_process_loads_compiled_code(toy):
    pytest.importorskip("numba")
    assert run(toy) == ["21", "0"]
    assert run(toy) == ["21", "1"]


def test_edit_of_another_file_recompiles(toy):
    pytest.importorskip("numba")
    assert run(toy) == ["21", "0"]
    (toy / "callee.py").write_text(CALLEE.format(factor=3))     # same size, other content
    assert run(toy) == ["31", "0"]
    assert run(toy) == ["31", "1"]


def test_edit_of_a_file_that_is_not_imported_recompiles_nothing(toy):
    pytest.importorskip("numba")
    (toy / "stranger.py").write_text(CALLEE.format(factor=5))
    assert run(toy) == ["21", "0"]
    (toy / "stranger.py").write_text(CALLEE.format(factor=6))
    (toy / "caller.py").write_text(CALLER)                      # written again, unchanged
    assert run(toy) == ["21", "1"]


@pytest.mark.parametrize("line", [
    "from sched_lab import callee", "from . import callee", "import sched_lab.callee as c", "from .middle import rate",
    "def late():\n    from .callee import (\n        rate,\n    )",
])
def test_every_form_of_import_is_followed(toy, monkeypatch, line):
    monkeypatch.setattr(compat, "PACKAGE", toy)
    (toy / "middle.py").write_text("from .callee import rate\n")
    (toy / "caller.py").write_text(line)
    stamps = []
    for factor in (2, 3):
        (toy / "callee.py").write_text(CALLEE.format(factor=factor))
        compat.source_stamp.cache_clear()
        compat._imported_files.cache_clear()
        stamps.append(compat.source_stamp(toy / "caller.py"))
    assert stamps[0] != stamps[1]


def test_cache_moves_when_the_package_folder_is_not_writable(toy, tmp_path):
    pytest.importorskip("numba")
    (toy / "__pycache__").touch()                               # a file in its place stops the superuser too
    assert run(toy, XDG_CACHE_HOME=str(tmp_path / "cache")) == ["21", "0"]
    assert run(toy, XDG_CACHE_HOME=str(tmp_path / "cache")) == ["21", "1"]
    (tmp_path / "nowhere").touch()
    assert run(toy, XDG_CACHE_HOME=str(tmp_path / "nowhere")) == ["21", "0"]


def test_unknown_numba_internals_only_cost_the_cache(toy):
    pytest.importorskip("numba")
    hide = ("import numba.core.caching as caching\n"
            "caching.FunctionCache._cache_file = property(lambda self: self.gone, lambda self, value: None)\n")
    assert run(toy, hide + RUN) == ["21", "0"]
    assert run(toy, hide + RUN) == ["21", "0"]


def test_without_numba_the_function_is_left_alone(toy):
    block = "import sys; sys.modules['numba'] = None\n"
    check = "from sched_lab.caller import cost\nprint(cost(10), type(cost).__name__)"
    assert run(toy, block + check) == ["21", "function"]


def test_jit_can_be_switched_off(toy):
    assert run(toy, "from sched_lab.caller import cost\nprint(cost(10))", NUMBA_DISABLE_JIT="1") == ["21"]


def test_a_function_of_a_notebook_is_not_cached():
    pytest.importorskip("numba")

    @compat.njit()
    def double(x):
        return 2 * x

    assert double(4) == 8 and not list(double.stats.cache_hits)


ENGINE = """from sched_lab.jit import njit

@njit()
def run(functions, x):
    total = 0
    for function in functions:
        total += function(x)
    return total
"""
VALUES = """from sched_lab.jit import first_class, quiet
from sched_lab.callee import rate
from sched_lab.caller import cost
from sched_lab.engine import run
with quiet():
    a = run((first_class(rate, 1), first_class(cost, 1)), 10)
    b = run((first_class(cost, 1), first_class(cost, 1)), 10)
print(a, b, len(run.signatures), sum(run.stats.cache_hits.values()))
"""


def test_functions_as_values_share_one_compiled_engine_that_is_kept_on_disk(toy):
    pytest.importorskip("numba")
    (toy / "engine.py").write_text(ENGINE)
    assert run(toy, VALUES) == ["41", "42", "1", "0"]           # 20 + 21, 21 + 21: one signature for both
    assert run(toy, VALUES) == ["41", "42", "1", "1"]
    (toy / "callee.py").write_text(CALLEE.format(factor=3))
    assert run(toy, VALUES) == ["61", "62", "1", "1"]           # 30 + 31, 31 + 31: the engine holds no callee


def test_functions_as_values_work_without_a_compiler(toy):
    (toy / "engine.py").write_text(ENGINE)
    plain = VALUES.replace("len(run.signatures), sum(run.stats.cache_hits.values())", "type(run).__name__")
    assert run(toy, "import sys; sys.modules['numba'] = None\n" + plain) == ["41", "42", "function"]
    assert run(toy, plain, NUMBA_DISABLE_JIT="1") == ["41", "42", "function"]
