"""Compute the frames of the chapter on the results of PWR+FGD, and draw its figures.

python tools/pwr_results.py            frames that are missing or out of date, then the figures
python tools/pwr_results.py figures    the figures alone, from the stored frames

A frame is computed again only when its parameters have changed: policies, seeds, grid, checksums of the inputs.
Finished runs are kept in _build/cells, so that a killed call goes on where it was. Needs the openb trace and the
recorded workloads of seeds 42-51; on two cores it takes about half an hour.
"""
from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from sched_lab.cluster import empty_state, read_nodes
from sched_lab.frames import is_finished, read_frame, sha256, write_frame
from sched_lab.online.evaluation import Study, compare, run_study
from sched_lab.online.inflation import Run, inflate, mean_curve, on_grid, saving_percent
from sched_lab.plots import curve_chart, save_svg, stacked_area_chart, use_book_style
from sched_lab.power import GPU_POWER_W, POWER_MODELS, datacenter_power_w, power_of
from sched_lab.sweeps import count_cores
from sched_lab.traces import find_data, find_reference, read_arrivals, read_tasks, task_classes

ROOT = Path(__file__).resolve().parents[1]
RESULTS, FIGURES = ROOT / "data" / "results" / "pwr", ROOT / "figures"
CELLS = ROOT / "_build" / "cells" / "pwr"
POLICIES = ("fgd", "pwr-fgd:0.05", "pwr-fgd:0.1", "pwr-fgd:0.2", "pwr-fgd:0.5", "pwr")
SELECTED = POLICIES[1:4]  # the mixes that the paper follows up
PAPER = (*POLICIES, "bestfit", "dotprod", "gpu-packing", "gpu-clustering", "random")
BEYOND = (*POLICIES, "pwr@0.8@fgd", "pwr-fgd:0.5@0.8@fgd", "pwr-fgd:0.5@0.6@pwr-fgd:0.1@0.8@fgd", "pwr-target", "joint")
RECORDED, OWN = tuple(range(42, 52)), tuple(range(10))
ALPHAS = ("0", "0.001", "0.002", "0.005", "0.0095", "0.015", "0.02", "0.03", "0.05", "0.1", "0.2", "0.3", "0.4", "0.5",
          "0.6", "0.7", "0.8", "0.9", "0.95", "0.98", "0.995", "1")
TRACES = ("default", "gpushare40", "gpushare60", "gpushare80", "gpushare100", "gpuspec10", "gpuspec20", "gpuspec25",
          "gpuspec33", "multigpu20", "multigpu30", "multigpu40", "multigpu50")
EVERY = (*PAPER, "pwr-target", "joint")
SENSITIVE = ("fgd", *SELECTED, "pwr", "bestfit", "gpu-packing", "joint")  # enough for every conclusion
WATTS: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {  # load curve, watts that differ from the paper's
    "paper": ("step", {}),
    "linear": ("linear", {}),
    "concave": ("concave", {}),
    "V100 idles at 12 W": ("step", {"V100M16": (12, 300), "V100M32": (12, 300)}),
    "V100 idles at 75 W": ("step", {"V100M16": (75, 300), "V100M32": (75, 300)}),
    "G2 is like a T4": ("step", {"G2": (10, 70)}),
    "G2 is like a V100": ("step", {"G2": (30, 300)}),
    "G2 is like an A100": ("step", {"G2": (50, 400)}),
    "every GPU idles at half": ("step", {m: (i // 2, f) for m, (i, f) in GPU_POWER_W.items()}),
    "every GPU idles at double": ("step", {m: (2 * i, f) for m, (i, f) in GPU_POWER_W.items()}),
}
DEMAND = "arrived GPU demand, share of capacity"
DIGITS = {"x": 4, "eopc_w": 2, "cpu_w": 2, "gpu_w": 2, "grar": 7, "frag_milli": 1, "failed": 2}
SHOWN = ["policy", *DIGITS]


# --- inputs


@cache
def inputs(trace: str = "default") -> tuple[Any, Any, Path, dict[str, str]]:
    """Nodes, trace, file of recorded workloads, and the checksums of all three files."""
    found = {"nodes": find_data("openb/openb_node_list_gpu_node.csv"),
             "tasks": find_data(f"openb/openb_pod_list_{trace}.csv"),
             "arrivals": find_reference(f"pwr/arrivals/{trace}.json.gz")}
    files = {name: path for name, path in found.items() if path is not None}
    if missing := found.keys() - files:
        raise SystemExit(f"not found for the trace {trace}: {', '.join(sorted(missing))}; see data/README.md")
    return (read_nodes(files["nodes"]), read_tasks(files["tasks"]), files["arrivals"],
            {name: sha256(path) for name, path in files.items()})


@lru_cache(maxsize=400)
def run_of(policy: str, seed: int, arithmetic: str, power: str, sampling: str = "recorded") -> Run:
    """One run on the Default trace; frames that need the same run share it."""
    cluster, tasks, recorded, _ = inputs()
    options: dict[str, Any] = {"sampling": sampling}
    if sampling == "recorded":
        options = {"arrivals": read_arrivals(recorded, seed, cluster, tasks)}
    return inflate(cluster, tasks, policy, seed=seed, arithmetic=arithmetic, power=power, **options)


def grids(policy: str, step: float, seeds: tuple[int, ...], *how: str) -> list[pd.DataFrame]:
    """Curves of all seeds on one grid."""
    return [on_grid(run_of(policy, seed, *how).curve, step) for seed in seeds]


# --- frames


def compared(step: float, seeds: tuple[int, ...], *how: str) -> pd.DataFrame:
    """Seed means of all policies on a grid, savings against FGD, and the spread over the seeds.

    Unlike that of `compare`, the spread is blank where one of the seeds has no GRAR yet, at x = 0.
    """
    fgd, parts = grids("fgd", step, seeds, *how), []
    for policy in POLICIES:
        own = grids(policy, step, seeds, *how)
        mean = mean_curve(own).round(DIGITS).assign(policy=policy)
        mean["saving_percent"] = saving_percent(mean_curve(own), mean_curve(fgd)).round(5) + 0.0
        savings = [saving_percent(ours, theirs) for ours, theirs in zip(own, fgd, strict=True)]
        grars = [curve["used_gpu_milli"] / curve["arrived_gpu_milli"] for curve in own]
        mean["saving_sd"] = np.std(savings, axis=0, ddof=1).round(5)
        mean["grar_sd"] = np.std(grars, axis=0, ddof=1).round(7)
        parts.append(mean[[*SHOWN, "saving_percent", "saving_sd", "grar_sd"]])
    return pd.concat(parts, ignore_index=True)


def study(policies: tuple[str, ...], seeds: tuple[int, ...], traces: tuple[str, ...] = TRACES, step: float = 0.005,
          recorded: bool = True, gpu_power: Path | None = None, **options: Any) -> Study:
    """Describe runs on the public traces, on their recorded workloads or on workloads of our own."""
    files = {trace: {"nodes": find_data("openb/openb_node_list_gpu_node.csv"),
                     "tasks": find_data(f"openb/openb_pod_list_{trace}.csv"),
                     "arrivals": find_reference(f"pwr/arrivals/{trace}.json.gz")} for trace in traces}
    if missing := [trace for trace in traces if None in files[trace].values()]:
        raise SystemExit(f"not found: files of the traces {', '.join(missing)}; see data/README.md")
    paths: Any = files
    return Study(paths[traces[0]]["nodes"], {trace: paths[trace]["tasks"] for trace in traces}, policies, seeds,
                 {trace: paths[trace]["arrivals"] for trace in traces} if recorded else {},
                 {"power": "package", "until": 1.0, **options}, gpu_power, None, step)


def means(of: Study) -> pd.DataFrame:
    """Seed means of a study, its runs computed on all cores or found finished."""
    frame = compare(run_study(of, CELLS, workers=count_cores(), shown=True).frame)
    rounded = frame.round(DIGITS | {"saving_percent": 5, "saving_sd": 5, "grar_sd": 7})
    rounded["saving_percent"] += 0.0  # no minus zero
    return rounded[["trace", *SHOWN, "saving_percent", "saving_sd", "grar_sd"]]


def evaluation_mean() -> pd.DataFrame:
    """Repeat the paper's whole evaluation: the authors' workloads, arithmetic, and count of packages."""
    return means(study(PAPER, RECORDED, arithmetic="reference"))


def beyond_mean() -> pd.DataFrame:
    """Compare our policies with the paper's, on the seeds they were tuned on, on others, and on drawn workloads."""
    parts = {"tuning": study(BEYOND, RECORDED[:5], step=0.1), "test": study(BEYOND, RECORDED[5:], step=0.1),
             "drawn": study(BEYOND, OWN[:5], step=0.1, recorded=False)}
    return pd.concat([means(of).assign(seeds=name) for name, of in parts.items()], ignore_index=True)


def default_policies() -> pd.DataFrame:
    """Run every policy on the seeds for which the bounds are computed; exact, packages."""
    return means(study(EVERY, RECORDED[:3], ("default",), step=0.1))


def sensitivity() -> pd.DataFrame:
    """Let the doubtful watts take other plausible values, one at a time: savings and GRAR; exact, packages."""
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (curve, changed) in WATTS.items():
            table = Path(folder, f"{name}.csv")
            table.write_text("model,idle_w,full_w\n" + "".join(
                f"{model},{idle},{full}\n" for model, (idle, full) in {**GPU_POWER_W, **changed}.items()))
            of = study(SENSITIVE, RECORDED[:2], ("default", "gpushare100", "gpuspec33"), step=0.1, gpu_power=table,
                       load_curve=curve)
            parts.append(means(of).assign(watts=name))
    return pd.concat(parts, ignore_index=True)


def default_exact() -> pd.DataFrame:
    """Repeat the same workloads in exact arithmetic, with either model of CPU power."""
    return pd.concat([compared(0.02, RECORDED, "exact", power).assign(power=power) for power in POWER_MODELS],
                     ignore_index=True)


def default_replacement() -> pd.DataFrame:
    """Our own workloads, drawn as the paper's text says and as the authors' code does; exact, Eq. 1."""
    return pd.concat([compared(0.02, OWN, "exact", "eq1", sampling).assign(sampling=sampling)
                      for sampling in ("replacement", "permutation-first")], ignore_index=True)


def default_arithmetic() -> pd.DataFrame:
    """Compare what exact and reference arithmetic place, per policy and seed."""
    return pd.DataFrame([differences(policy, seed) for policy in POLICIES for seed in RECORDED])


def differences(policy: str, seed: int) -> dict[str, Any]:
    """Events placed differently, and curves apart, between the two arithmetics."""
    exact, reference = (run_of(policy, seed, arithmetic, "package") for arithmetic in ("exact", "reference"))
    is_other = (exact.assignments[["node", "gpus"]] != reference.assignments[["node", "gpus"]]).any(axis=1)
    grid, other = on_grid(exact.curve), on_grid(reference.curve)
    apart_w, apart = other["eopc_w"] - grid["eopc_w"], (other - grid)["used_gpu_milli"] / grid["arrived_gpu_milli"]
    return {"policy": policy, "seed": seed, "events": len(is_other), "placed_differently": int(is_other.sum()),
            "first": int(is_other.idxmax()) if is_other.any() else -1,
            "eopc_apart_percent": round(float((apart_w.abs() / grid["eopc_w"]).max() * 100), 5),
            "grar_apart": round(float(apart.abs().max()), 7)}


def default_alpha() -> pd.DataFrame:
    """Let alpha run over its whole range: savings and GRAR; exact, packages."""
    parts, fgd = [], mean_curve(grids("fgd", 0.05, RECORDED, "exact", "package"))
    for alpha in ALPHAS:
        policy = {"0": "fgd", "1": "pwr"}.get(alpha, f"pwr-fgd:{alpha}")
        mean = mean_curve(grids(policy, 0.05, RECORDED, "exact", "package"))
        saving = saving_percent(mean, fgd)
        both = mean.assign(alpha=float(alpha), saving_percent=saving.round(5) + 0.0, grar=mean["grar"].round(7))
        parts.append(both.loc[both["x"].isin((0.1, 0.5, 0.8, 0.9, 1.0)), ["alpha", "x", "saving_percent", "grar"]])
    return pd.concat(parts, ignore_index=True)


def default_rescored() -> pd.DataFrame:
    """Pairs of task class and node that the engine scores in one run, of all pairs of arrival and node."""
    return pd.DataFrame([rescored(policy, 42) for policy in POLICIES])


def rescored(policy: str, seed: int) -> dict[str, Any]:
    """Count the pairs whose node changed since the class last arrived, from the placements of a run."""
    cluster, tasks = inputs()[:2]
    placed = run_of(policy, seed, "exact", "package").assignments
    classes, class_of = task_classes(tasks)
    number = {name: i for i, name in enumerate(cluster.name)}
    version, seen, pairs = np.zeros(len(cluster), int), np.full((len(classes), len(cluster)), -1), 0
    for row, node in zip(placed["task_row"], placed["node"], strict=True):
        pairs += int((seen[class_of[row]] != version).sum())
        seen[class_of[row]] = version
        if node:
            version[number[node]] += 1
    return {"policy": policy, "seed": seed, "arrivals": len(placed), "nodes": len(cluster), "classes": len(classes),
            "placed": int(version.sum()), "scored": pairs}


def default_cluster_power() -> pd.DataFrame:
    """Watts of the cluster with every processor idle and with every processor in use."""
    cluster = inputs()[0]
    rows = []
    for model in POWER_MODELS:
        power, idle = power_of(cluster, model), empty_state(cluster)
        busy = idle._replace(cpu_left_milli=idle.cpu_left_milli * 0, gpu_left_milli=idle.gpu_left_milli * 0)
        for name, state in (("idle", idle), ("busy", busy)):
            cpu_w, gpu_w = datacenter_power_w(power, state)
            rows.append({"power": model, "state": name, "cpu_w": cpu_w, "gpu_w": gpu_w, "eopc_w": cpu_w + gpu_w})
    return pd.DataFrame(rows)


FRAMES: dict[str, tuple[Callable[[], pd.DataFrame], dict[str, Any]]] = {
    "evaluation_mean": (evaluation_mean, {"policies": PAPER, "traces": TRACES, "seeds": RECORDED, "step": 0.005,
                                          "arithmetic": "reference", "power": "package"}),
    "beyond_mean": (beyond_mean, {"policies": BEYOND, "traces": TRACES, "seeds": [RECORDED, OWN[:5]], "step": 0.1,
                                  "arithmetic": "exact", "power": "package"}),
    "default_policies": (default_policies, {"policies": EVERY, "seeds": RECORDED[:3], "step": 0.1,
                                            "arithmetic": "exact", "power": "package"}),
    "sensitivity": (sensitivity, {"watts": WATTS, "policies": SENSITIVE, "seeds": RECORDED[:2], "step": 0.1,
                                  "arithmetic": "exact", "traces": ("default", "gpushare100", "gpuspec33")}),
    "default_exact": (default_exact, {"policies": POLICIES, "seeds": RECORDED, "step": 0.02, "arithmetic": "exact",
                                      "power": POWER_MODELS}),
    "default_arithmetic": (default_arithmetic, {"policies": POLICIES, "seeds": RECORDED, "power": "package"}),
    "default_replacement": (default_replacement, {"policies": POLICIES, "seeds": OWN, "step": 0.02,
                                                  "arithmetic": "exact", "power": "eq1"}),
    "default_alpha": (default_alpha, {"alphas": ALPHAS, "seeds": RECORDED, "arithmetic": "exact", "power": "package"}),
    "default_rescored": (default_rescored, {"policies": POLICIES, "seeds": (42,), "arithmetic": "exact",
                                            "power": "package"}),
    "default_cluster_power": (default_cluster_power, {"power": POWER_MODELS}),
}


def compute() -> Iterator[Path]:
    """Write the frames that are not there yet, or not from these inputs."""
    for name, (frame_of, parameters) in FRAMES.items():
        traces = parameters.get("traces", ("default",))
        depends_on = {**parameters, "inputs": {trace: inputs(trace)[3] for trace in traces}}
        path = RESULTS / (f"{name}.csv.gz" if name == "evaluation_mean" else f"{name}.csv")
        if not is_finished(path, depends_on):
            begin = time.perf_counter()
            write_frame(frame_of(), path, depends_on, wall_time_s=time.perf_counter() - begin)
            yield path


# --- figures


def lines(frame: pd.DataFrame, y: str, y_title: str, **options: Any) -> alt.LayerChart:
    """Lines of the policies against demand, without the marks that only the mouse shows."""
    chart = curve_chart(frame, "x", y, "policy", x_title=DEMAND, y_title=y_title, x_percent=True, **options)
    chart.layer = chart.layer[:1]
    chart.params = [parameter for parameter in chart.params if parameter.name != "near"]
    return chart


def draw() -> Iterator[Path]:
    """Draw the figures of the chapter from the stored frames."""
    use_book_style()
    evaluation = read_frame(RESULTS / "evaluation_mean.csv.gz")
    mean = evaluation[evaluation["trace"] == "default"]
    fgd = mean[mean["policy"] == "fgd"].assign(cpu_mw=lambda f: f["cpu_w"] / 1e6, gpu_mw=lambda f: f["gpu_w"] / 1e6,
                                               gpu_share=lambda f: f["gpu_w"] / f["eopc_w"])
    rivals = evaluation[evaluation["policy"].isin([*SELECTED, *PAPER[6:10]])]  # the paper leaves random out
    served = evaluation[evaluation["policy"].isin(["fgd", *SELECTED, *PAPER[6:10]])]
    saved = "power saved against FGD (%)"

    def side_by_side(frame: pd.DataFrame, names: tuple[str, ...], y: str, y_title: str, **options: Any) -> Any:
        return alt.hconcat(*(lines(frame[frame["trace"] == name], y, y_title, title=name, **options) for name in names))

    charts = {
        "eopc_fgd_default": stacked_area_chart(
            fgd, "x", {"gpu_mw": "GPUs", "cpu_mw": "CPUs"}, x_title=DEMAND, y_title="power (MW)", share="gpu_share",
            share_title="share of the GPUs", share_domain=(0.5, 1), x_percent=True),
        "savings_default": lines(mean[mean["policy"].isin(POLICIES[1:])], "saving_percent", saved),
        "grar_default": lines(mean[mean["policy"].isin(POLICIES)], "grar", "GRAR", x_domain=(0.85, 1),
                              y_domain=(0.9, 1.0)),
        "savings_selected_default": side_by_side(rivals, ("default",), "saving_percent", saved),
        "savings_sharing": side_by_side(rivals, ("gpushare40", "gpushare100"), "saving_percent", saved),
        "savings_multi": side_by_side(rivals, ("multigpu20", "multigpu50"), "saving_percent", saved),
        "savings_constrained": side_by_side(rivals, ("gpuspec10", "gpuspec33"), "saving_percent", saved),
        "grar_selected_default": side_by_side(served, ("default",), "grar", "GRAR", x_domain=(0.9, 1),
                                              y_domain=(0.9, 1.0)),
        "grar_sharing": side_by_side(served, ("gpushare40", "gpushare100"), "grar", "GRAR", x_domain=(0.8, 1),
                                     y_domain=(0.8, 1.0)),
        "grar_multi": side_by_side(served, ("multigpu20", "multigpu50"), "grar", "GRAR", x_domain=(0.9, 1),
                                   y_domain=(0.9, 1.0)),
        "grar_constrained": side_by_side(served, ("gpuspec10", "gpuspec33"), "grar", "GRAR", y_domain=(0.78, 1.0)),
    }
    for name, chart in charts.items():
        yield save_svg(chart, FIGURES / f"{name}.svg")


if __name__ == "__main__":
    steps = [draw] if sys.argv[1:] == ["figures"] else [compute, draw]
    for step in steps:
        for path in step():
            print(path.relative_to(ROOT))
