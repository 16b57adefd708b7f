"""A table of one's own: the map, its units, and what contradicts itself."""
import pytest

from sched_lab.fleet.read.columns import MEASURES, check_map, read_own, unit_of
from sched_lab.fleet.read.tables import Ledger, ReadOptions, Source, tables_of
from sched_lab.lab.frames import InputError


def read(text: str, columns=None):
    """Tables of one file."""
    ledger = Ledger()
    files = [Source("own.csv", text.encode())]
    check_map(files, columns or {})
    nodes, tasks = read_own(files, ledger, ReadOptions(columns or {}))
    return tables_of(nodes, tasks, ledger, "own.csv")


@pytest.mark.parametrize(("measure", "value", "column", "expected"), [
    ("memory_gib", "16", "memory_mib", 16384), ("memory_gb", "16", "memory_mib", 15259),
    ("memory_bytes", "1073741824", "memory_mib", 1024), ("memory_kib", "2048", "memory_mib", 2),
    ("cpus", "2.5", "cpu_milli", 2500), ("cpu_percent", "600", "cpu_milli", 6000),
    ("cpu_milli", "250", "cpu_milli", 250),
    ("gpu_percent", "50", "gpu_milli", 500), ("gpu_percent", "250", "num_gpus", 3), ("gpus", "0.25", "gpu_milli", 250),
    ("gpu_milli", "2000", "num_gpus", 2), ("submit_ms", "5000", "submit_s", 5), ("submit_h", "2", "submit_s", 7200),
    ("submit_min", "1.5", "submit_s", 90),
    ("walltime_h", "2", "walltime_s", 7200), ("priority", "7", "priority", 7), ("user", "=1+1", "user", "=1+1"),
    ("gpu_models", "A100|V100", "gpu_models", "A100|V100"),
])
def test_a_measure_states_its_unit(measure, value, column, expected):
    tables = read(f"name,x\na,{value}\n", {measure: "x"})
    assert tables.tasks[column].tolist() == [expected]
    assert read(f"name,x\na,{value}\n", {"x": measure}).tasks.equals(tables.tasks)
    assert f"column x is {measure}" in "\n".join(tables.ledger["reason"])
    assert read(f"name,{measure}\na,{value}\n").tasks.equals(tables.tasks)


@pytest.mark.parametrize(("value", "is_kept", "words"), [
    ("", True, ""), ("-3", True, "below 0"), ("inf", True, "finite"), ("sixteen", True, "finite"),
    ("16 GiB", True, "finite"), ("9" * 400, True, "finite"), ("1e300", False, "beyond 2**53"),
    ("1e308", False, "beyond 2**53")])
def test_a_hostile_row_of_memory_in_gib(value, is_kept, words):
    tables = read(f"name,num_gpus,memory_gib\na,1,{value}\nb,1,16\n")
    memory = tables.tasks.set_index("name")["memory_mib"]
    assert memory["b"] == 16384 and ("a" in memory) == is_kept and memory.isna().sum() == is_kept
    assert words in "\n".join(tables.ledger["reason"])


def test_tasks_that_name_one_job_start_together_where_a_map_says_so():
    table = "name,num_nodes,gang\na,1,j\nb,2,j\nc,1,k\nd,2,\n"
    tables = read(table, {"job": "gang"})
    assert tables.tasks[["name", "job"]].to_numpy().tolist() == [
        ["a", "j"], ["b/0", "j"], ["b/1", "j"], ["c", ""], ["d/0", "d"], ["d/1", "d"]]
    assert "tasks of one job start together" in set(tables.ledger["reason"])
    same = table.replace("gang", "job")
    assert read(same, {"job": "job"}).tasks.equals(tables.tasks)
    assert read(same).tasks["job"].tolist() == ["", "b", "b", "", "d", "d"]


@pytest.mark.parametrize("pair", [("name", "job"), ("job", "name")])
def test_a_name_that_stands_in_a_column_called_job(pair):
    for table in ("job,num_gpus\na,1\nb,1\n", "name,job,num_gpus\nx,a,1\nx,b,1\n"):
        assert read(table, dict([pair])).tasks[["name", "job"]].to_numpy().tolist() == [["a", ""], ["b", ""]]


def test_waits_and_durations_stand_in():
    tables = read("id,sub,w,d\nx,100,5,2\n", {"name": "id", "submit_s": "sub", "wait_s": "w", "duration_min": "d"})
    assert tables.tasks[["submit_s", "start_s", "end_s"]].to_numpy().tolist() == [[100, 105, 225]]
    assumed = read("id,sub,d\nx,100,2\n", {"name": "id", "submit_s": "sub", "duration_s": "d"})
    assert assumed.tasks[["start_s", "end_s"]].to_numpy().tolist() == [[100, 102]]
    assert "assumed" in set(assumed.ledger["what"])
    both = read("name,start_s,end_s,duration_min\nx,0,3600,120\n")
    assert "whole hours off" in "\n".join(both.ledger["reason"]) and both.tasks["end_s"].tolist() == [3600]


def test_times_of_several_units_and_forms():
    tables = read("name,sub_ms,start_min,run\na,1700000000000,28333334,0:10:00\nb,1700000060000,28333335,1:00:00\n",
                  {"submit_ms": "sub_ms", "start_min": "start_min", "duration_h": "run"})
    assert tables.tasks[["submit_s", "start_s", "end_s"]].to_numpy().tolist() == [[0, 40, 640], [60, 100, 3700]]
    dated = read("name,end_min\na,2024-01-31 00:10:00\nb,2024-01-31 00:20:00\n")
    assert dated.tasks["end_s"].tolist() == [0, 600]


STATES = """name,num_gpus,submit_s,start_s,end_s,state
a,1,0,5,9,COMPLETED
b,1,0,,9,CANCELLED
c,1,0,,,cancelled by user
d,1,0,4,,failed
e,1,0,5,9,Running
f,1,0,5,,PENDING
g,1,0,,9,
h,1,0,,,
i,1,0,7,7,CANCELLED
j,1,0,5,9,REQUEUED
k,1,0,5,9,levitating
"""


def test_states_say_what_times_cannot():
    tables = read(STATES)
    lives = tables.tasks.set_index("name")[["start_s", "end_s", "state"]].astype(object).fillna(-1)
    assert {name: tuple(row) for name, row in lives.iterrows()} == {
        "a": (5, 9, ""), "b": (-1, 9, ""), "e": (5, -1, ""), "f": (-1, -1, "waiting"), "g": (-1, 9, ""),
        "h": (-1, -1, ""), "i": (-1, 7, ""), "j": (5, 9, ""), "k": (5, 9, "")}
    counts = tables.ledger.set_index("reason")["count"]
    assert counts["the state says that it is over, and no time says since when"] == 2
    assert counts["ended and never started: it waited and left, and was no load"] == 3
    assert counts["column state: a state that is not known; the times decide"] == 1


def test_a_duration_says_when_a_row_started():
    tables = read("name,submit_s,start_s,end_s,duration_s\na,0,,90,60\nb,7,,,60\nc,7,,80,0\nd,0,3,,60\n")
    assert tables.tasks[["start_s", "end_s"]].astype(object).fillna(-1).values.tolist() == [
        [30, 90], [7, 67], [-1, 80], [3, 63]]


def test_a_job_on_several_nodes_and_names_filled_in():
    tables = read("num_gpus,num_nodes,cpus\n6,2,8\n1,1,4\n")
    assert tables.tasks["name"].tolist() == ["task-2/0", "task-2/1", "task-3"]
    assert tables.tasks["num_gpus"].tolist() == [3, 3, 1] and tables.tasks["cpu_milli"].tolist() == [4000, 4000, 4000]


def test_nodes_are_told_from_tasks():
    tables = read("host,type,n,mem\nh0,A100,8,80\n", {"name": "host", "gpu_model": "type", "num_gpus": "n",
                                                      "gpu_memory_gib": "mem"})
    assert tables.nodes[["name", "gpu_model"]].to_numpy().tolist() == [["h0", "A100"]]
    assert tables.nodes["gpu_memory_mib"].tolist() == [81920] and not len(tables.tasks)


@pytest.mark.parametrize(("columns", "words"), [
    ({"memory_gib": "mem_gb"}, "memory_gb=mem_gb"), ({"memory_mib": "mem_gb"}, "memory_gb=mem_gb"),
    ({"num_gpus": "gpu"}, "no file has such a column"), ({"gpu_count": "mem_gb"}, "neither side is a measure"),
    ({"cpus": "n", "cpu_milli": "mem"}, "both there"), ({"gpus": "n", "mem": "gpus"}, "is both"),
])
def test_a_map_that_contradicts_itself_is_refused(columns, words):
    with pytest.raises(InputError, match=words):
        read("name,n,mem,mem_gb\na,1,2,3\n", columns)


def test_a_table_without_a_known_column_is_refused():
    with pytest.raises(InputError, match="no column has a name that is known"):
        read("foo,bar\n1,2\n")


def test_shares_of_several_gpus_are_those_of_each():
    tables = read("name,num_gpus,gpu_milli\na,2,500\nb,0,0\n")
    assert tables.tasks["gpu_milli"].tolist() == [500, 0]


def test_every_measure_names_its_own_unit():
    for name in MEASURES:
        assert unit_of(name) in ("", name.rpartition("_")[2]), name
