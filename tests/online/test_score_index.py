"""The index of nodes by score: the engine that uses it does what the plain one does, event by event."""
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sched_lab.cluster import Cluster
from sched_lab.lab.jit import first_class, njit, quiet
from sched_lab.online import inflation, score_index, simulate, toy
from sched_lab.online.model import (
    AS_IS,
    HUNDRED_IF_EQUAL,
    ONE_AT_RANDOM,
    Policy,
    PowerSettings,
    Score,
    World,
    world_of,
)
from sched_lab.online.policies import ARITHMETICS, POLICIES, policy_of
from sched_lab.traces import Tasks, target_workload, task_classes
from tests.fleet.problems import texts
from tests.online.test_policies import traces

MIXES = ["pwr-fgd:0.1", "bestfit-pwr:0.3", "random-fgd:0.4", "pwr-random:0.7", "pwr-joint-late:0.9",
         "pwr@0.3@pwr-fgd:0.5@0.6@fgd", "fgd@0.4@random@0.7@pwr-fgd:0.2"]
many = settings(derandomize=True, deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
few = settings(many, max_examples=6)
BLOCK = score_index.BLOCK
Case = tuple[Cluster, Tasks, np.ndarray, PowerSettings]


@st.composite
def clusters(draw) -> Cluster:
    """Up to 150 nodes of a few types: many are equal, they fill three blocks, and memory is scarce."""
    types = draw(st.lists(st.tuples(st.sampled_from([8, 32, 82]), st.sampled_from([2, 16, 64]), st.integers(0, 4),
                                    st.sampled_from(["T4", "G2", "A100"]), st.sampled_from(["", "E5-2682 v4"])),
                          min_size=1, max_size=4))
    which = np.random.default_rng(draw(st.integers(0, 99))).integers(len(types), size=draw(st.integers(1, 150)))
    cpu, memory, gpus, model, cpu_model = zip(*(types[n] for n in which), strict=True)
    return Cluster(texts(f"node-{n}" for n in range(len(which))), np.array(cpu) * 1000, np.array(memory) * 1024,
                   np.array(gpus), texts(m if g else "" for m, g in zip(model, gpus, strict=True)), texts(cpu_model))


@st.composite
def cases(draw) -> Case:
    cluster = draw(clusters())
    tasks = draw(traces())
    length = draw(st.sampled_from([1, 5, 40, 400]))
    rows = np.random.default_rng(draw(st.integers(0, 99))).integers(len(tasks), size=length)
    model = draw(st.sampled_from(["eq1", "package"]))
    return cluster, tasks, rows, PowerSettings(model, load_curve=draw(st.sampled_from(["step", "concave"])))


def world_for(case: Case) -> World:
    cluster, tasks, _, power = case
    return world_of(cluster, task_classes(tasks)[0], target_workload(tasks), power.of(cluster))


def played(case: Case, policy: Policy, engine: str) -> inflation.Trail:
    _, tasks, rows, _ = case
    class_of = task_classes(tasks)[1]
    return inflation.play(policy, world_for(case), class_of[rows], tasks.memory_mib[rows], 3, engine)


def assert_equal(case: Case, policy: Policy) -> inflation.Trail:
    plain, indexed = (played(case, policy, engine) for engine in ("plain", "index"))
    for one, other in zip(plain, indexed, strict=True):
        assert np.array_equal(one, other)
    return indexed


@pytest.mark.parametrize("name", [*POLICIES, *MIXES])
@given(cases(), st.sampled_from(ARITHMETICS))
@few
def test_the_index_changes_nothing(name, case, arithmetic):
    assert_equal(case, policy_of(name, arithmetic))


@pytest.mark.parametrize("name", ["fgd", "pwr-fgd:0.1", "random-fgd:0.4"])
@given(cases())
@few
def test_classes_that_take_turns_on_one_row_change_nothing(name, case):
    with pytest.MonkeyPatch.context() as patch:
        for name_of in ("empty_index", "empty_memory"):
            patch.setattr(inflation, name_of, partial(getattr(inflation, name_of), max_bytes=1))
            assert len(getattr(inflation, name_of)(7, 5, 1).owner) == 1
        assert_equal(case, policy_of(name))


@pytest.mark.parametrize(("name", "max_groups"), [("pwr-fgd:0.1", 2), ("pwr-pwr-target:0.5", 3)])
@given(cases())
@few
def test_too_few_groups_change_nothing(name, max_groups, case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inflation, "MAX_GROUPS", max_groups)
        assert_equal(case, policy_of(name))


@pytest.mark.parametrize("engine", ["plain", "index"])
def test_memory_decides_for_each_task_although_it_is_no_part_of_a_class(engine):
    # two tasks of one class; the second needs more than any node but the last has
    cluster = Cluster(texts(f"n{n}" for n in range(40)), np.full(40, 32000), np.array([1024] * 39 + [9999]),
                      np.full(40, 1), texts(["T4"] * 40), texts([""] * 40))
    tasks = Tasks(texts("ab"), np.full(2, 1000), np.array([10, 2000]), np.full(2, 1), np.full(2, 500),
                  texts(["", ""]), texts(["", ""]))
    for name in ("fgd", "pwr-fgd:0.5", "bestfit"):
        trail = played((cluster, tasks, np.array([0, 1, 1, 0]), PowerSettings()), policy_of(name), engine)
        assert trail.node.tolist() == [0, 39, 39, 0]


def marking_kernel(world, task, nodes, score, gpu_mask):
    """Give scores of every size, and mark more GPUs than are wanted, as a policy of a reader's own may."""
    for node in nodes:
        score[node] = (node * 7919 + world.state.cpu_left_milli[node]) % 1000 * 4_000_000 - 2_000_000_000
        gpu_mask[node] = 0
        for gpu in range(world.state.gpu_left_milli.shape[1]):
            if world.state.gpu_left_milli[node, gpu] >= max(1, world.demand.gpu_milli[task]):
                gpu_mask[node] |= 1 << gpu


@given(cases(), st.sampled_from([AS_IS, HUNDRED_IF_EQUAL, ONE_AT_RANDOM]))
@many
def test_a_kernel_of_ones_own_works_alone_and_in_company(case, normalise):
    own = Score(OWN.setdefault("kernel", njit(cache=False)(marking_kernel)), normalise)
    assert_equal(case, Policy("own", (own,), (1000,)))
    assert_equal(case, Policy("mixed", (own, *policy_of("pwr").scores), (300, 700)))


OWN: dict[str, object] = {}


@given(cases(), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 7)), max_size=300), st.booleans())
@few
def test_what_the_index_knows_is_what_scoring_every_node_says(case, changes, is_mixed):
    policy = policy_of("pwr-fgd:0.5" if is_mixed else "fgd")
    world = world_for(case)
    num_classes = len(world.demand.cpu_milli)
    num_nodes = len(world.gpu_model)
    num_scores = len(policy.scores)
    index = score_index.empty_index(num_classes, num_nodes, num_scores, 64)
    kernels = tuple(first_class(score.kernel, world, 0, index.stale, index.score[0], index.gpu_mask[0])
                    for score in policy.scores)
    kernels += kernels[-1:] * (4 - len(kernels))
    weights = np.array(policy.weights)
    memory_left_mib = world.state.memory_left_mib
    for number, task in changes:
        node = number % num_nodes
        task %= num_classes
        world.state.cpu_left_milli[node] = number * 100 % (world.power.cpu_milli[node] + 1)
        memory_left_mib[node] = number % 7 * 1024
        score_index.note_change(index, node)
        with quiet():
            row = task % len(index.owner)
            assert score_index.refresh(kernels, weights, world, index, index.groups, row, task)
        fresh = score_index.empty_index(num_classes, num_nodes, num_scores, 64)
        with quiet():
            assert score_index.refresh(kernels, weights, world, fresh, fresh.groups, row, task) and row == task
        known, everything = (knowledge(each, row, is_mixed, memory_left_mib) for each in (index, fresh))
        assert known == everything
        find(index, row, is_mixed, memory_left_mib, number % 5 * 1500)  # which may leave something behind


def knowledge(index, row, is_mixed, memory_left_mib):
    """Scores of each node, None if it cannot hold the class; the invariants of the row are checked on the way."""
    value = index.value[row]
    if not is_mixed:
        check_best(index.best, row, value, memory_left_mib)
        return [None if v == score_index.NOWHERE else int(v) for v in value]
    groups = index.groups
    for group in range(groups.num[row]):
        members = value == group
        assert (memory_left_mib[members] < groups.most_mib[row, group]).all()
        for place, there in places(len(value)):
            assert (memory_left_mib[there][members[there]] < groups.room_mib[row, group, place]).all()
    assert len(set(map(tuple, groups.score[row, :, :groups.num[row]].T.tolist()))) == groups.num[row]
    return [None if v == score_index.NOWHERE else tuple(groups.score[row, :, v].tolist()) for v in value]


def places(num_nodes):
    """Give number and nodes of each region and block."""
    num_regions = -(-num_nodes // BLOCK**2)
    for size, first_place in ((BLOCK**2, 0), (BLOCK, num_regions)):
        for number in range(-(-num_nodes // size)):
            yield first_place + number, slice(number * size, (number + 1) * size)


def check_best(best, row, value, memory_left_mib):
    """Check that highest scores are exact, and bounds no lower than what they bound."""
    for place, there in places(len(value)):
        assert best.score[row, place] == value[there].max()
        is_rich = memory_left_mib[there] >= best.asked_mib[row, place]
        assert value[there][is_rich].max(initial=score_index.NOWHERE) <= best.score_then[row, place]


def find(index, row, is_mixed, memory_left_mib, memory_mib):
    """Look for the best node, or for the first one of each group, and compare with a look at all."""
    value = index.value[row]
    has_memory = memory_left_mib >= memory_mib
    if not is_mixed:
        best = score_index.Best(*(table[row] for table in index.best))
        found = score_index.first_highest(value, best, memory_left_mib, memory_mib)
        can_host = has_memory & (value > score_index.NOWHERE)
        assert found == (np.where(can_host, value, score_index.NOWHERE).argmax() if can_host.any() else -1)
    for group in range(index.groups.num[row]):
        members = np.flatnonzero((value == group) & has_memory)
        found = score_index.first_member(value, index.groups.room_mib[row], index.groups.most_mib[row], group,
                                         memory_left_mib, memory_mib)
        assert found == (members[0] if len(members) else -1)


@pytest.mark.parametrize("num_nodes", [1, BLOCK, BLOCK + 1, BLOCK**2, BLOCK**2 + 1, 3 * BLOCK**2 - 5])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_regions_and_blocks_find_what_a_look_at_all_nodes_finds(num_nodes, is_mixed):
    # scores of one row that change at random, while memory falls and rises
    rng = np.random.default_rng(num_nodes)
    index = score_index.empty_index(1, num_nodes, 1, 4)
    memory_left_mib = rng.integers(9, size=num_nodes)
    num_stale = num_nodes
    index.stale[:] = np.arange(num_nodes)
    index.groups.num[0] = 4 * is_mixed
    for _ in range(200):
        stale = index.stale[:num_stale]
        num_feasible = int(rng.integers(num_stale + 1))
        if is_mixed:
            index.value[0, stale] = score_index.NOWHERE
            for node in stale[:num_feasible].tolist():
                group = int(rng.integers(4))
                index.value[0, node] = group
                score_index.join(index.groups.room_mib[0], index.groups.most_mib[0], group, node,
                                 memory_left_mib[node])
        else:
            index.score[0, stale] = rng.integers(-9, 9, size=num_stale)
            best = score_index.Best(*(table[0] for table in index.best))
            score_index.keep_scores(index.value[0], best, index.score[0], memory_left_mib, stale, num_feasible)
            check_best(index.best, 0, index.value[0], memory_left_mib)
        for memory_mib in rng.integers(11, size=3).tolist():
            find(index, 0, is_mixed, memory_left_mib, memory_mib)
        num_stale = int(rng.integers(min(num_nodes, 40))) + 1
        index.stale[:num_stale] = rng.choice(num_nodes, num_stale, replace=False)
        memory_left_mib[index.stale[:num_stale]] = rng.integers(9, size=num_stale)


@pytest.mark.parametrize("name", ["fgd", "pwr-fgd:0.1", "joint"])
def test_a_cluster_of_several_regions_fills_as_in_the_plain_engine(name):
    rng = np.random.default_rng(1)
    num_nodes = BLOCK**2 + 100
    model = rng.choice(np.array(["T4", "G2", "A100"], object), num_nodes)
    cluster = Cluster(texts(f"n{n}" for n in range(num_nodes)), rng.choice([4000, 8000], num_nodes),
                      rng.choice([2048, 4096], num_nodes), rng.choice([1, 2], num_nodes), model,
                      texts([""] * num_nodes))
    tasks = Tasks(texts("abcdef"), np.array([500, 500, 2000, 4000, 100, 1000]),
                  np.array([100, 1500, 1000, 2000, 3000, 10]), np.array([1, 1, 1, 1, 0, 1]),
                  np.array([250, 500, 700, 1000, 0, 500]), texts(["", "", "T4", "A100", "", "G2"]), texts([""] * 6))
    assert_equal((cluster, tasks, rng.integers(6, size=8000), PowerSettings()), policy_of(name))


def test_more_memory_than_the_index_can_count_changes_nothing():
    huge = score_index.MOST_MIB + 9
    cluster = Cluster(texts("ab"), np.full(2, 32000), np.array([huge, huge + 1]), np.full(2, 1), texts(["T4"] * 2),
                      texts([""] * 2))
    tasks = Tasks(texts("cd"), np.full(2, 1000), np.array([huge + 1, 5]), np.full(2, 1), np.full(2, 500),
                  texts([""] * 2), texts([""] * 2))
    for name in ("fgd", "pwr-fgd:0.5"):
        assert_equal((cluster, tasks, np.array([1, 0, 1, 0]), PowerSettings()), policy_of(name))


def test_a_kept_engine_is_loaded_without_compiling_what_it_was_handed():
    """A function that a signature names, and not its type, is compiled whenever a process looks for what is kept."""
    simulate(*toy(), policy="bid")
    kinds = str([kinds for kinds in inflation.replay.outer.signatures if "Index" in str(kinds)])
    assert "FunctionType" in kinds and "Dispatcher" not in kinds
