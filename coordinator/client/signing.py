"""The author's signature of a study: where it lies beside the study's file, and who makes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coordinator.errors import CoordinatorError
from crypto.authorship import SignatureBeside, sign_study
from crypto.pki.certificates import Credential
from crypto.pki.identity import Role

if TYPE_CHECKING:
    from policies.documents.study import Study


class AmbiguousSignatureError(CoordinatorError):
    """Several authors' signatures lie beside one study. Nothing was handed in."""


def signature_file(study: Path, author: str) -> Path:
    """Return where an author's signature lies, beside the study."""
    return study.with_name(f"{study.name}.{author}.sig")


def signature_beside(study: Path) -> SignatureBeside | None:
    """Return the author's signature that lies beside a study; None if none does.

    Raises `AmbiguousSignatureError` if several do: a study has one author. `SignatureRefused`, OSError.
    """
    found = sorted(study.parent.glob(f"{study.name}.*.sig"))
    if len(found) > 1:
        msg = f"a study has one author, and beside {study} lie {', '.join(one.name for one in found)}; leave one there"
        raise AmbiguousSignatureError(msg)
    return SignatureBeside.read(found[0]) if found else None


def signed_by(credential: Credential, study: Path, text: Study) -> SignatureBeside | None:
    """Return the author's signature: made by an author's own certificate, else what lies beside the file, if anything.

    Raises what `signature_beside` raises.
    """
    if credential.identity.role is Role.AUTHOR:
        return sign_study(credential, text.digest, text.purpose)
    return signature_beside(study)
