from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from coordinator.cosigning import PATIENCE_SECONDS, KnownLedgers, _Asked
from coordinator.storage.checkpoints import Checkpoints
from crypto.errors import CertificateError, SignatureRefused
from crypto.pki.certificates import Trust
from policies.accounting import totals
from policies.errors import CosignError, LedgerRolledBackError
from policies.ledger.chain import Genesis, genesis_row, next_entry
from policies.ledger.cosign import Checkpoint, checkpoint
from policies.ledger.events import Debit, EntryRef
from policies.ledger.judging import cost_of
from policies.plan.cost import Cost
from policies.plan.release import plan
from protos.messages import Place, Tensor
from support.certificates import data_set_of, load, make_authority
from support.cosigners import signed, witnessed
from support.databases import store_in
from support.studies import tiny_study
from support.thefts import Consortium, charged, extended, head_of, stated
from support.unjudged import BelievingHub

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
        self.stores.append(store_in(self.folder))
        self.checkpoints = Checkpoints(self.stores[-1].database)
        self.hubs = BelievingHub(self.checkpoints, self.hub, self.trust, lambda: self.now)

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
        return self.hubs.state(silo, stated, peers)

    def witness(self, silo, given=None):
        if given is not None:
            self.hubs.take(silo, given)
        handed = self.hubs.hand_out(silo)
        return None if handed is None else handed.stated

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
    stated, rung = desk.stated(1), []
    for name in NAMES:
        desk.hubs.requests.listen(name, lambda name=name: rung.append(("cosign", name)))
        desk.hubs.answers.listen(name, lambda name=name: rung.append(("answered", name)))
    desk.state(stated)
    assert rung == [("cosign", "south")]
    assert desk.hubs.answered("north", stated) is None
    assert desk.witness("south") == stated
    desk.witness("south", desk.words("south", stated))
    assert rung[1:] == [("answered", "north")]
    assert desk.signer(desk.hubs.answered("north", stated).peer) == "fedward://silo/south"
    assert desk.hubs.answered("north", desk.stated(2)) is None, "of another checkpoint"


def test_the_first_answer_stands(desk):
    stated = desk.stated(1)
    desk.state(stated)
    desk.witness("south")
    desk.now = PATIENCE_SECONDS
    desk.witness("west")
    for silo in ("south", "west"):
        desk.witness(silo, desk.words(silo, stated))
        assert desk.signer(desk.state(stated).peer) == "fedward://silo/south"


def test_whoever_is_asked_because_another_is_silent_is_rung_for_once_it_is_time(desk):
    rung = []
    for name in NAMES:
        desk.hubs.requests.listen(name, lambda name=name: rung.append(name))
    desk.state(desk.stated(1))
    assert desk.witness("south") is not None
    rung.clear()
    for seconds, due in ((PATIENCE_SECONDS - 0.1, set()), (0.6, {"south", "west"}), (0.2, set())):
        desk.now += seconds
        rung.clear()
        desk.hubs.pass_time()
        assert set(rung) == due
    desk.witness("south", desk.words("south", desk.stated(1)))
    rung.clear()
    desk.now += PATIENCE_SECONDS
    desk.hubs.pass_time()
    assert rung == [], "one answer is enough"


# --- a database that is damaged ---------------------------------------------------------------------------------------
DAMAGES = {
    "cut": lambda content: content[: len(content) // 2],
    "a flipped digit": lambda content: content.replace(b"2026", b"2025", 1),
    "empty": lambda _: b"",
    "no checkpoint": lambda _: b"\xff\x00 not json",
}


def damage(desk, damage, *tables):
    with desk.stores[-1].engine.begin() as connection:
        for table in tables:
            for (statement,) in connection.execute(text(f"SELECT statement FROM {table}")).all():  # noqa: S608  # ours
                connection.execute(
                    text(f"UPDATE {table} SET statement = :new WHERE statement = :old"),  # noqa: S608  # ours
                    {"new": damage(bytes(statement)), "old": statement},
                )


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_told_once_and_the_next_takes_its_place(desk, kind):
    first, second = desk.stated(1), desk.stated(2)
    desk.state(first)
    desk.witness("south", desk.words("south", first))
    damage(desk, DAMAGES[kind], "statements")
    with capture_logs() as said:
        known = desk.hubs.latest("north")
        desk.hubs.latest("north")
        assert desk.state(second).coordinator.stated == second
    assert [one.stated for one in known] == [first, first], "it is remembered with its time, and a peer cosigned it"
    lines = [line for line in said if line["event"] == "a stored checkpoint is damaged"]
    assert len(lines) == 1
    assert "ledger of north" in lines[0]["why"]
    assert desk.hubs.latest("north")[0].stated == second


@pytest.mark.parametrize("kind", DAMAGES)
def test_what_is_damaged_wherever_it_is_stored_is_left_out(desk, kind):
    first, second = desk.stated(1), desk.stated(2)
    desk.state(first)
    desk.witness("south", desk.words("south", first))
    damage(desk, DAMAGES[kind], "statements", "received_statements")
    assert [one.stated for one in desk.hubs.latest("north")] == [first], "what a peer cosigned is there"
    assert desk.state(second).coordinator.stated == second


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_cosignature_does_not_hide_the_others(desk, kind):
    first = desk.stated(1)
    desk.state(first)
    desk.witness("south", desk.words("south", first))
    damage(desk, DAMAGES[kind], "countersigned_statements")
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


# --- a stolen key -------------------------------------------------------------------------------------------------
STUDY = tiny_study()
MADE_UP = Debit("f" * 64, "p", 9, 1, {"heads": Cost("training", 1.0, 0.5, 7)})
D = datetime.now(UTC) - timedelta(hours=2)
"""When north's key was stolen."""


class Robbed:
    """A coordinator that runs a study with north, whose key is stolen."""

    def __init__(self, folder):
        self.parties = Consortium(folder)
        self.store = store_in(folder)
        self.checkpoints = Checkpoints(self.store.database)
        self.running, self.ended, self.now = [STUDY], [], D - timedelta(hours=1)
        self.restart(self.parties.trust)

    def studies_of(self, silo):
        return (self.running, self.ended) if silo in STUDY.silos else ([], [])

    def restart(self, trust):
        self.hubs = KnownLedgers(self.checkpoints, self.parties.hub, trust, studies=self, today=lambda: self.now)

    def state(self, credential, entries, evidence=None):
        found = self.hubs.state("north", stated(credential, entries), ("south",), evidence=evidence)
        return found.coordinator

    def heads(self):
        return [Checkpoint.parse(one.stated.checkpoint).head for one in self.hubs.latest("north")]

    def revoke(self, since=D):
        """The root revokes the key; north enrols a new one, and goes on with it."""
        self.restart(self.parties.revoke(since))
        self.now = datetime.now(UTC)
        return self.parties.renewed()


@pytest.fixture
def robbed(tmp_path):
    made = Robbed(tmp_path)
    yield made
    made.store.engine.dispose()


def test_charges_of_no_study_of_the_silo_are_not_cosigned_and_not_remembered(robbed):
    ledger = charged(STUDY, [0])
    robbed.state(robbed.parties.old, ledger)
    with pytest.raises(CosignError, match="what no study with this silo that is known here can have charged"):
        robbed.state(robbed.parties.old, extended([MADE_UP], ledger))
    robbed.state(robbed.parties.old, charged(STUDY, [1], ledger))
    robbed.running = []
    with pytest.raises(CosignError, match="what no study"):
        robbed.state(robbed.parties.old, charged(STUDY, [1, 2], ledger))


def test_a_head_that_a_thief_made_up_binds_nobody_once_the_root_has_dated_the_theft(robbed):
    """It claims no charge that the running study could not have made, and yet the true ledger lacks it."""
    ledger = charged(STUDY, [0])
    robbed.state(robbed.parties.old, ledger)
    robbed.now = D + timedelta(minutes=5)
    made_up = charged(STUDY, [1, 2], ledger)
    robbed.state(robbed.parties.old, made_up)
    true = charged(STUDY, [1], ledger, attempt=2)
    with pytest.raises(LedgerRolledBackError):
        robbed.state(robbed.parties.old, true)
    new = robbed.revoke()
    assert robbed.heads() == [head_of(ledger).head], "it is told no more"
    robbed.state(new, true)
    assert robbed.heads() == [head_of(true).head]
    robbed.state(new, charged(STUDY, [2], true))


def test_what_another_silo_cosigned_of_the_made_up_head_is_told_no_more(robbed):
    robbed.state(robbed.parties.old, charged(STUDY, [0]))
    robbed.now = D + timedelta(minutes=5)
    made_up = stated(robbed.parties.old, charged(STUDY, [0, 1]))
    robbed.hubs.state("north", made_up, ("south",))
    robbed.hubs.take("south", witnessed(made_up, robbed.parties.south))
    assert len(robbed.heads()) == 2
    robbed.revoke()
    assert robbed.heads() == [head_of(charged(STUDY, [0])).head]


@pytest.mark.parametrize("since", [D - timedelta(days=300), D - timedelta(minutes=61)])
def test_a_hospital_that_claims_a_theft_refills_nothing_that_is_in_a_sum(robbed, since):
    """It says "as of last year" and puts back last year's ledger, or one that is a round old."""
    ledger = charged(STUDY, [0, 1, 2])
    for number in range(3):
        robbed.state(robbed.parties.old, ledger[: number + 1])
        for tensor in plan(STUDY).tensors(number):
            robbed.checkpoints.keep_summed(Place(STUDY.digest, number, 1), Tensor(tensor), ("north", "south", "west"))
    new = robbed.revoke(since)
    for older in ([], ledger[:1], ledger[:2]):
        with pytest.raises(CosignError, match="a stolen key forgives only what is in no sum"):
            robbed.state(new, older)
    robbed.state(new, ledger)
    with pytest.raises(LedgerRolledBackError):
        robbed.state(new, ledger[:2])


def test_a_theft_before_everything_that_is_remembered_leaves_only_the_lists(robbed):
    robbed.state(robbed.parties.old, charged(STUDY, [0]))
    robbed.checkpoints.keep_summed(Place(STUDY.digest, 0, 1), Tensor.COUNTS, ("north", "south"))
    new = robbed.revoke(D - timedelta(days=300))
    assert robbed.heads() == []
    with pytest.raises(CosignError, match="in no sum"):
        robbed.state(new, [])
    robbed.state(new, charged(STUDY, [0]))


def test_a_coordinator_that_was_put_back_believes_its_own_later_signature(robbed):
    """Its database knows nothing of a study that was created since."""
    ledger = charged(STUDY, [0])
    robbed.state(robbed.parties.old, ledger)
    later = extended([MADE_UP], ledger)
    evidence = witnessed(stated(robbed.parties.old, later), robbed.parties.hub)
    on = charged(STUDY, [1], later)
    for worthless in (None, witnessed(stated(robbed.parties.old, later), robbed.parties.south)):
        with pytest.raises(CosignError, match="what no study"):
            robbed.state(robbed.parties.old, on, worthless)
    robbed.state(robbed.parties.old, on, evidence)


def test_peers_are_handed_what_the_coordinator_signed_before(robbed):
    robbed.state(robbed.parties.old, charged(STUDY, [0]))
    robbed.state(robbed.parties.old, charged(STUDY, [0, 1]))
    handed = robbed.hubs.hand_out("south")
    assert Checkpoint.parse(handed.evidence.stated.checkpoint).head == head_of(charged(STUDY, [0])).head
    robbed.parties.trust.verify(
        handed.evidence.certificate_pem, handed.evidence.stated.checkpoint, handed.evidence.signature
    )


def test_what_was_lost_with_the_key_is_priced_and_cosigned_also_of_studies_that_are_over(robbed):
    """The hospital has only an old copy of its ledger, and recovers what is in sums."""
    robbed.state(robbed.parties.old, charged(STUDY, [0]))
    robbed.now = D + timedelta(minutes=5)
    robbed.state(robbed.parties.old, charged(STUDY, [0, 1, 2]))
    places = [Place(STUDY.digest, number, 1) for number in (0, 1, 2)]
    for place in places:
        for tensor in plan(STUDY).tensors(place.round):
            robbed.checkpoints.keep_summed(place, Tensor(tensor), ("north", "south", "west"))
    robbed.running, robbed.ended = [], [STUDY]
    new, kept = robbed.revoke(), charged(STUDY, [0])
    with pytest.raises(CosignError, match="in no sum"):
        robbed.state(new, kept)
    summed = cost_of([STUDY], robbed.checkpoints.summed("north"))
    lost = totals.beyond(summed, head_of(kept).totals)
    again = extended([Debit(STUDY.digest, "p", 9, 1, {f"lost{n}": cost for n, cost in enumerate(lost)})], kept)
    robbed.state(new, again)
    with pytest.raises(CosignError, match="what no study"):
        robbed.state(new, extended([MADE_UP], again))
