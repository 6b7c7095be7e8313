"""Who trains and who evaluates: decided once per data set, by a public hash, for ever.

Guarantees that a patient (a record, where the policy's unit is that) lies in exactly one of the two cohorts whatever
the study, the file's order and format or the other patients, so that the budgets of the two compose in parallel
(`policies.plan.cost`). What identifies a patient is the policy's word (`data_set.identified_by`), which `decide` holds
every study to.
"""

from __future__ import annotations

import hashlib

import numpy as np

from silo_agent.data.records import NOBODY, Records

_LABEL = b"fedward split"


def split(records: Records, data_set: str, holdout: float) -> tuple[Records, Records]:
    """Split into (training, evaluation); about the fraction `holdout` of the patients evaluates.

    A patient evaluates where the first 64 bits of SHA-256 over label, data set and identity, as a fraction of 2^64, lie
    below `holdout`. All records of a patient go together. Raises `ValueError` for records without an identity.
    """
    if NOBODY in records.identities:
        msg = "these records were read without the columns that identify them; give data_set.identified_by"
        raise ValueError(msg)
    if not 0.0 < holdout < 1.0:
        msg = f"holdout must lie strictly between 0 and 1, not {holdout}"
        raise ValueError(msg)
    limit = int(holdout * 2**64)
    held = np.fromiter(
        (_position(data_set, identity) < limit for identity in records.identities), bool, records.patient_count
    )
    return records.of_patients(~held), records.of_patients(held)


def _position(data_set: str, identity: str) -> int:
    """A patient's place in [0, 2^64); parts are prefixed with their lengths, so no two pairs hash alike."""
    digest = hashlib.sha256(_LABEL)
    for part in (data_set.encode(), identity.encode()):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return int.from_bytes(digest.digest()[:8], "big")
