"""A study is a file: which nodes, traces, policies and seeds; from it follow the runs, their means, and the spread."""

# A module, written by hand.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from .. import __version__
from ..cluster import Cluster, read_nodes
from ..hardware import CpuWatts, GpuWatts, known_gpu_w, watts_of_files
from ..lab.frames import InputError, advice_on, embedded, read_input, read_toml, sha256
from ..lab.sweeps import Cell, Sweep, grid, sweep
from ..power import POWER_MODELS, load_permille
from ..traces import Arrivals, Tasks, read_arrivals, read_tasks
from .inflation import SAMPLINGS, inflate, on_grid
from .model import PowerSettings
from .policies import ARITHMETICS, policy_of

__all__ = ['Study', 'run_study', 'read_study', 'compare']


@dataclass(frozen=True)
class Study:
    """Which runs to make, and how.

    Parameters
    ----------
    nodes : file of the nodes
    traces : file of the tasks by name of the trace
    policies, seeds : the policies and workloads to run on each trace
    arrivals : file of recorded workloads by name of the trace; empty to draw them
    options : until, sampling, power, arithmetic, load_curve; what is not there is as in `inflate`
    gpu_power, cpu_power : files with watts to add or override, if any
    hardware : a catalogue of one's own, if any; the tables of watts win over it
    step : distance of the grid on which curves are kept
    """

    nodes: Path
    traces: Mapping[str, Path]
    policies: Sequence[str]
    seeds: Sequence[int]
    arrivals: Mapping[str, Path] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    gpu_power: Path | None = None
    cpu_power: Path | None = None
    step: float = 0.005
    hardware: Path | None = None

    def cells(self) -> list[Cell]:
        """One cell for each trace, policy and seed."""
        return grid(trace=self.traces, policy=self.policies, seed=self.seeds)

    @cached_property
    def checksums(self) -> dict[str, str]:
        """Checksums of all files, by their role; taken once, and workers read no other files."""
        files = {"nodes": self.nodes, "gpu_power": self.gpu_power, "cpu_power": self.cpu_power,
                 "hardware": self.hardware,
                 **{f"trace {name}": path for name, path in self.traces.items()},
                 **{f"arrivals {name}": path for name, path in self.arrivals.items()}}
        return {name: sha256(path) for name, path in files.items() if path}

    def depends_on(self) -> dict[str, Any]:
        """Options, version, and checksums of all files."""
        return {
            "options": dict(self.options), "step": self.step, "sched_lab": __version__,
            "files": self.checksums}


Known = tuple[Path, str]  # a file, and the checksum it must have


@lru_cache(maxsize=8)
def cluster_in(nodes: Known, models: frozenset[str]) -> Cluster:
    """Nodes of a file, read once for each process."""
    return read_nodes(read_input(*nodes), known_models=models)


@lru_cache(maxsize=64)
def tasks_in(tasks: Known) -> Tasks:
    """Tasks of a file, read once for each process."""
    return read_tasks(read_input(*tasks))


@lru_cache(maxsize=16)
def arrivals_in(arrivals: Known, seed: int, nodes: Known, models: frozenset[str],
                tasks: Known) -> Arrivals:
    """Recorded workload of a seed; the last few are kept, since every policy replays them.

    Parameters
    ----------
    arrivals, nodes, tasks : files
    seed : of the recording
    models : GPU models that nodes may have
    """
    return read_arrivals(read_input(*arrivals), seed, cluster_in(nodes, models), tasks_in(tasks))


def watts_in(study: Study) -> tuple[GpuWatts, CpuWatts]:
    """Watts of GPU and CPU models that a study adds or overrides."""
    paths = {"hardware": study.hardware, "gpu_power": study.gpu_power, "cpu_power": study.cpu_power}
    known = study.checksums
    return watts_of_files(*(path and read_input(path, known[name])
                            for name, path in paths.items()))


def files_in(study: Study, trace: str) -> tuple[Known, frozenset[str], Known]:
    """Nodes of a study, the GPU models that they may have, and the tasks of a trace."""
    known = study.checksums
    models = frozenset(known_gpu_w(watts_in(study)[0]))
    return ((study.nodes, known["nodes"]), models,
            (study.traces[trace], known[f"trace {trace}"]))


def problem_in(study: Study, trace: str) -> tuple[Cluster, Tasks]:
    """Nodes and a trace of a study."""
    nodes, models, tasks = files_in(study, trace)
    return cluster_in(nodes, models), tasks_in(tasks)


def recorded_in(study: Study, trace: str, seed: int) -> Arrivals:
    """Recorded workload of a study."""
    recorded = study.arrivals[trace], study.checksums[f"arrivals {trace}"]
    return arrivals_in(recorded, seed, *files_in(study, trace))


def run_cell(study: Study, trace: str, policy: str, seed: int) -> pd.DataFrame:
    """Curve of one run on the grid of the study.

    Parameters
    ----------
    study : what the run belongs to
    trace, policy, seed : of the run
    """
    options = study.options
    cluster, tasks = problem_in(study, trace)
    arrivals = (recorded_in(study, trace, seed) if study.arrivals
                else options.get("sampling", "replacement"))
    power = PowerSettings(options.get("power", "eq1"), *watts_in(study),
                          options.get("load_curve", "step"))
    run = inflate(cluster, tasks, policy_of(policy, options.get("arithmetic", "exact")), seed=seed,
                  until=options.get("until"), arrivals=arrivals, power=power)
    return on_grid(run.curve, study.step, options.get("until") or 1.0)


def run_study(study: Study, folder: Path, *, workers: int = 1, shown: bool = False,
              results: str = "results.csv") -> Sweep:
    """Compute what is missing of a study.

    Parameters
    ----------
    study : which runs
    folder : keeps finished runs, and the frame of all in the end
    workers : processes on this machine
    shown : whether there is a bar
    results : name of the file with all runs, .csv or .parquet

    Raises
    ------
    SweepError : a run failed, or a file has changed; finished runs are kept
    """
    return sweep(partial(run_cell, study), study.cells(), folder, depends_on=study.depends_on(),
                 workers=workers, shown="runs" if shown else "", results=results)


MOST_SEEDS = 100_000


def parse_seeds(text: str) -> list[int]:
    """Seeds in a list such as "0-9" or "0,3,5-7", in the order given.

    Raises
    ------
    InputError : the text is not such a list
    """
    seeds: list[int] = []
    error = partial(InputError, value=text)
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})\s*(?:-\s*([0-9]{1,9})\s*)?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise error(f"seeds {text!r:.60}: {part.strip()!r:.60} is neither a seed nor a range",
                        mend="give 0-9 or 0,3,5-7, of at most nine digits each")
        first = int(match[1])
        last = int(match[2] or match[1])
        if len(seeds) + last - first >= MOST_SEEDS:
            raise error(f"seeds {text!r:.60} are more than {MOST_SEEDS:,}", mend="give fewer")
        seeds += range(first, last + 1)
    return list(dict.fromkeys(seeds))


LEAST = {"until": 0, "step": 1e-6}  # a million rows for each run
Kind = type | tuple[type, ...]
CHOICES = {"power": POWER_MODELS, "arithmetic": ARITHMETICS, "sampling": SAMPLINGS}
KINDS: dict[str, tuple[Kind, str]] = {
    "nodes": (str, "a file name"),
    "policies": (list, 'a list such as ["fgd", "pwr"]'),
    "seeds": ((str, list), 'seeds such as "0-9" or [0, 1, 2]'),
    **{name: (str, f"one of {', '.join(choices)}") for name, choices in CHOICES.items()},
    "until": ((int, float), "a number above 0, such as 1.0"),
    "step": ((int, float), "a number such as 0.005"),
    "load_curve": ((str, list), "a name, or knots [[0, 0], [0.5, 0.7], [1, 1]]"),
    "gpu_power": (str, "a file name"),
    "cpu_power": (str, "a file name"),
    "hardware": (str, "a file name"),
    "traces": (dict, "a table of file names"),
    "arrivals": (dict, "a table of file names"),
}
OPTIONS = ("until", "sampling", "power", "arithmetic", "load_curve")


def check_settings(settings: Mapping[str, Any], path: Path) -> None:
    """Refuse names, kinds and values of settings that a study does not have.

    Raises
    ------
    InputError : naming file, setting and mend
    """
    for name, value in settings.items():
        if name not in KINDS:
            raise InputError(f"there is no setting {name!r:.60}", file=path,
                             mend=advice_on(name, KINDS))
        kind, words = KINDS[name]
        is_good = isinstance(value, kind) and not isinstance(value, bool) and value not in ([], {})
        is_good = is_good and value in CHOICES.get(name, (value,))
        if name in LEAST:
            is_good = is_good and LEAST[name] <= value < 1000 and value != 0
        if not is_good:
            raise InputError(f"{name} is {value!r}", file=path, mend=f"give {words}")
        inside = value.values() if isinstance(value, dict) else value if name == "policies" else []
        if wrong := [entry for entry in inside if not isinstance(entry, str)]:
            raise InputError(f"{name} has {wrong[0]!r}", file=path, mend=f"give {words}")


def read_study(path: str | Path) -> Study:
    """Read a study from a TOML file, and check every policy, seed and input file of it.

    Raises
    ------
    InputError : at the first thing that is wrong
    """
    path = Path(path)
    settings = read_toml(path)
    check_settings(settings, path)

    def files(name: str) -> dict[str, Path]:
        return {trace: path.parent / file for trace, file in settings.get(name, {}).items()}

    def file(name: str) -> Path | None:
        return path.parent / settings[name] if name in settings else None

    seeds = settings.get("seeds", "0-9")
    if isinstance(seeds, list):
        seeds = ",".join(map(str, seeds))
    options = {name: settings[name] for name in OPTIONS if name in settings}
    study = Study(file("nodes") or embedded("nodes.csv"),
                  files("traces") or {"default": embedded("tasks.csv")},
                  settings.get("policies", ["fgd", "pwr", "pwr-fgd:0.1"]), parse_seeds(seeds),
                  files("arrivals"), options, file("gpu_power"), file("cpu_power"),
                  float(settings.get("step", 0.005)), file("hardware"))
    check_study(study, path)
    return study


def check_study(study: Study, path: Path) -> None:
    """Read every input of a study once, so that a mistake shows before the first run.

    Raises
    ------
    InputError : at the first thing that is wrong
    """
    for policy in study.policies:
        policy_of(policy, study.options.get("arithmetic", "exact"))
    load_permille(study.options.get("load_curve", "step"))
    if study.arrivals and (missing := study.traces.keys() - study.arrivals.keys()):
        raise InputError(
            f"the trace {min(missing)} has no recorded arrivals", file=path,
            mend="give a file for every trace under [arrivals], or leave [arrivals] out")
    for trace in study.traces:
        problem_in(study, trace)
        for seed in study.seeds if study.arrivals else ():
            recorded_in(study, trace, seed)


def compare(runs: pd.DataFrame, baseline: str = "fgd") -> pd.DataFrame:
    """Seed means of each trace and policy on the grid, and what they save against a baseline.

    Parameters
    ----------
    runs : frame of a study: trace, policy, seed, x and the columns of a curve
    baseline : the policy that savings refer to; without it among the runs there are no savings

    Returns
    -------
    trace, policy, x, the means, grar, grar_sd, and saving_percent, saving_sd (`eq-results-saving`);
    the spread is the standard deviation over seeds of what each seed alone would give
    """
    def saving_percent(frame: pd.DataFrame, keys: list[str]) -> Any:
        base = frame.loc[frame["policy"] == baseline, [*keys, "eopc_w"]]
        both = frame.merge(base, on=keys, how="left", suffixes=("", "_base"))
        saved_w = both["eopc_w_base"] - both["eopc_w"]
        return (saved_w / both["eopc_w_base"] * 100).array

    def grar(frame: pd.DataFrame) -> pd.Series:
        arrived_milli = frame["arrived_gpu_milli"]
        return frame["used_gpu_milli"] / arrived_milli.where(arrived_milli > 0)

    has_base = bool((runs["policy"] == baseline).any())
    spread = {"grar_sd": grar(runs)}
    if has_base:
        spread["saving_sd"] = saving_percent(runs, ["trace", "seed", "x"])
    groups = runs.assign(**spread).groupby(["trace", "policy", "x"], sort=False)
    means = groups.mean(numeric_only=True).drop(columns="seed")
    means["grar"] = grar(means)
    means[list(spread)] = groups[list(spread)].std(ddof=1)
    means = means.reset_index()
    if has_base:
        means["saving_percent"] = saving_percent(means, ["trace", "x"])
    return means
