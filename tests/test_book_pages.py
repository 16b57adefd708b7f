"""Every page of the built book in a browser: no error, no request to the outside, charts and mathematics drawn."""
import functools
import http.server
import json
import os
import re
import shutil
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

HTML = Path(os.environ.get("BOOK_HTML", Path(__file__).parents[1] / "_build" / "html")).resolve()
PAGES = sorted(str(p.relative_to(HTML)) for p in HTML.rglob("*.html") if "_static" not in p.parts)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --no-proxy-server --window-size=1280,1000""".split()
LOOPBACK = "127.0.0.1"
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
PHONE = 390
SMALL = """const bad = [], scrollable = (e) => /auto|scroll/.test(getComputedStyle(e).overflowX);
const scrolls = (e) => e && (scrollable(e) || scrolls(e.parentElement));
const wide = document.documentElement.scrollWidth - window.innerWidth;
if (wide > 0) bad.push('page is ' + wide + ' px too wide');
for (const m of document.querySelectorAll('mjx-container'))
    if (m.getBoundingClientRect().right > window.innerWidth && !scrolls(m)) bad.push('cut off: ' + m.textContent);
for (const c of document.querySelectorAll('.vega-chart')) {
    const drawn = c.querySelector('svg'), width = drawn ? drawn.getBoundingClientRect().width : 0;
    if (width > c.clientWidth + 1) bad.push('chart is cut off: ' + c.ariaLabel);
    if (width < 0.85 * drawn?.viewBox.baseVal.width) bad.push('chart is too small to read: ' + c.ariaLabel);
}
return bad;"""
REFITTED = """return [...document.querySelectorAll('.vega-chart')].every((c) => c.dataset.room == c.clientWidth);"""

pytestmark = [
    pytest.mark.skipif(not PAGES, reason=f"no built book in {HTML.name}: run `make html`"),
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="chromium or chromedriver is not installed"),
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def site():
    """Address of the book on a local server."""
    with http.server.ThreadingHTTPServer((LOOPBACK, 0), functools.partial(Quiet, directory=str(HTML))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{LOOPBACK}:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One headless browser that logs its console and its requests."""
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    driver.get("about:blank")                                      # the start page of the browser is not ours
    yield driver
    driver.quit()


def outside(url: str) -> bool:
    """Whether a request leaves this machine."""
    parts = urlsplit(url)
    return parts.scheme not in ("data", "blob", "file", "about") and parts.hostname != LOOPBACK


def requests(driver) -> list[str]:
    """Addresses requested since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def wait(driver, script: str, patience: float = 20.0) -> None:
    """Wait until a script says true, or patience ends."""
    deadline = time.monotonic() + patience
    while not driver.execute_script(script) and time.monotonic() < deadline:
        time.sleep(0.05)


def problems(driver, url: str, patience: float = 20.0) -> list[str]:
    """Open a page and list all that is wrong with it."""
    driver.get_log("browser"), requests(driver)                    # forget the page before
    driver.get(url)
    wait(driver, SETTLED, patience)
    found = [f"console: {e['message']}" for e in driver.get_log("browser") if e["level"] == "SEVERE"]
    found += [f"request to the outside: {u}" for u in requests(driver) if outside(u)]
    found += driver.execute_script("""const bad = [];
        const drawn = (c) => c.dataset.drawn === 'live' && c.querySelector('svg, canvas');
        for (const c of document.querySelectorAll('.vega-chart'))
            if (!drawn(c)) bad.push('chart not drawn: ' + c.ariaLabel);
        for (const m of document.querySelectorAll('.math'))
            if (m.offsetParent && !m.querySelector('mjx-container')) bad.push('not typeset: ' + m.textContent);
        for (const e of document.querySelectorAll('mjx-merror')) bad.push('mathematics: ' + e.textContent);
        for (const e of document.querySelectorAll('div.cell_input pre'))
            if (/^#\\|/m.test(e.textContent)) bad.push('directive: ' + e.textContent.slice(0, 60));
        for (const i of document.images) if (i.complete && !i.naturalWidth) bad.push('no image: ' + i.src);
        const wide = document.documentElement.scrollWidth - window.innerWidth;
        if (wide > 0) bad.push('page is ' + wide + ' px too wide');
        return bad;""")
    text = driver.execute_script("return document.body.innerText")
    return found + (["[object Object] on the page"] if "[object Object]" in text else [])


def on_a_phone(driver, patience: float = 20.0) -> list[str]:
    """List what is wrong with the open page when the window is as wide as a phone."""
    size = {"width": PHONE, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    wait(driver, REFITTED, patience)
    found = driver.execute_script(SMALL)
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return found


@pytest.mark.parametrize("page", PAGES)
def test_page(browser, site, page):
    assert problems(browser, site + page) == []
    if not page.startswith("_modules"):
        assert on_a_phone(browser) == []
        assert browser.execute_script(CONTRAST) == []


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


def test_pages_open_from_a_folder(browser):
    charts = [p for p in PAGES if 'class="vega-chart"' in (HTML / p).read_text(encoding="utf-8")]
    for page in ["index.html", *charts[:1]]:
        assert problems(browser, (HTML / page).as_uri()) == []


def test_faults_would_be_found(browser, site, tmp_path):
    """The same checks on a page broken on purpose."""
    index = (HTML / "index.html").read_text(encoding="utf-8")
    bad = ('<script src="https://cdn.example.org/x.js"></script><script>throw new Error("boom")</script>'
           '<div class="vega-chart" data-drawn="failed"></div><span class="math">\\\\(x\\\\)</span>'
           '<div class="cell_input"><pre>#| export</pre></div><div style="width:3000px">[object Object]</div>')
    page = tmp_path / "bad.html"
    page.write_text(re.sub("</body>", bad + "</body>", index), encoding="utf-8")
    found = "\n".join(problems(browser, page.as_uri(), patience=1.0))
    for fault in ("cdn.example.org", "boom", "chart not drawn", "not typeset", "directive", "too wide", "[object"):
        assert fault in found
    chart = '<div class="vega-chart" data-drawn="live" aria-label="{}"><svg viewBox="0 0 800 9" width="{}"></svg></div>'
    bad = ('<p style="color:#888">pale</p>' + chart.format("wide", 800) + chart.format("tiny", 200)
           + '<mjx-container style="display:block; width:600px; overflow:visible">x</mjx-container>')
    page.write_text(re.sub("</body>", bad + "</body>", index), encoding="utf-8")
    problems(browser, page.as_uri(), patience=1.0)
    found = "\n".join(on_a_phone(browser, patience=1.0) + browser.execute_script(CONTRAST))
    for fault in ("cut off: x", "chart is cut off: wide", "too small to read: tiny", "light: contrast 3.", "too wide"):
        assert fault in found
