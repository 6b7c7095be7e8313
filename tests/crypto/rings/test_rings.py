from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import FrameError
from crypto.rings.ckks_public import FRAME_BYTES, PRIME, RESIDUES
from crypto.rings.rings import RINGS, ckks_public, ring_of

MODULI = {"ckks": PRIME, "ring32": 1 << 32, "ring64": 1 << 64}
WORD = {"ring32": 4, "ring64": 8}
INTEGERS = pytest.mark.parametrize("kind", WORD)
KINDS = pytest.mark.parametrize("kind", RINGS)


def words(kind, numbers):
    """Frames of the integer rings have any length; a ciphertext's residues repeat the numbers."""
    if kind == "ckks":
        return np.resize(np.array(numbers, np.uint64), RESIDUES)
    return np.array(numbers, f"<u{WORD[kind]}")


@KINDS
@given(data=st.data())
def test_adding_is_adding_mod_the_modulus(kind, data):
    ring, modulus = RINGS[kind], MODULI[kind]
    numbers = st.integers(1, modulus - 1) | st.sampled_from([1, modulus - 1])
    pairs = data.draw(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=30))
    left, right = (words(kind, column) for column in zip(*pairs, strict=True))
    total = ring.read(ring.write(left))
    ring.add(total, ring.read(ring.write(right)))
    assert total.tolist()[: len(pairs)] == [(a + b) % modulus for a, b in pairs]


@KINDS
def test_what_is_written_is_read_and_is_one_s_own(kind):
    ring = RINGS[kind]
    given_words = words(kind, [1, 2, 3, MODULI[kind] - 1])
    frame = bytearray(ring.write(given_words))
    read = ring.read(memoryview(frame))
    frame[:] = bytes(len(frame))
    np.testing.assert_array_equal(read, given_words)
    assert read.flags.writeable


@INTEGERS
def test_words_are_little_endian(kind):
    size = WORD[kind]
    assert RINGS[kind].read(b"\x01" + bytes(size - 1) + bytes(size - 1) + b"\x01").tolist() == [1, 1 << 8 * (size - 1)]


@pytest.mark.parametrize(
    ("kind", "values", "size"),
    [
        ("ring32", 1, 4),
        ("ring32", (1 << 15) + 1, (1 << 17) + 4),
        ("ring64", 1, 8),
        ("ring64", (1 << 14) + 1, (1 << 17) + 8),
        ("ckks", 1, 27648),
        ("ckks", 2048, 27648),
        ("ckks", 2049, 2 * 27648),
    ],
)
def test_sizes(kind, values, size):
    assert RINGS[kind].content_size(values) == size


@KINDS
def test_a_full_frame_has_the_size_it_says_and_is_small(kind):
    ring = RINGS[kind]
    assert ring.kind == kind
    assert ring.content_size(ring.frame_values) == ring.frame_bytes <= 1 << 18


@INTEGERS
def test_an_integer_frame_has_whole_words_and_a_bounded_length(kind):
    ring, size = RINGS[kind], WORD[kind]
    for length in (size, 100 * size, ring.frame_bytes):
        assert ring.read(bytes(length)).tolist() == [0] * (length // size)
    for length in (0, 1, size + 1, ring.frame_bytes + size):
        with pytest.raises(FrameError, match=f"{kind} has {size} to .* whole words"):
            ring.read(bytes(length))


@pytest.mark.parametrize("frame", [b"", b"\1" * (FRAME_BYTES - 1), b"\xff" * FRAME_BYTES, bytes(FRAME_BYTES)])
def test_a_malformed_ciphertext_is_refused(frame):
    with pytest.raises(FrameError):
        RINGS["ckks"].read(frame)


@KINDS
def test_lengths_must_agree(kind):
    for left, right in ((1, 2), (2, 1)):
        with pytest.raises(FrameError, match="the same length"):
            RINGS[kind].add(np.zeros(left, np.uint64), np.zeros(right, np.uint64))


@KINDS
@given(st.integers(1, 256))
def test_the_limit_is_the_largest_that_cannot_overflow(kind, silos):
    ring = RINGS[kind]
    limit = ring.limit(silos)
    assert limit * silos <= ring.max_sum
    assert limit <= ring.max_value
    assert (limit + 1) * silos > ring.max_sum or limit == ring.max_value


def test_ranges_fit_the_words():
    assert RINGS["ring32"].max_value == RINGS["ring32"].max_sum == 2**31 - 1
    assert RINGS["ring64"].max_value == RINGS["ring64"].max_sum == 2**46
    assert (RINGS["ckks"].max_value, RINGS["ckks"].max_sum) == (ckks_public.MAX_VALUE, ckks_public.MAX_SUM)


def test_there_is_no_fourth_ring():
    assert [ring_of(kind).kind for kind in RINGS] == ["ckks", "ring32", "ring64"]
    for kind in ("clear", "", "ring"):
        with pytest.raises(FrameError, match="is none of the rings"):
            ring_of(kind)
    with pytest.raises(TypeError):
        RINGS["clear"] = RINGS["ring32"]


def test_the_public_side_loads_no_secret_module():
    secret = {"tenseal", "cryptography", "crypto.stream"} | {
        "crypto.rings.ckks_secret",
        "crypto.secagg.agreement",
        "crypto.secagg.checks",
        "crypto.secagg.masks",
        "crypto.secagg.packages",
        "crypto.secagg.sealing",
        "crypto.secagg.unmasking",
    }
    code = (
        "import sys, crypto.rings.rings, crypto.secagg.layout;"
        f" found = {secret!r} & set(sys.modules); assert not found, found"
    )
    root = Path(ckks_public.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=600)
