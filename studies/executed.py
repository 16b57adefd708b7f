"""What becomes of a plan for MIG if its steps take other times: a virtual clock, without GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sched_lab.far.execution import Step
from sched_lab.far.mig import Schedule
from sched_lab.lab.arrays import Floats

__all__ = ["as_executed", "forecast", "planned_s"]


def planned_s(steps: Sequence[Step]) -> Floats:
    """(steps,) how long each step should take."""
    return np.array([step.end_s - step.start_s for step in steps])


def forecast(steps: Sequence[Step], durations_s: Floats) -> tuple[Floats, Floats]:
    """Start and end of each step on a virtual clock: as soon as all that it waits for is done.

    Parameters
    ----------
    durations_s : (steps,) or (steps, samples) how long each step takes
    """
    start_s = np.zeros_like(durations_s)
    end_s = np.zeros_like(durations_s)
    for number, step in enumerate(steps):
        if step.after:
            start_s[number] = end_s[list(step.after)].max(axis=0)
        end_s[number] = start_s[number] + durations_s[number]
    return start_s, end_s


def as_executed(schedule: Schedule, steps: Sequence[Step], start_s: Floats,
                end_s: Floats) -> Schedule:
    """The schedule with the times at which its steps really started and ended.

    Parameters
    ----------
    steps : of the schedule
    start_s, end_s : (steps,) when each really did
    """
    operations = [number for number, step in enumerate(steps) if step.kind != "run"]
    runs = [
        number for _, number in sorted((step.task, k) for k, step in enumerate(steps)
                                       if step.kind == "run")]
    return replace(schedule, start_s=start_s[runs], end_s=end_s[runs],
                   operated=np.array([steps[k].instance for k in operations], np.int64),
                   is_creation=np.array([steps[k].kind == "create" for k in operations], np.bool_),
                   operation_start_s=start_s[operations], operation_end_s=end_s[operations])
