from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenseal
import tenseal.sealapi

from crypto import ckks_public
from crypto.ckks_public import DEGREE, FRAME_BYTES, PRIME
from crypto.ckks_secret import CkksKey
from crypto.errors import FrameError
from crypto.seal_format import read_vector, write_vector


def frame_of(residues) -> bytes:
    return np.asarray(residues).astype("<u8").tobytes()


@pytest.fixture(scope="module")
def random_frames():
    generator = np.random.default_rng(0)
    return [frame_of(generator.integers(0, PRIME, 2 * DEGREE, dtype=np.uint64)) for _ in range(3)]


def test_adding_is_bit_identical_to_tenseals_own(random_frames):
    key = CkksKey.create()
    real = [key.encrypt(np.arange(i, 2048 + i)) for i in range(3)]
    for addends in (random_frames, real):
        total = bytearray(addends[0])
        vectors = []
        for frame in addends:
            residues = np.frombuffer(frame, "<u8").reshape(2, 1, DEGREE)
            vectors.append(tenseal.ckks_vector_from(key._context, write_vector(residues)))
        expected = vectors[0]
        for frame, vector in zip(addends[1:], vectors[1:], strict=True):
            ckks_public.add_frames(total, frame)
            expected += vector
        assert bytes(total) == frame_of(read_vector(expected.serialize()))


def test_adding_is_exact_at_the_edges():
    edges = [0, 1, PRIME // 2, PRIME - 1]
    left, right = np.ones(2 * DEGREE, np.uint64), np.zeros(2 * DEGREE, np.uint64)
    pairs = [(a, b) for a in edges for b in edges]
    left[: len(pairs)], right[: len(pairs)] = zip(*pairs, strict=True)
    total = bytearray(frame_of(left))
    ckks_public.add_frames(total, frame_of(right))
    assert np.frombuffer(total, "<u8")[: len(pairs)].tolist() == [(a + b) % PRIME for a, b in pairs]


def test_many_frames_add_at_once_and_views_work(random_frames):
    a, b, c = random_frames
    buffer = bytearray(a + b)
    ckks_public.add_frames(memoryview(buffer), b + c)
    single = bytearray(b)
    ckks_public.add_frames(single, c)
    assert buffer[FRAME_BYTES:] == single


def test_a_frame_is_checked(random_frames):
    good = random_frames[0]
    ckks_public.check_frame(good)
    unreduced = bytearray(good)
    unreduced[8:16] = PRIME.to_bytes(8, "little")
    for bad, sentence in (
        (b"", "bytes"),
        (good[:-8], "bytes"),
        (good + bytes(8), "bytes"),
        (bytes(unreduced), "not reduced"),
        (good[: FRAME_BYTES // 2] + bytes(FRAME_BYTES // 2), "transparent"),
    ):
        with pytest.raises(FrameError, match=sentence):
            ckks_public.check_frame(bad)


def test_what_does_not_fit_is_not_added(random_frames):
    total = bytearray(random_frames[0])
    unreduced = b"\xff" * FRAME_BYTES
    for bad in (b"", random_frames[1][:-8], random_frames[1] * 2, unreduced):
        with pytest.raises(FrameError):
            ckks_public.add_frames(total, bad)
    assert total == random_frames[0]
    with pytest.raises(FrameError):
        ckks_public.add_frames(bytearray(8), bytes(8))


@pytest.mark.parametrize(("values", "count"), [(0, 0), (1, 1), (2048, 1), (2049, 2)])
def test_sizes(values, count):
    assert (ckks_public.frames(values), ckks_public.content_size(values)) == (count, count * 65536)


def test_the_parameters_are_the_vetted_ones():
    context = CkksKey.create()._context
    primes = [prime.value() for prime in context.seal_context().data.key_context_data().parms().coeff_modulus()]
    assert primes == [PRIME, ckks_public.SPECIAL_PRIME]
    assert sum(prime.bit_length() for prime in primes) == 109
    assert ckks_public.PRIME > 2 * ckks_public.MAX_SUM * ckks_public.SCALE
    assert len(ckks_public.PARAMETERS_DIGEST) == 64


def test_the_public_side_loads_neither_tenseal_nor_secret_modules():
    public = ["agreement", "authority", "certificates", "ckks_public", "labels", "ring", "tls"]
    secret = {"tenseal", "zstandard", "crypto.ckks_secret", "crypto.seal_format", "crypto.pads", "crypto.packages"}
    imports = ", ".join(f"crypto.{name}" for name in public)
    code = f"import sys, {imports}; found = {secret!r} & set(sys.modules); assert not found, found"
    root = Path(ckks_public.__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=60)
