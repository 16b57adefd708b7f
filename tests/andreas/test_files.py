"""Tables of an operator: what they become, and one line with file, row, column and mend for each mistake."""
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from sched_lab.andreas.files import read_files
from sched_lab.andreas.instances import NODE_POWER_W
from sched_lab.andreas.machines import draws_of, eur_of
from sched_lab.andreas.model import Assignment, check_assignment
from sched_lab.andreas.policies import decide_now
from sched_lab.andreas.report import interruptions, report_of
from sched_lab.andreas.simulation import simulate
from sched_lab.bill import tariff_of
from sched_lab.hardware import read_hardware
from sched_lab.lab.frames import InputError, embedded
from tests.command_line import call

NODES = "node,gpu,gpus,memory_gib,idle_w\nold,K80,2,12,300\nold,V100,1,32,\nnew,V100,2,32,200\n"
POWER = "gpu,idle_w,full_w\nK80,25,150\nV100,50,300\n"
TIMES = "application,gpu,gpus,epoch_s\nx,K80,1,600\nx,K80,2,330\nx,V100,1,100\nx,V100,2,60\n"
JOBS = ("job,submission,due,epochs,epochs_done,weight_eur_per_h,application,memory_gib,node,gpu,gpus\n"
        "A,0,3600,30,0,2,x,20,,,\nB,0,9000,5,2.5,1,x,4,old,K80,1\nC,60,4000,8,0,1,x,12,,,\n")
TERMS = {"eur_per_kwh": 0.2, "pue": 1.5}
GIVEN = {"nodes": NODES, "power": POWER, "times": TIMES, "jobs": JOBS}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write tables, some of them changed, and read them."""
    monkeypatch.chdir(tmp_path)

    def read(terms=TERMS, **changed):
        for name, text in (GIVEN | changed).items():
            Path(f"{name}.csv").write_text(text)
        return read_files("jobs.csv", "nodes.csv", "power.csv", "times.csv", **terms)[0]

    return read


def test_memory_forbids_exactly_what_each_node_s_gpus_cannot_hold(written):
    """Brute force: every pair of node and configuration, by the tables' own numbers."""
    instance = written()
    gib = {"K80": 12, "V100": 32}
    parts = {"new": ("V100", 2), "old:K80": ("K80", 2), "old:V100": ("V100", 1)}
    needs = {"A": 20, "B": 4, "C": 12}
    found, wanted = set(), set()
    for j, n in itertools.product(range(3), range(3)):
        for c in range(len(instance.fleet.configuration_gpus)):
            node, place = np.full(3, -1), np.full(3, -1)
            node[j], place[j] = n, c
            try:
                check_assignment(instance.fleet, instance.jobs.times_s, Assignment(node, place))
            except ValueError:
                continue
            found.add((instance.job_name[j], instance.node_name[n], int(instance.fleet.configuration_gpus[c])))
    for (job, need), (name, (gpu, gpus)) in itertools.product(needs.items(), parts.items()):
        wanted |= {(job, name, g) for g in range(1, gpus + 1) if need <= gib[gpu]}
    assert found == wanted


def test_times_are_what_is_left_and_the_price_is_of_each_half(written):
    instance = written()
    assert instance.jobs.times_s[1].tolist() == [1500, 825, 250, 150, 250]
    assert instance.present.done.tolist() == [0, 0.5, 0] and instance.present.node.tolist() == [-1, 1, -1]
    assert np.allclose(instance.fleet.cost_eur_per_h[:, 1], [0.1275, 0.135, 0.165])


@pytest.mark.parametrize(("table", "right", "wrong", "row", "column"), [
    ("nodes", "V100,2,32,200", "V100,2,32,", 4, "idle_w"), ("nodes", "old,V100,1,32,", "old,V100,1,32,9", 3, "idle_w"),
    ("nodes", "old,V100", "old,K80", 3, "gpu"), ("nodes", "new,V100", "new,", 4, "gpu"),
    ("nodes", "K80,2", "K80,0", 2, "gpus"), ("power", "K80,25", "K8,25", 2, "gpu"),
    ("power", "25,150", "150,25", 2, "full_w"), ("power", "full_w", "fullw", 1, "gpus"),
    ("times", "x,V100,2", "x,V100,1", 5, "gpus"), ("times", "600", "0", 2, "epoch_s"),
    ("jobs", "x,20", "y,20", 2, "application"), ("jobs", "x,20", "x,33", 2, "memory_gib"),
    ("jobs", "5,2.5", "5,5", 3, "epochs_done"), ("jobs", "old,K80,1", "odd,K80,1", 3, "node"),
    ("jobs", "old,K80,1", "old,,1", 3, "gpu"), ("jobs", "old,K80,1", "old,K80,", 3, "gpus"),
    ("jobs", "x,4,old", "x,13,old", 3, "node"), ("jobs", "B,0,", "B,5,", 3, "submission"),
    ("jobs", "A,0,", "A,now,", 2, "submission"), ("jobs", "A,0,", "A,-5,", 2, "submission"),
    ("jobs", "weight_eur_per_h", "weight", 1, "weight_eur_per_h"), ("jobs", "C,60", "A,60", 4, "job")])
def test_each_mistake_names_file_row_column_and_mend(written, table, right, wrong, row, column):
    assert GIVEN[table].count(right)
    with pytest.raises(InputError) as trouble:
        written(**{table: GIVEN[table].replace(right, wrong, 1)})
    error = trouble.value
    assert (error.row, error.column) == (row, column) and error.mend, str(error)
    assert Path(error.file).name == f"{table}.csv" or f"{table}.csv" in error.mend


def test_both_forms_of_watts_give_the_papers_prices_and_the_order_of_rows_does_not_matter(written):
    """360 W and 170 W for each TESLA, 320 W and 80 W for each TURING: the authors' watts, to the last bit."""
    whole = "gpu,gpus,watts\n" + "".join(f"{name},{watts:g}\n" for name, watts in NODE_POWER_W.items())
    nodes = "node,gpu,gpus,idle_w\n", "n1,TESLA,4,360\n", "n2,TURING,2,320\n"
    paper = {"nodes": "".join(nodes), "power": "gpu,idle_w,full_w\nTESLA,30,200\nTURING,10,90\n",
             "times": "application,gpu,gpus,epoch_s\nx,TESLA,1,100\nx,TURING,1,300\n",
             "jobs": "job,submission,due,epochs,priority,application\nj1,0,5000,10,3,x\nj2,60,900,4,5,x\n"}
    by_gpu = written(**paper)
    assert by_gpu.present is None and np.isclose(by_gpu.fleet.cost_eur_per_h[0, 4], 1.04 * 0.3)
    for other in (written(**paper | {"power": whole}), written(**paper | {"nodes": nodes[0] + nodes[2] + nodes[1]})):
        assert other.node_name == by_gpu.node_name
        assert all((a == b).all() for a, b in zip(by_gpu.fleet, other.fleet, strict=True))


def test_crowded_gpus_name_the_job_that_is_too_much(written):
    more = JOBS + "D,0,9000,5,1,1,x,4,old,K80,2\n"
    with pytest.raises(InputError, match=r"jobs.csv, row 5, column gpus: with it, old has 1 GPUs more"):
        written(jobs=more)


def test_a_machine_with_two_types_needs_watts_of_single_gpus(written):
    with pytest.raises(InputError, match=r"nodes.csv, row 2, column gpu: old has GPUs of two types"):
        written(power="gpu,gpus,watts\nK80,1,425\nK80,2,550\nV100,1,450\nV100,2,700\n")


def test_a_machine_that_stays_on_needs_its_idle_watts(written):
    with pytest.raises(InputError, match=r"nodes.csv, row 2, column idle_w: new has no idle_w, and --asleep-after"):
        written(terms=TERMS | {"off_after_s": 60.0}, nodes="node,gpu,gpus,memory_gib\nnew,V100,2,32\n",
                power="gpu,gpus,watts\nV100,1,450\nV100,2,700\n")


def test_own_times_of_a_job_go_before_its_application_s(written):
    head, *rows = JOBS.splitlines()
    wide = "\n".join([head + ",epoch_s V100x1", rows[0] + ",50", rows[1] + ",", rows[2] + ","]) + "\n"
    instance = written(jobs=wide)
    assert instance.jobs.times_s[0].tolist() == [np.inf, np.inf, 1500, 1800, 1500]
    with pytest.raises(InputError, match="column epoch_s V100: this column says nothing about GPUs"):
        written(jobs=wide.replace("V100x1", "V100"))


def test_rules_keep_what_runs_and_others_say_what_they_interrupt(written):
    instance = written()
    kept = decide_now(instance, "edf")
    assert kept.node[1] == 1 and interruptions(instance, kept, "moved")["kept"] == 1
    stopped = Assignment(np.full(3, -1), np.full(3, -1))
    assert interruptions(instance, stopped, "none")["lost_epochs"] == 0
    assert interruptions(instance, stopped, "moved") == {"kept": 0, "moved": 0, "stopped": 1, "lost_epochs": 0.5}
    assert interruptions(instance, kept, "moved")["lost_epochs"] == 0
    assert interruptions(instance, kept, "always")["lost_epochs"] == 0.5


def test_half_machines_cost_what_the_machine_draws(written):
    instance = written(terms=TERMS | {"off_after_s": 300.0})
    for policy in ("edf", "greedy", "local"):
        day = simulate(instance, policy, loss="moved")
        draws = draws_of(instance, day.history, day.horizon)
        assert day.energy_eur == pytest.approx(eur_of(instance, draws), rel=1e-9)
        assert day.empty_eur > 0


TABLES = ("jobs", "nodes", "power", "times")


def test_the_example_of_forty_jobs_runs_from_its_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("example", "andreas", ".") == 0
    words = ["andreas", *(word for name in (*TABLES, "price", "carbon") for word in (f"--{name}", f"mixed-{name}.csv")),
             "--now", "2026-03-02T08:00", "--asleep-after", "15", "--loss", "moved", "--simulate",
             "--policy", "edf", "--out", "day", "--no-charts"]
    assert call(*words) == 0
    summary = json.loads(Path("day/summary.json").read_text())
    assert summary["total_eur"] == pytest.approx(summary["energy_eur"] + summary["penalty_eur"])
    assert summary["total_eur"] >= summary["lower_bound_eur"] > 0 and summary["empty_eur"] > 0
    jobs_eur = sum(job["energy_eur"] for job in summary["jobs"])
    assert jobs_eur + summary["empty_eur"] == pytest.approx(summary["energy_eur"])
    assert summary["co2_kg"] > 0 and "mixed-price.csv" in summary["energy_assumptions"]
    table = Path("day/schedule.csv").read_text()
    assert ",m1,K80," in table or ",m1,V100," in table


def test_prices_must_hold_until_the_end_and_not_be_negative(tmp_path):
    files = (embedded(f"andreas/{name}.csv") for name in TABLES)
    instance, zero = read_files(*files, now="2026-03-02T08:00")
    wrong = {"is needed": "time,value\n0,0.2\n30000,0.1\n", "below 0": "time,value\n0,0.2\n900000,-0.1\n"}
    for words, text in wrong.items():
        (tmp_path / "price.csv").write_text(text)
        tariff = tariff_of(str(tmp_path / "price.csv"), "", zero.isoformat(), (28800.0, 28800.0))
        with pytest.raises(InputError, match=words):
            report_of(instance, "edf", is_simulated=True, tariff=tariff)


@pytest.mark.parametrize(("words", "complaint"), [
    (["--instance", "x.json", "--jobs", "x.csv"], "--instance and --jobs"),
    (["--instance", "x.json", "--pue", "1.2"], "--instance and --pue"),
    (["--instance", "x.json", "--hardware", "x.toml"], "--instance and --hardware"),
    (["--jobs", "x.csv"], "--nodes is missing"), ([], "--jobs is missing")])
def test_options_that_do_not_go_together(tmp_path, capsys, words, complaint):
    assert call("andreas", *words, "--out", tmp_path / "out") == 2 and complaint in capsys.readouterr().err


def test_a_catalogue_fills_in_what_the_tables_leave_out_and_nothing_else(tmp_path, written):
    own = tmp_path / "own.toml"
    own.write_text('[gpu."V100"]\nidle_w = 40\nfull_w = 340\nmemory_mib = 16384\n')
    nodes = NODES.replace("V100,1,32", "V100,1,").replace("K80,2,12", "K80,2,")
    power = "gpu,idle_w,full_w\nK80,25,150\n"
    light = JOBS.replace("x,20", "x,4")
    with pytest.raises(InputError, match="there are no watts of 'V100'[^\n]*--hardware"):
        written(nodes=nodes, power=power, jobs=light)
    catalogue = read_hardware(own)
    instance = written(nodes=nodes, power=power, jobs=light, terms=TERMS | {"hardware": catalogue})
    names = dict(zip(instance.node_name, instance.fleet.node_type.tolist(), strict=True))
    memory = {name: instance.memory.gpu_mib[kind] for name, kind in names.items()}
    k80 = float(catalogue.gpu("K80").memory_mib)
    assert memory == {"new": 32 * 1024, "old:K80": k80, "old:V100": 16384}
    added = {name: instance.site.added_w[kind, 1] for name, kind in names.items()}
    assert added == {"new": 300, "old:K80": 125, "old:V100": 300}


def test_the_command_takes_a_catalogue_and_records_its_checksum(written):
    written()
    for name, more_w in (("a", 300), ("b", 100)):
        Path(f"{name}.toml").write_text(f'[gpu."V100"]\nidle_w = 40\nfull_w = {40 + more_w}\nmemory_mib = 32768\n')
    Path("power.csv").write_text("gpu,idle_w,full_w\nK80,25,150\n")
    words = [word for name in TABLES for word in (f"--{name}", f"{name}.csv")]
    eq1, files = {}, {}
    for name in "ab":
        assert call("andreas", *words, "--hardware", f"{name}.toml", "--policy", "greedy", "--out", name,
                    "--no-charts") == 0
        summary = json.loads(Path(name, "summary.json").read_text())
        eq1[name], files[name] = summary["objective_eur"], summary["inputs"]["files"]
    assert eq1["a"] > eq1["b"]
    assert {kind for kind in files["a"] if files["a"][kind] != files["b"][kind]} == {"hardware"}
