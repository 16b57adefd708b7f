"""How the package is written, where that protects a user: documented parameters, relative and light imports."""
import ast
import inspect
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.test_export import NOTEBOOKS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sched_lab"
MODULES = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in PACKAGE.rglob("*.py")
                 if not path.name.startswith("_"))


def public_names(module: str) -> list[str]:
    return list(getattr(import_module(module), "__all__", ()))


def functions_of(module: str):
    """Public functions of a module, and the public methods of its public classes, with their names."""
    for name in public_names(module):
        value = getattr(import_module(module), name)
        value = getattr(value, "py_func", value)
        if inspect.isfunction(value) and value.__module__ == module:
            yield name, value
        elif inspect.isclass(value) and value.__module__ == module:
            for key, method in vars(value).items():
                if inspect.isfunction(method) and not key.startswith("_"):
                    yield f"{name}.{key}", method


def parameters_of(function) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


PARAMETERS = re.compile(r"Parameters\n\s*-+\n(.*?)(?:\n\s*\n\s*[A-Z]\w+\n\s*-+\n|\Z)", re.S)
# their functions are command lines: the options have help texts
COMMANDS = (".command", ".demo", ".questions", ".bridge_command", ".day_command", ".hardware_command",
            ".service_command", ".cli")


@pytest.mark.parametrize("module", [module for module in MODULES if not module.endswith(COMMANDS)])
def test_public_functions_say_what_they_take(module):
    """A function of two parameters or more names each of them in its Parameters section."""
    silent = []
    for name, function in functions_of(module):
        section = PARAMETERS.search(function.__doc__ or "")
        entries = re.findall(r"^\s*([\w*, ]+) :", section[1], re.M) if section else ()
        named = set(re.findall(r"\w+", " ".join(entries)))
        asked = parameters_of(function)
        silent += [f"{name}: {parameter}" for parameter in asked if len(asked) > 1 and parameter not in named]
    assert silent == []


def test_modules_import_each_other_by_relative_names():
    absolute = [f"{path.relative_to(ROOT)}: {line}" for path in PACKAGE.rglob("*.py")
                for line in path.read_text(encoding="utf-8").splitlines()
                if re.match(r"(from|import) sched_lab\b", line)]
    assert absolute == []


def test_chapter_and_module_share_a_name():
    strangers = []
    for path in NOTEBOOKS:
        if found := re.search(r'"source": \[\n\s*"#\| default_exp ([\w.]+)', path.read_text(encoding="utf-8")):
            name = path.stem.partition("_")[2]
            top, last = found[1].partition(".")[0], found[1].rpartition(".")[2]
            if name not in (last, f"{top}_{last}"):
                strangers.append(f"{path.stem} exports {found[1]}")
    assert strangers == []


LOADED = "import sys; {}; print(*sys.modules)"
HEAVY = {"altair", "numba", "numpy", "pandas", "scipy", "pydantic", "pooch"}
# SciPy itself is loaded by numba
CHARTS_AND_SOLVERS = {"altair", "vl_convert", "scipy.optimize", "scipy.sparse"}


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a statement loads in a fresh interpreter."""
    command = [sys.executable, "-c", LOADED.format(statement)]
    done = subprocess.run(command, text=True, capture_output=True, cwd=ROOT, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_the_faces_load_when_they_are_used():
    faces = "sched_lab.online, sched_lab.andreas, sched_lab.hadar, sched_lab.far"
    assert not loaded_by(f"import {faces}") & HEAVY
    assert "numpy" in loaded_by("from sched_lab.online import toy; toy()")


def test_a_run_loads_no_charts():
    assert not loaded_by("import sched_lab.online.command") & CHARTS_AND_SOLVERS


def unnamed_sorts(code: str) -> list[str]:
    """List the sorts by one key that do not say which kind they are; pandas sorts by several with a stable one."""
    found: list[str] = []
    if "argsort" not in code and "sort_values" not in code:
        return found
    for call in (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", "")
        by_several = name == "sort_values" and call.args and isinstance(call.args[0], ast.List)
        says_how = {"kind", "stable"} & {word.arg for word in call.keywords}
        if name in ("argsort", "sort_values") and not (by_several or says_how):
            found.append(ast.unparse(call))
    return found


def test_equals_come_in_the_same_order_on_every_processor():
    """NumPy's default sort leaves equals as the vector unit has them."""
    wrong = ["x.argsort()", "t.sort_values('a')"]
    assert unnamed_sorts("; ".join([*wrong, "t.sort_values(['a', 'b'])", "np.argsort(x, kind='stable')"])) == wrong
    sources = [path for folder in ("sched_lab", "studies") for path in (ROOT / folder).rglob("*.py")]
    codes = {str(path): path.read_text() for path in sources}
    for path in NOTEBOOKS:
        cells = [cell["source"] for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        codes[path.name] = "\n".join(line for cell in cells for line in "".join(cell).split("\n")
                                     if not line.lstrip().startswith(("%", "!")))
    assert {name: found for name, code in codes.items() if (found := unnamed_sorts(code))} == {}


@pytest.mark.parametrize("module", [
    "andreas.exact", "far.mixed", "fleet.ask.day_run", "hadar.baselines", "hadar.fluid"])
def test_sums_that_decide_are_added_in_a_fixed_order(module):
    """BLAS adds up in an order of its own for each processor, so a product of floats decides nothing there."""
    tree = ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text())
    operations = (node for node in ast.walk(tree) if isinstance(node, ast.BinOp))
    products = [node.lineno for node in operations if isinstance(node.op, ast.MatMult)]
    assert not products, "write (a * b).sum(axis=...)"
