"""Cosigns other silos' ledgers, so that no silo can replace its ledger by an older copy without being noticed.

Guarantees: this silo signs a checkpoint only if the ledger's own silo signed it, and only for the data set in that
silo's certificate. It first keeps the checkpoint durably as the latest one of that ledger, with its own time of
receipt. It never signs a checkpoint that goes back behind the latest one that binds (`policies.ledger.cosign.advance`);
instead it answers with that one, signed. From that answer the other silo learns that its ledger is an older copy. It
signs no charges that neither a study of its own nor the coordinator's earlier signature explains, and after a key was
revoked as stolen it forgives no release of a sum of its own studies (`policies.ledger.judging`). A separate thread
cosigns, so that no silo waits for another silo's training.

Left to others: the coordinator passes the checkpoints on. It can withhold a checkpoint, but it cannot forge one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import structlog
from dacite import DaciteError

from crypto.errors import CertificateError
from crypto.pki.certificates import Credential, require_data_set
from crypto.pki.identity import Role
from policies.documents.study import Study
from policies.errors import CosignError, LedgerRolledBackError
from policies.ledger.cosign import Checkpoint, advance
from policies.ledger.judging import SeenCheckpoint, Summed, kept, require_believable, standing
from protos import record
from protos.checkpoints import CosignedCheckpoint, SignedCheckpoint
from silo_agent.protocol.calls.client import AskedToStop, Client
from silo_agent.storage.durable import write_whole
from silo_agent.storage.folders import StateFolder

log = structlog.get_logger()
History = list[tuple[SignedCheckpoint, datetime | None]]
PAUSE_SECONDS: Final = 1.0
"""Pause after a checkpoint that could not be cosigned."""


class HeldStudies(Protocol):
    """The studies that this silo knows."""

    def studies_of(self, silo: str) -> tuple[list[Study], list[Study]]:
        """Return those of this silo that invite another one: those that run, and those that have ended."""

    def summed(self, silo: str) -> Iterable[Summed]:
        """Return that silo's releases which are in sums whose lists this silo has signed."""


class Witness:
    """This silo's memory of other silos' ledgers."""

    def __init__(
        self,
        state: Path,
        credential: Credential,
        studies: HeldStudies,
        today: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`state` is the agent's folder. A charge that none of `studies` explains is not cosigned."""
        self._files, self._credential, self._studies = StateFolder(state), credential, studies
        self._trust, self._today = credential.trust, today

    def cosign(self, stated: SignedCheckpoint, evidence: CosignedCheckpoint | None = None) -> CosignedCheckpoint:
        """Keep the checkpoint and sign it. If it goes back, sign and return the latest one that binds instead.

        `evidence` is the coordinator's signature on an earlier checkpoint of the same ledger.

        Nothing is signed if one of these is raised. `CryptoError`: the silo did not sign the checkpoint, or is not
        certified for its data set. `CosignError`: the bytes are not a checkpoint, it is this silo's own, it has another
        data set than before, it has charges that nothing explains, or the kept ones cannot be read. OSError: the
        checkpoint cannot be kept.
        """
        signer = self._trust.verify(stated.certificate_pem, stated.checkpoint, stated.signature, role=Role.SILO)
        checkpoint = Checkpoint.parse(stated.checkpoint)
        if signer.name != checkpoint.silo or signer == self._credential.identity:
            msg = f"{signer} cannot ask this silo to cosign the ledger of {checkpoint.silo}"
            raise CosignError(msg)
        require_data_set(stated.certificate_pem, checkpoint.data_set)
        history = self._history(checkpoint.silo)
        latest = history[-1][0] if history else None
        last = self._standing(history)
        stood = None if last is None else Checkpoint.parse(last.checkpoint)
        try:
            advance(stood, checkpoint)
        except LedgerRolledBackError as fault:
            log.warning("another silo's ledger went back", silo=checkpoint.silo, why=str(fault))
            return self._sign(stated if last is None else last)
        self._judge(checkpoint, stood, [one for one, _ in history], evidence, forgiven=last != latest)
        if last is None or last.checkpoint != stated.checkpoint:
            self._keep(checkpoint.silo, [*history, (stated, self._today())])
        return self._sign(stated)

    def _judge(
        self,
        offered: Checkpoint,
        last: Checkpoint | None,
        known: list[SignedCheckpoint],
        evidence: CosignedCheckpoint | None,
        *,
        forgiven: bool,
    ) -> None:
        """Raise `CosignError` if nothing explains what the ledger was charged, or if it lacks what is in sums."""
        require_believable(
            offered,
            last,
            self._studies.studies_of(offered.silo),
            lambda: self._studies.summed(offered.silo),
            forgiven=forgiven,
            evidence=lambda: [] if evidence is None else self._coordinators(offered, evidence),
            known=[Checkpoint.parse(one.checkpoint) for one in known],
        )

    def _coordinators(self, offered: Checkpoint, evidence: CosignedCheckpoint) -> list[Checkpoint]:
        """An earlier checkpoint of the same ledger, if the coordinator has signed it.

        What was signed under a root that authority.pem holds no more proves nothing, and is nobody's fault. Raises
        `CosignError`, `SignatureRefused`, and `CertificateError` if somebody else has signed it.
        """
        stated = evidence.stated
        try:
            signer = self._trust.verify(evidence.certificate_pem, stated.checkpoint, evidence.signature)
        except CertificateError:
            return []
        if signer.role is not Role.COORDINATOR:
            msg = f"the earlier checkpoint is signed by {signer}, but a coordinator is needed; update the coordinator"
            raise CertificateError(msg)
        found = Checkpoint.parse(stated.checkpoint)
        return [found] if (found.silo, found.data_set) == (offered.silo, offered.data_set) else []

    def _standing(self, history: History) -> SignedCheckpoint | None:
        """The latest checkpoint that binds: what came under a key after it was stolen does not."""
        seen = [SeenCheckpoint(Checkpoint.parse(one.checkpoint), at, self._stolen(one)) for one, at in history]
        last = standing(seen)
        return None if last is None else history[seen.index(last)][0]

    def _stolen(self, stated: SignedCheckpoint) -> datetime | None:
        try:
            return self._trust.stolen(stated.certificate_pem)
        except CertificateError:  # of a root that authority.pem holds no more: nobody can say that it was stolen
            return None

    def _history(self, silo: str) -> History:
        """What this silo has cosigned, oldest first, with when it came; None for what version 0.6 kept.

        Raises `CosignError` if it cannot be read.
        """
        path = self._files.witnessed_before(silo)
        latest = _kept(self._files.witnessed(silo))
        try:
            content = json.loads(path.read_text("utf-8"))
            found: History = [
                (record.load(SignedCheckpoint, json.dumps(one["stated"])), _time(one["at"])) for one in [*content[:]]
            ]
        except FileNotFoundError:
            found = []
        except (OSError, ValueError, TypeError, KeyError, AttributeError, DaciteError):
            raise _unreadable(path) from None
        if latest is not None and all(one.checkpoint != latest.checkpoint for one, _ in found):
            found.append((latest, None))
        return found

    def _keep(self, silo: str, history: History) -> None:
        """Keep them durably, the latest in a file of its own, as version 0.6 did."""
        stay = [history[place] for place in kept([at for _, at in history])]
        content = [
            {"at": "" if at is None else at.isoformat(), "stated": json.loads(record.dump(one))} for one, at in stay
        ]
        write_whole(self._files.witnessed_before(silo), json.dumps(content).encode())
        write_whole(self._files.witnessed(silo), record.dump(stay[-1][0]).encode())

    def _sign(self, stated: SignedCheckpoint) -> CosignedCheckpoint:
        credential = self._credential
        return CosignedCheckpoint(stated, credential.certificate_pem, credential.sign(stated.checkpoint))


class Witnessing:
    """Waits for other silos' checkpoints and answers them."""

    def __init__(self, client: Client, witness: Witness, stop: threading.Event) -> None:
        self._client, self._witness, self._stop = client, witness, stop
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended. It ends soon after the agent was asked to stop."""
        self._thread.join()

    def _run(self) -> None:
        given: CosignedCheckpoint | None = None
        said = ""
        while not self._stop.is_set():
            try:
                handed = self._client.witness(given)
                given = None
                if handed is not None:
                    given = self._witness.cosign(handed.stated, handed.evidence)
            except AskedToStop:
                return
            except Exception as fault:  # noqa: BLE001  # whatever was handed out, the next one is cosigned
                # If this silo does not answer, the coordinator asks others. This silo's own work goes on.
                if str(fault) != said:
                    said = str(fault)
                    log.warning("nothing cosigned", why=said, fault=type(fault).__name__)
                given = None
                self._stop.wait(PAUSE_SECONDS)


def _kept(path: Path) -> SignedCheckpoint | None:
    """The checkpoint that was kept, or None if there is no file. Raises `CosignError` if it cannot be read."""
    try:
        return record.load(SignedCheckpoint, path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError, DaciteError):
        raise _unreadable(path) from None


def _unreadable(path: Path) -> CosignError:
    return CosignError(
        f"{path.parent.name}/{path.name}: the latest cosigned checkpoint cannot be read; put the newest copy of the"
        " agent's state folder back"
    )


def _time(text: str) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
