"""The bytes of TenSEAL 0.3.18 and SEAL 4.3, read and written strictly. The only place that knows them.

Guarantees: TenSEAL sees no byte that was not written here. What is read has exactly the fields, header, parameters
and lengths of our parameter set, decompresses to no more than it should, and its residues are reduced; everything
else gives `FrameError`. (TenSEAL itself accepts foreign keys, changed scales, transparent ciphertexts and lengths
that make it read out of bounds: design, sealed-sums.md, "What breaks it".) Leaves encryption to `ckks_secret`.

Layouts. A vector is a protobuf message: 1 packed sizes, 2 ciphertext, 3 scale. A context: 1 parameters, 2 public
facts, 3 private part (1 secret key), 4 kind of encryption. A SEAL object is a 16-byte header (magic, header size,
version, compression, reserved, size) and a body, which holds the `parms_id`: BLAKE2b-256 of scheme, degree, primes
and plain modulus.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import NoReturn

import numpy as np
import zstandard
from numpy.typing import NDArray

from crypto.ckks_public import DEGREE, FRAME_VALUES, FRAME_WORDS, PRIME, SCALE, SPECIAL_PRIME
from crypto.errors import FrameError

_HEADER = struct.Struct("<HBBBBHQ")
_MAGIC = 0xA15E
_VERSION = (4, 3)
_PLAIN, _ZSTD = 0, 2
_MAX_WINDOW = 1 << 23
_CIPHERTEXT = struct.Struct("<32sBQQQdQ")  # parms_id, NTT form, polynomials, degree, primes, scale, correction factor
_KEY = struct.Struct("<32sQd")  # parms_id, coefficients, scale
_VARINT, _FIXED64, _LENGTH = 0, 1, 2
_VECTOR_SIZES, _VECTOR_CIPHERTEXT, _VECTOR_SCALE = 1, 2, 3
_CONTEXT_PRIVATE, _PRIVATE_KEY = 3, 1


def _parms_id(*primes: int) -> bytes:
    scheme_ckks, plain_modulus = 2, 0
    words = (scheme_ckks, DEGREE, *primes, plain_modulus)
    return hashlib.blake2b(struct.pack(f"<{len(words)}Q", *words), digest_size=32).digest()


_CIPHERTEXT_FACTS = (_parms_id(PRIME), 1, 2, DEGREE, 1, SCALE, 1)
_KEY_FACTS = (_parms_id(PRIME, SPECIAL_PRIME), 2 * DEGREE, 1.0)
_KEY_PRIMES = np.array([[PRIME], [SPECIAL_PRIME]], dtype=np.uint64)


def read_vector(envelope: bytes) -> NDArray[np.uint64]:
    """Return the residues, shape (2, 1, 4096), of a TenSEAL CKKS vector of one full ciphertext. Raises `FrameError`."""
    expected = [(_VECTOR_SIZES, _LENGTH), (_VECTOR_CIPHERTEXT, _LENGTH), (_VECTOR_SCALE, _FIXED64)]
    found = list(_fields(envelope))
    if [(field, wire) for field, wire, _ in found] != expected:
        _refuse("envelope")
    sizes, ciphertext, scale = (value for _, _, value in found)
    if sizes != _varint(FRAME_VALUES) or scale != struct.pack("<d", SCALE):
        _refuse("envelope")
    body = _read_object(ciphertext, _CIPHERTEXT.size + _HEADER.size + 8 + 8 * FRAME_WORDS)
    residues = _read_words(body, _CIPHERTEXT, _CIPHERTEXT_FACTS).reshape(2, 1, DEGREE)
    if int(residues.max()) >= PRIME or not residues[1].any():
        _refuse("ciphertext")
    return residues


def write_vector(residues: NDArray[np.uint64]) -> bytes:
    """Write residues, shape (2, 1, 4096), as a TenSEAL CKKS vector. Raises `FrameError` for another shape."""
    if residues.shape != (2, 1, DEGREE):
        _refuse("ciphertext")
    sizes = _varint(FRAME_VALUES)
    ciphertext = _write_words(_CIPHERTEXT, _CIPHERTEXT_FACTS, residues)
    return b"".join(
        [
            _field(_VECTOR_SIZES, sizes),
            _field(_VECTOR_CIPHERTEXT, ciphertext),
            _varint(_VECTOR_SCALE << 3 | _FIXED64) + struct.pack("<d", SCALE),
        ]
    )


def read_secret_key(context: bytes) -> NDArray[np.uint64]:
    """Return the secret key's residues, shape (2, 4096), from a TenSEAL context made here. Raises `FrameError`."""
    private = [value for field, wire, value in _fields(context) if (field, wire) == (_CONTEXT_PRIVATE, _LENGTH)]
    inner = list(_fields(private[0])) if len(private) == 1 else []
    if [(field, wire) for field, wire, _ in inner] != [(_PRIVATE_KEY, _LENGTH)]:
        _refuse("context")
    body = _read_object(inner[0][2], _KEY.size + _HEADER.size + 8 + 16 * DEGREE)
    residues = _read_words(body, _KEY, _KEY_FACTS).reshape(2, DEGREE)
    check_key(residues)
    return residues


def replace_secret_key(context: bytes, residues: NDArray[np.uint64]) -> bytes:
    """Return the context with another secret key, shape (2, 4096). Raises `FrameError` for impossible residues."""
    check_key(residues)
    pieces = []
    for field, wire, value in _fields(context):
        if (field, wire) == (_CONTEXT_PRIVATE, _LENGTH):
            pieces.append(_field(field, _field(_PRIVATE_KEY, _write_words(_KEY, _KEY_FACTS, residues))))
        elif wire == _LENGTH:
            pieces.append(_field(field, value))
        else:
            pieces.append(_varint(field << 3 | wire) + value)
    return b"".join(pieces)


def check_key(residues: NDArray[np.uint64]) -> None:
    """Raise `FrameError` unless these can be a secret key: reduced, and nowhere zero (which would hide nothing)."""
    if residues.shape != (2, DEGREE) or (residues >= _KEY_PRIMES).any() or not residues.all():
        _refuse("secret key")


def _refuse(what: str) -> NoReturn:
    msg = f"the {what} is not of our parameter set and SEAL version; all silos must run the same version of FedWard"
    raise FrameError(msg) from None


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004  # seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH) + _varint(len(content)) + content


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift >= 64:  # noqa: PLR2004  # protobuf's integers have 64 bits
            _refuse("envelope")
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004  # the last byte has no continuation bit
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield field number, wire type and raw value (a varint as its own bytes) of one protobuf message."""
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire = tag & 7
        begin = at
        if wire == _VARINT:
            _, at = _read_varint(data, at)
        elif wire == _FIXED64:
            at += 8
        elif wire == _LENGTH:
            size, begin = _read_varint(data, at)
            at = begin + size
        else:
            _refuse("envelope")
        if at > len(data):
            _refuse("envelope")
        yield tag >> 3, wire, data[begin:at]


def _read_object(data: bytes, size: int) -> bytes:
    """Return the body of one SEAL object, of exactly `size` bytes after bounded decompression."""
    if len(data) < _HEADER.size:
        _refuse("header")
    magic, header, major, minor, compression, reserved, whole = _HEADER.unpack_from(data)
    if (magic, header, (major, minor), reserved, whole) != (_MAGIC, _HEADER.size, _VERSION, 0, len(data)):
        _refuse("header")
    body = data[_HEADER.size :]
    if compression == _ZSTD:
        body = _decompress(body, size)
    elif compression != _PLAIN:
        _refuse("header")
    if len(body) != size:
        _refuse("object")
    return body


def _decompress(data: bytes, size: int) -> bytes:
    out = bytearray()
    try:
        with zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(data) as reader:
            # One byte more than allowed is enough to see that there is too much.
            while len(out) <= size and (chunk := reader.read(size + 1 - len(out))):
                out += chunk
    except zstandard.ZstdError:
        _refuse("compressed object")
    return bytes(out)


def _read_words(body: bytes, layout: struct.Struct, facts: tuple[bytes | int | float, ...]) -> NDArray[np.uint64]:
    words = (len(body) - layout.size - _HEADER.size - 8) // 8
    array = _HEADER.pack(_MAGIC, _HEADER.size, *_VERSION, _PLAIN, 0, _HEADER.size + 8 + 8 * words)
    if body[: -8 * words] != layout.pack(*facts) + array + struct.pack("<Q", words):
        _refuse("object")
    return np.frombuffer(body, dtype="<u8", count=words, offset=len(body) - 8 * words).astype(np.uint64)


def _write_words(layout: struct.Struct, facts: tuple[bytes | int | float, ...], words: NDArray[np.uint64]) -> bytes:
    array = struct.pack("<Q", words.size) + np.ascontiguousarray(words, dtype="<u8").tobytes()
    body = layout.pack(*facts) + _HEADER.pack(_MAGIC, _HEADER.size, *_VERSION, _PLAIN, 0, _HEADER.size + len(array))
    body += array
    return _HEADER.pack(_MAGIC, _HEADER.size, *_VERSION, _PLAIN, 0, _HEADER.size + len(body)) + body
