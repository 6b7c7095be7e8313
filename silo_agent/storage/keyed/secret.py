"""The secret of a state folder: 32 bytes from which the keys of its digests and of its draws are derived.

Guarantees: it lies on the disk sealed under the certificate's key, and in no backup. It is made once, when the folder
is first used, and never in the place of one that is lost: a draw under another secret would be a second draw for one
charge. Whoever lacks it does not start.
"""

from __future__ import annotations

from typing import Final

from crypto.canonical import canonical
from crypto.entropy import Entropy
from crypto.errors import SealError
from crypto.hkdf import KEY_BYTES, derive
from crypto.pki.at_rest import KeyHolder, Vault
from silo_agent.storage.durable import write_whole
from silo_agent.storage.errors import StateError
from silo_agent.storage.folders import StateFolder

PURPOSE: Final = "state secret"


def open_secret(files: StateFolder, credential: KeyHolder, entropy: Entropy, *, first: bool) -> bytes:
    """The folder's secret. `first`: nothing in the folder rests on one yet, so it is made if it is not there.

    Raises `StateError` if it is lost or does not open, OSError.
    """
    vault = Vault(credential, PURPOSE, entropy)
    try:
        return vault.open(files.secret.read_bytes())
    except FileNotFoundError:
        if not first:
            msg = (
                f"{files.secret} is gone, and a new one would draw noise a second time for charges that stand; put the"
                " file back, or put back a backup, which ends the studies that run (fedward-silo restore)"
            )
            raise StateError(msg) from None
    except SealError:
        msg = (
            f"{files.secret} was sealed by another key, or was changed; put back the file or the silo's key, finish"
            " `fedward-silo rekey` if it was cut off, or put back a backup, which ends the studies that run"
            " (fedward-silo restore)"
        )
        raise StateError(msg) from None
    secret = entropy.bytes(KEY_BYTES)
    write_whole(files.secret, vault.seal(secret))
    return secret


def draws_key(secret: bytes, rows_key: bytes, study: str) -> bytes:
    """The key of one study's draws (`learning.private.draws`): it is gone once the key of the study's rows is."""
    return derive(secret, canonical("draws", study), salt=rows_key)
