from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.canonical import canonical
from crypto.errors import SealError

PARTS = st.lists(st.one_of(st.binary(max_size=8), st.text(max_size=4), st.integers(0, 2**64 - 1)), max_size=4)


@given(PARTS, PARTS)
def test_different_parts_never_have_the_same_bytes(left, right):
    assert (canonical("d", *left) == canonical("d", *right)) == (left == right)


@pytest.mark.parametrize(
    ("left", "right"), [(("ab", "c"), ("a", "bc")), (("1",), (1,)), ((b"1",), ("1",)), ((), ("",))]
)
def test_boundaries_and_types_count(left, right):
    assert canonical("d", *left) != canonical("d", *right)


def test_the_domain_counts():
    assert canonical("a", "b") != canonical("b", "b")


@pytest.mark.parametrize("number", [-1, 2**64])
def test_an_integer_that_does_not_fit_is_refused(number):
    with pytest.raises(SealError, match="rounds and attempts"):
        canonical("d", number)
