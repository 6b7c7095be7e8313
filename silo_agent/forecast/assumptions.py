"""What a forecast starts from: expected patients, shares of the domains, prevalence and effect.

Guarantees that everything comes from the study, from options, from what others have made of opened sums or of public
records (`KnownData`), or from the defaults that stand here. No record is read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from policies.documents.study import BINARY, Study
from policies.plan.derive import HELD_OUT
from silo_agent.learning.errors import LearningError

AREAS: Final = (0.62, 0.7, 0.8)
"""AUCs that are gone through if none is expected: most published clinical models lie between the outer two."""
EXPLAINED: Final = (0.1, 0.25, 0.5)
"""The same of a number: shares of its variance."""
UNSURE: Final = 0.01
"""Deviation by which a stated effect may be wrong."""
_EVEN: Final = 0.5


@dataclass(frozen=True)
class KnownData:
    """What is known of the data beside the study: from opened sums (`earlier`) or from public records (`public`).

    Attributes:
        patients: for training, by silo or one number for every silo.
        shares: share of the patients in each domain, of sum 1.
        prevalence, effect: None if the source does not say it.
        unsure: deviation by which the effect may be wrong.
        notes: sentences for the reader, what came from where and what could not be told.
    """

    patients: tuple[int, ...]
    shares: tuple[float, ...]
    prevalence: float | None
    effect: float | None
    unsure: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """Expectations of one forecast.

    Attributes:
        patients: patients for training, by silo.
        shares: share of the patients in each domain, of sum 1.
        prevalence: share of patients with the outcome, of two classes.
        effects: what the features tell without noise: AUC of classes, R^2 of a number. More than one if none is
            expected.
        held_out: share of a hospital's patients who do not train.
        unsure: deviation by which a single effect may be wrong.
    """

    patients: tuple[int, ...]
    shares: tuple[float, ...]
    prevalence: float
    effects: tuple[float, ...]
    held_out: float = HELD_OUT
    unsure: float = UNSURE

    @property
    def total(self) -> int:
        """Patients who train, at all silos."""
        return sum(self.patients)

    @property
    def aside(self) -> int:
        """Held-out patients of all silos."""
        return max(round(self.total * self.held_out / (1.0 - self.held_out)), 1)

    @property
    def is_stated(self) -> bool:
        """Whether the author expects one effect."""
        return len(self.effects) == 1

    def of(self, effect: float) -> Asked:
        """The same with one effect."""
        return replace(self, effects=(effect,))


def asked_of(
    study: Study,
    *,
    patients: Sequence[int] = (),
    prevalence: float | None = None,
    effect: float | None = None,
    held_out: float = HELD_OUT,
    known: KnownData | None = None,
) -> Asked | None:
    """What `study.expected` says, replaced by what is known, and that by what is given, for a forecast.

    `patients`: one number for every silo, or one for each. None if nobody says how many patients there are. Raises
    `LearningError`, naming the option, for values that do not fit the study, and for a study without a forecast.
    """
    found = expectations(study, patients=patients, prevalence=prevalence, effect=effect, held_out=held_out, known=known)
    if found is None:
        return None
    if not study.composition.solved:
        msg = f"a study with recipe {study.recipe} has no forecast; run it on made-up records with `fedward simulate`"
        raise LearningError(msg)
    if study.continues is not None:
        msg = (
            "a study with continues has no forecast, because made-up patients do not fit the earlier model; leave"
            " continues out to forecast what the study would reach from the public start"
        )
        raise LearningError(msg)
    if study.data.image is not None:
        msg = "a study with images has no forecast, because nobody knows what made-up images should show"
        raise LearningError(msg)
    return found


def expectations(
    study: Study,
    *,
    patients: Sequence[int] = (),
    prevalence: float | None = None,
    effect: float | None = None,
    held_out: float = HELD_OUT,
    known: KnownData | None = None,
) -> Asked | None:
    """The same of any study, whether or not it has a forecast: `fedward simulate` draws its patients from them.

    Raises `LearningError` for values that do not fit the study.
    """
    expected, silos, domains = study.expected, len(study.silos), len(study.data.domains)
    sizes = tuple(patients) or (() if expected is None else expected.patients)
    if known is not None and not patients:
        sizes = known.patients
    if not sizes:
        return None
    if len(sizes) not in {1, silos} or min(sizes) < 1:
        msg = f"--patients has {len(sizes)} numbers; give one, or one for each of the {silos} silos, each at least 1"
        raise LearningError(msg)
    rate = _first(
        prevalence, None if known is None else known.prevalence, None if expected is None else expected.prevalence
    )
    if rate is not None and (study.data.label.count != BINARY or not 0 < rate < 1):
        msg = "--prevalence is a share between 0 and 1, for a label of two classes"
        raise LearningError(msg)
    value = _first(effect, None if known is None else known.effect, None if expected is None else expected.effect)
    least = 0.0 if study.data.label.number is not None else _EVEN
    if value is not None and not least < value < 1:
        msg = f"--effect (expected.effect) is {value:g}; give a number between {least:g} and 1"
        raise LearningError(msg)
    shares = () if expected is None else expected.shares
    if known is not None:
        shares = known.shares
    unsure = UNSURE if effect is not None or known is None or known.effect is None else known.unsure
    usual = EXPLAINED if study.data.label.number is not None else AREAS
    return Asked(
        sizes if len(sizes) == silos else sizes * silos,
        tuple(share / sum(shares) for share in shares) or (1.0 / domains,) * domains,
        _EVEN if rate is None else rate,
        usual if value is None else (value,),
        held_out,
        unsure,
    )


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
