"""The whole evaluation of the PWR paper on all cores of this machine."""
import psutil
import pytest

from sched_lab.lab.sweeps import count_cores
from sched_lab.online.evaluation import run_study
from sched_lab.traces import find_data, find_reference
from studies.online import PAPER, RECORDED, TRACES, study_of
from studies.reproduction import Workplace

FILES = find_data("openb/openb_pod_list_default.csv"), find_reference(
    "pwr/arrivals/default.json.gz")


class Peak:
    """Largest memory of this process and its children together, MiB, sampled while cells finish."""

    def __init__(self):
        self.mib = 0.0

    def sample(self):
        process = psutil.Process()
        used = 0
        for each in [process, *process.children(recursive=True)]:
            try:
                used += each.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.mib = max(self.mib, used / 2**20)


@pytest.mark.skipif(None in FILES, reason="needs the openb traces and their recorded arrivals")
@pytest.mark.parametrize("arithmetic", ["reference", "exact"])
def test_1430_runs(benchmark, tmp_path, monkeypatch, arithmetic):
    """Nothing is kept from before: every run is computed, and every cell written."""
    from sched_lab.lab import sweeps
    peak = Peak()
    write = sweeps.write_frame

    def watched(*arguments, **options):
        peak.sample()
        return write(*arguments, **options)

    monkeypatch.setattr(sweeps, "write_frame", watched)
    place = Workplace(tmp_path, find=lambda name: find_data(name) or find_reference(name))
    study = study_of(place, PAPER, RECORDED, TRACES, step=0.005, arithmetic=arithmetic)
    result = benchmark.pedantic(run_study, (study, tmp_path), {"workers": count_cores()}, rounds=1)
    assert result.computed == 1430
    benchmark.extra_info["memory_mib"] = peak.mib
