from __future__ import annotations

import pytest

from policies.documents.study import Personal
from policies.plan.terms import (
    averaged_values,
    compares_environments,
    couples_records,
    is_stochastic,
    of_personal,
    of_upload,
    table_values,
)


def named(terms):
    return [(one.term.name, one.coefficient) for one in terms]


def test_an_upload_has_the_cross_entropy_and_what_the_study_switches_on(make_study):
    assert named(of_upload(make_study({"encoder.l2r": 0.0, "encoder.cmi": 0.0}).encoder)) == [("cross_entropy", 1.0)]
    both = make_study({"encoder.l2r": 0.2, "encoder.cmi": 0.1}).encoder
    assert named(of_upload(both)) == [("cross_entropy", 1.0), ("l2r", 0.2), ("cmi", 0.1)]


def test_a_personal_model_may_have_terms_that_are_no_records_own():
    assert named(of_personal(Personal(ditto=0.0, mmd=0.0))) == [("cross_entropy", 1.0)]
    assert named(of_personal(Personal(ditto=0.3, mmd=2.0))) == [("cross_entropy", 1.0), ("ditto", 0.3), ("mk_mmd", 2.0)]


def test_a_term_over_a_batch_at_the_encoder_is_one_that_compares_environments(make_study):
    private = make_study().encoder
    public = private.model_copy(update={"irm": 3.0, "group_dro": 0.5})
    assert named(of_upload(public)) == [("cross_entropy", 1.0), ("irm", 3.0), ("group_dro", 0.5)]
    assert [couples_records(plan) for plan in (private, public)] == [False, True]
    assert compares_environments(of_personal(Personal(irm=1.0)))
    assert not compares_environments(of_personal(Personal(ditto=1.0, mmd=1.0)))


@pytest.mark.parametrize(("cmi", "prior"), [(0.0, "averaged"), (0.1, "averaged"), (0.1, "local")])
def test_what_is_drawn_and_what_is_averaged_follows_from_the_terms(make_study, cmi, prior):
    study = make_study({"encoder.cmi": cmi, "encoder.l2r": 0.5, "encoder.prior": prior})
    tables = 2 * study.data.label.count * study.model.representation
    assert is_stochastic(study.encoder) == (cmi > 0)
    assert table_values(study) == (tables if cmi else 0)
    assert averaged_values(study) == (tables if cmi and prior == "averaged" else 0)


def test_the_scale_of_cmi_is_one_value_more(make_study):
    plain, scaled = (make_study({"encoder.cmi": 0.1, "encoder.cmi_scale": scale}) for scale in (False, True))
    assert averaged_values(scaled) == averaged_values(plain) + 1
