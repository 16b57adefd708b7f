"""Write the embedded default data from its generators: nodes.csv, tasks.csv, hadar_throughputs.csv of data/embedded.

python tools/make_embedded.py
"""
from pathlib import Path

from sched_lab.lab.frames import write_bytes
from studies.embedded import generate_nodes, generate_tasks, synthetic_throughputs

FOLDER = Path(__file__).resolve().parents[1] / "data" / "embedded"


def embedded_files() -> dict[str, bytes]:
    """Content of each generated file, by name."""
    tables = {"nodes.csv": generate_nodes(), "tasks.csv": generate_tasks(),
              "hadar_throughputs.csv": synthetic_throughputs()}
    return {name: table.to_csv(index=False, lineterminator="\n").encode() for name, table in tables.items()}


if __name__ == "__main__":
    for name, data in embedded_files().items():
        print(write_bytes(data, FOLDER / name).relative_to(FOLDER.parents[1]), len(data), "bytes")
