"""One decoded image before any processing, and the limits of its size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from silo_agent.data.errors import Unfit

MAX_PIXELS = 1 << 25
"""Most pixels (height times width) of a file: 5792 x 5792, above the largest mammogram. A header that claims more is
refused before anything is unpacked."""
MAX_BYTES = 1 << 28
"""Most bytes of a file, 256 MiB: 33 million pixels of three 16-bit channels, and some room."""
BOMB = Pillow.DecompressionBombWarning
"""What Pillow warns of if the bytes inside a file claim far more pixels than its outer header."""
GRAY = 1
ONE_FRAME = "one image per file"


@dataclass(frozen=True, repr=False, eq=False)
class Raster:
    """`values` (c, h, w) are finite numbers in the file's own unit. `inverted`: large means dark (MONOCHROME1)."""

    values: NDArray[np.generic]
    inverted: bool = False

    @classmethod
    def gray(cls, values: NDArray[np.generic], channels: int, *, inverted: bool = False) -> Raster:
        """Make a raster of a gray image (h, w) of any depth. Three channels are three equal ones."""
        return cls(np.broadcast_to(values, (channels, *values.shape)), inverted)

    @classmethod
    def colour(cls, values: NDArray[np.uint8], channels: int) -> Raster:
        """Make a raster of an RGB image (h, w, 3) of 8 bits. One channel is its luminance (ITU-R 601-2)."""
        if channels == GRAY:
            return cls(np.asarray(Pillow.fromarray(values).convert("L"))[None])
        return cls(np.moveaxis(values, -1, 0))


def check_size(height: int, width: int) -> None:
    """Raise `Unfit` for an image with no pixel or too many. Call it before the pixels are unpacked."""
    if not (height >= 1 and width >= 1 and height * width <= MAX_PIXELS):
        expected = f"at least one pixel, and at most {MAX_PIXELS} (such as 5792 x 5792); make it smaller"
        raise Unfit(expected, f"an image of {height} x {width} pixels")


def unreadable(expected: str, error: Exception) -> Unfit:
    """Return the `Unfit` for a decoder's exception. It has the exception's type, not its text, which may quote data."""
    return Unfit(expected, f"a file that cannot be read or decoded ({type(error).__name__})")
