"""The single door out of a hospital: decide -> charge -> cosign -> compute -> keep -> seal. Returns sealed bytes.

Guarantees, in this order: the policy on disk is the one in force and allows the study, on the later of
the machine's day and the ledger's; the ledger has every head that others cosigned and is what this process wrote;
the whole cost of the round stands durably in it, and the coordinator and another silo of the study have cosigned a
head that covers it, before the first data-dependent step; the noised integers are stored before they are sealed and are
never drawn twice for one charge; a mask label seals one byte string for ever. Whatever fails, nothing has left. A
policy comes into force as an entry of the ledger, when the agent starts (approval.py). What is computed is the
caller's business (`learner`); how it is sealed is `crypto.secagg.sealing`'s.

With local noise a release may be sent again under a new roster at no cost (privacy.md, "Noise": post-processing). With
distributed noise a new attempt is a new draw and a new charge, and a draw is sealed for one roster and model alone: the
difference of two sums that hold the same shares of noise would lay bare a silo that is in one of them only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from time import monotonic
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray

from crypto.errors import CryptoError
from crypto.pki.certificates import Credential, Trust, require_data_set
from crypto.secagg.labels import Label
from crypto.secagg.masks import Masks
from crypto.secagg.sealing import Sealer
from policies.decision import decide
from policies.documents.policy import Policy, load_policy
from policies.documents.study import Study
from policies.errors import CosignError, LedgerError
from policies.ledger.chain import Genesis
from policies.ledger.cosign import COORDINATOR, SILO, Checkpoint, Cosignature, Cosigned, check
from policies.ledger.events import Debit, EntryRef, Recovery
from policies.ledger.ledger import Ledger
from policies.ledger.summary import summarise
from policies.plan import shapes
from policies.plan.costs import Cost, round_costs
from policies.refusals import Reason, Refused
from protos.messages import Place, Tensor
from silo_agent.core.turns import OutOfTurnError
from silo_agent.metrics import Metrics
from silo_agent.oversight.approval import start_under
from silo_agent.oversight.signing import cosigner_of, verifier
from silo_agent.storage.state import State

log = structlog.get_logger()
Integers = NDArray[np.int64]
VERIFY_SECONDS: Final = 24 * 3600.0
"""The ledger is read again and compared at every charge, and at the first question after so long."""
_LOST: Final = "(recovered)"
"""Where a study's digest would stand: what was charged for lost entries belongs to no study."""


@dataclass(frozen=True)
class Order:
    """One contribution that is asked of this silo."""

    study: Study
    place: Place
    tensor: Tensor
    participants: tuple[str, ...]
    """Among whom the masks cancel; of the roster."""
    roster_digest: str
    model: str
    """Keyed digest of the model that the contribution is computed from."""

    @property
    def label(self) -> Label:
        """What the masks of this contribution are bound to."""
        place = self.place
        return Label(place.study, self.roster_digest, self.model, place.round, place.attempt, self.tensor)


class Gate:
    """Policy, ledger and outbox of one data set."""

    def __init__(
        self, credential: Credential, policy_path: Path, ledger_path: Path, state: State, metrics: Metrics
    ) -> None:
        """Open the ledger, refuse one that lost entries, start under the policy in force.

        Raises `DocumentError`, `CertificateError` where the policy is of another data set than the silo's certificate,
        `LedgerError`, also for kept cosignatures that nobody made, `CryptoError`, `ApprovalError`.
        """
        self._me, trust = credential.identity.name, Trust(credential.authority_pem)
        self._policy_path, self._state, self._metrics = policy_path, state, metrics
        self._cosigned, self._verify = Cosigned(ledger_path), verifier(trust)
        self._told: set[EntryRef] = set()
        """Heads that others named since the start, older ones than what is kept among them."""
        self.policy: Policy = load_policy(policy_path)
        """The one in force."""
        self.ledger = open_ledger(ledger_path, self.policy, credential)
        try:
            # An expired certificate counts here: what it signed can only make the ledger stand for more.
            self._held = tuple(cosigner_of(trust, item)[0] for item in self._cosigned.latest())
            self._require_held()
            start_under(self.ledger, policy_path, ledger_path.parent, trust)
        except BaseException:
            self.ledger.close()
            raise
        self._note_verified()
        self._measure()

    def checkpoint(self) -> Checkpoint:
        """How far the ledger has come, for the coordinator and a peer to cosign."""
        return self.ledger.checkpoint(self._me, {*self._told, *(item.checkpoint.head for item in self._held)})

    def keep_cosigned(self, handed: Iterable[Cosignature]) -> None:
        """Keep what others cosigned, durably, and refuse a ledger that lacks it, now and at every later start.

        Raises `LedgerRolledBackError`, `CosignError` for another silo's or data set's, `CryptoError`.
        """
        found = [check(item, self._verify) for item in handed]
        for item in found:
            self._require_mine(item)
        # Who was itself put back from a backup signs on where its own memory ends, if that head is named.
        self._told |= {item.checkpoint.head for item in found}
        known = {_word(item) for item in self._held}
        if any(_word(item) not in known for item in found):
            self._cosigned.keep(found)
            self._held = self._cosigned.latest()
        self._require_held()

    def verify(self) -> None:
        """Read the whole ledger again and compare. Raises `LedgerTamperedError`, `LedgerWriteError`."""
        self.ledger.verify()
        self._note_verified()

    def decide(self, study: Study, place: Place, roster_size: int | None = None) -> None:
        """Ask the policy. Raises `Refused` by name, `LedgerRolledBackError`; nothing is charged."""
        self._require_same_policy()
        self._require_held()
        if monotonic() - self._verified > VERIFY_SECONDS:
            self.verify()
        owed = self._owed(study, place)
        others = {attempt for _, attempt in self.ledger.charged(place.study, place.round)} - {place.attempt}
        spent = self._spent_before(study, place)
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
                study_spent=[cost for name, cost in spent if name == place.study],
                today=_today(),
                ledger_day=self.ledger.day,
            )
        except Refused as refusal:
            self._metrics.refusals.labels(refusal.reason).inc()
            raise

    def sealed(self, order: Order) -> Path | None:
        """The bytes that this order was sealed to before, None where it was not."""
        return self._state.sealed(order.place.study, order.label.digest)

    def contribute(
        self,
        order: Order,
        sealer: Sealer,
        masks: Masks,
        compute: Callable[[Place], Integers],
        ask: Callable[[], Iterable[Cosignature]],
    ) -> Path:
        """Sealed bytes of this order, from the outbox where they were sealed before.

        `compute` gets the place that was charged and returns the noised integers. What it returns is kept at most once
        per charge; it is called only after the charge is durable and cosigned. `ask` asks others once to
        cosign `checkpoint()`, and is called until that is enough; what it raises ends the waiting. Raises
        `Refused`, `LedgerError`, `StateError`, `OutOfTurnError`; then nothing has left.
        """
        study, label = order.place.study, order.label
        stored = self.sealed(order)
        if stored is not None:
            return stored
        self.decide(order.study, order.place, roster_size=len(order.participants))
        draw = self._charge(order)
        release = self._state.release(order.place, order.tensor, draw)
        if release is None:
            while not self._is_cosigned(order, draw):
                self.keep_cosigned(ask())
            with self._metrics.compute_seconds.labels(order.tensor).time():
                integers = compute(replace(order.place, attempt=draw))
            self._state.keep_release(order.place, order.tensor, draw, integers, label.digest)
        elif release.label == label.digest or _carries_its_noise(order.study, order.tensor):
            integers = release.integers
        else:
            msg = f"the {order.tensor} of this attempt was drawn for another roster or model; begin a new attempt"
            raise OutOfTurnError(msg)
        kind = shapes.ring(order.study, order.tensor)
        return self._state.keep_sealed(study, label.digest, sealer.seal(kind, integers, label, masks))

    def close(self) -> None:
        """Let go of the ledger."""
        self.ledger.close()

    def _charge(self, order: Order) -> int:
        """Debit what this round still owes; returns the attempt under which this order's draw is charged."""
        place = order.place
        owed = self._owed(order.study, place)
        if owed:
            self.verify()
            self.ledger.charge(Debit(place.study, self.policy.digest, place.round, place.attempt, owed))
            self._metrics.charges.inc()
            self._measure(place.study)
            log.info("charged", study=place.study[:12], round=place.round, attempt=place.attempt, tensors=sorted(owed))
        return max(attempt for name, attempt in self._draws(order.study, place) if name == order.tensor)

    def _is_cosigned(self, order: Order, draw: int) -> bool:
        """Whether the coordinator and another silo of the study have signed a head that covers this draw's charge.

        That is an entry of this very chain, at the charge or later: a head that was lost and recovered says nothing
        about what was charged since, however high its number. Raises `LedgerError` where there is no such charge.
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
            msg = f"the ledger has no charge for the {tensor} of round {place.round}; nothing is computed, tell FedWard"
            raise LedgerError(msg)
        covering = {entry.head for entry in self.ledger.history() if entry.sequence >= charge}
        signers = set(self._signers(item for item in self._held if item.checkpoint.head in covering))
        peers = {f"{SILO}{name}" for name in order.study.silos if name != self._me}
        return bool(signers & peers) and any(signer.startswith(COORDINATOR) for signer in signers)

    def _signers(self, held: Iterable[Cosignature]) -> Iterator[str]:
        """Whose signatures hold today: certificates run out."""
        for item in held:
            try:
                yield check(item, self._verify).signer
            except (CryptoError, CosignError) as fault:
                log.warning("a cosignature does not count any more", why=str(fault))

    def _require_mine(self, item: Cosignature) -> None:
        silo, data_set, mine = item.checkpoint.silo, item.checkpoint.data_set, self.ledger.genesis.data_set
        if silo != self._me:
            msg = f"{item.signer} cosigned the ledger of {silo}, not this one; ask it again"
            raise CosignError(msg)
        if data_set != mine:
            msg = (
                f"{item.signer} cosigned the ledger of {data_set} as this silo's, and the policy's data_set.id is"
                f" {mine}: a new name refills no budget. Put the id and its ledger back, or enrol another silo for"
                " other patients"
            )
            raise CosignError(msg)

    def _require_held(self) -> None:
        """Refuse a ledger without a head that others cosigned. Raises `LedgerRolledBackError`."""
        for item in self.ledger.missing(held.checkpoint for held in self._held):
            self.ledger.require(item.head)

    def _owed(self, study: Study, place: Place) -> dict[str, Cost]:
        """Costs of this round that no earlier charge covers for this attempt."""
        paid = {tensor for tensor, _ in self._draws(study, place)}
        return {tensor: cost for tensor, cost in round_costs(study, place.round).items() if tensor not in paid}

    def _draws(self, study: Study, place: Place) -> dict[tuple[str, int], Cost]:
        """Charges of this round whose draws this attempt may send: with local noise any, else its own."""
        return {
            (tensor, attempt): cost
            for (tensor, attempt), cost in self.ledger.charged(place.study, place.round).items()
            if attempt == place.attempt or _carries_its_noise(study, tensor)
        }

    def _spent_before(self, study: Study, place: Place) -> list[tuple[str, Cost]]:
        """All that the data set has spent, by study, without what this attempt uses: the plan counts that."""
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
        digest = load_policy(self._policy_path).digest
        if digest != self.policy.digest:
            raise Refused(
                Reason.POLICY_CHANGED,
                f"{self._policy_path.name} was changed while the agent runs; stop it, put the policy into force with"
                " `fedward-silo policy reload`, and start it again",
            )

    def _note_verified(self) -> None:
        self._verified = monotonic()
        self._metrics.verified()

    def _measure(self, study: str | None = None) -> None:
        """All that is spent and left; by tensor of this study, or of every one."""
        metrics, limits = self._metrics, self.policy.limits
        metrics.epsilon_spent.set(self.ledger.spent())
        metrics.epsilon_left.set(self.ledger.left())
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
    """The ledger of the policy's data set, for the silo that is certified for it.

    Raises `LedgerError`, `CertificateError`.
    """
    require_data_set(credential.certificate_pem, policy.data_set.id)
    return Ledger.open(path, Genesis.of(policy), budget_epsilon=policy.budget.epsilon)


def _word(item: Cosignature) -> tuple[str, bytes, bytes]:
    """What makes a cosignature a new one: signer, checkpoint, certificate. Each signature is another one."""
    return item.signer, item.checkpoint.message, item.certificate


def _carries_its_noise(study: Study, tensor: str) -> bool:
    """Whether a release may be sent again to others: it is private by its own noise, or public without any."""
    return tensor == Tensor.ENCODER or study.privacy.mode != "distributed"


def _today() -> date:
    return datetime.now(UTC).date()
