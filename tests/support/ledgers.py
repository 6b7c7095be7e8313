"""What the policy of `support.small_cohort` says of the silo north's data set: the arguments of its ledger."""

from __future__ import annotations

from support.certificates import data_set_of

NORTH = {
    "data_set": data_set_of("north"),
    "unit": "patient",
    "identified_by": ["patient"],
    "holdout": 0.2,
    "delta": 1e-5,
}
