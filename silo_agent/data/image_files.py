"""PNG and JPEG files, by their content: gray of 8 or 16 bits, colour of 8 bits.

Guarantees that no other decoder is ever started, that no bytes make anything but an image or an `Unfit`, and that no
precision is dropped silently: Pillow would cut 16-bit colour to 8 bits, so it is refused by its header. A PNG whose
checksums fail is refused; JPEG has none.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps

from silo_agent.data.errors import Unfit
from silo_agent.data.raster import ONE_FRAME, Raster, check_size, unreadable

_FORMATS = ("PNG", "JPEG")
_MODES = {"PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"), "JPEG": ("L", "RGB")}
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_DEPTH, _PNG_COLOUR = 24, 25
"""Places in a PNG's header of the bits per sample and of the kind of colour; kind 0 is plain gray."""
_EXPECTED = "a PNG or JPEG image, whole, gray of 8 or 16 bits or RGB of 8 bits"


def decode(path: Path, channels: int) -> Raster:
    """Decode a file. Raises `Unfit`.

    Orientation is applied as the file says. A PNG of fewer bits or with a palette is one of 8 bits (as PNG defines it).
    """
    image = _open(path)
    if image.mode in ("L", "I;16"):
        return Raster.gray(np.asarray(image), channels)
    if image.mode in ("1", "LA"):
        return Raster.gray(np.asarray(image.convert("L")), channels)
    return Raster.colour(np.asarray(image.convert("RGB")), channels)


def _open(path: Path) -> Pillow.Image:
    """The unpacked image, in one of `_MODES` and without transparency."""
    try:
        content = path.read_bytes()
        with warnings.catch_warnings():
            # On stderr, where the agent's log goes, they would tell of single files.
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Pillow.DecompressionBombWarning)
            image: Pillow.Image = Pillow.open(io.BytesIO(content), formats=_FORMATS)
            _check_header(content, image)
            if image.format == "PNG":
                image.verify()  # reads on to the end and closes the image
                image = Pillow.open(io.BytesIO(content), formats=_FORMATS)
            image = ImageOps.exif_transpose(image)
            opaque = "transparency" not in image.info and (
                not image.mode.endswith("A") or image.getchannel("A").getextrema() == (255, 255)
            )
    except Unfit:
        raise
    except Exception as error:  # noqa: BLE001  # decoders raise anything on foul bytes; all of it means unreadable
        raise unreadable(_EXPECTED, error) from None
    if not opaque:
        raise Unfit(_EXPECTED + ", nowhere transparent", "transparent pixels")
    return image


def _check_header(content: bytes, image: Pillow.Image) -> None:
    check_size(image.height, image.width)
    if image.format not in _MODES:
        raise Unfit(_EXPECTED, f"a file of format {image.format}")
    if getattr(image, "n_frames", 1) > 1:
        raise Unfit(ONE_FRAME, "several frames in one file")
    deep = content.startswith(_PNG_SIGNATURE) and content[_PNG_DEPTH] > 8  # noqa: PLR2004
    if deep and content[_PNG_COLOUR] != 0:
        raise Unfit(_EXPECTED + "; save it as 8-bit RGB or 16-bit gray", "more than 8 bits of colour or with opacity")
    if image.mode not in _MODES[image.format]:
        raise Unfit(_EXPECTED, f"pixels of mode {image.mode}")
