"""Files of every kind in, one cluster out: who recognises what, nodes from elsewhere, models by one name."""
import json

import pandas as pd
import pytest

from sched_lab.fleet.read.check import check_cluster
from sched_lab.fleet.read.reading import FORMATS, known_models, mean_demand, read_files, recognised, share_of
from sched_lab.fleet.read.tables import ReadOptions, Source
from sched_lab.lab.frames import InputError, embedded
from sched_lab.traces import find_data, find_reference
from tests.fleet.objects import reasons
from tests.fleet.test_slurm import ACCOUNTS, DUMP, SHOWN
from tests.fleet.test_traces import PHILLY_JSON, SAMPLES

OWN = "name,submit_s,start_s,end_s,num_gpus,gpu_milli\n"
JOBS = OWN + "a,0,0,3600,2,1000\nb,3600,3600,5400,4,1000\nc,3600,3600,7200,1,1000\n"
NODES = "name,gpu_model,num_gpus,cpu_milli,memory_mib\nn0,T4,2,64000,262144\nn1,A100,8,64000,262144\n"
KNOWN = {
    **SAMPLES, "slurm": json.dumps(DUMP), "sacct": ACCOUNTS, "scontrol": SHOWN,
    "k8s": embedded("fleet/pods.json").read_text(), "philly ": json.dumps(PHILLY_JSON)}
RECORDED = {"k8s": "kubernetes/pods.json", "slurm": "slurm/24.11/squeue_v0.0.42.json"}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write files into an empty folder and go there."""
    monkeypatch.chdir(tmp_path)

    def put(**files):
        for name, content in files.items():
            path = tmp_path / name.replace("__", ".")
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return [name.replace("__", ".") for name in files]
    return put


def test_every_format_has_a_sample():
    assert {name.strip() for name in KNOWN} == set(FORMATS)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("name", KNOWN)
def test_auto_knows_each_sample_in_every_encoding(name, encoding):
    source = Source("file", KNOWN[name].encode(encoding))
    assert [one.name for one in FORMATS.values() if one.recognises(source)] == [name.strip()]


@pytest.mark.parametrize("name", RECORDED)
def test_auto_knows_recorded_files(name):
    path = find_reference(RECORDED[name])
    if path is None:
        pytest.skip("the recorded files are not beside the checkout")
    found = recognised(Source(str(path), path.read_bytes()), ReadOptions())
    assert found is not None and found.name == name


@pytest.mark.parametrize("data", [
    b"", b"\n", b"a poem", b"caf\xe9\n", b"\x00\xff" * 50, b"{", b"[]", b"{}", b"null", b"[1, 2]", b'{"items": []}',
    b"name\n", b",,,\n",
    b"\xff\xfe", b"PK\x03\x04", b'"' * 99, b"|" * 99, b"a|b\n1|2\n", b"; comment\n", b"1 2 3\n", b"\r\r\r",
    b"x" * 200_000, b'{"jobs": 1}', b'{"jobs": [null]}', b'[{"jobid": 1}]'])
def test_no_format_takes_what_is_none_of_its_own(data):
    assert not any(one.recognises(Source("file", data)) for one in FORMATS.values())


def test_auto_refuses_what_nobody_knows(write):
    write(poem="Shall I compare thee to a summer's day?\n", noise=bytes(range(128, 256)))
    with pytest.raises(InputError, match="no format knows this file.*--map"):
        read_files("auto", ["poem"])
    with pytest.raises(InputError, match="not UTF-8"):
        read_files("auto", ["noise"])
    with pytest.raises(InputError, match="did you mean slurm"):
        read_files("slrum", ["poem"])


@pytest.mark.parametrize(("text", "words"), [
    ("JobID           JobName  Partition\n------------ ----------\n", "sacct -aP"),
    ("             JOBID PARTITION     NAME     USER ST\n", "squeue --json"),
    ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n", "sinfo --json"),
    ("NAME    READY   STATUS\n", "kubectl get nodes,pods -A -o json"), ("apiVersion: v1\nitems:\n", "-o json")])
def test_texts_for_people_are_told_what_to_give_instead(text, words, write):
    write(dump__txt=text)
    for format in ("auto", "slurm", "k8s", "csv"):
        with pytest.raises(InputError, match=f"dump.txt.*{words}"):
            read_files(format, ["dump.txt"])


def test_a_table_of_a_german_spreadsheet(write):
    write(jobs__csv="name;num_gpus;gpu_milli;submit_s;duration_s\na;0,5;;31.01.2024 10:00;0:30:00\n"
                    "b;2,0;;01.02.2024 10:00;1:00:00\n".replace("gpu_milli;", "").replace(";;", ";"))
    tasks = read_files("auto", ["jobs.csv"]).tasks
    assert tasks[["gpu_milli", "submit_s", "end_s"]].values.tolist() == [[500, 0, 1800], [1000, 86400, 90000]]


def test_a_map_makes_an_unknown_table_ones_own(write):
    write(mine__csv="who,n,when\na,2,5\n")
    with pytest.raises(InputError, match="no format"):
        read_files("auto", ["mine.csv"])
    mapped = ReadOptions({"name": "who", "num_gpus": "n", "submit_s": "when"})
    tasks = read_files("auto", ["mine.csv"], mapped).tasks
    assert tasks[["name", "num_gpus", "submit_s"]].values.tolist() == [["a", 2, 5]]


def test_nodes_of_a_file_replace_those_of_the_dump(write):
    write(jobs__csv=JOBS, nodes__csv=NODES)
    tables = read_files("csv", ["jobs.csv"], nodes=["nodes.csv"])
    assert tables.nodes["name"].tolist() == ["n0", "n1"] and "assumed: nodes are those of --nodes" in reasons(tables)
    again = read_files("csv", ["jobs.csv", "nodes.csv"], nodes=["nodes.csv"])
    assert again.nodes.equals(tables.nodes) and "dropped: nodes of the files" in reasons(again)
    with pytest.raises(InputError, match="there is no node in it"):
        read_files("csv", ["jobs.csv"], nodes=["jobs.csv"])


@pytest.mark.parametrize(("written", "share"), [("80%", 0.8), ("0.8", 0.8), (" 100% ", 1), ("0.5%", 0.005)])
def test_shares(written, share):
    assert share_of(written) == pytest.approx(share)


@pytest.mark.parametrize("written", ["80", "0", "-1", "0%", "101%", "nan", "inf", "%", "many", "1e999", "8 0%"])
def test_no_shares(written):
    with pytest.raises(InputError, match="is not a share"):
        share_of(written)


def test_nodes_are_as_many_as_the_share_asks_for(write):
    """5 GPU hours in two hours are 2.5 GPUs: 10 GPUs at a quarter, two nodes of eight."""
    write(jobs__csv=JOBS)
    tables = read_files("auto", ["jobs.csv"], size_to="25%")
    assert mean_demand(tables.tasks)["gpus"] == 2.5 and tables.nodes["num_gpus"].tolist() == [8, 8]
    assert "assumed: nodes of 8 GPUs" in reasons(tables) and "there are no nodes" not in reasons(tables)
    assert "without an end" not in reasons(tables)


def test_nodes_have_the_commonest_shape(write):
    write(jobs__csv=JOBS, nodes__csv=NODES + "n2,T4,2,64000,262144\n")
    tables = read_files("csv", ["jobs.csv"], nodes=["nodes.csv"], size_to="25%")
    assert tables.nodes["num_gpus"].tolist() == [2] * 5 and set(tables.nodes["gpu_model"]) == {"T4"}


def test_tasks_that_outlive_the_trace_hold_until_its_last_time(write):
    """A holds 2 GPUs for 100 s, B 4 from 50 s on, and C waits: (200 + 200) / 100 are 4 GPUs."""
    write(jobs__csv=OWN + "a,0,0,100,2,1000\nb,50,50,,4,1000\nc,60,,,8,1000\n")
    tables = read_files("csv", ["jobs.csv"], size_to="50%")
    assert tables.nodes["num_gpus"].tolist() == [8] and pd.isna(tables.tasks["end_s"][1])
    line = tables.ledger[tables.ledger["reason"].str.startswith("tasks without an end")]
    assert line[["file", "what", "count"]].values.tolist() == [["--size-to", "assumed", 1]]


def test_without_any_start_tasks_run_since_they_came(write):
    write(jobs__csv="name,submit_s,end_s,num_gpus,gpu_milli\na,0,100,2,1000\nb,50,,4,1000\n")
    assert read_files("csv", ["jobs.csv"], size_to="50%").nodes["num_gpus"].tolist() == [8]


@pytest.mark.parametrize(("rows", "words"), [
    ("a,,,,1,1000\n", "no task has a time"), ("a,0,0,9,0,0\n", "hold no GPU"), ("a,5,,,1,1000\n", "no task has a time"),
    ("a,0,0,9,1000000000,1000\n", "a task asks for 1,000,000,000 GPUs")])
def test_what_no_share_can_be_made_of(rows, words, write):
    write(jobs__csv=OWN + rows)
    with pytest.raises(InputError, match=words):
        read_files("csv", ["jobs.csv"], size_to="50%")


def test_nodes_are_real_ones_and_larger_jobs_span_them(write):
    """128 GPUs are sixteen nodes of eight, or thirty-two of the four that a file of nodes has."""
    write(jobs__csv=OWN.replace("\n", ",cpu_milli\n") + "a,0,0,3600,128,1000,1280000\nb,0,0,3600,12,1000,9\n",
          nodes__csv="name,gpu_model,num_gpus\nn0,A100,4\n")
    tables = read_files("csv", ["jobs.csv"], size_to="100%")
    assert set(tables.nodes["num_gpus"]) == {8} and len(tables.nodes) == 18 and len(tables.tasks) == 18
    assert tables.tasks["num_gpus"].tolist() == [8] * 16 + [6, 6] and tables.tasks["cpu_milli"][0] == 80_000
    assert tables.tasks["name"].tolist()[15:] == ["a/15", "b/0", "b/1"] and "span nodes" in reasons(tables)
    small = read_files("csv", ["jobs.csv"], nodes=["nodes.csv"], size_to="100%")
    assert set(small.nodes["num_gpus"]) == {4} and small.tasks["num_gpus"].tolist() == [4] * 35
    assert check_cluster(small).exit_code == 0 == check_cluster(tables).exit_code


def test_a_map_may_be_of_either_file(write):
    write(jobs__csv="name,began,num_gpus\na,5,2\n", nodes__csv=NODES.replace("num_gpus", "cards"))
    told = ReadOptions({"submit_s": "began", "num_gpus": "cards"})
    for files, nodes in ((["jobs.csv"], ["nodes.csv"]), (["jobs.csv", "nodes.csv"], [])):
        tables = read_files("csv", files, told, nodes=nodes)
        assert tables.tasks["submit_s"].tolist() == [5] and tables.nodes["num_gpus"].tolist() == [2, 8]
    with pytest.raises(InputError, match="no file has such a column; .*began.*cards"):
        read_files("csv", ["jobs.csv"], ReadOptions({"submit_s": "start"}), nodes=["nodes.csv"])


def test_a_share_that_would_need_a_million_nodes_is_refused(write):
    write(jobs__csv=JOBS)
    with pytest.raises(InputError, match="nodes would be needed"):
        read_files("csv", ["jobs.csv"], size_to="0.00001%")


def test_each_wished_model_has_nodes(write):
    write(jobs__csv=OWN.replace("\n", ",gpu_models\n") + "a,0,0,10,8,1000,A100\nb,0,0,10,4,1000,T4\nc,0,0,10,1,1000,\n")
    nodes = read_files("csv", ["jobs.csv"], size_to="100%").nodes
    assert nodes.groupby("gpu_model")["num_gpus"].sum().to_dict() == {"A100": 16, "T4": 8}
    assert nodes["name"].is_unique


def test_the_trace_that_outlives_itself():
    path = find_data("alibaba_v2025/disaggregated_DLRM_trace.csv")
    if path is None:
        pytest.skip("the published files are not beside the checkout")
    tables = read_files("auto", [path], size_to="80%")
    assert 3900 < tables.nodes["num_gpus"].sum() < 4100


@pytest.mark.parametrize(("names", "known"), [
    (["NVIDIA-A100-SXM4-40GB", "t4", "V100M16"], {"NVIDIA-A100-SXM4-40GB": "A100", "t4": "T4"}),
    (["A100-SXM4-40GB", "A100-SXM4-80GB"], {}), (["A100", "a100"], {"a100": "A100"}),
    (["A100DX", "", "H999", "T4-A10"], {})])
def test_models_have_one_name_where_that_is_certain(names, known):
    assert known_models(names) == {name: model for name, model in known.items()}


def test_models_of_nodes_and_wishes_are_renamed_together(write):
    write(jobs__csv=OWN.replace("\n", ",gpu_models\n") + "a,0,0,10,1,1000,a100|V100M16\n",
          nodes__csv="name,gpu_model,num_gpus\nn0,a100,2\nn1,A100,2\n")
    tables = read_files("csv", ["jobs.csv", "nodes.csv"])
    assert tables.nodes["gpu_model"].tolist() == ["A100", "A100"]
    assert tables.tasks["gpu_models"].tolist() == ["A100|V100M16"]
    assert "interpreted: GPU a100 is model A100" in reasons(tables)


def test_dates_and_seconds_do_not_mix(write):
    write(helios__csv=SAMPLES["helios"], openb__csv=SAMPLES["openb"])
    with pytest.raises(InputError, match="helios.csv|helios.*its own zero"):
        read_files("auto", ["helios.csv", "openb.csv"])
