"""Bid prices prove their program's value; the engines agree on them; one end of the family is joint."""
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from sched_lab.cluster import Cluster, default_cluster, empty_state
from sched_lab.lab.frames import InputError
from sched_lab.online.bid import (
    DIALS,
    HUNDREDTHS,
    MILLIONTHS,
    STEP,
    cost_milliwatt,
    count_placed,
    dials_of,
    dual_prices,
    is_due,
    put_prices,
    set_dials,
    share_prices,
)
from sched_lab.online.inflation import inflate, play, sample_arrivals
from sched_lab.online.model import PowerSettings, world_of
from sched_lab.online.policies import policy_of
from sched_lab.traces import Tasks, default_tasks, target_workload, task_classes

MANY = settings(derandomize=True, deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
FEW = default_cluster().take(np.arange(0, 1213, 25))


def insisting(seed: int = 0) -> Tasks:
    """Let two in five of the embedded tasks of one or two GPUs insist on a T4 or a V100."""
    tasks = default_tasks()
    rng = np.random.default_rng(seed)
    wanted = rng.choice(np.array(["", "", "", "T4", "V100M32"], object), size=len(tasks))
    is_small = (tasks.num_gpus > 0) & (tasks.num_gpus <= 2)
    return replace(tasks, gpu_spec=np.where(is_small, wanted, tasks.gpu_spec).astype(object))


TASKS = insisting()
CLASSES, CLASS_OF = task_classes(TASKS)


def fresh_world(cluster: Cluster = FEW, power: str = "eq1"):
    return world_of(cluster, CLASSES, target_workload(TASKS), PowerSettings(power).of(cluster))


@st.composite
def programs(draw):
    """Small programs with ties, rows of limit 0 and columns of gain 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = rng.integers(1, 12, 2)
    matrix = rng.integers(0, draw(st.sampled_from([2, 4])), shape) * rng.choice([1, 0.3, 7.5], size=shape[1])
    matrix[0] = rng.choice([1.0, 2.0], size=shape[1])  # nothing is without limit
    limit = rng.integers(0, draw(st.sampled_from([2, 6])), shape[0]).astype(float)
    return matrix, limit, rng.integers(0, 5, shape[1]).astype(float)


@given(program=programs())
@MANY
def test_the_prices_prove_the_value(program):
    matrix, limit, gain = program
    x, price = dual_prices(matrix, limit, gain)
    assert (x >= -1e-9).all() and (matrix @ x <= limit + 1e-7).all()
    assert (price >= -1e-9).all() and (price @ matrix >= gain - 1e-7).all()
    assert np.isclose(gain @ x, limit @ price)
    assert np.isclose(gain @ x, -linprog(-gain, matrix, limit).fun)


def test_a_program_on_which_the_plain_rule_may_go_round_ends():
    """Beale's example (1955): all limits but one are 0."""
    matrix = np.array([[0.25, -60, -1 / 25, 9], [0.5, -90, -1 / 50, 3], [0, 0, 1, 0]])
    gain = np.array([0.75, -150, 0.02, -6])
    x, price = dual_prices(matrix, np.array([0.0, 0, 1]), gain)
    assert np.isclose(gain @ x, 0.05) and np.isclose(price @ [0, 0, 1], 0.05)


def test_what_has_no_end_is_an_error():
    with pytest.raises(ValueError, match="no best solution"):
        dual_prices(np.array([[1.0, 0.0]]), np.array([1.0]), np.array([1.0, 1.0]))


@pytest.mark.parametrize("sizes", [[], [100], [1], list(range(1, 101)), [33, 34, 66]])
def test_no_content_of_a_gpu_costs_more_than_a_gpu(sizes):
    size = np.array(sizes, np.int64)
    price, hole = share_prices(size, np.ones(len(size)))
    assert hole[-1] == MILLIONTHS and (np.diff(hole) >= 0).all() and len(hole) == HUNDREDTHS + 1
    assert all(hole[one] >= cost for one, cost in zip(sizes[:-1], price, strict=False))
    assert hole[HUNDREDTHS - 1] <= MILLIONTHS + HUNDREDTHS and (price >= 0).all()


def scores_of(world, task, nodes):
    score, masks = np.zeros(len(world.gpu_model), np.int32), np.zeros(len(world.gpu_model), np.int64)
    policy_of("bid").scores[0].kernel(world, task, nodes, score, masks)
    return score


def test_the_score_of_a_share_has_what_its_hole_loses():
    """On nodes with one GPU left the choice is made, and all else in the score is as without holes."""
    nodes = np.flatnonzero(FEW.num_gpus == 2)[:6]
    share = int(np.where(CLASSES.num_gpus > 0, CLASSES.gpu_milli, 1000).argmin())
    worlds = [fresh_world(), fresh_world()]
    left = np.linspace(CLASSES.gpu_milli[share], 1000, len(nodes)).astype(int)
    for world in worlds:
        set_dials(world, DIALS)
        world.state.gpu_left_milli[nodes] = 0
        world.state.gpu_left_milli[nodes, 0] = left
    hole = worlds[0].bids.hole_milliwatt
    worlds[1].bids.hole_milliwatt[:] = 0
    more = scores_of(worlds[0], share, nodes)[nodes] - scores_of(worlds[1], share, nodes)[nodes]
    after = left - CLASSES.gpu_milli[share]
    np.testing.assert_array_equal(more, hole[after // 10] - hole[left // 10])
    assert len(np.unique(more)) > 1 and hole[-1] == 3000 * 1000


def test_without_bids_there_are_no_holes_and_no_worths_are_left_of_them():
    world, fresh = fresh_world(), fresh_world()
    one_gpu = int(np.flatnonzero((CLASSES.num_gpus == 1) & (CLASSES.gpu_milli == 1000) & (CLASSES.gpu_spec == ""))[0])
    nodes = np.flatnonzero(FEW.num_gpus > 0)
    set_dials(world, DIALS)
    with_holes = scores_of(world, one_gpu, nodes)
    for each in (world, fresh):
        set_dials(each, (0.0, DIALS[1]))
    np.testing.assert_array_equal(scores_of(world, one_gpu, nodes), scores_of(fresh, one_gpu, nodes))
    assert (with_holes[nodes] < scores_of(fresh, one_gpu, nodes)[nodes]).all()


@pytest.mark.parametrize(("name", "memory_share"), [("bid", 1), ("bid:50:2", 20)])
def test_the_two_engines_agree(name, memory_share):
    """Event by event, with and without scarce memory."""
    cluster = replace(FEW, memory_mib=FEW.memory_mib // memory_share)
    rows = sample_arrivals(cluster, TASKS, 5, 1.2).task_row
    trails = [play(policy_of(name), fresh_world(cluster), CLASS_OF[rows], TASKS.memory_mib[rows], 0, engine)
              for engine in ("index", "plain")]
    for column, other in zip(*trails, strict=True):
        np.testing.assert_array_equal(column, other)
    assert (trails[0].node < 0).sum() > 20


def test_one_end_of_the_family_is_joint_and_the_other_is_not():
    nodes = {name: inflate(FEW, TASKS, name, seed=1).placements.node for name in ("joint", "bid:0:1", "bid:300:1")}
    np.testing.assert_array_equal(nodes["joint"], nodes["bid:0:1"])
    assert (nodes["joint"] != nodes["bid:300:1"]).sum() > 50


def test_prices_are_due_when_a_hundredth_has_been_placed():
    world = fresh_world()
    one_gpu = int(np.flatnonzero((CLASSES.num_gpus == 1) & (CLASSES.gpu_milli == 1000))[0])
    set_dials(world, DIALS)
    for _ in range(2):
        put_prices(world)
        for placed in range(6):
            assert is_due(world) == (placed >= STEP * FEW.num_gpus.sum())
            count_placed(world, one_gpu)
        assert is_due(world)
    set_dials(world, None)
    count_placed(world, one_gpu)
    assert not is_due(world)


def test_a_full_type_is_dear_and_an_idle_cluster_is_cheap():
    """Without T4 left, those who insist on it are refused; a T4 that comes free would serve one."""
    world = fresh_world()
    set_dials(world, (1000.0, 0.5))
    is_t4 = FEW.gpu_model == "T4"
    one_gpu = int(np.flatnonzero((CLASSES.num_gpus == 1) & (CLASSES.gpu_milli == 1000) & (CLASSES.gpu_spec == ""))[0])
    t4, g2 = (world.bids.type_of[np.flatnonzero(FEW.gpu_model == model)[0]] for model in ("T4", "G2"))
    world.state.gpu_left_milli[np.flatnonzero(is_t4)[1:]] = 0
    put_prices(world)
    cost = cost_milliwatt(world, world.bids.dual, one_gpu)
    assert cost[t4] > cost[g2] + 100_000
    assert cost[t4] <= 1_000 * 1000 * 2


def test_a_policy_without_dials_leaves_no_prices_behind():
    world = fresh_world()
    set_dials(world, DIALS)
    put_prices(world)
    set_dials(world, None)
    put_prices(world)
    assert not world.bids.dual.any() and not world.bids.before.any() | world.bids.served_w.any()


def test_nothing_to_serve_has_no_price():
    world = fresh_world()
    set_dials(world, DIALS)
    for left, empty in zip(world.state, empty_state(FEW), strict=True):
        left[:] = empty * 0
    put_prices(world)
    assert np.isfinite(world.bids.dual).all()
    assert np.isfinite(cost_milliwatt(world, world.bids.dual, 0)).all()


@pytest.mark.parametrize("name", [
    "bid:", "bid:300", "bid:300:1:1", "bid:x:1", "bid:300:nan", "bid:-1:1", "bid:10001:1", "bid:300:2.1", "bid:inf:0",
    "bid:300:1@0.5@fgd"])
def test_what_is_no_pair_of_dials_is_refused(name):
    with pytest.raises(InputError, match="two dials"):
        policy_of(name)


def test_a_name_says_what_the_dials_are():
    assert policy_of("bid").dials == DIALS == dials_of("bid:{:.0f}:{}".format(*DIALS))
    assert policy_of("bid:0:0").dials == (0.0, 0.0) and policy_of("joint").dials is None


PRICES = """
import numpy as np
from sched_lab.cluster import default_cluster
from sched_lab.online.bid import DIALS, cost_milliwatt, put_prices, set_dials
from sched_lab.online.model import PowerSettings, world_of
from sched_lab.traces import default_tasks, target_workload, task_classes

cluster = default_cluster().take(np.arange(0, 1213, 25))
tasks = default_tasks()
classes, _ = task_classes(tasks)
world = world_of(cluster, classes, target_workload(tasks), PowerSettings().of(cluster))
set_dials(world, DIALS)
rng = np.random.default_rng(7)
full = [left.copy() for left in world.state]
for _ in range(6):
    for left, capacity in zip(world.state, full, strict=True):
        left[:] = capacity * rng.choice([0, 0.25, 0.5, 1], capacity.shape)
    put_prices(world)
    print(*(price.hex() for price in world.bids.dual.ravel().tolist()))
    print(*(cost for task in range(len(classes)) for cost in cost_milliwatt(world, world.bids.dual, task).tolist()))
"""


def test_one_dual_of_several_is_the_same_on_every_cpu():
    """Python multiplies and adds one number at a time, as the oldest of CPUs: what a newer one joins would differ."""
    compiled, plain = (subprocess.run([sys.executable, "-c", PRICES], env=os.environ | {"SCHED_LAB_COMPILE": said},
                                      check=True, text=True, capture_output=True).stdout
                       for said in ("always", "never"))
    assert compiled == plain != ""
