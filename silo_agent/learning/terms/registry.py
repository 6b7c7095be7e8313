"""Finds the code of the terms that a study asks for.

A term's file has one of three functions: `losses` (a value for each record), `loss` (one for a batch and the weights),
or `pull` (a step's, after its noise).

Guarantees that a loss which feeds an upload has only terms that are declared per record. Any other term is refused by
name, before a record is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final

import torch

from policies.documents.terms import TERMS
from policies.plan.terms import Weighted
from policies.refusals import Reason, Refused
from silo_agent.learning.terms import losses
from silo_agent.learning.terms.term import ModelTerm, RecordTerm, Seen, StepTerm, WholeModel

_MODULES: Final = {term.name: import_module(f"{losses.__name__}.{term.name}") for term in TERMS}
"""A term's code is the file of its name; the table of terms alone decides which there are."""


def _having(function: str) -> dict[str, Any]:
    """The functions of this name, by term."""
    return {name: vars(module)[function] for name, module in _MODULES.items() if function in vars(module)}


RECORD_TERMS: Final[Mapping[str, RecordTerm]] = _having("losses")
MODEL_TERMS: Final[Mapping[str, ModelTerm]] = _having("loss")
STEP_TERMS: Final[Mapping[str, StepTerm]] = _having("pull")


def require_per_record(terms: Iterable[Weighted]) -> None:
    """Check that every term may feed an upload. Raises `Refused`, naming the term."""
    for one in terms:
        if one.term.per_record:
            continue
        if one.term.reads == "batch":
            raise Refused(
                Reason.BATCH_STATISTICS,
                f"the term {one.term.name} couples the records of a batch, so clipping a patient's gradient does not"
                " bound what the patient adds; keep it in personal, which uploads nothing",
            )
        if one.term.reads == "network":
            raise Refused(
                Reason.UNNOISED_PART,
                f"the term {one.term.name} reads a network that is trained on the records without noise, which brings"
                " every patient into everybody's gradient; keep it in personal, which uploads nothing",
            )
        raise Refused(
            Reason.NO_PER_SAMPLE_GRADIENT,
            f"the term {one.term.name} reads weights and no record, so it has no gradient by record; keep it in"
            " personal, which uploads nothing",
        )


def record_losses(terms: Iterable[Weighted], seen: Seen) -> torch.Tensor:
    """Loss of every record, (b,): coefficients times terms, added in order. Raises `Refused` as above."""
    asked = tuple(terms)
    require_per_record(asked)
    first, *others = (one.coefficient * RECORD_TERMS[one.term.name](seen) for one in asked)
    return sum(others, start=first)


def step_gradient(terms: Iterable[Weighted], weight: torch.Tensor, start: torch.Tensor) -> torch.Tensor | None:
    """What terms that read weights alone add to a noised step of one tensor of weights; None if there is no such term.

    `start`: the tensor where the round began.
    """
    parts = [one.coefficient * STEP_TERMS[one.term.name](weight, start) for one in terms]
    return torch.stack(parts).sum(dim=0) if parts else None


def model_loss(terms: Iterable[Weighted], seen: Seen, own: WholeModel, anchor: WholeModel) -> torch.Tensor:
    """Loss of a model that never leaves, a scalar. Terms by record enter by their mean, others as they are."""
    first, *others = (
        one.coefficient
        * (
            RECORD_TERMS[one.term.name](seen).mean()
            if one.term.per_record
            else MODEL_TERMS[one.term.name](seen, own, anchor)
        )
        for one in terms
    )
    return sum(others, start=first)
