"""All moments of the gap between filter and bind: none is wrong by the rules, and each rule is needed."""
import pytest

import sched_lab.fleet.live.race as race_module
from sched_lab.fleet.live.core import Passed
from sched_lab.fleet.live.race import FORGOTTEN, LEAKED, OVERFULL, REFUSED, TWICE, Race, compare, walk


def test_a_filter_that_only_says_what_fits_overfills_a_gpu():
    found = walk(Race(reserves=False, checks=False, faults=())).found
    assert [words for _, words, _ in found[OVERFULL]] == ["filter says GPU 0", "bind writes", "the write lands"] * 2
    assert [pod for pod, _, _ in found[OVERFULL]] == [0, 0, 0, 1, 1, 1]


def test_a_bind_that_looks_refuses_what_the_filter_told():
    found = walk(Race(reserves=False, faults=())).found
    assert set(found) == {REFUSED} and len(found[REFUSED]) == 4


def test_decide_mode_without_faults_refuses_nothing():
    seen = walk(Race(lapses=False, faults=()))
    assert seen.found == {} and len(seen.moments) == 17


def test_decide_mode_keeps_its_invariants_in_every_moment():
    seen = walk(Race())
    assert set(seen.found) == {REFUSED}
    assert (len(seen.moments), seen.num_steps) == (54942, 399658)


@pytest.mark.parametrize(("rule", "finding", "num_steps"), [
    ("checks", OVERFULL, 7), ("lapses", LEAKED, 2), ("keeps", OVERFULL, 7), ("waits", OVERFULL, 8),
    ("rests", OVERFULL, 7), ("guards", FORGOTTEN, 10), ("guards", LEAKED, 12), ("refuses", TWICE, 7)])
def test_each_rule_is_needed(rule, finding, num_steps):
    race = Race(num_gpus=2 if rule == "refuses" else 1, **{rule: False})
    trace = walk(race, until=finding).found[finding]
    assert len(trace) == num_steps


def test_a_walk_that_is_too_long_is_given_up():
    with pytest.raises(ValueError, match="more than 100 moments"):
        walk(Race(), most=100)


def test_the_core_goes_every_way_of_the_model():
    race = Race(num_gpus=2, faults=("time-out",))
    num_steps, num_views = compare(race, walk(race))
    assert num_steps > 200 and num_views == 31


def test_a_core_that_lapses_while_committing_differs(monkeypatch):
    monkeypatch.setattr(race_module, "Committing", lambda uid, at_s: Passed(at_s))
    with pytest.raises(ValueError, match="after 'bind writes' of 0 the core holds"):
        compare(Race(), walk(Race(faults=())))
