"""The widgets in a browser, opened from a folder with the network off: what they show is what the package computes."""
import re

import numpy as np
import pytest

from sched_lab.andreas.greedy import SearchOptions
from sched_lab.andreas.instances import toy_instance
from sched_lab.andreas.policies import policy_of as andreas_policy
from sched_lab.andreas.proxy import PERIOD_S, RHO, code_objective, paper_objective
from sched_lab.far.allocations import family
from sched_lab.far.bounds import lower_bound
from sched_lab.far.mig import mig_of
from sched_lab.far.refine import far
from sched_lab.hadar.model import nothing_runs, toy_workload
from sched_lab.hadar.primal_dual import NO_TOLL, serve
from sched_lab.online.inflation import play
from sched_lab.online.policies import policy_of
from tests.browser import complaints, needs_browser, requests, resize, wait
from tests.test_book_pages import CONTRAST
from tests.test_touch import FOLDER, in_plain_python  # noqa: F401
from tools import widget_kernels

pytestmark = needs_browser
PAGE = """<!doctype html><html data-theme="light"><head><meta charset="utf-8"><title>w</title></head><body>
<div class="widget" data-widget="{}">fallback</div><script src="{}"></script></body></html>"""
READY = "return [...document.querySelectorAll('.widget[data-widget]')].every((w) => w.dataset.state)"
ROWS = """return [...document.querySelectorAll('.widget tbody tr')].map((row) => [row.dataset.row,
    ...[...row.querySelectorAll('td')].map((cell) => cell.textContent)])"""
WIDE = "return document.documentElement.scrollWidth - window.innerWidth"
UNNAMED = """return [...document.querySelectorAll('.widget :is(button, input, select, svg)')].filter(
    (e) => !e.getAttribute('aria-label') && !e.textContent.trim() && !e.labels?.length).map((e) => e.outerHTML)"""
NEXT = "document.querySelector('.widget button.primary').click()"
OFF = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}


@pytest.fixture
def show(browser, tmp_path):
    """Open a widget from a folder, without a network; complain of anything in the console."""
    def opened(name: str, loader: str = "loader.js"):
        page = tmp_path / "page.html"
        page.write_text(PAGE.format(name, (FOLDER / loader).as_uri()), encoding="utf-8")
        browser.execute_cdp_cmd("Network.enable", {})
        browser.execute_cdp_cmd("Network.emulateNetworkConditions", OFF)
        browser.get_log("browser"), requests(browser)
        browser.get(page.as_uri())
        wait(browser, READY)
        return browser

    yield opened
    browser.execute_cdp_cmd("Network.disable", {})


def faults(driver) -> list[str]:
    """List what is wrong with a widget: errors, requests, missing names, contrast, width on a phone."""
    found = complaints(driver)
    found += [f"no name: {html}" for html in driver.execute_script(UNNAMED)]
    found += driver.execute_script(CONTRAST)
    for width in (360, 1280):
        resize(driver, width)
        if (too_wide := driver.execute_script(WIDE)) > 0:
            found.append(f"{too_wide} px too wide at {width}")
    return found


def set_slider(driver, label: str, value: float) -> None:
    """Move a slider as a reader does."""
    driver.execute_script("""const input = document.querySelector(`.widget input[aria-label="${arguments[0]}"]`);
        input.value = arguments[1]; input.dispatchEvent(new Event('input', {bubbles: true}))""", label, value)


@pytest.mark.parametrize("name", widget_kernels.WIDGETS)
def test_a_widget_has_no_faults(show, name):
    driver = show(name)
    assert driver.execute_script("return document.querySelector('.widget').dataset.state") == "ready"
    assert driver.execute_script("return document.querySelectorAll('.widget [aria-live]').length") == 1
    assert faults(driver) == []


def test_a_widget_that_cannot_start_says_so(show):
    driver = show("chess")
    assert "could not start: cannot load chess.kernels.js" in driver.execute_script("return document.body.innerText")
    assert faults(driver)


def test_place_shows_the_runs_of_the_engine(show):
    driver = show("place")
    set_slider(driver, "Weight of power, alpha", 0.35)
    tasks = widget_kernels.small_arrivals()
    for _ in tasks:
        driver.execute_script(NEXT)
    shown = {name: rest for name, *rest in driver.execute_script(ROWS)}
    assert shown["you"] == shown["mix"]
    for row, name in {"FGD": "fgd", "PWR": "pwr", "mix": "pwr-fgd:0.35", "joint": "joint"}.items():
        no_memory = np.zeros(len(tasks), np.int64)
        curve = play(policy_of(name), widget_kernels.small_world(), tasks, no_memory, engine="plain").curve[-1]
        assert shown[row] == [f"{curve[:2].sum():.1f} W", f"{curve[4] / 1000:.3f}", f"{curve[5]:.0f}"]


def test_place_is_worked_by_the_keyboard(show):
    driver = show("place")
    keys = pytest.importorskip("selenium.webdriver").Keys
    before = driver.execute_script(ROWS)
    driver.execute_script("document.querySelector('.widget .card:not(:disabled)').focus()")
    driver.switch_to.active_element.send_keys(keys.ENTER)
    said = driver.execute_script("return document.querySelector('.widget [aria-live]').textContent")
    assert re.fullmatch(r"You put task 1 on \w+, GPU [0-3 and]+\. The cluster draws [\d.]+ W\.", said)
    after = driver.execute_script(ROWS)
    assert after != before
    buttons = "[...document.querySelectorAll('.widget button')]"
    driver.execute_script(f"{buttons}.find((button) => button.textContent === 'Undo').click()")
    assert driver.execute_script(ROWS) == before


def test_cut_shows_what_far_finds(show):
    driver = show("cut")
    alone = [12, 40, 27, 33]
    scaling = [1.0, 0.4, 0.7, 0.9]
    for letter, seconds, how in zip("ABCD", alone, scaling, strict=True):
        set_slider(driver, f"Time of {letter} on one slice", seconds)
        set_slider(driver, f"How well {letter} scales", how)
    for model in widget_kernels.CUT_MODELS:
        driver.execute_script("""const choice = document.querySelector('.widget select'); choice.value = arguments[0];
            choice.dispatchEvent(new Event('change', {bubbles: true}))""", model)
        mig = mig_of(model)
        times_s = np.round(10 * np.array(alone)[:, None] / np.array(mig.sizes) ** np.array(scaling)[:, None]) / 10
        found, bound_s = far(mig, times_s), lower_bound(mig, times_s)
        said = driver.execute_script("return document.querySelector('.widget [aria-live]').textContent")
        assert said == f"FAR ends at {found.schedule.makespan_s:.2f} s; no schedule ends before {bound_s:.2f} s."
        rows = driver.execute_script(ROWS)
        members = family(times_s, np.array(mig.sizes))
        assert [row[1:-1] for row in rows] == [[str(mig.sizes[k]) for k in member] for member in members]
        assert float(rows[found.member][-1].removesuffix(" s")) == pytest.approx(found.before_s, abs=0.0051)


def test_prices_show_how_hadar_serves_its_queue(show):
    driver = show("prices")
    terms, queue = widget_kernels.toy_terms()
    for _ in queue:
        driver.execute_script(NEXT)
    load = toy_workload()
    served = serve(terms, NO_TOLL, queue, nothing_runs(), terms.cluster.node_gpus.copy(), False)
    running = {load.job_name[job]: {} for job in served[0]}
    for job, node, gpus in served.T.tolist():
        running[load.job_name[job]][load.node_name[node]] = gpus
    rows = driver.execute_script(ROWS)
    assert [row[0] for row in rows] == [load.job_name[job] for job in queue]
    shown = {job: dict((part.split(" on ")[1], int(part.split(" on ")[0])) for part in place.split(", "))
             for job, place, *_, runs in rows if runs == "yes"}
    assert shown == running


def test_queue_shows_what_every_policy_decides(show):
    driver = show("queue")
    instance = toy_instance()
    due_min = [30, 120, 45, 90, 15]
    for job, minutes in zip(instance.job_name, due_min, strict=True):
        set_slider(driver, f"Due date of {job}", minutes)
    jobs = instance.jobs._replace(due_s=np.array(due_min) * 60.0)
    rows = {name: rest for name, *rest in driver.execute_script(ROWS)}
    for name in widget_kernels.DECIDERS:
        found = andreas_policy(name, SearchOptions(max_iterations=200))(instance.fleet, jobs, 600.0)
        for job, cell in enumerate(rows[name][:5]):
            runs = found.node[job] >= 0
            assert cell.startswith(f"{instance.node_name[found.node[job]]}: " if runs else "waits")
        asked = (instance.fleet, jobs, 600.0, *found, RHO)
        values = [paper_objective(*asked, PERIOD_S), code_objective(*asked)]
        assert rows[name][5:] == [f"{value:.3f} EUR" for value in values]
