"""What a model of one hospital's records alone reads: a record's inputs, and its domain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.inputs import Inputs
from silo_agent.data.records import Records
from silo_agent.learning.outcomes.family import Family

Rows = NDArray[np.bool_]


@dataclass(frozen=True, repr=False, eq=False)
class Design:
    """n records: `x` float32 (n, d + M), `labels` (n,), and how much each counts, `counted` (n,)."""

    x: NDArray[np.float32]
    labels: NDArray[np.int64]
    counted: NDArray[np.float64]
    family: Family

    @classmethod
    def of(cls, records: Records, domains: int, family: Family) -> Design:
        """Of a hospital's records. Each patient counts once."""
        return cls(columns(records.inputs[:], records.domains, domains), records.labels, records.weights, family)

    def rows(self, chosen: Rows) -> Design:
        """Those records."""
        return Design(self.x[chosen], self.labels[chosen], self.counted[chosen], self.family)


def columns(inputs: NDArray[np.float32] | Inputs, domains: NDArray[np.int64], count: int) -> NDArray[np.float32]:
    """Inputs (n, d) and, of `count` = M domains, an indicator of each: float32 (n, d + M)."""
    x = inputs[:]
    found = np.zeros((len(x), x.shape[1] + count), np.float32)
    found[:, : x.shape[1]] = x
    found[np.arange(len(x)), x.shape[1] + domains] = 1.0
    return found
