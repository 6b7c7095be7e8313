"""From a draft to a study: what the draft leaves out, in numbers, at the epsilon that it states.

Guarantees: the study costs at most the draft's epsilon even if one round is charged twice, whichever it is, by the same
plan and accountant as the ledger's, and then more than 99 % of it in training and, from the held-out patients' own
budget, in evaluation. So one lost attempt does not end the study. Whatever stands in the draft stands in the study.
"""

from __future__ import annotations

from pathlib import Path

from policies.accounting.accountant import with_fields
from policies.accounting.planning import scaled
from policies.documents.document import DocumentError, check_document
from policies.documents.draft import Draft
from policies.documents.study import Study
from policies.errors import CostError
from policies.plan import grids, quorum
from policies.plan.cost import COHORTS
from policies.plan.derive import derive
from policies.plan.release import CALIBRATION_NOISE, KINDS, noise_fields, plan
from policies.refusals import Refused


def complete(draft: Draft, origin: Path | str) -> Study:
    """The study of a draft. Raises `DocumentError`, with `origin` as its file, and `Refused` (unaccountable.py)."""
    stated = draft.stated()
    twice = [field for field in (*noise_fields(COHORTS), CALIBRATION_NOISE) if _states(stated, field)]
    if twice:
        fault = "privacy.epsilon stands for every noise, and this one is stated; take it out, or write a whole study"
        raise DocumentError(origin, [f"field {field}: {fault}" for field in twice])
    study = check_document(derive(draft), Study, origin)
    try:
        quorum.require(study)
    except Refused as refused:
        raise DocumentError(origin, [f"field min_silos: {refused.text}"]) from None
    released = plan(study).tensor_costs()
    try:
        noises = scaled(study, draft.privacy.epsilon, study.privacy.delta, repeated=True).fields
    except CostError as error:
        raise DocumentError(origin, [f"field privacy.epsilon: {error}"]) from None
    unused = {field for tensor, kind in KINDS.items() if tensor not in released for field in kind.noises}
    noised = with_fields(study, {field: noise for field, noise in noises.items() if field not in unused})
    completed = check_document(noised.model_dump(mode="json"), Study, origin)
    try:
        grids.require(completed)
    except Refused as refused:
        fault = f"{refused.text}; of a draft privacy.epsilon is what decides the noise: state a smaller one"
        raise DocumentError(origin, [f"field privacy.epsilon: {fault}"]) from None
    return completed


def _states(document: object, field: str) -> bool:
    for name in field.split("."):
        if not isinstance(document, dict) or name not in document:
            return False
        document = document[name]
    return True
