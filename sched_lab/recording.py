"""What a monitoring system has recorded of GPUs, read as points of load and watts: answers of Prometheus, or tables."""

# A module, written by hand.

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from .hardware import Hardware, default_hardware, words_of
from .lab.frames import Column, InputError, InputFile, read_input, read_table

__all__ = ['LOADS', 'POWER', 'Recording', 'read_recording']

POWER = "DCGM_FI_DEV_POWER_USAGE"
LOADS = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1.0, "DCGM_FI_DEV_GPU_UTIL": 100.0}  # what full load is
COLUMNS = {"time": Column("number"), "gpu": Column("text"), "model": Column("text"),
           "power_w": Column("number"), "utilisation_percent": Column("number")}
MOST_W = 10_000  # of one GPU; more is a number that stands for "unknown"


@dataclass(frozen=True)
class Recording:
    """Points that were recorded.

    Parameters
    ----------
    points : model, load (0 to 1) and power_w, a row for each
    dropped : readings that were left out, by the reason
    """

    points: pd.DataFrame
    dropped: Mapping[str, int]


def read_recording(files: Sequence[str | Path], model: str = "") -> Recording:
    """Read what a monitoring system has recorded.

    Parameters
    ----------
    files : answers of Prometheus to query_range (JSON), or tables with the columns time, gpu,
        model, power_w, utilisation_percent (CSV)
    model : only this one; what names no model is of this one

    Raises
    ------
    InputError : with file and place; or no point is left
    """
    dropped: Counter[str] = Counter()
    tables, series = [], []
    for file in [read_input(path) for path in files]:
        if file.content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in b"{[":
            series += series_in(file)
        else:
            tables.append(points_of_table(file, dropped))
    points = pd.concat([joined(series, dropped), *tables] if series or not tables else tables,
                       ignore_index=True)
    is_power = points["power_w"].gt(0) & points["power_w"].le(MOST_W)
    is_load = points["load"].between(0, 1)
    dropped["power is no reading"] += int((~is_power).sum())
    dropped["load is no share"] += int((is_power & ~is_load).sum())
    points = named(points[is_power & is_load], model, dropped, str(files[0]))
    return Recording(points, {why: count for why, count in dropped.items() if count})


def points_of_table(file: InputFile, dropped: Counter[str]) -> pd.DataFrame:
    """Points of a table with a row for each reading."""
    table = read_table(file, COLUMNS)
    is_again = table.duplicated(["time", "gpu"])
    dropped["given twice"] += int(is_again.sum())
    table["load"] = table["utilisation_percent"] / 100
    return table.loc[~is_again, ["gpu", "model", "load", "power_w"]]


class Series(NamedTuple):
    """One GPU and one metric: numbers by time, and the words of its labels.

    Parameters
    ----------
    metric : a name of DCGM's exporter; empty for what one MIG instance does
    """

    gpu: str
    model: str
    metric: str
    values: dict[float, float]


def series_in(file: InputFile) -> list[Series]:
    """All series of an answer of Prometheus.

    Raises
    ------
    InputError : it is not JSON, says that the query failed, or has another form
    """
    try:
        answer = json.loads(file.content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as trouble:
        raise InputError(f"this is not JSON ({trouble})", file=file, mend="export again") from None
    if not isinstance(answer, dict) or answer.get("status") != "success":
        told = answer.get("error", "no status success") if isinstance(answer, dict) else "a list"
        raise InputError(f"this is no answer of Prometheus ({told!r:.80})", file=file,
                         mend="ask query_range again, and keep the whole answer")
    data: Any = answer.get("data")
    kind = data.get("resultType") if isinstance(data, dict) else None
    if kind != "matrix" or not isinstance(data.get("result"), list):
        raise InputError(f"the result is of type {kind!r:.40}, not a matrix", file=file,
                         mend="ask query_range, not query")
    return [series_of(one, str(file), f"data.result[{row}]")
            for row, one in enumerate(data["result"])]


def series_of(one: Any, file: str, place: str) -> Series:
    """A series of an answer, its labels and values checked."""
    if not isinstance(one, dict) or not isinstance(one.get("values"), list):
        raise InputError(f"{place} has no list of values", file=file,
                         mend="ask query_range, not query")
    labels = one.get("metric")
    if not isinstance(labels, dict) or not all(isinstance(text, str) for text in labels.values()):
        raise InputError(f"{place}.metric is no table of labels", file=file,
                         mend="give the answer of Prometheus as it is")
    metric = labels.get("__name__", "")
    if metric not in (POWER, *LOADS):
        raise InputError(f"{place} is of metric {metric!r:.60}", file=file, mend="ask for the plain "
                         f"{', '.join((POWER, *LOADS))}, without a function around it")
    host = labels.get("Hostname") or labels.get("instance")
    gpu = labels.get("UUID") or (f"{host}/{labels['gpu']}" if host and labels.get("gpu") else "")
    if not gpu:
        raise InputError(f"{place}.metric does not say which GPU it is", file=file,
                         mend="keep the labels UUID, or Hostname and gpu")
    values = dict(reading(pair, file, f"{place}.values[{row}]")
                  for row, pair in enumerate(one["values"]))
    return Series(gpu, labels.get("modelName", ""), "" if labels.get("GPU_I_ID") else metric, values)


def reading(pair: Any, file: str, place: str) -> tuple[float, float]:
    """Time and number of a pair of Prometheus: `[1700000000, "61.2"]`."""
    is_pair = isinstance(pair, list) and len(pair) == 2 and isinstance(pair[1], str)
    try:
        found = (float(pair[0]), float(pair[1])) if is_pair else (math.nan, math.nan)
    except (TypeError, ValueError, OverflowError):
        found = (math.nan, math.nan)
    if not math.isfinite(found[0]):
        raise InputError(f"{place} is {pair!r:.60}", file=file,
                         mend='give a time and a number in quotes, as [1700000000, "61.2"]')
    return round(found[0], 3), found[1]


def joined(series: Sequence[Series], dropped: Counter[str]) -> pd.DataFrame:
    """Points of the series: gpu, model, load, power_w; what is left out is counted.

    Draw and load of one GPU at one time make a point. Of two metrics of load the finer one counts,
    the share of time in which the graphics engine was active. MIG instances are left out: the draw
    is that of the whole GPU, and the load that of a part.
    """
    known = {one.metric for one in series}
    load = next((name for name in LOADS if name in known), "")
    tables: dict[str, dict[tuple[str, float], float]] = {POWER: {}, load: {}}
    models: dict[str, str] = {}
    for one in series:
        why = "of a MIG instance" if not one.metric else "of the coarser metric of load"
        table = tables.get(one.metric) if one.metric else None
        if table is None:
            dropped[why] += len(one.values)
            continue
        models[one.gpu] = one.model or models.get(one.gpu, "")
        keys = {(one.gpu, time): value for time, value in one.values.items()}
        dropped["given twice"] += len(keys.keys() & table.keys())
        table.update(keys | {key: table[key] for key in keys.keys() & table.keys()})
    both = [key for key in tables[POWER] if key in tables[load]]
    dropped["no load at that time"] += len(tables[POWER]) - len(both)
    dropped["no power at that time"] += len(tables[load]) - len(both)
    rows = [(gpu, models[gpu], tables[load][gpu, time] / LOADS[load], tables[POWER][gpu, time])
            for gpu, time in both]
    return pd.DataFrame(rows, columns=["gpu", "model", "load", "power_w"])


def named(points: pd.DataFrame, model: str, dropped: Counter[str], file: str) -> pd.DataFrame:
    """Points with the names of the catalogue, only those of a model if one is given."""
    hardware = default_hardware()
    labels = points["model"].str.strip().replace("", model)
    if labels.eq("").any():
        raise InputError("a GPU has no model", file=file,
                         mend="keep the label modelName, or give --model NAME")
    for label in labels.unique():
        if not label.isprintable():
            raise InputError(f"a model is called {label!r:.60}", file=file, mend="give it a name")
    names = {label: catalogue_name(label, hardware) for label in labels.unique()}
    points = points.assign(model=labels.map(names))
    if model:
        wanted = catalogue_name(model, hardware)
        is_wanted = points["model"].map(words_of) == words_of(wanted)
        dropped["of another model"] += int((~is_wanted).sum())
        points = points[is_wanted].assign(model=wanted)
    if points.empty:
        told = ", ".join(f"{why}: {count}" for why, count in dropped.items() if count)
        raise InputError(f"no point has both power and load ({told or 'nothing was recorded'})",
                         file=file, mend=f"export {POWER} and one of {', '.join(LOADS)}, "
                         "with the same start, end and step")
    return points.reset_index(drop=True)


def catalogue_name(name: str, hardware: Hardware) -> str:
    """What the catalogue calls a model; the name itself if it does not know it."""
    try:
        return hardware.gpu(name).name
    except InputError:
        return name
