"""A sweep gives one frame, whatever computed it and whatever went wrong on the way."""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

from sched_lab.lab import jit, sweeps
from sched_lab.lab.frames import InputError, OutputError, read_frame, read_sidecar
from sched_lab.lab.sweeps import SweepError, compute_cell, grid, sweep
from tests.sweep_cells import MARKS, bad_at_right_1, dies, late_when_first, slow, walk
from tests.waiting import HANG_S, until

CELLS = grid(policy=["left", "right"], seed=range(3))


def other_walk(policy: str, seed: int) -> pd.DataFrame:
    return walk(policy, seed).assign(place=0.5)


def results(folder: Path) -> bytes:
    return (folder / "results.csv").read_bytes() + (folder / "results.json").read_bytes()


def cell_files(folder: Path) -> dict[tuple[str, int], Path]:
    """File of each cell, found by what its sidecar says."""
    files = {}
    for file in (folder / "cells").rglob("*.csv"):
        cell = read_sidecar(file)["parameters"]["cell"]
        files[cell["policy"], cell["seed"]] = file
    return files


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*")]


def workers_left() -> list[psutil.Process]:
    """Workers that wait for a next sweep: one may end just as that begins, so there is none."""
    return [one for one in psutil.Process().children() if "spawn_main" in "".join(one.cmdline())]


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """Compute all of `CELLS` and forget the marks."""
    sweep(walk, CELLS, tmp_path / "done")
    MARKS.clear()
    return tmp_path / "done"


# --- what comes out --------------------------------------------------------------------------------------------------


def test_grid_runs_through_the_last_axis_fastest() -> None:
    assert grid(a=[1, 2], b="xy", c=(True,)) == [{"a": 1, "b": "xy", "c": True}, {"a": 2, "b": "xy", "c": True}]
    assert [tuple(cell.values()) for cell in grid(a=[1, 2], b=["x", "y"])] == [(1, "x"), (1, "y"), (2, "x"), (2, "y")]
    with pytest.raises(InputError, match="column b: this axis of the grid is empty"):
        grid(a=[1], b=[])


def test_parameters_lead_and_cells_stand_in_the_order_given(tmp_path: Path) -> None:
    cells = [CELLS[number] for number in (4, 0, 5)]
    done = sweep(walk, cells, tmp_path)
    assert list(done.frame) == ["policy", "seed", "step", "place", "ok", "note"]
    assert done.frame["seed"].tolist() == [1] * 3 + [0] * 3 + [2] * 3
    assert done.frame["policy"].tolist() == ["right"] * 3 + ["left"] * 3 + ["right"] * 3
    assert done.frame.index.tolist() == list(range(9))
    for cell, (_, part) in zip(cells, done.frame.groupby(np.arange(9) // 3), strict=True):
        pd.testing.assert_frame_equal(part.iloc[:, 2:].reset_index(drop=True), walk(**cell), check_dtype=False)


def test_the_file_holds_the_frame_and_says_what_it_is_made_of(tmp_path: Path) -> None:
    done = sweep(walk, CELLS, tmp_path, depends_on={"version": 3})
    pd.testing.assert_frame_equal(read_frame(tmp_path / "results.csv"), done.frame, check_exact=True)
    asked = read_sidecar(tmp_path / "results.csv")["parameters"]
    assert asked["depends_on"] == {"version": 3} and asked["function"] == "tests.sweep_cells.walk"
    assert asked["cells"] == 6 and asked["axes"] == {"policy": ["left", "right"], "seed": [0, 1, 2]}


def one_row(seed: int) -> dict[str, float]:
    return {"third": 1 / 3, "seventh": seed / 7}


def test_a_mapping_is_one_row(tmp_path: Path) -> None:
    frame = sweep(one_row, grid(seed=[1, 2]), tmp_path).frame
    assert frame.to_dict("list") == {"seed": [1, 2], "third": [1 / 3] * 2, "seventh": [1 / 7, 2 / 7]}


def echo(**cell: object) -> dict[str, str]:
    return {"types": ",".join(type(value).__name__ for value in cell.values())}


def test_parameters_reach_the_function_as_plain_values(tmp_path: Path) -> None:
    done = sweep(echo, grid(a=np.arange(2), b=np.array([0.5]), c=np.array(["x"]), d=[np.True_]), tmp_path)
    assert set(done.frame["types"]) == {"int,float,str,bool"}
    again = sweep(echo, grid(a=[1, 0], b=[0.5], c="x", d=True), tmp_path)
    assert (again.kept, again.computed) == (2, 0)  # the same cells
    assert again.frame["a"].tolist() == [1, 0]


def some_rows(rows: int, number: int) -> pd.DataFrame:
    return pd.DataFrame({"x": [0.5] * rows, "name": ["n"] * rows})


@pytest.mark.parametrize("rows", [[0, 2, 0, 1], [0, 0]])
def test_a_cell_may_have_no_row(rows: list[int], tmp_path: Path) -> None:
    cells = [{"rows": n, "number": i} for i, n in enumerate(rows)]
    both = [sweep(some_rows, cells, tmp_path).frame for _ in range(2)]
    pd.testing.assert_frame_equal(*both, check_exact=True)
    assert len(both[0]) == sum(rows) and list(both[0]) == ["rows", "number", "x", "name"]
    if any(rows):  # a column without values has no say in the type
        assert list(map(str, both[0].dtypes)) == ["int64", "int64", "float64", "str"]


# --- whatever computes it --------------------------------------------------------------------------------------------


def test_one_process_and_two_give_the_same_bytes_whatever_finishes_first(tmp_path: Path) -> None:
    sweep(late_when_first, CELLS, tmp_path / "one")
    assert sweep(late_when_first, CELLS, tmp_path / "two", workers=2).computed == 6
    assert workers_left() == []
    assert results(tmp_path / "one") == results(tmp_path / "two")
    for cell, file in cell_files(tmp_path / "two").items():
        assert file.read_bytes() == cell_files(tmp_path / "one")[cell].read_bytes()
    MARKS.clear()
    assert sweep(late_when_first, CELLS, tmp_path / "two").kept == 6 and MARKS == []  # one goes on where two stopped


# --- what a folder keeps ---------------------------------------------------------------------------------------------


def test_a_second_sweep_computes_nothing(done: Path) -> None:
    before = results(done)
    again = sweep(walk, CELLS, done)
    assert (again.kept, again.computed, again.damaged, MARKS) == (6, 0, (), [])
    assert results(done) == before


def swap_in_another(file: Path) -> None:
    """Put a whole cell of another seed under this cell's name."""
    other = cell_files(file.parents[2])["right", 0]
    file.write_bytes(other.read_bytes())
    file.with_suffix(".json").write_bytes(other.with_suffix(".json").read_bytes())


def change(suffix: str, old: bytes, new: bytes) -> Callable[[Path], None]:
    """Change some bytes in the file of a cell, or in its sidecar."""
    def harm(file: Path) -> None:
        changed = file.with_suffix(suffix)
        assert old in changed.read_bytes()
        changed.write_bytes(changed.read_bytes().replace(old, new))
    return harm


HARMS: dict[str, Callable[[Path], None]] = {
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "changed": change(".csv", b"True", b"true"),
    "lost": Path.unlink,
    "no sidecar": lambda file: file.with_suffix(".json").unlink(),
    "sidecar cut": change(".json", b"}\n", b""),
    "sidecar changed": change(".json", b"int64", b"int65"),
    "another cell": swap_in_another,
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_damaged_cell_is_named_and_computed_again(harm: Callable[[Path], None], done: Path,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    before = results(done)
    file = cell_files(done)["right", 1]
    harm(file)
    again = sweep(walk, CELLS, done)
    assert MARKS == [("right", 1)] and (again.kept, again.computed) == (5, 1)
    line = f"cell policy=right, seed=1: {file.as_posix()} is damaged or unfinished; computing it again"
    assert again.damaged == (line,) and capsys.readouterr().err == f"{line}\n"
    assert results(done) == before and sweep(walk, CELLS, done).kept == 6


def test_other_questions_share_a_folder_and_are_never_mixed(done: Path) -> None:
    before = results(done)
    mine = cell_files(done)["left", 0].read_bytes()
    for options in ({"depends_on": {"trace": "f00"}}, {"depends_on": {"trace": "ba5"}}):
        assert sweep(walk, CELLS, done, **options).computed == 6
    other = sweep(other_walk, CELLS, done)
    assert other.computed == 6 and set(other.frame["place"]) == {0.5}
    assert len(list((done / "cells").rglob("*.csv"))) == 4 * 6
    smaller = sweep(walk, CELLS[:1], done)
    assert smaller.kept == 1 and len(smaller.frame) == 3
    larger = sweep(walk, [*CELLS, {"policy": "left", "seed": 9}], done)
    assert (larger.kept, larger.computed) == (6, 1)
    assert sweep(walk, CELLS, done).kept == 6 and results(done) == before
    assert mine in [file.read_bytes() for file in (done / "cells").rglob("*.csv")]


def test_another_version_of_the_package_computes_again(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "__version__", "99.0")
    assert sweep(walk, CELLS, done).computed == 6


def test_true_one_and_one_point_zero_are_different_cells_on_disk(tmp_path: Path) -> None:
    for value in (1, 1.0, True, "1"):
        assert sweep(echo, [{"a": value}], tmp_path).computed == 1


# --- what is wrong is said in one line -------------------------------------------------------------------------------


@pytest.mark.parametrize(("cells", "words"), [
    ([], "no cell"),
    ([CELLS[0], CELLS[1], CELLS[0]], "cell policy=left, seed=0: it is there twice, as cells 1 and 3"),
    ([{"seed": 1}, {"seed": 1.0}], "cell seed=1.0: it is there twice"),
    ([{"seed": "a\rb"}], "seed cannot be written"), ([{"seed": "a\0b"}], "seed cannot be written"),
])
def test_cells_that_cannot_be_a_grid(cells: list[dict[str, object]], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words) as caught:
        sweep(echo, cells, tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


@pytest.mark.parametrize(("function", "options", "words"), [
    (lambda policy, seed: {}, {}, "cannot be found by its name"),
    (3, {}, "cannot be found by its name"),
    (partial(walk), {}, "name them in depends_on"),
])
def test_a_call_that_makes_no_sense(function: Any, options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        sweep(function, CELLS, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_partial_is_told_apart_by_depends_on(tmp_path: Path) -> None:
    for policy in ("left", "right"):
        done = sweep(partial(walk, policy), grid(seed=[0]), tmp_path, depends_on={"policy": policy})
        assert done.computed == 1 and done.frame["note"].iloc[2] == policy


def test_the_folder_must_be_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    MARKS.clear()
    with pytest.raises(OutputError, match="is a file"):
        sweep(walk, CELLS, tmp_path / "file")
    assert MARKS == []


@pytest.mark.parametrize(("result", "words"), [
    ({"x": 1.5, "seed": 1}, "the column seed is a parameter too"),
    ({"x": 1.5, "y": 1.5}, "it has the columns x, y, but cell seed=0 has x; return the same")])
def test_a_result_that_cannot_be_part_of_a_table(result: Any, words: str, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.test_sweeps.RESULTS", [{"x": 0.5}, result])
    with pytest.raises(SweepError, match=f"cell seed=1: .*{words}") as caught:
        sweep(as_told, grid(seed=range(3)), tmp_path)
    assert caught.value.cell == {"seed": 1} and "\n" not in str(caught.value)
    assert len(list((tmp_path / "cells").rglob("*.csv"))) == 1  # seed 0, and not the wrong one
    assert not (tmp_path / "results.csv").exists()


RESULTS: list[dict[str, float]] = []


def as_told(seed: int) -> dict[str, float]:
    return RESULTS[seed]


def test_a_kept_cell_is_compared_with_the_new_ones(tmp_path: Path) -> None:
    sweep(changing, grid(seed=[0]), tmp_path)
    with pytest.raises(SweepError, match="^cell seed=1: it has the columns y, but cell seed=0 has x"):
        sweep(changing, grid(seed=[1, 0]), tmp_path)
    sweep(changing, grid(seed=[1]), tmp_path)
    with pytest.raises(SweepError, match="it has the columns"):
        sweep(changing, grid(seed=[0, 1]), tmp_path)


def changing(seed: int) -> dict[str, float]:
    return {"y" if seed else "x": 0.5}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_cell_is_named_and_the_finished_ones_are_kept(workers: int, tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="^cell policy=right, seed=1: ZeroDivisionError: no way to go") as caught:
        sweep(bad_at_right_1, CELLS, tmp_path, workers=workers)
    assert "\n" not in str(caught.value) and caught.value.cell == {"policy": "right", "seed": 1}
    assert "bad_at_right_1" in "".join(caught.value.__notes__)  # the traceback of the worker
    finished = cell_files(tmp_path)
    assert ("right", 1) not in finished and not (tmp_path / "results.csv").exists()
    if workers == 1:
        assert len(finished) == 4  # those before it
    MARKS.clear()
    with pytest.raises(SweepError):
        sweep(bad_at_right_1, CELLS, tmp_path)
    assert not set(MARKS) & finished.keys()


# --- a death on the way ----------------------------------------------------------------------------------------------

SLOW = """import sys
from sched_lab.lab.sweeps import grid, sweep
from tests.sweep_cells import slow

sweep(slow, grid(n=range(12)), sys.argv[1], workers=int(sys.argv[2]))
"""


def slowly(folder: Path, workers: int, **options: Any) -> subprocess.Popen[bytes]:
    """Start a program that sweeps `slow` into a folder."""
    return subprocess.Popen([sys.executable, "-c", SLOW, str(folder), str(workers)], **options)


def end() -> None:
    raise jit.Terminated(143)


def interrupted() -> None:
    raise SystemError("a compiled call returned a result with an exception set") from KeyboardInterrupt()


@pytest.mark.parametrize(("cell", "kind"), [(end, SystemExit), (interrupted, KeyboardInterrupt)])
def test_a_request_to_end_is_no_failed_cell(cell: Callable[[], None], kind: type[BaseException]) -> None:
    with pytest.raises(kind):
        compute_cell(cell, 0, {})


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_an_interrupted_sweep_goes_on_where_it_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks, out, whole = (tmp_path / name for name in ("marks", "out", "whole"))
    marks.mkdir()
    monkeypatch.setenv("SWEEP_MARKS", str(marks))
    process = slowly(out, 2, stderr=subprocess.DEVNULL, start_new_session=True)
    until(lambda: len(list((out / "cells").rglob("*.json"))) >= 4 or process.poll() is not None)
    others = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches the workers too
    assert process.wait(HANG_S) != 0
    assert not (out / "results.csv").exists()
    finished = {json.loads(file.read_text())["parameters"]["cell"]["n"] for file in (out / "cells").rglob("*.json")
                if not file.name.startswith(".")}
    assert 4 <= len(finished) < 12
    assert psutil.wait_procs(others, timeout=HANG_S)[1] == []
    before = {mark.name for mark in marks.iterdir()}
    done = sweep(slow, grid(n=range(12)), out)
    assert (done.kept, done.computed) == (len(finished), 12 - len(finished))
    computed = sorted(int(mark.name.split("-")[0]) for mark in marks.iterdir() if mark.name not in before)
    assert computed == sorted(set(range(12)) - finished)  # each missing cell once, and no finished one
    sweep(slow, grid(n=range(12)), whole)
    assert results(out) == results(whole) and hidden(out) == []


STUCK = """
import sys
from pathlib import Path
from sched_lab.lab.sweeps import grid, sweep

def stuck(n):
    Path(sys.argv[1], f"at-{n}").touch()
    return {"x": sum(range(10**13))}  # days, and no other thread of the worker runs

sweep(stuck, grid(n=range(2)), sys.argv[1], workers=2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the watching thread must get to run")
def test_no_process_outlives_a_killed_sweep(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(STUCK)
    with subprocess.Popen([sys.executable, "-W", "error", str(tmp_path / "program.py"), str(tmp_path)],
                          stderr=subprocess.DEVNULL) as process:
        until(lambda: len(list(tmp_path.glob("at-*"))) == 2 or process.poll() is not None)
        others = psutil.Process(process.pid).children(recursive=True)
        assert len(others) >= 2
        process.kill()
        assert process.wait(HANG_S) != 0
    assert psutil.wait_procs(others, timeout=HANG_S)[1] == []


@pytest.mark.skipif(os.name != "posix", reason="kill -9 and fork")
@pytest.mark.parametrize(("how", "end"), [("and leaves a child", "exit code 3"),
                                          ("halfway through its result", "killed by SIGKILL")])
def test_a_worker_that_dies_is_reported_and_the_rest_is_kept(how: str, end: str, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHILD", str(tmp_path / "child"))
    cells = [cell | {"how": how} for cell in CELLS]
    with pytest.raises(SweepError, match="^cell policy=left, seed=2.*: a worker process died.*fewer") as caught:
        sweep(dies, cells, tmp_path / "out", workers=2)
    assert end in str(caught.value) and "\n" not in str(caught.value) and caught.value.cell == cells[2]
    assert workers_left() == []
    finished = cell_files(tmp_path / "out")
    assert ("left", 2) not in finished and hidden(tmp_path) == []
    again = sweep(dies, [cell for cell in cells if cell != cells[2]], tmp_path / "out")
    assert (again.kept, again.computed, again.damaged) == (len(finished), 5 - len(finished), ())
    if how == "and leaves a child":
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)  # it is still there


@pytest.mark.skipif(os.name != "posix", reason="limits")
def test_more_workers_than_the_system_allows(tmp_path: Path) -> None:
    program = ("import resource, sys, math\nfrom sched_lab.lab.sweeps import *\n"
               "from sched_lab.lab.sweeps import SweepError\n"
               "resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))\n"
               "try: sweep(dict, grid(x=range(99)), sys.argv[1], workers=99)\n"
               "except SweepError as error: print(error)")
    run = subprocess.run([sys.executable, "-W", "error", "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == (
        "a worker process cannot be started (Too many open files); give fewer workers\n", "")


# --- progress --------------------------------------------------------------------------------------------------------


def test_no_bar_unless_someone_watches(done: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(walk, CELLS, done, shown="walks")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_shows_finished_kept_and_total(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    sweep(slow, grid(n=range(5)), tmp_path)
    ours, theirs = pty.openpty()
    with slowly(tmp_path, 1, stderr=theirs, env=os.environ | {"COLUMNS": "100"}):
        os.close(theirs)
        text = b""
        with suppress(OSError):  # Linux: the other end was closed
            while part := os.read(ours, 4096):
                text += part
    os.close(ours)
    plain = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", text).decode()
    assert "cells" in plain and "5/12" in plain and "12/12" in plain
