"""The page of a comparison: right sentences for any numbers, and nothing that runs for any names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.cluster import Cluster
from sched_lab.fleet.read.tables import Ledger
from sched_lab.fleet.replay import report
from sched_lab.fleet.replay.compare import LEVERS, Comparison, Outcome
from sched_lab.fleet.replay.intervals import ONE, Estimate
from sched_lab.fleet.replay.problem import Problem, Schedule
from sched_lab.fleet.replay.report import (
    Difference,
    Reading,
    answer_of,
    charts_of,
    domain_of,
    lever_chart,
    lever_sentence,
    page_of,
    percent,
    sizes_of,
    trade_frame,
)
from sched_lab.fleet.replay.waits import Waits
from tests.fleet.problems import problem_like, tasks_like, texts
from tests.test_pages import HOSTILE, read

SURE = (200, 0.1, 3600.0, "")  # how often and how long somebody waits, and no reason against an interval
NAMES = [name for name in HOSTILE if "\ud800" not in name]
BASE = {"served_tasks": 40.0, "refused_tasks": 0.0, "refused_task_share": 0.0, "refused_gpu_h": 0.0,
        "refused_gpu_h_share": 0.0, "mean_wait_s": 600.0, "p99_wait_s": 900.0, "allocated_gpu_h": 40.0,
        "stranded_gpu_h": 5.0, "energy_kwh": 100.0, "energy_asleep_kwh": 80.0, "cost": np.nan, "co2_kg": np.nan,
        "bound_mean_wait_s": 0.0, "bound_energy_kwh": 60.0, "bound_energy_asleep_kwh": 50.0}


@pytest.fixture(autouse=True)
def undrawn(monkeypatch, request):
    """Charts are made, and drawn for one page only."""
    if "pictures" not in request.node.name:
        monkeypatch.setattr(report, "svgs_of", lambda charts: dict.fromkeys(charts(), "<svg></svg>"))


def a_problem(tasks: int = 40, nodes: int = 3, name: str = "n") -> Problem:
    cluster = Cluster(texts(f"{name}{i}" for i in range(nodes)), np.full(nodes, 8000), np.full(nodes, 8000),
                      np.full(nodes, 2), texts(["T4"] * nodes), texts([""] * nodes))
    rows = replace(tasks_like([1] * tasks), name=texts(f"{name}{i}" for i in range(tasks)))
    return problem_like(cluster, rows, np.zeros(tasks), np.full(tasks, 3600), user=texts([name] * tasks),
                        queue=texts([name] * tasks), ledger=Ledger().frame())


def an_outcome(problem: Problem, policy: str, row: Mapping[str, float]) -> Outcome:
    tasks = len(problem.submit_s)
    node = np.arange(tasks) % len(problem.cluster)
    start = 600.0 * np.arange(tasks)
    schedule = Schedule(node, np.ones(tasks, np.int64), start, start + 3600)
    bins = np.arange(10.0)
    power_w = 1000 + bins if row["energy_kwh"] >= 0 else bins * np.nan
    curve = pd.DataFrame({"start_s": 600 * bins, "end_s": 600 * bins + 600, "allocated_gpu": 1 + bins % 3,
                          "waiting_tasks": bins % 2, "eopc_w": power_w})
    failures = pd.DataFrame({"task_row": [], "task": [], "state": [], "failed_for": []})
    return Outcome(policy, schedule, curve, failures, Waits(start, np.ones(tasks)))


def a_comparison(rows: Mapping[str, Mapping[str, float]], differences: Mapping[str, Mapping[str, Any]] | None = None,
                 problem: Problem | None = None) -> Comparison:
    """Make a comparison of rows of a summary, as they differ from `BASE`, and of differences."""
    problem = problem or a_problem()
    full = {name: {**BASE, **row} for name, row in rows.items()}
    summary = pd.DataFrame([{"policy": name, **row} for name, row in full.items()])
    against = next(iter(rows))
    lines = [(name, against, quantity, *values, *SURE)
             for name, own in (differences or {}).items() for quantity, values in own.items()]
    columns = ["policy", "against", "quantity", *Estimate._fields]
    parts = [("all", ""), ("size", "1 GPU"), ("user", str(problem.user[0]) if len(problem.user) else "")]
    waits = pd.DataFrame([(name, by, value, 4, full[name]["mean_wait_s"], 500.0, 900.0, 1.2) for name in rows
                          for by, value in parts if len(problem.submit_s)],
                         columns=["policy", "by", "value", "tasks", "mean_wait_s", "p50_wait_s", "p99_wait_s",
                                  "mean_slowdown"])
    about = {"policies": list(rows), "against": against, "from_s": 0.0, "until_s": 6000.0, "seed": 0, "price": "",
             "confidence": 0.95, "assumptions": ["a task runs for as long as it did"]}
    outcomes = {name: an_outcome(problem, name, full[name]) for name in rows}
    return Comparison(problem, outcomes, summary, waits, pd.DataFrame(lines, columns=columns), pd.DataFrame(), about)


def said(comparison: Comparison) -> str:
    """All sentences of the first screen."""
    parts = [[part] if isinstance(part, str) else part for part in answer_of(Reading(comparison))]
    return "\n".join(line for part in parts for line in part)


SAVING = {"energy_kwh": (-12.0, -14.0, -10.0), "energy_asleep_kwh": (-2.0, -5.0, 1.0),
          "mean_wait_s": (-130.0, -300.0, -60.0)}


def test_a_clear_saving_is_said_with_its_amount_and_its_interval():
    row = {"energy_kwh": 88.0, "mean_wait_s": 470.0, "stranded_gpu_h": 4.0}
    words = said(a_comparison({"recorded": {}, "pwr": row}, {"pwr": SAVING}))
    assert words.startswith("pwr drew 12 % less energy (10 % to 14 %) than recorded (100 kWh). All policies served")
    assert "mean wait 2.17 min less (60 s to 5 min); " in words
    assert "pwr left fewest GPU hours stranded" in words and "4, against 5 of recorded." in words
    assert "draws less than 60 kWh, so at most 31.8 % of its energy can still be saved" in words
    assert "with empty nodes asleep no clear difference" in words and "recorded is what really ran." in words


def test_a_policy_that_does_less_work_has_not_saved_it_all():
    row = {"energy_kwh": 88.0, "served_tasks": 39.0, "refused_tasks": 1.0, "allocated_gpu_h": 30.0}
    words = said(a_comparison({"fgd": {}, "pwr": row}, {"pwr": SAVING}))
    assert "It also did 25 % less work (GPU hours), so part of this is no saving." in words
    assert "fgd served most tasks, 40 of 40, and pwr fewest, 39." in words and "served tasks 1 fewer" in words


def test_an_interval_with_zero_in_it_is_no_clear_difference():
    words = said(a_comparison({"fgd": {}, "pwr": {"energy_kwh": 99.0, "mean_wait_s": 605.0}},
                              {"pwr": {"energy_kwh": (-1.0, -3.0, 0.0), "mean_wait_s": (5.0, -9.0, 20.0)}}))
    assert "No policy drew clearly less energy than fgd (100 kWh)." in words
    assert "pwr: energy no clear difference; mean wait no clear difference; served tasks the same." in words
    assert "pwr drew" not in words


def test_equal_policies_are_called_equal():
    zero = {"energy_kwh": (0.0, 0.0, 0.0), "mean_wait_s": (0.0, 0.0, 0.0)}
    words = said(a_comparison({"fgd": {}, "pwr": {}, "joint": {}}, {"pwr": zero, "joint": zero}))
    assert "pwr: energy the same; mean wait the same; served tasks the same." in words
    assert "All left the same number of GPU hours stranded" in words and "same number of tasks, 40 of 40" in words


def test_a_policy_alone_is_not_compared():
    words = said(a_comparison({"fgd": {}}))
    assert words.startswith("fgd served 40 of 40 tasks; it drew 100 kWh, and a task waited 10 min on average.")
    assert "no other policy to compare it with" in words


def test_unknown_watts_are_not_made_up():
    nothing = dict.fromkeys(("energy_kwh", "energy_asleep_kwh", "bound_energy_kwh", "bound_energy_asleep_kwh"), np.nan)
    comparison = a_comparison({"recorded": nothing, "fgd": nothing}, {"fgd": {"mean_wait_s": (9.0, 1.0, 20.0)}})
    words = said(comparison)
    assert words.startswith("How much energy the policies drew is not known") and "kWh" not in words
    page = page_of(comparison)
    assert "Not known, or not asked for: energy_kwh, energy_asleep_kwh, cost" in page
    assert "Power of the cluster" not in page and "GPUs that tasks hold" in page


def test_nothing_to_serve_is_nothing_to_compare():
    comparison = a_comparison({"fgd": {"mean_wait_s": np.nan, "served_tasks": 0.0}, "pwr": {"mean_wait_s": np.nan}},
                              problem=a_problem(0))
    assert said(comparison) == "There are no tasks, so there is nothing to compare."
    found = read(page_of(comparison))
    assert "What was assumed" in found.texts and "Who waited" not in found.texts


def test_no_task_that_started_has_no_wait():
    row = {"served_tasks": 0.0, "refused_tasks": 40.0, "mean_wait_s": np.nan, "p99_wait_s": np.nan,
           "allocated_gpu_h": 0.0}
    words = said(a_comparison({"fgd": row, "pwr": row}))
    assert "pwr: energy not known; mean wait not known; " in words and "0 of 40" in words
    read(page_of(a_comparison({"fgd": row})))


@settings(max_examples=15)
@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e7), st.integers(0, 4)), min_size=1, max_size=5), st.data())
def test_any_numbers_make_sentences(rows, data):
    names = [f"p{i}" for i in range(len(rows))]
    table = {name: {"energy_kwh": energy, "mean_wait_s": wait, "served_tasks": float(served),
                    "bound_energy_kwh": energy / 2}
             for name, (energy, wait, served) in zip(names, rows, strict=True)}
    ends = st.tuples(*[st.floats(-1e6, 1e6)] * 3).map(sorted)
    differences = {}
    for name in names[1:]:
        triples = {quantity: data.draw(ends) for quantity in ("energy_kwh", "mean_wait_s")}
        differences[name] = {quantity: (middle, low, high) for quantity, (low, middle, high) in triples.items()}
    comparison = a_comparison(table, differences)
    words = said(comparison)
    assert "nan" not in words and "inf" not in words and "e+" not in words
    for name, own in differences.items():
        _, low, high = own["energy_kwh"]
        line = next(line for line in words.splitlines() if line.startswith(f"{name}: "))
        parts = dict(part.split(" ", 1) for part in line.removeprefix(f"{name}: ").split("; "))
        is_clear = low > 0 or high < 0
        assert (parts["energy"] not in ("no clear difference", "the same")) == is_clear


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_do_nothing(name):
    problem = a_problem(name=name)
    ledger = Ledger()
    ledger.note("pods.json", 1, "refused", name)
    noted = replace(problem, ledger=ledger.frame(), zero=name)
    comparison = a_comparison({"fgd": {}, "pwr": {}}, {"pwr": SAVING}, noted)
    failures = pd.DataFrame({"task_row": [0], "task": [name], "state": ["refused"], "failed_for": [name or "cpu"]})
    outcomes = {key: replace(outcome, failures=failures, findings=(name,))
                for key, outcome in comparison.outcomes.items()}
    about = {**comparison.about, "assumptions": [name], "price": name}
    read(page_of(replace(comparison, outcomes=outcomes, about=about)))


def test_pictures_with_hostile_names_are_pictures():
    name = "</text><script>alert(1)</script><img src=x onerror=alert(1)> \u202e ' \""
    page = page_of(a_comparison({"fgd": {}, "pwr": {}}, {"pwr": SAVING}, a_problem(name=name)))
    found = read(page)
    assert page.count("<figure>") == 4 and any("<script>alert(1)" in text for text in found.texts)


def test_curves_are_drawn_up_to_the_end_of_the_last_task():
    """It runs for an hour, and what is measured is longer."""
    chart = charts_of(Reading(a_comparison({"fgd": {}, "pwr": {}}, {"pwr": SAVING}, a_problem(tasks=1))))["power"]
    assert chart.data["time"].max() == 50  # minutes: the last bin of ten


def test_without_the_packages_that_draw_the_numbers_are_there(monkeypatch):
    monkeypatch.setattr(report, "svgs_of", lambda charts: None)
    found = read(page_of(a_comparison({"fgd": {}, "pwr": {}}, {"pwr": SAVING})))
    assert found.texts.count("pip install 'sched_lab[charts]'") == 4 and "energy_kwh" in found.texts


def test_a_difference_is_clear_only_without_zero():
    assert Difference(1.0, 0.5, 2.0, 30).is_clear and Difference(-1.0, -2.0, -0.5, 40).is_clear
    assert not Difference(1.0, 0.0, 2.0, 40).is_clear and not Difference(np.nan, np.nan, np.nan, 40).is_clear
    assert not Difference(1.0, 0.5, 2.0, 29).is_clear
    assert percent(0.5) == "50 %"


def test_waits_of_other_tasks_are_not_compared_in_silence():
    """The record never served one task, which waits long under fgd; of the others each waits less."""
    row = {"mean_wait_s": 6000.0, "served_tasks": 40.0}
    differences = {"fgd": {"mean_wait_s": (-9.0, -20.0, -2.0)}}
    comparison = a_comparison({"recorded": {"served_tasks": 39.0}, "fgd": row}, differences)
    words = said(comparison)
    both = ("counting the 40 tasks that started under both; over all that started it is 100 min "
            "against 10 min")
    assert f"mean wait 9 s less (2 s to 20 s), {both}; served" in words
    drawn, title, _ = trade_frame(Reading(comparison))  # what is drawn is what is said
    assert title == "mean wait (min)" and drawn.set_index("policy")["x"].to_dict() == {"recorded": 10, "fgd": 100}
    assert (drawn["x_low"] == drawn["x"]).all() and (drawn["x_high"] == drawn["x"]).all()
    assert "Intervals from 100 min are too narrow." in words
    same = said(a_comparison({"fgd": {}, "pwr": {"mean_wait_s": 470.0}}, {"pwr": SAVING}))
    assert "counting the tasks" not in same


def test_few_tasks_prove_nothing():
    """Three tasks that waited less are no clear difference, whatever their interval says."""
    words = said(a_comparison({"recorded": {}, "fgd": {"mean_wait_s": 470.0, "energy_kwh": 88.0}}, {"fgd": SAVING},
                              a_problem(tasks=3)))
    assert "fgd: energy too few tasks to tell (3); " in words and "mean wait too few tasks to tell (3); " in words
    assert "No policy drew clearly less energy" in words
    assert "Fewer than 30 tasks started under fgd and under recorded, so whatever differs may be chance." in words
    served = {"mean_wait_s": 6000.0, "served_tasks": 40.0}
    both = said(a_comparison({"recorded": {"mean_wait_s": 9.0}, "fgd": served, "pwr": served},
                             dict.fromkeys(("fgd", "pwr"), {"mean_wait_s": (-9.0, -20.0, -2.0)}), a_problem(tasks=3)))
    assert "mean wait too few tasks to tell (3); over all that started it is 100 min against 9 s; served" in both


def test_an_axis_does_not_blow_up_a_difference_of_half_a_percent():
    rows = {"recorded": {"energy_kwh": 2.101}, "fgd": {"energy_kwh": 2.110}}
    drawn, *_ = trade_frame(Reading(a_comparison(rows)))
    low, high = domain_of(drawn, "y")
    assert high - low > 0.1 * 2.11 and low < 2.101 < 2.110 < high
    wide, *_ = trade_frame(Reading(a_comparison({"recorded": {}, "fgd": {"energy_kwh": 300.0}})))
    assert domain_of(wide, "y") == [pytest.approx(70), pytest.approx(330)]


def test_a_share_of_next_to_nothing_is_an_amount():
    row = {"energy_kwh": 0.0}
    words = said(a_comparison({"recorded": {"energy_kwh": 1.1e-308}, "pwr": row}, {"pwr": {"energy_kwh": (3, 2, 4)}}))
    assert "energy 3 kWh more (2 kWh to 4 kWh)" in words and "inf" not in words


def levers(*rows: tuple[Any, ...]) -> Comparison:
    """Make a comparison whose levers on waiting are these, beside fgd, which lets 1,000 tasks wait ten hours."""
    full = [("placement", "fgd", 36_000.0, 0.0, 0.0, 0.0, 1000), *rows]
    return replace(a_comparison({"fgd": {}}), levers=pd.DataFrame(
        [(*row, *SURE)[:len(LEVERS)] for row in full], columns=LEVERS))


@pytest.mark.parametrize(("rows", "words"), [
    ([("placement", "joint", 34_200.0, -1800.0, -2700.0, -900.0, 1000),
      ("queue", "first-fit", 7200.0, -28_800.0, -36_000.0, -21_600.0, 1000)],
     "The largest lever is backfill first-fit: a task waits 8 h less (6 h to 10 h) than under fgd with backfill none "
     "(10 h on average over 1,000 tasks), while another placement takes off 30 min at most."),
    ([("placement", "joint", 7200.0, -28_800.0, -36_000.0, -21_600.0, 1000),
      ("queue", "first-fit", 34_200.0, -1800.0, -2700.0, 900.0, 1000)],
     "The largest lever is placement by joint: a task waits 8 h less (6 h to 10 h) than under fgd with backfill none "
     "(10 h on average over 1,000 tasks), while no other rule of the queue clearly shortens it."),
    ([("placement", "joint", 34_200.0, -1800.0, -2700.0, 900.0, 1000)],
     "No other placement lets a task wait clearly less than fgd with backfill none (10 h on average over 1,000 "
     "tasks)."),
    ([], "A task waits 10 h on average over 1,000 tasks under fgd with backfill none.")])
def test_the_largest_lever_is_said_with_its_interval(rows, words):
    comparison = levers(*rows)
    assert lever_sentence(comparison) == words
    assert said(comparison).startswith(words) == bool(rows)


def test_a_lever_without_an_interval_says_why():
    """One busy period of six days; what is less than a hundredth of the wait is no lever then."""
    none = (np.nan, np.nan, 1000, 2, 0.9, 518_400.0, ONE)
    comparison = levers(("queue", "easy", 7200.0, -28_800.0, *none), ("placement", "joint", 35_900.0, -100.0, *none))
    assert lever_sentence(comparison) == (
        "The largest lever is backfill easy: a task waits 8 h less (no interval: one busy period of 6 days decides "
        "this) than under fgd with backfill none (10 h on average over 1,000 tasks), while no other placement clearly "
        "shortens it.")
    page = page_of(comparison)
    assert "<h1>Backfill easy takes 8 h off a mean wait of 10 h</h1>" in page
    assert page.index("largest lever first") < page.index("left and low is good")
    drawn = lever_chart(Reading(comparison)).to_dict()
    rows = next(iter(drawn["datasets"].values()))
    assert [row["under"] for row in rows] == ["backfill easy: 8 h less, no interval",
                                              "placement by joint: 100 s less, no interval", "as replayed, fgd"]


def test_points_at_one_place_are_larger_below():
    """Three policies that came to the same are three rings, and the last one drawn is as small as one alone."""
    same = {"energy_kwh": 90.0, "mean_wait_s": 300.0}
    frame = trade_frame(Reading(a_comparison({"fgd": {}, "a": same, "b": same, "c": same})))[0]
    alone, first, second, last = sizes_of(frame)
    assert alone == last < second < first
