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


def problems(driver, url: str, patience: float = 20.0) -> list[str]:
    """Open a page and list all that is wrong with it."""
    driver.get_log("browser"), requests(driver)                    # forget the page before
    driver.get(url)
    deadline = time.monotonic() + patience
    while not driver.execute_script(SETTLED) and time.monotonic() < deadline:
        time.sleep(0.05)
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


@pytest.mark.parametrize("page", PAGES)
def test_page(browser, site, page):
    assert problems(browser, site + page) == []


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
