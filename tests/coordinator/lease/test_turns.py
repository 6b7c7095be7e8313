"""Two real coordinators on one database: one serves, the other stands by, takes over, and the first one comes back.

Marked slow parts run the same over PostgreSQL.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import yaml
from sqlalchemy import create_engine, text

from coordinator.config import CoordinatorConfig
from coordinator.lease.turns import lease_of
from coordinator.storage.database import Database, StoreError
from coordinator.storage.words import WordDamagedError
from protos.messages import EPOCH_KEY, PROTOCOL
from protos.v1 import silo_pb2
from support.silos import Caller

SECONDS = 3.0
"""Of the lease."""
LONG = 120


class Machine:
    """One `fedward-coordinator serve`, with its configuration and its log."""

    def __init__(self, folder, **config):
        folder.mkdir()
        self.folder, self.config = folder, folder / "coordinator.yaml"
        self.port = free_port()
        self.metrics_port = free_port()
        given = {"port": self.port, "metrics_port": self.metrics_port, "data": "data", "lease_seconds": SECONDS}
        self.config.write_text(yaml.safe_dump({**given, **config}))
        self.log = folder / "log.jsonl"
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "coordinator.cli", "serve", "-c", self.config]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log)

    def told(self):
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def events(self, name):
        return [one for one in self.told() if one["event"] == name]

    def wait_for(self, name, times=1):
        """The last entry of this name, once there are so many."""
        end = time.monotonic() + LONG
        while len(found := self.events(name)) < times:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)
        return found[-1]

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def active(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as page:
            (line,) = [
                one for one in page.read().decode().splitlines() if one.startswith("fedward_coordinator_active ")
            ]
        return float(line.split()[1])

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        return self.process.wait(LONG)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def machines(authority, url, tmp_path):
    """Two machines with one identity, database and spool."""
    home = authority.credential("coordinator", f"hub-{tmp_path.name}".replace("_", "-").lower()[:40])
    files = {name: str(home / f"{name}.pem") for name in ("certificate", "key", "authority")}
    made = [
        Machine(tmp_path / name, database=url, spool=str(tmp_path / "spool"), **files) for name in ("first", "second")
    ]
    yield made
    for one in made:
        if one.process is not None and one.process.poll() is None:
            one.process.send_signal(signal.SIGCONT)
            one.process.kill()
            one.process.wait()


@pytest.fixture
def silo(authority, tmp_path):
    return authority.credential("silo", f"watch-{tmp_path.name}".replace("_", "-").lower()[:40])


def joined(machine, silo):
    """The epoch that an answer of this machine says, and its status code: of a call that needs no database."""
    caller = Caller(machine.port, silo)
    try:
        _, call = caller.silo.Join.with_call(silo_pb2.JoinRequest(protocol=PROTOCOL, agent_version="t"), timeout=LONG)
    except grpc.RpcError as error:
        call = error
    finally:
        caller.close()
    words = [int(value) for key, value in call.initial_metadata() or () if key == EPOCH_KEY]
    return (words or [None])[0], call.code()


def freeze(machine, other):
    """Stop a process and return when, once the other one can take over.

    One that is stopped within a write of SQLite holds the file's lock until it wakes (docs/standby.md): then again.
    """
    while True:
        machine.process.send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        while time.monotonic() - frozen < 10 * SECONDS:
            if other.events("serving"):
                return frozen
            time.sleep(0.02)
        machine.process.send_signal(signal.SIGCONT)
        time.sleep(1.0)


def test_a_frozen_coordinator_is_replaced_and_answers_nothing_when_it_wakes(machines, silo):
    first, second = machines
    first.start()
    epoch = first.wait_for("serving")["epoch"]
    second.start()
    assert first.config.parent.name == "first"
    assert f"port {first.port}, epoch {epoch}" in second.wait_for("standing by")["why"]
    assert (second.listens(), second.active(), first.active()) == (False, 0.0, 1.0)
    assert joined(first, silo) == (epoch, grpc.StatusCode.OK)

    with ThreadPoolExecutor(1) as pool:
        frozen = freeze(first, second)
        late = pool.submit(joined, first, silo)  # it lies in the frozen one's socket
        later = second.wait_for("serving")["epoch"]
        assert later > epoch
        assert time.monotonic() - frozen >= SECONDS * 0.7, "the last renewal may have been a moment before"
        assert joined(second, silo) == (later, grpc.StatusCode.OK)
        first.process.send_signal(signal.SIGCONT)
        said, code = late.result(LONG)
    assert code is not grpc.StatusCode.OK
    assert said in {None, epoch}
    first.wait_for("another coordinator has taken over; this one stands by from now on")
    first.wait_for("standing by")
    assert (first.listens(), first.active(), second.active()) == (False, 0.0, 1.0)

    began = time.monotonic()
    assert second.end() == 0
    assert first.wait_for("serving", times=2)["epoch"] > later
    assert time.monotonic() - began < LONG
    assert joined(first, silo)[1] is grpc.StatusCode.OK
    assert first.end() == 0
    assert not [one for machine in machines for one in machine.told() if "exception" in one]


def test_one_that_was_killed_takes_its_own_lease_at_once(machines, silo):
    first, _ = machines
    first.start()
    epoch = first.wait_for("serving")["epoch"]
    first.end(signal.SIGKILL)
    began = time.monotonic()
    first.start()
    assert first.wait_for("serving", times=2)["epoch"] > epoch
    assert not first.events("standing by")
    assert time.monotonic() - began < LONG
    assert first.end() == 0


def test_one_that_stands_by_ends_when_it_is_asked(machines):
    first, second = machines
    first.start()
    first.wait_for("serving")
    second.start()
    second.wait_for("standing by")
    assert second.end() == 0
    assert first.active() == 1.0
    assert first.end() == 0


def test_two_coordinators_with_different_spools_on_one_database_are_told_apart(machines, tmp_path):
    first, second = machines
    first.start()
    first.wait_for("serving")
    config = yaml.safe_load(second.config.read_text())
    second.config.write_text(yaml.safe_dump({**config, "spool": str(tmp_path / "another")}))
    done = subprocess.run(
        [sys.executable, "-m", "coordinator.cli", "serve", "-c", second.config],
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    assert done.returncode == 1
    assert "give the same `spool` to all coordinators of one database, and mount it" in done.stderr
    assert first.end() == 0


def test_what_lies_in_the_files_of_words(tmp_path):
    config = CoordinatorConfig.model_construct(
        data=tmp_path / "data", spool=None, database=None, port=1, lease_seconds=SECONDS
    )
    lease_of(config).database.engine.dispose()
    for file in (tmp_path / "data" / "instance.id", tmp_path / "data" / "spool" / "spool.id"):
        word = file.read_text()
        assert len(word) == 32
        assert file.stat().st_mode & 0o077 == 0
        lease = lease_of(config)
        lease.database.engine.dispose()
        assert file.read_text() == word, "it is kept"
        file.write_text("another")
        with pytest.raises(WordDamagedError, match=f"{file} is damaged"):
            lease_of(config)
        file.write_text(word)


def test_a_postgresql_that_forgets_is_refused(url):
    if url.startswith("sqlite"):
        pytest.skip("of PostgreSQL")
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        name = connection.execute(text("SELECT current_database()")).scalar_one()
        connection.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = off"))
    engine.dispose()
    with pytest.raises(StoreError, match=r"forgets at a power cut .*: synchronous_commit is off; set it on"):
        Database(url)
