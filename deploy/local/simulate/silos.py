"""Who holds which records in a simulation: virtual silos from arrays or from records that were read.

Guarantees: a patient of a silo is in exactly one of its two cohorts, by the public hash that agents use
(`silo_agent.data.split`). Another seed of a simulation draws other cohorts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from crypto.canonical import canonical
from policies.documents.study import Study
from silo_agent.data.images import Images
from silo_agent.data.records import NOBODY, Records
from silo_agent.data.split import split
from silo_agent.learning.noise.draws import digest_of


@dataclass(frozen=True, repr=False, eq=False)
class Silo:
    """One virtual silo: records of the patients who train, and of those held out for the published metrics."""

    training: Records
    held_out: Records

    @classmethod
    def split(cls, records: Records, data_set: str, share: float) -> Self:
        """About `share` of the patients are held out. `data_set` is the name under which they are drawn."""
        return cls(*split(identified(records), data_set, share))


@dataclass(frozen=True, repr=False, eq=False)
class Cohorts:
    """What one run computes on. `test` is what the model is measured on; None: on all held-out records together."""

    silos: Mapping[str, Silo]
    test: Records | None = None

    @property
    def measured(self) -> tuple[Records, ...]:
        """The records that models are measured on, all together, in parts."""
        return (self.test,) if self.test is not None else tuple(silo.held_out for silo in self.silos.values())


class Source(Protocol):
    """Where the records of a run come from. Another seed may give other records, or other cohorts of the same."""

    def draw(self, study: Study, seed: int) -> Cohorts:
        """The records of one run, the same for the same seed."""
        ...


@dataclass(frozen=True, repr=False, eq=False)
class HeldRecords:
    """Records that are at hand, by silo; every seed holds out other patients, about `share` of each silo's."""

    records: Mapping[str, Records]
    share: float = 0.25
    test: Records | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the records and how they are divided, lowercase hex."""
        whole = hashlib.sha256(canonical("held records", self.share.hex()))
        for name, own in self.records.items():
            whole.update(canonical("silo", name, digest_of(own, "", 0)))
        if self.test is not None:
            whole.update(canonical("test", digest_of(self.test, "", 0)))
        return whole.hexdigest()

    def draw(self, study: Study, seed: int) -> Cohorts:  # noqa: ARG002 - a source may depend on the study; this does not
        """The cohorts of one seed."""
        silos = {name: Silo.split(own, f"{name} {seed}", self.share) for name, own in self.records.items()}
        return Cohorts(silos, self.test)


@dataclass(frozen=True, repr=False, eq=False)
class Fixed:
    """The same cohorts for every seed, so that runs differ by the noise alone."""

    cohorts: Cohorts

    def draw(self, study: Study, seed: int) -> Cohorts:  # noqa: ARG002 - as of `Held`
        """The cohorts, whatever the seed."""
        return self.cohorts


def of_arrays(
    inputs: NDArray[np.floating[Any]],
    labels: NDArray[Any],
    domains: NDArray[Any],
    patients: NDArray[Any] | None = None,
    images: Images | None = None,
    *,
    environments: NDArray[Any] | None = None,
    protected: NDArray[Any] | None = None,
) -> Records:
    """Records from arrays, one entry per record.

    `inputs` (n, d) in [-1, 1], in the order of the study's features, as its schema would make them. `labels` (n,), the
    class in [0, C); `domains` (n,) in [0, M). `patients` (n,): whose record it is, in any form that can be compared; if
    absent, every record is a patient of its own. `environments` (n,) in [0, E) and `protected` (n, P), places of the
    protected attributes: if the study names such columns. Raises ValueError if lengths differ.
    """
    whose = np.arange(len(labels)) if patients is None else np.asarray(patients)
    names, index = np.unique(whose, return_inverse=True)
    return Records(
        np.array(inputs, np.float32),
        np.array(labels, np.int64),
        np.array(domains, np.int64),
        index.astype(np.int64).ravel(),
        tuple(map(str, names.tolist())),
        images,
        None if environments is None else np.array(environments, np.int64),
        None if protected is None else np.array(protected, np.int64),
    )


def identified(records: Records) -> Records:
    """The records with the number of its row as the identity of each patient who has none."""
    if NOBODY not in records.identities:
        return records
    names = tuple(name if name != NOBODY else f"row {number}" for number, name in enumerate(records.identities))
    return replace(records, identities=names)


def rows_of(records: Records, kept: NDArray[np.bool_]) -> Records:
    """Some records, (n,), with the patients whose they are."""
    present, index = np.unique(records.patients[kept], return_inverse=True)
    return Records(
        records.inputs[kept] if isinstance(records.inputs, np.ndarray) else records.inputs.subset(kept),
        records.labels[kept],
        records.domains[kept],
        index.astype(np.int64).ravel(),
        tuple(records.identities[patient] for patient in present),
        None if records.images is None else records.images.subset(kept),
        None if records.environments is None else records.environments[kept],
        None if records.protected is None else records.protected[kept],
    )
