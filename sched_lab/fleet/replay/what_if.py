"""The tables of a cluster that never was: more nodes, other GPU models, another load."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from ...lab.arrays import Integers
from ...lab.frames import InputError, advice_on, read_toml
from ...traces import models_of
from ..read.tables import ClusterTables, Ledger, note_rows
from .worth import node_rows

__all__ = ['read_what_if', 'changed']


def idle_and_full(watts: list[int]) -> list[int]:
    """Watts of a GPU, checked."""
    if watts[0] > watts[1]:
        raise ValueError("idle watts are above full watts")
    return watts


Factor = Annotated[float, Field(gt=0, le=100)]
Model = Annotated[str, Field(min_length=1)]
IdleAndFull = Annotated[list[NonNegativeInt], Field(min_length=2, max_length=2),
                        AfterValidator(idle_and_full)]


class Nodes(BaseModel):
    """Changes to the nodes."""

    model_config = ConfigDict(extra="forbid", strict=True)
    scale: Factor = 1
    remove: list[Any] = []


class WhatIf(BaseModel):
    """Changes to a cluster."""

    model_config = ConfigDict(extra="forbid", strict=True)
    load: Factor = 1
    nodes: Nodes = Nodes()
    gpu_models: dict[str, Model] = {}
    gpu_power_w: dict[str, IdleAndFull] = {}
    power_cap_w: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1


MENDS = {"load": "give 1.3 for 30 % more, say", "scale": "give 1.3 for 30 % more, say",
         "power_cap_w": "write power_cap_w = 50000 for 50 kW, say",
         "gpu_models": 'write T4 = "A10"', "gpu_power_w": "write T4 = [30, 150]"}


def read_what_if(path: str | Path) -> dict[str, Any]:
    """Changes that a TOML file asks for, checked.

    Raises
    ------
    InputError : it is no TOML, or has a key that is not understood
    """
    said = read_toml(path)
    try:
        WhatIf.model_validate(said)
    except ValidationError as trouble:
        first = trouble.errors()[0]
        *outer, key = [str(one) for one in first["loc"]]
        name = ".".join([*outer, key])
        if first["type"] != "extra_forbidden":
            mend = next((MENDS[one] for one in (key, *outer) if one in MENDS),
                        "see sched-lab replay --help")
            raise InputError(f"{name} = {first['input']!r}: {first['msg']}", file=path, value=key,
                             mend=mend) from None
        known = (Nodes if outer else WhatIf).model_fields
        is_cap = "cap" in key and not outer
        raise InputError(f"{name}: there is no such key", file=path, value=key,
                         mend="say power_cap_w = WATTS" if is_cap else
                         advice_on(key, list(known))) from None
    return said


def repeated(frame: pd.DataFrame, count: Integers, mark: str) -> pd.DataFrame:
    """Rows as often as counted; the second and later ones have a name of their own."""
    rows = np.repeat(np.arange(len(frame)), count)
    turn = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
    copies = frame.iloc[rows].reset_index(drop=True)
    names = copies["name"].astype(str)
    return copies.assign(name=names.where(turn == 0, names + mark + pd.Series(turn).astype(str)))


def with_nodes(nodes: pd.DataFrame, said: Mapping[str, Any], ledger: Ledger) -> pd.DataFrame:
    """Nodes without those removed, and more or fewer of the others; `copy_of` names the node that each is or was."""
    removed = [str(name) for name in said.get("remove", ())]
    for name in removed:
        if name not in set(nodes["name"]):
            raise InputError(f"nodes.remove: there is no node {name!r:.60}", value=name,
                             mend="give a name of nodes.csv")
    is_gone = nodes["name"].isin(removed)
    note_rows(ledger, "nodes.csv", np.flatnonzero(is_gone) + 2, "what if", "removed")
    nodes = nodes[~is_gone].reset_index(drop=True)
    nodes = nodes.assign(copy_of=nodes["name"])
    rows = node_rows(len(nodes), said.get("scale", 1))
    if len(rows) != len(nodes):
        ledger.note("nodes.csv", None, "what if", f"{len(rows)} nodes in place of {len(nodes)}")
    return repeated(nodes, np.bincount(rows, minlength=len(nodes)), "+")


def with_models(tables: ClusterTables, other: Mapping[str, str], ledger: Ledger) -> ClusterTables:
    """Tables with other GPU models in nodes and in wishes."""
    nodes = tables.nodes
    for model in other:
        is_one = (nodes["gpu_model"] == model) & (nodes["num_gpus"].fillna(0) > 0)
        if not is_one.any():
            raise InputError(f"gpu_models: no node has the model {model!r:.60}", value=model,
                             mend="name a gpu_model of nodes.csv")
        note_rows(ledger, "nodes.csv", np.flatnonzero(is_one) + 2, "what if",
                  f"{model} is {other[model]}")
    wishes = {text: "|".join(other.get(one, one) for one in models_of(text))
              for text in tables.tasks["gpu_models"].unique()}
    models = nodes["gpu_model"].where(nodes["num_gpus"].fillna(0) == 0,
                                      nodes["gpu_model"].replace(dict(other)))
    return replace(tables, nodes=nodes.assign(gpu_model=models),
                   tasks=tables.tasks.assign(gpu_models=tables.tasks["gpu_models"].map(wishes)))


def changed(tables: ClusterTables, said: Mapping[str, Any], seed: int) -> ClusterTables:
    """Tables of a cluster that never was.

    Parameters
    ----------
    tables : of the one that was
    said : as `read_what_if` gives it
    seed : of the tasks that come again, or not at all

    Raises
    ------
    InputError : a node or a model that is to change is not there
    """
    ledger = Ledger()
    nodes = with_nodes(tables.nodes, said.get("nodes", {}), ledger)
    if tables.outages is not None:  # a copy of a node is closed when the node is
        copies = pd.DataFrame({"node": nodes["copy_of"], "own": nodes["name"]})
        outages = tables.outages.merge(copies, on="node").assign(node=lambda rows: rows.pop("own"))
        tables = replace(tables, outages=outages)
    tables = replace(tables, nodes=nodes.drop(columns="copy_of"))
    if "gpu_models" in said:
        tables = with_models(tables, said["gpu_models"], ledger)
    tasks = tables.tasks
    if (load := said.get("load", 1)) != 1:
        draws = np.random.default_rng(seed).random(len(tasks))
        count = int(load) + (draws < load % 1)
        ledger.note("tasks.csv", None, "what if",
                    f"load {load:g}: {count.sum()} tasks in place of {len(tasks)}")
        tasks = repeated(tasks, count, "~")
    lines = pd.concat([tables.ledger, ledger.frame()], ignore_index=True)
    return replace(tables, tasks=tasks, ledger=lines.astype(tables.ledger.dtypes))
