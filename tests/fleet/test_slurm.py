"""Records of Slurm: every shape of 22.05 to 25 by hand, the recorded ones, and records that are damaged."""
import json
import random

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sched_lab.fleet.read.check import check_cluster
from sched_lab.fleet.read.reading import read_files
from sched_lab.fleet.read.slurm import closed_by, gres_in, hosts_in, is_accounts, is_json_of_slurm, read_slurm
from sched_lab.fleet.read.tables import Ledger, ReadOptions, Source, sources_of, tables_of
from sched_lab.fleet.replay.problem import problem_of, recorded
from sched_lab.lab.frames import InputError
from sched_lab.traces import find_reference
from tests.fleet.objects import GONE, STRANGE, damaged, holds, places, reasons, survives_everywhere

HEAD = "JobID|User|Partition|Submit|Start|End|State|NNodes|NodeList|AllocTRES"
DAY = "2026-03-02T"
needs_samples = pytest.mark.skipif(
    find_reference("slurm/22.05/squeue.json") is None, reason="the recorded cluster is not on this machine")


def read(*files):
    data = [file if isinstance(file, bytes) else file.encode() if isinstance(file, str) else json.dumps(file).encode()
            for file in files]
    return read_sources([Source(f"dump{number}", one) for number, one in enumerate(data)])


def read_sources(sources):
    ledger = Ledger()
    return tables_of(*read_slurm(sources, ledger, ReadOptions()), ledger, "dump")


def number(value):
    return {"set": value is not None, "infinite": False, "number": value or 0}


def node(name="n1", gres="gpu:a100:4(S:0-1)", **more):
    return {"name": name, "gres": gres, "cpus": 16, "real_memory": 64000, "state": ["IDLE"],
            "partitions": ["gpu"]} | more


def job(job_id=1, state="RUNNING", nodes="n1", new=True, **more):
    num = number if new else lambda value: value
    return {"job_id": job_id, "job_state": [state] if new else state, "nodes": nodes, "user_name": "ada",
            "partition": "gpu", "cpus": num(8), "node_count": num(1), "memory_per_node": num(1024),
            "submit_time": num(1772438400), "start_time": num(1772438410), "end_time": num(1772442000)} | more


@pytest.mark.parametrize(("written", "hosts"), [
    ("n1", ["n1"]), ("n[1-3]", ["n1", "n2", "n3"]), ("n[08-10],m", ["n08", "n09", "n10", "m"]), ("", []), ("n[", []),
    ("a[1,3]b[1-2]", ["a1b1", "a1b2", "a3b1", "a3b2"]), ("None assigned", []), ("n[1-9999999]", []), ("(null)", [])])
def test_lists_of_hosts(written, hosts):
    assert hosts_in(written) == hosts


@pytest.mark.parametrize(("written", "found"), [
    ("gpu:a100:4", [("gpu", "a100", 4, "")]), ("gpu:4(S:0)", [("gpu", "", 4, "")]), ("gpu", [("gpu", "", 1, "")]),
    ("gpu:a100:2(IDX:0,2-3)", [("gpu", "a100", 2, "0-2-3")]), ("gpu:t4:0(IDX:N/A)", [("gpu", "t4", 0, "")]),
    ("gres:gpu:2", [("gpu", "", 2, "")]), ("gres/gpu:a100:2", [("gpu", "a100", 2, "")]), ("(null)", []), ("N/A", []),
    ("gres/gpu=3,gres/gpu:a100=2", [("gpu", "", 1, ""), ("gpu", "a100", 2, "")]), ("craynetwork:4", []),
    ("cpu=8,gres/gpu:a100=2,gres/gpu=2", [("gpu", "a100", 2, "")]),
    ("gpu:a100:2,gpu:t4:1", [("gpu", "a100", 2, ""), ("gpu", "t4", 1, "")]),
    ("shard:8,gpu:2", [("shard", "", 8, ""), ("gpu", "", 2, "")])])
def test_generic_resources(written, found):
    assert [tuple(one) for one in gres_in(written)] == found


@pytest.mark.parametrize("new", [True, False])
def test_jobs_of_every_release(new):
    style = "gres/gpu:a100:2" if new else "gres:gpu:a100:2"
    never = job(4, "CANCELLED", "", new) | {"start_time": number(0) if new else 0}
    tables = read({"nodes": [node()]}, {"jobs": [
        job(1, new=new, gres_detail=["gpu:a100:2(IDX:0-1)"], tres_per_node=style),
        job(2, "PENDING", "", new, tres_per_job=style),
        job(3, "COMPLETED", "n1", new, tres_alloc_str="cpu=4,mem=2G,gres/gpu=1"), never]})
    assert holds(tables, "name", "num_gpus", "gpu_models", "gpu_list", "node") == [
        ("1", 2, "a100", "0-1", "n1"), ("2", 2, "a100", "", ""), ("3", 1, "", "", "n1")]
    assert times(tables) == [[0, 10, -1], [0, -1, -1], [0, 10, 3600]]
    assert "without a start" in reasons(tables) and "time limit" in reasons(tables)


def allocation(*given):
    return {"nodes": {"allocation": [{"name": name, "cpus": {"count": count}, "memory": {"allocated": 10}}
                                     for name, count in given]}}


ENDED = {  # of `sacct --json`
    "job_id": 5, "state": {"current": ["COMPLETED"]}, "nodes": "n1", "user": "ada", "partition": "gpu",
    "tres": {"allocated": [{"type": "cpu", "count": 4}, {"type": "mem", "count": 2048},
                           {"type": "gres", "name": "gpu", "count": 2}]},
    "time": {"submission": 1772438400, "start": 1772438410, "end": 1772442000}, "array": {"job_id": 0, "task_id": {}}}
ON_TWO = job(7, nodes="n[1-2]", gres_detail=["gpu:a100:2(IDX:0-1)", "gpu:a100:1(IDX:3)"],
             job_resources=allocation(("n1", 6), ("n2", 2)))


@pytest.mark.parametrize(("nodes", "jobs", "columns", "rows"), [
    ([], [ON_TWO], ("name", "node", "num_gpus", "gpu_list", "cpu_milli"),
     [("7/0", "n1", 2, "0-1", 6000), ("7/1", "n2", 1, "3", 2000)]),
    ([], [job(11, array_job_id=number(10), array_task_id=number(0)),
          job(12, het_job_id=number(12), het_job_offset=number(1)),
          job(20, "PENDING", "", array_job_id=number(20), array_task_string="1-5:2%2")],
     ("name",), [("10_0",), ("12+1",), ("20_1",), ("20_3",), ("20_5",)]),
    ([node("s", "gpu:t4:2,shard:8"), node("m", "gpu:a100_1g.5gb:14,gpu:a100:1")],
     [job(1, nodes="s", gres_detail=["shard:1(0/4,1/4)"], tres_per_node="gres/shard:1"),
      job(2, nodes="m", gres_detail=["gpu:a100_1g.5gb:2(IDX:0-1)"])],
     ("num_gpus", "gpu_milli", "mig_profile"), [(1, 250, ""), (2, 142, "1g.5gb")]),
    ([], [ENDED], ("name", "end_s", "num_gpus", "cpu_milli", "memory_mib", "user"),
     [("5", 3600, 2, 4000, 2048, "ada")])])
def test_rows_of_jobs(nodes, jobs, columns, rows):
    tables = read({"nodes": nodes, "jobs": jobs})
    assert holds(tables, *columns) == rows
    if nodes:
        assert tables.nodes[["gpu_model", "num_gpus"]].values.tolist() == [["t4", 2], ["a100", 3]]


@pytest.mark.parametrize(("state", "closed"), [
    ("IDLE", ("", "")), ("IDLE+POWERED_DOWN", ("", "")), ("idle~", ("", "")), ("MIXED+PLANNED", ("", "")),
    ("IDLE+DRAIN", ("DRAIN", "drain")), ("DRAINED*", ("DRAINED", "drain")), ("ALLOCATED+FAIL", ("FAIL", "drain")),
    ("IDLE*", ("*", "drain")), ("IDLE+NOT_RESPONDING", ("NOT_RESPONDING", "drain")), ("idle%", ("%", "drain")),
    ("IDLE+POWERING_DOWN", ("POWERING_DOWN", "drain")), ("IDLE+MAINT", ("MAINT", "drain")),
    ("IDLE+MAINTENANCE", ("MAINTENANCE", "drain")), ("REBOOT^", ("^", "drain")), ("REBOOT", ("", "")),
    ("MIXED+REBOOT_ISSUED", ("REBOOT_ISSUED", "drain")), ("IDLE+REBOOT_REQUESTED", ("", "")),
    ("DRAIN+DOWN", ("DOWN", "down")), ("DOWN*", ("DOWN", "down")), ("DOWN+POWERED_DOWN", ("DOWN", "down")),
    ("FUTURE", ("FUTURE", "down")), ("UNKNOWN", ("UNKNOWN", "drain"))])
def test_what_keeps_jobs_from_a_node(state, closed):
    assert closed_by(state) == closed


def test_a_drained_node_and_partitions_and_the_grouped_sinfo():
    group = {"nodes": {"nodes": ["n[1-2]"]}, "node": {"state": ["IDLE"]}, "cpus": {"minimum": 4, "maximum": 8},
             "memory": {"minimum": 100, "maximum": 100}, "gres": {"total": "gpu:2"}, "partition": {"name": "a"}}
    tables = read({"nodes": [node("d", state=["IDLE", "DRAIN"])]},
                  {"sinfo": [group, group | {"partition": {"name": "b"}}]},
                  {"jobs": [job(1, "PENDING", "", partition="a")]})
    assert tables.nodes[["name", "cpu_milli"]].values.tolist() == [["d", 16000], ["n1", 4000], ["n2", 4000]]
    assert "DRAIN" in tables.nodes["taints"][0]
    assert set(json.loads(tables.nodes["labels"][1])) == {"partition/a", "partition/b"}
    assert json.loads(tables.tasks["constraints"][0])["affinity"][0][0]["key"] == "partition/a"


ACCOUNTS = f"""{HEAD}
1|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|{DAY}09:00:00|COMPLETED|1|n1|billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1
1.batch||||||COMPLETED|1|n1|cpu=8
2_3|bob|gpu|{DAY}08:00:00|{DAY}08:00:10|Unknown|RUNNING|2|n[01-02]|cpu=4,gres/gpu=4,mem=4G
3+1|bob|gpu|{DAY}08:00:00|{DAY}08:00:10|{DAY}08:10:00|CANCELLED by 1000|1|n1|cpu=4
4|bob|gpu|{DAY}08:00:00|Unknown|{DAY}08:10:00|CANCELLED by 1000|1|None assigned|
5_[1-3%2]|bob|gpu|{DAY}08:00:00|Unknown|Unknown|PENDING|1|None assigned|
6|eve|a|b|gpu|{DAY}08:00:00
"""


def test_accounts_in_text():
    tables = read(ACCOUNTS)
    columns = ["name", "num_gpus", "gpu_models", "cpu_milli", "memory_mib", "node", "user"]
    rows = tables.tasks[columns].astype(object).where(tables.tasks[columns].notna(), None)
    assert list(map(tuple, rows.values)) == [
        ("1", 2, "a100", 8000, 65536, "n1", "ada"), ("2_3/0", 2, "", 2000, 2048, "n01", "bob"),
        ("2_3/1", 2, "", 2000, 2048, "n02", "bob"), ("3+1", 0, "", 4000, None, "n1", "bob"),
        *((f"5_{part}", 0, "", None, None, "", "bob") for part in (1, 2, 3))]
    said = reasons(tables)
    for words in ("step of a job", "without a start", "another number of cells", "read as UTC"):
        assert words in said


def times(tables):
    """Submission, start and end of each task, -1 where unknown."""
    return tables.tasks[["submit_s", "start_s", "end_s"]].fillna(-1).values.tolist()


def test_each_attempt_of_a_requeued_job_is_an_attempt():
    tables = read(f"""{HEAD}
1|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|{DAY}08:30:00|REQUEUED|1|n1|gres/gpu=2
1|ada|gpu|{DAY}08:30:00|{DAY}08:40:00|{DAY}09:00:00|COMPLETED|1|n1|gres/gpu=2
2|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|{DAY}08:30:00|PREEMPTED|1|n1|gres/gpu=2
3|ada|gpu|{DAY}08:00:00|Unknown|Unknown|REQUEUED|1|None assigned|
""")
    assert tables.tasks["name"].tolist() == ["1@0", "1@1", "2", "3"]
    assert times(tables) == [[0, 10, 1800], [1800, 2400, 3600], [0, 10, 1800], [0, -1, -1]]
    assert tables.tasks["state"].tolist() == ["", "", "", "waiting"] and "an attempt" in reasons(tables)
    record = {"job_id": 5, "state": {"current": ["REQUEUED"]}, "nodes": "n1",
              "time": {"submission": 1772438400, "start": 1772438410, "end": 1772442000}}
    assert times(read({"jobs": [record]})) == [[0, 10, 3600]]


def test_a_job_of_two_dumps_is_read_once():
    accounts = f"{HEAD}\n1|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|{DAY}09:00:00|COMPLETED|1|n1|gres/gpu=2\n"
    early = {"jobs": [job(1, gres_detail=["gpu:a100:2(IDX:0-1)"]), job(2, "PENDING", "")]}
    late = f"2|ada|gpu|{DAY}08:00:00|{DAY}08:10:00|{DAY}09:00:00|COMPLETED|1|n1|gres/gpu=2\n"
    tables = read(early, accounts + late)
    assert tables.tasks["name"].tolist() == ["1", "2"] and times(tables) == [[0, 10, 3600], [0, 600, 3600]]
    assert "another file has the job" in reasons(tables)


def test_parts_of_an_attempt_keep_its_number():
    two = "2|n[1-2]|gres/gpu=4"
    tables = read(f"""{HEAD}
1|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|{DAY}08:30:00|NODE_FAIL|{two}
1|ada|gpu|{DAY}08:00:00|{DAY}08:40:00|{DAY}09:00:00|COMPLETED|{two}
""")
    assert tables.tasks["name"].tolist() == ["1@0/0", "1@0/1", "1@1/0", "1@1/1"]
    assert tables.tasks["submit_s"].tolist() == [0, 0, 1800, 1800]


def test_parts_know_their_job_and_a_job_of_one_part_has_none():
    """A job on two nodes, two components of a heterogeneous job, an array, and a job on one node."""
    line = f"|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|{DAY}09:00:00|COMPLETED"
    tables = read(f"""{HEAD}
1{line}|2|n[1-2]|gres/gpu=4
2+0{line}|1|n1|gres/gpu=2
2+1{line}|1|n2|gres/gpu=2
3_1{line}|1|n1|gres/gpu=1
3_2{line}|1|n1|gres/gpu=1
4{line}|1|n1|gres/gpu=1
""")
    assert holds(tables, "name", "job") == [
        ("1/0", "1"), ("1/1", "1"), ("2+0", "2"), ("2+1", "2"), ("3_1", ""), ("3_2", ""), ("4", "")]


def test_a_job_comes_into_the_queue_when_it_may_start():
    head = HEAD.replace("Start", "Eligible|Start")
    tables = read(f"""{head}
1|ada|gpu|{DAY}00:00:00|{DAY}12:00:00|{DAY}12:00:05|{DAY}13:00:00|COMPLETED|1|n1|gres/gpu=2
2|ada|gpu|{DAY}00:00:00|{DAY}00:00:00|{DAY}12:00:05|{DAY}13:00:00|COMPLETED|1|n1|gres/gpu=2
3|ada|gpu|{DAY}00:00:00|Unknown|Unknown|Unknown|PENDING|1||
""")
    assert times(tables) == [[43200, 43205, 46800], [0, 43205, 46800], [0, -1, -1]]
    assert "a dependency" in reasons(tables) and "for a dependency, a hold" in reasons(tables)
    later = job(1, eligible_time=number(1772438405))
    held = job(2, "PENDING", "", eligible_time=number(0))
    assert times(read({"jobs": [later, held]})) == [[5, 10, -1], [0, -1, -1]]


STATES = {
    "runs": ["RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"], "waits": ["PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT"],
    "over": ["COMPLETED", "CANCELLED by 1000", "CANCELLED+", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "NODE_FAIL",
             "OUT_OF_MEMORY", "REVOKED", "", "SOMETHING_NEW"]}


def test_every_state_is_one_of_three():
    kinds = [(state, kind) for kind, states in STATES.items() for state in states]
    tables = read("\n".join([HEAD, *(
        f"{number}|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|{DAY}08:30:00|{state}|1|n1|gres/gpu=2"
        for number, (state, _) in enumerate(kinds))]))
    known = {"runs": [0, 10, -1], "waits": [0, -1, -1], "over": [0, 10, 1800]}
    assert dict(zip(kinds, times(tables), strict=True)) == {(state, kind): known[kind] for state, kind in kinds}


@pytest.mark.parametrize(("field", "written", "gpus", "words"), [
    ("AllocGRES", "7696487:4", 4, ""), ("AllocGRES", "gpu:4", 4, ""), ("ReqGRES", "gpu:a100:2", 2, ""),
    ("ReqGRES", "gres:gpu:2", 2, ""), ("AllocGRES", "123456789:4", 0, "a number that is not known")])
def test_old_accounts_name_gpus_in_their_own_way(field, written, gpus, words):
    start, end = f"{DAY}08:00:10", f"{DAY}08:30:00"
    tables = read(f"{HEAD}|{field}\n1|ada|gpu|{start}|{start}|{end}|COMPLETED|1|n1|cpu=4|{written}\n")
    assert tables.tasks["num_gpus"].tolist() == [gpus] and words in reasons(tables)


@pytest.mark.parametrize("field", ["AllocCPUS", "NCPUS", "ReqCPUS"])
def test_accounts_without_resources_say_cpus_in_fields_of_their_own(field):
    tables = read(f"{HEAD}|{field}\n1|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|{DAY}09:00:00|COMPLETED|1|n1||6\n")
    assert tables.tasks["cpu_milli"].tolist() == [6000]


def test_without_a_column_of_states_the_times_decide():
    head = HEAD.replace("State|", "")
    tables = read(f"""{head}
1|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|Unknown|1|n1|gres/gpu=2
2|ada|gpu|{DAY}08:00:00|Unknown|Unknown|1|None assigned|gres/gpu=2
3|ada|gpu|{DAY}08:00:00|None|{DAY}08:30:00|1|None assigned|
""")
    assert tables.tasks["name"].tolist() == ["1", "2"] and tables.tasks["state"].tolist() == ["", "waiting"]


def test_what_is_over_and_says_no_more_is_dropped():
    tables = read(f"""{HEAD}
1|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|Unknown|COMPLETED|1|n1|gres/gpu=2
2|ada|gpu|{DAY}08:00:00|{DAY}08:10:00|{DAY}08:10:00|CANCELLED by 7|1||
""", {"jobs": [job(3, "FAILED", end_time=number(0))]})
    assert not len(tables.tasks) and "nothing says since when" in reasons(tables)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_accounts_are_recognised_and_read_in_every_encoding(encoding):
    data = ACCOUNTS.encode(encoding)
    assert is_accounts(Source("x", data)) and not is_json_of_slurm(Source("x", data))
    assert len(read(data).tasks) == 7


@needs_samples
@pytest.mark.parametrize(("nodes", "jobs", "rows"), [
    ("22.05/sinfo", "22.05/squeue", 4), ("24.11/nodes_v0.0.42", "24.11/squeue_v0.0.42", 6),
    ("24.11/sinfo_v0.0.42", "24.11/jobs", 6)])
def test_the_recorded_records(nodes, jobs, rows):
    sources = sources_of([find_reference(f"slurm/{name}.json") for name in (nodes, jobs)])
    assert all(map(is_json_of_slurm, sources))
    tables = read_sources(sources)
    assert tables.nodes[["name", "gpu_model", "num_gpus", "cpu_milli", "memory_mib"]].values.tolist() == [
        ["g1", "a100", 4, 16000, 64000], ["g2", "a100", 4, 16000, 64000], ["t1", "t4", 2, 8000, 32000],
        ["t2", "t4", 2, 8000, 32000]]
    assert holds(tables, "name", "num_gpus", "gpu_list", "node", "cpu_milli", "memory_mib")[:4] == [
        ("1", 2, "0-1", "g1", 4000, 4096), ("2", 2, "2-3", "g1", 4000, 4096), ("3", 2, "0-1", "g2", 4000, 4096),
        ("4", 1, "0", "t1", 2000, 1024)]
    assert len(tables.tasks) == rows and tables.tasks["gpu_models"].tolist()[3] == ""
    assert holds(tables, "name", "num_gpus", "gpu_models")[4:] == [("5/0", 4, "a100"), ("5/1", 4, "a100")][:rows - 4]


def test_the_ledger_names_just_those_fields_of_jobs_that_are_not_read():
    tables = read(f"{HEAD}|ReqMem\n1|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|{DAY}09:00:00|COMPLETED|1|n1|cpu=4|8Gn\n",
                  {"jobs": [job(2, requeue=False, odd=1)]})
    unread = tables.ledger["what"] == "extra column"
    assert tables.ledger["reason"][unread].tolist() == ["fields of jobs: odd", "ReqMem"]


DUMP = {"nodes": [node(), node("d", state=["DOWN"])], "jobs": [
    job(1, gres_detail=["gpu:a100:2(IDX:0-1)"], job_resources=allocation(("n1", 6))),
    job(2, "PENDING", "", tres_per_job="gres/gpu:8", node_count=number(2), array_task_string="1-3"),
    {name: ENDED[name] for name in ("job_id", "state", "tres", "time")}]}


def test_every_place_may_hold_something_strange():
    survives_everywhere(read_slurm, DUMP)


@given(st.text(alphabet="|\n,=[]:()-0123456789gpu/aUnknown ", max_size=80))
@settings(deadline=None, max_examples=25)
def test_any_line_of_accounts_is_read_or_in_the_ledger(line):
    try:
        tables = read(f"{HEAD}\n1|a|b|||||1|n1|\n{line}\n")
    except InputError as error:
        assert "dump" in str(error)
    else:
        assert tables.tasks["name"].is_unique


@needs_samples
@pytest.mark.parametrize("seed", range(8))
def test_recorded_dumps_that_are_damaged_become_a_problem_or_one_error(seed):
    dice = random.Random(seed)
    sources = []
    for name in ("nodes_v0.0.42.json", "jobs.json"):
        value = json.loads(find_reference(f"slurm/24.11/{name}").read_bytes())
        for _ in range(3 * (1 + seed % 5)):
            value = damaged(value, (dice.choice(list(places(value))), dice.choice([*STRANGE, GONE])))
        sources.append(Source(name, json.dumps(value).encode()))
    try:
        tables = read_sources(sources)
        findings = check_cluster(tables)
        problem = problem_of(tables)
    except InputError as error:
        assert str(error) and "\n" not in str(error)
        return
    assert findings.exit_code in (0, 1, 2) and len(problem.tasks) <= 8 * len(tables.tasks)
    ran = recorded(problem)
    assert (ran.node < len(problem.cluster)).all() and not (ran.end_s < ran.start_s).any()


@pytest.mark.parametrize(("written", "read_as"), [(7, 7), ("7", 7), (number(7), 7), (number(None), None), (None, None),
                                                  ("high", None), (True, None), (1e300, None)])
def test_a_priority_that_is_no_number_is_said(written, read_as):
    tables = read({"nodes": [node()]}, {"jobs": [job(priority=written)]})
    assert [None if pd.isna(one) else one for one in tables.tasks["priority"]] == [read_as]
    is_said = "priority is no number" in reasons(tables)
    assert is_said == (read_as is None and not (written is None or isinstance(written, dict)))


@pytest.mark.parametrize(("written", "seconds"), [
    ("1-12:00:00", 129_600), ("2-00", 172_800), ("01:30:00", 5400), ("30:15", 1815), ("90", 5400), ("UNLIMITED", None),
    ("Partition_Limit", None), ("", None), ("00:00:00", None), ("soon", None)])
def test_a_limit_of_time_is_a_walltime(written, seconds):
    raw = read(f"{HEAD}|Timelimit\n"
               f"1|ada|gpu|{DAY}08:00:00|{DAY}08:00:10|{DAY}09:00:00|COMPLETED|1|n1|cpu=8|{written}\n")
    assert [None if pd.isna(one) else one for one in raw.tasks["walltime_s"]] == [seconds]
    assert ("the limit of time is none" in reasons(raw)) == (written in ("soon", "00:00:00"))


@pytest.mark.parametrize(("said", "seconds"), [
    ({"time_limit": number(90)}, 5400), ({"time_limit": 90}, 5400), ({"time": {"limit": number(90)}}, 5400),
    ({"time_limit": {"set": True, "infinite": True, "number": 0}}, None),
    ({"time_limit": number(None)}, None), ({}, None)])
def test_a_limit_of_time_in_json(said, seconds):
    tables = read({"nodes": [node()]}, {"jobs": [job(**said)]})
    assert [None if pd.isna(one) else one for one in tables.tasks["walltime_s"]] == [seconds]


SHOWN = """JobId=7 JobName=a b UserId=ann(5) Priority=12 Requeue=1 JobState=COMPLETED TimeLimit=00:02:00
   SubmitTime=2026-01-01T00:00:00 EligibleTime=2026-01-01T00:00:00 StartTime=2026-01-01T00:00:05
   EndTime=2026-01-01T00:01:05 Partition=gpu NodeList=n[1-2] NumNodes=2 NumCPUs=8 NumTasks=2
   TRES=cpu=8,mem=4G,node=2 JOB_GRES=gpu:a100:4 Nodes=n[1-2] CPU_IDs=0-3 Mem=2048 GRES=gpu:a100:2(IDX:1-2)
   TresPerNode=gres:gpu:2

JobId=8 JobName=c UserId=bob(6) Account=lab Priority=3 JobState=PENDING TimeLimit=UNLIMITED
   SubmitTime=2026-01-01T00:00:09 EligibleTime=2026-01-01T00:00:09
   StartTime=Unknown EndTime=Unknown Partition=gpu NodeList= NumNodes=1-1 NumCPUs=2
   TRES=cpu=2,mem=1G,node=1 TresPerNode=gres:gpu:a100:1
"""
CONFIGURED = """ClusterName=x
NodeName=DEFAULT Gres=gpu:a100:4 # all alike
NodeName=n[1-2],m CPUs=16 \\
  RealMemory=8000
NodeName=k Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=8000 Gres= State=DOWN
PartitionName=gpu Nodes=n[1-2]
"""


def test_the_text_of_scontrol_and_the_nodes_of_a_configuration(tmp_path):
    (tmp_path / "jobs.txt").write_text(SHOWN)
    (tmp_path / "slurm.conf").write_text(CONFIGURED)
    tables = read_files("auto", [tmp_path / "jobs.txt", tmp_path / "slurm.conf"])
    tasks = tables.tasks[["name", "start_s", "end_s", "num_gpus", "cpu_milli", "memory_mib", "node", "gpu_list", "user",
                          "walltime_s"]]
    assert tables.tasks["account"].tolist() == ["", "", "lab"]
    assert tasks.iloc[:2].values.tolist() == [
        ["7/0", 5, 65, 2, 4000, 2048, "n1", "1-2", "ann", 120], ["7/1", 5, 65, 2, 4000, 2048, "n2", "1-2", "ann", 120]]
    assert tasks.iloc[2].isna().tolist()[1:3] == [True, True] and tables.tasks["state"].tolist()[2] == "waiting"
    assert tables.nodes["name"].tolist() == ["n1", "n2", "m", "k"] and tables.nodes["num_gpus"].tolist() == [4, 4, 4, 0]
    assert tables.nodes["cpu_milli"].tolist() == [16000] * 4 and "slurm/state" in tables.nodes["taints"].tolist()[3]
    assert ["partition/gpu" in text for text in tables.nodes["labels"]] == [True, True, False, False]
    unread = tables.ledger["reason"][tables.ledger["what"] == "extra column"]
    assert unread.tolist() == ["fields of jobs: CPU_IDs, JOB_GRES, JobName, Mem"]


def test_who_is_charged_for_a_job_is_read_from_every_form():
    said = HEAD.replace("User|", "User|Account|")
    text = f"{said}\n1|ann|lab|gpu|{DAY}00:00:00|{DAY}00:01:00|{DAY}01:00:00|COMPLETED|1|n1|cpu=1,gres/gpu=1\n"
    nodes = {"nodes": [node()]}
    for tables in (read(nodes, text), read(nodes, {"jobs": [job(account="lab")]}),
                   read(nodes, {"jobs": [job(association={"account": "lab"})]})):
        assert tables.tasks["account"].tolist() == ["lab"]
    assert read(nodes, {"jobs": [job()]}).tasks["account"].tolist() == [""]
