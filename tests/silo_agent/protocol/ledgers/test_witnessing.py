import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import grpc
import pytest

from crypto.errors import CertificateError, CryptoError, SignatureRefused
from crypto.pki.certificates import Credential, Trust
from policies.errors import CosignError
from policies.ledger.chain import Genesis, genesis_row, next_entry
from policies.ledger.cosign import Checkpoint, checkpoint
from policies.ledger.events import Debit, EntryRef
from policies.plan.cost import Cost
from policies.plan.release import plan
from protos.checkpoints import Handed
from protos.messages import Place, Tensor
from silo_agent.protocol.calls.client import AskedToStop, CallRefused
from silo_agent.protocol.ledgers import witnessing
from silo_agent.protocol.ledgers.known_studies import KnownStudies
from silo_agent.protocol.ledgers.witnessing import Witness, Witnessing
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.state import State
from support import thefts
from support.certificates import data_set_of
from support.cosigners import signed, witnessed
from support.studies import tiny_study
from support.thefts import Consortium, charged, extended
from support.unjudged import BelievingWitness

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
    return BelievingWitness(quick_path, credentials["south"])


def files(folder):
    return sorted(path for path in (folder / "witnessed").rglob("*.json") if path.is_file())


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
    again = BelievingWitness(quick_path, credentials["south"])
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
            raise AskedToStop
        found = self.script.pop(0)
        if isinstance(found, Exception):
            raise found
        return None if found is None else Handed(found)


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


# --- a stolen key -----------------------------------------------------------------------------------------------------
STUDY = tiny_study()
MADE_UP = Debit("f" * 64, "p", 9, 1, {"heads": Cost("training", 1.0, 0.5, 7)})
D = datetime.now(UTC) - timedelta(hours=2)
"""When north's key was stolen."""


class Peer:
    """South, which trains with north, whose key is stolen."""

    def __init__(self, folder):
        self.parties, self.folder = Consortium(folder), folder / "south"
        self.state = State(self.folder)
        self.state.add_study(STUDY.digest, STUDY.canonical())
        self.now = D - timedelta(hours=1)
        self.restart()

    def restart(self, lists=None):
        home = self.parties.folder / "silo-south"
        south = Credential.load(home / "certificate.pem", home / "key.pem", home / "authority.pem", lists)
        self.witness = Witness(self.folder, south, KnownStudies(self.state), lambda: self.now)

    def cosign(self, credential, entries, evidence=None):
        found = self.witness.cosign(thefts.stated(credential, entries), evidence)
        return Checkpoint.parse(found.stated.checkpoint).head.sequence

    def revoke(self, since=D):
        self.parties.revoke(since)
        (self.parties.folder / "silo-south" / "crls.pem").write_bytes(
            (self.parties.folder / "new-crls.pem").read_bytes()
        )
        self.restart()
        self.now = datetime.now(UTC)
        return self.parties.renewed()

    def sums(self, rounds):
        """South signs the lists of these rounds, which name both."""
        for number in rounds:
            for tensor in plan(STUDY).tensors(number):
                place = Place(STUDY.digest, number, 1)
                self.state.promises.sign(place, Tensor(tensor), ("north", "south", "west"))


@pytest.fixture
def peer(tmp_path):
    made = Peer(tmp_path)
    yield made
    made.state.close()


def test_charges_of_no_study_of_this_silo_are_not_cosigned(peer):
    old, ledger = peer.parties.old, charged(STUDY, [0])
    peer.cosign(old, ledger)
    with pytest.raises(CosignError, match="what no study with this silo that is known here can have charged"):
        peer.cosign(old, extended([MADE_UP], ledger))
    assert peer.cosign(old, charged(STUDY, [1], ledger)) == 2


def test_studies_of_others_are_explained_by_the_coordinators_signature_alone(peer):
    old, known = peer.parties.old, extended([MADE_UP], charged(STUDY, [0]))
    peer.cosign(old, known[:1])
    on = charged(STUDY, [1], known)
    for worthless in (None, witnessed(thefts.stated(old, known[:1]), peer.parties.hub)):
        with pytest.raises(CosignError, match="what no study"):
            peer.cosign(old, on, worthless)
    with pytest.raises(CertificateError, match="a coordinator is needed"):
        peer.cosign(old, on, witnessed(thefts.stated(old, known), peer.parties.west))
    assert peer.cosign(old, on, witnessed(thefts.stated(old, known), peer.parties.hub)) == 3


def test_a_made_up_head_binds_nobody_once_the_root_has_dated_the_theft(peer):
    old, ledger = peer.parties.old, charged(STUDY, [0])
    peer.cosign(old, ledger)
    peer.now = D + timedelta(minutes=5)
    peer.cosign(old, charged(STUDY, [1, 2], ledger))
    true = charged(STUDY, [1], ledger, attempt=2)
    assert peer.cosign(old, true) == 3, "the made-up head is the answer"
    new = peer.revoke()
    assert peer.cosign(new, true) == 2
    peer.restart()
    assert peer.cosign(new, ledger) == 2, "the true ledger is remembered from now on"


@pytest.mark.parametrize("since", [D - timedelta(days=300), D - timedelta(minutes=61)])
def test_a_hospital_that_claims_a_theft_refills_nothing_of_a_sum_that_this_silo_signed(peer, since):
    ledger = charged(STUDY, [0, 1, 2])
    peer.cosign(peer.parties.old, ledger)
    peer.sums([0, 1, 2])
    new = peer.revoke(since)
    for older in ([], ledger[:1], ledger[:2]):
        with pytest.raises(CosignError, match="a stolen key forgives only what is in no sum"):
            peer.cosign(new, older)
    assert peer.cosign(new, ledger) == 3


def test_what_version_06_kept_has_no_time_and_goes_on_binding(peer):
    old, ledger = peer.parties.old, charged(STUDY, [0, 1])
    BelievingWitness(peer.folder, peer.parties.south).cosign(thefts.stated(old, ledger))
    StateFolder(peer.folder).witnessed_before("north").unlink()
    new = peer.revoke(D - timedelta(days=300))
    assert peer.cosign(new, ledger[:1]) == 2
    assert peer.cosign(new, charged(STUDY, [2], ledger)) == 3


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'[{"at": "", "stated": {}}]', b'[{"at": "x"}]'])
def test_a_damaged_memory_of_what_came_before_signs_nothing(peer, content):
    peer.cosign(peer.parties.old, charged(STUDY, [0]))
    StateFolder(peer.folder).witnessed_before("north").write_bytes(content)
    with pytest.raises(CosignError, match=r"north\.received: the latest cosigned checkpoint cannot be read"):
        peer.cosign(peer.parties.old, charged(STUDY, [0, 1]))
