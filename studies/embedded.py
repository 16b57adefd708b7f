"""How the embedded data is made: an inventory of nodes, decks of tasks, and speeds of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sched_lab.cluster import WHOLE_GPU_MILLI
from sched_lab.hadar.workload import GAVEL_TYPES
from sched_lab.lab.arrays import Integers
from sched_lab.traces import Tasks, gpu_requests, task_classes

__all__ = ["generate_nodes", "generate_tasks", "synthetic_throughputs", "task_statistics"]


NODE_TYPES = (  # number of nodes, GPU model, GPUs, vCPU, MiB: one row for each type
    (549, "G2", 8, 96, 393216),
    (39, "G3", 8, 128, 786432),
    (387, "T4", 2, 104, 524288), (17, "T4", 4, 96, 393216),
    (3, "P100", 1, 8, 61440), (2, "P100", 2, 8, 61440), (107, "P100", 2, 16, 122880),
    (22, "P100", 2, 64, 262144),
    (9, "V100M32", 4, 48, 376832), (21, "V100M32", 8, 96, 786432),
    (19, "V100M16", 1, 8, 32768), (28, "V100M16", 4, 32, 131072),
    (7, "V100M16", 8, 64, 262144), (1, "V100M16", 8, 82, 344064),
    (2, "A10", 1, 128, 1048576),
)


def generate_nodes() -> pd.DataFrame:
    """Node list of the default cluster, from its inventory `NODE_TYPES`."""
    rows = [(vcpu * 1000, mib, gpus, model)
            for count, model, gpus, vcpu, mib in NODE_TYPES for _ in range(count)]
    table = pd.DataFrame(rows, columns=["cpu_milli", "memory_mib", "gpu", "model"])
    table.insert(0, "sn", [f"node-{i:04d}" for i in range(len(table))])
    return table


@dataclass(frozen=True)
class TaskGroup:
    """Tasks of one GPU request: three decks, each value -> per cent of the tasks of the group.

    Parameters
    ----------
    percent : of all tasks, Table I
    num_gpus : number of GPUs of each task
    gpu_milli, vcpu, memory_gib : demand on each GPU, milli-GPU; vCPU; GiB
    """

    percent: float
    num_gpus: int
    gpu_milli: Mapping[int, float]
    vcpu: Mapping[float, float]
    memory_gib: Mapping[float, float]


WHOLE = {WHOLE_GPU_MILLI: 100}
TASK_GROUPS = (TaskGroup(13.3, num_gpus=0, gpu_milli={0: 100},
                         vcpu={8: 18, 12.5: 35, 15.5: 11, 16.5: 9,
                               32: 27}, memory_gib={30: 15, 48: 28, 50: 20, 56: 35, 64: 2}),
               TaskGroup(
                   37.8, num_gpus=1, gpu_milli={
                       810: 35, 470: 24, 320: 11, 650: 8, 460: 6, 230: 4, 600: 3, 550: 3, 370: 2,
                       160: 2, 110: 2}, vcpu={1: 1, 3.2: 36, 4: 24, 6: 4, 8: 15, 12: 20},
                   memory_gib={5.5: 38, 10: 8, 15: 14, 22: 6, 30: 16, 46: 18}),
               TaskGroup(
                   48.0, num_gpus=1, gpu_milli=WHOLE, vcpu={
                       3.2: 13, 4: 4, 8: 5, 9.8: 6, 11: 11, 11.4: 18, 11.8: 10, 12: 11, 15.7: 11,
                       18.7: 7, 24: 4}, memory_gib={
                           5.5: 12, 16: 7, 24: 10, 40: 11, 47: 18, 48: 22, 57: 7, 64: 7, 76: 4,
                           91: 2}),
               TaskGroup(0.2, num_gpus=2, gpu_milli=WHOLE, vcpu={6: 20, 16: 60, 30: 20},
                         memory_gib={65: 80, 157: 20}),
               TaskGroup(0.2, num_gpus=4, gpu_milli=WHOLE, vcpu={32: 80, 60: 20},
                         memory_gib={129: 80, 313: 20}),
               TaskGroup(0.5, num_gpus=8, gpu_milli=WHOLE, vcpu={64: 48, 88: 42, 110: 10},
                         memory_gib={257: 48, 320: 44, 640: 8}),
               )


def quotas(weights: Mapping[Any, float], total: int) -> Integers:
    """Whole numbers in proportion to the weights that add up to `total` (largest remainders)."""
    exact = np.array([*weights.values()], float) * total / sum(weights.values())
    counts = np.floor(exact).astype(np.int64)
    most_short = np.argsort(counts - exact, kind="stable")
    counts[most_short[: total - counts.sum()]] += 1
    return counts


def _deal(deck: Mapping[Any, float], total: int, seed: np.random.SeedSequence) -> NDArray[Any]:
    """Deal a deck that has been shuffled, (total,)."""
    cards = np.repeat([*deck], quotas(deck, total))
    return cards[np.argsort(np.random.default_rng(seed).random(total), kind="stable")]


def generate_tasks(seed: int = 0, num_tasks: int = 8152) -> pd.DataFrame:
    """Task list of the default workload, from the decks of `TASK_GROUPS`.

    Parameters
    ----------
    seed : of the pairing of the demands and of the order of the tasks; the totals do not depend on
        it
    num_tasks : 8152 as in the paper's Default trace
    """
    order, *streams = np.random.SeedSequence(seed).spawn(1 + 3 * len(TASK_GROUPS))
    sizes = quotas({i: group.percent for i, group in enumerate(TASK_GROUPS)}, num_tasks).tolist()
    parts = []
    for i, (group, size) in enumerate(zip(TASK_GROUPS, sizes, strict=True)):
        decks: list[Mapping[Any, float]] = [group.gpu_milli, group.vcpu, group.memory_gib]
        shares, vcpu, memory = map(_deal, decks, [size] * 3, streams[3 * i : 3 * i + 3])
        parts.append(pd.DataFrame({"cpu_milli": np.rint(vcpu * 1000).astype(np.int64),
                                   "memory_mib": np.rint(memory * 1024).astype(np.int64),
                                   "num_gpu": group.num_gpus, "gpu_milli": shares}))
    table = pd.concat(parts, ignore_index=True)
    table = table.iloc[np.argsort(np.random.default_rng(order).random(num_tasks), kind="stable")]
    table.insert(0, "name", [f"task-{i:04d}" for i in range(num_tasks)])
    return table.reset_index(drop=True)


def task_statistics(tasks: Tasks) -> pd.DataFrame:
    """Numbers by which traces are compared: gpu_request ("all" for all), statistic and value.

    The statistics are tasks and classes, and total and quartiles (q25, q50, q75) of vcpu,
    memory_gib and gpu.
    """
    demands = {"vcpu": tasks.cpu_milli / 1000, "memory_gib": tasks.memory_mib / 1024,
               "gpu": tasks.gpu_demand_milli / 1000}
    frame = pd.DataFrame({
        "gpu_request": gpu_requests(tasks), "class": task_classes(tasks)[1], **demands})
    rows: list[tuple[str, str, float]] = []
    for request, group in [("all", frame), *frame.groupby("gpu_request")]:
        rows += [(request, "tasks", len(group)), (request, "classes", group["class"].nunique())]
        for name in demands:
            rows.append((request, f"{name}_total", group[name].sum()))
            rows += [(request, f"{name}_q{q}", group[name].quantile(q / 100)) for q in (25, 50, 75)]
    return pd.DataFrame(rows, columns=["gpu_request", "statistic", "value"])


class Family(NamedTuple):
    """One model: steps/s of one K80 with the smallest batch, and ratios of V100 and P100 to it."""

    k80_steps_per_s: float
    over_k80: tuple[float, float]
    batch_sizes: tuple[int, ...]


FAMILIES = {
    "ResNet-18": Family(7.0, (6.0, 5.0), (32, 64, 128)),
    "ResNet-50": Family(2.0, (6.0, 4.0), (16, 32, 128)),
    "CycleGAN": Family(0.5, (9.0, 5.0), ()),
    "LM": Family(25.0, (4.5, 3.5), (10, 20, 40)),
    "Transformer": Family(3.5, (4.5, 3.0), (32, 64, 128)),
}
BATCH_EXPONENT = 0.75
GANG_EXPONENTS = {"": (0.7, 0.8, 0.9), "_spread": (0.4, 0.6, 0.8)}  # of V100, P100, K80
TOO_LARGE_FOR_K80 = ("ResNet-50", 128)  # in a gang


def _synthetic_row(model: str, family: Family, batch: int, workers: int) -> dict[str, str | float]:
    """Speeds of a model with a batch size (0 if it has but one) in a gang."""
    smaller = (batch / family.batch_sizes[0]) ** -BATCH_EXPONENT if batch else 1.0
    is_large = (model, batch) == TOO_LARGE_FOR_K80 and workers > 1
    row: dict[str, str | float] = {
        "key": f"{model} (batch size {batch})" if batch else model, "workers": workers}
    for kind, exponents in GANG_EXPONENTS.items():
        for name, ratio, exponent in zip(GAVEL_TYPES, (*family.over_k80, 1.0), exponents,
                                         strict=True):
            runs = not (is_large and name == "k80")
            rate = family.k80_steps_per_s * ratio * smaller * workers**exponent * runs
            row[f"{name}{kind}"] = float(f"{rate:.4g}")
    return row


def synthetic_throughputs() -> pd.DataFrame:
    """Speeds as `read_throughputs` wants them, rounded to four digits."""
    return pd.DataFrame([
        _synthetic_row(model, family, batch, workers) for model, family in FAMILIES.items()
        for workers in ((1, 2, 4, 8) if family.batch_sizes else (1,))
        for batch in family.batch_sizes or (0,)])
