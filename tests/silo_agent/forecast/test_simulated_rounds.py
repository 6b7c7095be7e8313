"""The forecast's rounds give what the silos' rounds give."""

import numpy as np
import pytest

from deploy.local.simulate.engine import simulate
from deploy.local.simulate.outcome import measure
from deploy.local.simulate.silos import Cohorts, Silo, rows_of
from silo_agent.forecast.assumptions import Asked
from silo_agent.forecast.forecast import without_noise
from silo_agent.forecast.made_up_patients import Law
from silo_agent.forecast.simulated_rounds import Walk

ASKED = Asked((400, 300, 200), (0.4, 0.6), 0.3, (0.8,))


def patients(study, count=900):
    law = Law(study, ASKED, 0.8, np.random.default_rng(3))
    return law.patients(count), law.patients(300), law.of_domains(np.repeat([0, 1], 1500))[0]


def cohorts_of(study, training, held_out, test):
    """The same patients at the silos of the study."""
    parts = np.arange(len(training)) % 3, np.arange(len(held_out)) % 3
    silos = {
        name: Silo(rows_of(training, parts[0] == number), rows_of(held_out, parts[1] == number))
        for number, name in enumerate(study.silos)
    }
    return Cohorts(silos, test)


def walked(study, training, folder, seed=1):
    folder.mkdir(exist_ok=True)
    return Walk(study, folder).train(training, np.random.default_rng(seed))


@pytest.mark.parametrize("solver", ["newton", "hierarchical"])
def test_without_noise_the_heads_are_those_of_the_silos(raw_study, tmp_path, solver):
    study = without_noise(raw_study(heads={"solver": solver}))
    training, held_out, test = patients(study)
    simulated = simulate(study, cohorts_of(study, training, held_out, test), seed=1)
    assert walked(study, training, tmp_path / "own").heads == pytest.approx(simulated.model.heads, abs=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "solver"), [("local", "newton"), ("distributed", "hierarchical")])
def test_with_noise_the_mean_is_that_of_the_silos_within_its_error(raw_study, tmp_path, mode, solver):
    study = raw_study(heads={"solver": solver}, privacy={"mode": mode})
    training, held_out, test = patients(study)
    cohorts = cohorts_of(study, training, held_out, test)
    real, own = [], []
    for seed in range(12):
        outcome = simulate(study, cohorts, seed=seed)
        real.append(outcome.mean)
        model = walked(study, training, tmp_path / str(seed), seed)
        said = model.predict(test.inputs, test.domains)
        exact, _ = measure(study, [test], [said])
        own.append(np.mean([one.auc for one in exact]))
    error = np.hypot(np.std(real, ddof=1), np.std(own, ddof=1)) / np.sqrt(12)
    assert abs(np.mean(real) - np.mean(own)) < 3 * error


def test_each_record_may_stand_for_several_patients(raw_study, tmp_path):
    study = raw_study()
    training, _, test = patients(study)
    few, many = (
        Walk(study, tmp_path, each).train(training, np.random.default_rng(1)).predict(test.inputs, test.domains)[:, 1]
        for each in (1.0, 100.0)
    )
    clear = walked(without_noise(study), training, tmp_path / "own").predict(test.inputs, test.domains)[:, 1]
    assert np.abs(many - clear).mean() < np.abs(few - clear).mean()


SEALED = {"sealed_steps": True, "sealing": "ring64", "momentum": 0.9, "schedule": "cosine", "sampling_rate": 1.0}


@pytest.mark.parametrize(
    ("model", "encoder"),
    [({}, {}), ({"bias": False}, {"momentum": 0.9}), ({"skip": True, "random_features": 3}, SEALED)],
)
def test_an_encoder_is_trained_in_its_rounds_alone(raw_study, tmp_path, model, encoder):
    network = {"encoder": "mlp", "hidden": [3], "representation": 4} | model
    trained = raw_study(model=network, encoder={"rounds": 1} | encoder)
    kept = raw_study(model=network)
    training, *_ = patients(trained)
    begun = walked(kept, training, tmp_path / "kept").encoder
    moved = walked(trained, training, tmp_path / "moved").encoder
    assert not np.array_equal(begun, moved)
    steps = trained.encoder.steps if trained.encoder.sealed_steps else 1
    assert np.abs(moved - begun).max() <= steps * trained.encoder.max_update


def test_the_published_figures_come_from_noised_sums(raw_study, tmp_path):
    study = raw_study(evaluation={"noise": 0.5})
    training, held_out, _ = patients(study)
    model = walked(study, training, tmp_path / "own")
    results = Walk(study, tmp_path / "own").measure(model, held_out, np.random.default_rng(1))
    counted = [own.patients.value for own in results.by_domain]
    assert sum(counted) == pytest.approx(300, abs=10)
    assert counted != [round(value) for value in counted]
