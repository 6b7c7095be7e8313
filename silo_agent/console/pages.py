"""The handlers of the hospital's console."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from crypto.errors import CertificateError, CryptoError
from crypto.pki.certificates import Trust
from crypto.pki.joining.renewal import WARN_FROM, due
from crypto.pki.reading import fingerprint, parse_certificate, subject_of, valid
from policies.documents.policy import Policy, load_policy
from policies.documents.study import Study
from policies.documents.writing import write_study
from policies.errors import LedgerError, PolicyError
from policies.ledger.chain import Entry, Genesis
from policies.ledger.summary import summarise
from policies.reports.blocks import Cell, Paragraph, Section, grid
from policies.web.blocks import PlaceCell
from policies.web.calls import BadCallError, ConsoleCall, Moved, NotHereError, Page, Reply
from protos.messages import MessageError
from silo_agent.board_report import own_figures
from silo_agent.config import AgentConfig, SqlSource
from silo_agent.console import views
from silo_agent.errors import SiloError
from silo_agent.oversight.decisions import approvers_of
from silo_agent.oversight.ledger_tables import called, shown
from silo_agent.review import texts
from silo_agent.review.asking import AskingStudy, asking
from silo_agent.review.data_check import checked
from silo_agent.review.finished import finished
from silo_agent.review.shown import shown as shown_study
from silo_agent.review.spent import spent_in, whole_history
from silo_agent.storage import approvals as kept
from silo_agent.storage.folders import StateFolder
from silo_agent.storage.offered import begun_names

SCREEN: Final = 50
"""Entries on a page."""
REFUSALS: Final = (SiloError, CryptoError, PolicyError, MessageError, OSError, ValueError)
"""What a page shows as a sentence. It stays inside the hospital, as all of this console does."""
_FAULTS: Final = 20
_MOST_MEASURED: Final = 16


@dataclass(frozen=True)
class Officer:
    """Whoever opened the link: somebody who may read this agent's state on this machine."""

    name: str = "hospital"

    def __str__(self) -> str:
        return self.name


@dataclass
class HospitalPages:
    """The pages of one agent's configuration, which is read anew for each of them."""

    config: Path
    measured: dict[str, list[Section]] = field(default_factory=dict)
    """What was measured of finished studies, as long as the console runs."""
    busy: threading.Lock = field(default_factory=threading.Lock)
    """Held while records are read."""

    # --- overview ---------------------------------------------------------------------------------------------------
    def overview(self, _call: ConsoleCall[Officer]) -> Reply:
        """The first page: what needs a person, what is left of the budget, how things stand."""
        settings, policy = self._settings()
        found = asking(settings)
        cards: list[dict[str, str]] = []
        alerts: list[str] = []
        genesis, entries = self._ledger(settings, alerts)
        if genesis is not None:
            cards += _budget_card(policy, genesis, entries)
            if faults := views.uncleared(entries):
                alerts.append(
                    f"{len(faults)} computations failed and are not cleared: this silo takes part in nothing."
                )
        waits = [one for one in found if one.verdict == "waiting" and not one.study.why]
        runs = [one for one in found if one.begun and not one.study.why]
        cards.append({"label": "Waiting for a person", "value": str(len(waits)), "aside": "studies that asked"})
        cards.append({"label": "Running here", "value": str(len(runs)), "aside": f"of {len(found)} known studies"})
        cards.append(_certificate_card(settings, alerts))
        return Page("overview.html", {"cards": cards, "alerts": alerts, "waits": waits, "table": views.studies(found)})

    # --- studies ----------------------------------------------------------------------------------------------------
    def studies(self, _call: ConsoleCall[Officer]) -> Reply:
        """Every study that asked, also refused and waiting ones."""
        settings, _ = self._settings()
        return Page("studies.html", {"table": views.studies(asking(settings))})

    def studies_live(self, _call: ConsoleCall[Officer]) -> Reply:
        """The same, as the part that changes."""
        settings, _ = self._settings()
        return Page("studies_live.html", {"table": views.studies(asking(settings))})

    def study(self, call: ConsoleCall[Officer]) -> Reply:
        """One study in plain words, with the policy's verdict, and what can be decided."""
        settings, policy = self._settings()
        study, one = self._study(call, settings)
        found = shown_study(settings, study, study.digest)
        decided = kept.approvals(StateFolder(settings.state)).bound.get(study.digest)
        sections = [*views.about(study), *views.price_sections(found)]
        if found.prices is not None:
            sections.append(views.releases(study))
        return Page(
            "study.html",
            {
                "study": study,
                "one": one,
                "badge": views.BADGES[one.verdict],
                "author": found.author,
                "refused": () if found.refused is None else found.refused.reasons,
                "approval": found.approval,
                "approved": decided is not None and decided.data is not None,
                "declined": decided is not None and decided.data is None,
                "data": sorted((*settings.data, *settings.databases)),
                "approvers": None if policy.approvers is None else approvers_of(policy),
                "earlier": found.earlier,
                "changes": list(texts.changes(found.earlier, study)) if found.earlier else [],
                "sections": sections,
                "text": write_study(study) if found.prices is not None else "",
            },
        )

    def approve(self, call: ConsoleCall[Officer]) -> Reply:
        """Let a study use data: by a person's word, or by an approver's signature where the policy names approvers."""
        settings, policy = self._settings()
        study, _ = self._study(call, settings)
        signature = call.files.get("signature", b"")
        if signature:
            given = kept.signed_in(signature, study, "the file")
        else:
            if policy.approvers is not None:
                msg = "this hospital's policy names approvers: hand in what one of them signed"
                raise BadCallError(msg)
            given = kept.made(study, call.form.get("data", ""), datetime.now(UTC), call.form.get("reason", ""))
        if settings.source(str(given.data)) is None:
            raise BadCallError(kept.unknown(str(given.data), settings))
        texts.upgrade(settings)
        kept.approve(StateFolder(settings.state), study, given)
        told = f"{study.name} may use {given.data}. It begins when it is offered again, within about a minute."
        return Moved(f"/studies/{study.digest}", told)

    def decline(self, call: ConsoleCall[Officer]) -> Reply:
        """Decline a study."""
        return self._refused(call, "declined; it gets no data here.", declined=True)

    def withdraw(self, call: ConsoleCall[Officer]) -> Reply:
        """Take a study's approval back."""
        return self._refused(call, "its approval is taken back; it is charged nothing more.", declined=False)

    def _refused(self, call: ConsoleCall[Officer], told: str, *, declined: bool) -> Reply:
        settings, _ = self._settings()
        study, _one = self._study(call, settings)
        texts.upgrade(settings)
        now, reason = datetime.now(UTC), call.form.get("reason", "")
        folder = StateFolder(settings.state)
        kept.withdraw(folder, {study.digest: study.name}, now, reason=reason, declined=declined)
        return Moved(f"/studies/{study.digest}", f"{study.name}: {told}")

    # --- budget and what left ---------------------------------------------------------------------------------------
    def budget(self, call: ConsoleCall[Officer]) -> Reply:
        """The budget, its plot, what each study spent, and the ledger."""
        settings, policy = self._settings()
        genesis, entries, names = self._whole(settings)
        page = _page(call, len(entries))
        last = len(entries) - (page - 1) * SCREEN
        parts: list[tuple[str | Cell, ...]] = [
            (called(one.whole.name, names), str(one.whole.charges), str(one.whole.releases), shown(one.whole.epsilon))
            for one in summarise(genesis, entries).studies
        ]
        return Page(
            "budget.html",
            {
                "cards": _budget_card(policy, genesis, entries),
                "stairs": views.stairs(genesis, entries, policy.budget.epsilon),
                "studies": grid(("Study", "Charges", "Draws", "Epsilon alone"), parts, numbers=3),
                "ledger": views.ledger(entries[max(0, last - SCREEN) : last], names),
                "count": len(entries),
                "page": page,
                "pages": _pages(len(entries)),
                "unit": policy.data_set.unit,
            },
        )

    def left(self, call: ConsoleCall[Officer]) -> Reply:
        """What left this hospital: when, what, how large."""
        settings, _ = self._settings()
        _, entries, names = self._whole(settings)
        page = _page(call, len(entries))
        last = len(entries) - (page - 1) * SCREEN
        part = entries[max(0, last - SCREEN) : last]
        known = {digest: study for digest in names if (study := texts.kept_text(settings, digest)) is not None}
        table = views.left(part, known, names)
        return Page("left.html", {"table": table, "page": page, "pages": _pages(len(entries))})

    # --- data -------------------------------------------------------------------------------------------------------
    def data(self, _call: ConsoleCall[Officer]) -> Reply:
        """The data sets, who may use them, and where a check begins."""
        return Page("data.html", self._data(None))

    def check(self, call: ConsoleCall[Officer]) -> Reply:
        """Say which records of a data set do not fit a study. It reads the records."""
        settings, _ = self._settings()
        study, _one = self._study(ConsoleCall(call.who, {"study": call.form.get("study", "")}), settings)
        with self.busy:
            _, reading = checked(settings, study, call.form.get("data") or None, _FAULTS)
        reasons = [(str(reason), "") for reason in reading.found.reasons()]
        checked_ = {
            "study": study,
            "kept": reading.kept,
            "left_out": reading.left_out,
            "reasons": [text for text, _ in reasons],
            "faults": [str(fault) for fault in reading.faults],
        }
        return Page("data.html", self._data(checked_))

    def _data(self, checked_: dict[str, Any] | None) -> dict[str, Any]:
        settings, policy = self._settings()
        decided = kept.approvals(StateFolder(settings.state)).bound
        rows: list[tuple[str | Cell, ...]] = []
        for name in sorted((*settings.data, *settings.databases)):
            source = settings.source(name)
            there = source.missing is None if isinstance(source, SqlSource) else source is not None and source.exists()
            users = ", ".join(one.study for one in decided.values() if one.data == name) or "nobody yet"
            kind = "database" if isinstance(source, SqlSource) else "file or folder"
            rows.append(
                (name, kind, PlaceCell("there" if there else "missing", badge="good" if there else "bad"), users)
            )
        return {
            "table": grid(("Name", "Kind", "There", "Approved for"), rows),
            "studies": [one.study for one in asking(settings)],
            "data": sorted((*settings.data, *settings.databases)),
            "policy": policy,
            "checked": checked_,
        }

    # --- models -----------------------------------------------------------------------------------------------------
    def models(self, _call: ConsoleCall[Officer]) -> Reply:
        """The studies that have a model here."""
        settings, _ = self._settings()
        rows: list[tuple[str | Cell, ...]] = [
            (
                PlaceCell(one.study.name, note=one.study.digest[:12], to=f"/models/{one.study.digest}"),
                str(one.study.committed),
                "; ".join(one.warnings),
            )
            for one in asking(settings)
            if one.study.committed > 0
        ]
        return Page("models.html", {"table": grid(("Study", "Model of round", "Warnings"), rows)})

    def model(self, call: ConsoleCall[Officer]) -> Reply:
        """A finished study's report with this hospital's own figures, once they were measured."""
        settings, _ = self._settings()
        study, one = self._study(call, settings)
        sections = self.measured.get(study.digest)
        return Page("model.html", {"study": study, "one": one, "sections": sections})

    def measure(self, call: ConsoleCall[Officer]) -> Reply:
        """Measure shared, personal and chosen model on this hospital's held-out patients. Nothing is released."""
        settings, _ = self._settings()
        study, _one = self._study(call, settings)
        with self.busy:
            found, fault = finished(settings, study.digest)
            sections = own_figures(found)
        if fault:
            sections.insert(0, Section("Not measured", (Paragraph(fault, "warning"),), inside=True))
        while len(self.measured) >= _MOST_MEASURED:
            del self.measured[next(iter(self.measured))]
        self.measured[study.digest] = sections
        return Moved(f"/models/{study.digest}", "Measured on held-out patients. These figures stay inside.")

    # --- how things stand -------------------------------------------------------------------------------------------
    def health(self, _call: ConsoleCall[Officer]) -> Reply:
        """Faults, certificates, backups."""
        settings, _ = self._settings()
        alerts: list[str] = []
        _, entries = self._ledger(settings, alerts)
        names = begun_names(StateFolder(settings.state))
        faults = views.ledger(views.uncleared(entries), names)
        return Page(
            "health.html",
            {
                "alerts": alerts,
                "faults": faults,
                "certificate": _certificate(settings, alerts),
                "backup": _backup(StateFolder(settings.state), entries),
                "config": str(self.config),
            },
        )

    # --- inside -----------------------------------------------------------------------------------------------------
    def _settings(self) -> tuple[AgentConfig, Policy]:
        settings = AgentConfig.load(self.config)
        return settings, load_policy(settings.policy)

    def _study(self, call: ConsoleCall[Officer], settings: AgentConfig) -> tuple[Study, AskingStudy]:
        wanted = call.path["study"]
        one = next((one for one in asking(settings) if one.study.digest == wanted), None)
        study = None if one is None else texts.kept_text(settings, wanted)
        if one is None or study is None:
            msg = "this silo keeps no study with that digest"
            raise NotHereError(msg)
        return study, one

    def _whole(self, settings: AgentConfig) -> tuple[Genesis, tuple[Entry, ...], dict[str, str]]:
        folder = StateFolder(settings.state)
        _, genesis, entries = whole_history(folder.ledger, lambda: _trust(settings))
        return genesis, entries, begun_names(folder)

    def _ledger(self, settings: AgentConfig, alerts: list[str]) -> tuple[Genesis | None, tuple[Entry, ...]]:
        """The ledger, or nothing and an alert."""
        try:
            genesis, entries, _ = self._whole(settings)
        except (LedgerError, OSError) as error:
            alerts.append(str(error))
            return None, ()
        return genesis, entries


def _trust(settings: AgentConfig) -> Trust:
    return Trust.load(settings.authority, settings.crls)


def _budget_card(policy: Policy, genesis: Genesis, entries: tuple[Entry, ...]) -> list[dict[str, str]]:
    spent = spent_in(genesis, entries)
    if genesis.public:
        return [{"label": "Spent", "value": shown(spent), "aside": "public data: no budget binds"}]
    limit = policy.budget.epsilon
    left = max(0.0, limit - spent)
    return [
        {
            "label": "Budget left",
            "value": f"{left:.3f}",
            "aside": f"of epsilon {limit:g} for each {policy.data_set.unit}",
        },
        {"label": "Spent", "value": f"{spent:.3f}", "aside": f"at delta {genesis.delta:g}"},
    ]


def _certificate_card(settings: AgentConfig, alerts: list[str]) -> dict[str, str]:
    found = _certificate(settings, alerts)
    return {"label": "Certificate", "value": found.get("left", "?"), "aside": found.get("until", "cannot be read")}


def _certificate(settings: AgentConfig, alerts: list[str]) -> dict[str, str]:
    try:
        pem = settings.certificate.read_bytes()
        begins, ends = valid(pem)
        subject = subject_of(parse_certificate(pem))
    except (OSError, CertificateError) as error:
        alerts.append(f"the certificate cannot be read: {error}")
        return {}
    now = datetime.now(UTC)
    if due(begins, ends, now, WARN_FROM):
        alerts.append(f"the certificate ends on {ends:%Y-%m-%d %H:%M} UTC; see the agent's log")
    days = (ends - now).days
    return {
        "left": f"{days} days" if days >= 1 else "ends",
        "until": f"until {ends:%Y-%m-%d %H:%M} UTC",
        "who": subject.identity.uri,
        "fingerprint": fingerprint(pem),
        "renewed": settings.authority_url or "by hand: no authority_url in agent.yaml",
    }


def _backup(folder: StateFolder, entries: tuple[Entry, ...]) -> dict[str, str]:
    try:
        note = json.loads(folder.last_backup.read_bytes())
        made, upto = str(note["made"]), int(note["entries"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {"made": made, "since": str(max(0, (entries[-1].sequence if entries else 0) - upto))}


def _pages(count: int) -> int:
    return max(1, -(-count // SCREEN))


def _page(call: ConsoleCall[Officer], count: int) -> int:
    text = call.query.get("page", "1")
    if not (text.isascii() and text.isdigit() and len(text) < 7) or not 1 <= int(text) <= _pages(count):  # noqa: PLR2004
        msg = f"page is a whole number from 1 to {_pages(count)}"
        raise BadCallError(msg)
    return int(text)
