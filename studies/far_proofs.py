"""What is proved about FAR, and a search for batches that come near to it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sched_lab.far.bounds import optimum
from sched_lab.far.mig import Mig, without_reconfiguration
from sched_lab.far.refine import best_plan, far_plan
from sched_lab.lab.arrays import Floats
from sched_lab.lab.frames import InputError

__all__ = ["proved_factor", "worst_ratio"]


def proved_factor(mig: Mig) -> float:
    """Makespan of FAR over that of the best schedule, at most, when cutting takes no time.

    Parameters
    ----------
    mig : the GPUs

    References
    ----------
    Section 5 of the paper for one GPU, the theorems of chapter 55a for several
    """
    g = mig.num_gpus
    if mig.model == "A30":
        return (8 * g - 1) / (4 * g)
    return max(13 / 6 - 1 / (6 * g), 11 / 4 - 1 / g, 12 / 5 - 2 / (5 * g))


class Ratio(NamedTuple):
    """FAR against the exact optimum of one batch, both without reconfiguration."""

    far_s: float
    optimum_s: float

    @property
    def value(self) -> float:
        """FAR's makespan over the least."""
        return self.far_s / self.optimum_s


def ratio_of(mig: Mig, times_s: Floats, *, with_phase_3: bool = True) -> Ratio:
    """Run FAR and the exact search on one batch.

    Raises
    ------
    InputError : if the batch is too large for the exact search
    """
    tree = without_reconfiguration(mig).tree
    sizes = np.array(mig.sizes)
    best = optimum(mig, times_s)
    if not best.is_proved:
        raise InputError(f"no exact optimum for {len(times_s)} tasks", mend="give fewer tasks")
    plan_of = far_plan if with_phase_3 else best_plan
    return Ratio(float(plan_of(tree, times_s, sizes, False).makespan_s), best.makespan_s)


class Worst(NamedTuple):
    """The worst batch that a search has met."""

    ratio: float
    times_s: Floats


UNIT = 2.0**20  # a power of two changes no ratio, and keeps short times above `SHORTEST_S`


def _changed(times_s: Floats, rng: np.random.Generator) -> Floats:
    """A batch with one task changed: all its times, some, or one; or it copies another task."""
    other = times_s.copy()
    task = rng.integers(len(times_s))
    k = rng.integers(times_s.shape[1])
    kind = rng.integers(4)
    if kind == 0:
        other[task] *= rng.uniform(0.5, 1.5)
    elif kind == 1:
        other[task, k:] = np.minimum(other[task, k:], other[task, k] * rng.uniform(0.2, 1.0))
    elif kind == 2:
        other[task, k] *= np.exp(rng.normal(0, 0.1))
    else:
        other[task] = other[rng.integers(len(times_s))]
    return np.asarray(-np.sort(-other, axis=1))


def worst_ratio(mig: Mig, num_tasks: int, seed: int | list[int], rounds: int, *,
                starts: int = 5) -> Worst:
    """Search for a batch that FAR does badly: hill climbing on times that never grow with the size.

    Parameters
    ----------
    mig : the GPUs
    num_tasks : tasks of the batch
    seed : of the random numbers
    rounds : batches to look at, all in all
    starts : how often to begin anew; the worst batch of all starts counts
    """
    rng = np.random.default_rng(seed)
    worst = Worst(0.0, np.zeros((0, len(mig.sizes))))
    for start in range(starts):
        here = Worst(0.0, worst.times_s)
        times_s = -np.sort(-rng.uniform(0.05, 1, (num_tasks, len(mig.sizes))), axis=1)
        for _ in range(rounds // starts + (start < rounds % starts)):
            ratio = ratio_of(mig, times_s * UNIT).value
            if ratio >= here.ratio:
                here = Worst(ratio, times_s)
            times_s = _changed(here.times_s, rng)
        worst = max(worst, here, key=lambda found: found.ratio)
    return worst
