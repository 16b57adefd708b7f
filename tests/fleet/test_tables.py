"""The pair of tables: what goes in comes back, and nothing leaves it in silence."""
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.fleet.read.tables import (
    CLUSTER_FILES,
    ClusterTables,
    Ledger,
    Source,
    milli_of_profile,
    numbers_in,
    parsed,
    read_cluster,
    tables_of,
    text_table,
    write_cluster,
)
from sched_lab.lab.frames import InputError


def some_tables(**columns) -> ClusterTables:
    nodes = pd.DataFrame({"name": ["ant", "bee"], "num_gpus": [2, 4], "labels": ["{}", '{"a": "b"}']})
    tasks = pd.DataFrame({"name": ["x", "y"], "submit_s": [100, 160], "num_gpus": [1, 2], **columns})
    return tables_of(nodes, tasks, Ledger(), "here")


def test_a_cluster_comes_back_as_it_was(tmp_path):
    tables = some_tables(user=['=SUM(A1)', '<b>"quoted", and more</b>'], start_s=[100.25, None], constraints=["", "{}"])
    write_cluster(tables, tmp_path / "c")
    again = read_cluster(tmp_path / "c")
    for name in ("nodes", "tasks", "ledger"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(tables, name))
    assert again.about["zero"] is None


def test_the_tables_have_the_columns_that_are_promised(tmp_path):
    write_cluster(some_tables(), tmp_path / "c")
    heads = [(tmp_path / "c" / name).read_text().splitlines()[0] for name in CLUSTER_FILES]
    assert heads == ["name,gpu_model,num_gpus,cpu_milli,memory_mib,gpu_memory_mib,labels",
                     "name,submit_s,start_s,end_s,num_gpus,gpu_milli,mig_profile,gpu_models,cpu_milli,memory_mib,node,"
                     "gpu_list,user,queue,priority", "file,row,what,reason,count"]
    assert "x,100,,,1," in (tmp_path / "c" / "tasks.csv").read_text()  # whole numbers stay whole


def test_a_cluster_without_rows_comes_back(tmp_path):
    write_cluster(tables_of(pd.DataFrame(), pd.DataFrame(), Ledger(), "nothing"), tmp_path / "c")
    assert len(read_cluster(tmp_path / "c").tasks) == 0


def test_dates_count_from_the_earliest_of_them():
    tasks = pd.DataFrame({"name": ["x", "y"], "submit_s": [1.7e9 + 5, 1.7e9], "end_s": [None, 1.7e9 + 9]})
    tables = tables_of(pd.DataFrame(), tasks, Ledger(), "here")
    assert tables.about["zero"] == "2023-11-14T22:13:20Z"
    assert tables.tasks["submit_s"].tolist() == [5, 0] and tables.tasks["end_s"].tolist() == [pd.NA, 9]


def test_repeated_and_impossible_rows_are_in_the_ledger():
    tasks = pd.DataFrame({"name": ["x", "x", "x", "", "z", "w"], "num_gpus": [1, 1, 2, 1, -1, 2.0**60]},
                         index=range(2, 8))
    tables = tables_of(pd.DataFrame(), tasks, Ledger(), "here")
    assert tables.tasks["name"].tolist() == ["x", "x#2"]
    lines = [(row, what) for row, what in zip(tables.ledger["row"], tables.ledger["what"], strict=True)
             if not pd.isna(row)]
    assert lines == [(5, "dropped"), (6, "dropped"), (3, "dropped"), (4, "interpreted")]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["dropped", "filled in"]), st.sampled_from("xyz"),
                          st.integers(1, 5)), max_size=30))
def test_the_ledger_counts_every_row(notes):
    ledger = Ledger()
    for row, (file, what, reason, count) in enumerate(notes):
        ledger.note(file, row, what, reason, count)
    frame = ledger.frame()
    assert int(frame["count"].sum()) == sum(count for *_, count in notes)
    assert not frame.duplicated(["file", "what", "reason"]).any()
    for line in frame.itertuples():
        first = next(row for row, note in enumerate(notes) if note[:3] == (line.file, line.what, line.reason))
        assert line.row == first


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_every_encoding_of_text_is_read(encoding):
    source = Source("x", '{"näme": ["Zoë"]}'.encode(encoding))
    assert source.json() == {"näme": ["Zoë"]}


BAD_JSON = {
    "cut": (b'{"items": [{"a"', "cut short at position"), "empty": (b"   ", "empty"),
    "not json": (b"{'a': 1}", "not JSON"),
    "half": (b'["\\udc00"]', "half of a character"),
    "twice": (b'{"a": 1, "a": 2}', "twice"), "nan": (b'[NaN]', "NaN"), "deep": (b"[" * 100_000, "deep|cut short"),
    "binary": (b"\x80\x81\x82\x83", "not UTF-8"), "half utf-16": ("[1]".encode("utf-16")[:-1], "not UTF-16")}


@pytest.mark.parametrize("kind", BAD_JSON)
def test_damaged_json_names_file_and_reason(kind):
    data, words = BAD_JSON[kind]
    with pytest.raises(InputError, match=f"dump.json.*({words})"):
        Source("dump.json", data).json()


def test_a_cut_json_says_where():
    with pytest.raises(InputError, match="row 2: the JSON is cut short at position 9 of 11"):
        parsed('{"a": 1,\n"b', "x")


def test_values_after_each_other_are_a_list():
    assert parsed('{"a": 1}\n{"a": 2}\n', "x") == [{"a": 1}, {"a": 2}]


def test_a_table_is_texts_by_line():
    table = text_table(Source("x", b"\xef\xbb\xbfa , b\n1, x \n\"2\n3\",y\n"))
    assert table["a"].tolist() == ["1", "2\n3"] and table["b"].tolist() == ["x", "y"] and list(table.index) == [2, 3]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_commas_semicolons_and_tabs_stand_between_cells(separator):
    text = 'a,b,"c, d"\n1,x,"7,5"\n2,,8\n'.replace(",", "\0").replace('"c\0 d"', '"c, d"').replace(
        '"7\0005"', '"7,5"').replace("\0", separator)
    table = text_table(Source("x", text.encode()))
    assert table.values.tolist() == [["1", "x", "7,5"], ["2", "", "8"]] and list(table)[2] == "c, d"


@pytest.mark.parametrize(("texts", "numbers"), [
    (["1,5", "2"], [1.5, 2]), (["1.234,5", "2.000"], [1234.5, 2000]), (["1,234,567", "1,5"], None),
    (["1,234", "5"], None), (["1,234.5", "1,234"], [1234.5, 1234]), (["0,125", "0,250"], [0.125, 0.25]),
    (["1,5", "2.5"], None)])
def test_a_comma_is_read_in_one_way(texts, numbers):
    column = pd.Series(texts, name="gpus", index=range(2, 2 + len(texts)))
    if numbers is None:
        with pytest.raises(InputError, match="x, row [23], column gpus"):
            numbers_in(column, Source("x", b""), Ledger())
    else:
        assert numbers_in(column, Source("x", b""), Ledger()).tolist() == numbers


@pytest.mark.parametrize("text", ["a,b\n1\n", "a,b\n1,2,3\n", "a,a\n1,2\n", "a,b\n", 'a,b\n"1,2\n'])
def test_a_table_of_another_shape_is_refused(text):
    with pytest.raises(InputError, match="x"):
        text_table(Source("x", text.encode()))


def test_numbers_that_are_none_are_unknown_and_said_to_be():
    ledger = Ledger()
    numbers = numbers_in(pd.Series(["1", "1e3", "", "N/A", "many", "inf", "-2"], name="gpus"), Source("x", b""), ledger)
    assert numbers.tolist() == [1, 1000, pd.NA, pd.NA, pd.NA, pd.NA, -2]
    assert ledger.frame()["count"].tolist() == [2]


@given(st.integers(1, 7), st.sampled_from([5, 6, 10, 12, 20, 24, 40, 80]))
def test_instances_of_one_kind_never_overfill_a_gpu(slices, memory):
    milli = milli_of_profile(f"{slices}g.{memory}gb")
    if milli is not None:
        on_one = 4 if memory == 6 * slices else 7
        assert 0 < milli <= 1000 and milli * (on_one // slices) <= 1000


DAMAGED = {
    "no tasks.csv": lambda c: (c / "tasks.csv").unlink(),
    "no column": lambda c: (c / "nodes.csv").write_text("name\nx\n"),
    "text as number": lambda c: edit(c, ",1,", ",one,"), "fraction": lambda c: edit(c, ",1,", ",1.5,"),
    "name twice": lambda c: edit(c, "\ny,", "\nx,"), "no name": lambda c: edit(c, "\ny,", "\n,"),
    "cut row": lambda c: edit(c, "y,160,,,2", "y,160"), "infinite": lambda c: edit(c, "160", "inf"),
    "beyond numbers": lambda c: edit(c, "160", "1e300"),
    "truths": lambda c: edit(c, "x,100", "x,true") or edit(c, "y,160", "y,false"),
    "binary": lambda c: (c / "tasks.csv").write_bytes(b"\x00\xff" * 9),
    "empty": lambda c: (c / "tasks.csv").write_text(""),
    "about": lambda c: (c / "about.json").write_text("{"), "ledger": lambda c: (c / "ledger.csv").write_text("file\n")}


ROWS = {"text as number", "fraction", "name twice", "no name", "cut row", "infinite", "beyond numbers", "truths"}


def edit(folder, old, new):
    text = (folder / "tasks.csv").read_text()
    assert old in text
    (folder / "tasks.csv").write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_cluster_is_refused_with_its_file(kind, tmp_path):
    write_cluster(some_tables(), tmp_path / "c")
    DAMAGED[kind](tmp_path / "c")
    with pytest.raises(InputError, match=r"tasks\.csv, row [23]" if kind in ROWS else r"\.csv|about\.json"):
        read_cluster(tmp_path / "c")
