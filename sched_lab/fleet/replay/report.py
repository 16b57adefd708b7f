"""A comparison becomes a page: which policy served more, drew less and wasted less, by how much, and how sure that is."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ... import __version__
from ..._extras import need
from ...lab import plots
from ...lab.arrays import Truths
from ...lab.commands import as_called
from ...lab.frames import Later, MissingPackage
from ...lab.pages import Page, Part, Picture, Section, Table, page_html
from ...meter import coarser
from .intervals import FEW, LONG, ONE, SHORT
from .problem import Problem, Schedule
from .waits import of_jobs
from .worth import MOST_UNSERVED

if TYPE_CHECKING:
    import altair as alt

    from sched_lab.fleet.replay.compare import Comparison
else:
    alt = Later("altair")  # needed for drawings only

__all__ = ['page_of']

UNITS_S = {"days": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0}


def unit_of(seconds: float) -> str:
    """Largest unit of which a duration has two or more."""
    return next((unit for unit, length_s in UNITS_S.items() if abs(seconds) >= 2 * length_s), "s")


def rounded(value: float) -> str:
    """Three digits, thousands set apart, no exponent."""
    if value == 0:
        return "0"
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share in words; two digits are enough below ten."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 100 else f"{value:.{3 if value >= 10 else 2}g} %"


def duration(seconds: float) -> str:
    """A duration in words."""
    if 0 < abs(seconds) < 1:
        return "under a second"
    unit = unit_of(seconds)
    return f"{rounded(seconds / UNITS_S[unit])} {unit}"


def energy(kwh: float) -> str:
    """An amount of energy in words."""
    return f"{rounded(kwh / 1000)} MWh" if abs(kwh) >= 10_000 else f"{rounded(kwh)} kWh"


LEAST_KWH = 1e-9  # a few milliwatt-seconds: what is less is nothing, and has no per cent
FEWEST_TASKS = 30  # on which a difference may rest
LEAST_SHARE = 0.01  # of what the other policy has, for a difference without an interval


class Difference(NamedTuple):
    """A difference to another policy, and its interval; NaN if it is not known.

    Parameters
    ----------
    value, low, high : the difference, and the ends of its interval
    tasks : that started under both policies
    why : there is no interval, in words
    """

    value: float
    low: float
    high: float
    tasks: int
    why: str = ""

    @property
    def is_clear(self) -> bool:
        """Whether the interval does not include zero, and rests on more than a few tasks."""
        return self.tasks >= FEWEST_TASKS and (self.low > 0 or self.high < 0)

    def tells(self, base: float) -> bool:
        """Whether it is clear, or has no interval and is more than a hundredth of `base`."""
        is_large = self.tasks >= FEWEST_TASKS and abs(self.value) > LEAST_SHARE * abs(base)
        return self.is_clear or bool(self.why) and is_large


def difference_in(row: pd.Series, tasks: int) -> Difference:
    """Difference that a row of `differences` or `levers` holds, of so many tasks."""
    words = {ONE: f"one busy period of {duration(row['longest_s'])} decides this",
             FEW: f"{row['busy_periods']:.0f} busy periods are too few",
             LONG: f"somebody waits for {percent(row['busy_share'])} of the time",
             SHORT: "few parts of the time decide this"}
    return Difference(float(row["difference"]), float(row["low"]), float(row["high"]), tasks,
                      words.get(row["no_interval"], ""))


Say = Callable[[float], str]


def in_words(difference: Difference, say: Say, less: str = "less", more: str = "more") -> str:
    """A difference as part of a sentence.

    Parameters
    ----------
    difference : with its interval
    say : makes words of a positive amount
    less, more : than the other policy
    """
    if np.isnan(difference.value):
        return "not known"
    if difference.value == 0 and not difference.why and not difference.low < difference.high:
        return "the same"
    if difference.tasks < FEWEST_TASKS:
        return f"too few tasks to tell ({difference.tasks})"
    words = f"{say(abs(difference.value))} {less if difference.value < 0 else more}"
    if difference.why:
        return f"{words} (no interval: {difference.why})"
    if not difference.is_clear:
        return "no clear difference"
    low, high = map(say, sorted((abs(difference.low), abs(difference.high))))
    return words if low == high else f"{words} ({low} to {high})"


@dataclass(frozen=True)
class Reading:
    """A comparison, as the sentences read it."""

    comparison: Comparison

    @property
    def against(self) -> str:
        """The policy that the others are compared with."""
        return str(self.comparison.about["against"])

    @property
    def names(self) -> list[str]:
        """All policies."""
        return [str(name) for name in self.comparison.summary["policy"]]

    @property
    def others(self) -> list[str]:
        """All but the one they are compared with."""
        return [name for name in self.names if name != self.against]

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        problem = self.comparison.problem
        return len(problem.submit_s if problem.job is None else np.unique(problem.job))

    def value(self, policy: str, column: str) -> float:
        """A number of the summary."""
        summary = self.comparison.summary
        return float(summary.loc[summary["policy"] == policy, column].iloc[0])

    def values(self, column: str) -> dict[str, float]:
        """A number of the summary for every policy that has it."""
        all_values = {name: self.value(name, column) for name in self.names}
        return {name: value for name, value in all_values.items() if not np.isnan(value)}

    def started_under_both(self, policy: str) -> int:
        """How many tasks started under a policy and under the one it is compared with."""
        begin_s = self.comparison.about["from_s"]
        started = [self.comparison.outcomes[name].schedule.start_s >= begin_s
                   for name in (policy, self.against)]
        return int((started[0] & started[1]).sum())

    def difference(self, policy: str, quantity: str) -> Difference:
        """Difference of a policy, with its interval; NaN if it is not known."""
        frame = self.comparison.differences
        rows = frame[(frame["policy"] == policy) & (frame["quantity"] == quantity)]
        tasks = self.started_under_both(policy)
        if rows.empty:
            return Difference(np.nan, np.nan, np.nan, tasks)
        return difference_in(rows.iloc[0], tasks)

    def share_of(self, column: str) -> Say:
        """How an amount is said: in per cent of what the other policy has, if it has any."""
        base = self.value(self.against, column)
        return lambda amount: percent(amount / base) if base > LEAST_KWH else energy(amount)


def together(names: Sequence[str]) -> str:
    """Names of policies in a sentence, three at most."""
    if len(names) > 3:
        return f"{', '.join(names[:2])} and {len(names) - 2} others"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def served_sentence(reading: Reading) -> str:
    """Who served how many tasks."""
    served = reading.values("served_tasks")
    most = max(served.values())
    least = min(served.values())
    first = [name for name in served if served[name] == most]
    last = [name for name in served if served[name] == least]
    if most == least:
        words = f"All policies served the same number of tasks, {most:,.0f} of {reading.tasks:,}."
    else:
        words = (f"{together(first)} served most tasks, {most:,.0f} of {reading.tasks:,}, and "
                 f"{together(last)} fewest, {least:,.0f}.")
    return f"{words} {refused_sentence(reading.comparison.summary)}".rstrip()


def refused_sentence(summary: pd.DataFrame, least: float = 0.0) -> str:
    """Which share of the tasks and of their GPU hours never starts; empty if none does.

    Parameters
    ----------
    summary : of a comparison
    least : share of GPU hours up to which nothing is said of a policy
    """
    some = summary[(summary["refused_tasks"] > 0) & (summary["refused_gpu_h_share"] >= least)]
    under: dict[str, list[str]] = {}
    for _, row in some.iterrows():
        amount = (f"{percent(row['refused_task_share'])} of the tasks with "
                  f"{percent(row['refused_gpu_h_share'])} of the GPU hours")
        under.setdefault(amount, []).append(str(row["policy"]))
    parts = [f"{amount} under {together(names) if len(names) < len(summary) else 'every policy'}"
             for amount, names in under.items()]
    return f"Never started: {', '.join(parts)}." if parts else ""


def least_energy(reading: Reading) -> str | None:
    """Policy that draws less, by the largest difference that tells; None if there is none."""
    base = reading.value(reading.against, "energy_kwh")
    clear = {name: difference.value for name in reading.others
             if (difference := reading.difference(name, "energy_kwh")).tells(base)
             and difference.value < 0}
    return min(clear, key=lambda name: clear[name]) if clear else None


def work_warning(reading: Reading, policy: str) -> str:
    """Say so if a policy did less work, so that less energy is no saving; or nothing."""
    done = reading.value(policy, "allocated_gpu_h")
    base = reading.value(reading.against, "allocated_gpu_h")
    if done >= 0.999 * base:
        return ""
    return (f" It also did {percent(1 - done / base)} less work (GPU hours), so part of "
            "this is no saving.")


def energy_sentence(reading: Reading) -> str:
    """Who drew least."""
    if not reading.values("energy_kwh"):
        return "How much energy the policies drew is not known: some GPUs have no known watts."
    base = f"{reading.against} ({energy(reading.value(reading.against, 'energy_kwh'))})"
    best = least_energy(reading)
    if best is None:
        return f"No policy drew clearly less energy than {base}."
    words = in_words(reading.difference(best, "energy_kwh"), reading.share_of("energy_kwh"),
                     "less energy")
    return f"{best} drew {words} than {base}.{work_warning(reading, best)}"


def is_of_all(reading: Reading, policy: str) -> bool:
    """Whether a difference of mean waits is that of the means of all tasks that started."""
    both = reading.difference(policy, "mean_wait_s").value
    apart = (reading.value(policy, "mean_wait_s") - reading.value(reading.against, "mean_wait_s"))
    return bool(np.isclose(both, apart, rtol=1e-6, atol=1e-3))


def paired(reading: Reading, policy: str) -> str:
    """Say so if a mean wait is compared over fewer tasks than started; or nothing."""
    if is_of_all(reading, policy):
        return ""
    waits = [duration(reading.value(name, "mean_wait_s")) for name in (policy, reading.against)]
    tasks = reading.started_under_both(policy)
    both = "" if tasks < FEWEST_TASKS else (
        f", counting the {tasks:,} tasks that started under both")
    return f"{both}; over all that started it is {waits[0]} against {waits[1]}"


def waste_sentence(reading: Reading) -> str:
    """Who left fewest GPU hours stranded."""
    stranded = reading.values("stranded_gpu_h")
    least = min(stranded.values())
    base = stranded[reading.against]
    lost = "free but of no use for want of CPU"
    if np.allclose(list(stranded.values()), least, rtol=1e-6, atol=1e-6):
        return f"All left the same number of GPU hours stranded ({lost}): {rounded(least)}."
    first = together([name for name, value in stranded.items() if value <= least * (1 + 1e-9)])
    if base <= least * (1 + 1e-9):
        return f"No policy left fewer GPU hours stranded ({lost}) than {first}: {rounded(least)}."
    return (f"{first} left fewest GPU hours stranded ({lost}): {rounded(least)}, against "
            f"{rounded(base)} of {reading.against}.")


def bound_sentence(reading: Reading) -> list[str]:
    """What is left to save."""
    best = least_energy(reading) or reading.against
    drawn = reading.value(best, "energy_kwh")
    bound = reading.value(best, "bound_energy_kwh")
    if np.isnan(bound) or not drawn > 0:
        return []
    return [f"No scheduler that serves the tasks of {best} draws less than {energy(bound)}, so at "
            f"most {percent(max(0.0, 1 - bound / drawn))} of its energy can still be saved."]


def policy_line(reading: Reading, policy: str) -> str:
    """All differences of a policy in a line."""
    asleep = reading.difference(policy, "energy_asleep_kwh")
    parts = {"energy": in_words(reading.difference(policy, "energy_kwh"),
                                reading.share_of("energy_kwh"))}
    if not np.isnan(asleep.value):
        parts["with empty nodes asleep"] = in_words(asleep, reading.share_of("energy_asleep_kwh"))
    waits = reading.difference(policy, "mean_wait_s")
    parts["mean wait"] = in_words(waits, duration) + (
        "" if np.isnan(waits.value) else paired(reading, policy))
    more = (reading.value(policy, "served_tasks")
            - reading.value(reading.against, "served_tasks"))
    parts["served tasks"] = "the same" if more == 0 else (
        f"{abs(more):,.0f} {'more' if more > 0 else 'fewer'}")
    return f"{policy}: {'; '.join(f'{name} {words}' for name, words in parts.items())}."


def said_of(row: pd.Series) -> str:
    """Name of a lever and its setting."""
    choice = str(row["choice"])
    if row["lever"] == "nodes":
        count = abs(int(choice))
        return f"{count:,} node{'s' if count > 1 else ''} {'fewer' if choice.startswith('-') else 'more'}"
    watts = f"{float(choice):,.0f}" if row["lever"] == "cap" else ""
    return {"queue": f"backfill {choice}", "placement": f"placement by {choice}", "walltimes": "walltimes half as wrong",
            "sleep": f"sleep after {choice} min", "cap": f"a cap of {watts} W",
            "outages": "no outages", "models": "any GPU model for each task", "shares": "whole GPUs in place of shares",
            "mig": "instances of MIG in place of shares"}[str(row["lever"])]


def change_in(row: pd.Series, base: pd.Series, objective: str) -> Difference:
    """What a lever does to an objective, a month, against what was replayed first.

    Parameters
    ----------
    row, base : of the levers
    objective : one of `OBJECTIVES`
    """
    tasks, alone = int(row["tasks"]), "of these tasks alone"
    if objective == "waiting":
        return difference_in(row, tasks)
    if objective == "served":
        apart = row["gpu_h_month"] - base["gpu_h_month"]
        return Difference(-float(apart), np.nan, np.nan, tasks, alone)
    euros = 1.0
    if objective == "cost":
        euros = (row["eur_month"] - base["eur_month"]) / row["kwh_apart"] if row["kwh_apart"] else 0.0
    value, low, high = (float(row[name]) * euros for name in ("kwh_apart", "kwh_low", "kwh_high"))
    return Difference(value, low, high, tasks, alone if np.isnan(low) else "")


AMOUNTS = {"waiting": "mean_wait_s", "energy": "kwh_month", "served": "gpu_h_month", "cost": "eur_month"}
AXES = {"waiting": "mean wait", "energy": "kWh a month", "served": "GPU hours a month", "cost": "EUR a month"}
MORE_WAIT, MORE_WAIT_S = 0.1, 600.0  # of the mean wait, or seconds: what saves energy may cost so much


def leaves_unserved(levers: pd.DataFrame) -> Truths:
    """Whether clearly fewer tasks start under a lever than under what was replayed first: who never starts does not wait."""
    tasks = levers["tasks"].to_numpy(float)
    return np.asarray(tasks < (1 - MOST_UNSERVED) * tasks[0], bool)


NEARLY = 0.9  # of what more nodes bring


def best_lever(levers: pd.DataFrame, objective: str = "waiting") -> pd.Series | None:
    """Lever that does most for an objective, by what tells; None if none does.

    Parameters
    ----------
    levers : what was replayed first at the top
    objective : one of `OBJECTIVES`; what saves energy or money lets no task wait clearly longer, nor serves less.
        More nodes come first only if no lever that needs none does `NEARLY` as much.
    """
    if levers.empty:
        return None
    base = levers.iloc[0]
    clear: list[tuple[float, pd.Series]] = []
    for _, row in levers[~leaves_unserved(levers)].iterrows():
        if objective in ("energy", "cost") and (
                row["difference"] > max(MORE_WAIT * base["mean_wait_s"], MORE_WAIT_S)
                or row["gpu_h_month"] < (1 - LEAST_SHARE) * base["gpu_h_month"]):
            continue
        change = change_in(row, base, objective)
        before = row["mean_wait_s"] - row["difference"] if objective == "waiting" else base[AMOUNTS[objective]]
        if change.value < 0 and change.tells(before):
            clear.append((change.value, row))
    if not clear:
        return None
    most = min(value for value, _ in clear)
    without = [(value, row) for value, row in clear if value <= NEARLY * most and not (
        row["lever"] == "nodes" and float(row["choice"]) > 0)]
    return min(without or clear, key=lambda pair: pair[0])[1]


def sure_share(levers: pd.DataFrame, objective: str) -> float:
    """How much the best lever surely does for an objective, as a share of what is there now.

    By the end of the interval that is nearest zero, or half of a difference that has none. A mean wait under
    ten minutes counts as one of ten.

    Parameters
    ----------
    levers, objective : as `best_lever`
    """
    best = best_lever(levers, objective)
    if best is None:
        return 0.0
    base = levers.iloc[0]
    change = change_in(best, base, objective)
    sure = -change.value / 2 if change.why else -change.high
    return float(sure / max(base[AMOUNTS[objective]], MORE_WAIT_S if objective == "waiting" else LEAST_KWH))


def objective_of(levers: pd.DataFrame, asked: str = "") -> str:
    """What the levers are about: what is asked, or what the best of them surely changes most.

    Parameters
    ----------
    levers : what was replayed first at the top
    asked : one of `OBJECTIVES`, or empty; of what is not known, such as energy without watts, nothing is said
    """
    if "kwh_month" not in levers or asked and np.isnan(levers[AMOUNTS[asked]].iloc[0]):
        return "waiting"
    return asked or max(("waiting", "energy", "served"), key=lambda name: sure_share(levers, name))


def objective_in(comparison: Comparison) -> str:
    """What a comparison is about."""
    return objective_of(comparison.levers, str(comparison.about.get("objective", "")))


def judged(fidelity: pd.DataFrame) -> pd.DataFrame:
    """How well each replay explains the record over all tasks; empty where too few started to tell."""
    of_all = fidelity[fidelity["by"] == "all"]
    return of_all if len(of_all) and of_all["tasks"].iloc[0] >= FEWEST_TASKS else of_all[:0]


def is_believed(fidelity: pd.DataFrame) -> bool:
    """Whether what was replayed first explains the record, or there is none to judge it by."""
    return bool((judged(fidelity)["misfit"][:1] <= 1).all())


def names_levers(comparison: Comparison) -> bool:
    """Whether there are levers to name, of a replay that explains the record."""
    return len(comparison.levers) > 1 and is_believed(comparison.fidelity)


def missing_words(sizes: Mapping[str, float]) -> str:
    """What a replay that does not explain the record may lack, in a sentence, or nothing."""
    parts = []
    if sizes["never_jobs"]:
        parts.append(f"{sizes['never_jobs']:,.0f} tasks that ran by the record never start")
    if sizes["recorded_room_h"] > 1.25 * sizes["replayed_room_h"]:
        waited, replayed = (f"{rounded(sizes[f'{of}_room_h'])} of {rounded(sizes[f'{of}_wait_h'])} hours of waiting"
                            for of in ("recorded", "replayed"))
        parts.append(f"in {waited} by the record, and in {replayed} in the replay, a node had room for who waited, "
                     "which holds, quotas, limits of users or dependencies explain")
    if sizes["findings"]:
        parts.append("nodes held more than nodes.csv gives them")
    if sizes["no_walltimes"]:
        parts.append("there are no walltimes, so bookings know when each job ends")
    return f" What may be missing: {', and '.join(parts)}." if parts else ""


def fidelity_sentence(comparison: Comparison) -> str:
    """Whether what was replayed first explains the record, by how much it does not, and what may be missing."""
    of_all = judged(comparison.fidelity)
    if of_all.empty:
        return ""
    first = of_all.iloc[0]
    in_use = comparison.in_use
    gpus = np.average(in_use["recorded"], weights=in_use["end_s"] - in_use["start_s"])
    apart = (f"a task waits {duration(first['mean_wait_s'])} on average over {first['tasks']:,.0f} tasks, "
             f"{duration(first['recorded_mean_wait_s'])} by the record, and GPUs in use are "
             f"{percent(first['gpus_apart_share'])} apart on average over the hours, {rounded(gpus)} of "
             f"{comparison.problem.cluster.num_gpus.sum():,} by the record")
    rule = f"{first['policy']} with backfill {first['backfill']}"
    if first["misfit"] <= 1:
        return f"{rule} explains the record: {apart}."
    words = f"{rule} does not explain the record, so no lever is named: {apart}."
    nearest = of_all.iloc[int(of_all["misfit"].to_numpy().argmin())]
    if nearest["misfit"] < first["misfit"]:
        words += (f" {nearest['policy']} with backfill {nearest['backfill']} "
                  f"{'explains it' if nearest['misfit'] <= 1 else 'comes nearest'} "
                  f"({duration(nearest['mean_wait_s'])}, {percent(nearest['gpus_apart_share'])}).")
    return words + missing_words(comparison.about["missing"])


def title_of(reading: Reading) -> str:
    """What the page found, in one line: the largest lever, that there is none, or that the model does not fit."""
    levers = reading.comparison.levers
    if not is_believed(reading.comparison.fidelity):
        first = judged(reading.comparison.fidelity).iloc[0]
        return (f"The replay does not explain this record: a mean wait of {duration(first['mean_wait_s'])}, "
                f"not {duration(first['recorded_mean_wait_s'])}")
    if len(levers) < 2 or np.isnan(levers.iloc[0]["mean_wait_s"]):
        return f"What {together(reading.names)} made of {reading.tasks:,} tasks"
    before_s = levers.iloc[0]["mean_wait_s"]
    if (objective := objective_in(reading.comparison)) != "waiting":
        best, say = best_lever(levers, objective), SAID[objective]
        amount = f"{say(levers.iloc[0][AMOUNTS[objective]])} a month"
        if best is None:
            return f"No lever clearly changes the {objective if objective != 'served' else 'work done'} of {amount}"
        words, change = said_of(best), change_in(best, levers.iloc[0], objective).value
        verb = "adds {} to" if objective == "served" else "takes {} off"
        return f"{words[:1].upper()}{words[1:]} {verb.format(say(abs(change)))} the {amount}"
    best = best_lever(levers)
    if best is None:
        return f"No lever clearly shortens the mean wait of {duration(before_s)}"
    words = said_of(best)
    return (f"{words[:1].upper()}{words[1:]} takes {duration(-best['difference'])} off a mean wait "
            f"of {duration(before_s)}")


def lever_sentence(comparison: Comparison) -> str:
    """The largest lever on waiting, with its interval, against what was replayed first."""
    levers, about = comparison.levers, comparison.about
    if levers.empty:
        return ("Nothing was replayed beside what really ran: "
                f"{int(comparison.summary['served_tasks'].sum()):,} tasks were served.")
    base = levers.iloc[0]
    started = f"{int(base['tasks']):,} tasks"
    if np.isnan(base["mean_wait_s"]):
        return f"No task started, 0 of {len(comparison.problem.tasks):,}."
    rule = f"{base['choice']} with backfill {about.get('backfill', 'none')}"
    stands = f"{rule} ({duration(base['mean_wait_s'])} on average over {started})"
    if len(levers) == 1:
        return f"A task waits {duration(base['mean_wait_s'])} on average over {started} under {rule}."
    if (objective := objective_in(comparison)) != "waiting":
        return saving_sentence(levers, objective, rule)
    best = best_lever(levers)
    if best is None:
        few = ", and fewer than 30 tasks tell little" if base["tasks"] < FEWEST_TASKS else ""
        tried = " or ".join(dict.fromkeys("rule of the queue" if lever == "queue" else lever
                                          for lever in levers["lever"][1:]))
        other = "lever" if "worth_gpus" in levers else f"other {tried}"
        return f"No {other} lets a task wait clearly less than {stands}{few}."
    change = change_in(best, base, "waiting")
    others = levers[(levers["lever"] != best["lever"]) | (levers.index == 0)]
    second = best_lever(others)
    if "worth_gpus" in levers:
        beside = "" if second is None else (
            f", while the next, {said_of(second)}, takes off {duration(-second['difference'])}")
        worth = (f" {best['worth_gpus']:,.0f} GPUs more under {rule} would do the same."
                 if best["worth_gpus"] >= 0.5 and best["lever"] != "nodes" else "")
        return (f"The largest lever is {said_of(best)}: a task waits {in_words(change, duration)} than under "
                f"{stands}{beside}.{worth}")
    what = "placement" if best["lever"] == "queue" else "rule of the queue"
    beside = "" if len(others) == 1 else (
        f", while no other {what} clearly shortens it" if second is None else
        f", while another {what} takes off {duration(-second['difference'])} at most")
    return (f"The largest lever is {said_of(best)}: a task waits "
            f"{in_words(change, duration)} than under {stands}{beside}.")


SAID: Mapping[str, Say] = {"energy": energy, "served": lambda hours: f"{rounded(hours)} GPU hours",
                           "cost": lambda euros: f"{rounded(euros)} EUR"}


def saving_sentence(levers: pd.DataFrame, objective: str, rule: str) -> str:
    """The largest lever on energy, GPU hours served or cost, a month.

    Parameters
    ----------
    levers, objective : as `best_lever`
    rule : what was replayed first
    """
    base, say = levers.iloc[0], SAID[objective]
    stands = f"{rule} ({say(base[AMOUNTS[objective]])} a month)"
    best = best_lever(levers, objective)
    if best is None:
        return f"No lever {'serves clearly more' if objective == 'served' else 'takes clearly less'} than {stands}."
    change = change_in(best, base, objective)
    words = in_words(change._replace(why=""), say) if not change.why else (
        f"{say(abs(change.value))} {'more' if objective == 'served' else 'less'}")
    return f"The largest lever is {said_of(best)}: {words} a month than {stands}."


def levers_table(levers: pd.DataFrame, objective: str) -> pd.DataFrame:
    """Levers side by side, the largest first, with what each brings a month and its worth in GPUs.

    Last are those under which clearly fewer tasks start.

    Parameters
    ----------
    levers, objective : as `best_lever`
    """
    base = levers.iloc[0]
    changes = np.array([change_in(row, base, objective).value for _, row in levers.iterrows()])
    order = np.lexsort((changes, leaves_unserved(levers)))
    rows = levers.iloc[order]
    names = [f"as replayed, {row['choice']}" if place == 0 else said_of(row)
             for place, (_, row) in zip(order, rows.iterrows(), strict=True)]
    waits = ["" if np.isnan(wait_s) else duration(wait_s) for wait_s in rows["mean_wait_s"]]
    waits = [f"{base['tasks'] - tasks:,.0f} tasks fewer start" if is_less else wait for wait, tasks, is_less in
             zip(waits, rows["tasks"], leaves_unserved(levers)[order], strict=True)]
    columns = {"worth in GPUs": "worth_gpus", "GPU hours a month": "gpu_h_month", "kWh a month": "kwh_month",
               "EUR a month": "eur_month"}
    return pd.DataFrame({"lever": names, "mean wait": waits} | {
        shown: ["" if np.isnan(value) else rounded(value) for value in rows[name]]
        for shown, name in columns.items()})


def only_sentence(reading: Reading) -> str:
    """What one policy came to that is compared with none."""
    name = reading.against
    drawn = reading.value(name, "energy_kwh")
    wait_s = reading.value(name, "mean_wait_s")
    drew = "what it drew is not known" if np.isnan(drawn) else f"it drew {energy(drawn)}"
    waited = ("no task started" if np.isnan(wait_s) else
              f"a task waited {duration(wait_s)} on average")
    return (f"{name} served {reading.value(name, 'served_tasks'):,.0f} of {reading.tasks:,} tasks; "
            f"{drew}, and {waited}. There is no other policy to compare it with.")


def parted(problem: Problem, schedule: Schedule) -> tuple[int, int, float]:
    """Jobs of several parts: how many, how many started with parts apart, the longest such time."""
    if problem.job is None:
        return 0, 0, 0.0
    start = np.where(schedule.node >= 0, schedule.start_s, np.nan)
    last, first = (of_jobs(problem, start, join) for join in (np.maximum, np.minimum))
    apart_s = (last - first)[np.isfinite(last - first)]
    return (int((np.bincount(problem.job) > 1).sum()), int((apart_s > 0).sum()),
            float(apart_s.max(initial=0)))


def parts_sentence(reading: Reading) -> list[str]:
    """What became of jobs of several parts, which start together."""
    jobs = 0
    apart = []
    for name, outcome in reading.comparison.outcomes.items():
        jobs, num_apart, longest_s = parted(reading.comparison.problem, outcome.schedule)
        if num_apart:
            apart.append(f"{num_apart:,} of them under {name} did not, by up to {duration(longest_s)}")
    if not jobs:
        return []
    said = f"; by the record, {'; '.join(apart)}" if apart else ""
    return [f"{jobs:,} jobs have several parts, most of them on several nodes. Each counts as one task, "
            f"and its parts start together{said}."]


def outage_sentence(reading: Reading) -> list[str]:
    """For how long nodes were closed, how much of the open ones was in use, and what was stopped."""
    closed_h = reading.comparison.about.get("closed_h")
    if closed_h is None:
        return []
    base = reading.against
    curve = reading.comparison.outcomes[base].curve
    hours = float((curve["end_s"] - curve["start_s"]).sum() / 3600)
    gpu_h = reading.comparison.problem.cluster.num_gpus.sum() * hours - reading.value(base, "closed_gpu_h")
    share = f", and {percent(reading.value(base, 'allocated_gpu_h') / gpu_h)} of the GPUs of open nodes were in use" if gpu_h else ""
    stopped = [f"{count:,.0f} run{'s' * (count != 1)} under {name}" for name, count in reading.values("stopped_runs").items() if count]
    return [f"Nodes were closed for {rounded(closed_h['all'])} node hours, {rounded(closed_h['all'] - closed_h['down'])} "
            f"drained and {rounded(closed_h['down'])} down{share} under {base}."
            + (f" Nodes that went down stopped {together(stopped)}." if stopped else "")]


SHORT_S = 7 * 86400  # of data, for intervals


def answer_of(reading: Reading) -> list[Part]:
    """The sentences of the first screen."""
    if not reading.tasks:
        return ["There are no tasks, so there is nothing to compare."]
    lead = [*filter(None, [fidelity_sentence(reading.comparison)]),
            *([lever_sentence(reading.comparison)] if names_levers(reading.comparison) else [])]
    if not reading.others:
        refused = [words] if (words := refused_sentence(reading.comparison.summary)) else []
        return [*lead, only_sentence(reading), *refused, *parts_sentence(reading), *outage_sentence(reading),
                *bound_sentence(reading)]
    lead += [energy_sentence(reading), served_sentence(reading)]
    rest = [waste_sentence(reading), *bound_sentence(reading)]
    confidence = 100 * reading.comparison.about.get("confidence", 0.95)
    note = (f"Numbers in brackets are {confidence:.0f} % intervals; a difference whose interval "
            "includes zero is no clear difference, and one without an interval is that of these tasks "
            "alone.")
    about = reading.comparison.about
    span_s = about["until_s"] - about["from_s"]
    if few := [name for name in reading.others if reading.started_under_both(name) < FEWEST_TASKS]:
        note += (f" Fewer than {FEWEST_TASKS} tasks started under {together(few)} and under "
                 f"{reading.against}, so whatever differs may be chance.")
    if span_s < SHORT_S:
        note += f" Intervals from {duration(span_s)} are too narrow."
    record = ["recorded is what really ran."] if "recorded" in reading.names else []
    record += [*parts_sentence(reading), *outage_sentence(reading)]
    return [" ".join(lead), " ".join(rest),
            [policy_line(reading, name) for name in reading.others], " ".join([note, *record])]


def trade_frame(reading: Reading) -> tuple[pd.DataFrame, str, str]:
    """A row for each policy with x, y and the ends of their intervals; titles of both axes."""
    is_known = bool(reading.values("energy_kwh"))
    column = "energy_kwh" if is_known else "stranded_gpu_h"
    waits = reading.values("mean_wait_s")
    unit = unit_of(max(waits.values(), default=0.0))
    is_large = is_known and max(reading.values(column).values()) >= 10_000
    scales = {"x": 1 / UNITS_S[unit], "y": 0.001 if is_large else 1.0}
    rows = []
    for name in waits:
        row: dict[str, Any] = {"policy": name}
        for axis, quantity in (("x", "mean_wait_s"), ("y", column)):
            difference = reading.difference(name, quantity)
            if axis == "x" and not is_of_all(reading, name):  # an interval of other tasks
                difference = Difference(0.0, 0.0, 0.0, difference.tasks)
            row[axis] = reading.value(name, quantity) * scales[axis]
            for end in ("low", "high"):
                aside = getattr(difference, end) - difference.value
                row[f"{axis}_{end}"] = row[axis] + np.nan_to_num(aside) * scales[axis]
        rows.append(row)
    names = ["policy", *(f"{axis}{end}" for axis in "xy" for end in ("", "_low", "_high"))]
    y_title = f"energy ({'MWh' if is_large else 'kWh'})" if is_known else "stranded GPU hours"
    return pd.DataFrame(rows, columns=names), f"mean wait ({unit})", y_title


def colour_of(names: Sequence[str], legend: alt.Legend) -> alt.Color:
    """The colours of policies, in their order."""
    colours = plots.policy_colours(names)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Color("policy:N", scale=scale, legend=legend)


LEAST_SPAN = 0.1  # of an axis, as a share of its values: a difference of 1 % looks like one


def domain_of(frame: pd.DataFrame, axis: str) -> list[float]:
    """Ends of an axis, with room for names; below zero only if the data are."""
    low = float(frame[f"{axis}_low"].min())
    high = float(frame[f"{axis}_high"].max())
    width = max(high - low, LEAST_SPAN * max(abs(low), abs(high))) or 1.0
    middle = (low + high) / 2
    begin, end = middle - 0.65 * width, middle + 0.65 * width
    return [begin if low < 0 else max(0.0, begin), end]


NEAR = 0.02  # of an axis: points so close cover each other
POINT = 110  # square pixels


def sizes_of(frame: pd.DataFrame) -> list[float]:
    """Size of each point; one that later points would cover is larger than these."""
    place = np.array([(frame[axis] - domain_of(frame, axis)[0]) / np.ptp(domain_of(frame, axis))
                      for axis in "xy"]).T
    later = [(np.abs(place[row + 1:] - place[row]) < NEAR).all(axis=1).sum()
             for row in range(len(place))]
    return [POINT * (1 + over) ** 1.5 for over in later]


def trade_chart(reading: Reading) -> alt.LayerChart:
    """Energy against waiting, a point for each policy."""
    frame, x_title, y_title = trade_frame(reading)
    across, up = (
        channel(f"{axis}:Q", title=title,
                scale=alt.Scale(domain=domain_of(frame, axis), nice=False))
        for channel, axis, title in ((alt.X, "x", x_title), (alt.Y, "y", y_title)))
    frame = frame.assign(size=sizes_of(frame))
    base = alt.Chart(frame).encode(across, up, colour_of(reading.names, alt.Legend(title=None, orient="top", columns=2)))
    aside = base.mark_rule(strokeWidth=2).encode(alt.X("x_low:Q"), alt.X2("x_high"))
    upright = base.mark_rule(strokeWidth=2).encode(alt.Y("y_low:Q"), alt.Y2("y_high"))
    points = base.mark_point(filled=True, opacity=1).encode(alt.Size("size:Q", scale=None))
    chart: alt.LayerChart = for_a_phone(alt.layer(aside, upright, points), 240)
    return chart


NARROW = 330


def for_a_phone(chart: alt.LayerChart | alt.Chart, height: Any) -> Any:
    """A chart that a phone shows whole, with letters that can be read."""
    sized = chart.properties(width=NARROW, height=height)
    return sized.configure_axis(labelFontSize=13, titleFontSize=13).configure_legend(
        labelFontSize=13, labelLimit=150)


def lever_chart(reading: Reading) -> alt.LayerChart:
    """What the levers are about by lever, the largest lever first, with the interval of the difference or words."""
    levers = reading.comparison.levers
    objective = objective_in(reading.comparison)
    column, is_wait, is_served = AMOUNTS[objective], objective == "waiting", objective == "served"
    levers = levers[levers[column].notna() & ~leaves_unserved(levers)]
    unit = unit_of(float(levers[column].max())) if is_wait else ""
    say, scale = (duration, 1 / UNITS_S[unit]) if is_wait else (SAID[objective], 1.0)
    rows = []
    for number, (_, row) in enumerate(levers.iterrows()):
        change = change_in(row, levers.iloc[0], objective)
        said = "" if number == 0 else in_words(change, say, *(("more", "less") if is_served else ())).partition(" (")[0]
        rows.append({
            "lever": said_of(row) if number else f"as replayed, {row['choice']}",
            "amount": row[column] * scale, "is first": number == 0,
            "low": (row[column] + change.low - change.value) * scale,
            "high": (row[column] + change.high - change.value) * scale,
            "said": f"{said}, no interval" if is_wait and change.why and said != "the same" else said})
    frame = pd.DataFrame(rows).sort_values("amount", kind="stable", ascending=not is_served)
    frame["under"] = frame["lever"] + frame["said"].map(lambda said: f": {said}" if said else "")
    frame["low"], frame["high"] = frame["low"].clip(lower=0), frame["high"]
    lane = alt.Y("lever:N", title=None, sort=list(frame["lever"]), axis=None)
    base = alt.Chart(frame).encode(lane)
    bars = base.mark_bar(height=12, yOffset=8).encode(
        alt.X("amount:Q", title=f"{AXES[objective]}{f' ({unit})' if unit else ''}"),
        alt.Color("is first:N", legend=None, scale=alt.Scale(
            domain=[False, True], range=[plots.PALETTE[0], plots.LINE])))
    ends = base.transform_filter("isValid(datum.low) && datum.low < datum.high").mark_rule(
        strokeWidth=2, yOffset=8).encode(alt.X("low:Q"), alt.X2("high:Q"))
    words = base.mark_text(align="left", baseline="bottom", fontSize=13, yOffset=-1).encode(
        alt.Text("under:N"), x=alt.value(0))
    chart: alt.LayerChart = for_a_phone(alt.layer(bars, ends, words), alt.Step(40))
    return chart


MOST_POINTS = 240


SERIES = {
    "power": ("eopc_w", 0.001, "power (kW)", "Power of the cluster over time."),
    "allocated": ("allocated_gpu", 1.0, "allocated GPUs", "GPUs that tasks hold, over time."),
    "waiting": ("waiting_tasks", 1.0, "waiting tasks", "Tasks that wait, over time.")}


def step_chart(reading: Reading, curves: Mapping[str, pd.DataFrame], title: str, scale: float = 1.0) -> alt.Chart:
    """Curves over time by name, each with start_s, end_s and a quantity; up to when the last task has come or ended."""
    from_s = reading.comparison.about["from_s"]
    times_s = np.concatenate([reading.comparison.problem.submit_s, *(
        one.schedule.end_s for one in reading.comparison.outcomes.values())])
    last_s = max(times_s[np.isfinite(times_s)].max(initial=from_s), from_s + 1)
    unit, parts = unit_of(min(last_s, reading.comparison.about["until_s"]) - from_s), []
    for name, curve in curves.items():
        curve = curve.astype(float)[curve["start_s"].to_numpy(float) < last_s]
        edges_s = np.append(curve["start_s"][::-(-len(curve) // MOST_POINTS)], curve["end_s"].iloc[-1])
        curve = coarser(curve, edges_s, ())
        time = (curve["start_s"] - from_s) / UNITS_S[unit]
        parts.append(pd.DataFrame({"policy": name, "time": time.round(5),
                                   "value": (curve.iloc[:, 2] * scale).round(4)}))
    frame = pd.concat(parts, ignore_index=True)
    lines = alt.Chart(frame).mark_line(interpolate="step-after", strokeWidth=1.6).encode(
        alt.X("time:Q", title=f"time ({unit})", scale=alt.Scale(nice=False)),
        alt.Y("value:Q", title=title),
        colour_of(list(curves), alt.Legend(title=None, symbolType="stroke", orient="top", columns=2)))
    chart: alt.Chart = for_a_phone(lines, 190)
    return chart


MOST_GROUPS = 6  # of each kind


def groups_table(reading: Reading) -> pd.DataFrame:
    """Mean waits in s of the largest groups of tasks, with a column for each policy."""
    waits = reading.comparison.waits
    waits = waits[waits["by"] != "all"]
    most = waits.groupby(["by", "value"], sort=False)["tasks"].max().reset_index()
    most = most.sort_values(["by", "tasks"], ascending=[True, False], kind="stable")
    most = most.groupby("by", sort=False).head(MOST_GROUPS)
    both = most[["by", "value"]].merge(waits, on=["by", "value"])
    both["group"] = both["by"] + ": " + both["value"].astype(str).str.slice(0, 40)
    wide = both.pivot_table("mean_wait_s", "group", "policy", sort=False)
    names = [name for name in reading.names if name in wide]
    return wide[names].add_suffix(" (s)").reset_index()


def ledger_frame(problem: Problem) -> pd.DataFrame:
    """What was refused, interpreted or filled in: rows, what, file, reason."""
    ledger = problem.ledger
    counted = ledger.groupby(["what", "file", "reason"], sort=False)["count"].sum().reset_index()
    counted = counted.sort_values("count", ascending=False, kind="stable")
    return counted[["count", "what", "file", "reason"]].rename(columns={"count": "rows"})


def not_served(reading: Reading) -> pd.DataFrame:
    """Tasks that never started, by policy and reason: policy, tasks, state, in the way."""
    parts = [outcome.failures.assign(policy=name)
             for name, outcome in reading.comparison.outcomes.items()]
    failures = pd.concat(parts, ignore_index=True)
    counted = failures.groupby(["policy", "state", "failed_for"], sort=False).size()
    frame = counted.reset_index(name="tasks")[["policy", "tasks", "state", "failed_for"]]
    return frame.rename(columns={"failed_for": "in the way"})


MEANINGS = {
    "served_tasks": "tasks that started", "refused_tasks": "tasks that never did",
    "refused_task_share": "of all tasks", "refused_gpu_h": "GPU hours that those asked for",
    "refused_gpu_h_share": "of the GPU hours that all asked for",
    "mean_wait_s": "mean of the seconds from submission to start",
    "p99_wait_s": "exceeded by 1 % of them", "allocated_gpu_h": "GPU hours that tasks held",
    "stranded_gpu_h": "free, but of no use for want of CPU",
    "closed_gpu_h": "of closed nodes, while no task held them", "stopped_runs": "of nodes that went down",
    "energy_kwh": "integral of the power", "energy_asleep_kwh": "with empty nodes asleep",
    "bound_mean_wait_s": "no scheduler waits less", "bound_energy_kwh": "no scheduler draws less",
    "bound_energy_asleep_kwh": "nor less than this, with empty nodes asleep"}


def known_numbers(frame: pd.DataFrame) -> list[Part]:
    """The summary, a column for each policy; what is not known is named."""
    numbers = frame.set_index("policy")
    empty = [str(name) for name in numbers if numbers[name].isna().all()]
    table = numbers.drop(columns=empty).T.rename_axis("").reset_index()
    table["meaning"] = table[""].map(MEANINGS)
    parts: list[Part] = [Table(table, file="summary.csv", most_rows=len(table))]
    if empty:
        parts.append(f"Not known, or not asked for: {', '.join(empty)}.")
    return parts


def differences_frame(reading: Reading) -> pd.DataFrame:
    """The differences, with a verdict."""
    frame = reading.comparison.differences.copy()
    pairs = [reading.difference(policy, quantity)
             for policy, quantity in zip(frame["policy"], frame["quantity"], strict=True)]
    frame["verdict"] = [in_words(pair, lambda _: "clearly").partition(" (")[0] for pair in pairs]
    return frame


def fidelity_parts(reading: Reading) -> list[Part]:
    """Every replay beside the record: GPUs in use, waits and starts."""
    fidelity = reading.comparison.fidelity
    if fidelity.empty:
        return []
    first = fidelity.iloc[0]
    mine = fidelity[(fidelity["policy"] == first["policy"]) & (fidelity["backfill"] == first["backfill"])
                    & (fidelity["by"] != "all")].groupby("by", sort=False).head(MOST_GROUPS)
    rows = pd.concat([fidelity[fidelity["by"] == "all"], mine])
    of = rows["by"] + ": " + rows["value"].astype(str).str.slice(0, 40)
    words = rows["policy"] + ", " + rows["backfill"]
    table = pd.DataFrame({"replay, or its tasks": words.where(rows["by"] == "all", of), "tasks": rows["tasks"],
                          "misfit": rows["misfit"].map(lambda value: "" if np.isnan(value) else rounded(value))})
    for name, shown in (("gpus_apart_share", "GPUs in use apart"), ("within_60_s_share", "starts within 1 min"),
                        ("within_600_s_share", "10 min"), ("within_3600_s_share", "1 h")):
        table[shown] = rows[name].map(lambda share: "" if np.isnan(share) else percent(share))
    for name, shown in (("mean", "mean wait"), ("p50", "median"), ("p90", "p90")):
        table[f"{shown} (recorded)"] = [f"{duration(now)} ({duration(then)})" for now, then in zip(
            rows[f"{name}_wait_s"], rows[f"recorded_{name}_wait_s"], strict=True)]
    return ["A replay explains the record if its mean wait is within a quarter of the recorded one, or a minute, and "
            "its GPUs in use are within a tenth on average over the hours: misfit is 1 or less then. The first replay "
            "is also shown by size and queue.", Table(table, file="fidelity.csv", most_rows=40)]


def charts_of(reading: Reading) -> dict[str, Any]:
    """Charts by name; none where there is nothing to draw."""
    if not reading.tasks:
        return {}
    comparison, charts = reading.comparison, dict[str, Any]()
    if len(judged(comparison.fidelity)):
        names = {"recorded": "by the record", "replayed": "in the replay"}
        charts["use"] = step_chart(reading, {shown: comparison.in_use[["start_s", "end_s", name]]
                                             for name, shown in names.items()}, "GPUs in use")
    if names_levers(comparison) and comparison.levers["mean_wait_s"].notna().any():
        charts["levers"] = lever_chart(reading)
    if reading.values("mean_wait_s"):
        charts["trade"] = trade_chart(reading)
    for name, (column, scale, title, _) in SERIES.items():
        curves = {policy: outcome.curve[["start_s", "end_s", column]] for policy, outcome in comparison.outcomes.items()}
        if any(curve[column].notna().any() for curve in curves.values()):
            charts[name] = step_chart(reading, curves, title, scale)
    return charts


def svgs_of(charts: Callable[[], Mapping[str, Any]]) -> dict[str, str] | None:
    """Drawings by name; None without the packages that draw."""
    try:
        need("altair", "vl_convert")
    except MissingPackage:
        return None  # the page says so, at the place of each picture
    named = dict(charts())
    drawn = plots.draw_apart({f"{i}.svg": chart for i, chart in enumerate(named.values())})
    return {name: drawn[str(i)] for i, name in enumerate(named) if str(i) in drawn}


Svgs = Mapping[str, str] | None  # None if there are none to be had


def picture(svgs: Svgs, name: str, words: str) -> list[Part]:
    """A picture; nothing if there was nothing to draw."""
    if svgs is None:
        return [Picture(words)]
    return [Picture(words, svgs[name])] if name in svgs else []


def evidence_of(reading: Reading, svgs: Svgs) -> list[Section]:
    """What stands below the answer."""
    comparison = reading.comparison
    policies = known_numbers(comparison.summary)
    if len(comparison.differences):
        policies += [f"Differences to {reading.against}, with their intervals:",
                     Table(differences_frame(reading), {}, "differences.csv", 40)]
    over_time: list[Part] = []
    for name, (*_, words) in SERIES.items():
        over_time += picture(svgs, name, words)
    sections = [Section("How well the replay knows this cluster", fidelity_parts(reading)),
                Section("The policies side by side", policies),
                Section("Power and use over time", over_time)]
    if len(groups := groups_table(reading)):
        sections.append(Section("Who waited", [
            "Mean waits by size of the task, queue and user; medians, tails and slowdowns are in "
            "waits.csv.", Table(groups, most_rows=3 * MOST_GROUPS)]))
    return [section for section in sections if section.parts]


def foundation_of(reading: Reading) -> list[Section]:
    """What the numbers rest on."""
    comparison = reading.comparison
    failures = not_served(reading)
    findings = [words for outcome in comparison.outcomes.values() for words in outcome.findings]
    ledger = ledger_frame(comparison.problem)
    about = comparison.about
    options = {name: value for name, value in about.items()
               if name not in ("assumptions", "files", "then") and not isinstance(value, dict)}
    frame = pd.DataFrame({"option": list(options),
                          "value": [", ".join(map(str, value)) if isinstance(value, list | tuple) else
                                    "" if value is None else str(value) for value in options.values()]})
    zero = comparison.problem.zero
    dates = f"Second 0 is {zero}." if zero else "The data have no dates; second 0 is their own."
    sections = [
        Section("What was not served", [Table(failures)] if len(failures) else []),
        Section("What is wrong with the record", [findings] if findings else []),
        Section("The data", ["What was refused, interpreted or filled in on the way, counted."
                             if len(ledger) else "Nothing had to be refused or interpreted.",
                             *([Table(ledger, {}, "ledger.csv", 30)] if len(ledger) else [])]),
        Section("What was assumed", [[*map(str, about.get("assumptions", ()))], dates,
                                     Table(frame, most_rows=len(frame))])]
    return [section for section in sections if section.parts]


def page_of(comparison: Comparison) -> str:
    """The page of a comparison, as HTML that needs nothing else and runs nothing.

    Without the extra `charts` it has words in place of the pictures.
    """
    reading = Reading(comparison)
    svgs = svgs_of(lambda: charts_of(reading))
    answer = answer_of(reading)
    trade = picture(svgs, "trade", "Every policy: mean wait to the right, energy upwards; left and "
                    "low is good. Lines are 95 % intervals of the difference to "
                    f"{reading.against}.")
    files = comparison.about.get("files", {})
    checksums = pd.DataFrame({"file": list(files), "sha256": list(files.values())})
    again = Section("How to reproduce it", [
        f"Written by sched_lab {__version__}. The same files, options and seed give the same "
        "tables, bit for bit.", *([Table(checksums, most_rows=len(files))] if files else [])])
    sections = evidence_of(reading, svgs) if reading.tasks else []
    objective, levers = objective_in(comparison), list[Part]()
    if names_levers(comparison):
        axis = AXES[objective]
        levers = picture(svgs, "levers", f"{axis[:1].upper()}{axis[1:]} under each lever, the largest lever first; lines are "
                         "95 % intervals of the difference to what was replayed first.")
    if levers and "worth_gpus" in comparison.levers:
        levers = [Table(levers_table(comparison.levers, objective), {}, "levers.csv", 40), *levers]
    use = picture(svgs, "use", "GPUs in use over time, by the record and in what was replayed first."
                  ) if len(judged(comparison.fidelity)) else []
    then = [f"What to type next: {comparison.about['then']}"] if "then" in comparison.about else []
    return page_html(Page(title_of(reading), [*answer[:1], *then, *use, *levers, *answer[1:2], *trade,
                                              *answer[2:]],
                          [*sections, *foundation_of(reading), again], as_called.get(), "replay"))
