"""No day costs less than the bound says, whoever is stopped and moved when: all of them, with every option there is."""
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from sched_lab.andreas.greedy import SearchOptions
from sched_lab.andreas.instances import PRICE_EUR_PER_KWH
from sched_lab.andreas.model import Fleet, Instance, Jobs, Present, Prices, Site
from sched_lab.andreas.policies import day_policies
from sched_lab.andreas.simulation import lower_bound_eur, simulate

STEP_S = 10.0  # all times are multiples of it, and decisions are made so often
SITE = Site(("mixed", "small"), np.array([0, 0, 1]), np.array([360.0, 150.0]),
            np.array([[0.0, 170.0, 300.0], [0.0, 80.0, np.inf]]), 0.2, 1.3)
TABLE = np.array([[0.0, 530.0, 660.0], [0.0, 440.0, np.inf]]) / 1000 * 0.2 * 1.3
FLEET = Fleet(np.array([0, 1, 1]), np.array([2, 1, 1]), np.array([0, 0, 1]), np.array([1, 2, 1]), TABLE)
OPTIONS = {
    "table": {}, "machines": {"site": SITE},
    "machines that stay on": {"site": SITE._replace(off_after_s=20.0, off_w=7.0)},
    "prices": {"prices": Prices(np.array([0.0, 30.0, 60.0]), np.array([0.3, 0.1, 0.25]))},
    "machines and prices": {"site": SITE, "prices": Prices(np.array([10.0, 40.0]), np.array([0.1, 0.4]))}}


def drawn(rng, options, has_begun):
    """Two jobs at random; some cannot run everywhere, some are partly done and running."""
    num_jobs = 2
    times_s = STEP_S * rng.integers(1, 6, (num_jobs, 3))
    times_s[rng.random(times_s.shape) < 0.25] = np.inf
    times_s[:, 0] = STEP_S * rng.integers(1, 6, num_jobs)
    submission_s = STEP_S * rng.integers(0, 4, num_jobs)
    jobs = Jobs(submission_s, submission_s + STEP_S * rng.integers(-1, 5, num_jobs),
                rng.choice([0.0, 1e-6, 1e-4], num_jobs), times_s)
    names = tuple(f"j{k}" for k in range(num_jobs))
    instance = Instance(("mixed:T", "mixed:U", "small"), names, ("T", "U"), FLEET, jobs, np.full(num_jobs, 4),
                        **options)
    if has_begun:
        where = np.full((2, num_jobs), -1)
        where[:, 0] = 0
        instance = replace(instance, now_s=30.0, present=Present(*where, np.append(0.5, np.zeros(num_jobs - 1))),
                           jobs=jobs._replace(submission_s=np.minimum(submission_s, 40.0)))
    return instance


def eur_per_s(instance, used, at_s):
    """Say what machines with so many GPUs in use cost, from the watts or the table, and the price that holds."""
    prices = instance.prices
    step = 0 if prices is None else max(0, int((prices.since_s <= at_s).sum()) - 1)
    kinds = instance.fleet.node_type
    if instance.site is None:
        factor = 1.0 if prices is None else prices.eur_per_kwh[step] / PRICE_EUR_PER_KWH
        return factor * sum(instance.fleet.cost_eur_per_h[kinds[n], used[n]] for n in range(3) if used[n]) / 3600
    site = instance.site
    eur_per_kwh = site.eur_per_kwh if prices is None else prices.eur_per_kwh[step]
    watts = sum(site.added_w[kinds[n], used[n]] for n in range(3) if used[n])
    watts += sum(site.base_w[m] for m in range(2) if any(used[n] for n in range(3) if site.machine[n] == m))
    return watts / 1000 * eur_per_kwh * site.pue / 3600


class EveryDay:
    """All days in which anything may be decided every ten seconds, empty machines for nothing."""

    def __init__(self, instance):
        self.instance = instance
        self.jobs = instance.jobs
        fleet = instance.fleet
        count = fleet.configuration_gpus.tolist()
        places = [[None, *((n, c) for n in range(3) for c in range(3) if np.isfinite(own_s[c]) and
                           fleet.configuration_type[c] == fleet.node_type[n] and count[c] <= fleet.node_gpus[n])]
                  for own_s in self.jobs.times_s]
        self.taken = [{at: tuple(count[at[1]] * (at[0] == n) for n in range(3)) for at in own if at} for own in places]
        self.plans = [plan for plan in product(*places)
                      if all(used <= has for used, has in zip(self.used(plan, plan), fleet.node_gpus, strict=True))]
        self.rate = cache(lambda used, at_s: eur_per_s(instance, used, at_s))

    def used(self, plan, is_on):
        """GPUs in use on each node while some of the jobs of a plan are on."""
        own = [self.taken[j][at] for j, at in enumerate(plan) if at and is_on[j]]
        return tuple(map(sum, zip(*own, strict=True))) if own else (0, 0, 0)

    def step(self, left, plan, now_s):
        """Give what ten seconds of a plan cost, and what is then left of each job."""
        jobs = self.jobs
        need_s = [part * jobs.times_s[j, at[1]] if at else np.inf
                  for j, (part, at) in enumerate(zip(left, plan, strict=True))]
        cuts_s = sorted({0.0, STEP_S, *(s for s in need_s if s < STEP_S)})
        eur = sum((end_s - begin_s) * self.rate(self.used(plan, [s > begin_s for s in need_s]), now_s)
                  for begin_s, end_s in zip(cuts_s, cuts_s[1:], strict=False))
        eur += sum(jobs.weight_eur_per_s[j] * max(0.0, now_s + s - jobs.due_s[j])
                   for j, s in enumerate(need_s) if s <= STEP_S + 1e-9)
        return eur, tuple(round(max(0.0, part * (1 - STEP_S / s)), 9) if s < np.inf else part
                          for part, s in zip(left, need_s, strict=True))

    def least_eur(self, limit_eur):
        """Find the least bill of all days of up to 150 seconds that cost less than one that is known."""
        instance = self.instance
        submission_s = self.jobs.submission_s
        now_s = float(submission_s.min()) if instance.present is None else instance.now_s
        days = {(1.0,) * len(submission_s): 0.0}  # part of each job that is left: what was paid so far
        least = limit_eur
        for _ in range(15):
            following = {}
            for (left, paid_eur), plan in product(days.items(), self.plans):
                if not any(at and (left[j] <= 0 or submission_s[j] > now_s) for j, at in enumerate(plan)):
                    eur, after = self.step(left, plan, now_s)
                    if not any(after):
                        least = min(least, paid_eur + eur)
                    elif paid_eur + eur < min(least, following.get(after, np.inf)):
                        following[after] = paid_eur + eur
            days = following
            now_s += STEP_S
        return least


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_no_day_costs_less_than_the_bound(name, has_begun):
    rng = np.random.default_rng([sum(map(ord, name)), has_begun])
    nearest = np.inf
    for _ in range(4):
        instance = drawn(rng, OPTIONS[name], has_begun)
        bound_eur = lower_bound_eur(instance)
        paid = [simulate(instance, policy, loss=loss, period_s=period_s, how=SearchOptions(max_iterations=20)).total_eur
                for policy in day_policies()
                for loss, period_s in (("none", 20.0), ("moved", 20.0), ("always", np.inf))]
        least = EveryDay(instance).least_eur(min(paid))
        assert bound_eur <= least * (1 + 1e-9) + 1e-15
        nearest = min(nearest, least / bound_eur)
    assert nearest < 1.5  # not by far
