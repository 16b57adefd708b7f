"""Instances, assignments and histories: reference cases convert, and every violated constraint is refused."""
import copy
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.andreas.model import (
    HISTORY,
    Assignment,
    Instance,
    check_assignment,
    check_schedule,
    energy_cost_eur_per_h,
    parse_instance,
    read_instance,
)
from sched_lab.lab.frames import InputError
from tests.andreas.cases import each_case, golden, instance_of

FILE: dict[str, Any] = {
    "nodes": [{"id": "n1", "gpu": "TESLA", "num_gpus": 2}, {"id": "n2", "gpu": "TURING", "num_gpus": 1}],
    "cost_eur_per_h": {"TESLA,1": 0.54, "TESLA,2": 0.72, "TURING,1": 0.36},
    "jobs": [{"id": "A", "submission_s": 0, "due_s": 2700, "weight_eur_per_s": 0.002,
              "times_s": {"TESLA,1": 3600, "TESLA,2": 2400}},
             {"id": "C", "submission_s": 60, "due_s": 3600, "weight_eur_per_s": 0.001,
              "times_s": {"TESLA,1": 1800, "TESLA,2": 1500, "TURING,1": 2400}}],
}
TESLA_1, TESLA_2, TURING_1 = range(3)  # configurations, by type and count


def small() -> Instance:
    return parse_instance(FILE)


# --- reference cases -------------------------------------------------------------------------------------------------

@golden
@each_case
def test_a_reference_case_converts_without_loss(case):
    instance = instance_of(case)
    fleet = instance.fleet
    jobs = instance.jobs
    assert instance.now_s == case["Tc"] and instance.job_name == tuple(job["id"] for job in case["jobs"])
    assert {name: (instance.type_name[kind], count) for name, kind, count in
            zip(instance.node_name, fleet.node_type, fleet.node_gpus, strict=True)} \
        == {node["id"]: (node["gpu"], node["ngpus"]) for node in case["nodes"]}
    for name, eur_per_h in case["cost"].items():
        gpu, count = name.split(",")
        assert fleet.cost_eur_per_h[instance.type_name.index(gpu), int(count)] == eur_per_h
    for number, job in enumerate(case["jobs"]):
        assert (jobs.submission_s[number], jobs.due_s[number], jobs.weight_eur_per_s[number]) == (
            job["sub"], job["due"], job["w"])
        assert {instance.configuration_name(c): time_s for c, time_s in enumerate(jobs.times_s[number])
                if np.isfinite(time_s)} == job["t"]


# --- prices, names and order -----------------------------------------------------------------------------------------

def test_price_is_power_by_price_by_pue():
    # 400 W and 1 kW at 0.20 EUR/kWh, PUE 1.25: 0.4 * 0.2 * 1.25 = 0.1 and 0.25 EUR/h
    np.testing.assert_allclose(energy_cost_eur_per_h(np.array([400.0, 1000.0]), 0.20, 1.25), [0.1, 0.25])


def test_configurations_are_sorted_by_number_not_as_text():
    value = copy.deepcopy(FILE)
    value["jobs"][0]["times_s"] = {"TESLA,10": 5.0, "TESLA,2": 6.0}
    instance = parse_instance(value)
    names = [instance.configuration_name(c) for c in range(4)]
    assert names == ["TESLA,1", "TESLA,2", "TESLA,10", "TURING,1"]
    assert instance.jobs.times_s[0].tolist() == [np.inf, 6.0, 5.0, np.inf]


def test_a_comma_belongs_to_the_type_if_it_is_not_the_last():
    value = {"nodes": [{"id": "n", "gpu": "V100,32GB", "num_gpus": 1}], "cost_eur_per_h": {"V100,32GB,1": 1.0},
             "jobs": [FILE["jobs"][0] | {"times_s": {"V100,32GB,1": 7.0}}]}
    instance = parse_instance(value)
    assert instance.type_name == ("V100,32GB",) and instance.jobs.times_s.tolist() == [[7.0]]


def test_an_instance_may_have_no_jobs_and_no_clock():
    value = {key: entry for key, entry in FILE.items() if key != "jobs"} | {"jobs": []}
    instance = parse_instance(value)
    assert instance.jobs.times_s.shape == (0, 0) and instance.now_s == 0.0
    assert check_assignment(instance.fleet, instance.jobs.times_s,
                            Assignment(np.zeros(0, np.int64), np.zeros(0, np.int64))).tolist() == [0, 0]
    check_schedule(instance, pd.DataFrame([], columns=list(HISTORY)))


# --- wrong files -----------------------------------------------------------------------------------------------------

WRONG = {  # what is wrong: where, key, what stands there (None: nothing), and what the message says
    "missing key": ("jobs", "due_s", None, ["jobs[0] (A): due_s", "missing", "add it"]),
    "missing id": ("jobs", "id", None, ["jobs[0]: id", "missing", "add it"]),
    "unknown key": ("nodes", "colour", 1, ["nodes[0] (n1): colour", "unknown key", "take it out"]),
    "digits in quotes": ("jobs", "due_s", "5", ["jobs[0] (A): due_s", "'5'", "valid number"]),
    "truth for a number": ("nodes", "num_gpus", True, ["nodes[0] (n1): num_gpus", "True", "valid integer"]),
    "no GPU": ("nodes", "num_gpus", 0, ["nodes[0] (n1): num_gpus", "is 0", "greater than or equal to 1"]),
    "not a number": ("jobs", "due_s", float("nan"), ["jobs[0] (A): due_s", "nan", "finite"]),
    "negative submission": ("jobs", "submission_s", -1.0, ["(A): submission_s", "-1.0", "greater than or equal to 0"]),
    "negative weight": ("jobs", "weight_eur_per_s", -1e-9, ["(A): weight_eur_per_s", "-1e-09", "or equal to 0"]),
    "negative run time": ("jobs", "times_s", {"TESLA,1": -5.0},
                          ["(A): times_s.TESLA,1", "-5.0", "greater than or equal to 0.000001"]),
    "no run time": ("jobs", "times_s", {"TESLA,1": 0.0},
                    ["(A): times_s.TESLA,1", "is 0.0", "greater than or equal to 0.000001"]),
    "no configuration at all": ("jobs", "times_s", {}, ["(A): times_s is {}", "at least 1"]),
    "negative epochs": ("jobs", "epochs", -1, ["(A): epochs", "-1", "or equal to 0"]),
    "unknown GPU type": ("jobs", "times_s", {"TESLAR,1": 5.0}, ["jobs[0] (A)", "'TESLAR'", "use one of TESLA, TURING"]),
    "too many GPUs": ("jobs", "times_s", {"TURING,2": 5.0}, ["jobs[0] (A) fits on no node", "give it a time"]),
    "two jobs, one id": ("jobs", "id", "C", ["jobs[1] and jobs[0]", "'C'", "give each its own"]),
    "two nodes, one id": ("nodes", "id", "n2", ["nodes[1] and nodes[0]", "'n2'", "give each its own"]),
    "no price": ("nodes", "num_gpus", 3, ["nodes[0] (n1)", "3 TESLA", '"TESLA,3" to cost_eur_per_h']),
    "no price for a type": ("nodes", "gpu", "K80", ["nodes[0] (n1)", "1 K80", 'add "K80,1"']),
    "an entry is no object": ("jobs", "times_s", [5.0], ["jobs[0] (A): times_s", "[5.0]", "valid dictionary"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_refused_with_file_entry_and_mend(what, tmp_path):
    place, key, new, wanted = WRONG[what]
    value = copy.deepcopy(FILE)
    value[place][0][key] = new
    if new is None:
        del value[place][0][key]
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(value))
    with pytest.raises(InputError) as caught:
        read_instance(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    assert [part for part in wanted if part not in message] == [], message


@pytest.mark.parametrize("name", ["TESLA", "TESLA,", ",1", "TESLA,0", "TESLA,-1", "TESLA,01", "TESLA, 1", " TESLA,1",
                                  "TESLA,1.0", "TESLA,two", "TESLA,\N{ARABIC-INDIC DIGIT ONE}", ""])
@pytest.mark.parametrize("where", ["times_s", "cost_eur_per_h"])
def test_a_name_of_a_configuration_is_type_comma_number(name, where):
    value = copy.deepcopy(FILE)
    (value["jobs"][1]["times_s"] if where == "times_s" else value["cost_eur_per_h"])[name] = 1.0
    entry = r"jobs\[1\] \(C\): times_s: " if where == "times_s" else "cost_eur_per_h: "
    with pytest.raises(InputError, match=entry + ".* is no configuration; write GPU type, comma, number"):
        parse_instance(value)


@pytest.mark.parametrize(("value", "wanted"), [
    ({}, "nodes is missing; add it"),
    (FILE | {"nodes": []}, "nodes is .*at least 1"),
    (FILE | {"now_s": -1.0}, "now_s is -1.0; it should be greater than or equal to 0"),
    (FILE | {"cost_eur_per_h": FILE["cost_eur_per_h"] | {"TESLA,1": -0.1}}, "cost_eur_per_h.TESLA,1 is -0.1"),
    (FILE | {"nods": 1}, "nods is an unknown key"),
    (FILE | {"jobs": ["A"]}, r"jobs\[0\] is 'A'"),
])
def test_a_wrong_key_at_the_top_is_named(value, wanted):
    with pytest.raises(InputError, match=wanted):
        parse_instance(value)


def test_a_due_date_before_the_submission_is_a_warning_that_names_file_and_job():
    value = copy.deepcopy(FILE)
    value["jobs"][1]["due_s"] = 59.0  # submitted at 60 s
    with pytest.warns(UserWarning, match=r"jobs\.json: jobs\[1\] \(C\) is due before it is submitted; correct"):
        instance = parse_instance(value, Path("jobs.json"))
    assert instance.jobs.due_s.tolist() == [2700, 59]


# --- an assignment: each constraint ---------------------------------------------------------------------

def used_gpus(node: list[int], configuration: list[int]) -> list[int]:
    instance = small()
    return check_assignment(instance.fleet, instance.jobs.times_s,
                            Assignment(np.array(node), np.array(configuration))).tolist()


@pytest.mark.parametrize(("node", "configuration", "message"), [
    ([0], [TESLA_1, TESLA_1], "2 jobs, but 1 nodes and 2 configurations"),
    ([0, -1], [0, 0], "job 1 has half a place"), ([0, 1], [0, -1], "job 1 has half a place"),
    ([2, -1], [TESLA_1, -1], "job 0 runs on a node or configuration that does not exist"),
    ([-1, 0], [-1, 3], "job 1 runs on a node or configuration that does not exist"),
    ([-1, 1], [-1, TESLA_1], "job 1 runs on GPUs of a type that node 1 does not have"),
    ([1, -1], [TURING_1, -1], "job 0 runs on a configuration without a run time"),
    ([0, 0], [TESLA_2, TESLA_1], "node 0 has more GPUs in use than it has"),  # 2 + 1 > 2
])
def test_an_assignment_that_violates_a_constraint_is_refused(node, configuration, message):
    with pytest.raises(ValueError, match=message):
        used_gpus(node, configuration)


# --- a history: each constraint -------------------------------------------------------------------------

# A: 1200/2400 on two TESLA, then 1800/3600 on one. C: 1200/2400 on the TURING from 60 s, then 900/1800 on a TESLA.
RUNS = [(0, 0, TESLA_2, 0.0, 1200.0), (0, 0, TESLA_1, 1200.0, 3000.0),
        (1, 1, TURING_1, 60.0, 1260.0), (1, 0, TESLA_1, 1260.0, 2160.0)]


def history(*runs: tuple[int, int, int, float, float]) -> pd.DataFrame:
    return pd.DataFrame(list(runs), columns=list(HISTORY))


def changed(row: int, **cells: float) -> pd.DataFrame:
    frame = history(*RUNS)
    for name, cell in cells.items():
        frame.loc[row, name] = cell
    return frame


def refuses(frame: pd.DataFrame, message: str, **how: Any) -> None:
    with pytest.raises(ValueError, match=message):
        check_schedule(small(), frame, **how)


def test_a_valid_history_is_accepted_in_any_order_of_rows():
    check_schedule(small(), history(*RUNS))
    check_schedule(small(), history(*reversed(RUNS)))


@pytest.mark.parametrize(("row", "cells", "message"), [
    *((1, cells, "job 0 has a run without a beginning and a later end") for cells in (
        {"end_s": 1199.0}, {"end_s": np.nan}, {"end_s": np.inf}, {"start_s": np.nan}, {"start_s": -np.inf})),
    *((0, cells, "runs on a node or configuration that does not exist") for cells in (
        {"job": 2}, {"job": -1}, {"node": 2}, {"node": -1}, {"configuration": 3}, {"configuration": -1})),
    (3, {"node": 1}, "job 1 runs on GPUs of a type that node 1 does not have"),
    (0, {"node": 1, "configuration": TURING_1}, "job 0 runs on a configuration without a run time"),
    # C is submitted at 60 s; its run on the TURING keeps its length of 1200 s
    (2, {"start_s": 59.0, "end_s": 1259.0}, "job 1 runs before it is submitted"),
    (1, {"end_s": 2999.0}, "job 0 has run 0.999722 of itself"),  # 1/2 + 1799/3600
    (1, {"end_s": 3001.0}, "job 0 has run 1.000278 of itself"),
    # C on its TESLA from 1200 s to 2100 s, when it is still on the TURING for a minute
    (3, {"start_s": 1200.0, "end_s": 2100.0}, "job 1 runs twice at once"),
])
def test_a_history_that_violates_a_constraint_is_refused(row, cells, message):
    refuses(changed(row, **cells), message)


def test_every_job_runs_and_never_on_more_gpus_than_there_are():
    refuses(history(*RUNS[:2]), "job 1 has run 0.000000 of itself")
    # A has both TESLA until 2400 s, C one of them from 2000 s
    refuses(history((0, 0, TESLA_2, 0.0, 2400.0), (1, 0, TESLA_1, 2000.0, 3800.0)), "node 0 has more GPUs in use")


def test_lost_progress_is_allowed_if_said_and_missing_progress_never():
    check_schedule(small(), changed(1, end_s=3001.0), may_lose_progress=True)
    refuses(changed(1, end_s=2999.0), "job 0 has run 0.999722", may_lose_progress=True)


def test_gpus_change_hands_within_the_rounding_of_times_and_not_beyond():
    # the last end is 4200 s, so runs are shortened by 2 * 4200 s / 1e6 = 0.0084 s
    check_schedule(small(), history((0, 0, TESLA_2, 0.0, 2400.0), (1, 0, TESLA_1, 2399.992, 4199.992)))
    refuses(history((0, 0, TESLA_2, 0.0, 2400.0), (1, 0, TESLA_1, 2399.99, 4199.99)), "node 0 has more GPUs in use")


def test_a_run_of_no_length_uses_nothing():
    # A has both TESLA until 2400 s; C is given one at 1000 s and loses it at once
    check_schedule(small(), history((0, 0, TESLA_2, 0.0, 2400.0), (1, 0, TESLA_1, 1000.0, 1000.0),
                                    (1, 1, TURING_1, 60.0, 2460.0)))


# --- any instance: the validators against the constraints in plain Python --------------------------------------------

@st.composite
def instances(draw: st.DrawFn) -> dict[str, Any]:
    """File of up to three nodes and three jobs, run times in multiples of 12 s."""
    kinds = draw(st.lists(st.tuples(st.sampled_from("TU"), st.integers(1, 3)), min_size=1, max_size=3))
    names = [f"{gpu},{count}" for gpu in "TU" for count in (1, 2, 3)]
    usable = sorted({f"{gpu},{count}" for gpu, most in kinds for count in range(1, most + 1)})
    jobs = []
    for number in range(draw(st.integers(1, 3))):
        own = draw(st.lists(st.sampled_from(names), unique=True)) + [draw(st.sampled_from(usable))]
        jobs.append({"id": f"J{number}", "submission_s": draw(st.integers(0, 20)), "due_s": 100, "weight_eur_per_s": 1,
                     "times_s": {name: 12 * draw(st.integers(1, 4)) for name in own}})
    return {"nodes": [{"id": f"n{i}", "gpu": gpu, "num_gpus": count} for i, (gpu, count) in enumerate(kinds)],
            "cost_eur_per_h": dict.fromkeys(names, 0.1), "jobs": jobs}


def accepts(check: Any, *arguments: Any) -> bool:
    try:
        check(*arguments)
    except ValueError:
        return False
    return True


def can_run(value: dict[str, Any], job: int, node: int, name: str) -> bool:
    """Whether the configuration is one of the node's type on which the job has a run time."""
    return name in value["jobs"][job]["times_s"] and name[0] == value["nodes"][node]["gpu"]


def overlap(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return bool(a[3] < b[4] and b[3] < a[4])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_history_is_accepted_if_and_only_if_it_satisfies_the_constraints(data):
    value = data.draw(instances())
    instance = parse_instance(value)
    names = [instance.configuration_name(c) for c in range(len(instance.fleet.configuration_gpus))]
    runs = []
    for job, entry in enumerate(value["jobs"]):
        places = [(n, c) for n in range(len(value["nodes"])) for c in range(len(names))
                  if can_run(value, job, n, names[c])]
        now_s = entry["submission_s"]
        for twelfths in data.draw(st.sampled_from([(12,), (6, 6), (3, 9), (4, 4, 4)])):
            node, configuration = data.draw(st.sampled_from(places))
            now_s += data.draw(st.sampled_from([0, 0, 0, 1, 30, -1]))  # waits; or starts a second too early
            end_s = now_s + twelfths * entry["times_s"][names[configuration]] // 12
            runs.append((job, node, configuration, float(now_s), float(end_s)))
            now_s = end_s
    in_time = all(run[3] >= value["jobs"][run[0]]["submission_s"] for run in runs)
    once = not any(a[0] == b[0] and overlap(a, b) for a, b in combinations(runs, 2))
    room = True
    for run in runs:  # use is greatest where some run starts
        beside = [r for r in runs if r[1] == run[1] and r[3] <= run[3] < r[4]]
        room &= sum(int(names[r[2]][-1]) for r in beside) <= value["nodes"][run[1]]["num_gpus"]
    assert accepts(check_schedule, instance, history(*runs)) == (in_time and once and room)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_file_becomes_the_same_numbers_in_any_order(data):
    value = data.draw(instances())
    mixed = value | {"nodes": data.draw(st.permutations(value["nodes"])),
                     "cost_eur_per_h": dict(reversed(value["cost_eur_per_h"].items()))}
    one = parse_instance(value)
    two = parse_instance(mixed)
    assert one.node_name == two.node_name
    for a, b in zip((*one.fleet, *one.jobs), (*two.fleet, *two.jobs), strict=True):
        np.testing.assert_array_equal(a, b)
