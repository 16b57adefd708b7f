"""What the chapter on adding a policy writes down, done in a copy of the book: it works, and prints what it says."""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tests.book import cells, text_of

ROOT = Path(__file__).parents[1]
CHAPTER = ROOT / "nbs" / "91_add_a_policy.ipynb"
TEXT = text_of(CHAPTER, "markdown")
PYTHON = re.findall(r"^```python\n(.*?)^```", TEXT, flags=re.M | re.S)
CONTENTS = re.search(r"^```yaml\n(.*?)^```", TEXT, flags=re.M | re.S)[1]
PRINTED = dict(re.findall(r"^```console\n\$ (.*?)\n(.*?)\n```", TEXT, flags=re.M | re.S))
SAY = """import contextlib, io, json, sys
from pathlib import Path
import pytest
from sched_lab.cli import main
sys.path.insert(0, "_ext")
from book_reference import modules_by_page, page_lines

def said(act, words):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        try:
            code = act(words)
        except SystemExit as end:
            code = end.code
    assert not code, text.getvalue()[-3000:]
    return text.getvalue()

pages = modules_by_page(Path("."))
print(json.dumps([said({"pytest": pytest.main, "sched-lab": main}[program], words)
                  for program, *words in json.loads(sys.argv[1])]
                 + ["\\n".join(page_lines("online", pages["online"], Path("sched_lab")))]))
"""
COMMANDS = {"help": "sched-lab inflate --help",
            "tests": "pytest -q tests/test_faces.py -k worst-fit --color=no -p no:cacheprovider",
            "run": "sched-lab inflate --policy worst-fit --out run --nodes=data/embedded/toy/nodes.csv "
                   "--tasks=data/embedded/toy/tasks.csv"}


def put_before(path: Path, line: str, added: str) -> None:
    """Write text before the one line of a file that holds other text."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    place, = (number for number, text in enumerate(lines) if line in text)
    path.write_text("".join([*lines[:place], added, *lines[place:]]), encoding="utf-8")


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Add to the four places of a copy; return what its commands print."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("settings.ini", "pyproject.toml", "_toc.yml"):
        shutil.copy(ROOT / name, copy)
    unneeded = shutil.ignore_patterns("results", ".*", "*.svg", "__pycache__")
    for name in ("sched_lab", "nbs", "tests", "data", "_ext", "api"):
        shutil.copytree(ROOT / name, copy / name, ignore=unneeded)
    *chapter, imported, record = PYTHON
    new = nbformat.v4.new_notebook()
    new.cells = [nbformat.v4.new_markdown_cell("# Where is most room?\n\n> The node with most GPU free.", id="24d-000"),
                 *(nbformat.v4.new_code_cell(text.strip(), id=f"24d-{number:03}")
                   for number, text in enumerate(chapter, 1))]
    path = re.search(r"nbs/\w+", CONTENTS)[0]
    assert not (ROOT / f"{path}.ipynb").exists()
    nbformat.write(new, copy / f"{path}.ipynb")
    put_before(copy / "_toc.yml", "file: nbs/25_policies", CONTENTS)
    policies = copy / "nbs" / "25_policies.ipynb"
    put_before(policies, '"    patterns={\\n"', f"    {json.dumps('    ' + record)},\n")
    put_before(policies, '"from sched_lab.online.pwr import pwr', f"    {json.dumps(imported)},\n")
    subprocess.run([Path(sys.executable).with_name("nbdev_export")], cwd=copy, check=True, capture_output=True)

    settings = os.environ | {"PYTHONPATH": str(copy), "COLUMNS": "100", "TERM": "dumb", "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", SAY, json.dumps([line.split() for line in COMMANDS.values()])],
                          cwd=copy, env=settings, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return dict(zip([*COMMANDS, "reference"], json.loads(done.stdout), strict=True))


def test_the_command_knows_it(printed):
    words = " ".join(printed["help"].replace("│", " ").split())
    assert PRINTED[COMMANDS["help"]] in words


def test_the_tests_of_every_policy_pass(printed):
    assert PRINTED["pytest -q tests/test_faces.py -k worst-fit"] in printed["tests"]


def test_the_reference_has_its_module_in_the_order_of_the_chapters(printed):
    headings = [line for line in printed["reference"].splitlines() if line.startswith("## `online.")]
    before, new = (headings.index(line) for line in PRINTED["make html"].split("\n...\n"))
    assert before < new


def test_a_command_runs_it_and_its_line_has_the_numbers_of_the_chapter(printed):
    """Those of a cell, which compiles it; here on the toy, which is not worth it."""
    line = re.compile(r"run/seed-0: worst-fit, \d+ arrivals to x = [\d.]+: ([\d.]+) kW, GRAR ([\d.]+), (\d+) failed.*")
    assert line.fullmatch(printed["run"].strip())
    shown = line.fullmatch(PRINTED["sched-lab inflate --policy worst-fit --out run"])
    table, = (text for cell in cells(CHAPTER) for output in cell.get("outputs", [])
              if "grar" in (text := "".join(output.get("data", {}).get("text/plain", ""))))
    eopc_w, *others = re.search(r"^worst-fit +(.*)$", table, re.M)[1].split()
    assert list(map(float, shown.groups())) == [round(float(eopc_w) / 1000, 1), *map(float, others)]
