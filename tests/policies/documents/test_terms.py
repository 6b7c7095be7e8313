from __future__ import annotations

import pytest

from policies.documents.study import EncoderPlan, Personal
from policies.documents.terms import TERMS, Term, fields_of

PARTS = {"encoder": EncoderPlan, "step": EncoderPlan, "personal": Personal}
WITH_COEFFICIENT = [term for term in TERMS if term.field is not None]


def test_every_term_has_one_entry():
    names = [term.name for term in TERMS]
    wanted = "cross_entropy l2r l2r_plain cmi proximal ditto mk_mmd cosine mmd_d irm group_dro adversary"
    assert names == wanted.split()


@pytest.mark.parametrize("term", WITH_COEFFICIENT, ids=lambda term: term.name)
def test_the_range_of_a_coefficient_is_that_of_the_studys_field(term: Term) -> None:
    assert term.part is not None
    field = PARTS[term.part].model_json_schema()["properties"][str(term.field)]
    assert (field["minimum"], field["maximum"]) == (term.least, term.most)


def test_the_encoder_is_uploaded_so_its_terms_are_per_record_and_those_of_the_personal_model_alone_are_not():
    for term in TERMS:
        assert term.per_record == (term.part in {None, "encoder"})
        assert (term.part == "step") <= (term.reads == "weights")
        assert term.stochastic <= term.per_record


@pytest.mark.parametrize("term", [term for term in TERMS if term.public], ids=lambda term: term.name)
def test_what_public_data_may_have_at_the_encoder_is_the_same_field_there(term: Term) -> None:
    own, shared = (PARTS[part].model_json_schema()["properties"][str(term.field)] for part in ("personal", "encoder"))
    assert own == shared
    assert not term.per_record


def test_an_author_may_call_a_term_by_its_name_or_by_its_field():
    assert {term.name: set(term.words) for term in TERMS}["mk_mmd"] == {"mk_mmd", "mmd"}
    assert {term.name: set(term.words) for term in TERMS}["cross_entropy"] == {"cross_entropy"}


def test_rules_about_terms_follow_from_the_table():
    """`model.encoder: raw` and FedDAR's Algorithm 2 have no terms of an encoder."""
    assert fields_of("encoder") == ("l2r", "cmi")
    assert fields_of("personal", lambda term: term.compares) == ("mmd", "cosine", "mmd_d")
