"""Takes what operators, authors and viewers ask: right, quota, action, and an entry in the audit log for each action.

Guarantees: an action and its entry are one transaction. A refused action changes nothing, and has an entry of its own.
A person sees no study that the person's role does not show.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import structlog

from coordinator.core import study as studies
from coordinator.core.filtering import EVERYTHING, StudyFilter, page
from coordinator.core.quotas import QuotaError, QuotaLimits, Usage, require_calm, require_within
from coordinator.core.revisions import Namesake, StudyExistsError, require_next
from coordinator.core.rights import AUDITORS, Action, Deed, RightsError, may_see, require_right, require_role
from coordinator.core.study import Outcome, Progress, Script, StudyStateError
from coordinator.engine import Engine
from coordinator.people.authors import RequireAuthor, UnsignedError
from coordinator.people.polls import Polls
from coordinator.register.catalogue import UnknownStudyError
from coordinator.storage.audit_log import DONE, REFUSED, stamp
from coordinator.storage.store import Store
from coordinator.sums.room import LittleRoomError, most_bytes
from crypto.pki.identity import Identity
from policies.documents.study import Study, read_stored
from policies.refusals import Refused
from protos.audit import AuditEntry, CosignedAudit
from protos.bounds import MAX_NAME, sentence
from protos.messages import AuthorSignature, StudyResults, StudyText
from protos.status import StudyStatus

log = structlog.get_logger()
PAGE: Final = 200
"""Entries of the audit log that are read at once: so many fit a message, however long their texts are."""
_REFUSALS: Final = (
    RightsError,
    QuotaError,
    StudyStateError,
    StudyExistsError,
    UnknownStudyError,
    UnsignedError,
    LittleRoomError,
    Refused,
    ValueError,
)
"""What refuses an action. Anything else is a fault of this machine, and no entry can be expected to be stored."""


@dataclass(frozen=True)
class _About:
    """What an entry names, as far as it is known when the action is refused."""

    study: str = ""
    name: str = ""


class Desk:
    """All that people may ask of one coordinator."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        limits: QuotaLimits,
        require_author: RequireAuthor,
        clock: Callable[[], float],
    ) -> None:
        """`clock` gives seconds since the epoch."""
        self._require_author = require_author
        self.polls = Polls(limits.polls_a_day, clock)
        """What authors ask silos before a study is created."""
        self._engine, self._audit, self._limits, self._clock = engine, store.audit, limits, clock
        self._store, self._owners, self._archived = store, store.owners(), store.archived()
        self._sizes: dict[str, int] = {}
        self._turn = threading.Lock()
        """Held from the look at a quota until what it allows is stored."""

    # --- actions ----------------------------------------------------------------------------------------------------
    def create(self, canonical: bytes, deed: Deed, signed: AuthorSignature | None = None) -> str:
        """Store a study that an author has `signed`. It belongs to this person from then on. Returns its digest.

        Raises ValueError if it is no study, `RightsError`, `UnsignedError`, `QuotaError`, `Refused`,
        `StudyExistsError`, and `LittleRoomError` if a round does not fit.
        """
        with self._noted(deed, "") as about, self._turn:
            require_role(deed)
            study = read_stored(canonical)
            about(_About(study.digest, study.name))
            self._require_author(study, signed, deed.who)
            self._engine.require_bounds(study)  # first: nothing is planned of a study whose constants know no bound
            before = self._namesakes(study.name)
            require_next(study.name, study.digest, study.revision, deed.who.uri, before)
            require_within(self._limits, self._usage(deed.who), most_bytes(study))
            after = max(before, key=lambda one: one.revision).study if before else ""
            self._engine.create(study, self._entry(deed, _About(study.digest, study.name)), signed, after=after)
            self._owners[study.digest] = deed.who.uri
        return study.digest

    def poll(self, canonical: bytes, deed: Deed, signed: AuthorSignature | None = None) -> tuple[str, dict[str, str]]:
        """Ask the silos of a study that an author has `signed`. Returns its digest, and the answers so far by silo.

        Raises ValueError if it is no study, `RightsError`, `UnsignedError`, `QuotaError`, `Refused`.
        """
        with self._noted(deed, "") as about:
            require_role(deed)
            study = read_stored(canonical)
            known = _About(study.digest, study.name)
            about(known)
            self._require_author(study, signed, deed.who)
            self._engine.require_bounds(study)
            answers, begins = self.polls.ask(study, StudyText(canonical, signed), deed.who.uri)
            if begins:
                self._audit.note(self._entry(deed, known))
        return study.digest, answers

    def act(self, wanted: str, deed: Deed) -> None:
        """Do something to a study. Raises `UnknownStudyError`, `RightsError`, `StudyStateError`."""
        with self._noted(deed, wanted) as about:
            require_role(deed)
            script = self._find(wanted, deed.who)
            named = _About(script.study, script.name)
            about(named)
            require_right(deed, self._owners.get(script.study, ""))
            if deed.action is not Action.ABORT:
                require_calm(self._limits, self._audit.done(deed.who.uri, self._now()))
            self._do(script.study, deed, self._entry(deed, named))
        log.info("acted", who=deed.who.uri, action=deed.action, study=named.study)

    def drain(self, deed: Deed) -> tuple[str, ...]:
        """Begin no further round of any study, or rounds again. Return the studies that are within a round, by digest.

        What changes something is noted in the audit log. Raises `RightsError`.
        """
        undo = deed.action is Action.FILL
        with self._noted(deed, ""):
            require_role(deed)
            if self._engine.draining is undo:
                self._audit.note(self._entry(deed, _About()))
            return self._engine.drain(undo=undo)

    # --- reading ----------------------------------------------------------------------------------------------------
    def status(self, wanted: str, who: Identity) -> StudyStatus:
        """Return the status of a study with its history. Raises `UnknownStudyError`."""
        return self._owned(self._engine.status(self._find(wanted, who).study))

    def statuses(self, who: Identity, wanted: StudyFilter = EVERYTHING) -> tuple[list[StudyStatus], int]:
        """Return a page of the studies that this person may see, in brief, and how many come after it."""
        return page(map(self._owned, self._engine.statuses(lambda study: self._shows(study, who))), wanted)

    def document(self, wanted: str, who: Identity) -> Study:
        """Return a study's document. Raises `UnknownStudyError`."""
        return self._engine.catalogue.document(self._find(wanted, who).study)

    def results(self, wanted: str, who: Identity) -> StudyResults:
        """Return what a finished study has published. Raises `UnknownStudyError`, `StudyStateError`."""
        return self._engine.results(self._find(wanted, who).study)

    def audit(self, first: int, who: Identity) -> Iterator[list[AuditEntry]]:
        """Give the audit log in pages, from the entry with this number on. Raises `RightsError`."""
        self._require_auditor(who)
        while page := self._audit.entries(first, PAGE):
            yield page
            first = page[-1].number + 1

    def audit_before(self, end: int | None, most: int, who: Identity) -> tuple[list[AuditEntry], int]:
        """Return at most so many entries before the one with the number `end`, or the newest, and how many there are.

        Raises `RightsError`.
        """
        self._require_auditor(who)
        count = self._audit.followed().entries
        last = count if end is None else min(max(end, 0), count)
        first = max(0, last - most)
        return self._audit.entries(first, last - first)[::-1], count

    @property
    def draining(self) -> bool:
        """Whether no further round begins."""
        return self._engine.draining

    def cosigned_audit(self, who: Identity) -> list[CosignedAudit]:
        """Return what silos signed of the audit log. Raises `RightsError`."""
        self._require_auditor(who)
        return self._audit.cosigned()

    # --- inside -----------------------------------------------------------------------------------------------------
    def _do(self, study: str, deed: Deed, entry: AuditEntry) -> None:
        match deed.action:
            case Action.DELETE:
                self._engine.delete(study, entry)
                self._owners.pop(study, None)
            case Action.ARCHIVE:
                self._engine.require_over(study)
                self._store.archive(study, entry)
                self._archived.add(study)
            case _:
                self._engine.command(study, _move(deed), entry)

    def _owned(self, one: StudyStatus) -> StudyStatus:
        return replace(one, owner=self._owners.get(one.study, ""), archived=one.study in self._archived)

    def _namesakes(self, name: str) -> list[Namesake]:
        return [
            Namesake(one.script.study, self._owners.get(one.script.study, ""), one.life, revision)
            for one, revision in self._engine.catalogue.named(name)
        ]

    def _require_auditor(self, who: Identity) -> None:
        if who.role not in AUDITORS:
            msg = f"{who} may not read the audit log; operators and viewers may"
            raise RightsError(msg)

    def _shows(self, study: str, who: Identity) -> bool:
        return may_see(who, self._owners.get(study, ""))

    def _find(self, wanted: str, who: Identity) -> Script:
        return self._engine.catalogue.find(wanted, lambda study: self._shows(study, who))

    def _usage(self, who: Identity) -> Usage:
        mine = {study for study, owner in self._owners.items() if owner == who.uri}
        opened = [study for study in self._engine.catalogue.not_over() if study.digest in mine]
        return Usage(len(opened), self._audit.created(who.uri, self._now()), sum(map(self._bytes, opened)))

    def _bytes(self, study: Study) -> int:
        if study.digest not in self._sizes:
            self._sizes[study.digest] = most_bytes(study)
        return self._sizes[study.digest]

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    @contextmanager
    def _noted(self, deed: Deed, wanted: str) -> Iterator[Callable[[_About], None]]:
        """Note in the audit log that the action was refused, if it is. Gives what says which study it is about."""
        known = _About(name=sentence(wanted, MAX_NAME))

        def about(study: _About) -> None:
            nonlocal known
            known = study

        try:
            yield about
        except _REFUSALS as error:
            entry = replace(self._entry(deed, known), outcome=REFUSED, why=sentence(str(error)))
            if not self._audit.note_refusal(entry, self._now()):
                log.warning("refused so often today that no entry was made", who=deed.who.uri, action=deed.action)
            raise

    def _entry(self, deed: Deed, about: _About) -> AuditEntry:
        return AuditEntry(
            number=0,
            at=stamp(self._now()),
            who=deed.who.uri,
            certificate=deed.certificate,
            action=deed.action,
            study=about.study,
            name=about.name,
            silo=deed.silo,
            reason=sentence(deed.reason),
            outcome=DONE,
            why="",
        )


def _move(deed: Deed) -> Callable[[Progress, float], Outcome]:
    """Return what an action does to a study's state."""
    match deed.action:
        case Action.START:
            return studies.start
        case Action.PAUSE:
            return lambda progress, now: studies.pause(progress, deed.told("paused"), now)
        case Action.RESUME:
            return studies.resume
        case Action.FORGIVE:
            return lambda progress, _: studies.forgive(progress, deed.silo)
        case Action.ABORT:
            return lambda progress, now: studies.abort(progress, deed.told("stopped"), now)
    msg = f"{deed.action} is not done to a study that exists"
    raise ValueError(msg)
