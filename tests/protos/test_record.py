from dataclasses import dataclass, field
from enum import StrEnum

import pytest
from dacite import DaciteError
from hypothesis import given
from hypothesis import strategies as st

from protos import record
from protos.messages import Member, Place, Tensor
from protos.steps import Task
from silo_agent.core.turns import Done, Stage, Turn


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    blob: bytes
    colour: Colour | None = None


@dataclass(frozen=True)
class Outer:
    inners: tuple[Inner, ...]
    names: frozenset[str] = field(default=frozenset())
    score: float = 0.0
    by_name: dict[str, Inner] = field(default_factory=dict)


inners = st.builds(Inner, st.binary(max_size=5), st.none() | st.sampled_from(Colour))


@given(
    st.builds(
        Outer,
        st.lists(inners, max_size=3).map(tuple),
        st.frozensets(st.text(max_size=3)),
        st.floats(0, 1),
        st.dictionaries(st.text(max_size=3), inners, max_size=2),
    )
)
def test_a_value_survives_unchanged(value):
    text = record.dump(value)
    again = record.load(Outer, text)
    assert again == value
    assert record.dump(again) == text


def test_a_turn_survives_unchanged():
    member = Member("north", b"pem", bytes(32), bytes(1184), b"s")
    turn = Turn(
        ((Tensor.COUNTS,), (Tensor.HEADS, Tensor.ENCODER)),
        committed=0,
        finished=1,
        place=Place("5" * 64, 1, 2),
        roster=(member,),
        keyed=(member,),
        cursor=1,
        stage=Stage.SENT,
        last=Done(Task.CONTRIBUTE, Tensor.ENCODER),
        behind=True,
    )
    assert record.load(Turn, record.dump(turn)) == turn
    assert record.load(Turn, record.dump(Turn(turn.plan))) == Turn(turn.plan)


def test_an_older_record_lacks_fields_that_have_defaults():
    assert record.load(Outer, '{"inners": []}') == Outer(())


@pytest.mark.parametrize("text", ['{"inners": 1}', "{}", '{"inners": [], "other": 1}', '{"inners": [{"blob": 3}]}'])
def test_what_is_no_such_record_is_refused(text):
    with pytest.raises((DaciteError, TypeError)):
        record.load(Outer, text)


def test_a_type_without_a_form_is_refused():
    with pytest.raises(TypeError, match="no JSON form"):
        record.dump(Outer((), score=1j))  # type: ignore[arg-type]  # the fault under test
