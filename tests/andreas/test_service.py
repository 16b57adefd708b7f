"""The service as processes see it: killed, doubled, taken over, asked wrongly, told to end."""
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sched_lab.andreas.profiles import METADATA, open_database
from sched_lab.andreas.service import (
    Book,
    Bounds,
    Join,
    Measure,
    Refused,
    Report,
    Submit,
    cancel,
    expected_end_s,
    is_off,
    join,
    leave,
    measure,
    report,
    submit,
)
from tests.andreas.soak import CLUSTER, Caller, soak, teach
from tests.andreas.test_profiles import mariadb_url  # noqa: F401

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="SIGKILL is of POSIX")
JOB = {"id": "a", "application": "lstm", "batch": 32, "epochs": 4, "due_s": 2e9, "weight_eur_per_s": 3e-4}


# --- the book

@pytest.fixture
def book() -> Book:
    """One node with two TESLA; an epoch of `lstm` takes 10 s on one."""
    book = Book({"TESLA,1": 0.12, "TESLA,2": 0.16}, Bounds(queue=2, nodes=2, samples=2))
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
    book.put(replace(book.jobs["a"], node="v1", configuration="TESLA,1", start_s=0.0))
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


# --- short soaks

def test_a_short_soak_on_sqlite_loses_nothing(tmp_path: Path) -> None:
    found = soak(120, 3, 5, str(tmp_path / "jobs.db"), tmp_path)
    assert (found["submissions"], found["kills"], found["lost"]) == (120, 3, 0) and found["versions"] > 10


def test_a_short_soak_on_mariadb_loses_nothing(tmp_path: Path, mariadb_url: str) -> None:  # noqa: F811
    empty = open_database(mariadb_url)
    METADATA.drop_all(empty)
    empty.dispose()
    found = soak(120, 3, 6, mariadb_url, tmp_path)
    assert (found["submissions"], found["kills"], found["lost"]) == (120, 3, 0)


# --- the command

def start(folder: Path, *words: str) -> tuple[subprocess.Popen[str], int]:
    """Start the command; return it and its port when it listens."""
    (folder / "cluster.json").write_text(json.dumps(CLUSTER))
    process = subprocess.Popen(
        [sys.executable, "-m", "sched_lab", "andreas", "serve", "--cluster", "cluster.json", "--policy", "greedy",
         "--port", "0", *words], cwd=folder, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "SCHED_LAB_COMPILE": "never"})
    assert process.stderr is not None
    for line in process.stderr:
        if '"listening"' in line:
            return process, json.loads(line)["port"]
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
    process, port = start(tmp_path)
    processes.append(process)
    caller = Caller(port)
    teach(caller)
    assert caller.ask("POST", "/jobs", JOB)[0] == 201
    process.send_signal(signal.SIGKILL)
    process.wait()
    caller.forget()
    second, second_port = start(tmp_path, "--database", "andreas.db", "--token-file", "token")
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
    third, port = start(tmp_path)
    processes.append(third)
    caller = Caller(port)
    status, answer = caller.ask("POST", "/jobs", JOB)
    assert (status, answer["repeated"], answer["epochs"]) == (200, True, 4)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", second_port)) as direct:
        direct.request("POST", "/jobs", json.dumps(JOB | {"id": "b"}), {"Authorization": "Bearer open sesame"})
        refused = direct.getresponse()
        assert refused.status == 503 and b"another service has taken over" in refused.read()
    assert second.wait(30) == 2   # and ends
    assert caller.ask("GET", "/jobs/b")[0] == 404
    caller.forget()
    third.terminate()
    assert third.wait(30) in (0, 143, -signal.SIGTERM)


@pytest.mark.parametrize(("words", "message"), [
    (["--host", "0.0.0.0"], "could submit and cancel jobs"), (["--policy", "best"], "there is no policy 'best'"),
    (["--database", "oracle://x"], "'oracle' is no database"), (["--tls-key", "k.pem"], "go together")])
def test_what_cannot_work_is_refused_at_once(tmp_path: Path, words: list[str], message: str,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    from sched_lab.cli import main

    (tmp_path / "cluster.json").write_text(json.dumps(CLUSTER))
    with pytest.raises(SystemExit) as caught:
        main(["andreas", "serve", "--cluster", str(tmp_path / "cluster.json"), *words])
    assert caught.value.code == 2 and message in capsys.readouterr().err
