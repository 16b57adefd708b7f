"""Whether anyone can read the built book: axe on each page, on a wide window and on a phone, light and dark.

    python tools/check_access.py [HTML] [PAGE ...]        default _build/html, all its pages, in an hour on one core

Of axe's rules those count whose breach is serious or critical. It comes with the package ``axe-playwright-python``,
installed without what that depends on (see the Makefile). What is folded is opened first.
"""
from __future__ import annotations

import importlib.util
import sys
import time
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]
MODES = [("desktop", "light"), ("phone", "dark"), ("desktop", "dark"), ("phone", "light")]    # a page at a time
SIZES = {"desktop": (1280, 1000), "phone": (360, 800)}
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
GRAVE = ["serious", "critical"]
ALL = ["minor", "moderate", *GRAVE]
SLOW = ("color-contrast", "link-in-text-block", "region", "target-size")
PATIENCE_S = 30.0
RUN = """const [tags, impacts, without, done] = arguments;
const asked = ({id, impact, enabled, tags: own}) => enabled && !own.includes('experimental')
    && impacts.includes(impact) && own.some((tag) => tags.includes(tag)) && !without.includes(id);
const rules = axe._audit.rules.filter(asked).map((rule) => rule.id);
axe.run(document, {resultTypes: ['violations'], preload: false, runOnly: {type: 'rule', values: rules}}).then(
    (r) => done(r.violations.map(({id, impact, nodes}) =>
        [id, impact, nodes.map(({target, html}) => `${target.join(' ')}: ${html.slice(0, 150)}`)])),
    (e) => done([['axe-failed', 'critical', [String(e)]]]));"""
SHOW = """document.documentElement.dataset.theme = document.documentElement.dataset.mode = arguments[0];
if (!document.getElementById('still')) document.head.insertAdjacentHTML('beforeend',
    '<style id="still">*, ::before, ::after { transition: none !important; animation: none !important }</style>');
for (const d of document.querySelectorAll('.bd-article details')) d.open = true;
const marks = '.vega-view svg[aria-hidden] > *, .vega-view svg > [aria-hidden]';
for (const each of document.querySelectorAll(marks)) each.remove();
"""
REACHED = """const boxes = 'pre, .cell_output > .output, .pst-scrollable-table-container, mjx-container';
return [...document.querySelectorAll(boxes)].every(
    (box) => box.tabIndex === 0 || box.scrollWidth <= box.clientWidth + 2
        || getComputedStyle(box).overflowX === 'visible')"""


@cache
def axe() -> str:
    """Text of axe; "" if it is not installed."""
    found = importlib.util.find_spec("axe_playwright_python")
    folder = next(iter(found.submodule_search_locations or [])) if found else ""
    return Path(folder, "axe.min.js").read_text(encoding="utf-8") if folder else ""


def resize(driver: Any, window: str) -> None:
    """Make the window as large as a desktop or a phone."""
    width, height = SIZES[window]
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})


def violations(driver: Any, window: str, theme: str, without: tuple[str, ...] = (),
               impacts: list[str] = ALL) -> list[tuple[str, str, list[str]]]:
    """Rules that the open page breaks in a window and in light or dark: rule, impact, places.

    Marks of charts that are hidden from screen readers are taken away first: axe would look at each.
    """
    if driver.execute_script("return window.innerWidth") != SIZES[window][0]:
        resize(driver, window)
    driver.execute_script(SHOW, theme)
    deadline = time.monotonic() + PATIENCE_S    # what scrolls is looked for when the window has been still a while
    while not driver.execute_script(REACHED) and time.monotonic() < deadline:
        time.sleep(0.05)
    if not driver.execute_script("return !!window.axe"):
        driver.execute_script(axe())
    found = driver.execute_async_script(RUN, TAGS, impacts, list(without))
    return [(rule, impact, places) for rule, impact, places in found]


def grave_violations(driver: Any, window: str, theme: str, without: tuple[str, ...] = ()) -> list[str]:
    """Those that are serious or critical, a line for each rule; the window has its own size again afterwards."""
    found = violations(driver, window, theme, without, GRAVE)
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return [f"{impact} {rule} {len(places)}: {places[0]}" for rule, impact, places in found if impact in GRAVE]


def main() -> None:
    """Print what is wrong on each page, and a table of the rules."""
    from tests.browser import REFITTED, started, wait
    from tests.test_book_pages import SETTLED

    html = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "_build" / "html").resolve()
    pages = sys.argv[2:] or sorted(str(p.relative_to(html)) for p in html.rglob("*.html") if "_static" not in p.parts)
    table: Counter[tuple[str, str]] = Counter()
    on: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    with started() as driver:
        for page in pages:
            start = time.monotonic()
            driver.get((html / page).as_uri())
            for window, theme in MODES:
                resize(driver, window)
                wait(driver, f"{SETTLED.removesuffix(';')} && (() => {{ {REFITTED} }})()")
                for rule, impact, places in violations(driver, window, theme):
                    table[impact, rule] += len(places)
                    on[impact, rule].add(page)
                    if impact in GRAVE:
                        print(f"  {window} {theme}: {impact} {rule} {len(places)}: {places[0]}")
            print(f"{time.monotonic() - start:6.1f} s  {page}", flush=True)
    for key, count in sorted(table.items()):
        print(f"{count:6d} on {len(on[key]):4d} pages  {' '.join(key)}")


if __name__ == "__main__":
    main()
