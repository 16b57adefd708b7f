"""One table of policies, one function that runs any of them on GPUs and a batch."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..lab.arrays import Floats
from ..lab.frames import InputError, check_one_of
from ..lab.records import PolicyRecord, PolicyTable
from .baselines import fix_partition, fix_partition_best, miso, parse_partition
from .bounds import Optimum, optimum_with_reconfiguration
from .due import OBJECTIVES, batches_of, best_list, far_dated, groups_of, in_given_order
from .mig import Mig, Schedule
from .multibatch import chain
from .plus import far_plus
from .profiles import ProfileMig, check_problem
from .refine import far
from .tasks import Batch, check_result, no_terms, read_problem, toy_problem

__all__ = ['POLICIES', 'policy_of', 'simulate']


@dataclass(frozen=True)
class Solver:
    """How a policy schedules a batch.

    Parameters
    ----------
    schedule : called with GPUs and run times in s, (tasks, sizes); returns a schedule
    is_planner : decides for a batch as a whole: plans of several batches are joined
    prove : called alike, says also what no schedule beats; None if it cannot
    dated : called with a problem and an objective, where there are profiles, releases, due dates or
        instances at the start; None if it knows sizes and times only
    """

    schedule: Callable[[Mig, Floats], Schedule]
    is_planner: bool = False
    prove: Callable[[Mig, Floats], Optimum] | None = None
    dated: Callable[[Mig, Batch, str], Schedule] | None = None


def list_schedule(mig: Mig, times_s: Floats) -> Schedule:
    """What the search over lists comes to for tasks that are all there, none of which is due."""
    none = np.full(len(times_s), "", object)
    return best_list(mig, Batch(none, times_s, none, no_terms(len(times_s))))


POLICIES: PolicyTable[Solver] = PolicyTable(
    PolicyRecord("far", "the paper's algorithm: sizes, order and cuts in three phases",
                 "Villarrubia et al. 2025, Section 3",
                 Solver(lambda mig, times_s: far(mig, times_s).schedule, is_planner=True,
                        dated=far_dated), colour="#0072B2", labels=("FAR",)),
    PolicyRecord("far-plus", "searches longer than far, never worse", "ours, chapter 58",
                 Solver(lambda mig, times_s: far_plus(mig, times_s).schedule, is_planner=True),
                 colour="#D55E00", labels=("FAR+",)),
    PolicyRecord("lists", "searches orders and instances, for due dates or for the makespan",
                 "ours, chapter 57b", Solver(list_schedule, is_planner=True, dated=best_list),
                 colour="#49CA62"),
    PolicyRecord("optimal", "exact search, for small batches", "ours, chapter 55",
                 Solver(lambda mig, times_s: optimum_with_reconfiguration(mig, times_s).schedule,
                        is_planner=True, prove=optimum_with_reconfiguration), colour="#7A2A0E"),
    PolicyRecord("miso", "chooses partition after partition by the sum of speedups",
                 "Li et al. 2022; Villarrubia et al. 2025, Section 6.5", Solver(miso),
                 colour="#009E73", labels=("MISO-opt",)),
    PolicyRecord("fixpart-best", "cuts once, in the best way, then first come, first served",
                 "Villarrubia et al. 2025, Section 6.5", Solver(fix_partition_best),
                 colour="#E69F00", labels=("FixPartBest",)),
    patterns={"fixpart:P": "cuts once, into the partition P such as 4-3 or 1-1-1-1-1-1-1"},
)


def policy_of(name: str) -> PolicyRecord[Solver]:
    """Record of a policy: a line of `POLICIES`, or `fixpart:` and the name of a partition.

    Raises
    ------
    InputError : if there is no such policy
    """
    kind, _, partition = name.partition(":")
    if kind == "fixpart" and partition:
        return PolicyRecord(
            name, f"cuts once, into {partition}, then first come, first served",
            POLICIES["fixpart-best"].source,
            Solver(lambda mig, times_s: fix_partition(mig, times_s,
                                                      parse_partition(mig, partition))))
    return POLICIES.record(name)


def is_dated(mig: Mig, batch: Batch, objective: str) -> bool:
    """Whether a problem has more than sizes and times: profiles, terms, another objective."""
    check_one_of(objective, OBJECTIVES, "objective")
    return objective != "makespan" or isinstance(mig, ProfileMig) or batch.terms is not None


def has_due_dates(batch: Batch) -> bool:
    """Whether any task of a batch can be late."""
    return batch.terms is not None and bool(np.isfinite(batch.terms.due_s).any())


def simulate(mig: Mig, batch: Batch, policy: str = "far",
             objective: str = "makespan") -> Schedule:
    """Schedule a batch, or batches one after the other, and check the result.

    Parameters
    ----------
    mig : the GPUs
    batch : tasks, their run times, and the batch that each belongs to
    policy : a name of `POLICIES`, or `fixpart:P`
    objective : "makespan" or "tardiness"; what is to be least

    Returns
    -------
    a schedule, its tasks in the order of `batch`

    Raises
    ------
    InputError : if there is no such policy or objective, it cannot place a task, or tardiness is to
        be least and nothing is due
    """
    solver = policy_of(policy).scalar_form
    if is_dated(mig, batch, objective):
        if objective == "tardiness" and not has_due_dates(batch):
            raise InputError("no task has a due date, so none can be late",
                             mend="give a column due_s, or take the objective makespan")
        if solver.dated is None:
            can = [name for name, record in POLICIES.items() if record.scalar_form.dated]
            raise InputError(f"the policy {policy!r} knows no profiles, releases or due dates",
                             mend=f"give one of {', '.join(can)}")
        schedule = solver.dated(mig, batch, objective)
        check_problem(mig, batch, schedule)
        return schedule
    rows = batches_of(batch)
    if solver.is_planner and len(rows) > 1:
        times_s = [batch.times_s[own] for own in rows]
        plans = [solver.schedule(mig, own_s).instance for own_s in times_s]
        schedule = chain(mig, times_s, plans=plans).schedule
    else:
        schedule = solver.schedule(mig, batch.times_s[np.argsort(groups_of(batch), kind="stable")])
    schedule = in_given_order(batch, schedule)
    check_result(mig, batch, schedule)
    return schedule


read = read_problem  # the names of the face
toy = toy_problem
check = check_problem
