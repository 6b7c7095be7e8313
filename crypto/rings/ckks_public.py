"""CKKS, public side: the parameter set, frames, and adding ciphertexts without any key or homomorphic library.

Guarantees: `add_residues` is the homomorphic addition itself (coefficientwise, mod the prime), bit-identical to SEAL's.
The residues that `read_frame` returns are reduced and not transparent, and have exactly one frame, which `write_frame`
gives back. Encryption and opening are left to the silos (`ckks_secret`), masks to `masks`, and the size of a silo's
values to `rings`.

Parameters: the ring degree is 2048 with one prime of 54 bits, the 128-bit bound for that degree (classical,
homomorphicencryption.org; SEAL enforces it). Encryption is symmetric. Ciphertexts are only added, so there is no
key-switching prime. A ciphertext carries 1024 complex slots: value 2j is the real part of slot j, value 2j + 1 its
imaginary part.

Range law. Values of a sum that are at most MAX_SUM in magnitude give coefficients of at most 2^52.5, which is
below PRIME / 2. Each ciphertext adds an error of at most 22 to a coefficient, so a sum in range never wraps around
(docs/design/sums.md, "Rings").

Frame. Residue i of (c0, c1), 2 x 2048 of them, is bits 54 i to 54 i + 53 of the frame read as one little-endian
integer: four residues are 27 bytes. Every bit is used, so the residues have no other frame.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from crypto.canonical import canonical
from crypto.errors import FrameError

DEGREE = 2048
PRIME = 18014398509404161
PRIME_BITS = 54
SCALE = 2.0**17
FRAME_VALUES = DEGREE
"""Values in one ciphertext, two in each complex slot."""
RESIDUES = 2 * DEGREE
"""Residues in one ciphertext: c0, then c1."""
FRAME_BYTES = RESIDUES * PRIME_BITS // 8
MAX_VALUE = 1 << 30
"""Largest magnitude of one silo's value."""
MAX_SUM = 1 << 35
"""Largest magnitude of an opened sum: 32 silos at `MAX_VALUE`, or more silos at less."""
MARGIN = 0.25
"""Largest distance of an opened value from an integer."""

PARAMETERS_DIGEST = hashlib.sha256(
    canonical("ckks parameters", DEGREE, PRIME, int(SCALE), FRAME_VALUES, FRAME_BYTES, MAX_VALUE, MAX_SUM)
).hexdigest()
"""The name of this parameter set. Every key package carries it."""

_GROUP, _GROUP_BYTES = 4, 4 * PRIME_BITS // 8
_MASK = np.uint64((1 << PRIME_BITS) - 1)


def read_frame(frame: bytes | bytearray | memoryview) -> NDArray[np.uint64]:
    """Return the residues of one ciphertext, shape (4096,), c0 then c1.

    Raises `FrameError` unless the length is right, every residue is below the prime, and c1 is not all zero.
    """
    if len(frame) != FRAME_BYTES:
        msg = f"a ciphertext frame has {FRAME_BYTES} bytes; send the upload again"
        raise FrameError(msg)
    residues = unpack(frame)
    check_residues(residues)
    return residues


def write_frame(residues: NDArray[np.uint64]) -> bytes:
    """Return the frame of one ciphertext's residues, shape (4096,). Raises `FrameError` if they have no frame."""
    check_residues(residues)
    return pack(residues)


def check_residues(residues: NDArray[np.uint64]) -> None:
    """Raise `FrameError` unless these are a ciphertext's: uint64, shape (4096,), reduced, c1 not all zero."""
    if residues.dtype != np.uint64 or residues.shape != (RESIDUES,):
        msg = f"a ciphertext has {RESIDUES} residues of 64 bits; both sides must run the same version of FedWard"
        raise FrameError(msg)
    if int(residues.max()) >= PRIME:
        msg = "a residue of a ciphertext is not reduced; both sides must run the same version of FedWard"
        raise FrameError(msg)
    if not residues[DEGREE:].any():
        msg = "a ciphertext is transparent: it hides nothing; both sides must run the same version of FedWard"
        raise FrameError(msg)


def add_residues(accumulator: NDArray[np.uint64], addend: NDArray[np.uint64]) -> None:
    """Add residues below the prime, in place. The prime has 54 bits, so the sum of two never overflows 64."""
    np.add(accumulator, addend, out=accumulator)
    # If the sum is below the prime, the subtraction wraps around to a huge word. So the smaller of the two is right.
    np.minimum(accumulator, accumulator - np.uint64(PRIME), out=accumulator)


def pack(residues: NDArray[np.uint64]) -> bytes:
    """Pack residues below 2^54, a multiple of four of them, into 27 bytes for every four."""
    packed = bytearray(residues.size // _GROUP * _GROUP_BYTES)
    r0, r1, r2, r3 = np.ascontiguousarray(residues.reshape(-1, _GROUP).T)
    _words(packed, 0)[:] = r0 | r1 << 54
    _words(packed, 8)[:] = r1 >> 10 | r2 << 44
    _words(packed, 16)[:] = r2 >> 20 | r3 << 34
    # The last 24 bits are written with the 40 before them. A word from byte 24 on would reach into the next group.
    _words(packed, 19)[:] = r2 >> 44 | r3 << 10
    return bytes(packed)


def unpack(packed: bytes | bytearray | memoryview) -> NDArray[np.uint64]:
    """Return the residues, below 2^54, of a multiple of 27 bytes."""
    residues = np.empty((len(packed) // _GROUP_BYTES, _GROUP), dtype=np.uint64)
    # Each residue lies within eight bytes of its group. A pair says where those bytes begin and at which bit it begins.
    for index, (begin, bit) in enumerate(((0, 0), (6, 6), (13, 4), (19, 10))):
        residues[:, index] = _words(packed, begin) >> bit
    residues &= _MASK
    return residues.reshape(-1)


def _words(packed: bytes | bytearray | memoryview, begin: int) -> NDArray[np.uint64]:
    """View the 64-bit word at one byte of every group."""
    groups = len(packed) // _GROUP_BYTES
    return np.ndarray((groups,), dtype="<u8", buffer=packed, offset=begin, strides=(_GROUP_BYTES,))
