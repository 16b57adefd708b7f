"""A month and a day of a cluster whose tasks leave: openb at its real times and at three loads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sched_lab.fleet.ask.day import draw_day, nodes_of
from sched_lab.fleet.ask.day_run import run_day
from sched_lab.fleet.replay.bounds import energy_bounds, floors_of
from sched_lab.fleet.replay.compare import Question, compare
from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.meter import measure
from sched_lab.fleet.replay.problem import Problem, Schedule
from sched_lab.lab.frames import sha256
from sched_lab.lab.sweeps import grid
from sched_lab.online.model import PowerSettings

from .answers import ANSWERS
from .coverage import DAYS, LOADS, REPEATS, REPLAYS, coverage
from .headlines import HEADLINES, ROBUST, example_cluster
from .months import DAY_S, MONTH_S, OPENB, busy_month, openb
from .online import PAPER
from .opponents import OPPONENTS
from .opponents_claims import MURI_CLAIMS, SYNERGY_CLAIMS
from .reproduction import Claim, Experiment, Workplace
from .yardstick import YARDSTICKS

if TYPE_CHECKING:
    from collections.abc import Callable

    import altair as alt

__all__ = ['EXPERIMENTS', 'CLAIMS', 'FIGURES']


WARM_UP_S = 7 * DAY_S
ASLEEP_AFTER_S = 600.0


def offered_load(problem: Problem) -> float:
    """GPU time that is asked for within the month, over what there is."""
    run_s = np.minimum(problem.duration_s, MONTH_S - problem.submit_s)
    asked = (run_s * problem.tasks.gpu_demand_milli).sum()
    return float(asked / (problem.cluster.gpu_capacity_milli * MONTH_S))


@cache
def month_of(nodes: str, tasks: str, copies: int, seed: int) -> Problem:
    """The busy month of the cells that share it."""
    return busy_month(openb(nodes, tasks), copies, seed)


def waits_of(problem: Problem, schedule: Schedule) -> pd.Series:
    """Waits of tasks that came after the warm-up, seconds."""
    start_s = np.where(np.isnan(schedule.start_s), MONTH_S, schedule.start_s)
    waits = np.minimum(start_s, MONTH_S) - problem.submit_s
    return pd.Series(waits[problem.submit_s >= WARM_UP_S])


MEASURED = ("eopc_w", "asleep_w", "allocated_gpu", "stranded_gpu", "frag_gpu", "waiting_tasks",
            "busy_nodes")


def month_cell(files: tuple[str, str], copies: int, seed: int, policy: str) -> dict[str, float]:
    """What one policy makes of one busy month."""
    problem = month_of(*files, copies, seed)
    schedule = replay(problem, policy, seed=seed, backfill="first-fit")
    edges_s = np.array([0, WARM_UP_S, MONTH_S])
    counted = measure(problem, schedule, PowerSettings(), edges_s, ASLEEP_AFTER_S).iloc[1]
    waits_s = waits_of(problem, schedule)
    bounds_kwh = energy_bounds(problem, schedule, floors_of(problem, PowerSettings(), 0.0),
                               (WARM_UP_S, MONTH_S))
    hours = (MONTH_S - WARM_UP_S) / 3600
    return {"offered_load": offered_load(problem), "tasks": len(problem.tasks),
            **{name: float(counted[name]) for name in MEASURED},
            "bound_w": bounds_kwh[0] / hours * 1000, "bound_asleep_w": bounds_kwh[1] / hours * 1000,
            "mean_wait_s": float(waits_s.mean()), "p99_wait_s": float(waits_s.quantile(0.99)),
            "waiting_at_the_end": float(np.isnan(schedule.start_s).sum())}


POLICIES = (*PAPER, "joint")
COPIES = (11, 17, 20)
SEEDS = (0, 1, 2)


def months(place: Workplace, name: str, copies: tuple[int, ...], seeds: tuple[int, ...],
           policies: tuple[str, ...]) -> pd.DataFrame:
    """Busy months under each policy.

    Parameters
    ----------
    name : of the sweep
    copies, seeds, policies : loads, turns, and who places
    """
    nodes, tasks = (str(place.data(each)) for each in OPENB)
    return place.sweep(partial(month_cell, (nodes, tasks)),
                       grid(copies=list(copies), seed=list(seeds), policy=list(policies)), name,
                       depends_on={each: sha256(place.data(each)) for each in OPENB}).round(6)


def month(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """Every load, seed and policy."""
    return {"fleet/month.csv": months(place, "month", COPIES, SEEDS, POLICIES)}


BID_COPIES = (12, 19, 22)  # loads of about a half, four fifths and 95 %
BID_RIVALS = ("fgd", "pwr-fgd:0.5", "joint", "bid:1000:0.75", "bid:300:1")
BID_SEEDS = (0,)


def bid_month(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """Busy months at three loads, under bid and its rivals."""
    return {"fleet/bid_month.csv": months(place, "bid-month", BID_COPIES, BID_SEEDS, BID_RIVALS)}


def recorded_times(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """The whole trace, at its times, on its cluster."""
    problem = openb(*(str(place.data(name)) for name in OPENB))
    asked = Question(POLICIES, asleep_after_s=ASLEEP_AFTER_S)
    return {"fleet/openb.csv": compare(problem, asked).summary.round(6)}


DAY_SEEDS = tuple(range(30))


def day_cell(seed: int) -> pd.DataFrame:
    """All variants of one day of the example."""
    return run_day(draw_day(nodes_of(example_cluster()), seed))


def days(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """Thirty days."""
    return {"fleet/day.csv": place.sweep(day_cell, grid(seed=list(DAY_SEEDS)), "day").round(6)}


EXPERIMENTS: dict[str, Experiment] = {one.name: one for one in (
    Experiment("month", "what a policy saves in a busy month, at three loads",
               ("fleet/month.csv",), 8.0, {"copies": COPIES, "seeds": SEEDS, "policies": POLICIES},
               month, needs=OPENB),
    Experiment("bid-month", "what bid saves in a busy month, at three loads",
               ("fleet/bid_month.csv",), 2.0,
               {"copies": BID_COPIES, "seeds": BID_SEEDS, "policies": BID_RIVALS}, bid_month,
               needs=OPENB),
    Experiment("openb", "the whole trace at its recorded times on its whole cluster",
               ("fleet/openb.csv",), 1.5, {"policies": POLICIES}, recorded_times, needs=OPENB),
    Experiment("day", "one day of one cluster with and without the idea of each paper, 30 times",
               ("fleet/day.csv",), 4.0, {"seeds": DAY_SEEDS}, days),
    Experiment("coverage", "how often an interval of a difference of waits covers the truth",
               ("fleet/coverage.csv",), 6.0,
               {"loads": LOADS, "days": DAYS, "repeats": REPEATS, "replays": REPLAYS}, coverage))}
EXPERIMENTS |= ROBUST | YARDSTICKS | OPPONENTS | ANSWERS
CLAIMS: tuple[Claim, ...] = (*HEADLINES, *MURI_CLAIMS, *SYNERGY_CLAIMS)
FIGURES: dict[str, Callable[..., alt.TopLevelMixin]] = {}
