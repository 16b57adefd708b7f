"""The import graph of package and studies tells the story: nothing imports upwards, sideways or in circles."""
import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "sched_lab"
STUDIES = {"studies"}  # beside the package: what computes the results chapters may know all, and nothing knows it
BELOW = {"_extras"}  # under everything
SPINE = {"cluster", "traces", "power", "hardware", "recording", "calibration", "calibration_report", "frag",
         "holdings", "meter", "bill"}
LAB = {"lab"}      # instruments: callables and tidy frames only
FLEET = {"fleet"}  # a reader's own cluster may know every family
FAMILIES = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - FLEET - LAB
LINE = {"cli", "hardware_command", "touch", "__main__"}
RANKS = ["instruments", "spine", "families", "fleet", "cli", "studies"]
Graph = dict[str, set[str]]


def layer(module: str) -> str:
    """Name of the layer a module belongs to; unknown modules have none."""
    top = module.partition(".")[0]
    for name, members in zip(RANKS, (LAB, SPINE, FAMILIES, FLEET, LINE, STUDIES), strict=True):
        if top in members and (name in ("instruments", "families", "fleet", "studies")) >= ("." in module):
            return name
    return "no layer"


def modules_of(package: Path) -> dict[str, Path]:
    """Dotted name inside the package -> file; ``online`` is ``online/__init__.py``."""
    named = {".".join(p.relative_to(package).with_suffix("").parts).removesuffix(".__init__"): p
             for p in package.rglob("*.py")}
    return {name: path for name, path in named.items() if name not in ("__init__", "_modidx")}


def imports_of(source: str, module: str, is_package: bool, known: set[str], root: str = "sched_lab") -> set[str]:
    """Modules of package and studies that a source imports, at the top level or inside a function."""
    found = set()
    here = [root, *module.split(".")]
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = here[:len(here) - node.level + is_package] if node.level else []
            base = ".".join([*up, *(node.module or "").split(".")]).strip(".")
            full = [f"{base}.{a.name}" for a in node.names]
            names = [n if n.removeprefix(root + ".") in known else base for n in full]
        found |= {n.removeprefix(root + ".") for n in names} & known
    return found - {module}


def read_graph(package: Path) -> tuple[Graph, dict[str, float]]:
    """Import graph of a package and the studies beside it, and the chapter number of each exported module."""
    files = modules_of(package)
    files |= {f"studies.{name}": path for name, path in modules_of(package.with_name("studies")).items()}
    graph: Graph = {}
    number: dict[str, float] = {}
    for name, path in files.items():
        source = path.read_text(encoding="utf-8")
        graph[name] = imports_of(source, name, path.name == "__init__.py", set(files), package.name)
        if m := re.search(r"File to edit: \S*nbs/(\d+)([a-z]?)_", source):
            number[name] = int(m[1]) + (ord(m[2]) - 96) / 27 if m[2] else int(m[1])  # 24 < 24a < 25
    return graph, number


def find_cycle(graph: Graph) -> list[str]:
    """One cycle of the graph, or nothing."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node):], node]
        if node in done:
            return []
        for target in sorted(graph.get(node, ())):
            if cycle := visit(target, [*path, node]):
                return cycle
        done.add(node)
        return []

    return next((c for start in sorted(graph) if (c := visit(start, []))), [])


def broken_rules(graph: Graph, number: dict[str, float]) -> list[str]:
    """Every edge that goes upwards, sideways or to a later chapter, and one cycle if there is any."""
    bad = [f"cycle: {' -> '.join(cycle)}"] if (cycle := find_cycle(graph)) else []
    for a in sorted(graph):
        if a in BELOW:
            bad += [f"{a} -> {b}: {a} imports nothing of the package" for b in sorted(graph[a])]
            continue
        if layer(a) == "no layer":
            bad.append(f"{a}: belongs to no layer (see the head of {Path(__file__).name})")
            continue
        for b in sorted(graph[a] - BELOW):
            if layer(b) == "no layer":
                continue                                                    # reported as a node
            if RANKS.index(layer(a)) < RANKS.index(layer(b)):
                bad.append(f"{a} -> {b}: upwards, {layer(a)} must not know {layer(b)}")
            elif layer(a) == layer(b) == "families" and a.split(".")[0] != b.split(".")[0]:
                bad.append(f"{a} -> {b}: family to family")
            elif (layer(a) == layer(b) and layer(a) not in ("instruments", "cli", "studies")
                  and number.get(a, 99) <= number.get(b, -1)):
                bad.append(f"{a} -> {b}: chapter {number.get(a)} imports the later chapter {number.get(b)}")
    return bad


GRAPH, NUMBERS = read_graph(PACKAGE)


def test_the_package_keeps_its_layers():
    assert broken_rules(GRAPH, NUMBERS) == []


def test_every_module_that_the_layers_name_exists():
    assert BELOW | LAB | SPINE | FAMILIES | FLEET | {"cli"} <= set(modules_of(PACKAGE))
    assert len(FAMILIES) >= 4


@pytest.mark.parametrize(("module", "imported", "message"), [
    ("cluster", "online.fgd", "upwards"),
    ("cli", "studies.online", "upwards"),
    ("hadar.model", "online.fgd", "family to family"),
    ("power", "meter", "later chapter"),
    ("lab.frames", "lab.plots", "cycle"),
    ("_extras", "lab.frames", "imports nothing"),
    ("power.tables", "lab.frames", "no layer"),
])
def test_a_bad_edge_is_found(module, imported, message):
    graph = GRAPH | {module: GRAPH.get(module, set()) | {imported}}
    assert any(message in line for line in broken_rules(graph, NUMBERS))


@pytest.mark.parametrize("source", [
    "import sched_lab.power",
    "from sched_lab import power",
    "from ..power import node_power",
    "from .. import power",
    "def f():\n    from sched_lab.power import node_power",
])
def test_every_form_of_import_is_seen(source):
    assert imports_of(source, "online.fgd", False, {"power", "frag"}) == {"power"}
