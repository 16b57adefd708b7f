"""Commands in, rows out: a job manager without clock, socket or database, and what each of its answers is worth."""

# A module, written by hand.

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from ..lab.frames import InputError
from .greedy import SearchOptions
from .model import (
    LEAST_S,
    MOST_EPOCHS,
    MOST_GPUS,
    MOST_S,
    Assignment,
    Configuration,
    DueDate,
    Fleet,
    Instance,
    Instant,
    Name,
    Present,
    Price,
    RunTime,
    parse_instance,
    split_configuration,
)
from .policies import decide_now

LONGEST_NAME = 100  # letters
Key = Annotated[str, Field(pattern=rf"^[A-Za-z0-9][A-Za-z0-9._:@+-]{{0,{LONGEST_NAME - 1}}}$")]
Label = Annotated[str, Field(pattern=rf"^[^\x00-\x1f\x7f,]{{1,{LONGEST_NAME}}}$")]
Number = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Command(BaseModel):
    """What a caller may ask for."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Named(Command):
    """Something with an id of its own."""

    id: Key


class Submit(Named):
    """A new job; it is due at a time in seconds since 1970, UTC."""

    application: Label
    batch: Number
    epochs: Annotated[int, Field(ge=1, le=MOST_EPOCHS)]
    due_s: DueDate
    weight_eur_per_s: Price


class Report(Command):
    """So many epochs of a job are done in all; reports of a job are numbered by its worker."""

    sequence: Number
    epochs_done: Annotated[int, Field(ge=0, le=2**31 - 1)]


class Measure(Named):
    """A sample of the profiler: so many epochs took so many seconds on a configuration."""

    application: Label
    batch: Number
    configuration: Annotated[Configuration, Field(max_length=LONGEST_NAME)]
    epochs: Number
    seconds: RunTime


class Join(Command):
    """A node, with GPUs of one type."""

    gpu: Label
    num_gpus: Annotated[int, Field(ge=1, le=MOST_GPUS)]


State = Literal["waiting", "running", "done", "cancelled"]


class Job(Submit):
    """A row of the table of jobs; see `andreas.store`."""

    number: int
    submission_s: Instant
    epochs_done: Annotated[int, Field(ge=0)] = 0
    sequence: Annotated[int, Field(ge=0)] = 0
    report_s: FiniteFloat | None = None
    node: Name | None = None
    configuration: Configuration | None = None
    start_s: FiniteFloat | None = None
    end_s: FiniteFloat | None = None

    @model_validator(mode="after")
    def whole(self) -> Self:
        """Check what columns have to do with each other."""
        if self.epochs_done > self.epochs:
            raise ValueError(f"{self.epochs_done} of {self.epochs} epochs are done")
        if (self.node is None) != (self.configuration is None):
            raise ValueError("node or configuration is missing")
        return self

    def changed(self, **columns: Any) -> Self:
        """The same row with other values in some columns."""
        return self.model_copy(update=columns)

    def without_place(self, **columns: Any) -> Self:
        """The same row of a job that waits, or has ended."""
        return self.changed(node=None, configuration=None, start_s=None, **columns)

    @property
    def state(self) -> State:
        """What follows from the other columns."""
        if self.end_s is not None:
            return "done" if self.epochs_done == self.epochs else "cancelled"
        return "waiting" if self.node is None else "running"

    @property
    def since_s(self) -> float:
        """Last report of a running job, or its start if that was later."""
        return max(self.start_s or 0.0, self.report_s or 0.0)


class Node(NamedTuple):
    """A node that is there, or was."""

    id: str
    gpu: str
    num_gpus: int
    is_present: bool = True


class Change(NamedTuple):
    """Rows that a command brings, all of them or none.

    Parameters
    ----------
    event : why
    now_s : when
    jobs : new and changed ones
    moved : those of them whose place is another one than before; not empty: a new version
    node, sample : if there is one
    asks : whether the optimizer should think again
    """

    event: str
    now_s: float
    jobs: tuple[Job, ...] = ()
    moved: tuple[Job, ...] = ()
    node: Node | None = None
    sample: Measure | None = None
    asks: bool = True


@dataclass
class Pool:
    """Samples of one application, batch and configuration together, in exact arithmetic."""

    seconds: Fraction = Fraction(0)
    epochs: int = 0

    @property
    def epoch_s(self) -> float:
        """Mean seconds of an epoch."""
        return float(self.seconds) / self.epochs


MOST_QUEUED, MOST_JOBS, MOST_NODES, MOST_SAMPLES = 2000, 1_000_000, 1000, 100_000


@dataclass
class Book:
    """What a job manager knows; commands read it, and `apply` alone changes it.

    Parameters
    ----------
    prices : cost_eur_per_h of the instance file
    most_queued : unfinished jobs; what is beyond is refused, as are more than `MOST_JOBS` in all,
        `MOST_NODES` and `MOST_SAMPLES`

    Attributes
    ----------
    damaged : stored rows that cannot be read, by table and id, with the reason; their ids stay taken
    last_number : of all stored jobs, the damaged ones included
    """

    prices: Mapping[str, float]
    most_queued: int = MOST_QUEUED
    jobs: dict[str, Job] = field(default_factory=dict)
    queue: dict[str, Job] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    samples: dict[str, Measure] = field(default_factory=dict)
    pools: dict[tuple[str, int], dict[str, Pool]] = field(default_factory=dict)
    damaged: dict[tuple[str, str], str] = field(default_factory=dict)
    last_number: int = 0
    version: int = 0
    last_s: float = 0.0

    def apply(self, change: Change) -> None:
        """Take rows in that have been stored.

        Parameters
        ----------
        change : what a command brought
        """
        self.last_s = max(self.last_s, change.now_s)
        self.version += bool(change.moved)
        for job in change.jobs:
            self.put(job)
        if change.node:
            self.nodes[change.node.id] = change.node
        if change.sample is not None:
            self.put_sample(change.sample)

    def put(self, job: Job) -> None:
        """Replace a row of the jobs."""
        self.jobs[job.id] = job
        self.last_number = max(self.last_number, job.number)
        if job.end_s is None:
            self.queue[job.id] = job
        else:
            self.queue.pop(job.id, None)

    def put_sample(self, sample: Measure) -> None:
        """Take in a sample."""
        self.samples[sample.id] = sample
        pools = self.pools.setdefault((sample.application, sample.batch), {})
        pool = pools.setdefault(sample.configuration, Pool())
        pool.seconds += Fraction(sample.seconds)
        pool.epochs += sample.epochs

    def epoch_s(self, application: str, batch: int) -> dict[str, float]:
        """Seconds per epoch on each measured configuration."""
        kinds = self.pools.get((application, batch), {})
        return {name: kinds[name].epoch_s for name in sorted(kinds)}


class Refused(InputError):
    """A command that changes nothing, and why.

    Parameters
    ----------
    kind : unknown, wrong, conflict or full
    problem, mend : as in `InputError`
    """

    def __init__(self, kind: str, problem: str, mend: str) -> None:
        super().__init__(problem, mend=mend)
        self.kind = kind


def refuse_damaged(book: Book, kind: Literal["job", "sample"], name: str) -> None:
    """Refuse what would touch a row that cannot be read."""
    if why := book.damaged.get((kind, name)):
        raise Refused("conflict", f"the stored {kind} {name!r:.110} cannot be read: {why}",
                      "mend its row in the database, and start the service again")


def job_of(book: Book, job: str) -> Job:
    """A job by its id."""
    refuse_damaged(book, "job", job)
    if job not in book.jobs:
        raise Refused("unknown", f"there is no job {job!r:.110}", "submit it first")
    return book.jobs[job]


def clock_s(book: Book, now_s: float) -> float:
    """Present time, which never goes back, whatever the clock does."""
    return min(max(now_s, book.last_s), MOST_S)


LEAST_EPOCHS = 0.5  # that are left of a job that has not said that it is done
LEAST_EPOCH_S = LEAST_S / LEAST_EPOCHS


def largest_nodes(nodes: Iterable[Node]) -> dict[str, int]:
    """Most GPUs of each type on one of some nodes."""
    found: dict[str, int] = {}
    for node in nodes:
        found[node.gpu] = max(node.num_gpus, found.get(node.gpu, 0))
    return found


def profiled_s(book: Book, job: Submit, largest: Mapping[str, int]) -> dict[str, float]:
    """Seconds per epoch of a job on each measured configuration that a node has.

    Parameters
    ----------
    largest : most GPUs of each type on a node
    """
    found = {}
    for name, epoch_s in book.epoch_s(job.application, job.batch).items():
        gpu, count = split_configuration(name)
        if count <= largest.get(gpu, 0):
            found[name] = epoch_s
    return found


def run_times_s(epoch_s: Mapping[str, float], epochs: float) -> dict[str, float]:
    """Seconds of so many epochs; those that an instance may not have are left out."""
    return {name: epochs * seconds for name, seconds in epoch_s.items()
            if LEAST_S <= epochs * seconds <= MOST_S}


def check_runnable(book: Book, job: Submit) -> None:
    """Refuse a job without a profile, without a node for it, or that would never end."""
    measured = book.epoch_s(job.application, job.batch)
    what = f"application {job.application!r} with batch {job.batch}"
    if not measured:
        raise Refused("wrong", f"no profile of {what}", "send a sample of it first")
    epoch_s = profiled_s(book, job, largest_nodes(book.nodes.values()))
    if not epoch_s:
        raise Refused("wrong", f"no node has what {what} is profiled on: {', '.join(measured)}",
                      "send a sample on a configuration that a node has")
    if not run_times_s(epoch_s, job.epochs):
        least_s = job.epochs * min(epoch_s.values())
        raise Refused("wrong", f"{job.epochs} epochs of {what} would take {least_s:g} s",
                      f"give it a number of epochs that takes {LEAST_S:g} to {MOST_S:g} s")


def submit(book: Book, job: Submit, now_s: float) -> Change | None:
    """Take a job in.

    Parameters
    ----------
    book : what is known
    job : what is asked for
    now_s : present time

    Returns
    -------
    rows to store; None if the same job was taken in before

    Raises
    ------
    Refused : the id is another job's, no node can run it, or the queue is full
    """
    refuse_damaged(book, "job", job.id)
    if job.id in book.jobs:
        if job.model_dump().items() <= book.jobs[job.id].model_dump().items():
            return None
        raise Refused("conflict", f"there is another job {job.id!r}", "give each job its own id")
    if len(book.queue) >= book.most_queued or len(book.jobs) >= MOST_JOBS:
        raise Refused("full", f"{len(book.queue)} jobs are unfinished, of {len(book.jobs)}",
                      "submit it when some are done")
    check_runnable(book, job)
    now_s = clock_s(book, now_s)
    new = Job(**job.model_dump(), number=book.last_number + 1, submission_s=now_s)
    return Change("submission", now_s, (new,))


DRIFT = 0.1  # of the epochs that are left; so far may a report be off before we think again


def assumed_epochs(book: Book, job: Job, now_s: float) -> float:
    """Progress of a running job since its last report, or its start, as its profile has it."""
    if job.node is None or job.configuration is None:
        return 0.0
    epoch_s = book.epoch_s(job.application, job.batch)[job.configuration]
    left = job.epochs - job.epochs_done
    return min(max(now_s - job.since_s, 0.0) / epoch_s, left - LEAST_EPOCHS)


def left_epochs(book: Book, job: Job, now_s: float) -> float:
    """Epochs that a job still needs, as far as can be told."""
    return job.epochs - job.epochs_done - assumed_epochs(book, job, now_s)


def is_off(book: Book, job: Job, epochs_done: int, now_s: float) -> bool:
    """Whether a report differs from what was assumed by enough to think again."""
    off = abs(epochs_done - job.epochs_done - assumed_epochs(book, job, now_s))
    return off > max(1.0, DRIFT * (job.epochs - job.epochs_done))


def report(book: Book, job: str, given: Report, now_s: float) -> Change | None:
    """Note epochs of a job; rows to store, or None if the report was counted before.

    Parameters
    ----------
    book, now_s : what is known, and when
    job : its id
    given : number of the report, and epochs in all
    """
    row = job_of(book, job)
    now_s = clock_s(book, now_s)
    if given.sequence <= row.sequence:
        return None
    if not row.epochs_done <= given.epochs_done <= row.epochs:
        raise Refused("conflict", f"job {job!r}: {given.epochs_done} epochs done, after "
                      f"{row.epochs_done} of {row.epochs}", "report all that are done")
    if row.end_s is not None:
        if given.epochs_done == row.epochs_done and row.state == "done":
            return None
        raise Refused("conflict", f"job {job!r} is {row.state}", "stop its worker")
    new = row.changed(epochs_done=given.epochs_done, sequence=given.sequence, report_s=now_s)
    if given.epochs_done == row.epochs:
        return _ended(new, "completion", now_s)
    return Change("report", now_s, (new,), asks=is_off(book, row, given.epochs_done, now_s))


def _ended(job: Job, event: str, now_s: float) -> Change:
    """Rows of a job that leaves the queue, and its place."""
    gone = job.without_place(end_s=now_s)
    return Change(event, now_s, (gone,), (gone,) if job.node else ())


def cancel(book: Book, job: str, now_s: float) -> Change | None:
    """Take a job off the queue for good; None if it was cancelled before.

    Parameters
    ----------
    book, now_s : what is known, and when
    job : its id
    """
    row = job_of(book, job)
    if row.state == "cancelled":
        return None
    if row.state == "done":
        raise Refused("conflict", f"job {job!r} is done", "there is nothing to cancel")
    return _ended(row, "cancellation", clock_s(book, now_s))


def measure(book: Book, sample: Measure, now_s: float) -> Change | None:
    """Take a sample of the profiler in; None if it was counted before.

    Parameters
    ----------
    book, now_s : what is known, and when
    sample : what was measured
    """
    refuse_damaged(book, "sample", sample.id)
    epoch_s = sample.seconds / sample.epochs
    if not LEAST_EPOCH_S <= epoch_s:
        raise Refused("wrong", f"an epoch of {epoch_s:g} s is shorter than {LEAST_EPOCH_S:g} s",
                      "count more work as an epoch")
    if (known := book.samples.get(sample.id)) is not None:
        if known == sample:
            return None
        raise Refused("conflict", f"there is another sample {sample.id!r}", "give each its own id")
    if len(book.samples) >= MOST_SAMPLES:
        raise Refused("full", f"there are {len(book.samples)} samples", "they are enough")
    return Change("profile", clock_s(book, now_s), sample=sample)


def evicted(book: Book, node: str) -> tuple[Job, ...]:
    """Jobs of a node, as they are when they have lost it."""
    return tuple(job.without_place() for job in book.queue.values() if job.node == node)


def join(book: Book, node: str, given: Join, now_s: float) -> Change | None:
    """Take a node in; None if it is there already.

    Parameters
    ----------
    book, now_s : what is known, and when
    node, given : its id, and what it has
    """
    new = Node(node, given.gpu, given.num_gpus)
    if (known := book.nodes.get(node)) == new:
        return None
    if known is None and len(book.nodes) >= MOST_NODES:
        raise Refused("full", f"there are {len(book.nodes)} nodes", "use names of lost ones again")
    for count in range(1, given.num_gpus + 1):
        if (name := f"{given.gpu},{count}") not in book.prices:
            raise Refused("wrong", f"node {node!r}: no price with {count} {given.gpu} in use",
                          f"start the service with {name} in cost_eur_per_h")
    jobs = evicted(book, node)
    return Change("node joined", clock_s(book, now_s), jobs, jobs, node=new)


def leave(book: Book, node: str, now_s: float) -> Change | None:
    """Note that a node is lost; None if it was before.

    Parameters
    ----------
    book, now_s : what is known, and when
    node : its id
    """
    if node not in book.nodes:
        raise Refused("unknown", f"there is no node {node!r:.110}", "it never joined")
    if not book.nodes[node].is_present:
        return None
    jobs = evicted(book, node)
    lost = book.nodes[node]._replace(is_present=False)
    return Change("node lost", clock_s(book, now_s), jobs, jobs, node=lost)


def snapshot_of(book: Book, now_s: float) -> Instance | None:
    """What to ask the optimizer about: nodes that are present, and the time that jobs still need.

    None if there is nothing to place, or nowhere.
    """
    nodes = [node for node in book.nodes.values() if node.is_present]
    largest = largest_nodes(nodes)
    jobs = []
    for job in book.queue.values():
        times_s = run_times_s(profiled_s(book, job, largest), left_epochs(book, job, now_s))
        if times_s:
            runs = job.configuration in times_s and job.submission_s <= now_s
            place = {"node": job.node, "configuration": job.configuration} if runs else {}
            jobs.append({
                "id": job.id, "submission_s": job.submission_s, "due_s": job.due_s,
                "weight_eur_per_s": job.weight_eur_per_s, "times_s": times_s,
                "epochs": job.epochs - job.epochs_done, **place})
    if not jobs:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # due before submission: the caller's affair
        return parse_instance({
            "nodes": [{"id": n.id, "gpu": n.gpu, "num_gpus": n.num_gpus} for n in nodes],
            "cost_eur_per_h": dict(book.prices), "now_s": now_s, "jobs": jobs})


def keep_places(fleet: Fleet, present: Present, answer: Assignment) -> Assignment:
    """Exchange equal nodes of an answer, so that fewer jobs move."""
    kinds = list(zip(fleet.node_type.tolist(), fleet.node_gpus.tolist(), strict=True))
    stays = (answer.configuration == present.configuration) & (present.node >= 0)
    pairs = zip(answer.node[stays].tolist(), present.node[stays].tolist(), strict=True)
    # how many jobs of each node of the answer run on each equal node now, as they would there
    overlaps = Counter((new, old) for new, old in pairs if kinds[new] == kinds[old])
    name: dict[int, int] = {}
    for new, old in sorted(overlaps, key=lambda pair: (-overlaps[pair], pair)):
        if new not in name and old not in name.values():
            name[new] = old
    free = [old for old in range(len(kinds)) if old not in set(name.values())]
    for new in range(len(kinds)):
        if new not in name:
            alike = [old for old in free if kinds[old] == kinds[new]]
            name[new] = new if new in alike else alike[0]
            free.remove(name[new])
    if sum(overlaps[pair] for pair in name.items()) < sum(
            count for (new, old), count in overlaps.items() if new == old):
        return answer
    renamed = [name[node] if node >= 0 else -1 for node in answer.node.tolist()]
    return Assignment(np.array(renamed, np.int64), answer.configuration)


Places = dict[str, tuple[str, str]]  # job -> node and configuration


def decide_places(instance: Instance, policy: str, how: SearchOptions) -> Places:
    """Where each job shall run, as a policy has it, checked; takes long."""
    answer = decide_now(instance, policy, how)
    if instance.present is not None:
        answer = keep_places(instance.fleet, instance.present, answer)
    return {job: (instance.node_name[node], instance.configuration_name(configuration))
            for job, node, configuration in zip(instance.job_name, *answer, strict=True)
            if node >= 0}


def move_jobs(book: Book, places: Places, event: str, now_s: float) -> Change | None:
    """Put jobs where an answer has them, as far as that still exists; None if nobody moves.

    Parameters
    ----------
    book, now_s : what is known now, which may be more than when the optimizer was asked
    places : the answer
    event : why it was asked
    """
    now_s = clock_s(book, now_s)
    moved = []
    for job in book.queue.values():
        place: tuple[str | None, str | None] = places.get(job.id, (None, None))
        node = book.nodes.get(place[0] or "")
        if node is None or not node.is_present or not offers(node, place[1] or ""):
            place = (None, None)
        if place != (job.node, job.configuration):
            start_s = now_s if place[0] else None
            moved.append(job.changed(node=place[0], configuration=place[1], start_s=start_s))
    return Change(event, now_s, tuple(moved), tuple(moved), asks=False) if moved else None


def offers(node: Node, configuration: str) -> bool:
    """Whether a node, which may have joined anew as another one, has a configuration."""
    gpu, count = split_configuration(configuration)
    return node.gpu == gpu and count <= node.num_gpus


def used_gpus(jobs: Iterable[Job]) -> Counter[str]:
    """GPUs in use on each node."""
    used: Counter[str] = Counter()
    for job in jobs:
        if job.node is not None and job.configuration is not None:
            used[job.node] += split_configuration(job.configuration)[1]
    return used


def is_valid(book: Book, change: Change) -> bool:
    """Whether no node has more GPUs in use than it has after a change."""
    after = {**book.queue, **{job.id: job for job in change.jobs}}
    return all(count <= book.nodes[node].num_gpus
               for node, count in used_gpus(after.values()).items())


def job_as_json(book: Book, job: Job, now_s: float) -> dict[str, Any]:
    """A job as callers see it."""
    gpu, count = split_configuration(job.configuration) if job.configuration else (None, 0)
    return {**job.model_dump(include={*Submit.model_fields}), "state": job.state, "epochs_done": job.epochs_done,
            "sequence": job.sequence, "submission_s": job.submission_s, "node": job.node,
            "gpu": gpu, "gpus": count, "start_s": job.start_s, "end_s": job.end_s,
            "expected_end_s": expected_end_s(book, job, now_s)}


def expected_end_s(book: Book, job: Job, now_s: float) -> float | None:
    """When a running job will be done if it stays where it is."""
    if job.node is None or job.configuration is None:
        return None
    epoch_s = book.epoch_s(job.application, job.batch)[job.configuration]
    return now_s + left_epochs(book, job, now_s) * epoch_s


def plan_of(book: Book, now_s: float) -> dict[str, Any]:
    """The plan: who runs where, with how many GPUs, since when, and who waits."""
    now_s = clock_s(book, now_s)
    running = [job_as_json(book, job, now_s) for job in book.queue.values()
               if job.node is not None]
    keys = ("id", "node", "gpu", "gpus", "start_s", "epochs_done", "expected_end_s", "due_s")
    eur_per_h = math.fsum(book.prices[f"{book.nodes[node].gpu},{count}"]
                          for node, count in used_gpus(book.queue.values()).items())
    return {"version": book.version, "now_s": now_s, "eur_per_h": eur_per_h,
            "running": [{key: job[key] for key in keys} for job in running],
            "waiting": [job.id for job in book.queue.values() if job.node is None]}
