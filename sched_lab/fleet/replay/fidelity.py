"""How well a replay knows a cluster: its waits, its starts and its GPUs in use beside those of the record."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...cluster import WHOLE_GPU_MILLI, empty_state
from ...lab.arrays import Floats, Integers, Texts, Truths
from ...traces import admits
from .outages import NO_OUTAGES, apart, mean_over
from .problem import Problem, Schedule, is_part, with_lost
from .waits import groups_of_tasks, waits_of

__all__ = ['record_of', 'gpus_over', 'fidelity_of', 'fidelity_over', 'room_while_waiting']

MOST_WAIT_APART = 0.25  # of the mean wait of the record
UNMODELLED_S = 60.0  # passes of a scheduler, pulls of images, boots: of a mean wait
MOST_RUN_APART = 0.01  # of the mean run time: so short a wait changes no turnaround
MOST_USE_APART = 0.1  # of the mean of the GPUs in use
NEAR_S = (60, 600, 3600)
FIDELITY = ["policy", "backfill", "by", "value", "tasks",
            *(f"{of}{name}_wait_s" for name in ("mean", "p50", "p90") for of in ("recorded_", "")),
            *(f"within_{near_s}_s_share" for near_s in NEAR_S), "gpus_apart_share", "misfit"]


def record_of(problem: Problem) -> Schedule | None:
    """When tasks really ran, their nodes left open (0 if a task ran, else -1); None if that is not known.

    A table whose tasks all start when they are submitted, on no known node, records demand and no starts.
    """
    has_start = np.isfinite(problem.start_s)
    if not (has_start & ((problem.node >= 0) | (problem.start_s > problem.submit_s))).any():
        return None
    return Schedule(np.where(has_start, 0, -1), np.zeros_like(problem.gpu_mask), problem.start_s,
                    problem.start_s + problem.duration_s)


def gpus_over(problem: Problem, schedule: Schedule, edges_s: Floats) -> Floats:
    """Mean of the GPUs in use between edges, (bins,).

    Parameters
    ----------
    problem, schedule : what ran when
    edges_s : (bins + 1,) ascending
    """
    problem, schedule, _ = with_lost(problem, schedule)
    ran = schedule.node >= 0
    milli = problem.tasks.gpu_demand_milli[ran]
    return mean_over(schedule.start_s[ran], schedule.end_s[ran], milli, edges_s) / WHOLE_GPU_MILLI


def fidelity_of(recorded: tuple[Floats, Floats], replays: Mapping[tuple[str, str], tuple[Floats, Floats]],
                width_s: Floats, groups: Mapping[str, Texts], run_s: Floats) -> pd.DataFrame:
    """Waits, starts and GPUs in use of each replay beside the record, a row for each group of tasks.

    `misfit` is the larger of two distances, each as a share of what is let pass: of the mean waits, a quarter
    of the record's, a minute, or a hundredth of the mean run time, whichever is most, and of the GPUs in use,
    on average over the hours, a tenth of the record's. A replay explains the record up to 1. A second run of Slurm itself moves a mean wait by a fifth, and a lever
    is worth a change where it takes off a quarter: a model that is off by more cannot tell. GPUs in use are off
    by a few per cent where the same jobs start an hour apart.

    Parameters
    ----------
    recorded : (tasks,) waits, NaN for who has no start, and (bins,) GPUs in use
    replays : the same of each policy and rule of the queue
    width_s : (bins,) length of each
    groups : name of each task's group, by kind of group, (tasks,)
    run_s : (tasks,) how long each runs; infinite for who has no end
    """
    rows: list[dict[str, Any]] = []
    then_s, then_gpus = recorded
    in_all = float((then_gpus * width_s).sum())
    coded = {by: pd.factorize(groups[by]) for by in ("all", "size", "queue") if by == "all" or (groups[by] != "").any()}
    for ((policy, rule), (now_s, gpus)), (by, (code, values)) in product(replays.items(), coded.items()):
        both = np.flatnonzero(np.isfinite(then_s) & np.isfinite(now_s))
        both = both[np.argsort(code[both], kind="stable")]
        mine = np.split(both, np.flatnonzero(np.diff(code[both])) + 1) if len(both) else []
        for tasks in sorted(mine, key=lambda tasks: (-len(tasks), values[code[tasks[0]]])):
            row = {"policy": policy, "backfill": rule, "by": by, "value": values[code[tasks[0]]], "tasks": len(tasks)}
            for of, waits_s in (("recorded_", then_s[tasks]), ("", now_s[tasks])):
                row[f"{of}mean_wait_s"] = waits_s.mean()
                row[f"{of}p50_wait_s"], row[f"{of}p90_wait_s"] = np.quantile(waits_s, (0.5, 0.9))
            apart_s = np.abs(now_s[tasks] - then_s[tasks])
            row |= {f"within_{near_s}_s_share": (apart_s <= near_s).mean() for near_s in NEAR_S}
            if by == "all":
                use_apart = float((np.abs(gpus - then_gpus) * width_s).sum()) / in_all if in_all else 0.0
                ends = np.isfinite(run_s[tasks])
                mean_run_s = run_s[tasks][ends].mean() if ends.any() else 0.0
                limit_s = max(MOST_WAIT_APART * row["recorded_mean_wait_s"], UNMODELLED_S,
                              MOST_RUN_APART * mean_run_s)
                wait_apart_s = abs(row["mean_wait_s"] - row["recorded_mean_wait_s"])
                row |= {"gpus_apart_share": use_apart,
                        "misfit": max(wait_apart_s / limit_s, use_apart / MOST_USE_APART)}
            rows.append(row)
    return pd.DataFrame(rows, columns=FIDELITY)


BIN_S = (3600.0, 600.0, 60.0)
FEWEST_BINS = 48
MOST_BINS = 90_000  # ten years of hours


def horizon_of(problem: Problem, against: Schedule, at_s: float | None) -> tuple[float, float]:
    """First and last moment that is measured, whichever other policies are compared.

    From the first submission, or the moment from which policies decide, until the last task would
    end had none waited, or does end under the policy that the others are compared with.

    Parameters
    ----------
    problem, at_s : as `compare`
    against : schedule of that policy
    """
    times = np.concatenate([problem.submit_s, problem.submit_s + problem.duration_s,
                            against.start_s, against.end_s])
    times = times[np.isfinite(times)]
    first = float(times.min(initial=np.inf) if at_s is None else at_s)
    return first, max(float(times.max(initial=-np.inf)), first + 3600)


def edges_of(horizon: tuple[float, float]) -> Floats:
    """Edges of bins; the last bin may be shorter."""
    first, last = horizon
    fine = [width for width in BIN_S if FEWEST_BINS * width <= last - first]
    days = np.ceil((last - first) / MOST_BINS / 86400)
    width = 86400 * days if last - first > MOST_BINS * BIN_S[0] else fine[0]
    edges = first + width * np.arange(int((last - first) / width) + 1)
    return np.append(edges[edges < last], last)


def fidelity_over(problem: Problem, replays: Mapping[tuple[str, str], Schedule], is_pinned: Truths,
                  at_s: float | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Replays beside the record, as `fidelity_of`, and GPUs in use over time; both empty without a record.

    Parameters
    ----------
    problem, replays, at_s : what was replayed, by policy and rule, and from when on
    is_pinned : (tasks,) who ran already
    """
    record = record_of(problem)
    if record is None or not replays:
        return pd.DataFrame(columns=FIDELITY), pd.DataFrame()
    edges_s = edges_of(horizon_of(replace(problem, duration_s=0 * problem.submit_s), record, at_s))
    gpus = {cell: gpus_over(problem, one, edges_s) for cell, one in replays.items()}
    recorded_gpus = gpus_over(problem, record, edges_s)
    found = fidelity_of((waits_of(problem, record, is_pinned).wait_s, recorded_gpus), {
        cell: (waits_of(problem, one, is_pinned).wait_s, gpus[cell]) for cell, one in replays.items()},
        np.diff(edges_s), groups_of_tasks(problem), problem.duration_s)
    return found, pd.DataFrame({"start_s": edges_s[:-1], "end_s": edges_s[1:], "recorded": recorded_gpus,
                                "replayed": next(iter(gpus.values()))})


class Held(NamedTuple):
    """What is free on nodes after each start or end, in the order of time; on closed ones less than nothing.

    Parameters
    ----------
    at_s, node : (changes,) when and where
    before : (changes,) place of the node's change before, -1 if there is none
    cpu_milli, memory_mib, gpu_milli : (changes,), (changes,) and (changes, GPUs) free from then on
    """

    at_s: Floats
    node: Integers
    before: Integers
    cpu_milli: Integers
    memory_mib: Integers
    gpu_milli: Integers


def free_after(problem: Problem, schedule: Schedule) -> Held:
    """What nodes have free after each start or end of a schedule, or of an outage."""
    ran, tasks, empty = np.flatnonzero(schedule.node >= 0), problem.tasks, empty_state(problem.cluster)
    closed = apart(problem.outages or NO_OUTAGES)
    gpus = np.arange(empty.gpu_left_milli.shape[1])
    asks = np.column_stack([tasks.cpu_milli, tasks.memory_mib,
                            (schedule.gpu_mask[:, None] >> gpus & 1) * tasks.gpu_milli[:, None]])[ran]
    full = np.zeros((len(closed.node), asks.shape[1]), np.int64)  # nothing fits on a closed node
    full[:, 0] = empty.cpu_left_milli[closed.node] + 1
    held = np.tile(np.vstack([asks, full]), (2, 1))
    node = np.tile(np.append(schedule.node[ran], closed.node), 2)
    at_s = np.concatenate([schedule.start_s[ran], closed.from_s, schedule.end_s[ran], closed.until_s])
    sign = np.repeat([1, -1], len(node) // 2)
    order = np.lexsort((sign, at_s))
    order = order[np.isfinite(at_s[order])]
    held, at_s, sign, node = held[order], at_s[order], sign[order], node[order]
    by_node = np.argsort(node, kind="stable")
    is_first = np.diff(node[by_node], prepend=-1) > 0
    before = np.full(len(node), -1)
    before[by_node] = np.where(is_first, -1, np.append(-1, by_node[:-1]))
    summed = np.cumsum((sign[:, None] * held)[by_node], axis=0)
    begins = np.flatnonzero(is_first)
    of_others = np.vstack([np.zeros((1, held.shape[1]), np.int64), summed])[begins]
    now = np.empty_like(held)
    now[by_node] = summed - np.repeat(of_others, np.diff(np.append(begins, len(node))), axis=0)
    return Held(at_s, node, before, empty.cpu_left_milli[node] - now[:, 0],
                empty.memory_left_mib[node] - now[:, 1], empty.gpu_left_milli[node] - now[:, 2:])


MOST_REQUESTS = 200  # of those that wait longest together


def room_while_waiting(problem: Problem, schedule: Schedule) -> tuple[float, float]:
    """Hours that jobs of one part waited, and the hours of these in which some node had room for them.

    A queue may keep such jobs waiting for those before them; holds, quotas and limits do so, too.

    Parameters
    ----------
    problem : its tasks; not counted are parts of larger jobs, and those with a limit on nodes or instances
    schedule : where, when and on which GPUs each ran
    """
    problem, schedule, _ = with_lost(problem, schedule)
    tasks, cluster = problem.tasks, problem.cluster
    waits = (schedule.node >= 0) & (schedule.start_s > problem.submit_s) & ~is_part(problem)
    if problem.most_per_node is not None:
        waits &= problem.most_per_node == 0
    if problem.instances is not None:
        waits &= ~problem.instances.need.any(axis=1)
    rows = np.flatnonzero(waits)
    if not len(rows):
        return 0.0, 0.0
    asked = pd.DataFrame({
        "cpu": tasks.cpu_milli[rows], "memory": tasks.memory_mib[rows], "num": tasks.num_gpus[rows],
        "milli": tasks.gpu_milli[rows], "models": tasks.gpu_spec[rows], "groups": tasks.cpu_spec[rows],
        "row": rows, "wait_h": (schedule.start_s - problem.submit_s)[rows] / 3600})
    held, empty = free_after(problem, schedule), empty_state(cluster)
    with_room = counted = 0.0
    requests = asked.groupby(["cpu", "memory", "num", "milli", "models", "groups"], sort=True)
    longest = requests["wait_h"].sum().sort_values(ascending=False, kind="stable").index[:MOST_REQUESTS]
    for cpu, memory, num, milli, models, groups in longest:
        mine = requests.get_group((cpu, memory, num, milli, models, groups))
        may = np.array([(num == 0 or admits(models, model)) and admits(groups, group) for model, group in
                        zip(cluster.gpu_model, problem.group, strict=True)], bool)
        fits_empty, fits = (is_right & (left_cpu >= cpu) & (left_memory >= memory) & (
            (left_gpu >= max(milli, 1)).sum(axis=1) >= num) for is_right, left_cpu, left_memory, left_gpu in (
                (may, *empty), (may[held.node], held.cpu_milli, held.memory_mib, held.gpu_milli)))
        change = fits.astype(np.int64) - np.where(held.before < 0, fits_empty[held.node], fits[held.before])
        has_room = fits_empty.sum() + np.cumsum(change) > 0
        room_s = np.append(0.0, np.cumsum(np.diff(held.at_s) * has_room[:-1]))
        until = [np.interp(moment[mine["row"]], held.at_s, room_s)
                 for moment in (problem.submit_s, schedule.start_s)]
        with_room += float((until[1] - until[0]).sum()) / 3600
        counted += float(mine["wait_h"].sum())
    return counted, with_room
