"""One table of all policies: what each does, where it comes from, how it decides, and which options it knows."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from ..lab.arrays import Integers
from ..lab.records import PolicyRecord, PolicyTable
from .exact import objective_eur, places_of, solve_exact
from .greedy import DEFAULTS, SearchOptions, check_options, greedy, randomized_greedy
from .machines import fleet_at
from .model import Assignment, Fleet, Instance, Jobs, check_assignment
from .rollout import rollout
from .rules import Rule, Running, edf, fifo, fill_up, nothing_runs, priority

__all__ = ['POLICIES', 'policy_of', 'decide_now']

Decide = Callable[[Fleet, Jobs, float, SearchOptions, Running], Assignment]
Optimiser = Callable[[Fleet, Jobs, float], Assignment]


def decide_by_rule(rule: Rule, fleet: Fleet, jobs: Jobs, now_s: float, how: SearchOptions,
                   running: Running) -> Assignment:
    """Leave running jobs where they are, and place those that wait."""
    return Assignment(*fill_up(fleet, jobs, now_s, rule(jobs), running))


def decide_by_rollout(fleet: Fleet, jobs: Jobs, now_s: float, how: SearchOptions,
                      running: Running) -> Assignment:
    """Follow the simple policy that gets the whole queue done at least cost."""
    return rollout(fleet, jobs, now_s, tries=how.tries, seed=how.seed)[0]


MOST_NODES = 1000  # of branch and bound, for one decision


class Proof(NamedTuple):
    """How good a decision is by Eq. 1.

    Parameters
    ----------
    gap : how much better another one could be, relative to its value; 0 to 1
    is_proved : whether none is better
    is_out_of_time : whether the clock stopped the search, so that another machine may decide
        otherwise
    """

    gap: float
    is_proved: bool
    is_out_of_time: bool


class Judged(Assignment):
    """An assignment, and how good it is."""

    proof: Proof


def cheapest_alone(fleet: Fleet, jobs: Jobs) -> Assignment:
    """The one run that costs least energy, if somebody can run at all."""
    waits = np.full(len(jobs.due_s), -1)
    alone = Assignment(waits, waits.copy())
    places = places_of(fleet, jobs)
    if len(places.job):
        least = np.argmin(places.cost_eur)
        alone.node[places.job[least]] = places.node[least]
        alone.configuration[places.job[least]] = places.configuration[least]
    return alone


def decide_exactly(fleet: Fleet, jobs: Jobs, now_s: float, how: SearchOptions,
                   running: Running) -> Assignment:
    """Minimise Eq. 1 over all assignments of the whole queue to empty nodes, and say how well."""
    found = solve_exact(fleet, jobs, now_s, time_limit_s=how.time_limit_s, most_nodes=MOST_NODES)
    known = [] if found.assignment is None else [found.assignment]
    if not found.is_proved:
        kept = Assignment(*fill_up(fleet, jobs, now_s, edf(jobs), running))
        known += [kept, decide_by_rollout(fleet, jobs, now_s, how, running)]
    value = partial(objective_eur, fleet, jobs, now_s)
    best = min(known, key=value)
    least = value(best)
    is_best = found.is_proved or least <= 0
    gap = 0.0 if is_best else (least - found.bound) / least
    judged = Judged(*(best if (best.node >= 0).any() else cheapest_alone(fleet, jobs)))
    judged.proof = Proof(gap, found.is_proved, found.is_out_of_time)
    return judged


POLICIES: PolicyTable[Decide] = PolicyTable(
    PolicyRecord("fifo", "first come, first served; running jobs stay where they are",
                 "Filippini et al. 2021, Section V-B", partial(decide_by_rule, fifo),
                 colour="#0072B2"),
    PolicyRecord("edf", "the earliest due date goes first; running jobs stay where they are",
                 "Filippini et al. 2021, Section V-B", partial(decide_by_rule, edf),
                 colour="#D55E00"),
    PolicyRecord("priority", "the heaviest weight goes first; running jobs stay where they are",
                 "Filippini et al. 2021, Section V-B", partial(decide_by_rule, priority),
                 colour="#009E73"),
    PolicyRecord("greedy", "who is nearest to being late goes first, and all jobs are placed anew",
                 "Filippini et al. 2021, Algorithm 1 without chance",
                 lambda fleet, jobs, now_s, how, running: greedy(fleet, jobs, now_s),
                 colour="#CC79A7"),
    PolicyRecord("rg", "randomized greedy: the best of many disturbed rounds of greedy",
                 "Filippini et al. 2021, Algorithm 1",
                 lambda fleet, jobs, now_s, how, running: (
                     randomized_greedy(fleet, jobs, now_s, how)[0]),
                 options=("max_iterations", "seed", "as_code", "rho", "period_s"), colour="#E69F00",
                 labels=("rg as printed",)),
    PolicyRecord("local", "plays simple policies to the end of the queue and follows the cheapest",
                 "ours, after Bertsekas et al. 1997", decide_by_rollout, options=("seed", "tries"),
                 colour="#56B4E9"),
    PolicyRecord("exact",
                 "the proved optimum of Eq. 1, or the best within the time limit, and its gap",
                 "Filippini et al. 2021, Appendix A, corrected", decide_exactly,
                 options=("seed", "tries", "time_limit_s"), is_slow=True, colour="#7A2A0E"))


def day_policies() -> list[str]:
    """Names of the policies that decide at every event of a day in a moment."""
    return [name for name, record in POLICIES.items() if not record.is_slow]


def policy_of(name: str, how: SearchOptions = DEFAULTS) -> Optimiser:
    """A policy as a function of fleet, jobs and time, on nodes that are all free.

    Parameters
    ----------
    name : of `POLICIES`
    how : options of the search

    Returns
    -------
    called as `policy(fleet, jobs, now_s)`, it returns an `Assignment`

    Raises
    ------
    InputError : there is no such policy, or no search with such options
    """
    decide = POLICIES.record(name).scalar_form
    check_options(how)

    def optimise(fleet: Fleet, jobs: Jobs, now_s: float) -> Assignment:
        return decide(fleet, jobs, now_s, how, nothing_runs(fleet, len(jobs.due_s)))

    return optimise


def submitted(instance: Instance) -> tuple[Integers, Jobs]:
    """Numbers of the jobs that have been submitted by now, and these jobs."""
    here = np.flatnonzero(instance.jobs.submission_s <= instance.now_s)
    return here, Jobs(*(column[here] for column in instance.jobs))


def decide_now(instance: Instance, policy: str, how: SearchOptions = DEFAULTS) -> Assignment:
    """Assign the jobs that have been submitted; the others have no place.

    What runs now is part of the instance; if it says nothing of it, all nodes are free.

    Parameters
    ----------
    instance : the problem and its present time
    policy : a name of `POLICIES`
    how : options of the search

    Raises
    ------
    InputError : if there is no such policy, or exact search finds no assignment in time
    """
    decide = POLICIES.record(policy).scalar_form
    check_options(how)
    fleet = fleet_at(instance, instance.now_s)
    here, jobs = submitted(instance)
    running = nothing_runs(fleet, len(here))
    if instance.present is not None:
        running = running._replace(node=instance.present.node[here],
                                   configuration=instance.present.configuration[here])
    found = decide(fleet, jobs, instance.now_s, how, running)
    check_assignment(fleet, jobs.times_s, found)
    node = np.full(len(instance.job_name), -1)
    configuration = np.full(len(instance.job_name), -1)
    node[here] = found.node
    configuration[here] = found.configuration
    return Assignment(node, configuration)
