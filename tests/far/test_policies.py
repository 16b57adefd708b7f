"""The table of FAR's policies: every one valid, none below the bound."""
from dataclasses import replace

import numpy as np
import pytest

from sched_lab import far
from sched_lab.far.bounds import bound
from sched_lab.far.due import batches_of
from sched_lab.far.mig import check_schedule, mig_of
from sched_lab.far.policies import POLICIES, policy_of, simulate
from sched_lab.far.tasks import check_result
from tests.far.cases import batch_of, mixed_times

A30 = mig_of("A30")
NAMES = (*POLICIES, "fixpart:2-2")


def batches(mig, num_tasks, seed, num_batches=1):
    """Random tasks that fit on every size, dealt out to batches in turn."""
    return batch_of(mixed_times(mig, num_tasks, seed), group=["", "other"][:num_batches])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_batches", [1, 2])
def test_every_policy_gives_valid_schedules_that_end_after_the_bound(name, num_batches):
    for seed in range(3):
        mig = mig_of("A30", 1 + seed % 2)
        batch = batches(mig, 7, seed, num_batches)
        schedule = simulate(mig, batch, policy=name)
        check_result(mig, batch, schedule)
        bound_s = bound(mig, batch, with_reconfiguration=not len(schedule.existing))
        assert bound_s <= schedule.makespan_s * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_no_task_needs_no_time_and_no_instance(name):
    schedule = simulate(A30, batch_of(np.zeros((0, 3))), name)
    assert schedule.makespan_s == 0 and len(schedule.operated) == 0


def test_planners_join_plans_and_queues_do_not_see_the_border():
    batch = batches(A30, 8, 1, num_batches=2)
    rows = batches_of(batch)
    order = np.concatenate(rows)
    for name in NAMES:
        solver = policy_of(name).scalar_form
        schedule = simulate(A30, batch, name)
        if not solver.is_planner:
            assert np.array_equal(schedule.end_s[order], solver.schedule(A30, batch.times_s[order]).end_s)
        else:
            assert schedule.start_s[rows[1]].min() > schedule.start_s[rows[0]].min()


def test_only_fixed_partitions_exist_beforehand():
    batch = batches(A30, 5, 2)
    fixed = {name for name in NAMES if len(simulate(A30, batch, name).existing)}
    assert fixed == {"fixpart-best", "fixpart:2-2"}
    schedule = replace(simulate(A30, batch, "fixpart-best"), existing=np.zeros(0, np.int64))
    with pytest.raises(ValueError, match="constraint 3"):
        check_schedule(schedule, batch.times_s)


def test_the_face_reads_a_table_and_makes_a_toy(tmp_path):
    mig, batch = far.toy()
    (tmp_path / "times.csv").write_text("task,1,2,4\nlong,8,4,2\nwide,,,3\n")
    read_mig, read = far.read(tmp_path / "times.csv", "A30")
    assert read_mig.model == mig.model == "A30" and len(batch) == 7
    assert read.times_s.tolist() == [[8, 4, 2], [np.inf, np.inf, 3]]
