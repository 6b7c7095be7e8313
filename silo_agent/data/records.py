"""Records in memory: model inputs, images, classes, domains and patients.

Guarantees: lengths are consistent, inputs are finite, arrays are read-only, and the patient index is dense. Records are
in the file's order. The schema says what the values mean (`policies.documents.study.DataSchema`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from silo_agent.data.columns.names import Names
from silo_agent.data.images import Images
from silo_agent.data.inputs import Inputs, part

NOBODY: Final = ""
"""Identity of a record if nobody said which columns identify it."""


@dataclass(frozen=True, repr=False, eq=False)
class Records:
    """n records of P patients (without a patient column, each record counts as a patient). It may be empty.

    `inputs` float32 (n, d), or the `Inputs` that give them; d = 0 if the study reads only images. `labels` int64 (n,),
    the class in [0, C), or the place of a number (`outcome`); `domains` int64 (n,) in [0, M); `patients` int64 (n,),
    the index of the record's patient in `identities`; `images` one per record if the study names an image column;
    `environments` int64 (n,) in [0, E) if it names an environment column, `protected` int64 (n, P), places of its
    protected attributes, if it has some; else None. Every patient has at least one record.
    """

    inputs: NDArray[np.float32] | Inputs
    labels: NDArray[np.int64]
    domains: NDArray[np.int64]
    patients: NDArray[np.int64]
    identities: Sequence[str]
    images: Images | None = None
    environments: NDArray[np.int64] | None = None
    protected: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        n = len(self.labels)
        if len(self.inputs.shape) != 2 or not len(self.inputs) == len(self.domains) == len(self.patients) == n:  # noqa: PLR2004
            msg = "inputs, labels, domains and patients must have one entry per record"
            raise ValueError(msg)
        if self.images is not None and len(self.images) != n:
            msg = f"images must be one per record: {n} are needed, but {len(self.images)} are given"
            raise ValueError(msg)
        if self.protected is not None and (self.protected.ndim != 2 or len(self.protected) != n):  # noqa: PLR2004
            msg = f"protected must have a row for each of the {n} records"
            raise ValueError(msg)
        if not _dense(self.patients, len(self.identities)):
            msg = "patients must index identities densely: every patient has a record, every record a patient"
            raise ValueError(msg)
        if isinstance(self.inputs, np.ndarray) and not np.isfinite(self.inputs).all():
            msg = "inputs must be finite"
            raise ValueError(msg)
        if self.labels.dtype != np.int64 or self.labels.min(initial=0) < 0:
            msg = "labels must be int64, each the index of a class or the place of a number"
            raise ValueError(msg)
        where = self.environments
        if where is not None and (where.dtype != np.int64 or where.shape != (n,) or where.min(initial=0) < 0):
            msg = "environments must be int64, one per record, each the index of an environment"
            raise ValueError(msg)
        for array in (self.inputs, self.labels, self.domains, self.patients, self.environments, self.protected):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return "Records(<private>)"

    @property
    def patient_count(self) -> int:
        """P. Private: no released value may be scaled by it."""
        return len(self.identities)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """How much each record counts, (n,)."""
        return record_weights(self.patients)

    def of_patients(self, chosen: NDArray[np.bool_]) -> Records:
        """Return all records of the chosen patients. `chosen` is a mask over `identities`. The new index is dense."""
        keep = chosen[self.patients]
        # First what needs most memory on the way.
        patients = (np.cumsum(chosen) - 1)[self.patients[keep]]
        return Records(
            part(self.inputs, keep),
            self.labels[keep],
            self.domains[keep],
            patients,
            _chosen(self.identities, chosen),
            None if self.images is None else self.images.subset(keep),
            None if self.environments is None else self.environments[keep],
            None if self.protected is None else self.protected[keep],
        )


def _dense(patients: NDArray[np.int64], count: int) -> bool:
    """Whether exactly the numbers below `count` are there."""
    if patients.min(initial=0) < 0 or patients.max(initial=-1) >= count:
        return False
    return bool((np.bincount(patients, minlength=count) > 0).all())


def _chosen(names: Sequence[str], chosen: NDArray[np.bool_]) -> Sequence[str]:
    if isinstance(names, Names):
        return names.at(chosen)
    return tuple(name for name, kept in zip(names, chosen, strict=True) if kept)


def record_weights(patients: NDArray[np.int64]) -> NDArray[np.float64]:
    """1 / (number of the patient's records) for each record, (n,), so that every patient counts 1."""
    return np.asarray(1.0 / np.bincount(patients)[patients] if len(patients) else np.zeros(0), np.float64)
