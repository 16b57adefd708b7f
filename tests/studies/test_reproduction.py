"""Experiments come out again, or it is said what moved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sched_lab.lab.frames import InputError, read_frame, read_sidecar
from studies.reproduction import (
    Claim,
    Experiment,
    Workplace,
    claims_frame,
    difference,
    reproduce,
)


def square(n: int) -> dict[str, float]:
    return {"square": float(n * n), "ms": 0.5}


def compute(place: Workplace) -> dict[str, pd.DataFrame]:
    return {"maths/squares.csv": place.sweep(square, [{"n": 1}, {"n": 3}], "squares")}


SQUARES = Experiment("squares", "What squares are.", ("maths/squares.csv",), 0.1, {"version": 1}, compute, ("ms",))
CLAIM = Claim("nine is three times three", "9", ("maths/squares.csv",),
              lambda frame: (f"{frame['square'].max():g}", "reproduced" if frame["square"].max() == 9 else "not"))


def run(folder: Path, experiment: Experiment = SQUARES, **options: Any) -> pd.DataFrame:
    options = {"names": [experiment.name], "results": folder / "results",
               "workplace": Workplace(folder / "cells")} | options
    return reproduce({experiment.name: experiment}, [CLAIM], **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_frame_is_stored_and_found_again(tmp_path: Path) -> None:
    assert run(tmp_path, command="sched-lab reproduce maths")["outcome"].tolist() == ["not stored"]
    about = read_sidecar(tmp_path / "results/maths/squares.csv")
    assert about["parameters"] == {"made by": "sched-lab reproduce maths squares", "version": 1}
    before = contents(tmp_path / "results")
    found = run(tmp_path, check=True)
    assert found["outcome"].tolist() == ["same"] and found["claims moved"].tolist() == [""]
    run(tmp_path, command="sched-lab reproduce maths")  # the same frame is not written again
    assert contents(tmp_path / "results") == before


def changed(**columns: Any) -> Experiment:
    return replace(SQUARES, compute=lambda place: {name: frame.assign(**columns)
                                                   for name, frame in compute(place).items()})


def test_a_difference_is_found_with_the_claim_that_moves_and_stored_unless_it_is_a_check(tmp_path: Path) -> None:
    run(tmp_path)
    before = contents(tmp_path / "results")
    assert run(tmp_path, changed(ms=7.0), check=True)["outcome"].tolist() == ["same"]  # times are not compared
    found = run(tmp_path, changed(square=[1.0, 8.0]), check=True)
    assert found["outcome"].tolist() == ["differs: 1 rows differ in square"]
    assert found["claims moved"].tolist() == ["nine is three times three: 9, reproduced -> 8, not"]
    assert contents(tmp_path / "results") == before
    run(tmp_path, changed(square=[1.0, 8.0]))
    assert read_frame(tmp_path / "results/maths/squares.csv")["square"].tolist() == [1.0, 8.0]


def test_absent_data_is_skipped_and_said(tmp_path: Path) -> None:
    needy = replace(SQUARES, needs=("openb/nodes.csv",))
    found = run(tmp_path, needy, check=True)
    assert found["outcome"].tolist() == ["skipped: openb/nodes.csv is not here"]
    with pytest.raises(InputError, match="openb/nodes.csv is not here"):
        Workplace(tmp_path).data("openb/nodes.csv")


CALLS: list[int] = []


def stopped_once(n: int) -> dict[str, int]:
    CALLS.append(n)
    if CALLS == [1, 3]:
        raise KeyboardInterrupt
    return {"square": n * n}


def test_a_killed_run_goes_on_where_it_stood_and_a_finished_one_leaves_no_cells(tmp_path: Path) -> None:
    CALLS.clear()
    broken = replace(SQUARES, compute=lambda place: {
        "maths/squares.csv": place.sweep(stopped_once, [{"n": 1}, {"n": 3}], "slow")})
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, broken)
    run(tmp_path, broken)
    assert CALLS == [1, 3, 3] and list((tmp_path / "cells").glob("*")) == []


def test_an_unknown_experiment_is_refused_before_anything_is_computed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no experiment 'cubes'; choose one of squares"):
        run(tmp_path, names=["squares", "cubes"])
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_that_makes_other_frames_than_it_says_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="squares made"):
        run(tmp_path, replace(SQUARES, frames=("maths/cubes.csv",)))


NAN = float("nan")


@pytest.mark.parametrize(("one", "other", "words"), [
    ([1, 2], {"n": [1, 2]}, ""), ([1, 2], {"n": [1, 3]}, "1 rows differ in n"), ([1.0, NAN], {"n": [1.0, NAN]}, ""),
    ([1, 2], {"n": [1.0, 2.0]}, "n is float64, stored int64"), ([1, 2], {"n": [1]}, "1 rows, stored 2"),
    ([1, 2], {"m": [1, 2]}, "other columns: m, n")])
def test_a_difference_is_put_in_words(one: list[float], other: dict[str, list[float]], words: str) -> None:
    assert difference(pd.DataFrame({"n": one}), pd.DataFrame(other)) == words


def test_claims_are_listed() -> None:
    frame = claims_frame([CLAIM], lambda path: pd.DataFrame({"square": [9.0]}))
    assert frame.to_dict("records") == [{"claim": "nine is three times three", "paper": "9", "ours": "9",
                                         "status": "reproduced", "why": ""}]
    with pytest.raises(ValueError, match="'mostly' is not one of reproduced, "):
        claims_frame([replace(CLAIM, ours=lambda frame: ("9", "mostly"))], lambda path: pd.DataFrame())
