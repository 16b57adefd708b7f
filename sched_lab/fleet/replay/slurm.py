"""The queue of Slurm: jobs in order of their priority at that time, each planned at its earliest start beside those before it."""

# A module, written by hand.

from __future__ import annotations

import re
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...lab.arrays import Floats, Integers, Truths
from ...lab.frames import InputError, read_input
from ...lab.jit import by_reference, njit
from ...online.model import World, lacking
from ..read.slurm import seconds_of_limit, settings_in
from ..read.tables import Source
from .case import (
    Desk,
    TimedTasks,
    begin,
    change,
    close_and_open,
    copied,
    decide_now,
    expect_again,
    first_gpus,
    forget_stopped,
    hide,
    note_occupant,
    place_in,
    take,
)
from .fair_share import FairShare, Share, charge, decay, fair_share_of, rank_users, read_shares
from .limits import BY_JOBS, Ceilings, Limits, count, hold_reason, read_limits
from .problem import Problem, Schedule

__all__ = ['SlurmQueue', 'read_slurm_queue']


OWN_NODES = "slurm"  # name of the policy that leaves a job the nodes that Slurm would choose


class SlurmQueue(NamedTuple):
    """How Slurm orders and plans its queue; without a file of its own, with Slurm's defaults.

    Parameters
    ----------
    age_weight, max_age_s : PriorityWeightAge, and after how long it is reached, PriorityMaxAge
    size_weight, favors_small : PriorityWeightJobSize, PriorityFavorSmall
    partition_weight, partition_factor : PriorityWeightPartition, and PriorityJobFactor by partition
    has_weights : whether priorities are made of weights; else they are those of the record
    interval_s, max_job_test : bf_interval and bf_max_job_test: how often and how deep it plans
    window_s, resolution_s : bf_window and bf_resolution: how far ahead, and in which steps
    window_linear_s : bf_window_linear: by how much the window of ends that are looked at together
        grows; 0 for twofold
    queue_depth, head_delay_s : default_queue_depth, and the lesser of batch_sched_delay and
        sched_interval: how many jobs are looked at when others have come or ended, and how late
    test_s : how long a pass takes for each job that it looks at (`sdiag`: mean cycle by mean depth)
    report_s : how long after its end Slurm hears that a job is over
    own_nodes : whether a job has the nodes that Slurm would choose; else where a policy puts it
    unmodelled : settings that would change what Slurm does, and nothing here
    calc_period_s : PriorityCalcPeriod, how often priorities are worked out; 0 for at every pass
    fair_share_weight, half_life_s : PriorityWeightFairshare and PriorityDecayHalfLife
    shares : who shares with whom; empty without fair share
    billing : TRESBillingWeights by partition, for a CPU, a MiB and a GPU; without them CPUs are billed
    qos_weight, limits : PriorityWeightQOS, and who may have how much at once; empty without limits
    """

    age_weight: float = 0.0
    max_age_s: float = 7 * 86400.0
    size_weight: float = 0.0
    favors_small: bool = False
    partition_weight: float = 0.0
    partition_factor: tuple[tuple[str, float], ...] = ()
    has_weights: bool = False
    interval_s: float = 30.0
    max_job_test: int = 500
    window_s: float = 86400.0
    resolution_s: float = 60.0
    window_linear_s: float = 0.0
    queue_depth: int = 100
    head_delay_s: float = 3.0
    test_s: float = 0.001
    report_s: float = 0.06
    own_nodes: bool = False
    unmodelled: tuple[str, ...] = ()
    calc_period_s: float = 0.0
    fair_share_weight: float = 0.0
    half_life_s: float = 7 * 86400.0
    shares: tuple[Share, ...] = ()
    billing: tuple[tuple[str, tuple[float, float, float]], ...] = ()
    qos_weight: float = 0.0
    limits: Limits = Limits()

    @property
    def words(self) -> str:
        """What the order and the plan rest on, in a sentence."""
        users = sum(bool(one.user) for one in self.shares)
        order = "of the record's priorities" if not self.has_weights else (
            f"of priorities with a weight of {self.age_weight:g} for age, {self.size_weight:g} for size, "
            + (f"{self.fair_share_weight:g} for fair share ({users} users, who have used nothing when the replay begins), "
               if self.shares else "") + (f"{self.qos_weight:g} for QOS, " if self.qos_weight else "")
            + f"and {self.partition_weight:g} for partition, all else equal")
        return (f"jobs wait in the order {order}, and are planned as Slurm does, every "
                f"{self.interval_s:g} s if something has changed, {self.max_job_test} at most; who is planned "
                "for later has whole nodes, and equal parts of a job are on different ones"
                + (". Of its settings these count nothing here: " + ", ".join(self.unmodelled)
                   if self.unmodelled else ""))


def number_of(settings: dict[str, str], key: str, otherwise: float, file: str | Path) -> float:
    """A number of a configuration.

    Raises
    ------
    InputError : it is none
    """
    written = settings.get(key.lower(), "")
    if not written:
        return otherwise
    if not re.fullmatch(r"\d{1,12}(\.\d{1,6})?", written):
        raise InputError(f"{key} = {written!r:.60} is no number", file=file, value=written,
                         mend=f"write {key}={otherwise:g}, say")
    return float(written)


IDLE = re.compile(r"(0( sec)?|no|none|\(null\)|\w+/(none|default))?", re.IGNORECASE)  # as if it were not set
UNMODELLED = (
    "PriorityWeightFairshare", "PriorityWeightQOS", "PriorityWeightTRES", "PriorityWeightAssoc", "PriorityFlags",
    "PriorityUsageResetPeriod",
    "PreemptType", "Licenses", "CompleteWait", "TopologyPlugin", "AccountingStorageEnforce")
UNMODELLED_PARAMETERS = (
    "assoc_limit_stop", "bf_busy_nodes", "bf_licenses", "bf_job_part_count_reserve", "bf_max_job_assoc",
    "bf_max_job_part", "bf_max_job_start", "bf_max_job_user", "bf_max_job_user_part", "bf_min_age_reserve",
    "bf_min_prio_reserve", "bf_one_resv_per_job", "bf_running_job_reserve", "defer", "defer_batch", "max_rpc_cnt",
    "partition_job_depth", "sched_max_job_start")
UNMODELLED_LINES = (("partitionname", "PriorityTier"), ("partitionname", "QOS"), ("partitionname", "OverSubscribe"),
                    ("partitionname", "LLN"), ("nodename", "Weight"))


def unmodelled_in(settings: dict[str, str], lines: list[dict[str, str]]) -> tuple[str, ...]:
    """Settings, as written, that would change what Slurm does and change nothing here."""
    said = [f"{name}={settings[name.lower()]}" for name in UNMODELLED
            if not IDLE.fullmatch(settings.get(name.lower(), ""))]
    for part in settings.get("schedulerparameters", "").split(","):
        name, equal, value = part.strip().partition("=")
        if name.lower() in UNMODELLED_PARAMETERS and not (equal and IDLE.fullmatch(value)):
            said.append(part.strip())
    for kind, name in UNMODELLED_LINES:
        values = {line.get(name.lower(), "") for line in lines if kind in line}
        if name not in ("PriorityTier", "Weight") or len(values) > 1:  # a single tier or weight orders nothing
            said += [f"{name}={value}" for value in sorted(values) if not IDLE.fullmatch(value)]
    if "builtin" in settings.get("schedulertype", ""):
        said.append(f"SchedulerType={settings['schedulertype']}")
    return tuple(said)


BILLED = {"cpu": 0, "mem": 1, "gres/gpu": 2}
BILLED_UNITS_MIB = {"": 1, "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


def billing_in(written: str, file: str | Path) -> tuple[float, float, float]:
    """What a CPU, a MiB and a GPU are billed by TRESBillingWeights, such as CPU=1.0,Mem=0.25G,GRES/gpu=2.0.

    Raises
    ------
    InputError : it bills something else, or not by numbers
    """
    weights = [0.0, 0.0, 0.0]
    for part in written.strip('"').split(","):
        said = re.fullmatch(r"(cpu|mem|gres/gpu)=(\d{1,9}(?:\.\d{1,9})?)([KMGT]?)", part.strip(), re.IGNORECASE)
        if not said or (said[3] and said[1].lower() != "mem"):
            raise InputError(f"TRESBillingWeights bills {part.strip()!r:.60}, which is not modelled", file=file, value=part,
                             mend="bill CPU, Mem and GRES/gpu by numbers, such as CPU=1.0,Mem=0.25G,GRES/gpu=2.0")
        weights[BILLED[said[1].lower()]] = float(said[2]) / BILLED_UNITS_MIB[said[3].upper()]
    return weights[0], weights[1], weights[2]


def read_slurm_queue(path: str | Path, shares: str | Path | None = None, limits: str | Path | None = None) -> SlurmQueue:
    """Read the queue of a `slurm.conf`, or of the text of `scontrol show config`.

    Without slurmdbd Slurm ignores the weight of age (`priority_multifactor.c`: "PriorityWeightAge
    can only be used with SlurmDBD, ignoring"). TRES and preemption count nothing here, and are named if
    they are set; so is fair share without the file of shares, and QOS without that of limits.

    Parameters
    ----------
    path, shares, limits : the file; what `sshare -a -P` prints; and what `read_limits` reads

    Raises
    ------
    InputError : it is no such file, or a number in it is none; there is no weight for the shares, or neither a weight
        of QOS nor a limit that Slurm enforces
    """
    settings, lines = settings_in(Source(str(path), read_input(path).content).text())
    if not settings.keys() & {"clustername", "schedulertype", "prioritytype", "schedulerparameters"}:
        raise InputError("there is no ClusterName, PriorityType or SchedulerParameters in it", file=path,
                         mend="give a slurm.conf, or the text of scontrol show config")
    own = dict(part.split("=", 1) for part in settings.get("schedulerparameters", "").lower().split(",")
               if "=" in part)
    max_age_s = seconds_of_limit(settings.get("prioritymaxage", "")) or SlurmQueue().max_age_s
    has_dbd = "slurmdbd" in settings.get("accountingstoragetype", "").lower()
    is_weighed = "basic" not in settings.get("prioritytype", "").lower()
    factors = {part["partitionname"]: number_of(part, "PriorityJobFactor", 1, path)
               for part in lines if "partitionname" in part}
    usual = SlurmQueue()
    fair_share_weight = number_of(settings, "PriorityWeightFairshare", 0, path) if has_dbd and is_weighed else 0.0
    if shares and not fair_share_weight:
        raise InputError("shares count nothing without a PriorityWeightFairshare and slurmdbd", file=path,
                         mend="leave the shares out")
    above = {one.account: rows[one.above].account for rows in (read_shares(shares) if shares else (),) for one in rows
             if one.above >= 0 and not one.user}
    bounds, uncounted = read_limits(limits, settings.get("clustername", ""), above) if limits else (Limits(), ())
    is_enforced = bool({"limits", "safe", "all"} & {*settings.get("accountingstorageenforce", "").lower().split(",")})
    qos_weight = number_of(settings, "PriorityWeightQOS", 0, path) if limits and is_weighed else 0.0
    if limits and not is_enforced and not qos_weight:
        raise InputError("limits count nothing without AccountingStorageEnforce=limits or a PriorityWeightQOS", file=path,
                         mend="leave the limits out")
    if is_enforced:
        bounds = bounds._replace(of_partition=tuple(
            (part["partitionname"], part["qos"]) for part in lines if "partitionname" in part and part.get("qos")))
    else:
        bounds = bounds._replace(qualities=tuple(one._replace(group=(), per_account=(), per_user=())
                                                 for one in bounds.qualities), associations=())
    modelled = ("PriorityWeightFairshare=",) * bool(shares) + (
        "PriorityWeightQOS=", "AccountingStorageEnforce=", "QOS=") * bool(limits)
    unmodelled = (*(said for said in unmodelled_in(settings, lines) if not said.startswith(modelled)), *uncounted)
    half_life = settings.get("prioritydecayhalflife", "")
    return SlurmQueue(
        number_of(settings, "PriorityWeightAge", 0, path) if has_dbd and is_weighed else 0.0, max_age_s,
        number_of(settings, "PriorityWeightJobSize", 0, path) if is_weighed else 0.0,
        settings.get("priorityfavorsmall", "").lower() in ("yes", "1", "true"),
        number_of(settings, "PriorityWeightPartition", 0, path) if is_weighed else 0.0,
        tuple(factors.items()), True,
        max(number_of(own, "bf_interval", usual.interval_s, path), 1),
        int(number_of(own, "bf_max_job_test", usual.max_job_test, path)),
        60 * number_of(own, "bf_window", usual.window_s / 60, path),
        max(number_of(own, "bf_resolution", usual.resolution_s, path), 1),
        number_of(own, "bf_window_linear", 0, path),
        int(number_of(own, "default_queue_depth", usual.queue_depth, path)),
        min(number_of(own, "batch_sched_delay", usual.head_delay_s, path), number_of(own, "sched_interval", 60, path)),
        unmodelled=unmodelled, calc_period_s=seconds_of_limit(settings.get("prioritycalcperiod", "")) or 300.0,
        fair_share_weight=fair_share_weight if shares else 0.0,
        half_life_s=0.0 if half_life == "0" else seconds_of_limit(half_life) or usual.half_life_s,
        shares=read_shares(shares) if shares else (),
        billing=tuple((part["partitionname"], billing_in(part["tresbillingweights"], path))
                      for part in lines if "partitionname" in part and part.get("tresbillingweights")),
        qos_weight=qos_weight, limits=bounds)


def requeues_in(path: str | Path) -> bool:
    """Whether a job that a node stops waits again (`JobRequeue`, 1 if it is not set); the file as `read_slurm_queue`."""
    settings, _ = settings_in(Source(str(path), read_input(path).content).text())
    return settings.get("jobrequeue", "1") != "0"


@by_reference
class Order(NamedTuple):
    """What orders jobs.

    Parameters
    ----------
    base : (tasks,) priority of a job but for its age and fair share; 0 for other tasks
    queue : (tasks,) number of the partition
    ask : (tasks,) number of what the task asks for
    fair : who has used how much of what is shared
    """

    base: Floats
    queue: Integers
    ask: Integers
    fair: FairShare


def order_of(problem: Problem, timed: TimedTasks, slurm: SlurmQueue) -> Order:
    """What orders the jobs of a problem (`priority_multifactor.c`, `set_priority_factors`)."""
    queue, names = np.unique(problem.queue.astype(str), return_inverse=True)[::-1]
    asks = np.unique(np.column_stack([timed.asks.task, timed.asks.memory_mib]), axis=0,
                     return_inverse=True)[1].ravel()
    bills = dict(slurm.billing)
    weights = np.array([bills.get(name, (1.0, 0.0, 0.0)) for name in names.tolist()]).reshape(-1, 3)[queue]
    tasks = problem.tasks
    fair = fair_share_of(
        slurm.shares, problem.user, problem.account,
        (weights * np.column_stack([tasks.cpu_milli / 1000, tasks.memory_mib, tasks.num_gpus])).sum(axis=1),
        slurm.half_life_s)
    if not slurm.has_weights:
        return Order(problem.priority.astype(float), queue, asks, fair)
    job = np.arange(len(queue)) if problem.job is None else np.unique(
        problem.job, return_inverse=True)[1].ravel()
    cpus = np.bincount(job, problem.tasks.cpu_milli)[job] / max(problem.cluster.cpu_milli.sum(), 1)
    nodes = np.bincount(job)[job] / len(problem.cluster)
    size = np.clip((nodes + cpus) / 2, 0, 1)
    factor = dict(slurm.partition_factor)
    most = max([1.0, *factor.values()])
    share = np.array([factor.get(name, 1.0) / most for name in names.tolist()])[queue]
    of_qos = [slurm.limits.factor(name) for name in ([""] * len(queue) if problem.qos is None else problem.qos)]
    return Order(slurm.size_weight * (1 - size if slurm.favors_small else size) + slurm.partition_weight * share
                 + slurm.qos_weight * np.array(of_qos), queue, asks, fair)


@by_reference
class Planner(NamedTuple):
    """What a pass over the queue knows.

    Parameters
    ----------
    desk, timed, order, schedule : what decides; the tasks, what orders them, and who is where
    ceilings : what holds them back
    slurm, zero_s : its numbers; second 0 in seconds since 1970
    room_s, room_by : (asks, nodes) when the last of those who run ends before a node has room, and who that
        is; -inf if it has room now, inf if never
    seen : (asks, nodes) which state of a node was looked at
    num_hidden : (nodes,) states that differ only in what a policy sees
    is_shut : (nodes,) nodes that a job cannot have in its time
    will_have : (nodes,) nodes that have room when others have ended
    later : the world by then, for the nodes that are looked at
    came, num_came : (tasks,) and (1,) how many had come to wait before a job did, and have by now
    priority : (tasks,) of those who wait, as it was worked out last
    """

    desk: Desk
    timed: TimedTasks
    order: Order
    ceilings: Ceilings
    schedule: Schedule
    slurm: SlurmQueue
    zero_s: float
    room_s: Floats
    room_by: Integers
    seen: Integers
    num_hidden: Integers
    is_shut: Truths
    will_have: Truths
    later: World
    came: Integers
    num_came: Integers
    priority: Floats


def planner_of(desk: Desk, timed: TimedTasks, order: Order, ceilings: Ceilings, schedule: Schedule,
               slurm: SlurmQueue, zero_s: float) -> Planner:
    """A planner that knows nothing yet."""
    num_nodes = len(desk.world.gpu_model)
    num_asks = int(order.ask.max(initial=-1)) + 1
    floats: dict[str, Any] = {name: float(getattr(slurm, name)) for name, usual in SlurmQueue()._asdict().items()
                             if isinstance(usual, float)}
    numbers = slurm._replace(  # of one type for all files
        partition_factor=(), unmodelled=(), shares=(), billing=(), limits=Limits(), **floats)
    return Planner(
        desk, timed, order, ceilings, schedule, numbers, zero_s, np.full((num_asks, num_nodes), np.inf),
        np.full((num_asks, num_nodes), -1), np.full((num_asks, num_nodes), -1), np.zeros(num_nodes, np.int64),
        np.zeros(num_nodes, np.bool_), np.zeros(num_nodes, np.bool_), copied(desk.world),
        np.zeros(len(order.ask), np.int64), np.zeros(1, np.int64), np.zeros(len(order.ask)))


NOW = (-np.inf, -1)  # nobody has to end


@njit(cache=True)
def begin_later(plan: Planner, node: int) -> None:
    """Begin what a node has free later with what it has now."""
    now, later = plan.desk.world, plan.later
    later.state.cpu_left_milli[node] = now.state.cpu_left_milli[node]
    later.state.memory_left_mib[node] = now.state.memory_left_mib[node]
    later.state.gpu_left_milli[node] = now.state.gpu_left_milli[node]
    later.limits.num[node] = now.limits.num[node]


@njit(cache=True)
def fits_later(plan: Planner, task: int, node: int) -> bool:
    """Whether a node has room for a task later."""
    asks = plan.timed.asks
    return bool(lacking(plan.later, asks.task[task], asks.memory_mib[task], node) == 0)


@njit(cache=True)
def room_on(plan: Planner, task: int, node: int, running: list[tuple[float, int]]) -> tuple[float, int]:
    """After which end a node has room for a task, if nobody comes."""
    begin_later(plan, node)
    if fits_later(plan, task, node):
        return NOW
    for end_s, other in running:
        if plan.schedule.node[other] == node:
            take(plan.later, plan.timed.asks, other, node, plan.schedule.gpu_mask[other], -1)
            if fits_later(plan, task, node):
                return end_s, other
    return np.inf, -1


@njit(cache=True)
def look(plan: Planner, task: int, running: list[tuple[float, int]]) -> None:
    """Look after which end each node has room for a task, where it has changed."""
    version = plan.desk.memory.version
    ask = plan.order.ask[task]
    for node in range(len(version)):
        state = version[node] - plan.num_hidden[node]
        if plan.seen[ask, node] != state:
            plan.seen[ask, node] = state
            plan.room_s[ask, node], plan.room_by[ask, node] = room_on(plan, task, node, running)


@njit(cache=True)
def choose_nodes(has_room: Truths, num: int, chosen: list[int]) -> bool:
    """Add some nodes with room to those chosen, as `_eval_nodes` of select/cons_tres does.

    Of the sets of neighbours with room it takes the smallest that is large enough, else the largest
    and then more.
    """
    used = ~has_room
    while num > 0:
        best = 0
        best_size = 0
        node = 0
        while node < len(used):
            first = node
            while node < len(used) and not used[node]:
                node += 1
            size = node - first
            is_enough = size >= num
            if size > 0 and (best_size == 0 or (is_enough and (best_size < num or size < best_size))
                             or (not is_enough and best_size < size)):
                best = first
                best_size = size
            node += 1
        if best_size == 0:
            return False
        for one in range(best, best + min(best_size, num)):
            chosen.append(one)
        used[best:best + best_size] = True
        num -= best_size
    return True


@njit(cache=True)
def like_parts(plan: Planner, part: int) -> tuple[int, int]:
    """How many parts of a job from this one on ask for the same, and the next that does not, or -1."""
    num = 1
    other = plan.timed.next_part[part]
    while other >= 0 and plan.order.ask[other] == plan.order.ask[part]:
        num += 1
        other = plan.timed.next_part[other]
    return num, other


@njit(cache=True)
def show_later(plan: Planner, node: int, running: list[tuple[float, int]], until: tuple[float, int]) -> None:
    """Show what a node has free when those up to an end have ended."""
    begin_later(plan, node)
    for one in running:
        if one <= until and plan.schedule.node[one[1]] == node:
            take(plan.later, plan.timed.asks, one[1], node, plan.schedule.gpu_mask[one[1]], -1)


@njit(cache=True)
def nodes_after(plan: Planner, job: int, running: list[tuple[float, int]], until: tuple[float, int],
                chosen: list[int]) -> bool:
    """Nodes for the parts of a job when those up to an end have ended; parts that ask for the same are apart."""
    chosen.clear()
    part = job
    while part >= 0:
        look(plan, part, running)
        part = like_parts(plan, part)[1]
    part = job
    while part >= 0:
        num, other = like_parts(plan, part)
        ask = plan.order.ask[part]
        for node in range(len(plan.is_shut)):
            plan.will_have[node] = not plan.is_shut[node] and (
                (plan.room_s[ask, node], plan.room_by[ask, node]) <= until)
        for node in chosen:  # where others of its parts are
            plan.will_have[node] = fits_later(plan, part, node)
        before = chosen[:]
        if not choose_nodes(plan.will_have, num, chosen):
            return False
        for node in chosen[len(before):] if other >= 0 else before[:0]:  # the others see what these take
            if node not in before:
                show_later(plan, node, running, until)
            kind = plan.timed.asks.task[part]
            gpu_mask = first_gpus(plan.later, kind, node, plan.later.state.gpu_left_milli[node])
            take(plan.later, plan.timed.asks, part, node, gpu_mask, 1)
        part = other
    return True


@njit(cache=True)
def earliest(plan: Planner, job: int, running: list[tuple[float, int]], now_s: float,
             chosen: list[int]) -> float:
    """When a job can start if all that run go on for their walltimes, as `_will_run_test` guesses it.

    Those that run are taken out in the order of their ends, all within a window together; the
    window doubles. What is planned for later counts nothing but for the nodes that are shut.
    """
    if nodes_after(plan, job, running, NOW, chosen):
        return now_s
    first_s = np.inf  # before, no node has room for the first part
    for node in range(len(plan.is_shut)):
        if not plan.is_shut[node]:
            first_s = min(first_s, plan.room_s[plan.order.ask[job], node])
    if first_s == np.inf:
        return np.inf
    window_s = 30.0
    until_s = -1.0
    last = NOW
    place = 0
    while place < len(running):
        while place < len(running):
            end_s, other = running[place]
            place += 1
            if end_s == np.inf:
                return np.inf
            if plan.is_shut[plan.schedule.node[other]]:
                continue
            if until_s < 0:
                until_s = end_s + 30 - (end_s + plan.zero_s) % 30
            last = (end_s, other)
            if place < len(running) and running[place][0] > until_s + window_s:
                break
        if last[1] < 0:
            return np.inf
        while True:
            window_s += plan.slurm.window_linear_s if plan.slurm.window_linear_s > 0 else window_s
            if place == len(running) or not running[place][0] > until_s + window_s:
                break
            if running[place][0] == np.inf:
                break
        if first_s <= last[0] and nodes_after(plan, job, running, last, chosen):
            if last[0] > now_s:
                return last[0]
            return max(last[0] + 30, now_s + 1)
    return np.inf


@njit(cache=True)
def set_aside(aside: list[tuple[float, float, int, bool]], begin_s: float, end_s: float, node: int) -> None:
    """Set a node aside for a span, and note of each of its spans whether another one goes on at its end."""
    goes_on = False
    for n in range(len(aside)):
        since_s, until_s, other, _ = aside[n]
        if other == node:
            goes_on |= since_s <= end_s < until_s
            if begin_s <= until_s < end_s:
                aside[n] = (since_s, until_s, other, True)
    aside.append((begin_s, end_s, node, goes_on))


@njit(cache=True)
def shut_nodes(plan: Planner, aside: list[tuple[float, float, int, bool]], start_s: float,
               until_s: float) -> float:
    """Shut the nodes that others are to have in a span; say when one of them is free again, or inf."""
    plan.is_shut[:] = False
    later_s = np.inf
    for begin_s, end_s, node, goes_on in aside:
        if end_s > start_s and begin_s <= until_s:
            plan.is_shut[node] = True
            if not goes_on:
                later_s = min(later_s, end_s)
    return later_s


@njit(cache=True)
def is_taken(aside: list[tuple[float, float, int, bool]], chosen: list[int], start_s: float,
             until_s: float) -> bool:
    """Whether others are to have one of these nodes in a span."""
    for begin_s, end_s, node, _ in aside:
        if end_s > start_s and begin_s < until_s and node in chosen:
            return True
    return False


@njit(cache=True)
def plan_start(plan: Planner, aside: list[tuple[float, float, int, bool]], job: int,
               running: list[tuple[float, int]], now_s: float, chosen: list[int]) -> float:
    """Earliest start of a job on whole nodes that nobody before it is to have (`_attempt_backfill`).

    Parameters
    ----------
    plan, job, running, now_s, chosen : as `earliest`
    aside : whole nodes set aside for later, as `set_aside` adds them; those of the job are added
    """
    length_s = plan.timed.walltime_s[job]
    step_s = plan.slurm.resolution_s
    from_s = now_s
    while from_s < now_s + plan.slurm.window_s:
        later_s = shut_nodes(plan, aside, from_s, from_s + length_s)
        start_s = max(earliest(plan, job, running, now_s, chosen), from_s)
        if start_s == now_s:
            return now_s
        if start_s < np.inf and start_s <= later_s:
            begin_s = np.floor(start_s / step_s) * step_s
            until_s = np.floor((start_s + length_s + step_s - 1) / step_s) * step_s
            if not is_taken(aside, chosen, begin_s, until_s):
                if start_s <= now_s + plan.slurm.window_s:
                    for node in chosen:
                        set_aside(aside, begin_s, until_s, node)
                return start_s
            later_s = start_s + step_s if start_s == from_s else start_s
        from_s = later_s
    return np.inf


@njit(cache=True)
def work_out(plan: Planner, job: int, now_s: float) -> None:
    """Work out the priority of a job as it is now (`_get_priority_internal`)."""
    pace = plan.slurm
    fair = plan.order.fair
    age_s = min(now_s - plan.timed.submit_s[job], pace.max_age_s)
    own = plan.order.base[job] + pace.age_weight * age_s / pace.max_age_s
    if fair.leaf[job] >= 0:
        own += pace.fair_share_weight * fair.factor[fair.leaf[job]]
    plan.priority[job] = np.floor(own)


@njit(cache=True)
def charge_running(plan: Planner, running: list[tuple[float, int]], until_s: float) -> None:
    """Charge the users of those who run for what they have used."""
    schedule = plan.schedule
    for _, task in running:
        charge(plan.order.fair, task, schedule.start_s[task], min(until_s, schedule.end_s[task]))


@njit(cache=True)
def rank_jobs(plan: Planner, waiting: list[int], now_s: float) -> None:
    """Put those who wait in order of their priority; of the same, in the order in which they came.

    They are in the order of before, so few have to move.
    """
    for n in range(len(waiting)):
        job = waiting[n]
        if plan.slurm.calc_period_s == 0:
            work_out(plan, job, now_s)
        own = plan.priority[job]
        at = n
        while at > 0 and (plan.priority[waiting[at - 1]] < own or (
                plan.priority[waiting[at - 1]] == own and plan.came[waiting[at - 1]] > plan.came[job])):
            waiting[at] = waiting[at - 1]
            at -= 1
        if at < n:
            waiting[at] = job


@njit(cache=True)
def join(plan: Planner, waiting: list[int], job: int, now_s: float) -> None:
    """Let a job wait."""
    work_out(plan, job, now_s)
    plan.came[job] = plan.num_came[0]
    plan.num_came[0] += 1
    waiting.append(job)


@njit(cache=True)
def start_now(kernels: Any, plan: Planner, job: int, chosen: list[int], now_s: float,
              ends: list[tuple[float, int]], running: list[tuple[float, int]]) -> None:
    """Start all parts of a job on nodes that are not shut, where the policy puts them.

    Parts that ask for the same are on different nodes. If the policy leaves no room for the last
    ones, they go where the plan had them.

    Parameters
    ----------
    kernels, plan : the policy's scores; the plan
    job, chosen : its first part, and the nodes of its parts by the plan
    now_s, ends, running : the time; heap of (end, task), and (end by walltime, task) in order
    """
    timed, schedule = plan.timed, plan.schedule
    hidden = [node for node in range(len(plan.is_shut)) if plan.is_shut[node]]
    for node in hidden:
        hide(plan.desk, node, 1)
    parts = [job]
    parts.clear()
    part = job
    while part >= 0 and not plan.slurm.own_nodes:
        place = decide_now(kernels, plan.desk, timed, part, now_s)
        if place[0] < 0:
            break
        parts.append(part)
        schedule.node[part], schedule.gpu_mask[part] = place
        schedule.start_s[part] = now_s
        change(plan.desk, timed, part, schedule, 1, now_s)
        following = timed.next_part[part]
        if following >= 0 and plan.order.ask[following] == plan.order.ask[part]:
            hidden.append(place[0])
            hide(plan.desk, place[0], 1)
        part = following
    for other in parts:
        change(plan.desk, timed, other, schedule, -1, now_s)
    for node in hidden:
        hide(plan.desk, node, -1)
        plan.num_hidden[node] += 2
    is_placed = part < 0
    turn = 0
    part = job
    while part >= 0:
        if not is_placed:
            node = schedule.node[part] = chosen[turn]
            world = plan.desk.world
            schedule.gpu_mask[part] = first_gpus(world, timed.asks.task[part], node, world.state.gpu_left_milli[node])
        begin(kernels, plan.desk, timed, part, now_s, ends, schedule)
        if schedule.end_s[part] > now_s:
            until = (now_s + timed.walltime_s[part], part)
            running.insert(place_in(running, until), until)
            count(plan.ceilings, part, 1)
        turn += 1
        part = timed.next_part[part]


@njit(cache=True)
def serve_heads(kernels: Any, plan: Planner, waiting: list[int], now_s: float,
                ends: list[tuple[float, int]], running: list[tuple[float, int]]) -> bool:
    """Start from the head of each partition's queue, as `schedule` of slurmctld does at every event.

    Whom a limit holds is passed over.

    Returns
    -------
    whether any started
    """
    plan.is_shut[:] = False
    chosen = [0]
    is_held = np.zeros(plan.order.queue.max() + 1, np.bool_)
    has_started = False
    for job in waiting[:plan.slurm.queue_depth]:
        if is_held[plan.order.queue[job]] or hold_reason(plan.ceilings, job) > 0:
            continue
        if nodes_after(plan, job, running, NOW, chosen):
            start_now(kernels, plan, job, chosen, now_s, ends, running)
            has_started = True
        else:
            is_held[plan.order.queue[job]] = True
    return has_started


@njit(cache=True)
def may_start(plan: Planner, job: int, running: list[tuple[float, int]], now_s: float, free_until_s: Floats,
              widest_s: Floats) -> bool:
    """Whether a node has room now for the first part of a job, and is not set aside before it would end.

    Parameters
    ----------
    plan, job, running, now_s : as `earliest`
    free_until_s : (nodes,) from when on each node is set aside
    widest_s : (asks,) the latest of these among the nodes with room now, NaN if not known
    """
    ask = plan.order.ask[job]
    if np.isnan(widest_s[ask]):
        look(plan, job, running)
        widest_s[ask] = -np.inf
        for node in range(len(free_until_s)):
            if plan.room_s[ask, node] == -np.inf:
                widest_s[ask] = max(widest_s[ask], free_until_s[node])
    return bool(now_s + plan.timed.walltime_s[job] < widest_s[ask] or widest_s[ask] == np.inf)


@njit(cache=True)
def serve_all(kernels: Any, plan: Planner, waiting: list[int], now_s: float,
              ends: list[tuple[float, int]], running: list[tuple[float, int]]) -> bool:
    """Plan who waits, in order, and start who can start now; as `serve_heads`.

    Behind the last who may start now, plans would change nothing, and are not made. Whom a limit holds has no nodes
    kept free; who is held by the number of jobs is not tested, and does not count as one of bf_max_job_test.
    """
    aside = [(0.0, 0.0, 0, False)]
    aside.clear()
    chosen = [0]
    free_until_s = np.full(len(plan.is_shut), np.inf)
    widest_s = np.full(len(plan.room_s), np.nan)
    line = [job for job in waiting if hold_reason(plan.ceilings, job) != BY_JOBS][:plan.slurm.max_job_test]
    last = len(line) - 1
    has_started = False
    for turn in range(last + 1):
        while last >= turn and (hold_reason(plan.ceilings, line[last]) > 0 or not may_start(
                plan, line[last], running, now_s, free_until_s, widest_s)):
            last -= 1
        if last < turn:
            break
        num_before = len(aside)
        job = line[turn]
        if hold_reason(plan.ceilings, job) > 0:
            continue
        is_now = plan_start(plan, aside, job, running, now_s, chosen) == now_s
        if is_now:
            start_now(kernels, plan, job, chosen, now_s, ends, running)
            has_started = True
        for begin_s, end_s, node, _ in aside[num_before:]:
            if end_s > now_s:
                free_until_s[node] = min(free_until_s[node], begin_s)
        if is_now or len(aside) > num_before:
            widest_s[:] = np.nan
    return has_started


@njit(cache=True)
def never_apart(plan: Planner) -> Truths:
    """Jobs of which the parts do not fit the empty cluster on different nodes, (tasks,)."""
    is_never = np.zeros(len(plan.order.base), np.bool_)
    chosen = [0]
    nobody = [NOW]
    nobody.clear()
    plan.is_shut[:] = False
    for job in plan.timed.arrival:
        if plan.timed.next_part[job] >= 0:
            is_never[job] = not nodes_after(plan, job, nobody, NOW, chosen)
    return is_never


@njit(cache=True)
def replay_slurm(kernels: Any, plan: Planner) -> list[tuple[int, int, int, float, float]]:
    """Replay with Slurm's queue.

    A while after a job has come or ended the heads of the queues may start (`_slurmctld_background`).
    Slurm looks whether anything has changed when the interval since the end of the last pass is over,
    and then every second (`backfill_agent`); if so, it passes over the whole queue.

    Parameters
    ----------
    kernels, plan : the policy's scores; the plan, and in its schedule those that run already

    Returns
    -------
    runs that outages stopped, as `note_stop` adds them
    """
    timed, schedule = plan.timed, plan.schedule
    lost = [(0, 0, 0, 0.0, 0.0)]
    lost.clear()
    nodes = [0]
    back = [0]
    done = 0
    num_closings = len(timed.closings.at_s)
    ends = [(np.inf, -1)]
    running = [(np.inf, -1)]
    running.clear()
    for task in range(len(schedule.node)):
        if schedule.node[task] >= 0:
            until = (schedule.start_s[task] + timed.walltime_s[task], task)
            running.insert(place_in(running, until), until)
            heappush(ends, (schedule.end_s[task], task))
            count(plan.ceilings, task, 1)
            note_occupant(plan.desk, timed, task, schedule, 1, schedule.start_s[task])
    is_never = np.zeros(len(schedule.node), np.bool_)
    if len(running) == 0:
        is_never = never_apart(plan)
    waiting = [0]
    waiting.clear()
    arrived = 0
    period_s = plan.slurm.calc_period_s if plan.slurm.calc_period_s > 0 else np.inf
    worked_out_s = 0.0
    rank_users(plan.order.fair)
    look_s = 0.0
    pass_s = np.inf
    looked_s = -np.inf
    heads_s = np.inf
    while arrived < len(timed.arrival) or done < num_closings or min(ends[0][0], pass_s, heads_s) < np.inf:
        now_s = min(ends[0][0] + plan.slurm.report_s, pass_s, heads_s)
        if done < num_closings:
            now_s = min(now_s, timed.closings.at_s[done])
        if arrived < len(timed.arrival):
            now_s = min(now_s, timed.submit_s[timed.arrival[arrived]])
        while worked_out_s + period_s <= now_s:
            worked_out_s += period_s
            decay(plan.order.fair, period_s)
            charge_running(plan, running, worked_out_s)
            rank_users(plan.order.fair)
            for job in waiting:
                work_out(plan, job, worked_out_s)
        has_changed = False
        while ends[0][0] + plan.slurm.report_s <= now_s:
            _, task = heappop(ends)
            charge(plan.order.fair, task, schedule.start_s[task], schedule.end_s[task])
            count(plan.ceilings, task, -1)
            change(plan.desk, timed, task, schedule, -1, now_s)
            running.pop(place_in(running, (schedule.start_s[task] + timed.walltime_s[task], task)))
            forget_stopped(ends, schedule)
            has_changed = True
        nodes.clear()
        back.clear()
        while done < num_closings and timed.closings.at_s[done] <= now_s:
            charge_running(plan, running, now_s)
            close_and_open(plan.desk, timed, done, now_s, nodes, back, lost, running, schedule)
            forget_stopped(ends, schedule)
            done += 1
            has_changed = True
        if len(back) > 0 or len(nodes) > 0:  # some may have been stopped
            plan.ceilings.used[:] = 0
            for _, task in running:
                count(plan.ceilings, task, 1)
        for job in back:
            join(plan, waiting, job, now_s)
        while arrived < len(timed.arrival) and timed.submit_s[timed.arrival[arrived]] <= now_s:
            if not is_never[timed.arrival[arrived]]:
                join(plan, waiting, timed.arrival[arrived], now_s)
            arrived += 1
            has_changed = True
        if has_changed and pass_s == np.inf:
            pass_s = look_s + max(np.ceil(now_s - look_s), 0)
        if has_changed and heads_s == np.inf:
            heads_s = max(np.floor(now_s) + 1, looked_s + plan.slurm.head_delay_s)
        if now_s < min(pass_s, heads_s):
            continue
        expect_again(plan.desk, schedule, now_s)
        rank_jobs(plan, waiting, now_s)
        if now_s == pass_s:
            has_started = serve_all(kernels, plan, waiting, now_s, ends, running)
            look_s = now_s + plan.slurm.interval_s + plan.slurm.test_s * min(len(waiting), plan.slurm.max_job_test)
            pass_s = look_s if has_started else np.inf
        else:
            has_started = serve_heads(kernels, plan, waiting, now_s, ends, running)
            looked_s = now_s
            heads_s = np.inf
        if has_started:
            left = [job for job in waiting if schedule.node[job] < 0]
            waiting.clear()
            waiting.extend(left)
    return lost
