"""With ``--dist loadfile``, tests of one family share a worker: two would both compile its functions.

A shell without job control starts what it puts in the background deaf to Ctrl-C, and all that this starts, too. The
tests send that signal, so they listen to it again.
"""
import re
import signal
from pathlib import Path

import pytest

from tests.command_line import NODES, TASKS

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FAMILY = re.compile(r"tests/(andreas|hadar|far)/")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadFamily(LoadFileScheduling):
        def _split_scope(self, nodeid):
            family = FAMILY.match(nodeid)
            return super()._split_scope(nodeid) if family is None else family[1]

    return LoadFamily(config, log)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Work in a folder with nodes.csv and tasks.csv."""
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text(NODES)
    Path("tasks.csv").write_text(TASKS)
    return tmp_path
