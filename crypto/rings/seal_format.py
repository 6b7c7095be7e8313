"""The byte format of SEAL 4.3, as packaged by TenSEAL 0.3.18. Only this module knows it; it reads and writes strictly.

Guarantees: SEAL loads no byte that was not written here. An object that was read has exactly the header, parameters and
lengths of our parameter set, decompresses to no more than it should and ends where it should. Its residues are reduced.
Every other object gives `FrameError`. (SEAL itself accepts changed scales and transparent ciphertexts:
docs/design/sums.md, "What breaks it".) Encryption is left to `ckks_secret`.

Layouts, little-endian. An object is a header of 16 bytes (magic, header size, version, compression, reserved, size of
the whole object) and a body. The body is compressed with zstd if SEAL wrote it, and plain if this module did. It holds
the facts and then an array (a plain header, the number of words, the words). The facts of a ciphertext are parms_id,
NTT form, polynomials, degree, primes, scale and correction factor; those of a secret key are parms_id, words and scale.
The residues of both are in NTT form. With one prime there is no key level, so both carry the same parms_id: BLAKE2b-256
of scheme, degree, primes and plain modulus as 64-bit words.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NoReturn

import numpy as np
import zstandard
from numpy.typing import NDArray

from crypto.errors import FrameError
from crypto.rings.ckks_public import DEGREE, PRIME, RESIDUES, SCALE, check_residues

_HEADER = struct.Struct("<HBBBBHQ")
_MAGIC = 0xA15E
_VERSION = (4, 3)
_PLAIN, _ZSTD = 0, 2
_COUNT = struct.Struct("<Q")
_SCHEME_CKKS, _NO_PLAIN_MODULUS = 2, 0
_PARMS_ID = hashlib.blake2b(struct.pack("<4Q", _SCHEME_CKKS, DEGREE, PRIME, _NO_PLAIN_MODULUS), digest_size=32).digest()


def _header(size: int, compression: int = _PLAIN) -> bytes:
    return _HEADER.pack(_MAGIC, _HEADER.size, *_VERSION, compression, 0, _HEADER.size + size)


def _opening(facts: bytes, words: int) -> bytes:
    """Return the part of a body that precedes the words."""
    return facts + _header(_COUNT.size + 8 * words) + _COUNT.pack(words)


_CIPHERTEXT = _opening(struct.pack("<32sBQQQdQ", _PARMS_ID, 1, 2, DEGREE, 1, SCALE, 1), RESIDUES)
_SECRET_KEY = _opening(struct.pack("<32sQd", _PARMS_ID, DEGREE, 1.0), DEGREE)

MAX_OBJECT = 1 << 16
"""All our objects are smaller, compressed or not, so reading this many bytes of a file is enough."""


def read_ciphertext(data: bytes) -> NDArray[np.uint64]:
    """Return the residues, shape (4096,), c0 then c1, of a ciphertext as SEAL saves it. Raises `FrameError`."""
    residues = _read(data, _CIPHERTEXT, RESIDUES)
    check_residues(residues)
    return residues


def write_ciphertext(residues: NDArray[np.uint64]) -> bytes:
    """Return residues, shape (4096,), as a ciphertext that SEAL loads. Raises `FrameError` if they cannot be one."""
    check_residues(residues)
    return _write(_CIPHERTEXT, residues)


def read_secret_key(data: bytes) -> NDArray[np.uint64]:
    """Return the residues, shape (2048,), of a secret key as SEAL saves it. Raises `FrameError`."""
    residues = _read(data, _SECRET_KEY, DEGREE)
    _check_key(residues)
    return residues


def write_secret_key(residues: NDArray[np.uint64]) -> bytes:
    """Return residues, shape (2048,), as a secret key that SEAL loads. Raises `FrameError` if they cannot be one."""
    _check_key(residues)
    return _write(_SECRET_KEY, residues)


def _check_key(residues: NDArray[np.uint64]) -> None:
    # If a residue of the key were zero, one residue of every plaintext would be in the clear.
    if residues.shape != (DEGREE,) or int(residues.max()) >= PRIME or not residues.all():
        _refuse("secret key")


def _refuse(what: str) -> NoReturn:
    msg = f"the {what} has other parameters or another SEAL version; all silos must run the same version of FedWard"
    raise FrameError(msg) from None


def _read(data: bytes, opening: bytes, words: int) -> NDArray[np.uint64]:
    size = len(opening) + 8 * words
    body = _read_body(data, size)
    if len(body) != size or not body.startswith(opening):
        _refuse("object")
    return np.frombuffer(body, dtype="<u8", offset=len(opening)).astype(np.uint64)


def _read_body(data: bytes, size: int) -> bytes:
    """Return the body of one object. A compressed body must announce and hold exactly `size` bytes."""
    content = data[_HEADER.size :]
    if data.startswith(_header(len(content), _PLAIN)):
        return content
    if not data.startswith(_header(len(content), _ZSTD)):
        _refuse("header")
    try:
        # The announced size is checked first, because that much memory is reserved before anything is decompressed.
        frame = zstandard.get_frame_parameters(content)
        if (frame.content_size, frame.window_size) != (size, size):
            _refuse("compressed object")
        return zstandard.ZstdDecompressor().decompress(content, allow_extra_data=False)
    except zstandard.ZstdError:
        _refuse("compressed object")


def _write(opening: bytes, words: NDArray[np.uint64]) -> bytes:
    body = opening + words.astype("<u8").tobytes()
    return _header(len(body)) + body
