"""The shell around the state machines. One lock puts events in one order, and state is stored before it has effects.

Threads of the server call in; a silo that waits for work holds none (`bells`). `_apply` runs the pure step, stores the
state, then performs the effects. Adding runs on a worker thread, because it reads every contribution. After a restart
it is done again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from coordinator import publishing
from coordinator.bells import Bells
from coordinator.core import study as studies
from coordinator.core.events import (
    Add,
    Added,
    Answered,
    Clear,
    Complained,
    Confirmed,
    Effect,
    Event,
    Lost,
    Passed,
    Persist,
    Restarted,
    Returned,
    Revoked,
    RoundStopped,
    Uploaded,
)
from coordinator.core.institutions import one_of_each
from coordinator.core.round import WrongPhaseError
from coordinator.core.state import OVER, Phase, PhaseLimits
from coordinator.core.study import Life, Progress, Script, StudyStateError
from coordinator.describing import (
    brief,
    describe,
    ended_attempt,
    ended_phases,
    in_sentences,
    measure,
    newly_signed,
    short,
    silent,
    where,
)
from coordinator.metrics import CoordinatorMetrics
from coordinator.register.catalogue import StudyCatalogue, UnknownStudyError
from coordinator.register.presence import Presence
from coordinator.relay.intake import Intake
from coordinator.shortages import MACHINE, Shortages
from coordinator.storage.database import LeaseLostError
from coordinator.storage.shortage import shortage_of
from coordinator.storage.spool import Spool
from coordinator.storage.store import Store
from coordinator.sums.adding import make_sum
from coordinator.sums.room import require_room
from coordinator.work import (
    asked_in,
    check_fetch,
    check_present,
    check_upload,
    forms_of,
    liar_of,
    signed_note,
    work_in,
)
from crypto.secagg.dealt.slices import SliceForm
from crypto.secagg.holding import FalseNote
from crypto.secagg.spoilt import SpoiltStatement
from crypto.secagg.voids import VoidPromise
from policies.documents.study import Study, require_bounds
from policies.plan import grids, quorum
from policies.plan.release import plan
from policies.refusals import Refused
from protos.audit import AuditEntry
from protos.chunks import ChunkList
from protos.messages import (
    Answer,
    AuthorSignature,
    Confirm,
    Place,
    SignedPublication,
    StudyResults,
    StudyText,
    Tensor,
    UploadHeader,
    Work,
    note_slot,
)
from protos.status import PhaseTime, StudyStatus
from protos.steps import Note, Task

log = structlog.get_logger()
_UPDATED = "the coordinator was updated in the middle of the attempt, and silos write notes in another form now"
_DRAINS = "no further round begins: an operator drains the coordinator, and it goes on when it is started again"
TICK_SECONDS = 0.25
STUCK_SECONDS = 60.0
"""How long the clock may wait for its turn before the coordinator counts as stuck."""


def script_of(study: Study) -> Script:
    """Return what the state machines need to know of a study."""
    deadlines = study.deadlines
    return Script(
        study=study.digest,
        name=study.name,
        silos=study.silos,
        min_silos=study.min_silos,
        colluders=study.privacy.colluders,
        recovers=study.privacy.mode != "distributed",
        tensors=tuple(tuple(Tensor(release.tensor) for release in round_) for round_ in plan(study).rounds),
        limits=PhaseLimits(deadlines.offer, deadlines.keys, deadlines.train, deadlines.open, deadlines.solve),
        max_attempts=study.max_attempts,
    )


class Engine:
    """All studies of one coordinator."""

    def __init__(
        self,
        store: Store,
        spool: Spool,
        metrics: CoordinatorMetrics,
        clock: Callable[[], float] = time.time,
        *,
        revoked: Callable[[bytes], bool] = lambda _: False,
        summed: Callable[[Place, Tensor, tuple[str, ...]], object],
        traced: Callable[[Place, Sequence[PhaseTime], str | None], object] = lambda *_: None,
    ) -> None:
        """`revoked` says of a silo's certificate (PEM) whether it counts no more. The others do not wait for it.

        `summed` stores which silos are in a sum, once enough of them have signed its list. `traced` hears of phases
        that have ended, and of the outcome of an attempt that is over.
        """
        self._traced = traced
        self._store, self._spool, self._metrics, self._clock = store, spool, metrics, clock
        self._revoked, self._summed = revoked, summed
        self._intake = Intake(store, spool, metrics)
        self.shortages = Shortages(metrics)
        """What this machine lacks now. Whoever meets an error of the machine notes it here."""
        self._held: dict[str, float] = {}
        """Since when no time passes for a study, because this machine is short or drains."""
        self._draining = False
        self._again: dict[str, Add] = {}
        """The sums that could not be made, by study."""
        self._lock = threading.RLock()
        self.bells = Bells()
        """Rung for each silo that has something to do."""
        loaded = {progress.script.study: in_sentences(progress) for progress in store.load()}
        self.catalogue = StudyCatalogue(store, self._lock, loaded)
        self._older = store.older
        self._told = store.told()
        self.presence = Presence(store, metrics, self.now)
        self._worker = ThreadPoolExecutor(1, "adding")
        self._stop = threading.Event()
        self._ticked = time.monotonic()
        self._ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)

    # --- life ---------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Resume all studies that were running, and start their clocks. One that cannot go on ends by name."""
        with self._lock:
            self._bring_up_to_date()
            self._sweep()
            for progress in self.catalogue.live():
                self._commit(progress, *studies.restart_clock(progress, self._clock()))
                round_ = progress.round
                if round_ is not None and round_.phase is Phase.ADD:
                    self._perform(Add(round_.place, round_.tensors[round_.cursor], round_.survivors))
            self._measure()
        self._worker.submit(lambda: None).result()  # so that its thread is there when there are too many others
        self._ticker.start()

    def passes(self) -> bool:
        """Whether time still passes for the studies: whether the clock had its turn within `STUCK_SECONDS`."""
        return time.monotonic() - self._ticked < STUCK_SECONDS

    def now(self) -> float:
        """Return the time by the engine's clock, in seconds since the epoch."""
        return self._clock()

    def close(self) -> None:
        """Stop the threads. The state is stored already."""
        self._stop.set()
        if self._ticker.is_alive():
            self._ticker.join()
        self._worker.shutdown(wait=True)
        self._store.database.engine.dispose()

    # --- people -------------------------------------------------------------------------------------------------
    def require_bounds(self, study: Study) -> None:
        """Raise `Refused` if this version could not carry the study out, whatever its silos say."""
        _require_bounds(study)

    def create(self, study: Study, entry: AuditEntry, author: AuthorSignature | None, *, after: str = "") -> None:
        """Store a study, with its author's signature and its entry in the audit log; `after`: the revision before it.

        Raises `Refused`, `StudyExistsError`, `LittleRoomError` if a round does not fit.
        """
        self.require_bounds(study)
        require_room(study, self._spool.free)
        progress = studies.create(script_of(study))
        with self._lock:
            self._store.create(study.canonical(), progress, entry, author, after=after)
            self.catalogue.add(study, progress)
            self._measure()
        log.info("study created", study=study.digest, name=study.name)

    def command(self, study: str, move: Callable[[Progress, float], studies.Outcome], entry: AuditEntry) -> None:
        """Change the state of a study as a person wants it, with an entry in the audit log.

        Raises `StudyStateError` if the study is not in a state that allows it; then nothing has changed.
        """
        with self._lock:
            progress = self.catalogue.of(study)
            self._commit(progress, *move(progress, self._clock()), entry=entry)

    def drain(self, *, undo: bool) -> tuple[str, ...]:
        """Begin no further round of any study, or begin rounds again. Return the studies that are within a round.

        It is not stored: a coordinator that is started again goes on with all studies.
        """
        with self._lock:
            if self._draining is undo:
                log.info("rounds begin again" if undo else "no further round begins")
            self._draining = not undo
            self._metrics.draining.set(self._draining)
            live = [one for one in self.catalogue.progress.values() if one.life is Life.RUNNING]
            for progress in live:
                self.bells.ring(asked_in(progress))
            return tuple(one.script.study for one in live if not _between_rounds(one))

    @property
    def draining(self) -> bool:
        """Whether no further round begins."""
        return self._draining

    def delete(self, study: str, entry: AuditEntry) -> None:
        """Forget a study that was never started. Raises `StudyStateError` if it was."""
        with self._lock:
            studies.require_unstarted(self.catalogue.of(study))
            self._store.delete(study, entry)
            self.catalogue.forget(study)
            self._measure()

    def require_over(self, study: str) -> None:
        """Raise `StudyStateError` unless a study is over."""
        with self._lock:
            studies.require_over(self.catalogue.of(study))

    def status(self, study: str) -> StudyStatus:
        """Return the status of a study. Raises `UnknownStudyError`."""
        with self._lock:
            progress = self.catalogue.of(study)
            described = self._described(progress)
            return replace(described, times=self._store.times(study), uploads=self._store.uploads(study))

    def statuses(self, shown: Callable[[str], bool] = lambda _: True) -> list[StudyStatus]:
        """Return the status of all studies that are `shown`, by digest, without their histories."""
        with self._lock:
            return [brief(self._described(one)) for study, one in self.catalogue.progress.items() if shown(study)]

    def under_way(self) -> list[StudyStatus]:
        """Return the status of the studies under way, and wait for nobody: states are values, whoever has the lock."""
        live = self.catalogue.live()
        return [describe(progress, self.presence.heard, self._clock(), self.presence.cut_off) for progress in live]

    def results(self, study: str) -> StudyResults:
        """Return what a finished study has published. Raises `StudyStateError` if it is not finished or has none."""
        with self._lock:
            progress = self.catalogue.of(study)
        script, round_ = progress.script, progress.round
        if not self.catalogue.document(script.study).publish:
            msg = f"{script.name} publishes nothing: its `publish` lists no metric"
            raise StudyStateError(msg)
        if progress.life is not Life.FINISHED or round_ is None:
            msg = f"the study is {progress.life}; only a finished study has results"
            raise StudyStateError(msg)
        signed = self._store.publications(round_.place)
        figures = publishing.agreed(signed, script.min_silos)
        return StudyResults(script.study, script.name, script.min_silos, figures, signed)

    # --- silos --------------------------------------------------------------------------------------------------
    def text(self, study: str, silo: str) -> StudyText:
        """Return a study's text, with its author's signature, to a silo that it invites. Raises `UnknownStudyError`."""
        with self._lock:
            progress = self.catalogue.progress.get(study)
        text = self._store.canonical(study)
        if progress is None or text is None or silo not in progress.script.silos:
            raise UnknownStudyError(study)
        return StudyText(text, self._store.author(study))

    def poll(self, silo: str, session: str) -> Work:
        """Return what the silo must do next; `Task.WAIT` if there is nothing. A silo that polls is not away."""
        with self._lock:
            self._notice(silo, session)
            return self._work(silo)

    def work(self, silo: str) -> Work:
        """Return what a silo must do next that has polled, and waits. Its bell rings when there is something."""
        with self._lock:
            return self._work(silo)

    def answer(self, silo: str, answer: Answer) -> None:
        """Take a silo's answer to an offer: it takes part or refuses."""
        with self._lock:
            answer = one_of_each(answer, self.catalogue.round(answer.place).members)
            self._at(answer.place, Answered(silo, answer))
        log.info("answered", silo=silo, **where(answer.place), refusal=answer.refusal or None)

    def confirm(self, silo: str, confirm: Confirm, certificate_pem: bytes = b"") -> None:
        """Take a silo's confirmation: it has done its part, disputes it, or knows that the study is over.

        The figures that it publishes were verified with `certificate_pem`, and are stored together with the state that
        counts them. Raises `WrongPhaseError`, and `MessageError` if the figures are not those that the study lists.
        """
        place = confirm.place
        if confirm.task is Task.FINISH:
            with self._lock:
                self._check_over(place.study, silo)
                self._store.tell(place.study, silo)
                self._told.add((place.study, silo))
            return
        with self._lock:
            self.catalogue.round(place)
            signed = publishing.accept(self.catalogue.document(place.study), silo, confirm, certificate_pem)
            event: Event = Confirmed(silo, confirm, certificate_pem)
            if confirm.dispute and confirm.culprit:
                event = Complained(silo, confirm, self._liar(silo, confirm))
            self._apply(self.catalogue.progress[place.study], event, signed)
        if confirm.dispute:
            said = {"task": confirm.task, "tensor": confirm.tensor, "dispute": confirm.dispute}
            log.warning("disputed", silo=silo, **where(place), **said, why=confirm.explanation)

    def judged(self, place: Place) -> FalseNote | None:
        """Return what a silo signs that finds the current shared model false; None if none is judged now.

        Raises `WrongPhaseError`.
        """
        with self._lock:
            round_ = self.catalogue.round(place)
            if round_.phase is not Phase.JUDGE:
                return None
            sha256 = next(part.sha256 for part in round_.parts if part.kind == Note.MODEL)
            return FalseNote(place.study, place.round, place.attempt, round_.actor, sha256)

    def expect(self, header: UploadHeader) -> None:
        """Refuse an upload that no phase waits for, or whose size is not the size in this study."""
        with self._lock:
            check_upload(self.catalogue.round(header.place), self.catalogue.document(header.place.study), header)

    def stored(self, header: UploadHeader) -> bool:
        """Whether the slot holds exactly these bytes already. Raises `ContentConflictError` if it holds others."""
        return self._intake.recorded(header)

    def offset(self, header: UploadHeader) -> int:
        """Return the number of bytes of an upload that need not be sent, so where to resume."""
        return self._intake.offset(header)

    def begin_upload(self, header: UploadHeader, chunks: ChunkList) -> int:
        """Return where a stream must begin. Bytes that are not of these chunks are deleted. Raises `SpoolFullError`."""
        return self._intake.begin(header, chunks)

    def take(self, header: UploadHeader, chunks: ChunkList, offset: int, data: bytes) -> None:
        """Store the next chunk of an upload. Raises `WrongPhaseError`, `MessageError`, `SpoolFullError`."""
        self.keep(header.place)
        self._intake.take(header, chunks, offset, data)

    def keep(self, place: Place) -> None:
        """Delete sealed bytes that were stored after the attempt's end. Raises `WrongPhaseError` if it has ended."""
        with self._lock:
            try:
                self.catalogue.round(place)
            except WrongPhaseError:
                self._spool.clear(place)
                raise

    def signed_note(self, header: UploadHeader) -> tuple[bytes, bytes]:
        """What the sender of a shares note whose bytes are all on disk has to have signed in it, and its signature.

        Raises `WrongPhaseError`, `RecoveryRefused`.
        """
        with self._lock:
            self.keep(header.place)
            round_, study = self.catalogue.round(header.place), self.catalogue.document(header.place.study)
        try:
            note = self._intake.content(header)
        except FileNotFoundError:
            self.keep(header.place)  # as in `finish_upload`
            raise
        return signed_note(round_, study, header, note)

    def discard(self, header: UploadHeader) -> None:
        """Delete the bytes of an upload that is not taken."""
        self._intake.discard(header)

    def finish_upload(self, header: UploadHeader, signature: bytes) -> None:
        """Check an upload whose bytes are all on disk, give it its final name and count it once.

        An upload of a silo that was set aside is never counted. Raises `FrameError`, ValueError, `WrongPhaseError`.
        """
        place = header.place
        if not self.stored(header):
            try:
                self._intake.settle(header, signature)
            except FileNotFoundError:
                self.keep(place)  # the end of the attempt has deleted its files; if it goes on, the fault is ours
                raise
            log.info("received", silo=header.silo, **where(place), slot=header.slot, size=header.size)
        with self._lock:
            self.keep(place)
            check_present(self.catalogue.round(place), header.silo)
            if header.silo in self.catalogue.round(place).waiting_for:
                self._apply(self.catalogue.progress[place.study], Uploaded(header, signature))

    def peers(self, silo: str, place: Place) -> tuple[str, ...]:
        """Return the other silos that are present in the current attempt. Raises `WrongPhaseError`."""
        with self._lock:
            round_ = self.catalogue.round(place)
            check_present(round_, silo)
            return tuple(name for name in round_.present if name != silo)

    def download(
        self, silo: str, place: Place, tensor: Tensor | None, kind: str, of_silos: Sequence[str]
    ) -> dict[str, tuple[str, str]]:
        """Return slot and file name of what a silo of the roster may fetch now, by the silo whose it is.

        Raises `WrongPhaseError` if any of it may not be fetched.
        """
        with self._lock:
            return check_fetch(self.catalogue.round(place), silo, tensor, kind, of_silos)

    def forms(self, place: Place, kind: str, owners: Iterable[str]) -> dict[str, SliceForm]:
        """Return where the slices lie in these members' notes of an attempt. Raises `WrongPhaseError`."""
        with self._lock:
            return forms_of(self.catalogue.round(place), kind, owners)

    def void(self, place: Place, tensor: Tensor) -> VoidPromise:
        """Return what a silo promises that voids the tensor's lists in this attempt. Raises `WrongPhaseError`."""
        with self._lock:
            proof = self.catalogue.round(place).spoilt
        return VoidPromise(place.study, place.round, tensor, place.attempt - 1, 0 if proof is None else proof.attempt)

    def statement(self, confirm: Confirm) -> SpoiltStatement:
        """Return what a silo states that confirms a recount. Raises `WrongPhaseError` if no sum is added again."""
        with self._lock:
            round_ = self.catalogue.round(confirm.place)
            if round_.phase is not Phase.RECOUNT:
                msg = f"the phase {round_.phase} does not wait for {confirm.task}"
                raise WrongPhaseError(msg)
            return round_.statement(confirm.culprit)

    # --- inside -------------------------------------------------------------------------------------------------
    def _sweep(self) -> None:
        self._spool.sweep([progress.round.place for progress in self.catalogue.live() if progress.round])

    def _described(self, progress: Progress) -> StudyStatus:
        study = progress.script.study
        found = describe(progress, self.presence.heard, self._clock(), self.presence.cut_off)
        found = replace(found, revision=self.catalogue.document(study).revision)
        if self._draining and progress.life is Life.RUNNING and _between_rounds(progress):
            found = replace(found, why=_DRAINS)
        return short(found, self.shortages.standing(study))

    def _bring_up_to_date(self) -> None:
        """Put unfinished studies of an earlier version under this version's plan, and end attempts that it began.

        Those that break a bound of this version, or are within a round that it plans otherwise, end: silos refuse them.
        An attempt ends because nobody reads the notes that silos have sent in it any more, and no silo is to be named
        for a note that was right when it was sent.
        """
        for progress in list(self.catalogue.progress.values()):
            if progress.life in studies.OVER:
                continue
            study = self.catalogue.document(progress.script.study)
            try:
                _require_bounds(study)
                current = studies.planned(progress, script_of(study).tensors)
            except Refused as refusal:
                self._end_outdated(progress, f"and breaks a bound of this one: {refusal.text}")
            except StudyStateError as error:
                self._end_outdated(progress, f"and cannot go on: {error}")
            else:
                self._commit(progress, current, [Persist()] if current != progress else [])
                self._end_older_attempt(current)

    def _end_older_attempt(self, progress: Progress) -> None:
        round_ = progress.round
        if progress.script.study not in self._older or progress.life not in studies.LIVE or round_ is None:
            return
        if round_.phase not in (*OVER, Phase.OFFER, Phase.WAIT):
            self._commit(progress, *studies.advance(progress, RoundStopped(_UPDATED), self._clock()))

    def _end_outdated(self, progress: Progress, why: str) -> None:
        reason = f"the study was made for an earlier version {why}"
        self._commit(progress, *studies.abort(progress, reason, self._clock()))
        log.warning("study ended", study=progress.script.study[:12], why=reason)

    def _check_over(self, study: str, silo: str) -> None:
        progress = self.catalogue.progress.get(study)
        if progress is None or silo not in progress.script.silos:
            raise UnknownStudyError(study)
        if progress.life not in studies.OVER and silo in progress.active:
            msg = f"the study is {progress.life}, and {silo} takes part"
            raise WrongPhaseError(msg)

    def _at(self, place: Place, event: Event) -> None:
        with self._lock:
            self.catalogue.round(place)
            self._apply(self.catalogue.progress[place.study], event)

    def _apply(self, progress: Progress, event: Event, signed: SignedPublication | None = None) -> None:
        self._commit(progress, *studies.advance(progress, event, self._clock()), signed)

    def _commit(  # an outcome is two of them
        self,
        before: Progress,
        after: Progress,
        effects: list[Effect],
        signed: SignedPublication | None = None,
        *,
        entry: AuditEntry | None = None,
    ) -> None:
        if not effects and entry is None:
            return
        after = in_sentences(after)
        times = ended_phases(before, after, effects, self._clock())
        published = (before.round.place, signed) if before.round and signed else None
        if (signed_list := newly_signed(before, after)) is not None:
            self._summed(*signed_list)
        self._store.save(after, times, published, entry)
        for time_ in times:
            self._metrics.phase_seconds.labels(time_.phase).observe(time_.seconds)
        self.catalogue.progress[after.script.study] = after
        self._report(before, after, effects, times)
        for effect in effects:
            if not isinstance(effect, Persist):
                self._perform(effect)
        self._measure((before, after))
        self.bells.ring(asked_in(after))

    def _perform(self, effect: Add | Clear | Lost) -> None:
        if isinstance(effect, Clear):
            self._spool.clear(effect.place)
        elif isinstance(effect, Lost):
            self._metrics.lost.labels(effect.phase).inc(len(effect.silos))
            log.warning("silos set aside", **where(effect.place), silos=effect.silos, why=effect.why)
        else:
            self._worker.submit(self._add, effect)

    def _add(self, effect: Add) -> None:
        """Add contributions. Runs on the worker thread. If this machine is short, the same is done again later."""
        place = effect.place
        try:
            with self._lock:
                self.catalogue.round(place)
                study = self.catalogue.document(place.study)
            try:
                event: Event = Added(make_sum(self._store, self._spool, study, effect))
            except Exception as error:
                if shortage_of(error) is not None or isinstance(error, LeaseLostError):
                    raise
                # A sum that cannot be made must end the attempt with a reason, not leave it hanging. Silos must not
                # see our paths.
                reason = error.strerror if isinstance(error, OSError) else error
                log.exception("adding failed", **where(place))
                event = RoundStopped(f"adding {effect.tensor} failed: {reason}")
            self._at(place, event)
        except WrongPhaseError:
            log.info("sum not wanted any more", **where(place))
            self._spool.clear(place)
        except LeaseLostError:
            return
        except Exception as error:
            self._again[place.study] = effect
            if self.shortages.note(error, place.study) is not None:
                return
            log.exception("adding failed", **where(place))
        self.shortages.over(place.study)

    def _liar(self, silo: str, confirm: Confirm) -> str:
        """Who lied, as the key shows that a silo publishes with its complaint; empty if it publishes none."""
        place, round_ = confirm.place, self.catalogue.round(confirm.place)
        path = self._spool.complete(place, note_slot(Note.SHARES, None), confirm.culprit)
        return liar_of(round_, silo, confirm, path.read_bytes()) if confirm.evidence and path.exists() else ""

    def _notice(self, silo: str, session: str) -> None:
        """Note that a silo polls. It is not away, but it may have lost its keys."""
        for study in list(self.catalogue.progress):
            for event in (Restarted(silo, session), Returned(silo)):
                if (progress := self.catalogue.progress[study]).life in studies.LIVE:
                    self._apply(progress, event)

    def _work(self, silo: str) -> Work:
        for progress in self.catalogue.progress.values():
            if self._draining and progress.life is Life.RUNNING and _between_rounds(progress):
                continue
            work = work_in(progress, silo, told=(progress.script.study, silo) in self._told)
            if work is not None:
                return work
        return Work(Task.WAIT)

    def _tick(self) -> None:
        while not self._stop.wait(TICK_SECONDS) and not self._store.database.lost.is_set():
            for key in self.shortages.due():
                self._try_again(key)
            self._store_presence()
            with self._lock:
                self._ticked = time.monotonic()
                for study in list(self.catalogue.progress):
                    try:
                        self._pass(study)
                    except LeaseLostError:
                        return
                    except Exception as error:
                        # If the database fails now, the clock must not stop for good: the next tick tries again.
                        if self.shortages.note(error) is None:
                            log.exception("time could not pass", study=study)
                self._metrics.clock_turns.inc()

    def _store_presence(self) -> None:
        try:
            self.presence.store()
        except Exception as error:
            if self.shortages.note(error) is None:
                log.exception("it is not stored which silos have called")

    def _try_again(self, key: str) -> None:
        """Do again what failed because this machine was short: a sum, or a write of the size of most."""
        if key != MACHINE:
            effect = self._again.pop(key, None)
            if effect is not None:
                self._worker.submit(self._add, effect)
            return
        try:
            self._store.probe()
            self._spool.probe()
        except Exception as error:
            if self.shortages.note(error) is not None:
                return
            log.exception("the machine cannot be tried")
        self.shortages.over()
        with self._lock:  # what could not be deleted meanwhile
            self._sweep()

    def _pass(self, study: str) -> None:
        """Let time pass for a study, unless this machine is short, or drains. Such time is given back."""
        progress = self.catalogue.progress[study]
        stands = self.shortages.standing(study) is not None or (self._draining and _between_rounds(progress))
        if progress.life is Life.RUNNING and stands:
            self._held.setdefault(study, self._clock())
            return
        if study in self._held:
            self._commit(progress, *studies.credit(progress, self._held[study], self._clock()))
            del self._held[study]
        if progress.life is Life.RUNNING:
            self._apply(self.catalogue.progress[study], Passed())
            self._leave_behind(self.catalogue.progress[study])
        # In the same turn: whoever calls every moment would otherwise open its offer again before it is missed.
        after, effects = studies.expire(self.catalogue.progress[study], self._clock())
        if effects:
            self._commit(self.catalogue.progress[study], after, effects)

    def _leave_behind(self, progress: Progress) -> None:
        """Have nobody wait for a silo of the roster whose certificate was revoked meanwhile."""
        round_ = progress.round
        if round_ is None or round_.phase in (Phase.OFFER, Phase.WAIT, *OVER):
            return
        waiting_for = round_.waiting_for
        wanted = [member for member in round_.members if member.silo in waiting_for]
        gone = tuple(member.silo for member in wanted if self._revoked(member.certificate_pem))
        if gone:
            self.presence.revoked(gone)
            self._apply(progress, Revoked(gone))

    def _report(self, before: Progress, after: Progress, effects: list[Effect], times: list[PhaseTime]) -> None:
        outcome = ended_attempt(before, after, effects)
        if before.round is not None:
            self._traced(before.round.place, times, outcome)
        if outcome is not None and before.round is not None:
            self._metrics.attempts.labels(outcome).inc()
            log.info("attempt over", **where(before.round.place), outcome=outcome)
        if after.life is not before.life:
            log.info("study changed", study=after.script.study, state=after.life, why=after.why or None)
        if silent(after) != silent(before):
            log.info("silos away", study=after.script.study, silos=silent(after))

    def _measure(self, changed: tuple[Progress, Progress] | None = None) -> None:
        measure(self._metrics, self.catalogue.progress.values(), changed)


def _between_rounds(progress: Progress) -> bool:
    return progress.round is None or progress.round.phase in (Phase.OFFER, Phase.WAIT, *OVER)


def _require_bounds(study: Study) -> None:
    """Raise `Refused` if a constant is out of bounds, if too few silos could open a sum, if noise misses its grid."""
    require_bounds(study)
    quorum.require(study)
    grids.require(study)
