"""What a silo that was away needs from a peer: the current model, its keyed digest, the domains' noised sizes.

The peer sends them as a sealed note, which the coordinator passes on without being able to read it. Guarantees that
this silo accepts only a model of this study, after the round that the offer builds on, and within the bounds that the
study's rounds keep. The peer alone chooses what stands in the note, so `Current.content` must be what enough others
have signed (`crypto.secagg.holding`); `tasks` counts them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field

import numpy as np

from common.digests import is_sha256
from crypto.hkdf import KEY_BYTES
from crypto.secagg.packages import content_digest
from policies.documents.study import Study
from silo_agent.errors import SiloError
from silo_agent.learning.errors import ModelFileError
from silo_agent.learning.model.shared import SharedModel


class CatchUpError(SiloError):
    """A peer's note does not hold the model that this silo needs."""


@dataclass(frozen=True)
class Current:
    """The state that all silos of a study share after round `model.round`."""

    model: SharedModel
    digest: str
    counts: tuple[float, ...]
    key: bytes = field(repr=False)
    """The content's key, 32 bytes (`packages.content_key`)."""

    @property
    def content(self) -> str:
        """The keyed digest of all of it, which silos sign. Raises `SealError` for a key of another length."""
        held = [bytes.fromhex(self.digest), bytes.fromhex(self.model.digest), np.array(self.counts, "<f8").tobytes()]
        return content_digest(self.key, self.model.study.digest, self.model.round, held)


def pack(current: Current) -> bytes:
    """One line of JSON (digest, counts, key), then the model as safetensors."""
    head = json.dumps({"digest": current.digest, "counts": current.counts, "key": current.key.hex()})
    return head.encode() + b"\n" + current.model.to_bytes()


def unpack(study: Study, round_number: int, blob: bytes, begun: SharedModel | None = None) -> Current:
    """The inverse of `pack`. `begun` is where the study began, if it continues another one.

    Raises `CatchUpError` if the note is not this study's state after `round_number`.
    """
    head, _, body = blob.partition(b"\n")
    try:
        content = json.loads(head)
        digest, counts = content["digest"], tuple(float(count) for count in content["counts"])
        key, model = bytes.fromhex(content["key"]), SharedModel.from_bytes(body)
    except (ValueError, KeyError, TypeError, OverflowError, ModelFileError):
        msg = "the note cannot be read; the silo that shared it must run the same version of FedWard"
        raise CatchUpError(msg) from None
    if len(key) != KEY_BYTES:
        msg = f"the note has a content's key of {len(key)} bytes instead of {KEY_BYTES}"
        raise CatchUpError(msg)
    if model.study.digest != study.digest or model.round != round_number or not is_sha256(digest):
        msg = f"the note does not hold the study's model after round {round_number}"
        raise CatchUpError(msg)
    if len(counts) != len(study.data.domains):
        msg = f"the note has {len(counts)} domain sizes, the study has {len(study.data.domains)} domains"
        raise CatchUpError(msg)
    if not all(map(math.isfinite, counts)):
        msg = "the note has a domain size that is not a finite number; no opened sum gives such a size"
        raise CatchUpError(msg)
    try:
        model.require_reachable(begun)
    except ModelFileError as error:
        msg = f"the note was refused: {error}; ask the silo that shared it where its model comes from"
        raise CatchUpError(msg) from None
    return Current(model, digest, counts, key)
