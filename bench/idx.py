"""MNIST as published: gzipped idx files (a header, then bytes) of images and labels, of two parts."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

SIDE: Final = 28
"""Pixels of an image's side."""
_IMAGE_HEADER, _LABEL_HEADER = 16, 8

Part = Literal["train", "t10k"]
PARTS: Final[tuple[Part, Part]] = ("train", "t10k")
"""To train on, and to test with."""
Digits = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Images (n, 28, 28) and labels (n,)."""


def there(folder: Path) -> bool:
    """Whether a folder has the training digits."""
    return _images(folder, "train").is_file()


def read(folder: Path, part: Part) -> Digits:
    """Read one part: 60,000 digits to train on, or 10,000 to test with. Raises `OSError` if a file is missing."""
    images = gzip.decompress(_images(folder, part).read_bytes())
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    return (
        np.frombuffer(images, np.uint8, offset=_IMAGE_HEADER).reshape(-1, SIDE, SIDE),
        np.frombuffer(labels, np.uint8, offset=_LABEL_HEADER),
    )


def _images(folder: Path, part: Part) -> Path:
    return folder / f"{part}-images-idx3-ubyte.gz"
