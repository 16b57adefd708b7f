"""Profiles and queue survive in SQLite and in MariaDB: killed managers, many writers, and what is refused."""
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.exc import InvalidRequestError

from sched_lab.andreas.instances import profiles
from sched_lab.andreas.model import Assignment, Fleet, Jobs
from sched_lab.andreas.profiles import METADATA, JobManager, Profiler, open_database
from sched_lab.lab.frames import InputError
from tests.waiting import until

NODES = [{"id": "v1", "gpu": "TESLA", "num_gpus": 1}]
COST = {"TESLA,1": 0.12}


def first_come(fleet: Fleet, jobs: Jobs, now_s: float) -> Assignment:
    """Give the one GPU to the job that was submitted first."""
    place = np.full(len(jobs.due_s), -1)
    place[0] = 0
    return Assignment(place, place.copy())


def start_mariadb(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Server on a socket, with a data directory of its own; also its URL."""
    server = shutil.which("mariadbd") or shutil.which("mysqld") or ""
    as_user = [f"--user={'root' if os.geteuid() == 0 else os.environ.get('USER', 'mysql')}"]
    with (folder / "log").open("wb") as log:
        subprocess.run(["mariadb-install-db", "--no-defaults", f"--datadir={folder / 'data'}", "--skip-test-db",
                        "--auth-root-authentication-method=normal", *as_user], check=True, stdout=log, stderr=log)
        process = subprocess.Popen([server, "--no-defaults", f"--datadir={folder / 'data'}", "--skip-networking",
                                    f"--socket={folder / 's'}", f"--pid-file={folder / 'pid'}",
                                    "--innodb-flush-log-at-trx-commit=2", *as_user], stdout=log, stderr=log)
    until(lambda: (folder / "s").exists() or process.poll() is not None, "MariaDB did not start")
    if process.poll() is not None:
        raise RuntimeError((folder / "log").read_text()[-2000:])
    return process, f"mariadb://root@localhost/mysql?unix_socket={folder / 's'}"


@pytest.fixture(scope="module")
def mariadb_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a database that may be emptied on a MariaDB server: the one named, or one that is started here."""
    if url := os.environ.get("SCHED_LAB_MARIADB_URL"):
        yield url
        return
    pytest.importorskip("pymysql", reason="no package pymysql: MariaDB is not tested")
    if not (shutil.which("mariadbd") or shutil.which("mysqld")) or not shutil.which("mariadb-install-db"):
        pytest.skip("no mariadbd on PATH (package mariadb-server of the operating system) and no "
                    "SCHED_LAB_MARIADB_URL: MariaDB is not tested")
    process, url = start_mariadb(tmp_path_factory.mktemp("m"))
    with process:
        yield url
        process.terminate()


@pytest.fixture(params=["sqlite", "mariadb"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where an empty database is."""
    if request.param == "sqlite":
        yield str(tmp_path / "jobs.db")
        return
    url = request.getfixturevalue("mariadb_url")
    empty = open_database(url)
    METADATA.drop_all(empty)
    empty.dispose()
    yield url


@pytest.fixture
def database(address: str) -> Iterator[Engine]:
    engine = open_database(address)
    yield engine
    engine.dispose()


@pytest.fixture
def manager(database: Engine) -> JobManager:
    """Start the manager of one TESLA; an epoch of `net` takes 10 s on it."""
    Profiler(database).record("net", 32, "TESLA,1", 1, 10.0)
    return JobManager(database, NODES, COST, first_come)


def submit(manager: JobManager, job: str, now_s: float = 0.0, epochs: int = 3, **other: object) -> None:
    values = {"application": "net", "batch": 32, "due_s": 1000.0, "weight_eur_per_s": 0.001} | other
    manager.submit(job, epochs=epochs, now_s=now_s, **values)  # type: ignore[arg-type]


def states(manager: JobManager) -> dict[str, str]:
    return dict(manager.jobs().set_index("id")["state"])


# --- profiles

def test_long_samples_count_more(database: Engine) -> None:
    profiler = Profiler(database)
    profiler.record("net", 32, "TESLA,1", 1, 40.0)
    profiler.record("net", 32, "TESLA,1", 3, 96.0)
    profiler.record("net", 64, "TESLA,1", 1, 7.0)    # another batch
    profiler.record("Net", 32, "TESLA,1", 1, 9.0)    # another application
    assert profiler.epoch_s("net", 32) == {"TESLA,1": 34.0}          # (40 + 96) / (1 + 3)
    assert profiler.predict_s("net", 32, 10) == {"TESLA,1": 340.0}
    assert profiler.epoch_s("Net", 32) == {"TESLA,1": 9.0}
    assert profiler.samples()["seconds"].tolist() == [40.0, 96.0, 7.0, 9.0]


def test_measured_profiles_come_back_to_the_last_bit(database: Engine) -> None:
    profiler = Profiler(database)
    for job in {job["application"]: job for job in profiles().values()}.values():
        for configuration, epoch_s in job["epoch_s"].items():
            profiler.record(job["application"], job["batch"], configuration, 1, epoch_s)
    for job in profiles().values():
        assert profiler.epoch_s(job["application"], job["batch"]) == job["epoch_s"]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 1e6)), min_size=1, max_size=6), st.randoms())
def test_the_order_of_samples_does_not_matter(samples: list[tuple[int, float]], random: object) -> None:
    means = []
    for _ in range(2):
        engine = open_database()
        for epochs, seconds in samples:
            Profiler(engine).record("net", 1, "TESLA,1", epochs, seconds)
        means.append(Profiler(engine).epoch_s("net", 1)["TESLA,1"])
        engine.dispose()
        random.shuffle(samples)  # type: ignore[attr-defined]
    assert means[0] == means[1]
    each = [seconds / epochs for epochs, seconds in samples]
    assert min(each) * (1 - 1e-12) <= means[0] <= max(each) * (1 + 1e-12)


@pytest.mark.parametrize(("changed", "message"), [
    ({"application": ""}, "sample: application ''"),
    ({"application": "x" * 101}, "sample: application .*at most 100"),
    ({"batch": 0}, "sample: batch 0"),
    ({"configuration": "TESLA"}, "'TESLA' is no configuration"),
    ({"epochs": 0}, "sample: epochs 0"),
    ({"seconds": -1.0}, "sample: seconds -1.0"),
    ({"seconds": float("nan")}, "sample: seconds nan"),
])
def test_impossible_samples_are_refused(database: Engine, changed: dict[str, object], message: str) -> None:
    sample = {"application": "net", "batch": 32, "configuration": "TESLA,1", "epochs": 1, "seconds": 1.0} | changed
    with pytest.raises(InputError, match=message):
        Profiler(database).record(**sample)  # type: ignore[arg-type]
    assert len(Profiler(database).samples()) == 0


def test_an_unknown_application_is_named_with_the_known_ones(manager: JobManager) -> None:
    with pytest.raises(InputError, match="no profile of application 'gan' with batch 32; .*known: net with 32"):
        submit(manager, "a", application="gan")
    with pytest.raises(InputError, match="no profile of application 'net' with batch 64"):
        Profiler(manager.database).predict_s("net", 64, 1)
    assert len(manager.jobs()) == 0


def test_many_writers_lose_nothing(address: str) -> None:
    def write(writer: int) -> None:
        own = open_database(address)  # tables, too, are created by all at once
        for k in range(10):
            Profiler(own).record(f"net{writer}", 32, "TESLA,1", 1, 1.0 + k)
        own.dispose()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    engine = open_database(address)
    samples = Profiler(engine).samples()
    engine.dispose()
    assert samples.groupby("application")["seconds"].sum().to_dict() == {f"net{k}": 55.0 for k in range(4)}


# --- the manager

def test_a_job_waits_runs_and_is_done(manager: JobManager) -> None:
    submit(manager, "a")
    submit(manager, "b", 5.0)
    assert states(manager) == {"a": "running", "b": "waiting"}
    manager.report("a", 2, 20.0)
    manager.report("a", 3, 30.0)
    assert states(manager) == {"a": "done", "b": "running"}
    decisions = manager.decisions()
    assert decisions.groupby("number")["event"].first().tolist() == ["submission", "submission", "completion"]
    assert decisions["now_s"].tolist() == [0.0, 5.0, 5.0, 30.0] and decisions["job"].tolist() == ["a", "a", "b", "b"]
    assert decisions["configuration"].isna().tolist() == [False, False, True, False]


def test_the_optimiser_sees_the_epochs_that_are_left(manager: JobManager) -> None:
    seen = []
    manager.optimiser = lambda fleet, jobs, now_s: seen.append((jobs.times_s, now_s)) or first_come(fleet, jobs, now_s)
    submit(manager, "a")
    manager.report("a", 2, 21.0)
    Profiler(manager.database).record("net", 32, "TESLA,1", 1, 14.0)    # mean: (10 + 14) / 2 = 12 s
    manager.decide(25.0)
    assert [(times_s.tolist(), now_s) for times_s, now_s in seen] == [([[30.0]], 0.0), ([[12.0]], 25.0)]


def test_a_repeated_report_changes_nothing_but_decides_again(manager: JobManager) -> None:
    submit(manager, "a")
    submit(manager, "b")
    manager.report("a", 3, 30.0)
    before = manager.jobs()
    manager.report("a", 3, 44.0)
    pd.testing.assert_frame_equal(manager.jobs(), before)
    assert manager.decisions()["now_s"].max() == 44.0


def test_an_empty_queue_needs_no_decision(manager: JobManager) -> None:
    manager.decide(0.0)
    assert len(manager.decisions()) == 0


def test_a_second_job_of_the_same_id_is_refused(manager: JobManager) -> None:
    submit(manager, "a")
    with pytest.raises(InputError, match="a job 'a' exists already; give each job its own id"):
        submit(manager, "a", epochs=9)
    submit(manager, "A")   # another letter, another job
    submit(manager, "a ")  # and another one with a blank
    assert manager.jobs()["id"].tolist() == ["a", "A", "a "] and manager.jobs()["epochs"].tolist() == [3, 3, 3]
    manager.report("a ", 1, 10.0)
    assert manager.jobs()["epochs_done"].tolist() == [0, 0, 1]


@pytest.mark.parametrize(("changed", "message"), [
    ({"epochs": 0}, "submission: epochs 0"),
    ({"weight_eur_per_s": -1.0}, "submission: weight_eur_per_s -1.0"),
    ({"due_s": float("inf")}, "submission: due_s inf"),
    ({"now_s": -1.0}, "submission: submission_s -1.0"),
])
def test_impossible_submissions_are_refused(manager: JobManager, changed: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        submit(manager, "a", **changed)  # type: ignore[arg-type]
    assert len(manager.jobs()) == 0


@pytest.mark.parametrize(("configuration", "message"), [
    ("AMPERE,1", "is profiled on AMPERE,1 only; profile it on TESLA"), ("TESLA,2", "fits on no node")])
def test_a_job_that_no_node_can_run_is_refused(manager: JobManager, configuration: str, message: str) -> None:
    Profiler(manager.database).record("wide", 8, configuration, 1, 5.0)
    with pytest.raises(InputError, match=message):
        submit(manager, "w", application="wide", batch=8)
    assert len(manager.jobs()) == 0


def test_a_due_date_before_submission_warns_once(manager: JobManager) -> None:
    with pytest.warns(UserWarning, match="due before it is submitted"):
        submit(manager, "a", 50.0, due_s=10.0)
    manager.decide(60.0)  # a warning here would fail the test
    assert states(manager) == {"a": "running"}


@pytest.mark.parametrize(("job", "epochs_done", "message"), [
    ("z", 1, "there is no job 'z'"), ("a", 4, "4 epochs done, after 2 of 3"), ("a", 1, "1 epochs done, after 2 of 3")])
def test_impossible_reports_are_refused(manager: JobManager, job: str, epochs_done: int, message: str) -> None:
    submit(manager, "a")
    manager.report("a", 2, 20.0)
    with pytest.raises(InputError, match=message):
        manager.report(job, epochs_done, 30.0)
    assert manager.jobs()["epochs_done"].tolist() == [2]


def test_an_assignment_that_breaks_a_constraint_is_not_stored(manager: JobManager) -> None:
    submit(manager, "a")
    manager.optimiser = lambda fleet, jobs, now_s: Assignment(np.zeros(2, np.int64), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="node 0 has more GPUs in use than it has"):
        submit(manager, "b")
    assert states(manager) == {"a": "running", "b": "waiting"} and manager.decisions()["number"].max() == 1


def test_many_users_submit_at_once(address: str, manager: JobManager) -> None:
    def send(user: int) -> None:
        own = open_database(address)
        for k in range(4):
            submit(JobManager(own, NODES, COST, first_come), f"{user}-{k}")
        own.dispose()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send, range(4)))
    assert len(manager.jobs()) == 16 and (manager.jobs()["state"] == "running").sum() == 1
    sizes = manager.decisions().groupby("number").size()
    assert len(sizes) == 16 and sizes.is_monotonic_increasing    # no decision saw fewer jobs than the one before


# --- death

DIES = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from tests.andreas.test_profiles import COST, NODES, first_come, submit
from sched_lab.andreas.profiles import JobManager, Profiler, open_database

def die(fleet, jobs, now_s):
    os.kill(os.getpid(), signal.SIGKILL)

database = open_database(sys.argv[1])
Profiler(database).record("net", 32, "TESLA,1", 1, 10.0)
manager = JobManager(database, NODES, COST, first_come)
submit(manager, "a")
submit(manager, "b", 5.0)
manager.report("a", 2, 20.0)
manager.optimiser = die
manager.report("a", 3, 30.0)
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
def test_a_killed_manager_goes_on_from_the_database(address: str) -> None:
    dead = subprocess.run([sys.executable, "-c", DIES, address, str(Path(__file__).parents[2])], check=False)
    assert dead.returncode == -9
    engine = open_database(address)
    manager = JobManager(engine, NODES, COST, first_come)
    # The completion was stored, the decision it called for was not.
    assert states(manager) == {"a": "done", "b": "waiting"} and manager.jobs()["end_s"][0] == 30.0
    assert manager.decisions()["number"].max() == 2
    manager.decide(31.0, "restart")
    assert states(manager) == {"a": "done", "b": "running"}
    manager.report("b", 3, 61.0)
    assert states(manager) == {"a": "done", "b": "done"}
    engine.dispose()


def test_half_a_decision_is_undone(manager: JobManager, monkeypatch: pytest.MonkeyPatch) -> None:
    submit(manager, "a")
    manager.report("a", 1, 10.0)
    before = manager.jobs(), manager.decisions()

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    def none(fleet: Fleet, jobs: Jobs, now_s: float) -> Assignment:
        return Assignment(np.full(1, -1), np.full(1, -1))

    manager.optimiser = none
    real = sys.modules["sched_lab.andreas.profiles"].__dict__["_store_decision"]

    def store_and_fail(*given: object) -> None:
        real(*given)
        fail()

    monkeypatch.setattr("sched_lab.andreas.profiles._store_decision", store_and_fail)
    with pytest.raises(KeyboardInterrupt):
        manager.decide(15.0)
    pd.testing.assert_frame_equal(manager.jobs(), before[0])
    pd.testing.assert_frame_equal(manager.decisions(), before[1])


# --- addresses

@pytest.mark.parametrize(("url", "message"), [
    ("oracle://scott:secret@host/jobs", "'oracle' is no database that we know"),
    ("://secret", "the URL of the database cannot be read"),
    ("mariadb://me:secret@host:port/jobs", "the URL of the database cannot be read"),
    ("mariadb://me:secret@localhost:1/jobs", "cannot open the database mariadb.*Can't connect"),
])
def test_a_wrong_url_is_explained_without_its_password(url: str, message: str) -> None:
    if "localhost" in url:
        pytest.importorskip("pymysql", reason="no package pymysql: MariaDB is not tested")
    with pytest.raises(InputError, match=message) as caught:
        open_database(url)
    assert "secret" not in str(caught.value)


def test_mariadb_answers_to_mysql_too(mariadb_url: str) -> None:
    engine = open_database(mariadb_url.replace("mariadb://", "mysql://"))
    Profiler(engine).record("as mysql", 1, "TESLA,1", 1, 2.0)
    engine.dispose()
    engine = open_database(mariadb_url)
    assert Profiler(engine).epoch_s("as mysql", 1) == {"TESLA,1": 2.0}
    METADATA.drop_all(engine)
    engine.dispose()


def test_a_server_that_is_no_mariadb_is_refused(mariadb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise InvalidRequestError("this server is no MariaDB")

    monkeypatch.setattr("sqlalchemy.dialects.mysql.base.MySQLDialect.initialize", fail)
    with pytest.raises(InputError, match="cannot open the database mariadb.*this server is no MariaDB; give"):
        open_database(mariadb_url)


def test_mariadb_without_its_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(InputError, match=r"pip install 'sched_lab\[mariadb\]'"):
        open_database("mariadb://localhost/jobs")


def test_a_database_that_does_not_exist_is_named(mariadb_url: str) -> None:
    with pytest.raises(InputError, match="Unknown database|Access denied"):
        open_database(mariadb_url.replace("/mysql?", "/no_such_name?") if "/mysql?" in mariadb_url
                      else mariadb_url.partition("?")[0].rpartition("/")[0] + "/no_such_name")


def test_a_file_that_cannot_be_a_database_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unable to open database file"):
        open_database(tmp_path / "missing" / "jobs.db")
    (tmp_path / "notes.txt").write_text("These are notes, not a database. " * 50)
    with pytest.raises(InputError, match="notes.txt: file is not a database"):
        open_database(tmp_path / "notes.txt")


def test_a_file_keeps_what_memory_forgets(tmp_path: Path) -> None:
    for address, kept in ((tmp_path / "jobs.db", 1), (":memory:", 0)):
        for _ in range(2):
            engine = open_database(address)
            before = len(Profiler(engine).samples())
            Profiler(engine).record("net", 1, "TESLA,1", 1, 1.0)
            engine.dispose()
        assert before == kept
