"""No page is heavy: what a browser fetches for it, compressed."""
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "_ext")]
from book_weight import lightened  # noqa: E402

from tools.weigh_pages import weights  # noqa: E402

HTML = Path(os.environ.get("BOOK_HTML", ROOT / "_build" / "html"))
PAGE = """<html><head>
<script defer src="_static/scripts/fontawesome.js?digest=1"></script>
<script src="searchindex.js"></script>
<script>window.MathJax = {"options": {"a": "math"}}</script>
<script defer="defer" src="_static/vendor/mathjax/tex.js?v=1"></script>
</head><body><section class="mathjax_ignore">{}</section></body></html>"""


@pytest.mark.skipif(not (HTML / "index.html").exists(), reason="no built book in _build/html: run `make html`")
def test_pages_are_light():
    """600 kB to begin with; 1.5 MB for a chapter. What a page names is there to be weighed."""
    kilobytes = {name: weight / 1000 for name, weight in weights(HTML).items()}
    assert 50 < kilobytes["index.html"] < 600
    assert {name: weight for name, weight in kilobytes.items() if weight >= 1500} == {}


def test_a_page_loads_what_it_uses():
    plain = lightened(PAGE, "index.html")
    assert "script" not in plain
    formula = '<span class="math notranslate">x</span>'
    assert lightened(PAGE.replace("{}", formula), "index.html").count("<script") == 2
    assert "searchindex" in lightened(PAGE, "search.html")
