"""The features of records in memory: one number for each cell, however many model inputs the study makes of it.

Guarantees: memory follows from the hospital's own file alone, four bytes for each cell that the study reads. A study
cannot make it larger: inputs (one-hot codes, indicators of absence) are made for a few records at a time. A row's
inputs follow from its own cells and public constants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policies.documents.study import CategoryFeature, Feature

Rows = NDArray[np.int64] | NDArray[np.bool_] | slice
_MANY = 1 << 31
"""Rows from which on a number of 32 bits does not hold a place."""
ABSENT = np.float32(np.nan)
"""Stands for a cell that is absent where the study gives a fill."""


@dataclass(frozen=True, repr=False, eq=False)
class Inputs:
    """n rows. `cells` float32 (m, features): a scaled number, `ABSENT`, or the place of a code.

    `fills` has each feature's scaled fill, NaN if it has none. `rows` (n,) says which rows of `cells` these are; None
    if they are all. Indexing by rows gives model inputs, float32 (b, d).
    """

    cells: NDArray[np.float32]
    features: tuple[Feature, ...]
    fills: tuple[float, ...]
    rows: NDArray[np.int32] | NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        self.cells.setflags(write=False)

    def __len__(self) -> int:
        return len(self.cells) if self.rows is None else len(self.rows)

    def __repr__(self) -> str:
        return "Inputs(<private>)"

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d), as of the array that these are."""
        return len(self), sum(feature.width for feature in self.features)

    def __getitem__(self, rows: Rows | int | tuple[object, ...]) -> NDArray[np.float32]:
        """Inputs of a few rows, (b, d). Any other index is one into the whole array, for files that are small."""
        if not isinstance(rows, slice | np.ndarray):
            return np.asarray(self[:][rows])  # type: ignore[index]  # numpy says what it takes
        cells = self.held(rows)
        inputs = np.zeros((len(cells), self.shape[1]), np.float32)
        start = 0
        for place, (feature, fill) in enumerate(zip(self.features, self.fills, strict=True)):
            own = cells[:, place]
            if isinstance(feature, CategoryFeature):
                inputs[np.arange(len(own)), start + own.astype(np.int64)] = 1.0
            elif feature.fill is None:
                inputs[:, start] = own
            else:
                absent = np.isnan(own)
                inputs[:, start] = np.where(absent, np.float32(fill), own)
                inputs[:, start + 1] = absent
            start += feature.width
        return inputs

    def __array__(self, dtype: object = None, copy: object = None) -> NDArray[np.float32]:
        """All inputs at once, for files that are small."""
        return self[:] if dtype is None else self[:].astype(dtype)  # type: ignore[call-overload]  # numpy's

    def held(self, rows: Rows) -> NDArray[np.float32]:
        """What is kept of some rows, (b, features)."""
        return self.cells[rows] if self.rows is None else self.cells[self.rows[rows]]

    def subset(self, rows: Rows) -> Inputs:
        """The same features of some rows. They share their memory with the whole."""
        if self.rows is not None:
            return replace(self, rows=self.rows[rows])
        if isinstance(rows, slice):
            rows = np.arange(len(self), dtype=np.int64)[rows]
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.asarray(rows, np.int64)
        return replace(self, rows=chosen.astype(np.int32) if len(self) < _MANY else chosen)


def part(inputs: NDArray[np.float32] | Inputs, rows: Rows) -> NDArray[np.float32] | Inputs:
    """Some rows, in the form in which all are."""
    return inputs.subset(rows) if isinstance(inputs, Inputs) else inputs[rows]
