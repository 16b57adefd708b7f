"""Power at equal service: the yardstick against a solver, its laws, and the stored runs and bounds."""
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

from sched_lab.cluster import toy_cluster
from sched_lab.lab.frames import InputError
from sched_lab.traces import toy_tasks
from studies.equal_service import (
    LEVELS,
    Curves,
    both_savings,
    curves_of,
    dominance,
    doors,
    interval,
    least_power,
    power_when,
    weights_of,
)
from studies.online import (
    BY_EQ_1,
    CHANGES,
    FAMILY,
    JUDGES,
    JUDGES_OF,
    TO_JUDGE,
    TRACES,
    changed,
    files_of,
    judged,
    part_rows,
)
from tests.studies.stored import place_with, stored

XS = (None, 0.5, 1.0)


def random_curves(seed, policies=4, seeds=3, points=6):
    """Curves with service that rises, is refused in part, and is different for each policy."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 1, points)
    arrived = np.tile(100 * x, (seeds, 1))
    accepted = rng.uniform(0.6, 1, (policies, seeds, points - 1)) * (100 / (points - 1))
    served = np.concatenate([np.zeros((policies, seeds, 1)), accepted.cumsum(axis=-1)], axis=-1)
    rises = rng.uniform(0, 40, (policies, seeds, points - 1)).cumsum(axis=-1)
    watts = 50 + np.concatenate([np.zeros((policies, seeds, 1)), rises], axis=-1)
    return Curves([f"p{i}" for i in range(policies)], x, served, watts, arrived)


def test_power_is_read_where_so_much_is_served_for_the_first_time():
    served = np.tile([0.0, 5, 5, 9], (5, 1))
    watts = np.tile([100.0, 150, 170, 230], (5, 1))
    wanted = np.array([0.0, 2.5, 5, 7, 9])
    assert power_when(served, watts, wanted).tolist() == [100, 125, 150, 200, 230]


def test_a_door_that_closes_leaves_service_and_power_as_they_are():
    """Two points of a half of the demand each; closed in the middle, closed never."""
    curves = Curves(["p"], np.array([0, 0.5, 1]), np.array([[[0.0, 4, 6]]]), np.array([[[100.0, 140, 180]]]),
                    np.array([[0.0, 5, 10]]))
    served, watts = doors(curves, np.ones((1, 1)))
    assert np.allclose(served[0, 0], [0, (1 + 2) / 5, (1 + 2.5) / 5])
    assert np.allclose(watts[0, 0], [100, 60 + 70, 60 + 80])
    served, watts = doors(curves, np.ones((1, 1)), 0.5)
    assert served.tolist() == [[[0, 0.8]]] and watts.tolist() == [[[100, 140]]]


@pytest.mark.parametrize("x", XS)
def test_a_policy_saves_nothing_against_itself_and_does_not_beat_itself(x):
    curves = random_curves(1)
    twice = curves._replace(policies=[*curves.policies, "again"],
                            served_gpu=np.concatenate([curves.served_gpu, curves.served_gpu[:1]]),
                            power_w=np.concatenate([curves.power_w, curves.power_w[:1]]))
    weights = weights_of(3, 20)
    for each in both_savings(twice, "again", weights, x, "p0"):
        assert (each == 0).all()
    assert (dominance(twice, ["again"], ["p0"], weights, x) == 0).all()
    assert np.abs(dominance(twice, twice.policies, twice.policies, weights, x)).max() < 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_who_serves_everything_saves_at_equal_service_what_arrivals_say(seed):
    curves = random_curves(seed)
    full = curves._replace(served_gpu=np.broadcast_to(curves.arrived_gpu, curves.served_gpu.shape))
    weights = weights_of(3, 5)
    for x in (0.2, 0.6, 1.0):
        printed, equal = both_savings(full, "p1", weights, x, "p0")
        assert np.allclose(printed, equal, rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_least_power_is_that_of_the_linear_program(seed):
    rng = np.random.default_rng(seed)
    served, watts = rng.uniform(0.5, 1, (5, 1)), rng.uniform(100, 200, (5, 1))
    for wanted in (*served[:, 0], *rng.uniform(0.4, 1.05, 6)):
        found = linprog(watts[:, 0], A_ub=-served.T, b_ub=[-wanted], A_eq=np.ones((1, 5)), b_eq=[1])
        ours = least_power(served[:, :, None], watts[:, :, None], np.array([wanted]))[0]
        assert np.isclose(ours, found.fun) if found.success else ours == np.inf


@pytest.mark.parametrize("x", XS)
def test_a_time_share_of_rivals_is_no_new_rival(x):
    curves = random_curves(3)
    mixed = curves._replace(
        policies=[*curves.policies, "shared"],
        served_gpu=np.concatenate([curves.served_gpu, curves.served_gpu[:2].mean(0, keepdims=True)]),
        power_w=np.concatenate([curves.power_w, curves.power_w[:2].mean(0, keepdims=True)]))
    weights = weights_of(3, 20)
    alone = dominance(mixed, ["p3"], ["p0", "p1", "p2"], weights, x)
    shared = dominance(mixed, ["p3"], ["p0", "p1", "p2", "shared"], weights, x)
    both = np.isfinite(alone)
    assert (both == np.isfinite(shared)).all() and np.allclose(alone[both], shared[both])


def test_who_serves_less_cannot_dominate_whatever_it_saves():
    curves = random_curves(4, policies=2)
    lazy = curves._replace(served_gpu=curves.served_gpu * np.array([1, 0.9])[:, None, None],
                           power_w=curves.power_w * np.array([1, 0.1])[:, None, None])
    less = dominance(lazy, ["p1"], ["p0"], weights_of(3, 50), 1.0)
    assert (less[-1] == -np.inf).all()
    assert (interval(less.min(axis=0)) == -np.inf).all()


def test_the_interval_is_paired():
    """Two policies that differ by the same factor on every seed: the saving has no spread."""
    curves = random_curves(5, policies=2, seeds=8)
    scaled = curves._replace(
        served_gpu=curves.served_gpu[[0, 0]],
        power_w=np.stack([curves.power_w[0], 0.9 * curves.power_w[0]]))
    estimate, low, high = interval(both_savings(scaled, "p1", weights_of(8), 1.0, "p0")[1])
    assert np.allclose([estimate, low, high], 10)
    spread = interval(doors(curves, weights_of(8), 1.0)[1][:, :, -1])
    assert (spread[1] < spread[0]).all() and (spread[0] < spread[2]).all()


def test_runs_that_are_not_complete_are_refused():
    runs = pd.DataFrame([{"trace": "t", "policy": policy, "seed": seed, "x": x, "eopc_w": 1,
                          "used_gpu_milli": 1, "arrived_gpu_milli": 1}
                         for policy in "ab" for seed in (0, 1) for x in (0.0, 0.5)])
    assert curves_of(runs, "t").power_w.shape == (2, 2, 2)
    with pytest.raises(InputError, match="the run of b with seed 1 on t is not complete"):
        curves_of(runs.drop(index=7), "t")
    with pytest.raises(InputError, match="the run of b with seed 0 on t"):
        curves_of(runs.drop(index=[4, 5]), "t")


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_problem_is_drawn_from_the_known_one(change):
    cluster, tasks = toy_cluster(), toy_tasks()
    nodes, work = changed(cluster, tasks, change, 47)
    assert len(nodes) == len(cluster) and len(work) == len(tasks)
    assert len(set(nodes.name)) == len(nodes) and len(set(work.name)) == len(work)
    assert set(nodes.cpu_milli) <= set(cluster.cpu_milli) and set(work.gpu_milli) <= set(tasks.gpu_milli)
    others = [changed(cluster, tasks, change, seed) for seed in (47, 48)]
    same, other = (np.array_equal(each[0].cpu_milli, nodes.cpu_milli)
                   and np.array_equal(each[1].cpu_milli, work.cpu_milli) for each in others)
    assert same and other == (change == "half CPU")
    if change == "half CPU":
        assert (work.cpu_milli == tasks.cpu_milli // 2).all()


def place_for(folder, trace):
    """Workplace with the public trace."""
    return place_with(folder, ("openb/openb_node_list_gpu_node.csv", f"openb/openb_pod_list_{trace}.csv",
                               f"pwr/arrivals/{trace}.json.gz"))


@pytest.mark.parametrize(("frame", "policy", "trace", "power"), [
    ("equal_service", "joint", "gpuspec25", "package"), ("bid_family", "bid:1000:0.75", "gpuspec25", "package"),
    ("bid_eq1", "bid:1000:0.75", "gpuspec33", "eq1")])
def test_a_stored_run_comes_out_again(frame, policy, trace, power, tmp_path):
    again = judged(place_for(tmp_path, trace), (policy,), "again", (trace,), seeds=(51,), power=power)
    kept = stored(f"pwr/{frame}.csv.gz").query("trace == @trace and seed == 51 and policy == @policy")
    assert len(again) == len(kept) == 51
    for column in again:
        assert (again[column].to_numpy() == kept[column].to_numpy()).all(), column


def test_a_stored_bound_comes_out_again(tmp_path):
    files = files_of(place_for(tmp_path, "gpuspec33"), "gpuspec33")
    again = part_rows({"gpuspec33": files}, "gpuspec33", JUDGES[0], 0.5)
    kept = stored("pwr/equal_service_bounds.csv").query("trace == 'gpuspec33' and x == 0.5")
    assert np.allclose(again, kept[list(again)], rtol=1e-9)


def test_all_runs_are_stored_on_seeds_that_tuned_nothing():
    for name, policies, traces, seeds in (
            ("equal_service", TO_JUDGE, TRACES, JUDGES),
            *(("bid_family", FAMILY, (trace,), seeds) for trace, seeds in JUDGES_OF.items()),
            ("bid_eq1", BY_EQ_1["policies"], BY_EQ_1["traces"], BY_EQ_1["seeds"])):
        runs = stored(f"pwr/{name}.csv.gz").query("trace in @traces")
        wanted = {(policy, trace) for policy in policies for trace in traces}
        assert set(zip(runs["policy"], runs["trace"], strict=True)) == wanted
        assert set(runs["seed"]) == set(seeds) and min(seeds) > 46
        assert len(runs) == len(wanted) * len(seeds) * 51
        assert (runs["used_gpu_milli"] <= runs["arrived_gpu_milli"]).all()


def test_no_stored_run_lies_below_its_bound():
    runs = pd.concat([stored("pwr/equal_service.csv.gz"), stored("pwr/bid_family.csv.gz")])
    bounds = stored("pwr/equal_service_bounds.csv")
    looked_at = 0
    for (trace, seed, x), rows in bounds.groupby(["trace", "seed", "x"]):
        own = runs[(runs["trace"] == trace) & (runs["seed"] == seed) & np.isclose(runs["x"], x)]
        served = own["used_gpu_milli"] / own["arrived_gpu_milli"]
        assert (served <= rows["grar_bound"].max() + 1e-6).all()
        for row in rows.itertuples():
            at_least = own[served >= row.share]
            assert (at_least["eopc_w"] + 1 >= row.eopc_bound_w).all(), (trace, x, row.share)
            looked_at += len(at_least)
    assert looked_at > 1000 and len(LEVELS) == 5
