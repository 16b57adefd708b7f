"""What a report of FAR says is what its schedule is."""
import numpy as np
import pytest

from sched_lab.far.mig import mig_of
from sched_lab.far.profiles import model_named, profiled
from sched_lab.far.report import gpus_in_words, report_of
from sched_lab.far.tasks import Batch, toy_batch
from sched_lab.lab.frames import InputError

A30 = mig_of("A30")
TOY = toy_batch(A30)


def test_the_bound_of_a_fixed_partition_takes_no_time_for_cutting():
    assert report_of(A30, TOY, "fixpart-best").summary["lower_bound_s"] == 26.5
    by_far = report_of(A30, TOY, "far")
    assert by_far.summary["lower_bound_s"] == pytest.approx(26.63) and by_far.summary["ideal_s"] == 26.5
    assert "batch" not in by_far.tables["schedule.csv"]


@pytest.mark.parametrize(("mig", "words"), [
    (A30, "1 A30"), (mig_of("A100", 2), "2 A100"),
    (profiled([model_named("H200")]), "1 H200"),
    (profiled([model_named(name) for name in ("H100 PCIe", "H100 PCIe", "H200")]), "2 H100 PCIe and 1 H200")])
def test_gpus_are_counted_once(mig, words):
    assert gpus_in_words(mig) == words


def test_an_empty_batch_is_refused():
    with pytest.raises(InputError, match="no task"):
        report_of(A30, Batch(np.zeros(0, object), np.zeros((0, 3)), np.zeros(0, object)))
