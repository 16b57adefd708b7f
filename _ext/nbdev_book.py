"""Teach Jupyter Book (MyST-NB) the nbdev directives.

MyST-NB lets a project name its own reader for a file suffix (``nb_custom_formats``), ``.ipynb``
included. ``read_nb`` is that reader: the notebooks stay plain nbdev notebooks, the book sees

* directive lines (``#| ...``) removed from the code,
* ``#| hide`` and ``#| default_exp`` cells removed from the page,
* ``#| exporti`` cells as code where the page speaks of them (an example uses one of their names, or the
  text has it as `` `name` ``), and folded under their names where it does not,
* cells that only import folded,
* ``#| hide_input`` / ``#| hide_output`` / ``#| code-fold: true`` as cell tags,
* ``#| eval: false`` cells never executed,
* under an ``#| export`` cell a line "exported to <module>" that links to the API page,
* Vega-Lite outputs, with what ``sched_lab.lab.plots.finished`` adds, as an HTML block drawn by the vendored Vega
  (``_assets/book-vega.js``).
"""

from __future__ import annotations

import ast
import html
import json
import re
from typing import Any

import nbformat
from nbformat.v4 import new_markdown_cell

from sched_lab.lab.plots import finished

DIRECTIVE = re.compile(r"^#\|\s*(?P<name>[\w-]+):?\s*(?P<arg>.*?)\s*$")
VEGALITE = re.compile(r"application/vnd\.vegalite\.v\d+[.+]json")
TAGS = {"hide": "remove-cell", "default_exp": "remove-cell", "hide_input": "remove-input",
        "hide_output": "remove-output"}
UNSPOKEN = re.compile(r"#\|\s*(?:exporti?|exports|hide|hide_input|default_exp)\b")
DEFINED = re.compile(r"^(?:def|class) (\w+)|^(\w+(?:, \w+)*)(?::[^=\n]*)? = ", re.M)
THEBE = re.compile(r"thebe", re.I)


def split_directives(source: str) -> tuple[list[tuple[str, str]], str]:
    """Return the leading ``#|`` directives of a cell and the code without them."""
    lines = source.split("\n")
    found = []
    while lines and (m := DIRECTIVE.match(lines[0])):
        found.append((m["name"], m["arg"]))
        lines.pop(0)
    return found, "\n".join(lines).lstrip("\n")


def names_spoken_of(cells: list[Any]) -> set[str]:
    """Return the words of the examples of a page, and of what its text has in backticks."""
    texts = [cell.source for cell in cells
             if cell.cell_type == "code" and not UNSPOKEN.match(cell.source)]
    texts += [quoted for cell in cells if cell.cell_type == "markdown"
              for quoted in re.findall(r"`([^`\n]+)`", cell.source)]
    return set(re.findall(r"\w+", "\n".join(texts)))


def fold(cell: Any, what: str) -> None:
    """Fold a cell; on the fold stands what it holds."""
    cell.metadata["tags"].append("hide-input")
    cell.metadata["mystnb"] = {"code_prompt_show": f"Show {what}", "code_prompt_hide": f"Hide {what}"}


def fold_helpers(cell: Any, spoken_of: set[str]) -> None:
    """Fold a cell with none of these names; what it defines is written on the fold."""
    names = re.findall(r"\w+", " ".join(map(" ".join, DEFINED.findall(cell.source))))
    if spoken_of.isdisjoint(names):
        fold(cell, ", ".join(names))


def is_import(statement: ast.stmt) -> bool:
    """Tell whether a statement imports, be it for the type checker alone."""
    if isinstance(statement, ast.If):
        return ast.unparse(statement.test) == "TYPE_CHECKING" and all(map(is_import, statement.body))
    return isinstance(statement, ast.Import | ast.ImportFrom)


def fold_imports(cell: Any) -> None:
    """Fold a cell that only imports."""
    try:
        statements = ast.parse(cell.source).body
    except SyntaxError:     # a line magic
        return
    if statements and "hide-input" not in cell.metadata["tags"] and all(map(is_import, statements)):
        fold(cell, "imports")


def vega_block(spec: dict[str, Any]) -> str:
    """Return the HTML of one chart: what a reader without JavaScript gets, and the specification to draw."""
    label = html.escape(spec["description"], quote=True)
    data = json.dumps(spec, separators=(",", ":"), sort_keys=True).replace("<", "\\u003c")
    return (
        f'<div class="vega-chart"><div class="vega-view" role="img" aria-label="{label}">'
        f'<noscript>The chart “{label}” is drawn by JavaScript.</noscript></div>'
        f'<details class="vega-values"><summary>Values as a table</summary></details>'
        f'<script type="application/json" class="vega-spec">{data}</script></div>')


def render_charts(cell: nbformat.NotebookNode) -> None:
    """Replace Vega-Lite outputs by HTML."""
    for out in cell.get("outputs", []):
        data = out.get("data", {})
        if key := next((k for k in data if VEGALITE.fullmatch(k)), None):
            data["text/html"] = vega_block(finished(data.pop(key)))


def read_nb(text: str, package: str = "") -> nbformat.NotebookNode:
    """Read an nbdev notebook for MyST-NB (see the module docstring)."""
    nb = nbformat.reads(text, as_version=4)
    module = ""
    cells: list[Any] = []
    spoken_of = names_spoken_of(nb.cells)
    for cell in nb.cells:
        cells.append(cell)
        if cell.cell_type != "code":
            continue
        directives, cell.source = split_directives(cell.source)
        tags = cell.metadata.setdefault("tags", [])
        for name, arg in directives:
            if name == "default_exp":
                module = arg
            if name in TAGS:
                tags.append(TAGS[name])
            if name == "exporti":
                fold_helpers(cell, spoken_of)
            if name == "eval" and arg.lower() == "false":
                tags.append("skip-execution")
            if name == "code-fold" and arg.lower() == "true":
                tags.append("hide-input")
            if name in ("export", "exports") and "remove-cell" not in tags:
                target = f"{package}.{arg or module}"
                cells.append(
                    new_markdown_cell(
                        f"```{{div}} nb-export\nexported to {{py:mod}}`{target}`\n```"))
        if not cell.source.strip():
            tags.append("remove-cell")
        fold_imports(cell)
        render_charts(cell)
    nb.cells = cells
    return nb


def first_visit(app: Any, pagename: str, templatename: str, context: dict[str, Any],
                doctree: Any) -> None:
    """Follow the reader's system colours; without a default the theme logs an error on the first visit."""
    context.setdefault("default_mode", "auto")


def trim_scripts(app: Any, pagename: str, templatename: str, context: dict[str, Any],
                 doctree: Any) -> None:
    """Keep one of each script and none of thebe's, which Jupyter Book always adds: it would run code on a server."""
    kept: dict[tuple[str, Any], Any] = {}
    for js in context.get("script_files", []):
        key = (str(getattr(js, "filename", js) or ""), getattr(js, "attributes", {}).get("body"))
        if not THEBE.search(f"{key[0]} {key[1]}"):
            kept.setdefault(key, js)
    context["script_files"] = list(kept.values())


def setup(app: Any) -> dict[str, Any]:
    """Register the static files of the book."""
    app.connect("html-page-context", first_visit)
    app.connect("html-page-context", trim_scripts, priority=900)
    app.add_js_file("book-vega.js", defer="defer")
    app.add_css_file("book.css")
    app.add_css_file("book-charts.css")
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
