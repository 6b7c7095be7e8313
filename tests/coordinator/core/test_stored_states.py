"""`dump` and `load` are inverse for every phase of every round; what is not a state is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dacite import DaciteError

from coordinator.core.round import Phase
from coordinator.core.study import Life, Progress, Script, abort, advance, create, start
from protos import record
from protos.messages import Tensor
from support.rounds import LIMITS, STUDY, accept, refuse, wanted

PLAN = ((Tensor.COUNTS,), (Tensor.HEADS, Tensor.ENCODER), (Tensor.HEADS, Tensor.METRICS))
SCRIPT = Script(STUDY, "tiny", ("north", "south", "west"), 2, PLAN, LIMITS, 3)


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


OLD = json.loads((Path(__file__).parent / "states-0.1.json").read_text())
"""States as version 0.1 stored them: three of four silos in every round, keys dealt in round 0."""


@pytest.mark.parametrize("says", OLD)
def test_a_state_of_version_0_1_is_loaded(says):
    state = record.load(Progress, json.dumps(OLD[says]))
    stored = json.loads(record.dump(state))
    assert {field: stored[field] for field in OLD[says] if field not in ("silos", "round")} == {
        field: value for field, value in OLD[says].items() if field not in ("silos", "round")
    }
    assert state.away == ()
    if state.round is not None:
        assert (state.round.expected, state.round.absent, state.round.behind) == (None, frozenset(), ())


@pytest.mark.parametrize("says", [says for says in OLD if OLD[says]["life"] == "running"])
def test_a_study_of_version_0_1_goes_on_to_its_end(says):
    """Its next offer takes for expected what most hold, and from the next commit on it knows."""
    state = record.load(Progress, json.dumps(OLD[says]))
    seen = []
    while state.life is Life.RUNNING:
        round_ = state.round
        # Who acts after the upgrade agrees with those who had acted before it.
        model = round_.model if round_.done else f"model of round {round_.place.round}"
        for event in wanted(round_, model):
            state, _ = advance(state, event, 4.0)
        seen.append(state.round.phase)
    assert state.life is Life.FINISHED
    assert Phase.SHARE not in seen, "nobody is behind who was not"
    assert state.round.expected


def test_types_survive_too():
    state = next(s for s in life() if s.round is not None and s.round.done)
    loaded = record.load(Progress, record.dump(state))
    assert isinstance(loaded.round.done, frozenset)
    assert isinstance(loaded.round.tensors[0], Tensor)
    assert isinstance(loaded.round.members[0].public_key, bytes)
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
        record._plain(set())
