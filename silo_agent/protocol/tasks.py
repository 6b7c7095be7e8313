"""The tasks of an attempt, each in two halves: `act` computes and keeps, `say` tells the coordinator what was kept.

`say` reads durable state alone, so it can be repeated after a crash and gives the same bytes. Whose turn it is, and
that a standing is durable between the halves, is `agent`'s; training, sums and keys are `learner`'s, `gate`'s and
`session`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crypto.entropy import Entropy
from crypto.errors import OpeningRefused, RosterRefused
from crypto.rings.rings import ring_of
from crypto.secagg.labels import Label
from crypto.secagg.layout import sealed_values
from crypto.secagg.packages import model_digest, open_note, seal_note
from crypto.secagg.sealing import Sealer
from crypto.secagg.survivors import SurvivorList, threshold
from crypto.secagg.unmasking import Bundle
from policies.documents.study import Study
from policies.plan import shapes
from policies.plan.note_sizes import note_limit
from protos.messages import SUM, Confirm, Note, Place, Publication, Task, Tensor, Work
from silo_agent.core import turns
from silo_agent.core.turns import OutOfTurnError, Turn
from silo_agent.gate import Gate, Order
from silo_agent.learning.errors import ModelFileError, SolutionError
from silo_agent.learning.evaluation.evaluation import Results
from silo_agent.learning.learner import Learner
from silo_agent.learning.model import SharedModel
from silo_agent.metrics import Metrics
from silo_agent.protocol import publishing
from silo_agent.protocol.catching_up import Current, pack, unpack
from silo_agent.protocol.client import Client
from silo_agent.protocol.cosigning import Cosigning
from silo_agent.protocol.mail import Mail
from silo_agent.protocol.session import Session
from silo_agent.storage.state import State, write_whole

_NOTES = {
    Task.GREET: Note.GREETING,
    Task.DEAL: Note.KEYS,
    Task.SHARE: Note.MODEL,
    Task.EXCHANGE: Note.SHARES,
    Task.REVEAL: Note.REVEAL,
    Task.SOLVE: Note.HEADS,
}
"""What a task ends with the upload of."""
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
    bundles: tuple[Place, dict[str, Bundle]] | None = None
    """What the participants have shared for an attempt."""


class Duties:
    """What a silo does when it is asked."""

    def __init__(
        self,
        client: Client,
        gate: Gate,
        state: State,
        metrics: Metrics,
        entropy: Entropy,
        *,
        cosigning: Cosigning,
    ) -> None:
        self._client, self._gate, self._state, self._entropy = client, gate, state, entropy
        self._mail, self._cosigning = Mail(client, state, metrics), cosigning

    def perform(self, running: Running, work: Work, place: Place) -> None:
        """Do the task: change `running`, and keep what `say` will need. Nothing has left when it returns."""
        acts: dict[Task, Callable[[Running, Work, Place], None]] = {
            Task.GREET: self._greet,
            Task.DEAL: self._deal,
            Task.TAKE: self._take,
            Task.SHARE: self._share,
            Task.CATCH_UP: self._catch_up,
            Task.EXCHANGE: self._exchange,
            Task.CONTRIBUTE: self._contribute,
            Task.SIGN: self._sign,
            Task.REVEAL: self._reveal,
            Task.OPEN: self._open,
            Task.SOLVE: self._solve,
            Task.ADOPT: self._adopt,
        }
        self._require_sizes(running, work, place)
        acts[work.task](running, work, place)

    def report(self, running: Running, work: Work, place: Place) -> None:
        """Tell the coordinator what the last task gave."""
        if work.task in _NOTES:
            note = _NOTES[work.task]
            tensor = work.tensor if note is Note.REVEAL else None
            self._mail.send(running.session.me, place, note, self._mail.note_path(place, note, tensor), tensor=tensor)
        elif work.task is Task.CONTRIBUTE and work.tensor is not None:
            sealed = self._gate.sealed(self._order(running, work, place, work.tensor))
            if sealed is None:
                msg = f"the sealed {work.tensor} of this attempt is gone; a new attempt is needed"
                raise OutOfTurnError(msg)
            values, kind = self._values(running, place, work.tensor), shapes.ring(running.study, work.tensor)
            self._mail.send(running.session.me, place, kind, sealed, tensor=work.tensor, values=values)
        else:
            self._client.confirm(self._confirmation(running, work, place))

    # --- keys and catching up -------------------------------------------------------------------------------------
    def _greet(self, running: Running, work: Work, place: Place) -> None:
        self._decide_roster(running, work, place)
        write_whole(self._mail.note_path(place, Note.GREETING), running.session.greet(work.roster))

    def _deal(self, running: Running, work: Work, place: Place) -> None:
        self._decide_roster(running, work, place)
        self._meet(running, work, place)
        write_whole(self._mail.note_path(place, Note.KEYS), running.session.deal(work.roster, place))

    def _take(self, running: Running, work: Work, place: Place) -> None:
        self._decide_roster(running, work, place)
        self._meet(running, work, place)
        package = self._mail.fetch_note(work, place, Note.KEYS)
        running.session.take(work.roster, work.actor, package)

    def _meet(self, running: Running, work: Work, place: Place) -> None:
        running.sealer = None
        running.session.meet(work.roster, self._mail.fetch_notes(work, place, Note.GREETING))

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

    # --- mask and seal --------------------------------------------------------------------------------------------
    def _exchange(self, running: Running, work: Work, place: Place) -> None:
        self._decide_roster(running, work, place)
        tensors, needed = self._tensors(running, place), self._threshold(running, work)
        bundle = running.session.share(work.roster, place, tensors, needed)
        write_whole(self._mail.note_path(place, Note.SHARES), bundle)

    def _contribute(self, running: Running, work: Work, place: Place) -> None:
        tensor, silos = running.turn.tensor, len(work.participants)
        if running.session.me not in work.participants:
            msg = "the participants do not name this silo, which is asked for its contribution"
            raise OutOfTurnError(msg)
        self._require_whole(running, work, work.participants)
        self._mail.receive_shares(work, place)
        self._bundles(running, work, place)
        self._gate.contribute(
            self._order(running, work, place, tensor),
            self._sealer(running, work),
            running.session.masks(work.roster, place, tensor, work.participants),
            lambda charged: running.learner.contribution(tensor, charged, running.model, silos),
            lambda: self._cosigning.ask(place),
        )

    def _order(self, running: Running, work: Work, place: Place, tensor: Tensor) -> Order:
        roster = running.session.roster(work.roster).digest
        return Order(running.study, place, tensor, work.participants, roster, running.digest)

    # --- who is in the sum ----------------------------------------------------------------------------------------
    def _sign(self, running: Running, work: Work, place: Place) -> None:
        """Commit to one survivor list for this sum of this round: durably, and for ever (threat-model.md)."""
        survivors, tensor = work.survivors, running.turn.tensor
        if running.session.me not in survivors or len(survivors) < self._threshold(running, work):
            msg = f"{', '.join(survivors)} are too few, or not this silo, to be summed"
            raise OutOfTurnError(msg)
        self._require_whole(running, work, survivors)
        self._gate.decide(running.study, place, roster_size=len(survivors))
        self._state.commit_to_survivors(place, tensor, survivors)

    def _reveal(self, running: Running, work: Work, place: Place) -> None:
        """Nothing is revealed before enough silos have signed the list that this silo has signed."""
        path, survivors = self._mail.note_path(place, Note.REVEAL, work.tensor), self._survivors(running, work, place)
        signatures = {signature.silo: signature.signature for signature in work.signatures}
        signers = running.session.signers(work.roster, survivors, signatures)
        needed = self._threshold(running, work)
        if len(signers) < needed:
            msg = f"{len(signers)} silos have signed who is in the sum, {needed} must; begin a new attempt"
            raise OpeningRefused(msg)
        if not path.exists():
            bundles = self._bundles(running, work, place)
            write_whole(path, running.session.reveal(work.roster, bundles, survivors, work.participants))

    def _survivors(self, running: Running, work: Work, place: Place) -> SurvivorList:
        attempt = running.session.attempt(work.roster, place)
        return SurvivorList(attempt, str(running.turn.tensor), work.survivors)

    def _require_whole(self, running: Running, work: Work, names: tuple[str, ...]) -> None:
        """With distributed noise each share of it is needed: nobody may be missing."""
        missing = sorted({member.silo for member in work.roster}.difference(names))
        if missing and running.study.privacy.mode == "distributed":
            msg = f"with distributed noise nobody may be missing, and {', '.join(missing)} is; begin a new attempt"
            raise OpeningRefused(msg)

    # --- open and solve -------------------------------------------------------------------------------------------
    def _open(self, running: Running, work: Work, place: Place) -> None:
        tensor, silos = running.turn.tensor, len(work.survivors)
        total = self._open_sum(running, work, place)
        running.learner.check_sum(tensor, total, silos)
        opened = running.learner.open(tensor, total, place, running.model, silos)
        running.model, running.total = opened.model, opened.unsolved
        if opened.results is not None:
            self._publish(running, place, opened.results)
        running.digest = self._next_digest(running, work, np.ascontiguousarray(total, "<i8").data, running.model)
        if tensor is running.turn.plan[place.round][-1]:
            # The model of a finished round lies on disk before anybody hears that it is finished.
            self.keep_candidate(place.study, place.round, running.model, running.digest)

    def _open_sum(self, running: Running, work: Work, place: Place) -> NDArray[np.int64]:
        tensor, study = running.turn.tensor, running.study
        unmasking = running.session.unmasking(
            work.roster,
            self._mail.fetch_notes(work, place, Note.REVEAL, tensor),
            self._bundles(running, work, place),
            self._survivors(running, work, place),
            participants=work.participants,
            threshold=self._threshold(running, work),
        )
        values, label = shapes.values(study, place.round, tensor), self._order(running, work, place, tensor).label
        with self._mail.sum(work, place, tensor) as file:
            return self._sealer(running, work).open(shapes.ring(study, tensor), file, values, label, unmasking)

    def _publish(self, running: Running, place: Place, results: Results) -> None:
        if running.study.publish:
            blob = publishing.publication(running.study, results).canonical()
            write_whole(self._state.study_folder(place.study) / PUBLICATION, blob)

    def _solve(self, running: Running, work: Work, place: Place) -> None:
        solution = running.learner.solve(_total(running), place, running.model, len(work.survivors))
        self._seal_note(running, work, place, Note.HEADS, solution.astype("<i8").tobytes())

    def _adopt(self, running: Running, work: Work, place: Place) -> None:
        plain = self._open_note(running, work, place, Note.HEADS)
        if len(plain) % 8:
            msg = "the solved heads are no sequence of 64-bit integers"
            raise SolutionError(msg)
        solution = np.frombuffer(plain, "<i8")
        model = running.learner.adopt(solution, _total(running), place, running.model, len(work.survivors))
        digest = self._next_digest(running, work, plain, model)
        running.model, running.digest, running.total = model, digest, None

    # --- files ----------------------------------------------------------------------------------------------------
    def model_path(self, study: str, round_number: int) -> Path:
        """Where the model of a finished round lies, and beside it its digests: the keyed one, and its content's."""
        return self._state.study_folder(study) / f"model-{round_number}.safetensors"

    def keep_candidate(self, study: str, round_number: int, model: SharedModel, digest: str) -> None:
        """Keep the model of a finished round with its keyed digest."""
        path = self.model_path(study, round_number)
        write_whole(path.with_suffix(".digest"), f"{digest} {model.digest}".encode())
        model.save(path)

    def held(self, study: str, round_number: int) -> tuple[SharedModel, str] | None:
        """The model of a finished round with its keyed digest; None where they do not lie there as they were kept."""
        path = self.model_path(study, round_number)
        try:
            digest, content = path.with_suffix(".digest").read_text().split()
            model = SharedModel.load(path)
        except (OSError, ValueError, ModelFileError):
            return None
        return (model, digest) if model.digest == content else None

    def _counts_path(self, place: Place) -> Path:
        return self._state.study_folder(place.study) / COUNTS

    # --- inside ---------------------------------------------------------------------------------------------------
    def _confirmation(self, running: Running, work: Work, place: Place) -> Confirm:
        if work.task is Task.TAKE:
            return Confirm(place, Task.TAKE)
        if work.task is Task.SIGN:
            signature = self._client.sign(self._survivors(running, work, place).to_sign())
            return Confirm(place, Task.SIGN, work.tensor, signature=signature)
        tensor = work.tensor if work.task is Task.OPEN else None
        publication = signature = b""
        if tensor is Tensor.METRICS and running.study.publish:
            publication = (self._state.study_folder(place.study) / PUBLICATION).read_bytes()
            signature = self._client.sign(Publication.to_sign(publication))
        return Confirm(place, work.task, tensor, model=running.digest, publication=publication, signature=signature)

    def _tensors(self, running: Running, place: Place) -> list[str]:
        return [str(tensor) for tensor in running.turn.plan[place.round]]

    def _require_sizes(self, running: Running, work: Work, place: Place) -> None:
        """Refuse what is larger than the study implies before a byte of it is fetched."""
        for part in work.parts:
            if part.kind != SUM:
                limit = note_limit(running.study, place.round, part.kind)
            else:
                tensor = running.turn.tensor
                limit = ring_of(shapes.ring(running.study, tensor)).content_size(self._values(running, place, tensor))
            if part.size > limit:
                msg = f"the coordinator offers a {part.kind} of {part.size} bytes; the study implies at most {limit}"
                raise OutOfTurnError(msg)

    def _values(self, running: Running, place: Place, tensor: Tensor) -> int:
        """Of a sealed tensor: its own, the roster's slots, the checks."""
        return sealed_values(shapes.values(running.study, place.round, tensor), len(running.study.silos))

    def _threshold(self, running: Running, work: Work) -> int:
        """Shares that open a secret: fixed by the study and the roster, so that all silos deal alike."""
        study = running.study
        return threshold(len(work.roster), study.privacy.colluders, study.min_silos)

    def _bundles(self, running: Running, work: Work, place: Place) -> dict[str, Bundle]:
        """What the participants have shared for this attempt, read and checked once."""
        known = running.bundles[1] if running.bundles is not None and running.bundles[0] == place else {}
        if not set(work.participants) <= set(known):
            tensors, needed = self._tensors(running, place), self._threshold(running, work)
            notes = self._mail.shares(place, work.participants)
            known = running.session.read_shares(work.roster, place, tensors, needed, notes)
            running.bundles = (place, known)
        return known

    def _sealer(self, running: Running, work: Work) -> Sealer:
        """One sealer per roster and keys dealt to it: it remembers which labels it has used."""
        digest = running.session.roster(work.roster).digest
        if running.sealer is None or running.sealer[0] != digest:
            running.sealer = (digest, running.session.sealer(work.roster, running.study.silos))
        return running.sealer[1]

    def _next_digest(self, running: Running, work: Work, opened: bytes | memoryview, model: SharedModel) -> str:
        """Bound to what was opened and to what this silo made of it: who computes otherwise is set apart at once."""
        keys, made = running.session.keys(work.roster), bytes.fromhex(model.digest)
        return model_digest(keys, running.digest, running.study.digest, [sha256(opened).digest(), made])

    def _note_label(self, running: Running, work: Work, place: Place, note: Note) -> Label:
        # Who catches up does not know the model yet that the others hold.
        model = "" if note is Note.MODEL else running.digest
        roster = running.session.roster(work.roster).digest
        return Label(place.study, roster, model, place.round, place.attempt, f"note-{note}")

    def _seal_note(self, running: Running, work: Work, place: Place, note: Note, plain: bytes) -> None:
        """Seal a note once in an attempt; where it lies already, those bytes stay."""
        path = self._mail.note_path(place, note)
        if not path.exists():
            keys, label = running.session.keys(work.roster), self._note_label(running, work, place, note)
            write_whole(path, seal_note(keys, label, plain, self._entropy))

    def _open_note(self, running: Running, work: Work, place: Place, note: Note) -> bytes:
        blob = self._mail.fetch_note(work, place, note)
        return open_note(running.session.keys(work.roster), self._note_label(running, work, place, note), blob)


def _total(running: Running) -> NDArray[np.int64]:
    if running.total is None:
        msg = "the heads' sum has not been opened"
        raise turns.OutOfTurnError(msg)
    return running.total
