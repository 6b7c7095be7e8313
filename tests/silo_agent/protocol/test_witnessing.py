import threading
from dataclasses import replace

import grpc
import pytest

from crypto.errors import CertificateError, CryptoError, SignatureRefused
from crypto.pki.certificates import Trust
from policies.errors import CosignError
from policies.ledger.chain import Genesis, genesis_row, next_entry
from policies.ledger.cosign import checkpoint
from policies.ledger.events import Debit, EntryRef
from policies.plan.cost import Cost
from silo_agent.protocol import witnessing
from silo_agent.protocol.client import CallRefused, Stopped
from silo_agent.protocol.witnessing import Witness, Witnessing
from support.certificates import data_set_of
from support.cosigners import signed

AT = "2026-01-31T08:00:00+00:00"


def stated(credential, entries, *, data_set="", silo="", branch="s"):
    name = credential.identity.name
    genesis, chain = Genesis(data_set or data_set_of(name), 0.2, 1e-5), []
    for number in range(entries):
        head = chain[-1].head if chain else EntryRef(0, genesis_row(genesis)[2])
        debit = Debit(branch, "p", number, 1, {"heads": Cost("training", 1.0, 40.0, 1)})
        chain.append(next_entry(head, debit, AT, 0.1 * (number + 1)))
    return signed(checkpoint(silo or name, genesis, chain, AT), credential)


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
    return sorted(path for path in (folder / "witnessed").rglob("*") if path.is_file())


def test_it_signs_what_another_silo_states(witness, credentials, trust, north):
    given = stated(north, 3)
    found = witness.cosign(given)
    assert found.stated == given, "with the silo's own signature"
    assert trust.verify(found.certificate_pem, found.stated.checkpoint, found.signature).uri == "fedward://silo/south"


def test_it_keeps_it_before_it_signs(witness, north, credentials, monkeypatch):
    def full(*_):
        msg = "the disk is full"
        raise OSError(msg)

    monkeypatch.setattr(witnessing, "write_whole", full)
    monkeypatch.setattr(witness, "_sign", lambda _: pytest.fail("signed what is not kept"))
    with pytest.raises(OSError, match="disk is full"):
        witness.cosign(stated(north, 1))


@pytest.mark.parametrize("older", [0, 4])
def test_who_goes_back_is_handed_the_last_one_also_by_a_new_process(witness, quick_path, credentials, north, older):
    latest = stated(north, 5)
    witness.cosign(latest)
    again = Witness(quick_path, credentials["south"])
    for back in (stated(north, older), stated(north, 7, branch="other")):
        assert again.cosign(back).stated == latest
    assert again.cosign(stated(north, 6)).stated.checkpoint == stated(north, 6).checkpoint


def test_the_same_again_is_signed_again_and_written_once(witness, quick_path, north, monkeypatch):
    for _ in range(2):
        witness.cosign(stated(north, 2))
        monkeypatch.setattr(witnessing, "write_whole", lambda *_: pytest.fail("written again"))
    assert len(files(quick_path)) == 1


def test_silos_are_told_apart(witness, quick_path, credentials, north):
    for other in (stated(north, 5), stated(credentials["west"], 1)):
        assert witness.cosign(other).stated == other
    assert [path.name for path in files(quick_path)] == ["north.json", "west.json"]


def test_only_a_silo_states_its_own_ledger_and_nobody_this_ones(
    witness, quick_path, credentials, coordinator, foreign_authority
):
    sound = stated(credentials["north"], 1)
    with pytest.raises(CosignError, match="west cannot ask this silo to cosign the ledger of north"):
        witness.cosign(stated(credentials["west"], 1, silo="north"))
    with pytest.raises(CosignError, match="south cannot ask this silo"):
        witness.cosign(stated(credentials["south"], 1))
    with pytest.raises(CertificateError, match="a silo is needed"):
        witness.cosign(stated(coordinator, 1, silo="hub"))
    with pytest.raises(SignatureRefused):
        witness.cosign(replace(sound, checkpoint=stated(credentials["north"], 2).checkpoint))
    with pytest.raises(CryptoError):
        witness.cosign(replace(sound, certificate_pem=foreign_authority.pem))
    assert files(quick_path) == []


def test_a_data_set_under_a_new_name_is_not_cosigned(witness, quick_path, north):
    with pytest.raises(CertificateError, match="not for the data set clinic, and a new name does not refill a budget"):
        witness.cosign(stated(north, 0, data_set="clinic"))
    assert files(quick_path) == []
    witness.cosign(stated(north, 2))
    with pytest.raises(CertificateError, match="a new name does not refill a budget"):
        witness.cosign(stated(north, 0, data_set="../x"))
    assert [path.name for path in files(quick_path)] == ["north.json"]
    assert witness.cosign(stated(north, 3)).stated.checkpoint == stated(north, 3).checkpoint


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"checkpoint": 1}'])
def test_a_memory_that_cannot_be_read_signs_nothing(witness, quick_path, north, content):
    witness.cosign(stated(north, 5))
    files(quick_path)[0].write_bytes(content)
    with pytest.raises(CosignError, match="cannot be read; put the newest copy"):
        witness.cosign(stated(north, 1))


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
    said = [given and given.stated.checkpoint for given in client.given]
    assert said == [None, None, stated(north, 1).checkpoint, None, stated(north, 2).checkpoint]


def test_a_fault_ends_nothing_and_is_not_answered(witness, credentials, north, monkeypatch):
    monkeypatch.setattr(witnessing, "PAUSE_SECONDS", 0.0)
    refused = CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "no")
    client = Hands(stated(credentials["south"], 1), refused, stated(north, 1))
    thread = Witnessing(client, witness, threading.Event())
    thread.start()
    thread.join()
    assert [given and given.stated.checkpoint for given in client.given] == [
        None,
        None,
        None,
        stated(north, 1).checkpoint,
    ]


def test_a_stopped_agent_asks_nobody(witness):
    client, stop = Hands(), threading.Event()
    stop.set()
    thread = Witnessing(client, witness, stop)
    thread.start()
    thread.join()
    assert client.given == []
