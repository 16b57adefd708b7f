"""What tests share.

A shell without job control starts what it puts in the background deaf to Ctrl-C, and all that this starts, too. The
tests send that signal, so they listen to it again. An example that Hypothesis draws has no time limit of its own: on a
busy machine, or where it compiles, any takes long.
"""
import functools
import http.server
import os
import signal
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from sched_lab.lab.jit import interpreted
from tests.book import HTML
from tests.browser import LOOPBACK, leave, started
from tests.command_line import NODES, TASKS
from tests.scheduler import pytest_xdist_make_scheduler  # noqa: F401

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory):
    """Keep tokens that servers make out of the folder of whoever runs the tests."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Work in a folder with nodes.csv and tasks.csv."""
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text(NODES)
    Path("tasks.csv").write_text(TASKS)
    return tmp_path


@pytest.fixture
def python_itself():
    """Let Python itself run compiled functions: a few dozen tasks are done before the code for them is compiled."""
    with interpreted(True):
        yield


@pytest.fixture(scope="session")
def driver(tmp_path_factory):
    """Start the browser of this worker."""
    pytest.importorskip("selenium.webdriver")
    with started(f"--user-data-dir={tmp_path_factory.mktemp('profile')}") as browser:
        yield browser


@pytest.fixture
def browser(driver):
    """Lend the browser of this worker, its window as wide as at first."""
    yield driver
    leave(driver)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def site():
    """Address of the book on a local server."""
    with http.server.ThreadingHTTPServer((LOOPBACK, 0), functools.partial(Quiet, directory=str(HTML))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{LOOPBACK}:{server.server_port}/"
        server.shutdown()
