"""The terms of a study's losses: which are switched on, with which coefficient, and what follows from them.

Guarantees: whatever depends on a loss follows from the entries in `policies.documents.terms`, for example whether the
encoder is stochastic and which tables are averaged with it. No other code reads a coefficient by its name.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.documents.study import EncoderPlan, Personal, Study
from policies.documents.terms import TERMS, Part, Term


@dataclass(frozen=True)
class Weighted:
    """A term that is switched on, with its coefficient."""

    term: Term
    coefficient: float


def of_upload(plan: EncoderPlan) -> tuple[Weighted, ...]:
    """The terms of the encoder's loss, in the order of addition. They feed an upload, which is noised."""
    return _switched_on(plan, "encoder")


def of_personal(plan: Personal) -> tuple[Weighted, ...]:
    """The terms of the personal model's loss, in the order of addition."""
    return _switched_on(plan, "personal")


def is_stochastic(plan: EncoderPlan) -> bool:
    """Whether a term needs features that are drawn at random. If so, the encoder gives each a mean and a deviation."""
    return any(one.term.stochastic for one in of_upload(plan))


def table_values(study: Study) -> int:
    """Values of all tables that are trained with the encoder; 0 if there are none."""
    classes, representation = study.data.label.count, study.model.representation
    tables = (one.term.tables for one in of_upload(study.encoder))
    return sum(size(classes, representation) for size in tables if size is not None)


def averaged_values(study: Study) -> int:
    """Values of the tables that are averaged over the silos; 0 if the study keeps them local."""
    return table_values(study) if study.encoder.prior == "averaged" else 0


def _switched_on(plan: EncoderPlan | Personal, part: Part) -> tuple[Weighted, ...]:
    asked = (
        Weighted(term, 1.0 if term.field is None else float(getattr(plan, term.field)))
        for term in TERMS
        if term.part in {None, part}
    )
    return tuple(one for one in asked if one.coefficient > 0.0)
