"""Rows into a database, one transaction for each command, one writer; and a proof of what survives, from the order of four steps."""

# A module, written by hand.

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, FiniteFloat, ValidationError, model_validator
from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Double,
    Integer,
    Row,
    Table,
    bindparam,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from ..lab.frames import InputError, SchedLabError
from .model import Configuration
from .profiles import (
    DECISION,
    JOB,
    METADATA,
    NAME,
    ON_MARIADB,
    SAMPLE,
    Sample,
    Submission,
    Word,
    open_database,
)
from .service import Book, Bounds, Change, Job, Join, Measure, Node, Submit, has

LOG = logging.getLogger("sched_lab.serve")
NODE = Table("node", METADATA, Column("id", NAME, primary_key=True),
             Column("gpu", NAME, nullable=False), Column("num_gpus", Integer, nullable=False),
             Column("is_present", Boolean, nullable=False), **ON_MARIADB)
SAMPLE_KEY = Table("sample_key", METADATA, Column("id", NAME, primary_key=True),
                   Column("number", Integer, nullable=False), **ON_MARIADB)
WRITER = Table("writer", METADATA,
               Column("number", Integer, primary_key=True, autoincrement=False),
               Column("generation", Integer, nullable=False),
               Column("revision", Integer, nullable=False),
               Column("last_s", Double, nullable=False),
               **ON_MARIADB)


class Gone(SchedLabError):
    """The database did not do what it was asked; nobody knows whether it stored anything."""


class Superseded(SchedLabError):
    """Another manager has taken the database over."""


def row_of(job: Job) -> dict[str, Any]:
    """A job as a row of its table."""
    return {**job.given.model_dump(), "number": job.number, "submission_s": job.submission_s,
            "epochs_done": job.epochs_done, "sequence": job.sequence, "report_s": job.report_s,
            "node": job.node, "configuration": job.configuration, "start_s": job.start_s,
            "end_s": job.end_s}


CHANGES = ("epochs_done", "sequence", "report_s", "node", "configuration", "start_s", "end_s")


def write_jobs(connection: Connection, jobs: Sequence[Job], known: int) -> None:
    """Insert jobs whose number is new, and update the others."""
    rows = [row_of(job) for job in jobs]
    if new := [row for row in rows if row["number"] > known]:
        connection.execute(insert(JOB), new)
    if old := [{"row": row["number"], **{name: row[name] for name in CHANGES}}
               for row in rows if row["number"] <= known]:
        columns: dict[str, Any] = {name: bindparam(name) for name in CHANGES}
        connection.execute(update(JOB).where(JOB.c.number == bindparam("row")).values(columns), old)


def write_node(connection: Connection, node: Node) -> None:
    """Insert or update a node."""
    done = connection.execute(update(NODE).where(NODE.c.id == node.id).values(node._asdict()))
    if not done.rowcount:
        connection.execute(insert(NODE).values(node._asdict()))


def write_sample(connection: Connection, sample: Measure) -> None:
    """Insert a sample, and its id."""
    found = connection.execute(insert(SAMPLE).values(sample.model_dump(exclude={"id"})))
    number = found.inserted_primary_key
    assert number is not None
    connection.execute(insert(SAMPLE_KEY).values(id=sample.id, number=number[0]))


def write(connection: Connection, book: Book, change: Change) -> None:
    """Write all rows of a change but that of the writer."""
    if change.jobs:
        write_jobs(connection, change.jobs, book.last_number)
    if change.node:
        write_node(connection, change.node)
    if change.sample:
        write_sample(connection, change.sample)
    if change.moved:
        connection.execute(insert(DECISION), [{
            "number": book.version + 1, "job": job.given.id, "now_s": change.now_s,
            "event": change.event, "node": job.node, "configuration": job.configuration}
                                              for job in change.moved])


class StoredJob(Submission):
    """What a row of the table of jobs has to be."""

    model_config = ConfigDict(strict=True)

    epochs_done: Annotated[int, Field(ge=0)]
    sequence: Annotated[int, Field(ge=0)] | None
    report_s: FiniteFloat | None
    node: Word | None
    configuration: Configuration | None
    start_s: FiniteFloat | None
    end_s: FiniteFloat | None

    @model_validator(mode="after")
    def whole(self) -> Self:
        """Check what columns have to do with each other."""
        if self.epochs_done > self.epochs:
            raise ValueError(f"{self.epochs_done} of {self.epochs} epochs are done")
        if (self.node is None) != (self.configuration is None):
            raise ValueError("node or configuration is missing")
        return self


def job_in(row: Row[Any]) -> Job:
    """A row of the table of jobs, placed or not.

    Raises
    ------
    ValidationError : a value is impossible
    """
    stored = StoredJob.model_validate(row, from_attributes=True)
    given = Submit.model_construct(**{name: getattr(row, name) for name in Submit.model_fields})
    start_s = row.start_s if row.start_s is not None or row.node is None else row.submission_s
    return Job(row.number, given, stored.submission_s, stored.epochs_done, stored.sequence or 0,
               stored.report_s, stored.node, stored.configuration, start_s, stored.end_s)


def words_of_row(error: ValidationError) -> str:
    """The first thing that is wrong with a row."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place} {first['input']!r:.60}: {first['msg']}" if place else first["msg"]


def leave_out(table: Table, row: Row[Any], error: ValidationError) -> str:
    """Say that a row is left out; return why."""
    why = words_of_row(error)
    fields = {"table": table.name, "row": getattr(row, "number", None) or row.id, "why": why}
    LOG.error("a row of the database cannot be read, and is left out", extra={"fields": fields})
    return why


def read_nodes(book: Book, connection: Connection) -> None:
    """Read nodes."""
    for row in connection.execute(select(NODE).order_by(NODE.c.id)):
        try:
            given = Join.model_validate({"gpu": row.gpu, "num_gpus": row.num_gpus})
        except ValidationError as error:
            leave_out(NODE, row, error)
        else:
            book.nodes[row.id] = Node(row.id, given.gpu, given.num_gpus, bool(row.is_present))


def read_samples(book: Book, connection: Connection) -> None:
    """Read samples, and the ids of those that have one."""
    keys = {row.number: row.id for row in connection.execute(select(SAMPLE_KEY))}
    for row in connection.execute(select(SAMPLE).order_by(SAMPLE.c.number)):
        key = keys.get(row.number)
        try:
            sample = Sample.model_validate(row, from_attributes=True, strict=True)
        except ValidationError as error:
            why = leave_out(SAMPLE, row, error)
            if key:
                book.damaged["sample", key] = why
            continue
        book.pool(sample.application, sample.batch, sample.configuration).add(
            sample.epochs, sample.seconds)
        if key:
            book.samples[key] = Measure.model_construct(id=key, **sample.model_dump())


def read_jobs(book: Book, connection: Connection) -> None:
    """Read jobs, after nodes and samples; who is where there is no place for it waits."""
    free = {name: node.num_gpus for name, node in book.nodes.items() if node.is_present}
    for row in connection.execute(select(JOB).order_by(JOB.c.number)):
        book.last_number = max(book.last_number, row.number)
        try:
            job = job_in(row)
        except ValidationError as error:
            book.damaged["job", str(row.id)] = leave_out(JOB, row, error)
            continue
        if job.node is not None and job.configuration is not None:
            times = book.epoch_s(job.given.application, job.given.batch)
            gpus = int(job.configuration.rpartition(",")[2])
            if (gpus <= free.get(job.node, 0) and job.configuration in times
                    and has(book.nodes[job.node], job.configuration)):
                free[job.node] -= gpus
            else:
                job = replace(job, node=None, configuration=None, start_s=None)
        book.put(job)


def read_into(book: Book, connection: Connection) -> None:
    """Fill an empty book."""
    read_nodes(book, connection)
    read_samples(book, connection)
    read_jobs(book, connection)
    newest = select(DECISION.c.number).order_by(DECISION.c.number.desc()).limit(1)
    book.version = connection.execute(newest).scalar() or 0


class Store:
    """One writer's way into a database.

    Parameters
    ----------
    address : as `open_database` takes it
    wait_s : for a database that does not answer, or is locked

    Raises
    ------
    InputError : it cannot be opened, or not be written
    """

    def __init__(self, address: str, wait_s: float = 5.0) -> None:
        self.database = open_database(address, wait_s)
        self.generation = 0
        try:
            with self.database.begin() as connection:
                connection.execute(insert(WRITER).values(number=1, generation=0, revision=0,
                                                         last_s=0.0))
        except IntegrityError:  # it is there already
            pass
        except SQLAlchemyError as error:
            self.database.dispose()
            raise InputError(f"the database {self.database.url} cannot be written: "
                             f"{getattr(error, 'orig', error)}",
                             mend="give one on a disk that can be written, with room") from None

    def claim(self, connection: Connection, last_s: float, step: int = 0) -> None:
        """Begin a transaction: refuse to go on if the database is not ours any more."""
        mine = WRITER.c.generation == self.generation
        done = connection.execute(update(WRITER).where(mine if not step else WRITER.c.number == 1)
                                  .values(generation=WRITER.c.generation + step,
                                          revision=WRITER.c.revision + 1,
                                          last_s=last_s if not step else WRITER.c.last_s))
        if done.rowcount != 1:
            raise Superseded("another service has taken over this database; this one ends")


def read_book(store: Store, prices: Mapping[str, float], bounds: Bounds | None = None) -> Book:
    """Everything that is stored; the first time, the database becomes ours.

    Parameters
    ----------
    store : see `Store`
    prices, bounds : as `Book` takes them

    Raises
    ------
    Gone : the database does not answer
    Superseded : it became another's since
    """
    book = Book(prices, bounds or Bounds())
    try:
        with store.database.begin() as connection:
            is_first = not store.generation
            last_s = connection.execute(select(WRITER.c.last_s)).scalar() or 0.0
            store.claim(connection, last_s, 1 if is_first else 0)
            row = connection.execute(select(WRITER)).one()
            read_into(book, connection)
        store.generation = row.generation
    except SQLAlchemyError as error:
        raise Gone(words_of(error)) from error
    book.revision = row.revision
    book.last_s = row.last_s
    check_prices(book)
    return book


def words_of(error: SQLAlchemyError) -> str:
    """What the driver says, on one line, without the statement and its values."""
    return " ".join(f"the database failed: {getattr(error, 'orig', error)}".split())[:300]


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
    try:
        with store.database.begin() as connection:
            store.claim(connection, max(book.last_s, change.now_s))
            write(connection, book, change)
    except SQLAlchemyError as error:
        raise Gone(words_of(error)) from error
