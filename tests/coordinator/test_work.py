"""What each phase asks of whom, and what may be sent and fetched in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.core.events import Stopped
from coordinator.core.round import OVER, OutOfTurnError, Phase
from coordinator.core.study import Life, abort, advance, create, pause, start
from coordinator.engine import script_of
from coordinator.spool import SUM
from coordinator.work import MAX_MODEL, MAX_NOTE, check_fetch, check_upload, note_limit, work_in
from policies import shapes
from protos.messages import Note, Place, Task, Tensor, UploadHeader
from support.rounds import SHA, TOTAL, accept, confirm, reach, refuse, upload, wanted
from support.studies import tiny_study

STUDY = tiny_study(min_silos=2)
NORTH, SOUTH, WEST = STUDY.silos
ASKED = {
    Phase.OFFER: (Task.DECIDE, STUDY.silos),
    Phase.WAIT: (None, ()),
    Phase.DEAL: (Task.DEAL, (WEST,)),
    Phase.TAKE: (Task.TAKE, STUDY.silos),
    Phase.SHARE: (Task.SHARE, (NORTH,)),
    Phase.CATCH_UP: (Task.CATCH_UP, (WEST,)),
    Phase.GATHER: (Task.CONTRIBUTE, STUDY.silos),
    Phase.ADD: (None, ()),
    Phase.OPEN: (Task.OPEN, STUDY.silos),
    Phase.SOLVE: (Task.SOLVE, (WEST,)),
    Phase.ADOPT: (Task.ADOPT, STUDY.silos),
}
FETCHED = {
    Phase.TAKE: ("keys", "note-keys", WEST),
    Phase.CATCH_UP: ("model", "note-model", NORTH),
    Phase.OPEN: ("sum", "heads", SUM),
    Phase.ADOPT: ("heads", "note-heads", WEST),
}


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
        if work and phase in FETCHED:
            assert (work.size, work.sha256) == ((TOTAL.size, SHA) if phase is Phase.OPEN else (100, SHA))
        if work and phase in (Phase.DEAL, Phase.TAKE, Phase.SOLVE, Phase.ADOPT):
            assert work.actor == WEST
        if work and phase in (Phase.SHARE, Phase.CATCH_UP):
            assert (work.actor, work.tensor) == (NORTH, None)
        assert work is None or (work.place, work.roster) == (state.round.place, state.round.members)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in OVER])
def test_nobody_is_asked_in_a_pause(phase):
    state, _ = pause(study_in(phase), "paused by ops", 1.0)
    assert [work_in(state, silo, told=False) for silo in STUDY.silos] == [None] * 3


def test_who_has_left_hears_it_even_in_a_pause_and_once():
    state, _ = start(create(script_of(STUDY)), 0.0)
    place = state.round.place
    for event in (refuse(place, WEST), accept(place, NORTH), accept(place, SOUTH), Stopped("x")):
        state, _ = advance(state, event, 1.0)
    state, _ = pause(state, "paused by ops", 1.0)
    work = work_in(state, WEST, told=False)
    assert (work.task, work.outcome, work.why) == (Task.FINISH, "left", "budget_spent: policy.budget is spent")
    assert work_in(state, WEST, told=True) is None


def test_the_end_is_told_to_all_with_its_reason():
    state, _ = abort(study_in(Phase.GATHER), "stopped by ops", 1.0)
    work = work_in(state, NORTH, told=False)
    assert (work.task, work.outcome, work.why) == (Task.FINISH, "aborted", "stopped by ops")
    assert work_in(create(script_of(STUDY)), NORTH, told=False) is None


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in OVER])
@pytest.mark.parametrize("kind", ["sum", *Note, "other"])
def test_what_may_be_fetched_when(phase, kind):
    round_ = reach(phase)
    tensor = Tensor.HEADS if kind == "sum" else None
    wanted_kind, slot, file = FETCHED.get(phase, ("", "", ""))
    if kind == wanted_kind:
        assert check_fetch(round_, NORTH, tensor, kind) == (slot, file)
        with pytest.raises(OutOfTurnError, match=f"there is no {kind} for elsewhere to fetch"):
            check_fetch(round_, "elsewhere", tensor, kind)
    else:
        with pytest.raises(OutOfTurnError, match=f"in the phase {phase} there is no {kind} for north to fetch"):
            check_fetch(round_, NORTH, tensor, kind)


def test_the_sum_of_another_tensor_is_not_there():
    with pytest.raises(OutOfTurnError):
        check_fetch(reach(Phase.OPEN), NORTH, Tensor.ENCODER, "sum")


def note(kind, silo, size=100):
    return UploadHeader(Place("5" * 64, 1, 1), kind, None, silo, 0, size, SHA)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in OVER])
@pytest.mark.parametrize("kind", Note)
def test_a_note_is_taken_from_the_actor_in_its_phase_alone(phase, kind):
    round_ = reach(phase)
    due = {Phase.DEAL: Note.KEYS, Phase.SHARE: Note.MODEL, Phase.SOLVE: Note.HEADS}.get(phase)
    for silo in STUDY.silos:
        if kind is due and silo == round_.actor:
            check_upload(round_, STUDY, note(kind, silo))
        else:
            with pytest.raises(OutOfTurnError, match=r"waits for no such note|is not in the roster"):
                check_upload(round_, STUDY, note(kind, silo))


@pytest.mark.parametrize("phase", [Phase.DEAL, Phase.SHARE, Phase.SOLVE])
def test_a_note_has_a_bound(phase):
    round_ = reach(phase)
    (event,) = wanted(round_)
    kind = event.header.kind
    limit = note_limit(STUDY, kind)
    check_upload(round_, STUDY, note(kind, round_.actor, limit))
    with pytest.raises(ValueError, match=f"has {limit + 1} bytes, at most {limit} are relayed"):
        check_upload(round_, STUDY, note(kind, round_.actor, limit + 1))


def test_the_model_s_bound_grows_with_the_study():
    assert (note_limit(STUDY, Note.KEYS), note_limit(STUDY, Note.HEADS)) == (MAX_NOTE, MAX_NOTE)
    large = tiny_study(model={"hidden": [4096, 4096], "representation": 256})
    heads = 2 * (256 + 1)
    assert note_limit(large, Note.MODEL) == MAX_MODEL + 8 * (shapes.encoder_values(large) + heads)
    assert note_limit(large, Note.MODEL) - note_limit(STUDY, Note.MODEL) > 8 * 4096 * 4096


def test_a_tensor_has_the_size_that_the_study_implies():
    round_ = reach(Phase.GATHER)
    values = shapes.values(STUDY, 1, "heads")
    header = UploadHeader(round_.place, "ckks", Tensor.HEADS, NORTH, values, 65536, SHA)
    check_upload(round_, STUDY, header)
    for wrong in (replace(header, values=values + 1), replace(header, size=65528)):
        with pytest.raises(ValueError, match=f"heads of this study has {values} values in 65536 bytes"):
            check_upload(round_, STUDY, wrong)
    for phase in (Phase.SHARE, Phase.CATCH_UP, Phase.OPEN):
        with pytest.raises(OutOfTurnError, match=f"the phase {phase} does not gather heads"):
            check_upload(reach(phase), STUDY, header)
    with pytest.raises(OutOfTurnError, match="elsewhere is not in the roster"):
        check_upload(round_, STUDY, replace(header, silo="elsewhere"))


def test_who_has_acted_is_asked_for_nothing_more():
    state = study_in(Phase.GATHER)
    place = state.round.place
    state, _ = advance(state, upload(place, NORTH, Tensor.HEADS), 1.0)
    assert [work_in(state, silo, told=False) is None for silo in STUDY.silos] == [True, False, False]
    state = study_in(Phase.OPEN)
    state, _ = advance(state, confirm(place, SOUTH, Task.OPEN, Tensor.HEADS), 1.0)
    assert [work_in(state, silo, told=False) is None for silo in STUDY.silos] == [False, True, False]
