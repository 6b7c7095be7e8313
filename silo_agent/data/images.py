"""Images in memory, one per record: unsigned integers as compact as the public range allows.

Guarantees: every pixel is computed only from its own file and the study's public range. Whole numbers in a
whole-numbered range keep their values exactly. The model's input lies in [-1, 1]. `image_store` reads the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import InitVar, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import Image
from silo_agent.data.columns.ahead import WorkAhead

Levels = NDArray[np.uint8 | np.uint16]
"""Pixels as integers: 0 is the public minimum, `top` the maximum."""

_BYTE, _SHORT = np.iinfo(np.uint8).max, np.iinfo(np.uint16).max


@dataclass(frozen=True)
class PixelScale:
    """The number of steps of the public range: at most 255 in one byte, at most 65535 in two. All steps are equal.

    One byte is enough for a whole-numbered range of up to 255. The steps of a whole-numbered range are whole fractions
    of 1, so whole pixel values do not change.
    """

    minimum: float
    maximum: float

    @classmethod
    def of(cls, image: Image) -> PixelScale:
        """Return the scale of a study's images."""
        return cls(image.minimum, image.maximum)

    @property
    def top(self) -> int:
        """The level of the maximum. The level of the minimum is 0."""
        span = self.maximum - self.minimum
        whole = self.minimum.is_integer() and span.is_integer() and span <= _SHORT
        if not whole:
            return _SHORT
        steps = _BYTE if span <= _BYTE else _SHORT
        return int(span) * (steps // int(span))

    @property
    def kind(self) -> type[np.uint8 | np.uint16]:
        """The integer type that holds a level."""
        return np.uint8 if self.top <= _BYTE else np.uint16

    def fractions(self, values: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return where finite values lie in the range: 0 at the minimum or below, 1 at the maximum or above."""
        placed = values.astype(np.float64)
        # A value that overflows lies at an end of the range anyway. A warning in the log would reveal single files.
        with np.errstate(over="ignore"):
            placed -= self.minimum
            placed /= self.maximum - self.minimum
        return np.clip(placed, 0.0, 1.0, out=placed).astype(np.float32)

    def levels(self, fractions: NDArray[np.float32]) -> Levels:
        """Return the nearest level of every fraction of the range."""
        levels: Levels = np.rint(np.clip(fractions, 0.0, 1.0) * np.float32(self.top)).astype(self.kind)
        return levels


@dataclass(frozen=True, repr=False, eq=False)
class Images:
    """One image per record. `levels` (kept, c, h, w) in [0, top] has the images, `order` each record's image.

    Records that share an image share its memory. Without `order` there is one record per entry of `levels`. The images
    after those in `levels` are not in memory: `rest` has their files, and `decode` gives the levels (c, h, w) of one.
    """

    levels: Levels
    top: int = _BYTE
    order: InitVar[NDArray[np.int64] | None] = None
    rest: tuple[Path, ...] = ()
    decode: Callable[[Path], Levels] | None = None
    _order: NDArray[np.int64] = field(init=False)
    _ahead: WorkAhead[Path, Levels] | None = field(init=False, default=None)

    def __post_init__(self, order: NDArray[np.int64] | None) -> None:
        if self.levels.ndim != 4 or self.levels.dtype not in (np.uint8, np.uint16):  # noqa: PLR2004
            msg = "levels must be uint8 or uint16 of shape (images, channels, height, width)"
            raise ValueError(msg)
        if self.top < 1 or self.levels.max(initial=0) > self.top:
            msg = "levels must lie in [0, top]"
            raise ValueError(msg)
        if order is None:
            order = np.arange(len(self.levels), dtype=np.int64)
        if order.ndim != 1 or order.dtype != np.int64:
            msg = "order must be one int64 per record"
            raise ValueError(msg)
        if order.min(initial=0) < 0 or order.max(initial=-1) >= len(self.levels) + len(self.rest):
            msg = "order must name existing images"
            raise ValueError(msg)
        object.__setattr__(self, "_order", order)
        if self.decode is not None:
            object.__setattr__(self, "_ahead", WorkAhead(self.decode))
        self.levels.setflags(write=False)
        order.setflags(write=False)

    def __len__(self) -> int:
        return len(self._order)

    def __repr__(self) -> str:
        return "Images(<private>)"

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of every image."""
        _, channels, height, width = self.levels.shape
        return channels, height, width

    def take(self, rows: NDArray[np.int64] | slice) -> NDArray[np.float32]:
        """Return images of records as the model takes them: float32 (b, c, h, w) in [-1, 1], in the order of `rows`.

        An image that cannot be decoded any more is NaN throughout.
        """
        places = self._order[rows]
        apart = np.flatnonzero(places >= len(self.levels))
        if not len(apart):
            return self._scaled(self.levels[places].astype(np.float32))
        if self._ahead is None:
            msg = "images that are not in memory need a decoder"
            raise ValueError(msg)
        images = np.full((len(places), *self.shape), np.nan, np.float32)
        kept = np.flatnonzero(places < len(self.levels))
        images[kept] = self.levels[places[kept]]
        if not self._ahead.has(self._file(places[apart[0]])):
            self._ahead.expect(map(self._file, places[apart]))
        for place in apart:
            with suppress(Exception):  # the file changed since it was read; its record must not cost another its term
                images[place] = self._ahead.get(self._file(places[place]))
        return self._scaled(images)

    def expect(self, rows: NDArray[np.int64] | slice) -> None:
        """Say which records' images will be taken, in this order, so that those not in memory are decoded by then."""
        places = self._order[rows]
        if self._ahead is not None and places.max(initial=-1) >= len(self.levels):
            self._ahead.expect(map(self._file, places[places >= len(self.levels)]))

    def _file(self, place: np.int64) -> Path:
        return self.rest[int(place) - len(self.levels)]

    def _scaled(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        # 2 * level - top is a whole number below 2^24, so only the division rounds, and the ends are exactly -1 and 1.
        values *= 2.0
        values -= self.top
        values /= self.top
        return values

    def contents(self) -> Iterator[bytes]:
        """What stands for each record's image: its levels, or the SHA-256 of its file; `gone` without one."""
        for place in self._order.tolist():
            if place < len(self.levels):
                yield self.levels[place].astype(self.levels.dtype.newbyteorder("<"), copy=False).tobytes()
                continue
            try:
                with self.rest[place - len(self.levels)].open("rb") as file:
                    yield hashlib.file_digest(file, "sha256").digest()
            except OSError:
                yield b"gone"

    def subset(self, keep: NDArray[np.bool_] | NDArray[np.int64]) -> Images:
        """Return the images of some records, by a mask or by indices. They share their memory with the whole."""
        # The images were checked when they were made. Looking at all of them again would cost more than a few records.
        chosen = copy(self)
        object.__setattr__(chosen, "_order", self._order[keep])
        return chosen
