"""Keyed digests: how stored state names the bytes that it must know again, and tells nobody else what they are.

Guarantees: a digest is HMAC-SHA256 (RFC 2104) under a key that lies in the state folder's secret (`secret`) and in no
backup. A plain digest of few noised integers gives them away: whoever guesses them can compare. Without the key a
digest is 32 bytes at random, and digests of two kinds never compare.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final, Literal

from crypto.canonical import canonical
from crypto.hkdf import derive

Kind = Literal["release", "sealed", "sum", "total"]
"""What was digested: a noised release, sealed bytes, a sum as it came, an opened sum."""

NEVER: Final = ""
"""Stands in the place of a digest that nothing fits: it was left out of a backup, or the file was not as stored."""


@dataclass(frozen=True)
class Digests:
    """The keyed digests of one state folder. `repr` shows no key."""

    key: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: bytes) -> Digests:
        """The digests of the folder that has this secret (`secret.open_secret`)."""
        return cls(derive(secret, canonical("state digests")))

    @property
    def folder(self) -> str:
        """Names the folder whose secret this is, and tells nothing of it."""
        return hmac.new(self.key, canonical("folder"), hashlib.sha256).hexdigest()

    def keyed(self, kind: Kind, plain: str) -> str:
        """The keyed digest of content whose plain digest is `plain`: 64 digits, lowercase hex."""
        return hmac.new(self.key, canonical("digest", kind, plain), hashlib.sha256).hexdigest()

    def fits(self, stored: str, kind: Kind, plain: str) -> bool:
        """Whether `stored` is the keyed digest of that content. `NEVER` is that of none."""
        return hmac.compare_digest(stored, self.keyed(kind, plain))
