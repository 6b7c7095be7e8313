"""A private file is never opened for a forecast; a public one says what the hospital's records say."""

import numpy as np
import pytest

from policies.documents.policy import Policy
from policies.errors import LedgerMismatchError
from policies.ledger.ledger import Genesis
from silo_agent.data.reader import read_records
from silo_agent.forecast.public import known_of
from silo_agent.learning.errors import LearningError
from silo_agent.models.expecting import known_of_file
from support.local_federation import write_patients
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


def test_a_public_file_says_what_its_fitting_records_say(quick_path):
    file = write_patients(quick_path / "own.csv", np.random.default_rng(1), np.eye(2), patients=60)
    file.write_text(file.read_text() + "x1,nowhere,60,1,1\n")
    bound, study = Genesis.of(policy(public=True)), tiny_study()
    records = read_records(file, study.data, ["patient"]).records
    assert len(records) == 60
    told = known_of_file(study, policy(public=True), bound, file)
    assert told == known_of(study, records, policy(public=True).data_set.holdout)
    file.write_text("patient,group,age,lactate,ill\nx1,nowhere,60,1,1\n")
    with pytest.raises(LearningError, match=r"--data: no record of own\.csv fits the study"):
        known_of_file(study, policy(public=True), bound, file)
