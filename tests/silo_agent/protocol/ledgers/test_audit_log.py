"""A silo that follows the coordinator's audit log: an honest one, a rewritten one, one that is put back."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from crypto.audit_chain import UNKNOWN, AuditStatement, Followed, entry_digest, follow
from protos.audit import AuditTrail
from silo_agent.metrics import AgentMetrics
from silo_agent.protocol.ledgers import audit_log
from silo_agent.protocol.ledgers.audit_log import AuditFollower


class Log:
    """The coordinator's side, which is computed here from the entries alone."""

    def __init__(self, *entries):
        self.entries, self.signed, self.asked, self.page, self.away = list(entries), [], [], 4096, False

    def head(self, number):
        return Followed(number, follow(UNKNOWN.head, map(entry_digest, self.entries[:number])))

    @property
    def latest(self):
        return self.head(len(self.entries))

    def audit_trail(self, after):
        self.asked.append(after.entries)
        if self.head(after.entries) != after:
            return None
        digests = [entry_digest(one) for one in self.entries[after.entries :][: self.page]]
        return AuditTrail(len(self.entries), b"".join(digests))

    def cosign_audit(self, statement):
        if self.away:
            raise ConnectionError
        self.signed.append(statement)


@pytest.fixture
def memory(tmp_path):
    return tmp_path / "audit-log.json"


def follower(log, memory):
    return AuditFollower(log, memory, AgentMetrics())


def test_a_log_that_grows_is_followed_from_where_the_silo_is_and_signed(memory):
    log = Log(b"begin", b"create")
    silo = follower(log, memory)
    silo.look(log.latest)
    log.entries += [b"start", b"abort"]
    silo.look(log.latest)
    assert log.signed == [AuditStatement(log.head(2)), AuditStatement(log.head(4))]
    assert log.asked == [0, 2]
    silo.look(log.latest)
    assert len(log.signed) == 2, "what is signed is signed once"
    again = follower(log, memory)
    again.look(log.latest)
    assert (log.signed[2:], log.asked) == ([AuditStatement(log.head(4))], [0, 2]), "a new process says it again"


def test_a_long_log_comes_in_parts_and_one_look_reads_so_many(memory, monkeypatch):
    log = Log(*(bytes([number]) for number in range(10)))
    log.page = 3
    monkeypatch.setattr(audit_log, "PAGES", 2)
    silo = follower(log, memory)
    silo.look(log.latest)
    assert log.signed == [AuditStatement(log.head(6))]
    silo.look(log.latest)
    assert log.signed[1:] == [AuditStatement(log.head(10))]


@pytest.mark.parametrize(
    "after",
    [
        [b"begin", b"another", b"start"],
        [b"begin", b"create"],
        [b"begun anew"],
        [b"begun anew", b"create", b"start", b"abort", b"more"],
    ],
)
def test_a_log_that_does_not_go_on_is_told_inside_and_in_all_that_is_signed_from_then_on(memory, after):
    log = Log(b"begin", b"create", b"start")
    lost = log.latest
    silo = follower(log, memory)
    silo.look(lost)
    assert silo._metrics.audit_broke._value.get() == 0
    log.entries = [*after]
    with capture_logs() as said:
        silo.look(log.latest)
    (line,) = said
    assert (line["log_level"], line["entries"], line["head"]) == ("error", 3, lost.head.hex())
    assert silo._metrics.audit_broke._value.get() == 1
    log.entries.append(b"later")
    silo = follower(log, memory)
    assert silo._metrics.audit_broke._value.get() == 1, "a restart forgets nothing"
    silo.look(log.latest)
    assert log.signed[1:] == [AuditStatement(log.head(len(after)), lost), AuditStatement(log.latest, lost)]


def test_of_two_logs_that_were_lost_the_longer_one_is_named(memory):
    log = Log(b"begin", b"create", b"start")
    longest = log.latest
    silo = follower(log, memory)
    silo.look(log.latest)
    for entries in ([b"a"], [b"b"]):
        log.entries = entries
        silo.look(log.latest)
    assert log.signed[-1] == AuditStatement(log.latest, longest)


def test_what_is_followed_is_kept_before_it_is_signed_and_signed_again_if_that_failed(memory):
    log = Log(b"begin")
    log.away = True
    silo = follower(log, memory)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            silo.look(log.latest)
        assert json.loads(memory.read_text())["now"] == [1, log.latest.head.hex()]
    log.away = False
    silo.look(log.latest)
    assert log.signed == [AuditStatement(log.latest)]


def test_what_cannot_be_kept_is_not_signed(memory):
    log = Log(b"begin")
    silo = follower(log, memory)
    memory.mkdir()
    with pytest.raises(OSError, match="irectory"):
        silo.look(log.latest)
    assert log.signed == []


def test_a_coordinator_without_a_log_is_asked_for_nothing(memory):
    log = Log()
    follower(log, memory).look(Followed(0, b""))
    assert (log.asked, log.signed) == ([], [])


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"now": [1, "zz"], "broke": [0, ""]}', b'{"now": [], "broke": []}']
)
def test_a_damaged_memory_is_told_and_begins_anew(memory, content):
    memory.write_bytes(content)
    log = Log(b"begin")
    with capture_logs() as said:
        silo = follower(log, memory)
    assert [line["file"] for line in said] == ["audit-log.json"]
    silo.look(log.latest)
    assert log.signed == [AuditStatement(log.latest)]


@pytest.mark.parametrize("digests", [b"", b"x" * 31, b"x" * 33])
def test_digests_that_are_none_are_not_followed(memory, digests):
    log = Log(b"begin")
    log.audit_trail = lambda after: AuditTrail(5, digests)
    follower(log, memory).look(log.latest)
    assert not memory.exists()
    assert log.signed == [], "nothing is not signed"
