"""How many bytes a note among silos may have. The limits are public and follow from the study alone.

The coordinator checks a note's size before it relays a byte of it, a silo before it fetches one. Nothing here depends
on what a note says; only silos can read that.
"""

from __future__ import annotations

from policies.documents.study import Study
from policies.plan import quorum, shapes
from policies.plan.release import plan

MAX_NOTE = 4 << 20
"""Bytes of a relayed note: enough for keys wrapped for 256 silos, or for the largest heads a study may ask for."""
MAX_MODEL = 16 << 20
"""Bytes of a relayed model without its values: wrapped keys, priors, names."""
VALUE_BYTES = 8
BASE_BYTES = 64 << 10
"""Fixed bytes of a note that every silo seals, to which a part for each silo of the roster is added."""
GREETING_BYTES = 2 << 10
"""Bytes of a greeting for each neighbour: an encapsulation and the silo's name."""
SHARES_BYTES = 2 << 10
"""Bytes of one tensor's shares for each holder: two sealed shares, their commitments, a deposited seed."""
REVEAL_BYTES = 256
"""Bytes of a reveal for each silo whose shares are held: one share."""


def note_limit(study: Study, round_number: int, kind: str) -> int:
    """Most bytes that a note of this kind may have in this round.

    Greetings, shares and reveals grow with the number of silos up to a circle's (`quorum.holders`), a model with the
    number of its values.
    """
    near, tensors = quorum.holders(study), len(plan(study).round(round_number))
    heads = len(study.data.domains) * shapes.head_width(study)
    kept = shapes.encoder_values(study) + shapes.momentum_values(study)
    limits: dict[str, int] = {
        "greeting": BASE_BYTES + GREETING_BYTES * near,
        "shares": BASE_BYTES + SHARES_BYTES * near * tensors,
        "reveal": BASE_BYTES + REVEAL_BYTES * near,
        "model": MAX_MODEL + VALUE_BYTES * (kept + heads + shapes.evidence_values(study)),
    }
    return limits.get(kind, MAX_NOTE)
