"""What the bench deals out, measures and judges."""

import numpy as np
import pytest

from bench.papers.local_global import adult
from bench.papers.local_global.adult import (
    ATTRIBUTES,
    NARROW,
    PLAIN,
    PROTECTED,
    SILOS,
    TUNING,
    WIDER,
    AdultResult,
    Guessed,
)
from bench.places import DATA
from deploy.local.simulate.entropy import RepeatableEntropy
from deploy.local.simulate.outcome import epsilons
from deploy.local.simulate.silos import Silo, identified, of_arrays
from silo_agent.learning.encoder.encoder import features
from silo_agent.learning.figures.evaluation import auc
from silo_agent.learning.model.shared import SharedModel
from silo_agent.learning.personal.cross_validation import personal_model


def made_up(count, private, seed):
    """Records whose race shows in one input and whose sex in none."""
    rng = np.random.default_rng(seed)
    protected = rng.integers(0, 2, (count, 2))
    inputs = rng.uniform(-1, 1, (count, private.data.inputs))
    inputs[:, 0] = np.where(protected[:, 0] == 1, 0.8, -0.8) + rng.uniform(-0.2, 0.2, count)
    labels = inputs[:, 1] > 0
    return identified(of_arrays(inputs, labels, np.zeros(count), protected=protected))


@pytest.fixture(scope="module")
def private():
    return adult.study(NARROW)


def test_race_and_sex_are_protected_and_no_inputs_and_the_study_keeps_its_budget(private):
    assert [factor.column for factor in private.data.protected] == list(ATTRIBUTES)
    assert not {feature.column for feature in private.data.features} & {*ATTRIBUTES, "income", "all"}
    assert private.data.domains == ("all",)
    assert max(epsilons(private).values()) <= adult.EPSILON
    assert private.privacy.mode != "none"


def test_every_seed_deals_anew_and_tuning_never_sees_the_test_file(private):
    training, test = made_up(200, private, 0), made_up(100, private, 1)
    for seed, sizes in ((0, (200, 100)), (TUNING, None)):
        silos = adult.deal(training, test, seed).silos
        assert tuple(silos) == SILOS
        own, held = (
            np.concatenate([getattr(silo, part).inputs for silo in silos.values()]) for part in ("training", "held_out")
        )
        rows = {tuple(row) for row in training.inputs.tolist()}
        if sizes is not None:
            assert (len(own), len(held)) == sizes
            assert {tuple(row) for row in held.tolist()} == {tuple(row) for row in test.inputs.tolist()}
        else:
            assert len(own) + len(held) == len(training)
            assert {tuple(row) for row in (*own.tolist(), *held.tolist())} == rows
    first, other = (adult.deal(training, test, seed).silos[SILOS[0]].training.inputs for seed in (0, 1))
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_attackers_learn_on_training_patients_and_find_what_the_inputs_show(private):
    silo = Silo(made_up(300, private, 2), made_up(150, private, 3))
    found = adult.guessed(silo, lambda records: np.array(records.inputs[:, :3], np.float64), crossed=True)
    assert min(found["race"].attacker, found["race"].crossed, found["race"].trees) > 0.95
    assert abs(found["sex"].attacker - 0.5) < 0.15


def test_a_silos_personal_model_is_trained_and_measured_on_its_held_out_patients(private, monkeypatch):
    private = private.model_copy(update={"personal": private.personal.model_copy(update={"epochs": 2})})
    silo = Silo(made_up(120, private, 4), made_up(80, private, 5))
    shared = {1: SharedModel.start(private).with_heads(np.array([[3.0, 0.0]]), 1)}
    monkeypatch.setattr(adult, "guessed", lambda _silo, represent, **_: represent(silo.held_out))
    found = [adult.on_silo(shared, silo, weight, seed=0, name=SILOS[0], model="") for weight in (0.0, 4.0)]
    labels = silo.held_out.labels
    for one, weight in zip(found, (0.0, 4.0), strict=True):
        plan = private.personal.model_copy(update={"adversary": weight})
        own = personal_model(shared, silo.training, plan, entropy=RepeatableEntropy(0, SILOS[0]))
        said = own.predict(silo.held_out.inputs, silo.held_out.domains)
        assert one.accuracy == pytest.approx(100.0 * (said.argmax(axis=1) == labels).mean())
        assert one.area == auc(said[:, 1], labels)
        width = private.model.representation
        seen = features(own.network.encoder, silo.held_out.inputs)[:, :width]
        np.testing.assert_array_equal(one.guessed, seen.numpy().astype(np.float64))
        assert one.majority == pytest.approx(100.0 * (labels == round(silo.training.labels.mean())).mean())
    assert found[0].area != found[1].area


RAW = [{attribute: Guessed(0.9, 0.9) for attribute in ATTRIBUTES}]


def measured(model, guess, accuracy, positive=0.2):
    guesses = {attribute: Guessed(guess, guess, guess) for attribute in ATTRIBUTES}
    return [
        AdultResult(seed, silo, model, accuracy + seed / 10, 76.0, 0.85, positive, guesses)
        for seed in (0, 1)
        for silo in SILOS[:2]
    ]


@pytest.mark.parametrize(
    ("plain", "protected", "missed"),
    [
        ({}, {}, set()),
        ({}, {"guess": 0.56}, {"attacker's AUC for race, with adversary", "attacker's AUC for sex, with adversary"}),
        ({}, {"accuracy": 80.5}, {f"accuracy lost to the model {PLAIN}", f"accuracy lost to the model {WIDER}"}),
        ({"guess": 0.55}, {}, {f"control: attacker's AUC for {a}, {m}" for a in ATTRIBUTES for m in (PLAIN, WIDER)}),
        ({"accuracy": 77.0}, {"accuracy": 75.5}, {"accuracy above always saying the more frequent outcome"}),
        ({}, {"positive": 0.0}, {"accuracy above always saying the more frequent outcome"}),
    ],
)
def test_each_figure_is_judged_and_a_constant_predictor_does_not_pass(plain, protected, missed):
    without = {"guess": 0.7, "accuracy": 85.0} | plain
    found = [
        *measured(PROTECTED, **{"guess": 0.54, "accuracy": 82.0} | protected),
        *measured(PLAIN, **without),
        *measured(WIDER, **without),
    ]
    rows = adult.figures(found, RAW, 7.9)
    assert {row.name for row in rows if not row.met} == missed
    assert {row.name for row in adult.figures(found, RAW, 8.1) if not row.met} == missed | {
        "epsilon of the shared model"
    }


def test_a_measured_seed_is_kept_and_read_again(private, monkeypatch, tmp_path):
    records = made_up(40, private, 6), made_up(20, private, 7)
    monkeypatch.setattr(adult, "KEPT", tmp_path)
    monkeypatch.setattr(adult, "shared_models", lambda *_: {})
    monkeypatch.setattr(adult, "on_inputs", lambda _: RAW[0])
    given = measured(PROTECTED, 0.54, 82.0)[0]
    monkeypatch.setattr(adult, "on_silo", lambda *_, **__: given)
    first = adult.on_seed(*records, 0)
    assert first == ([given] * 3 * len(SILOS), RAW * len(SILOS))
    monkeypatch.delattr(adult, "shared_models")
    assert adult.on_seed(*records, 0) == first
    with pytest.raises(NameError):
        adult.on_seed(*records, 1)


def test_a_mean_is_taken_over_silos_first_and_the_interval_is_over_seeds():
    own = measured(PROTECTED, 0.54, 82.0)
    np.testing.assert_allclose(adult.by_seed(own, lambda one: one.accuracy), [82.0, 82.1])
    rows = {
        row.name: row.measured
        for row in adult.figures([*own, *measured(PLAIN, 0.7, 85.0), *measured(WIDER, 0.7, 85.5)], RAW, 7.9)
    }
    assert "accuracy 82.05 %" in rows[f"outcome, {PROTECTED}"]
    assert rows[f"accuracy lost to the model {WIDER}"].startswith("3.50 +- 0.00 (3.50, 3.50)")


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "adult").is_dir(), reason="needs the UCI files of Adult")
def test_the_published_files_are_read(private):
    training, test = adult.read(DATA, private.data)
    assert (len(training), len(test)) == (30_940, 15_507)
    assert training.protected.mean(axis=0) == pytest.approx([0.101, 0.330], abs=0.001)
    assert training.labels.mean() == pytest.approx(0.2425, abs=0.001)
