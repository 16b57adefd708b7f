"""The bridge in a simulated world: nothing breaks, all repeats, and what is planted is found."""
import pytest

from sched_lab.fleet.live.journal import replay_journal
from sched_lab.fleet.live.lease import Lease
from tests.fleet.faults import (
    APART,
    BUGS,
    LEASE_S,
    OF_TWO,
    REST_S,
    BindsToTheEnd,
    CountsFromTheAnswer,
    LeavesNoMargin,
    Makers,
    hunt,
    main,
    shrunk,
    simulate,
)
from tests.fleet.store import Store


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


def test_two_replicas_break_nothing_in_the_first_seeds():
    runs = [simulate(seed, 200, Makers(lease=Lease)) for seed in range(16)]
    assert [run for run in runs if run.finding] == []
    assert sum(run.decisions for run in runs) > 60


@pytest.mark.parametrize("bug", OF_TWO)
def test_a_planted_bug_of_two_replicas_is_found(bug):
    """In the first run of `hunt` that did; hunt again for another one if what is simulated has changed."""
    makers, seed = OF_TWO[bug]
    assert simulate(seed, 400, Makers(**{"lease": Lease, **makers})).finding


def between_s(kind, rate, other_rate, late_s):
    """Seconds from when a leader stops to answer, and to bind, until another one leads; its last renewal is late."""
    now_s = answers_s = binds_s = 0.0
    store = Store()

    def run(steps):
        call = next(steps, None)
        while call is not None:
            name, body = call.arguments[1], call.arguments[-1]
            found = store.objects["leases"].get(name)
            if call.method == "write_lease":
                found = store.create("leases", body) if found is None else store.replace("leases", name, body)
                yield
            try:
                call = steps.send(found)
            except StopIteration:
                call = None
        yield

    leader, other = (kind("lab/bridge", holder, LEASE_S, REST_S, lambda rate=rate: now_s * rate)
                     for holder, rate in (("a", rate), ("b", other_rate)))
    store.create("leases", {"metadata": {"name": "bridge"}, "spec": {"holderIdentity": ""}})
    renewal = run(leader.step(True, lambda: True))
    next(renewal)
    while other.left_s() <= 0:
        for _ in run(other.step(True, lambda: True)):
            pass
        if now_s >= late_s:
            next(renewal, None)
        answers_s = now_s if leader.left_s() > 0 else answers_s
        binds_s = now_s if leader.may_bind() else binds_s
        now_s += 0.5
    return now_s - answers_s, now_s - binds_s


@pytest.mark.parametrize("rates", [(1 - APART, 1 + APART), (1 + APART, 1 - APART), (1 - APART, 1 - APART)])
def test_a_leader_has_stopped_when_another_one_begins_however_clocks_run(rates):
    answers_s, binds_s = between_s(Lease, *rates, 30.0)
    assert answers_s > 0.5 and binds_s > REST_S
    if rates == (1 - APART, 1 + APART):
        assert between_s(LeavesNoMargin, *rates, 0.0)[0] == between_s(CountsFromTheAnswer, *rates, 30.0)[0] == 0.5
        assert between_s(BindsToTheEnd, *rates, 30.0)[1] < REST_S


def test_the_shortest_run_breaks_and_one_step_less_does_not():
    bug = Makers(**BUGS["CountsTwice"])
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
    assert main(["--decisions", "20", "--steps", "20"]) == main(["--decisions", "2", "--replicas", "2"]) == 0
    assert "none broken" in capsys.readouterr().out
    assert main(["--seed", "5", "--steps", "40"]) == 0
    assert "nothing broke" in capsys.readouterr().out
