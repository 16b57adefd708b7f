"""Give each chapter one number and one short name, and use both wherever the book speaks of it.

The number is the file's (``nbs/24a_joint`` is 24a), the short name its ``title`` in ``_toc.yml``.
The sidebar shows "24a Joint policy", the page is headed "24a Joint policy: Can one policy ...?",
``{doc}`24a_joint``` reads "Chapter 24a (Joint policy)", and equations and theorems are counted as
24a.1, 24a.2, ... Pages that are no chapters keep their titles.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import docname_join
from sphinx_external_toc.collectors import TocTreeCollectorWithStyles

CHAPTER = re.compile(r"nbs/(?P<number>\d\d[a-z]?)_\w+")


def chapter(env: Any, docname: str) -> tuple[str, str] | None:
    """Return number and short name of a chapter; None for any other page."""
    file = CHAPTER.fullmatch(docname)
    if file is None or docname not in env.found_docs:
        return None
    page = env.external_site_map.get(docname)
    if page is None or not page.title:
        raise ExtensionError(
            f"_toc.yml: chapter {docname} has no short name: add `title: NAME` below its `- file:`")
    return file["number"], page.title


class ChapterTitle(SphinxTransform):
    """Put the short name before the question in the title of a chapter."""

    default_priority = 500

    def apply(self, **kwargs: Any) -> None:
        """Change the first title of the page."""
        named = chapter(self.env, self.env.docname)
        title = next(self.document.findall(nodes.title), None)
        if named and title is not None:
            title.insert(0, nodes.inline("", f"{named[1]}: ", classes=["chapter-name"]))


class ChapterReference(SphinxPostTransform):
    """Let a reference to a chapter without a text of its own say number and short name, not the whole question."""

    default_priority = 5    # before references are resolved

    def run(self, **kwargs: Any) -> None:
        """Change all references of the page."""
        for ref in self.document.findall(pending_xref):
            if ref.get("reftype") != "doc" or ref.get("refexplicit"):
                continue
            named = chapter(self.env, docname_join(ref["refdoc"], ref["reftarget"]))
            if named:
                ref["refexplicit"] = True
                ref.children = [nodes.Text(f"Chapter {named[0]} ({named[1]})")]


def assign_section_numbers(self: Any, env: Any) -> list[str]:
    """Give chapters the numbers of their files, instead of counting them."""
    old = env.toc_secnumbers
    env.toc_secnumbers = {}
    for docname, toc in env.tocs.items():
        if named := chapter(env, docname):
            page, *parts = toc.findall(nodes.reference)
            env.titles[docname]["secnumber"] = page["secnumber"] = [named[0]]
            env.toc_secnumbers[docname] = {
                "": (named[0],), **{part["anchorname"]: () for part in parts}}
    return [docname for docname in env.tocs if old.get(docname) != env.toc_secnumbers.get(docname)]


def setup(app: Any) -> dict[str, Any]:
    """Register titles, references and numbers."""
    app.add_transform(ChapterTitle)
    app.add_post_transform(ChapterReference)
    TocTreeCollectorWithStyles.assign_section_numbers = assign_section_numbers
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
