"""List the compiled functions that a first run of each command needs: `python tools/list_compiled.py [CASE...]`.

It runs the cases, all if none is named, with an empty folder of compiled code, which takes some minutes, and
writes `sched_lab/_ahead.json`, from which a second process compiles ahead (`sched_lab/_ahead.py`). Run it
after changes of compiled functions; an old list costs time, and nothing else.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIST = ROOT / "sched_lab" / "_ahead.json"
ANDREAS = "andreas --instance jobs.json --simulate"
FAR = "far --times times.csv"
HADAR = "hadar --jobs jobs.csv --cluster cluster.csv --throughputs throughputs.csv"
REPLAY = "replay cluster"
# what runs; the first case of a command stands in for those that are not here
CASES = {
    "inflate pwr-fgd:0.1": "inflate --policy pwr-fgd:0.1", "inflate fgd": "inflate --policy fgd",
    "inflate joint": "inflate --policy joint",
    "andreas local": f"{ANDREAS} --policy local", "andreas rg": f"{ANDREAS} --policy rg",
    "far": FAR, "far far-plus": f"{FAR} --policy far-plus", "far optimal": f"{FAR} --policy optimal",
    "hadar": HADAR, "hadar planned": f"{HADAR} --policy planned",
    "replay": REPLAY,
}


class Node:
    """A compilation, and those within it."""

    def __init__(self, what: tuple[str, str, str, tuple[Any, ...]] | None) -> None:
        self.what = what
        self.inside: list[Node] = []

    def backwards(self) -> list[Any]:
        """List the last first, each after what is within it."""
        found = [what for node in reversed(self.inside) for what in node.backwards()]
        return [*found, self.what] if self.what else found


def record(words: list[str]) -> None:
    """Run a command, and print what it has compiled as the last line."""
    from numba.core import event

    from sched_lab import _ahead, cli
    from sched_lab.lab.jit import PACKAGE

    top = Node(None)
    under = [top]

    class Recording(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            dispatcher = event.data["dispatcher"]
            function = dispatcher.py_func
            form = getattr(dispatcher, "form", "")
            node = Node(None)
            if form and function.__module__.startswith(f"{PACKAGE.name}."):
                try:
                    kinds = tuple(json.dumps(_ahead.spelled(kind)) for kind in event.data["args"])
                    node = Node((function.__module__, function.__qualname__, form, kinds))
                except ValueError as error:     # left to the command itself
                    print(f"{function.__qualname__}: {error}", file=sys.stderr)
            under[-1].inside.append(node)
            under.append(node)

        def on_end(self, event: Any) -> None:
            under.pop()

    event.register("numba:compile", Recording())
    try:
        cli.main(words)
    except SystemExit as end:
        if end.code:
            raise
    print("\n" + json.dumps(top.backwards()))


def recorded(words: str) -> list[Any]:
    """List what a command compiles when nothing has been kept."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": f"{folder}/cache", "PYTHONPATH": str(ROOT),
                       "SCHED_LAB_COMPILE": "always"}
        run = [sys.executable, "-m", "sched_lab"]
        for family in ("online", "andreas", "hadar", "far", "fleet"):
            subprocess.run([*run, "example", family, "."], cwd=folder, env=environment, check=True, capture_output=True)
        if words.startswith("replay"):
            subprocess.run([*run, "read", "k8s", "nodes.json", "pods.json", "--out", "cluster"], cwd=folder,
                           env=environment, check=True, capture_output=True)
        done = subprocess.run([sys.executable, __file__, "--record", *words.split(), "--out", "answer"], cwd=folder,
                              env=environment, check=True, stdout=subprocess.PIPE,
                              text=True)
        found: list[Any] = json.loads(done.stdout.splitlines()[-1])
        return found


def stored() -> dict[str, list[Any]]:
    """Read the list that there is: the calls of each case."""
    if not LIST.exists():
        return {}
    listed = json.loads(LIST.read_text(encoding="utf-8"))
    kinds = [json.dumps(kind) for kind in listed["types"]]
    calls = [(*what, [kinds[kind] for kind in own]) for *what, own in listed["functions"]]
    return {case: [calls[number] for number in numbers] for case, numbers in listed["cases"].items()}


def main(names: list[str]) -> None:
    """List the named cases anew, or all."""
    known = stored()
    types: dict[str, int] = {}
    functions: dict[str, int] = {}
    cases: dict[str, list[int]] = {}
    for case, words in CASES.items():
        is_new = case in names or not names
        numbers = []
        for module, name, form, kinds in recorded(words) if is_new else known.get(case, []):
            of_kinds = [types.setdefault(kind, len(types)) for kind in kinds]
            line = json.dumps([module, name, form, of_kinds])
            numbers.append(functions.setdefault(line, len(functions)))
        cases[case] = list(dict.fromkeys(numbers))
        print(f"{case}: {len(cases[case])} functions{'' if is_new else ', as before'}", flush=True)
    text = ('{"types": [\n' + ",\n".join(types) + '\n],\n"functions": [\n' + ",\n".join(functions)
            + '\n],\n"cases": {\n'
            + ",\n".join(f"{json.dumps(case)}: {json.dumps(numbers)}" for case, numbers in cases.items()) + "\n}}\n")
    LIST.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--record"]:
        record(sys.argv[2:])
    else:
        main(sys.argv[1:])
