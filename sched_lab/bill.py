"""What the energy of a schedule costs and emits: prices and intensities as numbers or files, and the bill with its assumptions."""

# A module, written by hand.

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from .cluster import Cluster
from .holdings import Holdings
from .lab.frames import Column, InputError, iso_moment, read_table
from .meter import NodeWatts, Rate, amounts_in, meter, with_edges
from .power import Power

__all__ = ['Bill', 'Tariff', 'bill_of', 'tariff_of']

LARGEST_RATE = 1e6  # EUR or g per kWh
LATEST_S = 1e12  # 30,000 years
OUTSIDE = "Memory, storage, network, cooling and power supplies are left out."


class Tariff(NamedTuple):
    """What energy costs and emits, and whose numbers these are.

    Parameters
    ----------
    price : EUR/kWh
    carbon : g/kWh of CO2
    words : both in a sentence
    """

    price: Rate
    carbon: Rate
    words: str


class Known(NamedTuple):
    """A rate that holds where nobody gives another: its value, its unit, and where it is from.

    There is none below `least`: power is paid for to be taken at times, but nothing takes CO2 back.
    """

    value: float
    unit: str
    source: str
    least: float


KNOWN_RATES = {
    "--price": Known(0.17168313, "EUR/kWh", "the price of ANDREAS' authors", -LARGEST_RATE),
    "--carbon": Known(214.0, "g of CO2 per kWh", "EU-27 in 2023, European Environment Agency", 0.0)}


def tariff_of(price: str = "", carbon: str = "", zero: str | None = None,
              horizon: tuple[float, float] = (0.0, 0.0)) -> Tariff:
    """Price and intensity of energy as options give them.

    Parameters
    ----------
    price, carbon : a number, or a CSV file with the columns time and value; empty for the default
    zero : ISO time of second 0, if the cluster has dates
    horizon : begin and end of what is to be billed, seconds; a file has to cover it

    Raises
    ------
    InputError : neither a number nor a file, or a series that does not cover the horizon
    """
    costs, price_words = rate_of(price, "--price", zero, horizon)
    emits, carbon_words = rate_of(carbon, "--carbon", zero, horizon)
    return Tariff(costs, emits, f"Energy costs {price_words}, and emits {carbon_words}.")


def rate_of(given: str, option: str, zero: str | None,
            horizon: tuple[float, float]) -> tuple[Rate, str]:
    """A number or a file, checked to say something of all of a horizon, and what it is in words.

    Parameters
    ----------
    given, option : what an option says, empty for the default, and its name
    zero : ISO time of second 0, if the cluster has dates
    horizon : begin and end, seconds

    Raises
    ------
    InputError : it is neither, or the series does not cover the horizon
    """
    known = KNOWN_RATES[option]
    try:
        number = float(given or known.value)
    except ValueError:
        rate = read_rates(given, zero, known.least)
        words = f"the {known.unit} of {Path(given).name}"
    else:
        if not known.least <= number <= LARGEST_RATE:
            raise InputError(f"{option} {given} is not a number that can be paid",
                             mend=f"give a number from {known.least:,.0f} to {LARGEST_RATE:,.0f}, or "
                             "a file")
        rate = Rate(np.array([-np.inf]), np.array([number]), np.inf)
        words = (f"{number:g} {known.unit}" if given else
                 f"{number:.4g} {known.unit} ({known.source})")
    check_cover(rate, horizon, given)
    return rate, words


def read_rates(path: str | Path, zero: str | None, least: float = -LARGEST_RATE) -> Rate:
    """A series from a CSV file with the columns time and value, none of which is below `least`.

    Raises
    ------
    InputError : naming file, row and column
    """
    table = read_table(path, {"time": Column("text"), "value": Column(
        "number", minimum=least, maximum=LARGEST_RATE)})
    since = [seconds_of(text, zero) for text in table["time"]]
    for row, text, now, before in zip(table.index, table["time"], since, [None, *since],
                                      strict=False):
        problem = ""
        if now is None or not abs(now) <= LATEST_S:
            problem = f"{text!r:.60} is neither a number of seconds nor a date"
        elif zero is None and is_date(text):
            problem = f"{text} is a date, and the cluster has no dates"
        elif before is not None and now <= before:
            problem = f"{text} is not after the row before"
        if problem:
            raise InputError(problem, file=path, row=int(row), column="time", value=text,
                             mend="give seconds from the start of the cluster's time, or dates "
                             "such as 2026-01-31T13:00Z, ascending")
    if len(since) < 2:
        raise InputError("there are fewer than two rows", file=path,
                         mend="give a number in place of the file if it never changes")
    times = np.array(since, float)
    return Rate(times, table["value"].to_numpy(float), 2 * times[-1] - times[-2])


def check_cover(rate: Rate, horizon: tuple[float, float], file: str | None = None) -> None:
    """Refuse a series that says nothing of a part of a horizon."""
    if rate.since_s[0] > horizon[0] or rate.until_s < horizon[1]:
        raise InputError(
            f"the series holds from {rate.since_s[0]:g} to {rate.until_s:g} s, and is needed "
            f"from {horizon[0]:g} to {horizon[1]:g} s", file=file, column="time",
            mend="add rows, or give a number in place of the file")


def seconds_of(text: str, zero: str | None) -> float | None:
    """Seconds since the zero of a number or a date; None if it is neither."""
    try:
        return float(text)
    except ValueError:
        pass
    moment, begin = iso_moment(text), iso_moment(zero or text)
    return (moment - begin).total_seconds() if moment and begin else None


def is_date(text: str) -> bool:
    """Whether a text is no number, and so may be a date."""
    try:
        return bool(np.isnan(float(text)))
    except ValueError:
        return True


class Bill(NamedTuple):
    """What a schedule draws, costs and emits.

    Parameters
    ----------
    energy_kwh : with all nodes on
    asleep_kwh : with empty nodes asleep; NaN if nobody asked
    energy_eur, co2_kg : of `energy_kwh`
    assumptions : which watts, what lies outside, price and intensity, in sentences
    """

    energy_kwh: float
    asleep_kwh: float
    energy_eur: float
    co2_kg: float
    assumptions: str

    def summary(self) -> dict[str, float | str]:
        """What a family's summary.json says of energy, under the names that all families use."""
        asleep = {} if np.isnan(self.asleep_kwh) else {"asleep_kwh": round(self.asleep_kwh, 6)}
        return {"energy_kwh": round(self.energy_kwh, 6), **asleep,
                "energy_eur": round(self.energy_eur, 6), "co2_kg": round(self.co2_kg, 6),
                "energy_assumptions": self.assumptions}


def bill_of(cluster: Cluster, holdings: Holdings, power: Power | NodeWatts, tariff: Tariff, *,
            horizon: tuple[float, float], words: str = "", **sleep: float) -> Bill:
    """Energy of a schedule, its cost and its CO2, and what they rest on.

    Parameters
    ----------
    cluster, holdings, power : as `meter` takes them
    tariff : price and intensity; they must hold for all of the horizon
    horizon : begin and end, seconds
    words : which watts, in a sentence, if there is more to say than `watts_in_words` does
    sleep : `asleep_after_s` and `asleep_w` of `meter`

    Raises
    ------
    InputError : as `meter`, and a tariff that does not cover the horizon
    """
    begin_s, end_s = horizon
    for rate in tariff[:2]:
        check_cover(rate, (begin_s, end_s))
    edges_s = with_edges(np.array([begin_s, end_s], float), list(tariff[:2]))
    fine = meter(cluster, holdings, power, edges_s, **sleep)
    is_asked = np.isfinite(sleep.get("asleep_after_s", np.inf))
    said = [words or watts_in_words(power), OUTSIDE if isinstance(power, Power) else "", tariff.words]
    if is_asked:
        said.append("Asleep, a node that has been empty for "
                    f"{sleep['asleep_after_s'] / 60:g} min draws {sleep.get('asleep_w', 0.0):g} W "
                    "until its next task.")
    else:
        fine = fine.drop(columns="asleep_w")
    return bill_of_curve(fine, tariff, " ".join(filter(None, said)))


def bill_of_curve(curve: pd.DataFrame, tariff: Tariff, words: str) -> Bill:
    """Bill of a power curve with an edge wherever the tariff changes, as `meter` gives it."""
    hours = (curve["end_s"] - curve["start_s"]).to_numpy() / 3600
    is_asked = "asleep_w" in curve
    return Bill(float(curve["power_w"].to_numpy() @ hours) / 1000,
                float(curve["asleep_w"].to_numpy() @ hours) / 1000 if is_asked else np.nan,
                float(amounts_in(curve, tariff.price).sum()),
                float(amounts_in(curve, tariff.carbon).sum()) / 1000, words)


def watts_in_words(power: Power | NodeWatts) -> str:
    """Which watts are counted, in a sentence."""
    if not isinstance(power, Power):
        return ("A node draws what was measured with so many of its GPUs in use; what was not "
                "measured is left out.")
    has_cpu = bool((power.cpu_full_w * power.cpu_milli).any())
    is_step = power.load_permille[1] == power.load_permille[-1]
    how = ("draw full watts in use and idle watts otherwise" if is_step else
           "draw between idle and full watts, by a load curve")
    return f"GPUs and CPUs {how}." if has_cpu else f"GPUs {how}; CPUs are left out."


def gpus_alone(power: Power) -> Power:
    """The same watts without those of CPUs, for clusters whose CPUs nobody knows."""
    none = np.zeros_like(power.cpu_idle_w)
    return power._replace(cpu_idle_w=none, cpu_full_w=none)
