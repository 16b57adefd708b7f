"""How long FAR and FAR+ take, and how the time grows with the tasks."""
import numpy as np
import pytest

from sched_lab.far.mig import mig_of
from sched_lab.far.plus import far_plus
from sched_lab.far.refine import far
from sched_lab.far.tasks import SCALINGS, WIDTHS, generate_times

BATCHES = 20
# Section 6.4.2, which has 1 to 2 ms for 10 to 35 tasks
PAPER_S = {10: 0.002, 35: 0.002, 100: 0.01232, 500: 0.53221, 1000: 1.62082}


def batches(num_tasks, scaling, num_batches=BATCHES):
    """Draw the batches of one cell."""
    a100 = mig_of("A100")
    rng = np.random.default_rng(num_tasks)
    return a100, [
        generate_times(a100, num_tasks, SCALINGS[scaling], WIDTHS["wide"], rng)
        for _ in range(num_batches)]


@pytest.mark.parametrize("scaling", ["mixed", "good"])
@pytest.mark.parametrize("num_tasks", [10, 35, 100, 500, 1000, 10_000, 100_000])
def test_far(benchmark, num_tasks, scaling):
    """All phases, the schedule written out included; the printed time is for one batch."""
    a100, drawn = batches(num_tasks, scaling)

    def run():
        for times_s in drawn:
            far(a100, times_s)

    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    benchmark.extra_info["calls"], benchmark.extra_info["paper_s"] = BATCHES, PAPER_S.get(num_tasks)


@pytest.mark.parametrize("num_tasks", [10, 20, 35])
def test_far_plus(benchmark, num_tasks):
    """FAR+ with its default effort."""
    a100, drawn = batches(num_tasks, "mixed")

    def run():
        for times_s in drawn[:5]:
            far_plus(a100, times_s)

    benchmark.pedantic(run, rounds=3, warmup_rounds=1)
    benchmark.extra_info["calls"] = 5
