"""Search for batches that FAR does badly, for the chapter on its proofs: data/results/far/ratios.csv.

python tools/far_ratios.py

Everything is generated and exact: hill climbing from seeded random batches, each against its proved optimum, without
reconfiguration. One core takes a few minutes.
"""
from __future__ import annotations

from itertools import product
from pathlib import Path

import pandas as pd

from sched_lab.far.mig import mig_of
from sched_lab.far.proofs import proved_factor, worst_ratio
from sched_lab.frames import write_frame

ROOT = Path(__file__).resolve().parents[1]
MODELS, GPUS, TASKS, ROUNDS, STARTS = ("A30", "A100", "H100"), (1, 2), (2, 3, 4, 5), 3000, 5
VERSION = 1  # raised when a change of the package changes these results


def cell(model: str, num_gpus: int, num_tasks: int) -> dict[str, str | int | float]:
    """Run one search."""
    mig, seed = mig_of(model, num_gpus), [MODELS.index(model), num_gpus, num_tasks]
    worst = worst_ratio(mig, num_tasks, seed, ROUNDS, starts=STARTS)
    return {"model": model, "num_gpus": num_gpus, "num_tasks": num_tasks, "batches": ROUNDS,
            "worst_ratio": worst.ratio, "proved_factor": proved_factor(mig)}


def compute() -> Path:
    """Run all searches, check that none contradicts a proof, and write the frame."""
    frame = pd.DataFrame([cell(*names) for names in product(MODELS, GPUS, TASKS)])
    assert (frame["worst_ratio"] <= frame["proved_factor"] + 1e-9).all()
    return write_frame(frame.round(6), ROOT / "data" / "results" / "far" / "ratios.csv",
                       {"made by": "tools/far_ratios.py", "version": VERSION, "rounds": ROUNDS, "starts": STARTS,
                        "seed": "position of the model, number of GPUs, number of tasks"})


if __name__ == "__main__":
    print(compute().relative_to(ROOT))
