from __future__ import annotations

import pytest

from policies.documents.study import Personal
from policies.plan.terms import averaged_values, is_stochastic, of_personal, of_upload, table_values


def named(terms):
    return [(one.term.name, one.coefficient) for one in terms]


def test_an_upload_has_the_cross_entropy_and_what_the_study_switches_on(make_study):
    assert named(of_upload(make_study({"encoder.l2r": 0.0, "encoder.cmi": 0.0}).encoder)) == [("cross_entropy", 1.0)]
    both = make_study({"encoder.l2r": 0.2, "encoder.cmi": 0.1}).encoder
    assert named(of_upload(both)) == [("cross_entropy", 1.0), ("l2r", 0.2), ("cmi", 0.1)]


def test_a_personal_model_may_have_terms_that_are_no_records_own():
    assert named(of_personal(Personal(ditto=0.0, mmd=0.0))) == [("cross_entropy", 1.0)]
    assert named(of_personal(Personal(ditto=0.3, mmd=2.0))) == [("cross_entropy", 1.0), ("ditto", 0.3), ("mk_mmd", 2.0)]


@pytest.mark.parametrize(("cmi", "prior"), [(0.0, "averaged"), (0.1, "averaged"), (0.1, "local")])
def test_what_is_drawn_and_what_is_averaged_follows_from_the_terms(make_study, cmi, prior):
    study = make_study({"encoder.cmi": cmi, "encoder.l2r": 0.5, "encoder.prior": prior})
    tables = 2 * study.data.label.count * study.model.representation
    assert is_stochastic(study.encoder) == (cmi > 0)
    assert table_values(study) == (tables if cmi else 0)
    assert averaged_values(study) == (tables if cmi and prior == "averaged" else 0)
