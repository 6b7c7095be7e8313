"""The secrets that one silo draws for an attempt, before it deals shares of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from crypto.entropy import Entropy
from crypto.errors import SealError
from crypto.hkdf import KEY_BYTES
from crypto.secagg.dealt.bundles import PARTS


@dataclass(frozen=True)
class AttemptSecrets:
    """The secrets that one silo draws for an attempt, 32 bytes for each tensor. `repr` prints only the kind."""

    own: Mapping[str, bytes] = field(repr=False)
    keys: Mapping[str, bytes] = field(repr=False)

    def __post_init__(self) -> None:
        secrets = [*self.own.values(), *self.keys.values()]
        if not self.own or set(self.own) != set(self.keys) or any(len(secret) != KEY_BYTES for secret in secrets):
            msg = f"an attempt must have two secrets of {KEY_BYTES} bytes for each of its tensors; draw them again"
            raise SealError(msg)

    @classmethod
    def create(cls, tensors: Iterable[str], entropy: Entropy) -> Self:
        """Draw fresh secrets."""
        names = sorted(set(tensors))
        return cls(*({name: entropy.bytes(KEY_BYTES) for name in names} for _ in PARTS))

    def to_bytes(self) -> bytes:
        """Return JSON with hexadecimal secrets. Seal it before it touches a disk."""
        plain = [{name: secret.hex() for name, secret in part.items()} for part in (self.own, self.keys)]
        return json.dumps(plain, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        """The inverse of `to_bytes`. Raises `SealError`."""
        try:
            own, keys = ({name: bytes.fromhex(secret) for name, secret in part.items()} for part in json.loads(blob))
        except (ValueError, TypeError, AttributeError):
            msg = "the stored secrets of the attempt cannot be read; begin a new attempt"
            raise SealError(msg) from None
        return cls(own, keys)
