"""Best placement of a few tasks on a few nodes, by a binary program."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

from sched_lab.cluster import WHOLE_GPU_MILLI, Cluster, empty_state
from sched_lab.lab.arrays import Floats, Integers
from sched_lab.online.bounds import cpu_curve_w, gpu_curve_w, kinds_of
from sched_lab.online.model import Placements
from sched_lab.power import Power, gpu_power_w
from sched_lab.traces import Tasks

__all__ = ["Optimum", "optimal_placement"]


class Optimum(NamedTuple):
    """Best placement of some arrivals.

    Parameters
    ----------
    value : milli-GPU placed, or EOPC in watts; infinite if nothing serves enough
    placements : where each arrival is, for `check_placements`
    """

    value: float
    placements: Placements


def reachable(amounts: Integers, room: int) -> Integers:
    """All sums of some of the amounts that are not above the room, ascending."""
    sums = {0}
    for amount in amounts.tolist():
        sums |= {total + amount for total in sums if total + amount <= room}
    return np.array(sorted(sums), np.int64)


class BinaryProgram:
    """Binary program, written row by row."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.rows: list[dict[int, float]] = []
        self.limits: list[tuple[float, float]] = []

    def variable(self, cost: float = 0.0, allowed: bool = True) -> int:
        """Add a variable that is 0 or, if allowed, 1."""
        self.cost.append(cost)
        self.upper.append(float(allowed))
        return len(self.cost) - 1

    def row(self, entries: dict[int, float], low: float, high: float) -> None:
        """Add low <= sum of entries <= high."""
        self.rows.append(entries)
        self.limits.append((low, high))

    def level(self, entries: dict[int, float], levels: Integers, watts: Floats) -> None:
        """Let a sum take one of the levels, and pay the watts of it."""
        chosen = [self.variable(float(watt)) for watt in watts]
        self.row(dict.fromkeys(chosen, 1.0), 1, 1)
        taken = {one: -float(level) for one, level in zip(chosen, levels, strict=True)}
        self.row(entries | taken, 0, 0)


def solve(program: BinaryProgram) -> Floats | None:
    """Best values of the variables, nothing if there are none."""
    entries = [(number, column, value) for number, row in enumerate(program.rows)
               for column, value in row.items()]
    number, column, value = (np.array(part) for part in zip(*entries, strict=True))
    matrix = csr_matrix((value, (number, column)), (len(program.rows), len(program.cost)))
    low, high = np.array(program.limits).T
    solved = milp(program.cost, integrality=np.ones(len(program.cost)),
                  options={"mip_rel_gap": 0}, constraints=LinearConstraint(matrix, low, high),
                  bounds=Bounds(0, program.upper))
    return None if solved.x is None else np.round(solved.x)


def node_rows(program: BinaryProgram, cluster: Cluster, arrived: Tasks, node: int, here: Integers,
              power: Power | None) -> Integers:
    """Add the rows of one node; return the variables "task on GPU", (tasks, GPUs).

    Parameters
    ----------
    program : grows
    cluster, arrived : the nodes; the task of each arrival
    node : row of the cluster
    here : (arrivals,) variables "task on this node"
    power : None if watts do not matter
    """
    num_gpus = int(cluster.num_gpus[node])
    variables = [program.variable() for _ in range(len(here) * num_gpus)]
    on = np.array(variables, np.int64).reshape(len(here), num_gpus)
    for task, one in enumerate(here.tolist() if num_gpus else []):
        gpus = dict.fromkeys(on[task].tolist(), 1.0)
        program.row({one: -float(arrived.num_gpus[task])} | gpus, 0, 0)
    memory = arrived.memory_mib.astype(float)
    program.row(dict(zip(here.tolist(), memory, strict=True)), 0, cluster.memory_mib[node])
    levels = reachable(arrived.cpu_milli, int(cluster.cpu_milli[node]))
    watts = np.zeros(len(levels)) if power is None else cpu_curve_w(power, node)[levels]
    cpu = arrived.cpu_milli.astype(float)
    program.level(dict(zip(here.tolist(), cpu, strict=True)), levels, watts)
    levels = reachable(arrived.gpu_milli[arrived.num_gpus > 0], WHOLE_GPU_MILLI)
    watts = np.zeros(len(levels)) if power is None else gpu_curve_w(power, node)[levels]
    gpu = arrived.gpu_milli.astype(float)
    for one_gpu in on.T.tolist():
        program.level(dict(zip(one_gpu, gpu, strict=True)), levels, watts)
    return on


def optimal_placement(cluster: Cluster, tasks: Tasks, task_row: Integers,
                      power: Power | None = None, served_gpu_milli: int | None = None) -> Optimum:
    """Best placement of a few arrivals on a few nodes, by a binary program.

    Parameters
    ----------
    cluster, tasks : the nodes; the trace
    task_row : (arrivals,) row of each arriving task in the trace
    power : None to place as much GPU demand as possible, else draw as little power as possible
    served_gpu_milli : with a power model, GPU demand to be placed at least; None to place every
        arrival
    """
    kinds = kinds_of(cluster, tasks, task_row)
    arrived = tasks.take(task_row)
    demand = arrived.gpu_demand_milli.astype(float)
    must = power is not None and served_gpu_milli is None
    fits = kinds.fits[kinds.class_of][:, kinds.type_of]
    program = BinaryProgram()
    gain = demand if power is None else np.zeros(len(arrived))
    variables = [program.variable(-gain[task], bool(ok))
                 for task, row in enumerate(fits) for ok in row]
    at = np.array(variables, np.int64).reshape(fits.shape)  # arrival on node: at most one, or one
    for places in at:
        program.row(dict.fromkeys(places.tolist(), 1.0), float(must), 1)
    if served_gpu_milli is not None:
        entries = zip(at.ravel().tolist(), np.repeat(demand, len(cluster)).tolist(), strict=True)
        program.row(dict(entries), served_gpu_milli, math.inf)
    on = [node_rows(program, cluster, arrived, node, at[:, node], power)
          for node in range(len(cluster))]
    chosen = solve(program)
    if chosen is None:
        nothing = np.zeros(len(arrived), np.int64)
        return Optimum(math.inf, Placements(task_row, nothing - 1, nothing))
    node = np.where(chosen[at].any(axis=1), chosen[at].argmax(axis=1), -1)
    gpu_mask = [int(chosen[on[n][task]] @ (1 << np.arange(on[n].shape[1]))) if n >= 0 else 0
                for task, n in enumerate(node)]
    placements = Placements(task_row, node, np.array(gpu_mask, np.int64))
    if power is None:
        return Optimum(float(demand[placements.node >= 0].sum()), placements)
    idle = empty_state(cluster).gpu_left_milli
    idle_w = sum(gpu_power_w(power, node, idle[node]) for node in range(len(cluster)))
    return Optimum(float(np.array(program.cost) @ chosen) + idle_w, placements)
