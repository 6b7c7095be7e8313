"""The timestamping authority (RFC 3161): says that a digest was known at a time, under a key of years.

It runs beside the issuing authority, with a key of its own that the root certified for timestamps alone: that key
certifies nobody, and the issuing key stamps nothing. Guarantees: a stamp has this machine's time when it was asked for,
a serial number of its own, and the digest that was sent; what the digest is of, nobody here learns.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from asn1crypto import algos, cms, core, tsp
from asn1crypto import x509 as asn1
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import EnrolmentError
from crypto.pki.authority import building
from crypto.pki.authority.folder import load_key
from crypto.pki.key_files import new_key, write_new
from crypto.pki.reading import parse_certificate

KEY_FILE: Final = "timestamping.key"
REQUEST_FILE: Final = "timestamping.csr"
CERTIFICATE_FILE: Final = "timestamping.pem"
POLICY: Final = "2.25.215836893284571982430187561834718263955"
"""Names the practice that this module describes."""
_DIGEST: Final = 32
_SHA256: Final = {"algorithm": "sha256"}


def prepare(folder: Path, name: str, *, passphrase: bytes | None = None) -> bytes:
    """Make `timestamping.key` (mode 0600) and `timestamping.csr`; return the request for the root.

    Raises `EnrolmentError`, also if a file exists.
    """
    subject = building.common_name(name)
    key, pem = new_key(passphrase)
    write_new(folder / KEY_FILE, pem, secret=True)
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    request_pem = request.public_bytes(serialization.Encoding.PEM)
    write_new(folder / REQUEST_FILE, request_pem, secret=False)
    return request_pem


class TimestampingAuthority:
    """A timestamping authority in its folder. Its methods may be called by many threads."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._certificate = asn1.Certificate.load(certificate.public_bytes(serialization.Encoding.DER))

    @classmethod
    def load(cls, folder: Path, *, passphrase: bytes | None = None) -> Self | None:
        """Read key and certificate; None if there is no certificate yet. Raises `EnrolmentError`."""
        try:
            certificate = parse_certificate((folder / CERTIFICATE_FILE).read_bytes())
        except FileNotFoundError:
            return None
        key = load_key(folder / KEY_FILE, passphrase, "fedward-authority timestamping")
        if key.public_key() != certificate.public_key():
            msg = f"{KEY_FILE} does not belong to {CERTIFICATE_FILE}; put there what the root made for {REQUEST_FILE}"
            raise EnrolmentError(msg)
        return cls(certificate, key)

    def answer(self, query: bytes, *, now: datetime | None = None) -> bytes:
        """Return the stamp (TimeStampResp, DER) for a query (TimeStampReq, DER). Raises `EnrolmentError`."""
        try:
            asked = tsp.TimeStampReq.load(query, strict=True)
            imprint, nonce = asked["message_imprint"], asked["nonce"].native
            digest = imprint["hashed_message"].native
            plain = imprint["hash_algorithm"]["algorithm"].native == "sha256" and len(digest) == _DIGEST
            plain = plain and asked["req_policy"].native in (None, POLICY) and not asked["extensions"].native
        except (ValueError, TypeError, KeyError):
            plain = False
        if not plain:
            msg = "send a timestamp query (RFC 3161) of a SHA-256, without extensions and without a policy of its own"
            raise EnrolmentError(msg)
        info = tsp.TSTInfo(
            {
                "version": "v1",
                "policy": POLICY,
                "message_imprint": imprint,
                "serial_number": x509.random_serial_number(),
                "gen_time": (now or datetime.now(UTC)).astimezone(UTC).replace(microsecond=0),
                "accuracy": {"seconds": 1},
                "ordering": False,
                **({} if nonce is None else {"nonce": nonce}),
            }
        )
        reply = {"status": {"status": "granted"}, "time_stamp_token": self._signed(info.dump())}
        return bytes(tsp.TimeStampResp(reply).dump())

    def _signed(self, content: bytes) -> cms.ContentInfo:
        """The token: a CMS message (RFC 5652) signed with the signer's certificate named in it (RFC 5816)."""
        certificate = self._certificate
        ess = tsp.SigningCertificateV2({"certs": [{"cert_hash": hashlib.sha256(certificate.dump()).digest()}]})
        attributes = cms.CMSAttributes(
            [
                {"type": "content_type", "values": ["tst_info"]},
                {"type": "message_digest", "values": [hashlib.sha256(content).digest()]},
                {"type": "signing_certificate_v2", "values": [ess]},
            ]
        )
        signer = cms.SignerInfo(
            {
                "version": "v1",
                "sid": cms.SignerIdentifier(
                    {
                        "issuer_and_serial_number": cms.IssuerAndSerialNumber(
                            {"issuer": certificate.issuer, "serial_number": certificate.serial_number}
                        )
                    }
                ),
                "digest_algorithm": algos.DigestAlgorithm(_SHA256),
                "signed_attrs": attributes,
                "signature_algorithm": algos.SignedDigestAlgorithm({"algorithm": "sha256_ecdsa"}),
                "signature": self._key.sign(attributes.dump(), ec.ECDSA(hashes.SHA256())),
            }
        )
        signed = cms.SignedData(
            {
                "version": "v3",
                "digest_algorithms": [algos.DigestAlgorithm(_SHA256)],
                "encap_content_info": {
                    "content_type": "tst_info",
                    "content": core.ParsableOctetString(content),
                },
                "certificates": [certificate],
                "signer_infos": [signer],
            }
        )
        return cms.ContentInfo({"content_type": "signed_data", "content": signed})
