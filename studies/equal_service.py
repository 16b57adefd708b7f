"""Power at equal service: watts compared where as many GPUs are served."""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np
import pandas as pd

from sched_lab.lab.arrays import Floats
from sched_lab.lab.frames import InputError

SLACK = 1e-12  # of rounding, where two shares are the same
LEVELS = np.linspace(0, 1, 5)


class Curves(NamedTuple):
    """What the policies of one trace serve and draw, run by run.

    Parameters
    ----------
    policies : names
    x : (points,) arrived demand, share of the capacity
    served_gpu, power_w : (policies, seeds, points)
    arrived_gpu : (seeds, points)
    """

    policies: list[str]
    x: Floats
    served_gpu: Floats
    power_w: Floats
    arrived_gpu: Floats

    def row(self, policy: str) -> int:
        """Place of a policy."""
        return self.policies.index(policy)


def curves_of(runs: pd.DataFrame, trace: str) -> Curves:
    """Curves of a trace from a frame of runs.

    Raises
    ------
    InputError : a policy lacks a seed, or a run a point of the grid
    """
    own = runs[runs["trace"] == trace]
    policies = list(dict.fromkeys(own["policy"]))
    seeds = list(dict.fromkeys(own["seed"]))
    tables = own.pivot(index=["policy", "seed"], columns="x")
    tables = tables.reindex(pd.MultiIndex.from_product([policies, seeds]))
    lacks = np.flatnonzero(tables["eopc_w"].isna().to_numpy().any(axis=1))
    if len(lacks):
        policy, seed = tables.index[lacks[0]]
        raise InputError(f"the run of {policy} with seed {seed} on {trace} is not complete",
                         mend="give every policy every seed, and all runs one grid")
    x = tables["eopc_w"].columns.to_numpy(float)
    served, arrived, watts = (
        tables[name].to_numpy(float).reshape(len(policies), len(seeds), len(x))
        for name in ("used_gpu_milli", "arrived_gpu_milli", "eopc_w"))
    return Curves(policies, x, served / 1000, watts, arrived[0] / 1000)


def weights_of(num_seeds: int, num_draws: int = 1000) -> Floats:
    """Weight of each seed: the plain mean, then draws with replacement, (1 + draws, seeds)."""
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), size=num_draws)
    return np.vstack([np.ones(num_seeds), drawn]) / num_seeds


def interval(values: Floats) -> Floats:
    """Estimate, and the ends of its 95 % interval, from the values of all weights, (3, ...)."""
    # nearest: between two infinite values there is no other
    ends = np.quantile(values[..., 1:], (0.025, 0.975), axis=-1, method="nearest")
    return np.concatenate([values[None, ..., 0], ends])


def doors(curves: Curves, weights: Floats, x: float | None = None) -> tuple[Floats, Floats]:
    """Share served and power, by where the door is closed, (policies, draws, points).

    Parameters
    ----------
    curves, weights : of a trace
    x : the account at this demand; None for that of the whole inflation

    Returns
    -------
    as `eq-equal-account` defines them; at the last point the door stays open
    """
    end = len(curves.x) if x is None else int(np.searchsorted(curves.x, x - 1e-9)) + 1
    served, arrived, watts = (weights @ each[..., :end] for each in (
        curves.served_gpu, curves.arrived_gpu, curves.power_w))
    if x is not None:
        return served / arrived[:, -1:], watts
    gpu_hours, kwh = (before(each, curves.x) + each * (1 - curves.x) for each in (served, watts))
    return gpu_hours / before(arrived, curves.x)[:, -1:], kwh


def before(values: Floats, x: Floats) -> Floats:
    """Integral over x up to each point, along the last axis."""
    steps = (values[..., 1:] + values[..., :-1]) / 2 * np.diff(x)
    return np.concatenate([np.zeros((*values.shape[:-1], 1)), steps.cumsum(axis=-1)], axis=-1)


def power_when(served: Floats, power_w: Floats, wanted: Floats) -> Floats:
    """Power when so much is served for the first time (`eq-equal-closed`), (draws,) watts.

    Parameters
    ----------
    served, power_w : (draws, points) of one policy, by where its door is closed
    wanted : (draws,) no more than it serves with its door open
    """
    after = (served < wanted[:, None] - SLACK).sum(axis=1, keepdims=True)
    after = np.minimum(after, served.shape[1] - 1)
    both = np.concatenate([np.maximum(after - 1, 0), after], axis=1)
    low, high = np.take_along_axis(served, both, 1).T
    low_w, high_w = np.take_along_axis(power_w, both, 1).T
    part = np.divide(wanted - low, high - low, out=np.ones_like(wanted), where=high > low)
    found: Floats = low_w + part.clip(0, 1) * (high_w - low_w)
    return found


def both_savings(curves: Curves, policy: str, weights: Floats, x: float | None = None,
                 baseline: str = "fgd") -> tuple[Floats, Floats]:
    """Saving of a policy as arrivals count it, and at equal service, (draws,) percent.

    Parameters
    ----------
    curves, weights : of a trace
    policy, baseline : who saves against whom
    x : as in `doors`
    """
    two = [curves.row(policy), curves.row(baseline)]
    pair = curves._replace(served_gpu=curves.served_gpu[two], power_w=curves.power_w[two])
    served, watts = doors(pair, weights, x)
    wanted = served[..., -1].min(axis=0)
    own, other = watts[..., -1]
    own_equal, other_equal = (power_when(*each, wanted) for each in zip(served, watts, strict=True))
    return 100 * (1 - own / other), 100 * (1 - own_equal / other_equal)


def least_power(served: Floats, power_w: Floats, wanted: Floats) -> Floats:
    """Least power at which policies serve at least so much (`eq-equal-least`), (draws,) watts.

    Parameters
    ----------
    served, power_w : (policies, draws, points) as from `doors`
    wanted : (draws,) share of the demand; infinite power where no policy serves as much
    """
    is_enough = served[..., -1] >= wanted - SLACK
    closed = [power_when(*each, wanted) for each in zip(served, power_w, strict=True)]
    least: Floats = np.where(is_enough, closed, np.inf).min(axis=0)
    share, watts = served[..., -1], power_w[..., -1]
    for low, high in permutations(range(len(served)), 2):
        crosses = ~is_enough[low] & is_enough[high]
        part = np.divide(wanted - share[low], share[high] - share[low],
                         out=np.ones_like(wanted), where=crosses).clip(0, 1)
        mixed = watts[low] + part * (watts[high] - watts[low])
        least = np.where(crosses, np.minimum(least, mixed), least)
    return least


def dominance(curves: Curves, family: list[str], rivals: list[str], weights: Floats,
              x: float | None = None) -> Floats:
    """How much less power a family draws at five levels (`eq-equal-dominance`), (5, draws) percent.

    Parameters
    ----------
    curves, weights : of a trace
    family, rivals : the policies that are compared
    x : as in `doors`
    """
    served, watts = doors(curves, weights, x)
    own, other = ([curves.row(policy) for policy in names] for names in (family, rivals))
    most = served[other, :, -1].max(axis=0)
    thriftiest = watts[other, :, -1].argmin(axis=0)
    least = np.take_along_axis(served[other, :, -1], thriftiest[None], 0)[0]
    wanted = [least + level * (most - least) for level in LEVELS]
    return np.stack([100 * (1 - least_power(served[own], watts[own], level)
                            / least_power(served[other], watts[other], level))
                     for level in wanted])
