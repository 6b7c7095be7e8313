"""How much disk a study may take at a silo, in bytes, from its public constants alone.

An upper estimate by the arithmetic of docs/operating.md, "How much disk a study takes". It does not count the
hospital's own records, logs, or what older studies left.
"""

from __future__ import annotations

from typing import Final

from policies.documents.study import Study
from policies.plan import shapes
from policies.plan.release import plan

_WEIGHT: Final = 4
_HEAD: Final = 8
_VALUE: Final = 22
"""Bytes of a value of a round's sums: the noised integers and the upload, sealed with CKKS (16 as masked integers)."""
_STEPS: Final = 2
"""Models kept after sealed steps."""
_UNDER_WAY: Final = 2
"""Models beside those that stay: where an attempt stands, and the personal one."""
_REST: Final = 1 << 22
"""Databases, logs and the round's small files."""


def needed(study: Study) -> int:
    """The disk that a study may take in a silo's state folder."""
    encoder = shapes.encoder_values(study) + shapes.prior_values(study) + shapes.momentum_values(study)
    heads = len(study.data.domains) * shapes.head_width(study) + shapes.evidence_values(study)
    model = _WEIGHT * encoder + _HEAD * heads
    models = 1 + sum(shapes.head_round(study, number) is not None for number in range(1, study.rounds + 1))
    models += _UNDER_WAY + (_STEPS if study.encoder.sealed_steps else 0)
    widest = max(sum(release.values for release in round_) for round_ in plan(study).rounds)
    return models * model + _VALUE * widest + _REST
