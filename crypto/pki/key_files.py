"""Key material on disk: made once, readable by its owner alone, never overwritten.

Guarantees: a file written here did not exist before, has mode 0600 (secret) or 0644 (public) from its first byte on,
and is on the disk when the call returns. The caller looks after the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from common.durable import put_in_place, sync_file, sync_folder
from crypto.canonical import canonical
from crypto.errors import CertificateError, EnrolmentError
from crypto.hkdf import derive

_SCALAR_BYTES = 32
OPEN_TO_OTHERS = 0o077


def write_new(path: Path, content: bytes, *, secret: bool) -> None:
    """Create a file and flush it to the disk. Raises `EnrolmentError` if it exists or cannot be written."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            sync_file(file)
        sync_folder(path.parent)
    except FileExistsError:
        msg = f"{path.name} exists already and is never overwritten; move it away if you want to start again"
        raise EnrolmentError(msg) from None
    except OSError as error:
        msg = f"{path.name} cannot be written ({error.strerror}); fix the folder's owner or make room on the disk"
        raise EnrolmentError(msg) from None


def make_folder(folder: Path) -> None:
    """Create a folder for its owner alone. An existing folder is kept as it is. Raises `EnrolmentError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        msg = f"the folder {folder} cannot be made ({error.strerror}); choose another folder"
        raise EnrolmentError(msg) from None


def new_key(passphrase: bytes | None = None) -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    """Make an ECDSA P-256 key. Return it with its PKCS #8 PEM, which is encrypted if a passphrase is given."""
    key = ec.generate_private_key(ec.SECP256R1())
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        protection = serialization.BestAvailableEncryption(passphrase)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
    return key, pem


def replace(path: Path, content: bytes) -> None:
    """Put a public file in the place of another, whole or not at all. Raises `EnrolmentError`."""
    beside = path.with_name(f".{path.name}.new")
    try:
        beside.write_bytes(content)
        put_in_place(beside, path)
    except OSError as error:
        msg = f"{path.name} cannot be written ({error.strerror}); fix the folder's owner or make room on the disk"
        raise EnrolmentError(msg) from None


def read_passphrase(path: Path) -> bytes:
    """Read the passphrase of a key: one line, in a file that its owner alone may read. Raises `CertificateError`.

    A systemd credential is such a file. From systemd 254 on it belongs to root, and an access control list lets the
    service's user read it, which looks like a right of the group; its folder is closed to everybody else.
    """
    credentials = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/run/credentials"))
    open_to_others = OPEN_TO_OTHERS & ~0o040 if path.resolve().is_relative_to(credentials) else OPEN_TO_OTHERS
    try:
        mode, content = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        msg = (
            f"the passphrase's file {path} cannot be read ({error.strerror}); fix key_passphrase or its owner"
            " (a systemd credential is there only while the service runs)"
        )
        raise CertificateError(msg) from None
    if mode & open_to_others:
        msg = f"others than its owner may read or write {path.name}; run chmod 600 on it"
        raise CertificateError(msg)
    passphrase = content.removesuffix(b"\n")
    if not passphrase or b"\n" in passphrase:
        msg = f"{path.name} must hold the passphrase in one line and nothing else"
        raise CertificateError(msg)
    return passphrase


def open_key(key_pem: bytes, passphrase: bytes | None) -> bytes:
    """Return a private key without its passphrase (PKCS #8 PEM), for memory alone. Raises `CertificateError`."""
    encrypted = b"ENCRYPTED" in key_pem
    if encrypted and passphrase is None:
        msg = "the private key has a passphrase; name the file that holds it under key_passphrase"
        raise CertificateError(msg)
    try:
        key = serialization.load_pem_private_key(key_pem, passphrase if encrypted else None)
    except (ValueError, TypeError):
        msg = (
            "the private key cannot be opened with that passphrase; fix the file that key_passphrase names"
            if encrypted
            else "the private key cannot be read as an ECDSA P-256 key; give the key that the enrolment made"
        )
        raise CertificateError(msg) from None
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def read_key(key_pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Read a private key without a passphrase (PKCS #8 PEM). Raises `CertificateError`."""
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        msg = "the private key cannot be read as an ECDSA P-256 key; give the key that the enrolment made"
        raise CertificateError(msg)
    return key


def own_secret(key_pem: bytes, purpose: str) -> bytes:
    """Return 32 bytes for one purpose that only the holder of this key knows (HKDF-SHA256, RFC 5869).

    Raises `CertificateError` if the key cannot be read.
    """
    secret = read_key(key_pem).private_numbers().private_value.to_bytes(_SCALAR_BYTES, "big")
    return derive(secret, canonical("own secret", purpose))
