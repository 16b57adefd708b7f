"""Simpler schedulers for MIG: valid schedules, orders of service redone by hand, means of the reference program."""
import numpy as np
import pandas as pd
import pytest

from sched_lab.far import baselines
from sched_lab.far.mig import check_schedule, mig_of, partitions, without_reconfiguration
from sched_lab.far.refine import far
from sched_lab.far.tasks import SCALINGS, WIDTHS, generate_times, toy_batch
from sched_lab.lab.frames import InputError
from sched_lab.traces import find_reference
from tests.far.cases import any_times, mixed_times

A30 = mig_of("A30")
A100 = mig_of("A100")
each_model = pytest.mark.parametrize("model", ["A30", "A100", "H100"])


@pytest.mark.parametrize(("model", "count"), [("A30", 5), ("A100", 19)])
def test_each_partition_has_a_name_of_its_own(model: str, count: int) -> None:
    mig = mig_of(model, 2)
    ways = [baselines.on_all_gpus(mig, way) for way in partitions(mig)]
    assert len({baselines.partition_name(mig, way) for way in ways}) == count
    assert all(baselines.parse_partition(mig, baselines.partition_name(mig, way)) == way for way in ways)


def test_of_two_instances_that_are_free_the_left_one_serves() -> None:
    fixed = baselines.fix_partition(A30, toy_batch(A30).times_s, baselines.parse_partition(A30, "2-2"))
    assert [A30.name(int(i)) for i in fixed.instance[:2]] == ["S0-S1", "S2-S3"] and not len(fixed.operated)


def test_no_best_partition_if_no_partition_has_room_for_all() -> None:
    with pytest.raises(InputError):  # one task needs the whole GPU, the other one slice
        baselines.best_partition(A30, np.array([[np.inf, np.inf, 1], [1.0, np.inf, np.inf]]))


@each_model
@pytest.mark.parametrize("seed", range(5))
def test_every_fixed_schedule_is_valid_and_none_ends_before_the_best(model: str, seed: int) -> None:
    mig = mig_of(model, 1 + seed % 2)
    times_s = mixed_times(mig, 4 * seed + 1, seed)
    fixed = [baselines.fix_partition(mig, times_s, baselines.on_all_gpus(mig, way)) for way in partitions(mig)]
    for one in fixed:
        check_schedule(one, times_s)
    assert baselines.fix_partition_best(mig, times_s).makespan_s == min(one.makespan_s for one in fixed)


@each_model
@pytest.mark.parametrize("mapping", baselines.MAPPINGS)
@pytest.mark.parametrize("has_barrier", [False, True])
def test_every_schedule_of_miso_is_valid(model: str, mapping: str, has_barrier: bool) -> None:
    for seed in range(12):
        mig = mig_of(model, 1 + seed % 3)
        times_s = any_times(np.random.default_rng(seed), mig)
        check_schedule(baselines.miso(mig, times_s, mapping=mapping, has_barrier=has_barrier), times_s)


def test_miso_deals_the_toy_batch_as_by_hand() -> None:
    # two tasks that run as fast on one slice as on four: any partition with both gives 1 + 1, the whole GPU only 1
    times_s = np.array([[10.0, 10, 10], [4.0, 4, 4]])
    schedule = baselines.miso(A30, times_s)
    # equal sums: 2-2 comes before the finer ones; created one after the other, 0.12 s each
    assert [A30.name(int(i)) for i in schedule.instance] == ["S0-S1", "S2-S3"]
    assert schedule.start_s.tolist() == pytest.approx([0.12, 0.24])
    assert schedule.makespan_s == pytest.approx(10.12)


def test_a_lone_task_gets_the_size_that_speeds_it_up_most() -> None:
    task, instance = baselines.fastest_partition(A30, baselines.speedups(np.array([[10.0, 4, 6]])))
    assert task.tolist() == [0]
    assert A30.name(int(instance[0])) == "S0-S1"


def test_the_best_mapping_has_the_larger_sum_of_speedups() -> None:
    speed = np.array([[1.0, 4.0], [1.0, 1.0]])  # the first task gains on the larger instance, which is to the right
    assert baselines.deal(speed, np.array([0, 1]), "left")[2] == 1 + 1
    assert baselines.deal(speed, np.array([0, 1]), "best")[2] == 4 + 1


def test_with_a_barrier_no_round_starts_before_the_one_before_has_ended() -> None:
    mig = without_reconfiguration(A30)
    times_s = np.repeat([[1.0], [1], [9], [9], [2], [2]], 3, axis=1)  # no task speeds up
    # four share a round; of the two left, one on each half, the left one can start at 1, or both wait until 9
    assert baselines.miso(mig, times_s).start_s.tolist() == [0, 0, 0, 0, 1, 9]
    assert baselines.miso(mig, times_s, has_barrier=True).start_s.tolist() == [0, 0, 0, 0, 9, 9]


def test_an_unknown_mapping_is_refused() -> None:
    with pytest.raises(InputError, match="left"):
        baselines.miso(A30, toy_batch(A30).times_s, mapping="right")


@pytest.mark.parametrize(("scaling", "width"), [("poor", "wide"), ("mixed", "narrow"), ("good", "wide")])
def test_mean_ratios_to_far_are_those_of_the_reference_program(scaling: str, width: str) -> None:
    path = find_reference("far/tables.csv")
    if path is None:
        pytest.skip("no reference/far/tables.csv beside the data")
    table = pd.read_csv(path)
    rng = np.random.default_rng(1)
    table = table[(table["config"] == f"{scaling.title()}Scaling") & (table["width"] == f"{width.title()}Times")
                  & (table["p_sup"] == 0) & (table["n"] == 15)].set_index("quantity")
    if table.empty:
        pytest.skip("no recorded means of such batches")
    rows = []
    for _ in range(60):
        times_s = generate_times(A100, 15, SCALINGS[scaling], WIDTHS[width], rng)
        others = {
            "MISO-opt": baselines.miso(A100, times_s),
            "MISO-opt barrier": baselines.miso(A100, times_s, has_barrier=True),
            "FixPart(1..1)": baselines.fix_partition(A100, times_s, baselines.parse_partition(A100, "1-1-1-1-1-1-1")),
            "FixPart(7)": baselines.fix_partition(A100, times_s, baselines.parse_partition(A100, "7")),
            "FixPartBest": baselines.fix_partition_best(A100, times_s),
        }
        far_s = far(A100, times_s).schedule.makespan_s
        rows.append({f"sigma {name}": one.makespan_s / far_s for name, one in others.items()})
    ours = pd.DataFrame(rows)
    for name in ours.columns.intersection(table.index):  # within four standard errors of the difference of two means
        error = np.hypot(ours[name].std() / len(ours) ** 0.5, table.loc[name, "std_err"])
        assert abs(ours[name].mean() - table.loc[name, "measured"]) < 4 * error, name
