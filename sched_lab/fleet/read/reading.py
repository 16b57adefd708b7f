"""Files of whichever kind in, a cluster out: every format is a line of one table, and `auto` asks each of them whether it knows the file."""

# A module, written by hand.

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...lab.frames import InputError, check_one_of
from ...power import GPU_POWER_W
from . import columns, kubernetes, slurm, traces
from .tables import (
    FIRST_EPOCH_S,
    TIMES,
    ClusterTables,
    Format,
    Ledger,
    ReadOptions,
    Source,
    sources_of,
    tables_of,
)

__all__ = ['FORMATS', 'read_files']

FORMATS: dict[str, Format] = {
    one.name: one
    for one in (*kubernetes.FORMATS, *slurm.FORMATS, *traces.FORMATS, *columns.FORMATS)}


def recognised(source: Source, options: ReadOptions) -> Format | None:
    """Format that knows a file; None if no format does."""
    found = next((one for one in FORMATS.values() if one.recognises(source)), None)
    return FORMATS["csv"] if found is None and options.columns else found


OF_SLURM = ("give JSON: scontrol show nodes --json or sinfo --json, and squeue --json; or what has ended, "
            "too: sacct -aP -o JobID,Submit,Eligible,Start,End,State,NNodes,NodeList,AllocTRES,ReqTRES,"
            "User,Partition,Priority")
OF_KUBECTL = "give kubectl get nodes,pods -A -o json"
TEXTS = (  # the first line of what programs print for people, and what to give instead
    (r"(?:JobId|NodeName|PartitionName)=\S", OF_SLURM), (r"JobID\s+\S.*", OF_SLURM),
    (r"\s*JOBID\s+PARTITION\b", OF_SLURM), (r"(?:PARTITION|NODELIST|HOSTNAMES)\s+\w", OF_SLURM),
    (r"(?:NAMESPACE\s+)?NAME\s+(?:READY|STATUS)\b", OF_KUBECTL), (r"apiVersion:\s", OF_KUBECTL),
    (r"Name:\s+\S+", OF_KUBECTL))


def text_hint(source: Source) -> str:
    """What to give in place of a text that programs print for people; empty for other files."""
    line = next((line for line in source.text()[:10_000].splitlines() if line.strip()), "")
    return next((hint for pattern, hint in TEXTS if re.match(pattern, line)), "")


def grouped(sources: Sequence[Source], name: str, options: ReadOptions,
            ledger: Ledger) -> dict[str, list[Source]]:
    """Files by format; formats with one reader together."""
    check_one_of(name, ["auto", *FORMATS], "format")
    if name != "auto":
        for source in sources:
            if (hint := text_hint(source)) and not FORMATS[name].recognises(source):
                raise InputError(f"this is not what {name} reads", file=source.name, mend=hint)
        return {name: list(sources)}
    groups: dict[str, list[Source]] = {}
    for source in sources:
        found = recognised(source, options)
        if found is None and "!" in source.name and len(sources) > 1:
            ledger.note(source.name, None, "dropped", "no format knows this file of the archive")
            continue
        if found is None:
            if source.text().lstrip()[:1] in ("{", "["):  # or else no text at all
                source.json()
            raise InputError("no format knows this file", file=source.name,
                             mend=text_hint(source) or f"name its format, one of "
                             f"{', '.join(FORMATS)}, or map the columns of a CSV file by --map")
        same = next((one for one in groups if FORMATS[one].read == found.read), found.name)
        groups.setdefault(same, []).append(source)
    return groups


def check_zeros(parts: Mapping[str, pd.DataFrame]) -> None:
    """Refuse files of which some have dates and some count from a zero of their own."""
    dated: list[str] = []
    others: list[str] = []
    for name, tasks in parts.items():
        there = [time for time in TIMES if time in tasks]
        times = tasks[there].apply(pd.to_numeric, errors="coerce").astype("Float64")
        first = float(np.nanmin(times.to_numpy("float64", na_value=np.nan), initial=np.inf))
        if first < math.inf:
            (dated if first > FIRST_EPOCH_S else others).append(name)
    if dated and others:
        raise InputError(f"{dated[0]} has dates, and {others[0]} counts time from its own zero",
                         mend="read them apart")


def read_groups(groups: Mapping[str, Sequence[Source]], ledger: Ledger,
                options: ReadOptions) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of nodes and rows of tasks of all files."""
    read = {name: FORMATS[name].read(sources, ledger, options) for name, sources in groups.items()}
    check_zeros({name: tasks for name, (_, tasks) in read.items()})
    nodes, tasks = zip(*read.values(), strict=True) if read else ((), ())
    # a table without rows has no say about columns
    return (traces.together([one for one in nodes if len(one)]),
            traces.together([one for one in tasks if len(one)]))


def share_of(written: str) -> float:
    """Share that `80%` or `0.8` is.

    Raises
    ------
    InputError : it is no number, not positive, or more than the whole
    """
    text = written.strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise InputError(f"--size-to {written!r} is not a share", value=written,
                         mend="write 80% or 0.8: more than nothing, at most all")
    return share


def floats(frame: pd.DataFrame, name: str) -> np.ndarray:
    """A column as floats, NaN where unknown."""
    return frame[name].to_numpy("float64", na_value=np.nan)


def with_ends(tasks: pd.DataFrame, ledger: Ledger) -> pd.DataFrame:
    """The same tasks; those that have started and have no end hold until the last time of all."""
    submit, start, end = (floats(tasks, name) for name in TIMES)
    is_open = np.isfinite(start) & ~np.isfinite(end)
    last = float(np.nanmax(np.concatenate([submit, start, end]), initial=-np.inf))
    ledger.note("--size-to", None, "assumed", "tasks without an end hold what they have until the "
                "last time of the trace", int(is_open.sum()))
    return tasks.assign(end_s=np.where(is_open, last, end))


def held_of(tasks: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """When tasks started, and for how long they held; NaN unknown."""
    start, end = floats(tasks, "start_s"), floats(tasks, "end_s")
    return start, np.where(end >= start, end - start, np.nan)


def span_of(tasks: pd.DataFrame) -> float:
    """Seconds from the first start to the last end.

    Raises
    ------
    InputError : no task has a start and an end
    """
    start, held_s = held_of(tasks)
    if not np.isfinite(held_s).any():
        raise InputError("no task has a time at which it started and one at which it ended",
                         mend="give nodes with --nodes; --size-to needs to know when tasks ran")
    return max(float(np.nanmax(start + held_s) - np.nanmin(start)), 1e-9)


def mean_demand(tasks: pd.DataFrame, span_s: float | None = None) -> dict[str, float]:
    """Mean of what the tasks hold: GPUs, cpu_milli, memory_mib.

    Parameters
    ----------
    span_s : the time over which the mean is; None for that of these tasks
    """
    span_s = span_s or span_of(tasks)
    _, held_s = held_of(tasks)
    gpus = floats(tasks, "num_gpus") * floats(tasks, "gpu_milli") / 1000
    amounts = {"gpus": gpus} | {name: floats(tasks, name) for name in ("cpu_milli", "memory_mib")}
    return {name: float(np.nansum(amount * held_s) / span_s) for name, amount in amounts.items()}


SHAPE = ["gpu_model", "num_gpus", "cpu_milli", "memory_mib", "gpu_memory_mib"]


GPUS_OF_A_NODE = 8  # where no file says how many; nodes that train have four or eight


def spanning(tasks: pd.DataFrame, gpus: int, ledger: Ledger) -> pd.DataFrame:
    """The same tasks, those of more GPUs than a node has as parts on several nodes."""
    asked = floats(tasks, "num_gpus")
    parts = np.maximum(1, np.ceil(np.nan_to_num(asked) / gpus))
    if parts.sum() > traces.MOST_TASKS or parts.max(initial=1) > traces.MOST_PARTS:
        raise InputError(f"a task asks for {np.nanmax(asked):,.0f} GPUs", file="--size-to",
                         mend=f"at most {traces.MOST_PARTS:,} nodes of {gpus} GPUs can hold one; "
                         "see whether GPUs are in per cent")
    ledger.note("--size-to", None, "assumed", f"tasks of more than {gpus} GPUs span nodes: one task "
                "for each, TASK/0, TASK/1, ..., GPUs, CPUs and memory divided", int((parts > 1).sum()))
    return traces.split(tasks, parts.astype(np.int64), ["num_gpus", "cpu_milli", "memory_mib"])


def shape_of_tasks(tasks: pd.DataFrame, demand: Mapping[str, float]) -> dict[str, Any]:
    """Shape of a node on which every task fits, and whose GPUs are its scarcest part."""
    gpus = GPUS_OF_A_NODE
    shape: dict[str, Any] = {"gpu_model": "", "num_gpus": gpus}
    for name in ("cpu_milli", "memory_mib"):
        amounts = floats(tasks, name)
        if np.isfinite(amounts).any():
            balanced = demand[name] / demand["gpus"] * gpus if demand["gpus"] else 0
            shape[name] = math.ceil(max(np.nanmax(amounts), balanced))
    return shape


def commonest_shape(nodes: pd.DataFrame) -> dict[str, Any] | None:
    """Shape that most of the nodes with GPUs have; None if no node has any."""
    with_gpus = nodes[nodes["num_gpus"].fillna(0) > 0]
    if not len(with_gpus):
        return None
    counts = with_gpus.groupby(SHAPE, dropna=False, sort=False).size()
    first = counts.index[int(counts.to_numpy().argmax())]
    return {name: None if pd.isna(value) else value
            for name, value in zip(SHAPE, first, strict=True)}


def tasks_by_model(tasks: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Tasks by the first model that they accept; those that accept any are with the most."""
    first = tasks["gpu_models"].str.partition("|")[0]
    named = first[(first != "") & (tasks["num_gpus"].fillna(0) > 0)]
    if not len(named):
        return {"": tasks}
    commonest = named.value_counts().index[0]
    first = first.where(first.isin(named.unique()), commonest)
    return {str(model): rows for model, rows in tasks.groupby(first, sort=False)}


MOST_NODES = 10**6


def sized(nodes: pd.DataFrame, tasks: pd.DataFrame, written: str,
          ledger: Ledger) -> list[pd.DataFrame]:
    """Rows of nodes such that the mean demand of the tasks is this share of their GPUs."""
    share = share_of(written)
    tasks = with_ends(tasks, ledger)
    shape = commonest_shape(nodes)
    if shape:
        return [nodes_for(mean_demand(tasks), share, shape)]
    by_model = tasks_by_model(tasks)
    span_s = span_of(tasks)
    demands = [mean_demand(some, span_s) for some in by_model.values()]
    return [nodes_for(demand, share, shape_of_tasks(some, demand) | {"gpu_model": model},
                      f"{model}-" if len(by_model) > 1 else "")
            for demand, (model, some) in zip(demands, by_model.items(), strict=True)]


def nodes_for(demand: Mapping[str, float], share: float, shape: Mapping[str, Any],
              prefix: str = "") -> pd.DataFrame:
    """Equal nodes of which a demand is a share."""
    if not demand["gpus"]:
        raise InputError("the tasks hold no GPU on average, so no share of any",
                         mend="give nodes with --nodes")
    count = math.ceil(demand["gpus"] / (share * int(shape["num_gpus"])))
    if count > MOST_NODES:
        raise InputError(f"{count} nodes would be needed",
                         mend=f"at most {MOST_NODES} are made; see whether GPUs are in percent")
    width = len(str(count))
    names = [f"node-{prefix}{number:0{width}}" for number in range(1, count + 1)]
    return pd.DataFrame({"name": names, **shape, "labels": "{}"})


def shape_in_words(nodes: pd.DataFrame) -> str:
    """What each of these equal nodes has."""
    first = nodes.iloc[0]
    model = first["gpu_model"] or "of a model that is not known"
    parts = [f"{first[name]} {unit}" for name, unit in (("cpu_milli", "milli-vCPU"), ("memory_mib", "MiB"))
             if name in first and not pd.isna(first[name])]
    return ", ".join([f"{first['num_gpus']} GPUs {model}", *parts])


def known_model(name: str) -> str:
    """The only known model among the words of a name; empty if there is none, or several."""
    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    found = [model for model in GPU_POWER_W if model.lower() in words]
    return found[0] if len(found) == 1 else ""


def known_models(names: Sequence[str]) -> dict[str, str]:
    """Known models by the names that are to be replaced; names of two cards are left, two spellings are not two."""
    known = {name: model for name in names if (model := known_model(name))}
    meant = Counter({name.lower(): model for name, model in known.items()}.values())
    return {name: model for name, model in known.items() if name != model and meant[model] == 1}


def with_known_models(nodes: pd.DataFrame, tasks: pd.DataFrame, file: str,
                      ledger: Ledger) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same rows, GPU models by their known names."""
    models = list(nodes["gpu_model"].dropna().unique()) if "gpu_model" in nodes else []
    wishes = list(tasks["gpu_models"].dropna().unique()) if "gpu_models" in tasks else []
    parts = [part for wish in wishes for part in wish.split("|")]
    known = known_models(list(dict.fromkeys([*models, *parts])))
    for name, model in known.items():
        count = int((nodes["gpu_model"] == name).sum()) if models else 0
        ledger.note(file, None, "interpreted", f"GPU {name} is model {model}", max(count, 1))
    if models:
        nodes = nodes.assign(gpu_model=nodes["gpu_model"].replace(known))
    renamed = {wish: "|".join(known.get(part, part) for part in wish.split("|")) for wish in wishes}
    if wishes:
        tasks = tasks.assign(gpu_models=tasks["gpu_models"].replace(renamed))
    return nodes, tasks


def nodes_in(sources: Sequence[Source], groups: Mapping[str, Sequence[Source]], ledger: Ledger,
             options: ReadOptions) -> pd.DataFrame:
    """Rows of nodes of files that were given for their nodes."""
    nodes, tasks = read_groups(groups, ledger, options)
    if not len(nodes):
        raise InputError("there is no node in it", file=sources[0].name,
                         mend="give a file with nodes to --nodes")
    for source in sources:
        ledger.note(source.name, None, "assumed", "nodes are those of --nodes", len(nodes))
    if len(tasks):
        ledger.note(sources[0].name, None, "dropped", "tasks in a file of --nodes", len(tasks))
    return nodes


def read_files(format: str, paths: Sequence[str | Path], options: ReadOptions | None = None, *,
               nodes: Sequence[str | Path] = (), size_to: str = "") -> ClusterTables:
    """Read files into a cluster.

    Parameters
    ----------
    format : a name of `FORMATS`, or auto
    paths : the files
    options : a map of columns, a zone, an order of dates
    nodes : files with nodes, if not in the others
    size_to : share of the GPUs that the mean demand is to be, such as `80%`; empty for none

    Returns
    -------
    tables, with a ledger of all that was not taken as it stood

    Raises
    ------
    InputError : a file is missing, damaged or of no known format; or there is nothing in it
    """
    options = options or ReadOptions()
    ledger = Ledger()
    sources = sources_of(paths)
    groups = grouped(sources, format, options, ledger)
    extra = sources_of(nodes)
    extra_groups = grouped(extra, "auto", options, ledger)
    if own := [*groups.get("csv", ()), *extra_groups.get("csv", ())]:
        columns.check_map(own, options.columns)
    found, tasks = read_groups(groups, ledger, options)
    if extra:
        if len(found):
            ledger.note(extra[0].name, None, "dropped", "nodes of the files, for those of --nodes",
                        len(found))
        found = nodes_in(extra, extra_groups, ledger, options)
    about = {"formats": {source.name: name for name, some in groups.items() for source in some},
             "zone": options.zone or "UTC"}
    name = ", ".join(source.name for source in sources[:3])
    found, tasks = with_known_models(found, tasks, name, ledger)
    return with_size(tables_of(found, tasks, ledger, name, about), ledger, size_to)


def with_size(tables: ClusterTables, ledger: Ledger, size_to: str) -> ClusterTables:
    """The same tables, with as many nodes as a share asks for, if it does."""
    if not size_to:
        return tables
    shape = commonest_shape(tables.nodes)
    tasks = spanning(tables.tasks, int(shape["num_gpus"]) if shape else GPUS_OF_A_NODE, ledger)
    groups = sized(tables.nodes, tasks, size_to, ledger)
    for rows in groups:
        ledger.note("--size-to", None, "assumed", f"nodes of {shape_in_words(rows)}, so that the "
                    f"mean demand for GPUs is {size_to} of them", len(rows))
    nodes = pd.concat(groups, ignore_index=True)
    made = tables_of(nodes, tasks, ledger, "--size-to", tables.about)
    lines = made.ledger[~made.ledger["reason"].str.startswith("there are no nodes")]
    return replace(made, about=tables.about, ledger=lines.reset_index(drop=True))
