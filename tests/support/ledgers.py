"""What the policy of `support.small_cohort` says of the silo north's data set: its ledger's genesis."""

from __future__ import annotations

from policies.ledger.chain import Genesis
from support.certificates import data_set_of

NORTH = Genesis(
    data_set_of("north"), holdout=0.2, delta=1e-5, unit="patient", identified_by=("patient",), delimiter=",", columns=()
)
