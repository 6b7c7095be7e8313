"""A silo's secrets in one study: its own key, and its secrets in the current roster (`membership`).

Guarantees: the secrets outlive the process, sealed under the certificate's key (`crypto.pki.at_rest`). So a restarted
silo goes on in the same roster and attempt. If the file of a study that was begun is gone or does not open, the silo's
log names it, the silo makes a fresh ephemeral key, and the coordinator begins a new attempt. An attempt's secrets are
erased when its round is committed (`forget_attempt`). The file is erased when the study is over (`forget`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import structlog
from dacite import DaciteError

from crypto.entropy import Entropy
from crypto.errors import SealError
from crypto.pki.at_rest import Vault
from crypto.pki.certificates import Credential
from crypto.secagg.agreement import EphemeralKey
from crypto.secagg.spoilt import SpoiltStatement
from protos import record
from protos.messages import Member, Place, Spoilt
from silo_agent.protocol.key_store import KeyStore, Stored
from silo_agent.protocol.membership import Membership
from silo_agent.storage.durable import write_whole
from silo_agent.storage.folders import StateFolder, StudyFolder
from silo_agent.storage.own_files import own_files

log = structlog.get_logger()
_SESSION_BYTES = 16


def session_name(folder: Path, credential: Credential, entropy: Entropy) -> str:
    """The name of a state folder's key store. It stays the same as long as its file opens; otherwise it is new.

    A new name tells the coordinator that the keys which this silo offered before are gone.
    """
    path, vault = StateFolder(folder).session, Vault(credential, "session", entropy)
    try:
        return vault.open(path.read_bytes()).hex()
    except (FileNotFoundError, SealError) as fault:
        gone = isinstance(fault, FileNotFoundError)
        if not gone or any(StudyFolder(one.path).keys.exists() for one in StateFolder(folder).studies()):
            why = "is gone" if gone else "was sealed by another key, or was changed"
            log.warning("a new name is made; the rounds that are under way begin again", file=str(path), why=why)
        name = entropy.bytes(_SESSION_BYTES)
        write_whole(path, vault.seal(name))
        return name.hex()


class Session:
    """This silo in one study. Its repr shows no secret."""

    def __init__(
        self,
        study: str,
        credential: Credential,
        entropy: Entropy,
        keep: Callable[[bytes], object],
        *,
        ephemeral: EphemeralKey | None = None,
        stored: Stored | None = None,
    ) -> None:
        """`keep` stores bytes durably and sealed. It is called before any key is used."""
        self._study, self._credential, self._entropy = study, credential, entropy
        self.me = credential.identity.name
        ephemeral = ephemeral or EphemeralKey.create(credential, study)
        self._offer = ephemeral.offer
        self._began: Place | None = None
        self._membership: Membership | None = None
        self._store = KeyStore(ephemeral, keep, stored)

    @classmethod
    def open(cls, study: str, credential: Credential, entropy: Entropy, folder: Path, *, begun: bool) -> Self:
        """The session with the keys that are stored in the study's folder, or with new keys if none can be used.

        `begun`: this silo has taken a seat in the study before, so there were keys.
        """
        path, vault = StudyFolder(folder).keys, Vault(credential, f"keys of {study}", entropy)

        def keep(plain: bytes) -> None:
            write_whole(path, vault.seal(plain))

        try:
            with own_files():
                sealed = path.read_bytes()
            stored = record.load(Stored, vault.open(sealed).decode())
            ephemeral = EphemeralKey.restore(credential, study, stored.ephemeral)
            return cls(study, credential, entropy, keep, ephemeral=ephemeral, stored=stored)
        except (FileNotFoundError, SealError, DaciteError, ValueError) as fault:
            if begun or not isinstance(fault, FileNotFoundError):
                mend = "check the disk, and who removes files there; the round that is under way begins again"
                log.warning(
                    "stored keys are not usable; new ones are made", file=str(path), why=_kind(fault), mend=mend
                )
        return cls(study, credential, entropy, keep)

    @staticmethod
    def forget(folder: Path) -> None:
        """Erase the keys of a study that is over."""
        StudyFolder(folder).keys.unlink(missing_ok=True)

    @property
    def member(self) -> Member:
        """This silo as it offers itself, with its certificate as it is now."""
        offer = self._offer
        return Member(self.me, self._credential.certificate_pem, offer.public, offer.kem, offer.signature)

    def within(self, members: tuple[Member, ...], place: Place | None = None, *, reach: int = 0) -> Membership:
        """This silo in the roster of these members: the same object for the same members.

        `place` is the attempt; without it, it is that of the last call. Another attempt judges the roster anew.
        `reach` is the study's (`crypto.secagg.circle`); with 0 everybody is everybody's neighbour.
        """
        made = self._membership
        if made is None or (made.members, made.reach) != (members, reach):
            made = self._membership = Membership(
                self._study,
                self.member,
                members,
                credential=self._credential,
                entropy=self._entropy,
                store=self._store,
                reach=reach,
            )
        elif place not in (None, self._began):
            made.begin()
        self._began = place or self._began
        return made

    def stated(self, spoilt: SpoiltStatement, handed: Spoilt) -> tuple[str, ...]:
        """The listed silos that have signed exactly this statement, by their certificates as of now."""
        signatures = {one.silo: one.signature for one in handed.statements}
        trust = self._credential.trust.begun(datetime.now(UTC))
        return spoilt.signed_by(dict(zip(signatures, handed.certificates, strict=True)), signatures, trust)

    def forget_attempt(self) -> None:
        """Erase the secrets of an attempt whose round is committed."""
        if self._store.stored.shared is not None:
            self._store.shared(None)

    def __repr__(self) -> str:
        return "Session(secret)"


def _kind(fault: Exception) -> str:
    """A sentence about the error that shows nothing of the decrypted content."""
    if isinstance(fault, FileNotFoundError):
        return "it is gone"
    return str(fault) if isinstance(fault, SealError) else "it was written by another version"
