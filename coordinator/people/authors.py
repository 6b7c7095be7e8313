"""Whose study it is: the author's signature that a study is handed in with. Silos check it again, by themselves."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.core.rights import RightsError
from crypto.authorship import SignatureBeside, author_of
from crypto.errors import CryptoError
from crypto.pki.certificates import Trust
from crypto.pki.identity import Identity, Role
from policies.documents.study import Study
from protos.messages import AuthorSignature

RequireAuthor = Callable[[Study, AuthorSignature | None, Identity], object]
"""Raises `UnsignedError` unless an author stands behind a study that this person hands in."""


class UnsignedError(RightsError):
    """No author stands behind the study. Nothing was stored."""


def require_author(trust: Trust) -> RequireAuthor:
    """Return what checks signatures by this trust. An author hands in what this author has signed, an operator any."""

    def require(study: Study, signed: AuthorSignature | None, who: Identity) -> None:
        if signed is None:
            msg = (
                f"no author has signed the study {study.name!r}; sign it with a certificate of the role author"
                " (fedward-coordinator study sign), or create it with one, which signs by itself"
            )
            raise UnsignedError(msg)
        try:
            given = SignatureBeside(signed.certificate_pem, signed.signature)
            author = author_of(trust, study.digest, study.purpose, given)
        except CryptoError as fault:
            msg = f"the author's signature of the study {study.name!r} does not count: {fault}"
            raise UnsignedError(msg) from None
        if who.role is Role.AUTHOR and who != author:
            msg = f"{author} has signed the study, and {who} hands it in; an author hands in own studies alone"
            raise UnsignedError(msg)

    return require
