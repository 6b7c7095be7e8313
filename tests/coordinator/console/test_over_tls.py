"""The coordinator's console over TLS, as people with different certificates see it."""

from __future__ import annotations

import re
import ssl

import httpx2
import pytest

from coordinator.client.plain import CoordinatorClient
from coordinator.config import OperatorConfig
from coordinator.console.people import Person, shown_by
from coordinator.errors import OperatorError
from crypto.authorship import sign_study
from crypto.pki.identity import Identity, Role
from policies.documents.writing import write_study
from policies.web.console import COOKIE
from support.certificates import load
from support.people import author_in
from support.studies import tiny_study

FOLDERS = {}


def folder(authority, role, name):
    if (authority, role, name) not in FOLDERS:
        FOLDERS[authority, role, name] = authority.credential(role, name)
    return FOLDERS[authority, role, name]


class Browser:
    """Calls the console as a browser does, with the forms of its pages."""

    def __init__(self, server, authority, home=None, *, link=None):
        context = ssl.create_default_context(cadata=authority.pem.decode())
        if home is not None:
            context.load_cert_chain(home / "certificate.pem", home / "key.pem")
        self.base = f"https://localhost:{server.console.port}"
        self.client = httpx2.Client(verify=context, base_url=self.base, trust_env=False, timeout=120)
        if link is not None:
            assert self.get(link).status_code in (200, 303)

    def get(self, path):
        return self.client.get(path, follow_redirects=True)

    def post(self, path, page="/studies", **fields):
        files = {name: value for name, value in fields.items() if isinstance(value, tuple)}
        token = re.search(r'name="form_token" value="([^"]+)"', self.get(page).text)[1]
        data = {"form_token": token, **{name: value for name, value in fields.items() if name not in files}}
        headers = {"origin": self.base}
        return self.client.post(path, data=data, files=files or None, headers=headers, follow_redirects=True)


def client_of(server, home):
    files = {name: home / f"{name}.pem" for name in ("certificate", "key", "authority")}
    return CoordinatorClient(OperatorConfig(coordinator=(f"127.0.0.1:{server.port}",), **files))


@pytest.fixture
def ops(server, authority, operator_folder):
    return Browser(server, authority, operator_folder)


@pytest.fixture
def ada(server, authority):
    return Browser(server, authority, folder(authority, "author", "page-ada"))


@pytest.fixture
def vera(server, authority):
    return Browser(server, authority, folder(authority, "viewer", "page-vera"))


def signature(authority, study):
    return sign_study(author_in(authority), study.digest, study.purpose).text.encode()


def handed_in(study, signed):
    return {
        "study": ("study.yaml", write_study(study).encode()),
        "signature": ("study.yaml.ann.sig", signed),
    }


# --- who comes in -----------------------------------------------------------------------------------------------------
def test_without_certificate_and_link_nobody_sees_a_study(server, authority, scene):
    stranger = Browser(server, authority)
    reply = stranger.get("/studies")
    assert (reply.status_code, scene.study.name in reply.text) == (401, False)
    assert "fedward-coordinator console link" in reply.text


@pytest.mark.parametrize("role", ["approver", "silo"])
def test_a_certificate_that_reads_nothing_here_is_nobodys(server, authority, role):
    home = folder(authority, role, f"page-{role}")
    assert Browser(server, authority, home).get("/studies").status_code == 401
    with pytest.raises(OperatorError):
        client_of(server, home).link_console()


def test_a_link_has_the_rights_of_the_certificate_that_asked_for_it_and_works_once(server, authority, scene):
    home = folder(authority, "viewer", "linked")
    with client_of(server, home) as client:
        link = client.link_console()
    assert link.startswith(f"https://localhost:{server.console.port}/enter?link=")
    path = link.partition(str(server.console.port))[2]
    browser = Browser(server, authority, link=path)
    page = browser.get("/studies")
    assert scene.study.name in page.text
    assert "viewer linked" in page.text
    assert "Hand in" not in page.text
    assert Browser(server, authority).get(path).status_code == 403
    reply = browser.post(f"/studies/{scene.study.digest}/pause", reason="x")
    assert (reply.status_code, "may not pause" in reply.text) == (409, True)


def test_a_person_whose_certificate_is_revoked_is_out_at_once(server, authority, scene):
    home = folder(authority, "viewer", "leaving")
    browser = Browser(server, authority, home)
    assert browser.get("/studies").status_code == 200
    with authority.revoked("fedward://viewer/leaving"):
        assert browser.get("/studies").status_code == 401
    assert Person(Identity(Role.VIEWER, "leaving"), b"no certificate").stands(load(home).trust) is False
    assert shown_by(load(home).trust, b"no certificate") is None


def test_no_page_is_shown_by_a_coordinator_that_is_not_the_active_one(server, ops, scene, monkeypatch):
    assert ops.get("/studies").status_code == 200
    database = server.engine._store.database
    monkeypatch.setattr(database, "epoch", database.epoch - 1)
    reply = ops.get("/studies")
    assert (reply.status_code, scene.study.name in reply.text) == (409, False)


# --- studies ----------------------------------------------------------------------------------------------------------
def test_a_study_is_handed_in_started_paused_resumed_and_aborted(ops, ada, vera, server, authority):
    study = tiny_study(name="by-page")
    unsigned = ops.post("/new", study=("study.yaml", write_study(study).encode()))
    assert (unsigned.status_code, "sign" in unsigned.text) == (409, True)
    for content, told in ((None, "choose the study"), (b"nothing: 1", "field"), (b"\xff", "UTF-8")):
        reply = ops.post("/new", **({} if content is None else {"study": ("s", content)}))
        assert (400 <= reply.status_code < 500, told in reply.text) == (True, True), reply.text
    made = ops.post("/new", **handed_in(study, signature(authority, study)))
    assert made.status_code == 200
    assert str(made.url).endswith(f"/studies/{study.digest}")
    assert "by-page is created" in made.text
    page, at = f"/studies/{study.digest}", f"/studies/{study.digest}/"
    assert ops.post(at + "start", page).status_code == 200
    assert "Offer" in ops.get(page).text
    assert 'aria-current="step"' in ops.get(page).text
    assert "paused by operator ops: maintenance" in ops.post(at + "pause", page, reason="maintenance").text
    assert ops.post(at + "resume", page).status_code == 200
    assert ops.post(at + "resume", page).status_code == 409
    question = ops.get(at + "abort")
    assert "for good" in question.text
    assert ops.post(at + "abort", at + "abort", reason="enough").status_code == 400, "nobody said that they are sure"
    assert ops.post(at + "abort", at + "abort", sure="yes").status_code == 409, "an abort has a reason"
    done = ops.post(at + "abort", at + "abort", sure="yes", reason="enough")
    assert "stopped by operator ops: enough" in done.text
    assert ops.get(at + "abort").status_code == 404
    assert "by-page: archived" in ops.post(at + "archive", page).text
    assert page not in ops.get("/studies?name=by-page").text
    assert page in ops.get("/studies?name=by-page&archived=yes").text


def test_an_author_sees_own_studies_alone_and_no_audit_log(ada, ops, scene, authority):
    assert scene.study.name not in ada.get("/studies").text
    assert scene.study.name not in ada.get("/silos").text
    assert scene.study.name not in ada.get("/prices").text
    for path in ("", "/text", "/results", "/abort", "/live"):
        assert ada.get(f"/studies/{scene.study.digest}{path}").status_code in (200, 404)
        assert scene.study.name not in ada.get(f"/studies/{scene.study.digest}{path}").text
    assert ada.post(f"/studies/{scene.study.digest}/pause", reason="x").status_code == 404
    assert ada.get("/audit").status_code == 404
    assert "/audit" not in ada.get("/studies").text
    assert 'href="/silos"' in ada.get("/studies").text
    assert "/audit" in ops.get("/studies").text


def test_an_operator_says_why_somebody_elses_study_is_touched(ops, server, authority):
    study = tiny_study(name="of-an-author")
    with client_of(server, folder(authority, "author", "own-study")) as author:
        credential = author.credential
        digest = author.create(study.canonical(), sign_study(credential, study.digest, study.purpose))
    page = f"/studies/{digest}"
    assert "say why you touch it" in ops.get(page).text
    assert ops.post(f"{page}/start", page).status_code == 409
    assert ops.post(f"{page}/start", page, reason="she is ill").status_code == 200
    ops.post(f"{page}/abort", f"{page}/abort", sure="yes", reason="over")


def test_lists_have_filters_and_pages_and_bad_ones_are_refused(ops, server, authority, make_scene):
    scene = make_scene()
    for query in ("state=running", f"name={scene.study.name}", f"name={scene.study.name[:4]}*", "page=1"):
        assert scene.study.name in ops.get(f"/studies?{query}").text
    assert scene.study.name not in ops.get("/studies?state=paused").text.partition("<section>")[2]
    for query in ("state=happy", "page=0", "page=x", "page=99999", "page=-1", "page=%F0%9F%92%A3"):
        assert ops.get(f"/studies?{query}").status_code == 400, query
    for query in ("before=x", "before=-1"):
        assert ops.get(f"/audit?{query}").status_code == 400
    assert ops.get("/prices?page=500").status_code == 400
    assert ops.get(f"/studies/{scene.study.digest}/explode").status_code == 404
    assert ops.post(f"/studies/{scene.study.digest}/forgive").status_code == 404
    assert ops.get("/studies/../../etc/passwd").status_code == 404


def test_rounds_are_drained_by_an_operator_alone(ops, ada, vera, server):
    for browser in (ada, vera):
        assert browser.post("/drain", undo="no").status_code == 409
    assert "No further round begins" in ops.post("/drain", undo="no").text
    assert server.engine.draining
    assert "the coordinator is drained" in ops.get("/studies").text
    assert "Rounds begin again." in ops.post("/drain", undo="yes").text
    assert not server.engine.draining


# --- what was found ---------------------------------------------------------------------------------------------------
def test_a_finished_study_shows_its_figures_beside_the_forecast(ops, make_scene):
    scene = make_scene(publish=["accuracy", "auc"])
    page = f"/studies/{scene.study.digest}/results"
    assert ops.get(page).status_code == 409
    scene.play(lambda status: status.state == "finished")
    found = ops.get(page)
    assert found.status_code == 200
    assert "hospitals signed" in found.text
    wrong = ops.post(page, page, forecast=("f.json", b"{}"))
    assert (wrong.status_code, "holds no" in wrong.text) == (409, True)
    figures = ops.get(f"{page}.json")
    assert figures.headers["content-disposition"] == f'attachment; filename="{scene.study.name}-results.json"'
    assert figures.json()["study"] == scene.study.digest
    assert len(figures.json()["figures"]) == len(scene.results().agreed)


def test_a_studys_text_and_price_are_shown(ops, scene):
    page = ops.get(f"/studies/{scene.study.digest}/text").text
    assert "What it cost" in page
    assert "version: " in page
    prices = ops.get("/prices").text
    assert scene.study.name in prices


def test_silos_show_what_they_joined_with(ops, scene, server, operator_folder):
    page = ops.get("/silos").text
    assert all(silo in page for silo in scene.study.silos)
    silo = scene.study.silos[0]
    server.silo_book.note(silo, "9.9.9", (operator_folder / "certificate.pem").read_bytes())
    assert "9.9.9" in ops.get("/silos").text


def test_who_did_what_stands_in_the_audit_log(ops, vera, scene):
    ops.post(f"/studies/{scene.study.digest}/pause", reason="a <b>reason</b>")
    page = vera.get("/audit").text
    assert "a &lt;b&gt;reason&lt;/b&gt;" in page
    assert "operator/ops" in page
    older = re.search(r'href="(/audit\?before=\d+)"', page)
    assert older is None or vera.get(older[1]).status_code == 200


def test_nothing_changes_without_the_form_of_the_session(ops, vera, scene):
    token = re.search(r'name="form_token" value="([^"]+)"', vera.get("/studies").text)[1]
    assert ops.get("/studies").status_code == 200
    for headers in ({"origin": ops.base}, {"origin": "https://evil.test"}, {}):
        reply = ops.client.post(f"/studies/{scene.study.digest}/pause", data={"form_token": token}, headers=headers)
        assert reply.status_code == 403
    assert ops.client.cookies.get(COOKIE)
    assert scene.status().state == "running"


def test_every_page_is_small(ops, make_scene):
    scene = make_scene()
    shared = sum(len(ops.get(f"/static/{name}").content) for name in ("console.css", "live.js", "mark.svg"))
    for path in (
        "/studies",
        f"/studies/{scene.study.digest}",
        f"/studies/{scene.study.digest}/text",
        "/audit",
        "/prices",
    ):
        assert len(ops.get(path).content) + shared < 100_000, path
