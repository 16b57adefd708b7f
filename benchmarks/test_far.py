"""How long FAR and FAR+ take, how the time grows with the tasks, and what a thousand batches at once gain."""
import numpy as np
import pytest

from sched_lab.far.allocations import raises
from sched_lab.far.baselines import first_free
from sched_lab.far.bounds import lower_bound
from sched_lab.far.lockstep import best_plans, cuts, families, fixed_makespans_s, lower_bounds_s, runs_of, score_runs
from sched_lab.far.mig import mig_of
from sched_lab.far.plus import far_plus
from sched_lab.far.refine import best_plan, far
from sched_lab.far.tasks import SCALINGS, WIDTHS, generate_times
from sched_lab.lab.arrays import get_xp, synchronise
from sched_lab.lab.frames import InputError

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


RUNS = 1000
PARTS = {  # part of FAR: all runs in one array call; the scalar code for one of them
    "lower-bound": (lower_bounds_s, lambda mig, one, sizes, ways: lower_bound(mig, one)),
    "phase-1": (families, lambda mig, one, sizes, ways: raises(one, sizes, False)),
    "phases-1-and-2": (lambda runs: best_plans(runs, families(runs)),
                       lambda mig, one, sizes, ways: best_plan(mig.tree, one, sizes, False)),
    "fixed-partitions": (fixed_makespans_s, lambda mig, one, sizes, ways: [first_free(one, way) for way in ways]),
}


@pytest.mark.parametrize("num_tasks", [10, 20, 35])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("how", ["scalar", "cpu", "cuda"])
def test_thousand_batches(benchmark, num_tasks, part, how):
    """A part of FAR for a thousand batches: one after the other, and in one array call."""
    (a100, drawn) = batches(num_tasks, "mixed", RUNS)
    (in_batch, alone) = PARTS[part]
    if how == "scalar":
        sizes = np.array(a100.sizes)
        ways = [a100.tree.size_index[list(way)] for way in cuts(a100)[0]]
        benchmark.pedantic(lambda: [alone(a100, one, sizes, ways) for one in drawn], rounds=5,
                           warmup_rounds=1)
    else:
        try:
            runs = runs_of(a100, drawn, get_xp(how))
        except InputError as error:
            pytest.skip(str(error))
        benchmark.pedantic(lambda: (in_batch(runs), synchronise(runs.xp)), rounds=5,
                           warmup_rounds=1)
    benchmark.extra_info["calls"] = RUNS


@pytest.mark.parametrize("num_tasks", [10, 20, 35])
def test_score_runs(benchmark, num_tasks):
    """All that `score_runs` says of a thousand batches, on a CPU, the check of the times included."""
    a100, drawn = batches(num_tasks, "mixed", RUNS)
    benchmark.pedantic(lambda: score_runs(a100, drawn), rounds=5, warmup_rounds=1)
    benchmark.extra_info["calls"] = RUNS
