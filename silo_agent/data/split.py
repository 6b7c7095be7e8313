"""Which patients train and which evaluate. A public hash decides it once per data set, for good.

Guarantees: a patient (or a record, if that is the policy's unit) is in exactly one of the two cohorts. This does not
depend on the study, the order and format of the file, or the other patients, so the budgets of the two cohorts compose
in parallel (`policies.plan.cost`). The policy says what identifies a patient (`data_set.identified_by`), and `decide`
makes every study follow it.
"""

from __future__ import annotations

import hashlib

import numpy as np

from silo_agent.data.records import NOBODY, Records

_LABEL = b"fedward split"
_TRAINING, _EVALUATION, _NEITHER = range(3)


def split(records: Records, data_set: str, holdout: float) -> tuple[Records, Records]:
    """Split into (training, evaluation). About the fraction `holdout` of the patients evaluates.

    A patient evaluates if the first 64 bits of SHA-256 over label, data set and identity, as a fraction of 2^64, lie
    below `holdout`. All records of a patient stay together. Raises `ValueError` for records without an identity.
    """
    if NOBODY in records.identities:
        msg = "these records were read without the columns that identify them; give data_set.identified_by"
        raise ValueError(msg)
    if not 0.0 < holdout < 1.0:
        msg = f"holdout must lie strictly between 0 and 1, not {holdout}"
        raise ValueError(msg)
    limit = int(holdout * 2**64)
    places = np.full(records.patient_count, _NEITHER, np.int8)
    begun = hashlib.sha256(_LABEL + _part(data_set))
    for patient, identity in enumerate(records.identities):
        try:
            evaluates = _position(begun, identity) < limit
        except Exception:  # noqa: BLE001, S112  # a patient who cannot be placed costs nobody else a place
            continue
        places[patient] = _EVALUATION if evaluates else _TRAINING
    return records.of_patients(places == _TRAINING), records.of_patients(places == _EVALUATION)


def _position(begun: hashlib._Hash, identity: str) -> int:
    """Return a patient's place in [0, 2^64), from a hash of all that comes before the identity."""
    digest = begun.copy()
    digest.update(_part(identity))
    return int.from_bytes(digest.digest()[:8], "big")


def _part(text: str) -> bytes:
    """Texts are prefixed with their lengths, so no two pairs have one hash."""
    raw = text.encode()
    return len(raw).to_bytes(8, "big") + raw
