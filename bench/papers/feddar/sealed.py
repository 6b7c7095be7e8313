"""Sums of the clients' values through the product's sealing: CKKS ciphertexts under masks, added unread, opened once.

One process plays all silos. Each seals with its own `Sealer`, keys and masks, as in a study: pair seeds from the pairs'
secrets, own masks drawn afresh, slots and checks. What a study has around it is left out: certificates, key agreement,
shares (nobody drops out), the coordinator's files. All silos open the same integers, so one opens here.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bench.papers.feddar.law import Floats
from crypto.entropy import SystemEntropy
from crypto.hkdf import KEY_BYTES
from crypto.rings.ckks_secret import CkksKey
from crypto.rings.grid import from_grid, to_grid
from crypto.rings.rings import ring_of
from crypto.secagg.labels import SumLabel
from crypto.secagg.masks import Masks, Unmasking
from crypto.secagg.packages import GroupKeys
from crypto.secagg.sealing import Sealer
from crypto.secagg.survivors import AttemptRef
from crypto.secagg.unmasking import pair_seed

STEP, BOUND = 2.0**-18, 2.0**10
"""The public grid of all values. The bound is above every value of the experiment; `SealedSilos.largest` shows it."""
_RING = ring_of("ckks")
_STUDY = _ROSTER = _MODEL = "0" * 64


class SealedSilos:
    """So many silos under one roster. A call is one tensor of one attempt."""

    def __init__(self, count: int) -> None:
        self._names = [f"silo-{number:03d}" for number in range(count)]
        self._entropy = SystemEntropy()
        secret = self._entropy.bytes
        self._keys = GroupKeys(CkksKey.create().to_bytes(), secret(KEY_BYTES), secret(KEY_BYTES))
        self._sealers = {name: Sealer(name, self._keys, self._names) for name in self._names}
        self._pairs = {pair: secret(KEY_BYTES) for pair in itertools.combinations(self._names, 2)}
        self.sums = 0
        self.largest = 0.0
        """Largest magnitude that a silo sealed."""

    def __call__(self, tensor: str, /, *values: Floats) -> list[Floats]:
        """Seal each silo's values, parts (n, ...) of one tensor, add the ciphertexts, and open the sum."""
        rows = np.hstack([value.reshape(len(value), -1) for value in values]).astype(np.float64)
        self.largest = max(self.largest, float(np.abs(rows).max()))
        label = SumLabel(_STUDY, _ROSTER, _MODEL, self.sums, 1, tensor)
        self.sums += 1
        own = {name: self._entropy.bytes(KEY_BYTES) for name in self._names}
        total: list[NDArray[np.unsignedinteger]] = []
        for name, row, masks in zip(self._names, to_grid(rows, STEP, BOUND), self._masks(label, own), strict=True):
            for place, frame in enumerate(self._sealers[name].seal("ckks", row, label, masks)):
                if place == len(total):
                    total.append(_RING.read(frame))
                else:
                    _RING.add(total[place], _RING.read(frame))
        source = io.BytesIO(b"".join(_RING.write(words) for words in total))
        unmasking = Unmasking(own, {}, self._keys.group)
        opened = self._sealers[self._names[0]].open("ckks", source, rows.shape[1], label, unmasking)
        ends = np.cumsum([value[0].size for value in values])[:-1]
        parts = np.split(from_grid(opened, STEP), ends)
        return [part.reshape(value.shape[1:]) for part, value in zip(parts, values, strict=True)]

    def _masks(self, label: SumLabel, own: dict[str, bytes]) -> Iterable[Masks]:
        attempt = AttemptRef(label.study, label.roster, label.round, label.attempt)
        seeds = {pair: pair_seed(secret, attempt, label.tensor) for pair, secret in self._pairs.items()}
        for name in self._names:
            pairs = {other: seeds[min(name, other), max(name, other)] for other in self._names if other != name}
            yield Masks(name, own[name], pairs, self._keys.group)
