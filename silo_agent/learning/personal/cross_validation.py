"""Compares the shared model with models of this hospital's own by cross-validation over its training patients.

Guarantees: held-out patients are never read. All records of a patient lie in one fold, and which one does not depend on
the file's order. The shared model is the default: another one is chosen only if it gains more than `ERRORS` standard
errors, or `ERRORS_ALONE`. Source: docs/design/choice.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from crypto.entropy import Entropy
from policies.documents.study import Personal
from policies.plan import shapes
from silo_agent.data.records import Records
from silo_agent.learning.alone.fitting import FittedAlone
from silo_agent.learning.alone.mixing import Mix, TwoOpinions, mix_of
from silo_agent.learning.encoder.encoder import features
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.family import Family
from silo_agent.learning.outcomes.links import losses
from silo_agent.learning.personal.choice import (
    ALONE,
    ERRORS,
    ERRORS_ALONE,
    FEWEST,
    MIXED,
    PERSONAL,
    REFITTED,
    SHARED,
    CandidateGain,
    Choice,
)
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.personal.refit import Sample, logits_under, refit
from silo_agent.learning.personal.unknown_domain import Networked, network_of
from silo_agent.learning.personal.without_patients import change_without

FOLDS: Final = 5
_LABEL: Final = b"fedward choice"
Floats = NDArray[np.float64]


def personal_model(
    models: Mapping[int, SharedModel],
    records: Records,
    plan: Personal,
    *,
    entropy: Entropy,
    change: Floats | None = None,
    device: torch.device | str = "cpu",
) -> PersonalModel:
    """The personal model of these records after all rounds of the heads in `models`, with `change` on the heads."""
    personal: PersonalModel | None = None
    for number in sorted(models):
        if number and shapes.head_round(models[number].study, number) is not None:
            shared = models[number]
            if change is not None:
                shared = shared.with_heads(shared.heads + change, number)
            personal = personal or PersonalModel.start(shared)
            personal = personal.train(shared, records, plan, entropy=entropy, device=device)
    return personal or PersonalModel.start(models[max(models)])


@dataclass(frozen=True, repr=False, eq=False)
class Compared:
    """What the candidates gain over the shared model; and the mix with the hospital's own records, if it has one."""

    gains: tuple[CandidateGain, ...] = ()
    mix: Mix | None = None


def own_folds(training: Records, study: str) -> NDArray[np.int64]:
    """The fold (n,) of each record: that of its patient."""
    return folds_of(training.identities, study)[training.patients]


def choose(
    models: Mapping[int, SharedModel],
    training: Records,
    plan: Personal,
    *,
    entropy: Entropy,
    alone: FittedAlone | None = None,
    device: torch.device | str = "cpu",
) -> Choice:
    """This hospital's choice after the last of `models`, the shared models that it keeps by round.

    `plan` says how the personal model is trained. `alone` is the model of the hospital's own records, fitted with
    `own_folds`. With fewer than `FEWEST` patients the choice is the shared model.
    """
    found = Compared()
    if training.patient_count >= FEWEST:
        found = compare(models, training, plan, entropy=entropy, alone=alone, device=device)
    return decided(models[max(models)], training, found, device)


def decided(shared: SharedModel, training: Records, found: Compared, device: torch.device | str = "cpu") -> Choice:
    """The choice that follows from what was compared."""
    enough = [one for one in found.gains if one.gain > _errors(one.candidate) * one.error]
    candidate = max(enough, key=lambda one: one.gain).candidate if enough else SHARED
    heads = np.zeros((0, shared.heads.shape[1]))
    if candidate in REFITTED:
        factor, weights = REFITTED[candidate]
        sample = _sample(shared, training, device)
        heads = refit(sample, shared.heads, shared.family, factor=factor, weights=weights)
    return Choice(
        shared.study,
        shared.round,
        shared.digest,
        candidate,
        training.patient_count,
        FOLDS,
        found.gains,
        heads,
        mix=found.mix if candidate == MIXED else None,
    )


def _errors(candidate: str) -> float:
    return ERRORS_ALONE if candidate == ALONE else ERRORS


def compare(
    models: Mapping[int, SharedModel],
    records: Records,
    plan: Personal,
    *,
    entropy: Entropy,
    alone: FittedAlone | None = None,
    device: torch.device | str = "cpu",
) -> Compared:
    """Each candidate's gain over the shared model on patients whom neither has seen, by cross-validation."""
    shared = models[max(models)]
    family = shared.family
    sample = _sample(shared, records, device)
    fold = folds_of(records.identities, shared.study.digest)
    lost = {name: np.zeros(len(records)) for name in (SHARED, *REFITTED, PERSONAL)}
    unseen = np.zeros((len(records), family.form.logits))
    for number in range(FOLDS):
        held = fold == number
        rows = held[records.patients]
        change = change_without(models, records.of_patients(held), device)
        heads = shared.heads + change
        unseen[rows] = logits_under(sample.phi[rows], heads, sample.domains[rows], family.form.logits)
        lost[SHARED][rows] = losses(unseen[rows], sample.labels[rows], family)
        for name, (factor, weights) in REFITTED.items():
            refitted = refit(sample.rows(~rows), heads, family, factor=factor, weights=weights)
            lost[name][rows] = _under(refitted, sample.rows(rows), family)
        others = records.of_patients(~held)
        personal = personal_model(models, others, plan, entropy=entropy, change=change, device=device)
        lost[PERSONAL][rows] = losses_of(personal, records.of_patients(held), device)
    mix = None
    if alone is not None:
        said = TwoOpinions(unseen, alone.unseen, records.labels, records.domains, records.weights)
        lost[ALONE] = losses(said.alone, said.labels, family)
        lost[MIXED], mix = _lost_mixed(said, fold[records.patients], len(shared.study.data.domains), family)
    gains = (gained(name, lost[SHARED] - own, records) for name, own in lost.items() if name != SHARED)
    return Compared(tuple(gains), mix)


def _lost_mixed(said: TwoOpinions, fold: NDArray[np.int64], domains: int, family: Family) -> tuple[Floats, Mix]:
    """Losses (n,) of mixes that were found without the record's fold, and the mix by all folds."""
    lost = np.zeros(len(fold))
    for number in range(FOLDS):
        rows = fold == number
        held = said.rows(rows)
        mix = mix_of(said.rows(~rows), domains, family)
        lost[rows] = losses(mix.logits(held.shared, held.alone, held.domains), held.labels, family)
    return lost, mix_of(said, domains, family)


def folds_of(identities: Sequence[str], study: str) -> NDArray[np.int64]:
    """The fold (P,) of each patient: patients are dealt out in the order of a hash of study and identity."""
    places = [hashlib.sha256(_LABEL + bytes.fromhex(study) + name.encode()).digest() for name in identities]
    order = sorted(range(len(places)), key=places.__getitem__)
    found = np.zeros(len(places), np.int64)
    found[order] = np.arange(len(places)) % FOLDS
    return found


def gained(name: str, gains: Floats, records: Records) -> CandidateGain:
    """A candidate's mean gain over patients, from how much lower its loss (n,) of every record is."""
    by_patient = np.bincount(records.patients, weights=records.weights * gains)
    return CandidateGain(name, float(by_patient.mean()), float(by_patient.std(ddof=1) / np.sqrt(len(by_patient))))


def _sample(shared: SharedModel, records: Records, device: torch.device | str) -> Sample:
    phi = shared.features(records.inputs, records.images, device).cpu().numpy().astype(np.float64)
    return Sample(phi, records.labels, records.domains, records.weights)


def _under(heads: Floats, sample: Sample, family: Family) -> Floats:
    """Losses (n,) under these heads."""
    return losses(logits_under(sample.phi, heads, sample.domains, family.form.logits), sample.labels, family)


def losses_of(model: Networked, records: Records, device: torch.device | str = "cpu") -> Floats:
    """Losses (n,) of a whole model, in record order."""
    encoder, heads = network_of(model)
    phi = features(encoder, records.inputs, records.images, device).cpu().numpy().astype(np.float64)
    return _under(heads, Sample(phi, records.labels, records.domains, records.weights), model.family)
