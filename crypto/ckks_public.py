"""CKKS, public side: the parameter set, and adding ciphertexts without any key or homomorphic library.

Guarantees: `add_frames` is the homomorphic addition itself (coefficientwise, mod the data prime), bit-identical to
TenSEAL's; after `check_frame` every residue is reduced and the ciphertext is not transparent. A frame is the residues
of (c0, c1), 2 x 4096 little-endian uint64 below the prime, and nothing else. Leaves encryption, masks and opening to
the silos (`ckks_secret`, `pads`).

Parameters: ring degree 4096 with 109 bits of modulus in all, the 128-bit bound (classical, homomorphicencryption.org);
symmetric encryption; the last prime is SEAL's key-switching prime, which no ciphertext carries. Values are integers,
at scale 2^20: a sum up to 2^38 in magnitude stays below half the data prime, and its error far below one half.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from crypto.canonical import canonical
from crypto.errors import FrameError

DEGREE = 4096
PRIME = 1152921504606830593
SPECIAL_PRIME = 562949953216513
COEFFICIENT_BITS = (60, 49)
SCALE = 2.0**20
FRAME_VALUES = DEGREE // 2
"""Real slots of one ciphertext."""
FRAME_WORDS = 2 * DEGREE
FRAME_BYTES = 8 * FRAME_WORDS
MAX_VALUE = 1 << 30
"""Largest magnitude of one silo's value."""
MAX_SUM = 1 << 38
"""Largest magnitude of an opened sum: 256 silos at `MAX_VALUE`."""
MARGIN = 0.25
"""An opened value must lie this close to an integer."""

PARAMETERS_DIGEST = hashlib.sha256(
    canonical("ckks parameters", DEGREE, PRIME, SPECIAL_PRIME, int(SCALE), FRAME_VALUES, MAX_VALUE, MAX_SUM)
).hexdigest()
"""Names this parameter set; stands in every key package."""


def frames(values: int) -> int:
    """Ciphertexts that carry so many values."""
    return -(-values // FRAME_VALUES)


def content_size(values: int) -> int:
    """Bytes of a sealed vector of so many values."""
    return FRAME_BYTES * frames(values)


def check_frame(frame: bytes | bytearray | memoryview) -> None:
    """Raise `FrameError` unless this is one ciphertext: length, every residue below the prime, c1 not all zero."""
    if len(frame) != FRAME_BYTES:
        msg = f"a ciphertext frame has {FRAME_BYTES} bytes; send the upload again"
        raise FrameError(msg)
    residues = np.frombuffer(frame, dtype="<u8")
    _check_reduced(residues)
    if not residues[DEGREE:].any():
        msg = "a ciphertext frame is transparent: it hides nothing; both sides must run the same version of FedWard"
        raise FrameError(msg)


def add_frames(total: bytearray | memoryview, frame: bytes | bytearray | memoryview) -> None:
    """Add ciphertexts to a total of the same length, in place, mod the data prime.

    Raises `FrameError` where lengths differ or a residue of either is not reduced; the total is then unchanged.
    """
    if len(total) != len(frame) or len(frame) % FRAME_BYTES:
        msg = "ciphertexts that are added have one length in whole frames; send the upload again"
        raise FrameError(msg)
    accumulator, addend = np.frombuffer(total, dtype="<u8"), np.frombuffer(frame, dtype="<u8")
    _check_reduced(accumulator)
    _check_reduced(addend)
    add_residues(accumulator, addend)


def add_residues(accumulator: NDArray[np.uint64], addend: NDArray[np.uint64]) -> None:
    """Add residues below the prime, in place. The prime has 60 bits, so the sum of two never overflows 64."""
    np.add(accumulator, addend, out=accumulator)
    # Where the sum is below the prime the subtraction wraps around to a huge word, so the smaller one is right.
    np.minimum(accumulator, accumulator - np.uint64(PRIME), out=accumulator)


def _check_reduced(residues: NDArray[np.uint64]) -> None:
    if residues.size and int(residues.max()) >= PRIME:
        msg = "a residue of a ciphertext frame is not reduced; both sides must run the same version of FedWard"
        raise FrameError(msg)
