"""What openssl and sha256sum verify, and what is refused."""

import shutil
import subprocess

import pytest

from crypto.errors import EnrolmentError
from deploy.release import signing
from deploy.release.errors import ReleaseError

CHECK = (
    "openssl dgst -sha256 -verify fedward-release.pem -signature SHA256SUMS.sig SHA256SUMS"
    " && sha256sum --check --quiet SHA256SUMS"
)


@pytest.fixture
def signed(tmp_path):
    """A small signed folder and the fingerprint of its key."""
    print_ = signing.make_key(tmp_path / "a.key", b"correct horse")
    folder = tmp_path / "dist"
    folder.mkdir()
    (folder / "a.whl").write_text("wheel")
    (folder / "b.txt").write_text("pins")
    signing.sign(folder, signing.load_key(tmp_path / "a.key", b"correct horse"))
    return folder, print_


def shell(folder, command):
    return subprocess.run(["sh", "-c", command], cwd=folder, check=False, capture_output=True, text=True)


def test_openssl_and_sha256sum_agree(signed):
    folder, print_ = signed
    signing.verify(folder, ":".join(print_[i : i + 2].upper() for i in range(0, 64, 2)))
    assert shell(folder, CHECK).returncode == 0
    (folder / "a.whl").write_text("other")
    assert shell(folder, CHECK).returncode != 0


def test_the_fingerprint_is_what_openssl_prints(signed):
    folder, print_ = signed
    told = shell(folder, "openssl pkey -pubin -in fedward-release.pem -outform DER | sha256sum").stdout
    assert told.split()[0] == print_


def test_every_file_that_is_not_as_signed_is_named(signed):
    folder, print_ = signed
    (folder / "a.whl").write_text("other")
    (folder / "b.txt").unlink()
    (folder / "c.sh").write_text("more")
    with pytest.raises(ReleaseError, match=r"b.txt: missing; c.sh: not part of the release; a.whl: changed"):
        signing.verify(folder, print_)


def test_sums_or_a_key_of_somebody_else_are_refused(signed, tmp_path):
    folder, print_ = signed
    other = shutil.copytree(folder, tmp_path / "other")
    sums = (other / signing.SUMS).read_text()
    (other / signing.SUMS).write_text(sums.replace("a.whl", "x.whl"))
    with pytest.raises(ReleaseError, match="is no signature"):
        signing.verify(other, print_)
    stranger = signing.make_key(tmp_path / "b.key", None)
    signing.sign(folder, signing.load_key(tmp_path / "b.key", None))
    signing.verify(folder, stranger)
    with pytest.raises(ReleaseError, match="is not the key with the fingerprint"):
        signing.verify(folder, print_)
    (folder / signing.SIGNATURE).unlink()
    with pytest.raises(ReleaseError, match="missing or damaged"):
        signing.verify(folder, stranger)


def test_a_key_is_never_overwritten_and_opens_with_its_passphrase_alone(tmp_path):
    path = tmp_path / "a.key"
    signing.make_key(path, b"one")
    with pytest.raises(EnrolmentError, match="exists already"):
        signing.make_key(path, b"two")
    with pytest.raises(ReleaseError, match="FEDWARD_RELEASE_PASSPHRASE"):
        signing.load_key(path, None)
    with pytest.raises(ReleaseError, match="check file and passphrase"):
        signing.load_key(path, b"two")
    with pytest.raises(ReleaseError, match="make release-key"):
        signing.load_key(tmp_path / "none.key", None)
