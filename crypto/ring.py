"""The ring of integers mod 2^32, public side: adding sealed vectors without any key.

Guarantees: addition is exact, coordinate by coordinate, mod 2^32. A sealed vector is its values as little-endian
uint32, cut into frames of `FRAME_VALUES`; the last frame is short. Every 32-bit word is a valid element, so a frame's
only check is its length. Leaves keys, pads and the meaning of the values to the silos.
"""

from __future__ import annotations

import numpy as np

from crypto.errors import FrameError

VALUE_BYTES = 4
FRAME_VALUES = 1 << 15
FRAME_BYTES = FRAME_VALUES * VALUE_BYTES
MAX_SUM = (1 << 31) - 1
"""Largest magnitude of an opened sum: it is read as a signed 32-bit integer."""


def frames(values: int) -> int:
    """Frames that carry so many values."""
    return -(-values // FRAME_VALUES)


def content_size(values: int) -> int:
    """Bytes of a sealed vector of so many values."""
    return VALUE_BYTES * values


def check_frame(frame: bytes | bytearray | memoryview) -> None:
    """Raise `FrameError` unless this is 1 to `FRAME_VALUES` whole words."""
    if not 0 < len(frame) <= FRAME_BYTES or len(frame) % VALUE_BYTES:
        msg = f"a frame of the integer ring has 4 to {FRAME_BYTES} bytes in whole words; send the upload again"
        raise FrameError(msg)


def add_frames(total: bytearray | memoryview, frame: bytes | bytearray | memoryview) -> None:
    """Add whole words to a total of the same length, in place, mod 2^32. Raises `FrameError` where lengths differ."""
    if len(total) != len(frame) or len(frame) % VALUE_BYTES:
        msg = "frames that are added have one length in whole words; send the upload again"
        raise FrameError(msg)
    accumulator = np.frombuffer(total, dtype="<u4")
    np.add(accumulator, np.frombuffer(frame, dtype="<u4"), out=accumulator)
