"""Numbers of any size in the three files: a sensible result, or one error that says what to mend."""
import numpy as np
import pytest

from sched_lab.hadar import simulation
from sched_lab.hadar.model import read_workload
from sched_lab.hadar.report import report_of
from sched_lab.lab.frames import InputError

JOBS = "name,arrival_s,steps,workers,model,weight\na,{arrival_s},{steps},{workers},m,{weight}\nb,600,5000,1,m,1\n"
NODES = "node,type,gpus\nx,v,{gpus}\ny,k,4\n"
SPEEDS = "key,workers,v,k,v_spread,k_spread\nm,1,4,2,4,2\nm,{workers},{rate},2,{spread},1\n"
TAME = {"arrival_s": "0", "steps": "3600", "workers": "2", "weight": "1", "gpus": "2", "rate": "6", "spread": "5"}


def problem(tmp_path, **numbers):
    """Write and read the three tables."""
    files = [tmp_path / name for name in ("jobs.csv", "cluster.csv", "throughputs.csv")]
    for file, text in zip(files, (JOBS, NODES, SPEEDS), strict=True):
        file.write_text(text.format(**TAME | numbers))
    return read_workload(*files)


@pytest.mark.parametrize(("name", "value", "file"), [
    ("arrival_s", "1e308", "jobs"), ("steps", "1e308", "jobs"), ("steps", "9e15", "jobs"), ("weight", "1e308", "jobs"),
    ("workers", "1000000000000000000", "throughputs"), ("gpus", "9223372036854775807", "cluster"),
    ("rate", "1e308", "throughputs"), ("rate", "5e-324", "throughputs"), ("spread", "1e-308", "throughputs")])
def test_a_number_out_of_all_proportion_is_refused_where_it_stands(tmp_path, name, value, file):
    with pytest.raises(InputError, match=rf"{file}\.csv, row \d+, column .*give") as refused:
        problem(tmp_path, **{name: value})
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(("name", "value"), [
    ("steps", "1e-9"), ("steps", "1e15"), ("arrival_s", "1e12"), ("arrival_s", "1e-300"), ("weight", "1e9"),
    ("weight", "1e-9"), ("rate", "1e12"), ("rate", "1e-9"), ("gpus", "1000000")])
def test_the_ends_of_what_is_allowed_give_a_result_or_one_error(tmp_path, monkeypatch, name, value):
    monkeypatch.setattr(simulation, "MOST_DECISIONS", 3000)  # the real limit takes a minute to reach
    work = problem(tmp_path, **{name: value})
    for scheduler in ("hadar", "gavel-maxmin", "tiresias", "planned"):
        try:
            done = report_of(work, scheduler)
        except InputError as error:
            assert "rounds of 360 s" in str(error)
            continue
        assert np.isfinite(done.run.end_s).all() and (done.run.end_s >= work.jobs.arrival_s).all()
        assert 0 < done.summary["gru"] <= 1 + 1e-9
