"""What was decided about a pod, as a sentence in `kubectl describe pod`, written beside the answers and never before one."""

# A module, written by hand.

from __future__ import annotations

import queue
import threading
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from ...online.model import CONDITIONS
from ..read.objects import text_at
from .core import Decision

__all__ = ['Events']

MOST_WAITING = 1000
PER_S = 20.0
MOST_SAID = 10_000
WORDS = {condition.answer: condition.words for condition in CONDITIONS}


def sentence_of(decision: Decision) -> tuple[str, str]:
    """Reason and sentence of an event: where a pod goes, and the next best; or why it goes nowhere."""
    if decision.refused:
        return "Refused", decision.refused
    if not decision.node:
        lacks = ", ".join(f"{WORDS.get(way, way)} on {count}" for way, count in decision.failed)
        what = decision.together or "no node can take the pod"
        return "NoNode", f"{what}; in the way first: {lacks or 'no node is known'}"
    gpus = f" with GPU {decision.gpu_list}" if decision.gpu_list else ""
    other = (f"; next best: {decision.runner_up} with {decision.runner_up_points}"
             if decision.runner_up else "; there is no other")
    part = f"; {decision.together}" if decision.together else ""
    return "Decided", f"{decision.node}{gpus} has {decision.points} points{other}{part}"


class Events:
    """Writes Events about decisions in a thread of its own; what is too much, or fails, is left out.

    Parameters
    ----------
    api : of the API server
    """

    def __init__(self, api: Any) -> None:
        self.api = api
        self.waiting: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue(MOST_WAITING)
        self.said: dict[str, str] = {}  # the last sentence about each pod

    def say(self, body: dict[str, Any], decision: Decision) -> None:
        """Have an event written about a pod, unless it would be the last one again.

        Parameters
        ----------
        body : the pod
        decision : about it
        """
        reason, sentence = sentence_of(decision)
        if self.said.get(decision.uid) == sentence:
            return
        if len(self.said) >= MOST_SAID:
            self.said.clear()
        self.said[decision.uid] = sentence
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace, name = (text_at(body, "metadata", key) for key in ("namespace", "name"))
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name,
                 "uid": text_at(body, "metadata", "uid")}
        event = {"apiVersion": "v1", "kind": "Event", "involvedObject": about, "reason": reason,
                 "message": sentence[:1024], "type": "Normal" if decision.node else "Warning",
                 "source": {"component": "sched-lab"}, "count": 1, "firstTimestamp": now,
                 "lastTimestamp": now,
                 "metadata": {"name": f"{name[:200]}.{uuid.uuid4().hex[:16]}", "namespace": namespace}}
        with suppress(queue.Full):
            self.waiting.put_nowait((namespace, event))

    def write(self, stopping: threading.Event) -> None:
        """Write what waits, so many a second, until the end.

        Parameters
        ----------
        stopping : is set in the end
        """
        while not stopping.wait(1 / PER_S):
            with suppress(Exception):  # whatever it is, the next one may be written
                self.api.event(*self.waiting.get(timeout=0.5))
