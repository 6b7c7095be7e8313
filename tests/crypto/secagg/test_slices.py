"""A note's tree, and its cutting: whoever has the head and one slice needs nothing else, and is shown nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.secagg.dealt.slices import (
    MAX_SIGNATURE,
    Cutting,
    Layout,
    SliceForm,
    Tree,
    closed,
    letter_form,
    root_by,
    signature_in,
)

HOLDERS = tuple(f"silo-{number}" for number in range(7))
LAYOUT = Layout.of(("heads", "encoder", "heads"), HOLDERS)
FORM = LAYOUT.form
NOTE = bytes(number * 31 % 251 for number in range(FORM.note))

pieces = st.integers(1, 40).flatmap(
    lambda count: st.lists(st.binary(max_size=8), min_size=count, max_size=count).map(
        lambda drawn: {f"h{number:02}": piece for number, piece in enumerate(drawn)}
    )
)


def test_the_parts_of_a_note_have_the_sizes_that_the_docs_say():
    assert LAYOUT.tensors == ("encoder", "heads")
    assert LAYOUT.signed == 16 + 32 + 89 + 4 * 32 + 32 + 32
    assert LAYOUT.head == LAYOUT.signed + 73
    assert LAYOUT.slice == 89 + 32 + 4 * 32 + 2 * 32 + LAYOUT.sealed
    assert LAYOUT.sealed == 4 * 33 + 28
    assert LAYOUT.deposit == 6 * 32 + 28
    assert SliceForm(HOLDERS, LAYOUT.head, LAYOUT.slice, 2 * LAYOUT.deposit) == FORM
    assert FORM.note == LAYOUT.head + 7 * LAYOUT.slice + 2 * LAYOUT.deposit
    assert [Layout.of(("t",), HOLDERS[:count]).form.depth for count in (1, 2, 3, 4, 5)] == [0, 1, 2, 2, 3]
    assert FORM.cut(("silo-3", "silo-9")) == LAYOUT.head + LAYOUT.slice + 3 * 32
    assert FORM.among({"silo-4", "silo-1", "other"}) == ("silo-1", "silo-4")
    assert letter_form(HOLDERS) == SliceForm(HOLDERS, 16 + 73, 1088, 0)
    nobody = letter_form(())
    assert (nobody.note, nobody.depth, nobody.cut(("a",))) == (89, 0, 89)
    assert Cutting(bytes(89), nobody).cut(("a",)) == bytes(89)


@given(pieces)
def test_every_slice_leads_to_the_root_in_its_own_place_alone(slices):
    tree, names = Tree(slices), tuple(slices)
    for place, (name, piece) in enumerate(slices.items()):
        path = tree.path(place)
        assert len(path) == letter_form(names).depth
        assert root_by(path, place, name, piece) == tree.root
        assert root_by(path, place, name, piece + b"x") != tree.root
        assert root_by(path, place, name + "x", piece) != tree.root
        assert all(root_by(path, other, name, piece) != tree.root for other in range(len(names)) if other != place)


@given(pieces, st.data())
def test_the_root_stands_for_every_slice_and_for_whose_it_is(slices, data):
    name = data.draw(st.sampled_from(sorted(slices)))
    root = Tree(slices).root
    assert Tree({**slices, name: slices[name] + b"x"}).root != root
    assert Tree({(other + "x" if other == name else other): piece for other, piece in slices.items()}).root != root
    assert Tree({**slices, "h99": b""}).root != root
    assert Tree(slices).root == root


def test_a_place_that_nobody_has_is_no_slice():
    tree = Tree({"a": b"1", "b": b"2", "c": b"3"})
    assert all(root_by(tree.path(3), 3, name, piece) != tree.root for name in ("", "c", "d") for piece in (b"", b"3"))


def test_a_note_is_cut_in_the_rosters_order_for_holders_alone():
    cutting, tree = (
        Cutting(NOTE, FORM),
        Tree({name: NOTE[LAYOUT.head + LAYOUT.slice * place :][: LAYOUT.slice] for place, name in enumerate(HOLDERS)}),
    )
    head = NOTE[: LAYOUT.head]
    assert cutting.cut(()) == cutting.cut(("nobody",)) == head

    def own(place):
        return NOTE[LAYOUT.head + LAYOUT.slice * place :][: LAYOUT.slice] + b"".join(tree.path(place))

    assert cutting.cut(("silo-2",)) == head + own(2)
    for about in (("silo-5", "nobody", "silo-2"), {"silo-2", "silo-5"}):
        assert cutting.cut(about) == head + own(2) + own(5)
        assert len(cutting.cut(about)) == FORM.cut(about)


@pytest.mark.parametrize("length", [0, 1, 70, 71, MAX_SIGNATURE])
def test_a_head_s_signature_has_one_form(length):
    signature = bytes(range(1, length + 1))
    head = closed(NOTE[: LAYOUT.signed], signature)
    assert (len(head), signature_in(head, LAYOUT.signed)) == (LAYOUT.head, signature)
    at = LAYOUT.signed
    for other in (length - 1, length + 1, MAX_SIGNATURE + 1, 255):
        if 0 <= other <= 255:
            found = signature_in(head[:at] + bytes([other]) + head[at + 1 :], at)
            assert found != signature or not length
    if length < MAX_SIGNATURE:
        assert signature_in(head[:-1] + b"\1", at) == b""
