import threading
from dataclasses import replace

import grpc
import pytest

from crypto.certificates import Trust
from crypto.errors import CertificateError, CryptoError, SignatureRefused
from policies.chain import Genesis, genesis_row, next_entry
from policies.costs import Cost
from policies.countersign import statement
from policies.errors import CountersignError
from policies.events import Debit, Head
from silo_agent import witnessing
from silo_agent.client import CallRefused, Stopped
from silo_agent.witnessing import FOLDER, Witness, Witnessing
from support.certificates import data_set_of
from support.countersigners import signed

AT = "2026-01-31T08:00:00+00:00"


def stated(credential, entries, *, data_set="", silo="", branch="s"):
    name = credential.identity.name
    genesis, chain = Genesis(data_set or data_set_of(name), 0.2, 1e-5), []
    for number in range(entries):
        head = chain[-1].head if chain else Head(0, genesis_row(genesis)[2])
        debit = Debit(branch, "p", number, 1, {"heads": Cost("training", 1.0, 40.0, 1)})
        chain.append(next_entry(head, debit, AT, 0.1 * (number + 1)))
    return signed(statement(silo or name, genesis, chain, AT), credential)


@pytest.fixture
def north(credentials):
    return credentials["north"]


@pytest.fixture
def trust(authority):
    return Trust(authority.pem)


@pytest.fixture
def witness(quick_path, credentials):
    return Witness(quick_path, credentials["south"])


def files(folder):
    return sorted(path for path in (folder / FOLDER).rglob("*") if path.is_file())


def test_it_signs_what_another_silo_states(witness, credentials, trust, north):
    given = stated(north, 3)
    found = witness.countersign(given)
    assert found.stated == given, "with the silo's own signature"
    assert trust.verify(found.certificate_pem, found.stated.statement, found.signature).uri == "fedward://silo/south"


def test_it_keeps_it_before_it_signs(witness, north, credentials, monkeypatch):
    def full(*_):
        msg = "the disk is full"
        raise OSError(msg)

    monkeypatch.setattr(witnessing, "write_whole", full)
    monkeypatch.setattr(witness, "_sign", lambda _: pytest.fail("signed what is not kept"))
    with pytest.raises(OSError, match="disk is full"):
        witness.countersign(stated(north, 1))


@pytest.mark.parametrize("older", [0, 4])
def test_who_goes_back_is_handed_the_last_one_also_by_a_new_process(witness, quick_path, credentials, north, older):
    latest = stated(north, 5)
    witness.countersign(latest)
    again = Witness(quick_path, credentials["south"])
    for back in (stated(north, older), stated(north, 7, branch="other")):
        assert again.countersign(back).stated == latest
    assert again.countersign(stated(north, 6)).stated.statement == stated(north, 6).statement


def test_the_same_again_is_signed_again_and_written_once(witness, quick_path, north, monkeypatch):
    for _ in range(2):
        witness.countersign(stated(north, 2))
        monkeypatch.setattr(witnessing, "write_whole", lambda *_: pytest.fail("written again"))
    assert len(files(quick_path)) == 1


def test_silos_are_told_apart(witness, quick_path, credentials, north):
    for other in (stated(north, 5), stated(credentials["west"], 1)):
        assert witness.countersign(other).stated == other
    assert [path.name for path in files(quick_path)] == ["north.json", "west.json"]


def test_only_a_silo_states_its_own_ledger_and_nobody_this_ones(
    witness, quick_path, credentials, coordinator, foreign_authority
):
    sound = stated(credentials["north"], 1)
    with pytest.raises(CountersignError, match="west cannot ask this silo to countersign the ledger of north"):
        witness.countersign(stated(credentials["west"], 1, silo="north"))
    with pytest.raises(CountersignError, match="south cannot ask this silo"):
        witness.countersign(stated(credentials["south"], 1))
    with pytest.raises(CertificateError, match="a silo is needed"):
        witness.countersign(stated(coordinator, 1, silo="hub"))
    with pytest.raises(SignatureRefused):
        witness.countersign(replace(sound, statement=stated(credentials["north"], 2).statement))
    with pytest.raises(CryptoError):
        witness.countersign(replace(sound, certificate_pem=foreign_authority.pem))
    assert files(quick_path) == []


def test_a_data_set_under_a_new_name_is_not_countersigned(witness, quick_path, north):
    with pytest.raises(CertificateError, match="not for the data set clinic: a new name refills no budget"):
        witness.countersign(stated(north, 0, data_set="clinic"))
    assert files(quick_path) == []
    witness.countersign(stated(north, 2))
    with pytest.raises(CertificateError, match="a new name refills no budget"):
        witness.countersign(stated(north, 0, data_set="../x"))
    assert [path.name for path in files(quick_path)] == ["north.json"]
    assert witness.countersign(stated(north, 3)).stated.statement == stated(north, 3).statement


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"statement": 1}'])
def test_a_memory_that_cannot_be_read_signs_nothing(witness, quick_path, north, content):
    witness.countersign(stated(north, 5))
    files(quick_path)[0].write_bytes(content)
    with pytest.raises(CountersignError, match="cannot be read; put the newest copy"):
        witness.countersign(stated(north, 1))


# --- the thread -------------------------------------------------------------------------------------------------------
class Hands:
    """A client whose coordinator hands out what the test gives; `given` is what came back."""

    def __init__(self, *script):
        self.script, self.given = list(script), []

    def witness(self, given):
        self.given.append(given)
        if not self.script:
            raise Stopped
        found = self.script.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def test_it_answers_until_it_is_stopped(witness, north):
    client = Hands(None, stated(north, 1), None, stated(north, 2))
    thread = Witnessing(client, witness, threading.Event())
    thread.start()
    thread.join()
    said = [given and given.stated.statement for given in client.given]
    assert said == [None, None, stated(north, 1).statement, None, stated(north, 2).statement]


def test_a_fault_ends_nothing_and_is_not_answered(witness, credentials, north, monkeypatch):
    monkeypatch.setattr(witnessing, "PAUSE_SECONDS", 0.0)
    refused = CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "no")
    client = Hands(stated(credentials["south"], 1), refused, stated(north, 1))
    thread = Witnessing(client, witness, threading.Event())
    thread.start()
    thread.join()
    assert [given and given.stated.statement for given in client.given] == [
        None,
        None,
        None,
        stated(north, 1).statement,
    ]


def test_a_stopped_agent_asks_nobody(witness):
    client, stop = Hands(), threading.Event()
    stop.set()
    thread = Witnessing(client, witness, stop)
    thread.start()
    thread.join()
    assert client.given == []
