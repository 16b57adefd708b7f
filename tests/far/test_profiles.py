"""Profiles, lists, mixed GPUs, due dates, layouts, energy: checked against rules and searches that share no code."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from sched_lab.far.due import (
    value_of,
)
from sched_lab.far.energy import energy_of, holdings_of
from sched_lab.far.files import read_gpus, read_now, read_operations, read_profiled
from sched_lab.far.layout import layout_script, mig_parted, stages_of
from sched_lab.far.mig import Schedule, mig_of
from sched_lab.far.mixed import far_mixed, fluid_s, mixed_bound, resources_of, schedule_by_parts
from sched_lab.far.policies import simulate
from sched_lab.far.profiles import (
    check_problem,
    check_profiles,
    fault_of,
    model_named,
    profiled,
)
from sched_lab.far.tasks import Terms, no_terms, toy_batch
from sched_lab.lab.frames import InputError
from tests.command_line import call
from tests.far.cases import batch_of

H100 = model_named("H100 PCIe")
H200 = model_named("H200")
BY_NAME = {profile.name: profile for profile in H100.profiles}


def row_of(mig, name):
    return next(i for i in range(len(mig.start)) if mig.name(i) == name)


def random_problem(rng, mig, num_tasks, held=()):
    """Whole times, half of them missing; releases, due dates and weights at random."""
    times_s = rng.integers(2, 40, (num_tasks, len(mig.sizes))).astype(float)
    times_s[rng.random(times_s.shape) < 0.5] = np.inf
    times_s[:, -1] = rng.integers(2, 40, num_tasks)
    terms = Terms(rng.integers(0, 20, num_tasks).astype(float), rng.integers(5, 60, num_tasks).astype(float),
                  rng.integers(1, 4, num_tasks).astype(float), np.array(held, np.int64),
                  rng.integers(0, 30, len(held)).astype(float))
    return batch_of(times_s, terms)


@pytest.mark.parametrize(("places", "words"), [
    ([("1g.20gb", 0), ("1g.20gb", 2), ("1g.20gb", 4), ("1g.20gb", 6)], None),
    ([("1g.10gb", start) for start in range(7)], None),
    ([("4g.40gb", 0), ("3g.40gb", 4)], None),
    ([("1g.20gb", 0), ("1g.10gb", 1)], "memory slice 1"),
    ([("1g.20gb", 6), ("1g.10gb", 6)], "memory slice 6"),
    ([("2g.20gb", 6)], "cannot start"), ([("1g.20gb", 3)], "cannot start"), ([("4g.40gb", 4)], "cannot start"),
    ([("1g.10gb+me", 0), ("1g.10gb+me", 5)], "2 instances of"),
    ([("7g.80gb", 0), ("1g.10gb", 0)], "memory slice 0")])
def test_the_rules_of_an_h100_are_nvidias(places, words):
    fault = fault_of(H100, [(BY_NAME[name], start) for name, start in places])
    assert fault is None if words is None else words in fault


def test_media_engines_are_one_whatever_the_profile():
    a30 = model_named("A30")
    of = {profile.name: profile for profile in a30.profiles}
    assert "media" in fault_of(a30, [(of["2g.12gb+me"], 0), (of["1g.6gb+me"], 3)])
    assert fault_of(a30, [(of["2g.12gb+me"], 0), (of["1g.6gb"], 3)]) is None


def test_the_validator_does_not_believe_the_tree():
    """Two media instances that a tree was wrongly given are found, though no slice is shared."""
    mig = profiled([H100])
    i = row_of(mig, "GPU 0 1g.10gb:0")
    j = row_of(mig, "GPU 0 1g.10gb+me:6")
    index = mig.tree.size_index.copy()
    index[i] = index[j]
    wrong = type(mig)(**{**vars(mig), "tree": mig.tree._replace(size_index=index)})
    none = np.zeros(0)
    schedule = Schedule(wrong, np.zeros(0, int), none, none, np.zeros(0, int), none > 0, none, none, np.array([i, j]))
    with pytest.raises(ValueError, match="2 instances of 1g.10gb\\+me"):
        check_profiles(schedule)


def test_memory_decides_what_is_offered(tmp_path):
    path = tmp_path / "models.csv"
    path.write_text("task,memory_gib,1,1g.20gb,2g.20gb,H100 PCIe:3g.40gb,7\nchat,14,9,8,7,6,5\nembed,3,9,,,,\n")
    mig = profiled([H100])
    offered = [[profile.name for (_, profile), t in zip(mig.columns, own, strict=True) if t < np.inf]
               for own in read_profiled(path, mig).times_s]
    assert offered == [["1g.20gb", "2g.20gb", "3g.40gb", "7g.80gb"], ["1g.10gb"]]
    with pytest.raises(InputError, match="how much memory the instances of B100"):
        read_profiled(path, profiled([model_named("B100")]))


@pytest.mark.parametrize(("table", "words"), [
    ("task,1g.10gb,7g.81gb\na,5,1\n", "row 1, column 7g.81gb: no GPU model has a profile '7g.81gb'"),
    ("task,H100:7g.80gb,1g.10gb\na,5,1\n", "row 1, column H100:7g.80gb"),
    ("task,1g.10gb\na,\n", "row 2: there is no time"),
    ("task,1g.10gb\na,-5\n", "row 2, column 1g.10gb: -5 is below")])
def test_a_table_that_is_wrong_is_refused_where_it_is(tmp_path, table, words):
    (tmp_path / "models.csv").write_text(table)
    with pytest.raises(InputError, match=words):
        read_profiled(tmp_path / "models.csv", profiled([H100]))


def test_columns_of_other_models_do_no_harm(tmp_path):
    (tmp_path / "models.csv").write_text("task,1g.10gb,7g.141gb,H200:1g.18gb\na,5,1,2\n")
    times_s = read_profiled(tmp_path / "models.csv", profiled([H100])).times_s
    assert np.isfinite(times_s).sum() == 1


def test_a_wrong_model_in_a_file_is_named_where_it_is(tmp_path):
    (tmp_path / "gpus.csv").write_text("model,count\nH200,1\nH2000,1\n")
    with pytest.raises(InputError, match="gpus.csv, row 3, column model: unknown GPU model 'H2000'"):
        read_gpus(str(tmp_path / "gpus.csv"))


@pytest.mark.parametrize(("row", "words"), [
    ("1g.11gb,1,2,", "row 2, column profile: no GPU model has a profile '1g.11gb'"),
    ("1g.10gb,1,2,H200", "row 2, column profile: H200 has no profile '1g.10gb'"),
    ("1g.10gb,1,2,H2000", "row 2, column model: unknown GPU model")])
def test_times_for_what_does_not_exist_are_refused(tmp_path, row, words):
    (tmp_path / "operations.csv").write_text(f"profile,create_s,destroy_s,model\n{row}\n")
    with pytest.raises(InputError, match=words):
        read_operations(tmp_path / "operations.csv")


@pytest.mark.parametrize("text", ["H100 PCIe=0", "H100 PCIe=x", "H100 PCIe=2,,H200=1", "H101", "T4", "H200=2000", ""])
def test_gpus_that_are_none_are_refused(text):
    with pytest.raises(InputError):
        read_gpus(text)


@pytest.mark.parametrize(("rows", "words"), [
    ("3,1g.10gb,0,5", "row 2, column gpu"), ("0,1g.5gb,0,5", "row 2, column profile"),
    ("0,3g.40gb,2,5", "cannot start"),
    ("0,3g.40gb,4,5\n0,1g.10gb,6,", "row 3, column start: memory slice 6"), ("0,3g.40gb,4,-1", "column until_s")])
def test_what_exists_now_must_be_possible(tmp_path, rows, words):
    (tmp_path / "now.csv").write_text("gpu,profile,start,until_s\n" + rows + "\n")
    with pytest.raises(InputError, match=words):
        read_now(tmp_path / "now.csv", [H100])


def test_times_of_ones_own(tmp_path):
    path = tmp_path / "operations.csv"
    path.write_text("profile,create_s,destroy_s,model\n1g.10gb,1.5,2.5,\n7g.141gb,9,8,H200\n")
    mig = profiled([H100, H200], own=read_operations(path))
    assert mig.tree.create_s[row_of(mig, "GPU 0 1g.10gb:3")] == 1.5
    assert mig.tree.destroy_s[row_of(mig, "GPU 1 7g.141gb:0")] == 8
    assert mig.tree.create_s[row_of(mig, "GPU 0 7g.80gb:0")] == 0.42
    alias = next(iter(H100.aliases))
    path.write_text(f"profile,create_s,destroy_s,model\n1g.10gb,3,4,{alias}\n")
    assert read_operations(path) == {("H100 PCIe", "1g.10gb"): (3, 4)}
    path.write_text("profile,create_s,destroy_s\n1g.10gb,1,2\n1g.10gb,1,2\n")
    with pytest.raises(InputError, match="row 3, column profile"):
        read_operations(path)


def held_batch(mig, held, until_s, profile):
    """One task of 100 s that fits on a profile only, on GPUs of which one has an instance in use until then."""
    times_s = np.full((1, len(mig.columns)), np.inf)
    times_s[0, mig.tree.size_index[row_of(mig, profile)]] = 100
    return batch_of(times_s, no_terms(1)._replace(instance=np.array([row_of(mig, held)]), until_s=np.array([until_s])))


def test_what_runs_already_has_its_instance_until_it_ends():
    mig = profiled([H100], now=[(0, "3g.40gb", 4)])
    schedule = simulate(mig, held_batch(mig, "GPU 0 3g.40gb:4", 40.0, "GPU 0 7g.80gb:0"))
    assert schedule.start_s[0] > 40
    with pytest.raises(ValueError, match="constraint"):
        check_problem(mig, held_batch(mig, "GPU 0 3g.40gb:4", 60.0, "GPU 0 7g.80gb:0"), schedule)


def test_objectives_and_problems_that_a_policy_does_not_know_are_refused():
    with pytest.raises(InputError, match="there is no objective 'speed'"):
        simulate(mig_of("A30"), batch_of(np.ones((1, 3))), objective="speed")
    with pytest.raises(InputError, match="knows no profiles, releases or due dates"):
        simulate(mig_of("A30"), batch_of(np.ones((1, 3)), no_terms(1)), "optimal")


def test_the_fluid_bound_is_below_the_linear_program_and_near_it():
    optimize = pytest.importorskip("scipy.optimize")
    mig = profiled([H100, H200])
    batch = random_problem(np.random.default_rng(2), mig, 8)
    resources = resources_of(mig)
    pairs = np.argwhere(np.isfinite(batch.times_s))
    taken = np.array([resources.use[:, k] * batch.times_s[i, k] for i, k in pairs]).T
    exact = optimize.linprog(np.append(np.zeros(len(pairs)), 1),
                             A_ub=np.column_stack([taken, -resources.capacity]), b_ub=np.zeros(len(taken)),
                             A_eq=np.column_stack([pairs[:, 0] == np.arange(8)[:, None], np.zeros(8)]),
                             b_eq=np.ones(8)).fun
    assert 0.97 * exact <= fluid_s(resources, batch.times_s)[0] <= exact * (1 + 1e-9)


@pytest.mark.parametrize("models", [("H100 PCIe", "H200", "A30"), ("A30", "H100 PCIe")])
def test_mixed_far_ends_after_the_bound_and_is_valid(models):
    """Also where a GPU of fewer slices comes first."""
    rng = np.random.default_rng(3)
    mig = profiled([model_named(name) for name in models])
    for _ in range(4):
        batch = batch_of(random_problem(rng, mig, 7).times_s)
        schedule = schedule_by_parts(mig, batch.times_s, far_mixed(mig, batch.times_s))
        check_problem(mig, batch, schedule)
        assert mixed_bound(mig, batch.times_s) <= schedule.makespan_s * (1 + 1e-9)


def test_batches_in_a_row_keep_releases():
    mig = mig_of("A30")
    times_s = np.tile(toy_batch(mig).times_s[:4], (2, 1))
    terms = no_terms(8)._replace(release_s=np.array([0.0, 5, 0, 0, 60, 0, 70, 0]))
    batch = batch_of(times_s, terms, np.repeat(["a", "b"], 4))
    schedule = simulate(mig, batch)
    assert (schedule.start_s >= terms.release_s).all()
    assert value_of(terms, simulate(mig, batch, "lists"), "makespan") <= value_of(terms, schedule, "makespan")


STAND_IN = '''#!/usr/bin/env python3
"""nvidia-smi mig for two GPUs of paper: knows legal places only."""
import json, sys
from pathlib import Path
state = Path(sys.argv[0]).with_name("state.json")
held = json.loads(state.read_text())
arguments = sys.argv[2:]
assert sys.argv[1] == "mig" and arguments[0] == "-i"
gpu = arguments[1]
here = held.setdefault(gpu, [])
legal = json.loads(Path(sys.argv[0]).with_name("legal.json").read_text())
match arguments[2:]:
    case ["-cgi", place, "-C"]:
        profile, start = place.rsplit(":", 1)
        size = legal[profile]["size"]
        assert int(start) in legal[profile]["starts"], place
        mine = set(range(int(start), int(start) + size))
        assert not any(mine & set(range(s, s + n)) for _, _, s, n in here), place
        here.append([legal["next"], profile, int(start), size])
        legal["next"] += 1
        Path(sys.argv[0]).with_name("legal.json").write_text(json.dumps(legal))
    case ["-lgi"]:
        print("| GPU   Name  Profile  Instance   Placement |")
        for number, profile, start, size in here:
            print(f"|   {gpu}  MIG {profile}   9   {number}   {start}:{size}     |")
    case ["-gi", number, "-dci"]:
        assert any(one[0] == int(number) for one in here)
    case ["-gi", number, "-dgi"]:
        held[gpu] = [one for one in here if one[0] != int(number)]
        assert len(held[gpu]) == len(here) - 1
    case _:
        sys.exit(9)
state.write_text(json.dumps(held))
'''


@pytest.mark.skipif(os.name != "posix", reason="the layout is a shell script")
def test_the_script_cuts_gpus_of_paper_stage_by_stage(tmp_path):
    now = [(0, "3g.40gb", 4), (1, "1g.10gb", 3)]
    mig = profiled([H100, H100], now=now)
    batch = random_problem(np.random.default_rng(5), mig, 7, [row_of(mig, f"GPU {g} {n}:{s}") for g, n, s in now])
    batch.name[:3] = ['"; touch pwned; #', "$(touch pwned)", "x\ntouch pwned"]
    schedule = simulate(mig, batch, objective="tardiness")
    (tmp_path / "nvidia-smi").write_text(STAND_IN)
    (tmp_path / "nvidia-smi").chmod(0o755)
    sizes = {one.name: {"size": one.memory_slices, "starts": one.starts} for one in H100.profiles}
    (tmp_path / "legal.json").write_text(json.dumps({**sizes, "next": 50}))
    held = {"0": [[1, "3g.40gb", 4, 4]], "1": [[2, "1g.10gb", 3, 1]]}
    (tmp_path / "state.json").write_text(json.dumps(held))
    (tmp_path / "layout.sh").write_text(layout_script(schedule, batch.name))
    configs = yaml.safe_load(mig_parted(schedule, batch.name))["mig-configs"]
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    stages = stages_of(schedule)
    assert len(stages) == len(configs) > 1
    for stage in stages:
        done = subprocess.run(["sh", "layout.sh", str(stage.number)], cwd=tmp_path, env=path, capture_output=True)
        assert done.returncode == 0, done.stderr
        exist = json.loads((tmp_path / "state.json").read_text())
        for gpu, config in enumerate(configs[f"sched-lab-stage-{stage.number}"]):
            counts = pd.Series([one[1] for one in exist[str(gpu)]], dtype=object).value_counts().to_dict()
            assert config == {"devices": [gpu], "mig-enabled": True, "mig-devices": counts}
    assert subprocess.run(["sh", "layout.sh"], cwd=tmp_path, env=path, capture_output=True).returncode == 2
    assert not (tmp_path / "pwned").exists()


@pytest.mark.skipif(os.name != "posix", reason="the layout is a shell script")
@pytest.mark.parametrize(("program", "code", "said"), [
    (None, 127, "nvidia-smi is not here; run this where the GPUs are\n"),
    ("#!/bin/sh\necho 'Insufficient Permissions'; exit 4", 1, "Insufficient Permissions\n"),
    ("#!/bin/sh\necho '| GPU Name |'", 1, "GPU 0 has no instance at 4\n")])
def test_the_script_says_only_what_is_so_where_it_can_do_nothing(program, code, said, tmp_path):
    """No program, one that fails, and one that lists no instance."""
    mig = profiled([H100], now=[(0, "3g.40gb", 4)])
    batch = held_batch(mig, "GPU 0 3g.40gb:4", 0.0, "GPU 0 7g.80gb:0")
    (tmp_path / "layout.sh").write_text(layout_script(simulate(mig, batch), batch.name))
    for name in ("sh", "awk"):
        (tmp_path / name).symlink_to(shutil.which(name))
    if program:
        (tmp_path / "nvidia-smi").write_text(program)
        (tmp_path / "nvidia-smi").chmod(0o755)
    done = subprocess.run(["sh", "layout.sh", "0"], cwd=tmp_path, env={"PATH": str(tmp_path)}, capture_output=True,
                          text=True)
    assert (done.returncode, done.stderr) == (code, said)


def test_a_layout_needs_profiles():
    schedule = simulate(mig_of("A30"), toy_batch(mig_of("A30")))
    with pytest.raises(InputError, match="has no profiles, only sizes"):
        layout_script(schedule, [str(k) for k in range(7)])


def test_energy_is_the_sum_by_hand():
    mig = profiled([H100, H200], now=[(0, "3g.40gb", 4)])
    batch = held_batch(mig, "GPU 0 3g.40gb:4", 40.0, "GPU 1 2g.35gb:0")
    schedule = simulate(mig, batch)
    done_s = schedule.makespan_s
    loads = ((H100, 40 * 0.428), (H200, 100 * 0.285))
    wanted = sum(one.idle_w.value * done_s + load * (one.full_w.value - one.idle_w.value) for one, load in loads)
    bill = energy_of(mig, batch, schedule)
    assert bill.energy_kwh * 3.6e6 == pytest.approx(wanted, rel=1e-6)
    assert "CPUs are left out" in bill.assumptions
    assert holdings_of(mig, batch, schedule)[0].gpu_model.tolist() == ["H100 PCIe", "H200"]
    unknown = mig_of("B100")  # whose watts nobody has published
    assert energy_of(unknown, toy_batch(unknown), simulate(unknown, toy_batch(unknown))) is None


def test_the_example_of_an_operator_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("example", "far", ".") == 0
    asked = ("far --gpu gpus.csv --times models.csv --now now.csv --operations operations.csv --objective tardiness "
             "--no-charts").split()
    assert call(*asked, "--price", "0.21", "--out", "tonight") == 0
    assert {path.name for path in Path("tonight").iterdir()} == {
        "schedule.csv", "reconfigurations.csv", "summary.json", "mig-parted.yaml", "layout.sh"}
    summary = json.loads(Path("tonight/summary.json").read_text())
    table, models = pd.read_csv("tonight/schedule.csv"), pd.read_csv("models.csv").set_index("task")
    assert len(table) == 12 == len(models) and summary["lower_bound_s"] <= summary["makespan_s"]
    assert summary["makespan_s"] == pytest.approx(table["end_s"].max(), rel=1e-11)
    assert summary["energy_eur"] == pytest.approx(0.21 * summary["energy_kwh"], rel=1e-4)
    memory = {one.name: one.memory_mib for model in (H100, H200) for one in model.profiles}
    for row in table.itertuples():
        own = models.loc[row.task]
        assert own["memory_gib"] * 1024 <= memory[row.profile]
        assert row.end_s - row.start_s == pytest.approx(own[row.profile])
    late = np.maximum(0, table["end_s"] - models.loc[table["task"], "due_s"].fillna(np.inf).to_numpy())
    assert table["tardiness_s"].to_numpy() == pytest.approx(late.to_numpy())
    assert call(*asked, "--policy", "optimal", "--out", "other") == call(*asked, "--gpus", 2, "--out", "other") == 2
