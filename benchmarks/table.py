"""The tables "before and after" of the README: measure two checkouts, keep the rows, write the tables from them.

    git worktree add ../before dcfae0c
    python benchmarks/table.py ../before .                    # everything, on two quiet processors
    python benchmarks/table.py ../before . --part speed --only hadar
    python benchmarks/table.py                                # the README again from the stored frames

Parts: `speed` (subjects of compare.py), `commands` (first and later starts), `install` (size and packages; needs a
package index), `evaluation` (the 1,430 runs; needs the traces). A row is kept in `benchmarks/frames` as soon as it is
measured, and replaces the one of the same name.
"""
from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import compare
import starts

Row = dict[str, Any]
HERE = Path(__file__).parent
FRAMES = HERE / "frames"
README = HERE / "README.md"
KEYS = {"speed": ("subject", "size"), "commands": ("command", "input", "state"), "install": ("extra",),
        "evaluation": ("arithmetic",)}


def stored(part: str) -> list[Row]:
    """Rows of a part that have been kept."""
    path = FRAMES / f"{part}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def keep(part: str, rows: Iterable[Row]) -> None:
    """Put rows in the place of those of the same name, one by one."""
    FRAMES.mkdir(exist_ok=True)
    known = {tuple(row[key] for key in KEYS[part]): row for row in stored(part)}
    for row in rows:
        known[tuple(str(row[key]) for key in KEYS[part])] = row
        print(*(f"{name}={short(value)}" for name, value in row.items()), flush=True)
        with (FRAMES / f"{part}.csv").open("w", newline="", encoding="utf-8") as file:
            names = list(dict.fromkeys(name for each in known.values() for name in each))
            writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows({name: short(value) for name, value in each.items()} for each in known.values())


def short(value: Any) -> Any:
    """Round a number to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else value


def speed_rows(before: Path, after: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Rows of all subjects whose name begins as asked for."""
    for name in compare.SUBJECTS:
        if name.startswith(options.only):
            yield from compare.rows_of(name, before, after, options)


# --- Markdown


def number(text: Any) -> float:
    """Read a cell as a number; not a number if it is empty."""
    return float(text) if text not in ("", None) else math.nan


def in_s(seconds: Any) -> str:
    """Seconds in words, two digits or three; a dash for what is not known."""
    value = number(seconds)
    if math.isnan(value):
        return "-"
    return f"{1000 * value:.2g} ms" if value < 0.1 else f"{value:.3g} s"


def rounded(value: Any, unit: str = "") -> str:
    """Write a whole number, or a dash."""
    value = number(value)
    return "-" if math.isnan(value) else f"{value:,.0f}{unit}"


def ratio(row: Row, what: str) -> str:
    """How often after goes into before, or a dash."""
    value = number(row[f"before_{what}"]) / number(row[f"after_{what}"])
    return "-" if math.isnan(value) else f"{value:.1f}"


def table(head: list[str], lines: Iterable[list[str]]) -> str:
    """Write a table in Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def speed_table() -> str:
    """Processor time and memory of the subjects, and how they grow."""
    rows = stored("speed")
    first = table(["subject", "size", "before", "after", "ratio", "peak memory after", "equal"], (
        [row["subject"], f"{int(row['size']):,} {row['counts']}", in_s(row["before_s"]), in_s(row["after_s"]),
         ratio(row, "s"), rounded(row["after_mib"], " MiB"),
         "-" if math.isnan(number(row["before_s"])) else "yes" if row["is_equal"] == "True" else "no"] for row in rows))
    last = {row["subject"]: row for row in rows}
    powers = table(["time grows with the size to the power", "before", "after"], (
        [name, row["before_exponent"], row["after_exponent"]] for name, row in last.items()))
    return f"{first}\n\n{powers}"


def commands_table() -> str:
    """Wall-clock time of commands; processor time in brackets."""
    def cell(row: Row, word: str) -> str:
        return f"{in_s(row[f'{word}_wall_s'])} ({in_s(row[f'{word}_cpu_s'])})"

    return table(["command", "input", "state", "before", "after", "ratio", "peak memory after"], (
        [row["command"], row["input"], row["state"], cell(row, "before"), cell(row, "after"), ratio(row, "wall_s"),
         rounded(row["after_mib"], " MiB")] for row in stored("commands")))


def install_table() -> str:
    """Size and packages of a fresh environment."""
    return table(["installed", "before", "after"], (
        [row["extra"], *(f"{rounded(row[f'{word}_mb'], ' MB')}, {rounded(row[f'{word}_packages'])} packages"
                         for word in ("before", "after"))] for row in stored("install")))


def evaluation_table() -> str:
    """Write the 1,430 runs."""
    return table(["1,430 runs", "before", "after", "ratio", "peak memory after"], (
        [row["arithmetic"], in_s(row["before_wall_s"]), in_s(row["after_wall_s"]), ratio(row, "wall_s"),
         rounded(row["after_mib"], " MiB")] for row in stored("evaluation")))


TABLES = {"speed": speed_table, "commands": commands_table, "install": install_table, "evaluation": evaluation_table}


def write_tables() -> None:
    """Put the tables between their marks in the README; those without rows stay as they are.

    Raises
    ------
    ValueError : the README lacks a mark
    """
    text = README.read_text(encoding="utf-8")
    for part, made in TABLES.items():
        begin, end = f"<!-- {part} -->\n", f"\n<!-- end of {part} -->"
        if begin not in text or end not in text:
            raise ValueError(f"{README} lacks {begin.strip()} or {end.strip()}")
        if stored(part):
            head, _, rest = text.partition(begin)
            text = f"{head}{begin}{made()}{end}{rest.partition(end)[2]}"
    README.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, nargs="?")
    parser.add_argument("after", type=Path, nargs="?", default=HERE.parent)
    parser.add_argument("--part", choices=KEYS, action="append", help="one of them, or several times; all if not given")
    parser.add_argument("--only", default="", help="rows whose name begins so")
    parser.add_argument("--rounds", type=int, default=2, help="processes of each checkout for a row; the best counts")
    parser.add_argument("--repeats", type=int, default=5, help="calls in each process of `speed`, after the first")
    parser.add_argument("--limit", type=float, default=120, help="seconds for one process of `speed`")
    options = parser.parse_args()
    if options.before is not None:
        both = {"before": options.before.resolve(), "after": options.after.resolve()}
        if not all((checkout / "sched_lab").is_dir() for checkout in both.values()):
            sys.exit(f"no package sched_lab in {both['before']} or in {both['after']}")
        for part in options.part or KEYS:
            keep(part, {"speed": lambda: speed_rows(*both.values(), options),
                        "commands": lambda: starts.command_rows(both, options.rounds, options.only),
                        "install": lambda: starts.install_rows(both, options.only),
                        "evaluation": lambda: starts.evaluation_rows(both, options.only)}[part]())
    write_tables()


if __name__ == "__main__":
    main()
