"""HadarE's clusters: the speed of a GPU by its data sheet, and mixes of jobs on five nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sched_lab.hadar.model import Cluster, Jobs, Workload

__all__ = ["GPUS", "MIXES", "NODES", "PMI", "estimated_rate", "node_workload", "pmi"]


class Gpu(NamedTuple):
    """What a data sheet says (one die).

    Parameters
    ----------
    fp32_tflops, tensor_tflops : single precision, and dense half precision (on tensor cores if
        there are any)
    memory_gb : capacity
    pcie : generation
    """

    fp32_tflops: float
    tensor_tflops: float
    memory_gb: float
    pcie: int


GPUS = {
    "V100": Gpu(15.7, 125.0, 16, 3),
    "P100": Gpu(9.3, 18.7, 16, 3),
    "K80": Gpu(4.37, 4.37, 12, 3),
    "T4": Gpu(8.1, 65.0, 16, 3),
    "TitanRTX": Gpu(16.3, 130.5, 24, 3),
    "T400": Gpu(1.09, 2.18, 4, 3),
    "RTX3090": Gpu(35.6, 142.0, 24, 4),
    "A2000": Gpu(8.0, 31.9, 6, 4),
}

# performance-memory index: which TFLOPS, their power, and the power of the memory
PMI = {
    "fp32/sqrt(V)": (False, 1.0, -0.5),
    "tensor/sqrt(V)": (True, 1.0, -0.5),
    "sqrt(fp32/V)": (False, 0.5, -0.5),
    "sqrt(tensor/V)": (True, 0.5, -0.5),
    "fp32*sqrt(V)": (False, 1.0, 0.5),
    "sqrt(tensor)/V": (True, 0.5, -1.0),
    "sqrt(tensor)*sqrt(V)": (True, 0.5, 0.5),
}


def pmi(gpu: Gpu, formula: str = "fp32/sqrt(V)") -> float:
    """Performance-memory index.

    Parameters
    ----------
    formula : a key of `PMI`; the default is the grammatical reading of the paper's sentence
    """
    tensor, power, memory_power = PMI[formula]
    tflops = gpu.tensor_tflops if tensor else gpu.fp32_tflops
    return float(tflops ** power * gpu.memory_gb ** memory_power)


def estimated_rate(gpu: Gpu, *, batch: float, model_weight: float, dataset_size: float,
                   formula: str = "fp32/sqrt(V)", pcie4_scaling: float = 2.0) -> float:
    """Throughput before any measurement, in units of its own.

    Parameters
    ----------
    gpu : its data sheet
    batch : examples of a step
    model_weight, dataset_size : 1 to 4 for S, M, L, XL
    formula : of the performance-memory index, a key of `PMI`
    pcie4_scaling : factor of PCIe 4.0 over 3.0

    References
    ----------
    Eq. 10 of the HadarE paper
    """
    scaling = pcie4_scaling if gpu.pcie >= 4 else 1.0
    return pmi(gpu, formula) * batch * scaling / (model_weight * dataset_size)


NODES = {
    "aws": ("V100", "K80", "K80", "T4", "T4"),
    "testbed": ("TitanRTX", "T4", "T400", "RTX3090", "A2000")}
_FOUR = ("IC", "LM", "LT", "RS")
MIXES = {
    "M-1": ("MM",), "M-3": ("LT", "MM", "MM"), "M-4": ("IC", "LM", "LT", "MM"),
    "M-5": (*_FOUR, "MM"), "M-8": (*_FOUR, *["MM"] * 4), "M-10": (*_FOUR, *["MM"] * 6),
    "M-12": (*_FOUR, *["MM"] * 8)}
SOLO_S = {"IC": 900.0, "LM": 1500.0, "LT": 1500.0, "RS": 1800.0, "MM": 1200.0}
STEPS_PER_S = 100.0  # on the fastest node


def node_workload(cluster: str, mix: str, formula: str = "fp32/sqrt(V)", *,
                  pcie4_scaling: float = 2.0) -> Workload:
    """A mix of the paper on one of its clusters, with assumed lengths on the fastest node.

    Parameters
    ----------
    cluster : a key of `NODES`
    mix : a key of `MIXES`
    formula : a key of `PMI`: how the speed of a node follows from its data sheet
    pcie4_scaling : how much faster PCIe 4 moves data than PCIe 3

    References
    ----------
    Sultana et al. 2025, Eq. 10 and Section VI-B.
    """
    speed = {
        name: estimated_rate(GPUS[name], batch=1, model_weight=1, dataset_size=1, formula=formula,
                             pcie4_scaling=pcie4_scaling) for name in NODES[cluster]}
    types = tuple(sorted(speed, key=lambda name: -speed[name]))  # Gavel fills them in this order
    solo_s = np.array([SOLO_S[kind] for kind in MIXES[mix]])
    relative = np.array([speed[name] for name in types]) / speed[types[0]]
    rate = np.tile(STEPS_PER_S * relative, (len(solo_s), 1))
    one_each = np.ones(len(solo_s))
    jobs = Jobs(np.zeros(len(solo_s)), np.round(solo_s * STEPS_PER_S), one_each.astype(np.int64),
                one_each, rate, rate)
    node_type = np.array([types.index(name) for name in NODES[cluster]])
    names = tuple(f"{kind}{number}" for number, kind in enumerate(MIXES[mix]))
    nodes = tuple(f"{name}-{number}" for number, name in enumerate(NODES[cluster]))
    one_gpu_each = Cluster(node_type, np.ones(len(node_type), np.int64))
    return Workload(names, nodes, types, one_gpu_each, jobs)
