"""One table: what each scheduler does, who thought of it, how it is made, run and bounded."""

# A module, written by hand.

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..hardware import Hardware
from ..lab.frames import InputError
from ..lab.records import PolicyRecord, PolicyTable
from .baselines import Gavel, Tiresias, YarnCs
from .energy import EnergyFirst, GreenHadar, GreenPlanned, draw_of, watts_of
from .fork import Order
from .model import Scheduler, Workload, check_simulation, read_workload, toy_workload
from .planned import Planned
from .primal_dual import Hadar
from .simulation import RESTART_S, ROUND_S, HadarE, Simulation, check_lengths, run_copies, run_rounds

__all__ = ['POLICIES', 'policy_of', 'simulate']

GpuWatts = Callable[[], tuple[float, ...]]  # W that holding a GPU of each type adds
# length of a round, of a restart, and what GPUs draw if asked -> a fresh scheduler, for one run
Make = Callable[[float, float, GpuWatts], Scheduler | HadarE]

SULTANA = "Sultana et al. 2025"
NARAYANAN = "Narayanan et al. 2020"
ENGINE = ("round_s", "restart_s")  # told to a scheduler that plans with them


def by_rounds(kind: Callable[..., Scheduler], **options: Any) -> Make:
    """A scheduler that is told the length of a round and of a restart."""
    return lambda round_s, restart_s, _: kind(round_s=round_s, restart_s=restart_s, **options)


def copies(order: Order) -> Make:
    """Copies of jobs, in slots as long as a round."""
    return lambda round_s, restart_s, _: HadarE(order, slot_s=round_s, overhead_s=restart_s)


POLICIES: PolicyTable[Make] = PolicyTable(
    PolicyRecord("hadar", "maximises progress by prices, gangs of mixed GPU types included",
                 f"{SULTANA}, Algorithms 1 and 2", by_rounds(Hadar), options=ENGINE,
                 colour="#D55E00", labels=("Hadar", "Hadar effnorm")),
    PolicyRecord("hadar-inv", "as hadar, but maximises the sum of 1 / completion time",
                 f"{SULTANA}, Section III-A", by_rounds(Hadar, utility="inv"), options=ENGINE,
                 colour="#009E73", labels=("Hadar inv", "Hadar, 1/JCT")),
    PolicyRecord("hadar-sticky", "as hadar, but never moves a running job",
                 f"{SULTANA}, Section IV-B", by_rounds(Hadar, sticky=True), options=ENGINE,
                 colour="#A88A00", labels=("Hadar sticky",)),
    PolicyRecord("hadare", "trains copies of a job on nodes with one GPU, densest payoff first",
                 f"{SULTANA}, Section V", copies("density"), options=ENGINE, colour="#7A5BA8",
                 labels=("HadarE density",)),
    PolicyRecord("hadare-longest", "as hadare, but the longest job chooses first",
                 f"{SULTANA}, Section V", copies("longest"), options=ENGINE, colour="#BFA6DE",
                 labels=("HadarE longest",)),
    PolicyRecord("gavel-maxmin", "shares out types by a linear program, all jobs alike", NARAYANAN,
                 lambda *_: Gavel("maxmin"), colour="#0072B2",
                 labels=("Gavel", "Gavel max-min", "Gavel, max-min")),
    PolicyRecord("gavel-makespan", "as gavel-maxmin, so that the last job is done early",
                 NARAYANAN, lambda *_: Gavel("makespan"), colour="#56B4E9",
                 labels=("Gavel makespan",)),
    PolicyRecord("gavel-sum", "as gavel-maxmin, so that the total speed is largest", NARAYANAN,
                 lambda *_: Gavel("sum"), colour="#2B2B8C", labels=("Gavel max-sum",)),
    PolicyRecord("tiresias", "serves who has had least GPU time, blind to types", "Gu et al. 2019",
                 lambda *_: Tiresias(), colour="#CC79A7", labels=("Tiresias",)),
    PolicyRecord("yarn-cs", "a waiting line: first come, first served, to the end",
                 "Vavilapalli et al. 2013", lambda *_: YarnCs(), colour="#E69F00",
                 labels=("YARN-CS",)),
    PolicyRecord("planned", "ends near the bound, short jobs first", "ours, chapter 46",
                 by_rounds(Planned), options=ENGINE, colour="#7A2A0E", labels=("Planned",)),
    PolicyRecord("planned-area", "ends near the bound, jobs of little GPU time first",
                 "ours, chapter 46", by_rounds(Planned, by_area=True), options=ENGINE,
                 colour="#C99B84", labels=("Planned, by area",)),
    patterns={
        "hadar-green:PRICE": "as hadar, but a kWh above a job's least costs PRICE of its utility",
        "planned-green:SLACK": "as planned, but draws little and ends SLACK later, 0.1 for 10 %",
        "energy-first:RATIO": "runs a job where it draws at most RATIO times its least, small "
                              "energies first"},
)

MAKE_GREEN: Mapping[str, Callable[[float, float, float, GpuWatts], Scheduler]] = {
    "hadar-green": lambda price, round_s, restart_s, gpu_w: GreenHadar(
        round_s=round_s, restart_s=restart_s, gpu_w=gpu_w(), per_kwh=price),
    "planned-green": lambda slack, round_s, restart_s, gpu_w: GreenPlanned(
        round_s, restart_s, gpu_w=gpu_w(), slack=slack),
    "energy-first": lambda ratio, round_s, restart_s, gpu_w: EnergyFirst(gpu_w(), ratio)}


def record_of(name: str) -> PolicyRecord[Make]:
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
        make = partial(MAKE_GREEN[stem], float(text))
    except ValueError:
        raise InputError(f"{name!r} has no number", value=name,
                         mend=f"write {pattern}, a number for the capitals") from None
    make(ROUND_S, RESTART_S, tuple)  # refuses a number that makes no sense
    return PolicyRecord(name, POLICIES.patterns[pattern], "ours, chapter 46b", make, options=ENGINE)


def policy_of(name: str, round_s: float = ROUND_S, restart_s: float = RESTART_S,
              workload: Workload | None = None,
              hardware: Hardware | None = None) -> Scheduler | HadarE:
    """A fresh scheduler by its name in `POLICIES`.

    Parameters
    ----------
    name : a key of `POLICIES`
    round_s : s, time between two decisions
    restart_s : s, lost by a job whose GPUs change
    workload : whose GPU types a policy that prices energy has to know
    hardware : watts of the GPU types; the package's own catalogue if left out

    Raises
    ------
    InputError : if there is none of this name, or it prices energy and is told no workload
    """
    def gpu_w() -> tuple[float, ...]:
        """What holding a GPU of each type adds while nodes stay on."""
        if workload is None:
            raise InputError(f"policy {name!r} has to know what GPUs draw",
                             mend="give the workload")
        draw = draw_of(workload.cluster, watts_of(workload.type_name, hardware))
        return tuple(draw.busy_w.tolist())

    return record_of(name).scalar_form(float(round_s), float(restart_s), gpu_w)


def options_of(scheduler: object) -> dict[str, Any]:
    """The parameters of its constructor that a scheduler keeps under their names."""
    names = inspect.signature(type(scheduler)).parameters
    return {name: getattr(scheduler, name) for name in names if hasattr(scheduler, name)}


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
    if not workload.job_name:
        raise InputError("there is no job to schedule", mend="give one row per job")
    check_lengths(round_s, restart_s)
    record_of(policy)
    try:
        scheduler = policy_of(policy, round_s, restart_s, workload, hardware)
        if isinstance(scheduler, HadarE):
            return run_copies(workload, scheduler)
        return run_rounds(workload, scheduler, round_s=float(round_s), restart_s=float(restart_s))
    except InputError as error:  # by the names of policy and job
        said = re.sub(r"\bjob (\d+)\b", lambda found: f"job {workload.job_name[int(found[1])]!r}",
                      str(error))
        raise InputError(f"policy {policy!r}: {said}") from None


read = read_workload
toy = toy_workload
check = check_simulation
