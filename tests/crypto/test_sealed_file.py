import io

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from crypto import sealed_file
from crypto.canonical import canonical
from crypto.entropy import SystemEntropy
from crypto.errors import SealError

KEY, OTHER = bytes(range(32)), bytes(32)


def sealed(content, name="rows", piece=7, key=KEY):
    return list(sealed_file.seal(key, name, [content], SystemEntropy(), piece=piece))


def opened(pieces, name="rows", piece=7, key=KEY):
    return b"".join(sealed_file.opened(key, name, io.BytesIO(b"".join(pieces)), piece=piece))


@given(st.lists(st.binary(max_size=30), max_size=4), st.integers(1, 70))
def test_what_is_sealed_opens_in_pieces_of_any_size_whatever_the_parts_it_came_in(parts, piece):
    content = b"".join(parts)
    pieces = list(sealed_file.seal(KEY, "rows", parts, SystemEntropy(), piece=piece))
    assert opened(pieces, piece=piece) == content
    assert len(pieces) == max(1, -(-len(content) // piece))


def test_neither_another_key_nor_another_name_opens_it():
    pieces = sealed(b"the rows of a ward")
    for given_key, name in ((OTHER, "rows"), (KEY, "other rows")):
        with pytest.raises(SealError, match="sealed by another key, or was changed"):
            opened(pieces, name, key=given_key)


def test_pieces_that_are_left_out_moved_repeated_or_taken_from_elsewhere_are_noticed():
    first, second, last = sealed(b"0123456789abcdefghi")
    foreign = sealed(b"ABCDEFGHIJKLMNOPQRS")
    assert opened([first, second, last]) == b"0123456789abcdefghi"
    faulty = (
        [first, second],
        [second, last],
        [second, first, last],
        [first, first, second, last],
        [first, foreign[1][:-1] + b"\0", last],
        [first[:-1], second, last],
        [],
    )
    for pieces in faulty:
        with pytest.raises(SealError):
            opened(pieces)


@given(st.data())
def test_any_flipped_bit_is_noticed(data):
    blob = bytearray(b"".join(sealed(b"0123456789abcdef")))
    blob[data.draw(st.integers(0, len(blob) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(SealError):
        opened([bytes(blob)])


def test_the_same_content_is_never_sealed_alike():
    assert sealed(b"same") != sealed(b"same")


def test_a_file_that_was_sealed_by_hand_opens():
    """As other versions have sealed it: a nonce of twelve bytes before each piece of sixteen mebibytes."""
    nonces, parts = (b"1" * 12, b"2" * 12), (bytes(16 << 20), b"end")
    sealed = b"".join(
        nonce + AESGCM(KEY).encrypt(nonce, part, canonical("sealed file", "rows", place, place == 1))
        for place, (nonce, part) in enumerate(zip(nonces, parts, strict=True))
    )
    assert list(sealed_file.opened(KEY, "rows", io.BytesIO(sealed))) == list(parts)
    again = [len(piece) for piece in sealed_file.seal(KEY, "rows", parts, SystemEntropy())]
    assert again == [(16 << 20) + 28, 3 + 28]
