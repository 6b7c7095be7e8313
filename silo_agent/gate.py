"""The single door out of a hospital: decide -> charge -> cosign -> compute -> keep -> seal. Returns sealed bytes.

Guarantees, in this order:

1. The policy on disk is the one in force. It allows the study on the machine's day and on the ledger's, whichever is
   later.
2. The ledger has every head that others cosigned, and it is what this process wrote.
3. Before the first step that depends on data, the whole cost of the round stands durably in the ledger, and the
   coordinator and another silo of the study have cosigned a head that covers it.
4. The noised integers are stored before they are sealed. They are never drawn twice for one charge.
5. A mask label seals one byte string for ever.
6. A state folder that is older than the ledger releases nothing in the rounds that it may not remember.

If any step fails, nothing has left the hospital. The computation is the exception: if it fails, which may tell of a
patient, the release of an empty cohort leaves instead, with fresh noise as charged. The ledger notes a fault first, and
from then on the silo reads no record for an upload until a person clears it (docs/design/total.md, "Faults"). A policy
comes into force as an entry of the ledger, when the agent
starts (oversight/approval.py). The caller computes the integers (`Compute`); `crypto.secagg.sealing` seals them.

With local noise a release may be sent again under a new roster at no cost (docs/design/noise.md, "Distributed noise":
post-processing), unless a sum of the round was spoilt since (docs/design/sums.md, "Spoilt sums"): then everything is
drawn and charged anew. With distributed noise a new attempt is a new draw and a new charge, and a draw is sealed for
one roster and model alone: the difference of two sums that hold the same shares of noise would lay bare a silo that is
in one of them only.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from time import monotonic
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from common.os_errors import is_passing
from crypto.errors import CryptoError
from crypto.pki.certificates import Credential, require_data_set
from crypto.secagg.labels import SumLabel
from crypto.secagg.masks import Masks
from crypto.secagg.sealing import Sealer
from policies.decision import decide, decide_continued
from policies.documents.document import DocumentError
from policies.documents.policy import Policy, load_policy
from policies.documents.study import Study
from policies.errors import CosignError, LedgerError
from policies.ledger.anchors import Anchors
from policies.ledger.chain import Genesis
from policies.ledger.cosign import COORDINATOR, SILO, Checkpoint, Cosignature, CosignatureFile, check
from policies.ledger.events import Debit, EntryRef, Fault, Recovery
from policies.ledger.ledger import Ledger
from policies.ledger.summary import summarise
from policies.plan.cost import Cost
from policies.plan.release import Release, plan
from policies.refusals import Reason, Refused
from protos.messages import Place, Tensor
from silo_agent.core.turns import OutOfTurnError
from silo_agent.metrics import AgentMetrics
from silo_agent.oversight.approval import start_under
from silo_agent.oversight.signing import binding, held_by, verifier
from silo_agent.reply_timing import padded
from silo_agent.storage.errors import ShortageError
from silo_agent.storage.offered import revisions_of
from silo_agent.storage.state import State

log = structlog.get_logger()
Integers = NDArray[np.int64]
VERIFY_SECONDS: Final = 24 * 3600.0
"""Every charge reads the ledger again and compares it. A decision does so if this time has passed since the last."""
_FAULT_TEXT: Final = "this silo takes no part in any study until its hospital has cleared a fault"
"""All that anybody outside hears of a fault."""
_LOST: Final = "(recovered)"
"""Stands in the place of a study's digest, because costs that a recovery charged belong to no study."""


Compute = Callable[[Place, Release], Integers]
"""Gives the noised integers of a release, (release.values,). The place names the charge."""


@dataclass(frozen=True)
class Order:
    """One contribution that this silo is asked for."""

    study: Study
    place: Place
    tensor: Tensor
    participants: tuple[str, ...]
    """The silos of the roster among whom the masks cancel."""
    roster_digest: str
    model: str
    """Keyed digest of the model from which the contribution is computed."""
    spoilt: int = 0
    """The last earlier attempt at the round with a proven spoilt sum."""

    @property
    def label(self) -> SumLabel:
        """The label to which the masks of this contribution are bound."""
        place = self.place
        return SumLabel(
            place.study, self.roster_digest, self.model, place.round, place.attempt, self.tensor, self.spoilt
        )


class Gate:
    """The policy, the ledger and the outbox of one data set."""

    def __init__(
        self,
        credential: Credential,
        policy_path: Path,
        ledger_path: Path,
        state: State,
        metrics: AgentMetrics,
        *,
        require_approved: Callable[[Study, Policy], object],
    ) -> None:
        """Open the ledger, refuse one that lost entries, and start under the policy in force.

        `require_approved` raises `Refused` if nobody lets a study use data now. It is asked before every charge.
        Raises `DocumentError` if the policy cannot be read, `CertificateError` if the silo's certificate is for another
        data set than the policy, `LedgerError` or `CryptoError` if the ledger or a kept cosignature is not genuine, and
        `ApprovalError` if the policy is not in force.
        """
        self._me, trust = credential.identity.name, credential.trust
        self._trust = trust
        self._policy_path, self._state, self._metrics = policy_path, state, metrics
        self._approval = require_approved
        self._cosigned, self._verify = CosignatureFile(ledger_path), verifier(trust)
        self._told: set[EntryRef] = set()
        """Heads that others named since the start; some may be older than the kept ones."""
        self.policy: Policy = load_policy(policy_path)
        """The policy in force."""
        self.ledger = open_ledger(ledger_path, self.policy, credential)
        try:
            # A cosignature counts here even if its certificate has expired: it can only require more of the ledger.
            self._held = binding(trust, [held_by(trust, item) for item in self._cosigned.latest()])
            self._require_held()
            state.anchored.bind(Anchors(ledger_path))
            start_under(self.ledger, policy_path, ledger_path.parent, trust)
        except BaseException:
            self.ledger.close()
            raise
        self._note_verified()
        self._measure()

    def checkpoint(self) -> Checkpoint:
        """State how far the ledger has come, for the coordinator and a peer to cosign."""
        return self.ledger.checkpoint(self._me, {*self._told, *(item.checkpoint.head for item in self._held)})

    def keep_cosigned(self, handed: Iterable[Cosignature]) -> None:
        """Keep what others cosigned, durably. A ledger that lacks it is refused, now and at every later start.

        Raises `LedgerRolledBackError` if the ledger lacks a cosigned head, `CosignError` if a cosignature is for
        another silo or data set, `CryptoError` if its signature is not genuine.
        """
        cosignatures = [check(item, self._verify) for item in handed]
        for item in cosignatures:
            self._require_mine(item)
        # A cosigner that was itself restored from a backup continues at the last head it knows, if we name that head.
        self._told |= {item.checkpoint.head for item in cosignatures}
        known = {_word(item) for item in self._held}
        if any(_word(item) not in known for item in cosignatures):
            self._cosigned.keep(cosignatures, replaces=lambda old: not binding(self._trust, [old]))
            self._held = binding(self._trust, self._cosigned.latest())
        self._require_held()

    @property
    def evidence(self) -> Cosignature | None:
        """What the coordinator signed last of this ledger, in case it has forgotten."""
        return next((item for item in self._held if item.signer.startswith(COORDINATOR)), None)

    def verify(self) -> None:
        """Read the whole ledger again and compare it. Raises `LedgerTamperedError`, `LedgerWriteError`."""
        self.ledger.verify()
        self._note_verified()

    def require_no_fault(self) -> None:
        """Raise `Refused`, always with the same words, if a fault stands in the ledger that nobody has cleared."""
        if self.ledger.fault is not None:
            self._metrics.refusals.labels(Reason.FAULT).inc()
            raise Refused(Reason.FAULT, _FAULT_TEXT)

    def decide(self, study: Study, place: Place, roster_size: int | None = None) -> None:
        """Ask the policy; nothing is charged. Raises `Refused` with its reason, `LedgerRolledBackError`."""
        self._require_same_policy()
        self._require_held()
        if monotonic() - self._verified > VERIFY_SECONDS:
            self.verify()
        owed = self._owed(study, place)
        others = {attempt for _, attempt in self.ledger.charged(place.study, place.round)} - {place.attempt}
        spent, spoilt = self._spent_before(study, place), self._state.promises.spoilt(place)
        revisions = revisions_of(self._state.files, study, self._state.names())
        try:
            decide(
                self.policy,
                study,
                silo=self._me,
                roster_size=roster_size,
                spent_costs=[cost for _, cost in spent],
                round=place.round,
                attempt=place.attempt,
                charged_attempts=len(others) if owed else 0,
                renewed=sum(attempt <= spoilt for attempt in others) if owed else 0,
                study_spent=[cost for name, cost in spent if name in revisions],
                today=_today(),
                ledger_day=self.ledger.day,
            )
        except Refused as refusal:
            self._metrics.refusals.labels(refusal.reason).inc()
            raise

    def decide_continued(self, study: Study, earlier: Study) -> None:
        """Ask the policy whether a study may continue a model of an earlier one. Raises `Refused`."""
        decide_continued(self.policy, study, earlier, self._me)

    def sealed(self, order: Order) -> Path | None:
        """The file with the bytes to which this order was sealed before; None if it was not."""
        return self._state.sealed(order.place.study, order.label.digest)

    def contribute(
        self,
        order: Order,
        sealer: Sealer,
        masks: Masks,
        compute: Compute,
        ask: Callable[[], Iterable[Cosignature]],
        *,
        noise_alone: Compute,
    ) -> Path:
        """The file with this order's sealed bytes, taken from the outbox if they were sealed before.

        `compute` is called only after the charge is durable and cosigned, and its result is kept at most once for each
        charge. If it fails, `noise_alone` takes its place: it reads no record. `ask` asks others once to cosign
        `checkpoint()`. It is called until enough have cosigned; an error that it raises ends the waiting. Raises
        `Refused`, `LedgerError`, `StateError`, `OutOfTurnError` and what `noise_alone` raises; then nothing has left
        the hospital.
        """
        label = order.label
        self._state.anchored.require(order.place)
        stored = self.sealed(order)
        if stored is not None:
            return stored
        self.decide(order.study, order.place, roster_size=len(order.participants))
        draw = self._charge(order)
        release = plan(order.study).release(order.place.round, order.tensor)
        kept = self._state.release(order.place, order.tensor, draw)
        if kept is None:
            while not self._is_cosigned(order, draw):
                self.keep_cosigned(ask())
            charged = replace(order.place, attempt=draw)
            integers = self._computed(order.study, charged, release, compute)
            if integers is None:
                integers = noise_alone(charged, release)
            self._state.keep_release(order.place, order.tensor, draw, integers, label.digest)
        elif kept.label == label.digest or release.resendable:
            integers = kept.integers
        else:
            msg = f"the {order.tensor} of this attempt was drawn for another roster or model; begin a new attempt"
            raise OutOfTurnError(msg)
        return self._state.keep_sealed(order.place, label.digest, sealer.seal(release.ring, integers, label, masks))

    def _computed(self, study: Study, charged: Place, release: Release, compute: Compute) -> Integers | None:
        """The integers of a charged release; None if a fault stands, now or before. The ledger notes it durably.

        What is raised here may follow from a patient's records, so nobody outside may see that it was. Raises
        `LedgerWriteError` if the fault cannot be noted.
        """
        if self.ledger.fault is None:
            began = monotonic()
            try:
                return compute(charged, release)
            except Exception as fault:  # noqa: BLE001
                # The text may quote a record. Type and line are enough to find a defect.
                log.error(  # noqa: TRY400
                    "a charged release could not be computed; noise alone is sent",
                    tensor=release.tensor,
                    round=charged.round,
                    fault=type(fault).__name__,
                    where=_where(fault),
                )
                self.ledger.note_fault(Fault(charged.study, charged.round, charged.attempt, release.tensor))
                self._metrics.fault.set(1)
            finally:
                self._metrics.compute_seconds.labels(release.tensor).observe(padded(study, monotonic() - began))
        return None

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()

    def _charge(self, order: Order) -> int:
        """Debit what this round still owes. Returns the attempt under which this order's draw is charged."""
        place = order.place
        owed = self._owed(order.study, place)
        if owed:
            self._require_approved(order.study)
            self.verify()
            self.ledger.charge(Debit(place.study, self.policy.digest, place.round, place.attempt, owed))
            self._metrics.charges.inc()
            self._measure(place.study)
            log.info("charged", study=place.study[:12], round=place.round, attempt=place.attempt, tensors=sorted(owed))
        return max(attempt for name, attempt in self._draws(order.study, place) if name == order.tensor)

    def _require_approved(self, study: Study) -> None:
        try:
            self._approval(study, self.policy)
        except Refused as refusal:
            self._metrics.refusals.labels(refusal.reason).inc()
            raise

    def _is_cosigned(self, order: Order, draw: int) -> bool:
        """Whether the coordinator and another silo of the study have signed a head that covers this draw's charge.

        Such a head is an entry of this very chain, at the charge or later. A head that was lost and recovered does not
        count, however high its number: it says nothing about what was charged since. Raises `LedgerError` if there is
        no such charge.
        """
        place, tensor = order.place, order.tensor
        key = (place.study, place.round, draw)
        charge = next(
            (
                entry.sequence
                for entry in self.ledger.entries()
                if (entry.debit.study, entry.debit.round, entry.debit.attempt) == key and tensor in entry.debit.costs
            ),
            None,
        )
        if charge is None:
            msg = (
                f"the ledger has no charge for the {tensor} of round {place.round}, so nothing is computed; this is a"
                " fault of the program, report it to FedWard"
            )
            raise LedgerError(msg)
        covering = {entry.head for entry in self.ledger.history() if entry.sequence >= charge}
        signers = set(self._signers(item for item in self._held if item.checkpoint.head in covering))
        peers = {f"{SILO}{name}" for name in order.study.silos if name != self._me}
        return bool(signers & peers) and any(signer.startswith(COORDINATOR) for signer in signers)

    def _signers(self, held: Iterable[Cosignature]) -> Iterator[str]:
        """Signers whose cosignatures count today; a certificate may have expired."""
        for item in held:
            try:
                yield check(item, self._verify).signer
            except (CryptoError, CosignError) as fault:
                log.warning("a cosignature does not count any more", why=str(fault))

    def _require_mine(self, item: Cosignature) -> None:
        silo, data_set, mine = item.checkpoint.silo, item.checkpoint.data_set, self.ledger.genesis.data_set
        if silo != self._me:
            msg = f"{item.signer} cosigned the ledger of {silo}, not this one; ask {item.signer} again"
            raise CosignError(msg)
        if data_set != mine:
            msg = (
                f"{item.signer} cosigned the ledger of {data_set} as this silo's, but the policy's data_set.id is"
                f" {mine}; a new name refills no budget. Put the former id and its ledger back, or enrol another silo"
                " for other patients"
            )
            raise CosignError(msg)

    def _require_held(self) -> None:
        """Refuse a ledger that lacks a head that others cosigned. Raises `LedgerRolledBackError`."""
        for item in self.ledger.missing(held.checkpoint for held in self._held):
            self.ledger.require(item.head)

    def _owed(self, study: Study, place: Place) -> dict[str, Cost]:
        """Costs of this round that no earlier charge covers for this attempt."""
        paid = {tensor for tensor, _ in self._draws(study, place)}
        return {tensor: cost for tensor, cost in plan(study).round_costs(place.round).items() if tensor not in paid}

    def _draws(self, study: Study, place: Place) -> dict[tuple[str, int], Cost]:
        """Charges of this round whose draws this attempt may send: its own, and any of a resendable release.

        After a spoilt sum, which counts as opened, nothing that was charged before is sent again.
        """
        resendable = {release.tensor for release in plan(study).round(place.round) if release.resendable}
        spoilt = self._state.promises.spoilt(place)
        return {
            (tensor, attempt): cost
            for (tensor, attempt), cost in self.ledger.charged(place.study, place.round).items()
            if attempt == place.attempt or (tensor in resendable and attempt > spoilt)
        }

    def _spent_before(self, study: Study, place: Place) -> list[tuple[str, Cost]]:
        """All charged costs with their studies, without the charges that this attempt reuses: the plan counts those."""
        reused = self._draws(study, place)
        spent: list[tuple[str, Cost]] = []
        for entry in self.ledger.history():
            event = entry.event
            if isinstance(event, Recovery):
                spent += [(_LOST, cost) for cost in event.costs]
            elif isinstance(event, Debit):
                elsewhere = (event.study, event.round) != (place.study, place.round)
                spent += [
                    (event.study, cost)
                    for tensor, cost in event.costs.items()
                    if elsewhere or (tensor, event.attempt) not in reused
                ]
        return spent

    def _require_same_policy(self) -> None:
        try:
            digest = load_policy(self._policy_path).digest
        except DocumentError as fault:
            if is_passing(fault.__cause__):
                raise ShortageError(str(fault)) from None
            raise
        if digest != self.policy.digest:
            raise Refused(
                Reason.POLICY_CHANGED,
                f"{self._policy_path.name} was changed while the agent runs; stop the agent, put the policy into force"
                " with `fedward-silo policy reload`, and start the agent again",
            )

    def _note_verified(self) -> None:
        self._verified = monotonic()
        self._metrics.verified()

    def _measure(self, study: str | None = None) -> None:
        """Set the metrics of what is spent and left: in all, and by tensor for this study or for every study."""
        metrics, limits = self._metrics, self.policy.limits
        metrics.epsilon_spent.set(self.ledger.spent())
        metrics.epsilon_left.set(self.ledger.left())
        metrics.fault.set(self.ledger.fault is not None)
        shares = self.policy.split.model_dump()
        entries = [entry for entry in self.ledger.entries() if study in (None, entry.debit.study)]
        for part in summarise(self.ledger.genesis, entries).studies:
            name = part.whole.name[:12]
            metrics.study_spent.labels(name).set(part.whole.epsilon)
            metrics.study_left.labels(name).set(max(0.0, limits.study_epsilon - part.whole.epsilon))
            for tensor in part.tensors:
                allowed = shares.get(tensor.name, 1.0) * limits.study_epsilon
                metrics.tensor_spent.labels(name, tensor.name).set(tensor.epsilon)
                metrics.tensor_left.labels(name, tensor.name).set(max(0.0, allowed - tensor.epsilon))


def open_ledger(path: Path, policy: Policy, credential: Credential) -> Ledger:
    """Open the ledger of the policy's data set, for the silo that is certified for it.

    Raises `LedgerError`, and `CertificateError` if the silo's certificate is for another data set.
    """
    require_data_set(credential.certificate_pem, policy.data_set.id)
    return Ledger.open(path, Genesis.of(policy), budget_epsilon=policy.budget.epsilon)


def _where(fault: BaseException) -> list[str]:
    """The lines of code through which an exception came, without its text."""
    return [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(fault.__traceback__)]


def _word(item: Cosignature) -> tuple[str, bytes, bytes]:
    """What makes a cosignature new: signer, checkpoint, certificate. Signatures differ each time and do not count."""
    return item.signer, item.checkpoint.message, item.certificate


def _today() -> date:
    return datetime.now(UTC).date()
