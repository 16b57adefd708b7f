"""What a report of FAR says is what its schedule is."""
import numpy as np
import pytest

from sched_lab.far.mig import mig_of
from sched_lab.far.policies import POLICIES
from sched_lab.far.profiles import model_named, profiled
from sched_lab.far.report import gpus_in_words, report_of
from sched_lab.far.tasks import Batch, toy_batch
from sched_lab.lab.frames import InputError

A30 = mig_of("A30")
TOY = toy_batch(A30)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_summary_says_what_the_schedule_is_worth(policy):
    done = report_of(A30, TOY, policy)
    about = done.summary
    assert about["policy"] == policy and about["tasks"] == 7 and about["batches"] == 1 and about["gpu"] == "A30"
    assert about["makespan_s"] == done.schedule.makespan_s
    assert done.tables["schedule.csv"]["end_s"].max() == round(about["makespan_s"], 9)
    assert about["ideal_s"] == 26.5 and about["rho"] == about["makespan_s"] / 26.5  # by hand: 106 slice-seconds over 4
    assert about["reconfigurations"] == len(done.tables["reconfigurations.csv"])
    assert about["lower_bound_s"] <= about["makespan_s"] + 1e-9
    assert ("optimum_s" in about) == (POLICIES[policy].scalar_form.prove is not None)
    assert done.headline.startswith(f"makespan {about['makespan_s']:.2f} s")


def test_the_bound_of_a_fixed_partition_takes_no_time_for_cutting():
    assert report_of(A30, TOY, "fixpart-best").summary["lower_bound_s"] == 26.5
    assert report_of(A30, TOY, "far").summary["lower_bound_s"] == pytest.approx(26.63)


def test_the_batch_is_a_column_only_if_there_are_several():
    assert "batch" not in report_of(A30, TOY).tables["schedule.csv"]
    group = np.array(["a", "b", "a", "b", "a", "b", "a"], object)
    done = report_of(A30, Batch(TOY.name, TOY.times_s, group))
    table = done.tables["schedule.csv"].set_index("task")
    assert table["batch"].to_dict() == dict(zip(TOY.name, group, strict=True)) and done.summary["batches"] == 2


@pytest.mark.parametrize(("mig", "words"), [
    (A30, "1 A30"), (mig_of("A100", 2), "2 A100"),
    (profiled([model_named("H200")]), "1 H200"),
    (profiled([model_named(name) for name in ("H100 PCIe", "H100 PCIe", "H200")]), "2 H100 PCIe and 1 H200")])
def test_gpus_are_counted_once(mig, words):
    assert gpus_in_words(mig) == words


def test_an_empty_batch_is_refused():
    with pytest.raises(InputError, match="no task"):
        report_of(A30, Batch(np.zeros(0, object), np.zeros((0, 3)), np.zeros(0, object)))
