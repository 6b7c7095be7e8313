"""Members that spoil sums, deal wrong shares or accuse others falsely, and honest silos that do what they are asked.

Here is what exactly follows from one act. What may follow from any order of acts and disturbances is in
`test_hostile_machine.py`.

The study ends with a model, by a guilty silo's name, or by a set that holds one. After every turn the witness checks
that no two sums were read from which one hospital's contribution follows: of each epoch at most one list, no draw in
two of them. A spoilt sum counts as read. Where the silos have ledgers, the gate and the policy are the real ones.
"""

from dataclasses import dataclass, field

import pytest

from coordinator.core.state import Phase
from coordinator.core.study import Life, Progress
from crypto.errors import RecoveryRefused
from crypto.secagg.dealt.bundles import bound
from crypto.secagg.unmasking import _shares_key
from policies.plan import quorum
from protos.messages import Tensor
from protos.steps import Note, Task
from support import hostility
from support.simulated_coordinator import SimulatedCoordinator
from support.simulated_federation import NAMES, SimulatedFederation, simulated_study

STEPS = 1000
ALDER, BIRCH, CEDAR, ELM, FIR, _, LARCH = NAMES[:7]


@dataclass
class Run:
    """One study among hostile members."""

    federation: SimulatedFederation
    guilty: tuple[str, ...]
    progress: Progress | None = field(default=None)

    def to_its_end(self) -> Progress:
        federation = self.federation
        for _ in range(STEPS):
            if not federation.running:
                break
            federation.turn()
            federation.witness.check()
        progress = self.progress = federation.coordinator.progress
        assert not federation.running, federation.coordinator.round
        assert {one.name for one in progress.silos if one.why} <= set(self.guilty), progress.silos
        assert all(set(names) & set(self.guilty) for names in progress.spoilt), progress.spoilt
        if progress.life is not Life.FINISHED:
            assert progress.life is Life.ENDED
            assert any(name in progress.why for name in self.guilty), progress.why
        return progress

    def attempts_charged(self, silo, number, tensor):
        return [at for (of, at) in self.federation.silos[silo].gate.ledger.charged(self.study, number) if of == tensor]

    @property
    def study(self):
        return self.federation.study.digest


@pytest.fixture
def among(quick_folder, credentials, hub):
    """Gives a study with guilty members; `ledgers` says whether the silos have the real gate."""

    def of(silos, colluders, guilty, *, mode="local", ledgers=False, sealing="ring32", missing=10):
        least = max(quorum.least(silos, colluders), silos - missing)
        privacy = {"mode": mode, "colluders": colluders}
        study = simulated_study(NAMES[:silos], least, sealing, privacy=privacy)
        # A real gate refuses more attempts than the study allows. Without it the runs may last longer.
        coordinator = SimulatedCoordinator(study, study.max_attempts if ledgers else 50)
        federation = SimulatedFederation(
            quick_folder, study, credentials, coordinator=coordinator, hub=hub if ledgers else None
        )
        return Run(federation, tuple(guilty))

    return of


def spoil(run, rule=lambda _: True):
    for name in run.guilty:
        run.federation.silos[name].spoils = rule
    return run


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_spoilt_round_is_made_anew_without_a_suspect_with_fresh_draws_and_a_full_charge(among, mode):
    run = spoil(among(4, 1, [BIRCH], mode=mode, ledgers=True))
    progress = run.to_its_end()
    assert progress.life is Life.FINISHED, progress.why
    assert progress.spoilt == (NAMES[:4],)
    assert progress.aside == (BIRCH,)
    assert run.attempts_charged(ALDER, 0, "counts") == [1, 2]
    assert run.attempts_charged(ALDER, 1, "heads") == [1]
    assert not any(one.dispute == "survivors" for silo in run.federation.silos.values() for one in silo.disputes)


@pytest.mark.slow
def test_suspects_sit_out_in_turn_until_the_guilty_one_is_named(among):
    progress = spoil(among(5, 1, [FIR])).to_its_end()
    assert progress.life is Life.FINISHED, progress.why
    out = [set(NAMES[:5]) - set(names) for names in progress.spoilt]
    assert out == [set(), {BIRCH}, {ELM}, {ALDER}, {CEDAR}]
    (left,) = [one for one in progress.silos if one.why]
    assert (left.name, progress.aside) == (FIR, ())
    assert "5 attempts were spoilt, and fir took part in it, if at most 1 silo is hostile" in left.why


@pytest.mark.slow
def test_a_member_that_behaves_while_another_is_out_expels_nobody_by_name(among):
    run = among(4, 1, [CEDAR])
    spoil(run, lambda _: len(run.federation.coordinator.round.participants) == 4)
    progress = run.to_its_end()
    assert (progress.life, progress.spoilt, progress.aside) == (Life.FINISHED, (NAMES[:4],), (BIRCH,))
    assert not any(one.why for one in progress.silos)


def test_where_nobody_can_be_spared_the_study_ends_by_the_smallest_provable_set(among):
    progress = spoil(among(4, 2, [BIRCH])).to_its_end()
    assert progress.life is Life.ENDED
    assert "by at least one of alder, birch, cedar, elm; no smaller set can be proven" in progress.why


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_sum_that_follows_an_opened_one_is_made_anew_with_the_whole_round(among, mode):
    run = spoil(among(4, 1, [CEDAR], mode=mode, ledgers=True), lambda header: header.tensor is Tensor.ENCODER)
    progress = run.to_its_end()
    assert progress.life is Life.FINISHED, progress.why
    assert run.attempts_charged(ALDER, 1, "heads") == [1, 2]
    assert run.attempts_charged(ALDER, 1, "encoder") == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("silos", "colluders", "guilty", "mode"),
    [
        (7, 2, [ALDER, ELM], "distributed"),
        (8, 2, [BIRCH, CEDAR], "local"),
    ],
)
def test_two_that_spoil_all_to_the_end_have_nobody_honest_named(among, silos, colluders, guilty, mode):
    spoil(among(silos, colluders, guilty, mode=mode)).to_its_end()


@pytest.mark.slow
def test_a_coordinator_that_changes_a_sum_has_no_member_named(among):
    run = among(4, 1, [])
    coordinator, honest = run.federation.coordinator, run.federation.coordinator._total
    place = coordinator.round.place

    def twice_one(effect):
        silos = effect.silos if effect.place != place else (*effect.silos[1:], effect.silos[1])
        return honest(type(effect)(effect.place, effect.tensor, silos))

    coordinator._total = twice_one
    progress = run.to_its_end()
    assert (progress.life, progress.spoilt) == (Life.FINISHED, ())
    said = {one.explanation for silo in run.federation.silos.values() for one in silo.disputes}
    assert "the coordinator's sum of counts is not the sum of the uploads that the silos in it have signed" in said


@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_who_reveals_nothing_of_use_where_all_must_reveal_is_named_by_what_it_has_signed(among, mode):
    run = among(4, 2, [CEDAR], mode=mode)  # all four must reveal
    run.federation.silos[CEDAR].bends = lambda header, note: bytes(len(note)) if header.kind == Note.REVEAL else note
    progress = run.to_its_end()
    assert progress.life is Life.ENDED  # three are too few for this study
    (left,) = [one for one in progress.silos if one.why]
    assert left.name == CEDAR
    assert "what cedar has signed spoilt the sum of counts" in left.why


@pytest.mark.slow
def test_a_reveal_of_no_use_changes_nothing_where_the_others_suffice(among):
    run = among(5, 1, [ELM])
    run.federation.silos[ELM].bends = lambda header, note: bytes(len(note)) if header.kind == Note.REVEAL else note
    progress = run.to_its_end()
    assert (progress.life, progress.spoilt) == (Life.FINISHED, ())
    assert not any(one.why for one in progress.silos)


# --- notes ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_a_note_that_its_owner_has_not_signed_is_silence_and_costs_no_reader_anything(among, mode):
    """If it were relayed, every reader would dispute it, and whoever did so twice would be left out."""
    run = among(5, 1, (ELM,), mode=mode)
    hostility.leave_its_note_unsigned(run.federation.silos[ELM])
    progress = run.to_its_end()
    assert progress.life is Life.FINISHED
    assert set(run.federation.coordinator.round.complaints) <= {ELM}, "its own: its upload was refused"
    assert {one.name for one in progress.silos if one.why} <= {ELM}


# --- complaints -------------------------------------------------------------------------------------------------------
def test_who_deals_wrong_shares_is_named_by_the_key_of_that_note_and_not_its_victim(among):
    run = among(4, 1, [BIRCH])
    run.federation.silos[BIRCH].deals = lambda name, box: box[:-1] + bytes([box[-1] ^ 1]) if name == ELM else box
    progress = run.to_its_end()
    assert progress.life is Life.FINISHED, progress.why
    (left,) = [one for one in progress.silos if one.why]
    assert left.name == BIRCH
    assert (
        "birch has dealt wrong shares to elm, as the key of its note shows to everybody; alder, cedar examined it"
        in left.why
    )
    assert run.federation.coordinator.round.names == (ALDER, CEDAR, ELM)
    assert not any(
        place.round == 0 and place.attempt == 1 for _, place, slot in run.federation.witness.uploads if slot == "counts"
    )


def test_on_a_circle_who_deals_wrong_shares_is_named(among):
    run = among(8, 1, [ALDER], missing=1)
    run.federation.silos[ALDER].deals = lambda name, box: box[:-1] + bytes([box[-1] ^ 1]) if name == LARCH else box
    progress = run.to_its_end()
    assert progress.life is Life.FINISHED, progress.why
    (left,) = [one for one in progress.silos if one.why]
    assert left.name == ALDER
    assert "alder has dealt wrong shares to larch, as the key of its note shows to everybody" in left.why


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_on_a_circle_who_accuses_a_silo_whose_shares_it_does_not_hold_is_named(among, mode):
    """Of eight silos, alder and fir are no neighbours."""
    run = among(8, 1, [ALDER], missing=1, mode=mode)
    asked = RecoveryRefused("fir sealed its shares for this silo wrongly", FIR, bytes(32))
    run.federation.silos[ALDER].accuses = lambda membership, _: asked if membership.roster.circle.sparse else None
    progress = run.to_its_end()
    assert progress.life is Life.FINISHED, progress.why
    assert {one.name for one in progress.silos if one.why} == {ALDER}
    assert progress.spoilt == ((ALDER,),)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["local", "distributed"])
def test_on_a_circle_a_spoilt_round_is_made_anew_without_a_suspect(among, mode):
    run = spoil(among(8, 1, [BIRCH], mode=mode, ledgers=True, missing=1))
    progress = run.to_its_end()
    assert progress.life in {Life.FINISHED, Life.ENDED}, progress.why
    assert progress.life is Life.FINISHED or BIRCH in progress.why
    assert progress.spoilt[0] == NAMES[:8]


@pytest.mark.parametrize("act", [hostility.find_another_liar, hostility.dispute, hostility.fall_silent])
def test_whoever_examines_a_complaint_in_bad_faith_changes_nothing(among, act):
    run = among(6, 2, [BIRCH, CEDAR])
    run.federation.silos[BIRCH].deals = lambda name, box: box[:-1] + bytes([box[-1] ^ 1]) if name == ELM else box
    given = {hostility.find_another_liar: 1, hostility.dispute: Task.EXAMINE, hostility.fall_silent: Phase.EXAMINE}
    act(run.federation.silos[CEDAR], given[act])
    progress = run.to_its_end()
    assert progress.life is Life.FINISHED, progress.why
    assert {one.name for one in progress.silos if one.why} == {BIRCH}
    assert progress.spoilt == ((BIRCH,),)


@pytest.mark.slow
@pytest.mark.parametrize("right_key", [True, False])
def test_who_complains_falsely_is_named_by_the_key_that_it_publishes(among, right_key):
    run = among(4, 1, [ELM])

    def accuse(membership, place):
        asked = bound("shares", membership.attempt(place), CEDAR, ELM)
        key = _shares_key(membership._pairs(), CEDAR, ELM, asked) if right_key else bytes(32)
        return RecoveryRefused("cedar sealed its shares for this silo wrongly", CEDAR, key)

    run.federation.silos[ELM].accuses = accuse
    progress = run.to_its_end()
    assert progress.life is Life.FINISHED, progress.why
    assert {one.name for one in progress.silos if one.why} == {ELM}
    assert progress.spoilt == ((ELM,),)


@pytest.mark.slow
def test_a_complaint_that_nothing_can_decide_names_nobody_and_nobody_leaves_for_it(among):
    run = among(4, 1, [ELM])
    told = iter([True])
    run.federation.silos[ELM].accuses = lambda *_: (
        RecoveryRefused("cedar committed to another key", CEDAR) if next(told, False) else None
    )
    progress = run.to_its_end()
    assert (progress.life, progress.spoilt) == (Life.FINISHED, ((CEDAR, ELM),))
    assert not any(one.why for one in progress.silos)


@pytest.mark.parametrize("guilty", [ELM, ALDER])
def test_who_offers_the_keys_of_another_leaves_by_name_and_the_other_stays(among, guilty):
    """Nobody goes on in a roster in which two have one key, so two such attempts left an honest silo out."""
    run = among(4, 1, [guilty])
    silos = run.federation.silos
    silos[guilty].hostile = True
    hostility.copy_keys(silos[guilty], silos[BIRCH])
    silos[guilty].silent = lambda work: work.task is Task.GREET  # its own agent would dispute its own keys
    progress = run.to_its_end()
    assert progress.life is Life.FINISHED, progress.why
    (left,) = [one for one in progress.silos if one.why]
    assert left.name == guilty
    assert "it offers keys that birch has offered before, and only birch can have them" in left.why


@pytest.mark.parametrize("act", ["greets", "offers"])
def test_who_offers_or_greets_wrongly_is_named_by_two_pairs_and_nobody_leaves_for_having_said_so(among, act):
    """Alder is the first, so all others read what it has sent."""
    run = among(4, 1, [ALDER])
    guilty = run.federation.silos[ALDER]
    guilty.hostile = True
    if act == "greets":
        hostility.garble(guilty, Note.GREETING, -1)
    else:
        hostility.offer_bad_keys(guilty)
        guilty.silent = lambda work: work.task is Task.GREET  # its own agent would dispute its own keys
    progress = run.to_its_end()
    assert progress.life is Life.FINISHED, progress.why
    assert all(ALDER in pair and len(pair) == 2 for pair in progress.spoilt), progress.spoilt
    assert {one.name for one in progress.silos if one.why} <= {ALDER}
    assert not set(run.federation.coordinator.round.complaints) - {ALDER}
