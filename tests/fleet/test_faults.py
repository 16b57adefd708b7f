"""The bridge in a simulated world: nothing breaks, all repeats, and what is planted is found."""
import pytest

from sched_lab.fleet.live.journal import replay_journal
from tests.fleet.faults import BUGS, Makers, hunt, main, shrunk, simulate


def test_nothing_breaks_in_the_first_seeds():
    runs = [simulate(seed, 150) for seed in range(20)]
    assert [run for run in runs if run.finding] == []
    assert sum(run.decisions for run in runs) > 130


def test_mode_score_breaks_nothing_either():
    assert [run for seed in range(8) if (run := simulate(seed, 150, Makers(mode="score"))).finding] == []


def test_a_seed_fixes_everything():
    first, second = [], []
    assert simulate(3, 200, says=first.append) == simulate(3, 200, says=second.append)
    assert first == second and len(first) > 50


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    assert hunt(Makers(**BUGS[bug]), 150)


def test_the_shortest_run_breaks_and_one_step_less_does_not():
    bug = Makers(**BUGS["a pod counts beside its reservation"])
    shortest = shrunk(hunt(bug, 40, steps=80), bug)
    assert shortest.finding and not simulate(shortest.seed, shortest.steps - 1, bug).finding


def test_a_pod_that_only_a_question_told_of_goes_with_a_list():
    """Runs that leaked a pod when a list was compared with what the watch alone had told."""
    assert simulate(14, 400).finding == "" and simulate(7, 400).finding == ""


def test_the_journal_goes_on_from_life_to_life(tmp_path):
    path = tmp_path / "journal.jsonl"
    run = simulate(6, 300, path=path)
    played = replay_journal(path)
    assert run.finding == "" and len(played) >= run.decisions > 0
    assert played["same"].all()


def test_seeds_are_run_until_enough_was_decided_and_one_is_replayed_in_words(capsys):
    assert main(["--decisions", "20", "--steps", "20"]) == 0
    assert "none broken" in capsys.readouterr().out
    assert main(["--seed", "5", "--steps", "40"]) == 0
    assert "nothing broke" in capsys.readouterr().out
