"""Golden cases: one node and one task each, with what the authors' Go code answers."""
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from sched_lab.cluster import Cluster
from sched_lab.frag import fragmentation, fragmentation_buckets_milli, fragmentation_reference_milli
from sched_lab.online.baselines import (
    bestfit_score,
    clustering_score,
    dotprod_score,
    fitting_gpus,
    fullest_gpu,
    packing_score,
)
from sched_lab.online.fgd import fgd, fgd_reference
from sched_lab.online.inflation import add_points
from sched_lab.online.model import World, gpu_indices, is_feasible, world_of
from sched_lab.online.policies import policy_of
from sched_lab.online.pwr import pwr
from sched_lab.power import cpu_power_w, gpu_power_w, power_of
from sched_lab.traces import TaskClasses, find_reference

GOLDEN = find_reference("pwr/golden_cases.json")
GROUPS: list[dict[str, Any]] = json.loads(GOLDEN.read_text())["groups"] if GOLDEN else []
CASES = [(group, case) for group in range(len(GROUPS)) for case in GROUPS[group]["cases"]]

pytestmark = pytest.mark.skipif(GOLDEN is None, reason="../shared/reference/pwr/golden_cases.json is absent")


def each(*keys: str) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Make a test of what must hold in each case that has all of these answers; a failure names its case."""
    def in_all_cases(holds: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            chosen = [(group, case) for group, case in CASES if all(key in case for key in keys)]
            assert chosen
            for group, case in chosen:
                try:
                    holds(case, *world_and_state(group, case["id"]))
                except AssertionError as error:
                    error.add_note(f"case {case['id']}")
                    raise
        return test
    return in_all_cases


def classes_of(rows: list[dict[str, Any]], count: np.ndarray) -> TaskClasses:
    """Task classes of the JSON rows."""
    cpu, gpu, num = (np.array([row[key] for row in rows], np.int64) for key in ("cpu_milli", "gpu_milli", "num_gpu"))
    specs = np.array([row["gpu_spec"] for row in rows], object)
    return TaskClasses(cpu, gpu, num, specs, np.array([""] * len(rows), object), count, int(count.sum()))


@cache
def target_classes(group: int) -> tuple[TaskClasses, np.ndarray]:
    """Target workload of a group, and its popularity as printed; counts are the smallest ones in these proportions."""
    popularity = np.array([row["popularity"] for row in GROUPS[group]["typical_pods"]])
    total = next(n for n in range(1, 20_000) if np.abs(popularity * n - np.round(popularity * n)).max() < 1e-6)
    return classes_of(GROUPS[group]["typical_pods"], np.round(popularity * total).astype(np.int64)), popularity


@cache
def world_and_state(group: int, case_id: str) -> tuple[World, int, np.ndarray]:
    """World of the one node with the one class of the case, and what is left on the node."""
    case = next(case for case in GROUPS[group]["cases"] if case["id"] == case_id)
    node = case["node"]
    cluster = Cluster(np.array([node["name"]], object), np.array([node["cpu_milli_capacity"]]), np.array([0]),
                      np.array([node["num_gpu"]]), np.array([node["gpu_model"]], object), np.array([""], object))
    target, popularity = target_classes(group)
    world = world_of(cluster, classes_of([case["pod"]], np.array([1])), target, power_of(cluster, "package"))
    world = world._replace(target=world.target._replace(popularity=popularity))
    world.state.cpu_left_milli[0] = node["cpu_milli_left"]
    world.state.gpu_left_milli[0] = node["gpu_milli_left"]
    return world, int(world.state.cpu_left_milli[0]), world.state.gpu_left_milli[0]


def demand_of(case: dict[str, Any]) -> tuple[int, int, int]:
    return case["pod"]["cpu_milli"], case["pod"]["gpu_milli"], case["pod"]["num_gpu"]


def gpus_of(text: str) -> list[int]:
    """GPU numbers of "0-1-5"; none for the empty string."""
    return [int(gpu) for gpu in text.split("-") if gpu]


def scored(kernel: Any, world: World) -> tuple[int, list[int]]:
    """Score the class on the one node as the engine does; also the GPUs that it gets."""
    score = np.zeros(1, np.int32)
    mask = np.zeros(1, np.int64)
    kernel(world, 0, np.zeros(1, np.int64), score, mask)
    return int(score[0]), gpu_indices(mask[0])


def test_every_group_has_cases():
    assert GROUPS and all(group["cases"] for group in GROUPS)


@each("feasible")
def test_feasibility(case, world, cpu, gpus):
    assert is_feasible(world, 0, 0) == case["feasible"]


@each("frag_by_type", "frag_score_milli")
def test_fragmentation_and_its_reasons(case, world, cpu, gpus):
    buckets = fragmentation_buckets_milli(world.target, 0, cpu, gpus)
    assert buckets == pytest.approx(case["frag_by_type"], rel=1e-9, abs=1e-9)
    assert fragmentation_reference_milli(world.target, 0, cpu, gpus) == case["frag_score_milli"]  # bit for bit


@each("frag_score_milli")
def test_exact_fragmentation_is_the_same_up_to_rounding(case, world, cpu, gpus):
    exact = fragmentation(world.target, 0, cpu, gpus) / world.target.num_tasks
    assert exact == pytest.approx(case["frag_score_milli"], rel=1e-9, abs=1e-9)


@each("power_cpu_w", "power_gpu_w")
def test_power_in_watts(case, world, cpu, gpus):
    assert (cpu_power_w(world.power, 0, cpu), gpu_power_w(world.power, 0, gpus)) == (
        case["power_cpu_w"], case["power_gpu_w"])


@each("fgd_score", "fgd_gpu")
def test_fgd_points_and_gpus(case, world, cpu, gpus):
    assert scored(fgd_reference, world) == (case["fgd_score"], gpus_of(case["fgd_gpu"]))


@each("fgd_score", "fgd_gpu")
def test_exact_fgd_differs_only_where_no_change_was_rounded_to_a_loss(case, world, cpu, gpus):
    points, chosen = scored(fgd, world)
    assert points == case["fgd_score"] or (points, case["fgd_score"]) == (50, 49)
    assert chosen == gpus_of(case["fgd_gpu"]) or points == 50


@each("pwr_score_raw", "pwr_gpu")
def test_pwr_watts_and_gpus(case, world, cpu, gpus):
    assert scored(pwr, world) == (1000 * case["pwr_score_raw"], gpus_of(case["pwr_gpu"]))


def totals(case: dict[str, Any], gpus: np.ndarray) -> tuple[int, int, int, int, int, int]:
    """CPU left, GPU left, CPU and GPU asked for, and the largest node of the cluster the cases are from."""
    cpu_milli, gpu_milli, num_gpus = demand_of(case)
    return case["node"]["cpu_milli_left"], int(gpus.sum()), cpu_milli, gpu_milli * num_gpus, 128_000, 8000


@each("bestfit_raw")
def test_bestfit_points(case, world, cpu, gpus):
    assert bestfit_score(*totals(case, gpus)) == case["bestfit_raw"]


@each("dotprod")
def test_dotprod_points(case, world, cpu, gpus):
    assert dotprod_score(*totals(case, gpus)) == case["dotprod"]


@each("best_gpusel")
def test_the_gpu_of_least_left_that_fits(case, world, cpu, gpus):
    _, gpu_milli, num_gpus = demand_of(case)
    mask = fullest_gpu(gpus, gpu_milli, num_gpus)
    assert gpu_indices(mask) == gpus_of(case["best_gpusel"])


@each("pwr_gpu")
def test_whole_gpus_are_the_same_under_every_policy(case, world, cpu, gpus):
    _, gpu_milli, num_gpus = demand_of(case)
    if gpu_milli == 1000:
        for rule in (fullest_gpu, fitting_gpus):
            assert gpu_indices(rule(gpus, gpu_milli, num_gpus)) == gpus_of(case["pwr_gpu"])
    else:  # a share, or none: what any policy takes is among the GPUs that fit
        assert set(gpus_of(case["pwr_gpu"])) <= set(gpu_indices(fitting_gpus(gpus, gpu_milli, num_gpus)))


@each("packing")
def test_packing_points(case, world, cpu, gpus):
    assert packing_score(gpus, case["node"]["num_gpu"], *demand_of(case)[1:]) == case["packing"]


@each("clustering")
def test_clustering_points(case, world, cpu, gpus):
    _, gpu_milli, num_gpus = demand_of(case)
    kinds = ["share-gpu", "1-gpu", "2-gpu", "4-gpu", "8-gpu"]
    residents = np.array([case["node"]["gpu_affinity"].get(kind, 0) for kind in kinds])
    kind = -1 if num_gpus == 0 else kinds.index(f"{num_gpus}-gpu" if gpu_milli == 1000 else "share-gpu")
    assert clustering_score(int(gpus.sum()), 8000, kind, residents) == case["clustering"]


@each("pwr_normalized", "total_linear_score_here")
def test_normalised_watts_and_the_weighted_sum(case, world, cpu, gpus):
    # the worst and the best feasible node of that moment stand in for all of them: only they set the scale
    watts = np.array([case[f"pwr_{key}"] for key in ("score_raw", "raw_min_feasible", "raw_max_feasible")], np.int32)
    points = np.full(3, case["fgd_score"], np.int32)
    policy = policy_of("pwr-fgd:0.1", "reference")
    everywhere = np.ones(3, bool)
    fgd_part, pwr_part = policy.scores
    assert policy.weights == (900, 100)
    normalised = np.zeros(3, np.int64)
    total = np.zeros(3, np.int64)
    add_points(normalised, watts, everywhere, 1, pwr_part.normalise)
    add_points(total, points, everywhere, 900, fgd_part.normalise)
    add_points(total, watts, everywhere, 100, pwr_part.normalise)
    assert (normalised[0], total[0]) == (case["pwr_normalized"], case["total_linear_score_here"])
