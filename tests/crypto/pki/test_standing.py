"""Both files are followed as they change; what cannot be read changes nothing and is told once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from crypto.errors import CertificateError
from crypto.pki.authority import issuing, root
from crypto.pki.certificates import Trust
from crypto.pki.standing import StandingFiles, stamp
from support.thefts import Consortium
from tests.support.online import Online


@pytest.fixture
def online(tmp_path):
    return Online(tmp_path)


def test_a_list_that_comes_later_counts_and_what_cannot_be_read_does_not(online, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "authority.pem").write_bytes((online.root / "authority.pem").read_bytes())
    files, told = StandingFiles(home / "authority.pem"), []
    files.on_fault = told.append
    assert files().lists is None
    (home / "crls.pem").write_bytes((online.issuing / issuing.ROOT_LISTS_FILE).read_bytes())
    first = files()
    assert files() is first
    assert first.lists.newest(first.bundle.roots[0]) is not None
    (home / "crls.pem").write_bytes(b"half a li")
    assert files() is files() is first
    (home / "crls.pem").unlink()
    assert files() is first
    assert len(told) == 2
    assert told[0].startswith("crls.pem: the file holds no revocation lists")
    assert told[1].startswith("crls.pem cannot be read (No such file")
    root.init(tmp_path / "other", "Other", 9)
    (home / "authority.pem").write_bytes((tmp_path / "other" / "authority.pem").read_bytes())
    assert files() is first


def test_what_was_revoked_once_stays_so(online, tmp_path):
    home = online.enrol("silo", "north")
    files = StandingFiles(home / "authority.pem")
    (authority,) = files().bundle.issuing
    before = (home / "crls.pem").read_bytes()
    told = online.authority.revoke("fedward://silo/north", None, datetime.now(UTC), "lost")
    online.bring_lists(home)
    serials = files().lists.newest(authority).revoked.keys()
    assert len(serials) == len(told) - 1 == 2, "all tokens, and the certificate and its admission"
    (home / "crls.pem").write_bytes(before)
    assert all(files().lists.revoked(authority, serial) for serial in serials)


def test_a_file_that_its_reader_may_read_at_last_is_read(tmp_path):
    path = tmp_path / "crls.pem"
    path.write_bytes(b"lists")
    before = stamp(path)
    while stamp(path) == before:  # clocks of file systems tick slowly
        path.chmod(0o600)
        path.chmod(0o644)
    assert stamp(path)[0] == before[0], "although nothing was written"


def test_a_named_list_must_be_there(online, tmp_path):
    with pytest.raises(CertificateError, match=r"lists\.pem cannot be read"):
        StandingFiles(online.issuing / "authority.pem", tmp_path / "lists.pem")


def test_only_a_root_dates_a_theft(online, tmp_path):
    """Who has stolen the issuing key must not forgive."""
    home, since = online.enrol("silo", "north"), datetime.now(UTC).replace(microsecond=0) - timedelta(hours=3)
    trust, pem = Trust.load(home / "authority.pem"), (home / "certificate.pem").read_bytes()
    assert (trust.stolen(pem), trust.revoked(pem)) == (None, None)
    online.authority.revoke("fedward://silo/north", None, since, "lost")
    online.bring_lists(home)
    assert (trust.stolen(pem), trust.revoked(pem)) == (None, since)


def test_a_root_dates_the_theft_of_what_it_signed_itself(tmp_path):
    parties = Consortium(tmp_path)
    since = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=3)
    assert parties.trust.stolen(parties.old.certificate_pem) is None, "without lists nothing is dated"
    trust = parties.revoke(since)
    assert trust.stolen(parties.old.certificate_pem) == since
    assert trust.stolen(parties.renewed().certificate_pem) is None
