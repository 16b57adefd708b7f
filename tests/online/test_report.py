"""What is left of a run: its tables, its summary, its line, and that the validator finds what is wrong with it."""
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sched_lab import online
from sched_lab.bill import tariff_of
from sched_lab.cluster import default_cluster
from sched_lab.lab.frames import InputError
from sched_lab.meter import meter
from sched_lab.online.inflation import inflate
from sched_lab.online.model import PowerSettings, read, toy
from sched_lab.online.report import TABLES, headline, holdings_of, report_of, run_report
from sched_lab.traces import Arrivals, default_tasks

IN_ORDER = Arrivals(np.arange(9), np.arange(4))


def test_the_folder_holds_the_tables_and_the_summary(tmp_path):
    report = report_of(*toy(), "fgd", arrivals=IN_ORDER)
    report.write(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*TABLES, "summary.json"}
    for name, frame in report.tables.items():
        again = pd.read_csv(tmp_path / "out" / name, keep_default_na=False, dtype={"gpu_list": str})
        assert list(again) == list(frame) and len(again) == len(frame)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary == report.summary | {"grar": pytest.approx(report.summary["grar"], rel=1e-11)}
    assert (tmp_path / "out" / "assignments.csv").read_text().splitlines()[5] == "4,4,ant,0-1"


def test_the_summary_is_that_of_the_run_and_says_why_tasks_failed():
    report = report_of(*toy(), "fgd", arrivals=IN_ORDER)
    energy = {"energy_kwh", "energy_eur", "co2_kg", "energy_assumptions", "hours"}
    assert {name: value for name, value in report.summary.items() if name not in energy} == (
        report.run.summary | {"failed_for": {"gpu|model": 1}})
    assert report.headline == "fgd, 9 arrivals to x = 0.900: 1.4 kW, GRAR 0.8413, 1 failed (gpu|model 1)"


def test_an_hour_at_a_load_costs_what_the_curve_draws_there():
    power = PowerSettings("package", load_curve="linear")
    run = inflate(*toy(), "fgd", arrivals=IN_ORDER, power=power)
    report = run_report(*toy(), run, power, tariff_of("0.5", "100"))
    curve = report.run.curve
    rows = [int(np.argmax(curve["x"] >= level)) for level in (0.5, 0.8)] + [len(curve) - 1]
    hours = pd.DataFrame(report.summary["hours"])
    assert hours["at"].tolist() == ["x = 0.5", "x = 0.8", "end"]
    kwh = curve["eopc_w"].to_numpy()[rows] / 1000
    served = curve["used_gpu_milli"].to_numpy()[rows] / 1000
    for name, expected in {"energy_kwh": kwh, "energy_eur": 0.5 * kwh, "co2_kg": 0.1 * kwh, "served_gpu_h": served,
                           "energy_eur_per_gpu_h": 0.5 * kwh / served}.items():
        assert np.allclose(hours[name], expected, rtol=0, atol=1e-6)
    assert report.summary["energy_kwh"] == hours["energy_kwh"].iloc[-1]


@pytest.mark.parametrize("name", ["fgd", "pwr"])
def test_the_meter_of_arrivals_one_a_second_is_the_curve_to_the_milliwatt(name):
    run = inflate(*toy(), name, seed=1, until=1.2)
    seconds = np.arange(len(run.curve) + 1.0)
    cluster, holdings = holdings_of(*toy(), run.placements, seconds[:-1])
    drawn = meter(cluster, holdings, PowerSettings().of(cluster), seconds)
    for ours, theirs in (("power_w", "eopc_w"), ("cpu_w", "cpu_w"), ("gpu_w", "gpu_w")):
        assert (drawn[ours] == run.curve[theirs]).all()


def test_a_run_without_arrivals_is_billed_for_idle_nodes():
    report = report_of(*toy(), "fgd", arrivals=Arrivals(np.zeros(0, np.int64), np.arange(4)))
    assert [row["at"] for row in report.summary["hours"]] == ["end"]
    assert report.summary["energy_kwh"] == 0.25 and report.summary["hours"][0]["energy_eur_per_gpu_h"] is None


@pytest.mark.parametrize("change", [{"arrivals": 0}, {"grar": None}, {"failed_for": {}}])
def test_the_line_of_a_run_without_arrivals_without_gpu_demand_and_without_failures(change):
    summary = report_of(*toy(), "fgd", arrivals=IN_ORDER).summary | change
    if summary["grar"] is None:
        del summary["grar"]
    line = headline(summary)
    assert ("no arrivals" in line, "no GPU demand" in line, "(" in line) == (
        change == {"arrivals": 0}, change == {"grar": None}, change == {"grar": None})


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
