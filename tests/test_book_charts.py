"""Every chart of the built book: described, legible on a phone, dark in the dark, asked by mouse and by keyboard."""
import json
import re

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.book import HTML, PAGES, built, page
from tests.browser import needs_browser, wait
from tests.waiting import until

BLOCK = re.compile(r'<div class="vega-view" role="img" aria-label="([^"]*)">.*?class="vega-spec">(.*?)</script', re.S)
CHARTS = {name: found for name in PAGES if (found := BLOCK.findall(page(name)))}
GENERIC = re.compile(r"^(chart|figure|plot|diagram|marks of the data)?\.?$", re.I)
DRAWN = """return [...document.querySelectorAll('.vega-chart')].every((c) => c.dataset.drawn
    && c.dataset.room == c.clientWidth);"""

pytestmark = [built, needs_browser]


def described_badly(labels):
    """List the descriptions that say nothing, or the same as another chart of their page."""
    return [label for label in labels if GENERIC.match(label.strip()) or len(label) < 25 or labels.count(label) > 1]


def test_every_chart_says_what_it_shows():
    bad = {name: described_badly([label for label, _ in found]) for name, found in CHARTS.items()}
    assert len(bad) > 50 and {name: labels for name, labels in bad.items() if labels} == {}
    good = "Lines of power (kW) by time (h). At 3: from 2 (a) to 4 (b)."
    assert described_badly(["", "Chart.", "A title", good]) == ["", "Chart.", "A title"]
    assert described_badly([good, good]) == [good, good]


def with_chart(condition):
    """Find the first page with a chart like this, and which of its charts it is."""
    return next((name, number) for name, found in CHARTS.items()
                for number, (_, spec) in enumerate(found) if condition(json.loads(spec.replace("&quot;", '"'))))


def parameters(spec):
    """Names of what a chart lets be chosen."""
    return " ".join(str(param.get("bind", "")) + param["name"] for param in spec.get("params", []))


@pytest.fixture
def crowded(browser):
    """Open the first chart of lines that can be enlarged; return it and the titles of its series."""
    name, number = with_chart(lambda spec: "scales" in parameters(spec) and "layer" in spec
                              and "tooltip" in spec["layer"][-1].get("encoding", {}))
    browser.get((HTML / name).as_uri())
    wait(browser, DRAWN)
    chart = browser.find_elements(By.CSS_SELECTOR, ".vega-chart")[number]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", chart)
    spec = json.loads(CHARTS[name][number][1])
    return chart, [line["title"] for line in spec["layer"][-1]["encoding"]["tooltip"]]


SHOWN = """return [...arguments[0].querySelectorAll('.mark-line path')].filter(
    (path) => +(path.getAttribute('opacity') ?? 1) > 0.5).length;"""
TICKS = "return [...arguments[0].querySelectorAll('.role-axis-label text')].map((t) => t.textContent).sort().join(' ');"
WHEEL = """const box = arguments[0].querySelector('svg').getBoundingClientRect();
    const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
    const event = new WheelEvent('wheel', {deltaY: -300, ctrlKey: arguments[1], bubbles: true, cancelable: true,
        clientX: x, clientY: y});
    document.elementFromPoint(x, y).dispatchEvent(event); return event.defaultPrevented;"""


def test_the_mouse_lists_all_series_isolates_one_and_enlarges(browser, crowded):
    chart, titles = crowded
    plot = chart.find_element(By.CSS_SELECTOR, ".mark-line.role-mark, .mark-group .mark-line")
    ActionChains(browser).move_to_element(plot).move_by_offset(3, 3).perform()
    wait(browser, "return document.querySelector('#vg-tooltip-element.visible')")
    keys = [cell.text.rstrip(":") for cell in browser.find_elements(By.CSS_SELECTOR, "#vg-tooltip-element td.key")]
    assert keys == titles and len(keys) >= 3

    every = browser.execute_script(SHOWN, chart)
    name = chart.find_element(By.CSS_SELECTOR, ".role-legend-label text")
    ActionChains(browser).move_to_element(name).click().perform()
    until(lambda: browser.execute_script(SHOWN, chart) == 1 < every)
    ActionChains(browser).move_to_element(name).pause(0.6).click().perform()    # else it is a double click
    until(lambda: browser.execute_script(SHOWN, chart) == every)

    before = browser.execute_script(TICKS, chart)
    assert browser.execute_script(WHEEL, chart, False) is False                  # alone it moves the page
    assert browser.execute_script(TICKS, chart) == before
    assert browser.execute_script(WHEEL, chart, True) is True
    until(lambda: browser.execute_script(TICKS, chart) != before)
    ActionChains(browser).move_to_element(plot).double_click().perform()
    until(lambda: browser.execute_script(TICKS, chart) == before)


def test_values_are_reached_by_keyboard(browser, crowded):
    chart, titles = crowded
    assert not chart.find_elements(By.CSS_SELECTOR, ".vega-rows")               # made when it is asked for
    chart.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    wait(browser, "return document.querySelector('.vega-rows td')")
    assert [cell.text for cell in chart.find_elements(By.CSS_SELECTOR, ".vega-rows th")] == titles
    assert len(chart.find_elements(By.CSS_SELECTOR, ".vega-rows tbody tr")) >= 10
    ActionChains(browser).send_keys(Keys.TAB).perform()
    assert browser.switch_to.active_element.get_attribute("aria-label") == "Values of the chart"


def test_charts_follow_the_mode_of_the_page(browser, crowded):
    """Switched live; the sheet is dark then, and what is drawn on it light."""
    chart, _ = crowded
    look = """document.documentElement.dataset.theme = arguments[1];
        return [getComputedStyle(arguments[0].querySelector('.vega-view')).backgroundColor,
                getComputedStyle(arguments[0].querySelector('svg')).filter];"""
    assert browser.execute_script(look, chart, "light")[1] == "none"
    sheet, turned = browser.execute_script(look, chart, "dark")
    assert sheet == "rgb(31, 31, 31)" and turned.startswith("invert(0.9)")
