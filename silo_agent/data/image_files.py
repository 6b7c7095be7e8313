"""PNG and JPEG files, recognised by their content: gray of 8 or 16 bits, colour of 8 bits.

Guarantees: no other decoder is ever started. Any bytes give either an image or an `Unfit`. No precision is lost
silently: Pillow would cut 16-bit colour to 8 bits, so the header check refuses such a file. A PNG whose checksums fail
is refused; JPEG has no checksums.
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
"""Places of the bits per sample and of the kind of colour in a PNG's header. Kind 0 is plain gray."""
_EXPECTED = "a complete PNG or JPEG image, gray of 8 or 16 bits or RGB of 8 bits"


def decode(path: Path, channels: int) -> Raster:
    """Decode a file. Raises `Unfit`.

    The orientation stated in the file is applied. A PNG of fewer bits or with a palette becomes one of 8 bits (as PNG
    defines it).
    """
    image = _open(path)
    if image.mode in ("L", "I;16"):
        return Raster.gray(np.asarray(image), channels)
    if image.mode in ("1", "LA"):
        return Raster.gray(np.asarray(image.convert("L")), channels)
    return Raster.colour(np.asarray(image.convert("RGB")), channels)


def _open(path: Path) -> Pillow.Image:
    """Return the decoded image, in one of `_MODES` and without transparency."""
    try:
        content = path.read_bytes()
        with warnings.catch_warnings():
            # Warnings go to stderr, like the agent's log, and would reveal something about single files.
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
        raise Unfit(_EXPECTED + ", without transparent pixels", "transparent pixels")
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
