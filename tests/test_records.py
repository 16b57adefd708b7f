"""The table of policies."""

from __future__ import annotations

from importlib import import_module

import pytest

from sched_lab.lab import records
from sched_lab.lab.frames import InputError
from sched_lab.lab.records import PolicyRecord, PolicyTable


def table() -> PolicyTable[str]:
    return PolicyTable(PolicyRecord("fifo", "First come, first served.", "folklore", "scalar", "array"),
                       PolicyRecord("edf", "Earliest due date first.", "folklore", "other"),
                       patterns={"mix:ALPHA": "Both."})


def test_a_table_is_a_mapping_in_its_own_order() -> None:
    assert list(table()) == ["fifo", "edf"] and len(table()) == 2 and "fifo" in table() and "mix:ALPHA" not in table()
    assert table()["edf"].scalar_form == "other" and table().record("edf") is not None
    assert list(table().sentences()) == ["fifo", "edf", "mix:ALPHA"]


def test_an_unknown_policy_is_refused_with_the_nearest_and_all() -> None:
    with pytest.raises(InputError, match="there is no policy 'fifa'; did you mean fifo. .*fifo, edf, mix:ALPHA"):
        table().record("fifa")
    with pytest.raises(InputError, match="there is no policy 'zzz'; choose one of fifo, edf, mix:ALPHA"):
        table().record("zzz")


def test_the_frame_says_what_runs_in_lockstep() -> None:
    frame = table().frame()
    assert frame.columns.tolist() == ["policy", "sentence", "source", "lockstep"]
    assert frame["lockstep"].tolist() == [True, False]


def test_a_chart_finds_the_tables_of_all_families(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(records, "import_module", lambda name: loaded.append(name) or import_module(name))
    records.load_families.__wrapped__()
    assert sorted(loaded) == ["sched_lab", *(f"sched_lab.{family}.policies" for family in (
        "andreas", "far", "hadar", "online"))]
