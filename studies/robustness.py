"""Run times, speeds, watts and the mix of tasks, each misjudged by as much as you like.

A schedule is decided with what is believed; it happens, is checked and is billed with what is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import NamedTuple, TypeVar

import numpy as np

from sched_lab.cluster import Cluster, State, empty_state
from sched_lab.far.execution import steps_of
from sched_lab.far.mig import Schedule, check_schedule
from sched_lab.fleet.ask.day import Day
from sched_lab.hadar.model import Allocation, Jobs, Scheduler
from sched_lab.hadar.model import State as RoundState
from sched_lab.hardware import CpuModel, GpuModel, Hardware, Watts
from sched_lab.lab.arrays import Floats
from sched_lab.lab.frames import InputError
from sched_lab.online.inflation import Run, in_file_order, play, run_of
from sched_lab.online.model import Placements, PowerSettings, check_placements, world_of
from sched_lab.online.policies import policy_of
from sched_lab.traces import Arrivals, Tasks, most_popular, task_classes

from .executed import as_executed, forecast, planned_s

__all__ = ['misjudged']


def misjudged(most: float, shape: int | tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Factors by which something is misjudged: log-uniform from 1 / most to most.

    Parameters
    ----------
    most : the largest, 1 or more; 1 for no error
    shape : of the factors
    rng : in the same state it gives the same errors, only larger, for a larger `most`

    Raises
    ------
    InputError : `most` is below 1, or no number
    """
    if not 1 <= most < np.inf:
        raise InputError(f"nothing can be misjudged by a factor of at most {most}",
                         mend="give 1 for no error, 2 for half to twice as much")
    factors: Floats = np.exp(np.log(most) * rng.uniform(-1, 1, shape))
    return factors


Entry = TypeVar("Entry", GpuModel, CpuModel)
GUESSED = "pwr-assumed"  # the source of watts that nobody has disclosed


def drawn_entry(entry: Entry, guessed: float, rng: np.random.Generator) -> Entry:
    """The same model with watts from its ranges, times a factor where there is only a guess."""
    factors = misjudged(guessed, 2, rng)
    drawn = rng.integers([entry.idle_w.low, entry.full_w.low],
                         [entry.idle_w.high, entry.full_w.high], endpoint=True)
    if entry.sources.get("idle_w") == GUESSED:
        drawn = np.rint(drawn * factors).astype(int)
    idle_w = int(drawn[0])
    full_w = max(int(drawn[1]), idle_w)
    return replace(entry, idle_w=Watts(idle_w, idle_w, idle_w),
                   full_w=Watts(full_w, full_w, full_w))


def true_watts(hardware: Hardware, guessed: float, rng: np.random.Generator) -> Hardware:
    """A catalogue that may be true.

    Parameters
    ----------
    hardware : with ranges
    guessed : largest factor by which watts are off that nobody has disclosed
    rng : where the random numbers come from
    """
    gpus = {name: drawn_entry(one, guessed, rng) for name, one in hardware.gpus.items()}
    cpus = {name: drawn_entry(one, 1.0, rng) for name, one in hardware.cpus.items()}
    return replace(hardware, gpus=gpus, cpus=cpus)


def settings_of(hardware: Hardware, models: Mapping[str, object]) -> PowerSettings:
    """Watts of these GPU models, and of the CPU packages, as the catalogue has them.

    The nodes of openb name no CPU: theirs is the E5-2682 v4, as in the paper.
    """
    found = {name: hardware.gpu(name) for name in models}
    gpu_w = {name: (one.idle_w.value, one.full_w.value) for name, one in found.items()}
    cpu_w = hardware.cpu_power_w()
    return PowerSettings("package", gpu_w, {**cpu_w, "": cpu_w["E5-2682 v4"]})


def blend(today: Tasks, other: Tasks, share: float, rng: np.random.Generator) -> Tasks:
    """As many tasks as today, a share of them drawn from another month.

    Parameters
    ----------
    today, other : traces
    share : from 0 to 1
    rng : where the random numbers come from
    """
    gone = round(share * len(today))
    kept = np.sort(rng.permutation(len(today))[gone:])
    come = rng.integers(len(other), size=gone)
    return Tasks(*(np.concatenate([getattr(today, one.name)[kept], getattr(other, one.name)[come]])
                   for one in fields(Tasks)))


class Inflation(NamedTuple):
    """Nodes, the trace that tasks come from, and which of them come when."""

    cluster: Cluster
    tasks: Tasks
    arrivals: Arrivals


NOMINAL = PowerSettings("package")


def placed_believing(work: Inflation, policy: str, believed: Tasks, seed: int) -> Run:
    """Place a workload with a policy that takes another trace for the target; checked.

    Parameters
    ----------
    work : what is true
    policy, seed : of the run
    believed : trace that the policy has its target workload from
    """
    rows = work.arrivals.task_row
    order = np.argsort(work.arrivals.node_rank, kind="stable")
    ranked = work.cluster.take(order)
    classes, class_of = task_classes(work.tasks)
    world = world_of(ranked, classes, most_popular(task_classes(believed)[0]), NOMINAL.of(ranked))
    memory_mib = work.tasks.memory_mib[rows]
    node, gpu_mask, curve = play(policy_of(policy), world, class_of[rows], memory_mib, seed)
    placements = Placements(rows, in_file_order(order, node), gpu_mask)
    check_placements(work.cluster, work.tasks, placements)
    return run_of(work.cluster, placements, curve, {"policy": policy, "seed": seed})


def state_at(work: Inflation, placements: Placements, x: float) -> State:
    """What is left of the cluster when so much demand has arrived, as a share of the capacity."""
    tasks = work.tasks
    arrived = np.cumsum(tasks.gpu_demand_milli[placements.task_row])
    count = int(np.searchsorted(arrived, x * work.cluster.gpu_capacity_milli, "right"))
    here = np.flatnonzero(placements.node[:count] >= 0)
    node = placements.node[here]
    row = placements.task_row[here]
    state = empty_state(work.cluster)
    bits = placements.gpu_mask[here, None] >> np.arange(state.gpu_left_milli.shape[1]) & 1
    np.subtract.at(state.cpu_left_milli, node, tasks.cpu_milli[row])
    np.subtract.at(state.memory_left_mib, node, tasks.memory_mib[row])
    np.subtract.at(state.gpu_left_milli, node, bits * tasks.gpu_milli[row, None])
    return state


class Misled:
    """A scheduler that believes other jobs than the true ones.

    Parameters
    ----------
    scheduler : who decides
    believed : what it takes the jobs for
    """

    def __init__(self, scheduler: Scheduler, believed: Jobs) -> None:
        self.scheduler = scheduler
        self.believed = believed

    def allocate(self, state: RoundState) -> Allocation:
        """Who runs where, by what is believed."""
        left = state.remaining * (self.believed.steps / state.jobs.steps)
        return self.scheduler.allocate(state._replace(jobs=self.believed, remaining=left))


def jobs_believed(jobs: Jobs, longer: float, faster: float, rng: np.random.Generator) -> Jobs:
    """Jobs with other lengths and other speeds.

    Parameters
    ----------
    jobs : as they are
    longer, faster : largest factors of errors in lengths, and in speeds on each type
    rng : where the random numbers come from
    """
    steps = jobs.steps * misjudged(longer, len(jobs.steps), rng)
    speed = misjudged(faster, jobs.rate.shape, rng)
    return jobs._replace(steps=steps, rate=jobs.rate * speed, spread_rate=jobs.spread_rate * speed)


def carried_out(plan: Schedule, times_s: Floats) -> Schedule:
    """What happens to a plan when tasks take other times than it says; checked.

    Parameters
    ----------
    plan : made with what was believed
    times_s : (tasks, sizes) true run times in s
    """
    steps = steps_of(plan, [""] * len(times_s))
    durations_s = planned_s(steps)
    for number, step in enumerate(steps):
        if step.kind == "run":
            durations_s[number] = times_s[step.task, plan.mig.tree.size_index[step.instance]]
    done = as_executed(plan, steps, *forecast(steps, durations_s))
    check_schedule(done, times_s)
    return done


def day_believed(day: Day, longer: float, faster: float, rng: np.random.Generator) -> Day:
    """The same day with jobs of other lengths and other speeds.

    Parameters
    ----------
    day : as it is
    longer, faster : as in `jobs_believed`
    rng : where the random numbers come from
    """
    training = day.training
    slow = misjudged(longer, (len(training.steps), 1, 1), rng)
    speed = misjudged(faster, (len(training.steps), 1, training.rate.shape[2]), rng) / slow
    return replace(day, training=training._replace(rate=training.rate * speed,
                                                   spread=training.spread * speed))


def billed_at(day: Day, hardware: Hardware) -> Day:
    """The same day, its nodes with the watts of another catalogue."""
    nodes = day.nodes
    models = nodes.cluster.gpu_model[nodes.cluster.num_gpus > 0].astype(str).tolist()
    watts = settings_of(hardware, dict.fromkeys(models))
    return replace(day, nodes=replace(nodes, power=watts._replace(model=nodes.power.model)))
