"""The meter of all families: against sums by hand, under prices, with wrong holdings, and asleep."""
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.bill import KNOWN_RATES, bill_of, gpus_alone, tariff_of
from sched_lab.cluster import Cluster, empty_state
from sched_lab.holdings import Holdings, check_holdings
from sched_lab.lab import commands
from sched_lab.lab.frames import InputError
from sched_lab.lab.reports import ENERGY_MEANINGS, energy_sentence
from sched_lab.meter import NodeWatts, Rate, meter
from sched_lab.power import datacenter_power_w, power_of

pytestmark = pytest.mark.usefixtures("python_itself")


def texts_of(*texts):
    return np.array(texts, object)


TWINS = Cluster(texts_of("c", "d"), np.array([64_000, 40_000]), np.array([1, 1]), np.array([4, 2]),
                texts_of("T4", "A100"), texts_of("", ""))
POWER = power_of(TWINS, "package", load_curve="linear")
EDGES_S = [0.0, 7.5, 31.0, 80.0]


def random_holdings(seed: int, count: int = 30) -> Holdings:
    """Rows so small that all of them fit together, some of no length and some for ever."""
    rng = np.random.default_rng(seed)
    node = rng.integers(0, 2, count)
    start_s = rng.integers(0, 50, count).astype(float)
    end_s = start_s + rng.integers(0, 30, count)
    end_s[rng.random(count) < 0.1] = np.inf
    return Holdings(node, rng.integers(0, np.where(node, 4, 16)), rng.integers(0, 33, count),
                    rng.integers(0, 1300, count), start_s, end_s)


def plain_joules(rows: Holdings, asleep_after_s: float, asleep_w: float) -> np.ndarray:
    """Joules of each bin, awake and asleep, from the definition, in steps of half a second."""
    joules = np.zeros((len(EDGES_S) - 1, 2))
    holds = rows.end_s > rows.start_s
    for step in np.arange(0, EDGES_S[-1], 0.5):
        is_held = holds & (rows.start_s <= step) & (step < rows.end_s)
        state = empty_state(TWINS)
        for row in np.flatnonzero(is_held):
            state.cpu_left_milli[rows.node[row]] -= rows.cpu_milli[row]
            state.gpu_left_milli[rows.node[row]] -= (rows.gpu_mask[row] >> np.arange(4) & 1) * rows.gpu_milli[row]
        watts = sum(datacenter_power_w(POWER, state))
        saved = 0.0
        for node in range(2):
            ended = rows.end_s[holds & (rows.node == node) & (rows.end_s <= step)]
            if not is_held[rows.node == node].any() and ended.max(initial=0.0) + asleep_after_s <= step:
                alone = TWINS.take(np.array([node]))
                idle = power_of(alone, "package", load_curve="linear")
                saved += sum(datacenter_power_w(idle, empty_state(alone))) - asleep_w
        joules[np.searchsorted(EDGES_S, step, side="right") - 1] += np.array([watts, watts - saved]) * 0.5
    return joules


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 3.0, 17.5]))
def test_the_integral_equals_a_sum_by_hand(seed, asleep_after_s):
    rows = random_holdings(seed, 12)
    drawn = meter(TWINS, rows, POWER, EDGES_S, asleep_after_s=asleep_after_s, asleep_w=4.0)
    assert np.allclose(drawn[["power_w", "asleep_w"]].mul(np.diff(EDGES_S), axis=0),
                       plain_joules(rows, asleep_after_s, 4.0), rtol=1e-12)
    assert (drawn["asleep_w"] <= drawn["power_w"]).all()
    assert np.allclose(drawn["cpu_w"] + drawn["gpu_w"], drawn["power_w"], rtol=1e-15)


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_cost_and_co2_under_steps_equal_sums_by_hand(seed):
    rng = np.random.default_rng(seed)
    start_s, end_s = np.sort(rng.choice(80, 2, replace=False)).astype(float)
    one = Holdings([0], [1], [1000], [2000], [start_s], [end_s])
    price = Rate(np.array([0.0, 20.0, 55.0]), rng.normal(0.2, 0.3, 3), 90.0)  # prices may be below 0
    tariff = tariff_of()._replace(price=price)
    bill = bill_of(TWINS, one, POWER, tariff, horizon=(0.0, 80.0))
    idle_w = sum(datacenter_power_w(POWER, empty_state(TWINS)))
    # one T4 from 10 to 70 W, and one of 16 cores of a CPU from 15 to 120 W: 63 thousandths on the linear curve
    extra_w = 60 + 105 * 0.063
    by_hand = 0.0
    for value, (low, high) in zip(price.value, ((0, 20), (20, 55), (55, 80)), strict=True):
        busy_s = max(0.0, min(high, end_s) - max(low, start_s))
        by_hand += value * (idle_w * (high - low) + extra_w * busy_s) / 3.6e6
    kwh = (80 * idle_w + (end_s - start_s) * extra_w) / 3.6e6
    assert np.isclose(bill.energy_kwh, kwh, rtol=1e-12)
    assert np.isclose(bill.energy_eur, by_hand, rtol=1e-9, atol=1e-15)
    assert np.isclose(bill.co2_kg, 0.214 * kwh, rtol=1e-12)


def test_watts_of_whole_nodes_have_no_parts_and_a_form():
    watts = np.arange(10.0).reshape(2, 5)
    rows = Holdings([0, 0, 1], [1, 2, 3], [1000] * 3, [0] * 3, [0.0, 1800.0, 900.0], [3600.0, 3600.0, 1800.0])
    drawn = meter(TWINS, rows, NodeWatts(watts), [0.0, 3600.0])
    assert drawn[["cpu_w", "gpu_w"]].isna().all(axis=None) and drawn["busy_gpus"][0] == 1 + 0.5 + 0.5
    with pytest.raises(InputError, match=r"shape \(2, 4\)"):
        meter(TWINS, rows, NodeWatts(watts[:, :4]), [0.0, 1.0])
    with pytest.raises(InputError, match="below 0"):
        meter(TWINS, rows, NodeWatts(-watts), [0.0, 1.0])


FINE = Holdings(*map(np.array, ([0, 1], [0b11, 0b1], [600, 1000], [4000, 40_000], [0.0, 5.0], [10.0, np.inf])))


@pytest.mark.parametrize(("change", "words"), [
    ({"node": [0, 2]}, "node 2: there is no such node"),
    ({"node": [-1, 1]}, "node -1: there is no such node"),
    ({"gpu_mask": [0b11, 0b100]}, "holding 1 .* node 'd': the node has no such GPU"),
    ({"gpu_mask": [-1, 1]}, "node 'c': the node has no such GPU"),
    ({"gpu_milli": [1001, 1000]}, "node 'c': a GPU has 0 to 1000"),
    ({"cpu_milli": [-1, 0]}, "node 'c': CPU is below 0"),
    ({"cpu_milli": [0, 40_001]}, "CPU of node 'd' is held to 40001 of 40000 thousandths at 5 s"),
    ({"node": [1, 1]}, "the CPU of node 'd'"),
    ({"node": [1, 1], "cpu_milli": [0, 0]}, "GPU 0 of node 'd' is held to 1600 of 1000 thousandths at 5 s"),
    ({"start_s": [0.0, np.nan]}, "no finite start"),
    ({"start_s": [0.0, -np.inf]}, "no finite start"),
    ({"end_s": [10.0, 4.0]}, "its end is before its start"),
    ({"end_s": [10.0, np.nan]}, "its end is before its start"),
    ({"cpu_milli": [0.5, 0]}, "cpu_milli .* whole numbers"),
    ({"start_s": [0.0]}, "start_s"),
])
def test_wrong_holdings_are_refused_by_name(change, words):
    check_holdings(TWINS, FINE)
    wrong = FINE._replace(**{name: np.array(column) for name, column in change.items()})
    for refuses in (lambda: check_holdings(TWINS, wrong), lambda: meter(TWINS, wrong, POWER, [0.0, 1.0])):
        with pytest.raises(InputError, match=words):
            refuses()


def test_a_gpu_may_be_passed_on_at_once_and_parts_of_it_may_be_shared():
    passed = Holdings([0, 0], [1, 1], [1000, 1000], [64_000, 64_000], [0.0, 5.0], [5.0, 9.0])
    shared = Holdings([0] * 3, [1] * 3, [250, 250, 500], [0] * 3, [0.0] * 3, [5.0, 6.0, 7.0])
    for rows in (passed, shared, passed._replace(end_s=[5.0, 5.0])):
        check_holdings(TWINS, rows)
    assert meter(TWINS, shared, POWER, [0.0, 10.0])["busy_gpus"][0] == 0.7


def test_edges_sleep_and_watts_of_another_cluster_are_refused():
    for edges_s in ([0.0], [1.0, 1.0], [0.0, np.inf]):
        with pytest.raises(InputError, match="edges"):
            meter(TWINS, FINE, POWER, edges_s)
    for sleep in ({"asleep_after_s": -1.0}, {"asleep_after_s": 1.0, "asleep_w": np.nan}):
        with pytest.raises(InputError, match="no way to sleep"):
            meter(TWINS, FINE, POWER, [0.0, 1.0], **sleep)
    with pytest.raises(InputError, match="1 nodes, and 2 nodes"):
        meter(TWINS, FINE, power_of(TWINS.take(np.array([0]))), [0.0, 1.0])


def test_a_bill_needs_a_tariff_that_covers_it(tmp_path):
    series = Path(tmp_path, "prices.csv")
    series.write_text("time,value\n0,0.2\n10,0.4\n")
    tariff = tariff_of(str(series), "", None, (0.0, 20.0))
    assert "prices.csv" in tariff.words and str(tmp_path) not in tariff.words and "214 g" in tariff.words
    with pytest.raises(InputError, match="holds from 0 to 20 s, and is needed from 0 to 21 s"):
        bill_of(TWINS, FINE, POWER, tariff, horizon=(0.0, 21.0))
    with pytest.raises(InputError, match="prices.csv"):
        tariff_of(str(series), "", None, (0.0, 21.0))


@pytest.mark.parametrize(("rows", "words"), [
    ("time,value\n0,1\n", "fewer than two rows"), ("time,value\n100,1\n200,1\n", "holds from 100 to 300 s"),
    ("time,value\n0,1\n0,1\n", "not after the row before"), ("time,value\n0,much\n9,1\n", "much"),
    ("when,value\n0,1\n", "time"), ("time,value\n2026-01-01,1\n2026-01-02,1\n", "the cluster has no dates"),
    ("time,value\nnoon,1\n9,1\n", "neither a number of seconds nor a date"), ("", ""),
    ("time,value\n0,inf\n99,1\n", "inf"), ("time,value\nnan,1\n99,1\n", "nan"), ("\0\1\2", "")])
def test_damaged_prices_are_refused_by_name(tmp_path, rows, words):
    path = tmp_path / "price.csv"
    path.write_text(rows)
    with pytest.raises(InputError, match=f"price.csv.*{words}|{words}.*price.csv"):
        tariff_of(str(path), "", None, (0.0, 20.0))


def test_a_bill_says_what_it_rests_on():
    horizon = (0.0, 3600.0)
    plain = bill_of(TWINS, FINE, POWER, tariff_of(), horizon=horizon)
    assert set(plain.summary()) == {"energy_kwh", "energy_eur", "co2_kg", "energy_assumptions"}
    for words in ("load curve", "cooling", "0.1717 EUR/kWh", "ANDREAS", "214 g", "European Environment Agency"):
        assert words in plain.assumptions
    asleep = bill_of(TWINS, FINE, POWER, tariff_of(), horizon=horizon, asleep_after_s=600.0, asleep_w=3.0)
    assert set(asleep.summary()) == set(ENERGY_MEANINGS) and "10 min draws 3 W" in asleep.assumptions
    # node c is empty from second 10 on, and asleep from second 610
    assert np.isclose(asleep.energy_kwh - asleep.asleep_kwh, (2 * 15 + 4 * 10 - 3) * (3600 - 610) / 3.6e6)
    alone = bill_of(TWINS, FINE, gpus_alone(POWER), tariff_of(), horizon=horizon)
    assert "CPUs are left out" in alone.assumptions and alone.energy_kwh < plain.energy_kwh
    assert "2.5 kWh (2.0 kWh with empty nodes asleep), which cost 0.25 EUR and stand for 1.2 kg" in energy_sentence(
        {"energy_kwh": 2.5, "asleep_kwh": 2.0, "energy_eur": 0.25, "co2_kg": 1.24})


def test_an_empty_schedule_draws_idle_power():
    nothing = Holdings(*([],) * 6)
    drawn = meter(TWINS, nothing, POWER, [0.0, 10.0], asleep_after_s=5.0)
    assert drawn["power_w"][0] == sum(datacenter_power_w(POWER, empty_state(TWINS)))
    assert drawn["asleep_w"][0] == drawn["power_w"][0] / 2


@pytest.mark.parametrize(("option", "name"), [(commands.Price, "--price"), (commands.Carbon, "--carbon")])
def test_the_options_say_the_default_that_holds(option, name):
    assert f"[default: {KNOWN_RATES[name].value:.10g}" in option.__metadata__[0].help
