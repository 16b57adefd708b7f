"""What happens when something goes wrong while a file is read or written."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import pickle
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.lab import frames
from sched_lab.lab.frames import (
    Column,
    InputError,
    OutputError,
    SchedLabError,
    atomic_folder,
    ensure_writable,
    expect_error,
    input_key,
    is_finished,
    read_frame,
    read_table,
    write_bytes,
    write_frame,
    write_json,
)
from tests.command_line import tree

COLUMNS = {
    "name": Column("text", unique=True),
    "gpu": Column("integer", minimum=0, maximum=8, mend="give the number of GPUs, 0 to 8"),
    "idle_w": Column("number", minimum=0),
    "model": Column("text", required=False, default="A100"),
}
GOOD = "name,gpu,idle_w\nada,8,231.5\nbob,4,120\n"
FRAME = pd.DataFrame({"policy": ["fgd", "pwr"], "load": [0.1, 1 / 3], "placed": [9, 8], "ok": [True, False]})


@pytest.mark.parametrize(("error", "words"), [
    (None, ""), (InputError("no row"), "no column"), (KeyError("row"), "row")])
def test_an_error_is_expected_by_its_kind_and_its_words(error: Exception | None, words: str) -> None:
    with expect_error(InputError, "no row"):
        raise InputError("there is no row 3")
    with pytest.raises(KeyError if isinstance(error, KeyError) else AssertionError), expect_error(InputError, words):
        if error:
            raise error


# --- reading ---------------------------------------------------------------------------------------------------------


def test_reads_declared_columns_and_line_numbers(tmp_path: Path) -> None:
    file = tmp_path / "nodes.csv"
    file.write_bytes(b"\xef\xbb\xbfidle_w,rack, gpu ,name\r\n1e2,r1, 8.0 , ada \r\n\r\n"
                     b'5,"r\n2",0,bob\r\n7,r3,1,cy\r\n')
    table = read_table(file, COLUMNS)
    assert list(table.columns) == list(COLUMNS)
    assert table.index.tolist() == [2, 4, 6]  # a blank line and a cell of two lines
    assert table["gpu"].tolist() == [8, 0, 1] and table["gpu"].dtype == np.int64
    assert table["idle_w"].tolist() == [100.0, 5.0, 7.0]
    assert table["name"].tolist() == ["ada", "bob", "cy"]
    assert set(table["model"]) == {"A100"}


@pytest.mark.parametrize(("content", "row", "column", "value", "words"), [
    ("", None, None, None, "empty"),
    ("\n\n", None, None, None, "empty"),
    ("name,gpu,idle_w\n", 1, None, None, "no row"),
    (GOOD.replace("idle_w", "idle_W"), 1, "idle_w", None, "did you mean idle_W?"),
    (GOOD.replace("gpu", "name"), 1, "name", "name", "twice"),
    (GOOD.replace("bob,4", "bob"), 3, None, "bob,120", "2 cells under a header of 3"),
    (GOOD.replace("bob,4", "bob,4,4"), 3, None, "bob,4,4,120", "4 cells under a header of 3"),
    (GOOD.replace("bob", '"bob'), 3, None, None, "not CSV"),
    (GOOD.replace("bob", "ada"), 3, "name", "ada", "already in row 2"),
    (GOOD.replace("bob", " "), 3, "name", "", "the cell is empty"),
    (GOOD.replace(",4,", ",,"), 3, "gpu", "", "the cell is empty; give the number of GPUs, 0 to 8"),
    (GOOD.replace(",4,", ",four,"), 3, "gpu", "four", "'four' is not a number"),
    (GOOD.replace(",4,", ",1_0,"), 3, "gpu", "1_0", "is not a number"),
    (GOOD.replace(",4,", ",0x4,"), 3, "gpu", "0x4", "is not a number"),
    (GOOD.replace(",4,", ",\u0664,"), 3, "gpu", "\u0664", "is not a number"),
    (GOOD.replace(",4,", ",3.5,"), 3, "gpu", "3.5", "3.5 is not a whole number"),
    (GOOD.replace(",4,", ",-2,"), 3, "gpu", "-2", "-2 is negative"),
    (GOOD.replace(",4,", ",9,"), 3, "gpu", "9", "9 is above 8"),
    (GOOD.replace("120", "NaN"), 3, "idle_w", "NaN", "not a finite number"),
    (GOOD.replace("120", "-inf"), 3, "idle_w", "-inf", "not a finite number"),
    (GOOD.replace("120", "1e999"), 3, "idle_w", "1e999", "not a finite number"),
    (GOOD.replace("120", "-0.5"), 3, "idle_w", "-0.5", "-0.5 is negative; give a number, 0 or more"),
])
def test_one_clear_error(tmp_path: Path, content: str, row: int | None, column: str | None, value: str | None,
                         words: str) -> None:
    file = tmp_path / "nodes.csv"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_table(file, COLUMNS)
    error = caught.value
    message = str(caught.value)
    assert (error.file, error.row, error.column, error.value) == (file, row, column, value)
    assert message.startswith(str(file)) and words in message and "\n" not in message
    assert error.mend and message.endswith(error.mend)


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(GOOD)
    (tmp_path / "latin.csv").write_bytes("name,gpu,idle_w\nzo\u00eb,1,1\n".encode("latin-1"))
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(GOOD.encode() * 50)[:-20])
    (tmp_path / "plain.csv.gz").write_text(GOOD)
    for name, words in {"node.csv": "did you mean nodes.csv?", "nothing/like/it.csv": "no such file", ".": "folder",
                        "nodes.csv/x.csv": "cannot be read", "cut.csv.gz": "cut short", "plain.csv.gz": "damaged",
                        "latin.csv": "row 2: byte 0xeb is not UTF-8"}.items():
        with pytest.raises(InputError, match=words.replace("?", r"\?")):
            read_table(tmp_path / name, COLUMNS)


def test_errors_survive_a_process_boundary() -> None:
    error = InputError("-2 is negative", file="nodes.csv", row=7, column="gpu", value="-2", mend="give 0 or more")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) and copy.row == 7 and copy.mend == "give 0 or more"
    output = pickle.loads(pickle.dumps(OutputError("out: cannot be written; choose another --out")))
    assert str(output).startswith("out: ") and isinstance(output, SchedLabError)


# --- keys ------------------------------------------------------------------------------------------------------------


def test_key_depends_on_what_is_asked_not_how() -> None:
    key = input_key({"a": (1, 2), "b": np.float64(0.5), "c": Path("x/y"), "d": {"z": None, "y": True}})
    assert key == input_key({"d": {"y": np.True_, "z": None}, "c": "x/y", "b": 0.5, "a": np.array([1, 2])})
    assert len(key) == 16 and int(key, 16) >= 0
    assert key != input_key({"a": (2, 1), "b": 0.5, "c": "x/y", "d": {"z": None, "y": True}})


def test_key_of_a_set_does_not_depend_on_its_order() -> None:
    words = [f"word {number}" for number in range(10, 40)]  # in a set, in an order of this process
    assert input_key({"s": {*words}}) == input_key({"s": words})


# --- frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f.csv", "f.csv.gz", "pwr-fgd:0.1.csv"])
def test_round_trip_is_exact(tmp_path: Path, name: str) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"text": ["1", "NA", "", "a,b", 'q"', "two\nlines"],
                          "value": np.append(rng.standard_normal(4) * 10.0 ** rng.integers(-300, 300, 4),
                                             [math.nan, math.inf]),
                          "count": np.arange(6), "ok": [True, False] * 3})
    write_frame(frame, tmp_path / name, {})
    pd.testing.assert_frame_equal(read_frame(tmp_path / name), frame, check_exact=True)
    assert len(tree(tmp_path)) == 2


@pytest.mark.parametrize("rows", [3, 4, 7])
def test_a_table_that_is_written_in_pieces_has_the_bytes_of_pandas(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({
        "text": ["1", "NA", "", "a,b", 'q"', "two\nlines", "cr\r", " x ", "'", "\u00e9"],
        "plain": list("abcdefghij"), "gaps": [None, "b", math.nan, "", "e", *"fghij"],
        "value": [0.1, -0.0, math.nan, math.inf, 1e-300, 1e16, 123456789.125, 5e-324, 1e22, -1.0],
        "count": np.arange(10), "whole": pd.array([1, None, 3, *range(7)], "Int64"), "ok": [True, False] * 5,
        "half": np.arange(10, dtype=np.float32) / 3, "kind": pd.Categorical(["a", "b,"] * 5),
        "mixed": [1, "1", None, 2.5, True, *"fghij"]})
    whole = {name: frame[[name, "plain"]].to_csv(index=False, lineterminator="\n").encode() for name in frame}
    monkeypatch.setattr(frames, "CSV_ROWS", rows)
    assert {name: frames.csv_of(frame[[name, "plain"]]) for name in frame} == whole


def test_bytes_are_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = write_frame(FRAME, tmp_path / "a.csv.gz", {}).read_bytes()
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 100)  # gzip would store it
    assert write_frame(FRAME, tmp_path / "b.csv.gz", {}).read_bytes() == first
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_damage_is_found(tmp_path: Path) -> None:
    file = tmp_path / "f.csv.gz"
    asked = {"seed": 0}
    write_frame(FRAME, file, asked, wall_time_s=1.23456)
    assert json.loads((tmp_path / "f.json").read_text())["wall_time_s"] == 1.235
    whole = file.read_bytes()
    sidecar = (tmp_path / "f.json").read_bytes()
    for data, about in [(whole[:-1], sidecar), (whole[:-1] + b"x", sidecar), (b"", sidecar), (whole, sidecar[:-9]),
                        (whole, b"[]"), (whole, b""), (whole, None), (None, sidecar)]:
        for path, content in ((file, data), (tmp_path / "f.json", about)):
            path.unlink(missing_ok=True) if content is None else path.write_bytes(content)
        assert not is_finished(file, asked)
        with pytest.raises(InputError):
            read_frame(file)
    write_frame(FRAME, file, asked)
    assert is_finished(file, asked) and not is_finished(file, {"seed": 1})


@pytest.mark.parametrize("kind", [object, "str"])
@pytest.mark.parametrize("text", ["a\rb", "\r", "a\r\nb"])
def test_a_carriage_return_is_refused_before_anything_is_written(tmp_path: Path, text: str, kind: object) -> None:
    frame = pd.DataFrame({"name": pd.Series(["fine\nas it is", text], dtype=kind), "n": [1, 2]})
    with pytest.raises(InputError, match="column name: .* has a carriage return.*; replace it"):
        write_frame(frame, tmp_path / "f.csv", {})
    with pytest.raises(InputError, match="has a carriage return"):
        write_frame(pd.DataFrame({text: [1]}), tmp_path / "f.csv", {})
    assert list(tmp_path.iterdir()) == []


def test_a_frame_is_a_csv_or_parquet_file(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="rename"):
        write_frame(FRAME, tmp_path / "f.feather", {})
    assert tree(tmp_path) == []
    pytest.importorskip("pyarrow")
    write_frame(FRAME, tmp_path / "f.parquet", {})
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "f.parquet"), FRAME)


# --- writing whole or not at all -------------------------------------------------------------------------------------


def test_disk_full_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json({"old": 1}, tmp_path / "s.json")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(frames.os, "fsync", full)
    with pytest.raises(OutputError, match="No space left on device.*choose another --out"):
        write_json({"new": 2}, tmp_path / "s.json")
    with pytest.raises(OutputError):
        write_json({"new": 2}, tmp_path / "a" / "b" / "s.json")
    assert tree(tmp_path) == ["s.json"] and json.loads((tmp_path / "s.json").read_text()) == {"old": 1}


def test_below_a_regular_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in ("file", "file/below", "file/below/deeper"):
        with pytest.raises(OutputError, match="is a file, not a folder.*choose another --out"):
            ensure_writable(tmp_path / place)
        with pytest.raises(OutputError), atomic_folder(tmp_path / place):
            raise AssertionError("the block must not start")
    with pytest.raises(OutputError):
        write_bytes(b"x", tmp_path / "file" / "below.json")
    assert tree(tmp_path) == ["file"]


def test_ensure_writable_leaves_nothing(tmp_path: Path) -> None:
    ensure_writable(tmp_path / "a" / "b")
    ensure_writable(tmp_path)
    assert tree(tmp_path) == []


def test_folder_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    with atomic_folder(out) as hidden:
        assert hidden.parent == out.parent and hidden.name.startswith(".b.partial-")
        write_json({}, hidden / "figures" / "one.json")
        assert not out.exists()
    assert tree(tmp_path) == ["a", "a/b", "a/b/figures", "a/b/figures/one.json"]


def test_existing_folder_keeps_other_files_and_summary_comes_last(tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "note.txt").write_text("mine")
    order: list[str] = []
    replace = os.replace
    with atomic_folder(tmp_path) as hidden:
        for name in ("summary.json", "z.json", "a.csv", "sub/b.svg"):
            write_bytes(b"{}", hidden / name)
        monkeypatch.setattr(frames.os, "replace", lambda old, new: (order.append(Path(new).name), replace(old, new)))
    assert order == ["a.csv", "b.svg", "z.json", "summary.json"]
    assert tree(tmp_path) == ["a.csv", "note.txt", "sub", "sub/b.svg", "summary.json", "z.json"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, InputError, FileNotFoundError])
@pytest.mark.parametrize("place", ["old", "new", "new/deep/er"])
def test_failed_block_leaves_nothing(tmp_path: Path, error: type[BaseException], place: str) -> None:
    write_json({"old": 1}, tmp_path / "old" / "summary.json")
    before = tree(tmp_path)
    with pytest.raises(error, match="stop"), atomic_folder(tmp_path / place) as hidden:
        write_json({"new": 2}, hidden / "summary.json")
        raise error("stop")
    assert tree(tmp_path) == before
    assert json.loads((tmp_path / "old" / "summary.json").read_text()) == {"old": 1}


def test_output_errors_in_the_block_speak_of_the_folder_asked_for(tmp_path: Path) -> None:
    with pytest.raises(OutputError) as caught, atomic_folder(tmp_path / "out") as hidden:
        write_bytes(b"", hidden / "file")
        write_json({}, hidden / "file" / "below.json")
    assert str(tmp_path / "out" / "file") in str(caught.value) and "partial" not in str(caught.value)
    with pytest.raises(OutputError, match="choose another --out"), atomic_folder(tmp_path / "out") as hidden:
        (hidden / "no" / "such.txt").write_text("x")
    with pytest.raises(OutputError, match="No space"), atomic_folder(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert tree(tmp_path) == []


def test_file_in_the_way_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    (tmp_path / "b.csv").write_text("old")
    with pytest.raises(OutputError, match="a.csv is a folder"), atomic_folder(tmp_path) as hidden:
        write_bytes(b"new", hidden / "a.csv")
        write_bytes(b"new", hidden / "b.csv")
    assert tree(tmp_path) == ["a.csv", "b.csv"] and (tmp_path / "b.csv").read_text() == "old"


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_kill_9_while_writing(tmp_path: Path, what: str) -> None:
    out = tmp_path / "out"

    def write(value: int) -> None:
        if what == "file":
            write_json({"new": value}, out / "summary.json")
        else:
            with atomic_folder(out) as hidden:
                write_json({"new": value}, hidden / "summary.json")

    write_json({"old": 1}, out / "summary.json")
    if (writer := os.fork()) == 0:
        frames.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        write(2)
    assert os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1]) == -signal.SIGKILL
    assert json.loads((out / "summary.json").read_text()) == {"old": 1}
    assert len([name for name in os.listdir(out) if name.startswith(".")]) == 1  # hidden
    write(3)
    assert tree(tmp_path) == ["out", "out/summary.json"]
    assert json.loads((out / "summary.json").read_text()) == {"new": 3}


# --- inputs without end, and inputs that can be read once ------------------------------------------------------------


@pytest.mark.parametrize("reader", [lambda path: read_table(path, COLUMNS), frames.read_json])
@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_an_input_without_end_is_refused_and_the_bound_is_said(reader, device: str) -> None:
    with pytest.raises(InputError, match=f"{device}: there are more than 128 MiB; give a smaller file"):
        reader(device)


def test_a_gzip_file_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.csv.gz"
    bomb.write_bytes(gzip.compress(bytes(130 * 2**20), compresslevel=1))
    assert bomb.stat().st_size < 2**20
    with pytest.raises(InputError, match="more than 128 MiB in it, unpacked"):
        read_table(bomb, COLUMNS)


def test_a_pipe_into_which_nobody_writes_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(frames, "PATIENCE_S", 0.2)
    os.mkfifo(tmp_path / "silent.csv")
    with pytest.raises(InputError, match="silent.csv: nothing has come for 0.2 s; give a file"):
        read_table(tmp_path / "silent.csv", COLUMNS)


def test_a_pipe_is_read_once_and_its_very_bytes_are_hashed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    writer = threading.Thread(target=(tmp_path / "pipe.csv").write_text, args=(GOOD,))
    writer.start()
    file = frames.read_input(tmp_path / "pipe.csv")
    writer.join()
    (tmp_path / "same.csv").write_text(GOOD)
    assert file.sha256 == frames.sha256(tmp_path / "same.csv") == frames.read_input(tmp_path / "same.csv").sha256
    for _ in range(2):
        assert read_table(file, COLUMNS)["gpu"].tolist() == [8, 4]
    copy = pickle.loads(pickle.dumps(file))
    assert (copy, copy.content, copy.sha256) == (file, GOOD.encode(), file.sha256)
    with pytest.raises(InputError, match="no plain file"):
        frames.sha256(tmp_path / "pipe.csv")


def test_a_file_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(GOOD)
    first = frames.read_input(tmp_path / "nodes.csv")
    assert frames.read_input(tmp_path / "nodes.csv", first.sha256).content == GOOD.encode()
    (tmp_path / "nodes.csv").write_text(GOOD + "cy,1,1\n")
    with pytest.raises(InputError, match="has changed since it was first read"):
        frames.read_input(tmp_path / "nodes.csv", first.sha256)
    assert read_table(first, COLUMNS)["gpu"].tolist() == [8, 4]


def test_json_of_a_hundred_thousand_levels_is_one_error(tmp_path: Path) -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000):
        (tmp_path / "deep.json").write_text(text)
        with pytest.raises(InputError, match="deep.json: the lists and objects lie too deep"):
            frames.read_json(tmp_path / "deep.json")
    write_frame(FRAME, tmp_path / "a.csv", {"seed": 0})
    (tmp_path / "a.json").write_text("[" * 100_000)
    assert not is_finished(tmp_path / "a.csv", {"seed": 0})


@pytest.mark.parametrize(("mark", "words"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
@pytest.mark.parametrize("text", [GOOD, "\n" + GOOD, GOOD.replace("name", '"name"').replace("ada", '"ada"')])
def test_the_delimiter_is_named(tmp_path: Path, mark: str, words: str, text: str) -> None:
    (tmp_path / "nodes.csv").write_text(text.replace(",", mark).replace("231.5", "231,5"))
    row = 2 if text.startswith("\n") else 1
    with pytest.raises(InputError, match=f"row {row}: the cells are separated by {words}; separate them by commas"):
        read_table(tmp_path / "nodes.csv", COLUMNS)


def test_other_marks_in_a_table_with_commas_are_no_delimiters(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("name;nick,gpu,idle_w,name\nada;a,8,1,a|b\n")
    assert read_table(tmp_path / "nodes.csv", COLUMNS)["name"].tolist() == ["a|b"]


def test_embedded_data_is_found_beside_or_inside_the_package(tmp_path, monkeypatch):
    package = tmp_path / "sched_lab"
    package.mkdir()
    monkeypatch.setattr(frames, "PACKAGE", package)
    with pytest.raises(FileNotFoundError, match="nodes.csv"):
        frames.embedded("nodes.csv")
    checkout = package.parent / "data" / "embedded"
    checkout.mkdir(parents=True)
    (checkout / "nodes.csv").touch()
    assert frames.embedded("nodes.csv") == checkout / "nodes.csv"
    (package / "data").mkdir()
    (package / "data" / "nodes.csv").touch()
    assert frames.embedded("nodes.csv") == package / "data" / "nodes.csv"


def test_a_link_that_somebody_planted_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / f".mine.partial-{os.getpid()}").symlink_to(tmp_path / "theirs")
    write_bytes(b"mine", tmp_path / "mine")
    assert (tmp_path / "theirs").read_text() == "theirs" and (tmp_path / "mine").read_text() == "mine"
    assert tree(tmp_path) == ["mine", "theirs"]
