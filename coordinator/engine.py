"""The shell around the state machines: one lock, one order of events, state stored before anything follows from it.

Threads of the server call in; `_apply` runs the pure step, persists, then performs the effects. Adding runs on a
worker thread, because it reads every contribution; after a restart it is simply done again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Literal

import structlog

from coordinator.adding import add_contents, check_content, ring_of
from coordinator.core import study as studies
from coordinator.core.round import (
    OVER,
    Add,
    Added,
    Answered,
    Clear,
    Confirmed,
    Event,
    Limits,
    OutOfTurnError,
    Passed,
    Persist,
    Phase,
    Restarted,
    Round,
    Stopped,
    Total,
    Uploaded,
)
from coordinator.core.study import Life, Progress, Script
from coordinator.metrics import Metrics
from coordinator.spool import SUM, Spool, digest
from coordinator.store import Store
from crypto.errors import FrameError
from policies import shapes
from policies.study import Study, parse_study
from protos.messages import (
    Answer,
    Confirm,
    MemberStatus,
    Note,
    PhaseTime,
    Place,
    StudyStatus,
    Task,
    Tensor,
    UploadHeader,
    Work,
)

log = structlog.get_logger()
TICK_SECONDS = 0.25
SUM_KIND = "sum"
"""How a silo asks for a sum, beside the kinds of notes."""
MAX_NOTE = 4 << 20
"""Bytes of a relayed note: wrapped keys for 256 silos, or the largest heads a study may ask for."""


class UnknownStudyError(Exception):
    """No study is known by that digest or name."""


def script_of(study: Study) -> Script:
    """What the state machines need to know of a study."""
    deadlines = study.deadlines
    return Script(
        study=study.digest,
        name=study.name,
        silos=study.silos,
        min_silos=study.min_silos,
        tensors=tuple(
            tuple(Tensor(name) for name in shapes.tensors(study, number)) for number in range(study.rounds + 1)
        ),
        limits=Limits(deadlines.offer, deadlines.keys, deadlines.train, deadlines.open, deadlines.solve),
        max_attempts=study.max_attempts,
    )


class Engine:
    """All studies of one coordinator."""

    def __init__(self, store: Store, spool: Spool, metrics: Metrics, clock: Callable[[], float] = time.time) -> None:
        self._store, self._spool, self._metrics, self._clock = store, spool, metrics, clock
        self._changed = threading.Condition(threading.RLock())
        self._progress = {progress.script.study: progress for progress in store.load()}
        self._studies: dict[str, Study] = {}
        self._told = store.told()
        self._seen: dict[str, float] = {}
        self._worker = ThreadPoolExecutor(1, "adding")
        self._stop = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="ticker", daemon=True)

    # --- life ---------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Resume what was under way and let time pass."""
        with self._changed:
            running = [p.round.place for p in self._progress.values() if p.round and p.life is Life.RUNNING]
            self._spool.sweep(running)
            for progress in self._progress.values():
                round_ = progress.round
                if progress.life is Life.RUNNING and round_ is not None and round_.phase is Phase.ADD:
                    self._perform(Add(round_.place, round_.tensors[round_.cursor], round_.names))
            self._measure()
        self._ticker.start()

    def close(self) -> None:
        """Stop the threads; the state is stored already."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._ticker.is_alive():
            self._ticker.join()
        self._worker.shutdown(wait=True)
        self._store.engine.dispose()

    # --- operator -----------------------------------------------------------------------------------------------
    def create(self, canonical: bytes) -> str:
        """Remember a study; returns its digest. Raises ValueError where it is none, `StudyExistsError`."""
        study = Study.model_validate_json(canonical, strict=False)
        progress = studies.create(script_of(study))
        with self._changed:
            self._store.create(study.canonical(), progress)
            self._progress[study.digest] = progress
            self._measure()
        log.info("study created", study=study.digest, name=study.name)
        return study.digest

    def start_study(self, wanted: str) -> None:
        """Ask the silos to join."""
        with self._changed:
            progress = self._find(wanted)
            self._commit(progress, *studies.start(progress, self._clock()))

    def abort_study(self, wanted: str, reason: str) -> None:
        """Stop a study for good."""
        with self._changed:
            progress = self._find(wanted)
            self._commit(progress, *studies.abort(progress, reason, self._clock()))

    def status(self, wanted: str) -> StudyStatus:
        """How a study stands."""
        with self._changed:
            progress = self._find(wanted)
            study = progress.script.study
            return replace(self._describe(progress), times=self._store.times(study), uploads=self._store.uploads(study))

    def statuses(self) -> list[StudyStatus]:
        """How all studies stand, without their histories."""
        with self._changed:
            return [self._describe(progress) for progress in self._progress.values()]

    # --- silos --------------------------------------------------------------------------------------------------
    def seen(self, silo: str) -> None:
        """A silo has called."""
        self._seen[silo] = self._clock()
        self._metrics.last_seen.labels(silo).set(self._seen[silo])

    def canonical(self, study: str, silo: str) -> bytes:
        """A study's text, for the silos that it invites. Raises `UnknownStudyError`."""
        with self._changed:
            progress = self._progress.get(study)
        text = self._store.canonical(study)
        if progress is None or text is None or silo not in progress.script.silos:
            raise UnknownStudyError(study)
        return text

    def poll(self, silo: str, session: str, hold: float) -> Work:
        """What the silo must do next; waits up to `hold` seconds for something."""
        until = time.monotonic() + hold
        with self._changed:
            self._notice_restart(silo, session)
            while True:
                work = self._work(silo)
                left = until - time.monotonic()
                if work.task is not Task.WAIT or left <= 0 or self._stop.is_set():
                    return work
                self._changed.wait(left)

    def answer(self, silo: str, answer: Answer) -> None:
        """A silo takes part or refuses."""
        self._at(answer.place, Answered(silo, answer))
        log.info("answered", silo=silo, **_where(answer.place), refusal=answer.refusal or None)

    def confirm(self, silo: str, confirm: Confirm) -> None:
        """A silo has done its part, disputes it, or knows that the study is over."""
        if confirm.task is Task.FINISH:
            with self._changed:
                self._check_over(confirm.place.study, silo)
                self._store.tell(confirm.place.study, silo)
                self._told.add((confirm.place.study, silo))
            return
        if confirm.dispute:
            log.warning("disputed", silo=silo, **_where(confirm.place), task=confirm.task, dispute=confirm.dispute)
        self._at(confirm.place, Confirmed(silo, confirm))

    def expect(self, header: UploadHeader) -> None:
        """Refuse an upload that nobody waits for, or whose size the study's shape does not imply."""
        with self._changed:
            round_ = self._round(header.place)
            if header.silo not in round_.names:
                msg = f"{header.silo} is not in the roster"
                raise OutOfTurnError(msg)
            if header.tensor is None:
                wanted = {Phase.DEAL: Note.KEYS, Phase.SOLVE: Note.HEADS}.get(round_.phase)
                if wanted is None or header.kind != wanted or header.silo != round_.actor:
                    msg = f"the phase {round_.phase} waits for no such note from {header.silo}"
                    raise OutOfTurnError(msg)
                if header.size > MAX_NOTE:
                    msg = f"the note has {header.size} bytes, at most {MAX_NOTE} are relayed"
                    raise ValueError(msg)
                return
            if round_.phase is not Phase.GATHER or round_.tensor is not header.tensor:
                msg = f"the phase {round_.phase} does not gather {header.tensor}"
                raise OutOfTurnError(msg)
            values = shapes.values(self._study(header.place.study), header.place.round, header.tensor)
            size = ring_of(header.tensor).content_size(values)
            if (header.values, header.size) != (values, size):
                msg = (
                    f"{header.tensor} of this study has {values} values in {size} bytes; "
                    f"{header.values} values in {header.size} bytes were announced"
                )
                raise ValueError(msg)

    def stored(self, header: UploadHeader) -> bool:
        """Whether the slot holds exactly these bytes already. Raises `ContentConflictError` where it holds others."""
        return self._store.holds(header)

    def keep(self, place: Place) -> None:
        """Sealed bytes were stored: forget them where they came after the attempt's end. Raises `OutOfTurnError`."""
        with self._changed:
            try:
                self._round(place)
            except OutOfTurnError:
                self._spool.clear(place)
                raise

    def finish_upload(self, header: UploadHeader, signature: bytes) -> None:
        """All bytes are on disk: check them, publish them, count them once. Raises `FrameError`, ValueError."""
        place = header.place
        if not self.stored(header):
            try:
                self._publish_upload(header, signature)
            except FileNotFoundError:
                self.keep(place)  # the attempt's end has cleared its files; if it goes on, the fault is ours
                raise
        with self._changed:
            self.keep(place)
            if header.silo in self._round(place).waiting_for:
                self._apply(self._progress[place.study], Uploaded(header))

    def download(self, silo: str, place: Place, tensor: Tensor | None, kind: str) -> tuple[str, str]:
        """Slot and file name of what a silo of the roster may fetch now. Raises `OutOfTurnError`."""
        with self._changed:
            round_ = self._round(place)
            fetched = {Phase.OPEN: SUM_KIND, Phase.TAKE: str(Note.KEYS), Phase.ADOPT: str(Note.HEADS)}.get(round_.phase)
            if silo not in round_.names or kind != fetched or (kind == SUM_KIND and tensor is not round_.tensor):
                msg = f"in the phase {round_.phase} there is no {kind} for {silo} to fetch"
                raise OutOfTurnError(msg)
            return (str(tensor), SUM) if kind == SUM_KIND else (f"note-{kind}", round_.actor)

    # --- inside -------------------------------------------------------------------------------------------------
    def _publish_upload(self, header: UploadHeader, signature: bytes) -> None:
        place = header.place
        partial = self._spool.partial(place, header.slot, header.silo)
        if digest(partial) != header.sha256:
            self._spool.discard(partial)
            msg = "the bytes received do not have the SHA-256 that was signed; the upload starts anew"
            raise ValueError(msg)
        if header.tensor is not None:
            try:
                check_content(partial, header.tensor)
            except FrameError:
                self._spool.discard(partial)
                raise
        self._spool.publish(partial, self._spool.complete(place, header.slot, header.silo))
        self._store.add_content(header, signature)
        self._metrics.received.labels(header.kind).inc(header.size)
        log.info("received", silo=header.silo, **_where(place), slot=header.slot, size=header.size)

    def _find(self, wanted: str) -> Progress:
        found = [p for p in self._progress.values() if p.script.name == wanted or p.script.study.startswith(wanted)]
        if not wanted or len(found) != 1:
            msg = f"{len(found)} studies match {wanted!r}; give the name or the digest"
            raise UnknownStudyError(msg)
        return found[0]

    def _study(self, digest_: str) -> Study:
        if digest_ not in self._studies:
            canonical = self._store.canonical(digest_)
            if canonical is None:
                raise UnknownStudyError(digest_)
            self._studies[digest_] = parse_study(canonical, digest_)
        return self._studies[digest_]

    def _round(self, place: Place) -> Round:
        progress = self._progress.get(place.study)
        if progress is None:
            raise UnknownStudyError(place.study)
        round_ = progress.round
        if round_ is None or round_.place != place or progress.life is not Life.RUNNING:
            msg = f"round {place.round}, attempt {place.attempt} is not the current one"
            raise OutOfTurnError(msg)
        return round_

    def _check_over(self, study: str, silo: str) -> None:
        progress = self._progress.get(study)
        if progress is None or silo not in progress.script.silos:
            raise UnknownStudyError(study)
        if progress.life not in studies.OVER and silo in progress.active:
            msg = f"the study is {progress.life}, and {silo} takes part"
            raise OutOfTurnError(msg)

    def _at(self, place: Place, event: Event) -> None:
        with self._changed:
            self._round(place)
            self._apply(self._progress[place.study], event)

    def _apply(self, progress: Progress, event: Event) -> None:
        self._commit(progress, *studies.advance(progress, event, self._clock()))

    def _commit(self, before: Progress, after: Progress, effects: list[Persist | Add | Clear]) -> None:
        if not effects:
            return
        times = _ended_phases(before, after, effects, self._clock())
        self._store.save(after, times)
        for time_ in times:
            self._metrics.phase_seconds.labels(time_.phase).observe(time_.seconds)
        self._progress[after.script.study] = after
        self._report(before, after, effects)
        for effect in effects:
            if not isinstance(effect, Persist):
                self._perform(effect)
        self._measure()
        self._changed.notify_all()

    def _perform(self, effect: Add | Clear) -> None:
        if isinstance(effect, Clear):
            self._spool.clear(effect.place)
        else:
            self._worker.submit(self._add, effect)

    def _add(self, effect: Add) -> None:
        """Runs on the worker thread."""
        place, slot = effect.place, str(effect.tensor)
        try:
            target = self._spool.partial(place, slot, SUM)
            add_contents([self._spool.complete(place, slot, silo) for silo in effect.silos], effect.tensor, target)
            total = Total(target.stat().st_size, digest(target))
            self._spool.publish(target, self._spool.complete(place, slot, SUM))
            self._at(place, Added(total))
        except OutOfTurnError:
            self._not_wanted(place)
        except Exception as error:
            # A sum that cannot be made must end the attempt by name, not leave it hanging. Silos see no paths of ours.
            reason = error.strerror if isinstance(error, OSError) else error
            log.exception("adding failed", **_where(place))
            try:
                self._at(place, Stopped(f"adding {slot} failed: {reason}"))
            except OutOfTurnError:
                self._not_wanted(place)

    def _not_wanted(self, place: Place) -> None:
        log.info("sum not wanted any more", **_where(place))
        self._spool.clear(place)

    def _notice_restart(self, silo: str, session: str) -> None:
        for progress in list(self._progress.values()):
            round_ = progress.round
            if progress.life is Life.RUNNING and round_ is not None and round_.phase not in OVER:
                self._apply(progress, Restarted(silo, session))

    def _work(self, silo: str) -> Work:
        for progress in self._progress.values():
            work = _work_in(progress, silo, told=(progress.script.study, silo) in self._told)
            if work is not None:
                return work
        return Work(Task.WAIT)

    def _tick(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            with self._changed:
                for progress in list(self._progress.values()):
                    if progress.life is Life.RUNNING:
                        try:
                            self._apply(progress, Passed())
                        except Exception:
                            # A database that fails now must not stop the clock for ever: the next tick tries again.
                            log.exception("time could not pass", study=progress.script.study)

    def _describe(self, progress: Progress) -> StudyStatus:
        round_, script = progress.round, progress.script
        return StudyStatus(
            study=script.study,
            name=script.name,
            state=progress.life,
            why=progress.why,
            round=round_.place.round if round_ else 0,
            rounds=len(script.tensors) - 1,
            attempt=round_.place.attempt if round_ else 0,
            phase=round_.phase if round_ else "",
            tensor=round_.tensor if round_ else None,
            waiting_for=round_.waiting_for if round_ and progress.life is Life.RUNNING else (),
            members=tuple(
                MemberStatus(
                    silo.name,
                    "left" if silo.why else "active" if round_ and silo.name in round_.names else "invited",
                    silo.why,
                    self._seen.get(silo.name, 0.0),
                )
                for silo in progress.silos
            ),
        )

    def _report(self, before: Progress, after: Progress, effects: list[Persist | Add | Clear]) -> None:
        if any(isinstance(effect, Clear) for effect in effects) and before.round is not None:
            follows = after.life in (Life.RUNNING, Life.FINISHED) and (
                after.round is None or after.round.place.round > before.round.place.round or after.life is Life.FINISHED
            )
            self._metrics.attempts.labels("committed" if follows else "aborted").inc()
            log.info("attempt over", **_where(before.round.place), committed=follows)
        if after.life is not before.life:
            log.info("study changed", study=after.script.study, state=after.life, why=after.why or None)

    def _measure(self) -> None:
        lives = [progress.life for progress in self._progress.values()]
        for life in Life:
            self._metrics.studies.labels(life).set(lives.count(life))
        for progress in self._progress.values():
            if progress.round is not None:
                name = progress.script.name
                self._metrics.round.labels(name).set(progress.round.place.round)
                self._metrics.waiting.labels(name).set(
                    len(progress.round.waiting_for) if progress.life is Life.RUNNING else 0
                )


_OUTCOMES: dict[Life, Literal["finished", "ended", "aborted"]] = {
    Life.FINISHED: "finished",
    Life.ENDED: "ended",
    Life.ABORTED: "aborted",
}


def _work_in(progress: Progress, silo: str, *, told: bool) -> Work | None:
    """What one study asks of one silo now."""
    round_, script = progress.round, progress.script
    mine = next((s for s in progress.silos if s.name == silo), None)
    if mine is None or round_ is None:
        return None
    if progress.life in studies.OVER or mine.why:
        outcome = "left" if mine.why else _OUTCOMES.get(progress.life, "ended")
        return None if told else Work(Task.FINISH, round_.place, why=mine.why or progress.why, outcome=outcome)
    if silo not in round_.waiting_for:
        return None
    task = {
        Phase.OFFER: Task.DECIDE,
        Phase.DEAL: Task.DEAL,
        Phase.TAKE: Task.TAKE,
        Phase.GATHER: Task.CONTRIBUTE,
        Phase.OPEN: Task.OPEN,
        Phase.SOLVE: Task.SOLVE,
        Phase.ADOPT: Task.ADOPT,
    }[round_.phase]
    fetched = {Task.OPEN: round_.total, Task.TAKE: round_.note, Task.ADOPT: round_.note}.get(task)
    return Work(
        task=task,
        place=round_.place,
        tensor=round_.tensor,
        roster=round_.members,
        actor=round_.actor if task in (Task.DEAL, Task.TAKE, Task.SOLVE, Task.ADOPT) else "",
        size=fetched.size if fetched else 0,
        sha256=fetched.sha256 if fetched else "",
        why=script.name,
    )


def _ended_phases(
    before: Progress, after: Progress, effects: list[Persist | Add | Clear], now: float
) -> list[PhaseTime]:
    """The phase that this change ended, if it ended one."""
    old, new = before.round, after.round
    if old is None or old.phase in OVER or new is None:
        return []
    same = (new.place, new.phase, new.cursor) == (old.place, old.phase, old.cursor)
    if same and not any(isinstance(effect, Clear) for effect in effects):
        return []
    return [PhaseTime(old.place.round, old.place.attempt, old.phase, old.tensor, now - old.since)]


def _where(place: Place) -> dict[str, object]:
    return {"study": place.study[:12], "round": place.round, "attempt": place.attempt}
