"""The database of the job manager, in SQLite and in MariaDB: what comes back, and what is refused."""
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import InvalidRequestError

from sched_lab.andreas.database import METADATA, open_database
from sched_lab.andreas.instances import profiles
from sched_lab.andreas.service import Book, Change, Join, Measure, Report, Submit, join, measure, report, submit
from sched_lab.andreas.store import Store, commit, read_book
from sched_lab.lab.frames import InputError
from tests.waiting import until

PRICES = {"TESLA,1": 0.12}


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


def sample(name: str, epochs: int, seconds: float, application: str = "net", batch: int = 32,
           configuration: str = "TESLA,1") -> Measure:
    return Measure(id=name, application=application, batch=batch, configuration=configuration, epochs=epochs,
                   seconds=seconds)


def profiled(*samples: Measure) -> Book:
    book = Book(PRICES)
    for one in samples:
        book.put_sample(one)
    return book


# --- profiles

def test_long_samples_count_more() -> None:
    book = profiled(sample("a", 1, 40.0), sample("b", 3, 96.0), sample("c", 1, 7.0, batch=64),
                    sample("d", 1, 9.0, application="Net"))
    assert book.epoch_s("net", 32) == {"TESLA,1": 34.0}          # (40 + 96) / (1 + 3)
    assert book.epoch_s("net", 64) == {"TESLA,1": 7.0} and book.epoch_s("Net", 32) == {"TESLA,1": 9.0}


def test_measured_profiles_come_back_to_the_last_bit() -> None:
    jobs = {job["application"]: job for job in profiles().values()}.values()
    book = profiled(*(sample(f"{number}-{configuration}"[:9].replace(",", "-"), 1, epoch_s, job["application"],
                             job["batch"], configuration)
                      for number, job in enumerate(jobs) for configuration, epoch_s in job["epoch_s"].items()))
    for job in jobs:
        assert book.epoch_s(job["application"], job["batch"]) == job["epoch_s"]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.floats(0.1, 1e6)), min_size=1, max_size=6), st.randoms())
def test_the_order_of_samples_does_not_matter(samples: list[tuple[int, float]], random: object) -> None:
    means = []
    for _ in range(2):
        means.append(profiled(*(sample(f"s{k}", *one) for k, one in enumerate(samples))).epoch_s("net", 32)["TESLA,1"])
        random.shuffle(samples)  # type: ignore[attr-defined]
    assert means[0] == means[1]
    each = [seconds / epochs for epochs, seconds in samples]
    assert min(each) * (1 - 1e-12) <= means[0] <= max(each) * (1 + 1e-12)


# --- rows

def test_what_is_stored_comes_back(address: str) -> None:
    """Also two ids that only capitals tell apart, and two applications that only a blank does."""
    store = Store(address)
    book = read_book(store, PRICES)

    def carry_out(change: Change | None) -> None:
        assert change is not None
        commit(store, book, change)
        book.apply(change)

    carry_out(join(book, "v1", Join(gpu="TESLA", num_gpus=1), 0.0))
    for number, application in enumerate(("net", "net ", "Net")):
        carry_out(measure(book, sample(f"m{number}", 3, 0.1 + number, application), 1.0))
    for name in ("a", "A"):
        carry_out(submit(book, Submit(id=name, application="net", batch=32, epochs=4, due_s=2e9,
                                      weight_eur_per_s=3e-4), 2.0))
    carry_out(report(book, "A", Report(sequence=2, epochs_done=3), 3.5))
    store.database.dispose()
    again = Store(address)
    found = read_book(again, PRICES)
    again.database.dispose()
    assert (found.jobs, found.samples, found.nodes) == (book.jobs, book.samples, book.nodes)
    assert (found.last_number, found.last_s, found.damaged) == (2, 3.5, {})
    assert {name: found.epoch_s(name, 32) for name in ("net", "net ", "Net")} == {
        name: book.epoch_s(name, 32) for name in ("net", "net ", "Net")}


def test_tables_may_be_created_by_all_at_once(address: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        for engine in pool.map(open_database, [address] * 4):
            engine.dispose()


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
    assert engine.url.drivername == "mariadb+pymysql"
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
