"""The service as processes see it: killed, doubled, taken over, asked wrongly, told to end."""
import contextlib
import http.client
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sched_lab.andreas.greedy import SearchOptions
from sched_lab.andreas.service import (
    Book,
    Change,
    Join,
    Measure,
    Refused,
    Report,
    Submit,
    cancel,
    clock_s,
    decide_places,
    expected_end_s,
    is_off,
    is_valid,
    join,
    leave,
    measure,
    move_jobs,
    plan_of,
    report,
    snapshot_of,
    submit,
)
from sched_lab.andreas.store import Store, commit, read_book
from sched_lab.lab.frames import InputError
from tests.andreas.soak import CLUSTER, Caller, soak, teach
from tests.command_line import call
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
JOB = {"id": "a", "application": "lstm", "batch": 32, "epochs": 4, "due_s": 2e9, "weight_eur_per_s": 3e-4}


# --- the book

@pytest.fixture
def book() -> Book:
    """One node with two TESLA; an epoch of `lstm` takes 10 s on one."""
    book = Book({"TESLA,1": 0.12, "TESLA,2": 0.16}, most_queued=2)
    for change in (join(book, "v1", Join(gpu="TESLA", num_gpus=2), 0.0),
                   measure(book, Measure(id="m", application="lstm", batch=32, configuration="TESLA,1", epochs=2,
                                         seconds=20.0), 0.0)):
        assert change is not None
        book.apply(change)
    return book


def given(**changed: object) -> Submit:
    return Submit.model_validate(JOB | changed)


def test_what_is_full_is_refused_and_room_is_made_by_an_end(book: Book) -> None:
    for name in "ab":
        book.apply(submit(book, given(id=name), 0.0))  # type: ignore[arg-type]
    with pytest.raises(Refused, match="2 jobs are unfinished") as caught:
        submit(book, given(id="c"), 1.0)
    assert caught.value.kind == "full" and submit(book, given(), 1.0) is None
    book.apply(cancel(book, "a", 2.0))  # type: ignore[arg-type]
    assert submit(book, given(id="c"), 3.0) is not None
    with pytest.raises(Refused, match="no price with 3 TESLA"):
        join(book, "v2", Join(gpu="TESLA", num_gpus=3), 3.0)


@pytest.mark.parametrize(("changed", "message"), [
    ({"application": "huge"}, "no profile of application 'huge'"), ({"epochs": 5}, "another job 'a'")])
def test_a_submission_that_cannot_be_taken_says_why(book: Book, changed: dict[str, object], message: str) -> None:
    book.apply(submit(book, given(), 0.0))  # type: ignore[arg-type]
    with pytest.raises(Refused, match=message):
        submit(book, given(**({"id": "b"} if "epochs" not in changed else {}), **changed), 1.0)


def test_a_clock_that_goes_back_is_not_followed(book: Book) -> None:
    book.apply(submit(book, given(), 100.0))  # type: ignore[arg-type]
    change = report(book, "a", Report(sequence=1, epochs_done=1), 50.0)
    assert change is not None and change.jobs[0].report_s == 100.0


def test_a_job_of_a_lost_node_waits_and_keeps_what_it_reported(book: Book) -> None:
    book.apply(submit(book, given(epochs=100), 0.0))  # type: ignore[arg-type]
    book.put(book.jobs["a"].changed(node="v1", configuration="TESLA,1", start_s=0.0))
    assert expected_end_s(book, book.jobs["a"], 20.0) == 1000.0          # two epochs are assumed
    assert not is_off(book, book.jobs["a"], 3, 20.0)                     # off by one of a hundred
    assert is_off(book, book.jobs["a"], 20, 20.0)
    assert expected_end_s(book, book.jobs["a"], 5000.0) == 5005.0        # half an epoch is always left
    book.apply(report(book, "a", Report(sequence=1, epochs_done=2), 20.0))  # type: ignore[arg-type]
    change = leave(book, "v1", 25.0)
    assert change is not None and change.moved
    book.apply(change)
    assert (book.jobs["a"].state, book.jobs["a"].epochs_done) == ("waiting", 2)
    assert leave(book, "v1", 26.0) is None


# --- what was accepted can be loaded and decided

def accepted(book: Book, make: Callable[[], Change | None]) -> bool:
    """Whether a command is accepted; then it is applied."""
    try:
        change = make()
    except Refused as refused:
        assert refused.kind == "wrong"
        return False
    assert change is not None
    book.apply(change)
    return True


@pytest.mark.parametrize("epochs", [1, 10**9])
@pytest.mark.parametrize("sampled", [1, 2**31 - 1])
@pytest.mark.parametrize("seconds", [1e-6, 3600.0, 1e10])
def test_what_is_accepted_can_be_decided(seconds: float, sampled: int, epochs: int) -> None:
    """The sample or the job is refused at the door, or a decision can be made until the job's last moment."""
    book = Book({"TESLA,1": 0.12})
    assert accepted(book, lambda: join(book, "v1", Join(gpu="TESLA", num_gpus=1), 0.0))
    sample = Measure(id="m", application="lstm", batch=32, configuration="TESLA,1", epochs=sampled, seconds=seconds)
    if not accepted(book, lambda: measure(book, sample, 0.0)):
        assert seconds / sampled < 2e-6
        return
    if not accepted(book, lambda: submit(book, given(epochs=epochs), 0.0)):
        assert epochs * seconds / sampled > 1e10
        return
    for done, at_s in ((0, 1.0), (epochs - 1, 2.0), (epochs - 1, 9e9)):
        book.put(book.jobs["a"].changed(epochs_done=done))
        snapshot = snapshot_of(book, at_s)
        assert snapshot is not None
        places = decide_places(snapshot, "greedy", SearchOptions())
        change = move_jobs(book, places, "period", at_s)
        if change is not None:
            book.apply(change)
        assert json.dumps(plan_of(book, at_s), allow_nan=False) and book.jobs["a"].state == "running"


def test_a_sample_that_makes_a_job_endless_lets_it_wait(book: Book) -> None:
    """It was accepted, and later samples say that it would take three centuries."""
    book.apply(submit(book, given(epochs=10**8), 0.0))  # type: ignore[arg-type]
    book.apply(measure(book, Measure(id="n", application="lstm", batch=32, configuration="TESLA,1", epochs=1,
                                     seconds=1e6), 1.0))  # type: ignore[arg-type]
    assert snapshot_of(book, 2.0) is None and plan_of(book, 2.0)["waiting"] == ["a"]


DAMAGES = {  # a statement for SQLite, and whether the job is left out
    "a job that would never end": ("UPDATE job SET epochs = 1000000000", False),
    "more epochs done than there are": ("UPDATE job SET epochs_done = 99", True),
    "no epochs": ("UPDATE job SET epochs = 0", True),
    "a text for a number": ("UPDATE job SET batch = 'many'", True),
    "no due date": ("UPDATE job SET due_s = 9e999", True),
    "half a place": ("UPDATE job SET node = 'v0'", True),
    "a node that is not there": ("UPDATE job SET node = 'x', configuration = 'TESLA,1'", False),
    "a configuration that the node lacks": ("UPDATE job SET node = 'v0', configuration = 'TURING,1'", False),
    "more GPUs than the node has": ("UPDATE job SET node = 'v0', configuration = 'TESLA,9'", False),
    "no configuration": ("UPDATE job SET node = 'v0', configuration = 'TESLA'", True),
    "a sample of nothing": ("UPDATE sample SET epochs = 0 WHERE number = 1", False),
    "a sample without a count": ("UPDATE sample SET configuration = 'TESLA' WHERE number = 1", False),
    "a sample in no time": ("UPDATE sample SET seconds = 1e-6, epochs = 2000000000", False),
    "a node without GPUs": ("UPDATE node SET num_gpus = 0 WHERE id = 'v1'", False),
    "a clock that was far ahead": ("UPDATE writer SET last_s = 1e300", False),
}


def carry_out(book: Book, store: Store, change: Change | None) -> None:
    """Store and apply what a command brought."""
    assert change is not None
    commit(store, book, change)
    book.apply(change)


def opened(file: Path) -> Store:
    """Open a store that does not wait for the disk: nobody pulls the plug."""
    store = Store(file)
    store.connection.execute("PRAGMA synchronous = OFF")
    return store


@pytest.mark.parametrize("damage", DAMAGES)
def test_one_bad_row_stops_nothing(damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The row is left out, or the job waits; its id stays taken; all else is decided, after a restart too."""
    file = tmp_path / "jobs.db"
    store = opened(file)
    prices = CLUSTER["cost_eur_per_h"]
    book = read_book(store, prices)

    for node in CLUSTER["nodes"]:
        carry_out(book, store, join(book, node["id"], Join(gpu=node["gpu"], num_gpus=node["num_gpus"]), 0.0))
    for number, configuration in enumerate(("TESLA,1", "TURING,1")):
        carry_out(book, store, measure(book, Measure(id=f"m{number}", application="lstm", batch=32, epochs=1,
                                                     configuration=configuration, seconds=10.0), 0.0))
    carry_out(book, store, submit(book, given(id="a"), 1.0))
    store.close()
    statement, is_left_out = DAMAGES[damage]
    with contextlib.closing(sqlite3.connect(file)) as direct, direct:
        direct.execute(statement)
    for round_ in range(2):
        store = opened(file)
        book = read_book(store, prices)
        assert (("job", "a") in book.damaged) == is_left_out
        if is_left_out:
            assert "is left out" in caplog.text
            with pytest.raises(Refused, match="cannot be read"):
                submit(book, given(id="a"), 2.0)
        fresh = given(id=f"fresh{round_}", application=f"conv{round_}")
        for number, configuration in enumerate(("TESLA,1", "TURING,1")):
            carry_out(book, store, measure(book, Measure(
                id=f"c{round_}{number}", application=fresh.application, batch=32, configuration=configuration,
                epochs=1, seconds=20.0), 2.0))
        carry_out(book, store, submit(book, fresh, 2.0))
        snapshot = snapshot_of(book, clock_s(book, 3.0))
        assert snapshot is not None
        places = decide_places(snapshot, "greedy", SearchOptions())
        change = move_jobs(book, places, "period", clock_s(book, 3.0))
        assert change is not None and is_valid(book, change)
        carry_out(book, store, change)
        assert json.dumps(plan_of(book, 3.0), allow_nan=False) and book.jobs[fresh.id].state == "running"
        store.close()


# --- a short soak

def test_a_short_soak_loses_nothing(tmp_path: Path) -> None:
    submissions, kills, versions = soak(120, 3, 5, str(tmp_path / "jobs.db"), tmp_path)
    assert (submissions, kills) == (120, 3) and versions > 10


# --- the command

def start(folder: Path, *words: str) -> tuple[subprocess.Popen[str], int, str]:
    """Start the command; return it, its port and its token when it listens."""
    (folder / "cluster.json").write_text(json.dumps(CLUSTER))
    process = subprocess.Popen(
        [sys.executable, "-m", "sched_lab", "andreas", "serve", "--cluster", "cluster.json", "--policy", "greedy",
         "--port", "0", *words], cwd=folder, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "SCHED_LAB_COMPILE": "never"})
    assert process.stderr is not None
    for line in process.stderr:
        if '"listening"' in line:
            said = json.loads(line)
            return process, said["port"], Path(said["token_file"]).read_text().strip()
    raise AssertionError(process.wait())


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_the_command_is_killed_taken_over_and_ended(tmp_path: Path, processes: list[subprocess.Popen[str]]) -> None:
    (tmp_path / "token").write_text("open sesame")
    process, port, token = start(tmp_path)
    processes.append(process)
    caller = Caller(port, token)
    teach(caller)
    assert caller.ask("POST", "/jobs", JOB)[0] == 201
    process.send_signal(signal.SIGKILL)
    process.wait()
    caller.forget()
    second, second_port, _ = start(tmp_path, "--database", "andreas.db", "--token-file", "token")
    processes.append(second)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", second_port)) as direct:
        direct.request("GET", "/plan")
        refused = direct.getresponse()
        assert refused.status == 401 and b"token" in refused.read()
        direct.request("GET", "/openapi.json")
        document = json.loads(direct.getresponse().read())
        direct.request("GET", "/")
        page = direct.getresponse().read().decode()
    assert "/jobs/{id}/reports" in document["paths"] and "Submit" in document["components"]["schemas"]
    assert "POST /jobs" in page and "http" not in page.replace("http-equiv", "")   # nothing from elsewhere
    third, port, token = start(tmp_path)
    processes.append(third)
    caller = Caller(port, token)
    status, answer = caller.ask("POST", "/jobs", JOB)
    assert (status, answer["repeated"], answer["epochs"]) == (200, True, 4)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", second_port)) as direct:
        direct.request("POST", "/jobs", json.dumps(JOB | {"id": "b"}), Caller(0, "open sesame").headers)
        refused = direct.getresponse()
        assert refused.status == 503 and b"another service has taken over" in refused.read()
    assert second.wait(HANG_S) == 2   # and ends
    assert caller.ask("GET", "/jobs/b")[0] == 404
    caller.forget()
    third.terminate()
    assert third.wait(HANG_S) in (0, 143, -signal.SIGTERM)


def refused(folder: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that the command says when it does not start."""
    (folder / "cluster.json").write_text(json.dumps(CLUSTER))
    code = call("andreas", "serve", "--cluster", folder / "cluster.json", *words)
    error = capsys.readouterr().err
    assert code == 2 and len(error.splitlines()) == 1, error
    return error


def test_a_database_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another program holds it; the tables are there already, or not."""
    file = tmp_path / "jobs.db"
    for is_complete in (False, True):
        if is_complete:
            Store(file).close()
        with contextlib.closing(sqlite3.connect(file)) as other:
            other.execute("BEGIN EXCLUSIVE")
            line = refused(tmp_path, "--database", str(file), "--wait", "0.1", capsys=capsys)
        assert "jobs.db cannot be written: database is locked; give" in line


def test_no_database_is_made_if_the_port_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as other:
        line = refused(tmp_path, "--port", str(other.getsockname()[1]), capsys=capsys)
    assert "cannot listen on" in line and not (tmp_path / "andreas.db").exists()


def test_a_sqlite_file_is_for_its_owner_alone_and_no_other_file_is_touched(tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    sqlite3.connect(old).close()
    old.touch()
    old.chmod(0o666)
    for file in (tmp_path / "new.db", old):
        Store(file).close()
        assert file.stat().st_mode & 0o777 == 0o600
    other = tmp_path / "notes.txt"
    other.write_text("no database " * 100)
    other.chmod(0o644)
    with pytest.raises(InputError, match="not a database"):
        Store(other)
    assert other.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("words", "message"), [
    (["--host", "0.0.0.0"], "could submit and cancel jobs"), (["--host", ""], "--host is empty"),
    (["--policy", "best"], "there is no policy 'best'"),
    (["--database", "no/folder/jobs.db"], "unable to open database file"), (["--tls-key", "k.pem"], "go together")])
def test_what_cannot_work_is_refused_at_once(tmp_path: Path, words: list[str], message: str,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(tmp_path, *words, capsys=capsys)
