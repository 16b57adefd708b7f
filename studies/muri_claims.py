"""What Muri claims, beside what its rebuilt program does on its traces."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from .claims import Each, Numbers, Row, Table, graded, held, said, section
from .reproduction import Claim

__all__ = ['MURI_CLAIMS', 'published', 'times_of']

FRAME = "fleet/muri.csv"
NEAR = 0.1  # ratios that differ by less are the same


@cache
def published() -> pd.DataFrame:
    """Mean and 99th percentile of completion times and makespans that the authors publish."""
    return pd.read_csv(Path(__file__).parents[1] / "data" / "paper" / "muri.csv",
                       dtype={"trace": str})


def times_of(frame: Table, column: str) -> Table:
    """A column of a frame by trace and program."""
    table: Table = frame.astype({"trace": str}).pivot(index="trace", columns="program",
                                                      values=column)
    return table


def ratios(frame: pd.DataFrame, column: str, rival: str, program: str,
           traces: tuple[str, ...]) -> dict[str, Each]:
    """How many times as long a rival takes, in theirs and in ours."""
    found = {}
    for who, rows in (("theirs", published()), ("ours", frame)):
        times = times_of(rows, column).loc[list(traces)]
        found[who] = Each(times[rival] / times[program])
    return found


def as_published(n: Numbers) -> str:
    """Reproduced if all ratios are near theirs; direction only if the same programs are ahead."""
    pairs = [*zip(n.theirs, n.ours, strict=True)]
    return graded(all(abs(ours / theirs - 1) < NEAR for theirs, ours in pairs),
                  all(ours > 1 for theirs, ours in pairs if theirs > 1 + NEAR))


SIMULATED = ("1", "3", "3'")


def compared(where: str, text: str, column: str, rival: str, program: str,
             traces: tuple[str, ...] = SIMULATED, why: str = "") -> tuple[Claim, ...]:
    """Claim that a program is so many times faster than a rival."""
    def measure(frame: pd.DataFrame) -> dict[str, Any]:
        return ratios(frame, column, rival, program, traces)

    theirs = format(ratios(published(), column, rival, program, traces)["theirs"], ".2f")
    return section(measure, (FRAME,), Row(where, f"{text}: {theirs} times", "{ours:.2f} times",
                                          as_published, why))


def of_parts(frame: pd.DataFrame) -> dict[str, Any]:
    """What sharing is worth: first come, first served; with SRSF; and if only one may load."""
    mean_s = times_of(frame, "mean_jct_s").loc[["testbed", "3"]]
    return {"groups": Each(mean_s["first come"] / mean_s["groups"]),
            "over": Each(mean_s["SRSF"] / mean_s["Muri-S"]),
            "loads": Each(mean_s["SRSF"] / mean_s["one loads"])}


MEASURED = ("testbed",)
GAINS_MORE = "SRSF and SRTF are as published; ours gains more, perhaps as fewer starts are charged"
MURI_CLAIMS: tuple[Claim, ...] = (
    said("abstract", "mean completion times up to 3.6 times shorter", "not computed",
         "not testable", "against Themis, measured; we have neither the machines nor Themis"),
    *compared("testbed", "SRSF over Muri-S, mean completion time", "mean_jct_s", "SRSF", "Muri-S",
              MEASURED, "theirs measured, ours simulated"),
    *compared("testbed", "Tiresias over Muri-L, mean completion time", "mean_jct_s", "Tiresias",
              "Muri-L", MEASURED, "theirs measured, ours simulated"),
    *compared("abstract", "makespan, SRSF over Muri-S on the testbed", "makespan_s", "SRSF",
              "Muri-S", MEASURED, "theirs measured, ours simulated"),
    *compared("Fig. 9", "SRTF over Muri-S, mean completion time", "mean_jct_s", "SRTF", "Muri-S",
              why=GAINS_MORE),
    *compared("Fig. 9", "SRSF over Muri-S, mean completion time", "mean_jct_s", "SRSF", "Muri-S",
              why=GAINS_MORE),
    *compared("Fig. 9", "SRSF over Muri-S, makespan", "makespan_s", "SRSF", "Muri-S"),
    *compared("Fig. 9", "SRSF over Muri-S, 99th percentile", "p99_jct_s", "SRSF", "Muri-S",
              why=GAINS_MORE),
    *compared("Fig. 10", "Tiresias over Muri-L, mean completion time", "mean_jct_s", "Tiresias",
              "Muri-L", why="Tiresias is as published; why our groups are slower is not found"),
    *section(
        of_parts, (FRAME,),
        Row("ours", "sharing gains even if the order is first come, first served",
            "{groups:.1f} times", lambda n: held(min(n.groups) > 1)),
        Row("ours", "Muri-S stays ahead of SRSF if no two jobs of a group load at once",
            "{loads:.2f} times, else {over:.2f}", lambda n: held(min(n.loads) > 1))))
