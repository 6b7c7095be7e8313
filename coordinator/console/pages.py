"""The handlers of the console: each takes a call of a person and asks the desk, which decides."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from coordinator.console import views
from coordinator.console.people import Person
from coordinator.console.prices import KnownPrices
from coordinator.console.steps import steps_of
from coordinator.core.filtering import StudyFilter
from coordinator.core.rights import AUDITORS, MAY_ACT, Action
from coordinator.core.study import Life, StudyStateError
from coordinator.people.desk import Desk
from coordinator.people.silo_book import SiloBook
from coordinator.register.catalogue import UnknownStudyError
from coordinator.reporting import figures_of
from crypto.authorship import SignatureBeside
from crypto.errors import CryptoError
from crypto.pki.reading import ends as certificate_ends
from crypto.pki.reading import fingerprint
from policies.documents.study import Study, study_in
from policies.documents.writing import write_study
from policies.errors import PolicyError
from policies.reports import forecast_section, published, study_sections
from policies.reports.blocks import Cell, Grid, Section, grid
from policies.web.blocks import PlaceCell
from policies.web.calls import BadCallError, ConsoleCall, Download, Moved, NotHereError, Page, Reply
from policies.web.words import time as told_time
from protos.messages import AuthorSignature
from protos.status import StudyStatus

SCREEN: Final = 20
"""Studies and entries on a page."""
_EVERY: Final = tuple(Life)
_WHOLE: Final = (Action.START, Action.PAUSE, Action.RESUME, Action.ARCHIVE, Action.ABORT, Action.DELETE)
"""What the pages can do to a study."""


@dataclass
class CoordinatorPages:
    """The pages of one coordinator."""

    desk: Desk
    silos: SiloBook
    clock: Callable[[], float] = time.time
    prices: KnownPrices = field(default_factory=KnownPrices)

    # --- studies ----------------------------------------------------------------------------------------------------
    def studies(self, call: ConsoleCall[Person]) -> Reply:
        """The first page: studies, newest first, with filters."""
        return Page("studies.html", self._list(call))

    def studies_live(self, call: ConsoleCall[Person]) -> Reply:
        """The same, as the part that changes."""
        return Page("studies_live.html", self._list(call))

    def _list(self, call: ConsoleCall[Person]) -> dict[str, Any]:
        who, state = call.who.identity, call.query.get("state", "")
        if state and state not in _EVERY:
            msg = f"a state is one of {', '.join(_EVERY)}"
            raise BadCallError(msg)
        name, number = call.query.get("name", "")[:64], _number(call, "page", 1)
        archived = call.query.get("archived", "") == "yes"
        pattern = name if not name or "*" in name else f"*{name}*"
        found, _ = self.desk.statuses(who, StudyFilter(frozenset({state} if state else ()), pattern, "", archived))
        pages = max(1, -(-len(found) // SCREEN))
        if number > pages:
            msg = f"there are {pages} pages"
            raise BadCallError(msg)
        shown = found[::-1][(number - 1) * SCREEN : number * SCREEN]
        return {
            "looks": [views.look(one) for one in shown],
            "count": len(found),
            "page": number,
            "pages": pages,
            "state": state,
            "states": list(_EVERY),
            "name": name,
            "archived": archived,
            "creates": Action.CREATE in MAY_ACT.get(who.role, ()),
            "drains": Action.DRAIN in MAY_ACT.get(who.role, ()),
            "draining": self.desk.draining,
        }

    def study(self, call: ConsoleCall[Person]) -> Reply:
        """One study as it moves through its rounds."""
        return Page("study.html", self._study(call))

    def study_live(self, call: ConsoleCall[Person]) -> Reply:
        """The same, as the part that changes."""
        return Page("study_live.html", self._study(call))

    def _study(self, call: ConsoleCall[Person]) -> dict[str, Any]:
        one = self._status(call)
        study = self.desk.document(one.study, call.who.identity)
        return {
            "look": views.look(one),
            "steps": steps_of(one),
            "members": views.members(one),
            "history": views.history(one),
            "actions": [(action, action in views.CONFIRMED) for action in views.actions(one, call.who.identity)],
            "own": one.owner == call.who.identity.uri,
            "study": study,
            "publishes": bool(study.publish),
        }

    def text(self, call: ConsoleCall[Person]) -> Reply:
        """A study's document in plain words, and its text."""
        one = self._status(call)
        study = self.desk.document(one.study, call.who.identity)
        price = self.prices.guarantee(study)
        return Page(
            "text.html",
            {
                "look": views.look(one),
                "publishes": bool(study.publish),
                "sections": [study_sections.asked(study), study_sections.price(price), study_sections.protected(price)],
                "text": write_study(study),
            },
        )

    def confirm(self, call: ConsoleCall[Person]) -> Reply:
        """Ask before something that cannot be undone."""
        one, action = self._status(call), _action(call)
        if action not in views.CONFIRMED or action not in views.actions(one, call.who.identity):
            msg = f"{one.name} is {one.state}; nothing can be done to it that is asked about here"
            raise NotHereError(msg)
        study = self.desk.document(one.study, call.who.identity)
        values = {"look": views.look(one), "action": action, "means": views.CONFIRMED[action]}
        return Page("confirm.html", {**values, "publishes": bool(study.publish)})

    def act(self, call: ConsoleCall[Person]) -> Reply:
        """Do something to a study."""
        one, action = self._status(call), _action(call)
        if action in views.CONFIRMED and call.form.get("sure") != "yes":
            msg = "tick that you are sure"
            raise BadCallError(msg)
        self.desk.act(one.study, call.who.deed(action, call.form.get("reason", "")))
        gone = action is Action.DELETE
        return Moved("/studies" if gone else f"/studies/{one.study}", f"{one.name}: {_DONE[action]}.")

    def drain(self, call: ConsoleCall[Person]) -> Reply:
        """Begin no further round of any study, or rounds again."""
        undo = call.form.get("undo") == "yes"
        action = Action.FILL if undo else Action.DRAIN
        within = self.desk.drain(call.who.deed(action, call.form.get("reason", "")))
        if undo:
            return Moved("/studies", "Rounds begin again.")
        return Moved("/studies", f"No further round begins; {len(within)} studies are within one.")

    # --- a new study ------------------------------------------------------------------------------------------------
    def new(self, _call: ConsoleCall[Person]) -> Reply:
        """Where a study is handed in."""
        return Page("new.html", {"answers": None})

    def create(self, call: ConsoleCall[Person]) -> Reply:
        """Take a study that its author has signed, or ask the silos of one."""
        study, beside = _handed_in(call)
        signed = None if beside is None else AuthorSignature(beside.certificate, beside.signature)
        if call.form.get("poll") == "yes":
            _, answers = self.desk.poll(study.canonical(), call.who.deed(Action.POLL), signed)
            # Nothing is stored of a study that is asked about: its page keeps both files for the next question.
            kept = {"text": write_study(study), "signature": "" if beside is None else beside.text}
            return Page("new.html", {"answers": answers, "study": study, **kept})
        digest = self.desk.create(study.canonical(), call.who.deed(Action.CREATE), signed)
        return Moved(f"/studies/{digest}", f"{study.name} is created. Start it when its silos are ready.")

    # --- results ----------------------------------------------------------------------------------------------------
    def results(self, call: ConsoleCall[Person]) -> Reply:
        """What a finished study has published: figures with intervals, ROC and calibration."""
        return self._results(call, None)

    def with_forecast(self, call: ConsoleCall[Person]) -> Reply:
        """The same, beside the forecast in a file of `fedward-silo plan --format json`."""
        return self._results(call, call.files.get("forecast"))

    def _results(self, call: ConsoleCall[Person], forecast: bytes | None) -> Reply:
        one = self._status(call)
        study = self.desk.document(one.study, call.who.identity)
        found = self.desk.results(one.study, call.who.identity)
        figures = figures_of(found)
        source = (
            f"From the sums over the held-out patients of all hospitals. {len(found.publications)} hospitals signed"
            f" what they read; a figure stands here if at least {found.needed} of them signed exactly the same."
        )
        expected: list[Section] = []
        if forecast is not None:
            expected = [forecast_section.section(forecast_section.forecast_in(forecast, study, "forecast.json"))]
        sections = [
            *published.sections(study, figures, source=source),
            *views.discrimination(study, figures),
            *expected,
        ]
        return Page(
            "results.html",
            {
                "look": views.look(one),
                "publishes": True,
                "sections": sections,
                "forecast_given": forecast is not None,
            },
        )

    def figures(self, call: ConsoleCall[Person]) -> Reply:
        """The published figures as a file."""
        one = self._status(call)
        found = self.desk.results(one.study, call.who.identity)
        rows = [vars(each.figure) | {"silos": each.silos} for each in found.agreed]
        content = json.dumps({"study": found.study, "name": found.name, "needed": found.needed, "figures": rows})
        return Download(f"{one.name}-results.json", content.encode(), "application/json")

    # --- silos, prices, audit log -----------------------------------------------------------------------------------
    def silo_list(self, call: ConsoleCall[Person]) -> Reply:
        """The silos of all studies that this person may see."""
        found, _ = self.desk.statuses(call.who.identity, StudyFilter())
        seen: dict[str, float] = {}
        says: dict[str, list[str]] = {}
        for one in found:
            for member in one.members:
                seen[member.silo] = max(seen.get(member.silo, 0.0), member.last_seen)
                if member.why:
                    says.setdefault(member.silo, []).append(f"{one.name}: {member.why}")
        rows = [self._silo(silo, at, says.get(silo, [])) for silo, at in sorted(seen.items())]
        return Page("silos.html", {"rows": rows})

    def _silo(self, name: str, at: float, says: list[str]) -> dict[str, Any]:
        joined = self.silos.of(name)
        heard = self.clock() - at if at else math.inf
        return {
            "name": name,
            "heard": told_time(at),
            "there": heard <= _THERE,
            "version": joined.version if joined else "",
            "ends": f"{certificate_ends(joined.certificate_pem):%Y-%m-%d %H:%M} UTC" if joined else "",
            "fingerprint": fingerprint(joined.certificate_pem) if joined else "",
            "says": says[:_SAID],
        }

    def price_list(self, call: ConsoleCall[Person]) -> Reply:
        """What each study costs a patient."""
        found, _ = self.desk.statuses(call.who.identity, StudyFilter())
        number = _number(call, "page", 1)
        pages = max(1, -(-len(found) // SCREEN))
        if number > pages:
            msg = f"there are {pages} pages"
            raise BadCallError(msg)
        shown = found[::-1][(number - 1) * SCREEN : number * SCREEN]
        rows: list[tuple[str | Cell, ...]] = [self._price(one, call.who) for one in shown]
        heads = ("Study", "State", "Delta", "Epsilon", "With one round repeated", "Training", "Evaluation")
        table: Grid = grid(heads, rows, numbers=5)
        return Page("prices.html", {"table": table, "count": len(found), "page": number, "pages": pages})

    def _price(self, one: StudyStatus, who: Person) -> tuple[str | Cell, ...]:
        study = self.desk.document(one.study, who.identity)
        cell = PlaceCell(one.name, note=one.study[:12], to=f"/studies/{one.study}")
        state = PlaceCell(one.state, badge=views.BADGES.get(one.state, "off"))
        found = self.prices.of(study)
        cohorts = [found.cohorts.get(name, 0.0) for name in ("training", "evaluation")]
        return (cell, state, f"{found.delta:g}", *map(_epsilon, (found.total, found.repeated, *cohorts)))

    def audit(self, call: ConsoleCall[Person]) -> Reply:
        """The audit log, newest first, and what silos signed of it."""
        if call.who.identity.role not in AUDITORS:
            msg = "operators and viewers read the audit log"
            raise NotHereError(msg)
        end = _number(call, "before", 0, least=0) if "before" in call.query else None
        entries, count = self.desk.audit_before(end, SCREEN, call.who.identity)
        signed = self.desk.cosigned_audit(call.who.identity)
        rows: list[tuple[str | Cell, ...]] = [
            (one.silo, str(one.entries), one.head.hex()[:16], _broke(one.broke_entries)) for one in signed
        ]
        return Page(
            "audit.html",
            {
                "table": views.audit(entries),
                "count": count,
                "older": entries[-1].number if entries and entries[-1].number > 0 else None,
                "signed": grid(("Silo", "Entries signed", "Head", "Broken"), rows),
            },
        )

    # --- inside -----------------------------------------------------------------------------------------------------
    def _status(self, call: ConsoleCall[Person]) -> StudyStatus:
        try:
            return self.desk.status(call.path["study"], call.who.identity)
        except UnknownStudyError as error:
            raise NotHereError(str(error)) from None


REFUSALS: Final = (ValueError, CryptoError, PolicyError, StudyStateError)
"""What a page shows as a sentence, beside all of `coordinator.errors`."""
_THERE: Final = 30.0
_SAID: Final = 5
_DIGITS: Final = 9
_DONE: Final = {
    Action.START: "started",
    Action.PAUSE: "paused",
    Action.RESUME: "goes on",
    Action.ARCHIVE: "archived",
    Action.ABORT: "aborted",
    Action.DELETE: "deleted",
}


def _action(call: ConsoleCall[Person]) -> Action:
    if call.path["action"] not in _WHOLE:
        msg = "there is no such action"
        raise NotHereError(msg)
    return Action(call.path["action"])


def _number(call: ConsoleCall[Person], name: str, default: int, *, least: int = 1) -> int:
    text = call.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS) or int(text) < least:
        msg = f"{name} is a whole number from {least} on"
        raise BadCallError(msg)
    return int(text)


def _handed_in(call: ConsoleCall[Person]) -> tuple[Study, SignatureBeside | None]:
    """A study and its signature, from the files that were chosen, or as a page has kept them."""
    content, signature = (
        call.files.get(name) or call.form.get(f"{name}_text", "").encode() for name in ("study", "signature")
    )
    if not content:
        msg = "choose the study's file (study.yaml)"
        raise BadCallError(msg)
    study = study_in(content, "the study's file")
    return study, SignatureBeside.parse(signature, "the signature's file") if signature else None


def _epsilon(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "no bound"


def _broke(entries: int) -> str:
    return f"it found the log changed at entry {entries}" if entries else ""
