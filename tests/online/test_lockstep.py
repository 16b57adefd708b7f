"""A batch is its runs: every policy, trace shape and seed, ties included, with NumPy, strict arrays and on a GPU."""
import tracemalloc
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sched_lab.cluster import default_cluster, read_nodes, toy_cluster
from sched_lab.lab.arrays import DEVICES
from sched_lab.lab.frames import InputError
from sched_lab.online import lockstep as module
from sched_lab.online.inflation import draw_gpus, inflate, nth_marked
from sched_lab.online.lockstep import (
    WIDE,
    bytes_per_replica,
    drawn_gpu,
    groups_of,
    last_seen,
    nth_host,
    parts_of,
    setting_of,
    simulate_together,
    spread,
)
from sched_lab.online.model import Policy, PowerSettings, Score
from sched_lab.online.pairs import fgd_steps, node_types
from sched_lab.online.policies import POLICIES, policy_of
from sched_lab.power import power_of
from sched_lab.traces import Arrivals, default_tasks, find_data, read_tasks, toy_tasks
from tests.online.test_policies import Case, cases
from tests.test_arrays import here

ABLE = [name for name, record in POLICIES.items() if record.array_form is not None]
NAMES = [*ABLE, "pwr-fgd:0.05", "pwr-fgd:0.5", "fgd-bestfit:0.3", "random-fgd:0.3", "random-pwr:0.9",
         "gpu-clustering-gpu-packing:0.5", "pwr@0.3@pwr-fgd:0.5@0.6@fgd", "random@0.4@dotprod-pwr:0.125"]
laws = settings(derandomize=True, deadline=None, max_examples=6, suppress_health_check=list(HealthCheck))
each_device = pytest.mark.parametrize("device", DEVICES)
LOADS = st.sampled_from(["step", "linear", "0:0,0.3:0.7,1:1"])


def assert_equal(batch, alone):
    """All frames and the summary of one run of a batch and of the scalar engine."""
    assert batch.assignments.equals(alone.assignments)
    assert batch.curve.equals(alone.curve)
    assert repr(batch.summary) == repr(alone.summary)  # in which nan is equal to nan


def check_case(case: Case, names, device, load_curve="step"):
    power = PowerSettings(case.power, load_curve=load_curve)
    arrivals = {0: case.arrivals, 5: Arrivals(case.arrivals.task_row[::-1][:7], case.arrivals.node_rank)}
    batch = simulate_together(case.cluster, case.tasks, names, arrivals, power=power, device=device)
    assert [run.summary["policy"] for run in batch] == [name for name in names for _ in range(2)]
    for run in batch:
        seed = run.summary["seed"]
        assert_equal(run, inflate(case.cluster, case.tasks, run.summary["policy"], seed=seed, power=power,
                                  arrivals=arrivals[seed]))


def test_many_runs_tell_whoever_watches_how_many_are_done(monkeypatch, capsys):
    cluster, tasks = toy_cluster(), toy_tasks()
    together = {"seeds": range(3), "at_once": 2}
    simulate_together(cluster, tasks, "fgd", **together)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("JPY_SESSION_NAME", "mine.ipynb")
    simulate_together(cluster, tasks, "fgd", **together)
    lines = [line.strip() for line in capsys.readouterr().err.split("\r") if "lockstep" in line]
    assert lines == ["runs in lockstep: 2 of 3", "runs in lockstep: 3 of 3"]


# --- batch = scalar


@pytest.mark.parametrize("name", NAMES)
@laws
@given(cases(), LOADS)
def test_a_batch_is_its_runs(name, case, load_curve):
    check_case(case, [name], "cpu", load_curve=load_curve)


@each_device
@settings(laws, max_examples=5)
@given(cases(), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
def test_a_batch_is_its_runs_on_every_device(device, case, names):
    here(device)
    check_case(case, names, device)


@each_device
def test_every_policy_at_once_on_every_device(device):
    here(device)
    seeds = range(4 if device == "cpu" else 1)
    until = 0.6 if device == "strict" else 1.4
    for run in simulate_together(toy_cluster(), toy_tasks(), NAMES, seeds, until=until, device=device):
        policy = run.summary["policy"]
        seed = run.summary["seed"]
        assert_equal(run, inflate(toy_cluster(), toy_tasks(), policy, seed=seed, until=until))


@cache
def twins():
    """Twelve equal nodes: every choice is a tie."""
    cluster = toy_cluster().take(np.full(12, 1))
    return replace(cluster, name=np.array([f"bee-{i}" for i in range(12)], object))


def test_ties_go_the_same_way():
    draws = dict.fromkeys(range(2), "permutation-first")
    for run in simulate_together(twins(), toy_tasks(), NAMES, draws, until=0.9):
        about = run.summary
        assert_equal(run, inflate(twins(), toy_tasks(), about["policy"], seed=about["seed"], until=0.9,
                                  arrivals="permutation-first"))


@pytest.mark.parametrize(("name", "until"), [("pwr-fgd:0.1", 0.06), ("random", 0.06), ("joint", 0.01)])
def test_the_default_cluster_goes_the_same_way(name, until):
    for run in simulate_together(default_cluster(), default_tasks(), name, [3, 4], until=until):
        assert_equal(run, inflate(default_cluster(), default_tasks(), name, seed=run.summary["seed"], until=until))


@pytest.mark.parametrize("trace", ["gpuspec33", "multigpu50"])
def test_public_traces_go_the_same_way(trace):
    nodes = find_data("openb/openb_node_list_gpu_node.csv")
    pods = find_data(f"openb/openb_pod_list_{trace}.csv")
    if nodes is None or pods is None:
        pytest.skip(f"openb/openb_pod_list_{trace}.csv is not there")
    cluster = read_nodes(nodes)
    tasks = read_tasks(pods)
    for run in simulate_together(cluster, tasks, ["pwr-fgd:0.1", "gpu-packing"], [1], until=0.1):
        assert_equal(run, inflate(cluster, tasks, run.summary["policy"], seed=1, until=0.1))


# --- what a batch may not depend on


@pytest.mark.parametrize(("at_once", "scratch_bytes"), [(3, 2**27), (None, 1)])
def test_how_many_go_together_and_pairs_are_scored_at_once_changes_nothing(at_once, scratch_bytes, monkeypatch):
    names = ["pwr-fgd:0.1", "random", "pwr-fgd:0.9"]
    whole = simulate_together(twins(), toy_tasks(), names, range(4))
    monkeypatch.setattr(module, "SCRATCH_BYTES", scratch_bytes)
    cut = simulate_together(twins(), toy_tasks(), names, range(4), at_once=at_once)
    assert whole.summary.equals(cut.summary)
    for one, other in zip(whole, cut, strict=True):
        assert_equal(one, other)


def test_the_summary_is_that_of_the_runs_and_a_seed_given_twice_is_run_twice():
    batch = simulate_together(toy_cluster(), toy_tasks(), ["fgd", "random"], [3, 0, 3])
    assert batch.summary.to_dict("records") == [run.summary for run in batch]
    assert len(batch) == 6 and batch[0].summary == batch[2].summary


def test_no_arrivals_are_an_empty_run():
    nothing = {0: Arrivals(np.zeros(0, np.int64), np.arange(4))}
    run = simulate_together(toy_cluster(), toy_tasks(), "fgd", nothing)[0]
    assert len(run.curve) == len(run.assignments) == 0
    assert_equal(run, inflate(toy_cluster(), toy_tasks(), "fgd", arrivals=nothing[0]))


# --- errors


def test_what_is_not_possible_is_refused():
    def run(*args, **options):
        simulate_together(toy_cluster(), toy_tasks(), *args, **options)

    with pytest.raises(InputError, match="policy 'fgd' has no array form in reference arithmetic"):
        run(policy_of("fgd", "reference"))
    with pytest.raises(InputError, match="no policy 'best'"):
        run(["fgd", "best"])
    with pytest.raises(InputError, match="are cpu"):
        run(device="tpu")
    with pytest.raises(InputError, match="a policy and a seed"):
        run(seeds=[])
    with pytest.raises(InputError, match="a policy and a seed"):
        run([])
    with pytest.raises(InputError, match="no sampling 'shuffle'"):
        run(seeds={0: "shuffle"})
    with pytest.raises(InputError, match="0 replicas at once"):
        run(at_once=0)


def test_a_policy_without_array_form_is_refused_by_name():
    def my_score(world, task, nodes, score, gpu_mask):
        """Do nothing."""

    with pytest.raises(InputError, match="policy 'mine' has no array form"):
        parts_of(Policy("mine", (Score(my_score),), (1,)))


def test_weights_that_choose_nothing_or_overflow_are_refused():
    with pytest.raises(InputError, match="'first' weighs none of its scores"):
        simulate_together(toy_cluster(), toy_tasks(), replace(policy_of("fgd"), name="first", weights=(0,)))
    with pytest.raises(InputError, match="fewer decimals"):
        simulate_together(toy_cluster(), toy_tasks(), "pwr-target-fgd:0.123456789012")
    run = simulate_together(toy_cluster(), toy_tasks(), "pwr-fgd:0.123456789012")[0]
    assert_equal(run, inflate(toy_cluster(), toy_tasks(), "pwr-fgd:0.123456789012"))


@pytest.mark.parametrize(("table", "column"), [("cluster", "memory_mib"), ("tasks", "memory_mib"),
                                              ("cluster", "cpu_milli"), ("tasks", "cpu_milli")])
def test_numbers_beyond_32_bits_are_refused(table, column):
    both = {"cluster": toy_cluster(), "tasks": toy_tasks()}
    wide = getattr(both[table], column).copy()
    wide[0] = 2**31
    both[table] = replace(both[table], **{column: wide})
    with pytest.raises(InputError, match=r"2\*\*31") as error:
        simulate_together(**both)
    assert error.value.column == column


def test_a_node_whose_milliwatts_do_not_fit_is_refused():
    assert WIDE > 1000 * module.MOST_NODE_W * 10
    ok = {"G2": (30, 20_000), "A100": (50, 50_000)}    # bee has four G2: 80 kW
    policies = ["pwr", "pwr-target", "joint-late"]
    for run in simulate_together(toy_cluster(), toy_tasks(), policies, power=PowerSettings(gpu_power_w=ok)):
        assert_equal(run, inflate(toy_cluster(), toy_tasks(), run.summary["policy"],
                                  power=PowerSettings(gpu_power_w=ok)))
    with pytest.raises(InputError, match="100000 W or more"):
        simulate_together(toy_cluster(), toy_tasks(), power=PowerSettings(gpu_power_w={"G2": (30, 25_000)}))


def test_replicas_that_do_not_fit_are_refused_with_the_number_that_does(monkeypatch):
    setting = setting_of(toy_cluster(), toy_tasks(), power_of(toy_cluster()), np)
    arrivals = {seed: Arrivals(np.arange(9), np.arange(4)) for seed in range(9)}
    each = bytes_per_replica(setting.tables, 1, 4, 9)
    whole = simulate_together(toy_cluster(), toy_tasks(), "fgd", arrivals)
    monkeypatch.setattr(module, "free_bytes", lambda _: 10 * each)
    with pytest.raises(InputError, match="ask for at most 5"):
        simulate_together(toy_cluster(), toy_tasks(), "fgd", arrivals, at_once=9)
    assert whole.summary.equals(simulate_together(toy_cluster(), toy_tasks(), "fgd", arrivals).summary)
    monkeypatch.setattr(module, "free_bytes", lambda _: each)
    with pytest.raises(InputError, match="smaller cluster"):
        simulate_together(toy_cluster(), toy_tasks(), "fgd", arrivals)


def test_the_memory_of_a_replica_is_about_what_is_said():
    # default cluster: what one replica takes at most, while its keys are made, is what was announced or a little less
    cluster = default_cluster()
    tasks = default_tasks()
    setting = setting_of(cluster, tasks, power_of(cluster), np)
    parts = parts_of(policy_of("pwr-fgd:0.1"))
    nodes = setting.type_of[None, :].repeat(20, axis=0), cluster.memory_mib[None, :].repeat(20, axis=0)
    tracemalloc.start()
    flock = module.empty_states(setting.tables, parts, *nodes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert flock.key[0].nbytes < peak <= 20 * bytes_per_replica(setting.tables, 2, len(cluster), 0) <= 1.5 * peak


# --- parts


@given(st.lists(st.integers(0, 5), max_size=40))
@laws
def test_last_seen_is_the_position_before(values):
    expected = [max((j for j in range(i) if values[j] == value), default=-1) for i, value in enumerate(values)]
    assert last_seen(np.array(values, np.int64)).tolist() == expected


@given(st.integers(1, 2**31 - 1), st.data())
@laws
def test_spreading_is_an_exact_division(height, data):
    low = data.draw(st.integers(1, 2**32 - 1 - height))
    at = data.draw(st.lists(st.one_of(st.integers(0, height), st.integers(0, 100).map(lambda k: k * height // 100),
                                      st.integers(1, 100).map(lambda k: (k * height - 1) // 100)), max_size=30))
    key = np.array([[0, low, low + height, *(low + x for x in at)]], np.uint32)
    expected = [x * 100 // height for x in [0, height, *at]]
    assert spread(np, key, 100)[0, 1:].tolist() == expected


@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=6), st.integers(0, 2**62 - 1))
@laws
def test_the_nth_host_is_the_nth_mark(rows, die):
    marks = np.array(rows)
    chosen = nth_host(np, marks.astype(np.uint32) * 7, np.full(len(rows), die))
    for node, row in zip(chosen, marks, strict=True):
        assert 0 <= node < 5
        if row.any():
            assert node == nth_marked(row, die % row.sum())


@given(st.lists(st.booleans(), min_size=1, max_size=8).filter(any), st.integers(0, 2**31 - 1))
@laws
def test_a_drawn_gpu_is_that_of_the_scalar_engine(marks, die):
    mask = sum(1 << gpu for gpu, mark in enumerate(marks) if mark)
    gpu = drawn_gpu(np, np.array(marks)[:, None], np.array([die]))
    assert 1 << int(gpu[0]) == draw_gpus(mask, 1, die)


def test_points_begin_where_the_formula_says():
    # 1 / (1 + exp(-x)) * 100 = k at x = log(k / (100 - k))
    steps = fgd_steps(1000)
    unit = 1_000_000
    expected = [np.log(k / (100 - k)) * unit for k in range(1, 100)]
    assert np.abs(steps[:99] - expected).max() <= 1 and (np.diff(steps) > 0).all()
    assert steps[99] > 36 * unit  # 100 points only by rounding: exp(-36) is lost beside 1


def test_nodes_of_one_type_have_all_but_memory_in_common():
    cluster = replace(twins(), memory_mib=np.arange(12) + 1)
    assert node_types(power_of(cluster), cluster)[0].tolist() == [0] * 12
    other = replace(cluster, cpu_milli=np.r_[cluster.cpu_milli[:11], 31000])
    assert node_types(power_of(other), other)[0].tolist() == [0] * 11 + [1]


def test_policies_with_the_same_scores_go_together():
    names = ["fgd", "pwr-fgd:0.1", "pwr", "pwr-fgd:0.5", "pwr@0.5@fgd", "fgd", "pwr@0.8@fgd"]
    replicas = [(policy_of(name), 0) for name in names]
    assert list(groups_of(replicas, 9)) == [[0, 5], [1, 3], [2], [4, 6]]
    assert list(groups_of(replicas, 1)) == [[0], [5], [1], [3], [2], [4], [6]]
    assert WIDE > 1000 * 62 * 1000 * 10  # a node of 62 GPUs of 1 kW, ten times over, in milliwatts
