"""A run ends as three tables, a summary, and one line that says how it went."""

# A module, written by hand.

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..cluster import Cluster, empty_state
from ..lab.arrays import Floats
from ..lab.reports import Report
from ..bill import OUTSIDE, Bill, Tariff, bill_of_curve, tariff_of, watts_in_words
from ..holdings import Holdings
from ..meter import with_edges
from ..power import datacenter_power_w
from ..traces import Arrivals, Tasks
from .inflation import Run, failures_frame, inflate
from .model import Placements, Policy, PowerSettings

__all__ = ['report_of']

TABLES = ("assignments.csv", "curve.csv", "failures.csv")


def headline(summary: Mapping[str, Any]) -> str:
    """Say in one line how a run ended, from what summary.json holds."""
    if not summary["arrivals"]:
        return f"{summary['policy']}, no arrivals"
    served = f"GRAR {summary['grar']:.4f}" if "grar" in summary else "no GPU demand"
    why = ", ".join(f"{word} {number}" for word, number in sorted(summary["failed_for"].items()))
    power_kw = summary["eopc_w"] / 1e3
    return (f"{summary['policy']}, {summary['arrivals']} arrivals to x = {summary['x']:.3f}: "
            f"{power_kw:.1f} kW, {served}, {summary['failed']} failed{f' ({why})' if why else ''}")


def holdings_of(cluster: Cluster, tasks: Tasks, placements: Placements, start_s: Floats,
                end_s: Floats | float = np.inf) -> tuple[Cluster, Holdings]:
    """What the placed arrivals hold, as the meter takes it; the others hold nothing.

    Parameters
    ----------
    cluster, tasks, placements : of a run
    start_s, end_s : (arrivals,) when each begins and ends, seconds
    """
    placed = np.flatnonzero(placements.node >= 0)
    rows = placements.task_row[placed]
    times = (np.broadcast_to(one, len(placements.node))[placed] for one in (start_s, end_s))
    return cluster, Holdings(placements.node[placed], placements.gpu_mask[placed],
                             tasks.gpu_milli[rows], tasks.cpu_milli[rows], *times)


HOUR_S = 3600.0
LEVELS = (0.5, 0.8)  # arrived GPU demand over the capacity


def hours_of(cluster: Cluster, run: Run, power: PowerSettings,
             tariff: Tariff) -> tuple[list[dict[str, Any]], Bill]:
    """What an hour costs at each load that the run came to, and at its end.

    A GPU hour that is served bears its part of the whole.
    """
    nodes = power.of(cluster)
    words = " ".join((watts_in_words(nodes), OUTSIDE, tariff.words))
    edges_s = with_edges(np.array([0.0, HOUR_S]), [tariff.price, tariff.carbon])
    x = run.curve["x"].to_numpy() if len(run.curve) else np.zeros(0)
    rows_at = {f"x = {level:g}": int(np.argmax(x >= level)) for level in LEVELS
               if (x >= level).any()}
    rows = []
    for at, row in {**rows_at, "end": len(x) - 1}.items():
        has_begun = row >= 0
        power_w = (run.curve["eopc_w"].iloc[row] if has_begun else
                   sum(datacenter_power_w(nodes, empty_state(cluster))))
        used_gpu = float(run.curve["used_gpu_milli"].iloc[row] / 1000) if has_begun else 0.0
        hour = pd.DataFrame({"start_s": edges_s[:-1], "end_s": edges_s[1:],
                             "power_w": float(power_w)})
        bill = bill_of_curve(hour, tariff, words)
        amounts = {name: round(getattr(bill, name), 6)
                   for name in ("energy_kwh", "energy_eur", "co2_kg")}
        each = {f"{name}_per_gpu_h": round(amount / used_gpu, 6) if used_gpu else None
                for name, amount in amounts.items()}
        rows.append({"at": at, "served_gpu_h": round(used_gpu, 3), **amounts, **each})
    return rows, bill


@dataclass(frozen=True)
class RunReport(Report):
    """What a run came to, with the run itself."""

    run: Run


def run_report(cluster: Cluster, tasks: Tasks, run: Run, power: PowerSettings | None = None,
               tariff: Tariff | None = None) -> RunReport:
    """Report of a run that is there already, such as one of many that went in lockstep.

    Parameters
    ----------
    cluster, tasks : what the run was made of
    run : from `inflate` or `simulate_together`
    power : how nodes drew power in the run
    tariff : what an hour at a load is billed with, the default one if not given
    """
    failures = failures_frame(cluster, tasks, run.placements)
    hours, bill = hours_of(cluster, run, power or PowerSettings(), tariff or tariff_of())
    summary = {**run.summary, "failed_for": dict(Counter(failures["failed_for"])),
               **bill.summary(), "hours": hours}
    tables = dict(zip(TABLES, (run.assignments, run.curve, failures), strict=True))
    return RunReport(summary, tables, {}, headline(summary), run)


def report_of(cluster: Cluster, tasks: Tasks, policy: str | Policy = "fgd", *, seed: int = 0,
              until: float | None = None, arrivals: str | Arrivals = "replacement",
              power: str | PowerSettings = "eq1") -> RunReport:
    """Run a workload under a policy, and report.

    Parameters
    ----------
    cluster, tasks, policy, seed, until, arrivals, power : as `inflate`

    Raises
    ------
    InputError : as `inflate`
    """
    run = inflate(cluster, tasks, policy, seed=seed, until=until, arrivals=arrivals, power=power)
    settings = PowerSettings(power) if isinstance(power, str) else power
    return run_report(cluster, tasks, run, settings)
