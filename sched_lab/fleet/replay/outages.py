"""When nodes are closed: drained, so that nothing new starts there, or down, so that what runs is stopped."""

# A module, written by hand.

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...lab.arrays import Floats, Integers, Truths
from ...lab.jit import by_reference
from .intervals import busy_periods

__all__ = ['Outages', 'Lost']


class Outages(NamedTuple):
    """Times in which nodes are closed; arrays (outages,).

    Parameters
    ----------
    node : row of the cluster
    from_s, until_s : from when and until when; inf if no end is known
    is_down : whether what runs there is stopped; else the node is drained, and what runs goes on
    requeues : whether what it stops waits again; else it ends there
    """

    node: Integers
    from_s: Floats
    until_s: Floats
    is_down: Truths
    requeues: Truths

    def of(self, rows: Integers | Truths) -> Outages:
        """Some of them."""
        return Outages(self.node[rows], self.from_s[rows], self.until_s[rows], self.is_down[rows], self.requeues[rows])

    @property
    def down(self) -> Outages:
        """Those for which a node is down."""
        return self.of(self.is_down)

    def on(self, rows: Integers) -> Outages:
        """Those of the nodes of another cluster, of which each is a copy of a row of this one."""
        which, node = np.nonzero(self.node[:, None] == rows)
        return self.of(which)._replace(node=node)


NO_OUTAGES = Outages(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0, bool), np.zeros(0, bool))


@by_reference
class Lost(NamedTuple):
    """Runs that an outage stopped, of tasks that then waited again; arrays (runs,).

    Parameters
    ----------
    task : whose run it was
    node, gpu_mask, start_s, end_s : as in `Schedule`
    """

    task: Integers
    node: Integers
    gpu_mask: Integers
    start_s: Floats
    end_s: Floats


def lost_of(runs: list[tuple[int, int, int, float, float]]) -> Lost:
    """The same runs as arrays."""
    task, node, gpu_mask, start_s, end_s = zip(*runs, strict=True) if runs else ((),) * 5
    return Lost(np.array(task, np.int64), np.array(node, np.int64), np.array(gpu_mask, np.int64),
                np.array(start_s, float), np.array(end_s, float))


NONE_LOST = lost_of([])


@by_reference
class Closings(NamedTuple):
    """Moments at which nodes close and open, in the order of time; arrays (moments,).

    Parameters
    ----------
    at_s, node : when, and which
    change : 1 if it closes, -1 if it opens
    is_down, requeues : as in `Outages`
    """

    at_s: Floats
    node: Integers
    change: Integers
    is_down: Truths
    requeues: Truths


def closings_of(outages: Outages, at_s: float | None) -> Closings:
    """Moments of outages; of one that has begun by `at_s` what runs knows nothing: it is a drain from then on."""
    if at_s is not None:
        outages = outages.of(outages.until_s > at_s)
        outages = outages._replace(from_s=np.maximum(outages.from_s, at_s),
                                   is_down=outages.is_down & (outages.from_s > at_s))
    ends = outages.of(np.isfinite(outages.until_s))
    moment_s = np.concatenate([ends.until_s, outages.from_s])
    order = np.argsort(moment_s, kind="stable")
    both = [np.concatenate(pair)[order] for pair in zip(ends, outages, strict=True)]
    change = np.repeat([-1, 1], [len(ends.node), len(outages.node)])[order]
    return Closings(moment_s[order], both[0], change, both[3], both[4])


def steps_over(from_s: Floats, until_s: Floats, amount: Floats | Integers,
               edges_s: Floats | tuple[float, float]) -> tuple[Floats, Floats]:
    """Sum of amounts that last for a while each, between the first edge and the last: ends of its steps, and their heights.

    Parameters
    ----------
    from_s, until_s, amount : (spans,)
    edges_s : ascending
    """
    begin_s, end_s = (np.clip(times, edges_s[0], edges_s[-1]) for times in (from_s, until_s))
    times_s = np.concatenate([[edges_s[0]], begin_s, end_s, [edges_s[-1]]])
    order = np.argsort(times_s, kind="stable")
    return times_s[order], np.cumsum(np.concatenate([[0], amount, -amount, [0]])[order])[:-1].astype(float)


def mean_over(from_s: Floats, until_s: Floats, amount: Floats | Integers, edges_s: Floats) -> Floats:
    """Mean of the same between edges, (bins,)."""
    times_s, level = steps_over(from_s, until_s, amount, edges_s)
    whole = np.append(0.0, np.cumsum(level * np.diff(times_s)))
    means: Floats = np.diff(np.interp(edges_s, times_s, whole)) / np.diff(edges_s)
    return means


def apart(outages: Outages) -> Outages:
    """Spans in which nodes are closed, each moment of a node once."""
    nodes = np.unique(outages.node)
    spans = [busy_periods(*(times[outages.node == node] for times in outages[1:3])) for node in nodes]
    from_s, until_s = np.concatenate([np.zeros((2, 0)), *spans], axis=1)
    node = np.repeat(nodes, np.array([len(begins) for begins, _ in spans], np.int64))
    nothing = np.zeros(len(node), bool)
    return Outages(node, from_s, until_s, nothing, nothing)


def closed_hours(outages: Outages, horizon: tuple[float, float]) -> dict[str, float]:
    """Node hours within a horizon for which nodes were closed: in all, and down."""
    return {name: float(mean_over(some.from_s, some.until_s, np.ones(len(some.node)), np.array(horizon))[0]
                        * (horizon[1] - horizon[0]) / 3600)
            for name, some in (("all", apart(outages)), ("down", apart(outages.down)))}
