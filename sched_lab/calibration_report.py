"""What `sched-lab calibrate` writes: residuals of the fits, a file for `--hardware`, a chart, and the result in a sentence."""

# A module, written by hand.

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from .calibration import Fit, binned, drawn
from .hardware import Watts, default_hardware
from .lab.frames import Later
from .lab.reports import Report

if TYPE_CHECKING:
    import altair as alt
else:
    alt = Later("altair")

__all__ = ['calibration_chart', 'report_of_fits', 'residuals_of', 'toml_of_fit']

TABLES = ("calibration.csv", "residuals.csv")
HARDWARE = "hardware.toml"
CHARTS = ("calibration.svg",)
MEANINGS = {
    "calibration": "What was recorded, what was fitted, and what the catalogue says",
    "calibration.csv": "a row for each model", "residuals.csv": "a row for each bin of load",
    "points": "readings that were used", "dropped_readings": "readings that were left out",
    "rmse_w": "root of the mean square of what was recorded less what the curve says, W",
    "catalogue_rmse_w": "the same for the catalogue's numbers, W", "load": "mean load in the bin",
    "median_w": "median of what was recorded, W", "fitted_w": "what the curve says, W",
    "mean_w": "mean of what was recorded less what the curve says, W",
    "load_curve": "knots load:share, joined by straight lines",
    "not_fitted": "what too few points say, and what stands in"}


@dataclass(frozen=True)
class CalibrationReport(Report):
    """What GPUs of each model draw, as recorded."""

    question: ClassVar[str] = "What do these GPUs draw?"
    meanings: ClassVar[Mapping[str, str]] = MEANINGS

    def answer(self) -> list[str]:
        """The result, what was not fitted, and what was left out."""
        dropped = [f"{count} readings were left out: {why}."
                   for why, count in self.summary["dropped"].items()]
        kept = [f"{model}: {words}." for model, some in self.summary["not_fitted"].items()
                for words in some]
        return [f"{self.headline}.", *kept, *dropped]


def report_of_fits(fits: Sequence[Fit], dropped: Mapping[str, int]) -> CalibrationReport:
    """Report of a calibration.

    Parameters
    ----------
    fits : of each model
    dropped : readings that were left out, by the reason
    """
    table = pd.DataFrame([row_of(fit) for fit in fits])
    residuals = pd.concat([residuals_of(fit) for fit in fits], ignore_index=True)
    said = [{name: None if value != value else value for name, value in row.items()}
            for row in table.round(3).to_dict("records")]
    summary = {"models": said, "points": int(table["points"].sum()),
               "dropped_readings": sum(dropped.values()), "dropped": dict(dropped),
               "not_fitted": {fit.model: list(fit.kept) for fit in fits if fit.kept}}
    words = "; ".join(
        f"{fit.model}: " + (f"idle {fit.idle_w.value} W, full {fit.full_w.value} W, within "
                            f"{row['rmse_w']:.1f} W" if fit.idle_w and fit.full_w
                            else "cannot be fitted")
        + (", not all of it fitted" if fit.kept and fit.idle_w else "")
        for fit, row in zip(fits, said, strict=True))
    tables = dict(zip(TABLES, (table.round(3), residuals.round(3)), strict=True))
    return CalibrationReport(summary, tables, {CHARTS[0]: partial(calibration_chart, fits)}, words,
                             texts={HARDWARE: "\n".join(map(toml_of_fit, fits))})


def row_of(fit: Fit) -> dict[str, Any]:
    """A model in a row."""
    row: dict[str, Any] = {"model": fit.model, "points": len(fit.points)}
    for name, watts in (("idle_w", fit.idle_w), ("full_w", fit.full_w)):
        for part in Watts._fields:
            row[f"{name}_{part}"] = math.nan if watts is None else getattr(watts, part)
    load, power_w = fit.points["load"], fit.points["power_w"]
    return row | {"load_curve": fit.load_curve, "rmse_w": rmse(power_w - fit.watts(load)),
                  "catalogue_rmse_w": rmse(power_w - catalogue_watts(fit.model, load)),
                  "not_fitted": "; ".join(fit.kept)}


def residuals_of(fit: Fit) -> pd.DataFrame:
    """A row for each bin of load: its points, and how far they lie from the fit and the catalogue."""
    load, power_w = fit.points["load"], fit.points["power_w"]
    points = fit.points.assign(difference_w=power_w - fit.watts(load),
                               catalogue_w=power_w - catalogue_watts(fit.model, load))
    bins = binned(points, mean_w=("difference_w", np.mean), rmse_w=("difference_w", rmse),
                  catalogue_rmse_w=("catalogue_w", rmse)).reset_index(drop=True)
    columns = ("model", "load", "points", "median_w", "fitted_w", "mean_w", "rmse_w",
               "catalogue_rmse_w")
    table = bins.assign(model=fit.model, fitted_w=fit.watts(bins["load"]))
    return pd.DataFrame({name: table[name] for name in columns})


def rmse(differences: Any) -> float:
    """Root of the mean square."""
    return float(np.sqrt(np.mean(np.square(differences))))


def catalogue_watts(model: str, load: Any) -> Any:
    """Watts that commands compute with when nobody says otherwise; NaN for an unknown model."""
    entry = default_hardware().gpus.get(model)
    if entry is None:
        return np.full(np.shape(load), np.nan)
    return drawn(entry.idle_w.value, entry.full_w.value, entry.load_curve or "step", load)


def toml_of_fit(fit: Fit) -> str:
    """Lines of a file for `--hardware`."""
    comments = "".join(f"# {words}\n" for words in fit.kept)
    if fit.idle_w is None or fit.full_w is None:
        return f"# {json.dumps(fit.model)} is left out\n{comments}"
    source = json.dumps(f"{len(fit.points)} readings, sched-lab calibrate")
    cells = ("idle_w", "full_w", "load_curve")
    said = [cell for cell, word in zip(cells, ("idle", "full", "the load curve"), strict=True)
            if not any(words.startswith(f"{word} is not") for words in fit.kept)]
    values = {"idle_w": list(fit.idle_w), "full_w": list(fit.full_w),
              "load_curve": json.dumps(fit.load_curve)}
    lines = [f"[gpu.{json.dumps(fit.model, ensure_ascii=False)}]",
             *(f"{cell} = {values[cell]}" for cell in cells)]
    lines += [f"sources.{cell} = {source}" for cell in said]
    option = f"# commands take the curve as --load-curve {fit.load_curve}\n"
    return comments + option + "\n".join(lines) + "\n"


def calibration_chart(fits: Sequence[Fit]) -> alt.TopLevelMixin:
    """Medians of the bins, the fitted curve and the catalogue's, a picture for each model."""
    colour = alt.Color("line:N", title=None, scale=alt.Scale(domain=["fitted", "catalogue"],
                                                            range=["#0072B2", "#9A9A9A"]))
    x = alt.X("load:Q", axis=alt.Axis(format="%"), title="utilisation")
    load = np.arange(0, 1001, 5) / 1000
    pictures = []
    for fit in fits:
        curves = pd.concat(
            pd.DataFrame({"model": fit.model, "line": line, "load": load, "watts": watts})
            for line, watts in (("fitted", fit.watts(load)),
                                ("catalogue", catalogue_watts(fit.model, load)))).dropna()
        lines = alt.Chart(curves).mark_line().encode(
            x=x, y=alt.Y("watts:Q", title="watts"), color=colour)
        dots = alt.Chart(residuals_of(fit)).mark_point(filled=True, color="#D55E00", opacity=1)
        both = lines + dots.encode(x=x, y="median_w:Q", size=alt.Size("points:Q", title="points"))
        words = (f"{fit.idle_w.value:.0f} W idle, {fit.full_w.value:.0f} W full"
                 if fit.idle_w and fit.full_w else "too few points for a fit")
        pictures.append(both.properties(title=f"{fit.model}: {words}", width=420, height=240))
    return alt.vconcat(*pictures)
