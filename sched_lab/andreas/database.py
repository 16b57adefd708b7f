"""The tables of the job manager in SQLite, MariaDB or PostgreSQL, and how they are opened."""

# A module, written by hand.

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Boolean,
    Column,
    Double,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    make_url,
)
from sqlalchemy.event import listen
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.schema import CreateTable

from ..lab.frames import InputError

__all__ = ['open_database']

LONGEST_NAME = 100  # letters; MariaDB wants to know
WAIT_S = 30  # for another writer of the same SQLite file

METADATA = MetaData()
ON_MARIADB: dict[str, Any] = {"mariadb_engine": "InnoDB", "mariadb_charset": "utf8mb4",
                              "mariadb_collate": "utf8mb4_nopad_bin"}
NAME = String(LONGEST_NAME)
SAMPLE = Table(
    "sample", METADATA, Column("number", Integer, primary_key=True),
    Column("id", NAME, nullable=False, unique=True),
    Column("application", NAME, nullable=False), Column("batch", Integer, nullable=False),
    Column("configuration", NAME, nullable=False), Column("epochs", Integer, nullable=False),
    Column("seconds", Double, nullable=False), **ON_MARIADB)
JOB = Table(
    "job", METADATA, Column("number", Integer, primary_key=True),
    Column("id", NAME, nullable=False, unique=True),
    Column("application", NAME, nullable=False), Column("batch", Integer, nullable=False),
    Column("epochs", Integer, nullable=False), Column("epochs_done", Integer, nullable=False),
    Column("submission_s", Double, nullable=False), Column("due_s", Double, nullable=False),
    Column("weight_eur_per_s", Double, nullable=False), Column("node", NAME),
    Column("configuration", NAME), Column("end_s", Double),
    Column("sequence", Integer, nullable=False), Column("report_s", Double),
    Column("start_s", Double), **ON_MARIADB)
DECISION = Table(
    "decision", METADATA, Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job", NAME, primary_key=True), Column("now_s", Double, nullable=False),
    Column("event", NAME, nullable=False), Column("node", NAME), Column("configuration", NAME),
    **ON_MARIADB)
NODE = Table(
    "node", METADATA, Column("id", NAME, primary_key=True), Column("gpu", NAME, nullable=False),
    Column("num_gpus", Integer, nullable=False), Column("is_present", Boolean, nullable=False),
    **ON_MARIADB)
WRITER = Table(
    "writer", METADATA, Column("number", Integer, primary_key=True, autoincrement=False),
    Column("generation", Integer, nullable=False), Column("revision", Integer, nullable=False),
    Column("last_s", Double, nullable=False), **ON_MARIADB)


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
            for table in METADATA.sorted_tables:  # not create_all: others may do the same now
                connection.execute(CreateTable(table, if_not_exists=True))
    except SQLAlchemyError as error:  # a DBAPIError wraps what the driver says
        engine.dispose()
        raise InputError(f"cannot open the database {engine.url}: {getattr(error, 'orig', error)}",
                         mend="give a SQLite file or the URL of a MariaDB or PostgreSQL server"
                         ) from None
    if file := file_of(engine.url):
        with contextlib.suppress(PermissionError):  # another user's, who lets us write
            os.chmod(file, 0o600)
    return engine
