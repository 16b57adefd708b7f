"""With ``--dist loadfile``, tests of one family share a worker: two would both compile its functions."""
import re

import pytest

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
