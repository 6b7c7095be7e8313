"""What the agent knows of databases by their kind: which URLs it takes, how it is kept from writing, what is missing.

Guarantees: no URL holds a password, whatever the database. Where a database has read-only transactions or files, the
agent uses them. Of every other one the hospital says in agent.yaml that the database user may only read, because nobody
else can keep the agent from writing there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sqlalchemy import URL

SQLITE: Final = ("sqlite", "sqlite+pysqlite")
DUCKDB: Final = ("duckdb",)
FILES: Final = (*SQLITE, *DUCKDB)
"""Kinds whose database is a file, which is opened for reading only."""
_POSTGRES: Final = ("postgresql", "postgresql+psycopg")
_OWN_DRIVERS: Final = {"sqlite": SQLITE, "duckdb": DUCKDB, "postgresql": _POSTGRES}
"""Kinds that are read with the driver that comes with the agent, and with no other."""
_MYSQL: Final = (
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION TRANSACTION READ ONLY",
    "START TRANSACTION READ ONLY",
)
_FIRST: Final = {"mysql": _MYSQL, "mariadb": _MYSQL, "oracle": ("SET TRANSACTION READ ONLY",)}
"""What begins a transaction in which the database itself refuses to write. PostgreSQL's driver has its own way."""
_IN_CLEAR: Final = re.compile(
    r"pass|pwd|secret|token|apikey|accesskey|privatekey(?!file$|path$)|base64|odbcconnect|defaultfile|defaultgroup"
)
_BENDS: Final = re.compile(r"autocommit|isolationlevel|initcommand|localinfile|clientflag|plugin")
_PACKAGES: Final = {
    "MySQLdb": "mysqlclient",
    "pymysql": "PyMySQL",
    "mysql": "mysql-connector-python",
    "mssql_python": "mssql-python",
    "bigquery": "sqlalchemy-bigquery",
    "databricks": "databricks-sqlalchemy",
    "db2": "ibm_db_sa",
    "hana": "sqlalchemy-hana",
    "iris": "sqlalchemy-iris",
    "snowflake": "snowflake-sqlalchemy",
}
"""Names on the package index where they differ from the module's or the dialect's."""


def kind_of(url: URL) -> str:
    """The kind of database, such as `mysql`, whatever its driver."""
    return url.get_backend_name()


def refuses_to_write(url: URL) -> bool:
    """Whether the database itself, or how it is opened, keeps the agent from writing."""
    return kind_of(url) in (*_OWN_DRIVERS, *_FIRST)


def first(url: URL) -> tuple[str, ...]:
    """The statements that begin the transaction in which the hospital's own runs."""
    return _FIRST.get(kind_of(url), ())


def faults(text: str, *, promised: bool | None) -> list[str]:
    """Everything that is wrong with a URL, in words that never repeat it: it may hold a password.

    `promised` is `user_may_only_read` beside it.
    """
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        return ["this is no SQLAlchemy URL; write for example postgresql://reader@host:5432/name"]
    told, kind = [], kind_of(url)
    own = _OWN_DRIVERS.get(kind)
    if own is not None and url.drivername not in own:
        told.append(f"write {kind}:// without another driver; the agent brings the one that it reads {kind} with")
    options = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in url.query]
    if url.password is not None or any(map(_IN_CLEAR.search, options)):
        told.append(
            "remove the password, and options that hold one or name a file with one; put the password alone into a file"
            " with mode 0600 and name that under credentials"
        )
    if any(map(_BENDS.search, options)):
        told.append("remove options that commit, that run statements of their own or that load other code or files")
    if url.drivername in FILES and (url.database in (None, "", ":memory:") or url.query):
        told.append("name the database's file, without options: sqlite:///folder/file.sqlite3 or duckdb:///file.duckdb")
    if refuses_to_write(url) and promised is not None:
        told.append(f"remove user_may_only_read: the agent itself is kept from writing on {kind}")
    if not refuses_to_write(url) and not promised:
        told.append(
            f"nothing keeps the agent from writing on {kind}, so use a database user that may only read, and say so in"
            " a line beside the url: user_may_only_read: true"
        )
    return told


def package(url: URL, error: ImportError | None) -> str:
    """The package to install, by the error of a driver that is not there; None stands for a dialect that is not."""
    name = kind_of(url) if error is None else (error.name or "").partition(".")[0]
    return _PACKAGES.get(name) or name or kind_of(url)
