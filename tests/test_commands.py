"""What all commands have in common."""

from __future__ import annotations

import warnings
from pathlib import Path

import pandas as pd
import pytest
import typer

from sched_lab.lab.commands import answer_with, fail, folder_named, progress, warnings_said, within
from sched_lab.lab.reports import Answer, Report

ASKED = Answer("greet", {"name": "Ada"}, ("words.csv",))


def a_report() -> Report:
    return Report({"words": 1}, {"words.csv": pd.DataFrame({"word": ["Ada"]})}, {}, "one word")


def test_an_answer_without_a_headline_is_computed_again(tmp_path: Path) -> None:
    ASKED.write(tmp_path, a_report().write_tables)
    assert ASKED.is_in(tmp_path)
    answer_with(ASKED, tmp_path, a_report, force=False, no_charts=True)
    assert ASKED.in_folder(tmp_path)["headline"] == "one word"


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_number_out_of_range_is_refused(value: float) -> None:
    with pytest.raises(typer.BadParameter, match="not in the range from 0 to 1"):
        within(0, 1)(value)


def test_an_empty_name_is_no_folder() -> None:
    assert folder_named("x") == Path("x")
    with pytest.raises(typer.BadParameter, match="empty"):
        folder_named(" ")


def test_warnings_become_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings_said():
        warnings.warn("careful", stacklevel=1)
    assert capsys.readouterr().err == "sched-lab: warning: careful\n"


def test_progress_prints_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for total in (1, 2):
        with progress(total, "work") as say:
            say("done")
    assert capsys.readouterr() == ("done\ndone\n", "")


def test_a_failure_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        fail("two\nlines")
    assert stop.value.code == 2 and capsys.readouterr().err == "sched-lab: two lines\n"
