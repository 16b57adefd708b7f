"""The bridge in a simulated world: nothing breaks, all repeats, and what is planted is found."""
import json

import pytest

from sched_lab.fleet.live.journal import replay_journal
from tests.fleet.faults import BUGS, Makers, hunt, main, shrunk, simulate


def test_nothing_breaks_in_the_first_seeds():
    runs = [simulate(seed, 150) for seed in range(30)]
    assert [run for run in runs if run.finding] == []
    assert sum(run.decisions for run in runs) > 200


def test_mode_score_breaks_nothing_either():
    assert [run for seed in range(12) if (run := simulate(seed, 150, Makers(mode="score"))).finding] == []


def test_a_seed_fixes_everything():
    first, second = [], []
    assert simulate(3, 200, says=first.append) == simulate(3, 200, says=second.append)
    assert first == second and len(first) > 50


@pytest.mark.parametrize("bug", [
    "a pod counts beside its reservation", "a reservation outlives its pod", "wrong GPUs after a restart",
    "a node takes its pods along", "the journal loses a line"])
def test_a_planted_bug_is_found(bug):
    _, found = hunt(Makers(**BUGS[bug]), 150)
    assert found is not None


def test_the_shortest_run_breaks_and_one_step_less_does_not():
    bug = Makers(**BUGS["a pod counts beside its reservation"])
    _, found = hunt(bug, 40, steps=80)
    shortest = shrunk(found, bug)
    assert shortest.finding and not simulate(shortest.seed, shortest.steps - 1, bug).finding


def test_a_pod_that_only_a_question_told_of_goes_with_a_list():
    """Runs that leaked a pod when a list was compared with what the watch alone had told."""
    assert simulate(14, 400).finding == "" and simulate(9, 400).finding == ""


def test_the_journal_goes_on_from_life_to_life(tmp_path):
    path = tmp_path / "journal.jsonl"
    run = simulate(6, 300, path=path)
    played = replay_journal(path)
    assert run.finding == "" and len(played) >= run.decisions > 0
    assert played["same"].all()


def test_a_store_is_gone_on_with(tmp_path, capsys):
    store = tmp_path / "store.jsonl"
    asked = ["--decisions", "20", "--steps", "20", "--store", str(store)]
    assert main(asked) == 0
    before = store.read_text(encoding="utf-8")
    assert sum(json.loads(line)["decisions"] for line in before.splitlines()) >= 20
    assert main(asked) == 0 and store.read_text(encoding="utf-8") == before
    assert "0 broken" in capsys.readouterr().out


def test_a_replay_prints_its_steps(capsys):
    assert main(["--seed", "5", "--steps", "40"]) == 0
    assert "nothing broke" in capsys.readouterr().out
