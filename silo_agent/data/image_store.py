"""The image column: from a path in a cell to an image of the study's size and scale.

Guarantees: only files within the data file's folder are read. Every file is decoded once when the records are read, and
every fault of a file is named. Memory holds as many decoded files as there are workers (`columns.ahead`), in addition
to the room that was reserved (`reserve`), whose size follows from public constants. An image that finds no room is
decoded again whenever it is needed, so no number of images makes anything fail. `image_files` and `dicom_files` decode
the bytes of a file.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from policies.documents.study import Image
from silo_agent.data import dicom_files, image_files
from silo_agent.data.cells import Cell, text
from silo_agent.data.columns.ahead import WorkAhead
from silo_agent.data.errors import Unfit
from silo_agent.data.images import Images, Levels, PixelScale
from silo_agent.data.raster import MAX_BYTES, Raster

_THERE = "an existing image file; fix the path, or put the file there"
_SMALL = f"a file of at most {MAX_BYTES >> 20} MiB"
ROOM_BYTES: Final = 1 << 30
"""Most memory that a study's images may take: 1 GiB."""
_PATH = "the path of an image below the data file's folder, such as scans/17.png"


def reserve(image: Image, most: int | None = None) -> Levels:
    """Return room for `most` images, but for no more than `ROOM_BYTES` hold: (room, c, h, w), all zeros.

    The memory is taken now, and not when the images come. Raises MemoryError.
    """
    kind = PixelScale.of(image).kind
    size = image.channels * image.height * image.width * np.dtype(kind).itemsize
    room = ROOM_BYTES // size if most is None else min(most, ROOM_BYTES // size)
    levels = np.zeros((room, image.channels, image.height, image.width), kind)
    if most is not None:
        levels.fill(0)  # zeros alone take no memory before they are written
    return levels


class ImageStore:
    """Collects the images that the cells of one column name. `room` (from `reserve`) keeps the first of them."""

    def __init__(self, folder: Path, image: Image, room: Levels) -> None:
        self._folder = folder.resolve()
        self._image = image
        self._levels = room
        self._paths: list[Path] = []
        self._places: dict[Path, int] = {}
        # Not a method: the images go to other processes, and the room behind a method would go with them.
        self._decode = partial(_decoded, image=image)
        self._ahead: WorkAhead[Path, Levels] = WorkAhead(self._decode)

    def expect(self, cells: Iterable[Cell]) -> None:
        """Say which cells `place` will be asked for, so that workers decode their images before."""
        self._ahead.expect(self._new(cells))

    def _new(self, cells: Iterable[Cell]) -> Iterator[Path]:
        seen = set(self._places)
        for cell in cells:
            with suppress(Exception):  # `place` says what is wrong
                path = self._locate(cell)
                if path not in seen:
                    seen.add(path)
                    yield path

    def place(self, cell: Cell) -> int:
        """Return the place of the cell's image among the collected ones. Decode it if it is new. Raises `Unfit`."""
        path = self._locate(cell)
        if path not in self._places:
            image, place = self._ahead.get(path), len(self._paths)
            if place < len(self._levels):
                self._levels[place] = image
            self._paths.append(path)
            self._places[path] = place
        return self._places[path]

    def images(self, places: NDArray[np.int64]) -> Images:
        """Return all images, one per record, by their places. A place that holds no image is a black one."""
        kept = self._levels[: max(1, len(self._paths)) if len(places) else 0]
        rest = tuple(self._paths[len(kept) :])
        top = PixelScale.of(self._image).top
        return Images(kept, top, places, rest=rest, decode=self._decode)

    def _locate(self, cell: Cell) -> Path:
        """Return the file that a cell names. It is opened only if it lies in the folder after following links."""
        named = text(cell)
        relative = PurePosixPath(named)
        if not named or "\0" in named:
            raise Unfit(_PATH)
        if relative.is_absolute():
            raise Unfit(_PATH, "an absolute path")
        if ".." in relative.parts:
            raise Unfit(_PATH, "a path with ..")
        try:
            path = (self._folder / relative).resolve(strict=True)
            status = path.stat()
        # RuntimeError: links in a circle, before Python 3.13. ValueError: a name that the file system cannot encode.
        except (OSError, RuntimeError, ValueError):
            raise Unfit(_THERE, "no such file") from None
        if not path.is_relative_to(self._folder):
            expected = "a file below the data file's folder; copy or mount the images there"
            raise Unfit(expected, "a link that leads out of the folder")
        if not stat.S_ISREG(status.st_mode):
            raise Unfit(_PATH, "something of this name that is not a file")
        if status.st_size > MAX_BYTES:
            raise Unfit(_SMALL, f"{status.st_size >> 20} MiB")
        return path


def _decoded(path: Path, image: Image) -> Levels:
    """One file as the study wants it. Raises `Unfit`."""
    decode = dicom_files.decode if path.suffix.lower() == ".dcm" else image_files.decode
    return _prepared(decode(path, image.channels), image)


def _prepared(raster: Raster, image: Image) -> Levels:
    """Clip to the public range, resize, and round to levels, channel by channel to save memory."""
    scale, size, channels = PixelScale.of(image), (image.width, image.height), []
    for values in raster.values:
        fractions = scale.fractions(values)
        if raster.inverted:
            fractions = np.subtract(1.0, fractions, dtype=np.float32)
        if fractions.shape != size[::-1]:
            # Mode F, because resizing in eight bits would round the values of a 16-bit image.
            resized = Pillow.fromarray(fractions).resize(size, Pillow.Resampling.BILINEAR)
            fractions = np.asarray(resized, np.float32)
        channels.append(scale.levels(fractions))
    return np.stack(channels)
