"""Which worker of a test run gets which file, with ``--dist loadfile``.

Files come in the order of their number of tests; a few that take long come first, so that no worker is left alone with
them at the end. A worker that ends in the middle of a test is replaced: its test has failed, and what it was given
besides goes to others.
"""
import pytest

SLOW = ("tests/test_book_pages.py", "tests/test_book_charts.py", "tests/fleet/test_events.py",
        "tests/test_readme.py", "tests/test_sweeps.py", "tests/test_time_limit.py", "tests/test_add_a_policy.py",
        "tests/test_manual.py", "tests/fleet/test_faults.py", "tests/fleet/test_demo.py",
        "tests/fleet/test_control_plane.py", "tests/test_apparatus.py", "tests/test_hostile_calls.py",
        "nbs/64_fleet_events.ipynb", "nbs/34c_exact_days.ipynb", "nbs/65b_fleet_race.ipynb",
        "nbs/49_hadar_results.ipynb")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Schedule what is slow first."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class SlowFirst(LoadFileScheduling):
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
