"""Prices of node patterns: values of states by hand, placements that hold, and the stored runs."""
import numpy as np
import pytest

from sched_lab.cluster import toy_cluster
from sched_lab.lab.frames import read_frame
from sched_lab.online.bid import _bid
from sched_lab.online.inflation import sample_arrivals
from sched_lab.online.model import PowerSettings, final_state, world_of
from sched_lab.traces import most_popular, task_classes, toy_tasks
from studies.online import PATTERN_POLICIES, PATTERN_TRACES
from studies.patterns import (
    MICRO,
    Classes,
    Patterns,
    Shop,
    class_prices,
    classes_of,
    decided,
    hosts,
    node_value,
    place_by_patterns,
    rounded_pairs,
    states,
    values_of,
)

ONE_TYPE = np.ones((2, 1), bool)


def toy_world():
    kinds, _ = task_classes(toy_tasks())
    cluster = toy_cluster()
    return world_of(cluster, kinds, most_popular(kinds), PowerSettings("package").of(cluster))


@pytest.mark.parametrize(("price", "left", "pairs", "worth"), [
    ([0.5, 0], [50, 50], 2, 0), ([0.5, 0], [100, 0], 2, 1),
    ([0, 0], [50, 50], 2, 1), ([0, 0], [50, 50], 1, 0.5), ([0, 0], [100, 50], 2, 1.5), ([0, 0], [100, 50], 1, 1),
    ([0, 0.2], [100, 0], 2, 1), ([0, 0.2], [100, 0], 1, 0.8), ([0, 0], [40, 0], 9, 0)])
def test_the_value_of_a_state_is_that_of_its_best_pattern(price, left, pairs, worth):
    halves = Classes(np.array([50, 100]), np.array([1, 1]), np.array([1, 1]), ONE_TYPE, np.array([0.5, 1]), np.ones(2))
    assert node_value(values_of(halves, np.array(price), 0), np.array(left), pairs)[0] == worth * MICRO


def test_vcpu_is_rounded_up_and_never_down():
    cpu_milli = np.arange(0, 128_001, 500)
    pairs = rounded_pairs(cpu_milli)
    assert (2000 * pairs >= cpu_milli).all() and (np.diff(pairs) >= 0).all() and pairs.max() == 64
    assert rounded_pairs(np.array([1, 8000, 8001, 32_000, 32_001])).tolist() == [1, 4, 6, 16, 20]


def test_prices_of_nodes_and_tasks_add_up_to_what_is_served():
    world = toy_world()
    classes = classes_of(world)
    served, price = class_prices(world, classes, np.zeros(len(classes.gain)))
    found, count = states(world)
    free = world.state.gpu_left_milli.sum() / 1000
    total = count @ Patterns(classes, found).add(price) + 1.05 * free * classes.per_gpu @ price
    assert served - 1e-6 <= total <= served + 0.003 * free + 1e-6
    assert 0 < served <= free + 1e-9 and (price >= 0).all()


def test_a_workload_is_placed_the_same_twice():
    cluster, tasks = toy_cluster(), toy_tasks()
    workload = sample_arrivals(cluster, tasks, 3, 1.5)
    first, again = (place_by_patterns(cluster, tasks, workload, 1000.0) for _ in range(2))
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    assert (first.node >= 0).sum() >= 3 and (final_state(cluster, tasks, first).gpu_left_milli >= 0).all()


def test_the_cost_of_types_stands_beside_that_of_patterns_only_where_asked():
    world = toy_world()
    shop = Shop(world)
    world.bids.dual[[0, 1, 3]] = 3  # only node 1 is free of the cost of its type
    differs = 0
    for task in range(len(world.demand.num_gpus)):
        nodes = hosts(world, task, 0)
        score, masks = np.zeros(len(world.gpu_model), np.int32), np.zeros(len(world.gpu_model), np.int64)
        _bid(0, world, task, nodes, score, masks)
        beside, instead = (decided(shop, task, nodes, 0.0, is_beside)[0] for is_beside in (True, False))
        assert score[beside] == score[nodes].max()
        differs += score[instead] != score[beside]
    assert differs


def test_the_sum_of_both_costs_was_judged_on_fifteen_seeds_of_one_trace():
    runs = read_frame("data/results/pwr/pattern_judged.csv")
    assert set(runs["trace"]) == {"gpuspec25"} and set(runs["policy"]) == {"both:1000"}
    assert sorted(runs["seed"]) == list(range(47, 62)) and runs["grar"].between(0.94, 0.97).all()


def test_every_run_is_stored():
    runs = read_frame("data/results/pwr/pattern_prices.csv")
    assert set(zip(runs["trace"], runs["policy"], strict=True)) == {
        (trace, policy) for trace in PATTERN_TRACES for policy in PATTERN_POLICIES}
    assert set(runs["seed"]) == {42, 43, 44, 45, 46} and len(runs) == 100
    assert runs["grar"].between(0.8, 1).all()
