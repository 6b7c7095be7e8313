"""A private file is never opened for a forecast."""

import pytest

from policies.documents.policy import Policy
from policies.errors import LedgerMismatchError
from policies.ledger.ledger import Genesis
from silo_agent.learning.errors import LearningError
from silo_agent.models.expecting import known_of_file
from support.small_cohort import policy_document
from support.studies import tiny_study


def policy(*, public):
    document = policy_document("north-ward")
    return Policy.model_validate(document | {"data_set": document["data_set"] | {"public": public}})


def test_a_private_file_is_refused_before_it_is_opened(quick_path):
    with pytest.raises(LearningError, match=r"data_set\.public is false"):
        known_of_file(tiny_study(), policy(public=False), Genesis.of(policy(public=False)), quick_path / "absent.csv")


def test_a_policy_that_was_edited_to_say_public_is_refused(quick_path):
    bound = Genesis.of(policy(public=False))
    with pytest.raises(LedgerMismatchError, match="public"):
        known_of_file(tiny_study(), policy(public=True), bound, quick_path / "absent.csv")
