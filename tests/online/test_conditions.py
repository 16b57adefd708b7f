"""One table of conditions: its bits are those of a plain second form, and whoever answers from it says the same."""
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sched_lab.lab.arrays import get_xp
from sched_lab.online.model import (
    APPLICATION,
    CONDITIONS,
    CPU,
    GPU_MODEL,
    GPUS,
    GROUP,
    INSTANCES,
    LASTING,
    MEMORY,
    Limits,
    is_feasible,
    lacking,
    lacking_everywhere,
    new_limits,
    open_nodes,
    slots_left,
    with_limits,
    world_to_ask,
)
from sched_lab.online.pairs import Rooms, node_types, tables_of
from sched_lab.online.pairs import is_feasible as is_feasible_in_pairs
from sched_lab.power import power_of
from sched_lab.traces import task_classes
from tests.online.test_policies import clusters, many, traces


def plainly(cluster, tasks, left, row: int, node: int) -> int:
    """Cond. 1-5 of a task and a node from the list in the chapter, one after the other."""
    cpu, memory, gpus = (amount[node] for amount in left)
    specs = {GROUP: (tasks.cpu_spec[row], cluster.cpu_model[node]),
             GPU_MODEL: (tasks.gpu_spec[row], cluster.gpu_model[node])}
    lack = CPU * (tasks.cpu_milli[row] > cpu) + MEMORY * (tasks.memory_mib[row] > memory)
    free = [gpu for gpu in gpus[:cluster.num_gpus[node]].tolist() if gpu >= tasks.gpu_milli[row]]
    lack += GPUS * (len(free) < tasks.num_gpus[row])
    for bit, (wishes, model) in specs.items():
        is_asked = bit == GROUP or (tasks.num_gpus[row] > 0 and cluster.num_gpus[node] > 0)
        lack += bit * (is_asked and wishes != "" and model not in wishes.split("|"))
    return int(lack)


@st.composite
def limits_for(draw, size: int, num_nodes: int) -> tuple[np.ndarray, Limits]:
    """Draw limits of two applications and one profile of instances, and who is there."""
    kinds = st.tuples(st.integers(0, 1), st.integers(1, 3), st.integers(0, 2))
    rows = sorted(draw(st.sets(kinds, min_size=1, max_size=4)))
    app, most, need = (np.array(column) for column in zip(*rows, strict=True))
    span = np.column_stack([np.searchsorted(app, app, side) for side in ("left", "right")])
    room, num = (np.array([[draw(st.integers(0, 3)) for _ in range(width)] for _ in range(num_nodes)])
                 for width in (1, len(rows)))
    limit = np.array(draw(st.lists(st.integers(-1, len(rows) - 1), min_size=size, max_size=size)))
    limits = new_limits(most, span, need[:, None].copy(), room)
    limits.num[:] = num
    open_nodes(limits)
    return limit, limits


def limits_plainly(limits: Limits, limit: int, node: int) -> int:
    """Cond. 7 and 8 of a task with a limit that would join those on a node."""
    if limit < 0:
        return 0
    there = [other for other, count in enumerate(limits.num[node]) for _ in range(count)] + [limit]
    start, stop = limits.span[limit]
    own = [other for other in there if start <= other < stop]
    is_crowded = len(own) > min(limits.most[other] for other in own)
    asked = sum(limits.need[other, 0] for other in there)
    return APPLICATION * is_crowded + INSTANCES * bool(limits.need[limit, 0] and asked > limits.room[node, 0])


@many
@given(data=st.data())
def test_each_bit_is_its_condition(data):
    cluster, tasks = data.draw(clusters()), data.draw(traces())
    classes, class_of = task_classes(tasks)
    limit, limits = data.draw(limits_for(len(tasks), len(cluster)))
    world, number = with_limits(world_to_ask(cluster, classes), class_of, limit, limits)
    for amount in world.state:
        amount[:] = [[data.draw(st.integers(0, int(most))) for most in row] if amount.ndim == 2 else
                     data.draw(st.integers(0, int(row))) for row in amount]
    for row in range(len(tasks)):
        memory_mib = int(tasks.memory_mib[row])
        masks = [lacking(world, number[row], memory_mib, node) for node in range(len(cluster))]
        assert masks == lacking_everywhere(world, number[row], memory_mib).tolist() == [
            plainly(cluster, tasks, world.state, row, node) + limits_plainly(limits, limit[row], node)
            for node in range(len(cluster))]
        for node, mask in enumerate(masks):
            assert is_feasible(world, number[row], node) == (mask & ~MEMORY == 0)
            has_slot = mask & (APPLICATION | INSTANCES) == 0
            assert limit[row] < 0 or (slots_left(limits, limit[row], node) > 0) == has_slot


@many
@given(cluster=clusters(), tasks=traces(), data=st.data())
def test_the_array_form_is_the_same_table(cluster, tasks, data):
    classes, _ = task_classes(tasks)
    world = world_to_ask(cluster, classes)
    power = power_of(cluster)
    tables = tables_of(cluster, power, classes, classes, get_xp())
    for amount in (world.state.cpu_left_milli, world.state.gpu_left_milli):
        amount[...] = amount * data.draw(st.integers(0, 10)) // 10
    node_type, _ = node_types(power, cluster)
    task, node = np.divmod(np.arange(len(classes) * len(cluster)), len(cluster))
    left = world.state.cpu_left_milli[node], world.state.gpu_left_milli[node].T
    rooms = Rooms(node_type[node], *left, np.zeros((world.residents.shape[1], len(node)), np.int64))
    assert is_feasible_in_pairs(tables, rooms, task).tolist() == [
        bool(is_feasible(world, one, at)) for one, at in zip(task.tolist(), node.tolist(), strict=True)]


def test_the_table_of_failures_speaks_of_every_condition():
    assert LASTING == GROUP | GPU_MODEL
    assert [condition.number for condition in CONDITIONS] == [f"Cond. {number}" for number in (1, 2, 3, 4, 5, 7, 8)]
    assert len({condition.name for condition in CONDITIONS}) == len(CONDITIONS)
    assert all(condition.failed_for and condition.answer and condition.words for condition in CONDITIONS)
