"""The experiments that make every stored frame of the PWR chapters, each with its minutes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from sched_lab.cluster import Cluster, describe_nodes, empty_state, read_nodes
from sched_lab.lab.arrays import Integers
from sched_lab.lab.frames import sha256
from sched_lab.lab.sweeps import grid
from sched_lab.online.bounds import METHODS, Service, eopc_lower_bound_w, grar_upper_bound
from sched_lab.online.evaluation import (
    Known,
    Study,
    arrivals_in,
    cluster_in,
    compare,
    run_cell,
    tasks_in,
)
from sched_lab.online.inflation import (
    Run,
    cut,
    inflate,
    mean_curve,
    on_grid,
    sample_arrivals,
    saving_percent,
)
from sched_lab.online.policies import policy_of
from sched_lab.power import GPU_POWER_W, POWER_MODELS, datacenter_power_w, power_of
from sched_lab.traces import Arrivals, Tasks, read_tasks, task_classes

from .claims import Row, held, section
from .embedded import task_statistics
from .lockstep_results import MEASURED, measured_scoring, measured_throughput
from .pwr_results import CLAIMS as DEFAULT_CLAIMS
from .pwr_results import EVALUATION
from .pwr_traces import CLAIMS as TRACE_CLAIMS
from .reproduction import Claim, Experiment, Workplace

if TYPE_CHECKING:
    import altair as alt

__all__ = ['EXPERIMENTS', 'OWN_CLAIMS', 'CLAIMS', 'FIGURES']

FGD_TO_PWR = ("fgd", "pwr-fgd:0.05", "pwr-fgd:0.1", "pwr-fgd:0.2", "pwr-fgd:0.5", "pwr")
SELECTED = FGD_TO_PWR[1:4]  # the mixes that the paper follows up
PAPER = (*FGD_TO_PWR, "bestfit", "dotprod", "gpu-packing", "gpu-clustering", "random")
BEYOND = (*FGD_TO_PWR, "pwr@0.8@fgd", "pwr-fgd:0.5@0.8@fgd", "pwr-fgd:0.5@0.6@pwr-fgd:0.1@0.8@fgd",
          "pwr-target", "joint")
EVERY = (*PAPER, "pwr-target", "joint")
# enough for every conclusion
SENSITIVE = ("fgd", *SELECTED, "pwr", "bestfit", "gpu-packing", "joint")
RECORDED = tuple(range(42, 52))
OWN = tuple(range(10))
TRACES = ("default", "gpushare40", "gpushare60", "gpushare80", "gpushare100", "gpuspec10",
          "gpuspec20", "gpuspec25", "gpuspec33", "multigpu20", "multigpu30", "multigpu40",
          "multigpu50")
SOME_TRACES = ("default", "gpushare100", "gpuspec33")
ALPHAS = ("0", "0.001", "0.002", "0.005", "0.0095", "0.015", "0.02", "0.03", "0.05", "0.1", "0.2",
          "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9", "0.95", "0.98", "0.995", "1")

Table = dict[str, tuple[int, int]]  # idle and full watts by GPU model
WATTS: dict[str, tuple[str, Table]] = {
    "paper": ("step", {}),
    "linear": ("linear", {}),
    "concave": ("concave", {}),
    "V100 idles at 12 W": ("step", {"V100M16": (12, 300), "V100M32": (12, 300)}),
    "V100 idles at 75 W": ("step", {"V100M16": (75, 300), "V100M32": (75, 300)}),
    "G2 is like a T4": ("step", {"G2": (10, 70)}),
    "G2 is like a V100": ("step", {"G2": (30, 300)}),
    "G2 is like an A100": ("step", {"G2": (50, 400)}),
    "every GPU idles at half": (
        "step", {model: (idle // 2, full) for model, (idle, full) in GPU_POWER_W.items()}),
    "every GPU idles at double": (
        "step", {model: (2 * idle, full) for model, (idle, full) in GPU_POWER_W.items()}),
}

GPU_NODES = "openb/openb_node_list_gpu_node.csv"


def pods(trace: str) -> str:
    """Data name of the tasks of a trace."""
    return f"openb/openb_pod_list_{trace}.csv"


def recording(trace: str) -> str:
    """Data name of the authors' recorded workloads of a trace."""
    return f"pwr/arrivals/{trace}.json.gz"


def needs_of(*traces: str) -> tuple[str, ...]:
    """Data that experiments on these traces need."""
    return (GPU_NODES, *map(pods, traces), *map(recording, traces))


class TraceFiles(NamedTuple):
    """Files of one trace, each with the checksum it must have."""

    nodes: Known
    tasks: Known
    arrivals: Known

    def checksums(self) -> dict[str, str]:
        """Checksum of each file."""
        return {name: known[1] for name, known in self._asdict().items()}

    def read(self, seed: int) -> tuple[Cluster, Tasks, Arrivals]:
        """Nodes, trace, and the recorded workload of a seed."""
        models = frozenset(GPU_POWER_W)
        return (cluster_in(self.nodes, models), tasks_in(self.tasks),
                arrivals_in(self.arrivals, seed, self.nodes, models, self.tasks))


def files_of(place: Workplace, trace: str) -> TraceFiles:
    """Files of a trace, where they are on this machine."""
    paths = [place.data(name) for name in needs_of(trace)]
    return TraceFiles(*((path, sha256(path)) for path in paths))


def sweep_traces(place: Workplace, function: Callable[..., Any], traces: Sequence[str],
                 cells: Sequence[Mapping[str, Any]], name: str, **more: Any) -> pd.DataFrame:
    """Frame of all cells of a function that is given the files of several traces first.

    Parameters
    ----------
    place : where to compute
    function, cells, name, more : of the sweep (`Workplace.sweep`); what else it depends on
    traces : whose files are given, by name
    """
    files = {trace: files_of(place, trace) for trace in traces}
    inputs = {trace: known.checksums() for trace, known in files.items()}
    return place.sweep(partial(function, files), cells, name, depends_on={"inputs": inputs, **more})


def study_of(place: Workplace, policies: tuple[str, ...], seeds: tuple[int, ...],
             traces: tuple[str, ...] = ("default",), *, is_recorded: bool = True,
             step: float = 0.1, **more: Any) -> Study:
    """Describe runs on the public traces, on their recorded workloads or on drawn ones.

    Parameters
    ----------
    place : where the data is
    policies, seeds, traces : what to run
    is_recorded : whether the authors' workloads are replayed
    step : distance of the grid on which curves are kept
    more : further options of the study, and `gpu_power`, a file of watts
    """
    gpu_power = more.pop("gpu_power", None)
    options = {"power": "package", "until": 1.0, **more}
    return Study(place.data(GPU_NODES), {trace: place.data(pods(trace)) for trace in traces},
                 policies, seeds,
                 {trace: place.data(recording(trace)) for trace in traces if is_recorded},
                 options, gpu_power, None, step)


def runs_of(place: Workplace, study: Study, name: str) -> pd.DataFrame:
    """Curves of all runs of a study, computed or found finished."""
    return place.sweep(partial(run_cell, study), study.cells(), name,
                       depends_on=study.depends_on())


DIGITS = {"x": 4, "eopc_w": 2, "cpu_w": 2, "gpu_w": 2, "grar": 7, "frag_milli": 1, "failed": 2}
SPREAD = {"saving_percent": 5, "saving_sd": 5, "grar_sd": 7}


def means(place: Workplace, study: Study, name: str) -> pd.DataFrame:
    """Seed means of a study, rounded as they are stored.

    Parameters
    ----------
    study : what to run
    name : of the sweep
    """
    frame = compare(runs_of(place, study, name)).round(DIGITS | SPREAD)
    frame["saving_percent"] += 0.0  # no minus zero
    return frame[["trace", "policy", *DIGITS, *SPREAD]]


def evaluation_mean(place: Workplace) -> pd.DataFrame:
    """Repeat the paper's whole evaluation."""
    study = study_of(place, PAPER, RECORDED, TRACES, step=0.005, arithmetic="reference")
    return means(place, study, "evaluation")


def beyond_mean(place: Workplace) -> pd.DataFrame:
    """Compare our policies with the paper's, on seeds of the tuning, on others and drawn ones."""
    studies = {"tuning": study_of(place, BEYOND, RECORDED[:5], TRACES),
               "test": study_of(place, BEYOND, RECORDED[5:], TRACES),
               "drawn": study_of(place, BEYOND, OWN[:5], TRACES, is_recorded=False)}
    return pd.concat([means(place, study, f"beyond-{name}").assign(seeds=name)
                      for name, study in studies.items()], ignore_index=True)


def default_policies(place: Workplace) -> pd.DataFrame:
    """Run every policy on the seeds for which the bounds are computed."""
    return means(place, study_of(place, EVERY, RECORDED[:3]), "policies")


def sensitivity(place: Workplace) -> pd.DataFrame:
    """Let the doubtful watts take other plausible values, one at a time: savings and GRAR."""
    parts = []
    for number, (name, (curve, changed)) in enumerate(WATTS.items()):
        table = place.folder / f"watts-{number}.csv"
        rows = "".join(f"{model},{idle},{full}\n"
                       for model, (idle, full) in {**GPU_POWER_W, **changed}.items())
        table.parent.mkdir(parents=True, exist_ok=True)
        table.write_text("model,idle_w,full_w\n" + rows)
        study = study_of(place, SENSITIVE, RECORDED[:2], SOME_TRACES, gpu_power=table,
                         load_curve=curve)
        parts.append(means(place, study, f"watts-{number}").assign(watts=name))
    return pd.concat(parts, ignore_index=True)


TRAIN = ("default", "gpuspec10", "gpuspec20", "gpuspec33", "multigpu50", "gpushare100")
SERVED_W = (0, 100, 300, 1000)
SAVED_SHARES = (0, 0.5, 0.75, 1, 1.5)
TUNED = ("fgd", *(f"bid:{served}:{saved}" for served in SERVED_W for saved in SAVED_SHARES))


def bid_tuning(place: Workplace) -> pd.DataFrame:
    """Turn both dials of bid on six traces, on drawn workloads."""
    study = study_of(place, TUNED, RECORDED[:5], TRAIN, is_recorded=False)
    return means(place, study, "bid-tuning")


def curves_of(runs: pd.DataFrame, policy: str) -> list[pd.DataFrame]:
    """Curve of each seed of a policy, on the grid of the study."""
    own = runs[runs["policy"] == policy].drop(columns=["trace", "policy"])
    return [curve.drop(columns="seed").reset_index(drop=True)
            for _, curve in own.groupby("seed", sort=False)]


def compared(runs: pd.DataFrame) -> pd.DataFrame:
    """Seed means of all policies, savings against FGD, and the spread over the seeds."""
    fgd = curves_of(runs, "fgd")
    parts = []
    for policy in dict.fromkeys(runs["policy"]):
        own = curves_of(runs, policy)
        mean = mean_curve(own).round(DIGITS).assign(policy=policy)
        mean["saving_percent"] = saving_percent(mean_curve(own), mean_curve(fgd)).round(5) + 0.0
        savings = [saving_percent(ours, theirs) for ours, theirs in zip(own, fgd, strict=True)]
        grars = [curve["used_gpu_milli"] / curve["arrived_gpu_milli"] for curve in own]
        mean["saving_sd"] = np.std(savings, axis=0, ddof=1).round(5)
        mean["grar_sd"] = np.std(grars, axis=0, ddof=1).round(7)
        parts.append(mean[["policy", *DIGITS, *SPREAD]])
    return pd.concat(parts, ignore_index=True)


def default_exact(place: Workplace) -> pd.DataFrame:
    """Repeat the recorded workloads in exact arithmetic, with either model of CPU power."""
    parts = []
    for power in POWER_MODELS:
        study = study_of(place, FGD_TO_PWR, RECORDED, step=0.02, power=power, until=None)
        parts.append(compared(runs_of(place, study, f"exact-{power}")).assign(power=power))
    return pd.concat(parts, ignore_index=True)


def default_replacement(place: Workplace) -> pd.DataFrame:
    """Draw workloads of our own, as the paper's text says and as the authors' code does."""
    parts = []
    for sampling in ("replacement", "permutation-first"):
        study = study_of(place, FGD_TO_PWR, OWN, is_recorded=False, step=0.02, power="eq1",
                         until=None, sampling=sampling)
        parts.append(compared(runs_of(place, study, f"drawn-{sampling}")).assign(sampling=sampling))
    return pd.concat(parts, ignore_index=True)


def default_alpha(place: Workplace) -> pd.DataFrame:
    """Let alpha run over its whole range: savings and GRAR."""
    named = {alpha: {"0": "fgd", "1": "pwr"}.get(alpha, f"pwr-fgd:{alpha}") for alpha in ALPHAS}
    study = study_of(place, tuple(named.values()), RECORDED, step=0.05, until=None)
    runs = runs_of(place, study, "alpha")
    fgd = mean_curve(curves_of(runs, "fgd"))
    parts = []
    for alpha, policy in named.items():
        mean = mean_curve(curves_of(runs, policy))
        saving = saving_percent(mean, fgd).round(5) + 0.0
        both = mean.assign(alpha=float(alpha), saving_percent=saving, grar=mean["grar"].round(7))
        is_shown = both["x"].isin((0.1, 0.5, 0.8, 0.9, 1.0))
        parts.append(both.loc[is_shown, ["alpha", "x", "saving_percent", "grar"]])
    return pd.concat(parts, ignore_index=True)


def run_recorded(files: TraceFiles, policy: str, seed: int, arithmetic: str = "exact") -> Run:
    """One run on a recorded workload, packages counted."""
    cluster, tasks, arrivals = files.read(seed)
    return inflate(cluster, tasks, policy_of(policy, arithmetic), seed=seed, arrivals=arrivals,
                   power="package")


def differences(files: TraceFiles, policy: str, seed: int) -> dict[str, Any]:
    """Events placed differently, and curves apart, between the two arithmetics.

    Parameters
    ----------
    files : of the trace
    policy, seed : of the run
    """
    exact = run_recorded(files, policy, seed)
    reference = run_recorded(files, policy, seed, "reference")
    is_other = ((exact.placements.node != reference.placements.node)
                | (exact.placements.gpu_mask != reference.placements.gpu_mask))
    ours = on_grid(exact.curve)
    theirs = on_grid(reference.curve)
    apart_w = theirs["eopc_w"] - ours["eopc_w"]
    apart = (theirs - ours)["used_gpu_milli"] / ours["arrived_gpu_milli"]
    return {"events": len(is_other), "placed_differently": int(is_other.sum()),
            "first": int(is_other.argmax()) if is_other.any() else -1,
            "eopc_apart_percent": round(float((apart_w.abs() / ours["eopc_w"]).max() * 100), 5),
            "grar_apart": round(float(apart.abs().max()), 7)}


def default_arithmetic(place: Workplace) -> pd.DataFrame:
    """Compare what exact and reference arithmetic place, per policy and seed."""
    files = files_of(place, "default")
    cells = grid(policy=list(FGD_TO_PWR), seed=list(RECORDED))
    return place.sweep(partial(differences, files), cells, "arithmetic",
                       depends_on={"inputs": files.checksums()})


def rescored(files: TraceFiles, policy: str, seed: int) -> dict[str, Any]:
    """Count the pairs whose node changed since the class last arrived.

    Parameters
    ----------
    files : of the trace
    policy, seed : of the run
    """
    cluster, tasks, arrivals = files.read(seed)
    node = run_recorded(files, policy, seed).placements.node
    classes, class_of = task_classes(tasks)
    version = np.zeros(len(cluster), int)
    seen = np.full((len(classes), len(cluster)), -1)
    pairs = 0
    for task, place in zip(class_of[arrivals.task_row], node, strict=True):
        pairs += int((seen[task] != version).sum())
        seen[task] = version
        if place >= 0:
            version[place] += 1
    return {"arrivals": len(node), "nodes": len(cluster), "classes": len(classes),
            "placed": int(version.sum()), "scored": pairs}


def default_rescored(place: Workplace) -> pd.DataFrame:
    """Count the pairs of task class and node that the engine scores in one run."""
    files = files_of(place, "default")
    return place.sweep(partial(rescored, files), grid(policy=list(FGD_TO_PWR), seed=[RECORDED[0]]),
                       "rescored", depends_on={"inputs": files.checksums()})


def default_cluster_power(place: Workplace) -> pd.DataFrame:
    """Watts of the cluster with every processor idle and with every processor in use."""
    cluster = read_nodes(place.data(GPU_NODES))
    idle = empty_state(cluster)
    busy = idle._replace(cpu_left_milli=idle.cpu_left_milli * 0,
                         gpu_left_milli=idle.gpu_left_milli * 0)
    rows = []
    for model in POWER_MODELS:
        power = power_of(cluster, model)
        for name, state in (("idle", idle), ("busy", busy)):
            cpu_w, gpu_w = datacenter_power_w(power, state)
            rows.append({"power": model, "state": name, "cpu_w": cpu_w, "gpu_w": gpu_w,
                         "eopc_w": cpu_w + gpu_w})
    frame = pd.DataFrame(rows)
    watts = ["cpu_w", "gpu_w", "eopc_w"]
    frame[watts] = frame[watts].astype("Int64").astype(np.int64)  # whole ones; refuses to cut any
    return frame


FEW = RECORDED[:3]  # of the frames whose bounds are dear
BOUND_SEEDS = {  # by method, and whether the trace is Default
    ("aggregated", True): RECORDED, ("aggregated", False): FEW,
    ("patterns", True): FEW, ("patterns", False): FEW[:1]}
BOUND_X = (0.2, 0.5, 0.8, 0.9, 0.95, 1.0)
ROUNDS = {"default": 40, "others": 20}
SHARES = (0.89, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.965)
FRONTIER_ROUNDS = 80  # far from what the policies serve, the first contents help less


def prefix(files: TraceFiles, seed: int, x: float) -> tuple[Cluster, Tasks, Arrivals]:
    """Nodes, trace, and the arrivals of a recorded workload until demand reaches x."""
    cluster, tasks, arrivals = files.read(seed)
    rows = cut(cluster, tasks, arrivals.task_row, x)
    return cluster, tasks, Arrivals(rows, arrivals.node_rank)


@cache
def all_served_w(files: TraceFiles, seed: int, x: float, method: str, max_rounds: int) -> float:
    """Bound on the power of any scheduler that places every arrival, watts.

    Parameters
    ----------
    files, seed, x : the arrivals (`prefix`)
    method, max_rounds : of the bound
    """
    cluster, tasks, arrivals = prefix(files, seed, x)
    return eopc_lower_bound_w(cluster, tasks, arrivals.task_row, power="package", method=method,
                              max_rounds=max_rounds)


def bound_row(files: Mapping[str, TraceFiles], trace: str, seed: int, x: float,
              method: str) -> dict[str, Any]:
    """Both bounds for one prefix; power if everything is placed, infinite if that is impossible.

    Parameters
    ----------
    files : by trace
    trace, seed, x : the arrivals (`prefix`)
    method : of the bounds
    """
    cluster, tasks, arrivals = prefix(files[trace], seed, x)
    max_rounds = ROUNDS.get(trace, ROUNDS["others"])
    grar = grar_upper_bound(cluster, tasks, arrivals.task_row, method=method,
                            max_rounds=max_rounds)
    eopc_w = all_served_w(files[trace], seed, x, method, max_rounds) if grar == 1 else np.inf
    return {"grar_bound": round(grar, 7), "eopc_bound_w": round(eopc_w, 2)}


def policy_row(files: TraceFiles, policy: str, seed: int, x: float, method: str) -> dict[str, Any]:
    """Let a policy run; bound the power of any scheduler that serves as much.

    Parameters
    ----------
    files, seed, x : the arrivals (`prefix`)
    policy : who places them
    method : of the bounds
    """
    cluster, tasks, arrivals = prefix(files, seed, x)
    run = inflate(cluster, tasks, policy, arrivals=arrivals, power="package")
    is_placed = run.placements.node >= 0
    served = arrivals.task_row[is_placed]
    gpu_milli = int(tasks.gpu_demand_milli[served].sum())
    cpu_milli = int(tasks.cpu_milli[served].sum())
    row = {"eopc_w": round(run.curve["eopc_w"].iloc[-1], 2),
           "grar": round(gpu_milli / int(tasks.gpu_demand_milli[arrivals.task_row].sum()), 7),
           "cpu_share": round(cpu_milli / int(tasks.cpu_milli[arrivals.task_row].sum()), 7)}
    if is_placed.all():
        bound_w = round(all_served_w(files, seed, x, method, ROUNDS["default"]), 2)
        return row | {"gpu_bound_w": bound_w, "gpu_cpu_bound_w": bound_w}
    bound_of = partial(eopc_lower_bound_w, cluster, tasks, arrivals.task_row, power="package",
                       method=method, max_rounds=ROUNDS["default"])
    return row | {"gpu_bound_w": round(bound_of(served=Service(gpu_milli)), 2),
                  "gpu_cpu_bound_w": round(bound_of(served=Service(gpu_milli, cpu_milli)), 2)}


def frontier_row(files: TraceFiles, share: float, method: str) -> dict[str, Any]:
    """Bounds on the power of any scheduler that serves a share of the demand.

    Parameters
    ----------
    files : of the trace
    share, method : how much is served, and how it is bounded
    """
    cluster, tasks, arrivals = prefix(files, RECORDED[0], 1.0)
    gpu_milli = int(np.ceil(share * tasks.gpu_demand_milli[arrivals.task_row].sum()))
    cpu_milli = int(np.ceil(share * tasks.cpu_milli[arrivals.task_row].sum()))
    bound_w = partial(eopc_lower_bound_w, cluster, tasks, arrivals.task_row, power="package",
                      method=method, max_rounds=FRONTIER_ROUNDS)
    return {"gpu_bound_w": round(bound_w(served=Service(gpu_milli)), 2),
            "gpu_cpu_bound_w": round(bound_w(served=Service(gpu_milli, cpu_milli)), 2)}


def bounds_frame(place: Workplace) -> pd.DataFrame:
    """Bounds on GRAR and EOPC of any scheduler, for each trace and load."""
    cells = [{"trace": trace, "seed": seed, "x": x, "method": method}
             for trace in TRACES for method in METHODS
             for seed in BOUND_SEEDS[method, trace == "default"] for x in BOUND_X]
    return sweep_traces(place, bound_row, TRACES, cells, "bounds", rounds=ROUNDS)


def bounds_policies(place: Workplace) -> pd.DataFrame:
    """What each policy serves and draws, and the bound on any scheduler that serves as much."""
    files = files_of(place, "default")
    cells = [{"policy": policy, "seed": seed, "x": x, "method": method}
             for seed in FEW for x in BOUND_X for method in METHODS for policy in FGD_TO_PWR]
    return place.sweep(partial(policy_row, files), cells, "bounds-policies",
                       depends_on={"inputs": files.checksums(), "rounds": ROUNDS})


def bounds_frontier(place: Workplace) -> pd.DataFrame:
    """Least power of any scheduler that serves a share of the demand."""
    files = files_of(place, "default")
    cells = [{"share": share, "method": method} for share in SHARES for method in METHODS]
    frame = place.sweep(partial(frontier_row, files), cells, "bounds-frontier",
                        depends_on={"inputs": files.checksums(), "rounds": FRONTIER_ROUNDS})
    frame.insert(0, "seed", RECORDED[0])
    return frame


JUDGES = tuple(range(47, 62))
TO_JUDGE = (*FGD_TO_PWR, *PAPER[6:10], "joint")
JUDGE_STEP = 0.02
WHOLE = ["eopc_w", "used_gpu_milli", "arrived_gpu_milli"]


def judged(place: Workplace, policies: tuple[str, ...], name: str,
           traces: tuple[str, ...] = TRACES, **more: Any) -> pd.DataFrame:
    """What each run serves and draws, on all seeds that judge.

    Parameters
    ----------
    policies, traces : who runs, and where
    name : of the sweep
    more : `seeds`, if fewer; further options of the study
    """
    study = study_of(place, policies, more.pop("seeds", JUDGES), traces, is_recorded=False,
                     step=JUDGE_STEP, **more)
    frame = runs_of(place, study, name)[["trace", "policy", "seed", "x", *WHOLE]].copy()
    frame[WHOLE] = frame[WHOLE].round().astype(np.int64)
    return frame


def equal_service(place: Workplace) -> pd.DataFrame:
    """Let the paper's policies and ours serve and draw, on seeds that nothing was tuned on."""
    return judged(place, TO_JUDGE, "judged")


FAMILY = (  # on four or more of the twelve frontiers that tuning drew, and the default point
    "bid:0:1.5", "bid:100:0.5", "bid:100:1.5", "bid:300:0.5", "bid:300:1", "bid:300:1.5",
    "bid:1000:0.5", "bid:1000:0.75")


JUDGES_OF = {trace: JUDGES if trace in ("gpuspec25", "gpuspec33", "multigpu50") else JUDGES[:5]
             for trace in TRACES}


def bid_family(place: Workplace) -> pd.DataFrame:
    """Let points between the two dials of bid serve and draw, on seeds that tuned nothing."""
    return pd.concat([judged(place, FAMILY, "family", (trace,), seeds=seeds)
                      for trace, seeds in JUDGES_OF.items()], ignore_index=True)


BY_EQ_1: dict[str, Any] = {
    "policies": (*FGD_TO_PWR, "joint", *FAMILY), "seeds": JUDGES[:5],
    "traces": ("default", "gpuspec33", "multigpu50"), "power": "eq1"}


def bid_eq1(place: Workplace) -> pd.DataFrame:
    """Judge the family of bid again with the watts of CPUs as Eq. 1 is printed."""
    return judged(place, name="family-eq1", **BY_EQ_1)


PARTS = {0.5: (0.9, 1.0), 0.8: (0.9, 1.0), 1.0: (0.82, 0.86, 0.9, 0.93, 0.95, 0.97)}


def part_served(files: TraceFiles, seed: int, x: float, share: float) -> float:
    """Bound on the power of any scheduler that serves a share of a drawn workload, watts.

    Parameters
    ----------
    files, seed : of the workload
    x, share : demand that has come, and how much of it is served at least
    """
    cluster, tasks, rows = drawn_prefix(files, seed, x)
    wanted = (np.ceil(share * demand[rows].sum() - 1e-6)
              for demand in (tasks.gpu_demand_milli, tasks.cpu_milli))
    return eopc_lower_bound_w(cluster, tasks, rows, power="package",
                              served=Service(*map(int, wanted)), method="aggregated")


def drawn_prefix(files: TraceFiles, seed: int, x: float) -> tuple[Cluster, Tasks, Integers]:
    """Nodes, trace, and the arrivals of a drawn workload until demand reaches x."""
    cluster = cluster_in(files.nodes, frozenset(GPU_POWER_W))
    tasks = tasks_in(files.tasks)
    return cluster, tasks, sample_arrivals(cluster, tasks, seed, x).task_row


def part_rows(files: Mapping[str, TraceFiles], trace: str, seed: int, x: float) -> pd.DataFrame:
    """The most that can be served of a workload, and the least power for each part of it.

    Parameters
    ----------
    files : by trace
    trace, seed, x : the arrivals
    """
    most = grar_upper_bound(*drawn_prefix(files[trace], seed, x), method="aggregated")
    shares = [np.floor(most * part * 1e7) / 1e7 for part in PARTS[x]]
    bounds_w = [part_served(files[trace], seed, x, share) for share in shares]
    return pd.DataFrame({"grar_bound": round(most, 7), "share": shares,
                         "eopc_bound_w": np.round(bounds_w, 2)})


def equal_service_bounds(place: Workplace) -> pd.DataFrame:
    """Bound what anybody can serve, and the power of whoever serves a part of it."""
    cells = grid(trace=list(TRACES), seed=[JUDGES[0]], x=list(PARTS))
    return sweep_traces(place, part_rows, TRACES, cells, "parts")


CHANGES = ("nodes", "tasks", "half CPU")
CHANGED_TRACES = ("default", "gpushare60", "multigpu40", "gpuspec20", "gpuspec25", "gpuspec33")
CHANGED = ("fgd", "pwr-fgd:0.1", "pwr", "joint", "bid:100:1.5", "bid:1000:0.75")
CHANGED_SEEDS = JUDGES[:5]


def changed(cluster: Cluster, tasks: Tasks, change: str, seed: int) -> tuple[Cluster, Tasks]:
    """Cluster and trace with one of `CHANGES`, as the seed draws it."""
    rng = np.random.default_rng((seed, CHANGES.index(change)))
    if change == "half CPU":
        return cluster, replace(tasks, cpu_milli=tasks.cpu_milli // 2)
    num = len(cluster) if change == "nodes" else len(tasks)
    rows = np.sort(rng.integers(num, size=num))
    names = np.array([f"{change[:-1]}-{row}" for row in range(num)], object)
    if change == "nodes":
        return replace(cluster.take(rows), name=names), tasks
    return cluster, replace(tasks.take(rows), name=names)


def changed_run(files: Mapping[str, TraceFiles], trace: str, change: str, policy: str,
                seed: int) -> pd.DataFrame:
    """What a run serves and draws where the cluster or the trace is not the one known.

    Parameters
    ----------
    files : by trace
    trace, change, policy, seed : of the run
    """
    cluster, tasks, _ = drawn_prefix(files[trace], seed, 1.0)
    run = inflate(*changed(cluster, tasks, change, seed), policy, seed=seed, power="package")
    return on_grid(run.curve, JUDGE_STEP)[["x", *WHOLE]].round(
        dict.fromkeys(WHOLE, 0)).astype(dict.fromkeys(WHOLE, np.int64))


def bid_changed(place: Workplace) -> pd.DataFrame:
    """Let the family and its rivals run where the cluster or the trace is not the one known."""
    cells = grid(trace=list(CHANGED_TRACES), change=list(CHANGES),
                 policy=list(CHANGED), seed=list(CHANGED_SEEDS))
    return sweep_traces(place, changed_run, CHANGED_TRACES, cells, "changed")


NODE_LISTS = ("gpu_node", "all_node")
COUNTED = ("default", *(f"gpushare{x}" for x in (40, 60, 80, 100)),
           *(f"gpuspec{x}" for x in (10, 20, 25, 33)), *(f"multigpu{x}" for x in (20, 30, 40, 50)))


def trace_summary(trace: str, tasks: Tasks) -> dict[str, Any]:
    """One row about one trace; demands in GPUs."""
    demand = tasks.gpu_demand_milli
    return {"trace": trace, "tasks": len(tasks), "gpu_tasks": int((tasks.num_gpus > 0).sum()),
            "classes": len(task_classes(tasks)[0]), "gpu_demand": demand.sum() / 1000,
            "sharing_demand": demand[tasks.gpu_milli < 1000].sum() / 1000,
            "whole_gpu_demand": demand[tasks.gpu_milli == 1000].sum() / 1000,
            "multi_gpu_demand": demand[tasks.num_gpus > 1].sum() / 1000,
            "constrained_tasks": int((tasks.gpu_spec != "").sum())}


def popularity(tasks: Tasks) -> pd.DataFrame:
    """Share of the tasks in the most popular classes."""
    count = task_classes(tasks)[0].count
    return pd.DataFrame({"classes": np.arange(1, len(count) + 1),
                         "share_of_tasks": count.cumsum() / len(tasks)})


def trace_frames(place: Workplace) -> dict[str, pd.DataFrame]:
    """Statistics of the Default trace, popular classes, nodes, and a row about each trace."""
    tasks = {trace: read_tasks(place.data(pods(trace))) for trace in COUNTED}
    nodes = [describe_nodes(read_nodes(place.data(f"openb/openb_node_list_{part}.csv")))
             .assign(list=part) for part in NODE_LISTS]
    return {"traces/default_statistics.csv": task_statistics(tasks["default"]),
            "traces/default_popularity.csv": popularity(tasks["default"]),
            "traces/openb_nodes.csv": pd.concat(nodes),
            "traces/traces.csv": pd.DataFrame(
                [trace_summary(trace, each) for trace, each in tasks.items()])}


Compute = Callable[[Workplace], pd.DataFrame]


def experiment(name: str, compute: Compute, minutes: float, parameters: Mapping[str, Any],
               stored: str = "") -> Experiment:
    """Experiment of one frame below `pwr/`, described by the docstring of its function.

    Parameters
    ----------
    name, minutes, parameters : as in `Experiment`
    compute : gives the frame, which is stored under the name of the function
    stored : file name, if it is another one
    """
    frame = f"pwr/{stored or compute.__name__ + '.csv'}"
    sentence = (compute.__doc__ or "").partition("\n")[0]
    return Experiment(name, sentence, (frame,), minutes, parameters,
                      lambda place: {frame: compute(place)},
                      needs=needs_of(*parameters.get("traces", ("default",))))


EXACT = {"arithmetic": "exact", "power": "package"}
BOUNDS = {"methods": METHODS, "rounds": ROUNDS, **EXACT}
NAMED_SEEDS = {f"{method}, {'default' if is_default else 'others'}": seeds
               for (method, is_default), seeds in BOUND_SEEDS.items()}
STUDIES = (
    experiment("evaluation", evaluation_mean, 12, {
        "policies": PAPER, "traces": TRACES, "seeds": RECORDED, "step": 0.005,
        "arithmetic": "reference", "power": "package"}, "evaluation_mean.csv.gz"),
    experiment("beyond", beyond_mean, 30, {
        "policies": BEYOND, "traces": TRACES, "seeds": [RECORDED, OWN[:5]], "step": 0.1, **EXACT}),
    experiment("policies", default_policies, 1, {
        "policies": EVERY, "seeds": RECORDED[:3], "step": 0.1, **EXACT}),
    experiment("watts", sensitivity, 11, {
        "watts": WATTS, "policies": SENSITIVE, "seeds": RECORDED[:2], "step": 0.1,
        "arithmetic": "exact", "traces": SOME_TRACES}),
    experiment("bid-tuning", bid_tuning, 12, {
        "policies": TUNED, "seeds": RECORDED[:5], "step": 0.1, "traces": TRAIN, **EXACT}),
)

ON_DEFAULT = (
    experiment("exact", default_exact, 1, {
        "policies": FGD_TO_PWR, "seeds": RECORDED, "step": 0.02, "arithmetic": "exact",
        "power": POWER_MODELS}),
    experiment("arithmetic", default_arithmetic, 1, {
        "policies": FGD_TO_PWR, "seeds": RECORDED, "power": "package"}),
    experiment("replacement", default_replacement, 1, {
        "policies": FGD_TO_PWR, "seeds": OWN, "step": 0.02, "arithmetic": "exact", "power": "eq1"}),
    experiment("alpha", default_alpha, 2, {"alphas": ALPHAS, "seeds": RECORDED, **EXACT}),
    experiment("rescored", default_rescored, 0.1, {
        "policies": FGD_TO_PWR, "seeds": RECORDED[:1], **EXACT}),
    experiment("cluster-power", default_cluster_power, 0.1, {"power": POWER_MODELS}),
)

ON_BOUNDS = (
    experiment("bounds", bounds_frame, 10, {
        "traces": TRACES, "x": BOUND_X, "seeds": NAMED_SEEDS, **BOUNDS}, "bounds.csv"),
    experiment("bounds-policies", bounds_policies, 20, {
        "policies": FGD_TO_PWR, "seeds": FEW, "x": BOUND_X, **BOUNDS}),
    experiment("bounds-frontier", bounds_frontier, 5, {
        "shares": SHARES, "seeds": RECORDED[:1], "x": 1.0, **BOUNDS, "rounds": FRONTIER_ROUNDS}),
)
JUDGED = (
    experiment("equal-service", equal_service, 6, {
        "policies": TO_JUDGE, "traces": TRACES, "seeds": JUDGES, "step": JUDGE_STEP, **EXACT},
               "equal_service.csv.gz"),
    experiment("equal-service-bounds", equal_service_bounds, 2, {
        "traces": TRACES, "seeds": JUDGES[:1], "parts": PARTS, **EXACT}),
    experiment("bid-family", bid_family, 25, {
        "policies": FAMILY, "traces": TRACES, "seeds": JUDGES_OF, "step": JUDGE_STEP, **EXACT},
               "bid_family.csv.gz"),
    experiment("bid-eq1", bid_eq1, 4, {
        **BY_EQ_1, "step": JUDGE_STEP, "arithmetic": "exact"}, "bid_eq1.csv.gz"),
    experiment("bid-changed", bid_changed, 8, {
        "policies": CHANGED, "traces": CHANGED_TRACES, "changes": CHANGES,
        "seeds": CHANGED_SEEDS, "step": JUDGE_STEP, **EXACT}, "bid_changed.csv.gz"),
)
COUNTS = Experiment(
    "traces", "Count what the chapters say about the public trace.",
    ("traces/default_statistics.csv", "traces/default_popularity.csv", "traces/openb_nodes.csv",
     "traces/traces.csv"), 0.1, {}, trace_frames,
    needs=(*(f"openb/openb_node_list_{part}.csv" for part in NODE_LISTS), *map(pods, COUNTED)))


def speed(device: str) -> Experiment:
    """Experiment that measures when lockstep pays, on one device."""
    def compute(place: Workplace) -> dict[str, pd.DataFrame]:
        return {f"batch/scoring_{device}.csv": measured_scoring(device),
                f"batch/throughput_{device}.csv": measured_throughput(device)}

    return Experiment(
        f"speed-{device}", f"Measure when runs in lockstep pay, on {device}.",
        (f"batch/scoring_{device}.csv", f"batch/throughput_{device}.csv"), 10, {}, compute,
        measured=MEASURED)


EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (*STUDIES, *ON_DEFAULT, *ON_BOUNDS, *JUDGED, COUNTS, speed("cpu"), speed("cuda"))}


def excess_percent(policies: Any) -> Any:
    """How much more than the bound each policy draws at each load, in per cent of it."""
    own = policies[policies["method"] == "patterns"]
    excess = (own["eopc_w"] / own["gpu_cpu_bound_w"] - 1) * 100
    return excess.groupby([own["policy"], own["x"]], sort=False).mean().unstack()


def beside_bounds(policies: Any, bounds: Any) -> dict[str, Any]:
    """What FGD serves less at full demand, and PWR and its mixes draw more, than the bounds."""
    end = policies.query("x == 1 and method == 'patterns' and policy == 'fgd'")
    limit = bounds.query("trace == 'default' and x == 1 and method == 'patterns'")
    while_all_fits = excess_percent(policies)[[0.2, 0.5, 0.8, 0.9]].drop("fgd")
    return {"points": 100 * (limit["grar_bound"].mean() - end["grar"].mean()),
            "most": while_all_fits.max(axis=None)}


def under_other_watts(watts: Any) -> dict[str, Any]:
    """What the mixes save under each table of watts."""
    half = watts.query("x == 0.5 and trace == 'default' and policy == 'pwr-fgd:0.1'")
    of = half.set_index("watts")["saving_percent"].drop(["linear", "concave"])
    own = watts[watts["policy"].isin(SELECTED) & watts["x"].isin([0.2, 0.5, 0.8])]
    saves = own.groupby(["watts", "trace"])["saving_percent"].min() > 0
    return {"least": of.min(), "most": of.max(), "num": saves.sum(), "of": len(saves)}


OWN_CLAIMS = (
    *section(
        beside_bounds, ("pwr/bounds_policies.csv", "pwr/bounds.csv"),
        Row("ours", "FGD serves at most 1.8 points less than anybody could",
            "{points:.1f} points", lambda n: held(0 < n.points <= 1.8)),
        Row("ours", "PWR and its mixes draw 3 to 7 % more than necessary while everything fits",
            "{most:.1f} % at most", lambda n: held(n.most < 7.5))),
    *section(
        under_other_watts, ("pwr/sensitivity.csv",),
        Row("ours", "the saving of alpha = 0.1 is 9 to 20 % under plausible tables",
            "{least:.1f} to {most:.1f} %",
            lambda n: held((round(n.least), round(n.most)) == (9, 20))),
        Row("ours", "each mix saves power under every table and on every trace",
            "{num} of {of} cases", lambda n: held(n.num == n.of))))
CLAIMS: tuple[Claim, ...] = (*DEFAULT_CLAIMS, *TRACE_CLAIMS, *OWN_CLAIMS)

Read = Callable[[str], pd.DataFrame]
DEMAND = "arrived GPU demand, share of capacity"
SAVED = "power saved against FGD (%)"
RIVALS = [*SELECTED, *PAPER[6:10]]  # the paper leaves random out


def lines(frame: pd.DataFrame, y: str, y_title: str, **options: Any) -> alt.LayerChart:
    """Lines of the policies against demand, without the marks that only the mouse shows.

    Parameters
    ----------
    frame : policy, x and `y`
    y, y_title : column, and what stands beside the axis
    options : of `curve_chart`
    """
    from sched_lab.lab.plots import curve_chart

    chart = curve_chart(frame, "x", y, "policy", x_title=DEMAND, y_title=y_title, x_percent=True,
                        **options)
    chart.layer = chart.layer[:1]
    parameters: Any = chart.params
    chart.params = [parameter for parameter in parameters if parameter.name != "near"]
    return chart


def fgd_power_chart(read: Read) -> alt.TopLevelMixin:
    """Fig. 1: power of FGD on the Default trace, and the share of the GPUs in it."""
    from sched_lab.lab.plots import stacked_area_chart

    mean = read(EVALUATION)
    own = mean[(mean["trace"] == "default") & (mean["policy"] == "fgd")]
    fgd = own.assign(cpu_mw=own["cpu_w"] / 1e6, gpu_mw=own["gpu_w"] / 1e6,
                     gpu_share=own["gpu_w"] / own["eopc_w"])
    return stacked_area_chart(fgd, "x", {"gpu_mw": "GPUs", "cpu_mw": "CPUs"}, x_title=DEMAND,
                              y_title="power (MW)", share="gpu_share",
                              share_title="share of the GPUs", share_domain=(0.5, 1),
                              x_percent=True)


def default_chart(read: Read, policies: Sequence[str], y: str, y_title: str,
                  **options: Any) -> alt.TopLevelMixin:
    """Fig. 2: policies on the Default trace.

    Parameters
    ----------
    read : returns a stored frame
    policies : which
    y, y_title, options : as in `lines`
    """
    mean = read(EVALUATION)
    own = mean[(mean["trace"] == "default") & mean["policy"].isin(policies)]
    return lines(own, y, y_title, **options)


def side_by_side(read: Read, names: Sequence[str], y: str, **options: Any) -> alt.TopLevelMixin:
    """Figs. 3 to 10: one trace beside the other.

    Parameters
    ----------
    read : returns a stored frame
    names : of the traces
    y : "saving_percent" or "grar"; the latter with FGD
    options : as in `lines`
    """
    import altair as alt

    mean = read(EVALUATION)
    policies, y_title = ((["fgd", *RIVALS], "GRAR") if y == "grar" else (RIVALS, SAVED))
    own = mean[mean["policy"].isin(policies)]
    return alt.hconcat(*(lines(own[own["trace"] == name], y, y_title, title=name, **options)
                         for name in names))


SHARING = ("gpushare40", "gpushare100")
LARGE = ("multigpu20", "multigpu50")
INSISTING = ("gpuspec10", "gpuspec33")
FROM_90: dict[str, Any] = {"x_domain": (0.9, 1), "y_domain": (0.9, 1.0)}
FROM_80: dict[str, Any] = {"x_domain": (0.8, 1), "y_domain": (0.8, 1.0)}

FIGURES: dict[str, Callable[[Read], alt.TopLevelMixin]] = {
    "eopc_fgd_default": fgd_power_chart,
    "savings_default": partial(default_chart, policies=FGD_TO_PWR[1:], y="saving_percent",
                               y_title=SAVED),
    "grar_default": partial(default_chart, policies=FGD_TO_PWR, y="grar", y_title="GRAR",
                            x_domain=(0.85, 1), y_domain=(0.9, 1.0)),
    "savings_selected_default": partial(side_by_side, names=("default",), y="saving_percent"),
    "savings_sharing": partial(side_by_side, names=SHARING, y="saving_percent"),
    "savings_multi": partial(side_by_side, names=LARGE, y="saving_percent"),
    "savings_constrained": partial(side_by_side, names=INSISTING, y="saving_percent"),
    "grar_selected_default": partial(side_by_side, names=("default",), y="grar", **FROM_90),
    "grar_sharing": partial(side_by_side, names=SHARING, y="grar", **FROM_80),
    "grar_multi": partial(side_by_side, names=LARGE, y="grar", **FROM_90),
    "grar_constrained": partial(side_by_side, names=INSISTING, y="grar", y_domain=(0.78, 1.0)),
}
