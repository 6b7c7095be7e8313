"""Contributions are added frame by frame, and one of another size spoils nothing in silence."""

import io

import numpy as np
import pytest

from crypto.errors import FrameError
from crypto.rings.adding import added
from crypto.rings.rings import ring_of

RINGS = ("ring32", "ring64")


def content(ring, rng, frames):
    return b"".join(ring.write(ring.read(rng.bytes(ring.frame_bytes))) for _ in range(frames))


@pytest.mark.parametrize("kind", RINGS)
@pytest.mark.parametrize("frames", [1, 3])
def test_the_sum_is_that_of_the_words_in_any_order(kind, frames):
    ring, rng = ring_of(kind), np.random.default_rng(2)
    contents = [content(ring, rng, frames) for _ in range(3)]
    word = {"ring32": np.uint32, "ring64": np.uint64}[kind]
    total = sum(np.frombuffer(one, word) for one in contents)
    for order in (contents, contents[::-1]):
        assert b"".join(added(kind, [io.BytesIO(one) for one in order])) == total.tobytes()


@pytest.mark.parametrize("cut", [1, -1])
def test_contents_of_different_sizes_have_no_sum(cut):
    ring, rng = ring_of("ring32"), np.random.default_rng(3)
    whole = content(ring, rng, 2)
    other = whole[: len(whole) // 2] if cut > 0 else whole + whole[: ring.frame_bytes]
    with pytest.raises(FrameError, match="must have the same size"):
        list(added("ring32", [io.BytesIO(whole), io.BytesIO(other)]))
