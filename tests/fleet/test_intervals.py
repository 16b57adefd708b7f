"""Intervals: they cover where they are given, and there is none where one busy period decides."""
import numpy as np
import pytest

from sched_lab.fleet.replay import intervals
from sched_lab.fleet.replay.intervals import busy_periods, estimate_over, interval_of, quantile_of_t, ratio_interval
from studies.coverage import pair_of_servers


def test_somebody_waits_between_the_begin_and_the_end_of_a_busy_period():
    """By hand, and for each second of random lists."""
    begins, ends = busy_periods(np.array([0.0, 5, 1, 20, 30]), np.array([2.0, 9, 5, 20, 31]))
    assert begins.tolist() == [0, 30] and ends.tolist() == [9, 31]
    assert [len(part) for part in busy_periods(np.zeros(3), np.zeros(3))] == [0, 0]
    rng = np.random.default_rng(0)
    for _ in range(50):
        since = rng.integers(0, 60, 12) + 0.5
        until = since + rng.integers(0, 8, 12)
        begins, ends = busy_periods(since, until)
        assert (begins[1:] > ends[:-1]).all() and (ends > begins).all()
        for second in range(70):
            waits = ((since <= second) & (second < until)).any()
            assert waits == ((begins <= second) & (second < ends)).any()


@pytest.mark.parametrize(("freedom", "quantile"), [
    (1, 12.7062), (2, 4.3027), (2.5, 3.5747), (10, 2.2281), (1000, 1.9623)])
def test_the_quantiles_are_those_of_student(freedom, quantile):
    assert quantile_of_t(freedom) == pytest.approx(quantile, abs=2e-4)


def test_a_ratio_of_normal_blocks_is_covered():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        sums = np.stack([rng.normal(3, 1, 50), np.full(50, 2.0)], axis=1)
        low, high, carrying = ratio_interval(sums)
        covered += low <= 1.5 <= high
        assert 8 < carrying <= 50 and 0 < low < high
    assert 0.94 < covered / 400 <= 0.99


def test_a_difference_of_next_to_nothing_is_not_sure_to_be_enormous():
    """The mean of a hundred normal blocks is nearly 0: the interval is as wide as its error."""
    sums = np.stack([np.random.default_rng(3).normal(0, 1, 100), np.ones(100)], axis=1)
    sums[:, 0] += 1e-6 - sums[:, 0].mean()
    low, high, _ = ratio_interval(sums)
    assert -0.5 < low < 0 < high < 0.5


def estimate(lengths_s, apart_s):
    """Estimate for a task each hour: how long it waits under one policy, and how much longer under another."""
    submit_s = 3600.0 * np.arange(len(lengths_s))
    busy = busy_periods(submit_s, submit_s + np.asarray(lengths_s, float))
    amounts = np.stack([np.asarray(apart_s, float), np.ones(len(submit_s))], axis=1)
    return estimate_over(submit_s, amounts, busy[0], busy, (0.0, 3600.0 * len(submit_s)))


def test_there_is_no_interval_where_there_cannot_be_one():
    rng = np.random.default_rng(2)
    waits, much = np.full(400, 300), rng.normal(50, 10, 400)
    good = estimate(waits, much)
    assert good.low < 50 < good.high and good.no_interval == "" and good.busy_periods == 400
    one = np.where(np.arange(400) == 7, 9000.0, much)
    found = estimate(np.where(np.arange(400) == 7, 1800, 300), one)
    assert found.no_interval == intervals.ONE and found.longest_s == 1800 and np.isnan(found.low)
    assert found.difference == pytest.approx(one.mean())
    assert estimate(waits[:90], much[:90]).no_interval == intervals.FEW
    assert estimate(3 * waits + 300, much).no_interval == intervals.LONG
    three = np.where(np.isin(np.arange(400), [50, 150, 250]), 9000.0, much)
    assert estimate(waits, three).no_interval == intervals.SHORT
    assert estimate(waits, 0 * much).no_interval == intervals.SAME
    assert estimate(0 * waits, much).no_interval == intervals.FEW


def test_printed_intervals_cover_a_queue_and_narrow_ones_are_found_out(monkeypatch):
    """A queue with a rush each day, a hundred times: with the quantile of a normal variable too many miss."""
    days = 56
    pairs = [pair_of_servers(1000 + seed, "rush of a day", 0.65, days) for seed in range(100)]
    truth = (np.concatenate([second - first for _, first, second in pairs])).mean()

    def misses():
        found = []
        for submit_s, first_s, second_s in pairs:
            amounts = np.stack([second_s - first_s, np.ones(len(submit_s))], axis=1)
            busy = busy_periods(np.tile(submit_s, 2), np.concatenate([submit_s + first_s, submit_s + second_s]))
            found.append(estimate_over(submit_s, amounts, busy[0], busy, (0.0, days * 86_400.0)))
        given = [one for one in found if not one.no_interval]
        return len(given), sum(not one.low <= truth <= one.high for one in given)

    given, missed = misses()
    assert given > 40 and missed <= 0.07 * given
    monkeypatch.setattr(intervals, "quantile_of_t", lambda freedom: 1.0)
    assert misses()[1] > 0.15 * given


def test_the_middle_of_nothing_is_unknown():
    assert np.isnan(interval_of(np.array([np.nan]))).all()
    assert interval_of(np.arange(1001.0)) == pytest.approx((25, 975))
