"""An authority's folder: its certificate, its private key, and the revocation lists that it made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import EnrolmentError
from crypto.pki.authority.building import CLOCK_SKEW
from crypto.pki.authority.putback import Mark
from crypto.pki.key_files import make_folder, replace, write_new

PASSPHRASE_VARIABLE = "FEDWARD_AUTHORITY_PASSPHRASE"  # noqa: S105  # the name of a variable, not its content

LISTS_FOLDER = "crls"
"""All lists that the authority made, one file each, named by their number."""
NEWEST_LIST = "crl.pem"


@dataclass(frozen=True)
class Keeper:
    """Certificate and key of one authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def above(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """What `building` signs with."""
        return self.certificate, self.key

    def end_before(self, end: datetime) -> None:
        """Raise `EnrolmentError` if the authority ends before `end`."""
        if end > self.certificate.not_valid_after_utc:
            last = f"{self.certificate.not_valid_after_utc:%Y-%m-%d}"
            msg = f"the certificate would outlive the authority, which ends on {last}; give fewer --days"
            raise EnrolmentError(msg)


def load_key(path: Path, passphrase: bytes | None, made_by: str) -> ec.EllipticCurvePrivateKey:
    """Read an authority's private key. Raises `EnrolmentError`; `made_by` names the command that makes it."""
    try:
        pem = path.read_bytes()
    except OSError as error:
        msg = f"the authority's files cannot be read ({error.strerror}); run `{made_by}` in the folder first"
        raise EnrolmentError(msg) from None
    encrypted = b"ENCRYPTED" in pem
    if encrypted and not passphrase:
        msg = f"the authority's key has a passphrase; set it in {PASSPHRASE_VARIABLE}, or run this at a terminal"
        raise EnrolmentError(msg)
    try:
        key = serialization.load_pem_private_key(pem, password=passphrase if encrypted else None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        msg = (
            f"the authority's key cannot be opened; set the passphrase of `{made_by}` in {PASSPHRASE_VARIABLE}, or run"
            " this at a terminal to be asked for it"
        )
        raise EnrolmentError(msg)
    return key


def make_list(
    keeper: Keeper,
    revoked: Mapping[int, datetime],
    folder: Path,
    until: datetime,
    now: datetime,
    *,
    mark: Mark | None = None,
) -> bytes:
    """Make the authority's next revocation list, archive it in the folder and return it (PEM).

    `revoked` is serial number to date. `mark`: how far the authority's register has come. The number of the
    list is larger than that of every list before. Raises
    `EnrolmentError` if the folder cannot be written, or if the authority itself ends before `until`.
    """
    now, until = now.astimezone(UTC).replace(microsecond=0), until.astimezone(UTC).replace(microsecond=0)
    until = min(until, keeper.certificate.not_valid_after_utc)
    if until <= now:
        msg = "the revocation list would be stale when it is made; give more --days, or renew the authority"
        raise EnrolmentError(msg)
    number = max(_last(folder) + 1, int(now.timestamp()))
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(keeper.certificate.subject)
        .last_update(now - CLOCK_SKEW)
        .next_update(until)
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(keeper.key.public_key()), critical=False)
    )
    if mark is not None:
        builder = builder.add_extension(mark.extension, critical=False)
    for serial, since in sorted(revoked.items()):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since.astimezone(UTC))
        builder = builder.add_revoked_certificate(entry.build())
    pem = builder.sign(keeper.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    make_folder(folder / LISTS_FOLDER)
    write_new(folder / LISTS_FOLDER / f"{number}.pem", pem, secret=False)
    replace(folder / NEWEST_LIST, pem)
    return pem


def _last(folder: Path) -> int:
    numbers = [path.stem for path in (folder / LISTS_FOLDER).glob("*.pem")]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)
