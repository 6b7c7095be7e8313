"""The handlers of the console by themselves: what they ask the desk, and what they hand to their pages."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest

from coordinator.console import pages
from coordinator.console.pages import SCREEN, CoordinatorPages
from coordinator.console.people import Person
from coordinator.console.prices import KnownPrices
from coordinator.core import filtering
from coordinator.core.rights import Action
from coordinator.core.study import StudyStateError
from coordinator.people.silo_book import SiloBook
from coordinator.register.catalogue import UnknownStudyError
from crypto.authorship import sign_study
from crypto.pki.identity import Identity, Role
from crypto.pki.reading import fingerprint
from policies.documents.writing import write_study
from policies.reports import forecast_section
from policies.web.calls import BadCallError, ConsoleCall, NotHereError
from protos.audit import CosignedAudit
from protos.messages import AgreedFigure, AuthorSignature, Figure, StudyResults
from protos.status import MemberStatus, StudyStatus
from support.certificates import load
from support.people import audit_entry, author_in
from support.studies import tiny_study

OPS, ADA, VERA = (
    Person(Identity(Role(role), name), name.encode())
    for role, name in (("operator", "ops"), ("author", "ada"), ("viewer", "vera"))
)
STUDY = tiny_study(publish=["auc", "accuracy"])
SILENT = tiny_study(name="silent", publish=[])


def status(study=STUDY, state="running", **changes):
    fields = {"round": 1, "rounds": 2, "attempt": 1, "phase": "gather", "tensor": None, "waiting_for": (),
              "members": (), "owner": ADA.identity.uri}  # fmt: skip
    return StudyStatus(study.digest, study.name, state, "", **{**fields, **changes})


class FakeDesk:
    """A desk that shows what it is given, and writes down what it is asked."""

    def __init__(self, *shown, documents=(STUDY, SILENT)):
        self.shown, self.done, self.draining = list(shown), [], False
        self.documents = {one.digest: one for one in documents}
        self.log = [audit_entry(name=f"s{number}") for number in range(45)]
        self.log = [type(one)(**{**vars(one), "number": number}) for number, one in enumerate(self.log)]
        self.signed = []

    def statuses(self, who, wanted):
        self.done.append((who, wanted))
        return filtering.page(self.shown, wanted)

    def status(self, wanted, who):
        found = [one for one in self.shown if one.study == wanted]
        if not found:
            raise UnknownStudyError(wanted)
        self.done.append(who)
        return found[0]

    def document(self, study, who):
        assert isinstance(who, Identity)
        return self.documents.get(study, STUDY)

    def act(self, study, deed):
        self.done.append((study, deed))

    def drain(self, deed):
        self.done.append(deed)
        return ("a", "b")

    def poll(self, canonical, deed, signed):
        self.done.append((canonical, deed, signed))
        return "d" * 64, ("answers",)

    def create(self, canonical, deed, signed):
        self.done.append((canonical, deed, signed))
        return "d" * 64

    def results(self, study, who):
        figures = tuple(
            AgreedFigure(Figure(domain, metric, value, value - 0.1, value + 0.1), 3)
            for domain in ("a", "b")
            for metric, value in (("auc", 0.8), ("accuracy", 0.7))
        )
        return StudyResults(study, "tiny", 3, figures, ())

    def audit_before(self, end, most, who):
        self.done.append((end, most, who))
        last = len(self.log) if end is None else end
        return self.log[max(0, last - most) : last][::-1], len(self.log)

    def cosigned_audit(self, _who):
        return self.signed


def console(*shown, **more):
    desk = FakeDesk(*shown)
    return desk, CoordinatorPages(desk, SiloBook(), **more)


def call(who=OPS, *, study=STUDY, action="", query=None, form=None, files=None):
    return ConsoleCall(who, {"study": study.digest, "action": action}, query or {}, form or {}, files or {})


def many(count):
    return [status(tiny_study(name=f"s{number}")) for number in range(count)]


# --- lists ------------------------------------------------------------------------------------------------------------
def names(values):
    return [look.status.name for look in values["looks"]]


def test_studies_come_newest_first_a_screen_at_a_time():
    desk, made = console(*many(2 * SCREEN + 1))
    first = made.studies(call()).values
    assert names(first) == [f"s{number}" for number in range(2 * SCREEN, SCREEN, -1)]
    assert (first["count"], first["page"], first["pages"]) == (2 * SCREEN + 1, 1, 3)
    assert names(made.studies_live(call(query={"page": "3"})).values) == ["s0"]
    assert names(made.studies(call(query={"page": "2"})).values)[0] == f"s{SCREEN}"
    with pytest.raises(BadCallError, match=r"^there are 3 pages$"):
        made.studies(call(query={"page": "4"}))
    desk.shown = desk.shown[: 2 * SCREEN]
    assert made.studies(call()).values["pages"] == 2
    desk.shown = []
    assert (made.studies(call()).values["pages"], made.studies(call()).template) == (1, "studies.html")
    assert made.studies_live(call()).template == "studies_live.html"


@pytest.mark.parametrize(
    ("query", "states", "pattern", "archived"),
    [
        ({}, (), "", False),
        ({"name": "heart"}, (), "*heart*", False),
        ({"name": "he*t"}, (), "he*t", False),
        ({"name": "x" * 70}, (), f"*{'x' * 64}*", False),
        ({"state": "paused", "archived": "yes"}, ("paused",), "", True),
        ({"archived": "1"}, (), "", False),
    ],
)
def test_filters_are_asked_of_the_desk(query, states, pattern, archived):
    desk, made = console()
    values = made.studies(call(VERA, query=query)).values
    (asked,) = desk.done
    assert asked == (VERA.identity, filtering.StudyFilter(frozenset(states), pattern, "", archived))
    shown = query.get("name", "")[:64], query.get("state", ""), archived
    assert (values["name"], values["state"], values["archived"]) == shown


def test_a_state_that_no_study_has_is_refused_with_those_that_there_are():
    with pytest.raises(BadCallError, match=r"^a state is one of created, running, paused, waiting"):
        console()[1].studies(call(query={"state": "happy"}))


@pytest.mark.parametrize("text", ["0", "-1", "x", "", "1.0", "²", "1" * 10])
def test_a_page_is_a_whole_number(text):
    with pytest.raises(BadCallError, match=r"^page is a whole number from 1 on$"):
        console()[1].studies(call(query={"page": text}))
    assert pages._number(call(query={"page": "9" * 9}), "page", 1) == 999_999_999
    assert pages._number(call(), "page", 7) == 7


def test_who_may_create_and_drain_sees_the_buttons():
    desk, made = console()
    found = {str(who): made.studies(call(who)).values for who in (OPS, ADA, VERA)}
    assert [(one["creates"], one["drains"]) for one in found.values()] == [(True, True), (True, False), (False, False)]
    assert found[str(OPS)]["draining"] is False
    desk.draining = True
    assert made.studies(call()).values["draining"] is True


# --- one study --------------------------------------------------------------------------------------------------------
def test_a_study_is_shown_with_steps_silos_history_and_what_its_reader_may_do():
    _, made = console(status(), status(SILENT))
    values = made.study(call(ADA)).values
    assert values["look"].status.name == "tiny"
    assert [step.name for step in values["steps"]] == ["Offer", "Train", "Sum", "Open", "Solve"]
    assert values["actions"] == [(Action.PAUSE, False), (Action.ABORT, True)]
    assert (values["own"], values["publishes"], values["study"]) == (True, True, STUDY)
    other = made.study_live(call(OPS, study=SILENT)).values
    assert (other["own"], other["publishes"], other["study"]) == (False, False, SILENT)
    assert (made.study(call()).template, made.study_live(call()).template) == ("study.html", "study_live.html")


def test_what_a_reader_may_not_see_is_not_here():
    _, made = console()
    for handler in (made.study, made.text, made.results, made.figures):
        with pytest.raises(NotHereError, match=STUDY.digest):
            handler(call(ADA))


def test_a_text_is_shown_with_what_it_asks_costs_and_protects():
    _, made = console(status(), status(SILENT))
    values = made.text(call()).values
    assert [section.title for section in values["sections"]] == [
        section.title
        for section in (
            pages.study_sections.asked(STUDY),
            pages.study_sections.price(KnownPrices().guarantee(STUDY)),
            pages.study_sections.protected(KnownPrices().guarantee(STUDY)),
        )
    ]
    assert (values["text"], values["publishes"]) == (write_study(STUDY), True)
    assert made.text(call(study=SILENT)).values["publishes"] is False


# --- what is done -----------------------------------------------------------------------------------------------------
def test_only_what_cannot_be_undone_and_is_possible_is_asked_about():
    desk, made = console(status(), status(SILENT))
    assert made.confirm(call(study=SILENT, action="abort")).values["publishes"] is False
    page = made.confirm(call(action="abort"))
    assert page.values["publishes"] is True
    assert (page.template, page.values["action"], page.values["look"].status.name) == ("confirm.html", "abort", "tiny")
    assert page.values["means"].startswith("The study stops for good.")
    for action, who in (("pause", OPS), ("delete", OPS), ("abort", VERA)):
        with pytest.raises(
            NotHereError, match=r"^tiny is running; nothing can be done to it that is asked about here$"
        ):
            made.confirm(call(who, action=action))
    for action in ("explode", "create", "drain", ""):
        for handler in (made.confirm, made.act):
            with pytest.raises(NotHereError, match=r"^there is no such action$"):
                handler(call(action=action))
    assert not [one for one in desk.done if not isinstance(one, Identity)]


@pytest.mark.parametrize(
    ("action", "told"),
    [("start", "started"), ("pause", "paused"), ("resume", "goes on"), ("archive", "archived"), ("abort", "aborted"),
     ("delete", "deleted")],
)  # fmt: skip
def test_what_is_done_goes_to_the_desk_with_its_reason(action, told):
    desk, made = console(status())
    reply = made.act(call(ADA, action=action, form={"reason": " because\n", "sure": "yes"}))
    (found,) = [one for one in desk.done if isinstance(one, tuple)]
    assert found == (STUDY.digest, ADA.deed(Action(action), "because"))
    assert reply.to == ("/studies" if action == "delete" else f"/studies/{STUDY.digest}")
    assert reply.note == f"tiny: {told}."
    if action in ("abort", "delete"):
        for sure in ({}, {"sure": "no"}):
            with pytest.raises(BadCallError, match=r"^tick that you are sure$"):
                made.act(call(ADA, action=action, form=sure))
        assert len([one for one in desk.done if isinstance(one, tuple)]) == 1


def test_rounds_are_drained_and_begin_again():
    desk, made = console()
    reply = made.drain(call(form={"reason": "new disks"}))
    assert (reply.to, reply.note) == ("/studies", "No further round begins; 2 studies are within one.")
    back = made.drain(call(form={"undo": "yes"}))
    assert (back.to, back.note) == ("/studies", "Rounds begin again.")
    assert desk.done == [OPS.deed(Action.DRAIN, "new disks"), OPS.deed(Action.FILL)]


# --- a new study ------------------------------------------------------------------------------------------------------
def test_a_study_is_created_or_polled_with_its_signature(authority):
    desk, made = console()
    beside = sign_study(author_in(authority), STUDY.digest, STUDY.purpose)
    files = {"study": write_study(STUDY).encode(), "signature": beside.text.encode()}
    signed = AuthorSignature(beside.certificate, beside.signature)
    reply = made.create(call(ADA, files=files))
    assert (reply.to, reply.note) == (f"/studies/{'d' * 64}", "tiny is created. Start it when its silos are ready.")
    page = made.create(call(ADA, files=files, form={"poll": "yes"}))
    kept = {"text": write_study(STUDY), "signature": beside.text}
    assert (page.template, page.values) == ("new.html", {"answers": ("answers",), "study": STUDY, **kept})
    again = {f"{name}_text": content.decode() for name, content in files.items()}
    assert made.create(call(ADA, form={**again, "poll": "yes"})).values == page.values
    made.create(call(ADA, files={"study": files["study"]}, form={"poll": "no"}))
    assert desk.done == [
        (STUDY.canonical(), ADA.deed(Action.CREATE), signed),
        (STUDY.canonical(), ADA.deed(Action.POLL), signed),
        (STUDY.canonical(), ADA.deed(Action.POLL), signed),
        (STUDY.canonical(), ADA.deed(Action.CREATE), None),
    ]
    assert made.new(call()).values == {"answers": None}
    with pytest.raises(BadCallError, match=r"^choose the study's file \(study.yaml\)$"):
        made.create(call(files={"signature": files["signature"]}))
    for broken, told in (({"study": b"x: 1"}, "the study's file"), ({"signature": b"x"}, "the signature's file")):
        with pytest.raises(pages.REFUSALS, match=told):
            made.create(call(files=files | broken))


# --- results ----------------------------------------------------------------------------------------------------------
def test_results_come_with_their_source_and_a_forecast_only_if_one_is_given(monkeypatch):
    _, made = console(status(state="finished"))
    page = made.results(call())
    assert (page.template, page.values["publishes"], page.values["forecast_given"]) == ("results.html", True, False)
    titles = [section.title for section in page.values["sections"]]
    assert titles[-1] == "ROC and calibration"
    text = repr(page.values["sections"])
    assert "0 hospitals signed what they read; a figure stands here if at least 3 of them signed exactly" in text
    given = []
    monkeypatch.setattr(
        forecast_section, "forecast_in", lambda content, study, name: given.append((content, study, name)) or None
    )
    with_one = made.with_forecast(call(files={"forecast": b"{}"}))
    assert given == [(b"{}", STUDY, "forecast.json")]
    assert with_one.values["forecast_given"] is True
    assert [one.title for one in with_one.values["sections"]][: len(titles)] == titles
    assert len(with_one.values["sections"]) == len(titles) + 1
    assert made.with_forecast(call()).values["forecast_given"] is False


def test_figures_are_a_file():
    _, made = console(status(state="finished"))
    file = made.figures(call())
    assert (file.name, file.kind) == ("tiny-results.json", "application/json")
    content = json.loads(file.content)
    assert (content["study"], content["name"], content["needed"]) == (STUDY.digest, "tiny", 3)
    assert content["figures"][0] == {"domain": "a", "metric": "auc", "value": 0.8, "low": pytest.approx(0.7),
                                     "high": pytest.approx(0.9), "silos": 3}  # fmt: skip
    assert len(content["figures"]) == 4


# --- silos ------------------------------------------------------------------------------------------------------------
def member(silo, last_seen=0.0, why=""):
    return MemberStatus(silo, "active", why, last_seen)


def test_silos_are_those_of_all_studies_with_when_they_were_heard_last(authority):
    shown = [
        status(members=(member("b", 100.0), member("a", 50.0, "no data"))),
        status(SILENT, members=(member("b", 70.0), member("c"), member("a", 60.0, "ill"))),
    ]
    desk, made = console(*shown, clock=lambda: 130.0)
    pem = load(authority.credential("silo", "page-b")).certificate_pem
    made.silos.note("b", "0.7.0", pem)
    a, b, c = made.silo_list(call(VERA)).values["rows"]
    assert [one["name"] for one in (a, b, c)] == ["a", "b", "c"]
    assert [one["there"] for one in (a, b, c)] == [False, True, False]
    assert (a["heard"], b["heard"]) == ("1970-01-01 00:01:00 UTC", "1970-01-01 00:01:40 UTC")
    assert (b["version"], b["fingerprint"], a["version"], a["ends"], a["fingerprint"]) == (
        "0.7.0",
        fingerprint(pem),
        "",
        "",
        "",
    )
    assert b["ends"].endswith(" UTC")
    assert a["says"] == ["tiny: no data", "silent: ill"]
    assert b["says"] == []
    assert desk.done[0] == (VERA.identity, filtering.StudyFilter())
    made.clock = lambda: 130.1
    assert [one["there"] for one in made.silo_list(call()).values["rows"]] == [False, False, False]


def test_what_a_silo_says_is_bounded():
    talks = [status(tiny_study(name=f"s{number}"), members=(member("a", 1.0, "x"),)) for number in range(8)]
    _, made = console(*talks)
    (row,) = made.silo_list(call()).values["rows"]
    assert row["says"] == [f"s{number}: x" for number in range(5)]


# --- prices -----------------------------------------------------------------------------------------------------------
def test_prices_are_listed_newest_first_a_screen_at_a_time():
    priced = SimpleNamespace(delta=1e-5, total=1.25, repeated=math.inf, cohorts={"training": 1.25})
    prices = SimpleNamespace(of=lambda _: priced)
    shown = [*many(SCREEN), status(state="unheard of")]
    _, made = console(*shown, prices=prices)
    values = made.price_list(call()).values
    assert (values["count"], values["page"], values["pages"]) == (SCREEN + 1, 1, 2)
    row, second = values["table"].rows[:2]
    assert [cell.text for cell in row] == ["tiny", "unheard of", "1e-05", "1.250", "no bound", "1.250", "0.000"]
    assert (row[0].to, row[0].note) == (f"/studies/{STUDY.digest}", STUDY.digest[:12])
    assert (row[1].badge, second[1].badge) == ("off", "busy")
    assert len(values["table"].rows) == SCREEN
    (last,) = made.price_list(call(query={"page": "2"})).values["table"].rows
    assert last[0].text == "s0"
    with pytest.raises(BadCallError, match=r"^there are 2 pages$"):
        made.price_list(call(query={"page": "3"}))


# --- audit log --------------------------------------------------------------------------------------------------------
def test_the_audit_log_comes_newest_first_and_goes_back_to_its_beginning():
    desk, made = console()
    desk.signed = [
        CosignedAudit("north", 40, b"\xab" * 32, 0, bytes(32), b"pem", b"s"),
        CosignedAudit("south", 40, b"\xcd" * 32, 7, bytes(32), b"pem", b"s"),
    ]
    values = made.audit(call(VERA)).values
    assert [row[0].text for row in values["table"].rows] == [str(number) for number in range(44, 24, -1)]
    assert (values["count"], values["older"]) == (45, 25)
    assert [[cell.text for cell in row] for row in values["signed"].rows] == [
        ["north", "40", "ab" * 8, ""],
        ["south", "40", "cd" * 8, "it found the log changed at entry 7"],
    ]
    older = made.audit(call(query={"before": "5"})).values
    assert ([row[0].text for row in older["table"].rows], older["older"]) == (["4", "3", "2", "1", "0"], None)
    assert made.audit(call(query={"before": "0"})).values["older"] is None
    assert desk.done == [(None, SCREEN, VERA.identity), (5, SCREEN, OPS.identity), (0, SCREEN, OPS.identity)]
    with pytest.raises(BadCallError, match=r"^before is a whole number from 0 on$"):
        made.audit(call(query={"before": "-1"}))


def test_an_author_reads_no_audit_log():
    desk, made = console()
    with pytest.raises(NotHereError, match=r"^operators and viewers read the audit log$"):
        made.audit(call(ADA))
    assert desk.done == []


def test_what_a_page_shows_as_a_sentence_holds_the_states_of_studies():
    assert StudyStateError in pages.REFUSALS
