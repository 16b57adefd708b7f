"""From a table of run times to a schedule, its reconfigurations, a chart and the distance from the best possible."""

# A module, written by hand.

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from ..lab.frames import InputError, write_bytes
from ..lab.reports import ENERGY_MEANINGS, Report, energy_sentence
from .bounds import bound
from .due import tardiness_bound, tardiness_s
from .energy import NOTHING_SAID, Charge, energy_of
from .layout import PROFILE, layout_script, mig_parted
from .mig import Mig, Schedule, operations_frame, schedule_chart, schedule_frame
from .mixed import fluid_s, resources_of
from .multibatch import ideal_s
from .policies import batches_of, has_due_dates, is_dated, policy_of, simulate
from .profiles import ProfileMig
from .tasks import Batch

__all__ = ['ScheduleReport', 'report_of']


def ideal_of(mig: Mig, batch: Batch) -> float:
    """Least work of all tasks, spread evenly over what the GPUs have, in s."""
    if isinstance(mig, ProfileMig):
        return fluid_s(resources_of(mig), batch.times_s)[0]
    return ideal_s(mig, [batch.times_s])


def lateness_of(mig: Mig, batch: Batch, schedule: Schedule) -> dict[str, Any]:
    """What a summary says of due dates; nothing if no task has one."""
    if batch.terms is None or not has_due_dates(batch):
        return {}
    late_s = tardiness_s(batch.terms, schedule.end_s)
    return {"tardiness_s": float((batch.terms.weight * late_s).sum()),
            "tardiness_bound_s": tardiness_bound(mig, batch), "late": int((late_s > 1e-9).sum())}


def summary_of(mig: Mig, batch: Batch, policy: str, schedule: Schedule) -> dict[str, Any]:
    """What `report_of` says of a schedule.

    Parameters
    ----------
    mig, batch : the problem
    policy : who made the schedule
    """
    ideal = ideal_of(mig, batch)
    num_batches = len(batches_of(batch))
    bound_s = bound(mig, batch, with_reconfiguration=not len(schedule.existing))
    summary: dict[str, Any] = {
        "gpu": mig.model, "gpus": mig.num_gpus, "policy": policy, "tasks": len(batch),
        "batches": num_batches, "makespan_s": schedule.makespan_s,
        "rho": schedule.makespan_s / ideal, "ideal_s": ideal, "lower_bound_s": bound_s,
        "reconfigurations": len(schedule.operated)}
    summary |= lateness_of(mig, batch, schedule)
    prove = policy_of(policy).scalar_form.prove
    if prove is not None and num_batches == 1:
        best = prove(mig, batch.times_s)
        summary |= {"lower_bound_s": max(bound_s, best.bound_s)}
        summary |= {"optimum_s": best.makespan_s} if best.is_proved else {}
    return summary


def headline_of(summary: Mapping[str, Any]) -> str:
    """Say in a few words what summary.json says."""
    is_late = summary.get("objective") == "tardiness"
    late = f"tardiness {summary['tardiness_s']:.2f} s, " if is_late else ""
    return f"{late}makespan {summary['makespan_s']:.2f} s, rho {summary['rho']:.3f}"


TABLES = ("schedule.csv", "reconfigurations.csv")
LAYOUT = ("mig-parted.yaml", "layout.sh")
CHARTS = ("gantt.html", "gantt.svg")


def tasks_frame(batch: Batch, schedule: Schedule) -> pd.DataFrame:
    """One row per task, by start, with its batch if there are several."""
    tasks = schedule_frame(schedule, batch.name.tolist())
    if (batch.group != "").any():
        group_of = dict(zip(batch.name, batch.group, strict=True))
        tasks.insert(1, "batch", tasks["task"].map(group_of))
    if isinstance(mig := schedule.mig, ProfileMig):
        order = np.array([batch.name.tolist().index(name) for name in tasks["task"]], np.int64)
        rows = schedule.instance[order]
        tasks["model"] = [mig.gpus[gpu].name for gpu in tasks["gpu"]]
        tasks["profile"] = [mig.profile(i).name for i in rows.tolist()]
        tasks["place"] = mig.start[rows]
        if batch.terms is not None and has_due_dates(batch):
            tasks["tardiness_s"] = tardiness_s(batch.terms, schedule.end_s)[order]
    return tasks


MEANINGS = {
    "gantt": "Every slice of the GPUs over time: tasks, and instances that are created or "
             "destroyed between them.",
    "schedule.csv": "one row for each task",
    "reconfigurations.csv": "every creation and destruction of an instance",
    "first_slice": "where its instance begins", "size": "slices", "start_s": "s, when it begins",
    "end_s": "s, when it ends", "makespan_s": "s, until the last task ends",
    "lower_bound_s": "s, no schedule ends earlier", "optimum_s": "s, the best schedule of all",
    "ideal_s": "s, the work spread evenly over all slices",
    "rho": "makespan over that ideal", "reconfigurations": "creations and destructions",
    "tasks": "in all", "gpus": "GPUs of this model",
    "model": "of the GPU", "profile": "of the instance", "place": "its first memory slice",
    "mig-parted.yaml": "a configuration for mig-parted after each stage",
    "layout.sh": "nvidia-smi commands, one stage a call",
    "tardiness_s": "s after the due date, weighted in the sum",
    "tardiness_bound_s": "s, no schedule stays below", "late": "tasks after their due date",
    **ENERGY_MEANINGS}


def gpus_in_words(mig: Mig) -> str:
    """How many GPUs of which models."""
    if not isinstance(mig, ProfileMig):
        return f"{mig.num_gpus} {mig.model}"
    counts = Counter(model.name for model in mig.gpus)
    *most, last = [f"{count} {name}" for name, count in counts.items()]
    return f"{', '.join(most)} and {last}" if most else last


def sentences_of(summary: Mapping[str, Any], mig: Mig) -> list[str]:
    """The summary in words."""
    done_s = summary["makespan_s"]
    least_s = summary.get("optimum_s", summary["lower_bound_s"])
    first = (f"With the policy {summary['policy']} all {summary['tasks']} tasks are done after "
             f"{done_s:.2f} s on {gpus_in_words(mig)}")
    if done_s <= least_s * (1 + 1e-6):
        return [f"{first}, and no schedule is faster."]
    return [f"{first}. No schedule is done before {least_s:.2f} s, so at most "
            f"{100 * (1 - least_s / done_s):.1f} % of the time can be saved."]


@dataclass(frozen=True)
class ScheduleReport(Report):
    """A report with the schedule that it is about."""

    schedule: Schedule
    layout: Mapping[str, str] = field(default_factory=dict)

    question: ClassVar[str] = "How is the GPU cut, and when is the batch done?"
    meanings: ClassVar[Mapping[str, str]] = MEANINGS

    def answer(self) -> list[str]:
        """When all is done, and how much sooner it could be."""
        late = [f"{self.summary['late']} tasks are late, by {self.summary['tardiness_s']:.2f} s in "
                "all, weighted."] if "late" in self.summary else []
        drawn = [energy_sentence(self.summary), self.summary["energy_assumptions"]] if (
            "energy_kwh" in self.summary) else []
        return sentences_of(self.summary, self.schedule.mig) + late + drawn

    def write_tables(self, folder: Path) -> None:
        """Write the tables, and the layout, into a folder that exists."""
        super().write_tables(folder)
        for name, text in self.layout.items():
            write_bytes(text.encode(), Path(folder, name))


def layout_of(batch: Batch, schedule: Schedule) -> dict[str, str]:
    """The files of a layout, on GPUs whose profiles have NVIDIA's names."""
    mig = schedule.mig
    if not isinstance(mig, ProfileMig) or not all(
            PROFILE.fullmatch(profile.name) for _, profile in mig.columns):
        return {}
    names = batch.name.tolist()
    return dict(zip(LAYOUT, (mig_parted(schedule, names), layout_script(schedule, names)),
                    strict=True))


def report_of(mig: Mig, batch: Batch, policy: str = "far", *, objective: str = "makespan",
              charge: Charge = NOTHING_SAID) -> ScheduleReport:
    """Schedule a batch and say how far the result is from the best possible.

    Parameters
    ----------
    mig : the GPUs
    batch : tasks, their run times, and the batch that each belongs to
    policy : a name of `POLICIES`, or `fixpart:P`
    objective : "makespan" or "tardiness"; what is to be least
    charge : by what energy is billed

    Returns
    -------
    a report; its summary has `makespan_s`, `lower_bound_s`, `rho` and the like, and `optimum_s` if
    it is known

    Raises
    ------
    InputError : if there is no task, the policy is unknown or cannot place a task, or tardiness is
        to be least and nothing is due
    """
    if not len(batch):
        raise InputError("there is no task to schedule", mend="give one row per task")
    schedule = simulate(mig, batch, policy, objective)
    summary = summary_of(mig, batch, policy, schedule)
    summary |= {"objective": objective} if is_dated(mig, batch, objective) else {}
    bill = energy_of(mig, batch, schedule, charge)
    summary |= bill.summary() if bill else {}
    headline = headline_of(summary)
    frames = (tasks_frame(batch, schedule).round(9), operations_frame(schedule).round(9))

    @cache
    def draw() -> Any:
        return schedule_chart(schedule, batch.name.tolist(), title=f"{policy}: {headline}")

    return ScheduleReport(summary, dict(zip(TABLES, frames, strict=True)),
                          dict.fromkeys(CHARTS, draw), headline, schedule,
                          layout_of(batch, schedule))
