"""What levers are worth: named where they are known by construction, and counted as replays by hand count them."""
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.cluster import Cluster
from sched_lab.fleet.command import next_words
from sched_lab.fleet.replay import report
from sched_lab.fleet.replay.compare import Comparison, Question, compare
from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.problem import Problem
from sched_lab.fleet.replay.report import (
    AMOUNTS,
    AXES,
    Reading,
    best_lever,
    lever_chart,
    lever_sentence,
    levers_table,
    objective_of,
    said_of,
)
from sched_lab.fleet.replay.what_if import read_what_if
from sched_lab.fleet.replay.worth import levers_of_tasks, node_rows, with_node_rows, with_worth
from tests.command_line import assert_refused, call
from tests.fleet.problems import problem_like, tasks_like, texts, two_nodes

pytestmark = pytest.mark.usefixtures("python_itself")
DAY_S = 86_400


def month(gpus, rows) -> Problem:
    """Make a problem of jobs (submit, duration, GPUs) on A100 nodes of so many GPUs."""
    num = len(gpus)
    cluster = Cluster(texts(f"n{k}" for k in range(num)), np.full(num, 64_000), np.full(num, 2**18), np.array(gpus),
                      texts(["A100"] * num), texts([""] * num))
    submit_s, run_s, asked = zip(*sorted(rows), strict=True)
    return problem_like(cluster, tasks_like(asked), submit_s, run_s)


def blocked_head(rng) -> tuple[Problem, Question, str]:
    """Let a job of eight GPUs wait for the one node that has them, and ten small ones, which have room, behind it."""
    rows = []
    for day in range(3):
        at = day * DAY_S + int(rng.integers(20_000))
        rows += [(at, 10_000 + int(rng.integers(4000)), 4), (at + 60, 3600, 8)]
        rows += [(at + 120 + 60 * k, 600 + int(rng.integers(600)), 1) for k in range(10)]
    return month([8, 2, 2, 2, 2, 2], rows), Question(), "backfill "


def scattered(rng) -> tuple[Problem, Question, str]:
    """Small jobs that kube-scheduler spreads over all nodes leave none whole; packed on one, they leave five."""
    rows = []
    for day in range(3):
        at = day * DAY_S + int(rng.integers(20_000))
        rows += [(at + 10 * k, 12_000 + int(rng.integers(4000)), 1) for k in range(6)]
        rows += [(at + 300 + 60 * k, 3600, 8) for k in range(5)]
    return month([8] * 6, rows), Question(("kubernetes", "fgd")), "placement by fgd"


def idle_nights(rng) -> tuple[Problem, Question, str]:
    """Let a few jobs each morning find all they need, and nobody come for the rest of the day."""
    rows = [(day * DAY_S + int(rng.integers(7200)), int(rng.integers(3600, 9000)), int(rng.integers(1, 5)))
            for day in range(8) for _ in range(4)]
    return month([8] * 6, rows), Question(), "sleep after 15 min"


def too_few_nodes(rng) -> tuple[Problem, Question, str]:
    """Jobs of one GPU, all alike, come faster than three nodes of one serve them: nobody could pass or be packed."""
    rows = [(day * DAY_S + 300 * k + int(rng.integers(60)), 1500, 1) for day in range(2) for k in range(18)]
    return month([1, 1, 1], rows), Question(), "1 node more"


def choosy(rng) -> tuple[Problem, Question, str]:
    """Jobs that come faster than the one A100 serves them ask for an A100, while the T4 have nothing to do."""
    problem, asked, _ = too_few_nodes(rng)
    mixed = replace(problem.cluster, gpu_model=texts(["A100", "T4", "T4"]))
    tasks = replace(problem.tasks, gpu_spec=texts(["A100"] * len(problem.tasks)))
    return replace(problem, cluster=mixed, tasks=tasks), asked, "any GPU model"


def answered(problem: Problem, asked: Question) -> Comparison:
    return with_worth(compare(problem, asked), asked)


@pytest.mark.parametrize("kind", [blocked_head, scattered, idle_nights, too_few_nodes, choosy])
@pytest.mark.parametrize("seed", range(5))
def test_the_lever_of_the_construction_is_named(kind, seed):
    problem, asked, lever = kind(np.random.default_rng(seed))
    sentence = lever_sentence(answered(problem, asked))
    assert sentence.startswith(f"The largest lever is {lever}"), sentence


def mean_wait_s(problem: Problem, num_nodes: int) -> float:
    """Replay on so many nodes, the last ones copied or the first left, without any of the machinery of levers."""
    cluster = with_node_rows(problem, node_rows(len(problem.cluster), num_nodes / len(problem.cluster)))
    schedule = replay(cluster, "fgd")
    return float((schedule.start_s - problem.submit_s)[schedule.node >= 0].mean())


def test_worth_in_gpus_lies_between_clusters_that_wait_longer_and_shorter():
    """Every number of nodes is replayed by itself, and the wait of the best lever lies between two of them."""
    rng = np.random.default_rng(1)
    rows = [(day * DAY_S + 60 * k, 3000 + int(rng.integers(600)), 1 + (k % 7 == 3))
            for day in range(3) for k in range(14)]
    problem = month([2, 2, 1, 1, 1, 1], rows)
    found = answered(problem, Question()).levers
    gpus_s = {int(problem.cluster.num_gpus[node_rows(6, count / 6)].sum()) - 8: mean_wait_s(problem, count)
              for count in range(5, 16)}
    for choice, gpus in (("+1", 1), ("-1", -2)):
        row = found[found["choice"] == choice].iloc[0]
        assert row["worth_gpus"] == gpus and row["mean_wait_s"] == pytest.approx(gpus_s[gpus])
    best = found.loc[found["mean_wait_s"].idxmin()]
    more = [gpus for gpus in gpus_s if gpus >= best["worth_gpus"]]
    fewer = [gpus for gpus in gpus_s if gpus <= best["worth_gpus"]]
    assert gpus_s[min(more)] - 1e-6 <= best["mean_wait_s"] <= gpus_s[max(fewer)] + 1e-6 and best["worth_gpus"] > 0
    assert found["worth_gpus"].iloc[0] == 0


def test_what_sleep_and_a_cap_bring_is_what_their_options_say():
    problem, asked, _ = idle_nights(np.random.default_rng(0))
    whole = compare(problem, asked)
    found = with_worth(whole, asked).levers.set_index("lever")
    month_share = 30 * DAY_S / (whole.about["until_s"] - whole.about["from_s"])
    asleep = compare(problem, Question(("fgd",), asleep_after_s=900.0)).summary.iloc[0]
    sleep = found.loc["sleep"]
    assert sleep["kwh_month"] == pytest.approx(asleep["energy_asleep_kwh"] * month_share)
    assert sleep["worth_gpus"] == 0 == found.loc["placement", "worth_gpus"].iloc[0]  # though a node fewer would do, too
    assert sleep["kwh_apart"] == pytest.approx((asleep["energy_asleep_kwh"] - asleep["energy_kwh"]) * month_share)
    assert sleep["eur_month"] / sleep["kwh_month"] == pytest.approx(asleep["cost"] / asleep["energy_kwh"])
    capped = compare(problem, Question(("fgd",), cap_w=float(found.loc["cap", "choice"]))).summary.iloc[0]
    assert found.loc["cap", "mean_wait_s"] == pytest.approx(capped["mean_wait_s"])
    assert found.loc["cap", "kwh_month"] == pytest.approx(capped["energy_kwh"] * month_share)


def test_walltimes_half_as_wrong_let_small_jobs_pass():
    """Each small job runs for 600 s and asks for 3,600; the head is booked in 2,400: 2,100 s fit before it."""
    rows = [(day * DAY_S + at, run, gpus) for day in range(4) for at, run, gpus in
            [(0, 2700, 3), (60, 600, 4), *((300 + k, 600, 1) for k in range(6))]]
    problem = month([4], rows)
    asks_s = np.where(problem.duration_s == 600, 3600.0, 2700.0)
    asked = Question(("fgd", "pwr-fgd:0.1"), backfill="easy")
    found = answered(replace(problem, walltime_s=asks_s), asked).levers.set_index("lever")
    by_hand = replay(replace(problem, walltime_s=(asks_s + problem.duration_s) / 2), "fgd", backfill="easy")
    assert found.loc["walltimes", "mean_wait_s"] == pytest.approx((by_hand.start_s - problem.submit_s).mean())
    assert found.loc["walltimes", "difference"] < -300


@pytest.mark.parametrize(("milli", "in_sevenths"), [(400, 429), (500, 572), (143, 286), (142, 143)])
def test_what_shares_bring_and_instances_would_is_what_replays_by_hand_say(milli, in_sevenths):
    rows = [(day * DAY_S + 60 * k, 600 + k, 1) for day in range(3) for k in range(20)]
    problem = month([1, 1], rows)
    shared, cut = (replace(problem, tasks=replace(problem.tasks, gpu_milli=np.full(60, one)))
                   for one in (milli, in_sevenths))
    found = answered(shared, Question(("fgd",))).levers.set_index("lever")
    for lever, by_hand in (("placement", shared), ("shares", problem), ("mig", cut)):
        mean_s = (replay(by_hand, "fgd").start_s - problem.submit_s).mean()
        assert found.loc[lever, "mean_wait_s"] == pytest.approx(mean_s)
        assert found.loc[lever, "gpu_h_month"] <= found.loc["placement", "gpu_h_month"] * (1 + 1e-9)  # as they ask
    assert "mig" not in dict(levers_of_tasks(replace(shared, cluster=two_nodes())))
    assert not levers_of_tasks(problem)


def test_a_node_fewer_that_serves_no_wide_job_is_no_lever():
    """The wide jobs, which wait longest, never start without their node: the mean of the others is shorter."""
    problem, asked, _ = blocked_head(np.random.default_rng(0))
    found = answered(problem, asked).levers
    fewer = found[found["choice"] == "-1"].iloc[0]
    assert fewer["tasks"] < len(problem.tasks) and fewer["mean_wait_s"] < found["mean_wait_s"].iloc[0]
    shown = levers_table(found, "waiting")
    assert shown["lever"].iloc[-1] == "1 node fewer" and shown["mean wait"].iloc[-1] == "6 tasks fewer start"
    best = best_lever(found)
    assert best["lever"] == "queue" and best["worth_gpus"] > 0 and np.isnan(fewer["worth_gpus"])
    more = found.index[found["choice"] == "+1"][0]
    for times, lever in ((1.05, "queue"), (1.2, "nodes")):  # a node more has to bring clearly more than what costs none
        as_best = best[found.columns].rename(more)
        found.loc[more] = as_best.drop(["lever", "choice"]).combine_first(found.loc[more])
        found.loc[more, "difference"] = times * best["difference"]
        assert best_lever(found)["lever"] == lever


@pytest.mark.parametrize(("objective", "words"), [
    ("energy", "The largest lever is sleep after 15 min: "), ("cost", "EUR less"),
    ("served", "No lever serves clearly more"), ("waiting", "No lever lets a task wait clearly less than fgd")])
def test_an_objective_is_what_the_sentence_is_about(objective, words):
    problem, asked, _ = idle_nights(np.random.default_rng(0))
    found = answered(problem, asked)
    assert objective_of(found.levers) == "energy"
    found = replace(found, about={**found.about, "objective": objective})
    sentence = lever_sentence(found)
    assert words in sentence and sentence.endswith(".") and "nan" not in sentence
    assert levers_table(found.levers, objective)["lever"][0] == {
        "energy": "sleep after 15 min", "cost": "sleep after 15 min"}.get(objective, "as replayed, fgd")
    drawn = lever_chart(Reading(found)).to_dict()
    bars = next(iter(drawn["datasets"].values()))
    first = found.levers.iloc[0][AMOUNTS[objective]] / (60 if objective == "waiting" else 1)
    assert next(bar["amount"] for bar in bars if bar["is first"]) == pytest.approx(first)
    assert drawn["layer"][0]["encoding"]["x"]["title"].startswith(AXES[objective])


def test_without_watts_nothing_is_said_of_energy():
    problem, asked, _ = too_few_nodes(np.random.default_rng(0))
    unknown = replace(problem, cluster=replace(problem.cluster, gpu_model=texts(["H999"] * 3)))
    found = answered(unknown, asked)
    assert found.levers["kwh_month"].isna().all() and not {"sleep", "cap"} & set(found.levers["lever"])
    assert objective_of(found.levers, "energy") == "waiting"
    sentence = lever_sentence(replace(found, about={**found.about, "objective": "energy"}))
    assert sentence.startswith("The largest lever is 1 node more: a task waits ")


def test_the_command_names_what_to_type_for_a_lever(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "svgs_of", lambda charts: dict.fromkeys(charts(), "<svg></svg>"))
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"t{k},{300 * k},{300 * k},{300 * k + 1500},1,1000,1\n" for k in range(36))
    Path("jobs.csv").write_text(f"name,submit_s,start_s,end_s,num_gpus,cpu_milli,memory_mib\n{rows}")
    nodes = "".join(f"n{k},A100,1,64000,262144\n" for k in range(3))
    Path("own.csv").write_text(f"name,gpu_model,num_gpus,cpu_milli,memory_mib\n{nodes}")
    assert call("read", "csv", "jobs.csv", "own.csv", "--out", "mine") == 0
    assert call("replay", "mine", "--worth", "--out", "answer") == 0
    *_, sentence, then = capsys.readouterr().out.splitlines()
    assert sentence.startswith("The largest lever is 1 node more: ")
    assert then == "next: sched-lab replay mine --backfill none --what-if answer/nodes.toml --out answer-nodes"
    assert f"What to type next: {then.removeprefix('next: ')}" in Path("answer/report.html").read_text()
    more = pd.read_csv("answer/levers.csv", dtype={"choice": str}).set_index("choice").loc["+1", "mean_wait_s"]
    assert call(*then.removeprefix("next: sched-lab ").split()) == 0
    assert pd.read_csv("answer-nodes/summary.csv")["mean_wait_s"][0] == pytest.approx(more)
    Path("own.toml").write_text('load = 1.1\n[nodes]\nscale = 1.5\n[gpu_power_w]\nA100 = [50, 400]\n')
    assert call("replay", "mine", "--worth", "--what-if", "own.toml", "--out", "busier") == 0
    said = read_what_if("busier/nodes.toml")
    assert said == {"load": 1.1, "nodes": {"scale": pytest.approx(1.875)}, "gpu_power_w": {"A100": [50, 400]}}
    assert_refused(call("replay", "mine", "--worth", "--at", "5", "--out", "out"), capsys, "leave one of them out")


def test_what_to_type_for_a_lever_that_no_option_moves_is_what_works():
    levers = pd.DataFrame({"lever": ["placement", "walltimes"], "choice": ["fgd", "half"], "mean_wait_s": [900.0, 100],
                           "difference": [0.0, -800], "low": [0.0, -900], "high": [0.0, -700], "tasks": [99, 99],
                           "no_interval": ["", ""], "longest_s": [0.0, 0], "busy_periods": [9.0, 9],
                           "busy_share": [0.1, 0.1]})
    files = Path("mine"), Path("answer"), None, {"--slurm-config": Path("slurm.conf")}
    fidelity, told = pd.DataFrame({"by": [], "tasks": [], "misfit": []}), {"policies": (), "at": None}
    assert next_words(levers, fidelity, told, "easy", files) == ["place", "mine"]
    for rule, more in (("slurm", ["--slurm-config", "slurm.conf"]), ("easy", [])):  # which goes with one rule only
        then = next_words(levers[:1], fidelity, told, rule, files)
        assert then == ["replay", "mine", "--backfill", rule, *more, "--worth", "--out", "answer-worth"]
    assert said_of(pd.Series({"lever": "cap", "choice": "54321"})) == "a cap of 54,321 W"
