"""Every page of the built book in a browser: no error, no request to the outside, charts and mathematics drawn."""
import os
import re
import sys
from pathlib import Path

import pytest

from tests.book import HTML, PAGES, built, page
from tests.browser import (
    NARROW_PHONE,
    PHONE,
    REFITTED,
    complaints,
    needs_browser,
    requests,
    resize,
    wait,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
from tools import check_access  # noqa: E402
from tools.check_access import MODES, REACHED, SLOW, axe, grave_violations  # noqa: E402

SETTLED = """const charts = [...document.querySelectorAll('.vega-chart')];
const math = [...document.querySelectorAll('.math')].filter((m) => m.offsetParent);
return document.readyState === 'complete' && charts.every((c) => c.dataset.drawn)
    && math.every((m) => m.querySelector('mjx-container'));"""

CONTRAST = """document.head.insertAdjacentHTML('beforeend', '<style>* { transition: none !important }</style>');
const parse = (colour) => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
const part = (v) => v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
const memo = (f) => { const kept = new Map(); return (e) => kept.has(e) ? kept.get(e) : kept.set(e, f(e)).get(e); };
const names = new Map();                                            // one element of each look is enough
const look = memo((e) => {
    if (!e) return '';
    const own = [look(e.parentElement), e.tagName, e.getAttribute('class'), e.getAttribute('style'),
                 e.tagName === 'TR' && e.rowIndex % 2].join('|');
    return names.get(own) ?? names.set(own, String(names.size)).get(own); });
const bad = [];
for (const mode of ['light', 'dark']) {
    document.documentElement.dataset.theme = mode;
    const back = memo((e) => {
        if (!e) return [255, 255, 255, 1];
        const own = parse(getComputedStyle(e).backgroundColor);
        return own[3] === 1 ? own : over(own, back(e.parentElement)); });
    const opacity = memo((e) => e ? opacity(e.parentElement) * getComputedStyle(e).opacity : 1);
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), seen = new Set();
    while (texts.nextNode()) {
        const e = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || seen.has(look(e)) || e.closest('svg, script, style, noscript')) continue;
        if (!e.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
        seen.add(look(e));
        const style = getComputedStyle(e), size = parseFloat(style.fontSize), colour = parse(style.color);
        colour[3] *= opacity(e);
        const [low, high] = [light(over(colour, back(e))), light(back(e))].sort((a, b) => a - b);
        const least = size >= 24 || size >= 18.66 && style.fontWeight >= 700 ? 3 : 4.5;
        const ratio = (high + 0.05) / (low + 0.05);
        if (ratio < least) bad.push(`${mode}: contrast ${ratio.toFixed(2)}: ${e.textContent.trim().slice(0, 40)}`);
    }
}
return bad;"""
NARROW = """const bad = [], scrollable = (e) => /auto|scroll/.test(getComputedStyle(e).overflowX);
const scrolls = (e) => e && (scrollable(e) || scrolls(e.parentElement));
const wide = document.documentElement.scrollWidth - window.innerWidth;
if (wide > 0) bad.push('page is ' + wide + ' px too wide');
for (const e of document.querySelectorAll('mjx-container, table, pre, img, svg.picture'))
    if (e.getBoundingClientRect().right > window.innerWidth + 1 && !scrolls(e))
        bad.push('cut off: ' + e.textContent.slice(0, 60));
for (const e of document.querySelectorAll('h1, h2, h3, h4'))
    if (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 9) bad.push('clipped: ' + e.textContent);
return bad;"""
LEAST_PX = 11
CHARTS = """return [...document.querySelectorAll('.vega-chart')].flatMap((chart) => {
    const svg = chart.querySelector('svg'), box = svg.getBoundingClientRect(), bad = [];
    const scale = box.width / svg.viewBox.baseVal.width, name = svg.ariaLabel.slice(0, 60);
    const seen = (t) => t.textContent.trim() && t.getBoundingClientRect().width;
    const texts = [...svg.querySelectorAll('text')].filter(seen);
    const least = Math.min(...texts.map((t) => parseFloat(getComputedStyle(t).fontSize) * scale));
    if (least < arguments[0] - 0.01) bad.push(`text of ${least.toFixed(1)} px: ${name}`);
    if (box.right > innerWidth + 1 || chart.scrollWidth > chart.clientWidth + 1) bad.push('too wide: ' + name);
    return bad;
});"""
EMPTY = """for (const box of document.querySelectorAll('.vega-values')) { box.open = true; box.ontoggle(); }
    return [...document.querySelectorAll('.vega-chart')].filter((c) => !c.querySelector('.vega-rows td')
        || /undefined|NaN|object/.test(c.querySelector('.vega-rows').textContent)).map(
        (c) => c.querySelector('svg').ariaLabel);"""
MEASURE = """const long = [], range = document.createRange();
for (const p of document.querySelectorAll('.bd-article :is(p, li, dd)')) {
    const holds = p.querySelector('p, ul, ol, pre, table, mjx-container, svg');
    if (holds || p.closest('table') || p.textContent.length < 300) continue;
    range.selectNodeContents(p);
    const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top / 12))).size;
    const each = Math.round(p.textContent.length / lines);
    if (each > 90) long.push(`${each} characters a line: ${p.textContent.slice(0, 40)}`);
}
return long;"""
# what scripts draw is seen on every page, of pages of text alone every third, of listings every twelfth
TEXTS = [name for name in PAGES if not re.search(r'class="vega-chart"|class="math |data-widget="', page(name))]
LISTINGS = [name for name in TEXTS if name.startswith("_modules")]
SEEN = PAGES if os.environ.get("ALL_PAGES") else sorted(
    {*PAGES} - {*TEXTS} | {*TEXTS[::3]} - {*LISTINGS} | {*LISTINGS[::12]})

pytestmark = [built, needs_browser]


def problems(driver, url: str, patience_s: float = 120.0) -> list[str]:
    """Open a page and list all that is wrong with it."""
    driver.get_log("browser"), requests(driver)                    # forget the page before
    driver.get(url)
    wait(driver, SETTLED, patience_s)
    found = complaints(driver)
    found += driver.execute_script("""const bad = [];
        const drawn = (c) => c.dataset.drawn === 'live' && c.querySelector('svg, canvas');
        for (const c of document.querySelectorAll('.vega-chart'))
            if (!drawn(c)) bad.push('chart not drawn: ' + c.ariaLabel);
        for (const m of document.querySelectorAll('.math'))
            if (m.offsetParent && !m.querySelector('mjx-container')) bad.push('not typeset: ' + m.textContent);
        for (const e of document.querySelectorAll('mjx-merror')) bad.push('mathematics: ' + e.textContent);
        for (const i of document.images) if (i.complete && !i.naturalWidth) bad.push('no image: ' + i.src);
        const wide = document.documentElement.scrollWidth - window.innerWidth;
        if (wide > 0) bad.push('page is ' + wide + ' px too wide');
        return bad;""")
    text = driver.execute_script("return document.body.innerText")
    return found + (["[object Object] on the page"] if "[object Object]" in text else [])


def on_a_phone(driver, patience_s: float = 120.0, theme: str = "") -> list[str]:
    """List what is wrong with the open page on a narrow phone; with axe, if a theme is named."""
    resize(driver, NARROW_PHONE)
    wait(driver, REFITTED, patience_s)
    found = driver.execute_script(CHARTS, LEAST_PX) + driver.execute_script(NARROW)
    return found + (grave_violations(driver, "phone", theme, SLOW) if theme else [])


@pytest.mark.parametrize("name", SEEN)
def test_page(browser, site, name):
    found = problems(browser, site + name)
    number = SEEN.index(name)         # every third page on a phone, every fifteenth asked by axe; all: `make access`
    if not name.startswith("_modules") and (number % 3 == 0 or os.environ.get("ALL_PAGES")):
        window, theme = MODES[number // 15 % 4] if axe() and number % 15 == 0 else ("", "")
        found += browser.execute_script(MEASURE) + browser.execute_script(CONTRAST)
        found += [f"a chart without values: {chart}" for chart in browser.execute_script(EMPTY)]
        found += on_a_phone(browser, theme=theme if window == "phone" else "")
        if window == "desktop":
            found += grave_violations(browser, window, theme, SLOW)
    assert found == []


def test_no_page_shows_a_directive_of_a_notebook():
    blocks = [(name, block) for name in PAGES if name.startswith("nbs/")
              for block in re.findall(r'class="cell_input.*?</pre>', page(name), re.S)]
    assert len(blocks) > 1000 and [name for name, block in blocks if 'class="c1">#|' in block] == []


@pytest.mark.skipif(not axe(), reason="axe is not installed: run `make setup`")
def test_violations_would_be_found(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(check_access, "PATIENCE_S", 0.0)           # nothing makes boxes of this page scroll
    page = tmp_path / "bad.html"
    page.write_text('<html><title>x</title><img src="data:,"><button></button><p style="color:#aaa">pale</p>'
                    '<pre style="width:90px; overflow-x:auto">as wide as a phone, or wider</pre>', encoding="utf-8")
    browser.get(page.as_uri())
    found = {violation.split()[1] for violation in grave_violations(browser, "phone", "light")}
    assert found == {"image-alt", "button-name", "html-has-lang", "scrollable-region-focusable", "color-contrast"}


HIDDEN_LETTERS = """const bad = [];
for (const form of document.querySelectorAll('form.bd-search')) {
    const icon = form.querySelector('i, svg'), field = form.querySelector('input');
    if (!icon || !field.offsetParent) continue;
    const begins = field.getBoundingClientRect().left + parseFloat(getComputedStyle(field).paddingLeft);
    if (begins < icon.getBoundingClientRect().right + 2) bad.push([begins, icon.getBoundingClientRect().right]);
}
return [[...document.querySelectorAll('form.bd-search input')].filter((f) => f.offsetParent).length, bad];"""


@pytest.mark.parametrize("width", [1280, PHONE])
def test_the_icon_of_the_search_field_covers_no_letter(browser, site, width):
    resize(browser, width, is_phone=width == PHONE)
    browser.get(f"{site}search.html")
    num_fields, hidden = browser.execute_script(HIDDEN_LETTERS)
    assert num_fields > 0 and hidden == []


@pytest.mark.parametrize("address", ["site", "folder"])
def test_search_shows_excerpts(browser, site, address):
    search = site + "search.html" if address == "site" else (HTML / "search.html").as_uri()
    assert problems(browser, f"{search}?q=fragmentation") == []
    found = "return [...document.querySelectorAll('#search-results li')]"
    wait(browser, found + ".length && /finished/.test(document.querySelector('.search-summary').textContent)")
    loaded = browser.execute_script("return document.querySelectorAll('script[src*=\"_static/text/\"]').length")
    pages = browser.execute_script(found + ".map((li) => li.querySelector('a').pathname)")
    assert 0 < loaded < len(set(pages)) / 2                            # what is out of sight waits
    wait(browser, found.replace("return", "const all =") + """; const bare = all.find(
        (li) => !li.querySelector(':scope > p.context, :scope > span')); bare?.scrollIntoView(); return !bare;""")
    shown = browser.execute_script(found + ".map((li) => [li.querySelector('a').textContent, li.innerText])")
    assert any(title.startswith("13 Fragmentation: ") for title, _ in shown)
    assert [title for title, text in shown if len(text) <= len(title) + 4] == []
    excerpts = browser.execute_script("return document.querySelectorAll('#search-results p.context').length")
    assert excerpts >= 10


# --- by keyboard

FOCUS = """const e = document.activeElement, mark = (x, p) => x && (getComputedStyle(x, p).boxShadow !== 'none'
    || getComputedStyle(x, p).outlineStyle !== 'none' && parseFloat(getComputedStyle(x, p).outlineWidth) > 0);
if (!e || e === document.body) return null;
e.dataset.visited = 1;
const box = e.getBoundingClientRect(), title = e.closest('.admonition-title');
return [e.tagName + ': ' + (e.ariaLabel || e.title || e.textContent).trim().slice(0, 50),
        mark(e) || mark(e, '::after') || mark(title, '::before') || [...e.children].some((x) => mark(x)),
        box.width > 0 && box.bottom > 0 && box.top < innerHeight];"""
UNVISITED = """return [...document.querySelectorAll('a[href], button, input, select, summary')].filter((e) =>
    !e.dataset.visited && !e.disabled && e.getBoundingClientRect().width
    && e.checkVisibility({visibilityProperty: true, opacityProperty: true})).map((e) => e.outerHTML.slice(0, 100))"""
IN_WIDGET = "return !!document.activeElement.closest('.widget')"
WIDGETS = {"index.html": "place", "nbs/25_policies.html": "place", "nbs/33_greedy.html": "queue",
           "nbs/41_hadar_primal_dual.html": "prices", "nbs/53_refine.html": "cut"}
NO_TRANSITION = "document.head.insertAdjacentHTML('beforeend', '<style>* { transition: none !important }</style>')"
JUMPS = "return [...document.querySelectorAll('[tabindex]')].filter((e) => e.tabIndex > 0).length"


def press(driver, *keys: str) -> None:
    """Press keys, one after another; ``CONTROL+k`` means both at once."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys
    for key in keys:
        chain = ActionChains(driver)
        *held, last = [getattr(Keys, name, name) for name in key.split("+")]
        for name in held:
            chain.key_down(name)
        chain.send_keys(last)
        for name in held:
            chain.key_up(name)
        chain.perform()


VISITED = [("nbs/22_fgd.html", 1280), ("nbs/63_fleet_problem.html", NARROW_PHONE), ("cite.html", 1280)]


@pytest.mark.parametrize(("name", "width"), VISITED)
def test_the_keyboard_reaches_everything_and_one_sees_where_it_is(browser, site, name, width):
    resize(browser, width)
    assert problems(browser, site + name) == []
    browser.execute_script(NO_TRANSITION)
    wait(browser, REACHED)                                         # the theme and the book look for boxes that scroll
    seen: list = []
    while len(seen) < 400:
        press(browser, "TAB")
        if (now := browser.execute_script(FOCUS)) is None:
            break
        seen.append(now)
    unvisited = browser.execute_script(UNVISITED)
    assert seen[0][0] == "A: Skip to main content" and 30 < len(seen) < 400
    assert [name for name, marked, shown in seen if not (marked and shown)] == []
    assert unvisited == []
    assert browser.execute_script(JUMPS) == 0


def test_skip_link_search_and_sidebar_work_by_keyboard(browser, site):
    assert problems(browser, site + "nbs/22_fgd.html") == []
    press(browser, "TAB", "ENTER", "TAB")
    assert browser.execute_script("return !!document.activeElement.closest('main')")
    is_open = "return document.getElementById('{}').open"
    press(browser, "CONTROL+k")
    assert browser.execute_script(is_open.format("pst-search-dialog"))
    press(browser, "ESCAPE")
    assert not browser.execute_script(is_open.format("pst-search-dialog"))
    resize(browser, PHONE)
    for side in ("primary", "secondary"):
        panel = f"pst-{side}-sidebar-modal"
        browser.execute_script(f"document.querySelector('.{side}-toggle').focus()")
        press(browser, "ENTER")
        assert browser.execute_script(is_open.format(panel))
        assert browser.execute_script(f"return document.getElementById('{panel}').querySelectorAll('a').length") > 3
        press(browser, "ESCAPE")
        wait(browser, is_open.format(panel).replace("return ", "return !"))
        assert not browser.execute_script(is_open.format(panel))
    press(browser, "CONTROL+k", "power", "ENTER")
    wait(browser, "return location.pathname.endsWith('search.html')")
    assert browser.current_url.endswith("search.html?q=power")


@pytest.mark.parametrize("name", WIDGETS)
def test_a_widget_is_used_by_keyboard_alone(browser, site, name):
    assert problems(browser, site + name) == []
    wait(browser, "return [...document.querySelectorAll('.widget[data-widget]')].every((w) => w.dataset.state)")
    assert browser.execute_script("""return [...document.querySelectorAll('.widget[data-widget]')].map(
        (place) => [place.dataset.widget, place.dataset.state])""") == [[WIDGETS[name], "ready"]]
    state = "return [...document.querySelectorAll('.widget')].map((w) => w.innerHTML).join()"
    control = "[...document.querySelectorAll('.widget :is(input, select, button)')]"
    names = browser.execute_script(f"return {control}.map((e) => e.tagName)")
    assert {"INPUT", "BUTTON"} <= set(names)
    used = {"INPUT": "ARROW_LEFT", "SELECT": "ARROW_DOWN", "BUTTON": "ENTER"}
    changed = []
    for place, name in enumerate(names):
        focus = f"const e = {control}[{place}]; e?.focus(); return e && document.activeElement === e"
        if not browser.execute_script(focus):
            continue                                               # out of use at the moment
        before = browser.execute_script(state)
        press(browser, used[name])
        changed.append(browser.execute_script(state) != before)
        assert browser.execute_script(IN_WIDGET), f"the focus was lost after control {place}"
    assert sum(changed) >= 0.7 * len(names)
    assert WIDGETS.keys() == {name for name in PAGES if 'data-widget="' in page(name)}


def test_pages_open_from_a_folder(browser):
    for name in ("index.html", next(name for name in PAGES if 'class="vega-chart"' in page(name))):
        assert problems(browser, (HTML / name).as_uri()) == []


def test_faults_would_be_found(browser, tmp_path):
    """The same checks on a page broken on purpose."""
    chart = ('<div class="vega-chart" data-drawn="{}"><svg aria-label="{}" viewBox="0 0 800 40" width="{}">'
             '<text y="20">x</text></svg></div>')
    bad = ('<script src="https://cdn.example.org/x.js"></script><script>throw new Error("boom")</script>'
           '<span class="math">\\\\(x\\\\)</span><div style="width:3000px">[object Object]</div>'
           '<p style="color:#888">pale</p><mjx-container style="display:block; width:600px; overflow:visible">x'
           '</mjx-container>' + chart.format("failed", "wide", 800) + chart.format("live", "tiny", 200))
    broken = tmp_path / "bad.html"
    broken.write_text(page("index.html").replace("</body>", bad + "</body>"), encoding="utf-8")
    found = "\n".join(problems(browser, broken.as_uri(), patience_s=0.5) + on_a_phone(browser, patience_s=0.5)
                      + browser.execute_script(CONTRAST))
    for fault in ("cdn.example.org", "boom", "chart not drawn", "not typeset", "too wide", "[object", "cut off: x",
                  "too wide: wide", "px: tiny", "light: contrast 3."):
        assert fault in found
