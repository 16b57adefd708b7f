"""`sched-lab andreas`: an instance file in, a decision or a day out, one line for what is wrong."""
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.andreas.greedy import SearchOptions
from sched_lab.andreas.instances import TOY, armida, generate, toy_instance
from sched_lab.andreas.model import HISTORY, Assignment, check_assignment, check_schedule
from sched_lab.andreas.policies import POLICIES, day_policies, decide_now
from sched_lab.andreas.proxy import PERIOD_S, RHO, paper_objective
from sched_lab.andreas.report import report_of
from sched_lab.andreas.simulation import lower_bound_eur, simulate
from tests.command_line import assert_refused, call, content

NUMBERS = {"schedule.csv", "summary.json"}
RESULT = NUMBERS | {"gantt.svg", "report.html"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with jobs.json."""
    monkeypatch.chdir(tmp_path)
    Path("jobs.json").write_text(json.dumps(TOY))
    return tmp_path


def andreas(*options, instance="jobs.json", out="out"):
    """Exit code of the command."""
    return call("andreas", "--instance", instance, "--out", out, *options)


def history_written(instance, table):
    """Read the history that schedule.csv describes."""
    names = [instance.configuration_name(c) for c in range(len(instance.fleet.configuration_gpus))]
    wanted = table["gpu_type"] + "," + table["gpus"].astype(str)
    columns = ([instance.job_name.index(job) for job in table["job"]],
               [instance.node_name.index(node) for node in table["node"]], [names.index(name) for name in wanted],
               table["start_s"], table["end_s"])
    return pd.DataFrame(dict(zip(HISTORY, columns, strict=True)))


@pytest.mark.parametrize("policy", day_policies())
def test_a_day_that_is_written_is_valid_and_its_books_balance(policy, capsys):
    assert andreas("--policy", policy, "--simulate", "--no-charts") == 0
    assert set(content("out")) == NUMBERS
    toy = toy_instance()
    costs = json.loads(Path("out/summary.json").read_text())
    check_schedule(toy, history_written(toy, pd.read_csv("out/schedule.csv")))
    assert costs["total_eur"] == pytest.approx(simulate(toy, policy).total_eur, rel=1e-11)
    assert costs["total_eur"] == pytest.approx(costs["energy_eur"] + costs["penalty_eur"])
    for part in ("energy_eur", "penalty_eur"):
        assert sum(job[part] for job in costs["jobs"]) == pytest.approx(costs[part])
    assert costs["late_jobs"] == sum(job["tardiness_s"] > 0 for job in costs["jobs"])
    assert costs["lower_bound_eur"] == pytest.approx(3.60) and costs["total_eur"] >= 3.60
    assert costs["above_bound_percent"] == pytest.approx(100 * (costs["total_eur"] / 3.60 - 1))
    assert f"{costs['total_eur']:.2f} EUR" in capsys.readouterr().out


@pytest.mark.parametrize("policy", POLICIES)
def test_a_decision_that_is_written_is_the_policy_s_own(policy):
    assert andreas("--policy", policy, "--no-charts") == 0
    toy = toy_instance()
    table = pd.read_csv("out/schedule.csv")
    costs = json.loads(Path("out/summary.json").read_text())
    history = history_written(toy, table)
    decided = decide_now(toy, policy)
    assert sorted(history["job"]) == np.flatnonzero(decided.node >= 0).tolist()
    assert (history["node"].to_numpy() == decided.node[history["job"]]).all()
    assert (history["configuration"].to_numpy() == decided.configuration[history["job"]]).all()
    assert (table["start_s"] == 0).all()
    assert costs["running"] == len(table) and costs["waiting"] == 4 - len(table) and costs["not_submitted"] == 1
    four = type(toy.jobs)(*(column[:4] for column in toy.jobs))
    own = Assignment(decided.node[:4], decided.configuration[:4])
    check_assignment(toy.fleet, four.times_s, own)
    assert costs["objective_eur"] == pytest.approx(paper_objective(toy.fleet, four, 0.0, *own, RHO, PERIOD_S))
    assert costs["bound_eur"] == pytest.approx(4.62) and costs["is_bound_reached"]
    assert costs["gap_percent"] >= -1e-6 and (policy != "exact" or costs["gap_percent"] == pytest.approx(0, abs=1e-6))


def test_only_jobs_that_have_been_submitted_are_placed():
    Path("jobs.json").write_text(json.dumps(TOY | {"now_s": 600.0}))
    assert andreas("--policy", "fifo", "--no-charts") == 0
    costs = json.loads(Path("out/summary.json").read_text())
    assert costs["not_submitted"] == 0 and costs["running"] + costs["waiting"] == 5
    assert (pd.read_csv("out/schedule.csv")["start_s"] == 600).all()


def test_a_queue_of_more_than_twelve_jobs_is_not_compared_with_the_best_decision():
    many = generate(1, 3, 1.0)
    late = type(many)(**(vars(many) | {"now_s": float(many.jobs.submission_s.max())}))
    assert "bound_eur" not in report_of(late, "greedy").summary
    assert "bound_eur" in report_of(toy_instance(), "greedy").summary


def test_exact_search_always_says_how_good_it_can_be():
    many = generate(1, 2, 1.0)
    late = type(many)(**(vars(many) | {"now_s": float(np.sort(many.jobs.submission_s)[13])}))
    costs = report_of(late, "exact", how=SearchOptions(time_limit_s=20.0)).summary
    assert costs["running"] + costs["waiting"] == 14 and "is_bound_reached" in costs
    assert costs["bound_eur"] <= costs["objective_eur"] + 1e-9


def test_options_reach_the_policies():
    how = SearchOptions(max_iterations=7, seed=99)
    for out, rounds in {"a": 7, "b": 1}.items():
        assert andreas("--policy", "rg", "--simulate", "--seed", 99, "--max-iterations", rounds, "--no-charts",
                       out=out) == 0
    a, b = (json.loads(Path(out, "summary.json").read_text()) for out in "ab")
    assert a["seed"] == 99 and a["total_eur"] == pytest.approx(simulate(toy_instance(), "rg", how=how).total_eur)
    assert b["total_eur"] == pytest.approx(simulate(toy_instance(), "greedy").total_eur)
    assert andreas("--policy", "greedy", "--simulate", "--period", 300, "--loss", "always", "--no-charts", out="c") == 0
    c = json.loads(Path("c/summary.json").read_text())
    slow = simulate(toy_instance(), "greedy", period_s=300, loss="always")
    assert c["total_eur"] == pytest.approx(slow.total_eur) and c["decisions"] == len(slow.intervals)


def test_the_same_command_writes_the_same_bytes():
    for out in ("one", "two"):
        assert andreas("--policy", "local", "--simulate", out=out) == 0
    assert content("one") == content("two") and set(content("one")) == RESULT


def test_the_bound_of_one_job_that_fills_a_node_is_reached():
    one = TOY | {"jobs": [TOY["jobs"][2] | {"times_s": {"TESLA,2": 1500.0}}]}
    Path("jobs.json").write_text(json.dumps(one))
    assert andreas("--policy", "edf", "--simulate", "--no-charts") == 0
    costs = json.loads(Path("out/summary.json").read_text())
    assert costs["total_eur"] == pytest.approx(0.72 * 1500 / 3600) == pytest.approx(costs["lower_bound_eur"])


def test_the_bound_looks_at_what_some_node_offers_only():
    instance = armida()
    fast = instance.jobs.times_s.copy()
    fast[:, [c for c in range(fast.shape[1]) if instance.configuration_name(c) == "TESLA,2"]] = 1.0
    smaller = instance.fleet._replace(node_gpus=np.ones_like(instance.fleet.node_gpus))
    assert instance.fleet.configuration_gpus.max() == 2
    without = type(instance)(**(vars(instance) | {"fleet": smaller}))
    with_fast = type(instance)(**(vars(without) | {"jobs": instance.jobs._replace(times_s=fast)}))
    assert lower_bound_eur(with_fast) == pytest.approx(lower_bound_eur(without))


def with_job(**changes):
    return json.dumps(TOY | {"jobs": [TOY["jobs"][0] | changes, *TOY["jobs"][1:]]})


def test_a_due_date_before_the_submission_is_a_warning(capsys):
    Path("jobs.json").write_text(with_job(submission_s=3000.0))
    assert andreas("--policy", "edf", "--simulate", "--no-charts") == 0
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "warning" in said and "jobs[0] (A)" in said and "jobs.json" in said


@pytest.mark.parametrize(("text", "options", "words"), [
    (with_job(times_s={"TURNIG,1": 5.0}), [], ["jobs[0] (A)", "TURNIG", "TESLA, TURING"]),
    (json.dumps(TOY | {"jobs": []}), [], ["no job"]),
    ("{", [], ["jobs.json"]),
    (json.dumps(TOY), ["--policy", "best"], ["'best'", "local", "exact"]),
    (json.dumps(TOY), ["--policy", "edf", "--loss", "all"], ["'all'", "moved"]),
])
def test_what_is_wrong_is_one_line_and_writes_nothing(text, options, words, capsys):
    Path("jobs.json").write_text(text)
    assert_refused(andreas("--simulate", *options), capsys, *words)
