"""A silo's keys in one study: its ephemeral key, the roster it meets, the keys dealt to it.

Guarantees: the keys outlive the process, sealed under the certificate's key (`crypto.at_rest`), so a restarted silo
goes on in the same roster; they are on the disk before anybody hears of them; dealing again in one attempt gives the
same bytes. A file that is missing or does not open gives a fresh ephemeral key: the coordinator then begins a new
attempt. The file is erased when the study is over (`forget`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import structlog

from crypto.agreement import EphemeralKey, PairSecrets, Roster, RosterEntry
from crypto.at_rest import Vault
from crypto.certificates import Credential
from crypto.ckks_secret import CkksKey
from crypto.entropy import Entropy
from crypto.errors import SealError
from crypto.packages import GroupKeys, deal, take
from crypto.pads import Pads
from crypto.sealing import Sealer
from crypto.stream import KEY_BYTES
from protos.messages import Member, Place
from silo_agent.state import write_whole

log = structlog.get_logger()
KEY_FILE = "keys.sealed"
_SESSION_BYTES = 16


def session_name(folder: Path, credential: Credential, entropy: Entropy) -> str:
    """Names the key store of a state folder: the same as long as what lies there opens, else a new one.

    The coordinator learns from a new name that keys which were offered before are gone.
    """
    path, vault = folder / "session.sealed", Vault(credential, "session", entropy)
    try:
        return vault.open(path.read_bytes()).hex()
    except (OSError, SealError):
        name = entropy.bytes(_SESSION_BYTES)
        write_whole(path, vault.seal(name))
        return name.hex()


@dataclass(frozen=True, repr=False)
class _Dealt:
    """Keys of one roster, and the package that dealt them where this silo was the dealer."""

    roster: str
    keys: GroupKeys
    place: tuple[int, int] | None = None
    package: bytes = b""


class Session:
    """This silo in one study."""

    def __init__(
        self,
        study: str,
        credential: Credential,
        entropy: Entropy,
        keep: Callable[[bytes], object],
        *,
        ephemeral: EphemeralKey | None = None,
        dealt: _Dealt | None = None,
    ) -> None:
        """`keep` stores bytes durably and sealed; it is called before any key is used."""
        self._study, self._entropy, self._keep = study, entropy, keep
        self.me = credential.identity.name
        self._ephemeral = ephemeral or EphemeralKey.create(credential, study)
        offer = self._ephemeral.offer
        self.member = Member(self.me, credential.certificate_pem, offer.public, offer.signature)
        self._met: tuple[tuple[Member, ...], Roster, PairSecrets] | None = None
        self._dealt = dealt
        if ephemeral is None:
            self._store(None)

    @classmethod
    def open(cls, study: str, credential: Credential, entropy: Entropy, folder: Path) -> Self:
        """The keys that lie sealed in the study's folder, or fresh ones."""
        path, vault = folder / KEY_FILE, Vault(credential, f"keys of {study}", entropy)

        def keep(plain: bytes) -> None:
            write_whole(path, vault.seal(plain))

        if path.exists():
            try:
                ephemeral, dealt = _read(vault.open(path.read_bytes()), credential, study)
                return cls(study, credential, entropy, keep, ephemeral=ephemeral, dealt=dealt)
            except SealError as fault:
                log.warning("stored keys are not usable; new ones are made", study=study[:12], why=str(fault))
        return cls(study, credential, entropy, keep)

    @staticmethod
    def forget(folder: Path) -> None:
        """Erase the keys of a study that is over."""
        (folder / KEY_FILE).unlink(missing_ok=True)

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

    def deal(self, members: tuple[Member, ...], place: Place) -> bytes:
        """Make the roster's keys and seal them to its members; in one attempt always the same bytes."""
        roster, where = self.meet(members), (place.round, place.attempt)
        dealt = self._dealt
        if dealt is None or dealt.roster != roster.digest or dealt.place != where:
            keys = GroupKeys(
                ckks=CkksKey.create().to_bytes(),
                group=self._entropy.bytes(KEY_BYTES),
                check=self._entropy.bytes(KEY_BYTES),
            )
            package = deal(keys, self._pairs(), self.me, roster, self._entropy)
            dealt = _Dealt(roster.digest, keys, where, package)
            self._store(dealt)
        return dealt.package

    def take(self, members: tuple[Member, ...], dealer: str, package: bytes) -> None:
        """Open the keys that `dealer` sealed to this silo; the dealer has them already."""
        roster = self.meet(members)
        if dealer != self.me:
            self._store(_Dealt(roster.digest, take(package, self._pairs(), self.me, dealer, roster)))

    def keys(self, members: tuple[Member, ...]) -> GroupKeys:
        """The keys of this roster. Raises `SealError` where none were dealt."""
        roster = self.meet(members)
        if self._dealt is None or self._dealt.roster != roster.digest:
            msg = "no keys were dealt to this roster"
            raise SealError(msg)
        return self._dealt.keys

    def sealer(self, members: tuple[Member, ...]) -> Sealer:
        """Seals for, and opens sums of, this roster."""
        keys = self.keys(members)
        return Sealer(keys, Pads(self.me, self._pairs(), keys.group))

    def _pairs(self) -> PairSecrets:
        if self._met is None:
            msg = "no roster has been met"
            raise SealError(msg)
        return self._met[2]

    def _store(self, dealt: _Dealt | None) -> None:
        content: dict[str, object] = {"ephemeral": _text(self._ephemeral.to_bytes())}
        if dealt is not None:
            content["dealt"] = {
                "roster": dealt.roster,
                "ckks": _text(dealt.keys.ckks),
                "group": _text(dealt.keys.group),
                "check": _text(dealt.keys.check),
                "place": dealt.place,
                "package": _text(dealt.package),
            }
        self._keep(json.dumps(content).encode())
        self._dealt = dealt

    def __repr__(self) -> str:
        return "Session(secret)"


def _read(plain: bytes, credential: Credential, study: str) -> tuple[EphemeralKey, _Dealt | None]:
    content = json.loads(plain)
    ephemeral = EphemeralKey.restore(credential, study, _bytes(content["ephemeral"]))
    dealt = content.get("dealt")
    if dealt is None:
        return ephemeral, None
    keys = GroupKeys(_bytes(dealt["ckks"]), _bytes(dealt["group"]), _bytes(dealt["check"]))
    place = None if dealt["place"] is None else (dealt["place"][0], dealt["place"][1])
    return ephemeral, _Dealt(dealt["roster"], keys, place, _bytes(dealt["package"]))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _bytes(content: str) -> bytes:
    return base64.b64decode(content)
