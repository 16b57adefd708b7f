"""What the page of a replay says first, for every trace with times: fit, lever, worth."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sched_lab.fleet.read.reading import read_files
from sched_lab.fleet.read.tables import ReadOptions
from sched_lab.fleet.replay.compare import Question, compare
from sched_lab.fleet.replay.fidelity import record_of
from sched_lab.fleet.replay.problem import Problem, as_in_the_past, problem_of
from sched_lab.fleet.replay.report import (
    AMOUNTS,
    FEWEST_TASKS,
    best_lever,
    change_in,
    is_believed,
    judged,
    objective_of,
    said_of,
)
from sched_lab.fleet.replay.slurm import SlurmQueue, read_slurm_queue
from sched_lab.fleet.replay.worth import with_worth
from sched_lab.lab.frames import sha256
from sched_lab.lab.sweeps import grid

from .months import OPENB
from .reproduction import STORED, Experiment, Workplace
from .yardstick import ITP

__all__ = ['ANSWERS', 'TRACES']

OURS = STORED.parent  # holds the recorded run of 2,000 jobs
SIZE_TO = "80%"  # the mean demand, of the GPUs of a trace that names no nodes
ITP_COLUMNS = {"name": "job_id", "submit_s": "submission_time", "num_gpus": "num_gpu",
               "duration_s": "duration"}


class Trace(NamedTuple):
    """Where a trace is.

    Parameters
    ----------
    tasks, nodes : files below a data folder; without nodes, so many alike that the mean demand is
        `SIZE_TO` of their GPUs
    columns : of a table without a format of its own, by their meaning
    """

    tasks: str
    nodes: str = ""
    columns: Mapping[str, str] = {}


TRACES = {
    "openb": Trace(OPENB[1], OPENB[0]),
    "Slurm, 2,000 jobs": Trace("slurm/jobs.txt.gz", "slurm/slurm.conf"),
    "Slurm, 700 jobs": Trace("slurm/live/jobs.txt", "slurm/live/slurm.conf"),
    "Alibaba 2025": Trace("alibaba_v2025/disaggregated_DLRM_trace.csv"),
    "Philly": Trace("philly/philly.csv"),
    **{f"ITP {one}": Trace(f"itp/cluster{one}.csv", "", ITP_COLUMNS) for one in ITP},
    "Alibaba 2026 spot": Trace("samples/alibaba_v2026_spot_jobs.csv",
                               "alibaba_v2026_spot/node_info_df.csv"),
    "PAI 2020": Trace("samples/pai_v2020_task.csv"),
    "Helios": Trace("samples/helios.csv"),
    "Acme Seren": Trace("samples/acme_seren.csv"), "Acme Kalos": Trace("samples/acme_kalos.csv")}
FOUND = ("replayed", "recorded_mean_wait_s", "mean_wait_s", "gpus_apart_share", "misfit",
         "objective", "lever", "before", "change", "low", "high", "no_interval", "worth_gpus",
         "lacks")
OWN = ("slurm/jobs.txt.gz", "slurm/slurm.conf")
FILES = tuple(dict.fromkeys(
    file for trace in TRACES.values() for file in trace[:2] if file))


def read_trace(trace: Trace, files: Mapping[str, str]) -> tuple[Problem, SlurmQueue]:
    """Cluster and tasks of a trace, and the queue of its Slurm if it has one.

    Parameters
    ----------
    trace, files : the trace, and the path of each file
    """
    tables = read_files("csv" if trace.columns else "auto", [files[trace.tasks]],
                        ReadOptions(trace.columns),
                        nodes=[files[trace.nodes]] if trace.nodes else (),
                        size_to="" if trace.nodes else SIZE_TO)
    queue = SlurmQueue()
    if trace.nodes.endswith("slurm.conf"):
        queue = read_slurm_queue(files[trace.nodes])
    return problem_of(as_in_the_past(tables)), queue


def answer_cell(files: Mapping[str, str], trace: str) -> dict[str, Any]:
    """A row: fidelity, largest lever, what it brings, its worth; or what is lacking."""
    problem, queue = read_trace(TRACES[trace], files)
    jobs = len(problem.submit_s) if problem.job is None else len(np.unique(problem.job))
    span_s = float(np.ptp(problem.submit_s)) if jobs else 0.0
    row: dict[str, Any] = {"jobs": jobs, "gpus": int(problem.cluster.num_gpus.sum()),
                           "days": span_s / 86_400, **dict.fromkeys(FOUND, np.nan)}
    has_record = record_of(problem) is not None
    asked = Question(fit=has_record and jobs >= FEWEST_TASKS, slurm=queue)
    if jobs < FEWEST_TASKS:
        return row | {"lacks": "a sample of few jobs"}
    answer = with_worth(compare(problem, asked), asked)
    levers = answer.levers
    row |= {"replayed": f"{levers['choice'].iloc[0]}, {answer.about['backfill']}"}
    if len(found := judged(answer.fidelity)):
        row |= found.iloc[0][["recorded_mean_wait_s", "mean_wait_s", "gpus_apart_share", "misfit"]]
    if not is_believed(answer.fidelity):
        return row | {"lacks": "the replay does not explain the record"}
    objective = objective_of(levers)
    best = best_lever(levers, objective)
    row |= {"objective": objective, "before": levers[AMOUNTS[objective]].iloc[0],
            "lacks": "" if has_record else "starts are not recorded"}
    if best is None:
        return row | {"lever": "none"}
    change = change_in(best, levers.iloc[0], objective)
    return row | {"lever": said_of(best), "change": change.value, "low": change.low,
                  "high": change.high, "no_interval": change.why, "worth_gpus": best["worth_gpus"]}


def answers(place: Workplace) -> Mapping[str, pd.DataFrame]:
    """A row for each trace."""
    files = {name: str(OURS / name if name in OWN else place.data(name)) for name in FILES}
    frame = place.sweep(partial(answer_cell, files), grid(trace=list(TRACES)), "answers",
                        depends_on={name: sha256(path) for name, path in files.items()})
    return {"fleet/answers.csv": frame.round(6)}


ANSWERS: dict[str, Experiment] = {"answers": Experiment(
    "answers", "what the page of a replay says first, for every trace with times",
    ("fleet/answers.csv",), 20.0, {"traces": list(TRACES), "size_to": SIZE_TO}, answers,
    needs=tuple(name for name in FILES if name not in OWN))}
