"""An independent client (curl and openssl) enrols and renews by EST; everything else is refused in one sentence."""

from __future__ import annotations

import base64
import shutil
import subprocess
import threading

import pytest
from structlog.testing import capture_logs

from crypto.pki.authority.service import est
from crypto.pki.authority.service.est import EST, MAX_BODY, Est
from crypto.pki.certificates import Trust
from crypto.pki.chain import Bundle
from crypto.pki.identity import Identity, Role
from crypto.pki.reading import key_fingerprint, parse_certificate
from crypto.pki.revocation import RevocationLists

TOOLS = [shutil.which(name) for name in ("curl", "openssl")]
independent = pytest.mark.skipif(None in TOOLS, reason="no curl or no openssl: no independent client of EST")


def run(*command, folder=None, given=None):
    done = subprocess.run([str(part) for part in command], capture_output=True, cwd=folder, input=given, check=False)
    return done.returncode, done.stdout, done.stderr


def curl(url, path, *words, folder):
    code, body, said = run("curl", "-sS", "--cacert", "root.pem", *words, f"{url}{path}", folder=folder)
    assert code == 0, said
    return body


@independent
def test_curl_and_openssl_enrol_and_renew(online, url, tmp_path):
    token = online.admit("silo", "curly")
    (tmp_path / "root.pem").write_bytes((online.root / "authority.pem").read_bytes())
    names = "subjectAltName=URI:fedward://silo/curly,URI:fedward://data-set/curly-ward"
    assert (
        run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "k.pem", folder=tmp_path)[0] == 0
    )
    request = (
        "req",
        "-new",
        "-key",
        "k.pem",
        "-subj",
        "/CN=curly",
        "-addext",
        names,
        "-outform",
        "DER",
        "-out",
        "r.der",
    )
    assert run("openssl", *request, folder=tmp_path)[0] == 0
    (tmp_path / "r.b64").write_bytes(base64.encodebytes((tmp_path / "r.der").read_bytes()))
    posted = ("-H", "Content-Type: application/pkcs10", "--data-binary", "@r.b64")

    def certificate(message):
        (tmp_path / "p7.b64").write_bytes(message)
        code, _, said = run("openssl", "base64", "-d", "-in", "p7.b64", "-out", "p7.der", folder=tmp_path)
        assert code == 0, said
        return run("openssl", "pkcs7", "-inform", "DER", "-in", "p7.der", "-print_certs", folder=tmp_path)[1]

    cacerts = certificate(curl(url, "/.well-known/est/cacerts", folder=tmp_path))
    assert cacerts.count(b"BEGIN CERTIFICATE") == 2
    basic = ("-u", f"curly:{token.text()}")
    first = certificate(curl(url, "/.well-known/est/simpleenroll", *basic, *posted, folder=tmp_path))
    (tmp_path / "c.pem").write_bytes(first)
    shown = ("--cert", "c.pem", "--key", "k.pem")
    second = certificate(curl(url, "/.well-known/est/simplereenroll", *shown, *posted, folder=tmp_path))
    for path in ("authority.pem", "crls.pem"):
        (tmp_path / path).write_bytes(curl(url, f"/{path}", folder=tmp_path))
    key = key_fingerprint(parse_certificate(first[first.index(b"-----BEGIN") :]).public_key())
    (tmp_path / "peers.txt").write_text(f"fedward://silo/curly {key}\n")
    trust = Trust.load(tmp_path / "authority.pem")
    found = [parse_certificate(pem[pem.index(b"-----BEGIN") :]) for pem in (first, second)]
    assert found[0].serial_number != found[1].serial_number
    for pem in (first, second):
        assert trust.identify(pem[pem.index(b"-----BEGIN") :]) == Identity(Role.SILO, "curly")
    (tmp_path / "issuing.pem").write_bytes(online.pem)
    verified = ("verify", "-CAfile", "root.pem", "-untrusted", "issuing.pem", "-CRLfile", "crls.pem", "-crl_check_all")
    code, said, fault = run("openssl", *verified, "c.pem", folder=tmp_path)
    assert (code, said) == (0, b"c.pem: OK\n"), fault


@pytest.fixture
def ask(online):
    """Call the application as a server would."""

    def ask(method, path, *, body=b"", **environ):
        started = []
        given = {"REQUEST_METHOD": method, "PATH_INFO": path, "CONTENT_LENGTH": str(len(body)), **environ}
        answer = Est(online.authority)({**given, "wsgi.input": Body(body)}, lambda *said: started.append(said))
        status, headers = started[0]
        return int(status.split()[0]), dict(headers), b"".join(answer)

    return ask


class Body:
    def __init__(self, content):
        self.content = content

    def read(self, size):
        return self.content[:size]


def basic(text):
    return {"HTTP_AUTHORIZATION": "Basic " + base64.b64encode(text.encode()).decode()}


@pytest.mark.parametrize(
    ("header", "status", "said"),
    [
        ({}, 401, b"give the token"),
        ({"HTTP_AUTHORIZATION": "Bearer abc"}, 401, b"give the token"),
        ({"HTTP_AUTHORIZATION": "Basic %%%"}, 401, b"give the token"),
        (basic("no-colon"), 401, b"give the token"),
        (basic("me:wrong"), 400, b"this is no whole token"),
    ],
)
def test_without_a_token_nobody_is_enrolled(ask, header, status, said):
    found, headers, body = ask("POST", "/.well-known/est/simpleenroll", body=b"AA==", **header)
    assert found == status
    assert said in body
    assert ("WWW-Authenticate" in headers) == (status == 401)


def test_what_is_no_request_is_refused(ask, online):
    token = online.admit("silo", "odd").text()
    for body, said in (
        (b"", b"send a signing request (PKCS #10) of at most 16384 bytes"),
        (b"x" * (MAX_BODY + 1), b"send a signing request"),
        (b"%", b"no base64"),
        (b"AAAA", b"no signing request with a FedWard identity"),
        (b"-----BEGIN", b"no signing request with a FedWard identity"),
    ):
        with capture_logs() as logs:
            status, _, told = ask("POST", "/.well-known/est/simpleenroll", body=body, **basic(f"a:{token}"))
        assert (status, said in told) == (400, True)
        assert token not in str(logs)
    assert ask("POST", "/.well-known/est/simpleenroll", body=b"AA", **basic("a:b"), CONTENT_LENGTH="many")[0] == 400


def test_who_shows_no_certificate_renews_nothing(ask):
    status, _, said = ask("POST", "/.well-known/est/simplereenroll", body=b"AA==", SSL_CLIENT_CERT="")
    assert (status, b"show the certificate that is to be renewed" in said) == (400, True)


def test_lists_and_authorities_are_sent_again_only_if_they_changed(ask, online):
    status, headers, body = ask("GET", "/crls.pem")
    assert status == 200
    assert len(RevocationLists.read(body, Bundle.read(online.pem)).of) == 2
    assert ask("GET", "/crls.pem", HTTP_IF_NONE_MATCH=headers["ETag"])[::2] == (304, b"")
    assert ask("GET", "/authority.pem")[2] == online.pem


def test_other_paths_and_methods_are_refused_and_faults_tell_nothing(ask, online, monkeypatch):
    assert ask("GET", "/")[0] == 404
    assert ask("DELETE", "/crls.pem")[0] == 405
    assert ask("GET", "/healthz")[2] == b"ok\n"
    monkeypatch.setattr(type(online.authority), "lists_pem", lambda *_: 1 / 0)
    with capture_logs() as logs:
        status, _, body = ask("GET", "/crls.pem")
    assert (status, b"ZeroDivision" in body) == (500, False)
    assert logs[0]["log_level"] == "error"


def test_one_certificate_asks_a_few_times_a_minute_and_others_are_not_held_back(online, monkeypatch):
    now, asked = [0.0], []
    monkeypatch.setattr(online.authority, "renew", lambda _, shown: asked.append(shown) or 1 / 0)
    application = Est(online.authority, clock=lambda: now[0])

    def renew(certificate):
        started, body = [], b"-----BEGIN"
        given = {"REQUEST_METHOD": "POST", "PATH_INFO": f"{EST}/simplereenroll", "SSL_CLIENT_CERT": certificate}
        more = {"CONTENT_LENGTH": str(len(body)), "wsgi.input": Body(body)}
        list(application({**given, **more}, lambda *said: started.append(said)))
        return int(started[0][0].split()[0]), dict(started[0][1]).get("Retry-After")

    assert [renew("a")[0] for _ in range(8)] == [500] * 6 + [429] * 2
    assert renew("a") == (429, "60")
    assert renew("b")[0] == 500
    now[0] = 59.9
    assert renew("a")[0] == 429
    now[0] = 60.0
    assert [renew("a")[0] for _ in range(7)] == [500] * 6 + [429]
    assert asked.count(b"a") == 12


def test_lists_are_handed_out_while_somebody_else_waits_for_newer_ones(online, monkeypatch):
    now, waiting, go = [0.0], threading.Event(), threading.Event()
    application, real = Est(online.authority, clock=lambda: now[0]), online.authority.lists_pem
    first = application._newest()

    def slow():
        waiting.set()
        assert go.wait(60)
        return real()

    monkeypatch.setattr(online.authority, "lists_pem", slow)
    now[0] = 5.0
    other = threading.Thread(target=application._newest)
    other.start()
    assert waiting.wait(60)
    assert application._newest() == first
    go.set()
    other.join(60)
    assert application._newest() == first


def test_of_many_callers_those_are_forgotten_who_have_not_asked_lately(monkeypatch):
    monkeypatch.setattr(est, "_MOST_CALLERS", 2)
    now = [1000.0]
    pace = est._Pace(lambda: now[0])
    for _ in range(est.RENEWALS):
        assert pace.allows("early")
    now[0] += 30
    assert [pace.allows("late") for _ in range(est.RENEWALS + 1)] == [True] * est.RENEWALS + [False]
    assert not pace.allows("early"), "a third caller takes nobody's count away who asked in the last minute"
    assert pace.allows("third")
    assert set(map(len, pace._asked.values())) == {est.RENEWALS, 1}
    now[0] += 31
    assert pace.allows("fourth")
    assert len(pace._asked) == 3, "the early one has gone"
    assert not pace.allows("late")
