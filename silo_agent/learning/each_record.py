"""Sums of terms over records: in chunks of a fixed size, and without a record whose term cannot be had.

Guarantees: a record's term enters the sum, or that record alone is left out. It is left out if its term raises anything
(memory included) or is not finite. The other records of its chunk are then evaluated one by one, so none of them loses
its term. Nobody is told. How much is computed at once follows from public constants, never from the number of records
(docs/design/total.md, "A record on its own"). What rounding lets neighbours add to a term is bounded there too ("Sums
of terms").

Every sum over records that leaves a silo passes through `sum_records`. DP-SGD has a sum of its own (`dpsgd.training`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import Study

_WEIGHT_STEP: Final = 2.0**-28
Rows = NDArray[np.int64]
"""Indices of records, (b,)."""
MOST_ROWS: Final = 4096
_MOST_VALUES: Final = 1 << 22
"""Most values of one intermediate matrix of a chunk: 16 MiB of float32."""


def chunk_rows(study: Study) -> int:
    """How many records of a study are evaluated at once: a public constant, at least 1."""
    image = study.data.image
    pixels = 0 if image is None else image.channels * image.height * image.width
    read = study.head_inputs * max(1, study.model.samples)
    widest = max(study.data.inputs, pixels, read, *study.model.hidden, 1)
    return max(1, min(MOST_ROWS, _MOST_VALUES // widest))


def exact_weights(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Records' weights (n,) rounded down to multiples of 2^-28: float64 adds up 2^25 patients exactly, in any order."""
    return np.floor(weights / _WEIGHT_STEP) * _WEIGHT_STEP


def sum_records(
    count: int,
    values: int,
    term: Callable[[Rows], NDArray[np.float64]],
    *,
    rows: int = MOST_ROWS,
    strict: bool = False,
) -> NDArray[np.float64]:
    """The sum of `count` records' terms, float64 (values,). `term` gives the sum of the terms of a few records.

    `rows` of them are asked for at once; if that raises an `Exception` or gives a value that is not finite, one by one.
    With `strict`, for made-up records alone, whatever a term raises is raised, and a sum that is not finite raises
    `FloatingPointError`.
    """
    total = _Total(values)
    for start in range(0, count, rows):
        chunk = np.arange(start, min(start + rows, count))
        if strict:
            total.add(_sound(term(chunk), values))
            continue
        part = _attempted(term, chunk, values)
        if part is not None:
            total.add(part)
            continue
        for row in chunk:
            own = _attempted(term, chunk[row - start : row - start + 1], values)
            if own is not None:
                total.add(own)
    return total.value


class _Total:
    """A sum in float64 with what its roundings lost (Knuth's two-sum): their number does not tell."""

    def __init__(self, values: int) -> None:
        self._sum, self._lost = np.zeros(values), np.zeros(values)

    def add(self, part: NDArray[np.float64]) -> None:
        whole = self._sum + part
        taken = whole - self._sum
        self._lost += (self._sum - (whole - taken)) + (part - taken)
        self._sum = whole

    @property
    def value(self) -> NDArray[np.float64]:
        """The sum, float64 (values,), rounded once."""
        return self._sum + self._lost


def _attempted(term: Callable[[Rows], NDArray[np.float64]], rows: Rows, values: int) -> NDArray[np.float64] | None:
    try:
        return _sound(term(rows), values)
    except Exception:  # noqa: BLE001  # whatever a record raises makes that record unfit, and nothing else
        return None


def _sound(part: NDArray[np.float64], values: int) -> NDArray[np.float64]:
    if part.shape != (values,) or not np.isfinite(part).all():
        msg = "a sum has another size than the plan says, or is not finite"
        raise FloatingPointError(msg)
    return part
