"""Time passes from decision to decision: who has come waits in a queue, and who decides says when to be asked again."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .arrays import Floats, Integers, Truths

__all__ = ['run_queue']

Advance = Callable[[Integers, float, float], tuple[float, Truths]]


def run_queue(arrival_s: Floats, advance: Advance, from_s: float = -np.inf,
              seen_s: Callable[[float], float] = float) -> None:
    """Ask for decisions until nobody is left, and nobody is to come.

    Parameters
    ----------
    arrival_s : (jobs,) when each comes
    advance : called as `advance(queue, now_s, later_s)` with who is there, first come first, and
        with when the next one is seen, infinite if nobody comes. It decides and lets time pass; it
        returns when to decide again, infinite to end all, and (queue,) who is still there
    from_s : no decision is earlier
    seen_s : when somebody who comes at a moment is seen: then, or when a round begins
    """
    order = np.argsort(arrival_s, kind="stable")
    comes_s = np.append(arrival_s[order], np.inf)
    queue = order[:0]
    arrived = 0
    now_s = from_s
    while now_s < np.inf:
        if comes_s[arrived] <= now_s:
            known = arrived
            arrived = int(np.searchsorted(comes_s, now_s, side="right"))
            queue = np.append(queue, order[known:arrived])
        later_s = seen_s(float(comes_s[arrived]))
        if len(queue):
            now_s, stays = advance(queue, now_s, later_s)
            queue = queue[stays]
        else:
            now_s = later_s
