"""Which worker of a test run gets which file, with ``--dist loadfile``.

Tests of one family share a worker: two would both compile its functions. Files come in the order of their number of
tests; a few tests that take long come first, so that no worker is left alone with them at the end.

A worker that ends in the middle of a test is replaced. Its test has failed; what it was given besides goes to others.
"""
import re

import pytest

FAMILY = re.compile(r"tests/(andreas|hadar|far)/")
SLOW = ("tests/fleet/test_events.py", "tests/test_readme.py", "tests/test_sweeps.py", "tests/test_streams.py",
        "tests/test_time_limit.py", "nbs/64_fleet_events.ipynb", "nbs/66e_fleet_faults.ipynb",
        "nbs/91_add_a_policy.ipynb", "nbs/34c_exact_days.ipynb", "nbs/65b_fleet_race.ipynb",
        "nbs/68c_fleet_day_run.ipynb", "nbs/90j_day_command.ipynb", "nbs/49_hadar_results.ipynb")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Schedule families as files, and what is slow first."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SlowFirst(LoadFileScheduling):
        def _split_scope(self, nodeid):
            family = FAMILY.match(nodeid)
            return super()._split_scope(nodeid) if family is None else family[1]

        def _assign_work_unit(self, node):
            for scope in reversed(SLOW):
                if scope in self.workqueue:
                    self.workqueue.move_to_end(scope, last=False)
            super()._assign_work_unit(node)

        def _reschedule(self, node):
            """Give a worker two tests at least: it begins one when it knows the next, or that there is none."""
            if node not in self.registered_collections:     # it comes in place of another, and has not read the tests
                return
            super()._reschedule(node)
            while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

        def remove_node(self, node):
            """Give the tests of a lost worker to others, but not the one that it was lost in, as xdist does."""
            units = self.assigned_work.pop(node)
            left = [(scope, test) for scope, unit in units.items() for test, is_done in unit.items() if not is_done]
            for scope, test in left[1:]:
                self.workqueue.setdefault(scope, {})[test] = False
            if len(left) > 1:
                for other in self.nodes:
                    self._reschedule(other)
            return left[0][1] if left else None

    return SlowFirst(config, log)
