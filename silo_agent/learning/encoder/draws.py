"""The public draws over which a stochastic encoder's predictions are averaged: the same ones for every record.

Guarantees: they are a pure function of the public seed. Whoever has the study has the draws, so all silos predict
alike, and what is predicted of a record follows from this record alone (docs/design/terms.md, "FedSR").
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

_STREAM: Final = 0x53414D50
"""Keeps these draws apart from first weights and random features, which come from the same seed."""
_STEP: Final = 2.0**-20
"""Draws are rounded to multiples of it, so that they are the same under every platform's logarithm."""


def public_draws(seed: int, samples: int, width: int) -> NDArray[np.float32]:
    """Standard normals (samples, width) of a study's `model.seed`."""
    raw = np.asarray(np.random.PCG64([seed, _STREAM]).random_raw(samples * width), np.uint64)
    inside = ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    normal = NormalDist()
    drawn = np.array([normal.inv_cdf(one) for one in inside.tolist()]).reshape(samples, width)
    return (np.rint(drawn / _STEP) * _STEP).astype(np.float32)
