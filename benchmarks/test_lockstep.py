"""How fast arrays score pairs and step replicas, on a CPU and on a GPU if there is one; embedded default data."""
import tracemalloc
from functools import cache, partial

import pytest

from sched_lab.lab.arrays import get_xp
from sched_lab.lab.frames import InputError
from sched_lab.online.lockstep import bytes_per_replica
from studies.lockstep_results import (
    PAIR_SCORES,
    STEPS,
    alone_us,
    copies,
    rooms_in,
    score_all,
    together_us,
    work_of_a_pair,
)
from studies.rulers import copy_bandwidth_bytes_per_s, synchronise


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    try:
        get_xp(request.param)
    except InputError as error:
        pytest.skip(str(error))
    return request.param


@cache
def bandwidth(device):
    return copy_bandwidth_bytes_per_s(get_xp(device))


@pytest.mark.parametrize("scale", [1, 10, 100])
@pytest.mark.parametrize("name", PAIR_SCORES)
def test_all_pairs(benchmark, device, name, scale):
    """Every class on every node of so many half-full default clusters."""
    here = copies(device, scale)
    rooms = rooms_in(here, scale)
    xp = here.tables.xp
    pairs = len(here.cluster) * int(here.tables.world.demand.cpu_milli.shape[0])

    def run():
        score_all(here.tables, PAIR_SCORES[name], rooms)
        synchronise(xp)

    benchmark.extra_info.update(pairs=pairs, bytes=pairs * work_of_a_pair(name, scale)[0],
                                copy=bandwidth(device))
    benchmark.pedantic(run, rounds=3 if scale < 100 else 1, warmup_rounds=1 if scale < 100 else 0)


@pytest.mark.parametrize("policy", ["fgd", "pwr", "pwr-fgd:0.1", "bestfit", "random"])
@pytest.mark.parametrize("replicas", [1, 64])
def test_lockstep(benchmark, device, policy, replicas):
    """Inflation to the GPU capacity of so many replicas, beside the compiled engine."""
    alone_us(policy, 0)  # compiles
    benchmark.extra_info["alone_us"] = min(alone_us(policy, 0)[0] for _ in range(3))
    together = partial(together_us, policy, replicas, copies(device))
    benchmark.extra_info["us"] = benchmark.pedantic(together, rounds=1)[0]


@pytest.mark.parametrize("scale", [1, 10, 100])
def test_memory_of_a_replica(benchmark, scale):
    """One replica of a larger cluster for some steps: what it was said to take, and what it took."""
    here = copies("cpu", scale)
    tracemalloc.start()
    benchmark.pedantic(partial(together_us, "fgd", 1, here, STEPS), rounds=1)
    benchmark.extra_info["memory_mib"] = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    benchmark.extra_info["announced_mib"] = bytes_per_replica(here.tables, 1, len(here.cluster),
                                                              STEPS) / 2**20
