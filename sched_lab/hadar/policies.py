"""One table: what each scheduler does, who thought of it, how it is made, run and bounded."""

# A module, written by hand.

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..hardware import Hardware
from ..lab.frames import InputError
from ..lab.records import PolicyRecord, PolicyTable
from .baselines import Gavel, Tiresias, YarnCs
from .bounds import bound
from .simulation import HadarE, run_copies
from .energy import draw_of, watts_of
from .energy import EnergyFirst, GreenHadar, GreenPlanned
from .model import Scheduler, Workload, check_simulation, read_workload, toy_workload
from .planned import Planned, mean_jct_bound_s
from .primal_dual import Hadar
from .simulation import RESTART_S, ROUND_S, Simulation, run_rounds

__all__ = ['POLICIES', 'policy_of', 'simulate']


@dataclass(frozen=True)
class Gangs:
    """How a scheduler of whole gangs is made, run and bounded.

    Parameters
    ----------
    make : round_s, restart_s -> a fresh scheduler, which serves one run
    """

    make: Callable[[float, float], Scheduler]

    def scheduler(self, workload: Workload, round_s: float, restart_s: float,
                  hardware: Hardware | None = None) -> Scheduler:
        """A fresh one for a workload; most need to know nothing of it."""
        return self.make(round_s, restart_s)

    def run(self, workload: Workload, round_s: float, restart_s: float,
            hardware: Hardware | None = None) -> Simulation:
        """Run all jobs to completion."""
        scheduler = self.scheduler(workload, round_s, restart_s, hardware)
        return run_rounds(workload, scheduler, round_s=round_s, restart_s=restart_s)

    def bound_s(self, workload: Workload) -> float:
        """What its TTD is never below."""
        return bound(workload)

    def mean_jct_bound_s(self, workload: Workload) -> float | None:
        """What its mean completion time is never below."""
        return mean_jct_bound_s(workload.cluster, workload.jobs)


@dataclass(frozen=True)
class Copies:
    """How forked jobs are made, run and bounded.

    Parameters
    ----------
    make : round_s, restart_s -> how they share the nodes
    """

    make: Callable[[float, float], HadarE]

    def scheduler(self, workload: Workload, round_s: float, restart_s: float,
                  hardware: Hardware | None = None) -> HadarE:
        """How the nodes are shared; it needs to know nothing of the workload."""
        return self.make(round_s, restart_s)

    def run(self, workload: Workload, round_s: float, restart_s: float,
            hardware: Hardware | None = None) -> Simulation:
        """Run all jobs to completion; every copy loses `restart_s` in every round."""
        return run_copies(workload, self.scheduler(workload, round_s, restart_s))

    def bound_s(self, workload: Workload) -> float:
        """What the TTD is never below, whoever shares out the nodes."""
        return bound(workload, is_forked=True)

    def mean_jct_bound_s(self, workload: Workload) -> float | None:
        """Nothing is known."""
        return None


Form = Gangs | Copies

SULTANA = "Sultana et al. 2025"
NARAYANAN = "Narayanan et al. 2020"
ENGINE = ("round_s", "restart_s")  # told to a scheduler that plans with them
OF_THE_PAPER: tuple[PolicyRecord[Form], ...] = (
    PolicyRecord(
        "hadar", "maximises progress by prices, gangs of mixed GPU types included",
        f"{SULTANA}, Algorithms 1 and 2",
        Gangs(lambda round_s, restart_s: Hadar(round_s=round_s, restart_s=restart_s)),
        options=ENGINE),
    PolicyRecord(
        "hadar-inv", "as hadar, but maximises the sum of 1 / completion time",
        f"{SULTANA}, Section III-A",
        Gangs(lambda round_s, restart_s: Hadar("inv", round_s=round_s, restart_s=restart_s)),
        options=ENGINE),
    PolicyRecord(
        "hadar-sticky", "as hadar, but never moves a running job", f"{SULTANA}, Section IV-B",
        Gangs(lambda round_s, restart_s: Hadar(sticky=True, round_s=round_s, restart_s=restart_s)),
        options=ENGINE),
    PolicyRecord(
        "hadare", "trains copies of a job on nodes with one GPU, densest payoff first",
        f"{SULTANA}, Section V",
        Copies(lambda round_s, restart_s: HadarE(slot_s=round_s, overhead_s=restart_s)),
        options=ENGINE),
    PolicyRecord(
        "hadare-longest", "as hadare, but the longest job chooses first", f"{SULTANA}, Section V",
        Copies(lambda round_s, restart_s: HadarE("longest", slot_s=round_s, overhead_s=restart_s)),
        options=ENGINE),
)

POLICIES: PolicyTable[Form] = PolicyTable(
    *OF_THE_PAPER,
    PolicyRecord(
        "gavel-maxmin", "shares out types by a linear program, all jobs alike", NARAYANAN,
        Gangs(lambda *_: Gavel("maxmin"))),
    PolicyRecord(
        "gavel-makespan", "as gavel-maxmin, so that the last job is done early", NARAYANAN,
        Gangs(lambda *_: Gavel("makespan"))),
    PolicyRecord(
        "gavel-sum", "as gavel-maxmin, so that the total speed is largest", NARAYANAN,
        Gangs(lambda *_: Gavel("sum"))),
    PolicyRecord(
        "tiresias", "serves who has had least GPU time, blind to types", "Gu et al. 2019",
        Gangs(lambda *_: Tiresias())),
    PolicyRecord(
        "yarn-cs", "a waiting line: first come, first served, to the end",
        "Vavilapalli et al. 2013", Gangs(lambda *_: YarnCs())),
    PolicyRecord(
        "planned", "ends near the bound, short jobs first", "ours, chapter 46",
        Gangs(lambda round_s, restart_s: Planned(round_s, restart_s)), options=ENGINE),
    PolicyRecord(
        "planned-area", "ends near the bound, jobs of little GPU time first", "ours, chapter 46",
        Gangs(lambda round_s, restart_s: Planned(round_s, restart_s, by_area=True)),
        options=ENGINE),
    patterns={
        "hadar-green:PRICE": "as hadar, but a kWh above a job's least costs PRICE of its utility",
        "planned-green:SLACK": "as planned, but draws little and ends SLACK later, 0.1 for 10 %",
        "energy-first:RATIO": "runs a job where it draws at most RATIO times its least, small "
                              "energies first"},
)

MakeGreen = Callable[[float, float, float, tuple[float, ...]], Scheduler]
MAKE_GREEN: dict[str, MakeGreen] = {
    "hadar-green": lambda price, round_s, restart_s, gpu_w: GreenHadar(
        round_s=round_s, restart_s=restart_s, gpu_w=gpu_w, per_kwh=price),
    "planned-green": lambda slack, round_s, restart_s, gpu_w: GreenPlanned(
        round_s, restart_s, gpu_w=gpu_w, slack=slack),
    "energy-first": lambda ratio, round_s, restart_s, gpu_w: EnergyFirst(gpu_w, ratio)}


@dataclass(frozen=True)
class GreenGangs(Gangs):
    """Gangs under a scheduler that knows watts.

    Parameters
    ----------
    make_green : number, round_s, restart_s, W of each type -> a fresh scheduler
    number : the one in its name
    """

    make_green: MakeGreen
    number: float

    def scheduler(self, workload: Workload, round_s: float, restart_s: float,
                  hardware: Hardware | None = None) -> Scheduler:
        """A fresh one, told what holding a GPU of each type adds while nodes stay on."""
        draw = draw_of(workload.cluster, watts_of(workload.type_name, hardware))
        return self.make_green(self.number, round_s, restart_s, tuple(draw.busy_w.tolist()))


def record_of(name: str) -> PolicyRecord[Form]:
    """Record of a policy, also of one with a number in its name.

    Raises
    ------
    InputError : if there is none of this name, or the number makes no sense
    """
    stem, _, text = name.partition(":")
    if stem not in MAKE_GREEN:
        return POLICIES.record(name)
    pattern = next(key for key in POLICIES.patterns if key.startswith(f"{stem}:"))
    try:
        number = float(text)
    except ValueError:
        raise InputError(f"{name!r} has no number", value=name,
                         mend=f"write {pattern}, a number for the capitals") from None
    make = MAKE_GREEN[stem]
    make(number, ROUND_S, RESTART_S, ())  # refuses a number that makes no sense
    form = GreenGangs(lambda round_s, restart_s: make(number, round_s, restart_s, ()), make, number)
    return PolicyRecord(name, POLICIES.patterns[pattern], "ours, chapter 46b", form, options=ENGINE)


def policy_of(name: str, round_s: float = ROUND_S, restart_s: float = RESTART_S,
              workload: Workload | None = None) -> Scheduler | HadarE:
    """A fresh scheduler by its name in `POLICIES`.

    Parameters
    ----------
    name : a key of `POLICIES`
    round_s : s, time between two decisions
    restart_s : s, lost by a job whose GPUs change
    workload : whose GPU types a policy that prices energy has to know

    Raises
    ------
    InputError : if there is none of this name, or it prices energy and is told no workload
    """
    form = record_of(name).scalar_form
    if workload is not None:
        return form.scheduler(workload, round_s, restart_s)
    if isinstance(form, GreenGangs):
        raise InputError(f"policy {name!r} has to know what GPUs draw", mend="give the workload")
    return form.make(round_s, restart_s)


def options_of(scheduler: object) -> dict[str, Any]:
    """The parameters of its constructor that a scheduler keeps under their names."""
    names = inspect.signature(type(scheduler)).parameters
    return {name: getattr(scheduler, name) for name in names if hasattr(scheduler, name)}


def _check_question(workload: Workload, round_s: float, restart_s: float) -> None:
    """Refuse what no scheduler could do."""
    if not workload.job_name:
        raise InputError("there is no job to schedule", mend="give one row per job")
    if not (0 < round_s < np.inf and 0 <= restart_s < round_s):
        raise InputError(f"a round of {round_s:g} s and a restart of {restart_s:g} s",
                         mend="give a round above 0, and a restart from 0 to less than a round")


def _by_name(error: InputError, policy: str, workload: Workload) -> InputError:
    """The same error with the policy, and jobs called by their names."""
    said = re.sub(r"\bjob (\d+)\b", lambda found: f"job {workload.job_name[int(found[1])]!r}",
                  str(error))
    return InputError(f"policy {policy!r}: {said}")


def simulate(workload: Workload, policy: str = "hadar", *, round_s: float = ROUND_S,
             restart_s: float = RESTART_S, hardware: Hardware | None = None) -> Simulation:
    """Run all jobs to completion under a policy, as gangs or as copies.

    Parameters
    ----------
    workload : jobs and nodes
    policy : a key of `POLICIES`
    round_s : s, time between two decisions
    restart_s : s, lost by a job whose GPUs change; by every copy in every round
    hardware : watts of the GPU types, for a policy that prices energy; the package's own catalogue
        if left out

    Raises
    ------
    InputError : if there is no job or no such policy, the lengths make no sense, or the policy
        cannot run a job
    """
    _check_question(workload, round_s, restart_s)
    form = record_of(policy).scalar_form
    try:
        return form.run(workload, float(round_s), float(restart_s), hardware)
    except InputError as error:
        raise _by_name(error, policy, workload) from None


read = read_workload
toy = toy_workload
check = check_simulation
