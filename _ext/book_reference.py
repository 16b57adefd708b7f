"""Write the two reference pages as the rest of the book reads.

* API: ``api.md`` holds the introduction and a mark; below it come all modules in the order of their
  chapters, so that a new chapter is listed by itself. Our docstrings say ``name : description`` and
  no types (annotations have them). Napoleon would take what follows the colon for a type, so the
  sections are turned into fields here.
* Bibliography: a source is labelled as the text cites it, "Lettich et al., 2024".
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from pybtex.plugin import register_plugin
from pybtex.style.formatting.alpha import Style as AlphaStyle
from pybtex.style.labels import BaseLabelStyle
from sphinxcontrib.bibtex.style.referencing.author_year import AuthorYearReferenceStyle

RULE = re.compile(r"-{3,}\s*")
NAMED = re.compile(r"(?P<name>\S.*?) : (?P<text>.*)")
FIELDS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns")


def sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield title and lines of each section of a docstring; the summary has no title."""
    heads = [i for i in range(len(lines) - 1) if lines[i].strip() and RULE.fullmatch(lines[i + 1])]
    starts = [*heads, len(lines)]
    yield "", lines[:starts[0]]
    for here, after in pairwise(starts):
        yield lines[here].strip(), lines[here + 2:after]


def entries(lines: list[str]) -> list[str]:
    """Return the entries of a section, one line each: what is indented continues the entry above."""
    found: list[str] = []
    for line in filter(str.strip, lines):
        if line.startswith(" ") and found:
            found[-1] += (" " if " : " in found[-1] else " : ") + line.strip()
        else:
            found.append(line.strip())
    return found


def field(title: str, lines: list[str]) -> list[str]:
    """Return a section as a reST field: a list of named values, or running text where nothing has a name."""
    if not any(NAMED.fullmatch(entry) for entry in entries(lines)):
        return [f":{title}: {' '.join(entries(lines))}"]
    named = [
        NAMED.sub(lambda m: f"**{m['name'].replace('*', chr(92) + '*')}** -- {m['text']}", entry,
                  count=1) for entry in entries(lines)]
    return [f":{title}:", *(f"    * {entry}" for entry in named)]


def docstring_fields(app: Any, what: str, name: str, obj: Any, options: Any,
                     lines: list[str]) -> None:
    """Rewrite the sections of a docstring in place."""
    out: list[str] = []
    for title, body in sections(lines):
        if title in FIELDS:
            out += field(title, body)
        else:
            out += ["", *([f".. rubric:: {title}", ""] if title else []), *body]
    lines[:] = [*out, ""]


MARK = "<!-- modules -->"


def module_of(notebook: Path) -> str:
    """Return the module that a chapter exports, without the name of the package; "" if it exports none."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    found = re.search(r"^#\| default_exp ([\w.]+)", "\n".join("".join(c["source"]) for c in cells), re.M)
    return found[1] if found else ""


def face(stub: Path) -> Iterator[tuple[str, str]]:
    """Yield each name of a family's face, and where it is defined."""
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module or ''}.{alias.name}".lstrip(".")


def face_table(family: str, package: Path) -> list[str]:
    """Return a table of the names of a family's face, as Markdown."""
    stub = package / family / "__init__.pyi"
    rows = [f"| `{family}.{name}` | {{py:obj}}`{home} <{package.name}.{family}.{home}>` |"
            for name, home in (face(stub) if stub.is_file() else ())]
    return ["| name | is short for |", "|---|---|", *rows, ""] if rows else []


def data_of(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the public tables and constants of a module, each with its type, "" if it states none.

    Autodoc passes over them, because they have no docstring.
    """
    body = ast.parse(file.read_text(encoding="utf-8")).body
    types = {node.target.id: ast.unparse(node.annotation) for node in body
             if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    assigned = [target.id for node in body if isinstance(node, ast.Assign)
                for target in node.targets if isinstance(target, ast.Name)]
    public = next((ast.literal_eval(node.value) for node in body if isinstance(node, ast.Assign)
                   and ast.unparse(node.targets[0]) == "__all__"), [])
    tables = [name for name in public if name.isupper() and (name in types or name in assigned)]
    yield from ((name, types.get(name, "")) for name in tables)


def data_directives(module: str, file: Path) -> list[str]:
    """Return the lines that describe the data of a module."""
    lines: list[str] = []
    for name, kind in data_of(file):
        lines += ["", f".. py:data:: {name}", f"   :module: sched_lab.{module}"]
        lines += [f"   :type: {kind}"] if kind else []
    return lines


def api_page(root: Path) -> list[str]:
    """Return the lines that list every module, part by part, in the order of the chapters."""
    lines: list[str] = []
    seen: set[str] = set()
    for part in yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]:
        files = [root / f"{entry['file']}.ipynb" for entry in part["chapters"]]
        modules = {module_of(file): file.stem for file in files if file.is_file()}
        modules.pop("", None)
        if modules:
            lines += [f"## {part['caption']}", ""]
        for module, chapter in modules.items():
            family = module.partition(".")[0] if "." in module else ""
            if family and family not in seen:
                lines += face_table(family, root / "sched_lab")
            seen.add(family)
            lines += [f"### `{module}`", "", f"{{doc}}`nbs/{chapter}`", "", "```{eval-rst}",
                      f".. automodule:: sched_lab.{module}", "   :members:", "   :undoc-members:",
                      *data_directives(module, root / "sched_lab" / f"{module.replace('.', '/')}.py"), "```", ""]
    return lines


def list_modules(app: Any, docname: str, source: list[str]) -> None:
    """Put the modules in the place of the mark."""
    if docname == "api":
        source[0] = source[0].replace(MARK, "\n".join(api_page(Path(app.srcdir))))


class AuthorYearLabels(BaseLabelStyle):
    """Labels of the bibliography, made by the rule that makes the citations."""

    def format_labels(self, sorted_entries: list[Any]) -> Iterator[str]:
        """Yield one label for each entry."""
        style = AuthorYearReferenceStyle()
        names = style.person.names("author", full=False)
        for entry in sorted_entries:
            yield f"{names.format_data({'entry': entry, 'style': style})}{style.author_year_sep}{entry.fields['year']}"


class AuthorYearStyle(AlphaStyle):
    """The usual bibliography, sorted by author, with the labels above."""

    default_label_style = AuthorYearLabels


def setup(app: Any) -> dict[str, Any]:
    """Register both."""
    app.connect("source-read", list_modules)
    register_plugin("pybtex.style.formatting", "author_year", AuthorYearStyle)
    app.connect("autodoc-process-docstring", docstring_fields)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
