"""What is sent and fetched, by way of files: named by its chunks, kept whole or not at all, erased once it is read."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from protos.messages import Part, Place, Tensor, Work
from protos.steps import SUM, Note, Task
from silo_agent.core.turns import OutOfTurnError
from silo_agent.metrics import AgentMetrics
from silo_agent.protocol.calls.client import ContentError
from silo_agent.protocol.mail import Mail
from silo_agent.storage.durable import write_whole
from silo_agent.storage.errors import ShortageError
from support.contents import digest_of, listed
from support.states import DIGESTS, keyed

PLACE = Place("5" * 64, 1, 2)
SILOS = ("north", "south")
LARGE = bytes(300_000)


class Wire:
    """Stands where the client does: takes uploads, and has contents by kind and silo."""

    def __init__(self):
        self.sent = []
        self.contents = {}
        self.fetched = []

    def upload(self, header, content, chunks):
        self.sent.append((header, content.read_bytes(), chunks))

    def notes(self, place, kind, owners, about, limit):
        self.fetched += [(place, tuple(about), kind, owner, limit) for owner in owners]
        found = {owner: self.contents[kind, owner] for owner in owners}
        for note in found.values():
            if isinstance(note, Exception):
                raise note
        return found

    def download(self, place, tensor, wanted):
        for part, target in wanted:
            self.fetched.append((place, tensor, part.kind, part.silo))
            target.parent.mkdir(parents=True, exist_ok=True)
            content = self.contents[part.kind, part.silo]
            if isinstance(content, Exception):
                raise content
            target.write_bytes(content)


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
def mail(tmp_path, wire):
    state = keyed(tmp_path / "state")
    yield Mail(wire, state, AgentMetrics())
    state.close()


def files(mail):
    return sorted(path.name for path in (mail._state.folder / "inbox").rglob("*") if path.is_file())


def offer(wire, task, contents, **fields):
    """Work that offers these contents, by kind and silo."""
    wire.contents.update(contents)
    parts = tuple(Part(str(kind), silo, len(c), digest_of(c)) for (kind, silo), c in contents.items())
    return Work(task, PLACE, actor="south", parts=parts, **fields)


def value(mail, name, kind):
    return mail._metrics.registry.get_sample_value(f"fedward_silo_{name}_bytes_total", {"kind": kind})


@pytest.mark.parametrize("content", [b"note", LARGE], ids=["one chunk", "three chunks"])
def test_a_file_is_sent_under_the_digest_of_its_chunks(mail, wire, content):
    path = mail.note_path(PLACE, Note.KEYS)
    write_whole(path, content)
    mail.send("north", PLACE, Note.KEYS, path)
    ((header, sent, chunks),) = wire.sent
    assert (header.place, header.kind, header.silo, header.values) == (PLACE, "keys", "north", 0)
    assert (header.size, header.sha256, chunks, sent) == (len(content), digest_of(content), listed(content), content)
    assert value(mail, "sent", "keys") == len(content)


def test_what_is_sent_is_named_as_it_was_kept(mail, wire):
    """The digest that the silo's own record has is the one on the wire."""
    state = mail._state
    path = state.keep_sealed(PLACE, "a" * 64, [LARGE[:7], LARGE[7:]])
    mail.send("north", PLACE, "ring32", path, tensor=Tensor.ENCODER, values=9)
    with state._transaction() as connection:
        (kept,) = connection.exec_driver_sql("SELECT sha256 FROM sealed").scalars()
    assert DIGESTS.keyed("sealed", wire.sent[0][0].sha256) == kept


def test_notes_are_read_and_erased(mail, wire):
    fields = {"tensor": Tensor.HEADS, "participants": SILOS, "survivors": SILOS}
    work = offer(wire, Task.OPEN, {(Note.REVEAL, "north"): b"one", (Note.REVEAL, "south"): b"two"}, **fields)
    assert mail.fetch_notes(work, PLACE, Note.REVEAL) == {"north": b"one", "south": b"two"}
    assert mail.fetch_note(work, PLACE, Note.REVEAL) == b"two", "the actor's"
    assert files(mail) == []
    assert value(mail, "received", "reveal") == 12, "both, and both again"
    with pytest.raises(OutOfTurnError, match="offers no keys of 'south'"):
        mail.fetch_note(work, PLACE, Note.KEYS)
    wire.contents[Note.REVEAL, "south"] = ContentError("altered")
    with pytest.raises(ContentError):
        mail.fetch_notes(work, PLACE, Note.REVEAL)
    assert files(mail) == []


def test_of_greetings_what_is_for_this_silo_is_fetched_and_not_kept(mail, wire):
    wire.contents[Note.GREETING, "north"] = b"a slice"
    assert mail.fetch_greetings(PLACE, ("north",), "west", 7) == {"north": b"a slice"}
    assert wire.fetched == [(PLACE, ("west",), "greeting", "north", 7)]
    assert (value(mail, "received", "greeting"), files(mail)) == (7, [])


def test_shares_stay_and_are_fetched_once(mail, wire):
    wire.contents.update({(Note.SHARES, silo): silo.encode() for silo in SILOS})
    for _ in range(2):
        mail.receive_shares(PLACE, SILOS, "west", 9)
    assert wire.fetched == [(PLACE, ("west",), "shares", silo, 9) for silo in SILOS]
    assert mail.shares(PLACE, SILOS) == {"north": b"north", "south": b"south"}
    assert value(mail, "received", "shares") == 10
    with pytest.raises(OutOfTurnError, match="never sent the shares of east, west; begin"):
        mail.shares(PLACE, ("west", "north", "east"))
    wire.contents[Note.SHARES, "east"] = b"east"
    mail.receive_shares(PLACE, (*SILOS, "east"), "west", 9)
    assert [owner for *_, owner, _ in wire.fetched] == [*SILOS, "east"], "only what is missing"
    assert mail.fetch_shares(PLACE, ("south",), ("east", "north"), 8) == {"south": b"south"}
    assert wire.fetched[-1] == (PLACE, ("east", "north"), "shares", "south", 8)
    assert len(files(mail)) == 3, "what is fetched for a sum is not kept"


def test_shares_that_did_not_come_as_announced_are_asked_for_again(mail, wire):
    wire.contents.update({(Note.SHARES, silo): silo.encode() for silo in SILOS})
    wire.contents[Note.SHARES, "south"] = ContentError("altered")
    with pytest.raises(ContentError):
        mail.receive_shares(PLACE, SILOS, "west", 9)
    assert files(mail) == []
    wire.contents[Note.SHARES, "south"] = b"south"
    mail.receive_shares(PLACE, SILOS, "west", 9)
    assert mail.shares(PLACE, SILOS)["south"] == b"south"


def test_the_sum_is_a_file_until_it_is_read(mail, wire):
    contents = {(SUM, ""): LARGE, (Note.REVEAL, "north"): b"revealed"}
    fields = {"tensor": Tensor.HEADS, "participants": SILOS, "survivors": SILOS}
    work = offer(wire, Task.OPEN, contents, **fields)
    with mail.sum(work, PLACE, Tensor.HEADS) as (file, sha256):
        assert file.read() == LARGE
        assert sha256 == digest_of(LARGE)
        assert len(files(mail)) == 1
    assert (files(mail), wire.fetched) == ([], [(PLACE, Tensor.HEADS, "sum", "")])
    without = offer(wire, Task.OPEN, {(Note.REVEAL, "north"): b"revealed"}, **fields)
    with pytest.raises(OutOfTurnError, match="offers no sum of heads"), mail.sum(without, PLACE, Tensor.HEADS):
        pass


def test_an_upload_is_a_file_until_it_is_read(mail, wire):
    wire.contents["ckks", "north"] = LARGE
    part = Part("ckks", "north", len(LARGE), digest_of(LARGE))
    with mail.upload(PLACE, Tensor.HEADS, part) as file:
        assert file.read() == LARGE
        assert len(files(mail)) == 1
    assert (files(mail), wire.fetched) == ([], [(PLACE, Tensor.HEADS, "ckks", "north")])


@pytest.mark.parametrize("of", ["sum", "upload"])
def test_what_does_not_come_is_told_as_it_was(mail, wire, of):
    kind, silo = (SUM, "") if of == "sum" else ("ckks", "north")
    work = offer(wire, Task.OPEN, {(kind, silo): LARGE}, tensor=Tensor.HEADS, participants=SILOS, survivors=SILOS)
    wire.contents[kind, silo] = ContentError("cut short")
    opened = mail.sum(work, PLACE, Tensor.HEADS) if of == "sum" else mail.upload(PLACE, Tensor.HEADS, work.parts[0])
    with pytest.raises(ContentError, match="cut short"), opened:
        pass


def test_notes_that_the_machine_cannot_erase_now_are_its_own_affair(mail, wire, monkeypatch):
    """Whatever others would see of an error must not follow from this silo's disk."""
    work = offer(wire, Task.CATCH_UP, {(Note.MODEL, "north"): b"one"})

    def fail(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(ShortageError):
        mail.fetch_notes(work, PLACE, Note.MODEL)
