"""Key stream: the same secret and label give the same numbers on both sides, and nothing else does.

Guarantees: a stream is AES-256 in counter mode under a key derived by HKDF-SHA256 from (key, label), so the streams of
two labels never share bytes. Uniform numbers are exactly uniform, by rejection. The same calls in the same order give
the same numbers on every machine. A forked process cannot continue a stream of its parent, which may continue it too.
The callers make sure that no label is used twice.
"""

from __future__ import annotations

import builtins
import os

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from crypto.canonical import canonical
from crypto.errors import SealError
from crypto.hkdf import KEY_BYTES, derive

_ZEROS = memoryview(bytes(1 << 16))
"""The zeros whose encryption is the stream, in a piece that is small enough for the processor's cache."""


class KeyStream:
    """A sequential stream. Each call continues where the last one stopped."""

    def __init__(self, key: bytes, label: bytes) -> None:
        """Start the stream of a 32-byte secret for a label. Raises `SealError` if the secret has another length."""
        if len(key) != KEY_BYTES:
            msg = f"a stream's secret has {KEY_BYTES} bytes; deal the study's keys again"
            raise SealError(msg)
        # The derived key serves this stream alone, so its counter may start at zero.
        cipher = Cipher(algorithms.AES(derive(key, canonical("stream", label))), modes.CTR(builtins.bytes(16)))
        self._encryptor, self._process = cipher.encryptor(), os.getpid()

    def bytes(self, n: int) -> builtins.bytes:
        """Return the next n bytes. Raises `SealError` in any process but the one that began the stream."""
        self._require_same_process()
        return self._encryptor.update(builtins.bytes(n))

    def fill(self, out: NDArray[np.unsignedinteger]) -> None:
        """Overwrite a contiguous array with the next bytes. They are little-endian words; so must the array's type be.

        Raises `SealError` in any process but the one that began the stream.
        """
        self._require_same_process()
        view = out.view(np.uint8)
        for begin in range(0, view.size, len(_ZEROS)):
            part = view[begin : begin + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: part.size], part.data)

    def words32(self, n: int) -> NDArray[np.uint32]:
        """Return the next 4n bytes as n uniform uint32."""
        return self._words(n, np.dtype("<u4")).astype(np.uint32, copy=False)

    def words64(self, n: int) -> NDArray[np.uint64]:
        """Return the next 8n bytes as n uniform uint64."""
        return self._words(n, np.dtype("<u8")).astype(np.uint64, copy=False)

    def uniform(self, q: int, n: int) -> NDArray[np.uint64]:
        """Return n numbers that are exactly uniform in [0, q), for 1 <= q <= 2^64.

        Each word is cut to the bits of q - 1 and drawn again if it is not below q. Raises `SealError` for any other q.
        """
        if not 1 <= q <= 1 << 64:
            msg = "a uniform number needs a modulus between 1 and 2^64"
            raise SealError(msg)
        mask, last = np.uint64((1 << (q - 1).bit_length()) - 1), np.uint64(q - 1)
        drawn = self.words64(n)
        np.bitwise_and(drawn, mask, out=drawn)
        # For a modulus just below a power of two, misfits are rare. Looking for one is then cheaper than listing them.
        misfits = np.flatnonzero(drawn > last) if n and drawn.max() > last else np.empty(0, np.intp)
        while misfits.size:
            again = self.words64(misfits.size) & mask
            drawn[misfits] = again
            misfits = misfits[again > last]
        return drawn

    def _words(self, n: int, dtype: np.dtype[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        words = np.empty(n, dtype)
        self.fill(words)
        return words

    def _require_same_process(self) -> None:
        if os.getpid() != self._process:
            msg = "a forked process would repeat the numbers of its parent; begin a new stream in the forked process"
            raise SealError(msg)

    def __repr__(self) -> str:
        return "KeyStream(secret)"
