"""An authority goes online from the command line: issue, delegate, admit, redeem, revoke, and the lists of all."""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from crypto.errors import CertificateError
from crypto.pki.admission import Token
from crypto.pki.authority import readmission
from crypto.pki.authority.asking import PASSPHRASE_VARIABLE
from crypto.pki.authority.building import read_request
from crypto.pki.authority.cli import app, main
from crypto.pki.authority.issuing import IssuingAuthority
from crypto.pki.authority.timestamping import TimestampingAuthority
from crypto.pki.certificates import Trust
from crypto.pki.enrolment import create_request
from crypto.pki.identity import Identity, Role, Subject
from crypto.pki.timestamps import query_for, stamped

NORTH = ("--role", "silo", "--name", "north")


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "long and secret")

    def run(*arguments, code=0):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == code, done.output
        return done

    return run


@pytest.fixture
def online(run, tmp_path):
    """A root and the issuing authority that it delegated to."""
    run("init", "root", "--name", "Root")
    key = run("issuing", "issuing", "--name", "Online").output.split("key SHA-256 ")[1].split()[0]
    done = run("delegate", "root", "issuing/issuing.csr", "--host", "hub.example", "--out", "carried")
    assert f"the request is of 'Online', key SHA-256 {key}: compare it" in done.output
    for name in ("authority.pem", "root.crl.pem"):
        shutil.copy(tmp_path / "carried" / name, tmp_path / "issuing")
    return tmp_path


@pytest.mark.usefixtures("online")
def test_a_token_goes_into_a_new_file_that_only_the_owner_reads(run, tmp_path):
    admit = ("admit", "root", *NORTH, "--data-set", "north-ward", "--url", "https://a.example:8443", "--out")
    assert "the folder of none/north.token does not exist" in run(*admit, "none/north.token", code=1).output
    assert not run(*admit, "north.token").stdout
    path = tmp_path / "north.token"
    assert path.read_text().startswith("fedward1.")
    assert path.stat().st_mode & 0o777 == 0o600
    assert "north.token exists already" in run(*admit, "north.token", code=1).output


def test_a_party_is_admitted_certified_and_revoked(run, online):
    request = create_request(online / "north", Subject(Identity(Role.SILO, "north"), "north-ward")).read_bytes()
    said = ("--data-set", "north-ward", "--key", read_request(request).fingerprint, "--url", "https://a.example:8443")
    done = run("admit", "root", *NORTH, *said)
    assert "north has no --institution" in done.stderr
    token = Token.parse(done.stdout)
    assert "admitted fedward://silo/north with the data set north-ward until" in done.stderr
    assert token.url == "https://a.example:8443"
    issuing = IssuingAuthority.load(online / "issuing", passphrase=b"long and secret")
    pem = issuing.redeem(request, token)
    run("crl", "issuing", "--out", "north/crls.pem")
    (online / "north" / "authority.pem").write_bytes(issuing.authority_pem)
    trust = Trust.load(online / "north" / "authority.pem")
    assert trust.identify(pem).name == "north"
    told = run("revoke", "issuing", *NORTH, "--reason", "left", "--since", "2026-01-02T03:04").output
    assert "revoked the certificate of fedward://silo/north, serial number" in told
    assert "revoked the admission of fedward://silo/north, here" in told
    run("crl", "issuing", "--out", "north/crls.pem")
    with pytest.raises(CertificateError, match="was revoked as of 2026-01-02 03:04 UTC"):
        trust.identify(pem)
    assert "nothing of fedward://silo/north" in run("revoke", "issuing", *NORTH, "--reason", "left", code=1).output


def test_a_coordinator_is_admitted_for_its_hosts_and_for_two_years_unless_days_are_given(run, online):
    hub = ("--role", "coordinator", "--name", "hub", "--host", "hub.example", "--host", "b.hub.example")
    for days, more in ((730, ()), (100, ("--days", "100"))):
        admission = Token.parse(run("admit", "root", *hub, *more).stdout).admission
        assert set(admission.hosts) == {"hub.example", "b.hub.example"}
        assert (admission.expires - datetime.now(UTC)).total_seconds() / 86400 == pytest.approx(days, abs=0.4)
        assert (admission.redeem_until - datetime.now(UTC)).total_seconds() / 86400 == pytest.approx(14, abs=0.4)
    run("admit", "root", *NORTH, "--data-set", "north-ward", "--key", "a" * 64, "--days", "100")
    run("readmit", "root", "--out", "again.json")
    again = {one.subject.identity.name: one for one in readmission.read(online / "again.json")}
    assert (again["north"].expires - datetime.now(UTC)).total_seconds() / 86400 == pytest.approx(730, abs=0.4)


def test_an_authority_gets_a_key_for_timestamps(run, online):
    key = run("timestamping", "issuing", "--name", "Stamps").output.split("key SHA-256 ")[1].split()[0]
    done = run("certify-timestamps", "root", "issuing/timestamping.csr", "--out", "issuing/timestamping.pem")
    assert f"the request is of 'Stamps', key SHA-256 {key}: compare it" in done.output
    stamps = TimestampingAuthority.load(online / "issuing", passphrase=b"long and secret")
    bundle = Trust.load(online / "issuing" / "authority.pem", online / "issuing" / "root.crl.pem").bundle
    assert stamped(stamps.answer(query_for(b"x")), b"x", bundle, None)
    assert (online / "issuing" / "timestamping.pem").stat().st_mode & 0o777 == 0o644, "everybody reads a certificate"
    run("certify-timestamps", "root", "issuing/timestamping.csr", "--out", "issuing/timestamping.pem", code=1)


def test_the_root_takes_back_an_admission_by_its_number(run, online):
    run("admit", "root", *NORTH, "--data-set", "north-ward")
    lines = run("register", "root", "--format", "json").stdout.splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["authority", "admission"]
    shown = run("register", "root").stdout.splitlines()
    assert [line.split("  ")[2] for line in shown] == kinds
    assert "fedward://silo/north" in shown[1]
    told = run("revoke", "root", "--serial", json.loads(lines[1])["serial"], "--reason", "typo").output
    assert "revoked the admission of fedward://silo/north" in told
    assert told.endswith(
        "bring root/crl.pem to the issuing authority as root.crl.pem, and to\n"
        "parties that fetch no lists, whose crls.pem holds the newest list of each authority\n"
    )
    assert "the register is whole, SHA-256" in run("register", "root").stderr
    assert "fresh for 30 days" in run("crl", "root", "--days", "30", "--out", "all.pem").output
    assert (online / "all.pem").read_bytes() == (online / "root" / "crl.pem").read_bytes()
    stolen = run("revoke", "root", "--authority", "Online", "--reason", "stolen").output
    assert "revoked the issuing authority 'Online', serial number" in stolen


def test_everybody_is_admitted_again_in_one_file_each_with_the_key_that_redeemed_the_token(run, online):
    token = Token.parse(run("admit", "root", *NORTH, "--data-set", "north-ward", "--days", "100").stdout)
    assert "--keys" in run("readmit", "root", "--out", "issuing/admissions.json", code=1).output, "no key is known"
    request = create_request(online / "north", token.admission.subject).read_bytes()
    issuing, key = IssuingAuthority.load(online / "issuing", passphrase=b"long and secret"), read_request(request)
    issuing.redeem(request, token)
    assert "has 1 keys: compare each" in run("keys", "issuing", "--out", "keys.txt").output
    assert (online / "keys.txt").read_text() == f"fedward://silo/north {key.fingerprint}\n"
    told = run("readmit", "root", "--keys", "keys.txt", "--out", "issuing/admissions.json").output
    assert "admitted fedward://silo/north with the data set north-ward until" in told
    assert f"for the key with SHA-256 {key.fingerprint}: compare it with the party" in told
    assert [one.key for one in readmission.read(online / "issuing" / "admissions.json")] == [key.fingerprint]
    again = run("readmit", "root", "--days", "740", "--out", "again.json").output
    assert f"{key.fingerprint}\n" in again, "which the root named before"
    (online / "keys.txt").write_text(f"fedward://silo/north {'0' * 64}\n")
    more = ("--days", "750", "--out", "more.json")
    assert "find out whose that key is" in run("readmit", "root", "--keys", "keys.txt", *more, code=1).output
    assert "never overwritten" in run("readmit", "root", "--out", "issuing/admissions.json", code=1).output


def test_a_file_of_keys_says_one_key_for_each_party(run, online):
    for text, why in (
        (f"fedward://silo/north {'0' * 64}\nfedward://silo/north {'1' * 64}\n", "several keys of fedward://silo/north"),
        ("fedward://silo/north abc\n", "line 1 is no party's URI"),
    ):
        (online / "keys.txt").write_text(text)
        assert why in run("readmit", "root", "--keys", "keys.txt", "--out", "none.json", code=1).output


def test_what_cannot_be_is_refused_in_one_line(run, online):
    for words, why in (
        (("revoke", "root", "--reason", "-"), "give either --role and --name, or --authority"),
        (("revoke", "issuing", "--reason", "-", "--authority", "Online"), "name the root's folder"),
        (("revoke", "root", "--reason", "-", "--authority", "Nobody"), "delegated to no authority 'Nobody'"),
        (("revoke", "root", "--reason", "-", *NORTH, "--since", "2999-01-01T00:00"), "--since must be past"),
        (("revoke", "root", "--reason", "-", "--serial", "north"), "a number in hexadecimal"),
        (("delegate", "root", "issuing/issuing.csr", "--out", "carried"), "exists already and is never overwritten"),
        (("delegate", "root", "root/authority.pem", "--out", "new"), "no request of an issuing authority"),
        (("delegate", "root", "issuing/issuing.csr", "--host", "10.0.0.1", "--out", "new"), "certifies no addresses"),
        (("admit", "root", *NORTH), "a silo needs one data set"),
        (("admit", "root", *NORTH, "--data-set", "a", "--key", "AB"), "--key is the SHA-256 of the party's key"),
        (("admit", "root", "--role", "coordinator", "--name", "hub"), "needs a host name"),
        (("admit", "root", *NORTH, "--data-set", "a", "--url", "http://a"), "https://host:port"),
    ):
        output = run(*words, code=1).output
        assert why in output.splitlines()[-1], output
    assert not (online / "new").exists()


def test_a_machine_that_cannot_serve_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "crypto.pki.authority.service.server", None)
    monkeypatch.setattr(sys, "argv", ["fedward-authority", "serve", "issuing", "--host", "a.example"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    assert "is not installed here; install FedWard with requirements-coordinator.txt" in capsys.readouterr().err
