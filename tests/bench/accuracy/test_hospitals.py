from dataclasses import replace

import numpy as np
import pytest

from bench.accuracy import flamby, hospitals
from bench.places import DEMO
from deploy.demo.sources import load_source
from silo_agent.data.reader import read_records
from silo_agent.data.split import split
from silo_agent.learning.model.shared import SharedModel

SOURCE = load_source(DEMO / "heart-disease")


def write(path, rng, rows):
    """Rows in the form of processed.*.data: the label follows exang, some values are missing."""
    lines = []
    for _ in range(rows):
        exang, sex = rng.integers(0, 2, 2)
        num = int(exang) if rng.random() < 0.9 else 1 - int(exang)
        age, pressure, chol, rate = rng.integers((30, 100, 150, 90), (79, 180, 400, 200))
        fbs = "?" if rng.random() < 0.2 else str(rng.integers(0, 2))
        cp, ecg, peak = rng.integers(1, 5), rng.integers(0, 3), round(rng.uniform(0, 4), 1)
        lines.append(f"{age},{sex},{cp},{pressure},{chol},{fbs},{ecg},{rate},{exang},{peak},?,?,?,{num}\n")
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("heart"), np.random.default_rng(5)
    return {silo: write(folder / f"{silo}.data", rng, 90 + 20 * i) for i, silo in enumerate(SOURCE.study.silos)}


@pytest.fixture(scope="module")
def cohorts(files):
    return hospitals.draw_cohorts(SOURCE, files, "test-1")


def test_the_split_is_the_agents_under_the_policy_that_they_get(files, cohorts):
    text = hospitals.policy_text(SOURCE, "test-1")
    assert 'id: "{data_set}-test-1"' in text
    for silo, file in files.items():
        records = read_records(file, SOURCE.study.data, SOURCE.study.data.columns).whole()
        training, held_out = split(records, f"{silo}-test-1", 0.34)
        assert cohorts.training[silo].identities == training.identities
        assert cohorts.held_out[silo].identities == held_out.identities
        assert set(training.identities).isdisjoint(held_out.identities)


def test_another_name_is_another_split(files, cohorts):
    other = hospitals.draw_cohorts(SOURCE, files, "test-2")
    assert other.held_out["va"].identities != cohorts.held_out["va"].identities


def test_splits_are_simulated_in_turns(files, cohorts):
    other = hospitals.draw_cohorts(SOURCE, files, "test-2")
    source = hospitals.InTurns([cohorts, other])
    for seed, own in ((0, cohorts), (1, other), (4, cohorts)):
        silos = source.draw(SOURCE.study, seed).silos
        assert tuple(silos) == SOURCE.study.silos
        assert silos["va"].training is own.training["va"]
        assert silos["va"].held_out is own.held_out["va"]


def test_flambys_recipe_trains_on_no_record_that_is_held_out(files, cohorts):
    for silo, file in files.items():
        records = read_records(file, SOURCE.study.data, SOURCE.study.data.columns).whole()
        centre = cohorts.centres[silo]
        of_rows = np.array(records.identities)[centre.rows]
        trains = cohorts.complete_training[silo]
        assert set(of_rows[trains]) <= set(cohorts.training[silo].identities)
        held = np.array(cohorts.held_out[silo].identities)[cohorts.complete_held_out[silo]]
        assert held.tolist() == of_rows[~trains].tolist()
        labels = cohorts.held_out[silo].labels[cohorts.complete_held_out[silo]]
        assert labels.tolist() == centre.labels[~trains].tolist()
        assert 0 < cohorts.complete_held_out[silo].sum() < len(cohorts.held_out[silo])


def test_every_method_learns_what_the_data_say(cohorts):
    for said in (hospitals.of_pooled(cohorts), hospitals.of_alone(cohorts)):
        assert (hospitals.by_hospital(said, cohorts) > 80).all()
        assert (hospitals.by_domain(said, cohorts) > 75).all()
        assert (hospitals.on_complete(said, cohorts) > 75).all()
    assert (hospitals.of_flamby(cohorts) > 75).all()


def test_alone_reads_nobody_elses_records(cohorts):
    silo = "va"
    emptied = {s: r if s == silo else cohorts.training["hungarian"] for s, r in cohorts.training.items()}
    alone = hospitals.of_alone(replace(cohorts, training=emptied))[silo]
    assert alone.tolist() == hospitals.of_alone(cohorts)[silo].tolist()
    pooled = hospitals.of_pooled(replace(cohorts, training=emptied))[silo]
    assert pooled.tolist() != hospitals.of_pooled(cohorts)[silo].tolist()


def test_the_majority_is_the_training_cohorts(cohorts):
    labels = cohorts.training["va"].labels
    flipped = replace(
        cohorts, held_out={s: replace(r, labels=np.ones_like(r.labels)) for s, r in cohorts.held_out.items()}
    )
    said = hospitals.by_hospital(hospitals.of_majority(flipped), flipped)
    assert said[-1] == (100.0 if labels.mean() >= 0.5 else 0.0)


def test_patients_of_two_hospitals_stay_two(cohorts):
    parts = list(cohorts.training.values())
    together = hospitals.pooled(parts)
    assert len(together) == sum(map(len, parts))
    assert together.patient_count == sum(part.patient_count for part in parts)
    assert together.inputs[len(parts[0])].tolist() == parts[1].inputs[0].tolist()


def test_accuracy_counts_right_signs_and_domains_are_told_apart(cohorts):
    right = {s: np.where(r.labels > 0, 1.0, -1.0) for s, r in cohorts.held_out.items()}
    assert hospitals.by_hospital(right, cohorts).tolist() == [100.0] * 4
    half = {
        s: np.where(r.domains == 2, -v, v) for (s, r), v in zip(cohorts.held_out.items(), right.values(), strict=True)
    }
    assert hospitals.by_domain(half, cohorts).tolist() == [100.0, 100.0, 0.0, 100.0]
    va = {**right, "va": -right["va"]}
    assert hospitals.by_hospital(va, cohorts).tolist() == [100.0, 100.0, 100.0, 0.0]
    assert hospitals.on_complete(va, cohorts).tolist() == [100.0, 100.0, 100.0, 0.0]


def test_a_model_that_knows_nothing_says_yes_at_one_half(cohorts):
    said = hospitals.of_model(SharedModel.start(SOURCE.study), cohorts)
    shares = [100.0 * r.labels.mean() for r in cohorts.held_out.values()]
    assert hospitals.by_hospital(said, cohorts) == pytest.approx(shares)


def test_the_seed_of_the_recipe_is_one_of_theirs():
    assert hospitals.FLAMBY_SEED in flamby.SEEDS
