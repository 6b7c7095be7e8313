"""`dump` and `load` are inverse for every phase of every round; what is not a state is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from dacite import DaciteError

from coordinator.core.events import Restarted
from coordinator.core.state import SPARING, Phase
from coordinator.core.study import Life, Progress, Script, abort, advance, create, start
from protos import record
from protos.messages import Tensor
from support.rounds import LIMITS, STUDY, accept, refuse, wanted

PLAN = ((Tensor.COUNTS,), (Tensor.HEADS, Tensor.ENCODER), (Tensor.HEADS, Tensor.METRICS))
SCRIPT = Script(STUDY, "tiny", ("north", "south", "west"), 2, 0, True, PLAN, LIMITS, 3)


def life():
    """Every state of an undisturbed study in which one silo refuses, and of an aborted one."""
    state = create(SCRIPT)
    yield state
    state, _ = start(state, 1.5)
    yield state
    yield abort(state, "stopped", 2.5)[0]
    place = state.round.place
    for event in (refuse(place, "west"), accept(place, "south"), accept(place, "north", key=b"\xff")):
        state, _ = advance(state, event, 2.5)
        yield state
    while state.life is Life.RUNNING:
        for event in wanted(state.round):
            state, _ = advance(state, event, 3.25)
            yield state


def test_every_state_survives():
    states = list(life())
    assert {s.life for s in states} == {Life.CREATED, Life.RUNNING, Life.FINISHED, Life.ABORTED}
    for state in states:
        loaded = record.load(Progress, record.dump(state))
        assert loaded == state
        assert record.dump(loaded) == record.dump(state)


@pytest.mark.parametrize("phase", SPARING)
def test_a_state_survives_in_which_somebody_was_lost(phase):
    script = replace(SCRIPT, silos=("east", "north", "polar", "south", "west"))
    state, _ = start(create(script), 1.5)
    while state.round.place.round == 0 or state.round.phase is not phase:
        state, _ = advance(state, wanted(state.round)[0], 2.5)
    state, _ = advance(state, Restarted("south", "new"), 2.5)
    assert state.round.lost == {"south"}
    assert record.load(Progress, record.dump(state)) == state


def test_every_phase_that_an_undisturbed_study_has_is_among_them():
    phases = {state.round.phase for state in life() if state.round is not None}
    disturbed = {Phase.WAIT, Phase.VOID, Phase.SHARE, Phase.CATCH_UP, Phase.JUDGE, Phase.EXAMINE, Phase.RECOUNT}
    assert phases == set(Phase) - disturbed


def test_types_survive_too():
    state = next(s for s in life() if s.round is not None and s.round.done)
    loaded = record.load(Progress, record.dump(state))
    assert isinstance(loaded.round.done, frozenset)
    assert isinstance(loaded.round.tensors[0], Tensor)
    assert isinstance(loaded.round.members[0].kem_key, bytes)
    assert isinstance(loaded.life, Life)


def test_the_text_is_canonical():
    state = list(life())[-1]
    text = record.dump(state)
    assert text == json.dumps(json.loads(text), sort_keys=True)


@pytest.mark.parametrize(
    "mend",
    [
        lambda content: content.update(extra=1),
        lambda content: content.pop("silos"),
        lambda content: content["script"].update(min_silos="two"),
        lambda content: content.update(life="asleep"),
        lambda content: content["round"]["place"].update(round=-1),
    ],
)
def test_what_is_no_state_is_refused(mend):
    content = json.loads(record.dump(list(life())[4]))
    mend(content)
    with pytest.raises((DaciteError, ValueError)):
        record.load(Progress, json.dumps(content))


def test_what_has_no_json_form_is_refused():
    with pytest.raises(TypeError, match="set has no JSON form"):
        record.plain(set())
