"""Energy of a day: brute force second by second, and the bill."""
from dataclasses import replace

import numpy as np
import pytest

from sched_lab.andreas.energy import bill_of_day
from sched_lab.andreas.instances import generate
from sched_lab.andreas.machines import draws_of, energy_by_job, eur_of, fleet_at, price_at, site_of
from sched_lab.andreas.model import Fleet, Instance, Jobs, Prices, Site
from sched_lab.andreas.simulation import simulate
from sched_lab.bill import tariff_of

SITE = Site(("mixed", "small"), np.array([0, 0, 1]), np.array([360.0, 360.0]),
            np.array([[0.0, 170.0, 340.0], [0.0, 80.0, np.inf]]), 0.2, 1.3)
FLEET = Fleet(np.array([0, 1, 1]), np.array([2, 1, 1]), np.array([0, 0, 1]), np.array([1, 2, 1]),
              np.array([[0, 530.0, 700.0], [0, 440.0, np.inf]]) / 1000 * 0.2 * 1.3)
JOBS = Jobs(np.array([0.0, 0.0, 20.0]), np.array([60.0, 90.0, 100.0]), np.full(3, 1e-6),
            np.array([[60.0, 40.0, 90.0], [50.0, 30.0, 70.0], [30.0, 20.0, 40.0]]))
MIXED = Instance(("mixed:T", "mixed:U", "small"), ("A", "B", "C"), ("T", "U"), FLEET, JOBS, np.full(3, 5), site=SITE)


def every_second(instance, history, seconds):
    """Energy in EUR of machines in use, of empty ones, by looking at all of them in every second."""
    site = instance.site
    used_eur = empty_eur = 0.0
    empty_s = np.zeros(len(site.base_w))
    for t in range(seconds):
        now = history[(history["start_s"] <= t) & (t < history["end_s"])]
        used = np.zeros(len(instance.node_name), np.int64)
        gpus = instance.fleet.configuration_gpus[now["configuration"].to_numpy(int)]
        np.add.at(used, now["node"].to_numpy(int), gpus)
        eur = site.pue / 1000 / 3600 * (site.eur_per_kwh if instance.prices is None else price_at(instance.prices, t))
        for m in range(len(site.base_w)):
            own = np.flatnonzero(site.machine == m)
            if used[own].any():
                empty_s[m] = 0
                added_w = sum(site.added_w[instance.fleet.node_type[n], used[n]] for n in own)
                used_eur += eur * (site.base_w[m] + added_w)
            else:
                empty_eur += eur * (site.base_w[m] if empty_s[m] < site.off_after_s else site.off_w)
                empty_s[m] += 1
    return used_eur, empty_eur


@pytest.mark.parametrize("policy", ["fifo", "edf", "greedy", "local"])
def test_a_day_costs_what_every_second_costs(policy):
    """Times of whole seconds and rules that never interrupt: no event is within a second."""
    instance = replace(MIXED, site=SITE._replace(off_after_s=15.0, off_w=7.0),
                       prices=Prices(np.array([0.0, 30.0, 77.0]), np.array([0.3, 0.1, 0.2])))
    day = simulate(instance, policy)
    draws = draws_of(instance, day.history, day.horizon)
    assert day.energy_eur == pytest.approx(eur_of(instance, draws), rel=1e-9)
    shares = energy_by_job(instance, day.history, day.horizon)
    assert shares.sum() == pytest.approx(day.intervals["energy_eur"].sum(), rel=1e-9)
    if policy in ("fifo", "edf"):
        used_eur, empty_eur = every_second(instance, day.history, int(day.makespan_s))
        assert day.intervals["energy_eur"].sum() == pytest.approx(used_eur, rel=1e-9)
        assert day.empty_eur == pytest.approx(empty_eur, rel=1e-9)


def test_a_change_of_price_is_an_event():
    instance = replace(MIXED, prices=Prices(np.array([0.0, 30.0]), np.array([0.3, 0.1])))
    assert 30.0 in simulate(instance, "fifo").intervals["start_s"].tolist()
    assert 30.0 not in simulate(MIXED, "fifo").intervals["start_s"].tolist()


def test_prices_that_never_change_change_nothing():
    """The table of another price at its own price is the table, and the day the same."""
    plain = generate(3, 4, 0.8)
    assert fleet_at(plain, 5.0) is plain.fleet
    same = replace(plain, prices=Prices(np.zeros(1), np.array([site_of(plain).eur_per_kwh])))
    for policy in ("edf", "greedy"):
        one, two = simulate(plain, policy), simulate(same, policy)
        assert one.history.equals(two.history) and one.energy_eur == pytest.approx(two.energy_eur, rel=1e-12)


def test_the_bill_of_a_day_has_its_energy_and_its_carbon():
    day = simulate(generate(1, 4, 0.8, scenario=2), "greedy", loss="moved")
    bill = bill_of_day(day, tariff_of(), day.horizon)
    assert bill.energy_eur == pytest.approx(day.energy_eur, rel=1e-9)
    assert bill.co2_kg == pytest.approx(bill.energy_kwh * 0.214, rel=1e-9)
