"""A streamed sweep gives the same Parquet files whatever computed them and whatever went wrong, in flat memory."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.lab import streams
from sched_lab.lab.frames import InputError, OutputError
from sched_lab.lab.streams import Dataset, stream
from sched_lab.lab.sweeps import Grid, Shown, SweepError, grid, sweep
from tests.test_sweeps import SCHEDULER, dask_process

pytest.importorskip("pyarrow")
CELLS = Grid(policy=["left", "right"], seed=range(25))
MARKS: list[tuple[str, int]] = []  # cells computed in this process


def walk(policy: str, seed: int) -> pd.DataFrame:
    """Walk up to three steps at random: a whole number, a float, a truth value, a text."""
    MARKS.append((policy, seed))
    steps = np.random.default_rng(seed).normal(size=seed % 4) * (1 if policy == "right" else -1)
    return pd.DataFrame({"step": np.arange(len(steps)), "place": steps.cumsum(), "ok": steps > 0,
                         "note": pd.Series([f"{policy},{seed}"] * len(steps), dtype="str")})


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten cells in a part, and stacks of one, unless a test wants others."""
    monkeypatch.setattr(streams, "CELLS_PER_PART", 10)
    monkeypatch.setattr(streams, "AIM_S", 0.0)
    MARKS.clear()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def done(tmp_path: Path) -> Path:
    stream(walk, CELLS, tmp_path / "done")
    MARKS.clear()
    return tmp_path / "done"


# --- what comes out --------------------------------------------------------------------------------------------------


def test_the_rows_are_those_of_a_sweep_in_memory(done: Path, tmp_path: Path) -> None:
    whole = sweep(walk, list(CELLS), tmp_path / "whole").frame
    pd.testing.assert_frame_equal(Dataset(done).read(), whole, check_exact=True, check_dtype=False)
    pd.testing.assert_frame_equal(pd.read_parquet(done), whole, check_exact=True, check_dtype=False)


def test_parts_are_few_and_say_which_sweep_they_are_of(done: Path) -> None:
    assert sorted(files(done)) == ["_about.json", *(f"part-{part:06d}.parquet" for part in range(5))]
    assert Dataset(done).axes == {"policy": ["left", "right"], "seed": list(range(25))}


def test_a_list_of_cells_gives_the_files_of_its_grid(done: Path, tmp_path: Path) -> None:
    stream(walk, grid(policy=["left", "right"], seed=range(25)), tmp_path / "list")
    assert files(tmp_path / "list") == files(done)


def test_what_is_asked_for_is_read_and_no_more(done: Path) -> None:
    dataset = Dataset(done)
    rows = dataset.read(["place"], policy="right", seed=(5, 7))
    expected = pd.concat([walk("right", seed) for seed in (5, 6, 7)])["place"]
    assert list(rows) == ["place"] and rows["place"].tolist() == expected.tolist()
    assert dataset.read(policy="nobody").empty


def mixed(load: float) -> dict[str, float]:
    return {"twice": 2.0 * load}


def test_an_axis_of_whole_and_other_numbers_has_one_type(tmp_path: Path) -> None:
    stream(mixed, Grid(load=[*range(15), 0.5]), tmp_path)
    assert Dataset(tmp_path).read()["load"].tolist() == [*range(15), 0.5]


def nothing_before(seed: int, first: int) -> pd.DataFrame:
    filled = pd.DataFrame({"x": [seed / 7], "note": ["n"]})
    return filled if seed >= first else pd.DataFrame({"x": [], "note": []})


@pytest.mark.parametrize(("first", "workers"), [(0, 1), (13, 1), (29, 1), (99, 1), (13, 2)])
def test_parts_without_any_row_have_the_columns_of_the_others(first: int, workers: int, tmp_path: Path) -> None:
    cells = Grid(seed=range(30), first=first)
    stream(nothing_before, cells, tmp_path / "a", workers=workers)
    stream(nothing_before, cells, tmp_path / "b")
    assert files(tmp_path / "a") == files(tmp_path / "b") and len(files(tmp_path / "a")) == 4
    rows = Dataset(tmp_path / "a").read()
    assert list(rows) == ["seed", "first", "x", "note"] and rows["seed"].tolist() == list(range(first, 30))


def one_row(seed: int) -> dict[str, Any]:
    return {"third": seed / 3, "whole": seed, "word": "w" * seed, "truth": seed > 3}


def one_row_frame(seed: int) -> pd.DataFrame:
    return pd.DataFrame([one_row(seed)])


def test_mappings_together_are_frames_one_by_one() -> None:
    cells = grid(seed=range(7))
    together = streams.stacked([one_row(**cell) for cell in cells], cells)
    apart = streams.stacked([one_row_frame(**cell) for cell in cells], cells)
    pd.testing.assert_frame_equal(together.frame, apart.frame, check_exact=True)
    assert together[1:] == apart[1:] == ([1] * 7, "", "")


# --- whatever computes it --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dask_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("distributed")
    file = tmp_path_factory.mktemp("dask") / "scheduler.json"
    worker = ("worker", "--nthreads", "2", "--no-nanny", "--death-timeout", "60")
    with dask_process(file, *SCHEDULER) as address, dask_process(file, *worker):
        yield address


@pytest.mark.parametrize("aim_s", [0.0, 0.5])
def test_one_process_two_processes_and_dask_give_the_same_bytes(aim_s: float, done: Path, dask_address: str,
                                                                tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "AIM_S", aim_s)
    for name, options in (("two", {"workers": 2}), ("dask", {"dask": dask_address})):
        assert stream(walk, CELLS, tmp_path / name, **options).computed == 50
        assert files(tmp_path / name) == files(done)


def test_a_scheduler_never_has_more_than_a_few_stacks(dask_address: str, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client
    given = []
    submit = Client.map
    monkeypatch.setattr(Client, "map", lambda client, job, *items, **options:
                        given.append(len(items[0])) or submit(client, job, *items, **options))
    stream(walk, CELLS, tmp_path, dask=dask_address)
    assert sum(given) == 50 and given[0] == 8 and max(given) <= 8  # four for each of two threads


# --- a death on the way ----------------------------------------------------------------------------------------------


def test_a_second_call_computes_nothing(done: Path) -> None:
    before = files(done)
    again = stream(walk, CELLS, done)
    assert (again.kept, again.computed, MARKS) == (50, 0, []) and files(done) == before
    assert str(again) == "50 cells: 50 kept, 0 computed"


PROGRAM = """
import os, sys, time
from pathlib import Path
from sched_lab.lab import streams
from sched_lab.lab.sweeps import Grid
streams.CELLS_PER_PART = 10
streams.AIM_S = 0.05

def slow(n):
    (Path(os.environ["MARKS"]) / f"{n}-{time.time_ns()}").touch()
    time.sleep(0.03)
    return {"x": n / 7}

if __name__ == "__main__":
    print(streams.stream(slow, Grid(n=range(60)), sys.argv[1], workers=int(sys.argv[2])))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("workers", "how"), [(1, signal.SIGKILL), (2, signal.SIGINT)])
def test_a_killed_sweep_loses_no_finished_cell(workers: int, how: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "marks").mkdir()
    out = tmp_path / "out"

    def command(folder: Path, number: int) -> dict[str, Any]:
        return {"args": [sys.executable, str(tmp_path / "program.py"), str(folder), str(number)],
                "env": os.environ | {"MARKS": str(tmp_path / "marks")}}

    process = subprocess.Popen(**command(out, workers), stderr=subprocess.DEVNULL, start_new_session=True)
    while not list(out.glob("part-000001.parquet")):
        assert process.poll() is None
        time.sleep(0.01)
    others = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, how)
    assert process.wait(60) != 0 and psutil.wait_procs(others, timeout=10)[1] == []
    with pytest.raises(InputError, match="the sweep is not finished"):
        Dataset(out)
    before = {mark.name for mark in (tmp_path / "marks").iterdir()}
    again = subprocess.run(**command(out, workers), check=True, capture_output=True, text=True)
    kept = int(again.stdout.split()[2])
    computed = [int(mark.name.split("-")[0]) for mark in (tmp_path / "marks").iterdir() if mark.name not in before]
    assert len(computed) == len(set(computed)) == 60 - kept
    assert 20 <= kept >= len(before) - 2 * 2 * workers  # all but the stacks on their way, of two cells at most
    subprocess.run(**command(tmp_path / "whole", 1), check=True, capture_output=True)
    assert files(out) == files(tmp_path / "whole")


def stops_at_17(seed: int) -> dict[str, float]:
    if seed == 17 and not Path(os.environ["GO_ON"]).exists():
        raise KeyboardInterrupt
    MARKS.append(("", seed))
    return {"x": seed / 7}


@pytest.mark.parametrize("harm", ["torn", "flipped", "headless"])
def test_a_torn_journal_gives_back_its_whole_records(harm: str, tmp_path: Path,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GO_ON", str(tmp_path / "go on"))
    with pytest.raises(KeyboardInterrupt):
        stream(stops_at_17, Grid(seed=range(30)), tmp_path / "out")
    journal = tmp_path / "out" / ".part-000001.journal"
    data = journal.read_bytes()
    journal.write_bytes({"torn": data[:-1], "flipped": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
                         "headless": data + data[:5]}[harm])
    (tmp_path / "go on").touch()
    MARKS.clear()
    again = stream(stops_at_17, Grid(seed=range(30)), tmp_path / "out")
    first = 17 if harm == "headless" else 16
    assert [seed for _, seed in MARKS] == list(range(first, 30)) and again.kept == first
    stream(stops_at_17, Grid(seed=range(30)), tmp_path / "whole")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


@pytest.mark.parametrize("harm", ["cut", "flipped", "swapped", "lost"])
def test_a_damaged_part_is_named_and_computed_again(harm: str, done: Path) -> None:
    before = files(done)
    part = done / "part-000002.parquet"
    data = part.read_bytes()
    if harm == "lost":
        part.unlink()
    else:
        middle = data.index(b"left,21")
        part.write_bytes({"cut": data[:-1], "swapped": before["part-000001.parquet"],
                          "flipped": data[:middle] + b"r" + data[middle + 1:]}[harm])
    said: list[str] = []
    again = stream(walk, CELLS, done, shown=Shown(report=said.append))
    assert [seed for _, seed in MARKS] == [*range(20, 25), *range(5)] and files(done) == before
    assert said == list(again.damaged) == [f"{part.as_posix()} is damaged; computing it again"] * (harm != "lost")


def test_a_complete_journal_becomes_its_part(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(streams, "write_part", lambda parts, part: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            stream(walk, CELLS, tmp_path / "out")
    MARKS.clear()
    assert stream(walk, CELLS, tmp_path / "out").kept == 10 and ("left", 9) not in MARKS
    assert files(tmp_path / "out") == files(done)


# --- what is wrong is said in one line -------------------------------------------------------------------------------


def bad_at(seed: int, at: int) -> Any:
    if seed == at:
        raise ZeroDivisionError("no way\nto go")
    return {"x": 0.5}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("aim_s", [0.0, 0.5])
def test_a_failing_cell_is_named_and_those_before_it_are_kept(workers: int, aim_s: float, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "AIM_S", aim_s)
    for _ in range(2):
        with pytest.raises(SweepError, match="^cell seed=16, at=16: ZeroDivisionError: no way to go") as caught:
            stream(bad_at, Grid(seed=range(30), at=16), tmp_path, workers=workers)
        assert caught.value.cell == {"seed": 16, "at": 16} and "bad_at" in "".join(caught.value.__notes__)
    if workers == 1:
        parts = streams.Parts(tmp_path, Grid(seed=range(30), at=16), {}, streams.arrow_of())
        assert streams.journaled(parts, 1) == set(range(10, 16))


WRONG: dict[str, Any] = {
    "a list": ([1], "TypeError: the result is a list"),
    "a parameter": ({"seed": 1.5}, "the column seed is a parameter too"),
    "other columns": ({"y": 1.5}, r"y.*, but cell what=other columns, seed=\d has.* x"),
    "another kind": ({"x": "1.5"}, r"but .* in cell what=another kind, seed=\d;|seed=\d has"),
    "a whole number": ({"x": 1}, "int64.*, but .*return the same"),
}


def wrong_at_4(what: str, seed: int) -> Any:
    return WRONG[what][0] if seed == 4 else {"x": 0.5}


@pytest.mark.parametrize("aim_s", [0.0, 0.5])
@pytest.mark.parametrize("what", WRONG)
def test_a_result_that_cannot_be_part_of_a_file(what: str, aim_s: float, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "AIM_S", aim_s)
    with pytest.raises(SweepError, match=f"^cell what={what}, seed=4: .*{WRONG[what][1]}") as caught:
        stream(wrong_at_4, Grid(what=what, seed=range(8)), tmp_path)
    assert caught.value.cell == {"what": what, "seed": 4} and "\n" not in str(caught.value)


def dies_at_12(seed: int) -> dict[str, float]:
    if seed == 12:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"x": 0.5}


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
@pytest.mark.parametrize("aim_s", [0.0, 0.5])
def test_a_worker_that_dies_is_reported(aim_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "AIM_S", aim_s)
    with pytest.raises(SweepError, match="a worker process died at it .killed by SIGKILL") as caught:
        stream(dies_at_12, Grid(seed=range(30)), tmp_path, workers=2)
    assert caught.value.cell is not None and 10 <= caught.value.cell["seed"] <= 12
    if aim_s == 0:
        assert caught.value.cell["seed"] == 12 and "or one of the" not in str(caught.value)


def test_a_folder_of_something_else_is_left_alone(done: Path, tmp_path: Path) -> None:
    before = files(done)
    for cells, options in ((CELLS[:20], {}), (CELLS, {"depends_on": {"trace": 1}})):
        with pytest.raises(OutputError, match="holds another sweep"):
            stream(walk, cells, done, **options)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("all of it")
    with pytest.raises(OutputError, match="not empty"):
        stream(walk, CELLS, tmp_path / "full")
    assert files(done) == before and MARKS == []


@pytest.mark.skipif(os.name != "posix", reason="locks")
def test_two_sweeps_do_not_write_into_one_folder(tmp_path: Path) -> None:
    with streams.alone_in(tmp_path), pytest.raises(OutputError, match="another sweep is writing there"):
        stream(walk, CELLS, tmp_path)
    assert stream(walk, CELLS, tmp_path).computed == 50


@pytest.mark.parametrize("axes", [{"seed": [1, 1.0]}, {"seed": [1, "1"]}, {"seed": [None]}, {"seed": [float("nan")]}])
def test_axes_that_cannot_be_a_grid(axes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InputError):
        stream(walk, Grid(policy="left", **axes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@settings(max_examples=50, deadline=None)
@given(axes=st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1),
       at=st.integers(-70, 70))
def test_a_grid_is_the_list_of_its_cells(axes: dict[str, list[int]], at: int) -> None:
    cells = grid(**axes)
    lazy = Grid(**axes)
    assert list(lazy) == cells and len(lazy) == len(cells) and lazy[at:] == cells[at:]
    if -len(cells) <= at < len(cells):
        assert lazy[at] == cells[at]
    else:
        with pytest.raises(IndexError):
            lazy[at]


# --- many ------------------------------------------------------------------------------------------------------------

MANY = """
import gc, sys, threading, time, psutil
from sched_lab.lab.streams import stream
from sched_lab.lab.sweeps import Grid

def few(seed):
    return {"x": seed / 2, "note": "n"}

sizes = []
for count in (2_000, 20_000):
    stream(few, Grid(seed=range(count)), f"{sys.argv[1]}/{count}")
    gc.collect()
    sizes.append(psutil.Process().memory_info().rss / 2**20)
print(*sizes)
"""


def test_ten_times_the_cells_take_no_more_memory(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", MANY, str(tmp_path)], capture_output=True, text=True, timeout=240,
                         check=True, cwd=Path(__file__).parents[1])
    small_mib, large_mib = map(float, run.stdout.split())
    assert large_mib < small_mib + 16  # all frames would be some 40 MiB more, and a list of cells 6
    assert len(list((tmp_path / "20000").iterdir())) == 21
    rows = Dataset(tmp_path / "20000").read(["seed", "x"])
    assert rows["seed"].tolist() == list(range(20_000)) and (rows["x"] == rows["seed"] / 2).all()
