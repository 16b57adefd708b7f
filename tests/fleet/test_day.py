"""One day of one cluster: every schedule is checked, nothing beats the bound, and savings add up."""
import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.cluster import Cluster
from sched_lab.fleet.ask import day_run
from sched_lab.fleet.ask.day import (
    ASLEEP_W,
    COUNTS,
    HORIZON_S,
    TICK_S,
    Happened,
    bill_of_day,
    bound_of_day,
    check_day,
    draw_day,
    drawn_of,
    holdings_of,
    nodes_of,
    power_of_nodes,
    whole_day,
)
from sched_lab.fleet.replay.bounds import energy_bounds, floors_of
from sched_lab.holdings import check_holdings
from sched_lab.lab.frames import InputError
from tests.command_line import assert_refused, call

MODELS = ("T4", "V100M16", "P100", "K80", "A100")


def cluster_of(*models: str) -> Cluster:
    """Return a node of four GPUs for each model."""
    count = len(models)
    return Cluster(np.array([f"n{i}" for i in range(count)], object), np.full(count, 64_000),
                   np.full(count, 262_144), np.full(count, 4), np.array(models, object), np.full(count, "", object))


@cache
def small():
    """Return a day of five nodes, its parts, and what the plain variant made of it."""
    day = draw_day(nodes_of(cluster_of(*MODELS)), 3)
    services, rooms, batches = day_run.prepare_day(day)
    runs, end_s = day_run.train(day, rooms[False], day_run.TRAINERS["plain"])
    return day, rooms, Happened(services[False], runs, end_s, batches[False])


@cache
def frame() -> pd.DataFrame:
    """All variants of that day."""
    return day_run.run_day(small()[0]).assign(seed=3)


def test_every_variant_of_a_day_is_there_and_none_beats_the_bound():
    found = frame()
    assert found["variant"].tolist() == [*day_run.VARIANTS, *day_run.EXTRA]
    assert (found["energy_kwh"] > found["bound_kwh"]).all() and (found["total_eur"] > found["bound_eur"]).all()
    assert found["bound_eur"].gt(0).all() and np.isfinite(found.drop(columns="variant").to_numpy(float)).all()


def test_what_shares_no_node_saves_the_same_with_all_others():
    found = frame().set_index(["seed", "variant"])["total_eur"]
    saved = [found[3, name] - found[3, name.replace(day_run.PLAIN, "") + "F"]
             for name in day_run.VARIANTS if "F" not in name]
    assert np.ptp(saved) < 1e-9 and abs(saved[0]) > 0


def test_shares_add_up_to_what_all_save_together():
    effects = day_run.effects_of(frame(), "total_eur").set_index(["idea", "way"])["saving"]
    found = frame().groupby("variant")["total_eur"].mean()
    assert effects.xs("share", level="way").sum() == pytest.approx(found[day_run.PLAIN] - found[day_run.ALL])
    assert effects["all four", "together"] == pytest.approx(found[day_run.PLAIN] - found[day_run.ALL])
    assert effects["PWR+FGD", "alone"] == pytest.approx(found[day_run.PLAIN] - found["P"])
    assert effects["FAR", "last"] == pytest.approx(found["PAH"] - found[day_run.ALL])


def changed(column: str, row: int, value: float):
    """Make a change of one number of a run."""
    def change(happened: Happened) -> Happened:
        values = getattr(happened.runs, column).copy()
        values[row] = value
        return replace(happened, runs=happened.runs._replace(**{column: values}))
    return change


def with_services(**columns):
    """Make a change of columns of services, each a function of the old one."""
    def change(happened: Happened) -> Happened:
        new = {name: of(getattr(happened.services, name).copy()) for name, of in columns.items()}
        return replace(happened, services=happened.services._replace(**new))
    return change


def with_runs(of):
    """Make a change of all columns of the runs."""
    return lambda happened: replace(happened, runs=type(happened.runs)(*map(of, happened.runs)))


def batch_at_once(happened: Happened) -> Happened:
    first = happened.batches[0]
    length_s = first.end_s - first.start_s
    return replace(happened, batches=(replace(first, start_s=0 * length_s, end_s=length_s),))


@pytest.mark.parametrize(("change", "words"), [
    (changed("start_s", 0, -TICK_S), "is not free before"), (changed("end_s", 0, 1e9), "torn gang|steps|horizon"),
    (changed("gpu_mask", 0, 7), "cannot run where it is"), (changed("node", 0, 4), "cannot run where it is"),
    (changed("node", 0, 0), "cannot run where it is"), (with_runs(lambda column: column[:-1]), "steps"),
    (with_runs(lambda column: np.append(column, column[:1])), "torn gang"),
    (lambda happened: replace(happened, end_s=happened.end_s - 1), "its last run at"),
    (with_services(start_s=lambda s: s + 1, end_s=lambda s: s + 1), "between two"),
    (with_services(end_s=lambda s: s + 1), "does not run for its duration"),
    (with_services(start_s=lambda s: s - TICK_S, end_s=lambda s: s - TICK_S), "before it is submitted"),
    (with_services(node=lambda n: np.full_like(n, 4)), r"Cond. [456]"),
    (with_services(node=lambda n: 0 * n - 1), "without a node"),
    (with_services(node=lambda n: np.full_like(n, 1)), r"Cond. [135]"),
    (batch_at_once, "instance|task|overlap|slice")])
def test_a_wrong_day_is_refused(change, words):
    day, _, happened = small()
    check_day(day, happened)
    with pytest.raises(ValueError, match=words):
        check_day(day, change(happened))


def test_a_gpu_that_a_service_takes_is_not_held_by_a_job():
    day, rooms, happened = small()
    for job, node, mask, start_s, end_s in zip(*happened.runs, strict=True):
        ticks = slice(int(start_s // TICK_S), int(-(-end_s // TICK_S)))
        gpus = np.flatnonzero(mask >> np.arange(4) & 1)
        assert rooms[False].is_whole[ticks, node][:, gpus].all(), (job, start_s)
    assert (rooms[False].usable[:, day.nodes.train_type < 0] == 0).all()


def test_the_bill_is_that_of_the_meter_and_of_the_due_dates():
    day, _, happened = small()
    bill = bill_of_day(day, happened)
    late = np.maximum(0, happened.end_s - day.training.due_s) @ day.training.weight_eur_per_s
    assert bill["job_penalty_eur"] == pytest.approx(late)
    assert bill["total_eur"] == pytest.approx(bill["energy_eur"] + late + bill["batch_penalty_eur"])
    check_holdings(day.nodes.cluster, holdings_of(day, happened))
    assert power_of_nodes(day.nodes).gpu_full_w.tolist() == [70, 300, 250, 149, 400]


def test_the_bound_is_below_that_of_the_same_tasks_at_the_same_times():
    day, _, happened = small()
    problem, schedule = whole_day(day, happened)
    _, asleep = energy_bounds(problem, schedule, floors_of(problem, day.nodes.power, ASLEEP_W), (0.0, HORIZON_S))
    assert bound_of_day(day)["energy_kwh"] < asleep < bill_of_day(day, happened)["energy_kwh"]


def now(day, free, places=None, jobs=(0, 1, 2)) -> day_run.Now:
    return day_run.Now(0.0, np.array(jobs), day.training.steps.copy(), np.array(free), places or {})


def test_plain_training_keeps_who_runs_and_takes_the_earliest_due_date_first():
    day = small()[0]
    training = day.training._replace(gpus=np.ones(len(day.training.steps), int))
    due = training.due_s.copy()
    due[:3] = [30.0, 20.0, 10.0]
    day = replace(day, training=training._replace(due_s=due))
    assert day_run.decide_plainly(day, now(day, [0, 1, 0, 0, 0])) == {2: {1: 1}}
    assert day_run.decide_plainly(day, now(day, [0, 1, 0, 0, 0], {0: {1: 1}})) == {0: {1: 1}}
    assert day_run.decide_plainly(day, now(day, [0, 1, 0, 0, 0], {0: {2: 1}})) == {2: {1: 1}}
    assert day_run.decide_plainly(day, now(day, [0, 0, 0, 0, 0])) == {}


@pytest.mark.parametrize("name", day_run.TRAINERS)
def test_whoever_decides_keeps_to_the_open_gpus(name):
    day = small()[0]
    jobs = np.arange(len(day.training.steps))
    places = day_run.TRAINERS[name](day, now(day, [0, 3, 1, 2, 0], {0: {1: 2}, 1: {3: 4}}, jobs))
    taken = np.zeros(5, int)
    for place in places.values():
        assert sum(place.values()) in COUNTS
        for node, gpus in place.items():
            taken[node] += gpus
    assert (taken <= [0, 3, 1, 2, 0]).all() and taken.sum() > 0
    assert day_run.TRAINERS[name](day, now(day, [0] * 5)) == {}


def test_who_keeps_number_and_type_keeps_node_and_gpus():
    day = small()[0]
    types = np.zeros(5, np.int64)
    here = now(day, [0, 2, 2, 0, 0], {0: {2: 1}, 1: {1: 2}})
    assert day_run.settled(day, here, types, {0: {1: 1}, 1: {1: 1}}) == {0: {2: 1}, 1: {2: 1}}
    is_whole = np.array([[False, True, True, True]])
    assert day_run.seats_of({0: {0: 1}, 1: {0: 2}}, {0: {0: 4}, 1: {0: 3}}, is_whole) == {0: {0: 4}, 1: {0: 10}}
    with pytest.raises(ValueError, match="2 GPUs are asked for"):
        day_run.seats_of({0: {0: 2}}, {}, np.array([[True, False]]))


def test_a_cluster_says_what_had_to_be_assumed():
    nodes = nodes_of(cluster_of("T4", "L4"))
    assert nodes.train_type.tolist() == [1, 0] and nodes.type_name == ("L4", "T4")
    assert "no training speed is known for L4, T4" in drawn_of(nodes).replace("No", "no")
    assert draw_day(nodes, 0).batches == ()
    assert nodes_of(cluster_of(*MODELS)).notes == ()
    for cluster, words in ((cluster_of("A100"), "none is left for services"),
                           (cluster_of("T4", "GPU of tomorrow"), "GPU of tomorrow")):
        with pytest.raises(InputError, match=words):
            nodes_of(cluster)


def test_a_day_that_does_not_end_is_an_error():
    day, rooms, _ = small()
    with pytest.raises(InputError, match="jobs are not done"):
        day_run.train(day, rooms[False], lambda day, now: {})


def test_the_report_says_what_was_drawn():
    day = small()[0]
    report = day_run.report_of_days(frame(), day.nodes, day.tariff)
    assert report.headline.startswith("all four ideas save") and list(report.tables) == ["days.csv", "effects.csv"]
    assert "drawn in proportion" in report.summary["drawn"] and "EUR/kWh" in report.summary["energy_assumptions"]
    assert report.summary["all_kwh"] > report.summary["bound_kwh"] > 0
    drawn = report.charts["worth.svg"]().to_dict()
    words = "[A-Za-z+ ]+"
    assert drawn["vconcat"]
    assert re.fullmatch(f"{words} saves most money, {words} most energy, {words} most time", drawn["title"])


def some_days(pairs):
    """Cost of days without and with all ideas."""
    return pd.DataFrame([{"seed": seed, "variant": name, "total_eur": eur} for seed, pair in enumerate(pairs)
                         for name, eur in zip((day_run.PLAIN, day_run.ALL), pair, strict=True)])


@pytest.mark.parametrize(("pairs", "words"), [
    ([(36, 14)], ", 61 %"),
    ([(22, 14), (50, 13)], ", 62 % (36 to 74 % on each of 2 days)"),  # 22 of 36 EUR, 8 and 37 on single days
    ([(36, 18)] * 10, ", 50 % (95 % interval: 50 to 50 %)"), ([(10, 20)] * 3, ""), ([(0, 0)], "")])
def test_what_is_saved_is_a_share_of_what_there_was(pairs, words):
    """The saving of one day may be more than the mean cost of all; it is never more than its own cost."""
    assert day_run.share_saved(some_days(pairs)) == words


NODES = "name,gpu_model,num_gpus,cpu_milli,memory_mib\n" + "".join(
    f"n{i},{model},4,64000,262144\n" for i, model in enumerate(MODELS)) + "cpu,,0,64000,262144\n"
TASKS = "name,submit_s,num_gpus,gpu_milli,cpu_milli,memory_mib\na,0,1,1000,4000,1024\n"


def test_the_command_lets_days_pass_on_a_cluster_that_was_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("own.csv").write_text(NODES)
    Path("jobs.csv").write_text(TASKS)
    assert call("read", "csv", "jobs.csv", "--nodes", "own.csv", "--out", "mine") == 0
    asked = ("day", "mine", "--days", "1", "--seed", "3", "--out", "worth", "--no-charts")
    assert call(*asked) == 0 and call(*asked) == 0
    assert "(kept)" in capsys.readouterr().out
    days = pd.read_csv("worth/days.csv")
    usual = frame().query("seed == 3").reset_index(drop=True)
    assert days["variant"].tolist() == [*day_run.VARIANTS, *day_run.EXTRA]
    assert set(pd.read_csv("worth/effects.csv")["idea"]) >= {*day_run.IDEAS.values()}
    assert np.allclose(days["energy_kwh"], usual["energy_kwh"])
    summary = json.loads(Path("worth/summary.json").read_text())
    assert "left out: 1" in summary["drawn"] and "0.1717 EUR/kWh" in summary["energy_assumptions"]
    asked = (("--days", "2"), "answer to another question"), (("--price", "cheap.csv", "--force"), "cheap")
    for given, words in asked:
        assert_refused(call("day", "mine", "--out", "worth", *given), capsys, words)
    Path("own.csv").write_text(NODES.replace("T4", "").replace("A100,4", ",0"))
    assert call("read", "csv", "jobs.csv", "--nodes", "own.csv", "--out", "few") == 0
    capsys.readouterr()
    kept = Path("few/tasks.csv").read_text().splitlines(True)[:1]
    Path("few/tasks.csv").write_text("".join(kept))
    assert call("day", "few", "--nodes", "2", "--days", "1", "--out", "less", "--no-charts") == 0
    assert capsys.readouterr().out.endswith("next: sched-lab check few\n")  # there is nothing to replay
    drawn = json.loads(Path("less/summary.json").read_text())["drawn"]
    assert "One node in 2 stands for the 3" in drawn and "FAR is worth nothing" in drawn
