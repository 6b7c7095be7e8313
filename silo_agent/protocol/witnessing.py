"""Cosigns other silos' ledgers, so that no silo can replace its ledger by an older copy without being noticed.

Guarantees: this silo signs a checkpoint only if the ledger's own silo signed it, and only for the data set in that
silo's certificate. It first keeps the checkpoint durably as the latest one of that ledger. It never signs a checkpoint
that goes back behind the latest one (`policies.ledger.cosign.advance`); instead it answers with the latest one, signed.
From that answer the other silo learns that its ledger is an older copy. A separate thread cosigns, so that no silo
waits for another silo's training.

Left to others: the coordinator passes the checkpoints on. It can withhold a checkpoint, but it cannot forge one.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

import structlog
from dacite import DaciteError

from crypto.pki.certificates import Credential, require_data_set
from crypto.pki.identity import Role
from policies.errors import CosignError, LedgerRolledBackError
from policies.ledger.cosign import Checkpoint, advance
from protos import record
from protos.checkpoints import CosignedCheckpoint, SignedCheckpoint
from silo_agent.protocol.client import Client, Stopped
from silo_agent.storage.durable import write_whole
from silo_agent.storage.folders import StateFolder

log = structlog.get_logger()
PAUSE_SECONDS: Final = 1.0
"""Pause after a checkpoint that could not be cosigned."""


class Witness:
    """This silo's memory of other silos' ledgers."""

    def __init__(self, state: Path, credential: Credential) -> None:
        """`state` is the agent's folder."""
        self._files, self._credential = StateFolder(state), credential
        self._trust = credential.trust

    def cosign(self, stated: SignedCheckpoint) -> CosignedCheckpoint:
        """Keep the checkpoint and sign it. If it goes back, sign and return the latest one instead.

        Nothing is signed if one of these is raised. `CryptoError`: the silo did not sign the checkpoint, or is not
        certified for its data set. `CosignError`: the bytes are not a checkpoint, it is this silo's own, it has another
        data set than before, or the kept one cannot be read. OSError: the checkpoint cannot be kept.
        """
        signer = self._trust.verify(stated.certificate_pem, stated.checkpoint, stated.signature, role=Role.SILO)
        checkpoint = Checkpoint.parse(stated.checkpoint)
        if signer.name != checkpoint.silo or signer == self._credential.identity:
            msg = f"{signer} cannot ask this silo to cosign the ledger of {checkpoint.silo}"
            raise CosignError(msg)
        require_data_set(stated.certificate_pem, checkpoint.data_set)
        path = self._path(checkpoint)
        last = _kept(path)
        try:
            advance(None if last is None else Checkpoint.parse(last.checkpoint), checkpoint)
        except LedgerRolledBackError as fault:
            log.warning("another silo's ledger went back", silo=checkpoint.silo, why=str(fault))
            return self._sign(stated if last is None else last)
        if last is None or last.checkpoint != stated.checkpoint:
            write_whole(path, record.dump(stated).encode())
        return self._sign(stated)

    def _path(self, checkpoint: Checkpoint) -> Path:
        return self._files.witnessed(checkpoint.silo)

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
                stated = self._client.witness(given)
                given = None
                if stated is not None:
                    given = self._witness.cosign(stated)
            except Stopped:
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
        msg = (
            f"{path.parent.name}/{path.name}: the latest cosigned checkpoint cannot be read; put the newest copy of the"
            " agent's state folder back"
        )
        raise CosignError(msg) from None
