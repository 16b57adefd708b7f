"""With ``--dist loadfile``, tests of one family share a worker: two would both compile its functions.

A shell without job control starts what it puts in the background deaf to Ctrl-C, and all that this starts, too. The
tests send that signal, so they listen to it again.
"""
import re
import signal

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FAMILY = re.compile(r"tests/test_(?:(andreas|hadar)|(?:far|mig|multibatch))_?")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadFamily(LoadFileScheduling):
        def _split_scope(self, nodeid):
            family = FAMILY.match(nodeid)
            return super()._split_scope(nodeid) if family is None else family[1] or "far"

    return LoadFamily(config, log)
