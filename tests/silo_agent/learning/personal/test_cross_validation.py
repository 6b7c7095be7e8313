import dataclasses

import numpy as np
import pytest

from policies.documents.study import Personal
from silo_agent.learning.alone.fitting import FittedAlone, fit
from silo_agent.learning.alone.mixing import Mix
from silo_agent.learning.encoder.encoder import flatten
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.outcomes.links import losses
from silo_agent.learning.personal import cross_validation
from silo_agent.learning.personal.choice import ALONE, CANDIDATES, FEWEST, MIXED, REFITTED
from silo_agent.learning.personal.cross_validation import (
    FOLDS,
    Compared,
    choose,
    folds_of,
    own_folds,
    personal_model,
)
from silo_agent.learning.personal.model import PersonalModel
from silo_agent.learning.personal.refit import logits_under
from support.entropy import SeededEntropy

PLAN = Personal(epochs=1, mmd=0.0)


@pytest.fixture
def models(make_study):
    """A study's models whose heads say for domain 0 what `make_records` makes true."""
    start = SharedModel.start(make_study(gain=2.0))
    heads = np.random.default_rng(0).normal(scale=0.3, size=(3, 5))
    return {number: start.with_heads(heads, number) for number in (0, 1, 2)}


def chosen(models, records, seed=0):
    return choose(models, records, PLAN, entropy=SeededEntropy(seed))


def from_model(model, records, *, shift=0.0, seed=0):
    """The same records with outcomes that follow the model's own risks, moved by `shift` logits."""
    odds = np.log(model.predict(records.inputs, records.domains))
    risk = 1 / (1 + np.exp(odds[:, 0] - odds[:, 1] - shift))
    labels = (np.random.default_rng(seed).random(len(records)) < risk).astype(np.int64)
    return dataclasses.replace(records, labels=labels)


def test_the_shared_model_is_the_default_and_another_one_must_gain_more_than_half_an_error(models, make_records):
    records = make_records(FEWEST)
    found = [chosen(models, from_model(models[2], records, seed=seed)) for seed in range(3)]
    for choice in found:
        best = max(choice.compared, key=lambda one: one.gain)
        assert choice.candidate == (best.candidate if best.gain > best.error / 2 else "shared")
        assert choice.heads.shape == (3 if choice.candidate in REFITTED else 0, 5)
        assert {one.candidate for one in choice.compared} | {"shared", ALONE, MIXED} == set(CANDIDATES)
    assert "shared" in {choice.candidate for choice in found}, "the shared model is the truth here"


def test_where_a_hospitals_rate_is_another_one_its_own_model_is_chosen(models, make_records):
    other = chosen(models, from_model(models[2], make_records(200), shift=2.0))
    assert other.candidate in REFITTED
    assert max(one.gain for one in other.compared) > 0.1
    assert (other.round, other.shared, other.patients, other.folds) == (2, models[2].digest, 200, FOLDS)


def test_a_model_of_ones_own_records_and_a_mix_are_compared_on_patients_whom_neither_has_seen(models, make_records):
    """The shared model knows nothing of two domains, and the hospital's own records do."""
    shared, records = models[2].with_heads(models[2].heads * 0.0, 2), make_records(400)
    alone = fit(records, own_folds(records, shared.study.digest), shared.study, 2)
    found = choose({2: shared}, records, PLAN, entropy=SeededEntropy(0), alone=alone)
    gains = {one.candidate: one.gain for one in found.compared}
    assert set(gains) | {"shared"} == set(CANDIDATES)
    best = np.average(losses(np.zeros((400, 1)), records.labels, shared.family), weights=records.weights)
    own = np.average(losses(alone.unseen, records.labels, shared.family), weights=records.weights)
    assert gains[ALONE] == pytest.approx(best - own)
    assert gains[ALONE] > 0.1
    assert gains[MIXED] == pytest.approx(gains[ALONE], abs=0.02)
    assert found.candidate in {ALONE, MIXED}
    assert (found.mix is None) == (found.candidate == ALONE)


def test_the_weights_of_a_mix_are_found_without_the_fold_that_they_are_judged_on(models, make_records, monkeypatch):
    records, seen = make_records(60, patients=31), []
    fold = own_folds(records, models[2].study.digest)

    def weigh(said, domains, family):
        seen.append((len(said.labels), domains))
        return Mix(np.full(domains, len(seen) / 10.0), np.array([0.5]))

    alone = FittedAlone(None, np.random.default_rng(0).normal(size=(60, 1)))
    monkeypatch.setattr(cross_validation, "mix_of", weigh)
    found = cross_validation.compare(models, records, PLAN, entropy=SeededEntropy(0), alone=alone)
    assert seen == [((fold != number).sum(), 3) for number in range(FOLDS)] + [(60, 3)]
    np.testing.assert_array_equal(found.mix.weights, np.full(3, 0.6))
    shared, moved = models[2], np.zeros((60, 1))
    phi = shared.features(records.inputs).numpy().astype(np.float64)
    base = logits_under(phi, shared.heads, records.domains, 1)
    for number in range(FOLDS):
        rows = fold == number
        moved[rows] = base[rows] + 0.5 + (number + 1) / 10.0 * (alone.unseen - base)[rows]
    gap = losses(base, records.labels, shared.family) - losses(moved, records.labels, shared.family)
    gain = next(one for one in found.gains if one.candidate == MIXED)
    assert gain == cross_validation.gained(MIXED, gap, records)


@pytest.mark.slow
def test_the_expected_gain_is_about_what_comes_on_other_patients(models, make_records):
    training, fresh = (from_model(models[2], make_records(n, seed=n), shift=1.5, seed=n) for n in (200, 3000))
    found = chosen(models, training)
    said = next(one for one in found.compared if one.candidate == found.candidate)

    def loss(model):
        p = model.predict(fresh.inputs, fresh.domains)
        return -np.log(p[np.arange(len(p)), fresh.labels]).mean()

    came = loss(models[2]) - loss(PersonalModel.start(models[2], found.heads))
    assert abs(came - said.gain) < 3 * said.error


def test_few_patients_are_not_compared(models, make_records):
    few = chosen(models, make_records(FEWEST - 1))
    assert (few.candidate, few.compared) == ("shared", ())
    assert chosen(models, make_records(0)).candidate == "shared"


def test_a_patients_records_stay_together_and_the_files_order_does_not_count(make_records):
    names = tuple(f"p{i}" for i in range(103))
    fold = folds_of(names, "ab" * 32)
    assert sorted(np.bincount(fold)) == [20, 20, 21, 21, 21]
    turned = folds_of(names[::-1], "ab" * 32)
    np.testing.assert_array_equal(turned[::-1], fold)
    assert (folds_of(names, "cd" * 32) != fold).any()


def test_the_personal_model_is_that_of_the_rounds_one_after_another(models, make_records):
    records = make_records(60)
    entropy = SeededEntropy(1)
    wanted = PersonalModel.start(models[1])
    for number in (1, 2):
        wanted = wanted.train(models[number], records, PLAN, entropy=entropy)
    found = personal_model(models, records, PLAN, entropy=SeededEntropy(1))
    np.testing.assert_array_equal(flatten(found.network.encoder), flatten(wanted.network.encoder))
    moved = personal_model(models, records, PLAN, entropy=SeededEntropy(1), change=np.ones((3, 5)))
    assert not np.array_equal(moved.network.heads.detach().numpy(), found.network.heads.detach().numpy())
    assert found.round == 2


@pytest.mark.parametrize("classes", [3, 0])
def test_other_outcomes_are_compared_too(make_study, make_records, classes):
    study = make_study(classes=3)
    if not classes:
        label = study.data.label.model_copy(update={"classes": (), "minimum": 0.0, "maximum": 1.0})
        study = study.model_copy(update={"data": study.data.model_copy(update={"label": label})})
    start = SharedModel.start(study)
    records = make_records(120, classes=3)
    if not classes:
        records = dataclasses.replace(records, labels=((records.inputs[:, 0] + 1) * 2**19).astype(np.int64))
    found = chosen({0: start, 1: start.with_heads(start.heads, 1)}, records)
    assert all(np.isfinite([one.gain, one.error]).all() for one in found.compared)
    assert found.candidate != "shared", "the shared model knows nothing"


def test_each_fold_compares_models_that_have_not_seen_its_patients(models, make_records, monkeypatch):
    """Also the shared model, whose sums are taken back to what they were without them."""
    records, shared = make_records(60, patients=31), models[2]
    left, personal, fitted = [], [], []

    def refit(sample, heads, _family, *, factor, weights):
        fitted.append((len(sample.labels), heads, factor, weights))
        return heads

    def trained(_models, others, _plan, *, change, **_):
        personal.append((set(others.identities), change))
        return PersonalModel.start(shared)

    def change_without(_models, gone, _device):
        left.append(set(gone.identities))
        return np.full((3, 5), 0.25)

    for name, spy in (("refit", refit), ("personal_model", trained), ("change_without", change_without)):
        monkeypatch.setattr(cross_validation, name, spy)
    found = cross_validation.compare(models, records, PLAN, entropy=SeededEntropy(0))
    everybody = set(records.identities)
    assert sorted(name for one in left for name in one) == sorted(everybody)
    assert [others for others, _ in personal] == [everybody - one for one in left]
    assert all((change == 0.25).all() for _, change in personal)
    sizes = [sum(records.identities[patient] not in one for patient in records.patients) for one in left]
    assert [size for size, *_ in fitted] == [size for size in sizes for _ in REFITTED]
    assert all(np.array_equal(heads, shared.heads + 0.25) for _, heads, *_ in fitted)
    assert [(factor, weights) for *_, factor, weights in fitted[: len(REFITTED)]] == list(REFITTED.values())
    assert [one.gain for one in found.gains if one.candidate in REFITTED] == [0.0] * len(REFITTED)
    assert next(one.gain for one in found.gains if one.candidate == "personal") != 0.0


@pytest.mark.parametrize(
    ("gains", "taken"),
    [((0.3, 0.15), ALONE), ((0.3, 0.25), "personal"), ((0.3, 0.19), ALONE), ((0.3, 0.21), "personal")],
)
def test_ones_own_records_alone_must_gain_more_beyond_their_error(models, make_records, monkeypatch, gains, taken):
    """Nothing holds them close to the shared model. The next best is taken if they do not."""
    gain, error = gains
    compared = (
        cross_validation.CandidateGain("personal", 0.1, 0.1),
        cross_validation.CandidateGain(ALONE, gain, error),
    )
    monkeypatch.setattr(cross_validation, "compare", lambda *_, **__: Compared(compared))
    assert chosen(models, make_records(FEWEST)).candidate == taken


@pytest.mark.parametrize(
    "case",
    [((0.1, 0.3, 0.2), 0.1, 1), ((0.3, 0.1, 0.2), 0.1, 0), ((0.1, 0.3), 0.61, None), ((-0.1, -0.2), 0.1, None)],
)
def test_the_candidate_with_the_best_gain_is_taken_if_it_gains_enough(models, make_records, monkeypatch, case):
    gains, error, taken = case
    names = [*REFITTED, "personal"][: len(gains)]
    compared = tuple(cross_validation.CandidateGain(name, gain, error) for name, gain in zip(names, gains, strict=True))
    monkeypatch.setattr(cross_validation, "compare", lambda *_, **__: Compared(compared))
    assert chosen(models, make_records(FEWEST)).candidate == ("shared" if taken is None else names[taken])


def test_a_gain_is_that_of_patients_with_its_standard_error(make_records):
    records = make_records(40, patients=9)
    gains = np.random.default_rng(0).normal(size=40)
    by_patient = [gains[records.patients == patient].mean() for patient in range(records.patient_count)]
    found = cross_validation.gained("x", gains, records)
    assert found.gain == pytest.approx(np.mean(by_patient))
    assert found.error == pytest.approx(np.std(by_patient, ddof=1) / np.sqrt(records.patient_count))


def test_a_change_moves_the_heads_that_the_personal_model_starts_from(models, make_records, monkeypatch):
    seen = []

    def train(personal, shared, *_, **__):
        seen.append(shared.heads)
        return personal

    monkeypatch.setattr(PersonalModel, "train", train)
    personal_model(models, make_records(5), PLAN, entropy=SeededEntropy(1), change=np.ones((3, 5)))
    assert all(np.array_equal(heads, models[2].heads + 1.0) for heads in seen)
    assert len(seen) == 2
