"""Write data/results/traces/*.csv: what the chapters say about the public trace, counted in it.

python tools/trace_statistics.py [--data FOLDER]     needs the trace: sched-lab fetch openb
"""
import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from sched_lab.cluster import describe_nodes, read_nodes
from sched_lab.frames import sha256, write_frame
from sched_lab.traces import OPENB_FILES, find_data, read_tasks, task_classes, task_statistics

FOLDER = Path(__file__).resolve().parents[1] / "data" / "results" / "traces"
NODE_LISTS = ["gpu_node", "all_node"]
TRACES = ["default", *(f"gpushare{x}" for x in (40, 60, 80, 100)), *(f"gpuspec{x}" for x in (10, 20, 25, 33)),
          *(f"multigpu{x}" for x in (20, 30, 40, 50))]


def summary(trace: str, path: Path) -> dict[str, object]:
    """One row about one trace; demands in GPUs."""
    tasks = read_tasks(path)
    demand = tasks.gpu_demand_milli
    return {"trace": trace, "tasks": len(tasks), "gpu_tasks": int((tasks.num_gpus > 0).sum()),
            "classes": len(task_classes(tasks)[0]), "gpu_demand": demand.sum() / 1000,
            "sharing_demand": demand[tasks.gpu_milli < 1000].sum() / 1000,
            "whole_gpu_demand": demand[tasks.gpu_milli == 1000].sum() / 1000,
            "multi_gpu_demand": demand[tasks.num_gpus > 1].sum() / 1000,
            "constrained_tasks": int((tasks.gpu_spec != "").sum())}


def main(data: str | None = None, folder: Path = FOLDER) -> None:
    """Count, and write four frames with their sidecars."""
    files = {name: find_data(f"openb/{name}", data) for name in OPENB_FILES}
    absent = [name for name, path in files.items() if path is None]
    if absent:
        raise SystemExit(f"{absent[0]} is not here; run: sched-lab fetch openb")

    def write(name: str, frame: pd.DataFrame, sources: list[str]) -> None:
        inputs = {source: sha256(files[source]) for source in sources}
        print(write_frame(frame, folder / name, {"command": "python tools/trace_statistics.py", "files": inputs}))

    default = "openb_pod_list_default.csv"
    tasks = read_tasks(files[default])
    write("default_statistics.csv", task_statistics(tasks), [default])
    count = task_classes(tasks)[0].count
    write("default_popularity.csv", pd.DataFrame({"classes": np.arange(1, len(count) + 1),
                                                  "share_of_tasks": count.cumsum() / len(tasks)}), [default])
    lists = {part: f"openb_node_list_{part}.csv" for part in NODE_LISTS}
    write("openb_nodes.csv", pd.concat([describe_nodes(read_nodes(files[name])).assign(list=part)
                                        for part, name in lists.items()]), [*lists.values()])
    pods = {trace: f"openb_pod_list_{trace}.csv" for trace in TRACES}
    write("traces.csv", pd.DataFrame([summary(trace, files[name]) for trace, name in pods.items()]), [*pods.values()])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="data folder that holds openb/")
    main(parser.parse_args().data)
