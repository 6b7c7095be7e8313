"""The timestamping authority, asked by `openssl ts` as well as by this project."""

import subprocess
from datetime import UTC, datetime

import pytest
from asn1crypto import tsp

from crypto.errors import EnrolmentError
from crypto.pki.authority import root, timestamping
from crypto.pki.authority.timestamping import CERTIFICATE_FILE, KEY_FILE, TimestampingAuthority, prepare
from crypto.pki.reading import parse_certificate
from crypto.pki.timestamps import query_for

AT = datetime(2026, 11, 22, 20, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A root, and a folder with a timestamping authority under it."""
    folder = tmp_path_factory.mktemp("stamps")
    root.init(folder / "root", "Root of tests", 4000)
    request = prepare(folder, "Stamps of tests")
    (folder / CERTIFICATE_FILE).write_bytes(root.certify_timestamps(folder / "root", request))
    return folder


@pytest.fixture(scope="module")
def authority(folder):
    return TimestampingAuthority.load(folder)


def openssl(*arguments, **given):
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False, **given)


def test_openssl_asks_for_a_stamp_and_verifies_it(folder, authority, tmp_path):
    data, query, reply = tmp_path / "data", tmp_path / "data.tsq", tmp_path / "data.tsr"
    data.write_bytes(b"the ledger of a ward")
    assert openssl("ts", "-query", "-data", data, "-sha256", "-cert", "-out", query).returncode == 0
    reply.write_bytes(authority.answer(query.read_bytes()))
    checking = ("ts", "-verify", "-in", reply, "-CAfile", folder / "root" / "authority.pem")
    for what in (("-queryfile", query), ("-data", data)):
        assert "Verification: OK" in openssl(*checking, *what).stdout
    data.write_bytes(b"the ledger of another ward")
    assert openssl(*checking, "-data", data).returncode != 0


def test_two_stamps_of_one_digest_have_the_time_asked_and_numbers_of_their_own(authority):
    found = [tsp.TimeStampResp.load(authority.answer(query_for(b"x"), now=AT)) for _ in range(2)]
    infos = [one["time_stamp_token"]["content"]["encap_content_info"]["content"].parsed for one in found]
    assert {info["gen_time"].native for info in infos} == {AT}
    assert {info["accuracy"]["seconds"].native for info in infos} == {1}, "the time is cut to whole seconds"
    assert len({info["serial_number"].native for info in infos}) == 2
    assert len({info["nonce"].native for info in infos}) == 2


def _query(**changes):
    imprint = {"hash_algorithm": {"algorithm": "sha256"}, "hashed_message": bytes(32)}
    return tsp.TimeStampReq({"version": "v1", "message_imprint": imprint, **changes}).dump()


@pytest.mark.parametrize(
    "query",
    [
        b"",
        b"junk",
        _query()[:-1],
        _query() + b"\0",
        _query(message_imprint={"hash_algorithm": {"algorithm": "sha256"}, "hashed_message": bytes(31)}),
        _query(message_imprint={"hash_algorithm": {"algorithm": "sha1"}, "hashed_message": bytes(20)}),
        _query(req_policy="1.2.3"),
    ],
)
def test_anything_but_a_plain_query_of_a_sha_256_is_refused(authority, query):
    with pytest.raises(EnrolmentError, match="send a timestamp query"):
        authority.answer(query)
    assert authority.answer(_query(req_policy=timestamping.POLICY))


def test_without_a_certificate_there_is_no_authority_and_a_foreign_key_is_refused(folder, tmp_path):
    assert TimestampingAuthority.load(tmp_path) is None
    prepare(tmp_path, "Another", passphrase=b"long and secret")
    (tmp_path / CERTIFICATE_FILE).write_bytes((folder / CERTIFICATE_FILE).read_bytes())
    with pytest.raises(EnrolmentError, match=r"timestamping\.key does not belong to timestamping\.pem"):
        TimestampingAuthority.load(tmp_path, passphrase=b"long and secret")
    with pytest.raises(EnrolmentError, match="exists already"):
        prepare(tmp_path, "Another")
    assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600


def test_it_lasts_as_long_as_the_root_and_stands_in_the_register(folder):
    certificate = parse_certificate((folder / CERTIFICATE_FILE).read_bytes())
    above = parse_certificate((folder / "root" / "authority.pem").read_bytes())
    assert certificate.not_valid_after_utc == above.not_valid_after_utc
    assert f"{certificate.serial_number:x}" in (folder / "root" / "issued.jsonl").read_text()
