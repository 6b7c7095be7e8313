"""Who rewrites the audit log in the database is found: by the silos that followed it, and by `audit verify`."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import threading
from contextlib import closing

import pytest
import yaml

from coordinator.cli import main
from crypto.audit_chain import NOTHING, entry_digest, follow
from protos.v1 import operator_pb2
from silo_agent.metrics import AgentMetrics
from silo_agent.protocol.calls.client import Client
from silo_agent.protocol.ledgers.audit_log import AuditFollower
from support.certificates import load
from support.epochs import fresh_epochs
from support.people import create_request
from support.silos import Caller
from support.studies import tiny_study

SILOS = ("north", "south")


class Hospital:
    """A silo that follows the log, with its memory in a folder."""

    def __init__(self, name, authority, tmp_path):
        self.credential, self.memory = load(authority.credential("silo", f"{name}-follows")), tmp_path / f"{name}.json"

    def beat(self, port):
        """One heartbeat, as the agent makes it."""
        client = Client(
            [f"localhost:{port}"], self.credential, "0" * 32, threading.Event(), lambda _: None, epochs=fresh_epochs()
        )
        with closing(client):
            AuditFollower(client, self.memory, AgentMetrics()).look(client.heartbeat())


@pytest.fixture
def verify(authority, monkeypatch, capfd, tmp_path):
    """Runs `audit` as a viewer does; returns exit code, stdout and stderr."""
    home = authority.credential("viewer", "vera")

    def run(port, *command):
        files = {name: str(home / f"{name}.pem") for name in ("certificate", "key", "authority")}
        config = tmp_path / "viewer.yaml"
        config.write_text(yaml.safe_dump({"coordinator": f"127.0.0.1:{port}", **files}))
        given = [str(part) for part in command]
        monkeypatch.setattr(sys, "argv", ["fedward-coordinator", "audit", *given, "-o", str(config)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main.main()
        out, err = capfd.readouterr()
        return ended.value.code or 0, out, err

    return run


def rewritten(database, number, **changes):
    """Change an entry, and compute the chain anew, as somebody does who knows how."""
    with closing(sqlite3.connect(database)) as connection, connection:
        rows = connection.execute("SELECT number, content FROM audit ORDER BY number").fetchall()
        head = NOTHING
        for place, content in rows:
            text = content
            if place == number:
                text = json.dumps({**json.loads(content), **changes}, sort_keys=True, separators=(",", ":"))
            head = follow(head, [entry_digest(text.encode())])
            update = "UPDATE audit SET content = ?, head = ? WHERE number = ?"
            connection.execute(update, (text, head.hex(), place))


def test_who_rewrites_an_entry_is_found(make_server, authority, tmp_path, verify):
    hospitals = [Hospital(name, authority, tmp_path) for name in SILOS]
    server = make_server(tmp_path / "hub")
    operator = Caller(server.port, authority.credential("operator", "rewriter"))
    study = tiny_study(name="rewritten")
    operator.operator.CreateStudy(create_request(authority, study))
    operator.operator.AbortStudy(operator_pb2.AbortStudyRequest(study=study.digest, reason="they know too much"))
    code, _, err = verify(server.port, "verify")
    assert (code, err) == (1, "no silo has signed it, so nothing shows that it was not rewritten\n")
    for hospital in hospitals:
        hospital.beat(server.port)
    code, out, err = verify(server.port, "verify")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ["north-follows signed the first 3", "south-follows signed the first 3"]
    exported = tmp_path / "before.jsonl"
    assert verify(server.port, "export", exported)[:2] == (0, f"{exported}: 3 entries, signed by 2 silos\n")
    code, out, _ = verify(server.port, "show")
    assert (code, out.splitlines()[-1]) == (0, "       reason: they know too much")
    assert re.fullmatch(
        rf"    2  2\S+ \S+ UTC  operator/rewriter  abort  rewritten {study.digest[:12]}  done", out.splitlines()[-2]
    )
    (_, created, aborted) = json.loads(verify(server.port, "show", "--format", "json")[1])
    assert (created["action"], aborted["reason"], aborted["who"]) == (
        "create",
        "they know too much",
        "fedward://operator/rewriter",
    )
    operator.close()
    server.close()

    rewritten(tmp_path / "hub" / "coordinator.sqlite3", 2, reason="a broken disk")
    server = make_server(tmp_path / "hub")
    code, out, err = verify(server.port, "verify")
    assert code == 1
    assert [line.split(":")[0] for line in err.splitlines()] == [f"{name}-follows signed another log" for name in SILOS]
    for hospital in hospitals:
        hospital.beat(server.port)
    code, out, err = verify(server.port, "verify")
    assert code == 1, "the silos go on, and say in all that they sign which head was lost"
    assert [line.partition(" had ")[0] for line in err.splitlines()] == [f"{name}-follows" for name in SILOS]
    assert "does not have: it was rewritten, or put back from a backup" in err
    server.close()

    root = tmp_path / "authority.pem"
    root.write_bytes(authority.pem)
    code, out, err = verify(1, "verify", "--file", exported, "--authority", root)
    assert (code, err, "signed the first 3" in out) == (0, "", True)
    lines = exported.read_text().replace("they know too much", "a broken disk")
    exported.write_text(lines)
    code, _, err = verify(1, "verify", "--file", exported, "--authority", root)
    assert (code, err.count("signed another log")) == (1, 2)
    assert verify(1, "verify", "--file", exported)[0] == 2
