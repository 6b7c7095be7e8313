"""Batches in which every environment has its share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def order(environments: NDArray[np.int64], shuffle: np.random.Generator) -> NDArray[np.int64]:
    """Places (n,) in a random order of which any stretch has, up to two records, each environment's share.

    The n_e records of an environment, shuffled, take the places (i + u) / n_e, u uniform on [0, 1); all are sorted by
    them.
    """
    places = np.zeros(len(environments))
    for environment in np.unique(environments):
        own = np.flatnonzero(environments == environment)
        places[shuffle.permutation(own)] = (np.arange(len(own)) + shuffle.random()) / len(own)
    return np.argsort(places, kind="stable").astype(np.int64)
