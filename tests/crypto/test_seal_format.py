from __future__ import annotations

import random
import struct
import time

import numpy as np
import pytest
import tenseal
import zstandard

from crypto import seal_format
from crypto.ckks_public import DEGREE, PRIME, SCALE
from crypto.ckks_secret import CkksKey, _serialize
from crypto.errors import CryptoError, FrameError, OpeningRefused


@pytest.fixture(scope="module")
def key():
    return CkksKey.create()


@pytest.fixture(scope="module")
def envelope(key):
    """A vector as TenSEAL itself writes it: compressed."""
    return tenseal.ckks_vector(key._context, [float(i) for i in range(2048)]).serialize()


@pytest.fixture(scope="module")
def residues(envelope):
    return seal_format.read_vector(envelope)


def test_what_is_written_reads_back(residues):
    assert residues.shape == (2, 1, DEGREE)
    written = seal_format.write_vector(residues)
    np.testing.assert_array_equal(seal_format.read_vector(written), residues)


def envelope_with(ciphertext, sizes=b"\x80\x10", scale=SCALE, order=(0, 1, 2)):
    fields = [
        seal_format._field(1, sizes),
        seal_format._field(2, ciphertext),
        b"\x19" + struct.pack("<d", scale),
    ]
    return b"".join(fields[i] for i in order)


@pytest.fixture(scope="module")
def ciphertext(residues):
    return seal_format._write_words(seal_format._CIPHERTEXT, seal_format._CIPHERTEXT_FACTS, residues)


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": b""},
        {"sizes": b"\x81\x10"},
        {"sizes": b"\x80\x80\x40"},
        {"sizes": b"\x80\x10\x80\x10"},
        {"scale": SCALE * 2},
        {"scale": float("nan")},
        {"order": (1, 2)},
        {"order": (0, 1)},
        {"order": (0, 1, 1, 2)},
        {"order": (1, 0, 2)},
        {"order": ()},
    ],
)
def test_the_envelope_is_exactly_ours(ciphertext, change):
    assert seal_format.read_vector(envelope_with(ciphertext)).size == 2 * DEGREE
    with pytest.raises(FrameError, match="envelope"):
        seal_format.read_vector(envelope_with(ciphertext, **change))


@pytest.mark.parametrize(
    ("index", "value"),
    [(0, bytes(32)), (1, 0), (2, 3), (3, 8192), (4, 2), (5, SCALE * 2), (5, float("nan")), (6, 2)],
)
def test_every_fact_of_a_ciphertext_is_checked(residues, index, value):
    facts = list(seal_format._CIPHERTEXT_FACTS)
    facts[index] = value
    foreign = seal_format._write_words(seal_format._CIPHERTEXT, tuple(facts), residues)
    with pytest.raises(FrameError):
        seal_format.read_vector(envelope_with(foreign))


def test_residues_are_checked(residues):
    unreduced, transparent = residues.copy(), residues.copy()
    unreduced[0, 0, 5] = PRIME
    transparent[1] = 0
    for bad in (unreduced, transparent):
        with pytest.raises(FrameError, match="ciphertext"):
            seal_format.read_vector(seal_format.write_vector(bad))
    with pytest.raises(FrameError):
        seal_format.write_vector(residues.reshape(2, DEGREE))


def seal_object(body, compression, *, version=(4, 3)):
    return struct.pack("<HBBBBHQ", 0xA15E, 16, *version, compression, 0, 16 + len(body)) + body


def test_other_versions_and_compressions_are_refused(ciphertext):
    body = ciphertext[16:]
    assert seal_format.read_vector(envelope_with(seal_object(body, 0))).size == 2 * DEGREE
    packed = zstandard.ZstdCompressor().compress(body)
    assert seal_format.read_vector(envelope_with(seal_object(packed, 2))).size == 2 * DEGREE
    for bad in (
        seal_object(body, 1),
        seal_object(body, 3),
        seal_object(body, 0, version=(4, 1)),
        seal_object(body[:-8], 0),
        seal_object(body + bytes(8), 0),
        seal_object(b"not compressed", 2),
        seal_object(packed[:-5], 2),
        b"short",
    ):
        with pytest.raises(FrameError):
            seal_format.read_vector(envelope_with(bad))


def test_a_decompression_bomb_is_cut_off():
    compressor = zstandard.ZstdCompressor().compressobj()
    bomb = b"".join(compressor.compress(bytes(1 << 24)) for _ in range(16)) + compressor.flush()
    begin = time.process_time()
    with pytest.raises(FrameError):
        seal_format.read_vector(envelope_with(seal_object(bomb, 2)))
    assert time.process_time() - begin < 0.1


def test_2000_mutated_envelopes_give_only_named_errors(key, envelope, residues):
    chance, survivors = random.Random(1), 0  # noqa: S311  # mutations that repeat
    expected = residues.astype("<u8").tobytes()
    blobs = [envelope, seal_format.write_vector(residues)]
    for number in range(2000):
        out = bytearray(blobs[number % 2])
        kind = chance.randrange(8)
        if kind == 0:
            del out[chance.randrange(len(out)) :]
        elif kind == 1:
            out[(at := chance.randrange(len(out))) : at] = chance.randbytes(chance.randrange(1, 9))
        else:
            reach = chance.choice([200, len(out)])
            for _ in range(chance.choice([1, 3])):
                out[chance.randrange(reach)] ^= chance.randrange(1, 256)
        try:
            frame = seal_format.read_vector(bytes(out)).astype("<u8").tobytes()
        except FrameError:
            continue
        if frame == expected:
            continue
        survivors += 1
        with pytest.raises(OpeningRefused):
            key.decrypt(frame, 2048)
    assert survivors > 100


def test_a_secret_key_moves_between_contexts(key):
    residues = seal_format.read_secret_key(_serialize(key._context))
    other = CkksKey.create()
    moved = seal_format.replace_secret_key(_serialize(other._context), residues)
    np.testing.assert_array_equal(seal_format.read_secret_key(moved), residues)


@pytest.mark.parametrize("blob", [b"", b"\x1a\x00", b"\x1a\x02\x0a\x00", b"\x1a\x05", b"\x80" * 12, b"\x0b"])
def test_what_is_no_context_is_refused(blob):
    with pytest.raises(CryptoError):
        seal_format.read_secret_key(blob)


def test_what_cannot_be_a_secret_key_is_refused(key):
    good = seal_format.read_secret_key(_serialize(key._context))
    zero, unreduced = good.copy(), good.copy()
    zero[1, 7] = 0
    unreduced[1, 7] = 1 << 55
    for bad in (zero, unreduced, good[0]):
        with pytest.raises(FrameError, match="secret key"):
            seal_format.check_key(bad)
