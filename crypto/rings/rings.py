"""The rings in which sealed vectors are added, public side: frames, sizes and addition, without any key.

Guarantees: addition is exact, coordinate by coordinate, mod the ring's modulus. A frame that was read is well formed,
and remains so after any number of additions. A sealed vector is cut into frames of `frame_values` values. Ciphertext
frames (`ckks_public`) are always whole. In the integer rings values are little-endian words mod 2^32 or 2^64, every
word is valid, and the last frame may be short. Keys, masks and the meaning of the values are left to the silos
(`sealing`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crypto.errors import FrameError
from crypto.rings import ckks_public

Kind = Literal["ckks", "ring32", "ring64"]
"""Ciphertexts, integers mod 2^32, integers mod 2^64."""


@dataclass(frozen=True)
class Ring(ABC):
    """One way to cut, check and add sealed vectors. In memory a frame is an array of unsigned words."""

    kind: Kind
    frame_values: int
    frame_bytes: int
    """Bytes of a full frame."""
    max_value: int
    """Largest magnitude of one silo's value."""
    max_sum: int
    """Largest magnitude of an opened sum."""

    @abstractmethod
    def content_size(self, values: int) -> int:
        """Return the bytes of a sealed vector of so many values."""

    @abstractmethod
    def read(self, frame: bytes | bytearray | memoryview) -> NDArray[np.unsignedinteger]:
        """Check a frame and return a copy of its words. Raises `FrameError` if this is no frame."""

    @abstractmethod
    def add(self, total: NDArray[np.unsignedinteger], addend: NDArray[np.unsignedinteger]) -> None:
        """Add the words of a frame to a total, in place. Raises `FrameError` if the lengths differ."""

    @abstractmethod
    def write(self, words: NDArray[np.unsignedinteger]) -> bytes:
        """Return the frame from which `read` gives these words."""

    def limit(self, silos: int) -> int:
        """Return the largest magnitude of one silo's value that cannot overflow in the sum of so many silos."""
        return min(self.max_value, self.max_sum // silos)


class CiphertextRing(Ring):
    """CKKS ciphertexts: a frame's words are the residues of c0, then of c1 (`ckks_public`)."""

    def content_size(self, values: int) -> int:
        """Return the bytes of whole frames; the last one is whole too."""
        return self.frame_bytes * -(-values // self.frame_values)

    def read(self, frame: bytes | bytearray | memoryview) -> NDArray[np.unsignedinteger]:
        """Return the residues of both polynomials. Each is below the prime, and c1 is not all zero."""
        return ckks_public.read_frame(frame)

    def add(self, total: NDArray[np.unsignedinteger], addend: NDArray[np.unsignedinteger]) -> None:
        """Add coefficient by coefficient mod the prime. This is the homomorphic addition itself."""
        _require_one_length(total, addend)
        ckks_public.add_residues(total, addend)

    def write(self, words: NDArray[np.unsignedinteger]) -> bytes:
        """Pack the residues."""
        return ckks_public.write_frame(words)


@dataclass(frozen=True)
class IntegerRing(Ring):
    """Integers mod a power of two, one word for each value, negative ones in two's complement."""

    word: np.dtype[np.unsignedinteger]
    """Little-endian, as on the wire."""

    def content_size(self, values: int) -> int:
        """Return the bytes of one word for each value."""
        return self.word.itemsize * values

    def read(self, frame: bytes | bytearray | memoryview) -> NDArray[np.unsignedinteger]:
        """Return 1 to `frame_values` words."""
        if not 0 < len(frame) <= self.frame_bytes or len(frame) % self.word.itemsize:
            msg = (
                f"a frame of {self.kind} has {self.word.itemsize} to {self.frame_bytes} bytes in whole words;"
                " send the upload again"
            )
            raise FrameError(msg)
        return np.frombuffer(frame, dtype=self.word).copy()

    def add(self, total: NDArray[np.unsignedinteger], addend: NDArray[np.unsignedinteger]) -> None:
        """Add mod the power of two."""
        _require_one_length(total, addend)
        np.add(total, addend, out=total)

    def write(self, words: NDArray[np.unsignedinteger]) -> bytes:
        """Return the words, little-endian."""
        return words.tobytes()


def _require_one_length(total: NDArray[np.unsignedinteger], addend: NDArray[np.unsignedinteger]) -> None:
    if total.shape != addend.shape:
        msg = "frames that are added must have the same length; let the silos send their uploads again"
        raise FrameError(msg)


RINGS: Mapping[str, Ring] = MappingProxyType(
    {
        "ckks": CiphertextRing(
            "ckks",
            frame_values=ckks_public.FRAME_VALUES,
            frame_bytes=ckks_public.FRAME_BYTES,
            max_value=ckks_public.MAX_VALUE,
            max_sum=ckks_public.MAX_SUM,
        ),
        "ring32": IntegerRing(
            "ring32",
            frame_values=1 << 15,
            frame_bytes=4 << 15,
            max_value=(1 << 31) - 1,
            max_sum=(1 << 31) - 1,
            word=np.dtype("<u4"),
        ),
        # A word could hold more than 2^46, but the linear checks would then be weaker (`checks`).
        "ring64": IntegerRing(
            "ring64",
            frame_values=1 << 14,
            frame_bytes=8 << 14,
            max_value=1 << 46,
            max_sum=1 << 46,
            word=np.dtype("<u8"),
        ),
    }
)


def ring_of(kind: str) -> Ring:
    """Return the ring of this kind. Raises `FrameError` if there is none."""
    if kind not in RINGS:
        msg = f"{kind!r} is none of the rings {', '.join(RINGS)}; both sides must run the same version of FedWard"
        raise FrameError(msg)
    return RINGS[kind]
