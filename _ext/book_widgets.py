"""Load the widgets' loader on the pages that have a widget, and on no other."""

from __future__ import annotations

from typing import Any


def load_widgets(app: Any, pagename: str, templatename: str, context: dict[str, Any],
                 doctree: Any) -> None:
    """Add the loader to a page with a place for a widget."""
    if 'class="widget"' in context.get("body", ""):
        app.add_js_file("widgets/loader.js", loading_method="defer")


def setup(app: Any) -> dict[str, Any]:
    """Register the loader."""
    app.connect("html-page-context", load_widgets)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
