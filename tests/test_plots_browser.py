"""What the commands write, opened in a browser: names from outside are shown, and never run."""
from pathlib import Path

import pandas as pd
import pytest

from sched_lab.lab.pages import Page, Picture, write_page
from tests.browser import PHONE, complaints, needs_browser, resize, wait
from tests.command_line import call

pytestmark = needs_browser
RUN = "</script><script>document.title='ran'</script>"
IMAGE = "<img src=x onerror=document.title='ran'>"
NAMES = [RUN, IMAGE, "it's", 'a "b" \\', "<!--<script>", "${document.title='ran'}", "مهمة", "🙂 done"]
SHOWN = """const marks = [...document.querySelectorAll('svg text, svg [aria-label]')];
return marks.flatMap((m) => [m.tagName === 'text' ? m.textContent : '', m.getAttribute('aria-label') || '']);"""
IS_DRAWN = "return Boolean(document.querySelector('#chart canvas, #chart svg, svg'))"


def open_file(browser, path, patience_s=120.0):
    """Open a file, wait for its drawing, and list what went wrong."""
    complaints(browser)
    browser.get(Path(path).resolve().as_uri())
    wait(browser, IS_DRAWN, patience_s)
    wrong = complaints(browser)
    wrong += [] if browser.execute_script(IS_DRAWN) else ["blank"]
    return wrong + (["a name ran"] if browser.title == "ran" else [])


def spoken(browser):
    """All texts of the drawing: those that are seen, and those that a screen reader says."""
    return "\n".join(browser.execute_script(SHOWN))


def test_far(browser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = {"task": NAMES, **{size: [100.0 / int(size) + i for i in range(len(NAMES))] for size in "124"}}
    pd.DataFrame(rows).to_csv("times.csv", index=False)
    assert 0 == call("far", "--gpu", "A30", "--times", "times.csv", "--out", "out", "--policy", "miso")
    assert open_file(browser, "out/report.html") == []
    assert open_file(browser, "out/gantt.svg") == []
    words = spoken(browser)
    assert [name for name in [*NAMES, "S0"] if name not in words] == []


def test_a_script_that_runs_would_be_found(browser, tmp_path):
    page = tmp_path / "bad.html"
    page.write_text(f"<div id=chart></div><script>const a = '{RUN}'</script><svg></svg>", encoding="utf-8")
    assert "a name ran" in open_file(browser, page, patience_s=1.0)


WIDTHS = """const svg = document.querySelector('svg'), box = svg.closest('.box');
return [svg.getBoundingClientRect().width, box.clientWidth, box.scrollWidth];"""


@pytest.mark.parametrize("width", [420, 765])
def test_a_chart_of_a_report_is_whole_on_a_phone_and_larger_when_it_is_touched(width, browser, tmp_path):
    drawing = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="90" viewBox="0 0 {width} 90"></svg>'
    write_page(Page("a page", ["an answer", Picture("a chart", drawing)]), tmp_path / "report.html")
    resize(browser, PHONE, is_phone=True)
    assert open_file(browser, tmp_path / "report.html") == []
    drawn, box, scrolled = browser.execute_script(WIDTHS)
    assert drawn <= box == scrolled
    browser.execute_script("document.querySelector('.box:has(svg)').focus()")
    drawn, box, scrolled = browser.execute_script(WIDTHS)
    assert drawn > 1.4 * box and scrolled >= drawn
