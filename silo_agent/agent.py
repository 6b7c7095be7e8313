"""The agent's loop: ask for work, check that it is this silo's turn, do it, answer.

Every task is one method. A task that cannot be done is disputed by name and the attempt abandoned; nothing is retried
with changed bytes. Training, sums and keys are `learner`, `gate` and `session`; this module only brings them together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import file_digest
from importlib.metadata import version
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray

from crypto.entropy import Entropy
from crypto.errors import CryptoError, RosterRefused
from crypto.labels import Label
from crypto.packages import model_digest, open_note, seal_note
from crypto.sealing import Sealer
from policies import shapes
from policies.decision import Refused
from policies.errors import PolicyError
from policies.study import Study, parse_study
from protos.messages import Answer, Confirm, Note, Place, Task, Tensor, UploadHeader, Work
from silo_agent.client import CallRefused, Client, ContentError
from silo_agent.core import turns
from silo_agent.core.turns import OutOfTurnError, Turn
from silo_agent.data.errors import DataError
from silo_agent.gate import Gate, Order
from silo_agent.learner import Learner, SolutionError, SumError
from silo_agent.learning.errors import LearningError
from silo_agent.learning.model import SharedModel
from silo_agent.metrics import Metrics
from silo_agent.session import Session
from silo_agent.state import State, StateError, write_whole

log = structlog.get_logger()
FAULTS = (
    OutOfTurnError,
    CryptoError,
    ContentError,
    PolicyError,
    StateError,
    DataError,
    LearningError,
    SolutionError,
    SumError,
)


class UnknownDataError(Exception):
    """The agent's configuration names no file for a study."""


@dataclass
class Running:
    """One study under way at this silo."""

    study: Study
    learner: Learner
    session: Session
    turn: Turn
    model: SharedModel
    """What the current attempt computes from; a candidate once the round is finished."""
    digest: str = ""
    """Keyed digest of `model`, equal at all silos."""
    total: NDArray[np.int64] | None = None
    """The opened sum of the heads, until they are adopted."""
    sealer: tuple[str, Sealer] | None = None


class Agent:
    """One hospital's agent. `step` does one piece of work; `run` goes on until it is told to stop."""

    def __init__(
        self,
        client: Client,
        gate: Gate,
        state: State,
        metrics: Metrics,
        *,
        learners: Callable[[Study], Learner],
        sessions: Callable[[str], Session],
        entropy: Entropy,
        session: str,
    ) -> None:
        self._client, self._gate, self._state, self._metrics = client, gate, state, metrics
        self._learners, self._sessions, self._entropy, self._session = learners, sessions, entropy, session
        self._running: dict[str, Running] = {}
        self.finished: list[tuple[str, str]] = []
        """Studies that ended since the start: name, why."""

    def run(self, stop: threading.Event, *, until_finished: bool = False) -> None:
        """Work until told to stop, or until a study has ended."""
        reply = self._client.join(version("fedward"))
        log.info("joined", coordinator=reply.coordinator_version)
        while not stop.is_set() and not (until_finished and self.finished):
            self.step()

    def step(self) -> None:
        """Ask for work and do it."""
        work = self._client.poll()
        place = work.place
        if place is None:
            return
        with self._metrics.task_seconds.labels(work.task).time():
            try:
                self._do(work, place)
            except CallRefused as refusal:
                # The coordinator has moved on meanwhile; its next word says where to.
                log.info("refused", task=work.task, why=str(refusal))
                self._abandon(place.study)

    def _do(self, work: Work, place: Place) -> None:
        if work.task is Task.FINISH:
            self._finish(work, place)
        elif work.task is Task.DECIDE:
            self._decide(place)
        else:
            tasks: dict[Task, Callable[[Running, Work, Place], None]] = {
                Task.DEAL: self._deal,
                Task.TAKE: self._take,
                Task.CONTRIBUTE: self._contribute,
                Task.OPEN: self._open,
                Task.SOLVE: self._solve,
                Task.ADOPT: self._adopt,
            }
            try:
                running = self._require(place.study)
                following = turns.take(running.turn, work)
                tasks[work.task](running, work, place)
                running.turn = following
            except FAULTS as fault:
                self._dispute(work, place, fault)
            else:
                self._after(running, place)

    # --- offer --------------------------------------------------------------------------------------------------
    def _decide(self, place: Place) -> None:
        try:
            running = self._running.get(place.study) or self._begin(place.study)
            self._gate.decide(running.study, place)
            running.learner.load()
            self._sit(running, place)
        except Refused as refusal:
            log.warning("study refused", reason=refusal.reason, why=refusal.text)
            self._refuse(place, str(refusal.reason), refusal.text)
        except UnknownDataError as fault:
            log.warning("study refused", reason="no_data", why=str(fault))
            self._refuse(place, "no_data", "this silo has no data for the study")
        except (DataError, StateError, PolicyError, LearningError, OutOfTurnError, ValueError) as fault:
            # What is wrong inside the hospital is for the hospital's log alone.
            log.warning("study refused", reason=_name(fault), why=str(fault))
            self._refuse(place, _name(fault), "see the log of this silo's agent")
        else:
            member = running.session.member
            self._client.answer(Answer(place, self._session, member=member, model=running.digest))

    def _refuse(self, place: Place, reason: str, explanation: str) -> None:
        self._client.answer(Answer(place, self._session, refusal=reason, explanation=explanation))

    def _begin(self, digest: str) -> Running:
        canonical = self._state.canonical(digest) or self._client.study(digest)
        study = parse_study(canonical, digest)
        learner = self._learners(study)
        self._state.add_study(digest, canonical)
        plan = tuple(tuple(Tensor(t) for t in shapes.tensors(study, r)) for r in range(study.rounds + 1))
        running = Running(
            study=study,
            learner=learner,
            session=self._sessions(digest),
            turn=Turn(plan, committed=self._state.committed(digest), finished=self._finished(digest)),
            model=SharedModel.start(study),
        )
        self._running[digest] = running
        return running

    def _sit(self, running: Running, place: Place) -> None:
        """Take a seat in a new attempt, on the model that the offered round builds on."""
        turn = turns.sit(running.turn, place)
        if turn.committed > self._state.committed(place.study):
            self._state.commit(place.study, turn.committed)
            self._state.forget_round(place.study, turn.committed)
            self._metrics.round.labels(running.study.name).set(turn.committed)
        if turn.committed >= 0:
            path = self._model_path(place.study, turn.committed)
            running.model = SharedModel.load(path)
            running.digest = path.with_suffix(".digest").read_text()
        else:
            running.model, running.digest = SharedModel.start(running.study), ""
        self._model_path(place.study, turn.committed + 1).unlink(missing_ok=True)
        running.turn, running.total = turn, None

    # --- keys ---------------------------------------------------------------------------------------------------
    def _deal(self, running: Running, work: Work, place: Place) -> None:
        self._decide_roster(running, work, place)
        package = self._note_path(place, Note.KEYS)
        running.sealer = None
        package.write_bytes(running.session.deal(work.roster))
        self._upload_note(running, place, Note.KEYS, package)

    def _take(self, running: Running, work: Work, place: Place) -> None:
        self._decide_roster(running, work, place)
        package = self._note_path(place, Note.KEYS)
        self._client.download(place, None, Note.KEYS, work, package)
        running.sealer = None
        running.session.take(work.roster, work.actor, package.read_bytes())
        package.unlink()
        self._client.confirm(Confirm(place, Task.TAKE))

    def _decide_roster(self, running: Running, work: Work, place: Place) -> None:
        strangers = sorted({member.silo for member in work.roster}.difference(running.study.silos))
        if strangers:
            msg = f"{', '.join(strangers)} is not among study.silos and cannot be in its roster"
            raise RosterRefused(msg)
        self._gate.decide(running.study, place, roster_size=len(work.roster))

    # --- train and seal -------------------------------------------------------------------------------------------
    def _contribute(self, running: Running, work: Work, place: Place) -> None:
        tensor = running.turn.tensor
        roster = running.session.meet(work.roster)
        order = Order(running.study, place, tensor, roster.names, roster.digest, running.digest)
        sealed = self._gate.contribute(
            order,
            self._sealer(running, work),
            lambda: running.learner.contribution(tensor, place, running.model, len(roster.names)),
        )
        values = shapes.values(running.study, place.round, tensor)
        self._send(running, place, tensor.ring, sealed, (tensor, values))

    # --- open and solve -------------------------------------------------------------------------------------------
    def _open(self, running: Running, work: Work, place: Place) -> None:
        tensor, silos = running.turn.tensor, len(work.roster)
        if running.turn.stage is turns.Stage.OPENED:
            # Opened before; the digest must not move on twice.
            self._client.confirm(Confirm(place, Task.OPEN, tensor, running.digest))
            return
        path = self._state.folder / "inbox" / "sum"
        self._client.download(place, tensor, "sum", work, path)
        self._metrics.received.labels("sum").inc(work.size)
        roster = running.session.meet(work.roster)
        label = Order(running.study, place, tensor, roster.names, roster.digest, running.digest).label
        values = shapes.values(running.study, place.round, tensor)
        total = self._sealer(running, work).open(tensor.ring, path.read_bytes(), values, label, roster.names)
        path.unlink()
        running.learner.check_sum(tensor, total, silos)
        digest = self._next_digest(running, work, total.tobytes())
        model = running.model
        if tensor is Tensor.COUNTS:
            running.learner.open_counts(total)
        elif tensor is Tensor.ENCODER:
            model = running.learner.open_encoder(total, model, silos)
        elif tensor is Tensor.METRICS:
            running.learner.open_metrics(total, silos)
        else:
            running.total = total
        running.model, running.digest = model, digest
        self._keep_candidate(running, place, last=tensor is running.turn.plan[place.round][-1])
        self._client.confirm(Confirm(place, Task.OPEN, tensor, digest))

    def _solve(self, running: Running, work: Work, place: Place) -> None:
        solution = running.learner.solve(self._total(running), place, running.model, len(work.roster))
        note = self._note_path(place, Note.HEADS)
        keys = running.session.keys(work.roster)
        plain = solution.astype("<i8").tobytes()
        note.write_bytes(seal_note(keys, self._note_label(running, work, place), plain, self._entropy))
        self._upload_note(running, place, Note.HEADS, note)

    def _adopt(self, running: Running, work: Work, place: Place) -> None:
        note = self._note_path(place, Note.HEADS)
        self._client.download(place, None, Note.HEADS, work, note)
        keys = running.session.keys(work.roster)
        plain = open_note(keys, self._note_label(running, work, place), note.read_bytes())
        note.unlink()
        if len(plain) % 8:
            msg = "the solved heads are no sequence of 64-bit integers"
            raise SolutionError(msg)
        solution = np.frombuffer(plain, "<i8")
        total = self._total(running)
        running.model = running.learner.adopt(solution, total, place, running.model, len(work.roster))
        running.digest, running.total = self._next_digest(running, work, plain), None
        self._client.confirm(Confirm(place, Task.ADOPT, model=running.digest))

    def _after(self, running: Running, place: Place) -> None:
        """Locally only, when a training round is finished."""
        finished = running.turn.finished == place.round and running.turn.stage is turns.Stage.REST
        if not finished or place.round == 0:
            return
        try:
            running.learner.train_personal(running.model)
        except LearningError as fault:
            # Nobody but this hospital waits for the personal model.
            log.error("personal model not trained", round=place.round, why=str(fault), fault=_name(fault))  # noqa: TRY400

    def _finish(self, work: Work, place: Place) -> None:
        running = self._running.pop(place.study, None)
        if work.outcome == "finished" and self._state.canonical(place.study) is not None:
            # Also where this process began after the last round.
            last = self._finished(place.study)
            self._state.commit(place.study, last)
            self._state.forget_round(place.study, last)
        self._state.finish(place.study, f"{work.outcome}: {work.why}")
        self._client.confirm(Confirm(place, Task.FINISH))
        name = running.study.name if running else place.study[:12]
        self.finished.append((name, f"{work.outcome}: {work.why}"))
        log.info("study over", study=place.study[:12], name=name, outcome=work.outcome, why=work.why)

    # --- inside -------------------------------------------------------------------------------------------------
    def _require(self, study: str) -> Running:
        running = self._running.get(study)
        if running is None:
            msg = "this process has not accepted the study"
            raise OutOfTurnError(msg)
        return running

    def _dispute(self, work: Work, place: Place, fault: Exception) -> None:
        self._metrics.disputes.labels(work.task).inc()
        log.error(
            "disputed", task=work.task, round=place.round, attempt=place.attempt, why=str(fault), fault=_name(fault)
        )
        self._abandon(place.study)
        explanation = str(fault) if isinstance(fault, OutOfTurnError | CryptoError | Refused) else "see the silo's log"
        self._client.confirm(Confirm(place, work.task, work.tensor, dispute=_name(fault), explanation=explanation))

    def _abandon(self, study: str) -> None:
        running = self._running.get(study)
        if running is not None:
            running.turn = turns.leave(running.turn)

    def _sealer(self, running: Running, work: Work) -> Sealer:
        """One sealer per roster and keys dealt to it: it remembers which labels it has used."""
        digest = running.session.meet(work.roster).digest
        if running.sealer is None or running.sealer[0] != digest:
            running.sealer = (digest, running.session.sealer(work.roster))
        return running.sealer[1]

    def _next_digest(self, running: Running, work: Work, opened: bytes) -> str:
        keys = running.session.keys(work.roster)
        return model_digest(keys, running.digest, running.study.digest, [opened])

    def _note_label(self, running: Running, work: Work, place: Place) -> Label:
        roster = running.session.meet(work.roster).digest
        return Label(place.study, roster, running.digest, place.round, place.attempt, "note-heads")

    def _keep_candidate(self, running: Running, place: Place, *, last: bool) -> None:
        """The model of a finished round lies on disk before anybody hears that it is finished."""
        if last:
            path = self._model_path(place.study, place.round)
            write_whole(path.with_suffix(".digest"), running.digest.encode())
            replace(running.model, round=place.round).save(path)

    def _finished(self, study: str) -> int:
        """The last round of which a model lies here: the committed one, or a candidate one round further."""
        committed = self._state.committed(study)
        return committed + 1 if self._model_path(study, committed + 1).exists() else committed

    def _model_path(self, study: str, round_number: int) -> Path:
        return self._state.study_folder(study) / f"model-{round_number}.safetensors"

    def _note_path(self, place: Place, note: Note) -> Path:
        folder = self._state.folder / "inbox"
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder / f"{place.round}-{place.attempt}-{note}"

    def _upload_note(self, running: Running, place: Place, note: Note, path: Path) -> None:
        self._send(running, place, str(note), path, None)
        path.unlink()

    def _send(self, running: Running, place: Place, kind: str, path: Path, sums: tuple[Tensor, int] | None) -> None:
        """Sign and upload a file: a note, or the sealed `(tensor, values)` of a sum."""
        tensor, values = sums or (None, 0)
        with path.open("rb") as file:
            content = file_digest(file, "sha256").hexdigest()
        size = path.stat().st_size
        self._client.upload(UploadHeader(place, kind, tensor, running.session.me, values, size, content), path)
        self._metrics.sent.labels(kind).inc(size)

    def _total(self, running: Running) -> NDArray[np.int64]:
        if running.total is None:
            msg = "the heads' sum has not been opened"
            raise OutOfTurnError(msg)
        return running.total


def _name(fault: Exception) -> str:
    """The fault's name as others see it: `data`, `ledger_write`, or a refusal's reason."""
    if isinstance(fault, Refused):
        return str(fault.reason)
    words = type(fault).__name__.removesuffix("Error").removesuffix("Refused")
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(words))
