"""A roster by its digest: whoever holds it already is sent the digest alone.

A roster of 64 silos has 136 kB, and each piece of work needs it. A silo says with each poll which roster it holds, and
the coordinator names that one in place of sending it again. Nothing is taken on trust: the silo computes the digest of
what it holds, and what it does with the roster is as if all of it had come. No signature is bound to this digest:
those name `crypto.secagg.survivors.roster_digest`, which this room does not know.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import lru_cache

from protos.messages import Member, MessageError, Work

_DOMAIN = b"fedward roster 1"


@lru_cache(maxsize=16)
def digest_of(roster: tuple[Member, ...]) -> str:
    """Return SHA-256 over all that the members are known by, in order, lowercase hex."""
    hasher = hashlib.sha256(_DOMAIN)
    for member in roster:
        for part in (
            member.silo.encode(),
            member.certificate_pem,
            member.public_key,
            member.kem_key,
            member.signature,
        ):
            hasher.update(len(part).to_bytes(8, "big") + part)
    return hasher.hexdigest()


def named(work: Work, held: str) -> Work:
    """Return the work for a silo that holds the roster of this digest: without the roster, if it is that one."""
    same = bool(work.roster) and digest_of(work.roster) == held
    return replace(work, roster=(), roster_sha256=held) if same else work


class RosterMemory:
    """The roster that a silo was sent last."""

    def __init__(self) -> None:
        self._roster: tuple[Member, ...] = ()

    @property
    def held(self) -> str:
        """The digest to ask with; empty if there is none."""
        return digest_of(self._roster) if self._roster else ""

    def whole(self, work: Work) -> Work:
        """Return the work with its roster. Raises `MessageError` if it names another one than this silo holds.

        The next work comes with its roster then.
        """
        if work.roster:
            self._roster = work.roster
        if not work.roster_sha256:
            return work
        if work.roster_sha256 != self.held:
            self._roster = ()
            msg = "work.roster_sha256: names a roster that this silo has not said that it holds; it is asked for anew"
            raise MessageError(msg)
        return replace(work, roster=self._roster, roster_sha256="")
