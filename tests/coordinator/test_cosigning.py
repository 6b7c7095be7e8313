import threading
from dataclasses import replace

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from coordinator.cosigning import PATIENCE_SECONDS, Cosigning, _Asked
from coordinator.storage.checkpoints import Checkpoints
from coordinator.storage.store import Store
from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.certificates import Trust
from policies.errors import CosignError, LedgerRolledBackError
from policies.ledger.chain import Genesis, genesis_row, next_entry
from policies.ledger.cosign import Checkpoint, checkpoint
from policies.ledger.events import Debit, EntryRef
from policies.plan.cost import Cost
from support.certificates import data_set_of, load, make_authority
from support.cosigners import signed, witnessed

AT = "2026-01-31T08:00:00+00:00"
NAMES = ("north", "south", "west")


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    authority = make_authority(tmp_path_factory.mktemp("cosigning"))
    parties = {name: load(authority.credential("silo", name)) for name in NAMES}
    return authority, load(authority.credential("coordinator", "hub")), parties


class Desk:
    """The coordinator's part, with silos that state and sign."""

    def __init__(self, folder, consortium):
        self.folder, (self.authority, self.hub, self.parties) = folder, consortium
        self.trust, self.now = Trust(self.authority.pem), 0.0
        self.stores = []
        self.restart()

    def restart(self):
        self.stores.append(Store.in_folder(self.folder))
        self.checkpoints = Checkpoints(self.stores[-1].engine)
        self.hubs = Cosigning(self.checkpoints, self.hub, self.trust, lambda: self.now)

    def stated(self, entries, silo="north", data_set="", branch="s"):
        """How far a ledger of so many equal charges has come."""
        genesis, chain = Genesis(data_set or data_set_of(silo), 0.2, 1e-5), []
        for number in range(entries):
            head = chain[-1].head if chain else EntryRef(0, genesis_row(genesis)[2])
            costs = {"heads": Cost("training", 1.0, 40.0, 1)}
            chain.append(next_entry(head, Debit(branch, "p", number, 1, costs), AT, 0.1 * (number + 1)))
        return signed(checkpoint(silo, genesis, chain, AT), self.parties[silo])

    def signs(self, silo, stated):
        credential = self.parties[silo]
        return replace(stated, certificate_pem=credential.certificate_pem, signature=credential.sign(stated.checkpoint))

    def state(self, stated, silo="north", peers=NAMES):
        return self.hubs.state(silo, stated, peers, 0)

    def witness(self, silo, given=None):
        return self.hubs.witness(silo, given, 0)

    def words(self, silo, stated):
        """The silo's cosignature."""
        return witnessed(stated, self.parties[silo])

    def signer(self, found):
        return self.trust.verify(found.certificate_pem, found.stated.checkpoint, found.signature).uri


@pytest.fixture
def desk(tmp_path, consortium):
    made = Desk(tmp_path, consortium)
    yield made
    for store in made.stores:
        store.engine.dispose()


# --- the coordinator's own ----------------------------------------------------------------------------------------
def test_it_signs_what_a_silo_states_and_remembers_it(desk):
    stated = desk.stated(2)
    found = desk.state(stated)
    assert (found.coordinator.stated.checkpoint, found.peer) == (stated.checkpoint, None)
    assert desk.signer(found.coordinator) == "fedward://coordinator/hub"
    desk.restart()
    (again,) = desk.hubs.latest("north")
    assert (again.stated.checkpoint, desk.signer(again)) == (stated.checkpoint, "fedward://coordinator/hub")
    assert desk.hubs.latest("south") == ()


def test_it_is_stored_before_it_is_signed(desk, monkeypatch):
    def full(*_):
        msg = "the disk is full"
        raise OSError(msg)

    monkeypatch.setattr(desk.checkpoints, "keep", full)
    monkeypatch.setattr(desk.hub, "sign", lambda _: pytest.fail("signed what is not stored"))
    with pytest.raises(OSError, match="disk is full"):
        desk.state(desk.stated(1))


@pytest.mark.parametrize("restart", [False, True])
def test_a_ledger_that_goes_back_is_refused_also_after_a_restart(desk, restart):
    latest = desk.stated(5)
    desk.state(latest)
    if restart:
        desk.restart()
    for older in (desk.stated(4), desk.stated(0), desk.stated(6, branch="other")):
        with pytest.raises(LedgerRolledBackError, match="does not contain entry 5"):
            desk.state(older)
    assert [one.stated.checkpoint for one in desk.hubs.latest("north")] == [latest.checkpoint]
    assert desk.state(desk.stated(6)).coordinator.stated.checkpoint == desk.stated(6).checkpoint


def test_the_same_again_is_signed_again_and_stored_once(desk, monkeypatch):
    stated, kept, keep = desk.stated(3), [], desk.checkpoints.keep
    monkeypatch.setattr(desk.checkpoints, "keep", lambda *a: (kept.append(a), keep(*a)))
    for _ in range(3):
        assert desk.state(stated).coordinator.stated.checkpoint == stated.checkpoint
    assert len(kept) == 1


def test_only_a_silo_states_its_own_ledger(desk):
    stated = desk.stated(1)
    with pytest.raises(SignatureRefused, match="south may not hand in a checkpoint that north has signed"):
        desk.state(stated, silo="south")
    with pytest.raises(SignatureRefused, match="south may not sign a checkpoint of the ledger of north"):
        desk.state(desk.signs("south", stated), silo="south")
    with pytest.raises(SignatureRefused, match="does not fit"):
        desk.state(replace(stated, checkpoint=desk.stated(2).checkpoint))
    with pytest.raises(CertificateError, match="a silo is needed"):
        desk.state(
            replace(stated, certificate_pem=desk.hub.certificate_pem, signature=desk.hub.sign(stated.checkpoint))
        )
    with pytest.raises(CosignError, match="a checkpoint of a ledger cannot be read"):
        desk.state(desk.signs("north", replace(stated, checkpoint=b"{}")))
    assert desk.hubs.latest("north") == ()


def test_a_data_set_under_a_new_name_is_refused(desk):
    with pytest.raises(CertificateError, match="not for the data set clinic, and a new name does not refill a budget"):
        desk.state(desk.stated(0, data_set="clinic"))
    assert desk.hubs.latest("north") == ()
    desk.state(desk.stated(2))
    with pytest.raises(CertificateError, match="not for the data set south-ward"):
        desk.state(desk.stated(3, data_set=data_set_of("south")))
    assert [one.stated.checkpoint for one in desk.hubs.latest("north")] == [desk.stated(2).checkpoint]


# --- another silo's -----------------------------------------------------------------------------------------------
def test_another_silo_is_handed_it_and_its_word_comes_back(desk):
    stated = desk.stated(2)
    desk.state(stated)
    assert desk.witness("south") == stated
    desk.witness("south", desk.words("south", stated))
    found = desk.state(stated)
    assert desk.signer(found.peer) == "fedward://silo/south"
    assert found.peer.stated.checkpoint == stated.checkpoint
    desk.restart()
    assert [desk.signer(one) for one in desk.hubs.latest("north")] == [
        "fedward://coordinator/hub",
        "fedward://silo/south",
    ]


def test_everybody_is_asked_by_one_and_all_can_wait_for_each_other(desk):
    """The next in a circle: with three silos each signs one checkpoint, none two."""
    stated = {name: desk.stated(1, silo=name) for name in NAMES}
    for name in NAMES:
        assert desk.state(stated[name], silo=name).peer is None
    handed = {name: desk.witness(name) for name in NAMES}
    assert handed == {"south": stated["north"], "west": stated["south"], "north": stated["west"]}
    assert [desk.witness(name) for name in NAMES] == [None] * 3
    for name in NAMES:
        assert desk.witness(name, desk.words(name, handed[name])) is None
    peers = {name: desk.signer(desk.state(stated[name], silo=name).peer) for name in NAMES}
    assert peers == {
        "north": "fedward://silo/south",
        "south": "fedward://silo/west",
        "west": "fedward://silo/north",
    }


def test_who_does_not_answer_is_not_waited_for(desk):
    stated = desk.stated(1)
    desk.state(stated)
    assert desk.witness("west") is None
    desk.now = PATIENCE_SECONDS
    assert desk.witness("west") == stated
    assert desk.witness("south") == stated
    assert desk.witness("south") is None, "handed out a moment ago"
    desk.now = 2 * PATIENCE_SECONDS
    assert desk.witness("south") == stated, "its answer may have been lost"
    desk.witness("west", desk.words("west", stated))
    desk.now = 9 * PATIENCE_SECONDS
    assert desk.witness("south") is None, "one is enough"


def test_only_silos_of_the_attempt_are_asked_and_a_new_attempt_asks_its_own(desk):
    stated = desk.stated(1)
    desk.state(stated, peers=("south",))
    desk.now = 9 * PATIENCE_SECONDS
    assert (desk.witness("west"), desk.witness("north")) == (None, None)
    desk.state(stated, peers=("north", "west"))
    assert (desk.witness("south"), desk.witness("west")) == (None, stated)


def test_a_peer_that_knows_more_says_so(desk):
    """The coordinator lost its memory; the peer's is handed to the silo that went back."""
    stated, newer = desk.stated(2), desk.stated(5)
    desk.state(stated)
    assert desk.witness("south") == stated
    desk.witness("south", desk.words("south", newer))
    assert desk.state(stated).peer.stated.checkpoint == newer.checkpoint


def test_a_late_word_on_an_earlier_head_is_kept_and_is_no_answer_to_a_newer_one(desk):
    """The coordinator ended after it had passed the word on and before it had thanked for it: it comes again."""
    earlier, stated = desk.stated(2), desk.stated(3)
    desk.state(earlier)
    desk.witness("south", desk.words("south", earlier))
    desk.restart()
    desk.state(stated)
    assert desk.witness("south", desk.words("south", earlier)) == stated
    assert desk.state(stated).peer is None
    desk.witness("south", desk.words("south", stated))
    assert desk.state(stated).peer.stated.checkpoint == stated.checkpoint


@pytest.mark.parametrize("restart", [False, True])
def test_an_old_word_that_is_replayed_is_no_answer_and_the_next_peer_is_heard(desk, restart):
    """North's checkpoint of six entries names entries 5, 4, 2 and 0, so it does not show that entry 3 is in it."""
    old, new = desk.stated(3), desk.stated(6)
    desk.state(old)
    desk.witness("south")
    desk.witness("south", desk.words("south", old))
    for entries in (4, 5):
        desk.state(desk.stated(entries))
    if restart:
        desk.restart()
    assert desk.state(new).peer is None
    assert desk.witness("south") == new
    desk.witness("south", desk.words("south", old))
    assert desk.state(new).peer is None, "else north would ask for ever and get this for ever"
    desk.now += PATIENCE_SECONDS
    assert desk.witness("west") == new
    desk.witness("west", desk.words("west", new))
    assert desk.signer(desk.state(new).peer).endswith("west")
    assert old in [found.stated for found in desk.hubs.latest("north")], "north hears of it all the same"


def test_a_lost_head_that_a_recovery_charged_for_is_no_newer_answer(desk):
    lost, stated = desk.stated(5), desk.stated(2, branch="x")
    asked = _Asked(stated, ("south",), 0.0)
    given = Checkpoint.parse(lost.checkpoint)
    assert asked.answered_by(given), "the ledger lacks it"
    recovered = replace(Checkpoint.parse(stated.checkpoint), covers=(given.head,))
    assert not _Asked(replace(stated, checkpoint=recovered.message), ("south",), 0.0).answered_by(given)


def test_nobody_cosigns_unasked_or_in_anothers_name(desk):
    stated = desk.stated(1)
    with pytest.raises(CosignError, match="nobody asked south"):
        desk.witness("south", desk.words("south", stated))
    desk.state(stated)
    with pytest.raises(CosignError, match="nobody asked north"):
        desk.witness("north", desk.words("north", stated))
    with pytest.raises(SignatureRefused, match="south may not hand in a checkpoint that west has signed"):
        desk.witness("south", desk.words("west", stated))
    assert desk.state(stated).peer is None


def test_what_a_peer_makes_up_is_neither_kept_nor_handed_on(desk):
    """Only the silo itself states how far its ledger has come."""
    desk.state(desk.stated(2))
    made_up = desk.signs("south", desk.stated(99))
    with pytest.raises(SignatureRefused, match="fedward://silo/south may not sign a checkpoint of the ledger of north"):
        desk.witness("south", desk.words("south", made_up))
    with pytest.raises(SignatureRefused, match="does not fit"):
        desk.witness("south", desk.words("south", replace(desk.stated(2), checkpoint=desk.stated(99).checkpoint)))
    assert [desk.signer(one) for one in desk.hubs.latest("north")] == ["fedward://coordinator/hub"]
    assert desk.state(desk.stated(2)).peer is None


def test_a_late_older_word_does_not_replace_a_newer_one_but_comes_with_it(desk):
    desk.state(desk.stated(5))
    for entries in (5, 2):
        desk.witness("south", desk.words("south", desk.stated(entries)))
    newest, older = desk.stated(5).checkpoint, desk.stated(2).checkpoint
    assert [one.stated.checkpoint for one in desk.hubs.latest("north")] == [newest, newest, older]
    assert [one.stated.checkpoint for one in desk.checkpoints.cosigned("north").values()] == [newest]


def test_what_a_signer_showed_of_old_is_forgotten_as_soon_as_it_signs_anew(desk):
    desk.state(desk.stated(5))
    for entries in (5, 2, 6):
        desk.witness("south", desk.words("south", desk.stated(entries)))
    newest = [desk.stated(entries).checkpoint for entries in (5, 6)]
    assert [one.stated.checkpoint for one in desk.hubs.latest("north")] == newest


def test_who_waits_is_woken(desk):
    stated, found = desk.stated(1), []
    desk.hubs = Cosigning(desk.checkpoints, desk.hub, desk.trust)
    waiting = threading.Thread(target=lambda: found.append(desk.hubs.state("north", stated, NAMES, 60)))
    handed = []
    peer = threading.Thread(target=lambda: handed.append(desk.hubs.witness("south", None, 60)))
    peer.start()
    waiting.start()
    peer.join(300)
    assert handed == [stated]
    desk.witness("south", desk.words("south", stated))
    waiting.join(300)
    assert desk.signer(found[0].peer) == "fedward://silo/south"


def test_the_end_lets_everybody_go(desk):
    desk.hubs = Cosigning(desk.checkpoints, desk.hub, desk.trust)
    calls = [
        threading.Thread(target=lambda: desk.hubs.state("north", desk.stated(1), NAMES, 600)),
        threading.Thread(target=lambda: desk.hubs.witness("north", None, 600)),
    ]
    for call in calls:
        call.start()
    desk.hubs.close()
    for call in calls:
        call.join(300)
        assert not call.is_alive()


# --- a database that is damaged ---------------------------------------------------------------------------------------
DAMAGES = {
    "cut": lambda content: content[: len(content) // 2],
    "a flipped digit": lambda content: content.replace(b"2026", b"2025", 1),
    "empty": lambda _: b"",
    "no checkpoint": lambda _: b"\xff\x00 not json",
}


def damage(desk, table, damage):
    with desk.stores[-1].engine.begin() as connection:
        for row in connection.execute(text(f"SELECT silo, signer, statement FROM {table}")).all():  # noqa: S608  # ours
            connection.execute(
                text(f"UPDATE {table} SET statement = :s WHERE silo = :a AND signer = :b"),  # noqa: S608  # ours
                {"s": damage(bytes(row.statement)), "a": row.silo, "b": row.signer},
            )


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_told_once_and_the_next_takes_its_place(desk, kind):
    first, second = desk.stated(1), desk.stated(2)
    desk.state(first)
    desk.witness("south", desk.words("south", first))
    damage(desk, "statements", DAMAGES[kind])
    with capture_logs() as said:
        known = desk.hubs.latest("north")
        desk.hubs.latest("north")
        assert desk.state(second).coordinator.stated == second
    assert [one.stated for one in known] == [first], "what a peer cosigned is there"
    lines = [line for line in said if line["event"] == "a stored checkpoint is damaged"]
    assert len(lines) == 1
    assert "ledger of north" in lines[0]["why"]
    assert desk.hubs.latest("north")[0].stated == second


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_cosignature_does_not_hide_the_others(desk, kind):
    first = desk.stated(1)
    desk.state(first)
    desk.witness("south", desk.words("south", first))
    damage(desk, "countersigned_statements", DAMAGES[kind])
    with capture_logs() as said:
        desk.witness("west", desk.words("west", first))
        known = desk.hubs.latest("north")
        desk.hubs.latest("north")
    assert [one.stated for one in known] == [first, first]
    assert len([line for line in said if "that south signed is damaged" in line.get("why", "")]) == 1
    desk.witness("south", desk.words("south", first))
    assert len(desk.hubs.latest("north")) == 3, "it takes the place of the damaged one"


def test_a_certificate_that_counts_no_more_says_nothing_of_damage(desk, monkeypatch):
    """Else a renewal or a revocation would have the coordinator forget how far a ledger had come."""
    first, second = desk.stated(1), desk.stated(2)
    desk.state(second)

    def refuse(*_, **__):
        msg = "revoked"
        raise CertificateError(msg)

    with monkeypatch.context() as patch:
        patch.setattr("coordinator.cosigning.signer_at", refuse)
        with pytest.raises(LedgerRolledBackError):
            desk.state(first)
