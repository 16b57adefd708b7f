"""Rows into a SQLite file, one transaction for each command, one writer; and a proof of what survives, from the order of four steps."""

# A module, written by hand.

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ..lab.frames import InputError, SchedLabError
from .model import split_configuration
from .service import MOST_QUEUED, Book, Change, Job, Join, Measure, Node, offers

LOG = logging.getLogger("sched_lab.serve")
Form = TypeVar("Form", bound=BaseModel)

TABLES = """
CREATE TABLE IF NOT EXISTS sample (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, application TEXT NOT NULL,
    batch INTEGER NOT NULL, configuration TEXT NOT NULL, epochs INTEGER NOT NULL,
    seconds REAL NOT NULL);
CREATE TABLE IF NOT EXISTS job (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, application TEXT NOT NULL,
    batch INTEGER NOT NULL, epochs INTEGER NOT NULL, epochs_done INTEGER NOT NULL,
    submission_s REAL NOT NULL, due_s REAL NOT NULL, weight_eur_per_s REAL NOT NULL, node TEXT,
    configuration TEXT, end_s REAL, sequence INTEGER NOT NULL, report_s REAL, start_s REAL);
CREATE TABLE IF NOT EXISTS decision (
    number INTEGER NOT NULL, job TEXT NOT NULL, now_s REAL NOT NULL, event TEXT NOT NULL,
    node TEXT, configuration TEXT, PRIMARY KEY (number, job));
CREATE TABLE IF NOT EXISTS node (
    id TEXT PRIMARY KEY, gpu TEXT NOT NULL, num_gpus INTEGER NOT NULL,
    is_present INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS writer (
    number INTEGER PRIMARY KEY, generation INTEGER NOT NULL, last_s REAL NOT NULL);
INSERT OR IGNORE INTO writer (number, generation, last_s) VALUES (1, 0, 0.0);
"""


class Gone(SchedLabError):
    """The database did not do what it was asked; nobody knows whether it stored anything."""


class Superseded(SchedLabError):
    """Another manager has taken the database over."""


class Store:
    """One writer's way into a database.

    Parameters
    ----------
    file : of SQLite; made, for its owner alone, if it is absent
    wait_s : for other writers of it

    Raises
    ------
    InputError : it cannot be opened, or not be written
    """

    def __init__(self, file: str | Path, wait_s: float = 5.0) -> None:
        self.generation = 0
        with contextlib.suppress(OSError):  # it is there; or SQLite says what is wrong
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            self.connection = sqlite3.connect(file, wait_s, isolation_level=None,
                                              check_same_thread=False)
            self.connection.row_factory = sqlite3.Row
            self.connection.executescript(TABLES)
        except sqlite3.Error as error:
            raise InputError(f"the database {file} cannot be written: {error}",
                             mend="give a file on a disk that can be written, with room") from None
        with contextlib.suppress(PermissionError):  # another user's, who lets us write
            os.chmod(file, 0o600)

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is written in it is stored in the end, or nothing is.

        Raises
        ------
        Gone : nobody knows which
        """
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            yield self.connection
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise Gone(f"the database failed: {error}") from error
        finally:
            with contextlib.suppress(sqlite3.Error):
                self.connection.rollback()  # of what has not been committed


def put(connection: sqlite3.Connection, table: str, key: str, row: Mapping[str, Any]) -> None:
    """Add a row, or change the one with its key."""
    changes = ", ".join(f"{name} = excluded.{name}" for name in row)
    connection.execute(
        f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)}) "
        f"ON CONFLICT ({key}) DO UPDATE SET {changes}", row)


def write(connection: sqlite3.Connection, book: Book, change: Change) -> None:
    """Write all rows of a change but that of the writer."""
    for job in change.jobs:
        put(connection, "job", "number", job.model_dump())
    if change.node:
        put(connection, "node", "id", change.node._asdict())
    if change.sample:
        put(connection, "sample", "number", change.sample.model_dump())
    connection.executemany("INSERT INTO decision VALUES (?, ?, ?, ?, ?, ?)", [
        (book.version + 1, job.id, change.now_s, change.event, job.node, job.configuration)
        for job in change.moved])


def rows_of(book: Book, connection: sqlite3.Connection, table: str,
            form: type[Form]) -> Iterator[tuple[sqlite3.Row, Form]]:
    """Rows of a table, in order, with what each says; who cannot be read is left out."""
    for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1"):
        try:
            given = form.model_validate({name: row[name] for name in form.model_fields})
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            why = f"{place} {first['input']!r:.60}: {first['msg']}" if place else first["msg"]
            LOG.error("a row of the database cannot be read, and is left out",
                      extra={"fields": {"table": table, "row": row[0], "why": why}})
            book.damaged[table, row["id"]] = why
        else:
            yield row, given


def read_rows(book: Book, connection: sqlite3.Connection) -> None:
    """Read nodes, samples and jobs; who is where there is no place for it waits."""
    for row, node in rows_of(book, connection, "node", Join):
        book.nodes[row["id"]] = Node(row["id"], node.gpu, node.num_gpus, bool(row["is_present"]))
    for _, sample in rows_of(book, connection, "sample", Measure):
        book.put_sample(sample)
    free = {name: node.num_gpus for name, node in book.nodes.items() if node.is_present}
    for _, job in rows_of(book, connection, "job", Job):
        if job.node is not None and job.configuration is not None:
            times = book.epoch_s(job.application, job.batch)
            gpus = split_configuration(job.configuration)[1]
            if (gpus <= free.get(job.node, 0) and job.configuration in times
                    and offers(book.nodes[job.node], job.configuration)):
                free[job.node] -= gpus
            else:
                job = job.without_place()
        book.put(job)
    book.last_number = connection.execute("SELECT max(number) FROM job").fetchone()[0] or 0
    book.version = connection.execute("SELECT max(number) FROM decision").fetchone()[0] or 0


def read_book(store: Store, prices: Mapping[str, float],
              most_queued: int = MOST_QUEUED) -> Book:
    """Everything that is stored; the first time, the database becomes ours.

    Parameters
    ----------
    store : see `Store`
    prices, most_queued : as `Book` takes them

    Raises
    ------
    Gone : the database does not answer
    Superseded : it became another's since
    InputError : a stored node has no price
    """
    book = Book(prices, most_queued)
    with store.transaction() as connection:
        if not store.generation:
            connection.execute("UPDATE writer SET generation = generation + 1")
        generation, book.last_s = claim(store, connection)
        read_rows(book, connection)
    store.generation = generation
    check_prices(book)
    return book


def claim(store: Store, connection: sqlite3.Connection) -> tuple[int, float]:
    """Generation of the writer of a database, and when it wrote last; refuse what is another's."""
    row = connection.execute("SELECT generation, last_s FROM writer").fetchone()
    if store.generation not in (0, row["generation"]):
        raise Superseded("another service has taken over this database; this one ends")
    return row["generation"], row["last_s"]


def check_prices(book: Book) -> None:
    """Refuse prices that leave a stored node out."""
    for node in book.nodes.values():
        for count in range(1, node.num_gpus + 1):
            if node.is_present and (name := f"{node.gpu},{count}") not in book.prices:
                raise InputError(f"node {node.id!r} of the database has no price {name!r}",
                                 mend="add it to cost_eur_per_h")


def commit(store: Store, book: Book, change: Change) -> None:
    """Step 2: store the rows of a change, all of them or none.

    Parameters
    ----------
    store, book : where, and what is known before the change
    change : what a command brought

    Raises
    ------
    Gone : nobody knows whether it was stored; read the book again before anything else
    Superseded : the database is another's
    """
    with store.transaction() as connection:
        claim(store, connection)
        connection.execute("UPDATE writer SET last_s = ?", (max(book.last_s, change.now_s),))
        write(connection, book, change)
