"""How often a printed interval covers the truth, in queues with long memory and in replays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd

from sched_lab.cluster import Cluster
from sched_lab.fleet.read.tables import Ledger
from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.intervals import busy_periods, estimate_over, interval_of
from sched_lab.fleet.replay.problem import Problem
from sched_lab.lab.arrays import Floats
from sched_lab.lab.jit import njit
from sched_lab.lab.sweeps import grid
from sched_lab.traces import Tasks

from .reproduction import Workplace

__all__ = ['WORLDS', 'coverage']

DAY_S, HOUR_S = 86_400.0, 3_600.0
WORLDS = {  # swing of the day and the week; spread of the logarithm of load and durations
    "even load": (0.0, 0.0, 0.0, 1.0), "heavy durations": (0.0, 0.0, 0.0, 1.8),
    "rush of a day": (0.6, 0.0, 0.0, 1.0), "days and weeks": (0.6, 0.4, 0.0, 1.4),
    "long memory": (0.4, 0.4, 0.3, 1.8)}
REPLAYED = "replay"
LOADS, DAYS = (0.5, 0.6, 0.75, 0.9), (14, 28, 56, 112)
REPEATS, REPLAYS = 300, 100
SERVERS, MEAN_H = 16, 2.0
NODES = 8


@njit(cache=True)
def waits_in_order(submit_s: Floats, run_s: Floats, servers: int) -> Floats:
    """Waits of tasks of one server each, served in the order of coming (Kiefer-Wolfowitz)."""
    free_s = np.zeros(servers)
    wait_s = np.empty(len(submit_s))
    for task in range(len(submit_s)):
        server = free_s.argmin()
        start_s = max(submit_s[task], free_s[server])
        wait_s[task] = start_s - submit_s[task]
        free_s[server] = start_s + run_s[task]
    return wait_s


def arrivals(rng: np.random.Generator, world: str, rate: float,
             days: int) -> tuple[Floats, Floats]:
    """When tasks come and for how long they run, seconds.

    Parameters
    ----------
    rng : draws them
    world : name in `WORLDS`
    rate : tasks for each hour, on average
    days : how long
    """
    day, week, load, spread = WORLDS[world]
    hours = np.arange(24.0 * days)
    level = 1 + day * np.sin(2 * np.pi * (hours - 8) / 24)
    level *= np.where(hours // 24 % 7 >= 5, 1 - week, 1 + 0.4 * week)
    keeps = np.exp(-1 / 24)  # of the load, from hour to hour
    drift = rng.normal()
    for hour, shock in enumerate(rng.normal(size=len(hours)) * np.sqrt(1 - keeps**2)):
        drift = keeps * drift + shock
        level[hour] *= np.exp(load * drift - load**2 / 2)
    count = rng.poisson(rate * level)
    submit_s = np.sort(np.repeat(hours, count) + rng.random(count.sum())) * HOUR_S
    run_s = rng.lognormal(np.log(MEAN_H) - spread**2 / 2, spread, len(submit_s)) * HOUR_S
    return submit_s, run_s


Pair = tuple[Floats, Floats, Floats]  # when tasks came, and their waits under two policies


def pair_of_servers(seed: int, world: str, load: float, days: int) -> Pair:
    """The same tasks on sixteen servers, and on one more."""
    rng = np.random.default_rng([seed, days, round(100 * load), list(WORLDS).index(world)])
    submit_s, run_s = arrivals(rng, world, load * SERVERS / MEAN_H, days)
    return (submit_s, waits_in_order(submit_s, run_s, SERVERS),
            waits_in_order(submit_s, run_s, SERVERS + 1))


def pair_of_rules(seed: int, world: str, load: float, days: int) -> Pair:
    """The same jobs of one to eight GPUs on eight nodes, without backfill and with first-fit."""
    rng = np.random.default_rng([seed, days, round(100 * load)])
    sizes, shares = np.array([1, 2, 4, 8]), np.array([0.65, 0.22, 0.09, 0.04])
    rate = load * NODES * 8 / ((sizes * shares).sum() * MEAN_H)
    submit_s, run_s = arrivals(rng, world, rate, days)
    count = len(submit_s)
    gpus, empty = rng.choice(sizes, count, p=shares), np.full(count, "", object)
    none = np.zeros(count, np.int64)
    names = [np.array([f"{kind}{row}" for row in range(rows)], object)
             for kind, rows in (("n", NODES), ("t", count))]
    cluster = Cluster(names[0], np.full(NODES, 128_000), np.full(NODES, 10**6), np.full(NODES, 8),
                      np.full(NODES, "A100", object), np.full(NODES, "", object))
    tasks = Tasks(names[1], 4_000 * gpus, 1_024 * gpus, gpus, none + 1000, empty, empty)
    problem = Problem(cluster, tasks, np.full(NODES, "g0", object), submit_s, run_s.round() + 1,
                      np.full(count, np.nan), none - 1, none, empty, empty, none, Ledger().frame(),
                      None)
    first, second = (replay(problem, "fgd", backfill=rule).start_s - submit_s
                     for rule in ("none", "first-fit"))
    return submit_s, first, second


def blocks_of_a_day(apart_s: Floats, submit_s: Floats, days: int) -> tuple[float, float]:
    """The interval of before: days are drawn with replacement, wherever they begin."""
    hours = 24 * days
    place = np.minimum((submit_s / HOUR_S).astype(np.int64), hours - 1)
    sums = np.stack([np.bincount(place, apart_s, hours), np.bincount(place, minlength=hours)], 1)
    upto = np.vstack([np.zeros(2), sums.cumsum(axis=0)])
    begin = np.random.default_rng(0).integers(0, hours - 23, (days, 400))
    drawn = (upto[begin + 24] - upto[begin]).sum(axis=0)
    return interval_of(drawn[:, 0] / drawn[:, 1])


def intervals_of(pairs: Iterator[Pair], days: int) -> pd.DataFrame:
    """Sum and number of differences of each repeat, and both intervals; NaN where none is given."""
    rows = []
    for submit_s, first_s, second_s in pairs:
        apart_s = second_s - first_s
        busy = busy_periods(np.tile(submit_s, 2),
                            np.concatenate([submit_s + first_s, submit_s + second_s]))
        found = estimate_over(submit_s, np.stack([apart_s, np.ones(len(apart_s))], axis=1),
                              busy[0], busy, (0.0, days * DAY_S))
        rows.append((apart_s.sum(), len(apart_s), *blocks_of_a_day(apart_s, submit_s, days),
                     found.low, found.high))
    return pd.DataFrame(rows, columns=["sum", "tasks", "old_low", "old_high", "low", "high"])


def cell(kind: str, load: float, days: int) -> dict[str, float]:
    """How often both intervals are given, and how often they cover the mean of all repeats."""
    draw: Callable[[int, str, float, int], Pair] = pair_of_servers
    world, repeats = kind, REPEATS
    if kind.startswith(REPLAYED):
        draw, world, repeats = pair_of_rules, kind.partition(": ")[2], REPLAYS
    frame = intervals_of((draw(seed, world, load, days) for seed in range(repeats)), days)
    truth = frame["sum"].sum() / frame["tasks"].sum()
    given = frame["low"].notna()
    return {"repeats": repeats, "truth_s": truth, "given": float(given.mean()),
            "covers": float(((frame["low"] <= truth) & (truth <= frame["high"])).sum()),
            "old_covers": float(((frame["old_low"] <= truth)
                                 & (truth <= frame["old_high"])).sum())}


def coverage(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """Every world, load and length of the record."""
    queues = grid(kind=list(WORLDS), load=list(LOADS), days=list(DAYS))
    replays = grid(kind=[f"{REPLAYED}: rush of a day"], load=[0.3, 0.4], days=[14, 56])
    return {"fleet/coverage.csv": place.sweep(cell, [*queues, *replays],
                                              "coverage").round(6)}
