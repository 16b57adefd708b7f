"""From a table of run times to a schedule, its reconfigurations, a chart and the distance from the best possible."""

# A module, written by hand.

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import pandas as pd

from ..hardware import Hardware
from ..lab.frames import InputError
from ..lab.reports import ENERGY_MEANINGS, Report, energy_sentence
from .bounds import bound
from .due import batches_of, tardiness_bound, tardiness_s
from .energy import energy_of
from .layout import has_layout, layout_script, mig_parted
from .mig import Mig, Schedule, operations_frame, schedule_chart, schedule_frame
from .mixed import fluid_s, resources_of
from .multibatch import ideal_s
from .policies import has_due_dates, is_dated, policy_of, simulate
from .profiles import ProfileMig
from .tasks import Batch

__all__ = ['ScheduleReport', 'report_of']


def summary_of(mig: Mig, batch: Batch, policy: str, schedule: Schedule) -> dict[str, Any]:
    """What `report_of` says of a schedule.

    Parameters
    ----------
    mig, batch : the problem
    policy : who made the schedule
    """
    ideal = fluid_s(resources_of(mig), batch.times_s)[0] if isinstance(mig, ProfileMig) else (
        ideal_s(mig, [batch.times_s]))
    num_batches = len(batches_of(batch))
    bound_s = bound(mig, batch, with_reconfiguration=not len(schedule.existing))
    summary: dict[str, Any] = {
        "gpu": mig.model, "gpus": mig.num_gpus, "policy": policy, "tasks": len(batch),
        "batches": num_batches, "makespan_s": schedule.makespan_s,
        "rho": schedule.makespan_s / ideal, "ideal_s": ideal, "lower_bound_s": bound_s,
        "reconfigurations": len(schedule.operated)}
    if batch.terms is not None and has_due_dates(batch):
        late_s = tardiness_s(batch.terms, schedule.end_s)
        summary |= {"tardiness_s": float((batch.terms.weight * late_s).sum()),
                    "tardiness_bound_s": tardiness_bound(mig, batch),
                    "late": int((late_s > 1e-9).sum())}
    prove = policy_of(policy).scalar_form.prove
    if prove is not None and num_batches == 1:
        best = prove(mig, batch.times_s)
        summary |= {"lower_bound_s": max(bound_s, best.bound_s)}
        summary |= {"optimum_s": best.makespan_s} if best.is_proved else {}
    return summary


TABLES = ("schedule.csv", "reconfigurations.csv")
LAYOUT = ("mig-parted.yaml", "layout.sh")
CHARTS = ("gantt.svg",)


def tasks_frame(batch: Batch, schedule: Schedule) -> pd.DataFrame:
    """One row per task, by start, with its batch if there are several."""
    tasks = schedule_frame(schedule, batch.name.tolist())
    order = pd.Index(batch.name).get_indexer(pd.Index(tasks["task"]))
    if (batch.group != "").any():
        tasks.insert(1, "batch", batch.group[order])
    if isinstance(mig := schedule.mig, ProfileMig):
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


@dataclass(frozen=True)
class ScheduleReport(Report):
    """A report with the schedule that it is about."""

    schedule: Schedule

    question: ClassVar[str] = "How is the GPU cut, and when is the batch done?"
    meanings: ClassVar[Mapping[str, str]] = MEANINGS

    def answer(self) -> list[str]:
        """When all is done, how much sooner it could be, what is late, and what it draws."""
        said = self.summary
        done_s = said["makespan_s"]
        least_s = said.get("optimum_s", said["lower_bound_s"])
        first = (f"With the policy {said['policy']} all {said['tasks']} tasks are done after "
                 f"{done_s:.2f} s on {gpus_in_words(self.schedule.mig)}")
        sentences = [f"{first}, and no schedule is faster."] if done_s <= least_s * (1 + 1e-6) else [
            f"{first}. No schedule is done before {least_s:.2f} s, so at most "
            f"{100 * (1 - least_s / done_s):.1f} % of the time can be saved."]
        if "late" in said:
            sentences.append(f"{said['late']} tasks are late, by {said['tardiness_s']:.2f} s in "
                             "all, weighted.")
        if "energy_kwh" in said:
            sentences += [energy_sentence(said), said["energy_assumptions"]]
        return sentences


def report_of(mig: Mig, batch: Batch, policy: str = "far", *, objective: str = "makespan",
              hardware: Hardware | None = None, price: str = "",
              carbon: str = "") -> ScheduleReport:
    """Schedule a batch and say how far the result is from the best possible.

    Parameters
    ----------
    mig : the GPUs
    batch : tasks, their run times, and the batch that each belongs to
    policy : a name of `POLICIES`, or `fixpart:P`
    objective : "makespan" or "tardiness"; what is to be least
    hardware : catalogue of watts; the one that comes with the package if not given
    price, carbon : of energy, a number or a file, as text

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
    bill = energy_of(mig, batch, schedule, hardware, price, carbon)
    summary |= bill.summary() if bill else {}
    headline = f"makespan {summary['makespan_s']:.2f} s, rho {summary['rho']:.3f}"
    if objective == "tardiness":
        headline = f"tardiness {summary['tardiness_s']:.2f} s, {headline}"
    names = batch.name.tolist()
    frames = (tasks_frame(batch, schedule).round(9), operations_frame(schedule).round(9))
    layout = {}
    if has_layout(mig):
        layout = dict(zip(LAYOUT, (mig_parted(schedule, names), layout_script(schedule, names)),
                          strict=True))

    @cache
    def draw() -> Any:
        return schedule_chart(schedule, names, title=f"{policy}: {headline}")

    return ScheduleReport(summary, dict(zip(TABLES, frames, strict=True)),
                          dict.fromkeys(CHARTS, draw), headline, schedule, texts=layout)
