"""Write the two reference pages as the rest of the book reads.

* API: one page for each folder of the package and one for the studies, ``api/*.md``, with a mark. In the place of
  the mark come the folder's modules, those of chapters in their order, so that a new one is listed by itself;
  ``api.md`` lists the pages. Our docstrings say ``name : description`` and no types (annotations have them).
  Napoleon would take what follows the colon for a type, so the sections are turned into fields here.
* Bibliography: a source is labelled as the text cites it, "Lettich et al., 2024".
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import isfunction
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from pybtex.plugin import register_plugin
from pybtex.style.formatting.alpha import Style as AlphaStyle
from pybtex.style.labels import BaseLabelStyle
from sphinx.errors import ExtensionError
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
COMMAND_LINE = {"cli", "hardware_command", "touch"}
HEAD = "# API: "


def import_name(module: str) -> str:
    """Return the name by which a module of the package, or of the studies, is imported."""
    return module if module.startswith("studies.") else f"sched_lab.{module}"


def module_of(notebook: Path) -> str:
    """Return the module that a chapter exports, without the name of the package; "" if it exports none."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    found = (re.match(r"(?:#\|.*\n)*#\| default_exp ([\w.]+)", source) for source in sources)
    return next((match[1] for match in found if match), "")


def home_of(module: str, name: str) -> str:
    """Return where that is defined which a module, or a family, has under a name."""
    value = getattr(import_module(module), name)
    value = getattr(value, "py_func", value)
    named = getattr(value, "__qualname__", "")
    return f"{value.__module__}.{named}" if named else f"{module}.{name}"


@cache
def face(family: str, package: Path) -> dict[str, str]:
    """Return where each name of a family's face is defined; nothing if the family has no face."""
    stub = package / family / "__init__.pyi"
    body = ast.parse(stub.read_text(encoding="utf-8")).body if family and stub.is_file() else []
    return {alias.asname or alias.name:
            home_of(".".join(filter(None, (package.name, family, node.module))), alias.name)
            for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}


def face_table(family: str, package: Path) -> list[str]:
    """Return a table of the names of a family's face, as Markdown."""
    rows = [f"| `{family}.{name}` | {{py:obj}}`{home.removeprefix(f'{package.name}.')} <{home}>` |"
            for name, home in face(family, package).items()]
    return ["| name | is short for |", "|---|---|", *rows, ""] if rows else []


def unlisted(module: str, package: Path) -> list[str]:
    """Return functions of a module that the face of its family has, and ``__all__`` has not."""
    whole = import_name(module)
    listed = getattr(import_module(whole), "__all__", ())
    homes = (home.rpartition(".") for home in face(family_of(module), package).values())
    names = dict.fromkeys(name for home, _, name in homes if home == whole and name not in listed)
    return [name for name in names if isfunction(getattr(import_module(whole), name))]


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
        lines += ["", f".. py:data:: {name}", f"   :module: {import_name(module)}"]
        lines += [f"   :type: {kind}"] if kind else []
    return lines


def chapters(root: Path) -> dict[str, str]:
    """Return the chapter of each module that one exports, in the order of the book."""
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    files = [root / f"{entry['file']}.ipynb" for part in toc["parts"] for entry in part["chapters"]]
    found = {module_of(file): file.stem for file in files if file.is_file()}
    found.pop("", None)
    return found


def modules_by_page(root: Path) -> dict[str, dict[str, str]]:
    """Return the modules of each page of the reference: those of chapters in the order of the book, then the others.

    A page lists the folder that it is called after: of the package, or the studies beside it. What is in no folder is
    the spine, but for what the command line alone needs. Each module comes with its chapter, "" if it has none.
    """
    package = root / "sched_lab"
    exported = chapters(root)
    files = [path.relative_to(package).with_suffix("").parts for path in sorted(package.rglob("[!_]*.py"))]
    files += [("studies", path.stem) for path in sorted(root.glob("studies/[!_]*.py"))]
    modules = dict.fromkeys([*exported, *(".".join(parts) for parts in files)], "") | exported
    pages: dict[str, dict[str, str]] = {file.stem: {} for file in sorted((root / "api").glob("*.md"))}
    for module, chapter in modules.items():
        page = module.partition(".")[0] if "." in module else (
            "command_line" if module in COMMAND_LINE else "spine")
        if page not in pages:
            raise ExtensionError(f"api: no page for {module}: write api/{page}.md with a heading that begins with "
                                 f"'{HEAD}' and the mark {MARK}, and list it in _toc.yml")
        pages[page][module] = chapter
    return pages


def family_of(module: str) -> str:
    """Return the family that a module belongs to; "" if to none."""
    return module.rpartition(".")[0].partition(".")[0]


def module_lines(module: str, chapter: str, package: Path) -> list[str]:
    """Return the lines that describe a module; what it defines only if it says what of that is public."""
    whole = import_name(module)
    listed = hasattr(import_module(whole), "__all__")
    return [f"## `{module}`", "", *([f"{{doc}}`/nbs/{chapter}`", ""] if chapter else []), "```{eval-rst}",
            f".. automodule:: {whole}",
            *(["   :members:", "   :undoc-members:"] if listed else []),
            *data_directives(module, (package.parent / whole.replace(".", "/")).with_suffix(".py")),
            *(f".. autofunction:: {whole}.{name}" for name in unlisted(module, package)),
            "```", ""]


def page_lines(page: str, modules: dict[str, str], package: Path) -> list[str]:
    """Return the lines of a page: the face of the family, if it is one of a family, and the modules."""
    lines = face_table(page, package)
    for module, chapter in modules.items():
        lines += module_lines(module, chapter, package)
    return lines


def contents_lines(root: Path, pages: dict[str, dict[str, str]]) -> list[str]:
    """Return a table of the pages and their modules, as Markdown."""
    heads = {page: (root / "api" / f"{page}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix(HEAD)
             for page in pages}
    rows = [f"| {{doc}}`{heads[page]} <api/{page}>` | "
            + ", ".join(f"{{py:mod}}`{module} <{import_name(module)}>`" for module in modules) + " |"
            for page, modules in pages.items()]
    return ["| part | modules |", "|---|---|", *rows]


def list_modules(app: Any, docname: str, source: list[str]) -> None:
    """Put the modules in the place of the mark."""
    if docname != "api" and not docname.startswith("api/"):
        return
    root = Path(app.srcdir)
    pages = modules_by_page(root)
    page = docname.removeprefix("api").removeprefix("/")
    lines = page_lines(page, pages[page], root / "sched_lab") if page else contents_lines(root, pages)
    source[0] = source[0].replace(MARK, "\n".join(lines))


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
    """Register both; studies are imported from the checkout, since nothing installs them."""
    sys.path.append(str(app.srcdir))
    app.connect("source-read", list_modules)
    register_plugin("pybtex.style.formatting", "author_year", AuthorYearStyle)
    app.connect("autodoc-process-docstring", docstring_fields)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
