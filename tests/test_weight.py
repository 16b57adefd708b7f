"""No page is heavy: what a browser fetches for it, compressed."""
import re
import sys

from tests.book import HTML, ROOT, built

sys.path[:0] = [str(ROOT), str(ROOT / "_ext")]
from book_weight import THEME, bundled, lightened, postponed  # noqa: E402

from tools.weigh_pages import weights  # noqa: E402

PAGE = """<html><head>
<script defer src="_static/scripts/fontawesome.js?digest=1"></script>
<script src="searchindex.js"></script>
<script>window.MathJax = {"options": {"a": "math"}}</script>
<script defer="defer" src="_static/vendor/mathjax/tex.js?v=1"></script>
</head><body><section class="mathjax_ignore">{}</section></body></html>"""


@built
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


def test_text_comes_before_what_can_wait(tmp_path):
    """One style sheet with what it imports, scripts after the text, the options that they read in the page."""
    head = ('<html><head><title>x</title><link href="../_static/styles/a.css?v=1" rel="stylesheet" />\n'
            '<link rel="stylesheet" type="text/css" href="../_static/b.css" />\n'
            '<link rel="preload" as="script" href="x.js">'
            '<script src="../_static/documentation_options.js?v=9"></script>'
            f'<script src="../_static/doctools.js"></script><script>{THEME};</script></head>')
    (tmp_path / "_static" / "styles").mkdir(parents=True)
    (tmp_path / "_static" / "b.css").write_text("b { background: url(x.png) }")
    (tmp_path / "_static" / "styles" / "a.css").write_text('@import "../b.css"; /* said */ i { src: url("../y.woff") }')
    page = bundled(postponed(head, "const OPTIONS = 1;"), tmp_path)
    assert page.count("stylesheet") == 1 and "preload" not in page and '"auto"' not in page.partition("prefers")[2]
    assert "<script>const OPTIONS = 1;</script><script defer src=\"../_static/doctools.js\">" in page
    sheet = tmp_path / "_static" / re.search(r'href="\.\./_static/(book-\w+\.css)\?v=', page)[1]
    assert sheet.read_text().split() == ('b { background: url("x.png") } i { src: url("y.woff") } '
                                         'b { background: url("x.png") }').split()
    assert bundled(page, tmp_path) == page
