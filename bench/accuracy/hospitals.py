"""One split of the four hospitals of UCI Heart Disease: who trains, who is held out, what every method says of them.

Guarantees like with like: all methods see the records that the agents train on (the split is the agents' own, a public
hash of data set and record) and are measured on the records that the agents hold out. Logistic regressions read the
inputs that the study's schema makes, FLamby's recipe its own (`bench.accuracy.flamby`). Studies are simulated on these
cohorts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.accuracy import flamby
from deploy.demo.sources import DemoSource
from deploy.local.logistic import logistic
from deploy.local.silo_policies import DATA_SET, silo_policy
from deploy.local.simulate import silos as simulate
from policies.documents.study import Study
from silo_agent.data.reader import read_records
from silo_agent.data.records import Records
from silo_agent.data.split import split
from silo_agent.data.table import Written
from silo_agent.learning.model.shared import SharedModel

FLAMBY_SEED = flamby.SEEDS[0]

Array = NDArray[np.float64]
Scores = Mapping[str, Array]
"""Scores of the held-out records, by hospital. Higher means that the disease is likelier; above 0 it is predicted."""


@dataclass(frozen=True)
class HospitalSplit:
    """One split of every hospital's records."""

    domains: tuple[str, ...]
    training: Mapping[str, Records]
    held_out: Mapping[str, Records]
    centres: Mapping[str, flamby.Centre]
    complete_training: Mapping[str, flamby.Mask]
    """Of the rows of a `flamby.Centre`, those that train."""
    complete_held_out: Mapping[str, flamby.Mask]
    """Of the held-out records, those that have FLamby's ten features."""


def data_set(silo: str, name: str) -> str:
    """Name of a hospital's data set under a split."""
    return f"{silo}-{name}"


def policy_text(source: DemoSource, name: str) -> str:
    """The study's policy with its data sets named after the split."""
    return source.policy.replace(DATA_SET, data_set(DATA_SET, name))


def draw_cohorts(source: DemoSource, files: Mapping[str, Path], name: str) -> HospitalSplit:
    """Split as agents with these policies do."""
    training, held_out, centres, complete_training, complete_held_out = {}, {}, {}, {}, {}
    for silo, file in files.items():
        policy = silo_policy(policy_text(source, name), silo, source.study_file)
        identified_by, written = policy.data_set.identified_by, Written.of(policy)
        records = read_records(file, source.study.data, identified_by, written=written).whole()
        centre = flamby.read_centre(file)
        training[silo], held_out[silo] = split(records, policy.data_set.id, policy.data_set.holdout)
        held = np.isin(records.identities, held_out[silo].identities)
        centres[silo] = centre
        complete_training[silo] = ~held[centre.rows]
        complete_held_out[silo] = np.isin(np.flatnonzero(held), centre.rows)
    domains = source.study.data.domains
    return HospitalSplit(domains, training, held_out, centres, complete_training, complete_held_out)


@dataclass(frozen=True)
class InTurns:
    """Splits for a simulation: seed after seed the next one, then from the beginning with other noise."""

    splits: Sequence[HospitalSplit]

    def draw(self, study: Study, seed: int) -> simulate.Cohorts:  # noqa: ARG002 - a source may depend on the study
        """The hospitals' records of one seed."""
        own = self.splits[seed % len(self.splits)]
        return simulate.Cohorts({name: simulate.Silo(own.training[name], own.held_out[name]) for name in own.training})


# --- what the methods say -----------------------------------------------------------------------------------------
def of_model(model: SharedModel, cohorts: HospitalSplit) -> Scores:
    """A federation's model: probability of the disease above one half."""
    held_out = cohorts.held_out.items()
    return {silo: model.predict(r.inputs, r.domains)[:, 1] - 0.5 for silo, r in held_out}


def of_pooled(cohorts: HospitalSplit) -> Scores:
    """One logistic regression on everybody's training records."""
    weights = logistic(pooled(list(cohorts.training.values())))
    return {silo: _linear(weights, r) for silo, r in cohorts.held_out.items()}


def of_alone(cohorts: HospitalSplit) -> Scores:
    """Every hospital's own logistic regression on its own held-out records."""
    return {silo: _linear(logistic(cohorts.training[silo]), r) for silo, r in cohorts.held_out.items()}


def of_majority(cohorts: HospitalSplit) -> Scores:
    """The class that is more frequent among a hospital's training records."""
    return {
        silo: np.full(len(r), np.sign(cohorts.training[silo].labels.mean() - 0.5))
        for silo, r in cohorts.held_out.items()
    }


def of_flamby(cohorts: HospitalSplit) -> Array:
    """Accuracy by hospital of FLamby's recipe on the complete held-out records."""
    return flamby.pooled_accuracies(
        list(cohorts.centres.values()), list(cohorts.complete_training.values()), FLAMBY_SEED
    )


def pooled(parts: Sequence[Records]) -> Records:
    """All records together; patients of two hospitals stay two."""
    starts = np.cumsum([0, *(part.patient_count for part in parts)])
    return Records(
        np.concatenate([part.inputs[:] for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.domains for part in parts]),
        np.concatenate([part.patients + start for part, start in zip(parts, starts, strict=False)]),
        tuple(identity for part in parts for identity in part.identities),
    )


def _linear(weights: Array, records: Records) -> Array:
    return np.asarray(np.asarray(records.inputs, np.float64) @ weights[:-1] + weights[-1], np.float64)


# --- how good that is ---------------------------------------------------------------------------------------------
def by_hospital(scores: Scores, cohorts: HospitalSplit) -> Array:
    """Accuracy in per cent on every hospital's held-out records."""
    return np.array([_accuracy(scores[silo], r.labels) for silo, r in cohorts.held_out.items()])


def on_complete(scores: Scores, cohorts: HospitalSplit) -> Array:
    """The same on the held-out records that FLamby's recipe can read."""
    masks = cohorts.complete_held_out
    return np.array([_accuracy(scores[s][masks[s]], r.labels[masks[s]]) for s, r in cohorts.held_out.items()])


def by_domain(scores: Scores, cohorts: HospitalSplit) -> Array:
    """Accuracy in per cent on every domain's held-out records of all hospitals."""
    together, values, domains = _together(scores, cohorts)
    return np.array([_accuracy(values[domains == m], together[domains == m]) for m in range(len(cohorts.domains))])


def _together(scores: Scores, cohorts: HospitalSplit) -> tuple[NDArray[np.int64], Array, NDArray[np.int64]]:
    held_out = cohorts.held_out
    return (
        np.concatenate([r.labels for r in held_out.values()]),
        np.concatenate([scores[silo] for silo in held_out]),
        np.concatenate([r.domains for r in held_out.values()]),
    )


def _accuracy(scores: Array, labels: NDArray[np.int64]) -> float:
    return 100.0 * float(np.mean((scores >= 0) == (labels > 0)))
