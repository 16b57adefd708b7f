"""Policies side by side: bounds that hold, intervals that repeat, changes that are refused or noted."""
from contextvars import Context
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from sched_lab.cluster import toy_cluster
from sched_lab.fleet.read.tables import NODE_COLUMNS, TASK_COLUMNS, ClusterTables, Ledger, with_columns
from sched_lab.fleet.replay.compare import (
    Outcome,
    Question,
    compare,
    differences_of,
)
from sched_lab.fleet.replay.events import replay_booked, replay_events
from sched_lab.fleet.replay.fidelity import edges_of
from sched_lab.fleet.replay.problem import Schedule, problem_of, recorded
from sched_lab.fleet.replay.waits import Waits
from sched_lab.fleet.replay.what_if import changed, read_what_if
from sched_lab.lab.frames import InputError
from sched_lab.online.model import PowerSettings
from sched_lab.online.policies import POLICIES, policy_of
from sched_lab.traces import toy_tasks
from tests.fleet.problems import problem_like, random_problem

pytestmark = pytest.mark.usefixtures("python_itself")


def test_waits_and_counts_add_up():
    problem = random_problem(3, 60)
    found = compare(problem, Question(("fgd", "pwr"), backfill="first-fit"))
    for name, outcome in found.outcomes.items():
        row = found.summary.set_index("policy").loc[name]
        assert row["served_tasks"] + row["refused_tasks"] == len(problem.tasks)
        assert len(outcome.failures) == row["refused_tasks"]
        assert set(outcome.failures["state"]) <= {"refused", "waiting"}
        is_large = problem.tasks.cpu_milli[outcome.failures["task_row"]] == 10**6
        assert (outcome.failures["state"] == "refused").equals(pd.Series(is_large, name="state"))
        table = found.waits[found.waits["policy"] == name]
        for _, part in table.groupby("by"):
            assert part["tasks"].sum() == row["served_tasks"]
            assert np.average(part["mean_wait_s"], weights=part["tasks"]) == pytest.approx(row["mean_wait_s"])
        width = (outcome.curve["end_s"] - outcome.curve["start_s"]) / 3600
        assert (outcome.curve["allocated_gpu"] * width).sum() == pytest.approx(row["allocated_gpu_h"])
    assert set(found.waits["by"]) == {"all", "size", "user", "model"}
    pair = found.differences.set_index("quantity")
    kwh = found.summary["energy_kwh"]
    assert pair.loc["energy_kwh", "difference"] == pytest.approx(kwh[1] - kwh[0])
    assert pair["low"].isna().all() and (pair["no_interval"] != "").all()  # an hour of sixty tasks


def test_the_bits_do_not_depend_on_workers_or_the_compiler(tmp_path, monkeypatch):
    problem = random_problem(5)
    question = Question(seed=3, asleep_after_s=600, price="0.3")
    alone = compare(problem, question)
    found = compare(problem, question, tmp_path / "kept", workers=2, depends_on={"problem": "5"})
    again = compare(problem, question, tmp_path / "kept", depends_on={"problem": "5"})
    monkeypatch.setenv("SCHED_LAB_COMPILE", "always")
    compiled = Context().run(compare, problem, question)    # in a context that knows nothing of `python_itself`
    assert replay_events.outer.signatures and replay_booked.outer.signatures
    for other in (found, again, compiled):
        pd.testing.assert_frame_equal(alone.levers, other.levers, check_exact=True)
        pd.testing.assert_frame_equal(alone.summary, other.summary, check_exact=True)
        pd.testing.assert_frame_equal(alone.differences, other.differences, check_exact=True)


def test_a_third_policy_changes_nothing_about_the_first_two():
    """The third waits so long that all would once have been measured over a longer time."""
    problem = random_problem(4)
    two = compare(problem, Question(("fgd", "pwr"), backfill="first-fit", asleep_after_s=600))
    three = compare(problem, Question(("fgd", "pwr", "gpu-clustering"), backfill="first-fit", asleep_after_s=600))
    ends = [np.nanmax(np.where(np.isfinite(one.schedule.end_s), one.schedule.end_s, 0)) for one in
            three.outcomes.values()]
    assert ends[2] > max(ends[:2]) and ends[2] > three.about["until_s"] >= ends[0]
    for name in ("summary", "waits", "differences"):
        whole, part = getattr(three, name), getattr(two, name)
        kept = whole[whole["policy"].isin(["fgd", "pwr"])].reset_index(drop=True)
        pd.testing.assert_frame_equal(kept, part, check_exact=True)
    for policy, outcome in two.outcomes.items():
        pd.testing.assert_frame_equal(three.outcomes[policy].curve, outcome.curve, check_exact=True)


def test_waits_are_bounded_for_each_list_of_models():
    """Three hours of work for the one A100 and none for the rest: two of the three jobs wait, whoever places them."""
    tasks = replace(toy_tasks().take(np.array([3, 3, 3, 3])), num_gpus=np.ones(4, int), gpu_milli=np.full(4, 1000),
                    cpu_milli=np.full(4, 1000), gpu_spec=np.array(["A100", "A100", "A100", ""], object))
    model = toy_cluster().gpu_model
    problem = problem_like(toy_cluster(), tasks, [0.0] * 4, [3600.0] * 4)
    assert (model == "A100").sum() == 1
    found = compare(problem, Question(("fgd", "random"), backfill="first-fit"))
    by_model = found.waits[found.waits["by"] == "model"].set_index(["policy", "value"])
    for policy in ("fgd", "random"):
        named, free = by_model.loc[(policy, "A100")], by_model.loc[(policy, "")]
        assert 0.9 * 3600 < named["bound_mean_wait_s"] <= 3600 <= named["mean_wait_s"]
        assert free["bound_mean_wait_s"] == 0
    assert found.waits.loc[found.waits["by"] == "size", "bound_mean_wait_s"].isna().all()
    assert (found.summary["bound_mean_wait_s"] > 0.6 * 2700).all()  # none, one and two hours, and none


def test_a_wait_counts_where_its_task_came_and_energy_by_the_hour():
    """A task an hour for 400 hours, each of which waits for a minute or two: every hour is a period of its own."""
    begin_s = np.arange(400) * 3600.0
    curve = pd.DataFrame({"start_s": begin_s, "end_s": begin_s + 3600, "eopc_w": 1000.0, "asleep_w": np.nan})
    never = Schedule(np.full(400, -1), np.zeros(400, np.int64), begin_s + 5, begin_s + 5)  # which nobody asks for
    none = Outcome("none", never, curve, pd.DataFrame(), Waits(np.zeros(400), np.ones(400)))
    rng = np.random.default_rng(0)
    longer_s, more_w = (part - part.mean() + middle for part, middle in (
        (rng.uniform(-30, 30, 400), 90), (rng.uniform(-2, 2, 400), 12)))
    some = replace(none, curve=curve.assign(eopc_w=1000 + more_w), waits=Waits(longer_s, np.ones(400)))
    rows = {row["quantity"]: row for row in differences_of(some, none, begin_s + 5)}
    wait, energy, slowdown = rows["mean_wait_s"], rows["energy_kwh"], rows["mean_slowdown"]
    assert wait["difference"] == pytest.approx(90) and 85 < wait["low"] < 90 < wait["high"] < 95
    assert wait["busy_periods"] == 400
    assert energy["difference"] == pytest.approx(4.8, abs=0.01) and 4.6 < energy["low"] < 4.8 < energy["high"] < 5
    assert slowdown["no_interval"] == "nothing differs" and np.isnan(slowdown["low"])
    assert set(rows) == {"energy_kwh", "mean_wait_s", "mean_slowdown"}


@pytest.mark.parametrize("span_s", [3600.0, 86400.0, 86400.0 * 149 + 1, 86400.0 * 365 * 8000])
def test_bins_cover_the_horizon(span_s):
    edges = edges_of((17.0, 17.0 + span_s))
    assert edges[0] == 17 and edges[-1] == 17 + span_s and (np.diff(edges) > 0).all()
    assert 48 <= len(edges) - 1 <= 90_001


def test_policies_that_look_at_watts_are_known():
    assert {name for name, record in POLICIES.items() if record.needs_watts} == {
        "pwr", "pwr-target", "joint-early", "joint-middle", "joint-late", "joint", "bid"}
    for name in ("pwr-fgd:0.1", "fgd@0.5@pwr", "bid:300:1"):
        assert policy_of(name).needs_watts
    for name in ("fgd-bestfit:0.5", "pwr-fgd:0", "fgd@0.5@random"):
        assert not policy_of(name).needs_watts


def tables_like(model: str = "T4") -> ClusterTables:
    """Two nodes, three tasks, one of them recorded."""
    nodes = with_columns(pd.DataFrame({
        "name": ["n0", "n1"], "gpu_model": [model, model], "num_gpus": [2, 2], "cpu_milli": [64_000] * 2,
        "memory_mib": [65_536] * 2}), NODE_COLUMNS)
    tasks = with_columns(pd.DataFrame({
        "name": ["a", "b", "=c()"], "submit_s": [0, 10, 20], "start_s": [5, 10, 20], "end_s": [400, 500, 600],
        "num_gpus": [1, 1, 2], "gpu_milli": [1000, 300, 1000], "cpu_milli": [4000] * 3, "memory_mib": [1024] * 3,
        "node": ["n0", "n0", "n1"], "gpu_list": ["0", "1", "0-1"], "gpu_models": ["", model, ""]}), TASK_COLUMNS)
    return ClusterTables(nodes, tasks, Ledger().frame(), {"zero": None})


def test_the_record_is_one_of_the_policies():
    found = compare(problem_of(tables_like()))
    assert list(found.outcomes) == ["recorded", "fgd", "pwr-fgd:0.1", "joint"]
    assert found.summary["mean_wait_s"][0] == pytest.approx(5 / 3)
    assert found.outcomes["recorded"].findings == ()
    assert set(found.differences["against"]) == {"recorded"}


def test_a_wrong_record_is_measured_with_findings_and_without_bounds():
    tables = tables_like()
    tables.tasks.loc[1, ["gpu_milli", "gpu_list"]] = [800, "0"]
    found = compare(problem_of(tables), Question(("recorded", "fgd")))
    assert "Cond. 3" in found.outcomes["recorded"].findings[0]
    assert found.summary.loc[0, ["bound_energy_kwh", "bound_mean_wait_s"]].isna().all()
    assert found.summary["energy_kwh"].notna().all()


def test_unknown_watts_leave_energy_empty():
    problem = problem_of(tables_like("H999"))
    found = compare(problem, Question(asleep_after_s=60.0, price="1"))
    assert list(found.outcomes) == ["recorded", "fgd"]
    assert found.summary[["energy_kwh", "energy_asleep_kwh", "cost", "bound_energy_kwh"]].isna().all(axis=None)
    assert found.summary["allocated_gpu_h"].notna().all()
    assert any("'H999'" in sentence for sentence in found.about["assumptions"])
    with pytest.raises(InputError, match="H999.*--gpu-power"):
        compare(problem, Question(("pwr",)))
    known = PowerSettings(gpu_power_w={"H999": (60, 700)})
    assert compare(problem, Question(("pwr",), power=known)).summary["energy_kwh"].notna().all()


def test_a_replay_goes_on_from_the_record():
    problem = problem_of(tables_like())
    found = compare(problem, Question(("recorded", "fgd"), at_s=15.0, backfill="first-fit"))
    assert found.about["from_s"] == 15
    fgd = found.outcomes["fgd"].schedule
    before = recorded(problem)
    assert fgd.node[:2].tolist() == before.node[:2].tolist() and fgd.start_s[0] == 5
    assert found.summary["mean_wait_s"].tolist() == [0.0, 0.0]
    later = compare(problem, Question(("fgd",), at_s=450.0))
    assert later.problem.tasks.name.tolist() == ["b", "=c()"]


@pytest.mark.parametrize(("question", "words"), [
    (Question(("fgd", "fgd")), "twice"), (Question(("fdg",)), "fdg"), (Question(("fgd",), against="pwr"), "none of"),
    (Question(("fgd",), price="inf"), "--price"), (Question(("fgd",), carbon="nofile.csv"), "no such file"),
    (Question(("fgd",), backfill="some"), "some"), (Question(("recorded",)), "nothing recorded")])
def test_questions_that_cannot_be_answered(question, words):
    tables = tables_like()
    with pytest.raises(InputError, match=words):
        compare(problem_of(replace(tables, tasks=tables.tasks.assign(node=""))), question)


def test_what_if_changes_the_tables():
    tables = tables_like()
    more = changed(tables, {"load": 2.5, "nodes": {"scale": 1.5}, "gpu_models": {"T4": "A10"}}, 1)
    assert more.nodes["name"].tolist() == ["n0", "n1", "n1+1"] and set(more.nodes["gpu_model"]) == {"A10"}
    assert 6 <= len(more.tasks) <= 9 and more.tasks["name"].is_unique
    assert set(more.tasks["gpu_models"]) == {"", "A10"}
    assert (more.ledger["what"] == "what if").sum() == len(more.ledger) == 3
    pd.testing.assert_frame_equal(more.tasks, changed(tables, {"load": 2.5, "gpu_models": {"T4": "A10"}},
                                                      1).tasks)
    fewer = changed(tables, {"load": 0.5, "nodes": {"remove": ["n0"]}}, 0)
    assert fewer.nodes["name"].tolist() == ["n1"] and len(fewer.tasks) < 3
    assert compare(problem_of(more), Question(("fgd",))).summary["served_tasks"][0] == len(more.tasks)
    for said, words in (({"nodes": {"remove": ["n7"]}}, "n7"), ({"gpu_models": {"H1": "T4"}}, "H1")):
        with pytest.raises(InputError, match=words):
            changed(tables, said, 0)


@pytest.mark.parametrize(("text", "words"), [
    ("lod = 1.3", "lod"), ("gpu_cap_w = 5", "say power_cap_w = WATTS"),
    ("power_cap_w = 0", "power_cap_w = 0"), ("load = 0", "load"), ("load = true", "load"),
    ("mig = true", "mig"), ("[nodes]\nscal = 2", "nodes.scal"), ("load =", "TOML"), ("[gpu_models]\nT4 = 3", "T4"),
    ("[gpu_power_w]\nT4 = [70, 10]", "T4"), ("[gpu_power_w]\nT4 = [1, 2, 3]", "T4"), ("load = nan", "load"),
    ("nodes = 3", "nodes"), ("\xff", "TOML"), ("[nodes]\nremove = 'n0'", "remove"),
    ("a = " + "[" * 100_000, "too deep")])
def test_what_if_files_that_are_refused(tmp_path, text, words):
    path = tmp_path / "what.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=words):
        read_what_if(path)
