"""From an instance file to a decision or a whole day, its bill, and a chart."""

# A module, written by hand.

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from ..lab.frames import InputError, MissingPackage
from ..lab.plots import gantt_chart
from ..lab.reports import ENERGY_MEANINGS, energy_sentence
from ..lab.reports import Report as PlainReport
from ..bill import Tariff, tariff_of
from .simulation import lower_bound_eur
from .energy import bill_of_day, with_prices
from .exact import solve_exact
from .greedy import DEFAULTS, SearchOptions
from .machines import counted_twice_eur_per_s, fleet_at
from .model import HISTORY, SECONDS_PER_HOUR, Assignment, Instance
from .policies import POLICIES, decide_now, submitted
from .proxy import PERIOD_S, RHO, cost_eur_per_s, gpus_in_use, paper_objective
from .simulation import INTERVAL, JOB_COLOURS, LOSSES, Simulation, bill, gantt_frame, simulate

if TYPE_CHECKING:
    import altair as alt

__all__ = ['Report', 'report_of']

EXACT_JOBS = 12  # up to so many, every decision is compared with the best one
LEAST_EUR = 1e-9  # of a bound that says anything: less is nothing to the solver


def interruptions(instance: Instance, assignment: Assignment, loss: str) -> dict[str, Any]:
    """What a decision does to jobs that run now, and how many started epochs that costs."""
    present = instance.present
    if present is None:
        return {}
    runs = present.node >= 0
    is_kept = (runs & (present.node == assignment.node)
               & (present.configuration == assignment.configuration))
    is_stopped = runs & (assignment.node < 0)
    loses = {"none": False, "moved": runs & ~is_kept, "always": runs}[loss]
    left = (1 - present.done) * instance.epochs
    lost = np.where(loses, np.ceil(left - 1e-9) - left, 0.0)
    return {"kept": int(is_kept.sum()), "moved": int((runs & ~is_kept & ~is_stopped).sum()),
            "stopped": int(is_stopped.sum()), "lost_epochs": round(float(lost.sum()), 9)}


def gap_of(instance: Instance, objective_eur: float, time_limit_s: float) -> dict[str, Any]:
    """How far a decision is from the best one, or from the best bound within the time limit.

    Nothing is known without the solver.
    """
    _, jobs = submitted(instance)
    try:
        best = solve_exact(fleet_at(instance, instance.now_s), jobs, instance.now_s,
                           time_limit_s=time_limit_s)
    except MissingPackage as error:
        warnings.warn(f"no distance from the best: {error}, and give --force", stacklevel=3)
        return {}
    gap: dict[str, Any] = {"bound_eur": best.bound, "is_bound_reached": best.is_proved}
    if best.bound > LEAST_EUR:
        gap |= {"gap_percent": 100 * (objective_eur / best.bound - 1)}
    return gap


def run_frame(simulation: Simulation) -> pd.DataFrame:
    """One row per uninterrupted run, with names: job, node, gpu_type, gpus, start_s, end_s."""
    instance = simulation.instance
    history = simulation.history
    fleet = instance.fleet
    site = instance.site
    configuration = history["configuration"].to_numpy(np.int64)
    machine = instance.node_name if site is None else [
        site.machine_name[number] for number in site.machine]
    return pd.DataFrame({
        "job": [instance.job_name[job] for job in history["job"]],
        "node": [machine[node] for node in history["node"]],
        "gpu_type": [instance.type_name[kind] for kind in fleet.configuration_type[configuration]],
        "gpus": fleet.configuration_gpus[configuration],
        "start_s": history["start_s"], "end_s": history["end_s"]})


def headline_of(summary: Mapping[str, Any]) -> str:
    """Say in a few words what summary.json says."""
    if "total_eur" in summary:
        return (f"{summary['total_eur']:.2f} EUR, of it {summary['penalty_eur']:.2f} EUR "
                f"penalties; no scheduler pays less than {summary['lower_bound_eur']:.2f} EUR")
    return (f"{summary['running']} jobs run, {summary['waiting']} wait, "
            f"Eq. 1 {summary['objective_eur']:.2f} EUR")


MEANINGS = ENERGY_MEANINGS | {
    "gantt": "Every GPU over time, and the job that runs on it.",
    "schedule.csv": "every uninterrupted run of a job",
    "start_s": "s, when it begins", "end_s": "s, when it ends",
    "objective_eur": "EUR, Eq. 1 of the decision",
    "bound_eur": "EUR, what no decision can go below",
    "energy_eur_per_h": "EUR/h, what the nodes draw while this runs",
    "running": "jobs that run", "waiting": "jobs that wait",
    "not_submitted": "jobs that had not come yet",
    "total_eur": "EUR, energy and penalties", "energy_eur": "EUR",
    "energy_kwh": "energy of the machines, cooling included, kWh",
    "empty_eur": "EUR, of it for machines that are empty",
    "kept": "running jobs that stay where they are", "moved": "running jobs that go elsewhere",
    "stopped": "running jobs that have to wait", "lost_epochs": "started epochs that are lost",
    "penalty_eur": "EUR, for jobs that end late",
    "lower_bound_eur": "EUR, no scheduler pays less",
    "makespan_s": "s, until the last job ends", "late_jobs": "jobs that end late",
    "mean_gap_percent": "%, how much better a decision could be by Eq. 1, at most",
    "largest_gap_percent": "%, the same of the worst decision",
    "decisions_not_proved": "decisions that may not be the best by Eq. 1",
    "decisions_out_of_time": "decisions that the clock stopped: they may differ elsewhere"}


def saving_of(paid: float, least: float) -> str:
    """How much less any other way can cost, in words."""
    if least >= paid * (1 - 1e-6):
        return "nothing can be saved"
    return f"at most {100 * (1 - least / paid):.1f} % can be saved"


@dataclass(frozen=True)
class Report(PlainReport):
    """What was decided or simulated, and what it costs.

    Parameters
    ----------
    simulation : a day, or one decision as if it were carried out to the end
    """

    simulation: Simulation

    question: ClassVar[str] = "Which job runs where, and what does it cost?"
    meanings: ClassVar[Mapping[str, str]] = MEANINGS

    def answer(self) -> list[str]:
        """What it costs, how much of that could be saved at most, and what it draws."""
        said = self.summary
        if "total_eur" in said:
            sentences = [
                f"Under the policy {said['policy']} the jobs cost {said['total_eur']:.2f} EUR: "
                f"{said['energy_eur']:.2f} EUR for energy and {said['penalty_eur']:.2f} EUR in "
                f"penalties, with {said['late_jobs']} of {len(said['jobs'])} jobs late.",
                f"No scheduler pays less than {said['lower_bound_eur']:.2f} EUR for them, so "
                f"{saving_of(said['total_eur'], said['lower_bound_eur'])}."]
        else:
            sentences = [
                f"The policy {said['policy']} lets {said['running']} of "
                f"{said['running'] + said['waiting']} submitted jobs run now, at "
                f"{said['energy_eur_per_h']:.2f} EUR an hour for energy; what it minimises "
                f"(Eq. 1) is {said['objective_eur']:.2f} EUR."]
            if "bound_eur" in said:
                sentences.append(f"No decision goes below {said['bound_eur']:.2f} EUR, so "
                                 f"{saving_of(said['objective_eur'], said['bound_eur'])}.")
        return [*sentences, energy_sentence(said)] if "energy_kwh" in said else sentences


TABLES = ("schedule.csv",)
CHARTS = ("gantt.svg",)


def _as_carried_out(instance: Instance, policy: str, assignment: Assignment) -> Simulation:
    """A decision, as if every job it starts ran to its end."""
    job = np.flatnonzero(assignment.node >= 0)
    node = assignment.node[job]
    configuration = assignment.configuration[job]
    end_s = np.full(len(instance.job_name), np.nan)
    end_s[job] = instance.now_s + instance.jobs.times_s[job, configuration]
    columns = job, node, configuration, np.full(len(job), instance.now_s), end_s[job]
    history = pd.DataFrame(dict(zip(HISTORY, columns, strict=True)))
    return Simulation(instance, policy, end_s, history, pd.DataFrame(columns=list(INTERVAL)))


def _day_costs(simulation: Simulation) -> dict[str, Any]:
    """The bill of a simulated day, in total and by job."""
    bound_eur = lower_bound_eur(simulation.instance)
    total_eur = simulation.total_eur
    jobs = bill(simulation)
    costs = {"total_eur": total_eur, "energy_eur": simulation.energy_eur,
             "penalty_eur": simulation.penalty_eur, "lower_bound_eur": bound_eur}
    if bound_eur > LEAST_EUR:
        costs |= {"above_bound_percent": 100 * (total_eur / bound_eur - 1)}
    if simulation.instance.site is not None:
        costs |= {"empty_eur": simulation.empty_eur}
    late = int((jobs["tardiness_s"] > 0).sum())
    costs |= {"makespan_s": simulation.makespan_s, "late_jobs": late,
              "decisions": len(simulation.intervals)}
    if simulation.proofs:
        proofs = pd.DataFrame(simulation.proofs)
        costs |= {"mean_gap_percent": 100 * float(proofs["gap"].to_numpy().mean()),
                  "largest_gap_percent": 100 * float(proofs["gap"].max()),
                  "decisions_not_proved": int((~proofs["is_proved"]).sum()),
                  "decisions_out_of_time": int(proofs["is_out_of_time"].sum())}
    return costs | {"jobs": jobs.to_dict("records")}


def _decided(instance: Instance, policy: str, how: SearchOptions,
             loss: str) -> tuple[Simulation, dict[str, Any]]:
    """One decision as if it were carried out, and what it costs while it runs.

    With few jobs, or if the policy searches for a time, also how far it is from the best decision.
    """
    decision = decide_now(instance, policy, how)
    fleet = fleet_at(instance, instance.now_s)
    here, jobs = submitted(instance)
    node, configuration = decision.node[here], decision.configuration[here]
    used = gpus_in_use(fleet, node, configuration)
    objective_eur = float(paper_objective(fleet, jobs, instance.now_s, node, configuration, RHO,
                                          PERIOD_S))
    costs = {
        "objective_eur": objective_eur,
        "energy_eur_per_h": SECONDS_PER_HOUR * (
            float(cost_eur_per_s(fleet, used))
            - counted_twice_eur_per_s(instance, used, instance.now_s)),
        "running": int((node >= 0).sum()), "waiting": int((node < 0).sum()),
        "not_submitted": len(instance.job_name) - len(here)}
    if len(here) <= EXACT_JOBS or "time_limit_s" in POLICIES.record(policy).options:
        costs |= gap_of(instance, objective_eur, how.time_limit_s)
    costs |= interruptions(instance, decision, loss)
    return _as_carried_out(instance, policy, decision), costs


def report_of(instance: Instance, policy: str = "rg", *, is_simulated: bool = False,
              period_s: float = np.inf, loss: str = "none", how: SearchOptions = DEFAULTS,
              tariff: Tariff | None = None) -> Report:
    """Decide once at the present time, or simulate from first submission to last completion.

    Parameters
    ----------
    instance : the problem and its present time
    policy : a name of `POLICIES`
    is_simulated : a whole day, not one decision
    period_s, loss : see `simulate`; of a decision, what it costs the jobs that run
    how : options of the search
    tariff : price and intensity of energy; without, the price table's and a default

    Raises
    ------
    InputError : if there is no job, no such policy or loss, or a number is out of range
    """
    if not instance.job_name:
        raise InputError("there is no job to schedule", mend="give the instance one job or more")
    if loss not in LOSSES:
        raise InputError(f"unknown loss {loss!r}", mend=f"give one of {', '.join(LOSSES)}")
    instance = with_prices(instance, tariff)
    if is_simulated:
        done = simulate(instance, policy, period_s=period_s, loss=loss, how=how)
        costs = _day_costs(done)
    else:
        done, costs = _decided(instance, policy, how, loss)
    summary = {"policy": policy, "is_simulated": is_simulated, "seed": how.seed}
    if len(done.history):
        begin_s, end_s = float(done.history["start_s"].min()), float(done.history["end_s"].max())
        horizon = (min(begin_s, done.horizon[0]), done.horizon[1]) if is_simulated else (
            begin_s, end_s)
        summary |= bill_of_day(done, tariff or tariff_of(), horizon).summary()
    summary |= costs
    headline = headline_of(summary)

    def draw() -> alt.TopLevelMixin:
        frame, lanes = gantt_frame(done)
        return gantt_chart(frame, lanes, title=f"{policy}: {headline}", colours=JOB_COLOURS)

    return Report(summary, {"schedule.csv": run_frame(done).round(9)}, {"gantt.svg": draw},
                  headline, done)
