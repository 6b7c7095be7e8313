"""A change makes the one document of the other, whatever both hold, and has nothing of what they share."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protos import record
from protos.changes import applied, difference


@dataclass(frozen=True)
class Inner:
    name: str
    blob: bytes = b""


@dataclass(frozen=True)
class Outer:
    inner: Inner | None
    items: tuple[Inner, ...]
    names: frozenset[str]
    score: float = 0.0
    nested: tuple[tuple[str, ...], ...] = ()


TEXTS = st.sampled_from("abc")
INNERS = st.builds(Inner, TEXTS, st.sampled_from([b"", b"\xff"]))
OUTERS = st.builds(
    Outer,
    st.none() | INNERS,
    st.lists(INNERS, max_size=5).map(tuple),
    st.frozensets(TEXTS),
    st.sampled_from([0.0, 0.1, 1e300]),
    st.lists(st.lists(TEXTS, max_size=2).map(tuple), max_size=3).map(tuple),
)


def stored(change):
    """As it is read again."""
    return json.loads(json.dumps(change))


def document(value):
    return json.loads(record.dump(value))


@given(OUTERS, OUTERS)
def test_a_change_makes_the_other_document(before, after):
    old = document(before)
    assert applied(old, stored(difference(before, after))) == document(after)
    assert old == document(before), "the document before stays as it is"
    assert difference(before, after) == {"fields": {}} or before != after


ITEMS = tuple(Inner(name) for name in "bdfh")
BEFORE = Outer(Inner("a"), ITEMS, frozenset("bdfh"))


@pytest.mark.parametrize(
    ("after", "fields"),
    [
        ({}, {}),
        ({"score": 2.5}, {"score": {"value": 2.5}}),
        ({"inner": None}, {"inner": {"value": None}}),
        ({"inner": Inner("a", b"\xff")}, {"inner": {"fields": {"blob": {"value": "/w=="}}}}),
        (
            {"items": (*ITEMS, Inner("i"))},
            {"items": {"at": 4, "without": 0, "with": [{"name": "i", "blob": ""}]}},
        ),
        ({"items": ITEMS[:1] + ITEMS[2:]}, {"items": {"at": 1, "without": 1, "with": []}}),
        ({"items": ()}, {"items": {"at": 0, "without": 4, "with": []}}),
        ({"names": frozenset("bcdfh")}, {"names": {"at": 1, "without": 0, "with": ["c"]}}),
        ({"nested": (("a",),)}, {"nested": {"at": 0, "without": 0, "with": [["a"]]}}),
    ],
)
def test_what_both_have_is_in_no_change(after, fields):
    assert difference(BEFORE, replace(BEFORE, **after)) == {"fields": fields}


def test_an_item_between_equal_ones_is_counted_once():
    """What both begin with and what both end with must not overlap."""
    one, two = replace(BEFORE, items=ITEMS[:1] * 2), replace(BEFORE, items=ITEMS[:1] * 3)
    for before, after in ((one, two), (two, one)):
        assert applied(document(before), difference(before, after)) == document(after)


@pytest.mark.parametrize(
    "change",
    [
        {"fields": {"other": {"value": 1}}},
        {"fields": {"score": {"fields": {}}}},
        {"fields": {"score": {"at": 0, "without": 0, "with": []}}},
        {"fields": {"items": {"at": 4, "without": 1, "with": []}}},
        {"at": 0, "without": 0, "with": []},
        {},
    ],
)
def test_a_change_of_another_record_does_not_fit(change):
    with pytest.raises(ValueError, match="does not fit"):
        applied(document(BEFORE), change)
