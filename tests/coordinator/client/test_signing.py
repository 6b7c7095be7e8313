"""The author's signature beside a study's file: one author, and nobody guesses which."""

from __future__ import annotations

import pytest

from coordinator.client.signing import AmbiguousSignatureError, signature_beside, signature_file, signed_by
from crypto.authorship import sign_study
from support.certificates import load, make_authority
from support.small_cohort import write_yaml
from support.studies import tiny_document, tiny_study


@pytest.fixture
def people(tmp_path):
    consortium = make_authority(tmp_path / "consortium")
    return {role: load(consortium.credential(role, f"{role}-one")) for role in ("author", "operator")}


@pytest.fixture
def file(tmp_path):
    return write_yaml(tmp_path / "study.yaml", tiny_document())


def test_an_author_signs_and_for_others_the_signature_lies_beside_the_file(people, file):
    study = tiny_study()
    made = signed_by(people["author"], file, study)
    assert made.certificate == people["author"].certificate_pem
    assert signed_by(people["operator"], file, study) is None
    beside = signature_file(file, "ann")
    assert beside.name == "study.yaml.ann.sig"
    beside.write_bytes(made.text.encode())
    assert signed_by(people["operator"], file, study) == made == signature_beside(file)


def test_two_signatures_beside_a_study_are_one_too_many(people, file):
    made = sign_study(people["author"], tiny_study().digest, tiny_study().purpose)
    for name in ("ann", "bob"):
        signature_file(file, name).write_bytes(made.text.encode())
    with pytest.raises(AmbiguousSignatureError, match=r"study\.yaml\.ann\.sig, study\.yaml\.bob\.sig; leave one"):
        signature_beside(file)
