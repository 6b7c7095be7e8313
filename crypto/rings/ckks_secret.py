"""CKKS, secret side: the key, encryption, and opening sums. The coordinator must never import this module.

Guarantees: every encrypted value lies within the public range. Opening gives integers in range, if every decrypted
value is within `MARGIN` of its integer, and raises `OpeningRefused` otherwise. Every silo opens a sum to the same
integers. Decrypted values never leave as floating point: two ciphertexts with their raw decryptions give away the key
(Li and Micciancio 2021). SEAL exchanges objects only through files. Here these are anonymous files in memory, so
neither a key nor a ciphertext touches a disk. Masks are left to `masks`, the frame and the range law to `ckks_public`,
and SEAL's bytes to `seal_format`. `rings` makes sure that the values of so many silos fit a sum.

Error. A value of a sum errs by more than MARGIN with a probability below 2^-1000 for 64 silos and below 2^-270 for 256
(docs/design/sums.md, "Rings").
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from tenseal import sealapi

from crypto.errors import FrameError, OpeningRefused, SealError
from crypto.rings import seal_format
from crypto.rings.ckks_public import (
    DEGREE,
    FRAME_VALUES,
    MARGIN,
    MAX_SUM,
    MAX_VALUE,
    PRIME,
    PRIME_BITS,
    SCALE,
    pack,
    unpack,
)

SERIALIZED_BYTES = DEGREE * PRIME_BITS // 8


class CkksKey:
    """The secret key that a roster's silos share. `repr` prints only its kind. Threads may share it."""

    def __init__(self, secret: Any) -> None:
        """Wrap a secret key of SEAL. Callers use `create` or `from_bytes`."""
        context = _context()
        self._secret = secret
        self._encoder = sealapi.CKKSEncoder(context)
        self._encryptor = sealapi.Encryptor(context, secret)
        self._decryptor = sealapi.Decryptor(context, secret)

    @classmethod
    def create(cls) -> Self:
        """Make a fresh key."""
        return cls(sealapi.KeyGenerator(_context()).secret_key())

    def to_bytes(self) -> bytes:
        """Return the secret key's residues, 54 bits each as in a frame: 13,824 bytes."""
        return pack(seal_format.read_secret_key(_saved(self._secret)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote. Raises `SealError` for anything that cannot be a key."""
        if len(data) != SERIALIZED_BYTES:
            msg = f"a CKKS key has {SERIALIZED_BYTES} bytes; have the key package dealt again"
            raise SealError(msg)
        try:
            content = seal_format.write_secret_key(unpack(data))
        except FrameError:
            msg = "the bytes are not a CKKS key; have the key package dealt again"
            raise SealError(msg) from None
        secret = sealapi.SecretKey()
        _load(secret, content)
        return cls(secret)

    def encrypt(self, values: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Encrypt 1 to 2048 integers, each at most 2^30 in magnitude, into one ciphertext's residues, shape (4096,).

        Raises `SealError` if the type or shape is another, or a value is out of range.
        """
        if values.ndim != 1 or values.dtype != np.int64 or not 1 <= values.size <= FRAME_VALUES:
            msg = f"only a vector of 1 to {FRAME_VALUES} int64 can be encrypted at once; convert or split it first"
            raise SealError(msg)
        if values.max() > MAX_VALUE or values.min() < -MAX_VALUE:
            msg = "a value to be encrypted lies outside 2^30; clamp it to the study's bound first"
            raise SealError(msg)
        slots = np.zeros(FRAME_VALUES)
        slots[: values.size] = values
        plaintext, ciphertext = sealapi.Plaintext(), sealapi.Ciphertext()
        self._encoder.encode(slots.view(np.complex128).tolist(), SCALE, plaintext)
        self._encryptor.encrypt_symmetric(plaintext, ciphertext)
        return seal_format.read_ciphertext(_saved(ciphertext))

    def decrypt(self, residues: NDArray[np.uint64], values: int) -> NDArray[np.int64]:
        """Open one ciphertext of a sum, shape (4096,), that holds 1 to 2048 values, and return the integers.

        Raises `FrameError` if this is no ciphertext and `SealError` for another number of values. Raises
        `OpeningRefused` if a value is out of range or not an integer within the margin, or if an unused place is not
        zero. This happens if a silo's masks do not cancel.
        """
        if not 1 <= values <= FRAME_VALUES:
            msg = f"a ciphertext holds 1 to {FRAME_VALUES} values; open a longer sum frame by frame"
            raise SealError(msg)
        ciphertext, plaintext = sealapi.Ciphertext(), sealapi.Plaintext()
        _load(ciphertext, seal_format.write_ciphertext(residues))
        self._decryptor.decrypt(ciphertext, plaintext)
        slots = np.array(self._encoder.decode_complex(plaintext), dtype=np.complex128).view(np.float64)
        nearest = np.rint(slots)
        # Written so that NaN fails too. The range comes first, because every integer is a float64 only within it.
        if not (np.all(np.abs(slots) <= MAX_SUM + MARGIN) and np.all(np.abs(slots - nearest) <= MARGIN)):
            msg = (
                "the sum does not consist of integers in range: a silo is missing, is counted twice or saw another"
                " round; begin a new attempt"
            )
            raise OpeningRefused(msg)
        if nearest[values:].any():
            msg = "the sum holds values beyond its length: a silo ran another study; begin a new attempt"
            raise OpeningRefused(msg)
        return nearest[:values].astype(np.int64)

    def __repr__(self) -> str:
        return "CkksKey(secret)"


@functools.cache
def _context() -> Any:
    return _new_context(PRIME)


def _new_context(prime: int) -> Any:
    """Return SEAL's context of our degree and this prime. `SealError` if SEAL finds less than 128-bit security."""
    parameters = sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.CKKS)
    parameters.set_poly_modulus_degree(DEGREE)
    parameters.set_coeff_modulus([sealapi.Modulus(prime)])
    context = sealapi.SEALContext(parameters, False, sealapi.SEC_LEVEL_TYPE.TC128)  # noqa: FBT003  # SEAL's signature
    if not context.parameters_set():
        msg = (
            f"SEAL refuses the parameters: {context.parameters_error_message()}; install the versions that"
            " constraints.txt names"
        )
        raise SealError(msg)
    return context


@contextmanager
def _memory_file() -> Iterator[tuple[int, str]]:
    """Give the descriptor of an anonymous file in memory, and a path for SEAL. The file is gone afterwards."""
    descriptor = os.memfd_create("seal")
    try:
        yield descriptor, f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _saved(thing: Any) -> bytes:
    """Return a SEAL object's bytes. If there are too many, only the beginning is returned, and reading it fails."""
    with _memory_file() as (descriptor, path):
        thing.save(path)
        return os.pread(descriptor, seal_format.MAX_OBJECT, 0)


def _load(thing: Any, content: bytes) -> None:
    with _memory_file() as (descriptor, path):
        os.pwrite(descriptor, content, 0)
        thing.load(_context(), path)
