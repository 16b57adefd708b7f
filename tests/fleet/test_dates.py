"""One reading of dates for a column: what fits all rows is taken and said; what two readings fit is asked for."""
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.fleet.read.dates import durations_in, seconds_in, seconds_of
from sched_lab.fleet.read.tables import Ledger, ReadOptions, Source
from sched_lab.lab.frames import InputError


def read(*texts, zone: str = "", dates: str = "", unit_s: float = 1, ledger: Ledger | None = None, as_=seconds_in):
    """Seconds of a column of texts, None where unknown."""
    column = pd.Series(texts, index=range(2, len(texts) + 2), name="t", dtype="object")
    told = [ReadOptions(zone=zone, dates=dates)] if as_ is seconds_in else []
    seconds = as_(column, Source("x.csv", b""), ledger or Ledger(), *told, unit_s)
    return [None if pd.isna(one) else one for one in seconds]


def at(text: str) -> float:
    return pd.Timestamp(text, tz="UTC").timestamp()


FOUR_DAYS = [at(f"2024-{day}") for day in ("01-31", "02-01", "02-12", "02-13")]


@pytest.mark.parametrize(("texts", "order"), [
    (["31.01.2024", "01.02.2024", "12.02.2024", "13.02.2024"], "day first"),
    (["31/01/2024", "01/02/2024", "12/02/2024", "13/02/2024"], "day first"),
    (["01/31/2024", "02/01/2024", "02/12/2024", "02/13/2024"], "month first"),
    (["1/31/2024 0:00", "2/1/2024 0:00", "2/12/2024 0:00", "2/13/2024 0:00"], "month first"),
    (["01/31/2024 12:00:00 AM", "02/01/2024 12:00 am", "02/12/2024 12:00AM", "02/13/2024"], "month first"),
    (["31-01-2024 00:00:00.0", "01-02-2024 00:00", "12-02-2024T00:00", "13-02-2024"], "day first"),
    (["2024/01/31", "2024/02/01", "2024/02/12", "2024/02/13"], ""), (["2024.1.31", "2024.2.1", "2024.2.12",
                                                                     "2024.2.13"], ""),
    (["20240131", "20240201", "20240212", "20240213"], "year first"),
    (["20240131000000", "20240201000000", "20240212000000", "20240213000000"], "year first"),
    (["20240131T000000Z", "20240201T000000Z", "20240212T000000Z", "20240213T000000Z"], ""),
    (["31 Jan 2024", "1 February 2024", "12-Feb-2024", "13. feb. 2024"], ""),
    (["Jan 31, 2024", "Feb 1, 2024", "February 12 2024", "Feb 13, 2024 00:00"], ""),
    (["Wed Jan 31 00:00:00 2024", "Thu Feb  1 00:00:00 2024", "Mon Feb 12 00:00:00 UTC 2024",
      "Tue Feb 13 00:00:00 2024"], ""),
    (["Wed, 31 Jan 2024 00:00:00 GMT", "Thu, 01 Feb 2024 01:00:00 +0100", "Mon, 12 Feb 2024 00:00:00 +0000",
      "Tue, 13 Feb 2024 00:00:00 Z"], ""),
    (["31/Jan/2024:00:00:00 +0000", "01/Feb/2024:00:00:00 +0000", "12/Feb/2024:00:00:00 +0000",
      "13/Feb/2024:00:00:00 +0000"], ""),
    (["2024-01-31 00:00:00,000", "2024-02-01 00:00:00", "2024-02-12", "2024-02-13T00:00:00Z"], ""),
])
def test_one_reading_fits_all_rows(texts, order):
    ledger = Ledger()
    assert read(*texts, ledger=ledger) == FOUR_DAYS
    said = "\n".join(ledger.frame()["reason"])
    assert (f"read {order}" in said) if order else " first" not in said


@pytest.mark.parametrize("texts", [
    ["01.02.2024", "12.02.2024"], ["01/02/2024 10:00", "03/04/2024 10:00"], ["31.01.24", "01.02.24"],
    ["01-02-03"], ["03 Feb 04"]])
def test_two_readings_are_asked_for(texts):
    with pytest.raises(InputError, match="x.csv, row 2, column t: '.*' can be .* or .*; say --dates dmy.*mdy.*ymd"):
        read(*texts)


@pytest.mark.parametrize(("texts", "dates", "days"), [
    (["01.02.2024"], "dmy", ["2024-02-01"]), (["01.02.2024"], "mdy", ["2024-01-02"]),
    (["31.01.24", "01.02.24"], "dmy", ["2024-01-31", "2024-02-01"]), (["31.01.24"], "ymd", ["2031-01-24"]),
    (["01-02-03"], "mdy", ["2003-01-02"]), (["01-02-99"], "dmy", ["1999-02-01"]),
    (["2024-02-01"], "dmy", ["2024-02-01"]), (["03 Feb 04"], "dmy", ["2004-02-03"])])
def test_the_asked_reading_is_taken(texts, dates, days):
    assert read(*texts, dates=dates) == list(map(at, days))


def test_readings_that_say_the_same_need_no_question():
    assert read("05.05.2024", "01/01/2024") == [at("2024-05-05"), at("2024-01-01")]


@pytest.mark.parametrize(("texts", "dates", "words"), [
    (["31.01.2024", "01.31.2024"], "", "row 3.*'01.31.2024' and '31.01.2024' in row 2.*one format"),
    (["2024-01-31", "31.01.2024"], "", "row 3.*one format"), (["31.01.2024"], "mdy", "row 2.*not month first"),
    (["01.02.2024"], "iso", "'iso'.*dmy, mdy, ymd"),
    (["2024-01-31 10:00 CET"], "", "zone 'CET'.*--zone"), (["2024-01-31 10:00 PST"], "", "zone 'PST'"),
    (["5 days ago", "4 days ago", "2024-01-31"], "", "row 2.*'5 days ago' is no date"),
    (["2024-13-31", "2024-31-31"], "", "is no date")])
def test_columns_that_are_refused(texts, dates, words):
    with pytest.raises(InputError, match=words):
        read(*texts, dates=dates)


def test_a_named_zone_is_that_of_the_option():
    ledger = Ledger()
    assert read("2024-01-31 10:00 CET", zone="Europe/Berlin", ledger=ledger) == [at("2024-01-31 09:00")]
    assert "CET" in "\n".join(ledger.frame()["reason"])


def test_the_hours_of_a_clock_change_are_said():
    ledger = Ledger()
    texts = ("2025-03-30 02:30:00", "2025-10-26 02:30:00", "2025-07-01 00:00:00", "2025-01-01 00:00:00+01:00")
    assert read(*texts, zone="Europe/Berlin", ledger=ledger) == [
        None, at("2025-10-26 00:30"), at("2025-06-30 22:00"), at("2024-12-31 23:00")]
    reasons = " ".join(ledger.frame()["reason"])
    assert "came twice" in reasons and "never came" in reasons
    with pytest.raises(InputError, match="no time zone 'Mars'"):
        read("2025-01-01", zone="Mars")


def test_a_cell_that_is_no_date_is_unknown_and_said_to_be():
    ledger = Ledger()
    assert read("31.01.2024", "45.01.2024", "now", "", "01.02.2024", "31.01.2024", ledger=ledger) == [
        FOUR_DAYS[0], None, None, None, FOUR_DAYS[1], FOUR_DAYS[0]]
    lines = ledger.frame().set_index("reason")
    assert lines.loc["column t: not a date, taken as unknown", "count"] == 2


@pytest.mark.parametrize(("texts", "seconds"), [
    (["1700000000", "1700000000.5"], [1.7e9, 1.7e9 + 0.5]), (["1700000000000"], [1.7e9]),
    (["1700000000000000"], [1.7e9]), (["1700000000000000000"], [1.7e9]), (["0", "1700000000"], [None, 1.7e9]),
    (["0", "5", "100"], [0, 5, 100]), (["0", "-1", "2024-01-31"], [None, None, FOUR_DAYS[0]]),
    (["x", "5", "7"], [None, 5, 7]), (["1e300", "5"], [None, 5]),
    (["0:00:05", "26:00:00", "1-02:00:00"], [5, 93600, 93600]), (["1700000000", "2024-01-31"], None)])
def test_numbers_are_seconds_and_their_thousandths(texts, seconds):
    if seconds is None:
        with pytest.raises(InputError, match="row 3.*is a date or a time, and others are numbers"):
            read(*texts)
    else:
        assert read(*texts) == seconds


def test_a_stated_unit_is_for_numbers_only():
    assert read("60", "120", unit_s=60) == [3600, 7200]
    assert read("2024-01-31", unit_s=0.001) == [FOUR_DAYS[0]]
    assert read("1700000000000", unit_s=0.001) == [1.7e9]


@pytest.mark.parametrize(("texts", "seconds"), [
    (["00:05:12", "1-02:03:04", "48:00:00", ""], [312, 93784, 172800, None]), (["05:12", "1:05:12"], [312, 3912]),
    (["0 days 00:05:12", "1 day, 0:00:01"], [312, 86401]), (["00:00:01.5"], [1.5]),
    (["1,5", "0,25"], [1.5, 0.25]), (["90", "1.5"], [90, 1.5]), (["7", "00:05:12"], None), (["05:12"], None)])
def test_durations(texts, seconds):
    if seconds is None:
        with pytest.raises(InputError, match="x.csv, row 2"):
            read(*texts, as_=durations_in)
    else:
        assert read(*texts, as_=durations_in) == seconds
    if ":" in texts[0] and seconds is not None:
        assert read(*texts, as_=durations_in, unit_s=3600) == seconds


@pytest.mark.parametrize("text", ["2024-01-31T10:00:00Z", "2024-01-31T10:00:00+01:00", "2024-01-31T10:00:00.25Z",
                                  "2024-01-31 10:00:00", "no", "", "9999-99-99", "2024-02-30T00:00:00Z"])
def test_a_single_date_is_read_as_a_column_is(text):
    one = seconds_of(text)
    assert one is None or [one] == read(text)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.datetimes(min_value=pd.Timestamp(1970, 1, 1), max_value=pd.Timestamp(2100, 1, 1)), min_size=1,
                max_size=20), st.sampled_from(["%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M", "%Y-%m-%d %H:%M"]))
def test_a_column_of_one_format_is_read_or_asked_for(moments, form):
    texts = [moment.strftime(form) for moment in moments]
    order = {"%d": "dmy", "%m": "mdy", "%Y": "ymd"}[form[:2]]
    right = [at(moment.strftime("%Y-%m-%d %H:%M")) for moment in moments]
    assert read(*texts, dates=order) == right
    try:
        assert read(*texts) == right
    except InputError as error:
        assert "--dates" in str(error)
