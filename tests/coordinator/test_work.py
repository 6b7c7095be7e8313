"""What each phase asks of whom, and what may be sent and fetched in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.core.events import Passed, Restarted, RoundStopped
from coordinator.core.round import WrongPhaseError, step
from coordinator.core.state import OVER, SPARING, Phase
from coordinator.core.study import Life, abort, advance, create, pause, start
from coordinator.engine import script_of
from coordinator.storage.spool import SUM_FILE
from coordinator.work import asked_in, check_fetch, check_upload, forms_of, liar_of, signed_note, work_in
from crypto.errors import RecoveryRefused
from crypto.rings.rings import ring_of
from crypto.secagg import circle
from crypto.secagg.dealt.bundles import to_sign
from crypto.secagg.dealt.slices import Layout, letter_form
from crypto.secagg.layout import sealed_values
from crypto.secagg.survivors import AttemptRef, roster_digest
from policies.plan.note_sizes import note_limit
from policies.plan.release import plan
from protos.messages import Complaint, Confirm, Place, Signature, Spoilt, Tensor, UploadHeader, Vouch
from protos.steps import Note, Task
from support.rounds import FIVE, SHA, TOTAL, accept, confirm, offer, part, reach, refuse, upload, wanted
from support.silos import unreadable
from support.studies import tiny_study

STUDY = tiny_study(min_silos=2, privacy={"colluders": 0})
NORTH, SOUTH, WEST = STUDY.silos
ASKED = {
    Phase.OFFER: (Task.DECIDE, STUDY.silos),
    Phase.WAIT: (None, ()),
    Phase.VOID: (Task.VOID, STUDY.silos),
    Phase.GREET: (Task.GREET, STUDY.silos),
    Phase.DEAL: (Task.DEAL, (WEST,)),
    Phase.TAKE: (Task.TAKE, STUDY.silos),
    Phase.SHARE: (Task.SHARE, (NORTH,)),
    Phase.CATCH_UP: (Task.CATCH_UP, (WEST,)),
    Phase.JUDGE: (Task.JUDGE, (SOUTH,)),
    Phase.EXCHANGE: (Task.EXCHANGE, STUDY.silos),
    Phase.CHECK: (Task.CHECK, STUDY.silos),
    Phase.EXAMINE: (Task.EXAMINE, (WEST,)),
    Phase.GATHER: (Task.CONTRIBUTE, STUDY.silos),
    Phase.ADD: (None, ()),
    Phase.SIGN: (Task.SIGN, STUDY.silos),
    Phase.REVEAL: (Task.REVEAL, STUDY.silos),
    Phase.OPEN: (Task.OPEN, STUDY.silos),
    Phase.RECOUNT: (Task.RECOUNT, STUDY.silos),
    Phase.SOLVE: (Task.SOLVE, (WEST,)),
    Phase.ADOPT: (Task.ADOPT, STUDY.silos),
}


def of_all(note):
    return tuple(part(silo, note) for silo in STUDY.silos)


PARTS = {
    Phase.TAKE: (part(WEST, Note.KEYS),),
    Phase.CATCH_UP: (part(NORTH, Note.MODEL),),
    Phase.EXAMINE: (part(SOUTH, Note.SHARES),),
    Phase.JUDGE: (part(NORTH, Note.MODEL),),
    Phase.OPEN: (*of_all(Note.REVEAL), TOTAL),
    Phase.ADOPT: (part(WEST, Note.HEADS),),
}
BY_OWNER = {
    **dict.fromkeys((Phase.DEAL, Phase.TAKE), of_all(Note.GREETING)),
    **dict.fromkeys((Phase.CHECK, Phase.GATHER, Phase.OPEN), of_all(Note.SHARES)),
}
"""What may be fetched without being named in the work."""
SLOTS = {
    "sum": ("heads", SUM_FILE),
    **{note: (f"note-{note}", "") for note in Note},
    Note.REVEAL: ("note-reveal-heads", ""),
}
SUMMED = (Phase.GATHER, Phase.SIGN, Phase.REVEAL, Phase.OPEN, Phase.RECOUNT, Phase.SOLVE, Phase.ADOPT)


def vouch(silo):
    return Vouch(silo, b"certificate", f"{silo}'s".encode())


def study_in(phase):
    """Round 1, attempt 1 of `support.rounds` in this phase, within a study that runs."""
    state, _ = start(create(script_of(STUDY)), 0.0)
    round_ = reach(phase)
    life = Life.WAITING if phase is Phase.WAIT else Life.RUNNING
    return replace(state, round=round_, life=life)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in OVER])
def test_who_is_asked_for_what(phase):
    state = study_in(phase)
    task, asked = ASKED[phase]
    for silo in (*STUDY.silos, "elsewhere"):
        work = work_in(state, silo, told=False)
        assert (work.task if work else None) == (task if silo in asked else None)
        if work is None:
            continue
        assert work.parts == PARTS.get(phase, ())
        assert work.participants == (STUDY.silos if phase in (Phase.CHECK, *SUMMED) else ())
        assert work.survivors == (STUDY.silos if phase in SUMMED[1:] else ())
        signed = tuple(Signature(silo, f"{silo}'s".encode()) for silo in STUDY.silos)
        assert work.signatures == (signed if phase is Phase.REVEAL else ())
        if phase in (Phase.DEAL, Phase.TAKE, Phase.SOLVE, Phase.ADOPT):
            assert work.actor == WEST
        shown = Complaint(NORTH, SOUTH, bytes(64), b"north's") if phase is Phase.EXAMINE else None
        assert work.complaint == shown
        assert work.vouches == (tuple(map(vouch, STUDY.silos)) if phase is Phase.CATCH_UP else ())
        if phase in (Phase.SHARE, Phase.CATCH_UP, Phase.JUDGE):
            assert (work.actor, work.tensor) == (NORTH, None)
        assert (work.place, work.roster) == (state.round.place, () if phase is Phase.OFFER else state.round.members)


def fetch(round_, silo, tensor, kind, of_silo):
    """Where lies what one silo fetches of another."""
    return check_fetch(round_, silo, tensor, kind, [of_silo])[of_silo]


def require_asked(state):
    """Those are rung for who get something, and nobody else."""
    assert asked_in(state) == {one.name for one in state.silos if work_in(state, one.name, told=False) is not None}


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in OVER])
def test_nobody_is_asked_in_a_pause(phase):
    require_asked(study_in(phase))
    state, _ = pause(study_in(phase), "paused by ops", 1.0)
    require_asked(state)
    assert [work_in(state, silo, told=False) for silo in STUDY.silos] == [None] * 3


def test_who_has_left_hears_it_even_in_a_pause_and_once():
    state, _ = start(create(script_of(STUDY)), 0.0)
    place = state.round.place
    for event in (refuse(place, WEST), accept(place, NORTH), accept(place, SOUTH), RoundStopped("x")):
        state, _ = advance(state, event, 1.0)
    state, _ = pause(state, "paused by ops", 1.0)
    work = work_in(state, WEST, told=False)
    assert (work.task, work.outcome, work.why) == (Task.FINISH, "left", "budget_spent: policy.budget is spent")
    assert work_in(state, WEST, told=True) is None
    require_asked(state)


def test_the_end_is_told_to_all_with_its_reason():
    state, _ = abort(study_in(Phase.GATHER), "stopped by ops", 1.0)
    work = work_in(state, NORTH, told=False)
    assert (work.task, work.outcome, work.why) == (Task.FINISH, "aborted", "stopped by ops")
    assert work_in(create(script_of(STUDY)), NORTH, told=False) is None
    require_asked(state)
    require_asked(create(script_of(STUDY)))


def test_who_was_lost_at_the_very_end_hears_that_the_others_went_on_without_it():
    script = replace(script_of(STUDY), silos=FIVE, tensors=((Tensor.COUNTS,),))
    state, _ = start(create(script), 0.0)
    while state.round.phase is not Phase.OPEN:
        for event in wanted(state.round):
            state, _ = advance(state, event, 0.0)
    for event in wanted(state.round)[1:]:
        state, _ = advance(state, event, 0.0)
    state, _ = advance(state, Passed(), 1e6)
    assert state.life is Life.FINISHED
    work = work_in(state, FIVE[0], told=False)
    assert (work.outcome, work.why) == (
        "finished",
        "all rounds are committed; the last round went on without east: no open from east within 600 s",
    )
    assert work_in(state, FIVE[1], told=False).why == "all rounds are committed"


@pytest.mark.parametrize("phase", SPARING)
def test_who_was_lost_is_asked_for_nothing_and_given_nothing(phase):
    state = study_in(phase)
    round_, _ = step(reach(phase, offer(silos=FIVE)), Restarted("south", "new"), 0.0)
    assert work_in(replace(state, round=round_), "south", told=False) is None
    for one in PARTS.get(phase, ()):
        with pytest.raises(WrongPhaseError, match="south was set aside in this attempt"):
            fetch(round_, "south", round_.tensor, one.kind, one.silo)
    with pytest.raises(WrongPhaseError, match="south was set aside in this attempt"):
        check_upload(round_, STUDY, upload(round_.place, "south", Tensor.HEADS).header)


def test_participants_fetch_each_other_s_shares_and_not_those_of_the_lost():
    exchange = reach(Phase.EXCHANGE, offer(silos=FIVE))
    for event in wanted(exchange)[:4]:
        exchange, _ = step(exchange, event, 0.0)
    exchange, _ = step(exchange, Restarted("north", "new"), 0.0)
    round_ = reach(Phase.GATHER, exchange)
    state = replace(study_in(Phase.GATHER), round=round_)
    work = work_in(replace(state, silos=create(replace(script_of(STUDY), silos=FIVE)).silos), "west", told=False)
    others = ("east", "polar", "south", "west")
    assert (work.participants, work.parts, len(work.roster)) == (others, (), 5)
    for at in (
        round_,
        reach(Phase.OPEN, round_),
        reach(Phase.GATHER, round_, cursor=1),
        reach(Phase.OPEN, round_, cursor=1),
    ):
        assert check_fetch(at, "west", None, Note.SHARES, others) == {one: ("note-shares", one) for one in others}
        with pytest.raises(WrongPhaseError, match="there is no shares of north for west to fetch"):
            fetch(at, "west", None, Note.SHARES, "north")


def test_who_adds_again_fetches_every_upload_of_the_sum_as_it_was_signed():
    state = study_in(Phase.RECOUNT)
    work = work_in(state, NORTH, told=False)
    assert [(one.part.silo, one.signature) for one in work.uploads] == [(s, f"{s}'s".encode()) for s in STUDY.silos]
    assert (work.participants, work.survivors, work.parts) == (STUDY.silos, STUDY.silos, ())
    for silo in STUDY.silos:
        assert fetch(state.round, NORTH, Tensor.HEADS, "ckks", silo) == ("heads", silo)
    for tensor, kind, silo in ((Tensor.ENCODER, "ckks", SOUTH), (Tensor.HEADS, "ring32", SOUTH)):
        with pytest.raises(WrongPhaseError, match="to fetch"):
            fetch(state.round, NORTH, tensor, kind, silo)
    with pytest.raises(WrongPhaseError, match="to fetch"):
        fetch(reach(Phase.OPEN), NORTH, Tensor.HEADS, "ckks", SOUTH)


def test_the_proof_of_a_spoilt_sum_comes_with_the_next_offer_alone():
    proof = Spoilt(1, Tensor.HEADS, STUDY.silos, SHA, "", (Signature(NORTH, b"s"),), (b"pem",))
    for phase, handed in ((Phase.OFFER, proof), (Phase.GREET, None)):
        state = study_in(phase)
        assert work_in(replace(state, round=replace(state.round, spoilt=proof)), NORTH, told=False).spoilt == handed


def test_a_reveal_that_came_before_the_loss_can_be_fetched():
    round_ = reach(Phase.REVEAL, offer(silos=FIVE))
    for event in wanted(round_)[:3]:
        round_, _ = step(round_, event, 0.0)
    round_, _ = step(round_, Restarted("east", "new"), 0.0)
    round_ = reach(Phase.OPEN, round_)
    assert fetch(round_, "west", Tensor.HEADS, Note.REVEAL, "east") == ("note-reveal-heads", "east")


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in OVER])
@pytest.mark.parametrize("kind", ["sum", *Note, "other"])
@pytest.mark.parametrize("of_silo", ["", *STUDY.silos])
def test_what_may_be_fetched_when(phase, kind, of_silo):
    round_ = reach(phase)
    if (kind, of_silo) in {(one.kind, one.silo) for one in (*PARTS.get(phase, ()), *BY_OWNER.get(phase, ()))}:
        slot, file = SLOTS[kind]
        assert fetch(round_, NORTH, round_.tensor, kind, of_silo) == (slot, file or of_silo)
        with pytest.raises(WrongPhaseError, match="elsewhere is not in the roster"):
            fetch(round_, "elsewhere", round_.tensor, kind, of_silo)
    elif phase in (Phase.OFFER, Phase.WAIT):
        with pytest.raises(WrongPhaseError, match="north is not in the roster"):
            fetch(round_, NORTH, round_.tensor, kind, of_silo)
    else:
        of = of_silo or "the coordinator"
        with pytest.raises(
            WrongPhaseError, match=f"in the phase {phase} there is no {kind} of {of} for north to fetch"
        ):
            fetch(round_, NORTH, round_.tensor, kind, of_silo)


def test_several_are_fetched_at_once_or_none():
    round_ = reach(Phase.OPEN)
    found = check_fetch(round_, NORTH, Tensor.HEADS, Note.REVEAL, STUDY.silos)
    assert found == {silo: ("note-reveal-heads", silo) for silo in STUDY.silos}
    with pytest.raises(WrongPhaseError, match="there is no reveal of elsewhere for north to fetch"):
        check_fetch(round_, NORTH, Tensor.HEADS, Note.REVEAL, [*STUDY.silos, "elsewhere"])


@pytest.mark.parametrize(("kind", "of_silo"), [("sum", ""), (Note.REVEAL, SOUTH)])
@pytest.mark.parametrize("tensor", [Tensor.ENCODER, None])
def test_what_belongs_to_another_tensor_is_not_there(kind, of_silo, tensor):
    with pytest.raises(WrongPhaseError):
        fetch(reach(Phase.OPEN), NORTH, tensor, kind, of_silo)


def note(kind, silo, size=100):
    tensor = Tensor.HEADS if kind is Note.REVEAL else None
    return UploadHeader(Place("5" * 64, 1, 1), kind, tensor, silo, 0, size, SHA)


ACTED = {Phase.DEAL: Note.KEYS, Phase.SHARE: Note.MODEL, Phase.SOLVE: Note.HEADS}
SEALED_BY_ALL = {Phase.GREET: Note.GREETING, Phase.EXCHANGE: Note.SHARES, Phase.REVEAL: Note.REVEAL}


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in OVER])
@pytest.mark.parametrize("kind", Note)
def test_a_note_is_taken_from_whom_its_phase_asks_alone(phase, kind):
    round_ = reach(phase)
    for silo in STUDY.silos:
        asked = kind is SEALED_BY_ALL.get(phase) or (kind is ACTED.get(phase) and silo == round_.actor)
        if asked:
            check_upload(round_, STUDY, note(kind, silo))
        else:
            with pytest.raises(WrongPhaseError, match=r"waits for no such note|is not in the roster"):
                check_upload(round_, STUDY, note(kind, silo))


def test_a_reveal_of_another_tensor_is_not_taken():
    with pytest.raises(WrongPhaseError, match="the phase reveal waits for no such note from north"):
        check_upload(reach(Phase.REVEAL), STUDY, replace(note(Note.REVEAL, NORTH), tensor=Tensor.ENCODER))


def test_a_note_is_not_taken_twice():
    round_, _ = step(reach(Phase.GREET), upload(Place("5" * 64, 1, 1), NORTH, Note.GREETING), 0.0)
    with pytest.raises(WrongPhaseError, match="the phase greet waits for no such note from north"):
        check_upload(round_, STUDY, note(Note.GREETING, NORTH, 101))


@pytest.mark.parametrize("phase", [*ACTED, *SEALED_BY_ALL])
def test_a_note_has_a_bound(phase):
    round_ = reach(phase)
    header = wanted(round_)[0].header
    kind, silo = Note(header.kind), header.silo
    limit = note_limit(STUDY, 1, kind)
    check_upload(round_, STUDY, note(kind, silo, limit))
    with pytest.raises(ValueError, match=f"has {limit + 1} bytes, but at most {limit} are relayed"):
        check_upload(round_, STUDY, note(kind, silo, limit + 1))


def header_of(tensor, study=STUDY, **changes):
    kind = plan(study).ring(tensor)
    values = sealed_values(plan(study).release(1, tensor).values, 3)
    size = ring_of(kind).content_size(values)
    return replace(UploadHeader(Place("5" * 64, 1, 1), kind, tensor, NORTH, values, size, SHA), **changes)


def test_a_tensor_has_the_size_that_the_study_implies():
    round_, header = reach(Phase.GATHER), header_of(Tensor.HEADS)
    check_upload(round_, STUDY, header)
    sentence = f"heads of this study has {header.values} values in {header.size} bytes of ckks"
    wrong = {
        "values": plan(STUDY).release(1, "heads").values,
        "size": header.size - 8,
        "kind": "ring32",
    }
    for field, value in wrong.items():
        with pytest.raises(ValueError, match=sentence):
            check_upload(round_, STUDY, replace(header, **{field: value}))
    for phase in (Phase.SHARE, Phase.CATCH_UP, Phase.EXCHANGE, Phase.SIGN, Phase.OPEN):
        with pytest.raises(WrongPhaseError, match=f"the phase {phase} does not gather heads"):
            check_upload(reach(phase), STUDY, header)
    with pytest.raises(WrongPhaseError, match="elsewhere is not in the roster"):
        check_upload(round_, STUDY, replace(header, silo="elsewhere"))


@pytest.mark.parametrize("sealing", ["ring32", "ring64", "ckks"])
def test_the_encoder_is_sealed_as_the_study_says(sealing):
    study = tiny_study(encoder={"sealing": sealing})
    round_ = reach(Phase.GATHER, cursor=1)
    check_upload(round_, study, header_of(Tensor.ENCODER, study))
    for other in {"ring32", "ring64", "ckks"} - {sealing}:
        with pytest.raises(ValueError, match=f"bytes of {sealing}, but the header announces .* bytes of {other}"):
            check_upload(round_, study, header_of(Tensor.ENCODER, tiny_study(encoder={"sealing": other})))


def test_who_has_acted_is_asked_for_nothing_more():
    state = study_in(Phase.GATHER)
    place = state.round.place
    state, _ = advance(state, upload(place, NORTH, Tensor.HEADS), 1.0)
    assert [work_in(state, silo, told=False) is None for silo in STUDY.silos] == [True, False, False]
    state = study_in(Phase.OPEN)
    state, _ = advance(state, confirm(place, SOUTH, Task.OPEN, Tensor.HEADS), 1.0)
    assert [work_in(state, silo, told=False) is None for silo in STUDY.silos] == [False, True, False]


EIGHT = tuple(f"silo-{number}" for number in range(8))


@pytest.mark.parametrize(("colluders", "sparse"), [(1, True), (2, False)])
def test_notes_are_cut_for_neighbours_on_a_circle_and_for_all_elsewhere(monkeypatch, colluders, sparse):
    monkeypatch.setattr(circle, "ALL_UP_TO", 4)
    begun = offer(silos=EIGHT, min_silos=7, colluders=colluders)
    assert not begun.circle.sparse, "there is no roster yet"
    taking, checking = reach(Phase.TAKE, begun), reach(Phase.CHECK, begun)
    assert taking.circle.sparse is sparse
    tensors = list(map(str, taking.tensors))
    for number, owner in enumerate(EIGHT):
        near = [one for one in EIGHT if not sparse or one != EIGHT[(number + 4) % 8]]
        later = [one for one in near if one > owner]
        assert forms_of(taking, Note.GREETING, [owner]) == {owner: letter_form(later)}
        assert forms_of(checking, Note.SHARES, [owner]) == {owner: Layout.of(tensors, near).form}
    assert list(forms_of(checking, Note.SHARES, EIGHT[::-1])) == list(EIGHT[::-1])
    for silo in EIGHT:
        assert list(check_fetch(taking, silo, None, Note.GREETING, EIGHT)) == list(EIGHT)
        assert list(check_fetch(checking, silo, None, Note.SHARES, EIGHT)) == list(EIGHT)


def test_on_a_circle_a_shares_note_is_signed_for_its_holders(monkeypatch):
    monkeypatch.setattr(circle, "ALL_UP_TO", 4)
    study = tiny_study(silos=list(EIGHT), min_silos=7, privacy={"colluders": 1})
    round_ = reach(Phase.EXCHANGE, offer(silos=EIGHT, min_silos=7, colluders=1))
    header = replace(note(Note.SHARES, EIGHT[0]), place=round_.place)
    layout = Layout.of(map(str, round_.tensors), round_.circle.holders(EIGHT[0]))
    shares = unreadable(layout, lambda _: b"signature")
    own = ((one.silo, one.certificate_pem, one.public_key, one.kem_key, one.signature) for one in round_.members)
    attempt = AttemptRef(round_.place.study, roster_digest(round_.place.study, own), 1, 1)
    message = to_sign(attempt, EIGHT[0], list(map(str, round_.tensors)), 3, shares[: layout.signed])
    assert signed_note(round_, study, header, shares) == (message, b"signature")
    for_all = Layout.of(map(str, round_.tensors), EIGHT)
    with pytest.raises(RecoveryRefused, match="cut or of another version"):
        signed_note(round_, study, header, unreadable(for_all, lambda _: b"signature"))


def test_on_a_circle_who_holds_no_share_of_a_note_and_complains_has_lied(monkeypatch):
    monkeypatch.setattr(circle, "ALL_UP_TO", 4)
    round_ = reach(Phase.CHECK, offer(silos=EIGHT, min_silos=7, colluders=1))
    shares = unreadable(Layout.of(map(str, round_.tensors), round_.circle.holders(EIGHT[0])), lambda _: b"signature")
    said = Confirm(
        round_.place,
        Task.CHECK,
        dispute="recovery",
        explanation="x",
        culprit=EIGHT[0],
        evidence=bytes(64),
        signature=b"s",
    )
    assert liar_of(round_, EIGHT[4], said, shares) == EIGHT[4]
