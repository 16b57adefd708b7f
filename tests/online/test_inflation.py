"""Laws of the inflation experiment: what is drawn, what is written down, how curves of several seeds are averaged."""
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from sched_lab.cluster import default_cluster, toy_cluster
from sched_lab.lab.frames import InputError
from sched_lab.online.inflation import (
    LACKS,
    SAMPLINGS,
    failures_frame,
    inflate,
    mean_curve,
    on_grid,
    sample_arrivals,
    saving_percent,
)
from sched_lab.online.model import Placements, Policy, Score
from sched_lab.traces import Arrivals, Tasks, default_tasks, toy_tasks

IN_ORDER = Arrivals(np.arange(9), np.arange(4))
POLICIES = ["fgd", "pwr", "pwr-fgd:0.1", "pwr-fgd:0.5"]


@cache
def larger():
    """Twenty nodes: five of each toy node."""
    toy = toy_cluster().take(np.repeat(np.arange(4), 5))
    return replace(toy, name=np.array([f"{name}{i}" for i, name in enumerate(toy.name)], object))


# --- sampling


@pytest.mark.parametrize("seed", range(5))
def test_permutation_first_draws_each_row_once_before_any_row_twice(seed):
    rows = sample_arrivals(toy_cluster(), toy_tasks(), seed, until=5.0, sampling="permutation-first").task_row
    assert sorted(rows[:9]) == list(range(9)) and len(rows) > 9


def test_permutation_first_of_the_default_data_stops_inside_the_trace_below_its_total():
    tasks = default_tasks()
    cluster = default_cluster()
    rows = sample_arrivals(cluster, tasks, 0, until=0.5, sampling="permutation-first").task_row
    assert len(set(rows)) == len(rows) < len(tasks)


def test_replacement_draws_every_row_equally_often():
    # 9 rows, n draws: a share has the standard deviation sqrt(1/9 * 8/9 / n); 5 of them for 9 rows
    rows = sample_arrivals(toy_cluster(), toy_tasks(), 7, until=2000.0).task_row
    shares = np.bincount(rows, minlength=9) / len(rows)
    assert np.abs(shares - 1 / 9).max() < 5 * np.sqrt(8 / 81 / len(rows))


def test_replacement_draws_are_independent_of_the_draw_before():
    # 81 pairs of neighbours: chi-square has 80 degrees of freedom, mean 80, standard deviation sqrt(160) = 12.6
    rows = sample_arrivals(toy_cluster(), toy_tasks(), 8, until=2000.0).task_row
    pairs = np.bincount(rows[:-1] * 9 + rows[1:], minlength=81)
    expected = pairs.sum() / 81
    assert 80 - 5 * 12.6 < ((pairs - expected) ** 2 / expected).sum() < 80 + 5 * 12.6


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("until", [0.01, 0.5, 1.0, 3.0])
def test_drawing_ends_with_the_task_that_reaches_the_demand(sampling, until):
    tasks = toy_tasks()
    cluster = larger()
    for seed in range(10):
        demand = tasks.gpu_demand_milli[sample_arrivals(cluster, tasks, seed, until, sampling).task_row]
        target = until * cluster.gpu_capacity_milli
        assert demand.sum() >= target > demand.sum() - demand[-1]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_longer_workload_begins_with_the_shorter_one(sampling):
    short, long = (sample_arrivals(larger(), toy_tasks(), 3, until, sampling) for until in (0.4, 4.0))
    assert np.array_equal(long.task_row[:len(short.task_row)], short.task_row)
    assert np.array_equal(long.node_rank, short.node_rank)


def test_ranks_are_a_permutation_and_do_not_depend_on_the_trace():
    one = sample_arrivals(larger(), toy_tasks(), 3)
    other = sample_arrivals(larger(), toy_tasks().take(np.array([0, 3])), 3)
    assert sorted(one.node_rank) == list(range(20)) and np.array_equal(one.node_rank, other.node_rank)


def test_the_workload_of_a_seed_stays_the_same_for_ever():
    # stored results name their seeds: a change here makes them unrepeatable
    drawn = sample_arrivals(toy_cluster(), toy_tasks(), seed=0)
    assert drawn.task_row.tolist() == [7, 8, 0, 2, 6, 6, 1, 1, 8, 3, 6, 5, 8]
    assert drawn.node_rank.tolist() == [2, 0, 3, 1]


def test_seeds_differ_in_tasks_and_in_ranks():
    drawn = [sample_arrivals(larger(), toy_tasks(), seed, until=3.0) for seed in range(20)]
    assert len({tuple(a.task_row[:20]) for a in drawn}) == len({tuple(a.node_rank) for a in drawn}) == 20


@pytest.mark.parametrize(("change", "word"), [
    ({"sampling": "shuffle"}, "permutation-first"),
    ({"until": 0.0}, "above 0"),
    ({"until": -1.0}, "above 0"),
    ({"until": float("nan")}, "above 0"),
    ({"until": float("inf")}, "above 0"),
    ({"tasks": toy_tasks().take(np.array([5]))}, "GPU"),          # task six has no GPU: demand would never grow
    ({"cluster": toy_cluster().take(np.array([3]))}, "GPU"),      # node dog has none
])
def test_what_cannot_be_drawn_is_refused(change, word):
    with pytest.raises(InputError, match=word):
        sample_arrivals(**{"cluster": toy_cluster(), "tasks": toy_tasks(), "seed": 0, **change})


# --- runs


def test_task_one_alone_makes_the_curve_computed_by_hand():
    # idle: 60 W of CPUs (Eq. 1) and 190 W of GPUs; FGD puts task one on cat: + 105 W and + 350 W
    # fragmentation: 15000 / 9 milli-GPU, less 500 / 9
    run = inflate(toy_cluster(), toy_tasks(), "fgd", arrivals=Arrivals(np.array([0]), np.arange(4)))
    assert run.curve.iloc[0].to_dict() == {
        "x": 500 / 7000, "eopc_w": 705, "cpu_w": 165, "gpu_w": 540, "used_gpu_milli": 500, "arrived_gpu_milli": 500,
        "frag_milli": round(14_500 / 9, 6), "failed": 0}
    assert run.assignments.iloc[0].to_dict() == {"event": 0, "task_row": 0, "node": "cat", "gpu_list": "0"}


def test_nine_toy_tasks_go_where_the_chapter_says():
    placed = {policy: inflate(toy_cluster(), toy_tasks(), policy, arrivals=IN_ORDER).assignments for policy in POLICIES}
    assert placed["fgd"]["node"].tolist() == ["cat", "cat", "bee", "bee", "ant", "cat", "bee", "bee", ""]
    assert placed["fgd"]["gpu_list"].tolist() == ["0", "0", "0", "1", "0-1", "", "0", "2", ""]
    assert placed["pwr"]["node"].tolist() == ["ant", "ant", "ant", "bee", "bee", "bee", "ant", "", "cat"]
    assert "" not in placed["pwr-fgd:0.1"]["node"].tolist()


def test_recorded_arrivals_are_played_to_the_end_or_cut():
    assert len(inflate(toy_cluster(), toy_tasks(), "pwr", arrivals=IN_ORDER).curve) == 9
    cut = inflate(toy_cluster(), toy_tasks(), "pwr", arrivals=IN_ORDER, until=0.3)  # 2100 of 7000: 500+500+300+1000
    assert len(cut.curve) == 4 and cut.summary["until"] == 0.3 and cut.summary["sampling"] == "recorded"


def test_a_kernel_that_names_gpus_without_room_stops_the_run():
    def careless(world, task, nodes, score, gpu_mask):
        for node in nodes:
            score[node] = 0
            gpu_mask[node] = 1

    from sched_lab.lab.jit import njit
    policy = Policy("careless", (Score(njit(cache=False)(careless)),), (1000,))
    with pytest.raises(ValueError, match="cannot hold"):
        inflate(toy_cluster(), toy_tasks(), policy, arrivals=IN_ORDER)


# --- averages


def test_on_grid_by_hand():
    # merged x: 0 . 0.1 100 | 0.25 . | 0.4 160 (999 is a repetition) | 0.5 200 | 0.75 . | 0.9 300 | 1 .
    curve = pd.DataFrame({"x": [0.1, 0.4, 0.4, 0.5, 0.9], "w": [100, 160, 999, 200, 300]})
    assert on_grid(curve, step=0.25).to_dict("list") == {"x": [0, 0.25, 0.5, 0.75, 1], "w": [100, 130, 200, 250, 300]}


def test_mean_curve_divides_means_and_refuses_two_grids():
    # used 500 of 1000 and 3000 of 3000: 3500 / 4000 = 0.875, not (0.5 + 1) / 2
    one, two = (pd.DataFrame({"x": [1.0], "eopc_w": [w], "used_gpu_milli": [u], "arrived_gpu_milli": [a]})
                for w, u, a in ((900.0, 500, 1000), (1100.0, 3000, 3000)))
    mean = mean_curve([one, two])
    assert mean["grar"].tolist() == [0.875] and mean["eopc_w"].tolist() == [1000.0] and mean["x"].tolist() == [1.0]
    for other in (two.assign(x=0.5), two.rename(columns={"eopc_w": "w"}), pd.concat([two, two])):
        with pytest.raises(ValueError, match="one grid"):
            mean_curve([one, other])


def test_saving_is_relative_to_fgd():
    policy = pd.DataFrame({"eopc_w": [800, 1100]})
    fgd = pd.DataFrame({"eopc_w": [1000, 1000]})
    assert saving_percent(policy, fgd).tolist() == [20, -10]


# --- why a task failed


def why(cluster, tasks, placed, event):
    """Reason of one failure, node by node and GPU by GPU, from the placements before it."""
    alone = set()
    for n, name in enumerate(cluster.name):
        here = [row for row in placed[:event] if row.node == name]
        task = placed[event].task_row
        free = [1000 - sum(tasks.gpu_milli[row.task_row] for row in here if str(gpu) in row.gpu_list.split("-"))
                for gpu in range(cluster.num_gpus[n])]
        wants = int(tasks.num_gpus[task])
        cpus = tasks.cpu_spec[task].split("|")
        gpus = tasks.gpu_spec[task].split("|")
        lacks = set()
        if cluster.cpu_milli[n] - sum(tasks.cpu_milli[row.task_row] for row in here) < tasks.cpu_milli[task]:
            lacks.add("cpu")
        if cluster.memory_mib[n] - sum(tasks.memory_mib[row.task_row] for row in here) < tasks.memory_mib[task]:
            lacks.add("memory")
        if sum(left >= tasks.gpu_milli[task] for left in free) < wants:
            lacks.add("gpu")
        if cpus != [""] and cluster.cpu_model[n] not in cpus:
            lacks.add("model")
        if wants and (not free or gpus != [""] and cluster.gpu_model[n] not in gpus):
            lacks.add("model")
        assert lacks
        alone |= lacks if len(lacks) == 1 else set()
    return "|".join(word for word in LACKS if word in alone) or "several"


@pytest.mark.parametrize("policy", ["fgd", "pwr", "bestfit", "random"])
@pytest.mark.parametrize("seed", range(6))
def test_reasons_of_failures_are_those_of_a_look_at_every_node(policy, seed):
    rng = np.random.default_rng(seed)
    cluster = larger().take(rng.permutation(20)[:7])
    tasks = toy_tasks()
    cluster = replace(cluster, cpu_milli=cluster.cpu_milli // rng.integers(1, 5, 7),
                      memory_mib=cluster.memory_mib // rng.integers(1, 6, 7))
    run = inflate(cluster, tasks, policy, seed=seed, until=2.5)
    found = failures_frame(cluster, tasks, run.placements)
    placed = list(run.assignments.itertuples(index=False))
    assert found["event"].tolist() == [row.event for row in placed if row.node == ""]
    assert found["failed_for"].tolist() == [why(cluster, tasks, placed, event) for event in found["event"]]
    assert len(found) == run.summary["failed"] > 0


def test_each_reason_by_hand():
    toy = toy_cluster()  # ant: 16 vCPU, 64 GiB, 2 T4; bee: 32, 128, 4 G2; cat: 64, 256, 1 A100; dog: 32, 64, none
    texts = np.array([""] * 7, object)
    tasks = Tasks(np.array(list("abcdefg"), object), np.array([65, 1, 1, 1, 33, 16, 17]) * 1000,
                  np.array([1, 300, 1, 1, 1, 1, 1]) * 1024, np.array([0, 0, 5, 1, 4, 2, 2]),
                  np.array([0, 0, 1000, 1000, 1000, 1000, 1000]), texts.copy(), texts.copy())
    tasks.gpu_spec[3], tasks.gpu_spec[5], tasks.gpu_spec[6] = "H100", "T4", "T4"
    nothing = Placements(np.arange(5), np.full(5, -1), np.zeros(5, int))
    assert failures_frame(toy, tasks, nothing)["failed_for"].tolist() == ["cpu", "memory", "gpu", "model", "cpu|gpu"]
    two = Placements(np.array([5, 5, 6]), np.array([0, -1, -1]), np.array([0b11, 0, 0]))
    # f on ant again lacks CPU and GPUs, and on bee only the model; g too
    assert failures_frame(toy, tasks, two)["failed_for"].tolist() == ["model", "model"]
    alone = toy.take(np.array([0]))
    assert failures_frame(alone, tasks, two)["failed_for"].tolist() == ["several", "several"]


def test_a_failure_without_a_reason_is_found_out():
    wrong = Placements(np.array([0]), np.array([-1]), np.array([0]))
    with pytest.raises(ValueError, match="a node had room"):
        failures_frame(toy_cluster(), toy_tasks(), wrong)
    assert failures_frame(toy_cluster(), toy_tasks(), Placements(*(column[:0] for column in wrong))).empty
