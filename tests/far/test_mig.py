"""MIG: instances and partitions of every model, and a check that catches every kind of invalid schedule."""
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.far.mig import (
    MODELS,
    Mig,
    Schedule,
    check_schedule,
    mig_of,
    partitions,
    without_reconfiguration,
)

A30 = mig_of("A30")
A100 = mig_of("A100")
TIMES_S = np.array([[40.0, 16, 8], [20, 9, 5], [12, 8, 6]])


def schedule_of_rows(mig: Mig, tasks: list[tuple[int, float, float]],
                     operations: list[tuple[int, bool, float, float]]) -> Schedule:
    """Make a schedule from rows of (instance, start, end) and (instance, is_creation, start, end)."""
    task = np.array(tasks, float).reshape(-1, 3).T
    operation = np.array(operations, float).reshape(-1, 4).T
    return Schedule(mig, task[0].astype(np.int64), task[1], task[2], operation[0].astype(np.int64),
                    operation[1].astype(bool), operation[2], operation[3])


TASKS = [(0, 0.13, 8.13), (1, 8.35, 17.35), (4, 8.47, 16.47)]
# S0-S3 is created in 0.13 s and destroyed in 0.10 s; then S0-S1 and S2-S3 are created in 0.12 s each, in turn
OPERATIONS = [(0, True, 0.0, 0.13), (0, False, 8.13, 8.23), (1, True, 8.23, 8.35), (4, True, 8.35, 8.47)]
VALID = schedule_of_rows(A30, TASKS, OPERATIONS)


@pytest.mark.parametrize("model", MODELS)
def test_children_name_their_parent_and_share_out_what_it_blocks(model: str) -> None:
    mig = mig_of(model, 2)
    tree = mig.tree
    for i, pair in enumerate(tree.children.tolist()):
        below = [c for c in pair if c >= 0]
        assert all(tree.parent[c] == i and tree.gpu[c] == tree.gpu[i] for c in below)
        assert not below or tree.span[below].sum() == tree.span[i]
    assert [int(i) for i in np.flatnonzero(tree.parent < 0)] == [0, len(tree.gpu) // 2]


def test_table_1() -> None:
    # Table 1 of the paper, creation/destruction: a few cells from each row
    tree = A100.tree
    h100 = mig_of("H100").tree
    assert (A30.tree.create_s[0], A30.tree.destroy_s[0]) == (0.13, 0.10)
    assert [(tree.create_s[i], tree.destroy_s[i]) for i in (0, 2, 13)] == [(0.24, 0.22), (0.20, 0.21), (0.16, 0.20)]
    assert [(h100.create_s[i], h100.destroy_s[i]) for i in (0, 1, 3)] == [(0.42, 0.26), (0.38, 0.26), (0.21, 0.23)]
    assert not without_reconfiguration(A100).tree.create_s.any()


def test_valid_schedules_pass() -> None:
    check_schedule(VALID, TIMES_S)
    assert VALID.makespan_s == 17.35
    # with the root already there, its creation at 0 is not needed
    begun = replace(schedule_of_rows(A30, TASKS, OPERATIONS[1:]), existing=np.array([0]))
    check_schedule(begun, TIMES_S)
    with pytest.raises(ValueError, match="S0-S3 is destroyed while it does not exist"):
        check_schedule(replace(begun, existing=np.zeros(0, int)), TIMES_S)
    check_schedule(schedule_of_rows(A30, [], []), np.empty((0, 3)))
    # an instance may live twice: S0 is created again after its destruction
    twice = [(2, True, 0.0, 0.11), (2, False, 4.0, 4.1), (2, True, 4.1, 4.21)]
    check_schedule(schedule_of_rows(A30, [(2, 0.2, 3.2), (2, 5.0, 8.0)], twice), np.full((2, 3), 3.0))


def broken(tasks: list[Any] = TASKS, operations: list[Any] = OPERATIONS, **options: Any) -> tuple[Any, ...]:
    return tasks, operations, options


CREATE_ALL = [(0, True, 0.0, 0.13), (1, True, 8.23, 8.35), (4, True, 8.35, 8.47)]
BROKEN = {
    "does not run for its time": broken([TASKS[0], (1, 8.35, 17.0), TASKS[2]]),
    "task 0 does not fit on S0-S3": broken(times_s=np.where(np.arange(3) == 2, np.inf, TIMES_S)),
    "task 0 starts before its release": broken(release_s=np.array([1.0, 0, 0])),
    "a task runs on no instance": broken([(7, 0.13, 8.13), *TASKS[1:]]),
    "3 tasks, but 2 instances": broken(TASKS[:2]),
    "constraint 1 .*: tasks 0 and 1 overlap": broken([TASKS[0], (1, 8.0, 17.0), TASKS[2]]),
    "constraint 2 .*: S0-S3 and S0-S1 exist": broken(operations=CREATE_ALL),
    "operations 2 and 3 overlap": broken(operations=[*OPERATIONS[:3], (4, True, 8.23, 8.35)]),
    "operation 0 does not take its time": broken(operations=[(0, True, 0.0, 0.1), *OPERATIONS[1:]]),
    "operation 0 begins before time 0": broken(operations=[(0, True, -0.13, 0.0), *OPERATIONS[1:]]),
    "an operation is on no instance": broken(operations=[*OPERATIONS, (9, True, 20.0, 20.1)]),
    "S2-S3 is created while it exists": broken(operations=[*OPERATIONS, (4, True, 18.0, 18.12)]),
    "S2 is destroyed while it does not exist": broken(operations=[*OPERATIONS, (5, False, 18.0, 18.1)]),
    "task 2 runs while S2-S3 does not exist": broken(operations=OPERATIONS[:3]),
    "task 0 runs while S0-S3 does not exist": broken(operations=[(0, True, 8.0, 8.13), *OPERATIONS[1:]]),
    "task 1 runs while S0-S1 does not exist": broken(operations=[*OPERATIONS, (1, False, 17.0, 17.1)]),
}


@pytest.mark.parametrize("message", BROKEN)
def test_every_kind_of_violation_is_named(message: str) -> None:
    tasks, operations, options = BROKEN[message]
    with pytest.raises(ValueError, match=message):
        check_schedule(schedule_of_rows(A30, tasks, operations), options.pop("times_s", TIMES_S), **options)


def test_gpus_have_a_sequence_each_unless_they_share_one() -> None:
    at_once = [(0, True, 0.0, 0.13), (7, True, 0.0, 0.13)]
    tasks = [(0, 0.13, 8.13), (7, 0.13, 5.13)]
    times_s = TIMES_S[:2]
    check_schedule(schedule_of_rows(mig_of("A30", 2), tasks, at_once), times_s)
    with pytest.raises(ValueError, match="operations 0 and 1 overlap"):
        check_schedule(schedule_of_rows(mig_of("A30", 2, has_one_sequence=True), tasks, at_once), times_s)


@settings(max_examples=25, deadline=None)
@given(st.permutations(range(3)), st.permutations(range(4)), st.floats(0, 1000))
def test_order_of_rows_and_a_later_start_do_not_matter(tasks: list[int], operations: list[int], later_s: float) -> None:
    moved = Schedule(A30, VALID.instance[tasks], VALID.start_s[tasks] + later_s, VALID.end_s[tasks] + later_s,
                     VALID.operated[operations], VALID.is_creation[operations],
                     VALID.operation_start_s[operations] + later_s, VALID.operation_end_s[operations] + later_s)
    check_schedule(moved, TIMES_S[tasks], release_s=later_s)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_instances_exist_together_exactly_if_a_partition_holds_them(data: st.DataObject) -> None:
    mig = data.draw(st.sampled_from([A30, A100]))
    rows = data.draw(st.sets(st.integers(0, len(mig.tree.gpu) - 1), min_size=1, max_size=4))
    nothing = replace(schedule_of_rows(mig, [], []), existing=np.array(sorted(rows)))
    no_times = np.empty((0, len(mig.sizes)))
    if any(rows <= set(partition) for partition in partitions(mig)):
        check_schedule(nothing, no_times)
    else:
        with pytest.raises(ValueError, match="constraint 2"):
            check_schedule(nothing, no_times)
