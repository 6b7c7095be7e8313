"""Key material on disk: made once, readable by its owner alone, never overwritten.

Guarantees: a file written here did not exist before, has mode 0600 (secret) or 0644 (public) from its first byte on,
and is on the disk when the call returns. The caller looks after the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from crypto.errors import EnrolmentError


def write_new(path: Path, content: bytes, *, secret: bool) -> None:
    """Create a file and flush it to the disk. Raises `EnrolmentError` if it exists or cannot be written."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _sync_folder(path.parent)
    except FileExistsError:
        msg = f"{path.name} exists already and is never overwritten; move it away if you want to start again"
        raise EnrolmentError(msg) from None
    except OSError as error:
        msg = f"{path.name} cannot be written ({error.strerror}); fix the folder's owner or make room on the disk"
        raise EnrolmentError(msg) from None


def _sync_folder(folder: Path) -> None:
    """Make durable that the file lies there. As `policies.durable` does, which the floors hide from this package."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Create a folder for its owner alone. An existing folder is kept as it is. Raises `EnrolmentError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        msg = f"the folder {folder.name} cannot be made ({error.strerror}); choose another folder"
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
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        msg = f"{path.name} cannot be written ({error.strerror}); fix the folder's owner or make room on the disk"
        raise EnrolmentError(msg) from None
