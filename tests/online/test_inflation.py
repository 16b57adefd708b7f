"""Laws of the inflation experiment: what is drawn, what is written down, why a task failed."""
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from sched_lab.cluster import toy_cluster
from sched_lab.lab.frames import InputError
from sched_lab.online.inflation import (
    LACKS,
    SAMPLINGS,
    failures_frame,
    inflate,
    sample_arrivals,
)
from sched_lab.online.model import Placements, Policy, Score
from sched_lab.traces import Arrivals, toy_tasks

IN_ORDER = Arrivals(np.arange(9), np.arange(4))


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


def test_a_failure_without_a_reason_is_found_out():
    wrong = Placements(np.array([0]), np.array([-1]), np.array([0]))
    with pytest.raises(ValueError, match="a node had room"):
        failures_frame(toy_cluster(), toy_tasks(), wrong)
    assert failures_frame(toy_cluster(), toy_tasks(), Placements(*(column[:0] for column in wrong))).empty
