from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tenseal import sealapi

from crypto.errors import FrameError
from crypto.rings import ckks_secret, seal_format
from crypto.rings.ckks_public import DEGREE, FRAME_BYTES, MAX_SUM, PRIME, PRIME_BITS, RESIDUES, SCALE
from crypto.rings.ckks_secret import CkksKey
from crypto.rings.rings import ckks_public

EDGES = [0, 1, PRIME // 2, PRIME // 2 + 1, PRIME - 1]


@pytest.fixture(scope="module")
def random_residues():
    generator = np.random.default_rng(0)
    return [generator.integers(0, PRIME, RESIDUES, dtype=np.uint64) for _ in range(3)]


def one_integer(residues) -> bytes:
    """The frame as its definition says it: one little-endian integer."""
    bits = sum(int(residue) << PRIME_BITS * index for index, residue in enumerate(residues))
    return bits.to_bytes(len(residues) * PRIME_BITS // 8, "little")


def test_adding_is_bit_identical_to_seals_own(random_residues):
    key = CkksKey.create()
    evaluator = sealapi.Evaluator(ckks_secret._context())
    real = [key.encrypt(np.arange(i, 2048 + i)) for i in range(3)]
    for addends in (random_residues, real):
        total, expected = addends[0].copy(), sealapi.Ciphertext()
        ckks_secret._load(expected, seal_format.write_ciphertext(addends[0]))
        for addend in addends[1:]:
            ckks_public.add_residues(total, addend)
            other = sealapi.Ciphertext()
            ckks_secret._load(other, seal_format.write_ciphertext(addend))
            evaluator.add_inplace(expected, other)
        np.testing.assert_array_equal(total, seal_format.read_ciphertext(ckks_secret._saved(expected)))


@given(st.lists(st.tuples(*[st.integers(0, PRIME - 1) | st.sampled_from(EDGES)] * 2), min_size=1, max_size=20))
def test_adding_is_addition_mod_the_prime(pairs):
    left, right = (np.array(side, dtype=np.uint64) for side in zip(*pairs, strict=True))
    ckks_public.add_residues(left, right)
    assert left.tolist() == [(a + b) % PRIME for a, b in pairs]


@given(arrays(np.uint64, st.integers(1, 9).map(lambda n: 4 * n), elements=st.integers(0, (1 << PRIME_BITS) - 1)))
def test_residues_are_bits_of_one_little_endian_integer(residues):
    packed = ckks_public.pack(residues)
    assert packed == one_integer(residues)
    unpacked = ckks_public.unpack(packed)
    assert unpacked.dtype == np.uint64
    np.testing.assert_array_equal(unpacked, residues)


def test_a_frame_is_its_definition_and_reads_back(random_residues):
    for residues in random_residues:
        frame = ckks_public.write_frame(residues)
        assert len(frame) == FRAME_BYTES == 27_648
        assert frame == one_integer(residues)
        for form in (frame, bytearray(frame), memoryview(frame)):
            read = ckks_public.read_frame(form)
            np.testing.assert_array_equal(read, residues)
            read += np.uint64(1)  # what was read may be worked on, and the frame stays
        assert frame == one_integer(residues)


def test_every_bit_of_a_frame_counts(random_residues):
    frame = ckks_public.write_frame(random_residues[0])
    for bit in [*range(4 * PRIME_BITS), 8 * FRAME_BYTES - 1]:
        changed = bytearray(frame)
        changed[bit // 8] ^= 1 << bit % 8
        different = np.flatnonzero(ckks_public.unpack(changed) != random_residues[0])
        assert different.tolist() == [bit // PRIME_BITS]


def test_a_frame_is_checked(random_residues):
    good = ckks_public.write_frame(random_residues[0])
    half = FRAME_BYTES // 2
    for bad, sentence in (
        (b"", "27648 bytes"),
        (good[:-1], "27648 bytes"),
        (good + bytes(1), "27648 bytes"),
        (ckks_public.pack(np.array([0, 0, 0, PRIME], np.uint64)) + good[27:], "not reduced"),
        (good[:-27] + ckks_public.pack(np.array([0, 0, 0, PRIME], np.uint64)), "not reduced"),
        (b"\xff" * FRAME_BYTES, "not reduced"),
        (good[:half] + bytes(half), "transparent"),
    ):
        with pytest.raises(FrameError, match=sentence):
            ckks_public.read_frame(bad)
    largest = np.full(RESIDUES, PRIME - 1, np.uint64)
    np.testing.assert_array_equal(ckks_public.read_frame(one_integer(largest)), largest)


def test_what_no_frame_holds_is_not_written(random_residues):
    good = random_residues[0]
    unreduced, transparent = good.copy(), good.copy()
    unreduced[17] = PRIME
    transparent[DEGREE:] = 0
    for bad, sentence in (
        (unreduced, "not reduced"),
        (transparent, "transparent"),
        (good[:-4], "4096 residues"),
        (good.reshape(2, -1), "4096 residues"),
        (good.astype(np.int64), "64 bits"),
    ):
        with pytest.raises(FrameError, match=sentence):
            ckks_public.write_frame(bad)


def test_a_sum_in_range_never_wraps_around():
    error_of_a_million_silos = 22 * 1_000_000
    assert math.sqrt(2) * MAX_SUM * SCALE + error_of_a_million_silos < PRIME / 2
    assert DEGREE * PRIME_BITS == 4 * FRAME_BYTES
    assert PRIME.bit_length() == PRIME_BITS
    assert PRIME % (2 * DEGREE) == 1
    assert len(ckks_public.PARAMETERS_DIGEST) == 64


def test_the_public_side_loads_neither_tenseal_nor_secret_modules():
    public = ["pki.authority.root", "pki.certificates", "pki.tls", "rings.ckks_public", "rings.rings"]
    public += ["secagg.labels", "secagg.layout", "secagg.survivors"]
    secret = {
        "tenseal",
        "zstandard",
        "crypto.rings.ckks_secret",
        "crypto.rings.seal_format",
        "crypto.secagg.masks",
        "crypto.secagg.packages",
    }
    imports = ", ".join(f"crypto.{name}" for name in public)
    code = f"import sys, {imports}; found = {secret!r} & set(sys.modules); assert not found, found"
    root = Path(ckks_public.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=600)
