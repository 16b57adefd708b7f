"""What a command leaves behind: reports, and folders that hold the answer to one question."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sched_lab.lab import reports
from sched_lab.lab.frames import OutputError, write_bytes, write_json
from tests.command_line import content, tree

# --- a report --------------------------------------------------------------------------------------------------------


def a_report(word: str = "hello", **charts: Any) -> reports.Report:
    return reports.Report({"word": word}, {"words.csv": pd.DataFrame({"word": [word]})}, charts, f"it says {word}")


def test_a_report_is_written_whole_with_its_charts(tmp_path: Path) -> None:
    import altair as alt

    chart = alt.Chart(pd.DataFrame({"x": [1]})).mark_point().encode(x="x:Q")
    a_report(**{"words.svg": lambda: chart}).write(tmp_path / "out")
    assert tree(tmp_path / "out") == ["summary.json", "words.csv", "words.svg"]
    assert (tmp_path / "out/words.csv").read_bytes() == b"word\nhello\n"
    assert json.loads((tmp_path / "out/summary.json").read_text()) == {"word": "hello"}


def test_what_depends_on_the_processor_is_not_in_a_summary(tmp_path: Path) -> None:
    for last in (4, 5):  # the last digits of 0.09264117820... differ between two processors
        report = a_report()
        report.summary.update(bound_s=[float(f"0.0926411782{last}")], ideal_s={"a": float(f"1234.5678901234{last}")},
                              tasks=10**15 + last, nothing=float("nan"))
        report.write(tmp_path / str(last))
        assert json.loads((tmp_path / str(last) / "summary.json").read_text()) == {
            "word": "hello", "bound_s": [float(f"0.0926411782{last}")], "ideal_s": {"a": 1234.56789012},
            "tasks": 10**15 + last, "nothing": None}


def test_a_chart_of_an_old_report_does_not_survive_new_tables(tmp_path: Path) -> None:
    (tmp_path / "words.svg").write_text("old")

    def fails() -> Any:
        raise RuntimeError("no ink")

    with pytest.raises(RuntimeError, match="no ink"):
        a_report(**{"words.svg": fails}).write(tmp_path)
    assert tree(tmp_path) == ["summary.json", "words.csv"]


# --- whose folder it is ----------------------------------------------------------------------------------------------


def answer(tongue: str = "en", **options: Any) -> reports.Answer:
    return reports.Answer("greet", {"tongue": tongue, "files": {"words": "0" * 64}}, ("words.csv",),
                         ("words.svg",), **options)


def greet(word: str = "hello"):
    def write(folder: Path) -> None:
        write_bytes(word.encode(), folder / "words.csv")
        write_json({"words": 1}, folder / "summary.json")
    return write


def test_the_same_question_is_kept_and_another_one_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    answer().write(out, greet())
    assert answer().is_in(out) and not answer("fr").is_in(out)
    reports.check_folder(out, answer())
    before = content(out)
    with pytest.raises(OutputError, match="another question .tongue was 'en', now 'fr'.; .* or .*--force"):
        reports.check_folder(out, answer("fr"))
    with pytest.raises(OutputError, match="another question"):
        answer("fr").write(out, greet("salut"))
    assert content(out) == before
    (out / "words.svg").write_text("an old chart")
    answer("fr").write(out, greet("salut"), force=True)
    assert answer("fr").is_in(out) and tree(out) == ["summary.json", "words.csv"]
    with pytest.raises(OutputError, match="words was another file"):
        other = {"tongue": "fr", "files": {"words": "1" * 64}}
        reports.check_folder(out, reports.Answer("greet", other, ()))


def test_a_damaged_answer_to_the_same_question_is_replaced(tmp_path: Path) -> None:
    answer().write(tmp_path, greet())
    (tmp_path / "words.csv").write_text("hel")
    assert not answer().is_in(tmp_path)
    answer().write(tmp_path, greet())
    assert answer().is_in(tmp_path)


def test_what_cannot_be_repeated_is_refused(tmp_path: Path) -> None:
    once = answer(can_be_repeated=False)
    once.write(tmp_path / "out", greet())
    with pytest.raises(OutputError, match="was done before"):
        reports.check_folder(tmp_path / "out", once)
    reports.check_folder(tmp_path / "out", once, force=True)


@pytest.mark.parametrize("name", ["thesis.tex", "words.csv", "words.svg", "summary.json", "sub/words.csv"])
@pytest.mark.parametrize("force", [False, True])
def test_nothing_foreign_is_overwritten_or_removed(tmp_path: Path, name: str, force: bool) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    before = content(tmp_path)
    is_beside = name in ("thesis.tex", "sub/words.csv")
    if force and is_beside:
        answer().write(tmp_path, greet(), force=True)
        assert answer().is_in(tmp_path)
    else:
        with pytest.raises(OutputError, match="not empty" if is_beside else "move it away"):
            answer().write(tmp_path, greet(), force=force)
        assert content(tmp_path) == before
    assert before.items() <= content(tmp_path).items()


def test_the_record_of_another_command_proves_nothing(tmp_path: Path) -> None:
    answer().write(tmp_path, greet())
    other = reports.Answer("part", {"tongue": "en"}, ("words.csv",))
    for force in (False, True):
        with pytest.raises(OutputError, match="summary.json there was not written by sched-lab part"):
            reports.check_folder(tmp_path, other, force=force)


def test_a_file_that_came_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        greet()(folder)
        (tmp_path / "out").mkdir()
        (tmp_path / "out/words.csv").write_text("mine")

    with pytest.raises(OutputError, match="words.csv there was not written"):
        answer().write(tmp_path / "out", write)
    assert content(tmp_path / "out") == {"words.csv": b"mine"} and tree(tmp_path) == ["out", "out/words.csv"]


def test_leftovers_of_dead_processes_go_and_those_of_live_ones_stay(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for process in (dead.pid, os.getpid()):
        for folder in (f".out.partial-{process}", f"out/.run.partial-{process}"):
            (tmp_path / folder).mkdir(parents=True)
            (tmp_path / folder / "half.csv").write_text("1")
    reports.check_folder(tmp_path / "out", answer())
    assert [name for name in tree(tmp_path) if name.endswith(f"-{dead.pid}")] == []
    assert len([name for name in tree(tmp_path) if name.endswith(f"-{os.getpid()}")]) == 2
