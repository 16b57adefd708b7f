"""Muri (SIGCOMM 2022): jobs whose stages use different resources take turns on the same GPUs.

An iteration loads data, computes and communicates. Up to four jobs share their GPUs: while one
computes, others load and communicate. Who goes with whom is a matching of greatest weight.
Numbers below are those of the authors' simulator (`Rivendile/Muri`, `simulator/`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import combinations_with_replacement, permutations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from sched_lab.lab.arrays import Floats, Integers

__all__ = ['ORDERS', 'Jobs', 'Run', 'read_jobs', 'period_s', 'matched', 'simulate']

NODES, GPUS = 8, 8  # the cluster of the paper
MOST = 4  # jobs of a group, and resources
ALONE = 1.015  # an iteration under Muri, over one as profiled; of more jobs, by their number:
SLOWER = (1.0, 1.33 / ALONE, 1.5 / ALONE, 1.37 / ALONE)
QUEUES_S = (3250.0, 7200.0)  # GPU seconds after which a job falls into the next queue of Tiresias
RESTART_S = {  # on 1, 2, 4, 8, 16, 32 GPUs
    "vgg16": (7, 7, 8, 9, 9, 10), "vgg19": (7, 7, 8, 9, 10, 10), "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8), "bert": (10,) * 6, "gpt2": (10,) * 6,
    "a2c": (38, 39, 39, 46, 46, 46), "dqn": (5, 5, 6, 6, 8, 8)}

Group = tuple[int, ...]  # jobs on the same GPUs


class Jobs(NamedTuple):
    """Jobs of a trace, and what an iteration of each kind takes.

    Parameters
    ----------
    submit_s, num_gpus, iterations : (jobs,)
    kind : of each job, a number
    stages_s : by kind, seconds to load, to compute, and to communicate
    alone_s : by kind, seconds of an iteration of a job alone
    restart_s : by kind, what a start costs
    """

    submit_s: Floats
    num_gpus: Integers
    iterations: Floats
    kind: Integers
    stages_s: Floats
    alone_s: Floats
    restart_s: Floats


def read_jobs(path: Path) -> Jobs:
    """Jobs of one of the published traces."""
    table = pd.read_csv(path).sort_values("submit_time", kind="stable", ignore_index=True)
    stages = [f"resource_time_{one}" for one in range(3)]
    kinds = table.groupby(["model_name", "num_gpu"])[[*stages, "iteration_time"]].first()
    number = pd.MultiIndex.from_frame(table[["model_name", "num_gpu"]])
    restart_s = [RESTART_S[model][gpus.bit_length() - 1] for model, gpus in kinds.index]
    return Jobs(table["submit_time"].to_numpy(float) / 1000, table["num_gpu"].to_numpy(np.int64),
                table["iterations"].to_numpy(float), kinds.index.get_indexer(number),
                kinds[stages].to_numpy(float) / 1000,
                kinds["iteration_time"].to_numpy(float) * ALONE / 1000, np.array(restart_s, float))


def period_s(stages_s: Floats) -> float:
    """Shortest time in which each of up to four jobs makes an iteration, in turn on the same GPUs.

    Time goes round in four slots. The job at place p loads in the slots p and p + 1, computes in
    p + 2 and communicates in p + 3. A slot lasts at least as long as what is computed and what is
    communicated in it, `need`; two together as long as what is loaded in them, `lack` more than
    they need. The least that four slots can grow is the greater sum of opposite lacks (Koenig).
    Loading stands for two resources, storage and CPU, so that two jobs at adjacent places may load
    at once, however long.

    Parameters
    ----------
    stages_s : (jobs, 3) seconds to load, to compute, to communicate
    """
    at = np.zeros((MOST, 3))
    best = np.inf
    for places in permutations(range(1, MOST), len(stages_s) - 1):
        at[:] = 0
        at[[0, *places]] = stages_s
        need = np.maximum(np.roll(at[:, 1], 2), np.roll(at[:, 2], 3))
        lack = np.maximum(at[:, 0] - need - np.roll(need, -1), 0)
        best = min(best, need.sum() + max(lack[0] + lack[2], lack[1] + lack[3]))
    return float(best)


def matched(counts: Mapping[Group, int],
            weight_of: Callable[[Group], float]) -> Counter[tuple[Group, Group]]:
    """Matching of greatest weight among groups, many of them the same: who with whom, how often.

    Edmonds' blossoms find it for any graph. Here many have the same weights, and what counts is how
    many pairs of each sort there are: an integer program of a few numbers.

    Parameters
    ----------
    counts : how many there are of each sort, by the kinds of its jobs
    weight_of : of two groups together, by all their kinds
    """
    from scipy import optimize, sparse

    sorts = sorted(counts)
    pairs = [(a, b) for a, b in combinations_with_replacement(range(len(sorts)), 2)
             if len(sorts[a]) + len(sorts[b]) <= MOST and (a != b or counts[sorts[a]] > 1)]
    if not pairs:
        return Counter()
    weights = np.array([weight_of(tuple(sorted(sorts[a] + sorts[b]))) for a, b in pairs])
    ends = np.array(pairs).ravel()
    uses = sparse.csr_matrix((np.ones(len(ends)), (ends, np.arange(len(ends)) // 2)),
                             shape=(len(sorts), len(pairs)))
    most = optimize.LinearConstraint(uses, ub=np.array([counts[one] for one in sorts]))
    found = optimize.milp(-weights, integrality=np.ones(len(pairs)), constraints=most)
    times = np.round(found.x).astype(int)
    return Counter({(sorts[a], sorts[b]): int(num)
                    for (a, b), num in zip(pairs, times, strict=True) if num})


class Muri:
    """Groups for jobs that want more GPUs than there are.

    Parameters
    ----------
    jobs : all of the trace
    num_gpus : of the cluster
    one_loads : whether no two jobs of a group load at once
    """

    def __init__(self, jobs: Jobs, num_gpus: int, one_loads: bool = False) -> None:
        self.jobs, self.num_gpus, self.one_loads = jobs, num_gpus, one_loads
        self.period_s = cache(self._period_s)
        self.pairs = cache(self._pairs)

    def _period_s(self, kinds: Group) -> float:
        """Time of an iteration of each job of a group."""
        if len(kinds) == 1:
            return float(self.jobs.alone_s[kinds[0]])
        stages_s = self.jobs.stages_s[list(kinds)]
        least_s = stages_s[:, 0].sum() if self.one_loads else 0.0
        return max(period_s(stages_s), float(least_s)) * SLOWER[len(kinds) - 1]

    def efficiency(self, kinds: Group) -> float:
        """Share of the time of four resources that a group uses."""
        return float(self.jobs.stages_s[list(kinds)].sum() / (MOST * self.period_s(kinds)))

    def _pairs(self, counts: tuple[tuple[Group, int], ...]) -> Counter[tuple[Group, Group]]:
        """Matching of groups of one size."""
        return matched(dict(counts), self.efficiency)

    def merged(self, chosen: Mapping[int, Integers]) -> dict[int, Counter[Group]]:
        """How many groups of which kinds, by number of GPUs: in rounds, until all fit."""
        kind = self.jobs.kind
        groups: dict[int, Counter[Group]] = {
            size: Counter((int(one),) for one in kind[rows]) for size, rows in chosen.items()}
        too_many = sum(size * len(rows) for size, rows in chosen.items()) - self.num_gpus
        for _ in range(MOST):
            if too_many <= 0:
                break
            pairs = [((1 - self.efficiency(tuple(sorted(a + b)))) * size, size, a, b, num)
                     for size, counts in groups.items()
                     for (a, b), num in self.pairs(tuple(sorted(counts.items()))).items()]
            for _, size, a, b, num in sorted(pairs):
                times = min(num, max(0, -(-too_many // size)))
                groups[size].subtract({a: times})
                groups[size].subtract({b: times})
                groups[size][tuple(sorted(a + b))] += times
                too_many -= times * size
            groups = {size: +counts for size, counts in groups.items()}
        return groups

    def groups(self, chosen: Mapping[int, Integers], before: Iterable[Group]) -> list[Group]:
        """Jobs of each group; those that were together stay so where the matching allows it.

        Parameters
        ----------
        chosen : jobs in their order, by number of GPUs
        before : groups that run
        """
        jobs = self.jobs
        counts = self.merged(chosen)
        free = {int(job) for rows in chosen.values() for job in rows}
        found = []
        for group in before:
            size = int(jobs.num_gpus[group[0]])
            kinds = tuple(sorted(int(jobs.kind[job]) for job in group))
            if free.issuperset(group) and counts[size][kinds] > 0:
                counts[size][kinds] -= 1
                free.difference_update(group)
                found.append(group)
        for size, rows in chosen.items():
            queue: dict[int, list[int]] = {}
            for job in rows[::-1]:
                if int(job) in free:
                    queue.setdefault(int(jobs.kind[job]), []).append(int(job))
            found += [tuple(queue[kind].pop() for kind in kinds)
                      for kinds in sorted(counts[size].elements())]
        return [part for group in found for part in self.unpacked(group)]

    def unpacked(self, group: Group) -> list[Group]:
        """The group, or each job alone if together they are slower than one after the other."""
        kinds = tuple(sorted(int(self.jobs.kind[job]) for job in group))
        if len(group) > 1 and self.period_s(kinds) > self.jobs.alone_s[list(kinds)].sum():
            return [(job,) for job in group]
        return [group]


class Run(NamedTuple):
    """A group on its GPUs for a while: when, which pause it begins with, and how it goes on."""

    begin_s: float
    end_s: float
    group: Group
    pause_s: float
    period_s: float


def chosen_of(order: Integers, num_gpus: Integers, total: int, take: int) -> dict[int, Integers]:
    """Who may run, by number of GPUs: in order whoever fits, and with it the next of its size.

    Parameters
    ----------
    order : jobs, the first first
    num_gpus : of each job
    total : GPUs of the cluster
    take : so many jobs for each that fits
    """
    sizes = num_gpus[order]
    places = {int(size): np.flatnonzero(sizes == size) for size in np.unique(sizes)}
    taken = dict.fromkeys(places, 0)
    while fits := [one for one, at in places.items() if one <= total and taken[one] < len(at)]:
        size = min(fits, key=lambda one: places[one][taken[one]])
        taken[size] = min(taken[size] + take, len(places[size]))
        total -= size
    return {size: order[at[:taken[size]]] for size, at in places.items() if taken[size]}


def placed(groups: list[Group], order: Integers, num_gpus: Integers, total: int) -> list[Group]:
    """Groups that fit, in the order of the first job of each."""
    place = {int(job): at for at, job in enumerate(order)}
    found = []
    for group in sorted(groups, key=lambda one: min(place[job] for job in one)):
        if num_gpus[group[0]] <= total:
            total -= int(num_gpus[group[0]])
            found.append(tuple(sorted(group)))
    return found


ORDERS = ("first come", "shortest time", "shortest service", "least attained")


def key_of(order: str, jobs: Jobs, left_s: Floats, fallen: Integers, turn: Floats) -> Floats:
    """What waiting and running jobs are ordered by.

    Parameters
    ----------
    order : one of `ORDERS`
    jobs : of a trace
    left_s : run time that is left, alone
    fallen : queues of Tiresias that each has left behind
    turn : place within its queue
    """
    return {"first come": jobs.submit_s, "shortest time": left_s,
            "shortest service": left_s * jobs.num_gpus,
            "least attained": fallen * 1e9 + turn}[order]


def fallen_of(attained_s: Floats) -> Integers:
    """How many queues of Tiresias a job has left behind, by its GPU seconds."""
    return np.searchsorted(QUEUES_S, attained_s + 1e-6, side="right")


def next_fall_s(attained_s: Floats, num_gpus: Integers) -> float:
    """Seconds until the first running job falls into the next queue."""
    limit = np.append(QUEUES_S, np.inf)[fallen_of(attained_s)]
    return float(((limit - attained_s) / num_gpus).min(initial=np.inf))


def simulate(jobs: Jobs, order: str, in_groups: bool, num_gpus: int = NODES * GPUS, *,
             one_loads: bool = False) -> list[Run]:
    """Run all jobs to their end; who runs is decided when one comes, ends or changes its queue.

    Parameters
    ----------
    jobs : of a trace
    order : one of `ORDERS`
    in_groups : as Muri does; else each job alone
    num_gpus : of the cluster; who runs may be moved at each decision
    one_loads : whether no two jobs of a group load at once
    """
    muri = Muri(jobs, num_gpus, one_loads)
    alone_s, left = jobs.alone_s[jobs.kind], jobs.iterations.copy()
    attained_s, ready_s, pace_s = np.zeros((3, len(left)))  # pace: of those that run
    fallen, turn = np.zeros(len(left), np.int64), len(left) + np.arange(len(left), dtype=float)
    active = np.zeros(len(left), bool)
    running: dict[Group, Run] = {}
    runs: list[Run] = []
    now_s, come = 0.0, 0
    while come < len(left) or active.any():
        rows = np.array([job for group in running for job in group], np.int64)
        ends_s = np.maximum(now_s, ready_s[rows]) + left[rows] * pace_s[rows]
        next_s = ends_s.min(initial=jobs.submit_s[come] if come < len(left) else np.inf)
        if order == "least attained":
            next_s = min(next_s, now_s + next_fall_s(attained_s[rows], jobs.num_gpus[rows]))
        left[rows] -= np.maximum(next_s - np.maximum(now_s, ready_s[rows]), 0) / pace_s[rows]
        attained_s[rows] += (next_s - now_s) * jobs.num_gpus[rows]
        now_s = float(next_s)
        done = rows[ends_s <= now_s + 1e-6]
        left[done], active[done] = 0, False
        while come < len(left) and jobs.submit_s[come] <= now_s:
            active[come] = True
            come += 1
        turn[fallen_of(attained_s) > fallen] = 2 * len(left)  # behind those that are there
        fallen = fallen_of(attained_s)
        key = key_of(order, jobs, left * alone_s, fallen, turn)
        waits = np.flatnonzero(active)
        queue = waits[np.argsort(key[waits], kind="stable")]
        chosen = chosen_of(queue, jobs.num_gpus, num_gpus, MOST if in_groups else 1)
        alone: list[Group] = [(int(job),) for rows in chosen.values() for job in rows]
        groups = muri.groups(chosen, running) if in_groups else alone
        new = dict.fromkeys(placed(groups, queue, jobs.num_gpus, num_gpus))
        runs += [run._replace(end_s=now_s) for group, run in running.items() if group not in new]
        kept = {group: run for group, run in running.items() if group in new}
        for group in new:
            if group not in kept:
                kinds = jobs.kind[list(group)]
                pause_s = float(jobs.restart_s[kinds].sum())
                pace = muri.period_s(tuple(sorted(map(int, kinds))))
                kept[group] = Run(now_s, np.inf, group, pause_s, pace)
                ready_s[list(group)], pace_s[list(group)] = now_s + pause_s, pace
        running = kept
        is_idle = ~np.isin(queue, [job for group in running for job in group])
        turn[queue[np.argsort(2 * fallen[queue] + is_idle, kind="stable")]] = np.arange(len(queue))
    return runs
