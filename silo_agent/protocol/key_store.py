"""The secrets that a silo keeps in one study: its own key, the current roster's keys, the current attempt's secrets.

Guarantees: a secret is stored durably before it is used. A new roster erases the keys and the attempt of the roster
before. New keys erase the attempt. `membership` uses the secrets.
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
    """This silo's greeting to a roster, and its secret with each member once all members have sent their greetings."""

    roster: str
    greeting: bytes
    secrets: bytes
    pairs: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class RosterKeys:
    """The keys of one roster. If this silo dealt them, also the package that it sent."""

    roster: str
    ckks: bytes
    group: bytes
    check: bytes
    place: Place | None = None
    package: bytes = b""
    dealer: str = ""
    """The silo that dealt them; empty if an earlier version stored them."""

    @property
    def keys(self) -> GroupKeys:
        """The keys without the package."""
        return GroupKeys(self.ckks, self.group, self.check)


@dataclass(frozen=True, repr=False)
class Shared:
    """The secrets of one attempt, and the note in which this silo shared them."""

    roster: str
    place: Place
    secrets: bytes
    bundle: bytes


@dataclass(frozen=True, repr=False)
class Stored:
    """Everything that the file holds."""

    ephemeral: bytes
    met: Met | None = None
    dealt: RosterKeys | None = None
    shared: Shared | None = None


class KeyStore:
    """One study's secrets. Its repr shows none of them."""

    def __init__(self, ephemeral: EphemeralKey, keep: Callable[[bytes], object], stored: Stored | None = None) -> None:
        """`keep` stores bytes durably and sealed. `stored` is what was kept before; None if the key is new."""
        self.ephemeral, self._keep = ephemeral, keep
        self.stored = stored or Stored(ephemeral.to_bytes())
        if stored is None:
            self.greeted(None)

    def greeted(self, met: Met | None) -> None:
        """Keep the greeting to a new roster; erase the keys and the attempt of the roster before."""
        self._put(met)

    def met(self, met: Met) -> None:
        """Keep the secrets with each member of the roster."""
        self._put(met, self.stored.dealt, self.stored.shared)

    def dealt(self, dealt: RosterKeys) -> None:
        """Keep the keys that were dealt to the roster; erase an attempt under older keys."""
        self._put(self.stored.met, dealt)

    def shared(self, shared: Shared | None) -> None:
        """Keep the secrets of an attempt. None erases them."""
        self._put(self.stored.met, self.stored.dealt, shared)

    def _put(self, met: Met | None, dealt: RosterKeys | None = None, shared: Shared | None = None) -> None:
        stored = Stored(self.ephemeral.to_bytes(), met, dealt, shared)
        self._keep(record.dump(stored).encode())
        self.stored = stored

    def __repr__(self) -> str:
        return "KeyStore(secret)"
