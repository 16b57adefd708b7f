"""Synergy (OSDI 2022): who profits from more CPU and memory takes what others do not need.

Usual schedulers give each GPU the same share of its server's CPU and memory. Image models are
faster with more, language models need less. In rounds, jobs go on GPUs in the order of the queue.
TUNE gives each what it profits from, or its share where that finds no room, and takes back from
others what they have beyond theirs if even the share finds none. Numbers below are those of the
authors' simulator (`msr-fiddle/synergy`, `simulator/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import NamedTuple

import numpy as np

from sched_lab.lab.arrays import Floats, Integers

__all__ = ['ALLOCATIONS', 'MODELS', 'Jobs', 'models_in_turn', 'draw_jobs', 'best_of',
           'speed_of', 'tuned', 'faults_of_round', 'simulate_rounds']

SERVERS, GPUS, CPUS, MEMORY_GB = 16, 8, 24.0, 500.0  # of each server
SHARE = (CPUS / GPUS, MEMORY_GB / GPUS)  # of a GPU
ROUND_S = 300.0
CPU_GRID = (1, 2, 3, 4, 5, 6, 9, 12)  # of a profile, for each GPU
MEMORY_GRID_GB = (20.0, 62.5, 125.0, 187.5)
MEASURED = slice(4000, 5000)  # jobs that count

Room = list[list[float]]  # of each server: GPUs, CPUs, memory in GB
Parts = list[tuple[int, int]]  # of a job: server, and GPUs there


class Profile(NamedTuple):
    """What a model profits from, for each GPU; speeds are over that with the share of a GPU.

    Parameters
    ----------
    task : what it learns from
    best : CPUs and GB beyond which it is no faster
    by_cpu, by_memory : speed at the points of the grids, of which the lesser counts
    """

    task: str
    best: tuple[float, float]
    by_cpu: tuple[float, ...]
    by_memory: tuple[float, ...]


FROM_TEXT = Profile("language", (1, 20.0), (1.0,) * 8, (1.0,) * 4)
MODELS = {
    "alexnet": Profile("image", (12, 125.0), (.3, .66, 1, 1.25, 1.53, 1.75, 2, 2.94),
                       (.1, 2, 2.94, 2.94)),
    "res18": Profile("image", (9, 62.5), (.37, .72, 1, 1.3, 1.53, 1.75, 2.4, 2.4),
                     (.1, 2.4, 2.4, 2.4)),
    "res50": Profile("image", (4, 62.5), (.4, .74, 1, 1.15, 1.15, 1.15, 1.15, 1.15),
                     (.1, 1.15, 1.15, 1.15)),
    "mobilenet": Profile("image", (6, 62.5), (.37, .72, 1, 1.3, 1.49, 1.55, 1.55, 1.55),
                         (.1, 1.55, 1.55, 1.55)),
    "shufflenet": Profile("image", (12, 125.0), (.3, .66, 1, 1.25, 1.53, 1.75, 2, 2.89),
                          (.1, 2, 2.89, 2.89)),
    "gnmt": FROM_TEXT, "transformer": FROM_TEXT, "lstm": FROM_TEXT,
    "m5": Profile("speech", (6, 187.5), (.3, .66, 1, 1.2, 1.4, 2.5, 2.5, 2.5), (.1, 1.5, 2, 2.5)),
    "deepspeech": Profile("speech", (3, 62.5), (.3, .66, 1, 1, 1, 1, 1, 1), (.1, 1, 1, 1))}
PROFILES = [*MODELS.values()]
SPLIT = {"image": 0.2, "language": 0.7, "speech": 0.1}  # of jobs


@cache
def speed_of(model: int, each: tuple[float, float]) -> float:
    """Speed of a model with so much for each GPU: that of the last point of its profile below.

    Parameters
    ----------
    model : its place in `MODELS`
    each : CPUs and GB
    """
    by_cpu = np.searchsorted(CPU_GRID, each[0] + 1e-9, side="right") - 1
    by_memory = np.searchsorted(MEMORY_GRID_GB, each[1] + 1e-9, side="right") - 1
    return float(min(PROFILES[model].by_cpu[by_cpu], PROFILES[model].by_memory[by_memory]))


class Jobs(NamedTuple):
    """Jobs of a workload, the first first.

    Parameters
    ----------
    submit_s, work_s : (jobs,) when each comes, and how long it runs with the share of its GPUs
    num_gpus, model : (jobs,) GPUs, and place in `MODELS`
    """

    submit_s: Floats
    work_s: Floats
    num_gpus: Integers
    model: Integers


def models_in_turn(num: int) -> Integers:
    """Model of each job: the task that lacks most of its share is next, its models in turn."""
    of_task = [[at for at, one in enumerate(PROFILES) if one.task == task] for task in SPLIT]
    share, given = np.array([*SPLIT.values()]), np.zeros(len(SPLIT), np.int64)
    model = np.empty(num, np.int64)
    for job in range(num):
        task = int(np.argmax(share - given / max(job, 1)))
        model[job] = of_task[task][given[task] % len(of_task[task])]
        given[task] += 1
    return model


def draw_jobs(per_hour: float, num: int, seed: int = 42) -> Jobs:
    """Jobs of one GPU as the authors draw them, a fifth of them long; with their seed the same.

    Parameters
    ----------
    per_hour : jobs that come in an hour
    num, seed : of the jobs, and of the draws
    """
    draw = Random(seed)
    minutes = [10 ** (draw.uniform(3, 4) if draw.random() >= 0.8 else draw.uniform(1.5, 3))
               for _ in range(num)]
    draw.seed(seed)
    gap_s = np.empty(num)
    for job in range(num):
        gap_s[job] = np.ceil(-np.log(1 - draw.random()) / per_hour * 3600)
        draw.randint(0, len(MODELS) - 1)  # they draw a model, and then take the next in turn
    one = np.ones(num, np.int64)
    return Jobs(gap_s.cumsum(), 60 * np.array(minutes), one, models_in_turn(num))


def best_of(model: int, num_gpus: int) -> tuple[float, float]:
    """CPUs and GB that a job asks for, for each GPU: a server's at most, over several the share."""
    cpus, memory_gb = PROFILES[model].best
    of_server = min(num_gpus, GPUS)
    return min(cpus, CPUS / of_server), min(memory_gb, MEMORY_GB / of_server)


def spread(room: Room, num_gpus: int, each: tuple[float, float]) -> Parts | None:
    """The first GPUs beside which there is so much CPU and memory for each; None if too few."""
    parts, lacks = [], num_gpus
    for server, (gpus, cpus, memory_gb) in enumerate(room):
        if gpus:
            fit = min(lacks, int(gpus), int(cpus / each[0] + 1e-9), int(memory_gb / each[1] + 1e-9))
            if fit:
                parts.append((server, fit))
                lacks -= fit
                if not lacks:
                    return parts
    return None


def take(room: Room, parts: Parts, each: tuple[float, float], sign: int = 1) -> None:
    """Take from servers what a job gets there; give it back with sign -1."""
    for server, gpus in parts:
        room[server][0] -= sign * gpus
        room[server][1] -= sign * gpus * each[0]
        room[server][2] -= sign * gpus * each[1]


def exceeds(each: tuple[float, float]) -> bool:
    """Whether somebody has more than the share of a GPU."""
    return each[0] > SHARE[0] or each[1] > SHARE[1]


class Given(NamedTuple):
    """What a job gets for a round: GPUs on servers, and CPUs and GB for each of them."""

    parts: Parts
    each: tuple[float, float]


def tuned(asks: Sequence[tuple[int, tuple[float, float]]]) -> list[Given]:
    """TUNE: what each job gets in a round, in the order of the queue.

    Parameters
    ----------
    asks : GPUs of each job, and CPUs and GB that it profits from for each; all find GPUs
    """
    room: Room = [[GPUS, CPUS, MEMORY_GB] for _ in range(SERVERS)]
    found: list[Given] = []
    for num_gpus, each in asks:
        parts = spread(room, num_gpus, each)
        if parts is None and exceeds(each):
            each = SHARE
            parts = spread(room, num_gpus, each)
        if parts is None:
            for server, gpus in shortest(room, num_gpus):
                make_room(room, found, server, gpus, each)
            parts = spread(room, num_gpus, each)
        if parts is None:  # never seen: what is left of each server is at least the share
            raise AssertionError(f"no room for {num_gpus} GPUs with {each}")
        take(room, parts, each)
        found.append(Given(parts, each))
    return found


def shortest(room: Room, num_gpus: int) -> Parts:
    """GPUs of the first server with so many, else of those that have the fewest free."""
    for server, (gpus, _, _) in enumerate(room):
        if num_gpus > 1 and gpus >= num_gpus:
            return [(server, num_gpus)]
    parts: Parts = []
    for gpus, server in sorted((int(gpus), at) for at, (gpus, _, _) in enumerate(room) if gpus):
        parts.append((server, min(gpus, num_gpus)))
        num_gpus -= parts[-1][1]
        if not num_gpus:
            break
    return parts


def make_room(room: Room, found: list[Given], server: int, gpus: int,
              each: tuple[float, float]) -> None:
    """Cut jobs of a server back to their share, those with most CPUs first, until others fit."""
    peers = [at for at, one in enumerate(found) if any(here == server for here, _ in one.parts)]
    for at in sorted(peers, key=lambda at: (len(found[at].parts), -found[at].each[0],
                                            -found[at].each[1])):
        if room[server][1] >= gpus * each[0] and room[server][2] >= gpus * each[1]:
            break
        if exceeds(found[at].each):
            take(room, found[at].parts, found[at].each, -1)
            found[at] = found[at]._replace(each=SHARE)
            take(room, *found[at])


@cache
def profiled(model: int, each: tuple[float, float]) -> float:
    """Highest speed that the profile of a model allows with so much for each GPU."""
    rows = [zip(CPU_GRID, PROFILES[model].by_cpu, strict=True),
            zip(MEMORY_GRID_GB, PROFILES[model].by_memory, strict=True)]
    return min(max(speed for amount, speed in row if amount <= got + 1e-9)
               for row, got in zip(rows, each, strict=True))


def faults_of_round(models: Sequence[int], num_gpus: Sequence[int], given: Sequence[Given],
                    speeds: Sequence[float]) -> list[str]:
    """What is wrong with a round: too much of a server, a part of a job, a speed above its profile.

    Parameters
    ----------
    models, num_gpus, speeds : of the jobs that run
    given : what each gets
    """
    found = []
    used = [[0.0, 0.0, 0.0] for _ in range(SERVERS)]
    for model, size, (parts, each), speed in zip(models, num_gpus, given, speeds, strict=True):
        for server, gpus in parts:
            used[server] = [sum(two) for two in zip(
                used[server], (gpus, gpus * each[0], gpus * each[1]), strict=True)]
        if sum(gpus for _, gpus in parts) != size or len({at for at, _ in parts}) != len(parts):
            found.append(f"a job of {size} GPUs has {parts}")
        if speed > profiled(model, each) + 1e-9:
            found.append(f"model {model} runs at {speed} with {each}")
    for server, sums in enumerate(used):
        if any(one > most + 1e-6 for one, most in zip(sums, (GPUS, CPUS, MEMORY_GB), strict=True)):
            found.append(f"server {server} gives {sums}")
    return found


ALLOCATIONS = ("share", "TUNE", "unlimited")


def key_of(order: str, jobs: Jobs, rows: Integers, now_s: float, left_s: Floats,
           best: Floats, had_s: Floats) -> Floats:
    """What the queue is ordered by; ties come in the order of arrival.

    Parameters
    ----------
    order : FIFO, SRTF, LAS or FTF; that as the program has it, the least delayed first
    rows : the jobs of the queue
    now_s : the time
    left_s, best : (jobs,) work that is left, and the speed that each expects
    had_s : (jobs,) seconds that each has run
    """
    left_s = (left_s / best)[rows]
    if order == "FTF":
        return (now_s - jobs.submit_s[rows] + left_s) / jobs.work_s[rows]
    return {"FIFO": jobs.submit_s[rows], "SRTF": left_s,
            "LAS": (had_s * jobs.num_gpus)[rows]}[order]


def simulate_rounds(jobs: Jobs, order: str, allocation: str) -> tuple[Floats, float]:
    """Run rounds until the jobs that count are done: when each ends, and GPUs in use on average.

    Parameters
    ----------
    jobs : the workload
    order : FIFO, SRTF, LAS or FTF
    allocation : one of `ALLOCATIONS`; unlimited gives each its best, whatever servers have: no
        allocation is faster

    Raises
    ------
    AssertionError : a round breaks a rule
    """
    model, num_gpus = jobs.model.tolist(), jobs.num_gpus.tolist()
    asks = [(gpus, best_of(one, gpus)) for one, gpus in zip(model, num_gpus, strict=True)]
    best = np.array([speed_of(one, each) for one, (_, each) in zip(model, asks, strict=True)])
    if allocation == "share":
        best[:] = 1.0
    left_s, had_s, end_s = jobs.work_s.copy(), np.zeros(len(best)), np.full(len(best), np.inf)
    waits: Integers = np.zeros(0, np.int64)
    round_number, come, used = 0, 0, 0
    while not np.isfinite(end_s[MEASURED]).all():
        now_s = round_number * ROUND_S
        until = int(np.searchsorted(jobs.submit_s, now_s, side="right"))
        waits = np.append(waits, np.arange(come, until))
        come, round_number = until, round_number + 1
        key = key_of(order, jobs, waits, now_s, left_s, best, had_s)
        queue = waits[np.argsort(key, kind="stable")]
        runs = fitting(queue, jobs.num_gpus)
        speeds = best[runs]
        if allocation == "TUNE":
            models = [model[job] for job in runs]
            given = tuned([asks[job] for job in runs])
            speeds = np.array([speed_of(*one) for one in zip(
                models, (one.each for one in given), strict=True)])
            if wrong := faults_of_round(models, [num_gpus[job] for job in runs], given,
                                        speeds.tolist()):
                raise AssertionError(f"{order} at {now_s:g} s: {wrong[:3]}")
        left_s[runs] -= ROUND_S * speeds
        had_s[runs] += ROUND_S
        used += int(jobs.num_gpus[runs].sum())
        end_s[runs[left_s[runs] <= 0]] = now_s + ROUND_S
        waits = waits[left_s[waits] > 0]
    return end_s, used / round_number


def fitting(queue: Integers, num_gpus: Integers) -> Integers:
    """Jobs that find GPUs, in the order of the queue; who does not is passed over."""
    left, found = SERVERS * GPUS, []
    for job in queue:
        if num_gpus[job] <= left:
            found.append(job)
            left -= int(num_gpus[job])
            if not left:
                break
    return np.array(found, np.int64)
