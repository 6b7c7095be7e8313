from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from crypto.errors import CertificateError, EnrolmentError
from crypto.pki.key_files import make_folder, new_key, read_passphrase, write_new


def test_secret_files_are_for_their_owner_alone(tmp_path):
    write_new(tmp_path / "s", b"secret", secret=True)
    write_new(tmp_path / "p", b"public", secret=False)
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "p").read_bytes() == b"public"


def test_nothing_is_overwritten(tmp_path):
    write_new(tmp_path / "s", b"first", secret=True)
    with pytest.raises(EnrolmentError, match="s exists already"):
        write_new(tmp_path / "s", b"second", secret=True)
    assert (tmp_path / "s").read_bytes() == b"first"


def test_a_passphrase_is_read_from_a_file_of_ones_own_or_a_credential_of_systemd(tmp_path, monkeypatch):
    """From systemd 254 on a credential has an access control list, which looks like a right of its group."""
    secret = tmp_path / "key"
    secret.write_text("open sesame\n")
    secret.chmod(0o440)
    make_folder(tmp_path / "other")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "other"))
    with pytest.raises(CertificateError, match="run chmod 600"):
        read_passphrase(secret)
    with pytest.raises(CertificateError, match="run chmod 600"):
        read_passphrase(tmp_path / "other" / ".." / "key")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_passphrase(secret) == b"open sesame"
    secret.chmod(0o444)
    with pytest.raises(CertificateError, match="run chmod 600"):
        read_passphrase(secret)
    with pytest.raises(CertificateError, match=f"{tmp_path}/gone cannot be read .* only while the service runs"):
        read_passphrase(tmp_path / "gone")


def test_what_cannot_be_written_is_named(tmp_path):
    with pytest.raises(EnrolmentError, match="cannot be written"):
        write_new(tmp_path / "absent" / "s", b"", secret=True)
    (tmp_path / "file").touch()
    with pytest.raises(EnrolmentError, match=f"{tmp_path}/file cannot be made .* choose another"):
        make_folder(tmp_path / "file")


def test_folders_are_private(tmp_path):
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_a_passphrase_encrypts_the_key():
    assert b"BEGIN PRIVATE KEY" in new_key()[1]
    key, pem = new_key(b"open sesame")
    assert b"ENCRYPTED" in pem
    opened = serialization.load_pem_private_key(pem, b"open sesame")
    assert opened.public_key() == key.public_key()


def test_a_new_file_is_synced_and_so_is_its_folder(tmp_path, monkeypatch):
    synced = []

    def fsync(handle, real=os.fsync):
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write_new(tmp_path / "key.pem", b"key", secret=True)
    assert synced == ["key.pem", tmp_path.name]
