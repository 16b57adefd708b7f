"""Put the pictures of ideas into the page itself, so that they follow its light and dark mode.

A chapter shows a picture as any image, ``![what it shows](../figures/choose.svg)``, which JupyterLab and a
repository's pages draw as well. In the book's HTML the file takes the place of the image, if it is one of ours: its
root has the class ``picture`` (``tools/draw_pictures.py``). The rules that the files share come from one style sheet.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform


def inline(file: Path) -> str | None:
    """Return a picture as part of a page; None if the file is no picture of ours."""
    if file.suffix != ".svg" or not file.is_file():
        return None
    svg = file.read_text(encoding="utf-8")
    if ' class="picture" ' not in svg[:200]:
        return None
    svg = re.sub(r"<(title|desc)\b", r'<\1 class="nohighlight"', svg)    # the search would measure marks in them
    return re.sub(r"<style>.*?</style>|\n", "", svg, flags=re.S)


class InlinePictures(SphinxPostTransform):
    """Replace images by what is in their files."""

    default_priority = 5    # before images are collected to be copied
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        """Change all images of the page."""
        for image in list(self.document.findall(nodes.image)):
            if svg := inline(Path(self.env.srcdir, image["uri"])):
                image.replace_self(nodes.raw("", svg, format="html"))


def setup(app: Any) -> dict[str, Any]:
    """Register the transform and the looks of the landing page, of the sidebar and of pictures."""
    app.add_post_transform(InlinePictures)
    app.add_css_file("book-pictures.css")    # the style that each file has for itself
    app.add_css_file("book-front.css")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
