"""The hospital's console: what an officer reads and decides, and what it never does."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from starlette.testclient import TestClient

from crypto.pki.identity import Role
from crypto.pki.reading import fingerprint, valid
from policies.documents.bounds import STORED
from policies.documents.study import Study
from policies.documents.writing import write_study
from policies.ledger.events import Debit, Fault
from policies.ledger.ledger import Ledger, read_history
from policies.plan.release import plan
from policies.reports.blocks import Paragraph, Section
from policies.web.calls import BadCallError, ConsoleCall, NotHereError
from policies.web.console import COOKIE
from policies.web.sessions import Sessions
from silo_agent.console import pages
from silo_agent.console.pages import HospitalPages, Officer
from silo_agent.console.serving import HOST, application
from silo_agent.storage import approvals as kept
from silo_agent.storage import offered
from silo_agent.storage.backup import make_backup
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.model_warnings import Warned
from silo_agent.storage.model_warnings import keep as warn
from silo_agent.storage.state import State
from support.certificates import load
from support.ledgers import NORTH
from support.local_federation import write_patients
from support.models import random_alone, random_model, random_personal
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_document, tiny_study

NOW = datetime(2026, 11, 6, 15, 4, tzinfo=UTC)
ASKS = tiny_study(name="asks", purpose="To <b>predict</b> illness.")
OVER = tiny_study()
NAMED = f"{HOST}:8000"
ESTIMATE = {"value": 0.8125, "low": 0.7, "high": 0.9}


class Hospital:
    """A hospital with a study that is over, one that asks, and the console."""

    def __init__(self, folder, home, **policy):
        self.folder, self.state = folder, StateFolder(folder / "state")
        document = policy_document("north-ward")
        document["limits"].update(policy.pop("limits", {}))
        write_yaml(folder / "policy.yaml", {**document, **policy})
        write_patients(folder / "north.csv", np.random.default_rng(1), np.array([[3.0, 0.0], [0.0, 3.0]]), patients=60)
        credential = {name: str(home / f"{name}.pem") for name in ("certificate", "key", "authority")}
        more = {"policy": "policy.yaml", "state": "state", "data": {"tiny": "north.csv", "lab": "lab.csv"}}
        self.config = write_yaml(folder / "agent.yaml", {"coordinator": "localhost:1", **credential, **more})
        state = State(self.state.path)
        state.add_study(OVER.digest, OVER.canonical())
        state.commit(OVER.digest, OVER.rounds)
        self.study = state.study_folder(OVER.digest)
        state.close()
        random_model(OVER).save(self.study / f"model-{OVER.rounds}.safetensors")
        random_personal(OVER).save(self.study / "personal.safetensors")
        random_alone(OVER).save(self.study / "alone.safetensors")
        metrics = {"auc": ESTIMATE, "patients": {"value": 40.0, "low": 30.0, "high": 50.0}, "sizes": [20.0, 20.0]}
        results = {"study": OVER.digest, "domains": ["a", "b"], "by_domain": [metrics, metrics], "together": None}
        (self.study / "results.json").write_text(json.dumps(results))
        Ledger.create(self.state.ledger, NORTH)
        self.charge(*(Debit(OVER.digest, "p" * 64, n, 1, plan(OVER).round_costs(n)) for n in range(OVER.rounds + 2)))
        kept.upgrade(self.state, {OVER.digest: OVER.name}, ["tiny", "lab"], NOW)
        offered.keep(self.state, ASKS, NOW)
        sessions = Sessions()
        self.pages = HospitalPages(self.config)
        self.app = application(self.pages, sessions, lambda: {NAMED})
        self.client = TestClient(self.app, base_url=f"http://{NAMED}", raise_server_exceptions=False)
        self.client.cookies.set(COOKIE, sessions.begin(Officer()))

    def charge(self, *events):
        with Ledger.open(self.state.ledger, NORTH, budget_epsilon=40.0) as ledger:
            for event in events:
                ledger.charge(event)

    def get(self, path):
        return self.client.get(path)

    def post(self, path, page="/studies", **fields):
        token = re.search(r'name="form_token" value="([^"]+)"', self.get(page).text)[1]
        files = {name: value for name, value in fields.items() if isinstance(value, tuple)}
        data = {"form_token": token, **{name: value for name, value in fields.items() if name not in files}}
        return self.client.post(path, data=data, files=files or None, headers={"origin": f"http://{NAMED}"})

    @property
    def decided(self):
        return kept.approvals(self.state).bound.get(ASKS.digest)


@pytest.fixture
def hospital(quick_path, homes):
    return Hospital(quick_path, homes["north"])


@pytest.fixture
def signing(quick_path, homes):
    """One whose policy names an approver."""
    return Hospital(
        quick_path, homes["north"], approvers=[f"fedward://approver/{name}" for name in ("console-officer", "deputy")]
    )


PAGES = ("/", "/studies", f"/studies/{ASKS.digest}", f"/studies/{OVER.digest}", "/budget", "/left", "/data", "/models",
         f"/models/{OVER.digest}", "/health")  # fmt: skip


def test_pages_read_and_change_nothing(hospital):
    def files():
        return {path: path.read_bytes() for path in hospital.folder.rglob("*") if path.is_file()}

    hospital.get("/")
    before = files()
    for path in PAGES:
        reply = hospital.get(path)
        assert reply.status_code == 200, (path, reply.text)
        assert len(reply.content) < 80_000
    assert files() == before


def test_without_a_session_nothing_is_shown(hospital):
    hospital.client.cookies.clear()
    for path in PAGES:
        reply = hospital.get(path)
        assert (reply.status_code, ASKS.name in reply.text) == (401, False)
        assert "fedward-silo console" in reply.text


def test_a_study_is_read_before_it_is_decided(hospital):
    page = hospital.get(f"/studies/{ASKS.digest}").text
    for text in ("To &lt;b&gt;predict&lt;/b&gt; illness.", "The policy would take it.", "What leaves in which round",
                 "Against the budget", "nobody: no author", ASKS.digest):  # fmt: skip
        assert text in page
    assert f"Approve {ASKS.digest[:12]}" in page
    assert "waits for your decision" not in hospital.get("/").text, "the agent has not said so yet"
    offered.judged(hospital.state, ASKS.digest, (("approval", "a person is needed"),))
    assert ASKS.name in hospital.get("/studies").text


def test_a_refused_study_shows_every_reason(quick_path, homes):
    hospital = Hospital(quick_path, homes["north"], limits={"rounds": 1, "clip": 0.01})
    page = hospital.get(f"/studies/{ASKS.digest}").text
    assert "The policy refuses it." in page
    assert page.count("limits.") >= 2


def test_a_study_is_approved_by_its_digest_and_taken_back(hospital):
    at = f"/studies/{ASKS.digest}"
    assert hospital.post(f"{at}/approve", at, data="nothing").status_code == 400
    assert hospital.post(f"{at}/approve", at).status_code == 400
    assert hospital.decided is None
    done = hospital.post(f"{at}/approve", at, data="lab", reason="the board agreed")
    assert done.status_code == 200
    assert (hospital.decided.data, hospital.decided.reason, hospital.decided.declined) == (
        "lab",
        "the board agreed",
        False,
    )
    assert "asks may use lab" in done.text
    back = hospital.post(f"{at}/withdraw-approval", at, reason="no more")
    assert "its approval is taken back" in back.text
    assert (hospital.decided.data, hospital.decided.declined) == (None, False)


def test_a_study_is_declined(hospital):
    at = f"/studies/{ASKS.digest}"
    assert "declined" in hospital.post(f"{at}/decline", at, reason="not now").text
    assert (hospital.decided.data, hospital.decided.declined, hospital.decided.reason) == (None, True, "not now")


def test_where_approvers_must_sign_only_a_signature_approves(signing, authority):
    at = f"/studies/{ASKS.digest}"
    page = signing.get(at).text
    assert "fedward://approver/console-officer" in page
    assert f"fedward-silo study sign {ASKS.digest} --data NAME" in page
    reply = signing.post(f"{at}/approve", at, data="lab")
    assert (reply.status_code, signing.decided) == (400, None)
    credential = load(authority.credential(Role.APPROVER, "console-officer"))
    given = kept.made(ASKS, "lab", NOW, "agreed")
    other = kept.signed_text(OVER, kept.made(OVER, "lab", NOW), credential).encode()
    for content in (b"", b"nothing", other):
        assert signing.post(f"{at}/approve", at, signature=("a", content)).status_code in (400, 409)
        assert signing.decided is None
    done = signing.post(f"{at}/approve", at, signature=("a", kept.signed_text(ASKS, given, credential).encode()))
    assert done.status_code == 200
    assert (signing.decided.data, signing.decided.signed is not None) == ("lab", True)


def test_a_later_revision_shows_what_is_new(hospital):
    newer = tiny_study(name="asks", purpose="To predict illness better.", revision=2)
    offered.keep(hospital.state, newer, NOW)
    page = hospital.get(f"/studies/{newer.digest}").text
    assert "What is new since asks" in page
    assert "purpose: " in page


@pytest.mark.parametrize("path", ["/studies/", "/models/"])
@pytest.mark.parametrize("digest", ["asks", ASKS.digest[:12], "f" * 64, "..%2f..", ASKS.digest.upper()])
def test_a_study_is_named_by_its_whole_digest_alone(hospital, path, digest):
    assert hospital.get(path + digest).status_code == 404
    assert hospital.post(path + digest + ("/approve" if path == "/studies/" else "")).status_code == 404
    assert hospital.decided is None


def test_the_budget_is_drawn_and_every_entry_is_listed(hospital):
    page = hospital.get("/budget").text
    genesis, entries = read_history(hospital.state.ledger)
    assert f"of epsilon 4 for each {genesis.unit or 'patient'}" in page
    assert page.count("charge, round") == len(entries)
    assert 'class="edge"' in page
    assert hospital.get("/budget?page=2").status_code == 400
    assert hospital.get("/left?page=x").status_code == 400


def test_what_left_has_time_and_size(hospital):
    page = hospital.get("/left").text
    releases = sum(len(round_) for round_ in plan(OVER).rounds)
    assert page.count("<tr") == releases + 1
    assert "not known" not in page


def test_records_are_checked_when_somebody_asks(hospital):
    page = hospital.post("/data", "/data", study=OVER.digest, data="tiny").text
    assert "60 records fit, 0 would be left out" in " ".join(page.split())
    assert "stays inside" in page
    (hospital.folder / "north.csv").write_text("patient,group,age,lactate,ill\np1,a,999,5,1\n")
    page = hospital.post("/data", "/data", study=OVER.digest, data="tiny").text
    assert "1 would be left out" in page
    assert "999" in page
    assert hospital.post("/data", "/data", study=OVER.digest, data="lab").status_code == 409
    assert hospital.post("/data", "/data", study="x", data="tiny").status_code == 404


def test_models_are_measured_when_somebody_asks_and_are_marked_as_inside(hospital):
    page = f"/models/{OVER.digest}"
    assert "Not measured yet." in hospital.get(page).text
    done = hospital.post(page, page)
    assert "Measured on held-out patients" in done.text
    assert "Not noised, stays inside" in done.text
    assert all(f"{whom}, personal less shared" in done.text for whom in ("all", *OVER.data.domains))
    assert "stays inside" in hospital.get(page).text
    asks = hospital.post(f"/models/{ASKS.digest}", page)
    assert (asks.status_code, "Measured" in asks.text) == (409, False)


def test_faults_certificate_and_backup_stand_on_one_page(hospital, tmp_path):
    page = hospital.get("/health").text
    assert "No fault." in page
    assert "No backup of this state is known." in page
    assert "fedward://silo/north" in page
    make_backup(hospital.state.path, tmp_path / "backup.tar", version="1", day=NOW.date())
    hospital.charge(Debit(ASKS.digest, "p" * 64, 0, 1, plan(ASKS).round_costs(0)))
    with Ledger.open(hospital.state.ledger, NORTH, budget_epsilon=40.0) as ledger:
        ledger.note_fault(Fault(ASKS.digest, 0, 1, "counts"))
    page = hospital.get("/health").text
    assert "was made on 2026-11-06; 2 entries" in page
    assert "clear-fault" in page
    assert "1 computations failed" in hospital.get("/").text


def test_a_ledger_that_cannot_be_read_is_an_alert_and_no_empty_page(hospital):
    hospital.state.ledger.write_bytes(b"no ledger")
    for path in ("/", "/health"):
        reply = hospital.get(path)
        assert (reply.status_code, 'class="alert"' in reply.text) == (200, True)
    assert hospital.get("/budget").status_code == 409


def test_a_configuration_that_is_broken_meanwhile_is_said(hospital):
    hospital.config.write_text("nothing: 1")
    reply = hospital.get("/")
    assert (reply.status_code, "agent.yaml" in reply.text) == (409, True)


# --- what handlers hand to their pages --------------------------------------------------------------------------------
def values(handler, *, study=None, query=None, form=None):
    return handler(ConsoleCall(Officer(), {"study": study} if study else {}, query or {}, form or {})).values


def cards(found):
    return {one["label"]: (one["value"], one["aside"]) for one in found["cards"]}


def texts_of(table):
    return [[cell.text for cell in row] for row in table.rows]


def test_the_overview_counts_what_waits_and_runs_and_says_what_is_left(hospital):
    _, entries = read_history(hospital.state.ledger)
    spent = entries[-1].epsilon
    found = values(hospital.pages.overview)
    assert cards(found) | {"Certificate": None} == {
        "Budget left": (f"{4.0 - spent:.3f}", "of epsilon 4 for each patient"),
        "Spent": (f"{spent:.3f}", "at delta 1e-05"),
        "Waiting for a person": ("0", "studies that asked"),
        "Running here": ("1", "of 2 known studies"),
        "Certificate": None,
    }
    assert (found["waits"], found["alerts"], len(found["table"].rows)) == ([], [], 2)
    offered.judged(hospital.state, ASKS.digest, ((offered.WAITS, "nobody approved it"),))
    state = State(hospital.state.path)
    state.finish(OVER.digest, "finished", NOW.date())
    state.close()
    found = values(hospital.pages.overview)
    assert [one.study.digest for one in found["waits"]] == [ASKS.digest]
    assert [cards(found)[label][0] for label in ("Waiting for a person", "Running here")] == ["1", "0"]


def test_what_is_overspent_leaves_nothing_and_public_data_have_no_budget(hospital):
    _, policy = hospital.pages._settings()
    genesis, entries = read_history(hospital.state.ledger)
    over = (*entries[:-1], replace(entries[-1], epsilon=9.0))
    assert [one["value"] for one in pages._budget_card(policy, genesis, over)] == ["0.000", "9.000"]
    assert pages._budget_card(policy, replace(genesis, public=True), over) == [
        {"label": "Spent", "value": "9.0000", "aside": "public data: no budget binds"}
    ]


def test_a_study_is_handed_over_with_what_was_decided(hospital):
    found = values(hospital.pages.study, study=ASKS.digest)
    assert (found["study"], found["badge"], found["refused"], found["approvers"]) == (ASKS, "busy", (), None)
    assert (found["approved"], found["declined"], found["data"]) == (False, False, ["lab", "tiny"])
    assert (found["earlier"], found["changes"], found["text"]) == (None, [], write_study(ASKS))
    assert found["sections"][-1].title == "What leaves in which round"
    kept.approve(hospital.state, ASKS, kept.made(ASKS, "lab", NOW))
    found = values(hospital.pages.study, study=ASKS.digest)
    assert (found["approved"], found["declined"]) == (True, False)
    kept.withdraw(hospital.state, {ASKS.digest: "asks"}, NOW)
    found = values(hospital.pages.study, study=ASKS.digest)
    assert (found["approved"], found["declined"]) == (False, True)


def test_a_study_whose_constants_know_no_bound_has_no_price_and_no_text(hospital):
    broken = Study.model_validate(tiny_document(encoder={"learning_rate": 2e3}), context=STORED)
    offered.keep(hospital.state, broken, NOW)
    found = values(hospital.pages.study, study=broken.digest)
    assert (found["text"], [reason for reason, _ in found["refused"]]) == ("", ["bounds"])
    assert "What leaves in which round" not in [section.title for section in found["sections"]]


def test_a_study_whose_text_cannot_be_read_is_not_here(hospital, monkeypatch):
    monkeypatch.setattr(pages.texts, "kept_text", lambda *_: None)
    for handler in (hospital.pages.study, hospital.pages.model):
        with pytest.raises(NotHereError, match=r"^this silo keeps no study with that digest$"):
            values(handler, study=ASKS.digest)


def test_budget_and_what_left_come_a_screen_at_a_time(hospital, monkeypatch):
    _, entries = read_history(hospital.state.ledger)
    assert len(entries) == 4
    monkeypatch.setattr(pages, "SCREEN", 3)
    first, second = (values(hospital.pages.budget, query={"page": page}) for page in ("1", "2"))
    numbers = [[row[0] for row in texts_of(found["ledger"])] for found in (first, second)]
    assert sorted(map(int, numbers[0] + numbers[1])) == [one.sequence for one in entries]
    assert (len(numbers[0]), len(numbers[1])) == (3, 1)
    assert int(numbers[1][0]) == min(one.sequence for one in entries)
    assert (first["count"], first["page"], first["pages"], second["page"], first["unit"]) == (4, 1, 2, 2, "patient")
    (row,) = texts_of(first["studies"])
    charged = [cost for one in entries for cost in one.debit.costs.values()]
    assert row == [f"tiny {OVER.digest[:12]}", str(len(charged)), row[2], f"{entries[-1].epsilon:.4f}"]
    left = [values(hospital.pages.left, query={"page": page}) for page in ("1", "2")]
    assert [(one["page"], one["pages"]) for one in left] == [(1, 2), (2, 2)]
    assert len(left[0]["table"].rows) > len(left[1]["table"].rows) > 0
    for page in ("0", "3", "x", "", "1" * 7, "²"):
        with pytest.raises(BadCallError, match=r"^page is a whole number from 1 to 2$"):
            values(hospital.pages.budget, query={"page": page})


def test_data_are_listed_with_who_may_use_them_and_whether_they_are_there(hospital):
    kept.approve(hospital.state, ASKS, kept.made(ASKS, "tiny", NOW))
    found = values(hospital.pages.data)
    assert texts_of(found["table"]) == [
        ["lab", "file or folder", "missing", "nobody yet"],
        ["tiny", "file or folder", "there", "tiny, asks"],
    ]
    assert [row[2].badge for row in found["table"].rows] == ["bad", "good"]
    assert (found["data"], [one.name for one in found["studies"]]) == (["lab", "tiny"], ["tiny", "asks"])
    assert found["checked"] is None


def test_a_check_says_how_many_fit_and_why_others_do_not(hospital):
    rows = ["patient,group,age,lactate,ill", *(f"p{number},a,999,5,1" for number in range(25)), "q,a,50,5,1"]
    (hospital.folder / "north.csv").write_text("\n".join(rows) + "\n")
    found = values(hospital.pages.check, form={"study": OVER.digest, "data": "tiny"})["checked"]
    assert (found["study"], found["kept"], found["left_out"]) == (OVER, 1, 25)
    assert (len(found["faults"]), len(found["reasons"])) == (20, 1)
    approved = values(hospital.pages.check, form={"study": OVER.digest})["checked"]
    assert approved["kept"] == 1, "the data that the study may use"


def test_models_are_listed_from_round_one_on_with_warnings(hospital):
    (row,) = values(hospital.pages.models)["table"].rows
    assert [cell.text for cell in row] == ["tiny", str(OVER.rounds), ""]
    assert (row[0].to, row[0].note) == (f"/models/{OVER.digest}", OVER.digest[:12])
    found = (Warned("reversed", None, 40, 0.25, None), Warned("reversed", "a", 20, 0.3, None))
    warn(hospital.state.study(OVER.digest).warnings, 2, found)
    (row,) = values(hospital.pages.models)["table"].rows
    assert row[2].text == "; ".join(one.text for one in found)


def test_few_studies_stay_measured_and_what_cannot_be_measured_says_why(hospital, monkeypatch):
    monkeypatch.setattr(pages, "finished", lambda settings, digest: (digest, "no file"))
    monkeypatch.setattr(pages, "own_figures", lambda found: [Section(found, ()), Section("more", ())])
    monkeypatch.setattr(pages, "_MOST_MEASURED", 2)
    hospital.pages.measured |= {"first": [], "second": []}
    reply = hospital.pages.measure(ConsoleCall(Officer(), {"study": OVER.digest}))
    assert reply.to == f"/models/{OVER.digest}"
    assert list(hospital.pages.measured) == ["second", OVER.digest]
    why, figures, more = values(hospital.pages.model, study=OVER.digest)["sections"]
    assert (why.title, why.inside, why.blocks) == ("Not measured", True, (Paragraph("no file", "warning"),))
    assert (figures.title, more.title) == (OVER.digest, "more")
    assert values(hospital.pages.model, study=ASKS.digest)["sections"] is None


def test_a_certificate_says_when_it_ends_and_warns_in_time(hospital, monkeypatch):
    settings, _ = hospital.pages._settings()
    begins, ends = valid(settings.certificate.read_bytes())
    alerts = []
    found = pages._certificate(settings, alerts)
    assert (alerts, found["who"], found["renewed"]) == (
        [],
        "fedward://silo/north",
        "by hand: no authority_url in agent.yaml",
    )
    assert found["fingerprint"] == fingerprint(settings.certificate.read_bytes())
    assert found["until"] == f"until {ends:%Y-%m-%d %H:%M} UTC"
    card = pages._certificate_card(settings, [])
    assert card == {"label": "Certificate", "value": found["left"], "aside": found["until"]}
    for before, left, warned in ((timedelta(days=1, hours=1), "1 days", True), (timedelta(hours=23), "ends", True),
                                 (ends - begins, f"{(ends - begins).days} days", False)):  # fmt: skip
        clock = SimpleNamespace(now=lambda _, before=before: ends - before)
        monkeypatch.setattr(pages, "datetime", clock)
        alerts = []
        assert pages._certificate(settings, alerts)["left"] == left
        assert alerts == ([f"the certificate ends on {ends:%Y-%m-%d %H:%M} UTC; see the agent's log"] if warned else [])


def test_a_certificate_that_cannot_be_read_is_an_alert(hospital, tmp_path):
    settings, _ = hospital.pages._settings()
    (tmp_path / "broken.pem").write_text("no certificate")
    for name in ("none.pem", "broken.pem"):
        alerts = []
        other = settings.model_copy(update={"certificate": tmp_path / name})
        assert pages._certificate_card(other, alerts) == {
            "label": "Certificate",
            "value": "?",
            "aside": "cannot be read",
        }
        assert [one.partition(":")[0] for one in alerts] == ["the certificate cannot be read"]


@pytest.mark.parametrize("note", [b"{", b"{}", b'{"made": 1}', b'{"made": "x", "entries": "y"}', b"[]", None])
def test_a_backup_that_left_no_note_is_not_known(hospital, note):
    if note is not None:
        hospital.state.last_backup.write_bytes(note)
    assert pages._backup(hospital.state, ()) == {}


def test_a_backup_says_how_much_came_since(hospital):
    hospital.state.last_backup.write_text('{"made": "2026-11-06", "entries": 1}')
    _, entries = read_history(hospital.state.ledger)
    for known, since in ((entries, entries[-1].sequence - 1), ((), 0), (entries[:1], 0)):
        assert pages._backup(hospital.state, known) == {"made": "2026-11-06", "since": str(since)}
