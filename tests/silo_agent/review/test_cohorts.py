"""Who is held out at a hospital, as its ledger is bound to it."""

from __future__ import annotations

import pytest

from policies.errors import LedgerMismatchError
from silo_agent.data.sources.data_set import Division
from silo_agent.data.table import Written
from silo_agent.review.cohorts import cohorts_of
from silo_agent.storage import approvals
from support.asked import NOW
from support.small_cohort import policy_document, write_yaml
from support.studies import tiny_study


def divided(holdout):
    document = policy_document("north-ward")
    return {**document, "data_set": {**document["data_set"], "holdout": holdout}}


def test_cohorts_are_divided_as_the_policy_says_and_no_source_is_given_that_nobody_approved(settings, folder):
    found = cohorts_of(settings)
    assert found.division == Division("north-ward", 0.2, ("patient",))
    assert isinstance(found.written, Written)
    assert list(found.withdrawn) == []
    mailed = tiny_study(name="mailed")
    assert found.source_of(mailed) is None
    approvals.approve(folder, mailed, approvals.made(mailed, "lab", NOW))
    assert found.source_of(mailed) == settings.data["lab"]


def test_a_policy_that_divides_otherwise_than_the_ledger_is_refused(settings, folder):
    write_yaml(settings.policy, divided(0.3))
    with pytest.raises(LedgerMismatchError, match="holdout"):
        cohorts_of(settings)
    folder.ledger.unlink()
    assert cohorts_of(settings).division.holdout == 0.3
