"""Nodes: what a node list may say, what a state may be, and the embedded cluster."""

from __future__ import annotations

import gzip
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sched_lab.cluster import (
    MAX_GPUS_PER_NODE,
    State,
    check_state,
    default_cluster,
    describe_nodes,
    empty_state,
    read_nodes,
    toy_cluster,
)
from sched_lab.lab.frames import InputError, sha256
from sched_lab.traces import find_data
from tests.command_line import assert_refused_at

ROOT = Path(__file__).parents[1]
GOOD = "sn,cpu_milli,memory_mib,gpu,model\nada,96000,393216,8,G2\nbob,32000,65536,0,\n"


def written(folder: Path, text: str) -> Path:
    """Write a node list into a file."""
    file = folder / "nodes.csv"
    file.write_text(text, encoding="utf-8")
    return file


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a_node_list_is_read(tmp_path: Path) -> None:
    cluster = read_nodes(written(tmp_path, GOOD))
    assert cluster.name.tolist() == ["ada", "bob"]
    assert cluster.num_gpus.tolist() == [8, 0]
    assert cluster.gpu_model.tolist() == ["G2", ""]
    assert cluster.cpu_model.tolist() == ["", ""]
    assert cluster.gpu_capacity_milli == 8000
    assert all(a.dtype == np.int64 for a in (cluster.cpu_milli, cluster.memory_mib, cluster.num_gpus))


def test_gzip_column_order_and_further_columns_do_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "nodes.csv.gz"
    file.write_bytes(gzip.compress(b"rack,model,gpu,memory_mib,cpu_milli,sn\nr1,G2,8,393216,96000,ada\n"))
    cluster = read_nodes(file)
    assert (cluster.name[0], cluster.cpu_milli[0], cluster.memory_mib[0]) == ("ada", 96000, 393216)


def test_a_cpu_model_is_read(tmp_path: Path) -> None:
    text = GOOD.replace("model\n", "model,cpu_model\n").replace("G2\n", "G2,8163\n").replace("0,\n", "0,,\n")
    assert read_nodes(written(tmp_path, text)).cpu_model.tolist() == ["8163", ""]


def test_a_model_without_gpus_is_dropped(tmp_path: Path) -> None:
    assert read_nodes(written(tmp_path, GOOD.replace("0,\n", "0,T4\n"))).gpu_model.tolist() == ["G2", ""]


@pytest.mark.parametrize(("right", "wrong", "where", "what"), [
    ("8,G2", "-1,G2", "row 2, column gpu", "negative"),
    ("8,G2", f"{MAX_GPUS_PER_NODE + 1},G2", "row 2, column gpu", "above 62"),
    ("65536", "-1", "row 3, column memory_mib", "negative"),
    ("bob", "ada", "row 3, column sn", "already in row 2"),
    ("G2", "", "row 2, column model", "GPUs but no model"),
    ("memory_mib", "memory", "row 1, column memory_mib", "missing"),
])
def test_a_wrong_node_list_is_refused_with_its_place(
        tmp_path: Path, right: str, wrong: str, where: str, what: str) -> None:
    assert_refused_at(read_nodes, written(tmp_path, GOOD.replace(right, wrong)), where, what)


def test_only_known_models_pass_if_they_are_named(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    assert len(read_nodes(file, known_models={"G2"})) == 2
    with pytest.raises(InputError, match="row 2, column model: G2 has no power entry; add one, or choose from A10, T4"):
        read_nodes(file, known_models=["A10", "T4"])


# --- states ----------------------------------------------------------------------------------------------------------


def test_a_cluster_without_gpus_has_a_column_of_zeros() -> None:
    dogs = toy_cluster().take(np.array([3]))
    assert empty_state(dogs).gpu_left_milli.tolist() == [[0]]


def test_a_gpu_that_a_node_does_not_have_has_nothing_left() -> None:
    cluster = toy_cluster()
    state = empty_state(cluster)
    state.gpu_left_milli[0, 2] = 1  # ant has GPUs 0 and 1
    with pytest.raises(ValueError, match=r"node ant: 1 GPU \(milli\) left of 0"):
        check_state(cluster, state)


def test_a_state_of_another_cluster_is_refused() -> None:
    cluster = toy_cluster()
    state = empty_state(cluster.take(np.array([0, 1, 2])))
    with pytest.raises(ValueError, match="shape"):
        check_state(cluster, state)
    narrow = State(*(array[..., :2] if array.ndim == 2 else array for array in empty_state(cluster)))
    with pytest.raises(ValueError, match="shape"):
        check_state(cluster, narrow)


# --- the embedded cluster --------------------------------------------------------------------------------------------


@cache
def embedded_files() -> dict[str, bytes]:
    """Return what tools/make_embedded.py would write."""
    spec = importlib.util.spec_from_file_location("make_embedded", ROOT / "tools" / "make_embedded.py")
    assert spec and spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool.embedded_files()


@pytest.mark.parametrize("name", ["nodes.csv", "tasks.csv", "hadar_throughputs.csv"])
def test_the_embedded_file_is_what_the_code_generates(name: str) -> None:
    assert (ROOT / "data" / "embedded" / name).read_bytes() == embedded_files()[name], "run tools/make_embedded.py"


@pytest.mark.parametrize("name", sorted(file.relative_to(ROOT / "data" / "embedded").as_posix() for file in
                                        (ROOT / "data" / "embedded").rglob("*.*")))
def test_the_readme_has_the_checksum(name: str) -> None:
    assert sha256(ROOT / "data" / "embedded" / name) in (ROOT / "data" / "README.md").read_text(encoding="utf-8")


def test_the_default_cluster_has_the_node_types_of_the_public_trace() -> None:
    path = find_data("openb/openb_node_list_gpu_node.csv")
    if path is None:
        pytest.skip("openb/openb_node_list_gpu_node.csv is not here: sched-lab fetch openb")
    pd.testing.assert_frame_equal(describe_nodes(default_cluster()), describe_nodes(read_nodes(path)))


def test_types_do_not_depend_on_the_order_of_nodes() -> None:
    cluster = default_cluster()
    shuffled = cluster.take(np.random.default_rng(0).permutation(len(cluster)))
    pd.testing.assert_frame_equal(describe_nodes(cluster), describe_nodes(shuffled))
    assert describe_nodes(cluster)["nodes"].sum() == len(cluster)
