"""When a reader on a slow line sees the built book: 1.6 Mb/s, 150 ms there and back, nothing kept from before.

    python tools/time_pages.py [HTML [PAGE ...]]        default _build/html: the first page and the heaviest chapters

One line a page: kilobytes over the line, seconds to the first paint and to the largest one, how far things jumped. The
pages come from a server on this machine that compresses them, and a headless Chromium plays the slow line.
"""
from __future__ import annotations

import functools
import gzip
import http.server
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]
LINE = {"offline": False, "latency": 150, "downloadThroughput": 1.6e6 / 8, "uploadThroughput": 0.75e6 / 8}
WATCH = """window.seen = {largest: 0, shift: 0};
new PerformanceObserver((list) => { for (const e of list.getEntries()) seen.largest = e.startTime; })
    .observe({type: 'largest-contentful-paint', buffered: true});
new PerformanceObserver((list) => { for (const e of list.getEntries()) if (!e.hadRecentInput) seen.shift += e.value; })
    .observe({type: 'layout-shift', buffered: true});"""
FIRST = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
QUIET_S = 1.5


class Paint(NamedTuple):
    """What a reader waits for."""

    kilobytes: float
    first_s: float
    largest_s: float
    shift: float


class Compressing(http.server.SimpleHTTPRequestHandler):
    """A server that compresses text, as the public ones do."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Send a file."""
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        packed = path.suffix in (".html", ".css", ".js", ".svg")
        content = squeezed(path) if packed else path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(content)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(content)


@functools.cache
def squeezed(path: Path) -> bytes:
    """Return the compressed content of a file."""
    return gzip.compress(path.read_bytes(), 6)


@contextmanager
def served(html: Path) -> Iterator[str]:
    """Address of the book on a server of this machine."""
    handler = functools.partial(Compressing, directory=str(html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def paint(driver: Any, url: str) -> Paint:
    """Open a page over the slow line, and time it."""
    driver.get("about:blank")
    for command, given in (("Network.enable", {}), ("Network.setCacheDisabled", {"cacheDisabled": True}),
                           ("Network.emulateNetworkConditions", LINE)):
        driver.execute_cdp_cmd(command, given)
    driver.get_log("performance")
    mark = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    driver.get(url)
    bytes_, last = 0.0, time.monotonic()
    while time.monotonic() < last + QUIET_S:
        for entry in driver.get_log("performance"):
            if "Network.loadingFinished" in entry["message"]:
                bytes_ += json.loads(entry["message"])["message"]["params"]["encodedDataLength"]
                last = time.monotonic()
        time.sleep(0.1)
    driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", mark)
    seen = driver.execute_script("return window.seen")
    return Paint(bytes_ / 1000, driver.execute_script(FIRST) / 1000, seen["largest"] / 1000, seen["shift"])


def main() -> None:
    """Print a line for each page."""
    from tests.browser import started
    from tools.weigh_pages import weights

    html = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "_build" / "html").resolve()
    heavy = sorted(weights(html).items(), key=lambda pair: -pair[1])[:8]
    with served(html) as address, started() as driver:
        for page in sys.argv[2:] or ["index.html", *(name for name, _ in heavy)]:
            seen = paint(driver, address + page)
            print(f"{seen.kilobytes:7.0f} kB  first {seen.first_s:5.2f} s  largest {seen.largest_s:5.2f} s  "
                  f"shift {seen.shift:.2f}  {page}", flush=True)


if __name__ == "__main__":
    main()
