"""A study: a file in, runs, means and spread out; and the public traces against the authors' seed means."""
import os
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.lab.frames import InputError, embedded, read_frame
from sched_lab.lab.sweeps import SweepError
from sched_lab.online.evaluation import Study, compare, read_study, run_study, tasks_in
from sched_lab.online.inflation import on_grid
from sched_lab.traces import find_data, find_reference
from tests.online.recorded import NAMES, recorded_seeds

TOY = Study(embedded("toy/nodes.csv"), {"toy": embedded("toy/tasks.csv")}, ("fgd", "pwr", "random"), (0, 1, 2),
            step=0.25)
ROOT = Path(__file__).parents[2]
STORED = ROOT / "data" / "results" / "pwr"


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return run_study(TOY, tmp_path_factory.mktemp("toy"))


def test_a_study_is_a_row_for_each_trace_policy_seed_and_grid_point(toy):
    keys = toy.frame[["trace", "policy", "seed", "x"]]
    assert keys.drop_duplicates().shape == (3 * 3 * 5, 4) and not keys.duplicated().any()
    assert toy.computed == 9


def test_two_processes_give_the_bytes_of_one(toy, tmp_path):
    together = run_study(TOY, tmp_path, workers=2)
    assert together.frame.equals(toy.frame)


def test_what_a_result_depends_on_is_in_its_key(tmp_path):
    one = replace(TOY, policies=("fgd",), seeds=(0,))
    assert run_study(one, tmp_path).computed == 1
    assert run_study(one, tmp_path).computed == 0
    tasks = tmp_path / "tasks.csv"
    tasks.write_bytes(TOY.traces["toy"].read_bytes() + b"ten,1000,0,1,100,\n")
    watts = tmp_path / "watts.csv"
    watts.write_text("model,idle_w,full_w\nT4,11,70\n")
    for other in (replace(one, step=0.5), replace(one, traces={"toy": tasks}), replace(one, gpu_power=watts),
                  replace(one, options={"power": "package"}), replace(one, options={"load_curve": "linear"})):
        assert run_study(other, tmp_path).computed == 1, other


def test_means_and_spread_by_hand():
    # seed 0: 100 -> 80 W saves 20 %, seed 1: 200 -> 180 W saves 10 %; of the means 150 and 130: 13.33 %
    runs = pd.DataFrame({"trace": "t", "policy": ["fgd", "fgd", "pwr", "pwr"], "seed": [0, 1, 1, 0], "x": 0.5,
                         "eopc_w": [100.0, 200.0, 180.0, 80.0], "used_gpu_milli": [10, 30, 12, 10],
                         "arrived_gpu_milli": [10, 30, 30, 10]})
    means = compare(runs).set_index("policy")
    assert means.loc["pwr", "saving_percent"] == pytest.approx(100 * 20 / 150)
    assert means.loc["pwr", "saving_sd"] == pytest.approx(np.std([20, 10], ddof=1))
    assert means.loc["pwr", "grar"] == 22 / 40 and means.loc["fgd", "saving_percent"] == 0
    assert means.loc["pwr", "grar_sd"] == pytest.approx(np.std([1.0, 0.4], ddof=1))
    assert "saving_percent" not in compare(runs[runs["policy"] == "pwr"])


def read_off_by_pandas(curve, step, until):
    """Curve on the grid as the authors' notebooks have it, word for word."""
    grid = pd.Index(np.round(np.arange(int(until / step + 1e-9) + 1) * step, 9), name="x")
    known = curve.drop_duplicates("x").set_index("x").astype(float)
    joined = known.reindex(known.index.union(grid))
    return joined.interpolate("linear").ffill().bfill().loc[grid].reset_index()


def test_the_grid_is_read_off_as_pandas_would_to_the_last_bit():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = int(rng.integers(0, 40))
        arrived_milli = np.cumsum(rng.integers(0, 3, rows) * rng.choice([1, 70, 300]))
        curve = pd.DataFrame({"x": arrived_milli / 7000, "eopc_w": rng.integers(0, 9, rows) * 100,
                              "frag_milli": rng.normal(size=rows) * 10.0 ** rng.integers(-8, 8)})
        if seed % 7 == 0:
            curve["frag_milli"] = curve["frag_milli"].where(rng.random(rows) < 0.5)
        step, until = rng.choice([0.005, 0.02, 0.25]), rng.choice([0.37, 1.0, 1.3])
        ours = on_grid(curve, step, until)
        theirs = read_off_by_pandas(curve, step, until)
        assert list(ours) == list(theirs) and ours.to_numpy().tobytes() == theirs.to_numpy().tobytes(), seed


@pytest.mark.parametrize(("text", "words"), [
    ("polices = ['fgd']", "no setting 'polices'"),
    ("policies = 'fgd'", "policies is 'fgd'; give a list"),
    ("policies = []", "policies is []"),
    ("policies = ['fgd', 3]", "policies has 3"),
    ("policies = ['best-fit']", "no policy 'best-fit'"),
    ("policies = ['pwr@1.5@fgd']", "loads"),
    ("policies = ['pwr@0.8']", "ends with a load"),
    ("seeds = [1, -2]", "seeds"),
    ("power = 'eq2'", "power is 'eq2'; give one of eq1, package"),
    ("until = 0", "until is 0"),
    ("until = true", "until is True"),
    ("step = 'fine'", "step is 'fine'"),
    ("load_curve = 'cubic'", "no load curve 'cubic'"),
    ("load_curve = [[0, 0], [0.5, 2], [1, 1]]", "does not rise"),
    ("nodes = 'none.csv'", "none.csv"),
    ("[traces]\nmine = 7", "traces has 7"),
    ("[arrivals]\nother = 'a.json'", "trace default has no recorded arrivals"),
    ("policies = [", "not TOML"),
    ("step = 1e-300", "step is 1e-300"),
    ("seeds = '0-999999999'", "are more than 100,000"),
    ("policies = " + "[" * 100_000, "too deep"),
])
def test_a_wrong_study_is_refused_before_anything_runs(text, words, tmp_path):
    file = tmp_path / "study.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=".*") as error:
        read_study(file)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_paths_are_relative_to_the_file_and_the_default_is_embedded(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "mine.csv").write_bytes(TOY.traces["toy"].read_bytes())
    (tmp_path / "sub" / "study.toml").write_text("seeds = [3, 5]\n[traces]\nmine = 'mine.csv'")
    monkeypatch.chdir(tmp_path)
    study = read_study("sub/study.toml")
    assert study.seeds == [3, 5] and study.traces["mine"].read_bytes() == TOY.traces["toy"].read_bytes()
    assert study.nodes == embedded("nodes.csv")


# --- the public traces


@cache
def reference_means():
    path = find_reference("pwr/summary.csv")
    return pd.read_csv(path) if path else pytest.skip("no reference file pwr/summary.csv")


def agree(ours, theirs):
    """Compare savings to 0.01 points and GRAR to 0.0001, beside the rounding of their table."""
    for column in theirs.index:
        if column.startswith("sav"):
            assert ours.loc[float(column[3:]), "saving_percent"] == pytest.approx(theirs[column], abs=0.01), column
        if column.startswith("grar"):
            assert ours.loc[float(column[4:]), "grar"] == pytest.approx(theirs[column], abs=0.0001), column
        if column.startswith("eopc_kW"):
            assert ours.loc[float(column[7:]), "eopc_w"] / 1000 == pytest.approx(theirs[column], abs=0.051), column
    assert ours.loc[1.0, "failed"] == pytest.approx(theirs["failed1"], abs=0.051)
    assert ours.loc[1.0, "frag_milli"] == pytest.approx(theirs["frag1"], abs=0.51)


@pytest.mark.parametrize("policy", NAMES)
def test_stored_means_are_the_authors_seed_means(policy):
    means = reference_means().query("trace == 'default'").set_index("policy")
    if policy not in means.index:
        pytest.skip(f"no recorded means of {policy}")
    theirs = means.loc[policy]
    stored = read_frame(STORED / "evaluation_mean.csv.gz").query("trace == 'default' and policy == @NAMES[@policy]")
    agree(stored.set_index("x"), theirs)


def test_computed_means_are_the_authors_seed_means(tmp_path):
    trace = "gpushare100"
    theirs = reference_means().query("trace == @trace").set_index("policy")
    files = {"nodes": find_data("openb/openb_node_list_gpu_node.csv"),
             "trace": find_data(f"openb/openb_pod_list_{trace}.csv"),
             "arrivals": find_reference(f"pwr/arrivals/{trace}.json.gz")}
    if missing := [name for name, path in files.items() if path is None]:
        pytest.skip(f"absent: {', '.join(missing)} of {trace}")
    chosen = ["FGD", "PWR"]  # against the first of which others save
    count = int(theirs["n"].get("FGD", 10**9))
    seeds = recorded_seeds(files["arrivals"])[:count]
    if len(seeds) < count or "PWR" not in theirs.index:
        pytest.skip(f"means over {count} seeds, arrivals of {len(seeds)}")
    study = Study(files["nodes"], {trace: files["trace"]}, [NAMES[name] for name in chosen],
                  seeds, {trace: files["arrivals"]},
                  {"power": "package", "arithmetic": "reference", "until": 1.0})
    means = compare(run_study(study, tmp_path).frame).set_index(["policy", "x"])
    for name in chosen:
        agree(means.loc[NAMES[name]], theirs.loc[name])


# --- files


def test_a_file_edited_while_a_study_runs_is_an_error_and_not_a_wrong_curve(tmp_path):
    tasks = tmp_path / "tasks.csv"
    tasks.write_bytes(TOY.traces["toy"].read_bytes())
    study = replace(TOY, traces={"toy": tasks}, policies=("fgd",), seeds=(0,))
    assert run_study(study, tmp_path / "out").computed == 1
    tasks.write_bytes(TOY.traces["toy"].read_bytes() + b"ten,1000,0,1,100,\n")
    tasks_in.cache_clear()  # as in a worker that has not read it yet
    with pytest.raises(SweepError, match="has changed since it was first read"):
        run_study(study, tmp_path / "other")
    again = replace(study)  # a new look at the files
    assert again.checksums != study.checksums
    with_ten = run_study(again, tmp_path / "out").frame
    assert not with_ten.equals(run_study(TOY, tmp_path / "toy").frame.query("policy == 'fgd' and seed == 0"))


def test_a_pipe_is_no_file_of_a_study(tmp_path):
    os.mkfifo(tmp_path / "tasks.csv")
    (tmp_path / "study.toml").write_text("[traces]\nmine = 'tasks.csv'\n")
    with pytest.raises(InputError, match="tasks.csv: this is no plain file; give a file that can be read"):
        read_study(tmp_path / "study.toml")
