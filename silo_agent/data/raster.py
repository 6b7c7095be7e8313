"""One decoded image before anything is done to it, and how large it may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from silo_agent.data.errors import Unfit

MAX_PIXELS = 1 << 25
"""Height times width of a file: 5792 x 5792, above the largest mammogram. A header that claims more is refused before
anything is unpacked."""
MAX_BYTES = 1 << 28
"""256 MiB: the largest file, 33 million pixels of three 16-bit channels and some room."""
GRAY = 1
ONE_FRAME = "one image per file"


@dataclass(frozen=True, repr=False, eq=False)
class Raster:
    """`values` (c, h, w) finite numbers in the file's own unit; `inverted` where large means dark (MONOCHROME1)."""

    values: NDArray[np.generic]
    inverted: bool = False

    @classmethod
    def gray(cls, values: NDArray[np.generic], channels: int, *, inverted: bool = False) -> Raster:
        """A gray image (h, w) of any depth; three channels are equal ones."""
        return cls(np.broadcast_to(values, (channels, *values.shape)), inverted)

    @classmethod
    def colour(cls, values: NDArray[np.uint8], channels: int) -> Raster:
        """An RGB image (h, w, 3) of 8 bits; one channel is its luminance (ITU-R 601-2)."""
        if channels == GRAY:
            return cls(np.asarray(Pillow.fromarray(values).convert("L"))[None])
        return cls(np.moveaxis(values, -1, 0))


def check_size(height: int, width: int) -> None:
    """Raise `Unfit` for an image of no pixel or of too many; to be called before its pixels are unpacked."""
    if not (height >= 1 and width >= 1 and height * width <= MAX_PIXELS):
        expected = f"at least one pixel, and at most {MAX_PIXELS} (such as 5792 x 5792); make it smaller"
        raise Unfit(expected, f"an image of {height} x {width} pixels")


def unreadable(expected: str, error: Exception) -> Unfit:
    """What a decoder's exception becomes: its kind, and none of its text, which may quote the file."""
    return Unfit(expected, f"a file that cannot be read or decoded ({type(error).__name__})")
