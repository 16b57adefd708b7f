"""The widgets of the book in JupyterLab: a task to place, a GPU to cut, prices to bid against, a queue with due dates."""

# A module, written by hand.

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from ._extras import need
from .lab.frames import check_one_of, embedded
from .lab.jit import PACKAGE

__all__ = ['widget']

WIDGETS = ("place", "cut", "prices", "queue")


def script(name: str) -> str:
    """A script of the widgets, as the pages of the book load it."""
    path = PACKAGE.parent / "_assets" / "widgets" / name
    return (path if path.is_file() else embedded(f"widgets/{name}")).read_text(encoding="utf-8")


def widget(name: str) -> Any:
    """A widget of the book for JupyterLab: "place", "cut", "prices" or "queue".

    Raises
    ------
    InputError : there is no such widget
    MissingPackage : anywidget is not installed
    """
    check_one_of(name, WIDGETS, "widget")
    need("anywidget")
    anywidget = import_module("anywidget")
    scripts = [script(file) for file in ("loader.js", f"{name}.kernels.js", f"{name}.js")]
    shown = f"""{"".join(scripts)}
    export default {{ render({{ el }}) {{
      el.classList.add("widget");
      el.dataset.widget = {json.dumps(name)};
      schedLab.fill(el);
    }} }};"""
    parts = {"_esm": shown, "_css": script("widgets.css")}
    return type("BookWidget", (anywidget.AnyWidget,), parts)()
