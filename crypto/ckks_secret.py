"""CKKS, secret side: the key, encryption, and opening sums. The coordinator must never import this module.

Guarantees: what is encrypted lies within the public range; what is opened is an integer vector, each value well
within half of the distance between two integers and in range, or `OpeningRefused` is raised; an opened sum is the
same integers at every silo. Decrypted values never leave as floating point: two ciphertexts with their raw decryptions
give away the key (Li and Micciancio 2021). Leaves masks to `pads` and the wire's frame to `ckks_public`.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import tenseal
from numpy.typing import NDArray

from crypto import seal_format
from crypto.ckks_public import (
    COEFFICIENT_BITS,
    DEGREE,
    FRAME_BYTES,
    FRAME_VALUES,
    MARGIN,
    MAX_SUM,
    MAX_VALUE,
    SCALE,
    check_frame,
    content_size,
)
from crypto.errors import FrameError, OpeningRefused, SealError

# The special prime has 49 bits: its residues travel without their highest, always zero, byte.
_DATA_BYTES, _SPECIAL_BYTES = 8, 7
SERIALIZED_BYTES = DEGREE * (_DATA_BYTES + _SPECIAL_BYTES)


class CkksKey:
    """The secret key that a roster's silos share. Prints only its kind."""

    def __init__(self, context: Any) -> None:
        """Wrap a TenSEAL context; use `create` or `from_bytes`."""
        self._context = context

    @classmethod
    def create(cls) -> Self:
        """Make a fresh key."""
        return cls(_new_context())

    def to_bytes(self) -> bytes:
        """Return the secret key's residues, 61,440 bytes: 8 bytes each mod the data prime, then 7 mod the special."""
        residues = seal_format.read_secret_key(_serialize(self._context))
        special = residues[1].astype("<u8").view(np.uint8).reshape(DEGREE, 8)[:, :_SPECIAL_BYTES]
        return b"".join([residues[0].astype("<u8").tobytes(), special.tobytes()])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote. Raises `SealError` for anything that cannot be a key."""
        if len(data) != SERIALIZED_BYTES:
            msg = f"a CKKS key has {SERIALIZED_BYTES} bytes; have the key package dealt again"
            raise SealError(msg)
        special = np.zeros((DEGREE, 8), dtype=np.uint8)
        special[:, :_SPECIAL_BYTES] = np.frombuffer(data, np.uint8, offset=DEGREE * _DATA_BYTES).reshape(DEGREE, -1)
        residues = np.stack([np.frombuffer(data, "<u8", DEGREE), special.view("<u8").reshape(DEGREE)])
        try:
            context = seal_format.replace_secret_key(_serialize(_new_context()), residues.astype(np.uint64))
        except FrameError:
            msg = "the bytes are no CKKS key; have the key package dealt again"
            raise SealError(msg) from None
        return cls(tenseal.context_from(context))

    def encrypt(self, values: NDArray[np.int64]) -> bytes:
        """Encrypt a vector of integers, each at most 2^30 in magnitude; `ckks_public.content_size` bytes.

        Raises `SealError` for another type or shape or a value out of range.
        """
        if values.ndim != 1 or values.dtype != np.int64:
            msg = "a vector of int64 is encrypted; convert it first"
            raise SealError(msg)
        if values.size and (values.max() > MAX_VALUE or values.min() < -MAX_VALUE):
            msg = "a value to be encrypted lies outside 2^30; clamp it to the study's bound first"
            raise SealError(msg)
        pieces = []
        for begin in range(0, values.size, FRAME_VALUES):
            slots = np.zeros(FRAME_VALUES)
            part = values[begin : begin + FRAME_VALUES]
            slots[: part.size] = part
            vector = tenseal.ckks_vector(self._context, slots)
            pieces.append(seal_format.read_vector(vector.serialize()).astype("<u8").tobytes())
        return b"".join(pieces)

    def decrypt(self, frames: bytes, values: int) -> NDArray[np.int64]:
        """Open a sum of so many values and return the integers.

        Raises `FrameError` for malformed frames, `OpeningRefused` where a value (or an unused slot, which holds zero)
        is no integer within the margin or out of range: as it is when a silo's masks do not cancel.
        """
        if len(frames) != content_size(values):
            msg = "the sum has another length than the study gives it; fetch it again"
            raise FrameError(msg)
        slots = np.empty(len(frames) // FRAME_BYTES * FRAME_VALUES)
        for index, begin in enumerate(range(0, len(frames), FRAME_BYTES)):
            frame = frames[begin : begin + FRAME_BYTES]
            check_frame(frame)
            residues = np.frombuffer(frame, dtype="<u8").astype(np.uint64).reshape(2, 1, DEGREE)
            vector = tenseal.ckks_vector_from(self._context, seal_format.write_vector(residues))
            slots[index * FRAME_VALUES : (index + 1) * FRAME_VALUES] = vector.decrypt()
        nearest = np.rint(slots)
        # Written so that NaN, too, fails.
        if not (np.all(np.abs(slots - nearest) <= MARGIN) and np.all(np.abs(nearest) <= MAX_SUM)):
            msg = "the sum is not of integers in range: a silo is missing, doubled, or saw another round; begin anew"
            raise OpeningRefused(msg)
        if nearest[values:].any():
            msg = "the sum holds values beyond its length: a silo ran another study; begin anew"
            raise OpeningRefused(msg)
        return nearest[:values].astype(np.int64)

    def __repr__(self) -> str:
        return "CkksKey(secret)"


def _new_context() -> Any:
    context = tenseal.context(
        tenseal.SCHEME_TYPE.CKKS,
        DEGREE,
        coeff_mod_bit_sizes=list(COEFFICIENT_BITS),
        encryption_type=tenseal.ENCRYPTION_TYPE.SYMMETRIC,
    )
    context.global_scale = SCALE
    return context


def _serialize(context: Any) -> bytes:
    data: bytes = context.serialize(
        save_public_key=False, save_secret_key=True, save_galois_keys=False, save_relin_keys=False
    )
    return data
