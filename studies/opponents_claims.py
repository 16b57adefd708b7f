"""What Muri and Synergy claim, beside what their rebuilt programs do on their workloads."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from .claims import Each, Numbers, Row, Table, graded, held, said, section
from .reproduction import Claim

__all__ = ['MURI_CLAIMS', 'SYNERGY_CLAIMS', 'published', 'times_of', 'gains_of']

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


# --- Synergy

README_H = Each((21.8766, 156.9331, 170.6120))  # hours: mean, 99th and 99.9th percentile


def gains_of(frame: pd.DataFrame) -> Table:
    """By order and jobs an hour: load, hours by allocation, and what TUNE gains.

    Parameters
    ----------
    frame : of `sched-lab reproduce fleet synergy`; the authors' draw counts
    """
    keys = ["order", "per_hour"]
    own: Table = frame[frame["seed"] == 42]
    hours = own.pivot(index=keys, columns="allocation", values="mean_jct_h")
    load = own[own["allocation"] == "share"].set_index(keys)["offered_load"]
    return hours.assign(load=load, gain=hours["share"] / hours["TUNE"])


def of_rounds(frame: pd.DataFrame) -> dict[str, Any]:
    """What TUNE gains in all and where the share keeps up, its distance to a bound, and one run."""
    gains = gains_of(frame)
    kept = gains[gains["load"] < 1]
    fair, others = gains.loc["FTF", "gain"].max(), gains.drop("FTF")["gain"].max()
    above = 100 * (gains["TUNE"] / gains["unlimited"] - 1)
    run: Table = frame.query("order == 'FIFO' and per_hour == 9 and allocation == 'TUNE'")
    hours = run.set_index("seed")[["mean_jct_h", "p99_jct_h", "p999_jct_h"]]
    draws = hours["mean_jct_h"].drop(42)
    return {"most": others, "fair": fair, "kept": Each((kept["gain"].min(), kept["gain"].max())),
            "above": above.max(), "above_kept": above[kept.index].max(),
            "theirs": README_H, "ours": Each(hours.loc[42]),
            "draws": Each(draws)}


SYNERGY_CLAIMS: tuple[Claim, ...] = (
    *section(
        of_rounds, ("fleet/synergy.csv",),
        Row("README", "TUNE, FIFO, 9 jobs an hour, mean, 99th and 99.9th percentile: "
            f"{README_H:.1f} h", "{ours:.1f} h", as_published,
            "their draw of jobs; in two other draws the mean is {draws:.0f} h"),
        Row("abstract", "mean completion times up to 3.4 times shorter than with equal shares",
            "up to {most:.1f} times", lambda n: graded(n.most > 3.4 * (1 - NEAR), n.most > 1),
            "only in overload, FTF left out: the program takes who is least delayed first, and "
            "others starve ({fair:.0f} times)"),
        Row("abstract", "TUNE is near the optimum",
            "{above_kept:.1f} % above a bound where equal shares keep up, at most {above:.0f} %",
            lambda n: graded(n.above < 100 * NEAR, n.above_kept < 100 * NEAR),
            "bound: each its best, whatever servers have"),
        Row("ours", "TUNE gains less than a quarter where equal shares keep up",
            "{kept[0]:.2f} to {kept[1]:.2f} times",
            lambda n: held(1 < n.kept[0] < n.kept[1] < 1.25))),
    said("testbed", "gains measured on 32 GPUs", "not computed", "not testable",
         "the jobs are public, the machines and the measured times are not"),
    said("Fig. 1", "gains with jobs of several GPUs", "not computed", "not testable",
         "their sizes come from a file that the public copy lacks"))
