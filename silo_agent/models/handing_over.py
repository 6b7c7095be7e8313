"""A shared model handed over by the silos that have trained it to one that has not.

The file is the model as all of them hold it, bit for bit, so each of them signs the same bytes. Guarantees: a silo
signs only if its policy has `hand_over: true`, and a model is taken only with the consent of every silo that the
model's study names, by certificates of the consortium's authority. The model is differentially private, so a consent is
about who may have it, not about privacy.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from crypto.errors import CryptoError
from crypto.pki.certificates import Credential
from policies.documents.policy import Policy
from policies.errors import ExportError
from policies.refusals import Reason, Refused
from silo_agent.errors import SiloError
from silo_agent.learning.model.files import naming, read, require_kept
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.model.start import require_sound
from silo_agent.oversight.signing import SUFFIX, read_signed, sign_file, signer_of, vouched
from silo_agent.storage.durable import write_whole
from silo_agent.storage.folders import StateFolder

KIND: Final = "hand-over"
"""What a consent's signature names, so that no other signature is one."""
MODEL: Final = "model.safetensors"


class HandOverError(SiloError):
    """The model is not handed over, or not taken. The message has all reasons. No file was left."""


def hand_over(
    path: Path, policy: Policy, credential: Credential, out: Path, *, now: datetime | None = None
) -> tuple[Path, str]:
    """Write the model at `path` and this silo's consent into the folder `out`.

    If the folder has the same model, the consent is added to it. Returns the consent's file, and the digest by which a
    study continues the model. Raises `Refused` if the policy does not allow it, `HandOverError`, `ModelFileError`.
    """
    if not policy.hand_over:
        msg = f"policy.hand_over is false; {policy.contact} decides whether models may be handed over"
        raise Refused(Reason.HAND_OVER, msg)
    content, file = read(path), out / MODEL
    with naming(path):
        model = SharedModel.from_bytes(content)
    require_kept(path, model.digest)
    if model.round != model.study.rounds:
        msg = (
            f"study {model.study.name} stands at round {model.round} of {model.study.rounds}; only the model after its"
            " last round is handed over"
        )
        raise HandOverError(msg)
    if file.exists() and file.read_bytes() != content:
        msg = f"{file} is another model; give a new folder"
        raise HandOverError(msg)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(file, content)
    consent = out / f"{credential.identity.name}{SUFFIX}"
    at = (now or datetime.now(UTC)).isoformat(timespec="seconds")
    sign_file(credential, KIND, at, content).write(consent)
    return consent, model.digest


def take(
    folder: Path,
    authority: Path,
    files: StateFolder,
    *,
    lists: Path | None = None,
    now: datetime | None = None,
    tell: Callable[[str], object] = lambda _: None,
) -> SharedModel:
    """Check the model in a folder and the consents beside it, keep it among this silo's models, and return it.

    `tell` hears of each consent whose certificate has ended since: only its signer says that it is older. Raises
    `HandOverError` with every consent that is missing or not valid, and `ModelFileError`.
    """
    model_file = folder / MODEL
    content = read(model_file)
    with naming(model_file):
        model = SharedModel.from_bytes(content)
    require_sound(model, files)
    agreed, faults = set[str](), list[str]()
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            _, detached, trust = read_signed(model_file, authority, path, lists=lists)
            if detached.kind != KIND:
                faults.append(f"{path.name} is a signature of another kind")
                continue
            signer = signer_of(trust, detached, content, now=now)
            agreed.add(signer.identity.name)
            if signer.expired is not None or signer.revoked is not None:
                tell(f"{path.name}: signed by {vouched(signer, detached.at)}")
        except (CryptoError, ExportError) as error:
            faults.append(f"{path.name}: {error}")
    missing = [silo for silo in model.study.silos if silo not in agreed]
    if missing:
        whose = ", ".join(missing)
        faults.append(f"{whose} of study {model.study.name} did not consent; each runs `fedward-silo hand-over`")
    if faults:
        raise HandOverError("; ".join(faults))
    kept = files.imported(model.digest)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_whole(kept, content)
    return model
