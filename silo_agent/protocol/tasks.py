"""The tasks of an attempt, each in two halves: `perform` computes and stores, `report` tells the coordinator.

`report` reads durable state alone, so it can be repeated after a crash and gives the same bytes. `agent` decides whose
turn it is, and stores the standing durably between the halves. `learner` trains, `gate` releases, and `membership`
holds the keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray

from crypto.entropy import Entropy
from crypto.errors import CryptoError, FrameError, OpeningRefused, PeerRefused, RecoveryRefused, RosterRefused
from crypto.rings.rings import ring_of
from crypto.secagg.dealt.complaints import ShareComplaint
from crypto.secagg.holding import FalseNote, Holding
from crypto.secagg.packages import content_key, model_digest, open_note, seal_note
from crypto.secagg.voids import VoidPromise
from policies.plan.note_sizes import note_limit
from protos.messages import FALSE_MODEL, Confirm, Publication, Tensor
from protos.steps import SUM, Note, Reply, Task
from silo_agent.core.turns import OutOfTurnError
from silo_agent.gate import Gate
from silo_agent.learning.errors import SolutionError, SumError
from silo_agent.learning.figures.evaluation import Results
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.releases.counts import noised_counts
from silo_agent.metrics import AgentMetrics
from silo_agent.protocol import publishing
from silo_agent.protocol.attempt import Attempt
from silo_agent.protocol.calls.client import Client
from silo_agent.protocol.catching_up import CatchUpError, Current, pack, unpack
from silo_agent.protocol.journal import Standing
from silo_agent.protocol.kept_models import KeptModels
from silo_agent.protocol.ledgers.cosigning import Cosigning
from silo_agent.protocol.mail import Mail
from silo_agent.protocol.recounting import recount, statement
from silo_agent.protocol.shares import ReceivedShares
from silo_agent.storage.checked import write_checked
from silo_agent.storage.durable import write_whole
from silo_agent.storage.own_files import own_files
from silo_agent.storage.promises import KeptRefusal
from silo_agent.storage.state import State

log = structlog.get_logger()
_REFUSALS = (FrameError, OpeningRefused, RecoveryRefused, SumError)
"""Errors that tell of the sum itself. Whatever else keeps this silo from opening it says nothing of the others."""


class Tasks:
    """Does the tasks that the coordinator asks of this silo."""

    def __init__(
        self,
        client: Client,
        gate: Gate,
        state: State,
        metrics: AgentMetrics,
        entropy: Entropy,
        *,
        cosigning: Cosigning,
    ) -> None:
        self._client, self._gate, self._state, self._entropy = client, gate, state, entropy
        self.models = KeptModels(state.files)
        self._mail, self._cosigning = Mail(client, state, metrics), cosigning
        self._shares = ReceivedShares(client, state, self._mail)
        self._performs: Mapping[Task, Callable[[Attempt], Standing | None]] = {
            Task.VOID: self._void,
            Task.GREET: self._greet,
            Task.DEAL: self._deal,
            Task.TAKE: self._take,
            Task.SHARE: self._share,
            Task.CATCH_UP: self._catch_up,
            Task.JUDGE: self._judge,
            Task.EXCHANGE: self._exchange,
            Task.CHECK: self._check,
            Task.EXAMINE: self._examine,
            Task.CONTRIBUTE: self._contribute,
            Task.SIGN: self._sign,
            Task.REVEAL: self._reveal,
            Task.OPEN: self._open,
            Task.RECOUNT: self._recount,
            Task.SOLVE: self._solve,
            Task.ADOPT: self._adopt,
        }
        self._says: Mapping[Task, Callable[[Attempt], Confirm]] = {
            Task.VOID: self._promised,
            Task.JUDGE: self._judgement,
            Task.EXAMINE: self._examined,
            Task.SIGN: self._signed,
            Task.RECOUNT: self._stated,
        }

    def perform(self, attempt: Attempt) -> Standing:
        """Do what the attempt's work asks, and store what `report` will need. Nothing is sent to the coordinator yet.

        The exception is the ledger's checkpoint, which others must cosign before a contribution is computed. Return
        the standing afterwards, but with the turn of before: `agent` knows the next one and stores both.
        """
        _require_sizes(attempt)
        self._state.anchored.require(attempt.place)
        return self._performs[attempt.work.task](attempt) or attempt.standing

    def report(self, attempt: Attempt) -> None:
        """Tell the coordinator the result of the task."""
        work, place, step = attempt.work, attempt.place, attempt.step
        if step.note is not None:
            tensor = work.tensor if step.of_tensor else None
            self._mail.send(attempt.me, place, step.note, self._mail.note_path(place, step.note, tensor), tensor=tensor)
        elif step.sends is Reply.TENSOR and work.tensor is not None:
            sealed = self._gate.sealed(attempt.order(work.tensor))
            if sealed is None:
                msg = f"the sealed {work.tensor} of this attempt is gone; a new attempt is needed"
                raise OutOfTurnError(msg)
            release = attempt.release(work.tensor)
            values = attempt.sealed_values(release)
            self._mail.send(attempt.me, place, release.ring, sealed, tensor=work.tensor, values=values)
        else:
            says = self._holds if step.changes_model else self._says.get(step.task, self._done)
            self._client.confirm(says(attempt))

    # --- keys and catching up -------------------------------------------------------------------------------------
    def _greet(self, attempt: Attempt) -> None:
        self._decide_roster(attempt)
        self._keep_note(attempt, Note.GREETING, attempt.membership.greet())

    def _deal(self, attempt: Attempt) -> None:
        self._decide_roster(attempt)
        self._meet(attempt)
        self._keep_note(attempt, Note.KEYS, attempt.membership.deal(attempt.place))

    def _take(self, attempt: Attempt) -> None:
        self._decide_roster(attempt)
        self._meet(attempt)
        package = self._mail.fetch_note(attempt.work, attempt.place, Note.KEYS)
        attempt.membership.take(attempt.work.actor, package)

    def _meet(self, attempt: Attempt) -> None:
        place, mine = attempt.place, attempt.membership
        limit = note_limit(attempt.study, place.round, Note.GREETING)
        mine.meet(self._mail.fetch_greetings(place, mine.earlier, attempt.me, limit))

    def _decide_roster(self, attempt: Attempt) -> None:
        strangers = sorted(attempt.members.difference(attempt.study.silos))
        if strangers:
            msg = f"the roster names {', '.join(strangers)}, which study.silos does not list"
            raise RosterRefused(msg)
        self._gate.decide(attempt.study, attempt.place, roster_size=len(attempt.work.roster))

    def _share(self, attempt: Attempt) -> None:
        self._seal_note(attempt, Note.MODEL, pack(self.models.current(attempt.study, attempt.place.round - 1)))

    def _catch_up(self, attempt: Attempt) -> Standing:
        current = self._shown(attempt)
        _require_vouched(attempt, current)
        write_checked(self._state.files.study(attempt.place.study).counts, json.dumps(current.counts).encode())
        self.models.keep(current)
        return replace(attempt.standing, model=current.model, digest=current.digest)

    def _judge(self, attempt: Attempt) -> None:
        """Say, once and durably, whether the model that a peer has shared is the one that this silo holds."""
        held = self.models.current(attempt.study, attempt.place.round - 1)
        try:
            same = self._shown(attempt).content == held.content
        except (CryptoError, CatchUpError) as fault:
            log.warning("a peer's model cannot be read", silo=attempt.work.actor, why=str(fault))
            same = False
        write_whole(self._verdict(attempt), b"right" if same else b"false")

    def _shown(self, attempt: Attempt) -> Current:
        """What a peer has shared. Raises `CryptoError`, `CatchUpError`."""
        plain = self._open_note(attempt, Note.MODEL)
        return unpack(attempt.study, attempt.place.round - 1, plain, attempt.running.begun)

    def _verdict(self, attempt: Attempt) -> Path:
        return self._state.note_path(attempt.place, f"verdict-{attempt.work.actor}")

    # --- mask and seal --------------------------------------------------------------------------------------------
    def _exchange(self, attempt: Attempt) -> None:
        self._decide_roster(attempt)
        _require_enough(attempt, tuple(attempt.members), "the roster")
        tensors, needed = attempt.tensors, attempt.threshold
        note = attempt.membership.share(attempt.place, tensors, needed, lambda: self._shares.words(attempt))
        self._keep_note(attempt, Note.SHARES, note)

    def _check(self, attempt: Attempt) -> None:
        """Read what the others have dealt to this silo, before anything is uploaded or charged."""
        self._shares.receive(attempt)

    def complaint(self, attempt: Attempt, fault: Exception) -> tuple[str, bytes, bytes]:
        """Whom this silo complains about because of a fault; evidence, if there is any, and the signature over it."""
        if not attempt.step.complains or not isinstance(fault, PeerRefused | RecoveryRefused):
            return "", b"", b""
        key = fault.evidence if isinstance(fault, RecoveryRefused) else b""
        if not key:
            return fault.culprit, b"", b""
        complaint = ShareComplaint(attempt.membership.attempt(attempt.place), fault.culprit, attempt.me, key)
        return fault.culprit, complaint.evidence, self._client.sign(complaint.to_sign())

    def _examine(self, attempt: Attempt) -> None:
        """Find out, once and durably, who lied: a silo that complains of its shares, or their owner."""
        complaint, place = attempt.work.complaint, attempt.place
        notes = self._mail.fetch_notes(attempt.work, place, Note.SHARES)
        if complaint is None or complaint.owner not in notes:
            msg = "the coordinator does not offer the shares that a silo complains about"
            raise OutOfTurnError(msg)
        note = notes[complaint.owner]
        liar = attempt.membership.examine(place, attempt.tensors, attempt.threshold, complaint, note)
        log.warning("a silo has lied", silo=liar, complains=complaint.silo, about=complaint.owner, round=place.round)
        write_whole(self._liar(attempt), liar.encode())

    def _liar(self, attempt: Attempt) -> Path:
        return self._state.note_path(attempt.place, "liar")

    def _contribute(self, attempt: Attempt) -> None:
        learner, model = attempt.running.learner, attempt.standing.model
        place, tensor = attempt.place, attempt.tensor
        if attempt.me not in attempt.participants:
            msg = "this silo is asked for its contribution, but it is not among the participants"
            raise OutOfTurnError(msg)
        _require_enough(attempt, attempt.participants, "this sum")
        _require_whole(attempt, attempt.participants)
        self._close(attempt)
        self._state.promises.require(place, tensor, attempt.participants)
        self._shares.receive(attempt)
        self._state.promises.contribute(place, tensor, attempt.participants)
        silos = len(attempt.participants)
        self._gate.contribute(
            attempt.order(tensor),
            attempt.sealer,
            attempt.membership.masks(place, tensor, attempt.participants),
            lambda charged, release: learner.contribution(release, charged, model, silos),
            lambda: self._cosigning.ask(place),
            noise_alone=lambda charged, release: learner.noise_alone(release, charged, model, silos),
        )

    # --- who is in the sum ----------------------------------------------------------------------------------------
    def _void(self, attempt: Attempt) -> None:
        """Promise to reveal nothing of earlier attempts, unless this silo has (docs/design/sums.md, "Voided lists")."""
        void = attempt.void
        self._state.promises.void(attempt.place, Tensor(void.tensor), void.through)

    def _close(self, attempt: Attempt) -> None:
        """Take note of a void that comes with the work. Raises `RosterRefused` if too few silos have signed it."""
        handed, study = attempt.work.void, attempt.study
        if handed is None:
            return
        after = attempt.standing.turn.spoilt
        void = VoidPromise(study.digest, attempt.place.round, str(attempt.tensor), handed.through, after)
        signers, needed = attempt.membership.voiders(void, study.silos, handed), attempt.threshold
        if handed.through >= attempt.place.attempt or len(signers) < needed:
            msg = f"{len(signers)} silos have voided the earlier list of {attempt.tensor}, but {needed} must do so"
            raise RosterRefused(msg)
        self._state.promises.close(attempt.place, attempt.tensor, handed.through)

    def _sign(self, attempt: Attempt) -> None:
        """Commit durably and for ever to one survivor list for this sum (docs/design/sums.md, "Thresholds")."""
        survivors, tensor = attempt.survivors, attempt.tensor
        if attempt.me not in survivors or len(survivors) < attempt.threshold:
            msg = f"the list of silos in the sum ({', '.join(survivors)}) is too short or does not name this silo"
            raise OutOfTurnError(msg)
        _require_whole(attempt, survivors)
        self._gate.decide(attempt.study, attempt.place, roster_size=len(survivors))
        self._shares.read(attempt)
        self._state.promises.sign(attempt.place, tensor, survivors)

    def _reveal(self, attempt: Attempt) -> None:
        """Reveal this silo's shares, but only if enough silos have signed the same list as this silo."""
        bundles = self._shares.read(attempt)
        survivors, needed = attempt.survivor_list, attempt.threshold
        signatures = {signature.silo: signature.signature for signature in attempt.work.signatures}
        signers = attempt.membership.signers(survivors, signatures)
        if len(signers) < needed:
            msg = f"{len(signers)} silos have signed who is in the sum, but {needed} must sign; begin a new attempt"
            raise OpeningRefused(msg)
        path = self._mail.note_path(attempt.place, Note.REVEAL, attempt.work.tensor)
        if not path.exists():
            self._state.promises.reveal(attempt.place, attempt.tensor)
            word = self._shares.word(attempt, self._state.anchored.count(attempt.place.study))
            write_whole(path, attempt.membership.reveal(bundles, survivors, attempt.participants, word))

    # --- open and solve -------------------------------------------------------------------------------------------
    def _open(self, attempt: Attempt) -> Standing:
        place, tensor = attempt.place, attempt.tensor
        learner, silos = attempt.running.learner, len(attempt.survivors)
        counted = set(self._state.promises.binding(replace(place, round=0), Tensor.COUNTS))
        uncounted = len(set(attempt.survivors) - counted)
        try:
            total = self._open_sum(attempt)
            learner.check_sum(tensor, total, place, silos, counted=len(counted), uncounted=uncounted)
        except _REFUSALS as refusal:
            self._refuse(attempt, refusal)
            raise
        opened = learner.open(tensor, total, place, attempt.standing.model, silos)
        if opened.results is not None:
            self._publish(attempt, opened.results)
        digest = _next_digest(attempt, np.ascontiguousarray(total, "<i8").data, opened.model)
        standing = Standing(attempt.standing.turn, opened.model, digest, opened.unsolved)
        self._keep_last(attempt, standing)
        return standing

    def _open_sum(self, attempt: Attempt) -> NDArray[np.int64]:
        tensor, place = attempt.tensor, attempt.place
        notes, bundles = self._mail.fetch_notes(attempt.work, place, Note.REVEAL, tensor), self._shares.read(attempt)
        offered = [one for one in attempt.work.uploads if one.part in attempt.work.parts]
        answerable = [one.part.silo for one in offered if attempt.has_signed(one)]
        release, label = attempt.release(tensor), attempt.order(tensor).label
        words = attempt.membership.words(notes, bundles, attempt.survivor_list, attempt.participants)
        self._shares.hear(attempt, words)
        with self._mail.sum(attempt.work, place, tensor) as (file, sha256):
            # Whoever could have several sums tried under one label would learn from every answer what the sum holds.
            self._state.promises.open(place, label.digest, sha256)
            unmasking = self._shares.unmasking(attempt, notes, answerable)
            return attempt.sealer.open(release.ring, file, release.values, label, unmasking)

    def _refuse(self, attempt: Attempt, refusal: Exception) -> None:
        """Record durably that the sum cannot be the survivors', which this silo may be asked to sign."""
        culprit = refusal.culprit if isinstance(refusal, RecoveryRefused) else ""
        if culprit or not isinstance(refusal, RecoveryRefused):  # else too few reveals came to open anything
            sha256 = next(part.sha256 for part in attempt.work.parts if part.kind == SUM)
            self._state.promises.refuse(attempt.place, attempt.tensor, KeptRefusal(sha256, culprit))

    def _recount(self, attempt: Attempt) -> None:
        """Add the uploads again, if this silo has refused their sum (docs/design/sums.md, "Spoilt sums")."""
        recount(attempt, self._mail, self._refused(attempt))

    def _refused(self, attempt: Attempt) -> KeptRefusal:
        refusal = self._state.promises.refused(attempt.place, attempt.tensor)
        if refusal is None:
            msg = f"this silo has refused no sum of {attempt.tensor} in this attempt, so it calls none spoilt"
            raise OutOfTurnError(msg)
        return refusal

    def _publish(self, attempt: Attempt, results: Results) -> None:
        if attempt.study.publish:
            blob = publishing.publication(attempt.study, results).canonical()
            write_whole(self._state.files.study(attempt.place.study).publication, blob)

    def _solve(self, attempt: Attempt) -> None:
        learner, silos = attempt.running.learner, len(attempt.survivors)
        solution = learner.solve(attempt.total, attempt.place, attempt.standing.model, silos)
        self._seal_note(attempt, Note.HEADS, solution.astype("<i8").tobytes())

    def _adopt(self, attempt: Attempt) -> Standing:
        plain, learner = self._open_note(attempt, Note.HEADS), attempt.running.learner
        if len(plain) % 8:
            msg = "the solved heads are not a sequence of 64-bit integers"
            raise SolutionError(msg)
        solution, silos = np.frombuffer(plain, "<i8"), len(attempt.survivors)
        model = learner.adopt(solution, attempt.total, attempt.place, attempt.standing.model, silos)
        standing = Standing(attempt.standing.turn, model, _next_digest(attempt, plain, model))
        self._keep_last(attempt, standing)
        return standing

    # --- files ----------------------------------------------------------------------------------------------------
    def _keep_last(self, attempt: Attempt, standing: Standing) -> None:
        """Store the model after a round's last tensor, before the coordinator hears that the round is finished.

        The round of the metrics follows the training rounds and changes no model, so it has no file.
        """
        place, solved = attempt.place, standing.total is None
        if solved and attempt.tensor == attempt.tensors[-1] and place.round <= attempt.study.rounds:
            key = content_key(attempt.membership.keys, place.study, place.round)
            self.models.keep(Current(standing.model, standing.digest, self._counts(place.study), key))

    def _counts(self, study: str) -> tuple[float, ...]:
        return tuple(float(count) for count in noised_counts(self._state.study_folder(study)))

    # --- notes ----------------------------------------------------------------------------------------------------
    def _keep_note(self, attempt: Attempt, note: Note, content: bytes) -> None:
        write_whole(self._mail.note_path(attempt.place, note), content)

    def _seal_note(self, attempt: Attempt, note: Note, plain: bytes) -> None:
        """Seal a note once in an attempt. If the note exists already, its bytes stay as they are."""
        if not self._mail.note_path(attempt.place, note).exists():
            sealed = seal_note(attempt.membership.keys, attempt.note_label(note), plain, self._entropy)
            self._keep_note(attempt, note, sealed)

    def _open_note(self, attempt: Attempt, note: Note) -> bytes:
        blob = self._mail.fetch_note(attempt.work, attempt.place, note)
        return open_note(attempt.membership.keys, attempt.note_label(note), blob)

    # --- inside ---------------------------------------------------------------------------------------------------
    def _done(self, attempt: Attempt) -> Confirm:
        return Confirm(attempt.place, attempt.work.task)

    def _promised(self, attempt: Attempt) -> Confirm:
        void, place = attempt.void, attempt.place
        promised = self._state.promises.voided(place, Tensor(void.tensor)) >= void.through
        signature = self._client.sign(void.to_sign()) if promised else b""
        return Confirm(place, Task.VOID, attempt.work.tensor, signature=signature)

    def _signed(self, attempt: Attempt) -> Confirm:
        self._shares.read(attempt)  # a silo that was restarted since has not read them yet
        signature = self._client.sign(attempt.survivor_list.to_sign())
        return Confirm(attempt.place, Task.SIGN, attempt.work.tensor, signature=signature)

    def _stated(self, attempt: Attempt) -> Confirm:
        spoilt = statement(attempt, self._refused(attempt))
        signature = self._client.sign(spoilt.to_sign())
        return Confirm(attempt.place, Task.RECOUNT, attempt.work.tensor, signature=signature, culprit=spoilt.culprit)

    def _examined(self, attempt: Attempt) -> Confirm:
        with own_files():
            liar = self._liar(attempt).read_text("utf-8")
        return Confirm(attempt.place, Task.EXAMINE, culprit=liar)

    def _holds(self, attempt: Attempt) -> Confirm:
        work, place = attempt.work, attempt.place
        tensor = work.tensor if attempt.step.of_tensor else None
        publication = signature = b""
        if tensor is Tensor.METRICS and attempt.study.publish:
            with own_files():
                publication = self._state.files.study(place.study).publication.read_bytes()
            signature = self._client.sign(Publication.to_sign(publication))
        content, vouch = self._vouch(attempt)
        return Confirm(
            place,
            work.task,
            tensor,
            model=attempt.standing.digest,
            publication=publication,
            signature=signature,
            content=content,
            vouch=vouch,
        )

    def _judgement(self, attempt: Attempt) -> Confirm:
        place, actor = attempt.place, attempt.work.actor
        with own_files():
            right = self._verdict(attempt).read_bytes() == b"right"
        if right:
            return Confirm(place, Task.JUDGE)
        shared = next(part.sha256 for part in attempt.work.parts if part.kind == Note.MODEL)
        false = FalseNote(place.study, place.round, place.attempt, actor, shared)
        why = f"{actor} has shared another model than this silo holds"
        return Confirm(
            place, Task.JUDGE, dispute=FALSE_MODEL, explanation=why, signature=self._client.sign(false.to_sign())
        )

    def _vouch(self, attempt: Attempt) -> tuple[str, bytes]:
        """What this silo holds, if the task was the last of a round or it has caught up, and its signature on it."""
        finished, place = attempt.standing.turn.finished, attempt.place
        caught_up = attempt.work.task is Task.CATCH_UP
        if not caught_up and (finished != place.round or place.round > attempt.study.rounds):
            return "", b""
        holding = Holding(place.study, finished, self.models.current(attempt.study, finished).content)
        return holding.content, self._client.sign(holding.to_sign())


def _require_sizes(attempt: Attempt) -> None:
    """Raise `OutOfTurnError` if an offered part is larger than the study implies; nothing is fetched before."""
    for part in attempt.work.parts:
        if part.kind != SUM:
            limit = note_limit(attempt.study, attempt.place.round, part.kind)
        else:
            release = attempt.release(attempt.tensor)
            limit = ring_of(release.ring).content_size(attempt.sealed_values(release))
        if part.size > limit:
            msg = f"the coordinator offers a {part.kind} of {part.size} bytes; the study implies at most {limit}"
            raise OutOfTurnError(msg)


def _require_enough(attempt: Attempt, names: tuple[str, ...], what: str) -> None:
    """Raise `RosterRefused` if so few are named that this silo's masks could come off (`crypto.secagg.survivors`)."""
    needed = attempt.threshold
    if len(names) < needed:
        msg = (
            f"{what} has {len(names)} silos, but {needed} of the study's {len(attempt.study.silos)} must take part;"
            " begin a new attempt"
        )
        raise RosterRefused(msg)


def _require_vouched(attempt: Attempt, current: Current) -> None:
    """Raise `CatchUpError` unless t + 1 other silos of the study have signed that they hold this content."""
    study, handed = attempt.study, attempt.work.vouches
    holding = Holding(study.digest, current.model.round, current.content)
    signers, needed = attempt.membership.holders(holding, study.silos, handed), study.privacy.colluders + 1
    if len(signers) < needed:
        msg = (
            f"{len(signers)} other silos have signed the model that {attempt.work.actor} shared, but {needed} must"
            " have; another silo must share it"
        )
        raise CatchUpError(msg)


def _require_whole(attempt: Attempt, names: tuple[str, ...]) -> None:
    """Where the sum's noise is distributed, every silo's share is needed: raise `OpeningRefused` if one is missing."""
    missing = sorted(attempt.members.difference(names))
    if missing and not attempt.release(attempt.tensor).resendable:
        msg = f"with distributed noise no silo may be missing, but these are: {', '.join(missing)}; begin a new attempt"
        raise OpeningRefused(msg)


def _next_digest(attempt: Attempt, opened: bytes | memoryview, model: SharedModel) -> str:
    """The next keyed digest, bound to the opened bytes and to the model that this silo made from them.

    A silo that computes another model gets another digest, so the difference shows at once.
    """
    keys, made = attempt.membership.keys, bytes.fromhex(model.digest)
    return model_digest(keys, attempt.standing.digest, attempt.study.digest, [sha256(opened).digest(), made])
