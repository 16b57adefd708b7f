"""Rows into a database, one transaction for each command, one writer; and a proof of what survives, from the order of four steps."""

# A module, written by hand.

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, Field, FiniteFloat, ValidationError, model_validator
from sqlalchemy import Connection, Row, Table, bindparam, func, insert, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from ..lab.frames import InputError, SchedLabError
from .database import DECISION, JOB, NODE, SAMPLE, WRITER, open_database
from .model import Configuration, Instant, Name, split_configuration
from .service import Book, Bounds, Change, Job, Join, Measure, Node, Submit, offers

LOG = logging.getLogger("sched_lab.serve")
Form = TypeVar("Form", bound=BaseModel)


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


def write(connection: Connection, book: Book, change: Change) -> None:
    """Write all rows of a change but that of the writer."""
    rows = [row_of(job) for job in change.jobs]
    if new := [row for row in rows if row["number"] > book.last_number]:
        connection.execute(insert(JOB), new)
    if old := [{"row": row["number"], **{name: row[name] for name in CHANGES}}
               for row in rows if row["number"] <= book.last_number]:
        columns: dict[str, Any] = {name: bindparam(name) for name in CHANGES}
        connection.execute(update(JOB).where(JOB.c.number == bindparam("row")).values(columns), old)
    if node := change.node:
        known = update(NODE).where(NODE.c.id == node.id).values(node._asdict())
        if not connection.execute(known).rowcount:
            connection.execute(insert(NODE).values(node._asdict()))
    if change.sample:
        connection.execute(insert(SAMPLE).values(change.sample.model_dump()))
    if change.moved:
        connection.execute(insert(DECISION), [{
            "number": book.version + 1, "job": job.given.id, "now_s": change.now_s,
            "event": change.event, "node": job.node, "configuration": job.configuration}
                                              for job in change.moved])


class StoredJob(Submit):
    """What a row of the table of jobs has to be."""

    number: int
    submission_s: Instant
    epochs_done: Annotated[int, Field(ge=0)]
    sequence: Annotated[int, Field(ge=0)]
    report_s: FiniteFloat | None
    node: Name | None
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


def rows_of(book: Book, connection: Connection, table: Table,
            form: type[Form]) -> Iterator[tuple[Row[Any], Form]]:
    """Rows of a table, in order, with what each says; who cannot be read is left out."""
    for row in connection.execute(select(table).order_by(*table.primary_key)):
        try:
            given = form.model_validate(row, from_attributes=True)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            why = f"{place} {first['input']!r:.60}: {first['msg']}" if place else first["msg"]
            fields = {"table": table.name, "row": row[0], "why": why}
            LOG.error("a row of the database cannot be read, and is left out",
                      extra={"fields": fields})
            book.damaged[table.name, row.id] = why
        else:
            yield row, given


def read_rows(book: Book, connection: Connection) -> None:
    """Read nodes, samples and jobs; who is where there is no place for it waits."""
    for row, node in rows_of(book, connection, NODE, Join):
        book.nodes[row.id] = Node(row.id, node.gpu, node.num_gpus, bool(row.is_present))
    for _, sample in rows_of(book, connection, SAMPLE, Measure):
        book.put_sample(sample)
    free = {name: node.num_gpus for name, node in book.nodes.items() if node.is_present}
    for _, stored in rows_of(book, connection, JOB, StoredJob):
        fields = stored.model_dump()
        given = Submit.model_construct(**{name: fields.pop(name) for name in Submit.model_fields})
        job = Job(given=given, **fields)
        if job.node is not None and job.configuration is not None:
            times = book.epoch_s(given.application, given.batch)
            gpus = split_configuration(job.configuration)[1]
            if (gpus <= free.get(job.node, 0) and job.configuration in times
                    and offers(book.nodes[job.node], job.configuration)):
                free[job.node] -= gpus
            else:
                job = replace(job, node=None, configuration=None, start_s=None)
        book.put(job)
    book.last_number = connection.execute(select(func.max(JOB.c.number))).scalar() or 0


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
            read_rows(book, connection)
            book.version = connection.execute(select(func.max(DECISION.c.number))).scalar() or 0
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
