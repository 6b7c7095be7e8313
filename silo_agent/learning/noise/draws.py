"""Where the randomness of a charged release comes from: a stream that follows from the charge and from what is read.

Guarantees: the same charge on the same records and the same model draws the same bits again, on every machine, for
whoever has the key; so a silo whose state was rolled back, or that died before it kept a draw, makes the very same
release and no second one. Another charge, record, model or number of silos gives a stream that shares no bits with it:
equal noise on other records would lay their difference bare. Each stream is AES-256 in counter mode under a key of
HKDF-SHA256 (`crypto.stream`), so the law of the noise is what it was under a fresh key.

Left to others: that one charge makes one release in front of others (`gate`, `storage.anchored`), and the key
(`storage.secret`).
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from numpy.typing import NDArray

from crypto.canonical import canonical
from crypto.entropy import Entropy
from crypto.stream import KeyStream
from protos.messages import Place
from silo_agent.data.inputs import Inputs
from silo_agent.data.records import Records
from silo_agent.learning.errors import LearningError

_ROWS = 1 << 12
"""How many rows of inputs are laid out at once."""


class Draws(Protocol):
    """Gives the randomness of one release."""

    def source(self, place: Place, tensor: str, read: bytes) -> Entropy:
        """What a release draws from. `place` names the charge; `read` is the digest of all that it is computed from."""
        ...


@dataclass(frozen=True)
class KeyedDraws:
    """The draws of one study at one silo, under its key (32 bytes). `repr` shows no key."""

    key: bytes = field(repr=False)

    def source(self, place: Place, tensor: str, read: bytes) -> Entropy:
        """The stream of one charge on what was read. Raises `SealError` if the key has another length."""
        return KeyStream(self.key, canonical("draw", place.study, place.round, place.attempt, tensor, read))


@dataclass(frozen=True)
class FreshDraws:
    """Draws from one source, whatever they are for: for simulations and forecasts, from which nothing leaves a silo."""

    entropy: Entropy = field(repr=False)

    def source(self, _place: Place, _tensor: str, _read: bytes) -> Entropy:
        """The source."""
        return self.entropy


class _NoDraw:
    """Refuses: whoever computes without a charge draws nothing."""

    def bytes(self, n: int) -> builtins.bytes:
        """Raise `LearningError`."""
        msg = f"{n} bytes of noise were asked for without a charge; nothing was drawn"
        raise LearningError(msg)


NO_DRAW: Final[Entropy] = _NoDraw()
"""The source outside a charged release."""


def digest_of(cohort: Records, model: str, silos: int) -> builtins.bytes:
    """SHA-256 over the records that a release reads, the digest of the model, and the number of silos in the sum.

    It never raises for what a record holds: a file of an image that is gone counts as gone.
    """
    whole = hashlib.sha256(canonical("read", model, silos))
    for name, pieces in _parts(cohort):
        own = hashlib.sha256()
        for piece in pieces:
            own.update(piece)
        whole.update(canonical("part", name, own.digest()))
    return whole.digest()


def _parts(cohort: Records) -> Iterator[tuple[str, Iterator[builtins.bytes]]]:
    arrays: dict[str, NDArray[Any] | Inputs | None] = {
        "inputs": cohort.inputs,
        "labels": cohort.labels,
        "domains": cohort.domains,
        "patients": cohort.patients,
        "environments": cohort.environments,
        "protected": cohort.protected,
    }
    for name, array in arrays.items():
        if array is not None:
            yield name, _laid_out(array)
    yield "identities", (canonical("identity", one) for one in cohort.identities)
    if cohort.images is not None:
        yield "images", (canonical("image", content) for content in cohort.images.contents())


def _laid_out(array: NDArray[Any] | Inputs) -> Iterator[builtins.bytes]:
    held = array.held(slice(0)) if isinstance(array, Inputs) else array
    yield canonical("array", str(held.dtype.newbyteorder("<")), len(array), *held.shape[1:])
    for begin in range(0, len(array), _ROWS):
        rows = slice(begin, begin + _ROWS)
        piece = array.held(rows) if isinstance(array, Inputs) else array[rows]
        yield piece.astype(piece.dtype.newbyteorder("<"), copy=False).tobytes()
