"""Shamir's secret sharing (Shamir 1979) of 32-byte secrets over the prime field of p = 2^256 + 297. Silos only.

Guarantees: any `threshold` shares of one dealing give the secret. Fewer shares say nothing about the secret, because
the polynomial's other coefficients are uniform in [0, p), by rejection. The callers must authenticate shares: a wrong
share gives another secret, not an error (`unmasking` checks commitments).

p is the smallest prime above 2^256, so every 32-byte secret is a field element. A share needs one bit more than 32
bytes, and so takes 33.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from crypto.entropy import Entropy
from crypto.errors import SealError
from crypto.secagg.layout import SHARE_BYTES

PRIME = (1 << 256) + 297
SECRET_BYTES = 32

_TOP = (1 << PRIME.bit_length()) - 1


def split(secret: bytes, threshold: int, holders: int, entropy: Entropy) -> list[bytes]:
    """Return the shares of holders 1 to `holders`: the polynomial's values at 1, 2, ..., 33 bytes big-endian each.

    Raises `SealError` unless the secret has 32 bytes and 1 <= threshold <= holders < p.
    """
    if len(secret) != SECRET_BYTES or not 1 <= threshold <= holders < PRIME:
        msg = (
            f"sharing needs a secret of {SECRET_BYTES} bytes and a threshold from 1 to the number of holders; fix the"
            " secret or the threshold"
        )
        raise SealError(msg)
    coefficients = [int.from_bytes(secret), *(_uniform(entropy) for _ in range(threshold - 1))]
    return [_value(coefficients, x).to_bytes(SHARE_BYTES) for x in range(1, holders + 1)]


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret from the shares of the `threshold` holders with the lowest numbers.

    `shares` maps a holder's number, from 1, to its share. Raises `SealError` for too few shares, for a malformed share,
    and if the shares do not combine to a 32-byte secret.
    """
    used = {x: int.from_bytes(shares[x]) for x in sorted(shares)[:threshold]}
    fits = all(0 < x < PRIME and len(shares[x]) == SHARE_BYTES and y < PRIME for x, y in used.items())
    if not fits or not 1 <= threshold == len(used):
        msg = f"a secret needs {threshold} shares of {SHARE_BYTES} bytes from different holders; collect more shares"
        raise SealError(msg)
    secret = sum(y * weight for y, weight in zip(used.values(), _weights(tuple(used)), strict=True)) % PRIME
    if secret >= 1 << (8 * SECRET_BYTES):
        msg = "the shares do not come from one dealing; ask the silo that dealt them why"
        raise SealError(msg)
    return secret.to_bytes(SECRET_BYTES)


def _uniform(entropy: Entropy) -> int:
    while True:
        drawn = int.from_bytes(entropy.bytes(SHARE_BYTES)) & _TOP
        if drawn < PRIME:
            return drawn


def _value(coefficients: list[int], x: int) -> int:
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % PRIME
    return value


@lru_cache(maxsize=16)
def _weights(holders: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's weights of these holders at zero.

    They are public, and the same for all secrets of a sum: computed once for a set of holders.
    """
    weights = []
    for x in holders:
        above, below = 1, 1
        for other in holders:
            if other != x:
                above = above * other % PRIME
                below = below * (other - x) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)
