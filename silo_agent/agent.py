"""The agent's loop: ask for work, check that it is this silo's turn, do the work, store how far it came, answer.

A task that cannot be done is disputed by name, and the attempt is abandoned; nothing is retried with changed bytes. A
process that starts again goes on where the last one stopped (protocol/journal.py). protocol/tasks.py does the tasks.

What others see follows from public values and from charged, noised draws (docs/design/total.md). So no record can end
the agent or make it speak: `gate` sends noise if a charged release cannot be computed, names and texts of refusals and
disputes come from a fixed set, and the personal model is trained by another process, for which nothing waits.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import structlog

from common.os_errors import explained
from crypto.entropy import Entropy
from crypto.errors import CryptoError
from policies.documents.study import BINARY, Study, parse_study, require_bounds
from policies.errors import LedgerBusyError, LedgerRolledBackError, LedgerShortError, PolicyError
from policies.plan import shapes
from policies.plan.release import plan as plan_of
from policies.refusals import Reason, Refused
from protos.bounds import sentence
from protos.messages import Answer, Confirm, MessageError, Place, Tensor, Work
from protos.steps import Task
from protos.tracing import NO_SPANS, Spans
from silo_agent.core import turns
from silo_agent.core.bonds import SurvivorsError
from silo_agent.core.turns import OutOfTurnError, Stage, Turn
from silo_agent.data.errors import DataAbsentError, DataError
from silo_agent.errors import SiloError
from silo_agent.gate import Gate
from silo_agent.learning.errors import LearningError, ModelFileError
from silo_agent.learning.learner import Learner
from silo_agent.learning.model.kept_parts import carry_over
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.model.start import begin, find
from silo_agent.metrics import AgentMetrics
from silo_agent.oversight.asking import Asking
from silo_agent.protocol.attempt import Running
from silo_agent.protocol.calls.client import AskedToStop, CallRefused, Client, ContentError
from silo_agent.protocol.catching_up import CatchUpError
from silo_agent.protocol.journal import Journal, Standing
from silo_agent.protocol.ledgers.cosigning import Cosigning
from silo_agent.protocol.recounting import take_note
from silo_agent.protocol.session import Session
from silo_agent.protocol.tasks import Tasks
from silo_agent.reply_timing import padded
from silo_agent.storage.errors import LocalFileError, ShortageError, StateError, StateOlderError
from silo_agent.storage.folders import StudyFolder
from silo_agent.storage.offered import WAITS, Said
from silo_agent.storage.retention import today
from silo_agent.storage.state import State

log = structlog.get_logger()
FAULTS = (
    OutOfTurnError,
    CryptoError,
    ContentError,
    PolicyError,
    StateError,
    DataError,
    LearningError,
    CatchUpError,
    MessageError,
    SurvivorsError,
)
"""Faults that have a name outside. They follow from messages, state, ledger, file header and opened sums alone."""
_PASSING = (ShortageError, LedgerShortError, LedgerBusyError)
"""The agent's own files cannot be read or written now. Nobody hears of it: the same work is done again after a wait,
which counts as this silo's own time. No error of reading or computing records is of these kinds."""
_WAITS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_SAID_AGAIN = 30
"""Of long waits, one in so many is said: every five minutes."""
_OTHER = "fault"
"""The name of every other fault. Only the hospital's log says more."""
_PUBLIC = (OutOfTurnError, CryptoError, Refused, SurvivorsError, StateOlderError)
"""Faults whose messages tell the coordinator nothing that it does not know already."""
_OF_A_PEER: dict[Task, tuple[type[Exception], ...]] = {
    Task.ADOPT: (CryptoError, ContentError, LearningError),
    Task.CATCH_UP: (CryptoError, ContentError, CatchUpError),
}
"""Faults of the heads that another silo has solved, or of the model that it has shared. The attempt is not left then: a
third silo may solve the sum, or share."""
_NOT_OPENED = ("opening", "this silo does not open the sum; see its log, and begin a new attempt")
"""All that anybody hears of a sum that was not opened. What is wrong with it would tell what is in it."""


class UnknownDataError(SiloError):
    """The agent's configuration names no data for a study, or they are not there."""


class Agent:
    """One hospital's agent. `step` does one piece of work; `run` repeats it until told to stop."""

    def __init__(
        self,
        client: Client,
        gate: Gate,
        state: State,
        metrics: AgentMetrics,
        *,
        learners: Callable[[Study], Learner],
        sessions: Callable[[str], Session],
        personal: Callable[[Study, int], object],
        asking: Asking,
        spans: Spans = NO_SPANS,
        require_data: Callable[[Study], object] = lambda _: None,
        decided: Callable[[], object] = lambda: None,
        entropy: Entropy,
        session: str,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """`personal` is told that a round of a study is finished, and must neither raise nor wait.

        `require_data` raises `UnknownDataError` if a study's data are not there, or if nobody lets it use any.
        `asking` keeps a study's text for people, before anything is decided about it, and what was decided then.
        `spans` takes how long each task lasted.
        `decided` writes what people decided since into the ledger.
        `wait` lets so many seconds pass, or raises `AskedToStop`.
        """
        self._client, self._gate, self._state, self._metrics = client, gate, state, metrics
        self._learners, self._sessions, self._session = learners, sessions, session
        self._personal, self._wait, self._spans = personal, wait, spans
        self._require_data, self._asking, self._decided = require_data, asking, decided
        self._asked = 0.0
        """When the current work was handed out, by a clock that nobody can set."""
        self._cosigning = Cosigning(client, gate)
        self._tasks = Tasks(client, gate, state, metrics, entropy, cosigning=self._cosigning)
        self._journal = Journal(state)
        self._running: dict[str, Running] = {}
        self._short = 0
        """How often in a row the agent's own files could not be used."""
        self._borne = 0
        """How often in a row the coordinator's answer was of no use."""
        self._said = ""
        """What was said of it last."""
        self._refused: Work | None = None
        """The last piece of work, if the coordinator refused its result."""
        self.finished: list[tuple[str, str]] = []
        """Studies that ended since the start, each as (name, why)."""

    def run(self, stop: threading.Event, *, until_finished: bool = False) -> None:
        """Work until told to stop, or with `until_finished` until a study has ended.

        Nothing that the coordinator sends or refuses ends this. Raises `AskedToStop`, and at the start
        `LedgerRolledBackError` if others know of more entries than the ledger has: they have signed that.
        """
        joined = False
        while not stop.is_set() and not (until_finished and self.finished):
            try:
                if not joined:
                    self._join()
                    joined = True
                self.step()
            except (AskedToStop, LedgerRolledBackError):
                raise
            except Exception as fault:  # noqa: BLE001  # as above
                self._bear(fault)
            else:
                self._borne = 0

    def _join(self) -> None:
        reply = self._client.join(version("fedward"))
        log.info("joined", coordinator=sentence(reply.coordinator_version))
        self._cosigning.remember()

    def _bear(self, fault: Exception) -> None:
        """Say what the coordinator's answer was, once for each kind, and ask again later. Raises `AskedToStop`."""
        why = self._told(fault)
        if why != self._said:
            self._said = why
            log.error("the coordinator's answer is of no use", fault=type(fault).__name__, why=why)
        self._wait(_WAITS[min(self._borne, len(_WAITS) - 1)])
        self._borne += 1

    def step(self) -> None:
        """Ask for one piece of work and do it."""
        self._decided()
        work = self._client.poll()
        place = work.place
        if place is None:
            return
        self._asked = time.monotonic()
        with self._metrics.task_seconds.labels(work.task).time(), self._spans.during(place, work.task, work.tensor):
            try:
                self._do(work, place)
                self._refused = None
            except CallRefused as refusal:
                # Most often the coordinator has this answer already or has moved on; its next work shows which.
                # If it asks for the same work and refuses it again, waiting is useless: the attempt is abandoned.
                log.info("refused", task=work.task, why=str(refusal))
                if work == self._refused:
                    log.warning("attempt abandoned", task=work.task, round=place.round, why=f"refused twice: {refusal}")
                    self._abandon(place.study)
                self._refused = work
            except _PASSING as shortage:
                self._wait_for_room(place.study, shortage)
                return
        self._short = 0
        self._metrics.short.set(0)
        running = self._running.get(place.study)
        if running is not None:
            self._want_personal(running)

    def _wait_for_room(self, study: str, shortage: Exception) -> None:
        """Let some time pass, then ask for work again. The study goes on from what is stored, as after a restart.

        Raises `AskedToStop`.
        """
        self._running.pop(study, None)
        pause = _WAITS[min(self._short, len(_WAITS) - 1)]
        if self._short < len(_WAITS) or self._short % _SAID_AGAIN == 0:
            log.error("the machine is short", why=str(shortage), study=study[:12], again_in=pause)
        self._short += 1
        self._metrics.short.set(1)
        self._wait(pause)

    def _do(self, work: Work, place: Place) -> None:
        if work.task is Task.FINISH:
            self._finish(work, place)
        elif work.task is Task.DECIDE:
            self._decide(work, place)
        else:
            try:
                running = self._require(place.study)
                if not turns.repeats(running.turn, work):
                    following = turns.take(running.turn, work)
                    standing = self._tasks.perform(running.attempt(work, place))
                    self._keep(running, replace(standing, turn=following))
                if work.task is Task.CONTRIBUTE:
                    self._pad(running.study)
                self._tasks.report(running.attempt(work, place))
            except (CallRefused, AskedToStop, *_PASSING):
                raise  # the coordinator's own word, which it knows; the operator's wish; what is waited for
            except Exception as fault:  # noqa: BLE001  # no other exception may end the agent in front of others
                self._dispute(work, place, fault)

    # --- offer --------------------------------------------------------------------------------------------------
    def _decide(self, work: Work, place: Place) -> None:
        try:
            running = self._accepted(work, place)
        except Refused as refusal:
            log.warning("study refused", reason=refusal.reason, why=refusal.text)
            self._refuse(place, str(refusal.reason), refusal.text)
            self._judged(place, tuple((str(reason), text) for reason, text in refusal.reasons))
        except (UnknownDataError, DataAbsentError, LocalFileError) as fault:
            log.warning("study refused", reason=WAITS, why=self._told(fault))
            self._refuse(place, WAITS, "this silo has no data for the study")
            self._judged(place, ((WAITS, self._told(fault)),))
        except (CallRefused, AskedToStop, *_PASSING):
            raise
        except Exception as fault:  # noqa: BLE001  # as for tasks
            # Only the hospital's own log says what is wrong inside the hospital.
            log.warning("study refused", reason=_name(fault), why=self._told(fault))
            self._refuse(place, _name(fault), "see the log of this silo's agent")
            self._judged(place, ((_name(fault), self._told(fault)),))
        else:
            member = running.session.member
            self._client.answer(Answer(place, self._session, member=member, model=running.standing.digest))
            self._judged(place, ())

    def _accepted(self, work: Work, place: Place) -> Running:
        """Take a seat: ask the ledger and the policy, rehearse on made-up records, and only then read the file.

        A proof that an earlier sum of the round is spoilt makes the round cost more, so the policy is asked again.
        """
        running = self._running.get(place.study)
        self._gate.require_no_fault()
        self._state.anchored.require(place)
        with self._counting():
            study = running.study if running is not None else self._read(place.study)
        self._gate.decide(study, place)
        with self._counting():
            if running is None:
                running = self._recall(place.study) or self._begin(study)
            else:
                self._require_data(study)
            if work.spoilt is not None:
                take_note(study, place, work.spoilt, running.session, self._state.promises)
            running.learner.rehearse()
        if work.spoilt is not None:
            self._gate.decide(study, place)
        try:
            running.learner.require_files(begun=running.turn.finished >= 0)
            running.learner.read()
        finally:
            self._pad(study)
        self._sit(running, place)
        return running

    def _pad(self, study: Study) -> None:
        """Let the time pass until the study's pace allows to speak of what was read or computed."""
        spent = time.monotonic() - self._asked
        if (whole := padded(study, spent)) > spent:
            self._wait(whole - spent)

    def _refuse(self, place: Place, reason: str, explanation: str) -> None:
        self._client.answer(Answer(place, self._session, refusal=reason, explanation=sentence(explanation)))

    def _judged(self, place: Place, said: Said) -> None:
        """Note for people what this silo has against a study, after the answer: a write must not time one.

        A full disk is logged, and stops nothing.
        """
        try:
            self._asking.judged(place.study, said)
        except OSError as fault:
            log.warning("what was decided about a study is not kept", study=place.study[:12], why=explained(fault))

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Count refusals by reason, as the gate counts those of the policy."""
        try:
            yield
        except Refused as refusal:
            self._metrics.refusals.labels(refusal.reason).inc()
            raise

    def _read(self, digest: str) -> Study:
        """The study that a digest names. Raises `Refused` if no accountant can bound it, or if it breaks a bound."""
        if self._state.is_over(digest):
            msg = "the study is over for this silo and cannot begin again; create a new study"
            raise OutOfTurnError(msg)
        canonical, author, begun = self._state.canonical(digest), None, True
        if canonical is None:
            text = self._client.study(digest)
            canonical, author, begun = text.canonical, text.author, False
            self._cosigning.remember()
        study = parse_study(canonical, digest)
        if not begun:
            self._asking.keep(study, author)
        # Now, because the gate plans the rounds before it decides, and a plan of unbounded constants takes long.
        require_bounds(study)
        return study

    def _begin(self, study: Study) -> Running:
        """Begin a study that the policy allows. Raises `Refused` if its training cannot be accounted for."""
        digest, begun = study.digest, self._begun(study)
        self._require_data(study)
        learner = self._learners(study)
        self._asking.begin(study)
        self._state.add_study(digest, study.canonical())
        if begun is not None:
            self._carry_over(study)
        committed = self._state.committed(digest)
        turn = Turn(_tensors(study), committed=committed, finished=committed)
        start = SharedModel.start(study) if begun is None else begun
        running = Running(study, learner, self._sessions(digest), Standing(turn, start), begun)
        self._running[digest] = running
        self._metrics.info.labels(digest[:12], study.name).set(1)
        return running

    def _begun(self, study: Study) -> SharedModel | None:
        """Where a study begins that continues another one.

        Raises `Refused` if this silo does not hold the earlier model, if it does not fit, or if the policy forbids it.
        """
        if study.continues is None:
            return None
        earlier = find(self._state.files, study.continues)
        if earlier is None:
            msg = (
                f"study.continues is {study.continues}, and this silo does not have that model; its engineers get it"
                " from a silo that helped to train it, and run `fedward-silo import`"
            )
            raise Refused(Reason.NO_MODEL, msg)
        self._gate.decide_continued(study, earlier.study)
        try:
            return begin(study, earlier)
        except ModelFileError as fault:
            raise Refused(Reason.NO_MODEL, str(fault)) from None

    def _carry_over(self, study: Study) -> None:
        """Let the study start from the parts that this silo has kept in the study that it continues."""
        earlier = None if study.continues is None else find(self._state.files, study.continues)
        if earlier is not None:
            before = self._state.files.study(earlier.study.digest)
            carry_over(earlier, before, study, StudyFolder(self._state.study_folder(study.digest)))

    def _recall(self, digest: str, *, finished: bool = False) -> Running | None:
        """Recall a study as the last process left it. None if this silo takes no part in it, or no longer does.

        Nobody goes on with a study of an earlier version that this one cannot finish: raises `Refused` if it breaks a
        bound, and `OutOfTurnError` if its current round was planned otherwise, unless the study is `finished`.
        """
        if self._state.is_over(digest):
            return None
        canonical, standing = self._state.canonical(digest), self._journal.recall(digest)
        if canonical is None or standing is None:
            return None
        study = parse_study(canonical, digest)
        require_bounds(study)
        if not finished:  # what is left to do then reads no record
            self._require_data(study)
        running = Running(
            study,
            self._learners(study),
            self._sessions(digest),
            standing if finished else replace(standing, turn=turns.planned(standing.turn, _tensors(study))),
            self._begun(study),
        )
        self._running[digest] = running
        log.info("study recalled", study=digest[:12], stage=standing.turn.stage)
        self._want_personal(running)
        return running

    def _sit(self, running: Running, place: Place) -> None:
        """Take a seat in a new attempt, on the model that this silo has committed.

        If that model or the domains' sizes are not on the disk as they were kept, a peer's are taken, as after a
        missed round.
        """
        turn = turns.sit(running.turn, place, self._state.promises.spoilt(place))
        if turn.committed > self._state.committed(place.study):
            self._commit(running, place.study, turn.committed)
        held = self._tasks.models.held(running.study, turn.committed) if turn.committed >= 0 else None
        if turn.committed >= 0 and held is None:
            log.error(
                "the model or counts.json on the disk is not the one that was kept; a peer's are taken",
                round=turn.committed,
                folder=str(self._state.study_folder(place.study)),
            )
            turn = replace(turn, behind=True)
        model, digest = held or (running.begun or SharedModel.start(running.study), "")
        if not turn.behind:
            self._tasks.models.path(place.study, place.round).unlink(missing_ok=True)
        self._keep(running, Standing(turn, model, digest))

    def _commit(self, running: Running, study: str, round_number: int) -> None:
        # The round of the metrics has no model of its own: the study's model stays that of the last training round.
        kept = min(round_number, running.study.rounds)
        self._state.commit(study, kept)
        self._tasks.models.forget_steps(running.study, kept)
        self._state.forget_round(study, round_number)
        running.session.forget_attempt()
        self._metrics.round.labels(study[:12]).set(round_number)

    # --- the end ------------------------------------------------------------------------------------------------
    def _finish(self, work: Work, place: Place) -> None:
        running = self._running.get(place.study)
        if running is None and work.outcome == "finished":
            running = self._recall_to_finish(place.study)
        if running is not None and work.outcome == "finished" and running.turn.finished >= 0:
            self._commit(running, place.study, running.turn.finished)
        why = f"{work.outcome}: {work.why}"
        if self._state.canonical(place.study) is not None:
            self._state.finish(place.study, why, today())
            self._journal.forget(place.study)
            Session.forget(self._state.study_folder(place.study))
        # The study is forgotten before this is confirmed, so that nothing touches it again even if the call fails.
        self._running.pop(place.study, None)
        name = running.study.name if running else place.study[:12]
        # Said before it is confirmed: nobody tells an agent of it again that is killed in between.
        log.info("study over", study=place.study[:12], name=name, outcome=work.outcome, why=work.why)
        self._client.confirm(Confirm(place, Task.FINISH))
        self.finished.append((name, why))

    def _recall_to_finish(self, study: str) -> Running | None:
        try:
            return self._recall(study, finished=True)
        except Refused as refusal:
            log.warning("the study's last round is not kept", study=study[:12], why=refusal.text)
        except UnknownDataError as fault:
            log.warning("the study's last round is not kept", study=study[:12], why=str(fault))
        return None

    # --- inside -------------------------------------------------------------------------------------------------
    def _require(self, study: str) -> Running:
        """The study that a task belongs to, recalled if this process is new to it.

        Then what its rounds read from the disk is opened first: if a file is missing, nothing is charged. Raises
        `OutOfTurnError` if this silo takes no part in the study, `LocalFileError`.
        """
        known = self._running.get(study)
        if known is not None:
            return known
        running = self._recall(study)
        if running is None:
            msg = "this silo has not accepted the study"
            raise OutOfTurnError(msg)
        try:
            running.learner.require_files(begun=running.turn.finished >= 0)
            if running.turn.finished >= 0 and not running.turn.behind:
                self._tasks.models.require_counts(running.study)
        finally:
            self._pad(running.study)
        return running

    def _keep(self, running: Running, standing: Standing) -> None:
        """Go on from another standing, and store it durably."""
        running.standing = standing
        self._journal.keep(running.study.digest, standing)

    def _want_personal(self, running: Running) -> None:
        """Have the process beside look at a finished round of the heads, here only, once its end was reported.

        It warns the hospital's people and trains the personal model, if the study has one.

        A sealed step is no such round: the personal model would be trained once for each step of the shared one.
        """
        turn, study = running.turn, running.study
        finished = turn.place is not None and turn.finished == turn.place.round and turn.stage is Stage.REST
        trained = finished and 1 <= turn.finished <= study.rounds
        looks = study.personal is not None or study.data.label.count == BINARY
        if trained and looks and shapes.head_round(study, turn.finished) is not None:
            self._personal(study, turn.finished)

    def _dispute(self, work: Work, place: Place, fault: Exception) -> None:
        self._metrics.disputes.labels(work.task).inc()
        log.error(
            "disputed",
            task=work.task,
            tensor=work.tensor,
            round=place.round,
            attempt=place.attempt,
            why=self._told(fault),
            fault=_name(fault),
        )
        running = self._running.get(place.study)
        complaint = ("", b"", b"") if running is None else self._tasks.complaint(running.attempt(work, place), fault)
        if not isinstance(fault, _OF_A_PEER.get(work.task, ())):
            self._abandon(place.study)
        name = _name(fault)
        explanation = sentence(str(fault)) if isinstance(fault, _PUBLIC) else "see the silo's log"
        if work.task is Task.OPEN:
            name, explanation = _NOT_OPENED
        culprit, evidence, signature = complaint
        self._client.confirm(
            Confirm(
                place,
                work.task,
                work.tensor,
                dispute=name,
                explanation=explanation,
                culprit=culprit,
                evidence=evidence,
                signature=signature,
            )
        )

    def _told(self, fault: Exception) -> str:
        """What the log says of a fault: nothing of a record, and no file's name that could have a patient's in it."""
        if isinstance(fault, DataError):
            return fault.summary  # its text quotes values
        if isinstance(fault, (*FAULTS, UnknownDataError, CallRefused)):
            return str(fault)
        if isinstance(fault, OSError) and fault.errno is not None:
            path = Path(os.fsdecode(fault.filename)) if isinstance(fault.filename, (str, bytes)) else None
            own = path is not None and path.is_relative_to(self._state.folder)
            where = f"{path}" if own else "a file that is not the agent's own"
            return explained(OSError(fault.errno, fault.strerror or "", where))
        return type(fault).__name__

    def _abandon(self, study: str) -> None:
        running = self._running.get(study)
        if running is not None:
            self._keep(running, replace(running.standing, turn=turns.leave(running.turn)))


def _tensors(study: Study) -> tuple[tuple[Tensor, ...], ...]:
    """What each round of a study sums."""
    return tuple(tuple(Tensor(release.tensor) for release in round_) for round_ in plan_of(study).rounds)


def _name(fault: Exception) -> str:
    """The fault's name as others see it, for example `data` or `ledger_write`; for a refusal, its reason."""
    if isinstance(fault, Refused):
        return str(fault.reason)
    if isinstance(fault, DataError):
        return "data"
    if not isinstance(fault, (*FAULTS, ValueError)):
        return _OTHER
    words = type(fault).__name__.removesuffix("Error").removesuffix("Refused")
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(words))
