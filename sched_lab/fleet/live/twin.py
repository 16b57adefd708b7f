"""A twin plays the cluster forward from where it stands under several policies, and says which one an operator would like best."""

# A module, written by hand.

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...cluster import MAX_GPUS_PER_NODE, State
from ...lab.arrays import Floats, Integers
from ...lab.frames import InputError
from ...lab.jit import njit, quiet
from ...online.inflation import ArrivingTasks, weighing_of
from ...online.model import Policy, PowerSettings, World
from ...online.policies import policy_of
from ...online.score_index import note_change
from ...power import GPU_POWER_W, cpu_power_milliwatt, gpu_power_milliwatt
from ..replay.events import END as ENDS
from ..replay.events import (
    START,
    Case,
    Desk,
    Happenings,
    Queue,
    TimedTasks,
    desk_of,
    hold,
    in_use,
    kernels_of,
    nothing_scheduled,
    replay_events,
    timed_tasks,
)
from ..replay.meter import measure
from ..replay.problem import (
    Problem,
    Schedule,
    no_slots,
    place_running,
    running_at,
    world_of_problem,
)
from .bridge import Bridge, Call, Steps
from .core import (
    Asked,
    Bound,
    Decision,
    Event,
    LiveCluster,
    LiveNode,
    LivePod,
    LiveSettings,
    NodeSeen,
    PodGone,
    PodSeen,
    PolicyChosen,
    Share,
    Wish,
    WorldCopy,
    key_of,
    mask_of,
    refusal_of,
    wish_of,
)
from .journal import Journal

__all__ = ['Twin', 'LiveTwin']


class Pods(NamedTuple):
    """Pods that are expected to come, or to go.

    Parameters
    ----------
    task : (pods,) class, a row of `World.demand`
    memory_mib : (pods,) what is asked for besides
    submit_s : (pods,) seconds from now until it comes; 0 if it waits already
    duration_s : (pods,) how long it runs from its start, or from now on if it runs; inf if unknown
    node, gpu_mask : (pods,) where it runs; -1 and 0 if it is still to come
    """

    task: Integers
    memory_mib: Integers
    submit_s: Floats
    duration_s: Floats
    node: Integers
    gpu_mask: Integers


def coming(task: Integers, memory_mib: Integers, submit_s: Floats,
           duration_s: Floats | float = np.inf) -> Pods:
    """Pods that are to come; without durations they stay."""
    count = len(task)
    lasting_s = np.broadcast_to(np.asarray(duration_s, float), count).copy()
    return Pods(task, memory_mib, np.asarray(submit_s, float), lasting_s, np.full(count, -1),
                np.zeros(count, np.int64))


def together(*parts: Pods) -> Pods:
    """All pods of several tables."""
    return Pods(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def as_before(past: Pods, seed: int | None = None) -> Pods:
    """Pods that come as the given ones came, or drawn from them with a seed, at their moments.

    Parameters
    ----------
    past : those that came last, `submit_s` in order on any clock
    seed : of the draws; None for the same pods
    """
    submit_s = past.submit_s - past.submit_s.min(initial=np.inf)
    rows = np.arange(len(submit_s))
    if seed is not None and len(rows):
        rows = np.random.default_rng(seed).integers(len(rows), size=len(rows))
    return coming(past.task[rows], past.memory_mib[rows], submit_s, past.duration_s[rows])


def memoryless(pods: Pods, mean_s: float, seed: int) -> Pods:
    """The same pods; how long each runs is drawn from an exponential law. Without a mean: for ever.

    Parameters
    ----------
    pods, seed : whose durations are drawn, and with which seed
    mean_s : mean of the durations seen; nan if none has been seen
    """
    draws = np.random.default_rng(seed).exponential(size=len(pods.task))
    return pods._replace(duration_s=np.where(np.isnan(mean_s), np.inf, draws * mean_s))


@njit(cache=True)
def is_as_shown(world: World, state: State, residents: Integers, node: int) -> bool:
    """Whether a node of a world is as it should be."""
    own = world.state
    is_same = bool(own.cpu_left_milli[node] == state.cpu_left_milli[node]
                   and own.memory_left_mib[node] == state.memory_left_mib[node])
    for gpu in range(state.gpu_left_milli.shape[1]):
        is_same &= own.gpu_left_milli[node, gpu] == state.gpu_left_milli[node, gpu]
    for kind in range(residents.shape[1]):
        is_same &= world.residents[node, kind] == residents[node, kind]
    return is_same


@njit(cache=True)
def show(desk: Desk, state: State, residents: Integers, held: Integers) -> None:
    """Let a desk see a state of the cluster; only nodes that differ are noted as changed.

    Parameters
    ----------
    desk : changed
    state, residents : what is left on the nodes, and who is there
    held : (`RESOURCES`,) what is in use
    """
    world = desk.world
    desk.in_use[:] = held
    for node in range(len(state.cpu_left_milli)):
        if not is_as_shown(world, state, residents, node):
            world.state.cpu_left_milli[node] = state.cpu_left_milli[node]
            world.state.memory_left_mib[node] = state.memory_left_mib[node]
            world.state.gpu_left_milli[node] = state.gpu_left_milli[node]
            world.residents[node] = residents[node]
            note_change(desk.by_score, node)
            desk.memory.version[node] += 1


def fixed(world: World) -> tuple[Any, ...]:
    """All of a world that a desk takes for granted."""
    return (world.gpu_model, world.cpu_model, world.demand, world.power, world.target,
            world.residents.shape[1])


def is_same(one: Any, other: Any) -> bool:
    """Whether two nested tuples of arrays are equal."""
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(np.array_equal(one, other))


def copied(part: Any) -> Any:
    """A copy of nested tuples of arrays."""
    if isinstance(part, tuple):
        parts = map(copied, part)
        return type(part)(*parts) if hasattr(part, "_fields") else tuple(parts)
    return part.copy() if isinstance(part, np.ndarray) else part


def with_own_state(world: World) -> World:
    """The same world, to be changed without harm."""
    return world._replace(state=copied(world.state), residents=world.residents.copy(),
                          bids=copied(world.bids))


@dataclass(frozen=True)
class Script:
    """What is to be played.

    Parameters
    ----------
    pods : who comes and who goes; ends after the horizon are inf
    dice : (pods,) a large random number of each, for policies that draw lots
    until_s : the horizon
    """

    pods: Pods
    dice: Integers
    until_s: float

    def schedule(self) -> Schedule:
        """Who runs at the beginning."""
        runs = self.pods.node >= 0
        return nothing_scheduled(len(runs))._replace(
            node=self.pods.node.copy(), gpu_mask=self.pods.gpu_mask.copy(),
            start_s=np.where(runs, -np.inf, np.nan),
            end_s=np.where(runs, self.pods.duration_s, np.nan))

    def case(self, policy: Policy, world: World, empty: State) -> Case:
        """The same for one policy."""
        pods = self.pods
        asks = ArrivingTasks(pods.task, pods.memory_mib, self.dice)
        weighing = weighing_of(policy, world._replace(state=empty))
        return Case(policy, world, empty, weighing, asks, pods.submit_s, pods.duration_s,
                    np.zeros(len(pods.task), np.int64), pods.node < 0, self.schedule(),
                    no_slots(world))


def script_of(pods: Pods, until_s: float | None, seed: int) -> Script:
    """Script of some pods; without a horizon, until the last one comes.

    Raises
    ------
    InputError : a time is below 0 or no number
    """
    if not (pods.submit_s >= 0).all() or not (pods.duration_s >= 0).all():
        raise InputError("a pod comes or goes before now, or at no time",
                         mend="give seconds from now, 0 or more, and inf for an unknown duration")
    last_s = float(np.max(pods.submit_s, initial=0.0, where=pods.node < 0))
    horizon_s = last_s if until_s is None else until_s
    stays = pods.submit_s + pods.duration_s > horizon_s
    stream = np.random.default_rng(np.random.SeedSequence(seed).spawn(3)[2])
    return Script(pods._replace(duration_s=np.where(stays, np.inf, pods.duration_s)),
                  stream.integers(2**62, size=len(stays)), horizon_s)


class Lane(NamedTuple):
    """One policy of a twin: what decides, and its scores in compiled form."""

    desk: Desk
    kernels: tuple[Any, ...]


def lane_of(case: Case) -> Lane:
    """A lane that knows nothing yet."""
    desk = desk_of(case)
    return Lane(desk, kernels_of(case, desk.by_score))


def run(lane: Lane, timed: TimedTasks, queue: Queue, schedule: Schedule) -> Schedule:
    """Play a script under one policy, from the state that its desk sees; complete its schedule."""
    with quiet():
        replay_events(lane.kernels, lane.desk, timed, copied(queue), True, None, schedule)
    return schedule


@njit(cache=True)
def node_milliwatt(world: World, node: int) -> int:
    """Power of a node; below 0 nothing is left."""
    gpu_left = np.maximum(0, world.state.gpu_left_milli[node])
    cpu_left = max(0, world.state.cpu_left_milli[node])
    return (cpu_power_milliwatt(world.power, node, cpu_left)
            + gpu_power_milliwatt(world.power, node, gpu_left))


@njit(cache=True)
def mean_milliwatt(world: World, asks: ArrivingTasks, happenings: Happenings, schedule: Schedule,
                   until_s: float) -> float:
    """Mean power until the horizon; if that is now, the power once all has happened.

    Parameters
    ----------
    world : as it is now; changed
    asks, happenings, schedule : what pods ask for, starts and ends in order, and where
    until_s : the horizon
    """
    now_mw = 0
    for node in range(len(world.gpu_model)):
        now_mw += node_milliwatt(world, node)
    energy_mj = 0.0
    now_s = 0.0
    for n in range(len(happenings.task)):
        task = happenings.task[n]
        node = schedule.node[task]
        energy_mj += now_mw * (happenings.time_s[n] - now_s)
        now_s = happenings.time_s[n]
        now_mw -= node_milliwatt(world, node)
        hold(world, asks, task, schedule, 1 if happenings.what[n] == START else -1)
        now_mw += node_milliwatt(world, node)
    energy_mj += now_mw * (until_s - now_s)
    return energy_mj / until_s if until_s > 0 else float(now_mw)


def starts_and_ends(schedule: Schedule, until_s: float) -> Happenings:
    """Starts and ends within the horizon, in order; a pod that ends at once holds nothing."""
    holds = (schedule.node >= 0) & (schedule.end_s > schedule.start_s)
    starts = np.flatnonzero(holds & (schedule.start_s >= 0) & (schedule.start_s <= until_s))
    ends = np.flatnonzero(holds & (schedule.end_s <= until_s))
    time_s = np.concatenate([schedule.end_s[ends], schedule.start_s[starts]])
    what = np.repeat([ENDS, START], [len(ends), len(starts)])
    order = np.lexsort((what, time_s))
    return Happenings(time_s[order], what[order], np.concatenate([ends, starts])[order])


def forecast(world: World, script: Script, schedule: Schedule) -> dict[str, float]:
    """What an operator may care for: mean watts, pods served and not served, mean wait.

    Parameters
    ----------
    world : as it is now; changed
    script, schedule : what was played, and what became of it
    """
    pods = script.pods
    asks = ArrivingTasks(pods.task, pods.memory_mib, script.dice)
    comes = pods.node < 0
    has_started = comes & (schedule.start_s <= script.until_s)
    start_s = np.where(has_started, schedule.start_s, script.until_s)
    waits_s = (start_s - pods.submit_s)[comes]
    happenings = starts_and_ends(schedule, script.until_s)
    watts = mean_milliwatt(world, asks, happenings, schedule, script.until_s) / 1000
    return {"watts": watts, "served": int(has_started.sum()),
            "failed": int(comes.sum() - has_started.sum()),
            "mean_wait_s": float(waits_s.mean()) if len(waits_s) else 0.0}


OBJECTIVES = {"watts": "watts", "served": "failed", "waiting": "mean_wait_s"}


def losses(rows: Sequence[Mapping[str, Any]], objective: str, current: int) -> Floats:
    """Loss of each forecast, (policies,).

    Parameters
    ----------
    rows : forecasts
    objective : one of `OBJECTIVES`
    current : place of the policy in use; on watts, one that serves fewer than it is out
    """
    loss = np.array([row[OBJECTIVES[objective]] for row in rows], float)
    if objective == "watts":
        failed = np.array([row["failed"] for row in rows])
        loss[failed > failed[current]] = np.inf
    return loss


@dataclass(frozen=True)
class Choice:
    """The policy in use, and who would replace it.

    Parameters
    ----------
    policy : in use
    rival : leads by the margin; "" for nobody
    since_s : since when
    """

    policy: str
    rival: str = ""
    since_s: float = 0.0


@dataclass(frozen=True)
class Patience:
    """When a twin changes its mind: a rival leads by a share `margin` of the loss for `hold_s`."""

    margin: float = 0.001
    hold_s: float = 0.0


def next_choice(choice: Choice, loss: Mapping[str, float], at_s: float,
                patience: Patience) -> Choice:
    """Choice after one more what-if.

    Parameters
    ----------
    choice, loss : before it; what it says of each policy
    at_s, patience : the time; when a rival has led for long enough
    """
    best = min(loss, key=lambda name: loss[name])
    if not loss[best] < (1 - patience.margin) * loss[choice.policy]:
        return Choice(choice.policy)
    since_s = choice.since_s if best == choice.rival else at_s
    if at_s - since_s >= patience.hold_s:
        return Choice(best)
    return Choice(choice.policy, best, since_s)


class Lanes:
    """Policies that play scripts, each at a desk of its own that it keeps.

    Parameters
    ----------
    policies : by name
    """

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self.policies = policies
        self._fixed: Any = None
        self._lanes: dict[str, Lane] = {}

    def play(self, world: World, empty: State, script: Script,
             names: Sequence[str]) -> dict[str, Schedule]:
        """Schedules of a script under some of the policies.

        Parameters
        ----------
        world, empty : the cluster now, and what its nodes have; left as they are
        script, names : what is played, and under which policies
        """
        if not is_same(self._fixed, fixed(world)):
            base = copied(world)
            self._fixed = fixed(base)
            self._lanes = {name: lane_of(script.case(policy, with_own_state(base), empty))
                           for name, policy in self.policies.items()}
        case = script.case(self.policies[names[0]], with_own_state(world), empty)
        timed, queue = timed_tasks(case)
        held = in_use(empty, world.state)
        for name in names:
            show(self._lanes[name].desk, world.state, world.residents, held)
        return {name: run(self._lanes[name], timed, queue, script.schedule()) for name in names}


def table_of(rows: Mapping[str, dict[str, float]], objective: str, current: str) -> pd.DataFrame:
    """Forecasts by policy, with the loss of each; the policy in use is best on a draw."""
    names = list(rows)
    place = names.index(current)
    loss = losses(list(rows.values()), objective, place)
    best = place if loss[place] == loss.min() else int(loss.argmin())
    table = pd.DataFrame(list(rows.values()))
    table.insert(0, "policy", names)
    return table.assign(loss=loss, is_best=np.arange(len(names)) == best)


def checked_policies(policies: Sequence[str], objective: str) -> dict[str, Policy]:
    """Policies by name.

    Raises
    ------
    InputError : no policy, one twice, or no such policy or objective
    """
    if objective not in OBJECTIVES:
        raise InputError(f"there is no objective {objective!r}", value=objective,
                         mend=f"choose one of {', '.join(OBJECTIVES)}")
    if not policies or len(set(policies)) < len(policies):
        raise InputError("a twin needs policies, each of them once", value=",".join(policies),
                         mend="name two or more, such as fgd,pwr-fgd:0.1,joint")
    return {name: policy_of(name) for name in policies}


class Twin(Lanes):
    """Plays a cluster forward under several policies.

    Parameters
    ----------
    policies : names for `policy_of`; the first is in use at the beginning
    objective : what the operator wants little of: "watts", "served" (pods not started), "waiting"
    patience : by how much and for how long a rival must lead
    seed : of policies that draw lots

    Raises
    ------
    InputError : no policy, one twice, or no such policy or objective
    """

    def __init__(self, policies: Sequence[str], objective: str = "watts",
                 patience: Patience = Patience(), seed: int = 0) -> None:
        super().__init__(checked_policies(policies, objective))
        self.objective = objective
        self.patience = patience
        self.seed = seed
        self.choice = Choice(policies[0])

    def what_if(self, world: World, empty: State, pods: Pods,
                until_s: float | None = None) -> pd.DataFrame:
        """Forecast of every policy.

        Parameters
        ----------
        world, empty : the cluster now, and what its nodes have; left as they are
        pods : who is expected to come and to go
        until_s : the horizon, seconds; None until the last pod comes

        Returns
        -------
        a row per policy: policy, watts, served, failed, mean_wait_s, loss, is_best

        Raises
        ------
        InputError : a time of a pod is below 0 or no number
        """
        script = script_of(pods, until_s, self.seed)
        schedules = self.play(world, empty, script, list(self.policies))
        rows = {name: forecast(with_own_state(world), script, schedule)
                for name, schedule in schedules.items()}
        return table_of(rows, self.objective, self.choice.policy)

    def follow(self, table: pd.DataFrame, at_s: float) -> Choice:
        """Take a what-if into account; return the policy to use from now on.

        Parameters
        ----------
        table, at_s : what `what_if` said, and when
        """
        loss = dict(zip(table["policy"], table["loss"], strict=True))
        self.choice = next_choice(self.choice, loss, at_s, self.patience)
        return self.choice


RECENT = 200
LASTING = ("memoryless", "none")


@dataclass
class Memory:
    """What is remembered of a live cluster.

    Parameters
    ----------
    asked : pods that asked for a node, and when first, by uid
    since_s : when the pods that run got their nodes, by uid; nan if nobody saw it
    num_ended, lasted_s : pods whose beginning and end were seen, and how long they ran in all
    """

    asked: dict[str, tuple[LivePod, float]] = field(default_factory=dict)
    since_s: dict[str, float] = field(default_factory=dict)
    num_ended: int = 0
    lasted_s: float = 0.0

    def mean_s(self) -> float:
        """Mean duration of those that ended; nan if none has."""
        return self.lasted_s / self.num_ended if self.num_ended else np.nan

    def end(self, uid: str, at_s: float) -> None:
        """Note that a pod is gone."""
        since_s = self.since_s.pop(uid, None)
        if since_s is not None and not np.isnan(since_s):
            self.num_ended += 1
            self.lasted_s += at_s - since_s


def note(memory: Memory, event: Event, at_s: float) -> None:
    """Remember what an event says of arrivals and durations."""
    match event:
        case Asked(pod=pod) if not refusal_of(pod):
            memory.asked.setdefault(key_of(pod), (pod, at_s))
            if len(memory.asked) > RECENT:
                del memory.asked[next(iter(memory.asked))]
        case PodSeen(pod=pod) if pod.node:
            uid = key_of(pod)
            memory.since_s.setdefault(uid, at_s if uid in memory.asked else np.nan)
        case Bound(uid=uid):
            if np.isnan(memory.since_s.get(uid, np.nan)):
                memory.since_s[uid] = at_s
        case PodGone(uid=uid):
            memory.end(uid, at_s)


def drawn_ends(memory: Memory, mean_s: float, until_s: float, seed: int) -> dict[str, float]:
    """Seconds until running pods end that are drawn to end within the horizon, by uid."""
    uids = sorted(memory.since_s)
    ends_s = np.random.default_rng(seed).exponential(size=len(uids)) * mean_s
    return {uids[row]: float(ends_s[row]) for row in np.flatnonzero(ends_s <= until_s).tolist()}


def leavers(live: LiveCluster, ends_s: Mapping[str, float]) -> dict[str, LivePod]:
    """What those pods hold, by uid, whose place and GPUs are known."""
    found = {uid: live.holds(uid) for uid in ends_s}
    names = set(live.names)
    return {uid: held for uid, held in found.items()
            if held is not None and held.node in names and len(held.shares) <= 1
            and all(share.gpu_list for share in held.shares)}


def gpus_held(pod: LivePod) -> int:
    """GPUs of a pod with at most one share, as a bit mask."""
    return sum(mask_of(share, MAX_GPUS_PER_NODE) for share in pod.shares)


@dataclass(frozen=True)
class Still:
    """A copy of a cluster, and what is expected of it.

    Parameters
    ----------
    copy : the cluster
    pods, until_s : who comes and goes, and the horizon
    at_s : when it was taken
    """

    copy: WorldCopy
    pods: Pods
    until_s: float
    at_s: float


@dataclass(frozen=True)
class Proposal:
    """What a look at the future has shown.

    Parameters
    ----------
    table : a row per policy, as `Twin.what_if` gives it
    policy : the one to change to; empty for none
    text : the same in a line
    """

    table: pd.DataFrame
    policy: str
    text: str


def text_of(table: pd.DataFrame, choice: Choice, policy: str, objective: str) -> str:
    """A proposal in a line."""
    best = table.loc[table["is_best"], "policy"].iloc[0]
    column = OBJECTIVES[objective]
    said = ", ".join(f"{name} {value:,.6g}" for name, value in zip(
        table["policy"], table[column], strict=True))
    does = f"change to {policy}" if policy else f"stay with {choice.policy}"
    return f"{does}; best for {objective}: {best}; {column}: {said}"


MOST_KINDS = 512


def expected_of(live: LiveCluster, memory: Memory, ends_s: Mapping[str, float],
                kinds: dict[Wish, LivePod]) -> tuple[WorldCopy, Pods]:
    """A copy of a cluster; pods that wait, come as before, and end.

    Parameters
    ----------
    live, memory : the cluster, and what is remembered of it
    ends_s : when running pods end, by uid
    kinds : a pod of each class so far; written to
    """
    past = [pod for pod, _ in memory.asked.values()]
    waits = [pod for pod in live.pending.values() if not refusal_of(pod)]
    held = leavers(live, ends_s)
    if len(kinds) > MOST_KINDS:
        kinds.clear()
    for pod in past:
        kinds.setdefault(wish_of(pod), pod)
    groups = [[*kinds.values()], waits, past, [*held.values()]]
    copy = live.world([pod for group in groups for pod in group])
    edges = np.cumsum([len(group) for group in groups])
    _, *asked = zip(np.split(copy.task, edges[:-1]), np.split(copy.memory_mib, edges[:-1]),
                    strict=True)
    row_of = {name: row for row, name in enumerate(copy.name.tolist())}
    node = np.array([row_of[pod.node] for pod in held.values()], np.int64)
    masks = np.array([gpus_held(pod) for pod in held.values()], np.int64)
    when_s = np.array([at_s for _, at_s in memory.asked.values()])
    return copy, together(
        coming(*asked[0], np.zeros(len(waits))), as_before(coming(*asked[1], when_s)),
        Pods(*asked[2], np.zeros(len(held)), np.array([ends_s[uid] for uid in held]), node, masks))


class LiveTwin:
    """A twin in front of a live cluster.

    Parameters
    ----------
    twin : its policies, the one in use first
    every_s : how often it looks
    lasting : "memoryless" or "none": how long pods run

    Raises
    ------
    InputError : no such way of lasting, or a time that is not above 0
    """

    def __init__(self, twin: Twin, every_s: float = 60.0, lasting: str = "none") -> None:
        if lasting not in LASTING or not 0 < every_s < np.inf:
            raise InputError(f"{lasting!r} every {every_s} s is no way to look ahead",
                             mend=f"choose one of {', '.join(LASTING)}, and a time above 0")
        self.twin = twin
        self.every_s = every_s
        self.lasting = lasting
        self.memory = Memory()
        self._kinds: dict[Wish, LivePod] = {}
        self._next_s = -np.inf

    def saw(self, event: Event, at_s: float) -> None:
        """Take note of an event that has been applied.

        Parameters
        ----------
        event, at_s : what happened, and when by the clock of `still`
        """
        if isinstance(event, PolicyChosen):
            self.twin.choice = Choice(event.policy)
        note(self.memory, event, at_s)

    def still(self, live: LiveCluster, at_s: float) -> Still | None:
        """What is to be played; None if it is not time, or nobody has asked for a node yet.

        Parameters
        ----------
        live, at_s : the cluster, left as it is, and the time
        """
        if at_s < self._next_s or not self.memory.asked or not live.names:
            return None
        self._next_s = at_s + self.every_s
        until_s = at_s - next(iter(self.memory.asked.values()))[1]
        mean_s = self.memory.mean_s() if self.lasting == "memoryless" else np.nan
        ends_s = drawn_ends(self.memory, mean_s, until_s, self.twin.seed)
        copy, pods = expected_of(live, self.memory, ends_s, self._kinds)
        lasting = memoryless(pods, mean_s, self.twin.seed).duration_s
        own_s = np.where(pods.node < 0, lasting, pods.duration_s)
        return Still(copy, pods._replace(duration_s=own_s), until_s, at_s)

    def play(self, still: Still) -> pd.DataFrame:
        """Forecasts of a still, as `Twin.what_if` gives them."""
        return self.twin.what_if(still.copy.world, still.copy.empty, still.pods, still.until_s)

    def propose(self, table: pd.DataFrame, at_s: float) -> Proposal:
        """What to do; the policy in use changes only when `saw` is told of a `PolicyChosen`.

        Parameters
        ----------
        table, at_s : what `play` said, and when its still was taken
        """
        before = self.twin.choice
        after = self.twin.follow(table, at_s)
        policy = after.policy if after.policy != before.policy else ""
        if policy:
            self.twin.choice = replace(before, rival=policy)
        return Proposal(table, policy, text_of(table, before, policy, self.twin.objective))

    def look(self, live: LiveCluster, at_s: float) -> Proposal | None:
        """All three parts, one after the other; None if it is not time.

        Parameters
        ----------
        live, at_s : the cluster, left as it is, and the time
        """
        still = self.still(live, at_s)
        return None if still is None else self.propose(self.play(still), at_s)


LOG = logging.getLogger("sched_lab.serve")


class Overheard:
    """A journal whose events a twin hears too.

    Parameters
    ----------
    journal, twin : of the same cluster
    clock : seconds, as the bridge is told them
    """

    def __init__(self, journal: Journal, twin: LiveTwin,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self.journal = journal
        self.live = journal.live
        self.twin = twin
        self.clock = clock

    def apply(self, event: Event) -> Decision | None:
        """Apply and write an event, and tell the twin."""
        decision = self.journal.apply(event)
        self.twin.saw(event, self.clock())
        return decision


class Hands:
    """An API, and a twin that plays beside it.

    Parameters
    ----------
    api, twin : whose methods are called in threads
    """

    def __init__(self, api: Any, twin: LiveTwin) -> None:
        self.api = api
        self.play = twin.play

    def __getattr__(self, name: str) -> Any:
        return getattr(self.api, name)


def warm_up(settings: LiveSettings, twin: LiveTwin) -> None:
    """Look once at a small cluster, so that all that is needed is compiled."""
    live = LiveCluster(replace(settings, policy=twin.twin.choice.policy))
    live.apply(NodeSeen(LiveNode("a", min(GPU_POWER_W), 4, 64_000, 65_536)))
    small = LiveTwin(Twin([*twin.twin.policies], twin.twin.objective))
    asked = Asked(LivePod("u", "lab/p", 1000, 1024, (Share(1, 500),)), None, 0.0, False)
    live.apply(asked)
    small.saw(asked, 0.0)
    small.look(live, 1.0)


class Lookout:
    """A bridge that lets a twin look ahead when time passes.

    Parameters
    ----------
    bridge, twin : of the same cluster; the twin hears its events (`Overheard`)
    is_used : whether a proposal is carried out
    """

    def __init__(self, bridge: Bridge, twin: LiveTwin, *, is_used: bool) -> None:
        self.bridge = bridge
        self.twin = twin
        self.is_used = is_used
        self.last: Proposal | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.bridge, name)

    def settling(self, at_s: float) -> Steps:
        """Let time pass for the bridge, and look ahead if it is time."""
        done = yield from self.bridge.settling(at_s)
        try:
            still = self.twin.still(self.bridge.live, at_s)
            if still is not None:
                table = yield Call("play", (still,))
                self.tell_of(self.twin.propose(table, at_s))
        except Exception:
            LOG.exception("the twin cannot look ahead")
        return done

    def tell_of(self, proposal: Proposal) -> None:
        """Log a proposal, and carry it out if that is wanted."""
        self.last = proposal
        LOG.info("twin: %s", proposal.text, extra={"fields": {"proposes": proposal.policy}})
        if proposal.policy and self.is_used:
            self.bridge.tell(PolicyChosen(proposal.policy))

    def gauges(self) -> dict[str, float]:
        """Loss by policy, as of the last look."""
        if self.last is None:
            return {}
        table = self.last.table
        return {f"twin {name}": loss for name, loss in zip(table["policy"], table["loss"],
                                                           strict=True)}

    def over(self, works: Any) -> Any:
        """What a server is made of (`Works`), with this in front."""
        def warm() -> None:
            works.warm()
            warm_up(self.bridge.live.settings, self.twin)

        return replace(works, bridge=self, api=Hands(works.api, self.twin), warm=warm,
                       gauges=lambda: {**works.gauges(), **self.gauges()})


KNOWLEDGE = ("what came", "what comes")


@dataclass(frozen=True)
class Life:
    """A problem that is lived through piece by piece.

    Parameters
    ----------
    problem, schedule : all tasks, and what has become of them so far; the schedule is written to
    world, class_of : the empty cluster, and the class of each task
    """

    problem: Problem
    schedule: Schedule
    world: World
    class_of: Integers

    def now(self, at_s: float) -> World:
        """The cluster with what runs at a moment."""
        world = with_own_state(self.world)
        runs = running_at(self.problem, self.schedule, at_s)
        place_running(world, self.problem, self.class_of, self.schedule, runs)
        return world


def rows_of(life: Life, at_s: float, until_s: float) -> tuple[Integers, Integers]:
    """Rows of those that wait or come until a moment, by submission, and of those that run."""
    problem = life.problem
    waits = (life.schedule.node < 0) & (problem.submit_s <= until_s)
    rows = np.flatnonzero(waits)
    rows = rows[np.argsort(problem.submit_s[rows], kind="stable")]
    return rows, np.flatnonzero(running_at(problem, life.schedule, at_s))


def pods_of(life: Life, rows: Integers, at_s: float, *, runs: bool) -> Pods:
    """Tasks as pods, with their true durations."""
    tasks = life.problem.tasks
    asked = life.class_of[rows], tasks.memory_mib[rows]
    if runs:
        return Pods(*asked, np.zeros(len(rows)), life.schedule.end_s[rows] - at_s,
                    life.schedule.node[rows], life.schedule.gpu_mask[rows])
    submit_s = np.maximum(life.problem.submit_s[rows] - at_s, 0.0)
    return coming(*asked, submit_s, life.problem.duration_s[rows])


def what_comes(life: Life, at_s: float, until_s: float) -> Pods:
    """True arrivals and ends until a moment."""
    rows, runs = rows_of(life, at_s, until_s)
    return together(pods_of(life, rows, at_s, runs=False), pods_of(life, runs, at_s, runs=True))


def what_came(life: Life, at_s: float, seed: int) -> Pods:
    """Those that wait and run, and the last arrivals once more, with durations drawn anew."""
    rows, runs = rows_of(life, at_s, at_s)
    submit_s = life.problem.submit_s
    came = np.flatnonzero(submit_s <= at_s)
    last = came[np.argsort(submit_s[came], kind="stable")][-RECENT:]
    past = pods_of(life, last, at_s, runs=False)._replace(submit_s=submit_s[last])
    ended = life.schedule.end_s <= at_s
    lasted_s = (life.schedule.end_s - life.schedule.start_s)[ended]
    mean_s = float(lasted_s.mean()) if len(lasted_s) else np.nan
    pods = together(pods_of(life, rows, at_s, runs=False), as_before(past),
                    pods_of(life, runs, at_s, runs=True))
    return memoryless(pods, mean_s, seed)


def live_on(life: Life, twin: Twin, at_s: float, until_s: float) -> None:
    """Let the policy in use decide until a moment; ends and arrivals are the true ones."""
    rows, runs = rows_of(life, at_s, until_s)
    pods = what_comes(life, at_s, until_s)
    name = twin.choice.policy
    script = script_of(pods, until_s - at_s, twin.seed)
    played = twin.play(life.now(at_s), life.world.state, script, [name])[name]
    start_s = played.start_s[:len(rows)]
    some = start_s <= script.until_s
    begun = rows[some]
    life.schedule.node[begun] = played.node[:len(rows)][some]
    life.schedule.gpu_mask[begun] = played.gpu_mask[:len(rows)][some]
    life.schedule.start_s[begun] = at_s + start_s[some]
    life.schedule.end_s[begun] = at_s + start_s[some] + life.problem.duration_s[begun]


def live(problem: Problem, twin: Twin, turns_s: Floats, knows: str = "what came",
         before: Schedule | None = None) -> tuple[Schedule, pd.DataFrame]:
    """Live through a trace with a twin.

    Parameters
    ----------
    problem, before : cluster and timed tasks; what has become of them until the first turn
    twin : its policies, objective and patience
    turns_s : (turns,) when it is asked; the last one is the end
    knows : one of `KNOWLEDGE`

    Returns
    -------
    what became of the tasks until the end, and for each turn the policy in use from then on and
    the forecasts
    """
    world, class_of = world_of_problem(problem, PowerSettings())
    began = nothing_scheduled(len(class_of))
    if before is not None:
        is_past = before.start_s <= turns_s[0]
        began = Schedule(*(np.where(is_past, known, none)
                           for known, none in zip(before, began, strict=True)))
    life = Life(problem, began, world, class_of)
    said = []
    for at_s, until_s in pairwise(turns_s.tolist()):
        is_seer = knows == "what comes"
        pods = what_comes(life, at_s, until_s) if is_seer else what_came(life, at_s, twin.seed)
        table = twin.what_if(life.now(at_s), world.state, pods, until_s - at_s if is_seer else None)
        chosen = twin.follow(table, at_s).policy
        said.append(table.assign(at_s=at_s, in_use=table["policy"] == chosen))
        live_on(life, twin, at_s, until_s)
    return life.schedule, pd.concat(said, ignore_index=True)


def hours_of(problem: Problem, twin: Twin, turns_s: Floats, knows: str,
             before: Schedule) -> pd.DataFrame:
    """Policy in use, power and waiting pods between turns; parameters as `live`."""
    schedule, said = live(problem, twin, turns_s, knows, before)
    measured = measure(problem, schedule, PowerSettings(), turns_s)
    return pd.DataFrame({
        "hour": np.arange(len(measured)), "in_use": said.loc[said["in_use"], "policy"].to_numpy(),
        "eopc_w": measured["eopc_w"], "waiting_tasks": measured["waiting_tasks"]})
