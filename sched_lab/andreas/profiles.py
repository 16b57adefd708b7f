"""Profiles give each new job its run times; a manager that keeps everything in a database can be killed at any moment."""

# A module, written by hand.

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field, ValidationError
from sqlalchemy import (
    URL,
    Column,
    Connection,
    Double,
    Engine,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    create_engine,
    func,
    insert,
    inspect,
    make_url,
    select,
    update,
)
from sqlalchemy.event import listen
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.schema import CreateColumn, CreateTable

from ..lab.frames import InputError
from .model import (
    Assignment,
    Configuration,
    DueDate,
    Fleet,
    Instance,
    Instant,
    Jobs,
    Price,
    RunTime,
    check_assignment,
    parse_instance,
)

__all__ = ['open_database', 'Profiler', 'JobManager']

LONGEST_NAME = 100  # letters; MariaDB wants to know
WAIT_S = 30  # for another writer of the same SQLite file
Optimiser = Callable[[Fleet, Jobs, float], Assignment]

METADATA = MetaData()
ON_MARIADB: dict[str, Any] = {"mariadb_engine": "InnoDB", "mariadb_charset": "utf8mb4",
                              "mariadb_collate": "utf8mb4_nopad_bin"}
NAME = String(LONGEST_NAME)
SAMPLE = Table(
    "sample", METADATA, Column("number", Integer, primary_key=True),
    Column("application", NAME, nullable=False), Column("batch", Integer, nullable=False),
    Column("configuration", NAME, nullable=False), Column("epochs", Integer, nullable=False),
    Column("seconds", Double, nullable=False), **ON_MARIADB)
JOB = Table("job", METADATA, Column("number", Integer, primary_key=True),
            Column("id", NAME, nullable=False, unique=True),
            Column("application", NAME, nullable=False), Column("batch", Integer, nullable=False),
            Column("epochs", Integer, nullable=False), Column("epochs_done", Integer,
                                                              nullable=False),
            Column("submission_s", Double, nullable=False), Column("due_s", Double, nullable=False),
            Column("weight_eur_per_s", Double, nullable=False), Column("node", NAME),
            Column("configuration", NAME), Column("end_s", Double), Column("sequence", Integer),
            Column("report_s", Double), Column("start_s", Double), **ON_MARIADB)
DECISION = Table("decision", METADATA,
                 Column("number", Integer, primary_key=True, autoincrement=False),
                 Column("job", NAME, primary_key=True), Column("now_s", Double, nullable=False),
                 Column("event", NAME, nullable=False), Column("node", NAME),
                 Column("configuration", NAME), **ON_MARIADB)


def _on_server(url: URL, wait_s: float) -> Engine:
    """Engine for a server, which is waited for so long and no longer."""
    if url.get_backend_name() == "postgresql":
        milli = math.ceil(1000 * wait_s)
        limits: dict[str, Any] = {
            "connect_timeout": math.ceil(wait_s), "tcp_user_timeout": milli,
            "options": f"-c lock_timeout={milli} -c statement_timeout={milli + 5000}"}
        url = url.set(drivername="postgresql+psycopg")
    else:  # MariaDB also answers to mysql://
        limits = {
            "connect_timeout": math.ceil(wait_s), "read_timeout": math.ceil(wait_s) + 5,
            "write_timeout": math.ceil(wait_s) + 5,
            "init_command": f"SET SESSION innodb_lock_wait_timeout={math.ceil(wait_s)}"}
        url = url.set(drivername="mariadb+pymysql")
    return create_engine(url, connect_args=limits, pool_pre_ping=True)


def file_of(url: URL) -> str:
    """File of a SQLite database; empty if it is in memory, or on a server."""
    file = url.database or ""
    is_file = url.get_backend_name() == "sqlite" and file != ":memory:"
    return file if is_file and not file.startswith("file:") else ""


def _engine(address: str | Path, wait_s: float) -> Engine:
    """Engine for the file of a SQLite database, or for a URL."""
    text = str(address)
    try:
        url = make_url(text) if "://" in text else URL.create("sqlite", database=text)
    except (ArgumentError, ValueError):
        raise InputError("the URL of the database cannot be read",
                         mend="write mariadb://user:password@host:port/name") from None
    if (kind := url.get_backend_name()) not in ("sqlite", "mariadb", "mysql", "postgresql"):
        raise InputError(f"{kind!r} is no database that we know",
                         mend="give a SQLite file or the URL of a MariaDB or PostgreSQL server")
    if kind != "sqlite":
        return _on_server(url, wait_s)
    if file := file_of(url):
        with contextlib.suppress(OSError):  # it is there; or SQLite says what is wrong
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    engine = create_engine(url, connect_args={"timeout": wait_s})
    listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _complete(connection: Connection) -> None:
    """Create tables, and columns that an earlier release did not have."""
    for table in METADATA.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
        known = {column["name"] for column in inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                words = CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {words}")


def open_database(address: str | Path = ":memory:", wait_s: float = WAIT_S) -> Engine:
    """Open a database and create its tables where they are missing.

    Parameters
    ----------
    address : file of a SQLite database, or URL such as mariadb://user:password@host:port/name
    wait_s : for a server that does not answer, and for other writers

    Raises
    ------
    InputError : if there is no such database, or the driver of its server is not installed
    """
    try:
        engine = _engine(address, wait_s)
    except ModuleNotFoundError as error:
        kind, extra = (("PostgreSQL", "postgresql") if error.name == "psycopg"
                       else ("MariaDB", "mariadb"))
        raise InputError(f"{kind} needs the package {error.name}",
                         mend=f"pip install 'sched_lab[{extra}]'") from None
    try:
        with engine.begin() as connection:
            _complete(connection)
    except SQLAlchemyError as error:  # a DBAPIError wraps what the driver says
        engine.dispose()
        raise InputError(f"cannot open the database {engine.url}: {getattr(error, 'orig', error)}",
                         mend="give a SQLite file or the URL of a MariaDB or PostgreSQL server"
                         ) from None
    if file := file_of(engine.url):
        with contextlib.suppress(PermissionError):  # another user's, who lets us write
            os.chmod(file, 0o600)
    return engine


Word = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]


class Sample(BaseModel):
    """A measurement: so many epochs took so many seconds."""

    application: Word
    batch: Count
    configuration: Annotated[Configuration, Field(max_length=LONGEST_NAME)]
    epochs: Count
    seconds: RunTime


class Submission(BaseModel):
    """A new job."""

    id: Word
    application: Word
    batch: Count
    epochs: Count
    submission_s: Instant
    due_s: DueDate
    weight_eur_per_s: Price


Entry = TypeVar("Entry", bound=BaseModel)


def _checked(kind: type[Entry], **values: Any) -> Entry:
    """Check values, or name the first one that is wrong."""
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        what = first["msg"].removeprefix("Value error, ")
        raise InputError(
            f"{kind.__name__.lower()}: {first['loc'][0]} {first['input']!r:.60}: {what}") from None


def _epoch_s(connection: Connection, application: str, batch: int) -> dict[str, float]:
    """Mean seconds per epoch of an application on each configuration."""
    rows = connection.execute(
        select(SAMPLE.c.configuration, SAMPLE.c.epochs, SAMPLE.c.seconds).where(
            SAMPLE.c.application == application, SAMPLE.c.batch == batch)).all()
    if not rows:
        known = connection.execute(select(SAMPLE.c.application, SAMPLE.c.batch).distinct().order_by(
            SAMPLE.c.application, SAMPLE.c.batch)).all()
        names = ", ".join(f"{name} with {size}" for name, size in known) or "none"
        raise InputError(f"no profile of application {application!r} with batch {batch}",
                         mend=f"profile it first; known: {names}")
    return {name: math.fsum(row.seconds for row in rows if row.configuration == name)
            / sum(row.epochs for row in rows if row.configuration == name)
            for name in sorted({row.configuration for row in rows})}


class Profiler:
    """Seconds per epoch of applications, measured and remembered.

    Parameters
    ----------
    database : see `open_database`
    """

    def __init__(self, database: Engine) -> None:
        self.database = database

    def record(self, application: str, batch: int, configuration: str, epochs: int,
               seconds: float) -> None:
        """Store a sample: so many epochs took so many seconds.

        Parameters
        ----------
        application, batch, configuration : what ran, and where, such as TESLA,2
        epochs, seconds : how many, and how long they took

        Raises
        ------
        InputError : a value is impossible
        """
        sample = _checked(Sample, application=application, batch=batch, configuration=configuration,
                          epochs=epochs, seconds=seconds)
        with self.database.begin() as connection:
            connection.execute(insert(SAMPLE).values(sample.model_dump()))

    def samples(self) -> pd.DataFrame:
        """All samples, oldest first."""
        return _frame(self.database, SAMPLE).drop(columns="number")

    def epoch_s(self, application: str, batch: int) -> dict[str, float]:
        """Mean seconds per epoch on each configuration.

        Parameters
        ----------
        application, batch : what is to run

        Raises
        ------
        InputError : nothing is known
        """
        with self.database.begin() as connection:
            return _epoch_s(connection, application, batch)

    def predict_s(self, application: str, batch: int, epochs: int) -> dict[str, float]:
        """Seconds that a new job will take on each configuration.

        Parameters
        ----------
        application, batch, epochs : what is to run, and how many epochs
        """
        return {
            name: epochs * epoch_s for name, epoch_s in self.epoch_s(application, batch).items()}


def _frame(database: Engine, table: Table) -> pd.DataFrame:
    """Rows of a table by primary key."""
    with database.begin() as connection:
        rows = connection.execute(select(table).order_by(*table.primary_key.columns)).all()
    return pd.DataFrame([tuple(row) for row in rows], columns=list(table.c.keys()))


class _Cluster:
    """What the manager knows without the database.

    Parameters
    ----------
    nodes, cost_eur_per_h : as in the instance file
    """

    def __init__(self, nodes: Sequence[Mapping[str, Any]],
                 cost_eur_per_h: Mapping[str, float]) -> None:
        self.given: dict[str, Any] = {"nodes": list(nodes), "cost_eur_per_h": dict(cost_eur_per_h)}
        self.type_name = parse_instance({**self.given, "jobs": []}).type_name

    def instance(self, connection: Connection, queue: Sequence[Row[Any]], now_s: float) -> Instance:
        """Lay jobs out with the time that they still need."""
        jobs = [{"id": row.id, "submission_s": row.submission_s, "due_s": row.due_s,
                 "weight_eur_per_s": row.weight_eur_per_s, "epochs": row.epochs - row.epochs_done,
                 "times_s": self._left_s(connection, row)} for row in queue]
        return parse_instance({**self.given, "jobs": jobs, "now_s": now_s})

    def _left_s(self, connection: Connection, row: Row[Any]) -> dict[str, float]:
        """Remaining seconds of a job on each configuration of a GPU type that the nodes have."""
        epoch_s = _epoch_s(connection, row.application, row.batch)
        usable = {
            name: (row.epochs - row.epochs_done) * seconds for name, seconds in epoch_s.items()
            if name.rpartition(",")[0] in self.type_name}
        if not usable:
            raise InputError(
                f"job {row.id!r}: {row.application!r} is profiled on {', '.join(epoch_s)} only",
                mend=f"profile it on {' or '.join(self.type_name)}")
        return usable


def _store_submission(connection: Connection, cluster: _Cluster, new: Submission) -> None:
    """Add a job to the queue, if some node can run it."""
    try:
        connection.execute(insert(JOB).values({**new.model_dump(), "epochs_done": 0}))
    except IntegrityError:
        raise InputError(f"a job {new.id!r} exists already",
                         mend="give each job its own id") from None
    row = connection.execute(select(JOB).where(JOB.c.id == new.id)).one()
    cluster.instance(connection, [row], new.submission_s)  # an error undoes the transaction


def _store_report(connection: Connection, job: str, epochs_done: int, now_s: float) -> bool:
    """Note how many epochs of a job are done; return whether these are all."""
    row = connection.execute(select(JOB).where(JOB.c.id == job).with_for_update()).one_or_none()
    if row is None:
        raise InputError(f"there is no job {job!r}", mend="submit it first")
    if not row.epochs_done <= epochs_done <= row.epochs:
        raise InputError(
            f"job {job!r}: {epochs_done} epochs done, after {row.epochs_done} of {row.epochs}",
            mend="report all finished epochs of the job")
    is_done: bool = epochs_done == row.epochs
    if row.end_s is None:  # otherwise the report is repeated
        end = {"end_s": now_s, "node": None, "configuration": None} if is_done else {}
        connection.execute(
            update(JOB).where(JOB.c.number == row.number).values({
                "epochs_done": epochs_done, **end}))
    return is_done


Place = dict[str, str | None]


def _decide(connection: Connection, cluster: _Cluster, optimiser: Optimiser,
            now_s: float) -> list[tuple[Row[Any], Place]]:
    """Unfinished jobs, and where each shall run."""
    queue = connection.execute(
        select(JOB).where(JOB.c.end_s.is_(None)).order_by(JOB.c.number).with_for_update()).all()
    if not queue:
        return []
    with warnings.catch_warnings():
        # of a due date before submission: given at submission
        warnings.simplefilter("ignore", UserWarning)
        instance = cluster.instance(connection, queue, now_s)
    assignment = optimiser(instance.fleet, instance.jobs, now_s)
    check_assignment(instance.fleet, instance.jobs.times_s, assignment)
    places: list[Place] = [{
        "node": instance.node_name[node],
        "configuration": instance.configuration_name(configuration)} if node >= 0 else {
            "node": None, "configuration": None}
                           for node, configuration in zip(*assignment, strict=True)]
    return list(zip(queue, places, strict=True))


def _store_decision(connection: Connection, decided: Sequence[tuple[Row[Any], Place]], now_s: float,
                    event: str) -> None:
    """Write the new places of jobs, and the decision."""
    number = (connection.execute(select(func.max(DECISION.c.number))).scalar() or 0) + 1
    for row, place in decided:
        connection.execute(update(JOB).where(JOB.c.number == row.number).values(place))
        connection.execute(insert(DECISION).values(
            {"number": number, "now_s": now_s, "event": event, "job": row.id, **place}))


class JobManager:
    """Queue, states and decisions, all in a database: a killed manager goes on as another one.

    Parameters
    ----------
    database : see `open_database`
    nodes, cost_eur_per_h : as in the instance file
    optimiser : given fleet, jobs and the time, an assignment
    """

    def __init__(self, database: Engine, nodes: Sequence[Mapping[str, Any]],
                 cost_eur_per_h: Mapping[str, float], optimiser: Optimiser) -> None:
        self.database = database
        self.optimiser = optimiser
        self.cluster = _Cluster(nodes, cost_eur_per_h)

    def submit(self, job: str, application: str, batch: int, epochs: int, due_s: float,
               weight_eur_per_s: float, now_s: float) -> None:
        """Store a new job, then decide.

        Parameters
        ----------
        job : its id
        application, batch, epochs : what it runs, and how long
        due_s, weight_eur_per_s : when it is due, and what a second of delay costs
        now_s : present time

        Raises
        ------
        InputError : its id is taken, or no node can run it; nothing is stored
        """
        new = _checked(Submission, id=job, application=application, batch=batch, epochs=epochs,
                       submission_s=now_s, due_s=due_s, weight_eur_per_s=weight_eur_per_s)
        with self.database.begin() as connection:
            _store_submission(connection, self.cluster, new)
        self.decide(now_s, "submission")

    def report(self, job: str, epochs_done: int, now_s: float) -> None:
        """Store a snapshot of a job; if that was its last epoch, decide.

        A report may be repeated.

        Parameters
        ----------
        job : its id
        epochs_done : in all
        now_s : present time
        """
        with self.database.begin() as connection:
            is_done = _store_report(connection, job, epochs_done, now_s)
        if is_done:
            self.decide(now_s, "completion")

    def decide(self, now_s: float, event: str = "period") -> None:
        """Call the optimiser with all unfinished jobs, check its assignment, and store it.

        Parameters
        ----------
        now_s : present time
        event : why, for the diary
        """
        with self.database.begin() as connection:
            _store_decision(connection, _decide(connection, self.cluster, self.optimiser, now_s),
                            now_s, event)

    def jobs(self) -> pd.DataFrame:
        """All jobs by submission, with their state: waiting, running, done or cancelled."""
        frame = _frame(self.database, JOB).drop(columns=["number", "sequence", "report_s",
                                                         "start_s"])
        is_cancelled = frame["end_s"].notna() & (frame["epochs_done"] < frame["epochs"])
        states = np.select([is_cancelled, frame["end_s"].notna(), frame["node"].notna()],
                           ["cancelled", "done", "running"], "waiting")
        return frame.assign(state=states)

    def decisions(self) -> pd.DataFrame:
        """Where each job of the queue was to run from each decision on."""
        return _frame(self.database, DECISION)
