from __future__ import annotations

import random

import numpy as np
import pytest
import tenseal
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crypto import ckks_public
from crypto.ckks_public import DEGREE, FRAME_BYTES, MAX_SUM, MAX_VALUE
from crypto.ckks_secret import SERIALIZED_BYTES, CkksKey
from crypto.errors import FrameError, OpeningRefused, SealError
from crypto.seal_format import read_vector, write_vector

KEY = CkksKey.create()


@settings(deadline=None, max_examples=30)
@given(arrays(np.int64, st.integers(0, 2500), elements=st.integers(-MAX_VALUE, MAX_VALUE)))
def test_what_is_encrypted_opens(values):
    frames = KEY.encrypt(values)
    assert len(frames) == ckks_public.content_size(values.size)
    np.testing.assert_array_equal(KEY.decrypt(frames, values.size), values)


def test_the_largest_sum_opens_exactly():
    largest = np.full(2048, MAX_VALUE)
    largest[::2] *= -1
    frames = KEY.encrypt(largest)
    total = bytearray(frames)
    for _ in range(255):
        ckks_public.add_frames(total, frames)
    np.testing.assert_array_equal(KEY.decrypt(bytes(total), 2048), 256 * largest)
    assert 256 * MAX_VALUE == MAX_SUM
    ckks_public.add_frames(total, frames)
    with pytest.raises(OpeningRefused, match="in range"):
        KEY.decrypt(bytes(total), 2048)


def test_the_error_of_a_sum_of_256_is_far_below_the_margin():
    generator, total, truth = np.random.default_rng(5), None, np.zeros(2048, np.int64)
    for _ in range(256):
        values = generator.integers(-MAX_VALUE, MAX_VALUE, 2048)
        truth += values
        if total is None:
            total = bytearray(KEY.encrypt(values))
        else:
            ckks_public.add_frames(total, KEY.encrypt(values))
    residues = np.frombuffer(total, "<u8").reshape(2, 1, DEGREE)
    opened = tenseal.ckks_vector_from(KEY._context, write_vector(residues)).decrypt()
    assert np.abs(np.array(opened) - truth).max() < ckks_public.MARGIN / 10


def test_the_same_values_never_have_the_same_ciphertext():
    values = np.arange(5)
    assert KEY.encrypt(values) != KEY.encrypt(values)


@pytest.mark.parametrize("value", [MAX_VALUE + 1, -MAX_VALUE - 1, np.iinfo(np.int64).min])
def test_a_value_out_of_range_is_not_encrypted(value):
    with pytest.raises(SealError, match="outside 2\\^30"):
        KEY.encrypt(np.array([0, value]))


@pytest.mark.parametrize("values", [np.zeros((2, 2), np.int64), np.zeros(2), np.zeros(2, np.int32)])
def test_only_vectors_of_int64_are_encrypted(values):
    with pytest.raises(SealError, match="int64"):
        KEY.encrypt(values)


def test_another_key_does_not_open():
    with pytest.raises(OpeningRefused, match="not of integers in range"):
        CkksKey.create().decrypt(KEY.encrypt(np.zeros(3, np.int64)), 3)


def test_values_beyond_the_length_are_refused():
    frames = KEY.encrypt(np.arange(10))
    with pytest.raises(OpeningRefused, match="beyond its length"):
        KEY.decrypt(frames, 5)
    np.testing.assert_array_equal(KEY.decrypt(KEY.encrypt(np.arange(6) % 5), 5), np.arange(5))


def test_a_value_off_the_grid_is_refused():
    half = tenseal.ckks_vector(KEY._context, [0.5] + [0.0] * 2047)
    with pytest.raises(OpeningRefused):
        KEY.decrypt(read_vector(half.serialize()).astype("<u8").tobytes(), 1)


def test_lengths_are_checked():
    frames = KEY.encrypt(np.arange(10))
    for wrong in (b"", frames[:-1], frames * 2):
        with pytest.raises(FrameError, match="another length"):
            KEY.decrypt(wrong, 10)


def test_2000_mutated_frames_give_only_named_errors():
    frames, chance = KEY.encrypt(np.arange(2048)), random.Random(2)  # noqa: S311  # mutations that repeat
    for _ in range(2000):
        out = bytearray(frames)
        kind = chance.randrange(8)
        if kind == 0:
            del out[chance.randrange(len(out)) :]
        elif kind == 1:
            out += chance.randbytes(chance.randrange(1, 9))
        else:
            out[chance.randrange(len(out))] ^= chance.randrange(1, 256)
        with pytest.raises((FrameError, OpeningRefused)):
            KEY.decrypt(bytes(out), 2048)


def test_a_key_survives_its_bytes_and_is_small():
    data = KEY.to_bytes()
    again = CkksKey.from_bytes(data)
    assert len(data) == SERIALIZED_BYTES == 61_440
    assert again.to_bytes() == data
    values = np.arange(-50, 50)
    np.testing.assert_array_equal(again.decrypt(KEY.encrypt(values), 100), values)
    np.testing.assert_array_equal(KEY.decrypt(again.encrypt(values), 100), values)


@pytest.mark.parametrize("change", [lambda d: b"", lambda d: d[:-1], lambda d: d + b"0", lambda d: bytes(len(d))])
def test_what_is_no_key_is_refused(change):
    with pytest.raises(SealError, match="CKKS key"):
        CkksKey.from_bytes(change(KEY.to_bytes()))


def test_an_unreduced_key_is_refused():
    with pytest.raises(SealError, match="no CKKS key"):
        CkksKey.from_bytes(b"\xff" * SERIALIZED_BYTES)


def test_a_key_does_not_print():
    assert repr(KEY) == str(KEY) == "CkksKey(secret)"


def test_tenseal_is_quiet(capfd):
    KEY.decrypt(KEY.encrypt(np.zeros(5000, np.int64)), 5000)
    assert "".join(capfd.readouterr()) == ""
    assert FRAME_BYTES == 65_536
