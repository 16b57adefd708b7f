"""`sched-lab hardware` shows the catalogue: watts, memory, instances, and who says so; and it prints what a file of one's own starts from."""

# A module, written by hand.

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import __version__
from .hardware import CpuModel, GpuModel, Hardware, MigTable, Watts, hardware_of
from .lab.commands import Force, HardwareFile, NoCharts, answer_with, folder_option, option
from .lab.frames import InputError, sha256

if TYPE_CHECKING:
    from sched_lab.calibration_report import CalibrationReport

__all__ = ['hardware_command', 'calibrate_command']


def said(watts: Watts) -> str:
    """Watts with their range, if there is one: `70 (68-73)`."""
    is_range = watts.low < watts.high
    return f"{watts.value}{f' ({watts.low}-{watts.high})' if is_range else ''}"


def aligned(rows: list[list[str]]) -> Iterator[str]:
    """Rows as lines, columns below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def lines_of_all(hardware: Hardware) -> list[str]:
    """The catalogue as two tables."""
    gpus = [["GPU", "idle W", "full W", "MiB", "cut as"], *(
        [one.name, said(one.idle_w), said(one.full_w), str(one.memory_mib or "?"),
         one.mig.name if one.mig else ""]
        for one in hardware.gpus.values())]
    cpus = [["CPU package", "idle W", "full W", "cores"], *(
        [one.name, said(one.idle_w), said(one.full_w), str(one.cores)]
        for one in hardware.cpus.values())]
    return [*aligned(gpus), "", *aligned(cpus)]


Entry = GpuModel | CpuModel


def sources_of(hardware: Hardware, entry: Entry) -> Iterator[tuple[str, str]]:
    """Cells of a model and of what it can be cut into, with where they come from."""
    tables: list[GpuModel | CpuModel | MigTable] = [entry]
    if isinstance(entry, GpuModel) and entry.mig:
        tables.append(entry.mig)
    for table in tables:
        of_instances = "instances: " if isinstance(table, MigTable) else ""
        for cell in table.sources:
            yield of_instances + cell, hardware.source_of(table, cell)


def lines_of_one(hardware: Hardware, entry: Entry) -> list[str]:
    """All of a model: numbers, instances, and sources."""
    lines = [entry.name, f"  idle {said(entry.idle_w)} W, full {said(entry.full_w)} W"]
    if isinstance(entry, CpuModel):
        lines.append(f"  {entry.cores} cores")
    else:
        lines += [f"  memory {entry.memory_mib or 'unknown'} MiB",
                  f"  also called {', '.join(entry.aliases) or 'nothing else'}"]
    if isinstance(entry, GpuModel) and entry.profiles:
        rows = [["profile", "compute", "memory", "MiB", "starts", "most"]]
        rows += [[one.name, str(one.compute_slices), str(one.memory_slices), str(one.memory_mib),
                  ",".join(map(str, one.starts)), str(one.most)] for one in entry.profiles]
        lines += ["", *(f"  {line}" for line in aligned(rows))]
    told = [[cell, text] for cell, text in sources_of(hardware, entry)]
    return [*lines, "", *(f"  {line}" for line in aligned(told))] if told else lines


def as_data(hardware: Hardware, entry: Entry) -> dict[str, Any]:
    """A model for a program, its sources in words."""
    data: dict[str, Any] = {"kind": "gpu" if isinstance(entry, GpuModel) else "cpu",
                            "name": entry.name, "idle_w": entry.idle_w._asdict(),
                            "full_w": entry.full_w._asdict()}
    if isinstance(entry, CpuModel):
        data["cores"] = entry.cores
    else:
        data |= {"memory_mib": entry.memory_mib, "aliases": entry.aliases,
                 "mig": entry.mig.name if entry.mig else "", "load_curve": entry.load_curve,
                 "profiles": list(map(vars, entry.profiles))}
    return data | {"sources": dict(sources_of(hardware, entry))}


def toml_of(entry: Entry) -> str:
    """Lines of a file that says of a model what the catalogue says."""
    kind = "gpu" if isinstance(entry, GpuModel) else "cpu"
    lines = [f"[{kind}.{json.dumps(entry.name)}]", f"idle_w = {list(entry.idle_w)}",
             f"full_w = {list(entry.full_w)}"]
    if isinstance(entry, CpuModel):
        lines.append(f"cores = {entry.cores}")
    else:
        lines += [f"aliases = {json.dumps(entry.aliases)}", f"memory_mib = {entry.memory_mib}"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in
                  (("mig", entry.mig and entry.mig.name), ("load_curve", entry.load_curve)) if value]
    lines += [f"sources.{cell} = {json.dumps(keys.split(', '))}"
              for cell, keys in entry.sources.items()]
    return "\n".join(lines)


ModelName = Annotated[str, typer.Argument(
    metavar="[MODEL]", help="A model by its name, or as a label of your cluster has it; without "
    "any, all of them.")]
AsJson = Annotated[bool, option("Print JSON, with sources.", "--json")]
AsToml = Annotated[bool, option("Print the lines of a file for --hardware, to start from.",
                                "--toml")]


def hardware_command(model: ModelName = "", as_json: AsJson = False, as_toml: AsToml = False,
                     hardware: HardwareFile = None) -> None:
    """Show what is known of GPUs, CPU packages and MIG instances, and who says so.

    Without a model, two tables: idle and full watts with the range of what sources say, memory, and
    what a GPU can be cut into. With a model, all of it: names, instances with the places where they
    may begin, and a source for every number.

    Example: sched-lab hardware "H100 PCIe"
    """
    if as_json and as_toml:
        raise InputError("--json and --toml are two forms of the same", mend="give one of them")
    known = hardware_of(hardware)
    entries: list[GpuModel | CpuModel] = [
        known.cpus.get(model) or known.gpu(model)] if model.strip() else [
        *known.gpus.values(), *known.cpus.values()]
    if as_json:
        data = [as_data(known, entry) for entry in entries]
        typer.echo(json.dumps(data[0] if model.strip() else data, indent=1, ensure_ascii=False))
    elif as_toml:
        typer.echo("\n\n".join(map(toml_of, entries)))
    else:
        lines = lines_of_one(known, entries[0]) if model.strip() else lines_of_all(known)
        typer.echo("\n".join(lines))


Recorded = Annotated[list[str], typer.Argument(
    metavar="FILE...", help="Answers of Prometheus to query_range (JSON), or tables with the "
    "columns time, gpu, model, power_w, utilisation_percent (CSV).")]
OneModel = Annotated[str, option("Only this model; a GPU whose model nobody says is one of it.",
                                 "--model", metavar="NAME")]
Calibrated = Annotated[Path, folder_option(
    "calibration.csv, residuals.csv, hardware.toml, summary.json, calibration.svg, report.html")]


def calibrate_command(files: Recorded, out: Calibrated, model: OneModel = "", force: Force = False,
                      no_charts: NoCharts = False) -> None:
    """Fit idle and full watts and the load curve of GPUs to a recording of DCGM's exporter.

    **hardware.toml** is a file for --hardware; **calibration.csv** has a row for each model,
    **residuals.csv** one for each bin of load. What too few readings say stays as the catalogue
    has it, and the result says so.

    Example: sched-lab calibrate power.json load.json --out calibrated
    """
    from sched_lab.calibration import fit_model
    from sched_lab.calibration_report import CHARTS, HARDWARE, TABLES, report_of_fits
    from sched_lab.lab.reports import PAGE, Answer
    from sched_lab.recording import read_recording

    asked = {"model": model, "files": {name: sha256(name) for name in files},
             "sched_lab": __version__}

    def compute() -> CalibrationReport:
        recording = read_recording(files, model.strip())
        fits = [fit_model(str(name), points) for name, points in recording.points.groupby("model")]
        return report_of_fits(fits, recording.dropped)

    answer_with(Answer("calibrate", asked, (*TABLES, HARDWARE), (*CHARTS, PAGE)), out, compute,
                force=force, no_charts=no_charts)
