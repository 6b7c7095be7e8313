"""The tasks of an attempt, each in two halves: `act` computes and keeps, `say` tells the coordinator what was kept.

`say` reads durable state alone, so it can be repeated after a crash and gives the same bytes. Whose turn it is, and
that a standing is durable between the halves, is `agent`'s; training, sums and keys are `learner`'s, `gate`'s and
`session`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crypto.entropy import Entropy
from crypto.errors import RosterRefused
from crypto.labels import Label
from crypto.packages import model_digest, open_note, seal_note
from crypto.sealing import Sealer
from policies import shapes
from policies.study import Study
from protos.messages import Confirm, Note, Place, Publication, Task, Tensor, UploadHeader, Work
from silo_agent import publishing
from silo_agent.catching_up import Current, pack, unpack
from silo_agent.client import Client
from silo_agent.core import turns
from silo_agent.core.turns import OutOfTurnError, Turn
from silo_agent.gate import Gate, Order
from silo_agent.learner import Learner, Results, SolutionError
from silo_agent.learning.model import SharedModel
from silo_agent.metrics import Metrics
from silo_agent.session import Session
from silo_agent.state import State, write_whole

_NOTES = {Task.DEAL: Note.KEYS, Task.SOLVE: Note.HEADS, Task.SHARE: Note.MODEL}
PUBLICATION = "publication.json"
COUNTS = "counts.json"


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


class Duties:
    """What a silo does when it is asked."""

    def __init__(self, client: Client, gate: Gate, state: State, metrics: Metrics, entropy: Entropy) -> None:
        self._client, self._gate, self._state, self._metrics, self._entropy = client, gate, state, metrics, entropy

    def act(self, running: Running, work: Work, place: Place) -> None:
        """Do the task: change `running`, and keep what `say` will need. Nothing has left when it returns."""
        acts: dict[Task, Callable[[Running, Work, Place], None]] = {
            Task.DEAL: self._deal,
            Task.TAKE: self._take,
            Task.SHARE: self._share,
            Task.CATCH_UP: self._catch_up,
            Task.CONTRIBUTE: self._contribute,
            Task.OPEN: self._open,
            Task.SOLVE: self._solve,
            Task.ADOPT: self._adopt,
        }
        acts[work.task](running, work, place)

    def say(self, running: Running, work: Work, place: Place) -> None:
        """Tell the coordinator what the last task gave."""
        if work.task in _NOTES:
            kind = _NOTES[work.task]
            self._send(running, place, str(kind), self._state.note_path(place, kind), None)
        elif work.task is Task.CONTRIBUTE and work.tensor is not None:
            sealed = self._gate.sealed(self._order(running, work, place, work.tensor))
            if sealed is None:
                msg = f"the sealed {work.tensor} of this attempt is gone; a new attempt is needed"
                raise OutOfTurnError(msg)
            values = shapes.values(running.study, place.round, work.tensor)
            self._send(running, place, work.tensor.ring, sealed, (work.tensor, values))
        else:
            self._client.confirm(self._confirmation(running, work, place))

    # --- keys and catching up -------------------------------------------------------------------------------------
    def _deal(self, running: Running, work: Work, place: Place) -> None:
        self._decide_roster(running, work, place)
        running.sealer = None
        write_whole(self._state.note_path(place, Note.KEYS), running.session.deal(work.roster, place))

    def _take(self, running: Running, work: Work, place: Place) -> None:
        self._decide_roster(running, work, place)
        package = self._fetch(place, work, Note.KEYS)
        running.sealer = None
        running.session.take(work.roster, work.actor, package)

    def _decide_roster(self, running: Running, work: Work, place: Place) -> None:
        strangers = sorted({member.silo for member in work.roster}.difference(running.study.silos))
        if strangers:
            msg = f"{', '.join(strangers)} is not among study.silos and cannot be in its roster"
            raise RosterRefused(msg)
        self._gate.decide(running.study, place, roster_size=len(work.roster))

    def _share(self, running: Running, work: Work, place: Place) -> None:
        counts = tuple(float(count) for count in json.loads(self._counts_path(place).read_bytes()))
        plain = pack(Current(running.model, running.digest, counts))
        self._seal_note(running, work, place, Note.MODEL, plain)

    def _catch_up(self, running: Running, work: Work, place: Place) -> None:
        plain = self._open_note(running, work, place, Note.MODEL)
        current = unpack(running.study, place.round - 1, plain)
        write_whole(self._counts_path(place), json.dumps(current.counts).encode())
        self.keep_candidate(place.study, place.round - 1, current.model, current.digest)
        running.model, running.digest = current.model, current.digest

    # --- train and seal -------------------------------------------------------------------------------------------
    def _contribute(self, running: Running, work: Work, place: Place) -> None:
        tensor, silos = running.turn.tensor, len(work.roster)
        self._gate.contribute(
            self._order(running, work, place, tensor),
            self._sealer(running, work),
            lambda charged: running.learner.contribution(tensor, charged, running.model, silos),
        )

    def _order(self, running: Running, work: Work, place: Place, tensor: Tensor) -> Order:
        roster = running.session.meet(work.roster)
        return Order(running.study, place, tensor, roster.names, roster.digest, running.digest)

    # --- open and solve -------------------------------------------------------------------------------------------
    def _open(self, running: Running, work: Work, place: Place) -> None:
        tensor, silos = running.turn.tensor, len(work.roster)
        order = self._order(running, work, place, tensor)
        sealed = self._fetch(place, work, "sum", tensor)
        self._metrics.received.labels("sum").inc(work.size)
        values = shapes.values(running.study, place.round, tensor)
        total = self._sealer(running, work).open(tensor.ring, sealed, values, order.label, order.roster)
        running.learner.check_sum(tensor, total, silos)
        digest = self._next_digest(running, work, total.tobytes())
        if tensor is Tensor.COUNTS:
            running.learner.open_counts(total)
        elif tensor is Tensor.ENCODER:
            running.model = running.learner.open_encoder(total, running.model, silos)
        elif tensor is Tensor.METRICS:
            self._publish(running, place, running.learner.open_metrics(total, silos))
        else:
            running.total = total
        running.digest = digest
        if tensor is running.turn.plan[place.round][-1]:
            # The model of a finished round lies on disk before anybody hears that it is finished.
            running.model = replace(running.model, round=place.round)
            self.keep_candidate(place.study, place.round, running.model, digest)

    def _publish(self, running: Running, place: Place, results: Results) -> None:
        if running.study.publish:
            blob = publishing.publication(running.study, results).canonical()
            write_whole(self._state.study_folder(place.study) / PUBLICATION, blob)

    def _solve(self, running: Running, work: Work, place: Place) -> None:
        solution = running.learner.solve(_total(running), place, running.model, len(work.roster))
        self._seal_note(running, work, place, Note.HEADS, solution.astype("<i8").tobytes())

    def _adopt(self, running: Running, work: Work, place: Place) -> None:
        plain = self._open_note(running, work, place, Note.HEADS)
        if len(plain) % 8:
            msg = "the solved heads are no sequence of 64-bit integers"
            raise SolutionError(msg)
        solution = np.frombuffer(plain, "<i8")
        model = running.learner.adopt(solution, _total(running), place, running.model, len(work.roster))
        digest = self._next_digest(running, work, plain)
        running.model, running.digest, running.total = model, digest, None

    # --- files ----------------------------------------------------------------------------------------------------
    def model_path(self, study: str, round_number: int) -> Path:
        """Where the model of a finished round lies, and beside it its keyed digest."""
        return self._state.study_folder(study) / f"model-{round_number}.safetensors"

    def keep_candidate(self, study: str, round_number: int, model: SharedModel, digest: str) -> None:
        """Keep the model of a finished round with its keyed digest."""
        path = self.model_path(study, round_number)
        write_whole(path.with_suffix(".digest"), digest.encode())
        model.save(path)

    def _counts_path(self, place: Place) -> Path:
        return self._state.study_folder(place.study) / COUNTS

    # --- inside ---------------------------------------------------------------------------------------------------
    def _confirmation(self, running: Running, work: Work, place: Place) -> Confirm:
        if work.task is Task.TAKE:
            return Confirm(place, Task.TAKE)
        tensor = work.tensor if work.task is Task.OPEN else None
        publication = signature = b""
        if tensor is Tensor.METRICS and running.study.publish:
            publication = (self._state.study_folder(place.study) / PUBLICATION).read_bytes()
            signature = self._client.sign(Publication.to_sign(publication))
        return Confirm(place, work.task, tensor, model=running.digest, publication=publication, signature=signature)

    def _sealer(self, running: Running, work: Work) -> Sealer:
        """One sealer per roster and keys dealt to it: it remembers which labels it has used."""
        digest = running.session.meet(work.roster).digest
        if running.sealer is None or running.sealer[0] != digest:
            running.sealer = (digest, running.session.sealer(work.roster))
        return running.sealer[1]

    def _next_digest(self, running: Running, work: Work, opened: bytes) -> str:
        keys = running.session.keys(work.roster)
        return model_digest(keys, running.digest, running.study.digest, [opened])

    def _note_label(self, running: Running, work: Work, place: Place, note: Note) -> Label:
        # Who catches up does not know the model yet that the others hold.
        model = "" if note is Note.MODEL else running.digest
        roster = running.session.meet(work.roster).digest
        return Label(place.study, roster, model, place.round, place.attempt, f"note-{note}")

    def _seal_note(self, running: Running, work: Work, place: Place, note: Note, plain: bytes) -> None:
        """Seal a note once in an attempt; where it lies already, those bytes stay."""
        path = self._state.note_path(place, note)
        if not path.exists():
            keys, label = running.session.keys(work.roster), self._note_label(running, work, place, note)
            write_whole(path, seal_note(keys, label, plain, self._entropy))

    def _open_note(self, running: Running, work: Work, place: Place, note: Note) -> bytes:
        blob = self._fetch(place, work, note)
        return open_note(running.session.keys(work.roster), self._note_label(running, work, place, note), blob)

    def _fetch(self, place: Place, work: Work, kind: str, tensor: Tensor | None = None) -> bytes:
        """What the coordinator holds for this silo, checked against what it announced."""
        path = self._state.folder / "inbox" / f"{place.round}-{place.attempt}-{kind}"
        self._client.download(place, tensor, kind, work, path)
        content = path.read_bytes()
        path.unlink()
        return content

    def _send(self, running: Running, place: Place, kind: str, path: Path, sums: tuple[Tensor, int] | None) -> None:
        """Sign and upload a file: a note, or the sealed `(tensor, values)` of a sum."""
        tensor, values = sums or (None, 0)
        with path.open("rb") as file:
            content = file_digest(file, "sha256").hexdigest()
        size = path.stat().st_size
        self._client.upload(UploadHeader(place, kind, tensor, running.session.me, values, size, content), path)
        self._metrics.sent.labels(kind).inc(size)


def _total(running: Running) -> NDArray[np.int64]:
    if running.total is None:
        msg = "the heads' sum has not been opened"
        raise turns.OutOfTurnError(msg)
    return running.total
