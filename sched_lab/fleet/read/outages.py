"""When nodes were drained or down: a small table of one's own, or the events that Slurm has on record."""

# A module, written by hand.

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...lab.frames import InputError, advice_on
from .dates import seconds_in
from .slurm import DOWN, DRAIN, account_lines, closed_by, hosts_in
from .tables import (
    FIRST_EPOCH_S,
    OUTAGES,
    UNKNOWN,
    ClusterTables,
    Ledger,
    ReadOptions,
    Source,
    header_of,
    note_rows,
    read_cluster,
    sources_of,
    text_table,
)

__all__ = ['read_outages', 'read_cluster_in_time']

COLUMNS = ("node", "start", "end", "kind", "requeue", "reason")
KINDS = (DRAIN, DOWN)
EVENT_COLUMNS = {"NodeName": "node", "Node": "node", "TimeStart": "start", "TimeEnd": "end", "State": "kind",
                 "Reason": "reason"}


def events_in(source: Source, names: set[str], ledger: Ledger) -> pd.DataFrame:
    """Rows of `sacctmgr show event -P`, one for each node that the cluster has."""
    cells = account_lines(source, ledger)
    cells = cells.rename(columns=EVENT_COLUMNS)
    if lacking := {"node", "start", "end", "kind"} - set(cells):
        raise InputError(f"there is no {', '.join(sorted(lacking))} in it", file=source.name, row=1,
                         mend="give sacctmgr show event -P format=NodeName,TimeStart,TimeEnd,State,Reason")
    kinds = [kind for _, kind in map(closed_by, cells["kind"])]
    cells = cells.assign(kind=kinds, node=cells["node"].map(hosts_in)).explode("node")
    is_of_node = cells["node"].isin(names)
    is_closed = cells["kind"] != ""
    is_over = cells["start"] == cells["end"]
    for is_so, reason in ((~is_of_node, "the event is of no node of the cluster"),
                          (is_of_node & ~is_closed, "in the state of the event a node is open"),
                          (is_of_node & is_closed & is_over, "the event ends when it starts")):
        note_rows(ledger, source.name, cells.index[is_so], "dropped", reason)
    return cells[is_of_node & is_closed & ~is_over]


class Rows:
    """Rows of outages, and their errors.

    Parameters
    ----------
    cells, source : texts indexed by the row in the file, and the file
    """

    def __init__(self, cells: pd.DataFrame, source: Source) -> None:
        self.cells, self.source = cells, source

    def refuse(self, is_wrong: Any, column: str, problem: str, mend: str) -> None:
        """Refuse the first row of a mask, if there is one."""
        for place in np.flatnonzero(is_wrong)[:1].tolist():
            value = str(self.cells[column].iloc[place])
            raise InputError(f"{value!r:.60} {problem}" if value else f"the cell is empty: it {problem}",
                             file=self.source.name, row=int(self.cells.index[place]), column=column, value=value,
                             mend=mend)

    def seconds(self, column: str, zero: str | None, options: ReadOptions) -> np.ndarray:
        """Seconds since the zero of the cluster, NaN where the cell says nothing, (rows,)."""
        texts = self.cells[column]
        is_known = ~texts.str.lower().isin(UNKNOWN).to_numpy(bool)
        numbers = pd.to_numeric(texts, errors="coerce").to_numpy(float)
        if not np.isfinite(numbers[is_known]).all():
            numbers = seconds_in(texts, self.source, Ledger(), options).to_numpy(float, na_value=np.nan)
        self.refuse(is_known & ~np.isfinite(numbers), column, "is neither a date nor seconds",
                    "write 2026-01-31T12:00:00, or seconds since the zero of the cluster")
        is_date = numbers >= FIRST_EPOCH_S
        self.refuse(is_date & (zero is None), column, "is a date, and the tasks have none",
                    "give seconds, as tasks.csv counts them")
        zero_s = datetime.fromisoformat(zero).timestamp() if zero else 0.0
        return np.where(is_date, numbers - zero_s, numbers)


def read_outages(path: str | Path, tables: ClusterTables, ledger: Ledger,
                 options: ReadOptions = ReadOptions()) -> pd.DataFrame:  # noqa: B008
    """Read when nodes of a cluster were closed.

    Parameters
    ----------
    path : CSV with the columns node, start, end (empty: no end is known), kind (drain or down), and if there is
        more to say requeue (yes or no: whether what a node stops waits again) and reason; or what
        `sacctmgr show event -P` prints
    tables : the cluster
    ledger : where it is noted what was dropped of Slurm's events
    options : the zone and the order of dates

    Returns
    -------
    these columns, times in seconds since the zero of the cluster

    Raises
    ------
    InputError : a column is missing, or a cell is not what it has to be
    """
    source = sources_of([path])[0]
    names = set(tables.nodes["name"])
    if "|" in source.head(4096).partition("\n")[0]:
        cells = events_in(source, names, ledger)
    else:
        if lacking := [name for name in COLUMNS[:4] if name not in header_of(source)]:
            raise InputError("the column is missing", file=path, row=1, column=lacking[0],
                             mend=f"write {','.join(COLUMNS[:4])} in the first line")
        cells = text_table(source)
    rows = Rows(cells.assign(**{name: "" for name in COLUMNS[4:] if name not in cells})[list(COLUMNS)], source)
    unknown = ~rows.cells["node"].isin(names).to_numpy(bool)
    for name in rows.cells["node"][unknown].tolist()[:1]:
        rows.refuse(unknown, "node", "is no node of the cluster", advice_on(name, sorted(names)))
    rows.refuse(~rows.cells["kind"].isin(KINDS), "kind", "is neither drain nor down",
                "write drain if nothing new starts there, and down if what runs is stopped")
    rows.refuse(~rows.cells["requeue"].isin(["", "yes", "no"]), "requeue", "is neither yes nor no",
                "write yes if what is stopped waits again, and no if it ends")
    start, end = (rows.seconds(name, tables.about.get("zero"), options) for name in ("start", "end"))
    rows.refuse(np.isnan(start), "start", "says not since when the node is closed", "give a date, or seconds")
    rows.refuse(end <= start, "end", "is not after the start", "leave it empty if no end is known")
    return rows.cells.assign(start=start, end=end).reset_index(drop=True)


def with_outages(tables: ClusterTables, path: str | Path, options: ReadOptions = ReadOptions()) -> ClusterTables:  # noqa: B008
    """The cluster with the outages of its nodes; parameters as `read_outages`."""
    ledger = Ledger()
    outages = read_outages(path, tables, ledger, options)
    lines = pd.concat([tables.ledger, ledger.frame()], ignore_index=True)
    return replace(tables, outages=outages, ledger=lines.astype(tables.ledger.dtypes))


def read_cluster_in_time(folder: str | Path) -> ClusterTables:
    """Read a cluster, and when its nodes were closed, if the folder says so."""
    tables, path = read_cluster(folder), Path(folder) / OUTAGES
    return with_outages(tables, path) if path.exists() else tables
