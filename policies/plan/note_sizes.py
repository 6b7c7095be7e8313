"""How many bytes a note among silos may have: public, and implied by the study alone.

The coordinator checks it before it relays a byte, a silo before it fetches one. What a note says is the silos' affair.
"""

from __future__ import annotations

from policies.documents.study import Study
from policies.plan import shapes
from policies.plan.release import plan

MAX_NOTE = 4 << 20
"""Bytes of a relayed note: wrapped keys for 256 silos, or the largest heads a study may ask for."""
MAX_MODEL = 16 << 20
"""Bytes of a relayed model beside its values: wrapped keys, priors, names."""
VALUE_BYTES = 8
BASE_BYTES = 64 << 10
"""Bytes of a note that everybody seals, beside what grows with the roster."""
GREETING_BYTES = 2 << 10
"""Of a greeting, for each silo: an encapsulation, its name."""
SHARES_BYTES = 2 << 10
"""Of the shares of one tensor, for each silo: two sealed shares, their commitments, a deposited seed."""
REVEAL_BYTES = 256
"""Of a reveal, for each silo: one share."""


def note_limit(study: Study, round_number: int, kind: str) -> int:
    """Bytes that a note of this kind may have: what everybody seals grows with the silos, the model with its values."""
    silos, tensors = len(study.silos), len(plan(study).round(round_number))
    heads = len(study.data.domains) * shapes.head_width(study)
    limits: dict[str, int] = {
        "greeting": BASE_BYTES + GREETING_BYTES * silos,
        "shares": BASE_BYTES + SHARES_BYTES * silos * tensors,
        "reveal": BASE_BYTES + REVEAL_BYTES * silos,
        "model": MAX_MODEL + VALUE_BYTES * (shapes.encoder_values(study) + heads),
    }
    return limits.get(kind, MAX_NOTE)
