"""The four families have one face: the same names with the same meaning, for every policy of every table."""
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.lab.frames import InputError
from sched_lab.lab.records import PolicyRecord, PolicyTable

PACKAGE = Path(__file__).parents[1] / "sched_lab"
FAMILIES = sorted({path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"fleet", "lab"})
ALIKE = {"POLICIES", "bound", "check", "policy_of", "read", "report_of", "simulate", "toy"}
EVERY_POLICY = [(family, name) for family in FAMILIES for name in import_module(f"sched_lab.{family}").POLICIES]


def face_of(family: str):
    return import_module(f"sched_lab.{family}")


def problem_of(family: str) -> tuple:
    toy = face_of(family).toy()
    return toy if type(toy) is tuple else (toy,)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_face_is_one_screen_of_names(family):
    names = {name for name in dir(face_of(family)) if not name.startswith("_")}
    assert names >= ALIKE and len(names) <= 25
    assert all(getattr(face_of(family), name) is not None for name in names)
    assert len((PACKAGE / family / "__init__.py").read_text().splitlines()) <= 50


@pytest.mark.parametrize("family", FAMILIES)
def test_policies_are_records_that_say_what_they_are(family):
    table = face_of(family).POLICIES
    assert isinstance(table, PolicyTable)
    for name, record in table.items():
        assert isinstance(record, PolicyRecord) and record.name == name
        assert record.sentence and record.source and not record.sentence.endswith(".")
    assert len({record.sentence for record in table.values()}) == len(table)
    with pytest.raises(InputError, match="there is no policy 'nobody'"):
        face_of(family).policy_of("nobody")


def plain(value):
    """Return a summary in a form that compares, measured times left out."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if not key.endswith(("_ms", "wall_time_s"))}
    return pd.Series([value]).astype(str)[0] if isinstance(value, float | np.floating) else value


@pytest.mark.parametrize(("family", "name"), EVERY_POLICY)
def test_every_policy_runs_the_toy_is_checked_and_reported(family, name):
    face, problem = face_of(family), problem_of(family)
    try:
        first, second = (face.report_of(*problem, name) for _ in range(2))
    except InputError as refusal:  # such as copies of jobs, which want nodes with one GPU
        assert name in str(refusal)
        return
    assert first.summary["policy"] == name and plain(first.summary) == plain(second.summary)
    assert first.headline and all(len(frame.columns) for frame in first.tables.values())


@pytest.mark.parametrize(("family", "name"), EVERY_POLICY)
def test_every_result_passes_the_validator(family, name):
    face, problem = face_of(family), problem_of(family)
    try:
        result = face.simulate(*problem, policy=name)
    except InputError as refusal:  # such as copies of jobs, which want nodes with one GPU
        assert name in str(refusal)
        return
    face.check(*problem, result)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bound_of_the_toy_is_a_number(family):
    assert np.isfinite(face_of(family).bound(*problem_of(family)))
