"""Limits of users, accounts and QOS: as they are read, which goes before which, and that a replay keeps them."""
from pathlib import Path

import numpy as np
import pytest

from sched_lab.cluster import Cluster
from sched_lab.fleet.replay.events import replay
from sched_lab.fleet.replay.limits import Association, Limits, Quality, limit_words, limited, read_limits, slots_of
from sched_lab.fleet.replay.rules import check_schedule
from sched_lab.fleet.replay.slurm import SlurmQueue, read_slurm_queue
from sched_lab.lab.frames import InputError
from tests.fleet import plain_slurm
from tests.fleet.problems import outages_at, problem_like, tasks_like, texts, timed

TRIAL = Path(__file__).parents[2] / "data" / "slurm" / "limits"
pytestmark = pytest.mark.usefixtures("python_itself")
AT_ONCE = SlurmQueue(test_s=0, report_s=0, interval_s=1, resolution_s=1)
QOS = "Name|Priority|Flags|GrpTRES|GrpJobs|GrpWall|MaxTRESPU|MaxJobsPU|MaxTRESPA|MaxJobsPA\n"
ASSOCIATIONS = "Cluster|Account|User|ParentName|GrpJobs|GrpTRES|MaxJobs|Def QOS\n"


def held_by(limits, problem, **pace):
    return replay(problem, backfill="slurm", slurm=AT_ONCE._replace(limits=limits, **pace))


def written(tmp_path, text):
    (tmp_path / "limits.txt").write_text(text)
    return tmp_path / "limits.txt"


def test_limits_are_read_in_thousandths_of_cpus_and_mib(tmp_path):
    text = (QOS + "normal|0||||||||\nhigh|10|OverPartQOS,DenyOnLimit|cpu=8,node=2||01:00:00|gres/gpu=32|2|mem=2G|\n"
            + ASSOCIATIONS + "lab|root||||||\nlab|cells||biology||gres/gpu=4||\nlab|biology||root|16|||\n"
            "lab|cells|ann||||3|high\nother|cells|ann|||||\n")
    limits, unmodelled = read_limits(written(tmp_path, text), "lab")
    assert limits.qualities == (Quality("normal"), Quality(
        "high", 10, True, (("cpu", 8000),), (("mem", 2048),), (("jobs", 2), ("gres/gpu", 32))))
    assert limits.associations == (
        Association("root", ""), Association("cells", "", 2, (("gres/gpu", 4),)),
        Association("biology", "", 0, (("jobs", 16),)), Association("cells", "ann", 1, (), (("jobs", 3),), "high"))
    assert unmodelled == ("GrpWall=01:00:00", "GrpTRES=node=2")
    assert [limits.factor(name) for name in ("normal", "high", "none")] == [0, 1, 0]


@pytest.mark.parametrize(("text", "words"), [
    ("a|b\n", "row 1: 2 cells under 0 columns"), ("Name|Priority\n", "there is neither a QOS nor an association"),
    (QOS + "high|10||gres/gpu=many||||||\n", "row 2, column GrpTRES: 'gres/gpu=many' is no limit"),
    (QOS + "high|10||||||-1||\n", "row 2, column MaxJobsPU: 'jobs=-1' is no limit"),
    (ASSOCIATIONS + "lab|a||b||||\nlab|b||a||||\n", "row 2, column ParentName: account a is above itself"),
    (ASSOCIATIONS + "lab|a||||||\nlab|a||||||\n", "row 3, column Account: 'a' stands there twice")])
def test_wrong_limits_are_refused_by_row(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        read_limits(written(tmp_path, text))


def test_limits_need_slurm_to_enforce_them_and_a_task_that_they_are_of(tmp_path):
    (tmp_path / "slurm.conf").write_text("ClusterName=lab\nAccountingStorageEnforce=associations\n")
    with pytest.raises(InputError, match="limits count nothing without AccountingStorageEnforce=limits or"):
        read_slurm_queue(tmp_path / "slurm.conf", limits=written(tmp_path, QOS + "high|10||||||||\n"))
    found = read_slurm_queue(TRIAL / "slurm.conf", TRIAL / "shares.txt", TRIAL / "limits.txt")
    assert not found.unmodelled and found.qos_weight == 5000 and len(found.limits.associations) == 17
    with pytest.raises(InputError, match="the limits are of no user, account or QOS of the tasks"):
        held_by(Limits((), (Association("a", "b"),)), timed([(0, 10, 2, 1000)]))


def test_the_partition_goes_before_the_job_its_qos_before_its_association_and_parents_hold_too():
    gpus, jobs = (("gres/gpu", 4),), (("jobs", 2),)
    accounts = (Association("top", "", -1, gpus), Association("a", "", 0, jobs), Association("a", "ann", 1, (), jobs))

    def held(limits, qos=""):
        return {slot.scope: slot.most for slot in slots_of(limits, "ann", "a", qos, "gpu") if slot.most}

    alone = {(2, "own"): jobs, (1,): jobs, (0,): gpus}
    assert held(Limits((), accounts)) == alone
    assert held(Limits((Quality("q", per_user=jobs),), accounts), "q") == {
        ("q", "user", "ann"): jobs, (1,): jobs, (0,): gpus}  # MaxJobsPerUser in place of MaxJobs
    assert held(Limits((Quality("q", group=gpus),), accounts), "q") == {
        ("q", "QOS", ""): gpus, (2, "own"): jobs, (1,): jobs}
    part = Quality("part", group=(("gres/gpu", 9),))
    for is_first, row in ((False, ("part", "QOS", "")), (True, ("q", "QOS", ""))):
        both = (part, Quality("q", 0, is_first, gpus))
        assert [scope for scope in held(Limits(both, (), (("gpu", "part"),)), "q")] == [row]


def test_whom_a_limit_holds_keeps_no_node_free_and_nobody_waits_behind_it():
    """Ann's t1 would wait for both GPUs of a, which t0 leaves at 10 s; her limit holds it, and Bob's t2 may pass."""
    problem = timed([(0, 10, 1, 1000), (1, 10, 2, 1000), (2, 50, 1, 1000)], user=texts(["ann", "ann", "bob"]))
    problem.tasks.gpu_spec[:] = "T4"
    limits = Limits((Quality("normal", per_user=(("jobs", 1),)),))
    free, held = (held_by(one, problem) for one in (Limits(), limits))
    assert (free.start_s.tolist(), held.start_s.tolist()) == ([0, 10, 20], [0, 52, 2])
    assert held_by(limits, problem, queue_depth=0).start_s[2] == 2  # by the plan of all who wait alone
    assert held_by(limits, problem, interval_s=999).start_s[2] == 4  # and by the heads of the queue alone
    assert limited(limits, problem, held) == {"all": 1, "user": 1, "account": 0, "QOS": 0}
    assert limit_words(limits, problem, held) == "of 3 jobs 1 waited while a limit held them (1 of their user)"
    with pytest.raises(ValueError, match="limit of the QOS: 2 of 1 gres/gpu are in use at 10.0 s, when task t1 starts"):
        check_schedule(problem, free, backfill="slurm", limits=Limits((Quality("normal", group=(("gres/gpu", 1),)),)))


def test_a_job_that_waits_again_is_no_longer_counted():
    problem = timed([(0, 30, 2, 1000), (1, 5, 1, 1000)], user=texts(["ann", "ann"]),
                    outages=outages_at((0, 3, 99, True, True)))
    assert held_by(Limits((Quality("normal", per_user=(("jobs", 1),)),)), problem).start_s.tolist() == [99, 3]


def drawn(seed: int):
    """Draw jobs of users in accounts, of QOS and in queues, and limits that hold some of them."""
    rng = np.random.default_rng(seed)
    count, is_alike = 40, seed % 2 == 0

    def most(*names):
        drawn = [(name, int(rng.integers(1, 4)) * (1000 if name == "cpu" else 1)) for name in names]
        return tuple(pair for pair in drawn if rng.random() < 0.3)

    every = ("jobs", "cpu", "gres/gpu")
    qualities = tuple(Quality(name, 0, bool(rng.random() < 0.5), *(most(*every) for _ in range(3))) for name in "pqr")
    accounts = [Association("root", ""), Association("a", "", 0, most(*every)), Association("b", "", 1, most(*every))]
    accounts += [Association(account, user, row, most(*every), most("jobs")) for row, account in ((1, "a"), (2, "b"))
                 for user in "uv"]
    num = np.ones(count, int) if is_alike else rng.integers(0, 3, count)
    cluster = Cluster(texts("xy"), *(np.full(2, size) for size in (64000, 8192, 3)), texts(["T4"] * 2), texts([""] * 2))
    columns = {name: texts(rng.choice(list(some), count)) for name, some in (
        ("user", "uv"), ("account", "ab"), ("qos", "pq"), ("queue", ["q0", "q1"]))}
    return Limits(qualities, tuple(accounts), (("q0", "r"),)), problem_like(
        cluster, tasks_like(num, 1000 * (num > 0)), np.sort(rng.integers(0, 60, count)), rng.integers(4, 30, count),
        **columns)


@pytest.mark.parametrize("seed", range(20))
def test_nobody_starts_beyond_a_limit_and_nobody_waits_without_one(seed):
    """At each second; that of equal jobs of one GPU nobody waits is seen where nothing has changed for 3 s."""
    limits, problem = drawn(seed)
    schedule = held_by(limits, problem)
    start_s = np.where(schedule.node >= 0, schedule.start_s, np.inf)
    ends_s = np.where(schedule.node >= 0, schedule.end_s, np.inf)
    assert any(limited(limits, problem, schedule).values())
    moments = np.concatenate([problem.submit_s, start_s, ends_s])
    for now_s in range(int(ends_s[np.isfinite(ends_s)].max()) + 9):
        running = np.flatnonzero((start_s < now_s) & (ends_s > now_s)).tolist()
        for job in np.flatnonzero(start_s == now_s).tolist():
            assert not plain_slurm.is_held(limits, problem, running, job)
            running += [job] if ends_s[job] > now_s else []
        if seed % 2 == 0 and not ((moments > now_s - 3) & (moments <= now_s)).any() and len(running) < 6:
            for job in np.flatnonzero((problem.submit_s <= now_s) & (start_s > now_s)).tolist():
                assert plain_slurm.is_held(limits, problem, running, job)
