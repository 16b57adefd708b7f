"""Calibration: a known curve is found again, what is written can be read, wrong recordings are refused."""
import json

import numpy as np
import pandas as pd
import pytest

from sched_lab.calibration import drawn, fit_model
from sched_lab.calibration_report import residuals_of
from sched_lab.hardware import default_hardware, read_hardware
from sched_lab.lab.frames import InputError
from sched_lab.recording import LOADS, POWER, read_recording
from tests.command_line import call

CURVE = "0:0,0.25:0.5,0.5:0.75,1:1"
A100 = "NVIDIA A100-SXM4-80GB"
UTIL = "DCGM_FI_DEV_GPU_UTIL"


def readings(seed=0, count=3000, noise_w=3.0, wild=0.02) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    load = rng.choice([0, 1, 2], count) / 1.0
    load = np.where(load == 2, rng.integers(1, 99, count) / 100, load)
    power_w = drawn(60, 390, CURVE, load) + rng.normal(0, noise_w, count)
    is_wild = rng.random(count) < wild
    power_w[is_wild] = rng.uniform(70, 385, is_wild.sum())
    return pd.DataFrame({"load": load, "power_w": power_w})


def series(metric, values, **labels):
    labels = {"gpu": "0", "UUID": "GPU-1", "modelName": A100, "Hostname": "n1"} | labels
    return {"metric": {"__name__": metric, **labels}, "values": [[1_700_000_000 + time, text] for time, text in values]}


def export(tmp_path, *result, name="export.json"):
    path = tmp_path / name
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(result)}}))
    return path


def recorded(tmp_path, points: pd.DataFrame, metric=UTIL):
    full = LOADS[metric]
    return export(tmp_path, series(POWER, [(15 * i, f"{watts:.2f}") for i, watts in enumerate(points["power_w"])]),
                  series(metric, [(15 * i, f"{load * full:g}") for i, load in enumerate(points["load"])]))


@pytest.mark.parametrize("metric", LOADS)
def test_an_export_is_joined_by_gpu_and_time(tmp_path, metric):
    points = readings(count=400)
    found = read_recording([recorded(tmp_path, points, metric)])
    assert np.allclose(found.points["power_w"], points["power_w"], atol=0.006) and found.dropped == {}
    assert np.allclose(found.points["load"], points["load"]) and set(found.points["model"]) == {"A100 80GB"}


def test_what_is_dropped_is_counted(tmp_path):
    path = export(tmp_path, series(POWER, [(0, "60"), (15, "NaN"), (30, "61"), (45, "62")]),
                  series(POWER, [(0, "60")], pod="again"), series(UTIL, [(0, "0"), (15, "0"), (30, "140"), (60, "0")]),
                  series(UTIL, [(0, "50"), (15, "50")], GPU_I_ID="3"))
    found = read_recording([path])
    assert len(found.points) == 1 and found.dropped == {
        "given twice": 1, "no load at that time": 1, "no power at that time": 1, "power is no reading": 1,
        "load is no share": 1, "of a MIG instance": 2}


def test_gpus_without_uuid_are_told_apart_by_host(tmp_path):
    both = [series(metric, [(0, text)], UUID="", Hostname=host) for host, power in (("n1", "60"), ("n2", "80"))
            for metric, text in ((POWER, power), (UTIL, "0"))]
    assert sorted(read_recording([export(tmp_path, *both)]).points["power_w"]) == [60, 80]


@pytest.mark.parametrize(("kept", "words"), [("load > 0", "idle"), ("load < 0.99", "full"),
                                             ("load == 0 or load == 1", "load curve")])
def test_what_too_few_points_say_stays_as_in_the_catalogue(kept, words):
    fit = fit_model("A100 80GB", readings().query(kept))
    entry = default_hardware().gpu("A100 80GB")
    assert words in fit.kept[0] and "kept" in fit.kept[0]
    if words != "load curve":
        assert getattr(fit, f"{words}_w") == getattr(entry, f"{words}_w")
    else:
        assert fit.load_curve == "step"


def test_residuals_add_up():
    fit = fit_model("A100 80GB", readings())
    table = residuals_of(fit)
    assert table["points"].sum() == len(fit.points)
    whole = np.mean((fit.points["power_w"] - fit.watts(fit.points["load"])) ** 2)
    assert np.isclose((table["points"] * table["rmse_w"] ** 2).sum() / table["points"].sum(), whole)


@pytest.mark.parametrize(("text", "words"), [
    ("{", "not JSON"), ("[]", "no answer of Prometheus"), ('{"status": "error", "error": "bad query"}', "bad query"),
    ('{"status": "success", "data": {"resultType": "vector", "result": []}}', "not a matrix"),
    ('{"status": "success", "data": {"resultType": "matrix", "result": [3]}}', r"result\[0\] has no list"),
    ('{"status": "success", "data": {"resultType": "matrix", "result": []}}', "no point"),
    ("time,gpu,model\n1,2,3\n", "power_w"),
    ("time,gpu,model,power_w,utilisation_percent\n1,0,A40,many,0\n", "row 2, column power_w"),
    ("time,gpu,model,power_w,utilisation_percent\n1,0,,60,0\n", "--model")])
def test_a_wrong_file_is_refused(tmp_path, text, words):
    path = tmp_path / "wrong"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as error:
        read_recording([path])
    assert str(path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(("one", "words"), [
    (series("up", [(0, "1")]), "of metric 'up'"), (series(POWER, [(0, 60.0)]), r"values\[0\]"),
    (series(POWER, [(0, "60"), (15, "sixty")]), r"data.result\[0\].values\[1\]"),
    (series(POWER, [(0, "60")], UUID="", Hostname=""), "which GPU")])
def test_a_wrong_series_is_refused(tmp_path, one, words):
    with pytest.raises(InputError, match=words):
        read_recording([export(tmp_path, one)])


def test_the_command_writes_a_file_that_can_be_read(tmp_path, capsys):
    path, out = recorded(tmp_path, readings()), tmp_path / "out"
    assert call("calibrate", str(path), "--out", str(out), "--no-charts") == 0
    assert "A100 80GB: idle 60 W" in capsys.readouterr().out
    fit = fit_model("A100 80GB", read_recording([path]).points)
    mine = read_hardware(out / "hardware.toml").gpu("A100 80GB")
    assert (mine.idle_w, mine.full_w, mine.load_curve) == (fit.idle_w, fit.full_w, fit.load_curve)
    assert json.loads((out / "summary.json").read_text())["points"] == 3000
    assert call("calibrate", str(path), "--out", str(out), "--no-charts") == 0
    assert "(kept)" in capsys.readouterr().out
    assert call("calibrate", str(path), "--model", "L4", "--out", str(tmp_path / "other")) == 2
    assert "of another model: 3000" in capsys.readouterr().err


def test_an_unknown_model_with_half_its_points_is_left_out(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("time,gpu,model,power_w,utilisation_percent\n" + "".join(
        f'{i},0,"Odd ""card"" é",{50 + i % 2},0\n' for i in range(40)))
    assert call("calibrate", str(table), "--out", str(tmp_path / "out"), "--no-charts") == 0
    text = (tmp_path / "out" / "hardware.toml").read_text()
    assert "is left out" in text and "does not know the model" in text
    assert read_hardware(tmp_path / "out" / "hardware.toml").gpus == default_hardware().gpus
