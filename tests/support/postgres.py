"""A real PostgreSQL of the tests' own, which they start on a Unix socket."""

from __future__ import annotations

import atexit
import getpass
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

PASSWORD = "a long secret"  # of the test's own cluster


def binaries() -> Path | None:
    """The folder of Debian's newest PostgreSQL; None without one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def unprivileged() -> tuple[str, dict[str, Any]]:
    """PostgreSQL refuses to run as root; then Debian's own user of it runs the cluster."""
    if os.getuid() != 0:
        return getpass.getuser(), {}
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("PostgreSQL: no user postgres to run it as")
    return "postgres", {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


_ONE: dict[str, str] = {}
"""The cluster of this process's tests, by "url", and the databases made in it."""


@contextmanager
def database_url() -> Iterator[str]:
    """A new, empty database in one durable cluster, which lives as long as this process's tests."""
    if "url" not in _ONE:
        stack = ExitStack()
        url, secret = stack.enter_context(cluster(durable=True))
        atexit.register(stack.close)
        _ONE["url"] = url.replace("@", f":{quote(secret.read_text(encoding='utf-8'))}@")
    name = f"d{secrets.token_hex(4)}"
    plain = _ONE["url"].replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield _ONE["url"].replace("/postgres?", f"/{name}?")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def cluster(*, durable: bool = False) -> Iterator[tuple[str, Path]]:
    """The folder of the Unix socket of a new cluster with the table `stay`, and the file with its password."""
    tools = binaries()
    if tools is None:
        pytest.skip("PostgreSQL: no /usr/lib/postgresql; apt-get install postgresql")
    user, as_user = unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="fw-pg-"))
    secret = folder / "secret"
    secret.write_text(PASSWORD, encoding="utf-8")
    secret.chmod(0o600)
    if as_user:
        os.chown(folder, as_user["user"], as_user["group"])
        os.chown(secret, as_user["user"], as_user["group"])
    data = folder / "data"

    def tool(name: str, *arguments: object) -> None:
        command = [str(part) for part in (tools / name, *arguments)]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=60, **as_user)

    try:
        tool("initdb", "-D", data, "-U", user, "--auth=scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "-N")
        options = f"-k {folder} -c listen_addresses= -c fsync={'on' if durable else 'off'}"
        tool("pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
        try:
            _fill(folder, user)
            yield f"postgresql://{user}@/postgres?host={folder}", secret
        finally:
            tool("pg_ctl", "-D", data, "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _fill(folder: Path, user: str) -> None:
    with psycopg.connect(host=str(folder), user=user, password=PASSWORD, dbname="postgres") as connection:
        connection.execute("CREATE SEQUENCE number")
        connection.execute("GRANT ALL ON number TO PUBLIC")
        connection.execute(
            'CREATE TABLE stay (patient text, "group" char, age numeric, lactate real, ill bool, day date)'
        )
        connection.execute(
            "INSERT INTO stay VALUES ('p1', 'a', 60.25, 4.5, false, '2020-02-03'), ('p2', 'b', 70, 5, true, 'infinity')"
        )
