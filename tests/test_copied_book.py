"""The book that `sched-lab book` copies is whole, and runs where only the package with [all,lab] is installed."""
import configparser
import re
import shlex
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sched_lab.cli import BOOK_MARK
from tests.book import ROOT, text_of
from tests.command_line import call

IMPORT = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.M)


def test_every_file_is_copied_as_it_is(tmp_path, capsys):
    """Also those that the package packs: a frame is compared with the size that its sidecar says."""
    mine = tmp_path / "mine"
    assert call("book", str(mine), "--no-open") == 0
    copies = [path.relative_to(mine) for path in mine.rglob("*") if path.is_file() and path.name != BOOK_MARK]
    assert any(path.suffix == ".gz" for path in copies) and Path("studies/far.py") in copies and len(copies) > 100
    assert [path for path in copies if (mine / path).read_bytes() != (ROOT / path).read_bytes()] == []
    assert call("book", str(mine), "--no-open") == 0 and ": 0 files written" in capsys.readouterr().out


def requirements_of_setup(*extras: str) -> list[str]:
    """Return what an install of the package with some extras asks for; `all` is what setup.py says."""
    settings = configparser.ConfigParser(delimiters=["="])
    settings.read(ROOT / "settings.ini", encoding="utf-8")
    text = re.search(r"^ALL = \((.*?)\)", (ROOT / "setup.py").read_text(encoding="utf-8"), re.M | re.S)[1]
    names = [name for extra in extras for name in (re.findall(r'"(\w+)"', text) if extra == "all" else [extra])]
    keys = ["requirements", *(f"{name}_requirements" for name in names)]
    return [one for key in keys for one in shlex.split(settings["DEFAULT"][key])]


def installed_with(*extras: str) -> set[str]:
    """Return the names of all packages that such an install brings, directly or not."""
    found: set[tuple[str, str]] = set()
    todo = [(Requirement(one), "") for one in requirements_of_setup(*extras)]
    while todo:
        asked, extra = todo.pop()
        if asked.marker is not None and not asked.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(asked.name)
        for part in {"", *asked.extras}:
            if (name, part) not in found:
                found.add((name, part))
                try:
                    todo += [(Requirement(one), part) for one in requires(name) or []]
                except PackageNotFoundError:
                    continue
    return {name for name, _ in found}


def importable() -> set[str]:
    """Return what may be imported: the standard library, package and studies, and what comes with [all,lab]."""
    there = installed_with("all", "lab")
    of_packages = {module for module, homes in packages_distributions().items()
                   if there & set(map(canonicalize_name, homes))}
    return {*sys.stdlib_module_names, "sched_lab", "studies"} | of_packages


def test_no_chapter_asks_for_the_strict_device():
    assert [path.stem for path in ROOT.glob("nbs/*.ipynb") if '"strict"' in text_of(path, "code")] == []


def test_chapters_import_what_the_extras_all_and_lab_bring():
    known = importable()
    strange = {path.stem: set(IMPORT.findall(text_of(path, "code"))) - known for path in ROOT.glob("nbs/*.ipynb")}
    assert len(strange) > 50 and {name: modules for name, modules in strange.items() if modules} == {}
