"""What a silo keeps of its secrets in one study: its own key, those of the current roster, those of an attempt.

Guarantees: what is put here is kept, durably, before it is used; a new roster erases the keys and the attempt of the
one before, new keys erase the attempt. What the secrets are for is `membership`'s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from crypto.secagg.agreement import EphemeralKey
from crypto.secagg.packages import GroupKeys
from protos import record
from protos.messages import Place


@dataclass(frozen=True, repr=False)
class Met:
    """What was said to a roster, and the secrets with each member once all have said theirs."""

    roster: str
    greeting: bytes
    secrets: bytes
    pairs: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Dealt:
    """Keys of one roster, and the package that dealt them if this silo was the dealer."""

    roster: str
    ckks: bytes
    group: bytes
    check: bytes
    place: Place | None = None
    package: bytes = b""

    @property
    def keys(self) -> GroupKeys:
        """The keys alone."""
        return GroupKeys(self.ckks, self.group, self.check)


@dataclass(frozen=True, repr=False)
class Shared:
    """The secrets of one attempt, and the note that shared them."""

    roster: str
    place: Place
    secrets: bytes
    bundle: bytes


@dataclass(frozen=True, repr=False)
class Stored:
    """All that lies in the file."""

    ephemeral: bytes
    met: Met | None = None
    dealt: Dealt | None = None
    shared: Shared | None = None


class KeyStore:
    """One study's secrets. Prints only its kind."""

    def __init__(self, ephemeral: EphemeralKey, keep: Callable[[bytes], object], stored: Stored | None = None) -> None:
        """`keep` stores bytes durably and sealed; `stored` is what was kept before, None for a fresh key."""
        self.ephemeral, self._keep = ephemeral, keep
        self.stored = stored or Stored(ephemeral.to_bytes())
        if stored is None:
            self.greeted(None)

    def greeted(self, met: Met | None) -> None:
        """A new roster was greeted: keys and attempt of the one before are erased."""
        self._put(met)

    def met(self, met: Met) -> None:
        """The secrets with each member of the roster are known."""
        self._put(met, self.stored.dealt, self.stored.shared)

    def dealt(self, dealt: Dealt) -> None:
        """New keys were dealt to the roster: an attempt under older ones is erased."""
        self._put(self.stored.met, dealt)

    def shared(self, shared: Shared | None) -> None:
        """The secrets of an attempt; None erases them."""
        self._put(self.stored.met, self.stored.dealt, shared)

    def _put(self, met: Met | None, dealt: Dealt | None = None, shared: Shared | None = None) -> None:
        stored = Stored(self.ephemeral.to_bytes(), met, dealt, shared)
        self._keep(record.dump(stored).encode())
        self.stored = stored

    def __repr__(self) -> str:
        return "KeyStore(secret)"
