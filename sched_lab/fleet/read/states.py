"""Clusters have many words for the same few states of a task: it waits, runs, is over, or left the queue."""

# A module, written by hand.

from __future__ import annotations

import re

__all__ = ['fate_of']

WAITS, RUNS, OVER, CANCELLED = "waits", "runs", "is over", "cancelled"
WORDS = {
    WAITS: "pending queued waiting requeued requeue_hold requeue_fed special_exit resv_del_hold held "
           "hold submitted created unscheduled pd q w",
    RUNS: "running suspended stopped signaling resizing completing configuring stage_out started "
          "active in_progress r cg cf s",
    OVER: "completed complete failed fail timeout node_fail out_of_memory boot_fail deadline preempted "
          "revoked launch_failed succeeded success terminated finished done ended error crashed pass "
          "passed oom exited cd f to nf oom bf dl pr",
    CANCELLED: "cancelled canceled killed aborted deleted withdrawn removed interrupted ca"}
FATES = {word: fate for fate, words in WORDS.items() for word in words.split()}


def fate_of(text: str) -> str:
    """What a word for the state of a task says of it; empty if it is not known.

    Further words (`CANCELLED by 1000`) and a mark at its end (`CANCELLED+`) are left out.
    """
    words = re.sub(r"^in[ -]progress", "in_progress", text.strip().lower()).split()
    return FATES.get(words[0].rstrip("+*,;"), "") if words else ""
