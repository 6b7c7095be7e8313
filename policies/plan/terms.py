"""The terms of a study's losses: which are switched on, with which coefficient, and what follows from them.

Guarantees: whatever depends on a loss follows from the entries in `policies.documents.terms`, for example whether the
encoder is stochastic and which tables are averaged with it. No other code reads a coefficient by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from policies.documents.study import EncoderPlan, Personal, Study
from policies.documents.terms import TERMS, Part, Term


@dataclass(frozen=True)
class Weighted:
    """A term that is switched on, with its coefficient."""

    term: Term
    coefficient: float


def of_upload(plan: EncoderPlan) -> tuple[Weighted, ...]:
    """The terms of the encoder's loss, in the order of addition. They feed an upload.

    The upload is noised, unless a term reads a whole batch (`couples_records`): then the data are declared public.
    """
    return _switched_on(plan, "encoder")


def of_steps(plan: EncoderPlan) -> tuple[Weighted, ...]:
    """The terms whose gradients are added to a noised step. They read weights and no record."""
    return tuple(one for one in _switched_on(plan, "step") if one.term.part is not None)


def couples_records(plan: EncoderPlan) -> bool:
    """Whether a term of the encoder's loss reads a whole batch, which is for public data alone."""
    return any(not one.term.per_record for one in of_upload(plan))


def of_personal(plan: Personal) -> tuple[Weighted, ...]:
    """The terms of the personal model's loss, in the order of addition."""
    return _switched_on(plan, "personal")


def is_stochastic(plan: EncoderPlan) -> bool:
    """Whether a term needs features that are drawn at random. If so, the encoder gives each a mean and a deviation."""
    return any(one.term.stochastic for one in of_upload(plan))


def compares_environments(asked: Iterable[Weighted]) -> bool:
    """Whether one of these terms compares environments, whose state then goes on from step to step."""
    return any(one.term.environments for one in asked)


def table_values(study: Study) -> int:
    """Values of all tables that are trained with the encoder; 0 if there are none, or none that is trained."""
    if study.encoder.prior == "fixed":
        return 0
    classes, representation = study.data.label.count, study.model.representation
    terms = [one.term for one in of_upload(study.encoder)]
    tables = sum(term.tables(classes, representation) for term in terms if term.tables is not None)
    return tables + sum(is_scaled(study.encoder, term) for term in terms)


def is_scaled(plan: EncoderPlan, term: Term) -> bool:
    """Whether one value more is trained with a term's tables."""
    return term.scaled is not None and bool(getattr(plan, term.scaled))


def averaged_values(study: Study) -> int:
    """Values of the tables that are averaged over the silos; 0 if the study keeps them local."""
    return table_values(study) if study.encoder.prior == "averaged" else 0


def _switched_on(plan: EncoderPlan | Personal, part: Part) -> tuple[Weighted, ...]:
    asked = (
        Weighted(term, 1.0 if term.field is None else float(getattr(plan, term.field)))
        for term in TERMS
        if (term.part in {None, part} or (part == "encoder" and term.public))
        and (term.chosen is None or getattr(plan, term.chosen[0]) == term.chosen[1])
    )
    return tuple(one for one in asked if one.coefficient > 0.0)
