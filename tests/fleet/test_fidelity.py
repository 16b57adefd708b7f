"""How well a replay knows a cluster: the rule that made a record is found, and what it lacks is counted."""
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.cluster import Cluster, empty_state
from sched_lab.fleet.replay import compare as comparing
from sched_lab.fleet.replay import report
from sched_lab.fleet.replay.compare import Question, compare
from sched_lab.fleet.replay.events import COMPARED, replay
from sched_lab.fleet.replay.fidelity import FIDELITY, record_of, room_while_waiting
from sched_lab.fleet.replay.outages import NO_OUTAGES
from sched_lab.fleet.replay.problem import Problem, Schedule, with_lost
from sched_lab.fleet.replay.report import Reading, fidelity_sentence, is_believed, page_of, title_of
from sched_lab.fleet.replay.slurm import SlurmQueue
from sched_lab.traces import admits
from tests.command_line import assert_refused, call
from tests.fleet.problems import outages_at, problem_like, random_problem, tasks_like, texts, timed

pytestmark = pytest.mark.usefixtures("python_itself")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    monkeypatch.setattr(report, "svgs_of", lambda charts: dict.fromkeys(charts(), "<svg></svg>"))


def blocked(rule: str, held_s: float = 0.0) -> Problem:
    """Make a record by a rule of the queue; every third job was submitted earlier and held until then.

    Every ten hours two jobs of one GPU come to both nodes, then one of two GPUs, which has to wait, then eight of one
    GPU that could pass it.
    """
    rows = [(36_000 * k + offset, length, gpus, 1000) for k in range(12) for offset, length, gpus in
            [(0, 9000, 1), (30, 9000, 1), (60, 3600, 2), *((120 + 60 * n, 600, 1) for n in range(8))]]
    problem = timed(rows, queue=texts("wide" if row[2] == 2 else "small" for row in rows))
    made = replay(problem, "fgd", backfill=rule)
    held = np.where(np.arange(len(rows)) % 3 == 0, held_s, 0.0)
    return replace(problem, submit_s=problem.submit_s - held + held_s, start_s=made.start_s + held_s, node=made.node,
                   gpu_mask=made.gpu_mask)


def test_the_rule_that_made_a_record_is_found():
    record = blocked("easy")
    asked = compare(record)
    first = asked.fidelity.iloc[0]
    assert list(asked.fidelity) == FIDELITY and (first["policy"], first["backfill"]) == ("fgd", "none")
    assert first["misfit"] > 1 and first["within_60_s_share"] < 0.5
    sentence = fidelity_sentence(asked)
    assert sentence.startswith("fgd with backfill none does not explain the record, so no lever is named: a task ")
    assert " explains it (" in sentence and not is_believed(asked.fidelity)
    page = page_of(asked)
    assert title_of(Reading(asked)).startswith("The replay does not explain this record: ")
    assert "The largest lever" not in page and "largest lever first" not in page
    found = compare(record, Question(fit=True))
    best = found.fidelity.iloc[0]
    assert found.about["backfill"] in ("first-fit", "easy") and best["misfit"] < 0.01
    assert best["within_60_s_share"] == 1 and best["gpus_apart_share"] < 0.001
    assert found.levers["choice"].iloc[0] == best["policy"] and "missing" not in found.about
    words = f"{best['policy']} with backfill {best['backfill']} explains the record: "
    assert fidelity_sentence(found).startswith(words)
    named = compare(record, Question(("fgd",), backfill="easy"))
    assert named.fidelity["misfit"].iloc[0] == 0


def test_the_placement_that_made_a_record_is_found_and_its_queue_is_still_a_lever():
    """Two jobs of one GPU, which kube-scheduler spreads over both nodes of two, keep one of two GPUs waiting."""
    cluster = Cluster(texts("ab"), np.full(2, 64_000), np.full(2, 65_536), np.full(2, 2), texts(["T4"] * 2),
                      texts(["", ""]))
    rows = [(36_000 * k + at, run_s, gpus) for k in range(12)
            for at, run_s, gpus in ((0, 9000, 1), (30, 9000, 1), (60, 600, 2), (90, 600, 1))]
    submit_s, run_s, gpus = zip(*rows, strict=True)
    problem = problem_like(cluster, tasks_like(gpus), submit_s, run_s)
    made = replay(problem, "kubernetes")
    record = replace(problem, start_s=made.start_s, node=made.node, gpu_mask=made.gpu_mask)
    found = compare(record, Question(("fgd", "kubernetes"), fit=True))
    assert found.fidelity.iloc[0][["policy", "backfill", "misfit"]].tolist() == ["kubernetes", "none", 0.0]
    assert found.levers["choice"].tolist() == ["kubernetes", "fgd", *COMPARED[1:]]
    assert found.levers.set_index("choice").loc["first-fit", "difference"] < 0


def test_where_settings_of_slurm_are_given_its_own_nodes_are_tried():
    """Slurm puts the job of one GPU on the first node, and the one of two GPUs then waits; fgd does not."""
    pair = (0, 9000, 1), (60, 3600, 2)
    rows = [(36_000 * k + at, run_s, gpus, 1000) for k in range(20) for at, run_s, gpus in pair]
    problem = timed(rows, walltime_s=np.array([row[1] for row in rows], float))
    conf = SlurmQueue(has_weights=True)
    made = replay(problem, "slurm", backfill="slurm", slurm=conf)
    record = replace(problem, start_s=made.start_s, node=made.node, gpu_mask=made.gpu_mask)
    found = compare(record, Question(fit=True, slurm=conf))
    assert found.fidelity.iloc[0][["policy", "backfill", "misfit"]].tolist() == ["slurm", "slurm", 0.0]
    assert "slurm" in found.outcomes and "slurm" not in compare(record, Question(fit=True)).outcomes


@pytest.mark.parametrize(("most", "is_tried"), [(10**9, True), (0, False)])
def test_rules_that_book_are_tried_on_many_tasks_where_few_wait(most, is_tried, monkeypatch):
    monkeypatch.setattr(comparing, "MOST_BOOKING", 10)
    monkeypatch.setattr(comparing, "MOST_QUEUED", most)
    found = compare(blocked("easy"), Question(("fgd",), fit=True)).fidelity
    assert (set(found["backfill"]) >= {"easy", "conservative"}) == is_tried


def test_waits_beside_the_record_by_size_and_queue():
    record = blocked("easy")
    found = compare(record, Question(("fgd",), backfill="none")).fidelity
    assert set(found["by"]) == {"all", "size", "queue"}
    now_s = replay(record, "fgd").start_s - record.submit_s
    then_s = record.start_s - record.submit_s
    is_wide = record.queue == "wide"
    wide = found[found["value"] == "wide"].iloc[0]
    assert wide["tasks"] == is_wide.sum()
    for column, waits_s in (("recorded_p90_wait_s", then_s), ("p90_wait_s", now_s)):
        assert wide[column] == pytest.approx(np.quantile(waits_s[is_wide], 0.9))
    apart_s = np.abs(now_s - then_s)
    assert found.iloc[0]["within_600_s_share"] == pytest.approx((apart_s <= 600).mean())
    assert found.iloc[0]["misfit"] >= abs(now_s.mean() - then_s.mean()) / max(then_s.mean() / 4, 60) - 1e-9


def room_by_hand(problem: Problem, schedule: Schedule) -> tuple[float, float]:
    """Recount hours of waiting, and those with room on an open node, moment by moment, of each run."""
    closed = [row[:3] for row in zip(*(problem.outages or NO_OUTAGES), strict=True)]
    problem, schedule, _ = with_lost(problem, schedule)
    moments = np.unique(np.concatenate([problem.submit_s, schedule.start_s, schedule.end_s,
                                        *(row[1:] for row in closed)]))
    moments = moments[np.isfinite(moments)]
    tasks, cluster = problem.tasks, problem.cluster
    waited = with_room = 0.0
    for job in np.flatnonzero((schedule.node >= 0) & (schedule.start_s > problem.submit_s)):
        waited += schedule.start_s[job] - problem.submit_s[job]
        for begin, end in zip(moments[:-1], moments[1:], strict=True):
            if not problem.submit_s[job] <= begin < schedule.start_s[job]:
                continue
            cpu, memory, gpu = (left.copy() for left in empty_state(cluster))
            for other in np.flatnonzero((schedule.start_s <= begin) & (begin < schedule.end_s)):
                node = schedule.node[other]
                cpu[node] -= tasks.cpu_milli[other]
                memory[node] -= tasks.memory_mib[other]
                for slot in range(gpu.shape[1]):
                    gpu[node, slot] -= (schedule.gpu_mask[other] >> slot & 1) * tasks.gpu_milli[other]
            with_room += (end - begin) * any(
                cpu[node] >= tasks.cpu_milli[job] and memory[node] >= tasks.memory_mib[job]
                and (tasks.num_gpus[job] == 0 or admits(tasks.gpu_spec[job], cluster.gpu_model[node]))
                and sum(gpu[node] >= max(1, tasks.gpu_milli[job])) >= tasks.num_gpus[job]
                and not any(node == one and since <= begin < until for one, since, until in closed)
                for node in range(len(cluster)))
    return waited / 3600, with_room / 3600


@pytest.mark.parametrize("rule", ["none", "first-fit"])
@pytest.mark.parametrize("outages", [None, outages_at(
    (0, 600, np.inf, False, True), (1, 900, 2500, True, True), (1, 2000, 3000, False, True))])
def test_room_while_jobs_wait_is_counted_as_by_hand(rule, outages):
    problem = replace(random_problem(7, 30), outages=outages)
    schedule = replay(problem, "random", backfill=rule)
    counted = room_while_waiting(problem, schedule)
    assert counted == pytest.approx(room_by_hand(problem, schedule)) and counted[0] > 1
    assert (counted[1] > 0.1) == (rule == "none")  # who fits starts at once under first-fit


def test_jobs_that_were_held_are_counted_and_nothing_is_advised():
    """Forty jobs were held for five hours each: 200 hours of waiting beside free nodes, nearly all."""
    found = compare(blocked("first-fit", 18_000.0), Question(fit=True))
    sizes = found.about["missing"]
    assert found.fidelity["misfit"].iloc[0] > 1
    assert 10 * sizes["replayed_room_h"] < 200 >= sizes["recorded_room_h"] > 150
    assert "a node had room for who waited, which holds, quotas" in fidelity_sentence(found)


def test_few_starts_or_none_judge_nothing():
    few = compare(replace(random_problem(3, 20), start_s=np.full(20, 4000.0), node=np.zeros(20, int)))
    assert fidelity_sentence(few) == "" and is_believed(few.fidelity) and len(few.fidelity)
    at_once = random_problem(3, 60)
    assert record_of(replace(at_once, start_s=at_once.submit_s)) is None  # a trace of demand
    assert compare(at_once).fidelity.empty


def test_the_command_says_what_to_type(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "page_of", lambda comparison: "<!DOCTYPE html>")
    monkeypatch.chdir(tmp_path)
    record = blocked("easy")
    jobs = pd.DataFrame({
        "name": record.tasks.name, "submit_s": record.submit_s, "start_s": record.start_s,
        "end_s": record.start_s + record.duration_s, "num_gpus": record.tasks.num_gpus, "cpu_milli": 1000,
        "memory_mib": 1024, "node": record.cluster.name[record.node]})
    jobs.to_csv("jobs.csv", index=False)
    Path("nodes.csv").write_text("name,gpu_model,num_gpus,cpu_milli,memory_mib\na,T4,2,8000,8192\nb,G2,1,8000,8192\n")
    assert call("read", "csv", "jobs.csv", "nodes.csv", "--out", "mine") == 0
    capsys.readouterr()
    assert call("replay", "mine", "--out", "plain") == 0
    *_, sentence, then = capsys.readouterr().out.splitlines()
    assert sentence.startswith("fgd with backfill none does not explain the record, so no lever is named: ")
    assert then == "next: sched-lab replay mine --fit --out plain-fit"
    assert call("replay", "mine", "--fit", "--out", "plain-fit") == 0
    assert " explains the record: " in capsys.readouterr().out.splitlines()[-2]
    assert pd.read_csv("plain-fit/fidelity.csv")["misfit"][0] < 1
    assert_refused(call("replay", "mine", "--fit", "--backfill", "easy", "--out", "x"), capsys, "give one of them")
    Path("more.toml").write_text("load = 2\n")
    assert_refused(call("replay", "mine", "--fit", "--what-if", "more.toml", "--out", "x"), capsys, "recorded start")


def test_a_wait_that_is_short_beside_the_runs_is_let_pass():
    """Forty jobs that run for a day each start two minutes after they come, for reasons that no replay has."""
    rows = [(3 * 86_400 * k, 86_400, 1, 1000) for k in range(40)]
    record = replace(timed(rows), start_s=np.array([row[0] + 120.0 for row in rows]))
    assert compare(record).fidelity["misfit"].iloc[0] == pytest.approx(120 / 864, abs=0.01)
    short = replace(record, duration_s=np.full(len(rows), 600.0))
    assert compare(short).fidelity["misfit"].iloc[0] >= 2
