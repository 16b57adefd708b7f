"""A dump of a cluster says which pods wait: each gets a node and GPUs, all of them together, or what is in the way."""

# A module, written by hand.

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ...lab.frames import InputError
from ...online.model import PowerSettings
from ...online.policies import policy_of
from ..read.kubernetes import CLAIMS_MISSING
from ..read.tables import ClusterTables, Ledger
from ..replay.problem import demands_of, draft_of, times_of
from .explain import moments_before, obstacle, settings_for
from .place import Placed, place_tasks

__all__ = ['Recommendation', 'recommend']


@dataclass(frozen=True)
class Recommendation:
    """Where each pod that waits should go, or why it cannot run now.

    Parameters
    ----------
    table : one row per pod: pod (namespace and name), node ("" if there is none), gpu_list (its
        GPUs there, such as "0-1") and why (what is in the way; "" if nothing is)
    policy : that chose
    """

    table: pd.DataFrame
    policy: str

    @property
    def is_served(self) -> bool:
        """Whether all can run."""
        return bool((self.table["node"] != "").all())

    @property
    def headline(self) -> str:
        """How many can run, in a line."""
        run = int((self.table["node"] != "").sum())
        return f"{self.policy}: {run} of {len(self.table)} pending pods can run"

    def lines(self) -> list[str]:
        """A line for each pod."""
        return [f"{pod}: {node}{f', GPU {gpus}' if gpus else ''}" if node else f"{pod}: {why}"
                for pod, node, gpus, why in self.table.itertuples(index=False)]

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        return {"policy": self.policy, "pods": self.table.to_dict("records")}


def refusal_of(tables: ClusterTables, row: int) -> str:
    """Why no problem can be made of a task; empty if it can."""
    ledger = Ledger()
    draft = draft_of("tasks.csv", tables.tasks.iloc[[row]], ledger)
    demands_of(draft)
    times_of(draft)
    said = ledger.frame()
    return "; ".join(said.loc[said["what"] == "refused", "reason"])


def places_by_pod(placed: Placed, power: PowerSettings,
                  pods: Collection[str]) -> dict[str, tuple[str, str, str]]:
    """Node, GPUs and obstacle of each pod of a placement; a pod of several parts as one."""
    row_of = {str(name): row for row, name in enumerate(placed.problem.tasks.name)}
    table = placed.table
    told = table["why"] if "why" in table else pd.Series("", table.index)
    words = {row_of[name]: why for name, why in zip(table["task"], told, strict=True) if why}
    lost = [row_of[name] for name in table.loc[(table["node"] == "") & (told == ""), "task"]]
    if lost:
        settings = settings_for(placed.problem, policy_of(placed.policy), power)
        moments = moments_before(placed.problem, placed.schedule, lost, placed.schedule.node >= 0,
                                 settings)
        words |= {row: obstacle(moment, placed.problem, row)
                  for row, moment in zip(lost, moments, strict=True)}
    pod_of = table["task"].map(lambda name: name if name in pods else name.rpartition("/")[0])
    found = {}
    for pod, parts in table.groupby(pod_of, sort=False):
        first = str(parts["node"].iloc[0])
        if first and (parts["node"] == first).all():
            found[str(pod)] = (first, "-".join(parts["gpu_list"]), "")
        else:
            why = [words[row_of[name]] for name in parts.loc[parts["node"] == "", "task"]]
            found[str(pod)] = ("", "", (*why, "its GPUs are on several nodes")[0])
    return found


def recommend(tables: ClusterTables, policy: str, power: PowerSettings,
              seed: int = 0) -> Recommendation:
    """Say where every pod that waits should go, in the order of the table.

    Parameters
    ----------
    tables : nodes and pods of a dump
    policy, power, seed : as `place_tasks` takes them

    Raises
    ------
    InputError : no such policy, the cluster holds more than there is, or a pod runs of which the
        files do not say what it holds
    """
    tasks = tables.tasks
    waits = tasks["start_s"].isna() & tasks["end_s"].isna() & (tasks["node"] == "")
    pending = {str(tasks["name"].iloc[row]): int(row) for row in np.flatnonzero(waits)}
    missing = next((one for one in tables.ledger["reason"] if CLAIMS_MISSING in one), "")
    holds = tasks["num_gpus"].isna() & (tasks["node"] != "") & tasks["end_s"].isna()
    if missing and holds.any():
        raise InputError(f"pod {tasks['name'][holds].iloc[0]!r:.80} runs, and which GPUs it holds "
                         "is unknown", mend=missing)
    refused = {name: why for name, row in pending.items() if (why := refusal_of(tables, row))}
    if missing:
        refused = {name: missing if pd.isna(tasks["num_gpus"].iloc[pending[name]]) else why
                   for name, why in refused.items()}
    found: dict[str, tuple[str, str, str]] = {}
    if len(refused) < len(pending):
        placed = place_tasks(tables, tables.tasks[:0], policy, seed=seed, power=power)
        found = places_by_pod(placed, power, pending.keys())
    rows = [(name, *found.get(name, ("", "", refused.get(name, "it does not wait any more"))))
            for name in pending]
    columns = ["pod", "node", "gpu_list", "why"]
    return Recommendation(pd.DataFrame(rows, columns=columns, dtype=object), policy)
