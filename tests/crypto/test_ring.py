from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto import ring
from crypto.errors import FrameError

WORDS = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), min_size=1, max_size=50)


@given(WORDS)
def test_adding_is_adding_mod_2_to_the_32(pairs):
    left, right = (np.array(column, dtype="<u4") for column in zip(*pairs, strict=True))
    total = bytearray(left.tobytes())
    ring.add_frames(total, right.tobytes())
    assert np.frombuffer(total, "<u4").tolist() == [(a + b) % 2**32 for a, b in pairs]


def test_a_total_may_be_a_view_into_a_larger_buffer():
    buffer = bytearray(12)
    ring.add_frames(memoryview(buffer)[4:8], b"\x01\x00\x00\x00")
    assert buffer == bytes(4) + b"\x01" + bytes(7)


@pytest.mark.parametrize(
    ("values", "count", "size"), [(0, 0, 0), (1, 1, 4), (1 << 15, 1, 1 << 17), ((1 << 15) + 1, 2, (1 << 17) + 4)]
)
def test_sizes(values, count, size):
    assert (ring.frames(values), ring.content_size(values)) == (count, size)


def test_a_frame_has_whole_words_and_a_bounded_length():
    for size in (4, 400, ring.FRAME_BYTES):
        ring.check_frame(bytes(size))
    for size in (0, 1, 5, ring.FRAME_BYTES + 4):
        with pytest.raises(FrameError, match="whole words"):
            ring.check_frame(bytes(size))


@pytest.mark.parametrize(("total", "frame"), [(4, 8), (8, 4), (5, 5)])
def test_lengths_must_agree(total, frame):
    with pytest.raises(FrameError, match="one length"):
        ring.add_frames(bytearray(total), bytes(frame))
