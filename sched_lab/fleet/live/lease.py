"""Who answers, where there are two: a lease has one holder, who stops by its own clock before another may begin."""

# A module, written by hand.

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ..read.objects import dig, text_at
from .bridge import ApiError, Call, Steps

__all__ = ['Lease', 'FencedApi']

POLL_S = 0.5  # between two looks of who waits
DRIFT = 0.1  # part of its lease that a leader does not use: clocks may run apart by 5 %
NOBODY = "nobody: the lease was deleted"  # a holder who never leads, and whose lease runs out
KEPT = ("resourceVersion", "labels", "annotations", "ownerReferences")


def boot_s() -> float:
    """Seconds since the machine started, also those that it slept."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


class Lease:
    """A part in the election of a leader, by a Lease of Kubernetes (`coordination.k8s.io/v1`).

    Times are of our own clock alone; those in the record are for people. A leader counts from the
    sending of its last write that succeeded. Who waits counts from when it saw the record change
    last, as client-go does. Where there is none, who led last may still lead; and who sees none
    twice cannot tell whether there was one in between. So a lease of nobody is written first, and
    waited for like any other.

    Parameters
    ----------
    name : namespace/name
    holder : who we are, another one in each process
    lease_s : how long a leader leads without renewing
    rest_s : within which a bind that was sent lands, or does not any more
    clock : seconds that only grow

    Attributes
    ----------
    until_s : before which we may answer
    seen, since_s : version of the record as we saw it, and since when
    was_others : whether another one may have led since we did
    """

    def __init__(self, name: str, holder: str, lease_s: float, rest_s: float,
                 clock: Callable[[], float] = boot_s) -> None:
        self.namespace, _, self.name = name.partition("/")
        self.holder = holder
        self.lease_s = lease_s
        self.rest_s = rest_s
        self.clock = clock
        self.until_s = float("-inf")
        self.was_others = True
        self.seen: str | None = None
        self.since_s = 0.0

    def left_s(self) -> float:
        """For how long we may still answer; not above 0 if we do not lead."""
        return self.until_s - self.clock()

    def may_bind(self) -> bool:
        """Whether a bind that is sent now lands, or does not, before another may lead."""
        return self.left_s() > self.rest_s

    def see(self, body: dict[str, Any] | None) -> None:
        """Note when the record changed last."""
        version = text_at(body, "metadata", "resourceVersion")
        if version != self.seen:
            self.seen = version
            self.since_s = self.clock()

    def is_open(self, body: dict[str, Any]) -> bool:
        """Whether a lease that is not ours may be taken: it was given back, or has run out."""
        if not text_at(body, "spec", "holderIdentity"):
            return True
        stated_s = float(dig(body, "spec", "leaseDurationSeconds") or 0)
        return self.clock() >= self.since_s + max(self.lease_s, stated_s)

    def step(self, is_able: bool, is_idle: Callable[[], bool]) -> Steps:
        """Look at the lease; then renew it or take it, if we can answer, or else give it back.

        Parameters
        ----------
        is_able : whether we can answer
        is_idle : whether none of our binds is under way, or in doubt
        """
        try:
            body = yield Call("lease", (self.namespace, self.name))
        except ApiError:
            return
        self.see(body)
        is_ours = text_at(body, "spec", "holderIdentity") == self.holder
        if not is_ours:
            self.until_s = float("-inf")
            self.was_others = True
        if not is_ours and not (is_able and (body is None or self.is_open(body))):
            return
        if not is_able:
            self.until_s = float("-inf")  # no bind is sent any more
            if not is_idle():
                return  # the lease runs out
        sent_s = self.clock()
        holder = "" if not is_able else NOBODY if body is None else self.holder
        record = self.record(body, holder)
        try:
            self.see((yield Call("write_lease", (self.namespace, self.name, record))))
        except ApiError:  # somebody was faster, or nobody knows: the next look will tell
            return
        if holder == self.holder:
            self.until_s = sent_s + (1 - DRIFT) * self.lease_s

    def record(self, body: dict[str, Any] | None, holder: str) -> dict[str, Any]:
        """The record with a holder, to be written over another one and nothing else.

        Parameters
        ----------
        body : the other one; None if there must be none
        holder : empty to give the lease back
        """
        old: dict[str, Any] = dig(body, "spec") or {}
        now = datetime.now(UTC)
        if not now.microsecond:  # the client would leave them out, which the server does not take
            now = now.replace(microsecond=1)
        is_new = old.get("holderIdentity") != holder
        spec = {**old, "holderIdentity": holder, "leaseDurationSeconds": max(1, round(self.lease_s)),
                "renewTime": now.isoformat()}
        if is_new and holder:
            spec |= {"acquireTime": now.isoformat(),
                     "leaseTransitions": int(old.get("leaseTransitions") or 0) + 1}
        metadata: dict[str, Any] = dig(body, "metadata") or {}
        kept = {name: metadata[name] for name in KEPT if name in metadata}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
                "metadata": {**kept, "name": self.name, "namespace": self.namespace}}

    def pause_s(self) -> float:
        """Until the next step: a leader renews at each third, who waits looks often."""
        left_s = self.left_s()
        if left_s > 0:
            since_s = (1 - DRIFT) * self.lease_s - left_s
            return max(POLL_S, random.uniform(0.8, 1.0) * self.lease_s / 3 - since_s)
        rest_s = self.since_s + self.lease_s - self.clock()
        return min(random.uniform(0.8, 1.2) * POLL_S, rest_s if rest_s > 0 else POLL_S)


class FencedApi:
    """An API through which nobody binds who may no longer.

    Parameters
    ----------
    api : that is called
    lease : ours
    """

    def __init__(self, api: Any, lease: Lease) -> None:
        self._api = api
        self._lease = lease

    def __getattr__(self, name: str) -> Any:
        """All else that the API can do."""
        return getattr(self._api, name)

    def bind(self, *arguments: Any) -> None:
        """Bind as the API does, if the lease is ours for long enough; else nothing is sent."""
        self.check()
        self._api.bind(*arguments)

    def annotate_node(self, *arguments: Any) -> None:
        """Write annotations of a node as the API does, under the same condition."""
        self.check()
        self._api.annotate_node(*arguments)

    def check(self) -> None:
        """Refuse what another may be doing by now."""
        if not self._lease.may_bind():
            raise ApiError(403, "the lease was not renewed in time, and another may lead")
