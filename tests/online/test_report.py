"""What is left of a run: its tables, its summary, its line, and that the validator finds what is wrong with it."""
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sched_lab import online
from sched_lab.cluster import default_cluster
from sched_lab.frames import InputError
from sched_lab.online.inflation import inflate
from sched_lab.online.lockstep import simulate_together
from sched_lab.online.model import PowerSettings, read, toy
from sched_lab.online.policies import POLICIES
from sched_lab.online.report import TABLES, headline, report_of, run_report
from sched_lab.traces import Arrivals, default_tasks

IN_ORDER = Arrivals(np.arange(9), np.arange(4))


def test_the_folder_holds_the_tables_and_the_summary(tmp_path):
    report = report_of(*toy(), "fgd", arrivals=IN_ORDER)
    report.write(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*TABLES, "summary.json"}
    for name, frame in report.tables.items():
        again = pd.read_csv(tmp_path / "out" / name, keep_default_na=False, dtype={"gpu_list": str})
        assert list(again) == list(frame) and len(again) == len(frame)
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == report.summary
    assert (tmp_path / "out" / "assignments.csv").read_text().splitlines()[5] == "4,4,ant,0-1"


def test_the_summary_is_that_of_the_run_and_says_why_tasks_failed():
    report = report_of(*toy(), "fgd", arrivals=IN_ORDER)
    assert report.summary == report.run.summary | {"failed_for": {"gpu|model": 1}}
    assert report.headline == "fgd, 9 arrivals to x = 0.900: 1.4 kW, GRAR 0.8413, 1 failed (gpu|model 1)"


@pytest.mark.parametrize("change", [{"arrivals": 0}, {"grar": None}, {"failed_for": {}}])
def test_the_line_of_a_run_without_arrivals_without_gpu_demand_and_without_failures(change):
    summary = report_of(*toy(), "fgd", arrivals=IN_ORDER).summary | change
    if summary["grar"] is None:
        del summary["grar"]
    line = headline(summary)
    assert ("no arrivals" in line, "no GPU demand" in line, "(" in line) == (
        change == {"arrivals": 0}, change == {"grar": None}, change == {"grar": None})


def test_a_run_in_lockstep_has_the_report_of_a_run_alone():
    names = [name for name, record in POLICIES.items() if record.array_form is not None]
    for name, run in zip(names, simulate_together(*toy(), names, [3]), strict=True):
        together = run_report(*toy(), run)
        alone = report_of(*toy(), name, seed=3)
        assert together.summary == alone.summary and together.headline == alone.headline
        assert all(together.tables[table].equals(alone.tables[table]) for table in TABLES)


@pytest.mark.parametrize(("column", "event", "value", "condition"), [
    ("node", 2, 3, "Cond. 3"), ("gpu_mask", 4, 0b1, "Cond. 6"), ("node", 7, 2, "Cond. 3"), ("node", 5, 0, "Cond. 1")])
def test_the_validator_finds_a_placement_that_was_tampered_with(column, event, value, condition):
    problem = toy()
    run = inflate(*problem, "fgd", arrivals=IN_ORDER)
    online.check(*problem, run)
    changed = getattr(run.placements, column).copy()
    changed[event] = value
    with pytest.raises(ValueError, match=condition):
        online.check(*problem, replace(run, placements=run.placements._replace(**{column: changed})))


def test_a_problem_is_read_from_files_or_is_the_embedded_one(tmp_path):
    assert read()[0].name.tolist() == default_cluster().name.tolist()
    assert read()[1].name.tolist() == default_tasks().name.tolist()
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,1000,1024,1,Z9\n")
    with pytest.raises(InputError, match="Z9"):
        read(tmp_path / "nodes.csv")
    watts = PowerSettings(gpu_power_w={"Z9": (10, 20)})
    assert read(tmp_path / "nodes.csv", power=watts)[0].gpu_model.tolist() == ["Z9"]
