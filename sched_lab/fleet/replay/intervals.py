"""How sure a difference is: intervals from the periods between moments at which nobody waits, or none, with the reason."""

# A module, written by hand.

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...lab.arrays import Floats

__all__ = ['Estimate', 'busy_periods', 'estimate_over', 'interval_of']

CONFIDENCE = 0.95
BLOCKS = 50  # the span is cut into so many parts at most
FEWEST_BLOCKS = 8  # that carry the variance
FEWEST_PERIODS = 100  # in which tasks wait
MOST_BUSY = 0.25  # of the span: a queue that waits for longer has seen too little of what it can do
DECISIVE = 0.5  # of the variance

ONE, FEW, LONG, SHORT, SAME = (
    "one busy period decides", "too few busy periods", "somebody waits too often",
    "too few parts of the span differ", "nothing differs")


def interval_of(samples: Floats) -> tuple[float, float]:
    """Middle part of resampled values."""
    samples = samples[np.isfinite(samples)]
    if not len(samples):
        return np.nan, np.nan
    low, high = np.quantile(samples, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


class Estimate(NamedTuple):
    """A difference with its interval, or why it has none.

    Parameters
    ----------
    difference, low, high : the estimate and the ends of its interval, NaN without one
    busy_periods : how often tasks began to wait
    busy_share : part of the span during which some task waits
    longest_s : length of the busy period that matters most
    no_interval : why there is none, empty if there is one
    """

    difference: float
    low: float
    high: float
    busy_periods: int
    busy_share: float
    longest_s: float
    no_interval: str


def busy_periods(begin_s: Floats, end_s: Floats) -> tuple[Floats, Floats]:
    """Begins and ends of the longest stretches without a moment at which nobody waits.

    Parameters
    ----------
    begin_s, end_s : from when until when somebody waits; nobody who does not wait at all
    """
    waits = end_s > begin_s
    order = np.argsort(begin_s[waits], kind="stable")
    begins, until = begin_s[waits][order], np.maximum.accumulate(end_s[waits][order])
    is_first = np.append(True, begins[1:] > until[:-1])[:len(begins)]
    return begins[is_first], until[np.append(is_first[1:], True)[:len(begins)]]


def quantile_of_t(freedom: float) -> float:
    """Quantile of Student's t that leaves half of the rest above, for any degrees of freedom.

    With t = sqrt(f) tan(a), the density of the angle a is proportional to cos(a) to the f - 1.
    """
    angle = np.linspace(0, np.pi / 2, 20_001)
    below = np.append(0.0, np.cumsum(np.cos((angle[1:] + angle[:-1]) / 2) ** (freedom - 1)))
    at = np.interp(CONFIDENCE * below[-1], below, angle)
    return float(np.sqrt(freedom) * np.tan(at))


def ratio_interval(sums: Floats) -> tuple[float, float, float]:
    """Interval of a ratio of means of independent blocks, and how many blocks carry its variance.

    The union of a symmetric interval and of one that is symmetric in the logarithm, with a quantile
    of Student's t for a third as many degrees of freedom as blocks carry the variance: sums over
    busy periods are skewed, and their variance is known less well than that of normal ones. The
    second reaches as far as a factor e: beyond that the sign is open, and it has no logarithm.

    Parameters
    ----------
    sums : (blocks, 2) what is above and below the line
    """
    above, below = sums.sum(axis=0)
    ratio = above / below
    squares = (sums[:, 0] - ratio * sums[:, 1]) ** 2
    carrying = squares.sum() ** 2 / max(float((squares**2).sum()), np.finfo(float).tiny)
    count = len(sums)
    error = np.sqrt(squares.sum() * count / max(1, count - 1)) / below
    reach = quantile_of_t(max(1.0, carrying / 3)) * error
    ends = [ratio - reach, ratio + reach]
    if ratio:
        factor = np.exp(min(reach / abs(ratio), 1.0))
        ends += [ratio / factor, ratio * factor]
    return float(min(ends)), float(max(ends)), float(carrying)


def sums_between(cuts_s: Floats, at_s: Floats, amounts: Floats) -> Floats:
    """Sums of amounts, (moments, 2), between cuts, without parts that have none, (parts, 2)."""
    part = np.searchsorted(cuts_s, at_s, side="right")
    sums = np.stack([np.bincount(part, column, len(cuts_s) + 1) for column in amounts.T],
                    axis=1).astype(float)
    kept: Floats = sums[sums[:, 1] > 0]
    return kept


def spread_cuts(cuts_s: Floats, first_s: float, least_s: float) -> Floats:
    """Cuts of which each is at least so long after the one before."""
    kept: list[float] = []
    for cut_s in cuts_s.tolist():
        if cut_s - (kept[-1] if kept else first_s) >= least_s:
            kept.append(cut_s)
    return np.array(kept)


def estimate_over(at_s: Floats, amounts: Floats, cuts_s: Floats, busy: tuple[Floats, Floats],
                  span: tuple[float, float], fewest_periods: int = FEWEST_PERIODS) -> Estimate:
    """A ratio of sums with its interval, from what happens between moments at which nobody waits.

    A queue begins anew when it is empty, so what happens between two such moments hardly depends on
    the past. Periods are joined until none is shorter than a fiftieth of the span. There is no
    interval where one busy period carries most of the variance, where fewer than eight blocks do,
    where tasks began to wait fewer than a hundred times, or wait for more than a quarter of the
    span: months like these show too little of what others may bring.

    Parameters
    ----------
    at_s : (moments,) of the amounts
    amounts : (moments, 2) above and below the line
    cuts_s : ascending moments at which nobody waits
    busy : begins and ends of busy periods
    span : first and last moment, seconds
    fewest_periods : of those in which tasks wait
    """
    above, below = amounts.sum(axis=0)
    begins, ends = busy[0], np.minimum(busy[1], span[1])
    length_s = ends - begins
    share = float(length_s.sum() / (span[1] - span[0]))
    value = float(above / below) if below else np.nan
    if not amounts[:, 0].any():
        return Estimate(value, np.nan, np.nan, len(begins), share, 0.0, SAME)
    period = np.searchsorted(begins, at_s, side="right")
    each = np.stack([np.bincount(period, column, len(begins) + 1) for column in amounts.T], axis=1)
    squares = (each[:, 0] - value * each[:, 1]) ** 2
    largest = int(squares[1:].argmax()) if len(begins) else -1
    longest_s = float(length_s[largest]) if len(begins) else 0.0
    blocks = sums_between(spread_cuts(cuts_s, span[0], (span[1] - span[0]) / BLOCKS), at_s, amounts)
    low, high, carrying = ratio_interval(blocks)
    why = ""
    if len(begins) and squares[1 + largest] > DECISIVE * squares.sum():
        why = ONE
    elif len(begins) < fewest_periods:
        why = FEW
    elif share > MOST_BUSY:
        why = LONG
    elif carrying < FEWEST_BLOCKS:
        why = SHORT
    if why:
        low = high = np.nan
    return Estimate(value, low, high, len(begins), share, longest_s, why)
