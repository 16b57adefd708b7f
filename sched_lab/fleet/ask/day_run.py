"""Services first, training on what they leave, batches beside them; sixteen variants of one day, each checked, each billed."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import permutations, product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from ... import andreas, far
from ...andreas.rules import assign_by_rule, edf
from ...hadar import Allocation, Hadar, State
from ...hadar import Cluster as Gangs
from ...hadar import Jobs as GangJobs
from ...hadar.simulation import RESTART_S, round_start_s
from ...lab.arrays import Floats, Integers, Truths
from ...lab.clock import run_queue
from ...lab.frames import InputError
from ...lab.reports import Report
from ...bill import Tariff
from ..replay.intervals import interval_of
from ..replay.events import replay
from ..replay.problem import Schedule
from .day import (
    ASLEEP_AFTER_S,
    ASLEEP_W,
    COUNTS,
    HORIZON_S,
    TICK_S,
    WORKER_MILLI,
    Day,
    Happened,
    Nodes,
    Runs,
    bill_of_day,
    bound_of_day,
    check_day,
    drawn_of,
    least_prices,
    pace_of,
)

if TYPE_CHECKING:
    import altair as alt

__all__ = ['run_day', 'effects_of']

NUM_TICKS = int(HORIZON_S / TICK_S)


class Room(NamedTuple):
    """What services leave to training.

    Parameters
    ----------
    is_whole : (ticks, nodes, GPUs) whether no service holds any of a GPU
    usable : (ticks, nodes) GPUs that training can have
    stranded_gpu : mean over the first day of what is neither held nor usable, on all general nodes
    """

    is_whole: Truths
    usable: Integers
    stranded_gpu: float


def room_of(day: Day, services: Schedule) -> Room:
    """What services leave to training, tick by tick."""
    cluster = day.nodes.cluster
    tasks = day.services.tasks
    gpu = np.zeros((NUM_TICKS, len(cluster), int(cluster.num_gpus.max())), np.int64)  # milli held
    cpu = np.zeros(gpu.shape[:2], np.int64)
    bits = services.gpu_mask[:, None] >> np.arange(gpu.shape[2]) & 1
    for task, (node, start_s, end_s) in enumerate(zip(services.node, services.start_s,
                                                      services.end_s, strict=True)):
        during = slice(int(start_s / TICK_S), int(end_s / TICK_S))
        gpu[during, node] += tasks.gpu_milli[task] * bits[task]
        cpu[during, node] += tasks.cpu_milli[task]
    exists = np.arange(gpu.shape[2]) < cluster.num_gpus[:, None]
    is_whole = (gpu == 0) & exists
    usable = np.minimum(is_whole.sum(axis=2), (cluster.cpu_milli - cpu) // WORKER_MILLI)
    free = ((1000 - gpu) * exists).sum(axis=2) / 1000 - usable
    first_day = slice(int(24 * 3600 / TICK_S))
    stranded = free[first_day][:, day.nodes.mig_model == ""].sum(axis=1).mean()
    return Room(is_whole, np.where(day.nodes.train_type >= 0, usable, 0), float(stranded))


Places = dict[int, dict[int, int]]  # job -> node -> GPUs


class Now(NamedTuple):
    """What a decision can see.

    Parameters
    ----------
    at_s : the tick
    active : jobs that are there and not done
    left : (jobs,) steps
    free : (nodes,) GPUs that are open
    places : where jobs are that ran until now
    """

    at_s: float
    active: Integers
    left: Floats
    free: Integers
    places: Places


Decide = Callable[[Day, Now], Places]


@lru_cache(maxsize=4)
def mean_rates(day: Day) -> Floats:
    """(jobs, counts, 1) speed on a GPU of the cluster that is drawn by lot."""
    types = day.nodes.train_type
    gpus = np.bincount(types[types >= 0], day.nodes.cluster.num_gpus[types >= 0])
    times = (1 / day.training.rate * (gpus / gpus.sum())).sum(axis=-1)
    rates: Floats = 1 / times[:, :, None]
    return rates


def known_rates(day: Day, is_blind: bool) -> tuple[Floats, Integers]:
    """Speeds as a decision believes them, (jobs, counts, types), and (nodes,) the type of each."""
    types = day.nodes.train_type
    return (mean_rates(day), np.minimum(types, 0)) if is_blind else (day.training.rate, types)


@lru_cache(maxsize=4)
def costs_eur_per_h(day: Day, is_blind: bool) -> Floats:
    """(types, GPUs + 1) cost of an hour of a node with so many GPUs in use, at the mean price."""
    types = known_rates(day, is_blind)[1]
    prices = least_prices(day.nodes)
    watts = prices.gpu_w + WORKER_MILLI / 1000 * prices.cpu_w
    of_type = [watts[types == kind].mean() for kind in range(int(types.max()) + 1)]
    gpus = np.arange(int(day.nodes.cluster.num_gpus.max()) + 1)
    watt_hours: Floats = np.outer(of_type, gpus)
    return watt_hours / 1000 * float(day.tariff.price.value.mean())


def places_by_andreas(day: Day, now: Now, jobs: Integers, free: Integers, is_blind: bool,
                      decide: Callable[..., andreas.Assignment],
                      gpus: Integers | None = None) -> Places:
    """Where a rule of ANDREAS puts some jobs, in its terms and back.

    Parameters
    ----------
    day, now : what there is
    jobs, free : (some,) who asks; (nodes,) GPUs that are open to them
    is_blind : whether the rule takes all types for one
    decide : the rule, asked with fleet, jobs and time
    gpus : (jobs,) numbers of GPUs that must be; None if the rule chooses them
    """
    node = np.flatnonzero(free > 0)
    if not len(node) or not len(jobs):
        return {}
    rate, types = known_rates(day, is_blind)
    num_types = int(types.max()) + 1
    fleet = andreas.Fleet(types[node], free[node], np.repeat(np.arange(num_types), len(COUNTS)),
                          np.tile(np.array(COUNTS), num_types), costs_eur_per_h(day, is_blind))
    # run times of what is left, types first, then counts
    times_s = now.left[jobs, None, None] / rate[jobs].transpose(0, 2, 1)
    training = day.training
    queue = andreas.Jobs(training.submit_s[jobs], training.due_s[jobs],
                         training.weight_eur_per_s[jobs],
                         np.ascontiguousarray(times_s.reshape(len(jobs), -1)))
    if gpus is not None:
        queue.times_s[np.tile(np.array(COUNTS), num_types) != gpus[jobs, None]] = np.inf
    assigned = decide(fleet, queue, now.at_s)
    return {int(jobs[i]): {int(node[assigned.node[i]]):
                           int(fleet.configuration_gpus[assigned.configuration[i]])}
            for i in np.flatnonzero(assigned.node >= 0)}


def that_stay(day: Day, now: Now) -> tuple[Places, Integers]:
    """Running jobs that still have room where they are, by due date, and the GPUs then open."""
    free = now.free.copy()
    kept: Places = {}
    for job in sorted(now.places, key=lambda one: day.training.due_s[one]):
        place = now.places[job]
        if all(free[node] >= gpus for node, gpus in place.items()):
            kept[job] = place
            for node, gpus in place.items():
                free[node] -= gpus
    return kept, free


def decide_plainly(day: Day, now: Now) -> Places:
    """EDF on the users' numbers of GPUs, blind to types, without preemption."""
    kept, free = that_stay(day, now)
    jobs = np.array([job for job in now.active if job not in kept], np.int64)
    return kept | places_by_andreas(day, now, jobs, free, True, partial(assign_by_rule, rule=edf),
                                    day.training.gpus)


def settled(day: Day, now: Now, types: Integers, wanted: Places) -> Places:
    """The same numbers and types, as many jobs as possible where they were."""
    free = now.free.copy()
    found: Places = {}
    asks = {job: next(iter(place.items())) for job, place in wanted.items()}
    for job, (node, gpus) in asks.items():
        old = now.places.get(job, {})
        if len(old) == 1:
            (was, had), = old.items()
            if had == gpus and types[was] == types[node] and free[was] >= gpus:
                found[job] = old
                free[was] -= gpus
    for job, (node, gpus) in asks.items():
        if job not in found:
            fits = np.flatnonzero((types == types[node]) & (free >= gpus))
            if not len(fits):
                return wanted
            best = int(fits[np.argmin(free[fits])])
            found[job] = {best: gpus}
            free[best] -= gpus
    return found


def decide_by_pressure(day: Day, now: Now, *, is_blind: bool) -> Places:
    """Number of GPUs and order as ANDREAS decides; with the types, too, if not blind."""
    wanted = places_by_andreas(day, now, now.active, now.free, is_blind,
                               andreas.policy_of("greedy"))
    return settled(day, now, known_rates(day, is_blind)[1], wanted)


def places_by_hadar(day: Day, now: Now, gpus: Integers, active: Integers) -> Places:
    """Who of some jobs runs where on (jobs,) so many GPUs, by Hadar's prices."""
    node = np.flatnonzero(now.free > 0)
    if not len(node) or not len(active):
        return {}
    training = day.training
    row = np.arange(len(gpus))
    size = np.searchsorted(COUNTS, gpus)
    jobs = GangJobs(training.submit_s, training.steps, gpus, np.ones(len(gpus)),
                    np.ascontiguousarray(training.rate[row, size]),
                    np.ascontiguousarray(training.spread[row, size]))
    number = {int(one): i for i, one in enumerate(node)}
    whole = {job: place for job, place in now.places.items()
             if sum(place.values()) == gpus[job]
             and all(now.free[at] >= held for at, held in place.items())}
    old = sorted((job, number[at], held) for job, place in whole.items()
                 for at, held in place.items())
    previous = Allocation(*np.array(old, np.int64).reshape(-1, 3).T.copy())
    gangs = Gangs(day.nodes.train_type[node], now.free[node])
    none = np.zeros(len(now.left))
    state = State(gangs, jobs, now.at_s, active, now.left, previous, none, none)
    found = Hadar(round_s=TICK_S, restart_s=RESTART_S).allocate(state)
    places: Places = {}
    for job, at, held in zip(*(column.tolist() for column in found), strict=True):
        places.setdefault(job, {})[int(node[at])] = held
    return places


def decide_by_both(day: Day, now: Now) -> Places:
    """ANDREAS says who runs and on how many GPUs, Hadar where."""
    chosen = decide_by_pressure(day, now, is_blind=True)
    gpus = day.training.gpus.copy()
    for job, place in chosen.items():
        gpus[job] = sum(place.values())
    active = np.array(sorted(chosen), np.int64)
    return places_by_hadar(day, now, gpus, active)


TRAINERS: Mapping[str, Decide] = {
    "plain": decide_plainly, "andreas": partial(decide_by_pressure, is_blind=True),
    "hadar": lambda day, now: places_by_hadar(day, now, day.training.gpus, now.active),
    "both": decide_by_both,
    "andreas-types": partial(decide_by_pressure, is_blind=False)}


def lowest_bits(is_open: Truths, gpus: int) -> int:
    """Mask of the first open GPUs; they are then closed."""
    chosen = np.flatnonzero(is_open)[:gpus]
    if len(chosen) < gpus:
        raise ValueError(f"{gpus} GPUs are asked for on a node where {len(chosen)} are open")
    is_open[chosen] = False
    return int((1 << chosen).sum())


def seats_of(places: Places, held: Places, is_whole: Truths) -> Places:
    """GPUs of each job on each node as bit masks.

    Parameters
    ----------
    places : job -> node -> number of GPUs
    held : the masks until now
    is_whole : (nodes, GPUs) open GPUs
    """
    is_open = is_whole.copy()
    bits = 1 << np.arange(is_whole.shape[1])
    seats: Places = {}
    for job, place in places.items():
        old = held.get(job, {})
        can_stay = old.keys() == place.keys() and all(
            old[node].bit_count() == gpus and is_open[node][(bits & old[node]) > 0].all()
            for node, gpus in place.items())
        if can_stay:
            seats[job] = old
            for node, mask in old.items():
                is_open[node, (bits & mask) > 0] = False
    for job, place in places.items():
        if job not in seats:
            seats[job] = {node: lowest_bits(is_open[node], gpus) for node, gpus in place.items()}
    return seats


class RunLog:
    """Runs under way, and those that are over."""

    def __init__(self) -> None:
        self.held: Places = {}
        self.since_s: dict[int, float] = {}
        self.rows: list[tuple[int, int, int, float, float]] = []

    def close(self, job: int, end_s: float) -> None:
        """Note the end of a run."""
        start_s = self.since_s.pop(job)
        self.rows += [(job, node, mask, start_s, end_s)
                      for node, mask in self.held.pop(job).items()]

    def move(self, seats: Places, now_s: float) -> None:
        """Note who goes on, who begins and who stops."""
        for job in [one for one in self.held if seats.get(one) != self.held[one]]:
            self.close(job, now_s)
        for job, seat in seats.items():
            if job not in self.held:
                self.held[job] = seat
                self.since_s[job] = now_s


def pass_tick(day: Day, log: RunLog, now_s: float, left: Floats, end_s: Floats) -> None:
    """Let the running jobs run until the next tick."""
    for job, seat in list(log.held.items()):
        node, mask = (np.array(part) for part in zip(*seat.items(), strict=True))
        pace = pace_of(day, job, node, mask)
        begin_s = now_s + (RESTART_S if log.since_s[job] == now_s else 0.0)
        needs_s = left[job] / pace
        if begin_s + needs_s <= now_s + TICK_S:
            left[job] = 0.0
            end_s[job] = begin_s + needs_s
            log.close(job, end_s[job])
        else:
            left[job] -= pace * (now_s + TICK_S - begin_s)


def train(day: Day, room: Room, decide: Decide,
          believed: Day | None = None) -> tuple[Runs, Floats]:
    """Run all jobs on what services leave; who decides takes the day for the one that is believed.

    Raises
    ------
    InputError : they are not done before the horizon
    """
    left = day.training.steps.copy()
    end_s = np.full(len(left), np.nan)
    log = RunLog()

    def advance(queue: Integers, now_s: float, later_s: float) -> tuple[float, Truths]:
        """Ask the trainer, and let the jobs run until the next tick."""
        tick = int(now_s / TICK_S)
        if tick >= NUM_TICKS:
            raise InputError(f"{int((left > 0).sum())} jobs are not done {HORIZON_S / 3600:g} h after "
                             "the day began", mend="give a cluster with more GPUs for training")
        counts = {job: {node: mask.bit_count() for node, mask in seat.items()}
                  for job, seat in log.held.items()}
        now = Now(now_s, np.sort(queue), left, room.usable[tick], counts)
        log.move(seats_of(decide(believed or day, now), log.held, room.is_whole[tick]), now_s)
        pass_tick(day, log, now_s, left, end_s)
        return now_s + TICK_S, left[queue] > 0

    run_queue(day.training.submit_s, advance, seen_s=partial(round_start_s, round_s=TICK_S))
    return Runs(*map(np.array, zip(*log.rows, strict=True))), end_s


IDEAS = {"P": "PWR+FGD", "A": "ANDREAS", "H": "Hadar", "F": "FAR"}
SERVICE_POLICY = {False: "bestfit", True: "pwr-fgd:0.1"}
FIXED = {"A30": "2-2", "A100": "2-2-3", "H100": "2-2-3", "B200": "2-2-3"}
PLAIN, ALL = "plain", "PAHF"
VARIANTS = tuple("".join(idea for idea, on in zip(IDEAS, bits, strict=True) if on) or PLAIN
                 for bits in product((False, True), repeat=len(IDEAS)))
TRAINER = {(False, False): "plain", (True, False): "andreas", (False, True): "hadar",
           (True, True): "both"}
EXTRA = {"types": ("", "andreas-types"), "PF types": ("PF", "andreas-types")}


# what does not depend on training, by whether the idea is there: services, what they leave, batches
Prepared = tuple[dict[bool, Schedule], dict[bool, Room], dict[bool, tuple[far.Schedule, ...]]]


def prepare_day(day: Day) -> Prepared:
    """Services, what they leave, and batches, without and with the idea."""
    services = {on: replay(day.services, policy, backfill="first-fit", power=day.nodes.power)
                for on, policy in SERVICE_POLICY.items()}
    return services, {on: room_of(day, schedule) for on, schedule in services.items()}, {
        on: tuple(far.simulate(work.mig, work.batch, "far" if on else
                               f"fixpart:{FIXED[work.mig.model]}") for work in day.batches)
        for on in (False, True)}


def variants_of(day: Day, prepared: Prepared,
                believed: Day | None = None) -> Iterator[tuple[str, Happened, float]]:
    """What each variant makes of a day, checked, and the GPU that its services strand.

    Parameters
    ----------
    day, prepared : what is true, and `prepare_day` of it
    believed : what those who decide about jobs take the day for; the truth if left out
    """
    services, rooms, batches = prepared
    cases = [(name, name, TRAINER["A" in name, "H" in name]) for name in VARIANTS]
    cases += [(name, *case) for name, case in EXTRA.items()]
    trained: dict[tuple[bool, str], tuple[Runs, Floats]] = {}
    for name, ideas, trainer in cases:
        has_p = "P" in ideas
        if (has_p, trainer) not in trained:
            trained[has_p, trainer] = train(day, rooms[has_p], TRAINERS[trainer], believed)
        happened = Happened(services[has_p], *trained[has_p, trainer], batches["F" in ideas])
        check_day(day, happened)
        yield name, happened, rooms[has_p].stranded_gpu


def run_day(day: Day) -> pd.DataFrame:
    """Let a day pass in all variants; each is checked.

    Parameters
    ----------
    day : nodes and work

    Returns
    -------
    one row per variant: variant ("plain" has no idea, "PAHF" has all), what
    `bill_of_day` says, stranded_gpu, and the bounds as bound_kwh and bound_eur

    Raises
    ------
    InputError : the work of the day does not fit before the horizon
    """
    bound = bound_of_day(day)
    return pd.DataFrame([
        {"variant": name, **bill_of_day(day, happened), "stranded_gpu": stranded_gpu,
         "bound_kwh": bound["energy_kwh"], "bound_eur": bound["total_eur"]}
        for name, happened, stranded_gpu in variants_of(day, prepare_day(day))])


RESAMPLES = 2000


def savings_of(values: pd.DataFrame, idea: str) -> dict[str, Floats]:
    """What an idea saves on each day: alone, added last, and averaged over all orders.

    Parameters
    ----------
    values : a row per day, a column per variant
    idea : of `IDEAS`
    """
    def of(ideas: set[str]) -> Floats:
        return values["".join(one for one in IDEAS if one in ideas) or PLAIN].to_numpy(float)

    def added_to(before: set[str]) -> Floats:
        return of(before) - of(before | {idea})

    orders = [set(order[:order.index(idea)]) for order in permutations(IDEAS)]
    return {"alone": added_to(set()), "last": added_to(set(IDEAS) - {idea}),
            "share": np.mean([added_to(before) for before in orders], axis=0)}


def effects_of(days: pd.DataFrame, column: str) -> pd.DataFrame:
    """What each idea saves, over paired days.

    Parameters
    ----------
    days : rows of `run_day`, with the column seed
    column : an amount of which less is better

    Returns
    -------
    one row per idea and way (alone, last, share), and for all ideas together: idea, way, saving,
    low and high (95 % interval), each per day
    """
    values = days.pivot(index="seed", columns="variant", values=column)
    together = {"together": (values[PLAIN] - values[ALL]).to_numpy(float)}
    found = {IDEAS[idea]: savings_of(values, idea) for idea in IDEAS} | {"all four": together}
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    rows = [(idea, way, saved.mean(), *interval_of(saved[draws].mean(axis=1)))
            for idea, ways in found.items() for way, saved in ways.items()]
    return pd.DataFrame(rows, columns=["idea", "way", "saving", "low", "high"])


SHOWN = {"total_eur": "EUR a day", "energy_kwh": "kWh a day", "mean_jct_h": "hours of a mean job"}
WAYS = {"alone": "alone, on the plain cluster", "share": "share, mean of all orders",
        "last": "last, to the other three", "together": "all four together"}


def worth_chart(days: pd.DataFrame) -> alt.TopLevelMixin:
    """What each idea saves, with 95 % intervals."""
    import altair as alt

    panels = []
    best = []
    for column, title in SHOWN.items():
        effects = effects_of(days, column)
        shares = effects[effects["way"] == "share"].set_index("idea")["saving"]
        best.append(str(shares.idxmax()) if shares.max() > 0 else "no idea")
        effects["way"] = effects["way"].map(WAYS)
        base = alt.Chart(effects, title=title, width=440, height=alt.Step(12)).encode(
            alt.Y("idea:N", title=None, sort=[*IDEAS.values(), "all four"]),
            alt.YOffset("way:N", sort=list(WAYS.values())),
            alt.Color("way:N", title=None, sort=list(WAYS.values()),
                      legend=alt.Legend(orient="bottom", columns=2)))
        panels.append(base.mark_rule().encode(alt.X("low:Q", title="saved"), alt.X2("high:Q"))
                      + base.mark_point(filled=True, size=45).encode(
                          alt.X("saving:Q"), tooltip=list(effects.columns)))
    found = "{} saves most money, {} most energy, {} most time".format(*best)
    return alt.vconcat(*panels, title=found[0].upper() + found[1:])


TABLES = ("days.csv", "effects.csv")
CHARTS = ("worth.svg",)
MEANINGS = {
    "worth": "What each idea saves alone, added last, and averaged over all orders",
    "days.csv": "every variant of every day", "effects.csv": "what each idea saves",
    "variant": "ideas that are there: P PWR+FGD, A ANDREAS, H Hadar, F FAR; types: ANDREAS with "
    "the run times on each type, as its paper has it",
    "plain_eur": "EUR a day without any idea", "all_eur": "EUR a day with all four",
    "bound_eur": "EUR a day that no schedule can go below",
    "plain_kwh": "kWh a day without any idea", "all_kwh": "kWh a day with all four",
    "bound_kwh": "kWh a day that no schedule can go below",
    "drawn": "what is not from the cluster and was drawn", "saving": "mean over the days",
    "low": "lower end of the 95 % interval", "high": "upper end of the 95 % interval"}


class DayReport(Report):
    """What each paper's idea is worth on a cluster."""

    question: ClassVar[str] = "What is each paper's idea worth on this cluster?"
    meanings: ClassVar[Mapping[str, str]] = MEANINGS

    def answer(self) -> list[str]:
        """The result, what was drawn, and what energy rests on."""
        return [f"{self.headline}.", self.summary["drawn"], self.summary["energy_assumptions"]]


FEWEST_DAYS = 10  # of which an interval of their mean is given


def share_saved(days: pd.DataFrame) -> str:
    """What all ideas save, in per cent of the cost without them, and how sure that is, in words."""
    eur = days.pivot(index="seed", columns="variant", values="total_eur")[[PLAIN, ALL]].to_numpy(float)
    if not (eur[:, 0] > 0).all() or eur[:, 1].sum() > eur[:, 0].sum():
        return ""
    words = f", {100 * (1 - eur[:, 1].sum() / eur[:, 0].sum()):.0f} %"
    if len(eur) == 1:
        return words
    if len(eur) < FEWEST_DAYS:
        each = 100 * (1 - eur[:, 1] / eur[:, 0])
        return f"{words} ({each.min():.0f} to {each.max():.0f} % on each of {len(eur)} days)"
    draws = np.random.default_rng(0).integers(len(eur), size=(RESAMPLES, len(eur)))
    drawn = eur[draws].sum(axis=1)
    low, high = interval_of(100 * (1 - drawn[:, 1] / drawn[:, 0]))
    return f"{words} (95 % interval: {low:.0f} to {high:.0f} %)"


def headline_of(days: pd.DataFrame, effects: pd.DataFrame) -> str:
    """What all ideas save, which of them has the largest share, and whose share is a loss."""
    shares = effects[effects["way"] == "share"].set_index("idea")
    best = str(shares["saving"].idxmax())
    largest = float(shares["saving"].max())
    whole = effects[effects["way"] == "together"].iloc[0]
    plain = days.loc[days["variant"] == PLAIN, "total_eur"].mean()
    dear = [f"{idea} costs {-saving:,.0f} EUR" for idea, saving in shares["saving"].items()
            if saving < -0.5]
    what = "save" if whole["saving"] >= 0 else "cost"
    words = (f"all four ideas {what} {abs(whole['saving']):,.0f} "
             f"{'of' if what == 'save' else 'more than'} {plain:,.0f} EUR a day"
             f"{share_saved(days)}")
    return "; ".join([f"{words}, {best} most with {largest:,.0f} EUR", *dear])


def report_of_days(days: pd.DataFrame, nodes: Nodes, tariff: Tariff) -> DayReport:
    """Report of some days of a cluster.

    Parameters
    ----------
    days : rows of `run_day`, with the column seed
    nodes, tariff : what they were computed with
    """
    effects = pd.concat([effects_of(days, column).assign(quantity=column) for column in SHOWN])
    means = days.groupby("variant").mean(numeric_only=True)
    summary: dict[str, Any] = {"days": int(days["seed"].nunique()), "nodes": len(nodes.cluster)}
    for what, name in ((PLAIN, "plain"), (ALL, "all")):
        summary |= {f"{name}_eur": round(means["total_eur"][what], 6),
                    f"{name}_kwh": round(means["energy_kwh"][what], 6)}
    summary |= {"bound_eur": round(means["bound_eur"].mean(), 6),
                "bound_kwh": round(means["bound_kwh"].mean(), 6), "drawn": drawn_of(nodes),
                "energy_assumptions": f"Watts of the catalogue; an empty node sleeps after "
                f"{ASLEEP_AFTER_S / 60:g} minutes and then draws {ASLEEP_W:g} W; cooling, network "
                f"and disks lie outside. {tariff.words}"}
    words = headline_of(days, effects[effects["quantity"] == "total_eur"])
    return DayReport(summary, dict(zip(TABLES, (days.round(6), effects.round(6)), strict=True)),
                     {CHARTS[0]: partial(worth_chart, days)}, words)
