"""The index of nodes by score: the engine that uses it does what the plain one does, event by event."""
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sched_lab.cluster import Cluster
from sched_lab.online import inflation, model, score_index
from sched_lab.online.fgd import fgd_reference, fgd_score_reference
from sched_lab.online.foresight import NodeState, Request, full_price, pwr_target, pwr_target_score
from sched_lab.online.joint import (
    EARLY,
    LATE,
    MIDDLE,
    Prices,
    joint_early,
    joint_late,
    joint_middle,
    joint_score,
    usual_ratio,
)
from sched_lab.online.model import (
    AS_IS,
    HUNDRED_IF_EQUAL,
    ONE_AT_RANDOM,
    Policy,
    PowerSettings,
    Score,
    World,
    is_feasible,
    world_of,
)
from sched_lab.online.policies import ARITHMETICS, POLICIES, policy_of
from sched_lab.traces import Tasks, target_workload, task_classes

MIXES = ["pwr-fgd:0.1", "pwr-fgd:0.5", "bestfit-pwr:0.3", "random-fgd:0.4", "pwr-random:0.7",
         "gpu-packing-gpu-clustering:0.5", "pwr-pwr-target:0.2", "pwr-joint-late:0.9",
         "pwr@0.3@pwr-fgd:0.5@0.6@fgd", "fgd@0.4@random@0.7@pwr-fgd:0.2"]
many = settings(derandomize=True, deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
few = settings(many, max_examples=12)
BLOCK = score_index.BLOCK
Case = tuple[Cluster, Tasks, np.ndarray, PowerSettings]


def texts(values) -> np.ndarray:
    return np.array(list(values), object)


@st.composite
def clusters(draw) -> Cluster:
    """Up to 100 nodes of a few types: many are equal, they fill three blocks, and memory is scarce."""
    types = draw(st.lists(st.tuples(st.sampled_from([8, 32, 82]), st.sampled_from([2, 16, 64]), st.integers(0, 4),
                                    st.sampled_from(["T4", "G2", "A100"]), st.sampled_from(["", "E5-2682 v4"])),
                          min_size=1, max_size=4))
    which = np.random.default_rng(draw(st.integers(0, 99))).integers(len(types), size=draw(st.integers(1, 100)))
    cpu, memory, gpus, model, cpu_model = zip(*(types[n] for n in which), strict=True)
    return Cluster(texts(f"node-{n}" for n in range(len(which))), np.array(cpu) * 1000, np.array(memory) * 1024,
                   np.array(gpus), texts(m if g else "" for m, g in zip(model, gpus, strict=True)), texts(cpu_model))


@st.composite
def traces(draw) -> Tasks:
    """Up to 8 tasks, some of one class that differ in memory only."""
    demand = st.one_of(st.just((0, 0)), st.tuples(st.just(1), st.sampled_from([1, 250, 300, 500, 999])),
                       st.tuples(st.sampled_from([1, 2, 4]), st.just(1000)))
    tasks = draw(st.lists(st.tuples(
        st.sampled_from([0, 500, 4000, 7900, 16000]), st.sampled_from([0, 1, 2, 3, 8, 16]), demand,
        st.sampled_from(["", "", "T4", "T4|G2"]), st.sampled_from(["", "", "E5-2682 v4"])), min_size=1, max_size=8))
    cpu, memory, demands, spec, cpu_spec = zip(*tasks, strict=True)
    num, milli = (np.array(column) for column in zip(*demands, strict=True))
    return Tasks(texts(f"task-{n}" for n in range(len(tasks))), np.array(cpu), np.array(memory) * 1024, num, milli,
                 texts(s if n else "" for s, n in zip(spec, num, strict=True)), texts(cpu_spec))


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


@pytest.mark.parametrize("name", ["fgd", "pwr-fgd:0.1", "bestfit-pwr:0.3", "random-fgd:0.4"])
@given(cases())
@few
def test_classes_that_take_turns_on_one_row_change_nothing(name, case):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inflation, "empty_index", partial(inflation.empty_index, max_bytes=1))
        assert len(inflation.empty_index(7, 5, 1).owner) == 1
        assert_equal(case, policy_of(name))


@pytest.mark.parametrize("max_groups", [2, 3, 8])
@pytest.mark.parametrize("name", ["pwr-fgd:0.1", "pwr-pwr-target:0.5"])
@given(cases())
@few
def test_too_few_groups_change_nothing(max_groups, name, case):
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
    from sched_lab.jit import njit
    own = Score(OWN.setdefault("kernel", njit(cache=False)(marking_kernel)), normalise)
    assert_equal(case, Policy("own", (own,), (1000,)))
    assert_equal(case, Policy("mixed", (own, *policy_of("pwr").scores), (300, 700)))


OWN: dict[str, object] = {}


@given(cases(), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 7)), max_size=300), st.booleans())
@few
def test_what_the_index_knows_is_what_scoring_every_node_says(case, changes, is_mixed):
    from sched_lab.jit import first_class, quiet
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
    for number, task in changes:
        node = number % num_nodes
        task %= num_classes
        world.state.cpu_left_milli[node] = number * 100 % (world.power.cpu_milli[node] + 1)
        score_index.note_change(index, node)
        with quiet():
            row = score_index.refresh(kernels, weights, world, index, task)
        fresh = score_index.empty_index(num_classes, num_nodes, num_scores, 64)
        with quiet():
            assert score_index.refresh(kernels, weights, world, fresh, task) == row == task
        known, everything = (knowledge(each, row, is_mixed) for each in (index, fresh))
        assert known == everything


def knowledge(index, row, is_mixed):
    """Scores of each node, None if it cannot hold the class; the invariants of the row are checked on the way."""
    value = index.value[row]
    if not is_mixed:
        for block, highest in enumerate(index.highest[row]):
            assert highest == value[block * BLOCK:(block + 1) * BLOCK].max()
        return [None if v == score_index.NOWHERE else int(v) for v in value]
    groups = index.groups
    scores = [None if v == score_index.NOWHERE else tuple(groups.score[row, :, v].tolist()) for v in value]
    for group in range(groups.num[row]):
        members = [node for node in range(len(value)) if
                   int(groups.members[row, group, node // BLOCK]) >> node % BLOCK & 1]
        assert members == np.flatnonzero(value == group).tolist() and groups.size[row, group] == len(members)
        assert not members or groups.first[row, group] <= members[0] // BLOCK
    assert len(set(map(tuple, groups.score[row, :, :groups.num[row]].T.tolist()))) == groups.num[row]
    return scores


def plain_scores(world: World, here: NodeState, asked: Request) -> dict[str, tuple[int, int]]:
    """Ask the functions of the chapters, which remember nothing."""
    price = full_price(world.power)
    scores = {"fgd_reference": fgd_score_reference(world.target, *here[1:], *asked),
              "pwr_target": pwr_target_score(world.power, world.target, price, here, asked)}
    for name, lost_w in (("joint_early", EARLY), ("joint_middle", MIDDLE), ("joint_late", LATE)):
        prices = Prices(lost_w, price, usual_ratio(world.target))
        scores[name] = joint_score(prices, world.power, world.target, here, asked)
    return scores


@pytest.mark.parametrize("num_slots", [4, 64, 2**12])
@given(cases())
@few
def test_what_is_known_of_a_state_is_what_would_be_computed(num_slots, case):
    kernels = (fgd_reference, pwr_target, joint_early, joint_middle, joint_late)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "SLOTS", num_slots)
        world = world_for(case)
    _, tasks, rows, _ = case
    inflation.play(policy_of("joint"), world, task_classes(tasks)[1][rows], tasks.memory_mib[rows])
    demand, state = world.demand, world.state
    for task in range(len(demand.cpu_milli)):
        nodes = np.array([n for n in range(len(world.gpu_model)) if is_feasible(world, task, n)][:12], np.int64)
        score = np.zeros(len(world.gpu_model), np.int32)
        gpu_mask = np.zeros(len(score), np.int64)
        asked = Request(demand.cpu_milli[task], demand.gpu_milli[task], demand.num_gpus[task])
        plain = {n: plain_scores(world, NodeState(n, world.gpu_model[n], state.cpu_left_milli[n],
                                                  state.gpu_left_milli[n]), asked) for n in nodes.tolist()}
        for kernel in kernels:
            kernel(world, task, nodes, score, gpu_mask)
            for n, scores in plain.items():
                assert (score[n], gpu_mask[n]) == scores[kernel.__name__]
    assert world.known.num[0] <= num_slots // 2
