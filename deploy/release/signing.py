"""The release key: ECDSA on P-256. Its signature covers SHA256SUMS, and SHA256SUMS covers every file.

Signatures are deterministic (RFC 6979), so that a release made again has the same bytes. A hospital verifies with
openssl and sha256sum and needs nothing of FedWard for it; `verify` here does the same.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.pki.key_files import new_key, write_new
from deploy.release.errors import ReleaseError

SUMS: Final = "SHA256SUMS"
SIGNATURE: Final = "SHA256SUMS.sig"
PUBLIC: Final = "fedward-release.pem"
_LINE = re.compile(r"([0-9a-f]{64})  ([\w.+-]+)")


def make_key(path: Path, passphrase: bytes | None) -> str:
    """Make a release key, encrypted if a passphrase is given, and return its fingerprint.

    Raises `EnrolmentError` if the file exists or cannot be written.
    """
    key, pem = new_key(passphrase)
    write_new(path, pem, secret=True)
    return fingerprint(key.public_key())


def load_key(path: Path, passphrase: bytes | None) -> ec.EllipticCurvePrivateKey:
    """Read a release key. Raises `ReleaseError`."""
    try:
        pem = path.read_bytes()
    except OSError as error:
        msg = f"{path.name}: the release key cannot be read ({error.strerror}); make one with `make release-key`"
        raise ReleaseError(msg) from None
    encrypted = b"ENCRYPTED" in pem
    if encrypted and not passphrase:
        msg = f"{path.name}: the release key has a passphrase; give it in FEDWARD_RELEASE_PASSPHRASE"
        raise ReleaseError(msg)
    try:
        key = serialization.load_pem_private_key(pem, passphrase if encrypted else None)
    except (ValueError, TypeError):
        msg = f"{path.name}: the release key cannot be opened; check file and passphrase"
        raise ReleaseError(msg) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        msg = f"{path.name}: the release key must be an ECDSA key on P-256"
        raise ReleaseError(msg)
    return key


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of the public key's DER, in hex, as `openssl pkey -pubin -outform DER | sha256sum` gives it."""
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(key.public_bytes(encoding, form)).hexdigest()


def sign(folder: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write the sums of all files of a folder, their signature, and the public key beside them."""
    sums = "".join(f"{_digest(file)}  {file.name}\n" for file in sorted(_files(folder))).encode()
    (folder / SUMS).write_bytes(sums)
    (folder / SIGNATURE).write_bytes(key.sign(sums, ec.ECDSA(hashes.SHA256(), deterministic_signing=True)))
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / PUBLIC).write_bytes(key.public_key().public_bytes(encoding, form))


def verify(folder: Path, trusted: str) -> None:
    """Check a release against the fingerprint of a key. Raises `ReleaseError` with every file that is not as signed."""
    try:
        key = serialization.load_pem_public_key((folder / PUBLIC).read_bytes())
        sums, signature = (folder / SUMS).read_bytes(), (folder / SIGNATURE).read_bytes()
    except (OSError, ValueError):
        msg = f"{PUBLIC}, {SUMS} or {SIGNATURE} is missing or damaged; fetch the release again"
        raise ReleaseError(msg) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or fingerprint(key) != trusted.lower().replace(":", ""):
        msg = f"{PUBLIC} is not the key with the fingerprint {trusted}; do not install, and ask who published it"
        raise ReleaseError(msg)
    try:
        key.verify(signature, sums, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        msg = f"{SIGNATURE} is no signature of {SUMS} by this key; do not install, and fetch the release again"
        raise ReleaseError(msg) from None
    listed = {found[2]: found[1] for line in sums.decode().splitlines() if (found := _LINE.fullmatch(line))}
    there = {file.name: _digest(file) for file in _files(folder)}
    faults = [f"{name}: missing" for name in sorted(listed.keys() - there.keys())]
    faults += [f"{name}: not part of the release" for name in sorted(there.keys() - listed.keys())]
    faults += [f"{name}: changed" for name in sorted(listed.keys() & there.keys()) if listed[name] != there[name]]
    if faults:
        raise ReleaseError("do not install; " + "; ".join(faults))


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if file.is_file() and file.name not in (SUMS, SIGNATURE, PUBLIC)]


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
