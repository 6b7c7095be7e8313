"""A silo's keys in one study: its ephemeral key, the roster it meets, the keys dealt to it. In memory only.

A process that ends takes its keys along; the next one brings a new ephemeral key and the coordinator begins a new
attempt. So no key of a federation ever lies on a disk.
"""

from __future__ import annotations

from crypto.agreement import EphemeralKey, PairSecrets, Roster, RosterEntry
from crypto.certificates import Credential
from crypto.ckks_secret import CkksKey
from crypto.entropy import Entropy
from crypto.errors import SealError
from crypto.packages import GroupKeys, deal, take
from crypto.pads import Pads
from crypto.sealing import Sealer
from crypto.stream import KEY_BYTES
from protos.messages import Member


class Session:
    """This silo in one study, for the life of the process."""

    def __init__(self, study: str, credential: Credential, entropy: Entropy) -> None:
        self._study, self._entropy = study, entropy
        self.me = credential.identity.name
        self._ephemeral = EphemeralKey.create(credential, study)
        offer = self._ephemeral.offer
        self.member = Member(self.me, credential.certificate_pem, offer.public, offer.signature)
        self._met: tuple[tuple[Member, ...], Roster, PairSecrets] | None = None
        self._dealt: tuple[str, GroupKeys] | None = None

    def meet(self, members: tuple[Member, ...]) -> Roster:
        """Meet a roster; every certificate and signature in it is checked. Raises `CryptoError`."""
        if self._met is None or self._met[0] != members:
            if self.member not in members:
                msg = "the roster does not hold this silo's own key; the coordinator's roster cannot be trusted"
                raise SealError(msg)
            entries = tuple(RosterEntry(m.silo, m.certificate_pem, m.public_key, m.signature) for m in members)
            roster = Roster(self._study, entries)
            self._met = (members, roster, self._ephemeral.meet(roster, self.me))
        return self._met[1]

    def deal(self, members: tuple[Member, ...]) -> bytes:
        """Make the roster's keys and seal them to its members."""
        roster = self.meet(members)
        keys = GroupKeys(
            ckks=CkksKey.create().to_bytes(),
            group=self._entropy.bytes(KEY_BYTES),
            check=self._entropy.bytes(KEY_BYTES),
        )
        self._dealt = (roster.digest, keys)
        return deal(keys, self._pairs(), self.me, roster, self._entropy)

    def take(self, members: tuple[Member, ...], dealer: str, package: bytes) -> None:
        """Open the keys that `dealer` sealed to this silo; the dealer has them already."""
        roster = self.meet(members)
        if dealer != self.me:
            self._dealt = (roster.digest, take(package, self._pairs(), self.me, dealer, roster))

    def keys(self, members: tuple[Member, ...]) -> GroupKeys:
        """The keys of this roster. Raises `SealError` where none were dealt."""
        roster = self.meet(members)
        if self._dealt is None or self._dealt[0] != roster.digest:
            msg = "no keys were dealt to this roster"
            raise SealError(msg)
        return self._dealt[1]

    def sealer(self, members: tuple[Member, ...]) -> Sealer:
        """Seals for, and opens sums of, this roster."""
        keys = self.keys(members)
        return Sealer(keys, Pads(self.me, self._pairs(), keys.group))

    def _pairs(self) -> PairSecrets:
        if self._met is None:
            msg = "no roster has been met"
            raise SealError(msg)
        return self._met[2]
