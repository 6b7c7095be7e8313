import dataclasses

import numpy as np
import pytest

from policies.documents.study import NUMBER
from silo_agent.learning.alone.fitting import fit
from silo_agent.learning.alone.mixing import Mix, MixedModel, TwoOpinions, mix_of
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.links import logits_of, losses
from silo_agent.learning.outcomes.registry import family_of

DOMAINS = 3


def opinions(truth, n=3000, seed=0, classes=2, shift=0.0):
    """Two models of which each knows a part. `truth` (M,) is what the outcome gives to the second, by domain."""
    rng, family = np.random.default_rng(seed), family_of(classes)
    size = 0.2 if classes == NUMBER else 1.5
    shared, alone = (rng.normal(scale=size, size=(n, family.form.logits)) for _ in range(2))
    domains = rng.integers(0, DOMAINS, n)
    said = family.probabilities(shared + shift + np.asarray(truth)[domains][:, None] * (alone - shared))
    if classes == NUMBER:
        labels = (np.clip(said[:, 0] + rng.normal(scale=0.05, size=n), -1, 1) + 1) * 2**19
    else:
        labels = (rng.random(n)[:, None] > said.cumsum(axis=1)).sum(axis=1)
    return TwoOpinions(shared, alone, labels.astype(np.int64), domains, np.ones(n))


@pytest.mark.parametrize("classes", [2, 3, NUMBER])
def test_each_domain_finds_its_own_weight(classes):
    found = mix_of(opinions([0.1, 0.5, 0.9], classes=classes), DOMAINS, family_of(classes))
    np.testing.assert_allclose(found.weights, [0.1, 0.5, 0.9], atol=0.12)


@pytest.mark.parametrize("classes", [2, NUMBER])
def test_another_rate_is_a_shift_and_no_trust_in_ones_own_model(classes):
    shift = 0.1 if classes == NUMBER else 1.5
    found = mix_of(opinions([0.1] * 3, classes=classes, shift=shift), DOMAINS, family_of(classes))
    np.testing.assert_allclose(found.shift, shift, rtol=0.15)
    assert (found.weights < 0.2).all()


def test_a_domain_with_few_patients_has_about_the_weight_of_all():
    said = opinions([0.9, 0.9, 0.1])
    few = said.rows((said.domains != 2) | (np.arange(3000) < 15))
    found = mix_of(few, DOMAINS, family_of(2)).weights
    assert found[2] > 0.3
    assert mix_of(said, DOMAINS, family_of(2)).weights[2] < 0.2, "with a thousand it has its own"
    none = mix_of(said.rows(said.domains != 2), DOMAINS, family_of(2)).weights
    assert none[2] == pytest.approx(none[:2].mean(), abs=0.08)


def test_weights_stay_between_the_two_models_and_nothing_at_all_is_half():
    found = mix_of(opinions([-0.5, 0.5, 1.5]), DOMAINS, family_of(2)).weights
    assert (found[0], found[2]) == (0.0, 1.0)
    nobody = mix_of(opinions([0.5] * 3).rows(np.zeros(3000, np.bool_)), DOMAINS, family_of(2))
    assert (nobody.weights.tolist(), nobody.shift.tolist()) == ([0.5] * 3, [0.0])


def test_who_counts_more_decides_more():
    said = opinions([0.5, 0.5, 0.5])
    family = family_of(2)
    better = losses(said.alone, said.labels, family) < losses(said.shared, said.labels, family)
    heavy = dataclasses.replace(said, counted=np.where(better, 1.0, 0.1))
    assert mix_of(heavy, DOMAINS, family).weights.mean() > mix_of(said, DOMAINS, family).weights.mean() + 0.1


def test_a_mix_predicts_between_both_models_by_domain(make_study, make_records):
    study, records = make_study(gain=2.0), make_records(200)
    shared = SharedModel.start(study).with_heads(np.random.default_rng(0).normal(scale=0.5, size=(3, 5)), 2)
    alone = fit(records, np.arange(200) % 5, study, 2).model
    mix = MixedModel(shared, alone, Mix(np.array([0.0, 1.0, 0.25]), np.array([0.5])))
    found = mix.predict(records.inputs, records.domains)
    ours, theirs = (one.predict(records.inputs, records.domains) for one in (shared, alone))
    logits = [logits_of(one, family_of(2)) for one in (found, ours, theirs)]
    for domain, weight in enumerate((0.0, 1.0, 0.25)):
        said, shared_one, own = (one[records.domains == domain] for one in logits)
        np.testing.assert_allclose(said, (1 - weight) * shared_one + weight * own + 0.5, atol=1e-9)
    assert (mix.study, mix.round, repr(mix)) == (study, 2, "MixedModel(<private>)")
