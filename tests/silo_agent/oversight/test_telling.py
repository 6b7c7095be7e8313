"""The officer is told that a study waits: once, in public facts, and never often."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from datetime import UTC, datetime

import pytest

from crypto.authorship import SignatureBeside
from silo_agent.config import MailNotice, Notify
from silo_agent.oversight.telling import PACE_SECONDS, Telling, WaitingStudy, message
from silo_agent.storage import offered
from silo_agent.storage.approvals import approve, made, upgrade
from silo_agent.storage.folders import StateFolder
from support.studies import tiny_study

NOW = datetime(2026, 11, 6, 15, 4, tzinfo=UTC)
SIGNED = offered.Signed("fedward://author/ann", SignatureBeside(b"pem", b"s"))
PROGRAM = "import os,sys,json; json.dump([sys.stdin.read(), dict(os.environ)], open(sys.argv[1], 'w'))"


@pytest.fixture
def folder(quick_path):
    made = StateFolder(quick_path)
    upgrade(made, {}, [], NOW)
    return made


@pytest.fixture
def told(quick_path):
    return quick_path / "told-by-command"


@pytest.fixture
def clock():
    return [0.0]


@pytest.fixture
def telling(folder, told, clock):
    notify = Notify(command=(sys.executable, "-c", PROGRAM, str(told)))
    return Telling(folder, notify, "north", clock=lambda: clock[0])


def waits(folder, name, said=((offered.WAITS, "3.1 of 4 is spent"),)):
    study = tiny_study(name=name, purpose=f"Say who has {name}.")
    offered.keep(folder, study, NOW, signed=SIGNED)
    offered.judged(folder, study.digest, said)
    return study


def look(telling):
    sending = telling.look()
    if sending is not None:
        sending.join(60)
    return sending is not None


def test_a_waiting_study_is_told_of_once_in_public_facts(telling, folder, told, clock, monkeypatch):
    monkeypatch.setenv("FEDWARD_KEY_PASSPHRASE", "secret")
    study = waits(folder, "exam")
    waits(folder, "refused", (("delta", "too large"),))
    assert look(telling)
    text, environment = json.loads(told.read_text())
    assert text == message("north", [WaitingStudy("exam", study.digest, SIGNED.author, "Say who has exam.")])
    assert all(part in text for part in (study.digest, "fedward://author/ann", "Say who has exam.", "study show"))
    assert "spent" not in text
    assert environment["FEDWARD_STUDIES"] == "exam"
    assert environment["FEDWARD_DIGESTS"] == study.digest
    assert "secret" not in environment.values()
    clock[0] += PACE_SECONDS
    assert not look(telling), "it was told of"


def test_many_offers_are_one_message_and_the_next_waits(telling, folder, told, clock):
    for name in ("a", "b"):
        waits(folder, name)
    assert look(telling)
    assert json.loads(told.read_text())[0].startswith("2 studies wait for a decision at the silo north.")
    waits(folder, "c")
    clock[0] += PACE_SECONDS - 1
    assert not look(telling)
    clock[0] += 1
    assert look(telling)
    assert json.loads(told.read_text())[1]["FEDWARD_STUDIES"] == "c"


def test_nobody_is_told_of_what_is_decided_or_if_nobody_is_to_be_told(telling, folder):
    study = waits(folder, "exam")
    assert not look(Telling(folder, None, "north"))
    approve(folder, study, made(study, "lung", NOW))
    assert not look(telling)


@pytest.mark.parametrize("command", [("/no/such/program",), (sys.executable, "-c", "raise SystemExit(1)")])
def test_what_could_not_be_told_is_told_again(folder, clock, command):
    telling = Telling(folder, Notify(command=command), "north", clock=lambda: clock[0])
    waits(folder, "exam")
    assert look(telling)
    assert not folder.told.exists()
    clock[0] += PACE_SECONDS
    assert look(telling), "again, and nothing has ended the agent"


class _Mailbox(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs to hand in one mail."""

    def handle(self) -> None:
        self.wfile.write(b"220 mail\r\n")
        data = False
        for line in self.rfile:
            if data:
                self.server.lines.append(line.decode().rstrip())
                if line == b".\r\n":
                    data = False
                    self.wfile.write(b"250 ok\r\n")
            elif line.upper().startswith(b"DATA"):
                data = True
                self.wfile.write(b"354 go on\r\n")
            else:
                self.server.commands.append(line.decode().strip())
                ends = line.upper().startswith(b"QUIT")
                self.wfile.write(b"221 bye\r\n" if ends else b"250 ok\r\n")
                if ends:
                    return


def test_a_mail_goes_to_the_officer(folder):
    with socketserver.TCPServer(("127.0.0.1", 0), _Mailbox) as server:
        server.lines, server.commands = [], []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        mail = MailNotice(
            server="127.0.0.1", port=server.server_address[1], to=("dpo@h.example",), sender="fw@h.example"
        )
        waits(folder, "exam")
        assert look(Telling(folder, Notify(mail=mail), "north"))
        server.shutdown()
    assert any("RCPT TO:<DPO@H.EXAMPLE>" in line.upper() for line in server.commands)
    assert "Subject: FedWard: studies wait at north" in server.lines
    assert any("purpose: Say who has exam." in line for line in server.lines)
    assert folder.told.exists()
