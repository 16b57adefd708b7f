"""Dates have one reading a column, for all readers: what fits every row is taken, and where two readings fit, nothing is guessed."""

# A module, written by hand.

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...lab.frames import InputError, check_one_of, iso_moment
from .tables import (
    FIRST_EPOCH_S,
    LARGEST,
    Cells,
    Ledger,
    ReadOptions,
    Source,
    cells_in,
    plain_numbers,
)

__all__ = ['ORDERS', 'durations_in', 'seconds_in', 'seconds_of']

ORDERS = {"dmy": "day first", "mdy": "month first", "ymd": "year first"}
MONTHS = {name: number for number, name in enumerate(
    "jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
EPOCHS = ((1e17, 1e-9, "nanoseconds"), (1e14, 1e-6, "microseconds"), (1e11, 1e-3, "milliseconds"))

DAY_NAME = r"(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+)?"
DAY = r"(\d{1,4}|[a-z]{3,9})[\s\-/.,]+(\d{1,2}|[a-z]{3,9})[\s\-/.,]+(\d{1,4})"
CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2}(?:[.,]\d{1,9})?))?\s*([ap]m)?"
ZONE = r"\s*([+-]\d{2}(?::?\d{2})?|[a-z]{1,5})?"
DATE = re.compile(rf"{DAY_NAME}{DAY}(?:[t\s,:]+{CLOCK}{ZONE})?", re.I)
OF_CTIME = re.compile(rf"{DAY_NAME}([a-z]{{3,9}})\s+(\d{{1,2}})\s+([\d:.]+)(?:\s+([a-z]{{1,5}}))?"
                      r"\s+(\d{4})", re.I)
COMPACT = re.compile(r"(\d{4})(\d{2})(\d{2})(?:t?(\d{2})(\d{2})(\d{2}))?(z|[+-]\d{2}:?\d{2})?",
                     re.I)
ELAPSED = r"(?:(\d{1,6})(?:-|\s*days?,?\s+))?(?:(\d{1,9}):)?(\d{1,2}):(\d{2}(?:\.\d+)?)"


def seconds_of(text: str) -> float | None:
    """Seconds since 1970 of one date as Kubernetes writes it (RFC 3339); None if it is none."""
    moment = iso_moment(text)
    return None if moment is None else moment.timestamp()


def seconds_in(texts: pd.Series, source: Source, ledger: Ledger,
               options: ReadOptions = ReadOptions(), unit_s: float = 1) -> pd.Series:  # noqa: B008
    """Moments of a column: seconds since 1970 of dates, seconds of numbers and of `hh:mm:ss`.

    Parameters
    ----------
    texts : (n_rows,), indexed by row and named as the column; empty, `None` and the like are
        unknown
    source : the file
    ledger : what is noted: the order of day and month, the unit of large numbers, dates without a
        zone, dates that no clock showed, cells that are no date
    options : the zone of dates that have none, and the order of those that two readings fit
    unit_s : of the numbers; dates have none

    Raises
    ------
    InputError : the column has several formats, most of it is no date, or two readings fit
    """
    check_one_of(options.dates, ("", *ORDERS), "order of day, month and year")
    cells = cells_in(texts, source, ledger)
    numbers = plain_numbers(cells)
    found = compact_dates(cells, options.zone)
    is_no_number = numbers.isna() | numbers.isin([0, -1])
    if found is None and numbers.isna().any() and is_no_number.all():
        found = elapsed_or_dates(cells, options)
    elif found is None:
        found = epoch_seconds(cells, numbers, unit_s)
    is_beyond = found.abs() > LARGEST
    cells.note(is_beyond, "beyond 2**53 s, taken as unknown")
    return cells.column(found.where(~is_beyond))


def durations_in(texts: pd.Series, source: Source, ledger: Ledger, unit_s: float = 1) -> pd.Series:
    """Seconds of a column of durations: numbers of a unit, or `hh:mm:ss` and `d-hh:mm:ss`.

    Parameters
    ----------
    texts, source, ledger : as of `seconds_in`
    unit_s : of the numbers

    Raises
    ------
    InputError : some are numbers and some are not, or `mm:ss` cannot be told from `hh:mm`
    """
    cells = cells_in(texts, source, ledger)
    seconds = plain_numbers(cells) * unit_s
    if cells.texts.str.contains(":", regex=False).any():
        if seconds.notna().any():
            text = cells.texts[seconds.notna()].iloc[0]
            raise cells.error(text, f"{text!r:.60} is a number, and others are hh:mm:ss",
                              "give one format")
        seconds = elapsed_seconds(cells)
    cells.note(seconds.isna(), "not a finite number, taken as unknown")
    return cells.column(seconds)


def epoch_seconds(cells: Cells, numbers: pd.Series, unit_s: float) -> pd.Series:
    """Seconds of numbers; without a stated unit, large ones are thousandths of a second and less.

    Raises
    ------
    InputError : there are dates, or `hh:mm:ss`, beside the numbers
    """
    for text in cells.texts[numbers.isna()].unique():
        if date_of(text) or re.fullmatch(ELAPSED, text):
            raise cells.error(text, f"{text!r:.60} is a date or a time, and others are numbers",
                              "give one format")
    cells.note(numbers.isna(), "not a date, taken as unknown")
    least = numbers[numbers > 0].min()
    if unit_s == 1:
        unit_s, name = next(((size, name) for first, size, name in EPOCHS if least >= first),
                            (1, ""))
        if name:
            cells.note(numbers > 0, f"such large numbers are {name} since 1970")
    seconds = numbers * unit_s
    if least * unit_s >= FIRST_EPOCH_S:
        cells.note(numbers == 0, "0 among seconds since 1970, taken as unknown")
        seconds = seconds.where(numbers != 0)
    return seconds


def compact_dates(cells: Cells, zone: str) -> pd.Series | None:
    """Seconds of a column of `20240131` or `20240131100000`; None if it is none."""
    form = {8: "%Y%m%d", 14: "%Y%m%d%H%M%S"}.get(len(cells.texts.iloc[0]) if len(cells.texts) else 0)
    if form is None or not cells.texts.str.fullmatch(r"(?:19[789]|20)\d*").all():
        return None
    dates = pd.to_datetime(cells.texts, format=form, errors="coerce")
    if dates.isna().any():
        return None
    cells.note(dates.notna(), f"dates such as {cells.texts.iloc[0]} are read year first")
    return local_seconds(cells, dates, zone)


def elapsed_or_dates(cells: Cells, options: ReadOptions) -> pd.Series:
    """Seconds of a column of texts; 0 and -1 among them are unknown.

    Raises
    ------
    InputError : most are neither, or they have several formats
    """
    texts = cells.texts
    has_digit = texts.str.contains(r"\d") & ~texts.isin(["0", "-1"])  # "now" is no date
    is_elapsed = texts.str.fullmatch(ELAPSED)
    if is_elapsed.any() and is_elapsed[has_digit].all():
        cells.note(is_elapsed, "times without a date, counted from a zero of their own")
        return elapsed_seconds(cells)
    found, is_date = dates_in(cells._replace(texts=texts[has_digit]), options)
    bad = texts[has_digit][~is_date]
    if len(bad) > len(texts) / 2:
        raise cells.error(bad.iloc[0], f"{bad.iloc[0]!r:.60} is no date, and neither is most of the "
                          "column", "give dates such as 2024-01-31 10:00:00, or seconds")
    cells.note(~is_date.reindex(texts.index, fill_value=False), "not a date, taken as unknown")
    return found.reindex(texts.index)


def elapsed_seconds(cells: Cells) -> pd.Series:
    """Seconds of `hh:mm:ss` and `d-hh:mm:ss`, NaN for other texts.

    Raises
    ------
    InputError : all have two parts, which can be hours and minutes, or minutes and seconds
    """
    parts = cells.texts.str.extract(f"^{ELAPSED}$").astype("float64")
    days, hours, minutes, seconds = (parts[number] for number in parts)
    is_short = hours.isna() & minutes.notna()
    if is_short.any() and hours.isna().all():
        text = cells.texts[is_short].iloc[0]
        raise cells.error(text, f"{text!r:.60} can be hours and minutes, or minutes and seconds",
                          "write hh:mm:ss")
    return days.fillna(0) * 86400 + hours.fillna(0) * 3600 + minutes * 60 + seconds


class Written(NamedTuple):
    """A date as it is written, before it is known what comes first.

    Parameters
    ----------
    days : the day by each order in which it is one, at least one
    second : of the day
    zone : minutes east of Greenwich, the name of a zone, or None
    """

    days: Mapping[str, date]
    second: float
    zone: int | str | None


def days_of(first: str, second: str, third: str) -> dict[str, date]:
    """The day that three parts are, by each order in which they are one."""
    found = {}
    for order, year, month, day in (("dmy", third, second, first), ("mdy", third, first, second),
                                    ("ymd", first, second, third)):
        if not (year.isdecimal() and day.isdecimal() and len(year) in (2, 4) and len(day) <= 2):
            continue
        number = int(month) if month.isdecimal() else MONTHS.get(month[:3].lower(), 0)
        century = 0 if len(year) == 4 else 1900 if int(year) > 68 else 2000
        try:
            found[order] = date(century + int(year), number, int(day))
        except ValueError:
            continue
    return found


def offset_of(zone: str | None) -> int | str | None:
    """Minutes east of Greenwich of a zone; its name, if that says too little."""
    if zone is None or zone[0] not in "+-":
        return 0 if zone and zone.upper() in ("Z", "UTC", "GMT") else zone
    minutes = 60 * int(zone[1:3]) + int(zone[3:].replace(":", "") or 0)
    return -minutes if zone[0] == "-" else minutes


def date_of(text: str) -> Written | None:
    """A text as a date; None if it is none."""
    text = OF_CTIME.sub(r"\1 \2 \5 \3 \4", text).strip()
    if found := COMPACT.fullmatch(text):
        clock = ":".join(part or "00" for part in found.groups()[3:6])
        text = f"{found[1]}-{found[2]}-{found[3]} {clock}{found[7] or ''}"
    match = DATE.fullmatch(text)
    if match is None:
        return None
    first, second, third, hour, minute, seconds, half, zone = match.groups()
    days = days_of(first, second, third)
    hours = int(hour or 0)
    if half:
        hours = hours % 12 + 12 * (half.lower() == "pm") if 1 <= hours <= 12 else 24
    second_of_day = float((seconds or "0").replace(",", "."))
    if not days or hours > 23 or int(minute or 0) > 59 or second_of_day >= 60:
        return None
    return Written(days, 3600 * hours + 60 * int(minute or 0) + second_of_day, offset_of(zone))


def is_date(text: str) -> bool:
    """Whether a text is a date, in whichever order."""
    return date_of(text) is not None or seconds_of(text) is not None and not text.isdecimal()


def dates_in(cells: Cells, options: ReadOptions) -> tuple[pd.Series, pd.Series]:
    """Seconds since 1970 of texts that are dates, all in one order; and whether they are dates."""
    texts = cells.texts
    iso = pd.to_datetime(texts.where(texts.str.match(r"\d{4}-\d\d-\d\d(?:$|[T ])")),
                         format="ISO8601", errors="coerce", utc=True)
    others = texts[iso.isna()]
    dated = {text: one for text in others.unique() if (one := date_of(text))}
    order = order_of(cells, dated, texts[iso.notna()], options.dates)
    check_zones(cells, dated, options.zone)
    moments = others.map({text: moment_of(one, order) for text, one in dated.items()}).astype("datetime64[us]")
    offset_s = others.map({text: 60 * one.zone for text, one in dated.items()
                           if isinstance(one.zone, int)}).astype("float64")
    has_zone = texts.str.contains(r":.*(?:[Zz]|[+-]\d{2}(?::?\d{2})?)$") & iso.notna()
    seconds = epoch_of(iso.where(has_zone))
    local = iso.dt.tz_localize(None).where(~has_zone)
    if len(others):
        in_utc = epoch_of(moments.dt.tz_localize("UTC")) - offset_s
        seconds = seconds.where(seconds.notna(), in_utc.reindex(texts.index))
        local = local.where(local.notna(), moments[offset_s.isna()].reindex(texts.index))
    is_local = local.notna()
    cells.note(is_local, f"dates without a zone, read as {options.zone or 'UTC'}")
    return (seconds.where(~is_local, local_seconds(cells, local, options.zone)),
            is_local | seconds.notna())


def moment_of(one: Written, order: str) -> pd.Timestamp:
    """The moment on the clock of its place; a date of one order only is read in that."""
    day = one.days.get(order) or next(iter(one.days.values()))
    return pd.Timestamp(day).as_unit("us") + pd.Timedelta(one.second, "s").as_unit("us")


def order_of(cells: Cells, dated: Mapping[str, Written], iso: pd.Series, asked: str) -> str:
    """The order of day, month and year of all dates of a column.

    Parameters
    ----------
    cells : the column
    dated : dates by their texts
    iso : further cells, which have the year first
    asked : the order that an option names, or empty

    Raises
    ------
    InputError : no order fits all, several do and differ, or another one was asked for
    """
    left = {"ymd"} if len(iso) else set(ORDERS)
    example = iso.iloc[0] if len(iso) else ""
    for text, one in dated.items():
        if not left & set(one.days):
            raise cells.error(text, f"{text!r:.60} and {example!r:.60} in row "
                              f"{cells.row_of(example)} are dates of two formats",
                              "give one format for all dates of a column")
        example = text if left - set(one.days) else example or text
        left &= set(one.days)
    numeric = [text for text in dated if re.match(r"\d{1,2}\D+\d{1,2}\D+\d", text)]
    if asked and asked not in left and numeric:
        text = next(text for text in numeric if asked not in dated[text].days)
        raise cells.error(text, f"{text!r:.60} is not {ORDERS[asked]}", "give another --dates")
    if asked not in left:
        for text, one in dated.items():
            if len({one.days[order] for order in left}) > 1:
                words = " or ".join(f"{one.days[order]} ({words})"
                                    for order, words in ORDERS.items() if order in left)
                raise cells.error(text, f"{text!r:.60} can be {words}, and so can the whole "
                                  "column", "say --dates dmy for day, month, year; mdy or ymd")
        asked = ""
    order = asked or min(left)
    if numeric:
        why = "as --dates says" if asked else "the only order that fits all rows"
        cells.note(cells.texts.isin(list(dated)),
                   f"dates such as {numeric[0]} are read {ORDERS[order]}, {why}")
    return order


def check_zones(cells: Cells, dated: Mapping[str, Written], zone: str) -> None:
    """Refuse zones that are names only, unless an option says which they are."""
    named = {text: one.zone for text, one in dated.items() if isinstance(one.zone, str)}
    for text, name in named.items():
        if not zone:
            raise cells.error(text, f"{text!r:.60} is of a zone {name!r} that several clocks go "
                              "by", "say which with --zone, such as --zone Europe/Berlin")
    cells.note(cells.texts.isin(list(named)), f"zones such as {next(iter(named.values()), '')} are "
               f"taken as {zone}, as --zone says")


def epoch_of(dates: pd.Series) -> pd.Series:
    """Seconds since 1970 of dates in UTC; NaN for no date."""
    start = pd.Timestamp(0, tz="UTC").as_unit("us")  # nanoseconds end in 2262
    seconds: pd.Series = (dates.dt.as_unit("us") - start).dt.total_seconds()
    return seconds


def local_seconds(cells: Cells, local: pd.Series, zone: str) -> pd.Series:
    """Seconds since 1970 of dates that the clock of a zone showed; NaN for no date."""
    zone = zone or "UTC"
    try:
        here, later = (local.dt.tz_localize(zone, ambiguous=np.full(len(local), is_earlier),
                                            nonexistent="NaT") for is_earlier in (True, False))
    except (KeyError, ValueError, OSError):
        raise InputError(f"there is no time zone {zone!r}", value=zone,
                         mend="give a name such as Europe/Berlin, or UTC") from None
    cells.note((here != later) & here.notna(),
               f"this hour came twice in {zone}, taken as the earlier one")
    cells.note(here.isna() & local.notna(), f"this hour never came in {zone}, taken as unknown")
    return epoch_of(here.dt.tz_convert("UTC"))
