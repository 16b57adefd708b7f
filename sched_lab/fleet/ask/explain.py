"""The best of all nodes is a claim about every node: one line for each of them proves it, and says what would have to change."""

# A module, written by hand.

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ...cluster import State
from ...lab.arrays import Integers, Truths
from ...lab.frames import InputError, Later
from ...lab.jit import interpreted
from ...lab.plots import policy_colours
from ...lab.reports import Report
from ...online.bid import put_prices
from ...online.inflation import LACKS, ArrivingTasks, draw_gpus, stage_now, weighing_of
from ...online.model import (
    AS_IS,
    CONDITIONS,
    GROUP,
    ONE_AT_RANDOM,
    Policy,
    PowerSettings,
    Score,
    World,
    gpu_indices,
    is_share,
    lacking_everywhere,
    slots_for_application,
    with_memory,
)
from ...online.policies import policy_of
from ...traces import Tasks
from ..read.objects import Rule, meets
from ..read.tables import OUTAGES
from ..replay.case import by_turn, copied, first_place, in_use, take
from ..replay.problem import (
    MANY,
    Constraint,
    Problem,
    Schedule,
    Sight,
    constraint_of,
    is_part,
    models_without_watts,
    place_running,
    recorded,
    running_at,
    tolerates,
    counted_world,
)

if TYPE_CHECKING:
    import altair as alt
else:
    alt = Later("altair")  # needed for drawings only

__all__ = ['Explanation', 'explain']


class Moment(NamedTuple):
    """A task in front of a cluster: all that a policy looks at.

    Parameters
    ----------
    world : the nodes as they stand without the task
    empty : state of the same nodes without any task
    task : class of the task, row of `world.demand`
    memory_mib : memory of the task
    die : a large random number, for policies that draw
    profiles : names of the profiles of instances, as `world.limits` counts them
    """

    world: World
    empty: State
    task: int
    memory_mib: int
    die: int = 0
    profiles: tuple[str, ...] = ()


def gpus_that_fit(moment: Moment) -> Truths:
    """GPUs that have enough left for the task, (nodes, GPUs)."""
    world = moment.world
    left_milli = world.state.gpu_left_milli
    is_there = np.arange(left_milli.shape[1]) < world.power.num_gpus[:, None]
    has_room: Truths = is_there & (left_milli >= world.demand.gpu_milli[moment.task])
    return has_room


def counted_at(moment: Moment) -> tuple[list[str], Integers, Integers, Integers]:
    """Instances that the task asks for and the nodes have; of no profile if it asks for none.

    Returns
    -------
    (profiles,) names, and how many of each it asks for; (nodes, profiles) how many each node has
    left, and how many it has
    """
    limits = moment.world.limits
    limit = moment.world.demand.limit[moment.task]
    need = limits.need[limit] if limit >= 0 else np.zeros(limits.room.shape[1], np.int64)
    asked = np.flatnonzero(need)
    left = limits.room - limits.num @ limits.need
    return ([moment.profiles[profile] for profile in asked], need[asked], left[:, asked],
            limits.room[:, asked])


def lacks_of(moment: Moment) -> dict[str, Integers]:
    """What each node lacks for the task by reason, (nodes,) each; 0 throughout if it is feasible.

    An amount for CPU, memory, GPUs and instances of MIG; tasks of its application that would have
    to leave, if that has a limit; 1 for any other condition that does not hold.
    """
    world = moment.world
    demand = world.demand
    task = moment.task
    limit = demand.limit[task]
    lack = lacking_everywhere(world, task, moment.memory_mib)
    amounts = {
        "cpu_milli": demand.cpu_milli[task] - world.state.cpu_left_milli,
        "memory_mib": moment.memory_mib - world.state.memory_left_mib,
        "gpus": demand.num_gpus[task] - gpus_that_fit(moment).sum(axis=1)}
    unasked = {"instances", "mig_instances"}
    if limit >= 0 and world.limits.most[limit] < MANY:
        unasked.remove("instances")
        amounts["instances"] = 1 - np.array([
            slots_for_application(world.limits, limit, num) for num in world.limits.num])
    _, need, left, room = counted_at(moment)
    if len(need):
        unasked.remove("mig_instances")
        amounts["mig_instances"] = np.maximum(need - left, 0).sum(axis=1)
        is_short = (room < need).any(axis=1)
        lack = np.where(is_short, lack & ~GROUP, lack)  # its group says no more than that
    return {condition.name: np.where(lack >> bit & 1, amounts.get(condition.name, 1), 0)
            for bit, condition in enumerate(CONDITIONS) if condition.name not in unasked}


def is_refused(lacks: dict[str, Integers]) -> Truths:
    """Whether a node lacks anything, (nodes,)."""
    refused: Truths = np.any([amount > 0 for amount in lacks.values()], axis=0)
    return refused


def points_of(score: Integers, normalise: int, die: int) -> Integers:
    """Points of the feasible nodes for one score, (feasible,), spread as the engine spreads them.

    Parameters
    ----------
    score : (feasible,) what the policy's function wrote, at least one node
    normalise, die : as in `Score`; a large random number
    """
    if normalise == ONE_AT_RANDOM:
        return np.where(np.arange(len(score)) == die % len(score), 100, 0)
    if normalise < 0:
        return score
    width = int(score.max() - score.min())
    if width == 0:
        return np.full(len(score), normalise)
    spread: Integers = (score - score.min()) * 100 // width
    return spread


class Part(NamedTuple):
    """What one score of a policy says of the feasible nodes, (feasible,) each.

    Parameters
    ----------
    name, weight, form : of the score
    score, points : as its function writes it, and as it is added up
    gpu_mask : GPUs that the task would get
    """

    name: str
    weight: int
    form: Score
    score: Integers
    points: Integers
    gpu_mask: Integers


def weighted_scores(moment: Moment, policy: Policy, nodes: Integers) -> list[Part]:
    """Every score that has a weight at this moment, on the feasible nodes."""
    weighing = weighing_of(policy, moment.world._replace(state=moment.empty))
    if policy.dials:
        put_prices(moment.world)
    weights = weighing.weights[stage_now(weighing, 0, in_use(moment.empty, moment.world.state))]
    world, _ = with_memory(moment.world, np.array([moment.task]), np.array([moment.memory_mib]))
    score = np.zeros(len(moment.world.gpu_model), np.int32)
    gpu_mask = np.zeros(len(score), np.int64)
    parts = []
    for form, weight in zip(policy.scores, weights.tolist(), strict=True):
        if weight > 0:
            form.kernel(world, 0, nodes, score, gpu_mask)  # its only class
            here = score[nodes].astype(np.int64)
            parts.append(Part(form.label, weight, form, here,
                              points_of(here, form.normalise, moment.die), gpu_mask[nodes]))
    return parts


class Ballot(NamedTuple):
    """What all nodes say to a task.

    Parameters
    ----------
    lacks : `lacks_of` the moment
    nodes : (feasible,) rows of the nodes that could take it, the best first
    parts, total : scores and weighted sum, in the same order
    gpu_mask : GPUs that the task gets on the first of these nodes; 0 if there is none
    """

    lacks: dict[str, Integers]
    nodes: Integers
    parts: list[Part]
    total: Integers
    gpu_mask: int

    @property
    def unit(self) -> int:
        """Sum of the weights: sums over it are points."""
        return sum(part.weight for part in self.parts)

    @property
    def word(self) -> str:
        """Unit of the sums: points, or another one in which a score is added up as it is."""
        units = [part.form.unit for part in self.parts if part.form.normalise == AS_IS]
        return next((unit for unit in units if unit not in ("", "points")), "points")

    @property
    def is_drawn(self) -> bool:
        """Whether one of the scores is a draw."""
        return any(part.form.normalise == ONE_AT_RANDOM for part in self.parts)

    @property
    def is_mix(self) -> bool:
        """Whether two scores were weighed, so that another weight might change the verdict."""
        return len(self.parts) == 2 and not self.is_drawn


def vote(moment: Moment, policy: Policy) -> Ballot:
    """Ask every node, and put the feasible ones in order: most points first, then as they stand."""
    lacks = lacks_of(moment)
    nodes = np.flatnonzero(~is_refused(lacks))
    if not len(nodes):
        return Ballot(lacks, nodes, [], np.zeros(0, np.int64), 0)
    parts = weighted_scores(moment, policy, nodes)
    total = np.sum([part.weight * part.points for part in parts], axis=0)
    order = np.argsort(-total, kind="stable")
    ranked = [part._replace(score=part.score[order], points=part.points[order],
                            gpu_mask=part.gpu_mask[order]) for part in parts]
    marked = max(ranked, key=lambda part: part.weight).gpu_mask[0]  # the first of equals
    num_gpus = moment.world.demand.num_gpus[moment.task]
    gpu_mask = draw_gpus(int(marked), int(num_gpus), moment.die >> 31)
    return Ballot(lacks, nodes[order], ranked, total[order], int(gpu_mask))


def gpu_score(moment: Moment, part: Part, node: int, gpu: int) -> int:
    """Score of a node if the task got just this GPU: worth after less worth before."""
    world = moment.world
    worth = part.form.worth
    assert worth is not None
    cpu_left = world.state.cpu_left_milli[node]
    gpu_left = world.state.gpu_left_milli[node]
    gpu_after = gpu_left.copy()
    gpu_after[gpu] -= world.demand.gpu_milli[moment.task]
    cpu_after = cpu_left - world.demand.cpu_milli[moment.task]
    rise = worth(world, node, cpu_after, gpu_after) - worth(world, node, cpu_left, gpu_left)
    gain = part.form.gain
    return int(gain(world, moment.task, node, rise) if gain else rise)


def gpu_rows(moment: Moment, ballot: Ballot) -> Iterator[dict[str, Any]]:
    """Every GPU of every node: what is left, whether it fits, and what it would score."""
    world = moment.world
    fits = gpus_that_fit(moment)
    chooses = is_share(world.demand.gpu_milli[moment.task])
    position = {node: place for place, node in enumerate(ballot.nodes.tolist())}
    known: dict[tuple[Any, ...], int] = {}
    is_there = np.arange(fits.shape[1]) < world.power.num_gpus[:, None]
    for node, gpu in np.argwhere(is_there).tolist():
        left_milli = int(world.state.gpu_left_milli[node, gpu])
        row = {"node": node, "gpu": gpu, "left_milli": left_milli, "fits": bool(fits[node, gpu]),
               "given": position.get(node) == 0 and bool(ballot.gpu_mask >> gpu & 1)}
        for part in ballot.parts if node in position and fits[node, gpu] else ():
            score = int(part.score[position[node]])
            if chooses and part.form.worth:
                key = part.name, node, left_milli  # GPUs with equally much left are alike
                if key not in known:
                    known[key] = gpu_score(moment, part, node, gpu)
                score = known[key]
            row[f"{part.name}_score"] = score
        yield row


End = tuple[Fraction, bool]  # of a range, and whether it belongs to it


def winning_shares(ballot: Ballot, place: int) -> tuple[End, End] | None:
    """Shares of the second score's weight, 0 to 1, with which a node would win; None if with none.

    Parameters
    ----------
    ballot : of a policy with two scores
    place : of the node in the ranking
    """
    zero, one = (part.points - part.points[place] for part in ballot.parts)
    low: End = (Fraction(0), True)
    high: End = (Fraction(1), True)
    for other in range(len(ballot.nodes)):
        ahead = int(zero[other])  # of the node at share 0
        slope = int(one[other]) - ahead
        wins_tie = bool(ballot.nodes[place] <= ballot.nodes[other])
        if slope == 0:
            if ahead > 0 or not (ahead < 0 or wins_tie):
                return None
        elif slope < 0:
            low = max(low, (Fraction(ahead, -slope), wins_tie), key=lambda end: (end[0], -end[1]))
        else:
            high = min(high, (Fraction(-ahead, slope), wins_tie))
    return (low, high) if low[0] < high[0] or low == high and low[1] else None


def winner_past(ballot: Ballot, end: End, is_above: bool) -> int:
    """Place of the node that wins where the range of another ends: at the end, or just past it."""
    share, is_in = end
    zero, one = (part.points for part in ballot.parts)
    sums = (share.denominator - share.numerator) * zero + share.numerator * one
    gain = (one - zero) * (is_in * (1 if is_above else -1))  # past it, the steepest of those that are equal there
    return int(np.lexsort((ballot.nodes, -gain, -sums))[0])


def range_of(ballot: Ballot, place: int, names: Sequence[str]) -> dict[str, Any] | None:
    """With which shares a node wins, for JSON, and who wins past each end."""
    ends = winning_shares(ballot, place)
    if ends is None:
        return None
    about: dict[str, Any] = {}
    for name, end, last in zip(("from", "until"), ends, (0, 1), strict=True):
        about[name] = {"value": float(end[0]), "exact": str(end[0]), "included": end[1]}
        if end != (Fraction(last), True):
            about[name]["then"] = names[ballot.nodes[winner_past(ballot, end, last == 1)]]
    return about


def runner_up_of(ballot: Ballot, names: Sequence[str]) -> dict[str, Any] | None:
    """The second best node, what it lacks by score, and with which weights it would have won."""
    if len(ballot.nodes) < 2:
        return None
    behind = {part.name: part.weight * int(part.points[0] - part.points[1]) / ballot.unit
              for part in ballot.parts}
    about = {"node": names[ballot.nodes[1]],
             "points_lacking": int(ballot.total[0] - ballot.total[1]) / ballot.unit,
             "points_lacking_by_score": behind}
    return about | ({"weights_to_win": range_of(ballot, 1, names)} if ballot.is_mix else {})


def weight_of(ballot: Ballot, names: Sequence[str]) -> dict[str, Any] | None:
    """The weight of a mix of two scores, and the weights with which the verdict is the same."""
    if not ballot.is_mix:
        return None
    return {"score": ballot.parts[1].name, "now": ballot.parts[1].weight / ballot.unit,
            "same_verdict": range_of(ballot, 0, names)}


def freed(moment: Moment, lacks: dict[str, Integers], node: int) -> tuple[Moment, dict[int, int]]:
    """The moment with just so much freed on a node that it can take the task.

    Returns
    -------
    the other moment, and the milli-GPU that were freed on each GPU
    """
    world = copied(moment.world)
    world.state.cpu_left_milli[node] += lacks["cpu_milli"][node]
    world.state.memory_left_mib[node] += lacks["memory_mib"][node]
    left_milli = world.state.gpu_left_milli[node]
    is_closed = moment.empty.gpu_left_milli[node] == 0
    asked_milli = int(world.demand.gpu_milli[moment.task])
    emptiest = sorted(range(int(world.power.num_gpus[node])), key=lambda gpu: (is_closed[gpu], -left_milli[gpu]))
    missing = {gpu: int(asked_milli - left_milli[gpu])
               for gpu in sorted(emptiest[:world.demand.num_gpus[moment.task]])
               if left_milli[gpu] < asked_milli}
    for gpu, milli in missing.items():
        left_milli[gpu] += milli
    world.limits.num[node] = 0
    return moment._replace(world=world), missing


def nearest_of(moment: Moment, policy: Policy, ballot: Ballot,
               names: Sequence[str]) -> dict[str, Any] | None:
    """The refused node that lacks the smallest part of what is asked for, and whether it would win.

    None if no refused node could take the task even without any other task on it.
    """
    world = moment.world
    alone = world._replace(state=moment.empty, residents=np.zeros_like(world.residents),
                           limits=world.limits._replace(num=np.zeros_like(world.limits.num)))
    empty = lacks_of(moment._replace(world=alone))
    could = np.flatnonzero(is_refused(ballot.lacks) & ~is_refused(empty))
    if not len(could):
        return None
    asked = {"cpu_milli": world.demand.cpu_milli[moment.task], "memory_mib": moment.memory_mib,
             "gpus": world.demand.num_gpus[moment.task]}
    share = np.sum([amount[could] / max(1, int(asked.get(reason, 1)))
                    for reason, amount in ballot.lacks.items()], axis=0)
    node = int(could[np.argmin(share)])
    here = {reason: int(amount[node]) for reason, amount in ballot.lacks.items()}
    other, missing = freed(moment, ballot.lacks, node)
    return {"node": names[node], "cpu_milli": here["cpu_milli"], "memory_mib": here["memory_mib"],
            "gpu_milli_by_gpu": missing,
            **{reason: here[reason] for reason in ("instances", "mig_instances")
               if here.get(reason)},
            "would_win": vote(other, policy).nodes[:1].tolist() == [node]}


def about_task(tasks: Tasks, row: int) -> dict[str, Any]:
    """What a task asks for."""
    amounts = {name: int(getattr(tasks, name)[row])
               for name in ("cpu_milli", "memory_mib", "num_gpus", "gpu_milli")}
    return {"name": str(tasks.name[row]), **amounts, "gpu_models": str(tasks.gpu_spec[row])}


def number_words(number: float, unit: str) -> str:
    """A number with its unit, such as 1 point or 2 points."""
    return f"{number:,.7g} {unit.removesuffix('s') if number == 1 else unit}"


def amount_words(cpu_milli: float, memory_mib: float) -> list[str]:
    """CPU and memory above 0, in words."""
    memory = f"{memory_mib / 1024:.4g} GiB" if memory_mib >= 1024 else f"{memory_mib:g} MiB"
    return [*([f"{cpu_milli / 1000:g} vCPU"] if cpu_milli else []),
            *([memory] if memory_mib else [])]


def gpu_words(num_gpus: int, gpu_milli: int) -> str:
    """GPUs that are asked for, in words."""
    if is_share(gpu_milli):
        return f"a GPU with {gpu_milli} milli free"
    return "a free GPU" if num_gpus == 1 else f"{num_gpus} free GPUs"


RULES = {"In": "wants {}", "NotIn": "must not be {}", "Exists": "must be there",
         "DoesNotExist": "must not be there", "Gt": "wants more than {}",
         "Lt": "wants less than {}"}


def rule_words(rule: Rule, value: str | None) -> str:
    """What a label is, and what a rule wants it to be."""
    label = rule.key if rule.key == "metadata.name" else f"label {rule.key}"
    now = "is missing" if value is None else f"is {value or 'empty'}"
    return f"{label} {now}, {RULES[rule.operator].format(' or '.join(rule.values))}"


def objections(sight: Sight, constraint: Constraint, node: int) -> list[str]:
    """What labels and taints of a node keep a task away, in words; none if it is admitted."""
    labels = sight.labels[node]
    words = [f"is closed ({taint.value} in {OUTAGES})" if taint.key == OUTAGES else
             f"taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect} is not "
             "tolerated" for taint in sight.taint_sets[sight.taint_code[node]]
             if not any(tolerates(one, taint) for one in constraint.tolerations)]
    words += [f"shows no {device}" for device in constraint.devices
              if not sight.devices[node].get(device)]
    selector, *terms = [[rule_words(rule, labels.get(rule.key)) for rule in term
                         if not meets(rule, labels.get(rule.key))]
                        for term in (constraint.selector, *(constraint.terms or ()))]
    words += selector
    if constraint.terms is not None and not any(term and not why for term, why in zip(
            constraint.terms, terms, strict=True)):
        why_none = [" and ".join(why) for why in terms if why]
        several = f"none of {len(why_none)} alternatives holds: " if len(why_none) > 1 else ""
        words.append(several + " | ".join(why_none) or "its affinity admits no node")
    return words


def why_not(moment: Moment, lacks: dict[str, Integers], node: int, about_node: dict[str, str],
            admitted: str) -> str:
    """Every condition that a node violates, and by how much.

    Parameters
    ----------
    moment, lacks, node : the task before the nodes, `lacks_of` it, which node
    about_node : gpu_model of the node, and its objection
    admitted : GPU models that the task admits
    """
    here = {reason: int(amount[node]) for reason, amount in lacks.items()}
    objection = about_node.get("objection")
    words = []
    if here.pop("group") or objection:
        words.append(objection or "its labels, taints or devices keep the task away")
    if here.pop("gpu_model"):
        model = about_node["gpu_model"] or "unknown"
        words.append(f"its GPU model is {model}, not {admitted.replace('|', ' or ')}")
    if too_many := here.pop("instances", 0):
        words.append("is at the limit of its application "
                     f"({number_words(too_many, 'tasks')} of it would have to leave)")
    if here.pop("mig_instances", 0):
        profiles, need, left, room = counted_at(moment)
        words += [f"lacks {number_words(asked - free, 'instances')} of {profile} ({free} of "
                  f"{size} free)" if size else f"has no instance of {profile}"
                  for profile, asked, free, size in zip(
                      profiles, need.tolist(), left[node].tolist(), room[node].tolist(),
                      strict=True) if asked > free]
    if missing := amount_words(here.pop("cpu_milli"), here.pop("memory_mib")):
        words.append(f"lacks {' and '.join(missing)}")
    if gpus := here.pop("gpus"):
        present = int(moment.world.power.num_gpus[node])
        num_gpus = int(moment.world.demand.num_gpus[moment.task])
        milli = int(moment.world.demand.gpu_milli[moment.task])
        largest = int(moment.world.state.gpu_left_milli[node].max())
        has = f"largest {largest}" if is_share(milli) else f"has {num_gpus - gpus} of {present}"
        words.append(f"lacks {gpu_words(num_gpus, milli)} ({has})" if present else "has no GPU")
    words += [f"lacks {REASONS[reason]}" for reason, amount in here.items() if amount]
    return "; ".join(words)


def standing(ballot: Ballot, place: int) -> str:
    """Why a feasible node won, or did not."""
    behind = int(ballot.total[0] - ballot.total[place])
    if place == 0:
        return "chosen"
    if ballot.is_drawn:
        return "not drawn"
    if behind == 0:
        return "as many points, but later in the order of the nodes"
    return f"{number_words(behind / ballot.unit, ballot.word)} fewer"


def node_rows(moment: Moment, ballot: Ballot, nodes: pd.DataFrame,
              admitted: str) -> Iterator[dict[str, Any]]:
    """A line of the proof for every node, the best first, refused nodes last.

    Parameters
    ----------
    moment, ballot : the task before the nodes, and what they said
    nodes : name and gpu_model of each node, and its objection to the task, if known
    admitted : GPU models that the task admits
    """
    refused = is_refused(ballot.lacks)
    largest = moment.world.state.gpu_left_milli.max(axis=1)
    for place, node in enumerate([*ballot.nodes.tolist(), *np.flatnonzero(refused).tolist()]):
        row = {"node": nodes["name"][node], "rank": None, "line": "", "points": None}
        if refused[node]:
            row["line"] = why_not(moment, ballot.lacks, node, nodes.loc[node].to_dict(), admitted)
        else:
            row |= {"rank": place + 1, "line": standing(ballot, place),
                    "points": int(ballot.total[place]) / ballot.unit}
            row |= {f"{part.name}_{what}": int(getattr(part, what)[place])
                    for part in ballot.parts for what in ("score", "points")}
        row |= {f"lacks_{reason}": int(amount[node]) for reason, amount in ballot.lacks.items()}
        yield row | {"largest_gpu_milli": int(largest[node])}


@dataclass(frozen=True)
class Explanation:
    """Why a task goes where it goes, node by node.

    Parameters
    ----------
    about : task, policy and weights, state; chosen node and GPUs, how many nodes were refused and
        why, runner-up, nearest refused node, and where the task really ran
    nodes : one row for each node, the best first: node, rank, line of the proof, points, score and
        points by part, what it lacks
    gpus : one row for each GPU: node, gpu, left_milli, fits, given, score by part
    """

    about: dict[str, Any]
    nodes: pd.DataFrame
    gpus: pd.DataFrame

    @property
    def is_served(self) -> bool:
        """Whether a node can take the task, and its job can start."""
        return self.about["choice"] is not None and not why_job_waits(self.about)

    @property
    def headline(self) -> str:
        """The verdict, in a line."""
        why = why_job_waits(self.about)
        return f"{self.about['task']['name']}: {verdict_line(self.about)}{f'; its job cannot start: {why}' if why else ''}"

    def lines(self) -> list[str]:
        """What a person reads: the verdict, the best nodes, the refused ones by reason."""
        return [*verdict_lines(self.about), *job_lines(self.about), *best_lines(self), *refused_lines(self),
                *change_lines(self.about)]

    def as_json(self) -> dict[str, Any]:
        """Everything, for programs; cells that are empty are left out."""
        nodes, gpus = ([{str(name): value for name, value in row.items() if not pd.isna(value)}
                        for row in frame.astype(object).to_dict("records")]
                       for frame in (self.nodes, self.gpus))
        return {**self.about, "nodes": nodes, "gpus": gpus}

    def report(self) -> Report:
        """The same as files: explanation.json beside tables and a picture."""
        return Report(self.about, {"nodes.csv": self.nodes, "gpus.csv": self.gpus},
                      {"explanation.svg": lambda: picture(self)}, self.headline)


def explained(moment: Moment, policy: Policy, nodes: pd.DataFrame,
              about: dict[str, Any]) -> Explanation:
    """Explain one decision.

    Parameters
    ----------
    moment, policy : the task before the nodes, and who decides
    nodes : name and gpu_model of each node, and its objection to the task, if known
    about : what is said of the task (`about_task`) and of the state
    """
    ballot = vote(moment, policy)
    names = nodes["name"].tolist()
    rows = node_rows(moment, ballot, nodes, about["task"]["gpu_models"])
    table = pd.DataFrame(rows).astype({"rank": "Int64"})
    gpus = pd.DataFrame(gpu_rows(moment, ballot), columns=[
        "node", "gpu", "left_milli", "fits", "given",
        *(f"{part.name}_score" for part in ballot.parts)])
    counts = {reason: int((amount > 0).sum()) for reason, amount in ballot.lacks.items()}
    choice = {"node": names[ballot.nodes[0]], "gpu_list": gpu_indices(ballot.gpu_mask),
              "points": table["points"][0]} if len(ballot.nodes) else None
    return Explanation(
        {**about, "policy": policy.name,
         "weights": {part.name: part.weight / ballot.unit for part in ballot.parts},
         "unit": ballot.word, "choice": choice,
         "num_nodes": len(names), "num_feasible": len(ballot.nodes),
         "is_drawn": ballot.is_drawn, "weight": weight_of(ballot, names),
         "refused": {reason: count for reason, count in counts.items() if count},
         "runner_up": runner_up_of(ballot, names),
         "nearest": nearest_of(moment, policy, ballot, names)},
        table, gpus.assign(node=[names[node] for node in gpus["node"]]))


def place_words(place: dict[str, Any]) -> str:
    """A node and GPUs in words."""
    gpus = place["gpu_list"]
    return f"{place['node']}, GPU {'-'.join(map(str, gpus))}" if gpus else str(place["node"])


def verdict_line(about: dict[str, Any]) -> str:
    """Where a policy puts the task."""
    choice = about["choice"]
    if choice is None:
        return f"none of {about['num_nodes']:,} nodes can take it, whatever the policy"
    by = "by a draw" if about["is_drawn"] else f"with {number_words(choice['points'], about['unit'])}"
    return (f"{about['policy']} puts it on {place_words(choice)}, {by}; "
            f"{about['num_feasible']:,} of {about['num_nodes']:,} nodes could take it")


def verdict_lines(about: dict[str, Any]) -> list[str]:
    """What is asked for and when, the answer, and what really happened."""
    task = about["task"]
    asked = amount_words(task["cpu_milli"], task["memory_mib"])
    if task["num_gpus"]:
        asked.append(gpu_words(task["num_gpus"], task["gpu_milli"]))
    asked += [f"{number_words(count, 'instances')} of {profile}"
              for profile, count in task.get("mig_instances", {}).items()]
    models = f" of model {task['gpu_models'].replace('|', ' or ')}" if task["gpu_models"] else ""
    lines = [f"{task['name']} asks for {', '.join(asked) or 'nothing'}{models}"]
    if "at_s" in about:
        lines.append(f"at {about['at_s']:,.10g} s, running ({about['state']}): "
                     f"{number_words(about['running'], 'tasks')}")
    lines += [f"{name}: its pods hold more than it has, so nothing else goes there" for name in about.get("overfull", ())]
    lines.append(verdict_line(about))
    if ran := about.get("ran"):
        choice = about["choice"]
        is_there = choice is not None and ran["node"] == choice["node"]
        lines.append("it really ran there" if is_there else
                     f"it really ran on {place_words(ran)}: {ran['line']}")
    return lines


MOST_SHOWN = 5


def why_job_waits(about: dict[str, Any]) -> str:
    """Why the job of a task cannot start, in a clause; empty if it can, or has no other parts."""
    job = about.get("job")
    if job and job["lacking"]:
        return f"it lacks {number_words(job['lacking'], 'parts')}"
    return f"{job['fit']} of {job['to_come']} parts fit" if job and job["lost"] else ""


def job_lines(about: dict[str, Any]) -> list[str]:
    """Where the parts of its job are or would go, and what the first that finds no node lacks."""
    if not (job := about.get("job")):
        return []
    why = why_job_waits(about)
    how = "" if why or job["by"] != "first" else (
        f", each on the first node with room, since {about['policy']} leaves none for all of them")
    lines = [f"its job cannot start: {why}" if why else
             f"it starts with its job: {job['fit']} of {job['to_come']} parts fit{how}"]
    lines += [f"  {place['task']}: {'runs on' if place['runs'] else 'to'} {place_words(place)}"
              for place in job["places"][:MOST_SHOWN]]
    if (more := len(job["places"]) - MOST_SHOWN) > 0:
        lines.append(f"  and {more:,} more")
    return [*lines, f"  {job['lost']['task']}: {job['lost']['why']}"] if job["lost"] else lines


def best_lines(explanation: Explanation) -> list[str]:
    """The best nodes, points part by part; nodes that are alike to the policy share a line."""
    weights = explanation.about["weights"]
    best = explanation.nodes.dropna(subset="rank")
    alike = [*(f"{name}_points" for name in weights), "line"]
    lines = []
    for _, rows in best.groupby(alike, sort=False):
        first = rows.iloc[0]
        others = f" and {len(rows) - 1:,} more" if len(rows) > 1 else ""
        sums = " + ".join(f"{weight:.6g} x {name} {first[f'{name}_points']:.0f}"
                          for name, weight in weights.items())
        lines.append(f"  {first['rank']}. {first['node']}{others}: {sums} = {first['points']:.6g} "
                     f"({first['line']})")
    return lines[:MOST_SHOWN]


REASONS = {condition.name: condition.words for condition in CONDITIONS}


def refused_lines(explanation: Explanation) -> list[str]:
    """How many nodes were refused for which reasons, and the first of them."""
    about = explanation.about
    number = about["num_nodes"] - about["num_feasible"]
    if not number:
        return []
    counts = ", ".join(f"{REASONS[reason]} {count:,}" for reason, count in about["refused"].items())
    refused = explanation.nodes.tail(number).head(max(0, MOST_SHOWN - about["num_feasible"]))
    return [f"refused {number:,} (a node may lack several things): {counts}",
            *(f"  {name}: {line}" for name, line in zip(refused["node"], refused["line"],
                                                        strict=True))]


def change_lines(about: dict[str, Any]) -> list[str]:
    """What would have to change for another node to win."""
    lines = []
    second = about["runner_up"]
    if second and not about["is_drawn"]:
        lacking = number_words(second["points_lacking"], about["unit"])
        lines.append(f"runner-up {second['node']} " + (
            f"lacks {lacking}" if second["points_lacking"]
            else "has as many points, and comes later in the order of the nodes"))
    if weight := about["weight"]:
        same = weight["same_verdict"]
        past = [f"; {word if same[end]['included'] else 'at'} {same[end]['value']:.6g} "
                f"{same[end]['then']} wins"
                for end, word in (("from", "below"), ("until", "above")) if "then" in same[end]]
        lines.append(f"the verdict is the same for weights of {weight['score']} from "
                     f"{same['from']['value']:.6g} to {same['until']['value']:.6g} (it is "
                     f"{weight['now']:.6g}){''.join(past)}")
    if near := about["nearest"]:
        gpus = [f"{milli} milli of GPU {gpu}" for gpu, milli in near["gpu_milli_by_gpu"].items()]
        amounts = [*amount_words(near["cpu_milli"], near["memory_mib"]), *gpus]
        needs = [f"{' and '.join(amounts)} more free"] if amounts else []
        if "instances" in near:
            needs.append(f"{number_words(near['instances'], 'fewer tasks')} of its application")
        if "mig_instances" in near:
            needs.append(f"{number_words(near['mig_instances'], 'instances')} more free")
        free = " and ".join(needs) or "fewer tasks on it"
        lines.append(f"{near['node']} could take it with {free}, and "
                     f"{'would win' if near['would_win'] else 'would not win'}")
    elif not about["choice"]:
        lines.append("no node could take it even without any other task")
    return lines


MOST_DRAWN = 8


def picture(explanation: Explanation) -> alt.VConcatChart:
    """Points of the best nodes, part by part, above the reasons for which others were refused."""
    about = explanation.about
    charts = []
    if about["num_feasible"]:
        weights = about["weights"]
        best = explanation.nodes.dropna(subset="rank").head(MOST_DRAWN)
        bars = pd.DataFrame([{"node": f"{row['rank']}. {row['node']}", "score": name,
                              "points": weight * row[f"{name}_points"]}
                             for row in best.to_dict("records")
                             for name, weight in weights.items()])
        colours = policy_colours(weights)
        verdict = verdict_line(about).partition(";")[0]
        charts.append(alt.Chart(bars, title=verdict).mark_bar().encode(
            alt.X("points:Q", title=f"weight times points ({about['unit']})"),
            alt.Y("node:N", sort=None, title=None),
            alt.Color("score:N", title=None, scale=alt.Scale(
                domain=list(colours), range=list(colours.values()))),
            tooltip=["node:N", "score:N", "points:Q"]).properties(width=420))
    if refused := about["refused"]:
        counts = pd.DataFrame([{"reason": REASONS[reason], "nodes": count}
                               for reason, count in refused.items()])
        title = (f"{about['num_nodes'] - about['num_feasible']:,} of {about['num_nodes']:,} nodes "
                 f"refused, most for {REASONS[max(refused, key=refused.get)]}")
        charts.append(alt.Chart(counts, title=title).mark_bar(color="#9A9A9A").encode(
            alt.X("nodes:Q", title="nodes that lack it", axis=alt.Axis(tickMinStep=1, format="d")),
            alt.Y("reason:N", sort="-x", title=None),
            tooltip=["reason:N", "nodes:Q"]).properties(width=420))
    both: alt.VConcatChart = alt.vconcat(*charts)
    return both


MOST_NAMES = 100_000  # among which near ones are looked for


def row_of_task(problem: Problem, name: str) -> int:
    """Row of a task.

    Raises
    ------
    InputError : there is none of this name; the nearest names are in the message
    """
    rows = np.flatnonzero(problem.tasks.name == name)
    if len(rows):
        return int(rows[0])
    names = [str(one) for one in problem.tasks.name[:MOST_NAMES]]
    inside = [one for one in names if name and name in one][:3]
    near = inside or difflib.get_close_matches(name, names, n=3)
    raise InputError(f"there is no task {name!r:.80}", file="tasks.csv", column="name", value=name,
                     mend=f"did you mean {', '.join(near)}?" if near
                     else f"there are {', '.join(names[:3])}, ...")


def moment_of(problem: Problem, schedule: Schedule, row: int) -> float:
    """When a task was placed; if it never was, the last known moment at which it waited, s."""
    if np.isfinite(schedule.start_s[row]):
        return float(schedule.start_s[row])
    if np.isfinite(problem.duration_s[row]):  # withdrawn, or a table without starts
        return float(problem.submit_s[row])
    times = np.concatenate([problem.submit_s, schedule.start_s, schedule.end_s])
    return float(times[np.isfinite(times)].max())


def standing_at(schedule: Schedule, at_s: float) -> Schedule:
    """The schedule in which each task whose run of a moment an outage stopped later has that run."""
    rows = (schedule.lost.start_s <= at_s) & (at_s < schedule.lost.end_s)
    columns: list[Any] = [column.copy() for column in schedule[:4]]
    for column, lost in zip(columns, schedule.lost[1:], strict=True):
        column[schedule.lost.task[rows]] = lost[rows]
    return Schedule(*columns)


def before(problem: Problem, schedule: Schedule, row: int, at_s: float) -> Truths:
    """Tasks that hold something when it is a task's turn, (tasks,).

    Of those that start in the same moment as the task, those that come before it in the queue.
    """
    is_running = running_at(schedule, at_s)
    is_running[row] = False
    if schedule.start_s[row] == at_s:
        position = np.empty(len(problem.tasks), np.int64)
        position[by_turn(problem)] = np.arange(len(position))
        is_running &= (schedule.start_s < at_s) | (position < position[row])
    return is_running


def settings_for(problem: Problem, policy: Policy, power: PowerSettings) -> PowerSettings:
    """Power settings in which unknown GPU models draw nothing, if the policy does not mind."""
    return power if policy.needs_watts else blind_to_watts(problem, power)


def blind_to_watts(problem: Problem, power: PowerSettings) -> PowerSettings:
    """Power settings in which unknown GPU models draw nothing; the same if all are known."""
    unknown = dict.fromkeys(models_without_watts(problem, power), (0, 0))
    if not unknown:
        return power
    return power._replace(gpu_power_w={**unknown, **(power.gpu_power_w or {})})


def moments_before(problem: Problem, schedule: Schedule, rows: Sequence[int], is_running: Truths,
                   power: PowerSettings) -> Iterator[Moment]:
    """Tasks in front of the cluster, each alone.

    Parameters
    ----------
    problem, schedule, rows : the tasks, where each is, and which of them ask
    is_running : (tasks,) those that hold something
    power : how nodes draw power

    Raises
    ------
    InputError : a GPU model without watts, or more was running than there is
    """
    world, class_of = counted_world(problem, power)
    empty = State(*(amount.copy() for amount in world.state))
    place_running(world, problem, class_of, schedule, is_running)
    for amounts in zip(world.state, empty, problem.most_left or (), strict=False):
        for amount in amounts[:2]:
            np.minimum(amount, amounts[2], out=amount)
    profiles = problem.instances.profiles if problem.instances else ()
    for row in rows:
        yield Moment(world, empty, int(class_of[row]), int(problem.tasks.memory_mib[row]), profiles=profiles)


def objections_of(problem: Problem, row: int) -> list[str]:
    """What labels, taints and devices of each node keep a task away, in words; empty if unknown."""
    if problem.sight is None or problem.constraint is None:
        return [""] * len(problem.cluster)
    asked = constraint_of(problem.constraint[row]) or Constraint()
    return ["; ".join(objections(problem.sight, asked, node))
            for node in range(len(problem.cluster))]


def places_together(moments: Iterable[Moment], policy: Policy | None = None) -> tuple[
        list[tuple[int, int]], Moment | None]:
    """Where the parts of a job go one after another, and the first of them that finds no node; nothing stays taken.

    Parameters
    ----------
    moments : the parts, all of one world, which is as it was in the end
    policy : who chooses; None for the first node with room, and its first GPUs

    Returns
    -------
    node and GPUs of each part that fits; the part that does not, None if all fit
    """
    found: list[tuple[Moment, int, int]] = []
    lost = None
    for moment in moments:
        if policy is None:
            node, mask = first_place(moment.world, asks_of(moment), 0)
        else:
            ballot = vote(moment, policy)
            node, mask = next(iter(ballot.nodes.tolist()), -1), ballot.gpu_mask
        if node < 0:
            lost = moment._replace(world=copied(moment.world))  # as the parts before it left it
            break
        found.append((moment, node, mask))
        hold(*found[-1], 1)
    for one in found:
        hold(*one, -1)
    return [(node, mask) for _, node, mask in found], lost


def hold(moment: Moment, node: int, gpu_mask: int, sign: int) -> None:
    """Take what a task asks for from a node and its GPUs (sign 1), or give it back (-1)."""
    take(moment.world, asks_of(moment), 0, node, gpu_mask, sign)


def asks_of(moment: Moment) -> ArrivingTasks:
    """The task as the engine takes tasks: the only one."""
    return ArrivingTasks(np.array([moment.task]), np.array([moment.memory_mib]), np.zeros(1, np.int64))


def alone_in_the_way(moment: Moment) -> str:
    """What alone is in the way of a task on some node, as `failures_frame` says it."""
    world, lacks = moment.world, lacks_of(moment)
    is_so = {word: np.zeros(len(world.gpu_model), bool) for word in LACKS}
    for one in CONDITIONS:
        is_so[one.failed_for] |= lacks.get(one.name, np.zeros(1)) > 0
    if world.demand.num_gpus[moment.task]:
        is_so["model"] |= world.power.num_gpus == 0  # a node without GPUs has none of the right model
    is_alone = np.sum(list(is_so.values()), axis=0) == 1
    return "|".join(word for word, here in is_so.items() if (here & is_alone).any()) or "several"


def obstacle(moment: Moment, problem: Problem, row: int) -> str:
    """What is in the way of a task on the nodes, counted, and the least of it in words."""
    lacks = lacks_of(moment)
    count = np.sum([amount > 0 for amount in lacks.values()], axis=0)
    node = int(np.argmin(count))
    counted = ", ".join(f"{REASONS[reason]} {int((amount > 0).sum()):,}"
                        for reason, amount in lacks.items() if (amount > 0).any())
    about_node = {"gpu_model": problem.cluster.gpu_model[node],
                  "objection": objections_of(problem, row)[node]}
    words = why_not(moment, lacks, node, about_node, str(problem.tasks.gpu_spec[row]))
    return f"no node of {len(count):,} ({counted}); {problem.cluster.name[node]}: {words}"


def parts_to_come(problem: Problem, schedule: Schedule, row: int, is_running: Truths, at_s: float) -> list[int]:
    """Parts of the job of a task, itself among them, that have neither started nor left, in the order of their turns."""
    if problem.job is None:
        return [row]
    has_left = np.isnan(schedule.start_s) & np.isfinite(problem.duration_s)
    is_among = (problem.job == problem.job[row]) & ~is_running & ~(schedule.end_s <= at_s) & ~has_left
    is_among[row] = True
    return [int(part) for part in np.flatnonzero(is_among)]


def about_job(problem: Problem, schedule: Schedule, parts: Sequence[int], is_running: Truths,
              places: Sequence[tuple[int, int]], lost: Moment | None) -> dict[str, Any]:
    """What is said of the job of a task: where its parts are or would go, and what the first that finds no node lacks.

    Parameters
    ----------
    problem, schedule, is_running : who is where, and who holds something
    parts : those of the job that have not started
    places, lost : of `places_together`
    """
    names = problem.tasks.name
    first = parts[0]
    own = [first] if problem.job is None else np.flatnonzero(problem.job == problem.job[first]).tolist()
    waits = bool(np.isnan(schedule.start_s[first]))
    runs = [(part, int(schedule.node[part]), int(schedule.gpu_mask[part]), True) for part in own if is_running[part]]
    goes = [(part, *place, False) for part, place in zip(parts, places, strict=False)]
    place_of = [{"task": str(names[part]), "node": str(problem.cluster.name[node]), "gpu_list": gpu_indices(mask),
                 "runs": is_there} for part, node, mask, is_there in (*runs, *goes)]
    lacking = int(problem.lacking_parts[first]) if waits and problem.lacking_parts is not None else 0
    next_part = None if lost is None else {"task": str(names[parts[len(places)]]),
                                           "why": obstacle(lost, problem, parts[len(places)])}
    return {"to_come": len(parts), "fit": len(places), "lacking": lacking, "places": place_of, "lost": next_part}


MOST_INTERPRETED = 5_000  # times that a node looks at a task that may come


def explain(problem: Problem, task: str, policy: str = "fgd", *, at_s: float | None = None,
            schedule: Schedule | None = None, power: PowerSettings | None = None) -> Explanation:
    """Explain where a policy puts a task, and why not elsewhere.

    Parameters
    ----------
    problem : a cluster and its tasks
    task, policy : names
    at_s : the moment, s; if it is not given, the task's start in the schedule, or the last moment
        at which it waited
    schedule : what was running; the record if it is not given
    power : how nodes draw power

    Raises
    ------
    InputError : no such task or policy; a GPU model without watts, and the policy asks for power;
        more was running than there is
    """
    row = row_of_task(problem, task)
    chosen = policy_of(policy)
    state = "recorded" if schedule is None else "replayed"
    schedule = recorded(problem) if schedule is None else schedule
    at_s = moment_of(problem, schedule, row) if at_s is None else at_s
    schedule = standing_at(schedule, at_s)
    is_running = before(problem, schedule, row, at_s)
    settings = settings_for(problem, chosen, power or PowerSettings())
    parts = parts_to_come(problem, schedule, row, is_running, at_s)
    moments = list(moments_before(problem, schedule, parts, is_running, settings))
    turn = parts.index(row)
    moment = moments[turn]
    job: dict[str, Any] = {}
    if is_part(problem)[row]:
        places, lost = places_together(moments, chosen)
        by = policy
        if lost is not None:
            places, lost = places_together(moments)
            by = "first"
        job = {"job": about_job(problem, schedule, parts, is_running, places, lost) | {"by": by}}
        for other, place in zip(moments[:turn], places, strict=False):  # as the parts before it leave the nodes
            hold(other, *place, 1)
    nodes = pd.DataFrame({"name": problem.cluster.name, "gpu_model": problem.cluster.gpu_model,
                          "objection": objections_of(problem, row)})
    asked = about_task(problem.tasks, row)
    profiles, need, _, _ = counted_at(moment)
    if profiles:
        asked["mig_instances"] = dict(zip(profiles, need.tolist(), strict=True))
    looks = len(nodes) * len(moment.world.target.cpu_milli)
    with interpreted(looks <= MOST_INTERPRETED):
        found = explained(moment, chosen, nodes, {
            "task": asked, "at_s": at_s, "state": state, "running": int(is_running.sum()),
            "zero": problem.zero, **job})
    if (node := problem.node[row]) < 0:
        return found
    name = str(problem.cluster.name[node])
    line = found.nodes.loc[found.nodes["node"] == name, "line"].iloc[0]
    return replace(found, about=found.about | {
        "ran": {"node": name, "gpu_list": gpu_indices(problem.gpu_mask[row]), "line": line}})
