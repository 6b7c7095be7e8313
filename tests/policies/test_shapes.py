from __future__ import annotations

import pytest

from policies.shapes import encoder_values, head_values, is_pooled, prior_values, tensors, values


def test_sizes_by_hand(make_study):
    # Five inputs, eight hidden, four features: K = 5, a head has 15 + 5 values; two domains.
    study = make_study()
    assert encoder_values(study) == 5 * 8 + 8 + 8 * 4 + 4
    assert [head_values(study, number) for number in (1, 2, 3, 5)] == [20, 20, 40, 40]
    assert values(study, 0, "counts") == 2
    assert values(study, 1, "heads") == 20
    assert values(study, 1, "encoder") == encoder_values(study)
    assert values(study, 5, "metrics") == 2 * 2 * 10


def test_cmi_widens_the_encoder_and_may_add_tables(make_study):
    averaged = make_study({"encoder.cmi": 0.1})
    assert encoder_values(averaged) == 5 * 8 + 8 + 8 * 8 + 8
    assert prior_values(averaged) == 2 * 2 * 4
    assert values(averaged, 1, "encoder") == encoder_values(averaged) + 16
    local = make_study({"encoder.cmi": 0.1, "encoder.prior": "local"})
    assert prior_values(local) == 0


def test_the_order_of_sums(make_study):
    study = make_study()
    assert tensors(study, 0) == ("counts",)
    assert tensors(study, 4) == ("heads", "encoder")
    assert tensors(study, 5) == ("heads", "metrics")
    assert [is_pooled(study, number) for number in (1, 2, 3)] == [True, True, False]


def test_an_unknown_tensor_is_refused(make_study):
    with pytest.raises(ValueError, match="no tensor is named 'gradient'"):
        values(make_study(), 1, "gradient")
