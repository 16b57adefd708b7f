"""Public traces: rows known by hand, real files where they are at hand, and what damage does to each format."""
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.fleet.read.check import check_cluster
from sched_lab.fleet.read.columns import FORMATS as OWN
from sched_lab.fleet.read.reading import recognised
from sched_lab.fleet.read.tables import ClusterTables, Ledger, ReadOptions, Source, sources_of, tables_of
from sched_lab.fleet.read.traces import FORMATS, MOST_PARTS
from sched_lab.lab.frames import InputError
from sched_lab.traces import find_data
from tests.fleet.objects import reasons

BY_NAME = {form.name: form for form in (*FORMATS, *OWN)}
SAMPLES = {
    "openb": """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p0,12000,16384,1,460,V100M16|V100M32,LS,Running,0,900,0
p1,6000,12288,2,1000,,BE,Pending,60,240,
""",
    "helios": """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,u,v,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
2,w,v,16,64,2,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:30,2020-06-09 18:45:36,246,3
""",
    "acme": """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
1,u,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32,936.0
2,u,3,10,30,Other,COMPLETED,2023-03-01 00:23:58+08:00,2023-03-01 00:24:11+08:00,2023-03-01 01:09:04+08:00,2693,13,9.0
""",
    "philly": """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,4,11804.0,6214e9
""",
    "pai": """\
job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type
J,tensorflow,2.0,Terminated,1739162.0,1739200.0,600.0,29.296875,50.0,MISC
K,worker,1.0,Running,1739162.0,,400.0,10.0,150.0,T4
""",
    "dlrm": """\
instance_sn,role,app_name,cpu_request,gpu_request,memory_request,max_instance_per_node,creation_time,scheduled_time,deletion_time
i0,HN,a,12,1,120.0,8,,,
i1,CN,a,64,0,320.0,-1,475.5,480.5,900.0
""",
    "spot": """\
job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
1,13,A10,20,1,1,0,2764799,HP
2,57,A100-SXM4-80GB,15,0.5,3,60,100,Spot
""",
    "swf": """\
; UnixStartTime: 1500000000
; MaxNodes: 2
; MaxProcs: 8
1 0 10 60 6 -1 -1 6 -1 -1 1 7 1 -1 0 -1 -1 -1
2 5 -1 -1 -1 -1 -1 2 -1 1024 5 8 1 -1 0 -1 -1 -1
""",
    "csv": """\
name,submit_s,start_s,end_s,num_gpus,memory_gib,user
a,0,1,60,2,16,u
b,5,5,65,0.5,8,w
""",
}
PHILLY_JSON = [
    {"status": "Pass", "vc": "v", "jobid": "J", "user": "u", "submitted_time": "2017-10-07 01:11:39", "attempts": [
        {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23",
         "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}]},
        {"start_time": "2017-10-07 01:13:30", "end_time": "2017-10-09 06:53:12",
         "detail": [{"ip": "m48", "gpus": ["gpu2"]}, {"ip": "m49", "gpus": ["gpu3"]}]}]},
    {"status": "Killed", "vc": "v", "jobid": "K", "user": "u", "submitted_time": "None", "attempts": []}]


def read(name: str, *texts: str | bytes, columns=None) -> ClusterTables:
    """Tables of files of a format."""
    files = [Source(f"file{k}.csv", text if isinstance(text, bytes) else text.encode()) for k, text in enumerate(texts)]
    ledger = Ledger()
    nodes, tasks = BY_NAME[name].read(files, ledger, ReadOptions(columns or {}))
    return tables_of(nodes, tasks, ledger, files[0].name)


def column(tables: ClusterTables, name: str) -> list:
    return tables.tasks[name].astype(object).where(tables.tasks[name].notna(), None).tolist()


def test_openb_has_shares_wishes_and_pods_that_never_ran():
    nodes = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,32000,1,0,\n"
    tables = read("openb", SAMPLES["openb"], nodes)
    assert column(tables, "gpu_milli") == [460, 1000] and column(tables, "num_gpus") == [1, 2]
    assert column(tables, "gpu_models") == ["V100M16|V100M32", ""] and column(tables, "start_s") == [0, None]
    assert tables.nodes["num_gpus"].tolist() == [2, 0] and tables.nodes["gpu_model"].tolist() == ["P100", ""]
    assert "ended and never started" in reasons(tables)


def test_a_job_on_several_nodes_is_divided():
    tables = read("helios", SAMPLES["helios"])
    assert column(tables, "name") == ["1", "2/0", "2/1"] and column(tables, "num_gpus") == [1, 8, 8]
    assert column(tables, "cpu_milli") == [4000, 32000, 32000] and column(tables, "submit_s") == [0, 26, 26]
    assert tables.about["zero"] == "2020-06-09T18:41:01Z" and "without a zone" in reasons(tables)


def test_a_job_that_was_cancelled_in_the_queue_is_no_load():
    head = SAMPLES["helios"].splitlines()[0]
    day = "2020-06-09 "
    tables = read("helios", f"""{head}
1,u,v,8,4,1,CANCELLED,{day}18:00:00,,{day}19:00:00,0,3600
2,u,v,8,4,1,CANCELLED,{day}18:00:00,None,None,0,0
3,u,v,8,4,1,CANCELLED,{day}18:00:00,{day}18:30:00,{day}19:00:00,1800,1800
4,u,v,8,4,1,RUNNING,{day}18:00:00,{day}18:30:00,,,1800
5,u,v,8,4,1,PENDING,{day}18:00:00,,,,
""")
    assert column(tables, "name") == ["1", "3", "4", "5"] and column(tables, "start_s") == [None, 1800, 1800, None]
    assert column(tables, "end_s") == [3600, 3600, None, None] and column(tables, "state") == ["", "", "", "waiting"]


def test_states_of_swf():
    """Without a wait the duration stays; cancelled in the queue is no load; parts of a job are read once."""
    rest = "1 -1 -1 1 -1 -1"
    tables = read("swf", f"""; UnixStartTime: 1500000000
1 0 -1 60 {rest} 1 7 1 -1 0 -1 -1 -1
2 0 50 0 {rest} 5 7 1 -1 0 -1 -1 -1
3 0 50 -1 {rest} 5 7 1 -1 0 -1 -1 -1
4 0 50 70 {rest} 1 7 1 -1 0 -1 -1 -1
4 -1 50 30 {rest} 2 7 1 -1 0 -1 -1 -1
4 -1 50 40 {rest} 3 7 1 -1 0 -1 -1 -1
5 0 50 70 {rest} 5 7 1 -1 0 -1 -1 -1
6 0 -1 -1 {rest} -1 7 1 -1 0 -1 -1 -1
""")
    assert column(tables, "name") == ["1", "2", "3", "4", "5", "6"]
    assert column(tables, "start_s") == [0, None, None, 50, 50, None]
    assert column(tables, "end_s") == [60, 50, 50, 120, 120, None]


def test_ten_gpus_on_three_nodes_are_four_three_and_three():
    tables = read("acme", SAMPLES["acme"])
    assert column(tables, "num_gpus") == [8, 4, 3, 3] and sum(column(tables, "cpu_milli")[1:]) == 30_000
    assert tables.about["zero"] == "2023-02-28T16:18:22Z"


def test_a_duration_that_is_an_hour_off_is_a_changed_clock():
    tables = read("helios", SAMPLES["helios"].replace("36848", str(36848 + 3600)))
    assert "as when a clock is changed" in reasons(tables)
    assert "another duration" in reasons(read("helios", SAMPLES["helios"].replace("36848", "5")))
    assert "duration" not in reasons(read("helios", SAMPLES["helios"]))


def test_per_cent_of_pai():
    tables = read("pai", SAMPLES["pai"])
    assert column(tables, "name") == ["J:tensorflow/0", "J:tensorflow/1", "K:worker"]
    assert column(tables, "cpu_milli") == [6000, 6000, 4000] and column(tables, "memory_mib") == [30_000, 30_000, 10240]
    assert column(tables, "num_gpus") == [1, 1, 2] and column(tables, "gpu_milli") == [500, 500, 1000]
    assert "rounded up" in reasons(tables)


def test_tables_of_pai_are_joined():
    jobs = "job_name,inst_id,user,status,start_time,end_time\nJ,x,bob,Terminated,1739000,1739200\n"
    instances = ("job_name,task_name,inst_name,worker_name,inst_id,status,start_time,end_time,machine\n"
                 "J,tensorflow,a,b,x,Terminated,1739165,1739190,m0\nX,y,a,b,x,Terminated,1,2,m0\n")
    machines = "machine,gpu_type,cap_cpu,cap_mem,cap_gpu\nm0,MISC,96,512,8\n"
    tables = read("pai", SAMPLES["pai"], jobs, instances, machines)
    assert column(tables, "name") == ["J:tensorflow/0", "K:worker"] and column(tables, "node") == ["m0", ""]
    assert column(tables, "user") == ["bob", ""] and column(tables, "submit_s") == [1739000, None]
    assert column(tables, "start_s") == [1739165, 1739162] and tables.nodes["cpu_milli"].tolist() == [96000]
    assert "an instance whose task is in no table" in reasons(tables)


@pytest.mark.parametrize(("text", "names", "row"), [
    (SAMPLES["pai"].split("\n", 1)[1], ["J:tensorflow/0", "J:tensorflow/1", "K:worker"], 1),
    ("6884bb6d97ec0ea3a1b3d9d1,T4,96,512,2\n", ["6884bb6d97ec0ea3a1b3d9d1"], 1)])
def test_a_table_of_pai_without_its_header(text, names, row):
    source = Source("mine.txt", text.encode())
    assert BY_NAME["pai"].recognises(source) and not BY_NAME["pai"].recognises(Source("m", b"a,b,1,2,3\n"))
    rows = next(table for table in BY_NAME["pai"].read([source], Ledger(), ReadOptions()) if len(table))
    assert rows["name"].tolist() == names and rows.index[0] == row


def test_dlrm_has_limits_and_instances_from_before():
    tables = read("dlrm", SAMPLES["dlrm"])
    assert column(tables, "submit_s") == [0, 475.5] and column(tables, "start_s") == [0, 480.5]
    assert json.loads(column(tables, "constraints")[0]) == {"group": "a", "most_per_node": 8}
    assert column(tables, "constraints")[1] == "" and column(tables, "end_s") == [None, 900]


def test_workers_of_spot_all_ask_for_the_same():
    tables = read("spot", SAMPLES["spot"], "node_name,gpu_model,gpu_capacity_num,cpu_num\n0,A10,1,128\n")
    assert column(tables, "name") == ["1", "2/0", "2/1", "2/2"] and column(tables, "gpu_milli") == [1000, 500, 500, 500]
    assert column(tables, "priority") == [1, 0, 0, 0] and column(tables, "end_s")[0] == 2764799
    assert tables.nodes["name"].tolist() == ["0"] and "assumed" in set(tables.ledger["what"])


def test_attempts_of_philly_keep_their_places():
    tables = read("philly", json.dumps(PHILLY_JSON), "machineId,number of GPUs, single GPU mem\nm47,8, 24GB\n")
    assert column(tables, "name") == ["J@0", "J@1/0", "J@1/1"] and column(tables, "node") == ["m47", "m48", "m49"]
    assert column(tables, "gpu_list") == ["0-1", "2", "3"] and column(tables, "num_gpus") == [2, 1, 1]
    assert column(tables, "submit_s") == [0, 104, 104]
    assert tables.nodes["gpu_memory_mib"].tolist() == [24 * 1024]
    assert tables.ledger.loc[tables.ledger["what"] == "dropped", "row"].tolist() == [2]


def test_processors_are_gpus_only_if_the_reader_says_so():
    cpus = read("swf", SAMPLES["swf"])
    assert column(cpus, "num_gpus") == [0, 0] and column(cpus, "cpu_milli") == [3000, 3000]
    for pair in ({"num_gpus": "processors"}, {"gpus": "processors"}, {"processors": "num_gpus"}):
        gpus = read("swf", SAMPLES["swf"], columns=pair)
        assert column(gpus, "num_gpus") == [3, 3] and gpus.nodes["num_gpus"].tolist() == [4, 4]
    assert gpus.about["zero"] == "2017-07-14T02:40:00Z" and column(gpus, "start_s") == [10, 10]
    assert "no time says since when" in reasons(gpus)


def test_every_column_that_is_not_used_is_named():
    for name, sample in SAMPLES.items():
        if name == "swf":
            continue
        lines = sample.splitlines()
        tables = read(name, "\n".join([f"{lines[0]},colour", *(f"{line},red" for line in lines[1:])]))
        assert "column colour: not used" in reasons(tables), name


REAL = {
    "helios": (["samples/helios.csv"], 0, 3), "acme": (["samples/acme_seren.csv"], 0, 2),
    "acme ": (["samples/acme_kalos.csv"], 0, 16), "philly": (["samples/philly_flat.csv"], 0, 2),
    "pai": (["samples/pai_v2020_task.csv"], 0, 1),
    "spot": (["samples/alibaba_v2026_spot_jobs.csv", "alibaba_v2026_spot/node_info_df.csv"], 4278, 112),
    "dlrm": (["alibaba_v2025/disaggregated_DLRM_trace.csv"], 0, 23871),
    "openb": (["openb/openb_node_list_all_node.csv", "openb/openb_pod_list_default.csv"], 1523, 8152),
}


@pytest.mark.parametrize("name", REAL)
def test_published_files(name):
    files, nodes, tasks = REAL[name]
    paths = [find_data(file) for file in files]
    if None in paths:
        pytest.skip("the public traces are not beside the checkout")
    sources = sources_of([path for path in paths if path])
    assert [recognised(source, ReadOptions()) for source in sources] == [BY_NAME[name.strip()]] * len(sources)
    ledger = Ledger()
    tables = tables_of(*BY_NAME[name.strip()].read(sources, ledger, ReadOptions()), ledger, files[0])
    assert (len(tables.nodes), len(tables.tasks)) == (nodes, tasks)
    checked = check_cluster(tables)
    assert checked.exit_code == (0 if nodes else 2)
    assert not set(checked.findings["kind"]) - {
        "no nodes", "no watts", "no load", "jobs on several nodes"}


# damage

WRONG_CELLS = [
    "", "-1", "0", "1e9", "1e300", "1e400", "9" * 400, "nan", "-inf", "None", "Unknown", "True", "12abc", "1_000",
    "1;000", "١٢", "½", "=1+1", "<script>alert(1)</script>", "../../etc/passwd", "a@0", "\u202e\u0000", "2020-13-45",
    "0001-01-01 00:00:00", "9999-12-31 23:59:59", "2021-10-31 02:30:00+01:00", "now", "1969-01-01", "1700000000000",
    "0.0001", "0.9999999", "1.5", " 7 ", "x" * 5000]
DAMAGES = {
    "nothing": lambda text: "", "blank": lambda text: "\n \n", "header only": lambda text: text.splitlines()[0],
    "half": lambda text: text[:len(text) // 2], "twice": lambda text: text + text.split("\n", 1)[1],
    "two headers": lambda text: text + text, "cr": lambda text: text.replace("\n", "\r"),
    "tabs": lambda text: text.replace(",", "\t"), "blank lines": lambda text: text.replace("\n", "\n\n"),
    "more cells": lambda text: text + text.splitlines()[-1] + ",1,2,3\n", "fewer cells": lambda text: text + "1,2\n",
    "quote open": lambda text: text + '"' + text.splitlines()[-1], "nul": lambda text: text[:60] + "\0" + text[60:],
    "column twice": lambda text: "\n".join(f"{line},{line.split(',')[0]}" for line in text.splitlines()),
    "no first column": lambda text: "\n".join(line.partition(",")[2] for line in text.splitlines()),
    "upper case": str.upper, "json": lambda text: json.dumps({"items": text}), "reversed": lambda text: text[::-1]}
BYTES = {
    "bom": lambda data: b"\xef\xbb\xbf" + data, "utf-16": lambda data: data.decode().encode("utf-16"),
    "utf-16 cut": lambda data: data.decode().encode("utf-16")[:-1], "latin-1": lambda data: data + b"\xe9\xff\n",
    "noise": lambda data: bytes(range(256)) * 9}


def survives(name: str, data: str | bytes) -> str:
    """Read and check; the error, if it is one of ours."""
    try:
        tables = read(name, data)
    except InputError as error:
        assert "file0.csv" in str(error)
        return str(error)
    checked = check_cluster(tables)
    assert checked.exit_code in (0, 1, 2) and checked.summary()
    json.dumps(checked.as_json(), allow_nan=False)
    return ""


@pytest.mark.parametrize("name", SAMPLES)
def test_damaged_files_are_told_or_read(name):
    for damage in DAMAGES.values():
        survives(name, damage(SAMPLES[name]))
    for kind, spoil in BYTES.items():
        error = survives(name, spoil(SAMPLES[name].encode()))
        assert bool(error) == (kind not in ("bom", "utf-16")), (kind, error)


@pytest.mark.parametrize("name", SAMPLES)
def test_wrong_cells_are_told_or_read(name):
    """All wrong cells, a row each; a format that refuses the file gets every third alone."""
    separator = " " if name == "swf" else ","
    *head, good = SAMPLES[name].splitlines()
    rows = []
    for number, value in enumerate(WRONG_CELLS):
        row = good.split(separator)
        row[number % len(row)] = value
        rows.append(separator.join(row))
    if survives(name, "\n".join([*head, *rows, ""])):
        for row in rows[::3]:
            survives(name, "\n".join([*head, row, ""]))


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
                    | st.text(max_size=8) | st.sampled_from(["gpu0", "m1", "2017-10-07 01:11:39"]),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
                        ["jobid", "attempts", "detail", "gpus", "ip", "start_time", "end_time", "submitted_time",
                         "user", "vc"]), inner, max_size=5), max_leaves=25)


@settings(max_examples=25, deadline=None)
@given(st.lists(JSON, max_size=4))
def test_any_json_is_told_or_read_as_philly(value):
    survives("philly", json.dumps(value))


def test_a_job_of_a_billion_workers_is_refused():
    with pytest.raises(InputError, match="parts"):
        read("spot", SAMPLES["spot"].replace(",3,60", f",{MOST_PARTS + 1},60"))
