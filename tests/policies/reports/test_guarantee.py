"""What is guaranteed, in numbers and words, of a study with and without noise."""

import math

import pytest

from policies.accounting import accountant, overlap
from policies.plan.cost import Cost
from policies.plan.release import plan
from policies.reports.guarantee import guarantee, unit_of
from support.studies import tiny_study


def test_it_has_the_accountants_epsilons_and_joint_bounds_of_several_hospitals():
    study = tiny_study()
    costs = plan(study).costs()
    found = guarantee(study, None)
    assert found.planned == accountant.epsilon(costs, 1e-5) == found.epsilon
    assert found.several == overlap.of_plan(costs, 3, 1e-5)
    assert set(found.several) == {2, 3}
    assert (found.charged, found.unit, found.delta, found.private) == (None, "patient", 1e-5, True)
    assert f"{found.several[3]:.4f} at 3 of them" in " ".join(found.does_not_protect)


def test_what_was_charged_counts_if_it_is_more():
    study = tiny_study()
    again = [*plan(study).costs(), *plan(study).costs()]
    found = guarantee(study, again)
    assert found.epsilon == found.charged == accountant.epsilon(again, 1e-5) > found.planned
    assert guarantee(study, []).epsilon == found.planned


def test_without_noise_nobody_is_protected():
    study = tiny_study(
        heads={"pooled_noise": 0.0, "domain_noise": 0.0},
        encoder={"noise": 0.0},
        evaluation={"noise": 0.0},
        privacy={"mode": "none", "count_noise": 0.0},
    )
    found = guarantee(study, None)
    assert (found.private, found.epsilon, found.protects) == (False, math.inf, ())
    assert "protects nobody" in found.does_not_protect[0]
    charged = guarantee(tiny_study(), [Cost("training", 1.0, 0.0, 1)])
    assert not charged.private


@pytest.mark.parametrize(("patient", "unit"), [("patient", "patient"), (None, "record")])
def test_the_unit_is_the_patient_if_records_say_whose_they_are(patient, unit):
    study = tiny_study(data={"patient": patient})
    found = guarantee(study, None)
    assert unit_of(study) == found.unit == unit
    assert any(f"any one {unit}'s records" in line for line in found.protects)
    assert found.relation == {"patient": "adding or removing one patient with all records"}.get(
        unit, "adding or removing one record"
    )


def test_a_continued_study_says_that_the_earlier_one_counts_too():
    assert "both studies add up" in guarantee(tiny_study(continues="ab" * 32), None).does_not_protect[0]
    assert "both studies" not in " ".join(guarantee(tiny_study(), None).does_not_protect)


@pytest.mark.parametrize(("mode", "said"), [("local", "suffices by itself"), ("distributed", "no more than 1 of them")])
def test_it_says_whose_noise_suffices(mode, said):
    assert said in guarantee(tiny_study(privacy={"mode": mode}), None).noise_means
