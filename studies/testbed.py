"""HadarE's clusters of five nodes, and the mixes of jobs on them."""

from __future__ import annotations

import numpy as np

from sched_lab.hadar.fork import GPUS, estimated_rate
from sched_lab.hadar.model import Cluster, Jobs, Workload

__all__ = ["MIXES", "NODES", "node_workload"]


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
