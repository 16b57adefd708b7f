"""A price of memory: what it strands, that it changes nothing where memory is free, and the stored runs."""
from dataclasses import replace

import numpy as np
import pytest

from sched_lab.cluster import toy_cluster
from sched_lab.lab.frames import read_frame
from sched_lab.online.bid import set_dials
from sched_lab.online.inflation import play
from sched_lab.online.joint import usual_ratio
from sched_lab.online.model import PowerSettings, world_of
from sched_lab.online.policies import policy_of
from sched_lab.traces import most_popular, task_classes, toy_tasks
from studies.memory import price_memory, stranded_by_memory, usual_memory
from studies.online import CHANGED_SEEDS, CHANGED_TRACES, MEMORY, MEMORY_POLICIES


@pytest.mark.parametrize(("cpu", "mib", "free", "extra"), [
    (32_000, 24 * 1024, 4_000, 2_425), (24_000, 8 * 1024, 4_000, 2_625),    # the example by hand
    (0, 0, 4_000, 0), (32_000, -5, 4_000, 4_000), (0, 10**6, 4_000, 0), (32_000, 24 * 1024, 0, 0)])
def test_memory_strands_what_cpu_would_feed(cpu, mib, free, extra):
    assert stranded_by_memory((48_000, 6_300), (96 * 1024, 6_300), cpu, mib, free) == extra


def test_a_class_needs_its_mean():
    tasks = toy_tasks()
    usual = usual_memory(tasks)
    classes, class_of = task_classes(tasks)
    assert usual.ratio == (96 * 1024, 6_300) and len(usual.memory_mib) == len(classes)
    for kind, mean_mib in enumerate(usual.memory_mib):
        assert mean_mib == round(tasks.memory_mib[class_of == kind].mean())


def test_of_two_nodes_that_differ_in_memory_alone_the_richer_costs_less():
    cluster = replace(toy_cluster().take([1, 1]), name=np.array(["poor", "rich"], object))
    tasks = toy_tasks()
    classes, class_of = task_classes(tasks)
    six = int(class_of[list(tasks.name).index("six")])
    scores = {}
    for policy in (policy_of("bid:0:0"), price_memory("bid:0:0", tasks)):
        world = world_of(cluster, classes, most_popular(classes), PowerSettings().of(cluster))
        world.state.memory_left_mib[:] = 24 * 1024, 128 * 1024
        set_dials(world, policy.dials)
        scores[policy.name], masks = np.zeros(2, np.int32), np.zeros(2, np.int64)
        policy.scores[0].kernel(world, six, np.arange(2), scores[policy.name], masks)
    poor, rich = scores["bid:0:0+memory"] - scores["bid:0:0"]
    assert scores["bid:0:0"][0] == scores["bid:0:0"][1] and rich == 0
    # at 1000 W a GPU: what the poor node strands by memory, less what CPU strands of it anyway
    ratio, memory = usual_ratio(world.target), usual_memory(tasks).ratio
    assert poor == -1000 * (stranded_by_memory(ratio, memory, 24_000, 8 * 1024, 4_000)
                            - stranded_by_memory(ratio, memory, 32_000, 24 * 1024, 4_000)) < 0


def test_both_engines_place_alike():
    tasks = toy_tasks()
    classes, class_of = task_classes(tasks)
    rows = np.random.default_rng(0).integers(len(tasks), size=40)
    cluster = toy_cluster()
    trails = []
    for engine in ("index", "plain"):
        world = world_of(cluster, classes, most_popular(classes), PowerSettings().of(cluster))
        trails.append(play(price_memory("bid", tasks), world, class_of[rows], tasks.memory_mib[rows], engine=engine))
    assert all(np.array_equal(one, other) for one, other in zip(*trails, strict=True))
    assert (trails[0].node >= 0).sum() >= 5


def test_a_policy_without_prices_is_refused():
    with pytest.raises(ValueError, match="pwr has no price of stranded GPUs; give bid or bid:SERVED:SAVED"):
        price_memory("pwr", toy_tasks())


def test_every_run_is_stored():
    runs = read_frame("data/results/pwr/memory_prices.csv")
    assert set(zip(runs["trace"], runs["change"], runs["policy"], runs["seed"], strict=True)) == {
        (trace, change, policy, seed) for trace in CHANGED_TRACES for change in MEMORY
        for policy in MEMORY_POLICIES for seed in CHANGED_SEEDS}
    assert len(runs) == 450 and runs["grar"].between(0.8, 1).all()
