"""What `make check` runs for a change: the tests of the changed module first, wherever its folder is."""
import pytest

from tools.check import near_tests


@pytest.mark.parametrize(("changed", "first"), [
    ("sched_lab/fleet/read/slurm.py", "tests/fleet/test_slurm.py"), ("sched_lab/meter.py", "tests/test_meter.py"),
    ("sched_lab/online/bid.py", "tests/online/test_bid.py"), ("studies/far.py", "tests/studies/test_far.py")])
def test_the_tests_of_a_changed_module_come_first(changed, first):
    assert near_tests([changed])[0] == first
    assert near_tests([changed, "tests/test_arrays.py"])[:2] == ["tests/test_arrays.py", first]
