"""Tasks, classes, target workload, recorded arrivals, and where data comes from."""

from __future__ import annotations

import csv
import functools
import gc
import gzip
import hashlib
import http.server
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab import traces
from sched_lab.cluster import default_cluster, toy_cluster
from sched_lab.lab.frames import InputError, OutputError, SchedLabError, read_frame, sha256
from sched_lab.traces import (
    CLASS_KEY,
    OPENB_FILES,
    admits,
    data_folders,
    default_tasks,
    describe_tasks,
    fetch_openb,
    find_data,
    find_reference,
    models_of,
    read_arrivals,
    read_tasks,
    target_workload,
    task_classes,
    toy_tasks,
)
from studies.embedded import generate_tasks, quotas, task_statistics
from tests.command_line import assert_refused_at, content
from tests.online.recorded import recorded_seeds

ROOT = Path(__file__).parents[1]
TRACES = ["default", "gpushare40", "gpushare60", "gpushare80", "gpushare100", "gpuspec10", "gpuspec20", "gpuspec25",
          "gpuspec33", "multigpu20", "multigpu30", "multigpu40", "multigpu50"]
HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
GOOD = HEADER + "web,8000,4096,0,0,\nserve,4000,2048,1,470,T4|G2\ntrain,32000,65536,4,1000,\n"


def written(folder: Path, text: str) -> Path:
    """Write a task list into a file."""
    file = folder / "tasks.csv"
    file.write_text(text, encoding="utf-8")
    return file


def public(name: str) -> Path:
    """Find a file of the public trace, or skip."""
    path = find_data(f"openb/{name}")
    if path is None:
        pytest.skip(f"openb/{name} is not here: sched-lab fetch openb")
    return path


def reference(name: str) -> Path:
    """Find a file of recorded results, or skip."""
    path = find_reference(name)
    if path is None:
        pytest.skip(f"reference/{name} is not here")
    return path


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_task_list_is_read(tmp_path: Path) -> None:
    tasks = read_tasks(written(tmp_path, GOOD))
    assert tasks.name.tolist() == ["web", "serve", "train"]
    assert tasks.num_gpus.tolist() == [0, 1, 4]
    assert tasks.gpu_milli.tolist() == [0, 470, 1000]
    assert tasks.gpu_demand_milli.tolist() == [0, 470, 4000]
    assert tasks.gpu_spec.tolist() == ["", "T4|G2", ""] and tasks.cpu_spec.tolist() == ["", "", ""]
    assert all(a.dtype == np.int64 for a in (tasks.cpu_milli, tasks.memory_mib, tasks.num_gpus, tasks.gpu_milli))


def test_a_task_list_without_models_is_read(tmp_path: Path) -> None:
    tasks = read_tasks(written(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,0,1,1000\n"))
    assert tasks.gpu_spec.tolist() == [""]


@pytest.mark.parametrize(("cells", "num_gpus", "gpu_milli", "spec"), [
    ("1,1000,|T4||G2|", 1, 1000, "T4|G2"),  # empty items are dropped
    ("1,1000,G2|T4|T4", 1, 1000, "G2|T4|T4"),  # order and repetitions are kept: they are part of the class
    ("1,1000,T4 | G2", 1, 1000, "T4|G2"),
])
def test_demands_are_made_plain(tmp_path: Path, cells: str, num_gpus: int, gpu_milli: int, spec: str) -> None:
    tasks = read_tasks(written(tmp_path, f"{HEADER}a,1000,1024,{cells}\n"))
    assert (tasks.num_gpus[0], tasks.gpu_milli[0], tasks.gpu_spec[0]) == (num_gpus, gpu_milli, spec)


@pytest.mark.parametrize(("right", "wrong", "where", "what"), [
    ("4,1000", "4,4000", "row 4, column gpu_milli", "on each GPU: give 1000"),
    ("4,1000", "4,500", "row 4, column gpu_milli", "only one GPU can be shared"),
    ("4,1000", "4,0", "row 4, column gpu_milli", "is a share"),
    ("4,1000", "-4,1000", "row 4, column num_gpu", "negative"),
    ("1,470", "1,0", "row 3, column gpu_milli", "is no demand"),
    ("1,470", "1,1500", "row 3, column gpu_milli", "is more than one GPU"),
    ("1,470", "1,-470", "row 3, column gpu_milli", "negative"),
    ("num_gpu", "gpus", "row 1, column num_gpu", "missing"),
])
def test_a_wrong_task_list_is_refused_with_its_place(
        tmp_path: Path, right: str, wrong: str, where: str, what: str) -> None:
    assert_refused_at(read_tasks, written(tmp_path, GOOD.replace(right, wrong)), where, what)


@pytest.mark.parametrize(("column", "value", "what"), [
    ("gpu_milli", 1500, "1500 is more than one GPU, and the task asks for one"), ("gpu_milli", 0, "is no demand"),
    ("cpu_milli", -1, "-1 is negative"), ("memory_mib", -1, "-1 is negative"), ("num_gpus", 2, "is a share"),
    ("num_gpus", 0, "500 is a demand, and the task asks for no GPU"),
])
def test_tasks_made_in_a_program_obey_the_same_rules(column: str, value: int, what: str) -> None:
    tasks = toy_tasks()
    wrong = getattr(tasks, column).copy()
    wrong[1] = value  # task two asks for a share of 500
    with pytest.raises(InputError, match=r"column \w+: task two: ") as caught:
        replace(tasks, **{column: wrong})
    assert what in str(caught.value) and caught.value.mend


def test_models_are_admitted_by_their_whole_name() -> None:
    assert models_of("") == models_of("||") == []
    assert admits("", "T4") and admits("T4|G2", "G2") and admits("T4", "T4")
    assert not admits("G2", "G") and not admits("G", "G2") and not admits("T4|G2", "")


# --- classes and target workload -------------------------------------------------------------------------------------


def rows_of(classes: traces.TaskClasses) -> list[tuple[object, ...]]:
    """Classes as tuples of their key and count."""
    return list(zip(*(getattr(classes, key).tolist() for key in [*CLASS_KEY, "count"]), strict=True))


@pytest.mark.parametrize("column", CLASS_KEY)
def test_tasks_that_differ_in_the_key_are_two_classes(column: str) -> None:
    two = toy_tasks().take(np.array([3, 3]))
    assert len(task_classes(two)[0]) == 1
    values = getattr(two, column).copy()
    values[1] = "T4" if "spec" in column else values[1] + (-1 if column == "gpu_milli" else 1)
    assert len(task_classes(type(two)(**{**vars(two), column: values}))[0]) == 2


def test_a_share_that_is_reached_exactly_needs_no_further_class() -> None:
    assert [len(target_workload(toy_tasks(), share)) for share in (2 / 9, 0.23)] == [1, 2]  # the first class has 2


@pytest.mark.parametrize("kept_share", [0, -1, 1.01, float("nan")])
def test_a_share_outside_its_range_is_refused(kept_share: float) -> None:
    with pytest.raises(ValueError, match="kept_share"):
        target_workload(toy_tasks(), kept_share)


@pytest.mark.parametrize("trace", TRACES)
def test_the_target_workload_is_that_of_the_authors_to_the_last_bit(trace: str) -> None:
    expected = json.loads(reference("pwr/typical_pods.json").read_bytes())[trace]
    target = target_workload(read_tasks(public(f"openb_pod_list_{trace}.csv")))
    assert [row[:4] for row in rows_of(target)] == [
        (pod["cpu_milli"], pod["gpu_milli"], pod["num_gpu"], pod["gpu_spec"]) for pod in expected]
    assert target.popularity.tolist() == [pod["popularity"] for pod in expected]  # ==, not nearly
    kept = int(target.count.sum())
    assert ((target.count / target.num_tasks) / (kept / target.num_tasks)).tolist() == target.popularity.tolist()


def test_classes_of_the_default_trace_are_those_of_a_plain_count() -> None:
    path = public("openb_pod_list_default.csv")
    with open(path, newline="", encoding="utf-8") as file:
        counted = Counter((int(row["cpu_milli"]), int(row["gpu_milli"]), int(row["num_gpu"]), row["gpu_spec"], "")
                          for row in csv.DictReader(file))
    classes, class_of_task = task_classes(read_tasks(path))
    expected = sorted(counted.items(), key=lambda item: (item[1], item[0]), reverse=True)
    assert rows_of(classes) == [(*key, count) for key, count in expected]
    assert len(classes) == 91 and np.bincount(class_of_task).tolist() == classes.count.tolist()


# --- summaries -------------------------------------------------------------------------------------------------------


def test_requests_are_listed_by_size(tmp_path: Path) -> None:
    rows = "".join(f"t{i},1000,0,{gpus},{milli},\n" for i, (gpus, milli) in enumerate(
        [(16, 1000), (2, 1000), (1, 1000), (1, 999), (0, 0), (1, 1)]))
    table = describe_tasks(read_tasks(written(tmp_path, HEADER + rows)))
    assert table["gpu_request"].tolist() == ["0", "(0, 1)", "1", "2", "16"]
    assert table["share_of_gpu_demand"].sum() == pytest.approx(1)


def test_a_trace_without_gpu_demand_is_described(tmp_path: Path) -> None:
    table = describe_tasks(read_tasks(written(tmp_path, HEADER + "a,1000,0,0,0,\n")))
    assert table["share_of_tasks"].tolist() == [1] and table["share_of_gpu_demand"].tolist() == [0]


def test_the_stored_statistics_are_those_of_the_trace() -> None:
    stored = read_frame(ROOT / "data" / "results" / "traces" / "default_statistics.csv")
    pd.testing.assert_frame_equal(stored, task_statistics(read_tasks(public("openb_pod_list_default.csv"))))


# --- the embedded workload -------------------------------------------------------------------------------------------


def test_the_default_workload_asks_for_what_the_default_trace_asks_for() -> None:
    stored = read_frame(ROOT / "data" / "results" / "traces" / "default_statistics.csv")
    both = stored.merge(task_statistics(default_tasks()), on=["gpu_request", "statistic"])
    both = both[both["gpu_request"].isin(["all", "0", "(0, 1)", "1"])
                & ~both["statistic"].isin(["classes", "memory_gib_total"])]
    np.testing.assert_allclose(both["value_y"], both["value_x"], rtol=0.03)


@pytest.mark.parametrize("num_tasks", [1, 100])
def test_any_number_of_tasks_can_be_generated(num_tasks: int) -> None:
    table = generate_tasks(num_tasks=num_tasks)
    assert len(table) == num_tasks and table["name"].is_unique


@pytest.mark.parametrize("total", [0, 9, 8152])
def test_quotas_add_up_and_miss_by_less_than_one(total: int) -> None:
    weights = {"a": 50, "b": 35, "c": 10, "d": 5}
    counts = quotas(weights, total)
    assert counts.sum() == total
    assert (np.abs(counts - np.array([*weights.values()]) * total / 100) < 1).all()


# --- recorded arrivals -----------------------------------------------------------------------------------------------

RECORDING = {"seeds": {"7": {"pod_rows": [8, 0, 0], "node_rank_by_sorted_name": [2, 0, 3, 1]},
                       "8": {"pod_rows": [], "node_rank_by_sorted_name": [0, 1, 2, 3]}}}


def recorded(folder: Path, content: object, pack: bool = False) -> Path:
    """Write an arrivals file."""
    file = folder / "arrivals.json"
    data = json.dumps(content).encode()
    file.write_bytes(gzip.compress(data) if pack else data)
    return file


@pytest.mark.parametrize("pack", [False, True])
def test_arrivals_are_read(tmp_path: Path, pack: bool) -> None:
    file = recorded(tmp_path, RECORDING, pack)
    arrivals = read_arrivals(file, 7, toy_cluster(), toy_tasks())
    assert arrivals.task_row.tolist() == [8, 0, 0]
    assert arrivals.node_rank.tolist() == [2, 0, 3, 1]
    assert read_arrivals(file, 8, toy_cluster(), toy_tasks()).task_row.tolist() == []


def test_ranks_follow_names_and_not_the_order_of_the_file(tmp_path: Path) -> None:
    file = recorded(tmp_path, RECORDING)
    for order in ([3, 2, 1, 0], [1, 3, 0, 2]):
        nodes = toy_cluster().take(np.array(order))
        rank = read_arrivals(file, 7, nodes, toy_tasks()).node_rank
        assert dict(zip(nodes.name, rank.tolist(), strict=True)) == {"ant": 2, "bee": 0, "cat": 3, "dog": 1}


def spoiled(**changes: object) -> dict[str, object]:
    """Return the recording with another entry in seed 7; None takes it out."""
    entry = {key: value for key, value in {**RECORDING["seeds"]["7"], **changes}.items() if value is not None}
    return {"seeds": {"7": entry}}


@pytest.mark.parametrize(("content", "what"), [
    (spoiled(node_rank_by_sorted_name=[0, 1, 2]), "ranks 3 nodes, the cluster has 4"),
    (spoiled(node_rank_by_sorted_name=[0, 1, 2, 2]), "not a permutation"),
    (spoiled(node_rank_by_sorted_name=[1, 2, 3, 4]), "not a permutation"),
    (spoiled(pod_rows=[0, 9]), "task row 9, the trace has rows 0 to 8"),
    (spoiled(pod_rows=[0, -1]), "task row -1"),
    (spoiled(pod_rows=[0.5]), "no order of rows"),       # not truncated to 0
    (spoiled(pod_rows=[True]), "no order of rows"),
    (spoiled(pod_rows=[[0], [1]]), "no order of rows"),
    (spoiled(pod_rows=[2**70]), "no order of rows"),
    (spoiled(pod_rows=None), "no order of rows"),
    (spoiled(node_rank_by_sorted_name=None), "no order of rows"),
    ({"seeds": {"7": [0, 1]}}, "no order of rows"),
    ({"seeds": {"42": {}, "43": {}}}, "there is no seed 7; choose one of 42, 43"),
    ({"seeds": [7]}, "not an arrivals file"),
    ({"seed": {}}, "not an arrivals file"),
])
def test_wrong_arrivals_are_refused(tmp_path: Path, content: object, what: str) -> None:
    file = recorded(tmp_path, content)
    with pytest.raises(InputError, match=re.escape(str(file))) as caught:
        read_arrivals(file, 7, toy_cluster(), toy_tasks())
    assert what in str(caught.value) and caught.value.mend


def test_recorded_arrivals_fit_the_public_trace() -> None:
    tasks = read_tasks(public("openb_pod_list_default.csv"))
    nodes = default_cluster()
    path = reference("pwr/arrivals/default.json.gz")
    arrivals = read_arrivals(path, recorded_seeds(path)[0], nodes, tasks)
    # each task once, in random order, before any task comes again
    assert sorted(arrivals.task_row[: len(tasks)].tolist()) == list(range(len(tasks)))
    assert sorted(arrivals.node_rank.tolist()) == list(range(len(nodes)))


# --- where data comes from -------------------------------------------------------------------------------------------


def test_the_readers_own_folder_comes_first_and_the_embedded_data_last(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "named"
    wanted = tmp_path / "wanted"
    named.mkdir()
    wanted.mkdir()
    monkeypatch.setenv("SCHED_LAB_DATA", str(named))
    assert data_folders()[0] == named
    assert data_folders(wanted)[0] == wanted and named not in data_folders(wanted)
    assert data_folders()[-1] == ROOT / "data" / "embedded"
    assert find_data("nodes.csv") == ROOT / "data" / "embedded" / "nodes.csv"
    (named / "nodes.csv").write_text("mine")
    assert find_data("nodes.csv") == named / "nodes.csv"
    assert find_data("no/such/file.csv") is None
    monkeypatch.setenv("SCHED_LAB_DATA", "")
    assert named not in data_folders()  # empty is not set


def test_the_user_cache_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SCHED_LAB_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "sched_lab" not in data_folders()  # it does not exist
    (tmp_path / "sched_lab").mkdir()
    assert tmp_path / "sched_lab" in data_folders()


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(InputError, match="absent: there is no such folder"):
        find_data("nodes.csv", absent)
    monkeypatch.setenv("SCHED_LAB_DATA", str(absent))
    with pytest.raises(InputError, match="SCHED_LAB_DATA"):
        find_data("nodes.csv")
    assert find_data("nodes.csv", tmp_path) is not None  # an explicit folder overrules the variable


def test_reference_results_lie_beside_the_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    assert find_reference("mine/only.json", data) is None
    (tmp_path / "reference" / "mine").mkdir(parents=True)
    (tmp_path / "reference" / "mine" / "only.json").write_text("{}")
    assert find_reference("mine/only.json", data) == tmp_path / "reference" / "mine" / "only.json"


def test_the_checksums_are_those_of_the_trace_at_hand() -> None:
    for name, checksum in OPENB_FILES.items():
        assert sha256(public(name)) == checksum


def test_the_readme_names_every_public_file() -> None:
    text = (ROOT / "data" / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` | `{checksum}` |" in text for name, checksum in OPENB_FILES.items())


# --- fetching --------------------------------------------------------------------------------------------------------

CONTENT = {"a.csv": b"first\n" * 1000, "b.csv": b"second\n" * 1000, "c.csv": b"third\n" * 1000}


class Source(http.server.SimpleHTTPRequestHandler):
    """A quiet file server that can break off in the middle of b.csv."""

    breaks_off = False
    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.breaks_off and self.path.endswith("b.csv"):
            self.send_response(200)
            self.send_header("Content-Length", "7000")
            self.end_headers()
            self.wfile.write(b"second\n")
            return
        super().do_GET()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """Address and folder of a source with three small files, which stand for the public ones."""
    folder = tmp_path / "source"
    folder.mkdir()
    for name, data in CONTENT.items():
        (folder / name).write_bytes(data)
    monkeypatch.setattr(traces, "OPENB_FILES", {n: hashlib.sha256(d).hexdigest() for n, d in CONTENT.items()})
    monkeypatch.setattr(Source, "breaks_off", False)
    monkeypatch.setattr(Source, "asked", [])
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    handler = functools.partial(Source, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", folder
        server.shutdown()
    gc.collect()  # the socket of a failed download is left to the garbage collector: here, not in a later test


def test_the_trace_is_fetched_and_found(source: tuple[str, Path], tmp_path: Path) -> None:
    url, _ = source
    assert fetch_openb(tmp_path / "data", url) == tmp_path / "data" / "openb"
    assert content(tmp_path / "data") == {f"openb/{name}": data for name, data in CONTENT.items()}
    assert find_data("openb/a.csv", tmp_path / "data") == tmp_path / "data" / "openb" / "a.csv"
    assert len(Source.asked) == 3
    fetch_openb(tmp_path / "data", url)
    assert len(Source.asked) == 3  # what is there and right is not fetched again
    (tmp_path / "data" / "openb" / "a.csv").write_bytes(b"edited")
    fetch_openb(str(tmp_path / "data"), url, progressbar=True)
    assert content(tmp_path / "data")["openb/a.csv"] == CONTENT["a.csv"] and len(Source.asked) == 4


def test_the_user_cache_is_the_default(
        source: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SCHED_LAB_DATA", raising=False)
    assert fetch_openb(base_url=source[0]) == tmp_path / "cache" / "sched_lab" / "openb"
    assert find_data("openb/c.csv") is not None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("fault", "reason"), [
    ("changed", "another checksum"), ("missing", "404"), ("cut short", "cannot be downloaded|another checksum")])
def test_a_file_that_cannot_be_had_is_named_and_not_kept(
        source: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str) -> None:
    url, folder = source
    if fault == "changed":
        (folder / "b.csv").write_bytes(b"something else")
    elif fault == "missing":
        (folder / "b.csv").unlink()
    else:
        monkeypatch.setattr(Source, "breaks_off", True)
    with pytest.raises(InputError, match=reason) as caught:
        fetch_openb(tmp_path / "data", url)
    assert "b.csv" in str(caught.value) and "sched-lab fetch openb again" in str(caught.value)
    assert content(tmp_path / "data") == {"openb/a.csv": CONTENT["a.csv"]}  # whole, and right

    monkeypatch.setattr(Source, "breaks_off", False)
    (folder / "b.csv").write_bytes(CONTENT["b.csv"])
    fetch_openb(tmp_path / "data", url)
    assert len(content(tmp_path / "data")) == 3
    assert sum(path.endswith("a.csv") for path in Source.asked) == 1  # it went on where it had stopped


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_without_a_connection_nothing_is_left_behind(source: tuple[str, Path], tmp_path: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), Source) as closed:
        port = closed.server_port  # nobody listens there any more
    with pytest.raises(InputError, match="ConnectionError.*check the connection"):
        fetch_openb(tmp_path / "new" / "data", f"http://127.0.0.1:{port}/")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_written_is_named(source: tuple[str, Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="file.*cannot be written.*choose another folder"):
        fetch_openb(tmp_path / "file", source[0])
    assert (tmp_path / "file").read_text() == "in the way"
    assert issubclass(OutputError, SchedLabError)
