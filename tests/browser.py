"""What tests in a browser share: one headless Chromium for all files of a worker, what it asked for, and its window."""
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
# a page that is left is not kept for the way back: the next one is drawn by the same process, with its compiled scripts
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-dev-shm-usage --no-proxy-server --window-size=1280,1000
--disable-features=BackForwardCache""".split()
LOOPBACK = "127.0.0.1"
PHONE, NARROW_PHONE = 390, 360
REFITTED = "return [...document.querySelectorAll('.vega-chart')].every((c) => c.dataset.room == c.clientWidth);"
needs_browser = pytest.mark.skipif(not (BROWSER and DRIVER), reason="chromium or chromedriver is not installed")


@contextmanager
def started(*flags: str) -> Iterator[Any]:
    """Start a browser that logs its console and its requests."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in [*FLAGS, *flags]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    driver.set_script_timeout(600)    # axe
    driver.get("about:blank")         # the start page of the browser is not ours
    driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})  # it may lie behind a window
    try:
        yield driver
    finally:
        driver.quit()


def outside(url: str) -> bool:
    """Whether a request leaves this machine."""
    parts = urlsplit(url)
    return parts.scheme not in ("data", "blob", "file", "about") and parts.hostname != LOOPBACK


def requests(driver: Any) -> list[str]:
    """Addresses requested since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def complaints(driver: Any) -> list[str]:
    """Errors in the console since the last call, and requests to the outside since the last call of `requests`."""
    errors = [f"console: {e['message']}" for e in driver.get_log("browser") if e["level"] == "SEVERE"]
    return errors + [f"request to the outside: {url}" for url in requests(driver) if outside(url)]


def wait(driver: Any, script: str, patience_s: float = 120.0) -> None:
    """Wait until a script says true, or patience ends."""
    deadline = time.monotonic() + patience_s
    while not driver.execute_script(script) and time.monotonic() < deadline:
        time.sleep(0.05)


def resize(driver: Any, width: int, height: int = 844, *, is_phone: bool = False) -> None:
    """Make the window this wide; charts follow it."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def leave(driver: Any) -> None:
    """Leave a page, and then its width: the other way round, its charts would be drawn again."""
    driver.get("about:blank")
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
