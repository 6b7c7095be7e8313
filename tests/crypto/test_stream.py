from __future__ import annotations

import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crypto.canonical import canonical
from crypto.errors import SealError
from crypto.hkdf import derive
from crypto.rings.ckks_public import PRIME
from crypto.stream import KeyStream

KEY = bytes(range(32))


def test_it_is_aes_256_in_counter_mode_under_a_derived_key():
    cipher = Cipher(algorithms.AES(derive(KEY, canonical("stream", b"label"))), modes.CTR(bytes(16)))
    assert KeyStream(KEY, b"label").bytes(100) == cipher.encryptor().update(bytes(100))


def test_hkdf_agrees_with_the_first_vector_of_rfc_5869():
    derived = derive(b"\x0b" * 22, bytes.fromhex("f0f1f2f3f4f5f6f7f8f9"), salt=bytes(range(13)))
    assert derived.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"


@given(st.lists(st.integers(0, 300), max_size=6))
def test_it_is_one_stream_however_it_is_cut(sizes):
    stream = KeyStream(KEY, b"label")
    assert b"".join(stream.bytes(n) for n in sizes) == KeyStream(KEY, b"label").bytes(sum(sizes))


@pytest.mark.parametrize("dtype", ["u1", "<u4", "<u8"])
@pytest.mark.parametrize("size", [0, 1, 70_000, 200_001])
def test_arrays_are_filled_with_the_same_stream(dtype, size):
    stream, out = KeyStream(KEY, b"label"), np.ones(size, dtype)
    head = stream.bytes(5)
    stream.fill(out)
    assert head + out.tobytes() + stream.bytes(5) == KeyStream(KEY, b"label").bytes(10 + out.nbytes)


def test_words_are_little_endian():
    stream = KeyStream(KEY, b"label").bytes(28)
    words = KeyStream(KEY, b"label")
    narrow, wide = words.words32(3), words.words64(2)
    assert narrow.astype("<u4").tobytes() + wide.astype("<u8").tobytes() == stream
    assert (narrow.dtype, wide.dtype) == (np.uint32, np.uint64)


def test_keys_and_labels_have_streams_of_their_own():
    streams = {KeyStream(key, label).bytes(32) for key in (KEY, bytes(32)) for label in (b"", b"a", b"b")}
    assert len(streams) == 6


@given(st.integers(1, 1 << 64), st.integers(0, 200))
def test_uniform_numbers_are_below_their_modulus_and_repeat(q, n):
    drawn = KeyStream(KEY, b"label").uniform(q, n)
    assert drawn.dtype == np.uint64
    assert all(int(number) < q for number in drawn)
    np.testing.assert_array_equal(drawn, KeyStream(KEY, b"label").uniform(q, n))


def test_rejection_is_the_textbook_one():
    stream = KeyStream(KEY, b"label")
    drawn = [int(word) & 7 for word in stream.words64(50)]
    while bad := [i for i, number in enumerate(drawn) if number >= 5]:
        for i, word in zip(bad, stream.words64(len(bad)), strict=True):
            drawn[i] = int(word) & 7
    again = KeyStream(KEY, b"label")
    assert again.uniform(5, 50).tolist() == drawn
    assert again.bytes(8) == stream.bytes(8)


def test_a_modulus_of_which_nothing_is_rejected_takes_one_word_a_number():
    stream, again = KeyStream(KEY, b"label"), KeyStream(KEY, b"label")
    assert stream.uniform(1 << 54, 100).tolist() == [word % (1 << 54) for word in again.words64(100).tolist()]
    assert stream.bytes(8) == again.bytes(8)


def test_uniform_numbers_are_uniform():
    small = np.bincount(KeyStream(KEY, b"small").uniform(7, 70_000).astype(np.int64), minlength=7)
    assert stats.chisquare(small).pvalue > 1e-4
    large = KeyStream(KEY, b"large").uniform(PRIME, 100_000).astype(np.float64) / PRIME
    assert stats.kstest(large, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("q", [0, -1, (1 << 64) + 1])
def test_an_impossible_modulus_is_refused(q):
    with pytest.raises(SealError, match="modulus"):
        KeyStream(KEY, b"").uniform(q, 1)


def test_a_short_key_is_refused_and_nothing_is_printed():
    with pytest.raises(SealError, match="32 bytes"):
        KeyStream(KEY[:16], b"")
    assert repr(KeyStream(KEY, b"")) == "KeyStream(secret)"


@pytest.mark.parametrize("drawn", [0, 100])
def test_a_fork_never_draws_what_its_parent_draws(drawn):
    stream = KeyStream(KEY, b"label")
    stream.bytes(drawn)
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (lambda: stream.bytes(8), lambda: stream.words64(1), lambda: stream.uniform(10, 1)):
            try:
                call()
            except SealError:
                refused += 1
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    assert stream.bytes(8) == KeyStream(KEY, b"label").bytes(drawn + 8)[drawn:]
